"""Budgets: a call is admitted or refused before it is made, the same ones on every rerun."""

import asyncio
import gc

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import TASK, Scripted, answer_to, dice, resealed, run, shuffled, wait
from support.budgets import SMALL
from support.endpoint import ScriptedEndpoint, scripted
from support.virtual_time import run_virtually

import tot_lab as tl
from tot_lab.core.calls import Call, Message, Reply, estimated_tokens
from tot_lab.core.records import Note, Thought


def notes(run, name):
    return [line.e for line in run.lines if isinstance(line.e, Note) and line.e.name == name]


class Asks(tl.Strategy):
    """Asks `count` questions at once, `rounds` times; answers with how many were answered."""

    kind = "test_budget.asks"
    count: int = 10
    rounds: int = 1
    max_tokens: int | None = None
    words: int = 1

    def think(self, task, at="0"):
        yield Thought(at, None, task.question)
        answered = 0
        for turn in range(self.rounds):
            prompts = [f"{turn} {k} " + "word " * (self.words * k) for k in range(self.count)]
            replies = yield from tl.gather(
                [tl.ask(Call(at, "ask", (Message("user", p),), max_tokens=self.max_tokens)) for p in prompts],
                at_most=1,
            )
            answered += sum(reply.error is None for reply in replies)
        return tl.Answer(str(answered), "answered")


def reporting(call):
    """Uses at most what it was given: tokens as estimated, up to `max_tokens`, priced."""
    got = dice(call).randint(1, call.max_tokens or 30)
    sent = estimated_tokens(call.prompt)
    return Reply("x", input_tokens=sent, output_tokens=got, cost=(sent + got) / 1000)


# Calls.


@pytest.mark.slow
@pytest.mark.parametrize("strategy", SMALL, ids=[f"{s.kind}-{k}" for k, s in enumerate(SMALL)])
def test_every_cap_on_calls_is_exact_and_stops_at_the_same_place(strategy):
    free = run(strategy)
    for cap in range(free.usage.calls + 2):
        model = Scripted()
        capped = run(strategy, model=model, budget=tl.Budget(calls=cap))
        assert len(model.calls) == capped.usage.calls == min(cap, free.usage.calls)
        if cap >= free.usage.calls:
            assert capped.stop_reason == free.stop_reason
        elif capped.stop_reason != "solved":
            assert capped.stop_reason == "budget:calls"
        for seed in range(3):
            again = run(strategy, model=Scripted(latency=shuffled(seed, 0.001)), budget=tl.Budget(calls=cap))
            assert again.events == capped.events
        assert wait(capped.replay()).divergence is None


@pytest.mark.slow
def test_a_call_cap_above_the_bound_changes_nothing():
    for strategy in SMALL:
        assert run(strategy, budget=tl.Budget(calls=strategy.max_calls(TASK))).events == run(strategy).events


def test_a_cap_of_nothing_asks_nothing():
    for cap in (
        {"calls": 0},
        {"tokens": 0},
        {"input_tokens": 0},
        {"output_tokens": 0},
        {"usd": 0},
        {"seconds": 0},
    ):
        model = Scripted()
        made = run(SMALL[0], model=model, budget=tl.Budget(**cap))
        assert model.calls == []
        assert made.stop_reason == f"budget:{next(iter(cap))}"
        assert made.usage == (0, 0, 0, 0, 0, 0)


def test_a_branch_that_asks_for_more_than_it_declared_is_refused():
    class Greedy(tl.Strategy):
        kind = "test_budget.greedy"

        def think(self, task, at="0"):
            yield Thought(at, None, task.question)

            def branch(k):
                first = yield from tl.ask(Call(at, "a", (Message("user", "p"),), sample_index=2 * k))
                second = yield from tl.ask(Call(at, "a", (Message("user", "p"),), sample_index=2 * k + 1))
                return [first.error, second.error]

            errors = yield from tl.gather([branch(0), branch(1)], at_most=1)
            return tl.Answer(str(errors), "answered")

    made = run(Greedy(), budget=tl.Budget(calls=3))
    assert made.answer == str([[None, "limit:at_most"]] * 2)
    assert made.stop_reason == "answered"
    assert made.usage.calls == 2
    assert wait(made.replay()).identical


