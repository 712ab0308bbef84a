"""AB-MCTS-M: its posterior, its decisions, and how a search chooses between models.

`golden/treequest_mixed.json` holds the decisions of the package treequest 0.3.3 and the posteriors that NUTS
samples for it. `make proof` has them made again, in an environment of its own.
"""

import json
import math
import statistics
import subprocess
import time
import venv
from collections import Counter
from random import Random

import numpy as np
import pytest
from support import GOLDEN, TASK, Scripted, run, wait
from support.as_treequest import parents_of, steps_with_two_models
from support.by_hand import drive
from support.steering import check_prune
from treequest_steps import SEEDS, STEPS, Recorded

import tot_lab as tl
from tot_lab.core.records import Note, Scored, Thought
from tot_lab.strategies.search import ab_mcts_m
from tot_lab.strategies.search.ab_mcts_a import Gaussian
from tot_lab.strategies.search.ab_mcts_m import MixedEffects, select
from tot_lab.strategies.search.adaptive_branching import Arms, Members, Posterior, update
from tot_lab.strategies.search.searches import SearchState

MIXED = json.loads((GOLDEN / "treequest_mixed.json").read_text())
TREES = MIXED["trees"]


def groups_of(*scores):
    groups = []
    for each in scores:
        groups.append(Posterior())
        for score in each:
            groups[-1].observe(score)
    return groups


# The posterior.


@pytest.mark.slow
@pytest.mark.parametrize(
    "scores",
    [[], [[0.9]], [[0.3, 0.5, 0.35], [0.8, 0.7], [0.1]], [[0.2, 0.7, 0.4, 0.9, 0.1, 0.5, 0.6, 0.3]]],
    ids=str,
)
def test_the_posterior_is_that_of_numerical_integration_over_all_parameters(scores):
    """The likelihood is the joint normal density of all scores, and the integral the sum over equal parts."""

    from scipy import stats

    flat = np.array([score for each in scores for score in each])
    group = np.repeat(np.arange(len(scores)), [len(each) for each in scores])
    between, within = (
        value.reshape(-1, 1, 1) for value in np.meshgrid(middles(1.0, 250), middles(1.5, 250), indexing="ij")
    )
    covariance = 0.2**2 + between**2 * (group[:, None] == group) + within**2 * np.eye(len(flat))
    solved = np.linalg.solve(covariance, (flat - 0.5)[:, None])[..., 0]
    logs = -(np.linalg.slogdet(covariance)[1] + solved @ (flat - 0.5)) / 2
    between, within = between.ravel(), within.ravel()
    logs += stats.halfnorm.logpdf(between, scale=0.2) + stats.halfnorm.logpdf(within, scale=0.3)
    weights = np.exp(logs - logs.max())
    found = MixedEffects(groups_of(*scores)).parameters
    for name, values in ("mu", 0.5 + 0.2**2 * solved.sum(axis=1)), ("between", between), ("within", within):
        assert found[name] == pytest.approx(np.average(values, weights=weights), abs=1e-3)


def middles(end, count):
    """The middles of equal parts of the interval from 0."""
    return (np.arange(count) + 0.5) * end / count


def moments(name):
    """Moments of a fit: of the parameters exactly, of the next scores by many draws."""
    of_child, of_action = {}, {}
    for number, (_, action, score) in enumerate(TREES[name]):
        first = number
        while TREES[name][first][0] >= 0:
            first = TREES[name][first][0]
        of_child.setdefault(first, []).append(score)
        of_action.setdefault(action, []).append(score)
    found = {}
    for kind, scores in ("child", of_child), ("action", of_action):
        names = [str(k) for k in range(len(scores))] if kind == "child" else list(scores)
        groups, random = groups_of(*scores.values()), Random(7)
        model = MixedEffects(groups)
        for parameter, symbol in zip(
            model.parameters.values(), ("mu_alpha", "sigma_alpha", "sigma_y"), strict=True
        ):
            found[f"{kind}: {symbol}"] = [parameter]
        for each, group in [*zip([f"y {name}" for name in names], groups, strict=True), ("y_new", None)]:
            draws = [model.draw(group, random) for _ in range(20_000)]
            found[f"{kind}: {each}"] = [statistics.fmean(draws), statistics.stdev(draws)]
    return found


