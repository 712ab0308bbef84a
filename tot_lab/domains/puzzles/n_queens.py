"""N queens: place queens that do not attack each other (`n_queens` of reasoning-gym)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tot_lab.domains.puzzles.base import AssignmentPuzzle, Position

_QUESTION = re.compile(r"no two queens attack each other\.\n((?:[_Q](?: [_Q]){3,15}(?:\n|\Z)){4,16})")
_ROW = re.compile(r"^[ \t`]{0,8}([_Q](?:[ \t]?[_Q]){3,15})[ \t`]{0,8}$", re.M)
_MOVE = re.compile(r"\brow\s{1,4}(\d{1,2}),?\s{1,4}col(?:umn)?\s{1,4}(\d{1,2})\b", re.I)

_State = tuple[int | None, ...]  # the column of the queen in each row
_Move = tuple[int, int]  # row, column


class NQueens(AssignmentPuzzle):
    """N queens. A puzzle is its first state."""

    kind = "gym/n_queens"
    move_form = (
        "A move places a queen that no other queen attacks and is written like `row 2, column 5`. Rows are "
        "counted from the top and columns from the left, both from 1."
    )

    def read_puzzle(self, text: str) -> _State | None:
        found = _QUESTION.search(text)
        return _read(found[1]) if found else None

    def start(self, puzzle: _State) -> _State:
        return puzzle

    def moves(self, puzzle: _State, state: _State) -> Iterator[_Move]:
        for row, queen in enumerate(state):
            if queen is None:
                yield from ((row, column) for column in range(len(state)) if _free(state, row, column))

    def choices(self, puzzle: _State, state: _State) -> Sequence[_Move]:
        size = range(len(state))
        free = [
            [(row, column) for column in size if _free(state, row, column)]
            for row in size
            if state[row] is None
        ]
        return min(free, key=len, default=[])

    def after(self, puzzle: _State, state: _State, move: _Move) -> _State:
        row, column = move
        return (*state[:row], column, *state[row + 1 :])

    def solved(self, puzzle: _State, state: _State) -> bool:
        return all(
            queen is not None and _free((*state[:row], None, *state[row + 1 :]), row, queen)
            for row, queen in enumerate(state)
        )

    def show(self, puzzle: _State, state: _State) -> str:
        size = range(len(state))
        return "\n".join(" ".join("Q" if queen == column else "_" for column in size) for queen in state)

    def write(self, puzzle: _State, move: _Move) -> str:
        return f"row {move[0] + 1}, column {move[1] + 1}"

    def read_moves(self, puzzle: _State, text: str) -> Iterator[_Move]:
        return ((int(row) - 1, int(column) - 1) for row, column in _MOVE.findall(text))

    def write_answer(self, puzzle: _State, position: Position) -> str:
        return self.show(puzzle, position.state)

    def read_solution(self, puzzle: _State, text: str) -> str | None:
        """Return the board of an answer, with all queens of the puzzle."""
        state = _read("\n".join(_ROW.findall(text)))
        if state is None or len(state) != len(puzzle) or not self.solved(puzzle, state):
            return None
        kept = all(old in (None, new) for old, new in zip(puzzle, state, strict=True))
        return self.show(puzzle, state) if kept else None


def _read(board: str) -> _State | None:
    """Return the state of a square board with at most one queen in a row."""
    rows = ["".join(row.split()) for row in board.splitlines()]
    if not rows or any(len(row) != len(rows) or row.count("Q") > 1 for row in rows):
        return None
    return tuple(row.index("Q") if "Q" in row else None for row in rows)


def _free(state: _State, row: int, column: int) -> bool:
    """Return whether no queen attacks a place."""
    return all(
        queen is None or (queen != column and abs(queen - column) != abs(other - row))
        for other, queen in enumerate(state)
        if other != row
    )
