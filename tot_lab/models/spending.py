"""Real money, kept under a cap.

Rule: before a request is made, the most that it can cost is reserved; when its replies have come,
what they cost is spent and the rest given back. A request that was cut off may have been charged:
what it reserved counts as spent. Without a known price nothing can be kept, so nothing is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tot_lab.core.calls import Call, Reply, Wire
from tot_lab.models.stack import Backend, Endpoint

REFUSED = "budget:spend"


class Purse:
    """What may be spent, in USD; shared by all requests of a lab. cap: None = no limit."""

    def __init__(self, cap: float | None) -> None:
        self.cap = cap
        self.spent = 0.0
        self.reserved = 0.0
        self._waiting: list[asyncio.Future[None]] = []

    async def reserve(self, most: float) -> bool:
        """Set `most` aside, once requests under way leave room for it; False when they cannot."""
        if self.cap is None:
            return True
        while self.spent + most <= self.cap:
            if self.spent + self.reserved + most <= self.cap:
                self.reserved += most
                return True
            settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(settled)
            await settled
        return False

    def settle(self, most: float, spent: float) -> None:
        """Of `most` that was reserved, `spent` was."""
        self.spent += spent
        if self.cap is not None:
            self.reserved -= most
            waiting, self._waiting = self._waiting, []
            for settled in waiting:
                if not settled.done():
                    settled.set_result(None)


class Spending:
    """The layer of the stack: asks within what the purse holds."""

    def __init__(self, inner: Backend, endpoint: Endpoint, purse: Purse) -> None:
        self.inner = inner
        self.endpoint = endpoint
        self.purse = purse

    async def answer(self, calls: Sequence[Call], wire: Wire) -> Sequence[Reply]:
        """The replies, or refusals by `budget:spend`."""
        most: float | None = 0.0
        if self.purse.cap is not None:
            most = self.endpoint.need(calls).usd
            if most is None:
                name = self.endpoint.name
                why = f"the price of {name} is not known, so spend= cannot be kept: give the model its price="
                return [Reply(error=why) for _ in calls]
        if not await self.purse.reserve(most or 0.0):
            return [Reply(error=REFUSED) for _ in calls]
        spent = most = most or 0.0
        try:
            replies = await self.inner.answer(calls, wire)
            spent = sum(reply.cost or 0.0 for reply in replies)
            return replies
        finally:
            self.purse.settle(most, spent)
