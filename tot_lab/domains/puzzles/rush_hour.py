"""Rush Hour: slide cars until the red one, A, reaches the exit (`rush_hour` of reasoning-gym)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tot_lab.domains.puzzles.base import Position, PuzzleDomain

_SIZE = 6
_QUESTION = re.compile(r"Move the red car \(AA\) to the exit[^~]{0,2000}?Board:\n((?:[A-Zx.]{6}\n?){6})")
_MOVE = re.compile(r"\b([A-Z])\s{0,4}([+-])\s{0,4}(\d)\b")

_State = tuple[int, ...]  # the first cell of each car
_Move = tuple[int, int]  # the car, and the cells it moves right or down


class Puzzle(NamedTuple):
    """Cells are numbered from 0 in reading order."""

    first: _State
    cars: tuple[tuple[int, int], ...]
    """The length of each car in cells, and the step from one cell to the next: 1 or 6."""
    walls: frozenset[int]


class RushHour(PuzzleDomain):
    """Rush Hour on a board of 6 × 6 cells. A car may pass only free cells."""

    kind = "gym/rush_hour"
    move_form = (
        "A move slides one car over free cells and is written like `F+1` or `M-2`: the letter of the car, "
        "and the number of cells to the right or down (+), or to the left or up (-)."
    )

    def read_puzzle(self, text: str) -> Puzzle | None:
        found = _QUESTION.search(text)
        board = found[1].replace("\n", "") if found else ""
        letters = sorted({*board} - {"x", "."})
        cells = [[k for k, there in enumerate(board) if there == letter] for letter in letters]
        steps = [there[1] - there[0] if len(there) in (2, 3) else 0 for there in cells]
        straight = all(
            step in (1, _SIZE) and there == [*range(there[0], there[-1] + 1, step)]
            for there, step in zip(cells, steps, strict=True)
        )
        if (
            not straight
            or "".join(letters) != "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[: len(letters)]
            or steps[:1] != [1]
        ):
            return None
        cars = tuple((len(there), step) for there, step in zip(cells, steps, strict=True))
        walls = frozenset(k for k, there in enumerate(board) if there == "x")
        return Puzzle(tuple(there[0] for there in cells), cars, walls)

    def start(self, puzzle: Puzzle) -> _State:
        return puzzle.first

    def moves(self, puzzle: Puzzle, state: _State) -> Iterator[_Move]:
        taken = set(puzzle.walls)
        for cell, (length, step) in zip(state, puzzle.cars, strict=True):
            taken.update(range(cell, cell + length * step, step))
        for car, (cell, (length, step)) in enumerate(zip(state, puzzle.cars, strict=True)):
            place = cell % _SIZE if step == 1 else cell // _SIZE
            for count in range(1, _SIZE - length - place + 1):
                if cell + (length - 1 + count) * step in taken:
                    break
                yield car, count
            for count in range(1, place + 1):
                if cell - count * step in taken:
                    break
                yield car, -count

    def after(self, puzzle: Puzzle, state: _State, move: _Move) -> _State:
        car, count = move
        return (*state[:car], state[car] + count * puzzle.cars[car][1], *state[car + 1 :])

    def solved(self, puzzle: Puzzle, state: _State) -> bool:
        return state[0] % _SIZE + puzzle.cars[0][0] == _SIZE

    def show(self, puzzle: Puzzle, state: _State) -> str:
        board = ["x" if cell in puzzle.walls else "." for cell in range(_SIZE * _SIZE)]
        for car, (cell, (length, step)) in enumerate(zip(state, puzzle.cars, strict=True)):
            for k in range(length):
                board[cell + k * step] = chr(65 + car)
        return "\n".join("".join(board[k : k + _SIZE]) for k in range(0, len(board), _SIZE))

    def write(self, puzzle: Puzzle, move: _Move) -> str:
        return f"{chr(65 + move[0])}{move[1]:+d}"

    def read_moves(self, puzzle: Puzzle, text: str) -> Iterator[_Move]:
        for letter, sign, count in _MOVE.findall(text):
            yield ord(letter) - 65, int(sign + count)

    def write_answer(self, puzzle: Puzzle, position: Position) -> str:
        return " ".join(self.write(puzzle, move) for move in position.moves)
