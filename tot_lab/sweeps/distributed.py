"""A sweep on the workers of a dask cluster.

Rule: the workers only make runs; the sweep stays with the client. A dask task is a chunk of runs on one
event loop. While it goes on, its journals and rows come back, and a run counts when its journal is on
the client's disk: no file system need be shared. The client holds the lock of each journal whose run is
handed out, so that no other process makes the run, too. Plans are written from these journals by the client
alone (`tl.Plans`). A chunk whose worker died is handed out again without
what has come back, and with the journals of the rest as far as they are known.

The limits of an endpoint are kept by the scheduler, see `coordinator`. Workers share answers through the
cache alone: its folder where they are on the client's machine, and from one machine to another its `shared`
Redis, with a folder of each machine in front.

What travels are the user's own settings and functions, between the user's own machines: cloudpickle
packs them, as it does all that dask sends. What comes back is data, and is read as such.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import socket
import tempfile
import threading
import warnings
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from tot_lab.core import parts
from tot_lab.core.calls import Call, Reply, Wire
from tot_lab.core.parts import Part, UserFunction
from tot_lab.core.records import Note
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Task
from tot_lab.core.thinking import Budget
from tot_lab.journal import Header, HeldByAnother, JournalError, encoder, line_decoder
from tot_lab.models.cache import Cache, default_folder
from tot_lab.models.limits import Gate, Limits, make_gates
from tot_lab.models.stack import Endpoint
from tot_lab.plan_store import Following
from tot_lab.recorder import hold, let_go
from tot_lab.run import Run, load
from tot_lab.sweeps.coordinator import (
    PACKAGE,
    Coordinator,
    Report,
    decode_report,
    decode_row,
    encode_report,
    encode_row,
    expect_same,
)
from tot_lab.sweeps.sweep import AGAIN, Cell, Row, Sweep, begun, forget_warnings, not_sent

try:
    import resource
except ImportError:  # not on Windows, where no journal is locked
    resource = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from tot_lab.lab import Lab

FEW = 32
"""Runs that keep a worker busy, since most ask several calls at once; fewer are handed out at the end."""

TELL = 0.2
"""Seconds between two reports of a worker: what it loses at most when it dies."""

LONG = 30.0
"""Seconds without any report after which the client looks whether there are workers."""

QUEUED = 0.05
"""Seconds that a call waits for its turn before it says so."""

ASKING = 16
"""Calls of a chunk that ask for a place at a time: each takes a connection to the scheduler."""

DEATHS = 3
"""Workers that may die over one run, alone in its chunk, before its row says so."""


class SharedCache(NamedTuple):
    """The lab's cache, for workers: its folder, its `Cache.identity`, and the address of its Redis."""

    folder: Path
    identity: str
    redis: str | None


class Chunk(NamedTuple):
    """What a worker needs to make some runs of a sweep.

    sweep: its name at the coordinator. lab: the lab's settings, its cache apart. cache: None without any.
    host: the client's. journals: by run id, what there is of each run.
    """

    key: str
    sweep: str
    host: str
    lab: dict[str, Any]
    cache: SharedCache | None
    strategies: dict[str, Strategy]
    tasks: list[Task]
    repeats: int
    name: str
    budget: Budget | None
    journals: dict[str, bytes]
    at_once: int


class Parcel:
    """A chunk on its way. dask shows and logs what it carries: this shows nothing of it."""

    def __init__(self, chunk: Chunk) -> None:
        import cloudpickle  # noqa: PLC0415  dask's own

        self.version = PACKAGE
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

        expect_same("a dask worker", self.version)
        chunk: Chunk = cloudpickle.loads(self.data)
        for part in (chunk.lab["model"], *chunk.lab["tools"]):
            parts.REGISTRY.setdefault(part.kind, type(part))  # a class that was made in a notebook
        return chunk


