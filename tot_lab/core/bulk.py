"""Garbage collection while many objects are created.

Python's cyclic collector repeatedly traverses all live objects while many are created. It took half
the time of a sweep, and because of it 100,000 nodes took up to twenty times as long as 10,000, not ten times.
So it is paused while a run is loaded or its tree is built, and runs rarely during a run or a sweep. Its
previous settings are restored afterwards.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the cyclic garbage collector. Usable as a decorator too."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


NEW_OBJECTS = 1_000_000
"""Allocations between two collections while runs are under way. Python's default is at most 2,000."""

_before: list[tuple[int, ...]] = []


@contextmanager
def seldom_collecting() -> Iterator[None]:
    """Let the collector run only after `NEW_OBJECTS` allocations. Objects outside cycles, such as finished
    runs, are still freed at once.
    """
    first, *others = gc.get_threshold()
    _before.append((first, *others))
    gc.set_threshold(max(first, NEW_OBJECTS), *others)
    try:
        yield
    finally:
        before = _before.pop()
        if not _before:  # only the last of several overlapping blocks restores the settings
            gc.set_threshold(*before)
