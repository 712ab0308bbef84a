"""Readers of JSON in model output.

Malformed JSON is repaired: trailing commas, wrong quotes, comments, a missing end. A repaired value is always
marked as such, and the work is bounded. The library (`json_repair`) looks ahead from each quote, so
repetitive model output could block a lab for minutes; here it stops after a fixed number of character
accesses.
"""

from __future__ import annotations

import json
import re
from bisect import bisect
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, SupportsIndex

# Repair.

# A "look" is one character access of the library.
_MAX_CHARACTERS = 200_000  # longer texts are not repaired
_LOOKS = 5  # allowed per character: the repair of ordinary damage needs three or four
_LOOKS_AT_LEAST = 20_000
_MAX_LOOKS = 70_000  # per text: 20,000 characters of ordinary damage; a look takes 0.3 to 4 µs
_LOOKS_TO_BEGIN = 200  # overhead of a repair before its first look
# The ambiguous end of a truncated text: a key without a value, or with an incomplete number, true, false or
# null; likewise an incomplete item of a list.
_BEGUN = r"(?:[-+.\d][-+.\deE]*+|[tT](?:ru?)?|[fF](?:a(?:ls?)?)?|n(?:ul?)?|N(?:on?)?)\Z"
_LAST = re.compile(rf"""["'][^"'\\]*+["']\s*+:\s*+(?:{_BEGUN}|\Z)|(?<=[\[,:\s]){_BEGUN}""")


_APOSTROPHE = re.compile(r"(?<=[^\W\d_])'(?=[^\W\d_])")  # the library mistakes it for a closing quote


class GaveUp(Exception):
    """Raised if a repair exceeds its work limit."""


class Work:
    """The work limit for the repairs of one text."""

    def __init__(self, text: str) -> None:
        looks = min(_LOOKS_AT_LEAST + _LOOKS * len(text), _MAX_LOOKS)
        self.left = looks if len(text) <= _MAX_CHARACTERS else 0

    def spend(self, looks: int) -> None:
        """Deduct `looks`. Raises `GaveUp` if the limit is exceeded."""
        self.left -= looks
        if self.left < 0:
            raise GaveUp


