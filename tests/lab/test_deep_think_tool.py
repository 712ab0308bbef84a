"""Deep Think as a tool: what it says of itself, what its agent is told, when it must be used, what it gives
(D14)."""

import json
import pickle

import pytest
from support import Scripted, wait
from support.deep_think_replies import play

import tot_lab as tl
from tot_lab.core.calls import Reply, ToolCall
from tot_lab.testing import legs

TASK = tl.open_ended("Which database for a small shop?")


def thinking_lab(**more):
    return tl.Lab(tl.sim.SimGeneral(seed=3), runs=None, **more)


def agent(*turns):
    """A model that says `turns` one after another, the last again and again: names of tools it calls, or an
    answer."""
    left = list(turns)

    def reply(call):
        said = left.pop(0) if len(left) > 1 else left[0]
        if said == "deep_think":
            asked = json.dumps({"task": "Which database?", "context": "nine orders a day"})
            return Reply("Let me see.", tool_calls=(ToolCall("a", "deep_think", asked),))
        if said == "legs":
            return Reply(tool_calls=(ToolCall("b", "legs", '{"animal": "duck"}'),))
        return Reply(tool_calls=(ToolCall("c", "final-answer", json.dumps({"answer": said})),))

    return Scripted(reply)


async def thinks_first(call):
    """An agent that a cache can tell from others."""
    if any(message.role == "tool" for message in call.messages):
        return Reply(tool_calls=(ToolCall("c", "final-answer", '{"answer": "42"}'),))
    return Reply(tool_calls=(ToolCall("a", "deep_think", '{"task": "Which database?"}'),))


def asked(model, task=TASK, strategy=None, tool=None, **lab):
    tools = [tool or tl.tools.deep_think(thinking_lab()), legs]
    return wait(tl.Lab(model, tools=tools, runs=None, **lab).run(strategy or tl.ReAct(), task))


def test_its_description_says_when_to_use_it_and_when_not():
    told = tl.tools.deep_think(thinking_lab()).description
    when, _, when_not = told.partition("Do not use it")
    for cue in ("several valid approaches", "trade-offs", "root cause", "plan", "step by step", "all angles"):
        assert cue in when
    for cue in ("simple facts", "quick calculations", "one approach is obvious", "live tools"):
        assert cue in when_not


def test_what_is_no_lab_is_named():
    with pytest.raises(TypeError, match="lab must be a Lab such as"):
        tl.tools.deep_think("sim/general")


def test_an_agent_is_given_what_it_thought():
    made = asked(agent("deep_think", "42"))
    (call,) = made.tools_df().itertuples()
    assert call.tool == "deep-think"
    assert call.result.startswith("# Deep Think — Tree-of-Thought Analysis *simulated model*")
    assert made.answer == "42"
    assert made.usage.calls == 2  # what it thought is a run of its own


@pytest.mark.parametrize(
    "strategy", [tl.ReAct(), tl.ToolLoop(), tl.TreeOfThoughts(propose=tl.WithTools(tools=("deep-think",)))]
)
def test_the_system_prompt_of_an_agent_that_has_it_gives_a_short_guidance(strategy):
    model = Scripted(lambda call: Reply("score: 0.5\nAnswer: 42"))
    asked(model, strategy=strategy)
    (first, *_) = [call for call in model.calls if call.tools]
    assert first.messages[0].role == "system"
    assert first.messages[0].content.startswith("You have the tool deep-think. Before you settle")
    alone = Scripted(lambda call: Reply("Answer: 42"))
    wait(tl.Lab(alone, tools=[legs], runs=None).run(tl.ToolLoop(), TASK))
    assert {message.role for call in alone.calls for message in call.messages} == {"user"}


def test_a_tasks_own_system_prompt_stands_before_it():
    model = agent("42")
    asked(model, task=tl.open_ended("Which?", system_prompt="Speak French."))
    (message, *rest) = model.calls[0].messages
    assert message.content.startswith("Speak French.\n\nYou have the tool deep-think.")
    assert [other.role for other in rest] == ["user"]


def test_a_reasoning_memory_mode_strengthens_the_guidance():
    model = agent("42")
    asked(model, tool=tl.tools.deep_think(thinking_lab(), memory_mode="reasoning"))
    assert "Reason with it first" in model.calls[0].messages[0].content


