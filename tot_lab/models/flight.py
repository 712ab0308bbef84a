"""Single flight: equal calls in flight share one request.

A request lives as long as somebody waits for it. A cancelled caller leaves the reply to the others, and when
the last one leaves, the request is cancelled. The first caller that still waits pays for it. If it has to
wait, it does so for the earliest run among its callers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from tot_lab.core.calls import Call, CallObserver, Reply
from tot_lab.models.stack import RUN_NUMBER, Backend


class Flight:
    """One request and the observers of the calls that wait for it. It is itself the observer of the
    request.
    """

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.task: asyncio.Task[Sequence[Reply]] | None = None
        self.observers: list[CallObserver] = []
        self.turns: list[asyncio.Future[None]] = []
        self.paid: float | None = None
        self.state = ""
        self.run_number = RUN_NUMBER.get()

    def start(self, inner: Backend, calls: Sequence[Call]) -> None:
        """Start the request for `calls`."""
        self.task = self.loop.create_task(self._carry_out(inner, calls))

    async def _carry_out(self, inner: Backend, calls: Sequence[Call]) -> Sequence[Reply]:
        RUN_NUMBER.set(self.run_number)
        try:
            return await inner.answer(calls, self)
        finally:
            self.wake()  # earlier than a callback of the task would be

    def wake(self) -> None:
        """Let the calls that wait continue."""
        if self.loop.is_closed():  # the request was left behind, and so were they
            return
        for turn in self.turns:
            if not turn.done():
                turn.set_result(None)

    async def join(self, observer: CallObserver) -> None:
        """Wait for the request to end."""
        self.observers.append(observer)
        self.run_number = min(self.run_number, RUN_NUMBER.get())
        if self.state in ("call.queued", "call.retried"):
            observer.note("call.queued")
        turn: asyncio.Future[None] = self.loop.create_future()
        self.turns.append(turn)
        try:
            if not self.ended:
                await turn
        except asyncio.CancelledError as error:
            self.observers.remove(observer)
            if self.task is not None and not self.observers:
                self.task.add_done_callback(_ignore)
                self.task.cancel(*error.args)  # with the reason
            raise

    @property
    def ended(self) -> bool:
        """Whether the replies have arrived, or the request has failed."""
        return self.task is not None and self.task.done()

    def replies(self) -> Sequence[Reply]:
        """Return the replies to the request, which has ended."""
        assert self.task is not None
        return self.task.result()

    @property
    def open(self) -> bool:
        """Whether a call can still join: the request belongs to this event loop and somebody waits for it."""
        return bool(self.observers) and self.loop is asyncio.get_running_loop()

    @property
    def watched(self) -> bool:
        """Whether any of the calls wants partial text."""
        return any(observer.watched for observer in self.observers)

    def note(self, name: str, **data: Any) -> None:
        """Forward the note to every call."""
        self.state = name
        for observer in self.observers:
            observer.note(name, **data)

    def partial(self, text: str) -> None:
        """Forward the partial text to every call."""
        for observer in self.observers:
            observer.partial(text)


def _ignore(task: asyncio.Task[Any]) -> None:
    """Mark the exception of a task as retrieved, since nothing waits for it."""
    if not task.cancelled():
        task.exception()


class SingleFlight:
    """The layer that merges equal calls in flight into one request.

    Args:
        inner: The next layer.
        key: Calls with the same key are equal.
        flights: The open flights, which several stacks share.
    """

    def __init__(self, inner: Backend, key: Callable[[Call], str], flights: dict[str, Flight]) -> None:
        self.inner = inner
        self.key = key
        self.flights = flights

    async def answer(self, calls: Sequence[Call], observer: CallObserver) -> Sequence[Reply]:
        """Return the reply to the one call of `calls`."""
        key = self.key(calls[0])
        flight = self.flights.get(key)
        if flight is not None and flight.open:
            observer.note("call.joined")
        else:
            flight = self.flights[key] = Flight()
            flight.start(self.inner, calls)
        try:
            await flight.join(observer)
            replies = flight.replies()
            observer.paid = flight.paid if flight.observers[0] is observer else 0.0
            return replies
        finally:
            if (flight.ended or not flight.observers) and self.flights.get(key) is flight:
                del self.flights[key]
