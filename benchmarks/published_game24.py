"""The published Game of 24 search (Yao et al. 2023), made again from its recorded replies.

    python benchmarks/published_game24.py DIR

The real search selects; the record only answers. Prints how many puzzles any of the five kept
thoughts solves, how many the top one solves, and how many frontiers are those of the paper's run.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

from published import lines, recorded

import tot_lab as tl
from tot_lab.core.records import Note, Scored


@dataclass
class Tally:
    puzzles: int = 0
    solved: int = 0
    top: int = 0
    equal: int = 0
    frontiers: int = 0
    unread: int = 0


async def main(folder: str) -> Tally:
    tally = Tally()
    for task, model in recorded(folder):
        run = await tl.Lab(model, runs=None).run(tl.presets.game24(), task)
        levels = [e.data["kept"] for e in run.events if isinstance(e, Note) and e.name == "tot.pruned"]
        for kept, step in zip(levels, model.puzzle["steps"], strict=True):
            tally.equal += [lines(run.tree.texts(id)) for id in kept] == step["select_new_ys"]
            tally.frontiers += 1
        answers = [task.domain.answer(task, run.tree.texts(id)) or "" for id in levels[-1]]
        right = [task.grade(answer) == 1.0 for answer in answers]
        tally.puzzles += 1
        tally.solved += any(right)
        tally.top += right[0]
        tally.unread += sum(e.draws.count(None) for e in run.events if isinstance(e, Scored))
    return tally


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    done = asyncio.run(main(sys.argv[1]))
    print(
        f"solved {done.solved} of {done.puzzles} (top answer {done.top}); "
        f"frontiers equal {done.equal} of {done.frontiers}; unread draws {done.unread}"
    )