# Tokens and USD.


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tokens", "output_tokens", "input_tokens"])
@pytest.mark.parametrize("cap", [1, 7, 40, 100, 333, 1000])
def test_token_caps_are_never_overshot_when_max_tokens_is_kept(name, cap):
    for seed in range(3):
        model = Scripted(reporting, latency=shuffled(seed))
        made = run(Asks(count=12, rounds=2, max_tokens=20), model=model, budget=tl.Budget(**{name: cap}))
        used = {"input_tokens": made.usage.input_tokens, "output_tokens": made.usage.output_tokens}
        used["tokens"] = sum(used.values())
        assert used[name] <= cap
        if len(model.calls) < 24:
            assert made.stop_reason == f"budget:{name}"
        assert wait(made.replay()).divergence is None


def test_a_call_that_cannot_fit_is_refused_and_a_smaller_one_still_made():
    model = Scripted(reporting)
    made = run(Asks(count=6, words=20, max_tokens=5), model=model, budget=tl.Budget(input_tokens=60))
    assert made.stop_reason == "budget:input_tokens"
    assert 0 < made.usage.input_tokens <= 60


class Accounts:
    """A model that keeps its own accounts. use: what each call uses, in the order of asking. faults: calls
    that break the rule of the ramp."""

    def __init__(self, use, seconds, cap, field="cost", ramp=True):
        self.use, self.seconds, self.cap, self.field, self.ramp = use, seconds, cap, field, ramp
        self.under_way = self.most = self.settled = self.asked = 0
        self.used = self.largest = 0.0
        self.faults = []

    async def __call__(self, call):
        amount = self.use[self.asked % len(self.use)]
        seconds = self.seconds[self.asked % len(self.seconds)]
        self.asked += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        if self.ramp and self.under_way > self.settled + 1:
            self.faults.append(f"{self.under_way} under way after {self.settled}")
        await asyncio.sleep(seconds)
        self.under_way -= 1
        self.settled += 1
        self.used += amount
        self.largest = max(self.largest, amount)
        fields = {"input_tokens": 1, "output_tokens": 1, "cost": 0.0, self.field: amount}
        return Reply("x", **fields)

    @property
    def bound(self):
        """The most that may be used; where all calls use the same, what the first one uses tells all."""
        most = self.most if len(set(self.use)) > 1 else 0
        return max(self.cap + most * self.largest, self.use[0] if self.cap else 0.0)


@pytest.mark.parametrize(
    ("field", "name", "cap", "cheap", "dear"),
    [("cost", "usd", 0.05, 0.0001, 0.01), ("output_tokens", "output_tokens", 500, 1, 1000)],
)
def test_a_cheap_first_call_does_not_let_the_others_through(field, name, cap, cheap, dear):
    model = Accounts([cheap] + 255 * [dear], [0.001], cap, field)
    made = run(Asks(count=256), model=model, budget=tl.Budget(**{name: cap}))
    assert model.faults == []
    assert made.stop_reason == f"budget:{name}"
    assert model.used <= cap + 3 * dear  # $2.56 and 256,001 tokens without the ramp
    assert wait(made.replay()).divergence is None


def test_without_max_tokens_calls_are_admitted_in_a_ramp():
    model = Accounts([10], [0.001], 10_000, "output_tokens")
    made = run(Asks(count=64), model=model, budget=tl.Budget(output_tokens=10_000))
    assert model.faults == []
    assert made.usage.calls == 64
    assert model.most > 16  # it doubles
    for name, cap, calls in (("output_tokens", 55, 5), ("usd", 50.0, 5)):
        model = Accounts([10], [0.001], cap, {"usd": "cost"}.get(name, name))
        made = run(Asks(count=10), model=model, budget=tl.Budget(**{name: cap}))
        assert (made.usage.calls, made.stop_reason, model.faults) == (calls, f"budget:{name}", [])


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    branches=st.integers(1, 256),
    use=st.lists(st.floats(0, 1) | st.sampled_from([0.0001, 0.01, 1.0]), min_size=1, max_size=20),
    seconds=st.lists(st.sampled_from([0.0, 0.0001, 0.001, 0.003]), min_size=1, max_size=7),
    cap=st.floats(0, 20),
)
def test_with_unknown_prices_the_overshoot_is_within_the_stated_bound(branches, use, seconds, cap):
    model = Accounts(use, seconds, cap)
    made = run(Asks(count=branches), model=model, budget=tl.Budget(usd=cap))
    assert model.faults == []
    assert model.used <= model.bound + 1e-9
    assert made.usage.calls == model.asked
    assert wait(made.replay()).divergence is None


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    branches=st.integers(1, 256),
    use=st.lists(st.integers(1, 2000), min_size=1, max_size=20),
    seconds=st.lists(st.sampled_from([0.0, 0.0001, 0.001, 0.003]), min_size=1, max_size=7),
    cap=st.integers(0, 20_000),
    name=st.sampled_from(["input_tokens", "output_tokens"]),
)
def test_with_unknown_tokens_the_overshoot_is_within_the_stated_bound(branches, use, seconds, cap, name):
    model = Accounts(use, seconds, cap, name)
    run(Asks(count=branches), model=model, budget=tl.Budget(**{name: cap}))
    assert model.faults == []
    assert model.used <= model.bound


