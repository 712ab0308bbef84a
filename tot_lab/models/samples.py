"""Several samples of one prompt in one request.

Rule: n samples are n calls, each with its draw, its reply and its entry in the cache; that they
travel together shows only in their price, since the prompt they share is paid for once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from tot_lab.core.calls import Call, CallObserver, Reply
from tot_lab.models.flight import Flight
from tot_lab.models.stack import Backend

GATHERING = 0.005
"""Seconds that a call waits for others like it; those of one turn of a search come together."""


class Gathered(Flight):
    """A request that waits for its calls before it is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Call, CallObserver]] = []
        self.sent: list[CallObserver] = []

    def note(self, name: str, **data: Any) -> None:
        """Tell all of them, or those alone whose `draws` are named."""
        draws = data.pop("draws", None)
        if draws is None:
            super().note(name, **data)
        for call, wire in self.calls if draws else ():
            if call.sample_index in draws and wire in self.wires:
                wire.note(name, **data)

    async def send(self, inner: Backend, leave: Callable[[], object]) -> Sequence[Reply]:
        """Wait, then ask for those that are still wanted, in the order of their draws."""
        await asyncio.sleep(GATHERING)
        leave()
        wanted = [pair for pair in self.calls if pair[1] in self.wires]
        wanted.sort(key=lambda pair: pair[0].sample_index)
        self.sent = [wire for _, wire in wanted]
        return await inner.answer([call for call, _ in wanted], self)


class Samples:
    """The layer of the stack: calls that differ in their draw alone become one request with `n`.

    together: whether the endpoint can do so for a call. key: what calls must share to travel together.
    """

    def __init__(self, inner: Backend, together: Callable[[Call], bool], key: Callable[[Call], str]) -> None:
        self.inner = inner
        self.together = together
        self.key = key
        self.gathering: dict[str, Gathered] = {}

    async def answer(self, calls: Sequence[Call], wire: CallObserver) -> Sequence[Reply]:
        """The reply to the one call of `calls`."""
        (call,) = calls
        if wire.watched or not self.together(call):
            return await self.inner.answer(calls, wire)
        key = self.key(call)
        group = self.gathering.get(key)
        if group is None or not group.open:
            group = self.gathering[key] = Gathered()
            group.start(group.send(self.inner, lambda: self.gathering.pop(key, None)))
        group.calls.append((call, wire))
        replies = await group.join(wire)
        return [replies[group.sent.index(wire)]]
