"""The steps of a run as a table: thoughts, actions and observations, read from the records alone."""

import pandas as pd
import pytest
from support import TASK, Scripted, wait
from support.plans import GOOD, Planner, plan, think, tool
from support.scripts import TOOLS, Script, final, said

import tot_lab as tl
from tot_lab.core.calls import Reply
from tot_lab.strategies.conversation import MAX_CALLS

STEPS = {
    "turn": "Int64", "node": "string", "purpose": "string", "thought": "string", "action": "string",
    "arguments": "string",
    "observation": "string", "error": "string", "thinking": "string", "seconds": "Float64",
    "input_tokens": "Int64", "output_tokens": "Int64", "cost": "Float64", "tool_seconds": "Float64",
    "strategy": "string", "selected_strategy": "string",
}  # fmt: skip
SHOWN = ["turn", "node", "thought", "action", "observation", "error"]


def act(model, strategy=None, tools=TOOLS, **options):
    return wait(tl.Lab(model, runs=None, tools=tools).run(strategy or tl.ReAct(), TASK, **options))


def rows(made, columns=SHOWN):
    frame = made.steps_df()
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == STEPS
    return [tuple(None if pd.isna(cell) else cell for cell in row) for row in frame[columns].values.tolist()]


def counted(*calls, text=""):
    told = said(*calls, text=text)
    return Reply(text, tool_calls=told.tool_calls, input_tokens=10, output_tokens=3, cost=0.25)


LOOP = (
    counted(("legs", {"animal": "spider"}), ("legs", {"animal": "unicorn"}), ("teleport", {}), text="Both."),
    counted(final("26"), ("read", {"page": 1})),
    counted(text="I wonder."),
    counted(("read", {"page": 3}), final("26")),
)


@pytest.mark.slow
def test_each_action_stands_beside_what_was_thought_and_observed():
    made = act(Script(*LOOP), tl.ReAct(required_tools={"read": 1}))
    assert made.answer == "26"
    last = "0.0.2.0.1.0.0"
    assert rows(made) == [
        (1, "0.0", "Both.", "legs", "8", None),
        (1, "0.0", "Both.", "legs", None, "KeyError: 'unicorn'"),
        (
            1,
            "0.0",
            "Both.",
            "teleport",
            None,
            "there is no tool 'teleport'; the tools are legs, web-search, read",
        ),
        (2, "0.0.2.0", "", "final-answer", None, "first call read (1×)"),
        (2, "0.0.2.0", "", "read", "Ducks walk upon two feet instead.", None),
        (3, "0.0.2.0.1.0", "I wonder.", None, None, None),
        (4, last, "", "read", "1 2 3", None),
        (4, last, "", "final-answer", None, None),
    ]
    assert rows(made, ["arguments"])[0] == ('{"animal": "spider"}',)
    assert rows(made, ["arguments"])[-1] == ('{"answer": "26"}',)


@pytest.mark.slow
def test_sums_are_the_runs_and_a_tools_time_stands_beside_it():
    made = act(Script(*LOOP), tl.ReAct(required_tools={"read": 1}))
    frame = made.steps_df()
    assert frame["cost"].sum() == made.usage.cost == 1.0
    assert frame["input_tokens"].sum() == made.usage.input_tokens == 40
    assert frame["output_tokens"].sum() == made.usage.output_tokens == 12
    assert frame["cost"].notna().tolist() == [True, False, False, True, False, True, True, False]
    assert frame["seconds"].sum() == pytest.approx(made.calls_df()["seconds"].sum())
    assert frame["tool_seconds"].notna().tolist() == [True, True, False, False, True, False, True, False]
    assert frame["tool_seconds"].sum() == pytest.approx(made.tools_df()["seconds"].sum())


def test_calls_written_as_text_are_actions_and_what_stands_around_them_is_the_thought():
    asked = 'I look it up.\n{"name": "legs", "arguments": {"animal": "duck"}}'
    answered = '{"tool": "final_answer", "parameters": {"answer": "26"}}'
    made = act(Script(asked, answered))
    assert rows(made) == [
        (1, "0.0", "I look it up.", "legs", "2", None),
        (2, "0.0.0.0", "", "final-answer", None, None),
    ]
    loop = act(
        Script('{"name": "web_search", "arguments": {"query": "ducks"}}', '{"name": "Ann"}'), tl.ToolLoop()
    )
    assert [row[3] for row in rows(loop)] == ["web-search", None]
    assert rows(loop)[1][2] == '{"name": "Ann"}'


def test_a_denied_tool_is_an_action_that_failed():
    careful = tl.ReAct(effect_policy=tl.EffectPolicy(mode="deny_all"))
    asked = '{"name": "web_search", "arguments": {"query": "ducks"}}'
    for reply in (asked, said(("web_search", {"query": "ducks"}))):
        (first, _) = rows(act(Script(reply, said(final("26"))), careful))
        assert first[3:5] == ("web-search", None)
        assert first[5].startswith("the effect policy denies all effects")


