"""Records the experiment of docs/studies/game24_small_model.md with a real model on this machine.

    tot-lab model pull qwen2.5-coder-1.5b
    tot-lab cache import data/45_one_real_result.jsonl.gz --cache FOLDER/calls    # what is recorded
    python benchmarks/real_game24.py pilot FOLDER       # ten other hands: what the plan takes from them
    python benchmarks/real_game24.py main FOLDER        # 60 hands: searches, then chains; hours
    tot-lab cache export data/45_one_real_result.jsonl.gz FOLDER/runs/* --cache FOLDER/calls

Stop it at any time. The same command continues, also on another machine after the import.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from pathlib import Path

import tot_lab as tl
from tot_lab.domains.game24 import hands
from tot_lab.strategies.search.searches import Search

MODEL = "local/qwen2.5-coder-1.5b"
SEED = 24
"""Seed of the order of the hands."""

CHAINED = 3
"""Hands of the pilot on which the chains are recorded too."""


def tasks(part: str) -> list[tl.Task]:
    """Return the hands of the pilot or of the experiment in their order. No hand is in both."""
    known = hands()
    places = range(0, 120, 2) if part == "main" else range(5, 600, 60)
    picked = [tl.game24(known[place].numbers, structured=True) for place in places]
    random.Random(SEED).shuffle(picked)
    return picked


def tree(search: Search, **stop: int) -> tl.TreeOfThoughts:
    """Return a tree search. All of them share proposer, evaluator and sampling settings."""
    return tl.TreeOfThoughts(
        propose=tl.Sample(count=3),
        evaluate=tl.evaluators.Logprob(),
        search=search,
        stop=tl.Stop(solved=None, depth=3, **stop),
        temperature=1.0,
        max_tokens=60,
    )


ONE_ANSWER = tl.OneAnswer(temperature=0.0, max_tokens=60)
CHAIN = tl.ChainOfThought(temperature=0.7, max_tokens=300)


def best_of(attempts: int) -> tl.BestOf:
    """Return the best of some chains by a written verdict."""
    return tl.BestOf(strategy=CHAIN, attempts=attempts, max_tokens=100, temperature=0.7)


SEARCHES: dict[str, tl.Strategy] = {
    "one answer": ONE_ANSWER,
    "beam": tree(tl.BeamSearch(width=2)),
    "best-first": tree(tl.BestFirst(), nodes=13),
    "MCTS": tree(tl.MCTS(iterations=4)),
    "REBASE": tree(tl.searches.REBASE(width=5)),
    "particle filter": tree(tl.searches.ParticleFilter(particles=5)),
}
PILOT_SEARCHES: dict[str, tl.Strategy] = {
    **SEARCHES,
    "best-first": tree(tl.BestFirst(), nodes=16),
    "BG-MCTS": tree(tl.searches.BGMCTS(), nodes=16),
    "AB-MCTS-M": tree(tl.searches.ABMCTSM(), nodes=16),
}
PILOT_CHAINS: dict[str, tl.Strategy] = {
    "chain of thought": CHAIN,
    "self-consistency": tl.SelfConsistency(strategy=CHAIN, attempts=4),
    "best of": best_of(4),
}

CHAINS: dict[str, tl.Strategy] = {
    "chain of thought": CHAIN,
    "vote of 13": tl.SelfConsistency(strategy=CHAIN, attempts=13),
    "vote of 13, checked": tl.SelfConsistency(strategy=tl.methods.Verified(strategy=CHAIN), attempts=13),
    "best of 9": best_of(9),
}


async def record(name: str, made: tl.Lab, settings: dict[str, tl.Strategy], given: list[tl.Task]) -> None:
    """Run all settings on one hand after another."""
    for number, task in enumerate(given, 1):
        began = time.monotonic()
        sweep = await made.sweep(settings, [task], name=name, at_once=1)
        rows = sweep.df()
        solved = ", ".join(rows[rows.correct.fillna(False)].setting) or "none"
        print(f"{number}: {task.id}: {time.monotonic() - began:.0f} s; solved by {solved}", flush=True)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("part", choices=["pilot", "main"])
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    folder, given = options.folder, tasks(options.part)
    # One call at a time, so that the model reuses what it has read.
    made = tl.Lab(MODEL, cache=folder / "calls", runs=folder / "runs")
    if options.part == "pilot":
        await record("pilot", made, PILOT_SEARCHES, given)
        await record("pilot", made, PILOT_CHAINS, given[:CHAINED])
    else:
        await record("searches", made, SEARCHES, given)
        await record("chains", made, CHAINS, given)


if __name__ == "__main__":
    asyncio.run(main())
