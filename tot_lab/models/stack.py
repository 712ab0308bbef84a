"""The model stack: what stands between a strategy's call and the model that answers it.

    Cached         what is known is answered from the disk                      cache.py
    SingleFlight   equal calls under way are one request                        flight.py
    Samples        equal calls but for their draw are one request with `n`      samples.py
    Kept           what comes is on the disk before anybody goes on with it     cache.py
    Ready          loading the endpoint costs no call its time                  ready.py
    Spending       real money is kept under a cap                               spending.py
    Limited        so many requests at a time, and per minute                   limits.py
    Retried        what a provider fails at for a moment is tried again         retries.py
    Endpoint       the adapter: one request to a real model                     lite_llm/, local.py

Rule: a backend wraps another and has one method, `answer`. It takes equal calls that differ at
most in their draw, and the wire to tell of their way; it gives a reply for each, in their order.
A failure is a reply with an error, but for `Failure`, which an endpoint raises and `Retried`
catches. What a backend does is visible as a note on the wire.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Protocol

from pydantic import Field

from tot_lab.core.calls import Call, CallObserver, Need, Reply
from tot_lab.core.parts import Part


class Backend(Protocol):
    """One layer of the stack, or the model at its end."""

    async def answer(self, calls: Sequence[Call], wire: CallObserver) -> Sequence[Reply]:
        """A reply to each of `calls`."""
        ...


class Listening:
    """A wire that tells everything on, and lets a layer hear what was told."""

    def __init__(self, wire: CallObserver, hear: Callable[[str], None]) -> None:
        self.wire = wire
        self.hear = hear

    @property
    def paid(self) -> float | None:
        """As on the wire below."""
        return self.wire.paid

    @paid.setter
    def paid(self, amount: float | None) -> None:
        self.wire.paid = amount

    @property
    def watched(self) -> bool:
        """As on the wire below."""
        return self.wire.watched

    def note(self, name: str, **data: Any) -> None:
        """Hear it, and tell it on."""
        self.hear(name)
        self.wire.note(name, **data)

    def partial(self, text: str) -> None:
        """Tell it on."""
        self.wire.partial(text)


class Failure(Exception):
    """A request that brought no reply.

    message: the provider's own words, free of secrets. status: of HTTP, None without a response.
    retry: whether it may go better later. retry_after: seconds the provider asks to wait.
    reported_usage: of an answer that could not be read because of its usage; see `Reply`.
    away: there was no connection, or it broke. unreadable: a response came that is no reply of the API.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry: bool = False,
        retry_after: float | None = None,
        reported_usage: str = "",
        away: bool = False,
        unreadable: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.retry = retry
        self.retry_after = retry_after
        self.reported_usage = reported_usage
        self.away = away
        self.unreadable = unreadable


class Endpoint(Part):
    """Base of the adapters for real models."""

    kind: ClassVar[str] = ""

    concurrency: Annotated[int, Field(ge=1)] = 64
    """Requests in flight at the same time, over all labs that use this endpoint."""

    requests_per_minute: Annotated[int, Field(ge=1)] | None = None
    """Rate limit on requests. `None` means no limit."""

    tokens_per_minute: Annotated[int, Field(ge=1)] | None = None
    """Rate limit on tokens. `None` means no limit."""

    retries: Annotated[int, Field(ge=0)] = 5
    """Further tries of a request after 408, 409, 429, 5xx or a broken connection."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What the model is called."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Which model this is, as JSON-ready data: all that can change an answer and is not in the
        call, and nothing else. No secret, and no limit or timeout."""

    @property
    def address(self) -> str:
        """Endpoints of one address share their limits."""
        return str(self.identity())

    def window(self) -> int | None:
        """Tokens that the model takes at once, None when they are not known."""
        return getattr(self, "context_window", None)

    def takes_n(self, call: Call) -> bool:
        """Whether several draws of `call` can be one request."""
        return False

    @property
    def is_ready(self) -> bool:
        """Whether a request can be sent at once, with nothing left to load."""
        return True

    async def ready(self) -> None:
        """Load what `need` takes long to load, without holding up the event loop."""

    async def start(self) -> None:
        """Load what a request takes long to load, without holding up the event loop. What cannot be loaded
        raises nothing here: `answer` says why."""
        await self.ready()

    @abstractmethod
    def need(self, calls: Sequence[Call]) -> Need:
        """The most that one request for `calls` can use; after `ready` at once."""

    @abstractmethod
    async def answer(self, calls: Sequence[Call], wire: CallObserver) -> Sequence[Reply]:
        """One request. Raises `Failure`."""


def provider_seed(call: Call) -> int | None:
    """The seed that the provider is sent: the call's own and its draw. Attempts and repeats, which
    sample independently, start elsewhere."""
    if call.seed is None:
        return None
    start = 0
    if call.repeat or call.attempt:
        place = f"{call.repeat} {call.attempt}".encode()
        start = int.from_bytes(hashlib.sha256(place).digest()[:4])
    return (call.seed + call.sample_index + start) % 2**31