def test_a_call_that_fails_and_calls_that_are_not_carried_out():
    made = act(Scripted(lambda call: Reply(error="timeout: none") if len(call.messages) > 1 else "hm"))
    assert rows(made) == [(1, "0.0", "hm", None, None, None), (2, None, None, None, None, "timeout: none")]
    endless = act(Script(said(("legs", {"animal": "duck"}))), tl.ToolLoop(max_tool_round_trips=1))
    assert rows(endless) == [(1, "0.0", "", "legs", "2", None), (2, "0.0.0.0", "", "legs", None, None)]
    many = act(Script(said(*[("legs", {"animal": "duck"})] * 50), said(final("26"))))
    assert len(rows(many)) == MAX_CALLS + 1


def test_what_a_person_wrote_is_what_was_done():
    lab = tl.Lab(
        Script(said(("legs", {"animal": "duck"}), text="Ducks."), said(final("26"))), runs=None, tools=TOOLS
    )
    whole = wait(lab.run(tl.ReAct(), TASK))
    made = wait(lab.branch(whole, "0.0.0", content="legs → 9"))
    assert rows(made)[0] == (1, "0.0", "Ducks.", "legs", "9", None)
    made = wait(lab.branch(whole, "0.0", content="I know it."))
    assert rows(made)[0] == (1, "0.0", "I know it.", None, None, None)


@pytest.mark.slow
def test_the_tools_of_a_plan_and_its_analyses_are_steps():
    model = Planner(
        plan=plan(
            tool("legs", animal="spider"), tool("legs", animal="horse"), think("Say {{from_step:s1}}.")
        ),
        analysis="It is eight.",
        patch="no idea",
        review=GOOD,
    )
    made = act(model, tl.PlanExecute(step_retries=0, max_refinements=0))
    assert rows(made, ["purpose", *SHOWN]) == [
        ("plan", None, "0", None, None, None, None),
        ("tool", None, "0.0", None, "legs", "8", None),
        ("tool", None, "0.1", None, "legs", None, "KeyError: 'horse'"),
        *[("patch", None, "0", None, None, None, None)] * 3,  # two retries
        ("analysis", 1, "0.2.0", "It is eight.", None, None, None),
        ("review", None, "0", None, None, None, None),
    ]
    assert rows(made, ["arguments"])[1] == ('{"animal":"spider"}',)


def test_loops_inside_others_are_told_in_program_order():
    def reply(call):
        turn = sum(message.role == "assistant" for message in call.messages)
        return said(final("26")) if turn else said(("legs", {"animal": "duck"}))

    made = act(Scripted(reply), tl.BestOf(strategy=tl.ReAct(), attempts=2, evaluate="score"))
    assert [row[:2] for row in rows(made)] == [(1, "0.0.0"), (2, "0.0.0.0.0"), (3, "0.1.0"), (4, "0.1.0.0.0")]
    levelled = tl.WithSynthesis(strategy=tl.WithThinking(strategy=tl.ReAct(), level="low"), above=0)
    assert [row[3] for row in rows(act(Scripted(reply), levelled))] == ["legs", "final-answer"]


def test_a_tree_search_has_none_but_its_proposers_look_ups():
    assert rows(act(Scripted(), tl.TreeOfThoughts(stop=tl.Stop(depth=2)))) == []
    assert rows(tl.Recorder().run) == []
    asked = Scripted(
        lambda call: (
            said(("legs", {"animal": "duck"})) if len(call.messages) == 1 and call.tools else "score: 1"
        )
    )
    made = act(
        asked,
        tl.TreeOfThoughts(
            propose=tl.WithTools(proposer=tl.Sample(count=1), tools=["legs"]), stop=tl.Stop(depth=1)
        ),
    )
    assert rows(made, ["purpose", "node", "action", "observation"]) == [
        ("sample", "0", None, None),
        ("tool", "0", "legs", "2"),
        ("sample", "0", None, None),
        ("value", "0.0", None, None),
    ]


@pytest.mark.slow
def test_a_run_that_was_cut_off_anywhere_is_told_as_far_as_it_went():
    made = act(Script(*LOOP), tl.ReAct(required_tools={"read": 1}))
    whole = rows(made, ["turn", "action"])
    for cut in range(len(made.lines)):
        part = tl.Run(made.header, made.lines[:cut])
        told = rows(part, ["turn", "action"])
        assert [row for row in told if row[1]] == [row for row in whole if row[1]][
            : len([r for r in told if r[1]])
        ]
        frame = part.steps_df()
        assert frame["tool_seconds"].notna().sum() == part.tools_df()["seconds"].notna().sum()


def test_the_columns_are_documented():
    assert [name for name in STEPS if name not in tl.analysis.frames.steps_df.__doc__] == []


def test_thinking_stands_in_the_first_row_of_its_turn():
    calls = '[{"name": "legs", "arguments": {"animal": "duck"}}, {"name": "read", "arguments": {"page": 1}}]'
    made = act(
        Script(Reply(f"Both. <think>First {calls[1:54]}.</think> {calls}"), Reply("26"), said(final("26")))
    )
    frame = made.steps_df()
    assert frame.action.tolist()[:2] == ["legs", "read"]
    assert frame.thinking[0].startswith("First {")
    assert pd.isna(frame.thinking[1])
