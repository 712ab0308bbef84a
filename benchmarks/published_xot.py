"""The published logs of Everything of Thoughts (Ding et al. 2023): success, frontiers, cost of reading.

    python benchmarks/published_xot.py DIR

DIR holds the logs in folders, one for each game. Success is graded from the answers by this project's
domains; the verdicts in the logs are not used. A frontier follows from the logged values if it holds the
best candidates. Levels on which the values of a kept and a pruned candidate are equal (ties), or which have
no value for a candidate (missing), decide nothing and are counted apart.

The last lines compare reading 1,000 runs of 100 nodes with `json.load` of the same files, in CPU time, the
best of several alternating rounds. The files are made here.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tot_lab as tl
from tot_lab.core.tree import Node
from tot_lab.record.search_notes import notes_of

ROUNDS = 5


def levels(run: tl.Run) -> Iterator[tuple[list[Node], list[str]]]:
    """The candidates of each level, and the ids of those that were kept, best first."""
    tree, frontier = run.tree, ["0"]
    for note in notes_of(run):
        if note.name == "tot.pruned":
            children = [tree[id] for parent in frontier for id in tree[parent].children]
            yield (
                [node for node in children if node.by or node.state in ("kept", "pruned")],
                note.data["kept"],
            )
            frontier = note.data["kept"]


def verdict(candidates: list[Node], kept: list[str]) -> str:
    """Whether the values of a level lead to the frontier that was kept."""
    if any(node.score is None for node in candidates):
        return "missing"
    ranked = sorted(candidates, key=lambda node: -node.rank)
    last, next_ = ranked[len(kept) - 1 : len(kept)], ranked[len(kept) : len(kept) + 1]
    if last and next_ and last[0].score == next_[0].score:
        return "ties"
    return "equal" if [node.id for node in ranked[: len(kept)]] == kept else "different"


def report(folder: Path) -> None:
    print(f"{'log':<78}{'runs':>5}{'any':>5}{'first':>6}   frontiers: equal/decidable, ties, missing")
    for file in sorted(folder.glob("*/*.json")):
        runs = tl.load(file)
        first = sum(run.correct is True for run in runs)
        any_of_kept = sum(
            (run.correct if run.any_of_kept is None else run.any_of_kept) is True for run in runs
        )
        found = Counter(verdict(*level) for run in runs for level in levels(run))
        decidable = found["equal"] + found["different"]
        shown = f"{found['equal']}/{decidable}, {found['ties']}, {found['missing']}" if found else ""
        name = f"{file.parent.name}/{file.stem}"[:77]
        print(f"{name:<78}{len(runs):>5}{any_of_kept:>5}{first:>6}   {shown}")


# The cost of reading.


def nodes(seed: int) -> list[dict[str, object]]:
    """The rows of a run of 100 nodes."""
    dice = random.Random(seed)
    rows: list[dict[str, object]] = [{"id": "n0", "parent": None, "text": f"question {seed}", "score": 5.0}]
    for k in range(1, 100):
        text = f"step {k}: " + " ".join(str(dice.randrange(100)) for _ in range(12))
        prompt = f"Problem: question {seed}. Steps so far: " + "and then " * 8
        rows.append(
            {
                **{
                    "id": f"n{k}",
                    "parent": f"n{dice.randrange(k)}",
                    "text": text,
                    "score": dice.random() * 10,
                },
                **{"prompt": prompt, "reply": text, "tokens": dice.randrange(100)},
            }
        )
    return rows


def tree_log(runs: int, x: str) -> list[dict[str, object]]:
    """A log with 99 candidates per puzzle: one level with 9, and nine with 10."""
    entries = []
    for idx in range(runs):
        dice, ys, steps = random.Random(idx), [""], []
        for step in range(10):
            new_ys = [
                f"{ys[0]}{dice.randrange(9)} + {k} = {k} (left: {k} 2 3)\n" for k in range(9 + (step > 0))
            ]
            values = [dice.choice([0.001, 1.0, 20.0]) for _ in new_ys]
            kept = [new_ys[values.index(max(values))]]
            steps.append(
                {"step": step, "x": x, "ys": ys, "new_ys": new_ys, "values": values, "select_new_ys": kept}
            )
            ys = kept
        entries.append({"steps": steps, "idx": idx, "ys": ys, "infos": [{"r": 0}]})
    return entries


def cpu(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def ratio(name: str, read: Callable[[], object], parse: Callable[[], object]) -> None:
    """Print the CPU time of reading, as a multiple of that of parsing."""
    times = [(cpu(parse), cpu(read)) for _ in range(ROUNDS)]
    parsed, took = (min(column) for column in zip(*times, strict=True))
    print(f"{name:<40}{took:>7.2f} s, json.load {parsed:.2f} s: {took / parsed:.1f} times")


def reading(runs: int = 1000) -> None:
    columns: dict[str, Any] = {
        "score": "score",
        "score_range": (0, 10),
        "prompt": "prompt",
        "reply": "reply",
        "tokens": "tokens",
    }
    print(f"\nreading {runs:,} runs of 100 nodes, CPU time (target: at most 5 times json.load)")
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{seed}.json" for seed in range(runs)]
        for seed, file in enumerate(files):
            file.write_text(json.dumps(nodes(seed)))
        ratio(
            "tl.read_nodes",
            lambda: [tl.read_nodes(file, **columns) for file in files],
            lambda: [json.load(file.open()) for file in files],
        )
        for name, x in (("tl.load, Everything of Thoughts", "[1 2 3 4]"), ("tl.load, Princeton", "1 2 3 4")):
            log = Path(folder) / f"{name}.json"
            log.write_text(json.dumps(tree_log(runs, x)))
            ratio(name, lambda log=log: tl.load(log), lambda log=log: json.load(log.open()))  # type: ignore[misc]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    report(Path(sys.argv[1]))
    reading()
