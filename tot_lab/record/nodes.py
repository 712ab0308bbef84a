"""Runs from lists of nodes: the logs of searches that this project did not make.

    rows (`read_nodes`) or a foreign log (an importer) → `LoggedNode`s → `run_of_nodes` → Run

Nodes come in any order and have ids of their own. What a log lacks is unknown (`Header.unknown`), never
invented. All work is linear in the number of nodes, and nothing recurses over their depth.
"""

from __future__ import annotations

import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from tot_lab._version import __version__
from tot_lab.core.bulk import gc_paused
from tot_lab.core.calls import MAX_TOKENS, Call, Message, Reply, ToolCall, is_token_count
from tot_lab.core.domain import Domain
from tot_lab.core.parts import class_of
from tot_lab.core.purposes import role_of
from tot_lab.core.reading import finite
from tot_lab.core.records import DECISIONS, Decided, Ended, Line, Note, Scored, Thought
from tot_lab.core.task import Task
from tot_lab.record.journal import SCHEMA, Header, JournalError, encoder
from tot_lab.record.run import Run

MAX_DEPTH = 1000
"""Steps below the root that a tree may have."""

State: TypeAlias = Literal[
    "", "proposed", "unreadable", "kept", "pruned", "complete", "duplicate", "merged", "failed", "answer"
]
"""What a log says of a node: a decision (`tot_lab.core.records.Decision`), `unreadable` for a score that
could not be read, and `proposed` or an empty text for neither."""

STATES = ("", "proposed", "unreadable", *DECISIONS)


class LoggedCall(msgspec.Struct, gc=False, array_like=True):
    """A model call of a log.

    Attributes:
        messages: The prompt. Empty if the log lacks it.
        reply: The reply, with its model, tokens and cost as far as they are known. `None` if the log lacks
            it.
        purpose: As in `Call.purpose`. Calls that evaluate or criticise (`value`, …) and tool calls
            (`tool`) belong to the node itself, and all others to its parent.
        id: Calls of a log with the same id are one call, such as a proposal of several nodes. An empty id
            is that of no other call.
        start: When it was made, in seconds on any clock. `None` if that is unknown.
        end: When its reply arrived.
        settings: Further fields of `Call`, such as `model` and `temperature`.
    """

    messages: tuple[Message, ...] = ()
    reply: Reply | None = None
    purpose: str = "sample"
    id: str = ""
    start: float | None = None
    end: float | None = None
    settings: dict[str, Any] = {}


class LoggedNode(msgspec.Struct, gc=False, array_like=True):
    """A node of a log.

    Attributes:
        id: Its id in the log.
        parent: The id of its parent, `None` for a root.
        text: The thought.
        score: In the units of the log. `None` if it has none.
        state: Whether it was kept or pruned, as far as the log says so (`State`).
        calls: The calls that made and evaluated it.
        time: When it was made, in seconds on the clock of the calls. `None` if that is unknown.
    """

    id: str
    parent: str | None
    text: str
    score: float | None = None
    state: State = ""
    calls: tuple[LoggedCall, ...] = ()
    time: float | None = None


Place: TypeAlias = Callable[[int, str], str]
"""Names the place of a field in an error message, from the number of a node (from 0) and the field."""


