"""Colours of verdicts: green is right, red is wrong, yellow is failed. Only a terminal shows them."""

from __future__ import annotations

import os
import sys

from tot_lab.apps.cli.terminal import Coloured, escaped
from tot_lab.record.run import Run
from tot_lab.views.figures.verdict import correctness, format_grade

_COLOURS = {True: 32, False: 31, None: None}


def in_colour(words: str, run: Run) -> Coloured:
    """Return `words`, the verdict on `run`, escaped and in its colour.

    Without a terminal, with `NO_COLOR` in the environment, or for an ungraded run, they have no colour.
    """
    colour = 33 if run.failure else _COLOURS[correctness(run)]
    if colour is None or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return Coloured(escaped(words))
    return Coloured(f"\x1b[{colour}m{escaped(words)}\x1b[0m" if sys.stdout.isatty() else escaped(words))


def run_in_colour(run: Run) -> Coloured:
    """Return the text of `run`, escaped and with its verdict in colour."""
    verdict, text = format_grade(run), escaped(str(run))
    if not verdict:
        return Coloured(text)
    return Coloured(text.replace(f"  {escaped(verdict)}", f"  {in_colour(verdict, run)}", 1))
