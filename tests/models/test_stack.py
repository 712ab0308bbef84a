"""The model stack: one contract for every layer, and what each layer is there for."""

import asyncio
import gc
import random
import socket
import sys
import warnings
from itertools import product

import pytest
from support import TASK, Scripted, answer_to, run, wait
from support.endpoint import CallObserver, ScriptedEndpoint, scripted
from support.virtual_time import run_virtually

import tot_lab as tl
from tot_lab.core.calls import Call, Message, Reply
from tot_lab.core.records import Note
from tot_lab.models import ready, retries
from tot_lab.models.batching import Batched
from tot_lab.models.cache import Cache, Cached, StoreReplies
from tot_lab.models.flight import SingleFlight
from tot_lab.models.function import Function
from tot_lab.models.keys import request_of
from tot_lab.models.limits import Limited, Limits, RateLimiter
from tot_lab.models.ready import Ready
from tot_lab.models.retries import Retried
from tot_lab.models.spending import Spending, SpendLimiter
from tot_lab.models.stack import RUN_NUMBER, Failure, provider_seed
from tot_lab.runtime.slots import SlotPool


def asked(draw=0, text="what next?", **fields):
    return Call("0", "sample", (Message("user", text),), draw, **fields)


def request(call):
    return request_of(call, {"model": "scripted"})


def key(call):
    return request(call).key


def batched(inner, end):
    """Requests samples of one prompt together if `end` takes n."""

    def undrawn(call):
        return key(Call(call.node, call.purpose, call.messages)) if end.takes_n(call) else None

    return Batched(inner, undrawn)


LAYERS = {
    "ready": lambda inner, end, tmp: Ready(inner, end, set()),
    "cached": lambda inner, end, tmp: Cached(inner, Cache(tmp / "calls"), request, "auto"),
    "kept": lambda inner, end, tmp: StoreReplies(inner, Cache(tmp / "calls"), request),
    "single flight": lambda inner, end, tmp: SingleFlight(inner, key, {}),
    "batched": lambda inner, end, tmp: batched(inner, end),
    "spending": lambda inner, end, tmp: Spending(inner, end, SpendLimiter(1000.0)),
    "limits": lambda inner, end, tmp: Limited(inner, end),
    "retries": lambda inner, end, tmp: Retried(inner, end),
}
every_layer = pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)


@every_layer
@pytest.mark.parametrize("samples", [False, True])
def test_it_gives_each_call_its_own_reply(layer, samples, tmp_path):
    end = scripted(samples=samples, seconds=0.002)

    async def go():
        stack = layer(end, end, tmp_path)
        calls = [asked(draw) for draw in range(12)]
        got = await asyncio.gather(*(stack.answer([call], CallObserver()) for call in calls))
        assert [reply.text for (reply,) in got] == [answer_to(call) for call in calls]
        assert sorted(call.sample_index for calls in end.requests for call in calls) == list(range(12))

    wait(go())


@every_layer
def test_what_is_cancelled_stops_and_leaves_it_usable(layer, tmp_path):
    end = scripted(seconds=30)

    async def go():
        stack = layer(end, end, tmp_path)
        waiting = asyncio.ensure_future(stack.answer([asked()], CallObserver()))
        await asyncio.sleep(0.02)
        assert end._under_way[0] == 1
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert end._under_way[0] == 0
        end.__dict__["seconds"] = 0.0
        (reply,) = await stack.answer([asked()], CallObserver())
        assert reply.text == answer_to(asked())

    wait(go())


@every_layer
def test_a_failure_passes_and_is_not_kept(layer, tmp_path):
    failing = [True]

    def reply(call):
        if failing[0]:
            raise Failure("no such model", status=404)
        return "fine"

    end = scripted(reply)

    async def go():
        stack = layer(Retried(end, end), end, tmp_path)
        (refused,) = await stack.answer([asked()], CallObserver())
        assert refused.error == "scripted 404: no such model"
        failing[0] = False
        (reply,) = await stack.answer([asked()], CallObserver())
        assert (reply.text, reply.error) == ("fine", None)

    wait(go())


