"""The weights that a server offers under the name of a model, as the server reports them.

Two servers may offer different weights under one name. Cache keys do not depend on the weights, so that old
entries stay valid and a replay needs no server. Instead, the report is stored with each cached reply, and the
reply is used only if that report agrees with the one of the present server.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from weakref import WeakKeyDictionary

from tot_lab.models.stack import Endpoint, Failure

Weights = dict[str, str]
"""A server's report about its weights; see `chat/about.py`. {} means unknown, and agrees with any report."""

PATIENCE = 2.0
"""Seconds to wait for the report of a server. If none arrives, the last report stays in use."""

INTERVAL = 30.0
"""Seconds after which a report is requested again, since the server may have been restarted."""


def disagreements(here: Weights, stored: Weights) -> list[str]:
    """Describe each fact for which both reports have different values. [] means that they agree."""
    return [
        f"{name} {here[name]!r} instead of {stored[name]!r}"
        for name in here
        if name in stored and here[name] != stored[name]
    ]


class ServedWeights:
    """Requests and stores the report of an endpoint's server about its weights.

    Args:
        endpoint: The endpoint. `None` makes every report {}, without a request.
    """

    def __init__(self, endpoint: Endpoint | None) -> None:
        self._endpoint = endpoint
        self._known: Weights = {}
        self._due = 0.0
        self._asking: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[None]] = WeakKeyDictionary()

    async def now(self) -> Weights:
        """Return the report, at most `INTERVAL` old, or the last one if the server does not answer."""
        if self._endpoint is None or time.monotonic() < self._due:
            return self._known
        loop = asyncio.get_running_loop()
        asking = self._asking.get(loop)
        if asking is None or asking.done():
            asking = self._asking[loop] = loop.create_task(self._ask(self._endpoint))
        await asyncio.shield(asking)  # all waiting calls continue together, so that they can be merged
        return self._known

    async def _ask(self, endpoint: Endpoint) -> None:
        with suppress(Failure, TimeoutError):
            async with asyncio.timeout(PATIENCE):
                self._known = await endpoint.served_weights()
        self._due = time.monotonic() + INTERVAL


UNASKED = ServedWeights(None)
