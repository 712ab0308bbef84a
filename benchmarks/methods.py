"""Prints the tables of `docs/concepts/search_methods.md`: every method at matched tokens, simulated.

    python benchmarks/methods.py            # all of it, some minutes
    python benchmarks/methods.py game24 0.4 # one family and skill

Every registered search and every registered method without a tree takes part, unless `LEFT_OUT` names it. A
first sweep at two small scales tells what each method spends, and `tl.match` scales it to the amount. A
second sweep of a few tasks at that scale makes the match more exact. All numbers are those of simulated
players and say nothing about a real model.
"""

from __future__ import annotations

import asyncio
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tot_lab as tl
from tot_lab.core.registry import names
from tot_lab.core.strategy import strategy_named


class Family(NamedTuple):
    """A family of tasks with its player by skill. `depth` is the most steps of a path in a tree."""

    title: str
    player: Callable[[float], Any]
    tasks: list[tl.Task]
    depth: int
    tokens: int
    repeats: int


SKILLS = (0.2, 0.4, 0.6)
FAR = 0.15
"""Tokens that differ from the amount by a larger share are in italics."""

TRIAL_TASKS = 6
SCALES = {"stop.nodes": (15, 45)}
"""Small scales by setting, 2 and 4 for others."""

FAMILIES = {
    "game24": Family(
        "Game of 24",
        lambda skill: tl.sim.SimGame24(skill=skill, noise=0.2),
        tl.game24_tasks(20),
        depth=3,
        tokens=8_000,
        repeats=3,
    ),
    "word_sums": Family(
        "Word problems (`word_sums`)",
        lambda skill: tl.sim.SimAgent(skill=skill),
        [tl.domains.word_sums(number) for number in range(1, 21)],
        depth=5,
        tokens=8_000,
        repeats=3,
    ),
    "mini_crossword": Family(
        "Mini crossword",
        lambda skill: tl.sim.SimMiniCrossword(skill=skill, noise=0.2),
        [tl.domains.mini_crossword(number) for number in range(1, 21)],
        depth=10,
        tokens=24_000,
        repeats=1,
    ),
}

WRAPPERS = "another strategy, or several, in a frame of its own"
TOOLS = "works with tools, of which these tasks need none"
LOGPROBS = "needs log-probabilities, which simulated players do not report"
LEFT_OUT = {
    "tree_of_thoughts": "one row for each search",
    "one_answer": "no setting of scale, as chain of thought",
    "verified": WRAPPERS,
    "adaptive": WRAPPERS,
    "reflexion": WRAPPERS,
    "with_thinking": WRAPPERS,
    "with_synthesis": WRAPPERS,
    "gather_then_think": WRAPPERS,
    "tree_then_act": WRAPPERS,
    "tool_loop": TOOLS,
    "react": TOOLS,
    "plan_execute": TOOLS,
    "deep_think": "its effort is a level, and no number",
    "deep_conf": LOGPROBS,
    "deep_conf_online": LOGPROBS,
    "mur": LOGPROBS,
    "phi_decoding": LOGPROBS,
    "uncertainty_branching": LOGPROBS,
    "budget_forcing": "the simulated players do not continue an unfinished reply",
}
"""Registered strategies and searches that are not compared, each with the reason."""


def methods(depth: int) -> dict[str, tl.Strategy]:
    """Return every method of the comparison by name, with trees of `depth` levels."""
    chain, checked = tl.ChainOfThought(), tl.methods.Verified()
    tree = tl.TreeOfThoughts(propose=tl.Sample(count=3), stop=tl.Stop(solved=None, depth=depth))
    made: dict[str, tl.Strategy] = {"self-consistency, checked": tl.SelfConsistency(strategy=checked)}
    given = {"best_of": tl.BestOf(strategy=chain), "self_consistency": tl.SelfConsistency(strategy=chain)}
    for name in names("strategies"):
        if name not in LEFT_OUT:
            made[_title(name)] = given.get(name) or strategy_named(name)
    for name in names("searches"):
        if name not in LEFT_OUT:
            made[_title(name)] = tree.with_(search=name)
    order = ["chain of thought", "self-consistency", "self-consistency, checked"]
    return {name: made[name] for name in [*order, *(name for name in made if name not in order)]}


