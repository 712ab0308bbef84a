"""What the model stack adds to litellm.

    python benchmarks/gateway.py [--rounds 9]

64 calls at a time go to a server on loopback, in a process of its own: once through
`litellm.acompletion` alone, once through the whole stack (cache off, so that every call is sent).
The two take turns; the ratio of a pair is what counts. CPU of this process alone.

Figures only: nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from cache import Quiet
from engine import HERE, line

import tot_lab as tl
from tot_lab.core.calls import Call, Message
from tot_lab.models.lite_llm.loading import load_litellm

AT_ONCE = 64
CALLS = 256
SERVER = """
import sys
sys.path.insert(0, sys.argv[1])
from providers import Providers, Said
with Providers(Said("A next step. " * 20)) as server:
    print(server.base("openai"), flush=True)
    sys.stdin.read()
"""


@contextmanager
def a_server() -> Iterator[str]:
    """The base URL of a server that answers at once."""
    command = [sys.executable, "-c", SERVER, str(HERE.parent / "tests")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.communicate()


async def all_calls(ask: Callable[[int], Awaitable[object]]) -> float:
    """CPU µs a call, 64 at a time."""
    waiting = iter(range(CALLS))

    async def some() -> None:
        for k in waiting:
            await ask(k)

    began = time.process_time()
    await asyncio.gather(*(some() for _ in range(AT_ONCE)))
    return (time.process_time() - began) / CALLS * 1e6


async def measured(base: str, rounds: int) -> tuple[list[float], list[float]]:
    """CPU µs a call without the stack and with it."""
    litellm = load_litellm()
    prompt = "A problem, the steps so far, and what is asked for. " * 20
    model = tl.LiteLLM(model="openai/gpt-4.1-mini", api_base=base, api_key="none")
    lab = tl.Lab(model, runs=None, mode="off")
    observer = Quiet()

    async def bare(k: int) -> object:
        messages = [{"role": "user", "content": f"{prompt}{k}"}]
        return await litellm.acompletion(
            model="openai/gpt-4.1-mini",
            messages=messages,
            api_base=base,
            api_key="none",
            temperature=0.7,
            max_tokens=100,
            seed=k,
            num_retries=0,
            max_retries=0,
        )

    async def stacked(k: int) -> object:
        call = Call("0", "ask", (Message("user", f"{prompt}{k}"),), temperature=0.7, max_tokens=100, seed=k)
        reply = await lab.gateway.ask(call, observer)
        assert reply.error is None, reply
        return reply

    alone, through = [], []
    await all_calls(bare)
    await all_calls(stacked)
    gc.collect()
    gc.freeze()  # a full collection of all that litellm imports would fall on either side by chance
    for _ in range(rounds):
        alone.append(await all_calls(bare))
        through.append(await all_calls(stacked))
    return alone, through


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="how often each thing is measured")
    with a_server() as base:
        alone, through = asyncio.run(measured(base, parser.parse_args().rounds))
    ratio = statistics.median(b / a for a, b in zip(alone, through, strict=True))
    ours, theirs = statistics.median(through), statistics.median(alone)
    note = f"{ours:.0f} µs ÷ {theirs:.0f} µs a call, {AT_ONCE} at a time"
    line("through the stack ÷ litellm alone", ratio, "≤ 1.10", note)


if __name__ == "__main__":
    main()
