"""`tot-lab think`: one question thought through.

What comes of it goes to stdout, how far it has come to stderr. Which model is asked is a matter of
tot_lab.toml and the environment (`tot_lab.lab.settings`), and is said. The options are those of `%think`.
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
    Unusable,
    add_tools,
    allowed_in,
    budget_in,
    command,
    naming,
    policy_in,
    tools_in,
)
from tot_lab.apps.deep_thinking import PRESETS, think
from tot_lab.core.files import write_whole
from tot_lab.core.records import Line
from tot_lab.lab.context import read_files
from tot_lab.lab.settings import Settings
from tot_lab.models.reachable import NoModel
from tot_lab.record.run import Run
from tot_lab.views.progress import Progress

OPTIONS: dict[str, dict[str, Any]] = {
    "--branches": {"type": int, "metavar": "N", "help": "approaches of an iteration, 2 to 5 (default: 3)"},
    "--iterations": {"type": int, "metavar": "N", "help": "iterations at most, 1 to 5 (default: 3)"},
    "--beam": {
        "type": int,
        "metavar": "N",
        "help": "solutions that the next iteration builds on, 1 to 3 (default: 2)",
    },
    "--preset": {"choices": list(PRESETS), "help": "how much is thought (default: balanced)"},
    "--model": {"metavar": "NAME", "help": "a model, or a name that tot_lab.toml has in [models]"},
    "--budget": {"nargs": "+", "metavar": "FIELD=VALUE", "help": "caps: calls, tokens, usd, seconds, …"},
    "--files": {
        "nargs": "+",
        "metavar": "GLOB",
        "help": "text files below the working directory that are told",
    },
    "--no-gather": {"action": "store_true", "help": "call no tools beforehand"},
}
"""Those that a shell and a notebook have in common."""

SIZES = ("branches", "iterations", "beam", "preset")
"""The options that `think` takes as they are."""

_EXAMPLES = """
examples:
  tot-lab think "Which database suits an append-only log of 2 TB?"
  tot-lab think "Why does this test fail one time in ten?" --files test_queue.py 'src/*.py'
  tot-lab think "Which of the two designs?" --tools read_file root=docs --allow files --model gpt-4.1-mini
"""


def add(commands: Any) -> None:
    """Its words."""
    parser = command(commands, "think", "think a question through: approaches, judged, made into one", _think)
    parser.epilog = _EXAMPLES
    parser.add_argument("question", help="in words")
    for option, settings in OPTIONS.items():
        parser.add_argument(option, **settings)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the report there (default: print it)")
    add_tools(parser)


def _think(asked: argparse.Namespace) -> int:
    """1 when there is no answer."""
    if asked.out is not None and asked.out.exists():
        raise Unusable(f"{asked.out} is there already; name another file")
    with naming():
        cut: list[str] = []
        context = read_files(asked.files, cut=cut) if asked.files else ""
        settings, equipment = equipped(asked)
        lab = settings.lab(**equipment)
    progress = Progress(" · ".join([settings.summary, *cut]))

    def watch(lines: Sequence[Line]) -> None:
        progress.take(lines)
        for said in progress.said():
            print(said, file=sys.stderr)

    options = {name: getattr(asked, name) for name in SIZES}
    budget = budget_in(asked.budget) or settings.budget
    thinking = think(
        asked.question,
        lab,
        **options,
        budget=budget,
        context=context,
        gather=not asked.no_gather,
        research=settings.research,
        watch=watch,
    )
    interrupted = False
    try:
        with naming():
            asyncio.run(thinking)
    except NoModel as error:
        raise Unusable(str(error)) from None
    except KeyboardInterrupt:
        interrupted = True
    run = lab.last
    if run is None:
        print("\ninterrupted before a model was asked", file=sys.stderr)
        return 130
    report = report_of(run)
    if asked.out is not None:
        write_whole(asked.out, report.encode())
        print(f"report    {asked.out}", file=sys.stderr)
    print(run.answer if asked.out is not None else report)
    print(f"journal   {run.path}  (tot-lab show {run.path})", file=sys.stderr)
    if interrupted:
        print("interrupted; in Python, lab.resume finishes what the journal holds", file=sys.stderr)
        return 130
    return int(not run.answer)


def equipped(asked: argparse.Namespace) -> tuple[Settings, dict[str, Any]]:
    """The settings that hold, and the tools of `--tools` with their effects, as `Settings.lab` takes them; {}
    where the tools are those of the settings."""
    if asked.tools is None:
        return Settings.read(model=asked.model, allow=allowed_in(asked.allow)), {}
    tools = tools_in(asked.tools)
    return Settings.read(model=asked.model), {
        "tools": tools,
        "effect_policy": policy_in(asked.allow, tools),
    }


def report_of(run: Run) -> str:
    """What came of a thought, in Markdown."""
    try:
        return deep_thought(run).report()
    except ValueError:  # it ended before a call was made
        return f"# {run.question}\n\nNo answer ({run.stop_reason}).\n"
