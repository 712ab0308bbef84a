"""Water jugs: fill, empty and pour until a jug holds the target amount (`jugs` of reasoning-gym)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from string import ascii_uppercase as LETTERS
from typing import NamedTuple

from tot_lab.domains.puzzles.base import PuzzleDomain, PuzzlePosition

_QUESTION = re.compile(r"litres of water: ([^\n]{1,400})\n[^\n]{0,40}target is: (\d{1,4}) litres")
_JUG = re.compile(r"([A-Z]):(\d{1,4})\b")
_MOVE = re.compile(
    r"\b(?:(fill|empty)\s{1,4}(?:jug )?([A-Z])|pour\s{1,4}([A-Z])\s{0,4}(?:->|→|to|into)\s{0,4}([A-Z]))\b"
)

_State = tuple[int, ...]
_Move = tuple[str, int, int]  # the action, the jug, and the jug that is poured into (or the same jug)


class Puzzle(NamedTuple):
    """The capacities of the jugs, and the amount to reach."""

    capacities: tuple[int, ...]
    target: int


class Jugs(PuzzleDomain):
    """Water jugs. A state is the amount in each jug."""

    kind = "gym/jugs"
    move_form = "A move is one of `fill A`, `empty A` and `pour A->B`, with the letters of the jugs."

    def read_puzzle(self, text: str) -> Puzzle | None:
        found = _QUESTION.search(text)
        jugs = _JUG.findall(found[1]) if found else []
        if found is None or not jugs or not LETTERS.startswith("".join(letter for letter, _ in jugs)):
            return None
        return Puzzle(tuple(int(size) for _, size in jugs), int(found[2]))

    def start(self, puzzle: Puzzle) -> _State:
        return (0,) * len(puzzle.capacities)

    def moves(self, puzzle: Puzzle, state: _State) -> Iterator[_Move]:
        jugs = range(len(state))
        yield from (("fill", jug, jug) for jug in jugs)
        yield from (("empty", jug, jug) for jug in jugs)
        yield from (("pour", jug, other) for jug in jugs for other in jugs if jug != other)

    def after(self, puzzle: Puzzle, state: _State, move: _Move) -> _State:
        what, jug, other = move
        new = list(state)
        if what == "pour":
            amount = min(state[jug], puzzle.capacities[other] - state[other])
            new[jug] -= amount
            new[other] += amount
        else:
            new[jug] = puzzle.capacities[jug] if what == "fill" else 0
        return tuple(new)

    def solved(self, puzzle: Puzzle, state: _State) -> bool:
        return puzzle.target in state

    def show(self, puzzle: Puzzle, state: _State) -> str:
        jugs = zip(LETTERS, state, puzzle.capacities, strict=False)
        return "\n".join(f"{jug}: {amount} of {size}" for jug, amount, size in jugs)

    def write(self, puzzle: Puzzle, move: _Move) -> str:
        what, jug, other = move
        return f"{what} {LETTERS[jug]}" + (f"->{LETTERS[other]}" if what == "pour" else "")

    def read_moves(self, puzzle: Puzzle, text: str) -> Iterator[_Move]:
        for what, jug, source, other in _MOVE.findall(text):
            yield what or "pour", LETTERS.index(jug or source), LETTERS.index(other or jug)

    def write_answer(self, puzzle: Puzzle, position: PuzzlePosition) -> str:
        return json.dumps([self.write(puzzle, move) for move in position.moves])
