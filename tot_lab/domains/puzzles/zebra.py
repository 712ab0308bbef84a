"""Zebra puzzles: who lives in which house, and has what (`zebra_puzzles` of reasoning-gym)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tot_lab.domains.puzzles.base import AssignmentPuzzle, Position, solve

_HOUSES = re.compile(r"There are ([2-9]) houses \(numbered")
_KIND = re.compile(r"^ - ([^:\n]{1,80}): ([^\n]{1,400})$", re.M)
_CLUE = re.compile(r"^\d{1,3}\. ([^\n]{1,300})\.$", re.M)
_ASKED = re.compile(r"^What is Name of the person who lives in House (\d)\?", re.M)
_PLACE = re.compile(r"is in the (first|second|third|fourth|fifth|sixth|seventh) house$")
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh")
_IRREGULAR = {"swede": "swedish", "roses": "rose"}
_MOVE = re.compile(r"\bhouse\s{1,4}(\d)\s{0,4}[:=]\s{0,4}([a-z][a-z0-9 -]{0,30})", re.I)

_RELATIONS: tuple[tuple[str, Callable[[int, int], bool]], ...] = (
    (" is directly left of ", lambda one, other: one + 1 == other),
    (" are next to each other", lambda one, other: abs(one - other) == 1),
    (" is ", lambda one, other: one == other),
)

_State = tuple[int | None, ...]  # the house of each item, from 0
_Move = tuple[int, int]  # item, house


class Clue(NamedTuple):
    """A clue about one item and its house, or about two items and a relation in `_RELATIONS`."""

    item: int
    house: int
    other: int = -1
    relation: int = -1


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
        kinds = [
            (kind, items.split(", ")) for kind, items in _KIND.findall(text[houses.end() :] if houses else "")
        ]
        size = int(houses[1]) if houses else 0
        if asked is None or not kinds or any(len(items) != size for _, items in kinds):
            return None
        named: dict[str, int] = {}
        shown: list[str] = []
        for kind, items in kinds:
            child = "child" in kind
            for item in items:
                word = _IRREGULAR.get(item, item).lower()
                for key in (f"named {word}", f"mother of {word}") if child else (word,):
                    named[key] = len(shown)
                shown.append(f"child {item}" if child else item)
        words = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(named, key=len, reverse=True)))})", re.I)
        clues = [
            _clue(clue, [named[word.lower()] for word in words.findall(clue)]) for clue in _CLUE.findall(text)
        ]
        house = int(asked[1]) - 1
        return (
            Puzzle(size, tuple(shown), tuple(filter(None, clues)), house)
            if all(clues) and house < size
            else None
        )

    def start(self, puzzle: Puzzle) -> _State:
        return (None,) * len(puzzle.items)

    def moves(self, puzzle: Puzzle, state: _State) -> Iterator[_Move]:
        for item, house in enumerate(state):
            if house is None:
                yield from self._houses(puzzle, state, item)

    def choices(self, puzzle: Puzzle, state: _State) -> Sequence[_Move]:
        found = (self._houses(puzzle, state, item) for item, house in enumerate(state) if house is None)
        return min(found, key=len, default=[])

    def _houses(self, puzzle: Puzzle, state: _State, item: int) -> list[_Move]:
        first = item - item % puzzle.houses
        taken = state[first : first + puzzle.houses]
        free = [house for house in range(puzzle.houses) if house not in taken]
        return [
            (item, house) for house in free if _keeps(puzzle, self.after(puzzle, state, (item, house)), item)
        ]

    def after(self, puzzle: Puzzle, state: _State, move: _Move) -> _State:
        item, house = move
        return (*state[:item], house, *state[item + 1 :])

    def solved(self, puzzle: Puzzle, state: _State) -> bool:
        return None not in state

    def show(self, puzzle: Puzzle, state: _State) -> str:
        known = [
            [item for item, there in zip(puzzle.items, state, strict=True) if there == house]
            for house in range(puzzle.houses)
        ]
        return "\n".join(f"House {house}: {', '.join(items) or '?'}" for house, items in enumerate(known, 1))

    def write(self, puzzle: Puzzle, move: _Move) -> str:
        return f"House {move[1] + 1}: {puzzle.items[move[0]]}"

    def read_moves(self, puzzle: Puzzle, text: str) -> Iterator[_Move]:
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
        state = self.start(puzzle)
        for move in plan.moves:
            state = self.after(puzzle, state, move)
        right = self.write_answer(puzzle, Position(plan.moves, state))
        return right if plan.solvable and name == right.lower() else None

    def certain(self, puzzle: Puzzle) -> bool:
        return solve(self, puzzle, self.start(puzzle)).solvable is not None


def _clue(text: str, items: Sequence[int]) -> Clue | None:
    """Return the clue in `text` about `items`. Returns `None` if it has an unknown form."""
    place = _PLACE.search(text)
    if len(items) == 1 and place is not None:
        return Clue(items[0], _ORDINALS.index(place[1]))
    if len(items) == 2 and "somewhere" not in text and "between" not in text and place is None:
        return Clue(
            items[0], -1, items[1], next(k for k, (words, _) in enumerate(_RELATIONS) if words in text)
        )
    return None


def _keeps(puzzle: Puzzle, state: _State, item: int) -> bool:
    """Return whether `state` contradicts no clue about `item`."""
    for clue in puzzle.clues:
        if item not in (clue.item, clue.other):
            continue
        one = state[clue.item]
        if clue.other < 0:
            if one != clue.house:
                return False
            continue
        other = state[clue.other]
        if one is not None and other is not None and not _RELATIONS[clue.relation][1](one, other):
            return False
    return True
