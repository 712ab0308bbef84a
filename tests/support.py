"""What several tests share: a scripted model over the general domain, and small helpers."""

import asyncio
import hashlib
import math
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import tot_lab as tl
from tot_lab.core.calls import Call, Reply, TokenLogprob
from tot_lab.models.weights import models_folder

TASK = tl.general("How many legs have three spiders and a duck?", answer=26, grade="number")


def dice(call: Call) -> random.Random:
    """Randomness that depends on what may change an answer, and on nothing else."""
    key = repr((call.prompt, call.draw, call.attempt, call.repeat))
    return random.Random(hashlib.sha256(key.encode()).digest())


def answer_to(call: Call) -> str | Reply:
    """A reply of the kind that the prompt asks for: now and then a duplicate, or unreadable."""
    roll = dice(call)
    if call.kind == "logprob":
        yes = roll.uniform(0.01, 0.99)
        top = {"Yes": math.log(yes), " no": math.log(1 - yes)} if roll.random() < 0.9 else {"Well": -0.1}
        return Reply("Yes", logprobs=(TokenLogprob("Yes", math.log(yes), top),))
    if call.kind == "sample":
        return f"step {roll.randrange(100)}"
    if call.kind == "propose":
        return "\n".join(f"{k}. step {roll.randrange(100)}" for k in range(1, 5))
    if call.kind == "value":
        return "no idea" if roll.random() < 0.1 else f"score: {roll.randrange(100) / 100}\nbecause"
    if call.kind == "vote":
        return f"best: {roll.randint(1, 3)}"
    if call.kind == "joint":
        return str([roll.randrange(100) / 100 for _ in range(call.prompt.count("step") and 3)])
    return f"Let me think.\nAnswer: {roll.choice([24, 26, 26])}"


class Scripted:
    """A model of `answer_to`, which counts its calls. `latency(call)` gives seconds to wait; it
    never changes a reply."""

    def __init__(
        self,
        reply: Callable[[Call], str | Reply] = answer_to,
        latency: Callable[[Call], float] | None = None,
    ) -> None:
        self.reply = reply
        self.latency = latency
        self.calls: list[Call] = []

    async def __call__(self, call: Call) -> str | Reply:
        self.calls.append(call)
        await asyncio.sleep(self.latency(call) if self.latency else 0)
        return self.reply(call)


def shuffled(seed: int, most: float = 0.003) -> Callable[[Call], float]:
    """A latency that orders replies anew for every seed."""
    roll = random.Random(seed)
    return lambda call: roll.random() * most


def run(strategy: tl.Strategy, task: tl.Task = TASK, model: object = None, **options: object) -> tl.Run:
    """One run on a scripted model, kept in memory."""
    return wait(tl.Lab(model or Scripted(), runs=None).run(strategy, task, **options))


def weights(name: str) -> Path | None:
    """Where the weights of a known model are on this machine, None when they were not pulled."""
    folders = (models_folder(), Path("~/.cache/gguf").expanduser())
    return next((path for folder in folders if (path := folder / f"{name}.gguf").is_file()), None)


needs_smollm2 = pytest.mark.skipif(
    weights("smollm2-135m") is None, reason="needs: tot-lab model pull smollm2-135m"
)


def wait(thing: Awaitable) -> object:
    """The result of something awaitable, within half a minute."""

    async def soon():
        return await asyncio.wait_for(thing, 30)

    return asyncio.run(soon())
