"""An experiment's calls as one file, and the care of a cache.

Rule: what is shared is exactly what given runs used, and what is taken in is checked first: a file
that is not what was written, or an entry whose key is not that of its request, changes nothing.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tot_lab.core.calls import Reply
from tot_lab.models.cache import Cache
from tot_lab.models.entries import DamagedEntry, Entry, export, packed, reply_in
from tot_lab.models.keys import key_of
from tot_lab.models.store import CacheError, Foreign, Store
from tot_lab.record.run import Run, replies_of
from tot_lab.runtime.replay import requests_of


class Held(NamedTuple):
    """What a cache holds. calls: by model. stores: how many. size: bytes on the disk. cost: USD that
    these calls cost, None when a price is not known."""

    calls: dict[str, int]
    stores: int
    size: int
    cost: float | None


def used(runs: Iterable[Run]) -> dict[str, list[Reply]]:
    """The calls of `runs`: by their keys, the answers that they had."""
    found: dict[str, list[Reply]] = {}
    for run in runs:
        replies = replies_of(run.lines)
        for position, request, _ in requests_of(run):
            answers = found.setdefault(key_of(request), [])
            if replies[position] not in answers:
                answers.append(replies[position])
    return found


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
    """Write the calls of `runs` to one file, with the answers that these runs had; how many. Calls
    that failed are in the runs' journals alone. Raises `CacheError` when an answer of a real model is
    not in the cache, or two runs had two answers to one call."""
    real = {key_of(request) for run in runs for _, request, is_real in requests_of(run) if is_real}
    entries: dict[str, Entry] = {}
    for key, replies in used(runs).items():
        entry = cache.entry(key, replies)
        if entry is None and key not in real:
            continue  # of what no cache keeps, such as a tool with effects
        if len(replies) > 1:
            raise CacheError(f"these runs had two answers to call {key[:12]}…: export them to two files")
        if entry is None:
            raise CacheError(f"the call {key[:12]}… of these runs is not in {cache.path}")
        entries[key] = entry
    export(path, entries.items(), [run.id for run in runs])
    return len(entries)


def take_in(cache: Cache, other: Cache) -> tuple[int, int]:
    """Add the calls of `other`, all checked; (how many were new, how many there already). Nothing is
    written when one of them would not be served. A damaged one here is replaced."""
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
    """What is wrong with `cache`: each entry that would not be served, and why. [] = all is well."""
    return [str(entry) for _, entry in cache.entries() if isinstance(entry, CacheError)]


def prune(cache: Cache, kept: dict[str, list[Reply]], *, really: bool) -> int:
    """Forget every answer but those in `kept`, as `used` gives them; how many. Without `really` they
    are only counted. Runs keep their own replies."""
    gone = 0
    for store in cache.stores:
        if not isinstance(store, Store):
            raise CacheError(f"{cache.path} is an exported file, which is only read")
        lost = [key for key in store if not _is_kept(store, key, kept)]
        if really:
            store.delete(lost)
        gone += len(lost)
    return gone


def _is_kept(store: Store, key: str, kept: dict[str, list[Reply]]) -> bool:
    if isinstance(key, Foreign):
        return True  # not ours
    data = store.get(key) if key in kept else None
    try:
        return data is not None and reply_in(key, data) in kept[key]
    except DamagedEntry:
        return False
