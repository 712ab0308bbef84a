"""Chains with token confidences, for DeepConf."""

from random import Random

import tot_lab as tl
from support import Scripted
from tot_lab.core.calls import TokenLogprob

KINDS = ("mean", "tail", "bottom", "lowest")


def case(seed):
    """Chains with answers and token confidences (three decimals, as the package rounds them)."""
    random = Random(seed)
    group = random.randint(1, 12)
    chains = []
    for _ in range(random.randint(4, 10)):
        tokens = [round(random.uniform(0.5, 20), 3) for _ in range(random.randint(group, 40))]
        chains.append([tokens, random.choice(["24", "26", "26", "30", ""])])
    return {
        "group": group,
        "top": random.choice([0.1, 0.3, 0.5, 0.9, 1.0]),
        "bar": random.choice([0.1, 0.5, 0.9]),
        "warmup": random.randint(1, len(chains)),
        "chains": chains,
        "logprobs": [[random.uniform(-9, 0) for _ in range(random.randint(1, 20))] for _ in range(3)],
    }


CASES = [case(seed) for seed in range(100)]


def model_of(one):
    """A model whose reply k is chain k of a case."""

    def reply(call):
        tokens, answer = one["chains"][call.sample_index]
        logprobs = tuple(TokenLogprob("a", -9.0, {"a": -value, "b": -value}) for value in tokens)
        return tl.Reply(f"Well.\nAnswer: {answer}" if answer else "", logprobs=logprobs)

    return Scripted(reply)
