"""Runs from lists of nodes: the logs of searches by other programs.

    a table (`node_tables.py`) or a log of another tool (an importer) → `LoggedNode`s → `run_of_nodes` → Run

Nodes come in any order and have ids of their own. Data that a log lacks is unknown (`Header.unknown`), never
invented. All work is linear in the number of nodes and the length of their ids, which grows with the depth.
Nothing recurses over the depth.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from tot_lab._version import __version__
from tot_lab.core.bulk import gc_paused
from tot_lab.core.calls import Call, Message, Reply
from tot_lab.core.parts import class_of
from tot_lab.core.purposes import role_of
from tot_lab.core.reading.values import finite
from tot_lab.core.records import (
    CENTURY,
    DECISIONS,
    END_OF_REPLY,
    Decided,
    Ended,
    Line,
    Note,
    Record,
    Scored,
    Thought,
    positions,
)
from tot_lab.core.task import Domain, Task, make_task
from tot_lab.record.journal import SCHEMA, Header, JournalError, encoder
from tot_lab.record.run import Run

MAX_DEPTH = 1000
"""Steps below the root that a tree may have."""

ROWS = "imported.rows"
"""Name of the note that holds the sums over the calls of each node, from a table: `CallSums` by node id."""

RECORDED = "recorded"
"""`Scored.by` of scores for which the log names no evaluator."""

State: TypeAlias = Literal[
    "",
    "question",
    "proposed",
    "unreadable",
    "kept",
    "pruned",
    "complete",
    "duplicate",
    "merged",
    "failed",
    "answer",
]
"""The state of a node in a log: a decision (`tot_lab.core.records.Decision`), `unreadable` for a score that
could not be read, and `question`, `proposed` or an empty text for neither."""


class CallSums(msgspec.Struct, frozen=True, omit_defaults=True):
    """Cells of a table about the calls of a node: sums, and texts such as `thinking`. The fields have the
    names of columns of `nodes_df`."""

    thinking: str | None = None
    samples: int | None = None
    unreadable_samples: int | None = None
    calls: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None
    paid: float | None = None
    strategy: str | None = None
    selected_strategy: str | None = None
    simulated: bool | None = None


def call_sums(run: Run) -> dict[str, CallSums]:
    """Return the sums over the calls of each node, for a run made from a table. Empty for other runs."""
    noted = next((e.data for e in run.events if isinstance(e, Note) and e.name == ROWS), {})
    try:
        return msgspec.convert(noted, dict[str, CallSums])
    except msgspec.ValidationError:  # a note of another tool
        return {}


class LoggedCall(msgspec.Struct, gc=False, array_like=True):
    """A model call of a log.

    Attributes:
        messages: The prompt. Empty if the log lacks it.
        reply: The reply, with its model, tokens and cost as far as they are known. `None` if the log lacks
            it.
        purpose: As in `Call.purpose`. Calls that evaluate or criticise (`value`, …) and tool calls
            (`tool`) belong to the node itself, and all others to its parent.
        id: Calls of a log with the same id are one call, such as a proposal of several nodes. Calls with an
            empty id are all different.
        start: When it was made, in seconds since any fixed time. `None` if that is unknown; the same holds
            for `end`.
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
        state: Its state, such as `kept`, if the log states it (`State`).
        calls: The calls that made and evaluated it.
        time: When it was made, in seconds on the clock of the calls. `None` means the end of its last call.
        open: Whether the nodes below continue its text, even in the middle of a word.
        scored: Details of the evaluation beyond `score`, if the log has them.
        reason: The rule behind `state`.
        merged: The id of the earlier node that reached the same state of the problem. `None` if there is
            none.
    """

    id: str
    parent: str | None
    text: str
    score: float | None = None
    state: State = ""
    calls: list[LoggedCall] = []
    time: float | None = None
    open: bool = False
    scored: Scored | None = None
    reason: str = ""
    merged: str | None = None


class LoggedEnd(NamedTuple):
    """Data of a log about the end of a run, and about the run as a whole.

    Attributes:
        answer: The final answer. `None` takes it from the first of `nodes`. Without an answer and without
            `nodes`, the run has an end only if `stop` is another code than `answered`.
        nodes: Ids, in the log, of the nodes that hold the final answers, best first.
        stop: Why the run ended, one of the stop codes.
        error: The error that ended the run.
        notes: Further data of the log, by the names of notes. Empty notes are left out.
        repeat: Which repeat of the task it is.
        complete: Whether the log holds all calls, with all tokens that the model reported. `None` means that
            it does if each node except the root has a call.
        keeps_states: Whether the first of `nodes` keeps the state that the log gives it. Otherwise it also
            gets the state `answer`.
    """

    answer: str | None = None
    nodes: Sequence[str] = ()
    stop: str = "answered"
    error: str | None = None
    notes: Mapping[str, Mapping[str, Any]] = {}
    repeat: int = 0
    complete: bool | None = None
    keeps_states: bool = False


FieldPlace: TypeAlias = Callable[[int, str], str]
"""Describes the place of a field in an error message, from the index of the node (from 0) and the field."""


@gc_paused()
def run_of_nodes(
    nodes: Sequence[LoggedNode],
    *,
    name: str,
    task: Task | None = None,
    end: LoggedEnd = LoggedEnd(),  # noqa: B008
    score_range: tuple[float, float] = (0.0, 1.0),
    started: str = "",
    where: FieldPlace = "node {}, field {!r}".format,
    id: str = "",
) -> Run:
    """Make a run of the nodes of a log.

    A node without a parent is the root, and its text is the question. If there are several such nodes, or the
    only one does not hold the question of `task`, they become children of a root with the question. If the
    ids do not have the form of those in a run, they are replaced, and the note `imported.ids` holds the old
    ids.

    Args:
        nodes: The nodes, in any order. If all have a time, they are ordered by it.
        name: The name of the run's strategy.
        task: The task. `None` makes an ungraded `general` task from the text of the root.
        end: Data of the log about the end.
        score_range: The lowest and the highest score that the log can contain.
        started: The time of the first record, ISO 8601. Empty if it is unknown.
        where: Describes the place of a node and a field in an error message.
        id: The id of the run. If empty, it is computed from the nodes.

    Raises:
        JournalError: If the nodes do not form a tree, a score is out of range, or the times span over a
            century.
    """
    if not nodes:
        raise JournalError(f"{where(0, 'id')}: the log has no nodes.")
    shares = _shares(nodes, score_range, where)
    top, task = _root(nodes, task)
    tree = _tree(nodes, top, where)
    times, start = _times(nodes, where)
    calls = [call for node in nodes for call in node.calls]
    made = _Lines(start, _own_purposes(calls))
    if top is None:
        made.add(0.0, Thought("0", None, "" if task is None else task.question))
    made.nodes(nodes, tree, shares, times)
    made.end(nodes, tree, task, end)
    settings = {} if task is None else task.settings()
    # The same nodes give the same id, whatever the path of their file.
    id = id or f"{zlib.crc32(encoder.encode((name, settings, nodes, end))):08x}"
    strategy = {"kind": "recorded", "name": name}
    unknown = _unknown(nodes, calls, start is not None, end.complete)
    header = Header(SCHEMA, __version__, id, started, settings, strategy, repeat=end.repeat, unknown=unknown)
    return Run(header, made.lines, task=task)


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
    return make_task("general", question, answer=answer, grade="exact").model_copy(update={"id": id})


def _shares(
    nodes: Sequence[LoggedNode], score_range: tuple[float, float], where: FieldPlace
) -> list[float | None]:
    """Return the scores of the nodes, mapped from `score_range` to the range from 0 to 1."""
    low, high = (finite(end) for end in score_range)
    if low is None or high is None or not low < high:
        raise ValueError(f"score_range must be two numbers, the lower one first: got {score_range!r}.")
    width = high - low
    shares: list[float | None] = []
    for k, node in enumerate(nodes):
        score = node.score
        if score is not None and not low <= score <= high:
            raise JournalError(
                f"{where(k, 'score')}: the score must be from {low:g} to {high:g}: got {score!r}. "
                f"`score_range` sets the scale of the log."
            )
        shares.append(None if score is None else (score - low) / width)
    return shares


# The tree.


class _Tree(NamedTuple):
    """The tree of the nodes. Numbers of nodes are indices in the log.

    Attributes:
        top: The number of the root. `None` if the root is not in the log.
        order: The numbers of the nodes, each parent before its children, otherwise by time or as given.
        ids: The ids of the nodes in the run, by their ids in the log.
        numbers: The numbers of the nodes by their ids in the log.
        keeps_ids: Whether the ids in the run are those in the log.
    """

    top: int | None
    order: Sequence[int]
    ids: dict[str, str]
    numbers: dict[str, int]
    keeps_ids: bool


def _root(nodes: Sequence[LoggedNode], task: Task | None) -> tuple[int | None, Task | None]:
    """Return the index of the node that is the root, `None` if a root must be added, and the task."""
    roots = [k for k, node in enumerate(nodes) if node.parent is None]
    if len(roots) != 1:
        return None, task
    text = nodes[roots[0]].text
    if task is None:
        return roots[0], question_task(text)
    return (roots[0] if text.strip() == task.question.strip() else None), task


def _tree(nodes: Sequence[LoggedNode], top: int | None, where: FieldPlace) -> _Tree:
    """Return the tree of the nodes. The ids are kept if all of them have the form of ids in a run."""
    index = {node.id: k for k, node in enumerate(nodes)}
    if len(index) < len(nodes):
        k = next(k for k, node in enumerate(nodes) if index[node.id] != k)
        place = where(index[nodes[k].id], "id")
        raise JournalError(f"{place}: duplicate id: got {nodes[k].id!r} again.")
    for k, node in enumerate(nodes):
        if node.merged is not None and node.merged not in index:
            raise JournalError(f"{where(k, 'merged')}: unknown node: got {node.merged!r}.")
    order = _order(nodes, index, where)
    ids = dict.fromkeys(index, "0")
    born: dict[str | None, int] = {}
    for k in order:
        if k == top:
            continue
        node = nodes[k]
        parent = "0" if node.parent is None else ids[node.parent]
        if parent.count(".") == MAX_DEPTH:
            raise JournalError(
                f"{where(k, 'parent')}: the node is more than {MAX_DEPTH:,} steps below the root."
            )
        number = born.get(node.parent, 0)
        born[node.parent] = number + 1
        ids[node.id] = f"{parent}.{number}"
    if top is not None and nodes[top].id == "0" and all(map(_has_own_id, nodes)):
        return _Tree(top, order, {id: id for id in index}, index, True)
    return _Tree(top, order, ids, index, False)


def _order(nodes: Sequence[LoggedNode], index: Mapping[str, int], where: FieldPlace) -> list[int]:
    given: Iterable[int] = range(len(nodes))
    if all(node.time is not None for node in nodes):
        given = sorted(given, key=lambda k: nodes[k].time or 0.0)
    placed: set[str | None] = {None}
    waiting: dict[str, list[int]] = {}
    order: list[int] = []
    for k in given:
        node = nodes[k]
        parent = node.parent
        if parent is not None and parent not in placed:
            if parent not in index:
                raise JournalError(f"{where(k, 'parent')}: unknown parent: got {parent!r}.")
            waiting.setdefault(parent, []).append(k)
            continue
        order.append(k)
        placed.add(node.id)
        ready = waiting.pop(node.id, [])[::-1] if waiting else []
        while ready:
            k = ready.pop()
            order.append(k)
            placed.add(nodes[k].id)
            ready += waiting.pop(nodes[k].id, [])[::-1]
    if len(order) < len(nodes):
        raise JournalError(_circle(nodes, index, placed, where))
    return order


def _circle(
    nodes: Sequence[LoggedNode], index: Mapping[str, int], placed: set[str | None], where: FieldPlace
) -> str:
    id = next(node.id for node in nodes if node.id not in placed)
    seen: dict[str, None] = {}
    while id not in seen:
        seen[id] = None
        id = nodes[index[id]].parent or ""
    circle = [*list(seen)[list(seen).index(id) :], id]
    shown = " → ".join(circle if len(circle) <= 5 else [*circle[:4], "…"])
    return f"{where(index[id], 'parent')}: the parents form a cycle: got {shown}."


_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")


def _has_own_id(node: LoggedNode) -> bool:
    parent, _, number = node.id.rpartition(".")
    return node.parent is None or (parent == node.parent and _NUMBER.fullmatch(number) is not None)


# Times.


def _times(nodes: Sequence[LoggedNode], where: FieldPlace) -> tuple[list[float] | None, float | None]:
    """Return the times of the nodes since the first time, and that time. Both are `None` if a node has
    neither a time nor a call with an end.
    """
    known: list[float] = []
    for node in nodes:
        time = node.time
        if time is None:
            time = max([call.end for call in node.calls if call.end is not None], default=None)
            if time is None:
                return None, None
        known.append(time)
    called = [time for node in nodes for call in node.calls for time in (call.start, call.end)]
    all_times = [*known, *(time for time in called if time is not None)]
    start = min(all_times)
    if max(all_times) - start > CENTURY:
        latest = max(range(len(known)), key=known.__getitem__)
        raise JournalError(f"{where(latest, 'time')}: the times of the log span more than a century.")
    return [time - start for time in known], start


def start_of(nodes: Sequence[LoggedNode], where: FieldPlace) -> float | None:
    """Return the first time in the nodes. `None` if a node has neither a time nor a call with an end.

    Raises:
        JournalError: If the times span over a century.
    """
    return _times(nodes, where)[1]


# Records.


_OWN = ("evaluate", "critique")


def _own_purposes(calls: Sequence[LoggedCall]) -> set[str]:
    """Return the purposes whose calls belong to the node itself, and not to its parent."""
    purposes = {call.purpose for call in calls}
    return {purpose for purpose in purposes if purpose == "tool" or role_of(purpose) in _OWN}


class _Lines:
    """The lines of a run.

    `start` is the first time of the log, `None` if its times are unknown. `own` are the purposes of calls for
    the node itself; other calls are for its parent.
    """

    def __init__(self, start: float | None, own: set[str]) -> None:
        self.lines: list[Line] = []
        self.start = start
        self.own = own
        self._positions = positions()
        self._scores: dict[str, float] = {}
        self._samples: dict[tuple[str, str], int] = {}
        self._shared: set[str] = set()

    def add(self, time: float, record: Record) -> None:
        self.lines.append(Line(next(self._positions), time, record))

    def nodes(
        self,
        nodes: Sequence[LoggedNode],
        tree: _Tree,
        shares: Sequence[float | None],
        times: Sequence[float] | None,
    ) -> None:
        """Add the nodes with their calls, their scores from 0 to 1 (`shares`), and their decisions."""
        own, ids, add, time = self.own, tree.ids, self.add, 0.0
        for k in tree.order:
            node, share = nodes[k], shares[k]
            id = ids[node.id]
            parent = None if k == tree.top else "0" if node.parent is None else ids[node.parent]
            if times is not None:
                time = times[k]
            for call in node.calls:
                if parent is not None and call.purpose not in own:
                    self.call(call, parent, time)
            add(time, Thought(id, parent, node.text, open=node.open))
            for call in node.calls:
                if parent is None or call.purpose in own:
                    self.call(call, id, time)
            if share is not None:
                self._scores[id] = share
            if node.scored is not None:
                add(time, msgspec.structs.replace(node.scored, id=id, score=share))
            elif share is not None or node.state == "unreadable":
                add(time, Scored(id, share, node.score, (), RECORDED))
            if node.state in DECISIONS:
                # An empty node is not a step: it records the end of the reply.
                if node.state == "answer" and not node.text:
                    add(time, Decided(id, "complete", END_OF_REPLY))
                other = None if node.merged is None else ids[node.merged]
                add(time, Decided(id, node.state, node.reason, other))

    def call(self, call: LoggedCall, node: str, time: float) -> None:
        """Add a call and its reply, unless another node has added it. `time` is the time of the node."""
        if call.id:
            if call.id in self._shared:
                return
            self._shared.add(call.id)
        key = (node, call.purpose)
        sample = self._samples.get(key, 0)
        self._samples[key] = sample + 1
        made = answered = time
        if self.start is not None:
            answered = time if call.end is None else call.end - self.start
            made = answered if call.start is None else call.start - self.start
        self.add(made, Call(node, call.purpose, call.messages, sample, **call.settings))
        if call.reply is not None:
            next(self._positions)  # a reply has the position of its call, but takes up the next position
            self.lines.append(Line(self.lines[-1].p, answered, call.reply, call.reply.cost))

    def end(self, nodes: Sequence[LoggedNode], tree: _Tree, task: Task | None, end: LoggedEnd) -> None:
        """Add the notes and the end."""
        time = 0.0 if self.start is None else max(line.t for line in self.lines)
        ranked = [_known(tree.ids, own) for own in end.nodes]
        best = ranked[0] if ranked else None
        if not tree.keeps_ids:
            self.add(time, Note("imported.ids", "0", {id: own for own, id in tree.ids.items()}))
        for name, data in end.notes.items():
            if data:
                self.add(time, Note(name, best or "0", dict(data)))
        if best is not None and not end.keeps_states and nodes[tree.numbers[end.nodes[0]]].state != "answer":
            self.add(time, Decided(best, "answer"))
        answer = end.answer
        if answer is None and ranked:
            answer = _answer(task, nodes, tree.numbers, end.nodes[0])
        if answer is not None or end.stop != "answered":
            score = self._scores.get(best or "")
            self.add(time, Ended(end.stop, answer or "", best, score, tuple(ranked), end.error))


def _known(ids: Mapping[str, str], own: str) -> str:
    if own not in ids:
        raise JournalError(f"the answer is that of an unknown node: got {own!r}.")
    return ids[own]


def _answer(task: Task | None, nodes: Sequence[LoggedNode], index: Mapping[str, int], own: str) -> str:
    """Return the answer on the path to a node, as the task's domain reads it. Without a task, return the text
    of the node.
    """
    if task is None:
        return nodes[index[own]].text
    path: list[LoggedNode] = []
    above: str | None = own
    while above is not None:
        path.append(nodes[index[above]])
        above = path[-1].parent
    texts: list[str] = []
    is_open = False
    for node in reversed(path):
        if is_open:
            texts[-1] += node.text
        elif node.text and node.text.strip() != task.question.strip():
            texts.append(node.text)
        is_open = node.open
    return task.domain.answer(task, task.path(texts)) or ""


def _unknown(
    nodes: Sequence[LoggedNode], calls: Sequence[LoggedCall], has_times: bool, complete: bool | None
) -> tuple[Any, ...]:
    """Return the kinds of data that the log lacks (`Header.unknown`)."""
    if complete is None:
        complete = bool(calls) and all(node.calls for node in nodes if node.parent is not None)
    elif complete and not calls:  # no call was made
        return () if has_times else ("times",)
    models = [call for call in calls if call.purpose != "tool"]
    lacks = {
        "prompts": not any(call.messages for call in models),
        "replies": not any(call.reply and (call.reply.text or call.reply.error) for call in models),
        "times": not has_times,
        "durations": has_times and any(call.start is None or call.end is None for call in calls),
        "calls": not complete,
    }
    return tuple([name for name, lacking in lacks.items() if lacking])
