"""`tot-lab cache`, `model` and `trust`: what is kept on this machine: answers, weights and approvals.

Nothing is forgotten without `--yes`, and a wrong name makes no empty cache. An approval names what it
allows.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from tot_lab.apps.cli.arguments import Unusable, add_cache, add_runs, command, existing_cache, naming
from tot_lab.apps.cli.runs import journals_in, run_in
from tot_lab.lab.settings import FILE, approve_project_file, project_file
from tot_lab.lab.sharing import contents_of, export_calls, import_calls, prune, replies_by_key, verify
from tot_lab.models import Cache
from tot_lab.models.weights import KNOWN, pull


def add(commands: Any) -> None:
    """Their words."""
    cache = command(commands, "cache", "the answers that are known", _cache)
    actions = cache.add_subparsers(dest="action", required=True, metavar="ACTION")
    add_cache(command(actions, "stats", "what it holds"))
    add_cache(command(actions, "verify", "look whether every entry is what was written"))
    export = command(actions, "export", "write the calls that given runs used to one file")
    export.add_argument("file", type=Path, help="what to write, NAME.jsonl.gz")
    add_runs(export)
    add_cache(export)
    taken = command(actions, "import", "take in a file that was exported, after checking it")
    taken.add_argument("file", type=Path)
    add_cache(taken)
    merged = command(actions, "merge", "take in another cache")
    merged.add_argument("folder", type=Path)
    add_cache(merged)
    pruned = command(actions, "prune", "forget every call that none of the given runs used")
    add_runs(pruned)
    add_cache(pruned)
    pruned.add_argument("--yes", action="store_true", help="really do it; else it is only counted")
    model = command(commands, "model", "models that run on this machine", _model)
    pulled = command(
        model.add_subparsers(dest="action", required=True, metavar="ACTION"),
        "pull",
        "fetch a model's weights, once",
    )
    pulled.add_argument("name", choices=sorted(KNOWN), help="which")
    trusted = command(
        commands, "trust", f"approve a {FILE} that sends a key to a server of its own choice", _trust
    )
    trusted.epilog = (
        "The approval holds until the file changes. It is needed once for a file that came from others."
    )
    trusted.add_argument(
        "file", nargs="?", type=Path, metavar="FILE", help=f"(default: the nearest {FILE} here or above)"
    )


def _trust(asked: argparse.Namespace) -> None:
    path = project_file(Path.cwd()) if asked.file is None else asked.file.absolute()
    if path is None:
        raise Unusable(f"there is no {FILE} in this folder or above it")
    with naming():
        named = approve_project_file(path)
    print(
        "\n".join(
            [f"{path} is approved as it is now. It names:", *(f"  {one}" for one in named or ["no server"])]
        )
    )


def _model(asked: argparse.Namespace) -> None:
    print(pull(asked.name, progress=sys.stderr.isatty()))  # the only action


def _cache(asked: argparse.Namespace) -> int:
    """The care of a cache; 1 when something is wrong with it."""
    cache = Cache(asked.cache) if asked.action in ("import", "merge") else existing_cache(asked.cache)
    if asked.action == "stats":
        found = contents_of(cache)
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
        runs = [run_in(path) for path in journals_in(asked.runs)]
        print(f"{asked.file}: {export_calls(asked.file, runs, cache):,} calls of {len(runs)} runs")
    elif asked.action in ("import", "merge"):
        new, known = import_calls(
            cache, existing_cache(asked.file if asked.action == "import" else asked.folder)
        )
        print(f"{cache.path}: {new:,} new calls, {known:,} were there already")
    else:
        kept = replies_by_key([run_in(path) for path in journals_in(asked.runs)])
        if asked.cache is None:
            print("This cache is shared by all your projects: what their runs used goes too.")
        gone = prune(cache, kept, really=asked.yes)
        print(f"{cache.path}: {gone:,} calls {'forgotten' if asked.yes else 'would be forgotten; say --yes'}")
    return 0