def _title(name: str) -> str:
    return {"self_consistency": "self-consistency"}.get(name, name.replace("_", " "))


def scaled(strategy: tl.Strategy) -> list[tl.Strategy]:
    """Return the strategy at its small scales."""
    path = strategy.scale_setting()
    return [strategy] if path is None else [strategy.with_({path: k}) for k in SCALES.get(path, (2, 4))]


async def matched(
    lab: tl.Lab, made: Mapping[str, tl.Strategy], tasks: list[tl.Task], **amount: float
) -> tuple[dict[str, tl.Strategy], dict[str, str]]:
    """Return the strategies at matched cost, and why a method has no scale of that cost."""
    trials = {f"{name} {k}": one for name, method in made.items() for k, one in enumerate(scaled(method))}
    sweeps = [await lab.sweep(trials, tasks[::2])]
    for _ in range(2):
        settings: dict[str, tl.Strategy] = {}
        failed: dict[str, str] = {}
        for name, method in made.items():
            try:
                settings |= tl.match({name: method}, runs=sweeps, task=tasks[0], **amount)
            except ValueError as error:
                failed[name] = str(error)
        if len(sweeps) == 1:
            sweeps.append(await lab.sweep(settings, tasks))
    return settings, failed


class Cell(NamedTuple):
    """One method at one skill: success rate and 95% interval, and the mean tokens of a run."""

    rate: float
    low: float
    high: float
    tokens: float


async def measured(family: Family, skill: float) -> tuple[dict[str, Cell], dict[str, str]]:
    """Return the cells of one family and skill, and the reasons of the methods without one."""
    lab = tl.Lab(family.player(skill), runs=None)
    few = family.tasks[:: len(family.tasks) // TRIAL_TASKS]
    settings, failed = await matched(lab, methods(family.depth), few, tokens=family.tokens)
    sweep = await lab.sweep(settings, family.tasks, repeats=family.repeats)
    frame = sweep.df()
    frame["tokens"] = frame["input_tokens"] + frame["output_tokens"]
    spent = frame.groupby("setting", observed=True)["tokens"].mean().to_dict()
    rates: Any = tl.stats.success_rates(sweep).itertuples()
    return {row.setting: Cell(row.rate, row.low, row.high, spent[row.setting]) for row in rates}, failed


def print_table(family: Family, skills: list[float]) -> None:
    """Print the table of one family, and the methods whose cost is far from the amount."""
    found = [asyncio.run(measured(family, skill)) for skill in skills]
    heads = [f"skill {skill} | tokens" for skill in skills]
    print(f"\n### {family.title}\n")
    runs = len(family.tasks) * family.repeats
    print(f"{len(family.tasks)} tasks, {runs} runs per cell, {family.tokens:,} tokens a run.\n")
    print("| method | " + " | ".join(heads) + " |")
    print("|---|" + "---|--:|" * len(skills))
    for name in methods(family.depth):
        row = [name]
        for cells, _ in found:
            cell = cells.get(name)
            row += ["–", "–"] if cell is None else _printed(cell, family.tokens)
        print("| " + " | ".join(row) + " |")
    for skill, (_, failed) in zip(skills, found, strict=True):
        for reason in failed.values():
            print(f"\nSkill {skill}: {reason}")
    sys.stdout.flush()


def _printed(cell: Cell, amount: int) -> list[str]:
    tokens = f"{cell.tokens:,.0f}"
    far = abs(cell.tokens / amount - 1) > FAR
    return [f"**{cell.rate:.0%}** ({cell.low:.0%}–{cell.high:.0%})", f"*{tokens}*" if far else tokens]


def main(families: list[str], skills: list[float]) -> None:
    warnings.simplefilter("ignore")
    for family in families:
        print_table(FAMILIES[family], skills)


if __name__ == "__main__":
    main(sys.argv[1:2] or list(FAMILIES), [float(skill) for skill in sys.argv[2:]] or list(SKILLS))
