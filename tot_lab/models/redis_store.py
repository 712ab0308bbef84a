"""Entries in a Redis that several machines share.

The first reply is kept across all hosts: an entry is only set if there is none, and a later writer continues
with the existing one. The URL may hold a password and is therefore never shown, recorded or raised as a
whole. A Redis that cannot be reached does not stop a search: its operations fail with `RedisUnavailable`, and
the layers of the cache continue with the disk and warn. Entries that could not be sent are kept in a folder,
the outbox, and sent later. A failed connection makes further operations fail for a short time; an operation
that Redis refuses (for example, because its memory is full) does not affect others.

Each machine has its own disk cache in front, since SQLite on a network disk is not safe.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from tot_lab.core.extras import requires
from tot_lab.models.entries import DamagedEntry, unpacked
from tot_lab.models.store import CacheError, Store, prepare_in_children

T = TypeVar("T")

PREFIX = "tot_lab:"
"""Prefix of each key, since a Redis may hold other data."""

TIMEOUT = 5.0
"""Seconds after which a Redis that does not answer counts as unreachable."""
PAUSE = 5.0
"""Seconds for which an unreachable Redis is not called, and between two attempts to empty the outbox."""
AT_ONCE = 8
"""Concurrent operations."""


class RedisUnavailable(CacheError):
    """A Redis that cannot be reached or refuses an operation."""


class RedisStore:
    """Entries in the Redis at `url`. It can be used from any thread and after a fork.

    Args:
        url: The URL of the Redis.
        outbox: Folder of entries that could not be sent yet. `None` keeps none of them.
        allow_unavailable: Whether a Redis that cannot be reached now is accepted.

    Raises:
        CacheError: If the Redis cannot be reached.
        ValueError: If `url` is not the URL of a Redis.
    """

    def __init__(self, url: str, outbox: Path | None = None, *, allow_unavailable: bool = False) -> None:
        self.url = url
        """The URL with its password, for connections and for the user's own workers."""
        self.address = _without_secrets(url)
        """The URL without user name and password."""
        try:
            import redis  # noqa: PLC0415  an extra
        except ImportError:
            raise CacheError(requires("shared=", "redis", "redis")) from None
        self._failures: tuple[type[Exception], ...] = (redis.RedisError, OSError)
        self._lost: tuple[type[Exception], ...] = (redis.ConnectionError, redis.TimeoutError, OSError)
        self._refusal: type[Exception] = redis.ResponseError
        self._away: tuple[float, str] = (0.0, "")  # end of the pause, and its reason
        self._outbox = outbox
        self._to_send = outbox is not None and (outbox / "cache.db").exists()
        self._next_sending = 0.0
        self._store: Store | None = None
        self._prepare()
        prepare_in_children(self)
        try:
            self._redis: Any = redis.Redis.from_url(
                url, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT, max_connections=2 * AT_ONCE
            )
            if not allow_unavailable:
                self._expect_it_keeps()
        except (ValueError, TypeError):
            raise ValueError(f"shared={self.address!r} has an option that redis does not support.") from None
        except self._failures as error:
            raise CacheError(f"{self.address}: the shared cache cannot be used: {error}") from None

    def _prepare(self) -> None:
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="tot_lab-redis")

    def __repr__(self) -> str:
        return f"<RedisStore {self.address}>"

    def fetch(self, key: str) -> Future[bytes | None]:
        """Return the bytes under `key`, or `None`. The future fails with `RedisUnavailable`."""
        return self._do(self._get, key)

    def get(self, key: str) -> bytes | None:
        """Return the result of `fetch`, blocking."""
        return self.fetch(key).result()

    def offer(self, key: str, value: bytes, *, replace: bool = False) -> Future[bytes]:
        """Store the entry `value` unless there is a valid one and `replace` is false.

        The result is the entry under `key` afterwards. The future fails with `RedisUnavailable`.
        """
        return self._do(self._offer, key, value, replace)

    def close(self) -> None:
        """Finish open operations, send the outbox, and close the connections."""
        self._threads.submit(self._send)
        self._threads.shutdown()
        if self._store is not None:
            self._store.close()
        self._redis.close()

    def _get(self, key: str) -> bytes | None:
        try:
            found: bytes | None = self._redis.get(PREFIX + key)
            return found
        except self._refusal as error:
            if not str(error).startswith("WRONGTYPE"):
                raise
            raise DamagedEntry(
                f"cache entry {key[:12]}… in {self.address} is not a string: got another Redis type"
            ) from None

    def _offer(self, key: str, value: bytes, replace: bool) -> bytes:
        if not replace:
            if self._redis.set(PREFIX + key, value, nx=True):
                return value
            try:
                first = self._get(key)
                if first is not None:
                    unpacked(key, first)
                    return first
            except DamagedEntry:
                pass
        self._redis.set(PREFIX + key, value)
        return value

    def _do(self, command: Callable[..., T], *given: Any) -> Future[T]:
        return self._threads.submit(self._done, command, *given)

    def _done(self, command: Callable[..., T], *given: Any) -> T:
        try:
            result = self._carried_out(command, *given)
        except RedisUnavailable:
            if command == self._offer:
                self._keep_for_later(*given)
            raise
        if self._to_send and time.monotonic() >= self._next_sending:
            self._threads.submit(self._send)
        return result

    def _carried_out(self, command: Callable[..., T], *given: Any) -> T:
        until, why = self._away
        if time.monotonic() < until:
            raise RedisUnavailable(why)
        try:
            return command(*given)
        except self._lost as error:
            why = f"{self.address}: the shared cache cannot be reached: {error}"
            self._away = (time.monotonic() + PAUSE, why)
            raise RedisUnavailable(why) from None
        except self._failures as error:
            raise RedisUnavailable(f"{self.address}: the shared cache refused a command: {error}") from None

    def _keep_for_later(self, key: str, value: bytes, replace: bool) -> None:
        """Put an entry into the outbox. Returns in any case that it is not shared."""
        if self._outbox is not None:
            with suppress(OSError, CacheError):
                self._opened(self._outbox).put(key, value, replace=replace).result()
                self._to_send = True

    def _send(self) -> None:
        """Send the entries of the outbox until the Redis refuses one."""
        self._next_sending = time.monotonic() + PAUSE
        if self._outbox is None or not self._to_send:
            return
        with suppress(OSError, CacheError):
            outbox = self._opened(self._outbox)
            for key in list(outbox):
                value = outbox.get(key)
                if value is not None:
                    self._carried_out(self._offer, key, value, False)
                outbox.delete([key])
            self._to_send = len(outbox) > 0

    def _opened(self, folder: Path) -> Store:
        with self._lock:
            if self._store is None:
                self._store = Store(folder)
            return self._store

    def _expect_it_keeps(self) -> None:
        """Warn about a Redis whose settings let it lose data."""
        memory, disk = self._redis.info("memory"), self._redis.info("persistence")
        policy = memory.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            self._warn(
                f"it evicts replies when its memory is full (maxmemory-policy {policy}). Run "
                f"CONFIG SET maxmemory-policy noeviction."
            )
        if not disk.get("aof_enabled") and not self._snapshots():
            self._warn(
                "it loses all replies when it stops (no appendonly, no save). Run CONFIG SET appendonly yes."
            )

    def _snapshots(self) -> bool:
        """Whether it saves its memory to disk. If the setting cannot be read, it is assumed to."""
        import redis  # noqa: PLC0415

        try:
            return bool(self._redis.config_get("save").get("save"))
        except redis.ResponseError:
            return True

    def _warn(self, what: str) -> None:
        warnings.warn(f"Shared cache {self.address}: {what}", RuntimeWarning, stacklevel=5)


def _without_secrets(url: str) -> str:
    """Return the URL without user name and password. The message of its ValueError does not hold them
    either.
    """
    try:
        parts = urlsplit(url)
        whole = parts.scheme in ("redis", "rediss") and bool(parts.hostname)
        port = parts.port or 6379
    except ValueError:  # an invalid port, such as half of a password
        whole = False
    if not whole or "@" in parts.path + parts.query + parts.fragment:
        raise ValueError(
            'shared must be the URL of a Redis, such as "redis://:password@host:6379/0". In a password, '
            "write / as %2F, # as %23 and ? as %3F."
        )
    return f"{parts.scheme}://{parts.hostname}:{port}{parts.path if parts.path[1:].isdigit() else '/0'}"
