"""What a call costs on its way to a server, and what the model stack adds.

    python benchmarks/gateway.py [--rounds 9] [--peers] [--samples 500]

The calls go to a server on loopback, in a process of its own, that answers at once. The
clients take turns; the ratio of a pair is what counts. CPU of this process alone.

1. CPU per call, 64 at a time, cache off: litellm alone, tot_lab on litellm, tot_lab on
   `OpenAICompatible`, and aiohttp alone with JSON decoding.
2. From a strategy to the journal and the disk cache: 24 tree searches of 160 calls on `OpenAICompatible`,
   256 calls at a time, against aiohttp alone.
3. Requests a second, 256 at a time: tot_lab and aiohttp alone; with --peers `openai` on its client for
   aiohttp, in a venv of its own.
4. 1,000 at a time: the longest stall of the event loop, tot_lab beside aiohttp alone.
5. Self-consistency of 256 samples, for each of 50 tasks: requests, CPU per sample, and bytes per sample of
   the journal and the cache above the text of the reply, against aiohttp alone with 32 samples a request.
   --samples measures this part alone, with as many tasks.

Figures only: nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
from cache import Quiet
from engine import HERE, SEARCH, line, output_of, venv_of

import tot_lab as tl
from tot_lab.core.calls import Call, Message
from tot_lab.core.records import Note
from tot_lab.models.lite_llm.loading import load_litellm

MODEL = "gpt-4.1-mini"
PROMPT = "A problem, the steps so far, and what is asked for. " * 20
SERVER = HERE / "peers" / "quick_server.py"
Ask = Callable[[int], Awaitable[object]]


@contextmanager
def a_server(*words: str) -> Iterator[str]:
    """The base URL of a server that answers at once."""
    command = [sys.executable, str(SERVER), *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.communicate()


async def all_calls(ask: Ask, calls: int = 256, at_once: int = 64) -> tuple[float, float]:
    """CPU µs a call, and calls a second."""
    waiting = iter(range(calls))

    async def some() -> None:
        for k in waiting:
            await ask(k)

    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(some() for _ in range(at_once)))
    return (time.process_time() - cpu) / calls * 1e6, calls / (time.perf_counter() - began)


class Clients:
    """The ways to ask the server at `base`."""

    def __init__(self, base: str, session: aiohttp.ClientSession) -> None:
        self.base = base
        self.session = session
        self.litellm = load_litellm()
        self.observer = Quiet()
        key = "none-that-anybody-knows"
        litellm = tl.LiteLLM(model=f"openai/{MODEL}", api_base=base, api_key=key, concurrency=1_000)
        direct = tl.OpenAICompatible(model=MODEL, base_url=base, api_key=key, concurrency=1_000)
        self.on_litellm = self.through(tl.Lab(litellm, runs=None, mode="off"))
        self.on_direct = self.through(tl.Lab(direct, runs=None, mode="off"))

    async def bare(self, k: int) -> object:
        """aiohttp alone, with JSON decoding."""
        body = {
            "model": MODEL,
            "messages": [{"role": "user", "content": f"{PROMPT}{k}"}],
            "temperature": 0.7,
            "max_tokens": 100,
            "seed": k,
        }
        async with self.session.post(f"{self.base}/chat/completions", json=body) as response:
            return (await response.json())["choices"][0]["message"]["content"]

    async def litellm_alone(self, k: int) -> object:
        return await self.litellm.acompletion(
            model=f"openai/{MODEL}",
            messages=[{"role": "user", "content": f"{PROMPT}{k}"}],
            api_base=self.base,
            api_key="none",
            temperature=0.7,
            max_tokens=100,
            seed=k,
            num_retries=0,
            max_retries=0,
        )

    def through(self, lab: tl.Lab) -> Ask:
        async def ask(k: int) -> object:
            message = Message("user", f"{PROMPT}{k}")
            call = Call("0", "ask", (message,), temperature=0.7, max_tokens=100, seed=k)
            reply = await lab.gateway.ask(call, self.observer)
            assert reply.error is None, reply
            return reply

        return ask


async def turns(asks: dict[str, Ask], rounds: int, **how: int) -> dict[str, list[tuple[float, float]]]:
    """What `all_calls` measures for each client, which take turns."""
    for ask in asks.values():
        await all_calls(ask, **how)
    gc.collect()
    gc.freeze()  # a full collection of all that litellm imports would fall on either side by chance
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in asks}
    for _ in range(rounds):
        for name, ask in asks.items():
            found[name].append(await all_calls(ask, **how))
    return found


def show(what: str, a: list[float], b: list[float], target: str, unit: str) -> None:
    """A line with the median ratio of pairs."""
    ratio = statistics.median(one / other for one, other in zip(a, b, strict=True))
    note = f"{statistics.median(a):,.0f} {unit} ÷ {statistics.median(b):,.0f} {unit}"
    line(what, ratio, target, note)


async def per_call(clients: Clients, rounds: int) -> None:
    """Part 1."""
    asks = {
        "litellm": clients.litellm_alone,
        "on litellm": clients.on_litellm,
        "direct": clients.on_direct,
        "bare": clients.bare,
    }
    found = {name: [cpu for cpu, _ in them] for name, them in (await turns(asks, rounds)).items()}
    show("stack on litellm ÷ litellm alone", found["on litellm"], found["litellm"], "≤ 1.10", "µs")
    show("tot_lab on litellm ÷ direct", found["on litellm"], found["direct"], "≥ 6", "µs")
    show("tot_lab direct ÷ aiohttp alone", found["direct"], found["bare"], "", "µs")


LAYERS = {
    "strategy ÷ aiohttp alone": (False, False),
    "strategy to journal ÷ aiohttp": (True, False),
    "strategy to disk cache ÷ aiohttp": (False, True),
    "strategy to journal and cache ÷ aiohttp": (True, True),
}
"""Whether there is a journal and a cache on disk."""


async def recorded(base: str, journal: bool, cache: bool, runs: int = 24) -> float:
    """CPU µs a call of searches of 160 calls."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:  # /tmp may be memory, which needs no fsync
        folder = Path(name)
        model = tl.OpenAICompatible(model=MODEL, base_url=base, concurrency=256)
        kept = folder / "calls" if cache else None
        lab = tl.Lab(model, runs=folder if journal else None, cache=kept, mode="auto" if cache else "off")
        cpu = time.process_time()
        made = await asyncio.gather(*(lab.run(SEARCH, tl.general(f"{PROMPT}{k}")) for k in range(runs)))
        calls = sum(run.usage.calls for run in made)
        assert not any(run.usage.errors for run in made)
        return (time.process_time() - cpu) / calls * 1e6


