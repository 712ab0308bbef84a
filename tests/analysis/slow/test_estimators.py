"""pass@k, majority@k and best of k from recorded samples, against their definitions."""

from itertools import combinations, permutations
from math import comb, prod
from random import Random

import msgspec
import numpy
import pandas
import pytest
from support import mostly_nightly, wait
from support.endpoint import scripted

import tot_lab as tl
from tot_lab.analysis import estimators
from tot_lab.models.stack import Failure


def table(tasks):
    """A table of samples; `tasks` are lists of (answer, correct, score)."""
    return pandas.DataFrame(
        [
            {"setting": "one", "task": f"task {k}", "answer": answer, "correct": correct, "score": score}
            for k, samples in enumerate(tasks)
            for answer, correct, score in samples
        ]
    )


def random_samples(rng, most, scores=(0.0, 0.25, 0.5, 1.0, None)):
    right = {answer: rng.random() < 0.4 for answer in "abcd"}
    answers = [rng.choice(["a", "b", "c", "d", None]) for _ in range(rng.randint(1, most))]
    return [(answer, right.get(answer, False), rng.choice(scores)) for answer in answers]


def rates(estimates):
    return list(estimates["rate"].astype(float))


def test_pass_at_k_is_the_closed_form():
    """The product of Chen et al. 2021, listing 1: 1 - prod(1 - k / (n - c + 1 … n))."""
    rng = Random(1)
    cases = {}
    for number in range(1_000):
        n = rng.randint(1, 60)
        cases[f"case {number}"] = n, rng.randint(0, n)
    frame = pandas.DataFrame(
        [(name, "task", place < c) for name, (n, c) in cases.items() for place in range(n)],
        columns=["setting", "task", "correct"],
    )
    found = tl.stats.pass_at_k(frame)
    assert set(found["setting"]) == set(cases)
    for row in found.itertuples():
        n, c = cases[row.setting]
        wanted = 1.0 if n - c < row.k else 1 - prod(1 - row.k / i for i in range(n - c + 1, n + 1))
        assert row.rate == pytest.approx(wanted, abs=1e-9)


def in_all_orders(samples, k, winner):
    """The share of ordered draws of k samples whose winner is correct."""
    outcomes = [winner(drawn) for drawn in permutations(samples, k)]
    return sum(outcomes) / len(outcomes)


def voted(drawn, weigh):
    """Whether the answer with most votes is correct; the one drawn first wins among equals."""
    weights = [weigh(score) if answer else 0 for answer, _, score in drawn]
    if not any(weights):
        weights = [1 if answer else 0 for answer, _, _ in drawn]
    votes, right = {}, {}
    for (answer, correct, _), weight in zip(drawn, weights, strict=True):
        if answer:
            votes[answer] = votes.get(answer, 0) + weight
            right[answer] = correct
    return bool(votes) and right[max(votes, key=votes.__getitem__)]


def best(drawn):
    answer, correct, _ = max(drawn, key=lambda one: (bool(one[0]), -1.0 if one[2] is None else one[2]))
    return bool(answer) and correct


ESTIMATES = {
    "majority": (tl.stats.majority_at_k, lambda drawn: voted(drawn, lambda score: 1)),
    "weighted": (
        lambda df, k: tl.stats.majority_at_k(df, k, weighted=True),
        lambda drawn: voted(drawn, lambda score: score or 0),
    ),
    "best": (tl.stats.best_of_k, best),
    "pass": (tl.stats.pass_at_k, lambda drawn: any(correct for _, correct, _ in drawn)),
}


@pytest.mark.parametrize("name", ESTIMATES)
def test_an_estimate_is_the_mean_over_all_ordered_draws(name):
    estimate, winner = ESTIMATES[name]
    rng = Random(2)
    for _ in range(60):
        samples = random_samples(rng, 6)
        ks = list(range(1, len(samples) + 1))
        found = estimate(table([samples]), ks)
        assert rates(found) == pytest.approx([in_all_orders(samples, k, winner) for k in ks])
        assert not found["error"].any()


def test_majority_at_k_is_the_mean_over_all_subsets_of_twelve():
    """Ties are split evenly, as the order of equally many votes decides them."""
    rng = Random(3)
    for _ in range(12):
        samples = (random_samples(rng, 12) * 12)[:12]
        found = rates(tl.stats.majority_at_k(table([samples]), list(range(1, 13))))
        for k in range(1, 13):
            shares = []
            for drawn in combinations(samples, k):
                given = [answer for answer, _, _ in drawn if answer]
                most = max((given.count(answer) for answer in given), default=0)
                tied = {answer: ok for answer, ok, _ in drawn if answer and given.count(answer) == most}
                shares.append(sum(tied.values()) / len(tied) if tied else 0.0)
            assert found[k - 1] == pytest.approx(sum(shares) / len(shares))


