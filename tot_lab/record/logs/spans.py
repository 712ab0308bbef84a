"""The steps in spans: calls of models and tools, read by the conventions for span attributes.

The conventions are those of OpenInference, of OpenTelemetry for generative AI, and of OpenLLMetry. Messages
may be attributes or events of a span. `docs/how-to/other_logs.md` lists which attributes are read.

References:
    github.com/Arize-ai/openinference/tree/main/spec (package openinference-semantic-conventions 0.1.42);
    opentelemetry.io/docs/specs/semconv/gen-ai (1.27 to 1.44); github.com/traceloop/openllmetry (package
    opentelemetry-semantic-conventions-ai 0.5.1).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from tot_lab.core.calls import Message, Reply, is_cost, is_token_count
from tot_lab.core.reading.finish_reasons import read_finish_reason
from tot_lab.core.reading.values import finite
from tot_lab.record.journal import JournalError
from tot_lab.record.logs.common import (
    arguments_of,
    json_of,
    message_of,
    thinking_of,
    tokens,
    tool_call,
    tool_reply,
    unwrapped,
)
from tot_lab.record.logs.own_spans import own
from tot_lab.record.logs.traces import Step, grade_of
from tot_lab.record.nodes import LoggedCall


class Span(NamedTuple):
    """A span.

    Attributes:
        parent: Id of the parent, `None` for a root.
        start: Start in seconds since 1970. `None` if it is unknown; the same holds for `end`.
        attributes: The attributes by their flat names.
        error: Why the span failed, `None` if it did not.
        place: Its file and line or entry, for error messages.
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


Events = Sequence[tuple[str, Mapping[str, Any]]]
"""The names and the attributes of the events of a span."""


def error_of(message: Any, attributes: Mapping[str, Any], events: Events) -> str:
    """Return why a span failed, as precisely as the span states it."""
    if message:
        return str(message)
    for name, held in events:
        if name == "exception":
            parts = [held.get("exception.type"), held.get("exception.message")]
            return ": ".join([str(part) for part in parts if part]) or "error"
    return str(attributes.get("error.type") or "error")


def with_events(attributes: dict[str, Any], events: Events) -> dict[str, Any]:
    """Return the attributes of a span, and those made from the messages and evaluations in its events. The
    span's own attributes take precedence."""
    found: dict[str, Any] = {}
    for name, held in events:
        if name in _DETAILS:
            found |= held
        elif name == "gen_ai.evaluation.result":
            found.setdefault("evaluations", []).append({"evaluation": _evaluation(held)})
        elif message := _EVENT.fullmatch(name):
            is_reply = message[1] is None
            key = "gen_ai.output.messages" if is_reply else "gen_ai.input.messages"
            found.setdefault(key, []).append(_event_message(held, message[1] or "assistant"))
    return {**found, **attributes} if found else attributes


_DETAILS = (
    *("gen_ai.client.inference.operation.details", "gen_ai.content.prompt", "gen_ai.content.completion"),
)
_EVENT = re.compile(r"gen_ai\.(?:choice|(system|user|assistant|tool)\.message)")


def _evaluation(held: Mapping[str, Any]) -> dict[str, Any]:
    fields = {"name": "name", "score.value": "score", "score.label": "label", "explanation": "explanation"}
    found = {name: held.get(f"gen_ai.evaluation.{of}") for of, name in fields.items()}
    return {name: value for name, value in found.items() if value is not None}


def _event_message(held: Mapping[str, Any], role: str) -> dict[str, Any]:
    """Return the message in an event: JSON in `gen_ai.event.content`, or an attribute for each field."""
    body = json_of(held.get("gen_ai.event.content"))
    if body is None:
        body = {name: json_of(value) for name, value in held.items()}
    body = body if isinstance(body, dict) else {"content": body}
    inner = body.get("message")  # the message of a choice
    inner = inner if isinstance(inner, dict) else {} if inner is None else {"content": inner}
    message = {"role": role, **body, **inner}
    return {"tool_call_id": body.get("id"), **message} if role == "tool" else message


