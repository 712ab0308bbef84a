"""Readers of numbers, lists and JSON in model output.

Readers accept many forms, but never guess: they return what the text clearly states, or `None`. No text makes
them raise, and their time is linear in the text.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple

import msgspec

from tot_lab.core.calls import Reply, TokenLogprob
from tot_lab.core.repair import Work, repaired

# Quantifiers are possessive: a number is read whole or not at all, without backtracking. Groups of
# alternatives are atomic instead, because Python before 3.11.5 has a bug in possessive groups.
_NUMBER = r"[-+]?(?:\d++(?:\.\d*+)?+|\.\d++)(?:[eE][-+]?\d{1,3}+)?+"
_GAP = r"[^\S\n]*+"  # not across lines: the next line belongs to another number
_OF = rf"(?>(?:{_GAP}\(?+(?:/|out\s++of|of){_GAP}({_NUMBER})|{_GAP}(%|percent\b))?)"
_MARKS = r"[\s*_`\"']*+"
_SCORE, _CONFIDENCE = (
    re.compile(
        rf"\b{word}\b{_MARKS}(?>(?:(?:is|of)\b|[:=])?){_MARKS}({_NUMBER}){_OF}"
        rf"(?![\w%]|[.,/]\d|{_GAP}(?:to|and|or|[-–—~]|\.\.+){_GAP}[\d.])",  # excludes 0,7, 7/10/2 and 0–1
        re.IGNORECASE,
    )
    for word in ("score", "confidence")
)
_BARE = re.compile(rf"{_MARKS}({_NUMBER}){_OF}[\s*_`\"'.)]*+", re.IGNORECASE)
_ITEM = re.compile(r"[ \t]*(?:[-*•–]|\(?\d{1,3}[.):])[ \t]+(.*)")
_CHOICE = re.compile(
    r"\b(?:best|choice|vote)\b(?>(?:[ \t:=*_`\"'#(\[]|\b(?:is|for|the|candidate|choice|option|number|thought|"
    r"step|answer|no\.?)(?![a-z])){0,40})(\d{1,6}+)\b(?![.,/]\d)",
    re.IGNORECASE,
)
_ALONE = re.compile(r"[\s*_`(\[]*(\d{1,6})[\s*_`)\].]*")
_SCORED_LINE = re.compile(r"[ \t]*\(?#?(\d{1,6})[.):][ \t]*(.*)")
_FENCE = re.compile(r"```[ \t]*+(?:json)?+[ \t]*+\n(.*?)```", re.DOTALL | re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z]+")
_STRING_OR_BRACKET = re.compile(r'"(?>(?:[^"\\]|\\.)*)"?|[][{}]', re.DOTALL)
_MAX_PLACES = 1_000  # candidates for JSON in one text
_DEEPEST = 100  # levels of JSON; a fixed limit, so that the result does not depend on the call stack
_TAG = r"</?think(?:ing)?(?:\s[^<>]*)?>"
_THINK_TAG = re.compile(rf"(?<!`){_TAG}|{_TAG}(?!`)", re.IGNORECASE)


def common_length(one: str, other: str) -> int:
    """Return the length of the common beginning of two texts."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def finite(value: Any) -> float | None:
    """Convert `value` to float if it is a finite number. Returns `None` otherwise, also for booleans."""
    if isinstance(value, bool) or not isinstance(value, Real):  # numpy's numbers are Real too
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def verdict(value: Any, by: str) -> float | None:
    """Check a score that a user's function returned: a number from 0 to 1, a boolean, `None` or NaN (no
    score).

    Args:
        by: Names the function in the error.

    Raises:
        ValueError: For any other value.
    """
    value = value.item() if hasattr(value, "item") else value  # a numpy scalar
    number = float(value) if isinstance(value, bool) else finite(value)
    if number is None and value is not None and value == value:
        raise ValueError(f"{by} must return a number from 0 to 1, True, False or None: got {value!r}.")
    if number is not None and not 0 <= number <= 1:
        raise ValueError(f"{by} must return a score from 0 to 1: got {number}.")
    return number


