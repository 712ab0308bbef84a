"""An item of a list is everything up to the next item of its level, and damaged JSON is repaired."""

import pytest

from tot_lab.core.reading.lists import find_list, read_list


def words(items):
    """The items without their white space, which may differ."""
    return [item.split() for item in items]


@pytest.mark.parametrize(
    ("text", "items"),
    [
        (
            "1. **Add**\n   3 + 4 = 7.\n2. **Multiply**\n   3 * 4 = 12.",
            ["**Add**\n3 + 4 = 7.", "**Multiply**\n3 * 4 = 12."],
        ),
        ("1. first\nwrapped\n2. second", ["first\nwrapped", "second"]),
        ("1. a\n   - sub a\n2. b\n   - sub b\n3. c", ["a\n- sub a", "b\n- sub b", "c"]),
        ("1. a\n- sub a\n2. b\n- sub b", ["a\n- sub a", "b\n- sub b"]),
        ("- a\n  1. one\n  2. two\n- b", ["a\n1. one\n2. two", "b"]),
        ("* a\n\t* sub\n* b", ["a\n* sub", "b"]),
        ("- a\n1. one\n2. two\n- b", ["a\n1. one\n2. two", "b"]),
        ("1. a\n2. b\n- sub b\n- sub b", ["a", "b\n- sub b\n- sub b"]),
        ("- a\n    - sub\n        - deeper\n- b", ["a\n- sub\n    - deeper", "b"]),
        ("1. a\n\n   more of a\n\n2. b", ["a\n\nmore of a", "b"]),
        ("1. a\n\nmore of a\n\n2. b\n\nmore of b", ["a\n\nmore of a", "b\n\nmore of b"]),
        (" 9. a\n10. b", ["a", "b"]),
        ("(1) a\r\n    x\r\n(2) b\r\n", ["a\nx", "b"]),
        ("**1. Add**\n3 + 4\n\n**2. Multiply**\n3 * 4", ["**Add**\n3 + 4", "**Multiply**\n3 * 4"]),
        ("**1.** a\n**2.** b", ["a", "b"]),
        ("__1.__ a\n__2.__ b", ["a", "b"]),
        ("**1**. a\n**2**. b", ["a", "b"]),
        ("__1__. a\n__2__. b", ["a", "b"]),
        ("Option 1: a\nOption 2: b", ["a", "b"]),
        ("Approach 1: a\nApproach 2: b", ["a", "b"]),
        ("Proposal 1: a\nProposal 2: b", ["a", "b"]),
        ("### 1. Add\n\n3 + 4\n\n### 2. Multiply\n\n3 * 4", ["Add\n\n3 + 4", "Multiply\n\n3 * 4"]),
        ("Step 1: a\nStep 2: b", ["a", "b"]),
        ("**Thought 1:**\na\n**Thought 2:**\nb", ["a", "b"]),
        (
            "1. Run it:\n   ```python\n   - x\n   2. y\n   ```\n2. b",
            ["Run it:\n```python\n- x\n2. y\n```", "b"],
        ),
        ("```\n1. a\n2. b\n```", ["a", "b"]),
        ("```\na\nb\n```", ["a", "b"]),
        ("a) one\n   - sub\nb) two", ["one\n- sub", "two"]),
        ("(i) one\n(ii) two\n   more", ["one", "two\nmore"]),
        ("1. one\na) sub\nb) sub\n2. two", ["one\na) sub\nb) sub", "two"]),
        ("1、先加\n   再减\n2、后乘", ["先加\n再减", "后乘"]),
        ("① one\n② two", ["one", "two"]),
        ("[1] one\n[2] two\nmore", ["one", "two\nmore"]),
        ("#1 one\n#2 two", ["one", "two"]),
        ("Idea #1: one\nIdea #2: two", ["one", "two"]),
        ("1.\none\n2.\ntwo", ["one", "two"]),
        ("•\none\n•\ntwo", ["one", "two"]),
        ("1. a\n2. b\n\n   more of b", ["a", "b\n\nmore of b"]),
        ("1. Multiply:\n\n3 * 4 = 12", ["Multiply:\n\n3 * 4 = 12"]),
        ("1. Run:\n   ```python\n   x = 1\n2. b", ["Run:\n```python\nx = 1", "b"]),
        ("```\nx = 1\n```\n```\n1. a\n2. b\n```", ["a", "b"]),
        ("Step 1: a\n1. x\n2. y\nStep 2: b", ["a\n1. x\n2. y", "b"]),
        ("▪ one\n▪ two\n  ◦ sub", ["one", "two\n◦ sub"]),
        ("1.one\n2.两\n3.**three**", ["one", "两", "**three**"]),
        ("1. one\n---\n2. two<|im_end|>", ["one", "two"]),
    ],
)
def test_an_item_ends_where_the_next_of_its_level_begins(text, items):
    for around in ("{}", "Here they are:\n\n{}"):
        if around == "{}" or not text.startswith("```"):
            assert words(read_list(around.format(text))) == words(items)
    assert not find_list(text).repaired


