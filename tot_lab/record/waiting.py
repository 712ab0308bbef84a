"""Progress of work that takes longer than two seconds: many runs, or one run that waits for a model.

Nothing is shown for two seconds. Then a terminal or notebook shows a bar, which disappears at the end, and a
file or pipe receives a few lines. The environment variable `TQDM_DISABLE=1` turns all progress off, as in
tqdm itself.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

QUIET = 2.0
"""Seconds before anything is shown."""

_EVERY = 10.0
"""Minimum seconds between two lines of `with_progress`, and the first pause of `show_calls`."""

_LATER = 1.5
"""Factor by which each pause between the lines of `show_calls` is longer than the previous one."""


def is_silenced() -> bool:
    """Whether no progress is shown."""
    return os.environ.get("TQDM_DISABLE", "0") not in ("", "0")


def with_progress(items: Iterable[T], what: str, total: int, unit: str = "run") -> Iterator[T]:
    """Yield `items`, of which there are `total`, and show on stderr how many are done. A file or pipe
    receives at most one line per tenth of the items.

    Args:
        items: The items.
        what: The work, such as `judge_evaluator`.
        total: The number of items.
        unit: The name of an item, such as `run`.
    """
    if is_silenced():
        yield from items
        return
    if _shows_bars():
        from tqdm import tqdm  # noqa: PLC0415

        yield from tqdm(items, desc=what, total=total, unit=unit, delay=QUIET, leave=False, file=sys.stderr)
        return
    due, tenths = time.monotonic() + QUIET, 0
    for number, item in enumerate(items):
        yield item
        if time.monotonic() >= due and 10 * (number + 1) // total > tenths:
            due, tenths = time.monotonic() + _EVERY, 10 * (number + 1) // total
            with suppress(OSError, ValueError):  # the pipe was closed
                print(f"{what}: {number + 1:,} of {total:,} {unit}s", file=sys.stderr, flush=True)


async def show_calls(what: str, total: int | None, count: Callable[[], tuple[int, str]]) -> None:
    """Show on stderr how many calls were made, until the asyncio task is cancelled.

    Args:
        what: The work, such as the name of a strategy.
        total: The maximum number of calls. `None` if it is not known.
        count: Returns the number of calls, and a text about what the work waits for, which may be empty.
    """
    if is_silenced():
        return
    if _shows_bars():
        from tqdm import tqdm  # noqa: PLC0415

        with tqdm(desc=what, total=total, unit="call", leave=False, file=sys.stderr) as bar:
            while True:
                bar.n, waits_for = count()
                bar.set_postfix_str(waits_for)  # this also draws the bar
                await asyncio.sleep(0.5)
    pause = _EVERY
    while True:
        calls, waits_for = count()
        with suppress(OSError, ValueError):  # the pipe was closed
            done = f"{calls:,} {'call' if calls == 1 else 'calls'}"
            print(f"{what}: {', '.join(filter(None, [waits_for, done]))}", file=sys.stderr, flush=True)
        await asyncio.sleep(pause)
        pause *= _LATER


def _shows_bars() -> bool:
    return sys.stderr.isatty() or notebook_display() is not None


def notebook_display() -> Any:
    """Return IPython's `display` in a notebook, `None` elsewhere."""
    if "ipykernel" not in sys.modules:
        return None
    from IPython import get_ipython  # noqa: PLC0415
    from IPython.display import display  # noqa: PLC0415

    return display if hasattr(get_ipython(), "kernel") else None
