"""The `tot-lab` command line.

    demo.py         demo, notebooks         a first example, and the notebooks
    searches.py     run, sweep              run one search, or a sweep of many
    thinking.py     think                   run Deep Think on one question
    serving.py      serve, mcp              offer searches to other programs
    runs.py         replay, show, export    work with recorded runs
    maintenance.py  cache, model            manage cached replies and model weights
    arguments.py    NAME FIELD=VALUE        the grammar for strategies, models, tasks and budgets
    help.py         --help [NAME]           help texts
    completion.py                           completes words after Tab
    terminal.py                             escapes control characters in everything that is printed, and
                                            colours verdicts

A command prints where it wrote its results. The exit code is 2 for invalid arguments, 1 for any other error,
and 130 after Ctrl-C. An error is printed as one line.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path
from traceback import extract_tb
from typing import Any, NoReturn

from tot_lab._version import __version__
from tot_lab.apps.cli import demo, maintenance, runs, searches, serving, thinking
from tot_lab.apps.cli.arguments import InvalidArgument
from tot_lab.apps.cli.completion import complete
from tot_lab.apps.cli.help import Formatter, list_commands
from tot_lab.apps.cli.terminal import Coloured, escaped_output
from tot_lab.core.calls import format_error
from tot_lab.core.scrubbing import scrubbed
from tot_lab.models import CacheError

_GROUPS = {
    "first steps": [demo],
    "searches": [searches, thinking],
    "for other programs": [serving],
    "recorded runs": [runs],
    "this machine": [maintenance],
}

_START = """Study how language models reason by search. Three things to try:

  tot-lab demo                  20 searches on the small model of the package, and a report
  tot-lab run tree_of_thoughts --task game24 "4 5 6 10" --model tiny/numbers
                                one search; tot-lab show then opens its tree
  tot-lab notebooks examples    the notebooks, to open with JupyterLab

None needs a key or a network. All commands: tot-lab --help"""


class _Parser(argparse.ArgumentParser):
    def format_help(self) -> str:
        return Coloured(super().format_help())  # not escaped: since Python 3.14, argparse colours it

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self._subparsers is None:
            self._expect_known(args or ())
        return super().parse_known_args(args, namespace)

    def _expect_known(self, words: Sequence[str]) -> None:
        """Report an unknown option before argparse reports that a required one is missing."""
        known = [option for action in self._actions for option in action.option_strings]
        for word in takewhile(lambda word: word != "--", words):
            name = word.partition("=")[0]
            if name[:2] != "--" or " " in name or any(option.startswith(name) for option in known):
                continue
            near = get_close_matches(name, known, n=2, cutoff=0.8)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            if not near and any(action.dest == "strategy" for action in self._actions):
                hint = "; settings follow the strategy: tree_of_thoughts search.width=5"
            self.error(f"unknown option {name}{hint}")

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in `argv` (default: `sys.argv`) and return its exit code."""
    with escaped_output():
        return _main(argv)


def _main(argv: Sequence[str] | None) -> int:
    parser = _parser()
    complete(parser)
    given = sys.argv[1:] if argv is None else argv
    try:
        if not given:
            print(_START)
            return 0
        args = parser.parse_args(given)
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
        at = extract_tb(error.__traceback__)[-1]  # helps to find an error in the code of an extension
        place = f"line {at.lineno} of {at.name} in {Path(at.filename).name}"
        message = str(error) if expected else f"{format_error(error)} ({place})"
        if isinstance(error, OSError) and error.filename:  # leaves out the error number
            message = f"{error.filename2 or error.filename}: {error.strerror}"
        print(f"tot-lab: {scrubbed(message)}", file=sys.stderr)
        return 2 if isinstance(error, InvalidArgument) else 1


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="tot-lab",
        usage="tot-lab COMMAND ...",
        description="Study how language models reason by search.",
        formatter_class=Formatter,
    )
    parser.add_argument("--version", action="version", version=f"tot-lab {__version__}")
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", help=argparse.SUPPRESS, prog="tot-lab"
    )
    groups: list[str] = []
    for title, families in _GROUPS.items():
        known = set(commands.choices)
        for family in families:
            family.add(commands)
        new = {name: one for name, one in commands.choices.items() if name not in known}
        groups.append(list_commands(title, new))
    more = "What a command accepts: tot-lab COMMAND --help"
    parser.epilog = "\n\n".join([*groups, more])
    return parser


def _warn(message: Warning | str, *_: Any) -> None:
    print(f"tot-lab: {scrubbed(str(message))}", file=sys.stderr)