# Attributes.


_PROMPTS = ("llm.input_messages", "gen_ai.input.messages", "gen_ai.prompt", "llm.prompts")
_REPLIES = ("llm.output_messages", "gen_ai.output.messages", "gen_ai.completion", "llm.choices")
_TOOLS = ("llm.tools", "gen_ai.tool.definitions", "llm.request.functions")
_FEEDBACK = ("annotations", "evaluations", "trace.annotations", "trace.evaluations")
_LISTS = frozenset((*_PROMPTS, *_REPLIES, *_TOOLS, *_FEEDBACK))
_LIST = re.compile(rf"({'|'.join(map(re.escape, _LISTS))})\.(\d+\..+)")
_MAX_LEVELS = 12


def _lists(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that hold messages, tools and feedback, each as a list of objects.

    An attribute holds a list (possibly as JSON), or a field of an item: `llm.tools.0.tool.json_schema` is the
    field `json_schema` of the field `tool` of the first of `llm.tools`.
    """
    made: dict[str, Any] = {}
    for name, value in attributes.items():
        if name in _LISTS:
            held = json_of(value)
            made[name] = held if name.startswith("gen_ai.") else _undotted(held)
            continue
        above, last = _place(name)
        inner: Any = made
        for part in above:
            inner = inner.setdefault(part, {}) if isinstance(inner, dict) else {}
        if above and isinstance(inner, dict):
            inner[last] = value
    return {name: _numbered(held) for name, held in made.items()}


@lru_cache(4096)
def _place(name: str) -> tuple[tuple[str, ...], str]:
    """Return the path of the object that holds an attribute (a list, then fields), and its field in this
    object. Both are empty if it belongs to no list.
    """
    if not (found := _LIST.fullmatch(name)):
        return (), ""
    *above, last = found[2].split(".", _MAX_LEVELS)
    return (found[1], *above), last


def _numbered(value: Any) -> Any:
    """Return the value with lists in place of objects whose keys are numbers."""
    if not isinstance(value, dict):
        return value
    found = {name: _numbered(held) if isinstance(held, dict) else held for name, held in value.items()}
    if found and next(iter(found)).isdecimal() and all(map(str.isdecimal, found)):
        return [found[name] for name in sorted(found, key=int)]
    return found


def _undotted(value: Any, level: int = 0) -> Any:
    """Return a value whose objects have nested fields instead of dotted names."""
    if level > _MAX_LEVELS:
        return value
    if isinstance(value, list):
        return [_undotted(each, level + 1) for each in value]
    if not isinstance(value, dict):
        return value
    made: dict[str, Any] = {}
    for name, held in value.items():
        first, dot, rest = name.partition(".")
        if not dot:
            made[name] = held
        elif isinstance(inner := made.setdefault(first, {}), dict):
            inner[rest] = held
    return {name: _undotted(held, level + 1) for name, held in made.items()}


def _first(attributes: Mapping[str, Any], *names: str) -> Any:
    for name in names:
        if (value := attributes.get(name)) is not None:
            return value
    return None


_Kind = Literal["llm", "tool", "other"]
_KINDS: dict[Any, _Kind] = {
    **{"chat": "llm", "text_completion": "llm", "generate_content": "llm", "execute_tool": "tool"},
    **{"llm": "llm", "tool": "tool"},
}


def _kind(attributes: Mapping[str, Any]) -> _Kind:
    """Return the kind of a span: a call of a model, of a tool, or neither."""
    operation = attributes.get("gen_ai.operation.name")
    kind = _first(attributes, "openinference.span.kind", "traceloop.span.kind")
    for name in (operation, kind):
        if isinstance(name, str) and name.lower() in _KINDS:
            return _KINDS[name.lower()]
    if operation is not None or attributes.get("llm.request.type") in ("embedding", "rerank"):
        return "other"
    return "other" if _first(attributes, "gen_ai.request.model", "llm.request.type") is None else "llm"


# Steps.


def step_of(span: Span) -> Step:
    """Return a span as a step. Raises `JournalError` with the place of the span for a damaged attribute."""
    try:
        attributes, call = span.attributes, None
        kind = _kind(attributes)
        if kind == "llm":
            call = _llm_call(span)
        elif kind == "tool":
            call = _tool_call(span)
        given = output = None
        if call is None:
            given = _first(attributes, "input.value", _ENTITY_INPUT, "gen_ai.input.messages")
            output = _first(attributes, "output.value", _ENTITY_OUTPUT, "gen_ai.output.messages")
        feedback = _feedback(attributes) if span.parent is None else {}
        return Step(
            span.trace.removeprefix("0x"),
            span.id,
            span.parent,
            span.name,
            kind,
            call,
            json_of(given),
            json_of(output),
            span.start,
            span.end,
            span.error,
            span.place,
            grade_of(feedback, "score"),
            feedback,
            own(attributes),
        )
    except ValueError as error:
        raise JournalError(f"{span.place}: {error}") from None


_ENTITY_INPUT, _ENTITY_OUTPUT = "traceloop.entity.input", "traceloop.entity.output"


def _feedback(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the annotations and evaluations of a root and of its trace, by name."""
    lists = _lists(attributes)
    found = {}
    for each in [each for name in _FEEDBACK for each in _listed(lists.get(name))]:
        held = each.get("annotation", each.get("evaluation")) if isinstance(each, dict) else None
        if isinstance(held, dict) and isinstance(held.get("name"), str):
            found[held["name"]] = {name: value for name, value in held.items() if name != "name"}
    return found


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _llm_call(span: Span) -> LoggedCall:
    attributes = span.attributes
    lists = _lists(attributes)
    messages = [message_of(message) for message in _messages(lists, _PROMPTS, "user")]
    system = json_of(attributes.get("gen_ai.system_instructions"))
    if system is not None:
        parts = {"role": "system", "parts": system} if isinstance(system, list) else None
        messages.insert(0, message_of(parts) if parts else Message("system", str(system)))
    reply = _reply(span, next(iter(_messages(lists, _REPLIES, "assistant")), None))
    settings = _settings(attributes, lists)
    purpose = "act" if settings["tools"] or (reply and reply.tool_calls) else "ask"
    return LoggedCall(tuple(messages), reply, purpose, "", span.start, span.end, settings)


def _messages(lists: Mapping[str, Any], names: Sequence[str], role: str) -> list[Any]:
    """Return the messages in the first of the lists `names` that has any. Plain texts get the role `role`."""
    held: Any = next((lists[name] for name in names if lists.get(name)), [])
    return [_message(each, role) for each in (held if isinstance(held, list) else [held])]


def _message(value: Any, role: str) -> Any:
    """Return `value` as a chat message. It may be a text, a prompt or completion of a completions API
    (`prompt.text`), or a message with one function call in its own fields.
    """
    message = unwrapped(value)
    if isinstance(message, str):
        return {"role": role, "content": message}
    if not isinstance(message, dict):
        return message
    held = message.get("prompt", message.get("completion"))
    if isinstance(held, dict) and "role" not in message:
        return {"role": role, "content": held.get("text")}
    if name := message.get("function_call_name"):
        call = {"name": name, "arguments": message.get("function_call_arguments_json")}
        return {**message, "tool_calls": [call]}
    return message


_INPUT = ("llm.token_count.prompt", "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
_OUTPUT = ("llm.token_count.completion", "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")


def _reply(span: Span, answer: Any) -> Reply | None:
    """Return the reply of a model. Its text is empty if the span holds only its tokens or an error. `None` if
    the span has no data about it.
    """
    attributes = span.attributes
    sizes = tokens(_first(attributes, *_INPUT), _INPUT[0]), tokens(_first(attributes, *_OUTPUT), _OUTPUT[0])
    if answer is None and span.error is None and sizes == (None, None):
        return None
    message = Message("assistant", "") if answer is None else message_of(answer)
    return Reply(
        message.content,
        span.error,
        None if answer is None else thinking_of(answer),
        _text(_first(attributes, *_MODELS)),
        *sizes,
        _cost(attributes),
        _finish(attributes, answer),
        (),
        message.tool_calls,
    )


_MODELS = (
    *("gen_ai.response.model", "llm.response.model_name", "llm.model_name"),
    *("gen_ai.request.model", "llm.request.model_name"),
)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _cost(attributes: Mapping[str, Any]) -> float | None:
    """Return the cost of a call in USD. `None` if the span does not state it."""
    cost = _first(attributes, "llm.cost.total", "gen_ai.usage.cost")
    if cost is None:
        parts = [finite(attributes.get(name)) for name in ("llm.cost.prompt", "llm.cost.completion")]
        cost = None if None in parts else sum(part or 0.0 for part in parts)
    return float(cost) if is_cost(cost) else None


def _finish(attributes: Mapping[str, Any], answer: Any) -> str | None:
    reasons = _first(attributes, *_FINISH)
    if reasons is None and isinstance(answer, dict):
        reasons = answer.get("finish_reason")
    reason = reasons[0] if isinstance(reasons, list) and reasons else reasons
    return read_finish_reason(_text(reason))


_FINISH = (
    *("llm.finish_reason", "gen_ai.response.finish_reasons", "gen_ai.response.finish_reason"),
    *("llm.response.finish_reason", "gen_ai.response.stop_reason", "llm.response.stop_reason"),
)


def _settings(attributes: Mapping[str, Any], lists: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a call that `Call` has fields for."""
    parameters = json_of(attributes.get("llm.invocation_parameters"))
    given: dict[str, Any] = dict(parameters) if isinstance(parameters, dict) else {}
    given |= {name[15:]: held for name, held in attributes.items() if name.startswith("gen_ai.request.")}
    model = given.get("model") or _first(attributes, "llm.request.model_name", "llm.model_name")
    most = given.get("max_tokens") or given.get("max_completion_tokens")
    stop = given.get("stop_sequences") or given.get("stop")
    settings: dict[str, Any] = {
        "model": _text(model),
        "temperature": finite(given.get("temperature")),
        "effort": _text(given.get("reasoning_effort")),
        "tools": tuple(_tools(lists)),
    }
    if most and is_token_count(most):
        settings["max_tokens"] = most
    if isinstance(seed := given.get("seed"), int):
        settings["seed"] = seed
    if stop and isinstance(stop, list) and all(isinstance(each, str) for each in stop):
        settings["stop"] = tuple(stop)
    options = {name: finite(given[name]) for name in _OPTIONS if name in given}
    if known := {name: number for name, number in options.items() if number is not None}:
        settings["options"] = known
    return settings


_OPTIONS = ("top_p", "top_k", "frequency_penalty", "presence_penalty")


def _tools(lists: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the tools that a call offers to the model. Tools without a name are left out."""
    for each in next((lists[name] for name in _TOOLS if _listed(lists.get(name))), []):
        tool = each.get("tool", each) if isinstance(each, dict) else None
        if isinstance(tool, dict) and "json_schema" in tool:
            tool = json_of(tool["json_schema"])
        tool = tool.get("function", tool) if isinstance(tool, dict) else None
        if isinstance(tool, dict) and isinstance(tool.get("name"), str):
            parameters = json_of(tool.get("parameters"))
            yield tool if parameters is None else {**tool, "parameters": parameters}


def _tool_call(span: Span) -> LoggedCall:
    attributes = span.attributes
    name = _text(_first(attributes, "tool.name", "gen_ai.tool.name", "traceloop.entity.name")) or span.name
    given = _first(attributes, "input.value", "gen_ai.tool.call.arguments", "tool.parameters", _ENTITY_INPUT)
    result = _first(attributes, "output.value", "gen_ai.tool.call.result", _ENTITY_OUTPUT)
    reply = None
    if result is not None or span.error is not None:
        reply = tool_reply(name, json_of(result), span.error)
    return tool_call(name, None if given is None else arguments_of(given), reply, span.start, span.end)
