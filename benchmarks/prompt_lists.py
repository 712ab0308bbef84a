"""What a list of prompts in one request gains over concurrent requests, for yes/no judgements.

    python benchmarks/prompt_lists.py [--weights smollm2-135m] [--slots 1 4] [--judgements 6] [--rounds 4]

Each judgement is one token with its alternatives, of a prompt of its own. The ways take turns, on llama.cpp
with the weights, and on a loopback server that computes nothing. The client is aiohttp alone. Milliseconds
per judgement, medians of all rounds but the first.

Figures only: nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import psutil  # type: ignore[import-untyped]

import tot_lab as tl
from tot_lab.models.weights import find

QUICK = """
import asyncio, json, sys
from aiohttp import web
tops = {"yes": -0.3, "no": -1.4, " Yes": -3.0, " No": -4.0, "y": -5.0}
logprobs = {"tokens": ["yes"], "token_logprobs": [-0.3], "top_logprobs": [tops]}
async def completions(request):
    prompts = (await request.json())["prompt"]
    count = len(prompts) if isinstance(prompts, list) else 1
    choice = {"text": "yes", "finish_reason": "length", "logprobs": logprobs}
    return web.json_response({"choices": [{"index": k, **choice} for k in range(count)]})
async def serve():
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/v1/completions", completions)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(json.dumps({"address": f"http://127.0.0.1:{runner.addresses[0][1]}"}), flush=True)
    await asyncio.to_thread(sys.stdin.read)
asyncio.run(serve())
"""
LLAMA = Path(tl.__file__).parent / "models" / "llama_server.py"
BEFORE = "You judge steps of a solution of the game of 24. Use each number once and reach 24 with + - * /. "
Ask = Callable[[list[str]], Awaitable[object]]


@contextmanager
def a_server(command: list[str], settings: dict[str, Any]) -> Iterator[tuple[str, psutil.Process]]:
    """The address and the process of a server."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes) as server:  # type: ignore[call-overload]
        server.stdin.write(json.dumps(settings) + "\n")
        server.stdin.flush()
        yield json.loads(server.stdout.readline())["address"], psutil.Process(server.pid)
        server.kill()


def prompts(number: int, count: int) -> list[str]:
    dice = random.Random(number)
    steps = [
        " ".join(f"{dice.randint(1, 13)} + {dice.randint(1, 13)} = 14." for _ in range(4))
        for _ in range(count)
    ]
    return [
        f"{BEFORE}Numbers: 4 6 9 13. {number}: {step} Can it reach 24? Answer yes or no." for step in steps
    ]


async def measured(address: str, server: psutil.Process, count: int, rounds: int, chat: bool) -> None:
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer key"}) as session:

        async def post(path: str, **body: Any) -> Any:
            while True:
                with suppress(aiohttp.ServerDisconnectedError):  # an idle connection was closed
                    async with session.post(
                        address + path, json={"max_tokens": 1, "temperature": 0, **body}
                    ) as page:
                        assert page.status == 200, await page.text()
                        return await page.json()

        async def concurrent(texts: list[str]) -> object:
            return await asyncio.gather(
                *(post("/v1/completions", prompt=text, logprobs=10) for text in texts)
            )

        async def one_list(texts: list[str]) -> object:
            return await post("/v1/completions", prompt=texts, logprobs=10)

        async def chats(texts: list[str]) -> object:
            turns = ([{"role": "user", "content": text}] for text in texts)
            more = {"logprobs": True, "top_logprobs": 10}
            return await asyncio.gather(
                *(post("/v1/chat/completions", messages=turn, **more) for turn in turns)
            )

        async def templates(texts: list[str]) -> object:
            turns = ([{"role": "user", "content": text}] for text in texts)
            pages = await asyncio.gather(*(post("/apply-template", messages=turn) for turn in turns))
            return await post(
                "/completion", prompt=[page["prompt"] for page in pages], n_predict=1, n_probs=10
            )

        ways: dict[str, Ask] = {"completions, concurrent": concurrent, "completions, a list": one_list}
        if chat:
            ways |= {"chat, concurrent": chats, "chat, templates and a list": templates}
        found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ways}
        for number in range(rounds * len(ways)):
            name = list(ways)[(number + number // len(ways)) % len(ways)]
            texts = prompts(number, count)
            wall, own, its = time.perf_counter(), time.process_time(), sum(server.cpu_times()[:2])
            await ways[name](texts)
            took = time.perf_counter() - wall, time.process_time() - own, sum(server.cpu_times()[:2]) - its
            found[name].append(tuple(1e3 * seconds / count for seconds in took))  # type: ignore[arg-type]
    for name, rows in found.items():
        wall, own, its = (statistics.median(column) for column in zip(*rows[1:], strict=True))
        its = its or statistics.mean(row[2] for row in rows[1:])  # the clock of another process is coarse
        print(f"  {name:<28}{wall:9.3f} ms, CPU of the client {own:6.3f} and of the server {its:8.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--weights", default="smollm2-135m")
    parser.add_argument("--slots", type=int, nargs="*", default=[1, 4])
    parser.add_argument("--judgements", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=4)
    args = parser.parse_args()
    print("A server that computes nothing, 16 judgements")
    with a_server([sys.executable, "-c", QUICK], {}) as (address, server):
        asyncio.run(measured(address, server, 16, 200, chat=False))
    for slots in args.slots:
        print(f"\nllama.cpp, {args.weights}, slots: {slots}, judgements: {args.judgements}")
        sizes = {"context_window": 2048, "slots": slots, "threads": 1}
        settings = {"path": str(find(args.weights)), "key": "key", **sizes}
        with a_server([sys.executable, "-P", str(LLAMA)], settings) as (address, server):
            asyncio.run(measured(address, server, args.judgements, args.rounds, chat=True))


if __name__ == "__main__":
    main()
