"""State shared by all sweeps on one dask cluster: a plugin of the scheduler.

The scheduler is the only process that every client and worker is connected to and that notices when one of
them is lost. It therefore keeps the limits of each endpoint across sweeps, clients and workers, and learns
what a call cost before its run continues. A sweep leaves nothing behind when it ends or its client is lost.
The requests of the last minute are remembered as long as they count towards a limit.
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
from tot_lab.core.extras import requires
from tot_lab.lab.sweeps.sweep import Row
from tot_lab.models.limits import MINUTE, Limits, RateLimiter
from tot_lab.models.stack import NullObserver

try:
    from distributed import SchedulerPlugin
except ImportError:
    raise ImportError(requires("client=", "dask", "dask")) from None

UNSETTLED = (
    "A dask worker died while it waited for replies. They may have been charged, and are not included in "
    "what was spent."
)


def digest_of(folder: Path) -> str:
    """Return a digest of the code in a folder."""
    code = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        code.update(f"{path.relative_to(folder).as_posix()}\n".encode() + path.read_bytes())
    return code.hexdigest()[:12]


PACKAGE = (
    __version__,
    digest_of(Path(__file__).parents[2]),
    f"{sys.version_info.major}.{sys.version_info.minor}",
)
"""Version and code digest of tot_lab and version of Python, as loaded by this process."""


def expect_same(who: str, package: tuple[str, str, str]) -> None:
    """Raise `RuntimeError` if the client, which has `package`, runs other code than this process."""
    if tuple(package) != PACKAGE:
        here, there = (f"tot_lab {p[0]} (code {p[1]}) on Python {p[2]}" for p in (PACKAGE, package))
        raise RuntimeError(
            f"{who} has {here}, and the client {there}. Install the same version on all machines, and "
            f"restart the scheduler and the workers."
        )


class Report(msgspec.Struct):
    """Results of a chunk.

    Attributes:
        journals: Run id, start offset and bytes of the new part of each journal.
        rows: Rows of finished runs as JSON.
        paid: For a chunk whose worker died, the beginning of the key and the cost in USD of each call that it
            paid.
        end: Why the chunk ended.
    """

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


class _Sweep:
    """A sweep that a client is making. `begun` holds the keys of the chunks that a worker has started."""

    def __init__(self, client: str) -> None:
        self.client = client
        self.begun: set[str] = set()
        self.reports: list[bytes] = []
        self.spent = 0.0
        self.news = asyncio.Event()


class _Chunk:
    """A chunk that a worker is making. `held` counts its calls in flight, `waiting` holds the waiting ones by
    ticket.
    """

    def __init__(self, sweep: str, worker: str) -> None:
        self.sweep = sweep
        self.worker = worker
        self.held: Counter[Limits] = Counter()
        self.waiting: dict[int, asyncio.Future[None]] = {}
        self.paid: list[tuple[bytes, float]] = []
        self.over = False


class Coordinator(SchedulerPlugin):
    """Keeps limits across sweeps, clients and workers, and forwards the reports of workers to their
    clients.
    """

    name = "tot_lab"
    idempotent = True

    async def start(self, scheduler: Any) -> None:
        """Register the operations for clients and workers."""
        self.sweeps: dict[str, _Sweep] = {}
        self.chunks: dict[str, _Chunk] = {}
        self.limiters: dict[Limits, RateLimiter] = {}
        self.entering = Counter[Limits]()  # a limiter does not know a call before the event loop runs it
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
        """Start a sweep. It is dropped when its client is lost."""
        expect_same("the dask scheduler", package)
        self.sweeps[sweep] = _Sweep(client)
        return True

    async def hear(self, sweep: str) -> tuple[float, list[bytes]] | None:
        """Wait for reports.

        Returns:
            The USD spent since the last reports and the new reports, or `None` if the sweep is over.
        """
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
        """End a sweep, which stops its workers. Returns the USD spent since the last reports."""
        found = self.sweeps.pop(sweep, None)
        if found is None:
            return 0.0
        found.news.set()
        self._tidy()
        return found.spent

    def remove_client(self, scheduler: Any, client: str) -> None:
        """Drop the sweeps of a lost client."""
        for name in [name for name, sweep in self.sweeps.items() if sweep.client == client]:
            self.sweeps.pop(name).news.set()
        self._tidy()

    # For workers.

    async def begin(self, sweep: str, chunk: str, worker: str) -> bool:
        """Whether `worker` should make the chunk.

        It should not if the sweep is over or another worker started the chunk, since only the client knows
        what that worker returned.
        """
        found = self.sweeps.get(sweep)
        if found is None or chunk in found.begun:
            return False
        found.begun.add(chunk)
        self.chunks[chunk] = _Chunk(sweep, worker)
        return True

    async def report(self, chunk: str, data: bytes | None) -> bool:
        """Forward a report to the client, if there is one. Returns whether the chunk is still wanted."""
        work = self.chunks.get(chunk)
        sweep = None if work is None else self.sweeps.get(work.sweep)
        if sweep is not None and data is not None:
            sweep.reports.append(data)
            sweep.news.set()
        return sweep is not None

    async def end(self, chunk: str) -> None:
        """Note that a worker stopped working on a chunk. Calls that have not ended keep their slots."""
        work = self.chunks.get(chunk)
        if work is not None:
            work.over = True
            self._forget(chunk, work)

    async def enter(self, chunk: str, ticket: int, limits: list[Any], tokens: int) -> bool:
        """Wait until a call may be sent; `leave` must follow. Returns `False` if the chunk is no longer
        wanted.
        """
        work, key = self.chunks.get(chunk), Limits(*limits)
        if work is None or work.sweep not in self.sweeps:
            return False
        limiter = self._limiter(key)
        self.entering[key] += 1
        waiting = work.waiting[ticket] = asyncio.ensure_future(limiter.enter(tokens, NullObserver()))
        try:
            await waiting
        except asyncio.CancelledError:  # withdrawn
            return False
        finally:
            del work.waiting[ticket]
            self.entering -= Counter([key])
            self._tidy()
        if self.chunks.get(chunk) is not work:  # its worker has just died
            self._free(limiter)
            return False
        work.held[key] += 1
        return True

    async def withdraw(self, chunk: str, ticket: int) -> None:
        """Cancel a waiting call."""
        work = self.chunks.get(chunk)
        if work is not None and ticket in work.waiting:
            work.waiting[ticket].cancel()

    async def count(self, limits: list[Any], tokens: int) -> None:
        """Count a repeated request."""
        self._limiter(Limits(*limits)).count(tokens)

    async def leave(
        self, chunk: str, limits: list[Any], seconds: float, paid: list[tuple[bytes, float]]
    ) -> None:
        """End a call. `paid` is what it cost."""
        work, key = self.chunks.get(chunk), Limits(*limits)
        if work is None:  # the worker was considered dead
            return
        self._limiter(key).leave()
        self.longest[key] = max(self.longest[key], seconds)
        work.held -= Counter([key])
        work.paid += paid
        if work.sweep in self.sweeps:
            self.sweeps[work.sweep].spent += sum(cost for _, cost in paid)
        self._forget(chunk, work)

    def remove_worker(self, scheduler: Any, worker: str, **_: Any) -> None:
        """Report the interrupted chunks of a lost worker to their clients.

        The server may continue with the calls in flight. They keep their slots for as long as the longest
        call took, or for a minute if none has ended yet.
        """
        loop = asyncio.get_running_loop()
        for key, work in [pair for pair in self.chunks.items() if pair[1].worker == worker]:
            del self.chunks[key]
            for waiting in work.waiting.values():
                waiting.cancel()
            for limits in work.held.elements():
                loop.call_later(self.longest[limits] or MINUTE, self._free, self._limiter(limits))
            sweep = self.sweeps.get(work.sweep)
            if sweep is not None and not work.over:
                warnings = [UNSETTLED] if work.held and any(cost for _, cost in work.paid) else []
                report = Report(key, paid=work.paid, warnings=warnings, end="interrupted")
                sweep.reports.append(encode_report(report))
                sweep.news.set()

    def _limiter(self, limits: Limits) -> RateLimiter:
        if limits not in self.limiters:
            self.limiters[limits] = RateLimiter(limits)
        return self.limiters[limits]

    def _free(self, limiter: RateLimiter) -> None:
        limiter.leave()
        self._tidy()

    def _forget(self, chunk: str, work: _Chunk) -> None:
        if work.over and not work.held:
            self.chunks.pop(chunk, None)
            self._tidy()

    def _tidy(self) -> None:
        """Drop the rate limiters that are unused and have no counted request in the last minute."""
        long_ago = asyncio.get_running_loop().time() - MINUTE
        for key, limiter in list(self.limiters.items()):
            counted = limiter.passed and limiter.passed[-1][0] > long_ago
            if not (limiter.under_way or limiter.waiting or counted or self.entering[key]):
                del self.limiters[key]
