"""Tool calls that a model wrote as JSON text instead of native calls.

A value counts as a call only if it has the form of one and names an existing tool, so a JSON answer stays an
answer. A truncated call is ignored, since its arguments are unknown. The remaining text is the model's
thought. Used only for replies without native calls (Reactive Agents, "text tool calls").
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple

from tot_lab.core.calls import ToolCall, readable
from tot_lab.core.reading.json_values import find_json, json_of
from tot_lab.core.reading.thinking import split_thinking
from tot_lab.core.tools import tool_name

_NAMES = ("name", "tool", "tool_name", "function", "action")
_ARGUMENTS = (
    "arguments",
    "parameters",
    "args",
    "input",
    "action_input",
)  # models mix the pairs: Llama has name/parameters
_BARE = {*_NAMES, *_ARGUMENTS, "type", "id"}  # fields of a call without arguments
_LEFT_OVER = re.compile(r"</?[a-z]+_calls?>|```[ \t]*+(?:\w*+\s*+```|\w++\s*+\Z)")
_MAX_UNKNOWN = 32  # names in one reply
# Signs of truncation: the text ends inside a string, or after the beginning of a value.
_STRING = re.compile(r"""(?s:"(?>(?:[^"\\]|\\.)*)("?)|(?<=[\[{,:\s])'(?>(?:[^'\\]|\\.)*)('?))""")
_BEGUN = re.compile(r"[:,]\s*+[-+.\w]*+\Z")


class TextToolCalls(NamedTuple):
    """The tool calls of a reply.

    Attributes:
        thought: The text without the calls.
        calls: The calls in order, with the tools' own names.
        unknown: Names of tools that do not exist. These may also be part of an answer.
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
        without_arguments: The tools that require no arguments. An object that holds nothing but the name of
            one is a call, too.
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
    """Whether malformed JSON lacks more than closing brackets."""
    return bool(_BEGUN.search(text)) or any("" in match.groups() for match in _STRING.finditer(text))


def read_arguments(text: str) -> dict[str, Any] | None:
    """Read the arguments of a call: a JSON object, also malformed, with words around it, or encoded once more
    as a string. `None` if there is none, if it was cut off, or if there are several.
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
    """Return the arguments of a call as JSON. `None` if they are not an object, or hold a number that JSON
    cannot represent.
    """
    if not isinstance(arguments, dict):
        return None
    try:
        return readable(json.dumps(arguments, ensure_ascii=False, allow_nan=False))
    except ValueError:
        return None