def test_code_in_an_item_keeps_its_indentation():
    (first, second) = read_list("1. Run:\n   ```python\n   def f():\n       return 1\n   ```\n2. Rest.")
    assert first == "Run:\n```python\ndef f():\n    return 1\n```"
    assert second == "Rest."


def test_a_closing_remark_is_no_part_of_the_last_item():
    assert read_list("1. a\n2. b\n\nTell me which one to take.") == ["a", "b"]


@pytest.mark.parametrize(
    "text",
    [
        "3．5 kg\n4．5 kg",
        "a. b. c. are letters",
        "5 + 3 = 8\n+ 2 = 10",
        "1.5 kg\n2.5 kg",
        "e.g. this\ne.g. that",
        "The sum is\n42.",
        "42",
    ],
)
def test_what_begins_a_line_need_not_mark_an_item(text):
    assert read_list(text) == text.splitlines()


def test_a_list_may_be_quoted():
    assert read_list("> 1. one\n>    more\n> 2. two") == ["one\nmore", "two"]
    assert read_list("Here:\n\n> 1. one\n> 2. two") == ["one", "two"]
    assert read_list("Here:\n> ```\n> 1. one\n> 2. two\n> ```") == ["one", "two"]


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ('{"1": "a", "2": "b"}', ["a", "b"]),
        ('[{"step": 1, "description": "a"}, {"step": 2, "description": "b"}]', ["a", "b"]),
        ('[{"title": "a", "description": "b"}]', []),
        ('{"steps": ["a", "b"], "scores": [1, 2]}', ["a", "b"]),
        ('{"steps": ["a", "b"], "others": ["c"]}', []),
        ('{"steps": ["a", "b"], "meta": {"tags": ["x"]}}', ["a", "b"]),
        ('Given: {"n": 2}\n["a", "b"]', ["a", "b"]),
        ('["a", "b"] Hope this helps!', ["a", "b"]),
    ],
)
def test_objects_state_items_in_their_only_text(text, items):
    assert read_list(text) == items


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("['first step', 'second step',]", ["first step", "second step"]),
        ('["a", "b",]', ["a", "b"]),
        ("{'thoughts': ['a', 'b']}", ["a", "b"]),
        ("{'steps': [{'thought': 'a'}, {'thought': 'b'},],}", ["a", "b"]),
        ('["a", "b"', ["a", "b"]),
        ('{"steps": ["a", "b"]', ["a", "b"]),
        ('```json\n["a", "b",]\n```', ["a", "b"]),
        ("```json\n['a', 'b'", ["a", "b"]),
        ("Here you are:\n['a', 'b']", ["a", "b"]),
        ('["a", # why not\n"b"]', ["a", "b"]),
        ("[\"it's\", 'b',]", ["it's", "b"]),
        ("['it's a', 'b']", ["it's a", "b"]),
        ('["Do:\n- x\n- y", "b"]', ["Do:\n- x\n- y", "b"]),
    ],
)
def test_damaged_json_is_repaired_and_the_repair_is_reported(text, items):
    assert find_list(text) == (items, True)
    assert read_list(text) == items


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ('1. Sort ["b", "a"] first.\n2. Then reverse it.', ['Sort ["b", "a"] first.', "Then reverse it."]),
        ('1. Sort:\n   ["b", "a"]\n2. Reverse.', ['Sort:\n["b", "a"]', "Reverse."]),
        ("Multiply [4] by 9.\nAdd ['x'] to it.", ["Multiply [4] by 9.", "Add ['x'] to it."]),
        ('Add ["x"] to it.\nStop.', ['Add ["x"] to it.', "Stop."]),
        ("Given: ['x'] is the input.\nSort it.", ["Given: ['x'] is the input.", "Sort it."]),
        ('"Sort [4] first."', ['"Sort [4] first."']),
        ('From [4]:\n1. Sort:\n   ["b", "a"]', ['Sort:\n["b", "a"]']),
        ('Words: ["x", "y"]\n1. a\n2. b', ["a", "b"]),
        ('[\n"1. a",\n"2. b"\n]', ["1. a", "2. b"]),
    ],
)
def test_json_that_is_only_mentioned_is_text(text, items):
    assert words(read_list(text)) == words(items)
    assert not find_list(text).repaired


def test_json_that_is_sound_is_not_reported_as_repaired():
    assert find_list('["a", "b"]') == (["a", "b"], False)
    assert find_list('{"steps": [{"text": "a"}]}') == (["a"], False)
