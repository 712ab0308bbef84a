"""The lab: what a notebook holds. It knows a model, runs strategies with it and keeps the runs.

Rule: only what waits is async, and nothing is hidden: each run is a journal in a folder that can
be seen, loaded and resumed.
"""

from __future__ import annotations

import asyncio
import math
import os
import warnings
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tot_lab.core.calls import Call, Model, Reply, Wire, is_cost, is_made
from tot_lab.core.parts import UserFunction, part_of
from tot_lab.core.records import Ended, Line, Record
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Task
from tot_lab.core.thinking import Budget
from tot_lab.core.tools import asks_no_model
from tot_lab.lab.lessons import Lessons, LessonsError
from tot_lab.lab.plan_store import Plans
from tot_lab.lab.sweeps.axes import Strategies
from tot_lab.lab.sweeps.sweep import Sweep, SweepEstimate
from tot_lab.models import Cache, Gateway, Role, model_named
from tot_lab.models.cache import Mode
from tot_lab.models.checking import Check, check
from tot_lab.models.keys import DrawScope
from tot_lab.models.roles import roles_of, thinking_of
from tot_lab.models.spending import REFUSED
from tot_lab.models.stack import Endpoint
from tot_lab.record.edits import Edits
from tot_lab.record.journal import Header, read_journal
from tot_lab.record.run import Run, budget_of, replies_of, runnable
from tot_lab.runtime.branching import answering, doubts_of, parent_of, source_of, told_of
from tot_lab.runtime.budget import AMOUNTS
from tot_lab.runtime.driver import Driver
from tot_lab.runtime.gateway import identity_of
from tot_lab.runtime.recorder import Recorder
from tot_lab.tools import EffectPolicy, Tool, Toolbox


class Estimate(NamedTuple):
    """What a run would ask. calls: at most, None without a bound. cached: how many the cache answers,
    as far as the search can be followed. whole: whether these are all, so that it would pay nothing."""

    calls: int | None
    cached: int
    whole: bool


