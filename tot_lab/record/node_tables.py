"""`tl.read_nodes`: runs from tables with one row per node.

    file, frame or dicts → `_Table` (checked columns) → `LoggedNode`s → `run_of_nodes` → Run

A bad cell is an error that names the file, the line (or row) and the column.
"""

from __future__ import annotations

import os
import re
import warnings
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any, get_args

import msgspec

from tot_lab.core.bulk import gc_paused
from tot_lab.core.calls import MAX_TOKENS, Message, Reply, is_token_count
from tot_lab.core.parquet import MAGIC, parquet_rows
from tot_lab.core.reading.values import finite
from tot_lab.core.records import STATES, Note, Scored
from tot_lab.core.task import Task
from tot_lab.record.journal import JournalError
from tot_lab.record.logs.common import UNREADABLE, contents, decoded, kind, message_of
from tot_lab.record.marks import Mark, Verdict
from tot_lab.record.nodes import (
    RECORDED,
    ROWS,
    CallSums,
    FieldPlace,
    LoggedCall,
    LoggedEnd,
    LoggedNode,
    run_of_nodes,
    start_of,
)
from tot_lab.record.run import Run

Tokens = str | tuple[str, str] | None
"""A column with the tokens of the reply, or two: those of the prompt and of the reply."""

Times = str | tuple[str, str] | None
"""A column with the time of the node, or two: the times of its call and of the reply."""


@gc_paused()
def read_nodes(
    source: str | os.PathLike[str] | Iterable[Mapping[str, Any]] | Any,
    *,
    id: str | None = None,
    parent: str | None = None,
    text: str | None = None,
    score: str | None = None,
    score_range: tuple[float, float] | None = None,
    state: str | None = None,
    run: str | None = None,
    prompt: str | None = None,
    reply: str | None = None,
    tokens: Tokens = None,
    time: Times = None,
    call: str | None = None,
    task: Task | Iterable[Task] | None = None,
    answer: str | None = None,
) -> Any:
    """Make a run from a table with one row per node, such as the log of your own search. A table that holds
    several runs gives a list of runs.

        run = tl.read_nodes("nodes.jsonl", text="idea", score="rating", score_range=(0, 10))
        run = tl.read_nodes(df, prompt="messages", reply="completion", tokens=("in", "out"), task=task)
        runs = tl.read_nodes(sweep.nodes_df())

    Rows come in any order. A row without a parent is the root and holds the question; if there are several,
    they become children of a root with the question of `task`. Data that the rows lack is unknown
    (`Header.unknown`). The usage of the run is the sum over the calls in the rows.

    Columns that are not named are found by their usual names (`COLUMNS`). Further columns of `run.nodes_df()`
    are read too: raw, by, reason, merged, open, unreadable, on_solution_path, mark and note, setting or
    strategy (the name of the run) and repeat. The columns of `nodes_df()` about calls (tokens, costs and
    others) are kept for `nodes_df` of the new run, whose calls are unknown. Prompts, replies, tokens and
    times of any table are read only if their columns are named here.

    Args:
        source: A file (JSON Lines, JSON with a list of objects, or Parquet), a pandas DataFrame, or an
            iterable of dicts.
        id: Column with the id of the node: a text or a whole number. `None` takes `id`, `node_id` or `node`.
        parent: Column with the id of its parent, empty for a root. `None` takes `parent`, `parent_id` or
            `parent_node`.
        text: Column with the thought. `None` takes `text`, `thought`, `content`, `step`, `action`, or a
            `state` that holds other words than those below.
        score: Column with the score. `None` takes `score`, `value`, `reward` or `rating`.
        score_range: The lowest and the highest score, `None` for 0 and 1. The run's scores are from 0 to 1,
            and `raw` keeps those of the rows.
        state: Column with the state of the node: `kept`, `pruned`, another decision of
            `tl.records.Decided`, or true (kept) and false (pruned). `answer` marks the nodes that hold the
            final answers; the one with the best score gives the answer of the run. `None` takes the column
            `state`, unless it holds other words.
        run: Column with the id of the run. `None` takes `run_id` or `run`. With such a column the result is a
            list, in the order in which the runs begin in the table. If the rows have no setting or strategy,
            the names of runs with the same question contain the id.
        prompt: Column with the prompt that led to the node: a text, or chat messages with `role` and
            `content`.
        reply: Column with the model's reply.
        tokens: Column with the tokens of the reply, or two columns: those of the prompt and of the reply.
        time: Column with the time of the node: seconds, or an ISO 8601 text or a datetime. Two columns are
            the times of its call and of the reply.
        call: Column with an id of the call, if one call led to several nodes. Rows with the same id share one
            call. A row without an id has a call of its own.
        task: The task, or several tasks, of which each run gets the one with its question. `None` makes an
            ungraded task from the question in the root.
        answer: The final answer. `None` takes it from the nodes in the state `answer`.

    Returns:
        The run, or the list of runs.

    Raises:
        OSError: If the file cannot be read.
        JournalError: For a bad row. The message names the file, the line (or row) and the column.
        ValueError: If `score_range` is given, and no column holds scores.

    Warns:
        RuntimeWarning: If columns were not used. The message names them, those that were found, and what was
            not found.
    """
    rows, place = rows_of(source)
    table = _Table(rows, place)
    table.find({"id": id, "parent": parent, "text": text, "score": score, "state": state, "run": run})
    table.expect_scores(score_range)
    calls = _calls(table, prompt, reply, tokens, time, call)
    times = table.column(time if isinstance(time, str) else time and time[1], _seconds)
    file = Path(source).name if isinstance(source, str | os.PathLike) else "nodes"
    found = _Runs(table, _nodes(table, calls, times, state), file, time)
    table.report(file, [prompt, reply, call, *_names(tokens), *_names(time)])
    tasks = task if isinstance(task, Task | None) else {one.question.strip(): one for one in task}
    runs = [found.made(own_id, tasks, answer, score_range or (0.0, 1.0)) for own_id in found.members]
    return runs if "run" in table.columns else runs[0]


