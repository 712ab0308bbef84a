"""Conversations with tools: turns, observations, and the messages made of them.

A turn is read from its recorded thought, so that a person can edit it. Tool calls written as text are
equivalent to native ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tot_lab.core.calls import Message, Reply, ToolCall, halts
from tot_lab.core.reading.json_values import json_of
from tot_lab.core.records import Thought
from tot_lab.core.tools import tool_name
from tot_lab.strategies.text_tool_calls import arguments_as_json, read_arguments, text_tool_calls

MAX_CALLS = 32
"""The most tool calls of one turn. Further calls of a reply are dropped."""

SHOWN_ARGUMENTS = 1_000
"""Characters of a call's arguments that its thought shows. The record of the call has all of them."""

_UNSENDABLE = re.compile(r"[^A-Za-z0-9_-]+")
_SHOWN_CALL = re.compile(r"^([\w.-]+)\((\{.*\})\)[ \t]*$", re.MULTILINE)


class Turn(NamedTuple):
    """One turn of a model.

    Attributes:
        id: Its thought.
        text: The text as written.
        words: The text without tool calls written in it.
        calls: The requested tool calls.
        native: Whether they are the provider's native tool calls.
        unknown: Names in the text of tools that do not exist.
        repaired: Names of the tools whose calls had malformed arguments.
        error: The error of a failed call.
        provider_state: `Reply.provider_state`.
    """

    id: str
    text: str = ""
    words: str = ""
    calls: tuple[ToolCall, ...] = ()
    native: bool = True
    unknown: tuple[str, ...] = ()
    repaired: tuple[str, ...] = ()
    error: str | None = None
    provider_state: str = ""


class Observation(NamedTuple):
    """The outcome of one tool call.

    Attributes:
        id: Its thought.
        text: The text that the model is shown.
        error: Why the call failed or was not carried out. `None` for a result.
        whole: The full text, of which `text` may be a part.
    """

    id: str
    text: str
    error: str | None
    whole: str


def exchange(turn: Turn, observations: Sequence[Observation]) -> list[Message]:
    """The messages for a turn and its observations.

    Calls written as text are answered in text, since providers accept tool messages only after native calls.
    """
    if not turn.calls:
        return [Message("assistant", turn.text.strip() or "(an empty reply)")]
    if not turn.native:
        parts = [
            f"{call.name} gave:\n{seen.text}" for call, seen in zip(turn.calls, observations, strict=True)
        ]
        return [Message("assistant", turn.text), Message("user", "\n\n".join(parts))]
    calls = _sendable(turn.calls)
    return [
        Message("assistant", turn.text, calls, provider_state=turn.provider_state),
        *(
            Message("tool", seen.text, tool_call_id=call.id)
            for call, seen in zip(calls, observations, strict=True)
        ),
    ]


def with_hints(talk: Sequence[Message], hints: Sequence[str]) -> list[Message]:
    """Append `hints` for the model. They extend a last user message, since some models reject two in a
    row.
    """
    if not hints:
        return list(talk)
    hint = "\n".join(hints)
    *before, last = talk
    if last.role == "user":
        return [*before, Message("user", f"{last.content}\n\n{hint}")]
    return [*talk, Message("user", hint)]


def halt_in(observations: Sequence[Observation]) -> str | None:
    """The first refusal among `observations` after which no further call will be made. `None` if there is
    none.
    """
    return next((seen.error for seen in observations if seen.error is not None and halts(seen.error)), None)


def shortened(text: str, most: int) -> str:
    """The first `most` characters of `text`, and the number of further ones."""
    more = len(text) - most
    return text if more <= 0 else f"{text[:most]}\n… ({more:,} more characters are not shown)"


def recorded_turn(
    thought: Thought,
    reply: Reply,
    known: Mapping[str, str],
    offered: Sequence[Mapping[str, Any]] = (),
    max_calls: int = MAX_CALLS,
) -> Turn:
    """Reconstruct the turn that was recorded as `thought` with `reply`.

    Args:
        known: The tools that the loop knew, by every name; see `core.tools.names_of`.
        offered: The tools of the call; see `Call.tools`.
        max_calls: The most calls that the loop carried out.
    """
    turn = turn_of(thought.id, reply, known, offered)
    return as_recorded(turn._replace(calls=turn.calls[:max_calls]), thought, known, offered)


def same_call(call: ToolCall) -> tuple[str, str]:
    """A key that is equal for calls with the same tool and arguments."""
    arguments = arguments_of(call)
    return call.name, call.arguments if arguments is None else json.dumps(arguments, sort_keys=True)


def arguments_of(call: ToolCall) -> dict[str, Any] | None:
    """Parse the arguments of a call. `None` if they are not a JSON object."""
    try:
        value = json_of(call.arguments or "{}")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def turn_of(
    id: str, reply: Reply, known: Mapping[str, str], offered: Sequence[Mapping[str, Any]] = ()
) -> Turn:
    """Read a reply: its text, and its tool calls, native or written as JSON text.

    Malformed arguments of native calls are repaired. What cannot be repaired stays as it is.
    """
    if not reply.tool_calls:
        bare = [tool["name"] for tool in offered if not tool["parameters"].get("required")]
        written = text_tool_calls(reply.text, known, id, bare)
        return Turn(
            id,
            reply.text,
            written.thought,
            written.calls,
            native=False,
            unknown=written.unknown,
            repaired=written.repaired,
        )
    read = list[ToolCall]()
    mended = list[str]()
    for call in reply.tool_calls:
        name, arguments = known.get(tool_name(call.name), call.name), call.arguments
        if arguments_of(call) is None and (found := arguments_as_json(read_arguments(arguments))) is not None:
            arguments = found
            mended.append(name)
        read.append(ToolCall(call.id, name, arguments))
    return Turn(
        id,
        reply.text,
        reply.text,
        tuple(read),
        repaired=tuple(mended),
        provider_state=reply.provider_state,
    )


def as_recorded(
    turn: Turn, thought: Thought, known: Mapping[str, str], offered: Sequence[Mapping[str, Any]] = ()
) -> Turn:
    """`turn`, or the turn that a person wrote in its place, with calls as JSON or in the form that thoughts
    show.
    """
    if thought.text == text_of(turn):
        return turn

    def as_json(shown: re.Match[str]) -> str:
        call = {"name": shown[1], "arguments": shown[2]}
        return json.dumps(call) if tool_name(shown[1]) in known else shown[0]

    return turn_of(turn.id, Reply(_SHOWN_CALL.sub(as_json, thought.text)), known, offered)


def text_of(turn: Turn) -> str:
    """The text of a turn's thought."""
    calls = [
        f"{call.name[:80]}({shortened(call.arguments, SHOWN_ARGUMENTS)})"
        for call in turn.calls
        if turn.native
    ]
    return "\n".join(filter(None, [turn.text, *calls])) or "(an empty reply)"


def _sendable(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """Normalise `calls` so that every provider accepts them: distinct ids, allowed characters in names,
    object arguments.
    """
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
