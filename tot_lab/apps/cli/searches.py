"""`tot-lab run` and `tot-lab sweep`: one search, and many.

What is wrong with the words is said before any model is asked. A shell forgets, so what was
found is said with where it lies and how to go on, also after Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tot_lab.analysis.statistics import success_rates
from tot_lab.analysis.sweep_tables import summary, warned, write
from tot_lab.apps.cli.arguments import (
    Unusable,
    add_cache,
    add_tools,
    budget_in,
    command,
    described,
    model_in,
    naming,
    policy_in,
    strategies_in,
    task_in,
    tasks_in,
    tools_in,
)
from tot_lab.core.calls import Reply, is_made
from tot_lab.core.records import Line
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Task
from tot_lab.core.thinking import Budget
from tot_lab.lab.lab import Lab
from tot_lab.lab.sweeps.axes import single_line
from tot_lab.lab.sweeps.sweep import Sweep
from tot_lab.models.cache import MODES
from tot_lab.models.simulated import Simulated
from tot_lab.models.stack import Endpoint
from tot_lab.record.losses import describe, without_losses
from tot_lab.record.run import money
from tot_lab.runtime.gateway import Gateway

_RUN = """
examples:
  tot-lab run tree_of_thoughts search.width=5 propose=propose --task game24 "4 5 6 10" --model sim/game24
  tot-lab run presets.game24 --task game24 "4 5 6 10" --model sim/game24 skill=0.5 --budget calls=60
  tot-lab run chain_of_thought --task general "What is 17 * 3?" answer=51 grade=number --model gpt-4.1-mini
  tot-lab run react --task multi_hop 1 --tools multi_hop --model sim/agent
  tot-lab run react --task general "How many words has notes.md?" --tools python read_file root=. \\
      --allow files,process --model gpt-4.1-mini
"""

_SWEEP = """
examples:
  tot-lab sweep tree_of_thoughts search.width=1,2,5 propose=sample,propose baselines \\
      --tasks game24 count=40 --model sim/game24 --repeats 2 --name beams --out beams.csv
  tot-lab sweep presets.game24 one_answer --task game24 "4 5 6 10" --task game24 "1 2 3 4" --model sim/game24
  tot-lab sweep self_consistency attempts=1,5,20 --tasks problems.jsonl question=q answer=a grade=number \\
      --model gpt-4.1-mini --spend 2.50 --estimate

