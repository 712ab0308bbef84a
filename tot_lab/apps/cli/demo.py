"""`tot-lab demo` and `tot-lab notebooks`: what a newcomer begins with.

Nothing that is there is overwritten but the demo's own report.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tot_lab
from tot_lab.apps.cli.arguments import command
from tot_lab.domains import game24_tasks
from tot_lab.domains.game24.player import SimGame24
from tot_lab.lab.lab import Lab
from tot_lab.record.losses import describe, losses_of, total, warning_of
from tot_lab.strategies import Propose, TreeOfThoughts
from tot_lab.views.report import report_html

if TYPE_CHECKING:
    from tot_lab.record.run import Run

DEMO = TreeOfThoughts(propose=Propose(count=5))
PLAYER = SimGame24(skill=0.5, noise=0.2, garble=0.05)  # weak enough that a search can fail


def add(commands: Any) -> None:
    """Their words."""
    demo = command(commands, "demo", "run 20 searches on a simulated model and write a report", _demo)
    demo.add_argument("folder", nargs="?", default="demo", type=Path, help="where to write (default: demo)")
    notebooks = command(commands, "notebooks", "copy the notebooks and their data", _notebooks)
    notebooks.add_argument("folder", type=Path, metavar="DIR", help="where to copy them")


def _demo(asked: argparse.Namespace) -> None:
    asyncio.run(run_demo(asked.folder))


def _notebooks(asked: argparse.Namespace) -> None:
    copy_notebooks(asked.folder)


async def run_demo(folder: Path) -> None:
    """20 Games of 24 by Tree of Thoughts: a table, the runs, and one HTML report."""
    from tqdm import tqdm  # noqa: PLC0415

    kept = folder / "runs" / datetime.now().strftime("%Y%m%d-%H%M%S")  # a folder for each demo's runs
    lab = Lab(PLAYER, runs=kept)
    runs = []
    for task in tqdm(game24_tasks(20), desc="Game of 24", unit="search"):
        runs.append(await lab.run(DEMO, task))
    print(demo_table(runs))
    right = sum(run.correct is True for run in runs)
    losses = total(map(losses_of, runs))
    print(f"\n{right} of {len(runs)} solved, {sum(run.usage.calls for run in runs):,} calls of sim/game24,")
    print("a simulated model: it needs no key and no network, and says nothing about a real one.")
    print(f"lost calls: {describe(losses)}")
    if warning := warning_of({"": losses}):
        print(f"! {warning}")
    report = report_html(runs, folder / "report.html", title="Game of 24 by Tree of Thoughts")
    print(f"\nruns:   {kept}/\nreport: {report}  (opens in any browser, offline)")


def demo_table(runs: Sequence[Run]) -> str:
    """One line a run."""
    rows = [
        f"{'hand':<12}{'answer':<26}{'correct':<9}{'stopped':<14}{'thoughts':>8}{'calls':>7}{'tokens':>8}"
    ]
    for run in runs:
        tokens = (run.usage.input_tokens or 0) + (run.usage.output_tokens or 0)
        correct = "yes" if run.correct else "no"
        rows.append(
            f"{run.question:<12}{run.answer or '(none)':<26}{correct:<9}{run.stop_reason or '':<14}"
            f"{len(run.tree):>8}{run.usage.calls:>7}{tokens:>8,}"
        )
    return "\n".join(rows)


def copy_notebooks(folder: Path) -> None:
    """Copy the notebooks to `folder/notebooks` and their data to `folder/data`, as they lie in the
    project. A file that is there already is an error that names it; nothing is overwritten."""
    package = Path(tot_lab.__file__).parent
    source = package / "examples"  # in an installed package; in a checkout they lie beside it
    source = source if source.is_dir() else package.parent
    files = [*sorted((source / "notebooks").glob("*.ipynb")), *sorted((source / "data").glob("*"))]
    targets = [folder / file.parent.name / file.name for file in files]
    for target in targets:
        if target.exists():
            raise FileExistsError(f"{target} is there already; choose another folder")
    for file, target in zip(files, targets, strict=True):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
        print(target)
