"""Importer of the logs of Inspect: `.eval` (a zip archive) and `.json`. Each sample is a run.

    file → `Sample`s (`inspect_files.py`) → `_Transcript` or `_of_messages` → Run

If `tot_lab.interop` has written the log, it holds the tree of the search (`inspect_thoughts.py`). In any
other log a node is a reply of a model. Its parent is the node of the last reply in its prompt; if its prompt
contains no reply, the parent is the question. Tool calls belong to the reply that requested them, or else to
the question. The calls of scorers are left out, since they are not part of the run. The headline score, or
else the first score, grades the run, and the note `imported.scores` holds all scores. A log without a
transcript (events) has no prompts and lacks some calls.

References:
    inspect.aisi.org.uk/eval-logs.html; `log/_headline.py` in github.com/UKGovernmentBEIS/inspect_ai
    (0.3.285).
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from tot_lab._version import __version__
from tot_lab.core.bulk import gc_paused
from tot_lab.core.calls import Call, Message, Reply, is_cost, is_token_count
from tot_lab.core.reading.finish_reasons import read_finish_reason
from tot_lab.core.reading.values import finite
from tot_lab.core.records import CENTURY, Ended, Line, Note, Position, Thought
from tot_lab.core.tools import TOOL, tool_of
from tot_lab.record.journal import SCHEMA, Header, JournalError
from tot_lab.record.logs.common import (
    ROOT,
    arguments_of,
    content_of,
    decoded,
    imported_run,
    imported_task,
    message_of,
    seconds,
    shown,
    text_of,
    thinking_of,
    tokens,
    tool_call,
    tool_call_of,
    tool_reply,
)
from tot_lab.record.logs.inspect_files import (
    EventHead,
    Growth,
    Headline,
    InfoEvent,
    InspectUsage,
    Log,
    ModelEvent,
    Sample,
    Score,
    ToolEvent,
    open_log,
)
from tot_lab.record.logs.inspect_thoughts import SOURCE
from tot_lab.record.nodes import LoggedCall, LoggedEnd, LoggedNode
from tot_lab.record.run import Run
from tot_lab.record.waiting import with_progress


class InspectLog:
    """Importer of the logs of Inspect."""

    expects = "an archive with _journal, samples or header.json, or an object with version, status and eval"

    @staticmethod
    def recognises(head: bytes) -> bool:
        """Whether a file that begins with `head` is such a log."""
        if head.startswith(b"PK\x03\x04") and len(head) >= 30:
            (length,) = struct.unpack_from("<H", head, 26)
            return head[30 : 30 + length].startswith((b"_journal/", b"samples/", b"header.json"))
        return _HEAD.match(head) is not None

    @staticmethod
    @gc_paused()
    def read(path: str | os.PathLike[str]) -> list[Run]:
        """Return the run of each sample, in the order of the file."""
        (log, count, samples), growth = open_log(path)
        return [
            _run(sample, log, _Texts(sample.attachments, growth), place)
            for place, sample in with_progress(samples, f"loading {path}", count)
        ]


_HEAD = re.compile(rb'\s*\{\s*"version"\s*:\s*\d+\s*,\s*"status"\s*:\s*"\w+"\s*,\s*"eval"\s*:\s*\{')


# Samples.


class _Texts:
    """Replaces the references `attachment://ID` in the texts of a sample by its attachments."""

    def __init__(self, attachments: Mapping[str, str], growth: Growth) -> None:
        self.attachments = attachments
        self.growth = growth

    def whole(self, text: str) -> str:
        return _ATTACHMENT.sub(self._found, text) if "attachment://" in text else text

    def _found(self, match: re.Match[str]) -> str:
        held = self.attachments.get(match[1], match[0])
        self.growth.take(len(held), "attachments")
        return held

    def message(self, message: Mapping[str, Any]) -> Message:
        read = message_of(message)
        text = self.whole(read.content)
        return read if text is read.content else msgspec.structs.replace(read, content=text)

    def text(self, message: Mapping[str, Any]) -> str:
        return self.whole(content_of(message.get("content"))[0])


_ATTACHMENT = re.compile(r"attachment://([0-9a-f]{32}|\d{1,9})")


def _run(sample: Sample, log: Log, texts: _Texts, place: str) -> Run:
    try:
        question = sample.input if isinstance(sample.input, str) else text_of(sample.input, "user")
        question = texts.whole(question)
        if SOURCE in sample.metadata and (lines := _Search(sample, texts, place).lines):
            return _search_run(lines, sample, log, question, place)
        root = LoggedNode(ROOT, None, question)
        if sample.events:
            nodes = _Transcript(root, sample, texts, place).nodes
        else:
            nodes = _of_messages(root, sample, texts)
        started = seconds(sample.started_at, "started_at")
        if started is not None:
            times = [node.time for node in nodes[1:] if node.time is not None]
            root.time = min([started, *times]) if len(times) == len(nodes) - 1 else started
        scores = sample.scores or {}
        about = {"target": sample.target, "choices": sample.choices, "metadata": sample.metadata}
        return imported_run(
            nodes,
            name=_name(log),
            question=question,
            place=place,
            end=_end(sample, nodes, texts),
            grade=grade_of(_verdict(log, scores)),
            id=str(sample.id),
            data={name: value for name, value in about.items() if value},
            started=started,
        )
    except ValueError as error:
        raise error if isinstance(error, JournalError) else JournalError(f"{place}: {error}") from None


def _name(log: Log) -> str:
    return ", ".join(filter(None, ["Inspect", log.eval.task, log.eval.model]))


def _end(sample: Sample, nodes: Sequence[LoggedNode], texts: _Texts) -> LoggedEnd:
    answer, holders = None, []
    if sample.output.choices:
        message = sample.output.choices[0].message
        answer, own = texts.text(message), message.get("id")
        holders = [node.id for node in nodes if node.id == own or (node.calls and node.text == answer)]
    stop = "answered"
    if sample.error is not None:
        stop = "error"
    elif sample.limit is not None:
        stop = f"limit:{sample.limit.type}"
    elif answer is None and sample.scores:
        answer = ""
    scores = {name: _described(score) for name, score in (sample.scores or {}).items()}
    error = None if sample.error is None else sample.error.message
    notes = {"imported.scores": scores}
    repeat = max(sample.epoch - 1, 0)
    return LoggedEnd(answer, holders[-1:], stop, error, notes, repeat, bool(sample.events))


def _verdict(log: Log, scores: Mapping[str, Score]) -> Any:
    """Return the value of the headline score, or else of the first scorer. `None` without a score."""
    headline = (log.results.headline if log.results else None) or log.eval.headline_metric or Headline()
    scorer, name = headline.scorer or "", headline.score or ""
    held = scores[scorer].value if scorer in scores else None
    if isinstance(held, dict) and name in held:
        return held[name]
    names = [name, scorer, *(each.name for each in log.eval.scorers or ()), *scores]
    return next((scores[name].value for name in names if name in scores), None)


_GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


def grade_of(value: Any) -> float | None:
    """Return a score as a number from 0 to 1. `None` if it is not on that scale."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        return _GRADES.get(value, _GRADES.get(value.lower()))
    number = finite(value)
    return number if number is not None and 0 <= number <= 1 else None


