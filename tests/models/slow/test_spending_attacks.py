"""A limit on spending holds whatever happens to requests that cost a dollar, also over several labs."""

import asyncio
import inspect
import json
import os
import signal
import subprocess
import sys
import time
from itertools import product

import pytest
from aiohttp import web
from support import TASK, mostly_nightly, wait
from support.dollars import PRICE, USAGE, Asks, compatible, each_path
from support.endpoint import scripted
from support.providers import Closed, Fault, Half, Hang, Providers, Raw, Said

import tot_lab as tl
from tot_lab.core.calls import Call, Message, Reply
from tot_lab.core.records import Note, Thought
from tot_lab.models import retries
from tot_lab.models.reward_servers import VLLMScore
from tot_lab.models.stack import Failure

ANSWER = Said("Yes.", output_tokens=10)


@pytest.fixture(scope="module")
def provider():
    with Providers() as server:
        yield server


@pytest.fixture
def server(provider, loaded, monkeypatch):
    monkeypatch.setattr(retries, "FIRST_WAIT", 0.001)
    provider.forget()
    provider.otherwise = ANSWER
    return provider


UNREPORTED = {
    "cut body": Half(Said("a " * 40, output_tokens=10)),
    "closed": Closed(),
    "no JSON": Raw(),
    "gateway": Fault(502),
    "timeout of a proxy": Fault(408),
    "too late": Hang(30),
}


@each_path
@pytest.mark.parametrize("answer", UNREPORTED.values(), ids=UNREPORTED)
@pytest.mark.parametrize(("again", "mode"), mostly_nightly(product([0, 2], ["off", "auto"]), [(2, "auto")]))
def test_another_lab_counts_what_was_reserved_for_replies_that_report_nothing(
    server, model, answer, again, mode, tmp_path
):
    def lab():
        late = 0.5 if answer == Hang(30) else 60
        end = model(server, retries=again)
        return tl.Lab(end, runs=tmp_path / "runs", cache=tmp_path / "c", mode=mode, spend=3.0, timeout=late)

    server.otherwise = answer
    first = lab()
    made = wait(first.run(Asks(count=10), TASK))
    assert (len(server.calls), first.spent) == (3, pytest.approx(3.0))
    assert made.usage.paid == pytest.approx(3.0)
    server.otherwise = ANSWER
    other = lab()
    wait(other.resume(made.path))
    assert (len(server.calls), other.spent) == (3, pytest.approx(3.0))


async def until(is_true):
    async with asyncio.timeout(60):
        while not is_true():
            await asyncio.sleep(0.005)


STAGES = {
    "before the head": (Hang(30), False),
    "in the body of a stream": (Said("so " * 10, output_tokens=10, pause=3.0), True),
    "between two tries": (Closed(), False),
}


@each_path
@pytest.mark.parametrize(("answer", "watched"), STAGES.values(), ids=STAGES)
def test_a_run_that_is_cancelled_again_and_again_does_not_exceed_the_limit(
    server, model, answer, watched, tmp_path, monkeypatch
):
    """Each lab is new and answers one call; the next one is cancelled while it is under way."""
    monkeypatch.setattr(retries, "FIRST_WAIT", 20.0)
    path, spent = None, []
    for _ in range(5):
        lab = tl.Lab(model(server), runs=tmp_path, mode="off", spend=4.0)
        server.will(ANSWER, answer)
        before = len(server.calls)

        async def cancelled(lab=lab, path=path, before=before):
            watch = (lambda lines: None) if watched else None
            running = lab.run(Asks(count=10), TASK, watch=watch) if path is None else lab.resume(path)
            task = asyncio.ensure_future(running)
            await until(lambda: len(server.calls) == before + 2 or task.done())
            await asyncio.sleep(0.1)
            task.cancel()
            await asyncio.wait([task])

        wait(cancelled())
        path = next(tmp_path.glob("*.jsonl"))
        spent.append(lab.spent)
    assert spent == pytest.approx([2.0, 4.0, 4.0, 4.0, 4.0])
    assert len(server.calls) == 4


