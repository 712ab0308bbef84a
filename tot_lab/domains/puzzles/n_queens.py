"""N queens: place queens that do not attack each other (`n_queens` of reasoning-gym)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tot_lab.core.task import Task
from tot_lab.domains.puzzles.base import AssignmentPuzzle, board_text, read_square

_QUESTION = re.compile(r"no two queens attack each other\.\n((?:[_Q](?: [_Q]){3,15}(?:\n|\Z)){4,16})")
_ROW = re.compile(r"^[ \t`]{0,8}([_Q](?:[ \t]?[_Q]){3,15})[ \t`]{0,8}$", re.M)
_MOVE = re.compile(r"\brow\s{1,4}(\d{1,2}),?\s{1,4}col(?:umn)?\s{1,4}(\d{1,2})\b", re.I)

_State = tuple[int | None, ...]  # the column of the queen in each row


class NQueens(AssignmentPuzzle):
    """N queens. The variables are the rows, and their values are the columns of the queens."""

    kind = "gym/n_queens"
    move_form = (
        "A move places a queen that no other queen attacks and is written like `row 2, column 5`. Rows are "
        "counted from the top and columns from the left, both from 1."
    )

    def read_puzzle(self, text: str) -> _State | None:
        found = _QUESTION.search(text)
        return _read(found[1].splitlines()) if found else None

    def expected(self, task: Task) -> None:
        """Return `None`: a board can have several solutions."""

    def values(self, puzzle: _State, state: _State, place: int) -> list[int]:
        queens = [(row, column) for row, column in enumerate(state) if column is not None]
        return [
            free
            for free in range(len(state))
            if all(free != column and abs(free - column) != abs(place - row) for row, column in queens)
        ]

    def show(self, puzzle: _State, state: _State) -> str:
        size = len(state)
        return board_text(
            ["Q" if queen == column else "_" for queen in state for column in range(size)], size
        )

    def write(self, puzzle: _State, move: tuple[int, int]) -> str:
        return f"row {move[0] + 1}, column {move[1] + 1}"

    def read_moves(self, puzzle: _State, text: str) -> Iterator[tuple[int, int]]:
        return ((int(row) - 1, int(column) - 1) for row, column in _MOVE.findall(text))

    def read_state(self, puzzle: _State, text: str) -> _State | None:
        return _read(_ROW.findall(text))


def _read(rows: Sequence[str]) -> _State | None:
    """Return the state of a square board. `None` if it is not square or a row has two queens."""
    lines = read_square(rows, "_Q")
    if not lines or any(line.count("Q") > 1 for line in lines):
        return None
    return tuple(line.index("Q") if "Q" in line else None for line in lines)
