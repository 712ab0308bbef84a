"""Replies that fail and cost: what the provider charged for them counts, whichever way they failed."""

import asyncio
import json

import pytest
from support import TASK, mostly_nightly, wait
from support.dollars import USAGE, Asks, compatible, each_path
from support.providers import Closed, Fault, Half, Providers, Raw, Said

import tot_lab as tl
from tot_lab.core.calls import Call, Message, Reply
from tot_lab.core.records import Thought
from tot_lab.models import retries
from tot_lab.models.reward_servers import VLLMScore

HEAD = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}


def page(choice, **more):
    choice = {"index": 0, "finish_reason": "stop", **choice}
    return Raw(json.dumps({**HEAD, **more, "choices": [choice]}))


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
    "no choices": Raw(json.dumps({**HEAD, "choices": [], "usage": USAGE})),
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
def server(provider, loaded, monkeypatch):
    monkeypatch.setattr(retries, "FIRST_WAIT", 0.001)
    provider.forget()
    return provider


each_cost = pytest.mark.parametrize("answer", (REPORTED | UNREPORTED).values(), ids=REPORTED | UNREPORTED)
tries = pytest.mark.parametrize("again", mostly_nightly([0, 2], [2]))


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


@each_path
def test_a_stream_that_breaks_counts(server, model):
    server.otherwise = Half(Said("so " * 10, output_tokens=10))
    lab = tl.Lab(model(server, retries=2), runs=None, mode="off", spend=3.0)
    made = wait(lab.run(Asks(), TASK, watch=lambda lines: None))
    assert {asked.stream for asked in server.calls} == {True}
    assert (len(server.calls), lab.spent, made.stop_reason) == (3, 3.0, "budget:spend")
    server.forget()
    server.otherwise = Half(Said("so " * 10, output_tokens=10))
    free = tl.Lab(model(server, retries=2), runs=None, mode="off")
    made = wait(free.run(Asks(), TASK, budget=tl.Budget(usd=3), watch=lambda lines: None))
    assert (len(server.calls), made.stop_reason) == (3, "budget:usd")


@each_path
def test_without_max_tokens_failures_count_too(server, model):
    """Nothing bounds a reply, and no usage is ever reported."""
    server.otherwise = Half(Said("so " * 40, output_tokens=10))
    lab = tl.Lab(model(server, retries=0), runs=None, mode="off")
    made = wait(lab.run(Asks(max_tokens=None), TASK, budget=tl.Budget(usd=3)))
    assert len(server.calls) <= 3
    assert made.stop_reason == "budget:usd"


@each_path
def test_a_budget_holds_at_a_known_price_if_nothing_is_reported(server, model):
    """60 replies of 10 tokens at 10 cents a token. At most one call is in flight."""
    server.otherwise = Said("so, " * 10, usage=False)
    lab = tl.Lab(model(server), runs=None, mode="off")
    made = wait(lab.run(Asks(count=60, max_tokens=None), TASK, budget=tl.Budget(usd=3)))
    assert 3 <= len(server.calls) <= 4
    assert made.stop_reason == "budget:usd"
    assert {event.cost for event in made.events if isinstance(event, Reply) and not event.error} == {None}


def failing_first(asked):
    """The first request for each prompt fails, and the second is answered. Both cost a dollar."""
    prompt = asked.json["messages"][-1]["content"]
    is_first = prompt not in SEEN
    SEEN.add(prompt)
    return REPORTED["failed finish"] if is_first else Said("Yes.", output_tokens=10)


SEEN = set()


@pytest.fixture
def flaky(server):
    SEEN.clear()
    server.otherwise = failing_first
    return server


@each_path
def test_a_retry_keeps_what_its_predecessors_cost(flaky, model):
    lab = tl.Lab(model(flaky), runs=None, mode="off")
    made = wait(lab.run(Asks(count=5), TASK, budget=tl.Budget(calls=3)))
    assert (made.usage.calls, len(flaky.calls), made.stop_reason) == (3, 6, "budget:calls")
    assert (made.usage.cost, made.usage.paid, lab.spent) == pytest.approx((3.0, 6.0, 6.0))
    tries = [line.e.data for line in made.lines if getattr(line.e, "name", "") == "call.retried"]
    assert [(data["output_tokens"], data["cost"]) for data in tries] == [(10, pytest.approx(1.0))] * 3


@each_path
def test_a_resumed_run_and_a_replay_count_the_failed_tries_of_the_journal(flaky, model, tmp_path):
    lab = tl.Lab(model(flaky), runs=tmp_path / "runs", mode="off")
    made = wait(lab.run(Asks(), TASK, budget=tl.Budget(usd=6)))
    assert (len(flaky.calls), made.usage.calls, made.stop_reason) == (6, 3, "budget:usd")
    assert wait(tl.load(made.path).replay()).identical
    lines = made.path.read_bytes().splitlines(keepends=True)
    replies = [number for number, line in enumerate(lines) if b'"type":"reply"' in line]
    made.path.write_bytes(b"".join(lines[: replies[1] + 1]))  # killed after the second reply
    flaky.asked.clear()
    SEEN.clear()
    other = tl.Lab(model(flaky), runs=tmp_path / "runs", mode="off")
    again = wait(other.resume(made.path))
    assert len(flaky.calls) == 2
    assert again.events == made.events
    assert other.spent == pytest.approx(6.0)


