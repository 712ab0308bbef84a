"""Loading of tasks from a file, a DataFrame or dicts.

Every row becomes a task. An invalid row raises an error that names the file, the line and the field, before a
model is called.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError

from tot_lab.core.task import Task
from tot_lab.domains.general import General, Grading, task_of
from tot_lab.domains.gym import gym_tasks

_Row = tuple[str, Any]  # the location of a row for error messages, and its value


def tasks(
    source: str | Path | Iterable[Mapping[str, Any]] | Any,
    count: int | None = None,
    *,
    question: str = "question",
    answer: str | None = None,
    grade: Grading | Callable[..., Any] | None = None,
    id: str | None = None,
    seed: int | None = None,
    difficulty: Mapping[str, Any] | None = None,
) -> list[Task]:
    """Make one `general` task per row, or tasks of a family of reasoning-gym.

    Args:
        source: A file (.jsonl, .json with a list, or .csv with a header; UTF-8), a pandas DataFrame, or an
            iterable of dicts. `gym:FAMILY`, such as `gym:countdown`, generates tasks with reasoning-gym.
        count: Number of tasks to generate.
        question: Field with the question.
        answer: Field with the reference answer. `None` means that the rows have no answers. A row whose field
            is empty, null or NaN has no answer and is not graded.
        grade: How answers are compared with the reference (see `General.grading`). It requires `answer`.
        id: Field with the task's id. `None` numbers the rows from 1.
        seed: For `gym:FAMILY`: the same seed generates the same tasks, 0 by default. Many families use
            `seed + k` for task `k`, so the tasks of near seeds overlap.
        difficulty: For `gym:FAMILY`: fields of the family's configuration and their values.

    Raises:
        ValueError: If a row is invalid. The message names the file, the line (or row) and the field.
        OSError: If the file cannot be read.
        ModuleNotFoundError: If `gym:FAMILY` is requested and reasoning-gym is not installed.
    """
    if isinstance(source, str) and source.startswith("gym:"):
        if question != "question" or (answer, grade, id) != (None, None, None):
            raise ValueError(f"{source}: question, answer, grade and id are for files of questions.")
        return gym_tasks(source.removeprefix("gym:"), count, seed, difficulty)
    if (count, seed, difficulty) != (None, None, None):
        raise ValueError("count, seed and difficulty are for generated tasks, such as 'gym:countdown'.")
    if grade is not None and answer is None:
        raise ValueError("`grade` requires `answer`, the name of the field with the reference answer.")
    domain = General.model_validate({"grading": grade})
    made = []
    for number, (where, row) in enumerate(_rows(source), 1):
        if not isinstance(row, Mapping):
            raise ValueError(f"{where}: a row must be an object with fields: got {_kind(row)}.")
        text = _field(where, row, question)
        if not isinstance(text, str):
            raise ValueError(f"{where}: field {question!r} must contain text: got {_kind(text)}.")
        reference = None if answer is None else _reference(_field(where, row, answer))
        name = number if id is None else _field(where, row, id)
        try:
            made.append(task_of(domain, text, reference, id=str(name)))
        except ValidationError as error:
            problem = error.errors()[0]
            raise ValueError(f"{where}: {problem['loc'][0]}: {problem['msg']}") from None
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
    return made


def _field(where: str, row: Mapping[str, Any], name: str) -> Any:
    if name not in row:
        has = ", ".join(repr(key) for key in row) or "none"
        raise ValueError(f"{where}: field {name!r} is missing: got the fields {has}.")
    value = row[name]
    blank = value is None or (isinstance(value, float) and math.isnan(value))
    return "" if blank or type(value).__name__ in ("NAType", "NaTType") else value  # missing values of pandas


def _reference(value: Any) -> Any:
    if hasattr(value, "item"):
        value = value.item()  # A numpy scalar cannot be recorded.
    return None if isinstance(value, str) and not value.strip() else value


def _rows(source: Any) -> Iterator[_Row]:
    if isinstance(source, str | Path):
        path = Path(source)
        readers = {".jsonl": _json_lines, ".json": _json_list, ".csv": _csv_rows}
        if path.suffix.lower() not in readers:
            raise ValueError(f"{path}: unknown file type: got {path.suffix!r}. Use {', '.join(readers)}.")
        try:
            text = path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: not UTF-8 text: byte {error.start} cannot be decoded.") from None
        yield from readers[path.suffix.lower()](path.name, text)
    elif hasattr(source, "columns") and hasattr(source, "to_dict"):  # a DataFrame; pandas is not imported
        yield from _number_rows(source.to_dict("records"))
    elif isinstance(source, Iterable) and not isinstance(source, Mapping):
        yield from _number_rows(source)
    else:
        raise ValueError(
            f"source must be a file name, a DataFrame or an iterable of dicts: got {_kind(source)}."
        )


def _number_rows(rows: Iterable[Any], name: str = "") -> Iterator[_Row]:
    for k, row in enumerate(rows, 1):
        yield f"{name}row {k}", row


def _json_lines(name: str, text: str) -> Iterator[_Row]:
    for k, line in enumerate(text.split("\n"), 1):  # not `splitlines`: JSON allows U+2028
        if line.strip():
            yield f"{name} line {k}", _json(f"{name} line {k}", line)


def _json_list(name: str, text: str) -> Iterator[_Row]:
    rows = _json(name, text)
    if not isinstance(rows, list):
        raise ValueError(f"{name}: the file must contain a list of objects: got {_kind(rows)}.")
    yield from _number_rows(rows, f"{name} ")


def _json(where: str, text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_reject_constant)
    except json.JSONDecodeError as error:
        place = f" line {error.lineno}" if error.lineno > 1 else ""
        raise ValueError(f"{where}{place}: invalid JSON: {error.msg} at column {error.colno}.") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: invalid JSON: {error}") from None


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number.")


def _csv_rows(name: str, text: str) -> Iterator[_Row]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in reader:
            cells = {key: cell for key, cell in row.items() if key is not None and cell is not None}
            where = f"{name} line {reader.line_num - sum(cell.count(chr(10)) for cell in cells.values())}"
            if len(row) > len(reader.fieldnames or ()):
                raise ValueError(f"{where}: the row has more cells than the header.")
            yield where, cells
    except csv.Error as error:
        raise ValueError(f"{name} line {reader.line_num}: {error}") from None


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "nothing"}
    return names.get(type(value), f"a {type(value).__name__}")