class _Watched(str):
    """A string that counts accesses to its characters."""

    __slots__ = ("work",)
    work: Work

    @classmethod
    def of(cls, text: str, work: Work) -> _Watched:
        watched = cls(text)
        watched.work = work
        return watched

    def __getitem__(self, key: SupportsIndex | slice[Any, Any, Any]) -> str:
        part = str.__getitem__(self, key)
        if len(part) == 1:  # nearly every access; inlining `spend` halves the cost
            self.work.left -= 1
            if self.work.left < 0:
                raise GaveUp
            return part
        self.work.spend(1 + len(part) // 16)
        # The library rebuilds the text from its head, so the head must keep counting.
        head = isinstance(key, slice) and key.start is None
        return _Watched.of(part, self.work) if head else part

    def __add__(self, other: str) -> str:
        return _Watched.of(str.__add__(self, other), self.work)


def repaired(text: str, work: Work) -> Any:
    """Repair `text`, which begins with the bracket of an object or a list.

    Returns:
        The value, or `None` if it cannot be repaired within `work`.
    """
    import json_repair  # noqa: PLC0415 - it takes 30 ms to load

    text = text.rstrip()
    if not text.endswith(("}", "]")):
        text = _LAST.sub("", text)
    text = _APOSTROPHE.sub(r"\'", text)
    try:
        work.spend(_LOOKS_TO_BEGIN)
        value = json_repair.loads(_Watched.of(text, work), skip_json_loads=True)
        if text.startswith("{") and isinstance(value, list):  # several objects: take the first
            value = next((item for item in value if isinstance(item, dict)), None)
        if not value or not isinstance(value, dict | list):
            return None
        # A round trip through JSON ensures finite numbers and plain strings.
        return json.loads(json.dumps(value, allow_nan=False))
    except (GaveUp, ValueError, RecursionError):
        return None


_FENCE = re.compile(r"```[ \t]*+(?:json)?+[ \t]*+\n(.*?)```", re.DOTALL | re.IGNORECASE)
_STRING_OR_BRACKET = re.compile(r'"(?>(?:[^"\\]|\\.)*)"?|[][{}]', re.DOTALL)
_MAX_PLACES = 1_000  # candidates for JSON in one text
_DEEPEST = 100  # levels of JSON; a fixed limit, so that the result does not depend on the call stack


class FoundJSON(NamedTuple):
    """A JSON value that was read from `text[start:end]`, including the code fence around it.

    Attributes:
        repaired: Whether it was malformed and had to be repaired.
    """

    value: Any
    start: int
    end: int
    repaired: bool


def read_json(text: str) -> Any:
    """The first JSON value in a reply: the whole text, a fenced block, or a balanced {…} or […].
    `None` if it is not found.
    """
    return next((found.value for found in find_json(text) if not found.repaired), None)


def find_json(text: str) -> Iterator[FoundJSON]:
    """Every JSON value in a reply, the likeliest first.

    Well-formed values come first, in the order of `read_json`, then repaired values, then values inside
    brackets that are never closed.
    """
    for found in _parsed([_Place(0, len(text), text)]):
        yield found
        return
    bracketed, broken = _bracketed(text)
    fenced = list(_fenced(text))
    filled = [place for place in fenced if place.text.lstrip()[:1] in ("{", "[")]
    starts = [place.start for place in filled]

    def alone(place: _Place) -> bool:
        """Whether `place` is outside all fenced blocks."""
        before = bisect(starts, place.start) - 1
        return before < 0 or place.end > filled[before].end

    places = [*fenced, *(place for place in bracketed if place.end <= broken and alone(place))]
    read = {found.start: found for found in _parsed(places)}
    yield from read.values()
    unreadable = [place for place in places if place.start not in read]
    if broken < len(text):
        unreadable.append(_Place(broken, len(text), text[broken:]))
    work = Work(text)
    for place in unreadable:
        written = place.text.lstrip()
        open_to_repair = work.left > 0 and written[:1] in ("{", "[") and not _too_deep(written)
        value = repaired(written, work) if open_to_repair else None
        if value is not None and not _too_deep(json.dumps(value)):
            yield FoundJSON(value, place.start, place.end, True)
    yield from _parsed(place for place in bracketed if place.end > broken and alone(place))


def ends_open(text: str) -> bool:
    """Whether JSON in `text` was truncated: brackets are still open at its end.

    A stray quote can hide closing brackets. Therefore the text must have more opening than closing brackets
    also if those in strings are counted.
    """
    depth, first = 0, min((place for place in map(text.find, "{[") if place >= 0), default=len(text))
    for match in _STRING_OR_BRACKET.finditer(text, first):  # quotes in the prose before open no string
        depth += 1 if match[0] in ("[", "{") else -1 if match[0] in ("]", "}") and depth else 0
    return depth > 0 and sum(map(text.count, "{[")) > sum(map(text.count, "}]"))


class _Place(NamedTuple):
    start: int
    end: int
    text: str


def _parsed(places: Iterable[_Place]) -> Iterator[FoundJSON]:
    """The JSON values of those `places` that can be parsed."""
    for start, end, text in places:
        try:
            value = json_of(text)
        except ValueError:
            continue
        yield FoundJSON(value, start, end, False)


def json_of(text: str) -> Any:
    """Parse a JSON text.

    Raises:
        ValueError: For malformed JSON, and for nesting of more than 100 levels, which is detected before
            parsing so that no reply can exhaust the stack.
    """
    if _too_deep(text):
        raise ValueError(f"nested more than {_DEEPEST} deep")
    return _decoded(text)


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_decoded = json.JSONDecoder(parse_constant=_refuse).decode  # `json.loads` would build a decoder per text


def _too_deep(text: str) -> bool:
    if text.count("[") + text.count("{") <= _DEEPEST:
        return False
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        if match[0] in ("[", "{"):
            depth += 1
            if depth > _DEEPEST:
                return True
        elif match[0] in ("]", "}"):
            depth -= 1
    return False


def _fenced(text: str) -> Iterator[_Place]:
    for match in _FENCE.finditer(text):
        if match[1].strip():
            yield _Place(*match.span(), match[1])


def _bracketed(text: str) -> tuple[list[_Place], int]:
    """The outermost balanced {…} and […] of `text`, in order, and the position of the first bracket that is
    never closed.

    Strings are recognised inside brackets only, since an apostrophe in prose opens no string. An unclosed
    bracket does not hide the balanced ones behind it. If all brackets are closed, the position is the end of
    the text.
    """
    spans: list[tuple[int, int]] = []
    opened: list[tuple[int, str]] = []
    broken = len(text)
    quoted = escaped = False
    for index, char in enumerate(text):
        if quoted:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                quoted = False
        elif char in "{[":
            opened.append((index, "}" if char == "{" else "]"))
        elif not opened:
            continue
        elif char == '"':
            quoted = True
        elif char in "}]":
            start, closer = opened.pop()
            if closer != char:
                broken = min(broken, opened[0][0] if opened else start)
                opened.clear()  # not JSON: start again after this bracket
                continue
            while spans and spans[-1][0] > start:
                spans.pop()
            spans.append((start, index + 1))
    if opened:
        broken = min(broken, opened[0][0])
    return [_Place(start, end, text[start:end]) for start, end in spans[:_MAX_PLACES]], broken
