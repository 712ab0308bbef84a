"""Execution of runs: the one place where a strategy, a task, models and a journal come together.

A `Runner` holds the objects that all runs of a lab share (models, cache, tools, spending limit). An
`Execution` is one run, new or resumed, and its `run` is available at any time, even after an error or a
cancellation. Labs, streams, sweeps and workers all use these two classes.
"""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tot_lab.core.acts import acts_of
from tot_lab.core.bulk import seldom_collecting
from tot_lab.core.calls import REFUSED, Call, CallObserver, Reply, is_admitted
from tot_lab.core.model_setting import models_of
from tot_lab.core.parts import UserFunction, map_parts, part_of, parts_in
from tot_lab.core.protocol import Budget
from tot_lab.core.records import RESUMED, Ended, Line, failed_tries, payments
from tot_lab.core.strategy import Strategy, strategy_named
from tot_lab.core.task import Answer, LabContext, Task
from tot_lab.core.tools import asks_no_model
from tot_lab.models.cache import CacheMiss
from tot_lab.models.stack import numbered_run
from tot_lab.record.edits import Edits
from tot_lab.record.journal import Header, read_journal
from tot_lab.record.run import Run, replies_of
from tot_lab.record.search_notes import SearchNotes
from tot_lab.runtime.branching import answering, parent_of
from tot_lab.runtime.budget import AMOUNTS
from tot_lab.runtime.driver import Driver
from tot_lab.runtime.estimates import NOT_MADE, Amounts, Bounds, Estimate, certain_calls
from tot_lab.runtime.gateway import Gateway, identity_of
from tot_lab.runtime.recorder import Recorder
from tot_lab.runtime.replay import budget_of, runnable
from tot_lab.runtime.roles import calling_roles, thinking_of
from tot_lab.runtime.settings import RunnerSettings
from tot_lab.runtime.steering import Steered, Steering, sample_counters
from tot_lab.strategies.defaults import PROFILES, lab_defaults
from tot_lab.strategies.thinking_level import WithThinking

S = TypeVar("S", bound=Strategy)

Watcher = Callable[[Sequence[Line]], None]


class Follower(Protocol):
    """Stores or sends data about running runs outside their journals, as `tl.PlanStore` does."""

    def following(self, header: Header, lines: Sequence[Line], path: Path | None) -> Watcher:
        """Return a watcher of the run with this header. `lines` are the earlier lines of a resumed run."""


