"""Parts that installed packages bring: found by name, and imported only when that name is asked for.

Rule: nothing of another package is imported because it is there. A package names each of its parts in
its metadata, as an entry point of the group `tot_lab` whose name is the part's kind:

    [project.entry-points.tot_lab]
    countdown_search = "countdown_lab:CountdownSearch"

A kind that tot_lab does not know is looked up there. So a package that is broken harms nobody who does not
ask for its parts, and who does is told which package it is. A file that names a kind can have it imported;
it can bring no code of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any, NamedTuple

GROUP = "tot_lab"
"""The group of entry points that tot_lab reads."""


def offered() -> Mapping[str, tuple[EntryPoint, ...]]:
    """What the installed packages offer, by kind; nothing is imported. One that is installed while this
    process runs is seen in the next."""
    return _offered(tuple(sys.path))


@lru_cache(maxsize=4)
def _offered(path: tuple[str, ...]) -> Mapping[str, tuple[EntryPoint, ...]]:
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for entry in entry_points(group=GROUP):
        if entry not in (others := found.get(entry.name, ())):
            found[entry.name] = (*others, entry)
    return MappingProxyType(found)


class Brought(NamedTuple):
    """What a package offers. told: which package it is, and where in it that is, as an error names them."""

    value: Any
    told: str


def bring(kind: str) -> Brought | None:
    """Import what a package offers by that name; None when none does. Raises ValueError for a package that
    cannot be used."""
    entries = offered().get(kind, ())
    if not entries:
        return None
    told = " and ".join(f"{_package(entry)} ({entry.value})" for entry in entries)
    if len(entries) > 1:
        raise ValueError(f"the kind {kind!r} is offered by {told}; uninstall one")
    try:
        return Brought(entries[0].load(), told)
    except Exception as error:
        raise ValueError(
            f"the kind {kind!r} comes from {told}, which cannot be imported: {type(error).__name__}: {error}"
        ) from error


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "a package without a name"
