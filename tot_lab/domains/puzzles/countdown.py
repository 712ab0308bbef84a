"""Make a target from numbers with + - * / (`countdown` and `puzzle24` of reasoning-gym)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations
from typing import ClassVar, NamedTuple

from tot_lab.core.arithmetic import OPERATORS, equation, joined, number, plain, value_of
from tot_lab.domains.puzzles.base import PuzzleDomain, PuzzlePosition, PuzzleSolution
from tot_lab.domains.puzzles.countdown_solver import Move, Numbers, plan_to

_NUMBERS = r"(?P<numbers>\d{1,6}(?:, \d{1,6}){0,14})"
_TERM = r"(\(-?\d{1,12}(?:/\d{1,12})?\)|-?\d{1,12})"
_MOVE = re.compile(
    rf"{_TERM}\s{{0,4}}([-+*/])\s{{0,4}}{_TERM}\s{{0,4}}=\s{{0,4}}\(?(-?\d{{1,12}}(?:/\d{{1,12}})?)(?!\d|\.\d)"
)
_INTEGER = re.compile(r"[\d.]+")


class Puzzle(NamedTuple):
    """The numbers, in ascending order, and the target."""

    numbers: Numbers
    target: Fraction


class Countdown(PuzzleDomain):
    """Countdown. All numbers must be used, each of them once. Negative numbers and fractions are allowed."""

    kind = "gym/countdown"
    move_form = (
        "A move joins two of the numbers left by + - * / and is written with its result, like `6 * 4 = 24`. "
        "Write negative numbers and fractions in parentheses: `(1/2) * 8 = 4`."
    )
    questions: ClassVar[tuple[re.Pattern[str], ...]] = (
        re.compile(rf"all the numbers {_NUMBERS}, create an expression that equals (?P<target>\d{{1,9}})\."),
        re.compile(
            rf"(?:a way to make|Calculate) (?P<target>\d{{1,9}}) using all of these numbers: {_NUMBERS}\."
        ),
    )

    def read_puzzle(self, text: str) -> Puzzle | None:
        found = next(filter(None, (question.search(text) for question in self.questions)), None)
        if found is None:
            return None
        numbers = sorted(map(Fraction, found["numbers"].split(", ")))
        return Puzzle(tuple(numbers), Fraction(found["target"]))

    def start(self, puzzle: Puzzle) -> Numbers:
        return puzzle.numbers

    def moves(self, puzzle: Puzzle, state: Numbers) -> Iterator[Move]:
        for one, other in combinations(range(len(state)), 2):
            a, b = state[one], state[other]
            yield from ((a, op, b) for op in OPERATORS if op != "/" or b)
            yield from ((b, op, a) for op in OPERATORS if op != "/" or a)

    def after(self, puzzle: Puzzle, state: Numbers, move: Move) -> Numbers:
        left, value = list(state), joined(*move)
        assert value is not None
        left.remove(move[0])
        left.remove(move[2])
        return tuple(sorted([*left, value]))

    def solved(self, puzzle: Puzzle, state: Numbers) -> bool:
        return state == (puzzle.target,)

    def show(self, puzzle: Puzzle, state: Numbers) -> str:
        return f"Left: {', '.join(map(str, state))}"

    def write(self, puzzle: Puzzle, move: Move) -> str:
        a, op, b = move
        return f"{_term(a)} {op} {_term(b)} = {joined(a, op, b)}"

    def read_moves(self, puzzle: Puzzle, text: str) -> Iterator[Move]:
        """Return the moves in `text`, except those that state a wrong result."""
        for left, op, right, stated in _MOVE.findall(plain(text)):
            a, b = number(left.strip("()")), number(right.strip("()"))
            if a is not None and b is not None and joined(a, op, b) == number(stated):
                yield a, op, b

    def write_answer(self, puzzle: Puzzle, position: PuzzlePosition) -> str:
        """Return the expressions of the numbers left, separated by commas: one if the puzzle is solved."""
        terms = [(value, str(value)) for value in puzzle.numbers]
        for a, op, b in position.moves:
            left = terms.pop(next(k for k, term in enumerate(terms) if term[0] == a))[1]
            right = terms.pop(next(k for k, term in enumerate(terms) if term[0] == b))[1]
            terms.append((joined(a, op, b) or Fraction(0), f"({left} {op} {right})"))
        return ", ".join(text[1:-1] if text.startswith("(") else text for _, text in terms)

    def read_solution(self, puzzle: Puzzle, text: str) -> str | None:
        """Return the expression of a right answer, without `= …` after it or `… =` before it."""
        expression, rest = equation(plain(text.strip()))
        read = value_of(expression)
        if read is None or read[0] != puzzle.target or (rest and number(rest.strip()) != puzzle.target):
            return None
        used = sorted(_INTEGER.findall(expression)) == sorted(map(str, puzzle.numbers))
        return " ".join(expression.replace("[", "(").replace("]", ")").split()) if used else None

    def plan(self, puzzle: Puzzle, state: Numbers) -> PuzzleSolution:
        return plan_to(puzzle.target, state)


class Puzzle24(Countdown):
    """Make 24 from four numbers."""

    kind = "gym/puzzle24"
    questions = (re.compile(rf"Make (?P<target>24) using {_NUMBERS}\. You can only use each number once"),)


def _term(value: Fraction) -> str:
    return f"({value})" if value < 0 or value.denominator > 1 else str(value)
