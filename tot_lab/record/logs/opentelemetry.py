"""Importer of traces of OpenTelemetry. Each trace is a run, and each span a node.

    OTLP in JSON (a file, or a line per batch), the spans of the SDK (`span.to_json()`), or those of Phoenix
    → `_Span`s with flat attributes → `Step`s → Run

The calls of models are read by the conventions of OpenInference, of OpenTelemetry for generative AI, and of
OpenLLMetry.

References:
    opentelemetry.io/docs/specs/otlp; github.com/Arize-ai/openinference/tree/main/spec;
    opentelemetry.io/docs/specs/semconv/gen-ai.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import msgspec

from tot_lab.core.calls import Message, Reply, is_cost, is_token_count
from tot_lab.core.reading import finite
from tot_lab.record.journal import JournalError
from tot_lab.record.logs.common import (
    UNREADABLE,
    arguments_of,
    field,
    json_of,
    message_of,
    seconds,
    thinking_of,
    tokens,
    tool_reply,
)
from tot_lab.record.logs.traces import Step, read_traces
from tot_lab.record.nodes import LoggedCall
from tot_lab.record.run import Run


class _Span(NamedTuple):
    """A span.

    Attributes:
        parent: Id of the parent, `None` for a root.
        attributes: The attributes by their flat names.
        error: Why it failed, `None` if it did not.
        place: Its place in the file.
    """

    trace: str
    id: str
    parent: str | None
    name: str
    start: float | None
    end: float | None
    attributes: dict[str, Any]
    error: str | None
    place: str


class _KeyValue(msgspec.Struct):
    key: str
    value: dict[str, Any] = {}


class _Status(msgspec.Struct):
    code: int | str = 0
    message: str = ""


class _OTLPSpan(msgspec.Struct, rename="camel"):
    trace_id: str
    span_id: str
    name: str = ""
    parent_span_id: str = ""
    start_time_unix_nano: int | str | None = None
    end_time_unix_nano: int | str | None = None
    attributes: list[_KeyValue] = []
    status: _Status = msgspec.field(default_factory=_Status)


class _Scope(msgspec.Struct):
    spans: list[_OTLPSpan] = []


class _Resource(msgspec.Struct):
    scope_spans: list[_Scope] = msgspec.field(default_factory=list, name="scopeSpans")


class _Batch(msgspec.Struct):
    resource_spans: list[_Resource] = msgspec.field(name="resourceSpans")


class Spans:
    """Importer of traces of OpenTelemetry, OpenInference and Phoenix."""

    expects = "objects with resourceSpans, or spans with context.trace_id and context.span_id"

    @staticmethod
    def recognises(head: bytes) -> bool:
        """Whether a file that begins with `head` holds spans."""
        return head.lstrip()[:1] in (b"{", b"[") and _HEAD.search(head) is not None

    @staticmethod
    def read(path: str | os.PathLike[str]) -> list[Run]:
        """Return the run of each trace, in the order in which the traces occur in the file."""
        return read_traces(path, "OpenTelemetry", lambda entry, place: map(_step, _spans(entry, place)))


_HEAD = re.compile(
    rb'"resourceSpans"\s*:|"context"\s*:\s*\{[^{}]*"(trace|span)_id"|"context\.(trace|span)_id"\s*:'
    rb'|"span_kind"\s*:[^{}]*"status_code"\s*:'
)


# Spans.


def _spans(entry: Any, place: str) -> Iterator[_Span]:
    if not isinstance(entry, dict):
        raise ValueError("expected an object.")
    if "resourceSpans" not in entry:
        yield _sdk_span(entry, place)
        return
    try:
        batch = msgspec.convert(entry, _Batch)
    except UNREADABLE as error:
        raise ValueError(str(error)) from None
    number = 0
    for resource in batch.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                number += 1
                failed = span.status.code in (2, "STATUS_CODE_ERROR")
                yield _Span(
                    span.trace_id,
                    span.span_id,
                    span.parent_span_id or None,
                    span.name,
                    _nanoseconds(span.start_time_unix_nano, "startTimeUnixNano"),
                    _nanoseconds(span.end_time_unix_nano, "endTimeUnixNano"),
                    {held.key: _value(held.value) for held in span.attributes},
                    (span.status.message or "error") if failed else None,
                    f"{place}, span {number}",
                )


def _nanoseconds(value: int | str | None, name: str) -> float | None:
    try:
        return seconds(int(value or 0) / 1e6 or None, name)
    except (ValueError, OverflowError):
        raise ValueError(f"field {name!r} must be a number of nanoseconds: got {value!r:.80}.") from None


def _value(value: Any, level: int = 0) -> Any:
    """Return an attribute of OTLP as plain JSON."""
    if not isinstance(value, dict) or level > _MAX_LEVELS:
        raise ValueError(f"field 'attributes' must hold values of OTLP: got {value!r:.80}.")
    for name, held in value.items():
        if name == "arrayValue":
            return [_value(each, level + 1) for each in _listed_values(held)]
        if name == "kvlistValue":
            pairs = [msgspec.convert(each, _KeyValue) for each in _listed_values(held)]
            return {pair.key: _value(pair.value, level + 1) for pair in pairs}
        if name == "intValue" and isinstance(held, str):
            return int(held)
        return held
    return None


def _listed_values(held: Any) -> list[Any]:
    values: list[Any] = field(held if isinstance(held, dict) else {"values": held}, "values", list, [])
    return values


def _sdk_span(row: Mapping[str, Any], place: str) -> _Span:
    """Return a span as the SDK or Phoenix export it: with a context, or with a column for each field."""
    context = field(row, "context", dict, {})
    id = context.get("span_id") or row.get("context.span_id")
    trace = context.get("trace_id") or row.get("context.trace_id")
    if not isinstance(id, str) or not isinstance(trace, str):
        missing = "context.trace_id" if isinstance(id, str) else "context.span_id"
        raise ValueError(f"field {missing!r} must be a text.")
    status = field(row, "status", dict, {})
    code = str(row.get("status_code") or status.get("status_code") or "")
    columns = {name[11:]: held for name, held in row.items() if name.startswith("attributes.")}
    attributes = field(row, "attributes", dict, {}) | {
        name: held for name, held in columns.items() if held is not None
    }
    if isinstance(row.get("span_kind"), str):
        attributes.setdefault("openinference.span.kind", row["span_kind"])
    message = row.get("status_message") or status.get("description")
    return _Span(
        trace,
        id,
        field(row, "parent_id", str) or None,
        field(row, "name", str, ""),
        seconds(row.get("start_time"), "start_time"),
        seconds(row.get("end_time"), "end_time"),
        attributes,
        str(message or "error") if code.rpartition(".")[2] == "ERROR" else None,
        place,
    )


# Attributes.


def _nested(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that hold messages and tools, each as a list of objects.

    `llm.tools.0.tool.json_schema` is the field `json_schema` of the field `tool` of the first of `llm.tools`.
    """
    made: dict[str, Any] = {}
    for name, value in attributes.items():
        if name in _LISTS:
            made[name] = _unflattened(json_of(value))
            continue
        key, above, last = _place(name)
        if not key:
            continue
        inner = made.setdefault(key, {})
        for part in above:
            inner = inner.setdefault(part, {}) if isinstance(inner, dict) else {}
        if isinstance(inner, dict):
            inner[last] = value
    return {name: _listed(held) for name, held in made.items()}


