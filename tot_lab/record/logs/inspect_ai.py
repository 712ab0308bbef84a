"""Importer of the logs of Inspect: `.eval` (a zip archive) and `.json`. Each sample is a run.

A node is a reply of a model. Its parent is the node of the last reply in its prompt; a reply to a prompt
without one is a child of the question. Tool calls belong to the reply that requested them. The verdict of the
headline scorer, or of the first one, grades the run, and the note `imported.scores` holds all scores. A log
without a transcript (events) has no prompts and not all calls.

References:
    inspect.aisi.org.uk/eval-logs.html; `EvalLog` in github.com/UKGovernmentBEIS/inspect_ai.
"""

from __future__ import annotations

import os
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import msgspec

from tot_lab.core.bulk import gc_paused
from tot_lab.core.calls import Message, Reply
from tot_lab.core.extras import requires
from tot_lab.core.reading import finite
from tot_lab.record.journal import JournalError
from tot_lab.record.logs.common import (
    ROOT,
    arguments_of,
    content_of,
    decoded,
    imported_run,
    message_of,
    seconds,
    shown,
    text_of,
    thinking_of,
    tokens,
    tool_call_of,
    tool_reply,
)
from tot_lab.record.nodes import LoggedCall, LoggedNode
from tot_lab.record.run import Run
from tot_lab.record.waiting import with_progress

MAX_UNPACKED = 2**30
"""The most bytes that an archive may unpack to, unless it is itself larger than a hundredth of this."""


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_cache_write: int | None = None
    input_tokens_cache_read: int | None = None
    total_cost: float | None = None


class _Choice(msgspec.Struct):
    message: dict[str, Any]
    stop_reason: str | None = None


class _Output(msgspec.Struct):
    model: str = ""
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: str | None = None


class _Failure(msgspec.Struct):
    message: str


class _Limit(msgspec.Struct):
    type: str


class _Score(msgspec.Struct):
    value: Any = None
    answer: str | None = None
    explanation: str | None = None


class _Pool(msgspec.Struct):
    messages: list[dict[str, Any]] = []


class _Sample(msgspec.Struct):
    id: int | str
    epoch: int = 1
    input: str | list[dict[str, Any]] = ""
    choices: list[str] | None = None
    target: str | list[str] = ""
    messages: list[dict[str, Any]] = []
    output: _Output = msgspec.field(default_factory=_Output)
    scores: dict[str, _Score] | None = None
    metadata: dict[str, Any] = {}
    events: list[msgspec.Raw] = []
    error: _Failure | None = None
    limit: _Limit | None = None
    attachments: dict[str, str] = {}
    events_data: _Pool | None = None
    started_at: str | None = None


class _Kind(msgspec.Struct):
    event: str
    events: list[msgspec.Raw] = []  # of the tools and subtasks of older versions


class _ModelEvent(msgspec.Struct):
    timestamp: str
    model: str = ""
    input: list[dict[str, Any]] = []
    input_refs: list[tuple[int, int]] | None = None
    tools: list[dict[str, Any]] = []
    config: dict[str, Any] = {}
    output: _Output = msgspec.field(default_factory=_Output)
    error: str | None = None
    completed: str | None = None
    pending: bool | None = None


class _ToolEvent(msgspec.Struct):
    timestamp: str
    function: str
    id: str = ""
    arguments: Any = None
    result: Any = None
    error: _Failure | None = None
    completed: str | None = None


class _Scorer(msgspec.Struct):
    name: str


class _Spec(msgspec.Struct):
    task: str
    model: str = ""
    scorers: list[_Scorer] | None = None


class _Headline(msgspec.Struct):
    score: str | None = None


class _Results(msgspec.Struct):
    headline: _Headline | None = None


class _Log(msgspec.Struct):
    eval: _Spec
    results: _Results | None = None
    samples: list[msgspec.Raw] | None = None


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
        with Path(path).open("rb") as file:
            is_archive = file.read(2) == b"PK"
        log, samples = _archive(path) if is_archive else _whole(path)
        return [
            _run(decoded(data, _Sample, place), log, place)
            for place, data in with_progress(samples, f"loading {path}", len(samples))
        ]


_HEAD = re.compile(rb'\s*\{\s*"version"\s*:\s*\d+\s*,\s*"status"\s*:\s*"\w+"\s*,\s*"eval"\s*:\s*\{')


