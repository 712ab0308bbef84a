"""Monte Carlo tree search over thoughts: select, expand, back up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Annotated, Any, ClassVar

from pydantic import Field

from tot_lab.strategies.search.sampling import Count
from tot_lab.strategies.search.searches import Pick, Search, Searching, SearchState, expansions_of_all


class Statistics:
    """The statistics of one run of MCTS.

    Attributes:
        visits: Number of values backed up through each thought.
        totals: Sum of these values.
        open: Children of each expanded thought that still have something to expand below them.
    """

    def __init__(self) -> None:
        self.visits: dict[str, int] = {}
        self.totals: dict[str, float] = {}
        self.open: dict[str, list[str]] = {}

    def terms(self, id: str, parent: str, exploration: float) -> tuple[float, float]:
        """The two terms of UCT: mean value, and exploration."""
        visits = self.visits[id]
        logarithm = math.log(max(self.visits[parent], 1))
        return self.totals[id] / visits, exploration * math.sqrt(logarithm / visits)

    def best(self, parent: str, exploration: float) -> tuple[str, dict[str, Any]]:
        """The open child with the largest UCT, with the terms of the choice. The first of equals is taken."""
        best, most, value, bonus = "", 0.0, 0.0, 0.0
        for id in self.open[parent]:
            terms = self.terms(id, parent, exploration)
            if not best or sum(terms) > most:
                best, most, (value, bonus) = id, sum(terms), terms
        return best, {"visits": self.visits[best], "value": value, "exploration": bonus}


class MCTS(Search):
    """UCT over thoughts. Descend by mean value plus exploration, expand a leaf, and back up the scores of its
    children.

    The score of a thought takes the place of a rollout. With `evaluate=tl.evaluators.Rollout()` it is one.
    The package treequest 0.3 decides likewise, but weighs the exploration term by a softmax of the scores of
    siblings.

    References:
        Kocsis & Szepesvári 2006 (UCT); Zhou et al. 2023 (LATS) for values in place of rollouts.
    """

    kind: ClassVar[str] = "mcts"
    aliases: ClassVar[tuple[str, ...]] = ("monte_carlo_tree_search",)
    scale: ClassVar[str] = "iterations"

    exploration: Annotated[float, Field(ge=0)] = math.sqrt(2)
    """The exploration constant of UCT."""

    batch: Count = 1
    """The most leaves expanded concurrently. A virtual loss makes them differ."""

    iterations: Count | None = None
    """Picks after that of the root. `None` means until nothing is left to expand."""

    width: Count | None = None
    """Children kept per thought. `None` keeps all of them."""

    def run(self, state: SearchState) -> Searching:
        statistics, picks = Statistics(), 0
        leaves: dict[str, Any] = {state.root: {}}
        while leaves:
            children = yield Pick([*leaves], why=leaves if picks else None)
            for id, old in state.rescored.items():
                correct(state, statistics, id, old)
            for parent, siblings in _by_parent(state, leaves, children).items():
                kept = yield from state.keep_best(siblings, self.width)
                if parent in leaves:
                    expand(state, statistics, parent, kept)
                else:  # thoughts that a person added
                    graft(state, statistics, parent, kept)
            picks += 1
            if self.iterations is not None and picks > self.iterations:
                return
            leaves = select_batch(state, statistics, self.exploration, self.batch)

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
    """Add the new children of `parent`: back up their values, and open those kept."""
    statistics.open[parent] = state.open(kept)
    for id in state.tree[parent].children:
        if state.tree[id].by or id in kept:
            value = max(state.tree[id].rank, 0.0)
            statistics.visits[id], statistics.totals[id] = 1, value
            back_up(state, statistics, parent, value)
    if not statistics.open[parent]:
        exhaust(state, statistics, parent)


def back_up(state: SearchState, statistics: Statistics, id: str, value: float) -> None:
    """Add `value` to `id` and all its ancestors."""
    for node in reversed(state.tree.path(id)):
        statistics.visits[node.id] = statistics.visits.get(node.id, 0) + 1
        statistics.totals[node.id] = statistics.totals.get(node.id, 0.0) + value


def correct(state: SearchState, statistics: Statistics, id: str, old: float) -> None:
    """Replace the value that was backed up from a thought whose score a person has changed."""
    if id in statistics.totals:
        change = max(state.tree[id].rank, 0.0) - max(old, 0.0)
        for node in state.tree.path(id):
            statistics.totals[node.id] += change


def graft(state: SearchState, statistics: Statistics, parent: str, added: Sequence[str]) -> None:
    """Open thoughts that a person added below `parent`, and back up their values."""
    for id in added:
        value = max(state.tree[id].rank, 0.0)
        statistics.visits[id], statistics.totals[id] = 1, value
        back_up(state, statistics, parent, value)
    reopen(state, statistics, parent, state.open(added))


def reopen(state: SearchState, statistics: Statistics, parent: str, added: Sequence[str]) -> None:
    """Open thoughts below `parent`, and the way to them if it was exhausted."""
    path = [node.id for node in state.tree.path(parent)]
    statistics.open.setdefault(parent, []).extend(added)
    for above, below in pairwise(path):  # what was exhausted has something to expand again
        if statistics.open[parent] and below not in statistics.open.setdefault(above, []):
            statistics.open[above].append(below)


def exhaust(state: SearchState, statistics: Statistics, id: str) -> None:
    """Close a thought that has nothing left below it, and ancestors that become empty."""
    parent = state.tree[id].parent
    while parent is not None and id in statistics.open.get(parent, ()):
        statistics.open[parent].remove(id)
        if statistics.open[parent]:
            break
        id, parent = parent, state.tree[parent].parent


def _by_parent(state: SearchState, leaves: Iterable[str], children: Iterable[str]) -> dict[str, list[str]]:
    """The new thoughts by parent, first those below each leaf that was expanded."""
    groups: dict[str, list[str]] = {id: [] for id in leaves}
    for id in children:
        groups.setdefault(state.tree[id].parent or state.root, []).append(id)
    return groups
