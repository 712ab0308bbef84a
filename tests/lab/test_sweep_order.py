"""A sweep finishes its first runs early: requests wait in the order in which their runs began."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import ClassVar

import pytest
from support import wait
from support.endpoint import scripted
from support.sweeping import OverHttp, Server
from support.virtual_time import run_virtually

import tot_lab as tl
from tot_lab.core.protocol import Effect, carry_out, gather
from tot_lab.core.tools import function_call

SEARCH = tl.TreeOfThoughts(propose=tl.Sample(count=2), search=tl.BeamSearch(width=2), stop=tl.Stop(depth=3))
METHODS = {
    "samples": tl.SelfConsistency(attempts=20),
    "beam": SEARCH,
    "mcts": tl.TreeOfThoughts(search="mcts", stop=tl.Stop(nodes=10)),
    "best of": tl.BestOf(strategy=tl.ChainOfThought(), attempts=5),
    "one": tl.OneAnswer(),
}


def tasks(count):
    return [
        tl.general(f"How many legs have {k} spiders?", answer=8 * k, grade="number") for k in range(count)
    ]


async def watched(lab, *arguments, requests, every=0.002):
    """The sweep, whose runs all begin at once, and by run the requests that had come when it was finished, in
    the order of the ends.
    """
    sweeping = asyncio.ensure_future(lab.sweep(*arguments, at_once=60))
    ends = {}
    while not sweeping.done():
        await asyncio.wait([sweeping], timeout=every)
        if lab.last_sweep is not None:
            for run_id in lab.last_sweep.rows:
                ends.setdefault(run_id, requests())
    return await sweeping, ends


def events_of(sweep):
    return [run.events for run in sweep.runs()]


def virtual_lab(**settings):
    model = scripted(seconds=1.0, **settings)
    return tl.Lab(model, runs=None, mode="off"), model


@pytest.fixture
def server():
    server = Server()
    server.seconds = 0.02
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def over_http(server, folder=None, most=None, **options):
    model = OverHttp(url=str(server.server_address[1]), concurrency=8, most=most)
    return tl.Lab(model, runs=folder, mode="off", **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    "strategies",
    [
        pytest.param(METHODS["samples"], marks=pytest.mark.nightly),
        SEARCH,
        pytest.param(METHODS, marks=pytest.mark.nightly),
    ],
    ids=["samples", "beam", "all"],
)
def test_after_a_quarter_of_the_calls_a_fifth_of_the_runs_is_finished(strategies):
    asked = tasks(12 if strategies is METHODS else 60)
    lab, model = virtual_lab(concurrency=8, spread=1.0)
    (sweep, ends), _ = run_virtually(
        watched(lab, strategies, asked, requests=lambda: len(model.requests), every=0.05)
    )
    early = [run_id for run_id, requests in ends.items() if requests <= len(model.requests) / 4]
    assert len(early) >= len(sweep.rows) / 5


@pytest.mark.slow
@pytest.mark.parametrize(
    "strategies", [SEARCH, pytest.param(METHODS, marks=pytest.mark.nightly)], ids=["beam", "all"]
)
def test_the_order_changes_no_record(server, strategies):
    asked = tasks(12 if strategies is METHODS else 40)
    sweep = wait(over_http(server).sweep(strategies, asked, at_once=60))
    server.seconds = 0.0
    alone = wait(over_http(server).sweep(strategies, asked, at_once=1))
    assert events_of(sweep) == events_of(alone)


class Costly(OverHttp):
    """Each request takes this process 2 ms of work, and the endpoint has room for all of them."""

    kind = "tests/costly"

    async def answer(self, calls, observer):
        until = time.perf_counter() + 0.002
        while time.perf_counter() < until:
            pass
        return await super().answer(calls, observer)


@pytest.mark.nightly
@pytest.mark.parametrize("strategy", [METHODS["samples"], SEARCH], ids=["samples", "beam"])
def test_the_first_runs_are_finished_early_where_this_process_is_the_bottleneck(server, strategy):
    model = Costly(url=str(server.server_address[1]), concurrency=512)
    lab = tl.Lab(model, runs=None, mode="off")
    sweep, ends = wait(watched(lab, strategy, tasks(100), requests=lambda: len(server.asked)))
    early = [run_id for run_id, requests in ends.items() if requests <= len(server.asked) / 4]
    assert len(early) >= len(sweep.rows) / 8  # about a fifth; none if all runs begin at once
    order = [sweep.by_id[run_id].task for run_id in ends]
    assert max(order[:20]) < 50


def test_runs_that_wait_for_replies_do_not_hold_others_back():
    lab, model = virtual_lab(concurrency=50)
    _, seconds = run_virtually(lab.sweep(METHODS["one"], tasks(100), at_once=100))
    assert (seconds, model.max_at_once) == (pytest.approx(2, abs=0.1), 50)


@pytest.mark.parametrize("ends", ["budget", "error"])
def test_runs_that_end_before_their_calls_do_not_hold_others_back(ends):
    """Of one group of calls some are refused by the budget, or fail."""
    lab, _ = virtual_lab(concurrency=50)
    limit = {"budget": tl.Budget(calls=3)} if ends == "budget" else {}
    strategies = {"bad": Broken(), "good": METHODS["one"]} if ends == "error" else METHODS["samples"]
    sweep, seconds = run_virtually(lab.sweep(strategies, tasks(20), **limit))
    assert seconds <= 3
    assert len(sweep.rows) == len(sweep.cells)


@pytest.mark.slow
def test_no_slot_is_idle_while_requests_wait():
    """30 runs of 20 samples, and 8 slots of a second: 75 seconds, whoever goes first."""
    lab, model = virtual_lab(concurrency=8)
    (sweep, ends), seconds = run_virtually(
        watched(lab, METHODS["samples"], tasks(30), requests=lambda: len(model.requests), every=0.1)
    )
    assert (seconds, model.max_at_once) == (pytest.approx(75, abs=0.1), 8)
    order = [sweep.by_id[run_id].task for run_id in ends]
    assert order == sorted(order)
    for number, requests in enumerate(ends.values(), 1):
        assert requests <= 20 * number + 60, "one call of each run may go before the queue forms"


@pytest.mark.slow
def test_runs_with_other_models_do_not_wait():
    busy, _ = virtual_lab(concurrency=2, url="http://busy")
    free, _ = virtual_lab(concurrency=2, url="http://free")

    async def both():
        sweeping = asyncio.ensure_future(busy.sweep(METHODS["samples"], tasks(10)))
        await asyncio.sleep(0.5)
        began = asyncio.get_running_loop().time()
        await free.run(tl.SelfConsistency(attempts=4), tasks(1)[0])
        seconds = asyncio.get_running_loop().time() - began
        assert not sweeping.done()
        await sweeping
        return seconds

    assert run_virtually(both())[0] == pytest.approx(2, abs=0.1)


@pytest.mark.slow
def test_a_role_with_a_server_of_its_own_keeps_it_busy():
    """The judge's 40 calls follow the 40 samples of each run while the next runs are sampled."""
    judge = scripted(seconds=1.0, concurrency=4, url="http://judge")
    model = scripted(seconds=1.0, concurrency=4)
    lab = tl.Lab(model, runs=None, mode="off", roles={"judge": judge})
    best = tl.BestOf(strategy=tl.ChainOfThought(), attempts=8, evaluate="value")
    sweep, seconds = run_virtually(lab.sweep(best, tasks(20)))
    judged = len(judge.requests)
    assert judged >= 20
    assert seconds <= max(len(model.requests), judged) / 4 + 8
    assert not sweep.df().error.notna().any()