COLUMNS = {
    "id": ("id", "node_id", "node"),
    "parent": ("parent", "parent_id", "parent_node"),
    "text": ("text", "thought", "content", "step", "action"),
    "score": ("score", "value", "reward", "rating"),
    "state": ("state",),
    "run": ("run_id", "run"),
}
"""The usual names of the column for each argument of `read_nodes`. The first one in the table is taken."""

_REQUIRED = ("id", "parent", "text")

_FURTHER = (
    *("raw", "by", "reason", "merged", "open", "unreadable", "on_solution_path", "mark", "note"),
    *("setting", "strategy", "repeat"),
)
"""Further columns of `nodes_df` that are read."""

_DERIVED = {"depth", "children", "task"}
"""Columns of `nodes_df` that are computed from the others, and so are not read."""

_OF_CALLS = dict.fromkeys(CallSums.__struct_fields__)
"""Columns of `nodes_df` about the calls behind the nodes. The calls are unknown (`Header.unknown`); the cells
are kept if a table has all of these columns."""


def _nodes(
    table: _Table, calls: list[list[LoggedCall]], times: list[Any], state: str | None
) -> list[LoggedNode]:
    """Return the nodes of a table. `state` is the column of the states if the caller named it."""
    scores = table.column(table.columns.get("score"), _score, float)
    raws = table.found("raw", _score, float)
    evaluators = table.found("by", _text, str)
    unreadable = table.found("unreadable", _flag, bool)
    says_more = not {"raw", "by", "unreadable"}.isdisjoint(table.columns)
    scored: list[Scored | None] = [None] * len(scores)
    for k, (score, raw, by, lost) in enumerate(zip(scores, raws, evaluators, unreadable, strict=True)):
        if says_more and (score is not None or by is not None or lost):
            own = raw if "raw" in table.columns else score
            scored[k] = Scored("", None, own, (), by or ("" if "by" in table.columns else RECORDED))
    columns = (
        table.ids("id"),
        table.ids("parent", optional=True),
        table.texts("text"),
        scores,
        _filled(table.column(state, _state) if state else table.found("state", _state), ""),
        calls,
        times,
        _filled(table.found("open", _flag, bool), False),
        scored,
        _filled(table.found("reason", _text, str), ""),
        table.found("merged", _id),
    )
    return [LoggedNode(*fields) for fields in zip(*columns, strict=True)]


