# mypy: ignore-errors
"""The work of benchmarks/engine.py in treequest: its TreeOfThoughtsBFSAlgo, 80 steps.

    python treequest_peer.py "step" | "step in place"

Its root always gets one child, so its levels are 1 + 5 + 25 + 25 + 24: the same 80 nodes. A step
generates and scores one node: two calls of the model, one after another, as its `generate_fn` is
not async. `step` is its default, which copies the whole state at each step; `step in place` does
not. It keeps no record but the tree in memory.
"""

import itertools
import json
import sys
import time
from importlib.metadata import version

import treequest

RUNS = 10
NODES = 80
QUESTION = "What is six times seven?"
calls = itertools.count()


def model(prompt):
    next(calls)
    return "score: 0.5" if prompt.endswith("score it") else "a next step"


def generate(path):
    """A state is the steps up to it."""
    path = path or ()
    before = "\n".join(path)
    step = model(f"{QUESTION}\n{before}\nnext step")
    score = model(f"{QUESTION}\n{before}\n{step}\nscore it")
    return (*path, step), float(score.removeprefix("score: "))


def once(inplace):
    search = treequest.TreeOfThoughtsBFSAlgo(breadth_limit=5, size_limit=5)
    state = search.init_tree()
    for _ in range(NODES):
        state = search.step(state, {"think": generate}, inplace=inplace)
    return len(search.get_state_score_pairs(state))


inplace = sys.argv[1] == "step in place"
nodes = once(inplace)
made = next(calls)
began = time.process_time()
for _ in range(RUNS):
    once(inplace)
cpu = time.process_time() - began
told = {"us_per_node": cpu / RUNS / nodes * 1e6, "nodes": nodes, "calls": made}
print(json.dumps({**told, "version": version("treequest")}))