class Runner:
    """Carries out runs.

    Args:
        settings: Models, cache, tools and limits.
        followers: Watch every run.
    """

    def __init__(self, settings: RunnerSettings, followers: Sequence[Follower] = ()) -> None:
        self.gateway = Gateway(settings)
        self.strategy = None if settings.strategy is None else strategy_named(settings.strategy)
        """The strategy of runs that are started without a strategy."""
        self.followers = followers
        self._given = settings
        transform = None if settings.transform_result is None else UserFunction.of(settings.transform_result)
        self._defaults = lab_defaults(settings.profile, settings.thinking_level, transform)
        shown = PROFILES[settings.profile or "mid"]
        self._context = LabContext(
            profile=settings.profile,
            result_characters=shown.result,
            transform_result=transform,
            history_tokens=shown.history,
            agent_id=settings.agent_id,
            session_id=settings.session_id,
        )
        self._counted: set[str] = set()

    @property
    def settings(self) -> RunnerSettings:
        """The settings, with the current model and with tools instead of names of tools."""
        tools = tuple(self.gateway.toolbox.tools.values())
        return replace(self._given, model=self.gateway.model, tools=tools)

    @property
    def timeout(self) -> float | None:
        """Seconds that one call may take after it was sent, or `None`."""
        return self._given.timeout

    # Strategy, task and header of a run.

    def prepared(self, strategy: S) -> S:
        """Return the strategy with the lab's defaults for settings that were not given."""
        if self._defaults is None:
            return strategy
        level = self._given.thinking_level
        if level is not None and not any(isinstance(part, WithThinking) for part in parts_in(strategy)):
            warnings.warn(
                f"thinking_level={level!r} of the lab has no effect on {strategy.kind}: wrap the strategy in "
                f"tl.WithThinking(strategy=…).",
                RuntimeWarning,
                stacklevel=2,
            )
        made: S = map_parts(strategy, self._defaults)
        return made

    def instructed(self, task: Task) -> Task:
        """Return the task, with the lab's system prompt if the task has none of its own."""
        prompt = self._given.system_prompt
        return (
            task.model_copy(update={"system_prompt": prompt}) if prompt and not task.system_prompt else task
        )

    def equipped(self, task: Task) -> Task:
        """Return the task with the fields that the lab sets: tools, context window of the model if known,
        profile and ids.
        """
        specs = tuple(tool.spec for tool in self.gateway.toolbox.tools.values())
        window = task.context_window or self.gateway.window
        if (task.tools, task.context_window, task.lab) == (specs, window, self._context):
            return task
        return task.model_copy(update={"tools": specs, "context_window": window, "lab": self._context})

    def header(self, strategy: Strategy, task: Task, budget: Budget | None = None, repeat: int = 0) -> Header:
        """Return the header of a new run."""
        toolbox = self.gateway.toolbox
        return Header.now(
            task=self.equipped(task).settings(),
            strategy=strategy.settings(),
            model=self.gateway.settings,
            budget=budget.model_dump(exclude_none=True) if budget else {},
            repeat=int(repeat),
            roles=self.gateway.role_settings,
            tools={name: tool.settings() for name, tool in toolbox.tools.items()},
            effect_policy=toolbox.policy_settings,
            agent_id=self._given.agent_id,
            session_id=self._given.session_id,
        )

    def check_same(self, path: Path | str, header: Header) -> None:
        """Raise `ValueError` unless this lab has the models, roles, tools and effect policy in `header`.

        The code of functions is not compared: if it has changed, repeating the record will detect it.
        """
        roles = calling_roles(self.gateway.role_settings)
        toolbox = self.gateway.toolbox
        for what, then, now in (
            ("model", _identity(header.model), _identity(self.gateway.settings)),
            ("roles", calling_roles(header.roles), roles),
            ("tools", sorted(header.tools), sorted(toolbox.tools)),
            ("effect_policy", header.effect_policy, toolbox.policy_settings),
        ):
            if then != now:
                raise ValueError(
                    f"{path}: this lab must have the {what} of the run: got {now!r} instead of {then!r}."
                )

    # Payments.

    @property
    def spent(self) -> float:
        """USD that was really paid, as far as prices are known, including earlier payments of resumed
        runs.
        """
        return self.gateway.spend_limiter.total

    def count_payments(self, header: Header, lines: Sequence[Line]) -> None:
        """Count the payments in the journal of a run towards `spend`, unless they are counted already."""
        if self.expect_payments(header.id):
            self.gateway.spend_limiter.earlier += payments(lines)

    def expect_payments(self, run_id: str) -> bool:
        """Mark a run as one whose payments are counted. Returns `False` if it was marked before."""
        known = run_id in self._counted
        self._counted.add(run_id)
        return not known

    # Runs.

    def start(
        self,
        strategy: Strategy,
        task: Task,
        *,
        header: Header,
        path: Path | None,
        budget: Budget | None = None,
        parent: Run | None = None,
        kept: list[Line] | None = None,
    ) -> Execution:
        """Start a run and open its journal.

        Args:
            strategy: The strategy.
            task: The task.
            header: The header of the run; see `header`.
            path: The journal to create. `None` keeps the run in memory.
            budget: Limits of the run.
            parent: For a branch, the run whose record answers calls first.
            kept: Lines of an earlier run that this run continues in memory.
        """
        self.gateway.enlist(models_of(strategy))
        recorder = Recorder.resuming(None, header, kept) if kept else Recorder(header=header, path=path)
        return Execution(self, recorder, strategy, task, budget, parent=parent, kept=kept or None)

    async def resume(
        self,
        path: Path,
        strategy: Strategy | None = None,
        task: Task | None = None,
        parent: Run | None = None,
    ) -> Execution:
        """Return the execution that continues a journal. If the run is finished, `is_over` is true.

        Raises:
            FileNotFoundError: If there is no such file.
        """
        if not path.exists():
            raise FileNotFoundError(
                f"{path}: there is no such file. A run and its plans are resumed from this journal: restore "
                "it, or start a new run."
            )
        read = path.stat().st_size
        header, lines, size = read_journal(path)
        kept = resumable(lines, asking=self.gateway.mode != "replay")
        if kept is None:
            self.count_payments(header, lines)
            return Execution.over(self, Run(header, lines, path, loaded=True))
        from_file = task is None
        strategy, task = runnable(header, strategy, task)
        self.check_same(path, header)
        self.gateway.enlist(models_of(strategy))
        self.count_payments(header, lines)
        parent = parent_of(path, header, parent)
        await self.gateway.open()
        if len(kept) < len(lines):
            with path.open("rb") as file:
                for _ in range(len(kept) + 1):
                    file.readline()
                size = file.tell()
        settled = [one for one in kept if isinstance(one.e, Reply) or getattr(one.e, "name", "") == RESUMED]
        lost = payments(lines) - payments(settled)
        paid, still = (Run(header, part).usage.paid or 0.0 for part in (lines, kept))
        recorder = Recorder.resuming(path, header, kept, size, read, lost, paid - still)
        execution = Execution(self, recorder, strategy, task, budget_of(header), parent=parent, kept=kept)
        execution.loaded = from_file
        return execution

    async def estimate(
        self, strategy: Strategy, task: Task, *, repeat: int = 0, budget: Budget | None = None
    ) -> Estimate:
        """Predict the calls of `strategy` on `task` without sending or recording anything.

        Pure tools without effects are carried out.
        """
        self.gateway.enlist(models_of(strategy))
        known = Recorder(header=self.header(strategy, task, None, repeat))
        cached = unknown = 0

        async def look(call: Call, observer: CallObserver) -> Reply:
            nonlocal cached, unknown
            reply = await self.gateway.known(call)
            if reply is None and (tool := self.gateway.computing(call)) is not None:
                return await tool.reply(call, observer)
            cached += reply is not None and not asks_no_model(call)
            unknown += reply is None
            return reply or Reply(error=NOT_MADE)

        driver = Driver(look, known, repeat=repeat, in_order=True)
        task = self.equipped(task)
        await driver.drive(thinking_of(strategy, task, self.gateway.roles))
        bounds = Bounds(self.gateway, strategy)
        for call in certain_calls(known.lines):
            await bounds.see(call)
        calls = strategy.max_calls(task)
        sent = await bounds.of_run(calls, cached, budget)
        unpriced = () if self.gateway.spend_limiter.cap is None else tuple(sorted(bounds.unpriced))
        return Estimate(calls, cached, unknown == 0, self.within_spend(sent, unpriced), unpriced)

    def within_spend(self, most: Amounts, unpriced: Collection[str] = ()) -> Amounts:
        """Return `most` with the cost limited to what is left of `spend`. With `unpriced` models, whose calls
        will be refused, it is returned unchanged.
        """
        cap = self.gateway.spend_limiter.cap
        if cap is None or unpriced:
            return most
        left = max(cap - self.spent, 0.0)
        return most._replace(cost=left if most.cost is None else min(most.cost, left))


