"""The `tot-lab` command line.

    demo.py         demo, notebooks         a first example, and the notebooks
    searches.py     run, sweep              run one search, or a sweep of many
    thinking.py     think                   think one question through
    runs.py         replay, show, export    work with recorded runs
    maintenance.py  cache, model, trust     manage cached replies, model weights and approvals
    arguments.py    NAME FIELD=VALUE        the grammar for strategies, models, tasks and budgets

A command prints where it wrote its results, and overwrites nothing but its own report. The exit code is 2 for
invalid arguments, 1 for any other error, and 130 after Ctrl-C. An error is printed as one line.
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
from tot_lab.apps.cli.arguments import InvalidArgument
from tot_lab.models import CacheError


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in `argv` (default: `sys.argv`) and return its exit code."""
    parser = _Parser(prog="tot-lab", description="Study how language models reason by search.")
    parser.add_argument("--version", action="version", version=f"tot-lab {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for family in (demo, searches, thinking, runs, maintenance):
        family.add(commands)
    args = parser.parse_args(argv)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn  # type: ignore[assignment]
            return int(args.handler(args) or 0)
    except BrokenPipeError:  # the reader closed the pipe, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; finished work is kept", file=sys.stderr)
        return 130
    except Exception as error:  # the shell shows one line instead of a traceback
        expected = isinstance(error, OSError | ValueError | CacheError | ImportError)
        message = str(error) if expected else f"{type(error).__name__}: {error}"
        if isinstance(error, OSError) and error.filename:  # leaves out the error number
            message = f"{error.filename2 or error.filename}: {error.strerror}"
        print(f"tot-lab: {message}", file=sys.stderr)
        return 2 if isinstance(error, InvalidArgument) else 1


def _warn(message: Warning | str, *_: Any) -> None:
    print(f"tot-lab: {message}", file=sys.stderr)