def _rpc(node: Any, operation: str, **given: Any) -> asyncio.Future[Any]:
    """Ask the coordinator, as a dask client or worker, from whatever event loop."""
    asking = getattr(node.scheduler, f"tot_lab_{operation}")(**given)
    return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asking, node.loop.asyncio_loop))


# At the client.


async def made_by_workers(
    sweep: Sweep, cells: Sequence[Cell], client: Any, at_once: int | None, tell: Callable[[], None]
) -> None:
    """Make `cells` of `sweep`, in this order, with the workers of `client`."""
    try:
        from distributed import Client  # noqa: PLC0415  an extra
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
    await _ask(client, client.register_plugin, Coordinator())
    await _Client(sweep, left, client, threads, at_once, tell).carry_out()


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
        threads: int,
        at_once: int | None,
        tell: Callable[[], None],
    ) -> None:
        self.sweep = sweep
        self.client = client
        self.name = f"tot_lab-{secrets.token_hex(8)}"
        self.tell = tell
        self.waiting = deque(cells)
        self.held: list[Cell] = []
        """Runs that another process is making."""
        self.again: deque[list[Cell]] = deque()
        """Chunks to be handed out once more."""
        self.at_work: dict[str, tuple[int, list[Cell], Any]] = {}
        """By key: the part, the cells and the future of each chunk under way."""
        self.files: dict[str, int] = {}
        """By run id, the locked journals of the runs that are handed out."""
        self.journals: dict[str, bytearray] = {}
        """By run id, of the runs under way, what is known of their journals."""
        self.plans: dict[str, tuple[int, Following]] = {}
        """By run id, how far a journal was read for the plans in it, and what writes them."""
        self.deaths: Counter[str] = Counter()
        self.lost: dict[bytes, list[float]] = {}
        """By the beginning of a call's key, what dead workers paid for it and is in no journal."""
        self.warned: set[str] = set()
        self.inbox: asyncio.Queue[Report | tuple[str, str] | Exception] = asyncio.Queue()
        self.of = min(threads, len(cells), *([at_once] if at_once else []))
        """Chunks under way at a time."""
        self.free = list(range(self.of))[::-1]
        whole = at_once or sweep.window()
        self.windows = [max(1, (whole + part) // self.of) for part in range(self.of)]
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if resource is not None else 0
        self.most = max(1, (files if files > 0 else 10_000) // 2 // self.of)
        """Runs in a chunk at most: the file of each is open."""

    async def carry_out(self) -> None:
        """Until every cell has its row."""
        if not await _rpc(self.client, "open", sweep=self.name, client=self.client.id, package=PACKAGE):
            raise RuntimeError("the dask scheduler has another tot_lab: install the same, and restart it")
        listening = asyncio.create_task(self._listen())
        try:
            while await self._hand_out():
                try:
                    report = await asyncio.wait_for(self.inbox.get(), AGAIN if self.held else LONG)
                except TimeoutError:
                    if not self.held:
                        await self._look_for_workers()
                    continue
                if isinstance(report, Exception):
                    raise report
                if isinstance(report, Report):
                    self._take(report)
                else:
                    await self._expect_ended_well(*report)
        finally:
            for run_id in list(self.files):
                self._let_go(run_id)
            for _, follow in self.plans.values():
                follow.close()
            with suppress(Exception):  # a cluster that was closed
                spent = await _rpc(self.client, "close_sweep", sweep=self.name)
                self.sweep.lab.gateway.purse.spend(spent)
                if self.at_work:
                    futures = [future for *_, future in self.at_work.values()]
                    await _ask(self.client, self.client.cancel, futures)
                await listening
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
            while (heard := await _rpc(self.client, "hear", sweep=self.name)) is not None:
                self.sweep.lab.gateway.purse.spend(heard[0])
                for data in heard[1]:
                    self.inbox.put_nowait(decode_report(data))
            self.inbox.put_nowait(RuntimeError("the dask scheduler has lost its client"))
        except Exception as error:  # the scheduler is gone
            self.inbox.put_nowait(error)

    # Out.

    async def _hand_out(self) -> bool:
        """Give every free part something to do; whether anything is under way, here or elsewhere."""
        self.waiting.extend(self.held)
        self.held.clear()
        while self.free and (self.again or self.waiting):
            cells = self.again.popleft() if self.again else self._next(self.free[-1])
            cells = [cell for cell in cells if await self._claim(cell)]
            if cells:
                self._submit(self.free.pop(), cells)
        return bool(self.at_work or self.held)

    async def _claim(self, cell: Cell) -> bool:
        """Whether to hand out a run: nobody else is making it, or has finished it."""
        path = self.sweep.path(cell)
        if path is None or cell.run_id in self.files:
            return True
        try:
            file = hold(path)
        except HeldByAnother:
            self.held.append(cell)
            return False
        except OSError as error:
            self._say_unwritable(error)
            return True
        self.files[cell.run_id] = file
        if os.fstat(file).st_size and await _is_known(self.sweep, cell, self.tell):
            self._let_go(cell.run_id)
            return False
        return True

    def _let_go(self, run_id: str) -> None:
        file, path = self.files.pop(run_id, None), self.sweep.path(self.sweep.by_id[run_id])
        if file is not None and path is not None:
            let_go(path, file)

    def _next(self, part: int) -> list[Cell]:
        """Half of what would be an even share, so that all end at about the same time; not less than
        keeps a worker busy. What asks about one task stays together: it may ask the same."""
        left = len(self.waiting)
        even = -(-left // self.of)
        size = min(even, max(min(self.windows[part], FEW), -(-even // 2)), self.most)
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
            self.name,
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

    def _take(self, report: Report) -> None:
        """Take in a report. One of a chunk that was handed out again is too late."""
        for text in report.warnings:
            self._warn(text)
        if report.chunk not in self.at_work:
            return
        part, cells, future = self.at_work[report.chunk]
        for run_id, place, data in report.journals:
            journal = self.journals.setdefault(run_id, bytearray(self._journal(self.sweep.by_id[run_id])))
            start = place or _in_common(journal, data)  # one that was gone on with is sent whole
            del journal[start:]
            journal += data[start - place :]
            self._write(run_id, start)
            self._write_plans(run_id, start)
        for run_id, row in report.rows:
            self._keep(run_id, decode_row(row))
        if report.end:
            del self.at_work[report.chunk]
            self.free.append(part)
        if report.end == "interrupted":
            future.cancel()
            self._divide(cells, report.paid)

    def _divide(self, cells: list[Cell], paid: list[tuple[bytes, float]]) -> None:
        """A worker died over `cells`: in halves they come to the one that is to blame, if one is."""
        told = Counter(key for cell in cells for key in self._keys_sent(cell))
        for key, cost in paid:
            told[key] -= 1
            if told[key] < 0:
                self.lost.setdefault(key, []).append(cost)
        cells = [cell for cell in cells if cell.run_id not in self.sweep.rows]
        if len(cells) == 1:
            run_id = cells[0].run_id
            self.deaths[run_id] += 1
            if self.deaths[run_id] == DEATHS:
                row = Row(error=f"KilledWorker: {DEATHS} dask workers died over this run")
                lost = sum(sum(self.lost.pop(key, ())) for key, _ in paid)
                self._keep(run_id, self._row_so_far(cells[0], row, lost))
                return
        half = (len(cells) + 1) // 2
        self.again.extend(part for part in (cells[:half], cells[half:]) if part)

    def _keys_sent(self, cell: Cell) -> list[bytes]:
        """The keys of the calls that were sent for a run, as far as its record is known."""
        run = self.sweep.in_memory.get(cell.run_id)
        if run is None:
            run = _run_in(self._journal(cell))
        if run is None:
            return []
        saved = not_sent(run.lines)
        return [key for place, key in self.sweep.keys_of(run.lines).items() if place not in saved]

    def _row_so_far(self, cell: Cell, row: Row, lost: float) -> Row:
        """The row of a run that its workers could not end."""
        run = _run_in(bytes(self.journals.get(cell.run_id, b"")))
        if run is not None:
            row = self.sweep.row_of(run, *self.sweep.part(cell), row.error)
        return msgspec.structs.replace(row, paid=(row.paid or 0.0) + lost) if lost else row

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
        cell = self.sweep.by_id[run_id]
        if self.lost and run_id in self.journals:
            row = self._with_lost(cell, row)
        journal = self.journals.pop(run_id, None)
        if journal is not None and run_id not in self.files:
            run = _run_in(bytes(journal))
            if run is not None:
                self.sweep.in_memory[run_id] = run
        self._let_go(run_id)
        self.sweep.rows[run_id] = row
        self.tell()

    def _with_lost(self, cell: Cell, row: Row) -> Row:
        """The row of a run, in whose record now stands what dead workers paid for its calls."""
        journal = self.journals[cell.run_id]
        run = _run_in(bytes(journal))
        keys = {} if run is None else self.sweep.keys_of(run.lines)
        owed = {place: self.lost[key].pop() for place, key in keys.items() if self.lost.get(key)}
        if run is None or not owed:
            return row
        lines = []
        for line in run.lines:
            e, paid = line.e, line.paid
            if isinstance(e, Note) and e.name == "call.cached" and tuple(e.data["call"]) in owed:
                continue  # it was sent
            if isinstance(e, Reply) and line.p in owed:
                paid = (paid or 0.0) + owed[line.p]
            lines.append(msgspec.structs.replace(line, paid=paid))
        start = journal.find(b"\n") + 1
        journal[start:] = encoder.encode_lines(lines)
        self._write(cell.run_id, start)
        return self.sweep.row_of(Run(run.header, lines), *self.sweep.part(cell), row.error)

    def _write(self, run_id: str, start: int) -> None:
        """Write the journal of a run to its file, from `start` on."""
        if run_id not in self.files:
            return
        file, data = self.files[run_id], memoryview(self.journals[run_id])[start:]
        try:
            os.ftruncate(file, start)
            os.lseek(file, start, os.SEEK_SET)
            while data:
                data = data[os.write(file, data) :]
        except OSError as error:
            self._say_unwritable(error)
            with suppress(OSError):
                os.ftruncate(file, start)
            self._let_go(run_id)

    def _say_unwritable(self, error: OSError) -> None:
        self._warn(
            f"{self.sweep.folder}: {error.strerror}; the sweep goes on, and some runs are in memory only"
        )

    async def _expect_ended_well(self, key: str, status: str) -> None:
        """A task that is finished has said so before. Of one that is not, what it raised is raised."""
        from distributed import KilledWorker  # noqa: PLC0415

        if key not in self.at_work or status == "finished":
            return
        *_, future = self.at_work[key]
        if status == "error":
            error = await _ask(self.client, future.exception)
            if isinstance(error, KilledWorker):  # the coordinator has told, if one of them had begun
                self._take(Report(key, end="interrupted"))
                return
            raise error
        raise RuntimeError(
            f"dask gave up the sweep's tasks ({status}): was the client closed, or restarted? "
            f"The same sweep goes on where it stopped"
        )


def _in_common(one: bytearray, other: bytes) -> int:
    """How many bytes of whole lines two journals begin with in common."""
    same = 0
    for line, its in zip(one.splitlines(True), other.splitlines(True), strict=False):
        if line != its or not line.endswith(b"\n"):
            break
        same += len(line)
    return same


def _run_in(journal: bytes) -> Run | None:
    """The run in the bytes of a journal, as far as it goes; `None` without a whole header."""
    if b"\n" not in journal:
        return None
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "run.jsonl"
        path.write_bytes(journal)
        run = load(path)
    run.path = None
    return run


def _cache_of(lab: Lab, models: list[Any]) -> SharedCache | None:
    """Where the workers find the lab's cache; `None` when it has none of its own."""
    given = lab.gateway.given_cache
    if given is None and (lab.gateway.mode == "off" or not all(isinstance(m, Endpoint) for m in models)):
        return None
    shared = given.shared if isinstance(given, Cache) else None
    path = given.path if isinstance(given, Cache) else Path(given or default_folder())
    return SharedCache(path.absolute(), identity(path), None if shared is None else shared.url)


def identity(folder: Path) -> str:
    """What tells a cache from the others of its machine, and from those that lay in the same place before:
    a random text in the folder."""
    file = folder / "id"
    with suppress(OSError):  # a folder that is only read
        with suppress(FileExistsError), file.open("x", encoding="ascii") as new:
            new.write(secrets.token_hex(16))
        return file.read_text("ascii", "replace")
    return ""


# At a worker.


def work(parcel: Parcel) -> None:
    """A dask task: makes the runs of a chunk, and reports while it does."""
    from distributed import get_worker  # noqa: PLC0415

    chunk = parcel.opened()
    asyncio.run(_made(chunk, get_worker()))


async def _made(chunk: Chunk, worker: Any) -> None:
    """Make a chunk, unless it is not wanted any more."""
    if not await _rpc(worker, "begin", sweep=chunk.sweep, chunk=chunk.key, worker=worker.address):
        return
    try:
        with tempfile.TemporaryDirectory(dir=worker.local_directory) as name:
            await _Worker(chunk, Path(name), worker).carry_out()
    finally:
        await _rpc(worker, "end", chunk=chunk.key)


class _SharedGate(Gate):
    """A gate that the coordinator keeps. Few calls of a chunk wait there at a time, in order."""

    def __init__(self, limits: Limits, chunk: str, worker: Any, key_of: Callable[[Call], bytes]) -> None:
        super().__init__(limits)
        self.chunk = chunk
        self.worker = worker
        self.key_of = key_of
        self.turn = asyncio.Semaphore(ASKING)
        self.tickets = count()

    async def enter(self, tokens: int, wire: Wire) -> bool:
        """Wait for one's turn; `left` must follow."""
        waited = self.turn.locked()
        if waited:
            wire.note("call.queued")
        async with self.turn:
            ticket = next(self.tickets)
            entering = _rpc(
                self.worker, "enter", chunk=self.chunk, ticket=ticket, limits=self.limits, tokens=tokens
            )
            try:
                done, _ = await asyncio.wait([entering], timeout=QUEUED)
                if not done and not waited:
                    waited = True
                    wire.note("call.queued")
                admitted = await asyncio.shield(entering)
            except asyncio.CancelledError:
                _rpc(self.worker, "withdraw", chunk=self.chunk, ticket=ticket)
                entering.add_done_callback(self._give_back)
                raise
        if not admitted:
            await (
                asyncio.Event().wait()
            )  # nobody wants the chunk any more: its runs are about to be cancelled
        return waited

    def _give_back(self, entering: asyncio.Future[bool]) -> None:
        if not entering.cancelled() and entering.exception() is None and entering.result():
            self._leave(0.0, [])

    def _leave(self, seconds: float, paid: list[tuple[bytes, float]]) -> asyncio.Future[None]:
        return _rpc(self.worker, "leave", chunk=self.chunk, limits=self.limits, seconds=seconds, paid=paid)

    def count(self, tokens: int) -> None:
        """A request of so many tokens goes out now."""
        _rpc(self.worker, "count", limits=self.limits, tokens=tokens)

    async def left(self, calls: Sequence[Call], replies: Sequence[Reply], seconds: float) -> None:
        """Tell the coordinator what was paid, before anybody goes on with the replies."""
        paid = [(self.key_of(c), r.cost) for c, r in zip(calls, replies, strict=False) if r.cost]
        await asyncio.shield(self._leave(seconds, paid))


class _Worker:
    """The worker's side of a chunk."""

    def __init__(self, chunk: Chunk, folder: Path, worker: Any) -> None:
        from tot_lab.lab import Lab  # noqa: PLC0415

        self.chunk = chunk
        self.worker = worker
        self.lab = Lab(**chunk.lab, runs=folder, cache=self._cache())
        self.sweep = Sweep(self.lab, chunk.strategies, chunk.tasks, chunk.repeats, chunk.name, chunk.budget)
        self.folder = folder / chunk.name
        self.folder.mkdir()
        cells = {cell.run_id: cell for cell in self.sweep.cells}
        if not chunk.journals.keys() <= cells.keys():
            raise RuntimeError("a setting of this sweep came to the worker as another than it was sent")
        self.cells = [cells[run_id] for run_id in chunk.journals]
        self.sent: dict[str, int] = {}
        """By run id, how much of its journal the client has."""
        self.whole: set[str] = set()
        """Runs that were gone on with, and whose journals are to be sent whole."""
        for run_id, journal in chunk.journals.items():
            if journal:
                (self.folder / f"{run_id}.jsonl").write_bytes(journal)
                self.sent[run_id] = len(journal)
                self.whole.add(run_id)

    def _cache(self) -> Cache | None:
        """On another machine the folder may lie on a network disk: there, one beside dask's own space
        stands before the shared cache, a folder for each cache of each client."""
        cache = self.chunk.cache
        if cache is None:
            return None
        folder = cache.folder
        if this_host() != self.chunk.host:
            parts = "\n".join([self.chunk.host, str(folder), cache.identity, cache.redis or "", this_host()])
            name = hashlib.sha256(parts.encode()).hexdigest()[:16]
            folder = Path(self.worker.local_directory).parent / f"tot_lab-calls-{name}"
        create = self.chunk.lab["mode"] != "replay"
        return Cache(folder, shared=cache.redis, create=create, may_be_away=True)

    async def carry_out(self) -> None:
        """Make the runs; stop when nobody wants them any more."""
        key_of, key = self.sweep.key_of, self.chunk.key
        make_gates(lambda limits: _SharedGate(limits, key, self.worker, key_of))
        heard = _hear_warnings()
        try:
            self.lab.gateway.open()
            making = asyncio.create_task(self.sweep.make(self.cells, self.chunk.at_once, lambda: None))
            over = False
            while not over:
                await asyncio.wait([making], timeout=TELL)
                over = making.done()
                if not await self._report("done" if over and not making.exception() else "", heard):
                    making.cancel()
                    await asyncio.wait([making])
                    return
            making.result()
        finally:
            if self.lab.gateway.opened is not None:
                await asyncio.to_thread(self.lab.gateway.opened.close)

    async def _report(self, end: Literal["", "done"], heard: list[str]) -> bool:
        """Send what is new; whether the chunk is still wanted."""
        journals = [
            news for path in sorted(self.folder.glob("*.jsonl")) if (news := self._news(path)) is not None
        ]
        rows = [(run_id, encode_row(row)) for run_id, row in self.sweep.rows.items()]
        self.sweep.rows.clear()
        said = [f"from a dask worker: {text}" for text in heard]
        heard.clear()
        report = Report(self.chunk.key, journals, rows, said, end=end)
        data = encode_report(report) if journals or rows or said or end else None
        wanted: bool = await _rpc(self.worker, "report", chunk=self.chunk.key, data=data)
        return wanted

    def _news(self, path: Path) -> tuple[str, int, bytes] | None:
        """What is new in a journal. One that was gone on with may have been cut first: it is sent whole."""
        run_id, size = path.stem, path.stat().st_size
        over = run_id in self.sweep.rows
        kept = self.sweep.in_memory.pop(run_id, None) if over else None
        if kept is None and not over and size == self.sent.get(run_id):
            return None
        start = 0 if run_id in self.whole else self.sent.get(run_id, 0)
        self.whole.discard(run_id)
        if kept is not None:  # it could not be written to the end
            start, data = 0, encoder.encode(kept.header) + b"\n" + encoder.encode_lines(kept.lines)
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
    forget_warnings()
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
