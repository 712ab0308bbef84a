"""A sweep: many searches over settings, tasks and repeats, and the one table that they make.

Rule: a cell (setting, task, repeat) is one run, and its id follows from what it asks. Its journal is
on the disk before its row counts, so a sweep that was cut off goes on where it stopped, and sweeps
share the runs that they have in common. In memory are the runs under way; of one that is over only
its row stays. What goes wrong in a run stands in its row, and never stops the others.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import warnings
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from tot_lab.core.bulk import seldom_collecting
from tot_lab.core.calls import Call, Halt, Reply, is_made, readable
from tot_lab.core.parts import Part
from tot_lab.core.records import Line, Note, Position
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Task
from tot_lab.core.thinking import Budget
from tot_lab.lab.sweeps.axes import Strategies, by_question, labelled
from tot_lab.lab.sweeps.methods import SweepMethods
from tot_lab.lab.sweeps.progress import progress
from tot_lab.models.keys import in_order, key_of, request_of
from tot_lab.models.stack import Endpoint
from tot_lab.record.journal import HeldByAnother, JournalError, encoder, read_journal
from tot_lab.record.losses import ByRole, losses_of
from tot_lab.record.run import Run, Usage, load
from tot_lab.runtime.gateway import identity_of
from tot_lab.runtime.recorder import take_away
from tot_lab.runtime.runner import Estimate, Execution, Runner, check_arguments, resumable

ByWorkers: TypeAlias = Callable[["Sweep", Sequence["Cell"], int | None, Callable[[], None]], Awaitable[None]]
"""Makes the cells of a sweep, so many runs at a time, and calls the function after each."""

UNDER_WAY = 64
"""Runs under way at a time for a model that has no limit of calls. Each waits for one call at least:
with a limit, as many runs as calls keep it busy, and more only take memory."""
MOST_UNDER_WAY = 128

KEY = 8
"""Bytes that are kept of a call's key, enough to tell millions of calls apart."""

AGAIN = 0.5
"""Seconds after which a run that another process is making is looked at again."""


class Cell(NamedTuple):
    """One run of a sweep: its setting and its task by their places, its repeat, and the run's id."""

    setting: int
    task: int
    repeat: int
    run_id: str


class Row(msgspec.Struct, frozen=True, gc=False):
    """What stays in memory of a finished run; for most see `Sweep.df`. sent: calls that went to the
    model. keys: of each call that was made, the beginning of its key. version: of what recorded it.
    losses: by role, the calls and what was lost of them."""

    stop: str | None = None
    error: str | None = None
    answer: str = ""
    correct: bool | None = None
    score: float | None = None
    calls: int = 0
    failed_calls: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None
    paid: float | None = None
    seconds: float = 0.0
    sent: int = 0
    keys: bytes = b""
    simulated: bool = False
    version: str = ""
    losses: ByRole | None = {}
    selected_strategy: str | None = None
    strategy_used: str | None = None


class Counts(NamedTuple):
    """The calls of the finished runs. asked: by the strategies. distinct: how many different ones these
    are. paid: sent to a model. saved: answered by the cache, or by an equal call that was under way; a
    call that was answered in the moment in which its process was killed counts as saved, too, unless that
    was a dask worker."""

    asked: int
    distinct: int
    paid: int
    saved: int


class SweepEstimate(NamedTuple):
    """What a sweep would still ask. runs: how many there are; finished: those that need nothing more.
    calls: of the others at most, None without a bound. cached: how many of these the cache answers, as
    far as the searches can be followed. cost: USD, were each call paid, if a run costs what the finished
    ones of its setting did on average; None where there is none, or no price."""

    runs: int
    finished: int
    calls: int | None
    cached: int
    cost: float | None


