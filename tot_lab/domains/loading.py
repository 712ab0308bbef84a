"""Loading of tasks from a file, a DataFrame, dicts or the tasks of another package.

Every row becomes a task. An invalid row raises an error that names the file, the line and the field, before a
model is called.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tot_lab.core.parameters import with_example
from tot_lab.core.parts import known_names
from tot_lab.core.registry import find, names
from tot_lab.core.task import Task
from tot_lab.domains.general import General, Grading, task_of
from tot_lab.domains.gym import gym_tasks
from tot_lab.domains.rows import Row, kind_of, rows


@with_example('tl.tasks(FILE, question="…", answer="…")')
def tasks(
    source: str | Path | Iterable[Mapping[str, Any]] | Any,
    count: int | None = None,
    *,
    format: str | None = None,
    question: str = "question",
    answer: str | None = None,
    grade: Grading | Callable[..., Any] | None = None,
    id: str | None = None,
    seed: int | None = None,
    difficulty: Mapping[str, Any] | None = None,
) -> list[Task]:
    """Make one task per row, or tasks of a family of reasoning-gym.

    Args:
        source: Path of a file: .jsonl, .json, or .csv with a header, in UTF-8 and possibly compressed (.gz),
            or .parquet, which requires the extra `parquet`. Also a pandas DataFrame, or an iterable of dicts.
            `gym:FAMILY`, such as `gym:countdown`, generates tasks with reasoning-gym. An Inspect task gives
            one task per sample, graded by the scorer of the Inspect task (`tot_lab.interop.inspect_tasks`).
        count: For `gym:FAMILY`: number of tasks.
        format: Name of a published format, which determines the fields, the question and the grading:
            `gsm8k`, `math500`, `aime`, `humaneval`, `mbpp`, `arc`, `arc_agi`, `bbh`, `strategyqa`, or a
            format of an installed package. `None` makes `general` tasks of the fields that the other
            arguments name.
        question: Field with the question.
        answer: Field with the reference answer. `None` makes tasks without a reference, with a warning if the
            rows have a field `answer`. A row whose field is empty, null or NaN is not graded, with a warning.
        grade: How answers are compared with the reference (see `General.grading`). It requires `answer`.
            `None` grades no answer, unless `format` is given.
        id: Field with the task's id. `None` numbers the rows from 1.
        seed: For `gym:FAMILY`: the same seed generates the same tasks. `None` means 0. Many families use
            `seed + k` for task `k`, so seeds that differ by less than `count` give some equal tasks.
        difficulty: For `gym:FAMILY`: fields of the family's configuration and their values.

    Raises:
        ValueError: If there is no row, or one is invalid. The message names the file, the line (or row) and
            the field.
        OSError: If the file cannot be read.
        ImportError: If the file, the grading or `gym:FAMILY` requires a package that is not installed.
    """
    package = find(type(source).__module__.partition(".")[0], "task_sources")
    if package is not None:
        if (question, count, format, answer, grade, id, seed, difficulty) != ("question", *[None] * 7):
            raise ValueError(
                f"A task of another package must be the only argument: got {source!r} and other arguments."
            )
        taken: list[Task] = package.value(source)
        return taken
    if isinstance(source, str) and source.startswith("gym:"):
        if question != "question" or (answer, grade, id) != (None, None, None):
            raise ValueError(f"{source}: question, answer, grade and id apply only to rows. Leave them out.")
        return gym_tasks(source.removeprefix("gym:"), count, seed, difficulty)
    if (count, seed, difficulty) != (None, None, None):
        raise ValueError(
            "count, seed and difficulty apply only to tasks such as 'gym:countdown'. Leave them out for rows."
        )
    if format is not None:
        if (question, answer, grade, id) != ("question", None, None, None):
            raise ValueError(
                f"`format` determines the fields: got format={format!r} and other arguments. Pass no "
                "`question`, `answer`, `grade` or `id`."
            )
        make = _format_named(format)
    else:
        if grade is not None and answer is None:
            raise ValueError(
                f"`grade` requires `answer`, the field with the reference answer: got only grade={grade!r}."
            )
        settings: dict[str, Any] = {"grading": grade}
        domain = General(**settings)

        def make(row: Row) -> Task:
            text = row.text(question)
            reference = None if answer is None else _reference(row[answer])
            return task_of(domain, text, reference, id="" if id is None else str(row[id]))

    made = []
    known: dict[tuple[str, str], str] = {}
    doubtful: dict[str, list[str]] = {}  # rows by what is wrong with them
    for number, (where, row) in enumerate(rows(source), 1):
        if not isinstance(row, Mapping):
            raise ValueError(f"{where}: a row must be an object with fields: got {kind_of(row)}.")
        try:
            task = make(Row(row))
            made.append(task if task.id else task.model_copy(update={"id": str(number)}))
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        if format is None and answer is None and "answer" in row.keys() - {question, id}:
            unused = (
                "'answer' is not used, so the task is not graded. Pass answer='answer' and, for example, "
                "grade='exact'."
            )
            doubtful.setdefault(unused, []).append(where)
        if answer is not None and task.reference is None:
            doubtful.setdefault(f"{answer!r} is empty, so the task is not graded.", []).append(where)
        if grade in ("exact", "math") and _GSM8K.search(str(task.reference)):
            doubtful.setdefault(f"{answer!r} is a whole solution. Use format='gsm8k'.", []).append(where)
        first = known.setdefault((task.question, repr(task.data)), where)
        if first != where:
            doubtful.setdefault("both rows are tasks.", []).append(f"{where} repeats the question of {first}")
    if not made:
        raise ValueError(f"{source if isinstance(source, str | Path) else 'source'} has no rows.")
    _warn_of(doubtful)
    return made


def _warn_of(doubtful: Mapping[str, Sequence[str]]) -> None:
    """Warn once of each problem in `doubtful`, which maps it to the locations of its rows."""
    for what, places in doubtful.items():
        more = f" and {len(places) - 1:,} more" if len(places) > 1 else ""
        warnings.warn(f"{places[0]}{more}: {what}", UserWarning, stacklevel=4)  # skips `with_example`


_GSM8K = re.compile(r"^#### ?[-$\d.,]+\s*\Z", re.MULTILINE)


def _format_named(name: str) -> Callable[[Row], Task]:
    found = find(name, "formats")
    if found is None:
        raise ValueError(f"unknown format {name!r}; {known_names(name, names('formats'))}")
    make: Callable[[Row], Task] = found.value
    return make


def _reference(value: Any) -> Any:
    return None if isinstance(value, str) and not value.strip() else value
