"""The Tower of Hanoi with three or more pegs (`tower_of_hanoi` of reasoning-gym)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tot_lab.domains.puzzles.base import Position, PuzzleDomain

_QUESTION = re.compile(
    r"Tower of Hanoi problem with (\d{1,2}) disks and (\d{1,2}) pegs\.\s{1,4}"
    r"Move all disks from Peg (\d{1,2}) to Peg (\d{1,2})\b"
)
_MOVE = re.compile(
    r"\bdisk\s{1,4}(\d{1,2})\s{1,4}from\s{1,4}peg\s{1,4}(\d{1,2})\s{1,4}to\s{1,4}peg\s{1,4}(\d{1,2})\b", re.I
)

_State = tuple[int, ...]  # the peg of each disk, from the smallest disk to the largest
_Move = tuple[int, int, int]  # disk, from, to


class Puzzle(NamedTuple):
    """Disks and pegs are numbered from 1, and disk 1 is the smallest."""

    disks: int
    pegs: int
    first: int
    last: int


class TowerOfHanoi(PuzzleDomain):
    """The Tower of Hanoi. An answer that reaches the goal is right, also if it is not the shortest."""

    kind = "gym/tower_of_hanoi"
    move_form = (
        "A move takes the top disk of one peg to another peg and is written like "
        "`Move disk 1 from Peg 1 to Peg 3`."
    )

    def read_puzzle(self, text: str) -> Puzzle | None:
        found = _QUESTION.search(text)
        puzzle = Puzzle(*map(int, found.groups())) if found else None
        if (
            puzzle is None
            or not puzzle.disks
            or not {puzzle.first, puzzle.last} <= {*range(1, puzzle.pegs + 1)}
        ):
            return None
        return puzzle

    def start(self, puzzle: Puzzle) -> _State:
        return (puzzle.first,) * puzzle.disks

    def moves(self, puzzle: Puzzle, state: _State) -> Iterator[_Move]:
        tops: dict[int, int] = {}
        for disk, peg in enumerate(state, 1):
            tops.setdefault(peg, disk)
        for disk, peg in ((disk, peg) for peg, disk in tops.items()):
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
        disks = range(puzzle.disks, 0, -1)
        on = {
            peg: [str(disk) for disk in disks if state[disk - 1] == peg] for peg in range(1, puzzle.pegs + 1)
        }
        return "\n".join(f"Peg {peg}: {' '.join(there) or '-'}" for peg, there in on.items())

    def write(self, puzzle: Puzzle, move: _Move) -> str:
        return "Move disk {} from Peg {} to Peg {}".format(*move)

    def read_moves(self, puzzle: Puzzle, text: str) -> Iterator[_Move]:
        for disk, peg, other in _MOVE.findall(text):
            yield int(disk), int(peg), int(other)

    def write_answer(self, puzzle: Puzzle, position: Position) -> str:
        return "\n".join(self.write(puzzle, move) for move in position.moves)
