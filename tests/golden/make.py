"""Writes the golden trees and layouts anew: `python tests/golden/make.py`. Look at what changed before you
commit it.

The golden journals (`journal-schema-N.jsonl`) are written once per schema, never anew:
`python tests/golden/make.py journal` refuses to overwrite one.
"""

import asyncio
import json
import random
import shutil
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent))

from support import SETTINGS, STRATEGIES, TASK, Scripted  # noqa: E402
from support.layered import layered  # noqa: E402

import tot_lab as tl  # noqa: E402
from tot_lab.record.journal import SCHEMA  # noqa: E402
from tot_lab.testing import legs  # noqa: E402
from tot_lab.views.figures.layout import tidy  # noqa: E402


def newest_first(tree, frontier):
    """A search of one's own."""
    return frontier[-1:]


WHOLE_PROMPT = (
    "Problem:\n{problem}\n\nThink step by step, then end with one line of this form:\nAnswer: <your answer>"
)
"""The prompt of the generator, which a reward model also got when the tree was made."""

SEARCHES = {
    "beam": tl.TreeOfThoughts(propose=tl.Sample(count=3), stop=tl.Stop(depth=2)),
    "depth_first": tl.TreeOfThoughts(
        search=tl.DepthFirst(prune_below=0.3, width=2), stop=tl.Stop(depth=3, nodes=14)
    ),
    "breadth_first": tl.TreeOfThoughts(
        search=tl.searches.BreadthFirst(width=2), stop=tl.Stop(depth=2, patience=2)
    ),
    "best_first": tl.TreeOfThoughts(propose="propose", search=tl.BestFirst(width=3), stop=tl.Stop(nodes=12)),
    "mcts": tl.TreeOfThoughts(propose=tl.Sample(count=2), search=tl.MCTS(iterations=4)),
    "own_function": tl.TreeOfThoughts(
        propose=tl.Sample(count=2),
        evaluate="joint",
        search=tl.searches.FunctionSearch(function=newest_first, width=2),
    ),
    "prm_beam": tl.TreeOfThoughts(search=tl.searches.PRMBeam(width=2, count=2)),
    "dvts": tl.TreeOfThoughts(search=tl.searches.DVTS(subtrees=2, count=2)),
    "rebase": tl.TreeOfThoughts(search=tl.searches.REBASE(width=5), answer="majority_vote"),
    "particle_gibbs": tl.TreeOfThoughts(
        search="particle_gibbs",
        evaluate=tl.evaluators.RewardModel(prompt=WHOLE_PROMPT),
        stop=tl.Stop(solved=None),
    ),
    "particle_filter": tl.TreeOfThoughts(
        search=tl.searches.ParticleFilter(particles=3), stop=tl.Stop(solved=None)
    ),
    "sampled_beam": tl.TreeOfThoughts(search=tl.searches.SampledBeam(width=2), stop=tl.Stop(depth=2)),
    "a_star": tl.TreeOfThoughts(propose=tl.Sample(count=2), search=tl.searches.AStar(heuristic="score")),
    "levin": tl.TreeOfThoughts(propose=tl.Sample(count=2), search="levin"),
    "lats": tl.TreeOfThoughts(propose=tl.Sample(count=2), search=tl.searches.LATS(iterations=4)),
    "bg_mcts": tl.TreeOfThoughts(propose=tl.Sample(count=2), search=tl.searches.BGMCTS(iterations=6)),
    "ab_mcts_a": tl.TreeOfThoughts(search=tl.searches.ABMCTSA(iterations=8)),
    "ab_mcts_m": tl.TreeOfThoughts(search=tl.searches.ABMCTSM(iterations=8)),
    "mur": tl.TreeOfThoughts(search=tl.searches.MUR(count=2, momentum=0.5), stop=tl.Stop(depth=4)),
    "phi_decoding": tl.TreeOfThoughts(
        evaluate="likelihood", search=tl.searches.PhiDecoding(beams=2, count=2, most=2), stop=tl.Stop(depth=4)
    ),
    "uncertainty_branching": tl.TreeOfThoughts(
        search=tl.searches.UncertaintyBranching(count=2), stop=tl.Stop(depth=4)
    ),
    "graph_of_thoughts": tl.TreeOfThoughts(search="graph_of_thoughts"),
    "vote": tl.TreeOfThoughts(propose=tl.Sample(count=2), evaluate=tl.Vote(samples=3), stop=tl.Stop(depth=2)),
}


