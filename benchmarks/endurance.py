"""What is left after 100,000 calls to a server that fails every 20th request.

    python benchmarks/endurance.py [--calls 100000] [--at-once 1000]

The server is a process of its own on loopback (`peers/failing_server.py`): it answers with 429 or 500,
resets the connection, is slow, or cuts its reply. Each call has a text of its own, which its reply repeats.
The calls go from a strategy through the whole stack (cache on disk, single flight, limits, retries) to the
journal, in runs of 100 calls, every second one of them streamed. Printed:

1. Calls without a reply, with the reply to another call, and calls that the server answered twice.
2. Resident memory after a tenth of the calls and at the end, with and without the pages of files. SQLite
   maps up to 64 MiB of the cache and holds 32 MiB of its pages.
   And what is left once the lab is closed and the allocator has returned what is free: if that is what
   was there at the beginning, what grew are SQLite's pages and the allocator's gaps.
3. Open descriptors before the first call and after the event loop has ended.

Figures only: nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import ClassVar

import psutil  # type: ignore[import-untyped]
from engine import HERE, line

import tot_lab as tl
from tot_lab.analysis.frames import calls_of

SERVER = HERE / "peers" / "failing_server.py"
PROMPT = "A problem, the steps so far, and what is asked for. " * 20
CALLS = 100  # of a run


class Asks(tl.Prompting):
    """Makes 100 calls at once."""

    kind: ClassVar[str] = "asks"

    def think(self, task: tl.Task, at: str = "0") -> tl.Procedure[tl.Answer]:
        yield tl.Thought(at, None, task.question)
        first = int(task.question)
        asking = [tl.ask(self.call(at, "answer", f"{PROMPT} #{first + k}.", k)) for k in range(CALLS)]
        yield from tl.gather(asking)
        return tl.Answer("", "answered")

    def max_calls(self, task: tl.Task) -> int:
        return CALLS


class Watch:
    """What was received, and the memory on the way."""

    def __init__(self, calls: int) -> None:
        self.calls = calls
        self.done = 0
        self.replies = bytearray(calls)  # of each call; its memory does not grow
        self.errors: Counter[str] = Counter()
        self.foreign = 0
        self.process = psutil.Process()
        self.memory: dict[int, tuple[float, float]] = {}

    def see(self, run: tl.Run) -> None:
        """Compare the replies of a run with its calls."""
        for row in calls_of(run):
            number = row.call.prompt.rpartition("#")[2].rstrip(".\n")
            if row.reply is None or row.reply.error is not None:
                self.errors[row.reply.error[:60] if row.reply and row.reply.error else "no reply"] += 1
            elif f"answers #{number} and" not in row.reply.text:
                self.foreign += 1
            else:
                self.replies[int(number)] += 1
        self.done += CALLS
        tenth = self.done * 10 // self.calls
        if tenth not in self.memory:
            self.memory[tenth] = self.sizes()

    def sizes(self) -> tuple[float, float]:
        """Resident MiB, with and without the pages of files."""
        gc.collect()
        info = self.process.memory_info()
        return info.rss / 2**20, (info.rss - info.shared) / 2**20


async def every_call(lab: tl.Lab, watch: Watch, calls: int, at_once: int) -> None:
    """Ask everything, `at_once` calls at a time."""
    firsts = iter(range(0, calls, CALLS))

    async def some() -> None:
        for first in firsts:
            if first // CALLS % 2:
                run = await lab.run(Asks(), tl.open_ended(str(first)))
            else:
                stream = lab.stream(Asks(), tl.open_ended(str(first)))
                async for _ in stream:
                    pass
                assert stream.run is not None
                run = stream.run
            watch.see(run)

    await asyncio.gather(*(some() for _ in range(at_once // CALLS)))


def descriptors() -> int:
    """Open descriptors of this process."""
    return int(psutil.Process().num_fds())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--at-once", type=int, default=1_000)
    given = parser.parse_args()
    warnings.simplefilter("ignore", RuntimeWarning)  # that a server does not answer
    watch = Watch(given.calls)
    command = [sys.executable, str(SERVER)]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server,
    ):
        assert server.stdout is not None
        base = server.stdout.readline().strip()
        asyncio.run(asyncio.sleep(0))
        before, began = descriptors(), time.perf_counter()
        model = tl.OpenAICompatible(model="m", base_url=base, concurrency=given.at_once)
        lab = tl.Lab(model, runs=Path(folder) / "runs", cache=Path(folder) / "calls")
        asyncio.run(every_call(lab, watch, given.calls, given.at_once))
        seconds = time.perf_counter() - began
        sockets = sum(one.raddr != () for one in watch.process.net_connections("tcp"))
        after = descriptors()
        lab.gateway.cache.close()
        del lab
        gc.collect()
        without_lab = descriptors()
        if sys.platform == "linux":
            ctypes.CDLL(None).malloc_trim(0)
        left = watch.sizes()[1]
        server_said = json.loads(server.communicate()[0])
    print(f"{given.calls:,} calls, {given.at_once:,} at once: {seconds:.0f} s")
    print(f"the server: {server_said}")
    print(f"errors: {dict(watch.errors)}")
    line("lost", watch.replies.count(0), "0", "calls without their reply")
    line(
        "doubled",
        given.calls - watch.replies.count(0) - watch.replies.count(1),
        "0",
        "calls with two replies",
    )
    line("foreign", watch.foreign, "0", "calls with the reply to another call")
    for k, what in enumerate(("memory", "memory without files")):
        early, late = watch.memory[1][k], watch.memory[10][k]
        line(f"{what}, end ÷ tenth", late / early, "≤ 1.10", f"{early:.0f} MiB, {late:.0f} MiB")
        print("MiB after each tenth: " + ", ".join(f"{sizes[k]:.0f}" for sizes in watch.memory.values()))
    first = min(watch.memory.values())[1]
    line("left without the lab ÷ first", left / first, "", f"{first:.0f} MiB, {left:.0f} MiB without files")
    line("open sockets after the loop", sockets, "0", "")
    line(
        "open descriptors, after − before",
        after - before,
        "",
        f"{before}, {after}; {without_lab} without the lab",
    )


if __name__ == "__main__":
    main()
