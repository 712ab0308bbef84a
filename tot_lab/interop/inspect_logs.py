"""Writes a sweep as Inspect logs: a log file for each setting, and in it a sample for each run.

The files are written by Inspect. `record/logs/inspect_thoughts.py` defines how a sample stores the thought
tree of its run, so that `tl.load` can restore the run.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from tot_lab._version import __version__
from tot_lab.analysis.frames import judgement_of
from tot_lab.core.calls import Call, Reply, is_made, refused
from tot_lab.core.records import Decided, Ended, Line, Note, Position, Scored, Thought, describe_stop
from tot_lab.core.tools import TOOL, asks_no_model, tool_of
from tot_lab.interop.inspect_messages import (
    arguments_in,
    assistant_message,
    chat_messages,
    choice_of,
    inspect_package,
    settings_of,
    tools_offered,
)
from tot_lab.lab.sweeps.sweep import Cell, Sweep, begun, not_sent
from tot_lab.record.logs.inspect_thoughts import CALL, RUN, SOURCE, THOUGHT, data_of, span_name
from tot_lab.record.rows import Row
from tot_lab.record.run import Run, load

GRADE = "grade"
"""Name of the Inspect score whose value is the grade of the answer."""

_FINISHES = {"length": "max_tokens", **{name: name for name in ("stop", "tool_calls", "content_filter")}}
_LIMITS = {
    **{"calls": "turn", "usd": "cost", "seconds": "time"},
    **dict.fromkeys(("tokens", "input_tokens", "output_tokens"), "token"),
}
"""Inspect's type of limit for each limit of a `Budget`."""


def save_inspect(sweep: Sweep, folder: str | os.PathLike[str]) -> list[Path]:
    """Write an Inspect log (`.eval`) for each setting into `folder`, and return the paths of the logs.

    `inspect view --log-dir FOLDER` shows the logs, and `tl.load` restores their runs and thoughts. Each run
    is a sample: the task gives the sample id, and the repeat gives the epoch. The score of a sample is the
    grade of the answer; `accuracy` is the mean over tasks of the mean over repeats. The sample has an error
    if the run failed or was interrupted, and a limit if a budget stopped the run. If some runs of a setting
    are unfinished, its log has the status `cancelled` and contains the records so far. A setting without
    any begun run gets no log. Saving a sweep again replaces its logs.

    Raises:
        ImportError: If inspect_ai is not installed.
        ValueError: If no run of the sweep has begun.
    """
    ai = inspect_package("save_inspect")
    Path(folder).mkdir(parents=True, exist_ok=True)
    paths = []
    with ThreadPoolExecutor(1) as pool:  # `asyncio.run` fails in a notebook's thread
        for number, label in enumerate(sweep.settings):
            cells = [cell for cell in sweep.cells if cell.setting == number]
            log = _log(ai, sweep, label, cells)
            if log is None:
                continue
            date = re.sub(r"[:.]", "-", log.eval.created)
            name = re.sub(r"[^\w.-]+", "-", log.eval.task).strip("-")[:80]
            path = Path(folder) / f"{date}_{name}_{log.eval.eval_id}.eval"
            pool.submit(lambda: asyncio.run(ai.log.write_eval_log_async(log, str(path)))).result()  # noqa: B023
            paths.append(path)
    if not paths:
        raise ValueError("save_inspect requires a sweep with a begun run: got none. Run the sweep first.")
    return paths


def _log(ai: Any, sweep: Sweep, label: str, cells: Sequence[Cell]) -> Any:
    """Return the log of the setting `label`. `None` if no run of that setting has begun."""
    ids = [task.id for task in sweep.tasks.values()]
    named = "" not in ids and len({*ids}) == len(ids)
    samples, grades = [], dict[int, list[float]]()
    for cell in cells:
        run, row = _result(sweep, cell)
        if row is None:
            continue
        task = sweep.part(cell)[1]
        id = task.id if named else cell.task + 1
        samples.append(_Sample(ai, run, row, cell, id, task.question, task.reference).made())
        if row.score is not None:
            grades.setdefault(cell.task, []).append(row.score)
    if not samples:
        return None
    strategy = sweep.settings[label]
    created = min(sample.started_at for sample in samples)
    means = [fmean(each) for each in grades.values()]
    metrics = {"accuracy": fmean(means)} if means else {}
    if len(means) > 1:
        metrics["stderr"] = stdev(means) / len(means) ** 0.5
    scored = sum(map(len, grades.values()))
    finished = all(cell.run_id in sweep.rows for cell in cells)
    log = ai.log
    return log.EvalLog(
        status="success" if finished else "cancelled",
        eval=log.EvalSpec(
            eval_id=cells[0].run_id,
            run_id=sweep.cells[0].run_id,
            created=created,
            task=span_name(f"{sweep.name} {label}"),
            task_id=cells[0].run_id,
            dataset=log.EvalDataset(
                name=sweep.name,
                samples=len(sweep.tasks),
                sample_ids=list(dict.fromkeys(sample.id for sample in samples)),
            ),
            model=next((sample.output.model for sample in samples if sample.output.model), "none"),
            config=log.EvalConfig(epochs=1 + max(cell.repeat for cell in cells), fail_on_error=False),
            solver=span_name(strategy.kind),
            solver_args=strategy.settings(),
            packages={"tot_lab": __version__},
        ),
        plan=log.EvalPlan(
            steps=[log.EvalPlanStep(solver=span_name(strategy.kind), params=strategy.settings())]
        ),
        results=log.EvalResults(
            total_samples=len(cells),
            completed_samples=sum(sample.error is None for sample in samples),
            scores=[
                log.EvalScore(
                    name=GRADE,
                    scorer=GRADE,
                    reducer="mean",
                    scored_samples=scored,
                    unscored_samples=len(samples) - scored,
                    metrics={name: log.EvalMetric(name=name, value=value) for name, value in metrics.items()},
                )
            ],
        ),
        stats=log.EvalStats(
            started_at=created,
            completed_at=max(sample.completed_at for sample in samples),
            model_usage=_sum(sample.model_usage for sample in samples),
        ),
        samples=samples,
    )