class Priced(ScriptedEndpoint):
    """An endpoint that knows its price: a call can cost up to `most`, and costs some part of it."""

    parts: tuple[float, ...]
    times: tuple[float, ...]

    async def answer(self, calls, observer):
        number = len(self._requests)
        self.__dict__["usd"] = self.most * self.parts[number % len(self.parts)]
        cost = self.usd
        (reply,) = await super().answer(calls, observer)
        await asyncio.sleep(self.times[number % len(self.times)])
        return [msgspec.structs.replace(reply, cost=cost)]


def priced(most=0.01, parts=(1.0,), times=(0.001,), **settings):
    end = Priced(most=most, parts=parts, times=times, concurrency=256, **settings)
    end._reply = answer_to
    return end


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    branches=st.integers(1, 256),
    parts=st.lists(st.floats(0, 1), min_size=1, max_size=20).map(tuple),
    times=st.lists(st.sampled_from([0.0, 0.0001, 0.002]), min_size=1, max_size=7).map(tuple),
    most=st.sampled_from([0.0001, 0.01, 1.0]),
    cap=st.floats(0, 3),
)
def test_with_known_prices_the_cap_is_never_exceeded(branches, parts, times, most, cap):
    end = priced(most, parts, times)
    lab = tl.Lab(end, runs=None, mode="off")
    made = wait(lab.run(Asks(count=branches, max_tokens=20), TASK, budget=tl.Budget(usd=cap)))
    assert made.usage.cost <= cap * (1 + 1e-9)
    assert made.stop_reason == ("answered" if made.usage.calls == branches else "budget:usd")
    if made.usage.calls < branches:  # and the cap is used up, but for what one call may need
        assert made.usage.cost > cap - most
    assert wait(made.replay()).divergence is None


@pytest.mark.slow
@pytest.mark.parametrize("max_tokens", [20, None])
def test_a_cap_that_is_far_away_holds_no_call_back_where_the_price_is_known(max_tokens):
    end = priced(seconds=0.4)
    lab = tl.Lab(end, runs=None, mode="off")
    wait(lab.run(Asks(count=200, max_tokens=max_tokens), TASK, budget=tl.Budget(usd=100.0, tokens=10**7)))
    assert end.max_at_once == 200


def test_the_models_longest_reply_is_no_reason_to_refuse_a_call():
    end = priced(most=1.0, parts=(0.001,))
    lab = tl.Lab(end, runs=None, mode="off")
    made = wait(lab.run(Asks(count=30), TASK, budget=tl.Budget(usd=0.05)))
    assert (made.usage.calls, made.stop_reason) == (30, "answered")
    asked = wait(lab.run(Asks(count=30, max_tokens=9), TASK, budget=tl.Budget(usd=0.05)))
    assert (asked.usage.calls, asked.stop_reason) == (0, "budget:usd")  # here it is what was asked for


def test_a_model_that_does_not_keep_to_its_max_tokens_is_not_believed_twice():
    model = Accounts([1000], [0.001], 10**9, "output_tokens", ramp=False)
    made = run(Asks(count=4, rounds=64, max_tokens=10), model=model, budget=tl.Budget(output_tokens=8000))
    assert model.used <= 8000 + 4 * 1000
    assert made.stop_reason == "budget:output_tokens"


def test_a_failed_call_does_not_tell_what_one_needs():
    under_way, most = 0, 0

    async def model(call):
        nonlocal under_way, most
        if "0 0" in call.prompt:
            raise OSError("no route")
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.001)
        under_way -= 1
        return Reply("x", input_tokens=1, output_tokens=10)

    made = run(Asks(count=30), model=model, budget=tl.Budget(output_tokens=25))
    assert made.usage.output_tokens == 20
    assert most == 1


