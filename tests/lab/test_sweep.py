"""Sweeps: what they ask, what they keep, what their table says, and that they go on after anything."""

import asyncio
import fcntl
import gc
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext, suppress
from pathlib import Path

import msgspec
import pandas as pd
import pytest
from support import TESTS, Scripted, answer_to, dice, wait
from support.endpoint import scripted
from support.sweeping import GRID, TASKS, Server, over_http, told

import tot_lab as tl
from tot_lab.analysis.sweep_tables import csv
from tot_lab.core.calls import Call, Halt
from tot_lab.lab.sweeps.axes import label_strategies
from tot_lab.lab.sweeps.sweep import Counts
from tot_lab.models.stack import Failure
from tot_lab.record.journal import JournalError
from tot_lab.record.losses import Losses


def swept(lab: tl.Lab, *arguments: object, **options: object) -> tl.Sweep:
    return wait(lab.sweep(*arguments, **options))


def table(sweep: tl.Sweep) -> str:
    """Its table without what may differ between two honest sweeps."""
    return sweep.df().drop(columns=["seconds", "seconds_alone", "paid"]).to_csv(index=False)


def broken(call: Call) -> str:
    """A model that fails at half of the calls."""
    if dice(call).random() < 0.5:
        raise Failure("out of order", status=500)
    return str(answer_to(call))


class Buggy(tl.OneAnswer):
    """Has a bug that shows when its call was answered."""

    kind = "buggy"

    def think(self, task, at="0"):
        yield from super().think(task, at)
        return 1 / 0


class Cursing(tl.OneAnswer):
    """Raises what no file can hold."""

    kind = "cursing"

    def think(self, task, at="0"):
        yield tl.Thought(at, None, task.question)
        raise ValueError("\ud800 <script>")


class Uncountable(tl.OneAnswer):
    """Has a bug in what tells of its calls."""

    kind = "uncountable"

    def max_calls(self, task):
        return 1 / 0


class Quitting(tl.OneAnswer):
    """Raises what asyncio cancels with."""

    kind = "quitting"

    def think(self, task, at="0"):
        yield from super().think(task, at)
        raise asyncio.CancelledError("enough")


class Strange(tl.OneAnswer):
    """Asks with a setting that no key can hold."""

    kind = "strange"

    def call(self, *given, **more):
        return msgspec.structs.replace(super().call(*given, **more), options={"x": float("nan")})


class GradedAs(tl.domains.General):
    """Gives the grade that the task names."""

    kind = "graded_as"

    def grade(self, task, answer):
        return {"True": True, "text": "yes", "NaN": float("nan"), "5": 5}[task.question]


class Ungradable(tl.domains.General):
    """Cannot be graded."""

    kind = "ungradable"

    def grade(self, task, answer):
        raise LookupError("no such grade")


# What is asked for.


def test_a_grid_is_every_combination_the_last_axis_fastest():
    assert [(s.propose.kind, s.search.width) for s in GRID] == [
        ("sample", 1), ("sample", 2), ("propose", 1), ("propose", 2),
    ]  # fmt: skip
    assert {s.stop.depth for s in GRID} == {2}
    assert [s.temperature for s in tl.grid(tl.presets.game24(), {"search.width": range(1, 3)})] == [0.7, 0.7]
    import numpy as np

    assert [s.search.width for s in tl.grid(tl.TreeOfThoughts, {"search.width": np.arange(1, 4)})] == [
        1,
        2,
        3,
    ]
    with pytest.raises(ValueError, match="did you mean 'search'"):
        tl.grid(tl.TreeOfThoughts, {"serch": ["mcts"]})
    with pytest.raises(ValueError, match=r"No strategy of the grid has a setting 'search\.widht'"):
        tl.grid(tl.TreeOfThoughts, {"search.widht": [1]})
    with pytest.raises(ValueError, match=r"'search\.width' must have at least one value"):
        tl.grid(tl.TreeOfThoughts, {"search.width": []})
    with pytest.raises(TypeError, match="strategy must be a strategy"):
        tl.grid(tl.general, seed=[1])


def test_labels_say_what_differs_and_nothing_else():
    lab = tl.Lab(Scripted(), runs=None)
    made = swept(lab, [*GRID[:2], tl.OneAnswer()], TASKS[0])
    assert list(made.settings) == [
        "TreeOfThoughts search.width=1", "TreeOfThoughts search.width=2", "OneAnswer",
    ]  # fmt: skip
    named = swept(lab, {"IO": tl.OneAnswer(), "ToT": GRID[::2]}, TASKS[0])
    assert list(named.settings) == ["IO", "ToT propose=sample", "ToT propose=propose"]
    depth = [tl.TreeOfThoughts(search=t, stop=tl.Stop(depth=2)) for t in ("beam", "best_first")]
    assert (
        list(swept(lab, depth, TASKS[0]).settings)[1] == "TreeOfThoughts search=best_first search.width=None"
    )


@pytest.mark.parametrize(
    ("strategies", "tasks", "options", "words"),
    [
        ([], TASKS, {}, "strategies must not be empty"),
        (tl.OneAnswer(), [], {}, "tasks must not be empty"),
        ([tl.OneAnswer(), tl.OneAnswer()], TASKS, {}, "'OneAnswer' and 'OneAnswer #2' are the same"),
        (tl.OneAnswer(), [TASKS[0], TASKS[0]], {}, "are the same. Use repeats= to run a task more than once"),
        (tl.OneAnswer(), TASKS, {"repeats": 0}, "repeats must be an integer of at least 1"),
        (tl.OneAnswer(), TASKS, {"at_once": 0}, "at_once must be at least 1"),
        (tl.OneAnswer(), TASKS, {"name": "../up"}, "name must be the name of a folder"),
        (tl.OneAnswer(), TASKS, {"name": ".."}, "name must be the name of a folder"),
        (tl.OneAnswer(), TASKS, {"name": ""}, "name must be the name of a folder"),
        ({"IO": tl.OneAnswer(), "ToT": []}, TASKS, {}, "'ToT' must have at least one strategy"),
        (tl.OneAnswer(), tl.general("x").model_copy(update={"data": {"x": object()}}), {}, "task 'x'"),
    ],
)  # fmt: skip
def test_bad_input_is_told_before_anything_is_asked(tmp_path, strategies, tasks, options, words):
    model = Scripted()
    with pytest.raises(ValueError, match=words):
        swept(tl.Lab(model, runs=tmp_path), strategies, tasks, **options)
    assert not model.calls


