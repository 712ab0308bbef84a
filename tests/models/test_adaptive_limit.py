"""Adaptive concurrency: the limit of an endpoint that has no setting for it.

The servers are simulated in virtual time, so no result depends on the machine. They behave like real ones:
a queue before a number of slots, requests of a batch that slow each other down, refusals above a number.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from pydantic import PrivateAttr
from support import TASK, mostly_nightly, wait
from support.endpoint import CallObserver, scripted
from support.providers import Fault, Providers
from support.virtual_time import run_virtually

import tot_lab as tl
from tot_lab.core.calls import Call, Message, Need, Reply
from tot_lab.core.records import Note
from tot_lab.models.limits import Limited, Measured, divide_limits, limiter_of, limits_of
from tot_lab.models.retries import Retried
from tot_lab.models.stack import Endpoint, Failure
from tot_lab.views.figures.timeline import plot_timeline, timeline_info


class Server(Endpoint):
    """A model server: `slots` requests run at the same time, the others wait or are refused."""

    slots: int = 16
    refuses: bool = False
    seconds: float = 1.0
    spread: float = 0.0  # of the lengths of replies: 0 all equal, 1 exponential
    slowed: float = 0.0  # by each request that runs beside it, as a share of `seconds`
    fails: float = 0.0  # share of broken connections, or of this status
    status: int | None = None
    _state: dict[str, Any] = PrivateAttr(default_factory=lambda: {"running": 0, "under_way": 0})
    _random: random.Random = PrivateAttr(default_factory=lambda: random.Random(3))
    _counts: dict[str, int] = PrivateAttr(default_factory=lambda: {"refused": 0, "requests": 0, "most": 0})
    _queue: deque[asyncio.Future[None]] = PrivateAttr(default_factory=deque)

    @property
    def name(self) -> str:
        return "server"

    def identity(self) -> dict[str, Any]:
        return {"model": "server", "at": id(self._state)}

    def need(self, calls):
        return Need(1, 0.0)

    @property
    def counts(self) -> dict[str, int]:
        return self._counts

    def become(self, **settings: Any) -> None:
        self.__dict__.update(settings)

    async def answer(self, calls, observer):
        state, counts = self._state, self._counts
        counts["requests"] += 1
        if self.refuses and state["under_way"] >= self.slots:
            counts["refused"] += 1
            raise Failure("too many requests", status=429, retry=True)
        if self._random.random() < self.fails:
            if self.status is not None:
                await asyncio.sleep(self.seconds * self._random.random())
                raise Failure("unavailable", status=self.status, retry=True)
            raise Failure("connection reset", retry=True, connection_failed=True)
        state["under_way"] += 1
        counts["most"] = max(counts["most"], state["under_way"])
        try:
            if state["running"] < self.slots and not self._queue:
                state["running"] += 1
            else:
                turn = asyncio.get_running_loop().create_future()
                self._queue.append(turn)
                try:
                    await turn
                except asyncio.CancelledError:
                    if not turn.cancelled():
                        state["running"] -= 1
                        self._start_next()
                    raise
            tokens = 100.0
            if self.spread:
                tokens *= 1 - self.spread + self.spread * self._random.expovariate(1.0)
            try:
                await asyncio.sleep(self.seconds * tokens / 100 * (1 + self.slowed * state["running"]))
            finally:
                state["running"] -= 1
                self._start_next()
            return [Reply("yes", output_tokens=round(tokens) + 1) for _ in calls]
        finally:
            state["under_way"] -= 1

    def _start_next(self) -> None:
        while self._queue and self._state["running"] < self.slots:
            turn = self._queue.popleft()
            if not turn.cancelled():
                self._state["running"] += 1
                turn.set_result(None)


def stack(server: Server) -> Limited:
    """The layers of a lab that matter here."""
    end = server if server.concurrency is not None else Measured(server, server)
    return Limited(Retried(end, server), server)


@pytest.fixture
def server():
    with Providers() as here:
        yield here


class Made:
    """What a load found: the limit over time, and replies per second in its last half."""

    def __init__(self) -> None:
        self.changes: list[dict[str, Any]] = []
        self.ends: list[float] = []
        self.errors = 0
        self.limit = 0

    @property
    def per_second(self) -> float:
        half = self.ends[len(self.ends) // 2 : len(self.ends) * 9 // 10]  # without the end, when few are left
        return (len(half) - 1) / (half[-1] - half[0])


async def load(
    server: Server, calls: int, clients: int, halfway: Callable[[], object] = lambda: None
) -> Made:
    made, layers = Made(), stack(server)
    numbers = iter(range(calls))

    async def client() -> None:
        for number in numbers:
            if number == calls // 2:
                halfway()
            observer = CallObserver()
            (reply,) = await layers.answer([Call("0", "ask", (Message("user", "?"),), number)], observer)
            made.ends.append(asyncio.get_running_loop().time())
            made.errors += reply.error is not None
            made.changes += [data for name, data in observer.notes if name == "call.limit"]

    await asyncio.gather(*(client() for _ in range(clients)))
    made.limit = limiter_of(server).concurrency
    return made


def loaded(
    calls: int = 6000, clients: int = 700, halfway: Callable[[], object] = lambda: None, **settings: Any
) -> tuple[Made, Server]:
    server = Server(**settings)
    return run_virtually(load(server, calls, clients, halfway))[0], server


def best_fixed(calls: int = 3000, **settings: Any) -> float:
    """Replies per second with the best of several fixed limits."""
    slots = settings["slots"]
    return max(loaded(calls, concurrency=at, **settings)[0].per_second for at in (slots, 2 * slots, 512))


@pytest.mark.nightly
@pytest.mark.parametrize("spread", [0.0, 1.0], ids=["equal", "exponential"])
@pytest.mark.parametrize("slots", mostly_nightly([2, 16, 128], [16]))
def test_the_slots_of_a_server_are_found(slots, spread):
    settings = {"slots": slots, "spread": spread}
    made, _ = loaded(**settings)
    assert slots / 2 <= made.limit <= 2 * slots
    assert made.per_second >= 0.8 * best_fixed(**settings)
    assert made.errors == 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:server refuses requests")
@pytest.mark.parametrize("slots", [3, 20, 100])
def test_a_server_that_refuses_gets_as_much_as_it_takes(slots):
    made, server = loaded(slots=slots, refuses=True)
    assert made.errors == 0
    assert slots * 0.75 <= made.limit <= slots * 1.25
    assert made.per_second >= 0.8 * slots
    assert server.counts["refused"] <= 0.02 * 6000
    assert {change["reason"] for change in made.changes} >= {"429", "probe"}


@pytest.mark.slow
def test_a_limit_that_refusals_keep_low_is_a_warning():
    with pytest.warns(
        RuntimeWarning, match=r"^server refuses requests \(429\)\. For 10 s, at most [1-7] could"
    ):
        loaded(calls=400, clients=50, slots=3, refuses=True)
    loaded(calls=400, clients=50, slots=3)  # which is slow, and refuses nothing
    loaded(calls=30, clients=1, slots=1, refuses=True)  # nothing waits


@pytest.mark.slow
def test_a_batch_that_slows_down_is_not_filled_without_gain():
    made, _ = loaded(slots=10_000, slowed=0.02)  # 256 at once give 84 % of what an endless batch gives
    assert 64 <= made.limit <= 512
    assert made.per_second >= 0.75 / 0.02


@pytest.mark.nightly
def test_a_server_that_shrinks_and_one_that_grows_are_followed():
    for before, after in ((128, 8), (8, 128)):
        server = Server(slots=before)
        change = partial(server.become, slots=after)
        made, _ = run_virtually(load(server, 14_000, 700, change))
        assert after / 2 <= made.limit <= 2 * after


@pytest.mark.nightly
def test_single_broken_connections_do_not_reduce_the_limit_and_many_do():
    made, _ = loaded(slots=128, fails=0.02, spread=0.5)
    assert 64 <= made.limit <= 256
    server = Server(slots=128, retries=50)
    run_virtually(load(server, 4000, 700, lambda: server.become(fails=1.0) or later(server)))
    assert server.counts["requests"] < 4000 * 1.5


def later(server: Server) -> None:
    """The connection is back after 60 seconds."""
    asyncio.get_running_loop().call_later(60, lambda: server.become(fails=0.0))


@pytest.mark.slow
@pytest.mark.parametrize("status", mostly_nightly([503, 429], [503]))
@pytest.mark.parametrize("fails", mostly_nightly([0.01, 0.05, 0.2], [0.05]))
def test_failures_that_do_not_depend_on_the_limit_do_not_keep_it_low(status, fails):
    for seed in range(3):
        server = Server(slots=64, fails=fails, status=status, retries=20)
        server._random.seed(seed)
        random.seed(seed)  # of the waits before retries
        made, _ = run_virtually(load(server, 6000, 700))
        assert made.errors == 0
        assert made.limit >= 32
        assert made.per_second >= 0.8 * 64


@pytest.mark.slow
def test_a_server_that_fails_now_and_then_and_refuses_gets_as_much_as_it_takes():
    for seed in range(3):
        server = Server(slots=20, refuses=True, fails=0.05, status=503, retries=20)
        server._random.seed(seed)
        random.seed(seed)  # of the waits before retries
        made, _ = run_virtually(load(server, 6000, 700))
        assert made.errors == 0
        assert 10 <= made.limit <= 40
        assert made.per_second >= 0.75 * 20


@pytest.mark.slow
def test_few_calls_do_not_raise_the_limit():
    made, server = loaded(calls=3000, clients=5, slots=128)
    assert made.changes == []
    assert server.counts["most"] == 5


@pytest.mark.slow
def test_a_limit_of_the_user_is_never_changed():
    for slots, refuses in ((128, False), (4, True)):
        made, server = loaded(calls=600, clients=50, slots=slots, refuses=refuses, concurrency=8, retries=50)
        assert made.changes == []
        assert made.limit == 8
        assert server.counts["most"] == min(slots, 8)


@pytest.mark.parametrize(("limit", "of"), [(5, 2), (12, 5), (3, 3), (64, 1)])
def test_the_parts_of_a_divided_limit_add_up(limit, of):
    async def part(place: int) -> list[int | None]:
        divide_limits(place, of)
        server = Server(concurrency=limit, requests_per_minute=10 * limit)
        assert limiter_of(server).concurrency == limits_of(server).concurrency
        return list(limits_of(server)[1:])

    parts = [run_virtually(part(place))[0] for place in range(of)]
    assert [sum(each) for each in list(zip(*parts, strict=True))[:2]] == [limit, 10 * limit]
    assert all(max(each) - min(each) <= 1 for each in list(zip(*parts, strict=True))[:2])
    assert {each[2] for each in parts} == {None}


@pytest.mark.slow
def test_two_labs_share_the_limit():
    server = Server(slots=16)

    async def both() -> int:
        await asyncio.gather(load(server, 3000, 200), load(server, 3000, 200))
        assert limiter_of(server).under_way == 0
        return limiter_of(server).concurrency

    limit, seconds = run_virtually(both())
    assert 8 <= limit <= 32
    assert server.counts["most"] <= 64  # one limiter never lets more in than it tries
    assert seconds <= 6000 / 16 / 0.8


@pytest.mark.slow
def test_cancelled_and_failed_calls_give_their_places_back():
    server = Server(slots=4, fails=0.3, retries=0)

    async def go() -> None:
        layers, limiter = stack(server), limiter_of(server)
        rolls = random.Random(1)

        async def one(number: int) -> None:
            call = Call("0", "ask", (Message("user", "?"),), number)
            asking = asyncio.ensure_future(layers.answer([call], CallObserver()))
            if rolls.random() < 0.4:
                asyncio.get_running_loop().call_later(rolls.random() * 8, asking.cancel)
            await asyncio.wait([asking])

        await asyncio.gather(*(one(number) for number in range(500)))
        assert (limiter.under_way, len(limiter.waiting)) == (0, 0)
        assert limiter.concurrency >= 1
        server.become(fails=0.0)
        (reply,) = await layers.answer([Call("0", "ask", ())], CallObserver())
        assert reply.text == "yes"

    run_virtually(go())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:server refuses requests")
@pytest.mark.parametrize(
    ("reply", "reasons"),
    [
        (Failure("slow down", status=429, retry=True), {"429"}),
        (Failure("overloaded", status=503, retry=True), {"503"}),
        (Failure("bad gateway", status=502, retry=True), set()),
        (Failure("no such model", status=404), set()),
    ],
    ids=["429", "503", "502", "404"],
)
def test_only_signs_of_overload_reduce_the_limit_also_without_retries(reply, reasons):
    class Refusing(Server):
        async def answer(self, calls, observer):
            await asyncio.sleep(1)
            raise reply

    for retries in (0, 1):
        server = Refusing(retries=retries)
        made, _ = run_virtually(load(server, 64, 8))
        assert {change["reason"] for change in made.changes} == reasons
        assert made.errors == 64
        assert made.limit < 8 if reasons else made.limit == 16


def test_refusals_of_one_round_trip_halve_the_limit_once():
    class Refusing(Server):
        async def answer(self, calls, observer):
            await asyncio.sleep(1)
            if asyncio.get_running_loop().time() < 1.5:
                raise Failure("slow down", status=429)
            return [Reply("yes") for _ in calls]

    made, _ = run_virtually(load(Refusing(), 32, 16))
    assert [(change["before"], change["limit"]) for change in made.changes][:1] == [(16, 8)]
    assert made.errors == 16


@pytest.mark.slow
@pytest.mark.parametrize("stops", [False, True], ids=["time-out", "user"])
def test_time_outs_reduce_the_limit_and_a_user_who_stops_does_not(stops):
    model = Server(slots=4, spread=0.3)  # the last of 16 requests takes about 4 seconds

    async def go() -> tuple[list[tl.Run], int]:
        lab = tl.Lab(model, runs=None, mode="off", timeout=3.7)
        runs = [asyncio.ensure_future(lab.run(tl.OneAnswer(), tl.general(str(k)))) for k in range(200)]
        if stops:
            await asyncio.sleep(2.5)
            for run in runs:
                run.cancel()
        await asyncio.wait(runs)
        return [run.result() for run in runs if not run.cancelled()], limiter_of(model).concurrency

    (runs, limit), _ = run_virtually(go())
    notes = [note for run in runs for note in limit_notes(run)]
    if stops:
        assert (limit, notes) == (16, [])
    else:
        assert limit <= 8
        assert (16, 8, "timeout") in [(note["before"], note["limit"], note["reason"]) for note in notes]
        assert sum(run.usage.errors for run in runs) <= 16


def limit_notes(run: tl.Run) -> list[dict[str, Any]]:
    """What a record holds about the limit."""
    return [line.e.data for line in run.lines if isinstance(line.e, Note) and line.e.name == "call.limit"]


@pytest.mark.nightly
def test_the_record_is_the_same_under_every_limit():
    def recorded(**settings: Any) -> tl.Run:
        model = scripted(seconds=0.01, **settings)
        strategy = tl.TreeOfThoughts(
            propose=tl.Sample(count=20), evaluate=tl.Value(samples=3), search=tl.BeamSearch(width=20)
        )
        return run_virtually(tl.Lab(model, runs=None, mode="off").run(strategy, TASK))[0]

    adaptive = recorded()
    assert limit_notes(adaptive)
    assert not any(isinstance(event, Note) and event.name == "call.limit" for event in adaptive.events)
    for concurrency in (1, 7, 64):
        fixed = recorded(concurrency=concurrency)
        assert fixed.events == adaptive.events
        assert limit_notes(fixed) == []


@pytest.mark.nightly
def test_the_timeline_shows_the_limit():
    strategy = tl.TreeOfThoughts(propose=tl.Sample(count=20), search=tl.BeamSearch(width=20))
    lab = tl.Lab(scripted(seconds=0.02), runs=None, mode="off")
    run = wait(lab.run(strategy, TASK))
    found = [note["limit"] for note in limit_notes(run)]
    assert found
    info = timeline_info(run)
    assert list(info.limits) == ["scripted"]
    assert [limit for _, limit in info.limits["scripted"]] == [16, *found]
    times = [time for time, _ in info.limits["scripted"]]
    assert times == sorted(times)
    assert (times[0], times[-1] <= info.end.max()) == (info.start[0], True)
    (line,) = [trace for trace in plot_timeline(run).data if trace.name == "limit of scripted"]
    assert list(line.y) == [16, *found, found[-1]]
    fixed = wait(tl.Lab(scripted(concurrency=9), runs=None, mode="off").run(strategy, TASK))
    assert timeline_info(fixed).limits == {}


@pytest.mark.slow
def test_it_obeys_a_real_server_that_refuses(server):
    """The loopback server refuses the first three requests with status 429."""

    async def go() -> tuple[list[tl.Run], int]:
        model = tl.OpenAICompatible(model="m", base_url=server.base("openai"), api_key="k")
        lab = tl.Lab(model, runs=None, mode="off")
        runs = await asyncio.gather(*(lab.run(tl.OneAnswer(), tl.general(str(k))) for k in range(60)))
        return runs, limiter_of(model).concurrency

    server.will(*[Fault(429, retry_after=0.05)] * 3)
    runs, limit = wait(go())
    assert not any(run.usage.errors for run in runs)
    (first, *_) = [note for run in runs for note in limit_notes(run) if note["reason"] == "429"]
    assert first["before"] == 16
    assert 1 <= first["limit"] <= 8  # half of what was under way
    assert len(server.calls) == 63
    assert limit >= 1
