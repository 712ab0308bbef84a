"""Adaptive branching Monte Carlo tree search with a mixed-effects model.

The posterior is computed, not sampled by NUTS as in the package of the authors: given both standard
deviations it has a closed form, and these two are summed out over a grid. A decision takes 1 to 10
milliseconds. NUTS would take 5 to 8 seconds, during which all other searches of the process would wait. A
decision depends only on the scores and the random numbers of the run, so that a replay makes the same
decisions. With equal scores NUTS diverges, and this computation does not.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tot_lab.strategies.search.adaptive_branching import AdaptiveBranching, Arms, Posterior, Selected
from tot_lab.strategies.search.searches import SearchState

if TYPE_CHECKING:
    from random import Random

Grid: TypeAlias = NDArray[np.float64]

MEAN, DEVIATION = 0.5, 0.2
"""Mean and standard deviation of the normal prior of `mu`, the mean of the groups."""

BETWEEN, WITHIN = 0.2, 0.3
"""Scales of the half-normal priors of both standard deviations: between the groups, and within a group."""

FLOOR = 0.001
"""Least standard deviation. Without a positive one the posterior of equal scores is not a distribution."""

POINTS = 128
"""Grid points of each standard deviation, in a geometric sequence from `FLOOR` to five times its scale."""


class MixedEffects:
    """The posterior of a mixed-effects model of scores in groups.

    A score is normal around the mean of its group, and the means of the groups are normal around `mu`.

    Attributes:
        parameters: The posterior means of `mu` and of both standard deviations.
    """

    def __init__(self, groups: Collection[Posterior]) -> None:
        between, prior_between = prior(BETWEEN, POINTS)
        within, prior_within = prior(WITHIN, POINTS)
        self.between, self.within = between[:, None] ** 2, within[None, :] ** 2  # variances
        # By group size: the number of groups, and the sums of (mean - MEAN) and of its square.
        sizes: dict[int, list[float]] = {}
        free, squares = 0, 0.0
        for group in groups:
            if group.count:
                mean = group.total / group.count
                free += group.count - 1
                squares += max(group.squares - group.total * mean, 0.0)
                sums = sizes.setdefault(group.count, [0, 0.0, 0.0])
                for k in range(3):
                    sums[k] += (mean - MEAN) ** k
        likelihood = -(free * np.log(self.within) + squares / self.within) / 2
        precision = np.full((POINTS, POINTS), DEVIATION**-2)
        weighted = np.zeros((POINTS, POINTS))
        for size, (count, first, second) in sizes.items():
            variance = self.between + self.within / size
            likelihood = likelihood - (count * np.log(variance) + second / variance) / 2
            precision += count / variance
            weighted += first / variance
        likelihood = likelihood + (weighted**2 / precision - np.log(precision)) / 2
        weights = prior_between[:, None] * prior_within * np.exp(likelihood - likelihood.max())
        weights /= weights.sum()
        self.mean, self.variance = MEAN + weighted / precision, 1 / precision  # of mu, at each grid point
        self.cumulative = np.cumsum(weights)
        self.parameters = {
            "mu": float((weights * self.mean).sum()),
            "between": float(weights.sum(axis=1) @ between),
            "within": float(weights.sum(axis=0) @ within),
        }

    def draw(self, group: Posterior | None, random: Random) -> float:
        """Draw the next score of a group. `None` means a new group."""
        place = int(np.searchsorted(self.cumulative, random.random() * self.cumulative[-1]))
        row, column = divmod(place, self.within.size)
        between, within = float(self.between[row, 0]), float(self.within[0, column])
        mean, variance = float(self.mean[row, column]), float(self.variance[row, column])
        if group is None or not group.count:
            return random.gauss(mean, math.sqrt(variance + between + within))
        pull = within / (group.count * between + within)  # weight of mu in the mean of the group
        centre = (1 - pull) * group.total / group.count + pull * mean
        return random.gauss(centre, math.sqrt(pull * between + pull * pull * variance + within))


@lru_cache(maxsize=8)
def prior(scale: float, points: int) -> tuple[Grid, Grid]:
    """Grid values of a standard deviation, and the half-normal prior probability of each value's cell."""
    values = np.geomspace(FLOOR, 5 * scale, points)
    edges = [0.0, *np.sqrt(values[:-1] * values[1:]), math.inf]
    return values, np.diff([math.erf(edge / scale / math.sqrt(2)) for edge in edges])


class ABMCTSM(AdaptiveBranching):
    """At each thought, draw the next score of each child and of a new one from a mixed-effects model.
    Descend to the child with the highest draw, or add the new one if its draw is higher.

    The scores at and below each child are a group. A new child is a group of its own, so its score is
    predicted from the common mean and spread of its siblings. Each iteration adds one thought, as in
    `ABMCTSA`. Unreadable scores count as 0. If the proposer is a `Mixture`, the same kind of model decides
    which member makes the child: its groups are the thoughts of each member anywhere in the tree (Multi-LLM
    AB-MCTS).

    A decision among k children with n thoughts below them takes time in proportion to k, and to the number of
    different sizes of their subtrees, which is at most √(2n): 1 to 10 milliseconds.

    References:
        Inoue et al. 2025, Wider or Deeper?, arXiv:2503.04412, AB-MCTS-M. The priors are those of the package
        treequest 0.3, which differs in three steps: it samples the posterior by NUTS; it leaves out a child
        if its group has at least four scores and three quarters of them are equal (`enable_pruning`); and of
        several models it chooses one as if none had made a thought yet, because it looks for the models'
        names among integer codes.
    """

    kind: ClassVar[str] = "ab_mcts_m"

    def arm(self) -> Posterior:
        return Posterior()

    def select(self, state: SearchState, arms: Arms, random: Random) -> Selected:
        return select(state, arms, random)

    def draws(self, scores: Mapping[str, Posterior], random: Random) -> dict[str, float]:
        model = MixedEffects(scores.values())
        return {name: model.draw(group, random) for name, group in scores.items()}


def select(state: SearchState, arms: Arms, random: Random) -> Selected:
    """Descend by Thompson sampling to the thought that gets a child. Returns it with the draws on the way."""
    id, why = state.root, dict[str, dict[str, Any]]()
    while True:
        terms = why.setdefault(id, {})
        children = [node.id for node, _ in arms.children[id] if node.state != "pruned"]
        if not children:
            return id, why
        scored = [arms.child[child] for child in state.tree[id].children if child in arms.child]
        model = MixedEffects(scored)
        drawn = {child: model.draw(arms.child[child], random) for child in children}
        best = max(children, key=drawn.__getitem__)  # max takes the first of equals
        generate = model.draw(None, random)
        terms |= {"generate": generate, "continue": drawn[best], **model.parameters}
        if generate > drawn[best]:
            return id, why
        group = arms.child[best]
        why[best] = {
            "drawn": drawn[best],
            "scores": group.count,
            "average": group.total / max(group.count, 1),
        }
        id = best