async def per_recorded_call(clients: Clients, rounds: int) -> None:
    """Part 2."""
    ours: dict[str, list[float]] = {name: [] for name in LAYERS}
    theirs = []
    for number in range(rounds + 1):  # at first, several samples are requested at once, of which one is given
        bare = (await all_calls(clients.bare, 4_000, 256))[0]
        costs = {name: await recorded(clients.base, *parts) for name, parts in LAYERS.items()}
        if number:
            theirs.append(bare)
            for name, cost in costs.items():
                ours[name].append(cost)
    for name, found in ours.items():
        show(name, found, theirs, "≤ 3" if name == list(LAYERS)[-1] else "", "µs")


async def per_second(clients: Clients, rounds: int, peers: bool) -> None:
    """Part 3."""
    found = await turns({"direct": clients.on_direct, "bare": clients.bare}, rounds, calls=2_000, at_once=256)
    rates = {name: [rate for _, rate in them] for name, them in found.items()}
    show("requests/s, tot_lab ÷ aiohttp alone", rates["direct"], rates["bare"], "", "/s")
    if not peers:
        return
    with venv_of("openai[aiohttp]") as python:
        script = HERE / "peers" / "openai_peer.py"
        ours, theirs = [], []
        for _ in range(rounds):
            output: dict[str, Any] = await asyncio.to_thread(output_of, [python, script, clients.base])
            theirs.append(output["per_second"])
            ours.append((await all_calls(clients.on_direct, 2_000, 256))[1])
    show("requests/s, tot_lab ÷ openai[aiohttp]", ours, theirs, "≥ 3", "/s")


