"""The rule that finds how many concurrent requests an endpoint should get.

The rule is a state machine without clock and I/O: `AdaptiveLimiter` (limits.py) reports requests to it and
obeys `value`. Requests count only if they were sent while the limit was reached, so a strategy with few
calls says nothing about the server.
"""

from __future__ import annotations

START = 16
LARGEST = 512
"""An operating system often allows a process 1,024 open connections and files."""

SAMPLES = 16
"""Replies that are measured before a decision, or as many as the limit if that is more."""

TRIAL_SECONDS, HOLD_SECONDS = 0.2, 1.0
"""Shortest measurement of a new limit and of one that holds. Pauses of the own process are as long."""

GAIN = 1.1
"""Factor by which the throughput must rise when the limit is doubled, less for a smaller step."""

KEPT = 0.95
"""Share of the throughput that half the limit must keep, so that the smaller limit is preferred."""

CHANGED = 1.5
"""Factor by which the latency changes before the limit is questioned early."""

HOLD, LONGEST_HOLD = 2, 64
"""Measurements between two probes: at first, and after several probes in vain."""


class AdaptiveLimit:
    """Finds the concurrency with the best throughput, and the smallest of several good ones.

    A measurement waits for one round trip after a change, and then averages the latency of as many requests
    as the limit. The throughput is the limit divided by the latency (Little's law), counted in output tokens,
    so that phases of long and of short replies compare.

    - *Growth.* The limit doubles as long as each doubling raises the throughput by a tenth. The last step,
      which did not, is taken back. If the first step did not, the limit is halved as long as that loses
      nothing.
    - *Back-off.* A refusal takes a step up back, and otherwise halves the limit, at most once per round trip:
      none counts until the requests above the new limit have ended. One 429, 503 or 529 is a refusal. Broken
      connections and time-outs are one only if a quarter of the requests fail, and at least four.
    - *Below a refused limit* growth is a binary search, and stops at an eighth below.
    - *Probes.* The limit then holds, and tries a step up and a step down in turn, rarer after each probe in
      vain; at once if the latency rose or fell by half in two measurements in a row.

    References:
        Chiu and Jain 1989, Analysis of the increase and decrease algorithms for congestion avoidance (AIMD).
        RFC 5681 (TCP: slow start, half of what is in flight after a loss). Xu, Harfoush and Rhee 2004
        (BIC-TCP: binary search below the last loss). Netflix concurrency-limits, `AIMDLimit`, `VegasLimit`
        and `Gradient2Limit`: requests count only if the limit is used. They compare latencies with an
        estimate of the latency without load. Replies of any length have none, so this rule compares
        throughputs.
    """

    def __init__(self) -> None:
        self.value = START
        self.reason = ""
        """Why the limit last changed."""
        self.ceiling: int | None = None
        self.before = (0, 0.0)  # limit and throughput before the step that is tried
        self.trial = 0  # 1 while a larger limit is tried, -1 for a smaller one
        self.calm = 0.0  # throughput when the limit began to hold, 0 before
        self.held, self.hold = 0, 1
        self.falling = False  # no measurement was completed since the last decrease
        self.next_probe = 1
        self.decreased = self.changed = -1.0  # times of the last decrease and change
        self.settled: float | None = None  # time of the first reply to a request sent since the last change
        self.began = 0.0  # time when the measurement began
        self.measured, self.seconds, self.tokens, self.broken = 0, 0.0, 0, 0
        self.strange = 0  # measurements in a row with another latency than before

    def replied(self, sent: float, now: float, tokens: int) -> bool:
        """Count a reply to a request that was sent when the limit was reached. Returns whether `value`
        changed.
        """
        if sent < self.changed:
            return False
        if self.settled is None:
            self.settled = self.began = now
        if sent < self.settled:
            return False
        self.measured += 1
        self.seconds += now - sent
        self.tokens += tokens
        holds = self.trial == 0 and self.calm > 0
        least = HOLD_SECONDS if holds else TRIAL_SECONDS
        if self.measured < max(SAMPLES, self.value) or now - self.began < least:
            return False
        throughput = self.value * self.tokens / max(self.seconds, 1e-9)
        self.began = now
        self.measured, self.seconds, self.tokens, self.broken = 0, 0.0, 0, 0
        self.falling = False
        value = self.value
        self._decide(throughput, now)
        return self.value != value

    def failed(self, sent: float, now: float, under_way: int, reason: str, *, refused: bool) -> bool:
        """Count a failed request. Returns whether `value` changed.

        Args:
            sent: When the request was sent.
            now: The time.
            under_way: Requests under way or waiting to be repeated. There are more than `value` for some time
                after a decrease.
            reason: What happened.
            refused: Whether the server said that it is overloaded.
        """
        if sent < self.decreased or under_way > self.value:
            return False
        self.broken += 1
        if not refused and self.broken < max(4, self.value / 4):
            return False
        used = under_way
        if not self.falling:
            self.ceiling = max(used, 2)
        if self.trial == 1 and self.hold >= HOLD:  # a probe above a good limit
            smaller, throughput = self.before
            self.hold = min(2 * self.hold, LONGEST_HOLD)
            self._rest(throughput)
        else:
            smaller = self.before[0] if self.trial == 1 else max(used // 2, 1)
            self.hold = 1
            self._rest(0.0)
        self.falling = True
        changed = smaller != self.value
        self._set(smaller, now, reason)
        self.decreased = now
        return changed

    def _decide(self, throughput: float, now: float) -> None:
        """Take the next step after a measurement."""
        if self.trial == 0:
            self.held += 1
            ratio = throughput / self.calm if self.calm else 1.0
            self.strange = 0 if 1 / CHANGED < ratio < CHANGED else self.strange + 1
            if self.strange == 2:
                self.strange = 0
                self.hold = 1
                self._try(1 if ratio > 1 else -1, throughput, now, "latency")
            elif self.held >= self.hold:
                direction = 1
                if self.calm:
                    direction, self.next_probe = self.next_probe, -self.next_probe
                self._try(direction, throughput, now, "probe")
            return
        value, throughput_before = self.before
        if self.trial == 1:
            good = throughput >= throughput_before * GAIN ** ((self.value - value) / value)
            if good and self.ceiling is not None and self.value >= self.ceiling:
                self.ceiling = None
        else:
            good = throughput >= throughput_before * KEPT
        if good:
            self.hold, self.calm = 1, throughput
            self._try(self.trial, throughput, now, "probe")
        elif self.trial == 1 and not self.calm:  # the first step
            self._set(value, now, "throughput")
            self._try(-1, throughput_before, now, "probe")
        else:
            self.hold = min(2 * self.hold, LONGEST_HOLD) if self.hold >= HOLD else HOLD
            self._rest(throughput_before)
            self._set(value, now, "throughput")

    def _try(self, direction: int, throughput: float, now: float, reason: str) -> None:
        """Try a larger or smaller limit, or hold if no other is possible."""
        value = self.value
        if direction < 0:
            new = value // 2
        elif self.ceiling is None:
            new = min(2 * value, LARGEST)
        else:
            step = max(value // 8, 1)
            new = min(2 * value, (value + self.ceiling) // 2)
            if new - value < step and self.hold >= HOLD:
                new = value + step
            elif new - value < step:
                new = value
        if new in (0, value):
            self.hold = max(self.hold, HOLD)
            self._rest(throughput)
            return
        self.before, self.trial = (value, throughput), direction
        self._set(new, now, reason)

    def _rest(self, throughput: float) -> None:
        """Hold the limit."""
        self.trial, self.held, self.calm, self.strange = 0, 0, throughput, 0

    def _set(self, value: int, now: float, reason: str) -> None:
        """Change the limit and begin a new measurement."""
        self.value, self.reason = value, reason
        self.changed, self.settled = now, None
        self.measured, self.seconds, self.tokens, self.broken = 0, 0.0, 0, 0