def _filled(cells: list[Any], value: Any) -> list[Any]:
    return [value if cell is None else cell for cell in cells]


class _Runs:
    """The runs of a table.

    Args:
        table: The table.
        nodes: The nodes in its rows.
        file: Name of the table.
        time: As for `read_nodes`.
    """

    def __init__(self, table: _Table, nodes: Sequence[LoggedNode], file: str, time: Times) -> None:
        self.table, self.nodes, self.file, self.time = table, nodes, file, time
        self.on_path = table.found("on_solution_path", _flag, bool)
        self.keeps_states = "on_solution_path" in table.columns
        self.marks = table.found("mark", _verdict)
        self.notes = table.found("note", _text, str)
        self.names = table.found("setting" if "setting" in table.columns else "strategy", _text)
        self.repeats = table.found("repeat", _count)
        self.sums = _sums(table) if table.names.keys() >= _OF_CALLS.keys() else None
        self.roots = Counter(node.text for node in nodes if node.parent is None)
        self.members = defaultdict[str | None, list[int]](list)
        """The rows of each run by its id."""
        for k, own_id in enumerate(table.column(table.columns.get("run"), _id)):
            self.members[own_id].append(k)

    def made(
        self,
        own_id: str | None,
        tasks: Task | Mapping[str, Task] | None,
        answer: str | None,
        score_range: tuple[float, float],
    ) -> Run:
        """Return the run with this id. `tasks` is its task, or tasks by their questions."""
        table, rows = self.table, self.members[own_id]
        nodes = [self.nodes[k] for k in rows]
        is_alone = len(self.members) == 1 or all(self.roots[n.text] < 2 for n in nodes if n.parent is None)

        def where(k: int, field: str) -> str:
            return f"{table.place(rows[k])}, field {table.columns.get(field, self.time)!r}"

        made = run_of_nodes(
            nodes,
            name=self.names[rows[0]] or (self.file if is_alone else f"{self.file} {own_id}"),
            task=_task_of(nodes, tasks) if isinstance(tasks, Mapping) else tasks,
            end=self._end(rows, nodes, answer),
            score_range=score_range,
            started=_started(table.rows[rows[0]], nodes, self.time, where),
            where=where,
            id=_run_id(own_id),
        )
        self._mark(made, rows, nodes)
        return made

    def _end(self, rows: Sequence[int], nodes: Sequence[LoggedNode], answer: str | None) -> LoggedEnd:
        """Return the end of the run in `rows`. It names the deepest node on the path to the answer, then the
        nodes in the state `answer`, the best score first.
        """
        final = [node for node in nodes if node.state == "answer"]
        final.sort(key=lambda node: -1.0 if node.score is None else -node.score)
        path = [node for k, node in zip(rows, nodes, strict=True) if self.on_path[k]]
        above = {node.parent for node in path}
        final = [*(node for node in path if node.id not in above), *final]
        ids = list(dict.fromkeys(node.id for node in final))
        sums = {node.id: self.sums[k] for k, node in zip(rows, nodes, strict=True)} if self.sums else {}
        repeat = self.repeats[rows[0]] or 0
        return LoggedEnd(answer, ids, notes={ROWS: sums}, repeat=repeat, keeps_states=self.keeps_states)

    def _mark(self, run: Run, rows: Sequence[int], nodes: Sequence[LoggedNode]) -> None:
        """Give the run the marks of people in the table."""
        ids = next((e.data for e in run.events if isinstance(e, Note) and e.name == "imported.ids"), None)
        own = {node: id for id, node in ids.items()} if ids else {}
        for k, node in zip(rows, nodes, strict=True):
            if self.marks[k] is not None or self.notes[k] is not None:
                run._marks[own.get(node.id, node.id)] = Mark(self.marks[k], self.notes[k] or "")