@gc_paused()
def run_of_nodes(
    nodes: Sequence[LoggedNode],
    *,
    name: str,
    task: Task | None = None,
    answer: str | None = None,
    answer_nodes: Sequence[str] = (),
    score_range: tuple[float, float] = (0.0, 1.0),
    started: str = "",
    where: Place = "node {}, field {!r}".format,
) -> Run:
    """Make a run of the nodes of a log.

    A node without a parent is the root, and its text is the question. If there are several, or the only one
    does not hold the question of `task`, they become children of a root with the question. Nodes get the ids
    of this project unless they have them already; the note `imported.ids` then holds the log's own.

    Args:
        nodes: The nodes, in any order. If all have a time, they are ordered by it.
        name: The name of the search.
        task: The task. `None` makes a `general` one of the text of the root, which is not graded.
        answer: The final answer. `None` takes it from the first of `answer_nodes`. Without either the run
            has no end.
        answer_nodes: Ids, in the log, of the nodes that hold the final answers, best first.
        score_range: The lowest and the highest score of the log.
        started: The time of the first record, ISO 8601. Empty if it is unknown.
        where: Names the place of a node and a field in an error message.

    Raises:
        JournalError: If the nodes form no tree, or a score is out of range.
    """
    if not nodes:
        raise JournalError(f"{where(0, 'id')}: the log has no nodes.")
    low, high = _range(score_range)
    index = {node.id: k for k, node in enumerate(nodes)}
    if len(index) < len(nodes):
        k = next(k for k, node in enumerate(nodes) if index[node.id] != k)
        second = index[nodes[k].id]
        raise JournalError(f"{where(second, 'id')}: duplicate id: got {nodes[k].id!r} again.")
    order = _order(nodes, index, where)
    roots = [k for k in order if nodes[k].parent is None]
    top = roots[0] if len(roots) == 1 else None
    root = None if top is None else nodes[top]
    if task is None and root is not None:
        task = question_task(root.text)
    elif root is not None and task is not None and root.text.strip() != task.question.strip():
        top = root = None
    ids = _ids(nodes, order, root, where)
    nodes, start = _with_times(nodes)
    own = {call.purpose for node in nodes for call in node.calls if _is_own(call.purpose)}
    lines: list[Line] = []
    add = lines.append
    calls = _Calls(lines, start)
    if root is None:
        add(Line((0,), 0.0, Thought("0", None, "" if task is None else task.question)))
    scores: dict[str, float] = {}
    latest = 0.0
    for k in order:
        node = nodes[k]
        id = ids[node.id]
        parent = None if k == top else "0" if node.parent is None else ids[node.parent]
        time = 0.0
        if start is not None and node.time is not None:
            time = node.time - start
            latest = max(time, latest)
        for call in node.calls:
            if parent is not None and call.purpose not in own:
                calls.add(call, parent, time)
        add(Line((len(lines),), time, Thought(id, parent, node.text)))
        for call in node.calls:
            if parent is None or call.purpose in own:
                calls.add(call, id, time)
        if node.score is not None:
            if not low <= node.score <= high:
                raise JournalError(
                    f"{where(k, 'score')}: the score must be from {low:g} to {high:g}: got {node.score!r}. "
                    f"`score_range` sets the scale of the log."
                )
            scores[id] = share = (node.score - low) / (high - low)
            add(Line((len(lines),), time, Scored(id, share, node.score, (), RECORDED)))
        elif node.state == "unreadable":
            add(Line((len(lines),), time, Scored(id, None, None, (), RECORDED)))
        if node.state in DECISIONS:
            add(Line((len(lines),), time, Decided(id, node.state)))
    latest = max(calls.latest, latest)
    if any(ids[node.id] != node.id for node in nodes):
        note = Note("imported.ids", "0", {id: own for own, id in ids.items()})
        add(Line((len(lines),), latest, note))
    ranked = [_known(ids, own) for own in answer_nodes]
    best = ranked[0] if ranked else None
    if answer is None and ranked:
        answer = _answer(task, nodes, index, answer_nodes[0])
    if answer is not None:
        if best is not None and nodes[index[answer_nodes[0]]].state != "answer":
            add(Line((len(lines),), latest, Decided(best, "answer")))
        end = Ended("answered", answer, best, scores.get(best or ""), tuple(ranked))
        add(Line((len(lines),), latest, end))
    settings = {} if task is None else task.settings()
    digest = f"{zlib.crc32(encoder.encode((name, settings, nodes))):08x}"
    strategy = {"kind": "recorded", "name": name}
    header = Header(SCHEMA, __version__, digest, started, settings, strategy, unknown=calls.unknown(nodes))
    return Run(header, lines, task=task)


RECORDED = "recorded"
"""The evaluator of scores that a log holds without saying how they were made."""


@lru_cache(maxsize=1)
def _general() -> Domain:
    return class_of("general", Domain)()


def question_task(question: str, answer: Any = None, *, id: str = "") -> Task | None:
    """Return a `general` task, graded by exact equality if its answer is known. `None` if the question is
    blank."""
    if not question.strip():
        return None
    if answer is None:
        return Task(domain=_general(), question=question, id=id)
    make = class_of("general", Domain).task_factory()
    assert make is not None
    return make(question, answer=answer, grade="exact").model_copy(update={"id": id})


