"""A durable key-value store on disk.

A value that `put` has acknowledged is on disk, whatever happens to the process or the machine. Nothing is
evicted, expired or unpickled. The store is built on diskcache (SQLite in WAL mode, safe across threads and
processes) without four of its defaults: eviction at 1 GiB, pickled keys and values, large values in separate
files, and commits that are not synced.

One commit writes all values that arrived during the previous commit, and wakes each waiting event loop once.
A database that cannot be written (full disk, read-only mount) is opened read-only.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import sqlite3
import tempfile
import threading
import time
import warnings
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import groupby, islice, repeat
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet

import diskcache

from tot_lab.core.calls import Halt


class CacheError(Halt):
    """The cache, or one entry of it, cannot be used. The message names the folder, the file or the entry."""


class UnrecognizedKey(str):
    """Stands for a key that is not plain text, so that tot_lab did not write it. It is not unpickled."""


_FIND = "SELECT mode, filename, value FROM Cache WHERE key = ? AND raw = 1"


class _PlainDisk(diskcache.Disk):  # type: ignore[misc]  # diskcache has no type hints
    """Stores text keys and bytes values in the database, and refuses anything else."""

    def put(self, key: Any) -> tuple[Any, bool]:
        if type(key) is not str:
            raise TypeError(f"A cache key must be a str: got {type(key).__name__}.")
        return key, True

    def get(self, key: Any, raw: Any) -> str:
        return key if raw and type(key) is str else UnrecognizedKey("(not plain text)")

    def store(self, value: Any, read: bool, key: Any = None) -> tuple[int, int, None, Any]:
        if type(value) is not bytes or read:
            raise TypeError(f"A cache value must be bytes: got {type(value).__name__}.")
        return len(value), diskcache.core.MODE_RAW, None, sqlite3.Binary(value)

    def fetch(self, mode: int, filename: Any, value: Any, read: bool) -> bytes:
        return _plain(self._directory, mode, filename if not read else "", value)


class _Database(diskcache.Cache):  # type: ignore[misc]
    """A diskcache that finds an entry with one SQL statement and adds many with two. Few statements save
    time: at each, the writing thread and the event loop hand over the interpreter lock, which takes longer
    than the statement.
    """

    def find(self, key: str) -> bytes | None:
        """Return the value under `key`, or `None`."""
        rows = self._sql(_FIND, (key,)).fetchall()
        return _plain(self._directory, *rows[0]) if rows else None

    def held(self, keys: Collection[str]) -> set[str]:
        """Return those of `keys` that have a value, with one statement."""
        marks = ", ".join("?" * len(keys))
        query = f"SELECT key FROM Cache WHERE raw = 1 AND key IN ({marks})"
        return {key for (key,) in self._sql(query, [*keys]).fetchall()}

    def add(self, entries: Sequence[tuple[str, bytes]]) -> list[bool]:
        """Store each value whose key is new, in the open transaction. Returns whether each was stored."""
        now, outcomes = time.time(), list[bool]()
        for start in range(0, len(entries), _ENTRIES_PER_STATEMENT):
            some = entries[start : start + _ENTRIES_PER_STATEMENT]
            known, values = self.held([key for key, _ in some]), list[Any]()
            for key, value in some:
                outcomes.append(key not in known)
                if key not in known:
                    known.add(key)
                    values += (key, now, now, len(value), diskcache.core.MODE_RAW, value)
            if values:
                rows = ", ".join(["(?, 1, ?, ?, ?, ?, ?)"] * (len(values) // 6))
                self._sql(
                    f"INSERT INTO Cache (key, raw, store_time, access_time, size, mode, value) VALUES {rows}",
                    values,
                )
        return outcomes

    def replace(self, entries: Sequence[tuple[str, bytes]]) -> list[bool]:
        """Store each value in the open transaction."""
        return [self.set(*entry) for entry in entries]


_ENTRIES_PER_STATEMENT = 100
"""The most entries that one SQL statement stores, 6 values each. Older versions of SQLite accept
999 values.
"""


class _Write(NamedTuple):
    """Values to be stored, and the future, of a thread or of an event loop, that receives the outcome."""

    entries: Sequence[tuple[str, bytes]]
    replace: bool
    done: Future[bool] | asyncio.Future[list[bool]]


_Outcome = list[bool] | BaseException
"""Whether each value was stored, or why none could be."""


def _settle(pairs: list[tuple[_Write, _Outcome]]) -> None:
    """Give each waiting future its outcome. An event loop is woken once for all of its futures."""
    in_loops = defaultdict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[list[bool]], _Outcome]]](list)
    for write, outcome in pairs:
        if isinstance(write.done, asyncio.Future):
            in_loops[write.done.get_loop()].append((write.done, outcome))
        elif isinstance(outcome, BaseException):
            write.done.set_exception(outcome)
        else:
            write.done.set_result(outcome[0])
    for loop, settled in in_loops.items():
        with suppress(RuntimeError):  # the loop was closed
            loop.call_soon_threadsafe(_resolve, settled)


def _resolve(pairs: Sequence[tuple[asyncio.Future[list[bool]], _Outcome]]) -> None:
    for done, outcome in pairs:
        if done.done():  # its waiter was cancelled
            continue
        if isinstance(outcome, BaseException):
            done.set_exception(outcome)
        else:
            done.set_result(outcome)


def _plain(folder: Any, mode: Any, filename: Any, value: Any) -> bytes:
    """Return the value in a row of the database. Raises `CacheError` unless it is plain bytes, as tot_lab
    writes.
    """
    if mode != diskcache.core.MODE_RAW or type(value) is not bytes or filename is not None:
        raise CacheError(f"{folder}: ignored an entry that is not plain bytes, possibly a planted pickle.")
    return value


class Forkable(Protocol):
    """An object with threads, locks or connections, which do not survive a fork. `_prepare` resets them."""

    def _prepare(self) -> None: ...


_FORKABLE: WeakSet[Forkable] = WeakSet()


def prepare_in_children(one: Forkable) -> None:
    """Let every forked child process call `one._prepare` right after the fork."""
    _FORKABLE.add(one)


def _prepare_all() -> None:
    for one in list(_FORKABLE):
        one._prepare()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_prepare_all)


class _ReadOnly:
    """A database that cannot be written, with the methods of `_Database` that reading needs.

    Raises:
        sqlite3.Error: If the database cannot be read either.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        self._database: sqlite3.Connection | None
        self._prepare()
        prepare_in_children(self)
        self._database = self._opened()

    def _prepare(self) -> None:
        self._lock = threading.Lock()
        self._database = None

    def _opened(self) -> sqlite3.Connection:
        path = self.folder / "cache.db"
        log = path.with_name("cache.db-wal")
        try:
            return _connected(path, "mode=ro")
        except sqlite3.OperationalError:
            # SQLite cannot create the index of the write-ahead log in this folder. An empty log needs none;
            # otherwise the database and the log are copied to a temporary folder.
            if not log.exists() or not log.stat().st_size:
                return _connected(path, "mode=ro&immutable=1")
        self._copy = tempfile.TemporaryDirectory(prefix="tot-lab-", ignore_cleanup_errors=True)
        for file in (path, log):
            shutil.copyfile(file, Path(self._copy.name) / file.name)
        return _connected(Path(self._copy.name) / path.name, "mode=rw")

    def _rows(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._lock:
            if self._database is None:
                self._database = self._opened()
            return self._database.execute(query, values).fetchall()

    def find(self, key: str) -> bytes | None:
        rows = self._rows(_FIND, (key,))
        return _plain(self.folder, *rows[0]) if rows else None

    def iterkeys(self) -> Iterator[str]:
        for key, raw in self._rows("SELECT key, raw FROM Cache ORDER BY key"):
            yield key if raw and type(key) is str else UnrecognizedKey("(not plain text)")

    def __len__(self) -> int:
        return int(self._rows("SELECT count(*) FROM Cache")[0][0])

    def transact(self) -> Any:
        raise sqlite3.OperationalError("the cache cannot be written here")

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
        if self._copy is not None:
            self._copy.cleanup()


def _connected(path: Path, how: str) -> sqlite3.Connection:
    database = sqlite3.connect(
        f"{path.absolute().as_uri()}?{how}", uri=True, timeout=60, check_same_thread=False
    )
    try:
        database.execute("SELECT key, raw, mode, filename, value FROM Cache LIMIT 1").fetchall()
    except BaseException:
        database.close()
        raise
    return database


_SETTINGS = {
    "eviction_policy": "none",
    "cull_limit": 0,
    "size_limit": 2**62,
    "statistics": 0,
    "tag_index": 0,
    "sqlite_auto_vacuum": 0,
    "sqlite_cache_size": 2**10,  # 4 MiB for each thread; reads come from the mapped file
    "sqlite_journal_mode": "wal",
    "sqlite_mmap_size": 2**26,
    "sqlite_synchronous": 2,  # FULL: a commit is on disk
    "disk_min_file_size": 0,
    "disk_pickle_protocol": 0,
}


def _expect_contents(path: Path) -> None:
    """Create an empty database at `path` if there is no file.

    Raises `CacheError` if the file has 0 bytes or is not a regular file. SQLite would use a file of 0 bytes
    as a new database, and hide that its entries were lost. A file that another process is creating never has
    0 bytes: it is written under another name, and gets the name `path` when it is complete.
    """
    if path.exists():
        if not path.is_file():
            raise CacheError(f"{path}: the database of the cache must be a regular file. Move it away.")
        if not path.stat().st_size:
            raise CacheError(
                f"{path}: the database of the cache was emptied: got 0 bytes. Restore a copy, or delete the "
                f"file to start a new one."
            )
        return
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        with closing(sqlite3.connect(part)) as database:
            database.execute("PRAGMA user_version = 1")  # writes the file
        with suppress(OSError):  # another process was faster, or the file system has no hard links
            os.link(part, path)
    finally:
        part.unlink(missing_ok=True)


_DAMAGE = (sqlite3.Error, UnicodeDecodeError, TypeError, OverflowError)
"""Errors that a damaged database raises in queries."""


class Store:
    """Values (bytes) by key (str) in the database of one folder. It can be used from any thread and after a
    fork.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        try:
            if not self.folder.is_dir():
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # private to this user
                self.folder.chmod(0o700)
            _expect_contents(self.folder / "cache.db")
            self._disk: Any = _Database(str(self.folder), timeout=60, disk=_PlainDisk, **_SETTINGS)
            self._disk.close()  # closes the connection of this thread, which may never use it again
        except (sqlite3.OperationalError, OSError) as error:  # such as a full disk or a read-only folder
            self._disk = self._to_read(error)
        except (*_DAMAGE, diskcache.Timeout) as error:
            raise self._damaged(error) from error
        self._prepare()
        prepare_in_children(self)

    def _to_read(self, failure: OSError | sqlite3.OperationalError) -> _ReadOnly:
        """Open the database read-only. If that fails too, raise `CacheError` with the original failure."""
        why = getattr(failure, "strerror", None) or failure
        try:
            found = _ReadOnly(self.folder)
        except (*_DAMAGE, OSError):
            hint = 'Pass the lab another folder as cache=, or mode="off".'
            raise CacheError(f"{self.folder}: the cache cannot be opened: {why}. {hint}") from failure
        warnings.warn(
            f"{self.folder}: the cache cannot be written ({why}). New replies are not stored.",
            RuntimeWarning,
            stacklevel=4,
        )
        return found

    def _prepare(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[_Write] = []
        self._submitted = False
        """Whether the writer's thread will write the waiting values."""
        self._scheduled_in: asyncio.AbstractEventLoop | None = None
        """The event loop that will call `_submit`."""
        self._writer: ThreadPoolExecutor | None = None

    def get(self, key: str) -> bytes | None:
        """Return the bytes under `key`, or `None`. Raises `CacheError`."""
        try:
            found: bytes | None = self._disk.find(key)
            return found
        except _DAMAGE as error:
            raise self._damaged(error) from error

    def held(self, keys: Collection[str]) -> Collection[str]:
        """Return those of at most 100 `keys` that have a value, or all of them if the database is
        read-only.
        """
        try:
            return self._disk.held(keys) if isinstance(self._disk, _Database) else keys
        except _DAMAGE as error:
            raise self._damaged(error) from error

    def put(self, key: str, value: bytes, *, replace: bool = False) -> Future[bool]:
        """Store `value` under `key`, unless the key has a value and `replace` is false.

        When the future is done, a value of the key is on disk. The result is whether it is `value`. The
        future fails with OSError if the disk is full, and with `CacheError` if the database is damaged.
        """
        done: Future[bool] = Future()
        done.set_running_or_notify_cancel()  # cancelling the future must not stop the write
        self._enqueue(_Write([(key, value)], replace, done))
        self._submit()
        return done

    def keep(
        self, entries: Sequence[tuple[str, bytes]], *, replace: bool = False
    ) -> asyncio.Future[list[bool]]:
        """Store keys and values like `put`, and return one future of the running event loop. All values that
        are passed in one iteration of the loop are written in one commit.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[list[bool]] = loop.create_future()
        self._enqueue(_Write(entries, replace, done))
        if self._scheduled_in is not loop:
            self._scheduled_in = loop
            loop.call_soon(self._submit)
        return done

    def _enqueue(self, write: _Write) -> None:
        with self._lock:
            self._waiting.append(write)

    def _submit(self) -> None:
        """Let the writer's thread write the waiting values."""
        with self._lock:
            self._scheduled_in = None
            if self._submitted or not self._waiting:
                return
            if self._writer is None:
                self._writer = ThreadPoolExecutor(1, thread_name_prefix="tot_lab-cache")
            try:
                self._writer.submit(self._commit)
                self._submitted = True
                return
            except RuntimeError as error:  # no thread can be started
                failed, why, self._waiting = self._waiting, error, []
        _settle([(write, why) for write in failed])

    def _commit(self) -> None:
        """Write all pending values in one transaction."""
        with self._lock:
            batch, self._waiting, self._submitted = self._waiting, [], False
        stored = list[bool]()
        outcomes: Iterator[_Outcome]
        try:
            with self._disk.transact():
                for replace, group in groupby(batch, lambda write: write.replace):
                    entries = [entry for write in group for entry in write.entries]
                    stored += self._disk.replace(entries) if replace else self._disk.add(entries)
            each = iter(stored)
            outcomes = ([*islice(each, len(write.entries))] for write in batch)
        except BaseException as error:
            if isinstance(self._disk, diskcache.Cache):  # otherwise the database is read-only
                self._disk.close()  # closing the connection rolls the transaction back
            outcomes = repeat(self._unwritten(error))
        _settle(list(zip(batch, outcomes, strict=False)))

    def delete(self, keys: list[str]) -> None:
        """Remove `keys` and their values. Raises OSError or `CacheError`."""
        try:
            with self._disk.transact():
                for key in keys:
                    self._disk.delete(key)
        except (*_DAMAGE, diskcache.Timeout) as error:
            raise self._unwritten(error) from error

    def __iter__(self) -> Iterator[str]:
        """Iterate over all keys in ascending order. A key that is not text is replaced by an
        `UnrecognizedKey`.
        """
        try:
            yield from self._disk.iterkeys()
        except _DAMAGE as error:
            raise self._damaged(error) from error

    def __len__(self) -> int:
        try:
            return len(self._disk)
        except _DAMAGE as error:
            raise self._damaged(error) from error

    @property
    def size(self) -> int:
        """Bytes of all files in the folder."""
        return sum(file.stat().st_size for file in self.folder.iterdir() if file.is_file())

    def close(self) -> None:
        """Write pending values and close the files."""
        self._submit()
        with self._lock:
            writer, self._writer = self._writer, None
        if writer is not None:
            writer.submit(self._disk.close)  # closes the connection of the writer's thread
            writer.shutdown()
        self._disk.close()

    def _damaged(self, error: BaseException) -> CacheError:
        return CacheError(
            f"{self.folder}: the database of the cache cannot be read ({error}). Move the folder away to "
            f"start a new one, or restore a copy."
        )

    def _unwritten(self, error: BaseException) -> BaseException:
        if isinstance(error, diskcache.Timeout):
            return OSError(f"{self.folder}: another process has locked the cache for 60 s")
        if isinstance(error, sqlite3.OperationalError):  # such as a full disk or a read-only folder
            return OSError(f"{self.folder}: {error}")
        return self._damaged(error) if isinstance(error, _DAMAGE) else error
