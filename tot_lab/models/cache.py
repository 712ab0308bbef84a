"""The disk cache: each distinct call is paid for once, and an experiment can be repeated offline.

An entry holds the whole request and the whole reply. It is served only if its checksum and its schema are
valid. Errors are never stored. A store keeps the first reply to a call; a later one does not replace it, and
`refresh` writes new replies to a new store.

    folder/1, folder/2, …    the stores, each a `Store`; the one with the highest number is read first
"""

from __future__ import annotations

import asyncio
import os
import platform
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import version
from itertools import chain, groupby
from pathlib import Path
from typing import Literal, Protocol, cast, get_args

from tot_lab._version import __version__
from tot_lab.core.calls import Call, CallObserver, Reply, is_same_reply
from tot_lab.core.files import data_folder
from tot_lab.core.reading.values import common_length
from tot_lab.models.entries import DamagedEntry, Entry, Exported, Stored, packed, stored_in, unpacked
from tot_lab.models.keys import SCHEMA, Request, differences, shortened
from tot_lab.models.served_weights import UNASKED, ServedWeights, Weights, disagreements
from tot_lab.models.stack import Backend, Give, Grouping, SampleCalls
from tot_lab.models.store import CacheError, Store, UnrecognizedKey

Mode = Literal["auto", "off", "refresh", "replay"]
"""How the cache is used.

`auto` calls the model only for calls that are not cached. `off` calls the model for every call and caches
nothing. `refresh` calls the model once for every call, and stores the replies beside the old ones. `replay`
never calls the model, and a call that is not cached is an error; only a simulated model without a cache
computes its replies again.
"""

MODES: tuple[Mode, ...] = get_args(Mode)
_UNKNOWN: Weights = {}
_DIFFERENCES = 3  # the most differences that `CacheMiss` names


class CacheMiss(CacheError):
    """Raised in `replay` for a call that is not cached. The message describes the most similar entry."""


class Readable(Protocol):
    """A source of entries: the bytes of each, by key."""

    def get(self, key: str) -> bytes | None: ...
    def __iter__(self) -> Iterator[str]: ...
    def __len__(self) -> int: ...


