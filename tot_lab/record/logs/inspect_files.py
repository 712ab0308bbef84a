"""The files of Inspect's logs: `.eval` (a zip archive) and `.json`.

    file → `Log`, and its `Sample`s, each read when it is used

An archive has one entry per sample, or several (a chunked sample). It unpacks to at most `most_unpacked`
bytes, and messages and attachments that samples share grow to at most `MAX_GROWN` bytes.

References:
    `EvalLog` and `log/_recorders/chunked/format.py` in github.com/UKGovernmentBEIS/inspect_ai (0.3.285).
"""

from __future__ import annotations

import os
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tot_lab.core.extras import requires
from tot_lab.core.files import most_unpacked, open_regular, too_large
from tot_lab.record.journal import JournalError
from tot_lab.record.logs.common import contents, decoded

T = TypeVar("T")

MAX_GROWN = 2**30
"""The most bytes that shared messages and attachments may take when they are put back, or 100 times the size
of the file if that is more."""


class InspectUsage(msgspec.Struct):
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
    usage: InspectUsage | None = None
    error: str | None = None


class _Failure(msgspec.Struct):
    message: str


class _Limit(msgspec.Struct):
    type: str


class Score(msgspec.Struct):
    value: Any = None
    answer: str | None = None
    explanation: str | None = None


class _Pool(msgspec.Struct):
    messages: list[dict[str, Any]] = []


class Sample(msgspec.Struct):
    """A sample. If it is chunked, `message_refs` says which of the messages in its chunks are `messages`, as
    ranges of their indices."""

    id: int | str
    epoch: int = 1
    input: str | list[dict[str, Any]] = ""
    choices: list[str] | None = None
    target: str | list[str] = ""
    messages: list[dict[str, Any]] = []
    output: _Output = msgspec.field(default_factory=_Output)
    scores: dict[str, Score] | None = None
    metadata: dict[str, Any] = {}
    events: list[msgspec.Raw] = []
    error: _Failure | None = None
    limit: _Limit | None = None
    attachments: dict[str, str] = {}
    events_data: _Pool | None = None
    started_at: str | None = None
    message_refs: list[tuple[int, int]] = []


class EventHead(msgspec.Struct):
    """The fields that decide how an event is read. `id`, `type` and `parent_id` are those of a `span_begin`
    event, and `source` is that of an `info` event.
    """

    event: str
    id: str | None = None
    type: str | None = None
    span_id: str | None = None
    parent_id: str | None = None
    source: Any = None
    events: list[msgspec.Raw] = []  # in older versions, those inside a tool or a subtask


class ModelEvent(msgspec.Struct):
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
    cache: str | None = None
    metadata: dict[str, Any] | None = None


class ToolEvent(msgspec.Struct):
    timestamp: str
    function: str
    id: str = ""
    arguments: Any = None
    result: Any = None
    error: _Failure | None = None
    completed: str | None = None


class InfoEvent(msgspec.Struct):
    data: Any


class _Scorer(msgspec.Struct):
    name: str


class _Spec(msgspec.Struct):
    task: str
    model: str = ""
    scorers: list[_Scorer] | None = None
    headline_metric: Headline | None = None


class Headline(msgspec.Struct):
    """The score that the log marks as the main one. `score` names a scorer, or one of the values of
    `scorer`."""

    scorer: str | None = None
    score: str | None = None


class _Results(msgspec.Struct):
    headline: Headline | None = None


class Log(msgspec.Struct):
    eval: _Spec
    results: _Results | None = None
    samples: list[msgspec.Raw] | None = None


_Samples = tuple[Log, int, Iterable[tuple[str, Sample]]]
"""A log, the number of its samples, and the samples with their places, each read when it is used."""


def open_log(path: str | os.PathLike[str]) -> tuple[_Samples, Growth]:
    """Open a log.

    Returns:
        The log with its samples, and the limit on the data that is put back into them.

    Raises:
        JournalError: If the log is damaged. Raised now, or when a damaged sample is read. The message names
            the entry or sample.
    """
    with open_regular(path) as file:
        is_archive = file.read(2) == b"PK"
    growth = Growth(max(MAX_GROWN, 100 * Path(path).stat().st_size))
    return (_archive(path, growth) if is_archive else _whole(path)), growth


class Growth:
    """Counts the shared data that is put back, and raises ValueError if it exceeds `most` bytes."""

    def __init__(self, most: int) -> None:
        self.most = self.left = most

    def take(self, size: int, name: str) -> None:
        self.left -= size
        if self.left < 0:
            raise ValueError(
                f"field {name!r} would grow to more than {self.most:,} bytes with its references resolved."
            )

    def numbers(self, ranges: Sequence[tuple[int, int]], count: int, name: str) -> list[int]:
        """Return the indices in `ranges`, which refer to a list of `count` messages."""
        held = [range(max(first, 0), min(last, count)) for first, last in ranges]
        self.take(8 * sum(map(len, held)), name)
        return [k for each in held for k in each]


def _whole(path: str | os.PathLike[str]) -> _Samples:
    log = decoded(contents(path), Log, str(path))
    raw = log.samples or []
    places = [f"{path}, sample {k}" for k in range(1, len(raw) + 1)]
    return log, len(raw), ((at, decoded(data, Sample, at)) for at, data in zip(places, raw, strict=True))


