"""Journals: the record of a run on disk, one JSON object per line.

The first line is the header, which describes how the run was made. Every other line is a `Line`, appended
while the run progresses. If a process was killed while it wrote a line, the file is read up to the last
complete line. Any other damage is an error that names the file and the line. Nothing in a file is executed.

A text that the file already holds is left out, since hundreds of samples can share a prompt. The field `like`
of a line is 1 if the messages of a call, the text of a thought or the reason of a decision are those of the
previous call, thought or decision in the file. It is 2 for a thought whose text is the reply at the position
just before it.

The last field of each object, `crc32`, is a checksum: the CRC-32 of the line before `,"crc32":`, as eight
hexadecimal digits. The field `checksum` of the header declares that every line has one. Files of earlier
versions have no checksums and are read unverified.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal
from zlib import crc32

import msgspec
from msgspec.structs import replace

from tot_lab._version import __version__
from tot_lab.core.bulk import gc_paused
from tot_lab.core.calls import Call, Reply
from tot_lab.core.files import read_regular, write_whole
from tot_lab.core.records import Decided, Ended, Line, Position, Thought
from tot_lab.record.edits import Branched

SCHEMA = 5
"""The format of journals. Since 4, thoughts with equal prompts have different sample indices. Since 5, a text
that the file already holds is left out. Files of schemas 3 and 4 are read too."""
_OLDEST, _SHORT = 3, 5
_LAST: Literal[1] = 1
_REPLY: Literal[2] = 2


class Header(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a run was made.

    Attributes:
        tot_lab: Schema of the file.
        version: Version of the package that wrote it.
        id: Id of the run.
        started: Start, ISO 8601, UTC.
        task: Settings of the task, empty if it is missing. The same holds for `strategy`, `model` and
            `budget`.
        repeat: Index of the repeat.
        roles: Settings of the roles, by name.
        branched: The run and node that this run was branched from; see `tot_lab.record.edits`.
        unknown: The kinds of data that an imported log lacks: `prompts`, `replies`, `times`, `durations` (of
            calls), and `calls` (some calls are missing, so the usage is unknown).
        counterfactual: Ids of the runs whose recorded replies answered the calls of this run, without a
            model.
        tools: Settings of the tools, by name.
        effect_policy: The lab's effect policy, empty if it had none.
        agent_id: Id of the agent for which the lab works. Empty if it has none. The same holds for
            `session_id`, the id of the session.
        checksum: Kind of the checksum of each line, empty in files of earlier versions.
    """

    tot_lab: int
    version: str
    id: str
    started: str
    task: dict[str, Any] = {}
    strategy: dict[str, Any] = {}
    model: dict[str, Any] = {}
    budget: dict[str, Any] = {}
    repeat: int = 0
    roles: dict[str, dict[str, Any]] = {}
    branched: dict[str, Any] = {}
    unknown: tuple[Literal["prompts", "replies", "times", "durations", "calls"], ...] = ()
    counterfactual: tuple[str, ...] = ()
    tools: dict[str, dict[str, Any]] = {}
    effect_policy: dict[str, Any] = {}
    agent_id: str = ""
    session_id: str = ""
    checksum: Literal["", "crc32"] = ""

    @classmethod
    def now(cls, **settings: Any) -> Header:
        """A header of this version and time, with a new id."""
        started = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(SCHEMA, __version__, secrets.token_hex(4), started, checksum="crc32", **settings)

    @property
    def counts_samples_by_thought(self) -> bool:
        """Whether each thought of a search counted its samples from 0 (before schema 4)."""
        return self.tot_lab < 4

    @property
    def filename(self) -> str:
        """The file name of the run: date, strategy and id."""
        date = self.started[:19].replace("-", "").replace(":", "").replace("T", "-")
        name = str(self.strategy.get("kind", "run")).replace("/", "-")
        return f"{date}-{name}-{self.id}.jsonl"


class _TaskSettings(msgspec.Struct):
    """The settings of a task in a header, for any domain."""

    question: str
    domain: dict[str, Any]
    data: dict[str, Any] = {}
    context: str = ""
    steps: tuple[str, ...] = ()
    system_prompt: str = ""
    id: str = ""
    tools: tuple[dict[str, Any], ...] = ()


class JournalError(ValueError):
    """Raised for a file of a run that cannot be read or written. The message names the file and the line."""


class HeldByAnother(JournalError):
    """Raised for a journal that another process is writing."""


