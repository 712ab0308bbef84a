"""The driver: the same record whatever the latencies, and a valid run however it ends."""

import asyncio
import gc
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from support import ROOT, TASK, TESTS, Scripted, answer_to, dice, run, shuffled, wait
from support.endpoint import scripted
from support.virtual_time import run_virtually

import tot_lab as tl
from tot_lab.core.calls import Call, Message, Reply
from tot_lab.core.protocol import BudgetLeft, with_timeout
from tot_lab.core.records import Note, Scored, Thought, parent_of
from tot_lab.core.tree import Tree
from tot_lab.models import limits
from tot_lab.record.search_notes import SearchNotes
from tot_lab.runtime.driver import Driver
from tot_lab.runtime.pending import PendingCall
from tot_lab.runtime.stepper import Stepper

ENVIRON = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(ROOT), str(TESTS)]),
}
SEARCH = tl.TreeOfThoughts(propose=tl.Sample(count=2), stop=tl.Stop(depth=3))
SEVERAL = [
    SEARCH,
    tl.TreeOfThoughts(
        propose=tl.Propose(count=3, max_parse_retries=2), evaluate=tl.evaluators.Joint(max_parse_retries=2)
    ),
    tl.TreeOfThoughts(evaluate=tl.Vote(samples=3), stop=tl.Stop(depth=2)),
    tl.TreeOfThoughts(
        evaluate=tl.Value(samples=2), search=tl.BestFirst(batch=3), stop=tl.Stop(nodes=15), merge=True
    ),
    tl.TreeOfThoughts(search=tl.MCTS(batch=2, iterations=5)),
    tl.TreeOfThoughts(search=tl.DepthFirst(width=2), stop=tl.Stop(depth=2), parallel=False),
    tl.BestOf(strategy=tl.TreeOfThoughts(propose=tl.Sample(count=2), stop=tl.Stop(depth=2)), attempts=3),
    tl.SelfConsistency(strategy=tl.BestOf(strategy=tl.ChainOfThought(), attempts=2), attempts=3),
]
several = pytest.mark.parametrize("strategy", SEVERAL, ids=[f"{s.kind}-{k}" for k, s in enumerate(SEVERAL)])


def asking(at="0", draw=0, prompt="p"):
    return tl.ask(Call(at, "ask", (Message("user", prompt),), draw))


class Saying(tl.Strategy):
    """Yields what a function `at -> Procedure` does: a strategy for one test."""

    kind = "test_driver.saying"

    def think(self, task, at="0"):
        yield Thought(at, None, task.question)
        return (yield from self._say(at))


def saying(say):
    class Said(Saying):
        kind = "test_driver.saying"

    Said._say = staticmethod(say)
    return Said()


