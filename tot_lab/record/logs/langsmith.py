"""Importer of exported runs of LangSmith: JSON or JSON Lines. Each trace is a run.

A row is a run of the SDK (`run.model_dump_json()`, the API's `/runs/query`), in any order, or contains its
`child_runs`. Feedback is kept in the note `imported.scores`; that named `correctness` (or `correct`,
`accuracy`, `exact_match`) grades the run.

References:
    docs.langchain.com/langsmith/run-data-format; `Run` in langsmith.schemas.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from tot_lab.core.bulk import gc_paused
from tot_lab.core.calls import Message, Reply, is_cost
from tot_lab.core.reading import finite
from tot_lab.record.journal import JournalError
from tot_lab.record.logs.common import (
    arguments_of,
    entries,
    field,
    message_of,
    seconds,
    thinking_of,
    tokens,
    tool_reply,
    unwrapped,
)
from tot_lab.record.logs.traces import Step, trace_run
from tot_lab.record.nodes import LoggedCall
from tot_lab.record.run import Run

VERDICTS = ("correctness", "correct", "accuracy", "exact_match")
"""Names of feedback that says whether the answer is right."""


class LangSmithRuns:
    """Importer of exported runs of LangSmith."""

    expects = "objects with run_type or dotted_order"

    @staticmethod
    def recognises(head: bytes) -> bool:
        """Whether a file that begins with `head` holds such runs."""
        return head.lstrip()[:1] in (b"{", b"[") and _HEAD.search(head) is not None

    @staticmethod
    @gc_paused()
    def read(path: str | os.PathLike[str]) -> list[Run]:
        """Return the run of each trace, in the order in which the traces occur in the file."""
        traces: dict[str, list[tuple[Step, Mapping[str, Any]]]] = {}
        for place, entry in entries(path):
            try:
                for trace, step, row in _steps(entry, place):
                    traces.setdefault(trace, []).append((step, row))
            except ValueError as error:
                raise JournalError(f"{place}: {error}") from None
        return [_run(trace, rows) for trace, rows in traces.items()]


_HEAD = re.compile(rb'"(run_type|dotted_order)"\s*:\s*"')


def _steps(entry: Any, place: str) -> Iterator[tuple[str, Step, Mapping[str, Any]]]:
    """Yield the trace, the step and the row of each run in an entry."""
    if not isinstance(entry, dict):
        raise ValueError("expected an object.")
    waiting: list[tuple[Mapping[str, Any], str | None, str | None]] = [(entry, None, None)]
    while waiting:
        row, trace, parent = waiting.pop()
        id = field(row, "id", str)
        if id is None:
            raise ValueError("field 'id' is missing.")
        parent = field(row, "parent_run_id", str) or parent
        trace = field(row, "trace_id", str) or trace or id
        yield trace, _step(row, id, parent, place), row
        waiting += [(child, trace, id) for child in reversed(field(row, "child_runs", list, []))]


def _step(row: Mapping[str, Any], id: str, parent: str | None, place: str) -> Step:
    type = field(row, "run_type", str, "chain")
    name = field(row, "name", str, type)
    start, end = seconds(row.get("start_time"), "start_time"), seconds(row.get("end_time"), "end_time")
    error = field(row, "error", str)
    inputs, outputs = field(row, "inputs", dict, {}), field(row, "outputs", dict)
    call = None
    if type == "llm":
        call = _llm_call(row, inputs, outputs, error, start, end)
    elif type == "tool":
        result = outputs.get("output", outputs) if outputs else None
        reply = None if result is None and error is None else tool_reply(name, result, error)
        given = inputs.get("input") if set(inputs) == {"input"} else inputs
        messages = (Message("user", arguments_of(given)),)
        call = LoggedCall(messages, reply, "tool", "", start, end, {"model": f"tool:{name}"})
    what: Literal["llm", "tool", "other"] = "other"
    if type == "llm" or type == "tool":
        what = type
    return Step(id, parent, name, what, call, inputs or None, outputs or None, start, end, error, place)


def _llm_call(
    row: Mapping[str, Any],
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any] | None,
    error: str | None,
    start: float | None,
    end: float | None,
) -> LoggedCall:
    extra = field(row, "extra", dict, {})
    given = field(extra, "invocation_params", dict, {})
    about = field(extra, "metadata", dict, {})
    given_messages = inputs.get("messages") or inputs.get("prompts") or ()
    if isinstance(given_messages, Sequence) and given_messages and isinstance(given_messages[0], list):
        given_messages = given_messages[0]
    if isinstance(given_messages, str):
        given_messages = [given_messages]
    messages = tuple(
        [Message("user", each) if isinstance(each, str) else message_of(each) for each in given_messages]
    )
    answer = _output(outputs)
    reply = None
    prompt, completion = _usage(row, outputs or {}, answer or {})
    if answer is not None or error is not None or prompt is not None:
        answered = message_of(answer) if answer is not None else Message("assistant", "")
        response = field(answer, "response_metadata", dict, {}) if answer else {}
        reply = Reply(
            answered.content,
            error,
            thinking_of(answer) if answer is not None else None,
            _text(response.get("model_name") or (outputs or {}).get("model") or _model(given, about)),
            prompt,
            completion,
            _cost(row.get("total_cost")),
            _text(response.get("finish_reason")),
            (),
            answered.tool_calls,
        )
    tools = [each.get("function", each) for each in given.get("tools") or () if isinstance(each, dict)]
    settings: dict[str, Any] = {
        "model": _model(given, about),
        "temperature": finite(given.get("temperature")),
    }
    settings["tools"] = tuple([each for each in tools if isinstance(each.get("name"), str)])
    purpose = "act" if tools or (reply is not None and reply.tool_calls) else "ask"
    return LoggedCall(messages, reply, purpose, "", start, end, settings)


def _output(outputs: Mapping[str, Any] | None) -> Any:
    """Return the message in the output of a model. `None` without one."""
    if not outputs:
        return None
    held: Any = outputs
    generations = outputs.get("generations")
    if generations:
        first = generations[0][0] if isinstance(generations[0], list) and generations[0] else generations[0]
        held = first.get("message") or {"role": "assistant", "content": first.get("text", "")}
    elif outputs.get("choices"):
        held = outputs["choices"][0].get("message")
    elif outputs.get("messages"):
        held = outputs["messages"][-1]
    elif "output" in outputs:
        held = outputs["output"]
    held = {"role": "assistant", "content": held} if isinstance(held, str) else unwrapped(held)
    return held if isinstance(held, dict) and ("role" in held or "type" in held) else None


def _usage(
    row: Mapping[str, Any], outputs: Mapping[str, Any], answer: Mapping[str, Any]
) -> tuple[int | None, int | None]:
    """Return the tokens of the prompt and of the reply. LangSmith writes 0 for both if they are unknown."""
    reported = answer.get("usage_metadata") or outputs.get("usage_metadata") or outputs.get("usage") or {}
    prompt = row.get("prompt_tokens") or reported.get("input_tokens", reported.get("prompt_tokens"))
    reply = row.get("completion_tokens") or reported.get("output_tokens", reported.get("completion_tokens"))
    if not prompt:
        return None, None
    return tokens(prompt, "prompt_tokens"), tokens(reply, "completion_tokens")


def _model(given: Mapping[str, Any], about: Mapping[str, Any]) -> str | None:
    return _text(given.get("model") or given.get("model_name") or about.get("ls_model_name"))


def _cost(value: Any) -> float | None:
    """Return a cost in USD. The SDK writes decimal numbers as texts."""
    try:
        cost = float(value)
    except (TypeError, ValueError):
        return None
    return cost if is_cost(cost) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _run(trace: str, rows: Sequence[tuple[Step, Mapping[str, Any]]]) -> Run:
    known = {step.id for step, _ in rows}
    root = next((row for step, row in rows if step.parent not in known), rows[0][1])
    scores = root.get("feedback_stats")
    scores = scores if isinstance(scores, dict) else {}
    grade = None
    for name in VERDICTS:
        if grade is None and isinstance(scores.get(name), dict):
            found = finite(scores[name].get("avg"))
            grade = found if found is not None and 0 <= found <= 1 else None
    return trace_run([step for step, _ in rows], "LangSmith", trace, grade, scores)