class Lab:
    """Runs strategies with a model.

    model: a name (`gpt-4.1-mini`, `ollama/qwen3:8b`, `local/qwen2.5-coder-1.5b`, `sim/game24`), a
        model part (`tl.LiteLLM(model="…", api_base="…")`), or any async callable `Call -> Reply | str`.
        An async generator of pieces of text is one that streams.
    roles: models and sampling settings for parts of a search, by role (`propose`, `evaluate`,
        `answer`, `act`, `plan`, `critique`, `synthesize`, `route`): a name, a model part, or a `tl.Role`.
    runs: folder that each run's journal is written to; None = keep runs in memory only.
    cache: folder of known answers, or a file of them that was exported. None = the user's own
        folder (see `tl.Cache`), for real models alone: a simulated one and a function of your
        own are cached only where a folder is named.
    mode: `auto`, `off`, `refresh` or `replay`; see `tot_lab.models.cache.Mode`.
    draws: whether two thoughts that come to the same prompt share its draws (`state`) or not (`path`).
    spend: USD that this lab may really pay, None = no cap. What the journals of resumed runs and sweeps
        had paid before counts too. So does the `cost` that replies of a function name: it is not called once
        what its dearest call cost is not left. What a run would cost if each call were paid is capped by its
        `Budget`.
    tools: what its strategies may call: functions that `@tl.tool` made tools, those of `tl.tools`, and names:
        `calculator`, `python`, `web_fetch`, `multi_hop` (the documents of that domain), or what an installed
        package offers. A strategy takes all, or those that its own `tools` name. effect_policy: which
        effects they may have (`tl.EffectPolicy`), None = all that these tools have. tool_context: data that
        tools are handed and no model sees; what its names call a key, token, secret or password is in no
        result either.
    timeout: seconds that one call may take from its sending on, None = no limit. A strategy that has a limit
        of its own (`tl.DeepThink`) keeps to that instead.
    plans: file (SQLite) that each plan of `tl.PlanExecute` is kept in as it runs, see `tl.Plans`; None = a
        plan is in its run's record alone (`run.plans`).
    memory: file (SQLite) that keeps what runs answered and what their critics found wrong, see `tl.Lessons`.
        Each run of `run` and `stream` is shown what was kept for similar tasks, and its header says what that
        was. Branches and sweeps neither recall nor store. None = off.
    """

    def __init__(
        self,
        model: str | Model | Endpoint,
        *,
        roles: Mapping[str, str | Endpoint | Role | dict[str, Any]] | None = None,
        runs: str | os.PathLike[str] | None = "runs",
        cache: str | os.PathLike[str] | Cache | None = None,
        mode: Mode = "auto",
        draws: DrawScope = "state",
        spend: float | None = None,
        timeout: float | None = 120.0,
        tools: Iterable[Tool | str | Callable[..., Any]] = (),
        effect_policy: EffectPolicy | None = None,
        tool_context: Mapping[str, Any] | None = None,
        plans: str | os.PathLike[str] | Plans | None = None,
        memory: str | os.PathLike[str] | Lessons | None = None,
    ) -> None:
        if timeout is not None and (isinstance(timeout, str) or not timeout > 0):
            raise ValueError(f"timeout must be above 0 seconds or None, not {timeout!r}")
        self.gateway = Gateway(
            self._resolve(model),
            roles=roles_of(roles),
            cache=cache,
            mode=mode,
            draws=draws,
            spend=spend,
            toolbox=Toolbox(tools, effect_policy, tool_context or {}),
        )
        self.runs = None if runs is None else Path(runs)
        self.timeout = timeout
        self.plans = plans if plans is None or isinstance(plans, Plans) else Plans(plans)
        self._counted: set[str] = set()
        """Ids of the runs whose payments `spent` holds."""
        if not isinstance(memory, str | os.PathLike | Lessons | None):
            raise TypeError(f"memory must be a path or tl.Lessons(path): got {memory!r}.")
        self.memory = Lessons(memory) if isinstance(memory, str | os.PathLike) else memory
        self.last: Run | None = None
        """The latest run, also when it was cancelled or ended with an error."""
        self.last_sweep: Sweep | None = None
        """The latest sweep, also when it was cut off."""

    @staticmethod
    def _resolve(model: str | Model | Endpoint) -> Model | Endpoint:
        if isinstance(model, str):
            return model_named(model)
        if isinstance(model, type) or not (callable(model) or isinstance(model, Endpoint)):
            shown = f"the class {model.__name__}" if isinstance(model, type) else repr(model)
            raise TypeError(f"model must be a name, a model part or an async callable, not {shown}")
        return model

    @property
    def model(self) -> Model | Endpoint:
        """The model that is asked unless a role or a strategy names another."""
        return self.gateway.model

    @property
    def spent(self) -> float:
        """USD that this lab has really paid, where prices are known; the earlier payments of the runs that
        it resumed included."""
        return self.gateway.purse.total

    def __repr__(self) -> str:
        folder = None if self.runs is None else str(self.runs)
        mode = "" if self.gateway.mode == "auto" else f", mode={self.gateway.mode!r}"
        name = self.model.name if isinstance(self.model, Endpoint) else self.gateway.settings["kind"]
        return f"Lab({name!r}, runs={folder!r}{mode})"

    def replaying(self) -> Lab:
        """This lab with no network: each call is answered from the cache, and one that it does not
        know ends the run with `CacheMiss`. It has no memory, which would change what is asked."""
        lab = Lab(
            self.model,
            roles=self.gateway.roles,
            runs=self.runs,
            cache=self.gateway.given_cache,
            mode="replay",
            draws=self.gateway.draws,
            timeout=self.timeout,
            tools=self.gateway.toolbox.tools.values(),
            effect_policy=self.gateway.toolbox.policy,
            tool_context=self.gateway.toolbox.context,
            plans=self.plans,
        )
        lab.gateway.checked_window = self.gateway.checked_window
        return lab

    async def check(self) -> Check:
        """What the lab's model and its server can do, found by really asking about ten small things
        (they are not cached, and not counted as spent); the concurrency and the context window that it
        found are kept to."""
        if not isinstance(self.model, Endpoint):
            raise TypeError(f"only a real model has something to check; this lab has {self.model!r}")
        found = await check(self.model)
        self.gateway.use(self.model.model_copy(update={"concurrency": found.concurrency}))
        self.gateway.checked_window = found.context_window
        return found

    async def estimate(self, strategy: Strategy, task: Task, *, repeat: int = 0) -> Estimate:
        """What `strategy` would ask about `task`: nothing is sent, and nothing is recorded. Of its tools
        those that only compute are carried out."""
        self._check(strategy, task, None, repeat)
        strategy, task = self._reminded(strategy, task)
        known = Recorder(header=self._header(strategy, task, None, repeat))
        cached = unknown = 0

        async def look(call: Call, wire: Wire) -> Reply:
            nonlocal cached, unknown
            reply = self.gateway.known(call)
            if reply is None and (tool := self.gateway.computing(call)) is not None:
                return await tool.reply(call, wire)
            cached += reply is not None and not asks_no_model(call)
            unknown += reply is None
            return reply or Reply(error="budget:calls")

        driver = Driver(look, known, repeat=repeat, in_order=True)
        await driver.drive(thinking_of(strategy, self._equipped(task), self.gateway.roles))
        return Estimate(strategy.max_calls(self._equipped(task)), cached, unknown == 0)

    async def run(
        self,
        strategy: Strategy,
        task: Task,
        *,
        budget: Budget | None = None,
        repeat: int = 0,
        watch: Callable[[Sequence[Line]], None] | None = None,
    ) -> Run:
        """Run `strategy` on `task`.

        budget: caps on what the run may use. repeat: number of an independent repeat; it changes
        every sample. watch: called with each batch of new lines while the run goes on, and with the text
        so far of each open call: a note `call.partial`, which is not recorded.

        Raises what a bug in the strategy raises, and CancelledError when it is cancelled; the run
        up to then is at `last` either way. A model that fails raises nothing: see `run.usage`."""
        self._check(strategy, task, budget, repeat)
        strategy, task = self._reminded(strategy, task)
        recorder = self._recorder(strategy, task, budget, repeat)
        run = await self._drive(recorder, strategy, task, budget, watch=watch)
        self._remember(run)
        return run.prepare()

    async def branch(
        self,
        run: Run,
        node: str,
        *,
        content: str | None = None,
        score: float | None = None,
        strategy: Strategy | None = None,
        budget: Budget | None = None,
        watch: Callable[[Sequence[Line]], None] | None = None,
    ) -> Run:
        """A run that is `run` with one thing changed at the thought `node`; its `parent` says so.

        content: another text for the thought. Which proposals repeat each other stays as it was.
        score: another score, 0–1, in place of each that the thought got.
        strategy: what goes on from the thought instead, below the path to it and no other.
        budget: caps on the new run; None = those of `run`. watch: as for `run`.

        After another text or score the same search is made again, with the same model: each call that
        the record of `run` answers is answered from there, costs nothing, and counts for the budget.
        Another strategy asks this lab's model, and pays nothing for the path.

        Raises ValueError, or LookupError, for what cannot be changed so: a text that the domain cannot
        read as such a thought, a run that has not ended or was not made by a strategy."""
        if sum(given is not None for given in (content, score, strategy)) != 1:
            raise ValueError("a branch changes one thing: give content=, score= or strategy=")
        by, task = source_of(run, node, strategy)
        self._check(by, task, budget, 0)
        if strategy is None:
            self._check_same(run.path or f"run {run.id}", run.header)
        budget = budget or budget_of(run.header)
        told = told_of(run, node, content, score, strategy)
        recorder = self._recorder(by, task, budget, run.header.repeat, told)
        parent = run if strategy is None else None
        made = await self._drive(recorder, by, task, budget, watch=watch, parent=parent)
        made.prepare().loaded = run.loaded
        for doubt in doubts_of(run, made):
            warnings.warn(doubt, RuntimeWarning, stacklevel=2)
        return made

    def _recorder(
        self,
        strategy: Strategy,
        task: Task,
        budget: Budget | None,
        repeat: int,
        branched: dict[str, Any] | None = None,
    ) -> Recorder:
        """That of a new run, with its journal open."""
        self.gateway.open()
        header = msgspec.structs.replace(
            self._header(strategy, task, budget, repeat), branched=branched or {}
        )
        return Recorder(header=header, path=None if self.runs is None else self.runs / header.filename)

    def _header(self, strategy: Strategy, task: Task, budget: Budget | None, repeat: int) -> Header:
        return Header.now(
            task=self._equipped(task).settings(),
            strategy=strategy.settings(),
            model=self.gateway.settings,
            budget=budget.model_dump(exclude_none=True) if budget else {},
            repeat=repeat,
            roles={name: role.settings() for name, role in self.gateway.roles.items()},
            draws=self.gateway.draws,
            tools={name: tool.settings() for name, tool in self.gateway.toolbox.tools.items()},
            effect_policy=self.gateway.toolbox.policy_settings,
        )

    def _equipped(self, task: Task) -> Task:
        """The task with the tools that this lab has, and with the context window of the model that is to read
        what they give."""
        specs = tuple(tool.spec for tool in self.gateway.toolbox.tools.values())
        window = task.context_window
        if window is None and specs:
            window = self.gateway.window
        if (task.tools, task.context_window) == (specs, window):
            return task
        return task.model_copy(update={"tools": specs, "context_window": window})

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
        """Run every strategy on every task, and each pair `repeats` times, sampled independently.

        strategies: one, a list (such as `tl.grid` makes), or a dict that gives each, or each list, a
        label. name: of the folder inside `runs` where the journals lie. budget: caps on each run; the
        lab's `spend` is over all. at_once: runs under way at a time, None = as many as keep the model
        busy, 128 at most. client: a `dask.distributed.Client`, whose workers make the runs; all sweeps on
        one cluster keep the model's limits together. The journals come back to `runs`. Workers on other
        machines share answers by the `shared` Redis of a `tl.Cache`; `spend` is kept in one process alone.

        The same call again goes on where it stopped: finished runs are read, cut ones are gone on
        with, and no call that was answered is paid twice. What a function of your own does is known by
        its source alone: when something else about it changed, take another name.

        What goes wrong in a run is in its row (`error`). One that another process is just making is
        waited for, and read.
        Raises CancelledError when it is cancelled; what is finished by then is at `last_sweep`."""
        self.last_sweep = Sweep(self, strategies, tasks, repeats, name, budget)
        await self.last_sweep.carry_out(at_once, client)
        return self.last_sweep

    async def estimate_sweep(
        self,
        strategies: Strategies,
        tasks: Task | Iterable[Task],
        repeats: int = 1,
        *,
        name: str = "sweep",
        budget: Budget | None = None,
    ) -> SweepEstimate:
        """What the same `sweep` would still ask: nothing is sent, and nothing is recorded."""
        return await Sweep(self, strategies, tasks, repeats, name, budget).estimate()

    def stream(
        self, strategy: Strategy, task: Task, *, budget: Budget | None = None, repeat: int = 0
    ) -> Stream:
        """The same run, live: `async for event in lab.stream(…)`; at its end the stream's `.run`
        holds it. Where a model streams, the text so far of each open call comes as a note
        `call.partial`, which is not recorded. Leaving the loop cancels the run: at your next
        `await`, `.run` and `last` hold what there is."""
        self._check(strategy, task, budget, repeat)
        return Stream(self, strategy, task, budget, repeat)

    async def resume(
        self,
        path: str | os.PathLike[str],
        *,
        strategy: Strategy | None = None,
        task: Task | None = None,
        parent: Run | None = None,
    ) -> Run:
        """Finish a run that was killed, cancelled, refused money (`spend`) or ended by a bug. What its
        journal holds is not asked again; what was under way is, a tool with effects too. A finished run is
        only loaded.

        strategy, task: needed when they hold functions of your own, which files do not store.
        parent: the run that this one was branched from, needed when its file is not beside this one."""
        if isinstance(path, Run):
            raise TypeError(f"path must be the file of a run, such as run.path ({path.path}), not the run")
        made: list[Run] = []
        if await self._resume(Path(path), strategy, task, parent, made) and made[0].parent is None:
            self._remember(made[0])
        return made[0].prepare()

    async def _resume(
        self, path: Path, strategy: Strategy | None, task: Task | None, parent: Run | None, made: list[Run]
    ) -> bool:
        """Finish the run, which is in `made` from then on, also when it fails; whether anything was
        left to do."""
        read = path.stat().st_size
        header, lines, size = read_journal(path)
        kept = resumable(lines, asking=self.gateway.mode != "replay")
        if kept is None:
            self.count_payments(header, lines)
            self.last = Run(header, lines, path, loaded=True)
            made.append(self.last)
            return False
        from_file = task is None
        strategy, task = runnable(header, strategy, task)
        self._check_same(path, header)
        self.count_payments(header, lines)
        parent = parent_of(path, header, parent)
        self.gateway.open()
        budget = budget_of(header)
        if budget is not None and any(getattr(budget, name) is not None for name in AMOUNTS):
            models = {line.e.model for line in kept if isinstance(line.e, Call) and not asks_no_model(line.e)}
            for name in models:  # what its calls reserved is counted anew, and must not hold up the loop
                with suppress(Exception):  # a call that is made will tell why
                    await self.gateway.ready(name)
        if len(kept) < len(lines):
            with path.open("rb") as file:
                for _ in range(len(kept) + 1):
                    file.readline()
                size = file.tell()
        recorder = Recorder.resuming(path, header, kept, size, read)
        replies = replies_of(kept)
        try:
            await self._drive(recorder, strategy, task, budget, replies=replies, parent=parent, kept=made)
        finally:
            for run in made:
                run.loaded = from_file
        return True

    def count_payments(self, header: Header, lines: Sequence[Line]) -> None:
        """Count what the journal of a run paid against `spend`, once, unless this lab paid it itself."""
        if header.id not in self._counted:
            self._counted.add(header.id)
            paid = (line.paid for line in lines if line.paid is not None and is_cost(line.paid))
            self.gateway.purse.earlier += math.fsum(paid)

    def _reminded(self, strategy: Strategy, task: Task) -> tuple[Strategy, Task]:
        """The strategy and the task with what the lab's memory recalls for them."""
        return (strategy, task) if self.memory is None else self.memory.remind(strategy, task)

    def _remember(self, run: Run) -> None:
        """Keep what `run` came to in the lab's memory."""
        if self.memory is None:
            return
        try:
            self.memory.take_in(run)
        except LessonsError as error:
            warnings.warn(f"{error}. The run is complete, but not remembered.", RuntimeWarning, stacklevel=3)

    def _check(self, strategy: object, task: object, budget: object, repeat: int) -> None:
        if not isinstance(strategy, Strategy):
            raise TypeError(f"strategy must be a Strategy such as tl.TreeOfThoughts(), not {strategy!r}")
        if not isinstance(task, Task):
            several = "; several tasks go to lab.sweep" if isinstance(task, list | tuple) else ""
            raise TypeError(f'task must be a Task such as tl.general("…"), not {task!r}{several}')
        if budget is not None and not isinstance(budget, Budget):
            raise TypeError(f"budget must be a Budget such as tl.Budget(calls=60), not {budget!r}")
        if isinstance(repeat, str | float) or repeat < 0:
            raise ValueError(f"repeat must be 0 or more, not {repeat!r}")

    def _check_same(self, path: Path | str, header: Header) -> None:
        """A ValueError unless this lab asks what the run's lab asked. A function of your own may have
        changed: then the record, which must come again, tells."""
        roles = {name: role.settings() for name, role in self.gateway.roles.items()}
        for what, then, now in (
            ("model", _who(header.model), _who(self.gateway.settings)),
            ("roles", header.roles, roles),
            ("draws", header.draws, self.gateway.draws),
            ("tools", sorted(header.tools), sorted(self.gateway.toolbox.tools)),
            ("effect_policy", header.effect_policy, self.gateway.toolbox.policy_settings),
        ):
            if then != now:
                raise ValueError(f"{path}: this run was made with {what}={then!r}; this lab has {now!r}")

    async def _drive(
        self,
        recorder: Recorder,
        strategy: Strategy,
        task: Task,
        budget: Budget | None,
        *,
        replies: dict[Any, Reply] | None = None,
        parent: Run | None = None,
        watch: Callable[[Sequence[Line]], None] | None = None,
        kept: list[Run] | None = None,
    ) -> Run:
        recorder.logs = True
        if watch is not None:
            recorder.watchers.append(watch)
            recorder.text_watchers.append(lambda note: watch([Line((), recorder.now, note)]))
        if self.plans is not None:
            recorder.watchers.append(self.plans.following(recorder.header, recorder.lines, recorder.path))
        task = self._equipped(task)
        driver = Driver(
            self.gateway.ask if parent is None else answering(parent.lines, parent.id, self.gateway.ask),
            recorder,
            budget=budget,
            timeout=self.timeout,
            repeat=recorder.header.repeat,
            replies=replies,
            edits=Edits.of(recorder.header.branched),
            bounds=self.gateway,
        )
        self._counted.add(recorder.header.id)
        try:
            await driver.drive(thinking_of(strategy, task, self.gateway.roles))
        finally:
            run = self.last = Run(recorder.header, recorder.lines, recorder.path)
            run.__dict__.update(task=task, strategy=strategy)  # with their functions
            run.cache = self.gateway.opened
            if kept is not None:
                kept.append(run)
            recorder.close()
            run.path = recorder.path
        if budget is not None and budget.usd is not None and driver.root.use.unpriced:
            warnings.warn(
                "the cap on usd could not be kept: the model does not say what its calls cost",
                RuntimeWarning,
                stacklevel=3,
            )
        return run