@every_layer
def test_it_serves_one_event_loop_after_another(layer, tmp_path):
    end = scripted()
    stack = layer(end, end, tmp_path)
    for draw in range(3):
        assert wait(stack.answer([asked(draw)], CallObserver()))[0].error is None


# Single flight.


def test_equal_calls_under_way_are_one_request():
    end = scripted(seconds=0.02)

    async def go():
        stack = SingleFlight(end, key, {})
        observers = [CallObserver() for _ in range(5)]
        got = await asyncio.gather(*(stack.answer([asked()], observer) for observer in observers))
        assert len(end.requests) == 1
        assert len({reply.text for (reply,) in got}) == 1
        assert [observer.paid for observer in observers] == [None, 0.0, 0.0, 0.0, 0.0]
        assert [observer.names for observer in observers] == [[]] + [["call.joined"]] * 4
        await stack.answer([asked()], CallObserver())
        assert len(end.requests) == 2  # it had landed

    wait(go())


def test_one_who_is_cancelled_leaves_the_others_their_reply():
    end = scripted(seconds=0.05)

    async def go():
        stack = SingleFlight(end, key, {})
        first, second = CallObserver(), CallObserver()
        leaving = asyncio.ensure_future(stack.answer([asked()], first))
        staying = asyncio.ensure_future(stack.answer([asked()], second))
        await asyncio.sleep(0.01)
        leaving.cancel()
        (reply,) = await staying
        assert reply.error is None
        assert second.paid is None  # it pays now
        assert len(end.requests) == 1

    wait(go())


# Samples.


def test_samples_of_one_prompt_travel_together_and_only_the_missing_ones(tmp_path):
    end = scripted(samples=True)

    async def go():
        cache = Cache(tmp_path)
        stack = Cached(batched(StoreReplies(end, cache, request), end), cache, request, "auto")
        await stack.answer([asked(1)], CallObserver())
        calls = [asked(draw) for draw in range(4)] + [asked(0, "another prompt")]
        await asyncio.gather(*(stack.answer([call], CallObserver()) for call in calls))

    wait(go())
    assert [[call.sample_index for call in calls] for calls in end.requests] == [[1], [0, 2, 3], [0]]


def test_a_cancelled_sample_is_not_asked_for():
    end = scripted(samples=True)

    async def go():
        stack = batched(end, end)
        waiting = [asyncio.ensure_future(stack.answer([asked(draw)], CallObserver())) for draw in range(3)]
        await asyncio.sleep(0)
        waiting[1].cancel()
        await asyncio.wait(waiting)
        assert waiting[2].result()[0].text == answer_to(asked(2))

    wait(go())
    assert [[call.sample_index for call in calls] for calls in end.requests] == [[0, 2]]


# Loading.


class NeverThere(ScriptedEndpoint):
    """Waits for the first word of a server before it is ready."""

    port: int = 0

    @property
    def is_ready(self):
        return False

    async def ready(self):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            await reader.readline()
        finally:
            writer.close()


