"""The lab: what a notebook holds. It knows a model, runs strategies with it and keeps the runs.

Rule: only what waits is async, and nothing is hidden: each run is a journal in a folder that can
be seen, loaded and resumed.
"""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from tot_lab.core.calls import Call, Model, Reply
from tot_lab.core.records import Ended, Line, Record
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Task
from tot_lab.core.thinking import Budget
from tot_lab.driver import Driver
from tot_lab.journal import Header, read_journal, settings_of
from tot_lab.models import model_named
from tot_lab.recorder import Recorder
from tot_lab.run import Run, budget_of, replies_of, runnable


class Lab:
    """Runs strategies with a model.

    model: a name (`sim/game24`), a model part (`tl.SimGame24(skill=0.5)`), or any async callable
        `Call -> Reply | str`.
    runs: folder that each run's journal is written to; None = keep runs in memory only.
    timeout: seconds that one call may take, None = no limit.
    """

    def __init__(
        self,
        model: str | Model,
        *,
        runs: str | os.PathLike[str] | None = "runs",
        timeout: float | None = 120.0,
    ) -> None:
        if timeout is not None and not timeout > 0:
            raise ValueError(f"timeout must be above 0 seconds or None, not {timeout!r}")
        self.model = self._resolve(model)
        self.runs = None if runs is None else Path(runs)
        self.timeout = timeout
        self.last: Run | None = None
        """The latest run, also when it was cancelled or ended with an error."""
        self._named: dict[str, Model] = {}

    @staticmethod
    def _resolve(model: str | Model) -> Model:
        if isinstance(model, str):
            return model_named(model)
        if isinstance(model, type) or not callable(model):
            shown = f"the class {model.__name__}" if isinstance(model, type) else repr(model)
            raise TypeError(f"model must be a name, a model part or an async callable, not {shown}")
        return model

    def _model_for(self, call: Call) -> Model:
        if call.model is None:
            return self.model
        if call.model not in self._named:
            self._named[call.model] = model_named(call.model)
        return self._named[call.model]

    def __repr__(self) -> str:
        folder = None if self.runs is None else str(self.runs)
        return f"Lab({settings_of(self.model)['kind']!r}, runs={folder!r})"

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
        every sample. watch: called with each batch of new lines while the run goes on.

        Raises what a bug in the strategy raises, and CancelledError when it is cancelled; the run
        up to then is at `last` either way. A model that fails raises nothing: see `run.usage`."""
        self._check(strategy, task, budget, repeat)
        return await self._run(strategy, task, budget, repeat, watch, [])

    async def _run(
        self,
        strategy: Strategy,
        task: Task,
        budget: Budget | None,
        repeat: int,
        watch: Callable[[Sequence[Line]], None] | None,
        kept: list[Run],
    ) -> Run:
        """`run`; the run is in `kept` however it ends."""
        header = Header.now(
            task=task.settings(),
            strategy=strategy.settings(),
            model=settings_of(self.model),
            budget=budget.model_dump(exclude_none=True) if budget else {},
            repeat=repeat,
        )
        path = None if self.runs is None else self.runs / header.filename
        recorder = Recorder(header=header, path=path)
        return await self._drive(recorder, strategy, task, budget, watch=watch, kept=kept)

    def stream(
        self, strategy: Strategy, task: Task, *, budget: Budget | None = None, repeat: int = 0
    ) -> Stream:
        """The same run, live: `async for event in lab.stream(…)`; at its end the stream's `.run`
        holds it. Leaving the loop cancels the run: at your next `await`, `.run` and `last` hold
        what there is."""
        self._check(strategy, task, budget, repeat)
        return Stream(self, strategy, task, budget, repeat)

    async def resume(
        self, path: str | os.PathLike[str], *, strategy: Strategy | None = None, task: Task | None = None
    ) -> Run:
        """Finish a run that was killed, cancelled or ended by a bug. What its journal holds is not
        asked again. A finished run is only loaded.

        strategy, task: needed when they hold functions of your own, which files do not store."""
        path = Path(path)
        read = path.stat().st_size
        header, lines, size = read_journal(path)
        kept = _resumable(lines)
        if kept is None:
            self.last = Run(header, lines, path)
            return self.last
        strategy, task = runnable(header, strategy, task)
        if len(kept) < len(lines):
            with path.open("rb") as file:
                for _ in range(len(kept) + 1):
                    file.readline()
                size = file.tell()
        recorder = Recorder.resuming(path, header, kept, size, read)
        return await self._drive(recorder, strategy, task, budget_of(header), replies=replies_of(kept))

    def _check(self, strategy: object, task: object, budget: object, repeat: int) -> None:
        if not isinstance(strategy, Strategy):
            raise TypeError(f"strategy must be a Strategy such as tl.TreeOfThoughts(), not {strategy!r}")
        if not isinstance(task, Task):
            raise TypeError(f'task must be a Task such as tl.general("…"), not {task!r}')
        if budget is not None and not isinstance(budget, Budget):
            raise TypeError(f"budget must be a Budget such as tl.Budget(calls=60), not {budget!r}")
        if repeat < 0:
            raise ValueError(f"repeat must be 0 or more, not {repeat}")

    async def _drive(
        self,
        recorder: Recorder,
        strategy: Strategy,
        task: Task,
        budget: Budget | None,
        *,
        replies: dict[Any, Reply] | None = None,
        watch: Callable[[Sequence[Line]], None] | None = None,
        kept: list[Run] | None = None,
    ) -> Run:
        if watch is not None:
            recorder.watchers.append(watch)
        driver = Driver(
            self._model_for,
            recorder,
            budget=budget,
            timeout=self.timeout,
            repeat=recorder.header.repeat,
            replies=replies,
        )
        try:
            await driver.drive(strategy.think(task.hidden()))
        finally:
            run = self.last = Run(recorder.header, recorder.lines, recorder.path)
            run.__dict__.update(task=task, strategy=strategy)  # with their functions
            if kept is not None:
                kept.append(run)
            recorder.close()
            run.path = recorder.path
        if budget is not None and budget.usd is not None and run.usage.cost is None:
            warnings.warn(
                "the cap on usd could not be kept: the model does not say what its calls cost",
                RuntimeWarning,
                stacklevel=3,
            )
        return run


class Stream:
    """A run under way, as an async iterable of its records in the order in which they happen."""

    def __init__(self, lab: Lab, strategy: Strategy, task: Task, budget: Budget | None, repeat: int) -> None:
        self._lab = lab
        self._asked = (strategy, task, budget, repeat)
        self.run: Run | None = None
        """The run, once the stream has come to its end; after the loop was left, from the next
        `await` on."""
        self._begun = False

    def __aiter__(self) -> AsyncIterator[Record]:
        if self._begun:
            raise RuntimeError("a stream is one run and was gone through; ask lab.stream for another")
        self._begun = True
        # A generator that nobody else holds: leaving the loop finalises it, which cancels the run.
        return self._records()

    async def _records(self) -> AsyncIterator[Record]:
        strategy, task, budget, repeat = self._asked
        queue: asyncio.Queue[Sequence[Line] | None] = asyncio.Queue()
        kept: list[Run] = []
        running = asyncio.ensure_future(
            self._lab._run(strategy, task, budget, repeat, queue.put_nowait, kept)
        )
        running.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (batch := await queue.get()) is not None:
                for line in batch:
                    yield line.e
            self.run = await running
        finally:
            if not running.done():
                running.cancel()
                await asyncio.wait([running])
            if running.cancelled() or running.exception() is not None:
                self.run = kept[0] if kept else None


def _resumable(lines: list[Line]) -> list[Line] | None:
    """The lines to go on from; None when the run is finished. What a cancelled run did after it
    was cancelled, and a bug's end, are not gone on from."""
    for number, line in enumerate(lines):
        if isinstance(line.e, Reply) and line.e.error == "cancelled":
            return lines[:number]
        if isinstance(line.e, Ended):
            return lines[:number] if line.e.stop in ("cancelled", "error") else None
    return lines
