"""The layer that lets the first of several calls fill the provider's prompt cache for the others.

Anthropic charges more than usual for a prompt prefix that it stores, and a tenth of the usual price for one
that is stored already. A prefix can be read once the first reply begins, so each of several concurrent calls
would pay for storing it.

References:
    Anthropic, Prompt caching: `cache_control`, minimum lengths, lifetime, concurrent requests.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from tot_lab.core.calls import Call, CallObserver, Reply
from tot_lab.models.stack import Backend

LIFETIME = 300.0
"""Seconds for which the provider keeps a prefix after its last use."""


class Warmed:
    """The layer that delays calls until the first call with the same prompt prefix has a reply.

    Args:
        inner: The next layer.
        prefix_of: Returns the prefix of a call's prompt that the provider caches. `None` means no prefix.
    """

    def __init__(self, inner: Backend, prefix_of: Callable[[Call], str | None]) -> None:
        self.inner = inner
        self.prefix_of = prefix_of
        self.used: dict[str, float] = {}
        """The monotonic time at which each prefix was last used, the oldest first."""
        self.first: dict[str, asyncio.Future[None]] = {}  # done when the first call with a prefix has ended

    async def answer(self, calls: Sequence[Call], observer: CallObserver) -> Sequence[Reply]:
        """Return the replies."""
        text = self.prefix_of(calls[0])
        if text is None:
            return await self.inner.answer(calls, observer)
        loop = asyncio.get_running_loop()
        if not self._is_warm(text):
            first = self.first.get(text)
            if first is None or first.done() or first.get_loop() is not loop:
                first = self.first[text] = loop.create_future()
                try:
                    return await self._answer(text, calls, observer)
                finally:
                    first.set_result(None)
                    if self.first.get(text) is first:
                        del self.first[text]
            observer.note("call.queued")
            await asyncio.shield(first)  # also ends if the first call failed
        return await self._answer(text, calls, observer)

    def _is_warm(self, text: str) -> bool:
        return time.monotonic() - self.used.get(text, -LIFETIME) < LIFETIME

    async def _answer(self, text: str, calls: Sequence[Call], observer: CallObserver) -> Sequence[Reply]:
        replies = await self.inner.answer(calls, observer)
        if any(reply.error is None for reply in replies):
            self.used.pop(text, None)
            self.used[text] = time.monotonic()
            while not self._is_warm(oldest := next(iter(self.used))):
                del self.used[oldest]
        return replies
