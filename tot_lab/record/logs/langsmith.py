"""Importer of exported runs of LangSmith: JSON, JSON Lines, or Parquet. Each trace is a run.

A row is a run of the SDK (`run.model_dump_json()`, the API's `/runs/query`) or of a bulk export (Parquet, in
which objects are JSON texts). Rows come in any order, or contain their `child_runs`. Feedback is kept in the
note `imported.scores`; feedback named `correctness` (or `correct`, `accuracy`, `exact_match`) grades the run.

References:
    docs.langchain.com/langsmith/run-data-format; docs.langchain.com/langsmith/data-export; `Run` in
    langsmith.schemas.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from tot_lab.core.calls import Message, Reply, is_cost
from tot_lab.core.parquet import MAGIC
from tot_lab.core.reading.finish_reasons import read_finish_reason
from tot_lab.core.reading.values import finite
from tot_lab.record.logs.common import (
    arguments_of,
    decoded,
    field,
    message_of,
    seconds,
    thinking_of,
    tokens,
    tool_call,
    tool_reply,
    unwrapped,
)
from tot_lab.record.logs.traces import Step, grade_of, read_traces
from tot_lab.record.nodes import LoggedCall
from tot_lab.record.run import Run


class LangSmithRuns:
    """Importer of exported runs of LangSmith."""

    expects = "objects with run_type or dotted_order, or a Parquet file with these columns"

    @staticmethod
    def recognises(head: bytes) -> bool:
        """Whether a file that begins with `head` holds such runs."""
        if head.startswith(MAGIC):
            return _COLUMN.search(head) is not None
        return head.lstrip()[:1] in (b"{", b"[") and _HEAD.search(head) is not None

    @staticmethod
    def read(path: str | os.PathLike[str]) -> list[Run]:
        """Return the run of each trace, in the order in which the traces occur in the file."""
        return read_traces(path, "LangSmith", _steps)


_HEAD = re.compile(rb'"(run_type|dotted_order)"\s*:\s*"')
_COLUMN = re.compile(rb"run_type|dotted_order")


class _Row(msgspec.Struct):
    """A run in a file. `inputs` and `outputs` depend on the program.

    `dotted_order` holds the start time, `Z` and the id of each run from the root of the trace to this one,
    separated by dots.
    """

    id: str
    trace_id: str | None = None
    parent_run_id: str | None = None
    dotted_order: str | None = None
    name: str | None = None
    run_type: str | None = None
    start_time: str | float | None = None
    end_time: str | float | None = None
    error: str | None = None
    inputs: dict[str, Any] | None = None
    outputs: dict[str, Any] | None = None
    extra: dict[str, Any] | None = None
    feedback_stats: dict[str, Any] | None = None
    prompt_tokens: float | None = None
    completion_tokens: float | None = None
    total_cost: Any = None
    child_runs: list[dict[str, Any]] | None = None


def _steps(entry: Any, place: str) -> Iterator[Step]:
    """Yield the steps of a run and of the runs that it contains."""
    waiting: list[tuple[Any, str | None, str | None]] = [(entry, None, None)]
    while waiting:
        raw, trace, parent = waiting.pop()
        row = msgspec.convert(_decoded(raw, place), _Row)
        trace = row.trace_id or trace or row.id
        yield _step(row, trace, row.parent_run_id or parent or _above(row), place)
        waiting += [(child, trace, row.id) for child in reversed(row.child_runs or ())]


def _decoded(row: Any, place: str) -> Any:
    """Return a row with its JSON texts decoded to objects."""
    texts = [name for name in _OBJECTS if isinstance(row, dict) and isinstance(row.get(name), str)]
    found = {name: row[name].encode() or b"null" for name in texts}
    objects = {name: decoded(text, Any, f"{place}, field {name!r}") for name, text in found.items()}
    return {**row, **objects} if objects else row


_OBJECTS = ("inputs", "outputs", "extra", "feedback_stats")


def _above(row: _Row) -> str | None:
    """Return the id of the run that contains this one, from `dotted_order`. `None` for a root."""
    parts = (row.dotted_order or "").split(".")
    return parts[-2].partition("Z")[2] or None if len(parts) > 1 else None


def _step(row: _Row, trace: str, parent: str | None, place: str) -> Step:
    type = row.run_type or "chain"
    name = row.name or type
    start, end = seconds(row.start_time, "start_time"), seconds(row.end_time, "end_time")
    what: Literal["llm", "tool", "other"] = "other"
    call = None
    if type == "llm":
        what, call = "llm", _llm_call(row, start, end)
    elif type == "tool":
        what, call = "tool", _tool_call(row, name, start, end)
    scores = row.feedback_stats or {}
    return Step(
        *(trace, row.id, parent, name, what, call, row.inputs or None, row.outputs or None),
        *(start, end, row.error, place, grade_of(scores, "avg"), scores),
    )


def _tool_call(row: _Row, name: str, start: float | None, end: float | None) -> LoggedCall:
    inputs, outputs = row.inputs or {}, row.outputs
    result = outputs.get("output", outputs) if outputs else None
    reply = None if result is None and row.error is None else tool_reply(name, result, row.error)
    given = inputs.get("input") if set(inputs) == {"input"} else inputs
    return tool_call(name, arguments_of(given), reply, start, end)


def _llm_call(row: _Row, start: float | None, end: float | None) -> LoggedCall:
    inputs, outputs, extra = row.inputs or {}, row.outputs or {}, row.extra or {}
    given = field(extra, "invocation_params", dict, {})
    about = field(extra, "metadata", dict, {})
    model = _text(given.get("model") or given.get("model_name") or about.get("ls_model_name"))
    answer, finish = _output(outputs)
    prompt, completion = _usage(row, outputs, answer or {})
    reply, is_counted = None, prompt is not None or completion is not None
    if answer is not None or row.error is not None or is_counted:
        answered = Message("assistant", "") if answer is None else message_of(answer)
        response = field(answer or {}, "response_metadata", dict, {})
        reply = Reply(
            answered.content,
            row.error,
            None if answer is None else thinking_of(answer),
            _text(response.get("model_name") or outputs.get("model")) or model,
            prompt,
            completion,
            _cost(row.total_cost) if is_counted else None,
            read_finish_reason(
                _text(response.get("finish_reason") or (answer or {}).get("stop_reason") or finish)
            ),
            (),
            answered.tool_calls,
        )
    offered = field(given, "tools", list) or field(inputs, "tools", list, [])
    tools = [each.get("function", each) for each in offered if isinstance(each, dict)]
    temperature = given.get("temperature")
    settings: dict[str, Any] = {
        "model": model,
        "temperature": finite(about.get("ls_temperature") if temperature is None else temperature),
        "tools": tuple(
            [each for each in tools if isinstance(each, dict) and isinstance(each.get("name"), str)]
        ),
    }
    purpose = "act" if tools or (reply is not None and reply.tool_calls) else "ask"
    return LoggedCall(_messages(inputs), reply, purpose, "", start, end, settings)


def _messages(inputs: Mapping[str, Any]) -> tuple[Message, ...]:
    held = field(inputs, "messages", (list, str)) or field(inputs, "prompts", (list, str), [])
    if isinstance(held, list) and held and isinstance(unwrapped(held[0]), list):  # a batch with one item
        held = held[0]
    return tuple(
        [
            Message("user", each) if isinstance(each, str) else message_of(each)
            for each in ([held] if isinstance(held, str) else held)
        ]
    )


def _output(outputs: Mapping[str, Any]) -> tuple[dict[str, Any] | None, Any]:
    """Return the message in the output of a model, and why the model stopped. Each is `None` if missing."""
    held: Any = outputs
    finish = None
    if generations := field(outputs, "generations", list, []):
        first = generations[0][:1] if isinstance(generations[0], list) else generations[:1]
        found = _object(first, "generations")
        held = found.get("message") or {"role": "assistant", "content": found.get("text", "")}
    elif choices := field(outputs, "choices", list, []):
        found = _object(choices, "choices")
        held, finish = found.get("message"), found.get("finish_reason")
    elif messages := field(outputs, "messages", list, []):
        held = messages[-1]
    elif "output" in outputs:
        held = outputs["output"]
    held = {"role": "assistant", "content": held} if isinstance(held, str) else unwrapped(held)
    return (held if isinstance(held, dict) and ("role" in held or "type" in held) else None), finish


def _object(values: list[Any], name: str) -> dict[str, Any]:
    """Return the first of `values`, or an empty object if `values` is empty."""
    if values and not isinstance(values[0], dict):
        raise ValueError(f"field {name!r} must hold objects: got {values[0]!r:.80}.")
    return values[0] if values else {}


def _usage(row: _Row, outputs: Mapping[str, Any], answer: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return the tokens of the prompt and of the reply. Both are `None` if LangSmith wrote 0 for both, as it
    does if they are unknown.
    """
    held = (answer.get("usage_metadata"), outputs.get("usage_metadata"), outputs.get("usage"))
    reported: Mapping[str, Any] = next((each for each in held if each and isinstance(each, dict)), {})
    prompt = reported.get("input_tokens", reported.get("prompt_tokens"))
    reply = reported.get("output_tokens", reported.get("completion_tokens"))
    if row.prompt_tokens or row.completion_tokens:
        prompt = prompt if row.prompt_tokens is None else row.prompt_tokens
        reply = reply if row.completion_tokens is None else row.completion_tokens
    if not prompt and not reply:
        return None, None
    return tokens(prompt, "prompt_tokens"), tokens(reply, "completion_tokens")


def _cost(value: Any) -> float | None:
    """Return a cost in USD, which may be a text, since the SDK writes decimal numbers as texts. `None` for
    any other value.
    """
    try:
        cost = float(value)
    except (TypeError, ValueError):
        return None
    return cost if is_cost(cost) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
