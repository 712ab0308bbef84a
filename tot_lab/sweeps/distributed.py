"""A sweep on the workers of a dask cluster.

Rule: the workers only make runs; the sweep stays with the client. A dask task is a chunk of runs on one
event loop. While it goes on, its journals and rows come back, and a run counts when its journal is on
the client's disk: no file system need be shared. Plans are written from these journals by the client
alone (`tl.Plans`). A chunk whose worker died is handed out again without
what has come back, and with the journals of the rest as far as they are known.

Workers divide the limits of an endpoint among them. They share answers through the cache alone: its
folder where they are on the client's machine, and from one machine to another its `shared` Redis.

What travels are the user's own settings and functions, between the user's own machines: cloudpickle
packs them, as it does all that dask sends. What comes back is data, and is read as such.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import tempfile
import threading
import warnings
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from tot_lab.core import parts
from tot_lab.core.parts import Part, UserFunction
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Task
from tot_lab.core.thinking import Budget
from tot_lab.journal import Header, JournalError, header_text, line_decoder, lines_text
from tot_lab.models.cache import Cache, default_folder
from tot_lab.models.limits import share_limits, share_of
from tot_lab.models.stack import Endpoint
from tot_lab.plan_store import Following
from tot_lab.run import load
from tot_lab.sweeps.sweep import Cell, Row, Sweep, begun
from tot_lab.version import __version__

if TYPE_CHECKING:
    from tot_lab.lab import Lab

FEW = 32
"""Runs that keep a worker busy, since most ask several calls at once; fewer are handed out at the end."""

TELL = 0.2
"""Seconds between two reports of a worker: what it loses at most when it dies."""

LONG = 30.0
"""Seconds without any report after which the client looks whether there are workers."""

DEATHS = 3
"""Workers that may die over one run, alone in its chunk, before its row says so."""


class Chunk(NamedTuple):
    """What a worker needs to make some runs of a sweep.

    lab: the lab's settings, its cache apart. cache: folder and address of the shared one, None without
    any. host: the client's. journals: by run id, what there is of each run. part, of: which part of
    every limit is this chunk's. queue: where it reports.
    """

    key: str
    queue: str
    host: str
    lab: dict[str, Any]
    cache: tuple[Path, str | None] | None
    strategies: dict[str, Strategy]
    tasks: list[Task]
    repeats: int
    name: str
    budget: Budget | None
    journals: dict[str, bytes]
    part: int
    of: int
    at_once: int


class Parcel:
    """A chunk on its way. dask shows and logs what it carries: this shows nothing of it."""

    def __init__(self, chunk: Chunk) -> None:
        import cloudpickle  # noqa: PLC0415  dask's own

        self.version = __version__
        self.runs = len(chunk.journals)
        try:
            self.data: bytes = cloudpickle.dumps(chunk)
        except Exception as error:
            raise TypeError(
                f"a model, tool, strategy or task of this sweep cannot be sent to the workers: {error}. "
                f"What is defined inside a function takes that function's variables along: define it outside"
            ) from error

    def __repr__(self) -> str:
        return f"<{self.runs} runs>"

    def opened(self) -> Chunk:
        """The chunk."""
        import cloudpickle  # noqa: PLC0415

        if self.version != __version__:
            raise RuntimeError(
                f"this worker has tot_lab {__version__} and the client {self.version}; they must be the same"
            )
        chunk: Chunk = cloudpickle.loads(self.data)
        for part in (chunk.lab["model"], *chunk.lab["tools"]):
            parts.REGISTRY.setdefault(part.kind, type(part))  # a class that was made in a notebook
        return chunk


class Told(msgspec.Struct):
    """A worker's report. journals: run id, and the bytes of its journal from a place on. rows: of the
    runs that are over. spent: USD since the last report. end: why the chunk is over."""

    chunk: str
    journals: list[tuple[str, int, bytes]] = []
    rows: list[tuple[str, Row]] = []
    spent: float = 0.0
    warnings: list[str] = []
    end: Literal["", "done", "interrupted"] = ""


_encoded = msgspec.msgpack.Encoder().encode
_told = msgspec.msgpack.Decoder(Told).decode


# At the client.


async def made_by_workers(
    sweep: Sweep, cells: Sequence[Cell], client: Any, at_once: int | None, tell: Callable[[], None]
) -> None:
    """Make `cells` of `sweep`, in this order, with the workers of `client`."""
    try:
        from distributed import Client, Queue  # noqa: PLC0415  an extra
    except ImportError:
        raise ImportError("client= needs dask: pip install 'tot-lab[dask]'") from None
    if not isinstance(client, Client):
        raise TypeError(f"client must be a dask.distributed.Client, not {client!r}")
    _refuse(sweep.lab)
    left = [cell for cell in cells if not await _is_known(sweep, cell, tell)]
    if not left:
        return
    threads = sum((await _ask(client, client.nthreads)).values())
    if not threads:
        raise ValueError("the dask cluster has no worker; start some, such as with cluster.scale(2)")
    cached = any(map(sweep.lab.gateway.is_cached, _models(sweep)))
    if cached:
        await _expect_one_cache(sweep.lab, client)
    queue = await _ask(client, lambda: Queue(client=client))
    await _Client(sweep, left, client, queue, threads, at_once, tell).carry_out()


def _refuse(lab: Lab) -> None:
    """A ValueError for what does not hold across workers."""
    if lab.gateway.purse.cap is not None:
        raise ValueError(
            "spend= is kept in one process and not across workers: leave it out with client=, and cap each "
            "run by budget=tl.Budget(usd=…)"
        )
    if lab.gateway.mode == "refresh":
        raise ValueError("mode='refresh' goes with one process; with client=, take a new folder for cache=")


async def _expect_one_cache(lab: Lab, client: Any) -> None:
    """A ValueError when some workers could not know what the others were answered."""
    hosts = set((await _ask(client, client.run, this_host)).values())
    given = lab.gateway.given_cache
    if hosts - {this_host()} and not (isinstance(given, Cache) and given.shared is not None):
        raise ValueError(
            f"the workers run on other machines ({', '.join(sorted(hosts)[:3])}) and would not share their "
            f'answers: give the lab cache=tl.Cache(shared="redis://host:6379/0"), or mode="off"'
        )


def this_host() -> str:
    """The name of this machine."""
    return socket.gethostname()


async def _is_known(sweep: Sweep, cell: Cell, tell: Callable[[], None]) -> bool:
    """Whether a cell needs no worker: its journal is finished, or cannot be read."""
    try:
        run = sweep.finished(cell)
        if run is None:
            return False
        sweep.rows[cell.run_id] = sweep.row_of(run, *sweep.part(cell), None)
        sweep.found += 1
    except (JournalError, OSError):
        await sweep.finish(cell)  # its row says why not
    tell()
    await asyncio.sleep(0)  # many leave room for a cancel
    return True


async def _ask(client: Any, method: Callable[..., Any], *given: Any) -> Any:
    """What a method of dask's gives, of a client of either kind, without holding up the event loop."""
    if client.asynchronous:
        return await method(*given)
    return await asyncio.to_thread(method, *given)


