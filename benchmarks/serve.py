"""Load on `tot-lab serve`: many clients, many requests, and what the server adds to the searches.

    python benchmarks/serve.py                      200 clients, 10,000 requests
    python benchmarks/serve.py --clients 20 --requests 500

The server is a process of its own with a simulated model, and each request is a small search. Prints how many
requests were answered, the server's CPU time a request beside that of the same searches without a server, and
its memory after a tenth of the requests and after all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

import tot_lab as tl

STRATEGY = "tree_of_thoughts search.width=1 propose.count=2 stop.depth=2"


class Load(NamedTuple):
    """What a load of requests brought.

    Attributes:
        runs: The ids of the runs that answered, one for each request.
        errors: The statuses of the other requests.
        seconds: Wall time.
        cpu: CPU seconds of the server.
        early: Memory of the server in MB after a tenth of the requests.
        late: Memory after all of them.
    """

    runs: list[str]
    errors: list[int]
    seconds: float
    cpu: float
    early: float
    late: float


async def load(url: str, pid: int, clients: int, requests: int) -> Load:
    """Send `requests` to the server at `url` from `clients` at once."""
    numbers = iter(range(requests))
    runs, errors, memory = list[str](), list[int](), list[float]()

    async def client(session: aiohttp.ClientSession) -> None:
        for number in numbers:
            messages = [{"role": "user", "content": question(number)}]
            body: dict[str, Any] = {"model": "small", "messages": messages}
            async with session.post(f"{url}/v1/chat/completions", json=body) as response:
                found = await response.json()
                if "tot_lab" in found:
                    runs.append(found["tot_lab"]["run"])
                else:
                    errors.append(response.status)
            if len(runs) + len(errors) in (requests // 10, requests):
                memory.append(memory_of(pid))

    began, used = time.perf_counter(), cpu_of(pid)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(client(session) for _ in range(clients)))
    seconds, cpu = time.perf_counter() - began, cpu_of(pid) - used
    return Load(runs, errors, seconds, cpu, memory[0], memory[-1])


def question(number: int) -> str:
    """Return one of 100 questions, so that each is repeated."""
    return f"What is {number % 100} times 7?"


def memory_of(pid: int) -> float:
    """Return the resident memory of a process in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def served(folder: Path, clients: int, requests: int) -> Load:
    """Start a server in `folder`, and put the load on it."""
    command = [sys.executable, "-m", "tot_lab", "serve", "--model", "sim/general"]
    command += ["--as", f"small={STRATEGY}", "--port", "0", "--at-once", str(clients)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    server = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        lines = [server.stdout.readline() for _ in range(4)]
        url = lines[1].split()[1].removesuffix("/v1")
        return asyncio.run(load(url, server.pid, clients, requests))
    finally:
        server.terminate()
        server.wait()


async def alone(folder: Path, requests: int, at_once: int) -> float:
    """Return the CPU seconds of the same searches in one process, without a server."""
    lab = tl.Lab("sim/general", runs=folder)
    strategy = tl.TreeOfThoughts(
        propose=tl.Sample(count=2), search=tl.BeamSearch(width=1), stop=tl.Stop(depth=2)
    )
    numbers = iter(range(requests))

    async def one() -> None:
        for number in numbers:
            await lab.run(strategy, tl.general(question(number)), repeat=number // 100)

    began = time.process_time()
    await asyncio.gather(*(one() for _ in range(at_once)))
    return time.process_time() - began


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--requests", type=int, default=10_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = served(Path(folder), given.clients, given.requests)
        journals = len([*Path(folder).rglob("*.jsonl")])
    sample = min(given.requests, 1_000)
    with tempfile.TemporaryDirectory() as folder:
        bare = asyncio.run(alone(Path(folder), sample, given.clients)) / sample
    each = found.cpu / given.requests
    print(f"{given.clients} clients, {given.requests:,} requests in {found.seconds:.0f} s")
    answered = f"answered {len(found.runs):,} of {given.requests:,}"
    print(f"{answered}, other statuses {sorted(found.errors)}, journals {journals:,}")
    print(f"CPU a request: {1000 * each:.2f} ms, of the search alone {1000 * bare:.2f} ms")
    print(f"the server beside the search: {1000 * (each - bare):.2f} ms")
    growth = found.late / found.early - 1
    print(f"memory: {found.early:.0f} MB after a tenth, {found.late:.0f} MB at the end ({growth:+.1%})")


if __name__ == "__main__":
    main()
