"""Colours of verdicts: green is right, red is wrong, yellow is failed. Only a terminal shows them."""

from __future__ import annotations

import os
import sys

from tot_lab.record.run import Run
from tot_lab.views.figures.verdict import correctness, format_grade

_COLOURS = {True: 32, False: 31, None: None}


def in_colour(words: str, run: Run) -> str:
    """Return `words`, the verdict on `run`, in its colour.

    Without a terminal, with `NO_COLOR` in the environment, or for an ungraded run, they have no colour.
    """
    colour = 33 if run.failure else _COLOURS[correctness(run)]
    if colour is None or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return words
    return f"\x1b[{colour}m{words}\x1b[0m" if sys.stdout.isatty() else words


def run_in_colour(run: Run) -> str:
    """Return the text of `run` with its verdict in colour."""
    verdict = format_grade(run)
    return str(run).replace(f"  {verdict}", f"  {in_colour(verdict, run)}", 1) if verdict else str(run)
