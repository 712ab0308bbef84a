"""The published logs of Everything of Thoughts (Ding et al. 2023): success and frontiers.

    python benchmarks/published_xot.py DIR

DIR holds the logs in folders, one for each game. Success is graded from the answers by this project's
domains; the verdicts in the logs are not used. A frontier follows from the logged values if it holds the
best candidates. Levels on which the values of a kept and a pruned candidate are equal (ties), or which have
no value for a candidate (missing), decide nothing and are counted apart.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import tot_lab as tl
from tot_lab.core.tree import Node
from tot_lab.record.search_notes import notes_of


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


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    report(Path(sys.argv[1]))
