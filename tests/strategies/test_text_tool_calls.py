"""Tool calls written as JSON text: taken for calls where they are, left as an answer where they are not."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tot_lab.core.calls import ToolCall
from tot_lab.core.tools import tool_name
from tot_lab.strategies.conversation import TextToolCalls, text_tool_calls

NAMES = ("web-search", "calculator", "final-answer")
KNOWN = {name: name for name in NAMES}
SUM = ToolCall("text-0-1-0", "calculator", '{"expression": "2+3"}')


def read(text: str) -> TextToolCalls:
    return text_tool_calls(text, KNOWN, "0.1")


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "calculator", "arguments": {"expression": "2+3"}}',
        '{"tool": "calculator", "parameters": {"expression": "2+3"}}',
        '{"tool_name": "calculator", "args": {"expression": "2+3"}}',
        '{"name": "calculator", "input": {"expression": "2+3"}}',
        '{"action": "calculator", "action_input": {"expression": "2+3"}}',
        '{"function": "calculator", "arguments": {"expression": "2+3"}}',
        '{"id": "c1", "type": "tool_use", "name": "calculator", "input": {"expression": "2+3"}}',
        '<tool_call>{"name": "calculator", "arguments": {"expression": "2+3"}}',
        '{"name": "Calculator", "parameters": {"expression": "2+3"}}',
        '{"name": "calculator", "arguments": "{\\"expression\\": \\"2+3\\"}"}',
        '{"type": "function", "function": {"name": "calculator", "arguments": {"expression": "2+3"}}}',
        '{"tool_calls": [{"function": {"name": "calculator", "arguments": {"expression": "2+3"}}}]}',
        '[{"name": "calculator", "arguments": {"expression": "2+3"}}]',
        '```json\n{"name": "calculator", "arguments": {"expression": "2+3"}}\n```',
        '```tool_code\n{"name": "calculator", "arguments": {"expression": "2+3"}}\n```',
        '<tool_call>\n{"name": "calculator", "arguments": {"expression": "2+3"}}\n</tool_call>',
        "{'name': 'calculator', 'arguments': {'expression': '2+3',}}",
        '{"name": "calculator", "arguments": {"expression": "2+3"}',
        '[{"name": "calculator", "arguments": {"expression": "2+3"}}',
        '```json\n{"name": "calculator", "arguments": {"expression": "2+3"}}',
    ],
)
def test_a_call_in_any_of_its_forms(text):
    assert read(text)[:3] == ("", (SUM,), ())
    thought, calls, *_ = read(f"I must [add] them.\n{text}")
    assert (thought, calls) == ("I must [add] them.", (SUM,))


@pytest.mark.parametrize("name", ["web_search", "webSearch", "WEB-SEARCH", "Web Search", " web_search "])
def test_names_are_the_tools_own(name):
    assert read(json.dumps({"name": name, "arguments": {}})).calls[0].name == "web-search"


def test_several_calls_are_read_in_order_with_ids_of_their_own():
    one = '{"name": "web_search", "arguments": {"query": "tea"}}'
    two = '{"tool": "calculator", "parameters": {"expression": "2+3"}}'
    for text in (f"[{one}, {two}]", f"First {one} and then ```\n{two}\n``` please"):
        thought, calls, unknown, _ = read(text)
        assert [(call.id, call.name) for call in calls] == [
            ("text-0-1-0", "web-search"),
            ("text-0-1-1", "calculator"),
        ]
        assert unknown == ()
        assert thought in ("", "First  and then  please")
    assert text_tool_calls(one, KNOWN, "0.2").calls[0].id != text_tool_calls(one, KNOWN, "0.1").calls[0].id
    assert len(read(f"[{', '.join([one] * 500)}]").calls) == len(read(one * 500).calls) == 500


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The name of the tool is a calculator.",
        '{"name": "Ada", "age": 36}',
        '{"name": "calculator"}',
        '{"name": "calculator", "price": 5}',
        '{"name": "calculator", "arguments": [2, 3]}',
        '{"name": "calculator", "arguments": "two and three"}',
        '{"name": "calculator", "arguments": {"x": 1e999}}',
        '{"name": ["calculator"], "arguments": {}}',
        '{"answer": {"name": "calculator", "arguments": {}}}',  # an answer that holds one
        '[{"name": "calculator", "arguments": {}}, {"name": "Ada"}]',
        '["calculator", {"expression": "2+3"}]',
        '{"name": "calculator", "parameters": {"type": "object", "properties": {"expression": {}}}}',
        '{"function": {"name": "calculator", "description": "Adds.", "parameters": {"properties": {}}}}',
        "calculator(name=3)",
        "name [tool] {calculator}",
    ],
)
def test_what_is_no_call_stays_as_it_is(text):
    assert read(text) == TextToolCalls(text.strip())


@pytest.mark.parametrize(
    "half",
    [
        '{"expression": "2+',
        '{"expression": "{2+3}',
        "{'expression': '2+",
        '{"expression": 2',
        '{"expression": "2+3", ',
        '{"expression": "2+3", "digits":',
        '{"expression": "2+3", "dig',
        '{"expression": ["2", "3',
    ],
)
def test_a_call_that_was_cut_off_is_not_made_up(half):
    """Half a path, half a program: what is carried out must be what was written."""
    cut = f'{{"name": "calculator", "arguments": {half}'
    assert read(cut) == TextToolCalls(cut.strip())
    assert read(f"```json\n{cut}").calls == ()
    whole = '{"name": "calculator", "arguments": {"expression": "2+3"}}'
    assert read(f"{whole}\n{cut}").calls == (SUM,)


def test_a_call_that_lacks_only_brackets_is_one():
    for end in ("", "}", "}}", "} That is all, I don't need more.", "}\n```"):
        assert read(f'{{"name": "calculator", "arguments": {{"expression": "2+3"{end}').calls == (SUM,), end


def test_a_call_of_a_tool_that_is_not_there_is_named_and_not_taken_out():
    text = 'Well: {"name": "weather", "arguments": {"city": "Rome"}}'
    assert read(text) == TextToolCalls(text, (), ("weather",))
    both = f'{{"name": "calculator", "arguments": {{"expression": "2+3"}}}} {text}'
    assert read(both) == TextToolCalls(text, (SUM,), ("weather",))
    assert text_tool_calls(text, {}, "0").calls == ()
    many = "\n".join(json.dumps({"name": f"t{k}", "arguments": {}}) for k in range(100))
    assert read(many).unknown == tuple(f"t{k}" for k in range(32))


def test_letters_stay_as_they_are():
    (call,) = read('{"name": "web_search", "arguments": {"query": "Tee für Zürich \\ud800"}}').calls
    assert call.arguments == '{"query": "Tee für Zürich ?"}'


VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.lists(st.floats(allow_nan=False, allow_infinity=False))
)
ARGUMENTS = st.dictionaries(st.text(), VALUES, max_size=5)


@pytest.mark.slow
@given(ARGUMENTS, st.sampled_from(NAMES))
def test_any_arguments_come_back(arguments, name):
    text = json.dumps({"name": name.replace("-", "_"), "arguments": arguments})
    (call,) = read(text).calls
    assert (call.name, json.loads(call.arguments)) == (name, arguments)


PIECES = [
    '"name":',
    '"calculator"',
    '"arguments":',
    "{",
    "}",
    "[",
    "]",
    "```",
    "```json\n",
    ",",
    "'",
    "\x00",
    "tool",
]


@pytest.mark.slow
@given(st.text() | st.lists(st.sampled_from(PIECES), max_size=40).map("".join), st.lists(st.text()))
def test_no_text_breaks_it(text, names):
    for known in (KNOWN, {tool_name(name): name for name in names}):
        thought, calls, *_ = text_tool_calls(text, known, "0")
        assert calls or thought == text.strip()
        for call in calls:
            assert call.name in known
            assert isinstance(json.loads(call.arguments), dict)
            call.arguments.encode()
    assert tool_name(text) == tool_name(tool_name(text))


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece", ['{"name":', "[{", '{"name": "calculator", "arguments": {}}', "{'name': 1}", "``` "]
)
def test_a_long_text_is_read_in_linear_time(piece):
    began = time.process_time()
    read("name " + piece * (1_000_000 // len(piece)))
    assert time.process_time() - began < 120
