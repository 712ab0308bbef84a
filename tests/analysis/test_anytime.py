"""Success at matched cost: a point at B calls is what a run under `Budget(calls=B)` gives, exactly."""

import asyncio
import warnings
from itertools import pairwise

import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import TASK, Scripted, answer_to, dice, run, shuffled, wait
from support.budgets import SMALL

import tot_lab as tl
from tot_lab.analysis.matched_cost import Point, _Cut
from tot_lab.core.calls import Call, Message, Reply
from tot_lab.core.records import Thought

WHOLE = [
    *SMALL,
    tl.OneAnswer(),
    tl.BestOf(strategy=tl.ChainOfThought(), attempts=3),
    tl.TreeOfThoughts(propose=tl.Sample(count=3), search=tl.MCTS(width=2), stop=tl.Stop(depth=3, nodes=12)),
    tl.TreeOfThoughts(
        propose=tl.Sample(count=2),
        search=tl.BestFirst(width=2),
        stop=tl.Stop(depth=3),
        merge=True,
        parallel=False,
    ),
    tl.TreeOfThoughts(propose=tl.Sample(count=3), answer="best_leaf", stop=tl.Stop(depth=2, patience=1)),
    tl.TreeOfThoughts(propose=tl.Sample(count=3), stop=tl.Stop(depth=2), budget=tl.Budget(calls=9)),
    tl.SelfConsistency(
        strategy=tl.TreeOfThoughts(
            propose=tl.Sample(count=2), stop=tl.Stop(depth=2), budget=tl.Budget(calls=5)
        ),
        attempts=3,
    ),
    tl.SelfConsistency(strategy=tl.SelfConsistency(attempts=2), attempts=3),
]
NAMES = [f"{strategy.kind}-{number}" for number, strategy in enumerate(WHOLE)]


def counted(call):
    """Says what it used."""
    text = answer_to(call)
    return Reply(text, input_tokens=len(call.prompt), output_tokens=len(text))


def points(runs, at=None, **options):
    return tl.stats.anytime_performance(runs, at, **options)


def expect_the_same(point, rerun):
    """A row of `anytime`, or a Point, and a run that was really made."""
    assert point.answer == rerun.answer
    assert point.stop_reason == rerun.stop_reason
    assert (None if pandas.isna(point.score) else point.score) == rerun.grade
    assert (None if pandas.isna(point.error) else point.error) == rerun.failure


# Exactness.


@pytest.mark.slow
@pytest.mark.parametrize("strategy", WHOLE, ids=NAMES)
def test_every_point_is_what_a_capped_rerun_gives(strategy):
    free = run(strategy, model=Scripted(counted, shuffled(1)))
    shown = points(free, range(free.usage.calls + 3))
    for row in shown.itertuples():
        rerun = run(strategy, model=Scripted(counted), budget=tl.Budget(calls=int(row.at)))
        expect_the_same(row, rerun)
        assert (row.calls, row.input_tokens, row.output_tokens) == rerun.usage[:1] + rerun.usage[2:4]


@pytest.mark.nightly
@settings(max_examples=40, deadline=None)
@given(
    strategy=st.sampled_from(WHOLE),
    repeat=st.integers(0, 3),
    failing=st.sampled_from([0.0, 0.2, 1.0]),
    own=st.none() | st.integers(0, 20),
    calls=st.integers(0, 40),
    saved=st.booleans(),
)
def test_so_it_is_with_failing_models_own_caps_and_files(
    tmp_path_factory, strategy, repeat, failing, own, calls, saved
):
    def reply(call):
        return Reply(error="OSError: no route") if dice(call).random() < failing else answer_to(call)

    budget = None if own is None else tl.Budget(calls=own)
    whole = run(strategy, model=Scripted(reply, shuffled(2)), repeat=repeat, budget=budget)
    if saved:
        whole = tl.load(whole.save(tmp_path_factory.mktemp("runs") / "a.jsonl"))
    (row,) = points(whole, [calls]).itertuples()
    cap = calls if own is None else min(calls, own)
    expect_the_same(row, run(strategy, model=Scripted(reply), repeat=repeat, budget=tl.Budget(calls=cap)))


