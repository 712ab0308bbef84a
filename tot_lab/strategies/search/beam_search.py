"""Beam search over thoughts."""

from __future__ import annotations

from typing import ClassVar

from tot_lab.strategies.search.sampling import Count
from tot_lab.strategies.search.searches import Pick, Search, Searching, SearchState, expansions_of_all


class BeamSearch(Search):
    """Breadth-first search that keeps the best thoughts of each level.

    References:
        Yao et al. 2023, Algorithm 1 (ToT-BFS).
    """

    aliases: ClassVar[tuple[str, ...]] = ("beam",)
    scale: ClassVar[str] = "width"

    width: Count | None = 2
    """Thoughts kept per level. `None` keeps all of them."""

    def run(self, state: SearchState) -> Searching:
        level = [state.root]
        while level:
            children = yield Pick(level)
            kept = yield from state.keep_best(children, self.width)
            level = state.open(kept)

    def max_expansions(self, branch: int, depth: int) -> int:
        if self.width is None:
            return expansions_of_all(branch, depth)
        total, level = 0, 1
        for _ in range(depth):
            total += level
            level = min(self.width, level * branch)
        return total

    def max_picks(self, branch: int, depth: int) -> int:
        return depth
