"""S1: a classifier reads from the task which tools are required, how often each, and which are relevant."""

import json

import pytest
from support import TASK, Scripted, mostly_nightly, wait
from support.contract import FIRST
from support.plans import GOOD, Planner, plan, think, tool
from support.scripts import LEGS, TOOLS, Script, final, legs, notes, read, said

import tot_lab as tl
from tot_lab.core.calls import Reply
from tot_lab.testing import PROMISES, Trial

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
    assert route.purpose == "route"
    assert TASK.question in route.prompt
    assert all(tool.name in route.prompt for tool in TOOLS)
    assert route.tools == ()  # nothing is called yet
    assert "Needed before final-answer: legs (2×)." in first.prompt
    assert [tool["name"] for tool in first.tools] == [*(tool.name for tool in TOOLS), "final-answer"]
    assert (made.answer, made.stop_reason, len(made.tools_df())) == ("26", "answered", 2)
    assert notes(made, "tools.classified") == [NEEDS]
    assert wait(made.replay()).identical
    assert made.usage.calls <= tl.ReAct(classify_tools=True).max_calls(TASK) == 11


def test_s1_it_is_off_by_default():
    made = act(model := Script(said(final("26"))), tl.ReAct())
    assert [call.purpose for call in model.calls] == ["act"]
    assert notes(made, "tools.classified") == []
    without = act(model := Script(said(final("26"))), tools=[])
    assert [call.purpose for call in model.calls] == ["act"]  # without tools there is nothing to classify
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
        ('{"required": {"legs": true, "read": {"minCalls": 2}}}', {"legs": 1, "read": 2}, []),
        ('{"required": {}, "relevant": []}', {}, []),
    ],
)
def test_s1_what_a_classifier_writes_is_read(reply, required, relevant):
    made = act(Script(reply, said(final("26"))))
    assert notes(made, "tools.classified") == [{"required": required, "relevant": relevant}]


@pytest.mark.parametrize(
    "reply",
    [
        *(
            "I would search the web.",
            "garbage",
            "none",
            "null",
            '{"error": {"code": 429}}',
            "[1]",
            "{}",
            '{"required": 3}',
            "",
        ),
        *('{"required": {"legs": 1.5}}', '{"required": {"legs": 2, "read": "some"}}', '{"tools": 2}'),
        *('{"required": {"legs": "3-4"}}', '{"required": [{"name": "legs", "minCalls": []}]}'),
        '{"relevant": ["legs"]}',
        Reply(error="timeout"),
    ],
)
def test_s1_a_classifier_that_cannot_be_read_requires_nothing(reply):
    made = act(Script(reply, said(final("26"))))
    assert (made.answer, made.usage.calls) == ("26", 2)
    assert notes(made, "tools.classified") == []
    assert len(notes(made, "parse.unreadable") + notes(made, "call.failed")) == 1


FOUR = {"web-search": 4}


@pytest.mark.parametrize(
    ("reply", "required"),
    [
        ('{"required": {"web-search": {"minCalls": 4}}}', FOUR),
        ('{"required": {"webSearch": {"min_calls": "4", "maxCalls": 6, "reason": "4 towns"}}}', FOUR),
        ('{"required": {"Web Search": {"minimumCalls": 4.0}}}', FOUR),
        ('{"required": [{"name": "web-search", "minCalls": 4}, {"name": "legs"}]}', {**FOUR, "legs": 1}),
        ('{"requiredTools": [{"tool": "web_search", "count": "at least 4"}]}', FOUR),
        ('{"required": ["legs", "web-search"], "minCalls": {"web-search": 4}}', {**FOUR, "legs": 1}),
        ('{"required": "web-search×4, read"}', {**FOUR, "read": 1}),
        ('{"required": [{"web-search": 4}]}', FOUR),
        (
            '{"tools": [{"name": "web-search", "required": true, "calls": 4},'
            ' {"name": "read", "required": false}]}',
            FOUR,
        ),
        ('[{"name": "web-search", "minCalls": 4}]', FOUR),
        ('{"web-search": 4, "relevant": ["read"]}', FOUR),
        ('{"minCalls": {"web-search": 4}}', FOUR),
        ('{"required": {"web-search": "4 calls", "read": false}}', FOUR),
        ("{'required': {'web-search': 4,},}", FOUR),
        ("web-search×4\nlegs", {**FOUR, "legs": 1}),
        ('<think>{"required": {"legs": 9}}</think>{"required": {"web-search": 4}}', FOUR),
        ('{"required": []}', {}),
        ('{"required": ["4x web-search", "read: 1 time"]}', {**FOUR, "read": 1}),
        ("**web-search**: 4", FOUR),
        ('{"required": {"tools": {"web-search": 4}}}', FOUR),
        ("required: web-search (4), legs (1)", {**FOUR, "legs": 1}),
        ('{"tools": {"required": {"web-search": {"n": 4}}}}', FOUR),
        ('{"result": {"required": {"web-search": 4}}}', FOUR),
    ],
)
def test_s1_the_sources_words_are_read_in_any_near_form(reply, required):
    made = act(Script(reply, said(final("26"))))
    (found,) = notes(made, "tools.classified")
    assert found["required"] == required
    assert notes(made, "parse.unreadable") == []