@pytest.mark.nightly
@pytest.mark.parametrize("search", [tl.BeamSearch, tl.DepthFirst, tl.BestFirst, tl.MCTS])
def test_so_it_is_on_the_game_of_24(search):
    strategy = tl.TreeOfThoughts(
        propose=tl.Propose(count=6), search=search(width=3), stop=tl.Stop(depth=4, nodes=60)
    )
    lab = tl.Lab(tl.sim.SimGame24(), runs=None, roles={"evaluate": {"temperature": 0.3}})
    tasks = [tl.game24("4 5 6 10"), tl.game24("3 3 8 8")]
    for task in tasks:
        free = wait(lab.run(strategy, task))
        for row in points(free, range(0, free.usage.calls + 1, 5)).itertuples():
            rerun = wait(lab.run(strategy, task, budget=tl.Budget(calls=int(row.at))))
            expect_the_same(row, rerun)
            assert row.calls == rerun.usage.calls


def test_a_branch_of_a_run_is_cut_with_what_was_changed_in_it():
    lab = tl.Lab(Scripted(), runs=None)
    parent = wait(lab.run(tl.TreeOfThoughts(propose=tl.Sample(count=2), stop=tl.Stop(depth=3)), TASK))
    made = wait(lab.branch(parent, "0.0", score=1.0))
    caps = range(0, made.usage.calls + 1)
    rows = points(made, caps).itertuples()
    for row, cap in zip(rows, caps, strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a cap ended it before it came to the thought
            rerun = wait(lab.branch(parent, "0.0", score=1.0, budget=tl.Budget(calls=cap)))
        expect_the_same(row, rerun)


class Fragile(tl.Strategy):
    """Raises when its third call is refused, or always at its end."""

    kind = "test_anytime.fragile"
    at_the_end: bool = False

    def think(self, task, at="0"):
        yield Thought(at, None, task.question)
        for draw in range(5):
            reply = yield from tl.ask(Call(at, "ask", (Message("user", "p"),), sample_index=draw))
            if reply.error and draw == 2:
                raise ValueError("not the third one")
            if reply.error:
                return tl.Answer(f"{draw} calls", reply.error)
        if self.at_the_end:
            raise ValueError("so near")
        return tl.Answer("26", "answered")


@pytest.mark.slow
def test_a_strategy_that_raises_has_its_error_in_the_row():
    rows = list(points(run(Fragile()), range(7)).itertuples())
    assert [row.stop_reason for row in rows] == [
        *["budget:calls"] * 2,
        "error",
        *["budget:calls"] * 2,
        *["answered"] * 2,
    ]
    assert rows[2].error == "ValueError: not the third one"
    assert rows[3].answer == "3 calls"
    lab = tl.Lab(Scripted(), runs=None)
    with pytest.raises(ValueError, match="so near"):
        wait(lab.run(Fragile(at_the_end=True), TASK))
    shown = points(lab.last, [4, 5, 6])
    assert list(shown["error"].fillna("")) == ["", "ValueError: so near", "ValueError: so near"]
    assert list(tl.stats.success_rates(shown, by=["setting", "at"])["errors"]) == [0, 1, 1]


class Messy(tl.Strategy):
    """Raises in a branch when it is refused, and once more when it is closed."""

    kind = "test_anytime.messy"

    def think(self, task, at="0"):
        yield Thought(at, None, task.question)
        try:
            yield from tl.gather([self.branch(at)])
        finally:
            raise KeyError("at its close")

    def branch(self, at):
        reply = yield from tl.ask(Call(at, "ask", (Message("user", "p"),)))
        if reply.error:
            raise ValueError("refused")


def test_a_strategy_that_raises_when_it_is_closed_is_cut_all_the_same():
    lab = tl.Lab(Scripted(), runs=None)
    with pytest.raises(KeyError):
        wait(lab.run(Messy(), TASK))
    assert points(lab.last, [0, 1])["error"].tolist() == ["ValueError: refused", "KeyError: 'at its close'"]


# Where the record ends.


@pytest.mark.nightly
def test_a_run_that_was_killed_tells_as_much_as_it_holds(tmp_path):
    strategy = tl.TreeOfThoughts(propose=tl.Sample(count=2), stop=tl.Stop(depth=3), parallel=False)
    whole = wait(tl.Lab(Scripted(), runs=tmp_path).run(strategy, TASK))
    lines = whole.path.read_bytes().splitlines(keepends=True)
    for kept in range(1, len(lines), 4):
        (tmp_path / "cut.jsonl").write_bytes(b"".join(lines[:kept]))
        cut = tl.load(tmp_path / "cut.jsonl")
        caps = range(whole.usage.calls + 1)
        for row, known in zip(points(cut, caps).itertuples(), points(whole, caps).itertuples(), strict=True):
            if row.at <= cut.usage.calls:
                assert (row.answer, row.stop_reason) == (known.answer, known.stop_reason)
            else:
                assert pandas.isna([row.answer, row.stop_reason, row.score, row.calls, row.changed]).all()
    assert tl.stats.success_rates(points(cut, [0, 99]), by="at")["ungraded"].tolist() == [0, 1]


def test_a_cancelled_run_is_known_up_to_its_cancel():
    async def slow(call):
        await asyncio.sleep(1000 if call.attempt == (1,) else 0)
        return answer_to(call)

    async def main():
        lab = tl.Lab(slow, runs=None)
        going = asyncio.ensure_future(lab.run(tl.SelfConsistency(attempts=4), TASK))
        await asyncio.sleep(0.05)
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)
        return lab.last

    cancelled = wait(main())
    assert cancelled.usage.calls == 3
    shown = points(cancelled, [0, 1, 2, 3, 4])
    assert shown["stop_reason"].astype("string").fillna("?").tolist() == [
        "budget:calls",
        "budget:calls",
        "?",
        "?",
        "?",
    ]


