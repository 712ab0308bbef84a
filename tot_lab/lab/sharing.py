"""Export, import and maintenance of cached calls.

An exported file holds exactly the calls of the given runs. An import checks every entry first: a damaged
file, or an entry whose key does not match its request, changes nothing.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tot_lab.core.calls import Reply, is_same_reply
from tot_lab.models.cache import Cache
from tot_lab.models.entries import DamagedEntry, Entry, export, packed, stored_in
from tot_lab.models.keys import shortened
from tot_lab.models.store import CacheError, Store, UnrecognizedKey
from tot_lab.record.run import Run, replies_of
from tot_lab.runtime.replay import requests_of


class CacheContents(NamedTuple):
    """The contents of a cache.

    Attributes:
        calls: Number of calls by model.
        stores: Number of `Store` folders. The mode `refresh` adds one.
        size: Bytes on disk.
        cost: USD that the calls cost, or `None` if a price is unknown.
    """

    calls: dict[str, int]
    stores: int
    size: int
    cost: float | None


class ExportedCalls(NamedTuple):
    """The result of `export_calls`.

    Attributes:
        calls: Number of calls in the file.
        runs: Number of runs.
        lost: Number of calls of real models that are not in the cache, by id of their run.
        failed: Number of calls that failed or were refused. They are only in the journals.
        uncached: Number of calls that are never cached, such as those of simulated models in a lab without a
            cache and of tools with effects.
    """

    calls: int
    runs: int
    lost: dict[str, int]
    failed: int
    uncached: int


def replies_by_key(runs: Iterable[Run]) -> dict[str, list[Reply]]:
    """Return the distinct replies to the calls of `runs` by cache key."""
    by_key: dict[str, list[Reply]] = {}
    for run in runs:
        replies = replies_of(run.lines)
        for position, request, _ in requests_of(run):
            known = by_key.setdefault(request.key, [])
            if replies[position] not in known:
                known.append(replies[position])
    return by_key


def contents_of(cache: Cache) -> CacheContents:
    """Return the numbers of calls and stores of `cache`, its size, and the cost of its calls."""
    calls: Counter[str] = Counter()
    costs: list[float | None] = []
    for _, entry in cache.entries():
        if isinstance(entry, Entry):
            calls[str(entry.request.model.get("model") or entry.request.model.get("kind"))] += 1
            costs.append(entry.reply.cost)
    known = [cost for cost in costs if cost is not None]
    size = sum(store.size for store in cache.stores if isinstance(store, Store))
    cost = sum(known) if len(known) == len(costs) else None
    return CacheContents(
        dict(calls.most_common()), len(cache.stores), size or cache.path.stat().st_size, cost
    )


def export_calls(path: str | os.PathLike[str], runs: Sequence[Run], cache: Cache) -> ExportedCalls:
    """Write the calls of `runs` and the replies that they received to one file.

    Returns:
        Numbers of the calls in the file, and of missing calls.

    Raises:
        CacheError: If a call had different replies in two runs.
        ValueError: If no call of `runs` is in the cache. No file is written.
    """
    entries: dict[str, Entry | None] = {}
    first: dict[str, tuple[Reply, Run]] = {}
    lost: Counter[str] = Counter()
    failed = uncached = 0
    for run in runs:
        replies = replies_of(run.lines)
        failed += sum(reply.error is not None for reply in replies.values())
        for position, request, is_real in requests_of(run):
            key, reply = request.key, replies[position]
            known, other = first.setdefault(key, (reply, run))
            if key not in entries:
                entries[key] = cache.entry(key, [reply])
            if entries[key] is None:
                lost[run.id] += is_real
                uncached += not is_real
            elif not is_same_reply(known, reply):
                raise CacheError(
                    f"Call {shortened(key)} had different replies in the runs {other.id} and {run.id}. "
                    f"Export them to two files."
                )
    held = {key: entry for key, entry in entries.items() if entry is not None}
    if not held:
        raise ValueError(
            f"Nothing to export: no call of these runs is in the cache {cache.path}. Calls of simulated "
            f"models never are, unless the lab was given a cache."
        )
    export(path, held.items(), [run.id for run in runs])
    return ExportedCalls(len(held), len(runs), dict(+lost), failed, uncached)


def import_calls(cache: Cache, other: Cache) -> tuple[int, int]:
    """Add the calls of `other` to `cache`. A damaged entry of `cache` is replaced.

    Returns:
        The number of added calls, and the number of calls that `cache` already had.

    Raises:
        CacheError: If an entry of `other` is not valid. Then nothing is written.
    """
    new: list[tuple[str, Entry]] = []
    known = 0
    for key, entry in other.entries():
        if isinstance(entry, CacheError):
            raise entry
        try:
            there = cache.reply(key) is not None
        except DamagedEntry:
            there = False
        known += there
        if not there:
            new.append((key, entry))
    for done in [cache.put(key, packed(entry), replace=True) for key, entry in new]:
        done.result()
    return len(new), known


def verify(cache: Cache) -> list[str]:
    """Return a message for each damaged entry of `cache`, which names the entry and the reason."""
    return [str(entry) for _, entry in cache.entries() if isinstance(entry, CacheError)]


def prune(cache: Cache, kept: dict[str, list[Reply]], *, really: bool) -> int:
    """Remove from the cache every reply that is not in `kept`. Journals are not changed.

    Args:
        cache: The cache.
        kept: Replies by key, as `replies_by_key` returns them.
        really: `False` only counts the replies.

    Returns:
        The number of replies that were removed, or would be.

    Raises:
        CacheError: If `cache` is an exported file.
    """
    gone = 0
    for store in cache.stores:
        if not isinstance(store, Store):
            raise CacheError(f"{cache.path} is an exported file, which cannot be changed.")
        lost = [key for key in store if not _is_kept(store, key, kept)]
        if really:
            store.delete(lost)
        gone += len(lost)
    return gone


def _is_kept(store: Store, key: str, kept: dict[str, list[Reply]]) -> bool:
    if isinstance(key, UnrecognizedKey):
        return True  # written by another program
    data = store.get(key) if key in kept else None
    try:
        if data is None:
            return False
        stored = stored_in(key, data).reply
        return any(is_same_reply(stored, reply) for reply in kept[key])
    except DamagedEntry:
        return False