@pytest.mark.parametrize("name", ["deep_think", "deep-think", "Deep Think", "deepthink", "`deep_think`"])
def test_naming_it_in_the_request_guarantees_its_use(name):
    task = tl.open_ended(f"Use {name} on this: which database?")
    model = agent("at once", "deep_think", "42")
    made = asked(model, task)
    assert "Needed before final-answer: deep-think (1×)." in model.calls[0].prompt
    assert [
        event.data["why"] for event in made.events if getattr(event, "name", "") == "react.refused_answer"
    ]
    assert list(made.tools_df()["tool"]) == ["deep-think"]
    assert made.answer == "42"


class Kept(tl.Lab):
    """A lab that keeps the runs of the tool."""

    async def run(self, *given, **more):
        self.made = await super().run(*given, **more)
        return self.made


def test_s7_its_result_is_the_whole_report():
    lab = Kept(Scripted(play), runs=None)
    made = asked(agent("deep_think", "42"), tool=tl.tools.deep_think(lab))
    (result,) = made.tools_df()["result"]
    report = tl.deep_thought(lab.made).report()
    assert sorted(result.splitlines()) == sorted(report.splitlines()), "all of it, in another order"
    for part in (
        *("**[8.5/10]** **History table**", "**[4.2/10]** Snapshots", "who* made a change is lost"),
        *("**Reflection:**", "## Final Solution (confidence: 9.0/10)", "3 iterations, 9 branches explored"),
    ):
        assert part in result
    assert result.index("## Final Solution") < result.index("## Iteration 1"), (
        "what is shown first matters most"
    )


@pytest.mark.slow
def test_d14_the_report_is_shortened_by_the_callers_limit_alone():
    long = "word " * 20_000

    def thinks(call):
        reply = play(call)
        return reply.replace("Keep a **history table**", long) if call.purpose == "converge" else reply

    lab = Kept(Scripted(thinks), runs=None)
    for most in (500, 1_000_000):
        model = agent("deep_think", "42")
        strategy = tl.ReAct(max_result_characters=most)
        made = asked(model, strategy=strategy, tool=tl.tools.deep_think(lab))
        (result,) = made.tools_df()["result"]
        assert len(result) > 100_000
        (shown,) = [one.content for one in model.calls[-1].messages if one.role == "tool"]
        assert shown.startswith(result[:500])
        assert (shown == result) is (most > 500)
        assert len(shown) < 600 or most > 500


NAMING = tl.open_ended("Use deep_think: which database?", context="Nine orders a day.")


def ignoring(call):
    """An agent that never calls a tool, whatever it is told."""
    if any(message.role == "user" and "deep-think gave" in message.content for message in call.messages):
        return Reply("with it")
    if call.purpose == "act" and call.tools and call.tools[-1]["name"] == "final-answer":
        return Reply(tool_calls=(ToolCall("c", "final-answer", '{"answer": "at once"}'),))
    return Reply("score: 0.5\nAnswer: at once")


STUBBORN = [
    tl.ToolLoop(),
    tl.ToolLoop(max_tool_round_trips=1),
    tl.ReAct(),
    tl.ReAct(max_iterations=1),
    tl.ReAct(max_iterations=2),
    tl.BestOf(strategy=tl.ToolLoop(), attempts=1),
    tl.Reflexion(strategy=tl.ToolLoop(), max_retries=0),
    tl.TreeThenAct(max_depth=1),
    tl.PlanExecute(),
    tl.PlanExecute(max_retries=0, max_refinements=0),
    tl.PlanExecute(tools=("deep-think",), required_tools={"deep-think": 1}, plan_mode="dag"),
    tl.WithSynthesis(strategy=tl.ToolLoop()),
]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STUBBORN, ids=str)
def test_d14_a_model_that_ignores_it_does_not_prevent_its_use(strategy):
    model = Scripted(ignoring)
    made = asked(model, NAMING, strategy)
    (call,) = made.tools_df().itertuples()
    assert call.tool == "deep-think"
    given = json.loads(call.arguments)
    assert given["task"] == NAMING.question
    assert given["context"].startswith(NAMING.context)
    assert "failed" not in given["context"]
    assert call.result.startswith("# Deep Think")
    if made.stop_reason == "answered":
        last = [call for call in model.calls if call.purpose == "act"][-1]
        assert "deep-think gave" in last.prompt, "the model is shown it before it answers"
    assert wait(made.replay()).identical


