"""What the agent designs fix in names and numbers, spelt out here so that a change of it is seen."""

import json
from typing import get_args

import pytest
from support import TASK, Scripted, run, wait

import tot_lab as tl
from tot_lab.apps.cli import main
from tot_lab.core.calls import Reply, ToolCall
from tot_lab.core.records import Note
from tot_lab.strategies.plans import Status, StepType
from tot_lab.strategies.structured import calls_per_ask


@pytest.mark.parametrize(
    ("strategy", "defaults"),
    [
        (tl.ReAct(), {"max_iterations": 10, "parallel": True, "required_tools": {}}),
        (
            tl.Reflexion(),
            {"max_retries": 3, "critique_depth": "deep", "strategy": tl.ReAct(max_iterations=3)},
        ),
        (
            tl.PlanExecute(),
            {
                "plan_mode": "linear",
                "max_refinements": 2,
                "step_retries": 1,
                "strategy": tl.ReAct(max_iterations=3),
                "patch_strategy": "in-place",
            },
        ),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_the_defaults_are_the_designs(strategy, defaults):
    assert {name: getattr(strategy, name) for name in defaults} == defaults


def test_structured_output_is_retried_twice():
    assert calls_per_ask() == 3


@pytest.mark.parametrize(("field", "value"), [("timeout", 0), ("retries", -1), ("backoff", -0.1)])
def test_bad_settings_of_a_tool_are_refused_by_name(field, value):
    with pytest.raises(ValueError, match=field):
        tl.tool(**{field: value})(lambda: "")


# R4.

PLANNING = {
    "plan": json.dumps({"steps": [{"title": "Legs", "type": "analysis", "instruction": "Count them."}]}),
    "analysis": "There are 26.",
    "review": "SATISFIED: yes\nAnswer: 26",
}


def test_a_plan_has_the_fields_of_the_design():
    model = Scripted(lambda call: PLANNING[call.purpose])
    (plan,) = run(tl.PlanExecute(), TASK.model_copy(update={"id": "legs"}), model).plans
    told = json.loads(plan.model_dump_json(by_alias=True))
    assert (told["taskId"], told["goal"], told["status"]) == ("legs", TASK.question, "completed")
    assert told["agentId"].startswith("plan_execute on ")
    assert told["createdAt"] <= told["updatedAt"] == told["completedAt"]
    assert {"id", "mode", "version", "tokens", "cost"} <= told.keys()
    (step,) = told["steps"]
    assert (step["id"], step["seq"], step["title"], step["instruction"]) == ("s1", 1, "Legs", "Count them.")
    assert (step["status"], step["result"]) == ("completed", "There are 26.")
    added = {"error", "retries", "tokensUsed", "startedAt", "completedAt"}
    assert added | {"type", "toolName", "toolArgs", "toolHints", "dependsOn"} <= step.keys()
    assert get_args(StepType) == ("tool_call", "analysis", "composite")
    assert get_args(Status) == ("pending", "in_progress", "completed", "failed", "skipped")


# R15.


@tl.tool
def look(place: str) -> str:
    """Looks at a place."""
    return f"At {place} there is " + "a long corridor, and after it " * 60


def looking(call):
    turn = call.node.count(".") // 2
    name, given = ("look", {"place": str(turn)}) if turn < 3 else ("final-answer", {"answer": "26"})
    return Reply(tool_calls=(ToolCall("a", name, json.dumps(given)),))


def synthesized(strategy, question):
    lab = tl.Lab(Scripted(looking), runs=None, tools=[look])
    made = wait(lab.run(strategy, tl.general(question)))
    assert made.answer == "26"
    told = (e for e in made.events if isinstance(e, Note) and e.name == "context.synthesized")
    return [note.data["synthesis"] for note in told]


def test_synthesis_is_set_for_all_that_adaptive_chooses_or_for_one_choice():
    simple, writing = "How many legs has a duck?", "Write a letter to the mayor."
    loop = tl.ReAct(max_iterations=6)
    plain = tl.Adaptive(strategies={"reactive": loop, "reflexion": loop})
    one = tl.Adaptive(
        strategies={"reactive": loop, "reflexion": tl.WithSynthesis(strategy=loop, above=0)},
    )
    for question in (simple, writing):
        assert synthesized(plain, question) == []
        assert set(synthesized(tl.WithSynthesis(strategy=plain, above=0), question)) == {"fast"}
    assert synthesized(one, simple) == []
    assert set(synthesized(one, writing)) == {"fast"}


# R12.

NAMES = {
    "reactive": tl.ReAct,
    "reflexion": tl.Reflexion,
    "plan-execute-reflect": tl.PlanExecute,
    "tree-of-thought": tl.TreeThenAct,
    "adaptive": tl.Adaptive,
}


@pytest.mark.parametrize("name", NAMES)
def test_a_strategy_goes_by_the_designs_name_in_a_shell(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = [name, "--task", "word_sums", "2", "--model", "sim/agent", "--out", "run.jsonl"]
    assert main(["run", *words]) in (0, None)
    assert type(tl.load("run.jsonl").strategy) is NAMES[name]
    assert NAMES[name].kind in capsys.readouterr().out


@pytest.mark.parametrize("tier", ["local", "mid", "large", "frontier"])
def test_the_tier_fits_each_prompt_of_a_plan(tier):
    steps = json.dumps({"steps": [{"id": "s1", "type": "tool_call", "toolName": "look", "toolArgs": {}}]})
    whole = json.dumps({"steps": [{"id": "s1", "type": "analysis", "instruction": "Count them."}]})
    said = {"plan": steps, "patch": whole, "augment": whole, "analysis": "26", "review": "UNSATISFIED: no"}
    model = Scripted(lambda call: said.get(call.purpose, "Answer: 26"))
    wait(tl.Lab(model, runs=None, tools=[look]).run(tl.PlanExecute(tier=tier), TASK))
    asked = {
        call.purpose: call.prompt for call in model.calls if call.purpose in ("plan", "patch", "augment")
    }
    assert set(asked) == {"plan", "patch", "augment"}
    for prompt in asked.values():
        assert ("fits this schema" in prompt) == (tier != "local")
        assert ("in the form of this example" in prompt) == (tier == "local")
        assert ('"instruction": "what to do"' in prompt) == (tier in ("local", "mid"))


def test_what_a_run_gives_back():
    model = Scripted(
        lambda call: Reply(
            tool_calls=(ToolCall("a", "final-answer", '{"answer": "26"}'),),
            input_tokens=5,
            output_tokens=2,
            cost=0.5,
        )
    )
    made = run(tl.BestOf(strategy=tl.ReAct(), attempts=1, evaluate=lambda task, path: 0.75), model=model)
    assert (made.answer, made.stop_reason, made.score) == (
        "26",
        "answered",
        0.75,
    )  # output, status, confidence
    assert made.seconds > 0
    assert made.usage == (1, 0, 5, 2, 0.5, 0.5)
    assert len(made.steps_df()) == 1
    for name in ("answer", "stop_reason", "score", "seconds", "usage", "steps_df", "calls", "tokens", "cost"):
        assert name in tl.Run.__doc__
