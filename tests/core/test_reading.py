"""Reading is forgiving about form and strict about meaning: a number is stated, or it is None."""

import json
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tot_lab.core.calls import TokenLogprob
from tot_lab.core.reading.json_values import find_json, read_json
from tot_lab.core.reading.lists import read_list
from tot_lab.core.reading.scores import read_label, read_label_logprobs, read_score, read_scores
from tot_lab.core.reading.values import finite
from tot_lab.core.reading.votes import read_choice

LABELS = {"sure": 20.0, "likely": 1.0, "impossible": 0.001}


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("score: 0.7", 0.7),
        ("Score = 0.7", 0.7),
        ("SCORE:0.7", 0.7),
        ("**Score:** 0.7", 0.7),
        ("`score`: `0.25`", 0.25),
        ('{"score": 0.4, "why": "good"}', 0.4),
        ("the score is 0.7, because it is right", 0.7),
        ("I give it a score of .5.", 0.5),
        ("score: 7/10", 0.7),
        ("score: 7 / 10", 0.7),
        ("score: 0.7/1.0", 0.7),
        ("score: 8 out of 10", 0.8),
        ("score: 1 out of 10", 0.1),
        ("score: 0.7\nOf 10 apples three are gone.", 0.7),
        ("score: 0.7\n- 3 spiders have 24 legs", 0.7),
        ("score: 70%", 0.7),
        ("score: 70 %", 0.7),
        ("score: 1 percent", 0.01),
        ("score: 1e-1", 0.1),
        ("score: 0", 0.0),
        ("score: 1", 1.0),
        ("score: 1.", 1.0),
        ("I would not score this yet. Well: score: 0.3", 0.3),
        ("0.8", 0.8),
        ("  **0.8**\nA sound step.", 0.8),
        ("4/5", 0.8),
        ("80%", 0.8),
    ],
)
def test_a_stated_score_is_read(text, score):
    assert read_score(text) == pytest.approx(score)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "score: 7",
        "score: 1.01",
        "score: -0.1",
        "score: 11/10",
        "score: 1/0",
        "score: 0/0",
        "score: -1/-2x",
        "score: 101%",
        "score: NaN",
        "score: inf",
        "score: 1e400",
        "score: 1e9999",
        "score: high",
        "I would not score this",
        "I would not score this 1",
        "underscore: 0.7",
        "scores: 0.7",
        "score: 0,7",  # a decimal comma: 0 would be made up
        "score: 0.7.5",
        "score: 0-1",
        "score: 0 to 1",
        "a score of 0 to 1 is asked for",
        "score: 1st",
        "score: 0x1",
        "score: 7/10/2",
        "0.8 or so",
        "step 0.8",
        "7",
        "nan",
        "Infinity",
    ],
)
def test_what_states_no_score_in_range_is_none(text):
    assert read_score(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("sure", 20.0),
        ("Sure!", 20.0),
        ("10 + 14 = 24\nsure", 20.0),
        ("it may be impossible\nlikely\n", 1.0),
        ("likely\nas I said", 1.0),
        ("sure, sure, sure", 20.0),
        ("sure or likely", None),
        ("impossible\nsure/likely", None),
        ("unsure", None),
        ("surely", None),
        ("", None),
    ],
)
def test_the_last_line_that_names_a_label_decides(text, value):
    assert read_label(text, LABELS) == value


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("best: 2", 1),
        ("Best = 2", 1),
        ("**best:** 2", 1),
        ("The best choice is 2", 1),
        ("The best choice is (2)", 1),
        ("the choice is candidate 3.", 2),
        ("best: 1\nno, best: 3", 2),
        ("vote: 1", 0),
        ("2", 1),
        ("I compare.\n(2)", 1),
        ("best: 4", None),
        ("best: 0", None),
        ("best: -1", None),
        ("best: 2.5", None),
        ("best: 1234567", None),
        ("the best of 3 is hard to name", None),
        ("Candidate 2 is the best, 1 is the worst", 1),
        ("all are fine", None),
        ("", None),
    ],
)
def test_a_stated_choice_in_range_is_read(text, choice):
    assert read_choice(text, 3) == choice


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        ("[0.1, 0.2]", [0.1, 0.2]),
        ("```json\n[0.1, 0.2]\n```", [0.1, 0.2]),
        ("Here they are: [0.1, 0.2]. Done.", [0.1, 0.2]),
        ('{"scores": [0.1, 0.2]}', [0.1, 0.2]),
        ('{"1": 0.1, "2": 0.2}', [0.1, 0.2]),
        ('{"2": 0.2}', [None, 0.2]),
        ('[{"score": 0.1}, {"score": 0.2}]', [0.1, 0.2]),
        ("1: 0.1\n2: 0.2", [0.1, 0.2]),
        ("1. score: 0.1\n2) 20%", [0.1, 0.2]),
        ("[0.1]", [None, None]),
        ("[0.1, 0.2, 0.3]", [None, None]),
        ("[0.1, 2]", [0.1, None]),
        ("[true, null]", [None, None]),
        ("[NaN, 0.2]", [None, 0.2]),
        ("[1e999, 0.2]", [None, 0.2]),
        ('{"3": 0.2, "x": 1, "²": 1}', [None, None]),
        ("nothing", [None, None]),
        ("", [None, None]),
    ],
)
def test_joint_scores_are_read_by_place_or_number(text, scores):
    assert read_scores(text, ["", ""]) == scores


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ('["a", "b"]', ["a", "b"]),
        ('{"thoughts": ["a", "b"]}', ["a", "b"]),
        ('[{"thought": "a"}, {"step": "b"}]', ["a", "b"]),
        ("Sure:\n1. a\n2) b\n- c", ["a", "b", "c"]),
        ("a\n\nb", ["a", "b"]),
        ("[]", []),
        ("", []),
        (" \n ", []),
    ],
)
def test_items_are_read_from_json_or_marked_lines(text, items):
    assert read_list(text) == items


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ('say\n```json\n{"a": 1}\n```\nend', {"a": 1}),
        ("```\n[1]\n```", [1]),
        ("it's a \"quote [1, 2] yes", [1, 2]),
        ('first {broken] then {"a": "}"}', {"a": "}"}),
        ("[[ [1]", [1]),
        ("NaN", None),
        ("[NaN]", None),
        ("null", None),
        ("none here", None),
    ],
)
def test_the_first_json_of_three_tiers_is_read(text, value):
    assert read_json(text) == value


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"a": 1}', [({"a": 1}, False)]),
        ("null", [(None, False)]),
        ('see [1]: {"a": 1}', [([1], False), ({"a": 1}, False)]),
        ("see [1]: {'a': 1}", [([1], False), ({"a": 1}, True)]),
        ('```json\n{"a": [1]}\n```', [({"a": [1]}, False)]),  # once, not again without its fence
        ("```\n{'a': [1]}\n```", [({"a": [1]}, True)]),
        ('{"a": {"b": 1}, "c": "d', [({"a": {"b": 1}, "c": "d"}, True), ({"b": 1}, False)]),
        ('{"a": {"b": 1}, "c": [2}', [({"a": {"b": 1}, "c": [2]}, True), ({"b": 1}, False)]),
        ("{'a': 1} and {'b': 2}", [({"a": 1}, True), ({"b": 2}, True)]),
        ('{"a": NaN}', [({"a": "NaN"}, True)]),
        ("{curly} brackets", []),
        ("", []),
    ],
)
def test_every_json_is_found_the_likeliest_first(text, found):
    assert [(each.value, each.repaired) for each in find_json(text)] == found