def constant(score):
    return lambda task, path: score


def test_lambdas_of_one_line_have_their_own_runs_and_a_changed_one_runs_again(tmp_path):
    def scores(sweep):
        return [run.tree["0.0"].score for run in sweep.runs()]

    tree, lab = tl.TreeOfThoughts(stop=tl.Stop(depth=1)), tl.Lab(Scripted(), runs=tmp_path)
    low, high = tree.with_(evaluate=lambda task, path: 0.25), tree.with_(evaluate=lambda task, path: 0.75)
    assert scores(swept(lab, {"low": low, "high": high}, TASKS[0], name="s")) == [0.25, 0.75]
    changed = tree.with_(evaluate=lambda task, path: 0.5)
    assert scores(swept(lab, {"low": changed}, TASKS[0], name="s")) == [0.5]
    again = [tree.with_(evaluate=lambda task, path, w=w: w) for w in (0.125, 0.625)]
    assert scores(swept(lab, again, TASKS[0], name="s")) == [0.125, 0.625]
    made = [constant(w) for w in (0.1, 0.2)]
    with pytest.raises(ValueError, match="Functions are compared by their source and defaults"):
        swept(lab, [tree.with_(evaluate=function) for function in made], TASKS[0])


def test_no_two_are_called_the_same_and_a_name_is_one_line():
    tasks = [tl.general(question, answer=k) for k, question in enumerate(["x", "x", "x #2", "y\0\ud7ff"])]
    made = swept(tl.Lab(Scripted(), runs=None), {"a\n\x1b[1m\ud800": tl.OneAnswer()}, tasks)
    assert list(made.tasks.values()) == tasks
    assert list(made.tasks) == ["x", "x #2", "x #2 #2", "y \ud7ff"]
    assert list(made.settings) == ["a [1m "]


def test_an_axis_may_have_any_name():
    inner = [tl.OneAnswer(), tl.ChainOfThought()]
    assert [s.strategy for s in tl.grid(tl.BestOf, strategy=inner)] == inner


def test_what_a_data_frame_holds_is_a_task_too(tmp_path):
    import numpy as np

    plain, read = (tl.general("How many?", answer=number, grade="number") for number in (26, np.int64(26)))
    one, two = (swept(tl.Lab(Scripted(), runs=tmp_path), tl.OneAnswer(), task) for task in (plain, read))
    assert two.found == 1
    assert two.df().equals(one.df())


@pytest.mark.nightly
def test_a_run_id_is_the_same_in_every_process():
    code = "import tot_lab as tl; from tot_lab.lab.sweeps.sweep import Sweep; "
    code += "task = tl.general('x').model_copy(update={'data': {'words': {'a', 'b', 'c', 'd', 'e'}}}); "
    code += "lab = tl.Lab('sim/general', runs=None); "
    code += "print(Sweep(lab.runner, tl.OneAnswer(), task, 1, 'x', None, runs=None).cells[0].run_id)"
    ids = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(3)
    }
    assert len(ids) == 1


def test_what_is_no_strategy_and_no_task_is_told():
    lab = tl.Lab(Scripted(), runs=None)
    with pytest.raises(TypeError, match="strategies must be instances such as"):
        swept(lab, tl.OneAnswer, TASKS)
    with pytest.raises(TypeError, match="task must be a Task"):
        swept(lab, tl.OneAnswer(), ["4 5 6 10"])


# The table.


@pytest.mark.slow
def test_the_table_has_the_columns_and_dtypes_that_it_says():
    both = [*GRID, tl.TreeOfThoughts(answer="best", stop=tl.Stop(depth=2), temperature=0.5), tl.OneAnswer()]
    frame = swept(tl.Lab(Scripted(), runs=None), both, TASKS, 2).df()
    dtypes = {
        "setting": "category", "strategy": "string", "temperature": "Float64",
        "propose": "category", "search.width": "Int64", "answer_setting": "category", "domain": "string",
        "task": "category",
        "task_number": "Int64", "repeat": "Int64", "correct": "boolean",
        "any_of_kept": "boolean", "score": "Float64",
        "answer_state": "string",
        "answer": "string", "stop_reason": "string", "error": "string",
        "calls": "Int64", "failed_calls": "Int64",
        **{f"{role}_{kind}": "Int64"
           for role in ("propose", "evaluate", "answer") for kind in Losses._fields},
        **{f"{role}_{name}_tokens": "Int64"
           for role in ("propose", "evaluate", "answer") for name in ("input", "output")},
        "input_tokens": "Int64", "output_tokens": "Int64", "cost": "Float64", "paid": "Float64",
        "seconds": "Float64", "flops": "Float64", "flops_prefix_once": "Float64",
        "seconds_alone": "Float64", "selected_strategy": "string", "strategy_used": "string",
        "simulated": "boolean", "run_id": "string",
    }  # fmt: skip
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == dtypes
    assert len(frame) == 6 * 2 * 2
    assert frame.run_id.is_unique
    assert list(frame.setting.cat.categories) == list(dict.fromkeys(frame.setting))
    places = list(zip(frame.setting.cat.codes, frame.task_number, frame["repeat"], strict=True))
    assert places == sorted(places)
    assert frame[frame.strategy == "one_answer"]["search.width"].isna().all()
    assert frame.correct.notna().all()


def test_counts_of_the_table_have_the_order_of_the_sweep_and_no_combination_that_does_not_occur():
    settings = {f"n={k}": tl.SelfConsistency(attempts=k) for k in (2, 10)}
    frame = swept(tl.Lab(Scripted(), runs=None), {**settings, "a": tl.TreeOfThoughts()}, TASKS[0]).df()
    assert list(frame.groupby("setting")["calls"].mean().index) == ["n=2", "n=10", "a"]
    assert frame.groupby(["setting", "strategy", "stop_reason"]).size().tolist() == [1, 1, 1]
    assert frame.value_counts(["strategy", "stop_reason", "correct"]).min() > 0


