"""Thoughts of a run that contain text from outside: results of tools with effects, such as access to files or
networks, and of tools with unknown effects.

Such text may have been written by anyone, and may contain prompt injections. Views mark these thoughts.
"""

from __future__ import annotations

from tot_lab.core.calls import Call, Reply
from tot_lab.core.records import Note, Position, Thought
from tot_lab.core.tools import MODEL, TOOL, tool_of
from tot_lab.record.run import Run
from tot_lab.strategies.acting import MORE


def from_outside(run: Run) -> dict[str, str]:
    """Map the id of each thought from outside to the name of the tool whose result it contains.

    Thoughts from outside are results of tools with an effect other than `model`, of tools with undeclared or
    unknown effects, and the parts of long results that the tool `more` shows later.
    """
    inside = {name for name, settings in run.header.tools.items() if _is_inside(settings.get("effects"))}
    found: dict[str, str] = {}
    made: dict[Position, Call] = {}  # the last call of each branch
    answered: set[Position] = set()
    more: set[Position] = set()
    for line in sorted((line for line in run.lines if line.p), key=lambda line: line.p):
        branch, event = line.p[:-1], line.e
        if isinstance(event, Call):
            made[branch] = event
            answered.discard(branch)
        elif isinstance(event, Reply):
            answered.add(branch)
        elif isinstance(event, Note) and event.name.endswith(f".{MORE.name}") and found:
            more.add(branch)
        elif isinstance(event, Thought) and branch in more:
            more.remove(branch)
            found[event.id] = MORE.name
        elif isinstance(event, Thought) and branch in answered:
            call = made.pop(branch)
            answered.discard(branch)
            name = tool_of(call) or ""
            if call.purpose == TOOL and event.parent == call.node and name not in inside:
                found[event.id] = name
    return found


def _is_inside(effects: list[str] | None) -> bool:
    return effects is not None and {*effects} <= {MODEL}
