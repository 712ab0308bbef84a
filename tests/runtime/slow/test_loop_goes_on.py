"""The event loop goes on while another process holds the cache locked, and while a stream is read."""

import asyncio
import subprocess
import sys

import pytest
from support import TASK, Scripted, wait
from support.cached import SEARCH
from support.endpoint import scripted

import tot_lab as tl
from tot_lab.core.records import Note, Thought
from tot_lab.models.cache import Cache

HOLDING = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.readline()
database.execute("COMMIT")
"""


class Lock:
    """A process that holds the database of a cache until `release`."""

    def __init__(self, folder):
        command = [sys.executable, "-c", HOLDING, str(folder / "1" / "cache.db")]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "held\n"

    def release(self):
        self.process.communicate("\n")


async def beside(lock, doing):
    """Release `lock` after the loop had 50 turns, each 10 ms apart, while `doing` waited for it.

    A loop that is blocked has no turns, and the lock is never released.
    """
    task = asyncio.ensure_future(doing)
    for _ in range(50):
        await asyncio.sleep(0.01)
    waited = not task.done()
    lock.release()
    return waited, await task


def streamed(lab):
    async def read():
        stream = lab.stream(SEARCH, TASK)
        async for _ in stream:
            pass
        return stream.run

    return read()


def started(lab):
    async def run():
        stream = lab.stream(SEARCH, TASK)
        await stream.start()[1]
        return stream.run

    return run()


async def swept(lab):
    (run,) = (await lab.sweep(SEARCH, [TASK])).runs()
    return run


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize(
    "make",
    [lambda lab: lab.run(SEARCH, TASK), streamed, started, swept],
    ids=["run", "stream", "start", "sweep"],
)
def test_a_locked_cache_does_not_block_the_loop_and_loses_nothing(tmp_path, make, is_open):
    reference = wait(tl.Lab(scripted(), runs=None, mode="off").run(SEARCH, TASK))
    Cache(tmp_path).close()
    lab = tl.Lab(scripted(), runs=None, cache=tmp_path)

    async def go():
        if is_open:
            await lab.gateway.open()
        return await beside(Lock(tmp_path), make(lab))

    waited, made = wait(go())
    assert waited
    assert made.events == reference.events
    assert not [line.e for line in made.lines if isinstance(line.e, Note) and line.e.name == "call.unstored"]
    lab.gateway.cache.close()
    again = tl.Lab(scripted(), runs=None, cache=tmp_path, mode="replay")
    assert wait(again.run(SEARCH, TASK)).events == reference.events


def test_replies_are_found_while_the_cache_is_locked(tmp_path):
    lab = tl.Lab(scripted(), runs=None, cache=tmp_path)
    made = wait(lab.run(SEARCH, TASK))
    lock = Lock(tmp_path)
    try:
        assert wait(lab.run(SEARCH, TASK)).events == made.events
    finally:
        lock.release()


class Many(tl.Strategy):
    """Emits many records: without a call between them, with one after every hundred, or in 1,000 branches."""

    kind = "test_loop_goes_on.many"
    way: str

    records: int = 100_000

    def think(self, task, at="0"):
        yield Thought(at, None, task.question)
        if self.way == "branches":
            ids = [f"{at}.{k}" for k in range(1_000)]
            for id in ids:
                yield Thought(id, at, "a branch")
            yield from tl.gather([self.emit(id, self.records // 1_000) for id in ids])
        else:
            yield from self.emit(at, self.records)
        return tl.Answer("x", "answered")

    def emit(self, at, count):
        for k in range(count):
            yield Thought(f"{at}.{k}", at, "a thought")
            if self.way == "calls" and k % 100 == 0:
                yield tl.Call(at, "ask", (tl.records.Message("user", f"{k}"),), k)


@pytest.mark.parametrize("way", ["events", "calls", "branches"])
def test_a_stream_at_full_speed_gives_others_their_turns(way):
    async def go():
        turns = seen = largest = 0
        over = False

        async def other():
            nonlocal turns
            while not over:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(other())
        stream = tl.Lab(Scripted(), runs=None).stream(Many(way=way), TASK)
        since = turns
        between = 0
        async for _ in stream:
            seen += 1
            between = between + 1 if turns == since else 0
            since = turns
            largest = max(largest, between)
        over = True
        await beside
        return seen, largest, turns

    seen, largest, turns = wait(go())
    assert seen > 100_000
    assert largest <= 200
    assert turns >= 500