# Files.


def _whole(path: str | os.PathLike[str]) -> tuple[_Log, Sequence[tuple[str, Any]]]:
    log = decoded(Path(path).read_bytes(), _Log, str(path))
    return log, [(f"{path}, sample {k}", data) for k, data in enumerate(log.samples or (), 1)]


class _Entries(Sequence[tuple[str, bytes]]):
    """The samples in an archive, each unpacked when it is used."""

    def __init__(self, path: str | os.PathLike[str], infos: list[zipfile.ZipInfo]) -> None:
        self.path, self.infos = path, infos

    def __len__(self) -> int:
        return len(self.infos)

    def __getitem__(self, k: Any) -> Any:
        with zipfile.ZipFile(self.path) as archive:
            return self._entry(archive, self.infos[k])

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        with zipfile.ZipFile(self.path) as archive:
            for info in self.infos:
                yield self._entry(archive, info)

    def _entry(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> tuple[str, bytes]:
        place = f"{self.path}, entry {info.filename}"
        return place, _unpacked(archive, info, place)


def _archive(path: str | os.PathLike[str]) -> tuple[_Log, Sequence[tuple[str, Any]]]:
    try:
        with zipfile.ZipFile(path) as archive:
            infos = {info.filename: info for info in archive.infolist()}
            most = max(MAX_UNPACKED, 100 * Path(path).stat().st_size)
            if (size := sum(info.file_size for info in infos.values())) > most:
                raise JournalError(
                    f"{path}: it would unpack to {size:,} bytes. At most {most:,} are accepted."
                )
            first = next((name for name in ("header.json", "_journal/start.json") if name in infos), None)
            if first is None:
                raise JournalError(f"{path}: neither header.json nor _journal/start.json is in the archive.")
            place = f"{path}, entry {first}"
            log = decoded(_unpacked(archive, infos[first], place), _Log, place)
    except zipfile.BadZipFile as error:
        raise JournalError(f"{path}: damaged, or not finished: {error}.") from None
    samples = [info for name, info in infos.items() if name.startswith("samples/") and name.endswith(".json")]
    return log, _Entries(path, samples)


def _unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo, place: str) -> bytes:
    """Return an entry of an archive, whose size is checked before."""
    try:
        return archive.read(info)  # at most the size in the archive's directory
    except (zipfile.BadZipFile, EOFError, OSError, ValueError) as error:
        raise JournalError(f"{place}: damaged: {error}.") from None
    except NotImplementedError:
        pass  # zstandard, which zipfile knows since Python 3.14
    try:
        import zstandard  # noqa: PLC0415
    except ImportError:
        raise ImportError(requires("This log of Inspect", "zstandard", "inspect")) from None
    stored = copy(info)
    stored.compress_type, stored.file_size = zipfile.ZIP_STORED, info.compress_size
    stored.CRC = None  # type: ignore[assignment]  # that of the unpacked data
    try:
        with archive.open(stored) as packed, zstandard.ZstdDecompressor().stream_reader(packed) as reader:
            data = reader.read(info.file_size + 1)
    except (zstandard.ZstdError, zipfile.BadZipFile, EOFError, OSError) as error:
        raise JournalError(f"{place}: damaged: {error}.") from None
    if len(data) != info.file_size or zlib.crc32(data) != info.CRC:
        raise JournalError(f"{place}: damaged: the checksum does not match.")
    return bytes(data)


# Samples.


