"""The verdict on a run: whether its answer is correct, how it ended, and which settings are not defaults.

The explorer shows all of these. Other views show the grade, the expected answer and how the run ended.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from tot_lab.core.calls import format_error
from tot_lab.core.records import describe_stop
from tot_lab.record.run import Run
from tot_lab.views.figures.theme import printable, short, style_figure

NOT_ENDED = "has not ended"
FAILED = "failed"
"""The grade in words if a run ended with an error. Its answer counts as neither right nor wrong."""

LONGEST = 200
"""Maximum number of characters of an expected answer or of the settings."""


class Verdict(NamedTuple):
    """The outcome and the settings of a run, which the explorer shows in its first line.

    Attributes:
        correct: Whether the answer is correct. `None` if that is not known, or the run has not ended.
        grade: The grade in words: `✓ correct`, `✗ wrong`, `✗ no answer`, `✗ graded 0.5 of 1`, `failed`, or
            the reason why the answer has no grade.
        expected: The reference answer of the task, or "" if the task has none.
        stopped: Why the run ended, in words.
        settings: The settings of the strategy that differ from their defaults, as Python source, or `default
            settings`. "" if the strategy cannot be built.
    """

    correct: bool | None
    grade: str
    expected: str
    stopped: str
    settings: str


def verdict_of(run: Run) -> Verdict:
    """Return the verdict on a run, finished or not. An error of a loaded task or strategy is not raised."""
    stopped = f"failed: {short(run.failure, LONGEST)}" if run.failure else stop_words(run)
    return Verdict(correctness(run), grade_words(run), _expected(run), stopped, _settings(run))


def correctness(run: Run) -> bool | None:
    """Whether the answer is correct. `None` if unknown, or if views must not grade (`waits_for_grading`)."""
    try:
        return None if run.waits_for_grading else run.correct
    except Exception:  # raised by a loaded task, or by a user's function
        return None


def format_grade(run: Run) -> str:
    """Return the grade in words, or why the answer has no grade, including an error that grading raised.

    "" if nobody asked for a grade: the run has no task, or its task has neither a reference nor `grade=`.
    """
    try:
        if run.waits_for_grading:
            return "not graded yet: access run.grade to grade it"
        if run.failure is not None:
            return FAILED
        if run.grade is None:
            if run.ungraded:
                return f"not graded: {printable(run.ungraded)}"
            why = "" if run.task is None else run.task.domain.why_ungraded(run.task)
            return why and f"ungraded: {why}"
        if run.correct:
            return "✓ correct"
        return "✗ wrong" if run.grade == 0 else f"✗ graded {run.grade:.3g} of 1"
    except Exception as error:
        return f"not graded ({short(format_error(error), 100)})"


def grade_words(run: Run) -> str:
    """Return `format_grade`, but `✗ no answer` for a wrong empty answer, and `ungraded` instead of ""."""
    grade = format_grade(run) or "ungraded"
    return "✗ no answer" if grade == "✗ wrong" and not run.answer else grade


def stop_words(run: Run) -> str:
    """Return why a run ended, in words, with the error or the state of an incomplete answer."""
    if run.stop_reason is None:
        return NOT_ENDED
    words = printable(describe_stop(run.stop_reason))
    if run.error:
        return f"{words}: {short(run.error, LONGEST)}"
    state = {"unfinished": "unfinished", "cut": "cut off at max_tokens"}.get(run.answer_state or "")
    return f"{words}, with an answer that is {state}" if state else words


def answer_words(answer: str, grade: str) -> str:
    """Return the answer and its grade on one line."""
    text = " ".join(answer.split())
    if not text:
        text, grade = "none", grade.removesuffix(" no answer")
    return f"answer: {text} {grade}".rstrip()


def style_run_figure(
    figure: Any, run: Run, title: str, notes: list[str], dark: bool | None, **layout: Any
) -> None:
    """Call `style_figure` for a figure of one run.

    The subtitle has the strategy and the question, then the answer with its grade, then `notes`.
    """
    named = short(f"{run.name}  ·  {run.question}", 120)
    ended = run.stop_reason is not None
    verdict = answer_words(short(run.answer, 80), grade_words(run)) if ended else NOT_ENDED
    lines = [named, verdict, *notes]
    style_figure(figure, [title], lines, run.model_note, dark, hovermode="closest", **layout)


def _expected(run: Run) -> str:
    try:
        reference: Any = None if run.task is None else run.task.domain.expected(run.task)
        if reference is None:
            return ""
        return short(reference if isinstance(reference, str) else json.dumps(reference), LONGEST)
    except Exception:  # raised by a loaded task
        return ""


def _settings(run: Run) -> str:
    try:
        strategy = run.strategy
        shown = "" if strategy is None else repr(strategy)[len(type(strategy).__name__) + 1 : -1]
        shown = re.sub(r"(?<![\w.])(?:[\w.]*<locals>\.)+", "", shown)  # omits the scopes of local functions
    except Exception:  # raised by a loaded strategy, such as one without its package
        return ""
    return "" if strategy is None else short(shown, LONGEST) or "default settings"