def messages_of(value: Any) -> tuple[Message, ...]:
    """Return the messages of a prompt: a text, or chat messages in the form of the OpenAI API.

    Raises:
        ValueError: If it is neither, or a message holds anything but text.
    """
    if isinstance(value, str):
        return (Message("user", value),)
    if not isinstance(value, Sequence):
        raise ValueError(f"a prompt must be a text or a list of chat messages: got {_kind(value)}.")
    made = []
    for message in value:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise ValueError(f"a chat message must be an object with role and content: got {message!r:.80}.")
        calls = [
            ToolCall(
                str(call.get("id", "")), str(call["function"]["name"]), str(call["function"]["arguments"])
            )
            for call in message.get("tool_calls") or ()
        ]
        content = _content(message.get("content"))
        made.append(Message(message["role"], content, tuple(calls), message.get("tool_call_id")))
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


def _range(score_range: tuple[float, float]) -> tuple[float, float]:
    low, high = (finite(end) for end in score_range)
    if low is None or high is None or not low < high:
        raise ValueError(f"score_range must be two numbers, the lower one first: got {score_range!r}.")
    return low, high


def _order(nodes: Sequence[LoggedNode], index: Mapping[str, int], where: Place) -> list[int]:
    """The numbers of the nodes, each parent before its children, otherwise by time or in the given order."""
    given: Iterable[int] = range(len(nodes))
    if all(node.time is not None for node in nodes):
        given = sorted(given, key=lambda k: nodes[k].time or 0.0)
    placed: set[str] = set()
    waiting: dict[str, list[int]] = {}
    order: list[int] = []
    for k in given:
        parent = nodes[k].parent
        if parent is not None and parent not in placed:
            if parent not in index:
                raise JournalError(f"{where(k, 'parent')}: unknown parent: got {parent!r}.")
            waiting.setdefault(parent, []).append(k)
            continue
        ready = [k]
        while ready:
            k = ready.pop()
            order.append(k)
            placed.add(id := nodes[k].id)
            if id in waiting:
                ready += reversed(waiting.pop(id))
    if len(order) < len(nodes):
        raise JournalError(_circle(nodes, index, placed, where))
    return order


def _circle(nodes: Sequence[LoggedNode], index: Mapping[str, int], placed: set[str], where: Place) -> str:
    id = next(node.id for node in nodes if node.id not in placed)
    seen: dict[str, None] = {}
    while id not in seen:
        seen[id] = None
        id = nodes[index[id]].parent or ""
    circle = [*list(seen)[list(seen).index(id) :], id]
    shown = " → ".join(circle if len(circle) <= 5 else [*circle[:4], "…"])
    return f"{where(index[id], 'parent')}: the parents form a circle: got {shown}."


_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")


def _ids(
    nodes: Sequence[LoggedNode], order: Sequence[int], root: LoggedNode | None, where: Place
) -> dict[str, str]:
    """The ids of the nodes in a run by their ids in the log. Ids that have the form of a run's are kept."""
    depths: dict[str, int] = {}
    ids: dict[str, str] = {}
    born: Counter[str] = Counter()
    for k in order:
        node = nodes[k]
        if node is root:
            depths[node.id], ids[node.id] = 0, "0"
            continue
        above, parent = (0, "0") if node.parent is None else (depths[node.parent], ids[node.parent])
        if above == MAX_DEPTH:
            raise JournalError(
                f"{where(k, 'parent')}: the node is more than {MAX_DEPTH:,} steps below the root."
            )
        depths[node.id], ids[node.id] = above + 1, f"{parent}.{born[parent]}"
        born[parent] += 1
    if root is not None and root.id == "0" and all(map(_has_own_id, nodes)):
        return {node.id: node.id for node in nodes}
    return ids


def _has_own_id(node: LoggedNode) -> bool:
    parent, _, number = node.id.rpartition(".")
    return node.parent is None or (parent == node.parent and _NUMBER.fullmatch(number) is not None)


def _known(ids: Mapping[str, str], own: str) -> str:
    if own not in ids:
        raise JournalError(f"the answer is that of an unknown node: got {own!r}.")
    return ids[own]


