"""The published Game of 24 search (Yao et al. 2023), made again from its recorded replies.

    python benchmarks/published_game24.py DIR

The real search selects; the record only answers. Prints how many puzzles any of the five kept
thoughts solves, how many the top one solves, and how many frontiers are those of the paper's run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import tot_lab as tl
from tot_lab.core.records import Scored
from tot_lab.record.search_notes import notes_of


@dataclass
class Tally:
    puzzles: int = 0
    solved: int = 0
    top: int = 0
    equal: int = 0
    frontiers: int = 0
    unreadable: int = 0


def recorded(folder: str) -> list[tl.Run]:
    """The runs of the Game of 24 logs in `folder`."""
    files = sorted(Path(folder).glob("*game24*.json"))
    if not files:
        raise SystemExit(f"no *game24*.json in {folder}")
    return [run for file in files for run in tl.load(file)]


def frontiers(run: tl.Run) -> Iterator[list[list[str]]]:
    """The paths that were kept of each level, best first."""
    for note in notes_of(run):
        if note.name == "tot.pruned":
            yield [run.tree.texts(id) for id in note.data["kept"]]


def right(run: tl.Run, path: list[str]) -> bool:
    """Whether a path holds a right answer."""
    assert run.task is not None
    answer = run.task.domain.answer(run.task, path)
    return answer is not None and run.task.grade(answer) == 1.0


def main(folder: str) -> Tally:
    tally = Tally()
    published = recorded(folder)
    for log, again in zip(published, tl.counterfactual(published, tl.presets.game24()), strict=True):
        levels = list(frontiers(again.run))
        for kept, told in zip(levels, frontiers(log), strict=True):
            tally.equal += kept == told
            tally.frontiers += 1
        found = [right(again.run, path) for path in levels[-1]]
        tally.puzzles += 1
        tally.solved += any(found)
        tally.top += found[0]
        tally.unreadable += sum(e.samples.count(None) for e in again.run.events if isinstance(e, Scored))
    return tally


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    done = main(sys.argv[1])
    print(
        f"solved {done.solved} of {done.puzzles} (top answer {done.top}); "
        f"frontiers equal {done.equal} of {done.frontiers}; unreadable draws {done.unreadable}"
    )
