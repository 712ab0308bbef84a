"""The worker's side of a distributed sweep: it makes the runs of a chunk and reports while it does.

A worker makes no decisions. It works on a part of the client's sweep in a temporary folder, and the
coordinator decides whether the chunk is still wanted and when a call may be sent.

The user's own settings and functions travel between the user's own machines, pickled by cloudpickle like
everything that dask sends. What comes back is plain data.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tot_lab.core import parts
from tot_lab.core.calls import Call, CallObserver, Reply
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Task
from tot_lab.core.thinking import Budget
from tot_lab.lab.sweeps.coordinator import PACKAGE, Report, encode_report, encode_row, expect_same
from tot_lab.lab.sweeps.sweep import Sweep, forget_warnings
from tot_lab.models.cache import Cache
from tot_lab.models.limits import Limits, RateLimiter, make_limiters
from tot_lab.record.journal import header_text, lines_text
from tot_lab.runtime.runner import Runner
from tot_lab.runtime.settings import RunnerSettings

REPORT_INTERVAL = 0.2
"""Seconds between two reports of a worker, and so the work that is lost at most when it dies."""

QUEUED_AFTER = 0.05
"""Seconds that a call waits for its turn before a `call.queued` note is recorded."""

MAX_REQUESTS = 16
"""Calls of a chunk that request a slot at the same time. Each takes a connection to the scheduler."""


class SharedCache(NamedTuple):
    """The lab's cache for workers: its folder, an identity that distinguishes it from other caches, and its
    Redis URL.
    """

    folder: Path
    identity: str
    redis: str | None


class Chunk(NamedTuple):
    """What a worker needs to make some runs of a sweep.

    Attributes:
        key: Key of the dask task.
        sweep: Name of the sweep at the coordinator.
        host: Host of the client.
        lab: Settings of the lab, without its cache.
        cache: The cache. `None` means no cache.
        journals: By run id, the journal so far.
    """

    key: str
    sweep: str
    host: str
    lab: RunnerSettings
    cache: SharedCache | None
    strategies: dict[str, Strategy]
    tasks: list[Task]
    repeats: int
    name: str
    budget: Budget | None
    journals: dict[str, bytes]
    at_once: int


class Parcel:
    """A pickled chunk. Its repr reveals nothing of the content, because dask shows and logs what it
    carries.
    """

    def __init__(self, chunk: Chunk) -> None:
        import cloudpickle  # noqa: PLC0415  dask's own

        self.version = PACKAGE
        self.runs = len(chunk.journals)
        try:
            self.data: bytes = cloudpickle.dumps(chunk)
        except Exception as error:
            raise TypeError(
                f"A model, tool, strategy or task of this sweep cannot be sent to the workers: {error}. "
                f"A class or function defined inside another function takes that function's variables along. "
                f"Define it at module level."
            ) from error

    def __repr__(self) -> str:
        return f"<{self.runs} runs>"

    def opened(self) -> Chunk:
        """Return the chunk."""
        import cloudpickle  # noqa: PLC0415

        expect_same("a dask worker", self.version)
        chunk: Chunk = cloudpickle.loads(self.data)
        for part in (chunk.lab.model, *chunk.lab.tools):
            if isinstance(part, parts.Part):
                parts.REGISTRY.setdefault(part.kind, type(part))  # a class that was defined in a notebook
        return chunk


def rpc(node: Any, operation: str, **given: Any) -> asyncio.Future[Any]:
    """Call an operation of the coordinator from any event loop, as a dask client or worker."""
    asking = getattr(node.scheduler, f"tot_lab_{operation}")(**given)
    return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asking, node.loop.asyncio_loop))


def this_host() -> str:
    """Return the name of this machine."""
    return socket.gethostname()


def work(parcel: Parcel) -> None:
    """Make the runs of a chunk, as a dask task."""
    from distributed import get_worker  # noqa: PLC0415

    chunk = parcel.opened()
    asyncio.run(_make(chunk, get_worker()))


async def _make(chunk: Chunk, worker: Any) -> None:
    """Make a chunk, unless it is no longer wanted."""
    if not await rpc(worker, "begin", sweep=chunk.sweep, chunk=chunk.key, worker=worker.address):
        return
    try:
        with tempfile.TemporaryDirectory(dir=worker.local_directory) as name:
            await _Worker(chunk, Path(name), worker).carry_out()
    finally:
        await rpc(worker, "end", chunk=chunk.key)


class _SharedGate(RateLimiter):
    """A rate limiter that is kept by the coordinator. Only some calls of a chunk wait there at the same time,
    in order.
    """

    def __init__(self, limits: Limits, chunk: str, worker: Any, key_of: Callable[[Call], bytes]) -> None:
        super().__init__(limits)
        self.chunk = chunk
        self.worker = worker
        self.key_of = key_of
        self.turn = asyncio.Semaphore(MAX_REQUESTS)
        self.tickets = count()

    async def enter(self, tokens: int, observer: CallObserver) -> None:
        """Wait for a slot. `left` must follow."""
        waited = self.turn.locked()
        if waited:
            observer.note("call.queued")
        async with self.turn:
            ticket = next(self.tickets)
            entering = rpc(
                self.worker, "enter", chunk=self.chunk, ticket=ticket, limits=self.limits, tokens=tokens
            )
            try:
                done, _ = await asyncio.wait([entering], timeout=QUEUED_AFTER)
                if not done and not waited:
                    observer.note("call.queued")
                admitted = await asyncio.shield(entering)
            except asyncio.CancelledError:
                rpc(self.worker, "withdraw", chunk=self.chunk, ticket=ticket)
                entering.add_done_callback(self._give_back)
                raise
        if not admitted:
            # The chunk is no longer wanted: its runs are about to be cancelled.
            await asyncio.Event().wait()

    def _give_back(self, entering: asyncio.Future[bool]) -> None:
        if not entering.cancelled() and entering.exception() is None and entering.result():
            self._leave(0.0, [])

    def _leave(self, seconds: float, paid: list[tuple[bytes, float]]) -> asyncio.Future[None]:
        return rpc(self.worker, "leave", chunk=self.chunk, limits=self.limits, seconds=seconds, paid=paid)

    def count(self, tokens: int) -> None:
        """Count a request of so many tokens that is sent now."""
        rpc(self.worker, "count", limits=self.limits, tokens=tokens)

    async def left(self, calls: Sequence[Call], replies: Sequence[Reply], seconds: float) -> None:
        """Report to the coordinator what was paid, before the replies are used."""
        paid = [(self.key_of(c), r.cost) for c, r in zip(calls, replies, strict=False) if r.cost]
        await asyncio.shield(self._leave(seconds, paid))


class _Worker:
    """The worker's side of a chunk."""

    def __init__(self, chunk: Chunk, folder: Path, worker: Any) -> None:
        self.chunk = chunk
        self.worker = worker
        runner = Runner(replace(chunk.lab, cache=self._cache()))
        self.gateway = runner.gateway
        self.sweep = Sweep(
            runner, chunk.strategies, chunk.tasks, chunk.repeats, chunk.name, chunk.budget, runs=folder
        )
        self.folder = folder / chunk.name
        self.folder.mkdir()
        cells = {cell.run_id: cell for cell in self.sweep.cells}
        if not chunk.journals.keys() <= cells.keys():
            raise RuntimeError("A setting of this sweep changed on its way to the worker.")
        self.cells = [cells[run_id] for run_id in chunk.journals]
        self.sent: dict[str, int] = {}
        """By run id, the bytes of its journal that the client has."""
        self.whole: set[str] = set()
        """Resumed runs whose journals must be sent as a whole."""
        for run_id, journal in chunk.journals.items():
            if journal:
                (self.folder / f"{run_id}.jsonl").write_bytes(journal)
                self.sent[run_id] = len(journal)
                self.whole.add(run_id)

    def _cache(self) -> Cache | None:
        """Return the cache of the worker.

        On another machine the lab's folder may be on a network disk. There, a folder next to dask's own space
        is used in front of the shared cache, one for each cache of each client.
        """
        cache = self.chunk.cache
        if cache is None:
            return None
        folder = cache.folder
        if this_host() != self.chunk.host:
            parts = "\n".join([self.chunk.host, str(folder), cache.identity, cache.redis or "", this_host()])
            name = hashlib.sha256(parts.encode()).hexdigest()[:16]
            folder = Path(self.worker.local_directory).parent / f"tot_lab-calls-{name}"
        create = self.chunk.lab.mode != "replay"
        return Cache(folder, shared=cache.redis, create=create, allow_unavailable=True)

    async def carry_out(self) -> None:
        """Make the runs. Stop when they are no longer wanted."""
        key_of, key = self.sweep.key_of, self.chunk.key
        make_limiters(lambda limits: _SharedGate(limits, key, self.worker, key_of))
        collected = _collect_warnings()
        try:
            await self.gateway.open()
            making = asyncio.create_task(self.sweep.make(self.cells, self.chunk.at_once, lambda: None))
            over = False
            while not over:
                await asyncio.wait([making], timeout=REPORT_INTERVAL)
                over = making.done()
                if not await self._report("done" if over and not making.exception() else "", collected):
                    making.cancel()
                    await asyncio.wait([making])
                    return
            making.result()
        finally:
            if self.gateway.opened is not None:
                await asyncio.to_thread(self.gateway.opened.close)

    async def _report(self, end: Literal["", "done"], collected: list[str]) -> bool:
        """Send what is new. Returns whether the chunk is still wanted."""
        journals = [
            news for path in sorted(self.folder.glob("*.jsonl")) if (news := self._news(path)) is not None
        ]
        rows = [(run_id, encode_row(row)) for run_id, row in self.sweep.rows.items()]
        self.sweep.rows.clear()
        messages = [f"from a dask worker: {text}" for text in collected]
        collected.clear()
        report = Report(self.chunk.key, journals, rows, messages, end=end)
        data = encode_report(report) if journals or rows or messages or end else None
        wanted: bool = await rpc(self.worker, "report", chunk=self.chunk.key, data=data)
        return wanted

    def _news(self, path: Path) -> tuple[str, int, bytes] | None:
        """Return what is new in a journal. That of a resumed run may have been truncated first, so it is sent
        as a whole.
        """
        run_id, size = path.stem, path.stat().st_size
        over = run_id in self.sweep.rows
        kept = self.sweep.in_memory.pop(run_id, None) if over else None
        if kept is None and not over and size == self.sent.get(run_id):
            return None
        start = 0 if run_id in self.whole else self.sent.get(run_id, 0)
        self.whole.discard(run_id)
        if kept is not None:  # the file could not be written completely
            start, data = 0, header_text(kept.header) + lines_text(kept.header, kept.lines)
        else:
            with path.open("rb") as file:
                file.seek(start)
                data = file.read()
        self.sent[run_id] = size
        if over:
            path.unlink()
        return run_id, start, data


_COLLECTED = threading.local()


def _collect_warnings() -> list[str]:
    """Return a list that collects the warnings of this thread from now on, for the client to show."""
    forget_warnings()
    _COLLECTED.texts = []
    if not getattr(warnings.showwarning, "of_tot_lab", False):
        shown = warnings.showwarning

        def show(message: Warning | str, *where: Any, **more: Any) -> None:
            texts = getattr(_COLLECTED, "texts", None)
            if texts is None:
                shown(message, *where, **more)
            else:
                texts.append(str(message))

        show.of_tot_lab = True  # type: ignore[attr-defined]
        warnings.showwarning = show
    texts: list[str] = _COLLECTED.texts
    return texts
