"""A limit on real spending.

Before a request, the most that it can cost is reserved. When the replies arrive, their cost is spent and the
rest released. If a request was cancelled after it was sent, a reply reports no usage, or the reported usage
is impossible, the whole reservation counts as spent, since it may have been charged. So does that of a failed
request, unless it was refused. A request is repeated if the limit has room for it once more. If the price is
unknown, the limit cannot be enforced and nothing is requested. A user's function has no price; the cost that
its replies report is counted.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Sequence

from tot_lab.core.calls import REFUSED, Call, CallObserver, Reply, believed
from tot_lab.models.function import Function
from tot_lab.models.stack import PAY_AGAIN, Backend, Endpoint, Listening, queue_position


class SpendLimiter:
    """The spending limit in USD, shared by all requests of a lab in all threads.

    Args:
        cap: The limit. `None` means no limit.
    """

    def __init__(self, cap: float | None) -> None:
        self.cap = cap
        self.spent = 0.0
        self.earlier = 0.0
        """USD that the journals of resumed runs had paid. They count towards the limit."""
        self._held: dict[object, tuple[asyncio.AbstractEventLoop, float]] = {}
        self._waiting: list[tuple[tuple[int, int], asyncio.Future[None]]] = []
        self._lock = threading.Lock()

    @property
    def total(self) -> float:
        """USD that count towards the limit: spent now, and earlier by resumed runs."""
        return self.earlier + self.spent

    @property
    def reserved(self) -> float:
        """USD reserved for requests in flight."""
        return math.fsum(most for _, most in self._held.values())

    async def reserve(self, most: float, observer: CallObserver) -> object | None:
        """Reserve `most` once requests in flight leave room for it. Returns `None` if they cannot."""
        loop, position = asyncio.get_running_loop(), queue_position()
        cap = math.inf if self.cap is None else self.cap
        while True:
            with self._lock:
                # A closed event loop leaves its requests behind.
                self._held = {hold: held for hold, held in self._held.items() if not held[0].is_closed()}
                if self.total + self.reserved + most <= cap:
                    hold = object()
                    self._held[hold] = (loop, most)
                    return hold
                if self.total + most > cap:
                    return None
                settled: asyncio.Future[None] = loop.create_future()
                self._waiting.append((position, settled))
            observer.note("call.queued")
            await settled

    def spend(self, amount: float) -> None:
        """Count an amount for which nothing was reserved."""
        with self._lock:
            self.spent += amount

    def settle(self, hold: object, spent: float | None) -> None:
        """Release a reservation and count what was spent. `None` counts the whole reservation."""
        with self._lock:
            most = self._held.pop(hold)[1]
            self.spent += most if spent is None else spent
            waiting, self._waiting = self._waiting, []
        for _, settled in sorted(waiting):
            if not settled.get_loop().is_closed():
                settled.get_loop().call_soon_threadsafe(_wake, settled)


def _wake(settled: asyncio.Future[None]) -> None:
    if not settled.done():
        settled.set_result(None)


class Spending:
    """The layer that keeps requests within the spending limit."""

    def __init__(self, inner: Backend, endpoint: Endpoint, spend_limiter: SpendLimiter) -> None:
        self.inner = inner
        self.endpoint = endpoint
        self.spend_limiter = spend_limiter

    async def answer(self, calls: Sequence[Call], observer: CallObserver) -> Sequence[Reply]:
        """Return the replies. Calls that exceed the limit are refused with `budget:spend`, the last ones
        first.
        """
        earlier = observer.paid or 0.0  # for a request that was not answered
        if self.spend_limiter.cap is None:
            replies = [believed(reply) for reply in await self.inner.answer(calls, observer)]
            costs = math.fsum(reply.cost or 0.0 for reply in replies)
            self.spend_limiter.spend(costs if observer.paid is None else observer.paid - earlier)
            return replies
        await self.endpoint.ready()
        sent, most, hold = len(calls), 0.0, None
        while sent and hold is None:
            price = self.endpoint.need(calls[:sent]).usd
            if price is None:
                name = self.endpoint.name
                why = (
                    f"the price of {name} is unknown, so spend= cannot be enforced. Set price= of the model."
                )
                return [Reply(error=why) for _ in calls]
            most = price
            hold = await self.spend_limiter.reserve(most, observer)
            sent -= hold is None
        left = (self.spend_limiter.cap or 0.0) - self.spend_limiter.total
        if hold is None:
            observer.note("call.refused", most=most, left=left)
            return [Reply(error=REFUSED) for _ in calls]
        if rest := calls[sent:]:
            observer.note("call.refused", most=self.endpoint.need(rest).usd, left=left - most, only=rest)
            calls = calls[:sent]
        spent: float | None = 0.0

        def hear(name: str) -> None:
            nonlocal spent
            if name == "call.sent":
                spent = None
            elif name == "call.retried":
                spent = 0.0

        def cost_of(replies: Sequence[Reply]) -> float:
            """Return what was charged since the last time. A reply without a cost counts its reservation."""
            nonlocal earlier
            unknown = [reply for reply in replies if reply.cost is None and _may_cost(reply)]
            known = math.fsum(reply.cost or 0.0 for reply in replies)
            if observer.paid is not None:
                known, earlier = observer.paid - earlier, observer.paid
            return known + len(unknown) * most / len(calls)

        async def pay_again(lost: Sequence[Reply]) -> bool:
            nonlocal hold, spent
            spent = cost_of([believed(reply) for reply in lost])
            if spent and hold is not None:
                self.spend_limiter.settle(hold, spent)
                spent, hold = 0.0, None
                hold = await self.spend_limiter.reserve(most, observer)
            spent = 0.0
            return hold is not None

        token = PAY_AGAIN.set(pay_again)
        try:
            replies = [believed(reply) for reply in await self.inner.answer(calls, Listening(observer, hear))]
            spent = cost_of([reply for reply in replies if hold is not None or reply.error is None])
            return [*replies, *(Reply(error=REFUSED) for _ in rest)]
        finally:
            PAY_AGAIN.reset(token)
            if hold is not None:
                self.spend_limiter.settle(hold, spent)
            elif spent:  # of replies that arrived before there was no room for another try
                self.spend_limiter.spend(spent)


def _may_cost(reply: Reply) -> bool:
    """Whether the provider may have charged for `reply`, whose cost is unknown."""
    return reply.error is None or reply.reported_usage != "" or reply.input_tokens is not None


class Costed:
    """The layer around a function that counts the cost reported by its replies.

    The cost of a call is unknown beforehand, so nothing is reserved. A call is refused if less than the cost
    of the most expensive reply is left.
    """

    def __init__(self, inner: Function, spend_limiter: SpendLimiter) -> None:
        self.inner = inner
        self.spend_limiter = spend_limiter
        self.dearest = 0.0

    async def answer(self, calls: Sequence[Call], observer: CallObserver) -> Sequence[Reply]:
        """Return the reply to each of `calls`."""
        return [await self.reply(call, observer) for call in calls]

    async def reply(self, call: Call, observer: CallObserver) -> Reply:
        """Return the reply to `call`, or a refusal with `budget:spend`."""
        cap = self.spend_limiter.cap
        if cap is not None and self.dearest and self.spend_limiter.total + self.dearest > cap:
            observer.note("call.refused", most=self.dearest, left=cap - self.spend_limiter.total)
            return Reply(error=REFUSED)
        reply = await self.inner.reply(call, observer)
        if reply.cost:
            self.spend_limiter.spend(reply.cost)
            self.dearest = max(self.dearest, reply.cost)
        return reply
