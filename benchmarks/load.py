"""Whether what is done with a finished run takes time in proportion to its size.

    python benchmarks/load.py

A run of 10,000 and one of 100,000 thoughts are made with the Recorder, as a search with branch 5
would have made them (for each thought a proposing call, its reply, the thought, an evaluating
call, its reply, the score, a decision), and saved. Printed: seconds to read the file (checked, as
`tl.load` does), to fold the records to a tree and to make `nodes_df`, and the larger over the
smaller: linear is 10. Each is the best of three; figures only, nothing here passes or fails.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import tot_lab as tl

SIZES = (10_000, 100_000)
BRANCH = 5


def saved(nodes: int, folder: str) -> Path:
    """A run of so many thoughts, on disk."""
    recorder = tl.Recorder("load", task=tl.general("What is six times seven?"))
    root = recorder.thought("What is six times seven?")
    parents, count = deque([root]), 1
    while count < nodes:
        parent = parents.popleft()
        for k in range(min(BRANCH, nodes - count)):
            step = f"step {count}: multiply, then add what is left"
            recorder.call(parent, f"What comes after {parent}?", step, purpose="sample", sample_index=k)
            child = recorder.thought(step, parent)
            recorder.call(child, f"How good is this?\n{step}", f"score: 0.{count % 1000:03}", purpose="value")
            recorder.score(child, count % 1000 / 1000, samples=(count % 1000 / 1000,))
            recorder.decide(child, "kept")
            parents.append(child)
            count += 1
    recorder.end("42", node=root)
    path: Path = recorder.run.save(Path(folder, f"{nodes}.jsonl"))
    return path


def best(work: Callable[[], object], repeats: int = 3) -> float:
    """Seconds of the fastest of several."""
    seconds = []
    for _ in range(repeats):
        gc.collect()
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def times(path: Path) -> dict[str, float | None]:
    """Seconds by what was done."""
    run = tl.load(path)
    found: dict[str, float | None] = {
        "load": best(lambda: tl.load(path)),
        "fold to a tree": best(lambda: tl.Tree.of(run.events)),
    }
    try:
        run.nodes_df()  # pandas is imported now
    except ImportError as error:
        print(f"nodes_df is left out: {error}")
        found["nodes_df"] = None
    else:
        found["nodes_df"] = best(run.nodes_df)
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = [saved(size, folder) for size in SIZES]
        for size, path in zip(SIZES, paths, strict=True):
            records = sum(1 for _ in path.open("rb")) - 1
            print(f"{size:7,} thoughts: {records:,} records, {path.stat().st_size / 1e6:.1f} MB")
        small, large = (times(path) for path in paths)
    print(f"{'':16}" + "".join(f"{size:>12,}" for size in SIZES) + f"{'ratio':>10}   (linear: 10)")
    for what, seconds in small.items():
        more = large[what]
        if seconds is not None and more is not None:
            print(f"{what:16}{seconds:>11.3f}s{more:>11.3f}s{more / seconds:>10.1f}")


if __name__ == "__main__":
    main()
