"""`tot-lab think`: run Deep Think on one question.

The report goes to stdout and progress to stderr. The model is set by `--model`, tot_lab.toml or the
environment (`tot_lab.lab.settings`), and its name is in the first line of the progress. `%think` has the same
options.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tot_lab.analysis.deep_thought import deep_thought
from tot_lab.apps.cli.arguments import (
    InvalidArgument,
    add_tools,
    argument_errors,
    command,
    effect_policy_for,
    parse_budget,
    parse_effects,
    parse_tools,
)
from tot_lab.apps.deep_thinking import PRESETS, NoModel, think
from tot_lab.core.files import write_whole
from tot_lab.core.records import Line
from tot_lab.lab.context import read_files
from tot_lab.lab.settings import Settings
from tot_lab.record.run import Run
from tot_lab.views.progress import Progress

OPTIONS: dict[str, dict[str, Any]] = {
    "--branches": {"type": int, "metavar": "N", "help": "approaches per iteration, 2 to 5 (default: 3)"},
    "--iterations": {
        "type": int,
        "metavar": "N",
        "help": "maximum number of iterations, 1 to 5 (default: 3)",
    },
    "--beam": {
        "type": int,
        "metavar": "N",
        "help": "solutions kept for the next iteration, 1 to 3 (default: 2)",
    },
    "--preset": {"choices": list(PRESETS), "help": "effort (default: balanced)"},
    "--model": {"metavar": "NAME", "help": "a model, or a name from [models] in tot_lab.toml"},
    "--budget": {"nargs": "+", "metavar": "FIELD=VALUE", "help": "limits: calls, tokens, usd, seconds, …"},
    "--files": {
        "nargs": "+",
        "metavar": "GLOB",
        "help": "text files below the working directory to add to the context",
    },
    "--no-gather": {"action": "store_true", "help": "do not gather facts with tools beforehand"},
}
"""The options that `tot-lab think` and `%think` share."""

SIZES = ("branches", "iterations", "beam", "preset")
"""The options whose values are passed to `tl.think` under the same names."""

_EXAMPLES = """
examples:
  tot-lab think "Which database suits an append-only log of 2 TB?"
  tot-lab think "Why does this test fail one time in ten?" \\
      --files test_queue.py 'src/*.py'
  tot-lab think "Which of the two designs?" \\
      --tools read_file root=docs --allow files --model gpt-4.1-mini
"""


def add(commands: Any) -> None:
    """Add the command `think`."""
    parser = command(
        commands,
        "think",
        "think a question through: develop approaches, judge them and combine the best",
        _think,
    )
    parser.epilog = _EXAMPLES
    parser.add_argument("question", help="the question, as text")
    for option, settings in OPTIONS.items():
        parser.add_argument(option, **settings)
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write the report to this file (default: print it)"
    )
    add_tools(parser)


def _think(args: argparse.Namespace) -> int:
    """Carry out `tot-lab think`. Returns 1 if there is no answer."""
    if args.out is not None and args.out.exists():
        raise InvalidArgument(f"{args.out} already exists. Name another file.")
    with argument_errors():
        cut: list[str] = []
        context = read_files(args.files, cut=cut) if args.files else ""
        settings, equipment = settings_and_tools(args)
        lab = settings.lab(**equipment)
    progress = Progress(" · ".join([settings.summary, *cut]))

    def watch(lines: Sequence[Line]) -> None:
        progress.take(lines)
        for line in progress.new_lines():
            print(line, file=sys.stderr)

    options = {name: getattr(args, name) for name in SIZES}
    budget = parse_budget(args.budget) or settings.budget
    thinking = think(
        args.question,
        lab,
        **options,
        budget=budget,
        context=context,
        gather=not args.no_gather,
        research=settings.research,
        watch=watch,
    )
    interrupted = False
    try:
        with argument_errors():
            asyncio.run(thinking)
    except NoModel as error:
        raise InvalidArgument(str(error)) from None
    except KeyboardInterrupt:
        interrupted = True
    run = lab.last
    if run is None:
        print("\ninterrupted before the first model call", file=sys.stderr)
        return 130
    report = markdown_report(run)
    if args.out is not None:
        write_whole(args.out, report.encode())
        print(f"report    {args.out}", file=sys.stderr)
    print(run.answer if args.out is not None else report)
    print(f"journal   {run.path}  (tot-lab show {run.path})", file=sys.stderr)
    if interrupted:
        print("interrupted; lab.resume continues the journal from Python", file=sys.stderr)
        return 130
    return int(not run.answer)


def settings_and_tools(args: argparse.Namespace) -> tuple[Settings, dict[str, Any]]:
    """Return the settings, and the arguments `tools` and `effect_policy` for `Settings.lab`.

    Without `--tools`, the arguments are empty, and the tools of the settings are used.
    """
    if args.tools is None:
        return Settings.read(model=args.model, allow=parse_effects(args.allow)), {}
    tools = parse_tools(args.tools)
    return Settings.read(model=args.model), {
        "tools": tools,
        "effect_policy": effect_policy_for(args.allow, tools),
    }


def markdown_report(run: Run) -> str:
    """Return the report of a Deep Think run as Markdown."""
    try:
        return deep_thought(run).report()
    except ValueError:  # the run ended before its first call
        return f"# {run.question}\n\nNo answer ({run.stop_reason}).\n"
