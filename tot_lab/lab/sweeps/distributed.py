"""A sweep on the workers of a dask cluster.

Work is split by task: a worker makes all runs of a task, so that equal calls meet on one worker. Everything
else stays with the client, and no file system is shared. Each worker is a dask actor that the client asks for
news again and again: records go into the journals on the client's disk while runs are made, and replies are
looked up and stored in the client's cache before they are used. After the death of a worker, another one
continues its journals. The limits of each model and `spend` are divided among the workers at the start.

Settings and functions of the user travel to the workers pickled by cloudpickle, like everything that dask
sends. What comes back is plain data.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import sys
import tempfile
import threading
import warnings
import weakref
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import cloudpickle
import msgspec
from distributed import Actor, Client, Future

from tot_lab._version import __version__
from tot_lab.core import parts
from tot_lab.core.calls import Call
from tot_lab.core.model_setting import model_names, models_of
from tot_lab.core.parts import Part
from tot_lab.core.records import Line, payments
from tot_lab.lab.sweeps.sweep import AGAIN, Cell, Row, Sweep, begun, forget_warnings
from tot_lab.models.cache import Cache
from tot_lab.models.entries import Stored, stored_in
from tot_lab.models.keys import Request
from tot_lab.models.limits import MINUTE, divide_limits, limits_of
from tot_lab.models.served_weights import Weights
from tot_lab.models.stack import Endpoint
from tot_lab.models.store import CacheError
from tot_lab.record.journal import (
    Header,
    HeldByAnother,
    JournalError,
    header_text,
    line_decoder,
    lines_text,
    parse_journal,
)
from tot_lab.record.run import Run
from tot_lab.runtime.recorder import hold, let_go
from tot_lab.runtime.runner import Following, Runner

POLL = 0.2
"""Seconds for which a worker without news lets the client wait."""

SILENCE = 30.0
"""Seconds without a worker after which the client warns."""

MAX_DEATHS = 3
"""Workers that may die while making one run, at last alone, before the run counts as failed."""


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


class News(msgspec.Struct):
    """What a worker reports.

    Attributes:
        journals: For each run, how many lines of its journal are kept (`None` for all) and what follows.
        rows: Rows of finished runs.
        requests: Requests to the cache: ticket, operation, key and data.
        wants_runs: Whether the worker waits for further runs.
        is_over: Whether it has made all runs.
    """

    journals: list[tuple[str, int | None, bytes]] = []
    rows: list[tuple[str, Row]] = []
    requests: list[tuple[int, str, str, bytes]] = []
    warnings: list[str] = []
    wants_runs: bool = False
    is_over: bool = False


class Answers(msgspec.Struct):
    """What the client answers.

    Attributes:
        results: Ticket, data and error of each request to the cache.
        runs: The journals so far of further runs, none if none are left. `None` lets the worker wait.
    """

    results: list[tuple[int, bytes | None, str]] = []
    runs: dict[str, bytes] | None = None


_encode = msgspec.msgpack.Encoder().encode
_news_in = msgspec.msgpack.Decoder(News).decode
_answers_in = msgspec.msgpack.Decoder(Answers).decode


class Parcel:
    """The pickled settings of a sweep. Its repr reveals none of them, because dask shows and logs what it
    sends.
    """

    def __init__(self, sweep: Sweep) -> None:
        self.package = PACKAGE
        gateway = sweep.runner.gateway
        cache = gateway.given_cache
        path = None if cache is None else cache.path if isinstance(cache, Cache) else Path(cache)
        settings, repeats = sweep.runner.settings.portable(), max(cell.repeat for cell in sweep.cells) + 1
        about = settings, path, sweep.settings, [*sweep.tasks.values()], repeats, sweep.name, sweep.budget
        try:
            self.data: bytes = cloudpickle.dumps(about)
        except Exception as error:
            raise TypeError(
                f"A model, tool, strategy or task of this sweep cannot be sent to the workers: {error}. "
                f"A class or function defined inside another function takes that function's variables along. "
                f"Define it at module level."
            ) from error

    def __repr__(self) -> str:
        return "<a sweep>"

    def opened(self) -> tuple[Any, ...]:
        """Return the settings. Raises `RuntimeError` if the client runs other code than this process."""
        if self.package != PACKAGE:
            here, there = (f"tot_lab {p[0]} (code {p[1]}) on Python {p[2]}" for p in (PACKAGE, self.package))
            raise RuntimeError(
                f"a dask worker has {here}, and the client {there}. Install the same version on all "
                f"machines, and restart the workers."
            )
        about: tuple[Any, ...] = cloudpickle.loads(self.data)
        for part in (about[0].model, *about[0].tools):
            if isinstance(part, Part):
                parts.REGISTRY.setdefault(part.kind, type(part))  # a class that was defined in a notebook
        return about


# The worker's side.


class SweepWorker:
    """Makes runs in a thread of its own, as a dask actor, until dask drops it.

    Args:
        parcel: The sweep.
        place: Number of this worker.
        of: Number of workers, among which the limits are divided.
        at_once: Concurrent runs.
        spend: USD that it may spend.
        again: Whether it replaces a worker that died, whose requests still count towards the limits.
    """

    def __init__(
        self, parcel: Parcel, place: int, of: int, at_once: int, spend: float | None, *, again: bool
    ) -> None:
        self.making = making = _Making(parcel, place, of, at_once, spend, again=again)
        weakref.finalize(self, making.stop)
        threading.Thread(target=making.in_thread, name="tot_lab-sweep", daemon=True).start()

    async def exchange(self, answers: bytes) -> bytes:
        """Take in answers and return news, or nothing new after a moment."""
        exchanging = self.making.exchange(_answers_in(answers))
        news = asyncio.run_coroutine_threadsafe(exchanging, self.making.loop)
        return _encode(await asyncio.wrap_future(news))


class _Part(Sweep):
    """The sweep of a worker. Only continued runs have a journal, which the client sent."""

    def path(self, cell: Cell) -> Path | None:
        path = super().path(cell)
        return path if path is not None and path.exists() else None


class _Making:
    """The runs of a worker, which are also the followers of their records."""

    def __init__(
        self, parcel: Parcel, place: int, of: int, at_once: int, spend: float | None, *, again: bool
    ) -> None:
        settings, path, *about = parcel.opened()
        self.cache = _ClientCache(self, path)
        given = None if path is None else self.cache
        self.runner = Runner(replace(settings, cache=given, spend=spend), followers=[self])
        self.runner.gateway.opened = self.cache
        self.folder = tempfile.TemporaryDirectory(prefix="tot_lab-")
        self.sweep = _Part(self.runner, *about, runs=Path(self.folder.name))
        self.place, self.of, self.at_once, self.again = place, of, at_once, again
        self.news = News()
        self.warnings: list[str] = []
        self.changed = asyncio.Event()
        self.runs: asyncio.Queue[dict[str, bytes]] = asyncio.Queue()
        self.tickets = count()
        self.results: dict[int, asyncio.Future[bytes | None]] = {}
        self.loop = asyncio.new_event_loop()
        self.task: asyncio.Task[None] | None = None

    def in_thread(self) -> None:
        """Make runs until `stop` is called."""
        self.warnings = _collect_warnings()
        self.task = self.loop.create_task(self._make())
        self.task.add_done_callback(lambda _: self.changed.set())
        try:
            self.loop.run_forever()
            self.task.cancel()
            self.loop.run_until_complete(asyncio.wait([self.task]))
        finally:
            self.folder.cleanup()
            self.loop.close()

    def stop(self) -> None:
        """Stop: nobody asks for news any more."""
        with suppress(RuntimeError):  # the process is ending
            self.loop.call_soon_threadsafe(self.loop.stop)

    async def _make(self) -> None:
        divide_limits(self.place, self.of)
        models = self.runner.gateway.endpoints
        if self.again and any(m.requests_per_minute or m.tokens_per_minute for m in models):
            await asyncio.sleep(MINUTE)
        await self.sweep.make((), self.at_once, self._keep_rows, self._more)

    async def _more(self) -> list[Cell]:
        """Return further runs to make, once the client has given some."""
        self.news.wants_runs = True
        self.changed.set()
        journals = await self.runs.get()
        for run_id, journal in journals.items():
            if journal:
                path = Path(self.folder.name) / self.sweep.name / f"{run_id}.jsonl"
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(journal)
                self.runner.expect_payments(run_id)  # the client has counted them
        if not journals.keys() <= self.sweep.by_id.keys():
            raise RuntimeError("A setting of this sweep changed on its way to the worker.")
        return [self.sweep.by_id[run_id] for run_id in journals]

    def _keep_rows(self) -> None:
        for run_id, row in self.sweep.rows.items():
            self.sweep.in_memory.pop(run_id, None)
            (Path(self.folder.name) / self.sweep.name / f"{run_id}.jsonl").unlink(missing_ok=True)
            self.news.rows.append((run_id, row))
        self.sweep.rows.clear()
        self.changed.set()

    def following(self, header: Header, lines: Sequence[Line], path: Path | None) -> _Reporting:
        """Return what reports the records of a run."""
        return _Reporting(self, header, 0 if path is None else 1 + len(lines))

    def ask(self, operation: str, key: str, data: bytes = b"") -> asyncio.Future[bytes | None]:
        """Let the client's cache carry out an operation."""
        ticket = next(self.tickets)
        result = self.results[ticket] = self.loop.create_future()
        self.news.requests.append((ticket, operation, key, data))
        self.changed.set()
        return result

    async def exchange(self, answers: Answers) -> News:
        """Take in answers and return news."""
        for ticket, data, error in answers.results:
            result = self.results.pop(ticket)
            if not result.done():
                result.set_exception(CacheError(error)) if error else result.set_result(data)
        if answers.runs is not None:
            self.runs.put_nowait(answers.runs)
        with suppress(TimeoutError):
            await asyncio.wait_for(self.changed.wait(), POLL)
        self.changed.clear()
        assert self.task is not None
        if self.task.done():
            self.task.result()
        news, self.news = self.news, News()
        news.warnings, self.warnings[:] = [f"from a dask worker: {text}" for text in self.warnings], []
        news.is_over = self.task.done()
        return news


