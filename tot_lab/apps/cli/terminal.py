"""What the commands print. Control characters are shown as escapes, such as `\\x1b`.

Texts of models, texts of files and file names could otherwise move the cursor, hide or reorder text, or send
commands to the terminal. All output is escaped, since `escaped_output` replaces stdout and stderr while a
command runs. The exceptions are `Coloured` texts, and the carriage return with which tqdm redraws a bar.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO, cast

from tot_lab.record.run import Run
from tot_lab.views.figures.verdict import correctness, format_grade

_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and newline, DEL, and C1
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # line separators and controls of the text direction
    "\ud800-\udfff]"  # lone surrogates, for bytes of file names that cannot be decoded
)


def escaped(text: str) -> str:
    """Return `text` with its control characters as escapes."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class Coloured(str):
    """Text that `escaped_output` writes unchanged: it is already escaped, and may contain colour codes."""

    def __str__(self) -> str:
        return self  # `print` writes the result of this method


class _Escaping:
    """A stream that escapes the text written to it, except a leading `begin_of_bar`."""

    def __init__(self, stream: TextIO, begin_of_bar: str = "") -> None:
        self._stream = stream
        self._begin_of_bar = begin_of_bar

    def write(self, text: str) -> int:
        if isinstance(text, Coloured):
            return self._stream.write(text)
        rest = text.removeprefix(self._begin_of_bar)
        return self._stream.write(text[: len(text) - len(rest)] + escaped(rest))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def escaped_output() -> Iterator[None]:
    """Escape what is written to stdout and stderr in the block."""
    out, err = _Escaping(sys.stdout), _Escaping(sys.stderr, "\r")
    with redirect_stdout(cast(TextIO, out)), redirect_stderr(cast(TextIO, err)):
        yield


# Colours of verdicts: green for right, red for wrong, yellow for a failed run.


_COLOURS = {True: 32, False: 31, None: None}


def in_colour(words: str, run: Run) -> Coloured:
    """Return `words`, the verdict on `run`, escaped and in its colour.

    The result has no colour if the run is ungraded, stdout is not a terminal, `NO_COLOR` is set, or `TERM` is
    `dumb`.
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
