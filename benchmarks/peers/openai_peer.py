"""Requests a second of OpenAI's own client on aiohttp, 256 at a time; part 3 of benchmarks/gateway.py."""

import asyncio
import json
import sys
import time

from openai import AsyncOpenAI, DefaultAioHttpClient

PROMPT = "A problem, the steps so far, and what is asked for. " * 20


async def main(base: str, calls: int = 2_000, at_once: int = 256) -> None:
    async with AsyncOpenAI(
        base_url=base, api_key="none", max_retries=0, http_client=DefaultAioHttpClient()
    ) as client:
        waiting = iter(range(calls))

        async def some() -> None:
            for k in waiting:
                await client.chat.completions.create(
                    model="gpt-4.1-mini",
                    messages=[{"role": "user", "content": f"{PROMPT}{k}"}],
                    temperature=0.7,
                    max_tokens=100,
                    seed=k,
                )

        began = time.perf_counter()
        await asyncio.gather(*(some() for _ in range(at_once)))
        print(json.dumps({"per_second": calls / (time.perf_counter() - began)}))


asyncio.run(main(sys.argv[1]))
