"""Readers of the choice that a reply states."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tot_lab.core.reading.answers import normalize
from tot_lab.core.reading.mathematics import boxed_answer, without_text_marks

_OPEN, _CLOSE = r"[\s*_`\"'(\[]*", r"[*_`\"')\]]*"
_FIRST = re.compile(rf"{_OPEN}(\w+){_CLOSE}(?:[).\]:,;*\n](?!\d)|\s[-–—]\s|$)")
_STATED = re.compile(
    r"\b(?:answer|option|choice)\b[*_`:\s]{0,9}(?:is\b)?[*_`:\s(\[\"']{0,9}(\w+)\b", re.IGNORECASE
)
_ANOTHER = re.compile(
    rf"[\s)\].:*_]*(?:(?:(?:or|and)\b|[/&]){_OPEN}(\w+)\b|,{_OPEN}(\w+){_CLOSE}\s{{0,9}}(?:[.,;]|$))"
)
_MARKED = re.compile(r"\((\w{1,9})\)")


def bare(text: str) -> str:
    return text.strip(" \t\r\n*_`\"'()[].:")


def chosen(answer: str, choices: Mapping[str, str]) -> str | None:
    r"""Return the label of the choice that an answer names. `None` if it names none, or several at once.

    That is a label alone or at the beginning (`B`, `(b)`, `**B.** four`), the text of one choice, or else the
    last label that is stated (`the answer is B`) or stands in parentheses. Of an answer with a `\boxed{…}`,
    only its content is read.
    """
    answer = without_text_marks(boxed_answer(answer) or answer)
    plain = bare(answer)
    texts = [label for label, text in choices.items() if text and normalize(text) == normalize(plain)]
    alone = _label(plain, choices, True)
    if alone is not None or len(texts) == 1:
        return alone or texts[0]
    first = _FIRST.match(answer)
    if first is not None and _label(first[1], choices, True) is not None:
        return None if _is_hedged(first, choices) else _label(first[1], choices, True)
    for pattern in (_STATED, _MARKED):
        found = [match for match in pattern.finditer(answer) if _label(match[1], choices) is not None]
        if found:
            hedged = any(_is_hedged(match, choices) for match in found)
            return None if hedged else _label(found[-1][1], choices)
    return None


def _label(word: str, choices: Mapping[str, str], any_case: bool = False) -> str | None:
    """Return the label that `word` is. A single letter in a sentence must have the case of the label."""
    if word in choices or not (any_case or len(word) > 1):
        return word if word in choices else None
    return next((label for label in choices if label.casefold() == word.casefold()), None)


def _is_hedged(match: re.Match[str], choices: Mapping[str, str]) -> bool:
    """Return whether another label follows the one in `match`, such as in `B or C`."""
    another = _ANOTHER.match(match.string, match.end(1))
    return another is not None and _label(another[1] or another[2], choices) is not None
