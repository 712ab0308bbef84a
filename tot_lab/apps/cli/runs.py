"""`tot-lab replay`, `show` and `export`: runs that are there.

A run is named by its journal. A published log holds many: `LOG.json#3` is the one that
`tl.load("LOG.json")[3]` is.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tot_lab.analysis.sweep_tables import csv
from tot_lab.apps.cli.arguments import Unusable, add_cache, add_runs, command, existing_cache
from tot_lab.core.files import write_whole
from tot_lab.models import CacheError
from tot_lab.record.importers import load
from tot_lab.record.journal import JournalError
from tot_lab.views.explorer.page import save_html
from tot_lab.views.report import tree_svg

if TYPE_CHECKING:
    from tot_lab.record.run import Run


def add(commands: Any) -> None:
    """Their words."""
    replay = command(commands, "replay", "make runs again with no model, and compare every record", _replay)
    add_runs(replay)
    add_cache(replay, "take the replies from this cache; without it, from the runs themselves")
    show = command(commands, "show", "look into a run, or into two side by side, in the browser", _show)
    show.add_argument("run", type=Path, metavar="RUN", help=_ONE)
    show.add_argument("other", type=Path, nargs="?", metavar="OTHER", help="another, to compare")
    show.add_argument(
        "--out", type=Path, metavar="FILE", help="keep the page here (default: a temporary file)"
    )
    show.add_argument("--no-open", action="store_true", help="only write the page")
    export = command(commands, "export", "write a run in another form", _export)
    export.add_argument("run", type=Path, metavar="RUN", help=_ONE)
    export.add_argument("--to", type=Path, required=True, metavar="FILE", help=f"what to write: {_endings()}")


_ONE = "a run's journal, or LOG.json#3, run 3 of a published log (they count from 0)"


def _replay(asked: argparse.Namespace) -> int:
    """Every run again; 1 when one came out otherwise."""
    cache = existing_cache(asked.cache) if asked.cache else None
    other = 0
    for path in journals_in(asked.runs):
        try:
            replay = asyncio.run(run_in(path).replay(cache=cache))
        except (OSError, ValueError, LookupError, CacheError) as error:
            identical, said = False, str(error)
        else:
            identical = replay.identical
            said = f"identical, {replay.records} records" if identical else str(replay.divergence)
        other += not identical
        print(f"{path}: {said.removeprefix(f'{path}: ')}")
    return int(other > 0)


def _show(asked: argparse.Namespace) -> None:
    run, other = run_in(asked.run), run_in(asked.other) if asked.other else None
    out = asked.out or Path(tempfile.mkdtemp(prefix="tot-lab-")) / f"{asked.run.stem}.html"
    page = save_html(run, out, other).resolve()
    if asked.no_open or not webbrowser.open(page.as_uri()):
        print(page)


def _export(asked: argparse.Namespace) -> None:
    """The run in the form that the file's ending names."""
    write = _FORMS.get(asked.to.suffix)
    if write is None:
        raise Unusable(f"{asked.to}: a run is exported to {_endings()}")
    write(run_in(asked.run), asked.to)
    print(asked.to)


def _to_svg(run: Run, path: Path) -> None:
    write_whole(path, tree_svg(run, background="white").encode())


def _to_graphml(run: Run, path: Path) -> None:
    from networkx import generate_graphml  # noqa: PLC0415

    write_whole(path, "\n".join(generate_graphml(run.graph())).encode())


_FORMS: dict[str, Callable[[Run, Path], object]] = {
    ".html": lambda run, path: run.save_html(path),
    ".svg": _to_svg,
    ".graphml": _to_graphml,
    ".csv": lambda run, path: write_whole(path, csv(run.nodes_df()).encode()),
}


def _endings() -> str:
    return "NAME.html (to explore), NAME.svg (the tree), NAME.graphml, NAME.csv (its thoughts)"


def journals_in(paths: Sequence[Path]) -> list[Path]:
    """The journals that are named, and those in the folders that are, but for runs that have not begun."""
    found: list[Path] = []
    for path in paths:
        found += sorted(f for f in path.glob("*.jsonl") if f.stat().st_size) if path.is_dir() else [path]
    if not found:
        raise FileNotFoundError(f"no runs in {', '.join(map(str, paths))}")
    return found


def run_in(path: Path) -> Run:
    """The run that a person named."""
    file, mark, number = str(path).rpartition("#")
    if path.exists() or not (mark and number.isdigit()):
        file, number = str(path), ""
    try:
        if Path(file).is_dir():
            raise Unusable(f"{path}: this is a folder; {_EXPECTED}")
        loaded: Run | list[Run] = load(file)
    except OSError as error:
        is_absent = isinstance(error, FileNotFoundError)
        wrong = "there is no such file" if is_absent else f"it cannot be read ({error.strerror})"
        raise Unusable(f"{path}: {wrong}; {_EXPECTED}") from None
    except JournalError as error:
        raise Unusable(error) from None
    if not isinstance(loaded, list):
        if number:
            raise Unusable(f"{path}: {file} is one run; name it without #{number}")
        return loaded
    if not number or int(number) >= len(loaded):
        raise Unusable(
            f"{path}: a published log of {len(loaded)} runs; name one, {file}#0 (to #{len(loaded) - 1})"
        )
    return loaded[int(number)]


_EXPECTED = "expected a run's journal, NAME.jsonl"
