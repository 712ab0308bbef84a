"""What is kept of a call, in the cache and in the file that an experiment is shared as.

Rule: an entry is served only when it is what was written: its checksum holds, its schema is known, its
reply is one that is kept (no error, and usage that can be counted),
and, where whole entries are read, its key is that of the request inside it. A file is JSON lines,
compressed: a manifest with the number of calls and the sha256 of all that follows it, then one
line a call. Nothing that is read is executed.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from tot_lab._version import __version__
from tot_lab.core.calls import Reply, believed, readable
from tot_lab.core.files import write_whole
from tot_lab.models.keys import SCHEMA, Request, key_of
from tot_lab.models.store import CacheError


class DamagedEntry(CacheError):
    """An entry that is not served; the message names it."""


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is kept of a call. seconds: until its reply, queueing included. stored: ISO 8601, UTC.
    versions: of tot_lab, Python, and litellm where it was used."""

    schema: int
    request: Request
    reply: Reply
    seconds: float
    stored: str
    versions: dict[str, str]


class _Answer(msgspec.Struct, frozen=True):
    """The part of an entry that a hit needs."""

    schema: int
    reply: Reply


_entry_of = msgspec.json.Decoder(Entry).decode
_answer_of = msgspec.json.Decoder(_Answer).decode
_encoded = msgspec.json.Encoder().encode
_CHECKSUM = 4  # bytes, against damage; a key that is not its request's tells of the rest


def packed(entry: Entry) -> bytes:
    """The bytes of an entry: a checksum, then its JSON."""
    return _with_checksum(_encoded(entry))


def _with_checksum(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(_CHECKSUM) + data


def unpacked(key: str, data: bytes) -> Entry:
    """The entry in `data`. One that is not what was written under `key`, or of a newer schema, is
    a `CacheError` that names it."""
    entry: Entry = _checked(key, data, _entry_of)
    if key_of(entry.request) != key:
        raise DamagedEntry(f"cache entry {key[:12]}… holds the answer to another request")
    return entry


def reply_in(key: str, data: bytes) -> Reply:
    """The reply of the entry in `data`; else as `unpacked`, but that the request is not read."""
    answer: _Answer = _checked(key, data, _answer_of)
    return answer.reply


def _checked(key: str, data: bytes, decode: Callable[[Any], Any]) -> Any:
    body = memoryview(data)[_CHECKSUM:]
    if zlib.crc32(body).to_bytes(_CHECKSUM) != data[:_CHECKSUM]:
        raise DamagedEntry(f"cache entry {key[:12]}… is damaged: its checksum does not hold")
    try:
        found = decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedEntry(f"cache entry {key[:12]}… cannot be read: {error}") from None
    if found.schema > SCHEMA:
        raise DamagedEntry(
            f"cache entry {key[:12]}… is of schema {found.schema}, written by a newer tot_lab; this one "
            f"({__version__}) reads up to {SCHEMA}"
        )
    if (why := _fault(found.reply)) is not None:
        raise DamagedEntry(f"cache entry {key[:12]}… is damaged: {why}")
    return found


def _fault(reply: Reply) -> str | None:
    """Why no cache keeps such a reply, `None` if it does."""
    if reply.error is not None:
        return f"its reply must not be an error: got {readable(reply.error)[:80]!r}"
    checked = believed(reply)
    return None if checked is reply else f"its usage cannot be true: {checked.reported_usage}"


class Manifest(msgspec.Struct, frozen=True):
    """The first line of an exported file. tot_lab_calls: its schema. sha256: of all other lines."""

    tot_lab_calls: int
    version: str
    calls: int
    sha256: str
    runs: tuple[str, ...] = ()


class _Line(msgspec.Struct):
    key: str
    entry: msgspec.Raw


_manifest_of = msgspec.json.Decoder(Manifest).decode
_lines_of = msgspec.json.Decoder(_Line).decode_lines


def export(path: str | os.PathLike[str], entries: Iterable[tuple[str, Entry]], runs: Iterable[str]) -> Path:
    """Write `entries`, by key, to one file; the same entries give the same bytes."""
    lines = [_Line(key, msgspec.Raw(_encoded(entry))) for key, entry in sorted(entries, key=lambda e: e[0])]
    body = msgspec.json.Encoder().encode_lines(lines)
    sha256 = hashlib.sha256(body).hexdigest()
    manifest = Manifest(SCHEMA, __version__, len(lines), sha256, tuple(sorted(runs)))
    data = msgspec.json.encode(manifest) + b"\n" + body
    return write_whole(path, gzip.compress(data, mtime=0))


class Exported:
    """The entries of an exported file, read and checked as a whole. Raises `CacheError` when it
    cannot be opened, or is not what was written."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            with gzip.open(path) as file:
                # More than any prompts come to is a bomb.
                most = max(64 * 2**20, 200 * Path(path).stat().st_size)
                head, body = file.readline(2**20), file.read(most)
                if len(body) == most:
                    raise CacheError(f"{path} would be more than {most:,} bytes; it was not read")
            self.manifest = _manifest_of(head)
            if self.manifest.tot_lab_calls > SCHEMA:
                raise CacheError(f"{path}: written by a newer tot_lab ({self.manifest.version})")
            if hashlib.sha256(body).hexdigest() != self.manifest.sha256:
                raise CacheError(f"{path} is damaged: its checksum does not hold")
            lines = _lines_of(body)
        except (gzip.BadGzipFile, EOFError, zlib.error, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise CacheError(f"{path} is no file of calls, or a damaged one: {error}") from None
        except OSError as error:
            raise CacheError(f"{path} cannot be opened: {error.strerror}") from None
        if len(lines) != self.manifest.calls:
            raise CacheError(f"{path} is damaged: it holds {len(lines)} calls, not {self.manifest.calls}")
        self._held = {line.key: _with_checksum(bytes(line.entry)) for line in lines}
        for key, data in self._held.items():
            unpacked(key, data)

    def get(self, key: str) -> bytes | None:
        """The bytes of an entry."""
        return self._held.get(key)

    def __iter__(self) -> Iterator[str]:
        """All keys."""
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)
