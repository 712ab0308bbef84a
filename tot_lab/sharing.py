"""An experiment's calls as one file, and the care of a cache.

Rule: what is shared is exactly what given runs used, and what is taken in is checked first: a file
that is not what was written, or an entry whose key is not that of its request, changes nothing.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tot_lab.models.cache import Cache
from tot_lab.models.entries import Entry, export, packed
from tot_lab.models.keys import key_of
from tot_lab.models.store import CacheError, Store
from tot_lab.run import Run, replies_of, requests_of


class Held(NamedTuple):
    """What a cache holds. calls: by model. stores: how many. size: bytes on the disk. cost: USD that
    these calls cost, None when a price is not known."""

    calls: dict[str, int]
    stores: int
    size: int
    cost: float | None


def keys_used(runs: Iterable[Run]) -> set[str]:
    """The keys of all calls of `runs`."""
    return {key_of(request) for run in runs for _, request in requests_of(run)}


def held(cache: Cache) -> Held:
    """What `cache` holds."""
    calls: Counter[str] = Counter()
    costs: list[float | None] = []
    for _, entry in cache.entries():
        if isinstance(entry, Entry):
            calls[str(entry.request.model.get("model") or entry.request.model.get("kind"))] += 1
            costs.append(entry.reply.cost)
    known = [cost for cost in costs if cost is not None]
    size = sum(store.size for store in cache.stores if isinstance(store, Store))
    cost = sum(known) if len(known) == len(costs) else None
    return Held(dict(calls.most_common()), len(cache.stores), size or cache.path.stat().st_size, cost)


def export_calls(path: str | os.PathLike[str], runs: Sequence[Run], cache: Cache) -> int:
    """Write the calls of `runs` to one file; how many. Calls that failed are in the runs' journals
    alone. Raises `CacheError` when an answer that a run had is not in the cache."""
    entries: dict[str, Entry] = {}
    for run in runs:
        answered = {position for position, reply in replies_of(run.lines).items() if reply.error is None}
        for position, request in requests_of(run):
            key = key_of(request)
            if key in entries:
                continue
            entry = cache.entry(key)
            if entry is not None:
                entries[key] = entry
            elif position in answered:
                place = ".".join(map(str, position))
                raise CacheError(f"run {run.id}: the call at position {place} is not in {cache.path}")
    export(path, entries.items(), [run.id for run in runs])
    return len(entries)


def take_in(cache: Cache, other: Cache) -> tuple[int, int]:
    """Add the calls of `other`, all checked; (how many were new, how many there already). Every
    entry is looked at before the first is written."""
    found: list[tuple[str, Entry]] = []
    for key, entry in other.entries():
        if isinstance(entry, CacheError):
            raise entry
        found.append((key, entry))
    if cache.newest is None:
        raise CacheError(f"{cache.path} is an exported file, which is only read")
    waiting = [cache.newest.put(key, packed(entry)) for key, entry in found if cache.reply(key) is None]
    new = sum(done.result() for done in waiting)
    return new, len(found) - new


def verify(cache: Cache) -> list[str]:
    """What is wrong with `cache`: each entry that would not be served, and why. [] = all is well."""
    return [str(entry) for _, entry in cache.entries() if isinstance(entry, CacheError)]


def prune(cache: Cache, kept: set[str], *, really: bool) -> int:
    """Forget every call but those of the keys in `kept`, and the old answers to these that newer
    ones replaced; how many. Without `really` they are only counted. Runs keep their own replies."""
    gone = 0
    seen: set[str] = set()
    for store in cache.stores:
        if not isinstance(store, Store):
            raise CacheError(f"{cache.path} is an exported file, which is only read")
        here = list(store)
        lost = [key for key in here if key not in kept or key in seen]
        seen.update(here)
        if really:
            store.delete(lost)
        gone += len(lost)
    return gone