def test_a_rerun_from_the_cache_has_no_failed_tries_and_may_make_more_calls(flaky, tmp_path):
    def run():
        lab = tl.Lab(compatible(flaky), runs=None, cache=tmp_path / "calls")
        return wait(lab.run(Asks(), TASK, budget=tl.Budget(usd=6)))

    assert run().usage.calls == 3
    assert run().usage.calls == 3 + 2  # three from the cache for 3 dollars, one for 2, and one that fails
    flaky.otherwise = Said("Yes.", output_tokens=10)
    assert run().usage.calls == 6


def test_a_request_of_several_samples_is_paid_as_billed_and_budgeted_once_a_sample(server):
    """A prompt of 7 tokens costs 70 cents, and each of 4 replies of 1 token 10 cents. Half of them fail."""
    price = (100_000.0, 100_000.0)

    def group(asked):
        choices = [
            {"index": k, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": finish}
            for k, finish in zip(range(asked.n), ("stop", "error") * asked.n, strict=False)
        ]
        usage = {"prompt_tokens": 7, "completion_tokens": asked.n}
        return Raw(json.dumps({"model": "m", "choices": choices, "usage": usage}))

    server.otherwise = group
    model = tl.OpenAICompatible(model="many", base_url=server.base("openai"), price=price)
    lab = tl.Lab(model, runs=None, mode="off")
    made = wait(lab.run(Asks(count=4, at_once=True, same=True), TASK))
    requests = [asked.n for asked in server.calls]
    assert requests == [4, 2, 1]
    billed = sum(0.7 + 0.1 * n for n in requests)
    assert (lab.spent, made.usage.paid) == pytest.approx((billed, billed))
    assert made.usage.cost == pytest.approx(4 * 0.8)
    server.asked.clear()
    capped = tl.Lab(model, runs=None, mode="off", spend=2.0)
    wait(capped.run(Asks(count=4, at_once=True, same=True, max_tokens=1), TASK))
    assert sum(0.7 + 0.1 * asked.n for asked in server.calls) == pytest.approx(capped.spent)
    assert capped.spent <= 2.0


def test_a_retried_request_of_several_samples_is_one_request_a_minute(server):
    """Three requests are sent for the four samples, so that eight a minute leave room for another one."""

    def group(asked):
        finish = "error" if len(server.calls) <= 2 else "stop"
        said = {"role": "assistant", "content": "Yes."}
        choices = [{"index": k, "message": said, "finish_reason": finish} for k in range(asked.n)]
        return Raw(json.dumps({"model": "m", "choices": choices, "usage": USAGE}))

    server.otherwise = group
    lab = tl.Lab(compatible(server, requests_per_minute=8), runs=None, mode="off")

    async def both():
        await lab.run(Asks(count=4, at_once=True, same=True), TASK)
        assert [asked.n for asked in server.calls] == [4, 4, 4]
        async with asyncio.timeout(20):
            await lab.run(Asks(count=1), TASK)

    wait(both())


@pytest.mark.parametrize("reports", [True, False])
def test_a_list_of_rewards_that_cannot_be_read_counts(server, reports):
    """Each solution costs a dollar. The list is processed, and then each solution once more."""
    sizes = []

    def score(asked):
        texts = asked.json["text_2"]
        sizes.append(len(texts))
        usage = {"usage": {"prompt_tokens": 10 * len(texts), "total_tokens": 10}} if reports else {}
        scores = ["high"] * len(texts) if len(texts) > 1 else [0.5]
        return {"data": [{"index": k, "score": value} for k, value in enumerate(scores)], **usage}

    server.pages["/score"] = score

    def model():
        return VLLMScore(model="judge", base_url=server.base("openai"), price=(100_000.0, 0.0))

    calls = [Call("0", "reward", (Message("user", "?"), Message("assistant", f"{k}"))) for k in range(4)]
    most = max(model().need(calls[:1]).usd, 1.0)

    class Rewards(Asks):
        kind = "test_failed_costs.rewards"

        def think(self, task, at="0"):
            yield Thought(at, None, task.question)
            yield from tl.gather([tl.ask(call) for call in calls], at_most=1)
            return tl.Answer("", "answered")

    lab = tl.Lab(model(), runs=None, mode="off", spend=100.0)
    wait(lab.run(Rewards(), TASK))
    assert sizes == [4, 1, 1, 1, 1]
    expected = 8.0 if reports else model().need(calls).usd + 4 * most
    assert lab.spent == pytest.approx(expected)
    sizes.clear()
    made = wait(
        tl.Lab(model(), runs=None, mode="off").run(Rewards(), TASK, budget=tl.Budget(usd=4 * most + 0.5))
    )
    assert sizes[0] == 4
    assert made.stop_reason in ("budget:usd", "answered")
    assert sum(sizes) * (1.0 if reports else most) <= 4 * most + 0.5 + 4 * most