def agree_with_nuts(fits):
    """Check all moments within 4 standard errors of both sides together."""
    checked = 0
    for name, fit in fits.items():
        found = moments(name)
        for quantity, (mean, error, sd, error_of_sd) in fit["moments"].items():
            ours = found[quantity]
            sampling = sd / math.sqrt(20_000) if len(ours) == 2 else 0.0
            assert abs(ours[0] - mean) < 4 * math.hypot(error, sampling), (name, quantity, ours, mean, error)
            if len(ours) == 2:
                assert abs(ours[1] - sd) < 4 * math.hypot(error_of_sd, sampling), (name, quantity, ours, sd)
            checked += 1
    assert checked > 25


@pytest.mark.nightly
def test_the_posterior_has_the_moments_that_nuts_samples():
    agree_with_nuts(MIXED["fits"])


@pytest.mark.parametrize("scores", [[[0.5] * 3], [[0.5]] * 4, [[1.0] * 3, [0.0] * 2], [[1.0] * 400, [0.0]]])
def test_equal_scores_have_a_posterior(scores):
    """NUTS diverges here: without a least standard deviation the posterior is not a distribution."""
    groups, random = groups_of(*scores), Random(1)
    model = MixedEffects(groups)
    for group in groups:
        draws = [model.draw(group, random) for _ in range(2000)]
        assert all(map(math.isfinite, draws))
        if group.count > 1:
            assert statistics.median(draws) == pytest.approx(group.total / group.count, abs=0.02)


# Decisions.


@pytest.fixture
def coarse(monkeypatch):
    """The grid of the golden steps."""
    monkeypatch.setattr(ab_mcts_m, "POINTS", MIXED["points"])


@pytest.mark.slow
def test_its_decisions_are_those_of_its_authors(coarse):
    for seed, steps in zip(SEEDS, MIXED["steps, 1 action"], strict=True):
        search = tl.searches.ABMCTSM(iterations=STEPS)
        assert parents_of(search, seed, 20, random=Recorded(seed))[0] == steps


@pytest.mark.slow
def test_it_chooses_the_models_that_its_authors_mean_to_choose(coarse):
    for seed, golden in zip(SEEDS, MIXED["steps, 2 actions, mended"], strict=True):
        search = tl.searches.ABMCTSM(iterations=STEPS)
        steps, made = steps_with_two_models(search, seed, random=Recorded(seed))
        assert steps == golden
        for (pick, _), (_, model) in zip(made, steps, strict=True):
            terms = pick.why[pick.parents[0]]
            assert terms["member"] == model == max("ab", key=lambda name, t=terms: t[f"{name} drawn"])


@pytest.mark.slow
def test_the_package_chooses_between_models_as_if_none_had_made_a_thought(coarse, monkeypatch):
    """With a new group in place of the group of each model, all its steps agree."""
    choose = Members.choose

    def blind(members, draw, terms):
        def drawn(scores):
            model, random = MixedEffects(scores.values()), Members.random
            return {name: model.draw(None, random) for name in scores}

        return choose(members, drawn, terms)

    for seed, golden in zip(SEEDS, MIXED["steps, 2 actions"], strict=True):
        search = tl.searches.ABMCTSM(iterations=STEPS)
        assert steps_with_two_models(search, seed, random=Recorded(seed))[0] != golden
        with monkeypatch.context() as patch:
            patch.setattr(Members, "random", Recorded(seed), raising=False)
            patch.setattr(Members, "choose", blind)
            assert steps_with_two_models(search, seed, random=Members.random)[0] == golden


def choices(rows, count):
    """How often the search chooses which child of the root, or a new one."""
    state = SearchState(TASK, "0", tl.TreeOfThoughts())
    state.tree.add(Thought("0", None, "root"))
    arms, ids = Arms(state, Posterior), ["0"]
    for parent, _, score in rows:
        above = ids[parent + 1]
        ids.append(f"{above}.{len(state.tree[above].children)}")
        state.tree.add(Thought(ids[-1], above, "thought"))
        state.tree.add(Scored(ids[-1], score, by="test"))
        if ids[-1].count(".") > 1:
            state.closed.add(ids[-1])  # so that a descent ends at the child of the root
        update(state, arms, ids[-1:], ids[-1:])
    random, chosen = Random(3), Counter()
    for _ in range(count):
        id, _ = select(state, arms, random)
        chosen["new" if id == "0" else f"child {ids.index(id) - 1}"] += 1
    return chosen


