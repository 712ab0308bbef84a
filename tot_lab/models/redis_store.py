"""Bytes by key in a Redis that many machines use: the answers that they share.

Rule: the first answer stays, over all hosts: it is set only where there is none, and who comes second
goes on with what stands there. The address may hold a password, so the whole of it is in nothing that is
shown, recorded or raised. A Redis that is away is no reason to stop a search: what was asked of it
fails with `Away`, which the cache's layers tell of and go on from the disk. What could not be offered to
it is kept in a folder, the outbox, and is offered later. Only a failed connection makes the commands after
it fail, for a moment; a command that Redis refuses (a full memory) leaves the others alone.

It is for between machines. Each has its own disk cache in front; SQLite on a disk that several hosts
mount is not safe.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from tot_lab.models.entries import DamagedEntry, unpacked
from tot_lab.models.store import CacheError, Store

T = TypeVar("T")

PREFIX = "tot_lab:"
"""Before each key: a Redis may hold other things too."""

TIMEOUT = 5.0
"""Seconds until a Redis that does not answer is away."""
PAUSE = 5.0
"""Seconds that a Redis which was away is left alone, and between two attempts to empty the outbox."""
AT_ONCE = 8
"""Commands under way at a time."""


class Away(CacheError):
    """A Redis that cannot be reached, or that refuses a command."""


class RedisStore:
    """Entries by key in the Redis at `url`; may be used from any thread, and after a fork.

    Args:
        url: The address of the Redis.
        outbox: Folder of the entries that could not be offered yet. `None` keeps none of them.
        may_be_away: Whether a Redis that cannot be reached now is accepted.

    Raises:
        CacheError: The Redis cannot be reached.
        ValueError: `url` is not the address of a Redis.
    """

    def __init__(self, url: str, outbox: Path | None = None, *, may_be_away: bool = False) -> None:
        self.url = url
        """With its password: for the connection, and for a user's own workers."""
        self.address = _shown(url)
        """The same without a name or a password."""
        try:
            import redis  # noqa: PLC0415  an extra
        except ImportError:
            raise CacheError("shared= needs redis: pip install 'tot-lab[redis]'") from None
        self._failures: tuple[type[Exception], ...] = (redis.RedisError, OSError)
        self._lost: tuple[type[Exception], ...] = (redis.ConnectionError, redis.TimeoutError, OSError)
        self._refusal: type[Exception] = redis.ResponseError
        self._away: tuple[float, str] = (0.0, "")  # until when, and why
        self._outbox = outbox
        self._to_send = outbox is not None and (outbox / "cache.db").exists()
        self._next_sending = 0.0
        self._store: Store | None = None
        self._prepare()
        try:
            self._redis: Any = redis.Redis.from_url(
                url, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT, max_connections=2 * AT_ONCE
            )
            if not may_be_away:
                self._expect_it_keeps()
        except (ValueError, TypeError):
            raise ValueError(f"shared={self.address!r} has an option that redis does not know") from None
        except self._failures as error:
            raise CacheError(f"{self.address}: the shared cache cannot be used: {error}") from None

    def _prepare(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="tot_lab-redis")

    def __repr__(self) -> str:
        return f"<RedisStore {self.address}>"

    def fetch(self, key: str) -> Future[bytes | None]:
        """The bytes under `key`, None when there are none. Fails with `Away`."""
        return self._do(self._get, key)

    def get(self, key: str) -> bytes | None:
        """As `fetch`, at once."""
        return self.fetch(key).result()

    def offer(self, key: str, value: bytes, *, replace: bool = False) -> Future[bytes]:
        """Keep the entry `value`, unless there is one that holds, and not `replace`. The result is what
        stands under `key` from now on. Fails with `Away`."""
        return self._do(self._offer, key, value, replace)

    def close(self) -> None:
        """Finish what is under way, offer what is in the outbox, and let go of the connections."""
        if os.getpid() == self._process:
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
        if os.getpid() != self._process:  # the threads stayed in the parent
            self._prepare()
        return self._threads.submit(self._done, command, *given)

    def _done(self, command: Callable[..., T], *given: Any) -> T:
        try:
            result = self._carried_out(command, *given)
        except Away:
            if command == self._offer:
                self._keep_for_later(*given)
            raise
        if self._to_send and time.monotonic() >= self._next_sending:
            self._threads.submit(self._send)
        return result

    def _carried_out(self, command: Callable[..., T], *given: Any) -> T:
        until, why = self._away
        if time.monotonic() < until:
            raise Away(why)
        try:
            return command(*given)
        except self._lost as error:
            why = f"{self.address}: the shared cache cannot be reached: {error}"
            self._away = (time.monotonic() + PAUSE, why)
            raise Away(why) from None
        except self._failures as error:
            raise Away(f"{self.address}: the shared cache refused a command: {error}") from None

    def _keep_for_later(self, key: str, value: bytes, replace: bool) -> None:
        """Put an entry into the outbox. Its caller hears in any case that it is not shared."""
        if self._outbox is not None:
            with suppress(OSError, CacheError):
                self._opened(self._outbox).put(key, value, replace=replace).result()
                self._to_send = True

    def _send(self) -> None:
        """Offer what is in the outbox, until the Redis refuses one."""
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
        """Warn of a Redis that forgets by its settings."""
        memory, disk = self._redis.info("memory"), self._redis.info("persistence")
        policy = memory.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            self._warn(
                f"it forgets answers when its memory is full (maxmemory-policy {policy}): "
                f"CONFIG SET maxmemory-policy noeviction"
            )
        if not disk.get("aof_enabled") and not self._snapshots():
            self._warn(
                "it forgets all answers when it stops (appendonly no, and no save): CONFIG SET appendonly yes"
            )

    def _snapshots(self) -> bool:
        """Whether it writes its memory to disk now and then; where nobody may ask, it is believed to."""
        import redis  # noqa: PLC0415

        try:
            return bool(self._redis.config_get("save").get("save"))
        except redis.ResponseError:
            return True

    def _warn(self, what: str) -> None:
        warnings.warn(f"the shared cache {self.address}: {what}", RuntimeWarning, stacklevel=5)


def _shown(url: str) -> str:
    """The address without what must not be seen. A ValueError that does not show it either."""
    try:
        parts = urlsplit(url)
        whole = parts.scheme in ("redis", "rediss") and bool(parts.hostname)
        port = parts.port or 6379
    except ValueError:  # a port that is none, such as the half of a password
        whole = False
    if not whole or "@" in parts.path + parts.query + parts.fragment:
        raise ValueError(
            'shared must be the address of a Redis, such as "redis://:password@host:6379/0"; in a password '
            "/ is %2F, # is %23 and ? is %3F"
        )
    return f"{parts.scheme}://{parts.hostname}:{port}{parts.path if parts.path[1:].isdigit() else '/0'}"
