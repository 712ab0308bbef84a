"""Calls that cost a dollar, over both client paths, for tests of what is spent."""

import pytest

import tot_lab as tl
from tot_lab.core.calls import Call, Message
from tot_lab.core.records import Thought

PRICE = (0.0, 100_000.0)
"""A token of a reply costs 10 cents, so that a reply of 10 tokens costs a dollar."""

USAGE = {"prompt_tokens": 7, "completion_tokens": 10, "total_tokens": 17}


class Asks(tl.Strategy):
    """Makes `count` calls one after another, or all at once."""

    kind = "support/asks"
    count: int = 40
    at_once: bool = False
    same: bool = False
    max_tokens: int | None = 10

    def think(self, task, at="0"):
        yield Thought(at, None, task.question)
        prompts = ["ask" if self.same else f"ask {k:03}" for k in range(self.count)]
        calls = [
            Call(at, "ask", (Message("user", p),), k if self.same else 0, max_tokens=self.max_tokens)
            for k, p in enumerate(prompts)
        ]
        if self.at_once:
            yield from tl.gather([tl.ask(call) for call in calls], at_most=1)
        else:
            for call in calls:
                yield from tl.ask(call)
        return tl.Answer("", "answered")


def compatible(server, **more):
    return tl.OpenAICompatible(model="m", base_url=server.base("openai"), price=PRICE, **more)


def by_litellm(server, **more):
    base = server.base("openai")
    return tl.LiteLLM(model="openai/m", api_base=base, api_key="sk-none-0123456789", price=PRICE, **more)


PATHS = {"compatible": compatible, "litellm": by_litellm}
each_path = pytest.mark.parametrize("model", PATHS.values(), ids=PATHS)
