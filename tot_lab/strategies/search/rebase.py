"""Reward balanced search: rewards allot the children of each level."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Annotated, ClassVar

from pydantic import Field

from tot_lab.strategies.search.sampling import Count
from tot_lab.strategies.search.searches import Pick, Search, Searching, SearchState

EXACT = 1e-9
"""A share that exceeds a whole number by less than this is rounded down: the excess is a rounding error."""


class REBASE(Search):
    """Reward balanced search (REBASE): the children of a level are allotted by a softmax of its rewards.

    `width` is the budget of the first level. Each finished path, also one at the depth limit, reduces the
    budget of all later levels by 1. A thought that gets no children is pruned. An unreadable score counts as
    a reward of 0.

    The paper rounds each share (equation 1), so the children of a level need not add up to its budget. The
    published code rounds up the share of one thought after another, the best first, and takes each share from
    the budget that the better thoughts left. This search does the same, with exact sums.

    References:
        Wu et al. 2024, Inference Scaling Laws, arXiv:2408.00724, section 3.1.2.
    """

    kind: ClassVar[str] = "rebase"
    scale: ClassVar[str] = "width"

    width: Count = 8
    """Solutions to find: the budget of the first level."""

    temperature: Annotated[float, Field(gt=0)] = 0.2
    """The balance temperature of the softmax. The lower, the larger the share of the best thought."""

    def run(self, state: SearchState) -> Searching:
        budget = self.width
        children = yield Pick([state.root], budget)
        while children:
            level = state.ranked(state.open(children))
            budget = max(budget - (len(children) - len(level)), 0)
            weights = softmax([max(state.tree[id].rank, 0.0) / self.temperature for id in level])
            shares = dict(zip(level, allotted(weights, budget), strict=True))
            yield from state.prune([id for id in level if not shares[id]], "no budget")
            parents = [id for id in level if shares[id]]
            why = {
                id: {"weight": weight, "children": shares[id], "budget": budget}
                for id, weight in zip(level, weights, strict=True)
            }
            children = yield Pick(parents, [shares[id] for id in parents], why=why)

    def max_expansions_by_count(self, branch: int, depth: int) -> list[tuple[int, int]]:
        return [(self.width, 1), (1, (depth - 1) * self.width)]

    def max_shared(self) -> int:
        return self.width

    def max_picks(self, branch: int, depth: int) -> int:
        return depth


def softmax(values: Sequence[float]) -> list[float]:
    """The softmax of `values`, which are in descending order."""
    weights = [math.exp(value - values[0]) for value in values]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def allotted(weights: Sequence[float], budget: int) -> list[int]:
    """The number of children of each thought, given the weights in descending order. The sum is `budget`."""
    totals = [*accumulate(reversed(weights))][::-1]  # sums of each weight and all lower ones
    shares: list[int] = []
    for weight, total in zip(weights, totals, strict=True):
        share = math.ceil(budget * weight / total - EXACT) if total > 0 else 0
        shares.append(min(share, budget))
        budget -= shares[-1]
    return shares
