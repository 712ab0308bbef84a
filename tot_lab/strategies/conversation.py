"""Conversations with tools: turns, observations, and the messages made of them.

A turn is read from its recorded thought, so that a person can edit it. Tool calls written as text are
equivalent to native ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from tot_lab.core.calls import Message, Reply, ToolCall, halts, readable
from tot_lab.core.reading.json_values import find_json, json_of
from tot_lab.core.reading.thinking import split_thinking
from tot_lab.core.records import Thought
from tot_lab.core.tools import tool_name

# Tool calls that a model wrote as JSON text instead of native calls. A value counts as a call only if it has
# the form of one and names an existing tool, so a JSON answer stays an answer. A truncated call is ignored,
# since its arguments are unknown. The remaining text is the model's thought. Used only for replies without
# native calls.


_NAMES = ("name", "tool", "tool_name", "function", "action")
_ARGUMENTS = (
    "arguments",
    "parameters",
    "args",
    "input",
    "action_input",
)  # models mix the pairs: Llama has name/parameters
_BARE = {*_NAMES, *_ARGUMENTS, "type", "id"}  # the only keys that a call without arguments may have
_LEFT_OVER = re.compile(r"</?[a-z]+_calls?>|```[ \t]*+(?:\w*+\s*+```|\w++\s*+\Z)")
_MAX_UNKNOWN = 32  # unknown tool names recorded per reply
# Signs of truncation: the text ends inside a string, or after the beginning of a value.
_STRING = re.compile(r"""(?s:"(?>(?:[^"\\]|\\.)*)("?)|(?<=[\[{,:\s])'(?>(?:[^'\\]|\\.)*)('?))""")
_BEGUN = re.compile(r"[:,]\s*+[-+.\w]*+\Z")


class TextToolCalls(NamedTuple):
    """The tool calls of a reply.

    Attributes:
        thought: The text without the calls.
        calls: The calls in order, with the tools' own names.
        unknown: Names of tools that do not exist. The JSON with such a name may also be part of an answer.
        repaired: Names of the tools whose calls were malformed JSON.
    """

    thought: str
    calls: tuple[ToolCall, ...] = ()
    unknown: tuple[str, ...] = ()
    repaired: tuple[str, ...] = ()


def text_tool_calls(
    text: str, known: Mapping[str, str], at: str, without_arguments: Iterable[str] = ()
) -> TextToolCalls:
    """Read the tool calls in `text`: bare or fenced JSON, one call or a list.

    A call is an object with name/arguments, tool/parameters, tool_name/args or name/input, or OpenAI's
    `function` around one. Accepts any text.

    Args:
        known: The existing tools by every name, see `core.tools.names_of`. `_` and capitals in a call's name
            do not matter.
        at: The thought of the reply. Call ids are derived from it (`text-0-1-0`, …), so they are unique in a
            run.
        without_arguments: The tools that require no arguments. An object with only the name of such a tool is
            a call, too.
    """
    if not any(name in text for name in _NAMES):
        return TextToolCalls(text.strip())
    written, text = text, split_thinking(text)[1]  # a call inside thinking is not a request
    bare = set(map(tool_name, without_arguments))
    found: list[tuple[int, int, list[_Request]]] = []
    for place in find_json(text):
        cut_off = place.repaired and _cut_off(text[place.start : place.end])
        requests = [] if cut_off else _requests_in(place.value, bare, place.repaired)
        if requests and all(place.end <= start or end <= place.start for start, end, _ in found):
            found.append((place.start, place.end, requests))
    calls: list[ToolCall] = []
    unknown: list[str] = []
    mended: list[str] = []
    around, last = [], 0
    for start, end, requests in sorted(found):
        if any(tool_name(request.name) in known for request in requests):
            around.append(text[last:start])
            last = end
        for name, arguments, repaired in requests:
            if tool_name(name) in known:
                id = f"text-{at.replace('.', '-')}-{len(calls)}"
                calls.append(ToolCall(id, known[tool_name(name)], arguments))
                mended += [known[tool_name(name)]] * repaired
            else:
                unknown.append(name)
    others = tuple(dict.fromkeys(unknown))[:_MAX_UNKNOWN]
    if not calls:
        return TextToolCalls(written.strip(), (), others)
    thought = _LEFT_OVER.sub("", "".join([*around, text[last:]]))
    return TextToolCalls(thought.strip(), tuple(calls), others, tuple(mended))


def _cut_off(text: str) -> bool:
    """Whether malformed JSON is cut off inside a value, so that more than closing brackets is missing."""
    return bool(_BEGUN.search(text)) or any("" in match.groups() for match in _STRING.finditer(text))


