"""Entries of the cache, and the file format in which an experiment's calls are shared.

An entry is served only if its checksum, its schema and the usage of its reply are valid, and the reply is no
error. `unpacked` also checks that the key is that of the request. An exported file is gzipped JSON lines: a
manifest with the number of calls and the SHA-256 of the other lines, then one line per call. Reading a file
executes no code.
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
from tot_lab.core.files import read_gzip, read_regular, write_whole
from tot_lab.models.keys import SCHEMA, Request, shortened
from tot_lab.models.store import CacheError


class DamagedEntry(CacheError):
    """An entry that must not be served. The message names its key and what is wrong with it."""


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stored call.

    Attributes:
        schema: `SCHEMA` of the version of tot_lab that wrote the entry.
        seconds: Seconds until the reply arrived, including those in queues.
        stored: Time of storage, ISO 8601 in UTC.
        versions: Versions of tot_lab and Python, and of litellm if it made the call.
        weights: What the server reported about its weights. {} if it reported nothing.
    """

    schema: int
    request: Request
    reply: Reply
    seconds: float
    stored: str
    versions: dict[str, str]
    weights: dict[str, str] = {}


class Stored(msgspec.Struct, frozen=True):
    """The part of an entry that a cache hit needs."""

    schema: int
    reply: Reply
    weights: dict[str, str] = {}


_entry_of = msgspec.json.Decoder(Entry).decode
_answer_of = msgspec.json.Decoder(Stored).decode
_encoded = msgspec.json.Encoder().encode
_CHECKSUM = 4  # bytes of a CRC-32, which detects damage


def packed(entry: Entry) -> bytes:
    """Return the bytes of an entry: a checksum, then its JSON."""
    return _with_checksum(_encoded(entry))


def _with_checksum(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(_CHECKSUM) + data


def unpacked(key: str, data: bytes) -> Entry:
    """Return the entry in `data`. Raises `DamagedEntry` if it is damaged, has a newer schema, or holds
    another request than that of `key`.
    """
    entry: Entry = _checked(key, data, _entry_of)
    if entry.request.key != key:
        raise DamagedEntry(f"cache entry {shortened(key)} holds the reply to a request with another key")
    return entry


def stored_in(key: str, data: bytes) -> Stored:
    """Return the part of the entry in `data` that a cache hit needs. Raises `DamagedEntry` if it is damaged
    or has a newer schema; the request is not compared with `key`.
    """
    stored: Stored = _checked(key, data, _answer_of)
    return stored


def _checked(key: str, data: bytes, decode: Callable[[Any], Any]) -> Any:
    body = memoryview(data)[_CHECKSUM:]
    if zlib.crc32(body).to_bytes(_CHECKSUM) != data[:_CHECKSUM]:
        raise DamagedEntry(f"cache entry {shortened(key)} is damaged: its checksum does not match")
    try:
        found = decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedEntry(f"cache entry {shortened(key)} cannot be read: {error}") from None
    if found.schema > SCHEMA:
        raise DamagedEntry(
            f"cache entry {shortened(key)} has schema {found.schema}, written by a newer tot_lab. This "
            f"version ({__version__}) reads up to schema {SCHEMA}. Update tot_lab"
        )
    if (why := _fault(found.reply)) is not None:
        raise DamagedEntry(f"cache entry {shortened(key)} is damaged: {why}")
    return found


def _fault(reply: Reply) -> str | None:
    """Return why `reply` cannot be a cached reply, or `None` if it can."""
    if reply.error is not None:
        return f"its reply must not be an error: got {readable(reply.error)[:80]!r}"
    checked = believed(reply)
    return None if checked is reply else f"its usage is impossible: {checked.reported_usage}"


class Manifest(msgspec.Struct, frozen=True):
    """The first line of an exported file. `tot_lab_calls` is the schema of its entries, `calls` their number,
    `sha256` the digest of the other lines, and `runs` the ids of the exported runs.
    """

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
    """Write `entries` to the file `path`, ordered by key. The same entries and runs give the same bytes."""
    lines = [_Line(key, msgspec.Raw(_encoded(entry))) for key, entry in sorted(entries, key=lambda e: e[0])]
    body = msgspec.json.Encoder().encode_lines(lines)
    sha256 = hashlib.sha256(body).hexdigest()
    manifest = Manifest(SCHEMA, __version__, len(lines), sha256, tuple(sorted(runs)))
    data = msgspec.json.encode(manifest) + b"\n" + body
    return write_whole(path, gzip.compress(data, mtime=0))


class Exported:
    """The entries of an exported file, held in memory. All are validated when the file is opened.

    Raises:
        CacheError: If the file cannot be opened or is damaged.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            read = read_gzip if Path(path).suffix == ".gz" else read_regular
            head, _, body = read(path).partition(b"\n")
            self.manifest = _manifest_of(head)
            if self.manifest.tot_lab_calls > SCHEMA:
                raise CacheError(
                    f"{path} was written by a newer tot_lab ({self.manifest.version}). Update tot_lab."
                )
            if hashlib.sha256(body).hexdigest() != self.manifest.sha256:
                raise CacheError(f"{path} is damaged: its checksum does not match.")
            lines = _lines_of(body)
        except OSError as error:
            raise CacheError(f"{path} cannot be opened: {error.strerror}") from None
        except ValueError as error:  # invalid gzip, JSON or UTF-8
            raise CacheError(f"{path} is not a file of exported calls, or is damaged: {error}") from None
        if len(lines) != self.manifest.calls:
            raise CacheError(f"{path} is damaged: got {len(lines)} calls instead of {self.manifest.calls}.")
        self._held = {line.key: _with_checksum(bytes(line.entry)) for line in lines}
        for key, data in self._held.items():
            unpacked(key, data)

    def get(self, key: str) -> bytes | None:
        """Return the bytes of the entry under `key`, or `None`."""
        return self._held.get(key)

    def __iter__(self) -> Iterator[str]:
        """Iterate over all keys."""
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)
