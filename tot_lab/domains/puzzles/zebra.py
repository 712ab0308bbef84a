"""Zebra puzzles: who lives in which house, and has what (`zebra_puzzles` of reasoning-gym)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tot_lab.core.task import Task
from tot_lab.domains.puzzles.base import AssignmentPuzzle, Position, solve
from tot_lab.domains.puzzles.zebra_clues import Clue, Houses, keeps, read_clues

_HOUSES = re.compile(r"There are ([2-9]) houses \(numbered")
_KIND = re.compile(r"^ - ([^:\n]{1,80}): ([^\n]{1,400})$", re.M)
_ASKED = re.compile(r"^What is Name of the person who lives in House (\d)\?", re.M)
_MOVE = re.compile(r"\bhouse\s{1,4}(\d)\s{0,4}[:=]\s{0,4}([a-z][a-z0-9 -]{0,30})", re.I)


class Puzzle(NamedTuple):
    """The names of all items, ordered by kind. The people's names are the first kind."""

    houses: int
    items: tuple[str, ...]
    clues: tuple[Clue, ...]
    asked: int
    """The house, from 0, whose person is asked for."""


class Zebra(AssignmentPuzzle):
    """Zebra puzzles. A move must not contradict a clue whose items both have a house."""

    kind = "gym/zebra_puzzles"
    move_form = (
        "A move puts one item of the lists above into a house and is written like `House 2: tea`. A child is "
        "written like `House 2: child Alice`. A house has one item of each list."
    )

    def read_puzzle(self, text: str) -> Puzzle | None:
        houses, asked = _HOUSES.search(text), _ASKED.search(text)
        if houses is None or asked is None:
            return None
        size, house = int(houses[1]), int(asked[1]) - 1
        kinds = [(kind, items.split(", ")) for kind, items in _KIND.findall(text, houses.end())]
        if not kinds or any(len(items) != size for _, items in kinds) or not 0 <= house < size:
            return None
        items = [(kind, item) for kind, names in kinds for item in names]
        clues = read_clues(text, items)
        shown = tuple(f"child {item}" if "child" in kind else item for kind, item in items)
        return None if clues is None else Puzzle(size, shown, clues, house)

    def start(self, puzzle: Puzzle) -> Houses:
        return (None,) * len(puzzle.items)

    def values(self, puzzle: Puzzle, state: Houses, place: int) -> list[int]:
        first = place - place % puzzle.houses
        taken = state[first : first + puzzle.houses]
        free = [house for house in range(puzzle.houses) if house not in taken]
        return [
            house for house in free if keeps(puzzle.clues, self.after(puzzle, state, (place, house)), place)
        ]

    def show(self, puzzle: Puzzle, state: Houses) -> str:
        known = [
            [item for item, there in zip(puzzle.items, state, strict=True) if there == house]
            for house in range(puzzle.houses)
        ]
        return "\n".join(f"House {house}: {', '.join(items) or '?'}" for house, items in enumerate(known, 1))

    def write(self, puzzle: Puzzle, move: tuple[int, int]) -> str:
        return f"House {move[1] + 1}: {puzzle.items[move[0]]}"

    def read_moves(self, puzzle: Puzzle, text: str) -> Iterator[tuple[int, int]]:
        items = {item.lower(): k for k, item in enumerate(puzzle.items)}
        for house, item in _MOVE.findall(text):
            name = " ".join(item.lower().split())
            if name in items:
                yield items[name], int(house) - 1

    def write_answer(self, puzzle: Puzzle, position: Position) -> str:
        names = zip(puzzle.items, position.state[: puzzle.houses], strict=False)
        return next((name for name, house in names if house == puzzle.asked), "")

    def read_solution(self, puzzle: Puzzle, text: str) -> str | None:
        """Return the name that an answer consists of, if the clues imply it."""
        name = text.strip().strip(".*`").strip().lower()
        plan = solve(self, puzzle, self.start(puzzle))
        state = tuple(house for _, house in sorted(plan.moves))
        right = self.write_answer(puzzle, Position(plan.moves, state))
        return right if plan.solvable and name == right.lower() else None

    def verify(self, task: Task, answer: str) -> bool | None:
        """Return whether the clues imply `answer`. Returns `None` if the solver gave up."""
        puzzle = self.puzzle(task)
        if puzzle is None or solve(self, puzzle, self.start(puzzle)).solvable is None:
            return None
        return super().verify(task, answer)