@pytest.mark.slow
def test_a_counterfactual_run_is_known_up_to_the_first_call_that_no_record_holds():
    wider = tl.TreeOfThoughts(
        propose=tl.Sample(count=3), search=tl.BeamSearch(width=3), stop=tl.Stop(depth=3)
    )
    would = tl.counterfactual(
        run(
            tl.TreeOfThoughts(
                propose=tl.Sample(count=3), search=tl.BeamSearch(width=1), stop=tl.Stop(depth=3)
            )
        ),
        wider,
    )
    assert not would.whole
    rows = list(points(would.run, range(40)).itertuples())
    known = [row for row in rows if not pandas.isna(row.stop_reason)]
    assert 6 < len(known) < len(rows)
    for row in known:
        rerun = run(wider, budget=tl.Budget(calls=int(row.at)))
        expect_the_same(row, rerun)
        assert row.calls == rerun.usage.calls
    assert all(pandas.isna(row.answer) for row in rows[len(known) :])


def test_it_works_where_an_event_loop_runs_as_in_a_notebook():
    whole = run(tl.SelfConsistency(attempts=4))

    async def cell():
        return points(whole)

    assert wait(cell()).equals(points(whole))


def test_more_than_was_used_changes_nothing():
    whole = run(tl.SelfConsistency(attempts=4))
    assert points(whole, [4, 1000])["answer"].tolist() == [whole.answer] * 2
    assert points(whole, [1000])["calls"].tolist() == [4]


# Tokens and USD.


def test_tokens_and_usd_are_the_most_calls_that_fit():
    def reply(call):
        return Reply(
            answer_to(call), input_tokens=10, output_tokens=call.attempt[0], cost=0.1 * call.attempt[0]
        )

    whole = run(tl.SelfConsistency(attempts=4), model=Scripted(reply))  # 10, 11, 12, 13 tokens
    shown = points(whole, [9, 10, 20, 21, 33, 46, 99], unit="tokens")
    assert shown["calls"].tolist() == [0, 1, 1, 2, 3, 4, 4]
    assert shown["output_tokens"].tolist() == [0, 0, 0, 1, 3, 6, 6]
    shown = points(whole, [0.0, 0.1, 0.25, 0.3, 0.6], unit="cost")
    assert shown["calls"].tolist() == [1, 2, 2, 3, 4]  # 0.1 + 0.2 is 0.3, whatever floats say
    by_calls = points(whole, [1, 2, 2, 3, 4][1:])
    assert shown["answer"].tolist()[2:] == by_calls["answer"].tolist()


