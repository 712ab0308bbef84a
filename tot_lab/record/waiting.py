"""Progress of work that takes longer than two seconds: many runs, or one run that waits for a model.

Nothing is shown for two seconds. Then a terminal or notebook shows a bar, which disappears at the end, and a
file or pipe receives a line every ten seconds.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

QUIET = 2.0
"""Seconds before anything is shown."""

_EVERY = 10.0
"""Seconds between two lines."""


def with_progress(items: Iterable[T], what: str, total: int, unit: str = "run") -> Iterator[T]:
    """Yield `items`, of which there are `total`, and show on stderr how far the caller is.

    Args:
        items: What the caller goes through.
        what: The work, such as `judge_evaluator`.
        total: The number of items.
        unit: What an item is.
    """
    if _shows_bars():
        from tqdm import tqdm  # noqa: PLC0415

        yield from tqdm(items, desc=what, total=total, unit=unit, delay=QUIET, leave=False, file=sys.stderr)
        return
    due = time.monotonic() + QUIET
    for number, item in enumerate(items):
        yield item
        if time.monotonic() >= due:
            due = time.monotonic() + _EVERY
            with suppress(OSError, ValueError):  # the pipe was closed
                print(f"{what}: {number + 1:,} of {total:,} {unit}s", file=sys.stderr, flush=True)


async def show_calls(what: str, total: int | None, count: Callable[[], tuple[int, str]]) -> None:
    """Show on stderr how many calls were made, until it is cancelled.

    Args:
        what: The work, such as the name of a strategy.
        total: The maximum number of calls, if it is known.
        count: Returns the number of calls, and what the work waits for, or "".
    """
    if _shows_bars():
        from tqdm import tqdm  # noqa: PLC0415

        with tqdm(desc=what, total=total, unit="call", leave=False, file=sys.stderr) as bar:
            while True:
                bar.n, waits_for = count()
                bar.set_postfix_str(waits_for)  # this also draws the bar
                await asyncio.sleep(0.5)
    while True:
        calls, waits_for = count()
        with suppress(OSError, ValueError):  # the pipe was closed
            done = f"{calls:,} {'call' if calls == 1 else 'calls'}"
            print(f"{what}: {', '.join(filter(None, [waits_for, done]))}", file=sys.stderr, flush=True)
        await asyncio.sleep(_EVERY)


def _shows_bars() -> bool:
    return sys.stderr.isatty() or notebook_display() is not None


def notebook_display() -> Any:
    """Return IPython's `display` in a notebook, `None` elsewhere."""
    if "ipykernel" not in sys.modules:
        return None
    from IPython import get_ipython  # noqa: PLC0415
    from IPython.display import display  # noqa: PLC0415

    return display if hasattr(get_ipython(), "kernel") else None
