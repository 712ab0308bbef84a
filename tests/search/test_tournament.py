"""Pairwise comparisons of siblings: which are made, and the Bradley–Terry strengths beside a regression."""

import re
from collections import Counter
from random import Random

import numpy as np
import pytest
from support import TASK, Scripted, answer_to, dice, run, wait
from support.virtual_time import run_virtually

import tot_lab as tl
from tot_lab.core.purposes import role_of
from tot_lab.record.losses import losses_of
from tot_lab.strategies.search.tournament import strengths

Tournament = tl.evaluators.Tournament


def compared(call):
    """The numbers of the two thoughts that a call compares, in the order in which it shows them."""
    return tuple(int(number) for number in re.findall(r"The candidate:\nstep (\d+)", call.prompt))


def prefers_more(call):
    first, second = compared(call)
    return f"best: {1 if first > second else 2}"


def played(judge, count=4, texts=None, **settings):
    """A run with `count` siblings `step 0`, …, whose comparisons get the reply of `judge`."""

    def model(call):
        if call.purpose == "compare":
            return judge(call)
        return texts[call.sample_index] if texts else f"step {call.sample_index}"

    scripted = Scripted(model)
    strategy = tl.TreeOfThoughts(
        propose=tl.Sample(count=count),
        evaluate=Tournament(**settings),
        stop=tl.Stop(depth=1, solved=None),
    )
    made = run(strategy, TASK, scripted)
    return made, [call for call in scripted.calls if call.purpose == "compare"], strategy


def scores(made):
    return [made.tree[id].score for id in made.tree["0"].children]


# Which comparisons are made.


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_each_pair_is_asked_in_both_orders_in_n_times_n_minus_1_calls(count):
    made, calls, strategy = played(prefers_more, count)
    assert len(calls) == count * (count - 1)
    assert Counter(map(compared, calls)) == {(i, j): 1 for i in range(count) for j in range(count) if i != j}
    assert strategy.max_calls(TASK) == count + count * (count - 1) == made.usage.calls
    assert role_of("compare") == "evaluate"
    assert wait(made.replay()).identical


def test_the_bound_follows_the_number_of_children_of_each_expansion():
    """8 particles are 8 siblings, and then at worst all children of one thought: 8 siblings again. An only
    child plays no tournament."""
    strategy = tl.TreeOfThoughts(
        evaluate=Tournament(),
        search=tl.searches.ParticleFilter(particles=8),
        stop=tl.Stop(depth=2, solved=None),
    )
    assert strategy.max_calls(TASK) == 2 * (8 + 8 * 7)
    assert run(strategy).usage.calls <= strategy.max_calls(TASK)
    trees = strategy.with_(search=tl.searches.DVTS(subtrees=4, count=1))
    assert trees.max_calls(TASK) == (4 + 4 * 3) + 4


def test_comparisons_of_one_group_are_made_at_the_same_time():
    waiting = []

    def latency(call):
        waiting.append(call.purpose)
        return 0.05

    model = Scripted(
        lambda call: "best: 1" if call.purpose == "compare" else f"s {call.sample_index}", latency
    )
    strategy = tl.TreeOfThoughts(evaluate=Tournament(), stop=tl.Stop(depth=1, solved=None))
    lab = tl.Lab(model, runs=None)
    _, seconds = run_virtually(lab.run(strategy, TASK))
    assert waiting.count("compare") == 6
    assert seconds == pytest.approx(2 * 0.05)


def test_equal_texts_are_compared_once_and_share_their_strength():
    texts = ["step 1", "step 2", "step 1", "step 1"]
    made, calls, _ = played(prefers_more, texts=texts)
    assert len(calls) == 2
    assert scores(made)[0] == scores(made)[2] == scores(made)[3] < scores(made)[1]


def test_a_template_is_the_prompt():
    made, calls, _ = played(lambda call: "best: 2", 2, prompt="{problem}\n{candidates}\nWhich? best: N")
    assert [call.prompt.split("\n")[1:3] for call in calls] == [
        ["1. step 0", "2. step 1"],
        ["1. step 1", "2. step 0"],
    ]
    assert scores(made) == [0.5, 0.5]


