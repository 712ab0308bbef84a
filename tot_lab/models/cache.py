"""The disk cache: each distinct call is paid for once, and an experiment runs again offline.

Rule: an entry holds the whole request and the whole reply, and is served only when it is what was
written: its checksum holds, its schema is known. Errors are never stored. The first answer stays:
a second writer's is not taken, and `refresh` writes new answers into a new store beside the old.

    folder/1, folder/2, …    the stores, each a `Store`; the newest answer is read first
    folder/outbox            what could not be offered to the `shared` cache yet
    folder/id                tells this folder, for dask workers, from another that lay at the same place
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Literal, Protocol, get_args

from tot_lab._version import __version__
from tot_lab.core.calls import Call, CallObserver, Reply
from tot_lab.core.files import data_folder
from tot_lab.models.entries import DamagedEntry, Entry, Exported, packed, reply_in, unpacked
from tot_lab.models.keys import SCHEMA, Request, differences, key_of
from tot_lab.models.redis_store import Away, RedisStore
from tot_lab.models.stack import Backend
from tot_lab.models.store import CacheError, Foreign, Store

Mode = Literal["auto", "off", "refresh", "replay"]
"""auto: what is known is not asked again. off: everything is asked, nothing kept. refresh: all is
asked anew, once, and kept beside the old answers. replay: nothing is asked; a miss is an error."""

MODES: tuple[Mode, ...] = get_args(Mode)


class CacheMiss(CacheError):
    """A call in `replay` whose answer is not known; the message says what is nearest to it."""


class Readable(Protocol):
    """Where entries are read from."""

    def get(self, key: str) -> bytes | None: ...
    def __iter__(self) -> Iterator[str]: ...
    def __len__(self) -> int: ...


class Cache:
    """Known answers: a folder of them that grows, or one exported file, which is only read.

    path: a folder, or a `.jsonl.gz` that `tot-lab cache export` wrote. None = `$TOT_LAB_CACHE`, else
        `tot_lab/calls` in the user's data directory. create: whether to make a folder that is not there.
    shared: the address of a Redis (`redis://:password@host:6379/0`, `rediss://…`) in which several
        machines share their answers; needs `tot-lab[redis]`. The folder is in front: it is read first,
        what it lacks is looked for there and kept here too, and an answer is written to both. Of two
        hosts that ask the same at once, both go on with the first answer. When the Redis is away, a
        search goes on with the folder alone, and warns: then a call may be paid for once a host. What it
        was answered meanwhile is sent to the Redis later. may_be_away: whether a Redis that cannot be reached
        now is no error.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        create: bool = True,
        shared: str | None = None,
        may_be_away: bool = False,
    ) -> None:
        if isinstance(path, str) and path.startswith(("redis://", "rediss://")):
            raise ValueError("a Redis is shared behind a folder: tl.Cache(folder, shared=its address)")
        self.path = default_folder() if path is None else Path(path)
        self.stores: list[Readable] = []
        """Where answers are looked for on this machine, newest first."""
        self.newest: Store | None = None
        self.shared = (
            None
            if shared is None
            else RedisStore(shared, self.path / "outbox" if create else None, may_be_away=may_be_away)
        )
        """What is looked in after that."""
        if self.path.is_file() or self.path.suffix == ".gz":
            if shared is not None:
                raise ValueError(
                    f"{self.path} is an exported file, which is only read; shared= needs a folder"
                )
            self.stores = [Exported(self.path)]
            return
        numbers = sorted(int(file.parent.name) for file in self.path.glob("*/cache.db") if _numbered(file))
        stores = [Store(self.path / str(number)) for number in reversed(numbers)]
        if not stores and create:
            stores = [Store(self.path / "1")]
        self.newest = stores[0] if stores else None
        self.stores = list(stores)

    def renewed(self) -> Cache:
        """A new store, which alone is read and written here: for `refresh`. To this cache it is the
        newest from now on."""
        if self.newest is None:
            raise CacheError(f"{self.path}: an exported file is only read; import it into a folder first")
        if self.shared is not None:
            raise CacheError(
                f"{self.shared.address}: a shared cache keeps the first answers; to ask anew, take another "
                f"number (…/1) and another folder"
            )
        number = int(self.newest.folder.name)
        made = False
        while not made:
            number += 1
            try:
                (self.path / str(number)).mkdir(mode=0o700)
                made = True
            except FileExistsError:  # of another process that refreshes too
                pass
            except OSError as error:
                raise CacheError(f"{self.path}: the cache cannot be written: {error.strerror}") from error
        fresh = object.__new__(Cache)
        fresh.path = self.path
        fresh.shared = None
        fresh.newest = self.newest = Store(self.path / str(number))
        fresh.stores = [fresh.newest]
        self.stores.insert(0, fresh.newest)
        return fresh

    def _held(self, key: str) -> Iterator[bytes]:
        """What is kept under `key`, the newest first, and last what is shared."""
        for store in self.stores:
            if (data := store.get(key)) is not None:
                yield data
        if self.shared is not None and (data := self.shared.get(key)) is not None:
            yield data

    def reply(self, key: str) -> Reply | None:
        """The known answer under `key`. An entry that cannot be served is a `CacheError`."""
        return next(self.replies(key), None)

    def replies(self, key: str) -> Iterator[Reply]:
        """All known answers under `key`, the newest first."""
        for data in self._held(key):
            yield reply_in(key, data)

    async def find(self, key: str) -> Reply | None:
        """As `reply`, without holding up the event loop; what only the shared cache has is kept here too."""
        for store in self.stores:
            if (data := store.get(key)) is not None:
                return reply_in(key, data)
        if self.shared is None:
            return None
        data = await asyncio.wrap_future(self.shared.fetch(key))
        if data is None:
            return None
        entry = unpacked(key, data)  # others write there
        if self.newest is not None:
            self.newest.put(key, data)
        return entry.reply

    def entry(self, key: str, replies: Sequence[Reply] = ()) -> Entry | None:
        """All that is kept under `key`: of several answers one of `replies`, else the newest."""
        found = [unpacked(key, data) for data in self._held(key)]
        return next((entry for entry in found if entry.reply in replies), found[0] if found else None)

    def put(self, key: str, data: bytes, *, replace: bool = False) -> Future[bool]:
        """Keep an entry's bytes; see `Store.put`. With a shared cache it is offered there first, and what
        stands there then is kept here; it fails with `Away` when it could only be kept here."""
        if self.newest is None:
            raise CacheError(f"{self.path}: there is no folder to write to; an exported file is only read")
        if self.shared is None:
            return self.newest.put(key, data, replace=replace)
        newest = self.newest
        done: Future[bool] = Future()
        done.set_running_or_notify_cancel()

        def keep_here(offered: Future[bytes]) -> None:
            away = offered.exception()
            first = data if away else offered.result()
            kept = newest.put(key, first, replace=replace or first is not data)
            kept.add_done_callback(lambda kept: settle(away or kept.exception(), first is data))

        def settle(failure: BaseException | None, taken: bool) -> None:
            if failure is None:
                done.set_result(taken)
            else:
                done.set_exception(failure)

        self.shared.offer(key, data, replace=replace).add_done_callback(keep_here)
        return done

    def entries(self) -> Iterator[tuple[str, Entry | CacheError]]:
        """Every entry by its key, newest store first; in place of one that cannot be served, why."""
        seen: set[str] = set()
        for store in self.stores:
            for key in store:
                if key in seen:
                    continue
                if isinstance(key, Foreign):
                    yield key, DamagedEntry(f"{self.path}: a row that tot_lab did not write; it was not read")
                    continue
                seen.add(key)
                try:
                    data = store.get(key)
                    if data is not None:
                        yield key, unpacked(key, data)
                except CacheError as error:
                    yield key, error

    def nearest(self, request: Request) -> tuple[str, Entry] | None:
        """The entry that is most like `request`: the same prompt with the fewest other settings, or
        else the prompt that begins and ends like it the longest."""
        text = _prompt(request)
        best: tuple[tuple[float, int], str, Entry] | None = None
        for key, entry in self.entries():
            if isinstance(entry, CacheError):
                continue
            likeness = 1.0
            if entry.request.messages != request.messages:
                other = _prompt(entry.request)
                same = _same(text, other) + _same(text[::-1], other[::-1])
                likeness = 0.99 * min(1.0, same / max(len(text), len(other), 1))
            rank = (likeness, -len(differences(request, entry.request)))
            if best is None or rank > best[0]:
                best = (rank, key, entry)
        return None if best is None else best[1:]

    def __repr__(self) -> str:
        shared = "" if self.shared is None else f", shared at {self.shared.address}"
        return f"<Cache {self.path}: {sum(map(len, self.stores))} calls{shared}>"

    def close(self) -> None:
        """Write what waits and let go of the files."""
        if self.shared is not None:
            self.shared.close()
        for store in self.stores:
            if isinstance(store, Store):
                store.close()