@each_path
def test_a_call_that_waits_for_a_slot_or_another_try_is_free_when_it_is_cancelled(server, model, tmp_path):
    server.otherwise = Fault(429, retry_after=30)
    lab = tl.Lab(model(server, concurrency=1), runs=tmp_path, mode="off", spend=3.0)

    async def cancelled():
        task = asyncio.ensure_future(lab.run(Asks(count=10, at_once=True), TASK))
        await until(lambda: server.calls)
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    wait(cancelled())
    other = tl.Lab(model(server), runs=tmp_path, mode="off", spend=3.0)
    server.otherwise = ANSWER
    wait(other.resume(next(tmp_path.glob("*.jsonl"))))
    assert (lab.spent, other.spent, len(server.calls)) == (0.0, pytest.approx(3.0), 4)


SCRIPT = f"""
import asyncio, sys
import tot_lab as tl
from tot_lab.core.calls import Call, Message
from tot_lab.core.records import Thought
from tot_lab.testing import TASK
PRICE = {PRICE}
{inspect.getsource(Asks)}
model = tl.OpenAICompatible(model="m", base_url=sys.argv[1], price=PRICE)
lab = tl.Lab(model, runs=sys.argv[2], mode="off", spend=3.0)
asyncio.run(lab.run(Asks(count=10, at_once=True, same=len(sys.argv) > 3), TASK))
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_lab_that_is_killed_leaves_what_its_open_calls_can_have_cost(server, how, tmp_path):
    """One call is answered, and two are open."""
    server.will(ANSWER)
    server.otherwise = Hang(30)
    command = [sys.executable, "-c", SCRIPT, server.base("openai"), str(tmp_path)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        wait(until_sent(server, tmp_path, 3))
        os.kill(process.pid, how)
        process.wait(60)
    finally:
        process.kill()
        process.wait()
    lab = tl.Lab(compatible(server), runs=tmp_path, mode="off", spend=3.0)
    server.otherwise = ANSWER
    for _ in range(2):
        wait(lab.resume(next(tmp_path.glob("*.jsonl"))))
        assert (len(server.calls), lab.spent) == (3, pytest.approx(3.0))
        lab = tl.Lab(compatible(server), runs=tmp_path, mode="off", spend=3.0)


def test_a_group_that_is_killed_in_its_second_part_leaves_what_both_can_have_cost(server, tmp_path):
    """Of $3, three replies have cost $0.60, and two can cost $2. The next lab has less than a dollar."""
    server.will(of_two_tokens)
    server.otherwise = Hang(30)
    command = [sys.executable, "-c", SCRIPT, server.base("openai"), str(tmp_path), "same"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        wait(until_sent(server, tmp_path, 2, notes=5))
    finally:
        process.kill()
        process.wait()
    server.otherwise = of_two_tokens
    for _ in range(2):
        lab = tl.Lab(compatible(server), runs=tmp_path, mode="off", spend=3.0)
        wait(lab.resume(next(tmp_path.glob("*.jsonl"))))
        assert [asked.n for asked in server.calls] == [3, 2]
        assert lab.spent == pytest.approx(2.6)


async def until_sent(server, folder, count, notes=None):
    def is_written():
        text = "".join(path.read_text() for path in folder.glob("*.jsonl"))
        return len(server.calls) >= count and text.count('"call.sent"') >= (notes or count)

    await until(is_written)


@each_path
@pytest.mark.parametrize("mode", ["off", "auto"])
def test_no_more_than_the_limit_with_256_calls_in_flight(server, model, mode, tmp_path):
    """Some are answered, some cut, some refused, and some fail with an error that costs."""
    kinds = [ANSWER, Closed(), Fault(429, retry_after=0.01), Fault(500), Half(ANSWER), Fault(503)]
    paid = []

    def answer(asked):
        kind = kinds[len(server.calls) % len(kinds)]
        if not (isinstance(kind, Fault) and kind.status in (429, 503)):
            paid.append(1.0)
        return kind

    server.otherwise = answer
    lab = tl.Lab(model(server, concurrency=256), runs=tmp_path, cache=tmp_path / "c", mode=mode, spend=3.0)
    made = wait(lab.run(Asks(count=256, at_once=True), TASK))
    assert sum(paid) == lab.spent == pytest.approx(3.0)
    assert made.usage.paid == pytest.approx(3.0)


def stream(*events):
    return Raw("".join(f"data: {json.dumps(event)}\n\n" for event in events), kind="text/event-stream")


def piece(text, **more):
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return {"id": "1", "object": "chat.completion.chunk", "model": "m", "choices": [choice], **more}


@each_path
@pytest.mark.parametrize("code", [429, 503, 529, 400])
def test_a_stream_that_an_error_ends_was_processed(server, model, code):
    server.otherwise = stream(piece("so "), piece("so "), {"error": {"message": "overloaded", "code": code}})
    lab = tl.Lab(model(server, retries=2), runs=None, mode="off", spend=3.0)
    made = wait(lab.run(Asks(count=10), TASK, watch=lambda lines: None))
    assert (len(server.calls), lab.spent, made.stop_reason) == (3, pytest.approx(3.0), "budget:spend")


def test_a_server_that_ignores_n_does_not_exceed_the_limit(server):
    """The prompt is as long as the estimate says. The limit has room for four samples in one request."""
    paid = []

    def one(asked):
        paid.append((need.prompt + 1) / 10)
        said = {"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}
        usage = {"prompt_tokens": need.prompt, "completion_tokens": 1}
        return Raw(json.dumps({"model": "m", "choices": [said], "usage": usage}))

    server.otherwise = one
    base = server.base("openai")
    model = tl.OpenAICompatible(model="ignores n", base_url=base, price=(100_000.0, 100_000.0))
    need = model.need([Call("0", "ask", (Message("user", "ask"),), max_tokens=1)] * 4)
    lab = tl.Lab(model, runs=None, mode="off", spend=need.usd + 0.01)
    wait(lab.run(Asks(count=4, at_once=True, same=True, max_tokens=1), TASK))
    assert paid
    assert sum(paid) == pytest.approx(lab.spent)
    assert lab.spent <= need.usd + 0.01


def test_a_group_of_which_a_part_fails_twice_is_not_counted_twice(server):
    """Four replies of a token cost 40 cents. Half of them fail, and then the connection breaks."""

    def half(asked):
        choices = [
            {"index": k, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": finish}
            for k, finish in enumerate(("stop", "stop", "error", "error"))
        ]
        return Raw(json.dumps({"model": "m", "choices": choices, "usage": USAGE | {"completion_tokens": 4}}))

    server.will(half, Closed())
    lab = tl.Lab(compatible(server, retries=1), runs=None, mode="off", spend=100.0)
    made = wait(lab.run(Asks(count=4, at_once=True, same=True, max_tokens=1), TASK))
    assert len(server.calls) == 2
    assert lab.spent == pytest.approx(0.4 + 0.2) == made.usage.paid


def test_calls_of_a_group_for_which_there_is_no_room_are_not_sent(server):
    server.otherwise = Closed()
    lab = tl.Lab(compatible(server, retries=0), runs=None, mode="off", spend=2.5)
    made = wait(lab.run(Asks(count=4, at_once=True, same=True), TASK))
    notes = [line.e for line in made.lines if isinstance(line.e, Note) and line.e.name == "call.sent"]
    sent = {tuple(note.data["call"]) for note in notes}
    replies = {line.p: line.e for line in made.lines if isinstance(line.e, Reply)}
    assert sent == {place for place, reply in replies.items() if reply.error != "budget:spend"}
    assert (len(sent), [asked.n for asked in server.calls]) == (2, [2])
    assert lab.spent == made.usage.paid == pytest.approx(2.0)


class Groups(Asks):
    """Asks for groups of `count` samples of several prompts at the same time."""

    kind = "test_spending_attacks.groups"
    prompts: int = 1

    def think(self, task, at="0"):
        yield Thought(at, None, task.question)
        calls = [
            Call(at, "ask", (Message("user", f"ask {prompt}"),), k, max_tokens=10)
            for prompt in range(self.prompts)
            for k in range(self.count)
        ]
        yield from tl.gather([tl.ask(call) for call in calls])
        return tl.Answer("", "answered")


def of_two_tokens(asked):
    """Samples that cost 20 cents each, where a dollar had to be reserved."""
    return Said("Yes.", output_tokens=2 * asked.n)


def amounts(made):
    """What was paid for each reply and, before it, for each request, by sample index."""
    replies, notes = {}, {}
    places = {line.p: line.e.sample_index for line in made.lines if isinstance(line.e, Call)}
    for line in made.lines:
        if isinstance(line.e, Reply):
            replies[places[line.p]] = line.paid
        elif isinstance(line.e, Note) and line.e.name == "call.sent":
            notes.setdefault(places[tuple(line.e.data["call"])], []).append(line.e.data["paid"])
    return replies, notes


@pytest.mark.parametrize("mode", ["off", "auto"])
def test_a_group_is_made_in_parts_as_far_as_the_money_goes(server, mode, tmp_path):
    """Of $2.50, $2.10, $1.70, … are left after each part. For the last sample there is less than a dollar."""
    server.otherwise = of_two_tokens
    lab = tl.Lab(compatible(server), runs=None, cache=tmp_path, mode=mode, spend=2.5)
    made = wait(lab.run(Asks(count=12, at_once=True, same=True), TASK))
    assert [asked.n for asked in server.calls] == [2, 2, 1, 1, 1, 1]
    paid, noted = amounts(made)
    assert paid == pytest.approx(dict.fromkeys(range(8), 0.2) | dict.fromkeys(range(8, 12), 0.0))
    assert noted == {k: [1.0] for k in range(8)}
    assert (lab.spent, made.usage.paid) == pytest.approx((1.6, 1.6))
    assert made.stop_reason == "budget:spend"
    assert "it can cost up to $1.00, and $0.9000 was left. A lower max_tokens" in made.failure
    assert wait(made.replay()).identical


def test_a_part_that_is_refused_costs_nothing_and_the_others_are_made(server):
    server.will(Fault(429))
    server.otherwise = of_two_tokens
    lab = tl.Lab(compatible(server, retries=0), runs=None, mode="off", spend=2.5)
    made = wait(lab.run(Asks(count=5, at_once=True, same=True), TASK))
    assert [asked.n for asked in server.calls] == [2, 2, 1]
    paid, noted = amounts(made)
    assert [paid[k] for k in (2, 3, 4)] == pytest.approx([0.2] * 3)
    assert noted == {k: [1.0] for k in range(5)}
    assert (lab.spent, made.usage.paid) == pytest.approx((0.6, 0.6))


@pytest.mark.parametrize(("mode", "cuts"), [("off", True), ("auto", True), ("off", False)])
def test_groups_at_the_same_time_use_what_is_left_and_no_more(server, mode, cuts, tmp_path):
    """Requests are answered, refused or cut. At the end, less is left than one call can cost."""
    charged = []

    def answer(asked):
        kind = len(server.calls) % (5 if cuts else 2)
        charged.append(asked.n * {1: 0.0, 2: 1.0}.get(kind, 0.2))
        return {1: Fault(429, retry_after=0.01), 2: Closed()}.get(kind, of_two_tokens(asked))

    server.otherwise = answer
    lab = tl.Lab(compatible(server), runs=tmp_path / "r", cache=tmp_path / "c", mode=mode, spend=20.0)
    made = wait(lab.run(Groups(count=64, prompts=2), TASK))
    assert (lab.spent, made.usage.paid) == pytest.approx((sum(charged), sum(charged)))
    assert 19.0 < lab.spent <= 20.0
    assert made.stop_reason == "budget:spend"
    other = tl.Lab(compatible(server), runs=tmp_path / "r", cache=tmp_path / "c", mode=mode, spend=20.0)
    wait(other.resume(made.path))
    assert other.spent == pytest.approx(lab.spent) == pytest.approx(sum(charged))


@pytest.mark.parametrize("cap", [None, 100.0])
@pytest.mark.parametrize("mode", ["off", "auto"])
def test_lost_tries_of_a_custom_endpoint_count_with_and_without_a_limit(cap, mode, tmp_path, monkeypatch):
    monkeypatch.setattr(retries, "FIRST_WAIT", 0.001)
    left = [2]

    def reply(call):
        if not left[0]:
            return "fine"
        left[0] -= 1
        failure = Failure("half a reply", status=500, retry=True)
        failure.used = [Reply(error="half a reply", input_tokens=3, output_tokens=1, cost=0.25)]
        raise failure

    lab = tl.Lab(scripted(reply), runs=tmp_path / "r", cache=tmp_path / "c", mode=mode, spend=cap)
    made = wait(lab.run(Asks(count=1), TASK))
    assert (lab.spent, made.usage.paid, made.usage.cost) == pytest.approx((1.5, 1.5, 1.0))
    other = tl.Lab(scripted(reply), runs=tmp_path / "r", cache=tmp_path / "c", mode=mode, spend=cap)
    wait(other.resume(made.path))
    assert other.spent == pytest.approx(1.5)


class Rewards(Asks):
    """Scores `count` solutions of one question at a time."""

    kind = "test_spending_attacks.rewards"

    def think(self, task, at="0"):
        yield Thought(at, None, task.question)
        for k in range(0, 40, self.count):
            solutions = [
                (Message("user", "?"), Message("assistant", f"{k + j:02}")) for j in range(self.count)
            ]
            yield from tl.gather([tl.ask(Call(at, "reward", each)) for each in solutions], at_most=1)
        return tl.Answer("", "answered")


def scores(texts, reported=True, **more):
    usage = {"usage": {"prompt_tokens": 10 * len(texts), "total_tokens": 10 * len(texts)}}
    page = {"data": [{"index": k, "score": 0.5} for k, _ in enumerate(texts)], **more}
    return web.json_response(page | usage if reported else page)


LISTS = {
    "unreadable, reported": lambda texts: scores(texts, data=[]),
    "unreadable": lambda texts: scores(texts, reported=False, data=[]),
    "no JSON": lambda texts: web.Response(text="<html>"),
    "error page": lambda texts: web.json_response({"error": {"message": "broke down"}}),
    "gateway": lambda texts: web.json_response({}, status=502),
    "redirect": lambda texts: web.Response(status=307, headers={"Location": "/score"}),
    "answered": scores,
}


@pytest.mark.parametrize("answer", LISTS.values(), ids=LISTS)
@pytest.mark.parametrize("count", [1, 4])
def test_rewards_that_fail_keep_the_limit_and_are_counted_by_another_lab(server, answer, count, tmp_path):
    """Every solution that is processed costs a dollar."""
    paid = []

    def score(asked):
        response = answer(asked.json["text_2"])
        paid.append(0.0 if response.status == 307 else len(asked.json["text_2"]))
        return response

    server.pages["/score"] = score

    def lab():
        model = VLLMScore(model="judge", base_url=server.base("openai"), price=(100_000.0, 0.0), retries=1)
        return tl.Lab(model, runs=tmp_path, mode="off", spend=20.0)

    first = lab()
    made = wait(first.run(Rewards(count=count), TASK))
    assert sum(paid) <= first.spent + 1e-9 <= 20.0 + 1e-9
    assert (first.spent > 0) == (sum(paid) > 0)
    other = lab()
    wait(other.resume(made.path))
    assert sum(paid) <= other.spent + 1e-9 <= 20.0 + 1e-9


@each_path
def test_a_redirect_costs_once(server, model):
    paid = []

    def charged(asked):
        paid.append(1.0)
        return ANSWER

    def moved(asked):
        return Raw("", status=307)

    server.otherwise = charged
    server.will(moved)
    lab = tl.Lab(model(server), runs=None, mode="off", spend=3.0)
    wait(lab.run(Asks(count=10), TASK))
    assert sum(paid) == pytest.approx(lab.spent) == pytest.approx(3.0)


def test_a_request_of_an_event_loop_that_was_closed_counts(server):
    server.otherwise = Hang(30)
    lab = tl.Lab(compatible(server), runs=None, mode="off", spend=3.0)
    loop = asyncio.new_event_loop()
    task = loop.create_task(lab.run(Asks(count=10), TASK))
    deadline = time.monotonic() + 60
    while not server.calls and time.monotonic() < deadline:
        loop.run_until_complete(asyncio.sleep(0.01))
    task._log_destroy_pending = False
    loop.close()
    server.otherwise = ANSWER
    wait(lab.run(Asks(count=10), TASK))
    assert (len(server.calls), lab.spent) == (3, pytest.approx(3.0))


@each_path
def test_a_sweep_that_is_cancelled_again_and_again_does_not_exceed_the_limit(server, model, tmp_path):
    """Four runs at a time. Of their requests, some are cut, some are answered, and some are cancelled."""
    server.otherwise = lambda asked: [ANSWER, Closed(), Hang(30)][len(server.calls) % 3]

    async def cancelled(lab):
        before = len(server.calls)
        strategies = {f"{k}": Asks(count=k) for k in range(1, 9)}
        task = asyncio.ensure_future(lab.sweep(strategies, [TASK], name="s", at_once=4))
        await until(lambda: len(server.calls) > before or task.done())
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.wait([task])

    for _ in range(8):  # a lab sends at least one request
        lab = tl.Lab(model(server, retries=1), runs=tmp_path, mode="off", spend=6.0)
        wait(cancelled(lab))
        assert len(server.calls) <= lab.spent + 1e-9 <= 6.0 + 1e-9
    assert lab.spent == pytest.approx(6.0)
