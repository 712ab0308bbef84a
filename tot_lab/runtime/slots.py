"""Slots: limits on the calls in flight of all runs of a process together, over threads and event loops."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from tot_lab.core.protocol import Slots
from tot_lab.models.stack import queue_position

_Waiting: TypeAlias = tuple[tuple[int, int], asyncio.AbstractEventLoop, asyncio.Future[None]]


class SlotPool:
    """Admits calls in the order of `queue_position`, at most `number` at once."""

    def __init__(self, number: int) -> None:
        self._free = number
        self._waiting: list[_Waiting] = []  # a heap
        self._lock = threading.Lock()

    async def enter(self, on_wait: Callable[[], None]) -> None:
        """Wait for a slot, which the caller releases with `leave`. Calls `on_wait` if no slot is free."""
        with self._lock:
            if self._free:
                self._free -= 1
                return
            loop = asyncio.get_running_loop()
            turn = queue_position(), loop, loop.create_future()
            heappush(self._waiting, turn)
        try:
            on_wait()
            await turn[2]
        except BaseException:
            with self._lock:
                has_slot = turn not in self._waiting
                if not has_slot:
                    self._waiting.remove(turn)
                    heapify(self._waiting)
            if has_slot:
                self.leave()
            raise

    def leave(self) -> None:
        """Release a slot, and pass it to the next call that waits, in any event loop."""
        with self._lock:
            while self._waiting:
                _, loop, turn = heappop(self._waiting)
                try:
                    loop.call_soon_threadsafe(_admit, turn)
                    return
                except RuntimeError:  # its event loop is closed
                    continue
            self._free += 1


def _admit(turn: asyncio.Future[None]) -> None:
    if not turn.done():  # otherwise it was cancelled, and `enter` passes the slot on
        turn.set_result(None)


_POOLS: dict[Slots, SlotPool] = {}


def pool_of(slots: Slots) -> SlotPool:
    """Return the pool of this process for `slots`."""
    return _POOLS.setdefault(slots, SlotPool(slots.number))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_POOLS.clear)  # a forked process has no calls in flight
