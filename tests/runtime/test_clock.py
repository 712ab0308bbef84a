"""The clock of a run: deadlines in virtual time, so that no result depends on the machine."""

import asyncio
import random

import pytest
from support.virtual_time import run_virtually

from tot_lab.core.calls import Call
from tot_lab.runtime.budget import Group, Scope
from tot_lab.runtime.clock import PULSE, Clock
from tot_lab.runtime.pending import PendingCall
from tot_lab.runtime.stepper import Branch


class Deadline:
    """Something with a deadline."""

    def __init__(self, name=""):
        self.name = name
        self.ends = None


class Run:
    """A clock, what has expired on it and when, and its ticks."""

    def __init__(self, timeout=None):
        self.expired, self.ticks = [], []
        self.clock = Clock(timeout, self._expire, lambda: self.ticks.append(self.clock.now()))
        self.clock.run()

    def _expire(self, one):
        self.expired.append((one.name, pytest.approx(self.clock.now())))


def call(group=None, seconds=None, purpose="answer", name=""):
    """A pending call in a branch of its own."""
    scope = Scope(None, None, 0.0, call_seconds=seconds, group=group)
    pending = Named(None, Branch(None, (), scope, None, 0), (), Call("0", purpose, ()), None)
    pending.name = name
    return pending


class Named(PendingCall):
    __slots__ = ("name",)


def virtually(go):
    """Run `go` in virtual time."""
    return run_virtually(go())[0]


def test_each_deadline_expires_once_and_in_time():
    async def go():
        run, dice = Run(), random.Random(1)
        times = [dice.random() * 5 for _ in range(300)]
        for time in times:
            run.clock.set(Deadline(time), time)
        await asyncio.sleep(6)
        return times, run

    times, run = virtually(go)
    assert run.expired == [(time, pytest.approx(time)) for time in sorted(times)]


def test_a_deadline_that_was_replaced_or_removed_does_not_expire():
    async def go():
        run = Run()
        later, sooner, none = map(Deadline, ("later", "sooner", "none"))
        for one in (later, sooner, none):
            run.clock.set(one, 2.0)
        run.clock.set(later, 3.0)
        run.clock.set(sooner, 0.05)
        run.clock.set(none, None)
        await asyncio.sleep(5)
        return run.expired

    assert virtually(go) == [("sooner", 0.05), ("later", 3.0)]


def test_it_ticks_while_nothing_else_happens_and_not_after_it_was_closed():
    async def go():
        run = Run()
        run.clock.set(Deadline("never"), 100.0)
        await asyncio.sleep(1.05)
        run.clock.close()
        await asyncio.sleep(200)
        return run

    run = virtually(go)
    assert run.ticks == [pytest.approx(PULSE * k) for k in range(1, 6)]
    assert run.expired == []


def test_it_watches_nothing_before_it_runs_and_forgets_no_deadline():
    async def go():
        loop, expired = asyncio.get_running_loop(), []
        clock = Clock(None, lambda one: expired.append((one.name, loop.time())), lambda: None)
        for name, time in (("passed", 1.0), ("soon", 2.1), ("later", 3.0)):
            clock.set(Deadline(name), time)
        assert not loop._scheduled
        await asyncio.sleep(2)
        assert expired == []
        clock.run()
        await asyncio.sleep(2)
        return expired

    assert virtually(go) == [("passed", 2.0), ("soon", pytest.approx(2.1)), ("later", pytest.approx(3.0))]


def test_a_timer_that_is_early_by_the_resolution_of_the_loop_counts_as_in_time():
    """The event loop runs timers early, and the clock of Windows has a resolution of 15 ms."""

    async def go():
        loop = asyncio.get_running_loop()
        loop._clock_resolution = 0.015
        expired, ticks = [], []

        def tick():
            ticks.append(loop.time())
            if len(ticks) < 100:
                loop.call_soon(lambda: None)  # as a driver schedules a turn

        clock = Clock(None, lambda one: expired.append(loop.time()), tick)
        clock.set(Deadline(), 0.1)
        clock.run()
        await asyncio.sleep(0.09)
        await asyncio.sleep(0.05)
        return expired, ticks

    assert virtually(go) == ([pytest.approx(0.09)], [pytest.approx(0.09)])


