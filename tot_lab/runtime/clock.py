"""The clock of a run: one heap of deadlines, for calls, groups of calls and budgets.

The time of a call is counted from when it is made, and starts again with each request that is sent for it:
after a wait, and after a failure. Time in which a call waits for a budget, a limit of the endpoint or a slot
counts neither for the call nor for its group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import Protocol

from tot_lab.core.tools import TOOL
from tot_lab.runtime.pending import PendingCall
from tot_lab.runtime.stepper import Branch

PULSE = 0.2
"""Maximum seconds between two ticks of the clock, which wake a waiting event loop.

ipykernel cancels an interrupted cell in a signal handler, which a sleeping loop does not notice (observed
with 7.4).
"""


class Timed(Protocol):
    """A call or a scope with a deadline: `ends`, in the time of the event loop, or `None` while its time is
    not counted.
    """

    ends: float | None


class Clock:
    """Reports calls and scopes that have reached their deadline, from `run` to `close`.

    Args:
        timeout: Seconds that a call may take if its strategy sets no time limit. `None` means no limit.
        expire: Called with the call or scope whose deadline was reached.
        tick: Called at least every `PULSE` seconds.
    """

    def __init__(
        self, timeout: float | None, expire: Callable[[Timed], None], tick: Callable[[], None]
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.now = self.loop.time
        self.timeout = timeout
        self._expire = expire
        self._tick = tick
        self._heap: list[tuple[float, int, Timed]] = []
        self._number = count()
        self._rings = -inf  # no timer is set before `run`
        self._timer: asyncio.TimerHandle | None = None

    def run(self) -> None:
        """Begin to watch the deadlines."""
        self._arm(self._next())

    def set(self, one: Timed, ends: float | None) -> None:
        """Set the deadline of `one`. `None` removes it."""
        one.ends = ends
        if ends is None:
            return
        heappush(self._heap, (ends, next(self._number), one))
        if ends < self._rings:
            self._arm(ends)

    def start(self, pending: PendingCall) -> bool:
        """Start to count the time of a call, when it is made and whenever a request for it is sent.

        Returns `False` if the time of its group is already over.
        """
        scope, now = pending.branch.scope, self.now()
        seconds, owner = scope.call_seconds, "call"
        if seconds is None and pending.call.purpose != TOOL:  # a tool has its own time limit
            seconds, owner = self.timeout, "lab"
        ends = None if seconds is None else now + seconds
        if scope.group is not None:
            group_ends = self._resume_group(pending.branch, now)
            if ends is None or group_ends < ends:
                seconds, owner, ends = scope.group.seconds, "group", group_ends
        if ends is None:
            pending.ends = None
            return True
        pending.limit, pending.ends = (seconds, owner), ends
        heappush(self._heap, (ends, next(self._number), pending))
        if ends < self._rings:
            self._arm(ends)
        return ends > now

    def hold(self, pending: PendingCall) -> None:
        """Stop counting the time of a call that has to wait."""
        pending.ends = None
        if pending.branch.held_since is None:
            pending.branch.held_since = self.now()

    def hold_own(self, pending: PendingCall) -> None:
        """Stop counting the time of a call that will be sent again. The time of its group still counts."""
        group = pending.branch.scope.group
        if group is None:
            pending.ends = None
        else:
            pending.limit = group.seconds, "group"
            self.set(pending, self._resume_group(pending.branch, self.now()))

    def close(self) -> None:
        """Remove all deadlines."""
        if self._timer is not None:
            self._timer.cancel()
        self._heap.clear()
        del self._expire, self._tick  # breaks the reference cycles through the driver

    def _resume_group(self, branch: Branch, now: float) -> float:
        """Continue to count the group's time for a branch. Returns the deadline of this branch."""
        group = branch.scope.group
        assert group is not None
        if group.began is None:
            group.began = now
        if branch.held_since is not None:
            branch.held += now - max(branch.held_since, group.began)
            branch.held_since = None
        return group.began + group.seconds + branch.held

    def _next(self) -> float:
        """Return when the timer must fire."""
        pulse = self.now() + PULSE
        return min(pulse, self._heap[0][0]) if self._heap else pulse

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings = when
        self._timer = self.loop.call_at(when, self._ring)

    def _ring(self) -> None:
        now = max(self.now(), self._rings)  # a timer may be early by the resolution of the loop's clock
        while self._heap and self._heap[0][0] <= now:
            ends, _, one = heappop(self._heap)
            if one.ends == ends:
                one.ends = None
                self._expire(one)
        # Most deadlines are of calls that were answered since. Drop them.
        self._heap = [entry for entry in self._heap if entry[2].ends == entry[0]]
        heapify(self._heap)
        self._tick()
        self._arm(self._next())
