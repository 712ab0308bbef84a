"""Readers of scores, confidences and labels."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any, NamedTuple

from tot_lab.core.calls import TokenLogprob
from tot_lab.core.reading.json_values import find_json
from tot_lab.core.reading.judgements import is_score_key, judgements, match_once
from tot_lab.core.reading.markup import ALL_MARKS, MARKS, MOST, READ, TAKEN_BACK, is_doubted, without_markup
from tot_lab.core.reading.values import finite

# Quantifiers are possessive: a number is read whole or not at all, without backtracking. Groups of
# alternatives are atomic instead, because Python before 3.11.5 has a bug in possessive groups.
_NUMBER = r"[-+]?(?:\d++(?:\.\d*+)?+|\.\d++)(?:[eE][-+]?\d{1,3}+)?+"
_GAP = rf"[{MARKS}]*+"  # not across lines: the next line belongs to another number
_OF = rf"(?>(?:{_GAP}(?:/|out\s++of|of){_GAP}({_NUMBER})|{_GAP}(%|per\s?cent\b))?)"
_UNHEDGED = (  # excludes 0,7, 0·7, 0 7, 7/10/2, 0–1, 1 in 10, 0.9 + 0.7, and corrected numbers
    rf"(?!{TAKEN_BACK}\.?\d|[\w%\\±+]|-\w|[^\w\s(\[]\d|[ \t\xa0](?:[*×÷][ ])?\d|"
    rf"{_GAP}(?:\?|(?:if|unless|when)\b)|[ ](?:only|means|needs|requires|would|might)\b|"
    rf"[ ](?:for \w+|\(\w+\))(?:,| and)[ ]\d|{_GAP}(?:,|to|and|or|(?:\w+ )?in|(?:out )?of|[-–—~±+→]>?)"
    rf"(?:\s(?:a|every))?{_GAP}(?:[\d.]|(?:five|ten|hundred)\b))"
)
_SCALE = r"(?>(?:\s?[(\[]?(?:on a scale )?(?:of |from )?0 ?(?:to|[-–,]) ?1(?:0|00)?\b)?)"
_SCORE, _CONFIDENCE = (
    re.compile(
        rf"\b(?:{words})\b{_SCALE}[{ALL_MARKS}]*+"
        rf"(?>(?:(?:is|of)\b|[:=→]|->|[–—-][ ])?)[{ALL_MARKS}:]*+(?>(?:not\s{_NUMBER}\s?,?\s?but\s)?)"
        rf"[{ALL_MARKS}]*+({_NUMBER}){_OF}{_UNHEDGED}",
        re.IGNORECASE,
    )
    for words in ("score|rating", "confidence")
)
_WORD_BEFORE = re.compile(r"\b(\w{1,20})[ \t]{1,3}\Z")
_BARE = re.compile(rf"[{ALL_MARKS}]*+({_NUMBER}){_OF}[{ALL_MARKS}.]*+", re.IGNORECASE)
_LINE_END = re.compile(rf"[{MARKS}.,]*+(?:\n|\Z)")
_OVERALL = frozenset(["the", "my", "your", "a", "this", "its", "so", "final", "overall", "total"])
_SEPARATOR = re.compile(
    r"[:=|\t(\[]|[.)\]][ \t]|[ \t][-–—→]+[ \t]|\b(?:scores?|gets|receives)\b", re.IGNORECASE
)
_COMMA = re.compile(r"[,;][ \t]|(?<=\d)[ ]and[ ]")
_LINE_SCORE = re.compile(rf"([{MARKS}]*+{_NUMBER}{_OF})[{MARKS}.;]*+(?>(?:,[ \t]*+[^\W\d].*+)?)")
_SCORE_WORD = re.compile(r"[\W_]{0,9}\bscore\b[\W_]{0,9}\Z|\A[\W_]{0,9}score (?:of|for) ", re.IGNORECASE)
_OR = re.compile(r"[\s,;*`]*+(?:or|/|vs\.?)(?: perhaps| maybe)?[\s*`]*+", re.IGNORECASE)
_MOST_ABOVE = 5  # how many lines above a score are searched for the name of the sibling that it belongs to
_MOST_SEPARATORS = 30  # how many separators of a line are tried, from its end, as the one before its score
_CANDIDATES = 20  # JSON values in one reply that are tried
_WORD = re.compile(r"[A-Za-z]+")


def read_score(text: str) -> float | None:
    """The score that a reply states last: `score: 0.7`, `Score = 7/10`, `the score is 70%`, or a number alone
    on the first line.

    Markup does not matter. The score of an aspect (`clarity score: 0.7`) counts if nothing else is stated. A
    value outside 0 to 1 is not clamped and counts as unreadable, as do ranges and hedges.
    """
    text = without_markup(text)
    found = [(share, word is None or word.lower() in _OVERALL) for word, share in _stated(_SCORE, text)]
    overall = [share for share, is_overall in found if is_overall]
    if overall:
        return overall[-1]
    alone = _BARE.fullmatch(text.strip().split("\n", 1)[0])
    shares = {_share(alone)} if alone else {share for share, _ in found}
    return shares.pop() if len(shares) == 1 else None


def read_confidence(text: str) -> float | None:
    """The last confidence from 0 to 1 that a reply states, in the forms of `read_score`."""
    shares = [share for _, share in _stated(_CONFIDENCE, without_markup(text))]
    return shares[-1] if shares else None


def _stated(pattern: re.Pattern[str], text: str) -> Iterator[tuple[str | None, float | None]]:
    """The word before each statement in `text`, and the value. A number on the next line must be alone."""
    text = text[-READ:]
    for match in deque(pattern.finditer(text), MOST):
        start = match.start()
        alone = "\n" not in text[start : match.start(1)] or _LINE_END.match(text, match.end())
        if alone and not is_doubted(text, start):
            before = _WORD_BEFORE.search(text, max(start - 23, 0), start)
            yield before[1] if before else None, _share(match)


def read_out_of_ten(value: Any) -> float | None:
    """Read a score as a number from 0 to 10. `value` may be 8.5, `8.5/10`, `4 out of 5` (8.0) or `85%`.

    Returns `None` for anything else, and for values outside the range.
    """
    match = _bare(value)
    if match and (match[2] or match[3]):
        share = _share(match)
        return None if share is None else share * 10
    number = plain_number(value)
    return number if number is not None and 0 <= number <= 10 else None


def plain_number(value: Any) -> float | None:
    """The number in `value`. `None` for a text that states its own scale, such as `8/10` and `80%`."""
    match = _bare(value)
    if match is None or match[2] or match[3]:
        return finite(value)
    return finite(float(match[1]))


def _bare(value: Any) -> re.Match[str] | None:
    return _BARE.fullmatch(without_markup(value).strip()) if isinstance(value, str) else None


def _share(match: re.Match[str]) -> float | None:
    value, whole, percent = match.groups()[-3:]
    score = float(value)
    if whole is not None:
        if float(whole) <= 0:
            return None
        score /= float(whole)
    elif percent:
        score /= 100
    return score if 0 <= score <= 1 else None


def read_label(text: str, labels: Mapping[str, float]) -> float | None:
    """The value of the label that a reply states last.

    The last line that names exactly one label decides. A later line that names several makes the reply
    unreadable, since choosing one would be a guess.
    """
    for line in reversed(text[-READ:].splitlines()):
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

    Case and surrounding whitespace do not matter. A token may be only the beginning of a label (`imp` of
    impossible).

    Returns:
        The mean value of the labels, weighted by probability among the labels alone, and their total
        probability. `None` if that is less than 1 %.
    """
    for token in tokens:
        if not token.token.strip():
            continue
        weights: dict[str, float] = {}
        for text, logprob in (token.top or {token.token: token.logprob}).items():
            piece = text.strip(" \t\n\r.,:;!*_`\"'▁Ġ").lower()
            meant = [label for label in labels if label.startswith(piece)]
            if len(meant) == 1:
                weights[meant[0]] = weights.get(meant[0], 0.0) + math.exp(min(logprob, 0.0))
        total = sum(weights.values())
        if total < 0.01:
            return None
        return sum(labels[label] * weight for label, weight in weights.items()) / total, min(total, 1.0)
    return None


