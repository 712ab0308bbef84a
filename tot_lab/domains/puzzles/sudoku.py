"""Sudoku on 4 × 4 and 9 × 9 cells (`mini_sudoku` and `sudoku` of reasoning-gym)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import isqrt
from typing import ClassVar

from tot_lab.domains.puzzles.base import AssignmentPuzzle, board_text, read_square

_ROWS = r"((?:[1-9_](?: [1-9_]){3,8}(?:\n|\Z)){4,9})"
_ROW = re.compile(r"^[^\d\n]{0,8}(\d(?:[^\d\n]{0,8}\d){3,8})[^\d\n]{0,8}$", re.M)
_MOVE = re.compile(r"\brow\s{1,4}(\d),?\s{1,4}col(?:umn)?\s{1,4}(\d)\s{0,4}(?::|=|is)\s{0,4}(\d)\b", re.I)

_State = tuple[int, ...]  # the digits in reading order, 0 in an empty cell


class Sudoku(AssignmentPuzzle):
    """Sudoku. The variables are the cells. A move must not repeat a digit in a row, a column or a box."""

    kind = "gym/sudoku"
    move_form = (
        "A move fills an empty cell with a digit that is not in its row, its column or its box and is "
        "written like `row 1, column 3: 4`. Rows are counted from the top and columns from the left, "
        "both from 1."
    )
    blank = 0
    question: ClassVar[re.Pattern[str]] = re.compile(rf"Solve this Sudoku puzzle:\n{_ROWS}")

    def read_puzzle(self, text: str) -> _State | None:
        found = self.question.search(text)
        return _read(found[1].replace("_", "0").splitlines()) if found else None

    def values(self, puzzle: _State, state: _State, place: int) -> list[int]:
        taken = {state[other] for other in _seen(isqrt(len(state)), place)}
        return [digit for digit in range(1, isqrt(len(state)) + 1) if digit not in taken]

    def show(self, puzzle: _State, state: _State) -> str:
        return board_text([str(digit or "_") for digit in state], isqrt(len(state)))

    def write(self, puzzle: _State, move: tuple[int, int]) -> str:
        row, column = divmod(move[0], isqrt(len(puzzle)))
        return f"row {row + 1}, column {column + 1}: {move[1]}"

    def read_moves(self, puzzle: _State, text: str) -> Iterator[tuple[int, int]]:
        size = isqrt(len(puzzle))
        for row, column, digit in (map(int, found) for found in _MOVE.findall(text)):
            if 1 <= row <= size and 1 <= column <= size:
                yield (row - 1) * size + column - 1, digit

    def read_state(self, puzzle: _State, text: str) -> _State | None:
        return _read(_ROW.findall(text))


class MiniSudoku(Sudoku):
    """Sudoku on 4 × 4 cells."""

    kind = "gym/mini_sudoku"
    question = re.compile(rf"Solve this 4x4 Mini Sudoku puzzle:\n{_ROWS}")


def _read(rows: Sequence[str]) -> _State | None:
    lines = read_square(rows, "0123456789") if len(rows) in (4, 9) else None
    return tuple(map(int, "".join(lines))) if lines else None


@lru_cache(maxsize=128)
def _seen(size: int, cell: int) -> tuple[int, ...]:
    """Return the other cells in the row, the column and the box of a cell."""
    box, (row, column) = isqrt(size), divmod(cell, size)
    return tuple(
        other
        for other, (r, c) in enumerate(divmod(k, size) for k in range(size * size))
        if other != cell and (r == row or c == column or (r // box, c // box) == (row // box, column // box))
    )
