"""A conversation with tools: what a turn says, what came of its calls, and how both are told.

Rule: a turn is its thought. What was said is read from the thought that tells of it, so that a person may
change it, and calls written as text are as good as a provider's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import msgspec

from tot_lab.core.calls import Message, Reply, ToolCall, halts
from tot_lab.core.reading import json_of
from tot_lab.core.records import Thought
from tot_lab.core.tools import tool_name
from tot_lab.strategies.text_tool_calls import text_tool_calls

MOST_CALLS = 32
"""Tool calls of one turn that are carried out; a reply that asks for more is cut there."""

SHOWN_ARGUMENTS = 1_000
"""Characters of a call's arguments that its thought shows; the record of the call holds them whole."""

_UNSENDABLE = re.compile(r"[^A-Za-z0-9_-]+")
_SHOWN_CALL = re.compile(r"^([\w.-]+)\((\{.*\})\)[ \t]*$", re.MULTILINE)


class Turn(NamedTuple):
    """What a model said in one turn. id: its thought. text: as it was written. said: without the tool calls
    written in it. calls: the tools that it asks for. native: whether by the provider's own tool calls.
    unknown: tools that the text names and that there are not. error: of a call that failed. provider_state:
    the reply's."""

    id: str
    text: str = ""
    said: str = ""
    calls: tuple[ToolCall, ...] = ()
    native: bool = True
    unknown: tuple[str, ...] = ()
    error: str | None = None
    provider_state: str = ""


class Observation(NamedTuple):
    """What came of one tool call. id: its thought. text: as the model is shown it. error: of a call that
    failed or was not carried out, None for a result. whole: the text that `text` may be a part of."""

    id: str
    text: str
    error: str | None
    whole: str


def exchange(turn: Turn, observations: Sequence[Observation]) -> list[Message]:
    """A turn and what came of its calls, as the model is shown them in the next. Calls that were
    written as text are answered in text, since a provider takes a tool's turn only after a native call."""
    if not turn.calls:
        return [Message("assistant", turn.text.strip() or "(an empty reply)")]
    if not turn.native:
        told = [
            f"{call.name} gave:\n{seen.text}" for call, seen in zip(turn.calls, observations, strict=True)
        ]
        return [Message("assistant", turn.text), Message("user", "\n\n".join(told))]
    calls = _sendable(turn.calls)
    return [
        Message("assistant", turn.text, calls, provider_state=turn.provider_state),
        *(
            Message("tool", seen.text, tool_call_id=call.id)
            for call, seen in zip(calls, observations, strict=True)
        ),
    ]


def with_hints(talk: Sequence[Message], hints: Sequence[str]) -> list[Message]:
    """`talk` with `hints` told to the model; two turns of a user in a row some models do not take."""
    if not hints:
        return list(talk)
    hint = "\n".join(hints)
    *before, last = talk
    if last.role == "user":
        return [*before, Message("user", f"{last.content}\n\n{hint}")]
    return [*talk, Message("user", hint)]


def halt_in(observations: Sequence[Observation]) -> str | None:
    """Why no further call will be made, if one of the tools was refused for that."""
    return next((seen.error for seen in observations if seen.error is not None and halts(seen.error)), None)


def shortened(text: str, most: int) -> str:
    """`text`, or its first `most` characters and how many more there are."""
    more = len(text) - most
    return text if more <= 0 else f"{text[:most]}\n… ({more:,} more characters are not shown)"


def recorded_turn(
    thought: Thought, reply: Reply, names: Collection[str], most_calls: int = MOST_CALLS
) -> Turn:
    """The turn that was recorded as `thought` with `reply`. names: the tools that the loop knew. most_calls:
    how many of its calls the loop took."""
    turn = turn_of(thought.id, reply, names)
    return as_recorded(turn._replace(calls=turn.calls[:most_calls]), thought, names)


def same_call(call: ToolCall) -> tuple[str, str]:
    """What two calls share that ask for the same."""
    arguments = arguments_of(call)
    return call.name, call.arguments if arguments is None else json.dumps(arguments, sort_keys=True)


def arguments_of(call: ToolCall) -> dict[str, Any] | None:
    """What a call is to be made with; None when it is no JSON object."""
    try:
        value = json_of(call.arguments or "{}")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def turn_of(id: str, reply: Reply, names: Collection[str]) -> Turn:
    """What a reply says and asks for: natively, or else as JSON text. names: the tools there are."""
    if not reply.tool_calls:
        thought, calls, unknown = text_tool_calls(reply.text, names, id)
        return Turn(id, reply.text, thought, calls, native=False, unknown=unknown)
    as_here = {tool_name(name): name for name in names}
    calls = tuple(
        msgspec.structs.replace(call, name=as_here.get(tool_name(call.name), call.name))
        for call in reply.tool_calls
    )
    return Turn(id, reply.text, reply.text, calls, provider_state=reply.provider_state)


def as_recorded(turn: Turn, thought: Thought, names: Collection[str]) -> Turn:
    """`turn`, or what a person wrote in its place: its calls as JSON, or as thoughts show them."""
    if thought.text == text_of(turn):
        return turn
    known = {tool_name(name) for name in names}

    def as_json(shown: re.Match[str]) -> str:
        call = {"name": shown[1], "arguments": shown[2]}
        return json.dumps(call) if tool_name(shown[1]) in known else shown[0]

    return turn_of(turn.id, Reply(_SHOWN_CALL.sub(as_json, thought.text)), names)


def text_of(turn: Turn) -> str:
    """A turn as its thought shows it."""
    calls = [
        f"{call.name[:80]}({shortened(call.arguments, SHOWN_ARGUMENTS)})"
        for call in turn.calls
        if turn.native
    ]
    return "\n".join(filter(None, [turn.text, *calls])) or "(an empty reply)"


def _sendable(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """`calls` as every provider takes them back: ids all different, names of its alphabet, arguments an
    object."""
    ids = [call.id for call in calls]
    distinct = all(ids) and len(set(ids)) == len(ids)
    return tuple(
        ToolCall(
            call.id if distinct else f"call-{k}",
            _UNSENDABLE.sub("-", call.name)[:64] or "unknown",
            "{}" if arguments_of(call) is None else call.arguments or "{}",
        )
        for k, call in enumerate(calls)
    )
