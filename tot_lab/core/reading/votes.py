"""Readers of votes: the candidate that a reply calls the best."""

from __future__ import annotations

import re

from tot_lab.core.reading.markup import ALL_MARKS, MARKS, without_markup

_NOUN = r"(?:candidate|choice|option|number|thought|step|answer|one|proposal|solution|no\.?)(?![a-z])"
_ANOTHER = rf"[{MARKS}]*+(?>(?:{_NOUN})?)[{MARKS}]*+\d{{1,6}}"
_NUMBER = rf"[{MARKS}]*+(?>(?:{_NOUN})?)[{MARKS}]*+(\d{{1,6}})"
_OTHER = (
    rf"(?>(?:[{MARKS}]*+(?:not|cannot be|isn['’]t){_ANOTHER}[{MARKS}]*+[,;]?[ ]?"
    r"(?:but|it is|it's|rather)\b)?)"
)
_BEST = rf"\b(?:best|most promising|winner|vote|(?:my|the|final)\s(?:choice|vote))\b(?>(?:\s{{1,3}}{_NOUN})?)"
_OF = rf"(?> of (?:these|them|(?:all|the|these|those)(?: the)?(?: \d+)? {_NOUN.replace('(?![a-z])', 's')}))?"
_LINK = rf"{_OF}[{MARKS}]*+(?:is\b[{MARKS}]*+:?|[:=→]|->|(?=cannot be\b|isn['’]t\b))"
_HEDGE = r"(?:or|as well as|and|to|vs\.?|versus)\b(?: maybe| perhaps| possibly)?"
_UNHEDGED = rf"(?![\w%]|[.,/·]\d|[{MARKS}]*+(?:\?|{_HEDGE}{_ANOTHER}|[,/&–-]{_ANOTHER}))"
_STATEMENTS = tuple(
    re.compile(pattern, re.IGNORECASE | re.MULTILINE)
    for pattern in (
        rf"(?:{_BEST}|^[{MARKS}]*+choice){_LINK}{_OTHER}{_NUMBER}{_UNHEDGED}",
        rf"{_BEST}(?>(?:{_LINK})?)[{MARKS}]*+\n[{ALL_MARKS}]*+{_NUMBER}[{MARKS}.]*+$",
        rf"\bI(?: will| would|'d|'ll)? (?:choose|pick|select|vote for|go with){_NUMBER}{_UNHEDGED}",
        rf"(?:{_NOUN}|^|(?<=[.!?,;]\s))[{MARKS}]*+(\d{{1,6}})[{ALL_MARKS}]*+is "
        rf"(?:clearly |by far |definitely )?(?:the )?"
        rf"(?:best|most promising)\b(?>(?: {_NOUN})?)(?![{MARKS}]*+\?)",
    )
)
_ALONE = re.compile(rf"[{MARKS}]*+(\d{{1,6}})[{MARKS}.]*+")
_DENIED = re.compile(
    r"(?:\b(?:second|2nd|third|3rd|next|least)[\s-]{0,3}"
    r"|(?:\b(?:neither|nor|not|never)\b|n['’]t\b)[^.,;:!?(\n]*+"
    r"|\b(?:if|whether|unless|otherwise|many|some|others|maybe|perhaps|could|might|may)\b[^.!?\n]*+)\Z",
    re.IGNORECASE,
)
"""What denies or doubts the statement behind it: a word before it, in its clause, or in its sentence."""

_BEFORE = 120  # characters before a statement that can deny it
_MOST = 1_000  # statements that are looked at, from the last one


def read_choice(text: str, count: int) -> int | None:
    """The choice among 1 … `count` that a reply states last, counted from 0.

    Accepted are `best: 2`, `the best choice is 2`, `candidate 2 is the best`, the number on the line below
    `Best:`, or, without a statement, the one number that is alone on a line. Runners-up (`second best: 1`),
    negations, conditions, questions and hedges (`best: 1 or 2`) are no statements. Returns `None` without a
    statement, and for a number out of range.
    """
    text = without_markup(text)
    found = sorted((m.end(), m.start(), m[1]) for pattern in _STATEMENTS for m in pattern.finditer(text))
    stated = next(
        (
            number
            for _, start, number in reversed(found[-_MOST:])
            if not _DENIED.search(text, max(0, start - _BEFORE), start)
        ),
        None,
    )
    alone = {match[1] for line in text.splitlines() if (match := _ALONE.fullmatch(line))}
    number = int(stated or (alone.pop() if len(alone) == 1 else 0))
    return number - 1 if 1 <= number <= count else None