_PROMPTS = ("llm.input_messages", "gen_ai.input.messages", "gen_ai.prompt", "llm.prompts")
_REPLIES = ("llm.output_messages", "gen_ai.output.messages", "gen_ai.completion")
_LISTS = frozenset((*_PROMPTS, *_REPLIES, "llm.tools"))


@lru_cache(4096)
def _place(name: str) -> tuple[str, list[str], str]:
    """Return the list that an attribute belongs to, the fields above it, and its own. `""` without a list."""
    parts = name.split(".", _MAX_LEVELS)
    key = ".".join(parts[:2])
    return (key if key in _LISTS and len(parts) > 3 else "", parts[2:-1], parts[-1])


def _listed(value: Any) -> Any:
    """Return objects whose fields are numbered as lists."""
    if not isinstance(value, dict):
        return value
    found = {name: _listed(held) if isinstance(held, dict) else held for name, held in value.items()}
    if found and next(iter(found)).isdecimal() and all(map(str.isdecimal, found)):
        return [found[name] for name in sorted(found, key=int)]
    return found


_MAX_LEVELS = 12


def _unflattened(value: Any, level: int = 0) -> Any:
    """Return a value whose objects have nested fields instead of dotted names."""
    if level > _MAX_LEVELS:
        return value
    if isinstance(value, list):
        return [_unflattened(each, level + 1) for each in value]
    if not isinstance(value, dict):
        return value
    made: dict[str, Any] = {}
    for name, held in value.items():
        first, dot, rest = name.partition(".")
        if not dot:
            made[name] = held
        elif isinstance(inner := made.setdefault(first, {}), dict):
            inner[rest] = held
    return {name: _unflattened(held, level + 1) for name, held in made.items()}


def _first(attributes: Mapping[str, Any], *names: str) -> Any:
    return next((attributes[name] for name in names if attributes.get(name) is not None), None)


def _kind(span: _Span) -> Literal["llm", "tool", "other"]:
    """Return whether a span is a call of a model or of a tool."""
    attributes = span.attributes
    kind = _first(attributes, "openinference.span.kind", "traceloop.span.kind")
    operation = attributes.get("gen_ai.operation.name")
    if operation in ("chat", "text_completion", "generate_content"):
        return "llm"
    if operation == "execute_tool":
        return "tool"
    if isinstance(kind, str) and kind.lower() in ("llm", "tool"):
        return "llm" if kind.lower() == "llm" else "tool"
    if operation is None and _first(attributes, "gen_ai.request.model", "llm.request.type") is not None:
        return "llm"
    return "other"


