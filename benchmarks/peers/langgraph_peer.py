# mypy: ignore-errors
"""The work of benchmarks/engine.py in langgraph: the search as a graph of three nodes.

    python langgraph_peer.py "no checkpointer" | "memory checkpointer"

`propose` is sent to once per candidate (`Send`), each then sends to `score`, and `prune` waits for
all scores of the level, keeps the best five and sends on. Compiled without a checkpointer, which
is the default, or with its InMemorySaver, which keeps what happened, as the others do.
"""

import asyncio
import itertools
import json
import operator
import sys
import time
from importlib.metadata import version
from typing import Annotated, TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send

RUNS = 10
BRANCH, BEAM, DEPTH = 5, 5, 4
QUESTION = "What is six times seven?"
calls = itertools.count()


async def model(prompt):
    next(calls)
    return "score: 0.5" if prompt.endswith("score it") else "a next step"


class State(TypedDict):
    """thoughts: (path, steps, score) of every thought so far; a path tells a thought from others."""

    depth: int
    thoughts: Annotated[list, operator.add]


class Candidate(TypedDict):
    path: tuple
    steps: tuple


async def propose(candidate: Candidate):
    before = "\n".join(candidate["steps"])
    step = await model(f"{QUESTION}\n{before}\nnext step")
    return Command(goto=Send("score", {"path": candidate["path"], "steps": (*candidate["steps"], step)}))


async def score(candidate: Candidate):
    text = await model(QUESTION + "\n" + "\n".join(candidate["steps"]) + "\nscore it")
    return {"thoughts": [(candidate["path"], candidate["steps"], float(text.removeprefix("score: ")))]}


async def prune(state: State):
    level = [thought for thought in state["thoughts"] if len(thought[0]) == state["depth"]]
    level.sort(key=lambda thought: -thought[2])
    kept = level[:BEAM]
    if state["depth"] == DEPTH:
        return Command(goto=END)
    return Command(update={"depth": state["depth"] + 1}, goto=fan_out(kept))


def fan_out(kept):
    return [
        Send("propose", {"path": (*path, k), "steps": steps})
        for path, steps, _ in kept
        for k in range(BRANCH)
    ]


def compiled(checkpointer):
    graph = StateGraph(State)
    graph.add_node("propose", propose, destinations=("score",))
    graph.add_node("score", score)
    graph.add_node("prune", prune, destinations=("propose", END))
    graph.add_conditional_edges(START, lambda state: fan_out([((), (), 1.0)]), ["propose"])
    graph.add_edge("score", "prune")
    return graph.compile(checkpointer=checkpointer)


async def main(mode):
    async def once():
        saver = InMemorySaver() if mode == "memory checkpointer" else None
        config = {"configurable": {"thread_id": "1"}} if saver else None
        return await compiled(saver).ainvoke({"depth": 1, "thoughts": []}, config)

    nodes = len({path for path, *_ in (await once())["thoughts"]})
    made = next(calls)
    began = time.process_time()
    for _ in range(RUNS):
        await once()
    cpu = time.process_time() - began
    told = {"us_per_node": cpu / RUNS / nodes * 1e6, "nodes": nodes, "calls": made}
    print(json.dumps({**told, "version": version("langgraph")}))


asyncio.run(main(sys.argv[1]))
