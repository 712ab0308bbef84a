"""A sweep: runs over settings, tasks and repeats, and the table of their results.

A cell (setting, task, repeat) is one run, and its id is a digest of everything that defines the run. The
journal of a run is written before its row is added to the table, so that an interrupted sweep can continue
and sweeps in one folder share equal runs. Finished runs with a journal are not kept in memory, except for
their rows. An error in a run is recorded in its row and does not stop the other runs.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import warnings
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from tot_lab.core.bulk import seldom_collecting
from tot_lab.core.calls import Call, Reply, format_error, shared_fields
from tot_lab.core.files import open_regular
from tot_lab.core.parts import Part, is_function, parts_in
from tot_lab.core.protocol import Budget
from tot_lab.core.records import Note, Position
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Task
from tot_lab.lab.model_settings import with_named_models
from tot_lab.lab.sweeps.axes import Strategies, label_strategies, label_tasks
from tot_lab.lab.sweeps.sweep_methods import SweepMethods
from tot_lab.models.keys import Request, in_order, request_of
from tot_lab.models.limits import are_congested
from tot_lab.models.stack import Endpoint
from tot_lab.record.compute import params_in
from tot_lab.record.journal import HeldByAnother, JournalError, encoder, read_journal
from tot_lab.record.rows import Row, row_of
from tot_lab.record.run import Run, load, replies_of
from tot_lab.runtime.gateway import identity_of
from tot_lab.runtime.recorder import remove_journal
from tot_lab.runtime.roles import calling_roles
from tot_lab.runtime.runner import Execution, Runner, check_arguments, resumable

ByWorkers: TypeAlias = Callable[["Sweep", Sequence["Cell"], int | None, Callable[[], None]], Awaitable[None]]
"""Makes the runs of some cells of a sweep on workers. Takes the sweep, the cells, the limit on concurrent
runs, and a function to call after each run.
"""

Remotely: TypeAlias = Callable[["Cell", Execution], Awaitable["Row"]]
"""Carries out a run in another process, and returns its row."""

Progress: TypeAlias = Callable[["Sweep", int], AbstractContextManager[Callable[[], None]]]
"""Shows the progress of a sweep, given the number of runs. Yields a function to call after each run."""

UNDER_WAY = 64
"""Concurrent runs for a function or a simulated model. For an endpoint, they are as many as its concurrent
requests, or `MAX_UNDER_WAY` if it sets no limit on these.
"""
MAX_UNDER_WAY = 128
"""The most concurrent runs that a sweep chooses by itself."""

KEY = 8
"""Bytes kept of a hash of the cache key of each call, enough to distinguish millions of calls."""

LOOK = 0.005
"""Seconds between two checks whether a further run is needed to keep the models busy."""

AGAIN = 0.5
"""Seconds between two checks whether another process has finished a run."""


class WorkerDied(Exception):
    """Raised if the process that made a run has ended. The journal holds the records so far."""


class Cell(NamedTuple):
    """One run of a sweep: the indices of its setting and task, its repeat, and its run id."""

    setting: int
    task: int
    repeat: int
    run_id: str


class Counts(NamedTuple):
    """Calls of the finished runs.

    Attributes:
        asked: Calls made by the strategies. Calls that no model could receive do not count.
        distinct: Number of different calls among them.
        paid: Calls that were sent to a model.
        saved: Calls answered from the cache or by an equal call in flight. A call that was answered just
            before its process was killed counts as saved.
    """

    asked: int
    distinct: int
    paid: int
    saved: int


class Sweep(SweepMethods):
    """Runs over settings × tasks × repeats, as `lab.sweep` makes them.

    It can be used while it is running and after it was interrupted (`lab.last_sweep`), and then shows the
    finished runs.
    """

    def __init__(
        self,
        runner: Runner,
        strategies: Strategies,
        tasks: Task | Iterable[Task],
        repeats: int,
        name: str,
        budget: Budget | None,
        *,
        runs: Path | None,
    ) -> None:
        if name in ("", "..") or Path(name).name != name or not name.isprintable():
            raise ValueError(f"name must be the name of a folder: got {name!r}.")
        if isinstance(repeats, str | float) or repeats < 1:
            raise ValueError(f"repeats must be an integer of at least 1: got {repeats!r}.")
        if isinstance(tasks, str) or not isinstance(tasks, Task | Iterable):
            raise TypeError(
                f"tasks must be a list such as tl.tasks(FILE) or tl.game24_tasks(5): got {tasks!r}."
            )
        self.runner = runner
        """Carries out the runs."""
        self.name = name
        self.budget = budget
        self.settings = label_strategies(strategies)
        """The strategies by label."""
        self.tasks = label_tasks(tasks)
        """The tasks by label."""
        self.folder = None if runs is None else runs / name
        """Folder of the journals, `RUN_ID.jsonl`. `None` keeps the runs in memory."""
        for strategy, task in product(self.settings.values(), self.tasks.values()):
            check_arguments(strategy, task, budget, 0)
        roles = runner.gateway.roles
        self.settings = {
            label: runner.prepared(with_named_models(strategy, roles))
            for label, strategy in self.settings.items()
        }
        self.tasks = {label: runner.instructed(task) for label, task in self.tasks.items()}
        self._strategies, self._tasks = list(self.settings.values()), list(self.tasks.values())
        self.cells = self._cells(repeats)
        """All runs in the order of the table: by setting, task and repeat."""
        self.by_id = {cell.run_id: cell for cell in self.cells}
        """The cells by run id."""
        self.rows: dict[str, Row] = {}
        """The rows of the finished runs by run id."""
        self.found = 0
        """Number of finished runs that an earlier sweep made."""
        self.in_memory: dict[str, Run] = {}
        """The finished runs that have no file, by run id."""
        self._identities: dict[str | None, dict[str, Any]] = {}
        self._last_request: tuple[object, Request | None] = None, None
        self._under_way: set[Execution] = set()

    def _cells(self, repeats: int) -> list[Cell]:
        lab = _digest(
            "the lab",
            [
                identity_of(self.runner.gateway.model),
                {
                    name: [settings, identity_of(self.model_of(name))]
                    for name, settings in calling_roles(self.runner.gateway.role_settings).items()
                },
                "state",  # a setting of earlier versions, kept so that the run ids stay the same
                self.budget.model_dump(exclude_none=True) if self.budget else {},
                *self._equipment(),
            ],
        )
        settings = [_digest(f"setting {label!r}", part.settings()) for label, part in self.settings.items()]
        tasks = [_digest(f"task {label!r}", task.settings()) for label, task in self.tasks.items()]
        _expect_different("strategies", self.settings, settings)
        _expect_different("tasks", self.tasks, tasks)
        return [
            Cell(s, t, repeat, _digest("a run", [lab, settings[s], tasks[t], repeat])[:16])
            for s, t, repeat in product(range(len(settings)), range(len(tasks)), range(repeats))
        ]

    def _equipment(self) -> list[Any]:
        """Return identities and specifications of the tools, and the effect policy, for the run ids."""
        toolbox = self.runner.gateway.toolbox
        if not toolbox.tools:
            return []
        tools = [[tool.identity(), tool.spec.model_dump()] for tool in toolbox.tools.values()]
        return [tools, toolbox.policy_settings]

    def part(self, cell: Cell) -> tuple[Strategy, Task]:
        """Return the strategy and the task of a cell."""
        return self._strategies[cell.setting], self._tasks[cell.task]

    def path(self, cell: Cell) -> Path | None:
        """Return the journal path of a cell, or `None` if its run stays in memory."""
        return None if self.folder is None else self.folder / f"{cell.run_id}.jsonl"

    # Running.

    async def carry_out(
        self,
        at_once: int | None,
        progress: Progress,
        by_workers: ByWorkers | None = None,
        cells: Sequence[Cell] | None = None,
    ) -> None:
        """Make the unfinished runs of `cells`, by default of all cells, at most `at_once` at a time, in this
        process or with the workers of a cluster.
        """
        if at_once is not None and (not hasattr(at_once, "__index__") or at_once < 1):
            raise ValueError(f"at_once must be at least 1 or None: got {at_once!r}.")
        forget_warnings()
        await self.runner.gateway.open()
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
        if self.runner.gateway.spend_limiter.cap is not None:
            self._count_payments()
        # Runs with a journal come first: finished ones are only read, so the progress soon counts them.
        cells = sorted(
            self.cells if cells is None else cells,
            key=lambda cell: (not self._has_begun(cell), self.turn(cell)),
        )
        with progress(self, len(cells)) as update:
            if by_workers is None:
                await self.make(cells, at_once or self.window(), update)
            else:
                await by_workers(self, cells, at_once, update)

    def _has_begun(self, cell: Cell) -> bool:
        path = self.path(cell)
        return path is not None and path.exists()

    def _count_payments(self) -> None:
        """Count the earlier payments of all runs before the first new payment.

        This keeps the `spend` limit across interruptions.
        """
        for path in filter(None, map(self.path, self.cells)):
            with suppress(JournalError, OSError):  # the row of the run will show the error
                header, lines, _ = read_journal(path)
                self.runner.count_payments(header, lines)

    async def make(
        self,
        cells: Sequence[Cell],
        at_once: int,
        update: Callable[[], None],
        remotely: Remotely | None = None,
    ) -> None:
        """Make the unfinished runs of `cells`, here or `remotely`, and call `update` after each."""
        waiting, turn = deque(cells), asyncio.Lock()

        async def work() -> None:
            while waiting:
                async with turn:
                    await self._until_needed()
                if not waiting:
                    return
                cell = waiting.popleft()
                try:
                    await self.finish(cell, remotely)
                    update()
                except (HeldByAnother, WorkerDied):  # the other process will finish the run, or end
                    waiting.append(cell)
                    await asyncio.sleep(AGAIN)

        with seldom_collecting():
            async with asyncio.TaskGroup() as workers:
                for _ in range(min(at_once, len(cells))):
                    workers.create_task(work())

    async def _until_needed(self) -> None:
        """Wait until a further run is needed to keep the models busy: all runs in progress wait for replies,
        and some endpoint could take more requests. If this process is the bottleneck, the runs rarely all
        wait at once.
        """
        while True:
            if not all(execution.is_waiting for execution in self._under_way):
                await asyncio.sleep(0)
            elif are_congested(self.runner.gateway.endpoints):
                await asyncio.sleep(LOOK)
            else:
                return

    def turn(self, cell: Cell) -> tuple[int, int, float]:
        """Return the sort key of a cell: its repeat, its task, and the calls of its setting.

        Going task by task keeps an interrupted sweep comparable: its settings have finished the same tasks.
        The setting with the most calls comes first, because its replies often answer the calls of the others.
        """
        strategy, task = self.part(cell)
        try:
            most = strategy.max_calls(self.runner.equipped(task))
        except Exception:  # the run will report a bug in the strategy
            most = None
        return cell.repeat, cell.task, -math.inf if most is None else -most

    def window(self) -> int:
        """Return how many concurrent runs keep the models busy."""
        models = (self.runner.gateway.model, *(self.model_of(name) for name in self.runner.gateway.roles))
        limits = [
            (model.concurrency or MAX_UNDER_WAY) if isinstance(model, Endpoint) else UNDER_WAY
            for model in models
        ]
        return min(max(limits), MAX_UNDER_WAY)

    async def finish(self, cell: Cell, remotely: Remotely | None = None) -> None:
        """Make, continue or only read the run of a cell, and add its row. Raises `HeldByAnother` if another
        process is making the run, and `WorkerDied` if the worker that made it `remotely` died.
        """
        execution: Execution | None = None
        error = row = None
        try:
            execution = await self._execution(cell)
            self._under_way.add(execution)
            if remotely is None or execution.is_over:
                await execution.carry_out()
            else:
                row = await remotely(cell, execution)
            if execution.is_over:
                await asyncio.sleep(0)  # lets a cancellation in while finished runs are read
        except (HeldByAnother, WorkerDied):
            raise
        except (Exception, asyncio.CancelledError) as failed:
            task_here = asyncio.current_task()
            if isinstance(failed, asyncio.CancelledError) and task_here and task_here.cancelling():
                raise  # this sweep was cancelled; otherwise the strategy raised the error
            error = format_error(failed)
        finally:
            self._under_way.discard(execution)
        if execution is None:
            self.rows[cell.run_id] = Row(error=error)
            return
        self.found += execution.is_over
        run, (_, task) = self.whole(execution.run, cell), self.part(cell)
        if row is None and not task.domain.is_bounded(task):  # grade in a thread, so that other runs continue
            with suppress(Exception):  # `row_of` reports the error
                await asyncio.to_thread(getattr, run, "grade")
        if row is not None and row.paid is not None:  # a worker does not know what an earlier one had paid
            row = msgspec.structs.replace(row, paid=run.usage.paid)
        self.rows[cell.run_id] = self.row_of(run, error) if row is None else row
        if run.path is None:
            self.in_memory[cell.run_id] = run

    async def _execution(self, cell: Cell) -> Execution:
        """Return the execution of a cell, new or resumed."""
        (strategy, task), path = self.part(cell), self.path(cell)
        if path is not None and _left_behind(path):
            return await self.runner.resume(path, strategy, task)
        header = self.runner.header(strategy, task, self.budget, cell.repeat)
        header = msgspec.structs.replace(header, id=cell.run_id)
        try:
            return self.runner.start(strategy, task, header=header, path=path, budget=self.budget)
        except FileExistsError as begun_there:  # another process has just started it
            raise HeldByAnother(str(begun_there)) from None

    def whole(self, run: Run, cell: Cell) -> Run:
        """Set the strategy and the task of a run, since a file does not hold their functions, and the numbers
        of parameters of the lab's models, which may have been unknown when the run was made.
        """
        strategy, task = self.part(cell)
        gateway = self.runner.gateway
        run.strategy, run.task, run.cache, run.loaded = strategy, task, gateway.opened, False
        run.params = params_in(gateway.role_settings)
        return run

    def row_of(self, run: Run, error: str | None) -> Row:
        """Return the row of a finished run. `error` is the exception that the run raised, if any."""
        keys = self.keys_of(run)
        return row_of(run, error, len(keys.keys() - not_sent(run)), b"".join(keys.values()))

    def keys_of(self, run: Run) -> dict[Position, bytes]:
        """Return a hash of the cache key of each call that was made, by position."""
        return {
            line.p: self.key_of(call)
            for call, line in run.admitted
            if isinstance(line.e, Reply) and line.e.sent
        }

    def key_of(self, call: Call) -> bytes:
        """Return a hash of the cache key of a call."""
        known, request = self._last_request
        if known != (shared := (call.purpose, shared_fields(call))):  # otherwise a sample of the same request
            request = self._request_of(call)
            self._last_request = shared, request
        key = repr(call) if request is None else request.key_of(call)
        return hashlib.blake2b(key.encode(), digest_size=KEY).digest()

    def _request_of(self, call: Call) -> Request | None:
        """Return the cache request of a call. `None` for an unknown model, or a setting that cannot be part
        of a key.
        """
        with suppress(Exception):
            if call.model not in self._identities:
                self._identities[call.model] = identity_of(self.runner.gateway.model_of(call.model))
            return request_of(call, self._identities[call.model])
        return None

    def model_of(self, role: str) -> Any:
        """Return the model of a role."""
        model = self.runner.gateway.roles[role].model
        return model if isinstance(model, Part) else self.runner.gateway.model_of(model)

    def finished(self, cell: Cell) -> Run | None:
        """Return the finished run of a cell, or `None` if the run is not finished.

        Raises:
            OSError: If the journal cannot be opened.
            JournalError: If the journal is damaged.
        """
        path = self.path(cell)
        if path is None or not begun(path):
            return self.in_memory.get(cell.run_id)
        header, lines, _ = read_journal(path)
        kept = resumable(lines, asking=self.runner.gateway.mode != "replay")
        return self.whole(Run(header, lines, path), cell) if kept is None else None

    # Results.

    @property
    def counts(self) -> Counts:
        """The calls of the finished runs."""
        import numpy  # noqa: PLC0415

        rows = self.rows.values()
        calls, sent = sum(row.calls or 0 for row in rows), sum(row.sent for row in rows)
        # A set would take 100 bytes per key, and numpy.unique builds a set.
        keys = numpy.sort(numpy.frombuffer(b"".join(row.keys for row in rows), dtype=f"u{KEY}"))
        distinct = int(numpy.count_nonzero(keys[1:] != keys[:-1])) + bool(len(keys))
        return Counts(calls, distinct, sent, calls - sent)

    def run(self, row: Any) -> Run:
        """Return the run of a row of `df()` or of a run id. Raises `LookupError` if there is no such run."""
        run_id = row if isinstance(row, str) else getattr(row, "run_id", None)
        cell = self.by_id.get(run_id) if isinstance(run_id, str) else None
        if cell is None:
            got = row if run_id is None else run_id
            raise LookupError(
                f"row must be a row such as df().iloc[0] or the run_id of one: got {got!r}, which is not in "
                f"this sweep."
            )
        if run_id not in self.rows:
            raise LookupError(f"Run {run_id!r} is not finished. Call lab.sweep again to continue it.")
        return self._run(cell)

    def runs(self) -> Iterator[Run]:
        """Yield the finished runs in the order of the table, loading one run at a time. Runs that could not
        start are skipped. `list(sweep.runs())` loads all runs, and `sweep.run(row)` loads one.
        """
        for cell in self.cells:
            if cell.run_id in self.rows and self.rows[cell.run_id].version:
                yield self._run(cell)

    def _run(self, cell: Cell) -> Run:
        run, path = self.in_memory.get(cell.run_id), self.path(cell)
        if run is None:
            if path is None or not path.exists():
                why = self.rows[cell.run_id].error or f"{path} does not exist"
                raise LookupError(f"Run {cell.run_id} has no record: {why}.")
            run = self.whole(load(path), cell)
        return run


def not_sent(run: Run) -> set[Position]:
    """Return the positions of the calls that were answered by the cache or by an equal call in flight, or
    that no model could receive.
    """
    notes = (line.e for line in run.lines_of(Note) if isinstance(line.e, Note))
    known = {tuple(note.data["call"]) for note in notes if note.name in ("call.cached", "call.joined")}
    return known | {p for p, reply in replies_of(run.lines_of(Reply)).items() if not reply.sent}


def forget_warnings() -> None:
    """Let each warning be shown again. Python shows a warning once per process, but every sweep should show
    its own warnings.
    """
    with warnings.catch_warnings():  # leaving this context lets Python show earlier warnings again
        pass


class _Named(msgspec.Struct):
    id: str


def _left_behind(path: Path) -> bool:
    """Whether there is a journal to continue.

    A journal with an incomplete header, which a killed process left behind, is removed. Raises
    `HeldByAnother` if a process is still writing it.
    """
    if path.exists() and not begun(path):
        with suppress(FileNotFoundError):
            remove_journal(path)
    return begun(path)


def begun(path: Path) -> bool:
    """Whether a journal with a complete header exists. Raises `JournalError` if the run id in the header is
    not that in the file name.
    """
    try:
        with open_regular(path) as file:
            first = file.readline()
    except FileNotFoundError:
        return False
    if first.endswith(b"\n"):
        with suppress(msgspec.MsgspecError, UnicodeDecodeError):  # reading the journal will report it
            id = msgspec.json.decode(first, type=_Named).id
            if id != path.stem:
                raise JournalError(f"{path}: this journal belongs to another run: got {id!r}.")
        return True
    return False


def mean(amounts: Sequence[float | None]) -> float | None:
    """Return the mean, or `None` if there are no amounts or one of them is unknown."""
    known = [amount for amount in amounts if amount is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(amounts) else None


def _digest(what: str, value: Any) -> str:
    try:
        # The order of a set differs between processes, so sets are sorted.
        data = msgspec.json.encode(in_order(value), enc_hook=encoder.enc_hook, order="deterministic")
        return hashlib.sha256(data).hexdigest()
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what} cannot be serialised: {error}.") from None


def _expect_different(what: str, entries: Mapping[str, Any], digests: list[str]) -> None:
    """Raise `ValueError` if two entries are equal, since they would share one run."""
    seen: dict[str, str] = {}
    for label, digest in zip(entries, digests, strict=True):
        if digest in seen:
            hint = " Use repeats= to run a task more than once." if what == "tasks" else ""
            if any(map(is_function, parts_in(entries[label]))):
                hint += (
                    " Functions are compared by their source and defaults: pass a value that differs between "
                    "them as a default, as in lambda task, path, w=w: w."
                )
            raise ValueError(f"{what} must differ: {seen[digest]!r} and {label!r} are the same.{hint}")
        seen[digest] = label