class Execution:
    """The execution of one run."""

    def __init__(
        self,
        runner: Runner,
        recorder: Recorder,
        strategy: Strategy,
        task: Task,
        budget: Budget | None,
        *,
        parent: Run | None = None,
        kept: list[Line] | None = None,
    ) -> None:
        self.runner = runner
        self.recorder = recorder
        self.strategy = strategy
        self.task = runner.equipped(task)
        self.budget = budget
        self.parent = parent
        self.loaded = False
        """Whether its task was loaded from a file."""
        self.is_over = False
        """Whether the run was finished when it was loaded, so that nothing is left to do."""
        self.steering: Steering | None = None
        """Supplies the changes that a person makes while the run is in progress. `None` without such
        changes.
        """
        self._kept = kept
        self._run: Run | None = None
        self._driver: Driver | None = None

    @classmethod
    def over(cls, runner: Runner, run: Run) -> Execution:
        """Return the execution of a finished run."""
        made = cls.__new__(cls)
        made.runner, made.is_over, made._run = runner, True, run
        return made

    @property
    def run(self) -> Run:
        """The run so far."""
        if self._run is not None:
            return self._run
        recorder = self.recorder
        return Run(
            recorder.header,
            recorder.lines,
            recorder.path,
            loaded=self.loaded,
            task=self.task,
            strategy=self.strategy,  # including its functions, which a file does not hold
            cache=self.runner.gateway.opened,
        )

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` with each batch of new lines and the notes derived from them. It also receives the
        text so far of each open call, as notes `call.partial`, which are not recorded.
        """
        recorder, notes = self.recorder, SearchNotes()
        recorder.watchers.append(lambda lines: watcher([*notes.follow(lines)]))
        recorder.text_watchers.append(lambda note: watcher([Line((), recorder.now, note)]))

    async def carry_out(self) -> Run:
        """Carry out and return the run.

        Raises:
            asyncio.CancelledError: If the run was cancelled.
            Exception: Whatever a bug in the strategy raises.
        """
        if self.is_over:
            return self.run
        runner, recorder = self.runner, self.recorder
        recorder.logs = True
        self.follow()
        ask, steering = runner.gateway.ask, self.steering
        driver = Driver(
            ask if self.parent is None else answering(self.parent.lines, self.parent.id, ask),
            recorder,
            budget=self.budget,
            timeout=runner.timeout,
            repeat=recorder.header.repeat,
            replies=None if self._kept is None else replies_of(self._kept),
            tries=None if self._kept is None else failed_tries(self._kept),
            bounds=runner.gateway,
            is_paused=lambda: steering is not None and steering.paused,
            samples=runner.gateway if self.parent is None else None,
        )
        self._driver = driver
        try:
            with numbered_run(), seldom_collecting():
                await self._make_ready()
                await self._drive(driver)
        except CacheMiss as miss:
            player = self.task.domain.player
            raise CacheMiss(f'{miss} To continue with a simulated model: tl.Lab("{player}").') from None
        finally:
            self._run = self.run
            recorder.close()
            self._run.path = recorder.path  # None if the file could not be written completely
        if self.budget is not None and self.budget.usd is not None and driver.unpriced:
            warnings.warn(
                "The limit on usd could not be enforced: the model does not report what its calls cost. "
                "Set its price=, in USD per million tokens.",
                RuntimeWarning,
                stacklevel=3,
            )
        return self._run

    def follow(self) -> None:
        """Let the followers of the runner watch the run, and mark its payments as counted."""
        recorder = self.recorder
        for follower in self.runner.followers:
            recorder.watchers.append(follower.following(recorder.header, recorder.lines, recorder.path))
        self.runner.expect_payments(recorder.header.id)

    @property
    def is_waiting(self) -> bool:
        """Whether all calls that the run can make at the moment were made."""
        return self.is_over or self._driver is None or self._driver.is_waiting

    def limits(self) -> dict[str, float]:
        """Return the limits of the run's budget, by name."""
        return {} if self._driver is None else self._driver.limits

    def _drive(self, driver: Driver) -> Awaitable[Answer]:
        """Carry out the strategy with the changes that persons made: those in the record so far, those in the
        record of the parent, and new ones from `steering`.
        """
        branched, roles = self.recorder.header.branched, self.runner.gateway.roles
        edits = Edits.of(branched) if branched else None
        thinking = thinking_of(self.strategy, self.task, roles, edits)
        if self._kept is None and self.parent is None and self.steering is None:
            return driver.drive(thinking)
        acts = {} if self.parent is None else acts_of(self.parent.lines)
        acts |= acts_of(self._kept or ())
        samples = sample_counters(self.recorder.header, self.parent)
        return driver.drive(thinking, Steered(acts, self.steering, driver.raise_budget, samples).respond)

    async def _make_ready(self) -> None:
        """Load the prices and limits that bound how much a call can use.

        A resumed run counts its recorded calls again, and loading prices during that would block the event
        loop.
        """
        if self._kept is None or self.budget is None:
            return
        if any(getattr(self.budget, name) is not None for name in AMOUNTS):
            calls = [line.e for line in self._kept if isinstance(line.e, Call)]
            for name in {call.model for call in calls if not asks_no_model(call)}:
                with suppress(Exception):  # the call itself will report the reason
                    await self.runner.gateway.ready(name)


def check_arguments(strategy: object, task: object, budget: object, repeat: int) -> None:
    """Raise `TypeError` or `ValueError` unless these arguments describe a run."""
    if not isinstance(strategy, Strategy):
        raise TypeError(f"strategy must be a Strategy such as tl.TreeOfThoughts(): got {strategy!r}.")
    if not isinstance(task, Task):
        hint = " Use lab.sweep for several tasks." if isinstance(task, list | tuple) else ""
        raise TypeError(f'task must be a Task such as tl.general("…"): got {task!r}.{hint}')
    if budget is not None and not isinstance(budget, Budget):
        raise TypeError(f"budget must be a Budget such as tl.Budget(calls=60): got {budget!r}.")
    if isinstance(repeat, str | float) or repeat < 0:
        raise ValueError(f"repeat must be an integer of at least 0: got {repeat!r}.")


def _identity(model: dict[str, Any]) -> Any:
    """Return the identity of a model from its settings. All functions count as the same here."""
    return "a function" if model.get("kind") == UserFunction.kind else identity_of(part_of(model))


def resumable(lines: list[Line], *, asking: bool) -> list[Line] | None:
    """Return the lines from which a run can continue, or `None` if it is finished.

    The first reply that states a cancellation or a refusal by the `spend` limit is dropped, with all lines
    after it. So is an end that a cancellation or a bug caused. If the run ended because calls failed and the
    model may be called again (`asking`), the reply to the first failed call is dropped, with all lines after
    it.
    """
    for number, line in enumerate(lines):
        if isinstance(line.e, Reply) and line.e.error in ("cancelled", REFUSED):
            return lines[:number]
        if isinstance(line.e, Ended):
            if line.e.stop_reason == "cancelled" or line.e.error is not None:
                return lines[:number]
            return next(_before_failures(lines), None) if line.e.stop_reason == "error" and asking else None
    return lines


def _before_failures(lines: list[Line]) -> Iterator[list[Line]]:
    """Yield the lines before the reply to each failed call. The call itself is kept."""
    for number, line in enumerate(lines):
        if isinstance(line.e, Reply) and line.e.error is not None and is_admitted(line.e):
            yield lines[:number]
