"""Prints the tables of `docs/concepts/search_methods.md`: every method at matched tokens, simulated.

    python benchmarks/methods.py            # all of it, some minutes
    python benchmarks/methods.py game24 0.4 # one family and skill

A first sweep at a small scale tells what each method spends; `tl.match` then scales it to the amount. All
numbers are those of simulated players and say nothing about a real model.
"""

from __future__ import annotations

import asyncio
import sys
import warnings
from collections.abc import Callable
from typing import Any

import tot_lab as tl
from tot_lab.core.registry import names
from tot_lab.core.strategy import strategy_named

TOKENS = {"mini_crossword": 24_000}
"""Tokens per run by family, 8,000 for others."""

SKILLS = (0.2, 0.4, 0.6)
FAMILIES: dict[str, tuple[Callable[[float], Any], Callable[[], list[tl.Task]]]] = {
    "game24": (lambda skill: tl.sim.SimGame24(skill=skill, noise=0.2), lambda: tl.game24_tasks(20)),
    "word_sums": (
        lambda skill: tl.sim.SimAgent(skill=skill),
        lambda: [tl.domains.word_sums(k) for k in range(1, 6)],
    ),
    "mini_crossword": (
        lambda skill: tl.sim.SimMiniCrossword(skill=skill, noise=0.2),
        lambda: [tl.domains.mini_crossword(k) for k in range(1, 4)],
    ),
}

DEPTHS = {"game24": 3, "mini_crossword": 10}
"""Steps of a solution, where their number is known."""


def methods(depth: int) -> dict[str, tl.Strategy]:
    """Return every method of the comparison at a small scale, with trees of `depth` levels."""
    tree = tl.TreeOfThoughts(propose=tl.Sample(count=3), stop=tl.Stop(solved=None, depth=depth))
    chain = tl.ChainOfThought()
    made: dict[str, tl.Strategy] = {
        "chain of thought": chain,
        "best of N": tl.BestOf(strategy=chain, attempts=2),
        "self-consistency": tl.SelfConsistency(strategy=chain, attempts=2),
        "self-consistency, checked": tl.SelfConsistency(strategy=tl.methods.Verified(), attempts=2),
    }
    for name in ("weighted_best_of", "early_stopping", "self_refine", "debate", "mixture_of_agents"):
        made[name.replace("_", " ")] = strategy_named(name)
    for name in names("searches"):
        made[name.replace("_", " ")] = tree.with_(search=name)
    made["forest of thoughts"] = strategy_named("forest_of_thoughts")
    return made


async def measured(family: str, skill: float) -> tl.Sweep:
    """Return the sweep of one family and skill at matched tokens."""
    player, make_tasks = FAMILIES[family]
    lab, tasks = tl.Lab(player(skill), runs=None), make_tasks()
    depth = DEPTHS.get(family, 5)
    small = {name: _small(strategy) for name, strategy in methods(depth).items()}
    first = await lab.sweep(small, tasks[:3])
    matched: dict[str, tl.Strategy] = {}
    for name, strategy in small.items():
        try:
            matched |= tl.match({name: strategy}, tokens=TOKENS.get(family, 8_000), runs=first, task=tasks[0])
        except ValueError as error:
            print(f"{name}: {error}", file=sys.stderr)
    return await lab.sweep(matched, tasks, repeats=3)


def _small(strategy: tl.Strategy) -> tl.Strategy:
    path = strategy.scale_setting()
    return strategy if path is None else strategy.with_({path: 30 if path == "stop.nodes" else 2})


def main(families: list[str], skills: list[float]) -> None:
    warnings.simplefilter("ignore")
    for family in families:
        rates: dict[str, list[str]] = {}
        for skill in skills:
            sweep = asyncio.run(measured(family, skill))
            frame = sweep.df()
            frame["tokens"] = frame["input_tokens"] + frame["output_tokens"]
            spent = frame.groupby("setting", observed=True)["tokens"].mean().to_dict()
            for row in tl.stats.success_rates(sweep).itertuples():
                cell = f"{row.rate:.0%} [{row.low:.0%}, {row.high:.0%}] · {spent[row.setting]:,.0f}"
                rates.setdefault(str(row.setting), []).append(cell)
        print(f"\n## {family} (simulated), success rate [95 % interval] · tokens per run\n")
        print("| method | " + " | ".join(f"skill {skill}" for skill in skills) + " |")
        print("|---|" + "---|" * len(skills))
        for name, cells in rates.items():
            print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main(sys.argv[1:2] or list(FAMILIES), [float(skill) for skill in sys.argv[2:]] or list(SKILLS))
