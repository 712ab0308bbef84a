"""Carrying a run out: the one place where a strategy, a task, models and a journal come together.

A `Runner` has what all runs of a lab share (models, cache, tools, limits of spending). An `Execution` is one
run: it is new or goes on with a journal, and its `run` is there at any time, also when it fails or is
cancelled. Labs, streams, sweeps and workers all use these two.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tot_lab.core.calls import Call, CallObserver, Model, Reply, is_cost, is_made
from tot_lab.core.parts import Part, UserFunction, part_of
from tot_lab.core.records import Ended, Line
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Task
from tot_lab.core.thinking import Budget
from tot_lab.core.tools import asks_no_model
from tot_lab.models.cache import Cache, Mode
from tot_lab.models.keys import DrawScope
from tot_lab.models.spending import REFUSED
from tot_lab.models.stack import Endpoint
from tot_lab.record.edits import Edits
from tot_lab.record.journal import Header, read_journal
from tot_lab.record.run import Run, replies_of
from tot_lab.runtime.branching import answering, parent_of
from tot_lab.runtime.budget import AMOUNTS
from tot_lab.runtime.driver import Driver
from tot_lab.runtime.gateway import Gateway, identity_of
from tot_lab.runtime.recorder import Recorder
from tot_lab.runtime.replay import budget_of, runnable
from tot_lab.runtime.roles import Role, thinking_of
from tot_lab.tools import EffectPolicy, Tool, Toolbox

Watcher = Callable[[Sequence[Line]], None]


class Following(Protocol):
    """A watcher of one run that holds something open."""

    def __call__(self, lines: Sequence[Line], /) -> None:
        """Take in a batch of new lines."""

    def close(self) -> None:
        """Let go of what is held open."""


class Follower(Protocol):
    """Keeps what happens in runs somewhere else than in their journals, such as `tl.Plans`."""

    def following(self, header: Header, lines: Sequence[Line], path: Path | None) -> Following:
        """A watcher of the run with this header; `lines` is what it has done before."""


class Estimate(NamedTuple):
    """What a run would ask. calls: at most, None without a bound. cached: how many the cache answers,
    as far as the search can be followed. whole: whether these are all, so that it would pay nothing."""

    calls: int | None
    cached: int
    whole: bool


@dataclass(frozen=True)
class RunnerSettings:
    """What all runs of a lab share; see `tot_lab.Lab` for each."""

    model: Model | Endpoint
    roles: Mapping[str, Role] = field(default_factory=dict)
    cache: str | os.PathLike[str] | Cache | None = None
    mode: Mode = "auto"
    draws: DrawScope = "state"
    spend: float | None = None
    timeout: float | None = 120.0
    tools: Iterable[Tool | str | Callable[..., Any]] = ()
    effect_policy: EffectPolicy | None = None
    tool_context: Mapping[str, Any] = field(default_factory=dict)

    def replaying(self) -> RunnerSettings:
        """The same with no network: each call is answered from the cache."""
        return replace(self, mode="replay", spend=None)

    def portable(self) -> RunnerSettings:
        """The same for another process, which is told of the cache by itself; a function goes by source."""
        model = self.model if isinstance(self.model, Part) else UserFunction.of(self.model)
        return replace(self, model=model, cache=None, spend=None)


class Runner:
    """Carries runs out.

    Args:
        settings: Models, cache, tools and limits.
        follower: Keeps plans, or whatever else is folded from runs while they go on.
    """

    def __init__(self, settings: RunnerSettings, follower: Follower | None = None) -> None:
        self.gateway = Gateway(
            settings.model,
            roles=settings.roles,
            cache=settings.cache,
            mode=settings.mode,
            draws=settings.draws,
            spend=settings.spend,
            toolbox=Toolbox(settings.tools, settings.effect_policy, settings.tool_context),
        )
        self.timeout = settings.timeout
        self.follower = follower
        self._given = settings
        self._counted: set[str] = set()

    @property
    def settings(self) -> RunnerSettings:
        """The settings, with the model that is asked now and the tools that names stood for."""
        tools = tuple(self.gateway.toolbox.tools.values())
        return replace(self._given, model=self.gateway.model, tools=tools)

    # What a run is made of.

    def equipped(self, task: Task) -> Task:
        """The task with the tools that there are, and with the context window of the model that is to read
        what they give."""
        specs = tuple(tool.spec for tool in self.gateway.toolbox.tools.values())
        window = task.context_window
        if window is None and specs:
            window = self.gateway.window
        if (task.tools, task.context_window) == (specs, window):
            return task
        return task.model_copy(update={"tools": specs, "context_window": window})

    def header(self, strategy: Strategy, task: Task, budget: Budget | None = None, repeat: int = 0) -> Header:
        """The header of a new run."""
        toolbox = self.gateway.toolbox
        return Header.now(
            task=self.equipped(task).settings(),
            strategy=strategy.settings(),
            model=self.gateway.settings,
            budget=budget.model_dump(exclude_none=True) if budget else {},
            repeat=repeat,
            roles={name: role.settings() for name, role in self.gateway.roles.items()},
            draws=self.gateway.draws,
            tools={name: tool.settings() for name, tool in toolbox.tools.items()},
            effect_policy=toolbox.policy_settings,
        )

    def check_same(self, path: Path | str, header: Header) -> None:
        """Raise ValueError unless a run with this header was asked of the same models and tools. A function
        of your own may have changed: then the record, which must come again, tells."""
        roles = {name: role.settings() for name, role in self.gateway.roles.items()}
        toolbox = self.gateway.toolbox
        for what, then, now in (
            ("model", _who(header.model), _who(self.gateway.settings)),
            ("roles", header.roles, roles),
            ("draws", header.draws, self.gateway.draws),
            ("tools", sorted(header.tools), sorted(toolbox.tools)),
            ("effect_policy", header.effect_policy, toolbox.policy_settings),
        ):
            if then != now:
                raise ValueError(f"{path}: this run was made with {what}={then!r}; this lab has {now!r}")

    # Payments.

    @property
    def spent(self) -> float:
        """USD really paid, where prices are known; the earlier payments of resumed runs included."""
        return self.gateway.purse.total

    def count_payments(self, header: Header, lines: Sequence[Line]) -> None:
        """Count what the journal of a run paid against `spend`, once, unless it was paid here."""
        if self.expect_payments(header.id):
            paid = (line.paid for line in lines if line.paid is not None and is_cost(line.paid))
            self.gateway.purse.earlier += math.fsum(paid)

    def expect_payments(self, run_id: str) -> bool:
        """Say that what this run pays is counted as it is paid; whether that was not known yet."""
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
    ) -> Execution:
        """A new run, with its journal open.

        Args:
            strategy: Searches.
            task: Is worked on.
            header: Of the run, see `header`.
            path: Of the journal; `None` keeps the run in memory.
            budget: Caps on the run.
            parent: The run whose record answers first, for a branch.
        """
        return Execution(self, Recorder(header=header, path=path), strategy, task, budget, parent=parent)

    def resume(
        self,
        path: Path,
        strategy: Strategy | None = None,
        task: Task | None = None,
        parent: Run | None = None,
    ) -> Execution:
        """A run that goes on with its journal; one that is finished has nothing left to do."""
        read = path.stat().st_size
        header, lines, size = read_journal(path)
        kept = resumable(lines, asking=self.gateway.mode != "replay")
        if kept is None:
            self.count_payments(header, lines)
            return Execution.over(self, Run(header, lines, path, loaded=True))
        from_file = task is None
        strategy, task = runnable(header, strategy, task)
        self.check_same(path, header)
        self.count_payments(header, lines)
        parent = parent_of(path, header, parent)
        self.gateway.open()
        if len(kept) < len(lines):
            with path.open("rb") as file:
                for _ in range(len(kept) + 1):
                    file.readline()
                size = file.tell()
        recorder = Recorder.resuming(path, header, kept, size, read)
        execution = Execution(self, recorder, strategy, task, budget_of(header), parent=parent, kept=kept)
        execution.loaded = from_file
        return execution

    async def estimate(self, strategy: Strategy, task: Task, *, repeat: int = 0) -> Estimate:
        """What `strategy` would ask about `task`: nothing is sent, and nothing is recorded. Of its tools
        those that only compute are carried out."""
        known = Recorder(header=self.header(strategy, task, None, repeat))
        cached = unknown = 0

        async def look(call: Call, wire: CallObserver) -> Reply:
            nonlocal cached, unknown
            reply = self.gateway.known(call)
            if reply is None and (tool := self.gateway.computing(call)) is not None:
                return await tool.reply(call, wire)
            cached += reply is not None and not asks_no_model(call)
            unknown += reply is None
            return reply or Reply(error="budget:calls")

        driver = Driver(look, known, repeat=repeat, in_order=True)
        await driver.drive(thinking_of(strategy, self.equipped(task), self.gateway.roles))
        return Estimate(strategy.max_calls(self.equipped(task)), cached, unknown == 0)


class Execution:
    """One run as it is carried out."""

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
        """Whether its task came from a file."""
        self.is_over = False
        """Whether there is nothing left to do."""
        self._kept = kept
        self._run: Run | None = None

    @classmethod
    def over(cls, runner: Runner, run: Run) -> Execution:
        """That of a finished run."""
        made = cls.__new__(cls)
        made.runner, made.is_over, made._run = runner, True, run
        return made

    @property
    def run(self) -> Run:
        """The run as far as it is made."""
        if self._run is not None:
            return self._run
        recorder = self.recorder
        return Run(
            recorder.header,
            recorder.lines,
            recorder.path,
            loaded=self.loaded,
            task=self.task,
            strategy=self.strategy,  # with their functions
            cache=self.runner.gateway.opened,
        )

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` with each batch of new lines, and with the text so far of each open call: a note
        `call.partial`, which is not recorded."""
        recorder = self.recorder
        recorder.watchers.append(watcher)
        recorder.text_watchers.append(lambda note: watcher([Line((), recorder.now, note)]))

    async def carry_out(self) -> Run:
        """Carry the run out, and return it. Raises what a bug in the strategy raises, and CancelledError."""
        if self.is_over:
            return self.run
        runner, recorder = self.runner, self.recorder
        recorder.logs = True
        if runner.follower is not None:
            follow = runner.follower.following(recorder.header, recorder.lines, recorder.path)
            recorder.watchers.append(follow)
        ask = runner.gateway.ask
        driver = Driver(
            ask if self.parent is None else answering(self.parent.lines, self.parent.id, ask),
            recorder,
            budget=self.budget,
            timeout=runner.timeout,
            repeat=recorder.header.repeat,
            replies=None if self._kept is None else replies_of(self._kept),
            edits=Edits.of(recorder.header.branched),
            bounds=runner.gateway,
        )
        runner.expect_payments(recorder.header.id)
        try:
            await self._make_ready()
            await driver.drive(thinking_of(self.strategy, self.task, runner.gateway.roles))
        finally:
            self._run = self.run
            recorder.close()
            self._run.path = recorder.path  # None if the file could not be written to the end
        if self.budget is not None and self.budget.usd is not None and driver.root.use.unpriced:
            warnings.warn(
                "the cap on usd could not be kept: the model does not say what its calls cost",
                RuntimeWarning,
                stacklevel=3,
            )
        return self._run

    async def _make_ready(self) -> None:
        """Load what tells how much a call can use: what the calls of a resumed run reserved is counted anew,
        and must not hold up the event loop."""
        if self._kept is None or self.budget is None:
            return
        if any(getattr(self.budget, name) is not None for name in AMOUNTS):
            calls = [line.e for line in self._kept if isinstance(line.e, Call)]
            for name in {call.model for call in calls if not asks_no_model(call)}:
                with suppress(Exception):  # a call that is made will tell why
                    await self.runner.gateway.ready(name)


