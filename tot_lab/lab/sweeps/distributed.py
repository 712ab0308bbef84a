"""A sweep on the workers of a dask cluster.

Work is split by task when the sweep starts: a worker makes all runs of its tasks, so that equal calls are
made on one worker and share a reply. Journals and cache stay with the client; no file system is shared.
Each worker is a dask actor with one method, `exchange`, which the client calls again and again: it takes runs
to start, and returns records and requests for the client's cache. A reply is in that cache before it is used.
If an exchange fails, another worker continues the unfinished runs from their journals. The limits of
each model and `spend` are divided among the workers at the start.

The user's settings and functions are sent to the workers pickled with cloudpickle.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
import threading
import warnings
import weakref
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext, suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any, NamedTuple

from tot_lab._version import __version__
from tot_lab.core import parts
from tot_lab.core.calls import format_error
from tot_lab.core.extras import requires
from tot_lab.core.model_setting import model_names, models_of
from tot_lab.core.records import RESUMED, payments
from tot_lab.lab.sweeps.sweep import AGAIN, LOOK, Cell, Sweep, WorkerDied, forget_warnings
from tot_lab.models.cache import Cache
from tot_lab.models.limits import MINUTE, divide_limits
from tot_lab.models.stack import Endpoint
from tot_lab.record.journal import header_text, lines_in, lines_text, parse_journal
from tot_lab.record.rows import Row
from tot_lab.runtime.runner import Execution, Runner

try:
    import cloudpickle
    from distributed import Actor, Client, Future
except ImportError:
    raise ImportError(requires("client=", "dask", "dask")) from None

POLL = 0.2
"""Seconds after which an exchange without news returns."""

ANSWER = 600.0
"""Seconds without an answer after which a worker counts as dead. Usually dask reports its death at once."""

MAX_DEATHS = 3
"""A run has failed when this many workers have died while making it. Before its last try, it waits until no
other run in its last try is being made.
"""


def digest_of(folder: Path) -> str:
    """Return a digest of the code in a folder."""
    code = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        code.update(f"{path.relative_to(folder).as_posix()}\n".encode() + path.read_bytes())
    return code.hexdigest()[:12]


CODE = digest_of(Path(__file__).parents[2])
PACKAGE = "tot_lab {} (code {}) on Python {}.{}".format(__version__, CODE, *sys.version_info[:2])
"""Version and code digest of tot_lab and version of Python, as loaded by this process."""


class News(NamedTuple):
    """What a worker reports to the client.

    Attributes:
        runs: Run id, new lines of the journal, and the row if the run is finished.
        requests: Functions that call a method of the client's cache. The next exchange brings their results
            in this order.
        warnings: Texts of warnings.
    """

    runs: list[tuple[str, bytes, Row | None]]
    requests: list[Callable[[Cache], Awaitable[Any]]]
    warnings: list[str]


class Parcel:
    """The pickled settings of a sweep. Its repr reveals none of them, because dask shows and logs what it
    sends.
    """

    def __init__(self, sweep: Sweep) -> None:
        self.package = PACKAGE
        repeats = max(cell.repeat for cell in sweep.cells) + 1
        plan = sweep.settings, [*sweep.tasks.values()], repeats, sweep.name, sweep.budget
        try:
            self.data: bytes = cloudpickle.dumps((sweep.runner.settings.portable(), *plan))
        except Exception as error:
            raise TypeError(
                f"A model, tool, strategy or task of this sweep cannot be sent to the workers: {error}. "
                "Define its class or function at module level: inside a function it takes variables along."
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
                parts.REGISTRY.setdefault(part.kind, type(part))  # a class of a notebook is not registered
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
        self.making = _Making(parcel, spend)
        self.loop = asyncio.new_event_loop()
        self.loop.call_soon(divide_limits, place, of)
        weakref.finalize(self, self.loop.call_soon_threadsafe, self.loop.stop)
        threading.Thread(target=_live, args=[self.loop], name="tot_lab-sweep", daemon=True).start()

    async def exchange(self, starts: dict[str, bytes], results: list[Any]) -> News:
        """Start runs, each after the lines of its journal, and take in the results of earlier requests.
        Returns the news, after at most `POLL` seconds.
        """
        news = self.making.exchange(starts, results)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(news, self.loop))


def _live(loop: asyncio.AbstractEventLoop) -> None:
    """Run an event loop until it is stopped, and cancel its tasks."""
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.get_loop().run_forever()


class _Making(Sweep):
    """The part of a sweep that a worker makes. Its records are collected as news for the client."""

    def __init__(self, parcel: Parcel, spend: float | None) -> None:
        settings, *plan = parcel.opened()
        cache = _ClientCache(self)
        runner = Runner(replace(settings, cache=settings.cache and cache, spend=spend))
        runner.gateway.opened = cache
        super().__init__(runner, *plan, runs=None)
        self.news = News([], [], [])
        self.changed = asyncio.Event()
        self.waiting: list[asyncio.Future[Any]] = []
        self.journals: dict[str, bytes] = {}
        self.making: dict[str, asyncio.Task[None]] = {}
        forget_warnings()
        if getattr(warnings.showwarning, "func", None) is not _show:
            warnings.showwarning = partial(_show, warnings.showwarning)

    async def exchange(self, starts: dict[str, bytes], results: list[Any]) -> News:
        """See `SweepWorker.exchange`."""
        self.journals |= starts
        for run_id in starts:
            self.making[run_id] = asyncio.create_task(self._make(self.by_id[run_id]))
        for returned in results:
            result = self.waiting.pop(0)
            if not result.done():
                (result.set_exception if isinstance(returned, Exception) else result.set_result)(returned)
        with suppress(TimeoutError):
            await asyncio.wait_for(self.changed.wait(), POLL)
        self.changed.clear()
        news, self.news = self.news, News([], [], [])
        return news

    async def _make(self, cell: Cell) -> None:
        _MAKING.set(self)
        await self.finish(cell)
        self.in_memory.pop(cell.run_id, None)
        self._report(cell.run_id, b"", self.rows.pop(cell.run_id))

    async def _execution(self, cell: Cell) -> Execution:
        header, kept, _ = parse_journal(self.journals.pop(cell.run_id), cell.run_id)
        running = self.runner.start(*self.part(cell), header=header, path=None, budget=self.budget, kept=kept)
        running.recorder.watchers.append(lambda new: self._report(header.id, lines_text(header, new), None))
        return running

    def _report(self, run_id: str, lines: bytes, row: Row | None) -> None:
        self.news.runs.append((run_id, lines, row))
        self.changed.set()

    def ask(self, method: str, *given: Any, **named: Any) -> asyncio.Future[Any]:
        """Request the result of a method of the client's cache, which a later exchange brings."""
        self.news.requests.append(methodcaller(method, *given, **named))
        self.waiting.append(result := asyncio.get_running_loop().create_future())
        self.changed.set()
        return result


