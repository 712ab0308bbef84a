"""The layer that checks and loads what an endpoint needs before the first request.

A missing key or a server that does not answer is found before anything is loaded, so the first call fails at
once with a message that says how to fix it. Each lab also warns once of each such problem, even if an earlier
lab of the process has warned of the same one. The check is repeated with each call until it passes.

Loading does not count towards the timeout of a call. Importing litellm takes seconds and loading local
weights takes longer. A call that waits for either is queued, and its timeout starts when it is sent. Loading
has its own time limit, `LOADING`.

What the server reports about itself is requested once, before the first call, and noted with every call. The
driver writes one note for each run, outside the canonical record, since another machine may run another
version.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Sequence
from contextlib import suppress
from weakref import WeakKeyDictionary

from tot_lab.core.calls import Call, CallObserver, Reply
from tot_lab.models.stack import Backend, Endpoint, Failure

LOADING = 600.0
"""Seconds that loading an endpoint may take."""

_ASKING = 2.0
"""Seconds that a server may take to report about itself."""


class Ready:
    """The layer that calls an endpoint once it is loaded.

    Args:
        inner: The next layer.
        endpoint: The endpoint.
        warned: Problems that the lab has warned of already. `answer` adds new ones.
    """

    def __init__(self, inner: Backend, endpoint: Endpoint, warned: set[str]) -> None:
        self.inner = inner
        self.endpoint = endpoint
        self._warned = warned
        self._is_reachable = False
        self._about: dict[str, str] | None = None
        self._checks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    async def answer(self, calls: Sequence[Call], observer: CallObserver) -> Sequence[Reply]:
        """Return the replies, or replies with an error if the endpoint cannot be called or loaded."""
        if not (self._is_reachable and self.endpoint.is_ready):
            observer.note("call.queued")
        if not self._is_reachable and (problem := await self._problem()) is not None:
            observer.note("call.not_sent")
            if problem not in self._warned:
                self._warned.add(problem)
                text = f"{problem}. No call to {self.endpoint.name} was sent."
                # `warn_explicit` without a registry shows a warning again that an earlier lab has given.
                warnings.warn_explicit(text, UserWarning, "tot_lab", 1)
            return [Reply(error=f"{problem}.", sent=False) for _ in calls]
        if not self.endpoint.is_ready:
            loading = asyncio.timeout(LOADING)
            try:
                async with loading:
                    await self.endpoint.start()
            except TimeoutError:
                if not loading.expired():
                    raise
                name, where = self.endpoint.name, self.endpoint.address
                error = f"timeout: {name} did not load within {LOADING:g} s ({where})"
                return [Reply(error=error) for _ in calls]
        if about := self._about if self._about is not None else await self._asked():
            observer.note("call.server", **about)
        return await self.inner.answer(calls, observer)

    async def _asked(self) -> dict[str, str]:
        """Return what the server reports about itself, or {} without an answer in `_ASKING` seconds.
        Concurrent calls share one request.
        """
        async with self._lock():
            if self._about is None:
                about: dict[str, str] = {}
                with suppress(Failure, TimeoutError):
                    async with asyncio.timeout(_ASKING):
                        about = await self.endpoint.about()
                self._about = about
        return self._about

    def _lock(self) -> asyncio.Lock:
        return self._checks.setdefault(asyncio.get_running_loop(), asyncio.Lock())

    async def _problem(self) -> str | None:
        """Return why the endpoint cannot be called, or `None`. Concurrent calls share one check."""
        async with self._lock():
            problem = None if self._is_reachable else await self.endpoint.problem()
            self._is_reachable = problem is None
        return problem
