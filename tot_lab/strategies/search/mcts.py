"""Monte Carlo tree search over thoughts: select, expand, back up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Field

from tot_lab.strategies.search.sampling import Count
from tot_lab.strategies.search.searches import (
    LIMIT_OF_ITERATIONS,
    Pick,
    Search,
    Searching,
    SearchState,
    expansions_of_all,
)
from tot_lab.strategies.search.statistics import Statistics


class MCTS(Search):
    """UCT over thoughts. Descend by mean value plus exploration, expand a leaf, and back up the scores of its
    children.

    The score of a thought takes the place of a rollout. With `evaluate=tl.evaluators.Rollout()`, the
    score comes from rollouts. The package treequest 0.3 selects in the same way, but weighs the exploration
    term by a softmax of the scores of siblings.

    References:
        Kocsis & Szepesvári 2006 (UCT); Zhou et al. 2023 (LATS) for values in place of rollouts.
    """

    kind: ClassVar[str] = "mcts"
    aliases: ClassVar[tuple[str, ...]] = ("monte_carlo_tree_search",)
    scale: ClassVar[str] = "iterations"

    exploration: Annotated[float, Field(ge=0)] = math.sqrt(2)
    """Weight of the bonus for thoughts that were rarely visited: `exploration * sqrt(ln(N) / n)` after n
    visits of the thought and N of its parent. The child with the largest sum of mean value and bonus is
    taken. 0 follows the highest mean value alone; a larger weight spreads the search. Each score is one visit
    of its thought and of all thoughts above it: after three scored children, the root has N = 3.
    """

    iterations: Count | None = None
    """The most picks after the pick of the root. `None` means until nothing is left to expand."""

    batch: Count = 1
    """The most leaves expanded concurrently. A virtual loss makes them differ."""

    width: Count | None = None
    """Children kept per thought. `None` keeps all of them."""

    def run(self, state: SearchState) -> Searching:
        statistics, picks = state.remember(Statistics(state)), 0
        leaves: dict[str, Any] = {state.root: {}}
        while leaves:
            children = yield Pick([*leaves], why=leaves if picks else None)
            for parent, siblings in _by_parent(state, leaves, children).items():
                kept = yield from state.keep_best(siblings, self.width)
                expand(state, statistics, parent, kept)
            picks += 1
            leaves = select_batch(state, statistics, self.exploration, self.batch)
            if leaves and self.iterations is not None and picks > self.iterations:
                return LIMIT_OF_ITERATIONS
        return None

    def max_expansions(self, branch: int, depth: int) -> int:
        most = expansions_of_all(min(branch, self.width or branch), depth)
        return most if self.iterations is None else min(most, 1 + self.iterations * self.batch)


def select(state: SearchState, statistics: Statistics, exploration: float) -> tuple[str, dict[str, Any]]:
    """Descend from the root to a leaf. Returns it with the terms of the choice, or "" if nothing is left."""
    id, why = state.root, dict[str, Any]()
    while id in statistics.open:
        if not statistics.open[id]:
            return "", {}
        id, why = statistics.best(id, exploration)
    return id, why


def select_batch(
    state: SearchState, statistics: Statistics, exploration: float, batch: int
) -> dict[str, Any]:
    """Select up to `batch` different leaves. A visit without value (a virtual loss) makes the descents
    differ.
    """
    leaves: dict[str, Any] = {}
    lost: list[str] = []
    while len(leaves) < batch:
        leaf, why = select(state, statistics, exploration)
        if not leaf or leaf in leaves:
            break
        leaves[leaf] = why
        for node in state.tree.path(leaf):
            statistics.visits[node.id] += 1
            lost.append(node.id)
    for id in lost:
        statistics.visits[id] -= 1
    return leaves


def expand(state: SearchState, statistics: Statistics, parent: str, kept: Sequence[str]) -> None:
    """Back up the scores of the new children of `parent`, and open those in `kept` for selection."""
    for id in state.tree[parent].children:
        if id not in statistics.visits and (state.tree[id].by or id in kept):
            value = max(state.tree[id].rank, 0.0)
            statistics.visits[id], statistics.totals[id] = 1, value
            statistics.back_up(parent, value)
    statistics.open_below(parent, state.open(kept))


def _by_parent(state: SearchState, leaves: Iterable[str], children: Iterable[str]) -> dict[str, list[str]]:
    """The new thoughts by parent: those below each expanded leaf, then those a person added elsewhere."""
    groups: dict[str, list[str]] = {id: [] for id in leaves}
    for id in children:
        groups.setdefault(state.tree[id].parent or state.root, []).append(id)
    return groups
