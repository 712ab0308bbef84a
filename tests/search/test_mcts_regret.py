"""MCTS on bandit trees: it is UCB1 on the arms, and its regret stays below the bound and grows ever slower.

Each child of the root is the first pull of an arm. Below it is a chain, whose next thought is the next pull.
"""

import math
import statistics
from itertools import pairwise
from random import Random

import pytest
from support.by_hand import drive

import tot_lab as tl

MEANS = (0.5, 0.9, 0.3, 0.6)
PULLS = 400


def pulls_of(seed, means=MEANS, pulls=PULLS):
    """The arm of each thought that MCTS adds to a tree of Bernoulli arms."""
    dice = Random(seed)
    search = tl.MCTS()

    def reward(id):
        return float(dice.random() < means[int(id.split(".")[1])])

    def branch(id):
        return len(means) if id == "0" else 1

    _, state = drive(search, reward, branch=branch, depth=10**6, picks=1 + pulls - len(means))
    return [int(node.id.split(".")[1]) for node in state.tree if node.parent is not None]


def ucb1(seed, means=MEANS, pulls=PULLS):
    """Auer et al. 2002, figure 1, on the same rewards. Ties go to the arm that was better at first."""
    dice = Random(seed)
    rewards = [[float(dice.random() < mean)] for mean in means]
    arms = sorted(range(len(means)), key=lambda arm: -rewards[arm][0])
    played = [*range(len(means))]
    while len(played) < pulls:
        bonus = {arm: math.sqrt(2 * math.log(len(played)) / len(rewards[arm])) for arm in arms}
        arm = max(arms, key=lambda arm: sum(rewards[arm]) / len(rewards[arm]) + bonus[arm])
        rewards[arm].append(float(dice.random() < means[arm]))
        played.append(arm)
    return played


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_on_a_bandit_tree_it_is_ucb1(seed):
    assert pulls_of(seed) == ucb1(seed)


@pytest.mark.nightly
def test_the_regret_is_below_the_bound_and_its_growth_falls():
    runs = [[max(MEANS) - MEANS[arm] for arm in pulls_of(seed)] for seed in range(20)]
    regret = [statistics.fmean(sum(run[:pulls]) for run in runs) for pulls in (100, 200, 300, 400)]
    gaps = [max(MEANS) - mean for mean in MEANS if mean < max(MEANS)]
    # Theorem 1 of Auer et al. 2002, at all four numbers of pulls.
    for pulls, lost in zip((100, 200, 300, 400), regret, strict=True):
        assert lost < sum(8 * math.log(pulls) / gap + (1 + math.pi**2 / 3) * gap for gap in gaps)
    growth = [later - earlier for earlier, later in pairwise([0.0, *regret])]
    assert growth == sorted(growth, reverse=True)
    assert growth[-1] < growth[0] / 2
    uniform = 100 * statistics.fmean([*gaps, 0.0])  # what pulling all arms equally loses
    assert growth[0] < uniform
