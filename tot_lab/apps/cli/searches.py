"""`tot-lab run` and `tot-lab sweep`: run one search, or a sweep of many.

Invalid arguments are reported before any model is called. The results are printed with the path of their
journals. After Ctrl-C, a line explains how to continue.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tot_lab.analysis.sweep_tables import write
from tot_lab.apps.cli.arguments import (
    InvalidArgument,
    add_cache,
    add_tools,
    argument_errors,
    command,
    integer_from,
    parse_budget,
    parse_lab,
    parse_strategies,
    parse_task,
    parse_tasks,
)
from tot_lab.apps.cli.help import PartHelp
from tot_lab.apps.cli.terminal import run_in_colour
from tot_lab.core.extras import requires
from tot_lab.lab.sweeps.estimates import estimate_sweep
from tot_lab.lab.sweeps.progress import progress
from tot_lab.lab.sweeps.sweep import Sweep
from tot_lab.models.cache import MODES
from tot_lab.models.simulated import Simulated
from tot_lab.models.stack import Endpoint
from tot_lab.runtime.gateway import Gateway

_RUN = """
examples:
  tot-lab run tree_of_thoughts search.width=5 propose=propose \\
      --task game24 "4 5 6 10" --model sim/game24
  tot-lab run presets.game24 --task game24 "4 5 6 10" \\
      --model sim/game24 skill=0.5 --budget calls=60
  tot-lab run chain_of_thought --task general "What is 17 * 3?" answer=51 \\
      grade=number --model gpt-4.1-mini
  tot-lab run react --task general "How many words has notes.md?" \\
      --tools python read_file root=. --allow files,process --model gpt-4.1-mini

A VALUE is a number, a word, none, true, false, or JSON:
'search={"kind": "mcts", "exploration": 2}'
"""

_SWEEP = """
examples:
  tot-lab sweep tree_of_thoughts search.width=1,2,5 propose=sample,propose \\
      baselines --tasks game24 count=40 --model sim/game24 --repeats 2 \\
      --name beams --out beams.csv
  tot-lab sweep self_consistency attempts=1,5,20 --tasks problems.jsonl \\
      question=q answer=a grade=number --model gpt-4.1-mini --dry-run

