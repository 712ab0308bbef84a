"""Building many objects at once.

Rule: what is linear in nodes must also take linear time. Python's collector looks through all
objects again and again while many are made, which made 100,000 nodes cost up to twenty times
10,000. It is held off while a whole run is read or folded, and goes on after.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def in_bulk() -> Iterator[None]:
    """Hold the collector off; also a decorator."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
