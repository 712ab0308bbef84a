"""The record of a run in the spans of its trace, as `tl.OpenTelemetry` writes it.

Each span holds lines of the journal in attributes named `tot_lab.…`. The texts of model calls, which are most
of a journal, are only in the attributes that the semantic conventions of OpenTelemetry define. If the span of
the run is missing, the trace is read like that of another program. If any other span is missing, reading the
trace is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from tot_lab.core.calls import Call, Reply
from tot_lab.core.records import Line
from tot_lab.record.journal import JournalError
from tot_lab.record.nodes import LoggedCall
from tot_lab.record.run import Run, parse

HEADER = "tot_lab.header"
"""The header of the journal, in the span of the run."""

COUNT = "tot_lab.count"
"""The number of lines of the journal, in the span of the run."""

LINES = "tot_lab.lines"
"""The lines of the journal that a span holds."""

NUMBERS = "tot_lab.numbers"
"""The numbers of these lines in the journal, from 0 for the line after the header."""


class Own(msgspec.Struct, frozen=True):
    """The part of the record that a span holds."""

    lines: str = msgspec.field(default="", name=LINES)
    numbers: tuple[int, ...] = msgspec.field(default=(), name=NUMBERS)
    header: str | None = msgspec.field(default=None, name=HEADER)
    count: int = msgspec.field(default=0, name=COUNT)


def own(attributes: Mapping[str, Any]) -> Own | None:
    """Return the part of the record that a span holds. `None` for a span of another program. Raises
    ValueError for a damaged attribute.
    """
    try:
        return msgspec.convert(dict(attributes), Own) if LINES in attributes else None
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def without_texts(line: Line) -> Line:
    """Return the line of a model call or its reply without the texts that other attributes of the span hold
    (those of the semantic conventions), and without the log-probabilities and the provider's state, which no
    span holds.
    """
    if isinstance(line.e, Call):
        return msgspec.structs.replace(line, e=msgspec.structs.replace(line.e, messages=(), tools=()))
    lost = {"logprobs": (), "surprisals": (), "confidences": (), "provider_state": "", "raw_text": ""}
    reply = msgspec.structs.replace(line.e, text="", thinking=None, tool_calls=(), **lost)
    return msgspec.structs.replace(line, e=reply)


def _with_texts(line: Line, call: LoggedCall) -> Line:
    record = line.e
    if isinstance(record, Call):
        tools = call.settings.get("tools", ())
        record = msgspec.structs.replace(record, messages=call.messages, tools=tools)
    elif isinstance(record, Reply) and (reply := call.reply) is not None:
        texts = {"text": reply.text, "thinking": reply.thinking, "tool_calls": reply.tool_calls}
        record = msgspec.structs.replace(record, **texts)
    return msgspec.structs.replace(line, e=record)


def own_run(spans: Iterable[tuple[Own, LoggedCall | None]], place: str) -> Run | None:
    """Return the run of the spans of a trace. `None` if the span of the run is missing.

    Args:
        spans: The part of the record in each span, and its call if the span is a model call.
        place: Names the trace in errors.

    Raises:
        JournalError: If any other span is missing, or a span is damaged.
    """
    lines: dict[int, str] = {}
    calls: dict[int, LoggedCall] = {}
    header, count = None, 0
    for held, call in spans:
        header, count = (held.header, held.count) if held.header is not None else (header, count)
        lines.update(zip(held.numbers, held.lines.split("\n"), strict=False))
        calls.update(dict.fromkeys(held.numbers, call) if call is not None else {})
    if header is None:
        return None
    if missing := count - sum(0 <= number < count for number in lines):
        raise JournalError(
            f"{place}: {missing} of the {count} records of the run are missing. Export all spans of the run."
        )
    text = "".join(f"{line}\n" for line in [header, *(lines[number] for number in range(count))])
    run = parse(text.encode(), f"{place}, the record of the run")
    filled = [_with_texts(line, calls[k]) if k in calls else line for k, line in enumerate(run.lines)]
    return Run(run.header, filled, loaded=True)
