"""Importer of traces of OpenTelemetry. Each trace is a run, and each span a node.

    OTLP in JSON (a file, or a line per batch), the spans of the SDK (`span.to_json()`), or those of Phoenix
    → `Span`s with flat attributes → `Step`s (`spans.py`) → Run

References:
    opentelemetry.io/docs/specs/otlp.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from tot_lab.record.logs.common import UNREADABLE, field, seconds
from tot_lab.record.logs.spans import Span, error_of, step_of, with_events
from tot_lab.record.logs.traces import read_traces
from tot_lab.record.run import Run


class _KeyValue(msgspec.Struct):
    key: str | None = None
    value: dict[str, Any] | None = None


class _Status(msgspec.Struct):
    code: int | str | None = None
    message: str | None = None


class _Event(msgspec.Struct):
    name: str | None = None
    attributes: list[_KeyValue] | None = None


class _OTLPSpan(msgspec.Struct, rename="camel"):
    """A span. Some exporters write every field, with null if it has no value."""

    trace_id: str
    span_id: str
    name: str | None = None
    parent_span_id: str | None = None
    start_time_unix_nano: int | str | None = None
    end_time_unix_nano: int | str | None = None
    attributes: list[_KeyValue] | None = None
    events: list[_Event] | None = None
    status: _Status | None = None


class _Scope(msgspec.Struct):
    spans: list[_OTLPSpan] | None = None


class _Resource(msgspec.Struct):
    scope_spans: list[_Scope] | None = msgspec.field(default=None, name="scopeSpans")


class _Batch(msgspec.Struct):
    resource_spans: list[_Resource] | None = msgspec.field(name="resourceSpans")


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
        return read_traces(path, "OpenTelemetry", lambda entry, place: map(step_of, _spans(entry, place)))


_HEAD = re.compile(
    rb'"resourceSpans"\s*:|"context"\s*:\s*\{[^{}]*"(trace|span)_id"|"context\.(trace|span)_id"\s*:'
    rb'|"span_kind"\s*:[^{}]*"status_code"\s*:'
)


# Spans.


def _spans(entry: Any, place: str) -> Iterator[Span]:
    if not isinstance(entry, dict):
        raise ValueError(f"expected an object: got {entry!r:.80}.")
    if "resourceSpans" not in entry:
        yield _sdk_span(entry, place)
        return
    try:
        batch = msgspec.convert(entry, _Batch)
    except UNREADABLE as error:
        raise ValueError(str(error)) from None
    scopes = [scope for resource in batch.resource_spans or () for scope in resource.scope_spans or ()]
    spans = [span for scope in scopes for span in scope.spans or ()]
    for number, span in enumerate(spans, 1):
        yield _otlp_span(span, f"{place}, span {number}")


def _otlp_span(span: _OTLPSpan, place: str) -> Span:
    attributes = _values(span.attributes)
    events = [(event.name or "", _values(event.attributes)) for event in span.events or ()]
    status = span.status or _Status()
    is_failed = status.code in (2, "STATUS_CODE_ERROR")
    return Span(
        span.trace_id,
        span.span_id,
        span.parent_span_id or None,
        span.name or "",
        _nanoseconds(span.start_time_unix_nano, "startTimeUnixNano"),
        _nanoseconds(span.end_time_unix_nano, "endTimeUnixNano"),
        with_events(attributes, events),
        error_of(status.message, attributes, events) if is_failed else None,
        place,
    )


def _nanoseconds(value: int | str | None, name: str) -> float | None:
    try:
        return seconds(int(value or 0) / 1e6 or None, name)
    except (ValueError, OverflowError):
        raise ValueError(f"field {name!r} must be a number of nanoseconds: got {value!r:.80}.") from None


def _values(pairs: Sequence[_KeyValue] | None) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs or () if pair.key is not None}


def _value(value: Any, level: int = 0) -> Any:
    """Return the value of an OTLP attribute as plain JSON. `None` if it is missing."""
    if value is None:
        return None
    if not isinstance(value, dict) or level > _MAX_LEVELS:
        raise ValueError(f"field 'attributes' must hold values of OTLP: got {value!r:.80}.")
    for name, held in value.items():
        if held is None:
            continue
        if name == "arrayValue":
            return [_value(each, level + 1) for each in _listed_values(held)]
        if name == "kvlistValue":
            pairs = [msgspec.convert(each, _KeyValue) for each in _listed_values(held)]
            return {pair.key or "": _value(pair.value, level + 1) for pair in pairs}
        if name == "intValue" and isinstance(held, str):
            return int(held)
        return held
    return None


_MAX_LEVELS = 12


def _listed_values(held: Any) -> list[Any]:
    values: list[Any] = field(held if isinstance(held, dict) else {"values": held}, "values", list, [])
    return values


def _sdk_span(row: Mapping[str, Any], place: str) -> Span:
    """Return a span as the SDK or Phoenix exports it: with `context`, or with `context.span_id` etc."""
    context = field(row, "context", dict, {})
    id = context.get("span_id") or row.get("context.span_id")
    trace = context.get("trace_id") or row.get("context.trace_id")
    if not isinstance(id, str) or not isinstance(trace, str):
        missing = "context.trace_id" if isinstance(id, str) else "context.span_id"
        raise ValueError(
            f"field {missing!r} must be a text: got {trace if isinstance(id, str) else id!r:.80}."
        )
    status = field(row, "status", dict, {})
    code = str(row.get("status_code") or status.get("status_code") or "")
    columns = {name[11:]: held for name, held in row.items() if name.startswith("attributes.")}
    attributes = field(row, "attributes", dict, {}) | {
        name: held for name, held in columns.items() if held is not None
    }
    if isinstance(row.get("span_kind"), str):
        attributes.setdefault("openinference.span.kind", row["span_kind"])
    held_events: list[Any] = field(row, "events", list, [])
    events = [
        (field(event, "name", str, ""), field(event, "attributes", dict, {}))
        for event in held_events
        if isinstance(event, dict)
    ]
    message = row.get("status_message") or status.get("description")
    is_failed = code.rpartition(".")[2] == "ERROR"
    return Span(
        trace,
        id,
        field(row, "parent_id", str) or None,
        field(row, "name", str, ""),
        seconds(row.get("start_time"), "start_time"),
        seconds(row.get("end_time"), "end_time"),
        with_events(attributes, events),
        error_of(message, attributes, events) if is_failed else None,
        place,
    )
