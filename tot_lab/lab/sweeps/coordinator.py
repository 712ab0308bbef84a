"""What all sweeps on one dask cluster share: a plugin of the scheduler.

Rule: the scheduler is the one process that every client and every worker is connected to, and that hears
when one of them is gone. So the limits of each endpoint are kept here, whichever sweep, client or worker
asks it, and what a call cost is known here before its run goes on. Nothing of a sweep stays when it is over,
or when its client is gone; the requests of the last minute are remembered as long as they count.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, Literal

import msgspec

from tot_lab._version import __version__
from tot_lab.lab.sweeps.sweep import Row
from tot_lab.models.limits import MINUTE, Limits, RateLimiter

try:
    from distributed import SchedulerPlugin
except ImportError:
    raise ImportError("client= needs dask: pip install 'tot-lab[dask]'") from None

UNSETTLED = (
    "a dask worker died while it waited for replies; they may have been charged, and are not part of what "
    "was spent"
)


def digest_of(folder: Path) -> str:
    """What tells the code in a folder from other code."""
    code = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        code.update(f"{path.relative_to(folder).as_posix()}\n".encode() + path.read_bytes())
    return code.hexdigest()[:12]


PACKAGE = (
    __version__,
    digest_of(Path(__file__).parents[2]),
    f"{sys.version_info.major}.{sys.version_info.minor}",
)
"""Version and digest of the code of tot_lab, and the version of Python, as this process has loaded them."""


def expect_same(who: str, package: tuple[str, str, str]) -> None:
    """Raise RuntimeError if the client, which has `package`, has other code than this process."""
    if tuple(package) != PACKAGE:
        here, there = (f"tot_lab {p[0]} (code {p[1]}) on Python {p[2]}" for p in (PACKAGE, package))
        raise RuntimeError(
            f"{who} has {here}, and the client {there}. Install the same on all machines, and restart the "
            f"scheduler and the workers"
        )


class Report(msgspec.Struct):
    """What comes back of a chunk. journals: run id, and the bytes of its journal from a place on. rows: JSON
    of the rows of the runs that are over. paid: of a chunk whose worker is gone, the beginning of the key and
    the cost in USD of each call that it paid. end: why the chunk is over."""

    chunk: str
    journals: list[tuple[str, int, bytes]] = []
    rows: list[tuple[str, bytes]] = []
    warnings: list[str] = []
    paid: list[tuple[bytes, float]] = []
    end: Literal["", "done", "interrupted"] = ""


encode_report = msgspec.msgpack.Encoder().encode
decode_report = msgspec.msgpack.Decoder(Report).decode
encode_row = msgspec.json.Encoder().encode
decode_row = msgspec.json.Decoder(Row).decode


class _Silent:
    """A wire that nobody listens to."""

    paid: float | None = None
    watched = False

    def note(self, name: str, **data: Any) -> None:
        """Ignore it."""

    def partial(self, text: str) -> None:
        """Ignore it."""


class _Sweep:
    """A sweep that a client is making. begun: keys of the chunks that some worker has begun."""

    def __init__(self, client: str) -> None:
        self.client = client
        self.begun: set[str] = set()
        self.reports: list[bytes] = []
        self.spent = 0.0
        self.news = asyncio.Event()


class _Chunk:
    """A chunk that a worker is making. held: its calls under way. waiting: those that wait, by ticket."""

    def __init__(self, sweep: str, worker: str) -> None:
        self.sweep = sweep
        self.worker = worker
        self.held: Counter[Limits] = Counter()
        self.waiting: dict[int, asyncio.Future[bool]] = {}
        self.paid: list[tuple[bytes, float]] = []
        self.over = False


class Coordinator(SchedulerPlugin):
    """Keeps limits across sweeps, clients and workers, and takes the reports of workers to their clients."""

    name = "tot_lab"
    idempotent = True

    async def start(self, scheduler: Any) -> None:
        """Offer the operations to clients and workers."""
        self.sweeps: dict[str, _Sweep] = {}
        self.chunks: dict[str, _Chunk] = {}
        self.gates: dict[Limits, RateLimiter] = {}
        self.entering = Counter[Limits]()  # a gate does not know of a call before the loop gets to it
        self.longest: dict[Limits, float] = defaultdict(float)
        operations = (
            self.open,
            self.hear,
            self.close_sweep,
            self.begin,
            self.report,
            self.end,
            self.enter,
            self.withdraw,
            self.count,
            self.leave,
        )
        scheduler.handlers.update({f"tot_lab_{each.__name__}": each for each in operations})

    # For clients.

    async def open(self, sweep: str, client: str, package: tuple[str, str, str]) -> bool:
        """Begin a sweep, which is dropped when its client is gone."""
        expect_same("the dask scheduler", package)
        self.sweeps[sweep] = _Sweep(client)
        return True

    async def hear(self, sweep: str) -> tuple[float, list[bytes]] | None:
        """Wait for reports: what was spent since the last ones, and these. `None` when the sweep is over."""
        found = self.sweeps.get(sweep)
        if found is not None:
            await found.news.wait()
            found.news.clear()
        if found is None or sweep not in self.sweeps:
            return None
        spent, found.spent = found.spent, 0.0
        reports, found.reports = found.reports, []
        return spent, reports

    async def close_sweep(self, sweep: str) -> float:
        """End a sweep: its workers stop. Returns what was spent since the last reports."""
        found = self.sweeps.pop(sweep, None)
        if found is None:
            return 0.0
        found.news.set()
        self._tidy()
        return found.spent

    def remove_client(self, scheduler: Any, client: str) -> None:
        """Drop the sweeps of a client that is gone."""
        for name in [name for name, sweep in self.sweeps.items() if sweep.client == client]:
            self.sweeps.pop(name).news.set()
        self._tidy()

    # For workers.

    async def begin(self, sweep: str, chunk: str, worker: str) -> bool:
        """Whether `worker` shall make the chunk: not if its sweep is over, or another worker began it, from
        which only the client knows what came back."""
        found = self.sweeps.get(sweep)
        if found is None or chunk in found.begun:
            return False
        found.begun.add(chunk)
        self.chunks[chunk] = _Chunk(sweep, worker)
        return True

    async def report(self, chunk: str, data: bytes | None) -> bool:
        """Take a report to the client, if there is one; whether the chunk is still wanted."""
        work = self.chunks.get(chunk)
        sweep = None if work is None else self.sweeps.get(work.sweep)
        if sweep is not None and data is not None:
            sweep.reports.append(data)
            sweep.news.set()
        return sweep is not None

    async def end(self, chunk: str) -> None:
        """A worker has ended its work on a chunk. Calls whose end it has not told yet keep their places."""
        work = self.chunks.get(chunk)
        if work is not None:
            work.over = True
            self._forget(chunk, work)

    async def enter(self, chunk: str, ticket: int, limits: list[Any], tokens: int) -> bool:
        """Wait until a call may be sent; `leave` must follow. False for a chunk that nobody wants."""
        work, key = self.chunks.get(chunk), Limits(*limits)
        if work is None or work.sweep not in self.sweeps:
            return False
        gate = self._gate(key)
        self.entering[key] += 1
        waiting = work.waiting[ticket] = asyncio.ensure_future(gate.enter(tokens, _Silent()))
        try:
            await waiting
        except asyncio.CancelledError:  # withdrawn
            return False
        finally:
            del work.waiting[ticket]
            self.entering -= Counter([key])
            self._tidy()
        if self.chunks.get(chunk) is not work:  # its worker has just died
            self._free(gate)
            return False
        work.held[key] += 1
        return True

    async def withdraw(self, chunk: str, ticket: int) -> None:
        """A call that waits was given up."""
        work = self.chunks.get(chunk)
        if work is not None and ticket in work.waiting:
            work.waiting[ticket].cancel()

    async def count(self, limits: list[Any], tokens: int) -> None:
        """A request goes out once more."""
        self._gate(Limits(*limits)).count(tokens)

    async def leave(
        self, chunk: str, limits: list[Any], seconds: float, paid: list[tuple[bytes, float]]
    ) -> None:
        """A call is over, and cost what `paid` says."""
        work, key = self.chunks.get(chunk), Limits(*limits)
        if work is None:  # its worker was taken for dead
            return
        self._gate(key).leave()
        self.longest[key] = max(self.longest[key], seconds)
        work.held -= Counter([key])
        work.paid += paid
        if work.sweep in self.sweeps:
            self.sweeps[work.sweep].spent += sum(cost for _, cost in paid)
        self._forget(chunk, work)

    def remove_worker(self, scheduler: Any, worker: str, **_: Any) -> None:
        """Tell the clients whose chunks are interrupted. The server may go on with calls that were under way:
        they keep their places for as long as the longest one took, a minute if none has ended yet."""
        loop = asyncio.get_running_loop()
        for key, work in [pair for pair in self.chunks.items() if pair[1].worker == worker]:
            del self.chunks[key]
            for waiting in work.waiting.values():
                waiting.cancel()
            for limits in work.held.elements():
                loop.call_later(self.longest[limits] or MINUTE, self._free, self._gate(limits))
            sweep = self.sweeps.get(work.sweep)
            if sweep is not None and not work.over:
                warnings = [UNSETTLED] if work.held and any(cost for _, cost in work.paid) else []
                report = Report(key, paid=work.paid, warnings=warnings, end="interrupted")
                sweep.reports.append(encode_report(report))
                sweep.news.set()

    def _gate(self, limits: Limits) -> RateLimiter:
        if limits not in self.gates:
            self.gates[limits] = RateLimiter(limits)
        return self.gates[limits]

    def _free(self, gate: RateLimiter) -> None:
        gate.leave()
        self._tidy()

    def _forget(self, chunk: str, work: _Chunk) -> None:
        if work.over and not work.held:
            self.chunks.pop(chunk, None)
            self._tidy()

    def _tidy(self) -> None:
        """Drop the gates that nobody uses, and that no request of the last minute counts for."""
        long_ago = asyncio.get_running_loop().time() - MINUTE
        for key, gate in list(self.gates.items()):
            counted = gate.passed and gate.passed[-1][0] > long_ago
            if not (gate.under_way or gate.waiting or counted or self.entering[key]):
                del self.gates[key]
