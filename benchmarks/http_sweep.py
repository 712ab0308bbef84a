"""A sweep of ten methods over HTTP: what failures of the server cost, and when the first runs are finished.

    python benchmarks/http_sweep.py [--tasks 20] [--rounds 1] [--only "5 %"]

The server is a process of its own on loopback (`--serve`). It answers `SLOTS` requests at a time, each after
20 to 80 ms, and lets the others wait. Of some requests it fails a share, at random, or it refuses those that
are more than it takes. Printed for each way of failing:

1. Seconds of the sweep, and their ratio to those without failures (target: at most 1.5).
2. Requests that failed, and calls that were lost after all retries (target: none).
3. Finished runs after a quarter of the calls (target: a fifth).

Figures only: nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
from aiohttp import web

import tot_lab as tl

SLOTS = 16
SHORTEST, LONGEST = 0.020, 0.080

BY_STEPS: dict[str, Any] = {
    "propose": tl.Sample(count=4),
    "evaluate": tl.Value(samples=1),
    "stop": tl.Stop(depth=3),
}
METHODS = {
    "self-consistency": tl.SelfConsistency(attempts=32),
    "best of n": tl.BestOf(strategy=tl.ChainOfThought(), attempts=16, evaluate="value"),
    "weighted best of n": tl.methods.WeightedBestOf(strategy=tl.ChainOfThought(), attempts=16),
    "beam search": tl.TreeOfThoughts(search=tl.BeamSearch(width=4), **BY_STEPS),
    "depth first": tl.TreeOfThoughts(search=tl.DepthFirst(width=2), **BY_STEPS),
    "best first": tl.TreeOfThoughts(search=tl.BestFirst(), **BY_STEPS),
    "MCTS": tl.TreeOfThoughts(search=tl.MCTS(), **{**BY_STEPS, "stop": tl.Stop(depth=3, nodes=30)}),
    "REBASE": tl.TreeOfThoughts(search=tl.searches.REBASE(), **BY_STEPS),
    "self-refine": tl.methods.SelfRefine(),
    "chain of thought": tl.ChainOfThought(),
}
SEARCH = METHODS["beam search"]
SWEEPS: dict[str, tuple[Any, int]] = {
    "64 samples × 60 tasks": (tl.SelfConsistency(attempts=64), 60),
    "beam searches × 120 tasks": (SEARCH, 120),
    "24 settings × 12 tasks": (
        tl.grid(SEARCH, {"search.width": [1, 2, 3, 4], "propose.count": [2, 4], "stop.depth": [1, 2, 3]}),
        12,
    ),
}
"""Strategies and a number of tasks, for sweeps without failures."""

WAYS: dict[str, dict[str, Any]] = {
    "no failures": {},
    "5 % 503": {"fails": 0.05, "status": 503},
    "5 % 429, Retry-After: 1": {"fails": 0.05, "status": 429, "retry_after": 1},
    "refuses above 20": {"most": 20},
    "refuses above 20, 5 % 503": {"most": 20, "fails": 0.05, "status": 503},
}


class Server:
    """The server. A PUT replaces its settings and counts, and a GET returns the counts."""

    def __init__(self) -> None:
        self.become({})

    def become(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.roll = random.Random(3)
        self.slots = asyncio.Semaphore(settings.get("slots", SLOTS))
        self.counts = {"answered": 0, "failed": 0, "refused": 0}
        self.under_way = 0

    async def put(self, request: web.Request) -> web.Response:
        self.become(await request.json())
        return web.Response()

    async def get(self, request: web.Request) -> web.Response:
        return web.json_response(self.counts)

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        settings, latency = self.settings, self.roll.uniform(SHORTEST, LONGEST)
        if self.under_way >= settings.get("most", 10**6):
            self.counts["refused"] += 1
            return web.json_response({"error": {"message": "too many requests"}}, status=429)
        self.under_way += 1
        try:
            async with self.slots:
                if self.roll.random() < settings.get("fails", 0.0):
                    await asyncio.sleep(latency * self.roll.random())
                    self.counts["failed"] += 1
                    after = settings.get("retry_after")
                    headers = {} if after is None else {"Retry-After": str(after)}
                    error = {"error": {"message": "unavailable"}}
                    return web.json_response(error, status=settings["status"], headers=headers)
                await asyncio.sleep(latency)
        finally:
            self.under_way -= 1
        self.counts["answered"] += 1
        choices = [self.choice(body, k) for k in range(body.get("n") or 1)]
        usage = {"prompt_tokens": 100, "completion_tokens": 20 * len(choices)}
        return web.json_response({"model": body["model"], "choices": choices, "usage": usage})

    def choice(self, body: dict[str, Any], index: int) -> dict[str, Any]:
        prompt = body["messages"][-1]["content"]
        share = int.from_bytes(hashlib.sha256(prompt.encode()).digest()[:2]) / 2**16
        text = f"I count {self.roll.randrange(10**6)} of them."
        if "score:" in prompt:
            text = f"score: {share:.2f}"
        elif "Answer:" in prompt:
            text += f"\nAnswer: {self.roll.randrange(5)}"
        message = {"role": "assistant", "content": text}
        return {"index": index, "message": message, "finish_reason": "stop"}


async def serve() -> None:
    server, app = Server(), web.Application()
    app.router.add_post("/v1/chat/completions", server.answer)
    app.router.add_put("/", server.put)
    app.router.add_get("/", server.get)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=4096).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


@contextmanager
def a_server() -> Iterator[str]:
    """The URL of a server."""
    command = [sys.executable, __file__, "--serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.communicate()


async def swept(
    url: str, way: dict[str, Any], strategies: Any, tasks: int, concurrency: int | None
) -> dict[str, float]:
    """The figures of one sweep."""
    async with aiohttp.ClientSession(url) as session:
        (await session.put("/", json=way)).release()
        model = tl.OpenAICompatible(model="m", base_url=f"{url}/v1", api_key="none", concurrency=concurrency)
        lab = tl.Lab(model, runs=None, mode="off")
        questions = [tl.general(f"How many legs have {k} spiders?", answer=8 * k) for k in range(tasks)]
        began = time.perf_counter()
        sweeping = asyncio.ensure_future(lab.sweep(strategies, questions))
        seen: list[tuple[int, int]] = []
        while not sweeping.done():
            await asyncio.wait([sweeping], timeout=0.05)
            async with session.get("/") as response:
                finished = len(lab.last_sweep.rows) if lab.last_sweep else 0
                seen.append(((await response.json())["answered"], finished))
        seconds = time.perf_counter() - began
        async with session.get("/") as response:
            counts = await response.json()
    rows = (await sweeping).rows.values()
    assert all(row.error is None or row.failed_calls for row in rows), [row.error for row in rows][:3]
    early = next(finished for answered, finished in seen if answered >= counts["answered"] / 4)
    return {
        "seconds": seconds,
        "requests": sum(counts.values()),
        "failed": counts["failed"] + counts["refused"],
        "lost": sum(row.failed_calls or 0 for row in rows),
        "early": early / len(rows),
    }


async def everything(url: str, tasks: int, rounds: int, only: str, concurrency: int | None) -> None:
    print(f"{'':28}{'seconds':>9}{'ratio':>7}{'requests':>10}{'failed':>8}{'lost':>6}{'early':>7}")
    base = 0.0
    sweeps = [(name, way, METHODS, tasks) for name, way in WAYS.items()]
    sweeps += [(name, {}, *what) for name, what in SWEEPS.items()]
    for name, way, strategies, count in sweeps:
        if only not in name:
            continue
        made = [await swept(url, way, strategies, count, concurrency) for _ in range(rounds)]
        found = {key: statistics.median(one[key] for one in made) for key in made[0]}
        base = base or found["seconds"]
        ratio = f"{found['seconds'] / base:.2f}" if strategies is METHODS else ""
        print(
            f"{name:28}{found['seconds']:>9.1f}{ratio:>7}{found['requests']:>10,.0f}"
            f"{found['failed'] / found['requests']:>8.1%}{found['lost']:>6.0f}{found['early']:>7.1%}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tasks", type=int, default=20, help="tasks of the sweep")
    parser.add_argument("--only", default="", help="sweeps whose name contains this")
    parser.add_argument("--rounds", type=int, default=1, help="how often each sweep is made")
    parser.add_argument(
        "--concurrency", type=int, help="a fixed limit of requests instead of an adaptive one"
    )
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        asyncio.run(serve())
        return
    with a_server() as url:
        asyncio.run(everything(url, given.tasks, given.rounds, given.only, given.concurrency))


if __name__ == "__main__":
    main()
