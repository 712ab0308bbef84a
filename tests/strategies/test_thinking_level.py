"""Thinking levels over any strategy, and when a reflection is due (K1 to K7)."""

import json
import warnings

import pytest
from support import STRATEGIES, TASK, Scripted, answer_to, run, shuffled, wait
from support.providers import Providers, Said

import tot_lab as tl
from tot_lab.core.calls import Reply, ToolCall
from tot_lab.core.reading.scores import read_confidence
from tot_lab.core.tools import tool_call
from tot_lab.strategies.conversation import text_tool_calls
from tot_lab.strategies.thinking_level import THINKING_TOKENS, next_action

CHAIN = tl.ChainOfThought()
SEARCH = tl.TreeOfThoughts(propose=tl.Sample(count=2), stop=tl.Stop(depth=2))
REACT = tl.ReAct(max_iterations=6)


def notes(made):
    return [e for e in made.events if isinstance(e, tl.Note) and e.name == "thinking.reflected"]


def asked(strategy, **options):
    model = Scripted()
    run(strategy, model=model, **options)
    return model.calls


# Levels.


@pytest.mark.parametrize(("level", "tokens"), [("low", 500), ("medium", 2000), ("high", 5000)])
def test_a_level_asks_for_reasoning_under_a_heading(level, tokens):
    assert THINKING_TOKENS[level] == tokens
    (plain,) = asked(CHAIN)
    (call,) = asked(tl.WithThinking(strategy=CHAIN, level=level))
    system, *rest = call.messages
    assert system.content == tl.records.ThinkingLevel(level).prompt_prefix
    assert tl.records.ThinkingLevel(level).token_budget == tokens
    assert tuple(rest) == plain.messages
    assert system.role == "system"
    assert system.content.startswith("## Thinking\n\n")
    assert f"{tokens:,} tokens" in system.content
    assert "<think>" in system.content
    assert "</think>" in system.content
    assert call.effort == level


@pytest.mark.parametrize("strategy", [CHAIN, SEARCH, REACT], ids=lambda strategy: strategy.kind)
def test_off_leaves_everything_as_it_is(strategy):
    assert tl.WithThinking(strategy=strategy).level == "off"
    wrapped = tl.WithThinking(strategy=strategy, reflect_every=1)
    assert run(wrapped).events == run(strategy).events
    assert wrapped.max_calls(TASK) == strategy.max_calls(TASK)


def test_an_unknown_level_is_off_and_warns_once():
    with pytest.warns(UserWarning, match="unknown thinking level 'extreme'.*off, low, medium, high") as seen:
        made = tl.WithThinking(strategy=CHAIN, level="extreme")
    assert len(seen) == 1
    assert made.level == "off"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tl.part_of(json.loads(json.dumps(made.settings()))) == made


@pytest.mark.parametrize("name", ["HIGH", "High", " high ", tl.records.ThinkingLevel.HIGH])
def test_a_level_is_read_in_any_case(name):
    assert tl.records.ThinkingLevel(name) is tl.records.ThinkingLevel.HIGH
    made = tl.WithThinking(strategy=CHAIN, level=name)
    assert made == tl.WithThinking(strategy=CHAIN, level="high")
    assert made.settings()["level"] == "high"
    (call,) = asked(made)
    assert call.effort == "high"


def test_levels_have_public_budgets_and_prompts():
    assert [level.token_budget for level in tl.records.ThinkingLevel] == [0, 500, 2000, 5000]
    assert tl.records.ThinkingLevel.OFF.prompt_prefix == ""
    assert len({level.prompt_prefix for level in tl.records.ThinkingLevel}) == 4
    with pytest.warns(UserWarning, match="unknown thinking level 'Extreme'"):
        assert tl.records.ThinkingLevel("Extreme") is tl.records.ThinkingLevel.OFF


def test_the_defaults_are_the_designs():
    made = tl.WithThinking(strategy=CHAIN)
    assert (made.level, made.reflect_every) == ("off", 0)
    assert made.reflect_on_tool_error is made.reflect_on_uncertainty is True


