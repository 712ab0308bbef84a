"""The model stack: the layers between a strategy's call and the model that answers it.

    Cached         answers cached calls from disk                               cache.py
    SingleFlight   merges equal calls in flight, unless the mode is `off`       flight.py
    Batched        merges samples or short judgements into one request          batching.py
    StoreReplies   stores replies on disk before they are used                  cache.py
    Condensed      drops log-probabilities that no call asks for                condensing.py
    Ready          loads the endpoint outside the timeout of a call             ready.py
    Warmed         lets the first of several calls fill a prompt cache          warming.py
    Spending       keeps real spending within a limit                           spending.py
    Limited        limits concurrent requests and requests per minute           limits.py
    Retried        repeats requests after temporary failures                    retries.py
    Measured       reports each request to an adaptive limit                    limits.py
    Endpoint       the adapter: one request to a real model                     openai_compatible/, …

Each layer is a backend that wraps the next one, and has one method, `answer`. It takes the calls of one
request with their observer, and returns one reply per call in the same order. The calls of one request differ
only in their sample index, or also in their prompts if the endpoint has a `list_key`. A failed call gets a
reply with an error. Only an endpoint raises `Failure`, which `Retried` catches. A backend reports what it
does as notes to the observer.

The layers down to `Batched` also take many samples of one prompt at a time (`Grouping`), each with its own
observer. A sample that is cached or in flight goes through `answer` by itself.

A request that waits to be repeated still counts as one of the concurrent requests. If `Retried` were above
`Limited`, another request would take its place at once. A server would then get twice as many requests during
an outage, and an overloaded one would refuse five times as many.

Waiting requests are sent in the order of their runs (`queue_position`), so that the first of many runs finish
early. This order changes no record.
"""

from __future__ import annotations

import hashlib
import warnings
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import count
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol, TypeAlias

from pydantic import Field

from tot_lab.core.calls import Call, CallObserver, Need, Reply
from tot_lab.core.parts import Alias, Part
from tot_lab.core.scrubbing import scrubbed


class Backend(Protocol):
    """A layer of the stack, or the endpoint or function at its end."""

    async def answer(self, calls: Sequence[Call], observer: CallObserver) -> Sequence[Reply]:
        """Return a reply to each of `calls`, in their order."""
        ...


SampleCalls: TypeAlias = dict[Any, Call]
"""Calls for samples of one prompt, by the observer that waits for each. The caller removes an observer that
has its reply or whose call was cancelled.
"""

Give: TypeAlias = Callable[[Any, Reply | None], None]
"""A function that takes an observer and the reply to its call, or `None` if the call must go through
`answer`.
"""


class Grouping(Backend, Protocol):
    """A layer that takes many samples of one prompt at a time, which needs less CPU time than one by one."""

    async def answer_each(self, asked: SampleCalls, give: Give) -> None:
        """Call `give` with each observer and its reply or `None` (see `Give`), as soon as it is known."""


UNLISTED = "not answered as a list"
"""Error of calls with different prompts that an endpoint could not answer in one request. `Batched` then
makes one request for each call, since possibly only one of them is at fault.
"""

LATER = "not requested yet"
"""Error of those calls of a request that the spending limit does not allow until the others are paid.
`Batched` then makes another request for them.
"""


NO_SERVER = "No server answers at {} for {}. Start it, or set {} of the model"
"""Template of a message of `Endpoint.problem`. Its slots: address, model, and the setting for the address."""

RUN_NUMBER: ContextVar[int] = ContextVar("tot_lab_run_number", default=0)
"""Number of the run of the current task. Runs are counted from 1 as they begin. 0 means no run."""

PAY_AGAIN: ContextVar[Callable[[Sequence[Reply]], Awaitable[bool]] | None]
PAY_AGAIN = ContextVar("tot_lab_pay_again", default=None)
"""A function that takes what a failed try of the current request used, charges for it, and reserves the cost
of another try. It returns whether the spending limit allows that. `None` means that every try is allowed.
"""

_RUNS, _REQUESTS = count(1), count()


@contextmanager
def numbered_run() -> Iterator[None]:
    """Set `RUN_NUMBER` to the next number for the run in this block. A run inside another run gets the number
    of the outer one, which waits for it.
    """
    token = RUN_NUMBER.set(RUN_NUMBER.get() or next(_RUNS))
    try:
        yield
    finally:
        RUN_NUMBER.reset(token)


def queue_position() -> tuple[int, int]:
    """Return a sort key for a new request in a queue: requests of earlier runs go first, and those of one run
    in the order of their calls to this function.
    """
    return RUN_NUMBER.get(), next(_REQUESTS)


