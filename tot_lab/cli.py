"""`tot-lab`: what can be had from a shell.

Rule: a command does one thing a person wants, says where it put what it made, and overwrites
nothing but its own report. The exit code is 2 when what was named is of no use, 1 when
something else went wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
import webbrowser
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tot_lab.domains import game24_tasks
from tot_lab.files import write_whole
from tot_lab.journal import JournalError
from tot_lab.lab import Lab
from tot_lab.models import Cache, CacheError, SimGame24
from tot_lab.models.cache import default_folder
from tot_lab.models.weights import KNOWN, pull
from tot_lab.run import load
from tot_lab.sharing import export_calls, held, prune, take_in, used, verify
from tot_lab.strategies import TreeOfThoughts
from tot_lab.version import __version__

if TYPE_CHECKING:
    from tot_lab.run import Run

DEMO = TreeOfThoughts(generate="propose", branch_factor=5, beam_width=2)
PLAYER = SimGame24(skill=0.5, noise=0.2, garble=0.05)  # weak enough that a search can fail


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` (default: the shell's words) names; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="tot-lab", description="Study how language models reason by search."
    )
    parser.add_argument("--version", action="version", version=f"tot-lab {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    demo = _command(commands, "demo", "run 20 searches on a simulated model and write a report")
    demo.add_argument("folder", nargs="?", default="demo", type=Path, help="where to write (default: demo)")
    notebooks = _command(commands, "notebooks", "copy the notebooks and their data")
    notebooks.add_argument("folder", type=Path, metavar="DIR", help="where to copy them")
    replay = _command(commands, "replay", "make runs again with no model, and compare every record")
    _add_runs(replay)
    _add_cache(replay, "take the replies from this cache; without it, from the runs themselves")
    show = _command(commands, "show", "look into a run, or into two side by side, in the browser")
    show.add_argument("run", type=Path, metavar="RUN", help="a run's journal")
    show.add_argument("other", type=Path, nargs="?", metavar="OTHER", help="another, to compare")
    show.add_argument(
        "--out", type=Path, metavar="FILE", help="keep the page here (default: a temporary file)"
    )
    show.add_argument("--no-open", action="store_true", help="only write the page")
    export = _command(commands, "export", "write a run in another form")
    export.add_argument("run", type=Path, metavar="RUN", help="a run's journal")
    export.add_argument("--to", type=Path, required=True, metavar="FILE", help=f"what to write: {_endings()}")
    _add_cache_commands(_command(commands, "cache", "the answers that are known"))
    model = _command(commands, "model", "models that run on this machine")
    actions = model.add_subparsers(dest="action", required=True, metavar="ACTION")
    pulled = _command(actions, "pull", "fetch a model's weights, once")
    pulled.add_argument("name", choices=sorted(KNOWN), help="which")
    asked = parser.parse_args(argv)
    try:
        return int(_COMMANDS[asked.command](asked) or 0)
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; what was finished is kept", file=sys.stderr)
        return 130
    except (OSError, ValueError, CacheError, ModuleNotFoundError) as error:
        said = str(error)
        if isinstance(error, OSError) and error.filename:  # without the system's number
            said = f"{error.filename2 or error.filename}: {error.strerror}"
        print(f"tot-lab: {said}", file=sys.stderr)
        return 2 if isinstance(error, _Unusable) else 1


class _Unusable(ValueError):
    """What was named is not what the command takes."""


def _command(commands: Any, name: str, what: str) -> argparse.ArgumentParser:
    """One more command, with one line of help wherever it is shown."""
    made: argparse.ArgumentParser = commands.add_parser(
        name, help=what, description=f"{what[0].upper()}{what[1:]}."
    )
    return made


def _add_runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="a run's journal, or a folder of them"
    )


def _add_cache(parser: argparse.ArgumentParser, what: str = "which (default: your own)") -> None:
    parser.add_argument("--cache", type=Path, metavar="DIR", help=what)


def _add_cache_commands(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_cache(_command(actions, "stats", "what it holds"))
    _add_cache(_command(actions, "verify", "look whether every entry is what was written"))
    export = _command(actions, "export", "write the calls that given runs used to one file")
    export.add_argument("file", type=Path, help="what to write, NAME.jsonl.gz")
    _add_runs(export)
    _add_cache(export)
    taken = _command(actions, "import", "take in a file that was exported, after checking it")
    taken.add_argument("file", type=Path)
    _add_cache(taken)
    merged = _command(actions, "merge", "take in another cache")
    merged.add_argument("folder", type=Path)
    _add_cache(merged)
    pruned = _command(actions, "prune", "forget every call that none of the given runs used")
    _add_runs(pruned)
    _add_cache(pruned)
    pruned.add_argument("--yes", action="store_true", help="really do it; else it is only counted")


def _demo(asked: argparse.Namespace) -> None:
    asyncio.run(run_demo(asked.folder))


def _notebooks(asked: argparse.Namespace) -> None:
    copy_notebooks(asked.folder)


def _model(asked: argparse.Namespace) -> None:
    print(pull(asked.name, progress=sys.stderr.isatty()))  # the only action


def _replay(asked: argparse.Namespace) -> int:
    """Every run again; 1 when one came out otherwise."""
    cache = _existing(asked.cache) if asked.cache else None
    other = 0
    for path in _journals(asked.runs):
        try:
            replay = asyncio.run(_run(path).replay(cache=cache))
        except (OSError, ValueError, LookupError, CacheError) as error:
            identical, said = False, str(error)
        else:
            identical = replay.identical
            said = f"identical, {replay.records} records" if identical else str(replay.divergence)
        other += not identical
        print(f"{path}: {said.removeprefix(f'{path}: ')}")
    return int(other > 0)


def _show(asked: argparse.Namespace) -> None:
    from tot_lab.explorer.page import save_html  # noqa: PLC0415

    run, other = _run(asked.run), _run(asked.other) if asked.other else None
    out = asked.out or Path(tempfile.mkdtemp(prefix="tot-lab-")) / f"{asked.run.stem}.html"
    page = save_html(run, out, other).resolve()
    if asked.no_open or not webbrowser.open(page.as_uri()):
        print(page)


def _export(asked: argparse.Namespace) -> None:
    """The run in the form that the file's ending names."""
    write = _FORMS.get(asked.to.suffix)
    if write is None:
        raise _Unusable(f"{asked.to}: a run is exported to {_endings()}")
    write(_run(asked.run), asked.to)
    print(asked.to)