def test_the_reply_gets_room_for_the_reasoning_and_an_effort_that_is_set_stands():
    chain = tl.ChainOfThought(max_tokens=100)
    (call,) = asked(tl.WithThinking(strategy=chain, level="low"))
    assert call.max_tokens == 100 + 1024
    (call,) = asked(tl.WithThinking(strategy=chain, level="high"))
    assert call.max_tokens == 100 + 5000

    class Given(tl.Prompting):
        def think(self, task, at="0"):
            yield tl.Thought(at, None, task.question)
            call = tl.Call(at, "answer", (tl.records.Message("system", "Be brief."),), effort="high")
            yield from tl.ask(call)
            return tl.Answer("", "answered")

    (call,) = asked(tl.WithThinking(strategy=Given(), level="low"))
    assert call.effort == "high"
    assert call.messages[0].content.startswith("Be brief.\n\n## Thinking")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "sent"),
    [
        ("openai/o3-mini", {"reasoning_effort": "low"}),
        ("openai/gpt-4.1-mini", {}),
        ("anthropic/claude-sonnet-4-20250514", {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
    ],
)
def test_the_level_is_the_providers_own_effort_where_there_is_one(model, sent):
    """Through litellm, against a server that speaks their formats; where there is none, it is said."""
    with Providers(lambda asked: Said("<think>8 * 3 + 2</think>\nAnswer: 26")) as server:
        family = model.partition("/")[0]
        endpoint = tl.LiteLLM(model=model, api_base=server.base(family), api_key="none")
        strategy = tl.WithThinking(strategy=tl.ChainOfThought(max_tokens=100), level="low")
        made = wait(tl.Lab(endpoint, runs=None, mode="off").run(strategy, TASK))
        (asked,) = server.calls
    assert {name: asked.json[name] for name in ("reasoning_effort", "thinking") if name in asked.json} == sent
    most = asked.json.get("max_tokens") or asked.json["max_completion_tokens"]
    assert most > asked.json.get("thinking", {}).get("budget_tokens", 0)
    dropped = [
        line.e.data["settings"] for line in made.lines if getattr(line.e, "name", "") == "call.dropped"
    ]
    assert dropped == ([] if sent else [["effort"]])
    (reply,) = [event for event in made.events if isinstance(event, Reply)]
    assert (reply.thinking, made.answer) == ("8 * 3 + 2", "26")


def test_where_the_first_token_counts_only_the_effort_is_set():
    search = tl.TreeOfThoughts(evaluate="logprob")
    judged = [
        call for call in asked(tl.WithThinking(strategy=search, level="high")) if call.purpose == "logprob"
    ]
    assert judged
    for call in judged:
        assert (call.effort, call.messages[0].role) == ("high", "user")
    structured = tl.game24("4 5 6 10", structured=True)
    lab = tl.Lab("sim/game24", runs=None)
    made = wait(lab.run(tl.WithThinking(strategy=SEARCH, level="low"), structured))
    formed = [e for e in made.events if isinstance(e, tl.Call) and e.response_format is not None]
    assert formed
    assert all(tl.records.ThinkingLevel.LOW.prompt_prefix in call.prompt for call in formed)
    short = tl.TreeOfThoughts(propose=tl.Sample(count=2), stop=tl.Stop(depth=2), max_tokens=100)
    made = wait(lab.run(tl.WithThinking(strategy=short, level="low"), structured))
    formed = [e for e in made.events if isinstance(e, tl.Call) and e.response_format is not None]
    assert {call.max_tokens for call in formed} == {100 + 1024}  # the provider thinks on its own


def test_thinking_is_kept_apart_from_the_answer():
    model = Scripted(lambda call: "<think>8 * 3 + 2\nAnswer: 99</think>\nAnswer: 26")
    made = run(tl.WithThinking(strategy=CHAIN, level="low"), model=model)
    assert made.answer == "26"
    assert made.tree["0.0"].text == "Answer: 26"
    (reply,) = [event for event in made.events if isinstance(event, Reply)]
    assert (reply.thinking, reply.text) == ("8 * 3 + 2\nAnswer: 99", "Answer: 26")


@pytest.mark.slow
@pytest.mark.parametrize("kind", STRATEGIES, ids=lambda kind: kind.kind)
def test_every_strategy_takes_a_level(kind):
    needed = [name for name, field in kind.model_fields.items() if field.is_required()]
    strategy = kind(**dict.fromkeys(needed, CHAIN))
    wrapped = tl.WithThinking(strategy=strategy, level="medium", reflect_every=3)
    model = Scripted()
    made = run(wrapped, model=model)
    assert made.stop_reason is not None
    turns = [call for call in model.calls if call.purpose != "reflect"]
    assert turns
    for call in turns:
        assert call.effort == "medium"
        assert tl.records.ThinkingLevel.MEDIUM.prompt_prefix in call.messages[0].content, call.purpose
    most = wrapped.max_calls(TASK)
    assert most is None or len(model.calls) <= most
    assert run(wrapped, model=Scripted(latency=shuffled(1))).events == made.events
    assert wait(made.replay()).identical


@pytest.mark.parametrize(
    "strategy", [tl.DeepThink(max_iterations=1), tl.PlanExecute()], ids=lambda made: made.kind
)
def test_calls_for_json_get_the_instruction_and_their_replies_are_read(strategy):
    """The calls of Deep Think and of plans, which have a schema; a reply may think first."""
    plain = Scripted()
    run(strategy, model=plain)
    assert any(call.response_format for call in plain.calls)
    assert not any("<think>" in call.prompt for call in plain.calls)

    def thinking_first(call):
        assert tl.records.ThinkingLevel.HIGH.prompt_prefix in call.prompt
        got = answer_to(call)
        return f"<think>{{'a': 1}}?</think>{got}" if isinstance(got, str) else got

    made = run(tl.WithThinking(strategy=strategy, level="HIGH"), model=Scripted(thinking_first))
    assert made.answer in ("24", "26")
    assert made.calls_df().thinking.notna().any()


@pytest.mark.slow
def test_a_tool_call_within_thinking_is_never_carried_out():
    """Wherever the thinking stands, and whatever wrote the reply down."""
    call = '{"name": "broken", "arguments": {"k": 1}}'
    done = '{"name": "final-answer", "arguments": {"answer": "26"}}'
    for text in (
        f"<think>{call}</think>{done}",
        f"I will see. <THINK>{call}</THINK> {done}",
        f"{call}</think>{done}",
        f"<think>a</think> <thinking>{call}</thinking> {done}",
        f"{done} <think>{call}",
        f"{done}<think>```json\n{call}\n```</think>",
    ):
        for native in (text, Reply(text), Reply(text, thinking="apart")):
            lab = tl.Lab(Scripted(lambda _, native=native: native), runs=None, tools=[broken, legs])
            made = wait(lab.run(REACT, TASK))
            assert (made.answer, len(made.tools_df())) == ("26", 0), text


def test_a_tool_call_within_thinking_of_an_older_record_is_not_carried_out():
    """Replies that were recorded before thinking was separated everywhere come as they were written."""
    for text in (
        'Hm. <think>{"name": "legs", "arguments": {"animal": "duck"}}</think>',
        '{"name": "legs", "arguments": {"animal": "duck"}}</think> Done.',
    ):
        thought, calls, unknown, _ = text_tool_calls(text, {"legs": "legs"}, "0")
        assert (thought, calls, unknown) == (text.strip(), (), ())


# Reflections.


class Steps(tl.Strategy):
    """Five turns, with a tool called before those that `fails` names."""

    turns: int = 5
    fails: list[int] = []

    def think(self, task, at="0"):
        yield tl.Thought(at, None, task.question)
        for k in range(self.turns):
            if k in self.fails:
                yield from tl.ask(tool_call(at, "broken", {"k": k}))
            yield from tl.ask(tl.Call(at, "answer", (tl.records.Message("user", f"turn {k}"),)))
        return tl.Answer("", "answered")


@tl.tool
def broken(k: int) -> str:
    """Fails.

    k: a number
    """
    raise RuntimeError(f"no luck with {k}")


@tl.tool
def legs(animal: str) -> int:
    """Legs of an animal.

    animal: its name
    """
    return {"spider": 8, "duck": 2}[animal]


def reflected(strategy, reply=lambda call: "Half is done.\nNext: go on", **settings):
    """Before which turns it reflected, and the calls."""
    model = Scripted(reply)
    lab = tl.Lab(model, runs=None, tools=[broken, legs])
    made = wait(lab.run(tl.WithThinking(strategy=strategy, level="low", **settings), TASK))
    turns, before = 0, []
    for call in model.calls:
        if call.purpose == "reflect":
            before.append(turns)
        else:
            turns += 1
    return before, model.calls, made


def test_it_reflects_every_so_many_turns():
    assert reflected(Steps())[0] == []
    assert reflected(Steps(), reflect_every=2)[0] == [2, 4]
    assert reflected(Steps(), reflect_every=1)[0] == [1, 2, 3, 4]
    assert reflected(Steps(), reflect_every=5)[0] == []  # there is no turn after the fifth


@pytest.mark.slow
def test_it_reflects_before_the_turn_after_a_tool_failed_and_then_the_error_is_cleared():
    before, calls, made = reflected(Steps(fails=[1, 3]))
    assert before == [1, 3]
    assert [note.data["because"] for note in notes(made)] == ["tool error"] * 2
    first, second = (call.prompt for call in calls if call.purpose == "reflect")
    assert "A tool failed lately:\nbroken failed: " in first
    assert "no luck with 1" in first
    assert "no luck with 3" in second.partition("A tool failed lately:")[2]
    assert "no luck with 1" not in second.partition("A tool failed lately:")[2]
    assert reflected(Steps(fails=[1]), reflect_on_tool_error=False)[0] == []


def test_it_reflects_after_a_reply_of_little_confidence():
    def reply(call):
        return "done\nconfidence: 0.4" if "turn 1" in call.prompt else "done\nconfidence: 0.5"

    assert reflected(Steps(), reply)[0] == [2]
    assert reflected(Steps(), reply, reflect_on_uncertainty=False)[0] == []


@pytest.mark.parametrize(
    ("text", "confidence"),
    [
        ("confidence: 0.4", 0.4),
        ('{"answer": 3, "confidence": 0.25}', 0.25),
        ("**Confidence:** 40%", 0.4),
        ("confidence 3/10", 0.3),
        ("confidence: 0.2 at first. Checked; confidence: 0.9", 0.9),
        ("confidence: 7", None),  # of what?
        ("score: 0.2", None),
        ("0.2", None),
        ("", None),
    ],
)
def test_what_confidence_a_reply_reports(text, confidence):
    assert read_confidence(text) == confidence


@pytest.mark.slow
def test_the_reflection_prompt_has_the_last_three_results():
    class Tools(tl.Strategy):
        def think(self, task, at="0"):
            yield tl.Thought(at, None, task.question)
            for k, animal in enumerate(["spider", "duck", "spider", "duck"]):
                yield from tl.ask(tool_call(at, "legs", {"animal": animal}, sample_index=k))
            yield from tl.ask(tool_call(at, "broken", {"k": 0}))
            yield from tl.ask(tl.Call(at, "answer", (tl.records.Message("user", "How many?"),)))
            return tl.Answer("", "answered")

    _, calls, _ = reflected(Tools())
    prompt = calls[0].prompt
    assert calls[0].purpose == "reflect"
    assert "- legs → 8\n- legs → 2\n- broken failed: " in prompt
    assert prompt.count("legs → ") == 2
    for question in ("What is done?", "Is the course right?", "What is missing?", "How many?"):
        assert question in prompt


@pytest.mark.slow
def test_a_result_that_a_person_changed_is_reflected_on_as_it_is_now():
    def reply(call):
        if call.purpose == "reflect":
            return "Half is done."
        if call.node == "0":
            asked = [
                ToolCall(str(k), "legs", json.dumps({"animal": a})) for k, a in enumerate(("duck", "cow"))
            ]
            return Reply(tool_calls=tuple(asked))
        return Reply(tool_calls=(ToolCall("b", "final-answer", '{"answer": "26"}'),))

    _, calls, made = reflected(tl.ReAct(), reply)
    assert "- legs → 2\n- legs failed: " in calls[1].prompt
    for node, said in (("0.0.0", "legs → 7"), ("0.0.1", "legs → 4")):
        model = Scripted(reply)
        wait(tl.Lab(model, runs=None, tools=[broken, legs]).branch(made, node, content=said))
        asked = model.calls[0]
        assert asked.purpose == "reflect"
        assert f"- {said}" in asked.prompt
        assert made.tree[node].text not in asked.prompt


def test_a_reflection_is_told_to_the_next_turn_alone_and_never_stops_it():
    _, calls, made = reflected(Steps(), reflect_every=2)
    told = ["## Reflection" in call.prompt for call in calls if call.purpose != "reflect"]
    assert told == [False, False, True, False, True]
    assert notes(made)[0].data == {
        "because": "interval",
        "turn": 2,
        "text": "Half is done.\nNext: go on",
        "should_continue": True,
        "suggested_action": "go on",
        "confidence": 0.7,
    }
    assert made.stop_reason == "answered"


def test_the_managers_questions_can_be_asked_from_outside():
    strategy = tl.WithThinking(strategy=CHAIN, level="low", reflect_every=2)
    manager = strategy.manager()
    assert isinstance(manager, tl.records.ThinkingManager)
    assert (manager.should_reflect(), manager.why_reflect(), manager.last_reflection) == (False, None, None)
    manager.start_turn()
    assert not manager.should_reflect()
    manager.start_turn()
    assert (manager.should_reflect(), manager.why_reflect()) == (True, "interval")
    manager.start_turn()
    manager.saw_tool("legs", Reply("8"))
    assert manager.why_reflect() is None
    manager.saw_tool("legs", Reply(error="no such animal"))
    assert manager.why_reflect() == "tool error"
    reflection = manager.record_reflection("Half is done.\nNext: ask for the duck", "tool error")
    assert manager.why_reflect() is None
    manager.saw_reply("confidence: 0.3")
    assert manager.why_reflect() == "uncertainty"
    assert manager.last_reflection is reflection
    assert json.loads(json.dumps(reflection.to_dict())) == {
        "because": "tool error",
        "turn": 3,
        "text": "Half is done.\nNext: ask for the duck",
        "should_continue": True,
        "suggested_action": "ask for the duck",
        "confidence": 0.7,
    }
    off = tl.WithThinking(strategy=CHAIN, reflect_every=1).manager()
    off.start_turn()
    off.saw_tool("legs", Reply(error="no such animal"))
    assert not off.should_reflect()


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("Half is done.\nNext: go on", "go on"),
        ("- **Next:** ask for the duck\nThat is all.", "ask for the duck"),
        ("next:\n\n  go on", "go on"),
        ("What comes next: nothing", None),
        ("Next:", None),
        ("", None),
    ],
)
def test_the_next_action(text, action):
    assert next_action(text) == action


