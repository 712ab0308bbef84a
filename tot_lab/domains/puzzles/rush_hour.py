"""Rush Hour: slide cars until the red one, A, reaches the exit (`rush_hour` of reasoning-gym)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from string import ascii_uppercase as LETTERS
from typing import NamedTuple

from tot_lab.domains.puzzles.base import PuzzleDomain, board_text

_WIDTH = 8  # cells, the first and the last being walls
_QUESTION = re.compile(r"Move the red car \(AA\) to the exit[^~]{0,2000}?Board:\n((?:[A-Zx.]{6}\n?){6})")
_MOVE = re.compile(r"\b([A-Z])\1{0,2}\s{0,4}([+-])\s{0,4}(\d{1,9})\b")

_State = tuple[int, ...]  # the first cell of each car
_Move = tuple[int, int]  # the car, and the cells it moves right or down


class Puzzle(NamedTuple):
    """A board with walls around it, and its first state. Cells are numbered from 0 in reading order."""

    first: _State
    cars: tuple[tuple[int, int], ...]
    """The length of each car, and the difference between the numbers of its neighbouring cells: 1 or 8."""
    walls: frozenset[int]


def read_board(board: str) -> Puzzle | None:
    """Return the puzzle of a board of 6 × 6 cells: letters of cars, `x` (wall) and `.` (free), without line
    ends. Returns `None` for any other board.
    """
    rows = ["xxxxxx", *(board[first : first + 6] for first in range(0, 36, 6)), "xxxxxx"]
    walled = "".join(f"x{row}x" for row in rows)
    letters = sorted({*walled} - {"x", "."})
    cars = [[cell for cell, sign in enumerate(walled) if sign == letter] for letter in letters]
    if not cars or not LETTERS.startswith("".join(letters)) or any(len(car) not in (2, 3) for car in cars):
        return None
    walls = frozenset(cell for cell, sign in enumerate(walled) if sign == "x")
    shapes = tuple((len(car), car[1] - car[0]) for car in cars)
    puzzle = Puzzle(tuple(car[0] for car in cars), shapes, walls)
    straight = [[*cells] for cells in _cells(puzzle, puzzle.first)] == cars
    steps = [step for _, step in shapes]
    return puzzle if straight and {*steps} <= {1, _WIDTH} and steps[0] == 1 else None


class RushHour(PuzzleDomain):
    """Rush Hour on a board of 6 × 6 cells. A car may pass only free cells."""

    kind = "gym/rush_hour"
    move_form = (
        "A move slides one car over free cells and is written like `F+1` or `M-2`: the letter of the car, "
        "and the number of cells to the right or down (+), or to the left or up (-)."
    )
    separator = " "

    def read_puzzle(self, text: str) -> Puzzle | None:
        found = _QUESTION.search(text)
        return read_board(found[1].replace("\n", "")) if found else None

    def start(self, puzzle: Puzzle) -> _State:
        return puzzle.first

    def moves(self, puzzle: Puzzle, state: _State) -> Iterator[_Move]:
        cars = _cells(puzzle, state)
        taken = puzzle.walls.union(*cars)
        for car, cells in enumerate(cars):
            for sign, end in ((1, cells[-1]), (-1, cells[0])):
                for count in range(1, _WIDTH):
                    if end + sign * count * cells.step in taken:
                        break
                    yield car, sign * count

    def after(self, puzzle: Puzzle, state: _State, move: _Move) -> _State:
        car, count = move
        return (*state[:car], state[car] + count * puzzle.cars[car][1], *state[car + 1 :])

    def solved(self, puzzle: Puzzle, state: _State) -> bool:
        return state[0] % _WIDTH + puzzle.cars[0][0] == _WIDTH - 1

    def show(self, puzzle: Puzzle, state: _State) -> str:
        signs = ["x" if cell in puzzle.walls else "." for cell in range(_WIDTH * _WIDTH)]
        for letter, cells in zip(LETTERS, _cells(puzzle, state), strict=False):
            for cell in cells:
                signs[cell] = letter
        rows = board_text(signs, _WIDTH, "").splitlines()
        return "\n".join(row[1:-1] for row in rows[1:-1])

    def write(self, puzzle: Puzzle, move: _Move) -> str:
        return f"{LETTERS[move[0]]}{move[1]:+d}"

    def read_moves(self, puzzle: Puzzle, text: str) -> Iterator[_Move]:
        return ((LETTERS.index(car), int(sign + count)) for car, sign, count in _MOVE.findall(text))


def _cells(puzzle: Puzzle, state: _State) -> list[range]:
    """Return the cells of each car."""
    return [
        range(cell, cell + length * step, step)
        for cell, (length, step) in zip(state, puzzle.cars, strict=True)
    ]