def agree_in_frequency(fits, count):
    from scipy import stats

    for name, fit in fits.items():
        ours, theirs = choices(TREES[name], count), Counter()
        for option, times in fit["choices"].items():
            theirs[option if option.startswith("child") else "new"] += times
        options = sorted({*ours, *theirs})
        table = [[counts[option] for option in options] for counts in (ours, theirs)]
        assert stats.chi2_contingency(table).pvalue > 0.001, (name, options, table)


@pytest.mark.nightly
def test_it_chooses_each_child_and_a_new_one_as_often_as_its_authors_with_nuts():
    agree_in_frequency(MIXED["fits"], 1500)


@pytest.mark.slow
def test_thoughts_that_are_complete_are_never_expanded():
    made, state = drive(tl.searches.ABMCTSM(iterations=60), lambda id: 1.0, depth=2)  # the driver checks
    assert len(made) == 60 == len(state.tree) - 1
    assert {node.depth for node in state.tree} == {0, 1, 2}


@pytest.mark.slow
@pytest.mark.parametrize("good", ["0.0.", "0.2."])
def test_it_stays_in_the_subtree_with_the_high_scores(good):
    _, state = drive(
        tl.searches.ABMCTSM(iterations=100),
        lambda id: 0.9 if f"{id}.".startswith(good) else 0.1,
        random=Random(3),
    )
    inside = [node for node in state.tree if f"{node.id}.".startswith(good)]
    assert len(inside) > 70


@pytest.mark.slow
@pytest.mark.parametrize("rescore", [{}, {25: {"0.0": 0.95, "0.1": None}}])
def test_the_groups_hold_the_scores_of_the_tree_as_it_is(rescore):
    dice, given = Random(5), {}
    search = tl.searches.ABMCTSM(iterations=50)
    made, _ = drive(search, lambda id: given.setdefault(id, dice.random()), random=Random(1), rescore=rescore)
    score, checked = {}, 0
    for number, (pick, children) in enumerate(made):
        score |= {id: max(new or 0.0, 0.0) for id, new in rescore.get(number, {}).items()}
        for id, terms in pick.why.items():
            if id != "0":
                group = [score[other] for other in score if f"{other}.".startswith(f"{id}.")]
                assert terms["scores"] == len(group)
                assert terms["average"] == pytest.approx(statistics.fmean(group))
                checked += 1
        score |= {id: given[id] for id in children}
    assert checked > 20


@pytest.mark.slow
def test_nothing_below_a_thought_that_a_person_has_pruned_is_expanded():
    check_prune(tl.searches.ABMCTSM(iterations=25))


def test_the_draws_behind_each_choice_are_recorded_and_a_replay_makes_them_again():
    search = tl.TreeOfThoughts(search=tl.searches.ABMCTSM(iterations=12), stop=tl.Stop(solved=None))
    made = run(search)
    assert made.usage.calls == 24 == search.max_calls(TASK)
    picked = [event.data for event in made.events if isinstance(event, Note) and event.name == "tot.picked"]
    assert len(picked) == 12
    for data in picked[1:]:
        *above, last = data["why"]
        assert [last] == data["parents"]
        assert all(data["why"][id]["continue"] >= data["why"][id]["generate"] for id in above)
        assert {"mu", "between", "within"} <= set(data["why"]["0"])
    assert wait(made.replay()).identical


# The choice between models.


