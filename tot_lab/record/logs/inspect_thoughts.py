"""How a log of Inspect stores a tree of tot_lab, so that `tl.load` reads the same nodes.

    span `run`, named by its strategy
    span `thought`               one for each thought, in the span of its parent; named by its id and text
      info of source `tot_lab`   records about it: the thought, its scores, its decisions, notes, the end
      span `call`                one for each call, named by its purpose
        info of source `tot_lab` the call
        model or tool            its prompt and its reply

The data of an info event is a line of the journal. In it, a call has no messages and tools if the model or
tool event of its span has them. A call that was refused, or that a function answered, has no such event, and
its reply is an info event as well. The metadata of the sample has the key `tot_lab`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tot_lab.core.calls import Call
from tot_lab.core.records import Line
from tot_lab.record.journal import encoder

SOURCE = "tot_lab"
"""The source of the info events, and the key in the metadata of a sample."""

RUN, THOUGHT, CALL = "run", "thought", "call"
"""The types of the spans."""


def data_of(line: Line, *, has_event: bool = False) -> Any:
    """Return the data of the info event that stores a line.

    Args:
        line: The line.
        has_event: Whether the line is a call whose prompt is in a model or tool event.
    """
    if has_event and isinstance(line.e, Call):
        line = msgspec.structs.replace(line, e=msgspec.structs.replace(line.e, messages=(), tools=()))
    return msgspec.json.decode(encoder.encode(line))


def span_name(text: str) -> str:
    """Return `text` as the name of a span, in one line. Inspect hides text before a slash."""
    line = " ".join(text.split()).replace("/", "∕")
    return line if len(line) <= 80 else f"{line[:79]}…"
