"""Exact graders for families of reasoning-gym whose own graders evaluate text or pay for wrong answers.

They need no reasoning-gym, and their time is bounded for every text. docs/how-to/reasoning_gym.md lists them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

from tot_lab.core.arithmetic import value_of
from tot_lab.domains.general import last_number

LONGEST = 10_000
"""Characters of an answer that is parsed."""

Exact = Callable[[str, str, dict[str, Any]], bool]
"""A grader of an answer, given the reference and the metadata of its task."""


def countdown(answer: str, reference: str, data: dict[str, Any]) -> bool:
    """Whether the expression equals the target and has every number exactly once."""
    return _makes(answer, data["numbers"], data["target"])


def puzzle24(answer: str, reference: str, data: dict[str, Any]) -> bool:
    """Whether the expression equals 24 and has the four given numbers."""
    return _makes(answer, data["numbers"], 24)


def _makes(answer: str, numbers: list[int], target: int) -> bool:
    found = value_of(answer)
    return found is not None and found[0] == target and Counter(found[1]) == Counter(map(Fraction, numbers))


def equal_text(answer: str, reference: str, data: dict[str, Any]) -> bool:
    """Whether the texts are equal, ignoring case and spacing."""
    return " ".join(answer.casefold().split()) == " ".join(reference.casefold().split())


def equal_letters(answer: str, reference: str, data: dict[str, Any]) -> bool:
    """Whether the texts are equal, ignoring case and all spaces."""
    return "".join(answer.casefold().split()) == "".join(reference.casefold().split())


def equal_number(answer: str, reference: str, data: dict[str, Any]) -> bool:
    """Whether the last number of the answer is that of the reference."""
    value = last_number(answer)
    return value is not None and value == last_number(reference)


def equal_integer(answer: str, reference: str, data: dict[str, Any]) -> bool:
    """Whether the integers are equal. 0x begins a hexadecimal one, 0b a binary one."""
    value = _integer(answer)
    return value is not None and value == _integer(reference)


def _integer(text: str) -> int | None:
    try:
        return int(text.strip(), 0)
    except ValueError:
        return None


def probability(answer: str, reference: str, data: dict[str, Any]) -> bool:
    """Whether the number, rounded to as many digits as are stated, is the exact probability.

    At least three significant digits are required, unless fewer are exact. A fraction must be exact.
    """
    rational = data["rational"]
    exact = Fraction(int(rational["numerator"]), int(rational["denominator"]))
    text = answer.strip().replace(",", "")
    if len(text) > 100:
        return False
    percent = text.endswith("%")
    value = last_number(text.rstrip("% "))
    if value is None or re.fullmatch(r"[-+\d.eE/ %]+", text) is None:
        return False
    value /= 100 if percent else 1
    if "/" in text or value == exact:
        return value == exact
    return exact != 0 and len(_digits(text)) >= 3 and abs(value - exact) * 2_000 <= exact


def _digits(text: str) -> str:
    return re.sub(r"[eE].*|\D", "", text).lstrip("0")


def sorted_numbers(answer: str, reference: str, data: dict[str, Any]) -> bool:
    """Whether the list has the same numbers in the same order."""
    found, expected = _numbers(answer), _numbers(reference)
    return found is not None and found == expected


def _numbers(text: str) -> list[Decimal] | None:
    try:
        listed = json.loads(text.replace("'", '"'), parse_float=str, parse_int=str)
        return [Decimal(number) for number in listed] if isinstance(listed, list) else None
    except (ValueError, TypeError, InvalidOperation, RecursionError):
        return None


def roots(answer: str, reference: str, data: dict[str, Any]) -> bool:
    """Whether the list has the same numbers in any order. A part that is no number makes it wrong."""
    found, expected = _roots(answer), _roots(reference)
    return found is not None and found == expected


def _roots(text: str) -> list[Decimal] | None:
    try:
        return sorted(Decimal(part.strip()) for part in text.split(",") if part.strip())
    except InvalidOperation:
        return None


def pooled(answer: str, reference: str, data: dict[str, Any]) -> bool:
    """Whether the matrix has the shape of the solution, and its elements are within 0.005 of them."""
    try:
        rows = [[Fraction(cell) for cell in line.split()] for line in answer.strip().splitlines()]
    except (ValueError, ZeroDivisionError):
        return False
    return len(rows) == len(data["solution"]) and all(
        len(row) == len(solution)
        and all(abs(a - Fraction(b)) * 200 <= 1 for a, b in zip(row, solution, strict=True))
        for row, solution in zip(rows, data["solution"], strict=True)
    )


EXACT: dict[str, Exact] = {
    "bitwise_arithmetic": equal_integer,
    "coin_flip": probability,
    "countdown": countdown,
    "figlet_font": equal_letters,
    "game_of_life_halting": equal_text,
    "gsm_symbolic": equal_number,
    "letter_jumble": equal_text,
    "number_sorting": sorted_numbers,
    "polynomial_equations": roots,
    "pool_matrix": pooled,
    "puzzle24": puzzle24,
}
"""The exact grader of each family that has one."""


def is_solved(family: str, answer: str, reference: Any, data: dict[str, Any]) -> bool | None:
    """Whether `answer` is right. `None` if the family has no exact grader here.

    Data that lacks what the grader needs, such as that of a file, makes every answer wrong.
    """
    grader = EXACT.get(family)
    if grader is None:
        return None
    try:
        return len(answer) <= LONGEST and grader(answer, str(reference), data)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
        return False
