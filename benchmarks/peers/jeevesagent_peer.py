# mypy: ignore-errors
"""The work of benchmarks/engine.py in jeevesagent: its TreeOfThoughts under its Agent.

    python jeevesagent_peer.py run | stream

Agent and search have their defaults but for the shape of the tree, so its record is what it keeps
by default: the nodes in its session, in memory, and an episode in its in-memory memory. `run`
drops the events, `stream` hands each to a consumer. The model's chunks are made once: the model
itself costs nothing.
"""

import asyncio
import json
import sys
import time
from importlib.metadata import version

from jeevesagent import Agent
from jeevesagent.architecture import TreeOfThoughts
from jeevesagent.architecture.tree_of_thoughts import DEFAULT_EVALUATOR_PROMPT
from jeevesagent.core.types import ModelChunk, Usage

RUNS = 100
PROMPT = "What is six times seven?"
END = ModelChunk(kind="finish", finish_reason="stop", usage=Usage())
SCORE = ModelChunk(kind="text", text="score: 0.5")
STEP = ModelChunk(kind="text", text="a next step")


class NullModel:
    name = "null"
    calls = 0

    async def stream(self, messages, *, tools=None, temperature=1.0, max_tokens=None):
        self.calls += 1
        yield SCORE if messages[0].content == DEFAULT_EVALUATOR_PROMPT else STEP
        yield END


async def main(mode):
    model = NullModel()
    agent = Agent("", model=model, architecture=TreeOfThoughts(branch_factor=5, beam_width=5, max_depth=4))

    async def once(see=None):
        if mode == "run":
            return await agent.run(PROMPT, emit=see)
        async for event in agent.stream(PROMPT):
            if see is not None:
                await see(event)

    seen = []

    async def see(event):
        seen.append(event)

    await once(see)
    calls = model.calls
    nodes = sum(event.payload.get("name") == "tot.proposed" for event in seen)
    await once()
    began = time.process_time()
    for _ in range(RUNS):
        await once()
    cpu = time.process_time() - began
    told = {"us_per_node": cpu / RUNS / nodes * 1e6, "nodes": nodes, "calls": calls}
    print(json.dumps({**told, "version": version("jeevesagent")}))


asyncio.run(main(sys.argv[1]))