def _to_svg(run: Run, path: Path) -> None:
    from tot_lab.report import tree_svg  # noqa: PLC0415

    write_whole(path, tree_svg(run, background="white").encode())


def _to_graphml(run: Run, path: Path) -> None:
    from networkx import generate_graphml  # noqa: PLC0415

    write_whole(path, "\n".join(generate_graphml(run.graph())).encode())


_FORMS: dict[str, Callable[[Run, Path], object]] = {
    ".html": lambda run, path: run.save_html(path),
    ".svg": _to_svg,
    ".graphml": _to_graphml,
    ".csv": lambda run, path: write_whole(path, run.nodes_df().to_csv(index=False).encode()),
}


def _endings() -> str:
    return "NAME.html (to explore), NAME.svg (the tree), NAME.graphml, NAME.csv (its thoughts)"


def _cache(asked: argparse.Namespace) -> int:
    """The care of a cache; 1 when something is wrong with it."""
    cache = Cache(asked.cache) if asked.action in ("import", "merge") else _existing(asked.cache)
    if asked.action == "stats":
        found = held(cache)
        cost = "unknown" if found.cost is None else f"{found.cost:.4f} USD"
        total = sum(found.calls.values())
        print(f"{cache.path}: {total:,} calls in {found.stores} stores, {found.size:,} bytes")
        print("\n".join(f"{count:>10,}  {model}" for model, count in found.calls.items()))
        print(f"what they cost: {cost}")
    elif asked.action == "verify":
        wrong = verify(cache)
        print("\n".join(wrong) or f"{cache.path}: every entry is what was written")
        return int(bool(wrong))
    elif asked.action == "export":
        runs = [_run(path) for path in _journals(asked.runs)]
        print(f"{asked.file}: {export_calls(asked.file, runs, cache):,} calls of {len(runs)} runs")
    elif asked.action in ("import", "merge"):
        new, known = take_in(cache, _existing(asked.file if asked.action == "import" else asked.folder))
        print(f"{cache.path}: {new:,} new calls, {known:,} were there already")
    else:
        kept = used([_run(path) for path in _journals(asked.runs)])
        if asked.cache is None:
            print("This cache is shared by all your projects: what their runs used goes too.")
        gone = prune(cache, kept, really=asked.yes)
        print(f"{cache.path}: {gone:,} calls {'forgotten' if asked.yes else 'would be forgotten; say --yes'}")
    return 0


