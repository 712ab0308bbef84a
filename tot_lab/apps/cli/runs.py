"""`tot-lab replay`, `show` and `export`: work with recorded runs.

A run is named by the path of its journal. `LOG.json#3` names run 3 of a log that another program
wrote, which is `tl.load("LOG.json")[3]`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tot_lab.analysis.sweep_tables import csv
from tot_lab.apps.cli.arguments import InvalidArgument, add_cache, add_runs, command, existing_cache
from tot_lab.core.files import write_whole
from tot_lab.models import CacheError
from tot_lab.record.importers import load, run_files
from tot_lab.record.journal import JournalError
from tot_lab.views.explorer.page import save_html
from tot_lab.views.explorer.sweep_page import save_html as save_sweep

if TYPE_CHECKING:
    from tot_lab.record.run import Run


def add(commands: Any) -> None:
    """Add the commands `replay`, `show` and `export`."""
    replay = command(commands, "replay", "repeat runs without a model, and compare every record", _replay)
    add_runs(replay)
    add_cache(replay, "read replies from this cache (default: from the runs themselves)")
    show = command(
        commands, "show", "show a run, two side by side, or all runs of a folder or log in the browser", _show
    )
    show.add_argument("run", type=Path, metavar="RUN", help=f"{_RUN_HELP}, or a folder or log of several")
    show.add_argument("other", type=Path, nargs="?", metavar="OTHER", help="a second run to compare with")
    show.add_argument(
        "--out", type=Path, metavar="FILE", help="write the page to this file (default: a temporary file)"
    )
    show.add_argument("--no-open", action="store_true", help="write the page without opening a browser")
    export = command(commands, "export", "convert a run to another format", _export)
    export.add_argument("run", type=Path, metavar="RUN", help=_RUN_HELP)
    export.add_argument(
        "--to", type=Path, required=True, metavar="FILE", help=f"file to write: {_describe_formats()}"
    )


_RUN_HELP = "a run's journal, or LOG.json#3, run 3 of a log of another program (counted from 0)"


def _replay(args: argparse.Namespace) -> int:
    """Replay every run. Returns 1 if a run differs from its record, or cannot be replayed."""
    cache = existing_cache(args.cache) if args.cache else None
    differing = 0
    for path in find_journals(args.runs):
        try:
            replay = asyncio.run(load_run(path).replay(cache=cache))
        except (OSError, ValueError, LookupError, CacheError) as error:
            identical, message = False, str(error)
        else:
            identical = replay.identical
            message = f"identical, {replay.records} records" if identical else str(replay.divergence)
        differing += not identical
        print(f"{path}: {message.removeprefix(f'{path}: ')}")
    return int(differing > 0)


def _show(args: argparse.Namespace) -> None:
    out = args.out or Path(tempfile.mkdtemp(prefix="tot-lab-")) / f"{args.run.resolve().stem}.html"
    shown = load_run(args.run) if args.other else _loaded(args.run)
    if isinstance(shown, list):
        page = save_sweep(shown, out)
    else:
        page = save_html(shown, out, load_run(args.other) if args.other else None)
    page = page.resolve()
    print(page)
    if not args.no_open and not webbrowser.open(page.as_uri()):
        print(
            "No browser was found. Open the page in one, as a file, here or on another machine: it needs no "
            "network and no other file.",
            file=sys.stderr,
        )


def _export(args: argparse.Namespace) -> None:
    """Convert the run to the format that the extension of `--to` names."""
    write = _WRITERS.get(args.to.suffix)
    if write is None:
        raise InvalidArgument(f"{args.to}: unknown format. A run is exported to {_describe_formats()}.")
    write(load_run(args.run), args.to)
    print(args.to)


def _to_graphml(run: Run, path: Path) -> None:
    from networkx import generate_graphml  # noqa: PLC0415

    write_whole(path, "\n".join(generate_graphml(run.graph())).encode())


_WRITERS: dict[str, Callable[[Run, Path], object]] = {
    ".html": lambda run, path: run.save_html(path),
    **dict.fromkeys((".svg", ".pdf", ".png"), lambda run, path: run.save_figure(path)),
    ".graphml": _to_graphml,
    ".csv": lambda run, path: write_whole(path, csv(run.nodes_df()).encode()),
}


def _describe_formats() -> str:
    return "NAME.html (explorer), NAME.svg, .pdf or .png (tree), NAME.graphml, NAME.csv (thoughts)"


def find_journals(paths: Sequence[Path]) -> list[Path]:
    """Return the files in `paths`, with each folder replaced by its non-empty journals.

    Subfolders, such as those of sweeps, are searched too.
    """
    return [file for path in paths for file in (run_files(path, (".jsonl",)) if path.is_dir() else [path])]


def load_run(path: Path) -> Run:
    """Load the run at `path`, which is a journal or `LOG.json#N`."""
    if path.is_dir():
        raise InvalidArgument(f"{path}: is a folder. {_EXPECTED}")
    loaded = _loaded(path)
    if isinstance(loaded, list):
        raise _several(path, path, len(loaded))
    return loaded


def _loaded(path: Path) -> Run | list[Run]:
    """Load the run at `path`, or a list of runs if `path` is a folder or a log of several runs."""
    file, mark, number = str(path).rpartition("#")
    if path.exists() or not (mark and number.isascii() and number.isdecimal()):
        file, number = str(path), ""
    try:
        loaded: Run | list[Run] = load(file)
    except OSError as error:
        if Path(file).is_dir():
            raise
        is_absent = isinstance(error, FileNotFoundError)
        wrong = "no such file" if is_absent else f"cannot be read ({error.strerror})"
        raise InvalidArgument(f"{path}: {wrong}. {_EXPECTED}") from None
    except JournalError as error:
        raise InvalidArgument(error) from None
    if isinstance(loaded, list) and not loaded:
        raise InvalidArgument(f"{path}: contains no runs.")
    if not number:
        several = isinstance(loaded, list) and (len(loaded) != 1 or Path(file).is_dir())
        return loaded if several or not isinstance(loaded, list) else loaded[0]
    if not isinstance(loaded, list):
        raise InvalidArgument(f"{path}: {file} contains one run. Name it without #{number}.")
    if int(number) >= len(loaded):
        raise _several(path, file, len(loaded))
    return loaded[int(number)]


def _several(path: Path, file: str | Path, runs: int) -> InvalidArgument:
    return InvalidArgument(f"{path}: a log of {runs} runs. Name one: {file}#0 to #{runs - 1}.")


_EXPECTED = "Expected a run's journal, NAME.jsonl."