class _ClientCache(Cache):
    """The client's cache, as a worker uses it."""

    def __init__(self, making: _Making) -> None:
        self.path, self.stores, self.newest = Path(), [], None
        for method in ("find", "keep", "explain_miss"):
            setattr(self, method, partial(making.ask, method))


_MAKING: ContextVar[_Making | None] = ContextVar("making", default=None)


def _show(otherwise: Callable[..., None], message: Warning | str, *where: Any, **more: Any) -> None:
    """Send a warning of a worker's run to the client, which shows it. Pass other warnings to `otherwise`."""
    if (making := _MAKING.get()) is None:
        otherwise(message, *where, **more)
    else:
        making.news.warnings.append(f"from a dask worker: {message}")


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
    models = _endpoints(sweep)
    limits = [limit for model in models for limit in (model.concurrency, model.requests_per_minute)]
    of: int = min(filter(None, [threads, len(sweep.tasks), at_once, *limits]))
    limiter = sweep.runner.gateway.spend_limiter
    spend = None if limiter.cap is None else max(0.0, limiter.cap - limiter.total) / of
    pause = MINUTE if any(m.requests_per_minute or m.tokens_per_minute for m in models) else 0.0
    parcel = Parcel(sweep)
    workers = [_Worker(client, sweep, (parcel, place, of), spend, pause) for place in range(of)]

    def remotely(cell: Cell, execution: Execution) -> Awaitable[Row]:
        return workers[cell.task % of].carry_out(execution)

    work = [sweep.make(cells, at_once or sweep.window(), update, remotely), *(w.serve() for w in workers)]
    running = [asyncio.ensure_future(one) for one in work]
    try:
        for ended in (await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED))[0]:
            ended.result()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _in_loop(client: Any, call: Callable[..., Any], *given: Any) -> asyncio.Future[Any]:
    """Run an asynchronous call of a dask client in the client's event loop."""

    async def calling() -> Any:
        with client.as_current():
            return await call(*given)

    return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(calling(), client.loop.asyncio_loop))


