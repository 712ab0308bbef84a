"""The information that `tl.GatherThenThink` gathered before it answered (Cogtrix, "/think", stage 1).

It is computed from the records: the category of the question and how it was chosen, each tool call with its
outcome, and the pages and files that were read, or the reason why nothing was gathered.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from tot_lab.core.calls import Call
from tot_lab.core.records import Note
from tot_lab.core.tools import TOOL, tool_of
from tot_lab.record.run import Run, replies_of


class GatheringCall(NamedTuple):
    """A tool call of the first stage.

    Attributes:
        tool: Name of the tool.
        arguments: JSON.
        error: Why it returned no result. Empty if it returned one.
    """

    tool: str
    arguments: str
    error: str


class Gathering(NamedTuple):
    """The first stage of `tl.GatherThenThink`.

    Attributes:
        category: One of the 23 categories of Cogtrix, or `general`.
        by: How the category was chosen (`keywords`, `model` or `default`).
        why: The reason for the category, as text.
        uses: The tool calls in program order.
        sources: URLs and paths of the pages and files that were read, without duplicates.
        nothing: Why nothing was gathered. Empty if something was gathered.
    """

    category: str
    by: str
    why: str
    uses: tuple[GatheringCall, ...]
    sources: tuple[str, ...]
    nothing: str


def gathering_of(run: Run, at: str) -> Gathering | None:
    """Return the first stage of the `tl.GatherThenThink` whose root is the thought `at`. `None` if
    there is no such strategy."""
    notes = {note.name: note.data for note in run.events if isinstance(note, Note) and note.at == at}
    classified = notes.get("think.classified")
    if classified is None:
        return None
    replies = replies_of(run.lines)
    stage = (f"{at}.0", f"{at}.1")
    uses, sources = [], dict[str, None]()
    for line in sorted((line for line in run.lines if line.p), key=lambda line: line.p):
        call = line.e
        if not isinstance(call, Call) or call.purpose != TOOL or not _within(call.node, stage):
            continue
        reply = replies.get(line.p)
        error = "no reply" if reply is None else reply.error or ""
        uses.append(GatheringCall(tool_of(call) or "", call.prompt, error))
        if not error:
            sources.update(dict.fromkeys(_places(call.prompt)))
    return Gathering(
        classified["category"],
        classified["by"],
        classified["why"],
        tuple(uses),
        tuple(sources),
        "" if "think.gathered" in notes else _why_nothing(run, notes.get("think.nothing_gathered")),
    )


def _within(id: str, stage: tuple[str, ...]) -> bool:
    return any(id == root or id.startswith(f"{root}.") for root in stage)


def _places(arguments: str) -> list[str]:
    """Return the URLs and paths among the arguments of a call. Empty if the arguments are not JSON."""
    try:
        given = json.loads(arguments)
    except ValueError:
        return []
    named = given.items() if isinstance(given, dict) else ()
    return [value for name, value in named if name in ("url", "path") and isinstance(value, str)]


def _why_nothing(run: Run, ended: dict[str, str] | None) -> str:
    if ended is not None:
        return f"no tool gave a result (stopped: {ended['stop']})"
    if not run.header.task.get("tools"):
        return "there were no tools"
    return "the gathering was turned off, or ended before it began"