Repeat the same command to continue an interrupted sweep. Finished calls are not
made again.
"""


def add(commands: Any) -> None:
    """Add the commands `run` and `sweep`."""
    _add_run(command(commands, "run", "run one search", _run, add_help=False))
    _add_sweep(
        command(commands, "sweep", "run many searches and tabulate the results", _sweep, add_help=False)
    )


def _add_run(run: argparse.ArgumentParser) -> None:
    run.epilog = _RUN
    run.usage = "tot-lab run STRATEGY [FIELD=VALUE ...] --task DOMAIN PROBLEM\n" + _USAGE
    what, results = _add_common(run, "a strategy and its settings, before all options")
    what.add_argument(
        "--task",
        required=True,
        nargs="+",
        metavar=("DOMAIN", "PROBLEM"),
        help='game24 "4 5 6 10", mini_crossword 1, open_ended "Write a haiku.", or '
        'general "What is 17 * 3?" answer=51 grade=number',
    )
    what.add_argument(
        "--repeat",
        type=integer_from(0),
        default=0,
        metavar="N",
        help="index of an independent repeat; each repeat draws new samples (default: 0)",
    )
    results.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="the run's journal, NAME.jsonl (default: a new file in runs/)",
    )


def _add_sweep(sweep: argparse.ArgumentParser) -> None:
    sweep.epilog = _SWEEP
    sweep.usage = "tot-lab sweep STRATEGY [FIELD=VALUE,VALUE ...] [STRATEGY ...]\n" + _USAGE.replace(
        "--model", "--tasks FILE --model"
    )
    what, results = _add_common(
        sweep, "strategies and settings, before all options; every combination of values is run"
    )
    what.add_argument(
        "--tasks",
        nargs="+",
        metavar=("FILE", "FIELD=VALUE"),
        help="a .jsonl, .json, .csv or .parquet file: problems.jsonl question=q answer=a grade=number "
        "(number, exact, choice, regex, math or python), or test.parquet format=gsm8k; or tasks of the "
        "package: game24 count=40",
    )
    what.add_argument(
        "--task",
        nargs="+",
        action="append",
        default=[],
        metavar=("DOMAIN", "PROBLEM"),
        help="an additional task, as for `tot-lab run`; may be repeated",
    )
    counts: dict[str, dict[str, Any]] = {
        "--repeats": {"default": 1, "help": "runs of each setting on each task (default: 1)"},
        "--at-once": {"help": "maximum number of concurrent runs (default: enough to keep the model busy)"},
    }
    for option, settings in counts.items():
        what.add_argument(option, type=integer_from(1), metavar="N", **settings)
    results.add_argument(
        "--name", default="sweep", help="folder for the journals, inside runs/ (default: sweep)"
    )
    results.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="write the table: .csv or .parquet (one row per run) or .tex (one row per setting); versions, "
        "model and settings are in the file, or for .csv and .tex in a .json beside it",
    )
    before = results.add_mutually_exclusive_group()
    before.add_argument(
        "--dry-run",
        action="store_true",
        help="print upper bounds of the remaining use; call no model",
    )
    before.add_argument(
        "--pilot",
        type=integer_from(1),
        metavar="N",
        help="run N random tasks, and print what the others are expected to use (2 give a first idea)",
    )


_USAGE = "           --model NAME [FIELD=VALUE ...] [options]"


def _add_common(parser: argparse.ArgumentParser, what: str) -> tuple[Any, Any]:
    """Add the options that `run` and `sweep` share. Returns the groups "what to run" and "results"."""
    run, limits, cache, results = map(
        parser.add_argument_group, ("what to run", "limits", "cache", "results")
    )
    run.add_argument("strategy", nargs="*", metavar="STRATEGY FIELD=VALUE", help=what)
    run.add_argument(
        "--model",
        required=True,
        nargs="+",
        metavar=("NAME", "FIELD=VALUE"),
        help="the model: tiny/numbers (real, small, free), sim/game24 skill=0.5 (simulated, free), "
        "gpt-4.1-mini (its key: OPENAI_API_KEY), vllm/NAME base_url=URL price=0.15,0.6 (USD per million "
        "tokens in and out)",
    )
    add_tools(run)
    limits.add_argument(
        "--budget",
        nargs="+",
        metavar="FIELD=VALUE",
        help="limits of each run: calls, tokens, input_tokens, output_tokens, usd (cached calls count at "
        "their price) and seconds",
    )
    limits.add_argument(
        "--spend", type=float, metavar="USD", help="limit on the money spent by all runs together"
    )
    cache.add_argument(
        "--mode",
        choices=MODES,
        default="auto",
        help="auto: use cached replies, call the model for the rest (default); replay: cached replies only; "
        "refresh: call the model for every reply, and cache them in a new store; off: no cache",
    )
    add_cache(cache, "folder of the cache (default: your own, for real models only)")
    parser.add_argument(
        "-h", "--help", action=PartHelp, nargs="*", metavar="NAME", help="show this, or what NAME does"
    )
    return run, results


def _run(args: argparse.Namespace) -> int:
    """Carry out `tot-lab run`. Returns 1 if the run failed or could not be written."""
    found = [strategy for settings in parse_strategies(args.strategy).values() for strategy in settings]
    if len(found) > 1:
        raise InvalidArgument(
            f"A run takes one setting: got {len(found)}. Give one strategy and one value per field. Use "
            f"`tot-lab sweep` for several."
        )
    task, budget, out = parse_task(args.task), parse_budget(args.budget), args.out
    if out is not None and out.suffix != ".jsonl":
        raise InvalidArgument(
            f"{out}: a run is written to NAME.jsonl. Use `tot-lab export` for other formats."
        )
    if out is not None and out.exists():
        raise InvalidArgument(f"{out} already exists. Name another file.")
    lab = parse_lab(args, "runs" if out is None else out.parent)
    with argument_errors():
        found[0].max_calls(lab.runner.equipped(task))  # raises if the domain lacks what the strategy needs
    interrupted = False
    try:
        asyncio.run(lab.run(found[0], task, budget=budget, repeat=args.repeat))
    except KeyboardInterrupt:
        interrupted = True
    finally:
        run = lab.last
        if run is not None and run.path is not None and out is not None:
            run.path = run.path.replace(out)
    if run is None:
        print("\ninterrupted before the run began", file=sys.stderr)
        return 130
    where = "it could not be written" if run.path is None else f"{run.path}  (tot-lab show {run.path})"
    print(run_in_colour(run))
    print(f"  journal   {where}")
    if interrupted:
        print("\ninterrupted; lab.resume continues the journal from Python", file=sys.stderr)
        return 130
    return int(run.failure is not None or run.path is None)


def _sweep(args: argparse.Namespace) -> int:
    """Carry out `tot-lab sweep`. Returns 1 if every run failed, or a run could not be written."""
    strategies = parse_strategies(args.strategy)
    if args.out is not None and args.out.suffix not in (".csv", ".parquet", ".tex"):
        raise InvalidArgument(f"{args.out}: a sweep is written to NAME.csv, NAME.parquet or NAME.tex.")
    if args.out is not None:
        _expect_writable(args.out, args.tasks)
    given = [*(parse_tasks(args.tasks) if args.tasks else []), *map(parse_task, args.task)]
    if not given:
        raise InvalidArgument(
            'No tasks given. Use --tasks FILE, --tasks game24 count=40, or --task game24 "4 5 6 10".'
        )
    lab = parse_lab(args, "runs")
    with argument_errors():
        sweep = Sweep(
            lab.runner, strategies, given, args.repeats, args.name, parse_budget(args.budget), runs=lab.runs
        )
    if args.dry_run or args.pilot:
        print(asyncio.run(describe_estimate(sweep, args.pilot)))
        return 0
    interrupted = False
    try:
        asyncio.run(sweep.carry_out(args.at_once, progress))
    except KeyboardInterrupt:
        interrupted = True
        print(
            f"\ninterrupted: {len(sweep.rows):,} of {len(sweep.cells):,} runs are finished and kept; "
            f"repeat the command to run the others",
            file=sys.stderr,
        )
    if sweep.rows:
        print(sweep)
    failed = sum(row.error is not None for row in sweep.rows.values())
    if sweep.in_memory:
        print(f"\n{len(sweep.in_memory):,} runs could not be written; repeat the command to run them again")
    print(f"\njournals: {sweep.folder}/")
    if interrupted:
        return 130
    if args.out is not None:
        print(f"table:    {write(sweep, args.out)}")  # `save` would repeat the warning of `print`
    return int(failed == len(sweep.cells) or bool(sweep.in_memory))


def _expect_writable(out: Path, tasks: Sequence[str] | None) -> None:
    """Check that a table can be written to `out` without overwriting the tasks.

    Raises:
        InvalidArgument: The table cannot be written.
    """
    if out.is_dir() or not out.parent.is_dir():
        raise InvalidArgument(
            f"{out}: {'is a folder' if out.is_dir() else f'no such folder: {out.parent}'}. "
            f"Name a file in an existing folder."
        )
    if out.suffix == ".parquet" and find_spec("pyarrow") is None:
        raise InvalidArgument(f"{requires(str(out), 'pyarrow', 'parquet')}. A .csv needs no extra package.")
    if tasks and out.exists() and Path(tasks[0]).exists() and out.samefile(tasks[0]):
        raise InvalidArgument(f"{out} is the file of the tasks. Name another file for the table.")


def _name(gateway: Gateway) -> str:
    return gateway.model.name if isinstance(gateway.model, Endpoint) else str(gateway.settings["kind"])


async def describe_estimate(sweep: Sweep, pilot: int | None) -> str:
    """Return upper bounds for the usage of the unfinished runs of a sweep, as text.

    With `pilot`, that many tasks are run, and the usage of the others is estimated from them.
    """
    with argument_errors():
        estimate = await estimate_sweep(sweep, pilot or 0)
    free = ", a simulated model: free" if isinstance(sweep.runner.gateway.model, Simulated) else ""
    return "\n".join(
        [
            f"{len(sweep.cells):,} runs of {_name(sweep.runner.gateway)}{free}: {len(sweep.settings):,} "
            f"settings, {len(sweep.tasks):,} tasks",
            str(estimate),
        ]
    )