def _described(score: Score) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(score).items() if value is not None}


class _Prompts:
    """The prompts of the events of a sample."""

    def __init__(self, sample: Sample, texts: _Texts) -> None:
        self.texts = texts
        self._pool = sample.events_data.messages if sample.events_data else []
        self._read: dict[int, Message] = {}  # messages of the pool by number, since many prompts share them

    def of(self, event: ModelEvent) -> tuple[Sequence[Mapping[str, Any]], tuple[Message, ...]]:
        """Return the messages of a prompt, as they are in the log and as they are read."""
        if event.input_refs is None:
            return event.input, tuple([self.texts.message(message) for message in event.input])
        numbers = self.texts.growth.numbers(event.input_refs, len(self._pool), "input_refs")
        for k in numbers:
            if k not in self._read:
                self._read[k] = self.texts.message(self._pool[k])
        return [self._pool[k] for k in numbers], tuple([self._read[k] for k in numbers])


class _Transcript:
    """The nodes made from the events of a sample. The first node is the question."""

    def __init__(self, root: LoggedNode, sample: Sample, texts: _Texts, place: str) -> None:
        self.nodes = [root]
        self.texts = texts
        self._prompts = _Prompts(sample, texts)
        self._known: set[str] = set()
        self._asked: dict[str, LoggedNode] = {}  # by id of a tool call, the node that requested it
        number = 0
        for what, data, where in _events(sample, place):
            if what.event == "tool":
                self._tool(decoded(data, ToolEvent, where))
            elif what.event == "model" and not (event := decoded(data, ModelEvent, where)).pending:
                self._model(event, f"call {number}")
            else:
                continue
            number += 1

    def _tool(self, event: ToolEvent) -> None:
        reply = _result(event, event.function, self.texts)
        start, end = seconds(event.timestamp, "timestamp"), seconds(event.completed, "completed")
        call = tool_call(event.function, arguments_of(event.arguments), reply, start, end)
        self._asked.get(event.id, self.nodes[0]).calls.append(call)

    def _model(self, event: ModelEvent, name: str) -> None:
        start, end = seconds(event.timestamp, "timestamp"), seconds(event.completed, "completed")
        raw, messages = self._prompts.of(event)
        ids = (own for message in reversed(raw) if isinstance(own := message.get("id"), str))
        parent = next((own for own in ids if own in self._known), ROOT)
        reply = _reply(event, self.texts)
        call = LoggedCall(
            messages, reply, "act" if event.tools else "ask", name, start, end, _settings(event)
        )
        if not event.output.choices:
            self.nodes.append(LoggedNode(name, parent, "", None, "failed", [call], end or start))
        for k, choice in enumerate(event.output.choices):
            own = str(choice.message.get("id") or f"{name}, choice {k}")
            if own in self._known:  # a cached output keeps its id
                own = f"{own} ({name})"
            self._known.add(own)
            wanted = tuple([tool_call_of(each) for each in choice.message.get("tool_calls") or ()])
            text = shown(self.texts.text(choice.message), wanted)
            node = LoggedNode(own, parent, text, None, "", [call], end or start)
            self.nodes.append(node)
            self._asked |= {each.id: node for each in wanted}


