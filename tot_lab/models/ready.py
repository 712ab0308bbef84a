"""The layer that loads what an endpoint needs before the first request.

Loading does not count towards the timeout of a call. Importing litellm takes seconds and loading local
weights takes longer; a call that waits for either is queued, and its timeout starts when it is sent. Loading
has its own time limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tot_lab.core.calls import Call, CallObserver, Reply
from tot_lab.models.stack import Backend, Endpoint

LOADING = 600.0
"""Seconds that loading an endpoint may take."""


class Ready:
    """The layer that calls an endpoint once it is loaded."""

    def __init__(self, inner: Backend, endpoint: Endpoint) -> None:
        self.inner = inner
        self.endpoint = endpoint

    async def answer(self, calls: Sequence[Call], observer: CallObserver) -> Sequence[Reply]:
        """Return the replies."""
        if not self.endpoint.is_ready:
            observer.note("call.queued")
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
        return await self.inner.answer(calls, observer)
