"""How an answer is compared with a reference, one `Grader` for each value of `General.grading`.

A grader accepts any text and never raises. What a pattern, an expression or a program may do for long is done
in a process that can be killed.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping
from fractions import Fraction
from importlib.util import find_spec
from typing import NamedTuple

from tot_lab.core.extras import requires
from tot_lab.core.processes import Failed, Killed, Worker, found_in, passes_tests
from tot_lab.core.reading.answers import normalize
from tot_lab.core.reading.choices import stated_choice
from tot_lab.core.reading.code import code_blocks
from tot_lab.core.reading.grids import last_grid
from tot_lab.core.reading.mathematics import (
    as_latex,
    is_rounded,
    last_number,
    math_key,
)
from tot_lab.core.task import Task, Ungraded

SECONDS = 5
"""CPU time of one comparison in another process. Its wall time is limited to `WALL` times as much."""


class Grader(NamedTuple):
    """One way to compare answers with a reference.

    Attributes:
        grade: Returns how correct an answer is. `None` if the comparison failed.
        key: Returns a key that is equal for answers that count as the same. `None` leaves it to the text.
        needs: What a reference must be.
        problem: Returns what is wrong with a reference, in words or "". `None` if it can be used.
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
    """Return the texts of the choices by their labels. Without them, every letter is a label."""
    known = task.data.get("choices")
    if isinstance(known, dict) and known:
        return {str(label): str(text) for label, text in known.items()}
    reference = () if task.reference is None else (_bare(str(task.reference)),)
    return dict.fromkeys([*_LETTERS, *reference], "")


def _bare(text: str) -> str:
    return text.strip(" \t\r\n*_`\"'()[].:")


def _grade_choice(task: Task, answer: str) -> float | None:
    return float(stated_choice(answer, choices_of(task)) == _bare(str(task.reference)))


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

_VERIFYING = Worker("""
import logging
from math_verify import parse, verify

logging.disable()

def answer(request):
    try:
        expected, given = (parse(text, parsing_timeout=None) for text in request)
        return bool(verify(expected, given, allow_set_relation_comp=True, timeout_seconds=None))
    except Exception:
        return False
""")


def _grade_math(task: Task, answer: str) -> float | None:
    reference = str(task.reference)
    expected, given = math_key(reference), math_key(answer)
    if isinstance(expected, Fraction) and isinstance(given, Fraction):
        return float(given == expected or is_rounded(given, expected))
    if given == expected:
        return 1.0
    try:
        return float(_VERIFYING.request([as_latex(reference), as_latex(answer)], SECONDS))
    except Killed:
        return 0.0  # no equality was shown
    except Failed as error:
        return _ungraded(f"math-verify: {error}")


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

    They are its blocks of code, together or each alone, or else the whole text. The code continues `before`
    or stands alone, also if the indentation of its first line was lost.
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
    "math": Grader(
        _grade_math, lambda task, answer: math_key(answer), problem=_math_problem, is_bounded=False
    ),
    "python": Grader(_grade_python, needs="must be Python code", problem=_python_problem, is_bounded=False),
}
"""The graders by the value of `General.grading`."""
