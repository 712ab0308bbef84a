"""Classification of the tools that a task needs, in one call before any of them is called.

The model names the required tools, the minimum number of calls for each, and tools that are merely relevant
(Reactive Agents, "tool classification"). Unknown tools are dropped, and an unreadable reply requires nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tot_lab.core.calls import halts
from tot_lab.core.reading.json_values import read_json
from tot_lab.core.records import Note, call_failed
from tot_lab.core.task import Task
from tot_lab.core.thinking import Thinking, ask
from tot_lab.core.tools import read_quantities, tool_name
from tot_lab.strategies.acting import MORE, Acting, AvailableTools

MAX_REQUIRED = 20
"""The most calls of one tool that a classifier can require."""


class ToolNeeds(NamedTuple):
    """The tools that a task needs, according to a model.

    Attributes:
        required: Minimum number of calls by tool name.
        relevant: Tools that may help.
        refused: The refusal after which no further call will be made, or `None`.
    """

    required: Mapping[str, int] = {}
    relevant: tuple[str, ...] = ()
    refused: str | None = None


def classify_tools(strategy: Acting, task: Task, available: AvailableTools, at: str) -> Thinking[ToolNeeds]:
    """Ask which of the tools `task` needs. Makes 1 call."""
    prompt = (
        f"A task for somebody who has tools:\n<task>\n{task.answer_prompt(False)}\n</task>\n\n"
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
    data = {"required": dict(needs.required), "relevant": list(needs.relevant)}
    yield Note("tools.classified", at, data)
    return needs


def read_needs(text: str, available: AvailableTools) -> ToolNeeds | None:
    """Read the reply of a classifier. `None` if it cannot be read."""
    value = read_json(text)
    if not isinstance(value, dict):
        return None
    required = value.get("required", {})
    try:
        counts = read_quantities(required) if isinstance(required, list) else required
    except ValueError:
        return None
    if not isinstance(counts, dict):
        return None
    known = {tool_name(name): name for name, tool in available.tools.items() if tool is not MORE}
    wanted = {known.get(tool_name(str(name))): _count(count) for name, count in counts.items()}
    relevant = value.get("relevant")
    others = [known.get(tool_name(str(name))) for name in relevant] if isinstance(relevant, list) else []
    return ToolNeeds(
        {name: min(count, MAX_REQUIRED) for name, count in wanted.items() if name is not None and count > 0},
        tuple(dict.fromkeys(name for name in others if name is not None)),
    )


def _count(count: Any) -> int:
    """A number of calls. 0 for anything else."""
    if isinstance(count, str) and count.isascii() and count.isdecimal():
        return int(count[:6])
    return count if isinstance(count, int) and not isinstance(count, bool) else 0
