"""Reading numbers, lists and JSON out of what a model wrote.

Rule: forgiving about form, strict about meaning. A reader returns what the text clearly says or
None; it never guesses a number, and no text at all makes it raise. Costs are linear in the text.
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

# Possessive throughout: a number is read whole or not at all, and no text is walked twice. A group of
# alternatives is atomic instead, which is the same: before 3.11.5 Python misread it as possessive.
_NUMBER = r"[-+]?(?:\d++(?:\.\d*+)?+|\.\d++)(?:[eE][-+]?\d{1,3}+)?+"
_GAP = r"[^\S\n]*+"  # what a line further on says belongs to no number here
_OF = rf"(?>(?:{_GAP}\(?+(?:/|out\s++of|of){_GAP}({_NUMBER})|{_GAP}(%|percent\b))?)"
_MARKS = r"[\s*_`\"']*+"
_SCORE, _CONFIDENCE = (
    re.compile(
        rf"\b{word}\b{_MARKS}(?>(?:(?:is|of)\b|[:=])?){_MARKS}({_NUMBER}){_OF}"
        rf"(?![\w%]|[.,/]\d|{_GAP}(?:to|and|or|[-–—~]|\.\.+){_GAP}[\d.])",  # 0,7, 7/10/2 and 0–1 are no score
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
_MOST_PLACES = 1_000  # in which JSON is looked for in one text
_DEEPEST = 100  # levels of JSON; what can be read must not depend on how deep the program itself is
_TAG = r"</?think(?:ing)?(?:\s[^<>]*)?>"
_THINK_TAG = re.compile(rf"(?<!`){_TAG}|{_TAG}(?!`)", re.IGNORECASE)


def finite(value: Any) -> float | None:
    """`value` as a float when it is a finite number (True and False are none), else None."""
    if isinstance(value, bool) or not isinstance(value, Real):  # numpy's numbers are Real too
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def verdict(value: Any, by: str) -> float | None:
    """The score 0–1 that a person's own function gave: a number, True or False, or None (NaN too)
    where it has none to give. Anything else is a ValueError that names the function."""
    value = value.item() if hasattr(value, "item") else value  # one of numpy's
    number = float(value) if isinstance(value, bool) else finite(value)
    if number is None and value is not None and value == value:
        raise ValueError(f"{by} gave {value!r}; a score is a number from 0 to 1, True, False or None")
    if number is not None and not 0 <= number <= 1:
        raise ValueError(f"{by} gave {number}; a score lies in 0–1")
    return number


def split_thinking(text: str) -> tuple[str | None, str]:
    """Separate the `<think>…</think>` blocks of a reply from its answer, wherever they stand.

    Tags are `<think>` and `<thinking>` in any case; a tag that is quoted (`` `<think>` ``) is text. A closing
    tag without an opening one ends thinking that began with the text, and thinking that is not closed goes on
    to the end. Blocks may be nested; what follows the last closing tag is answer.

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
            answer.append("\n")  # `0.<think>…</think>7` does not become a number
        answer.append(part)
    thoughts = [part.strip() for is_thinking, part in parts if is_thinking]
    return "\n\n".join(filter(None, thoughts)) or None, "".join(answer).lstrip()


def separated(reply: Reply) -> Reply:
    """`reply` with the thinking in its text moved to `thinking`. Where that is not all at the beginning, the
    text as it was written is kept as `raw_text`."""
    parts = _separated(reply.text) if "<" in reply.text else []
    if not parts:
        return reply
    inside, text = split_thinking(reply.text)
    thinking = "\n\n".join(part for part in (reply.thinking, inside) if part) or None
    leads = not any(part.strip() for is_thinking, part in parts[:-1] if not is_thinking)
    raw_text = reply.raw_text or ("" if leads else reply.text)
    return msgspec.structs.replace(reply, text=text, thinking=thinking, raw_text=raw_text)


def _separated(text: str) -> list[tuple[bool, str]]:
    """The parts of `text` between the tags of thinking, and whether each is thinking; [] without tags."""
    parts: list[tuple[bool, str]] = []
    depth = end = unopened = 0
    closing = False
    for tag in _THINK_TAG.finditer(text):
        closing = tag[0][1] == "/"
        parts.append((closing or depth > 0, text[end : tag.start()]))
        if closing and depth == 0:
            unopened = len(parts)  # all so far was thinking
        depth = max(depth - 1, 0) if closing else depth + 1
        end = tag.end()
    if parts:
        parts.append((not closing, text[end:]))
    return [(k < unopened or is_thinking, part) for k, (is_thinking, part) in enumerate(parts)]


def read_score(text: str) -> float | None:
    """The score 0–1 that a reply states: `score: 0.7`, `Score = 7/10`, `score: 70%`, or a first
    line that is a number alone. A value outside 0–1 is no score: it is not clamped."""
    match = _SCORE.search(text)
    if match is None:
        match = _BARE.fullmatch(text.strip().split("\n", 1)[0])
    return None if match is None else _share(match)


def read_confidence(text: str) -> float | None:
    """The confidence 0–1 that a reply reports, written as `read_score` has it; the last decides."""
    shares = [_share(match) for match in _CONFIDENCE.finditer(text)]
    return shares[-1] if shares else None