def _sums(table: _Table) -> list[dict[str, Any]]:
    """Return the cells about calls in each row, as the fields of `CallSums`."""
    columns = {name: table.cells(name, required=False) for name in _OF_CALLS}
    made = []
    for k, cells in enumerate(zip(*columns.values(), strict=True)):
        try:
            sums = msgspec.convert(dict(zip(columns, cells, strict=True)), CallSums, strict=False)
        except msgspec.ValidationError as error:
            raise JournalError(f"{table.place(k)}: {error}") from None
        made.append(msgspec.to_builtins(sums))
    return made


def _task_of(nodes: Sequence[LoggedNode], tasks: Mapping[str, Task]) -> Task | None:
    """Return the task in `tasks` whose question is the text of a root. `None` if it is not found."""
    roots = (node.text.strip() for node in nodes if node.parent is None)
    return next((tasks[text] for text in roots if text in tasks), None)


def _run_id(own: str | None) -> str:
    """Return an id of a run that can be part of a file name: `own`, or else its checksum. "" for `None`."""
    if own is None or re.fullmatch(r"[\w-]{1,64}", own):
        return own or ""
    return f"{zlib.crc32(own.encode('utf-8', 'replace')):08x}"


class _Table:
    """The rows of a table, and the column of each field. Errors about a cell name its row and column."""

    def __init__(self, rows: Sequence[Any], place: Callable[[int], str]) -> None:
        self.rows = rows
        self.place = place
        self.columns: dict[str, str] = {}
        """The name of the column that holds each field."""
        if not set(map(type, rows)) <= {dict}:
            for k, row in enumerate(rows):
                if not isinstance(row, Mapping):
                    raise JournalError(f"{place(k)}: a row must be an object with fields: got {kind(row)}.")
        if not rows:
            raise JournalError(f"{place(0)}: the table has no rows.")
        self.names = dict.fromkeys(name for row in rows for name in row)

    def find(self, named: Mapping[str, str | None]) -> None:
        """Set the column of each field: the one that the caller `named`, or else one with a usual name."""
        for field, given in named.items():
            found = given or next((name for name in COLUMNS[field] if name in self.names), None)
            if found is not None or field in _REQUIRED:
                self.columns[field] = found or field
        if named["text"] is None and self._texts_are_states():
            self.columns["text"] = "state"
            if named["state"] is None:
                del self.columns["state"]
        known = set(self.columns.values())
        if "mark" not in self.names:
            known.add("note")  # without marks, `note` does not hold people's notes
        self.columns |= {name: name for name in _FURTHER if name in self.names and name not in known}

    def expect_scores(self, score_range: tuple[float, float] | None) -> None:
        """Raise `ValueError` if the caller gave a range of scores, but the table has no column of scores."""
        if score_range is not None and "score" not in self.columns:
            has = ", ".join(map(repr, self.names))
            raise ValueError(
                f"score_range is given, but no column of scores was found: name it with score=. "
                f"The table has {has}."
            )

    def _texts_are_states(self) -> bool:
        """Whether `state` holds the thoughts: no other column does, and it holds other words than states."""
        if "state" not in self.names or self.columns["text"] in self.names:
            return False
        words = (row.get("state") for row in self.rows)
        return any(isinstance(word, str) and word not in ("", *STATES) for word in words)

    def found(self, field: str, read: Callable[[Any], Any], plain: type | None = None) -> list[Any]:
        """The values of the column of a field. If one cell cannot be read, all are `None`, and the column
        counts as not used."""
        try:
            return self.column(self.columns.get(field), read, plain)
        except JournalError:
            del self.columns[field]
            return [None] * len(self.rows)

    def report(self, table: str, used: Iterable[str | None]) -> None:
        """Warn of the columns that were not used. `used` are the columns that the caller named for calls."""
        known = {*self.columns.values(), *used, *_DERIVED}
        if self.names.keys() >= _OF_CALLS.keys():
            known |= _OF_CALLS.keys()
        unused = [str(name) for name in self.names if name not in known]
        if not unused:
            return
        read = ", ".join(
            field if field == name else f"{field} from {name!r}" for field, name in self.columns.items()
        )
        missing = " or ".join(field for field in ("score", "state") if field not in self.columns)
        found = f"{read}; no {missing} was found" if missing else read
        text = f"{table}: read {found}. Not used: {', '.join(map(repr, unused))}."
        warnings.warn(text, RuntimeWarning, stacklevel=4)

    def cells(self, name: str, required: bool) -> list[Any]:
        """The cells of a column, `None` where they are empty. Raises `JournalError` for an unknown column
        and, if `required`, for an empty cell.
        """
        cells = [row.get(name) for row in self.rows]
        if name not in self.names:
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

        If all cells that are not empty have the type `plain`, they are returned without calling `read`.
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

    def ids(self, field: str, *, optional: bool = False) -> list[Any]:
        name = self.columns[field]
        cells = self.cells(name, not optional)
        return cells if set(map(type, cells)) <= {str, type(None)} else self.read(name, cells, _id)

    def texts(self, field: str) -> list[Any]:
        name = self.columns[field]
        cells = self.cells(name, required=True)
        return cells if set(map(type, cells)) == {str} else self.read(name, cells, _text)


