"""Prints what its-hub 1.2 does on the recorded trees of replies, one tree a line.

`test_published_step_searches.py` runs it in an environment of its own (`make proof`).
"""

import asyncio
import json
import sys
from pathlib import Path
from random import Random

from its_hub.core.algorithms import beam_search, particle_gibbs
from its_hub.core.lms.step_generation import StepGeneration

sys.path.insert(0, str(Path(__file__).parent.parent / "support"))

from reply_trees import SEPARATOR, Samples, case


class Model:
    """Continues replies. It remembers what it was asked for."""

    def __init__(self, tree):
        self.tree, self.samples = tree, Samples(by_thought=False)

    async def agenerate(self, conversations, **settings):
        texts = [messages[1].content if len(messages) > 1 else "" for messages in conversations]
        taken = self.samples.take(texts, texts)
        replies = [self.tree.reply(text, sample)[0] for text, sample in zip(texts, taken, strict=True)]
        return [{"role": "assistant", "content": reply} for reply in replies]


class Rewards:
    """The last reward of each path. The other aggregates need no package."""

    def __init__(self, tree):
        self.tree = tree

    async def ascore(self, prompt, texts):
        return [self.tree.rewards(text.split(SEPARATOR))[-1] for text in texts]


def run(case, algorithm, budget, **settings):
    model = Model(case.tree)
    steps = StepGeneration(max_steps=case.depth - 1, step_token=SEPARATOR, stop_token="\\boxed")
    search = algorithm(steps, Rewards(case.tree), **settings)
    result = asyncio.run(search.ainfer(model, "?", budget, return_response_only=False))
    return [model.samples.levels, result.the_one["content"]]


def main(numbers):
    for number in range(numbers):
        one, particle_gibbs.random = case(number), Random(number)
        beam = run(one, beam_search.BeamSearch, one.width * one.count, beam_width=one.width)
        particles = run(one, particle_gibbs.ParticleFiltering, one.width * one.count)
        print(json.dumps([beam, particles]))


if __name__ == "__main__":
    main(int(sys.argv[1]))
