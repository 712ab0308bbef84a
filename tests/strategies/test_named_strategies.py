"""A name stands for a strategy with default settings, wherever a strategy is accepted."""

import asyncio

import pytest
from support import TASK, Scripted, wait

import tot_lab as tl


@pytest.mark.parametrize(
    ("name", "strategy"),
    [
        ("react", tl.ReAct()),
        ("reactive", tl.ReAct()),
        ("tree-of-thought", tl.TreeThenAct()),
        ("tree_of_thoughts", tl.TreeOfThoughts()),
        ("tree-of-thoughts", tl.TreeOfThoughts()),
    ],
)
def test_a_name_gives_the_same_run_as_its_strategy(name, strategy):
    lab = tl.Lab(Scripted(), runs=None)
    assert wait(lab.run(name, TASK)).events == wait(lab.run(strategy, TASK)).events
    assert wait(lab.estimate(name, TASK)) == wait(lab.estimate(strategy, TASK))


def test_names_are_streamed_swept_branched_and_asked_in_a_session():
    async def streamed(lab):
        stream = lab.stream("one_answer", TASK)
        async for _ in stream:
            pass
        return stream.run

    lab = tl.Lab(Scripted(), runs=None)
    run = wait(streamed(lab))
    assert run.strategy == tl.OneAnswer()
    sweep = wait(lab.sweep(["one_answer", tl.ChainOfThought()], [TASK]))
    assert list(sweep.df().strategy) == ["one_answer", "chain_of_thought"]
    assert list(wait(lab.sweep({"fast": "one_answer"}, [TASK])).df().setting) == ["fast"]
    assert wait(lab.branch(run, "0", strategy="chain_of_thought")).strategy.strategy == tl.ChainOfThought()


def test_a_lab_with_tools_runs_react_by_default():
    lab = tl.Lab("sim/agent", runs=None, tools=[tl.tools.Calculator()])
    task = tl.domains.word_sums(3)
    assert wait(lab.run(task)).events == wait(lab.run(tl.ReAct(), task)).events


def test_a_lab_without_tools_has_no_default():
    lab = tl.Lab(Scripted(), runs=None)
    for call in (lab.run, lab.estimate):
        with pytest.raises(TypeError, match=r"lab\.run\(strategy, task\)"):
            asyncio.run(call(TASK))
    with pytest.raises(TypeError, match="task must be a Task"):
        wait(lab.run(tl.OneAnswer()))


@pytest.mark.parametrize(
    ("name", "why"), [("raect", "did you mean 'react'"), ("game24", "unknown kind"), ("", "unknown kind")]
)
def test_an_unknown_name_is_an_error(name, why):
    with pytest.raises(ValueError, match=why):
        wait(tl.Lab(Scripted(), runs=None).run(name, TASK))
