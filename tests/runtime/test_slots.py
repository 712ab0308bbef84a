"""Slots that runs of one process share: over threads and event loops, whoever is cancelled on the way."""

import asyncio
import gc
import os
import random
import threading

import pytest
from support import TASK, Scripted, wait

import tot_lab as tl
from tot_lab.core.calls import Call, Message
from tot_lab.core.protocol import Slots, with_timeout
from tot_lab.runtime.slots import SlotPool, pool_of


class Crowd:
    """Counts how many are inside at once, from any thread."""

    def __init__(self):
        self.inside = self.most = self.served = 0
        self.lock = threading.Lock()

    async def enter(self, pool, seconds=0.0):
        await pool.enter(lambda: None)
        try:
            with self.lock:
                self.inside += 1
                self.most = max(self.most, self.inside)
            await asyncio.sleep(seconds)
            with self.lock:
                self.served += 1
        finally:
            with self.lock:
                self.inside -= 1
            pool.leave()


def in_threads(count, work):
    threads = [threading.Thread(target=work, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


def is_whole(pool, number):
    """Whether `number` can be inside at once, and no more."""

    async def go():
        for _ in range(number):
            await asyncio.wait_for(pool.enter(lambda: None), 5)
        waited = []
        more = asyncio.ensure_future(pool.enter(lambda: waited.append(True)))
        await asyncio.sleep(0.01)
        more.cancel()
        await asyncio.wait([more])
        for _ in range(number):
            pool.leave()
        return bool(waited)

    return asyncio.run(go())


@pytest.mark.slow
def test_one_number_holds_over_all_threads_and_event_loops():
    pool, crowd = SlotPool(3), Crowd()

    def work(number):
        async def go():
            await asyncio.gather(*(crowd.enter(pool, 0.001) for _ in range(40)))

        asyncio.run(go())

    in_threads(6, work)
    assert (crowd.most, crowd.served) == (3, 240)
    assert is_whole(pool, 3)


@pytest.mark.slow
def test_no_slot_is_lost_or_doubled_whoever_is_cancelled_and_when():
    pool, crowd = SlotPool(2), Crowd()

    def work(number):
        dice = random.Random(number)

        async def go():
            tasks = [asyncio.ensure_future(crowd.enter(pool, dice.random() * 0.004)) for _ in range(60)]
            for task in dice.sample(tasks, 40):
                await asyncio.sleep(dice.random() * 0.002)
                task.cancel()
            await asyncio.wait(tasks)

        asyncio.run(go())

    in_threads(4, work)
    assert crowd.most == 2
    assert crowd.served >= 4 * 20
    assert is_whole(pool, 2)


@pytest.mark.slow
def test_a_call_whose_event_loop_ends_gives_its_slot_and_its_place_back():
    pool, crowd = SlotPool(1), Crowd()

    def abandon(number):
        loop = asyncio.new_event_loop()
        tasks = [loop.create_task(crowd.enter(pool, 1000)) for _ in range(3)]
        loop.run_until_complete(asyncio.sleep(0.01))
        for task in tasks:  # as a loop that is closed without asyncio.run
            task._log_destroy_pending = False
        del tasks, task
        loop.close()

    in_threads(1, abandon)
    gc.collect()  # the tasks refer to their event loop
    assert is_whole(pool, 1)


def test_calls_are_admitted_in_the_order_in_which_they_came():
    async def go():
        pool, order = SlotPool(1), []

        async def one(number):
            await pool.enter(lambda: None)
            order.append(number)
            await asyncio.sleep(0)
            pool.leave()

        await asyncio.gather(*map(one, range(20)))
        return order

    assert asyncio.run(go()) == [*range(20)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_begins_with_free_slots():
    slots = Slots("tests/fork", 1)
    asyncio.run(pool_of(slots).enter(lambda: None))
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(asyncio.wait_for(pool_of(slots).enter(lambda: None), 5))
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    pool_of(slots).leave()


class Asking(tl.Strategy):
    """Makes 30 calls at once, each within 0.2 s."""

    kind = "test_slots.asking"
    slots: int = 0

    def think(self, task, at="0"):
        yield tl.Thought(at, None, task.question)
        slots = Slots("tests/asking", self.slots) if self.slots else None
        calls = [Call(at, "ask", (Message("user", "p"),), draw) for draw in range(30)]
        replies = yield from tl.gather([with_timeout(0.2, tl.ask(call), slots=slots) for call in calls])
        return tl.Answer(str([reply.error for reply in replies]), "answered")


@pytest.mark.slow
def test_any_strategy_may_share_slots_and_its_record_does_not_change():
    crowd = Crowd()

    async def model(call):
        with crowd.lock:
            crowd.inside += 1
            crowd.most = max(crowd.most, crowd.inside)
        await asyncio.sleep(0.005)
        with crowd.lock:
            crowd.inside -= 1
        return "x"

    async def four():
        lab = tl.Lab(model, runs=None)
        return await asyncio.gather(*(lab.run(Asking(slots=2), TASK) for _ in range(4)))

    made = wait(four())
    assert crowd.most == 2
    # They waited for longer than the limit of a call, which counts from when it is sent.
    assert max(run.seconds for run in made) > 0.2
    assert {run.answer for run in made} == {str([None] * 30)}
    free = wait(tl.Lab(Scripted(lambda call: "x"), runs=None).run(Asking(), TASK))
    assert made[0].events == free.events
    assert wait(made[0].replay()).identical
