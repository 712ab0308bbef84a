"""The frontier of best-first searches: thoughts that wait to be expanded, in the order of a key."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any


class Frontier:
    """A priority queue of thoughts.

    Args:
        key: Returns the sort key of a thought. Keys of different thoughts differ.
    """

    def __init__(self, key: Callable[[str], Any]) -> None:
        self.key = key
        self._heap: list[tuple[Any, str]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, id: str) -> None:
        """Add a thought."""
        heapq.heappush(self._heap, (self.key(id), id))

    def pop(self) -> str:
        """Remove and return the thought with the smallest key."""
        return heapq.heappop(self._heap)[1]

    def trim(self, width: int) -> list[str]:
        """Remove and return all but the `width` thoughts with the smallest keys."""
        self._heap.sort()
        rest = [id for _, id in self._heap[width:]]
        del self._heap[width:]
        return rest

    def reorder(self, ids: Iterable[str] | None = None) -> None:
        """Compute all keys again. If `ids` is given, it replaces the thoughts of the frontier."""
        ids = [id for _, id in self._heap] if ids is None else ids
        self._heap = [(self.key(id), id) for id in ids]
        heapq.heapify(self._heap)

    def rescored(self, id: str, old: float) -> None:
        """Compute all keys again, since a thought has a new score."""
        self.reorder()
