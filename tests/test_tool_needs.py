"""S1: a classifier reads from the task which tools are required, how often each, and which are relevant."""

import json

import pytest
from support import TASK, Scripted, wait
from test_react import LEGS, TOOLS, Script, final, legs, notes, read, said

import tot_lab as tl
from tot_lab.core.calls import Reply

NEEDS = {"required": {"legs": 2}, "relevant": ["read"]}


def act(model, strategy=None, tools=TOOLS, **options):
    lab = tl.Lab(model, runs=None, tools=tools)
    return wait(lab.run(strategy or tl.ReAct(classify_tools=True), TASK, **options))


def asked(animal):
    return said(("legs", {"animal": animal}))


def test_s1_what_the_classifier_requires_comes_before_the_answer():
    model = Script(json.dumps(NEEDS), said(final("25")), asked("spider"), asked("duck"), said(final("26")))
    made = act(model)
    route, first = model.calls[0], model.calls[1]
    assert route.kind == "route"
    assert TASK.question in route.prompt
    assert all(tool.name in route.prompt for tool in TOOLS)
    assert route.tools == ()  # nothing is called yet
    assert "Needed before final-answer: legs (2×)." in first.prompt
    assert [tool["name"] for tool in first.tools] == [*(tool.name for tool in TOOLS), "final-answer"]
    assert (made.answer, made.stopped, len(made.tools_df())) == ("26", "answered", 2)
    assert notes(made, "tools.classified") == [NEEDS]
    assert wait(made.replay()).identical
    assert made.usage.calls <= tl.ReAct(classify_tools=True).max_calls(TASK) == 11


def test_s1_it_is_off_by_default():
    made = act(model := Script(said(final("26"))), tl.ReAct())
    assert [call.kind for call in model.calls] == ["act"]
    assert notes(made, "tools.classified") == []
    without = act(model := Script(said(final("26"))), tools=[])
    assert [call.kind for call in model.calls] == ["act"]  # without tools there is nothing to classify
    assert without.answer == "26"


@pytest.mark.parametrize(
    ("reply", "required", "relevant"),
    [
        ('```json\n{"required": {"Legs": 1, "web_search": "3"}}\n```', {"legs": 1, "web-search": 3}, []),
        (
            '{"required": ["web-search×4", "read"], "relevant": ["legs"]}',
            {"web-search": 4, "read": 1},
            ["legs"],
        ),
        ('{"required": {"legs": 0, "read": -1, "fly": 2}, "relevant": ["fly", 7]}', {}, []),
        ('{"required": {"legs": 1000}}', {"legs": 20}, []),
        ('{"required": {"legs": true, "read": 1.5, "web-search": null}}', {}, []),
        ('{"required": {}, "relevant": []}', {}, []),
    ],
)
def test_s1_what_a_classifier_writes_is_read(reply, required, relevant):
    made = act(Script(reply, said(final("26"))))
    assert notes(made, "tools.classified") == [{"required": required, "relevant": relevant}]


@pytest.mark.parametrize(
    "reply", ["I would search the web.", "[1]", '{"required": 3}', "", Reply(error="timeout")]
)
def test_s1_a_classifier_that_cannot_be_read_requires_nothing(reply):
    made = act(Script(reply, said(final("26"))))
    assert (made.answer, made.usage.calls) == ("26", 2)
    assert notes(made, "tools.classified") == []
    assert len(notes(made, "parse.unreadable") + notes(made, "call.failed")) == 1


def test_s1_what_is_set_by_hand_stands():
    strategy = tl.ReAct(classify_tools=True, required_tools={"legs": 1}, max_calls_per_tool={"read": 1})
    model = Script(
        '{"required": {"legs": 3, "read": 2}}', asked("duck"), said(("read", {"page": 0})), said(final("2"))
    )
    made = act(model, strategy)
    assert "Needed before final-answer: legs (1×), read (1×)." in model.calls[1].prompt
    assert (made.answer, made.stopped) == ("2", "answered")


def test_s1_refused_by_the_budget_it_stops():
    made = act(Scripted(), budget=tl.Budget(calls=0))
    assert (made.answer, made.stopped) == ("", "budget:calls")


def test_s1_the_role_route_takes_the_question():
    lab = tl.Lab(Script(said(final("26"))), runs=None, tools=[legs, read], roles={"route": "sim/general"})
    made = wait(lab.run(tl.ReAct(classify_tools=True), TASK))
    assert made.simulated
    assert set(LEGS) == {"spider", "duck"}
