"""`tot-lab cache` and `model`: manage cached replies and model weights.

Cached calls are deleted only with `--yes`. Only `import` and `merge` create a cache, so that any other
command reports a mistyped path.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tot_lab.apps.cli.arguments import add_cache, add_runs, command, existing_cache
from tot_lab.apps.cli.help import first_sentence
from tot_lab.apps.cli.runs import find_journals, load_run
from tot_lab.core.registry import offered
from tot_lab.lab.sharing import contents_of, export_calls, import_calls, prune, replies_by_key, verify
from tot_lab.models import Cache, simulated_models
from tot_lab.models.weights import KNOWN, models_folder, pull
from tot_lab.record.run import SMALL


def add(commands: Any) -> None:
    """Add the commands `cache` and `model`."""
    cache = command(commands, "cache", "manage the cache of model replies", _cache)
    actions = cache.add_subparsers(dest="action", required=True, metavar="ACTION")
    add_cache(command(actions, "stats", "show the number of calls, their models and their cost"))
    add_cache(command(actions, "verify", "check every entry for damage"))
    export = command(actions, "export", "write the calls used by the given runs to one file")
    export.add_argument("file", type=Path, help="file to write, NAME.jsonl.gz")
    add_runs(export)
    add_cache(export)
    taken = command(actions, "import", "check an exported file and add its calls")
    taken.add_argument("file", type=Path)
    add_cache(taken)
    merged = command(actions, "merge", "add the calls of another cache")
    merged.add_argument("folder", type=Path)
    add_cache(merged)
    pruned = command(actions, "prune", "delete every call that none of the given runs used")
    add_runs(pruned)
    add_cache(pruned)
    pruned.add_argument(
        "--yes", action="store_true", help="delete the calls; without it they are only counted"
    )
    model = command(commands, "model", "list models, and download the weights of local ones", _model)
    actions = model.add_subparsers(dest="action", required=True, metavar="ACTION")
    command(actions, "list", "list the models that --model accepts, and which weights are on this machine")
    pulled = command(actions, "pull", "download a model's weights")
    pulled.add_argument("name", choices=sorted(KNOWN), help="name of the model")


def _model(args: argparse.Namespace) -> None:
    print(pull(args.name) if args.action == "pull" else describe_models())


def describe_models() -> str:
    """Return the names that `--model` accepts, each with the key, download or server that it needs."""
    rows = ["in this package, free:", f"  {'tiny/numbers':<28}A {SMALL}: the Game of 24 and Countdown."]
    rows += ["", "simulated, free:"]
    rows += [f"  {kind.kind:<28}{first_sentence(kind)}" for kind in simulated_models()]
    rows += ["", f"on this machine (weights in {models_folder()}; pip install 'tot-lab[local]'):"]
    for name, weights in KNOWN.items():
        is_here = (models_folder() / f"{name}.gguf").is_file()
        state = "downloaded" if is_here else f"tot-lab model pull {name}"
        rows.append(f"  {f'local/{name}':<28}{weights.size / 1e6:>5,.0f} MB, {weights.licence}: {state}")
    rows += ["", "of a provider, by their litellm names, or on a server of yours:"]
    rows += [f"  {name:<28}{needs}" for name, needs in _ELSEWHERE.items()]
    packages = sorted(offered("models"))
    return "\n".join([*rows, *(["", f"from installed packages: {', '.join(packages)}"] if packages else [])])


_ELSEWHERE = {
    "gpt-4.1-mini": "OPENAI_API_KEY in the environment",
    "anthropic/claude-haiku-4-5": "ANTHROPIC_API_KEY in the environment",
    "gemini/gemini-2.5-flash": "GEMINI_API_KEY in the environment",
    "ollama/qwen3:8b": "Ollama, running on this machine",
    "vllm/NAME": "base_url=http://localhost:8000/v1, which is the default",
}


def _export(file: Path, journals: Sequence[Path], cache: Cache) -> int:
    """Export the calls of runs, and print what the file contains and lacks.

    Returns 1 if the cache lacks calls that it should contain: those of real models.
    """
    runs = [load_run(path) for path in journals]
    made = export_calls(file, runs, cache)
    print(f"{file}: {made.calls:,} calls of {made.runs:,} runs")
    for folder, count in Counter(path.parent for path in journals).items():
        print(f"{count:>10,} runs in {folder}")
    if made.failed:
        print(f"not in the file: {made.failed:,} failed calls, which are only in the journals")
    if made.uncached:
        print(
            f"not in the file: {made.uncached:,} calls that were not cached: those of simulated models, "
            f"functions and tools with effects are made again"
        )
    if made.lost:
        print(
            f"missing: {sum(made.lost.values()):,} calls of {len(made.lost):,} runs are not in the cache "
            f"{cache.path}:",
            file=sys.stderr,
        )
        names = {run.id: path for run, path in zip(runs, journals, strict=True)}
        for name, count in made.lost.items():
            print(f"{count:>10,} of {names[name]}", file=sys.stderr)
    return int(bool(made.lost))


def _cache(args: argparse.Namespace) -> int:
    """Carry out `tot-lab cache`. Returns 1 if `verify` finds a damaged entry, or `_export` returns 1."""
    cache = Cache(args.cache) if args.action in ("import", "merge") else existing_cache(args.cache)
    if args.action == "stats":
        found = contents_of(cache)
        cost = "unknown" if found.cost is None else f"{found.cost:.4f} USD"
        total = sum(found.calls.values())
        print(f"{cache.path}: {total:,} calls in {found.stores} stores, {found.size:,} bytes")
        print("\n".join(f"{count:>10,}  {model}" for model, count in found.calls.items()))
        print(f"total cost: {cost}")
    elif args.action == "verify":
        wrong = verify(cache)
        print("\n".join(wrong) or f"{cache.path}: all entries are intact")
        return int(bool(wrong))
    elif args.action == "export":
        return _export(args.file, find_journals(args.runs), cache)
    elif args.action in ("import", "merge"):
        new, known = import_calls(
            cache, existing_cache(args.file if args.action == "import" else args.folder)
        )
        print(f"{cache.path}: {new:,} new calls, {known:,} already present")
    else:
        kept = replies_by_key([load_run(path) for path in find_journals(args.runs)])
        if args.cache is None:
            print("This cache is shared by all your projects: calls used only by their runs are deleted too.")
        gone = prune(cache, kept, really=args.yes)
        print(f"{cache.path}: {gone:,} calls {'deleted' if args.yes else 'would be deleted; add --yes'}")
    return 0
