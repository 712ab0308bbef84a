"""Python's collector, where many objects are made.

Rule: what is linear in nodes must also take linear time. Python's collector looks through all
objects again and again while many are made, which made 100,000 nodes cost up to twenty times
10,000, and was half of a sweep's time. It is held off while a whole run is read or folded, comes
seldom while many runs are under way, and goes on as before after.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """Hold the collector off; also a decorator."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


NEW_OBJECTS = 1_000_000
"""After which the collector comes while many runs are under way, instead of after 700."""

_before: list[tuple[int, ...]] = []


@contextmanager
def seldom_collecting() -> Iterator[None]:
    """Let the collector come when much is new: each time it looks through all that is under way. What
    is freed without it, finished runs among it, goes at once."""
    first, *others = gc.get_threshold()
    _before.append((first, *others))
    gc.set_threshold(max(first, NEW_OBJECTS), *others)
    try:
        yield
    finally:
        before = _before.pop()
        if not _before:  # the last of those that went on at the same time
            gc.set_threshold(*before)
