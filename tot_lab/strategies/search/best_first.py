"""Best-first search over thoughts."""

from __future__ import annotations

from tot_lab.strategies.search.frontier import Frontier
from tot_lab.strategies.search.sampling import Count
from tot_lab.strategies.search.searches import Pick, Search, Searching, SearchState, expansions_of_all


class BestFirst(Search):
    """Expand the best-scored thoughts of the whole frontier first. Ties go to the deeper, then the older
    thought.

    References:
        Pearl 1984, Heuristics: best-first search.
    """

    width: Count | None = None
    """Thoughts kept in the frontier after each expansion. `None` keeps all of them."""

    batch: Count = 1
    """Thoughts expanded concurrently. Larger batches are faster and slightly less greedy."""

    def run(self, state: SearchState) -> Searching:
        def key(id: str) -> tuple[float, int, int]:
            node = state.tree[id]
            return -node.rank, -node.depth, node.order

        frontier = state.remember(Frontier(key))
        best = [state.root]
        while best:
            children = yield Pick(best)
            for id in state.open(children):
                frontier.push(id)
            if self.width is not None and len(frontier) > self.width:
                yield from state.prune(frontier.trim(self.width), "beam")
            best = [frontier.pop() for _ in range(min(self.batch, len(frontier)))]

    def max_expansions(self, branch: int, depth: int) -> int:
        return expansions_of_all(branch, depth)
