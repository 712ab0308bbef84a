"""Calls that share one request.

Rule: a request lives as long as anybody waits for it. One who is cancelled leaves the others their
reply; when the last has gone, it is cancelled too. It is paid for by the first who still waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from tot_lab.core.calls import Call, CallObserver, Reply
from tot_lab.models.stack import Backend


class Flight:
    """One request and the wires of those who wait for it; itself the wire of the request."""

    def __init__(self) -> None:
        self.wires: list[CallObserver] = []
        self.turns: list[asyncio.Future[None]] = []
        self.paid: float | None = None
        self.state = ""

    def start(self, request: Coroutine[Any, Any, Sequence[Reply]]) -> None:
        """Begin the request."""
        self.task = asyncio.ensure_future(request)
        self.task.add_done_callback(self._arrived)

    def _arrived(self, task: asyncio.Task[Sequence[Reply]]) -> None:
        if not task.cancelled():
            task.exception()  # it may be that nobody waits for it
        for turn in self.turns:
            if not turn.done():
                turn.set_result(None)

    async def join(self, wire: CallObserver) -> Sequence[Reply]:
        """Wait for its replies."""
        self.wires.append(wire)
        if self.state in ("call.queued", "call.retried"):
            wire.note("call.queued")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.turns.append(turn)
        try:
            if not self.task.done():
                await turn
            return self.task.result()
        except asyncio.CancelledError:
            self.wires.remove(wire)
            if not self.wires:
                self.task.cancel()
            raise

    @property
    def open(self) -> bool:
        """Whether one can still join: its loop is this one, and somebody waits."""
        return bool(self.wires) and self.task.get_loop() is asyncio.get_running_loop()

    @property
    def watched(self) -> bool:
        """Whether any of them wants the text so far."""
        return any(wire.watched for wire in self.wires)

    def note(self, name: str, **data: Any) -> None:
        """Tell all of them."""
        self.state = name
        for wire in self.wires:
            wire.note(name, **data)

    def partial(self, text: str) -> None:
        """Tell all of them the text so far."""
        for wire in self.wires:
            wire.partial(text)


class SingleFlight:
    """The layer of the stack: equal calls under way at the same time are one request.

    key: what calls must share to be equal. flights: those under way, which several stacks share.
    """

    def __init__(self, inner: Backend, key: Callable[[Call], str], flights: dict[str, Flight]) -> None:
        self.inner = inner
        self.key = key
        self.flights = flights

    async def answer(self, calls: Sequence[Call], wire: CallObserver) -> Sequence[Reply]:
        """The reply to the one call of `calls`."""
        key = self.key(calls[0])
        flight = self.flights.get(key)
        if flight is not None and flight.open:
            wire.note("call.joined")
        else:
            flight = self.flights[key] = Flight()
            flight.start(self.inner.answer(calls, flight))
        try:
            replies = await flight.join(wire)
            wire.paid = flight.paid if flight.wires[0] is wire else 0.0
            return replies
        finally:
            if (flight.task.done() or not flight.wires) and self.flights.get(key) is flight:
                del self.flights[key]
