"""A sweep on the workers of a dask cluster.

Work is split by task: a worker makes all runs of a task, so that equal calls meet on one worker. The sweep
stays with the client, which carries out its runs remotely, and no file system is shared. Each worker is a
dask actor that the client asks for news again and again: records go into the journals on the client's disk
while runs are made, and replies are looked up and stored in the client's cache before they are used. After
the death of a worker, another one continues its journals. The limits of each model and `spend` are divided
among the workers at the start.

Settings and functions of the user travel to the workers pickled by cloudpickle, like everything that dask
sends. What comes back is plain data.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import secrets
import sys
import threading
import time
import warnings
import weakref
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import nullcontext, suppress
from contextvars import ContextVar
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tot_lab._version import __version__
from tot_lab.core import parts
from tot_lab.core.calls import Call
from tot_lab.core.extras import requires
from tot_lab.core.model_setting import model_names, models_of
from tot_lab.core.records import RESUMED, Line, payments
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Task
from tot_lab.lab.sweeps.sweep import AGAIN, LOOK, Cell, Row, Sweep, WorkerDied, forget_warnings
from tot_lab.models.cache import Cache
from tot_lab.models.entries import Stored, stored_in
from tot_lab.models.keys import Request
from tot_lab.models.limits import MINUTE, divide_limits
from tot_lab.models.served_weights import Weights
from tot_lab.models.stack import Endpoint
from tot_lab.models.store import CacheError
from tot_lab.record.journal import Header, header_text, line_decoder, lines_text, parse_journal
from tot_lab.runtime.recorder import Recorder
from tot_lab.runtime.runner import Execution, Runner, Watcher

try:
    import cloudpickle
    from distributed import Actor, Client, Future
except ImportError:
    raise ImportError(requires("client=", "dask", "dask")) from None

POLL = 0.2
"""Seconds for which a worker without news lets the client wait."""

SILENCE = 30.0
"""Seconds without a worker after which the client warns."""

NOTICE = 10.0
"""Seconds that dask may need to notice the death of a worker."""

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
    """What a worker reports: further lines of journals and rows of finished runs, by run id; requests to the
    cache, as ticket, operation, key and data; and warnings.
    """

    lines: list[tuple[str, bytes]] = []
    rows: list[tuple[str, Row]] = []
    requests: list[tuple[int, str, str, bytes]] = []
    warnings: list[str] = []


Result = tuple[int, bytes | None, str]
"""The result of a request to the cache: its ticket, and data or an error."""

_encode = msgspec.msgpack.Encoder().encode
_news_in = msgspec.msgpack.Decoder(News).decode
_results_in = msgspec.msgpack.Decoder(list[Result]).decode


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
            if isinstance(part, parts.Part):
                parts.REGISTRY.setdefault(part.kind, type(part))  # a class that was defined in a notebook
        return about


# The worker's side.


class SweepWorker:
    """Makes runs in a thread of its own, as a dask actor, until dask drops it.

    Args:
        parcel: The sweep.
        place: Number of this worker.
        of: Number of workers, among which the limits are divided.
        spend: USD that it may spend.
    """

    def __init__(self, parcel: Parcel, place: int, of: int, spend: float | None) -> None:
        self.making = making = _Making(parcel, place, of, spend)
        weakref.finalize(self, making.stop)
        threading.Thread(target=making.in_thread, name="tot_lab-sweep", daemon=True).start()

    async def start(self, run_id: str, journal: bytes) -> None:
        """Start a run, or continue it after its journal."""
        self.making.loop.call_soon_threadsafe(self.making.start, run_id, journal)

    async def exchange(self, results: bytes) -> bytes:
        """Take in results of requests and return news, or nothing new after a moment."""
        return await self._news(self.making.exchange(_results_in(results)))

    async def stop(self) -> bytes:
        """Cancel all runs, and return the last news."""
        return await self._news(self.making.cancel())

    async def _news(self, coming: Coroutine[Any, Any, News]) -> bytes:
        news = asyncio.run_coroutine_threadsafe(coming, self.making.loop)
        return _encode(await asyncio.wrap_future(news))


class _Making(Sweep):
    """The part of a sweep that a worker makes. It follows the records of its runs and reports them."""

    def __init__(self, parcel: Parcel, place: int, of: int, spend: float | None) -> None:
        settings, path, *about = parcel.opened()
        cache = _ClientCache(self, path)
        runner = Runner(replace(settings, cache=path and cache, spend=spend), followers=[self])
        runner.gateway.opened = cache
        super().__init__(runner, *about, runs=None)
        self.place, self.of = place, of
        self.news = News()
        self.changed = asyncio.Event()
        self.tickets = count()
        self.results: dict[int, asyncio.Future[bytes | None]] = {}
        self.kept: dict[str, tuple[Header, list[Line]]] = {}
        self.running: set[asyncio.Task[None]] = set()
        self.loop = asyncio.new_event_loop()
        _collect_warnings()

    def in_thread(self) -> None:
        """Make runs until `stop` is called."""
        self.loop.call_soon(divide_limits, self.place, self.of)
        self.loop.run_forever()
        self.loop.run_until_complete(self.cancel())
        self.loop.close()

    def stop(self) -> None:
        """Stop, because nobody asks for news any more."""
        with suppress(RuntimeError):  # the process is ending
            self.loop.call_soon_threadsafe(self.loop.stop)

    async def cancel(self) -> News:
        """Cancel all runs. Returns the last news."""
        for task in self.running:
            task.cancel()
        if self.running:
            await asyncio.wait(self.running, timeout=NOTICE)
        return self.news

    def start(self, run_id: str, journal: bytes) -> None:
        """Start a run, or continue it after its journal."""
        header, lines, _ = parse_journal(journal, run_id)
        self.kept[run_id] = header, lines
        task = self.loop.create_task(self._finish(self.by_id[run_id]))
        self.running.add(task)
        task.add_done_callback(self.running.discard)

    async def _finish(self, cell: Cell) -> None:
        _MAKING.set(self)
        await self.finish(cell)
        self.in_memory.pop(cell.run_id, None)
        self.news.rows.append((cell.run_id, self.rows.pop(cell.run_id)))
        self.changed.set()

    async def _execution(self, cell: Cell, strategy: Strategy, task: Task, path: Path | None) -> Execution:
        header, kept = self.kept.pop(cell.run_id)
        start = self.runner.start
        return start(strategy, task, header=header, path=None, budget=self.budget, kept=kept or None)

    def following(self, header: Header, lines: Sequence[Line], path: Path | None) -> Watcher:
        """Return a watcher that reports the records of a run."""

        def report(lines: Sequence[Line]) -> None:
            self.news.lines.append((header.id, lines_text(header, lines)))
            self.changed.set()

        return report

    def ask(self, operation: str, key: str, data: bytes = b"") -> asyncio.Future[bytes | None]:
        """Let the client's cache carry out an operation."""
        ticket = next(self.tickets)
        result = self.results[ticket] = self.loop.create_future()
        self.news.requests.append((ticket, operation, key, data))
        self.changed.set()
        return result

    async def exchange(self, results: list[Result]) -> News:
        """Take in results of requests and return news."""
        for ticket, data, error in results:
            result = self.results.pop(ticket)
            if not result.done():
                result.set_exception(CacheError(error)) if error else result.set_result(data)
        with suppress(TimeoutError):
            await asyncio.wait_for(self.changed.wait(), POLL)
        self.changed.clear()
        news, self.news = self.news, News()
        return news


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


