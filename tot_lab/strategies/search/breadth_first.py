"""Breadth-first search over thoughts."""

from __future__ import annotations

from typing import ClassVar

from tot_lab.strategies.search.sampling import Count
from tot_lab.strategies.search.searches import Pick, Search, Searching, SearchState, expansions_of_all


class BreadthFirst(Search):
    """Expand one thought after the other, oldest first.

    `BeamSearch` with the same `width` expands the same thoughts, a whole level per pick. The searches differ
    in when they stop: `stop.patience` counts single expansions here, and levels in `BeamSearch`.

    References:
        Design M of docs/conformance.md (Jido AI), traversal `bfs`. `make conformance` writes this page.
    """

    aliases: ClassVar[tuple[str, ...]] = ("bfs",)
    scale: ClassVar[str] = "width"

    width: Count | None = None
    """Thoughts kept per level, chosen when the level is complete. `None` keeps all of them."""

    def run(self, state: SearchState) -> Searching:
        level = [state.root]
        while level:
            children: list[str] = []
            for id in level:
                children += yield Pick([id])
            kept = set((yield from state.keep_best(children, self.width)))
            level = state.open(id for id in children if id in kept)

    def max_expansions(self, branch: int, depth: int) -> int:
        if self.width is None:
            return expansions_of_all(branch, depth)
        return sum(min(branch**level, self.width) if level else 1 for level in range(depth))