def test_json_is_found_where_it_stands():
    text = 'one ```json\n[1]\n``` two {"a": 1} three'
    assert [text[found.start : found.end] for found in find_json(text)] == ["```json\n[1]\n```", '{"a": 1}']


def test_how_deep_json_may_be_does_not_depend_on_the_program():
    def deeper(levels, text):
        return read_json(text) if levels == 0 else deeper(levels - 1, text)

    deepest, too_deep = "[" * 100 + "1" + "]" * 100, "[" * 101 + "1" + "]" * 101
    assert deeper(0, deepest) == deeper(400, deepest) is not None
    assert deeper(0, too_deep) == deeper(400, too_deep) is None
    assert list(find_json(too_deep)) == []


@pytest.mark.parametrize("value", [True, False, None, "1", math.nan, math.inf, -math.inf, 10**400, [1]])
def test_what_is_no_finite_number_is_none(value):
    assert finite(value) is None


def test_numpy_numbers_are_numbers():
    import numpy as np

    assert finite(np.float32(0.5)) == 0.5
    assert type(finite(np.float64(0.5))) is float
    assert finite(np.int64(1)) == 1.0
    assert finite(np.float32("nan")) is None


WORDS = "0 1 7 . , / % - e e9 score : = best sure likely [ ] { } ``` json NaN Infinity null * ٣ ²"
PIECES = st.sampled_from([*WORDS.split(), " ", "\n", '"', "\\", "\x00", "\ud800"])
TEXTS = st.text() | st.lists(PIECES, max_size=30).map("".join)


@pytest.mark.slow
@given(TEXTS, st.integers(1, 5))
def test_any_text_at_all_gives_a_number_in_range_or_none(text, count):
    score = read_score(text)
    assert score is None or 0 <= score <= 1
    assert read_label(text, LABELS) in (None, *LABELS.values())
    assert read_choice(text, count) in (None, *range(count))
    scores = read_scores(text, [""] * count)
    assert len(scores) == count
    assert all(score is None or (type(score) is float and 0 <= score <= 1) for score in scores)
    assert all(isinstance(item, str) and item.strip() == item != "" for item in read_list(text))
    json.dumps(read_json(text), allow_nan=True)
    for found in find_json(text):
        json.dumps(found.value)
        assert 0 <= found.start < found.end <= len(text)


