"""The rule that finds how many concurrent requests an endpoint should get.

It uses no clock and no I/O: `AdaptiveLimiter` (limits.py) reports requests to `AdaptiveLimit` and obeys
`value`. Requests count only if they were sent while the limit was reached, because a strategy with few calls
shows nothing about the server. `_Window` measures the throughput of one limit, and the generator `_limits`
decides which limit is measured next.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import NamedTuple

START = 16
LARGEST = 512
"""The largest limit. An operating system often allows a process 1,024 open connections and files."""

SAMPLES = 16
"""Replies that are measured before a decision, or as many as the limit if that is more."""

TRIAL_SECONDS, HOLD_SECONDS = 0.2, 1.0
"""Shortest measurement of a new limit and of the current one: this process may pause nearly as long."""

GAIN = 1.1
"""Factor by which the throughput must rise when the limit is doubled, less for a smaller step."""

KEPT = 0.95
"""Share of the throughput that must remain at half the limit for the smaller limit to be preferred."""

CHANGED = 1.5
"""Factor by which the latency must change to start a probe early."""

COMPARED, REMEMBERED = 8, 128
"""Requests at a limit before its failures are compared, and before older requests count half."""

APART = 1.5
"""Smallest factor between two limits whose shares of failures are compared."""

DOUBT = 2.0
"""Difference of log-likelihoods that chance alone exceeds once in 20 times."""

HOLD, LONGEST_HOLD = 2, 64
"""Measurements between two probes: at first, and at most, after many unsuccessful probes."""


class _Window:
    """Measures the throughput at one limit.

    A measurement waits for one round trip after a change, and then averages the latency of as many requests
    as the limit. The throughput is the limit divided by the latency (Little's law), counted in output tokens,
    so that phases of long and of short replies can be compared.
    """

    def __init__(self, limit: int, changed: float) -> None:
        self.limit = limit
        self.changed = changed
        self.settled: float | None = None
        """Time of the first reply to a request that was sent since the limit changed."""
        self.start(changed)

    def start(self, now: float) -> None:
        """Begin a measurement."""
        self.began = now
        self.replies, self.seconds, self.tokens, self.broken = 0, 0.0, 0, 0

    def add(self, sent: float, now: float, tokens: int, shortest: float) -> float | None:
        """Count a reply. Returns the throughput if this completes a measurement of at least `shortest`
        seconds.
        """
        if sent < self.changed:
            return None
        if self.settled is None:
            self.settled = self.began = now
        if sent < self.settled:
            return None
        self.replies += 1
        self.seconds += now - sent
        self.tokens += tokens
        if self.replies < max(SAMPLES, self.limit) or now - self.began < shortest:
            return None
        throughput = self.limit * self.tokens / max(self.seconds, 1e-9)
        self.start(now)
        return throughput


class _Shares:
    """The share of the recent requests that failed, for each limit."""

    def __init__(self) -> None:
        self._counts: dict[int, tuple[float, float]] = {}  # requests and failures

    def add(self, limit: int, failed: bool) -> None:
        """Count a request that was sent at `limit`."""
        requests, failures = self._counts.get(limit, (0.0, 0.0))
        weight = 0.5 if requests >= REMEMBERED else 1.0
        self._counts[limit] = (requests * weight + 1, failures * weight + failed)

    def are_usual(self, limit: int) -> bool:
        """Whether failures at `limit` are as frequent as at another one, so that they do not depend on it.

        They must occur at the smaller limit too. If less than half of the requests fail, the shares must not
        differ significantly. If more fail, an overloaded server is another explanation: it answers as many
        requests per second at both limits and refuses the others. An equal share must then be likelier.
        """
        known = [at for at, (n, _) in self._counts.items() if n >= COMPARED]
        smaller = [at for at in known if at <= limit / APART]
        larger = [at for at in known if at >= limit * APART]
        if not (smaller or larger):
            return False
        low, high = (max(smaller), limit) if smaller else (limit, min(larger))
        below, above = self._counts[low], self._counts[high]
        if not below[1]:
            return False
        shares = below[1] / below[0], above[1] / above[0]
        pooled = (below[1] + above[1]) / (below[0] + above[0])
        equal = _log_likelihood(below, pooled) + _log_likelihood(above, pooled)
        if shares[1] < 0.5:
            different = _log_likelihood(below, shares[0]) + _log_likelihood(above, shares[1])
            return shares[0] >= shares[1] or equal > different - DOUBT
        overloaded = _log_likelihood(below, 1 - (1 - shares[1]) * high / low)
        return equal > overloaded + _log_likelihood(above, shares[1]) + DOUBT


def _log_likelihood(counts: tuple[float, float], share: float) -> float:
    requests, failures = counts
    share = min(max(share, 0.005), 0.995)
    return failures * math.log(share) + (requests - failures) * math.log(1 - share)


class _Refused(Exception):
    """The server refused requests. `limit` is the next smaller limit."""

    def __init__(self, limit: int, reason: str) -> None:
        self.limit = limit
        self.reason = reason


class _Step(NamedTuple):
    """A limit to measure, why it was chosen, and the shortest measurement."""

    limit: int
    reason: str
    seconds: float


_Search = Generator[_Step, float, tuple[int, float]]
"""Measures limits, and returns the best one with its throughput."""


class AdaptiveLimit:
    """Finds the concurrency with the best throughput, and the smallest of several good ones.

    - *Growth.* The limit doubles as long as each doubling raises the throughput by a tenth. The last step,
      which does not, is undone. If the first step does not, the limit is halved as long as that loses
      almost nothing.
    - *Back-off.* A refusal undoes a step up, and otherwise halves the limit, at most once per round trip:
      no other counts until the requests above the new limit have ended. One 429, 503 or 529 is a refusal.
      Broken connections and time-outs count as one only if a quarter of the requests fail, and at least four.
      Failures that are as frequent at another limit do not count.
    - *Below a refused limit* growth is a binary search, and stops an eighth below it.
    - *Probes.* The limit is then held. A step up and a step down are tried in turn, less often after each
      unsuccessful probe, and at once if the latency rose or fell by half in two measurements in a row.

    References:
        Chiu and Jain 1989, Analysis of the increase and decrease algorithms for congestion avoidance (AIMD).
        RFC 5681 (TCP: slow start, half of what is in flight after a loss). Xu, Harfoush and Rhee 2004
        (BIC-TCP: binary search below the last loss). Netflix concurrency-limits, `AIMDLimit`, `VegasLimit`
        and `Gradient2Limit`: requests count only if the limit is used. They compare latencies with an
        estimate of the latency without load. Replies of varying length allow no such estimate, so this
        rule compares throughputs.
    """

    def __init__(self) -> None:
        self.reason = ""
        """Why the limit last changed."""
        self._ceiling: int | None = None
        """The limit that was refused, unless a larger one was good since."""
        self._refused = -1.0  # time of the last refusal
        self._falling = False  # no measurement was completed since then
        self._shares = _Shares()
        self._rule = self._limits()
        self._step = next(self._rule)
        self._window = _Window(self.value, -1.0)

    @property
    def value(self) -> int:
        """The limit."""
        return self._step.limit

    @property
    def is_refused(self) -> bool:
        """Whether the server refused a larger limit, and none so large was good since."""
        return self._ceiling is not None

    def replied(self, sent: float, now: float, limit: int, tokens: int, *, is_full: bool) -> bool:
        """Count a reply. Returns whether `value` changed.

        Args:
            sent: When the request was sent.
            now: The time.
            limit: The limit then.
            tokens: Tokens of the reply.
            is_full: Whether the limit was reached then.
        """
        self._shares.add(limit, False)
        if not is_full:
            return False
        throughput = self._window.add(sent, now, tokens, self._step.seconds)
        if throughput is None:
            return False
        self._falling = False
        before, self._step = self.value, self._rule.send(throughput)
        if self.value == before:
            return False
        self._begin(now)
        return True

    def failed(
        self, sent: float, now: float, limit: int, under_way: int, reason: str, *, refused: bool
    ) -> bool:
        """Count a failed request. Returns whether `value` changed.

        Args:
            sent: When the request was sent.
            now: The time.
            limit: The limit when it was sent.
            under_way: Requests under way or waiting to be repeated. There are more than `value` for some time
                after a decrease.
            reason: A word for the failure, such as its status.
            refused: Whether the server said that it is overloaded.
        """
        self._shares.add(limit, True)
        if sent < self._refused or under_way > self.value:
            return False
        self._window.broken += 1
        if not refused and self._window.broken < max(4, self.value / 4):
            return False
        if self._shares.are_usual(limit):
            self._ceiling = None
            return False
        if not self._falling:
            self._ceiling = max(under_way, 2)
        self._falling, self._refused = True, now
        before = self.value
        self._step = self._rule.throw(_Refused(max(under_way // 2, 1), reason))
        self._begin(now)
        return self.value != before

    def _begin(self, now: float) -> None:
        self.reason = self._step.reason
        self._window = _Window(self.value, now)

    # The rule receives the throughput of each limit that it yields, or `_Refused`.

    def _limits(self) -> Generator[_Step, float, None]:
        """Look for the best limit, and start again after a refusal."""
        limit, reason = START, ""
        while True:
            try:
                throughput = yield _Step(limit, reason, TRIAL_SECONDS)
                best = yield from self._climb(limit, throughput, 1)
                if best[0] == limit:
                    best = yield from self._climb(limit, throughput, -1)
                yield from self._hold(*best)
            except _Refused as refusal:
                limit, reason = refusal.limit, refusal.reason

    def _climb(
        self, limit: int, throughput: float, direction: int, reason: str = "probe", *, probes: bool = False
    ) -> _Search:
        """Double the limit (`direction` 1) or halve it (-1) as long as that is good. If a larger limit is
        refused, the raised `_Refused` names the last good one.
        """
        while (following := self._next(limit, direction, probes)) is not None:
            try:
                measured = yield _Step(following, reason, TRIAL_SECONDS)
            except _Refused as refusal:
                if direction > 0:
                    refusal.limit = limit
                raise
            least = GAIN ** ((following - limit) / limit) if direction > 0 else KEPT
            if measured < throughput * least:
                break
            if direction > 0 and self._ceiling is not None and following >= self._ceiling:
                self._ceiling = None
            limit, throughput, probes = following, measured, False
        return limit, throughput

    def _hold(self, limit: int, throughput: float) -> Generator[_Step, float, None]:
        """Hold a limit, and probe the next larger and the next smaller one in turn."""
        hold, direction, reason = HOLD, 1, "throughput"
        while True:
            before, changed = throughput, 0  # measurements in a row with another latency
            for _ in range(hold):
                throughput = yield _Step(limit, reason, HOLD_SECONDS)
                ratio = throughput / before if before else 1.0
                changed = 0 if 1 / CHANGED < ratio < CHANGED else changed + 1
                if changed == 2:
                    break
            held, reason = limit, "throughput"
            if changed == 2:
                limit, throughput = yield from self._climb(
                    held, throughput, 1 if ratio > 1 else -1, "latency"
                )
                hold = HOLD
                continue
            try:
                limit, throughput = yield from self._climb(held, throughput, direction, probes=True)
            except _Refused as refusal:
                if refusal.limit != held:
                    raise
                reason = refusal.reason
            direction = -direction
            hold = min(2 * hold, LONGEST_HOLD) if limit == held else HOLD

    def _next(self, limit: int, direction: int, probes: bool) -> int | None:
        """Return the limit to try after `limit`, or `None`. Below a refused limit it is halfway to that one.
        If this is too small a step, only a probe goes on, by an eighth.
        """
        if direction < 0:
            return limit // 2 or None
        following = 2 * limit
        if self._ceiling is not None:
            following = min(following, (limit + self._ceiling) // 2)
            shortest = max(limit // 8, 1)
            if following - limit < shortest:
                following = limit + shortest if probes else limit
        following = min(following, LARGEST)
        return following if following > limit else None
