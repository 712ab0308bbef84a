"""Depth-first search over thoughts."""

from __future__ import annotations

from typing import ClassVar

from tot_lab.strategies.search.sampling import Count, Unit
from tot_lab.strategies.search.searches import Pick, Search, Searching, SearchState, expansions_of_all


class DepthFirst(Search):
    """Expand the deepest thought first, siblings in score order, with backtracking.

    References:
        Yao et al. 2023, Algorithm 2 (ToT-DFS).
    """

    aliases: ClassVar[tuple[str, ...]] = ("dfs",)

    width: Count | None = None
    """Children kept per thought. `None` keeps all of them."""

    prune_below: Unit = 0.0
    """A thought with a lower score is pruned instead of expanded (`v_thres` in the paper). A thought without
    a readable score is expanded."""

    def run(self, state: SearchState) -> Searching:
        stack = [state.root]
        while stack:
            id = stack.pop()
            score = state.tree[id].score
            if score is not None and score < self.prune_below:
                yield from state.prune([id], "prune_below")
            elif id not in state.closed:
                children = yield Pick([id])
                kept = yield from state.keep_best(children, self.width)
                stack.extend(reversed(kept))

    def max_expansions(self, branch: int, depth: int) -> int:
        return expansions_of_all(min(branch, self.width or branch), depth)
