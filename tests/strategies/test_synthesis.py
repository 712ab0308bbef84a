"""Context synthesis: what a long conversation is rewritten to, and that nothing else changes (R15)."""

import pytest
from support import STRATEGIES, TASK, Scripted, run, shuffled, wait

import tot_lab as tl
from tot_lab.core.calls import Message, Reply, ToolCall

REACT = tl.ReAct(max_iterations=6)


@tl.tool
def look(place: str) -> str:
    """Look at a place.

    place: where
    """
    words = [f"{'abcdefghij'[int(place) % 10] * 3}{chr(97 + k // 26)}{chr(97 + k % 26)}" for k in range(120)]
    return f"At {place} there is a long corridor: {' '.join(words)}"


def looking(times):
    """A model that looks about so often, and then answers."""

    def reply(call):
        if call.purpose == "synthesize":
            return f"Notes after {call.prompt.count('place')} places."
        turn = call.node.count(".") // 2
        if turn < times:
            return Reply(f"I look at {turn}.", tool_calls=(ToolCall("c", "look", f'{{"place": "{turn}"}}'),))
        return Reply(tool_calls=(ToolCall("f", "final-answer", '{"answer": "26"}'),))

    return reply


def walked(strategy, times=4, reply=None):
    model = Scripted(reply or looking(times))
    made = wait(tl.Lab(model, runs=None, tools=[look]).run(strategy, TASK))
    return made, model.calls


def notes(made):
    return [e for e in made.events if isinstance(e, tl.Note) and e.name == "context.synthesized"]


def test_a_long_transcript_is_rewritten_by_templates():
    plain, before = walked(REACT)
    made, calls = walked(tl.WithSynthesis(strategy=REACT, above=300))
    assert made.answer == plain.answer == "26"
    last, whole = calls[-1].messages, before[-1].messages
    assert [message.role for message in whole] == ["user"] + ["assistant", "tool"] * 4
    assert [message.role for message in last] == ["user", "assistant", "tool"]
    assert last[1:] == whole[-2:]
    assert last[0].content.startswith(whole[0].content)
    told = last[0].content.removeprefix(whole[0].content)
    assert told.startswith("\n\nWhat was done so far, in short:\n- I look at 0.; look(")
    assert told.count("\n- I look at") == 3
    assert "→ At 2 there is a long corridor: " in told
    assert sum(len(call.prompt) for call in calls) < sum(len(call.prompt) for call in before) * 0.8


def test_each_rewriting_is_an_event_with_its_sizes():
    made, _ = walked(tl.WithSynthesis(strategy=REACT, above=300))
    assert [note.data["turns"] for note in notes(made)] == [2, 1]
    for note in notes(made):
        assert note.data["synthesis"] == "fast"
        assert note.data["tokens_after"] < note.data["tokens_before"]
        assert note.data["tokens_before"] > 300


def test_the_tree_and_the_results_stay_whole():
    plain, _ = walked(REACT)
    made, _ = walked(tl.WithSynthesis(strategy=REACT, above=0))
    assert made.tree == plain.tree
    assert [e for e in made.events if isinstance(e, Reply)] == [
        e for e in plain.events if isinstance(e, Reply)
    ]


def test_a_short_one_stays_as_it_is():
    _, before = walked(REACT, times=1)
    made, calls = walked(tl.WithSynthesis(strategy=REACT, above=100_000), times=4)
    assert not notes(made)
    assert [call.messages for call in calls[:2]] == [call.messages for call in before]
    searched = run(tl.WithSynthesis(strategy=tl.TreeOfThoughts(), above=0))
    assert searched.events[1:] == run(tl.TreeOfThoughts()).events


