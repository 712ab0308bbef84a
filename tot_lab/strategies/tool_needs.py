"""Classification of the tools that a task needs, in one call before any of them is called.

The model names the required tools, the minimum number of calls for each (`minCalls`), and tools that are
merely relevant. Unknown tools are recorded and dropped. An unreadable reply is recorded as unreadable, and
the run goes on without requirements.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple

from tot_lab.core.calls import halts
from tot_lab.core.protocol import Procedure, ask
from tot_lab.core.reading.json_values import find_json
from tot_lab.core.reading.thinking import split_thinking
from tot_lab.core.reading.values import finite
from tot_lab.core.records import Note, call_failed
from tot_lab.core.task import Task
from tot_lab.core.tools import tool_name
from tot_lab.strategies.acting import MORE, Acting, AvailableTools

MAX_REQUIRED = 20
"""The most calls of one tool that a classifier can require."""

_CANDIDATES = 5  # JSON values of one reply that are tried
_LONGEST = 4_000  # characters of the longest reply without JSON that is read
_REQUIRED = re.compile(r"required|must", re.IGNORECASE)
_MINIMUM = re.compile(r"\A(?:min|at.?least|least)", re.IGNORECASE)
_CALLS = re.compile(r"call|count|times|quantity|number|amount|uses|\An\Z", re.IGNORECASE)
_SEPARATOR = re.compile(r"[,;\n]")
_CALLS_STATED = r"(?:at least|min(?:imum)?|[×x*≥>=~\s])*+(\d++)(?:[×x+]|times?|calls?|\s)*+"
_NUMBER = re.compile(_CALLS_STATED, re.IGNORECASE)
_QUANTITY = re.compile(
    r"(?:required(?: tools)?\s*+:)?[\s*•`\"'-]*+(?:(\d++)\s*+[×x*]\s*+)?([A-Za-z][\w-]*+)[\s`\"']*+"
    rf"(?:\*\*\s*+)?(?:[×x*:=(]{_CALLS_STATED}\)?)?[\s`\"'.]*+",
    re.IGNORECASE,
)


class ToolNeeds(NamedTuple):
    """The tools that a task needs, according to a model.

    Attributes:
        required: Minimum number of calls by tool name.
        relevant: Tools that may help.
        refused: The error of the call if a budget or a cancellation refused it, else `None`.
        unknown: Required tools that do not exist.
        repaired: Whether the JSON of the reply was malformed.
    """

    required: Mapping[str, int] = {}
    relevant: tuple[str, ...] = ()
    refused: str | None = None
    unknown: tuple[str, ...] = ()
    repaired: bool = False


def classify_tools(strategy: Acting, task: Task, available: AvailableTools, at: str) -> Procedure[ToolNeeds]:
    """Ask which of the tools `task` needs. Makes 1 call. Without a readable reply, no tool is needed."""
    prompt = (
        f"A task for somebody who has tools:\n<task>\n{task.task_prompt(False)}\n</task>\n\n"
        f"The tools:\n{available.listed()}\n\n"
        "Which of them must be called to do the task, and how often each at least? Count one call for each "
        "thing that has to be looked up, worked out or delivered. Which others may help? Do not do the task, "
        "and call nothing. Reply with JSON and nothing else, "
        'as {"required": {"<tool>": <calls>}, "relevant": ["<tool>"]}.'
    )
    reply = yield from ask(strategy.call(at, "route", prompt))
    if reply.error is not None:
        yield call_failed(at, "route", reply.error)
        return ToolNeeds(refused=reply.error if halts(reply.error) else None)
    needs = read_needs(reply.text, available)
    if needs is None:
        yield Note("parse.unreadable", at, {"kind": "route", "draw": 0})
        return ToolNeeds()
    if needs.repaired:
        yield Note(
            "json.repaired", at, {"kind": "route", "draw": 0, "cut_off": reply.finish_reason == "length"}
        )
    data = {"required": dict(needs.required), "relevant": list(needs.relevant)}
    yield Note("tools.classified", at, data)
    for name in needs.unknown:
        why = available.refusal(name) or ""
        yield Note(f"{strategy.notes}.unknown_tool", at, {"tool": name[:80], "why": why})
    return needs


def read_needs(text: str, available: AvailableTools) -> ToolNeeds | None:
    """Read the reply of a classifier: how often each tool must be called, and which tools are relevant.

    Accepted is JSON with the required tools under the key `required` (or `requiredTools`, `required_calls`),
    a list of tools with a flag `required`, or an object whose keys are tools. A tool is an item of a list or
    a key, in any spelling of its name. Its number of calls is a number (`4`, `"4"`, `"at least 4"`,
    `web-search×4`), also under `minCalls` or a similar key (`min_calls`, `minimum`, `calls`, `count`). A tool
    without a number is required once. A list of quantities without JSON (`web-search×4, fetch`) is read if it
    names known tools only. Returns `None` for anything else, and if one of the numbers cannot be read.
    """
    usable = {name for name, tool in available.tools.items() if tool is not MORE}
    known = {name: own for name, own in available.known.items() if own in usable}
    answer = split_thinking(text)[1]
    found = [one for one in islice(find_json(answer), _CANDIDATES) if isinstance(one.value, dict | list)]
    for one in found:
        counts = _required(one.value, known)
        if counts is not None:
            relevant = one.value.get("relevant") if isinstance(one.value, dict) else None
            items = relevant if isinstance(relevant, list) else []
            names = (_tool_in(item) if isinstance(item, dict) else item for item in items)
            others = [tool_name(name) for name in names if isinstance(name, str)]
            return _needs(counts, others, known, one.repaired)
    listed = None if found or len(answer) > _LONGEST else _counts(answer)
    return _needs(listed, [], known) if listed and known.keys() >= listed.keys() else None


def _needs(
    counts: Mapping[str, int], relevant: Iterable[str], known: Mapping[str, str], repaired: bool = False
) -> ToolNeeds:
    required = {
        known[name]: min(count, MAX_REQUIRED) for name, count in counts.items() if name in known and count
    }
    others = tuple(dict.fromkeys(known[name] for name in relevant if name in known))
    unknown = tuple(name for name, count in counts.items() if count and name not in known)
    return ToolNeeds(required, others, unknown=unknown, repaired=repaired)


def _required(value: Any, known: Mapping[str, str]) -> dict[str, int] | None:
    """The required calls by normalised tool name that a JSON value states. `None` if it states none."""
    if not isinstance(value, dict) or _tool_in(value) is not None:
        return _counts(value)
    parts = [part for key, part in value.items() if _REQUIRED.match(key) or _MINIMUM.search(key)]
    if not parts:
        tools = {tool_name(key): item for key, item in value.items() if key != "relevant"}
        if not tools.keys() <= known.keys():
            inner = [item for name, item in tools.items() if name == "tools" or isinstance(item, dict)]
            return _required(inner[0], known) if len(inner) == 1 else None
        parts = [tools] if tools else []
    read = [_counts(part.get("tools", part) if isinstance(part, dict) else part) for part in parts]
    if not read or None in read:
        return None
    counts: dict[str, int] = {}
    for name, count in ((name, count) for one in read if one for name, count in one.items()):
        counts[name] = max(count, counts.get(name, 0))
    return counts


def _counts(value: Any) -> dict[str, int] | None:
    """The calls by normalised tool name in an item, a list of items, or an object of tools. `None` if one of
    them cannot be read."""
    if isinstance(value, str):
        value = [item for item in _SEPARATOR.split(value) if item.strip()]
    elif isinstance(value, dict):
        value = [value]
    elif not isinstance(value, list):
        return None
    pairs = [pair for item in value for pair in _item(item)]
    counts: dict[str, int] = {}
    for name, count in pairs:
        if count is None:
            return None
        counts[tool_name(name)] = counts.get(tool_name(name), 0) + count
    return counts


def _item(item: Any) -> list[tuple[str, int | None]]:
    """The tools in one item of a list, each with its number of calls. `None` for an unreadable number."""
    if isinstance(item, dict):
        name = _tool_in(item)
        if name is None:
            return [(key, _count(count)) for key, count in item.items()]
        return [(name, 0 if item.get("required") is False else _count(item))]
    match = _QUANTITY.fullmatch(item) if isinstance(item, str) else None
    return [("", None)] if match is None else [(match[2], _count(match[1] or match[3]))]


def _tool_in(item: Mapping[str, Any]) -> str | None:
    """The name of the tool that an object describes. `None` if it describes none."""
    named = (item.get(key) for key in ("name", "tool", "tool_name", "toolName", "function"))
    return next((name for name in named if isinstance(name, str)), None)


def _count(count: Any) -> int | None:
    """A number of calls: 1 if none is stated, `None` if it cannot be read."""
    if isinstance(count, dict):
        items = [(key, value) for key, value in count.items() if "max" not in key.lower()]
        stated = [[value for key, value in items if form.search(key)] for form in (_MINIMUM, _CALLS)]
        values = next(filter(None, stated), [None])
        return _count(values[0]) if len(values) == 1 else None
    if isinstance(count, str):
        match = _NUMBER.fullmatch(count)
        return None if match is None else int(match[1][:6])
    if count is None or isinstance(count, bool):
        return 0 if count is False else 1
    number = finite(count)
    return None if number is None or number != int(number) else max(int(number), 0)
