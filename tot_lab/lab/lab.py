"""The lab: runs strategies with a model, and keeps each run.

Only methods that wait for a model are async. Each run is written to a journal, a file that can be read,
loaded and resumed.
"""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

import msgspec

from tot_lab.core.attach import NamesNearest
from tot_lab.core.calls import Model, Reply, is_made
from tot_lab.core.model_setting import model_names
from tot_lab.core.parameters import takes_fields_of, with_example
from tot_lab.core.protocol import Budget
from tot_lab.core.records import Line, Record
from tot_lab.core.strategy import Strategy, strategy_named
from tot_lab.core.task import Task
from tot_lab.core.tracebacks import shown_traceback
from tot_lab.lab.lessons import Lessons, LessonsError
from tot_lab.lab.model_settings import named_model, with_named_models
from tot_lab.lab.plan_store import PlanStore
from tot_lab.lab.sweeps.axes import Strategies
from tot_lab.lab.sweeps.estimates import SweepEstimate, estimate_sweep
from tot_lab.lab.sweeps.progress import progress
from tot_lab.lab.sweeps.sweep import ByWorkers, Sweep
from tot_lab.models.checking import Check, check
from tot_lab.models.simulated import Simulated
from tot_lab.models.stack import Endpoint
from tot_lab.record import waiting
from tot_lab.record.journal import Header
from tot_lab.record.routed import route_of
from tot_lab.record.run import Run
from tot_lab.record.search_notes import SearchNotes
from tot_lab.record.waiting import notebook_display, show_calls
from tot_lab.runtime.blocking import blocking
from tot_lab.runtime.branching import describe_change, doubts_of, source_of
from tot_lab.runtime.estimates import Estimate
from tot_lab.runtime.gateway import Gateway
from tot_lab.runtime.recorder import Recorder
from tot_lab.runtime.replay import budget_of
from tot_lab.runtime.roles import Role, roles_of
from tot_lab.runtime.runner import Execution, Follower, Runner, check_arguments
from tot_lab.runtime.settings import RunnerSettings
from tot_lab.runtime.steering import Steering
from tot_lab.strategies.react import ReAct


