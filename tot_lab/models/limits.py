"""Rate limits of endpoints: the run that began first is served first.

All labs that use one endpoint with the same limits in one event loop share a rate limiter. If the endpoint
sets no `concurrency`, the limiter finds the best one (`AdaptiveLimiter`). Each worker of a distributed sweep
gets an equal part of each limit (`divide_limits`). A call that waits records `call.queued`, and its timeout
starts when it is sent.
"""

from __future__ import annotations

import asyncio
import math
import warnings
from collections import deque
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from tot_lab.core.calls import TIMED_OUT, Call, CallObserver, Reply
from tot_lab.models.adaptive import AdaptiveLimit
from tot_lab.models.stack import Backend, Endpoint, Failure, Listening, queue_position

MINUTE = 60.0

FEW, PATIENCE = 8, 10.0
"""A warning is given if refusals keep the concurrency below `FEW` for `PATIENCE` seconds while calls wait."""

OVERLOADED = (429, 503, 529)
"""HTTP statuses with which an overloaded server refuses a request that it could answer later."""


class Limits(NamedTuple):
    """The limits of one address; see `Endpoint`."""

    address: str
    concurrency: int | None
    requests_per_minute: int | None
    tokens_per_minute: int | None


class RateLimiter:
    """Admits requests in the order of `queue_position`, as the limits allow."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.concurrency = limits.concurrency or 1
        self.counts = limits.requests_per_minute is not None or limits.tokens_per_minute is not None
        self.under_way = 0
        self.waiting: list[tuple[tuple[int, int], int, asyncio.Future[None]]] = []  # a heap
        self.passed: deque[tuple[float, int]] = deque()  # time and tokens of the requests of the last minute
        self.tokens = 0
        self.timer: asyncio.TimerHandle | None = None

    async def enter(self, tokens: int, observer: CallObserver) -> None:
        """Wait until a request of at most `tokens` tokens may be sent. Call `leave` when it has ended."""
        if not self.waiting and self._wait(tokens) == 0.0:
            self._let_in(tokens)
            return
        observer.note("call.queued")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self.waiting, (queue_position(), tokens, turn))
        self._admit_next()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()  # it was admitted and cancelled at once
            else:
                self._admit_next()  # the next request may have fewer tokens and fit
            raise

    def leave(self) -> None:
        """Report the end of an admitted request, and admit the next ones."""
        self.under_way -= 1
        self._admit_next()

    def _let_in(self, tokens: int) -> None:
        self.under_way += 1
        self.count(tokens)

    def count(self, tokens: int) -> None:
        """Count a request of `tokens` tokens, sent now, towards the limits per minute."""
        if self.counts:
            self.passed.append((asyncio.get_running_loop().time(), tokens))
            self.tokens += tokens

    def _admit_next(self) -> None:
        """Admit waiting requests in order, and set a timer if the next must wait for time to pass."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        while self.waiting:
            _, tokens, turn = self.waiting[0]
            if not turn.done():
                wait = self._wait(tokens)
                if wait is None:
                    return  # `leave` tries again
                if wait > 0:
                    self.timer = asyncio.get_running_loop().call_later(wait, self._admit_next)
                    return
                self._let_in(tokens)
                turn.set_result(None)
            heappop(self.waiting)

    def _wait(self, tokens: int) -> float | None:
        """Return the seconds until a request of `tokens` tokens may be sent, or `None` if another request
        must end first.
        """
        if self.under_way >= self.concurrency:
            return None
        if not self.counts:
            return 0.0
        requests, max_tokens = self.limits.requests_per_minute, self.limits.tokens_per_minute
        now = asyncio.get_running_loop().time()
        while self.passed and self.passed[0][0] <= now - MINUTE:
            self.tokens -= self.passed.popleft()[1]
        # How many requests and tokens of the last minute must become older than a minute first.
        too_many = 0 if requests is None else len(self.passed) + 1 - requests
        over = 0 if max_tokens is None else self.tokens + min(tokens, max_tokens) - max_tokens
        wait = 0.0
        for number, (when, its) in enumerate(self.passed):
            if number >= too_many and over <= 0:
                break
            wait = when + MINUTE - now
            over -= its
        return wait


