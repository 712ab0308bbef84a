"""The lab: what a notebook holds. It knows a model, runs strategies with it and keeps the runs.

Rule: only what waits is async, and nothing is hidden: each run is a journal in a folder that can
be seen, loaded and resumed.
"""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from tot_lab.core.calls import Model
from tot_lab.core.records import Line, Record
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Task
from tot_lab.core.thinking import Budget
from tot_lab.lab.lessons import Lessons, LessonsError
from tot_lab.lab.plan_store import Plans
from tot_lab.lab.sweeps.axes import Strategies
from tot_lab.lab.sweeps.sweep import ByWorkers, Sweep, SweepEstimate
from tot_lab.models import Cache, model_named
from tot_lab.models.cache import Mode
from tot_lab.models.checking import Check, check
from tot_lab.models.keys import DrawScope
from tot_lab.models.stack import Endpoint
from tot_lab.record.journal import Header
from tot_lab.record.run import Run
from tot_lab.runtime.branching import doubts_of, source_of, told_of
from tot_lab.runtime.gateway import Gateway
from tot_lab.runtime.recorder import Recorder
from tot_lab.runtime.replay import budget_of
from tot_lab.runtime.roles import Role, roles_of
from tot_lab.runtime.runner import Estimate, Execution, Runner, RunnerSettings, check_arguments
from tot_lab.tools import EffectPolicy, Tool


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
        self.plans = plans if plans is None or isinstance(plans, Plans) else Plans(plans)
        settings = RunnerSettings(
            self._resolve(model),
            roles=roles_of(roles),
            cache=cache,
            mode=mode,
            draws=draws,
            spend=spend,
            timeout=timeout,
            tools=tools,
            effect_policy=effect_policy,
            tool_context=tool_context or {},
        )
        self.runner = Runner(settings, self.plans)
        """What carries its runs out."""
        self.runs = None if runs is None else Path(runs)
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

    @classmethod
    def of(cls, settings: RunnerSettings, *, runs: Path | None, plans: Plans | None) -> Lab:
        """The lab with these settings."""
        given = {one.name: getattr(settings, one.name) for one in fields(settings)}
        return cls(**given, runs=runs, plans=plans)

    @property
    def gateway(self) -> Gateway:
        """The way from a call to the model or tool that answers it."""
        return self.runner.gateway

    @property
    def timeout(self) -> float | None:
        """Seconds that one call may take."""
        return self.runner.timeout

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
        lab = Lab.of(self.runner.settings.replaying(), runs=self.runs, plans=self.plans)
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
        check_arguments(strategy, task, None, repeat)
        return await self.runner.estimate(*self._reminded(strategy, task), repeat=repeat)

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
        check_arguments(strategy, task, budget, repeat)
        strategy, task = self._reminded(strategy, task)
        execution = self._start(strategy, task, budget, self.runner.header(strategy, task, budget, repeat))
        run = await self._carry_out(execution, watch)
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
        check_arguments(by, task, budget, 0)
        if strategy is None:
            self.runner.check_same(run.path or f"run {run.id}", run.header)
        budget = budget or budget_of(run.header)
        changed = told_of(run, node, content, score, strategy)
        header = self.runner.header(by, task, budget, run.header.repeat)
        header = msgspec.structs.replace(header, branched=changed)
        execution = self._start(by, task, budget, header, parent=run if strategy is None else None)
        made = await self._carry_out(execution, watch)
        made.prepare().loaded = run.loaded
        for doubt in doubts_of(run, made):
            warnings.warn(doubt, RuntimeWarning, stacklevel=2)
        return made

    def _start(
        self, strategy: Strategy, task: Task, budget: Budget | None, header: Header, parent: Run | None = None
    ) -> Execution:
        """A new run, with its journal open."""
        self.gateway.open()
        path = None if self.runs is None else self.runs / header.filename
        return self.runner.start(strategy, task, header=header, path=path, budget=budget, parent=parent)

    async def _carry_out(
        self, execution: Execution, watch: Callable[[Sequence[Line]], None] | None = None
    ) -> Run:
        if watch is not None:
            execution.watch(watch)
        try:
            return await execution.carry_out()
        finally:
            self.last = execution.run

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
        self.last_sweep = Sweep(self.runner, strategies, tasks, repeats, name, budget, runs=self.runs)
        await self.last_sweep.carry_out(at_once, client and _by_workers(client))
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
        sweep = Sweep(self.runner, strategies, tasks, repeats, name, budget, runs=self.runs)
        return await sweep.estimate()

    def stream(
        self, strategy: Strategy, task: Task, *, budget: Budget | None = None, repeat: int = 0
    ) -> Stream:
        """The same run, live: `async for event in lab.stream(…)`; at its end the stream's `.run`
        holds it. Where a model streams, the text so far of each open call comes as a note
        `call.partial`, which is not recorded. Leaving the loop cancels the run: at your next
        `await`, `.run` and `last` hold what there is."""
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
        """Finish a run that was killed, cancelled, refused money (`spend`) or ended by a bug. What its
        journal holds is not asked again; what was under way is, a tool with effects too. A finished run is
        only loaded.

        strategy, task: needed when they hold functions of your own, which files do not store.
        parent: the run that this one was branched from, needed when its file is not beside this one."""
        if isinstance(path, Run):
            raise TypeError(f"path must be the file of a run, such as run.path ({path.path}), not the run")
        execution = self.runner.resume(Path(path), strategy, task, parent)
        was_over = execution.is_over
        run = await self._carry_out(execution)
        if not was_over and run.parent is None:
            self._remember(run)
        return run.prepare()

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


def _by_workers(client: Any) -> ByWorkers:
    """Makes runs by the workers of a dask client."""
    from tot_lab.lab.sweeps.distributed import made_by_workers  # noqa: PLC0415  dask is an extra

    return partial(made_by_workers, client)


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
        lab = self.lab
        strategy, task = lab._reminded(strategy, task)
        execution = lab._start(strategy, task, budget, lab.runner.header(strategy, task, budget, repeat))

        def ended(_: object) -> None:
            execution.recorder.close()  # still open when it was cancelled before it began
            self.run = execution.run.prepare()

        async def drive() -> Run:
            run = await lab._carry_out(execution)
            lab._remember(run)
            return run

        running = loop.create_task(drive())
        running.add_done_callback(ended)
        return execution.recorder, running

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