_MAKING: ContextVar[_Making | None] = ContextVar("making", default=None)


def _collect_warnings() -> None:
    """Let the warnings of runs of workers be shown by their clients."""
    forget_warnings()
    shown = warnings.showwarning

    def show(message: Warning | str, *where: Any, **more: Any) -> None:
        making = _MAKING.get()
        if making is None:
            shown(message, *where, **more)
        else:
            making.news.warnings.append(f"from a dask worker: {message}")

    show.of_tot_lab = True  # type: ignore[attr-defined]
    if not getattr(shown, "of_tot_lab", False):
        warnings.showwarning = show


# The client's side.


async def make_with_workers(
    client: Any, sweep: Sweep, cells: Sequence[Cell], at_once: int | None, update: Callable[[], None]
) -> None:
    """Carry out the runs of `cells`, the tasks in this order, on the workers of the dask `client`."""
    if not isinstance(client, Client):
        raise TypeError(f"client must be a dask.distributed.Client: got {client!r}.")
    threads = sum((await _in_loop(client, client.nthreads)).values())
    if not threads:
        raise ValueError("The dask cluster has no workers. Start some, for example with cluster.scale(2).")
    by_task = defaultdict[int, list[Cell]](list)
    for cell in cells:
        by_task[cell.task].append(cell)
    models = _endpoints(sweep)
    limits = [limit for model in models for limit in (model.concurrency, model.requests_per_minute)]
    of = min(filter(None, [threads, len(by_task), at_once, *limits]))
    limiter = sweep.runner.gateway.spend_limiter
    spend = None if limiter.cap is None else max(0.0, limiter.cap - limiter.total) / of
    pause = MINUTE if any(m.requests_per_minute or m.tokens_per_minute for m in models) else 0.0
    work = _Work(client, sweep, Parcel(sweep), deque(by_task.values()), [[] for _ in range(of)], spend, pause)
    workers = [_Worker(work, place) for place in range(of)]
    making = [
        sweep.make((), ((at_once or sweep.window()) + place) // of, update, worker.more, worker.carry_out)
        for place, worker in enumerate(workers)
    ]
    tasks: list[asyncio.Future[Any]] = [asyncio.gather(*making)]
    tasks += (asyncio.create_task(worker.serve()) for worker in workers)
    try:
        for ended in (await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED))[0]:
            ended.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _in_loop(client: Client, call: Callable[[], Any]) -> asyncio.Future[Any]:
    """Call what a dask client does without blocking, in the client's own event loop."""

    async def calling() -> Any:
        with client.as_current():
            made = call()
        return await made

    loop: Any = client.loop
    return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(calling(), loop.asyncio_loop))


