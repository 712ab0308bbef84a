"""Readers of votes."""

from __future__ import annotations

import re

_CHOICE = re.compile(
    r"\b(?:best|choice|vote)\b(?>(?:[ \t:=*_`\"'#(\[]|\b(?:is|for|the|candidate|choice|option|number|thought|"
    r"step|answer|no\.?)(?![a-z])){0,40})(\d{1,6}+)\b(?![.,/]\d)",
    re.IGNORECASE,
)
_ALONE = re.compile(r"[\s*_`(\[]*(\d{1,6})[\s*_`)\].]*")


def read_choice(text: str, count: int) -> int | None:
    """The choice among 1 … `count` that a reply states last, counted from 0.

    Accepted are `best: 2`, `the choice is 2`, or a number alone on a line. Returns `None` for a number out of
    range.
    """
    found = [match.group(1) for match in _CHOICE.finditer(text)]
    found = found or [match.group(1) for line in text.splitlines() if (match := _ALONE.fullmatch(line))]
    number = int(found[-1]) if found else 0
    return number - 1 if 1 <= number <= count else None
