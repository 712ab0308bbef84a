"""Single flight: equal calls in flight share one request.

A request continues as long as a call waits for its reply. If one call is cancelled, the others still get the
reply; if all are, the request is cancelled. Only the first call that still waits is charged for the request,
and only its journal states what the request may have cost so far. Amounts in the journals of calls that left
earlier are not charged again. A request that has to queue has the position of the earliest run among its
calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from tot_lab.core.calls import Call, CallObserver, Reply
from tot_lab.models.stack import RUN_NUMBER, Backend, Give, Grouping, SampleCalls


class Flight:
    """One request and the observers of the calls that wait for it. It is itself the observer of the
    request.

    Attributes:
        task: The task that makes the request, or `None` before it starts.
        fellows: All flights that share the task, if it makes requests for several. The task is cancelled only
            when no call waits for any of them.
        outcome: The replies or the exception. `None` until the request has ended.
        paid: USD actually paid for the request. `None` means the cost of its replies.
        state: Name of the latest note, "" before the first.
        stated: The most USD that the request can have cost, as the journal of the first call states it.
        stated_before: The sum of these amounts over the calls that have left.
    """

    task: asyncio.Task[None] | None = None
    fellows: Collection[Flight] = ()
    outcome: Sequence[Reply] | BaseException | None = None
    paid: float | None = None
    state = ""
    stated = 0.0
    stated_before = 0.0

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None, *observers: CallObserver) -> None:
        self.loop = loop or asyncio.get_running_loop()
        self.observers = list(observers)
        self.turns: list[asyncio.Future[None]] = []
        self.run_number = RUN_NUMBER.get()

    def start(self, inner: Backend, calls: Sequence[Call]) -> None:
        """Start the request for `calls`."""
        self.task = self.loop.create_task(self._carry_out(inner, calls))

    async def _carry_out(self, inner: Backend, calls: Sequence[Call]) -> None:
        RUN_NUMBER.set(self.run_number)
        with landing([self]):
            self.land(await inner.answer(calls, self))

    def land(self, outcome: Sequence[Reply] | BaseException) -> None:
        """Store the outcome of the request, and wake the calls that wait for it."""
        self.outcome = outcome
        if self.turns:
            self.wake()

    def wake(self) -> None:
        """Let all calls that wait in `end` continue."""
        if self.loop.is_closed():  # the loop ended before the request, and no call waits any more
            return
        for turn in self.turns:
            if not turn.done():
                turn.set_result(None)

    def add(self, *observers: CallObserver) -> None:
        """Add the observers of calls that wait for the request."""
        self.observers += observers
        self.run_number = min(self.run_number, RUN_NUMBER.get())
        if self.state in ("call.queued", "call.retried"):
            for observer in observers:
                observer.note("call.queued")

    async def end(self, *observers: CallObserver) -> None:
        """Wait until the request has ended. If this wait is cancelled, `observers` are removed."""
        turn: asyncio.Future[None] = self.loop.create_future()
        self.turns.append(turn)
        try:
            if not self.ended:
                await turn
        except asyncio.CancelledError as error:
            self.leave(observers, *error.args)
            raise

    def leave(self, observers: Sequence[CallObserver], *reason: Any) -> None:
        """Remove `observers`. If none is left in the flights of the task, cancel it with `reason`."""
        self.remove(observers)
        if self.task is not None and not any(one.observers for one in (self, *self.fellows)):
            self.task.cancel(*reason)

    def remove(self, observers: Sequence[CallObserver]) -> None:
        """Remove `observers`. The first that is left is charged for what the request costs from now on."""
        if self.observers and self.observers[0] in observers:
            self.stated_before, self.stated = self.stated_before + self.stated, 0.0
        self.observers = [observer for observer in self.observers if observer not in observers]

    @property
    def ended(self) -> bool:
        """Whether the replies have arrived, or the request has failed."""
        return self.outcome is not None

    def replies(self) -> Sequence[Reply]:
        """Return the replies to the request, which must have ended. Raises its exception if it failed."""
        assert self.outcome is not None
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome

    @property
    def due(self) -> float | None:
        """USD to charge the first call that waits. `None` means the cost of its reply."""
        return None if self.paid is None else max(self.paid - self.stated_before, 0.0)

    @property
    def open(self) -> bool:
        """Whether a call can join: the request is of the running event loop, and a call waits for it."""
        return bool(self.observers) and self.loop is asyncio.get_running_loop()

    @property
    def watched(self) -> bool:
        """Whether any of the calls wants partial text."""
        return any(observer.watched for observer in self.observers)

    def note(self, name: str, **data: Any) -> None:
        """Forward the note to every call, but `paid` only to the first."""
        self.state = name
        paid = data.pop("paid", None)
        for observer in self.observers:
            if paid is None:
                observer.note(name, **data)
            else:
                self.stated = max(paid - self.stated_before, 0.0)
                observer.note(name, **data, paid=self.stated)
                paid = None

    def partial(self, text: str) -> None:
        """Forward the partial text to every call."""
        for observer in self.observers:
            observer.partial(text)


@contextmanager
def landing(flights: Collection[Flight]) -> Iterator[None]:
    """If the block raises an exception, make it the outcome of each of `flights` that has none yet. The calls
    of these flights then raise it.
    """
    try:
        yield
    except BaseException as error:
        for flight in flights:
            if not flight.ended:
                flight.land(error)
        if isinstance(error, asyncio.CancelledError | SystemExit | KeyboardInterrupt | GeneratorExit):
            raise


class SingleFlight:
    """The layer that merges equal calls in flight into one request.

    Args:
        inner: The next layer. `answer_each` needs a `Grouping`.
        key: Returns the key of a call. Calls with equal keys are equal.
        flights: The flights in progress by key. Several stacks share the dict.
    """

    def __init__(self, inner: Backend, key: Callable[[Call], str], flights: dict[str, Flight]) -> None:
        self.inner = inner
        self.key = key
        self.flights = flights

    async def answer(self, calls: Sequence[Call], observer: CallObserver) -> Sequence[Reply]:
        """Return the reply to the only call in `calls`."""
        key = self.key(calls[0])
        flight = self.flights.get(key)
        if flight is not None and flight.open:
            observer.note("call.joined")
        else:
            flight = self.flights[key] = Flight()
            flight.start(self.inner, calls)
        try:
            flight.add(observer)
            await flight.end(observer)
            replies = flight.replies()
            observer.paid = flight.due if flight.observers[0] is observer else 0.0
            return replies
        finally:
            if flight.ended or not flight.observers:
                self._forget(key, flight)

    async def answer_each(self, asked: SampleCalls, give: Give) -> None:
        """Give each observer its reply, or `None` if an equal call is in flight."""
        loop, flights = asyncio.get_running_loop(), dict[Flight, tuple[str, CallObserver]]()
        calls: SampleCalls = {}
        for observer, call in list(asked.items()):
            key = self.key(call)
            if (known := self.flights.get(key)) is not None and known.open:
                give(observer, None)
            else:
                flight = self.flights[key] = Flight(loop, observer)
                flight.fellows = flights
                flights[flight], calls[flight] = (key, observer), call

        def land(flight: Flight, reply: Reply | None) -> None:
            key, observer = flights[flight]
            self._forget(key, flight)
            is_waiting = observer in asked
            if not is_waiting:  # the next call is charged
                flight.remove([observer])
            flight.land([] if reply is None else [reply])
            if is_waiting:
                observer.paid = flight.due
                give(observer, reply)

        async def carry_out() -> None:
            with landing(flights):
                await cast(Grouping, self.inner).answer_each(calls, land)

        if not flights:
            return
        task = loop.create_task(carry_out())
        for flight in flights:
            flight.task = task
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            for flight, (_, observer) in flights.items():
                flight.leave([observer], *error.args)
            raise
        finally:
            for flight, (key, _) in flights.items():
                if flight.outcome is not None or not flight.observers:
                    self._forget(key, flight)
                    flight.fellows = ()  # breaks a reference cycle
        for flight in flights:
            if isinstance(flight.outcome, BaseException):
                raise flight.outcome

    def _forget(self, key: str, flight: Flight) -> None:
        if self.flights.get(key) is flight:
            del self.flights[key]