def _scalar(value: Any) -> Any:
    """Return a numpy number as a plain number. Raises TypeError for anything else."""
    if type(value).__module__ == "numpy" and hasattr(value, "item") and not getattr(value, "ndim", 1):
        return value.item()
    raise TypeError(
        f"a {type(value).__name__} cannot be written as JSON. Convert it to str, int, float, list or dict."
    )


encoder = msgspec.json.Encoder(enc_hook=_scalar)
line_decoder = msgspec.json.Decoder(Line)
_header_decoder = msgspec.json.Decoder(Header)
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def header_text(header: Header) -> bytes:
    """The first line of a journal."""
    return _with_checksums(encoder.encode_lines([header]), header)


def lines_text(header: Header, lines: Sequence[Line], before: Texts | None = None) -> bytes:
    """Further lines of the journal that begins with `header`.

    Args:
        header: The header.
        lines: The lines.
        before: The texts of the earlier lines in the file, to which those of `lines` are added. With `None`,
            a line leaves out only a text that an earlier one of `lines` holds.
    """
    if header.tot_lab >= _SHORT:
        lines = (Texts() if before is None else before).shortened(lines)
    return _with_checksums(encoder.encode_lines(lines), header)


def lines_in(data: bytes, path: str | os.PathLike[str]) -> list[Line]:
    """Return the lines in `data`, as `lines_text` writes them. `path` names the journal in errors.

    Raises:
        JournalError: If a line leaves out a text that no earlier line holds.
        msgspec.MsgspecError: If a line cannot be read.
    """
    lines = line_decoder.decode_lines(data)
    if any(line.like for line in lines):
        texts = Texts()
        for number, line in enumerate(lines):
            if line.like:
                lines[number] = line = texts.completed(line, f"{path}, line {number + 2}")
            texts.take(line)
    return lines


_REPEATED: dict[type, str] = {Call: "messages", Thought: "text", Decided: "reason"}
"""The field that is left out of a record if it has the same value as in the previous record of this type."""
_WITHOUT: dict[type, Callable[[Any], Any]] = {
    Call: partial(replace, messages=()),
    Thought: partial(replace, text=""),
    Decided: partial(replace, reason=""),
}
"""Functions that return a copy of a record without that field."""


class Texts:
    """The texts of a journal so far, which later lines may leave out."""

    def __init__(self, lines: Iterable[Line] = ()) -> None:
        self.last: dict[type, Any] = {}
        self.replies: dict[Position, str] = {}
        for line in lines:
            self.take(line)

    def take(self, line: Line) -> None:
        """Add the texts of a complete line."""
        if (field := _REPEATED.get(kind := type(line.e))) is not None:
            self.last[kind] = getattr(line.e, field)
        elif isinstance(line.e, Reply):
            self.replies[line.p] = line.e.text

    def shortened(self, lines: Iterable[Line]) -> list[Line]:
        """Return `lines` without the texts that an earlier line holds, and add their texts."""
        short = []
        for line in lines:
            event = line.e
            if (field := _REPEATED.get(kind := type(event))) is not None:
                text, last = getattr(event, field), self.last.get(kind)
                self.last[kind] = text
                in_reply = kind is Thought and text == self._reply_before(line)
                if text and (in_reply or text == last):
                    like = _REPLY if in_reply else _LAST
                    line = Line(line.p, line.t, _WITHOUT[kind](event), line.paid, like)
            elif isinstance(event, Reply):
                self.replies[line.p] = event.text
            short.append(line)
        return short

    def completed(self, line: Line, place: str) -> Line:
        """Return `line` with the text that was left out (`Line.like`). Raises `JournalError` if no earlier
        line holds the text.
        """
        kind = type(line.e)
        of_reply = line.like == _REPLY and kind is Thought
        text = self._reply_before(line) if of_reply else self.last.get(kind)
        if text is None or (line.like == _REPLY and not of_reply):
            raise JournalError(
                f"{place}: this line omits a text that no earlier line holds. Restore the file from a copy."
            )
        return replace(line, e=replace(line.e, **{_REPEATED[kind]: text}), like=0)

    def _reply_before(self, line: Line) -> str | None:
        return self.replies.get((*line.p[:-1], line.p[-1] - 1)) if line.p else None


def _with_checksums(text: bytes, header: Header) -> bytes:
    if not header.checksum or not text:
        return text
    bodies = text[:-2].split(b"}\n")  # JSON holds no newline
    return b"".join([b'%b,"crc32":"%08x"}\n' % (body, crc32(body)) for body in bodies])


_FIELD = len(b',"crc32":"00000000"}')
_ANY_FIELD = re.compile(rb',"crc32":"[0-9a-f]{8}"\}')