def _models(sweep: Sweep) -> list[Any]:
    """The models that a sweep is known to ask."""
    gateway = sweep.lab.gateway
    named = {name for strategy in sweep.settings.values() if (name := getattr(strategy, "model", None))}
    roles = [sweep.model_of(role) for role in gateway.roles]
    return [gateway.model, *roles, *map(gateway.model_of, sorted(named))]


class _Client:
    """The client's side of a sweep: hands out chunks, and takes in what comes of them."""

    def __init__(
        self,
        sweep: Sweep,
        cells: Sequence[Cell],
        client: Any,
        queue: Any,
        threads: int,
        at_once: int | None,
        tell: Callable[[], None],
    ) -> None:
        self.sweep = sweep
        self.client = client
        self.queue = queue
        self.tell = tell
        self.waiting = deque(cells)
        self.again: deque[list[Cell]] = deque()
        """Chunks to be handed out once more."""
        self.at_work: dict[str, tuple[int, list[Cell], Any]] = {}
        """By key: the part, the cells and the future of each chunk under way."""
        self.journals: dict[str, bytearray] = {}
        """By run id, of the runs under way, what is known of their journals."""
        self.plans: dict[str, tuple[int, Following]] = {}
        """By run id, how far a journal was read for the plans in it, and what writes them."""
        self.deaths: Counter[str] = Counter()
        self.warned: set[str] = set()
        self.inbox: asyncio.Queue[Told | tuple[str, str] | Exception] = asyncio.Queue()
        ends = [model for model in _models(sweep) if isinstance(model, Endpoint)]
        limits = [limit for end in ends for limit in (end.concurrency, end.requests_per_minute) if limit]
        self.of = min(threads, len(cells), *limits, *([at_once] if at_once else []))
        """Chunks under way at a time; each has this part of every limit."""
        self.free = list(range(self.of))[::-1]
        self.windows = [
            share_of(at_once, part, self.of) if at_once else sweep.window(part, self.of)
            for part in range(self.of)
        ]
        # A chunk forgets at its end what it asked in the last minute: then each part has but one.
        self.one_each = any(end.requests_per_minute or end.tokens_per_minute for end in ends)

    async def carry_out(self) -> None:
        """Until every cell has its row."""
        listening = asyncio.create_task(self._listen())
        try:
            while self._hand_out() or self.at_work:
                try:
                    told = await asyncio.wait_for(self.inbox.get(), LONG)
                except TimeoutError:
                    await self._look_for_workers()
                    continue
                if isinstance(told, Exception):
                    raise told
                if isinstance(told, Told):
                    await self._take(told)
                else:
                    await self._expect_ended_well(*told)
        finally:
            for run_id, journal in self.journals.items() if self.sweep.folder else ():  # to be gone on with
                self._write(run_id, journal)
            for _, follow in self.plans.values():
                follow.close()
            with suppress(Exception):  # a cluster that was closed
                if self.at_work:
                    futures = [future for *_, future in self.at_work.values()]
                    await _ask(self.client, self.client.cancel, futures)
                await _ask(self.client, self.queue.put, b"")
                await listening
                self.queue.close()
            listening.cancel()

    async def _look_for_workers(self) -> None:
        if not await _ask(self.client, self.client.nthreads):
            self._warn("the dask cluster has lost its workers; the sweep waits for others")

    def _warn(self, text: str) -> None:
        """Once."""
        if text not in self.warned:
            self.warned.add(text)
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    async def _listen(self) -> None:
        try:
            while data := await _ask(self.client, self.queue.get):
                self.inbox.put_nowait(_told(data))
        except Exception as error:  # the scheduler is gone
            self.inbox.put_nowait(error)

    # Out.

    def _hand_out(self) -> bool:
        """Give every free part something to do; whether anything is under way."""
        while self.free and (self.again or self.waiting):
            part = self.free.pop()
            self._submit(part, self.again.popleft() if self.again else self._next(part))
        return bool(self.at_work)

    def _next(self, part: int) -> list[Cell]:
        """Half of what would be an even share, so that all end at about the same time; not less than
        keeps a worker busy. What asks about one task stays together: it may ask the same."""
        left = len(self.waiting)
        even = -(-left // (len(self.free) + 1 if self.one_each else self.of))
        size = even if self.one_each else min(even, max(min(self.windows[part], FEW), -(-even // 2)))
        cells = [self.waiting.popleft() for _ in range(size)]
        while self.waiting and len(cells) < 1.25 * size and self.waiting[0][1:3] == cells[-1][1:3]:
            cells.append(self.waiting.popleft())
        return cells

    def _submit(self, part: int, cells: list[Cell]) -> None:
        sweep, key = self.sweep, f"tot_lab-{secrets.token_hex(8)}"
        labels = list(sweep.settings)
        used = {labels[place]: sweep.settings[labels[place]] for place in sorted({c.setting for c in cells})}
        tasks = list(sweep.tasks.values())
        lab, model = sweep.lab, sweep.lab.model
        chunk = Chunk(
            key,
            self.queue.name,
            this_host(),
            {
                "model": model if isinstance(model, Part) else UserFunction.of(model),
                "roles": lab.gateway.roles,
                "mode": lab.gateway.mode,
                "draws": lab.gateway.draws,
                "timeout": lab.timeout,
                "tools": list(lab.gateway.toolbox.tools.values()),
                "effect_policy": lab.gateway.toolbox.policy,
                "tool_context": lab.gateway.toolbox.context,
            },
            _cache_of(lab, _models(sweep)),
            used,
            [tasks[place] for place in sorted({cell.task for cell in cells})],
            max(cell.repeat for cell in cells) + 1,
            sweep.name,
            sweep.budget,
            {cell.run_id: self._journal(cell) for cell in cells},
            part,
            self.of,
            self.windows[part],
        )
        future = self.client.submit(work, Parcel(chunk), key=key, pure=False)
        self.at_work[key] = (part, cells, future)
        loop = asyncio.get_running_loop()

        def ended(future: Any) -> None:  # in a thread of dask's
            with suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(self.inbox.put_nowait, (key, future.status))

        future.add_done_callback(ended)

    def _journal(self, cell: Cell) -> bytes:
        if cell.run_id in self.journals:
            return bytes(self.journals[cell.run_id])
        path = self.sweep.path(cell)
        return path.read_bytes() if path is not None and begun(path) else b""

    # In.

    async def _take(self, told: Told) -> None:
        """Take in a report. One of a chunk that was handed out again is too late."""
        self.sweep.lab.gateway.purse.spent += told.spent
        for text in told.warnings:
            self._warn(f"from a dask worker: {text}")
        if told.chunk not in self.at_work:
            return
        part, cells, _ = self.at_work[told.chunk]
        for run_id, start, data in told.journals:
            journal = self.journals.setdefault(run_id, bytearray())
            del journal[start:]
            journal += data
            self._write_plans(run_id, start)
        for run_id, row in told.rows:
            self._keep(run_id, row)
        if told.end:
            del self.at_work[told.chunk]
            self.free.append(part)
            from distributed import Event  # noqa: PLC0415

            await _ask(self.client, Event(told.chunk, self.client).clear)
        if told.end == "interrupted":
            self._divide([cell for cell in cells if cell.run_id not in self.sweep.rows])

    def _divide(self, cells: list[Cell]) -> None:
        """A worker died over `cells`: in halves they come to the one that is to blame, if one is."""
        if len(cells) == 1:
            run_id = cells[0].run_id
            self.deaths[run_id] += 1
            if self.deaths[run_id] == DEATHS:
                self._keep(run_id, Row(error=f"KilledWorker: {DEATHS} dask workers died over this run"))
                return
        half = (len(cells) + 1) // 2
        self.again.extend(part for part in (cells[:half], cells[half:]) if part)

    def _write_plans(self, run_id: str, start: int) -> None:
        """Keep the plans of a run, of whose journal something came that begins at `start`."""
        plans, journal = self.sweep.lab.plans, self.journals[run_id]
        first, end = journal.find(b"\n") + 1, journal.rfind(b"\n") + 1
        if plans is None or not first:
            return
        read, follow = self.plans.get(run_id, (0, None))
        if follow is None or start < read:  # what was read may have been cut
            header = msgspec.json.decode(journal[:first], type=Header)
            if follow is not None:
                follow.close()
            read, follow = first, plans.following(header, [], self.sweep.path(self.sweep.by_id[run_id]))
        follow(line_decoder.decode_lines(journal[read:end]))
        self.plans[run_id] = end, follow

    def _keep(self, run_id: str, row: Row) -> None:
        """A run is over: its journal is written, and then its row counts."""
        if run_id in self.plans:
            self.plans.pop(run_id)[1].close()
        journal = self.journals.pop(run_id, None)
        if journal is not None:
            self._write(run_id, journal)
        self.sweep.rows[run_id] = row
        self.tell()

    def _write(self, run_id: str, journal: bytearray) -> None:
        folder = self.sweep.folder
        if folder is not None:
            part = folder / f".{run_id}.{secrets.token_hex(4)}.part"  # another client may write it too
            try:
                part.write_bytes(journal)
                part.replace(folder / f"{run_id}.jsonl")
                return
            except OSError as error:
                part.unlink(missing_ok=True)
                self._warn(f"{folder}: {error.strerror}; the sweep goes on, and some runs are in memory only")
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "run.jsonl"
            path.write_bytes(journal)
            run = load(path)
        run.path = None
        self.sweep.in_memory[run_id] = run

    async def _expect_ended_well(self, key: str, status: str) -> None:
        """A task that is finished has said so before. Of one that is not, what it raised is raised."""
        if key not in self.at_work or status == "finished":
            return
        *_, future = self.at_work[key]
        if status == "error":
            raise await _ask(self.client, future.exception)
        raise RuntimeError(
            f"dask gave up the sweep's tasks ({status}): was the client closed, or restarted? "
            f"The same sweep goes on where it stopped"
        )


def _cache_of(lab: Lab, models: list[Any]) -> tuple[Path, str | None] | None:
    """Where the workers find the lab's cache; None when it has none of its own."""
    given = lab.gateway.given_cache
    if isinstance(given, Cache):
        return given.path.absolute(), None if given.shared is None else given.shared.url
    if given is not None:
        return Path(given).absolute(), None
    if lab.gateway.mode != "off" and all(isinstance(model, Endpoint) for model in models):
        return default_folder().absolute(), None
    return None


# At a worker.


def work(parcel: Parcel) -> None:
    """A dask task: makes the runs of a chunk, and reports while it does."""
    from distributed import Event, Queue, get_client, get_worker  # noqa: PLC0415

    chunk = parcel.opened()
    worker, client = get_worker(), get_client()
    queue = Queue(chunk.queue, client=client)
    try:
        started = Event(chunk.key, client)
        if started.is_set():  # by a worker that died over it; only the client knows what came back
            queue.put(_encoded(Told(chunk.key, end="interrupted")))
            return
        started.set()
        with tempfile.TemporaryDirectory(dir=worker.local_directory) as name:
            asyncio.run(_Worker(chunk, Path(name), worker, queue).carry_out())
    finally:
        queue.close()


class _Worker:
    """The worker's side of a chunk."""

    def __init__(self, chunk: Chunk, folder: Path, worker: Any, queue: Any) -> None:
        from tot_lab.lab import Lab  # noqa: PLC0415

        self.chunk = chunk
        self.worker = worker
        self.queue = queue
        self.lab = Lab(**chunk.lab, runs=folder, cache=self._cache())
        self.sweep = Sweep(self.lab, chunk.strategies, chunk.tasks, chunk.repeats, chunk.name, chunk.budget)
        self.folder = folder / chunk.name
        self.folder.mkdir()
        cells = {cell.run_id: cell for cell in self.sweep.cells}
        if not chunk.journals.keys() <= cells.keys():
            raise RuntimeError("a setting of this sweep came to the worker as another than it was sent")
        self.cells = [cells[run_id] for run_id in chunk.journals]
        self.sent: dict[str, int] = {}
        self.spent = 0.0
        for run_id, journal in chunk.journals.items():
            if journal:
                (self.folder / f"{run_id}.jsonl").write_bytes(journal)
                self.sent[run_id] = len(journal)

    def _cache(self) -> Cache | None:
        """On another machine the folder may lie on a network disk: there, one in dask's own space stands
        before the shared cache."""
        if self.chunk.cache is None:
            return None
        folder, shared = self.chunk.cache
        if this_host() != self.chunk.host:
            folder = Path(self.worker.local_directory) / "tot_lab-calls"
        return Cache(folder, shared=shared, create=self.chunk.lab["mode"] != "replay")

    async def carry_out(self) -> None:
        """Make the runs; stop when nobody wants them any more."""
        share_limits(self.chunk.part, self.chunk.of)
        heard = _hear_warnings()
        try:
            self.lab.gateway.open()
            making = asyncio.create_task(self.sweep.make(self.cells, self.chunk.at_once, lambda: None))
            while not making.done():
                await asyncio.wait([making], timeout=TELL)
                if not self._is_wanted():
                    making.cancel()
                    await asyncio.wait([making])
                    return
                if not making.done():
                    await self._report("", heard)
            making.result()
            await self._report("done", heard)
        finally:
            if self.lab.gateway.opened is not None:
                self.lab.gateway.opened.close()

    def _is_wanted(self) -> bool:
        """Whether dask still wants the chunk: it cannot stop a thread itself."""
        task = self.worker.state.tasks.get(self.chunk.key)
        return task is not None and task.state != "cancelled"

    async def _report(self, end: Literal["", "done"], heard: list[str]) -> None:
        journals = [
            news for path in sorted(self.folder.glob("*.jsonl")) if (news := self._news(path)) is not None
        ]
        rows = list(self.sweep.rows.items())
        self.sweep.rows.clear()
        spent = self.lab.spent - self.spent
        self.spent += spent
        said = heard[:]
        heard.clear()
        told = Told(self.chunk.key, journals, rows, spent, said, end)
        if journals or rows or end:
            await asyncio.to_thread(self.queue.put, _encoded(told))

    def _news(self, path: Path) -> tuple[str, int, bytes] | None:
        """What is new in a journal. One that was gone on with may have been cut first: it is sent whole."""
        run_id, size = path.stem, path.stat().st_size
        over = run_id in self.sweep.rows
        start = 0 if self.chunk.journals[run_id] else self.sent.get(run_id, 0)
        kept = self.sweep.in_memory.pop(run_id, None) if over else None
        if kept is not None:  # it could not be written to the end
            start, data = 0, header_text(kept.header) + lines_text(kept.header, kept.lines)
        elif size == self.sent.get(run_id) and not over:
            return None
        else:
            with path.open("rb") as file:
                file.seek(start)
                data = file.read()
        self.sent[run_id] = size
        if over:
            path.unlink()
        return run_id, start, data


_HEARD = threading.local()


def _hear_warnings() -> list[str]:
    """From now on, what is warned of in this thread, for the client to say."""
    _HEARD.texts = []
    if not getattr(warnings.showwarning, "of_tot_lab", False):
        shown = warnings.showwarning

        def show(message: Warning | str, *where: Any, **more: Any) -> None:
            texts = getattr(_HEARD, "texts", None)
            if texts is None:
                shown(message, *where, **more)
            else:
                texts.append(str(message))

        show.of_tot_lab = True  # type: ignore[attr-defined]
        warnings.showwarning = show
    texts: list[str] = _HEARD.texts
    return texts