@pytest.mark.slow
@pytest.mark.parametrize("cents", [30, 40, 50, 60, 70, 80, 100])
def test_t11_calls_that_fit_the_cap_exactly_are_made(cents):
    """Sums of floats are not: three times 0.1 is more than 0.3."""

    def reply(call):
        text = "score: 0.5" if call.purpose == "value" else "Next."
        return Reply(text, input_tokens=1, output_tokens=1, cost=0.1)

    search = tl.presets.beam_search(parallel=False)
    made = run(search, TASK, Scripted(reply), budget=tl.Budget(usd=cents / 100))
    assert made.usage.calls == cents // 10
    assert made.stop_reason == "budget:usd"


def test_sums_of_cents_do_not_hold_calls_back_for_ever():
    async def model(call):
        return Reply("x", cost=dice(call).choice([0.1, 0.2, 0.3, 0.7]))

    for cents in range(10, 200, 7):
        made = run(Asks(count=9), model=model, budget=tl.Budget(usd=cents / 100))
        assert made.stop_reason in ("answered", "budget:usd")


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    caps=st.fixed_dictionaries(
        {},
        optional={
            "calls": st.integers(0, 25),
            "tokens": st.integers(0, 1500),
            "input_tokens": st.integers(0, 1000),
            "output_tokens": st.integers(0, 600),
            "usd": st.floats(0, 1.5),
            "seconds": st.sampled_from([0.0, 0.001, 0.004, 5.0]),
        },
    ),
    inner=st.none()
    | st.fixed_dictionaries({}, optional={"calls": st.integers(0, 9), "tokens": st.integers(0, 700)}),
    strategy=st.sampled_from([*SMALL, Asks(count=15, max_tokens=20, words=3), Asks(count=8, rounds=2)]),
    seed=st.integers(0, 99),
    failing=st.booleans(),
)
def test_no_mix_of_caps_deadlocks_or_is_overshot(caps, inner, strategy, seed, failing):
    def reply(call):
        if failing and dice(call).random() < 0.3:
            return Reply(error="OSError: no route")
        made = answer_to(call)
        sent = estimated_tokens(call.prompt)
        return Reply(made, input_tokens=sent, output_tokens=len(made), cost=len(made) / 1000)

    if inner is not None:
        strategy = Inside(strategy=strategy, budget=tl.Budget(**inner))
    model = Scripted(reply, latency=shuffled(seed, 0.001))
    made = run(strategy, model=model, budget=tl.Budget(**caps))  # within half a minute
    assert made.stop_reason is not None
    assert len(model.calls) <= min(caps.get("calls", 1000), (inner or {}).get("calls", 1000))
    assert wait(made.replay()).divergence is None


class Inside(tl.Strategy):
    kind = "test_budget.inside"
    strategy: tl.Strategy
    budget: tl.Budget

    def think(self, task, at="0"):
        return (yield from tl.with_budget(self.budget, self.strategy.think(task, at)))


# Usage that cannot be true.

ABSURD = [-5_000_000, -1, float("nan"), float("inf"), 1e308, True, 10**30, 10**5000, "many", 2.5]
absurd = pytest.mark.parametrize(
    "value", ABSURD, ids=lambda value: repr(value)[:12] if value != ABSURD[7] else "huge"
)


@pytest.mark.slow
@absurd
@pytest.mark.parametrize("name", ["input_tokens", "output_tokens", "tokens", "usd"])
def test_absurd_usage_counts_the_whole_reservation(name, value):
    """The first call tells what one needs; each later one counts as much."""
    field = {"usd": "cost", "tokens": "output_tokens"}.get(name, name)
    if field == "cost" and value == 2.5:
        return  # as a price it is not absurd

    def reply(call):
        honest = {"input_tokens": 10, "output_tokens": 10, "cost": 10.0}
        return Reply("x", **(honest if "0 0 " in call.prompt else {**honest, field: value}))

    cap = {"input_tokens": 100, "output_tokens": 55, "tokens": 100, "usd": 55.0}[name]
    made = run(Asks(count=200), model=Scripted(reply), budget=tl.Budget(**{name: cap}))
    assert made.stop_reason == f"budget:{name}"
    assert 1 < made.usage.calls <= 10
    replies = [e for e in made.events if isinstance(e, Reply) and e.error is None]
    assert [reply.text for reply in replies] == ["x"] * made.usage.calls
    assert [getattr(reply, field) for reply in replies[1:]] == [None] * (len(replies) - 1)
    assert all(reply.reported_usage.startswith(f"{field}=") for reply in replies[1:])
    assert (replies[0].reported_usage, made.diagnostics["disbelieved_usage"]) == ("", len(replies) - 1)
    assert wait(made.replay()).divergence is None