class _Reporting:
    """Reports the records of a run. `kept` is how many lines of its journal are kept."""

    def __init__(self, making: _Making, header: Header, kept: int | None) -> None:
        self.making, self.header, self.kept = making, header, kept

    def __call__(self, lines: Sequence[Line]) -> None:
        text = lines_text(self.header, lines)
        text = text if self.kept != 0 else header_text(self.header) + text
        self.making.news.journals.append((self.header.id, self.kept, text))
        self.making.changed.set()
        self.kept = None

    def close(self) -> None:
        """Release nothing."""


class _ClientCache(Cache):
    """The client's cache, as a worker uses it."""

    def __init__(self, making: _Making, path: Path | None) -> None:
        self.path, self.stores, self.newest = path or Path(), [], None
        self.making = making

    async def find(self, key: str, weights: Weights | None = None) -> Stored | None:
        data = await self.making.ask("find", key, msgspec.json.encode(weights or {}))
        return None if data is None else stored_in(key, data)

    def keep(
        self, key: str, data: bytes, weights: Weights | None = None, *, replace: bool = False
    ) -> asyncio.Future[bool]:
        async def keep() -> bool:
            return await self.making.ask("replace" if replace else "keep", key, data) is not None

        return self.making.loop.create_task(keep())

    async def explain_miss(self, call: Call, request: Request) -> str:
        text = await self.making.ask("explain", request.key, msgspec.json.encode((call, request)))
        return (text or b"").decode()