def _answer(task: Task | None, nodes: Sequence[LoggedNode], index: Mapping[str, int], own: str) -> str:
    """The answer that a node holds, according to the task's domain."""
    if task is None:
        return nodes[index[own]].text
    texts: list[str] = []
    above: str | None = own
    while above is not None:
        node = nodes[index[above]]
        texts.append(node.text)
        above = node.parent
    if texts[-1].strip() == task.question.strip():
        texts.pop()
    return task.domain.answer(task, task.path(texts[::-1])) or ""


_OWN = ("evaluate", "critique")


@lru_cache(maxsize=256)
def _is_own(purpose: str) -> bool:
    """Whether a call is made for the node itself, and not for its parent."""
    return purpose == "tool" or role_of(purpose) in _OWN


class _Calls:
    """Adds the calls of a log to the lines of a run, and counts what they lack.

    `start` is the first time of the log. `None` if a node has no time; the lines then have none either.
    """

    def __init__(self, lines: list[Line], start: float | None) -> None:
        self.lines = lines
        self.start = start
        self.latest = 0.0
        self._samples: Counter[tuple[str, str]] = Counter()
        self._shared: set[str] = set()
        self._prompts = self._replies = False
        self._timed = True

    def add(self, call: LoggedCall, node: str, time: float) -> None:
        """Add a call and its reply, unless another node has added it. `time` is that of its node."""
        if call.id:
            if call.id in self._shared:
                return
            self._shared.add(call.id)
        lines, reply, key = self.lines, call.reply, (node, call.purpose)
        sample = self._samples[key]
        self._samples[key] = sample + 1
        is_model = call.purpose != "tool"
        self._prompts = self._prompts or (is_model and call.messages != ())
        place = (len(lines),)
        made, answered = time, time
        if self.start is not None:
            made = time if call.start is None else call.start - self.start
            answered = time if call.end is None else call.end - self.start
            self.latest = max(self.latest, answered)
        self._timed = self._timed and call.start is not None and call.end is not None
        lines.append(Line(place, made, Call(node, call.purpose, call.messages, sample, **call.settings)))
        if reply is not None:
            if is_model:
                self._replies = self._replies or reply.text != "" or reply.error is not None
            lines.append(Line(place, answered, reply, reply.cost))

    def unknown(self, nodes: Sequence[LoggedNode]) -> tuple[Any, ...]:
        """What the log lacks."""
        made = any(node.calls for node in nodes)
        lacks = {
            "prompts": not self._prompts,
            "replies": not self._replies,
            "times": self.start is None,
            "durations": self.start is not None and not self._timed,
            "calls": not made or not all(node.calls for node in nodes if node.parent is not None),
        }
        return tuple([name for name, lacking in lacks.items() if lacking])


def _with_times(nodes: Sequence[LoggedNode]) -> tuple[Sequence[LoggedNode], float | None]:
    """The nodes with times, and the first time. `None` if a node has none.

    A node without a time of its own has that of the end of its last call.
    """
    if any(node.time is None for node in nodes):
        ends = [[call.end for call in node.calls if call.end is not None] for node in nodes]
        if not all(end or node.time is not None for node, end in zip(nodes, ends, strict=True)):
            return nodes, None
        nodes = [
            node if node.time is not None else msgspec.structs.replace(node, time=max(end))
            for node, end in zip(nodes, ends, strict=True)
        ]
    starts = [call.start for node in nodes for call in node.calls if call.start is not None]
    return nodes, min([*starts, *(node.time for node in nodes if node.time is not None)])


# Rows.


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
    tokens: str | tuple[str, str] | None = None,
    time: str | tuple[str, str] | None = None,
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
    own, parents, texts = table.ids(id), table.ids(parent, optional=True), table.texts(text)
    scores = table.column(score, _score, float)
    states = table.column(state, _state)
    calls = _calls(table, prompt, reply, tokens, time, call)
    times = table.column(time if isinstance(time, str) else time and time[1], _seconds)
    nodes = [
        LoggedNode(*fields)
        for fields in zip(own, parents, texts, scores, [s or "" for s in states], calls, times, strict=True)
    ]
    final = [node for node in nodes if node.state == "answer"]
    final.sort(key=lambda node: -1.0 if node.score is None else -node.score)
    names = {"id": id, "parent": parent, "score": score}
    return run_of_nodes(
        nodes,
        name=Path(source).name if isinstance(source, str | os.PathLike) else "nodes",
        task=task,
        answer=answer,
        answer_nodes=[node.id for node in final],
        score_range=score_range,
        started=_started(table, nodes, time),
        where=lambda k, field: f"{place(k)}, field {names[field]!r}",
    )