def check_arguments(strategy: object, task: object, budget: object, repeat: int) -> None:
    """Raise TypeError or ValueError unless a run can be made of these."""
    if not isinstance(strategy, Strategy):
        raise TypeError(f"strategy must be a Strategy such as tl.TreeOfThoughts(), not {strategy!r}")
    if not isinstance(task, Task):
        several = "; several tasks go to lab.sweep" if isinstance(task, list | tuple) else ""
        raise TypeError(f'task must be a Task such as tl.general("…"), not {task!r}{several}')
    if budget is not None and not isinstance(budget, Budget):
        raise TypeError(f"budget must be a Budget such as tl.Budget(calls=60), not {budget!r}")
    if isinstance(repeat, str | float) or repeat < 0:
        raise ValueError(f"repeat must be 0 or more, not {repeat!r}")


def _who(model: dict[str, Any]) -> Any:
    """Which model these settings are of, as far as a resumed run must have the same."""
    return "a function" if model.get("kind") == UserFunction.kind else identity_of(part_of(model))


def resumable(lines: list[Line], *, asking: bool) -> list[Line] | None:
    """The lines to go on from; None when the run is finished. What a run did after it was cancelled
    or refused money, and a bug's end, are not gone on from; nor, where the model may be asked again
    (`asking`), is what a run did after the first failed call if calls that failed are why it ended."""
    for number, line in enumerate(lines):
        if isinstance(line.e, Reply) and line.e.error in ("cancelled", REFUSED):
            return lines[:number]
        if isinstance(line.e, Ended):
            if line.e.stop_reason == "cancelled" or line.e.error is not None:
                return lines[:number]
            return next(_before_failures(lines), None) if line.e.stop_reason == "error" and asking else None
    return lines


def _before_failures(lines: list[Line]) -> Iterator[list[Line]]:
    """The lines before each call that a model did not answer."""
    for number, line in enumerate(lines):
        if isinstance(line.e, Reply) and line.e.error is not None and is_made(line.e):
            yield lines[:number]