# Scores.


def test_a_consistent_judge_ranks_and_none_is_certain():
    made, _, _ = played(prefers_more, 5)
    assert scores(made) == sorted(scores(made))
    assert len({*scores(made)}) == 5
    assert 0 < min(scores(made)) < max(scores(made)) < 1
    assert made.tree["0.4"].samples == (1.0,) * 8
    assert made.tree["0.4"].raw == pytest.approx(scores(made)[4] / (1 - scores(made)[4]))


@pytest.mark.parametrize("place", [1, 2])
def test_a_judge_that_prefers_a_position_prefers_no_thought(place):
    made, _, _ = played(lambda call: f"best: {place}", 5)
    assert scores(made) == [0.5] * 5


def test_thoughts_that_beat_each_other_in_a_circle_are_exactly_equal():
    def circle(call):
        first, second = compared(call)
        return f"best: {1 if (first - second) % 5 in (1, 2) else 2}"

    made, _, _ = played(circle, 5)
    assert scores(made) == pytest.approx([0.5] * 5)
    assert len({*scores(made)}) == 1


def test_an_only_child_has_no_score_and_a_reason():
    made, calls, _ = played(prefers_more, 1)
    assert (scores(made), calls) == ([None], [])
    assert [e.data["reason"] for e in made.events if getattr(e, "name", "") == "score.missing"] == [
        "there is no other thought to compare it with"
    ]


def test_unreadable_comparisons_count_for_nobody_and_are_counted_once():
    def silent_about_0(call):
        return "a tie" if 0 in compared(call) else prefers_more(call)

    made, _, _ = played(silent_about_0, 3)
    assert scores(made)[0] is None
    assert scores(made)[1] < 0.5 < scores(made)[2]
    assert made.tree["0.0"].samples == () == made.tree["0"].samples
    assert made.tree["0.1"].samples.count(None) == 2
    lost = losses_of(made)["evaluate"]
    assert (lost.calls, lost.unreadable) == (6, 4)


def test_failed_comparisons_cost_only_the_thoughts_without_another():
    def broken_for_0(call):
        if 0 in compared(call):
            raise ConnectionError("gone")
        return prefers_more(call)

    made, _, _ = played(broken_for_0, 3)
    assert made.tree["0.0"].state == "failed"
    assert scores(made)[1] < 0.5 < scores(made)[2]
    lost = losses_of(made)["evaluate"]
    assert (lost.calls, lost.failed, lost.unreadable) == (6, 4, 0)

    def broken(call):
        raise ConnectionError("gone")

    made, _, _ = played(broken, 3)
    assert {made.tree[f"0.{k}"].state for k in range(3)} == {"failed"}
    assert made.stop_reason == "error"


def test_the_budget_is_exact():
    strategy = tl.TreeOfThoughts(evaluate=Tournament(), stop=tl.Stop(depth=3, solved=None))
    for calls in (3, 5, 9, 20):
        made = run(strategy, budget=tl.Budget(calls=calls))
        assert (made.usage.calls, made.stop_reason) == (calls, "budget:calls")


# Strengths, beside a logistic regression.


def regression(wins):
    """The strengths by a generalised linear model of each single result, with the results of the prior."""

    import statsmodels.api as sm

    count, rows, results = len(wins), [], []
    for i in range(count):
        for j in range(count):
            if i != j:
                row = np.zeros(count)
                row[i], row[j] = 1, -1
                rows += [row] * wins[i][j]
                results += [1] * wins[i][j]
        alone = np.zeros(count)
        alone[i] = 1
        rows += [alone, alone]
        results += [1, 0]
    fitted = sm.GLM(results, np.array(rows), family=sm.families.Binomial()).fit(tol=1e-12, maxiter=200)
    return np.exp(fitted.params)


