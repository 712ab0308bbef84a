"""Exact arithmetic for number games: evaluating expressions, and how hard it is to reach 24.

Text is parsed, never evaluated as code, and all numbers are fractions: `8 / (3 - 8 / 3)` is exactly 24,
unlike with floats. A limit on the length of a text bounds the time.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from math import gcd
from typing import NamedTuple

LONGEST_EXPRESSION = 500  # characters; an answer to a puzzle of four numbers needs about 30
TARGET = 24
OPERATORS = "+-*/"

FULL_WIDTH = {0xFF01 + k: chr(0x21 + k) for k in range(94)}
"""Translation table (`str.translate`) from full-width characters to ASCII."""

_SIGNS = {
    **FULL_WIDTH,
    **dict.fromkeys(map(ord, "×✕✖⋅·∙∗"), "*"),
    **dict.fromkeys(map(ord, "÷⁄∕"), "/"),
    **dict.fromkeys(map(ord, "−–—﹣‐‑"), "-"),
    **dict.fromkeys(map(ord, "\u00a0\u202f"), " "),
}
_LATEX = re.compile(
    r"\\(?:(times|cdot|ast)|(div)|left|right|[Bb]igg?[lr]?|quad|displaystyle)(?![A-Za-z])|\\[()\[\],;:! ]|\$"
)
_FRACTION = re.compile(r"\\[dt]?frac[ \t]{0,4}(?:\{([^{}]*+)\}[ \t]{0,4}\{([^{}]*+)\}|(\d)[ \t]{0,4}(\d))")
_NESTED = 4  # levels of nested fractions that are converted
_TIMES = re.compile(r"(?<=[\d)])([ \t]{0,4})[xX](?=[ \t]{0,4}[-\d(])")
_TOKEN = re.compile(r"\d+(?:\.\d+)?|[-+*/()]", re.ASCII)
_NUMBER = re.compile(r"(-?\d{1,9}(?:\.\d{1,9})?)(?:/(\d{1,9}(?:\.\d{1,9})?))?", re.ASCII)
_DIGITS = re.compile(r"[0-9]++")
_COMPUTE: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def plain(text: str) -> str:
    r"""Replace the operators that people and models write (× · ÷ −, x between numbers) by + - * /.

    LaTeX is read, too: `\(4 \times \frac{8}{2}\)` is `4 * (8/2)`.
    """
    text = text.translate(_SIGNS)
    if "\\" in text or "$" in text:
        for _ in range(_NESTED):
            text = _FRACTION.sub(_fraction, text)
        text = _LATEX.sub(lambda match: "*" if match[1] else "/" if match[2] else "", text)
    return _TIMES.sub(r"\1*", text)


def _fraction(match: re.Match[str]) -> str:
    above, below = (part if part.isdecimal() else f"({part})" for part in match.groups() if part is not None)
    return f"({above}/{below})"


def number(text: str) -> Fraction | None:
    """Parse a number such as `4`, `-1`, `1.5` or `10/3`. Returns `None` for any other text."""
    match = _NUMBER.fullmatch(text.replace(" ", "").replace("\t", ""))
    if match is None:
        return None
    # Fraction(int) is three times as fast as Fraction(str).
    above = Fraction(match[1]) if "." in match[1] else Fraction(int(match[1]))
    if match[2] is None:
        return above
    below = Fraction(match[2])
    return above / below if below else None


def equation(text: str) -> tuple[str, str | None]:
    """Split an equation, such as `4 * 6 = 24` or `24 = 4 * 6`, into its expression and the rest.

    The expression is the side with the most numbers; of several such sides, the first. The rest is the other
    sides, joined by `=`, or `None` if there is no `=`.
    """
    sides = text.split("=", 9)
    k = max(range(len(sides)), key=lambda k: len(_DIGITS.findall(sides[k])))
    expression = sides.pop(k)
    return expression, "=".join(sides) if sides else None


def joined(a: Fraction, op: str, b: Fraction) -> Fraction | None:
    """Compute `a op b`. `None` for a division by zero."""
    if op == "+":
        return a + b
    if op == "-":
        return a - b
    if op == "*":
        return a * b
    return a / b if b else None


class Term(NamedTuple):
    """A value, and the expression that it was computed from.

    `strength` is the precedence of the expression's outermost operator: 3 for a number, 2 for a product or
    quotient, and 1 for a sum or difference.
    """

    value: Fraction
    expression: str
    strength: int = 3


def join_terms(terms: list[Term], a: Fraction | int, op: str, b: Fraction | int, value: Fraction) -> None:
    """Join the terms whose values are `a` and `b` into one term `a op b`, whose value is `value`.

    The expression of the new term has only the parentheses that it needs.
    """
    first = terms.pop(next(k for k, term in enumerate(terms) if term.value == a))
    second = terms.pop(next(k for k, term in enumerate(terms) if term.value == b))
    strength = 1 if op in "+-" else 2
    before = f"({first.expression})" if first.strength < strength else first.expression
    wrapped = second.strength < strength or (op in "-/" and second.strength == strength)
    after = f"({second.expression})" if wrapped else second.expression
    terms.append(Term(value, f"{before} {op} {after}", strength))


def value_of(expression: str) -> tuple[Fraction, list[Fraction]] | None:
    """The value of `expression`, and its numbers in order. `None` if it is not valid.

    Valid are + - * /, a minus before a term, parentheses (round or square, up to 200 nested) and decimal
    numbers, up to 500 characters.
    """
    if len(expression) > LONGEST_EXPRESSION:
        return None
    text = plain(expression.replace("[", "(").replace("]", ")"))
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != "".join(text.split()):
        return None
    numbers = [Fraction(token) for token in tokens if token[0].isdigit()]
    # Python reads the structure only. Blanks keep `* *` from becoming an operator of Python.
    source = " ".join("n" if token[0].isdigit() else token for token in tokens)
    try:
        return _computed(ast.parse(source, mode="eval").body, iter(numbers)), numbers
    except (ArithmeticError, MemoryError, RecursionError, SyntaxError, KeyError):
        return None


def _computed(node: ast.AST, numbers: Iterator[Fraction]) -> Fraction:
    match node:
        case ast.Name():
            return next(numbers)
        case ast.UnaryOp(ast.USub(), inner):
            return -_computed(inner, numbers)
        case ast.BinOp(left, op, right):
            return _COMPUTE[type(op)](_computed(left, numbers), _computed(right, numbers))
    raise SyntaxError


# How hard 24 is to reach. Listing all hands of four numbers computes half a million numbers. Therefore they
# are (numerator, denominator) pairs here, which are three times as fast as Fraction.

_Ratio = tuple[int, int]


def win_share(numbers: Sequence[Fraction]) -> float:
    """The probability that a random play-out from `numbers` ends at 24. It is positive exactly if 24 can be
    reached.

    A play-out repeatedly replaces an ordered pair of the remaining numbers by the result of one of + - * /,
    with all choices equally likely except divisions by zero, until one number remains. The probability
    is computed by dynamic programming over the sets of remaining numbers, not by sampling.
    """
    return _share(tuple(sorted(value.as_integer_ratio() for value in numbers)))


@lru_cache(maxsize=2**16)
def _share(left: tuple[_Ratio, ...]) -> float:
    if len(left) == 1:
        return float(left[0] == (TARGET, 1))
    if len(left) == 2:
        return _last_share(*left[0], *left[1])
    moves, won = 0, 0.0
    for i, j in combinations(range(len(left)), 2):
        rest = [value for k, value in enumerate(left) if k not in (i, j)]
        for weight, above, below in _results(*left[i], *left[j]):
            moves += weight
            if len(rest) == 1:
                won += weight * _last_share(above, below, *rest[0])
            else:
                shared = gcd(above, below) if below > 0 else -gcd(above, below)
                won += weight * _share(tuple(sorted([*rest, (above // shared, below // shared)])))
    return won / moves


def _results(a: int, b: int, c: int, d: int) -> list[tuple[int, int, int]]:
    """All results of an operation on a/b and c/d, as (number of operand orders, numerator, denominator). The
    fractions are not reduced.
    """
    left, right, below = a * d, c * b, b * d
    found = [(2, left + right, below), (1, left - right, below), (1, right - left, below), (2, a * c, below)]
    if right:
        found.append((1, left, right))
    if left:
        found.append((1, right, left))
    return found


def _last_share(a: int, b: int, c: int, d: int) -> float:
    """The probability that a random operation on the last two numbers, a/b and c/d, gives 24."""
    left, right = a * d, c * b
    goal = TARGET * b * d
    won = 2 * (left + right == goal) + (left - right == goal) + (right - left == goal) + 2 * (a * c == goal)
    moves = 6
    if right:
        moves += 1
        won += left == TARGET * right
    if left:
        moves += 1
        won += right == TARGET * left
    return won / moves