def _events(sample: Sample, place: str) -> Iterator[tuple[EventHead, msgspec.Raw, str]]:
    """Yield the events of the transcript in order, each with its place, without the events of scorers."""
    scoring: set[str | None] = set()  # ids of spans
    waiting = [(f"event {k}", data) for k, data in enumerate(sample.events, 1)][::-1]
    while waiting:
        number, data = waiting.pop()
        where = f"{place}, {number}"
        what = decoded(data, EventHead, where)
        if (
            what.event == "span_begin"
            and what.id is not None
            and (what.type in ("scorers", "scorer") or what.parent_id in scoring)
        ):
            scoring.add(what.id)
        elif what.span_id not in scoring:
            yield what, data, where
        waiting += [(f"{number}.{k}", inner) for k, inner in enumerate(what.events, 1)][::-1]


def _settings(event: ModelEvent) -> dict[str, Any]:
    """Return the settings of a call that `Call` has fields for."""
    config = event.config
    settings: dict[str, Any] = {"model": event.model or None, "tools": tuple(event.tools)}
    settings["temperature"] = finite(config.get("temperature"))
    if (most := config.get("max_tokens")) and is_token_count(most):
        settings["max_tokens"] = most
    if isinstance(seed := config.get("seed"), int):
        settings["seed"] = seed
    return settings