_PLAIN = {str, int, bool, type(None), list, dict}
"""Types whose values are never missing values, except `None` itself."""


def _is_blank(cell: Any) -> bool:
    """Whether a cell is `None`, NaN, or a missing value of pandas."""
    return cell is None or type(cell).__name__ in ("NAType", "NaTType") or (cell != cell) is True


def _id(cell: Any) -> str:
    """An id as text. Floats are converted: pandas stores whole numbers with gaps as floats."""
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


def _flag(cell: Any) -> bool:
    if not isinstance(cell, bool):
        raise ValueError(f"must be true or false: got {cell!r:.80}.")
    return cell


def _verdict(cell: Any) -> str:
    if cell not in get_args(Verdict):
        raise ValueError(f"unknown mark: got {cell!r:.80}. Use right or wrong.")
    return str(cell)


def _state(cell: Any) -> str:
    state = {True: "kept", False: "pruned"}[cell] if isinstance(cell, bool) else cell
    if state not in ("", *STATES):
        raise ValueError(f"unknown state: got {cell!r:.80}. Use {', '.join(STATES)}, true or false.")
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


def _names(columns: str | tuple[str, str] | None) -> tuple[str | None, ...]:
    return columns if isinstance(columns, tuple) else (columns,)


def _started(row: Mapping[str, Any], nodes: Sequence[LoggedNode], time: Times, where: FieldPlace) -> str:
    """The first time in ISO 8601. Empty if there are no times, or if they are numbers, which may count from
    any moment.
    """
    first = start_of(nodes, where)
    if time is None or first is None:
        return ""
    column = time if isinstance(time, str) else time[1]
    if finite(row.get(column)) is not None:
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
    """Return the messages of a prompt: a text, or a list of chat messages.

    Raises:
        ValueError: If it is neither, or a message holds anything but text.
    """
    if isinstance(value, str):
        return (Message("user", value),)
    if not isinstance(value, Sequence):
        raise ValueError(f"a prompt must be a text or a list of chat messages: got {kind(value)}.")
    messages = [dict(message) if isinstance(message, Mapping) else message for message in value]
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else ():
            if not isinstance(part, dict) or not isinstance(part.get("text"), str):
                raise ValueError(f"the content of a chat message must be text: got {content!r:.80}.")
    return tuple(map(message_of, messages))


_row_decoder = msgspec.json.Decoder()


def rows_of(source: Any) -> tuple[list[Any], Callable[[int], str]]:
    """Return the rows of a source, and a function that names the place of a row by its number (from 0)."""
    if not isinstance(source, str | os.PathLike):
        if hasattr(source, "columns") and hasattr(source, "to_dict"):  # a DataFrame; pandas is not imported
            source = source.to_dict("records")
        if not isinstance(source, Iterable) or isinstance(source, Mapping | bytes):
            raise TypeError(
                f"source must be a file, a DataFrame or an iterable of dicts: got {kind(source)}."
            )
        return list(source), lambda k: f"row {k + 1}"
    path, data = Path(source), contents(source)
    if data.startswith(MAGIC):
        try:
            return list(parquet_rows(path)), lambda k: f"{path}, row {k + 1}"
        except ValueError as error:
            raise JournalError(str(error)) from None
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
