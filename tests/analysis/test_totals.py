"""The rows of every table of a run add up to the run's totals, whatever strategy made it."""

import pandas as pd
import pytest
from support.contract import MADE, every_strategy, trial_of
from support.counted import counted

import tot_lab as tl
from tot_lab.analysis.tables import runs_df
from tot_lab.core.calls import Reply
from tot_lab.core.tools import asks_no_model

ROWS = {
    "plan_execute": {"plan", "act", "review"},
    "gather_then_think": {"act", "branch", "develop", "converge"},
    "tree_then_act": {"propose", "act"},
    "deep_think": set(),
}
"""Purposes that have rows in `steps_df`, for some strategies. A run without turns and tools has no rows."""

AMOUNTS = ("input_tokens", "output_tokens", "cost", "paid")


def add_up(run):
    """Compare the sums of each table with the totals, which are counted from the records."""
    answered = [line for line in run.lines if isinstance(line.e, Reply)]
    calls = {line.p: line.e for line in run.lines if isinstance(line.e, tl.Call)}
    replies = [line.e for line in answered if not asks_no_model(calls[line.p])]
    made = [reply for reply in replies if not (reply.error or "").startswith("budget:")]
    total = {name: sum(getattr(one, name) or 0 for one in made) for name in AMOUNTS[:3]}
    assert run.usage.calls == len(made) > 0
    assert total == {name: getattr(run.usage, name) for name in AMOUNTS[:3]}
    total["paid"] = run.usage.paid

    nodes, asked, steps = run.nodes_df(), run.calls_df(), run.steps_df()
    graph = pd.DataFrame([known for _, known in run.graph().nodes(data=True)])
    assert nodes["calls"].sum() == graph["calls"].sum() == asked["made"].sum() == len(made)
    for frame in (nodes, asked, graph):
        assert {name: frame[name].sum() for name in AMOUNTS} == total
    if len(steps):
        assert {name: steps[name].sum() for name in AMOUNTS[:3]} == {n: total[n] for n in AMOUNTS[:3]}
        assert steps["input_tokens"].notna().sum() == len([one for one in made if one.error is None])
        assert steps["purpose"].notna().all()
        assert steps["tool_seconds"].notna().sum() == run.tools_df()["seconds"].notna().sum()
    data = run.events_df().query("name == 'reply'")["data"]
    known = [row for row, line in zip(data, answered, strict=True) if not asks_no_model(calls[line.p])]
    assert sum(row.get("output_tokens") or 0 for row in known) == total["output_tokens"]
    by_role = runs_df([run], "a test").filter(regex="^(?!failed_).+_calls$")
    assert by_role.iloc[0].sum() == len(made)
    return steps


@pytest.mark.parametrize(
    "strategy",
    [made for made in MADE if made.kind in ROWS],
    ids=lambda made: made.kind,
)
def test_the_rows_of_a_strategy_add_up(strategy):
    steps = add_up(trial_of(strategy).run(counted()))
    assert set(steps["purpose"]) >= ROWS[strategy.kind]


@pytest.mark.nightly
@every_strategy("nightly", "nightly")
@pytest.mark.parametrize("budget", [None, 7])
def test_the_rows_of_every_strategy_add_up(strategy, budget):
    """Also where a budget refuses calls."""
    add_up(trial_of(strategy).run(counted(), budget=None if budget is None else tl.Budget(calls=budget)))


def test_the_mean_score_is_that_of_the_evaluations():
    run = trial_of(tl.TreeOfThoughts()).run()
    nodes = run.nodes_df()
    judged = [node.score for node in run.tree if node.parent is not None and node.score is not None]
    assert nodes["score"].mean() == pytest.approx(sum(judged) / len(judged))
    assert nodes["score"].count() == len(judged)
    root = nodes.iloc[0]
    assert (root["state"], root["calls"] > 0) == ("question", True)
    assert root[["score", "raw", "by", "parent"]].isna().all()
    assert (nodes["state"].iloc[1:] != "question").all()
    nested = trial_of(tl.BestOf(strategy=tl.TreeOfThoughts(stop=tl.Stop(depth=1)), attempts=2)).run()
    roots = nested.nodes_df().query("text == @nested.question")
    assert roots["score"].isna().all()
    assert (len(roots), roots["state"].tolist().count("question")) == (3, 1)


def test_a_root_that_is_the_answer_says_so():
    recorder = tl.Recorder()
    root = recorder.thought("q")
    assert recorder.run.nodes_df()["state"].tolist() == ["question"]
    recorder.decide(root, "answer")
    assert recorder.run.nodes_df()["state"].tolist() == ["answer"]


def test_a_table_of_nodes_keeps_the_question():
    run = trial_of(tl.TreeOfThoughts(stop=tl.Stop(depth=1))).run()
    back = tl.read_nodes(run.nodes_df(), task=run.task)
    for column in ("score", "state", "by"):
        assert back.nodes_df()[column].equals(run.nodes_df()[column]), column


def test_a_list_of_runs_has_the_results_of_its_sweep():
    sweep = tl.Lab("sim/game24", runs=None).sweep_sync(
        [tl.ChainOfThought(), tl.TreeOfThoughts()], tl.game24_tasks(2)
    )
    whole = sweep.df()
    results = list(whole.columns[list(whole.columns).index("correct") :])
    listed = runs_df(list(sweep.runs()), "a test")
    pd.testing.assert_frame_equal(listed[results], whole[results])
    assert set(listed) - set(results) == {"setting", "task", "repeat"}


def test_calls_that_a_log_does_not_hold_are_missing_and_never_zero():
    nodes = [{"id": "a", "parent": None, "thought": "q"}, {"id": "b", "parent": "a", "thought": "t"}]
    table = runs_df([tl.read_nodes(nodes)], "a test")
    amounts = ["calls", "failed_calls", "input_tokens", "output_tokens", "cost", "paid"]
    assert table[amounts].isna().all(axis=None)
