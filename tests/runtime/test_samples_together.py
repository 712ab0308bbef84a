"""Samples of one request share a task. Each is still a call with a reply, a time and a payment of its own."""

import asyncio
import contextlib
import gc
from itertools import chain

import pytest
from support import TASK, answer_to, wait
from support.endpoint import scripted

import tot_lab as tl
from tot_lab.core.calls import Call, Halt, Message, Reply
from tot_lab.core.protocol import with_timeout
from tot_lab.core.records import Note
from tot_lab.models.flight import Flight
from tot_lab.runtime.pending import PendingCall
from tot_lab.runtime.stepper import Branch

COUNT = 5


def sample(index, at="0", **fields):
    return Call(at, "ask", (Message("user", "Say a number."),), index, **fields)


class AskingTogether(tl.Strategy):
    """Asks for samples of one request, each in a branch; some have a time limit of their own."""

    count: int = COUNT
    first: int = 0
    limits: dict[int, float] = {}

    def think(self, task, at="0"):
        yield tl.Thought(at, None, task.question)
        indices = range(self.first, self.first + self.count)
        replies = yield from tl.gather([self._one(at, index) for index in indices])
        return tl.Answer(" ".join(reply.text or "-" for reply in replies), "answered", at)

    def _one(self, at, index):
        asking = tl.ask(sample(index, at))
        return with_timeout(self.limits[index], asking) if index in self.limits else asking

    def max_calls(self, task):
        return self.count


def said(*indices):
    return " ".join("-" if index is None else answer_to(sample(index)) for index in indices)


def lab_of(end, tmp_path, mode="auto"):
    return tl.Lab(end, runs=None, cache=tmp_path / "calls" if mode != "off" else None, mode=mode)


def indices_of(end):
    return [[call.sample_index for call in calls] for calls in end.requests]


@pytest.mark.parametrize("name", ["sim/no-such", "strong", "local/no-such"])
def test_samples_of_an_unknown_model_fail_and_leave_nothing_waiting(name):
    several = tl.SelfConsistency(strategy=tl.ChainOfThought(model=name), attempts=3)
    with pytest.warns(UserWarning, match="No call") if name == "strong" else contextlib.nullcontext():
        made = wait(asyncio.wait_for(tl.Lab("sim/game24", runs=None).run(several, TASK), 20))
    assert made.stop_reason == "error"
    assert (name.partition("/")[2] or name) in made.failure


both_modes = pytest.mark.parametrize("mode", ["off", "auto"])


@both_modes
def test_they_are_requested_in_order_and_in_full_groups(mode, tmp_path):
    end = scripted(samples=True)
    made = wait(lab_of(end, tmp_path, mode).run(AskingTogether(count=70), TASK))
    assert indices_of(end) == [[*range(32)], [*range(32, 64)], [*range(64, 70)]]
    assert made.answer == said(*range(70))
    alone = wait(lab_of(scripted(), tmp_path, "off").run(AskingTogether(count=70), TASK))
    assert made.events == alone.events


def test_a_cached_sample_does_not_wait_for_the_others(tmp_path):
    end = scripted(samples=True)
    lab = lab_of(end, tmp_path)
    wait(lab.run(AskingTogether(first=2, count=1), TASK))
    end.__dict__["seconds"] = 30.0

    async def go():
        running = asyncio.ensure_future(lab.run(AskingTogether(), TASK))
        while len(end.requests) < 2:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return lab.last

    made = wait(go())
    assert indices_of(end) == [[2], [0, 1, 3, 4]]
    assert made.answer == said(None, None, 2, None, None)
    assert [line.paid for line in made.lines if isinstance(line.e, Reply) and line.e.error is None] == [0.0]


@both_modes
def test_one_whose_time_is_up_leaves_the_others_their_replies(mode, tmp_path):
    end = scripted(samples=True, seconds=0.1)
    made = wait(lab_of(end, tmp_path, mode).run(AskingTogether(limits={1: 0.02, 3: 5.0}), TASK))
    assert made.answer == said(0, None, 2, 3, 4)
    assert len(end.requests) == 1
    errors = [line.e.error for line in made.lines if isinstance(line.e, Reply)]
    assert sorted(map(str, errors)) == ["None"] * 4 + [
        "timeout: no reply within 0.02 s, the strategy's limit for one call"
    ]