_COLLECTED: ContextVar[list[str] | None] = ContextVar("warnings", default=None)


def _collect_warnings() -> list[str]:
    """Return a list that collects the warnings of this thread from now on, for the client to show."""
    forget_warnings()
    texts: list[str] = []
    _COLLECTED.set(texts)
    if not getattr(warnings.showwarning, "of_tot_lab", False):
        shown = warnings.showwarning

        def show(message: Warning | str, *where: Any, **more: Any) -> None:
            collected = _COLLECTED.get()
            if collected is None:
                shown(message, *where, **more)
            else:
                collected.append(str(message))

        show.of_tot_lab = True  # type: ignore[attr-defined]
        warnings.showwarning = show
    return texts


# The client's side.


async def make_with_workers(
    client: Any, sweep: Sweep, cells: Sequence[Cell], at_once: int | None, update: Callable[[], None]
) -> None:
    """Carry out the runs of `cells`, the tasks in this order, on the workers of the dask `client`."""
    if not isinstance(client, Client):
        raise TypeError(f"client must be a dask.distributed.Client: got {client!r}.")
    left = [cell for cell in cells if not await _is_known(sweep, cell, update)]
    if not left:
        return
    threads = sum((await _in_loop(client, client.nthreads)).values())
    if not threads:
        raise ValueError("The dask cluster has no workers. Start some, for example with cluster.scale(2).")
    await _Cluster(client, sweep, left, threads, at_once, update).carry_out()