def test_deep_asks_the_model_and_goes_on_from_its_notes():
    strategy = tl.WithSynthesis(
        strategy=REACT, synthesis="deep", above=0, model="sim/other", temperature=0.2, max_tokens=300
    )
    call = next(e for e in walked(strategy)[0].events if isinstance(e, tl.Call) and e.purpose == "synthesize")
    assert (call.model, call.temperature, call.max_tokens) == ("sim/other", 0.2, 300)
    made, calls = walked(tl.WithSynthesis(strategy=REACT, synthesis="deep", above=0))
    first, second, third = (call for call in calls if call.purpose == "synthesize")
    assert TASK.question in first.prompt
    assert "At 0 there is a long corridor" in first.prompt
    assert "Notes after" not in first.prompt
    assert "<notes>\nNotes after" in second.prompt
    assert "At 0 there" not in second.prompt  # it was condensed once
    assert "At 1 there" in second.prompt
    assert "At 2 there" in third.prompt
    (notes_of_third,) = [e.text for e in made.events if isinstance(e, Reply) and e.text.startswith("Notes")][
        2:
    ]
    assert calls[-1].messages[0].content.endswith(f"What was done so far, in short:\n{notes_of_third}")
    assert [note.data["synthesis"] for note in notes(made)] == ["deep"] * 3
    assert made.answer == "26"


@pytest.mark.parametrize("bad", [Reply(error="no route"), "", "  "])
def test_deep_falls_back_to_the_templates_and_says_so(bad):
    def reply(call):
        return bad if call.purpose == "synthesize" else looking(3)(call)

    made, calls = walked(tl.WithSynthesis(strategy=REACT, synthesis="deep", above=0), reply=reply)
    assert made.answer == "26"
    assert "- I look at 0." in calls[-1].prompt
    failed = [e.data for e in made.events if isinstance(e, tl.Note) and e.name == "call.failed"]
    assert [data["instead"] for data in failed] == ["fast"] * 2


def test_what_is_not_tighter_is_left_out():
    def reply(call):
        return "word " * 2000 if call.purpose == "synthesize" else looking(3)(call)

    made, calls = walked(tl.WithSynthesis(strategy=REACT, synthesis="deep", above=0), reply=reply)
    assert not notes(made)
    assert [message.role for message in calls[-1].messages] == ["user"] + ["assistant", "tool"] * 3


def test_kept_turns_stay():
    _, calls = walked(tl.WithSynthesis(strategy=REACT, above=0, keep=3))
    assert [message.role for message in calls[-1].messages] == ["user"] + ["assistant", "tool"] * 3


def test_results_are_never_parted_from_their_calls():
    """Also where a turn asked for several tools at once, and where calls were written as text."""

    def reply(call):
        turn = call.node.count(".") // 2
        if turn == 3:
            return "Answer: 26"
        two = tuple(ToolCall(f"c{turn}{k}", "look", f'{{"place": "{turn}{k}"}}') for k in range(2))
        return Reply("Both.", tool_calls=two)

    _, calls = walked(tl.WithSynthesis(strategy=tl.ToolLoop(max_tool_round_trips=3), above=0), reply=reply)
    for call in calls:
        asked = {tool.id for message in call.messages for tool in message.tool_calls}
        assert {m.tool_call_id for m in call.messages if m.role == "tool"} == asked
    assert 'look({"place": "00"}) → At 00' in calls[-1].messages[0].content
    assert 'look({"place": "01"}) → At 01' in calls[-1].messages[0].content


def test_set_for_one_and_for_all():
    """Inside: for this strategy alone. Outside: for whatever it runs."""
    one = tl.WithSynthesis(strategy=REACT, above=0)
    for strategy in (
        tl.Reflexion(strategy=one),
        tl.WithSynthesis(strategy=tl.Reflexion(strategy=REACT), above=0),
    ):
        made, calls = walked(strategy)
        assert notes(made)
        assert "What was done so far" in [call for call in calls if call.purpose == "act"][-1].prompt