def _endpoints(sweep: Sweep) -> list[Endpoint]:
    """Return the models of a sweep that have limits."""
    gateway = sweep.runner.gateway
    strategies = sweep.settings.values()
    names = {name for one in strategies for name in model_names(one)} - {*gateway.roles}
    models = [gateway.model, *map(sweep.model_of, gateway.roles), *map(gateway.model_of, sorted(names))]
    models += [model for one in strategies for model in models_of(one).values()]
    return [model for model in models if isinstance(model, Endpoint)]


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=3)


class _Work(NamedTuple):
    """What the workers of a sweep share.

    Attributes:
        tasks: The runs of each task that no worker has.
        given: By worker, the runs of each task that it was given.
        spend: USD that each worker may spend.
        pause: Seconds until the requests of a dead worker no longer count towards the limits.
    """

    client: Client
    sweep: Sweep
    parcel: Parcel
    tasks: deque[list[Cell]]
    given: list[list[list[Cell]]]
    spend: float | None
    pause: float

    def unfinished(self, place: int) -> int:
        """Return the number of tasks of a worker that are not finished."""
        rows = self.sweep.rows
        self.given[place][:] = [
            cells for cells in self.given[place] if any(cell.run_id not in rows for cell in cells)
        ]
        return len(self.given[place])


