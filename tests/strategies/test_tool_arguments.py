"""The arguments of tool calls: malformed native ones are repaired with a note, and a tool that requires none
may be called without any."""

import json

import pytest
from support import TASK, wait
from support.scripts import Script, final, notes, said

import tot_lab as tl
from tot_lab.analysis.frames import steps_of
from tot_lab.core.calls import Reply, ToolCall
from tot_lab.strategies.conversation import read_arguments, turn_of

CALLED: list[object] = []


@tl.tool(retries=0)
def add(a: int, b: str = "") -> str:
    """Add."""
    CALLED.append((a, b))
    return f"{a} is added."


@tl.tool(retries=0)
def now(zone: str = "UTC") -> str:
    """The time."""
    CALLED.append(zone)
    return f"Noon in {zone}."


TOOLS = [add, now]
ONE = {"a": 1}
REPAIRED = {
    "encoded twice": json.dumps('{"a": 1}'),
    "encoded three times": json.dumps(json.dumps('{"a": 1}')),
    "encoded twice, and malformed": json.dumps("{'a': 1,}"),
    "single quotes": "{'a': 1}",
    "a trailing comma": '{"a": 1,}',
    "a fence": '```json\n{"a": 1}\n```',
    "a tag behind it": '{"a": 1}</tool_call>',
    "an end of turn behind it": '{"a": 1}<|im_end|>',
    "a bracket too many": '{"a": 1}}',
    "keys without quotes": "{a: 1}",
    "words around it": 'The arguments are {"a": 1}.',
    "written twice": '{"a": 1}{"a": 1}',
}


@pytest.fixture(autouse=True)
def _nothing_called():
    CALLED.clear()


def carried_out(*replies, strategy=None):
    lab = tl.Lab(Script(*replies), runs=None, tools=TOOLS)
    return wait(lab.run(strategy or tl.ReAct(), TASK))


def repairs(made):
    return [data["tool"] for data in notes(made, "json.repaired")]


@pytest.mark.parametrize("name", REPAIRED)
def test_malformed_arguments_of_a_native_call_are_repaired_with_a_note(name):
    made = carried_out(said(("add", REPAIRED[name])), said(final("26")))
    assert CALLED == [(1, "")]
    assert repairs(made) == ["add"]
    [call] = [event for event in made.events if isinstance(event, tl.Call) and event.purpose == "tool"]
    assert json.loads(call.prompt) == ONE
    assert made.answer == "26"
    assert json.loads(next(step.arguments for step in steps_of(made) if step.action == "add")) == ONE


IN_TEXT = {
    "single quotes": ("{'name': 'add', 'arguments': {'a': 1}}", ["add"]),
    "a trailing comma in the arguments": ('{"name": "add", "arguments": {"a": 1,}}', ["add"]),
    "malformed in a string": (json.dumps({"name": "add", "arguments": "{'a': 1}"}), ["add"]),
    "as asked for": ('{"name": "add", "arguments": {"a": 1}}', []),
    "in a string": (json.dumps({"name": "add", "arguments": '{"a": 1}'}), []),
}


@pytest.mark.parametrize("name", IN_TEXT)
def test_a_malformed_call_in_text_is_repaired_with_a_note(name):
    text, repaired = IN_TEXT[name]
    made = carried_out(text, said(final("26")))
    assert (CALLED, repairs(made)) == ([(1, "")], repaired)


@pytest.mark.parametrize("given", ['{"a": 1}', ' {"a": 1}\n', {"a": 1}])
def test_sound_arguments_are_as_written_and_without_a_note(given):
    made = carried_out(said(("add", given)), said(final("26")))
    assert (CALLED, repairs(made)) == ([(1, "")], [])


UNKNOWN = {
    "cut off": '{"a": 1, "b": "hel',
    "cut off inside": '{"a": {"b": 1}, "c": "hel',
    "a number that may go on": '{"a": 1',
    "two objects": '{"a": 1}{"a": 2}',
    "no object": "[1]",
    "words": "one and two",
    "a number": "1",
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_arguments_that_cannot_be_known_are_not_made_up(name):
    made = carried_out(said(("add", UNKNOWN[name])), said(final("26")))
    assert (CALLED, repairs(made)) == ([], [])
    assert any(event.error for event in made.events if isinstance(event, Reply) and event.tool == "add")
    assert read_arguments(UNKNOWN[name]) is None


@pytest.mark.parametrize("given", ["", "{}", "null"])
def test_a_native_call_without_arguments_is_one(given):
    carried_out(said(("now", given)), said(final("26")))
    assert CALLED == ["UTC"]


BARE = {
    "a name": '{"name": "now"}',
    "another field": '{"tool": "now"}',
    "a type": '{"type": "function", "function": {"name": "now"}}',
    "null": '{"name": "now", "arguments": null}',
    "an empty string": '{"name": "now", "parameters": ""}',
    "an id": '{"id": "c1", "name": "now"}',
    "an action": '{"action": "now"}',
    "a function": '{"function": "now"}',
    "a list of calls": '{"tool_calls": [{"id": "c", "type": "function", "function": {"name": "now"}}]}',
    "single quotes": "{'name': 'now'}",
    "a fence": 'I look.\n```json\n{"name": "now"}\n```',
    "a tag": '<tool_call>{"name": "now"}</tool_call>',
    "a list": '[{"name": "now"}]',
    "other letters": '{"name": "Now"}',
}


@pytest.mark.parametrize("strategy", [tl.ReAct(), tl.ToolLoop()], ids=lambda each: each.kind)
@pytest.mark.parametrize("name", BARE)
def test_a_call_in_text_without_arguments_is_one_for_a_tool_that_requires_none(name, strategy):
    final = '{"name": "final-answer", "arguments": {"answer": "26"}}'
    end = final if strategy.kind == "react" else "Answer: 26"
    made = carried_out(BARE[name], end, strategy=strategy)
    assert (CALLED, made.answer) == (["UTC"], "26")


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "add"}',  # which requires an argument
        '{"name": "later"}',  # there is no such tool
        '{"name": "now", "price": 5}',
        '{"name": "now", "zone": "CET"}',
        '{"answer": {"name": "now"}}',
    ],
)
def test_other_objects_with_a_name_are_no_calls(text):
    offered = [tool.spec.offered() for tool in TOOLS]
    turn = turn_of("0.0", Reply(text), {"add": "add", "now": "now"}, offered)
    assert (turn.calls, turn.words) == ((), text)


def test_a_call_before_a_reply_is_repaired_too():
    made = carried_out(
        said(("add", "{'a': 1}")),
        "1. Answer: 26",
        "score: 1",
        strategy=tl.TreeOfThoughts(propose=tl.WithTools(tools=("add",)), stop=tl.Stop(depth=1)),
    )
    assert CALLED[:1] == [(1, "")]
    assert repairs(made)[:1] == ["add"]


def test_a_turn_is_read_from_its_record_as_it_was():
    reply = Reply(tool_calls=(ToolCall("c", "add", "{'a': 1}"),))
    once = turn_of("0.0", reply, {"add": "add"})
    assert once == turn_of("0.0", reply, {"add": "add"})
    assert once.calls == (ToolCall("c", "add", '{"a": 1}'),)
