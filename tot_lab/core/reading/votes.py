"""Readers of votes: the candidate that a reply calls the best."""

from __future__ import annotations

import re

from tot_lab.core.reading.markup import ALL_MARKS, MARKS, MOST, READ, TAKEN_BACK, is_doubted, without_markup

_NOUN = r"(?:candidate|choice|option|number|thought|step|answer|one|proposal|solution|no\.?)"
_BEFORE = rf"[{MARKS}]*+(?>(?:{_NOUN})?)[{MARKS}]*+"
_ANOTHER, _NUMBER = rf"{_BEFORE}\d{{1,6}}", rf"{_BEFORE}(\d{{1,6}})"
_OTHER = (
    rf"(?>(?:[{MARKS}]*+(?:not|cannot be|isn['’]t){_ANOTHER}[{MARKS}]*+[,;]?[ ]?"
    r"(?:but|it is|it['’]s)\b)?)"
)
_BEST = (
    r"\b(?:best|most promising|winner|vote|selected|(?:my|the|final)\s(?:choice|pick|selection))\b"
    rf"(?>(?:[ ]{{1,3}}{_NOUN}){{0,2}})"
)
_OF = r"(?>(?: of(?: (?!is\b)\w+){1,4})?)"
_SURELY = r"(?>(?:,? (?:clearly|certainly|definitely|overall|by far|I think|in my (?:view|opinion))\b,?)?)"
_LINK = (
    rf"{_OF}{_SURELY}[{MARKS}]*+(?:is\b{_SURELY}[{MARKS}]*+:?|goes to\b|[:=→]|->|(?=cannot be\b|isn['’]t\b))"
)
_HEDGE = r"(?:or|as well as|and|to|vs\.?)(?: maybe| perhaps| also)?|[/&–<=+→-]>?"
_UNHEDGED = (
    rf"(?![\w%]|[.,/·]\d|{TAKEN_BACK}{_ANOTHER}|"
    rf"[{MARKS}]*+(?:\?|,?[ ]?(?:if|unless|so far)\b|(?:{_HEDGE}){_ANOTHER}|,{_ANOTHER}(?! (?:is|has)\b)|"
    rf";{_ANOTHER}[{MARKS}.]*+$))"
)
_AFTER = r"of|among|overall|and|but|because|since|as|with|followed|by|for th\w+"
_STATEMENTS = tuple(
    re.compile(pattern, re.IGNORECASE | re.MULTILINE)
    for pattern in (
        rf"(?:{_BEST}|^[{MARKS}]*+choice){_LINK}{_OTHER}{_NUMBER}{_UNHEDGED}",
        rf"{_BEST}(?>(?:{_LINK})?)[{MARKS}]*+\n[{ALL_MARKS}•-]*+{_NUMBER}[{MARKS}.]*+$",
        r"\bI(?: will| would|'d|'ll| am|'m)? (?:choos|pick|select|vot|prefer|recommend|go)(?:e|ing)?"
        rf"(?: for| with)?{_NUMBER}{_UNHEDGED}",
        rf"(?:{_NOUN}|^|(?<=[.!?,;]\s))[{MARKS}]*+(\d{{1,6}})[{ALL_MARKS}]*+is{_SURELY} (?:the |my )?"
        rf"(?:best|most promising|(?:clear )?winner)\b(?>(?: {_NOUN})?)"
        rf"(?![{MARKS}]*+\?)(?=\s*+(?:[^\w\s]|\Z|(?:{_AFTER})\b)|\n)",
    )
)
_ALONE = re.compile(rf"[{MARKS}]*+(\d{{1,6}})[{MARKS}.]*+")
_WHOLE = re.compile(
    rf"[{ALL_MARKS}]*+(?:(?:the )?{_NOUN}(?::| is)?)?{_NUMBER}[{ALL_MARKS}.]*+", re.IGNORECASE
)
_ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"]
_ORDINAL = re.compile(
    rf"\b(?:the )?({'|'.join(_ORDINALS)}) (?:candidate|choice|option|thought|proposal|solution|one)\b",
    re.IGNORECASE,
)
_CARDINALS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
_CARDINAL = re.compile(
    rf"((?:[:=]|\bis|{_NOUN})[{MARKS}]*+)({'|'.join(_CARDINALS)})(?=[{MARKS}.]*+$)",
    re.IGNORECASE | re.MULTILINE,
)


def read_choice(text: str, count: int) -> int | None:
    """The choice among 1 … `count` that a reply states last, counted from 0.

    Accepted are `best: 2`, `the best choice is 2`, `candidate 2 is the best`, the number on the line below
    `Best:`, or, without a statement, the one number that is alone on a line. Runners-up (`second best: 1`),
    negations, conditions, questions and hedges (`best: 1 or 2`) are no statements. Returns `None` without a
    statement, and for a number out of range.
    """
    text = _ORDINAL.sub(
        lambda found: f"candidate {_ORDINALS.index(found[1].lower()) + 1}", without_markup(text[-READ:])
    )
    text = _CARDINAL.sub(lambda found: f"{found[1]}{_CARDINALS.index(found[2].lower()) + 1}", text)
    found = sorted((m.end(), m.start(), m[1]) for pattern in _STATEMENTS for m in pattern.finditer(text))
    stated = next(
        (number for _, start, number in reversed(found[-MOST:]) if not is_doubted(text, start)),
        None,
    )
    whole = _WHOLE.fullmatch(text)
    alone = {match[1] for line in text.splitlines() if (match := whole or _ALONE.fullmatch(line))}
    number = int(stated or (alone.pop() if len(alone) == 1 else 0))
    return number - 1 if 1 <= number <= count else None
