"""The Tower of Hanoi with three or more pegs (`tower_of_hanoi` of reasoning-gym)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tot_lab.domains.puzzles.base import PuzzleDomain

_QUESTION = re.compile(
    r"Tower of Hanoi problem with ([1-9]\d?) disks and (\d{1,2}) pegs\.\s{1,4}"
    r"Move all disks from Peg (\d{1,2}) to Peg (\d{1,2})\b"
)
_MOVE = re.compile(
    r"\bdisk\s{1,4}(\d{1,2})\s{1,4}from\s{1,4}peg\s{1,4}(\d{1,2})\s{1,4}to\s{1,4}peg\s{1,4}(\d{1,2})\b", re.I
)

_State = tuple[int, ...]  # the peg of each disk, from the smallest disk to the largest
_Move = tuple[int, int, int]  # disk, from, to


class Puzzle(NamedTuple):
    """The numbers of disks and pegs, and the pegs on which the disks are at first and at last.

    Disks and pegs are numbered from 1, and disk 1 is the smallest.
    """

    disks: int
    pegs: int
    first: int
    last: int


class TowerOfHanoi(PuzzleDomain):
    """The Tower of Hanoi. Every answer that reaches the goal is right, not only the shortest."""

    kind = "gym/tower_of_hanoi"
    move_form = (
        "A move takes the top disk of one peg to another peg and is written like "
        "`Move disk 1 from Peg 1 to Peg 3`."
    )
    separator = "\n"

    def read_puzzle(self, text: str) -> Puzzle | None:
        found = _QUESTION.search(text)
        puzzle = Puzzle(*map(int, found.groups())) if found else Puzzle(0, 0, 0, 0)
        return puzzle if {puzzle.first, puzzle.last} <= {*range(1, puzzle.pegs + 1)} else None

    def start(self, puzzle: Puzzle) -> _State:
        return (puzzle.first,) * puzzle.disks

    def moves(self, puzzle: Puzzle, state: _State) -> Iterator[_Move]:
        tops = {peg: state.index(peg) + 1 for peg in dict.fromkeys(state)}
        for peg, disk in tops.items():
            for other in range(1, puzzle.pegs + 1):
                if disk < tops.get(other, puzzle.disks + 1):
                    yield disk, peg, other

    def after(self, puzzle: Puzzle, state: _State, move: _Move) -> _State:
        disk, _, peg = move
        return (*state[: disk - 1], peg, *state[disk:])

    def solved(self, puzzle: Puzzle, state: _State) -> bool:
        return all(peg == puzzle.last for peg in state)

    def show(self, puzzle: Puzzle, state: _State) -> str:
        """Return the disks of each peg, from the bottom to the top."""
        on: dict[int, list[str]] = {peg: [] for peg in range(1, puzzle.pegs + 1)}
        for disk in range(puzzle.disks, 0, -1):
            on[state[disk - 1]].append(str(disk))
        return "\n".join(f"Peg {peg}: {' '.join(disks) or '-'}" for peg, disks in on.items())

    def write(self, puzzle: Puzzle, move: _Move) -> str:
        return "Move disk {} from Peg {} to Peg {}".format(*move)

    def read_moves(self, puzzle: Puzzle, text: str) -> Iterator[_Move]:
        return ((int(disk), int(peg), int(other)) for disk, peg, other in _MOVE.findall(text))