def test_where_nobody_counts_tokens_are_estimated_as_a_budget_does():
    whole = run(tl.SelfConsistency(attempts=3))
    shown = points(whole, [1, 10_000], unit="tokens")
    assert shown["calls"].tolist() == [0, 3]
    with pytest.raises(ValueError, match="cost of some calls is unknown"):
        points(whole, unit="cost")


# The amounts.


@pytest.mark.slow
def test_the_grid_doubles_in_two_steps_and_holds_the_largest_run():
    small, large = run(tl.OneAnswer()), run(tl.SelfConsistency(attempts=21))
    assert points([small, large])["at"].unique().tolist() == [1, 2, 3, 4, 6, 8, 12, 16, 24]
    assert points(small)["at"].tolist() == [1]
    tokens = points(large, unit="tokens")["at"].unique().tolist()
    assert tokens[-2] < large.usage.calls * 60
    assert all(1.3 < b / a < 1.6 for a, b in pairwise(tokens))


@pytest.mark.slow
def test_the_work_of_all_points_is_a_few_times_the_record():
    whole = run(
        tl.TreeOfThoughts(propose=tl.Sample(count=4), search=tl.BeamSearch(width=4), stop=tl.Stop(depth=6))
    )
    cut, driven = _Cut(whole), []

    async def counted(prefix, calls):
        driven.append(len(prefix))
        return await _Cut._cut_off(cut, prefix, calls)

    cut._cut_off = counted
    grid = points(whole)["at"].tolist()
    assert len(grid) > 8
    for calls in grid:
        assert isinstance(wait(cut.point(calls)), Point)
    assert sum(driven) < 4 * len(cut.lines)


# Which runs.


@pytest.mark.slow
def test_a_sweep_gives_its_own_settings_and_order(tmp_path):
    tasks = [tl.game24("4 5 6 10"), tl.game24("1 2 4 7")]
    lab = tl.Lab(tl.sim.SimGame24(), runs=tmp_path)
    strategies = {
        **tl.baselines(attempts=3, temperature=0.7),
        "ToT": tl.TreeOfThoughts(stop=tl.Stop(depth=4)),
    }
    sweep = wait(lab.sweep(strategies, tasks, repeats=2))
    df, shown = sweep.df(), points(sweep, [1, 5, 1000])
    last = shown[shown["at"] == 1000].reset_index(drop=True)
    for name in ("setting", "task", "repeat", "run_id", "answer", "correct", "score", "calls", "stop_reason"):
        assert last[name].astype(object).equals(df[name].astype(object)), name
    assert list(shown["setting"].cat.categories) == list(strategies)
    at_five = tl.stats.at_matched_cost(sweep, 5)
    assert at_five.equals(tl.stats.success_rates(shown[shown["at"] == 5]))
    with pytest.raises(ValueError, match="more than one row of run"):
        tl.stats.success_rates(shown)
    assert tl.stats.compare(last, "ToT", "one answer") == tl.stats.compare(df, "ToT", "one answer")
    assert str(shown["at"].dtype) == "Int64"
    again = wait(
        tl.Lab(tl.sim.SimGame24(), runs=tmp_path).sweep(strategies, tasks, repeats=2)
    )  # from its files
    assert points(again, [1, 5, 1000]).equals(shown)


def test_a_run_that_could_not_begin_is_an_error_at_every_amount():
    tokens = {name: pandas.array([None], dtype="Int64") for name in ("input_tokens", "output_tokens")}

    class Sweep:
        def df(self):
            columns = {"setting": ["a"], "task": ["t"], "repeat": [0], "run_id": ["r"], **tokens}
            return pandas.DataFrame({**columns, "stop_reason": [None], "error": ["TypeError: no"]})

        def run(self, run_id):
            raise LookupError(run_id)

    with pytest.raises(ValueError, match="The tokens that the runs used are unknown"):
        points(Sweep(), unit="tokens")
    shown = points(Sweep(), [1, 2])
    assert shown["error"].tolist() == ["TypeError: no"] * 2
    rates = tl.stats.success_rates(shown, by="at")
    assert rates["errors"].tolist() == [1, 1]
    assert rates["rate"].isna().all()