def _is_verified(line: bytes) -> bool:
    return line[-_FIELD:] == b',"crc32":"%08x"}' % crc32(line[:-_FIELD])


def read_journal(path: str | os.PathLike[str]) -> tuple[Header, list[Line], int]:
    """Return the header and the lines of a journal, and their size in bytes.

    Raises:
        OSError: If the file cannot be opened.
        JournalError: If it is damaged or was written by a newer version."""
    return parse_journal(read_regular(path), path)


@gc_paused()
def parse_journal(data: bytes, path: str | os.PathLike[str]) -> tuple[Header, list[Line], int]:
    """Like `read_journal`, for the bytes of a journal. `path` names it in errors."""
    end = data.rfind(b"\n") + 1  # the rest was cut off when the process was killed
    first = data.find(b"\n", 0, end) + 1
    if first == 0:
        raise JournalError(
            f"{path}, line 1: no complete header. The file is empty or is not the journal of a run."
        )
    header = _read_header(path, data[: first - 1])
    texts = data[first : end - 1].split(b"\n") if end > first else []
    if header.checksum:
        for number, text in enumerate(texts, 2):
            if not _is_verified(text):
                raise _changed(path, number, text)
        left = data[end:]  # a complete line in there has lost its newline
        for found in _ANY_FIELD.finditer(left):
            if found.end() < len(left) and _is_verified(left[: found.end()]):
                raise _changed(path, len(texts) + 2, left)
    try:
        return header, lines_in(data[first:end], path), end
    except _UNREADABLE:
        for number, text in enumerate(texts, 2):
            try:
                line_decoder.decode(text)
            except _UNREADABLE as error:
                raise JournalError(f"{path}, line {number}: {error}") from None
        raise


def outline(path: str | os.PathLike[str]) -> tuple[Header, Ended | None]:
    """Return the header of a journal and the end of its run, `None` if it has not ended. The other lines are
    not decoded.

    Raises:
        OSError: If the file cannot be opened.
        JournalError: If the header or the end is damaged.
    """
    data = read_regular(path)
    header = _read_header(path, data[: max(data.find(b"\n"), 0)])
    at = data.rfind(b'"e":{"type":"ended"')  # in a string, these quotes would be escaped
    line = data[data.rfind(b"\n", 0, at) + 1 : data.find(b"\n", at)] if at >= 0 else b""
    try:
        ended = line_decoder.decode(line).e if line else None
    except _UNREADABLE as error:
        raise JournalError(f"{path}: the line with the end of the run cannot be read: {error}") from None
    return header, ended if isinstance(ended, Ended) else None


def _read_header(path: str | os.PathLike[str], text: bytes) -> Header:
    """Read the header of the file `path`. `text` is its first line."""
    if _ANY_FIELD.fullmatch(text, max(len(text) - _FIELD, 0)) and not _is_verified(text):
        raise _changed(path, 1, text)
    try:
        fields = msgspec.json.decode(text)
        schema = fields.get("tot_lab") if isinstance(fields, dict) else None
        if isinstance(schema, int) and not _OLDEST <= schema <= SCHEMA:
            raise JournalError(
                f"{path}, line 1: written by {'a newer' if schema > SCHEMA else 'an earlier'} tot_lab "
                f"({fields.get('version', 'unknown')}, schema {schema}); this one ({__version__}) reads "
                f"schemas {_OLDEST} to {SCHEMA}"
            )
        header = _header_decoder.decode(text)
        if header.started:  # an imported log may have no start time
            datetime.fromisoformat(header.started)
        if header.task:
            msgspec.convert(header.task, _TaskSettings)
        Branched.of(header.branched)
    except (*_UNREADABLE, ValueError) as error:
        if isinstance(error, JournalError):
            raise
        raise JournalError(f"{path}, line 1: no header; expected a run's journal: {error}") from None
    if header.checksum and not _is_verified(text):
        raise _changed(path, 1, text)
    return header


def _changed(path: str | os.PathLike[str], number: int, text: bytes) -> JournalError:
    what = "does not match" if _ANY_FIELD.search(text) else "is missing"
    return JournalError(
        f"{path}, line {number}: the checksum {what}. The line changed after it was written: restore the "
        f"file from a copy."
    )


def write_journal(path: str | os.PathLike[str], header: Header, lines: Sequence[Line]) -> Path:
    """Write a journal. An existing file is replaced atomically."""
    return write_whole(path, header_text(header) + lines_text(header, lines))
