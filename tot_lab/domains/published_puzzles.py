"""The 8-puzzle and the 2×2 cube of "Everything of Thoughts" (Ding et al. 2023), for its published logs.

A step is one move. A path may end with a reply that states the answer. The logs do not contain the prompts
that were sent. The prompts here contain only the data on which the reply depends: the state and, for a value,
the last move. `tl.counterfactual` uses these prompts to find recorded replies.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import lru_cache
from itertools import product
from typing import ClassVar, TypeAlias

from tot_lab.core.task import Domain, Path, Task
from tot_lab.domains.published import MARK

State: TypeAlias = tuple[int, ...]


class PublishedPuzzle(Domain):
    """A puzzle that is solved by moves from a fixed set. The question is the first state, as numbers."""

    value_labels: ClassVar[dict[str, float]] = {"sure": 20.0, "likely": 1.0, "impossible": 0.001}

    limit: int
    """Maximum moves of a solution in the published prompts. It limits `solvable`, but not `grade`: a longer
    answer that solves the puzzle is right."""

    statements: ClassVar[tuple[re.Pattern[str], ...]]
    """Patterns of an answer in a reply, with a group for its moves. Only the first pattern that matches is
    used.
    """

    moves: ClassVar[frozenset[str]]
    """The names of the moves."""

    @abstractmethod
    def after(self, state: State, move: str) -> State | None:
        """Return the state after a move. `None` if `move` is illegal or not the name of a move."""

    @abstractmethod
    def is_solved(self, state: State) -> bool:
        """Return whether a state is solved."""

    @abstractmethod
    def solvable_within(self, state: State, moves: int) -> bool:
        """Return whether a state can be solved with at most `moves` moves."""

    @abstractmethod
    def moves_in(self, text: str) -> list[str]:
        """Split a text into the names of moves. Words that name no move are returned too."""

    def stated(self, text: str) -> list[re.Match[str]]:
        """Return the matches of the answers that a reply states."""
        found = (list(pattern.finditer(text)) for pattern in self.statements)
        return next(filter(None, found), [])

    def stated_answers(self, text: str) -> list[str]:
        """Return the parts of a reply that state an answer, such as `1. Moves: Up, Left`."""
        return [found[0].strip() for found in self.stated(text)]

    def states(self, task: Task, path: Path) -> Iterator[State | None]:
        """Yield the first state, and the state after each step of a path. An illegal move yields `None` and
        ends the iteration.
        """
        state: State | None = state_in(task.question)
        yield state
        for step in path:
            if state is None:
                return
            state = self.after(state, step.strip())
            yield state

    # Prompts and reply parsers.

    def propose_prompt(self, task: Task, path: Path, count: int) -> str:
        return f"propose{MARK}{self.shown(task, path)}"

    def sample_prompt(self, task: Task, path: Path) -> str:
        return f"sample{MARK}{self.shown(task, path)}"

    def answer_prompt(self, task: Task, reasoning: bool) -> str:
        return f"answer{MARK}{task.question}"

    def read_proposals(self, task: Task, path: Path, text: str) -> list[str]:
        return text.replace("\n", "").strip().split(", ") if text else []

    def value_prompt(self, task: Task, path: Path) -> str:
        return f"value{MARK}{self.shown(task, path[:-1])}{MARK}{path[-1]}"

    def shown(self, task: Task, path: Path) -> str:
        """Return the state after a path as text. If a move is illegal, return the steps of the path."""
        *_, state = self.states(task, path)
        return self.steps(path) if state is None else _shown(state)

    # Rules.

    def state(self, task: Task, path: Path) -> Hashable | None:
        """Return `None`: the published search does not merge states."""
        return None

    def complete(self, task: Task, path: Path) -> bool | None:
        """Return whether the moves solve the puzzle. `None` after an illegal move."""
        *_, state = self.states(task, path)
        return None if state is None else self.is_solved(state)

    def answer(self, task: Task, path: Path) -> str | None:
        """Return the last answer that the last step states, or else the last step if it consists of several
        moves, or else all moves of the path if they solve the puzzle.
        """
        stated = self.stated(path[-1]) if path else []
        if stated:
            return stated[-1][1].strip()
        moves = self.moves_in(path[-1]) if path else []
        if len(moves) > 1 and self.moves.issuperset(moves):
            return path[-1].strip()
        return " ".join(step.strip() for step in path) if path and self.complete(task, path) else None

    def solvable(self, task: Task, path: Path) -> bool | None:
        """Return whether the puzzle can be solved within `limit` moves, including those of `path`. `False` if
        `path` has an illegal move. If the path states an answer, returns whether the answer is right.
        """
        answer = self.answer(task, path)
        if answer is not None:
            return self.grade(task, answer) == 1.0
        *_, state = self.states(task, path)
        return state is not None and self.solvable_within(state, self.limit - len(path))

    def verify(self, task: Task, answer: str) -> bool:
        """Return whether the moves of `answer` solve the puzzle."""
        return self.grade(task, answer) == 1.0

    def grade(self, task: Task, answer: str) -> float:
        """Return 1.0 if every word of `answer` is a legal move and the last state is solved, else 0.0."""
        *_, state = self.states(task, self.moves_in(answer))
        return float(state is not None and self.is_solved(state))

    def is_bounded(self, task: Task) -> bool:
        return True


def state_in(question: str) -> State:
    """Return the state whose numbers `question` contains."""
    return tuple(map(int, re.findall(r"[0-9]+", question)))


def _shown(state: State) -> str:
    return " ".join(map(str, state))


# The 8-puzzle.


SIDE = 3
SOLVED_PUZZLE = tuple(range(SIDE * SIDE))
_SHIFTS = {"Left": (0, -1), "Right": (0, 1), "Up": (-1, 0), "Down": (1, 0)}


class PublishedNPuzzle(PublishedPuzzle):
    """The 8-puzzle: nine numbers row by row. A move is the direction in which the empty square, 0, moves."""

    kind: ClassVar[str] = "published/npuzzle"

    limit: int = 9

    moves = frozenset(_SHIFTS)

    statements = (
        re.compile(r"(?:\[Moves\]|(?:\d+\.\s)?\bMoves):\s*(\S.*)", re.IGNORECASE),
        re.compile(r"\[Solution \d+\]:\s*(\S.*)", re.IGNORECASE),
    )

    @classmethod
    def task_factory(cls) -> Callable[..., Task]:
        return published_npuzzle

    def after(self, state: State, move: str) -> State | None:
        shift = _SHIFTS.get(move)
        if shift is None:
            return None
        row, column = divmod(state.index(0), SIDE)
        to = (row + shift[0], column + shift[1])
        if not all(0 <= place < SIDE for place in to):
            return None
        empty, tile = row * SIDE + column, to[0] * SIDE + to[1]
        moved = list(state)
        moved[empty], moved[tile] = moved[tile], 0
        return tuple(moved)

    def moves_in(self, text: str) -> list[str]:
        return [word.strip() for word in text.strip().strip(".").split(",")] if "," in text else text.split()

    def is_solved(self, state: State) -> bool:
        return state == SOLVED_PUZZLE

    def solvable_within(self, state: State, moves: int) -> bool:
        return _puzzle_distances(max(self.limit, 12)).get(state, moves + 1) <= moves


@lru_cache(maxsize=2)
def _puzzle_distances(limit: int) -> Mapping[State, int]:
    """Return the number of moves to the solved state, for each state that is at most `limit` moves away."""
    puzzle = PublishedNPuzzle()
    return _distances(SOLVED_PUZZLE, lambda state: (puzzle.after(state, move) for move in _SHIFTS), limit)


def _distances(
    start: State, neighbours: Callable[[State], Iterator[State | None]], limit: int
) -> dict[State, int]:
    found = {start: 0}
    level = [start]
    for depth in range(1, limit + 1):
        reached = {state: depth for known in level for state in neighbours(known) if state is not None}
        level = [state for state in reached if state not in found]
        found.update((state, depth) for state in level)
    return found


# The 2×2 cube.


SOLVED_CUBE = tuple(face for face in range(6) for _ in range(4))

_FACES = "URFDLB"
"""The faces in the order of the logs. Each has four stickers, row by row as in the unfolded cube below.

      U
    L F R B
      D