class NullObserver:
    """A call observer that ignores everything."""

    paid: float | None = None
    watched = False

    def note(self, name: str, **data: Any) -> None:
        """Ignore the note."""

    def partial(self, text: str) -> None:
        """Ignore the partial text."""


class Listening:
    """A call observer that forwards everything, but first passes each note to `hear`, which may change its
    data.
    """

    def __init__(self, observer: CallObserver, hear: Callable[[str, dict[str, Any]], None]) -> None:
        self.observer = observer
        self.hear = hear

    @property
    def paid(self) -> float | None:
        """As in the wrapped observer."""
        return self.observer.paid

    @paid.setter
    def paid(self, amount: float | None) -> None:
        self.observer.paid = amount

    @property
    def watched(self) -> bool:
        """As in the wrapped observer."""
        return self.observer.watched

    def note(self, name: str, **data: Any) -> None:
        """Call `hear` with the note, and forward it."""
        self.hear(name, data)
        self.observer.note(name, **data)

    def partial(self, text: str) -> None:
        """Forward the partial text."""
        self.observer.partial(text)


def warn_of_failure(text: str) -> None:
    """Warn of the first failed call of a lab, which otherwise only the record of the run would show.

    `warn_explicit` without a registry shows a warning again that an earlier lab has given. If a filter turns
    warnings into errors, this one is suppressed, so that the record of the run stays the same.
    """
    with suppress(RuntimeWarning):
        warnings.warn_explicit(text, RuntimeWarning, "tot_lab", 1)


