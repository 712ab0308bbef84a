"""Replies that fail and cost: what the provider charged for them counts, whichever way they failed."""

import asyncio
import json
import socket

import pytest
from support import TASK, wait
from support.providers import Closed, Fault, Half, Providers, Raw, Said

import tot_lab as tl
from tot_lab.core.calls import Call, Message, Reply
from tot_lab.core.records import Note, Thought
from tot_lab.models import retries

PRICE = (0.0, 100_000.0)
"""A token of a reply costs 10 cents, so that a reply of 10 tokens costs a dollar."""

USAGE = {"prompt_tokens": 7, "completion_tokens": 10, "total_tokens": 17}


class Asks(tl.Strategy):
    """Makes `count` calls one after another, or all at once."""

    kind = "test_failed_costs.asks"
    count: int = 40
    at_once: bool = False
    same: bool = False
    max_tokens: int | None = 10

    def think(self, task, at="0"):
        yield Thought(at, None, task.question)
        prompts = ["ask" if self.same else f"ask {k:02}" for k in range(self.count)]
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


def page(choice, **more):
    choice = {"index": 0, "finish_reason": "stop", **choice}
    return Raw(
        json.dumps(
            {"id": "1", "object": "chat.completion", "created": 1, "model": "m", **more}
            | {"choices": [choice]}
        )
    )


SAYS = {"role": "assistant", "content": None}
REPORTED = {
    "refusal": page({"message": SAYS | {"refusal": "I will not."}}, usage=USAGE),
    "content filter": page({"message": SAYS, "finish_reason": "content_filter"}, usage=USAGE),
    "error choice": page(
        {"message": SAYS | {"content": "par"}, "error": {"message": "lost it"}}, usage=USAGE
    ),
    "failed finish": page({"message": SAYS | {"content": "par"}, "finish_reason": "error"}, usage=USAGE),
    "error page": Raw(json.dumps({"error": {"message": "broke down"}, "usage": USAGE})),
    "error status": Raw(json.dumps({"error": {"message": "broke down"}, "usage": USAGE}), status=500),
    "no choices": Raw(
        json.dumps(
            {
                "id": "1",
                "object": "chat.completion",
                "created": 1,
                "model": "m",
                "choices": [],
                "usage": USAGE,
            }
        )
    ),
    "unreadable choice": page({"message": SAYS | {"content": 5}}, usage=USAGE),
}
UNREPORTED = {
    "refusal, no usage": page({"message": SAYS | {"refusal": "I will not."}}),
    "cut body": Half(Said("a " * 40, output_tokens=10)),
    "closed": Closed(),
    "no JSON": Raw(),
    "gateway": Fault(502),
    "timeout of a proxy": Fault(504),
}
FREE = {"refused": Fault(400), "too many": Fault(429, retry_after=0.01), "busy": Fault(503, retry_after=0.01)}


@pytest.fixture(scope="module")
def provider():
    with Providers() as server:
        yield server


@pytest.fixture
def server(provider, monkeypatch):
    monkeypatch.setattr(retries, "FIRST_WAIT", 0.001)
    provider.forget()
    return provider


def compatible(server, **more):
    return tl.OpenAICompatible(model="m", base_url=server.base("openai"), price=PRICE, **more)


def by_litellm(server, **more):
    base = server.base("openai")
    return tl.LiteLLM(model="openai/m", api_base=base, api_key="sk-none-0123456789", price=PRICE, **more)


PATHS = {"compatible": compatible, "litellm": by_litellm}
each_path = pytest.mark.parametrize("model", PATHS.values(), ids=PATHS)
each_cost = pytest.mark.parametrize("answer", (REPORTED | UNREPORTED).values(), ids=REPORTED | UNREPORTED)
tries = pytest.mark.parametrize("again", [0, 2])


@each_path
@each_cost
@tries
def test_the_spending_limit_counts_every_failed_try(server, model, answer, again):
    server.otherwise = answer
    lab = tl.Lab(model(server, retries=again), runs=None, mode="off", spend=3.0)
    made = wait(lab.run(Asks(), TASK))
    assert len(server.calls) == 3
    assert lab.spent == pytest.approx(3.0)
    assert made.stop_reason == "budget:spend"


@each_path
@each_cost
@tries
def test_a_budget_counts_every_failed_try(server, model, answer, again, tmp_path):
    server.otherwise = answer
    lab = tl.Lab(model(server, retries=again), runs=tmp_path, mode="off")
    made = wait(lab.run(Asks(), TASK, budget=tl.Budget(usd=3)))
    assert len(server.calls) == 3
    assert made.stop_reason == "budget:usd"


@each_path
@pytest.mark.parametrize("answer", FREE.values(), ids=FREE)
def test_what_was_not_processed_is_free(server, model, answer):
    server.otherwise = answer
    lab = tl.Lab(model(server, retries=1), runs=None, mode="off", spend=3.0)
    made = wait(lab.run(Asks(count=8), TASK, budget=tl.Budget(usd=3, tokens=300)))
    assert (made.stop_reason, made.usage.errors, lab.spent) == ("answered", 8, 0.0)
