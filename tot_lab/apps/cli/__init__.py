"""`tot-lab`: what can be had from a shell.

    demo.py      demo, notebooks         what a newcomer begins with
    searches.py  run, sweep              one search, and many
    thinking.py  think                   one question thought through
    runs.py      replay, show, export    runs that are there
    maintenance.py cache, model, trust     what is kept on this machine
    words.py     NAME FIELD=VALUE        how strategies, models, tasks and budgets are named

A command does one thing a person wants, says where it put what it made, and overwrites
nothing but its own report. The exit code is 2 when what was named is of no use, 1 when
something else went wrong, 130 after Ctrl-C. What goes wrong is told in one line.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

from tot_lab._version import __version__
from tot_lab.apps.cli import demo, maintenance, runs, searches, thinking
from tot_lab.apps.cli.arguments import Unusable
from tot_lab.models import CacheError


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` (default: the shell's words) names; returns the exit code."""
    parser = _Parser(prog="tot-lab", description="Study how language models reason by search.")
    parser.add_argument("--version", action="version", version=f"tot-lab {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for family in (demo, searches, thinking, runs, maintenance):
        family.add(commands)
    asked = parser.parse_args(argv)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn  # type: ignore[assignment]
            return int(asked.carry_out(asked) or 0)
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; what was finished is kept", file=sys.stderr)
        return 130
    except Exception as error:  # a person at a shell is told in a line
        expected = isinstance(error, OSError | ValueError | CacheError | ImportError)
        said = str(error) if expected else f"{type(error).__name__}: {error}"
        if isinstance(error, OSError) and error.filename:  # without the system's number
            said = f"{error.filename2 or error.filename}: {error.strerror}"
        print(f"tot-lab: {said}", file=sys.stderr)
        return 2 if isinstance(error, Unusable) else 1


def _warn(message: Warning | str, *_: Any) -> None:
    print(f"tot-lab: {message}", file=sys.stderr)
