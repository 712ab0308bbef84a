"""A sweep on the workers of a dask cluster.

Work is split by task when the sweep starts: a worker makes all runs of its tasks, so that equal calls are
made on one worker and share a reply. Journals and cache stay with the client; no file system is shared.
Each worker is a dask actor that the client polls: records go into the journals on the client's disk while
runs are made, and replies are looked up and stored in the client's cache before they are used. After the
death of a worker, another one continues its journals. The limits of each model and `spend` are divided among
the workers at the start.

Settings and functions of the user travel to the workers pickled by cloudpickle, like everything that dask
sends.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import secrets
import sys
import threading
import warnings
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext, suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from tot_lab._version import __version__
from tot_lab.core import parts
from tot_lab.core.extras import requires
from tot_lab.core.model_setting import model_names, models_of
from tot_lab.core.records import RESUMED, Line, payments
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Task
from tot_lab.lab.sweeps.sweep import AGAIN, LOOK, Cell, Row, Sweep, WorkerDied, forget_warnings
from tot_lab.models.cache import Cache
from tot_lab.models.limits import MINUTE, divide_limits
from tot_lab.models.stack import Endpoint
from tot_lab.models.store import CacheError
from tot_lab.record.journal import Header, header_text, lines_in, lines_text, parse_journal
from tot_lab.runtime.recorder import Recorder
from tot_lab.runtime.runner import Execution, Runner, Watcher

try:
    import cloudpickle
    from distributed import Actor, Client, Future
except ImportError:
    raise ImportError(requires("client=", "dask", "dask")) from None

POLL = 0.2
"""Seconds after which a worker without news answers a poll of the client."""

SILENCE = 30.0
"""Seconds for which the cluster may have no worker before the client warns."""

NOTICE = 10.0
"""Seconds that dask may need to notice the death of a worker."""

MAX_DEATHS = 3
"""Number of workers that die while making one run, the last one without other runs, after which the run
has failed.
"""


def digest_of(folder: Path) -> str:
    """Return a digest of the code in a folder."""
    code = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        code.update(f"{path.relative_to(folder).as_posix()}\n".encode() + path.read_bytes())
    return code.hexdigest()[:12]


PACKAGE = "tot_lab {} (code {}) on Python {}.{}".format(
    __version__, digest_of(Path(__file__).parents[2]), *sys.version_info[:2]
)
"""Version and code digest of tot_lab and version of Python, as loaded by this process."""


class News(NamedTuple):
    """What a worker reports to the client.

    Attributes:
        runs: Run id, new lines of the journal, and the row if the run is finished.
        requests: Calls of the client's cache: ticket, method, arguments and keyword arguments.
        warnings: Texts of warnings.
    """

    runs: list[tuple[str, bytes, Row | None]]
    requests: list[tuple[int, str, tuple[Any, ...], dict[str, Any]]]
    warnings: list[str]


Result = tuple[int, Any, Exception | None]
"""The result of a request to the cache: its ticket, and what the method returned or raised."""


class Parcel:
    """The pickled settings of a sweep. Its repr reveals none of them, because dask shows and logs what it
    sends.
    """

    def __init__(self, sweep: Sweep) -> None:
        self.package = PACKAGE
        gateway = sweep.runner.gateway
        cache = gateway.given_cache
        path = cache.path if isinstance(cache, Cache) else cache and Path(cache)
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
            raise RuntimeError(
                f"a dask worker has {PACKAGE}, and the client {self.package}. Install the same version on "
                f"all machines, and restart the workers."
            )
        about: tuple[Any, ...] = cloudpickle.loads(self.data)
        for part in (about[0].model, *about[0].tools):
            if isinstance(part, parts.Part):
                parts.REGISTRY.setdefault(part.kind, type(part))  # a class that was defined in a notebook
        return about


# The worker's side.


class SweepWorker:
    """A dask actor that makes runs in a separate thread until dask drops the actor.

    Args:
        parcel: The sweep.
        place: Index of this worker.
        of: Number of workers, among which the limits are divided.
        spend: USD that this worker may spend. `None` means no limit.
    """

    def __init__(self, parcel: Parcel, place: int, of: int, spend: float | None) -> None:
        self.making = making = _Making(parcel, place, of, spend)
        weakref.finalize(self, making.stop)
        threading.Thread(target=making.in_thread, name="tot_lab-sweep", daemon=True).start()

    async def call(self, method: str, *given: Any) -> Any:
        """Call a method of `_Making` in its thread."""
        coming = getattr(self.making, method)(*given)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coming, self.making.loop))


class _Making(Sweep):
    """The part of a sweep that a worker makes. Its records are collected as news for the client."""

    def __init__(self, parcel: Parcel, place: int, of: int, spend: float | None) -> None:
        settings, path, *about = parcel.opened()
        cache = _ClientCache(self, path)
        runner = Runner(replace(settings, cache=path and cache, spend=spend), followers=[self])
        runner.gateway.opened = cache
        super().__init__(runner, *about, runs=None)
        self.place, self.of = place, of
        self.news = News([], [], [])
        self.changed = asyncio.Event()
        self.tickets = count()
        self.results: dict[int, asyncio.Future[Any]] = {}
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
        """Stop the thread. It is called when dask drops the actor."""
        with suppress(RuntimeError):  # the process is ending
            self.loop.call_soon_threadsafe(self.loop.stop)

    async def cancel(self) -> News:
        """Cancel all runs. Returns the news that were not yet sent."""
        for task in self.running:
            task.cancel()
        if self.running:
            await asyncio.wait(self.running, timeout=NOTICE)
        return self.take_news()

    def take_news(self) -> News:
        """Return the news since the last call."""
        news, self.news = self.news, News([], [], [])
        return news

    async def start(self, run_id: str, journal: bytes) -> None:
        """Start a run, or continue it after the lines of `journal`."""
        header, lines, _ = parse_journal(journal, run_id)
        self.kept[run_id] = header, lines
        task = self.loop.create_task(self._finish(self.by_id[run_id]))
        self.running.add(task)
        task.add_done_callback(self.running.discard)

    async def _finish(self, cell: Cell) -> None:
        _MAKING.set(self)
        await self.finish(cell)
        self.in_memory.pop(cell.run_id, None)
        self.news.runs.append((cell.run_id, b"", self.rows.pop(cell.run_id)))
        self.changed.set()

    async def _execution(self, cell: Cell, strategy: Strategy, task: Task, path: Path | None) -> Execution:
        header, kept = self.kept.pop(cell.run_id)
        start = self.runner.start
        return start(strategy, task, header=header, path=None, budget=self.budget, kept=kept or None)

    def following(self, header: Header, lines: Sequence[Line], path: Path | None) -> Watcher:
        """Return a watcher that reports the records of a run."""

        def report(lines: Sequence[Line]) -> None:
            self.news.runs.append((header.id, lines_text(header, lines), None))
            self.changed.set()

        return report

    def ask(self, method: str, *given: Any, **named: Any) -> asyncio.Future[Any]:
        """Request the result of a method of the client's cache, which arrives with a later poll."""
        ticket = next(self.tickets)
        result = self.results[ticket] = self.loop.create_future()
        self.news.requests.append((ticket, method, given, named))
        self.changed.set()
        return result

    async def exchange(self, results: list[Result]) -> News:
        """Take in `results` of earlier requests. Returns the news, after at most `POLL` seconds."""
        for ticket, returned, error in results:
            result = self.results.pop(ticket)
            if not result.done():
                result.set_exception(error) if error else result.set_result(returned)
        with suppress(TimeoutError):
            await asyncio.wait_for(self.changed.wait(), POLL)
        self.changed.clear()
        return self.take_news()


