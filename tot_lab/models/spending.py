"""Real money, kept under a cap.

Rule: before a request is made, the most that it can cost is reserved; when its replies have come,
what they cost is spent and the rest given back. A request that was cut off after it was sent, and a
reply that does not say what it used, may have been charged in full: what was reserved counts as
spent; so it does where usage was reported that cannot be true. Without a known price nothing can be kept,
so nothing is asked. A function of the user's own has no price: what its replies say that they cost is
counted.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Sequence

from tot_lab.core.calls import Call, CallObserver, Reply, believed
from tot_lab.models.function import Function
from tot_lab.models.stack import Backend, Endpoint, Listening

REFUSED = "budget:spend"


class SpendLimiter:
    """What may be spent, in USD; shared by all requests of a lab, in whatever thread they run.

    cap: None = no limit.
    """

    def __init__(self, cap: float | None) -> None:
        self.cap = cap
        self.spent = 0.0
        self.earlier = 0.0
        """USD that the journals of resumed runs had paid; they count against the cap."""
        self._held: dict[object, tuple[asyncio.AbstractEventLoop, float]] = {}
        self._waiting: list[asyncio.Future[None]] = []
        self._lock = threading.Lock()

    @property
    def total(self) -> float:
        """What counts against the cap: USD spent now, and earlier by the runs that were resumed."""
        return self.earlier + self.spent

    @property
    def reserved(self) -> float:
        """What requests under way may still come to."""
        return math.fsum(most for _, most in self._held.values())

    async def reserve(self, most: float, wire: CallObserver) -> object | None:
        """Set `most` aside, once requests under way leave room for it; None when they cannot."""
        loop = asyncio.get_running_loop()
        cap = math.inf if self.cap is None else self.cap
        while True:
            with self._lock:
                # A loop that was closed has left its requests behind.
                self._held = {hold: held for hold, held in self._held.items() if not held[0].is_closed()}
                if self.total + self.reserved + most <= cap:
                    hold = object()
                    self._held[hold] = (loop, most)
                    return hold
                if self.total + most > cap:
                    return None
                settled: asyncio.Future[None] = loop.create_future()
                self._waiting.append(settled)
            wire.note("call.queued")
            await settled

    def spend(self, amount: float) -> None:
        """Count what nothing was set aside for."""
        with self._lock:
            self.spent += amount

    def settle(self, hold: object, spent: float | None) -> None:
        """What `hold` was for is over, and cost `spent`; None = all that was set aside."""
        with self._lock:
            most = self._held.pop(hold)[1]
            self.spent += most if spent is None else spent
            waiting, self._waiting = self._waiting, []
        for settled in waiting:
            if not settled.get_loop().is_closed():
                settled.get_loop().call_soon_threadsafe(_wake, settled)


def _wake(settled: asyncio.Future[None]) -> None:
    if not settled.done():
        settled.set_result(None)


class Spending:
    """The layer of the stack: asks within what the purse holds."""

    def __init__(self, inner: Backend, endpoint: Endpoint, purse: SpendLimiter) -> None:
        self.inner = inner
        self.endpoint = endpoint
        self.purse = purse

    async def answer(self, calls: Sequence[Call], wire: CallObserver) -> Sequence[Reply]:
        """The replies, or refusals by `budget:spend`: of several calls, the first are made that fit."""
        if self.purse.cap is None:
            replies = [believed(reply) for reply in await self.inner.answer(calls, wire)]
            self.purse.spend(math.fsum(reply.cost or 0.0 for reply in replies))
            return replies
        await self.endpoint.ready()
        sent, most, hold = len(calls), 0.0, None
        while sent and hold is None:
            price = self.endpoint.need(calls[:sent]).usd
            if price is None:
                name = self.endpoint.name
                why = f"the price of {name} is not known, so spend= cannot be kept: give the model its price="
                return [Reply(error=why) for _ in calls]
            most = price
            hold = await self.purse.reserve(most, wire)
            sent -= hold is None
        left = (self.purse.cap or 0.0) - self.purse.total
        if hold is None:
            wire.note("call.refused", most=most, left=left)
            return [Reply(error=REFUSED) for _ in calls]
        if rest := calls[sent:]:
            draws = [call.sample_index for call in rest]
            wire.note("call.refused", most=self.endpoint.need(rest).usd, left=left - most, draws=draws)
            calls = calls[:sent]
        spent: float | None = 0.0

        def hear(name: str) -> None:
            nonlocal spent
            if name == "call.sent":
                spent = None
            elif name == "call.retried":
                spent = 0.0

        try:
            replies = [believed(reply) for reply in await self.inner.answer(calls, Listening(wire, hear))]
            share = most / len(calls)
            unknown = [r.cost is None and (r.error is None or r.reported_usage != "") for r in replies]
            spent = math.fsum(share if no else r.cost or 0.0 for no, r in zip(unknown, replies, strict=True))
            return [*replies, *(Reply(error=REFUSED) for _ in rest)]
        finally:
            self.purse.settle(hold, spent)


class Costed:
    """The layer around a function: what its replies say that they cost is spent. Nothing is known of a cost
    before that, so what its dearest reply cost must be left for the next call; nothing is reserved."""

    def __init__(self, inner: Function, purse: SpendLimiter) -> None:
        self.inner = inner
        self.purse = purse
        self.dearest = 0.0

    async def answer(self, calls: Sequence[Call], wire: CallObserver) -> Sequence[Reply]:
        """The reply to each of `calls`."""
        return [await self.reply(call, wire) for call in calls]

    async def reply(self, call: Call, wire: CallObserver) -> Reply:
        """The reply to `call`, or a refusal by `budget:spend`."""
        cap = self.purse.cap
        if cap is not None and self.dearest and self.purse.total + self.dearest > cap:
            wire.note("call.refused", most=self.dearest, left=cap - self.purse.total)
            return Reply(error=REFUSED)
        reply = await self.inner.reply(call, wire)
        if reply.cost:
            self.purse.spend(reply.cost)
            self.dearest = max(self.dearest, reply.cost)
        return reply