@pytest.mark.slow
@absurd
@pytest.mark.parametrize("name", ["tokens", "output_tokens", "usd"])
def test_absurd_usage_of_the_first_call_leaves_nothing(name, value):
    def reply(call):
        return Reply("x", input_tokens=value, output_tokens=value, cost=-100 if value == 2.5 else value)

    made = run(Asks(count=40), model=Scripted(reply), budget=tl.Budget(**{name: 1000}))
    assert (made.usage.calls, made.stop_reason) == (1, f"budget:{name}")
    limited = run(Asks(count=40, max_tokens=20), model=Scripted(reply), budget=tl.Budget(output_tokens=100))
    assert (limited.usage.calls, limited.stop_reason) == (5, "budget:output_tokens")


def test_an_absurd_report_in_a_journal_is_not_believed_either(tmp_path):
    """Those written before hold what the server said."""
    model = Scripted(lambda call: Reply("x", input_tokens=1, output_tokens=10))
    lab = tl.Lab(model, runs=tmp_path)
    whole = wait(lab.run(Asks(count=30), TASK, budget=tl.Budget(output_tokens=55)))
    assert whole.usage.calls == 5
    lines = whole.path.read_bytes().replace(b'"output_tokens":10', b'"output_tokens":-10').splitlines(True)
    first = next(k for k, line in enumerate(lines) if b'"budget:' in line)
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(resealed(b"".join(lines[:first])))
    resumed = wait(lab.resume(cut))
    assert resumed.stop_reason == "budget:output_tokens"
    assert resumed.usage.calls <= 5


def test_the_warning_of_a_cap_on_usd_is_of_models_that_say_nothing():
    with pytest.warns(RuntimeWarning, match="The limit on usd could not be enforced"):
        run(Asks(count=3), budget=tl.Budget(usd=1))
    run(Asks(count=3), model=Scripted(lambda call: Reply("x", cost=-1.0)), budget=tl.Budget(usd=1))


# Seconds.


@pytest.mark.slow
def test_a_cap_on_seconds_ends_the_calls_in_flight():
    cancelled = []

    async def hangs(call):
        if "0 0" in call.prompt:
            return "at once"
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            cancelled.append(call)
            raise

    made, seconds = run_virtually(
        tl.Lab(hangs, runs=None).run(Asks(count=5), TASK, budget=tl.Budget(seconds=60))
    )
    assert made.stop_reason == "budget:seconds"
    assert made.answer == "1"
    assert seconds == pytest.approx(60, abs=0.1)
    assert wait(made.replay()).divergence is None
    gc.collect()
    assert len(cancelled) == 4


@pytest.mark.slow
def test_a_model_that_will_not_be_cancelled_does_not_hold_the_run_up():
    async def stubborn(call):
        end = asyncio.get_running_loop().time() + 0.6
        while (left := end - asyncio.get_running_loop().time()) > 0:
            try:
                await asyncio.sleep(left)
            except asyncio.CancelledError:
                continue
        return "late"

    async def main():
        made = await tl.Lab(stubborn, runs=None).run(Asks(count=3), TASK, budget=tl.Budget(seconds=0.02))
        taken = made.seconds
        await asyncio.sleep(0.7)  # the late replies come, and change nothing
        return made, taken

    made, taken = wait(main())
    assert taken < 0.5
    assert (made.stop_reason, made.answer) == ("budget:seconds", "0")


def test_seconds_do_not_end_a_run_that_made_it():
    assert run(Asks(), budget=tl.Budget(seconds=60)).stop_reason == "answered"


# What is said.


def test_at_80_percent_there_is_a_warning_beside_the_record():
    made = run(Asks(count=5), budget=tl.Budget(calls=5))
    assert [note.data for note in notes(made, "budget.warning")] == [{"cap": "calls", "used": 4, "of": 5}]
    assert notes(made, "budget.exceeded") == []
    assert made.stop_reason == "answered"
    assert not any(isinstance(event, Note) and event.name.startswith("budget.") for event in made.events)


def test_each_refusal_is_told_of_beside_the_record():
    made = run(Asks(count=5), budget=tl.Budget(calls=3))
    assert [note.data for note in notes(made, "budget.exceeded")] == [{"cap": "calls"}] * 2
    assert made.diagnostics["refused_calls"] == 2
    assert [e.error for e in made.events if isinstance(e, Reply) and e.error] == ["budget:calls"] * 2
    assert not any(isinstance(event, Note) and event.name.startswith("budget.") for event in made.events)


