"""The layer that requests several samples of one prompt together.

Each of the n samples remains a call with its own sample index, reply and cache entry. The common request only
shows in the price, since the prompt is paid once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from tot_lab.core.calls import Call, CallObserver, Reply
from tot_lab.models.flight import Flight
from tot_lab.models.stack import Backend

GATHERING = 0.005
"""Seconds that a call waits for similar ones. Those of one turn of a search arrive together."""


class Gathered(Flight):
    """Calls for samples of one prompt, and the request for them if there are several."""

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

    def send(self, inner: Backend) -> None:
        """Request the samples that are still wanted, ordered by sample index. A single one requests its
        reply itself.
        """
        wanted = [pair for pair in self.calls if pair[1] in self.observers]
        if len(wanted) > 1:
            wanted.sort(key=lambda pair: pair[0].sample_index)
            self.sent = [observer for _, observer in wanted]
            self.start(inner.answer([call for call, _ in wanted], self))
        else:
            self.wake()


class Samples:
    """The layer that merges calls that differ only in their sample index into one request with `n`.

    Args:
        inner: The next layer.
        together: Whether the endpoint supports this for a call.
        key: Calls with the same key can share a request.
    """

    def __init__(
        self, inner: Backend, together: Callable[[Call], bool], key: Callable[[Call], Hashable]
    ) -> None:
        self.inner = inner
        self.together = together
        self.key = key
        self.gathering: dict[Hashable, Gathered] = {}

    async def answer(self, calls: Sequence[Call], observer: CallObserver) -> Sequence[Reply]:
        """Return the reply to the one call of `calls`."""
        (call,) = calls
        if observer.watched or not self.together(call):
            return await self.inner.answer(calls, observer)
        key = self.key(call)
        group = self.gathering.get(key)
        if group is None or not group.open:
            group = self.gathering[key] = Gathered()
            group.loop.call_later(GATHERING, self._send, key, group)
        group.calls.append((call, observer))
        await group.join(observer)
        if group.task is None:
            return await self.inner.answer(calls, observer)
        return [group.replies()[group.sent.index(observer)]]

    def _send(self, key: Hashable, group: Gathered) -> None:
        if self.gathering.get(key) is group:
            del self.gathering[key]
        group.send(self.inner)
