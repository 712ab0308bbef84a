"""Progress of work that goes through many runs.

Nothing is shown for two seconds. Then a terminal or notebook shows a bar, which disappears at the end, and a
file or pipe receives a line every ten seconds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

QUIET = 2.0
"""Seconds before anything is shown."""

_EVERY = 10.0
"""Seconds between two lines."""


def with_progress(items: Iterable[T], what: str, total: int) -> Iterator[T]:
    """Yield `items`, of which there are `total`, and show on stderr how far the caller is.

    Args:
        items: What the caller goes through.
        what: The work, such as `judge_evaluator`.
        total: The number of items.
    """
    if sys.stderr.isatty() or notebook_display() is not None:
        from tqdm import tqdm  # noqa: PLC0415

        yield from tqdm(items, desc=what, total=total, unit="run", delay=QUIET, leave=False, file=sys.stderr)
        return
    due = time.monotonic() + QUIET
    for number, item in enumerate(items):
        yield item
        if time.monotonic() >= due:
            due = time.monotonic() + _EVERY
            with suppress(OSError, ValueError):  # the pipe was closed
                print(f"{what}: {number + 1:,} of {total:,} runs", file=sys.stderr, flush=True)


def notebook_display() -> Any:
    """Return IPython's `display` in a notebook, `None` elsewhere."""
    if "ipykernel" not in sys.modules:
        return None
    from IPython import get_ipython  # noqa: PLC0415
    from IPython.display import display  # noqa: PLC0415

    return display if hasattr(get_ipython(), "kernel") else None
