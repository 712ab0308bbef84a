"""Boards of cells as text, with one line for each row."""

from __future__ import annotations

from collections.abc import Sequence


def board_text(signs: Sequence[str], width: int, space: str = " ") -> str:
    """Return a board whose cells show `signs`, in reading order."""
    return "\n".join(space.join(signs[first : first + width]) for first in range(0, len(signs), width))


def read_square(rows: Sequence[str], signs: str) -> list[str] | None:
    """Return which of `signs` the cells in each row of a square board show.

    Returns `None` if a row does not have as many of them as the board has rows.
    """
    lines = ["".join(sign for sign in row if sign in signs) for row in rows]
    return lines if all(len(line) == len(lines) for line in lines) else None
