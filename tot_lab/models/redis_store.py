"""Bytes by key in a Redis that many machines use: the answers that they share.

Rule: the first answer stays, over all hosts: it is set only where there is none, and who comes second
goes on with what stands there. The address may hold a password, so the whole of it is in nothing that is
shown, recorded or raised. A Redis that is away is no reason to stop a search: what was asked of it
fails with `Away`, which the cache's layers tell of and go on from the disk.

It is for between machines. Each has its own disk cache in front; SQLite on a disk that several hosts
mount is not safe.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import urlsplit

from tot_lab.models.entries import DamagedEntry, unpacked
from tot_lab.models.store import CacheError

T = TypeVar("T")

PREFIX = "tot_lab:"
"""Before each key: a Redis may hold other things too."""

TIMEOUT = 5.0
"""Seconds until a Redis that does not answer is away."""
PAUSE = 5.0
"""Seconds that a Redis which was away is left alone."""
AT_ONCE = 8
"""Commands under way at a time."""


class Away(CacheError):
    """A Redis that was there, and now cannot be reached or refuses what it is told."""


class RedisStore:
    """Entries by key in the Redis at `url`; may be used from any thread, and after a fork. Raises
    `CacheError` when it cannot be reached, ValueError for what is no address of one."""

    def __init__(self, url: str) -> None:
        self.url = url
        """With its password: for the connection, and for a user's own workers."""
        self.address = _shown(url)
        """The same without a name or a password."""
        try:
            import redis  # noqa: PLC0415  an extra
        except ImportError:
            raise CacheError("shared= needs redis: pip install 'tot-lab[redis]'") from None
        self._failures: tuple[type[Exception], ...] = (redis.RedisError, OSError)
        self._away: tuple[float, str] = (0.0, "")  # until when, and why
        self._prepare()
        try:
            self._redis: Any = redis.Redis.from_url(
                url, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT, max_connections=2 * AT_ONCE
            )
            self._expect_it_keeps()
        except (ValueError, TypeError):
            raise ValueError(f"shared={self.address!r} has an option that redis does not know") from None
        except self._failures as error:
            raise CacheError(f"{self.address}: the shared cache cannot be used: {error}") from None

    def _prepare(self) -> None:
        self._process = os.getpid()
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
        """Finish what is under way and let go of the connections."""
        if os.getpid() == self._process:
            self._threads.shutdown()
        self._redis.close()

    def _get(self, key: str) -> bytes | None:
        found: bytes | None = self._redis.get(PREFIX + key)
        return found

    def _offer(self, key: str, value: bytes, replace: bool) -> bytes:
        if not replace:
            if self._redis.set(PREFIX + key, value, nx=True):
                return value
            first = self._get(key)
            try:
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
        until, why = self._away
        if time.monotonic() < until:
            raise Away(why)
        try:
            return command(*given)
        except self._failures as error:
            why = f"{self.address}: the shared cache cannot be reached: {error}"
            self._away = (time.monotonic() + PAUSE, why)
            raise Away(why) from None

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