def _run(sample: _Sample, log: _Log, place: str) -> Run:
    try:
        question = sample.input if isinstance(sample.input, str) else text_of(sample.input, "user")
        question = _attached(question, sample.attachments)
        root = LoggedNode(ROOT, None, question)
        events = list(_events(sample, place))
        nodes = _of_events(events, sample, root, place) if sample.events else _of_messages(sample, root)
        completion = sample.output.choices[0].message if sample.output.choices else None
        answer = None if completion is None else _text(completion, sample.attachments)
        answer_node = None
        if completion is not None:
            own = str(completion.get("id", ""))
            same = [node.id for node in nodes if node.id == own or (node.calls and node.text == answer)]
            answer_node = same[-1] if same else None
        scores = sample.scores or {}
        scorer = _scorer(log, scores)
        stop = "answered"
        if sample.error is not None:
            stop = "error"
        elif sample.limit is not None:
            stop = f"limit:{sample.limit.type}"
        elif answer is None:
            answer = "" if sample.scores else None
        times = [node.time for node in nodes]
        start = seconds(sample.started_at, "started_at")
        if start is not None:
            root.time = start if None in times[1:] else min([start, *filter(None, times[1:])])
        return imported_run(
            nodes,
            name=", ".join(filter(None, ["Inspect", log.eval.task, log.eval.model])),
            question=question,
            place=place,
            answer=answer,
            answer_node=answer_node,
            stop=stop,
            error=None if sample.error is None else sample.error.message,
            grade=None if scorer is None else _grade(scores[scorer].value),
            notes={"imported.scores": {name: _described(score) for name, score in scores.items()}},
            id=str(sample.id),
            data={
                name: value
                for name, value in (
                    ("target", sample.target),
                    ("choices", sample.choices),
                    ("metadata", sample.metadata),
                )
                if value
            },
            started=start,
            repeat=max(sample.epoch - 1, 0),
            complete=bool(sample.events),
        )
    except ValueError as error:
        raise error if isinstance(error, JournalError) else JournalError(f"{place}: {error}") from None


def _scorer(log: _Log, scores: Mapping[str, _Score]) -> str | None:
    """Return the scorer whose verdict grades the run: that of the headline, or the first."""
    headline = log.results.headline.score if log.results and log.results.headline else None
    names = [headline, *(scorer.name for scorer in log.eval.scorers or ()), *scores]
    return next((name for name in names if name in scores), None)


_GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