def test_one_timer_serves_all_deadlines():
    async def go():
        run, loop = Run(timeout=60), asyncio.get_running_loop()
        for number in range(1000):
            run.clock.set(Deadline(), 1 + number / 1000)
            run.clock.start(call())
        return len([timer for timer in loop._scheduled if not timer.cancelled()])

    assert virtually(go) == 1


@pytest.mark.parametrize(
    ("timeout", "seconds", "purpose", "ends", "owner"),
    [
        (5.0, None, "answer", 5.0, "lab"),
        (5.0, 2.0, "answer", 2.0, "call"),
        (5.0, 9.0, "answer", 9.0, "call"),  # it takes the place of the lab's
        (None, None, "answer", None, ""),
        (5.0, None, "tool", None, ""),  # a tool has its own limit
        (5.0, 2.0, "tool", 2.0, "call"),
    ],
)
def test_a_call_has_the_limit_of_its_strategy_or_that_of_the_lab(timeout, seconds, purpose, ends, owner):
    async def go():
        run = Run(timeout)
        one = call(seconds=seconds, purpose=purpose, name="one")
        assert run.clock.start(one)
        assert one.limit[1] == owner
        await asyncio.sleep(20)
        return run.expired

    assert virtually(go) == ([("one", ends)] if ends else [])


def test_waiting_takes_none_of_a_calls_time():
    async def go():
        run = Run(timeout=2.0)
        one = call(name="one")
        run.clock.start(one)
        await asyncio.sleep(1.5)
        run.clock.hold(one)
        await asyncio.sleep(50)
        run.clock.start(one)
        await asyncio.sleep(5)
        return run.expired

    assert virtually(go) == [("one", 53.5)]


def test_waiting_takes_none_of_a_groups_time_for_the_branch_that_waits():
    async def go():
        run, group = Run(timeout=100.0), Group(2.0)
        busy, queued, late = (call(group, name=name) for name in ("busy", "queued", "late"))
        run.clock.start(busy)
        run.clock.start(queued)
        run.clock.hold(queued)
        await asyncio.sleep(1)
        run.clock.start(queued)  # it has waited for one second
        await asyncio.sleep(1.5)
        assert not run.clock.start(late)  # the time of its group is up
        await asyncio.sleep(5)
        return run.expired

    assert virtually(go) == [("busy", 2.0), ("late", 2.5), ("queued", 3.0)]


def test_the_time_of_a_group_begins_with_its_first_call_whatever_that_waits_for():
    async def go():
        run, group = Run(), Group(2.0)
        one, other = call(group, name="one"), call(group, name="other")
        for pending in (one, other):
            run.clock.start(pending)
            run.clock.hold(pending)
        await asyncio.sleep(10)
        run.clock.start(one)
        await asyncio.sleep(1)
        run.clock.start(other)
        await asyncio.sleep(5)
        return run.expired

    assert virtually(go) == [("one", 12.0), ("other", 13.0)]


def test_a_repeated_request_has_its_whole_time_again_and_its_group_has_not():
    async def go():
        run = Run(timeout=3.0)
        alone, grouped = call(name="alone"), call(Group(5.0), name="grouped")
        for _ in range(3):
            for one in (alone, grouped):
                run.clock.start(one)
            await asyncio.sleep(1)
            for one in (alone, grouped):
                run.clock.hold_own(one)
            await asyncio.sleep(0.5)
        run.clock.start(alone)
        await asyncio.sleep(5)
        return run.expired

    assert virtually(go) == [("grouped", 5.0), ("alone", 7.5)]


def test_limits_of_calls_groups_and_budgets_share_one_heap():
    async def go():
        run = Run(timeout=3.0)
        scope = Scope(None, None, 0.0)
        scope.name = "budget"
        run.clock.start(call(name="call"))
        run.clock.start(call(Group(2.0), name="group"))
        run.clock.set(scope, 1.0)
        await asyncio.sleep(5)
        return run.expired

    assert virtually(go) == [("budget", 1.0), ("group", 2.0), ("call", 3.0)]