def test_runs_that_are_no_sweep_are_told_apart_by_their_strategies():
    made = [run(tl.SelfConsistency(attempts=n), repeat=r) for n in (2, 3) for r in (0, 1)] + [
        run(tl.OneAnswer())
    ]
    shown = points(made, [2])
    assert shown["setting"].tolist() == [
        *["SelfConsistency attempts=2"] * 2,
        *["SelfConsistency attempts=3"] * 2,
        "OneAnswer",
    ]
    assert shown["repeat"].tolist() == [0, 1, 0, 1, 0]
    assert shown["run_id"].tolist() == [one.id for one in made]


def test_tasks_that_share_a_question_are_two():
    tasks = [tl.general("How many?", answer=answer, grade="number") for answer in (26, 24)]
    shown = points([run(tl.OneAnswer(), task, repeat=r) for r in (0, 1) for task in tasks], [1])
    assert shown["task"].tolist() == ["How many?", "How many? #2"] * 2
    assert tl.stats.success_rates(shown)["tasks"].item() == 2


def test_functions_of_ones_own_are_needed_again(tmp_path):
    strategy = tl.TreeOfThoughts(
        propose=tl.Sample(count=2), evaluate=lambda task, path: 0.5, stop=tl.Stop(depth=2)
    )
    whole = run(strategy)
    assert points(whole, [1])["stop_reason"].tolist() == ["budget:calls"]
    with pytest.raises(LookupError, match="lambda"):
        points(tl.load(whole.save(tmp_path / "a.jsonl")), [1])


def test_a_search_of_ones_own_has_no_points():
    with tl.Recorder("mine") as recorder:
        recorder.thought("the problem")
    with pytest.raises(
        LookupError, match=r"\(mine\) cannot be run with a smaller budget: its record was not"
    ):
        points(recorder.run)


@pytest.mark.parametrize(
    "changed",
    [
        tl.TreeOfThoughts(),  # other calls
        tl.SelfConsistency(strategy=tl.OneAnswer(), attempts=4),  # the same ones in other words
        tl.SelfConsistency(attempts=2),  # fewer
    ],
    ids=["other", "words", "fewer"],
)
def test_a_strategy_that_has_changed_since_is_an_error_and_no_curve(changed):
    whole = run(tl.SelfConsistency(attempts=4))
    whole.strategy = changed
    with pytest.raises(tl.errors.Divergence, match=f"run {whole.id} cannot be repeated"):
        points(whole, [3])


class Peeks(tl.Strategy):
    """Answers with the reference, if it can see it."""

    kind = "test_anytime.peeks"

    def think(self, task, at="0"):
        yield Thought(at, None, task.question)
        yield from tl.ask(Call(at, "ask", (Message("user", "p"),)))
        return tl.Answer(str(task.reference), "answered")


def test_what_is_right_stays_hidden_from_the_strategy():
    assert points(run(Peeks()), [0, 1])["correct"].tolist() == [False, False]


def test_bad_amounts_and_runs_are_refused_by_name():
    whole = run(tl.OneAnswer())
    for bad in (-1, 1.5, float("nan"), "5"):
        with pytest.raises(ValueError, match="whole number of calls"):
            points(whole, [bad])
    with pytest.raises(TypeError, match=r"at must be a list of amounts, .*: got 5"):
        points(whole, 5)
    with pytest.raises(ValueError, match="at must not be empty"):
        points(whole, [])
    with pytest.raises(ValueError, match="unit must be one of calls, tokens, cost"):
        points(whole, unit="seconds")
    for nothing, kind in (
        (3, "int"),
        ([whole, "a"], "str"),
        ("a", "str"),
        (pandas.DataFrame({"a": []}), "Data"),
    ):
        with pytest.raises(TypeError, match=f"expects a sweep, a run or several runs: got {kind}"):
            points(nothing)
    with pytest.raises(ValueError, match="runs must not be empty"):
        points([])


def test_the_columns_are_as_documented():
    shown = points([run(tl.SelfConsistency(attempts=4), repeat=r) for r in range(4)])
    assert {name: str(dtype) for name, dtype in shown.dtypes.items()} == {
        "setting": "category", "task": "category", "repeat": "Int64", "run_id": "string", "at": "Int64",
        "unit": "category",
        "calls": "Int64", "input_tokens": "Int64", "output_tokens": "Int64", "cost": "Float64",
        "flops": "Float64", "flops_prefix_once": "Float64",
        **{f"answer_{kind}": "Int64" for kind in ("calls", "failed", "unreadable", "truncated")},
        "answer": "string", "score": "Float64", "correct": "boolean", "stop_reason": "string",
        "error": "string", "changed": "boolean", "simulated": "boolean",
    }  # fmt: skip
    before = shown.groupby("run_id")["answer"].shift(fill_value="")
    assert shown["changed"].tolist() == shown["answer"].ne(before).tolist()


