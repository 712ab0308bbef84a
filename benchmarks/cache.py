"""What the cache and the stack cost, beside what others do for the same.

    python benchmarks/cache.py [--rounds 9]

Printed, beside the target of each; CPU of one process, the median of rounds that take turns:

1. A hit, key and decoding included, of a 2 KB entry: against a bare diskcache `get` of the same
   bytes, and against a hit in litellm's own cache in memory (in a venv of its own).
2. Durable writes by 64 writers at a time: against diskcache with `synchronous=FULL`, where each
   writer is a thread with commits of its own. Wall time, since waiting for the disk is what is saved.
3. A simulated call through the whole stack, without storing and with.
4. A recorded experiment of 100 puzzles again from the cache: calls a second, and requests made.

Figures only: nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import diskcache
from engine import HERE, line, output_of, venv_of

import tot_lab as tl
from tot_lab.core.calls import Call, Message, Need, Reply
from tot_lab.models.cache import Cached
from tot_lab.models.entries import Entry, packed
from tot_lab.models.keys import SCHEMA, request_of
from tot_lab.models.stack import Endpoint
from tot_lab.models.store import Store

SIZE = 2048
CALLS = 500
PUZZLES = 100
PEER = "litellm==1.97.0"
MODEL = {"base_url": "", "model": "gpt-4.1-mini"}


class Quiet:
    """An observer that nobody listens to."""

    paid: float | None = None
    watched = False

    def note(self, name: str, **data: Any) -> None:
        pass

    def partial(self, text: str) -> None:
        pass


class Null(Endpoint):
    """Answers at once, for nothing."""

    kind = "null"

    @property
    def name(self) -> str:
        return "null"

    def identity(self) -> dict[str, Any]:
        return {"model": "null"}

    def need(self, calls: Sequence[Call]) -> Need:
        return Need(1, 0.0)

    async def answer(self, calls: Sequence[Call], observer: Any) -> Sequence[Reply]:
        return [Reply("a next step", cost=0.0, input_tokens=1, output_tokens=1) for _ in calls]


def a_call(draw: int, repeat: int = 0) -> Call:
    """One whose entry takes about 2 KB."""
    prompt = "A problem, the steps so far, and what is asked for. " * 22
    return Call("0", "sample", (Message("user", prompt),), draw, repeat=repeat, temperature=0.7)


def an_entry(call: Call) -> tuple[str, bytes]:
    request = request_of(call, MODEL)
    reply = Reply(
        "A step that the model wrote, and why. " * 15, cost=0.001, input_tokens=300, output_tokens=150
    )
    return request.key, packed(Entry(SCHEMA, request, reply, 1.0, "2026-01-01T00:00:00+00:00", {}))


def cpu(work: Callable[[], object], times: int) -> float:
    """CPU µs of one of `times`."""
    began = time.process_time()
    work()
    return (time.process_time() - began) / times * 1e6


def hits(folder: Path, rounds: int) -> None:
    """Part 1."""
    cache = tl.Cache(folder / "ours")
    bare = diskcache.Cache(str(folder / "bare"))
    calls = [a_call(draw) for draw in range(CALLS)]
    entries = [an_entry(call) for call in calls]
    assert cache.newest is not None
    for done in [cache.newest.put(key, value) for key, value in entries]:
        done.result()
    for key, value in entries:
        bare.set(key, value)
    layer = Cached(_never(), cache, lambda call: request_of(call, MODEL), "auto")
    observer = Quiet()

    async def ours() -> None:
        for call in calls:
            await layer.answer((call,), observer)

    def theirs() -> None:
        for key, _ in entries:
            bare.get(key)

    hit, get, peer = [], [], []
    with venv_of(PEER) as python:
        for _ in range(rounds):
            hit.append(cpu(lambda: asyncio.run(ours()), CALLS))
            get.append(cpu(theirs, CALLS))
            peer.append(output_of([python, HERE / "peers" / "litellm_cache_peer.py"])["us"])
    mine = statistics.median(hit)
    line(f"hit, CPU µs, {len(entries[0][1])} bytes", mine, "≤ 30", "key, checksum and decoding included")
    line("bare diskcache get, CPU µs", statistics.median(get), "", "")
    line("hit ÷ bare get", _ratio(hit, get), "≤ 2", f"{rounds} pairs")
    line("litellm's in-memory hit ÷ hit", _ratio(peer, hit), "≥ 30", f"{statistics.median(peer):.0f} µs")


def writes(folder: Path, rounds: int) -> None:
    """Part 2."""
    number = 0
    value = os.urandom(SIZE)

    async def ours(store: Store) -> None:
        nonlocal number
        number += 64
        await asyncio.gather(*(asyncio.wrap_future(store.put(f"{number + k}", value)) for k in range(64)))

    def theirs(cache: diskcache.Cache, pool: ThreadPoolExecutor) -> None:
        nonlocal number
        number += 64
        list(pool.map(lambda k: cache.set(f"{number + k}", value), range(64)))

    store = Store(folder / "grouped")
    alone = diskcache.Cache(str(folder / "alone"), sqlite_synchronous=2)
    mine, peer = [], []
    with ThreadPoolExecutor(64) as pool:
        theirs(alone, pool)  # each thread opens its connection
        asyncio.run(ours(store))
        for _ in range(rounds):
            began = time.perf_counter()
            asyncio.run(ours(store))
            mine.append(time.perf_counter() - began)
            began = time.perf_counter()
            theirs(alone, pool)
            peer.append(time.perf_counter() - began)
    note = f"{statistics.median(peer) * 1e3:.1f} ms ÷ {statistics.median(mine) * 1e3:.1f} ms for 64"
    line("one commit a write ÷ ours", _ratio(peer, mine), "≥ 10", note)


def stack(folder: Path, rounds: int) -> None:
    """Part 3."""
    number = 0

    async def through(lab: tl.Lab) -> None:
        nonlocal number
        number += 1
        calls = [a_call(draw, number) for draw in range(CALLS)]
        observer = Quiet()

        async def some(k: int) -> None:
            for call in calls[k::64]:
                await lab.gateway.ask(call, observer)

        await asyncio.gather(*(some(k) for k in range(64)))

    plain = tl.Lab(Null(), runs=None, mode="off")
    storing = tl.Lab(Null(), runs=None, cache=folder / "stored")
    without = [cpu(lambda: asyncio.run(through(plain)), CALLS) for _ in range(rounds)]
    stored = [cpu(lambda: asyncio.run(through(storing)), CALLS) for _ in range(rounds)]
    line("a call through the stack, CPU µs", statistics.median(without), "≤ 60", "64 at a time")
    line("… and stored", statistics.median(stored), "≤ 150", "64 at a time, durable")


REQUESTS = [0]


async def counted(call: Call) -> Reply:
    """The simulated player, and how often it was asked."""
    REQUESTS[0] += 1
    return await tl.sim.SimGame24()(call)


def rerun(folder: Path, rounds: int) -> None:
    """Part 4."""
    search = tl.TreeOfThoughts(propose=tl.Propose(count=5), search=tl.BeamSearch(width=3))
    puzzles = tl.game24_tasks(PUZZLES)

    async def all_of_them(lab: tl.Lab) -> int:
        return sum([(await lab.run(search, task)).usage.calls for task in puzzles])

    lab = tl.Lab(counted, runs=folder / "runs", cache=folder / "experiment")
    calls = asyncio.run(all_of_them(lab))
    first, REQUESTS[0] = REQUESTS[0], 0
    rates, walls = [], []
    for _ in range(max(3, rounds // 3)):
        again = tl.Lab(counted, runs=folder / "runs", cache=folder / "experiment", mode="replay")
        began, wall = time.process_time(), time.perf_counter()
        asyncio.run(all_of_them(again))
        rates.append(calls / (time.process_time() - began))
        walls.append(time.perf_counter() - wall)
    took = statistics.median(walls)
    note = f"{PUZZLES} puzzles, {calls} calls ({first} requests the first time); {took:.2f} s"
    line("rerun from the cache, calls per CPU s", statistics.median(rates), "≥ 5000", note)
    line("requests made by the reruns", REQUESTS[0], "0", "")


def _ratio(above: Sequence[float], below: Sequence[float]) -> float:
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


class _never:
    async def answer(self, calls: Sequence[Call], observer: Any) -> Sequence[Reply]:
        raise AssertionError("a hit was asked for")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="how often each thing is measured")
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:  # /tmp may be memory, which needs no fsync
        for part in (hits, writes, stack, rerun):
            part(Path(folder), rounds)


if __name__ == "__main__":
    main()