def test_d14_the_tool_loop_answers_with_what_it_gave():
    made = asked(Scripted(ignoring), NAMING, tl.ToolLoop())
    assert (made.answer, made.stop_reason) == ("with it", "answered")
    assert made.usage.calls == 2
    (note,) = [e for e in made.events if isinstance(e, tl.Note) and e.name == "tools.called_for_model"]
    assert note.data == {"tool": "deep-think"}
    path = [thought.text[:10] for thought in made.tree.path(made.best.id)]
    assert path[1:] == ["score: 0.5", "deep-think", "with it"]


def test_d14_with_one_turn_react_answers_with_what_it_gave():
    def reply(call):
        known = "deep-think gave" in call.prompt
        answer = json.dumps({"answer": "with it" if known else "without it"})
        return Reply(tool_calls=(ToolCall("c", "final-answer", answer),))

    strategy = tl.ReAct(max_iterations=1)
    made = asked(Scripted(reply), NAMING, strategy)
    assert list(made.tools_df()["tool"]) == ["deep-think"]
    assert (made.answer, made.stop_reason) == ("with it", "answered")
    assert made.usage.calls == 1 == strategy.max_calls(NAMING)
    assert [thought.text[:10] for thought in made.tree.path(made.best.id)][1] == "deep-think"
    assert wait(made.replay()).identical
    failing = tl.tools.deep_think(tl.Lab(Scripted(lambda call: Reply(error="boom")), runs=None))
    failed = asked(Scripted(reply), NAMING, strategy, tool=failing)
    assert (len(failed.tools_df()), failed.stop_reason) == (1, "limit:required_tools")


@pytest.mark.parametrize("iterations", [2, 3])
def test_d14_one_that_fails_is_not_called_again_after_the_last_turn(iterations):
    failing = tl.tools.deep_think(tl.Lab(Scripted(lambda call: Reply(error="boom")), runs=None))
    made = asked(agent("legs"), NAMING, tl.ReAct(max_iterations=iterations), tool=failing)
    assert list(made.tools_df()["tool"]).count("deep-think") == 1
    assert made.stop_reason == "limit:required_tools"


def test_d14_a_plan_that_cannot_be_read_still_calls_it():
    def reply(call):
        if call.purpose == "review" and "# Deep Think" in call.prompt:
            return "SATISFIED: it was thought over.\nAnswer: 42"
        return "I cannot plan."

    made = asked(model := Scripted(reply), NAMING, tl.PlanExecute())
    assert [call.purpose for call in model.calls] == ["plan"] * 3 + ["review"]
    assert list(made.tools_df()["tool"]) == ["deep-think"]
    assert (made.answer.splitlines()[-1], made.stop_reason) == ("Answer: 42", "answered")
    assert [(step.tool_name, step.status) for step in made.plans[0].steps] == [("deep-think", "completed")]
    assert wait(made.replay()).identical
    other = asked(Scripted(reply), strategy=tl.PlanExecute())  # nothing is named
    assert (other.stop_reason, other.tools_df().empty, other.plans) == ("limit:retries", True, [])


@pytest.mark.parametrize("strategy", [tl.ToolLoop(), tl.ReAct(max_iterations=2)], ids=str)
def test_a_loop_that_a_budget_cuts_off_answers_with_the_last_words_without_a_call(strategy):
    tool = tl.tools.deep_think(thinking_lab())
    lab = tl.Lab(Scripted(lambda call: "42"), tools=[tool, legs], runs=None)
    made = wait(lab.run(strategy, NAMING, budget=tl.Budget(calls=1)))
    assert (made.answer, made.stop_reason, made.status) == ("42", "budget:calls", "partial")
    assert list(made.tools_df()["tool"]) == ["deep-think"]
    assert made.best.id == "0.0"
    assert wait(made.replay()).identical
    beside = Scripted(
        lambda call: Reply("I look.", tool_calls=(ToolCall("b", "legs", '{"animal": "duck"}'),))
    )
    lab = tl.Lab(beside, tools=[tool, legs], runs=None)
    none = wait(lab.run(strategy, NAMING, budget=tl.Budget(calls=1)))
    assert (none.answer, none.stop_reason, none.status) == ("", "budget:calls", "failed")


