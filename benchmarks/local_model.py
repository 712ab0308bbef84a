"""What the local models are good for: speed, and the Game of 24.

    python benchmarks/local_model.py [NAME ...] [--hands 12]

For each model whose weights are on this machine (`tot-lab model pull NAME`), on one thread:

1. Seconds until it answers, and tokens a second, for a proposal and for a label's log-probability.
2. Of the steps it proposes, how many are valid: written as text (its arithmetic and the list of what
   is left must be right), and picked as JSON, where the domain computes the result.
3. Whether the probability of a yes tells right equations from wrong ones: the chance that a right
   one gets the higher (AUC; 0.5 is chance).

Figures only: nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Sequence

from cache import Quiet
from engine import line

import tot_lab as tl
from tot_lab.core.calls import Call, Message, Reply
from tot_lab.core.reading.scores import read_label_logprobs
from tot_lab.models.weights import KNOWN, find

EQUATIONS = 40
PROPOSALS = 5


async def asked(model: tl.Local, kind: str, prompt: str, **settings: object) -> tuple[float, Reply]:
    """Seconds until the reply, and the reply."""
    call = Call("0", kind, (Message("user", prompt),), **settings)  # type: ignore[arg-type]
    began = time.perf_counter()
    (reply,) = await model.answer([call], Quiet())
    return time.perf_counter() - began, reply


async def proposals(
    model: tl.Local, hands: int, *, structured: bool
) -> tuple[int, int, list[float], list[float]]:
    """Valid steps, steps in all; seconds and tokens a second of each call."""
    valid, listed, seconds, rates = 0, 0, [], []
    for task in tl.game24_tasks(hands, structured=structured):
        prompt = task.domain.propose_prompt(task, (), PROPOSALS)
        form = task.domain.response_format("propose", task, ())
        took, reply = await asked(
            model, "propose", prompt, temperature=0.7, max_tokens=200, seed=1, response_format=form
        )
        steps = task.domain.read_proposals(task, (), reply.text)
        valid += len(steps)
        written = (
            reply.text.count('"op"') if structured else sum("=" in row for row in reply.text.splitlines())
        )
        listed += max(written, len(steps))
        seconds.append(took)
        rates.append((reply.output_tokens or 0) / took)
    return valid, listed, seconds, rates


async def judged(model: tl.Local) -> tuple[float, list[float]]:
    """AUC over right and wrong equations, and the seconds of each verdict."""
    roll = random.Random(24)
    labels = tl.domains.General().judge_labels
    scores: dict[bool, list[float]] = {True: [], False: []}
    seconds = []
    for k in range(EQUATIONS):
        a, b, right = roll.randint(2, 13), roll.randint(2, 13), k % 2 == 0
        value = a * b + (0 if right else roll.choice((-7, -3, -1, 2, 5, 10)))
        prompt = f"Is this equation right? {a} * {b} = {value}\nReply with one word, yes or no."
        took, reply = await asked(model, "logprob", prompt, max_tokens=1, logprobs=20, temperature=0.0)
        score = read_label_logprobs(reply.logprobs, labels)
        scores[right].append(0.5 if score is None else score[0])
        seconds.append(took)
    return auc(scores[True], scores[False]), seconds


def auc(right: Sequence[float], wrong: Sequence[float]) -> float:
    """The chance that one of `right` is above one of `wrong`; a tie counts half."""
    pairs = [(a > b) + (a == b) / 2 for a in right for b in wrong]
    return sum(pairs) / len(pairs)


async def measured(name: str, hands: int) -> None:
    model = tl.Local(weights=name)
    await asked(model, "warm", "Say hello.", max_tokens=4)
    print(f"\n{name}")
    for structured, form in ((False, "as text"), (True, "as JSON")):
        valid, listed, seconds, rates = await proposals(model, hands, structured=structured)
        speed = f"{statistics.median(seconds):.1f} s, {statistics.median(rates):.0f} tokens/s"
        note = f"{valid} of {listed} steps; {speed}"
        line(f"valid steps, {form}", valid / max(listed, 1), "", note)
    found, seconds = await judged(model)
    line(
        "right from wrong by a yes, AUC",
        found,
        "",
        f"{EQUATIONS} equations; {statistics.median(seconds):.2f} s",
    )
    await model.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", help="models (default: all whose weights are here)")
    parser.add_argument("--hands", type=int, default=12, help="Games of 24 to propose steps for")
    options = parser.parse_args()
    for name in options.names or list(KNOWN):
        try:
            find(name)
        except FileNotFoundError as missing:
            print(missing)
            continue
        asyncio.run(measured(name, options.hands))


if __name__ == "__main__":
    main()
