"""What each search costs per thought: CPU beside beam search, and its growth with the size of the tree.

    python benchmarks/searches.py [--only NAME …] [--rounds 7] [--sizes 1000 10000 100000]

The model answers every call at once with a new step, and a function scores it in constant time. The runs are
recorded in memory. Printed for each registered search:

1. CPU per thought at 300 thoughts, divided by that of beam search (width 5, 5 children each). A round of the
   search and one of beam search take turns; the median of the pairs is printed.
2. CPU µs per thought at each of `--sizes`, and the slope of log(CPU) against log(thoughts): 1 is linear.
   A size is left out if the size before lets expect more than `--patience` seconds of CPU.

Figures only: nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import math
import statistics
import time
import zlib
from collections.abc import Sequence
from itertools import count
from typing import Any

import tot_lab as tl
from tot_lab.core.registry import built_in

TASK = tl.general("What is six times seven?")
BRANCH, DEPTH, SMALL = 5, 10, 300


def score(task: tl.Task, path: Sequence[str]) -> float:
    """A random reward below 1 that follows from the last step alone."""
    return zlib.crc32(path[-1].encode()) / 2**32


class Steps:
    """A model that answers at once, each time with another step."""

    def __init__(self) -> None:
        self.numbers = count()

    async def __call__(self, call: tl.Call) -> str:
        return f"step {next(self.numbers)}"


def settings(size: int) -> dict[str, Any]:
    """Each registered search, so that it makes about `size` thoughts. Beam search is the measure."""
    level = max(size // (DEPTH - 1), BRANCH)  # thoughts per level
    generate = [{"do": "generate", "count": BRANCH}, {"do": "keep", "count": max(level // BRANCH, 1)}]
    own: dict[str, dict[str, Any]] = {
        "beam_search": {"width": max(level // BRANCH, 1)},
        "sampled_beam": {"width": max(level // BRANCH, 1)},
        "prm_beam": {"width": max(level // BRANCH, 1), "count": BRANCH},
        "dvts": {"subtrees": max(level // BRANCH, 1), "count": BRANCH},
        "rebase": {"width": level},
        "particle_filter": {"particles": level},
        "particle_gibbs": {"particles": level // 2},
        "lats": {"iterations": size},
        "bg_mcts": {"iterations": size},
        "ab_mcts_a": {"iterations": size},
        "graph_of_thoughts": {"operations": generate * DEPTH},
        "a_star": {"cost": "steps", "heuristic": "score"},
    }
    return {name: search(**own.get(name, {})) for name, search in built_in("searches").items()}


def measure(search: Any, size: int) -> tuple[float, int]:
    """CPU seconds of one search of at most `size` thoughts, and the thoughts that it made."""
    evaluate: Any = score
    strategy = tl.TreeOfThoughts(
        propose=tl.Sample(count=BRANCH),
        evaluate=evaluate,
        search=search,
        stop=tl.Stop(depth=DEPTH, nodes=size + 1),
        answer=tl.answers.Best(),
    )
    lab = tl.Lab(Steps(), runs=None, mode="off")

    async def searched() -> tuple[float, int]:
        began = time.process_time()
        run = await lab.run(strategy, TASK)
        return time.process_time() - began, len(run.tree) - 1

    gc.collect()
    return asyncio.run(searched())


def per_thought(search: Any, size: int, thoughts: int = 1500) -> float:
    """CPU seconds per thought, over as many searches as make `thoughts`."""
    spent, made = 0.0, 0
    while made < thoughts:
        seconds, nodes = measure(search, size)
        spent, made = spent + seconds, made + nodes
    return spent / made


def slope(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """The slope of log(seconds) against log(size)."""
    if len({*sizes}) < 2:
        return math.nan
    return statistics.linear_regression([math.log(n) for n in sizes], [math.log(s) for s in seconds]).slope


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="*", help="names of searches (default: all)")
    parser.add_argument("--rounds", type=int, default=7, help="pairs of rounds")
    parser.add_argument("--sizes", type=int, nargs="*", default=[1_000, 10_000, 100_000])
    parser.add_argument("--patience", type=float, default=60.0, help="CPU seconds of one search at most")
    options = parser.parse_args()
    names = options.only or list(settings(SMALL))
    beam = settings(SMALL)["beam_search"]
    measure(beam, SMALL)  # imports
    head = "".join(f"{f'µs, {size:,}':>13}" for size in options.sizes)
    print(f"{'search':18}{'÷ beam':>8}{'(range)':>16}{head}{'slope':>8}   thoughts")
    for name in names:
        search = settings(SMALL)[name]
        pairs = [(per_thought(beam, SMALL), per_thought(search, SMALL)) for _ in range(options.rounds)]
        ratios = [own / measured for measured, own in pairs]
        sizes, seconds, cells = list[int](), list[float](), list[str]()
        for size in options.sizes:
            growth = slope(sizes, seconds) if len(sizes) > 1 else 1.0
            if sizes and seconds[-1] * (size / sizes[-1]) ** max(growth, 1.0) > options.patience:
                cells.append("-")
                continue
            spent, made = measure(settings(size)[name], size)
            sizes.append(made)
            seconds.append(spent)
            cells.append(f"{spent / made * 1e6:.1f}")
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        cost = "".join(f"{cell:>13}" for cell in cells)
        print(
            f"{name:18}{statistics.median(ratios):8.2f}{spread:>16}{cost}{slope(sizes, seconds):8.2f}"
            f"   {', '.join(f'{n:,}' for n in sizes)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