def test_solved_beats_the_cap_that_was_met():
    def certain(call):
        return "score: 1.0" if call.purpose == "value" else answer_to(call)

    strategy = tl.TreeOfThoughts(propose=tl.Sample(count=3), stop=tl.Stop(depth=2, solved=1.0))
    made = run(strategy, model=Scripted(certain), budget=tl.Budget(calls=5))
    assert any(isinstance(e, Reply) and e.error == "budget:calls" for e in made.events)
    assert made.stop_reason == "solved"


def test_of_two_caps_the_run_names_the_first_in_program_order():
    for seed in range(4):
        model = Scripted(reporting, latency=shuffled(seed))
        made = run(Asks(count=8, rounds=2, max_tokens=20), model=model, budget=tl.Budget(calls=9, tokens=120))
        errors = [e.error for e in made.events if isinstance(e, Reply) and e.error]
        assert made.stop_reason == errors[0]
        assert wait(made.replay()).divergence is None


# A budget ends a search: what it has in hand, and how the run says so.


def take_all(tree, frontier):
    return frontier


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["best_path", "best", "best_leaf", "deepest"])
@pytest.mark.parametrize(
    "settings",
    [
        {"search": "beam_search"},
        {"search": tl.DepthFirst(width=2)},
        {"search": tl.BestFirst(width=2)},
        {"search": tl.BestFirst(batch=3, width=2)},
        {"search": tl.MCTS(width=2)},
        {"search": tl.searches.FunctionSearch(function=take_all, width=2)},
        {"propose": "propose"},
        {"propose": "propose", "evaluate": "joint"},
        {"evaluate": "vote"},
        {"evaluate": "logprob"},
        {"evaluate.samples": 3},
        {"stop.min_score": 0.5},
    ],
    ids=str,
)
def test_before_any_score_the_first_unscored_thought_answers(settings, answer):
    search = tl.TreeOfThoughts(answer=answer, stop=tl.Stop(depth=2)).with_(settings)
    made = run(search, budget=tl.Budget(calls=1))
    thoughts = list(made.tree)[1:]
    assert thoughts
    assert made.best is thoughts[0]
    assert (made.answer, made.score) == (thoughts[0].text, None)
    assert made.stop_reason == "budget:calls"
    assert made.best.state == "answer"
    assert wait(made.replay()).identical


@pytest.mark.parametrize("evaluator", ["unreadable", "seconds"])
def test_no_score_arrives_and_time_or_money_ends_it(evaluator):
    async def model(call):
        if call.purpose == "value":
            await asyncio.sleep(0 if evaluator == "unreadable" else 60)
            return "I would rather not say."
        return f"a step {call.sample_index}"

    cap = tl.Budget(calls=4) if evaluator == "unreadable" else tl.Budget(seconds=0.1)
    made = run(tl.TreeOfThoughts(propose=tl.Sample(count=3)), model=model, budget=cap)
    assert made.stop_reason.startswith("budget:")
    assert (made.answer, made.score) == ("a step 0", None)


@pytest.mark.parametrize("generate", ["sample", "propose"])
def test_also_where_a_path_is_no_answer_yet_something_answers(generate):
    """In the game of 24 a first step is no answer; it stands in only as long as nothing was scored."""
    task, lab = tl.game24("4 9 10 13"), tl.Lab("sim/game24", runs=None)
    unscored = 0
    for cap in range(1, 8):
        made = wait(lab.run(tl.TreeOfThoughts(propose=generate), task, budget=tl.Budget(calls=cap)))
        thoughts = list(made.tree)[1:]
        if thoughts and all(node.score is None for node in thoughts):
            unscored += 1
            assert (made.answer, made.score) == (thoughts[0].text, None)
    assert unscored


@pytest.mark.slow
def test_a_scored_thought_still_beats_an_unscored_one():
    for cap in range(2, 30):
        made = run(
            tl.TreeOfThoughts(propose=tl.Sample(count=3), stop=tl.Stop(depth=2)), budget=tl.Budget(calls=cap)
        )
        scores = [node.score for node in list(made.tree)[1:] if node.score is not None]
        if scores:
            assert made.score == max(scores)


def test_a_search_that_got_nothing_has_no_answer():
    made = run(tl.TreeOfThoughts(), budget=tl.Budget(calls=0))
    assert (made.answer, made.status, made.interrupted) == ("", "failed", True)


