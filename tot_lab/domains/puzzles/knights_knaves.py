"""Knights and knaves: who tells the truth, and who lies (`knights_knaves` of reasoning-gym)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tot_lab.domains.puzzles.base import AssignmentPuzzle, Position
from tot_lab.domains.puzzles.statements import Assertion, Roles, Statement, read_statements, truth

_PEOPLE = re.compile(
    r"You meet \d{1,2} inhabitants: ([A-Z][a-z]{0,20}(?:,? (?:and )?[A-Z][a-z]{0,20}){0,9})\."
)
_ROLES = re.compile(r"So who is an? ([a-z]{1,20}) and who is an? ([a-z]{1,20})\?")
_NAME = re.compile(r"[A-Z][a-z]+")
_CLAIM = re.compile(r"\b([A-Za-z]{1,20})[ \t]{0,4}(?: is an?|:|=| is)[ \t]{1,4}([a-z]{1,20})\b", re.I)


class Puzzle(NamedTuple):
    """What each person says. The first role tells the truth."""

    names: tuple[str, ...]
    roles: tuple[str, str]
    statements: tuple[Statement, ...]


class KnightsKnaves(AssignmentPuzzle):
    """Knights and knaves. A move must not contradict a statement whose truth the roles so far decide."""

    kind = "gym/knights_knaves"
    move_form = (
        "A move decides about one person and is written like `Emma is a knight`, with the names and roles of "
        "the problem."
    )

    def read_puzzle(self, text: str) -> Puzzle | None:
        people, roles = _PEOPLE.search(text), _ROLES.search(text)
        if people is None or roles is None:
            return None
        names = tuple(_NAME.findall(people[1]))
        statements = read_statements(text[people.end() : roles.start()], names, roles[1])
        if statements is None or len(statements) != len(names):
            return None
        return Puzzle(names, (roles[1], roles[2]), statements)

    def start(self, puzzle: Puzzle) -> Roles:
        return (None,) * len(puzzle.names)

    def values(self, puzzle: Puzzle, state: Roles, place: int) -> list[bool]:
        return [
            honest
            for honest in (True, False)
            if _is_possible(puzzle, self.after(puzzle, state, (place, honest)))
        ]

    def show(self, puzzle: Puzzle, state: Roles) -> str:
        known = zip(puzzle.names, state, strict=True)
        return "\n".join(f"{name}: {'?' if role is None else puzzle.roles[not role]}" for name, role in known)

    def write(self, puzzle: Puzzle, move: Assertion) -> str:
        role = puzzle.roles[not move[1]]
        return f"{puzzle.names[move[0]]} is {'an' if role[0] in 'aeiou' else 'a'} {role}"

    def read_moves(self, puzzle: Puzzle, text: str) -> Iterator[Assertion]:
        names, roles = [name.lower() for name in puzzle.names], puzzle.roles
        for name, role in _CLAIM.findall(text):
            if name.lower() in names and role.lower() in roles:
                yield names.index(name.lower()), role.lower() == roles[0]

    def write_answer(self, puzzle: Puzzle, position: Position) -> str:
        known = [(person, role) for person, role in enumerate(position.state) if role is not None]
        *others, last = [self.write(puzzle, move) for move in known] or [""]
        return ", ".join([*others, f"and {last}" if others else last])


def _is_possible(puzzle: Puzzle, state: Roles) -> bool:
    """Return whether no person contradicts what that person says."""
    return all(
        role is None or truth(statement, state) in (0.5, role)
        for role, statement in zip(state, puzzle.statements, strict=True)
    )