def default_folder() -> Path:
    """Where answers are kept when nothing else is said: they are worth money, so not among the
    files that a machine may clear."""
    if named := os.environ.get("TOT_LAB_CACHE"):
        return Path(named)
    return data_folder() / "calls"


class Cached:
    """The layer of the stack that looks: what is known is not asked again.

    request: what a call is to the cache. mode: see `Mode`, `off` excepted.
    """

    def __init__(self, inner: Backend, cache: Cache, request: Callable[[Call], Request], mode: Mode) -> None:
        self.inner = inner
        self.cache = cache
        self.request = request
        self.mode = mode

    async def answer(self, calls: Sequence[Call], wire: CallObserver) -> Sequence[Reply]:
        """The reply to the one call of `calls`. Raises `CacheMiss` in `replay`, and `CacheError`
        when the cache cannot be read."""
        (call,) = calls
        request = self.request(call)
        key = key_of(request)
        try:
            known = await self.cache.find(key)
        except (DamagedEntry, Away) as error:
            if self.mode == "replay":
                raise
            wire.note(
                "call.damaged" if isinstance(error, DamagedEntry) else "call.unshared",
                entry=key,
                error=str(error),
            )
            warnings.warn(f"{error}; the model is asked again", RuntimeWarning, stacklevel=2)
            known = None
        if known is not None:
            wire.paid = 0.0
            wire.note("call.cached")
            return [known]
        if self.mode == "replay":
            raise CacheMiss(_missed(self.cache, call, request))
        return await self.inner.answer(calls, wire)