def test_one_for_all_leaves_to_one_inside_what_it_has_seen_to():
    """Also where nothing tighter came of it: the same is not asked twice."""

    def reply(call):
        return "word " * 2000 if call.purpose == "synthesize" else looking(3)(call)

    inner = tl.WithSynthesis(strategy=tl.ReAct(max_iterations=6), synthesis="deep", above=0)
    _, calls = walked(inner, reply=reply)
    made, again = walked(tl.WithSynthesis(strategy=inner, synthesis="deep", above=0), reply=reply)
    assert made.answer == "26"
    assert again == calls


def test_r15_off_leaves_the_conversation_whole():
    plain, calls = walked(REACT)
    made, same = walked(tl.WithSynthesis(strategy=REACT, synthesis="off", above=0))
    assert [call.messages for call in same] == [call.messages for call in calls]
    assert made.answer == plain.answer
    assert notes(made) == []


@pytest.mark.slow
def test_r15_a_strategy_inside_overrides_the_setting_for_all():
    """Also where it lies below its own threshold, and where it is off."""
    off = tl.WithSynthesis(strategy=REACT, synthesis="off")
    rare = tl.WithSynthesis(strategy=REACT, synthesis="deep", above=10**6)
    _, calls = walked(tl.Reflexion(strategy=REACT))
    for own in (off, rare):
        made, again = walked(tl.WithSynthesis(strategy=tl.Reflexion(strategy=own), above=0))
        acts, plain = ([c.messages for c in of if c.purpose == "act"] for of in (again, calls))
        assert acts == plain
        assert notes(made) == []


def test_adaptive_has_the_global_one_until_it_delegates_and_each_choice_its_own():
    def last_act(strategy):
        made, calls = walked(strategy)
        return [(note.at, note.data["synthesis"]) for note in notes(made)], calls[-1].prompt

    def adaptive(inner):
        return tl.Adaptive(strategies={"reactive": inner}, routes={"general": "reactive"})

    every, told = last_act(tl.WithSynthesis(strategy=adaptive(REACT), above=0))
    own, _ = last_act(adaptive(tl.WithSynthesis(strategy=REACT, synthesis="deep", above=0)))
    assert "What was done so far" in told
    assert {synthesis for _, synthesis in every} == {"fast"}
    assert {synthesis for _, synthesis in own} == {"deep"}
    assert all(at.startswith("0.0") for at, _ in every + own)  # below what it delegated to
    assert last_act(adaptive(REACT))[0] == []


@pytest.mark.slow
@pytest.mark.parametrize("synthesis", ["fast", "deep"])
@pytest.mark.parametrize("kind", STRATEGIES, ids=lambda kind: kind.kind)
def test_it_wraps_every_strategy(kind, synthesis):
    needed = [name for name, field in kind.model_fields.items() if field.is_required()]
    strategy = kind(**dict.fromkeys(needed, REACT))
    wrapped = tl.WithSynthesis(strategy=strategy, synthesis=synthesis, above=0)
    model = Scripted()
    made = run(wrapped, model=model)
    most = wrapped.max_calls(TASK)
    assert most is None or len(model.calls) <= most
    assert run(wrapped, model=Scripted(latency=shuffled(1))).events == made.events
    assert wait(made.replay()).identical


@pytest.mark.parametrize("bad", [{"synthesis": "slow"}, {"above": -1}, {"keep": 0}])
def test_bad_settings_are_refused_by_name(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        tl.WithSynthesis(strategy=REACT, **bad)


def test_a_conversation_that_begins_with_the_model_survives():
    class Odd(tl.Strategy):
        def think(self, task, at="0"):
            yield tl.Thought(at, None, task.question)
            turns = tuple(Message("assistant", f"{k} " * 1000) for k in range(4))
            yield from tl.ask(tl.Call(at, "act", turns))
            return tl.Answer("", "answered")

    _, (call,) = walked(tl.WithSynthesis(strategy=Odd(), above=0))
    assert [message.role for message in call.messages] == ["user", "assistant"]