class _ClientCache(Cache):
    """The client's cache, as a worker uses it."""

    def __init__(self, making: _Making, path: Path | None) -> None:
        self.path, self.stores, self.newest = path or Path(), [], None
        for method in ("find", "keep", "explain_miss"):
            setattr(self, method, partial(making.ask, method))


_MAKING: ContextVar[_Making | None] = ContextVar("making", default=None)


def _collect_warnings() -> None:
    """Send the warnings of a worker's runs to the client, which shows them."""
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
    """Deal out the tasks of `cells` among the workers of the dask `client`, and carry out their runs."""
    if not isinstance(client, Client):
        raise TypeError(f"client must be a dask.distributed.Client: got {client!r}.")
    threads = sum((await _in_loop(client, client.nthreads)).values())
    if not threads:
        raise ValueError("The dask cluster has no workers. Start some, for example with cluster.scale(2).")
    tasks = {task: number for number, task in enumerate(dict.fromkeys(cell.task for cell in cells))}
    models = _endpoints(sweep)
    limits = [limit for model in models for limit in (model.concurrency, model.requests_per_minute)]
    of: int = min(filter(None, [threads, len(tasks), at_once, *limits]))
    limiter = sweep.runner.gateway.spend_limiter
    spend = None if limiter.cap is None else max(0.0, limiter.cap - limiter.total) / of
    pause = MINUTE if any(m.requests_per_minute or m.tokens_per_minute for m in models) else 0.0
    parcel = Parcel(sweep)
    workers = [_Worker(client, sweep, (parcel, place, of), spend, pause) for place in range(of)]

    def remotely(execution: Execution) -> Awaitable[Row]:
        task = sweep.by_id[execution.recorder.header.id].task
        return workers[tasks[task] % of].carry_out(execution)

    work = [sweep.make(cells, at_once or sweep.window(), update, remotely), *(w.serve() for w in workers)]
    running = [asyncio.ensure_future(one) for one in work]
    try:
        for ended in (await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED))[0]:
            ended.result()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _in_loop(client: Client, call: Callable[[], Any]) -> asyncio.Future[Any]:
    """Run an asynchronous call of a dask client in the client's event loop."""

    async def calling() -> Any:
        with client.as_current():
            made = call()
        return await made

    loop: Any = client.loop
    return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(calling(), loop.asyncio_loop))