def test_a_setting_may_be_too_large_a_number_for_a_column():
    made = swept(tl.Lab(Scripted(), runs=None), tl.grid(tl.OneAnswer, seed=[1, 2**70]), TASKS[0])
    assert list(made.df().seed) == ["1", str(2**70)]


@pytest.mark.slow
def test_frames_of_nodes_and_calls_are_those_of_the_runs():
    made = swept(tl.Lab(Scripted(), runs=None), GRID, TASKS, 2)
    frame, nodes, calls = made.df(), made.nodes_df(), made.calls_df()
    assert list(nodes.columns[:4]) == list(calls.columns[:4]) == ["run_id", "setting", "task", "repeat"]
    assert nodes.columns.is_unique
    assert calls.columns.is_unique
    for _, row in frame.iterrows():
        run = made.run(row)
        assert run.id == row.run_id == made.run(row.run_id).id
        own = calls[calls.run_id == run.id].reset_index(drop=True)
        assert own.made.sum() == row.calls
        columns = [name for name in run.calls_df() if name != "repeat"]
        pd.testing.assert_frame_equal(own[columns], run.calls_df()[columns])
        assert (nodes.run_id == run.id).sum() == len(run.tree)
    assert [run.id for run in made.runs()] == list(frame.run_id)
    with pytest.raises(LookupError, match="got 'else', which is not in this sweep"):
        made.run("else")


def test_a_run_whose_journal_was_taken_away_is_told_of(tmp_path):
    made = swept(tl.Lab(Scripted(), runs=tmp_path), tl.OneAnswer(), TASKS[0])
    (path,) = (tmp_path / "sweep").iterdir()
    path.unlink()
    with pytest.raises(LookupError, match=f"{path} does not exist"):
        made.run(path.stem)


def test_an_answer_is_the_run_of_its_row(tmp_path):
    lab = tl.Lab(Scripted(), runs=tmp_path)
    made = swept(lab, tl.OneAnswer(), TASKS, 2)
    for row in made.df().itertuples():
        run = made.run(row)
        assert run.path == tmp_path / "sweep" / f"{row.run_id}.jsonl"
        alone = wait(
            tl.Lab(Scripted(), runs=None).run(tl.OneAnswer(), TASKS[row.task_number], repeat=row.repeat)
        )
        assert (run.answer, run.grade, run.events) == (row.answer, row.score, alone.events)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_table_does_not_depend_on_what_finishes_first(seed):
    roll = random.Random(seed)
    made = swept(tl.Lab(Scripted(latency=lambda call: roll.random() * 0.005), runs=None), GRID, TASKS, 2)
    assert table(made) == table(swept(tl.Lab(Scripted(), runs=None), GRID, TASKS, 2, at_once=1))


# Calls.


@pytest.mark.slow
def test_settings_share_equal_calls_and_the_counts_say_so(tmp_path):
    model = scripted()
    lab = tl.Lab(model, runs=tmp_path / "runs", cache=tmp_path / "cache")
    made = swept(lab, GRID, TASKS, 2)
    keys = {
        (call.prompt, call.sample_index, call.repeat, call.purpose)
        for calls in model.requests
        for call in calls
    }
    sent = sum(len(calls) for calls in model.requests)
    asked = int(made.df().calls.sum())
    assert made.counts == Counts(asked, len(keys), sent, asked - sent)
    assert sent == len(keys) < asked
    assert made.df().paid.sum() == lab.spent == sent
    assert made.df().cost.sum() == asked


@pytest.mark.slow
def test_a_rerun_in_replay_mode_is_the_same_to_the_byte_and_asks_nothing(tmp_path):
    first = swept(tl.Lab(scripted(), runs=tmp_path, cache=tmp_path / "cache"), GRID, TASKS, 2)
    model = scripted()
    again = tl.Lab(model, runs=None, cache=tmp_path / "cache", mode="replay")
    made = swept(again, GRID, TASKS, 2)
    assert table(made) == table(first)
    assert not model.requests
    assert (made.counts.paid, made.df().paid.sum()) == (0, 0.0)


@pytest.mark.slow
def test_runs_under_way_are_as_many_as_the_model_takes_calls(tmp_path):
    model = scripted(concurrency=3, seconds=0.002)
    swept(tl.Lab(model, runs=None, mode="off"), tl.OneAnswer(), TASKS, 10)
    assert model.max_at_once == 3
    model = scripted(concurrency=8, seconds=0.002)
    swept(tl.Lab(model, runs=None, mode="off"), tl.OneAnswer(), TASKS, 10, at_once=2)
    assert model.max_at_once == 2


def test_of_a_task_the_setting_with_the_most_calls_goes_first():
    model = Scripted()
    swept(tl.Lab(model, runs=None), [tl.OneAnswer(), *GRID], TASKS, at_once=1)
    kinds = [("3" in call.prompt, call.purpose == "answer") for call in model.calls]
    assert kinds.index((True, True)) == kinds.index((False, False)) - 1
    assert kinds[-1] == (False, True)


@pytest.mark.slow
def test_a_budget_is_each_runs_own_and_spend_is_over_all(tmp_path):
    model = scripted(concurrency=1)
    capped = swept(tl.Lab(model, runs=None, mode="off"), GRID, TASKS, budget=tl.Budget(calls=3))
    assert list(capped.df().calls) == [3] * 8
    lab = tl.Lab(scripted(concurrency=1), runs=tmp_path, cache=tmp_path / "cache", spend=5.0)
    poor = swept(lab, GRID, TASKS)
    assert lab.spent == 5.0
    assert "budget:spend" in set(poor.df().stop_reason)
    rich = swept(tl.Lab(scripted(), runs=tmp_path, cache=tmp_path / "cache"), GRID, TASKS)
    assert table(rich) == table(swept(tl.Lab(scripted(), runs=None, mode="off"), GRID, TASKS))
    assert rich.runner.spent == rich.counts.distinct, "no call was paid twice; earlier payments count"


