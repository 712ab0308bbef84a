"""Progress of a sweep: a bar in a terminal, the table so far in a notebook, and lines in a file or a pipe."""

from __future__ import annotations

import asyncio
import io
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tot_lab.core.calls import html_text
from tot_lab.lab.sweeps.sweep import Sweep
from tot_lab.record.run import money
from tot_lab.record.waiting import is_silenced, notebook_display

REFRESH = 1.0
"""Seconds between two updates in a notebook."""

SILENT = 30.0
"""Seconds after which a sweep that writes to a file or a pipe prints a line if it has printed none yet."""


@contextmanager
def progress(sweep: Sweep, runs: int) -> Iterator[Callable[[], None]]:
    """Show the progress of a sweep that has `runs` runs to make. Yields a function to call after each run.

    A running event loop is required.
    """
    if is_silenced():
        yield lambda: None
        return
    display = notebook_display()
    if display is None and not sys.stderr.isatty():
        lines = _Lines(sweep, runs)
        try:
            yield lines.update
        finally:
            lines.close()
        return
    from tqdm import tqdm  # noqa: PLC0415

    file = sys.stderr if display is None else io.StringIO()
    bar = tqdm(total=runs, desc=sweep.name, unit="run", file=file)
    handle = display and display(sweep, display_id=True)
    updated = time.monotonic()
    spend_limiter = sweep.runner.gateway.spend_limiter
    spent = spend_limiter.spent

    def show(text: str, html: str) -> None:
        handle.update({"text/plain": text, "text/html": html}, raw=True)

    def update() -> None:
        nonlocal updated
        bar.initial = sweep.found  # Runs that were finished before do not count for the speed.
        before = f", {sweep.found:,} runs from before" if sweep.found else ""
        bar.set_postfix_str(f"paid {money(spend_limiter.spent - spent)}{before}", refresh=False)
        bar.update()
        if handle and time.monotonic() - updated > REFRESH:
            updated = time.monotonic()
            show(str(bar), sweep._repr_html_(str(bar)))

    try:
        yield update
    finally:
        bar.close()
        if handle:
            show(sweep.headline(), f"<p>{html_text(sweep.headline())}</p>")
            _clear_if_result(sweep, lambda: show("", ""))


def _clear_if_result(sweep: Sweep, clear: Callable[[], None]) -> None:
    """Call `clear` at the end of the notebook cell if the result of the cell is the sweep, which then shows
    the same line.
    """
    from IPython import get_ipython  # noqa: PLC0415

    events: Any = get_ipython().events

    def after(cell: Any) -> None:
        events.unregister("post_run_cell", after)
        if cell.result is sweep:
            clear()

    events.register("post_run_cell", after)


class _Lines:
    """Progress lines on stderr: one for each tenth of the runs, and one more if the first tenth takes long.
    There are never more lines than runs.
    """

    def __init__(self, sweep: Sweep, runs: int) -> None:
        self.sweep = sweep
        self.runs = runs
        self.spent = sweep.runner.gateway.spend_limiter.spent
        self.began = time.monotonic()
        self.tenths = self.lines = 0
        self._timer = asyncio.get_running_loop().call_later(SILENT, self._write)

    def update(self) -> None:
        """Print a line if another tenth of the runs has finished."""
        tenths = 10 * len(self.sweep.rows) // self.runs
        if tenths > self.tenths:
            self.tenths = tenths
            self._timer.cancel()
            self._write()

    def close(self) -> None:
        self._timer.cancel()

    def _write(self) -> None:
        self.lines += 1
        if self.lines <= self.runs:
            with suppress(OSError, ValueError):  # the pipe was closed
                print(self._line(time.monotonic() - self.began), file=sys.stderr, flush=True)

    def _line(self, seconds: float) -> str:
        sweep = self.sweep
        done, cells = len(sweep.rows), self.runs
        made = done - sweep.found  # the others were finished before
        known = made or done == cells
        before = f", {sweep.found:,} of them from before" if sweep.found else ""
        left = _clock(seconds / max(made, 1) * (cells - done)) if known else "unknown"
        paid = money(sweep.runner.gateway.spend_limiter.spent - self.spent)
        return (
            f"{sweep.name}: {done:,} of {cells:,} runs ({done / max(cells, 1):.0%}){before} · "
            f"elapsed {_clock(seconds)} · left {left} · paid {paid}"
        )


def _clock(seconds: float) -> str:
    """Format a duration: `0:07`, `12:05`, `3:01:59`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