class Sweep(SweepMethods):
    """Runs over settings × tasks × repeats, as `lab.sweep` makes them. It can be looked at while it goes
    on, and after it was cut off (`lab.last_sweep`): it shows the runs that are finished."""

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
            raise ValueError(f"name must be the name of a folder, not {name!r}")
        if isinstance(repeats, str | float) or repeats < 1:
            raise ValueError(f"repeats must be 1 or more, not {repeats!r}")
        self.runner = runner
        """What carries its runs out."""
        self.name = name
        self.budget = budget
        self.settings = labelled(strategies)
        """The strategy of each setting, by its label."""
        self.tasks = by_question(tasks)
        """The tasks by their labels."""
        self.folder = None if runs is None else runs / name
        """Where the journals lie, `RUN_ID.jsonl`; None = runs stay in memory."""
        self._strategies, self._tasks = list(self.settings.values()), list(self.tasks.values())
        for strategy, task in product(self._strategies, self._tasks):
            check_arguments(strategy, task, budget, 0)
        self.cells = self._cells(repeats)
        """All runs, in the order of the table: by setting, task and repeat."""
        self.by_id = {cell.run_id: cell for cell in self.cells}
        """The same by their run ids."""
        self.rows: dict[str, Row] = {}
        """What came of the finished ones, by run id."""
        self.found = 0
        """How many of them had been finished before."""
        self.in_memory: dict[str, Run] = {}
        """The finished ones that have no file, by run id."""
        self._identities: dict[str | None, dict[str, Any]] = {}

    def _cells(self, repeats: int) -> list[Cell]:
        lab = _digest(
            "the lab",
            [
                identity_of(self.runner.gateway.model),
                {
                    name: [role.settings(), identity_of(self.model_of(name))]
                    for name, role in self.runner.gateway.roles.items()
                },
                self.runner.gateway.draws,
                self.budget.model_dump(exclude_none=True) if self.budget else {},
                *self._equipment(),
            ],
        )
        settings = [_digest(f"setting {label!r}", part.settings()) for label, part in self.settings.items()]
        tasks = [_digest(f"task {label!r}", task.settings()) for label, task in self.tasks.items()]
        _expect_different("strategies", list(self.settings), settings)
        _expect_different("tasks", list(self.tasks), tasks)
        return [
            Cell(s, t, repeat, _digest("a run", [lab, settings[s], tasks[t], repeat])[:16])
            for s, t, repeat in product(range(len(settings)), range(len(tasks)), range(repeats))
        ]

    def _equipment(self) -> list[Any]:
        """What the lab's tools are, if there are any: each as models see it too, and the policy."""
        toolbox = self.runner.gateway.toolbox
        if not toolbox.tools:
            return []
        tools = [[tool.identity(), tool.spec.model_dump()] for tool in toolbox.tools.values()]
        return [tools, toolbox.policy_settings]

    def part(self, cell: Cell) -> tuple[Strategy, Task]:
        """The strategy and the task of a cell."""
        return self._strategies[cell.setting], self._tasks[cell.task]

    def path(self, cell: Cell) -> Path | None:
        """Where the journal of a cell lies; None = it stays in memory."""
        return None if self.folder is None else self.folder / f"{cell.run_id}.jsonl"

    # Running.

    async def carry_out(self, at_once: int | None, by_workers: ByWorkers | None = None) -> None:
        """Run what is not finished, `at_once` runs at a time; here, or by the workers of a cluster."""
        if at_once is not None and at_once < 1:
            raise ValueError(f"at_once must be 1 or more, or None, not {at_once}")
        forget_warnings()
        self.runner.gateway.open()
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
        if self.runner.gateway.purse.cap is not None:
            self._count_payments()
        cells = sorted(self.cells, key=self._turn)
        with progress(self) as tell:
            if by_workers is None:
                await self.make(cells, at_once or self.window(), tell)
            else:
                await by_workers(self, cells, at_once, tell)

    def _count_payments(self) -> None:
        """Count what the runs that were begun before paid, before anything more is paid: a cap on real
        money holds over kills."""
        for path in filter(None, map(self.path, self.cells)):
            with suppress(JournalError, OSError):  # the row of the run says so
                header, lines, _ = read_journal(path)
                self.runner.count_payments(header, lines)

    async def make(self, cells: Sequence[Cell], at_once: int, tell: Callable[[], None]) -> None:
        """Run `cells` in this process, as far as they are not finished; `tell` is called after each."""
        waiting = deque(cells)

        async def work() -> None:
            while waiting:
                cell = waiting.popleft()
                try:
                    await self.finish(cell)
                    tell()
                except HeldByAnother:  # it will be finished, or its process will be gone
                    waiting.append(cell)
                    await asyncio.sleep(AGAIN)

        with seldom_collecting():
            async with asyncio.TaskGroup() as workers:
                for _ in range(min(at_once, len(cells))):
                    workers.create_task(work())

    def _turn(self, cell: Cell) -> tuple[int, int, float]:
        """Task by task, so that what a cut leaves can be compared; of a task the setting with the most
        calls first, since its calls serve the others."""
        strategy, task = self.part(cell)
        try:
            most = strategy.max_calls(self.runner.equipped(task))
        except Exception:  # a strategy's bug is for its run to tell
            most = None
        return cell.repeat, cell.task, -math.inf if most is None else -most

    def window(self) -> int:
        """Runs under way at a time that keep the models busy."""
        models = (self.runner.gateway.model, *(self.model_of(name) for name in self.runner.gateway.roles))
        limits = [model.concurrency if isinstance(model, Endpoint) else UNDER_WAY for model in models]
        return min(max(limits), MOST_UNDER_WAY)

    async def finish(self, cell: Cell) -> None:
        """Make a run, go on with it, or only read it, and keep its row. Raises `HeldByAnother` when another
        process is making it."""
        strategy, task = self.part(cell)
        path = self.path(cell)
        execution: Execution | None = None
        error = None
        try:
            execution = self._execution(cell, strategy, task, path)
            await execution.carry_out()
            await asyncio.sleep(0)  # many that are only read leave room for a cancel
        except HeldByAnother:
            raise
        except (Exception, asyncio.CancelledError) as failed:
            task_here = asyncio.current_task()
            if isinstance(failed, asyncio.CancelledError) and task_here and task_here.cancelling():
                raise  # else a strategy's own
            error = _told(failed)
        if execution is None:
            self.rows[cell.run_id] = Row(error=error)
            return
        self.found += execution.is_over
        run = self.whole(execution.run, cell)
        self.rows[cell.run_id] = self.row_of(run, error)
        if run.path is None:
            self.in_memory[cell.run_id] = run

    def _execution(self, cell: Cell, strategy: Strategy, task: Task, path: Path | None) -> Execution:
        """The run of a cell, new or begun before."""
        if path is not None and _left_behind(path):
            return self.runner.resume(path, strategy, task)
        header = self.runner.header(strategy, task, self.budget, cell.repeat)
        header = msgspec.structs.replace(header, id=cell.run_id)
        try:
            return self.runner.start(strategy, task, header=header, path=path, budget=self.budget)
        except FileExistsError as begun_there:  # in this very moment
            raise HeldByAnother(str(begun_there)) from None

    def whole(self, run: Run, cell: Cell) -> Run:
        """The run of a cell, with the functions of its strategy and task, which no file holds."""
        strategy, task = self.part(cell)
        cache = self.runner.gateway.opened
        return Run(run.header, run.lines, run.path, strategy=strategy, task=task, cache=cache)

    def row_of(self, run: Run, error: str | None) -> Row:
        """What is kept of a run that is over."""
        try:
            score = None if run.grade is None else float(run.grade)  # of a domain of your own: True, too
            if score is not None and not 0 <= score <= 1:
                raise ValueError(f"a grade lies in 0–1, and this is {score}")
        except Exception as failed:
            score = None
            error = error or f"the answer cannot be graded: {_told(failed)}"
        if run.stop_reason == "error" and error is None:  # of a model that did not answer
            replies = (line.e for line in reversed(run.lines) if isinstance(line.e, Reply))
            error = next((reply.error for reply in replies if is_made(reply)), None)
        usage = run.usage
        if wrong := [n for n in usage if n is not None and not 0 <= n < 2**63]:
            error = error or f"the usage of its calls cannot be counted: got {wrong[0]}"
            usage = Usage(usage.calls, usage.errors, *[None] * 4)
        keys = self.keys_of(run.lines)
        return Row(
            run.stop_reason,
            error,
            run.answer,
            None if score is None else score == 1.0,
            score,
            *usage,
            run.seconds,
            len(keys.keys() - not_sent(run.lines)),
            b"".join(keys.values()),
            run.simulated,
            run.header.version,
            losses_of(run),
            run.selected_strategy,
            run.strategy_used,
        )

    def keys_of(self, lines: Sequence[Line]) -> dict[Position, bytes]:
        """The beginning of the key of each call that was made, by its position."""
        made = {line.p for line in lines if isinstance(line.e, Reply) and is_made(line.e)}
        return {line.p: self.key_of(line.e) for line in lines if isinstance(line.e, Call) and line.p in made}

    def key_of(self, call: Call) -> bytes:
        """The beginning of the key of a call."""
        try:
            who = self._identities.get(call.model)
            if who is None:
                who = self._identities[call.model] = identity_of(self.runner.gateway.model_of(call.model))
            key = key_of(request_of(call, who, self.runner.gateway.draws))
        except Exception:  # no such model, or a setting that no key can hold; the call was made all the same
            key = hashlib.sha256(repr(call).encode()).hexdigest()
        return bytes.fromhex(key[: 2 * KEY])

    def model_of(self, role: str) -> Any:
        """The model of a role."""
        model = self.runner.gateway.roles[role].model
        return model if isinstance(model, Part) else self.runner.gateway.model_of(model)

    def finished(self, cell: Cell) -> Run | None:
        """The run of a cell as its journal has it, None when something is left to do. Raises OSError or
        `JournalError` when it cannot be read."""
        path = self.path(cell)
        if path is None or not begun(path):
            return None
        header, lines, _ = read_journal(path)
        kept = resumable(lines, asking=self.runner.gateway.mode != "replay")
        return self.whole(Run(header, lines, path), cell) if kept is None else None

    async def estimate(self) -> SweepEstimate:
        """What it would still ask: nothing is sent, and nothing is recorded."""
        costs: dict[int, list[float | None]] = {}
        left: list[Cell] = []
        for cell in self.cells:
            with suppress(JournalError, OSError):  # its row will say so, and asks nothing
                done = self.finished(cell)
                if done is None:
                    left.append(cell)
                else:
                    costs.setdefault(cell.setting, []).append(done.usage.cost)
        calls: float = 0
        cached = 0
        for cell in left:
            caps = [] if self.budget is None or self.budget.calls is None else [self.budget.calls]
            try:
                asked = await self.runner.estimate(*self.part(cell), repeat=cell.repeat)
            except Halt:  # a cache that cannot be read
                raise
            except Exception:  # a strategy's bug is for its run to tell
                asked = Estimate(None, 0, whole=False)
            caps += [] if asked.calls is None else [asked.calls]
            cached += asked.cached
            calls += min(caps, default=math.inf)
        means = [mean(costs.get(cell.setting, [])) for cell in left]
        return SweepEstimate(
            len(self.cells),
            len(self.cells) - len(left),
            None if calls == math.inf else int(calls),
            cached,
            None if None in means else math.fsum(mean for mean in means if mean is not None),
        )

    # What came of it.

    @property
    def counts(self) -> Counts:
        """How many calls were asked, distinct, paid and saved."""
        import numpy  # noqa: PLC0415

        rows = self.rows.values()
        calls, sent = sum(row.calls for row in rows), sum(row.sent for row in rows)
        # Sorted: a set took 100 bytes a key, and numpy.unique makes one, too.
        keys = numpy.sort(numpy.frombuffer(b"".join(row.keys for row in rows), dtype=f"u{KEY}"))
        distinct = int(numpy.count_nonzero(keys[1:] != keys[:-1])) + bool(len(keys))
        return Counts(calls, distinct, sent, calls - sent)

    def run(self, row: Any) -> Run:
        """The run of a row of `df()`, or of a run id. Raises LookupError when there is none."""
        run_id = row if isinstance(row, str) else getattr(row, "run_id", None)
        cell = self.by_id.get(run_id) if isinstance(run_id, str) else None
        if cell is None:
            told = row if run_id is None else run_id
            raise LookupError(f"no run {told!r} in this sweep; give a row such as df().iloc[0], or a run_id")
        if run_id not in self.rows:
            raise LookupError(f"the run {run_id!r} is not finished; the same lab.sweep goes on with it")
        return self._run(cell)

    def runs(self) -> Iterator[Run]:
        """The finished runs, in the order of the table, each loaded when its turn comes. Those that
        could not even begin are left out."""
        for cell in self.cells:
            if cell.run_id in self.rows and self.rows[cell.run_id].version:
                yield self._run(cell)

    def _run(self, cell: Cell) -> Run:
        run, path = self.in_memory.get(cell.run_id), self.path(cell)
        if run is None:
            if path is None or not path.exists():
                why = self.rows[cell.run_id].error or f"{path} is gone"
                raise LookupError(f"there is no record of the run {cell.run_id}: {why}")
            run = self.whole(load(path), cell)
        return run