class Broken(tl.OneAnswer):
    """Raises an error beside calls under way."""

    kind = "tests/broken_beside_calls"

    def think(self, task, at="0"):
        def fails():
            yield from ()
            raise ValueError("broken")

        yield from gather([super().think(task, at), fails()])


class Nesting(tl.OneAnswer):
    """Waits for another run that it starts, as a tool does that thinks."""

    kind = "tests/nesting"
    start: ClassVar[Callable[[], Awaitable[str]]]

    def think(self, task, at="0"):
        answer = yield from super().think(task, at)
        yield from carry_out(Effect(function_call(at, "tests", "nested", "", 0), type(self).start))
        return answer


@pytest.mark.parametrize("inside", [False, True], ids=["beside", "inside"])
def test_a_run_that_begins_later_goes_later_unless_an_earlier_one_waits_for_it(inside):
    lab, _ = virtual_lab(concurrency=2)
    ends = {}

    async def go():
        async def second(after=0.0):
            await asyncio.sleep(after)
            await lab.run(tl.SelfConsistency(attempts=4), tasks(2)[1])
            ends["second"] = asyncio.get_running_loop().time()
            return ""

        async def others():
            await asyncio.sleep(0.1)
            await asyncio.gather(*(lab.run(METHODS["samples"], task) for task in tasks(5)))

        Nesting.start = second
        first = lab.run(Nesting() if inside else tl.OneAnswer(), tasks(1)[0])
        await asyncio.gather(first, others(), *([] if inside else [second(1.5)]))

    _, seconds = run_virtually(go())
    assert seconds == pytest.approx(52.5, abs=1.1)  # 105 calls
    assert ends["second"] <= 6 if inside else ends["second"] >= 50


@pytest.mark.slow
def test_a_cancelled_sweep_keeps_its_first_runs_and_goes_on(server, tmp_path):
    asked = tasks(30)
    lab = over_http(server, tmp_path)

    async def cut_off():
        sweeping = asyncio.ensure_future(lab.sweep(METHODS["samples"], asked, at_once=60))
        while lab.last_sweep is None or len(lab.last_sweep.rows) < 8:
            await asyncio.sleep(0.002)
        sweeping.cancel()
        await asyncio.wait([sweeping])

    wait(cut_off())
    done = sorted(lab.last_sweep.by_id[run_id].task for run_id in lab.last_sweep.rows)
    assert set(done) >= set(range(6))
    before = len(server.asked)
    assert before <= 20 * len(done) + 3 * 20
    sweep, ends = wait(
        watched(over_http(server, tmp_path), METHODS["samples"], asked, requests=lambda: len(server.asked))
    )
    assert sweep.found == len(done)
    half = (len(server.asked) - before) / 2
    assert sum(requests - before <= half for requests in ends.values()) >= len(done) + 0.4 * (30 - len(done))
    assert events_of(sweep) == events_of(wait(over_http(server).sweep(METHODS["samples"], asked)))


@pytest.mark.slow
def test_what_a_sweep_may_spend_goes_to_its_first_runs(server, tmp_path):
    """A call costs a dollar and could cost ten, so that ten of the 200 wait for an answer at a time."""
    asked = tasks(10)
    lab = over_http(server, tmp_path, most=10.0, spend=100.0)
    poor = wait(lab.sweep(METHODS["samples"], asked))
    assert 90 < lab.spent <= 100
    assert list(poor.df().calls[:3]) == [20] * 3
    assert list(poor.df().stop_reason[6:]) == ["budget:spend"] * 4
    server.seconds = 0.0
    rich = wait(over_http(server, tmp_path).sweep(METHODS["samples"], asked))
    assert events_of(rich) == events_of(wait(over_http(server).sweep(METHODS["samples"], asked)))