class Cache:
    """Cached replies: a folder, to which replies are added, or an exported file, which is read-only.

    Args:
        path: A folder, or a `.jsonl.gz` file that `tot-lab cache export` wrote. `None` means
            `$TOT_LAB_CACHE`, or `tot_lab/calls` in the user's data folder.
        create: Whether to create a missing folder.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, create: bool = True) -> None:
        self.path = default_folder() if path is None else Path(path)
        self.stores: list[Readable] = []
        """The stores, newest first, in the order in which a reply is looked up."""
        self.newest: Store | None = None
        if self.path.is_file() or self.path.suffix == ".gz":
            self.stores = [Exported(self.path)]
            return
        numbers = sorted(int(file.parent.name) for file in self.path.glob("*/cache.db") if _numbered(file))
        stores = [Store(self.path / str(number)) for number in reversed(numbers)]
        if not stores and create:
            stores = [Store(self.path / "1")]
        self.newest = stores[0] if stores else None
        self.stores = list(stores)

    def renewed(self) -> Cache:
        """Return a cache that reads and writes only a new store of the same folder, for `refresh`. From now
        on, this cache reads and writes that store first.
        """
        if self.newest is None:
            raise CacheError(f"{self.path}: an exported file is read-only. Import it into a folder first.")
        number = int(self.newest.folder.name)
        made = False
        while not made:
            number += 1
            try:
                (self.path / str(number)).mkdir(mode=0o700)
                made = True
            except FileExistsError:  # another process refreshes too
                pass
            except OSError as error:
                raise CacheError(f"{self.path}: the cache cannot be written: {error.strerror}") from error
        fresh = object.__new__(Cache)
        fresh.path = self.path
        fresh.newest = self.newest = Store(self.path / str(number))
        fresh.stores = [fresh.newest]
        self.stores.insert(0, fresh.newest)
        return fresh

    def _entries_under(self, key: str) -> Iterator[bytes]:
        """Yield the bytes of each entry under `key`, newest first."""
        for store in self.stores:
            if (data := store.get(key)) is not None:
                yield data

    def stored(self, key: str, weights: Weights = _UNKNOWN) -> tuple[bytes, Stored] | None:
        """Return the newest entry under `key` whose weights agree with `weights`, as bytes and decoded, or
        `None`.
        """
        for data in self._entries_under(key):
            stored = stored_in(key, data)
            if not disagreements(weights, stored.weights):
                return data, stored
        return None

    def reply(self, key: str) -> Reply | None:
        """Return the newest cached reply under `key`, or `None`. Raises `CacheError` if its entry is not
        valid.
        """
        return next(self.replies(key), None)

    def replies(self, key: str) -> Iterator[Reply]:
        """Yield all cached replies under `key`, newest first."""
        for data in self._entries_under(key):
            yield stored_in(key, data).reply

    def held(self, keys: Collection[str]) -> Collection[str]:
        """Return those of `keys` that may have an entry. Only a folder with a single store is searched; for
        any other cache, all of `keys` are returned.
        """
        return keys if self.newest is None or len(self.stores) > 1 else self.newest.held(keys)

    async def find(self, key: str, weights: Weights = _UNKNOWN) -> Stored | None:
        """Return the entry that `stored` finds, decoded, or `None`. Async, since in distributed sweeps
        another process looks it up.
        """
        found = self.stored(key, weights)
        return found and found[1]

    def other_weights(self, key: str, weights: Weights) -> list[str]:
        """Describe how the weights of some entry under `key` differ from `weights`; [] if all agree."""
        for store in self.stores:
            if found := _other_weights_in(store, key, weights):
                return found
        return []

    def entry(self, key: str, replies: Sequence[Reply] = ()) -> Entry | None:
        """Return the newest entry under `key` whose reply is in `replies`, else the newest, or `None`."""
        found = [unpacked(key, data) for data in self._entries_under(key)]
        same = (entry for entry in found if any(is_same_reply(entry.reply, reply) for reply in replies))
        return next(same, found[0] if found else None)

    def put(self, key: str, data: bytes, *, replace: bool = False) -> Future[bool]:
        """Store the bytes of an entry in the newest store; see `Store.put`."""
        if self.newest is None:
            raise CacheError(f"{self.path}: this cache is read-only. Pass a folder that can be written.")
        return self.newest.put(key, data, replace=replace)

    async def keep(
        self, entries: Sequence[tuple[str, bytes]], weights: Weights = _UNKNOWN, *, replace: bool = False
    ) -> list[bool]:
        """Store the bytes of entries as `put` does, and return for each whether it was stored. If a store
        has a reply of other `weights` under a key, the entry is written to another store. The entries of one
        store are written in one commit.
        """
        if self.newest is None:
            raise CacheError(f"{self.path}: this cache is read-only. Pass a folder that can be written.")
        stores = [self._store_for(key, weights) if weights else self.newest for key, _ in entries]
        groups = [
            (store, [entry for _, entry in group])
            for store, group in groupby(zip(stores, entries, strict=True), lambda pair: pair[0])
        ]
        outcomes = await asyncio.gather(*(store.keep(group, replace=replace) for store, group in groups))
        return [*chain.from_iterable(outcomes)]

    def _store_for(self, key: str, weights: Weights) -> Store:
        """Return the newest store that holds no reply of other weights under `key`, or a new one."""
        assert self.newest is not None
        for store in self.stores:
            if isinstance(store, Store) and not (weights and _other_weights_in(store, key, weights)):
                return store
        self.renewed()
        return self.newest

    def entries(self) -> Iterator[tuple[str, Entry | CacheError]]:
        """Yield each key with its newest entry, or with the error if that entry is not valid, newest store
        first.
        """
        seen: set[str] = set()
        for store in self.stores:
            for key in store:
                if key in seen:
                    continue
                if isinstance(key, UnrecognizedKey):
                    yield key, DamagedEntry(f"{self.path}: ignored a row that tot_lab did not write.")
                    continue
                seen.add(key)
                try:
                    data = store.get(key)
                    if data is not None:
                        yield key, unpacked(key, data)
                except CacheError as error:
                    yield key, error

    def nearest(self, request: Request) -> tuple[str, Entry] | None:
        """Return the entry that is most similar to `request`.

        This is the one with the same prompt and the fewest different settings or, if no prompt is the same,
        with the longest common prefix and suffix of the prompts. `None` if the cache has no valid entry.
        """
        text = _prompt(request)
        best: tuple[tuple[float, int], str, Entry] | None = None
        for key, entry in self.entries():
            if isinstance(entry, CacheError):
                continue
            likeness = 1.0
            if entry.request.messages != request.messages:
                other = _prompt(entry.request)
                same = common_length(text, other) + common_length(text[::-1], other[::-1])
                likeness = 0.99 * min(1.0, same / max(len(text), len(other), 1))
            rank = (likeness, -len(differences(request, entry.request)))
            if best is None or rank > best[0]:
                best = (rank, key, entry)
        return None if best is None else best[1:]

    async def explain_miss(self, call: Call, request: Request) -> str:
        """Return the message of `CacheMiss`: how the most similar entry differs, and what to do."""
        missing = f"the {call.purpose} call at node {call.node}, sample {call.sample_index}"
        why = "The cache is empty."
        if (nearest := self.nearest(request)) is not None:
            key, entry = nearest
            found = differences(request, entry.request)
            if entry.request.messages != request.messages:
                found.insert(0, f"prompt: {_where(_prompt(request), _prompt(entry.request))}")
            more = f"; and {len(found) - _DIFFERENCES:,} more" if len(found) > _DIFFERENCES else ""
            shown = "; ".join(found[:_DIFFERENCES])
            why = f"The most similar entry, {shortened(key)}, differs in {shown}{more}."
        how = "omit cache= and mode=" if self.path.is_file() else 'pass mode="auto"'
        return f"replay: {missing}, is not in {self.path}.\n{why}\nTo call the model: {how}."

    def __repr__(self) -> str:
        return f"<Cache {self.path}: {sum(map(len, self.stores))} calls>"

    def close(self) -> None:
        """Write pending entries and close the files."""
        for store in self.stores:
            if isinstance(store, Store):
                store.close()


def _other_weights_in(store: Readable, key: str, weights: Weights) -> list[str]:
    """Describe how the weights of the entry under `key` differ from `weights`; [] without a valid entry."""
    with suppress(CacheError):
        if (data := store.get(key)) is not None:
            return disagreements(weights, stored_in(key, data).weights)
    return []


def default_folder() -> Path:
    """Return the default folder: `$TOT_LAB_CACHE`, or `calls` in the user's data folder. It is not in a
    system cache folder, which may be cleared, because replies cost money.
    """
    if named := os.environ.get("TOT_LAB_CACHE"):
        return Path(named)
    return data_folder() / "calls"


class Cached:
    """The layer that answers calls from the cache.

    Args:
        inner: The next layer. `answer_each` needs a `Grouping`.
        cache: The cache.
        request: Returns the cache request of a call.
        mode: See `Mode`. `off` does without this layer.
        weights: Requests the weights that the server reports.
        priced: Adds the cost to a reply that was stored before the price was known.
    """

    def __init__(
        self,
        inner: Backend,
        cache: Cache,
        request: Callable[[Call], Request],
        mode: Mode,
        weights: ServedWeights = UNASKED,
        priced: Callable[[Reply], Reply] | None = None,
    ) -> None:
        self.inner = inner
        self.cache = cache
        self.request = request
        self.mode = mode
        self.weights = weights
        self.priced = priced
        self._assumed: Weights = {}
        """If the server reports no weights: those of the first cached reply, so that others are not mixed in.
        """
        self._has_warned = False

    async def answer(self, calls: Sequence[Call], observer: CallObserver) -> Sequence[Reply]:
        """Return the reply to the only call in `calls`.

        Raises:
            CacheMiss: In `replay`, if the call is not cached.
            CacheError: If the cache cannot be read.
        """
        (call,) = calls
        request = self.request(call)
        key = request.key
        try:
            known = await self._known(key)
        except DamagedEntry as error:
            if self.mode == "replay":
                raise
            observer.note("call.damaged", entry=key, error=str(error))
            warnings.warn(f"{error}. The model is called again.", RuntimeWarning, stacklevel=2)
            known = None
        if known is not None:
            observer.paid = 0.0
            observer.note("call.cached")
            reply = known.reply
            return [self.priced(reply) if self.priced is not None and reply.cost is None else reply]
        if self.mode == "replay":
            raise CacheMiss(await self.cache.explain_miss(call, request))
        return await self.inner.answer(calls, observer)

    async def answer_each(self, asked: SampleCalls, give: Give) -> None:
        """Give each observer its reply, or `None` if its call may be cached and must go through `answer`.

        Raises:
            CacheError: If the cache cannot be read.
        """
        keys = {observer: self.request(call).key for observer, call in asked.items()}
        wanted = {*keys.values()}
        held = wanted if self.mode == "replay" else self.cache.held(wanted)
        for observer, key in keys.items():
            if key in held:
                give(observer, None)
        await cast(Grouping, self.inner).answer_each(asked, give)

    async def _known(self, key: str) -> Stored | None:
        """Return the entry under `key` of the weights that the server reports. Without a report, prefer the
        weights of the first cached reply. Warns once if there are entries of other weights.
        """
        reported = await self.weights.now()
        meant = reported or self._assumed
        found = await self.cache.find(key, meant)
        several = found is None or len(self.cache.stores) > 1
        if found is None and meant and not reported:
            found = await self.cache.find(key)
        if not reported and found is not None:
            self._assumed = meant = meant or found.weights
        if self._has_warned or not (meant and several):
            return found
        if differences := self.cache.other_weights(key, meant):
            self._has_warned = True
            which = "The server's are" if reported else "Those of the newest reply are"
            warnings.warn(
                f"{self.cache.path}: the cache has replies of other weights under the same name: got "
                f"{', '.join(differences)}. {which} used. Set `revision` of the model to keep them apart.",
                RuntimeWarning,
                stacklevel=2,
            )
        return found


class StoreReplies:
    """The layer that stores replies: a reply is on disk before it is used.

    It is below the layers that merge calls, so it stores all replies of a request, even those to calls that
    were cancelled meanwhile. If another process has stored a reply to the same call first, that reply is
    returned.
    """

    def __init__(
        self,
        inner: Backend,
        cache: Cache,
        request: Callable[[Call], Request],
        weights: ServedWeights = UNASKED,
    ) -> None:
        self.inner = inner
        self.cache = cache
        self.request = request
        self.weights = weights

    async def answer(self, calls: Sequence[Call], observer: CallObserver) -> Sequence[Reply]:
        """Return the replies that are in the cache from now on, and failed replies as they are. If the cache
        cannot be written, the replies of the model are returned with a warning.
        """
        began = time.perf_counter()
        replies = list(await self.inner.answer(calls, observer))
        if any(reply.error is None for reply in replies):
            observer.note("call.answered")
        seconds = round(time.perf_counter() - began, 6)
        weights = await self.weights.now()
        places = [place for place, reply in enumerate(replies) if reply.error is None]
        if not places:
            return replies
        stored = _in_iso_format(int(time.time()))
        entries = list[tuple[str, bytes]]()
        for place in places:
            request = self.request(calls[place])
            versions = _versions(request.model.get("kind") == "litellm")
            entry = Entry(SCHEMA, request, replies[place], seconds, stored, versions, weights)
            entries.append((request.key, packed(entry)))
        try:
            taken = await self.cache.keep(entries, weights)
            for place, (key, data), is_first in zip(places, entries, taken, strict=True):
                if not is_first:
                    replies[place] = await self._first(key, data, weights) or replies[place]
        except (OSError, CacheError) as error:
            observer.note("call.unstored", error=str(error))
            warnings.warn(
                f"A reply could not be cached ({error}). The run continues with it, but another run will "
                "call the model again.",
                RuntimeWarning,
                stacklevel=2,
            )
        return replies

    async def _first(self, key: str, data: bytes, weights: Weights) -> Reply | None:
        """Return the reply under `key` that another call stored first, from a model with `weights`. `None` if
        no call did, or if its entry is damaged; `data` replaces a damaged entry.
        """
        try:
            first = await self.cache.find(key, weights)
            return None if first is None else first.reply
        except DamagedEntry:
            await self.cache.keep([(key, data)], replace=True)
            return None


def _numbered(file: Path) -> bool:
    return file.parent.name.isascii() and file.parent.name.isdigit()


def _prompt(request: Request) -> str:
    return "\n\n".join(message.content for message in request.messages)


def _where(here: str, there: str, most: int = 60) -> str:
    """Describe where two prompts begin to differ, with up to `most` characters of each."""
    same = common_length(here, there)
    start = max(0, same - 20)
    return f"from character {same}: {here[start : same + most]!r} here, {there[start : same + most]!r} there"


@lru_cache(1)
def _in_iso_format(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat()


@lru_cache
def _versions(with_litellm: bool) -> dict[str, str]:
    versions = {"tot_lab": __version__, "python": platform.python_version()}
    return {**versions, "litellm": version("litellm")} if with_litellm else versions
