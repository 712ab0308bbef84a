"""The layer that repeats requests after temporary failures.

Only failures that may be temporary are repeated: 408, 409, 429, 5xx except 501, broken connections, and
replies that the server marks as failed (`chat/failures.py` decides which). Of several samples, only those
that failed are requested again. The wait is the provider's Retry-After or, without one, half a second before
the first retry and twice as long before each later one, up to a minute, times a random factor from 0.5 to 1,
so that many callers do not return at once. The last failure becomes a reply with an error and its usage. The
usage of earlier failures is noted, and counts towards every limit.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from itertools import count
from typing import Any

from msgspec.structs import replace

from tot_lab.core.calls import Call, CallObserver, Reply
from tot_lab.core.reading.thinking import separated
from tot_lab.core.records import usage_noted
from tot_lab.core.scrubbing import scrubbed
from tot_lab.models.stack import PAY_AGAIN, Backend, Endpoint, Failure, warn_of_failure

FIRST_WAIT = 0.5  # seconds
LONGEST_WAIT = 60.0  # seconds, without a Retry-After
MAX_PATIENCE = 600.0
"""Seconds. If a provider's Retry-After is longer, the request is not repeated."""


_QUIET = 30.0
"""Seconds after a warning about broken connections before the same layer gives another one."""


class Retried:
    """The layer that sends a request until it is answered, cannot succeed, or was repeated `retries` times.

    It also separates the thinking of each reply from its text, so that the cache stores them apart.
    """

    def __init__(self, inner: Backend, endpoint: Endpoint) -> None:
        self.inner = inner
        self.endpoint = endpoint
        self._warned = -_QUIET

    async def answer(self, calls: Sequence[Call], observer: CallObserver) -> Sequence[Reply]:
        """Return the replies, each with an error if the request failed."""
        replies: list[Reply | None] = [None] * len(calls)
        only: dict[str, Any] = {}  # the calls that are requested again, if some have a reply already
        for tries in count(1):
            places = [place for place, reply in enumerate(replies) if reply is None]
            observer.note("call.sent", tries=tries, n=len(places), **only)
            failure: Failure | None = None
            found: Sequence[Reply | None]
            try:
                found = await self.inner.answer([calls[place] for place in places], observer)
            except Failure as caught:
                failure, found = caught, caught.replies
            for place, reply in zip(places, found, strict=False):
                if reply and reply.error:
                    reply = replace(reply, error=scrubbed(reply.error))
                replies[place] = reply and separated(reply)
            if failure is None:
                return [reply for reply in replies if reply is not None]
            lost = {place: failure.used_by(k) for k, place in enumerate(places) if replies[place] is None}
            wait = failure.retry_after
            if wait is None:
                wait = min(FIRST_WAIT * 2 ** (tries - 1), LONGEST_WAIT) * random.uniform(0.5, 1.0)
            again = failure.retry and tries <= self.endpoint.retries and wait <= MAX_PATIENCE
            error = self._error_text(failure, tries)
            if again and (pay := PAY_AGAIN.get()) is not None and not await pay([*lost.values()]):
                again, error = False, f"{error} (the spending limit has no room for another try)"
            if not again:
                if self._warned < 0:  # no warning was given so far, not even about a retry
                    self._warned = time.monotonic()
                    warn_of_failure(f"A call failed: {error}")
                return [reply or replace(lost[place], error=error) for place, reply in enumerate(replies)]
            if failure.connection_failed:
                self._warn(failure, wait)
            if any(replies):
                only = {"only": [calls[place] for place in lost]}
            note = {"error": failure.message, "status": failure.status, "wait": round(wait, 3)}
            for place, reply in lost.items():
                one = {"only": [calls[place]]} if len(calls) > 1 else {}
                observer.note("call.retried", **note, **usage_noted(reply), **one)
            await asyncio.sleep(wait)
        raise AssertionError

    def _warn(self, failure: Failure, wait: float) -> None:
        """Warn that the connection failed and is retried, at most once in `_QUIET` seconds."""
        if time.monotonic() - self._warned >= _QUIET:
            self._warned = time.monotonic()
            problem = self._error_text(failure, 1)
            retries = self.endpoint.retries
            warn_of_failure(f"{problem}. The next of {retries} retries follows in {wait:.1f} s.")

    def _error_text(self, failure: Failure, tries: int) -> str:
        status = "" if failure.status is None else f" {failure.status}"
        again = "" if tries == 1 else f" (tried {tries} times)"
        where = f" at {self.endpoint.address}" if failure.unreadable else ""
        return f"{self.endpoint.name}{where}{status}: {failure.message}{again}"
