"""The limit on real spending in USD.

Before a request, the most that it can cost is reserved. When the replies arrive, their cost counts as spent,
and the rest of the reservation is released. The whole reservation counts as spent if the provider may have
charged an unknown amount: the request was cancelled after it was sent, a reply reports no usage or impossible
usage, or the request failed after the provider may have processed it. A request is repeated only if the limit
allows its maximum cost again. If the limit does not allow a request for several calls at once, they are
requested in parts, each after the part before is paid. The notes of a call state the most that it can have
cost so far, so that the journal of a killed run has that amount. If the price is unknown, the limit cannot be
enforced and no request is sent. A user's function has no price; the cost that its replies report is counted.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Sequence
from typing import Any

from tot_lab.core.calls import REFUSED, Call, CallObserver, Reply, believed
from tot_lab.models.function import Function
from tot_lab.models.stack import LATER, PAY_AGAIN, Backend, Endpoint, Listening, queue_position


class Hold:
    """A reservation for one request.

    Args:
        most: The most USD that the request can cost.
        loop: The event loop of the request.
    """

    def __init__(self, most: float, loop: asyncio.AbstractEventLoop) -> None:
        self.most = most
        self.loop = loop
        self.is_sent = False
        """Whether a try of the request is in flight, so that the provider may charge for it."""


class SpendLimiter:
    """The spending limit in USD, shared by all requests of a lab in all threads.

    Args:
        cap: The limit. `None` means no limit.
    """

    def __init__(self, cap: float | None) -> None:
        self.cap = cap
        self.spent = 0.0
        self.earlier = 0.0
        """USD that resumed runs had spent before, according to their journals. They count towards
        the limit.
        """
        self._held: set[Hold] = set()
        self._waiting: list[tuple[tuple[int, int], asyncio.Future[None]]] = []
        self._lock = threading.Lock()

    @property
    def total(self) -> float:
        """USD that count towards the limit: `spent` and `earlier`."""
        return self.earlier + self.spent

    @property
    def reserved(self) -> float:
        """USD reserved for requests in flight."""
        return math.fsum(hold.most for hold in self._held)

    def refusal(self, most: float) -> dict[str, float | None]:
        """Return the data of a note about a refused request, which could cost up to `most` USD."""
        left = None if self.cap is None else self.cap - self.total
        return {"most": most, "left": left, "cap": self.cap}

    async def reserve(self, most: float, observer: CallObserver) -> Hold | None:
        """Reserve `most` USD, perhaps after other reservations end. Returns `None` if too little is left."""
        hold = Hold(most, loop := asyncio.get_running_loop())
        if self.cap is None:
            return hold
        position = queue_position()
        while True:
            with self._lock:
                for left in [one for one in self._held if one.loop.is_closed()]:  # they cannot settle
                    self._held.remove(left)
                    self.spent += left.most if left.is_sent else 0.0
                if self.total + self.reserved + most <= self.cap:
                    self._held.add(hold)
                    return hold
                if self.total + most > self.cap:
                    return None
                settled: asyncio.Future[None] = loop.create_future()
                self._waiting.append((position, settled))
            observer.note("call.queued")
            await settled

    def spend(self, amount: float) -> None:
        """Count `amount` USD as spent, without a reservation."""
        with self._lock:
            self.spent += amount

    def settle(self, hold: Hold, spent: float) -> None:
        """Release a reservation, count `spent` USD, and wake the requests that wait in `reserve`."""
        with self._lock:
            self._held.discard(hold)
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
        """Return the replies. If the limit allows only some of `calls` now, the first ones are requested and
        the others get the error `LATER`. If it allows none, all get the error `budget:spend`.
        """
        limiter, later = self.spend_limiter, calls[:0]
        if limiter.cap is None:
            hold = await limiter.reserve(0.0, observer)
        else:
            await self.endpoint.ready()
            hold, sent, most = None, len(calls), 0.0
            while sent and hold is None:
                price = self.endpoint.need(calls[:sent]).usd
                if price is None:
                    observer.note("call.not_sent")
                    why = f"the price of {self.endpoint.name} is unknown, so spend= cannot be enforced"
                    return [Reply(error=f"{why}. Set price= of the model.", sent=False) for _ in calls]
                most = price
                hold = await limiter.reserve(most, observer)
                sent -= hold is None
            if hold is None:
                observer.note("call.refused", **limiter.refusal(most))
                return [Reply(error=REFUSED) for _ in calls]
            calls, later = calls[:sent], calls[sent:]
            if later:
                observer.note("call.queued", only=later)
        payment = _Payment(limiter, hold, calls, observer, is_part=bool(later))
        heard, token = Listening(observer, payment.hear), PAY_AGAIN.set(payment.pay_again)
        try:
            replies = [believed(reply) for reply in await self.inner.answer(calls, heard)]
            payment.count(replies)
            return [*replies, *(Reply(error=LATER) for _ in later)]
        finally:
            PAY_AGAIN.reset(token)
            payment.end()


class _Payment:
    """Counts the cost of one request, which may take several tries.

    Args:
        limiter: The spending limiter.
        hold: The reservation. A try whose cost is unknown counts as the reserved amount.
        calls: The calls of the request.
        observer: The observer of the calls.
        is_part: Whether `observer` also receives notes of calls that are requested later, so that each note
            must name its calls.
    """

    def __init__(
        self,
        limiter: SpendLimiter,
        hold: Hold | None,
        calls: Sequence[Call],
        observer: CallObserver,
        *,
        is_part: bool,
    ) -> None:
        self.limiter, self.hold, self.calls, self.observer = limiter, hold, calls, observer
        self.is_part = is_part
        self.most = hold.most if hold else 0.0
        self._counted = self._billed = observer.paid or 0.0  # paid for earlier requests
        self._is_billed = False
        """Whether the endpoint adds its cost to `observer.paid`, so that the costs of replies are not
        counted.
        """

    def hear(self, name: str, data: dict[str, Any]) -> None:
        """Add `paid` to the notes of each try: the most USD that one call can have cost, including the try in
        flight.
        """
        if self.is_part:
            data.setdefault("only", self.calls)
        if self.hold is not None and name in ("call.sent", "call.retried"):
            self.hold.is_sent = name == "call.sent"
            paid = self._counted + self.most * self.hold.is_sent
            if paid or self.limiter.cap is not None:
                data["paid"] = paid / len(self.calls)

    async def pay_again(self, lost: Sequence[Reply]) -> bool:
        """Count the cost of a failed try, and reserve the same amount again for the next try. Returns whether
        the limit allows that.

        Args:
            lost: The usage of each call that has no reply yet, as a reply with an error.
        """
        cost = self._cost_of([believed(reply) for reply in lost])
        if self.hold is not None:
            self.hold.is_sent = False
        if cost:
            self._settle(cost)
            self.hold = await self.limiter.reserve(self.most, self.observer)
        return self.hold is not None

    def count(self, replies: Sequence[Reply]) -> None:
        """Count the cost of the last try, and set `observer.paid` to the cost of all tries."""
        has_lost = self._counted > 0.0
        # Without a reservation, the limit did not allow a retry. `pay_again` has then counted the replies
        # with an error already.
        self._settle(self._cost_of([one for one in replies if one.error is None or self.hold is not None]))
        if has_lost or self.limiter.cap is not None:
            self.observer.paid = self._counted

    def end(self) -> None:
        """Release a reservation that is left. A try in flight counts as the whole reserved amount."""
        if self.hold is not None:
            self._settle(self.most if self.hold.is_sent else 0.0)

    def _cost_of(self, replies: Sequence[Reply]) -> float:
        """Return the cost since the last call of this method. A reply of unknown cost counts as its equal
        part of the reservation.
        """
        billed = self.observer.paid or 0.0
        self._is_billed = self._is_billed or billed != self._billed
        cost, self._billed = billed - self._billed, billed
        if not self._is_billed:
            cost = math.fsum(reply.cost or 0.0 for reply in replies)
        unknown = sum(reply.cost is None and _may_cost(reply) for reply in replies)
        return cost + unknown * self.most / len(self.calls)

    def _settle(self, spent: float) -> None:
        if self.hold is None:
            self.limiter.spend(spent)
        else:
            self.limiter.settle(self.hold, spent)
        self.hold, self._counted = None, self._counted + spent


def _may_cost(reply: Reply) -> bool:
    """Whether the provider may have charged for `reply`, whose cost is unknown."""
    known = reply.reported_usage or reply.may_be_charged or reply.input_tokens is not None
    return reply.error is None or bool(known)


class Costed:
    """The layer that counts the cost that the replies of a function report.

    The cost of a call is unknown beforehand, so nothing is reserved. A call is refused if less is left of the
    limit than the most expensive reply so far has cost.
    """

    def __init__(self, inner: Function, spend_limiter: SpendLimiter) -> None:
        self.inner = inner
        self.spend_limiter = spend_limiter
        self.dearest = 0.0

    async def answer(self, calls: Sequence[Call], observer: CallObserver) -> Sequence[Reply]:
        """Return the reply to each of `calls`."""
        return [await self.reply(call, observer) for call in calls]

    async def reply(self, call: Call, observer: CallObserver) -> Reply:
        """Return the reply to `call`, or one with the error `budget:spend`."""
        cap = self.spend_limiter.cap
        if cap is not None and self.dearest and self.spend_limiter.total + self.dearest > cap:
            observer.note("call.refused", **self.spend_limiter.refusal(self.dearest))
            return Reply(error=REFUSED)
        reply = await self.inner.reply(call, observer)
        if reply.cost:
            self.spend_limiter.spend(reply.cost)
            self.dearest = max(self.dearest, reply.cost)
        return reply
