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
from tot_lab.core.task import Task, Ungraded
from tot_lab.domains.general.mathematics import (
    as_latex,
    boxed_answer,
    is_rounded,
    last_number,
    math_key,
    without_text_marks,
)

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


def normalize(text: str) -> str:
    """Return `text` without case, spacing and closing punctuation."""
    return " ".join(text.split()).rstrip(" .!?,;:").casefold()


def _grade_exact(task: Task, answer: str) -> float:
    return float(normalize(answer) == normalize(str(task.reference)))


# Grids.

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


def _grade_grid(task: Task, answer: str) -> float:
    return float(last_grid(answer) == last_grid(str(task.reference)))


# Choices.

_OPEN, _CLOSE = r"[\s*_`\"'(\[]*", r"[*_`\"')\]]*"
_FIRST = re.compile(rf"{_OPEN}(\w+){_CLOSE}(?:[).\]:,;*\n](?!\d)|\s[-–—]\s|$)")
_STATED = re.compile(
    r"\b(?:answer|option|choice)\b[*_`:\s]{0,9}(?:is\b)?[*_`:\s(\[\"']{0,9}(\w+)\b", re.IGNORECASE
)
_ANOTHER = re.compile(
    rf"[\s)\].:*_]*(?:(?:(?:or|and)\b|[/&]){_OPEN}(\w+)\b|,{_OPEN}(\w+){_CLOSE}\s{{0,9}}(?:[.,;]|$))"
)
_MARKED = re.compile(r"\((\w{1,9})\)")
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _choices(task: Task) -> Mapping[str, str]:
    """Return the texts of the choices by their labels. Without them, every letter is a label."""
    known = task.data.get("choices")
    if isinstance(known, dict) and known:
        return {str(label): str(text) for label, text in known.items()}
    reference = () if task.reference is None else (_bare(str(task.reference)),)
    return dict.fromkeys([*_LETTERS, *reference], "")


def _bare(text: str) -> str:
    return text.strip(" \t\r\n*_`\"'()[].:")


def chosen(answer: str, choices: Mapping[str, str]) -> str | None:
    r"""Return the label of the choice that an answer names. `None` if it names none, or several at once.

    That is a label alone or at the beginning (`B`, `(b)`, `**B.** four`), the text of one choice, or else the
    last label that is stated (`the answer is B`) or stands in parentheses. Of an answer with a `\boxed{…}`,
    only its content is read.
    """
    answer = without_text_marks(boxed_answer(answer) or answer)
    bare = _bare(answer)
    texts = [label for label, text in choices.items() if text and normalize(text) == normalize(bare)]
    alone = _label(bare, choices, True)
    if alone is not None or len(texts) == 1:
        return alone or texts[0]
    first = _FIRST.match(answer)
    if first is not None and _label(first[1], choices, True) is not None:
        return None if _is_hedged(first, choices) else _label(first[1], choices, True)
    for pattern in (_STATED, _MARKED):
        found = [match for match in pattern.finditer(answer) if _label(match[1], choices) is not None]
        if found:
            hedged = any(_is_hedged(match, choices) for match in found)
            return None if hedged else _label(found[-1][1], choices)
    return None


def _label(word: str, choices: Mapping[str, str], any_case: bool = False) -> str | None:
    """Return the label that `word` is. A single letter in a sentence must have the case of the label."""
    if word in choices or not (any_case or len(word) > 1):
        return word if word in choices else None
    return next((label for label in choices if label.casefold() == word.casefold()), None)


def _is_hedged(match: re.Match[str], choices: Mapping[str, str]) -> bool:
    """Return whether another label follows the one in `match`, such as in `B or C`."""
    another = _ANOTHER.match(match.string, match.end(1))
    return another is not None and _label(another[1] or another[2], choices) is not None


def _grade_choice(task: Task, answer: str) -> float | None:
    return float(chosen(answer, _choices(task)) == _bare(str(task.reference)))


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


def code_blocks(text: str) -> list[str]:
    """Return the fenced blocks of Python in a text, or else those without a language."""
    blocks: dict[str, list[str]] = {"python": [], "": []}
    language = ""
    lines: list[str] | None = None
    for line in [*text.splitlines(), "```"]:
        if not line.lstrip().startswith("```"):
            if lines is not None:
                lines.append(line)
        elif lines is None:
            language, lines = line.strip(" `").lower(), []
        else:
            name = "python" if language in ("python", "py", "python3") else language
            blocks.setdefault(name, []).append("\n".join(lines))
            lines = None
    return blocks["python"] or blocks[""]


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
    "choice": Grader(_grade_choice, lambda task, answer: chosen(answer, _choices(task))),
    "regex": Grader(_grade_regex, needs="must be a pattern", problem=_regex_problem, is_bounded=False),
    "math": Grader(
        _grade_math, lambda task, answer: math_key(answer), problem=_math_problem, is_bounded=False
    ),
    "python": Grader(_grade_python, needs="must be Python code", problem=_python_problem, is_bounded=False),
}
"""The graders by the value of `General.grading`."""