def split_thinking(text: str) -> tuple[str | None, str]:
    """Separate the `<think>…</think>` blocks of a reply from its answer.

    Tags are `<think>` and `<thinking>` in any case; a quoted tag (`` `<think>` ``) is text. A closing tag
    without an opening one ends thinking that began with the text, and unclosed thinking extends to the end.
    Blocks may be nested.

    Returns:
        The thinking, its blocks joined by blank lines, or `None`; and the answer. A text without tags is
        returned unchanged.
    """
    parts = _separated(text)
    if not parts:
        return None, text
    answer: list[str] = []
    for is_thinking, part in parts:
        if is_thinking or not part:
            continue
        if answer and not answer[-1][-1].isspace() and not part[0].isspace():
            answer.append("\n")  # `0.<think>…</think>7` must not become a number
        answer.append(part)
    thoughts = [part.strip() for is_thinking, part in parts if is_thinking]
    return "\n\n".join(filter(None, thoughts)) or None, "".join(answer).lstrip()


def separated(reply: Reply) -> Reply:
    """Move the thinking in the text of `reply` to `thinking`. If it is not all at the beginning, `raw_text`
    keeps the original.
    """
    parts = _separated(reply.text) if "<" in reply.text else []
    if not parts:
        return reply
    inside, text = split_thinking(reply.text)
    thinking = "\n\n".join(part for part in (reply.thinking, inside) if part) or None
    leads = not any(part.strip() for is_thinking, part in parts[:-1] if not is_thinking)
    raw_text = reply.raw_text or ("" if leads else reply.text)
    return msgspec.structs.replace(reply, text=text, thinking=thinking, raw_text=raw_text)


def _separated(text: str) -> list[tuple[bool, str]]:
    """Split `text` at its thinking tags. Returns (is thinking, part) pairs; empty if there are no tags."""
    parts: list[tuple[bool, str]] = []
    depth = end = unopened = 0
    closing = False
    for tag in _THINK_TAG.finditer(text):
        closing = tag[0][1] == "/"
        parts.append((closing or depth > 0, text[end : tag.start()]))
        if closing and depth == 0:
            unopened = len(parts)  # everything before it was thinking
        depth = max(depth - 1, 0) if closing else depth + 1
        end = tag.end()
    if parts:
        parts.append((not closing, text[end:]))
    return [(k < unopened or is_thinking, part) for k, (is_thinking, part) in enumerate(parts)]


def read_score(text: str) -> float | None:
    """The score that a reply states: `score: 0.7`, `Score = 7/10`, `score: 70%`, or a number alone on the
    first line.

    A value outside 0 to 1 is not clamped and counts as unreadable.
    """
    match = _SCORE.search(text)
    if match is None:
        match = _BARE.fullmatch(text.strip().split("\n", 1)[0])
    return None if match is None else _share(match)


def read_confidence(text: str) -> float | None:
    """The last confidence from 0 to 1 that a reply states, in the forms of `read_score`."""
    shares = [_share(match) for match in _CONFIDENCE.finditer(text)]
    return shares[-1] if shares else None


def read_out_of_ten(value: Any) -> float | None:
    """A number from 0 to 10, given as a number or as text: `8.5`, `8.5/10`, `4 out of 5`, `85%`.

    Returns `None` for anything else, and for values outside the range.
    """
    if isinstance(value, str):
        match = _BARE.fullmatch(value.strip())
        if match is None:
            return None
        share = _share(match) if match[2] is not None or match[3] else None
        value = share * 10 if share is not None else float(match[1]) if not (match[2] or match[3]) else None
    number = finite(value)
    return number if number is not None and 0 <= number <= 10 else None


def _share(match: re.Match[str]) -> float | None:
    value, whole, percent = match.groups()
    score = float(value)
    if whole is not None:
        if float(whole) <= 0:
            return None
        score /= float(whole)
    elif percent:
        score /= 100
    return score if math.isfinite(score) and 0 <= score <= 1 else None


