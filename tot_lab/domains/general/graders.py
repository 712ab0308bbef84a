"""The functions that compare an answer with a reference: a `Grader` for each name in `General.grading`.

Grading accepts any text and never raises. Patterns, expressions and programs may take long, so they run
in a process that can be killed.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from tot_lab.core.extras import requires
from tot_lab.core.processes import Failed, Killed, Worker, found_in, passes_tests
from tot_lab.core.reading import mathematics
from tot_lab.core.reading.answers import final_answer, normalize
from tot_lab.core.reading.choices import stated_choice
from tot_lab.core.reading.code import code_blocks
from tot_lab.core.reading.mathematics import (
    as_latex,
    is_rounded,
    last_number,
    math_key,
    read_expression,
    unit_key,
)
from tot_lab.core.task import Task, Ungraded

# Grids of numbers.


_ROW = re.compile(r"[\s\[(]*\d+(?:[\s,]+\d+)*[\s\]),]*", re.ASCII)
_CELL = re.compile(r"\d+", re.ASCII)
_RATING = re.compile(r"\W*(?:my )?(?:confidence|certainty|score)\b.{0,40}:\W*", re.IGNORECASE)


def last_grid(text: str) -> tuple[tuple[str, ...], ...] | None:
    """Return the rows of the last grid of numbers in `text`: a line per row, or a list of lists.

    Digits without spaces between them are a cell each, except in brackets. Blank lines are ignored, and so
    are the numbers below a line such as `Confidence:`. `None` without a grid.
    """
    grid: list[tuple[str, ...]] = []
    is_new = is_ignored = False
    for line in text.replace("],", "]\n").splitlines():
        if not _ROW.fullmatch(line):
            if line.strip():
                is_new, is_ignored = True, _RATING.fullmatch(line) is not None
        elif not is_ignored:
            if is_new:
                grid, is_new = [], False
            cells = _CELL.findall(line)
            is_split = len(cells) > 1 or any(bracket in line for bracket in "[]()")
            grid.append(tuple(cells if is_split else cells[0]))
    return tuple(grid) or None


SECONDS = 5
"""Maximum CPU time of a comparison in another process. Its wall time is limited to `WALL` times as much
(`tot_lab.core.processes`).
"""


class Grader(NamedTuple):
    """A method of comparing answers with a reference.

    Attributes:
        grade: Returns the grade of an answer, from 0 to 1. `None` if the comparison failed.
        key: Returns a key that is equal for answers that count as the same. `None` means that their texts
            are compared.
        needs: The requirement on a reference, for the error message.
        problem: Returns what is wrong with a reference, or "" if `needs` says it. `None` if it can be used.
        is_bounded: Whether `grade` is fast for every answer and reference.
    """

    grade: Callable[[Task, str], float | None]
    key: Callable[[Task, str], Hashable | None] = lambda task, answer: None
    needs: str = "must not be empty"
    problem: Callable[[str], str | None] = lambda reference: None if reference.strip() else ""
    is_bounded: bool = True


def _ungraded(why: object) -> float | None:
    warnings.warn(f"an answer is not graded: {why}", RuntimeWarning, stacklevel=5)
    return None


# Numbers and texts.


def _grade_number(task: Task, answer: str) -> float | None:
    expected = last_number(str(task.reference))
    return None if expected is None else float(last_number(answer) == expected)


def _number_problem(reference: str) -> str | None:
    return "" if last_number(reference) is None else None


def _grade_exact(task: Task, answer: str) -> float:
    return float(normalize(answer) == normalize(str(task.reference)))


# Grids.


def _grade_grid(task: Task, answer: str) -> float:
    return float(last_grid(answer) == last_grid(str(task.reference)))


# Choices.

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def choices_of(task: Task) -> Mapping[str, str]:
    """Return the texts of the choices by label. If the task lists no choices, the labels are A to Z and the
    reference.
    """
    known = task.data.get("choices")
    if isinstance(known, dict) and known:
        return {str(label): str(text) for label, text in known.items()}
    reference = () if task.reference is None else (_bare(str(task.reference)),)
    return dict.fromkeys([*_LETTERS, *reference], "")


_LABEL = re.compile(r"(?:^|[\s(])([A-Z])(?:\)|(?<=^.)\.)\s", re.MULTILINE)


def check_label(question: str, reference: str) -> None:
    """Raise `ValueError` if `question` labels its choices, such as `A)` and `B)`, and `reference` is not a
    label.
    """
    labels = dict.fromkeys(_LABEL.findall(question))
    if len(labels) > 1 and _LETTERS.startswith("".join(labels)) and _bare(reference) not in labels:
        raise ValueError(
            f"answer must be a label of the question, {', '.join(labels)}, for grade='choice': got "
            f"{reference[:80]!r}. Use grade='exact' for other answers."
        )


def _bare(text: str) -> str:
    return text.strip(" \t\r\n*_`\"'()[].:")


def _grade_choice(task: Task, answer: str) -> float | None:
    label = stated_choice(answer, choices_of(task))
    return float(label is not None and _bare(label) == _bare(str(task.reference)))


# Patterns.


def _grade_regex(task: Task, answer: str) -> float | None:
    try:
        return float(found_in(str(task.reference), [answer], SECONDS)[0])
    except Ungraded as error:
        return _ungraded(error)


def _regex_problem(reference: str) -> str | None:
    try:
        re.compile(reference)
    except (re.error, RecursionError, OverflowError) as error:
        return str(error)
    return None


# Mathematics.

_KEYS = Worker(Path(mathematics.__file__).with_name("expressions.py").read_text(encoding="utf-8"))
_VERIFYING = Worker("""
import logging
from math_verify import grader, parse, verify
from sympy import Float