def read_arguments(text: str) -> dict[str, Any] | None:
    """Read the arguments of a call: a JSON object, also malformed, with words around it, or encoded as a
    string once or twice. An empty text and `null` give `{}`. `None` if no object could be read, if it was cut
    off, or if there are several different ones.
    """
    if not text.strip():
        return {}
    for _ in range(_MAX_ENCODINGS):
        places = list(islice(find_json(text), _MAX_VALUES))
        if not places or not isinstance(places[0].value, str):
            break
        text = places[0].value
    if not places:
        return None
    first, *others = places
    if first.value is None:
        return {}
    if not isinstance(first.value, dict):
        return None
    if first.repaired and _cut_off(text[first.start : first.end]):
        return None
    apart = [other for other in others if other.start >= first.end or other.end <= first.start]
    return first.value if all(other.value == first.value for other in apart) else None


_MAX_ENCODINGS, _MAX_VALUES = 3, 5


class _Request(NamedTuple):
    name: str
    arguments: str
    repaired: bool


def _requests_in(value: Any, bare: Collection[str], repaired: bool) -> list[_Request]:
    """The calls in a JSON value. Empty unless all items of a list are calls."""
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
        value = value["tool_calls"]
    requests = [_call(item, bare, repaired) for item in (value if isinstance(value, list) else [value])]
    return [call for call in requests if call is not None] if None not in requests else []


def _call(value: Any, bare: Collection[str], repaired: bool) -> _Request | None:
    if not isinstance(value, dict):
        return None
    if isinstance(value.get("function"), dict):
        value = value["function"]
    name = next((value[key] for key in _NAMES if isinstance(value.get(key), str)), "")
    arguments = next((value[key] for key in _ARGUMENTS if key in value), None)
    if isinstance(arguments, str):  # JSON inside a string, as in OpenAI's format
        repaired |= not _is_json(arguments)
        arguments = read_arguments(arguments)
    elif arguments is None and tool_name(name) in bare and value.keys() <= _BARE:
        arguments = {}
    if isinstance(arguments, dict) and isinstance(arguments.get("properties"), dict):
        return None  # the definition of a tool
    written = arguments_as_json(arguments)
    return None if written is None or not tool_name(name) else _Request(name, written, repaired)


def _is_json(text: str) -> bool:
    try:
        json_of(text)
    except ValueError:
        return False
    return True


def arguments_as_json(arguments: Any) -> str | None:
    """Return the arguments of a call as JSON. `None` if they are not an object, or contain a number that JSON
    cannot represent.
    """
    if not isinstance(arguments, dict):
        return None
    try:
        return readable(json.dumps(arguments, ensure_ascii=False, allow_nan=False))
    except ValueError:
        return None


# Turns.


MAX_CALLS = 32
"""The most tool calls of one turn. Further calls of a reply are dropped."""

SHOWN_ARGUMENTS = 1_000
"""Characters of a call's arguments that its thought shows. The record of the call has all of them."""

_UNSENDABLE = re.compile(r"[^A-Za-z0-9_-]+")
_SHOWN_CALL = re.compile(r"^([\w.-]+)\((\{.*\})\)[ \t]*$", re.MULTILINE)


class Turn(NamedTuple):
    """One turn of a model.

    Attributes:
        id: The id of its thought. A turn without a thought has the id of the thought that the call was made
            for.
        text: The text of the reply.
        words: The text without the tool calls written in it.
        calls: The requested tool calls.
        native: Whether they are the provider's native tool calls.
        unknown: Names of nonexistent tools in calls that are written in the text.
        repaired: Names of the tools whose calls had malformed arguments.
        error: Why the model call failed. `None` if it succeeded.
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
        id: The id of its thought. An observation without a thought has that of the thought that the call was
            made for.
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
    """Append `hints` for the model. If the last message is a user message, the hints are added to it, since
    some models reject two user messages in a row.
    """
    if not hints:
        return list(talk)
    hint = "\n".join(hints)
    *before, last = talk
    if last.role == "user":
        return [*before, Message("user", f"{last.content}\n\n{hint}")]
    return [*talk, Message("user", hint)]


def halt_in(observations: Sequence[Observation]) -> str | None:
    """The error of the first observation whose call a budget or a cancellation refused, as it would refuse
    all further calls. `None` if there is no such observation.
    """
    return next((seen.error for seen in observations if seen.error is not None and halts(seen.error)), None)


def shortened(text: str, most: int) -> str:
    """The first `most` characters of `text`, followed by the number of characters that were cut, if any."""
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
        max_calls: The most calls of one turn that the loop carried out.
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

    Malformed arguments of native calls are repaired. Arguments that cannot be repaired stay as they are.
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
    """`turn`, or the turn that a person wrote in its place. A person may write calls as JSON, or as
    `name({…})`, the form in which thoughts show them.
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