@pytest.mark.slow
def test_an_estimate_says_what_is_left_and_invents_no_price(tmp_path):
    lab = tl.Lab(scripted(), runs=tmp_path, cache=tmp_path / "cache")
    estimate = wait(lab.estimate_sweep(GRID, TASKS))
    most = 2 * sum(s.max_calls(TASKS[0]) for s in GRID)
    assert estimate[:4] == (8, 0, 0, 0)
    assert estimate.calls == (most, None, None, None)
    assert estimate.cost == (most, None, None, None)  # a dollar a call
    made = swept(lab, GRID, TASKS[:1])
    half = wait(lab.estimate_sweep(GRID, TASKS))
    assert half[:2] == (8, 4)
    assert half.calls.bound == most / 2
    assert half.cost.expected == made.counts.distinct < made.df().cost.sum()
    assert half.cost.low is None, "one task says nothing about how much tasks differ"
    assert half.flops == (None,) * 4
    done = wait(lab.estimate_sweep(GRID, TASKS[:1]))
    assert done[:3] == (4, 4, 0)
    assert {*done[6:]} == {(0.0, 0.0, 0.0, 0.0)}
    fresh = tl.Lab(scripted(), runs=None, cache=tmp_path / "fresh")
    capped = wait(fresh.estimate_sweep(GRID, TASKS, budget=tl.Budget(calls=2)))
    assert (capped.calls.bound, capped.cost.bound) == (16, 16)


def test_an_estimate_stops_at_no_damage_and_no_bug(tmp_path):
    lab = tl.Lab(Scripted(), runs=tmp_path)
    swept(lab, tl.OneAnswer(), TASKS)
    spoilt, _ = sorted((tmp_path / "sweep").iterdir())
    spoilt.write_bytes(spoilt.read_bytes() + b"?\n")
    spoilt_only = wait(lab.estimate_sweep(tl.OneAnswer(), TASKS))
    assert (spoilt_only[:2], spoilt_only.calls.bound) == ((2, 2), 0)
    endless = wait(lab.estimate_sweep(Uncountable(), TASKS))
    assert (endless[:2], endless.calls.bound) == ((2, 0), None)
    assert "no bound on the calls of Uncountable: max_calls is None" in str(endless)
    assert wait(lab.estimate_sweep(Uncountable(), TASKS, budget=tl.Budget(calls=3))).calls.bound == 6


# Faults.


def test_what_goes_wrong_is_a_row_and_stops_nothing_else(tmp_path):
    strange = tl.Task(domain=Ungradable(), question="How many?")
    made = swept(tl.Lab(Scripted(), runs=tmp_path), [Buggy(), tl.OneAnswer()], [TASKS[0], strange])
    frame = made.df().set_index(["strategy", "task_number"])
    assert frame.loc[("buggy", 0), "error"] == "ZeroDivisionError: division by zero"
    assert frame.loc[("buggy", 0), "stop_reason"] == "error"
    assert frame.loc[("buggy", 0), "calls"] == 1
    assert frame.loc[("one_answer", 1), "error"] == "the answer cannot be graded: LookupError: no such grade"
    assert frame.loc[("one_answer", 1), "stop_reason"] == "answered"
    assert pd.isna(frame.loc[("one_answer", 1), "correct"])
    assert pd.isna(frame.loc[("one_answer", 0), "error"])
    assert made.run(made.df().iloc[0]).error == "ZeroDivisionError: division by zero"


def test_a_grade_that_is_none_is_a_row():
    tasks = [tl.Task(domain=GradedAs(), question=question) for question in ("True", "text", "NaN", "5")]
    frame = swept(tl.Lab(Scripted(), runs=None), tl.OneAnswer(), tasks).df()
    assert (frame.score[0], frame.correct[0]) == (1.0, True)
    assert frame.score[1:].isna().all()
    assert frame.correct[1:].isna().all()
    assert list(frame.error.str.startswith("the answer cannot be graded", na=False)) == [False] + 3 * [True]


def test_a_strategy_cannot_cancel_the_sweep():
    made = swept(tl.Lab(Scripted(), runs=None), [Quitting(), tl.OneAnswer()], TASKS, at_once=1)
    assert [row.error for row in made.df().itertuples()][:2] == ["CancelledError: enough"] * 2
    assert len(made.rows) == 4


def test_calls_that_have_no_key_are_counted_all_the_same():
    unknown = tl.OneAnswer(model="sim/nobody")
    made = swept(tl.Lab(Scripted(), runs=None), [unknown, Strange(), tl.OneAnswer()], TASKS[0])
    assert list(made.df().failed_calls) == [1, 0, 0]
    assert made.counts == (3, 3, 3, 0)


@pytest.mark.slow
def test_a_model_that_fails_half_the_time_costs_branches_not_the_sweep():
    made = swept(tl.Lab(scripted(broken, retries=0), runs=None, mode="off"), GRID, TASKS, 2)
    frame = made.df()
    assert len(frame) == 16
    assert 0.25 < frame.failed_calls.sum() / frame.calls.sum() < 0.75
    assert frame.error.notna().tolist() == (frame.stop_reason == "error").tolist(), (
        "where nothing was answered, and nowhere else"
    )
    assert frame.error.isna().any()
    assert frame.stop_reason.notna().all()
    assert frame.failed_calls.sum() == made.calls_df().error.notna().sum()


def test_a_call_that_a_replay_lacks_is_a_row(tmp_path):
    cache = tmp_path / "cache"
    swept(tl.Lab(scripted(), runs=None, cache=cache), tl.OneAnswer(), TASKS[:1])
    frame = swept(tl.Lab(scripted(), runs=None, cache=cache, mode="replay"), tl.OneAnswer(), TASKS).df()
    assert pd.isna(frame.error[0])
    assert frame.error[1].startswith("CacheMiss: replay:")


@pytest.mark.slow
def test_the_same_sweep_again_reads_what_is_finished(tmp_path):
    first = swept(tl.Lab(Scripted(), runs=tmp_path), GRID, TASKS[:1], 2)
    model = Scripted()
    same = swept(tl.Lab(model, runs=tmp_path), GRID, TASKS[:1], 2)
    assert (same.found, len(model.calls)) == (8, 0)
    assert same.df().to_csv() == first.df().to_csv()
    assert same.counts == first.counts
    more = swept(tl.Lab(model, runs=tmp_path), GRID, TASKS, 2)
    assert more.found == 8, "another sweep shares the runs that it has in common with this one"
    assert len(model.calls) == more.df().calls[more.df().task_number == 1].sum()


