"""The layer that requests several samples of one prompt together.

Each of the n samples remains a call with its own sample index, reply and cache entry. The common request only
shows in the price, since the prompt is paid once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from tot_lab.core.calls import Call, CallObserver, Reply
from tot_lab.models.flight import Flight
from tot_lab.models.stack import Backend

GATHERING = 0.005
"""Seconds that a call waits for similar ones. Those of one turn of a search arrive together."""


class Gathered(Flight):
    """A request that collects calls before it is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Call, CallObserver]] = []
        self.sent: list[CallObserver] = []

    def note(self, name: str, **data: Any) -> None:
        """Forward the note to all calls, or to those with the given sample indices."""
        draws = data.pop("draws", None)
        if draws is None:
            super().note(name, **data)
        for call, observer in self.calls if draws else ():
            if call.sample_index in draws and observer in self.observers:
                observer.note(name, **data)

    async def send(self, inner: Backend, leave: Callable[[], object]) -> Sequence[Reply]:
        """Wait, then request the samples that are still wanted, ordered by sample index."""
        await asyncio.sleep(GATHERING)
        leave()
        wanted = [pair for pair in self.calls if pair[1] in self.observers]
        wanted.sort(key=lambda pair: pair[0].sample_index)
        self.sent = [observer for _, observer in wanted]
        return await inner.answer([call for call, _ in wanted], self)


class Samples:
    """The layer that merges calls that differ only in their sample index into one request with `n`.

    Args:
        inner: The next layer.
        together: Whether the endpoint supports this for a call.
        key: Calls with the same key can share a request.
    """

    def __init__(self, inner: Backend, together: Callable[[Call], bool], key: Callable[[Call], str]) -> None:
        self.inner = inner
        self.together = together
        self.key = key
        self.gathering: dict[str, Gathered] = {}

    async def answer(self, calls: Sequence[Call], observer: CallObserver) -> Sequence[Reply]:
        """Return the reply to the one call of `calls`."""
        (call,) = calls
        if observer.watched or not self.together(call):
            return await self.inner.answer(calls, observer)
        key = self.key(call)
        group = self.gathering.get(key)
        if group is None or not group.open:
            group = self.gathering[key] = Gathered()
            group.start(group.send(self.inner, lambda: self.gathering.pop(key, None)))
        group.calls.append((call, observer))
        replies = await group.join(observer)
        return [replies[group.sent.index(observer)]]