class AdaptiveLimiter(RateLimiter):
    """A rate limiter that adapts the number of concurrent requests by the rule `AdaptiveLimit`.

    It reports each change as a note `call.limit` to the observer of the call that caused it, or of the next
    call if that call was cancelled.
    """

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self.rule = AdaptiveLimit()
        self.concurrency = self.noted = self.rule.value
        self._few_since: float | None = None
        self._refusal = ""  # HTTP status or name of the last failure that reduced the limit

    async def measured(
        self, endpoint: Endpoint, inner: Backend, calls: Sequence[Call], observer: CallObserver
    ) -> Sequence[Reply]:
        """Make one request through `inner`, and adapt the limit to its outcome. Raises the same `Failure` as
        `inner`.
        """
        now = asyncio.get_running_loop().time
        sent, is_full = now(), self.under_way >= self.concurrency
        limit = max(self.concurrency, self.under_way)
        try:
            replies = await inner.answer(calls, observer)
        except Failure as failure:
            refused = failure.status in OVERLOADED
            if refused or failure.connection_failed or failure.status in (408, 504):
                self._failed(sent, now(), limit, str(failure.status or "connection"), refused)
                self._warn(now(), endpoint)
                self._note(observer, endpoint)
            raise
        except asyncio.CancelledError as error:
            if TIMED_OUT in error.args:
                self._failed(sent, now(), limit, "timeout", False)
            raise
        tokens = sum(reply.output_tokens or 1 for reply in replies)
        if self.rule.replied(sent, now(), limit, tokens, is_full=is_full):
            self._follow()
        self._warn(now(), endpoint)
        self._note(observer, endpoint)
        return replies

    def _failed(self, sent: float, now: float, limit: int, reason: str, refused: bool) -> None:
        if self.rule.failed(sent, now, limit, self.under_way, reason, refused=refused):
            self._refusal = reason
            self._follow()

    def _follow(self) -> None:
        self.concurrency = self.rule.value
        self._admit_next()

    def _warn(self, now: float, endpoint: Endpoint) -> None:
        if self.concurrency >= FEW or not self.rule.is_refused or not self.waiting:
            self._few_since = None
        elif self._few_since is None:
            self._few_since = now
        elif now - self._few_since >= PATIENCE:
            self._few_since = math.inf  # so that this warning is given once
            warnings.warn(
                f"{endpoint.name} refuses requests ({self._refusal}). For {PATIENCE:.0f} s, at most "
                f"{self.concurrency} could be sent at a time, and {len(self.waiting):,} wait. If the server "
                "can take more, set concurrency= of the model.",
                RuntimeWarning,
                stacklevel=2,
            )

    def _note(self, observer: CallObserver, endpoint: Endpoint) -> None:
        if self.noted != self.concurrency:
            before, self.noted = self.noted, self.concurrency
            observer.note(
                "call.limit", limit=self.noted, before=before, reason=self.rule.reason, model=endpoint.name
            )


_LIMITERS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Limits, RateLimiter]] = WeakKeyDictionary()
_DIVIDED: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[int, int]] = WeakKeyDictionary()


def divide_limits(place: int, of: int) -> None:
    """Reduce each limit in this event loop to part number `place`, counted from 0, of `of` equal parts. The
    parts add up to the limit. If the limit is below `of`, each part is 1.
    """
    _DIVIDED[asyncio.get_running_loop()] = place, of


def limits_of(endpoint: Endpoint) -> Limits:
    """Return the limits of `endpoint` in this event loop, after `divide_limits`."""
    place, of = _DIVIDED.get(asyncio.get_running_loop(), (0, 1))
    limits = endpoint.concurrency, endpoint.requests_per_minute, endpoint.tokens_per_minute
    return Limits(
        endpoint.address, *[None if limit is None else max(1, (limit + place) // of) for limit in limits]
    )


def limiter_of(endpoint: Endpoint) -> RateLimiter:
    """Return the rate limiter that all users of `endpoint` in this event loop share."""
    limits = limits_of(endpoint)
    loop = asyncio.get_running_loop()
    limiters = _LIMITERS.setdefault(loop, {})
    if limits not in limiters:
        limiters[limits] = (AdaptiveLimiter if endpoint.concurrency is None else RateLimiter)(limits)
    return limiters[limits]


def are_congested(endpoints: Iterable[Endpoint]) -> bool:
    """Whether each of `endpoints` with a request in flight has at least as many waiting requests as its
    concurrency, so that more calls would not keep it busier. `False` if no request is in flight.
    """
    known = _LIMITERS.get(asyncio.get_running_loop(), {})
    used = [found for each in endpoints if (found := known.get(limits_of(each))) and found.under_way]
    return bool(used) and all(len(limiter.waiting) >= limiter.concurrency for limiter in used)


class _UsesLimiter:
    """A layer that uses the rate limiter of its endpoint."""

    def __init__(self, inner: Backend, endpoint: Endpoint) -> None:
        self.inner = inner
        self.endpoint = endpoint
        self._found: tuple[asyncio.AbstractEventLoop, RateLimiter] | None = None

    def _limiter(self) -> RateLimiter:
        """Return the rate limiter of the endpoint in this event loop, cached because the lookup is slow."""
        loop = asyncio.get_running_loop()
        if self._found is None or self._found[0] is not loop:
            self._found = loop, limiter_of(self.endpoint)
        return self._found[1]


class Limited(_UsesLimiter):
    """The layer that waits for the rate limiter."""

    async def answer(self, calls: Sequence[Call], observer: CallObserver) -> Sequence[Reply]:
        """Return the replies."""
        limiter = self._limiter()
        tokens = 0
        if self.endpoint.tokens_per_minute is not None:
            await self.endpoint.ready()
            tokens = self.endpoint.need(calls).tokens
        await limiter.enter(tokens, observer)
        times_sent = count()

        def hear(name: str, data: dict[str, Any]) -> None:
            if name == "call.sent" and next(times_sent) > 0:  # `enter` has counted the first try
                limiter.count(tokens)

        try:
            return await self.inner.answer(calls, Listening(observer, hear) if limiter.counts else observer)
        finally:
            limiter.leave()


class Measured(_UsesLimiter):
    """The layer that lets an adaptive rate limiter measure every request, including retries."""

    async def answer(self, calls: Sequence[Call], observer: CallObserver) -> Sequence[Reply]:
        """Return the replies. Raises `Failure`."""
        limiter = self._limiter()
        if isinstance(limiter, AdaptiveLimiter):
            return await limiter.measured(self.endpoint, self.inner, calls, observer)
        return await self.inner.answer(calls, observer)
