"""Best-first search over thoughts."""

from __future__ import annotations

import heapq

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
        heap: list[tuple[float, int, int, str]] = []
        best = [state.root]
        while best:
            children = yield Pick(best)
            for node in map(state.tree.__getitem__, state.open(children)):
                heapq.heappush(heap, (-node.rank, -node.depth, node.order, node.id))
            if self.width is not None and len(heap) > self.width:
                heap.sort()
                yield from state.prune([entry[-1] for entry in heap[self.width :]], "beam")
                del heap[self.width :]
            best = [heapq.heappop(heap)[-1] for _ in range(min(self.batch, len(heap)))]

    def max_expansions(self, branch: int, depth: int) -> int:
        return expansions_of_all(branch, depth)