@pytest.mark.parametrize("name", ["majority", "weighted"])
def test_random_draws_have_an_honest_error(name, monkeypatch):
    """Where the exact value is known, the drawn one is within four of its standard errors."""
    estimate, _ = ESTIMATES[name]
    rng = Random(4)
    df = table([(random_samples(rng, 9) * 9)[:9] for _ in range(20)])
    exact = rates(estimate(df, [3, 5]))
    monkeypatch.setattr(estimators, "ENUMERATED", 1)
    monkeypatch.setattr(estimators, "EXACT", 1)
    drawn = estimate(df, [3, 5])
    assert drawn["error"].between(1e-4, 0.02).all()
    assert (abs(drawn["rate"] - exact) <= 4 * drawn["error"]).all()
    assert estimate(df, [3, 5]).equals(drawn), "the seed is fixed"


def test_a_large_vote_is_the_binomial_one():
    """Two answers and an odd k: the hypergeometric tail."""
    n, c, k = 256, 120, 33
    found = tl.stats.majority_at_k(table([[("a", True, None)] * c + [("b", False, None)] * (n - c)]), k)
    wanted = sum(comb(c, j) * comb(n - c, k - j) for j in range(17, k + 1)) / comb(n, k)
    assert rates(found) == pytest.approx([wanted])


def test_a_vote_of_more_than_a_thousand_samples_is_drawn():
    """1,400 samples, whose numbers of subsets exceed a float: the hypergeometric tail, within the error."""
    n, c, k = 1_400, 720, 33
    found = tl.stats.majority_at_k(table([[("a", True, None)] * c + [("b", False, None)] * (n - c)]), k)
    wanted = sum(comb(c, j) * comb(n - c, k - j) for j in range(17, k + 1)) / comb(n, k)
    assert 0 < found["error"][0] < 0.02
    assert abs(found["rate"][0] - wanted) <= 4 * found["error"][0]
    exact = tl.stats.majority_at_k(table([[("a", True, None)] * 500 + [("b", False, None)] * 500]), [1, 999])
    assert rates(exact) == pytest.approx([0.5, 0.5])


def test_tasks_with_too_few_samples_are_said():
    df = table([[("a", True, None)] * 4, [("b", False, None)] * 2])
    assert list(tl.stats.pass_at_k(df)["k"]) == [1, 2]
    with pytest.warns(UserWarning, match="1 of 2 tasks of 'one' have fewer than 4 samples"):
        found = tl.stats.pass_at_k(df, [2, 4])
    assert list(found["tasks"]) == [2, 1]
    with pytest.raises(ValueError, match="k=5 is too large: no task of 'one' has more than 4"):
        tl.stats.pass_at_k(df, 5)


@pytest.mark.parametrize("k", [0, -1, [], [0, 1], 1.5, "2"])
def test_a_bad_k_is_an_error(k):
    with pytest.raises(ValueError, match="k must be a positive whole number"):
        tl.stats.pass_at_k(table([[("a", True, None)]]), k)


def test_ungraded_samples_and_missing_columns():
    df = table([[("a", True, None), ("b", None, None)]])
    assert list(tl.stats.pass_at_k(df)["k"]) == [1]
    with pytest.raises(ValueError, match="no column 'score'"):
        tl.stats.best_of_k(df.drop(columns="score"))
    with pytest.raises(ValueError, match="No sample of the setting 'one' has a grade"):
        tl.stats.pass_at_k(table([[("a", None, None)]]))


# Samples of runs.

TASKS = [tl.general(f"How many legs have {k} spiders?", answer=8 * k, grade="number") for k in range(8)]


def guesses(call):
    """Three of seven samples are right, or one, and the others one of three mistakes; a judge sees one."""
    if call.purpose == "answer":
        number = int(call.prompt.split("have ")[1].split()[0])
        place = ((*call.attempt, 0)[0] + number) % 7
        right = (0, 3, 5) if number % 2 else (0,)
        return f"Answer: {8 * number if place in right else 1000 + place % 3}"
    return "score: 0.9" if "Answer: 1001" not in call.prompt else "score: 0.2"


def sweep(strategy, reply=guesses, **settings):
    lab = tl.Lab(scripted(reply), runs=None, mode="off")
    return wait(lab.sweep(strategy, TASKS, **settings))


