"""Knights and knaves: who tells the truth, and who lies (`knights_knaves` of reasoning-gym)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tot_lab.domains.puzzles.base import AssignmentPuzzle, Position

_PEOPLE = re.compile(
    r"You meet \d{1,2} inhabitants: ([A-Z][a-z]{0,20}(?:,? (?:and )?[A-Z][a-z]{0,20}){0,9})\."
)
_ROLES = re.compile(r"So who is an? ([a-z]{1,20}) and who is an? ([a-z]{1,20})\?")
_NAME = re.compile(r"[A-Z][a-z]+")
_WORD = re.compile(
    r"\(|\)|it is not the case that|if and only if|\b(?:if|then|and|or)\b|"
    r"\b[A-Z][a-z]{0,20} is an? [a-z]{1,20}",
    re.I,
)
_CLAIM = re.compile(r"\b([A-Za-z]{1,20})[ \t]{0,4}(?: is an?|:|=| is)[ \t]{1,4}([a-z]{1,20})\b", re.I)

_STRENGTH = {"if and only if": 1, "then": 2, "or": 3, "and": 4, "it is not the case that": 5}

_State = tuple[bool | None, ...]  # whether each person tells the truth
_Move = tuple[int, bool]
_Statement = tuple[str | _Move, ...]  # in postfix order


class Puzzle(NamedTuple):
    """What each person says. The first role tells the truth."""

    names: tuple[str, ...]
    roles: tuple[str, str]
    statements: tuple[_Statement, ...]


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
        names = tuple(name for name in _NAME.findall(people[1]))
        spoken = text[people.end() : roles.start()]
        statements = [_postfix(words, names, roles[1]) for words in _runs(spoken)]
        if len(statements) != len(names) or not all(statements):
            return None
        return Puzzle(names, (roles[1], roles[2]), tuple(filter(None, statements)))

    def start(self, puzzle: Puzzle) -> _State:
        return (None,) * len(puzzle.names)

    def moves(self, puzzle: Puzzle, state: _State) -> Iterator[_Move]:
        for person, role in enumerate(state):
            if role is None:
                yield from self._choices(puzzle, state, person)

    def choices(self, puzzle: Puzzle, state: _State) -> Sequence[_Move]:
        return list(self._choices(puzzle, state, state.index(None))) if None in state else []

    def _choices(self, puzzle: Puzzle, state: _State, person: int) -> Iterator[_Move]:
        for honest in (True, False):
            if _possible(puzzle, self.after(puzzle, state, (person, honest))):
                yield person, honest

    def after(self, puzzle: Puzzle, state: _State, move: _Move) -> _State:
        person, honest = move
        return (*state[:person], honest, *state[person + 1 :])

    def solved(self, puzzle: Puzzle, state: _State) -> bool:
        return None not in state and _possible(puzzle, state)

    def show(self, puzzle: Puzzle, state: _State) -> str:
        known = zip(puzzle.names, state, strict=True)
        return "\n".join(f"{name}: {'?' if role is None else puzzle.roles[not role]}" for name, role in known)

    def write(self, puzzle: Puzzle, move: _Move) -> str:
        role = puzzle.roles[not move[1]]
        return f"{puzzle.names[move[0]]} is {'an' if role[0] in 'aeiou' else 'a'} {role}"

    def read_moves(self, puzzle: Puzzle, text: str) -> Iterator[_Move]:
        names, roles = [name.lower() for name in puzzle.names], puzzle.roles
        for name, role in _CLAIM.findall(text):
            if name.lower() in names and role.lower() in roles:
                yield names.index(name.lower()), role.lower() == roles[0]

    def write_answer(self, puzzle: Puzzle, position: Position) -> str:
        known = [(person, role) for person, role in enumerate(position.state) if role is not None]
        *others, last = [self.write(puzzle, move) for move in known] or [""]
        return ", ".join([*others, f"and {last}" if others else last])

    def read_solution(self, puzzle: Puzzle, text: str) -> str | None:
        """Return the roles that an answer states, in any order. It may repeat itself."""
        stated = dict.fromkeys(self.read_moves(puzzle, text))
        return super().read_solution(puzzle, "\n".join(self.write(puzzle, move) for move in sorted(stated)))


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


def _postfix(words: Sequence[str], names: Sequence[str], knight: str) -> _Statement | None:
    """Convert a statement to postfix order, with a stack of operators."""
    done: list[str | _Move] = []
    waiting: list[str] = []
    for word in words:
        if " is a" in word:
            name, _, role = word.partition(" is a")
            if name not in names:
                return None
            done.append((names.index(name), role.split()[-1] == knight))
        elif word == ")":
            while waiting and waiting[-1] != "(":
                done.append(waiting.pop())
            if not waiting:
                return None
            waiting.pop()
        elif word.lower() in _STRENGTH:
            strength = _STRENGTH[word.lower()]
            while waiting and strength <= min(_STRENGTH.get(waiting[-1], 0), 4):
                done.append(waiting.pop())
            waiting.append(word.lower())
        elif word == "(":
            waiting.append(word)
    done += reversed(waiting)
    depth = 0
    for part in done:
        depth += 1 if isinstance(part, tuple) else 0 if part == "it is not the case that" else -1
        if depth < 1 or part == "(":
            return None
    return tuple(done) if depth == 1 else None


def _value(statement: _Statement, state: _State) -> bool | None:
    """Return whether a statement is true. Returns `None` if that is not decided."""
    stack: list[bool | None] = []
    for part in statement:
        if isinstance(part, tuple):
            person, honest = part
            stack.append(None if state[person] is None else state[person] == honest)
            continue
        last = stack.pop()
        if part == "it is not the case that":
            stack.append(None if last is None else not last)
            continue
        first = stack.pop()
        if part == "if and only if":
            stack.append(None if first is None or last is None else first == last)
            continue
        if part == "then":
            first = None if first is None else not first
        decisive = part != "and"
        stack.append(
            decisive if decisive in (first, last) else None if None in (first, last) else not decisive
        )
    return stack[0]


def _possible(puzzle: Puzzle, state: _State) -> bool:
    """Return whether no person contradicts what that person says."""
    return all(
        role is None or _value(statement, state) in (None, role)
        for role, statement in zip(state, puzzle.statements, strict=True)
    )