# Steps.


def _step(span: _Span) -> Step:
    try:
        kind, attributes = _kind(span), span.attributes
        call = _llm_call(span) if kind == "llm" else _tool_call(span) if kind == "tool" else None
        given = _first(attributes, "input.value", "traceloop.entity.input")
        output = _first(attributes, "output.value", "traceloop.entity.output", "gen_ai.output.messages")
        return Step(
            span.trace.removeprefix("0x"),
            span.id,
            span.parent,
            span.name,
            kind,
            call,
            None if call else json_of(given),
            None if call else json_of(output),
            span.start,
            span.end,
            span.error,
            span.place,
        )
    except ValueError as error:
        raise JournalError(f"{span.place}: {error}") from None


def _messages(nested: Mapping[str, Any], names: Sequence[str]) -> list[Any]:
    for name in names:
        held = nested.get(name)
        if isinstance(held, list):
            return held
        if isinstance(held, str) and held:
            return [{"role": "user", "content": held}]
    return []


def _llm_call(span: _Span) -> LoggedCall:
    attributes = span.attributes
    nested = _nested(attributes)
    prompt, answer = _messages(nested, _PROMPTS), _messages(nested, _REPLIES)
    messages = [message_of(message) for message in prompt]
    system = json_of(attributes.get("gen_ai.system_instructions"))
    if system is not None:
        parts = {"role": "system", "parts": system} if isinstance(system, list) else None
        messages.insert(0, message_of(parts) if parts else Message("system", str(system)))
    settings = _settings(attributes, nested)
    reply = None
    sizes = tokens(_first(attributes, *_INPUT), _INPUT[0]), tokens(_first(attributes, *_OUTPUT), _OUTPUT[0])
    if answer or span.error is not None or sizes != (None, None):  # many traces leave out all texts
        answered = message_of(answer[0]) if answer else Message("assistant", "")
        cost = _first(attributes, "llm.cost.total", "gen_ai.usage.cost")
        reply = Reply(
            answered.content,
            span.error,
            thinking_of(answer[0]) if answer else None,
            _text(_first(attributes, "gen_ai.response.model", "llm.model_name", "gen_ai.request.model")),
            *sizes,
            float(cost) if is_cost(cost) else None,
            _finish(attributes, answer),
            (),
            answered.tool_calls,
        )
    purpose = "act" if settings.get("tools") or (reply and reply.tool_calls) else "ask"
    return LoggedCall(tuple(messages), reply, purpose, "", span.start, span.end, settings)


_INPUT = ("llm.token_count.prompt", "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
_OUTPUT = ("llm.token_count.completion", "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _finish(attributes: Mapping[str, Any], answer: Sequence[Any]) -> str | None:
    reasons = _first(attributes, "llm.finish_reason", "gen_ai.response.finish_reasons")
    if reasons is None and answer and isinstance(answer[0], dict):
        reasons = answer[0].get("finish_reason")
    reason = reasons[0] if isinstance(reasons, list) and reasons else reasons
    return _text(reason)


def _settings(attributes: Mapping[str, Any], nested: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is known of the settings of a call."""
    given = json_of(attributes.get("llm.invocation_parameters"))
    given = given if isinstance(given, dict) else {}
    tools = nested.get("llm.tools")
    tools = tools if isinstance(tools, list) else []
    held = [each.get("tool", each) for each in tools if isinstance(each, dict)]
    offered = [json_of(each.get("json_schema")) for each in held if isinstance(each, dict)]
    offered = [each.get("function", each) for each in offered if isinstance(each, dict)]
    model = (
        _first(attributes, "gen_ai.request.model") or given.get("model") or attributes.get("llm.model_name")
    )
    temperature = _first(attributes, "gen_ai.request.temperature")  # 0 is one
    most = _first(attributes, "gen_ai.request.max_tokens") or given.get("max_tokens")
    settings: dict[str, Any] = {
        "model": _text(model),
        "temperature": finite(given.get("temperature") if temperature is None else temperature),
    }
    settings["tools"] = tuple(
        [each for each in offered if isinstance(each, dict) and isinstance(each.get("name"), str)]
    )
    return settings | ({"max_tokens": most} if most and is_token_count(most) else {})


def _tool_call(span: _Span) -> LoggedCall:
    attributes = span.attributes
    name = _text(_first(attributes, "tool.name", "gen_ai.tool.name", "traceloop.entity.name")) or span.name
    given = _first(attributes, "input.value", "gen_ai.tool.call.arguments", "tool.parameters")
    if given is None:
        given = attributes.get("traceloop.entity.input")
    result = _first(attributes, "output.value", "gen_ai.tool.call.result", "traceloop.entity.output")
    reply = None
    if result is not None or span.error is not None:
        reply = tool_reply(name, json_of(result), span.error)
    messages = (Message("user", arguments_of(given)),) if given is not None else ()
    return LoggedCall(messages, reply, "tool", "", span.start, span.end, {"model": f"tool:{name}"})