# The frontier.


def table(**settings):
    rows = [
        (name, f"task {k}", k < solved, calls)
        for name, (solved, calls) in settings.items()
        for k in range(10)
    ]
    return pandas.DataFrame(rows, columns=["setting", "task", "correct", "calls"])


def test_the_frontier_is_what_nothing_dominates():
    shown = tl.stats.pareto_frontier(
        table(cheap=(2, 1), worse=(2, 3), middle=(5, 4), same=(5, 4), bad=(1, 9), dear=(8, 90), top=(8, 91))
    ).set_index("setting")
    assert shown.index[shown["frontier"]].tolist() == ["cheap", "middle", "same", "dear"]
    assert shown["calls"].tolist() == [1, 3, 4, 4, 9, 90, 91]
    assert shown["rate"].tolist() == [0.2, 0.2, 0.5, 0.5, 0.1, 0.8, 0.8]


def test_what_has_no_cost_or_no_grade_is_on_no_frontier():
    df = table(a=(2, 1), b=(9, 1), c=(9, 9)).astype({"correct": "boolean", "calls": "Int64"})
    df.loc[df["setting"] == "b", "correct"] = pandas.NA
    df.loc[df["setting"] == "c", "calls"] = pandas.NA
    assert tl.stats.pareto_frontier(df)["frontier"].tolist() == [True, False, False]
    with pytest.raises(
        ValueError, match=r"both a grade and a known 'calls': got 10 rows, 10 with a grade and 0"
    ):
        tl.stats.pareto_frontier(df[df["setting"] == "c"])
    with pytest.raises(ValueError, match="unit must be a numeric column of the table: got 'task'"):
        tl.stats.pareto_frontier(df, unit="task")
    with pytest.raises(ValueError, match="no column 'cost'"):
        tl.stats.pareto_frontier(df, unit="cost")


@pytest.mark.slow
def test_points_make_a_frontier_of_every_amount():
    model = Scripted(lambda call: Reply(answer_to(call), input_tokens=9, output_tokens=call.attempt[0]))
    made = [run(tl.SelfConsistency(attempts=9), model=model, repeat=r) for r in range(6)]
    shown = tl.stats.pareto_frontier(points(made), by=["setting", "at"], unit="tokens")
    assert shown["at"].tolist() == [1, 2, 3, 4, 6, 8, 12]
    best = shown[shown["frontier"]]
    assert best["rate"].is_monotonic_increasing
    assert shown["tokens"].tolist() == [9, 19, 30, 42, 69, 100, 117]


# The baselines.


def test_the_baselines_are_those_the_field_asks_for():
    made = tl.baselines(attempts=7, temperature=0.7, max_tokens=100)
    assert list(made) == ["one answer", "chain of thought", "best of 7", "self-consistency of 7"]
    assert [strategy.max_calls(TASK) for strategy in made.values()] == [1, 1, 14, 7]
    for strategy in made.values():
        calls = [event for event in run(strategy).events if isinstance(event, Call)]
        assert {(call.temperature, call.max_tokens) for call in calls} == {(0.7, 100)}


def test_a_call_that_was_not_sent_has_no_flops_and_shifts_no_point():
    def reply(call):
        if call.attempt == (1,):
            return Reply(error="no model", sent=False)
        return Reply(f"Answer: {7 if call.attempt == (0,) else 8}", input_tokens=30, output_tokens=20)

    lab = tl.Lab(Scripted(reply), runs=None, roles={"answer": {"params": 1e9}})
    made = wait(lab.run(tl.SelfConsistency(attempts=4), TASK))
    each = 2e9 * 50
    by_flops = points(made, [0, each, 2 * each, 3 * each], unit="flops")
    by_calls = points(made, [0, 2, 3, 4])  # the second call takes no FLOPs
    assert list(by_flops.answer)[1:] == list(by_calls.answer)[1:] == ["7", "8", "8"]