@pytest.mark.slow
@pytest.mark.parametrize("search", ["ABMCTSA", "ABMCTSM"])
@pytest.mark.parametrize("wrap", [lambda mixture: mixture, lambda mixture: tl.WithTools(proposer=mixture)])
def test_the_model_whose_thoughts_score_higher_makes_most_of_them(search, wrap):
    def reply(call):
        return f"{call.model} {call.node}/{call.sample_index}"

    mixture = tl.proposers.Mixture(models=["bad", "good"])
    strategy = tl.TreeOfThoughts(
        search=getattr(tl.searches, search)(iterations=40),
        propose=wrap(mixture),
        evaluate=lambda task, path: 0.8 if path[-1].startswith("@good") else 0.2,
        stop=tl.Stop(solved=None),
    )
    model = Scripted(reply)
    made = wait(tl.Lab(model, runs=None, roles={"good": model, "bad": model}).run(strategy, TASK))
    picked = [event.data for event in made.events if isinstance(event, Note) and event.name == "tot.picked"]
    chosen = [data["why"][data["parents"][0]]["member"] for data in picked]
    asked = [call.model for call in model.calls if call.purpose == "sample"]
    assert [f"@{name}" for name in chosen] == asked
    assert 25 < chosen.count("good") < 40
    assert wait(made.replay()).identical


def members_of(propose):
    state = SearchState(TASK, "0", tl.TreeOfThoughts(propose=propose))
    state.tree.add(Thought("0", None, "root"))
    return state, Members(state, Gaussian)


def test_a_proposer_that_is_no_mixture_needs_no_draw():
    for propose in (tl.Sample(), tl.WithTools(), tl.proposers.Mixture(models=["a"])):
        _, members = members_of(propose)
        assert members.choose(lambda scores: pytest.fail("a draw"), {}) is None


def test_a_member_has_the_scores_of_its_thoughts_as_a_person_has_changed_them():
    state, members = members_of(tl.proposers.Mixture(models=["a", "b"], temperatures=[0, 1]))
    assert list(members.scores) == ["a, temperature 0", "b, temperature 1"]

    def added(member, id, score, by="test"):
        members.choose(lambda scores: {name: float(name == member) for name in scores}, {})
        state.tree.add(Thought(id, "0", id))
        state.tree.add(Scored(id, score, by=by))
        members.update([id])

    def totals():
        return {name[0]: (arm.count, pytest.approx(arm.total)) for name, arm in members.scores.items()}

    added("b, temperature 1", "0.0", 0.5)
    added("b, temperature 1", "0.1", None)  # unreadable: 0
    state.grafted.add("0.2")
    added("a, temperature 0", "0.2", 0.9, by="person")
    assert totals() == {"a": (0, 0.0), "b": (2, 0.5)}
    state.tree.add(Scored("0.0", 0.8, by="person"))
    members.rescored("0.0", 0.5)
    added("a, temperature 0", "0.3", 0.3)
    assert totals() == {"a": (1, 0.3), "b": (2, 0.8)}
    members.rescored("0.4", 0.6)  # scored by its evaluator, and at once by a person
    added("a, temperature 0", "0.4", 0.1, by="person")
    assert totals() == {"a": (2, 0.4), "b": (2, 0.8)}


# Proofs.


@pytest.mark.proof
def test_a_decision_takes_time_in_proportion_to_the_different_sizes_of_subtrees():
    def seconds(sizes):
        groups = groups_of(*[[0.5 + 0.001 * k] * (k + 1) for k in range(sizes)])
        timed = []
        for _ in range(7):
            begun = time.process_time()
            MixedEffects(groups)
            timed.append(time.process_time() - begun)
        return min(timed)

    seconds(2)
    slope = math.log(seconds(160) / seconds(40)) / math.log(160 / 40)
    assert 0.7 < slope < 1.3


@pytest.mark.proof
def test_the_package_makes_the_golden_decisions_again(tmp_path):
    venv.create(tmp_path, with_pip=True)
    python = tmp_path / "bin" / "python"
    install = [python, "-m", "pip", "install", "-q", "treequest[abmcts-m]==0.3.3"]
    done = subprocess.run(install, check=False, capture_output=True, text=True, timeout=1200)
    if done.returncode:
        pytest.skip(f"treequest cannot be installed: {done.stderr[-200:]}")
    command = [python, "-W", "ignore", GOLDEN / "treequest_mixed.py"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=1800).stdout
    made = json.loads(printed)
    for name in ("trees", "points", "steps, 1 action", "steps, 2 actions", "steps, 2 actions, mended"):
        assert made[name] == MIXED[name]
    agree_with_nuts(made["fits"])
    agree_in_frequency(made["fits"], 10_000)
