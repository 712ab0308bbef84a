"""The replies of a small language model are equal bytes alone and among any others."""

import asyncio
from itertools import combinations_with_replacement
from random import Random

from support import wait
from support.tiny_model import WEIGHTS

import tot_lab as tl
from tot_lab.core.calls import Call, Message
from tot_lab.models.stack import NullObserver
from tot_lab.models.tiny.endpoint import Tiny


def test_ten_thousand_prompts_alone_and_among_others():
    random = Random(4)
    hands = [*combinations_with_replacement(range(1, 14), 4)]
    calls = []
    for k in range(10_000):
        task = tl.game24(random.choice(hands))
        ask = random.choice(
            (
                lambda task: task.domain.propose_prompt(task, [], random.randint(1, 8)),
                lambda task: task.domain.answer_prompt(task, random.random() < 0.5),
                lambda task: task.domain.vote_prompt(task, [[]] * random.randint(1, 12)),
            )
        )
        heat = random.choice((0.0, 0.7, 1.0))
        calls.append(
            Call(
                "0",
                "x",
                (Message("user", ask(task)),),
                sample_index=k,
                temperature=heat,
                max_tokens=random.randint(1, 12),
                logprobs=2,
                alternatives=2,
            )
        )
    model = Tiny(weights=str(WEIGHTS))

    async def all_of(calls):
        return await asyncio.gather(*(model.answer([call], NullObserver()) for call in calls))

    def in_parts(calls):
        return [reply for k in range(0, len(calls), 500) for reply in wait(all_of(calls[k : k + 500]))]

    together = in_parts(calls)
    order = random.sample(range(len(calls)), len(calls))
    assert in_parts([calls[k] for k in order]) == [together[k] for k in order]

    async def one_by_one():
        return [await model.answer([call], NullObserver()) for call in calls[::20]]

    assert wait(one_by_one()) == together[::20]
