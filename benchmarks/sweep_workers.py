"""What a sweep makes of a dask cluster, here two worker processes of one thread on this machine.

    python benchmarks/sweep_workers.py        (`benchmarks/sweep.py` runs it too)

The work is that of `sweep.py`: 256 searches × 160 calls of 20 ms, journals on disk. Printed:

1. One search a dask task, as one would write it by hand, ÷ the sweep; the limit is off.
2. One process ÷ the workers, each best of three. They use the same cores: with one core no more than
   1 can come of it, since 40,960 calls at no limit are mostly work of the CPU's.
3. What it costs that journals come back through the scheduler: the same bytes and nothing else.
4. The most calls in flight over both workers, which adapt their limits each by itself.
5. A simulated model that only computes: one process ÷ the workers.

Figures only: nothing here passes or fails.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from engine import line, output_of
from sweep import CALLS, OFF, RUNS, SEARCH, Steady, questions

import tot_lab as tl
from tot_lab.core.calls import Call, Reply

WORKERS = 2
SMALL = tl.TreeOfThoughts(stop=tl.Stop(depth=1))
HANDS = 96
ROUNDS = 3


class Watched(Steady):
    """One that writes to a file, which all workers share, when each of its calls was under way."""

    kind = "watched"
    log: str

    async def answer(self, calls: Sequence[Call], observer: Any) -> Sequence[Reply]:
        with Path(self.log).open("a", buffering=1) as log:
            log.write(f"{time.time()} {len(calls)}\n")
            try:
                return await super().answer(calls, observer)
            finally:
                log.write(f"{time.time()} {-len(calls)}\n")


async def swept(
    model: Any, strategy: tl.Strategy, tasks: list[tl.Task], folder: Path, client: Any = None
) -> float:
    """Seconds of a sweep."""
    lab = tl.Lab(model, runs=folder, mode="off")
    began = time.perf_counter()
    sweep = await lab.sweep(strategy, tasks, client=client)
    seconds = time.perf_counter() - began
    assert sweep.df().error.isna().all(), sweep
    return seconds


def best(made: Callable[[Path], Any]) -> float:
    """The shortest of some rounds, each with a folder of its own."""
    seconds = []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:  # /tmp may be memory
            seconds.append(asyncio.run(made(Path(name))))
    return float(min(seconds))


def one_search(number: int, folder: str) -> None:
    """A dask task as one would write it by hand."""
    lab = tl.Lab(Steady(concurrency=OFF), runs=folder, mode="off")
    asyncio.run(lab.run(SEARCH, questions(RUNS)[number]))


def one_by_one(client: Any) -> float:
    """Seconds of one dask task a search."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        began = time.perf_counter()
        client.gather(client.map(one_search, range(RUNS), folder=name, pure=False))
        return time.perf_counter() - began


def through_the_scheduler(client: Any, folder: Path) -> tuple[int, float]:
    """Bytes of the journals in `folder`, and seconds that they take from a worker to the client."""
    from distributed import Queue, get_client  # noqa: PLC0415

    journals = [path.read_bytes() for path in folder.rglob("*.jsonl")]
    queue = Queue(client=client)

    def sent(name: str, sizes: list[int]) -> None:
        back = Queue(name, client=get_client())
        for size in sizes:
            back.put(os.urandom(size))

    began = time.perf_counter()
    sending = client.submit(sent, queue.name, [len(data) for data in journals], pure=False)
    for _ in journals:
        queue.get()
    sending.result()
    return sum(map(len, journals)), time.perf_counter() - began


def on_workers(client: Any, what: str) -> tuple[float, float]:
    """Seconds of a sweep on the workers, and those of the busier one's CPU."""
    work = work_of(what)
    began = client.run(time.process_time)
    seconds = best(lambda folder: swept(*work, folder, client))
    ended = client.run(time.process_time)
    return seconds, max(ended[who] - began[who] for who in ended) / ROUNDS


def alone(what: str) -> tuple[float, float]:
    """Seconds of the same sweep in a process of its own, and those of its CPU."""
    found = output_of([sys.executable, __file__, "--alone", what])
    return found["seconds"], found["cpu"]


def work_of(what: str) -> tuple[Any, tl.Strategy, list[tl.Task]]:
    if what == "computing":
        return "sim/game24", tl.presets.game24(), tl.game24_tasks(HANDS)
    return Steady(concurrency=OFF), SEARCH, questions(RUNS)


def main() -> None:
    if sys.argv[1:2] == ["--alone"]:
        work = work_of(sys.argv[2])
        began = time.process_time()
        seconds = best(lambda folder: swept(*work, folder))
        print(json.dumps({"seconds": seconds, "cpu": (time.process_time() - began) / ROUNDS}))
        return
    from distributed import Client, LocalCluster  # noqa: PLC0415

    print(f"\n{RUNS} searches × {CALLS} calls on {WORKERS} dask workers × 1 thread; {os.cpu_count()} cores")
    here = {what: alone(what) for what in ("waiting", "computing")}
    cluster = LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=":0")
    with cluster, Client(cluster) as client, tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        folder = Path(name)
        asyncio.run(swept(Steady(), SMALL, questions(8), folder / "warm", client))
        single, there = one_by_one(client), on_workers(client, "waiting")
        sweep = there[0]
        line("one search a task ÷ sweep", single / sweep, "≥ 8", f"{single:.1f} s ÷ {sweep:.2f} s")
        compared("one process ÷ workers, limit off", here["waiting"], there, "≥ 1")
        watched = Watched(log=str(folder / "log"))
        asyncio.run(swept(watched, SEARCH, questions(RUNS), folder / "limited", client))
        size, seconds = through_the_scheduler(client, folder / "limited")
        line("MB of journals that came back", size / 1e6, "", f"alone {seconds:.2f} s, {sweep:.2f} s in all")
        found = sorted(
            (float(moment), int(change))
            for moment, change in map(str.split, Path(watched.log).read_text().splitlines())
        )
        most = max(accumulate(change for _, change in found))
        line("most calls in flight", most, "", f"{len(found) // 2:,} calls")
        there = on_workers(client, "computing")
        compared("computing: one process ÷ workers", here["computing"], there, "as the cores")


def compared(what: str, here: tuple[float, float], there: tuple[float, float], target: str) -> None:
    """One process and the workers, by the clock, and by the CPU: where other programs run too, the clock
    shows them."""
    (wall, cpu), (walls, busier) = here, there
    line(what, wall / walls, target, f"{wall:.2f} s ÷ {walls:.2f} s")
    line("  … by the CPU's clock", cpu / busier, "", f"{cpu:.2f} s ÷ {busier:.2f} s of the busier worker")


if __name__ == "__main__":
    main()
