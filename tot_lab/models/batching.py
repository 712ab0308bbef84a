"""The layer that merges calls into one request: samples of one prompt, or short judgements of several
prompts.

Each call keeps its own reply and cache entry. Only the amounts paid (`observer.paid`) show that calls were
merged: a prompt that all samples of a request share is paid once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from tot_lab.core.calls import Call, CallObserver, Reply
from tot_lab.core.records import usage_noted
from tot_lab.models.flight import Flight
from tot_lab.models.stack import LATER, UNLISTED, Backend, Give, SampleCalls

GATHERING = 0.005
"""Seconds for which the first call waits for others to merge with. It waits longer while each iteration of
the event loop brings another one. This is enough, since the calls of one search step arrive together.
"""

MOST = 32
"""The most calls of one request: the default batch limit of text-embeddings-inference."""


class Batch(Flight):
    """A batch of calls that can be merged, and the request for those that still wait when it is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Call, CallObserver]] = []
        self.sent: dict[CallObserver, int] = {}
        """Index of each call in the request, by its observer."""
        self.is_sent = False

    def note(self, name: str, **data: Any) -> None:
        """Forward the note to the observers of all calls, or of the calls in `only`."""
        self.state = name
        only = data.pop("only", None)
        noted = None if only is None else {id(call) for call in only}
        waiting = {*self.observers}
        for call, observer in self.calls:
            if (noted is None or id(call) in noted) and observer in waiting:
                observer.note(name, **data)

    def send(self, inner: Backend) -> None:
        """Make one request for the calls that still wait, in the order of their samples. If only one waits,
        no request is made here: `Batched.answer` passes the call to the next layer by itself.
        """
        self.is_sent = True
        waiting = {*self.observers}
        wanted = [pair for pair in self.calls if pair[1] in waiting]
        if len(wanted) > 1:
            wanted.sort(key=lambda pair: (pair[0].repeat, pair[0].attempt, pair[0].sample_index))
            self.sent = {observer: place for place, (_, observer) in enumerate(wanted)}
            flights = [observer for observer in self.sent if isinstance(observer, Flight)]
            self.run_number = min([self.run_number, *(flight.run_number for flight in flights)])
            self.start(inner, [call for call, _ in wanted])
        else:
            self.land([])

    def reply_to(self, observer: CallObserver) -> Reply:
        """Return the reply to the call of `observer`, and set `observer.paid` to a part of the amount paid
        for the request, in proportion to the cost of that reply. If no reply has a cost, the first call is
        charged for the whole request. `observer.paid` is left as it is if the amount is not known.
        """
        replies, place = self.replies(), self.sent[observer]
        if self.paid is not None:
            total = sum(reply.cost or 0.0 for reply in replies)
            cost = replies[place].cost or 0.0
            observer.paid = self.paid * (cost / total if total else float(place == 0))
        return replies[place]


class Batched:
    """The layer that merges calls into one request.

    Args:
        inner: The next layer.
        key: Returns the key of a call. Calls with equal keys can be merged. `None` means that a call needs
            its own request.
    """

    def __init__(self, inner: Backend, key: Callable[[Call], Hashable | None]) -> None:
        self.inner = inner
        self.key = key
        self.open_batches: dict[Hashable, Batch] = {}

    async def answer(self, calls: Sequence[Call], observer: CallObserver) -> Sequence[Reply]:
        """Return the reply to the only call in `calls`."""
        (call,) = calls
        key = None if observer.watched else self.key(call)
        if key is None:
            return await self.inner.answer(calls, observer)
        (batch,) = self._joined(key, {observer: call})
        await batch.end(observer)
        if batch.task is not None:
            reply = batch.reply_to(observer)
            if reply.error == LATER:
                return await self.answer(calls, observer)
            if reply.error != UNLISTED:
                return [reply]
            if usage := usage_noted(reply):
                observer.note("call.retried", error=reply.error, status=None, wait=0.0, **usage)
        return await self.inner.answer(calls, observer)

    async def answer_each(self, asked: SampleCalls, give: Give) -> None:
        """Give each observer the reply to its call. The calls differ only in their sample."""

        async def alone(observer: CallObserver) -> None:
            if observer in asked:
                give(observer, (await self.answer([asked[observer]], observer))[0])

        async def together(batch: Batch, observers: list[CallObserver]) -> None:
            await batch.end(*observers)
            if batch.task is not None:
                replies = [(observer, batch.reply_to(observer)) for observer in observers]
                observers = [observer for observer, reply in replies if reply.error == LATER]
                for observer, reply in replies:
                    if reply.error != LATER and observer in asked:
                        give(observer, reply)
            await asyncio.gather(*map(alone, observers))

        first = next(iter(asked))  # all are calls of one run, so all of them are watched or none
        key = None if first.watched else self.key(asked[first])
        if key is None:
            await asyncio.gather(*map(alone, asked))
        else:
            await asyncio.gather(*(together(*pair) for pair in self._joined(key, asked).items()))

    def _joined(self, key: Hashable, asked: SampleCalls) -> dict[Batch, list[CallObserver]]:
        """Add the calls to waiting batches, and return the batches with the observers of the added calls."""
        batches: dict[Batch, list[CallObserver]] = {}
        left = [*asked]
        while left:
            batch = self.open_batches.get(key)
            if batch is None or not batch.open:
                batch = self.open_batches[key] = Batch()
                batch.loop.call_later(GATHERING, self._look, key, batch, 0)
            room = MOST - len(batch.calls)
            batches[batch], left = left[:room], left[room:]
            batch.calls += [(asked[observer], observer) for observer in batches[batch]]
            batch.add(*batches[batch])
            if len(batch.calls) == MOST:
                self._send(key, batch)
        return batches

    def _look(self, key: Hashable, batch: Batch, before: int) -> None:
        """Send the request of the batch, or look again soon if it now has more than `before` calls."""
        if before < len(batch.calls) < MOST:
            batch.loop.call_soon(self._look, key, batch, len(batch.calls))
        else:
            self._send(key, batch)

    def _send(self, key: Hashable, batch: Batch) -> None:
        if self.open_batches.get(key) is batch:
            del self.open_batches[key]
        if not batch.is_sent:
            batch.send(self.inner)
