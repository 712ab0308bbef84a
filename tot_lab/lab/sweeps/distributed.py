"""A sweep on the workers of a dask cluster: the client's side.

Workers only make runs; the sweep stays with the client. A dask task is a chunk of runs on one event loop. Its
journals and rows are sent back while it runs, and a run counts when its journal is on the client's disk, so
no file system needs to be shared. The client holds the lock of each journal that is handed out, so that no
other process makes the same run, and it alone calls the followers. A chunk whose worker died is
handed out again without the finished runs, and with the known part of the other journals.

The scheduler keeps the limits of an endpoint, see `coordinator`. Workers share replies only through the
cache: its folder on the client's machine, and its `shared` Redis, with a folder on each machine in front,
elsewhere.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from tot_lab.core.calls import Reply
from tot_lab.core.model_setting import models_of
from tot_lab.core.records import Note
from tot_lab.lab.sweeps.coordinator import PACKAGE, Coordinator, Report, decode_report, decode_row
from tot_lab.lab.sweeps.sweep import AGAIN, Cell, Row, Sweep, begun, not_sent
from tot_lab.lab.sweeps.workers import Chunk, Parcel, SharedCache, rpc, this_host, work
from tot_lab.models.cache import Cache, default_folder
from tot_lab.models.stack import Endpoint
from tot_lab.record.journal import Header, HeldByAnother, JournalError, line_decoder, lines_text
from tot_lab.record.run import Run, parse
from tot_lab.runtime.gateway import Gateway
from tot_lab.runtime.recorder import hold, let_go
from tot_lab.runtime.runner import Following

try:
    import resource
except ImportError:  # not available on Windows, where journals are not locked
    resource = None  # type: ignore[assignment]

MIN_CHUNK = 32
"""Runs that keep a worker busy, since most make several calls at once. The last chunks may be smaller."""

SILENCE = 30.0
"""Seconds without a report after which the client checks that there are workers."""

RETURNING = 5.0
"""Seconds that tasks have for returning after their last report."""

MAX_DEATHS = 3
"""Workers that may die while making one run, alone in its chunk, before the run counts as failed."""


async def make_with_workers(
    client: Any, sweep: Sweep, cells: Sequence[Cell], at_once: int | None, update: Callable[[], None]
) -> None:
    """Carry out the runs of `cells`, in this order, on the workers of the Dask `client`."""
    from distributed import Client  # noqa: PLC0415  slow to load

    if not isinstance(client, Client):
        raise TypeError(f"client must be a dask.distributed.Client: got {client!r}.")
    _refuse(sweep.runner.gateway)
    left = [cell for cell in cells if not await _is_known(sweep, cell, update)]
    if not left:
        return
    threads = sum((await _call_client(client, client.nthreads)).values())
    if not threads:
        raise ValueError("The dask cluster has no workers. Start some, for example with cluster.scale(2).")
    cached = any(map(sweep.runner.gateway.is_cached, _models(sweep)))
    if cached:
        await _expect_one_cache(sweep.runner.gateway, client)
    await _call_client(client, client.register_plugin, Coordinator())
    await _Client(sweep, left, client, threads, at_once, update).carry_out()


def _refuse(gateway: Gateway) -> None:
    """Raise `ValueError` for settings that cannot hold across workers."""
    if gateway.spend_limiter.cap is not None:
        raise ValueError(
            "spend= cannot be combined with client=, since it holds in one process only. Limit each run with "
            "budget=tl.Budget(usd=…) instead."
        )
    if gateway.mode == "refresh":
        raise ValueError(
            "mode='refresh' cannot be combined with client=. Use a new folder for cache= instead."
        )


async def _expect_one_cache(gateway: Gateway, client: Any) -> None:
    """Raise `ValueError` if workers could not share their replies."""
    hosts = set((await _call_client(client, client.run, this_host)).values())
    given = gateway.given_cache
    if hosts - {this_host()} and not (isinstance(given, Cache) and given.shared is not None):
        raise ValueError(
            f"Workers on other machines ({', '.join(sorted(hosts)[:3])}) cannot share replies through this "
            f'cache. Pass cache=tl.Cache(shared="redis://host:6379/0") or mode="off" to the lab.'
        )


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


async def _call_client(client: Any, method: Callable[..., Any], *given: Any) -> Any:
    """Call a method of a dask client of either kind without blocking the event loop."""
    if client.asynchronous:
        return await method(*given)
    return await asyncio.to_thread(method, *given)


def _models(sweep: Sweep) -> list[Any]:
    """Return the models that the sweep is known to call."""
    gateway = sweep.runner.gateway
    strategies = sweep.settings.values()
    settings = {model for one in strategies if isinstance(model := getattr(one, "model", None), str)}
    named = map(gateway.model_of, sorted(settings - {*gateway.roles}))
    own = [model for one in strategies for model in models_of(one).values()]
    return [gateway.model, *map(sweep.model_of, gateway.roles), *named, *own]


class _Client:
    """The client's side of a sweep: hands out chunks and receives their reports."""

    def __init__(
        self,
        sweep: Sweep,
        cells: Sequence[Cell],
        client: Any,
        threads: int,
        at_once: int | None,
        update: Callable[[], None],
    ) -> None:
        self.sweep = sweep
        self.client = client
        self.name = f"tot_lab-{secrets.token_hex(8)}"
        self.update = update
        self.waiting = deque(cells)
        self.held: list[Cell] = []
        """Runs that another process is making."""
        self.look_again = 0.0
        """When these runs are tried again."""
        self.again: deque[list[Cell]] = deque()
        """Chunks to hand out again."""
        self.at_work: dict[str, tuple[int, list[Cell], Any]] = {}
        """By key, the slot, the cells and the future of each chunk in progress."""
        self.ending: list[Any] = []
        """The futures of chunks that have sent their last report. Without its future, dask would cancel a
        task that still returns, and warn of it."""
        self.files: dict[str, int] = {}
        """By run id, the locked journals of the runs that are handed out."""
        self.journals: dict[str, bytearray] = {}
        """By run id, the known part of the journals of runs in progress."""
        self.followed: dict[str, tuple[int, list[Following]]] = {}
        """By run id, how far its journal was read by the followers, and their watchers."""
        self.deaths: Counter[str] = Counter()
        self.lost: dict[bytes, list[float]] = {}
        """By the beginning of a call's key, what dead workers paid for it without it being in a journal."""
        self.warned: set[str] = set()
        self.inbox: asyncio.Queue[Report | tuple[str, str] | Exception] = asyncio.Queue()
        self.of = min(threads, len(cells), *([at_once] if at_once else []))
        """Concurrent chunks."""
        self.free = list(range(self.of))[::-1]
        whole = at_once or sweep.window()
        self.windows = [max(1, (whole + part) // self.of) for part in range(self.of)]
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if resource is not None else 0
        self.most = max(1, (files if files > 0 else 10_000) // 2 // self.of)
        """Runs in a chunk at most: the file of each is open."""

    async def carry_out(self) -> None:
        """Until every cell has its row."""
        if not await rpc(self.client, "open", sweep=self.name, client=self.client.id, package=PACKAGE):
            raise RuntimeError(
                "The dask scheduler has another tot_lab. Install the same version and restart it."
            )
        listening = asyncio.create_task(self._listen())
        try:
            while await self._hand_out():
                try:
                    report = await asyncio.wait_for(self.inbox.get(), AGAIN if self.held else SILENCE)
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
            for _, following in self.followed.values():
                for follow in following:
                    follow.close()
            with suppress(Exception):  # the cluster may be closed
                spent = await rpc(self.client, "close_sweep", sweep=self.name)
                self.sweep.runner.gateway.spend_limiter.spend(spent)
                until = time.monotonic() + RETURNING
                while not all(one.done() for one in self.ending) and time.monotonic() < until:
                    await asyncio.sleep(0.01)
                if self.at_work:
                    futures = [future for *_, future in self.at_work.values()]
                    await _call_client(self.client, self.client.cancel, futures)
                await listening
            listening.cancel()

    async def _look_for_workers(self) -> None:
        if not await _call_client(self.client, self.client.nthreads):
            self._warn("The dask cluster has lost its workers. The sweep waits for new ones.")

    def _warn(self, text: str) -> None:
        """Show a warning once."""
        if text not in self.warned:
            self.warned.add(text)
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    async def _listen(self) -> None:
        try:
            while (heard := await rpc(self.client, "hear", sweep=self.name)) is not None:
                self.sweep.runner.gateway.spend_limiter.spend(heard[0])
                for data in heard[1]:
                    self.inbox.put_nowait(decode_report(data))
            self.inbox.put_nowait(RuntimeError("The dask scheduler has lost the connection to its client."))
        except Exception as error:  # the scheduler was lost
            self.inbox.put_nowait(error)

    # Out.

    async def _hand_out(self) -> bool:
        """Hand out chunks to every free slot. Returns whether anything is in progress here or elsewhere."""
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
        """Whether to hand out a run: no other process is making it or has finished it."""
        path = self.sweep.path(cell)
        if path is None or cell.run_id in self.files:
            return True
        try:
            file = hold(path)
        except HeldByAnother:
            self.held.append(cell)
            return False
        except OSError as error:
            self._warn_unwritable(error)
            return True
        self.files[cell.run_id] = file
        if os.fstat(file).st_size and await _is_known(self.sweep, cell, self.update):
            self._let_go(cell.run_id)
            return False
        return True

    def _let_go(self, run_id: str) -> None:
        file, path = self.files.pop(run_id, None), self.sweep.path(self.sweep.by_id[run_id])
        if file is not None and path is not None:
            let_go(path, file)

    def _next(self, part: int) -> list[Cell]:
        """Return the next chunk, in order.

        Its size is half of an even share, so that all workers end at about the same time, but enough to keep
        a worker busy. Cells of the same task stay together, because they often make the same calls.
        """
        left = len(self.waiting)
        even = -(-left // self.of)
        size = min(even, max(min(self.windows[part], MIN_CHUNK), -(-even // 2)), self.most)
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

        def ended(future: Any) -> None:  # in a thread of dask
            with suppress(RuntimeError):  # the event loop was closed
                loop.call_soon_threadsafe(self.inbox.put_nowait, (key, future.status))

        future.add_done_callback(ended)

    def _journal(self, cell: Cell) -> bytes:
        if cell.run_id in self.journals:
            return bytes(self.journals[cell.run_id])
        path = self.sweep.path(cell)
        return path.read_bytes() if path is not None and begun(path) else b""

    # In.

    def _take(self, report: Report) -> None:
        """Apply a report. A late report of a chunk that was handed out again is ignored."""
        for text in report.warnings:
            self._warn(text)
        if report.chunk not in self.at_work:
            return
        part, cells, future = self.at_work[report.chunk]
        for run_id, place, data in report.journals:
            journal = self.journals.setdefault(run_id, bytearray(self._journal(self.sweep.by_id[run_id])))
            start = place or _in_common(journal, data)  # the journal of a resumed run is sent as a whole
            del journal[start:]
            journal += data[start - place :]
            self._write(run_id, start)
            self._follow(run_id, start)
        for run_id, row in report.rows:
            self._keep(run_id, decode_row(row))
        if report.end:
            del self.at_work[report.chunk]
            self.free.append(part)
            self.ending = [*(one for one in self.ending if not one.done()), future]
        if report.end == "interrupted":
            future.cancel()
            self._divide(cells, report.paid)

    def _divide(self, cells: list[Cell], paid: list[tuple[bytes, float]]) -> None:
        """Hand out the cells of a dead worker again in halves, which isolates a run that kills its
        workers.
        """
        known = Counter(key for cell in cells for key in self._keys_sent(cell))
        for key, cost in paid:
            known[key] -= 1
            if known[key] < 0:
                self.lost.setdefault(key, []).append(cost)
        cells = [cell for cell in cells if cell.run_id not in self.sweep.rows]
        if len(cells) == 1:
            run_id = cells[0].run_id
            self.deaths[run_id] += 1
            if self.deaths[run_id] == MAX_DEATHS:
                row = Row(error=f"KilledWorker: {MAX_DEATHS} dask workers died while making this run")
                lost = sum(sum(self.lost.pop(key, ())) for key, _ in paid)
                self._keep(run_id, self._row_so_far(cells[0], row, lost))
                return
        half = (len(cells) + 1) // 2
        self.again.extend(part for part in (cells[:half], cells[half:]) if part)

    def _keys_sent(self, cell: Cell) -> list[bytes]:
        """Return the keys of the calls that were sent for a run, as far as its record is known."""
        run = self.sweep.in_memory.get(cell.run_id)
        if run is None:
            run = _run_in(self._journal(cell))
        if run is None:
            return []
        saved = not_sent(run.lines)
        return [key for place, key in self.sweep.keys_of(run.lines).items() if place not in saved]

    def _row_so_far(self, cell: Cell, row: Row, lost: float) -> Row:
        """Return the row of a run that its workers could not finish."""
        run = _run_in(bytes(self.journals.get(cell.run_id, b"")))
        if run is not None:
            row = self.sweep.row_of(self.sweep.whole(run, cell), row.error)
        return msgspec.structs.replace(row, paid=(row.paid or 0.0) + lost) if lost else row

    def _follow(self, run_id: str, start: int) -> None:
        """Call the followers of a run whose journal changed from `start` on."""
        followers, journal = self.sweep.runner.followers, self.journals[run_id]
        first, end = journal.find(b"\n") + 1, journal.rfind(b"\n") + 1
        if not followers or not first:
            return
        read, following = self.followed.get(run_id, (0, []))
        if not read or start < read:  # the part that was read may have been truncated
            header = msgspec.json.decode(journal[:first], type=Header)
            for follow in following:
                follow.close()
            path = self.sweep.path(self.sweep.by_id[run_id])
            read, following = first, [one.following(header, [], path) for one in followers]
        lines = line_decoder.decode_lines(journal[read:end])
        for follow in following:
            follow(lines)
        self.followed[run_id] = end, following

    def _keep(self, run_id: str, row: Row) -> None:
        """Keep the row of a finished run, after its journal is written."""
        if run_id in self.followed:
            for follow in self.followed.pop(run_id)[1]:
                follow.close()
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
        self.update()

    def _with_lost(self, cell: Cell, row: Row) -> Row:
        """Return the row of a run after adding what dead workers paid for its calls to its record."""
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
                continue  # the call was sent, not cached
            if isinstance(e, Reply) and line.p in owed:
                paid = (paid or 0.0) + owed[line.p]
            lines.append(msgspec.structs.replace(line, paid=paid))
        start = journal.find(b"\n") + 1
        journal[start:] = lines_text(run.header, lines)
        self._write(cell.run_id, start)
        return self.sweep.row_of(self.sweep.whole(Run(run.header, lines), cell), row.error)

    def _write(self, run_id: str, start: int) -> None:
        """Write the journal of a run to its file from `start` on."""
        if run_id not in self.files:
            return
        file, data = self.files[run_id], memoryview(self.journals[run_id])[start:]
        try:
            os.ftruncate(file, start)
            os.lseek(file, start, os.SEEK_SET)
            while data:
                data = data[os.write(file, data) :]
        except OSError as error:
            self._warn_unwritable(error)
            with suppress(OSError):
                os.ftruncate(file, start)
            self._let_go(run_id)

    def _warn_unwritable(self, error: OSError) -> None:
        self._warn(
            f"{self.sweep.folder}: {error.strerror}. The sweep continues with some runs in memory only."
        )

    async def _expect_ended_well(self, key: str, status: str) -> None:
        """Raise the error of a dask task that ended without a report."""
        from distributed import KilledWorker  # noqa: PLC0415

        if key not in self.at_work or status == "finished":
            return
        *_, future = self.at_work[key]
        if status == "error":
            error = await _call_client(self.client, future.exception)
            if isinstance(error, KilledWorker):  # the coordinator has reported it if the worker had started
                self._take(Report(key, end="interrupted"))
                return
            raise error
        raise RuntimeError(
            f"Dask gave up the tasks of the sweep ({status}), for example because the client was closed or "
            f"restarted. Call lab.sweep again to continue."
        )


def _in_common(one: bytearray, other: bytes) -> int:
    """Return the number of leading bytes, in whole lines, that two journals share."""
    same = 0
    for line, its in zip(one.splitlines(True), other.splitlines(True), strict=False):
        if line != its or not line.endswith(b"\n"):
            break
        same += len(line)
    return same


def _run_in(journal: bytes) -> Run | None:
    """Return the run in the bytes of a journal, or `None` without a whole header."""
    if b"\n" not in journal:
        return None
    return parse(journal, "the journal of a run")


def _cache_of(gateway: Gateway, models: list[Any]) -> SharedCache | None:
    """Return where workers find the lab's cache, or `None` if it has none."""
    given = gateway.given_cache
    if given is None and (gateway.mode == "off" or not all(isinstance(m, Endpoint) for m in models)):
        return None
    shared = given.shared if isinstance(given, Cache) else None
    path = given.path if isinstance(given, Cache) else Path(given or default_folder())
    return SharedCache(path.absolute(), identity(path), None if shared is None else shared.url)


def identity(folder: Path) -> str:
    """Return a random text that is stored in the folder and distinguishes this cache from others at the same
    path.
    """
    file = folder / "id"
    with suppress(OSError):  # a read-only folder
        with suppress(FileExistsError), file.open("x", encoding="ascii") as new:
            new.write(secrets.token_hex(16))
        return file.read_text("ascii", "replace")
    return ""