@pytest.mark.slow
def test_what_was_found_is_counted_while_others_go_on(tmp_path):
    first = swept(tl.Lab(Scripted(), runs=tmp_path), GRID, TASKS)
    for run_id in first.df().run_id[::2]:
        path = tmp_path / "sweep" / f"{run_id}.jsonl"
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:6]))
    again = swept(tl.Lab(Scripted(), runs=tmp_path), GRID, TASKS)
    assert (again.found, table(again)) == (4, table(first))


@pytest.mark.slow
def test_runs_from_before_are_read_before_any_new_one_is_made(tmp_path):
    """Otherwise an interruption soon after would count too few of them."""
    swept(tl.Lab(Scripted(), runs=tmp_path), tl.OneAnswer(), TASKS)
    found = []
    model = Scripted(lambda call: found.append(lab.last_sweep.found) or answer_to(call))
    lab = tl.Lab(model, runs=tmp_path)
    sweep = swept(lab, {"costly": tl.SelfConsistency(attempts=3), "known": tl.OneAnswer()}, TASKS, at_once=1)
    assert found[0] == len(TASKS)  # although the setting with the most calls goes first
    assert f"{len(TASKS)} of them loaded from an earlier sweep" in repr(sweep)
    assert f"and {len(TASKS)} new" in repr(sweep)


def test_the_printed_rates_have_their_intervals():
    sweep = swept(tl.Lab(Scripted(), runs=None), tl.OneAnswer(), TASKS)
    (rate,) = tl.stats.success_rates(sweep).itertuples()
    assert f"{rate.rate:.1%}   {rate.low:.1%} – {rate.high:.1%}" in repr(sweep)
    assert f"<td>{rate.low:.1%} – {rate.high:.1%}</td>" in sweep._repr_html_()


def test_a_sweep_without_any_grade_says_so_below_its_table():
    lab = tl.Lab(Scripted(), runs=None)
    text = "! no run is graded: the tasks have no answer to compare with. Pass answer= and grade="
    nothing = swept(lab, tl.OneAnswer(), [tl.general("How many?"), tl.general("How few?")])
    assert repr(nothing).splitlines()[-1] == text
    assert text in nothing._repr_html_()
    assert "no run is graded" not in repr(swept(lab, tl.OneAnswer(), [tl.general("How many?"), TASKS[0]]))
    assert "no run is graded" not in repr(swept(lab, Buggy(), tl.general("How many?"))), "they failed"


@pytest.mark.parametrize(
    ("errors", "line"),
    [
        (["CacheMiss: a.", "CacheMiss: b.", "CacheMiss: a."], "all like the first: CacheMiss: a."),
        (["CacheMiss: a.", "KeyError: 'a'", "CacheMiss: b."], "2 of them like the first: CacheMiss: a."),
        (["KeyError: 'a'", "CacheMiss: a.", "CacheMiss: b."], "1 of them with: KeyError: 'a'"),
        (["KeyError: 'a'"] * 3, "all with: KeyError: 'a'"),
        (["refused: $1 was left", "refused. Nothing was left", "timeout"], "2 of them like the first: refu"),
    ],
)
def test_errors_of_one_kind_are_counted_together(errors, line):
    sweep = swept(tl.Lab(Scripted(), runs=None), tl.OneAnswer(), TASKS[0], len(errors))
    for cell, error in zip(sweep.cells, errors, strict=True):
        sweep.rows[cell.run_id] = msgspec.structs.replace(sweep.rows[cell.run_id], error=error)
    assert f"! 3 of 3 runs failed, without a grade, {line}" in repr(sweep)


def test_the_table_has_the_ids_of_the_tasks_if_there_are_any():
    lab = tl.Lab(Scripted(), runs=None)
    assert "task_id" not in swept(lab, tl.OneAnswer(), TASKS).df()
    named = TASKS[0].model_copy(update={"id": "p07"})
    frame = swept(lab, [tl.OneAnswer(), tl.ChainOfThought()], [TASKS[1], named]).df()
    assert frame.task_id.dtype == "string"
    assert frame.task_id.fillna("none").tolist() == ["none", "p07"] * 2


def test_averages_over_runs_that_a_budget_ended_say_so():
    options = {"budget": tl.Budget(calls=2)}
    sweep = swept(tl.Lab(Scripted(), runs=None), [tl.SelfConsistency(attempts=5)], TASKS, **options)
    assert f"{len(TASKS)} of {len(TASKS)} runs: spent the budget of calls" in repr(sweep)
    assert "a budget" not in repr(swept(tl.Lab(Scripted(), runs=None), tl.OneAnswer(), TASKS, **options))


def test_another_model_budget_or_role_is_another_run(tmp_path):
    ids = set()
    for model, options, budget in [
        ("sim/general", {}, None),
        ("sim/game24", {}, None),
        ("sim/general", {"roles": {"answer": {"temperature": 0.5}}}, None),
        ("sim/general", {}, tl.Budget(calls=5)),
    ]:
        lab = tl.Lab(model, runs=None, **options)
        ids |= set(swept(lab, tl.OneAnswer(), TASKS[0], budget=budget).df().run_id)
    assert len(ids) == 4
    one, two = (swept(tl.Lab(scripted(concurrency=k), runs=None, mode="off"), GRID, TASKS) for k in (1, 9))
    assert list(one.df().run_id) == list(two.df().run_id), "a limit changes no answer"


def test_damage_is_a_row_and_a_journal_without_a_header_is_begun_anew(tmp_path):
    first = swept(tl.Lab(Scripted(), runs=tmp_path), tl.OneAnswer(), TASKS)
    empty, spoilt = (tmp_path / "sweep" / f"{run_id}.jsonl" for run_id in first.df().run_id)
    empty.write_bytes(empty.read_bytes()[:20])
    lines = spoilt.read_bytes().split(b"\n")
    spoilt.write_bytes(b"\n".join([lines[0], b"?", *lines[2:]]))
    again = swept(tl.Lab(Scripted(), runs=tmp_path), tl.OneAnswer(), TASKS)
    assert again.df().iloc[0].answer == first.df().iloc[0].answer
    row = again.df().iloc[1]
    assert row.error.startswith(JournalError.__name__)
    assert f"{spoilt}, line 2" in row.error
    assert pd.isna(row.stop_reason)