def _endpoints(sweep: Sweep) -> list[Endpoint]:
    """Return all models of a sweep that are endpoints, which may have limits."""
    gateway, strategies = sweep.runner.gateway, sweep.settings.values()
    names = {name for one in strategies for name in model_names(one)} - {*gateway.roles}
    models = [gateway.model, *map(sweep.model_of, gateway.roles), *map(gateway.model_of, sorted(names))]
    models += [model for one in strategies for model in models_of(one).values()]
    return [model for model in models if isinstance(model, Endpoint)]


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
        self.inboxes: dict[str, asyncio.Queue[tuple[bytes, Row | None] | None]] = {}
        """New lines and the row of each run, by its id. `None` means that the worker died."""
        self.starts: dict[str, bytes] = {}
        """The journals so far of the runs that the next exchange starts, by run id."""
        self.deaths = dict.fromkeys(sweep.by_id, 0)
        """Number of workers that died while making each run."""
        self.alone = asyncio.Lock()
        """Held by a run in its last try."""

    async def carry_out(self, execution: Execution) -> Row:
        """Carry out a run. Runs whose workers died again and again are made one at a time, to see which of
        them is the cause.

        Raises:
            WorkerDied: If the worker died, and the run can be continued.
        """
        execution.follow()
        recorder, header = execution.recorder, execution.recorder.header
        kept = len(recorder.lines)
        try:
            async with self.alone if self.deaths[header.id] >= MAX_DEATHS - 1 else nullcontext():
                self.starts[header.id] = header_text(header) + lines_text(header, recorder.lines)
                inbox = self.inboxes[header.id] = asyncio.Queue()
                while (news := await inbox.get()) is not None:
                    recorder.extend(lines_in(news[0], header.id))
                    if news[1] is not None:
                        return news[1]
            self.deaths[header.id] += 1
            if self.deaths[header.id] < MAX_DEATHS:
                raise WorkerDied
            raise RuntimeError(f"{MAX_DEATHS} dask workers died while making this run.")
        finally:
            self.inboxes.pop(header.id, None)
            recorder.close()
            paid = payments(line for line in recorder.lines[kept:] if getattr(line.e, "name", "") != RESUMED)
            self.sweep.runner.gateway.spend_limiter.spend(paid)
            self.spend = None if self.spend is None else max(0.0, self.spend - paid)

    async def serve(self) -> None:
        """Start a worker, and another one after each death."""
        while True:
            future = self.client.submit(SweepWorker, *self.given, self.spend, actor=True, pure=False)
            try:
                why = await self._exchange(future)
            finally:
                with suppress(Exception):  # the client may be closed
                    await _in_loop(self.client, self.client.cancel, [future])
            if self.client.status != "running":
                raise RuntimeError(f"The dask client is {self.client.status}. Call lab.sweep again.")
            self.starts = {}
            for inbox in self.inboxes.values():
                inbox.put_nowait(None)
            await asyncio.sleep(self.pause or AGAIN)  # also lets dask notice the death
            left = len(await _in_loop(self.client, self.client.nthreads))
            text = f"A dask worker died: {why}. Its open calls may be paid again. Workers left: {left}."
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    async def _exchange(self, future: Future[Any]) -> str:
        """Give a worker its runs and take in its news, until it dies. Returns the error that showed this.
        Raises the exception of a worker that could not be created.
        """
        if (error := await _in_loop(self.client, future.exception)) is not None:
            raise error
        for address in (await _in_loop(self.client, self.client.who_has, [future]))[future.key]:
            with self.client.as_current():
                actor = Actor(SweepWorker, address, future.key)
            results: list[Any] = []
            while True:
                starts, self.starts = self.starts, {}
                try:
                    async with asyncio.timeout(ANSWER):
                        news: News = await _in_loop(self.client, actor.exchange, starts, results)
                except Exception as failed:
                    return format_error(failed)
                for text in news.warnings:
                    warnings.warn(text, RuntimeWarning, stacklevel=2)
                for run_id, lines, row in news.runs:
                    if run_id in self.inboxes:
                        self.inboxes[run_id].put_nowait((lines, row))
                asked = (request(self.sweep.runner.gateway.cache) for request in news.requests)
                results = await asyncio.gather(*asked, return_exceptions=True)
                await asyncio.sleep(LOOK)  # lets further runs start
        return "it was lost at its start"