def _reply(event: ModelEvent, texts: _Texts) -> Reply:
    output, usage = event.output, event.output.usage or InspectUsage()
    error = event.error or output.error
    if not output.choices:
        return Reply("", error or "no output", model=output.model or None)
    first = output.choices[0]
    cached = (usage.input_tokens_cache_read or 0) + (usage.input_tokens_cache_write or 0)
    prompt = None if usage.input_tokens is None else usage.input_tokens + cached
    return Reply(
        texts.text(first.message),
        error,
        thinking_of(first.message),
        output.model or None,
        tokens(prompt, "input_tokens"),
        tokens(usage.output_tokens, "output_tokens"),
        usage.total_cost if is_cost(usage.total_cost) else None,
        read_finish_reason(None if first.stop_reason == "unknown" else first.stop_reason),
        (),
        tuple([tool_call_of(call) for call in first.message.get("tool_calls") or ()]),
    )


def _result(event: ToolEvent, name: str, texts: _Texts) -> Reply:
    reply = tool_reply(name, event.result, event.error.message if event.error else None)
    return msgspec.structs.replace(reply, text=texts.whole(reply.text))


def _of_messages(root: LoggedNode, sample: Sample, texts: _Texts) -> list[LoggedNode]:
    """Return the nodes of the conversation of a sample without a transcript."""
    nodes = [root]
    asked: dict[str, tuple[LoggedNode, str]] = {}
    for k, message in enumerate(sample.messages):
        read = texts.message(message)
        if read.role == "assistant" and message.get("source") != "input":
            model = message.get("model")
            reply = Reply(
                read.content,
                None,
                thinking_of(message),
                model if isinstance(model, str) else None,
                tool_calls=read.tool_calls,
            )
            call = LoggedCall((), reply, "act" if read.tool_calls else "ask")
            own = str(message.get("id") or f"message {k}")
            node = LoggedNode(own, nodes[-1].id, shown(read.content, read.tool_calls), calls=[call])
            nodes.append(node)
            asked |= {call.id: (node, call.arguments) for call in read.tool_calls}
        elif read.role == "tool" and read.tool_call_id in asked:
            node, arguments = asked[read.tool_call_id]
            name = str(message.get("function") or "tool")
            failure = message.get("error")
            error = str(failure.get("message")) if isinstance(failure, dict) else None
            result = tool_reply(name, read.content, error)
            node.calls.append(tool_call(name, arguments, result))
    return nodes


# Searches of this project.