@dataclass(frozen=True, kw_only=True)
class LabSettings(RunnerSettings):
    """The settings of a `Lab`: those of its runs, and where it stores journals, plans, memory and traces."""

    runs: str | os.PathLike[str] | None = "runs"
    """Folder in which the journal of each run is written. `None` keeps runs in memory only."""

    plans: str | os.PathLike[str] | PlanStore | None = None
    """SQLite file, or a `tl.PlanStore`, in which each plan of `tl.PlanExecute` is stored while it is carried
    out. `None` keeps plans only in the record of their run (`run.plans`).
    """

    memory: str | os.PathLike[str] | Lessons | None = None
    """SQLite file, or a `tl.Lessons`, of answers and critiques from earlier runs. `run` and `stream` add
    texts from similar tasks to the task, and the header of the run records them. Branches and sweeps neither
    read nor write the memory. `None` turns it off.
    """

    trace: Follower | None = None
    """An object that receives the records of each run while it is made, such as `tl.OpenTelemetry(url)`. It
    is not part of the record. `None` turns it off.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.trace is not None and not callable(getattr(self.trace, "following", None)):
            raise TypeError(
                f"trace must be tl.OpenTelemetry(url) or an object with `following`: got {self.trace!r}."
            )
        if not isinstance(self.memory, str | os.PathLike | Lessons | None):
            raise TypeError(f"memory must be a path or tl.Lessons(path): got {self.memory!r}.")
        if not isinstance(self.runs, str | os.PathLike | None):
            raise TypeError(f"runs must be a folder or None: got {self.runs!r}.")


_ELSEWHERE = {
    **dict.fromkeys(
        ("base_url", "api_key", "price", "concurrency", "retries"), "a model, such as tl.OpenAICompatible(…)"
    ),
    **{
        f"{most}{name}": f"the budget: budget=tl.Budget({name}=…)"
        for name in Budget.model_fields
        for most in ("", "max_")
    },
    **dict.fromkeys(("temperature", "max_tokens", "seed"), "a strategy, such as tl.TreeOfThoughts(…)"),
    "budget": "a run: lab.run(…, budget=…)",
    "repeats": "a sweep: lab.sweep(…, repeats=…)",
}
"""Where to pass settings that a lab does not have, for error messages."""

_NOT_OF_A_RUN = _ELSEWHERE | {one.name: f"the lab: tl.Lab(…, {one.name}=…)" for one in fields(LabSettings)}
"""Where to pass settings that neither a run nor a sweep has, for error messages."""


class Lab(NamesNearest):
    """Runs strategies with a model.

        lab = tl.Lab("ollama/qwen3:8b", cache="cache")
        run = await lab.run(tl.TreeOfThoughts(), tl.game24("4 9 10 13"))

    Raises:
        ValueError: If a setting is unknown or invalid, or `effect_policy` denies one of the tools.
    """

    _meant: ClassVar = dict.fromkeys(("invoke", "ainvoke", "solve", "execute"), "run")

    @takes_fields_of(LabSettings, _ELSEWHERE)
    def __init__(self, settings: LabSettings) -> None:
        """Create a lab."""
        plans, memory = settings.plans, settings.memory
        self._plans = plans if plans is None or isinstance(plans, PlanStore) else PlanStore(plans)
        model = settings.model
        resolved = replace(
            settings,
            model=(named_model(model) or model) if isinstance(model, str) else model,
            roles=_with_named_models(roles_of(settings.roles)),
            runs=None,  # a runner does not use these four, and a worker must not receive them
            plans=None,
            memory=None,
            trace=None,
        )
        self.runner = Runner(resolved, [one for one in (self._plans, settings.trace) if one is not None])
        """Carries out the runs of this lab."""
        self.runs = None if settings.runs is None else Path(settings.runs)
        self.memory = Lessons(memory) if isinstance(memory, str | os.PathLike) else memory
        self.last: Run | None = None
        """The latest run, including one that was cancelled or ended with an error."""
        self.last_sweep: Sweep | None = None
        """The latest sweep, even if it was interrupted or is the pilot of an estimate."""

    @property
    def plans(self) -> PlanStore | None:
        """The store of the plans of `tl.PlanExecute` while they are carried out, or `None`."""
        return self._plans

    @property
    def gateway(self) -> Gateway:
        """Routes each call to the model or tool that answers it."""
        return self.runner.gateway

    @property
    def timeout(self) -> float | None:
        """Seconds that one call may take after it was sent. `None` means no limit."""
        return self.runner.timeout

    @property
    def model(self) -> Model | Endpoint:
        """The model that answers calls for which neither a role nor a strategy names another."""
        return self.gateway.model

    @property
    def spent(self) -> float:
        """USD that this lab has really paid, as far as prices are known.

        A new lab begins at 0. Payments of earlier labs for a run are added when this lab resumes the run or
        continues its sweep. If `spend` is set, a request without a reported cost counts the most that it can
        have cost, unless it was refused.
        """
        return self.gateway.spend_limiter.total

    def __repr__(self) -> str:
        folder = None if self.runs is None else str(self.runs)
        mode = "" if self.gateway.mode == "auto" else f", mode={self.gateway.mode!r}"
        name = self.model.name if isinstance(self.model, Endpoint) else self.gateway.settings["kind"]
        return f"Lab({name!r}, runs={folder!r}{mode})"

    def replaying(self) -> Lab:
        """Return this lab without network access: every call is answered from the cache.

        A call that is not cached ends the run with `CacheMiss`. A simulated model without `cache=` computes
        its replies. The returned lab has no memory, since recalled text would change the prompts, and no
        trace.
        """
        settings = vars(self.runner.settings.replaying())
        lab = Lab(**{**settings, "runs": self.runs, "plans": self.plans})
        lab.gateway.checked_window = self.gateway.checked_window
        return lab

    async def check(self) -> Check:
        """Find out the capabilities of the model and its server by sending about ten small requests.

        The requests are neither cached nor counted in `spent`. From then on, the lab uses the concurrency and
        the context window that were found.

        Raises:
            TypeError: If the lab's model is a function, a simulated model or a reward model, which answers no
                prompts.
        """
        if not isinstance(self.model, Endpoint):
            raise TypeError(f"Only a model with a server can be checked: got {self.model!r}.")
        if not self.model.generates:
            raise TypeError(f"Only a model that answers prompts can be checked: got {self.model!r}.")
        found = await check(self.model)
        self.gateway.use(self.model.model_copy(update={"concurrency": found.concurrency}))
        self.gateway.checked_window = found.context_window
        return found

    @with_example("lab.estimate(strategy, task)", _NOT_OF_A_RUN)
    async def estimate(
        self,
        strategy: Strategy | str | Task,
        task: Task | None = None,
        *,
        budget: Budget | None = None,
        repeat: int = 0,
    ) -> Estimate:
        """Return upper bounds for the usage of `run` with the same arguments. Nothing is sent or recorded.

        Tools that only compute are carried out. For expected values from a few runs, use `estimate_sweep`
        with `pilot`.
        """
        strategy, task = self._chosen(strategy, task)
        check_arguments(strategy, task, budget, repeat)
        return await self.runner.estimate(*self._prepared(strategy, task), repeat=repeat, budget=budget)

    @with_example("lab.run(strategy, task)", _NOT_OF_A_RUN)
    async def run(
        self,
        strategy: Strategy | str | Task,
        task: Task | None = None,
        *,
        budget: Budget | None = None,
        repeat: int = 0,
        watch: Callable[[Sequence[Line]], None] | None = None,
    ) -> Run:
        """Run `strategy` on `task`.

        Failed model calls do not raise; `run.usage` counts them. The run is stored in `last` even if this
        method raises.

        Args:
            strategy: The strategy to run, or its name (`react`, `tree_of_thoughts`). If only a task is given,
                `lab.run(task)`, the lab's `strategy` runs, or `tl.ReAct()` if the lab has tools.
            task: The task to solve.
            budget: Limits on the usage of the run.
            repeat: Index of an independent repeat. Each index gives other samples. For several runs use
                `sweep(…, repeats=)`.
            watch: Called during the run with each batch of new lines and of notes derived from them. If the
                model streams, it is also called with notes `call.partial`, which hold the text so far of an
                open call and are not recorded.

        Raises:
            asyncio.CancelledError: If the run was cancelled.
            Exception: Whatever a bug in the strategy raises.
        """
        strategy, task = self._chosen(strategy, task)
        check_arguments(strategy, task, budget, repeat)
        strategy, task = self._prepared(strategy, task)
        await self.gateway.open()
        execution = self._start(strategy, task, budget, self.runner.header(strategy, task, budget, repeat))
        run = await self._carry_out(execution, watch, shows=True)
        self._remember(run)
        return run

    async def branch(
        self,
        run: Run,
        node: str,
        *,
        content: str | None = None,
        score: float | None = None,
        strategy: Strategy | str | None = None,
        budget: Budget | None = None,
        watch: Callable[[Sequence[Line]], None] | None = None,
    ) -> Run:
        """Repeat `run` with one change at the thought `node`.

        Give exactly one of `content`, `score` and `strategy`. After a change of content or score, the same
        search is repeated with the same model. Calls with a reply in the record of `run` get that reply: they
        cost nothing, but count towards the budget. With `strategy`, calls go to this lab's model, and the
        path to `node` is not paid again. The new run names its origin in `parent`.

        Args:
            run: A finished run.
            node: Id of the thought to change.
            content: A new text for the thought. It does not change which proposals count as duplicates.
            score: A score between 0 and 1 that replaces every score of the thought.
            strategy: The strategy that continues from the thought. Nothing else is explored.
            budget: Limits on the new run. `None` means those of `run`.
            watch: As for `run`.

        Raises:
            ValueError: If the change is not possible: for example if the domain cannot read `content` as a
                step, or if the run has not ended or has no thought `node`.
            LookupError: If `run` was not made by a strategy, or needs functions that its file does not hold.
        """
        if sum(given is not None for given in (content, score, strategy)) != 1:
            raise ValueError("A branch makes exactly one change: pass one of content=, score= and strategy=.")
        other = (
            None if strategy is None else self.runner.prepared(self._with_models(strategy_named(strategy)))
        )
        by, task = source_of(run, node, other)
        check_arguments(by, task, budget, 0)
        if strategy is None:
            self.runner.check_same(run.path or f"run {run.id}", run.header)
        budget = budget or budget_of(run.header)
        changed = describe_change(run, node, content, score, other)
        header = self.runner.header(by, task, budget, run.header.repeat)
        header = msgspec.structs.replace(header, branched=changed)
        await self.gateway.open()
        execution = self._start(by, task, budget, header, parent=run if strategy is None else None)
        made = await self._carry_out(execution, watch, shows=True)
        made.loaded = run.loaded
        for doubt in doubts_of(run, made):
            warnings.warn(doubt, RuntimeWarning, stacklevel=2)
        return made

    def _start(
        self, strategy: Strategy, task: Task, budget: Budget | None, header: Header, parent: Run | None = None
    ) -> Execution:
        """Start a run and open its journal."""
        path = None if self.runs is None else self.runs / header.filename
        return self.runner.start(strategy, task, header=header, path=path, budget=budget, parent=parent)

    async def _carry_out(
        self,
        execution: Execution,
        watch: Callable[[Sequence[Line]], None] | None = None,
        shows: bool = False,
    ) -> Run:
        """Carry out a run. `shows` tells whether to show progress if there is no `watch`."""
        if watch is not None:
            execution.watch(watch)
        # With a simulated model, a notebook shows no bar: its output would differ each time it is run.
        chosen = isinstance(self.model, Simulated) and notebook_display() is not None
        try:
            if watch or not shows or chosen or execution.is_over or self.gateway.mode == "replay":
                return await execution.carry_out()
            async with self._showing_progress(execution):
                return await execution.carry_out()
        except asyncio.CancelledError as stopped:
            _explain(stopped, self._kept(execution.run))
            raise
        except Exception as error:
            if not hasattr(error, "_render_traceback_"):
                error._render_traceback_ = partial(shown_traceback, error, with_last=True)  # type: ignore[attr-defined]
            raise
        finally:
            self.last = execution.run

    def _kept(self, run: Run) -> list[str]:
        """The message about an interrupted run: where it is stored, and how to continue it."""
        calls = run.usage.calls
        again = "The same call starts again: this model's replies are not cached."
        if self.gateway.is_cached(self.model):
            again = "The same call continues: answered calls come from the cache."
        elif run.path:
            resume = "lab.resume_sync" if notebook_display() is None else "await lab.resume"
            again = f'To continue: {resume}("{run.path}")'
        return [
            f"Interrupted after {calls:,} {'call' if calls == 1 else 'calls'}.",
            f"Kept: lab.last{f', in {run.path}' if run.path else ', in memory'}.",
            again,
        ]

    @asynccontextmanager
    async def _showing_progress(self, execution: Execution) -> AsyncIterator[None]:
        """Show the calls of a run that takes longer than `QUIET` seconds."""
        loop, tasks = asyncio.get_running_loop(), list[asyncio.Task[None]]()
        timer = loop.call_later(
            waiting.QUIET, lambda: tasks.append(loop.create_task(self._show_calls(execution)))
        )
        try:
            yield
        finally:
            timer.cancel()
            for task in tasks:
                task.cancel()
                await asyncio.wait([task])

    async def _show_calls(self, execution: Execution) -> None:
        calls, counted_lines, route = 0, 0, ""

        def count() -> tuple[int, str]:
            nonlocal calls, counted_lines, route
            fresh = execution.recorder.lines[counted_lines:]
            counted_lines += len(fresh)
            for line in fresh:
                calls += isinstance(line.e, Reply) and is_made(line.e)
                route = route_of(line.e) or route
            model = self.model
            if isinstance(model, Endpoint) and not model.is_ready:
                return calls, f"loading {model.name}"
            return calls, route

        strategy, total = execution.strategy, None
        with suppress(Exception):  # raised by a strategy or a domain of the user
            total = strategy.max_calls(self.runner.equipped(execution.task))
        await show_calls(strategy.kind or type(strategy).__name__, total, count)

    @with_example("lab.sweep(strategies, tasks, repeats=2)", _NOT_OF_A_RUN)
    async def sweep(
        self,
        strategies: Strategies,
        tasks: Task | Iterable[Task],
        repeats: int = 1,
        *,
        name: str = "sweep",
        budget: Budget | None = None,
        at_once: int | None = None,
        client: Any = None,
    ) -> Sweep:
        """Run every strategy on every task, `repeats` times each with independent samples.

        To continue an interrupted sweep, repeat the same call: finished runs are read, interrupted ones are
        resumed, and no answered call is paid twice. If another process is making a run, the sweep waits for
        it and then reads it. Errors of a run are in its row (`error`). If the sweep is cancelled, its
        finished runs are in `last_sweep`.

        A function in a strategy or a task is identified by its source, and by the numbers and texts among its
        defaults. Choose another `name` if anything else on which the function depends has changed.

        Args:
            strategies: A strategy, a list of strategies (such as a `tl.grid`), or a dict from labels to
                strategies or lists.
            tasks: A task, or several.
            repeats: Runs of each pair of strategy and task.
            name: Name of the folder inside `runs` that holds the journals.
            budget: Limits on each run. The lab's `spend` limits the whole sweep.
            at_once: Concurrent runs. `None` means enough to keep the model busy, at most 128.
            client: A `dask.distributed.Client` whose workers make the runs, all runs of a task on the same
                worker. The workers divide `spend` and the limits of each model, and use the lab's cache and
                `runs` through the client.

        Raises:
            asyncio.CancelledError: If the sweep was cancelled.
        """
        self.last_sweep = Sweep(self.runner, strategies, tasks, repeats, name, budget, runs=self.runs)
        with _explained(self.last_sweep):
            await self.last_sweep.carry_out(at_once, progress, client and _by_workers(client))
        return self.last_sweep

    @with_example("lab.estimate_sweep(strategies, tasks, repeats=2)", _NOT_OF_A_RUN)
    async def estimate_sweep(
        self,
        strategies: Strategies,
        tasks: Task | Iterable[Task],
        repeats: int = 1,
        *,
        name: str = "sweep",
        budget: Budget | None = None,
        pilot: int = 0,
    ) -> SweepEstimate:
        """Predict the usage of the unfinished runs of `sweep` with the same arguments.

        Args:
            strategies: As for `sweep`.
            tasks: As for `sweep`.
            repeats: As for `sweep`.
            name: As for `sweep`.
            budget: As for `sweep`.
            pilot: Number of tasks whose first repeat is run now, to give expected values with intervals. The
                tasks are chosen by a hash of their labels, so each call chooses the same ones. The sweep does
                not pay these runs again. With 0, nothing is sent or recorded.
        """
        sweep = Sweep(self.runner, strategies, tasks, repeats, name, budget, runs=self.runs)
        if pilot:
            self.last_sweep = sweep
        with _explained(sweep):
            return await estimate_sweep(sweep, pilot)

    @with_example("lab.stream(strategy, task)", _NOT_OF_A_RUN)
    def stream(
        self,
        strategy: Strategy | str | Task,
        task: Task | None = None,
        *,
        budget: Budget | None = None,
        repeat: int = 0,
    ) -> Stream:
        """Run `strategy` on `task` as an async iterable of records: `async for event in lab.stream(…)`.

        The notes that the records of a tree search imply (`tot.proposed`, `tot.level_started`) are included
        and, if the model streams, notes `call.partial` with the text so far of each open call. Neither kind
        of note is recorded. Leaving the loop cancels the run. `Stream.run` holds the run afterwards.
        """
        strategy, task = self._chosen(strategy, task)
        check_arguments(strategy, task, budget, repeat)
        return Stream(self, strategy, task, budget, repeat)

    async def resume(
        self,
        path: str | os.PathLike[str],
        *,
        strategy: Strategy | None = None,
        task: Task | None = None,
        parent: Run | None = None,
    ) -> Run:
        """Finish a run that was killed, cancelled, stopped by the lab's `spend` limit, or ended by a bug.

        Recorded replies are not requested again. Calls that were open when the run stopped are made again,
        including those of tools with effects. A finished run is only loaded.

        Args:
            path: The journal of the run.
            strategy: Required if the strategy contains functions, which a journal does not store.
            task: Required if the task contains functions.
            parent: For a branch, the run from which it was made. Required if the journal of that run is not
                in the same folder.
        """
        if isinstance(path, Run):
            raise TypeError(f"path must be the journal of a run: got a Run. Pass its path, {path.path}.")
        if not os.fspath(path):  # `Plan.journal` of a run in memory
            raise ValueError(
                "path must be the journal of a run: got ''. A run of a lab with runs=None has no journal."
            )
        if strategy is not None:
            strategy = self._with_models(strategy)
        execution = await self.runner.resume(Path(path), strategy, task, parent)
        was_over = execution.is_over
        run = await self._carry_out(execution, shows=True)
        if not was_over and run.parent is None:
            self._remember(run)
        return run

    check_sync = blocking(check)
    run_sync = blocking(run)
    sweep_sync = blocking(sweep)
    estimate_sweep_sync = blocking(estimate_sweep)
    resume_sync = blocking(resume)
    estimate_sync = blocking(estimate)

    def _chosen(self, strategy: Strategy | str | Task, task: Task | None) -> tuple[Strategy, Task]:
        """Return the strategy that was passed, by itself or by name, or the lab's default, and the task."""
        if not isinstance(strategy, Task):
            return strategy_named(strategy), cast("Task", task)  # `check_arguments` reports a missing task
        default = self.runner.strategy or (ReAct() if self.gateway.toolbox.tools else None)
        if task is not None:
            raise TypeError(
                f"The strategy comes first, and then the task: got a Task and {task!r}. Swap the arguments."
            )
        if default is None:
            raise TypeError(
                "Pass a strategy and a task: lab.run(strategy, task). Only a lab with a `strategy` or with "
                "tools has a default."
            )
        return default, strategy

    def _with_models(self, strategy: Strategy) -> Strategy:
        if model_names(strategy).issubset(self.gateway.roles):
            return strategy
        return with_named_models(strategy, self.gateway.roles)

    def _prepared(self, strategy: Strategy, task: Task) -> tuple[Strategy, Task]:
        """Return the strategy and the task with the lab's defaults, and with texts that its memory
        recalls.
        """
        strategy = self.runner.prepared(self._with_models(strategy))
        task = self.runner.instructed(task)
        return (strategy, task) if self.memory is None else self.memory.remind(strategy, task)

    def _remember(self, run: Run) -> None:
        """Add `run` to the lab's memory."""
        if self.memory is None:
            return
        try:
            self.memory.add(run)
        except LessonsError as error:
            warnings.warn(
                f"{error} The run is complete, but was not added to the memory.",
                RuntimeWarning,
                stacklevel=3,
            )