@pytest.mark.slow
def test_a_reflection_that_fails_costs_nothing_but_itself():
    def reply(call):
        return Reply(error="no route") if call.purpose == "reflect" else "done"

    before, calls, made = reflected(Steps(fails=[1]), reply)
    assert before == [1, 2, 3, 4]  # the error stays until one is recorded
    assert made.stop_reason == "answered"
    assert not notes(made)
    assert not any("## Reflection" in call.prompt for call in calls)


@pytest.mark.slow
def test_branches_at_once_count_for_themselves_and_are_added_up():
    class Fork(tl.Strategy):
        def think(self, task, at="0"):
            yield tl.Thought(at, None, task.question)
            yield from self.turn(at, 0)
            yield from tl.gather([self.turn(at, 1), self.failing(at)])
            yield from self.turn(at, 3)
            return tl.Answer("", "answered")

        def turn(self, at, k):
            yield from tl.ask(tl.Call(at, "answer", (tl.records.Message("user", f"turn {k}"),)))

        def failing(self, at):
            yield from tl.ask(tool_call(at, "broken", {"k": 2}))

    _, calls, made = reflected(Fork(), reflect_every=3)
    assert [(note.data["turn"], note.data["because"]) for note in notes(made)] == [(2, "tool error")]
    assert sum(call.purpose == "reflect" for call in calls) == 1