@pytest.mark.slow
@given(st.integers(0, 1000), st.sampled_from(["score: {}", "Score = {}\nfine", "**score**: {}!", "{}"]))
def test_a_decimal_in_range_survives_any_form(thousandths, form):
    assert read_score(form.format(thousandths / 1000)) == thousandths / 1000


MEGABYTE = 1_000_000
HOSTILE = [
    "[",
    "{",
    "[]",
    "{}",
    '["',
    "[{",
    "]",
    "1",
    "1.",
    "1/",
    "1e",
    ".",
    "-",
    "1. ",
    "(1)",
    "\n",
    "*",
    "`",
]
HOSTILE += ["score", "score:", "score: ", "score ", "score:1", "score is", "```", "```\n", "``` "]
HOSTILE += ["best", "best ", "best: ", "best the ", "is "]
HOSTILE += ["sure ", "sure\n", '"', "\\", "[1,", '{"a":', "1,", "- \n", "% ", "to "]
STARTS = ["", "score", "score:", "score: 0.5", "```", "```json", "best", "1", "["]


@pytest.mark.nightly
@pytest.mark.parametrize("piece", HOSTILE)
def test_a_megabyte_of_anything_is_read_in_linear_time(piece):
    for start in STARTS:
        text = start + piece * (60_000 // len(piece)) + "x"
        began = time.process_time()
        read_score(text)
        read_choice(text, 3)
        read_label(text, LABELS)
        read_scores(text, ["", "", ""])
        read_list(text)
        # A quadratic reader takes far longer; the bound leaves room for a slow machine.
        assert time.process_time() - began < 5, f"{start!r} + {piece!r}…"


@pytest.mark.nightly
@pytest.mark.parametrize("piece", HOSTILE)
def test_what_may_have_to_be_repaired_is_read_in_linear_time(piece):
    for start in ("", '{"a": "', "['"):
        text = start + piece * (20_000 // len(piece))
        began = time.process_time()
        for _ in find_json(text):
            pass
        assert time.process_time() - began < 3, f"{start!r} + {piece!r}…"


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["score" + " " * MEGABYTE, "```" + " " * MEGABYTE, "[" * MEGABYTE, "1" * MEGABYTE]
)
def test_the_worst_megabytes_are_read_in_linear_time(text):
    began = time.process_time()
    assert read_score(text) is None
    read_scores(text, ["", "", ""])
    assert time.process_time() - began < 5


def tops(*alternatives):
    return tuple(
        TokenLogprob(
            next(iter(top)), math.log(next(iter(top.values()))), {k: math.log(v) for k, v in top.items()}
        )
        for top in alternatives
    )


@pytest.mark.parametrize(
    ("tokens", "read"),
    [
        (tops({"Yes": 0.6, "no": 0.2, "A": 0.2}), (0.75, 0.8)),
        (tops({" yes": 0.5, "YES": 0.1, "\n": 0.3}), (1.0, 0.6)),
        (tops({"\n": 0.9}, {"no": 0.5, "yes": 0.5}), (0.5, 1.0)),  # white space says nothing
        (tops({"n": 0.3, "y": 0.1}), (0.25, 0.4)),
        (tops({"Well": 0.9, "yes": 0.004, "no": 0.005}), None),  # it speaks of something else
        (tops({"Well": 0.9}), None),
        ((TokenLogprob("yes", math.log(0.9)),), (1.0, 0.9)),
        ((), None),
    ],
)
def test_the_probabilities_of_labels(tokens, read):
    found = read_label_logprobs(tokens, {"yes": 1.0, "no": 0.0})
    assert found is None if read is None else found == pytest.approx(read)


@pytest.mark.parametrize("key", ["id", "index", "candidate", "number"])
@pytest.mark.parametrize("first", [0, 1])
def test_scores_that_say_whose_they_are_are_never_swapped(key, first):
    judged = [{key: first + 1, "score": 0.9}, {key: first, "score": 0.1}, {key: first + 2, "score": 0.3}]
    assert read_scores(json.dumps(judged), ["", "", ""]) == [0.1, 0.9, 0.3]
    assert read_scores(json.dumps({"scores": judged}), ["", "", ""]) == [0.1, 0.9, 0.3]
    assert read_scores(json.dumps([*judged[:2], {key: first, "score": 0.3}]), ["", "", ""]) == [None] * 3
    assert read_scores(json.dumps([{"score": 0.9}, {"score": 0.1}]), ["", ""]) == [0.9, 0.1]


@pytest.mark.parametrize("text", ["[]", "{}", "null", '{"error": "x"}', '["", "  "]', '["alpha", "be'])
def test_json_without_proposals_has_none(text):
    assert [item for item in read_list(text) if item not in ("alpha", "be")] == []