VOTES = {
    "majority@k": tl.SelfConsistency(attempts=7),
    "weighted majority@k": tl.methods.WeightedBestOf(attempts=7),
    "best of k": tl.BestOf(strategy=tl.ChainOfThought(), attempts=7),
}


@pytest.mark.parametrize("name", VOTES)
def test_all_samples_give_the_rate_of_the_runs(name):
    """The rule over all n samples is the run's own, where no answers are tied."""
    made = sweep(VOTES[name])
    estimate = {
        "majority@k": tl.stats.majority_at_k,
        "weighted majority@k": lambda df, k: tl.stats.majority_at_k(df, k, weighted=True),
        "best of k": tl.stats.best_of_k,
    }[name]
    samples = tl.stats.samples(made)
    assert len(samples) == 7 * len(TASKS)
    assert samples["correct"].mean() == pytest.approx(2 / 7)
    assert list(samples.groupby("task", observed=True)["sample"].max()) == [6] * len(TASKS)
    found = estimate(made, 7)
    assert list(found["estimate"]) == [name]
    own = [made.run(id).correct for id in made.df()["run_id"]]
    if name == "best of k":  # equal scores: the order decides, and the estimate is the mean over orders
        assert 0 < rates(found)[0] < 1
    else:
        assert rates(found) == [sum(own) / len(own)]
    assert rates(tl.stats.pass_at_k(made, 7)) == [1.0]
    assert list(found["output_tokens"]) == [7.0], "one token a sample; the judge's are not generated"


def test_the_leaves_of_a_level_of_whole_solutions_are_samples():
    """Best of N by a reward model, as in docs/how-to/search_and_learn.md; one solution is empty."""

    def solutions(call):
        return ["Answer: 24", "", "Answer: 7", "Answer: 24"][call.sample_index]

    tree = tl.TreeOfThoughts(
        propose=tl.proposers.Continue(tokens_per_step=2048, count=4),
        search=tl.BeamSearch(width=4),
        evaluate=lambda task, path: 0.9 if "7" in path[-1] else 0.25,
        stop=tl.Stop(solved=None, depth=1),
        answer=tl.answers.MajorityVote(weighted=True),
    )
    run = wait(tl.Lab(scripted(solutions), runs=None, mode="off").run(tree, TASKS[3]))
    samples = tl.stats.samples(run)
    assert list(samples["answer"].fillna("")) == ["24", "", "7", "24"]
    assert list(samples["score"].fillna(-1)) == [0.25, -1, 0.9, 0.25]
    assert list(samples["correct"]) == [True, False, False, True]
    assert list(samples["output_tokens"]) == [1, 1, 1, 1]
    assert rates(tl.stats.majority_at_k(run, 4)) == [1]
    assert rates(tl.stats.majority_at_k(run, 4, weighted=True)) == [0]
    assert rates(tl.stats.best_of_k(run, 4)) == [0]


def test_repeats_are_samples_too():
    made = sweep(tl.ChainOfThought(), lambda call: f"Answer: {8 * (call.repeat % 2)}", repeats=4)
    samples = tl.stats.samples(made)
    assert list(samples["sample"][:4]) == [0, 1, 2, 3]
    assert rates(tl.stats.pass_at_k(made, 4)) == [2 / 8], "only 0 and 8 are ever said"


def test_a_failed_call_is_no_sample():
    def fails(call):
        if call.attempt == (2,):
            raise Failure("busy")
        return guesses(call)

    made = sweep(tl.SelfConsistency(attempts=5), fails)
    samples = tl.stats.samples(made)
    assert list(samples["error"].notna()) == [False, False, True, False, False] * len(TASKS)
    with pytest.warns(UserWarning, match="8 of 40 samples of 'SelfConsistency' failed and are left out"):
        found = tl.stats.pass_at_k(made)
    assert (max(found["k"]), set(found["errors"])) == (4, {8})


def test_an_attempt_that_found_nothing_is_a_wrong_sample():
    made = sweep(tl.SelfConsistency(attempts=3), lambda call: "" if call.attempt == (1,) else guesses(call))
    samples = tl.stats.samples(made)
    assert list(samples["correct"].isna()) == [False] * 3 * len(TASKS)
    assert not samples["correct"][1::3].any()


def test_simulated_samples_are_named_so():
    lab = tl.Lab("sim/general", runs=None, mode="off")
    run = wait(lab.run(tl.SelfConsistency(attempts=3), TASKS[1]))
    assert tl.stats.samples(run)["simulated"].all()
    assert tl.stats.pass_at_k(run)["simulated"].all()
    assert not tl.stats.pass_at_k(sweep(tl.SelfConsistency(attempts=3)))["simulated"].any()