def not_sent(lines: Sequence[Line]) -> set[Position]:
    """The positions of the calls that the cache answered, or an equal call that was under way."""
    notes = (line.e for line in lines if isinstance(line.e, Note))
    return {tuple(note.data["call"]) for note in notes if note.name in ("call.cached", "call.joined")}


def forget_warnings() -> None:
    """Let each warning be shown again. Python shows one only once in a process, and a sweep says what there
    is to say of it although another has said the same."""
    with warnings.catch_warnings():  # leaving it empties Python's lists of those that were shown
        pass


class _Named(msgspec.Struct):
    id: str


def _left_behind(path: Path) -> bool:
    """Whether there is a journal to go on with. That of a process that was killed before its header was
    whole is taken away. Raises `HeldByAnother`."""
    if path.exists() and not begun(path):
        with suppress(FileNotFoundError):
            take_away(path)
    return begun(path)


def begun(path: Path) -> bool:
    """Whether there is a journal with a whole header. That of another run is a `JournalError`."""
    try:
        with path.open("rb") as file:
            first = file.readline()
    except FileNotFoundError:
        return False
    if first.endswith(b"\n"):
        with suppress(msgspec.MsgspecError, UnicodeDecodeError):  # who reads it tells of it
            id = msgspec.json.decode(first, type=_Named).id
            if id != path.stem:
                raise JournalError(f"{path}: this is the journal of another run, {id!r}")
        return True
    return False


def _told(error: BaseException) -> str:
    return readable(f"{type(error).__name__}: {error}")


def mean(amounts: Sequence[float | None]) -> float | None:
    """None when there is none, or one of them is not known."""
    known = [amount for amount in amounts if amount is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(amounts) else None


def _digest(what: str, value: Any) -> str:
    try:
        # Sets in order, too: theirs changes from process to process.
        data = msgspec.json.encode(in_order(value), enc_hook=encoder.enc_hook, order="deterministic")
        return hashlib.sha256(data).hexdigest()
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what} cannot be written to a file: {error}") from None


def _expect_different(what: str, labels: list[str], digests: list[str]) -> None:
    """A ValueError when two are the same: their runs would be one."""
    seen: dict[str, str] = {}
    for label, digest in zip(labels, digests, strict=True):
        if digest in seen:
            hint = "; ask a task more than once with repeats=" if what == "tasks" else ""
            raise ValueError(f"the {what} {seen[digest]!r} and {label!r} are the same{hint}")
        seen[digest] = label