_COMMANDS: dict[str, Callable[[argparse.Namespace], int | None]] = {
    "demo": _demo,
    "notebooks": _notebooks,
    "model": _model,
    "replay": _replay,
    "show": _show,
    "export": _export,
    "cache": _cache,
}


def _existing(path: Path | None) -> Cache:
    """A cache that is there: a wrong name makes no empty one."""
    path = path or default_folder()
    cache = Cache(path, create=False) if path.exists() else None
    if cache is None or not cache.stores:
        raise FileNotFoundError(f"{path}: there is no cache here")
    return cache


def _journals(paths: Sequence[Path]) -> list[Path]:
    """The journals that are named, and those in the folders that are."""
    found = [file for path in paths for file in (sorted(path.glob("*.jsonl")) if path.is_dir() else [path])]
    if not found:
        raise FileNotFoundError(f"no runs in {', '.join(map(str, paths))}")
    return found


def _run(path: Path) -> Run:
    """The run in a journal that a person named."""
    try:
        return load(path)
    except OSError as error:
        wrong = (
            "there is no such file"
            if isinstance(error, FileNotFoundError)
            else "this is a folder"
            if isinstance(error, IsADirectoryError)
            else f"it cannot be read ({error.strerror})"
        )
        raise _Unusable(f"{path}: {wrong}; expected a run's journal, NAME.jsonl") from None
    except JournalError as error:
        raise _Unusable(error) from None


async def run_demo(folder: Path) -> None:
    """20 Games of 24 by Tree of Thoughts: a table, the runs, and one HTML report."""
    from tqdm import tqdm  # noqa: PLC0415

    from tot_lab.report import report_html  # noqa: PLC0415

    kept = folder / "runs" / datetime.now().strftime("%Y%m%d-%H%M%S")  # a folder for each demo's runs
    lab = Lab(PLAYER, runs=kept)
    runs = []
    for task in tqdm(game24_tasks(20), desc="Game of 24", unit="search"):
        runs.append(await lab.run(DEMO, task))
    print(demo_table(runs))
    right = sum(run.correct is True for run in runs)
    print(f"\n{right} of {len(runs)} solved, {sum(run.usage.calls for run in runs):,} calls of sim/game24,")
    print("a simulated model: it needs no key and no network, and says nothing about a real one.")
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
            f"{run.question:<12}{run.answer or '(none)':<26}{correct:<9}{run.stopped or '':<14}"
            f"{len(run.tree):>8}{run.usage.calls:>7}{tokens:>8,}"
        )
    return "\n".join(rows)


def copy_notebooks(folder: Path) -> None:
    """Copy the notebooks to `folder/notebooks` and their data to `folder/data`, as they lie in the
    project. A file that is there already is an error that names it; nothing is overwritten."""
    package = Path(__file__).parent
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