@both_modes
def test_the_request_is_cancelled_when_the_time_of_all_is_up(mode, tmp_path):
    end = scripted(samples=True, seconds=30.0)
    lab = tl.Lab(end, runs=None, cache=tmp_path if mode == "auto" else None, mode=mode, timeout=0.05)
    made = wait(lab.run(AskingTogether(), TASK))
    assert (made.usage.errors, len(end.requests), end._under_way[0]) == (COUNT, 1, 0)


def test_equal_samples_of_two_runs_are_requested_once_and_stay_if_the_first_is_cancelled(tmp_path):
    end = scripted(samples=True, seconds=0.2)
    lab = lab_of(end, tmp_path)

    async def go():
        first = asyncio.ensure_future(lab.run(AskingTogether(), TASK))
        second = asyncio.ensure_future(lab.run(AskingTogether(first=3), TASK))
        while sum(map(len, end.requests)) < 8:
            await asyncio.sleep(0.001)
        first.cancel()
        await asyncio.wait([first])
        return await second

    made = wait(go())
    assert sorted(chain(*indices_of(end))) == [*range(8)]
    assert made.answer == said(3, 4, 5, 6, 7)
    assert made.usage.paid == made.usage.cost == 5.0  # nobody else is left to pay for 3 and 4


def test_of_two_runs_the_first_pays_for_the_samples_of_both(tmp_path):
    end = scripted(samples=True, seconds=0.05)
    lab = lab_of(end, tmp_path)

    async def go():
        return await asyncio.gather(*(lab.run(AskingTogether(first=first), TASK) for first in (0, 3)))

    first, second = wait(go())
    assert (first.usage.paid, second.usage.paid, second.usage.cost) == (5.0, 3.0, 5.0)
    joined = [line for line in second.lines if isinstance(line.e, Note) and line.e.name == "call.joined"]
    assert len(joined) == 2


@both_modes
def test_an_error_is_the_reply_to_each_and_a_halt_ends_the_run(mode, tmp_path):
    def fail(call):
        raise errors[0]

    end, errors = scripted(fail, samples=True), [ZeroDivisionError("oh")]
    made = wait(lab_of(end, tmp_path, mode).run(AskingTogether(), TASK))
    replies = [line.e.error for line in made.lines if isinstance(line.e, Reply)]
    assert replies == ["ZeroDivisionError: oh"] * COUNT
    errors[0] = Halt("no further")
    with pytest.raises(Halt, match="no further"):
        wait(lab_of(end, tmp_path, mode).run(AskingTogether(), TASK))


def test_an_error_of_one_request_is_not_that_of_the_next_equal_one(tmp_path):
    failing = [True]
    end = scripted(lambda call: 1 / 0 if failing[0] else answer_to(call), samples=True)
    lab = lab_of(end, tmp_path)
    assert wait(lab.run(AskingTogether(), TASK)).usage.errors == COUNT
    failing[0] = False
    assert wait(lab.run(AskingTogether(), TASK)).answer == said(*range(COUNT))


@both_modes
def test_samples_for_which_there_is_no_money_yet_are_requested_later(mode, tmp_path):
    end = scripted(samples=True)
    cache = tmp_path if mode == "auto" else None
    lab = tl.Lab(end, runs=None, cache=cache, mode=mode, spend=3.5)
    made = wait(lab.run(AskingTogether(), TASK))
    assert indices_of(end) == [[0, 1, 2]]
    assert (lab.spent, made.stop_reason, made.answer) == (3.0, "budget:spend", said(0, 1, 2, None, None))


@both_modes
def test_a_finished_run_leaves_nothing_to_the_cyclic_collector(mode, tmp_path):
    end = scripted(samples=True)
    lab = lab_of(end, tmp_path, mode)
    wait(lab.run(AskingTogether(), TASK))
    gc.collect()
    gc.disable()
    gc.freeze()  # what other tests have left is not looked at
    try:
        wait(lab.run(AskingTogether(first=10, count=40), TASK))
        left = [one for one in gc.get_objects() if isinstance(one, Branch | Flight | PendingCall)]
        assert left == []
    finally:
        gc.enable()
