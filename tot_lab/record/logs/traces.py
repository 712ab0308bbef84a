"""Runs from traces: programs that are trees of steps, such as spans. Each step is a node.

The text of a node is the reply of a model, the result of a tool, or else the output or the name of the step.
The question is the input of the root, or what the user asked in the first call of a model. The answer is the
output of the root, if it has one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from tot_lab.record.journal import JournalError
from tot_lab.record.logs.common import ROOT, imported_run, shown, text_of
from tot_lab.record.nodes import LoggedCall, LoggedNode, State
from tot_lab.record.run import Run


class Step(NamedTuple):
    """A step of a program.

    Attributes:
        parent: Id of the step that contains it, `None` for a root.
        kind: Whether a model or a tool was called.
        call: That call.
        input: The input of another step. `None` if the log lacks it; the same holds for `output`.
        start: Start in seconds since 1970. `None` if it is unknown; the same holds for `end`.
        error: Why it failed, `None` if it did not.
        place: Its place in the file.
    """

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


def trace_run(
    steps: Sequence[Step],
    tool: str,
    id: str,
    grade: float | None = None,
    scores: Mapping[str, Any] | None = None,
) -> Run:
    """Make the run of a trace that `tool` recorded, with the log's verdict and all of its scores."""
    known = {step.id for step in steps}
    roots = [step for step in steps if step.parent not in known] or [steps[0]]
    first = min(roots, key=_start)
    try:
        question = _question(steps, first)
        top = first if len(roots) == 1 and first.kind == "other" and question.strip() else None
        above = None if top is not None else ROOT
        nodes = [_node(step, step.parent if step.parent in known else above) for step in steps]
        if top is None:
            nodes.insert(0, LoggedNode(ROOT, None, question, time=first.start))
        else:
            nodes[steps.index(top)].text = question
        answer = None
        if first.kind == "llm" and first.call is not None and first.call.reply is not None:
            answer = first.call.reply.text or None
        elif first.kind == "other" and first.output is not None:
            answer = text_of(first.output, "assistant")
        holders = [step for step in steps if step.kind == "llm" and _reply_text(step) == answer]
        return imported_run(
            nodes,
            name=f"{tool}, {first.name}",
            question=question,
            place=first.place,
            answer=answer,
            answer_node=max(holders, key=_start).id if holders and answer else None,
            stop="answered" if first.error is None else "error",
            error=first.error,
            grade=grade,
            notes={"imported.scores": scores or {}},
            id=id,
            started=first.start,
            complete=any(step.kind == "llm" for step in steps),
        )
    except ValueError as error:
        raise error if isinstance(error, JournalError) else JournalError(f"{first.place}: {error}") from None


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
        return LoggedNode(step.id, parent, text or step.name, calls=(step.call,), time=step.start)
    failed = reply is not None and reply.error is not None
    text = "" if reply is None else shown(reply.text, reply.tool_calls)
    state: State = "failed" if failed else ""
    return LoggedNode(step.id, parent, text or step.name, None, state, (step.call,), step.end)


def _question(steps: Sequence[Step], root: Step) -> str:
    if root.kind == "other" and root.input is not None:
        return text_of(root.input, "user")
    for step in sorted(steps, key=_start):
        if step.kind == "llm" and step.call is not None:
            asked = [message.content for message in step.call.messages if message.role == "user"]
            if asked:
                return asked[-1]
    return ""
