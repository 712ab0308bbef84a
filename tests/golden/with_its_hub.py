"""Writes `its_hub.json`: what the package its-hub 1.2 does on trees of rewards, with seeded draws.

`test_particles.py` runs it in an environment of its own (`make proof`), because tot_lab does not depend on
the package: `python tests/golden/with_its_hub.py` prints the content of the file.
"""

import asyncio
import json
import sys
from pathlib import Path

from its_hub.core.algorithms import beam_search, particle_gibbs
from its_hub.core.lms.step_generation import StepGeneration

sys.path.insert(0, str(Path(__file__).parent.parent))

from reward_trees import RecordedRandom, RewardTree

FILTERS = [(seed, 2 + seed % 7) for seed in range(200)]
"""Seeds and numbers of particles of the filters."""

BEAMS = [(seed, 1 + seed % 4, 1 + seed // 4 % 4) for seed in range(100)]
"""Seeds, candidates kept and copies of each of the beams."""


def filter_tree(seed):
    return RewardTree(seed, depth=8, finishes=0.1)


def beam_tree(seed):
    """All paths are equally long."""
    return RewardTree(seed, depth=5, finishes=0)


class Model:
    """Writes the next steps of a tree. The k-th reply for one path is its child k."""

    def __init__(self, tree):
        self.tree, self.used = tree, {}

    async def agenerate(self, conversations, **settings):
        replies = []
        for messages in conversations:
            path = path_of(messages[1].content) if len(messages) > 1 else ()
            number = self.used[path] = self.used.get(path, -1) + 1
            end = " END" if self.tree.done((*path, number)) else ""
            replies.append({"role": "assistant", "content": f"{number}{end}"})
        return replies


class Rewards:
    def __init__(self, tree):
        self.tree = tree

    async def ascore(self, prompt, texts):
        return [self.tree.reward(path_of(text)) for text in texts]


def path_of(text):
    return tuple(int(step.split()[0]) for step in text.split("/") if step)


def on(tree):
    return StepGeneration(max_steps=99, step_token="/", stop_token="END"), Rewards(tree)


def filtered(seed, particles, iterations=1):
    """The draws of a filter, and the final particles of its iterations."""
    tree, drawn = filter_tree(seed), RecordedRandom(seed)
    particle_gibbs.random = drawn
    algorithm = particle_gibbs.ParticleGibbs(*on(tree), num_iterations=iterations)
    budget = particles * iterations
    result = asyncio.run(algorithm.ainfer(Model(tree), "?", budget, return_response_only=False))
    final = [[digits(path_of(reply["content"])) for reply in replies] for replies in result.responses_lst]
    return drawn, final


def beam(seed, kept, copies):
    """The paths that a beam goes on from, by level."""
    tree, levels = beam_tree(seed), []

    class Watched(beam_search.BeamSearch):
        async def _asearch_one_level(self, lm, candidates, *rest, **settings):
            levels.append(list(dict.fromkeys(digits(path_of("/".join(path.steps))) for path in candidates)))
            return await super()._asearch_one_level(lm, candidates, *rest, **settings)

    asyncio.run(Watched(*on(tree), beam_width=kept).ainfer(Model(tree), "?", kept * copies))
    return levels


def digits(numbers):
    return "".join(map(str, numbers))


def main():
    filters = {}
    for seed, particles in FILTERS:
        drawn, (final,) = filtered(seed, particles)
        draws = drawn.drawn[:-1]  # the last one is that of a reference, which is not used
        filters[seed] = {"drawn": " ".join(map(digits, draws)), "final": final}
    gibbs = {}
    for seed in range(20):
        drawn, (first, _) = filtered(seed, 3, iterations=2)
        reference = next(k for k, places in enumerate(drawn.drawn) if len(places) == 1)
        path, weights = first[drawn.drawn[reference][0]], drawn.weights[reference + 1]
        gibbs[seed] = {"reference": path, "weights": [round(weight, 12) for weight in weights]}
    return {"filters": filters, "gibbs": gibbs, "beams": {seed: beam(seed, *rest) for seed, *rest in BEAMS}}


if __name__ == "__main__":
    print("{")
    groups = main()
    for name, group in groups.items():
        lines = ",\n".join(f'"{seed}": {json.dumps(held)}' for seed, held in group.items())
        print(f'"{name}": {{\n{lines}\n}}{"" if name == "beams" else ","}')
    print("}")