class Kept:
    """The layer of the stack that keeps: a reply is on the disk before anybody goes on with it.

    It stands right above the request and keeps what comes, also for those who do not wait any more:
    it was paid for. Where another was first, theirs is the answer.
    """

    def __init__(self, inner: Backend, cache: Cache, request: Callable[[Call], Request]) -> None:
        self.inner = inner
        self.cache = cache
        self.request = request

    async def answer(self, calls: Sequence[Call], wire: CallObserver) -> Sequence[Reply]:
        """The replies, as the cache holds them from now on."""
        began = time.perf_counter()
        replies = list(await self.inner.answer(calls, wire))
        if any(reply.error is None for reply in replies):
            wire.note("call.answered")
        seconds = time.perf_counter() - began
        waiting: list[tuple[int, str, bytes, asyncio.Future[bool]]] = []
        for place, (call, reply) in enumerate(zip(calls, replies, strict=True)):
            if reply.error is None:
                request = self.request(call)
                key = key_of(request)
                versions = _versions("litellm" in sys.modules)
                data = packed(Entry(SCHEMA, request, reply, seconds, _now(), versions))
                waiting.append((place, key, data, asyncio.wrap_future(self.cache.put(key, data))))
        for place, key, data, done in waiting:
            try:
                if not await done:
                    replies[place] = await self._first(key, data) or replies[place]
            except (OSError, CacheError) as error:
                wire.note("call.unshared" if isinstance(error, Away) else "call.unstored", error=str(error))
                where = "on this disk alone" if isinstance(error, Away) else "in the run alone"
                warnings.warn(
                    f"an answer could not be kept ({error}); the run goes on, and it is {where}",
                    RuntimeWarning,
                    stacklevel=2,
                )
        return replies

    async def _first(self, key: str, data: bytes) -> Reply | None:
        """The answer that was there already; None when it was damaged, and is now replaced."""
        try:
            return self.cache.reply(key)
        except DamagedEntry:
            await asyncio.wrap_future(self.cache.put(key, data, replace=True))
            return None


def _missed(cache: Cache, call: Call, request: Request) -> str:
    said = [
        f"replay: the {call.purpose} call of thought {call.node}, draw {call.sample_index}, "
        f"is not in {cache.path}."
    ]
    nearest = cache.nearest(request)
    if nearest is None:
        said.append("It holds no call at all.")
    else:
        key, entry = nearest
        said.append(f"Nearest is entry {key[:12]}…; it differs in:")
        said += [f"  {difference}" for difference in differences(request, entry.request)]
        if entry.request.messages != request.messages:
            said.append(f"  prompt: {_where(_prompt(request), _prompt(entry.request))}")
    how = "leave out cache= and mode=" if cache.path.is_file() else 'mode="auto"'
    said.append(
        f'To go on without the model: tl.Lab("sim/general"), a simulated one. To ask the model: {how}.'
    )
    return "\n".join(said)


def _numbered(file: Path) -> bool:
    return file.parent.name.isascii() and file.parent.name.isdigit()


def _same(one: str, other: str) -> int:
    """How many characters two texts begin with in common."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _prompt(request: Request) -> str:
    return "\n\n".join(message.content for message in request.messages)


def _where(here: str, there: str, most: int = 60) -> str:
    """Where two prompts part."""
    same = _same(here, there)
    start = max(0, same - 20)
    return f"from character {same}: {here[start : same + most]!r} here, {there[start : same + most]!r} there"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@lru_cache
def _versions(with_litellm: bool) -> dict[str, str]:
    versions = {"tot_lab": __version__, "python": platform.python_version()}
    return {**versions, "litellm": version("litellm")} if with_litellm else versions
