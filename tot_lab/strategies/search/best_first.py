"""Best-first search over thoughts."""

from __future__ import annotations

import heapq

from tot_lab.core.tree import Node
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
            if state.rescored:
                heap = [entry(state.tree[id]) for *_, id in heap]
                heapq.heapify(heap)
            for id in state.open(children):
                heapq.heappush(heap, entry(state.tree[id]))
            if self.width is not None and len(heap) > self.width:
                heap.sort()
                yield from state.prune([entry[-1] for entry in heap[self.width :]], "beam")
                del heap[self.width :]
            best = [heapq.heappop(heap)[-1] for _ in range(min(self.batch, len(heap)))]

    def max_expansions(self, branch: int, depth: int) -> int:
        return expansions_of_all(branch, depth)


def entry(node: Node) -> tuple[float, int, int, str]:
    """The key by which the heap orders thoughts, and the id."""
    return -node.rank, -node.depth, node.order, node.id