def random_wins(seed):
    """How often each of several things has beaten each other. Some pairs have not met."""
    random = Random(seed)
    count = random.randint(1, 8)
    met = random.choice([0.2, 0.6, 1.0])
    wins = [[0] * count for _ in range(count)]
    for i in range(count):
        for j in range(i):
            if random.random() < met:
                wins[i][j], wins[j][i] = random.choice([(2, 0), (1, 1), (0, 2), (0, 1), (5, 3)])
    return wins


@pytest.mark.nightly
def test_the_strengths_are_those_of_a_logistic_regression():
    for seed in range(200):
        wins = random_wins(seed)
        assert strengths(wins) == pytest.approx(regression(wins), rel=1e-5)


@pytest.mark.slow
def test_the_order_of_the_thoughts_changes_no_strength_by_a_single_bit():
    """So that thoughts with the same results tie."""
    for seed in range(100):
        wins = random_wins(seed)
        places = Random(seed).sample(range(len(wins)), len(wins))
        moved = [[wins[i][j] for j in places] for i in places]
        assert strengths(moved) == [strengths(wins)[i] for i in places]


@pytest.mark.slow
@pytest.mark.parametrize(
    "wins",
    [
        [[0, 2, 2, 2], [0, 0, 2, 2], [0, 0, 0, 2], [0, 0, 0, 0]],  # without the prior: infinite
        [[0, 2, 0, 0], [0, 0, 0, 0], [0, 0, 0, 2], [0, 0, 0, 0]],  # two groups that have not met
        [[0, 60, 60], [0, 0, 0], [0, 0, 0]],
    ],
)
def test_extreme_results_have_finite_strengths(wins):
    assert strengths(wins) == pytest.approx(regression(wins), rel=1e-5)
    assert all(0 < strength < np.inf for strength in strengths(wins))


def test_whoever_has_met_nobody_has_the_strength_of_the_prior():
    assert strengths([[0]]) == [1.0]
    assert strengths([[0, 0], [0, 0]]) == [1.0, 1.0]
    assert strengths([[0, 1, 0], [1, 0, 0], [0, 0, 0]]) == [1.0, 1.0, 1.0]


def test_groups_that_have_not_met_have_the_same_strengths_for_the_same_results():
    first, second, third, fourth = strengths([[0, 2, 0, 0], [0, 0, 0, 0], [0, 0, 0, 2], [0, 0, 0, 0]])
    assert (first, second) == (third, fourth)
    assert first * second == pytest.approx(1)


def test_with_many_results_they_are_the_strengths_that_made_them():
    random, true = Random(5), [0.25, 0.5, 2.0, 4.0]
    wins = [[0] * 4 for _ in true]
    for i in range(4):
        for j in range(i):
            for _ in range(4000):
                won = random.random() < true[i] / (true[i] + true[j])
                wins[i][j] += won
                wins[j][i] += not won
    assert strengths(wins) == pytest.approx(true, rel=0.1)


@pytest.mark.parametrize("search", ["ParticleFilter", "ParticleGibbs", "REBASE"])
def test_max_calls_holds_where_all_children_of_a_level_have_one_parent(search):
    """Then each is compared with all others. With an evaluator that judges each alone, nothing changes."""
    kind = getattr(tl.searches, search)
    strategy = tl.TreeOfThoughts(
        propose=tl.proposers.Refine(),
        evaluate=Tournament(),
        search=kind(),
        stop=tl.Stop(depth=3, solved=None),
    )
    for seed in range(4):
        model = Scripted(lambda call, seed=seed: answer_to(call) + " " * (dice(call).random() < 0.3 * seed))
        run(strategy, TASK, model)
        assert len(model.calls) <= strategy.max_calls(TASK)
    assert len(model.calls) > 1
    alone = tl.TreeOfThoughts(search=tl.searches.ParticleFilter(particles=4), stop=tl.Stop(depth=3))
    assert alone.max_calls(TASK) == 3 * 4 * 2, "a step and a judgement of each particle, on each level"
