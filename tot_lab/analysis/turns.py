"""The steps of an agent: what the model thought, which tools it called, and which results it was shown.

Computed from the records. A turn is a call of purpose `act` or `analysis` and the thought that was recorded
with its reply. Its actions are read from that thought as the loop reads them, and the outcome of
action k is the thought's child k. Every other call of a model is a step too, so that the steps of a run have
all of its calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from tot_lab.core.calls import Call, Reply, ToolCall
from tot_lab.core.records import Line, Note, Position, Thought
from tot_lab.core.tools import TOOL, asks_no_model, tool_name, tool_of
from tot_lab.record.run import Run, replies_of
from tot_lab.strategies.conversation import MAX_CALLS, Turn, recorded_turn
from tot_lab.strategies.react import FINAL

TURNS = ("act", "analysis")
"""The purposes of calls that are turns."""


class Action(NamedTuple):
    """An action, or a call of a model without one. The fields turn, node, purpose, thought, action,
    arguments, observation and error are those of `tot_lab.analysis.frames.steps_df`.

    Attributes:
        call: Position of the call. `None` from the second action of a turn on.
        tool: Position of the tool call. `None` if none was made.
    """

    turn: int | None
    node: str | None
    purpose: str
    thought: str | None = None
    action: str | None = None
    arguments: str | None = None
    observation: str | None = None
    error: str | None = None
    call: Position | None = None
    tool: Position | None = None


def steps_of(run: Run) -> Iterator[Action]:
    """Return the steps of `run` in program order."""
    lines = sorted((line for line in run.lines if line.p), key=lambda line: line.p)
    replies = replies_of(lines)
    called: dict[str, tuple[Position, Call]] = {}  # by the thought that holds its outcome
    for line in lines:
        if isinstance(line.e, Call) and line.e.purpose == TOOL:
            # The calls of a turn are branches of one `gather`: their places are (…, step, branch, step).
            called[".".join([line.e.node, *map(str, line.p[-2:-1])])] = line.p, line.e
    number, of_turns = 0, set[Position]()
    for place, line in enumerate(lines):
        call, reply = line.e, replies.get(line.p)
        if not isinstance(call, Call):
            continue
        if call.purpose == TOOL and line.p not in of_turns:
            result = reply.text if reply and reply.error is None else None
            error = reply.error if reply else None
            yield Action(None, call.node, TOOL, None, tool_of(call), call.prompt, result, error, tool=line.p)
        elif call.purpose in TURNS:
            number += 1
            thought, max_calls = _thought_with(lines, place, call)
            if reply is None or thought is None:
                yield Action(number, None, call.purpose, error=reply.error if reply else None, call=line.p)
                continue
            turn = recorded_turn(thought, reply, _names(run, thought, call), call.tools, max_calls)
            step = Action(number, turn.id, call.purpose, turn.words, call=line.p)
            if not turn.calls:
                yield step
            for request, shown in _actions(run, turn):
                tool, made = called.get(shown or "", (None, None))
                if tool is not None and made is not None and tool_of(made) == request.name:
                    of_turns.add(tool)
                else:
                    tool = None
                observation, error = _outcome_of(run, request, shown)
                yield step._replace(
                    action=request.name,
                    arguments=request.arguments,
                    observation=observation,
                    error=error,
                    tool=tool,
                )
                step = step._replace(call=None)
        elif not asks_no_model(call):
            yield Action(None, call.node, call.purpose, error=reply.error if reply else None, call=line.p)


def _thought_with(lines: Sequence[Line], place: int, call: Call) -> tuple[Thought | None, int]:
    """Return the thought that was recorded with the reply to the call at `place`, and how many of its actions
    were carried out."""
    most = MAX_CALLS
    for line in islice(lines, place + 1, None):
        if isinstance(line.e, Note) and line.e.name.endswith(".too_many_calls"):
            most = line.e.data["carried_out"]
        if not isinstance(line.e, Reply | Note) or line.p[:-1] != lines[place].p[:-1]:
            thought = line.e if isinstance(line.e, Thought) and line.e.parent == call.node else None
            return thought, most
    return None, most


def _names(run: Run, thought: Thought, call: Call) -> dict[str, str]:
    """Return the tools that the loop knew, by every name: those offered, and those in the prompt."""
    labels = (run.tree[id].text.partition(" ")[0] for id in run.tree[thought.id].children)
    tools = run.header.task.get("tools", ())
    aliases = {tool_name(alias): tool["name"] for tool in tools for alias in tool.get("aliases", ())}
    own = (*(tool["name"] for tool in call.tools), *labels)
    return {**aliases, **{tool_name(name): name for name in own}}


def _actions(run: Run, turn: Turn) -> Iterator[tuple[ToolCall, str | None]]:
    """Yield the actions of a turn, each with the label of the thought that holds its outcome. An accepted
    answer has no such thought and is omitted."""
    first = next((k for k, call in enumerate(turn.calls) if call.name == FINAL.name), None)
    taken = first is not None and not _text(run, f"{turn.id}.{first}").startswith(f"{FINAL.name} ")
    counted = 0
    for call in turn.calls:
        if taken and call.name == FINAL.name:
            yield call, None
        else:
            yield call, f"{turn.id}.{counted}"
            counted += 1


def _outcome_of(run: Run, call: ToolCall, result: str | None) -> tuple[str | None, str | None]:
    """Return the result of a call as shown to the model, and the error if there is none."""
    if result is None or result not in run.tree:
        return None, None
    text = _text(run, result).removeprefix(f"{call.name[:80]} ")
    if text.startswith("failed: "):
        return None, text.removeprefix("failed: ")
    return text.removeprefix("→ "), None


def _text(run: Run, id: str) -> str:
    return run.tree[id].text if id in run.tree else ""