@pytest.mark.slow
@pytest.mark.parametrize("budget", [None, tl.Budget(tokens=10**6)])
def test_loading_has_a_time_of_its_own(budget, monkeypatch):
    """The server takes the connection, and says nothing. The lab's timeout is not running yet."""
    monkeypatch.setattr(ready, "LOADING", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        end = NeverThere(label="slow/model", url="http://there", port=server.getsockname()[1])
        made = wait(tl.Lab(end, runs=None, mode="off", timeout=60).run(tl.OneAnswer(), TASK, budget=budget))
    assert made.stop_reason == "error"
    error = made.calls_df().error[0]
    assert error.startswith("timeout: slow/model did not load within 0.3 s (")
    assert "http://there" in error
    assert end.requests == []
    assert made.seconds < 10


# Spending.


def test_real_money_is_never_overspent_and_a_refusal_stops_the_run():
    end = scripted(seconds=0.002)
    lab = tl.Lab(end, runs=None, mode="off", spend=7.5)
    made = wait(lab.run(tl.TreeOfThoughts(propose=tl.Sample(count=4), stop=tl.Stop(depth=2)), TASK))
    assert made.stop_reason == "budget:spend"
    assert lab.spent == made.usage.paid == sum(map(len, end.requests)) == 7.0
    assert made.usage.cost == made.usage.calls >= 7  # equal calls under way were paid for once
    refusals = [
        line.e.data for line in made.lines if isinstance(line.e, Note) and line.e.name == "call.refused"
    ]
    assert (refusals[0]["most"], refusals[0]["left"]) == (1.0, 0.5)
    assert wait(made.replay()).identical
    again = wait(lab.run(tl.OneAnswer(), TASK))  # the cap is the lab's, over all its runs
    assert again.stop_reason == "budget:spend"


def test_samples_that_travel_together_are_made_as_far_as_the_money_goes():
    end = scripted(samples=True)

    async def go():
        spend_limiter = SpendLimiter(3.5)
        stack = batched(Spending(end, end, spend_limiter), end)
        observers = [CallObserver() for _ in range(6)]
        replies = await asyncio.gather(
            *(stack.answer([asked(draw)], observer) for draw, observer in enumerate(observers))
        )
        assert [reply.error for (reply,) in replies] == [None] * 3 + ["budget:spend"] * 3
        assert [observer.names for observer in observers] == [[]] * 3 + [["call.queued", "call.refused"]] * 3
        assert observers[5].notes[1][1] == {"most": 1.0, "left": 0.5, "cap": 3.5}
        assert [len(calls) for calls in end.requests] == [3]
        assert (spend_limiter.spent, spend_limiter.reserved) == (3.0, 0.0)

    wait(go())


@pytest.mark.parametrize("cached", [False, True])
def test_what_a_functions_replies_cost_is_spent(cached, tmp_path):
    lab = tl.Lab(costly, runs=None, cache=tmp_path if cached else None, spend=3.5)
    one_by_one = tl.TreeOfThoughts(search=tl.DepthFirst(width=2), stop=tl.Stop(depth=4), parallel=False)
    made = wait(lab.run(one_by_one, TASK))
    assert (made.stop_reason, made.usage.paid, lab.spent) == ("budget:spend", 3.0, 3.0)
    assert wait(lab.run(tl.OneAnswer(), tl.general("2?"))).stop_reason == "budget:spend"
    free = tl.Lab(Scripted(), runs=None, spend=0.0)
    assert wait(free.run(tl.OneAnswer(), TASK)).stop_reason == "answered"


async def costly(call):
    return Reply("Answer: 1", cost=1.0)


def test_a_cut_off_request_counts_as_spent():
    end = scripted(seconds=30)

    async def go():
        spend_limiter = SpendLimiter(1.5)
        stack = Spending(Retried(end, end), end, spend_limiter)
        waiting = asyncio.ensure_future(stack.answer([asked()], CallObserver()))
        await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert (spend_limiter.spent, spend_limiter.reserved) == (1.0, 0.0)
        (refused,) = await stack.answer([asked(1)], CallObserver())
        assert refused.error == "budget:spend"

    wait(go())


def test_what_was_never_sent_costs_nothing_and_what_says_nothing_costs_all():
    async def go():
        slow = scripted(seconds=30, concurrency=1)
        spend_limiter = SpendLimiter(10.0)
        stack = Spending(Limited(Retried(slow, slow), slow), slow, spend_limiter)
        waiting = [asyncio.ensure_future(stack.answer([asked(draw)], CallObserver())) for draw in range(5)]
        await asyncio.sleep(0.02)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        assert (spend_limiter.spent, spend_limiter.reserved) == (1.0, 0.0)  # four were in the queue

    wait(go())
    silent = scripted(usd=None, most=1.0)
    stack = Spending(silent, silent, SpendLimiter(2.0))
    got = [wait(stack.answer([asked(draw)], CallObserver()))[0].error for draw in range(4)]
    assert got == [None, None, "budget:spend", "budget:spend"]


@pytest.mark.parametrize("cost", [-100, float("nan"), 1e308, True, 10**30, "much"])
def test_a_cost_that_cannot_be_true_counts_as_all_that_was_set_aside(cost):
    end = scripted(most=1.0)
    end.__dict__["usd"] = cost
    lab = tl.Lab(end, runs=None, mode="off", spend=3.0)
    made = wait(lab.run(tl.SelfConsistency(attempts=6), TASK))
    assert (made.stop_reason, lab.spent, len(end.requests)) == ("budget:spend", 3.0, 3)
    replies = [e for e in made.events if isinstance(e, Reply) and e.error is None]
    assert [(reply.cost, reply.reported_usage[:5]) for reply in replies] == [(None, "cost=")] * 3
    free = tl.Lab(end, runs=None, mode="off")
    assert wait(free.run(tl.OneAnswer(), TASK)).usage.paid is None
    assert free.spent == 0.0


def test_a_loop_that_was_closed_leaves_no_reservation_behind():
    spend_limiter = SpendLimiter(1.0)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(spend_limiter.reserve(1.0, CallObserver()))
    loop.close()
    hold = wait(spend_limiter.reserve(1.0, CallObserver()))
    assert hold is not None
    spend_limiter.settle(hold, 0.25)
    assert (spend_limiter.spent, spend_limiter.reserved) == (0.25, 0.0)


@pytest.mark.slow
def test_waiting_for_the_purse_is_no_time_of_the_call():
    end = scripted(seconds=0.2, usd=0.1, most=1.0)  # the cap lets one through at a time
    lab = tl.Lab(end, runs=None, mode="off", spend=1.6, timeout=0.8)
    made = wait(lab.run(tl.SelfConsistency(attempts=6), TASK))
    assert (made.usage.calls, made.usage.errors, end.max_at_once) == (6, 0, 1)
    assert lab.spent == pytest.approx(0.6)


def test_a_cap_on_money_needs_a_price():
    end = scripted(usd=None)
    made = wait(tl.Lab(end, runs=None, mode="off", spend=1.0).run(tl.OneAnswer(), TASK))
    assert end.requests == []
    assert "the price of scripted is unknown" in made.events[-2].data["error"]
    free = wait(tl.Lab(end, runs=None, mode="off").run(tl.OneAnswer(), TASK))
    assert (free.usage.cost, free.usage.paid) == (None, None)  # unknown, not 0


def test_a_known_answer_costs_no_money(tmp_path):
    end = scripted()
    first = wait(tl.Lab(end, runs=None, cache=tmp_path).run(tl.OneAnswer(), TASK))
    lab = tl.Lab(end, runs=None, cache=tmp_path, spend=0.0)
    again = wait(lab.run(tl.OneAnswer(), TASK))
    assert (first.usage.cost, first.usage.paid) == (1.0, 1.0)
    assert (again.usage.cost, again.usage.paid, lab.spent) == (1.0, 0.0, 0.0)
    assert again.events == first.events


# Limits.


def _limited():
    limiter = RateLimiter(Limits("there", 1, None, None))
    return lambda: limiter.enter(0, CallObserver()), limiter.leave


def _slots():
    pool = SlotPool(1)
    return lambda: pool.enter(lambda: None), pool.leave


def _spent():
    limiter, holds = SpendLimiter(1.0), []

    async def enter():
        holds.append(await limiter.reserve(1.0, CallObserver()))

    return enter, lambda: limiter.settle(holds.pop(), 0.0)


every_queue = pytest.mark.parametrize("queue", [_limited, _slots, _spent])


def test_no_more_than_the_limit_is_under_way_and_order_is_kept():
    end = scripted(seconds=0.005, concurrency=4)

    async def go():
        observers = [CallObserver() for _ in range(20)]
        stacks = [Limited(end, end), Limited(end, end)]  # two labs of one endpoint
        await asyncio.gather(
            *(stacks[k % 2].answer([asked(k)], observer) for k, observer in enumerate(observers))
        )
        assert [observer.names for observer in observers] == [[]] * 4 + [["call.queued"]] * 16

    wait(go())
    assert end.max_at_once == 4
    assert [calls[0].sample_index for calls in end.requests] == list(range(20))


@pytest.mark.parametrize(
    "limit", [{"requests_per_minute": 3}, {"tokens_per_minute": 300}], ids=["requests", "tokens"]
)
def test_a_minute_holds_so_many(limit):
    end = scripted(**limit)
    times = []

    async def go():
        loop = asyncio.get_running_loop()
        stack = Limited(end, end)

        async def one(draw):
            await stack.answer([asked(draw)], CallObserver())
            times.append(loop.time())

        await asyncio.gather(*(one(draw) for draw in range(9)))

    run_virtually(go())
    assert times == pytest.approx([0, 0, 0, 60, 60, 60, 120, 120, 120], abs=0.1)


def test_who_stood_behind_a_large_call_that_is_cancelled_waits_for_no_minute():
    async def go():
        gate = RateLimiter(Limits("there", 10, None, 100))
        await gate.enter(50, CallObserver())
        large = asyncio.ensure_future(gate.enter(90, CallObserver()))
        small = asyncio.ensure_future(gate.enter(40, CallObserver()))
        await asyncio.sleep(0)
        large.cancel()
        await asyncio.wait_for(small, 50)

    wait(go())


def test_a_queued_call_that_is_cancelled_gives_its_place_away():
    end = scripted(seconds=0.03, concurrency=1)

    async def go():
        stack = Limited(end, end)
        waiting = [asyncio.ensure_future(stack.answer([asked(draw)], CallObserver())) for draw in range(3)]
        await asyncio.sleep(0.01)
        waiting[1].cancel()
        await asyncio.wait(waiting)
        assert waiting[2].result()[0].error is None

    wait(go())
    assert [calls[0].sample_index for calls in end.requests] == [0, 2]


@every_queue
def test_earlier_runs_go_first_and_each_keeps_its_order(queue):
    """Run 3 fills the queue before the others come, and cancelled calls leave it whole."""

    async def go():
        enter, leave = queue()
        served = []

        async def one(number, draw):
            RUN_NUMBER.set(number)
            await enter()
            served.append((number, draw))
            await asyncio.sleep(0)
            leave()

        await enter()
        waiting = [asyncio.ensure_future(one(*who)) for who in product((3, 2, 5, 1), range(10))]
        await asyncio.sleep(0.01)
        cancelled = random.Random(1).sample(range(40), 10)
        for number in cancelled:
            waiting[number].cancel()
        leave()
        await asyncio.wait(waiting)
        return served, [who for k, who in enumerate(product((3, 2, 5, 1), range(10))) if k not in cancelled]

    served, expected = wait(go())
    assert served == sorted(expected)


def test_a_common_request_goes_with_the_earliest_run_in_it():
    """Run 9 is the first to ask, and run 1 joins it before it is sent; run 4 would be sent between them."""
    end = scripted(samples=True, seconds=0.03, concurrency=1)

    async def go():
        stack = SingleFlight(batched(Limited(end, end), end), key, {})

        async def one(number, draw, text, after=0.0):
            RUN_NUMBER.set(number)
            await asyncio.sleep(after)
            await stack.answer([asked(draw, text)], CallObserver())

        await asyncio.gather(
            one(2, 0, "first"),
            one(4, 0, "alone", 0.01),
            one(9, 0, "common", 0.01),
            one(9, 1, "common", 0.011),
            one(1, 1, "common", 0.0115),
        )

    run_virtually(go())
    assert [[call.prompt for call in calls] for calls in end.requests] == [
        ["first"],
        ["common", "common"],
        ["alone"],
    ]


# Retries.


@pytest.fixture
def soon(monkeypatch):
    monkeypatch.setattr(retries, "FIRST_WAIT", 0.002)


def failing(times, **failure):
    left = [times]

    def reply(call):
        if left[0]:
            left[0] -= 1
            raise Failure("try later", **failure)
        return answer_to(call)

    return reply


def test_what_fails_for_a_moment_is_tried_again(soon):
    end = scripted(failing(3, status=503, retry=True))
    observer = CallObserver()
    (reply,) = wait(Retried(end, end).answer([asked()], observer))
    assert reply.text == answer_to(asked())
    assert observer.names == ["call.sent", "call.retried"] * 3 + ["call.sent"]
    assert observer.notes[1][1]["status"] == 503


def test_what_fails_for_good_is_an_error_that_says_how_often(soon):
    end = scripted(failing(9, status=500, retry=True), retries=2)
    (reply,) = wait(Retried(end, end).answer([asked()], CallObserver()))
    assert reply.error == "scripted 500: try later (tried 3 times)"
    assert len(end.requests) == 3


@pytest.mark.slow
def test_the_wait_that_a_provider_asks_for_is_kept(soon):
    async def seconds(retry_after):
        end = scripted(failing(1, status=429, retry=True, retry_after=retry_after))
        began = asyncio.get_running_loop().time()
        (reply,) = await Retried(end, end).answer([asked()], CallObserver())
        return asyncio.get_running_loop().time() - began, reply

    assert wait(seconds(0.1))[0] >= 0.1
    took, reply = wait(seconds(3600.0))  # but not any wait
    assert took < 60
    assert reply.error == "scripted 429: try later"


# A function.


def test_a_function_cannot_refuse_for_the_driver():
    async def sly(call):
        return Reply(error="budget:calls")

    (reply,) = wait(Function(sly).answer([asked()], CallObserver()))
    assert reply.error == "model: budget:calls"


# Together, under a search.


def test_the_record_shows_the_way_of_a_call(soon, tmp_path):
    end = scripted(failing(1, status=429, retry=True), concurrency=1, seconds=0.001)
    lab = tl.Lab(end, runs=None, cache=tmp_path)
    made = wait(lab.run(tl.SelfConsistency(attempts=3), TASK))
    notes = [line.e for line in made.lines if isinstance(line.e, Note) and line.e.name.startswith("call.")]
    names = [note.name for note in notes]
    assert names.count("call.sent") == 4
    assert names.count("call.retried") == 1
    assert names.count("call.queued") == 3  # for the check before the first request, and for the slot
    positions = {line.p for line in made.lines if isinstance(line.e, Call)}
    assert {tuple(note.data["call"]) for note in notes} <= positions
    assert not any(isinstance(e, Note) and e.name.startswith("call.") for e in made.events)
    again = wait(lab.run(tl.SelfConsistency(attempts=3), TASK))
    assert [line.e.name for line in again.lines if not line.p] == ["call.cached"] * 3
    assert again.events == made.events


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "requests"), [("off", 2), ("auto", 1)])
def test_equal_calls_at_the_same_time_are_one_request_unless_the_mode_is_off(tmp_path, mode, requests):
    end = scripted(seconds=0.2)
    lab = tl.Lab(end, runs=None, cache=tmp_path, mode=mode)

    async def both():
        return await asyncio.gather(*(lab.run(tl.OneAnswer(), TASK) for _ in range(2)))

    assert [run.usage.errors for run in wait(both())] == [0, 0]
    assert len(end.requests) == requests