def test_a_strategy_that_is_not_imported_is_an_error():
    """Its runs could hold several samples each."""
    run = wait(tl.Lab(scripted(guesses), runs=None).run(tl.SelfConsistency(attempts=3), TASKS[1]))
    gone = {**run.header.strategy, "strategy": {"kind": "tests/gone"}}
    header = msgspec.structs.replace(run.header, strategy=gone)
    with pytest.raises(ValueError, match="tests/gone"):
        tl.stats.samples(tl.Run(header, run.lines, task=run.task))


def test_the_score_of_a_vote_is_not_that_of_a_sample():
    assert tl.stats.samples(sweep(VOTES["majority@k"]))["score"].isna().all()
    weighted = tl.stats.samples(sweep(VOTES["weighted majority@k"]))
    assert set(weighted["score"]) == {0.9, 0.2}


def test_equal_answers_are_those_of_the_domain():
    task = tl.general("What is a half?", answer="1/2", grade="math")
    lab = tl.Lab(scripted(lambda call: f"Answer: {['1/2', '0.5', '2'][call.attempt[0]]}"), runs=None)
    run = wait(lab.run(tl.SelfConsistency(attempts=3), task))
    assert list(tl.stats.samples(run)["same"]) == [0, 0, 1]


@pytest.mark.parametrize("name", mostly_nightly(["pass", "majority"], ["pass"]))
def test_intervals_cover_the_rate(name):
    """500 sweeps of 60 tasks with 16 samples; the chance of each task comes from a beta distribution."""
    rng = numpy.random.default_rng(5)
    k, n, tasks, sweeps = 3, 16, 60, 500
    chances = rng.beta(0.8, 2.0, 200_000)
    each = 1 - (1 - chances) ** k if name == "pass" else chances**2 * (3 - 2 * chances)
    right = rng.random((sweeps, tasks, n)) < rng.beta(0.8, 2.0, (sweeps, tasks, 1))
    frame = pandas.DataFrame(
        {
            "setting": numpy.repeat(numpy.arange(sweeps), tasks * n),
            "task": numpy.tile(numpy.repeat(numpy.arange(tasks), n), sweeps),
            "correct": right.ravel(),
            "answer": right.ravel().astype(str),
        }
    )
    found = ESTIMATES[name][0](frame, k)
    covered = (found["low"] <= each.mean()) & (each.mean() <= found["high"])
    assert 0.90 <= covered.mean() <= 0.97


def scored_sweeps(rng, sweeps, tasks, n):
    """Samples with one of three answers, 0 being right, and a score that is only sometimes right about it."""
    right = rng.random((sweeps, tasks, n)) < rng.beta(0.8, 2.0, (sweeps, tasks, 1))
    answers = numpy.where(right, 0, rng.integers(1, 3, right.shape))
    scores = numpy.clip(0.3 + 0.3 * right + 0.2 * rng.standard_normal(right.shape), 0.01, 1)
    return right, answers, numpy.round(scores, 2)


def wins_of_three(right, answers, scores, weighted):
    """The share of groups of three samples that are won by a right one: a rule for arrays."""
    if not weighted:
        best = scores == scores.max(axis=-1, keepdims=True)
        return ((right & best).sum(axis=-1) / best.sum(axis=-1)).mean()
    votes = numpy.stack([(scores * (answers == answer)).sum(axis=-1) for answer in range(3)], axis=-1)
    first = votes >= votes.max(axis=-1, keepdims=True) - 1e-9
    return (first[..., 0] / first.sum(axis=-1)).mean()


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["best", "weighted"])
def test_intervals_of_scored_samples_cover_the_rate(name):
    """500 sweeps of 60 tasks with 12 samples, against the rate in a million groups of three."""
    rng = numpy.random.default_rng(6)
    rate = wins_of_three(*scored_sweeps(rng, 1_000, 1_000, 3), weighted=name == "weighted")
    sweeps, tasks, n = 500, 60, 12
    right, answers, scores = scored_sweeps(rng, sweeps, tasks, n)
    frame = pandas.DataFrame(
        {
            "setting": numpy.repeat(numpy.arange(sweeps), tasks * n),
            "task": numpy.tile(numpy.repeat(numpy.arange(tasks), n), sweeps),
            "correct": right.ravel(),
            "answer": answers.ravel().astype(str),
            "score": scores.ravel(),
        }
    )
    found = ESTIMATES[name][0](frame, 3)
    covered = (found["low"] <= rate) & (rate <= found["high"])
    assert found["rate"].mean() == pytest.approx(rate, abs=0.01), "unbiased"
    assert 0.90 <= covered.mean() <= 0.97
