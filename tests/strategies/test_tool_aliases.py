"""A tool answers to its aliases everywhere: `file-write` is `write-file` in native calls and calls as text,
in plans, settings and policies (S6)."""

import json

import pytest
from support import wait
from support.plans import Planner, plan, think, tool
from support.scripts import Script, final, said

import tot_lab as tl
from tot_lab.core.tools import ToolSpec, names_of

TASK = tl.general("What is twice seven?", answer=14, grade="number")
GIVEN = {"path": "a.txt", "content": "14"}
ALLOWED = tl.EffectPolicy(allow={"file-write"})
SPELLINGS = ("file-write", "file_write", "FileWrite", "write-file", "writeFile")


def act(model, strategy, folder, **settings):
    tools = [tl.tools.WriteFile(root=folder)]
    lab = tl.Lab(model, **{"runs": None, "tools": tools, "effect_policy": ALLOWED, **settings})
    return wait(lab.run(strategy, TASK))


def called(made):
    return made.tools_df()["tool"].tolist()


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("strategy", [tl.ReAct(), tl.ToolLoop()], ids=["react", "loop"])
def test_s6_in_native_calls_and_calls_as_text(name, strategy, tmp_path):
    last = said(final("Answer: 14")) if strategy.kind == "react" else "Answer: 14"
    for k, first in enumerate([said((name, GIVEN)), json.dumps({"name": name, "arguments": GIVEN})]):
        folder = tmp_path / str(k)
        folder.mkdir()
        made = act(Script(first, last), strategy, folder)
        assert (made.answer, called(made)) == ("14", ["write-file"])
        assert (folder / "a.txt").read_text() == "14"
        steps = made.steps_df()
        assert "write-file" in steps["action"].tolist()
        assert (steps["action"] == "write-file").sum() == 1, "the call and its turn are one step"


@pytest.mark.parametrize("name", SPELLINGS)
def test_s6_in_plans(name, tmp_path):
    model = Planner(
        plan=plan(tool(name, **GIVEN), {"type": "composite", "instruction": "Write.", "toolHints": [name]}),
        act=said(final("Answer: 14")),
        review="SATISFIED: yes\nAnswer: 14",
    )
    made = act(model, tl.PlanExecute(), tmp_path)
    assert called(made) == ["write-file"]
    assert [(step.tool_name, step.tool_hints) for step in made.plans[0].steps] == [
        ("write-file", ()),
        (None, ("write-file",)),
    ]
    assert (tmp_path / "a.txt").exists()


@pytest.mark.parametrize("name", SPELLINGS)
def test_s6_in_the_settings_of_a_strategy(name, tmp_path):
    model = Script(said((name, GIVEN)), said(final("Answer: 14")))
    made = act(model, tl.ReAct(tools=(name,), required_tools={name: 1}), tmp_path)
    assert (made.answer, called(made)) == ("14", ["write-file"])
    planner = Planner(
        plan=plan(tool(name, **GIVEN), think("Done.")), review="SATISFIED: y\nAnswer: 14", analysis="ok"
    )
    made = act(planner, tl.PlanExecute(tools=(name,), required_tools=[name]), tmp_path)
    assert [step.type for step in made.plans[0].steps] == ["tool_call", "analysis"], "no call is missing"
    made = act(Script("Answer: 14"), tl.ToolLoop(tools=(name,)), tmp_path)
    assert made.answer == "14"


def test_two_names_of_one_tool_are_one_requirement_too_many(tmp_path):
    model = Script(said(final("Answer: 14")))
    with pytest.raises(ValueError, match="two names stand for the same tool: got file-write, write-file"):
        act(model, tl.ReAct(required_tools={"file-write": 1, "write-file": 2}), tmp_path)
    with pytest.raises(ValueError, match="name the same tool"):
        tl.ReAct(required_tools={"file_write": 1, "file-write": 2})


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_policy_denies_a_tool_by_any_of_its_names(name, tmp_path):
    policy = tl.EffectPolicy(mode="allow_all", deny={name})
    with pytest.raises(ValueError, match=r"'write-file'.*the effect policy denies"):
        act(Script("Answer: 14"), tl.ToolLoop(), tmp_path, effect_policy=policy)
    made = act(Script(said((name, GIVEN)), "Answer: 14"), tl.ToolLoop(effect_policy=policy), tmp_path)
    assert called(made) == []
    assert not (tmp_path / "a.txt").exists()
    allowed = tl.EffectPolicy(allow={name})
    assert called(
        act(Script(said((name, GIVEN)), "Answer: 14"), tl.ToolLoop(), tmp_path, effect_policy=allowed)
    )


def test_a_name_beats_an_alias():
    def spec(name, *aliases):
        return ToolSpec(name=name, description="", parameters={}, aliases=aliases)

    assert names_of([spec("write-file", "file-write", "put"), spec("put"), spec("a2B")]) == {
        "write-file": "write-file",
        "file-write": "write-file",
        "put": "put",
        "a2-b": "a2B",
    }
