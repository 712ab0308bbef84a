"""litellm's own cache in memory: CPU µs of a hit. Runs alone in a venv of its own (later versions
import packages at a hit that they do not install)."""

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import asyncio
import json
import time
from importlib.metadata import version

import litellm
from litellm.caching.caching import Cache

CALLS = 100
TOLD = {
    "model": "openai/gpt-4.1-mini",
    "mock_response": "A step that the model wrote, and why. " * 15,
    "messages": [{"role": "user", "content": "A problem, the steps so far, and what is asked for. " * 22}],
    "temperature": 0.7,
}


async def ask() -> None:
    for draw in range(CALLS):
        await litellm.acompletion(seed=draw, **TOLD)


async def main() -> None:
    litellm.cache = Cache()  # in memory
    await ask()
    await ask()
    began = time.process_time()
    await ask()
    cpu = time.process_time() - began
    print(json.dumps({"us": cpu / CALLS * 1e6, "version": version("litellm")}))


asyncio.run(main())
