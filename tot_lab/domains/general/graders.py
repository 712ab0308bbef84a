"""How an answer is compared with a reference, one `Grader` for each value of `General.grading`.

A grader accepts any text and never raises. What a pattern, an expression or a program may do for long is done
in a process that can be killed.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from fractions import Fraction
from importlib.util import find_spec
from typing import NamedTuple

from tot_lab.core.domain import Ungraded
from tot_lab.core.extras import requires
from tot_lab.core.processes import Failed, Killed, Worker, found_in, passes_tests
from tot_lab.core.task import Task

SECONDS = 5
"""CPU time of one comparison in another process."""

_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+"
_NUMBER = re.compile(
    rf"(?<![\w.])(?P<sign>[-+]?)\$?(?P<above>{_DIGITS})(?:[eE](?P<power>[-+]?\d{{1,3}})(?!\d))?"
    rf"(?:\s{{0,2}}/\s{{0,2}}\$?(?P<below>{_DIGITS}))?",
    re.ASCII,
)
_FRACTION = re.compile(r"\\[dt]?frac ?(?:\{(\d+)\}|(\d)) ?(?:\{(\d+)\}|(\d))", re.ASCII)
_MIXED = re.compile(
    r"(?<![\w.,/])(\d{1,3}(?:,\d{3})+|\d+)"
    rf"(?: {{0,2}}{_FRACTION.pattern}| {{1,2}}(\d+) ?/ ?(\d+))(?!\d|[.,/]\d)",
    re.ASCII,
)
_LONGEST = 1000  # characters; a longer number is not compared
_MATHS = 4000  # characters at the end of an answer that are searched for an expression


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


def last_number(text: str) -> Fraction | None:
    r"""Return the exact last number in `text`: `1,000`, `$5`, `2.5e-1`, `3/4`, `\frac{3}{4}`, `1 3/4`.

    Returns `None` without one, or if it has over 1,000 characters.
    """
    found = deque(_NUMBER.finditer(_with_slashes(text)), maxlen=1)
    return _value(found[0]) if found else None


def _value(number: re.Match[str]) -> Fraction | None:
    if len(number[0]) > _LONGEST:
        return None
    value = Fraction(number["above"].replace(",", "")) * Fraction(10) ** int(number["power"] or 0)
    if number["below"] is not None:
        below = Fraction(number["below"].replace(",", ""))
        if not below:
            return None
        value /= below
    return -value if number["sign"] == "-" else value


def _with_slashes(text: str) -> str:
    r"""Write the numbers of a text plainly: `\frac{3}{4}` as 3/4, `1\frac{3}{4}` as 7/4."""
    text = text.replace("−", "-").replace("\\$", "$").replace("$-", "-$")
    return _FRACTION.sub(lambda match: "/".join(filter(None, match.groups())), improper(text))


def improper(text: str) -> str:
    r"""Write mixed numbers, such as `1 3/4` and `1\frac{3}{4}`, as fractions: `\frac{7}{4}`."""
    return _MIXED.sub(_improper, text)


def _improper(match: re.Match[str]) -> str:
    parts = [part for part in match.groups() if part is not None]
    if max(map(len, parts)) > _LONGEST:
        return match[0]
    whole, above, below = (int(part.replace(",", "")) for part in parts)
    is_mixed = above < below  # `11 7/6` is no mixed number
    return f"\\frac{{{whole * below + above}}}{{{below}}}" if is_mixed else match[0]


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


def last_grid(text: str) -> tuple[tuple[str, ...], ...] | None:
    """Return the rows of the last grid of numbers in `text`: a line per row, or a list of lists.

    Digits without spaces between them are a cell each. Blank lines are ignored. `None` without a grid.
    """
    rows: list[tuple[str, ...]] = []
    for line in reversed(text.replace("],", "]\n").splitlines()):
        if _ROW.fullmatch(line):
            cells = _CELL.findall(line)
            rows.append(tuple(cells if len(cells) > 1 else cells[0]))
        elif rows and line.strip():
            break
    return tuple(reversed(rows)) or None


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
    """Return the label of the choice that an answer names. `None` if it names none, or several at once.

    That is a label alone or at the beginning (`B`, `(b)`, `**B.** four`), the text of one choice, or else the
    last label that is stated (`the answer is B`) or stands in parentheses.
    """
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

_IGNORED = ("\\$", "\\left", "\\right", "\\!", "\\,", "\\;", "\\:", "\\ ", "$", "~")
_BRACED = re.compile(r"\\(?:text|textbf|textrm|mathrm|mbox|begin|end)\{([^{}]*)\}")
_NAME = re.compile(r"(?<![\\A-Za-z])(pi|sin|cos|tan|log|ln)\b")
_BETWEEN = re.compile(r"(?:[\s,;$]|\\(?:quad|text\{,? ?(?:and|or) ?\}|[()\[\]])|(?:and|or)\b)*")  # two boxes
_ROOT = re.compile(r"√ ?(\d+|[a-z])")
_JOINED = re.compile(r"\s(?:and|or)\s")
_THOUSANDS = re.compile(r"(?<=\d) (?=\d{3}(?!\d))", re.ASCII)
_LOOSE = re.compile(r"(?<![\d,]) | (?!\d)")
_WORD = re.compile(
    r"(?<![\\A-Za-z])(?!sqrt\b)(?:[A-Za-z]{4,}|(?:the|are|for|is|of|to|in|by|we|it|so|cm|km|mm|kg|ft)\b)"
)


def last_boxed(text: str) -> str | None:
    r"""Return the content of the last `\boxed{…}`. `None` without one, or if it is not closed.

    Boxes that follow each other, such as `\boxed{1}` and `\boxed{2}`, are one list: `1, 2`.
    """
    found: dict[str, None] = {}
    end = len(text)
    while (start := text.rfind("\\boxed{", 0, end)) >= 0:
        close = _closing(text, start + 6)
        if close is None or (found and not (close < end and _BETWEEN.fullmatch(text, close + 1, end))):
            break
        found[text[start + 7 : close]] = None
        end = start
    return ", ".join(reversed(found)) if found else None


def _closing(text: str, start: int) -> int | None:
    """Return the index of the brace that closes the one at `start`."""
    depth = 0
    for k in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[k], 0)
        if depth == 0:
            return k
    return None


def _math_key(answer: str) -> Fraction | str:
    """Return the value of an answer that is a number, or else its expression without what LaTeX ignores."""
    tail = answer[-_MATHS:]
    text = _BRACED.sub(r"\1", last_boxed(tail) or tail).replace("{,}", ",").replace("\\! ", "")
    for mark in _IGNORED:
        text = text.replace(mark, "")
    text = _LOOSE.sub("", " ".join(text.split())).strip("*`").rstrip(".")
    for degrees in ("^\\circ", "^{\\circ}", "°"):
        text = text.removesuffix(degrees)
    number = _NUMBER.fullmatch(_with_slashes(_THOUSANDS.sub("", text)))
    value = None if number is None else _value(number)
    if value is not None:
        return value
    text = text.replace(", ", ",").replace("dfrac", "frac").replace("tfrac", "frac")
    return text.casefold() if text.isalpha() and len(text) > 3 else text


def _as_latex(text: str) -> str:
    """Mark an expression as LaTeX, so that all of it is read. A text with words or marks stays as it is."""
    boxed = last_boxed(text)
    text = _ROOT.sub(r"\\sqrt{\1}", improper(text if boxed is None else boxed).strip(" \t\r\n*`"))
    if boxed is not None:
        return f"${text}$"
    text = _JOINED.sub(", ", text)
    is_marked = "$" in text.replace("\\$", "") or any(mark in text for mark in ("\\(", "\\["))
    is_prose = "\n" in text or _WORD.search(_BRACED.sub("", text)) is not None
    return text if is_marked or is_prose else "$" + _NAME.sub(r"\\\1 ", text.rstrip(".")) + "$"


def _grade_math(task: Task, answer: str) -> float | None:
    reference = str(task.reference)
    expected, given = _math_key(reference), _math_key(answer)
    if given == expected or (isinstance(expected, Fraction) and isinstance(given, Fraction)):
        return float(given == expected)
    try:
        return float(_VERIFYING.request([_as_latex(reference), _as_latex(answer[-_MATHS:])], SECONDS))
    except Killed:
        return 0.0  # no equality was shown
    except Failed as error:
        return _ungraded(f"math-verify: {error}")


def _math_problem(reference: str) -> str | None:
    if find_spec("math_verify") is None:
        raise ImportError(f"{requires('math grading', 'math-verify', 'math')}.")
    return "" if _math_key(reference) == "" else None


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
        _grade_math, lambda task, answer: _math_key(answer), problem=_math_problem, is_bounded=False
    ),
    "python": Grader(_grade_python, needs="must be Python code", problem=_python_problem, is_bounded=False),
}
"""The graders by the value of `General.grading`."""
