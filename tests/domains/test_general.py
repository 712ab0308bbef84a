"""General questions: prompts, reading, grading, and a person's own data."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import Scripted, run

import tot_lab as tl
from tot_lab.core.calls import Reply, ToolCall
from tot_lab.core.parts import UserFunction, part_of
from tot_lab.core.reading.answers import final_answer
from tot_lab.core.reading.mathematics import last_number
from tot_lab.domains import open_ended
from tot_lab.domains.general import General, general
from tot_lab.domains.loading import tasks

TASK = general("How many apples are left?", context="There were ten.")
DOMAIN = TASK.domain


# Prompts and reading.


def test_the_proposer_sees_problem_and_numbered_steps() -> None:
    for prompt in (
        DOMAIN.sample_prompt(TASK, ["count", "take"]),
        DOMAIN.propose_prompt(TASK, ["count", "take"], 4),
    ):
        assert "How many apples are left?" in prompt
        assert "There were ten." in prompt
        assert "1. count\n2. take" in prompt
    assert "4 different next steps" in DOMAIN.propose_prompt(TASK, [], 4)
    assert "(no steps yet)" in DOMAIN.sample_prompt(TASK, [])


def test_the_evaluator_sees_problem_steps_before_and_candidate() -> None:
    prompt = DOMAIN.value_prompt(TASK, ["count", "take"])
    assert "There were ten." in prompt
    assert "1. count\n\n" in prompt
    assert "2. take" not in prompt
    assert prompt.endswith("\n\nCandidate for the next step:\ntake")
    assert "score: " in prompt
    assert "(no steps yet)" in DOMAIN.value_prompt(TASK, ["count"])


def test_the_default_prompts_ask_for_one_step_and_for_a_score_first() -> None:
    proposer, evaluator = DOMAIN.sample_prompt(TASK, []), DOMAIN.value_prompt(TASK, ["count"])
    for asked in ("exactly one", "concise", "a calculation", "a decision", "a partial answer"):
        assert asked in proposer
    for asked in ("At most one paragraph", "no number or heading before it"):
        assert asked in proposer
    for band in ("1.0: it is correct", "0.7 to 0.9: strong", "0.4 to 0.6: uncertain", "0 to 0.3: wrong"):
        assert band in evaluator
    assert "The first line of your reply is `score: `" in evaluator
    assert DOMAIN.read_value("score: 0.7\nOf 10 apples 0.2 are gone.") == 0.7


def test_joint_and_vote_show_every_candidate() -> None:
    joint = DOMAIN.joint_prompt(TASK, ["count"], ["take", "give"])
    assert "1. count" in joint
    assert "1. take\n2. give" in joint
    vote = DOMAIN.vote_prompt(TASK, [["count", "take"], ["guess"]])
    assert "Candidate 1\n" in vote
    assert "(no steps yet)\nThe candidate:\nguess" in vote
    assert "best: N" in vote
    for reasoning in (True, False):
        assert "Answer: " in DOMAIN.answer_prompt(TASK, reasoning)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("so\nAnswer: 42", "42"),
        ("**Answer:** 42", "42"),
        ("**Answer**: 42", "42"),
        ("**Answer: 42**", "42"),
        ("> final ANSWER = 42", "42"),
        ("The answer: 42\n\nHope it helps!", "42"),
        ("Answer: 1\nno,\nAnswer: 2", "2"),
        ("Answer: 1\nThe answer is short", "1"),
        ("The\nfinal answer: 42", "42"),
        ("Answer: 1\nMy final\nanswer: 42\n\nBye", "42"),
        ("\n\nAnſwer: 42", "42"),
        ("Answer:\n42 apples", "42 apples"),
        ("Answer: $\\boxed{42}$.", "42"),
        ("**Answer:**\n\\[\n\\boxed{\\frac{1}{2}}\n\\]", "\\frac{1}{2}"),
        ("Answer: \\boxed{\\text{a dog}}", "a dog"),
        ("Answer: -\\boxed{42}", "-\\boxed{42}"),
        ("Answer: \\boxed{1} and \\boxed{2}", "\\boxed{1} and \\boxed{2}"),
        ("Answer: \\boxed{}", "\\boxed{}"),
        ("\\boxed{41}\nAnswer: 42", "42"),
        ("My answer is 42", None),
        ("Answer:", None),
        ("", None),
    ],
)
def test_final_answers(text: str, answer: str | None) -> None:
    assert final_answer(text) == answer
    assert DOMAIN.read_answer(TASK, text) == (answer or text.strip() or None)


@pytest.mark.parametrize(
    ("text", "graded", "open_answer"),
    [
        ("So $x = \\boxed{42}$.", "42", "42"),
        ("So\n\\[\n\\boxed{42}\n\\]\nI hope it helps!", "42", "42"),
        ("\\boxed{4}, no:\n\\boxed{42}", "42", "42"),
        ("\\boxed{1} and \\boxed{2}", "1, 2", "1, 2"),
        ("\\boxed{42}\n\nFor\n6 * 7 = 42\nand so on.", "42", None),
        ("Answer: 4\nNo,\nwait:\n\\boxed{42}", "4", "42"),
        ("so \\boxed{42", None, None),
        ("so \\boxed{}", None, None),
    ],
)
def test_a_box_is_the_answer_of_a_reply_without_such_a_line(
    text: str, graded: str | None, open_answer: str | None
) -> None:
    task = general("How many?", answer=42, grade="number")
    assert task.domain.read_answer(task, text) == (graded or text)
    assert DOMAIN.read_answer(TASK, text) == (open_answer or text)
    assert final_answer(text) == ("4" if "Answer" in text else None), "a box does not end a search"


FAQ = """# Questions