The same line again goes on where it stopped, and asks nothing anew that was answered.
"""

_VALUES = """
A VALUE is a number, a word, none, true, false, or JSON: 'search={"kind": "mcts", "exploration": 2}'.
For what a setting means: python -c "import tot_lab as tl; help(tl.TreeOfThoughts)"
"""


def add(commands: Any) -> None:
    """Their words."""
    run = command(commands, "run", "run one search", _run)
    run.epilog = "\n".join([_RUN, described(), _VALUES])
    run.usage = "tot-lab run STRATEGY [FIELD=VALUE ...] --task DOMAIN PROBLEM --model NAME [options]"
    _add_searching(run, "a strategy and its settings (below), first of all")
    run.add_argument(
        "--task",
        required=True,
        nargs="+",
        metavar=("DOMAIN", "PROBLEM"),
        help='what to work on: game24 "4 5 6 10" | general "What is 17 * 3?" answer=51 grade=number | '
        'open_ended "Write a haiku." | '
        "mini_crossword 1 | creative_writing 1 | word_sums 1 | multi_hop 1 | constrained 1",
    )
    run.add_argument(
        "--repeat",
        type=_from(0),
        default=0,
        metavar="N",
        help="number of an independent repeat, which draws other samples (default: 0)",
    )
    run.add_argument(
        "--out", type=Path, metavar="FILE", help="the run's journal, NAME.jsonl (default: one in runs/)"
    )
    sweep = command(commands, "sweep", "run many searches, and make one table of them", _sweep)
    sweep.epilog = "\n".join([_SWEEP, described(), _VALUES])
    sweep.usage = (
        "tot-lab sweep STRATEGY [FIELD=VALUE,VALUE ...] [STRATEGY ...] --tasks FILE --model NAME [options]"
    )
    _add_searching(
        sweep, "strategies and their settings (below), first of all; every combination of values is run"
    )
    sweep.add_argument(
        "--tasks",
        nargs="+",
        metavar=("FILE", "FIELD=VALUE"),
        help="a .jsonl, .csv or .json file: problems.jsonl question=q answer=a grade=number (number, exact "
        "or regex); or the package's own: game24 count=40, mini_crossword count=24 or creative_writing "
        "count=20",
    )
    sweep.add_argument(
        "--task",
        nargs="+",
        action="append",
        default=[],
        metavar=("DOMAIN", "PROBLEM"),
        help="one more task, as `tot-lab run` has it; as often as you like",
    )
    sweep.add_argument(
        "--repeats",
        type=_from(1),
        default=1,
        metavar="N",
        help="runs of each setting on each task (default: 1)",
    )
    sweep.add_argument(
        "--at-once",
        type=_from(1),
        metavar="N",
        help="runs under way at a time (default: what keeps the model busy)",
    )
    sweep.add_argument(
        "--name", default="sweep", help="folder inside runs/ where the journals lie (default: sweep)"
    )
    sweep.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="write the table: .csv or .parquet (one row a run) or .tex (one line a setting), with versions, "
        "model and settings along",
    )
    sweep.add_argument(
        "--estimate", action="store_true", help="only say how many calls are left to make; ask nothing"
    )


def _add_searching(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("strategy", nargs="*", metavar="STRATEGY FIELD=VALUE", help=what)
    parser.add_argument(
        "--model",
        required=True,
        nargs="+",
        metavar=("NAME", "FIELD=VALUE"),
        help="who is asked: sim/game24 skill=0.5 (simulated, free), or a real one: "
        "hosted_vllm/NAME api_base=http://localhost:8000/v1",
    )
    parser.add_argument(
        "--budget",
        nargs="+",
        metavar="FIELD=VALUE",
        help="caps on each run: calls, tokens, input_tokens, output_tokens, usd (were each call paid) and "
        "seconds",
    )
    parser.add_argument(
        "--spend", type=float, metavar="USD", help="cap on the money that is really paid, over all"
    )
    parser.add_argument(
        "--mode",
        choices=MODES,
        default="auto",
        help="auto: what is known is not asked again (default); replay: nothing is asked; refresh: all is "
        "asked anew, once; off: no cache",
    )
    add_tools(parser)
    add_cache(parser, "folder of known answers (default: your own, for real models alone)")


def _from(least: int) -> Any:
    def number(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected a whole number of {least} or more, not {text!r}")
        return int(text)

    return number


def _lab(asked: argparse.Namespace, runs: Path | str = "runs") -> Lab:
    with naming():
        model, tools = model_in(asked.model), tools_in(asked.tools)
        settings = {"cache": asked.cache, "mode": asked.mode, "spend": asked.spend}
        policy = policy_in(asked.allow, tools)
        return Lab(model, runs=runs, tools=tools, effect_policy=policy, **settings)


def _run(asked: argparse.Namespace) -> int:
    """1 when the run ended with an error."""
    found = [strategy for settings in strategies_in(asked.strategy).values() for strategy in settings]
    if len(found) > 1:
        raise Unusable(f"these are {len(found)} settings, and a run has one; `tot-lab sweep` takes several")
    task, budget, out = task_in(asked.task), budget_in(asked.budget), asked.out
    if out is not None and out.suffix != ".jsonl":
        raise Unusable(f"{out}: a run is written to NAME.jsonl; `tot-lab export` makes other forms of it")
    if out is not None and out.exists():
        raise Unusable(f"{out} is there already; name another file")
    lab = _lab(asked, "runs" if out is None else out.parent)
    with naming():
        most = found[0].max_calls(lab.runner.equipped(task))  # a domain may lack what the strategy needs
    interrupted = False
    try:
        asyncio.run(_watched(lab, found[0], task, budget, asked.repeat, most))
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
    print(f"{run}\n  journal   {where}")
    if interrupted:
        print("\ninterrupted; in Python, lab.resume finishes what the journal holds", file=sys.stderr)
        return 130
    return int(run.stop_reason == "error" or run.path is None)


async def _watched(
    lab: Lab, strategy: Strategy, task: Task, budget: Budget | None, repeat: int, most: int | None
) -> None:
    """A run, with its calls counted where somebody looks."""
    from tqdm import tqdm  # noqa: PLC0415

    with tqdm(total=most, unit="call", disable=None, leave=False) as bar:

        def count(lines: Sequence[Line]) -> None:
            bar.update(sum(isinstance(line.e, Reply) and is_made(line.e) for line in lines))

        recorder, running = lab.stream(strategy, task, budget=budget, repeat=repeat).start()
        recorder.watchers.append(count)
        await running


def _sweep(asked: argparse.Namespace) -> int:
    """1 when every run went wrong, or some could not be written."""
    strategies = strategies_in(asked.strategy)
    if asked.out is not None and asked.out.suffix not in (".csv", ".parquet", ".tex"):
        raise Unusable(f"{asked.out}: a sweep is written to NAME.csv, NAME.parquet or NAME.tex")
    if asked.out is not None:
        _expect_writable(asked.out, asked.tasks)
    given = [*(tasks_in(asked.tasks) if asked.tasks else []), *map(task_in, asked.task)]
    if not given:
        raise Unusable('name tasks: --tasks FILE, --tasks game24 count=40, or --task game24 "4 5 6 10"')
    lab = _lab(asked)
    with naming():
        sweep = Sweep(
            lab.runner, strategies, given, asked.repeats, asked.name, budget_in(asked.budget), runs=lab.runs
        )
    if asked.estimate:
        print(asyncio.run(estimated(sweep)))
        return 0
    interrupted = False
    try:
        asyncio.run(sweep.carry_out(asked.at_once))
    except KeyboardInterrupt:
        interrupted = True
        print(
            f"\ninterrupted: {len(sweep.rows):,} of {len(sweep.cells):,} runs are finished and kept; "
            f"the same line goes on with the others",
            file=sys.stderr,
        )
    if sweep.rows:
        print(table(sweep))
    wrong = [row.error for row in sweep.rows.values() if row.error]
    if wrong:
        print(f"\n{len(wrong):,} runs went wrong, the first so: {single_line(wrong[0])}")
    graded = any(row.score is not None or row.error for row in sweep.rows.values())
    if not graded and any(task.reference is not None for task in given):
        print("\nthe tasks have answers, but not how to hold them against a model's: add grade=number")
    if sweep.in_memory:
        print(f"\n{len(sweep.in_memory):,} runs could not be written; the same line makes them again")
    print(f"\njournals: {sweep.folder}/")
    if interrupted:
        return 130
    if asked.out is not None:
        print(f"table:    {write(sweep, asked.out)}")  # the table above has said what was lost
    return int(len(wrong) == len(sweep.cells) or bool(sweep.in_memory))


def _expect_writable(out: Path, tasks: Sequence[str] | None) -> None:
    """`Unusable`, before anything is asked, for a table that could not be written, or not without harm."""
    if out.is_dir() or not out.parent.is_dir():
        raise Unusable(f"{out}: {'this is a folder' if out.is_dir() else f'there is no folder {out.parent}'}")
    if out.suffix == ".parquet" and find_spec("pyarrow") is None:
        raise Unusable(f"{out}: parquet needs pyarrow: pip install 'tot-lab[parquet]'; or name a .csv")
    if tasks and out.exists() and Path(tasks[0]).exists() and out.samefile(tasks[0]):
        raise Unusable(f"{out} holds the tasks; name another file for the table")


def table(sweep: Sweep) -> str:
    """One line a setting: success with Wilson's interval over tasks, mean calls and cost of a run, and the
    shares of calls that were lost."""
    known = success_rates(without_losses(sweep.df())).dropna(subset="rate")
    bounds = zip(known["rate"], known["low"], known["high"], strict=True)
    rates = dict(zip(known["setting"], bounds, strict=True))
    rows = [("setting", "runs", "success", "95 % interval", "calls", "cost", "errors", "lost calls")]
    for line in summary(sweep):
        rate = rates.get(line.setting)
        rows.append(
            (
                line.setting,
                f"{line.runs:,}",
                f"{rate[0]:.1%}" if rate else "–",
                f"{rate[1]:.1%} – {rate[2]:.1%}" if rate else "–",
                "–" if line.calls is None else f"{line.calls:,.1f}",
                "–" if not line.runs else money(line.cost),
                f"{line.errors:,}",
                describe(line.losses) or "–",
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]
    head = str(sweep).partition("\n")[0]
    return "\n".join([head, *lines, *filter(None, [warned(sweep)])])


def _name(gateway: Gateway) -> str:
    return gateway.model.name if isinstance(gateway.model, Endpoint) else str(gateway.settings["kind"])


async def estimated(sweep: Sweep) -> str:
    """What a sweep would still ask, in words."""
    left = await sweep.estimate()
    calls = "an unknown number of calls" if left.calls is None else f"at most {left.calls:,} calls"
    simulated = ", a simulated model: free" if isinstance(sweep.runner.gateway.model, Simulated) else ""
    cost = (
        "not known before a run of each setting is finished"
        if left.cost is None
        else f"about {money(left.cost)}"
    )
    return "\n".join(
        [
            f"{left.runs:,} runs: {len(sweep.settings):,} settings, {len(sweep.tasks):,} tasks; "
            f"{left.finished:,} are finished",
            f"left: {calls} of {_name(sweep.runner.gateway)}{simulated}",
            f"known from the cache: {left.cached:,} of them, as far as the searches can be followed",
            *([] if simulated else [f"cost, if each call were paid: {cost}"]),
        ]
    )