@pytest.mark.slow
def test_over_a_loop_with_tools_it_sees_the_loops_own_results():
    def reply(call):
        if call.purpose == "reflect":
            return "The name was wrong.\nNext: ask for the duck"
        if not any(message.role == "tool" for message in call.messages):
            return Reply(tool_calls=(ToolCall("a", "legs", '{"animal": "dragon"}'),))
        return Reply(tool_calls=(ToolCall("b", "final-answer", '{"answer": "26"}'),))

    _, calls, made = reflected(REACT, reply)
    assert [call.purpose for call in calls] == ["act", "reflect", "act"]
    assert "legs failed" in calls[1].prompt
    assert "ask for the duck" in calls[2].prompt
    assert made.answer == "26"


@pytest.mark.slow
def test_it_keeps_to_a_budget_and_to_its_bound():
    wrapped = tl.WithThinking(strategy=SEARCH, level="low", reflect_every=1)
    whole = run(wrapped).usage.calls
    assert whole <= wrapped.max_calls(TASK) == 2 * SEARCH.max_calls(TASK)
    for cap in (1, 3, whole - 1):
        model = Scripted(latency=shuffled(cap))
        made = run(wrapped, model=model, budget=tl.Budget(calls=cap))
        assert len(model.calls) == cap
        assert made.events == run(wrapped, budget=tl.Budget(calls=cap)).events


def test_on_a_simulated_player_the_answers_stay_readable():
    lab = tl.Lab(tl.sim.SimGame24(skill=1.0, noise=0.0), runs=None)
    search = tl.TreeOfThoughts(propose=tl.Propose(count=3))
    made = wait(
        lab.run(tl.WithThinking(strategy=search, level="high", reflect_every=4), tl.game24("4 5 6 10"))
    )
    assert made.correct
    assert notes(made)


def test_it_goes_with_reflexion_either_way_round():
    for strategy in (
        tl.WithThinking(strategy=tl.Reflexion(strategy=CHAIN), level="low", reflect_every=1),
        tl.Reflexion(strategy=tl.WithThinking(strategy=CHAIN, level="low")),
    ):
        made = run(strategy, model=Scripted(answer_to))
        assert wait(made.replay()).identical
        assert made.usage.calls <= strategy.max_calls(TASK)