def test_the_journal_of_another_run_is_not_taken_for_this_one(tmp_path):
    first = swept(tl.Lab(Scripted(), runs=tmp_path), tl.OneAnswer(), TASKS)
    one, two = (tmp_path / "sweep" / f"{run_id}.jsonl" for run_id in first.df().run_id)
    two.write_bytes(one.read_bytes())
    frame = swept(tl.Lab(Scripted(), runs=tmp_path), tl.OneAnswer(), TASKS).df()
    assert pd.isna(frame.error[0])
    assert frame.error[1] == f"JournalError: {two}: this journal belongs to another run: got {one.stem!r}."


@pytest.mark.slow
def test_a_journal_that_another_process_holds_is_left_to_it_and_read(tmp_path):
    first = swept(tl.Lab(Scripted(), runs=tmp_path), tl.OneAnswer(), TASKS[0])
    (path,) = (tmp_path / "sweep").iterdir()
    whole = path.read_bytes()
    path.write_bytes(b"")
    theirs = path.open("r+b")
    fcntl.flock(theirs, fcntl.LOCK_EX)

    def finish():
        theirs.write(whole)
        theirs.close()

    threading.Timer(0.2, finish).start()
    model = Scripted()
    again = swept(tl.Lab(model, runs=tmp_path), tl.OneAnswer(), TASKS[0])
    assert (again.found, table(again), model.calls) == (1, table(first), [])


@pytest.mark.slow
@pytest.mark.nightly
def test_two_processes_at_one_sweep_have_the_same_whole_table(tmp_path):
    make = """
import asyncio, sys, tot_lab as tl
lab = tl.Lab("sim/game24", runs=sys.argv[1])
sweep = asyncio.run(lab.sweep(tl.grid(tl.TreeOfThoughts, {'search.width': [1, 2, 3]}), tl.game24_tasks(20)))
sys.stdout.write(sweep.df().drop(columns=["seconds", "seconds_alone"]).to_csv())
"""
    both = [
        subprocess.Popen(
            [sys.executable, "-c", make, tmp_path],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(tl.__file__).parent.parent)},
        )
        for _ in range(2)
    ]
    one, two = (process.communicate(timeout=120)[0] for process in both)
    lab = tl.Lab("sim/game24", runs=tmp_path / "alone")
    alone = swept(lab, tl.grid(tl.TreeOfThoughts, {"search.width": [1, 2, 3]}), tl.game24_tasks(20))
    assert one == two == alone.df().drop(columns=["seconds", "seconds_alone"]).to_csv()


@pytest.mark.slow
def test_labels_of_many_settings_take_no_time():
    grid = tl.grid(tl.TreeOfThoughts, {"search.width": range(1, 41), "propose.count": range(1, 51)})
    assert (
        len(label_strategies(grid))
        == len(label_strategies({f"s{k}": one for k, one in enumerate(grid)}))
        == 2000
    )


def test_a_folder_that_cannot_be_made_is_told_before_anything_is_asked(tmp_path):
    (tmp_path / "runs").write_text("no folder")
    model = Scripted()
    with pytest.raises(OSError, match="runs/sweep"):
        swept(tl.Lab(model, runs=tmp_path / "runs"), tl.OneAnswer(), TASKS)
    assert not model.calls


@pytest.mark.slow
@pytest.mark.parametrize("workers", [False, True])
def test_a_full_disk_costs_files_and_no_runs(tmp_path, small_disk, workers):
    small = small_disk(24)

    async def sweep(client=None):
        return await tl.Lab(Scripted(), runs=small).sweep(tl.OneAnswer(), TASKS, 10, client=client)

    async def with_workers():
        distributed = pytest.importorskip("distributed")
        async with (
            distributed.LocalCluster(
                n_workers=1,
                processes=False,
                dashboard_address=":0",
                asynchronous=True,
                local_directory=str(tmp_path / "dask"),
            ) as cluster,
            distributed.Client(cluster, asynchronous=True) as client,
        ):
            return await sweep(client)

    with pytest.warns(RuntimeWarning, match="in memory only"):
        made = wait(with_workers() if workers else sweep())
    assert made.df().error.isna().all()
    assert [run.answer for run in made.runs()] == list(made.df().answer)
    assert 0 < len(made.in_memory) < 20


@pytest.mark.slow
def test_sweeps_at_one_time_leave_the_collector_as_it_was():
    before = gc.get_threshold()

    async def both():
        short, long = (tl.Lab(Scripted(latency=lambda _, s=s: s), runs=None) for s in (0.05, 0.1))
        first = asyncio.create_task(short.sweep(tl.OneAnswer(), TASKS))
        await asyncio.sleep(0.01)
        await asyncio.gather(first, long.sweep(tl.OneAnswer(), TASKS))

    try:
        wait(both())
        assert gc.get_threshold() == before
    finally:
        gc.set_threshold(*before)


@pytest.mark.parametrize("fails", [False, True])
def test_a_run_collects_seldom_and_leaves_the_collector_as_it_was(fails):
    before, during = gc.get_threshold(), []

    async def model(call):
        during.append(gc.get_threshold())
        if fails:
            raise Halt("the model is gone")
        return "Answer: 42"

    try:
        with pytest.raises(Halt) if fails else nullcontext():
            wait(tl.Lab(model, runs=None).run(tl.OneAnswer(), TASKS[0]))
        assert gc.get_threshold() == before
        assert during[0][0] >= 1_000_000  # a run that another test left in a closed loop may hold it there
    finally:
        gc.set_threshold(*before)


