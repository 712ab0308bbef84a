"""Readers of grids of numbers."""

from __future__ import annotations

import re

_ROW = re.compile(r"[\s\[(]*\d+(?:[\s,]+\d+)*[\s\]),]*", re.ASCII)
_CELL = re.compile(r"\d+", re.ASCII)
_RATING = re.compile(r"\W*(?:my )?(?:confidence|certainty|score)\b.{0,40}:\W*", re.IGNORECASE)


def last_grid(text: str) -> tuple[tuple[str, ...], ...] | None:
    """Return the rows of the last grid of numbers in `text`: a line per row, or a list of lists.

    Digits without spaces between them are a cell each, except in brackets. Blank lines are ignored, and so
    are the numbers below a line such as `Confidence:`. `None` without a grid.
    """
    grid: list[tuple[str, ...]] = []
    is_new = is_ignored = False
    for line in text.replace("],", "]\n").splitlines():
        if not _ROW.fullmatch(line):
            if line.strip():
                is_new, is_ignored = True, _RATING.fullmatch(line) is not None
        elif not is_ignored:
            if is_new:
                grid, is_new = [], False
            cells = _CELL.findall(line)
            is_split = len(cells) > 1 or any(bracket in line for bracket in "[]()")
            grid.append(tuple(cells if is_split else cells[0]))
    return tuple(grid) or None