def test_an_interrupted_run_says_so_apart_from_its_answer():
    for cap in (1, 5, 9):
        made = run(SMALL[0], budget=tl.Budget(calls=cap))
        assert (made.interrupted, made.interruption_reason) == (True, "budget:calls")
        assert (made.status, made.turns) == ("partial", cap)
        assert made.answer
    free = run(SMALL[0])
    assert (free.interrupted, free.interruption_reason, free.turns) == (False, None, free.usage.calls)
    loaded = tl.Run(made.header, made.lines)
    assert (loaded.status, loaded.interruption_reason, loaded.turns) == ("partial", "budget:calls", 9)


def test_the_status_of_a_run():
    assert run(tl.OneAnswer()).status == "completed"
    assert run(SMALL[0]).stop_reason == "limit:depth"
    assert run(SMALL[0]).status == "partial"
    assert run(Asks(count=2)).status == "completed"
    broken = run(tl.OneAnswer(), model=Scripted(lambda call: Reply(error="OSError: no route")))
    assert (broken.stop_reason, broken.status) == ("error", "failed")
    recorder = tl.Recorder("mine")
    recorder.thought("p")
    assert recorder.run.status is None
    assert (recorder.run.interrupted, recorder.run.interruption_reason) == (False, None)
    recorder.end("a", stop="cancelled")
    assert (recorder.run.status, recorder.run.interruption_reason) == ("partial", "cancelled")


# Parts of a run.


class Parts(tl.Strategy):
    """One part under a budget of its own, then one without."""

    kind = "test_budget.parts"
    inner: tl.Budget
    count: int = 5

    def think(self, task, at="0"):
        yield Thought(at, None, task.question)
        calls = [
            Call(at, "ask", (Message("user", "p"),), sample_index=k, max_tokens=10)
            for k in range(2 * self.count)
        ]
        first = yield from tl.with_budget(self.inner, self._some(calls[: self.count]))
        second = yield from self._some(calls[self.count :])
        return tl.Answer(f"{first} {second}", "answered")

    def _some(self, calls):
        replies = yield from tl.gather([tl.ask(call) for call in calls], at_most=1)
        return sum(reply.error is None for reply in replies)


@pytest.mark.parametrize(
    "inner", [{"calls": 2}, {"output_tokens": 20}, {"tokens": 22}, {"usd": 0.0}, {"seconds": 0.0}]
)
def test_refusals_within_leave_the_rest_going(inner):
    model = Scripted(lambda call: Reply("x", input_tokens=1, output_tokens=10, cost=0.1))
    outer = tl.Budget(calls=100, tokens=10_000, output_tokens=10_000, usd=10, seconds=60)
    for budget in (None, outer):
        made = run(Parts(inner=tl.Budget(**inner)), model=model, budget=budget)
        first, second = made.answer.split()
        assert int(first) == {"calls": 2, "output_tokens": 2, "tokens": 2}.get(next(iter(inner)), 0)
        assert second == "5"
        assert made.stop_reason == "answered"
        assert wait(made.replay()).divergence is None


@pytest.mark.parametrize("outer", [{"calls": 2}, {"output_tokens": 20}, {"tokens": 22}, {"usd": 0.2}])
def test_the_outer_budget_holds_inside_and_names_the_stop(outer):
    model = Scripted(lambda call: Reply("x", input_tokens=1, output_tokens=10, cost=0.1))
    inner = tl.Budget(calls=100, tokens=10_000, output_tokens=10_000, usd=10, seconds=60)
    made = run(Parts(inner=inner), model=model, budget=tl.Budget(**outer))
    assert made.answer == "2 0"
    assert made.stop_reason == f"budget:{next(iter(outer))}"
    assert wait(made.replay()).divergence is None


def test_budgets_nest():
    inside = tl.TreeOfThoughts(propose=tl.Sample(count=2), stop=tl.Stop(depth=2), budget=tl.Budget(calls=3))
    made = run(tl.SelfConsistency(strategy=inside, attempts=3), budget=tl.Budget(calls=8))
    assert made.usage.calls == 8
    assert made.stop_reason == "budget:calls"
    free = run(tl.SelfConsistency(strategy=inside, attempts=3))
    assert free.usage.calls == 9
    assert free.stop_reason == "answered"


def test_a_part_whose_time_is_up_leaves_the_rest_going():
    async def model(call):
        if call.sample_index < 5:
            await asyncio.sleep(1000)
        return "x"

    made = run(Parts(inner=tl.Budget(seconds=0.02)), model=model)
    assert (made.answer, made.stop_reason) == ("0 5", "answered")
    assert wait(made.replay()).divergence is None


