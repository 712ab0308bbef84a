"""A durable key-value store on disk.

A value that `put` has acknowledged is on disk, whatever happens to the process or the machine. Nothing is
evicted, expired or unpickled. A store is one table of an SQLite database in WAL mode, which is safe across
threads and processes. Each commit is synced.

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
import warnings
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from itertools import groupby, islice, repeat
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet

from tot_lab.core.calls import Halt


class CacheError(Halt):
    """The cache, or one entry of it, cannot be used. The message names the folder, the file or the entry."""


class UnrecognizedKey(str):
    """Stands for a key that is not text, so that tot_lab did not write it."""


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


_TABLE = "CREATE TABLE IF NOT EXISTS calls (key TEXT NOT NULL UNIQUE, value BLOB NOT NULL)"
_TIMEOUT = 60
"""Seconds to wait for another process that has locked the database."""
_ENTRIES_PER_STATEMENT = 100
"""The most entries that one SQL statement stores. Older versions of SQLite accept 999 values."""


class _Database:
    """A database with one connection, which all threads share. It is opened when it is first used.

    One SQL statement takes many entries: at each, the writing thread and the event loop hand over the
    interpreter lock, which takes longer than the statement.
    """

    def __init__(self, opened: Callable[[], sqlite3.Connection]) -> None:
        self._opened = opened
        self._prepare()
        prepare_in_children(self)

    def _prepare(self) -> None:
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        """Return the result of an SQL statement."""
        with self._lock:
            if self._connection is None:
                self._connection = self._opened()
            return self._connection.execute(query, values).fetchall()

    @contextmanager
    def transact(self) -> Iterator[None]:
        """Carry out the statements of the block in one transaction, or none of them if it raises."""
        with self._lock:
            try:
                self.rows("BEGIN IMMEDIATE")
                yield
                self.rows("COMMIT")
            except BaseException:
                self.close()  # which rolls the transaction back
                raise

    def held(self, keys: Collection[str]) -> set[str]:
        """Return those of `keys` that have a value."""
        marks = ", ".join("?" * len(keys))
        return {key for (key,) in self.rows(f"SELECT key FROM calls WHERE key IN ({marks})", [*keys])}

    def add(self, entries: Sequence[tuple[str, bytes]]) -> list[bool]:
        """Store each value whose key is new, in the open transaction. Returns whether each was stored."""
        outcomes = list[bool]()
        for start in range(0, len(entries), _ENTRIES_PER_STATEMENT):
            some = entries[start : start + _ENTRIES_PER_STATEMENT]
            known = self.held([key for key, _ in some])
            values = list[str | bytes]()
            for key, value in some:
                outcomes.append(key not in known)
                if key not in known:
                    known.add(key)
                    values += (key, value)
            if values:
                self.rows(f"INSERT INTO calls VALUES {', '.join(['(?, ?)'] * (len(values) // 2))}", values)
        return outcomes

    def replace(self, entries: Sequence[tuple[str, bytes]]) -> list[bool]:
        """Store each value in the open transaction."""
        for entry in entries:
            self.rows("INSERT OR REPLACE INTO calls VALUES (?, ?)", entry)
        return [True] * len(entries)

    def close(self) -> None:
        """Close the connection. The next statement opens another one."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()


def _connected(path: Path, how: str) -> sqlite3.Connection:
    """Connect to a database, and read an entry."""
    database = sqlite3.connect(
        f"{path.absolute().as_uri()}?{how}",
        uri=True,
        timeout=_TIMEOUT,
        isolation_level=None,  # transactions are begun and ended by statements
        check_same_thread=False,
    )
    try:
        for setting in (
            "cache_size = 1024",  # 4 MiB; reads come from the mapped file
            "mmap_size = 67108864",
            "synchronous = FULL",  # a commit is on disk
        ):
            database.execute(f"PRAGMA {setting}")
        database.execute("SELECT key, value FROM calls LIMIT 1").fetchall()
    except BaseException:
        database.close()
        raise
    return database


