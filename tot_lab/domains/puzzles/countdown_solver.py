"""Moves that make a target of numbers with + - * /, each number used once.

All values of up to four numbers are computed once. More numbers are split into two parts. They reach the
target if a value of one part and a value of the other part make the target.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import combinations

from tot_lab.core.arithmetic import OPERATORS, joined
from tot_lab.domains.puzzles.base import PuzzleSolution

MAX_NUMBERS = 6
"""Maximum count of numbers. With more, the solver gives up."""

Numbers = tuple[Fraction, ...]
"""Numbers in ascending order."""

Move = tuple[Fraction, str, Fraction]
"""Two numbers and the operator between them."""


def plan_to(target: Fraction, numbers: Numbers) -> PuzzleSolution:
    """Return moves that make `target` of all `numbers`."""
    if len(numbers) > MAX_NUMBERS:
        return PuzzleSolution(None)
    moves = _moves_to(target, numbers)
    return PuzzleSolution(False) if moves is None else PuzzleSolution(True, moves)


@lru_cache(maxsize=256)
def _values(numbers: Numbers) -> dict[Fraction, tuple[Move, ...]]:
    """Return each value that can be made of all `numbers`, with moves that make it."""
    if len(numbers) == 1:
        return {numbers[0]: ()}
    made: dict[Fraction, tuple[Move, ...]] = {}
    for one, other in _splits(numbers):
        for a, before in _values(one).items():
            for b, further in _values(other).items():
                for move in ((x, op, y) for x, y in ((a, b), (b, a)) for op in OPERATORS):
                    value = joined(*move)
                    if value is not None and value not in made:
                        made[value] = (*before, *further, move)
    return made


@lru_cache(maxsize=4096)
def _moves_to(target: Fraction, numbers: Numbers) -> tuple[Move, ...] | None:
    """Return moves that make `target` of all `numbers`. Returns `None` if it cannot be made."""
    if len(numbers) <= 4:
        return _values(numbers).get(target)
    for one, other in _splits(numbers):
        small, large = sorted((one, other), key=len)
        for b, further in _values(small).items():
            for a, move in _missing(b, target, large):
                before = _moves_to(a, large)
                if before is not None:
                    return (*before, *further, move)
    return None


def _missing(b: Fraction, target: Fraction, numbers: Numbers) -> Iterator[tuple[Fraction, Move]]:
    """Yield each value that makes `target` with `b`, and the move. Where any value will do (as in 0 · a = 0),
    the sum of `numbers` is yielded."""
    for a, op, first in (
        (target - b, "+", True),
        (target + b, "-", True),
        (b - target, "-", False),
        (target / b if b else sum(numbers, Fraction(0)), "*", True),
        (target * b, "/", True),
        (b / target if target else Fraction(0), "/", False),
    ):
        move = (a, op, b) if first else (b, op, a)
        if joined(*move) == target:
            yield a, move


def _splits(numbers: Numbers) -> list[tuple[Numbers, Numbers]]:
    """Return the ways to split `numbers` into two parts."""
    rest = range(1, len(numbers))
    found: dict[tuple[Numbers, Numbers], None] = {}
    for size in range(len(rest)):
        for chosen in combinations(rest, size):
            one = tuple(numbers[k] for k in (0, *chosen))
            other = tuple(numbers[k] for k in rest if k not in chosen)
            found[one, other] = None
    return list(found)
