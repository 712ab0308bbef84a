"""Knights and knaves: who tells the truth, and who lies (`knights_knaves` of reasoning-gym)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tot_lab.domains.puzzles.base import AssignmentPuzzle, PuzzlePosition

# Parsing and evaluating statements. A statement is stored in postfix order. Some people may not have a role
# yet, so a statement is true, false or undecided.

_WORD = re.compile(
    r"\(|\)|it is not the case that|if and only if|\b(?:if|then|and|or)\b|"
    r"\b[A-Z][a-z]{0,20} is an? [a-z]{1,20}",
    re.I,
)

_NOT = "it is not the case that"
_STRENGTH = {")": 0, "if and only if": 1, "then": 2, "or": 3, "and": 4, _NOT: 5}
_TRUTH: dict[str, Callable[[float, float], float]] = {
    "if and only if": lambda a, b: min(max(1 - a, b), max(a, 1 - b)),
    "then": lambda a, b: max(1 - a, b),
    "or": max,
    "and": min,
}
"""The function that computes each operator from the truth values 1 (true), 0 (false) and 0.5 (undecided), by
Kleene's strong three-valued logic."""

Roles = tuple[bool | None, ...]
"""Whether each person tells the truth. `None` means undecided."""

Assertion = tuple[int, bool]
"""A person, and whether that person tells the truth."""

Statement = tuple[str | Assertion, ...]
"""Assertions and operators in postfix order."""


def read_statements(text: str, names: Sequence[str], knight: str) -> tuple[Statement, ...] | None:
    """Return the statements in `text`. Returns `None` if one of them is not valid.

    Args:
        text: What the people say, in order.
        names: Names of the people.
        knight: The word for a person who tells the truth.
    """
    statements = [_postfix(words, names, knight) for words in _runs(text)]
    return tuple(filter(None, statements)) if all(statements) else None


def truth(statement: Statement, roles: Roles) -> float:
    """Return whether a statement is true: 1, 0, or 0.5 if `roles` do not decide it."""
    stack: list[float] = []
    for part in statement:
        if isinstance(part, tuple):
            role = roles[part[0]]
            stack.append(0.5 if role is None else float(role == part[1]))
        elif part == _NOT:
            stack.append(1 - stack.pop())
        else:
            last = stack.pop()
            stack.append(_TRUTH[part](stack.pop(), last))
    return stack[0]


def _runs(text: str) -> Iterator[list[str]]:
    """Yield the statements in `text`, each as a list of its words."""
    words: list[str] = []
    end = 0
    for match in [*_WORD.finditer(text), None]:
        if match is None or text[end : match.start()].strip():
            if any(" is a" in word for word in words):
                yield words
            words = []
        if match is not None:
            words.append(match[0])
            end = match.end()


def _postfix(words: Sequence[str], names: Sequence[str], knight: str) -> Statement | None:
    """Convert a statement to postfix order, with a stack of operators. Returns `None` if it is not valid."""
    done: list[str | Assertion] = []
    waiting = ["("]
    for word in [*words, ")"]:
        operator = word.lower()
        if " is a" in word:
            name, _, role = word.partition(" is a")
            if name not in names:
                return None
            done.append((names.index(name), role.split()[-1] == knight))
        elif operator in _STRENGTH:
            while waiting and waiting[-1] != "(" and _STRENGTH[operator] <= min(_STRENGTH[waiting[-1]], 4):
                done.append(waiting.pop())
            if operator != ")":
                waiting.append(operator)
            elif not waiting or waiting.pop() != "(":
                return None
        elif operator == "(":
            waiting.append(operator)
    operands = 0
    for part in done:
        operands += 1 if isinstance(part, tuple) else 0 if part == _NOT else -1
        if operands < 1:
            return None
    return tuple(done) if operands == 1 and not waiting else None


_PEOPLE = re.compile(
    r"You meet \d{1,2} inhabitants: ([A-Z][a-z]{0,20}(?:,? (?:and )?[A-Z][a-z]{0,20}){0,9})\."
)
_ROLES = re.compile(r"So who is an? ([a-z]{1,20}) and who is an? ([a-z]{1,20})\?")
_NAME = re.compile(r"[A-Z][a-z]+")
_CLAIM = re.compile(r"\b([A-Za-z]{1,20})[ \t]{0,4}(?: is an?|:|=| is)[ \t]{1,4}([a-z]{1,20})\b", re.I)


class Puzzle(NamedTuple):
    """The statements of all persons. A person with the first of the two roles tells the truth."""

    names: tuple[str, ...]
    roles: tuple[str, str]
    statements: tuple[Statement, ...]


class KnightsKnaves(AssignmentPuzzle):
    """Knights and knaves. After a legal move, the roles so far neither make the statement of a knight false
    nor that of a knave true.
    """

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

    def write_answer(self, puzzle: Puzzle, position: PuzzlePosition) -> str:
        known = [(person, role) for person, role in enumerate(position.state) if role is not None]
        *others, last = [self.write(puzzle, move) for move in known] or [""]
        return ", ".join([*others, f"and {last}" if others else last])


def _is_possible(puzzle: Puzzle, state: Roles) -> bool:
    """Return whether the role of each person is consistent with the statement of that person."""
    return all(
        role is None or truth(statement, state) in (0.5, role)
        for role, statement in zip(state, puzzle.statements, strict=True)
    )