def _endpoints(sweep: Sweep) -> list[Endpoint]:
    """Return all models of a sweep that are endpoints, which may have limits."""
    gateway = sweep.runner.gateway
    strategies = sweep.settings.values()
    names = {name for one in strategies for name in model_names(one)} - {*gateway.roles}
    models = [gateway.model, *map(sweep.model_of, gateway.roles), *map(gateway.model_of, sorted(names))]
    models += [model for one in strategies for model in models_of(one).values()]
    return [model for model in models if isinstance(model, Endpoint)]


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=3)


class _Worker:
    """The client's side of a worker. After its death, another worker takes its place.

    Args:
        client: The dask client.
        sweep: The sweep.
        given: Arguments of `SweepWorker`: the parcel, the index of the worker and the number of workers.
        spend: USD that the worker and its successors may spend. `None` means no limit.
        pause: Seconds until the requests of a dead worker no longer count towards the limits.
    """

    def __init__(
        self, client: Client, sweep: Sweep, given: tuple[Any, ...], spend: float | None, pause: float
    ) -> None:
        self.client, self.sweep, self.given, self.spend, self.pause = client, sweep, given, spend, pause
        self.runs: dict[str, tuple[Recorder, asyncio.Future[Row]]] = {}
        self.deaths = Counter[str]()
        self.alone = asyncio.Lock()
        self.needed = asyncio.Event()
        self.actor: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.asking: list[asyncio.Future[News]] = []
        """The poll in flight, if any."""

    async def carry_out(self, execution: Execution) -> Row:
        """Carry out a run. If its workers die again and again, it is made without other runs, to see whether
        it is the cause.

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
                    await _in_loop(self.client, lambda: actor.call("start", header.id, journal))
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
            self.sweep.runner.gateway.spend_limiter.spend(paid)
            self.spend = None if self.spend is None else max(0.0, self.spend - paid)

    async def serve(self) -> None:
        """Start a worker when a run needs one, and another one after each death."""
        await self.needed.wait()
        while True:
            await self._serve_one()
            _warn("A dask worker died. Calls that it waited for may be paid again.")
            self.actor = asyncio.get_running_loop().create_future()
            for _, done in self.runs.values():
                if not done.done():
                    done.set_exception(WorkerDied())
            await asyncio.sleep(self.pause)

    async def _serve_one(self) -> None:
        """Start one worker, and poll it until it dies."""
        client, key = self.client, f"tot_lab-{secrets.token_hex(8)}"
        future = client.submit(SweepWorker, *self.given, self.spend, actor=True, key=key)
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
            await self._exchange(actor, future)
        except BaseException:  # the sweep ends, and the worker may be alive
            with suppress(Exception):  # the client may be closed
                if self.actor.done():
                    last = _in_loop(client, lambda: self.actor.result().call("cancel"))
                    for news in await asyncio.wait_for(asyncio.gather(*self.asking, last), 2 * NOTICE):
                        await self._take(news)
            raise
        finally:
            for asking in self.asking:
                asking.cancel()
            with suppress(Exception):
                await _in_loop(client, lambda: client.cancel([future]))

    async def _exchange(self, actor: Any, future: Future[Any]) -> None:
        """Take in the news of a worker until it dies."""
        lost = asyncio.create_task(_until_lost(future))
        results: list[Result] = []
        try:
            while True:
                # `actor.call` itself raises if the worker is dead.
                asking = _in_loop(self.client, lambda results=results: actor.call("exchange", results))  # type: ignore[misc]
                self.asking = [asking]
                await asyncio.wait([asking, lost], return_when=asyncio.FIRST_COMPLETED)
                if not asking.done() or asking.exception():
                    await asyncio.wait([lost], timeout=NOTICE)
                    if lost.done():
                        lost.result()
                        return
                self.asking = []
                results = await self._take(asking.result())
        finally:
            lost.cancel()

    async def _take(self, news: News) -> list[Result]:
        """Take in news. Returns the results of its requests to the cache."""
        for text in news.warnings:
            _warn(text)
        for run_id, lines, row in news.runs:
            if run_id not in self.runs or self.runs[run_id][1].done():
                continue
            recorder, done = self.runs[run_id]
            try:
                recorder.extend(lines_in(lines, run_id))
                if row is not None:
                    done.set_result(row)
            except Exception as error:  # raised by a follower
                done.set_exception(error)
        return list(await asyncio.gather(*(self._result(*request) for request in news.requests)))

    async def _result(self, ticket: int, method: str, given: Any, named: Any) -> Result:
        """Call a method of the cache."""
        try:
            cache = self.sweep.runner.gateway.cache
            return ticket, await getattr(cache, method)(*given, **named), None
        except (OSError, CacheError) as error:
            return ticket, None, error


async def _until_lost(future: Future[Any]) -> None:
    """Wait until an actor is lost. Raises `RuntimeError` if dask gave up on it."""
    while future.status == "finished":
        await asyncio.sleep(AGAIN)
    if future.status != "error":
        raise RuntimeError(
            f"Dask gave up the tasks of the sweep ({future.status}), for example because the client was "
            f"closed or restarted. Call lab.sweep again to continue."
        )