"""

_NORMALS = {
    **{"U": (0, 1, 0), "D": (0, -1, 0), "R": (1, 0, 0)},
    **{"L": (-1, 0, 0), "F": (0, 0, 1), "B": (0, 0, -1)},
}
_RIGHT = {
    **{"U": (1, 0, 0), "D": (1, 0, 0), "R": (0, 0, -1)},
    **{"L": (0, 0, 1), "F": (1, 0, 0), "B": (-1, 0, 0)},
}
"""For each face, the direction from the first to the second sticker of a row."""

_DOWN = {
    **{"U": (0, 0, 1), "D": (0, 0, -1), "R": (0, -1, 0)},
    **{"L": (0, -1, 0), "F": (0, -1, 0), "B": (0, -1, 0)},
}

Vector: TypeAlias = tuple[int, ...]


def _stickers() -> list[tuple[Vector, Vector]]:
    """Return, for each sticker, the corner that it is on and the direction that it faces."""
    signs = product((-1, 1), (-1, 1))
    rows = list(signs)
    return [
        (
            tuple(n + b * d + a * r for n, d, r in zip(_NORMALS[f], _DOWN[f], _RIGHT[f], strict=True)),
            _NORMALS[f],
        )
        for f in _FACES
        for b, a in rows
    ]


def _turned(vector: Vector, axis: Vector) -> Vector:
    """Return a vector after a quarter turn, clockwise as seen from the end of `axis`."""
    along = sum(a * v for a, v in zip(axis, vector, strict=True))
    (x, y, z), (a, b, c) = vector, axis
    cross = (y * c - z * b, z * a - x * c, x * b - y * a)  # vector × axis
    return tuple(cross[k] + along * axis[k] for k in range(3))


def _moves() -> dict[str, tuple[int, ...]]:
    """Return a permutation for each move: its item `k` is the old index of the sticker that moves to index
    `k`. x, y and z turn the whole cube.
    """
    stickers = _stickers()
    place = {sticker: k for k, sticker in enumerate(stickers)}
    made: dict[str, tuple[int, ...]] = {}
    for name, face, whole in [
        *((f, f, False) for f in _FACES),
        ("x", "R", True),
        ("y", "U", True),
        ("z", "F", True),
    ]:
        axis = _NORMALS[face]
        once = [0] * len(stickers)
        for k, (corner, look) in enumerate(stickers):
            moves = whole or sum(a * c for a, c in zip(axis, corner, strict=True)) > 0
            to = place[(_turned(corner, axis), _turned(look, axis))] if moves else k
            once[to] = k
        twice = tuple(once[k] for k in once)
        made |= {name: tuple(once), f"{name}2": twice, f"{name}'": tuple(once[k] for k in twice)}
    return made


CUBE_MOVES = _moves()
"""Permutations of the stickers by move. `R` turns the right face clockwise, `R'` counterclockwise, and `R2`
twice.
"""


class PublishedCube(PublishedPuzzle):
    """The 2×2 cube: 24 colours, four for each of the faces U, R, F, D, L and B.

    It is solved if every face has one colour, however the whole cube is turned.
    """

    kind: ClassVar[str] = "published/cube"

    limit: int = 4

    moves = frozenset(CUBE_MOVES)

    statements = (
        re.compile(r"\[Restoration Moves\]:\s*(.+(?:\n(?!\[).+)*)", re.IGNORECASE),
        re.compile(r"(?:\d+\.\s)?\bRestoration Moves:\s*(\S.*)", re.IGNORECASE),
    )

    @classmethod
    def task_factory(cls) -> Callable[..., Task]:
        return published_cube

    def after(self, state: State, move: str) -> State | None:
        places = CUBE_MOVES.get(move.replace("'2", "2"))
        return None if places is None else tuple([state[k] for k in places])

    def moves_in(self, text: str) -> list[str]:
        return text.replace(",", " ").strip().strip(".").split()

    def is_solved(self, state: State) -> bool:
        return all(len(set(state[k : k + 4])) == 1 for k in range(0, 24, 4))

    def solvable_within(self, state: State, moves: int) -> bool:
        """Return whether a state can be solved with at most `moves` turns.

        Only turns of the faces U, R and F are tried: a turn of an opposite face differs from one of these by
        a turn of the whole cube. These turns leave the corner of the other three faces in place. The colours
        of that corner therefore determine the solved state to reach.
        """
        near = _cube_distances(min(moves, _HALF))
        level = {_named(state)}
        for _ in range(moves - _HALF):
            if not level.isdisjoint(near):
                return True
            level = {turned for known in level for turned in _turns(known)}
        return not level.isdisjoint(near)


_HALF = 4
"""States up to this number of turns from the solved state are tabulated."""

_FIXED = ((14, 3), (18, 4), (23, 5))
"""The stickers of the corner that turns of U, R and F leave in place, and their colours in `SOLVED_CUBE`."""


def _named(state: State) -> State:
    """Rename the colours of a state so that its fixed corner has the colours of `SOLVED_CUBE`.

    Colours are 0 to 5 as in the logs, where 0 and 3, 1 and 4, and 2 and 5 are opposite.
    """
    names = {state[place]: colour for place, colour in _FIXED}
    names |= {(colour + 3) % 6: (name + 3) % 6 for colour, name in names.items()}
    return tuple(names.get(colour, -1) for colour in state)


def _turns(state: State) -> Iterator[State]:
    for move in ("U", "U2", "U'", "R", "R2", "R'", "F", "F2", "F'"):
        yield tuple([state[k] for k in CUBE_MOVES[move]])


@lru_cache(maxsize=8)
def _cube_distances(limit: int) -> Mapping[State, int]:
    return _distances(SOLVED_CUBE, _turns, limit)


# Tasks.


def published_npuzzle(numbers: str, *, limit: int = 9) -> Task:
    """Make a task of an 8-puzzle: the numbers from 0 to 8, row by row."""
    state = state_in(numbers)
    if sorted(state) != list(SOLVED_PUZZLE):
        raise ValueError(f"An 8-puzzle must contain each number from 0 to 8 once: got {numbers[:80]!r}.")
    return Task(domain=PublishedNPuzzle(limit=limit), question=_shown(state), id=_shown(state))


def published_cube(numbers: str, *, limit: int = 4) -> Task:
    """Make a task of a 2×2 cube: 24 colours from 0 to 5, four of each."""
    state = state_in(numbers)
    if sorted(state) != list(SOLVED_CUBE):
        raise ValueError(f"A cube must have four stickers of each colour from 0 to 5: got {numbers[:80]!r}.")
    return Task(domain=PublishedCube(limit=limit), question=_shown(state), id=_shown(state))