@pytest.mark.parametrize("trips", [1, 2, 3])
def test_d14_a_tool_loop_that_calls_other_tools_to_its_end_calls_it_too(trips):
    def reply(call):
        closing = call.tool_choice == "none"
        asks = () if closing else (ToolCall("b", "legs", json.dumps({"animal": "duck"})),)
        return Reply("42" if closing else "", tool_calls=asks)

    model = Scripted(reply)
    made = asked(model, NAMING, tl.ToolLoop(max_tool_round_trips=trips))
    assert list(made.tools_df()["tool"]) == [*["legs"] * trips, "deep-think"]
    assert "deep-think gave" in model.calls[-1].prompt
    assert made.usage.calls == trips + 1 == tl.ToolLoop(max_tool_round_trips=trips).max_calls(NAMING)
    assert made.answer == "42"
    context = json.loads(made.tools_df()["arguments"].iloc[-1])["context"]
    assert "Nine orders a day." in context
    assert context.count("legs gave:\n2") == trips, "what is known so far"


def test_d14_a_tool_that_was_used_is_not_called_again():
    made = asked(agent("deep_think", "42"), NAMING, tl.ToolLoop())
    assert list(made.tools_df()["tool"]) == ["deep-think"]
    wrong = (ToolCall("a", "deep-think", '{"question": "Which?"}'),)
    turns = iter([Reply(tool_calls=wrong), *[Reply("Answer: 42")] * 3])
    again = asked(Scripted(lambda call: next(turns)), NAMING, tl.ToolLoop())
    assert list(again.tools_df()["error"].isna()) == [False, True], "one that failed was no use"
    failing = tl.tools.deep_think(tl.Lab(Scripted(lambda call: Reply(error="boom")), runs=None))
    failed = asked(Scripted(ignoring), NAMING, tl.ToolLoop(), tool=failing)
    assert len(failed.tools_df()) == 1, "it is called once, and the run goes on"
    assert failed.answer == "with it"


def test_d14_what_the_strategy_may_not_use_is_not_called():
    made = asked(Scripted(ignoring), NAMING, tl.ToolLoop(tools=("legs",)))
    assert made.tools_df().empty
    policy = tl.EffectPolicy(mode="deny_all")
    assert asked(Scripted(ignoring), NAMING, tl.ToolLoop(effect_policy=policy)).tools_df().empty


@pytest.mark.parametrize("propose", [tl.Sample(count=1), tl.Sample(count=3), tl.Propose(samples=2)], ids=str)
def test_d14_a_tree_of_thoughts_with_tools_uses_it_when_it_is_named(propose):
    """Once, for the first thought, and the model is shown what it gave."""
    tools = tl.WithTools(proposer=propose, tools=("deep-think",), max_round_trips=1)
    strategy = tl.TreeOfThoughts(propose=tools, stop=tl.Stop(depth=2, solved=None))
    model = Scripted(ignoring)
    made = asked(model, NAMING, strategy)
    (call,) = made.tools_df().itertuples()
    assert (call.tool, call.node) == ("deep-think", "0")
    assert json.loads(call.arguments)["task"] == NAMING.question
    told = [call for call in model.calls if "deep-think gave" in call.prompt]
    assert [(call.node, call.sample_index) for call in told] == [("0", 0)]
    assert len(model.calls) <= strategy.max_calls(NAMING)
    assert wait(made.replay()).identical
    unnamed = tl.open_ended("Which database?")
    assert not len(asked(Scripted(ignoring), unnamed, strategy).tools_df())


