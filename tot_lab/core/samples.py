"""Sample indices: no two thoughts of a search share a sample."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from msgspec.structs import replace

from tot_lab.core.calls import Call

Texts: TypeAlias = tuple[str, ...]
"""The texts of the messages of a call, without system messages, since a run adds its own."""


class SampleCounter:
    """Gives the thoughts of one search their sample indices. A search receives it for `Samples`.

    Equal requests for several thoughts, and further expansions of one thought, continue one another, so that
    each gets samples of its own. At temperature 0 all samples are equal, and equal requests share them.

    Args:
        recorded: Calls of an earlier record of the search, in program order. The same calls get the same
            indices again, and no other call does.
        by_thought: Whether equal requests share their samples at every temperature, as in journals before
            schema 4.
    """

    __slots__ = ("_by_thought", "_next", "_recorded")

    def __init__(self, recorded: Iterable[Call] = (), *, by_thought: bool = False) -> None:
        self._by_thought = by_thought
        self._next: dict[tuple[str, str] | Texts, int] = {}  # by thought and purpose, and by request
        self._recorded: dict[tuple[tuple[str, str], Texts], deque[int]] = {}
        for call in recorded:
            owner, texts = (call.node, call.purpose), _texts_of(call)
            self._recorded.setdefault((owner, texts), deque()).append(call.sample_index)
            self._next[texts] = max(self._next.get(texts, 0), call.sample_index + 1)

    def take(self, call: Call, count: int) -> Iterator[Call]:
        """Reserve `count` samples of `call`, and return a call for each.

        A proposer takes its samples before it makes a call, so that they are numbered in the order of the
        picks. Numbers that it does not use stay free.
        """
        owner, texts = (call.node, call.purpose), _texts_of(call)
        recorded = self._recorded.get((owner, texts), ())
        shared = self._by_thought or call.temperature == 0
        counters = (owner,) if shared else (owner, texts)
        first = max([index + 1 for index in recorded] + [self._next.get(counter, 0) for counter in counters])
        self._next.update(dict.fromkeys(counters, first + count))
        return _numbered(call, recorded, range(first, first + count))


def _texts_of(call: Call) -> Texts:
    return tuple([message.content for message in call.messages if message.role != "system"])


def _numbered(call: Call, recorded: deque[int] | tuple[()], reserved: range) -> Iterator[Call]:
    while recorded:
        yield replace(call, sample_index=recorded.popleft())
    for index in reserved:
        yield replace(call, sample_index=index)