@pytest.mark.slow
def test_a_cancelled_sweep_is_usable_and_goes_on(tmp_path):
    lab = tl.Lab(Scripted(latency=lambda call: 0.002), runs=tmp_path)

    async def cut_off():
        going = asyncio.create_task(lab.sweep(GRID, TASKS, 3, at_once=2))
        while not (lab.last_sweep and len(lab.last_sweep.rows) >= 3):
            await asyncio.sleep(0.001)
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going

    wait(cut_off())
    partial = lab.last_sweep
    done = len(partial.rows)
    assert 3 <= done < 24
    assert len(partial.df()) == done
    assert f"{done} of 24 runs" in repr(partial)
    assert partial.nodes_df().run_id.nunique() == done
    model = Scripted()
    whole = swept(tl.Lab(model, runs=tmp_path), GRID, TASKS, 3)
    assert done <= whole.found <= done + 2  # a run may be on the disk whole, but without a row yet
    assert table(whole) == table(swept(tl.Lab(Scripted(), runs=None), GRID, TASKS, 3))
    answered = {told(e) for run in partial.runs() for e in run.events if isinstance(e, Call)}
    asked_anew = {told(call) for run in whole.runs() for call in model.calls} - answered
    assert len(asked_anew) < len({told(e) for run in whole.runs() for e in run.events if isinstance(e, Call)})


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_killed_ten_times_it_goes_on_and_pays_no_call_twice(tmp_path):
    server = Server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1]
    began = time.perf_counter()
    expected = swept(over_http(port, str(tmp_path / "whole"), "auto"), GRID, TASKS, 8)
    took = time.perf_counter() - began
    needed, server.asked = set(server.asked), []
    code = f"import sys; sys.path.insert(0, {str(TESTS)!r}); from support import sweeping; "
    code += f"sweeping.children({port}, {str(tmp_path)!r})"
    roll, kills, ends = random.Random(), [], []
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        for _ in range(10):
            print("go", file=parent.stdin, flush=True)
            child = int(parent.stdout.readline())
            before, began = len(server.asked), time.perf_counter()
            while len(server.asked) == before and time.perf_counter() - began < 2:
                time.sleep(0.001)  # it starts
            time.sleep(roll.random() * took / 8)
            with suppress(ProcessLookupError):  # it had come to its end
                os.kill(child, signal.SIGKILL)
            ends.append(int(parent.stdout.readline()))
            kills.append((len(server.asked), kept_in(tmp_path)))
        parent.stdin.close()
    whole = swept(over_http(port, str(tmp_path), "auto"), GRID, TASKS, 8)
    assert table(whole) == table(expected)
    assert needed == set(server.asked)
    for before, kept in kills:
        assert not kept & set(server.asked[before:]), "what was on the disk at a kill was asked again"
    assert set(ends) <= {0, -signal.SIGKILL}
    assert any(0 < len(kept) < len(needed) for _, kept in kills), "a kill came in the middle"
    again = swept(over_http(port, str(tmp_path), "replay"), GRID, TASKS, 8)
    assert (again.found, table(again)) == (64, table(expected))
    server.shutdown()
    server.server_close()


def kept_in(folder: Path) -> set[tuple[str, int, int]]:
    """The calls that a journal or the cache holds the answer to."""
    kept = set()
    for path in (folder / "runs" / "sweep").glob("*.jsonl"):
        if b"\n" in path.read_bytes():
            run = tl.load(path)
            answered = {line.p for line in run.lines if isinstance(line.e, tl.Reply) and not line.e.error}
            kept |= {told(line.e) for line in run.lines if isinstance(line.e, Call) and line.p in answered}
    if (folder / "cache").exists():
        requests = [entry.request for _, entry in tl.Cache(folder / "cache").entries()]
        kept |= {(r.messages[0].content, r.sample_index, r.repeat) for r in requests}
    return kept


# What is shown, and files.


def test_what_is_shown_says_how_far_it_is_and_escapes_labels():
    made = swept(tl.Lab("sim/general", runs=None), {"<b>": tl.OneAnswer()}, TASKS)
    assert "2 of 2 runs" in repr(made)
    assert "simulated" in repr(made)
    assert "&lt;b&gt;" in made._repr_html_()
    assert "<b>" not in made._repr_html_()


IN_A_PIPE = """
import asyncio, sys
from pathlib import Path
import tot_lab as tl
from tot_lab.lab.sweeps import progress

progress.SILENT = 0.05
gate, strategies = Path(sys.argv[1]), {"a": tl.OneAnswer(), "b": tl.ChainOfThought()}

async def player(call):
    while not gate.exists():
        await asyncio.sleep(0.01)
    return "Answer: 26"

tasks = [tl.general(f"How many legs have {k} ducks?", answer=2 * k, grade="number") for k in range(10)]
asyncio.run(tl.Lab(player, runs=None).sweep(strategies, tasks, name="ducks"))
"""


@pytest.mark.nightly
def test_a_sweep_whose_stderr_is_a_pipe_prints_lines(tmp_path):
    """Nothing here depends on how fast it is: no run can finish before lines without one were read."""
    gate = tmp_path / "gate"
    line = re.compile(
        r"ducks: (\d+) of 20 runs \((\d+)%\) · elapsed \d+:\d\d · left (unknown|\d+:\d\d) · paid \$0\n"
    )
    command = [sys.executable, "-c", IN_A_PIPE, str(gate)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
                          env={**os.environ, "PYTHONIOENCODING": "utf-8"}) as made:  # fmt: skip
        waiting = line.fullmatch(made.stderr.readline())
        assert (waiting[1], waiting[3]) == ("0", "unknown")
        time.sleep(0.3)  # six times the pause after which it was printed
        gate.touch()
        lines = [line.fullmatch(text) for text in made.stderr]
        assert made.wait() == 0
        assert made.stdout.read() == ""
    assert all(lines)
    assert [int(found[1]) for found in lines] == [2, 4, 6, 8, 10, 12, 14, 16, 18, 20]
    assert all(found[3] != "unknown" for found in lines)
    assert (lines[-1][1], lines[-1][2], lines[-1][3]) == ("20", "100", "0:00")


