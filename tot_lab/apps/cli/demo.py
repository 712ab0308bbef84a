"""`tot-lab demo` and `tot-lab notebooks`: a first example, and the notebooks with their data.

No existing file is overwritten except the demo's own report.
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
from tot_lab.apps.cli.terminal import Coloured, escaped, in_colour
from tot_lab.lab.lab import Lab
from tot_lab.models.tiny.tasks import held_out_tasks
from tot_lab.record.losses import describe, losses_of, total, warning_of
from tot_lab.record.run import SMALL
from tot_lab.strategies.search import Propose, TreeOfThoughts
from tot_lab.views.explorer.sweep_page import save_html
from tot_lab.views.figures.verdict import grade_words, stop_words

if TYPE_CHECKING:
    from tot_lab.record.run import Run

DEMO = TreeOfThoughts(propose=Propose(count=5))


def add(commands: Any) -> None:
    """Add the commands `demo` and `notebooks`."""
    demo = command(
        commands, "demo", "run 20 searches on the small model of the package and write a report", _demo
    )
    demo.add_argument("folder", nargs="?", default="demo", type=Path, help="output folder (default: demo)")
    notebooks = command(commands, "notebooks", "copy the notebooks, their data and the guides", _notebooks)
    notebooks.add_argument("folder", type=Path, metavar="DIR", help="target folder")


def _demo(args: argparse.Namespace) -> None:
    asyncio.run(run_demo(args.folder))


def _notebooks(args: argparse.Namespace) -> None:
    copy_notebooks(args.folder)


async def run_demo(folder: Path) -> None:
    """Run Tree of Thoughts on 20 Games of 24. Print a table, and write the journals and an HTML report."""
    from tqdm import tqdm  # noqa: PLC0415

    journals = folder / "runs" / datetime.now().strftime("%Y%m%d-%H%M%S")  # a new folder for each demo
    lab = Lab("tiny/numbers", runs=journals, mode="off")
    runs = []
    for task in tqdm(held_out_tasks("game24")[:20], desc="Game of 24", unit="search"):
        runs.append(await lab.run(DEMO, task))
    print(demo_table(runs))
    right = sum(run.correct is True for run in runs)
    losses = total(map(losses_of, runs))
    print(f"\n{right} of {len(runs)} solved, {sum(run.usage.calls for run in runs):,} calls of tiny/numbers,")
    print(f"a {SMALL}. It needs no key and no network, and was trained on other hands.")
    print(f"lost calls: {describe(losses)}")
    if warning := warning_of({"": losses}):
        print(f"! {warning}")
    report = save_html(runs, folder / "report.html")
    print(f"\nruns:   {journals}/\nreport: {report}  (opens in any browser, offline)")


def demo_table(runs: Sequence[Run]) -> Coloured:
    """Return a table with one line per run, escaped."""
    rows = [f"{'hand':<12}{'answer':<26}{'verdict':<13}{'ended':<28}{'thoughts':>8}{'calls':>7}{'tokens':>8}"]
    for run in runs:
        tokens = (run.usage.input_tokens or 0) + (run.usage.output_tokens or 0)
        verdict = in_colour(f"{grade_words(run):<13}", run)
        rows.append(
            escaped(f"{run.question:<12}{run.answer or '(none)':<26}")
            + verdict
            + escaped(f"{stop_words(run):<28}{len(run.tree):>8}{run.usage.calls:>7}{tokens:>8,}")
        )
    return Coloured("\n".join(rows))


def copy_notebooks(folder: Path) -> None:
    """Copy to `folder` the notebooks, their data, and the guides to which they link.

    Raises:
        FileExistsError: A target file exists. Nothing is copied.
    """
    package = Path(tot_lab.__file__).parent
    source = package / "examples"  # only an installed package contains this folder
    source = source if source.is_dir() else package.parent
    files = [
        file
        for glob in ("notebooks/*.ipynb", "data/*", "docs/**/*.md", "docs/pictures/**/*")
        for file in sorted(source.glob(glob))
        if file.is_file()
    ]
    targets = [folder / file.relative_to(source) for file in files]
    for target in targets:
        if target.exists():
            raise FileExistsError(f"{target} already exists. Choose another folder.")
    for file, target in zip(files, targets, strict=True):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
        print(target)
