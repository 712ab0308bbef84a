"""Exact graders for families of reasoning-gym whose own graders run text as code or accept wrong answers.

They do not need reasoning-gym, and take bounded time for every text. docs/how-to/reasoning_gym.md lists them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from itertools import chain
from typing import Any

from tot_lab.core.arithmetic import value_of
from tot_lab.core.reading.mathematics import last_number
from tot_lab.domains.puzzles.rush_hour import RushHour, read_board

Exact = Callable[[str, str, dict[str, Any]], bool]
"""A grader of an answer, given the reference and the metadata of its task."""


def countdown(answer: str, reference: str, data: dict[str, Any]) -> bool:
    """Whether the expression equals the target and has every number exactly once."""
    return _makes(answer, data["numbers"], data["target"])


def puzzle24(answer: str, reference: str, data: dict[str, Any]) -> bool:
    """Whether the expression equals 24 and has each of the four given numbers once."""
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
    """Whether the last number of the answer equals the last number of the reference."""
    value = last_number(answer)
    return value is not None and value == last_number(reference)


def equal_integer(answer: str, reference: str, data: dict[str, Any]) -> bool:
    """Whether the integers are equal. `0x` begins a hexadecimal integer, `0b` a binary integer."""
    return int(answer, 0) == int(reference, 0)


def probability(answer: str, reference: str, data: dict[str, Any]) -> bool:
    """Whether the number is the probability, exactly or rounded to at least three significant digits."""
    above, below = int(data["rational"]["numerator"]), int(data["rational"]["denominator"])
    text, exact = answer.strip(), Fraction(above, below)
    if re.fullmatch(r"\d{1,99}/\d{1,99}", text):
        return Fraction(text) == exact
    match = re.fullmatch(r"(\d{0,99}\.?\d{0,99}(?:[eE][-+]?\d{1,3})?)(\s?%)?", text)
    if match is None:
        return False
    stated = Decimal(match[1]).scaleb(-2 if match[2] else 0)
    _, digits, exponent = stated.as_tuple()
    error = abs(Fraction(stated) - exact)
    return error == 0 or (len(digits) >= 3 and 2 * error <= Fraction(10) ** int(exponent))


def sorted_numbers(answer: str, reference: str, data: dict[str, Any]) -> bool:
    """Whether the list has the numbers of the reference in the same order."""
    found, expected = _numbers(answer), _numbers(reference)
    return found is not None and found == expected


def _numbers(text: str) -> list[Decimal] | None:
    listed = json.loads(text.replace("'", '"'), parse_float=str, parse_int=str)
    return [Decimal(number) for number in listed] if isinstance(listed, list) else None


def roots(answer: str, reference: str, data: dict[str, Any]) -> bool:
    """Whether the comma-separated numbers are those of the reference, in any order."""
    return _roots(answer) == _roots(reference)


def _roots(text: str) -> list[Decimal]:
    return sorted(Decimal(part.strip()) for part in text.split(",") if part.strip())


def pooled(answer: str, reference: str, data: dict[str, Any]) -> bool:
    """Whether the matrix has the shape of the solution, and its elements are within 0.005 of the solution."""
    rows = [[Decimal(cell) for cell in line.split()] for line in answer.strip().splitlines()]
    solution = [[Decimal(str(cell)) for cell in row] for row in data["solution"]]
    if [len(row) for row in rows] != [len(row) for row in solution]:
        return False
    pairs = zip(chain(*rows), chain(*solution), strict=True)
    return all(abs(cell - right) <= Decimal("0.00501") for cell, right in pairs)


def complex_number(answer: str, reference: str, data: dict[str, Any]) -> bool:
    """Whether the complex number equals the result exactly."""
    text = "".join(answer.lower().split()).strip("()").replace("i", "j")
    return complex(re.sub(r"(?<![\d.])j", "1j", text)) == complex(*data["result"])


def rush_hour(answer: str, reference: str, data: dict[str, Any]) -> bool:
    """Whether the moves take the car A to the exit on the right. A car may pass only free cells."""
    puzzle = read_board(data["board_config"].replace("o", "."))
    return puzzle is not None and RushHour().read_solution(puzzle, answer) is not None


EXACT: dict[str, Exact] = {
    "bitwise_arithmetic": equal_integer,
    "coin_flip": probability,
    "complex_arithmetic": complex_number,
    "countdown": countdown,
    "figlet_font": equal_letters,
    "game_of_life_halting": equal_text,
    "gsm_symbolic": equal_number,
    "letter_jumble": equal_text,
    "number_sorting": sorted_numbers,
    "polynomial_equations": roots,
    "pool_matrix": pooled,
    "puzzle24": puzzle24,
    "rush_hour": rush_hour,
}
"""The exact grader of each family that has one."""


def is_solved(family: str, answer: str, reference: Any, data: dict[str, Any]) -> bool:
    """Whether `answer` is right, in a family of `EXACT`.

    An answer that cannot be parsed is wrong, and so is every answer if `data` lacks what the grader needs.
    """
    try:
        return EXACT[family](answer, str(reference), data)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError):
        return False
