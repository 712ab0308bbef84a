"""Strategies inside strategies, on the simulated agent: more than their parts, and each one tree."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

import plotly.graph_objects as go
import pytest
from support import wait

import tot_lab as tl
from tot_lab.core.calls import Call, Reply
from tot_lab.core.records import Note, Thought
from tot_lab.core.task import Task
from tot_lab.tools import Calculator
from tot_lab.views.explorer.recording import DIGITS_OF_NUMBERS, LAST_DIGITS
from tot_lab.views.figures.tree import tree_info

AGENT = tl.sim.SimAgent(skill=0.7)
TOOLS = (Calculator(), *tl.domains.multi_hop_tools())
SUMS = tl.domains.word_sums_tasks(10)
HOPS = tl.domains.multi_hop_tasks(12)
HANDS = tl.game24_tasks(10)

SEARCH = tl.TreeOfThoughts(propose="propose", stop=tl.Stop(depth=6))
WITH_TOOLS = SEARCH.with_(propose=tl.WithTools(proposer=SEARCH.propose))


def runs_of(strategy: tl.Strategy, tasks: Sequence[Task], model: object = AGENT) -> list[tl.Run]:
    lab = tl.Lab(model, runs=None, tools=TOOLS)
    return [wait(lab.run(strategy, task)) for task in tasks]


def rate(runs: Sequence[tl.Run]) -> float:
    return sum(run.grade or 0.0 for run in runs) / len(runs)


def notes(run: tl.Run, name: str) -> list[Note]:
    return [event for event in run.events if isinstance(event, Note) and event.name == name]


def numbers_in(column: str) -> Iterator[int]:
    """The integers of a column of the page."""
    number, unit, sign = 0, 1, 1
    for digit in map(DIGITS_OF_NUMBERS.find, column):
        if digit < 0:
            sign = -1
        elif digit >= LAST_DIGITS:
            number += (digit - LAST_DIGITS) * unit
            unit *= len(DIGITS_OF_NUMBERS) - LAST_DIGITS
        else:
            yield sign * (number + digit * unit)
            number, unit, sign = 0, 1, 1


def assert_one_tree(run: tl.Run, strategy: tl.Strategy, folder: Path) -> None:
    """Every thought hangs below the one root, in the frame, the figure and the explorer's page."""
    thoughts = [event for event in run.events if isinstance(event, Thought)]
    ids = [thought.id for thought in thoughts]
    assert len(ids) == len(set(ids)) == len(run.tree)
    assert all(thought.parent in ids[:k] for k, thought in enumerate(thoughts) if k)
    frame = run.nodes_df()
    assert frame["id"].is_unique
    assert sorted(frame["id"]) == sorted(ids)
    assert list(frame[frame["parent"].isna()]["id"]) == ["0"]
    info = tree_info(run)
    assert sorted(info.ids) == sorted(ids)
    assert (info.parents == -1).sum() == 1
    figure = tl.figures.plot_tree(run)
    assert isinstance(figure, go.Figure)
    assert "simulated" in figure.to_json()
    page = run.save_html(folder / "run.html").read_text()
    told = json.loads(re.search(r'id="run-0">(.*?)</script>', page, re.DOTALL)[1])
    lived = [line.e for line in run.lines if isinstance(line.e, Thought)]
    above = accumulate(numbers_in(told["chunk"]["parents"]))  # each as its difference from the one before
    assert [lived[k].id if k >= 0 else None for k in above] == [thought.parent for thought in lived]
    made = sum(reply.tool is None for reply in run.events if isinstance(reply, Reply))
    assert made == run.usage.calls <= strategy.max_calls(run.task)
    assert wait(run.replay()).identical


# Reflexion over a tree search.


@pytest.mark.nightly
@pytest.mark.parametrize(("search", "tasks"), [(WITH_TOOLS, SUMS), (SEARCH, HANDS)], ids=["sums", "hands"])
def test_reflexion_over_a_tree_search(search: tl.Strategy, tasks: Sequence[Task], tmp_path: Path) -> None:
    model = tl.sim.SimAgent(skill=0.5, noise=0.2)
    strategy = tl.Reflexion(strategy=search)
    made = runs_of(strategy, tasks, model)
    assert rate(made) >= rate(runs_of(search, tasks, model)) + 0.1
    again = [run for run in made if len(notes(run, "tot.started")) > 1]
    assert any(run.grade == 1.0 for run in again)  # a later attempt solved it
    for run in again[:3]:
        trees = [note.at for note in notes(run, "tot.started")]
        assert trees == [f"0.{k}" for k in range(len(trees))]
        asked = [event for event in run.events if isinstance(event, Call) and event.node.startswith("0.1")]
        assert all("Earlier attempts" in call.prompt for call in asked if call.purpose == "propose")
        assert_one_tree(run, strategy, tmp_path)