class SiblingScores(NamedTuple):
    """Scores of siblings, `None` for each that was not judged.

    Attributes:
        repairs: How the scores were read, in sentences, if that needed repairs or guesses. Empty for a
            well-formed array, and if the reply names each sibling by its text.
    """

    scores: list[float | None]
    repairs: str


def read_scores(text: str, names: Sequence[str]) -> list[float | None]:
    """The scores from 0 to 1 of the siblings with these `names` (their texts).

    Accepted are a JSON array of scores in order, JSON objects that name their sibling under any key, a JSON
    object by name, and lines such as `2: 0.7` (see `match_once` for what may name a sibling). An array of
    another length is not read, since its order is ambiguous.
    """
    return read_sibling_scores(text, names).scores


def read_sibling_scores(text: str, names: Sequence[str]) -> SiblingScores:
    """The scores of `read_scores`, and the repairs that they needed."""
    text = text.replace("\\boxed{", "(")
    found = [*islice(find_json(text), _CANDIDATES)]
    in_order = sorted(found, key=lambda one: one.start)
    pairs = [(a, b) for a, b in pairwise(in_order) if _OR.fullmatch(text, a.end, b.start)]
    found = [one for one in found if not any(one in pair for pair in pairs)]
    values = [(one.value, one.repaired) for one in found]
    # JSON values on separate lines count as one list.
    values.append(([one.value for one in found], any(one.repaired for one in found)))
    judged = [(judgements(value), repaired) for value, repaired in values]
    if not any(named for one, _ in judged for named, _ in one):
        lines = _lines(text).items()
        judged.append(
            ([({f"{k}": name for k, name in enumerate(names)}, one) for names, one in lines], False)
        )
    read = [_of_siblings(names, one, repaired) for one, repaired in judged]
    return min(reversed(read), key=lambda one: one.scores.count(None))


