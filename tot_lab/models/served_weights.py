"""Which weights stand behind the name of a model: what its server reports, stored with each cached reply.

Two servers may offer other weights under the same name. Cache keys do not tell them apart, so that old
entries and replays without a server keep their keys. Instead, a reply is used only if what its server
reported agrees with what the present one reports.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from weakref import WeakKeyDictionary

from tot_lab.models.stack import Endpoint, Failure

Weights = dict[str, str]
"""What a server reports about its weights; see `weights_in`. {} means unknown, which agrees with all."""

PATIENCE = 2.0
"""Seconds that a server may take to report."""

INTERVAL = 30.0
"""Seconds after which a server is asked again, since it may have been restarted."""


def disagreements(here: Weights, stored: Weights) -> list[str]:
    """Describe the facts that both contain and in which they differ."""
    return [
        f"{name} {here[name]!r} instead of {stored[name]!r}"
        for name in here
        if name in stored and here[name] != stored[name]
    ]


class ServedWeights:
    """The weights that the server of an endpoint reports.

    Args:
        endpoint: The endpoint. `None` means that no server is asked.
    """

    def __init__(self, endpoint: Endpoint | None) -> None:
        self._endpoint = endpoint
        self._known: Weights = {}
        self._due = 0.0
        self._asking: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[None]] = WeakKeyDictionary()

    async def now(self) -> Weights:
        """Return the weights that the server reports, or the last reported ones if it does not answer."""
        if self._endpoint is None or time.monotonic() < self._due:
            return self._known
        loop = asyncio.get_running_loop()
        asking = self._asking.get(loop)
        if asking is None or asking.done():
            asking = self._asking[loop] = loop.create_task(self._ask(self._endpoint))
        await asyncio.shield(asking)  # all waiting calls continue at once, so that they can be one request
        return self._known

    async def _ask(self, endpoint: Endpoint) -> None:
        with suppress(Failure, TimeoutError):
            async with asyncio.timeout(PATIENCE):
                self._known = await endpoint.served_weights()
        self._due = time.monotonic() + INTERVAL


UNASKED = ServedWeights(None)
