"""Adaptive branching: its posteriors, what it may expand, and scores that a person changes.

`test_treequest.py` compares its decisions with those of its authors' package.
"""

import statistics
from random import Random

import pytest
from support import TASK, run, wait
from support.by_hand import drive
from support.steering import check_prune

import tot_lab as tl
from tot_lab.core.records import Note
from tot_lab.strategies.search.ab_mcts_a import Beta, Gaussian

SCORES = [0.2, 0.9, 0.9, 0.4, 0.0, 1.0, 0.7]


def observed(posterior, scores=SCORES):
    arm = posterior()
    for score in scores:
        arm.observe(score)
    return arm


def murphy(scores, m=0.0, kappa=1.0, nu=1.0, variance=0.1):
    """The update of the prior in the batch form of the book."""
    n, mean = len(scores), statistics.fmean(scores)
    spread = sum((score - mean) ** 2 for score in scores)
    spread += nu * variance + n * kappa * (m - mean) ** 2 / (kappa + n)
    return (kappa * m + n * mean) / (kappa + n), kappa + n, spread / (nu + n)


@pytest.mark.parametrize("count", range(1, len(SCORES) + 1))
def test_the_gaussian_posterior_is_that_of_the_book(count):
    parameters = observed(Gaussian, SCORES[:count]).parameters()
    assert tuple(parameters.values()) == pytest.approx(murphy(SCORES[:count]))


def test_the_beta_posterior_counts_a_score_as_a_part_of_a_success():
    total = sum(SCORES)
    assert observed(Beta).parameters() == pytest.approx({"a": 0.5 + total, "b": 0.5 + len(SCORES) - total})


@pytest.mark.parametrize(
    ("posterior", "centre"), [(Gaussian, sum(SCORES) / 8), (Beta, (0.5 + sum(SCORES)) / 8)]
)
def test_draws_have_the_mean_of_the_posterior(posterior, centre):
    arm, random = observed(posterior), Random(0)
    draws = [arm.draw(random) for _ in range(4000)]
    assert abs(statistics.fmean(draws) - centre) < 4 * statistics.stdev(draws) / 4000**0.5
    weight = 8 if posterior is Beta else None
    if weight:  # the variance of a Beta distribution
        assert statistics.variance(draws) == pytest.approx(centre * (1 - centre) / (weight + 1), rel=0.1)
    else:  # the mean has Student's t distribution with 8 degrees of freedom
        scale = observed(Gaussian).parameters()["variance"] / 8
        assert statistics.variance(draws) == pytest.approx(scale * 8 / 6, rel=0.15)


def test_a_removed_score_leaves_no_trace():
    arm = observed(Gaussian)
    arm.observe(0.3)
    arm.observe(0.3, times=-1)
    assert arm.parameters() == pytest.approx(observed(Gaussian).parameters())


def test_thoughts_that_are_complete_are_never_expanded():
    made, state = drive(tl.searches.ABMCTSA(iterations=200), lambda id: 1.0, depth=2)  # the driver checks
    assert len(made) == 200 == len(state.tree) - 1
    assert {node.depth for node in state.tree} == {0, 1, 2}


def test_it_widens_where_new_children_are_better_and_deepens_where_their_own_are():
    def depth_of(score):
        _, state = drive(tl.searches.ABMCTSA(iterations=150), score, random=Random(3))
        return statistics.fmean(node.depth for node in state.tree)

    wide = depth_of(lambda id: 0.9 if id.count(".") == 1 else 0.1)
    deep = depth_of(lambda id: min(0.1 * id.count("."), 1.0))
    assert wide < 2 < deep


@pytest.mark.parametrize("rescore", [{}, {1: {"0.0": 0.95}}, {25: {"0.0": 0.95, "0.1": None}}])
def test_the_arms_hold_the_scores_of_the_tree_as_it_is(rescore):
    """At every pick, recomputed from the tree: GEN has the children, CONT what is below them."""
    dice, at = Random(5), []
    search = tl.searches.ABMCTSA(iterations=60)
    made, state = drive(search, lambda id: dice.random(), random=Random(1), rescore=rescore)
    for number, (pick, _) in enumerate(made):
        score = {node.id: max(node.rank, 0.0) for node in list(state.tree)[: number + 1]}
        if rescore and number < next(iter(rescore)):
            continue
        for id, terms in pick.why.items():
            children = [other for other in score if other.rpartition(".")[0] == id]
            below = [other for other in score if other.startswith(f"{id}.") and other not in children]
            for name, ids in [("generate ", children), ("continue ", below), ("", [id, *children, *below])]:
                if id != "0" or name:
                    mean = sum(score[other] for other in ids) / (1 + len(ids))
                    assert terms[f"{name}mean"] == pytest.approx(mean)
                    at.append(len(ids))
    assert len(at) > 50
    assert max(at) > 10


def test_the_draws_behind_each_choice_are_recorded():
    search = tl.TreeOfThoughts(search=tl.searches.ABMCTSA(iterations=12), stop=tl.Stop(solved=None))
    made = run(search)
    picked = [event.data for event in made.events if isinstance(event, Note) and event.name == "tot.picked"]
    assert len(picked) == 12
    for data in picked:
        (parent,) = data["parents"]
        *above, last = data["why"]
        assert last == parent
        assert all(data["why"][id]["continue"] > data["why"][id]["generate"] for id in above)
        assert {"generate mean", "continue variance"} <= set(data["why"][parent])
    assert wait(made.replay()).identical


def test_its_calls_are_bounded():
    search = tl.TreeOfThoughts(search=tl.searches.ABMCTSA(iterations=12), stop=tl.Stop(solved=None))
    assert run(search).usage.calls == 24 == search.max_calls(TASK)


def test_nothing_below_a_thought_that_a_person_has_pruned_is_expanded():
    check_prune(tl.searches.ABMCTSA(iterations=25))
