"""The values that Monte Carlo searches back up through their tree."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from tot_lab.strategies.search.searches import SearchState


class Statistics:
    """The statistics of one run of a Monte Carlo search.

    Attributes:
        visits: Number of values backed up through each thought.
        totals: Sum of these values.
        open: For each expanded thought, the children that a descent may still take.
    """

    def __init__(self, state: SearchState) -> None:
        self.state = state
        self.visits: dict[str, int] = {}
        self.totals: dict[str, float] = {}
        self.open: dict[str, list[str]] = {}

    def terms(self, id: str, parent: str, exploration: float) -> tuple[float, float]:
        """The two terms of UCT: mean value, and exploration."""
        visits = self.visits[id]
        logarithm = math.log(max(self.visits[parent], 1))
        return self.totals[id] / visits, exploration * math.sqrt(logarithm / visits)

    def best(self, parent: str, exploration: float) -> tuple[str, dict[str, Any]]:
        """The open child with the largest UCT (the first if several have it), and the terms of the choice."""
        best, most, value, bonus = "", 0.0, 0.0, 0.0
        for id in self.open[parent]:
            terms = self.terms(id, parent, exploration)
            if not best or sum(terms) > most:
                best, most, (value, bonus) = id, sum(terms), terms
        return best, {"visits": self.visits[best], "value": value, "exploration": bonus}

    def back_up(self, id: str, value: float) -> None:
        """Add `value` to `id` and all its ancestors."""
        for node in reversed(self.state.tree.path(id)):
            self.visits[node.id] = self.visits.get(node.id, 0) + 1
            self.totals[node.id] = self.totals.get(node.id, 0.0) + value

    def open_below(self, parent: str, ids: Iterable[str]) -> None:
        """Open the children `ids` of `parent` for selection, and any exhausted ancestors."""
        self.open.setdefault(parent, []).extend(ids)
        if not self.open[parent]:
            self.exhaust(parent)
            return
        for node in reversed(self.state.tree.path(parent)):
            siblings = [] if node.parent is None else self.open.setdefault(node.parent, [])
            if node.parent is None or node.id in siblings:
                return
            siblings.append(node.id)

    def exhaust(self, id: str) -> None:
        """Remove a thought from selection, and each ancestor that has no other open child."""
        parent = self.state.tree[id].parent
        while parent is not None and id in self.open.get(parent, ()):
            self.open[parent].remove(id)
            if self.open[parent]:
                break
            id, parent = parent, self.state.tree[parent].parent

    def rescored(self, id: str, old: float) -> None:
        """Replace the value that was backed up from a thought."""
        if id in self.totals:
            change = max(self.state.tree[id].rank, 0.0) - max(old, 0.0)
            for node in self.state.tree.path(id):
                self.totals[node.id] += change
