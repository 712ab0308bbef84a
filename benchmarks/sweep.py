"""What a sweep makes of one process and of several: the waiting that it saves, the memory it takes.

    python benchmarks/sweep.py

The work: tree of thoughts with branch 5, beam 5, depth 4 over 256 questions. That is 160 calls a
search, 20 ms each, and no two of them equal; every run is recorded to a journal on disk. Printed,
beside the target of each:

1. Speed against one call at a time (calls × what one search alone takes a call with
   `parallel=False`, measured), with a limit of 64 calls in flight, and with the limit off.
   The limit is an endpoint's, so these calls go through the whole stack; the cache is off. Stored
   in a cache and without any stack, for comparison.
2. Memory of the process after 256 and after 2,048 runs: the highest that it was.
3. A finished sweep again from the cache, in replay mode: whether its table is the same, and calls
   a second.
4. The same work on dask workers: `sweep_workers.py`.

Each is measured in a process of its own. Figures only: nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine import LATENCY, line, output_of

import tot_lab as tl
from tot_lab.core.calls import Call, Need, Reply
from tot_lab.models.stack import Endpoint

SEARCH = tl.TreeOfThoughts(propose=tl.Sample(count=5), search=tl.BeamSearch(width=5), stop=tl.Stop(depth=4))
RUNS, MORE, CALLS = 256, 2048, 160
OFF = 10**6


class Steady(Endpoint):
    """An endpoint that takes its time over every call, and costs nothing."""

    kind = "steady"
    seconds: float = LATENCY

    @property
    def name(self) -> str:
        return "steady"

    def identity(self) -> dict[str, Any]:
        return {"model": "steady"}

    def need(self, calls: Sequence[Call]) -> Need:
        return Need(1, 0.0)

    async def answer(self, calls: Sequence[Call], observer: Any) -> Sequence[Reply]:
        await asyncio.sleep(self.seconds)
        return [Reply(answer_to(call), input_tokens=1, output_tokens=1, cost=0.0) for call in calls]


def answer_to(call: Call) -> str:
    """A step that no other call is answered with, so that no two prompts are equal; or a score."""
    return "score: 0.5" if call.purpose == "value" else f"step {call.sample_index} after {call.node}"


async def steady(call: Call) -> str:
    """The same as a function, which has no stack before it."""
    await asyncio.sleep(LATENCY)
    return answer_to(call)


def lab_of(way: str, folder: Path) -> tl.Lab:
    """The lab of a way to the model."""
    cache = folder / "cache" if way == "stored" else None
    if way == "function":
        return tl.Lab(steady, runs=folder)
    model = Steady(concurrency=64 if way == "limited" else OFF)
    return tl.Lab(model, runs=folder, cache=cache, mode="auto" if cache else "off")


def questions(count: int) -> list[tl.Task]:
    return [tl.general(f"What is {k} times seven?") for k in range(count)]


async def swept(way: str, runs: int, folder: Path) -> dict[str, Any]:
    """A sweep, as JSON-ready figures."""
    lab = lab_of(way, folder)
    began, cpu = time.perf_counter(), time.process_time()
    sweep = await lab.sweep(SEARCH, questions(runs))
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    assert sweep.counts == (runs * CALLS, runs * CALLS, runs * CALLS, 0), sweep
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds, "cpu": cpu, "calls": sweep.counts.asked, "memory": memory}


async def one_at_a_time(folder: Path) -> dict[str, Any]:
    """Seconds that a call takes when nothing runs beside it."""
    serial = SEARCH.model_copy(update={"parallel": False})
    began = time.perf_counter()
    run = await lab_of("limited", folder).run(serial, questions(1)[0])
    return {"seconds": (time.perf_counter() - began) / run.usage.calls}


async def rerun(folder: Path) -> dict[str, Any]:
    """A finished sweep again, with no model."""
    cache = folder / "cache"
    first = tl.Lab(Steady(concurrency=OFF, seconds=0.0), runs=None, cache=cache)
    tasks = questions(RUNS)
    known = (await first.sweep(SEARCH, tasks)).df()
    again = tl.Lab(Steady(), runs=folder / "again", cache=cache, mode="replay")
    began, cpu = time.perf_counter(), time.process_time()
    sweep = await again.sweep(SEARCH, tasks)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    times = ["seconds", "seconds_alone"]
    tables = [frame.drop(columns=times).to_csv(index=False) for frame in (known, sweep.df())]
    calls = sweep.counts.asked
    return {
        "same": tables[0] == tables[1],
        "sent": sweep.counts.paid,
        "per_second": calls / seconds,
        "per_cpu": calls / cpu,
    }


def measured(*words: object) -> dict[str, Any]:
    return output_of([sys.executable, __file__, "--one", *map(str, words)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    one = parser.parse_args().one
    if one:
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:  # /tmp may be memory
            folder = Path(name)
            what, *rest = one
            made = (
                swept(rest[0], int(rest[1]), folder)
                if what == "sweep"
                else {"rerun": rerun, "serial": one_at_a_time}[what](folder)
            )
            print(json.dumps(asyncio.run(made)))
        return
    alone = float(measured("serial")["seconds"])
    print(f"{RUNS} searches × {CALLS} calls of {LATENCY * 1e3:.0f} ms; one alone takes {alone * 1e3:.1f} ms")
    for way, what, target in (
        ("limited", "64 calls in flight ÷ one at a time", "≥ 50"),
        ("off", "no limit ÷ one at a time", "≥ 250"),
        ("stored", "  … each answer stored, durably", ""),
        ("function", "  … a function as the model", ""),
    ):
        tables = measured("sweep", way, RUNS)
        per_call = tables["cpu"] / tables["calls"] * 1e6
        note = f"{tables['seconds']:.2f} s, {per_call:.0f} µs CPU a call"
        line(what, tables["calls"] * alone / tables["seconds"], target, note)
    few, many = (measured("sweep", "limited", runs)["memory"] for runs in (RUNS, MORE))
    line(f"MB at most, {RUNS:,} runs", few, "", "")
    line(f"MB at most, {MORE:,} runs", many, "flat", f"{(many - few) / (MORE - RUNS) * 1e3:.1f} kB a run")
    tables = measured("rerun")
    line(
        "replayed from the cache, calls/s", tables["per_second"], "≥ 5000", f"{tables['per_cpu']:.0f} a CPU s"
    )
    same = "the same, times aside" if tables["same"] else "NOT the same"
    line("  requests made", tables["sent"], "0", f"the table is {same}")
    subprocess.run([sys.executable, Path(__file__).with_name("sweep_workers.py")], check=False)


if __name__ == "__main__":
    main()
