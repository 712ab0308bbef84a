"""Thinking tags are markup only where markup can be: never in data, in code or in the answer itself."""

import json

import pytest

from tot_lab.core.calls import Reply
from tot_lab.core.reading.thinking import separated, split_thinking
from tot_lab.strategies.conversation import text_tool_calls

PAIRS = [
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<seed:think>", "</seed:think>"),
]
PAIRS += [("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>")]


@pytest.mark.parametrize(("first", "last"), PAIRS)
def test_every_kind_of_tag_separates_thinking(first, last):
    assert split_thinking(f"{first}6 * 4{last}24") == ("6 * 4", "24")
    assert split_thinking(f"{first}\n6 * 4\nAnswer: 23\n{last}\n\nAnswer: 24") == (
        "6 * 4\nAnswer: 23",
        "Answer: 24",
    )
    assert split_thinking(f"6 * 4{last}24") == ("6 * 4", "24")
    assert split_thinking(f"{first}6 *") == ("6 *", "")
    reply = separated(Reply(f"{first}6 * 4{last}24"))
    assert (reply.thinking, reply.text, separated(reply)) == ("6 * 4", "24", reply)


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("<|channel|>final<|message|>5<|return|>", (None, "5")),
        (
            "<|channel|>analysis<|message|>a<|end|>\n<|start|>assistant<|channel|>analysis<|message|>b<|end|>"
            "<|start|>assistant<|channel|>final<|message|>5<|return|>",
            ("a\n\nb", "5"),
        ),
        (
            "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant"
            "<|channel|>final <|constrain|>json<|message|>5",
            ("I look.", "5"),
        ),
        ("<|channel|>analysis<|message|>a<|end|>5", ("a", "5")),
        ("Answer: 5<|end|>", (None, "Answer: 5<|end|>")),  # without channels it ends nothing
    ],
)
def test_the_channels_of_harmony(text, split):
    assert split_thinking(text) == split


@pytest.mark.parametrize(("first", "last"), PAIRS[:5])
@pytest.mark.parametrize(
    "text",
    [
        '{{"content": "Wrap it in {0}your reasoning{1} first."}}',
        '{{"content": "It begins with {0}"}}',
        '{{"content": "It ends with {1}", "more": ["{0}", "{1}"]}}',
        '["{0}a{1}", "b"]',
        '{{"content": "one\n{0}\ntwo\n{1}\n"}}',
        "{{'content': '{0}a{1}',}}",
        '{{"content": "Cut off after {0} and',
        "Fill in:\n```\n{0}\nreasoning\n{1}\nanswer\n```\nThat is all.",
        "~~~xml\n{0}a{1}\n~~~",
        '1. Split it:\n   ```python\n   text.split("{1}")[-1]\n   ```',
        "Begin with `{0}` and end with `{1}`, as in `{0} so {1}`.",
        'Models write "{0}" first.\nAnswer: 5',
        "The tags “{0}” and “{1}” enclose it.\nAnswer: 5",
        "Answer: use the {0} tag to reason",
        "**Final answer:** put it between {0} and {1} then",
        "The answer is {1} at the end",
        "<answer>the tag {0}</answer>",
        "Answer: 5\nIn R1 the tag {0} does it.",
    ],
)
def test_a_tag_in_data_code_or_an_answer_is_text(text, first, last):
    text = text.format(first, last)
    assert split_thinking(text) == (None, text)
    assert separated(Reply(text)) == Reply(text)
    thought = f"<think>Well.</think>\n{text}"
    assert split_thinking(thought) == ("Well.", text)


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("<think>a\nAnswer: 99</think>\nAnswer: 26", ("a\nAnswer: 99", "Answer: 26")),
        ("a\nAnswer: 99</think>\nAnswer: 26", ("a\nAnswer: 99", "Answer: 26")),
        ("Answer: 26\n<think>Let me check.</think>", ("Let me check.", "Answer: 26\n")),
        (
            "<think>Like\n```\n<think>\nx\n</think>\n```\nSo.</think>5",
            ("Like\n```\n<think>\nx\n</think>\n```\nSo.", "5"),
        ),
        ('<think>{"a": "half</think>{"a": "b"}', ('{"a": "half', '{"a": "b"}')),
        ('{"a": "half</think>The answer is 5.', ('{"a": "half', "The answer is 5.")),
        ('<think>I open [ "quote</think>{"a": "<think>"}', ('I open [ "quote', '{"a": "<think>"}')),
        ("<think>\n```\nopen\n</think>\n```\ncode\n```", ("```\nopen", "```\ncode\n```")),
        ("<think>```python\nopen</think>\n```python\ncode\n```", ("```python\nopen", "```python\ncode\n```")),
    ],
)
def test_thinking_ends_although_data_or_code_in_it_does_not(text, split):
    assert split_thinking(text) == split


@pytest.mark.parametrize(
    "content", ["Wrap it in <think>reasoning</think> first.", "</think>", "a\n[THINK]\nb", "<think>"]
)
def test_a_text_tool_call_writes_tags_unchanged(content):
    call = json.dumps({"name": "file-write", "arguments": {"path": "p.md", "content": content}})
    for text in (
        call,
        f"<think>I write it.</think>\n{call}",
        f"```json\n{call}\n```",
        f"<tool_call>{call}</tool_call>",
    ):
        (read,) = text_tool_calls(separated(Reply(text)).text, {"file-write": "file-write"}, "0").calls
        assert json.loads(read.arguments)["content"] == content
