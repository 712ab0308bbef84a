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
from typing import Any

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

    def settle(self, hold: object, spent: float) -> None:
        """Release a reservation and count what was spent."""
        with self._lock:
            del self._held[hold]
            self.spent += spent
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
        limiter, hold, most, rest = self.spend_limiter, None, 0.0, calls[:0]
        if limiter.cap is not None:
            await self.endpoint.ready()
            sent = len(calls)
            while sent and hold is None:
                price = self.endpoint.need(calls[:sent]).usd
                if price is None:
                    why = f"the price of {self.endpoint.name} is unknown, so spend= cannot be enforced"
                    return [Reply(error=f"{why}. Set price= of the model.") for _ in calls]
                most = price
                hold = await limiter.reserve(most, observer)
                sent -= hold is None
            left = limiter.cap - limiter.total
            if hold is None:
                observer.note("call.refused", most=most, left=left)
                return [Reply(error=REFUSED) for _ in calls]
            calls, rest = calls[:sent], calls[sent:]
            if rest:
                observer.note("call.refused", most=self.endpoint.need(rest).usd, left=left - most, only=rest)
        payment = _Payment(limiter, hold, most, calls, observer)
        heard, token = Listening(observer, payment.hear), PAY_AGAIN.set(payment.pay_again)
        try:
            replies = [believed(reply) for reply in await self.inner.answer(calls, heard)]
            payment.count(replies)
            return [*replies, *(Reply(error=REFUSED) for _ in rest)]
        finally:
            PAY_AGAIN.reset(token)
            payment.end()


class _Payment:
    """Counts what each try of one request costs.

    Args:
        limiter: Counts what is spent.
        hold: What is reserved. `None` without a limit.
        most: The USD that are reserved. What a try does not report counts as much.
        calls: The calls of the request.
        observer: The observer of the calls.
    """

    def __init__(
        self,
        limiter: SpendLimiter,
        hold: object | None,
        most: float,
        calls: Sequence[Call],
        observer: CallObserver,
    ) -> None:
        self.limiter, self.hold, self.most = limiter, hold, most
        self.calls, self.observer = calls, observer
        self.is_capped = hold is not None
        self.is_refused = False
        """Whether there was no room for another try."""
        self.is_sent = False
        """Whether a try is under way."""
        self._counted = self._billed = observer.paid or 0.0  # for a request that was not answered
        self._is_billed = False
        """Whether the endpoint itself says what a request costs, and not only its replies."""

    def hear(self, name: str, data: dict[str, Any]) -> None:
        """Follow the tries, and add to their notes what a call has cost, a try under way included."""
        if name in ("call.sent", "call.retried"):
            self.is_sent = name == "call.sent"
            paid = self._counted + self.most * self.is_sent
            if paid or self.is_capped:
                data["paid"] = paid / len(self.calls)

    async def pay_again(self, lost: Sequence[Reply]) -> bool:
        """Count what a failed try cost, and reserve as much as before for the next one. Returns whether there
        is room for it.
        """
        cost = self._cost_of([believed(reply) for reply in lost])
        self.is_sent = False
        if cost:
            self._settle(cost)
            if self.is_capped:
                self.hold = await self.limiter.reserve(self.most, self.observer)
                self.is_refused = self.hold is None
        return not self.is_refused

    def count(self, replies: Sequence[Reply]) -> None:
        """Count what the last try cost. The observer has then paid for all of them."""
        self.is_sent, has_lost = False, self._counted > 0.0
        self._settle(self._cost_of([r for r in replies if r.error is None or not self.is_refused]))
        if has_lost or self.is_capped:
            self.observer.paid = self._counted

    def end(self) -> None:
        """Release the reservation. A try that was sent and brought no reply counts as all of it."""
        self._settle(self.most if self.is_sent else 0.0)

    def _cost_of(self, replies: Sequence[Reply]) -> float:
        """Return what was charged since the last time. A reply without a cost counts its reservation."""
        billed = self.observer.paid or 0.0
        self._is_billed = self._is_billed or billed != self._billed
        cost, self._billed = billed - self._billed, billed
        if not self._is_billed:
            cost = math.fsum(reply.cost or 0.0 for reply in replies)
        unknown = sum(reply.cost is None and _may_cost(reply) for reply in replies)
        return cost + unknown * self.most / len(self.calls)

    def _settle(self, spent: float) -> None:
        if self.hold is not None:
            self.limiter.settle(self.hold, spent)
        elif spent:
            self.limiter.spend(spent)
        self.hold, self._counted = None, self._counted + spent


def _may_cost(reply: Reply) -> bool:
    """Whether the provider may have charged for `reply`, whose cost is unknown."""
    known = reply.reported_usage or reply.may_be_charged or reply.input_tokens is not None
    return reply.error is None or bool(known)


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
