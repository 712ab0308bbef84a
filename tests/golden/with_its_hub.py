"""Writes `its_hub.json`: what the package its-hub 1.2 does on trees of rewards, with seeded draws.

`test_particles.py` runs it in an environment of its own (`make proof`), because tot_lab does not depend on
the package: `python tests/golden/with_its_hub.py` prints the content of the file.
"""

import asyncio
import json
import sys
from pathlib import Path

from its_hub.core.algorithms import beam_search, bon, particle_gibbs, self_consistency
from its_hub.core.lms.step_generation import StepGeneration

sys.path.insert(0, str(Path(__file__).parent.parent / "support"))

from reward_trees import RecordedRandom, RewardTree, candidates

FILTERS = [(seed, 2 + seed % 7) for seed in range(200)]
"""Seeds and numbers of particles of the filters."""

BEAMS = [(seed, 1 + seed % 4, 1 + seed // 4 % 4) for seed in range(100)]
"""Seeds, candidates kept and copies of each of the beams."""


def filter_tree(seed):
    return RewardTree(seed, depth=8, finishes=0.1)


def beam_tree(seed):
    """All paths are equally long."""
    return RewardTree(seed, depth=5, finishes=0)


def early_tree():
    """The best first step of four is finished, all others are not."""
    tree = RewardTree(11, depth=3, finishes=0)
    best = max(tree.steps((), 4), key=tree.reward)
    tree.done = lambda path: len(path) == 3 or path == best
    return tree


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


def beam_with_a_finished_path():
    """The copies of each path after the first level, of which the best path is finished."""
    after = []

    class Watched(beam_search.BeamSearch):
        async def _asearch_one_level(self, lm, candidates, *rest, **settings):
            after.append([digits(path_of("/".join(path.steps))) for path in candidates])
            return await super()._asearch_one_level(lm, candidates, *rest, **settings)

    tree = early_tree()
    asyncio.run(Watched(*on(tree), beam_width=2).ainfer(Model(tree), "?", 8))
    return after[1]


def chosen(seed):
    """The answers that best of N and self-consistency choose."""
    replies = [{"role": "assistant", "content": answer} for answer, _ in candidates(seed)]
    numbered = [{**reply, "content": f"{k} {reply['content']}"} for k, reply in enumerate(replies)]

    class Given:
        async def agenerate(self, lm, conversations, **settings):
            return numbered

        async def ascore(self, conversations, **settings):
            rewards = [reward for _, reward in candidates(seed)]
            return [rewards[int(conversation[-1].content.split()[0])] for conversation in conversations]

    best = asyncio.run(bon.BestOfN(Given(), Given()).ainfer(None, "?", len(replies)))
    self_consistency.random.seed(seed)  # it draws among equally frequent answers
    voting = self_consistency.SelfConsistency(orchestrator=Given())
    voted = voting._process_responses(replies, False, None)
    return {
        "best": best["content"].split()[1],
        "votes": dict(voted.response_counts),
        "voted": voted.the_one["content"],
    }


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
    return {
        "filters": filters,
        "gibbs": gibbs,
        "beams": {seed: beam(seed, *rest) for seed, *rest in BEAMS},
        "finished": {"copies": beam_with_a_finished_path()},
        "answers": {seed: chosen(seed) for seed in range(100)},
    }


if __name__ == "__main__":
    print("{")
    groups = main()
    for name, group in groups.items():
        lines = ",\n".join(f'"{seed}": {json.dumps(held)}' for seed, held in group.items())
        print(f'"{name}": {{\n{lines}\n}}{"" if name == "answers" else ","}')
    print("}")
