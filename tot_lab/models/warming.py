"""The layer that lets the first of several calls fill the provider's prompt cache for the others.

Anthropic charges more for a beginning that it stores, and a tenth for one that it has stored before. The
entry exists once the first reply begins, so calls at the same time would each pay for storing it.

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
"""Seconds that the provider keeps an entry after its last use."""


class Warmed:
    """The layer that holds calls back until the first one with the same beginning has a reply.

    Args:
        inner: The next layer.
        beginning: Returns the beginning of the prompt that the provider caches, or `None`.
    """

    def __init__(self, inner: Backend, beginning: Callable[[Call], str | None]) -> None:
        self.inner = inner
        self.beginning = beginning
        self.used: dict[str, float] = {}
        """When each beginning was last used, the oldest one first."""
        self.first: dict[str, asyncio.Future[None]] = {}

    async def answer(self, calls: Sequence[Call], observer: CallObserver) -> Sequence[Reply]:
        """Return the replies."""
        text = self.beginning(calls[0])
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
            await asyncio.shield(first)  # if it failed, the others are not held back any longer
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