def read_label(text: str, labels: Mapping[str, float]) -> float | None:
    """The value of the label that the reply ends with.

    The last line that names exactly one label decides. A later line that names several makes the reply
    unreadable, since choosing one would be a guess.
    """
    for line in reversed(text.splitlines()):
        named = {word for word in map(str.lower, _WORD.findall(line)) if word in labels}
        if len(named) > 1:
            return None
        if named:
            return labels[named.pop()]
    return None


def read_label_logprobs(
    tokens: Sequence[TokenLogprob], labels: Mapping[str, float]
) -> tuple[float, float] | None:
    """Read a label from the log-probabilities of the first token that is not blank.

    Case, surrounding whitespace and a label's first piece (`imp` of impossible) do not matter.

    Returns:
        The mean value of the labels, weighted by probability among the labels alone, and their total
        probability. `None` if the labels have less than 1 % of the reported probability.
    """
    for token in tokens:
        if not token.token.strip():
            continue
        weights: dict[str, float] = {}
        for text, logprob in (token.top or {token.token: token.logprob}).items():
            piece = text.strip(" \t\n\r.,:;!*_`\"'▁Ġ").lower()
            meant = [label for label in labels if piece and label.startswith(piece)]
            if len(meant) == 1:
                weights[meant[0]] = weights.get(meant[0], 0.0) + math.exp(min(logprob, 0.0))
        total = sum(weights.values())
        if total < 0.01:
            return None
        return sum(labels[label] * weight for label, weight in weights.items()) / total, min(total, 1.0)
    return None


def read_choice(text: str, count: int) -> int | None:
    """The choice among 1 … `count` that a reply states last, counted from 0.

    Accepted are `best: 2`, `the choice is 2`, or a number alone on a line. Returns `None` for a number out of
    range.
    """
    found = [match.group(1) for match in _CHOICE.finditer(text)]
    found = found or [match.group(1) for line in text.splitlines() if (match := _ALONE.fullmatch(line))]
    number = int(found[-1]) if found else 0
    return number - 1 if 1 <= number <= count else None


def read_scores(text: str, count: int) -> list[float | None]:
    """`count` scores from 0 to 1: a JSON array in order, a JSON object by number, or lines `2: 0.7`.

    A list of another length than `count` is not read, since its order is ambiguous.
    """
    scores: list[float | None] = [None] * count
    value = read_json(text)
    if isinstance(value, dict) and isinstance(value.get("scores"), list | dict):
        value = value["scores"]
    if isinstance(value, list):
        order = _order_of(value) if len(value) == count else None
        for place, item in zip(order or (), value, strict=False):
            scores[place] = _unit(item.get("score") if isinstance(item, dict) else item)
        return scores
    if isinstance(value, dict):
        stated = [(str(key), item) for key, item in value.items()]
    else:
        stated = [(match[1], match[2]) for line in text.splitlines() if (match := _SCORED_LINE.match(line))]
    for key, item in stated:
        if key.isdecimal() and len(key) < 9 and 1 <= int(key) <= count:
            scores[int(key) - 1] = _unit(read_score(item) if isinstance(item, str) else item)
    return scores


def _order_of(items: Sequence[Any]) -> Sequence[int] | None:
    """The positions, from 0, of the judgements in a list: by their own numbers, or else in order.

    Returns `None` if the numbers are not a permutation of all positions.
    """
    numbers = []
    for item in items:
        given = (
            next((item[name] for name in _NUMBERS if name in item), None) if isinstance(item, dict) else None
        )
        if isinstance(given, int) or (isinstance(given, str) and given.isdecimal() and len(given) < 9):
            numbers.append(int(given))
    if not numbers:
        return range(len(items))
    first = min(numbers)
    if first not in (0, 1) or sorted(numbers) != list(range(first, first + len(items))):
        return None
    return [number - first for number in numbers]