# A plan step solved by a tree search.


@pytest.mark.slow
def test_a_plan_step_solved_by_a_tree_search(tmp_path: Path) -> None:
    step = tl.TreeOfThoughts(propose=tl.WithTools(proposer=tl.Propose()), stop=tl.Stop(depth=2))
    strategy = tl.PlanExecute(strategy=step)
    made = runs_of(strategy, HOPS)
    assert rate(made) >= rate(runs_of(tl.ChainOfThought(), HOPS)) + 0.3
    searched = [run for run in made if notes(run, "tot.started")]
    assert len(searched) >= 8
    for run in searched[:3]:
        steps = {data["node"] for note in notes(run, "plan.created") for data in note.data["steps"]}
        for note in notes(run, "tot.started"):
            above = {node.id for node in run.tree.path(note.at)}
            assert above & steps or notes(run, "plan.augmented") or notes(run, "plan.patched")
        assert any(len(run.tree[note.at].children) >= 1 for note in notes(run, "tot.started"))
        assert_one_tree(run, strategy, tmp_path)


# A tree search whose proposer uses tools.


@pytest.mark.nightly
@pytest.mark.parametrize("tasks", [SUMS, HOPS], ids=["sums", "hops"])
def test_a_tree_search_whose_proposer_uses_tools(tasks: Sequence[Task], tmp_path: Path) -> None:
    made = runs_of(WITH_TOOLS, tasks)
    assert rate(made) >= rate(runs_of(SEARCH, tasks)) + 0.3
    called = [[reply.tool for reply in run.events if isinstance(reply, Reply) and reply.tool] for run in made]
    assert {name for names in called for name in names} == (
        {"calculator"} if tasks is SUMS else {"search", "open"}
    )
    for run, names in list(zip(made, called, strict=True))[:4]:
        assert sorted(run.tools_df()["tool"]) == sorted(names)
        assert_one_tree(run, WITH_TOOLS, tmp_path)


# Adaptive over all.


@pytest.mark.slow
def test_adaptive_over_all(tmp_path: Path) -> None:
    strategy = tl.Adaptive(
        strategies={
            "reactive": tl.ReAct(),
            "reflexion": tl.Reflexion(strategy=tl.ReAct()),
            "plan-execute-reflect": tl.PlanExecute(),
            "tree-of-thought": SEARCH,
            "chain": tl.ChainOfThought(),
        },
        routes={"word_sums": "plan-execute-reflect", "multi_hop": "reflexion", "game24": "tree-of-thought"},
    )
    tasks = [*SUMS[:4], *HOPS[:4], *HANDS[:4]]
    made = runs_of(strategy, tasks)
    chosen = [notes(run, "adaptive.chosen")[0].data["strategyUsed"] for run in made]
    assert chosen == ["plan-execute-reflect"] * 4 + ["reflexion"] * 4 + ["tree-of-thought"] * 4
    assert rate(made) >= rate(runs_of(tl.ChainOfThought(), tasks)) + 0.3
    for run in made[::3]:
        assert all(node.id == "0" or node.id.startswith(("0.0", "0.1")) for node in run.tree)
        assert_one_tree(run, strategy, tmp_path)


@pytest.mark.slow
def test_adaptive_asks_the_agent_where_no_rule_decides(tmp_path: Path) -> None:
    task = tl.domains.word_sums(10)  # of more words than a simple task has
    strategy = tl.Adaptive(strategies={"reactive": tl.ReAct(), "plan-execute-reflect": tl.PlanExecute()})
    (run,) = runs_of(strategy, [task], tl.sim.SimAgent(skill=1))
    (note,) = notes(run, "adaptive.chosen")
    assert (note.data["by"], note.data["strategyUsed"]) == ("model", "plan-execute-reflect")
    assert run.grade == 1.0
    assert_one_tree(run, strategy, tmp_path)


# Three deep.


@pytest.mark.slow
def test_three_deep(tmp_path: Path) -> None:
    """Adaptive → Reflexion → Plan–Execute → tree search with tools, in one tree."""
    step = tl.TreeOfThoughts(propose=tl.WithTools(proposer=tl.Propose()), stop=tl.Stop(depth=2))
    strategy = tl.Adaptive(
        strategies={"reactive": tl.ReAct(), "all": tl.Reflexion(strategy=tl.PlanExecute(strategy=step))},
        routes={"multi_hop": "all"},
    )
    made = runs_of(strategy, HOPS[:6], tl.sim.SimAgent(skill=0.9))
    assert rate(made) >= 0.8
    assert max(note.at.count(".") for run in made for note in notes(run, "tot.started")) >= 3
    for run in made[:3]:
        assert_one_tree(run, strategy, tmp_path)