async def _is_known(sweep: Sweep, cell: Cell, update: Callable[[], None]) -> bool:
    """Whether a cell needs no worker because its journal is finished or cannot be read."""
    try:
        run = sweep.finished(cell)
        if run is None:
            return False
        sweep.rows[cell.run_id] = sweep.row_of(run, None)
        sweep.found += 1
    except (JournalError, OSError):
        await sweep.finish(cell)  # its row will show the error
    update()
    await asyncio.sleep(0)  # lets a cancellation in between many cells
    return True


def _in_loop(client: Client, call: Callable[[], Any]) -> asyncio.Future[Any]:
    """Call what a dask client does without blocking, in the client's own event loop."""

    async def calling() -> Any:
        with client.as_current():
            made = call()
        return await made

    loop: Any = client.loop
    return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(calling(), loop.asyncio_loop))


def _smallest_limit(sweep: Sweep) -> int | None:
    """Return the smallest number of requests, concurrent or per minute, of the models of a sweep."""
    gateway = sweep.runner.gateway
    strategies = sweep.settings.values()
    names = {name for one in strategies for name in model_names(one)} - {*gateway.roles}
    models = [gateway.model, *map(sweep.model_of, gateway.roles), *map(gateway.model_of, sorted(names))]
    models += [model for one in strategies for model in models_of(one).values()]
    limits = [limits_of(model)[1:3] for model in models if isinstance(model, Endpoint)]
    return min((limit for both in limits for limit in both if limit), default=None)


