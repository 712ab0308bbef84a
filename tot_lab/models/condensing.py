"""The layer that reduces log-probabilities to what a call asks for, before a reply is stored."""

from __future__ import annotations

from collections.abc import Sequence

from tot_lab.core.calls import Call, CallObserver, Reply, condensed
from tot_lab.models.stack import Backend


class Condensed:
    """The layer that drops log-probabilities that a call does not ask for. It is below the cache, so that the
    journal of a run and the cache hold the same reply.
    """

    def __init__(self, inner: Backend) -> None:
        self.inner = inner

    async def answer(self, calls: Sequence[Call], observer: CallObserver) -> Sequence[Reply]:
        """Return the replies, each with only the log-probabilities that its call asks for."""
        replies = await self.inner.answer(calls, observer)
        return [condensed(call, reply) for call, reply in zip(calls, replies, strict=True)]