def test_s1_a_required_tool_that_does_not_exist_and_a_repair_are_recorded():
    made = act(Script("{'required': {'fly': 2, 'legs': 1}}", said(final("26"))))
    assert [note["tool"] for note in notes(made, "react.unknown_tool")] == ["fly"]
    assert [note["kind"] for note in notes(made, "json.repaired")] == ["route"]
    assert "fly" in tl.diagnose(made).of("unavailable_tools")[0].text


def test_s1_what_is_set_by_hand_stands():
    strategy = tl.ReAct(classify_tools=True, required_tools={"legs": 1}, max_calls_per_tool={"read": 1})
    model = Script(
        '{"required": {"legs": 3, "read": 2}}', asked("duck"), said(("read", {"page": 0})), said(final("2"))
    )
    made = act(model, strategy)
    assert "Needed before final-answer: legs (1×), read (1×)." in model.calls[1].prompt
    assert (made.answer, made.stop_reason) == ("2", "answered")


def test_s1_refused_by_the_budget_it_stops():
    made = act(Scripted(), budget=tl.Budget(calls=0))
    assert (made.answer, made.stop_reason) == ("", "budget:calls")


def test_s1_the_role_route_takes_the_question():
    lab = tl.Lab(Script(said(final("26"))), runs=None, tools=[legs, read], roles={"route": "sim/general"})
    made = wait(lab.run(tl.ReAct(classify_tools=True), TASK))
    assert made.simulated
    assert set(LEGS) == {"spider", "duck"}


def planner(route, *steps):
    """A model that classifies, and plans `steps`."""
    more = plan(tool("legs", animal="spider"), tool("legs", animal="duck"))
    return Planner(
        route=route,
        plan=plan(*steps),
        augment=more,
        analysis="spider, duck",
        act=said(final("?")),
        review=GOOD,
    )


@pytest.mark.slow
def test_s1_a_plan_is_shown_what_is_required_and_gets_the_steps_that_it_lacks():
    model = planner('{"required": {"legs": 3}, "relevant": ["read"]}', tool("legs", animal="duck"))
    strategy = tl.PlanExecute(classify_tools=True, step_retries=0, max_patches=0)
    made = act(model, strategy)
    route, first = model.calls[:2]
    assert (route.purpose, first.purpose) == ("route", "plan")
    section = next(part for part in first.prompt.split("\n\n") if part.startswith("TOOL CALL REQUIREMENTS\n"))
    assert "- legs: 3 or more steps of the type tool_call" in section
    assert "read" not in section  # it is merely relevant
    assert [step.result for step in made.plans[0].steps] == ["2", "8", "2"]
    assert notes(made, "tools.classified") == [{"required": {"legs": 3}, "relevant": ["read"]}]
    assert wait(made.replay()).identical
    assert made.usage.calls == 4 <= strategy.max_calls(TASK)


def test_s1_a_plan_that_calls_as_often_as_required_gets_no_further_step():
    model = planner('{"required": {"legs": 1}}', tool("legs", animal="duck"), tool("legs", animal="spider"))
    made = act(model, tl.PlanExecute(classify_tools=True))
    assert [step.result for step in made.plans[0].steps] == ["2", "8"]


@pytest.mark.parametrize(
    ("strategy", "kinds"),
    [
        (tl.PlanExecute(), ["plan", "analysis", "review"]),
        (tl.PlanExecute(classify_tools=True), ["route", "plan", "analysis", "review"]),
    ],
)
def test_s1_a_plan_without_requirements_has_no_section_for_them(strategy, kinds):
    model = planner('{"required": {}}', think("List the animals."))
    act(model, strategy)
    assert model.kinds == kinds
    assert not any("TOOL CALL REQUIREMENTS" in call.prompt for call in model.calls)
    alone = planner("", think("List the animals."))
    act(alone, strategy, tools=[])
    assert alone.kinds == ["plan", "analysis", "review"]  # without tools there is nothing to classify


def test_s1_what_is_set_by_hand_stands_in_a_plan_too():
    model = planner('{"required": {"legs": 3, "web-search": 1}}', think("List the animals."))
    made = act(model, tl.PlanExecute(classify_tools=True, required_tools={"legs": 2}))
    assert "- legs: 2 or more" in model.calls[1].prompt
    assert "- web-search: 1 or more" in model.calls[1].prompt
    steps = [(step.type, step.tool_name or step.tool_hints[:1]) for step in made.plans[0].steps]
    # The effects of web-search are not declared.
    assert steps == [("analysis", ()), ("composite", ("web-search",)), *[("tool_call", "legs")] * 2]


def test_s1_a_plan_whose_classifier_is_refused_by_the_budget_stops():
    made = act(Scripted(), tl.PlanExecute(classify_tools=True), budget=tl.Budget(calls=0))
    assert (made.answer, made.stop_reason, made.plans) == ("", "budget:calls", [])


@pytest.mark.slow
@pytest.mark.parametrize("promise", mostly_nightly(PROMISES, FIRST), ids=lambda promise: promise.__name__)
def test_s1_a_plan_that_is_classified_for_keeps_the_contract(promise):
    promise(Trial(tl.PlanExecute(classify_tools=True)))