def test_d5_s7_it_takes_the_sizes_of_the_search():
    tool = tl.tools.deep_think(thinking_lab())
    assert {"max_iterations", "num_branches", "beam_width"} < {*tool.parameters["properties"]}
    lab = Kept(Scripted(play), runs=None)
    sizes = {"max_iterations": 1, "num_branches": 2, "beam_width": 1}
    call = ToolCall("a", "deep-think", json.dumps({"task": "Which?", **sizes}))
    turns = iter(
        [Reply(tool_calls=(call,)), Reply(tool_calls=(ToolCall("c", "final-answer", '{"answer": "1"}'),))]
    )
    asked(Scripted(lambda call: next(turns)), tool=tl.tools.deep_think(lab))
    told = tl.deep_thought(lab.made)
    assert (len(told.iterations), len(told.iterations[0].branches), len(told.iterations[0].beam)) == (1, 2, 1)


@pytest.mark.parametrize(
    "question", ["Which database?", "Think deep about it.", "Use my-deep-thinker.", "legs?"]
)
def test_other_requests_are_not_held_to_it(question):
    assert asked(agent("at once"), tl.open_ended(question)).answer == "at once"


def test_a_plan_that_lacks_it_gets_a_step_for_it():
    def reply(call):
        if call.purpose == "plan":
            return json.dumps({"steps": [{"title": "think", "type": "analysis", "instruction": "Think."}]})
        return "SATISFIED: yes\nAnswer: 42"

    task = tl.open_ended("Use deep_think: which database?")
    made = asked(Scripted(reply), task, tl.PlanExecute())
    assert list(made.tools_df()["tool"]) == ["deep-think"]
    assert made.answer.endswith("42")


def test_the_policy_of_a_lab_may_forbid_it_though_it_is_named():
    with pytest.raises(ValueError, match=r"'deep-think' .*does not allow model"):
        asked(agent("deep_think", "42"), tl.open_ended("Use deep_think."), effect_policy=tl.EffectPolicy())


@pytest.mark.slow
def test_what_it_gave_is_kept_for_a_rerun_without_its_model(tmp_path):
    class Gone(tl.Lab):
        async def run(self, *given, **more):
            raise AssertionError("it was asked again")

    cache = tmp_path / "calls"
    first = asked(thinks_first, tool=tl.tools.deep_think(thinking_lab()), cache=cache)
    gone = tl.tools.deep_think(Gone(tl.sim.SimGeneral(seed=3), runs=None))
    again = asked(thinks_first, tool=gone, cache=cache)
    assert again.tools_df()["result"][0] == first.tools_df()["result"][0]
    assert again.tools_df()["source"][0] == "cache"
    other = tl.tools.deep_think(tl.Lab(tl.sim.SimGeneral(seed=4), runs=None))
    assert asked(thinks_first, tool=other, cache=cache).tools_df()["source"][0] != "cache"
    judged = tl.tools.deep_think(thinking_lab(roles={"synthesize": {"temperature": 0.1}}))
    assert asked(thinks_first, tool=judged, cache=cache).tools_df()["source"][0] != "cache"


def test_one_that_comes_to_nothing_says_why():
    failing = tl.Lab(Scripted(lambda call: Reply(error="boom")), runs=None)
    made = asked(agent("deep_think", "42"), tool=tl.tools.deep_think(failing))
    assert "it came to nothing (error)" in made.tools_df()["error"][0]


def test_a_run_with_it_is_saved_loaded_and_replayed(tmp_path):
    made = asked(agent("deep_think", "42"))
    path = made.save(tmp_path / "a.jsonl")
    loaded = tl.load(path)
    assert loaded.tools_df().equals(made.tools_df())
    assert wait(made.replay()).identical
    spec = loaded.task.tools[0]
    assert spec.used_when_named
    assert spec.guidance
    assert "guidance" not in loaded.task.settings()["tools"][1]  # what few tools have is left out


def test_wrong_arguments_are_told_to_the_model():
    calls = (ToolCall("a", "deep-think", '{"question": "Which?"}'),)
    turns = iter(
        [Reply(tool_calls=calls), Reply(tool_calls=(ToolCall("c", "final-answer", '{"answer": "1"}'),))]
    )
    made = asked(Scripted(lambda call: next(turns)))
    assert "task: Field required" in made.tools_df()["error"][0]


def test_a_worker_cannot_have_it_and_that_is_said():
    with pytest.raises(TypeError, match="'deep-think' holds a lab of this process"):
        pickle.dumps(tl.tools.deep_think(thinking_lab()))
