"""Readers of scores, confidences and labels."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tot_lab.core.calls import TokenLogprob
from tot_lab.core.reading.json_values import read_json
from tot_lab.core.reading.values import finite

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
_SCORED_LINE = re.compile(r"[ \t]*\(?#?(\d{1,6})[.):][ \t]*(.*)")
_WORD = re.compile(r"[A-Za-z]+")


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
