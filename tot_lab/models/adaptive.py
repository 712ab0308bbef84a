"""The rule that finds how many concurrent requests an endpoint should get.

It uses no clock and no I/O: `AdaptiveLimiter` (limits.py) reports the end of each request to `AdaptiveLimit`,
and keeps at most `AdaptiveLimit.value` requests in flight. Only requests that were sent while the limit was
reached are measured, because a strategy with few calls shows nothing about the server. `_Window` measures the
throughput at one limit, and the generator `_limits` decides which limit is measured next.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import NamedTuple

START = 16  # the first limit
LARGEST = 512
"""The largest limit. It leaves room below the 1,024 open connections and files that an operating system often
allows a process.
"""

SAMPLES = 16
"""The least number of replies in a measurement. A limit above this number needs as many replies as the limit.
"""

TRIAL_SECONDS, HOLD_SECONDS = 0.2, 1.0
"""The least duration of a measurement: of a limit on trial, and of the limit that is held. A shorter
measurement could consist mostly of a pause of this process, which would distort it.
"""

GAIN = 1.1
"""Factor by which the throughput must rise if the limit is doubled. A smaller step needs a smaller factor."""

KEPT = 0.95
"""A smaller limit is preferred if it keeps at least this fraction of the throughput."""

CHANGED = 1.5
"""Factor by which the throughput at a held limit must change, twice in a row, to start a probe early."""

COMPARED, REMEMBERED = 8, 128
"""The least number of requests at a limit to compare its failure rate with that of another limit, and the
number at which the counts of requests and failures are halved.
"""

APART = 1.5
"""The least ratio of two limits whose failure rates are compared."""

DOUBT = 2.0
"""Difference of log-likelihoods that chance alone exceeds with a probability of 5 %."""

HOLD, LONGEST_HOLD = 2, 64
"""Measurements between two probes: at first, and at most. Each unsuccessful probe doubles the number."""


class _Window:
    """Measures the throughput at one limit.

    A measurement skips the first round trip after the limit changed, and then averages the latency of at
    least as many requests as the limit. The throughput is the limit divided by the mean latency (Little's
    law), in output tokens per second, so that phases of long and of short replies can be compared.
    """

    def __init__(self, limit: int, changed: float) -> None:
        self.limit = limit
        self.changed = changed
        self.settled: float | None = None
        """Time of the first reply to a request sent after the limit changed, or `None` before that reply."""
        self.start(changed)

    def start(self, now: float) -> None:
        """Begin a measurement at the time `now`."""
        self.began = now
        self.replies, self.seconds, self.tokens, self.broken = 0, 0.0, 0, 0

    def add(self, sent: float, now: float, tokens: int, shortest: float) -> float | None:
        """Count a reply. If it completes a measurement, which takes at least `shortest` seconds, return the
        throughput in tokens per second, else `None`.
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
    """The failure rates of recent requests, by the limit at which they were sent."""

    def __init__(self) -> None:
        self._counts: dict[int, tuple[float, float]] = {}  # requests and failures

    def add(self, limit: int, failed: bool) -> None:
        """Count a request that was sent at `limit`, and whether it failed."""
        requests, failures = self._counts.get(limit, (0.0, 0.0))
        weight = 0.5 if requests >= REMEMBERED else 1.0
        self._counts[limit] = (requests * weight + 1, failures * weight + failed)

    def are_usual(self, limit: int) -> bool:
        """Whether failures are as frequent at `limit` as at another limit, so that the limit does not cause
        them. The other limit is the nearest smaller one or, without one, the nearest larger one. `False` if
        neither has enough requests.

        Failures must occur at the smaller of the two limits. If less than half of the requests at the larger
        one fail, the failure rates must not differ significantly. If more fail, the server may be overloaded:
        it then answers equally many requests per second at both limits and refuses the rest. Equal failure
        rates must be clearly likelier than the rates of such an overload.
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
    """Thrown into `_limits` when the server refused requests. `limit` is the smaller limit to use next."""

    def __init__(self, limit: int, reason: str) -> None:
        self.limit = limit
        self.reason = reason


class _Step(NamedTuple):
    """A limit to measure, why it was chosen, and the least duration of the measurement in seconds."""

    limit: int
    reason: str
    seconds: float


_Search = Generator[_Step, float, tuple[int, float]]
"""A generator that yields limits, receives their throughputs, and returns the best limit and its throughput.
"""


class AdaptiveLimit:
    """Finds the concurrency with the best throughput, or the smallest of several with nearly the same.

    - *Growth.* The limit doubles as long as each doubling raises the throughput by a tenth. A doubling that
      does not is undone. If even the first does not, the limit is halved as long as each halving loses at
      most 5 % of the throughput.
    - *Back-off.* A refusal while a larger limit is tried restores the limit before it. Any other refusal sets
      the limit to half of the requests in flight. Further refusals are ignored until the requests above the
      new limit have ended, so the limit falls at most once per round trip. One 429, 503 or 529 is a refusal.
      Broken connections and time-outs count as a refusal only once a quarter of the limit, and at least four
      requests, have failed in one measurement. Failures that are as frequent at another limit are ignored.
    - *Below a refused limit*, growth is a binary search, which stops before a step of less than an eighth.
    - *Probes.* The best limit is then held. A step up and a step down are tried in turn, less often after
      each unsuccessful probe, and at once if the throughput rose or fell by a factor of 1.5 in two
      measurements in a row.

    References:
        Chiu and Jain 1989, Analysis of the increase and decrease algorithms for congestion avoidance (AIMD).
        RFC 5681 (TCP: slow start, half of what is in flight after a loss). Xu, Harfoush and Rhee 2004
        (BIC-TCP: binary search below the last loss). Netflix concurrency-limits, `AIMDLimit`, `VegasLimit`
        and `Gradient2Limit`: a request counts only if the limit is in use. These limits compare the latency
        with an estimate of the latency without load. Replies of varying length allow no such estimate, so
        this rule compares throughputs.
    """

    def __init__(self) -> None:
        self.reason = ""
        """Why the limit last changed."""
        self._ceiling: int | None = None
        """The number of requests in flight when the server refused one. `None` if it has refused none, if a
        limit as large has worked since, or if failures turned out to be as frequent at another limit.
        """
        self._refused = -1.0  # time of the last refusal
        self._falling = False  # whether no measurement was completed since that refusal
        self._shares = _Shares()
        self._rule = self._limits()
        self._step = next(self._rule)
        self._window = _Window(self.value, -1.0)

    @property
    def value(self) -> int:
        """The number of concurrent requests to allow now."""
        return self._step.limit

    @property
    def is_refused(self) -> bool:
        """Whether the server refused a limit, and no limit as large has worked since."""
        return self._ceiling is not None

    def replied(self, sent: float, now: float, limit: int, tokens: int, *, is_full: bool) -> bool:
        """Count a reply. Returns whether `value` changed.

        Args:
            sent: The time at which the request was sent.
            now: The time of the reply, by the same clock, in seconds.
            limit: The limit when the request was sent, or the requests in flight then if they were more.
            tokens: Output tokens of the reply.
            is_full: Whether the limit was reached when the request was sent.
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
            sent: The time at which the request was sent.
            now: The time of the failure, by the same clock, in seconds.
            limit: The limit when the request was sent, or the requests in flight then if they were more.
            under_way: Requests in flight or waiting to be repeated. They are more than `value` for some time
                after a decrease.
            reason: The HTTP status, `connection` or `timeout`.
            refused: Whether the status says that the server is overloaded (429, 503 or 529).
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

    # Each generator receives the throughput at the limit that it yielded, or `_Refused` is thrown into it.

    def _limits(self) -> Generator[_Step, float, None]:
        """Search for the best limit, and hold it. After a refusal, start again at the limit in `_Refused`."""
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
        """Double the limit (`direction` 1) or halve it (-1) as long as the throughput allows it; see `GAIN`
        and `KEPT`. If the server refuses a larger limit, `_Refused` is raised with the last limit that it
        accepted. `probes` states whether the first step is a probe; see `_next`.
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
        """Hold the best limit, and probe a larger and a smaller one in turn. Never returns."""
        hold, direction, reason = HOLD, 1, "throughput"
        while True:
            before, changed = throughput, 0  # measurements in a row with a changed throughput
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
        """Return the limit to try after `limit`, or `None` to stop. Below a refused limit, this is at most
        halfway to it. If that is a step of less than an eighth, the search stops, unless the step is a probe
        (`probes`): a probe takes a step of an eighth instead.
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
