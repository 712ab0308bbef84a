"""Zebra puzzles: who lives in which house, and has what (`zebra_puzzles` of reasoning-gym)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tot_lab.core.task import Task
from tot_lab.domains.puzzles.base import AssignmentPuzzle, PuzzlePosition, solve

# Clues: relations between the houses of two items, or between the house of an item and a given house.

_CLUE = re.compile(r"^\d{1,3}\. ([^\n]{1,300})\.$", re.M)
_PLACE = re.compile(r"is in the (first|second|third|fourth|fifth|sixth|seventh) house$")
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh")
_IRREGULAR = {"swede": "swedish", "roses": "rose"}
_RELATIONS: dict[str, Callable[[int, int], bool]] = {
    " is directly left of ": lambda one, other: one + 1 == other,
    " are next to each other": lambda one, other: abs(one - other) == 1,
    " is ": lambda one, other: one == other,
}

Houses = tuple[int | None, ...]
"""The house of each item, counted from 0. `None` means undecided."""


class Clue(NamedTuple):
    """A relation in `_RELATIONS` between the houses of two items, or of one item and a given house."""

    relation: str
    item: int
    other: int | None = None
    house: int | None = None


def read_clues(text: str, items: Sequence[tuple[str, str]]) -> tuple[Clue, ...] | None:
    """Return the numbered clues in `text`. Returns `None` if one of them has an unknown form.

    Args:
        text: The puzzle.
        items: The kind and the name of each item. Clues write a child as `named NAME` or `mother of NAME`.
    """
    named: dict[str, int] = {}
    for number, (kind, item) in enumerate(items):
        word = _IRREGULAR.get(item, item).lower()
        for key in (f"named {word}", f"mother of {word}") if "child" in kind else (word,):
            named[key] = number
    longest_first = sorted(map(re.escape, named), key=len, reverse=True)
    words = re.compile(rf"\b(?:{'|'.join(longest_first)})", re.I)
    clues = [
        _clue(clue, [named[word.lower()] for word in words.findall(clue)]) for clue in _CLUE.findall(text)
    ]
    return tuple(filter(None, clues)) if all(clues) else None


def keeps(clues: Sequence[Clue], houses: Houses, item: int) -> bool:
    """Return whether `houses` satisfies the clues about `item`. Clues about undecided houses are skipped."""
    for clue in clues:
        if item in (clue.item, clue.other):
            one, other = houses[clue.item], clue.house if clue.other is None else houses[clue.other]
            if one is not None and other is not None and not _RELATIONS[clue.relation](one, other):
                return False
    return True


def _clue(text: str, items: Sequence[int]) -> Clue | None:
    """Return the clue in `text` about `items`. Returns `None` if it has an unknown form."""
    place = _PLACE.search(text)
    relation = next((words for words in _RELATIONS if words in text), None)
    if len(items) == 1 and place is not None:
        return Clue(" is ", items[0], house=_ORDINALS.index(place[1]))
    if len(items) != 2 or place is not None or relation is None or "somewhere" in text or "between" in text:
        return None
    return Clue(relation, *items)


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
    """The house, counted from 0, whose person the question asks for."""


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

    def write_answer(self, puzzle: Puzzle, position: PuzzlePosition) -> str:
        names = zip(puzzle.items, position.state[: puzzle.houses], strict=False)
        return next((name for name, house in names if house == puzzle.asked), "")

    def read_solution(self, puzzle: Puzzle, text: str) -> str | None:
        """Return the name of the person if `text` is that name and the clues imply it, else `None`."""
        name = text.strip().strip(".*`").strip().lower()
        plan = solve(self, puzzle, self.start(puzzle))
        state = tuple(house for _, house in sorted(plan.moves))
        right = self.write_answer(puzzle, PuzzlePosition(plan.moves, state))
        return right if plan.solvable and name == right.lower() else None

    def verify(self, task: Task, answer: str) -> bool | None:
        """Return whether the clues imply `answer`. `None` if the solver gave up or there is no puzzle."""
        puzzle = self.puzzle(task)
        if puzzle is None or solve(self, puzzle, self.start(puzzle)).solvable is None:
            return None
        return super().verify(task, answer)