# What is refused.


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("calls", -1),
        ("calls", 1.5),
        ("calls", "3"),
        ("calls", True),
        ("tokens", -1),
        ("input_tokens", 2.5),
        ("output_tokens", "many"),
        ("usd", -0.01),
        ("usd", float("nan")),
        ("usd", float("inf")),
        ("usd", "much"),
        ("usd", True),
        ("seconds", -1),
        ("seconds", float("inf")),
        ("seconds", "5"),
        ("minutes", 1),
    ],
)
def test_a_bad_cap_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=name):
        tl.Budget(**{name: value})


def test_a_budget_is_frozen():
    budget = tl.Budget(calls=3, usd=1)
    with pytest.raises(AttributeError, match=r"cannot be changed: got a value for 'calls'\. Make a copy"):
        budget.calls = 4
    assert tl.Budget(usd=1).usd == 1.0


# Kept on resume.


@pytest.mark.slow
@pytest.mark.parametrize("budget", [{"calls": 7}, {"tokens": 900}, {"output_tokens": 40}], ids=str)
def test_a_capped_run_that_was_cut_off_resumes_to_the_same_record(tmp_path, budget):
    strategy = tl.TreeOfThoughts(
        propose=tl.Sample(count=3), stop=tl.Stop(depth=3), max_tokens=20, parallel=False
    )
    whole = wait(tl.Lab(Scripted(), runs=tmp_path).run(strategy, TASK, budget=tl.Budget(**budget)))
    name = next(iter(budget))
    assert whole.stop_reason == f"budget:{name}"
    lines = whole.path.read_bytes().splitlines(keepends=True)
    for kept in range(1, len(lines), 3):
        cut = tmp_path / "cut.jsonl"
        cut.write_bytes(b"".join(lines[:kept]))
        model = Scripted()
        resumed = wait(tl.Lab(model, runs=tmp_path).resume(cut))
        assert resumed.events == whole.events
        assert resumed.stop_reason == whole.stop_reason
        known = sum(b'"reply"' in line and b'"error"' not in line for line in lines[:kept])
        assert known + len(model.calls) == whole.usage.calls
        assert tl.load(cut).events == whole.events


class Loading(ScriptedEndpoint):
    """An endpoint that needs half a second to load what determines how much a call can use."""

    kind = "test_budget.loading"

    async def ready(self):
        await asyncio.sleep(0.5)


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_run_that_is_resumed_does_nothing_while_bounds_are_loaded(tmp_path, is_cancelled):
    failed = []

    async def go():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
        lab = tl.Lab(Loading(), runs=tmp_path, mode="off")
        whole = await lab.run(Asks(count=2, rounds=2), TASK, budget=tl.Budget(tokens=10**6))
        cut = tmp_path / "cut.jsonl"
        cut.write_bytes(b"".join(whole.path.read_bytes().splitlines(keepends=True)[:4]))
        resuming = asyncio.ensure_future(lab.resume(cut))
        if is_cancelled:
            await asyncio.sleep(0.1)
            resuming.cancel()
        await asyncio.wait([resuming])
        await asyncio.sleep(1)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert not [timer for timer in asyncio.get_running_loop()._scheduled if not timer.cancelled()]
        return resuming.cancelled() or resuming.result().events == whole.events

    assert run_virtually(go())[0]
    assert failed == []


def test_a_prompt_alone_that_exceeds_the_cap_is_refused():
    task = tl.general("x" * 400)
    got = wait(tl.Lab(Scripted(), runs=None).run(tl.OneAnswer(), task, budget=tl.Budget(tokens=5)))
    assert (got.stop_reason, got.usage.calls) == ("budget:tokens", 0)


def test_a_failed_call_that_was_paid_is_counted():
    def filtered(call):
        return Reply(error="filtered", input_tokens=100, output_tokens=0, cost=0.5)

    got = wait(tl.Lab(Scripted(filtered), runs=None).run(tl.OneAnswer(), TASK))
    assert (got.usage.cost, got.usage.paid, got.usage.input_tokens, got.usage.errors) == (0.5, 0.5, 100, 1)


@pytest.mark.slow
def test_a_call_that_was_cut_off_counts_what_it_reserved():
    """It may have been charged in full. A dollar a call at most, a cap of three dollars."""
    end = scripted(seconds=30.0, usd=1.0)
    lab = tl.Lab(end, runs=None, mode="off", timeout=0.1)
    wait(lab.run(Asks(count=12, max_tokens=10), TASK, budget=tl.Budget(usd=3)))
    assert len(end.requests) == 3
