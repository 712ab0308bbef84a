"""Runs with a cache, and what a cache holds."""

import os
import random
import signal
import time

import tot_lab as tl
from support import TASK, wait
from tot_lab.core.calls import Call, Message, Reply
from tot_lab.models.entries import Entry, packed
from tot_lab.models.keys import SCHEMA, request_of
from tot_lab.models.store import Store

SEARCH = tl.TreeOfThoughts(evaluate=tl.Value(samples=2))


def searched(end, folder, strategy=SEARCH, **options):
    lab = tl.Lab(end, runs=None, cache=folder, **options)
    return wait(lab.run(strategy, TASK))


def calls_in(end):
    return sum(map(len, end.requests))


def entry(text="fine", draw=0, schema=SCHEMA):
    request = request_of(Call("0", "ask", (Message("user", "why?"),), draw), {"model": "m"})
    return request.key, Entry(schema, request, Reply(text), 0.1, "2026-01-01T00:00:00+00:00", {})


def write_and_tell(folder, number, pipe):
    """Never ends: stores entries, and tells their keys when they are acknowledged."""
    store = Store(folder)
    waiting = []
    while True:
        key, made = entry("x" * 500, number)
        waiting.append((key, store.put(key, packed(made))))
        number += 3
        if len(waiting) == 8:
            for key, done in waiting:
                done.result()
                os.write(pipe, f"{key}\n".encode())
            waiting.clear()


def kill_rounds(folder, rounds):
    """Rounds of three writers on one folder, killed at any moment; prints what they acknowledged."""
    roll = random.Random(1)
    start = 0
    for _ in range(rounds):
        writers = []
        for k in range(3):
            read, write = os.pipe()
            writer = os.fork()
            if writer == 0:
                write_and_tell(folder, start + k, write)
            os.close(write)
            writers.append((writer, read))
        first = [os.read(read, 1) for _, read in writers]
        time.sleep(roll.random() * 0.1)
        for writer, _ in writers:
            os.kill(writer, signal.SIGKILL)
        for (writer, read), begun in zip(writers, first, strict=True):
            os.waitpid(writer, 0)
            with os.fdopen(read, "rb") as told:
                keys = (begun + told.read()).decode().split("\n")[:-1]  # the last may be half a line
            print(*keys, sep="\n")
            start += 3 * (len(keys) + 20)