_SAMPLE = re.compile(r"(samples/.+_epoch_\d+)(?:\.json|/sample\.json)")
_CHUNKED = ("messages", "events", "attachments")
_CHUNK = re.compile(rf"(samples/.+_epoch_\d+)/({'|'.join(_CHUNKED)})/(\d{{1,9}})\.json")


class _Archive:
    """The entries of an archive."""

    def __init__(self, path: str | os.PathLike[str], archive: zipfile.ZipFile, growth: Growth) -> None:
        self.path = path
        self.archive = archive
        self.growth = growth
        self.infos = {info.filename: info for info in archive.infolist()}
        most = most_unpacked(Path(path).stat().st_size)
        if sum(info.file_size for info in self.infos.values()) > most:
            raise JournalError(
                too_large(path, most, "convert it with `inspect log convert --to json` and load the result")
            )

    def place(self, name: str) -> str:
        return f"{self.path}, entry {name}"

    def read(self, name: str, type: type[T]) -> T:
        place = self.place(name)
        return decoded(_unpacked(self.archive, self.infos[name], place), type, place)

    def log(self) -> Log:
        first = next((name for name in ("header.json", "_journal/start.json") if name in self.infos), None)
        if first is None:
            raise JournalError(f"{self.path}: neither header.json nor _journal/start.json is in the archive.")
        return self.read(first, Log)

    def samples(self, names: Sequence[str]) -> Iterator[tuple[str, Sample]]:
        chunks: dict[tuple[str, str], dict[int, str]] = {}
        for name in self.infos:
            if found := _CHUNK.fullmatch(name):
                chunks.setdefault((found[1], found[2]), {})[int(found[3])] = name
        for name in names:
            sample = self.read(name, Sample)
            if name.endswith("/sample.json"):
                prefix = name.removesuffix("/sample.json")
                self._join(sample, prefix, {of: chunks.get((prefix, of), {}) for of in _CHUNKED})
            yield self.place(name), sample

    def _join(self, sample: Sample, prefix: str, chunks: Mapping[str, Mapping[int, str]]) -> None:
        """Add the parts of a chunked sample, which are separate entries of the archive."""
        messages = self._items(chunks["messages"], dict[str, Any])
        sample.events_data = _Pool(messages)
        sample.events = self._items(chunks["events"], msgspec.Raw)
        sample.attachments = {str(k): text for k, text in enumerate(self._items(chunks["attachments"], str))}
        if f"{prefix}/metadata.json" in self.infos:
            sample.metadata = self.read(f"{prefix}/metadata.json", dict[str, Any])
        try:
            numbers = self.growth.numbers(sample.message_refs, len(messages), "message_refs")
        except ValueError as error:
            raise JournalError(f"{self.place(prefix)}/sample.json: {error}") from None
        sample.messages = [messages[k] for k in numbers]

    def _items(self, names: Mapping[int, str], type: type[T]) -> list[T]:
        """Return the items in entries `names`, whose keys are the numbers of their first items."""
        items: list[T] = []
        for start, name in sorted(names.items()):
            if start != len(items):
                raise JournalError(
                    f"{self.place(name)}: expected item {len(items)} first: got {start}. An entry is missing."
                )
            items += self.read(name, list[type])  # type: ignore[valid-type]
        return items


def _archive(path: str | os.PathLike[str], growth: Growth) -> _Samples:
    try:
        with zipfile.ZipFile(path) as file:
            archive = _Archive(path, file, growth)
            log = archive.log()
    except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError) as error:
        raise JournalError(f"{path}: the archive is damaged or incomplete: {error}.") from None
    names = [name for name in archive.infos if _SAMPLE.fullmatch(name)]
    return log, len(names), _archived(path, names, growth)


def _archived(
    path: str | os.PathLike[str], names: Sequence[str], growth: Growth
) -> Iterator[tuple[str, Sample]]:
    """Yield the samples. The archive is open only while they are used."""
    with zipfile.ZipFile(path) as file:
        yield from _Archive(path, file, growth).samples(names)


_ZSTANDARD = 93


def _unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo, place: str) -> bytes:
    """Return an entry of an archive. At most the size given in the archive's directory is unpacked."""
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, _ZSTANDARD):
        raise JournalError(
            f"{place}: unknown compression: got method {info.compress_type}. "
            f"Logs of Inspect use deflate or zstandard."
        )
    damage: tuple[type[Exception], ...] = (
        *(zipfile.BadZipFile, EOFError, OSError, ValueError, RuntimeError, zlib.error),
    )
    try:
        if info.compress_type == _ZSTANDARD:  # zipfile supports Zstandard only since Python 3.14
            zstandard = _zstandard()
            damage += (zstandard.ZstdError,)
            stored = copy(info)
            stored.compress_type, stored.file_size = zipfile.ZIP_STORED, info.compress_size
            stored.CRC = None  # type: ignore[assignment]  # it is of the unpacked data
            with archive.open(stored) as packed, zstandard.ZstdDecompressor().stream_reader(packed) as file:
                data = bytes(file.read(info.file_size + 1))
        else:
            with archive.open(info) as file:
                data = file.read(info.file_size + 1)
    except damage as error:
        raise JournalError(f"{place}: damaged: {error}.") from None
    if len(data) != info.file_size or zlib.crc32(data) != info.CRC:
        raise JournalError(f"{place}: damaged: the checksum does not match.")
    return data


def _zstandard() -> Any:
    try:
        import zstandard  # noqa: PLC0415
    except ImportError:
        raise ImportError(requires("This log of Inspect", "zstandard", "logs")) from None
    return zstandard