@contextmanager
def within_seconds(seconds):
    """Ends a test that hangs without ever waiting, which no event loop could."""

    def ring(*_):
        raise TimeoutError(f"it hung for {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    """No task, coroutine or exception is left unawaited (a warning is an error)."""
    said = []
    before = sys.unraisablehook
    sys.unraisablehook = said.append
    gc.freeze()  # objects of earlier tests need no second look
    yield
    gc.collect()
    gc.unfreeze()
    sys.unraisablehook = before
    assert said == []


def ended(strategy, model=None, **options):
    """What a run that raises raised, and the run."""
    lab = tl.Lab(model or Scripted(), runs=None)
    with pytest.raises(Exception) as caught:  # noqa: PT011  each test looks at it
        wait(lab.run(strategy, TASK, **options))
    return caught.value, lab.last


# The same record.


@pytest.mark.nightly
@several
def test_the_record_is_the_same_under_any_latencies(strategy):
    first = run(strategy)
    for seed in range(10):
        assert run(strategy, model=Scripted(latency=shuffled(seed, 0.002))).events == first.events
    assert wait(first.replay()).divergence is None
    assert Tree.of(first.events) == first.tree


@several
def test_the_live_record_has_the_same_lines_in_another_order(strategy):
    made = run(strategy, model=Scripted(latency=shuffled(1)))
    assert all(line.p for line in made.lines)
    times = [line.t for line in made.lines]
    assert times == sorted(times)


def test_repeats_differ_and_are_the_same_again():
    assert run(SEARCH, repeat=1).events == run(SEARCH, repeat=1).events
    assert run(SEARCH, repeat=1).tree != run(SEARCH, repeat=2).tree


@pytest.mark.slow
def test_two_runs_at_once_in_one_lab_do_not_mix(tmp_path):
    lab = tl.Lab(Scripted(latency=shuffled(0)), runs=tmp_path)

    async def main():
        return await asyncio.gather(*(lab.run(strategy, TASK) for strategy in SEVERAL))

    for strategy, made in zip(SEVERAL, wait(main()), strict=True):
        assert made.events == run(strategy).events
        assert tl.load(made.path).events == made.events
    assert len(list(tmp_path.iterdir())) == len(SEVERAL)


# Models that fail.


def failing(share):
    def reply(call):
        if dice(call).random() < share:
            raise ConnectionError("no route")
        return answer_to(call)

    return reply


@several
def test_a_model_that_fails_on_some_calls_costs_branches_not_the_run(strategy):
    model = Scripted(failing(0.3), latency=shuffled(0))
    made = run(strategy, model=model)
    assert made.usage.errors > 0
    assert made.usage.calls == len(model.calls)
    assert made.stop_reason is not None
    assert "ConnectionError: no route" in {e.error for e in made.events if isinstance(e, Reply)}
    assert run(strategy, model=Scripted(failing(0.3), latency=shuffled(1))).events == made.events
    assert wait(made.replay()).identical


def cancels(call):
    raise asyncio.CancelledError("inside")


def not_async(call):
    return "score: 1"


async def wrong_type(call):
    return 7


async def nothing(call):
    return None


async def slow(call):
    await asyncio.sleep(1000)


async def times_out(call):
    raise TimeoutError("the server took too long")


async def bad_error(call):
    raise ValueError("\ud800")


def generator(call):
    yield "a"


BROKEN = {
    "fails": (Scripted(failing(1)), "ConnectionError: no route"),
    "raises CancelledError": (Scripted(cancels), "CancelledError: inside"),
    "is not async": (not_async, "TypeError: the model must be async"),
    "returns a number": (wrong_type, "TypeError: the model returned int, not a Reply or a str"),
    "returns nothing": (nothing, "TypeError: the model returned NoneType, not a Reply or a str"),
    "hangs": (slow, r"timeout: no reply within 0\.02 s"),
    "times out": (times_out, "TimeoutError: the server took too long"),
    "raises what cannot be written": (bad_error, "ValueError: .?"),
    "is a generator": (generator, "TypeError: the model must be async"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
@several
def test_a_model_that_fails_on_all_calls_ends_the_run_with_error(strategy, name, tmp_path):
    model, error = BROKEN[name]
    strategy = strategy if name != "hangs" else SEVERAL[0]
    made = wait(tl.Lab(model, runs=tmp_path, timeout=0.02 if name == "hangs" else 5).run(strategy, TASK))
    assert made.stop_reason == "error"
    assert made.answer == ""
    assert made.error is None  # no bug of the strategy's
    assert made.usage.errors == made.usage.calls > 0
    replies = [e for e in made.events if isinstance(e, Reply)]
    assert all(re.match(error, reply.error) for reply in replies)
    assert tl.load(made.path).events == made.events
    assert wait(made.replay()).identical


def test_a_model_that_hangs_past_its_timeout_on_some_calls():
    async def model(call):
        if dice(call).random() < 0.2:
            await asyncio.sleep(1000)
        return answer_to(call)

    made = wait(tl.Lab(model, runs=None, timeout=0.03).run(SEARCH, TASK))
    assert made.usage.errors > 0
    assert {e.error for e in made.events if isinstance(e, Reply)} == {None, "timeout: no reply within 0.03 s"}


@pytest.mark.slow
def test_a_part_may_give_each_of_its_calls_a_time():
    async def model(call):
        await asyncio.sleep(30 if call.prompt == "slow" else 0)
        return "ok"

    def say(at):
        asked = [asking(draw=k, prompt=prompt) for k, prompt in enumerate(("slow", "fast"))]
        parts = yield from with_timeout(0.1, tl.gather(asked, at_most=1))
        inner = yield from with_timeout(60, with_timeout(0.1, asking(draw=2, prompt="slow")))
        return tl.Answer(str([reply.error for reply in (*parts, inner)]), "answered")

    made, _ = run_virtually(tl.Lab(model, runs=None).run(saying(say), TASK))
    late = "timeout: no reply within 0.1 s, the strategy's limit for one call"
    assert made.answer == str([late, None, late])
    for labs_own in (0.05, None):  # it takes the place of the lab's
        again = wait(tl.Lab(model, runs=None, timeout=labs_own).run(saying(say), TASK))
        assert again.answer == made.answer


def test_branches_may_have_a_time_together():
    async def model(call):
        await asyncio.sleep(30 if call.prompt == "slow" else 0)
        return "ok"

    def say(at):
        def branch(k):
            first = yield from asking(draw=k, prompt="fast")
            second = yield from asking(draw=20 + k, prompt="slow" if k else "fast")
            third = yield from asking(draw=40 + k, prompt="fast")
            return [reply.error for reply in (first, second, third)]

        parts = yield from tl.gather([branch(k) for k in range(3)], at_most=3, seconds=0.5)
        after = yield from asking(draw=60, prompt="fast")
        return tl.Answer(str([*parts, after.error]), "answered")

    made, seconds = run_virtually(tl.Lab(model, runs=None).run(saying(say), TASK))
    late = "timeout: no reply within 0.5 s, the strategy's limit for the group of calls"
    assert made.answer == str([[None] * 3, [None, late, late], [None, late, late], None])
    assert seconds == pytest.approx(0.5, abs=0.01)
    assert wait(made.replay()).identical


class Grouped:
    """Asks `count` calls in one group that has `seconds`, `in_a_row` of them in each branch."""

    def __init__(self, count, seconds, in_a_row=1, at_once=None):
        self.count, self.seconds, self.in_a_row, self.at_once = count, seconds, in_a_row, at_once

    def __call__(self, at):
        def branch(k):
            errors = []
            for turn in range(self.in_a_row):
                errors.append((yield from asking(draw=k + turn * self.count)).error)
            return errors

        parts = yield from tl.gather(
            [branch(k) for k in range(self.count)],
            at_most=self.in_a_row,
            at_once=self.at_once,
            seconds=self.seconds,
        )
        return tl.Answer(str([error for part in parts for error in part]), "answered")


def test_a_far_away_cap_takes_none_of_a_groups_time():
    """The ramp of the cap lets one call through, then two, then four: that takes three times 0.4 s."""

    async def model(call):
        await asyncio.sleep(0.4)
        return "ok"

    cap = tl.Budget(tokens=10**9)
    made, seconds = run_virtually(tl.Lab(model, runs=None).run(saying(Grouped(5, 0.7)), TASK, budget=cap))
    assert made.answer == str([None] * 5)
    assert seconds == pytest.approx(1.2, abs=0.01)
    in_a_row = saying(Grouped(3, 0.7, in_a_row=3))  # their own time counts all the same
    made, _ = run_virtually(tl.Lab(model, runs=None).run(in_a_row, TASK, budget=cap))
    assert made.answer.count("the group of calls") >= 3


@pytest.mark.parametrize("at_once", [None, 1])
def test_requests_per_minute_take_none_of_a_groups_time(at_once, monkeypatch):
    monkeypatch.setattr(limits, "MINUTE", 0.4)
    end = scripted(requests_per_minute=1)
    lab = tl.Lab(end, runs=None, mode="off", timeout=None)
    made, seconds = run_virtually(lab.run(saying(Grouped(4, 0.3, at_once=at_once)), TASK))
    assert made.answer == str([None] * 4)
    assert seconds > 1


def test_a_group_that_waits_for_its_first_place_has_its_whole_time_where_calls_have_no_time():
    """A queued call does not set the clock back while another one is with the model."""
    end = scripted(seconds=30, concurrency=1)
    lab = tl.Lab(end, runs=None, mode="off", timeout=None)
    made, seconds = run_virtually(lab.run(saying(Grouped(2, 0.3)), TASK))
    assert made.answer.count("timeout: no reply within 0.3 s") == 2
    assert seconds == pytest.approx(0.6, abs=0.01)  # the second was sent when the first had had its time


def test_nothing_is_sent_once_the_time_of_a_group_is_up():
    asked = []

    async def model(call):
        asked.append(call.sample_index)
        await asyncio.sleep(30)

    made, _ = run_virtually(tl.Lab(model, runs=None).run(saying(Grouped(3, 0.2, in_a_row=2)), TASK))
    assert asked == [0, 1, 2]
    assert made.answer.count("timeout: no reply within 0.2 s") == 6
    assert wait(made.replay()).identical


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_a_bad_timeout_is_refused(timeout):
    with pytest.raises(ValueError, match="timeout"):
        tl.Lab(Scripted(), timeout=timeout)


def test_an_unknown_model_of_a_call_is_an_error_of_that_call():
    made = run(tl.OneAnswer(model="sim/no-such"))
    assert made.stop_reason == "error"
    assert "unknown simulated model 'sim/no-such'" in next(
        e.error for e in made.events if isinstance(e, Reply)
    )


# Bugs in a strategy.


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_an_exception_ends_the_run_and_is_raised(rounds):
    closed = []

    def say(at):
        def branch(k):
            try:
                for turn in range(5):
                    yield from asking(draw=10 * k + turn)
                    if k == 2 and turn == rounds - 1:
                        raise ZeroDivisionError("a bug")
            finally:
                closed.append(k)

        if rounds == 0:
            raise ZeroDivisionError("a bug")
        yield from tl.gather([branch(k) for k in range(4)])

    error, last = ended(saying(say), model=Scripted(latency=shuffled(0)))
    assert isinstance(error, ZeroDivisionError)
    assert (last.stop_reason, last.error, last.answer) == ("error", "ZeroDivisionError: a bug", "")
    assert sorted(closed) == ([] if rounds == 0 else [0, 1, 2, 3])
    assert len(Tree.of(last.events)) == 1
    assert wait(last.replay()).divergence is None  # it meets the bug again


@pytest.mark.parametrize(
    ("say", "error", "told"),
    [
        (lambda at: iter([asking()]), TypeError, "got generator. Run another generator with `yield from`"),
        (
            lambda at: iter([tl.gather([])]),
            TypeError,
            "got generator. Run another generator with `yield from`",
        ),
        (lambda at: iter([None]), TypeError, "may yield calls and events: got NoneType"),
        (lambda at: iter(["text"]), TypeError, "may yield calls and events: got str"),
        (lambda at: iter([Reply("x")]), TypeError, "may yield calls and events: got Reply"),
        (lambda at: iter([]), TypeError, "think must return an Answer with a str as text: got NoneType"),
        (lambda at: iter([Thought(at, None, "again")]), ValueError, "Duplicate thought id: got '0'"),
        (lambda at: iter([Thought("7.1", "7", "x")]), ValueError, "Unknown parent of thought '7.1': got '7'"),
        (lambda at: iter([Scored("7", 1.0)]), ValueError, "Unknown thought in Scored: got '7'"),
        (lambda at: iter([Scored(at, 1.5)]), ValueError, "must be between 0 and 1: got 1.5"),
        (lambda at: iter([Scored(at, float("nan"))]), ValueError, "must be between 0 and 1: got nan"),
        (
            lambda at: iter([tl.records.Decided("7", "kept")]),
            ValueError,
            "Unknown thought in Decided: got '7'",
        ),
        (
            lambda at: iter([tl.Call("7", "answer", ())]),
            ValueError,
            "got '7'. Record the thought first",
        ),
        (lambda at: tl.gather([1, 2]), TypeError, "The branches of gather must be generators: got int"),
        (lambda at: tl.gather(asking()), TypeError, "gather takes a list of branches: got generator"),
        (lambda at: tl.gather([asking()], at_once=0), ValueError, "at_once must be at least 1: got 0"),
        (lambda at: tl.gather([asking()], at_once=-1), ValueError, "at_once must be at least 1: got -1"),
    ],
)
def test_what_a_strategy_may_not_yield_is_told_clearly(say, error, told):
    with within_seconds(20):
        caught, last = ended(saying(say))
    assert isinstance(caught, error)
    assert re.search(told, str(caught))
    assert last.stop_reason == "error"


class NoGenerator(tl.Strategy):
    kind = "test_driver.no_generator"

    def think(self, task, at="0"):
        return tl.Answer("x", "answered")


class Forgets(tl.Strategy):
    kind = "test_driver.forgets"

    def think(self, task, at="0"):
        yield Thought(at, None, task.question)
        return tl.OneAnswer().think(task, f"{at}.0")


class Asynchronous(tl.Strategy):
    kind = "test_driver.asynchronous"

    async def think(self, task, at="0"):
        return tl.Answer("x", "answered")


class Thoughtless(tl.Strategy):
    kind = "test_driver.thoughtless"


def test_a_think_that_is_no_generator_is_told_clearly():
    caught, last = ended(NoGenerator())
    assert "think must be a generator" in str(caught)
    assert last.stop_reason == "error"
    caught, last = ended(Asynchronous())
    assert "think must be a generator function without `async`" in str(caught)
    assert last.stop_reason == "error"
    caught, _ = ended(Thoughtless())
    assert "the strategy 'test_driver.thoughtless' has no think" in str(caught)
    caught, _ = ended(Forgets())
    assert "think must return an Answer with a str as text: got generator" in str(caught)
    assert "Use `yield from`" in str(caught)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (tl.Answer(24, "answered"), "24"),
        (tl.Answer("x", "answered", "0.9"), "Unknown thought in the answer: got '0.9'"),
        (tl.Answer("x", "answered", "0", None, ("0.8",)), "Unknown thought in the answer: got '0.8'"),
    ],
)
def test_an_answer_that_no_file_could_give_back_is_refused(answer, told):
    def say(at):
        yield from tl.gather([])
        return answer

    caught, last = ended(saying(say))
    assert told in str(caught)
    assert last.stop_reason == "error"


def test_one_draw_asked_twice_is_an_error_that_names_the_thought():
    def say(at):
        yield Thought("0.1", at, "a")
        yield from asking("0.1")
        yield from asking("0.1")

    caught, _ = ended(saying(say))
    assert isinstance(caught, ValueError)
    assert "Duplicate call at node 0.1: purpose 'ask', sample 0" in str(caught)


def test_one_draw_of_several_models_or_attempts_is_several_draws():
    def say(at):
        calls = [
            Call(at, "ask", (Message("user", "p"),), model=name)
            for name in (None, "sim/game24", "sim/general")
        ]
        replies = yield from tl.gather([tl.ask(call) for call in calls])
        replies += yield from tl.gather([tl.resample(k, asking(at)) for k in (1, 2)])
        return tl.Answer(str(len(replies)), "answered")

    assert run(saying(say)).answer == "5"


def test_a_run_deeper_than_1000_steps_is_refused_and_1000_is_not():
    def chain(depth):
        def say(at):
            for _ in range(depth):
                yield Thought(f"{at}.0", at, "deeper")
                at = f"{at}.0"
            return tl.Answer("down", "answered", at)

        return say

    made = run(saying(chain(1000)))
    assert made.best.depth == 1000
    assert len(made.solution_path) == 1001
    caught, last = ended(saying(chain(1001)))
    assert "deeper than 1000 steps" in str(caught)
    assert len(last.tree) == 1001


def endless_sequence(at):
    for draw in range(10**9):
        yield from asking(draw=draw)


def endless_rounds(at):
    for draw in range(10**9):
        yield from tl.gather([asking(draw=2 * draw), asking(draw=2 * draw + 1)])


def endless_parts(at):
    for draw in range(10**9):
        yield from tl.with_budget(tl.Budget(usd=5), asking(draw=draw))


def endless_in_a_branch(at):
    yield from tl.gather([endless_sequence(at), asking("0", 10**9 + 1)])


@pytest.mark.slow
@pytest.mark.parametrize("say", [endless_sequence, endless_rounds, endless_parts, endless_in_a_branch])
@pytest.mark.parametrize("budget", [{"calls": 5}, {"seconds": 0.02}, {"output_tokens": 30}], ids=str)
def test_a_strategy_that_goes_on_asking_after_refusals_is_closed(say, budget):
    with within_seconds(20):
        caught, last = ended(saying(say), model=Scripted(lambda call: "x" * 20), budget=tl.Budget(**budget))
    assert "kept making calls after 100 refusals" in str(caught)
    assert last.stop_reason == "error"
    assert last.diagnostics["refused_calls"] <= 300
    assert wait(last.replay()).divergence is None


def test_refusals_that_are_not_in_a_row_are_patiently_answered():
    def say(at):
        for k in range(150):
            yield from tl.with_budget(tl.Budget(calls=0), asking(draw=2 * k))
            yield from asking(draw=2 * k + 1)
        return tl.Answer("done", "answered")

    assert run(saying(say)).answer == "done"


def test_a_strategy_that_will_not_be_closed_does_not_hide_what_happened():
    def say(at):
        def stubborn():
            try:
                yield from asking()
            finally:
                yield Note("too.late", at, {})

        def bug():
            yield from asking(draw=1)
            raise ZeroDivisionError("a bug")

        yield from tl.gather([stubborn(), bug()])

    async def model(call):
        await asyncio.sleep(0 if call.sample_index else 1000)
        return "x"

    caught, last = ended(saying(say), model=model)
    assert isinstance(caught, ZeroDivisionError)
    assert last.error == "ZeroDivisionError: a bug"


def test_a_watcher_that_fails_ends_the_run_and_lets_go_of_the_file(tmp_path):
    lab = tl.Lab(Scripted(), runs=tmp_path)

    def watch(lines):
        raise ZeroDivisionError("in the watcher")

    with pytest.raises(ZeroDivisionError, match="in the watcher"):
        wait(lab.run(SEARCH, TASK, watch=watch))
    assert lab.last.stop_reason == "error"
    assert wait(lab.resume(lab.last.path)).events == run(SEARCH).events  # nobody holds its lock


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [{"strategy": "beam"}, {"task": "1+1?"}, {"repeat": -1}])
def test_wrong_arguments_are_told_before_anything_is_made(tmp_path, wrong):
    options = {"strategy": SEARCH, "task": TASK, **wrong}
    with pytest.raises((TypeError, ValueError), match=next(iter(wrong))):
        wait(tl.Lab(Scripted(), runs=tmp_path / "runs").run(**options))
    assert not (tmp_path / "runs").exists()


# Cancelling.


async def cancelled_after(seconds, strategy, lab, **options):
    before = asyncio.all_tasks()
    under_way = asyncio.ensure_future(lab.run(strategy, TASK, **options))
    await asyncio.sleep(seconds)
    under_way.cancel()
    await asyncio.wait([under_way])
    assert all(task.cancelling() for task in asyncio.all_tasks() - before)
    return under_way


@pytest.mark.nightly
@several
def test_cancelling_at_any_moment_leaves_a_valid_run(strategy, tmp_path):
    roll = random.Random(strategy.kind)
    free = run(strategy)
    stops = set()
    for k in range(8):
        lab = tl.Lab(Scripted(latency=shuffled(k, 0.004)), runs=tmp_path)
        done = wait(cancelled_after(roll.random() * 0.015 + 0.0005, strategy, lab))
        made = lab.last
        stops.add(made.stop_reason)
        assert made.stop_reason in ("cancelled", free.stop_reason)
        assert done.cancelled() or made.stop_reason == free.stop_reason
        assert Tree.of(made.events) == made.tree
        assert wait(made.replay()).divergence is None
        assert tl.load(made.path).events == made.events
        if made.stop_reason == "cancelled":
            assert wait(tl.Lab(Scripted()).resume(made.path)).events == free.events
    assert "cancelled" in stops


def test_a_cancelled_search_answers_with_what_it_has():
    lab = tl.Lab(Scripted(latency=lambda call: 0 if call.node == "0" else 100), runs=None)
    wait(
        cancelled_after(
            0.025, tl.TreeOfThoughts(propose=tl.Sample(count=3), evaluate=lambda task, path: 0.5), lab
        )
    )
    assert lab.last.stop_reason == "cancelled"
    assert lab.last.answer.startswith("step")
    assert lab.last.best is not None


def endless_talk(at):
    while True:
        yield Note("talk", at, {})


def endless_requests(at):
    for number in range(10**9):
        yield BudgetLeft(at, number)


@pytest.mark.nightly
@pytest.mark.parametrize("talk", [endless_talk, endless_requests])
def test_a_strategy_that_asks_nothing_for_ever_leaves_room_for_others_and_can_be_cancelled(tmp_path, talk):
    lab = tl.Lab(Scripted(), runs=tmp_path)
    with within_seconds(20):
        wait(cancelled_after(0.1, saying(talk), lab))
    assert lab.last.stop_reason == "cancelled"
    assert tl.load(lab.last.path).events == lab.last.events


@pytest.mark.parametrize("budget", [{"calls": 6}, {"output_tokens": 20}, {"seconds": 5}], ids=str)
def test_cancelling_under_a_budget_leaves_a_valid_run(budget):
    for k in range(4):
        lab = tl.Lab(Scripted(latency=lambda call: 0.002), runs=None)
        wait(cancelled_after(0.001 + k * 0.003, SEARCH, lab, budget=tl.Budget(**budget)))
        assert lab.last.stop_reason in ("cancelled", f"budget:{next(iter(budget))}")
        assert wait(lab.last.replay()).divergence is None


def raises_on_refusal(at):
    reply = yield from asking()
    return tl.Answer({None: "fine"}[reply.error], "answered")


@pytest.mark.parametrize("say", [endless_sequence, endless_rounds, endless_in_a_branch, raises_on_refusal])
def test_a_strategy_that_takes_cancelling_badly_is_cancelled_all_the_same(say):
    lab = tl.Lab(Scripted(latency=lambda call: 0.003 if say is not raises_on_refusal else 100), runs=None)
    with within_seconds(20):
        done = wait(cancelled_after(0.01, saying(say), lab))
    assert done.cancelled()
    assert lab.last.stop_reason == "cancelled"
    assert wait(lab.last.replay()).divergence is None


def test_cancelling_before_the_first_step_does_no_harm():
    lab = tl.Lab(Scripted(), runs=None)

    async def main():
        under_way = asyncio.ensure_future(lab.run(SEARCH, TASK))
        under_way.cancel()
        await asyncio.wait([under_way])
        return under_way.cancelled()

    assert wait(main())
    assert lab.last is None


SCRIPT = """
import asyncio, sys
from support import *
import tot_lab as tl
lab = tl.Lab(Scripted(latency=lambda call: 0.02), runs=sys.argv[1])
strategy = tl.TreeOfThoughts(propose=tl.Sample(count=5), stop=tl.Stop(depth=200, solved=None), parallel=False)
print("begun", flush=True)
try:
    asyncio.run(lab.run(strategy, TASK))
except KeyboardInterrupt:
    print(lab.last.stop_reason, len(lab.last.tree), flush=True)
"""


@pytest.mark.nightly
def test_an_interrupted_script_has_a_valid_run(tmp_path):
    child = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", SCRIPT, str(tmp_path)],
        env=ENVIRON,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout.readline() == "begun\n"
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=20)
    assert err == ""
    assert child.returncode == 0
    stopped, size = out.split()
    (path,) = tmp_path.glob("*.jsonl")
    made = tl.load(path)
    assert (made.stop_reason, len(made.tree)) == (stopped, int(size)) == ("cancelled", len(made.tree))
    assert wait(made.replay()).divergence is None


# Streams.


@pytest.mark.slow
@several
def test_a_stream_to_its_end_has_every_record_of_the_run(strategy):
    lab = tl.Lab(Scripted(latency=shuffled(3)), runs=None)

    async def main():
        stream = lab.stream(strategy, TASK)
        seen = [event async for event in stream]
        return seen, stream.run

    seen, made = wait(main())
    assert made is lab.last
    recorded = [line.e for line in made.lines]
    assert [event for event in seen if any(event is record for record in recorded)] == recorded
    assert seen == [line.e for line in SearchNotes().follow(made.lines)]
    assert sorted(map(repr, recorded)) == sorted(map(repr, made.events))
    assert made.events == run(strategy).events


@pytest.mark.slow
def test_leaving_a_stream_cancels_its_run():
    model = Scripted(latency=lambda call: 0.005)
    lab = tl.Lab(model, runs=None)

    async def main(most):
        seen = 0
        async for _ in (stream := lab.stream(SEARCH, TASK)):
            seen += 1
            if seen >= most:
                break
        for _ in range(10):
            await asyncio.sleep(0)
        calls = len(model.calls)
        await asyncio.sleep(0.02)
        assert len(model.calls) == calls
        return stream.run

    for most in (1, 5, 12, 30):
        made = wait(main(most))
        assert made.stop_reason == "cancelled"
        assert wait(made.replay()).divergence is None


def test_a_stream_gives_its_own_run_when_others_are_under_way():
    async def main():
        lab = tl.Lab(Scripted(latency=lambda call: 0.002), runs=None)
        other = asyncio.ensure_future(lab.run(tl.SelfConsistency(attempts=3), TASK))
        streams = [lab.stream(SEARCH, TASK, repeat=k) for k in (1, 2, 3)]

        async def leave(stream, most):
            async for _ in (records := aiter(stream)):
                most -= 1
                if most == 0:
                    break
            await records.aclose()

        await asyncio.gather(*(leave(stream, 8 * k) for k, stream in enumerate(streams, 1)))
        await other
        return streams

    for k, stream in enumerate(wait(main()), 1):
        assert stream.run.header.repeat == k
        assert stream.run.stop_reason == "cancelled"


def test_a_stream_raises_a_bug_and_holds_the_run():
    def say(at):
        yield from asking()
        raise ZeroDivisionError("a bug")

    async def main():
        stream = tl.Lab(Scripted(), runs=None).stream(saying(say), TASK)
        with pytest.raises(ZeroDivisionError):
            async for _ in stream:
                pass
        return stream.run

    assert wait(main()).error == "ZeroDivisionError: a bug"


def test_cancelling_whoever_reads_a_stream_cancels_the_run():
    async def main():
        stream = tl.Lab(Scripted(latency=lambda call: 0.005), runs=None).stream(SEARCH, TASK)

        async def read():
            async for _ in stream:
                pass

        reader = asyncio.ensure_future(read())
        await asyncio.sleep(0.012)
        reader.cancel()
        await asyncio.wait([reader])
        return reader.cancelled(), stream.run

    was, made = wait(main())
    assert was
    assert made.stop_reason == "cancelled"


# Branches.


def test_nested_branches_come_back_in_their_order():
    def level(path):
        if len(path) == 3:
            reply = yield from asking(prompt=str(path))
            return reply.text
        return (yield from tl.gather([level((*path, k)) for k in range(3)]))

    def say(at):
        return tl.Answer(json.dumps((yield from level(()))), "answered")

    def reply(call):
        return call.prompt

    made = run(saying(say), model=Scripted(reply, latency=shuffled(5)))
    found = json.loads(made.answer)
    assert found == [[[str((a, b, c)) for c in range(3)] for b in range(3)] for a in range(3)]


def test_no_branches_give_no_results_at_once():
    def say(at):
        none = yield from tl.gather([])
        nested = yield from tl.gather([tl.gather([]), tl.gather([])])
        return tl.Answer(repr((none, nested)), "answered")

    made = run(saying(say))
    assert made.answer == "([], [[], []])"
    assert wait(made.replay()).identical


@pytest.mark.parametrize("at_once", [1, 2, 5, None])
def test_at_once_is_how_many_are_under_way_at_most(at_once):
    under_way, most, order = 0, 0, []

    async def model(call):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        order.append(call.sample_index)
        await asyncio.sleep(dice(call).random() * 0.003)
        under_way -= 1
        return "x"

    def say(at):
        def branch(k):
            yield from asking(draw=2 * k)
            yield from asking(draw=2 * k + 1)
            return k

        found = yield from tl.gather([branch(k) for k in range(12)], at_once=at_once)
        return tl.Answer(str(found), "answered")

    made = run(saying(say), model=model)
    assert made.answer == str(list(range(12)))
    assert most == (at_once or 12)
    if at_once == 1:
        assert order == list(range(24))


def test_a_branch_goes_on_as_soon_as_its_own_reply_is_there():
    async def model(call):
        await asyncio.sleep(0.05 if call.prompt == "slow" else 0)
        return "x"

    def say(at):
        def branch(name):
            for draw in range(5):
                yield from asking(prompt=name, draw=draw if name == "fast" else 0)
                yield Note("step", at, {"name": name})
                if name == "slow":
                    return

        yield from tl.gather([branch("slow"), branch("fast")])
        return tl.Answer("", "answered")

    made = run(saying(say), model=model)
    live = [line.e.data["name"] for line in made.lines if isinstance(line.e, Note)]
    assert live == ["fast"] * 5 + ["slow"]
    assert [e.data["name"] for e in made.events if isinstance(e, Note)] == ["slow"] + ["fast"] * 5


# Far and deep.


@pytest.mark.nightly
def test_a_strategy_may_ask_50_000_times_in_sequence():
    def say(at):
        for draw in range(50_000):
            reply = yield from asking(draw=draw)
        return tl.Answer(reply.text, "answered")

    async def model(call):
        return "x"

    made = run(saying(say), model=model)
    assert made.usage.calls == 50_000
    assert made.stop_reason == "answered"


@pytest.mark.slow
def test_a_strategy_may_yield_50_000_events_and_branches():
    def say(at):
        def branch(k):
            yield Thought(f"{at}.{k}", at, "x")

        yield from tl.gather([branch(k) for k in range(50_000)], at_once=3)
        return tl.Answer("", "answered")

    assert len(run(saying(say)).tree) == 50_001


@pytest.mark.slow
@pytest.mark.parametrize("nest", ["gather", "with_budget"])
def test_900_nested_levels_work(nest):
    def level(depth):
        if depth == 0:
            return (yield from asking())
        if nest == "with_budget":
            return (yield from tl.with_budget(tl.Budget(), level(depth - 1)))
        return (yield from tl.gather([level(depth - 1)]))[0]

    def say(at):
        return tl.Answer((yield from level(900)).text, "answered")

    made = run(saying(say))
    assert made.stop_reason == "answered"
    assert wait(made.replay()).identical


class Wraps(tl.Strategy):
    kind = "test_driver.wraps"
    depth: int

    def think(self, task, at="0"):
        yield Thought(at, parent_of(at), "x")
        inner = Wraps(depth=self.depth - 1) if self.depth else tl.OneAnswer()
        (answer,) = yield from tl.gather([inner.think(task, f"{at}.0")])
        return answer


@pytest.mark.slow
def test_900_nested_strategies_work():
    made = run(Wraps(depth=900))
    assert made.best.depth == 902
    assert wait(made.replay()).identical


# Endings.


def test_generators_are_closed_when_the_run_is_over():
    closed = []

    def say(at):
        def branch(k):
            try:
                for draw in range(100):
                    yield from asking(draw=100 * k + draw)
            finally:
                closed.append(k)

        try:
            yield from tl.gather([branch(k) for k in range(3)])
        finally:
            closed.append("root")

    lab = tl.Lab(Scripted(latency=lambda call: 0.005), runs=None, timeout=None)
    wait(cancelled_after(0.012, saying(say), lab))
    assert closed[-1] == "root"
    assert sorted(closed[:-1]) == [0, 1, 2]


class Outcome(BaseException):
    """As pytest's own are."""


class Unsayable(Exception):
    def __str__(self):
        raise self


def test_a_model_that_raises_what_nobody_expects_does_not_hang_the_run():
    def asked(error):
        def reply(call):
            raise error

        lab = tl.Lab(Scripted(reply), runs=None)
        return lab, lab.run(tl.OneAnswer(), TASK)

    lab, running = asked(Unsayable())
    made = wait(running)
    assert (made.stop_reason, [e.error for e in made.events if isinstance(e, Reply)]) == (
        "error",
        ["Unsayable: "],
    )
    lab, running = asked(Outcome("no"))
    with pytest.raises(Outcome, match="no"):
        wait(running)
    assert lab.last.stop_reason == "error"


def test_no_task_outlives_its_run():
    async def main():
        before = asyncio.all_tasks()
        lab = tl.Lab(Scripted(latency=shuffled(0)), runs=None)
        await lab.run(SEARCH, TASK)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == before
        await lab.run(SEARCH, TASK, budget=tl.Budget(seconds=0.003))
        await asyncio.sleep(0.001)
        assert asyncio.all_tasks() == before
        await cancelled_after(0.003, SEARCH, lab)
        await asyncio.sleep(0.001)
        assert asyncio.all_tasks() == before

    wait(main())


@pytest.mark.parametrize(
    "budget", [{}, {"calls": 9}, {"tokens": 10**6, "seconds": 60}, {"seconds": 0.01}], ids=str
)
def test_a_finished_run_leaves_nothing_to_the_garbage_collector(budget):
    """A reference cycle through the driver would keep each run until a collection, which is rare."""
    kinds = (Driver, Stepper, PendingCall)

    async def go():
        lab = tl.Lab(Scripted(latency=shuffled(1)), runs=None)
        await lab.run(SEARCH, TASK, budget=tl.Budget(**budget))
        await asyncio.sleep(0.01)
        return [type(one).__name__ for one in gc.get_objects() if isinstance(one, kinds)]

    gc.collect()
    gc.disable()
    try:
        assert wait(go()) == []
    finally:
        gc.enable()


@pytest.mark.parametrize("after", range(1, 12))
def test_no_task_fails_after_a_run_was_cancelled_as_a_reply_arrived(after):
    """The turn that uses the last replies makes calls whose tasks have not begun when the run ends."""
    failed = []

    async def go():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
        lab = tl.Lab(model, runs=None)
        running = asyncio.ensure_future(lab.run(SEARCH, TASK))
        while len(answered) < after:
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])
        await asyncio.sleep(0.01)
        gc.collect()
        return lab.last

    answered = []

    async def model(call):
        await asyncio.sleep(0)
        answered.append(call)
        return answer_to(call)

    made = wait(go())
    assert failed == []
    assert made.stop_reason in ("cancelled", run(SEARCH).stop_reason)
