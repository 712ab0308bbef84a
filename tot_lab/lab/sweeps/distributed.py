"""A sweep on the workers of a dask cluster: the client's side.

Rule: the workers only make runs; the sweep stays with the client. A dask task is a chunk of runs on one
event loop. While it goes on, its journals and rows come back, and a run counts when its journal is on
the client's disk: no file system need be shared. The client holds the lock of each journal whose run is
handed out, so that no other process makes the run, too. Plans are written from these journals by the client
alone (`tl.Plans`). A chunk whose worker died is handed out again without
what has come back, and with the journals of the rest as far as they are known.

The limits of an endpoint are kept by the scheduler, see `coordinator`. Workers share answers through the
cache alone: its folder where they are on the client's machine, and from one machine to another its `shared`
Redis, with a folder of each machine in front.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import tempfile
import warnings
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from tot_lab.core.calls import Reply
from tot_lab.core.records import Note
from tot_lab.lab.sweeps.coordinator import PACKAGE, Coordinator, Report, decode_report, decode_row
from tot_lab.lab.sweeps.sweep import AGAIN, Cell, Row, Sweep, begun, not_sent
from tot_lab.lab.sweeps.workers import Chunk, Parcel, SharedCache, rpc, this_host, work
from tot_lab.models.cache import Cache, default_folder
from tot_lab.models.stack import Endpoint
from tot_lab.record.journal import Header, HeldByAnother, JournalError, line_decoder, lines_text
from tot_lab.record.run import Run, load
from tot_lab.runtime.gateway import Gateway
from tot_lab.runtime.recorder import hold, let_go
from tot_lab.runtime.runner import Following

try:
    import resource
except ImportError:  # not on Windows, where no journal is locked
    resource = None  # type: ignore[assignment]

FEW = 32
"""Runs that keep a worker busy, since most ask several calls at once; fewer are handed out at the end."""

LONG = 30.0
"""Seconds without any report after which the client looks whether there are workers."""

DEATHS = 3
"""Workers that may die over one run, alone in its chunk, before its row says so."""


async def made_by_workers(
    client: Any, sweep: Sweep, cells: Sequence[Cell], at_once: int | None, tell: Callable[[], None]
) -> None:
    """Make `cells` of `sweep`, in this order, with the workers of `client`."""
    from distributed import Client  # noqa: PLC0415  slow to load

    if not isinstance(client, Client):
        raise TypeError(f"client must be a dask.distributed.Client, not {client!r}")
    _refuse(sweep.runner.gateway)
    left = [cell for cell in cells if not await _is_known(sweep, cell, tell)]
    if not left:
        return
    threads = sum((await _ask(client, client.nthreads)).values())
    if not threads:
        raise ValueError("the dask cluster has no worker; start some, such as with cluster.scale(2)")
    cached = any(map(sweep.runner.gateway.is_cached, _models(sweep)))
    if cached:
        await _expect_one_cache(sweep.runner.gateway, client)
    await _ask(client, client.register_plugin, Coordinator())
    await _Client(sweep, left, client, threads, at_once, tell).carry_out()


def _refuse(gateway: Gateway) -> None:
    """A ValueError for what does not hold across workers."""
    if gateway.purse.cap is not None:
        raise ValueError(
            "spend= is kept in one process and not across workers: leave it out with client=, and cap each "
            "run by budget=tl.Budget(usd=…)"
        )
    if gateway.mode == "refresh":
        raise ValueError("mode='refresh' goes with one process; with client=, take a new folder for cache=")


async def _expect_one_cache(gateway: Gateway, client: Any) -> None:
    """A ValueError when some workers could not know what the others were answered."""
    hosts = set((await _ask(client, client.run, this_host)).values())
    given = gateway.given_cache
    if hosts - {this_host()} and not (isinstance(given, Cache) and given.shared is not None):
        raise ValueError(
            f"the workers run on other machines ({', '.join(sorted(hosts)[:3])}) and would not share their "
            f'answers: give the lab cache=tl.Cache(shared="redis://host:6379/0"), or mode="off"'
        )


async def _is_known(sweep: Sweep, cell: Cell, tell: Callable[[], None]) -> bool:
    """Whether a cell needs no worker: its journal is finished, or cannot be read."""
    try:
        run = sweep.finished(cell)
        if run is None:
            return False
        sweep.rows[cell.run_id] = sweep.row_of(run, None)
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
    gateway = sweep.runner.gateway
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
        self.look_again = 0.0
        """When these are tried again."""
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
        if not await rpc(self.client, "open", sweep=self.name, client=self.client.id, package=PACKAGE):
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
                spent = await rpc(self.client, "close_sweep", sweep=self.name)
                self.sweep.runner.gateway.purse.spend(spent)
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
            while (heard := await rpc(self.client, "hear", sweep=self.name)) is not None:
                self.sweep.runner.gateway.purse.spend(heard[0])
                for data in heard[1]:
                    self.inbox.put_nowait(decode_report(data))
            self.inbox.put_nowait(RuntimeError("the dask scheduler has lost its client"))
        except Exception as error:  # the scheduler is gone
            self.inbox.put_nowait(error)

    # Out.

    async def _hand_out(self) -> bool:
        """Give every free part something to do; whether anything is under way, here or elsewhere."""
        now = asyncio.get_running_loop().time()
        if self.held and now >= self.look_again:
            self.look_again = now + AGAIN
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
        chunk = Chunk(
            key,
            self.name,
            this_host(),
            sweep.runner.settings.portable(),
            _cache_of(sweep.runner.gateway, _models(sweep)),
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
            row = self.sweep.row_of(self.sweep.whole(run, cell), row.error)
        return msgspec.structs.replace(row, paid=(row.paid or 0.0) + lost) if lost else row

    def _write_plans(self, run_id: str, start: int) -> None:
        """Keep the plans of a run, of whose journal something came that begins at `start`."""
        plans, journal = self.sweep.runner.follower, self.journals[run_id]
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
        self.sweep.runner.expect_payments(run_id)
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
        journal[start:] = lines_text(run.header, lines)
        self._write(cell.run_id, start)
        return self.sweep.row_of(self.sweep.whole(Run(run.header, lines), cell), row.error)

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


def _cache_of(gateway: Gateway, models: list[Any]) -> SharedCache | None:
    """Where the workers find the lab's cache; `None` when it has none of its own."""
    given = gateway.given_cache
    if given is None and (gateway.mode == "off" or not all(isinstance(m, Endpoint) for m in models)):
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