class Failure(Exception):
    """Raised for a request to which some or all replies are missing.

    Args:
        message: The provider's message. Secrets of the environment are removed from it.
        status: The HTTP status, or `None` without a response.
        retry: Whether a repeated request may succeed.
        retry_after: Seconds that the provider asks to wait.
        reported_usage: Impossible usage, as text, that made a reply unreadable; see `Reply`.
        usage: The usage in the response, as JSON or as the adapter has read it, or `None`.
        connection_failed: Whether no connection was made, or it broke.
        refused: Whether no connection was made, so that the server received nothing.
        unreadable: Whether a response arrived that is not a reply of the API.
        begun: Whether a part of the reply had arrived.
        replies: The replies that arrived, in the order of the calls, with `None` for each that the server
            marks as failed. `Retried` keeps them, and requests only the other calls again.

    Attributes:
        used: The usage of each call, as a reply with an error. If it has fewer replies than there were calls,
            the other calls were not requested. `None` means that the usage was not determined.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry: bool = False,
        retry_after: float | None = None,
        reported_usage: str = "",
        usage: Any = None,
        connection_failed: bool = False,
        refused: bool = False,
        unreadable: bool = False,
        begun: bool = False,
        replies: Sequence[Reply | None] = (),
    ) -> None:
        self.message = scrubbed(message)
        super().__init__(self.message)
        self.status = status
        self.retry = retry
        self.retry_after = retry_after
        self.reported_usage = reported_usage
        self.usage = usage
        self.connection_failed = connection_failed
        self.refused = refused
        self.unreadable = unreadable
        self.begun = begun
        self.replies = replies
        self.used: Sequence[Reply] | None = None

    @property
    def may_be_charged(self) -> bool:
        """Whether the provider may have processed the request and charge for it. It does not charge for a
        request that it refused (a status below 500, or 503). The exception is 408, since proxies send it if
        the model is too slow.
        """
        if self.status is not None and not self.begun:
            return self.status == 408 or (self.status >= 500 and self.status != 503)
        return self.unreadable or self.begun or (self.retry and not self.refused)

    def used_by(self, place: int) -> Reply:
        """Return the usage of the call with index `place` in the request, as a reply with an error."""
        if self.used is not None:
            return self.used[place] if place < len(self.used) else Reply(error=self.message)
        reported = self.reported_usage
        unknown = self.may_be_charged and not reported
        return Reply(error=self.message, reported_usage=reported, may_be_charged=unknown)


class ServerFacts(NamedTuple):
    """What a server reports about its models. `None` means unknown.

    Attributes:
        models: The names of its models.
        context_window: The context window of the endpoint's model, in tokens.
        slots: Calls that the server answers at the same time.
    """

    models: tuple[str, ...] = ()
    context_window: int | None = None
    slots: int | None = None


class Endpoint(Part):
    """A real model at the end of the stack; the base class of all adapters."""

    kind: ClassVar[str] = ""
    setting_aliases: ClassVar[Mapping[str, str | Alias]] = {
        name: f"tl.TreeOfThoughts({name}=…)" for name in ("temperature", "max_tokens", "seed")
    }

    generates: ClassVar[bool] = True
    """Whether the model generates text, so that a reply has output tokens. Reward models do not."""

    concurrency: Annotated[int, Field(ge=1)] | None = None
    """Maximum number of concurrent requests of all labs that use this endpoint. `None` adapts it: it grows
    while the throughput does, and is reduced when the server refuses requests or slows down.
    """

    requests_per_minute: Annotated[int, Field(ge=1)] | None = None
    """Maximum number of requests per minute. `None` means no limit."""

    tokens_per_minute: Annotated[int, Field(ge=1)] | None = None
    """Maximum number of tokens per minute. `None` means no limit."""

    retries: Annotated[int, Field(ge=0)] = 5
    """Maximum number of times that a request is repeated after 408, 409, 429, 5xx, a broken connection, or a
    reply that the server marks as failed.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the model."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return everything that can change a reply, except the call, as JSON-compatible data for cache keys.

        The identity contains no secrets, limits or timeouts.
        """

    @property
    def address(self) -> str:
        """The server or service of the model. Endpoints of equal address and limits share a rate limiter."""
        return str(self.identity())

    def configured(self, **given: Any) -> Endpoint:
        """Return a copy of the model, in which the settings `given` replace its own. The URL of the server is
        given as `base_url`.

        Raises:
            ValueError: If a setting is unknown or invalid.
        """
        settings = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self).model_validate({**settings, **given})

    @property
    def is_hosted(self) -> bool:
        """Whether the server is a provider's own service, whose capacity `lab.check()` does not test."""
        return False

    def window(self) -> int | None:
        """Return the context window in tokens, or `None` if it is unknown."""
        return getattr(self, "context_window", None)

    @property
    def uses_reported_window(self) -> bool:
        """Whether the context window that the server reports is used. If not, only that of `window` is."""
        return True

    def cached_prefix(self, call: Call) -> str | None:
        """Return the prefix of the prompt that the provider is asked to cache. `None` means no prefix. While
        the first call with a prefix is in flight, other calls with the same prefix wait.
        """
        return None

    def takes_n(self, call: Call) -> bool:
        """Whether one request can return several samples of `call`."""
        return False

    def list_key(self, call: Call) -> Hashable | None:
        """Return a key: calls with different prompts but equal keys can be one request. `None` means that
        `call` needs its own request.
        """
        return None

    async def problem(self) -> str | None:
        """Return why no request can succeed, such as a missing key, and how to fix it, without a final
        period. `None` if no problem is known.
        """
        return None

    async def about(self) -> dict[str, str]:
        """Return what the server reports about itself and its weights, such as its version. May raise
        `Failure`.
        """
        return {}

    async def served_weights(self) -> dict[str, str]:
        """Return what the server reports about the weights behind the model's name, or {} if they are part
        of the model's identity. May raise `Failure`.
        """
        return {}

    async def server_facts(self) -> ServerFacts:
        """Return what the server reports about its models. May raise `Failure`."""
        return ServerFacts()

    @property
    def is_ready(self) -> bool:
        """Whether a request can be sent without loading anything."""
        return True

    async def ready(self) -> None:
        """Load what `need` requires, without blocking the event loop."""

    async def load_prices(self) -> None:
        """Load what `need` requires to price a call in a replay, which sends no requests."""

    async def start(self) -> None:
        """Load what `answer` requires, without blocking the event loop. An error may be left to `answer`,
        which raises it as a `Failure`.
        """
        await self.ready()

    @abstractmethod
    def need(self, calls: Sequence[Call]) -> Need:
        """Return the most tokens and USD that one request for `calls` can use. Fast once `ready` has
        returned.
        """

    def priced(self, reply: Reply) -> Reply:
        """Return a stored reply of unknown cost, with the cost of its tokens if the endpoint has a price. The
        base class has none.
        """
        return reply

    @abstractmethod
    async def answer(self, calls: Sequence[Call], observer: CallObserver) -> Sequence[Reply]:
        """Make one request for `calls`, and return a reply to each. Raises `Failure`."""


def provider_seed(call: Call) -> int | None:
    """Return the seed that is sent to the provider: the seed of the call plus its sample index and, in a
    later attempt or repeat, a hash of the attempt and the repeat. `None` if the call has no seed.
    """
    if call.seed is None:
        return None
    start = 0
    if call.repeat or call.attempt:
        place = f"{call.repeat} {call.attempt}".encode()
        start = int.from_bytes(hashlib.sha256(place).digest()[:4])
    return (call.seed + call.sample_index + start) % 2**31


def is_model(value: object) -> bool:
    """Whether `value` can answer calls: an endpoint, or a callable that is not a class."""
    return isinstance(value, Endpoint) or (callable(value) and not isinstance(value, type))