def _result(sweep: Sweep, cell: Cell) -> tuple[Run | None, Row | None]:
    """Return the run of a cell and its row, also if the run has not ended. Both are `None` if the run has not
    begun. The run is `None` if an error prevented its start.
    """
    row, path = sweep.rows.get(cell.run_id), sweep.path(cell)
    if row is not None:
        return (sweep.run(cell.run_id) if row.version else None), row
    if path is None or not begun(path):
        return None, None
    run = sweep.whole(load(path), cell)
    return run, sweep.row_of(run, None)


def _sum(usages: Any) -> dict[str, Any]:
    """Return the token usage of each model, summed over `usages`, which map models to usage."""
    total: dict[str, Any] = {}
    for usage in usages:
        for model, used in usage.items():
            total[model] = total[model] + used if model in total else used
    return total


class _Sample:
    """Builds the Inspect sample of one run."""

    def __init__(
        self, ai: Any, run: Run | None, row: Row, cell: Cell, id: str | int, question: str, reference: Any
    ) -> None:
        self.ai = ai
        self.run = run
        self.row = row
        self.cell = cell
        self.id = id
        self.question = question
        self.target = "" if reference is None else str(reference)
        started = datetime.now(UTC) if run is None else datetime.fromisoformat(run.header.started)
        self.started = started if started.tzinfo else started.replace(tzinfo=UTC)
        self.scores = None
        if row.score is not None:
            stop = describe_stop(row.stop or "")
            self.scores = {
                GRADE: ai.scorer.Score(value=row.score, answer=row.answer, explanation=f"The run {stop}.")
            }

    def made(self) -> Any:
        ai, run, row = self.ai, self.run, self.row
        output = ai.model.ModelOutput.from_content("" if run is None else run.model, row.answer)
        seconds = 0.0 if run is None else run.seconds
        events = [] if run is None else list(self._events(run))
        error = row.error
        if error is None and row.stop in (None, "cancelled"):
            error = "The run was cancelled." if row.stop else "The run has not ended."
        cap = (row.stop or "").partition("budget:")[2]
        limit = None
        if error is None and cap and run is not None:
            limit = ai.log.EvalSampleLimit(
                type=_LIMITS.get(cap, "custom"), limit=run.header.budget.get(cap, 0), reason=row.stop
            )
        usage = _sum(
            {event.output.model: event.output.usage}
            for event in events
            if event.event == "model" and event.output.usage is not None
        )
        return ai.log.EvalSample(
            id=self.id,
            epoch=self.cell.repeat + 1,
            input=self.question,
            target=self.target,
            messages=[ai.model.ChatMessageUser(content=self.question), output.message],
            output=output,
            scores=self.scores,
            metadata={
                SOURCE: {
                    "run": self.cell.run_id,
                    "status": None if run is None else run.status,
                    "stop_reason": row.stop,
                    "calls": row.calls,
                    "journal": None if run is None or run.path is None else str(run.path),
                }
            },
            events=events,
            model_usage=usage,
            error=error and ai.log.EvalError(message=error, traceback="", traceback_ansi=""),
            limit=limit,
            started_at=self.started.isoformat(),
            completed_at=self._at(seconds).isoformat(),
            total_time=seconds,
            working_time=seconds,
            uuid=self.cell.run_id,
        )

    def _at(self, seconds: float) -> datetime:
        return self.started + timedelta(seconds=seconds)

    def _when(self, seconds: float, span: str | None) -> dict[str, Any]:
        return {"timestamp": self._at(seconds), "working_start": seconds, "span_id": span}

    def _events(self, run: Run) -> Iterator[Any]:
        """Yield Inspect's events of a run in order of time. The run, each thought and each call is a span."""
        event = self.ai.event
        sample = self.ai.dataset.Sample(input=self.question, target=self.target, id=self.id)
        yield event.SampleInitEvent(sample=sample, state={}, **self._when(0.0, None))
        replies = {line.p: line for line in run.lines if isinstance(line.e, Reply)}
        cached = not_sent(run)
        top, known = f"{run.id}:run", set[str]()
        yield self._begin(top, None, RUN, run.name, 0.0)

        def span(node: str | None) -> str:
            return f"{run.id}:{node}" if node in known else top

        for line in sorted(run.lines, key=lambda line: line.t):
            record = line.e
            if isinstance(record, Thought):
                judged = judgement_of(run.tree[record.id]).score
                score = "" if judged is None else f" [{judged:.2g}]"
                name = f"{record.id}{score} {record.text}"
                yield self._begin(f"{run.id}:{record.id}", span(record.parent), THOUGHT, name, line.t)
                known.add(record.id)
                yield self._info(line, span(record.id))
            elif isinstance(record, Call):
                yield from self._call(run, line, record, replies.get(line.p), span(record.node), cached)
            elif isinstance(record, Scored | Decided):
                yield self._info(line, span(record.id))
            elif isinstance(record, Ended):
                yield self._info(line, span(record.node))
            elif isinstance(record, Note) and line.p:
                yield self._info(line, span(record.at))
        for id in sorted(known, key=lambda id: -id.count(".")):
            yield event.SpanEndEvent(id=span(id), **self._when(run.seconds, span(id)))
        yield event.SpanEndEvent(id=top, **self._when(run.seconds, top))
        for name, score in (self.scores or {}).items():
            yield event.ScoreEvent(
                scorer=name, score=score, target=self.target, **self._when(run.seconds, None)
            )

    def _begin(self, id: str, parent: str | None, type: str, name: str, seconds: float) -> Any:
        return self.ai.event.SpanBeginEvent(
            id=id, parent_id=parent, type=type, name=span_name(name), **self._when(seconds, parent)
        )

    def _info(self, line: Line, span: str, has_event: bool = False) -> Any:
        data = data_of(line, has_event=has_event)
        return self.ai.event.InfoEvent(source=SOURCE, data=data, **self._when(line.t, span))

    def _call(
        self, run: Run, line: Line, call: Call, answered: Line | None, parent: str, cached: set[Position]
    ) -> Iterator[Any]:
        """Yield the span of a call. The reply is a model or tool event, or else an info event."""
        span = f"{run.id}:{'.'.join(map(str, line.p))} {call.purpose}"
        yield self._begin(span, parent, CALL, call.purpose, line.t)
        end = line.t if answered is None else answered.t
        reply = None if answered is None else answered.e
        made = None
        if isinstance(reply, Reply) and not refused(reply.error):
            if not asks_no_model(call):
                made = self._model(run, call, reply, line.t, end, span, line.p in cached)
            elif call.purpose == TOOL and arguments_in(call.prompt)[1] is None:
                made = self._tool(call, reply, line.t, end, span)
        yield self._info(line, span, has_event=made is not None)
        if made is not None:
            yield made
        elif answered is not None:
            yield self._info(answered, span)
        yield self.ai.event.SpanEndEvent(id=span, **self._when(end, span))

    def _tool(self, call: Call, reply: Reply, start: float, end: float, span: str) -> Any:
        error = None
        if reply.error is not None:
            error = self.ai.tool.ToolCallError("unknown", reply.error)
        return self.ai.event.ToolEvent(
            id=span,
            function=tool_of(call),
            arguments=arguments_in(call.prompt)[0],
            result=reply.text,
            error=error,
            completed=self._at(end),
            working_time=end - start,
            **self._when(start, span),
        )

    def _model(
        self, run: Run, call: Call, reply: Reply, start: float, end: float, span: str, is_cached: bool
    ) -> Any:
        ai, model = self.ai, self.ai.model
        name = reply.model or run.model
        usage = None
        if is_made(reply) and (reply.input_tokens is not None or reply.output_tokens is not None):
            prompt, written = reply.input_tokens or 0, reply.output_tokens or 0
            usage = model.ModelUsage(
                input_tokens=prompt,
                output_tokens=written,
                total_tokens=prompt + written,
                total_cost=reply.cost,
            )
        choice = model.ChatCompletionChoice(
            message=assistant_message(ai, reply.text, reply.tool_calls, reply.thinking),
            stop_reason=_FINISHES.get(reply.finish_reason or "", "unknown"),
        )
        return ai.event.ModelEvent(
            model=name,
            role=call.purpose,
            input=chat_messages(ai, call.messages),
            tools=tools_offered(ai, call),
            tool_choice=choice_of(call, ai) or "auto",
            config=settings_of(ai, call),
            output=model.ModelOutput(
                model=name, choices=[] if reply.error else [choice], usage=usage, error=reply.error
            ),
            error=reply.error,
            cache="read" if is_cached else None,
            completed=self._at(end),
            working_time=end - start,
            metadata={"simulated": True} if reply.simulated else None,
            **self._when(start, span),
        )