def _of_siblings(
    names: Sequence[str], judged: Sequence[tuple[Mapping[str, Any], Any]], repaired: bool
) -> SiblingScores:
    match = match_once(names, [named for named, _ in judged])
    scores: list[float | None] = [None] * len(names)
    for place, (_, judgement) in zip(match.places, judged, strict=True):
        if place is not None:
            scores[place] = _unit(judgement)
    if scores.count(None) == len(scores):
        return SiblingScores(scores, "")
    asked_for = not any(isinstance(judgement, dict) or named for named, judgement in judged)
    repairs = [
        "The JSON was malformed and was repaired." if repaired else "",
        "" if asked_for else match.warning,
    ]
    return SiblingScores(scores, " ".join(filter(None, repairs)))


def _lines(text: str) -> dict[tuple[str, ...], str]:
    """The scores on lines, or on parts of a line between commas. The key is the text before the score or,
    without such text, the lines above it, from the nearest up to the previous score.

    If keys are equal, the last score counts.
    """
    scores, above = dict[tuple[str, ...], str](), deque[str](maxlen=_MOST_ABOVE)
    for line in filter(str.strip, without_markup(text[-READ:]).splitlines()):
        parts = [*filter(None, map(_scored, _COMMA.split(line)))]
        parts = parts if len(parts) > 1 else [*filter(None, [_scored(line)])]
        scores.update({(head,) if head else tuple(above): score for head, score in parts})
        if parts:
            above.clear()
        else:
            above.appendleft(line)
    return scores


def _scored(line: str) -> tuple[str, str] | None:
    """The text before the last score on a line, and the score."""
    start = len(line)
    for separator in reversed(deque(_SEPARATOR.finditer(line), _MOST_SEPARATORS)):
        if scored := _LINE_SCORE.fullmatch(line, separator.end(), start):
            return _SCORE_WORD.sub("", line[: separator.start()]).strip(), scored[1]
        start = separator.start()
    return None


def _unit(value: Any) -> float | None:
    """The score from 0 to 1 in a judgement: a number, a text, or an object with one score."""
    if isinstance(value, dict):
        scores = [one for key, one in value.items() if is_score_key(key)]
        value = value["score"] if "score" in value else scores[0] if len(scores) == 1 else None
    number = read_score(value) if isinstance(value, str) else finite(value)
    return number if number is not None and 0 <= number <= 1 else None
