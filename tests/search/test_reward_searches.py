"""Searches by step rewards, each equal to a naive version of its paper's pseudo-code on random trees."""

import json
import math
from fractions import Fraction

import pytest
from support import GOLDEN, TASK, Scripted, run
from support.on_reward_trees import drive
from support.reward_trees import RewardTree

import tot_lab as tl
from tot_lab.strategies.search.rebase import allotted, softmax

ITS_HUB = json.loads((GOLDEN / "its_hub.json").read_text())

TREES = [
    RewardTree(seed, 2 + seed % 5, finishes=seed % 4 / 10, fails=seed % 3 / 10, decimals=1 + seed % 2)
    for seed in range(500)
]


# Beam search: sample N, score, keep the best N / M, propose M for each, repeat.


def naive_beam(tree, n, m):
    """Candidates are `(path, place)`: the place in the published list decides who gets one step more."""
    picks, level = [{(): n}], [(path, place) for place, path in enumerate(tree.steps((), n))]
    while True:
        live = [(path, place) for path, place in level if not tree.done(path)]
        if not live:
            return picks
        best = sorted(live, key=lambda one: -tree.reward(one[0]))[: n // m]  # stable: of equals the first
        in_order = [path for path, _ in sorted(best, key=lambda one: one[1])]
        dealt = (in_order * n)[:n]  # one step for each, then the second for each, …
        picks.append({path: dealt.count(path) for path, _ in best})
        places = {
            (path, k): place
            for path in in_order
            for k, place in enumerate(place for place, other in enumerate(dealt) if other == path)
        }
        level = [
            (step, places[path, step[-1]]) for path, _ in best for step in tree.steps(path, dealt.count(path))
        ]


@pytest.mark.slow
def test_a_prm_beam_is_the_naive_one():
    for seed, tree in enumerate(TREES):
        width, count = 1 + seed % 4, 1 + seed // 4 % 5
        search = tl.searches.PRMBeam(width=width, count=count)
        assert drive(search, tree).picks == naive_beam(tree, width * count, count)


def test_finished_candidates_are_set_aside_and_counted():
    """The tree's best candidates finish first. They neither take a place in the beam nor are they pruned."""

    class Early(RewardTree):
        def done(self, path):
            return path[-1] == 0 or len(path) == 5

        def reward(self, path):
            return 0.9 if path[-1] == 0 else 0.1 * path[-1]

    driven = drive(tl.searches.PRMBeam(width=2, count=4), Early(0))
    first, *_ = driven.picks
    assert first == {(): 8}
    assert [len(pick) for pick in driven.picks] == [1, 2, 2, 2, 2]
    assert sum(id in driven.state.closed for id in driven.state.tree.nodes) == 1 + 2 + 2 + 2 + 8
    assert all(driven.state.tree[id].state != "pruned" for id in driven.state.closed)
    assert driven.whys[-1].keys() == driven.picks[-1].keys()


def test_a_beam_with_few_candidates_left_proposes_as_many_steps_as_before():
    class Few(RewardTree):
        def done(self, path):
            return len(path) == 3 or path[0] > 2

        def reward(self, path):
            return 0.1 * path[-1] + 0.01 * path[0]

    driven = drive(tl.searches.PRMBeam(width=4, count=2), Few(0))
    assert driven.picks == [
        {(): 8},
        {(0,): 3, (1,): 3, (2,): 2},
        {(1, 2): 2, (0, 2): 2, (2, 1): 2, (1, 1): 2},
    ]


@pytest.mark.slow
def test_a_prm_beam_keeps_what_its_hub_keeps_level_by_level():
    """On paths of equal length. its-hub begins with fewer candidates: as many as it copies each later. Where
    they are fewer than it keeps, it goes on with fewer."""
    levels = 0
    for seed, theirs in ITS_HUB["beams"].items():
        width, count = 1 + int(seed) % 4, 1 + int(seed) // 4 % 4
        if count < width:
            continue

        class Fewer(RewardTree):
            def lost(self, path):
                return len(path) == 1 and path[0] >= count  # noqa: B023 - used within the loop

        driven = drive(tl.searches.PRMBeam(width=width, count=count), Fewer(int(seed), depth=5, finishes=0))
        assert [["".join(map(str, path)) for path in pick] for pick in driven.picks] == theirs
        levels += len(theirs) - 1
    assert levels >= 240


def test_a_finished_candidate_is_not_copied():
    """The best of four steps is finished. its-hub goes on with copies of it in half of the beam."""
    tree = RewardTree(11, depth=3, finishes=0)
    ranked = sorted(tree.steps((), 4), key=tree.reward, reverse=True)
    tree.done = lambda path: len(path) == 3 or path == ranked[0]
    copies = [tuple(map(int, path)) for path in ITS_HUB["finished"]["copies"]]
    assert copies == [ranked[0], ranked[1]] * 4
    driven = drive(tl.searches.PRMBeam(width=2, count=2), tree)
    assert driven.picks[1] == {ranked[1]: 2, ranked[2]: 2}


# DVTS: N / M subtrees, each of which goes on with the best of M steps until that one is finished.


def naive_subtree(tree, first, m):
    chosen, steps = [], [(number,) for number in range(first, first + m) if not tree.lost((number,))]
    while steps:
        best = steps[0]
        for step in steps:
            best = step if tree.reward(step) > tree.reward(best) else best
        if tree.done(best):
            return chosen
        chosen.append(best)
        steps = tree.steps(best, m)
    return chosen


@pytest.mark.slow
def test_dvts_is_the_naive_search_of_each_subtree_alone():
    for seed, tree in enumerate(TREES):
        subtrees, count = 1 + seed % 4, 1 + seed // 4 % 5
        alone = [naive_subtree(tree, count * number, count) for number in range(subtrees)]
        driven = drive(tl.searches.DVTS(subtrees=subtrees, count=count), tree)
        levels = [
            dict.fromkeys((chosen[level] for chosen in alone if level < len(chosen)), count)
            for level in range(max(map(len, alone)))
        ]
        assert driven.picks == [{(): subtrees * count}, *levels]
        kept = [id for id in driven.state.closed if driven.state.tree[id].state != "pruned"]
        assert len(kept) <= subtrees  # the published code returns all steps of each subtree's last level


def test_a_subtree_that_gets_fewer_steps_goes_on():
    """The published code drops it."""

    class Sparse(RewardTree):
        def lost(self, path):
            return path[0] == 3 and path[-1] == 3  # the second subtree gets half of its first steps

    driven = drive(tl.searches.DVTS(subtrees=2, count=2), Sparse(3, depth=3, finishes=0))
    assert [sorted(path[0] // 2 for path in pick) for pick in driven.picks[1:]] == [[0, 1], [0, 1]]
    assert {terms["subtree"] for terms in driven.whys[-1].values()} == {0, 1}


# REBASE: W = round(B softmax(R / T)), and each finished path reduces B.


def naive_rebase(tree, n, temperature):
    picks, level, budget, budgets = [{(): n}], tree.steps((), n), n, [n]
    while True:
        budget -= sum(tree.done(path) for path in level)
        live = sorted((path for path in level if not tree.done(path)), key=tree.reward, reverse=True)
        weights = [Fraction(math.exp(max(tree.reward(path), 0.0) / temperature)) for path in live]
        left, widths = budget, {}
        for k, path in enumerate(live):
            widths[path] = math.ceil(left * weights[k] / sum(weights[k:]))
            left -= widths[path]
        pick = {path: width for path, width in widths.items() if width}
        if not pick:
            return picks, budgets
        picks.append(pick)
        budgets.append(budget)
        level = [step for path, width in pick.items() for step in tree.steps(path, width)]


@pytest.mark.slow
def test_rebase_is_the_naive_one_and_its_budgets_sum_exactly():
    levels = rounded = 0
    for seed, tree in enumerate(TREES):
        width, temperature = 1 + seed % 16, (0.05, 0.2, 1.0)[seed % 3]
        driven = drive(tl.searches.REBASE(width=width, temperature=temperature), tree)
        picks, budgets = naive_rebase(tree, width, temperature)
        assert driven.picks == picks
        assert [sum(pick.values()) for pick in driven.picks] == budgets
        for why, budget in zip(driven.whys[1:], budgets[1:], strict=True):
            weights = [math.exp(max(tree.reward(path), 0.0) / temperature) for path in why]
            shares = [round(budget * weight / sum(weights)) for weight in weights]
            levels, rounded = levels + 1, rounded + (sum(shares) == budget)
            assert all(terms["budget"] == budget for terms in why.values())
            assert [terms["weight"] * sum(weights) for terms in why.values()] == pytest.approx(weights)
    assert levels > 500
    assert rounded < levels  # rounded to the nearest, as equation 1 reads, they often do not add up


def test_equal_rewards_share_equally():
    for count in range(1, 60):
        for each in (1, 2, 7):
            assert allotted(softmax([0.3] * count), each * count) == [each] * count


def test_a_low_temperature_gives_all_to_the_best():
    assert allotted(softmax([9000, 8000, 1000]), 7) == [7, 0, 0]
    assert allotted(softmax([9e-5, 8e-5, 1e-5]), 7) == [
        3,
        3,
        1,
    ]  # 2.33, then 2.00001 of 4


def test_an_unreadable_reward_counts_as_0_and_stays_unreadable():
    class Unreadable(RewardTree):
        def reward(self, path):
            return -1.0 if path[-1] else 0.0

    driven = drive(tl.searches.REBASE(width=4), Unreadable(0, finishes=0))
    assert driven.picks[1] == {(number,): 1 for number in range(4)}
    assert driven.state.tree["0.1"].score is None


@pytest.mark.parametrize(
    "search",
    [
        tl.searches.PRMBeam(width=3, count=2),
        tl.searches.DVTS(subtrees=3, count=2),
        tl.searches.REBASE(width=6, temperature=10),
        tl.searches.ParticleFilter(particles=6),
        tl.searches.ParticleGibbs(particles=6, iterations=3),
        tl.searches.REBASE(width=1),
    ],
    ids=repr,
)
@pytest.mark.parametrize("propose", [tl.Sample(count=2), tl.Sample(count=9)])
def test_max_calls_is_what_a_search_makes_whose_paths_are_equally_long(search, propose):
    """It holds for any number of children that the proposer makes by default."""
    strategy = tl.TreeOfThoughts(propose=propose, search=search, stop=tl.Stop(solved=None, depth=3))
    model = Scripted(lambda call: "score: 0.5" if call.purpose == "value" else f"step {call.sample_index}")
    made = run(strategy, model=model)
    assert made.usage.calls == strategy.max_calls(TASK)