def _grade(value: Any) -> float | None:
    """Return a score as a number from 0 to 1. `None` if it is not on that scale."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        return _GRADES.get(value, _GRADES.get(value.lower()))
    number = finite(value)
    return number if number is not None and 0 <= number <= 1 else None


def _described(score: _Score) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(score).items() if value is not None}


def _events(sample: _Sample, place: str) -> Iterator[_ModelEvent | _ToolEvent]:
    """Yield the calls of models and tools, in the order of the transcript."""
    waiting = [(f"event {k}", data) for k, data in enumerate(sample.events, 1)][::-1]
    while waiting:
        number, data = waiting.pop()
        where = f"{place}, {number}"
        what = decoded(data, _Kind, where)
        if what.event == "model":
            model = decoded(data, _ModelEvent, where)
            if not model.pending:
                yield model
        elif what.event == "tool":
            yield decoded(data, _ToolEvent, where)
        waiting += [(f"{number}.{k}", inner) for k, inner in enumerate(what.events, 1)][::-1]


def _of_events(
    events: Sequence[_ModelEvent | _ToolEvent], sample: _Sample, root: LoggedNode, place: str
) -> list[LoggedNode]:
    """Return the nodes of a transcript."""
    nodes = [root]
    known: set[str] = set()
    asked: dict[str, LoggedNode] = {}  # by tool call
    pool = sample.events_data.messages if sample.events_data else []
    read: dict[int, Message] = {}  # the messages of the pool, which many prompts share
    for number, event in enumerate(events):
        start = seconds(event.timestamp, "timestamp")
        end = seconds(event.completed, "completed")
        if isinstance(event, _ToolEvent):
            reply = tool_reply(event.function, event.result, event.error.message if event.error else None)
            if event.error is None:
                reply = msgspec.structs.replace(reply, text=_attached(reply.text, sample.attachments))
            call = LoggedCall(
                (Message("user", arguments_of(event.arguments)),),
                reply,
                "tool",
                "",
                start,
                end,
                {"model": f"tool:{event.function}"},
            )
            owner = asked.get(event.id, nodes[-1])
            owner.calls = (*owner.calls, call)
            continue
        raw = event.input
        if event.input_refs is not None:
            numbers = [k for first, last in event.input_refs for k in range(first, min(last, len(pool)))]
            raw = [pool[k] for k in numbers]
            for k in numbers:
                if k not in read:
                    read[k] = _message(pool[k], sample.attachments)
            messages = tuple([read[k] for k in numbers])
        else:
            messages = tuple([_message(message, sample.attachments) for message in raw])
        parent = next((own for message in reversed(raw) if (own := message.get("id")) in known), ROOT)
        settings = {"model": event.model or None, "tools": tuple(event.tools)}
        settings |= {
            name: event.config[theirs]
            for name, theirs in (
                ("temperature", "temperature"),
                ("max_tokens", "max_tokens"),
                ("seed", "seed"),
            )
            if event.config.get(theirs) is not None
        }
        purpose = "act" if event.tools else "ask"
        name = f"call {number}"
        reply = _reply(event, sample.attachments)
        call = LoggedCall(messages, reply, purpose, name, start, end, settings)
        if not event.output.choices:
            nodes.append(LoggedNode(name, parent, "", None, "failed", (call,), end or start))
        for k, choice in enumerate(event.output.choices):
            own = str(choice.message.get("id") or f"{name}, choice {k}")
            if own in known:  # a cached output keeps its id
                own = f"{own} ({number})"
            known.add(own)
            text = _text(choice.message, sample.attachments)
            wanted = tuple([tool_call_of(each) for each in choice.message.get("tool_calls") or ()])
            node = LoggedNode(own, parent, shown(text, wanted), None, "", (call,), end or start)
            nodes.append(node)
            asked |= {each.id: node for each in wanted}
    return nodes


def _reply(event: _ModelEvent, attachments: Mapping[str, str]) -> Reply:
    output, usage = event.output, event.output.usage or _Usage()
    error = event.error or output.error
    if not output.choices:
        return Reply("", error or "no output", model=output.model or None)
    first = output.choices[0]
    cached = (usage.input_tokens_cache_read or 0) + (usage.input_tokens_cache_write or 0)
    prompt = None if usage.input_tokens is None else usage.input_tokens + cached
    return Reply(
        _text(first.message, attachments),
        error,
        thinking_of(first.message),
        output.model or None,
        tokens(prompt, "input_tokens"),
        tokens(usage.output_tokens, "output_tokens"),
        usage.total_cost,
        _STOPS.get(first.stop_reason or "", first.stop_reason),
        (),
        tuple([tool_call_of(call) for call in first.message.get("tool_calls") or ()]),
    )


_STOPS = {"max_tokens": "length", "model_length": "length", "unknown": None}


def _of_messages(sample: _Sample, root: LoggedNode) -> list[LoggedNode]:
    """Return the nodes of the conversation of a sample without a transcript."""
    nodes = [root]
    asked: dict[str, tuple[LoggedNode, str]] = {}
    for k, message in enumerate(sample.messages):
        read = _message(message, sample.attachments)
        if read.role == "assistant" and message.get("source") != "input":
            reply = Reply(
                read.content, None, thinking_of(message), message.get("model"), tool_calls=read.tool_calls
            )
            call = LoggedCall((), reply, "act" if read.tool_calls else "ask")
            own = str(message.get("id") or f"message {k}")
            nodes.append(
                node := LoggedNode(own, nodes[-1].id, shown(read.content, read.tool_calls), calls=(call,))
            )
            asked |= {call.id: (node, call.arguments) for call in read.tool_calls}
        elif read.role == "tool" and read.tool_call_id in asked:
            node, arguments = asked[read.tool_call_id]
            name = str(message.get("function") or "tool")
            failure = message.get("error")
            error = str(failure.get("message")) if isinstance(failure, dict) else None
            call = LoggedCall(
                (Message("user", arguments),),
                tool_reply(name, read.content, error),
                "tool",
                settings={"model": f"tool:{name}"},
            )
            node.calls = (*node.calls, call)
    return nodes


def _message(message: Mapping[str, Any], attachments: Mapping[str, str]) -> Message:
    read = message_of(message)
    if not attachments:
        return read
    return msgspec.structs.replace(read, content=_attached(read.content, attachments))


def _text(message: Mapping[str, Any], attachments: Mapping[str, str]) -> str:
    return _attached(content_of(message.get("content"))[0], attachments)


def _attached(text: str, attachments: Mapping[str, str]) -> str:
    """Return a text with the attachments that it refers to."""
    if "attachment://" not in text:
        return text
    return _ATTACHMENT.sub(lambda match: attachments.get(match[1], match[0]), text)


_ATTACHMENT = re.compile(r"attachment://([0-9a-f]{32})")