@pytest.mark.slow
def test_time_counts_from_sending_not_from_queueing():
    end = scripted(seconds=0.2, concurrency=1)
    lab = tl.Lab(end, runs=None, mode="off", timeout=0.8)
    made = wait(lab.run(tl.SelfConsistency(attempts=5), TASK))
    assert made.usage.errors == 0
    slow = scripted(seconds=5)
    made = wait(tl.Lab(slow, runs=None, mode="off", timeout=0.05).run(tl.OneAnswer(), TASK))
    assert "timeout: no reply within 0.05 s" in str(made.events)
    assert slow._under_way[0] == 0


@pytest.mark.slow
def test_the_record_does_not_depend_on_the_stack(tmp_path):
    plain = run(
        tl.TreeOfThoughts(evaluate=tl.Value(samples=3)),
        model=scripted(),
    )
    for end in (scripted(concurrency=1), scripted(samples=True), scripted(failing(4, retry=True))):
        end.__dict__["retries"] = 9
        lab = tl.Lab(end, runs=None, cache=tmp_path / str(id(end)))
        assert wait(lab.run(tl.TreeOfThoughts(evaluate=tl.Value(samples=3)), TASK)).events == plain.events


# Roles.


def test_each_role_has_its_own_model_and_settings():
    cheap, dear = scripted(label="cheap"), scripted(label="dear", url="http://two")
    roles = {"evaluate": tl.Role(model=dear, temperature=0.0), "propose": {"max_tokens": 50}}
    lab = tl.Lab(cheap, roles=roles, runs=None, mode="off")
    made = wait(lab.run(tl.TreeOfThoughts(max_tokens=None), TASK))
    values = [call for calls in dear.requests for call in calls]
    samples = [call for calls in cheap.requests for call in calls]
    assert {(call.purpose, call.temperature) for call in values} == {("value", 0.0)}
    assert {(call.purpose, call.max_tokens) for call in samples} == {("sample", 50)}
    assert made.header.roles["evaluate"]["model"]["label"] == "dear"
    assert wait(made.replay()).identical
    own = wait(lab.run(tl.TreeOfThoughts(temperature=0.7), TASK))
    assert {e.temperature for e in own.events if isinstance(e, Call)} == {0.7}  # the strategy's word stands