class _Worker:
    """One worker after the other, as the client sees it."""

    def __init__(self, work: _Work, place: int) -> None:
        self.work, self.place, self.spend = work, place, work.spend
        self.runs: dict[str, tuple[Recorder, asyncio.Future[Row]]] = {}
        self.deaths = Counter[str]()
        self.alone = asyncio.Lock()
        self.needed = asyncio.Event()
        self.actor: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def more(self) -> list[Cell]:
        """Return the runs of the next task. A worker has an even share of the unfinished tasks at most."""
        tasks, places = self.work.tasks, range(len(self.work.given))
        while tasks and self.work.unfinished(self.place) * len(places) >= len(tasks) + sum(
            map(self.work.unfinished, places)
        ):
            await asyncio.sleep(LOOK)
        if not tasks:
            return []
        self.work.given[self.place].append(tasks.popleft())
        return self.work.given[self.place][-1]

    async def carry_out(self, execution: Execution) -> Row:
        """Carry out a run. If its workers die, it is made alone, which tells whether it kills them.

        Raises:
            WorkerDied: If the worker died, and the run can be continued.
        """
        recorder, header = execution.recorder, execution.recorder.header
        execution.follow()
        kept = len(recorder.lines)
        journal = header_text(header) + lines_text(header, recorder.lines)
        done: asyncio.Future[Row] = asyncio.get_running_loop().create_future()
        self.needed.set()
        try:
            async with self.alone if self.deaths[header.id] >= MAX_DEATHS - 1 else nullcontext():
                actor = await asyncio.shield(self.actor)
                self.runs[header.id] = recorder, done
                try:
                    await _in_loop(self.work.client, lambda: actor.start(header.id, journal))
                except Exception:
                    if not (await asyncio.wait([done], timeout=NOTICE))[0]:
                        raise
                return await done
        except WorkerDied:
            self.deaths[header.id] += 1
            if self.deaths[header.id] < MAX_DEATHS:
                raise
            raise RuntimeError(f"{MAX_DEATHS} dask workers died while making this run.") from None
        finally:
            self.runs.pop(header.id, None)
            recorder.close()
            paid = payments(line for line in recorder.lines[kept:] if getattr(line.e, "name", "") != RESUMED)
            self.work.sweep.runner.gateway.spend_limiter.spend(paid)
            self.spend = None if self.spend is None else max(0.0, self.spend - paid)

    async def serve(self) -> None:
        """Serve one worker after the other."""
        await self.needed.wait()
        while True:
            await self._serve_one()
            _warn("A dask worker died. Calls that it waited for may be paid again.")
            self.actor = asyncio.get_running_loop().create_future()
            for _, done in self.runs.values():
                if not done.done():
                    done.set_exception(WorkerDied())
            await asyncio.sleep(self.work.pause)

    async def _serve_one(self) -> None:
        """Serve one worker until it dies."""
        client, key = self.work.client, f"tot_lab-{secrets.token_hex(8)}"

        async def submitted() -> Future[Any]:
            arguments = self.work.parcel, self.place, len(self.work.given), self.spend
            return client.submit(SweepWorker, *arguments, actor=True, key=key)

        future = await _in_loop(client, submitted)
        try:
            clock = asyncio.get_running_loop().time
            quiet = clock() + SILENCE
            while future.status == "pending":
                await asyncio.sleep(LOOK)
                if clock() > quiet and not await _in_loop(client, client.nthreads):
                    quiet = math.inf
                    _warn("The dask cluster has lost its workers. The sweep waits for new ones.")
            if future.status == "error":
                raise await _in_loop(client, future.exception)
            address = (await _in_loop(client, lambda: client.who_has([future])))[key]
            if not address:
                return
            with client.as_current():
                actor = Actor(SweepWorker, address[0], key)
            self.actor.set_result(actor)
            results: list[Result] = []
            while (news := await self._exchange(actor, future, results)) is not None:
                results = await self._take(news)
        finally:
            with suppress(Exception):  # it may have died, and the client may be closed
                if self.actor.done():
                    last = _in_loop(client, lambda: self.actor.result().stop())
                    await self._take(_news_in(await asyncio.wait_for(last, 2 * NOTICE)))
            with suppress(Exception):
                await _in_loop(client, lambda: client.cancel([future]))

    async def _exchange(self, actor: Any, future: Future[Any], results: list[Result]) -> News | None:
        """Return the news of a worker, or `None` if it died."""
        asking = _in_loop(self.work.client, lambda: actor.exchange(_encode(results)))
        try:
            while not (await asyncio.wait([asking], timeout=AGAIN))[0] and future.status == "finished":
                pass
            if asking.done():
                return _news_in(asking.result())
        except (OSError, LookupError, RuntimeError):
            until = time.monotonic() + NOTICE
            while future.status == "finished" and time.monotonic() < until:
                await asyncio.sleep(LOOK)
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

    async def _take(self, news: News) -> list[Result]:
        """Take in news. Returns the results of its requests to the cache."""
        for text in news.warnings:
            _warn(text)
        for run_id, lines in news.lines:
            if run_id in self.runs:
                recorder, done = self.runs[run_id]
                try:
                    recorder.extend(line_decoder.decode_lines(lines))
                except Exception as error:  # of a follower
                    done.set_exception(error)
        for run_id, row in news.rows:
            if run_id in self.runs and not self.runs[run_id][1].done():
                self.runs[run_id][1].set_result(row)
        return list(await asyncio.gather(*(self._result(*request) for request in news.requests)))

    async def _result(self, ticket: int, operation: str, key: str, data: bytes) -> Result:
        """Carry out an operation of the cache."""
        try:
            cache = self.work.sweep.runner.gateway.cache
            if operation == "find":
                found = cache.stored(key, msgspec.json.decode(data))
                return ticket, found and found[0], ""
            if operation == "explain":
                call, request = msgspec.json.decode(data, type=tuple[Call, Request])
                return ticket, (await cache.explain_miss(call, request)).encode(), ""
            weights = stored_in(key, data).weights
            is_new = await cache.keep(key, data, weights, replace=operation == "replace")
            return ticket, b"" if is_new else None, ""
        except (OSError, CacheError) as error:
            return ticket, None, str(error)