class _Cluster:
    """Serves the workers of a sweep: hands out runs, and takes in what comes back."""

    def __init__(
        self,
        client: Client,
        sweep: Sweep,
        cells: Sequence[Cell],
        threads: int,
        at_once: int | None,
        update: Callable[[], None],
    ) -> None:
        self.client, self.sweep, self.update = client, sweep, update
        self.gateway = sweep.runner.gateway
        by_task = defaultdict[int, list[Cell]](list)
        for cell in cells:
            by_task[cell.task].append(cell)
        self.tasks = deque(by_task.values())
        """The runs of tasks that no worker has begun."""
        self.left = {task: len(of_task) for task, of_task in by_task.items()}
        """Unfinished runs by task."""
        limits = [threads, len(self.tasks), at_once, _smallest_limit(sweep)]
        self.of = min(limit for limit in limits if limit is not None)
        """Number of workers."""
        self.at_once = at_once or sweep.window()
        self.given: list[set[int]] = [set() for _ in range(self.of)]
        """By worker, its unfinished tasks."""
        self.waiting: list[deque[Cell]] = [deque() for _ in range(self.of)]
        """By worker, the runs of these tasks that it was not given yet."""
        self.active: list[dict[str, Cell]] = [{} for _ in range(self.of)]
        """By worker, the runs that it was given, by run id."""
        self.journals: dict[str, bytearray] = {}
        """The journals of these runs."""
        self.files: dict[str, int] = {}
        """Their locked files."""
        self.followed: dict[str, list[Following]] = {}
        self.deaths = Counter[str]()
        self.paid: dict[str, float] = {}
        """By run id, the USD of its journal that are counted."""
        limiter = self.gateway.spend_limiter
        share = None if limiter.cap is None else max(0.0, limiter.cap - limiter.total) / self.of
        self.spend = [share] * self.of
        """By worker, the USD that it may still spend."""
        self.warned: set[str] = set()

    async def carry_out(self) -> None:
        """Until every cell has its row."""
        parcel = Parcel(self.sweep)
        serving = [asyncio.create_task(self._serve(place, parcel)) for place in range(self.of)]
        try:
            await asyncio.gather(*serving)
        finally:
            for task in serving:
                task.cancel()
            await asyncio.wait(serving)
            for place, active in enumerate(self.active):
                for cell in active.values():
                    self._count(place, cell)
                    self._close(cell)

    async def _serve(self, place: int, parcel: Parcel) -> None:
        """Serve one worker after the other until there is nothing left to do."""
        again = False
        while not await self._serve_one(place, parcel, again=again):
            again = True
            self._warn("A dask worker died. Calls that it waited for may be paid again.")
            lost = list(self.active[place].values())
            self.active[place].clear()
            self.waiting[place].extendleft(reversed(lost))
            for cell in lost:
                self._count(place, cell)
                self.deaths[cell.run_id] += 1
            if len(lost) == 1 and self.deaths[lost[0].run_id] >= MAX_DEATHS:
                cell = self.waiting[place].popleft()
                error = f"KilledWorker: {MAX_DEATHS} dask workers died while making this run"
                run = _run_in(self.journals[cell.run_id])
                self._keep(
                    place,
                    cell,
                    Row(error=error)
                    if run is None
                    else self.sweep.row_of(self.sweep.whole(run, cell), error),
                )

    async def _serve_one(self, place: int, parcel: Parcel, *, again: bool) -> bool:
        """Serve one worker. Returns whether it has done all work, or else died."""
        key = f"tot_lab-{secrets.token_hex(8)}"
        at_once = max(1, (self.at_once + place) // self.of)
        arguments = parcel, place, self.of, at_once, self.spend[place]

        async def submitted() -> Future[Any]:
            return self.client.submit(SweepWorker, *arguments, again=again, actor=True, key=key)

        future = await _in_loop(self.client, submitted)
        try:
            clock = asyncio.get_running_loop().time
            quiet = clock() + SILENCE
            while future.status == "pending":
                await asyncio.sleep(0.02)
                if clock() > quiet and not await _in_loop(self.client, self.client.nthreads):
                    self._warn("The dask cluster has lost its workers. The sweep waits for new ones.")
            if future.status == "error":
                raise await _in_loop(self.client, future.exception)
            addresses = (await _in_loop(self.client, lambda: self.client.who_has([future])))[key]
            with self.client.as_current():
                actor = Actor(SweepWorker, addresses[0], key) if addresses else None
            answers, wants_runs = Answers(), False
            while actor and (news := await self._exchange(actor, future, answers)) is not None:
                wants_runs = wants_runs or news.wants_runs
                answers.results = await self._take(place, news)
                answers.runs = await self._next(place) if wants_runs else None
                wants_runs = wants_runs and answers.runs is None
                if news.is_over:
                    return True
            return False
        finally:
            with suppress(Exception):  # the client may be closed
                await _in_loop(self.client, lambda: self.client.cancel([future]))

    async def _exchange(self, actor: Any, future: Future[Any], answers: Answers) -> News | None:
        """Return the news of a worker, or `None` if it died."""
        asking = _in_loop(self.client, lambda: actor.exchange(_encode(answers)))
        try:
            while not (await asyncio.wait([asking], timeout=AGAIN))[0] and future.status == "finished":
                pass
            if asking.done():
                return _news_in(asking.result())
        except (OSError, LookupError, RuntimeError):
            for _ in range(50):  # dask may need a moment to notice the death of a worker
                if future.status == "finished":
                    await asyncio.sleep(0.2)
            if future.status == "finished":
                raise
        finally:
            asking.cancel()
        if future.status != "error":
            raise RuntimeError(
                f"Dask gave up the tasks of the sweep ({future.status}), for example because the client was "
                f"closed or restarted. Call lab.sweep again to continue."
            )
        return None

    # Out.

    async def _next(self, place: int) -> dict[str, bytes] | None:
        """Return the journals of further runs for a worker: none if none are left, `None` to let it wait.

        A worker has an even share of the unfinished tasks at most. A run whose worker died twice is made
        alone, so that a run that kills its workers is found.
        """
        waiting, active, given = self.waiting[place], self.active[place], self.given[place]
        if any(self.deaths[run_id] > 1 for run_id in active):
            return None
        runs: dict[str, bytes] = {}
        while True:
            for _ in range(min(len(waiting), self.at_once)):
                alone = self.deaths[waiting[0].run_id] > 1
                if alone and active:
                    break
                cell = waiting.popleft()
                try:
                    journal = await self._claim(place, cell)
                except HeldByAnother:  # the other process will finish it or end
                    waiting.append(cell)
                    continue
                if journal is not None:
                    runs[cell.run_id], active[cell.run_id] = journal, cell
                    if alone:
                        break
            unfinished = len(self.tasks) + sum(map(len, self.given))
            if runs or not self.tasks or len(given) * self.of >= unfinished:
                return runs or (None if waiting or self.tasks else {})
            waiting.extend(self.tasks.popleft())
            given.add(waiting[-1].task)

    async def _claim(self, place: int, cell: Cell) -> bytes | None:
        """Lock the journal of a run and return its content, or `None` if the run is finished.

        Raises:
            HeldByAnother: If another process is making the run.
        """
        run_id, path = cell.run_id, self.sweep.path(cell)
        if run_id not in self.journals:
            journal = b""
            if path is not None:
                try:
                    self.files[run_id] = hold(path)
                    journal = path.read_bytes() if begun(path) else b""
                except OSError as error:
                    self._warn_unwritable(error)
            if journal and await _is_known(self.sweep, cell, self.update):
                self._close(cell)
                self._finish(place, cell)
                return None
            if journal:
                header, lines, _ = parse_journal(journal, run_id)
                self.sweep.runner.count_payments(header, lines)
                self.paid[run_id] = payments(lines)
            self.journals[run_id] = bytearray(journal)
        return bytes(self.journals[run_id])

    # In.

    async def _take(self, place: int, news: News) -> list[tuple[int, bytes | None, str]]:
        """Take in news. Returns what the cache answers to its requests."""
        for text in news.warnings:
            self._warn(text)
        for run_id, kept, data in news.journals:
            self._append(self.active[place][run_id], kept, data)
        for run_id, row in news.rows:
            self._keep(place, self.active[place].pop(run_id), row)
        return list(await asyncio.gather(*(self._answer(*request) for request in news.requests)))

    async def _answer(
        self, ticket: int, operation: str, key: str, data: bytes
    ) -> tuple[int, bytes | None, str]:
        """Carry out an operation of the cache."""
        try:
            cache = self.gateway.cache
            if operation == "find":
                return ticket, cache.stored(key, msgspec.json.decode(data)), ""
            if operation == "explain":
                call, request = msgspec.json.decode(data, type=tuple[Call, Request])
                return ticket, (await cache.explain_miss(call, request)).encode(), ""
            weights = stored_in(key, data).weights
            is_new = await cache.keep(key, data, weights, replace=operation == "replace")
            return ticket, b"" if is_new else None, ""
        except (OSError, CacheError) as error:
            return ticket, None, str(error)

    def _append(self, cell: Cell, kept: int | None, text: bytes) -> None:
        """Append `text` to the journal of a run, after its first `kept` lines."""
        journal = self.journals[cell.run_id]
        start = len(journal) if kept is None else sum(map(len, journal.splitlines(keepends=True)[:kept]))
        del journal[start:]
        journal += text
        self._write(cell, start)
        followers = self.sweep.runner.followers
        if followers and kept is not None:
            header, lines, _ = parse_journal(bytes(journal), cell.run_id)
            for follow in self.followed.pop(cell.run_id, ()):
                follow.close()
            old, fresh = lines[: max(kept - 1, 0)], lines[max(kept - 1, 0) :]
            path = self.sweep.path(cell)
            self.followed[cell.run_id] = [one.following(header, old, path) for one in followers]
        elif followers:
            fresh = line_decoder.decode_lines(text)
        for follow in self.followed.get(cell.run_id, ()):
            follow(fresh)

    def _keep(self, place: int, cell: Cell, row: Row) -> None:
        """Keep the row of a finished run, after its journal is written."""
        self._count(place, cell)
        journal = self.journals.pop(cell.run_id)
        run = None if cell.run_id in self.files else _run_in(journal)
        if run is not None:
            self.sweep.in_memory[cell.run_id] = run
        self._close(cell)
        self._finish(place, cell)
        self.sweep.rows[cell.run_id] = row
        self.update()

    def _finish(self, place: int, cell: Cell) -> None:
        self.left[cell.task] -= 1
        if not self.left[cell.task]:
            self.given[place].discard(cell.task)

    def _count(self, place: int, cell: Cell) -> None:
        """Count what the journal of a run has paid since it was last counted."""
        run = _run_in(self.journals[cell.run_id])
        paid = 0.0 if run is None else payments(run.lines)
        fresh, self.paid[cell.run_id] = paid - self.paid.get(cell.run_id, 0.0), paid
        self.sweep.runner.expect_payments(cell.run_id)
        self.gateway.spend_limiter.spend(fresh)
        share = self.spend[place]
        self.spend[place] = None if share is None else max(0.0, share - fresh)

    def _write(self, cell: Cell, start: int) -> None:
        """Write the journal of a run to its file from `start` on."""
        file = self.files.get(cell.run_id)
        if file is None:
            return
        data = memoryview(self.journals[cell.run_id])[start:]
        try:
            os.ftruncate(file, start)
            os.lseek(file, start, os.SEEK_SET)
            while data:
                data = data[os.write(file, data) :]
        except OSError as error:
            self._warn_unwritable(error)
            with suppress(OSError):
                os.ftruncate(file, start)
            self._let_go(cell)

    def _close(self, cell: Cell) -> None:
        for follow in self.followed.pop(cell.run_id, ()):
            follow.close()
        self._let_go(cell)

    def _let_go(self, cell: Cell) -> None:
        file, path = self.files.pop(cell.run_id, None), self.sweep.path(cell)
        if file is not None and path is not None:
            let_go(path, file)

    def _warn(self, text: str) -> None:
        """Show a warning once."""
        if text not in self.warned:
            self.warned.add(text)
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def _warn_unwritable(self, error: OSError) -> None:
        self._warn(
            f"{self.sweep.folder}: {error.strerror}. The sweep continues with some runs in memory only."
        )


def _run_in(journal: bytearray) -> Run | None:
    """Return the run in a journal, or `None` without a whole header."""
    if b"\n" not in journal:
        return None
    header, lines, _ = parse_journal(bytes(journal), "the journal of a run")
    return Run(header, lines)