def expect_lab(lab: object) -> None:
    """A TypeError unless `lab` is a lab."""
    if not isinstance(lab, Lab):
        raise TypeError(f'lab must be a Lab such as tl.Lab("sim/general"), not {lab!r}')


class Stream:
    """A run under way, as an async iterable of its records in the order in which they happen."""

    def __init__(self, lab: Lab, strategy: Strategy, task: Task, budget: Budget | None, repeat: int) -> None:
        self.lab = lab
        """The lab that was asked for it."""
        self._asked = (strategy, task, budget, repeat)
        self.run: Run | None = None
        """The run, once the stream has come to its end; after the loop was left, from the next
        `await` on."""
        self._begun = False

    def __aiter__(self) -> AsyncIterator[Record]:
        self._begin()
        # A generator that nobody else holds: leaving the loop finalises it, which cancels the run.
        return self._records()

    def start(self) -> tuple[Recorder, asyncio.Task[Run]]:
        """Begin the run on the running event loop: its recorder, to be watched, and its task, which
        cancels it when it is cancelled."""
        self._begin()
        return self._start()

    def _begin(self) -> None:
        if self._begun:
            raise RuntimeError("a stream is one run and was gone through; ask lab.stream for another")
        self._begun = True

    def _start(self) -> tuple[Recorder, asyncio.Task[Run]]:
        loop = asyncio.get_running_loop()
        strategy, task, budget, repeat = self._asked
        strategy, task = self.lab._reminded(strategy, task)
        recorder = self.lab._recorder(strategy, task, budget, repeat)
        kept: list[Run] = []

        def ended(_: object) -> None:
            recorder.close()  # still open when it was cancelled before it began
            run = kept[0] if kept else Run(recorder.header, recorder.lines, recorder.path)
            self.run = run.prepare()

        async def drive() -> Run:
            run = await self.lab._drive(recorder, strategy, task, budget, kept=kept)
            self.lab._remember(run)
            return run

        running = loop.create_task(drive())
        running.add_done_callback(ended)
        return recorder, running

    async def _records(self) -> AsyncIterator[Record]:
        queue: asyncio.Queue[Sequence[Line] | None] = asyncio.Queue()
        recorder, running = self._start()
        recorder.watchers.append(queue.put_nowait)
        recorder.text_watchers.append(lambda note: queue.put_nowait([Line((), 0.0, note)]))
        running.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (batch := await queue.get()) is not None:
                for line in batch:
                    yield line.e
            await running
        finally:
            if not running.done():
                running.cancel()
                await asyncio.wait([running])


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
            if line.e.stop == "cancelled" or line.e.error is not None:
                return lines[:number]
            return next(_before_failures(lines), None) if line.e.stop == "error" and asking else None
    return lines


def _before_failures(lines: list[Line]) -> Iterator[list[Line]]:
    """The lines before each call that a model did not answer."""
    for number, line in enumerate(lines):
        if isinstance(line.e, Reply) and line.e.error is not None and is_made(line.e):
            yield lines[:number]