class _Table:
    """The columns of rows. A bad cell is an error that names its place."""

    def __init__(self, rows: Sequence[Any], place: Callable[[int], str]) -> None:
        self.rows = rows
        self.place = place
        if not set(map(type, rows)) <= {dict}:
            for k, row in enumerate(rows):
                if not isinstance(row, Mapping):
                    raise JournalError(f"{place(k)}: a row must be an object with fields: got {_kind(row)}.")
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
        raise ValueError(f"must contain text: got {_kind(cell)}.")
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
        return (cell if cell.tzinfo else cell.replace(tzinfo=UTC)).timestamp()
    number = finite(cell)
    if number is None:
        raise ValueError(f"must contain a time: got {cell!r:.80}.")
    return number


def _started(table: _Table, nodes: Sequence[LoggedNode], time: str | tuple[str, str] | None) -> str:
    """The first time as a date, ISO 8601. Empty if the times are numbers, whose clock is unknown."""
    _, first = _with_times(nodes)
    if first is None or time is None:
        return ""
    column = time if isinstance(time, str) else time[1]
    if finite(table.rows[0].get(column)) is not None:
        return ""
    return datetime.fromtimestamp(first, UTC).isoformat(timespec="seconds")


def _calls(
    table: _Table,
    prompt: str | None,
    reply: str | None,
    tokens: str | tuple[str, str] | None,
    time: str | tuple[str, str] | None,
    call: str | None,
) -> list[tuple[LoggedCall, ...]]:
    """The calls of each row: one, or none if it holds neither prompt nor reply nor tokens."""
    prompts, replies = table.column(prompt, messages_of), table.column(reply, _text, str)
    inputs = table.column(tokens[0] if isinstance(tokens, tuple) else None, _count)
    outputs = table.column(tokens[1] if isinstance(tokens, tuple) else tokens, _count)
    starts = table.column(time[0] if isinstance(time, tuple) else None, _seconds)
    ends = table.column(time[1] if isinstance(time, tuple) else None, _seconds)
    names = table.column(call, _id)
    made: list[tuple[LoggedCall, ...]] = []
    add = made.append
    for messages, text, read, written, start, end, name in zip(
        prompts, replies, inputs, outputs, starts, ends, names, strict=True
    ):
        answered = None
        if text is not None or read is not None or written is not None:
            answered = Reply(text or "", input_tokens=read, output_tokens=written)
        elif messages is None:
            add(())
            continue
        add((LoggedCall(messages or (), answered, "sample", name or "", start, end),))
    return made


_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_row_decoder = msgspec.json.Decoder()


def _rows(source: Any) -> tuple[list[Any], Callable[[int], str]]:
    """The rows of a source, and a function that names the place of a row by its number (from 0)."""
    if not isinstance(source, str | os.PathLike):
        if hasattr(source, "columns") and hasattr(source, "to_dict"):  # a DataFrame; pandas is not imported
            source = source.to_dict("records")
        if not isinstance(source, Iterable) or isinstance(source, Mapping | bytes):
            raise TypeError(
                f"source must be a file, a DataFrame or an iterable of dicts: got {_kind(source)}."
            )
        return list(source), lambda k: f"row {k + 1}"
    path = Path(source)
    data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    if data.lstrip()[:1] == b"[":
        try:
            return msgspec.json.decode(data, type=list[Any]), lambda k: f"{path}, entry {k + 1}"
        except _UNREADABLE as error:
            raise JournalError(f"{path}: invalid JSON: {error}") from None

    def place(k: int) -> str:
        numbers = (n for n, line in enumerate(data.split(b"\n"), 1) if line.strip())
        return f"{path}, line {next(islice(numbers, k, None), 1)}"

    try:
        return _row_decoder.decode_lines(data), place
    except _UNREADABLE:
        for k, line in enumerate(filter(bytes.strip, data.split(b"\n"))):
            try:
                _row_decoder.decode(line)
            except _UNREADABLE as error:
                raise JournalError(f"{place(k)}: invalid JSON: {error}") from None
        raise


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "nothing"}
    return names.get(type(value), f"a {type(value).__name__}")