@contextmanager
def _explained(sweep: Sweep) -> Iterator[None]:
    """Add to a cancellation a message that says what part of `sweep` is stored, and how to continue it."""
    try:
        yield
    except asyncio.CancelledError as stopped:
        folder = sweep.folder
        again = "starts again, since runs=None keeps no journals"
        if folder is not None:
            again = "continues: finished runs are read, and answered calls are not repeated"
        kept = [
            f"Interrupted: {len(sweep.rows):,} of {len(sweep.cells):,} runs are finished.",
            f"Kept: lab.last_sweep, {f'with its journals in {folder}' if folder else 'in memory'}.",
            f"The same call {again}.",
        ]
        _explain(stopped, kept)
        raise


def _explain(stopped: asyncio.CancelledError, lines: list[str]) -> None:
    """Make `lines` the message of an interruption. A notebook shows them instead of the traceback."""
    stopped.args = ("\n".join(lines),)
    stopped._render_traceback_ = lambda: lines  # type: ignore[attr-defined]


def _by_workers(client: Any) -> ByWorkers:
    """Return a function that makes runs with the workers of a dask client."""
    from tot_lab.lab.sweeps.distributed import make_with_workers  # noqa: PLC0415  dask is an extra

    return partial(make_with_workers, client)


def _with_named_models(roles: Mapping[str, Role]) -> dict[str, Role]:
    """Return `roles` with each name of a model in the settings files replaced by that model."""
    made = dict(roles)
    for name, role in roles.items():
        if isinstance(role.model, str) and (model := named_model(role.model)) is not None:
            made[name] = role.model_copy(update={"model": model})
    return made