class _Search:
    """The journal lines of a search of tot_lab whose tree is in the log."""

    def __init__(self, sample: Sample, texts: _Texts, place: str) -> None:
        self.lines: list[Line] = []
        self._texts = texts
        self._prompts = _Prompts(sample, texts)
        self._calls: dict[str | None, int] = {}  # index of the line of each call, by span
        self._replies: dict[Position, int] = {}
        self._refused: set[Position] = set()
        parents: dict[str | None, str | None] = {}
        for what, data, where in _events(sample, place):
            span = what.span_id
            if what.event == "span_begin":
                parents[what.id] = what.parent_id
            elif what.event == "info" and what.source == SOURCE:
                self._line(decoded(data, InfoEvent, where).data, span, where)
            elif what.event == "model" and span in self._calls:
                self._model(decoded(data, ModelEvent, where), span)
            elif what.event == "tool" and (span := span if span in self._calls else parents.get(span)):
                self._tool(decoded(data, ToolEvent, where), span)  # Inspect gives each tool call a span

    def _line(self, data: Any, span: str | None, where: str) -> None:
        try:
            line = msgspec.convert(self._whole(data), Line)
        except (ValueError, RecursionError) as error:
            raise JournalError(f"{where}: {error}") from None
        if isinstance(line.e, Reply):
            self._refused.add(line.p)
            self._add_reply(line)
            return
        if isinstance(line.e, Call):
            self._calls[span] = len(self.lines)
        self.lines.append(line)

    def _add_reply(self, line: Line) -> None:
        """Add a reply. If a call was tried several times, the last reply counts."""
        number = self._replies.setdefault(line.p, len(self.lines))
        self.lines[number : number + 1] = [line]

    def _whole(self, data: Any) -> Any:
        """Return `data` with its attachments put back. Recursion is safe: records are not deeply nested."""
        if isinstance(data, str):
            return self._texts.whole(data)
        if isinstance(data, list):
            return [self._whole(each) for each in data]
        return {k: self._whole(v) for k, v in data.items()} if isinstance(data, dict) else data

    def _model(self, event: ModelEvent, span: str | None) -> None:
        if event.pending or self._call(span).purpose == TOOL:
            return
        reply = _reply(event, self._texts)
        if (event.metadata or {}).get("simulated") is True:
            reply = msgspec.structs.replace(reply, simulated=True)
        _, messages = self._prompts.of(event)
        paid = 0.0 if event.cache == "read" else reply.cost
        self._answer(span, event, reply, paid, messages=messages, tools=tuple(event.tools))

    def _tool(self, event: ToolEvent, span: str | None) -> None:
        if span in self._calls and (call := self._call(span)).purpose == TOOL:
            messages = (Message("user", self._texts.whole(arguments_of(event.arguments))),)
            reply = _result(event, tool_of(call) or event.function, self._texts)
            self._answer(span, event, reply, None, messages=messages)

    def _call(self, span: str | None) -> Call:
        call = self.lines[self._calls[span]].e
        assert isinstance(call, Call)
        return call

    def _answer(
        self,
        span: str | None,
        event: ModelEvent | ToolEvent,
        reply: Reply,
        paid: float | None,
        **prompt: Any,
    ) -> None:
        """Complete a call with its prompt, and add its reply unless an info event holds the reply."""
        number = self._calls[span]
        line = self.lines[number]
        call = msgspec.structs.replace(self._call(span), **prompt)
        self.lines[number] = msgspec.structs.replace(line, e=call)
        if line.p not in self._refused:
            start, end = seconds(event.timestamp, "timestamp"), seconds(event.completed, "completed")
            took = 0.0 if start is None or end is None else max(end - start, 0.0)
            self._add_reply(Line(line.p, min(line.t + took, CENTURY), reply, paid))


def _search_run(lines: list[Line], sample: Sample, log: Log, question: str, place: str) -> Run:
    """Return the run of a search whose tree is in the log, with the grade that the log gives its answer."""
    ended = [(line, line.e) for line in lines if isinstance(line.e, Ended)]
    root = next((line.e for line in lines if isinstance(line.e, Thought) and line.e.parent is None), None)
    about = {"target": sample.target, "choices": sample.choices}
    task = imported_task(
        question if root is None else root.text,
        grade_of(_verdict(log, sample.scores or {})),
        ended[-1][1].answer if ended else None,
        {name: value for name, value in about.items() if value},
        str(sample.id),
    )
    if ended and sample.scores:
        line, end = ended[-1]
        scores = {name: _described(score) for name, score in sample.scores.items()}
        note = Note("imported.scores", end.node or "0", scores)
        lines.append(Line((line.p[0] + 1,) if line.p else (), line.t, note))
    known = sample.metadata[SOURCE]
    header = Header(
        SCHEMA,
        __version__,
        str(known.get("run", sample.id)) if isinstance(known, dict) else str(sample.id),
        sample.started_at or "",
        {} if task is None else task.settings(),
        {"kind": "recorded", "name": _name(log)},
        repeat=max(sample.epoch - 1, 0),
    )
    run = Run(header, lines, task=task)
    try:
        tree, result = run.tree, run.result
        for id in (result.node, *result.ranked) if result else ():
            if id is not None:
                tree[id]
    except (KeyError, ValueError) as error:
        raise JournalError(f"{place}: {error.args[0]}") from None
    return run