Is it open on Sundays?
Answer: Yes, until noon.

Where is it?
Answer: At the harbour.

Nothing else is known about it.
It was last changed in May."""


def test_a_longer_text_that_has_such_a_line_is_not_cut() -> None:
    """The form is a line that ends the reply: elsewhere it is part of the text. What is graded is read from
    the line wherever it stands, since its answer is short."""
    assert DOMAIN.read_answer(TASK, FAQ) == FAQ
    assert DOMAIN.answer(TASK, ["plan", FAQ]) == FAQ
    assert DOMAIN.read_answer(TASK, f"{FAQ}\n\nAnswer: 42") == "42"
    assert DOMAIN.read_answer(TASK, f"{FAQ}\n\n**Answer:**\n\nIt is\n\n42.") == "It is\n\n42."
    graded = general("How many?", answer=42, grade="number")
    explained = "Answer: 42\n\nWhy: 6 * 7 is 42.\n\nChecked: 40 + 2."
    assert graded.domain.read_answer(graded, explained) == "42"
    assert DOMAIN.read_answer(TASK, explained) == explained


@pytest.mark.parametrize("text", [FAQ, "Answer: this\nis a poem\nAnswer: no", "Answer: 1"])
def test_an_open_ended_task_keeps_every_text_whole_in_every_strategy(text: str) -> None:
    task = open_ended("Write a FAQ.", answer="no", grade="regex")
    final = ToolCall("a", "final-answer", json.dumps({"answer": text}))
    for strategy, reply in (
        (tl.OneAnswer(), Reply(text)),
        (tl.ChainOfThought(), Reply(text)),
        (tl.ToolLoop(), Reply(text)),
        (tl.ReAct(), Reply(tool_calls=(final,))),
        (tl.SelfConsistency(strategy=tl.OneAnswer(), attempts=2), Reply(text)),
    ):
        assert run(strategy, task, Scripted(lambda call, reply=reply: reply)).answer == text


def test_the_answer_of_a_path_is_its_last_step() -> None:
    assert DOMAIN.answer(TASK, ["count", "Answer: ten"]) == "ten"
    assert DOMAIN.answer(TASK, ["count", "ten are left"]) == "ten are left"
    assert DOMAIN.answer(TASK, []) is None
    assert DOMAIN.complete(TASK, ["Answer: ten"]) is None


# Grading.


@pytest.mark.parametrize(
    ("answer", "reference", "right"),
    [
        ("It is 42.", 42, True),
        ("42.0", "42", True),
        ("$1,234.50", 1234.5, True),
        ("0.1", 0.1, True),
        ("3/4", "0.75", True),
        ("75 %", "75%", True),
        ("-5", "−5", True),
        ("$-5", "-$5", True),
        ("10-5", 5, True),
        ("from 3 we get 7", 7, True),
        ("1e3", 1000, True),
        ("18", "She makes 9 * 2 = 18.\n#### 18", True),
        ("0.333", "1/3", False),
        ("42", 41, False),
        ("none", 42, False),
        ("1/0", 1, False),
        ("9" * 100_000, 9, False),
    ],
)
def test_number_grading(answer: str, reference: Any, right: bool) -> None:
    assert general("q", answer=reference, grade="number").grade(answer) == float(right)


def test_exact_and_regex_grading() -> None:
    exact = general("q", answer="New  York", grade="exact")
    assert [exact.grade(text) for text in (" new york. ", "NEW\nYORK", "York")] == [1.0, 1.0, 0.0]
    regex = general("q", answer=r"\bblue\b", grade="regex")
    assert [regex.grade(text) for text in ("it is blue!", "bluer")] == [1.0, 0.0]


def half(answer: str, reference: Any) -> float:
    return 0.5 if answer == reference else 0.0


def test_a_function_grades() -> None:
    task = general("q", answer="a", grade=half)
    assert [task.grade("a"), task.grade("b")] == [0.5, 0.0]
    assert task.settings()["domain"]["grading"]["name"] == "half"
    assert general("q", answer="a", grade=lambda answer, reference: answer == reference).grade("a") == 1.0
    with pytest.raises(ValueError, match="got 'yes'"):
        general("q", answer="a", grade=lambda *_: "yes").grade("a")
    with pytest.raises(ValueError, match="got 2"):
        general("q", answer="a", grade=lambda *_: 2).grade("a")


def test_without_reference_or_grading_there_is_no_grade() -> None:
    assert general("q", answer="a").grade("a") is None
    assert general("q", grade="exact").grade("a") is None
    assert general("q", answer="a", grade=half).hidden().grade("a") is None


def test_what_cannot_be_used_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        general("  ")
    with pytest.raises(ValueError, match="answer must contain a number for grade='number': got 'many'"):
        general("q", answer="many", grade="number")
    with pytest.raises(ValueError, match=r"answer must be a pattern for grade='regex': got '\('"):
        general("q", answer="(", grade="regex")
    with pytest.raises(ValueError, match="grading"):
        general("q", answer="a", grade="fuzzy")  # type: ignore[arg-type]


def test_settings_come_back() -> None:
    for domain in (General(), General(grading="number")):
        assert part_of(domain.settings()) == domain
    loaded = part_of(json.loads(json.dumps(General(grading=UserFunction.of(half)).settings())))
    assert isinstance(loaded, General)
    assert isinstance(loaded.grading, UserFunction)
    assert not loaded.grading.callable


@pytest.mark.slow
@settings(deadline=None)
@given(st.text() | st.text(alphabet="0123456789.,/$%-+eE answer:*#\n"))
def test_no_text_breaks_a_reader(text: str) -> None:
    DOMAIN.read_answer(TASK, text)
    DOMAIN.read_proposals(TASK, [], text)
    last_number(text)
    for grade in ("number", "exact"):
        assert general("q", answer="7", grade=grade).grade(text) in (0.0, 1.0)
    value = DOMAIN.read_value(text)
    assert value is None or 0 <= value <= 1


# Loading.


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_every_source_gives_the_same_tasks(tmp_path: Path) -> None:
    rows = [{"q": "1 + 1?", "a": "2", "n": "one"}, {"q": "2 +\n2?", "a": "4", "n": "two"}]
    table = pd.DataFrame(rows)
    sources = [
        write(tmp_path, "p.jsonl", "\n\n".join(json.dumps(row) for row in rows)),
        str(write(tmp_path, "p.json", "\ufeff" + json.dumps(rows))),
        tmp_path / "p.csv",
        table,
        rows,
        iter(rows),
    ]
    table.to_csv(tmp_path / "p.csv", index=False)
    for source in sources:
        made = tasks(source, question="q", answer="a", grade="number", id="n")
        assert [(task.question, task.reference, task.id) for task in made] == [
            ("1 + 1?", "2", "one"), ("2 +\n2?", "4", "two"),
        ]  # fmt: skip
        assert made[1].grade("it is 4") == 1.0
    assert [task.id for task in tasks(rows, question="q")] == ["1", "2"]
    assert tasks(rows, question="q")[0].reference is None


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("p.jsonl", '{"q": "x", "a": 1}\n\n{"question": "x", "a": 1}',
         "p.jsonl line 3: field 'q' is missing: got the fields 'question', 'a'."),
        ("p.jsonl", '{"q": "x", "a": 1}\n{"q": ', "p.jsonl line 2: invalid JSON"),
        ("p.jsonl", '{"q": "x", "a": NaN}', "p.jsonl line 1: invalid JSON"),
        ("p.jsonl", "[1]", "p.jsonl line 1: a row must be an object with fields: got a list."),
        ("p.jsonl", '{"q": " ", "a": 1}', "p.jsonl line 1: question must not be empty."),
        ("p.jsonl", '{"q": null, "a": 1}', "p.jsonl line 1: question must not be empty."),
        ("p.jsonl", '{"q": 7, "a": 1}', "p.jsonl line 1: field 'q' must contain text: got a int."),
        ("p.jsonl", '{"q": "x", "a": "many"}',
         "p.jsonl line 1: answer must contain a number for grade='number'"),
        ("p.jsonl", '{"q": "\\ud800", "a": 1}', "p.jsonl line 1: Task.question"),
        ("p.json", '{"q": "x"}', 'p.json: the file must contain a list of objects: got an object. '
         'pandas writes one with df.to_json(orient="records").'),
        ("p.json", '[{"q": "x", "a": 1},\n{"a": 1}]',
         "p.json row 2: field 'q' is missing: got the fields 'a'."),
        ("p.json", '[\n{"q" 1}]', "p.json line 2: invalid JSON"),
        ("p.json", "[" * 100_000, "p.json: invalid JSON"),
        ("p.csv", 'q,a\n"two\nlines",1\n,2', "p.csv line 4: question must not be empty."),
        ("p.csv", "q,a\nx", "p.csv line 2: field 'a' is missing: got the fields 'q'."),
        ("p.csv", "q,a\nx,1,2", "p.csv line 2: the row has more cells than the header."),
        ("p.csv", "q,b\nx,1", "p.csv line 2: field 'a' is missing: got the fields 'q', 'b'."),
        ("p.txt", "",
         "p.txt: unknown file type: got '.txt'. Use .jsonl, .json, .csv (also with .gz) or .parquet."),
    ],
)  # fmt: skip
def test_errors_name_file_line_and_field(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        tasks(write(tmp_path, name, text), question="q", answer="a", grade="number")


def test_other_bad_sources(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"missing\.jsonl"):
        tasks(tmp_path / "missing.jsonl")
    (tmp_path / "p.csv").write_bytes(b"q,a\n\xff,1")
    with pytest.raises(ValueError, match="not UTF-8"):
        tasks(tmp_path / "p.csv")
    with pytest.raises(ValueError, match="got an object"):
        tasks({"question": "x"})
    with pytest.raises(ValueError, match="`grade` requires `answer`"):
        tasks([{"question": "x"}], grade="number")
    with pytest.raises(ValueError, match="row 2: field 'question' is missing"):
        tasks([{"question": "x"}, {}])


def test_a_row_without_an_answer_is_not_graded() -> None:
    table = pd.DataFrame({"question": ["x", "y"], "answer": [42, None]})
    with pytest.warns(UserWarning, match="^row 2: 'answer' is empty"):
        made = tasks(table, answer="answer", grade="number")
    assert [task.reference for task in made] == [42.0, None]
    assert [task.grade("42") for task in made] == [1.0, None]
    nullable = pd.DataFrame({"question": ["x", "y"], "answer": pd.array([42, None], dtype="Int64")})
    with pytest.warns(UserWarning, match="^row 2: 'answer' is empty"):
        assert [task.reference for task in tasks(nullable, answer="answer")] == [42, None]


def test_a_line_separator_inside_json_is_no_new_line(tmp_path: Path) -> None:
    path = write(tmp_path, "p.jsonl", json.dumps({"question": "a\u2028b"}, ensure_ascii=False))
    assert tasks(path)[0].question == "a\u2028b"


@pytest.mark.parametrize(
    ("grading", "one", "other", "equal"),
    [
        ("number", "26", "26.0", True),
        ("number", "$1,200", "It costs 1200 in all.", True),
        ("number", "3/4", "0.75", True),
        ("number", "26", "-26", False),
        ("number", "twenty", "Twenty", True),  # without a number, the text decides
        ("number", "twenty", "thirty", False),
        ("exact", "Paris.", "paris", True),
        ("exact", "Paris", "Rome", False),
        ("exact", "26", "26.0", False),
        (None, "26", "26.0", False),
        (None, "A  b", "a b", True),
    ],
)
def test_answers_that_the_grading_cannot_tell_apart_have_one_vote_key(
    grading: Any, one: str, other: str, equal: bool
) -> None:
    task = tl.general("?", grade=grading)
    assert (task.domain.same(task, one) == task.domain.same(task, other)) is equal


def test_answers_with_the_same_number_vote_together() -> None:
    said = ["Answer: 24", "Answer: 26", "Answer: 26 legs", "Answer: 24", "Answer: **26.0**"]
    task = tl.general("How many legs?", answer=26, grade="number")
    made = run(tl.SelfConsistency(attempts=5), task, Scripted(lambda call: said[int(call.node[2:])]))
    assert (made.correct, made.score) == (True, 0.6)