@pytest.mark.parametrize(
    ("roles", "why"),
    [
        ({"evaluator": "sim/game24"}, "unknown role .evaluator.; did you mean .evaluate."),
        ({"evaluate": {"temprature": 1}}, "temprature"),
        ({"evaluate": tl.domains.General()}, "expected a model: got General"),
        ({"evaluate": 3}, "role 'evaluate'"),
    ],
)
def test_bad_roles_are_refused_by_name(roles, why):
    with pytest.raises(ValueError, match=why):
        tl.Lab("sim/game24", roles=roles)


def test_seeds_of_all_samples_differ():
    calls = [
        asked(draw, seed=7, repeat=repeat, attempt=attempt)
        for draw in range(5)
        for repeat in range(3)
        for attempt in [(), (0,), (1,), (0, 0), (0, 1), (1, 0)]
    ]
    assert provider_seed(asked(2, seed=7)) == 9
    assert provider_seed(asked(2)) is None
    assert len({provider_seed(call) for call in calls}) == len(calls)


@pytest.mark.slow
def test_an_event_loop_that_is_closed_in_the_middle_leaves_no_error_behind(monkeypatch):
    unraised = []
    monkeypatch.setattr(sys, "unraisablehook", unraised.append)
    end = scripted(seconds=60.0)
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # the tasks are pending when they are destroyed

    async def go():
        stack = SingleFlight(end, key, {})
        waiting = asyncio.ensure_future(stack.answer([asked()], CallObserver()))
        while not end.requests:
            await asyncio.sleep(0)
        assert not waiting.done()

    loop.run_until_complete(go())
    loop.close()
    gc.collect()
    assert [str(one.exc_value) for one in unraised] == []


@pytest.mark.slow
def test_calls_that_are_cancelled_before_their_request_has_begun_leave_no_warning():
    end = scripted(samples=True)

    async def go():
        stack = batched(end, end)
        waiting = [asyncio.ensure_future(stack.answer([asked(draw)], CallObserver())) for draw in range(2)]
        await asyncio.sleep(0)
        ((place, group),) = stack.open_batches.items()
        for one in waiting:
            one.cancel()
        stack._send(place, group)  # the timer ends in the same iteration of the loop
        await asyncio.gather(*waiting, return_exceptions=True)
        await asyncio.sleep(0)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        wait(go())
        gc.collect()
    assert ([str(one.message) for one in caught], end.requests) == ([], [])