async def stalls(clients: Clients, rounds: int) -> None:
    """Part 4."""
    asks = {"direct": clients.on_direct, "bare": clients.bare}
    found: dict[str, list[float]] = {name: [] for name in asks}
    for _ in range(rounds):
        for name, ask in asks.items():
            longest = [0.0]

            async def watch(longest: list[float] = longest) -> None:
                while True:
                    before = time.perf_counter()
                    await asyncio.sleep(0.001)
                    longest[0] = max(longest[0], time.perf_counter() - before - 0.001)

            watching = asyncio.ensure_future(watch())
            await all_calls(ask, 4_000, 1_000)
            watching.cancel()
            found[name].append(longest[0] * 1e3)
    show("longest stall at 1,000, tot_lab ÷ aiohttp", found["direct"], found["bare"], "≤ 2", "ms")


SAMPLES, GROUP = 256, 32
QUESTION = "A club has 48 members. Each pays 7 dollars a month. How much does the club receive in year {}?"


async def sampled(base: str, tasks: int, journal: bool, cache: bool) -> None:
    """Part 5, with or without a journal and a cache: a line with the CPU and one with the bytes."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        folder = Path(name)
        runs, calls = folder / "runs", folder / "calls"
        lab = tl.Lab(
            tl.OpenAICompatible(model=MODEL, base_url=base),
            runs=runs if journal else None,
            cache=calls if cache else None,
            mode="auto" if cache else "off",
        )
        questions = [tl.general(QUESTION.format(k)) for k in range(tasks)]
        cpu = time.process_time()
        sweep = await lab.sweep(tl.SelfConsistency(attempts=SAMPLES), questions)
        cpu = (time.process_time() - cpu) / sweep.counts.asked * 1e6
        if cache:
            lab.gateway.cache.close()  # which empties SQLite's log
        sizes = [
            sum(file.stat().st_size for file in part.rglob("*") if file.is_file()) for part in (runs, calls)
        ]
        run = next(iter(sweep.runs()))
        text = sum(len(reply) for reply in run.calls_df().reply) / run.usage.calls
        sent = [
            line.e.data["n"] for line in run.lines if isinstance(line.e, Note) and line.e.name == "call.sent"
        ]
        requests = sum(1 / n for n in sent) * tasks
    kept = " and ".join(filter(None, ["journal" * journal, "cache" * cache])) or "neither"
    line(
        f"CPU µs a sample, {kept}", cpu, "≤ 100", f"{requests:,.0f} requests for {tasks * SAMPLES:,} samples"
    )
    if journal or cache:
        above = sum(sizes) / sweep.counts.asked - text
        line("  bytes a sample above its text", above, "≤ 2048", f"text {text:,.0f}")


async def samples(tasks: int) -> None:
    """Part 5."""
    with a_server("groups") as base:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            for n in (1, GROUP):

                async def bare(k: int, n: int = n) -> object:
                    body = {"model": MODEL, "messages": [{"role": "user", "content": QUESTION}], "n": n}
                    async with session.post(f"{base}/chat/completions", json=body) as response:
                        return await response.json()

                cpu = (await all_calls(bare, 2_000 if n == 1 else 400))[0] / n
                line(f"CPU µs a sample, aiohttp alone, n = {n}", cpu, "", "")
        for journal, cache in ((False, False), (True, False), (True, True)):
            await sampled(base, tasks, journal, cache)


async def everything(base: str, rounds: int, peers: bool) -> None:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        clients = Clients(base, session)
        await per_call(clients, rounds)
        await per_recorded_call(clients, rounds)
        await per_second(clients, rounds, peers)
        await stalls(clients, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="how often each thing is measured")
    parser.add_argument("--peers", action="store_true", help="install and measure the client of OpenAI too")
    parser.add_argument("--samples", type=int, metavar="TASKS", help="measure part 5 alone")
    given = parser.parse_args()
    if given.samples is None:
        with a_server() as base:
            asyncio.run(everything(base, given.rounds, given.peers))
    asyncio.run(samples(given.samples or 50))


if __name__ == "__main__":
    main()