def read_out_of_ten(value: Any) -> float | None:
    """A number from 0 to 10 that was written as one, or as a text: `8.5`, `8.5/10`, `4 out of 5`, `85%`.
    None for anything else, a number beyond 0–10 too: it is not clamped."""
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

    The last line that names exactly one label decides; a line that names several is undecided and
    makes the reply unreadable, since picking one would be a guess."""
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
    """What a reply is worth by the probabilities of its labels, as its first token that is a word
    was to be one of them: the mean of their values, weighted by probability, as if there were no
    other words; and how probable the labels are altogether. Case, white space around and a label's
    first piece (`imp` of impossible) do not matter. None when no label was among the alternatives
    reported, or they are less probable than 1 in 100: then the model speaks of something else."""
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
    """The choice among 1 … `count` that a reply states (`best: 2`, `the choice is 2`, or a number
    alone on a line; the last one stated decides), from 0. None when it states none in range."""
    found = [match.group(1) for match in _CHOICE.finditer(text)]
    found = found or [match.group(1) for line in text.splitlines() if (match := _ALONE.fullmatch(line))]
    number = int(found[-1]) if found else 0
    return number - 1 if 1 <= number <= count else None


def read_scores(text: str, count: int) -> list[float | None]:
    """`count` scores 0–1 out of one reply: a JSON array in order, a JSON object by number, or
    lines `2: 0.7`. A list of another length than `count` says nothing of which is which, so it
    is read as nothing."""
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
    """The place, from 0, of each judgement in a list: by the number that it gives itself, else as it stands.
    `None` if their numbers are not those of all places."""
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
"""Keys by which a judgement may say which candidate it is about."""


def _unit(value: Any) -> float | None:
    number = finite(value)
    return number if number is not None and 0 <= number <= 1 else None


def read_list(text: str) -> list[str]:
    """The items of a reply: a JSON array (of strings, or of objects with a `thought`, `step`,
    `content` or `text`), else the lines marked `1.`, `-` or `*`, else every non-empty line. A reply that is
    JSON, whole or cut off, and holds no such array has none."""
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
    """A JSON value in a text, which takes up text[start:end], its fence included.

    repaired: it was badly written, and this is what was meant.
    """

    value: Any
    start: int
    end: int
    repaired: bool


def read_json(text: str) -> Any:
    """The JSON value in a reply, looked for in three tiers: the whole text; a fenced block; the
    first balanced {…} or […] that parses. None when there is none (or it says null)."""
    return next((found.value for found in _parsed(_places(text))), None)


def find_json(text: str) -> Iterator[FoundJSON]:
    """Every JSON value that a reply may hold, the likeliest first: the three tiers of `read_json`, then
    what can be repaired in them, and last what stands inside something that is never closed."""
    for found in _parsed([_Place(0, len(text), text)]):
        yield found
        return
    bracketed, broken = _bracketed(text)
    fenced = list(_fenced(text))
    filled = [place for place in fenced if place.text.lstrip()[:1] in ("{", "[")]
    starts = [place.start for place in filled]

    def alone(place: _Place) -> bool:
        """Not what a fence holds as well."""
        before = bisect(starts, place.start) - 1
        return before < 0 or place.end > filled[before].end

    places = [*fenced, *(place for place in bracketed if place.end <= broken and alone(place))]
    read = {found.start: found for found in _parsed(places)}
    yield from read.values()
    unread = [place for place in places if place.start not in read]
    if broken < len(text):
        unread.append(_Place(broken, len(text), text[broken:]))
    work = Work(text)
    for place in unread:
        written = place.text.lstrip()
        open_to_repair = written[:1] in ("{", "[") and not _too_deep(written)
        value = repaired(written, work) if open_to_repair else None
        if value is not None and not _too_deep(json.dumps(value)):
            yield FoundJSON(value, place.start, place.end, True)
    yield from _parsed(place for place in bracketed if place.end > broken and alone(place))


def ends_open(text: str) -> bool:
    """Whether JSON in `text` was cut off: brackets are still open at its end. A stray quote hides brackets,
    so closing ones must be missing when all of them are counted too."""
    depth, first = 0, min((place for place in map(text.find, "{[") if place >= 0), default=len(text))
    for match in _STRING_OR_BRACKET.finditer(text, first):  # in prose before it a quote opens nothing
        depth += 1 if match[0] in ("[", "{") else -1 if match[0] in ("]", "}") and depth else 0
    return depth > 0 and sum(map(text.count, "{[")) > sum(map(text.count, "}]"))


class _Place(NamedTuple):
    start: int
    end: int
    text: str


def _parsed(places: Iterable[_Place]) -> Iterator[FoundJSON]:
    """What stands in those of `places` that hold JSON."""
    for start, end, text in places:
        try:
            value = json_of(text)
        except ValueError:
            continue
        yield FoundJSON(value, start, end, False)


def json_of(text: str) -> Any:
    """What a JSON text says. Raises ValueError for any other text, and for one nested more than 100 deep:
    that is seen beforehand, so that no reply can bring a parser to the end of the stack."""
    if _too_deep(text):
        raise ValueError(f"nested more than {_DEEPEST} deep")
    return _decoded(text)


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_decoded = json.JSONDecoder(parse_constant=_refuse).decode  # `json.loads` would make one for each text


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
    """Outermost balanced {…} and […] of `text`, in order, in one pass, and where the first bracket is that
    is never rightly closed (the end of the text when all are). Strings are respected inside brackets only,
    since an apostrophe or a quote in prose opens nothing; a bracket that is never closed does not
    hide the balanced ones behind it."""
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
                opened.clear()  # not JSON: begin anew after it
                continue
            while spans and spans[-1][0] > start:
                spans.pop()
            spans.append((start, index + 1))
    if opened:
        broken = min(broken, opened[0][0])
    return [_Place(start, end, text[start:end]) for start, end in spans[:_MOST_PLACES]], broken
