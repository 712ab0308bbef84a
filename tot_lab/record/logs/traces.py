"""Runs from traces. A trace records one execution of a program as a tree of steps, such as spans.

    file → entries → `Step`s (by the importer) → `read_traces` → a run per trace

A trace of `tl.OpenTelemetry` gives the run from which it was made (`own_spans.py`). In other traces, each
step is a node. The text of a node is the reply of a model, the result of a tool, or else the output or the
name of the step. The question is the input of the root, or the user message of the first call of a model. The
answer is the output of the root, if it has one. A trace with several roots lacks steps, so its answer is
unknown.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from tot_lab.core.bulk import gc_paused
from tot_lab.core.reading.values import finite
from tot_lab.record.journal import JournalError
from tot_lab.record.logs.common import ROOT, UNREADABLE, entries, field, imported_run, shown, text_of
from tot_lab.record.logs.own_spans import Own, own_run
from tot_lab.record.nodes import LoggedCall, LoggedEnd, LoggedNode, State
from tot_lab.record.run import Run

VERDICTS = ("correctness", "correct", "accuracy", "exact_match")
"""Names of feedback that says whether the answer is right, in order of preference."""


class Step(NamedTuple):
    """A step of a program.

    Attributes:
        trace: Id of the trace.
        parent: Id of the step that contains it, `None` for a root.
        kind: `llm` for a call of a model, `tool` for a call of a tool, `other` for any other step.
        call: The call of the model or tool. `None` for other steps.
        input: The input of a step that is not a call. `None` if the log lacks it; the same holds for
            `output`.
        start: Start in seconds since 1970. `None` if it is unknown; the same holds for `end`.
        error: Why the step failed, `None` if it did not.
        place: Its file and line or entry, for error messages.
        grade: The grade of its output in the log, 0 to 1. `None` if it is missing.
        scores: All scores of its output, by name.
        own: The part of a record of tot_lab that the step holds. `None` for a step of another program.
    """

    trace: str
    id: str
    parent: str | None
    name: str
    kind: Literal["llm", "tool", "other"]
    call: LoggedCall | None
    input: Any
    output: Any
    start: float | None
    end: float | None
    error: str | None
    place: str
    grade: float | None = None
    scores: Mapping[str, Any] = {}
    own: Own | None = None


def grade_of(feedback: Mapping[str, Any], number: str) -> float | None:
    """Return the first feedback in `VERDICTS` that is a number from 0 to 1. `None` if it is not found.

    Args:
        feedback: Objects by the name of the feedback.
        number: The field of these objects that holds the number.
    """
    names = [name for name in VERDICTS if name in feedback]
    values = [finite(field(feedback, name, dict, {}).get(number)) for name in names]
    return next((value for value in values if value is not None and 0 <= value <= 1), None)


@gc_paused()
def read_traces(
    path: str | os.PathLike[str], tool: str, steps_of: Callable[[Any, str], Iterable[Step]]
) -> list[Run]:
    """Return the run of each trace, in the order in which the traces occur in the file.

    A repeated step counts once: exporters may send a batch again.

    Args:
        path: A file with JSON values (`common.entries`).
        tool: Name of the tool that recorded the traces.
        steps_of: Returns the steps in an entry. Its arguments are the entry and its place in the file. A
            ValueError about an entry becomes a `JournalError` that names the place.
    """
    traces: dict[str, list[Step]] = {}
    known: dict[tuple[str, str], Step] = {}
    for place, entry in entries(path):
        try:
            for step in steps_of(entry, place):
                same = known.setdefault((step.trace, step.id), step)
                if same is step or same._replace(place=step.place) != step:
                    traces.setdefault(step.trace, []).append(step)
        except JournalError:
            raise
        except (ValueError, *UNREADABLE) as error:
            raise JournalError(f"{place}: {error}") from None
    return [_run(steps, tool) for steps in traces.values()]


def _run(steps: Sequence[Step], tool: str) -> Run:
    own = [(step.own, step.call if step.kind == "llm" else None) for step in steps if step.own is not None]
    if own and (run := own_run(own, f"{steps[0].place}, trace {steps[0].trace}")) is not None:
        return run
    known = {step.id for step in steps}
    roots = [step for step in steps if step.parent not in known] or [steps[0]]
    first = min(roots, key=_start)
    is_whole = len(roots) == 1
    try:
        question = _question(steps, first)
        top = first if is_whole and first.kind == "other" and question.strip() else None
        above = None if top is not None else ROOT
        nodes = [_node(step, step.parent if step.parent in known else above) for step in steps]
        if top is None:
            nodes.insert(0, LoggedNode(ROOT, None, question, time=first.start))
        else:
            nodes[steps.index(top)].text = question
        answer = _answer(first) if is_whole else None
        holders = [step for step in steps if step.kind == "llm" and _reply_text(step) == answer]
        is_failed = is_whole and first.error is not None
        end = LoggedEnd(
            answer,
            [max(holders, key=_start).id] if holders and answer else [],
            "error" if is_failed else "answered",
            first.error if is_failed else None,
            {"imported.scores": first.scores},
            complete=is_whole and any(step.kind == "llm" for step in steps),
        )
        return imported_run(
            nodes,
            name=f"{tool}, {first.name}",
            question=question,
            place=first.place,
            end=end,
            grade=first.grade,
            id=first.trace,
            started=first.start,
        )
    except ValueError as error:
        raise error if isinstance(error, JournalError) else JournalError(f"{first.place}: {error}") from None


def _answer(root: Step) -> str | None:
    if root.kind == "llm":
        return _reply_text(root) or None
    return text_of(root.output, "assistant") if root.kind == "other" and root.output is not None else None


def _start(step: Step) -> float:
    return step.start or 0.0


def _reply_text(step: Step) -> str | None:
    return None if step.call is None or step.call.reply is None else step.call.reply.text


def _node(step: Step, parent: str | None) -> LoggedNode:
    if step.call is None:
        text = "" if step.output is None else text_of(step.output, "assistant")
        return LoggedNode(step.id, parent, text or step.name, time=step.start)
    reply = step.call.reply
    if step.kind == "tool":
        text = "" if reply is None else reply.text
        return LoggedNode(step.id, parent, text or step.name, calls=[step.call], time=step.start)
    failed = reply is not None and reply.error is not None
    text = "" if reply is None else shown(reply.text, reply.tool_calls)
    state: State = "failed" if failed else ""
    time = step.start if step.end is None else step.end  # a call without a reply has no end
    return LoggedNode(step.id, parent, text or step.name, None, state, [step.call], time)


def _question(steps: Sequence[Step], root: Step) -> str:
    if root.kind == "other" and root.input is not None:
        return text_of(root.input, "user")
    for step in sorted(steps, key=_start):
        if step.kind == "llm" and step.call is not None:
            asked = [message.content for message in step.call.messages if message.role == "user"]
            if asked:
                return asked[-1]
    return ""