@pytest.mark.slow
def test_a_reader_that_goes_away_does_not_stop_the_sweep(tmp_path):
    gate = tmp_path / "gate"
    command = [sys.executable, "-c", IN_A_PIPE + "\nprint('whole')", str(gate)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as made:
        made.stderr.readline()
        made.stderr.close()
        gate.touch()
        assert made.stdout.read().strip() == b"whole"


@pytest.mark.slow
def test_a_table_is_saved_with_where_it_comes_from(tmp_path):
    made = swept(
        tl.Lab(scripted(), runs=None, cache=tmp_path / "cache"),
        {"a_b & c": GRID, "IO": tl.OneAnswer()},
        TASKS,
    )
    assert tl.stats.lost_calls(made).query("role == 'evaluate'")["unreadable_share"].gt(0.05).any()
    with pytest.warns(UserWarning, match="were lost"):
        csv = made.save(tmp_path / "paper.csv")
    assert csv.read_text() == made.df().to_csv(index=False)
    told = json.loads((tmp_path / "paper.csv.json").read_text())
    assert told["tot_lab"] == tl.__version__
    assert told["model"]["label"] == "scripted"
    assert told["calls"] == made.counts._asdict()
    assert told["runs"] == {"finished": 10, "graded": 10, "of": 10}
    with pytest.warns(UserWarning, match="were lost"):
        tex = made.save(tmp_path / "paper.tex").read_text()
    assert tex.startswith("% success: ")
    assert json.loads((tmp_path / "paper.provenance.json").read_text())["model"] == told["model"]
    assert r"a\_b \& c" in tex
    assert tex.count(r" \\") == 6
    with pytest.raises(ValueError, match=r"\.parquet, \.csv or \.tex"):
        made.save(tmp_path / "paper.xlsx")


class Saying(tl.OneAnswer):
    """Gives the answer that it is told."""

    kind = "saying"
    text: str

    def think(self, task, at="0"):
        yield tl.Thought(at, None, task.question)
        return tl.Answer(self.text, "answered", at)


@pytest.mark.slow
def test_no_text_breaks_a_file(tmp_path):
    texts = ["a\rb", "a\r\nb", 'q"u,o', "nul\0", "\u2028", "NA", "=1+1", "<script>", "end\\"]
    settings = {f"{text}\ud800": Saying(text=text) for text in texts}
    made = swept(tl.Lab(Scripted(), runs=None), settings, TASKS[0])
    table = pd.read_csv(made.save(tmp_path / "a.csv"), keep_default_na=False)
    assert list(table.answer.str.removeprefix("'")) == texts
    assert list(pd.read_parquet(made.save(tmp_path / "a.parquet")).answer) == texts
    cursed = swept(tl.Lab(Scripted(), runs=None), Cursing(), TASKS[0])
    assert pd.read_csv(cursed.save(tmp_path / "b.csv")).error[0] == "ValueError: ? <script>"
    assert made.save(tmp_path / "a.tex").read_text(encoding="utf-8").count("\\\\\n") == len(texts) + 1


@pytest.mark.slow
def test_a_text_is_no_formula_in_a_spreadsheet_and_a_number_stays_one(tmp_path):
    formulas = ["=A1", "+1+cmd|x", "-2+3", "- a list", "@SUM(1)", " =1", "\t=1", "＝1", "'"]
    plain = ["-5", "+.5e-3", "(1 - 2) = 3", "a=b", "10 - 6 = 4"]
    settings = {text: Saying(text=text) for text in [*formulas, *plain]}
    made = swept(tl.Lab(Scripted(), runs=None), settings, TASKS[0])
    table = pd.read_csv(made.save(tmp_path / "a.csv"), dtype={"answer": "str", "text": "str"})
    assert list(table["answer"]) == [f"'{text}" for text in formulas] + plain
    for column in ("setting", "text", "answer"):
        assert list(table[column].str.removeprefix("'")) == list(made.df()[column])
    frame = pd.DataFrame({"n": [-1, -2.5], "text": ["-x", None]})
    assert csv(frame) == "n,text\r\n-1.0,'-x\r\n-2.5,\r\n"


@pytest.mark.slow
def test_a_label_is_no_option_of_latex(tmp_path):
    made = swept(
        tl.Lab(Scripted(), runs=None), {"[2cm] <b>": tl.OneAnswer(), "*|": tl.ChainOfThought()}, TASKS[0]
    )
    rows = made.save(tmp_path / "a.tex").read_text().partition("\\midrule\n")[2].splitlines()
    assert rows[0].startswith(r"{[}2cm] \textless{}b\textgreater{} &")
    assert rows[1].startswith(r"{*}\textbar{} &")


@pytest.mark.slow
def test_parquet_keeps_dtypes_and_provenance(tmp_path):
    made = swept(tl.Lab("sim/general", runs=None), GRID, TASKS)
    back = pd.read_parquet(made.save(tmp_path / "paper.parquet"))
    pd.testing.assert_frame_equal(back, made.df(), check_categorical=False)
    assert back.attrs["simulated"] is True
    assert back.attrs["model"]["kind"] == "sim/general"
    import pyarrow.parquet as parquet

    assert b'"tot_lab"' in parquet.read_schema(tmp_path / "paper.parquet").metadata[b"PANDAS_ATTRS"]


@pytest.mark.slow
def test_a_model_that_was_away_is_said_and_asked_again(tmp_path):
    state = {"away": True}

    async def model(call):
        if state["away"]:
            raise ConnectionError("no server there")
        return "Answer: 4 * 5 + 10 - 6"

    lab = tl.Lab(model, runs=tmp_path)
    away = swept(lab, tl.baselines(2), TASKS)
    assert away.df().error.str.contains("no server there").all()
    with pytest.warns(UserWarning, match="answer calls failed"):
        rates = tl.stats.success_rates(away)
    assert rates.errors.tolist() == [len(TASKS)] * 4
    assert rates.runs.tolist() == [0] * 4  # an answer that was never given is not wrong
    assert away.df().correct.isna().all()
    assert rates.rate.isna().all()
    state["away"] = False
    back = swept(lab, tl.baselines(2), TASKS)
    assert back.found == 0
    assert back.df().error.isna().all()
    assert set(back.df().answer) == {"4 * 5 + 10 - 6"}
    assert swept(lab, tl.baselines(2), TASKS).found == len(back.cells)


@pytest.mark.slow
def test_the_folder_of_a_sweep_is_its_runs(tmp_path):
    made = swept(tl.Lab(Scripted(), runs=tmp_path), GRID, TASKS, 2)
    runs = tl.load(made.folder)
    assert {run.id for run in runs} == set(made.rows)
    with pytest.warns(UserWarning, match="evaluate replies unreadable"):
        assert tl.stats.success_rates(runs).solved.sum() == made.df().correct.sum()
    assert [one.whole for one in tl.counterfactual(made, GRID[0])] == [True] * 4