logging.disable()
rounded_equal, percent = grader.sympy_numeric_eq, grader.get_pct_val

def numeric_equal(one, other, *places):
    # math-verify compares absolutely, so that all tiny values are equal.
    if not rounded_equal(one, other, *places):
        return False
    try:
        if percent(one) is not None or percent(other) is not None:
            return True
        is_rounded = one.has(Float) or other.has(Float)
        values = [value.doit().evalf(30, subs=POINTS(value)) for value in (one, other)]
        return bool(abs(values[0] - values[1]) <= abs(values[0]) * (1e-4 if is_rounded else 1e-12))
    except Exception:
        return True

def POINTS(value):
    return {symbol: 0.7320508 + 0.1 * k for k, symbol in enumerate(sorted(value.free_symbols, key=str))}

grader.sympy_numeric_eq = numeric_equal

def answer(request):
    try:
        expected, given = (parse(text, parsing_timeout=None) for text in request)
        return bool(verify(expected, given, allow_set_relation_comp=True, timeout_seconds=None))
    except Exception:
        return False
""")
_DECIMAL = re.compile(r"-?\d++\.\d+", re.ASCII)
_WITH_COMMA = re.compile(r"-?(?![1-9]\d{0,2},\d{3}\Z)\d++,\d+", re.ASCII)
_COUNTED = re.compile(r"-?[\d.,]++ ?([A-Za-z]+?)s?\.?", re.ASCII)
_OFTEN_LEFT_OUT = ("", "circ", "dollar")
_NEVER_EQUAL = ({"number", "range"}, {"numbers", "range"})
_WITH_BASE = re.compile(r"\d_(?:\d|\{\d)", re.ASCII)


def _grade_math(task: Task, answer: str) -> float | None:
    reference, answer = str(task.reference), final_answer(answer) or answer
    right, found = read_expression(reference), read_expression(answer)
    units = unit_key(right.unit), unit_key(found.unit)
    if all(units) and units[0] != units[1]:
        return 0.0
    texts = (reference, answer)
    expected, given = (math_key(_with_point(text, other)) for text, other in (texts, texts[::-1]))
    if isinstance(expected, Fraction) and isinstance(given, Fraction):
        return float(given == expected or is_rounded(given, expected))
    if given == expected:
        return 1.0
    keys = _expression_key(right.text), _expression_key(found.text)
    if keys[0] is not None and keys[1] is not None:
        if keys[0].key == keys[1].key:
            return 1.0
        both, kinds = f"{right.text} {found.text}", {keys[0].kind, keys[1].kind}
        are_exact = kinds <= {"number", "numbers", "ratio"} and "." not in both
        if are_exact or kinds in _NEVER_EQUAL or _WITH_BASE.search(both):
            return 0.0
    counted = _COUNTED.fullmatch(reference.strip()), _COUNTED.fullmatch(answer.strip())
    if counted[0] and counted[1] and counted[0][1].casefold() != counted[1][1].casefold():
        return 0.0
    are_words = str(expected).isalpha() and str(given).isalpha() and None in keys
    if are_words or (found.text is None and mathematics.is_doubtful(answer)):
        return 0.0
    try:
        return float(_VERIFYING.request([as_latex(reference), as_latex(answer)], SECONDS))
    except Killed:
        return 0.0  # not shown to be equal
    except Failed as error:
        return _ungraded(f"math-verify: {error}")


def _with_point(text: str, other: str) -> str:
    """Replace the decimal comma of `text` by a point, if `other` is a number with a decimal point."""
    text = text.strip(" $")
    is_decimal = _WITH_COMMA.fullmatch(text) and _DECIMAL.fullmatch(other.strip(" $"))
    return text.replace(",", ".") if is_decimal else text


class _Key(NamedTuple):
    key: str
    kind: str


@lru_cache(maxsize=8192)
def _expression_key(text: str | None) -> _Key | None:
    """Return the key of an expression. `None` if it cannot be read, or mpmath is not installed."""
    if text is None or find_spec("mpmath") is None:
        return None
    try:
        found = _KEYS.request(text, SECONDS)
    except Killed:
        return None
    except Failed as error:
        _ungraded(f"mpmath: {error}")
        return None
    return None if found is None else _Key(*found)


def _vote_key(task: Task, answer: str) -> Hashable:
    answer = final_answer(answer) or answer
    expression = read_expression(answer)
    found = _expression_key(expression.text)
    if found is None:
        return math_key(answer)
    unit = unit_key(expression.unit)
    return found.key if unit in _OFTEN_LEFT_OUT else (found.key, unit)


def _math_problem(reference: str) -> str | None:
    if find_spec("math_verify") is None:
        raise ImportError(f"{requires('math grading', 'math-verify', 'math')}.")
    return "" if math_key(reference) == "" else None


# Programs.


def _grade_python(task: Task, answer: str) -> float | None:
    before = str(task.data.get("code_before", ""))
    try:
        return float(passes_tests(list(_programs(answer, before)), str(task.reference), SECONDS))
    except Failed as error:
        return _ungraded(error)


def _programs(answer: str, before: str) -> Iterable[str]:
    """Yield the programs that an answer may mean, the likeliest first.

    The code of the answer is all code blocks joined, or each block alone, or else the whole text. A program
    is that code after `before`, without `before`, or after `before` with the lost indentation restored.
    """
    blocks = code_blocks(answer)[-8:]
    together = ["\n".join(blocks)] if blocks else [answer]
    for code in [*together, *(reversed(blocks) if len(blocks) > 1 else ())]:
        yield before + code
        if before:
            yield code
            yield f"{before}    {code.lstrip()}"
            yield before + "\n".join(f"    {line}" for line in code.splitlines())


def _python_problem(reference: str) -> str | None:
    try:
        return None if ast.parse(reference).body else ""
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return str(error)


GRADERS: Mapping[str, Grader] = {
    "number": Grader(
        _grade_number,
        lambda task, answer: last_number(answer),
        "must contain a number",
        _number_problem,
    ),
    "exact": Grader(_grade_exact, lambda task, answer: normalize(answer)),
    "grid": Grader(
        _grade_grid,
        lambda task, answer: last_grid(answer),
        "must contain a grid of numbers",
        lambda reference: "" if last_grid(reference) is None else None,
    ),
    "choice": Grader(_grade_choice, lambda task, answer: stated_choice(answer, choices_of(task))),
    "regex": Grader(_grade_regex, needs="must be a pattern", problem=_regex_problem, is_bounded=False),
    "math": Grader(_grade_math, _vote_key, problem=_math_problem, is_bounded=False),
    "python": Grader(_grade_python, needs="must be Python code", problem=_python_problem, is_bounded=False),
}
"""The graders by the value of `General.grading`."""