_NUMBERS = ("id", "index", "number", "candidate", "thought", "step")
"""Keys by which a judgement may number its candidate."""


def _unit(value: Any) -> float | None:
    number = finite(value)
    return number if number is not None and 0 <= number <= 1 else None


def read_list(text: str) -> list[str]:
    """The items of a reply.

    A JSON array (of strings, or of objects with a `thought`, `step`, `content` or `text`); else the lines
    marked `1.`, `-` or `*`; else every non-empty line. A reply that is JSON without such an array has no
    items.
    """
    value = read_json(text)
    if isinstance(value, dict):
        lists = [item for item in value.values() if isinstance(item, list)]
        value = lists[0] if len(lists) == 1 else None
    if isinstance(value, list):
        items = [_item_text(item) for item in value]
        if any(items):
            return [item for item in items if item]
    lines = text.splitlines()
    marked = [match.group(1).strip() for line in lines if (match := _ITEM.match(line))]
    if not marked and (text.lstrip()[:1] in ("[", "{") or text.strip() == "null"):
        return []
    return [item for item in (marked or [line.strip() for line in lines]) if item]


def _item_text(item: Any) -> str:
    if isinstance(item, dict):
        item = next((item[key] for key in ("thought", "step", "content", "text") if key in item), None)
    return item.strip() if isinstance(item, str) else ""


class FoundJSON(NamedTuple):
    """A JSON value in `text[start:end]`, its fence included.

    Attributes:
        repaired: Whether it was malformed and had to be repaired.
    """

    value: Any
    start: int
    end: int
    repaired: bool


def read_json(text: str) -> Any:
    """The first JSON value in a reply: the whole text, a fenced block, or a balanced {…} or […]. `None` if
    there is none.
    """
    return next((found.value for found in _parsed(_places(text))), None)


def find_json(text: str) -> Iterator[FoundJSON]:
    """Every JSON value in a reply, the likeliest first.

    The order is that of `read_json`, then repaired values, then values inside brackets that are never closed.
    """
    for found in _parsed([_Place(0, len(text), text)]):
        yield found
        return
    bracketed, broken = _bracketed(text)
    fenced = list(_fenced(text))
    filled = [place for place in fenced if place.text.lstrip()[:1] in ("{", "[")]
    starts = [place.start for place in filled]

    def alone(place: _Place) -> bool:
        """Whether it is outside all fences."""
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
        open_to_repair = written[:1] in ("{", "[") and not _too_deep(written)
        value = repaired(written, work) if open_to_repair else None
        if value is not None and not _too_deep(json.dumps(value)):
            yield FoundJSON(value, place.start, place.end, True)
    yield from _parsed(place for place in bracketed if place.end > broken and alone(place))


def ends_open(text: str) -> bool:
    """Whether JSON in `text` was truncated: brackets are still open at its end.

    A stray quote can hide brackets, so closing ones must also be missing when all brackets are counted.
    """
    depth, first = 0, min((place for place in map(text.find, "{[") if place >= 0), default=len(text))
    for match in _STRING_OR_BRACKET.finditer(text, first):  # a quote in the prose before opens no string
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


def _places(text: str) -> Iterator[_Place]:
    yield _Place(0, len(text), text)
    yield from _fenced(text)
    yield from _bracketed(text)[0]


def _fenced(text: str) -> Iterator[_Place]:
    for match in _FENCE.finditer(text):
        yield _Place(*match.span(), match.group(1))


def _bracketed(text: str) -> tuple[list[_Place], int]:
    """The outermost balanced {…} and […] of `text`, in order, and the position of the first bracket that is
    never closed.

    Strings are recognised inside brackets only, since an apostrophe in prose opens nothing. An unclosed
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
                opened.clear()  # not JSON: start again after it
                continue
            while spans and spans[-1][0] > start:
                spans.pop()
            spans.append((start, index + 1))
    if opened:
        broken = min(broken, opened[0][0])
    return [_Place(start, end, text[start:end]) for start, end in spans[:_MAX_PLACES]], broken
