"""`tl.read_nodes`: runs from tables with one row per node.

    file, frame or dicts → `_Table` (checked columns) → `LoggedNode`s → `run_of_nodes` → Run

A bad cell is an error that names the file, the line (or row) and the column.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any

import msgspec

from tot_lab.core.bulk import gc_paused
from tot_lab.core.calls import MAX_TOKENS, Message, Reply, is_token_count
from tot_lab.core.reading.values import finite
from tot_lab.core.task import Task
from tot_lab.record.journal import JournalError
from tot_lab.record.logs.common import UNREADABLE, contents, decoded, kind, tool_call_of
from tot_lab.record.nodes import STATES, LoggedCall, LoggedEnd, LoggedNode, Place, run_of_nodes, start_of
from tot_lab.record.run import Run

Tokens = str | tuple[str, str] | None
"""A column with the tokens of the reply, or two: those of the prompt and of the reply."""

Times = str | tuple[str, str] | None
"""A column with the time of the node, or two: the times of its call and of the reply."""


@gc_paused()
def read_nodes(
    source: str | os.PathLike[str] | Iterable[Mapping[str, Any]] | Any,
    *,
    id: str = "id",
    parent: str = "parent",
    text: str = "text",
    score: str | None = None,
    score_range: tuple[float, float] = (0.0, 1.0),
    state: str | None = None,
    prompt: str | None = None,
    reply: str | None = None,
    tokens: Tokens = None,
    time: Times = None,
    call: str | None = None,
    task: Task | None = None,
    answer: str | None = None,
) -> Run:
    """Make a run of a table with one row per node, such as the log of a search of your own.

        run = tl.read_nodes("nodes.jsonl", text="thought", score="value", score_range=(0, 10))
        run = tl.read_nodes(df, prompt="messages", reply="completion", tokens=("in", "out"), task=task)

    Rows come in any order. A row without a parent is the root and holds the question; if there are several,
    they become children of a root with the question of `task`. What the rows do not hold is unknown. The
    usage of the run sums the calls in the rows.

    Args:
        source: A file (JSON Lines, or JSON with a list of objects), a pandas DataFrame, or an iterable of
            dicts.
        id: Column with the id of the node: a text or a whole number.
        parent: Column with the id of its parent, empty for a root.
        text: Column with the thought.
        score: Column with the score.
        score_range: The lowest and the highest score. The run's scores are from 0 to 1, and `raw` keeps those
            of the rows.
        state: Column with what became of the node: `kept`, `pruned`, another word of
            `tl.records.Decided`, or true (kept) and false (pruned). `answer` marks the nodes that hold the
            final answers; the best score is first.
        prompt: Column with the prompt that led to the node: a text, or chat messages with `role` and
            `content`.
        reply: Column with the model's reply.
        tokens: Column with the tokens of the reply, or two columns: those of the prompt and of the reply.
        time: Column with the time of the node: seconds, or an ISO 8601 text or a datetime. Two columns are
            the times of its call and of the reply.
        call: Column with a name of the call, if one call led to several nodes. Rows without it, and rows with
            different names, have calls of their own.
        task: The task. `None` makes one of the question in the root, which is not graded.
        answer: The final answer. `None` takes it from the nodes in the state `answer`.

    Raises:
        OSError: If the file cannot be read.
        JournalError: For a bad row. The message names the file, the line (or row) and the column.
    """
    rows, place = _rows(source)
    table = _Table(rows, place)
    calls = _calls(table, prompt, reply, tokens, time, call)
    columns = (
        table.ids(id),
        table.ids(parent, optional=True),
        table.texts(text),
        table.column(score, _score, float),
        [cell or "" for cell in table.column(state, _state)],
        calls,
        table.column(time if isinstance(time, str) else time and time[1], _seconds),
    )
    nodes = [LoggedNode(*fields) for fields in zip(*columns, strict=True)]
    final = [node for node in nodes if node.state == "answer"]
    final.sort(key=lambda node: -1.0 if node.score is None else -node.score)
    names = {"id": id, "parent": parent, "score": score, "time": time}

    def where(k: int, field: str) -> str:
        return f"{place(k)}, field {names[field]!r}"

    return run_of_nodes(
        nodes,
        name=Path(source).name if isinstance(source, str | os.PathLike) else "nodes",
        task=task,
        end=LoggedEnd(answer, [node.id for node in final]),
        score_range=score_range,
        started=_started(table, nodes, time, where),
        where=where,
    )


class _Table:
    """The columns of rows. A bad cell is an error that names its place."""

    def __init__(self, rows: Sequence[Any], place: Callable[[int], str]) -> None:
        self.rows = rows
        self.place = place
        if not set(map(type, rows)) <= {dict}:
            for k, row in enumerate(rows):
                if not isinstance(row, Mapping):
                    raise JournalError(f"{place(k)}: a row must be an object with fields: got {kind(row)}.")
        if not rows:
            raise JournalError(f"{place(0)}: there are no rows.")

    def cells(self, name: str, required: bool) -> list[Any]:
        """The cells of a column, `None` where they are empty."""
        cells = [row.get(name) for row in self.rows]
        if not any(name in row for row in self.rows):
            has = ", ".join(map(repr, self.rows[0])) or "none"
            raise JournalError(f"{self.place(0)}: field {name!r} is missing: got the fields {has}.")
        kinds = set(map(type, cells))
        if kinds - {float} <= _PLAIN:
            if float in kinds:
                cells = [None if cell != cell else cell for cell in cells]  # NaN
        else:
            cells = [None if _is_blank(cell) else cell for cell in cells]
        if required and None in cells:
            k = cells.index(None)
            raise JournalError(f"{self.place(k)}: field {name!r} is missing or empty.")
        return cells

    def column(self, name: str | None, read: Callable[[Any], Any], plain: type | None = None) -> list[Any]:
        """The values of a column, `None` where a cell is empty, or everywhere without a column.

        If all other cells have the type `plain`, they are the values.
        """
        if name is None:
            return [None] * len(self.rows)
        cells = self.cells(name, required=False)
        return cells if set(map(type, cells)) <= {plain, type(None)} else self.read(name, cells, read)

    def read(self, name: str, cells: list[Any], read: Callable[[Any], Any]) -> list[Any]:
        values: list[Any] = []
        try:
            add = values.append
            for cell in cells:
                add(None if cell is None else read(cell))
        except (ValueError, TypeError, KeyError) as error:
            raise JournalError(f"{self.place(len(values))}, field {name!r}: {error}") from None
        return values

    def ids(self, name: str, *, optional: bool = False) -> list[Any]:
        cells = self.cells(name, not optional)
        return cells if set(map(type, cells)) <= {str, type(None)} else self.read(name, cells, _id)

    def texts(self, name: str) -> list[Any]:
        cells = self.cells(name, required=True)
        return cells if set(map(type, cells)) == {str} else self.read(name, cells, _text)


_PLAIN = {str, int, bool, type(None), list, dict}
"""Types of cells that are not empty, except `None`."""


def _is_blank(cell: Any) -> bool:
    """Whether a cell is `None`, NaN, or a missing value of pandas."""
    return cell is None or type(cell).__name__ in ("NAType", "NaTType") or (cell != cell) is True


def _id(cell: Any) -> str:
    """An id as text. A column of whole numbers with gaps has floats in pandas."""
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    if isinstance(cell, bool) or not isinstance(cell, str | int):
        raise ValueError(f"an id must be a text or a whole number: got {cell!r:.80}.")
    return str(cell)


def _text(cell: Any) -> str:
    if type(cell) is not str and not isinstance(cell, str):
        raise ValueError(f"must contain text: got {kind(cell)}.")
    return cell


def _score(cell: Any) -> float:
    number = cell if type(cell) is float and isfinite(cell) else finite(cell)
    if number is None:
        raise ValueError(f"a score must be a number: got {cell!r:.80}.")
    return number


def _state(cell: Any) -> str:
    state = {True: "kept", False: "pruned"}[cell] if isinstance(cell, bool) else cell
    if state not in STATES:
        raise ValueError(f"unknown state: got {cell!r:.80}. Use {', '.join(STATES[1:])}, true or false.")
    return str(state)


def _count(cell: Any) -> int:
    if type(cell) is int and 0 <= cell <= MAX_TOKENS:
        return cell
    number = int(cell) if isinstance(cell, float) and cell.is_integer() else cell
    if not is_token_count(number):
        raise ValueError(f"must contain a number of tokens: got {cell!r:.80}.")
    return int(number)


def _seconds(cell: Any) -> float:
    """A time in seconds. Dates without a zone are UTC."""
    if isinstance(cell, str):
        cell = datetime.fromisoformat(cell)
    if isinstance(cell, datetime):
        try:
            return (cell if cell.tzinfo else cell.replace(tzinfo=UTC)).astimezone(UTC).timestamp()
        except OverflowError:
            raise ValueError(f"a time must be in the years 1 to 9999 of UTC: got {cell}.") from None
    number = finite(cell)
    if number is None:
        raise ValueError(f"must contain a time: got {cell!r:.80}.")
    return number


def _started(table: _Table, nodes: Sequence[LoggedNode], time: Times, where: Place) -> str:
    """The first time as a date, ISO 8601. Empty if the times are numbers, whose clock is unknown."""
    first = start_of(nodes, where)
    if time is None or first is None:
        return ""
    column = time if isinstance(time, str) else time[1]
    if finite(table.rows[0].get(column)) is not None:
        return ""
    return datetime.fromtimestamp(first, UTC).isoformat(timespec="seconds")


def _calls(
    table: _Table,
    prompt: str | None,
    reply: str | None,
    tokens: Tokens,
    time: Times,
    call: str | None,
) -> list[list[LoggedCall]]:
    """The calls of each row: one, or none if it holds neither prompt nor reply nor tokens."""
    prompts, replies = table.column(prompt, messages_of), table.column(reply, _text, str)
    inputs = table.column(tokens[0] if isinstance(tokens, tuple) else None, _count)
    outputs = table.column(tokens[1] if isinstance(tokens, tuple) else tokens, _count)
    starts = table.column(time[0] if isinstance(time, tuple) else None, _seconds)
    ends = table.column(time[1] if isinstance(time, tuple) else None, _seconds)
    names = table.column(call, _id)
    made: list[list[LoggedCall]] = []
    add = made.append
    for messages, text, read, written, start, end, name in zip(
        prompts, replies, inputs, outputs, starts, ends, names, strict=True
    ):
        answered = None
        if text is not None or read is not None or written is not None:
            answered = Reply(text or "", input_tokens=read, output_tokens=written)
        elif messages is None:
            add([])
            continue
        add([LoggedCall(messages or (), answered, "sample", name or "", start, end)])
    return made


def messages_of(value: Any) -> tuple[Message, ...]:
    """Return the messages of a prompt: a text, or chat messages in the form of the OpenAI API.

    Raises:
        ValueError: If it is neither, or a message holds anything but text.
    """
    if isinstance(value, str):
        return (Message("user", value),)
    if not isinstance(value, Sequence):
        raise ValueError(f"a prompt must be a text or a list of chat messages: got {kind(value)}.")
    made = []
    for message in value:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise ValueError(f"a chat message must be an object with role and content: got {message!r:.80}.")
        calls, answers = message.get("tool_calls") or [], message.get("tool_call_id")
        if not isinstance(calls, Sequence) or not isinstance(answers, str | None):
            raise ValueError("`tool_calls` must be a list, and `tool_call_id` a text.")
        content = _content(message.get("content"))
        made.append(Message(message["role"], content, tuple(map(tool_call_of, calls)), answers))
    return tuple(made)


def _content(value: Any) -> str:
    """The text of a message: a text, or parts of type `text`."""
    if value is None:
        return ""
    if isinstance(value, list):
        parts = [part.get("text") if isinstance(part, Mapping) else None for part in value]
        if all(isinstance(part, str) for part in parts):
            return "\n\n".join(map(str, parts))
    if not isinstance(value, str):
        raise ValueError(f"the content of a chat message must be text: got {value!r:.80}.")
    return value


_row_decoder = msgspec.json.Decoder()


def _rows(source: Any) -> tuple[list[Any], Callable[[int], str]]:
    """The rows of a source, and a function that names the place of a row by its number (from 0)."""
    if not isinstance(source, str | os.PathLike):
        if hasattr(source, "columns") and hasattr(source, "to_dict"):  # a DataFrame; pandas is not imported
            source = source.to_dict("records")
        if not isinstance(source, Iterable) or isinstance(source, Mapping | bytes):
            raise TypeError(
                f"source must be a file, a DataFrame or an iterable of dicts: got {kind(source)}."
            )
        return list(source), lambda k: f"row {k + 1}"
    path, data = Path(source), contents(source)
    if data.lstrip()[:1] == b"[":
        return decoded(data, list[Any], f"{path}: invalid JSON"), lambda k: f"{path}, entry {k + 1}"

    def place(k: int) -> str:
        numbers = (n for n, line in enumerate(data.split(b"\n"), 1) if line.strip())
        return f"{path}, line {next(islice(numbers, k, None), 1)}"

    try:
        return _row_decoder.decode_lines(data), place
    except UNREADABLE:  # a line is damaged, or has numbers that are not JSON
        lines = enumerate(data.split(b"\n"), 1)
        rows = [decoded(line, Any, f"{path}, line {n}: invalid JSON") for n, line in lines if line.strip()]
        return rows, place