def expect_lab(lab: object) -> None:
    """Raise `TypeError` unless `lab` is a `Lab`."""
    if not isinstance(lab, Lab):
        raise TypeError(f'lab must be a Lab such as tl.Lab("sim/general"): got {lab!r}.')


_AT_ONCE = 100
"""Number of records that a stream yields before it lets other tasks of the event loop run."""


class Stream:
    """A run in progress, as an async iterable of its records in the order in which they are emitted."""

    def __init__(self, lab: Lab, strategy: Strategy, task: Task, budget: Budget | None, repeat: int) -> None:
        self.lab = lab
        """The lab that carries out the run."""
        self._arguments = (strategy, task, budget, repeat)
        self.steer = Steering()
        """Pauses the run, and changes its search while it is in progress."""
        self.run: Run | None = None
        """The run, once the iteration has ended.

        If the loop is left early, `run` is set at the caller's next `await`.
        """
        self._begun = False

    def __aiter__(self) -> AsyncIterator[Record]:
        self._begin()
        # Only the caller's loop holds this generator. Leaving the loop finalises it, which cancels the run.
        return self._records()

    def start(self) -> tuple[Recorder, asyncio.Task[Run]]:
        """Start the run on the running event loop.

        Returns:
            The recorder, to which watchers can be added, and the task of the run. Cancelling the task cancels
            the run.
        """
        self._begin()
        return self._start()

    def _begin(self) -> None:
        if self._begun:
            raise RuntimeError(
                "This stream is already exhausted. Call lab.stream(...) again to start a new run."
            )
        self._begun = True

    def _start(self) -> tuple[Recorder, asyncio.Task[Run]]:
        loop = asyncio.get_running_loop()
        strategy, task, budget, repeat = self._arguments
        lab = self.lab
        strategy, task = lab._prepared(strategy, task)
        execution = lab._start(strategy, task, budget, lab.runner.header(strategy, task, budget, repeat))
        execution.steering = self.steer
        self.steer.attach(execution)

        def ended(_: object) -> None:
            execution.recorder.close()  # Still open if the run was cancelled before it began.
            self.run = execution.run

        async def drive() -> Run:
            await lab.gateway.open()
            run = await lab._carry_out(execution)
            lab._remember(run)
            return run

        running = loop.create_task(drive())
        running.add_done_callback(ended)
        return execution.recorder, running

    async def _records(self) -> AsyncIterator[Record]:
        queue: asyncio.Queue[Sequence[Line] | None] = asyncio.Queue()
        await self.lab.gateway.open()
        recorder, running = self._start()
        notes = SearchNotes()
        recorder.watchers.append(lambda lines: queue.put_nowait([*notes.follow(lines)]))
        recorder.text_watchers.append(lambda note: queue.put_nowait([Line((), 0.0, note)]))
        running.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            count = 0
            while (batch := await queue.get()) is not None:
                for line in batch:
                    yield line.e
                    count += 1
                    if count % _AT_ONCE == 0:
                        await asyncio.sleep(0)
            await running
        finally:
            if not running.done():
                running.cancel()
                await asyncio.wait([running])