class _ReadOnly(_Database):
    """A database that cannot be written.

    Raises:
        sqlite3.Error: If the database cannot be read either.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "cache.db"
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        super().__init__(self._opened_to_read)
        self.rows("SELECT 1")

    def _opened_to_read(self) -> sqlite3.Connection:
        log = self._path.with_name("cache.db-wal")
        try:
            return _connected(self._path, "mode=ro")
        except sqlite3.OperationalError:
            # SQLite cannot create the index of the write-ahead log in this folder. An empty log needs none;
            # otherwise the database and the log are copied to a temporary folder.
            if not log.exists() or not log.stat().st_size:
                return _connected(self._path, "mode=ro&immutable=1")
        self._copy = tempfile.TemporaryDirectory(prefix="tot-lab-", ignore_cleanup_errors=True)
        for file in (self._path, log):
            shutil.copyfile(file, Path(self._copy.name) / file.name)
        return _connected(Path(self._copy.name) / self._path.name, "mode=rw")

    def held(self, keys: Collection[str]) -> set[str]:
        """Return `keys`, so that each is looked up by itself."""
        return set(keys)

    @contextmanager
    def transact(self) -> Iterator[None]:
        """Raise an error."""
        raise sqlite3.OperationalError("the cache cannot be written here")
        yield

    def close(self) -> None:
        """Close the connection, and delete the copy of the database."""
        super().close()
        if self._copy is not None:
            self._copy.cleanup()


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


def _create(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(_TABLE)


def _is_in_wal_mode(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(20)[18:] == b"\2\2"


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
        journal = path.with_name(f"{path.name}-journal")
        if journal.exists() and _is_in_wal_mode(path):
            raise CacheError(
                f"{path}: the database of the cache cannot be read, since SQLite would play back "
                f"{journal.name}, which belongs to another database. Move it away."
            )
        return
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        _create(part)
        os.link(part, path)
    except FileExistsError:  # another process was faster
        pass
    except OSError:  # the file system has no hard links
        _create(path)
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
        path = self.folder / "cache.db"
        try:
            if not self.folder.is_dir():
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # private to this user
                self.folder.chmod(0o700)
            _expect_contents(path)
            self._disk = self._reader = _Database(lambda: _connected(path, "mode=rw"))
            self._disk.rows("PRAGMA user_version = 1")  # an error if the database cannot be written
            self._reader = _Database(lambda: _connected(path, "mode=rw"))
        except (sqlite3.OperationalError, OSError) as error:  # such as a full disk or a read-only folder
            self._disk = self._reader = self._to_read(error)
        except _DAMAGE as error:
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
        with self._reading():
            rows = self._reader.rows("SELECT value FROM calls WHERE key = ?", (key,))
        if rows and type(rows[0][0]) is not bytes:
            raise CacheError(f"{self.folder}: ignored an entry that is not bytes.")
        return rows[0][0] if rows else None

    def held(self, keys: Collection[str]) -> Collection[str]:
        """Return those of `keys`, at most 100, that have a value, or all if the database is read-only."""
        with self._reading():
            return self._reader.held(keys)

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
            outcomes = repeat(self._unwritten(error))
        _settle(list(zip(batch, outcomes, strict=False)))

    def delete(self, keys: list[str]) -> None:
        """Remove `keys` and their values. Raises OSError or `CacheError`."""
        try:
            with self._disk.transact():
                for key in keys:
                    self._disk.rows("DELETE FROM calls WHERE key = ?", (key,))
        except _DAMAGE as error:
            raise self._unwritten(error) from error

    def __iter__(self) -> Iterator[str]:
        """Iterate over all keys in ascending order. A key that is not text is replaced by an
        `UnrecognizedKey`.
        """
        with self._reading():
            rows = self._reader.rows("SELECT key FROM calls ORDER BY key")
        for (key,) in rows:
            yield key if type(key) is str else UnrecognizedKey("(not text)")

    def __len__(self) -> int:
        with self._reading():
            return int(self._reader.rows("SELECT count(*) FROM calls")[0][0])

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
            writer.shutdown()
        self._disk.close()
        self._reader.close()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except _DAMAGE as error:
            raise self._damaged(error) from error

    def _damaged(self, error: BaseException) -> CacheError:
        return CacheError(
            f"{self.folder}: the database of the cache cannot be read ({error}). Move the folder away to "
            f"start a new one, or restore a copy."
        )

    def _unwritten(self, error: BaseException) -> BaseException:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_BUSY:
            return OSError(f"{self.folder}: another process has locked the cache for {_TIMEOUT} s")
        if isinstance(error, sqlite3.OperationalError):  # such as a full disk or a read-only folder
            return OSError(f"{self.folder}: {error}")
        return self._damaged(error) if isinstance(error, _DAMAGE) else error