METHODS = {
    kind.kind: kind(**SETTINGS.get(kind, {}))
    for kind in STRATEGIES
    if not issubclass(kind, tl.TreeOfThoughts)
}


def tree_of(strategy: tl.Strategy) -> dict:
    """What a golden file holds of a run."""
    run = asyncio.run(tl.Lab(Scripted(), runs=None, tools=[legs]).run(strategy, TASK))
    nodes = {
        node.id: [node.text, node.score, node.state, *([node.reason] if node.reason else [])]
        for node in run.tree
    }
    return {"stopped": run.stop_reason, "answer": run.answer, "calls": run.usage.calls, "nodes": nodes}


def dumps(tree: dict) -> str:
    """One node a line."""
    nodes = ",\n".join(f"  {json.dumps(id)}: {json.dumps(node)}" for id, node in tree["nodes"].items())
    head = "".join(f' "{key}": {json.dumps(tree[key])},\n' for key in ("stopped", "answer", "calls"))
    return f'{{\n{head} "nodes": {{\n{nodes}\n }}\n}}\n'


def grown(count: int, reach: int, seed: int) -> list[int]:
    """A random forest: each node below one of the `reach` before it, or a root."""
    dice = random.Random(seed)
    return [dice.randrange(max(-1, node - reach), node) for node in range(count)]


def beam(width: int, branch: int, depth: int) -> list[int]:
    """A search that goes on from some thoughts of each level."""
    dice = random.Random(width)
    parents, level = [-1], [0]
    for _ in range(depth):
        chosen = sorted(dice.sample(level, min(width, len(level))))
        level = list(range(len(parents), len(parents) + len(chosen) * branch))
        parents.extend(parent for parent in chosen for _ in range(branch))
    return parents


def mixed(parents: list[int]) -> list[int]:
    """The same tree with its nodes in another order."""
    places = random.Random(0).sample(range(len(parents)), len(parents))
    parent_of = {
        place: -1 if parent < 0 else places[parent] for place, parent in zip(places, parents, strict=True)
    }
    return [parent_of[node] for node in range(len(parents))]


TREES = {
    "nothing": [],
    "one": [-1],
    "roots": [-1, -1, -1, 1],
    "chain": list(range(-1, 40)),
    "binary": [-1, *((node - 1) // 2 for node in range(1, 63))],
    "caterpillar": [-1, *(4 * ((node - 1) // 4) for node in range(1, 60))],
    "beam": beam(3, 4, 40),
    "wide beam": beam(12, 8, 4),
    "bushy": grown(150, 150, 1),
    "deep": grown(150, 4, 2),
    "mixed": mixed(grown(120, 25, 3)),
}


def layouts() -> str:
    """Where the trees are drawn, one tree a line."""
    drawn = {}
    for name, parents in TREES.items():
        (x, y), (narrow, _) = tidy(parents), layered(parents)
        drawn[name] = {"parents": parents, "y": y.tolist(), "tidy": x.tolist(), "layered": narrow.tolist()}
    rows = ",\n".join(f" {json.dumps(name)}: {json.dumps(tree)}" for name, tree in drawn.items())
    return f"{{\n{rows}\n}}\n"


def main(what: str = "trees") -> None:
    if what == "journal":
        target = FOLDER / f"journal-schema-{SCHEMA}.jsonl"
        if target.exists():
            sys.exit(f"{target} exists; the journal of a schema is never written anew")
        lab = tl.Lab("sim/game24", runs=FOLDER / "new")
        search = tl.TreeOfThoughts(propose=tl.Propose(count=3), evaluate=tl.Value(samples=2))
        asyncio.run(lab.run(search, tl.game24("4 5 6 10"), budget=tl.Budget(calls=30)))
        lab.last.path.replace(target)
        shutil.rmtree(FOLDER / "new")
        return
    for name, search in SEARCHES.items():
        (FOLDER / f"{name}.json").write_text(dumps(tree_of(search)))
    methods = ",\n".join(f'"{name}": {dumps(tree_of(one)).strip()}' for name, one in METHODS.items())
    (FOLDER / "methods.json").write_text(f"{{\n{methods}\n}}\n")
    (FOLDER / "layouts.json").write_text(layouts())


if __name__ == "__main__":
    main(*sys.argv[1:])
