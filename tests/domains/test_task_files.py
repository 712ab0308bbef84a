"""Task files of others: every kind of file gives the same tasks, and each published format its grading.

The rows have the fields of the published files and contents of our own.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support import ROOT

import tot_lab as tl
from tot_lab.apps.cli import main
from tot_lab.core.registry import names
from tot_lab.testing import check_domain

DOUBLE = 'def double(x: int) -> int:\n    """Double x.\n\n    >>> double(4)\n    8\n    """\n'
CHECK = (
    "METADATA = {}\n\n\ndef check(candidate):\n    assert candidate(4) == 8\n    assert candidate(-1) == -2\n"
)
TWICE = "```python\ndef double(x):\n    return 2 * x\n```"
SQUARE = TWICE.replace("2 * x", "x * x")
ASSERTS = ["assert double(4) == 8", "assert double(math.floor(1.5)) == 2"]
CHOICES = {"text": ["wood", "a magnet", "glass"], "label": ["A", "B", "C"]}

FORMATS: dict[str, tuple[list[dict[str, Any]], list[tuple[str, str, str]]]] = {
    # rows, and for each the id of its task, a right and a wrong answer
    "gsm8k": (
        [{"question": "Ann has 3 bags of 400 nuts. How many?", "answer": "<<3*400=1200>>1200\n#### 1,200"}],
        [("1", "She has $1,200.00", "120")],
    ),
    "math500": (
        [
            {"problem": "What is $1/2+1/3$?", "solution": "$\\boxed{\\frac{5}{6}}$", "answer": "\\frac{5}{6}",
             "subject": "Prealgebra", "level": 1, "unique_id": "test/prealgebra/1.json"},
            {"problem": "Who is first?", "solution": "", "answer": "\\text{Ann}", "subject": "Counting",
             "level": 5, "unique_id": "test/counting/2.json"},
        ],
        [("test/prealgebra/1.json", "\\boxed{10/12}", "\\frac{5}{7}"), ("test/counting/2.json", "Ann", "B")],
    ),
    "aime": (
        [{"id": 60, "problem": "Find $7 \\cdot 10 + 3$.", "solution": "…", "answer": "073", "year": "2024"}],
        [("60", "\\boxed{73}", "730")],
    ),
    "humaneval": (
        [{"task_id": "HumanEval/0", "prompt": DOUBLE, "entry_point": "double", "test": CHECK,
          "canonical_solution": "    return 2 * x\n"}],
        [("HumanEval/0", TWICE, SQUARE)],
    ),
    "mbpp": (
        [{"task_id": 601, "text": "Write a function that doubles.", "code": "…", "test_list": ASSERTS,
          "test_setup_code": "import math", "challenge_test_list": []}],
        [("601", TWICE, SQUARE)],
    ),
    "arc": (
        [{"id": "Mercury_1", "question": "What attracts iron?", "choices": CHOICES, "answerKey": "B"},
         {"id": "NY_2", "question": "How many poles has it?", "answerKey": "2",
          "choices": {"text": ["one", "two"], "label": ["1", "2"]}}],
        [("Mercury_1", "(B) a magnet", "C"), ("NY_2", "two", "1")],
    ),
    "arc_agi": (
        [{"id": "a1", "train": [{"input": [[1, 2]], "output": [[1], [2]]}],
          "test": [{"input": [[3, 4, 5]], "output": [[3], [4], [5]]}]},
         {"id": "a2", "train": [{"input": [[0]], "output": [[0, 0]]}],
          "test": [{"input": [[1]], "output": [[1, 1]]}, {"input": [[2]], "output": [[2, 2]]}]}],
        [("a1", "A column:\n3\n4\n5", "3 4 5"), ("a2", "[[1, 1]]\n\n[[2, 2]]", "1 1")],
    ),
    "bbh": (
        [{"input": "Which is a fruit?\nOptions:\n(A) a pear\n(B) a bear", "target": "(A)"},
         {"input": "not ( True ) is", "target": "False"},
         {"input": "Does it float?\nOptions:\n- Yes\n- No", "target": "No"},
         {"input": "Is the argument valid or invalid?", "target": "invalid"},
         {"input": "((3 - 5) * 4) =", "target": "-8"},
         {"input": "Close the brackets: ( [", "target": "] )"}],
        [("1", "A", "(B)"), ("2", "false", "True"), ("3", "No, it sinks.", "Yes, or no"),
         ("4", "The answer is **invalid**.", "valid"), ("5", "-8.0", "8"), ("6", "] )", ") ]")],
    ),
    "strategyqa": (
        [{"qid": "a1", "term": "cork", "description": "", "question": "Does cork float?", "answer": True,
          "facts": ["Cork is light."]},
         {"qid": "a2", "term": "iron", "description": "", "question": "Does iron float?", "answer": False,
          "facts": []}],
        [("a1", "Yes, it is light.", "No."), ("a2", "no", "yes")],
    ),
}  # fmt: skip


def written(folder: Path, rows: list[dict[str, Any]]) -> list[Path]:
    """The rows in every kind of file that the hubs publish."""
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    paths = [
        folder / name for name in ("a.jsonl", "b.json", "c.json", "d.jsonl.gz", "e.json.gz", "f.parquet")
    ]
    paths[0].write_text(lines)
    paths[1].write_text(json.dumps(rows, indent=1))
    paths[2].write_text(lines)
    paths[3].write_bytes(gzip.compress(lines.encode()))
    paths[4].write_bytes(gzip.compress(json.dumps({"canary": "do not train", "examples": rows}).encode()))
    pd.DataFrame(rows).to_parquet(paths[5], engine="pyarrow")
    return [path for path in paths if len(rows) > 1 or path.name != "c.json"]  # one line is an object


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_a_format_gives_the_same_tasks_from_every_file(name, tmp_path):
    rows, expected = FORMATS[name]
    made = tl.tasks(rows, format=name)
    for source in (*written(tmp_path, rows), pd.DataFrame(rows), pd.read_parquet(tmp_path / "f.parquet")):
        assert tl.tasks(source, format=name) == made, source
    assert [task.id for task in made] == [id for id, _, _ in expected]
    for task, row, (_, right, wrong) in zip(made, rows, expected, strict=True):
        stated = (
            row.get("question")
            or row.get("problem")
            or row.get("prompt")
            or row.get("input")
            or row.get("text", "")
        )
        assert stated.strip() in task.question
        assert (task.grade(right), task.grade(wrong), task.grade("")) == (1.0, 0.0, 0.0)
        assert task.hidden().grade(right) is None
        again = tl.Task(**json.loads(json.dumps(task.settings())))
        assert again == task


def test_every_format_of_the_registry_is_here_and_in_the_documentation():
    assert {*FORMATS} == {*names("formats")}
    for text in (
        tl.tasks.__doc__,
        (ROOT / "docs/how-to/own_data.md").read_text(),
    ):
        assert [name for name in FORMATS if f"`{name}`" not in text] == []


@pytest.mark.slow
def test_what_the_questions_show():
    one = {name: tl.tasks(rows, format=name)[0] for name, (rows, _) in FORMATS.items()}
    assert "(A) wood\n(B) a magnet\n(C) glass" in one["arc"].question
    assert "\n".join(ASSERTS) in one["mbpp"].question
    assert CHECK not in one["humaneval"].question
    assert "return 2 * x" not in one["humaneval"].question
    assert "1,200" not in one["gsm8k"].question
    assert "Input:\n1 2\n\nOutput:\n1\n2\n\nInput of a test:\n3 4 5" in one["arc_agi"].question
    assert "3\n4\n5" not in one["arc_agi"].question
    assert one["math500"].data == {"subject": "Prealgebra", "level": 1}
    check_domain(one["arc"], ["Iron is a metal.", "Answer: B"])
    check_domain(one["strategyqa"], ["It is light.", "Answer: yes"])


def test_other_files_of_the_same_sets():
    """The fields differ between the hubs and the authors' own files."""
    stem = {"id": "M", "question": {"stem": "What attracts iron?", "choices": [
        {"text": text, "label": label} for text, label in zip(CHOICES["text"], CHOICES["label"], strict=True)
    ]}, "answerKey": "B"}  # fmt: skip
    assert tl.tasks([stem], format="arc")[0].question == tl.tasks(FORMATS["arc"][0], format="arc")[0].question
    (math,) = tl.tasks(
        [{"problem": "p", "solution": "so \\boxed{\\frac{1}{2}}.", "type": "Algebra"}], format="math500"
    )
    assert (math.reference, math.grade("0.5")) == ("\\frac{1}{2}", 1.0)
    for row in (
        {"ID": "2024-I-1", "Problem": "p", "Solution": "s", "Answer": 73},
        {"question": "p", "answer": "73"},
    ):
        assert tl.tasks([row], format="aime")[0].grade("073") == 1.0
    sanitized = {"source_file": "s", "task_id": 1, "prompt": "Double.", "test_imports": ["import math"],
                 "test_list": ASSERTS}  # fmt: skip
    assert tl.tasks([sanitized], format="mbpp")[0].grade(TWICE) == 1.0


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("gsm8k", {"question": "q"}, "field 'answer' is missing: got the fields 'question'."),
        (
            "gsm8k",
            {"question": "q", "answer": "42"},
            "field 'answer' must end with a line '#### NUMBER': got '42'.",
        ),
        (
            "gsm8k",
            {"question": "q", "answer": "#### many"},
            "answer must contain a number for grade='number'",
        ),
        ("gsm8k", {"question": "q", "answer": None}, "field 'answer' must end with a line"),
        ("math500", {"problem": 3, "answer": "1"}, "field 'problem' must contain text: got a int."),
        ("math500", {"problem": "p", "solution": "\\boxed{1"}, "field 'solution' must contain \\boxed{…}"),
        ("aime", {"id": 1, "answer": "1"}, "field 'problem' is missing"),
        (
            "humaneval",
            {"prompt": "p", "test": "def check(", "entry_point": "f"},
            "answer must be Python code",
        ),
        ("humaneval", {"prompt": "p", "test": "x = 1"}, "field 'entry_point' is missing"),
        (
            "mbpp",
            {"text": "t", "test_list": "assert f()"},
            "field 'test_list' must contain a list of texts: got 'ass",
        ),
        (
            "mbpp",
            {"text": "t", "test_list": [1]},
            "field 'test_list' must contain a list of texts: got a list.",
        ),
        (
            "arc",
            {"question": "q", "choices": ["a"], "answerKey": "A"},
            "field 'choices' must contain an object: got a list",
        ),
        (
            "arc",
            {"question": "q", "choices": {"text": ["a"]}, "answerKey": "A"},
            "field 'choices.label' is missing: got the fields 'choices.text'.",
        ),
        (
            "arc",
            {"question": "q", "choices": {"text": ["a"], "label": ["A", "B"]}, "answerKey": "A"},
            "field 'choices.text' must contain 2 texts",
        ),
        (
            "arc",
            {"question": "q", "choices": {"text": ["a"], "label": ["A"]}, "answerKey": "D"},
            "field 'answerKey' must be one of the labels A: got 'D'.",
        ),
        (
            "arc",
            {"question": {"stem": "q", "choices": 5}, "answerKey": "A"},
            "field 'question.choices' must contain a list of objects: got a int.",
        ),
        (
            "arc_agi",
            {"train": [], "test": [{"input": [[1]], "output": [[1, 10]]}]},
            "field 'test.output' must contain rows of equal length with numbers from 0 to 9: got a list.",
        ),
        (
            "arc_agi",
            {"train": [], "test": [{"input": [], "output": [[1]]}]},
            "field 'test.input' must contain rows of equal length",
        ),
        (
            "arc_agi",
            {"train": [], "test": [{"input": [[1, 2], [3]], "output": [[1]]}]},
            "field 'test.input' must contain rows of equal length",
        ),
        ("arc_agi", {"train": [], "test": [{"input": [[1]]}]}, "field 'test.output' is missing"),
        ("arc_agi", {"train": [], "test": []}, "field 'test' must contain at least one pair of grids"),
        ("bbh", {"input": " ", "target": "yes"}, "question must not be empty."),
        ("bbh", {"input": "q", "target": ""}, "answer must not be empty for grade='exact'"),
        (
            "strategyqa",
            {"question": "q", "answer": "yes"},
            "field 'answer' must contain true or false: got 'yes'.",
        ),
    ],
)
def test_a_bad_row_names_file_row_and_field(name, row, message, tmp_path):
    good = FORMATS[name][0][0]
    path = tmp_path / "test.jsonl"
    path.write_text(f"{json.dumps(good)}\n\n{json.dumps(row)}\n")
    with pytest.raises(ValueError, match=re.escape(f"test.jsonl line 3: {message}")):
        tl.tasks(path, format=name)


def test_a_bad_row_of_a_parquet_file_is_named(tmp_path):
    path = tmp_path / "test-00000-of-00001.parquet"
    pd.DataFrame({"question": ["x", None], "answer": [1.5, 2.0]}).to_parquet(path)
    with pytest.raises(
        ValueError, match=re.escape("test-00000-of-00001.parquet row 2: question must not be empty")
    ):
        tl.tasks(path, answer="answer", grade="number")
    with pytest.raises(
        ValueError, match=re.escape("parquet row 1: field 'q' is missing: got the fields 'question'")
    ):
        tl.tasks(path, question="q")


def test_values_of_parquet_become_plain(tmp_path):
    path = tmp_path / "a.parquet"
    pd.DataFrame({"question": ["x", "y", "z"], "answer": [1, None, 3], "n": [7, 8, 9]}).to_parquet(path)
    with pytest.warns(UserWarning, match="a.parquet row 2: 'answer' is empty"):
        made = tl.tasks(path, answer="answer", grade="number", id="n")
    assert [(task.reference, task.id, task.grade("1")) for task in made] == [
        (1.0, "7", 1.0), (None, "8", None), (3.0, "9", 0.0),
    ]  # fmt: skip
    json.dumps([task.settings() for task in made])


def test_files_that_cannot_be_read(tmp_path, monkeypatch):
    packed = gzip.compress(b'{"question": "x"}\n' * 100)
    for name, data, message in (
        ("a.jsonl.gz", packed[:-9], "not a complete gzip file"),
        ("b.jsonl.gz", b'{"question": "x"}', "not a complete gzip file"),
        ("c.jsonl.gz", gzip.compress(b"\xff"), "not UTF-8 text"),
        ("d.parquet", b"PAR1 and nothing", "not a readable Parquet file"),
        ("e.parquet.gz", packed, "unknown file type: got '.gz'"),
        ("f.txt", b"", "unknown file type: got '.txt'"),
        ("g.json", b'{"a": [{}], "b": [{}]}', "must contain a list of objects: got an object"),
        ("h.json", b'{"question": "x"}\n{"question"', " line 2: invalid JSON"),
    ):
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(ValueError, match=f"{name}.*{re.escape(message)}"):
            tl.tasks(path)
    with pytest.raises(FileNotFoundError):
        tl.tasks(tmp_path / "missing.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # what Python takes for a package that is not there
    with pytest.raises(
        ImportError, match=re.escape("d.parquet requires pyarrow: pip install 'tot-lab[parquet]'")
    ):
        tl.tasks(tmp_path / "d.parquet")


def test_answers_that_are_not_used_are_one_warning_that_says_what_to_pass(tmp_path):
    file, rows = tmp_path / "a.jsonl", [{"question": f"What is {k} + 1?", "answer": k + 1} for k in range(3)]
    file.write_text("\n".join(map(json.dumps, rows)))
    where = (
        "a.jsonl line 1 and 2 more: 'answer' is not used, so the task is not graded. Pass .* grade='exact'"
    )
    with pytest.warns(UserWarning, match=where) as warned:
        tasks = tl.tasks(file)
    assert len(warned) == 1
    assert [task.reference for task in tasks] == [None] * 3
    tl.tasks(file, answer="answer", grade="number")
    tl.tasks([{"answer": row["question"]} for row in rows], question="answer")
    tl.tasks(rows, id="answer")


def test_a_question_that_stands_twice_is_named_with_both_lines(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text('{"q": "2+2?", "a": 4}\n\n{"q": "3+3?", "a": 6}\n{"q": "2+2?", "a": 5}\n')
    with pytest.warns(UserWarning, match="repeats the question of") as warned:
        made = tl.tasks(path, question="q", answer="a", grade="number")
    (warning,) = warned
    assert str(warning.message).startswith("p.jsonl line 4 repeats the question of p.jsonl line 1: ")
    assert warning.filename == __file__
    assert len(made) == 3
    rows = [{"question": "x"}, {"question": "y"}, {"question": "x"}, {"question": "y"}, {"question": "x"}]
    with pytest.warns(UserWarning, match="^row 3 repeats the question of row 1 and 2 more: "):
        tl.tasks(rows)


@pytest.mark.parametrize("number", ["1,200", "-3", "$5.50"])
def test_whole_solutions_of_gsm8k_without_its_format_are_a_warning(number):
    rows = [{"question": name, "answer": f"3*4=<<3*4=12>>12\n#### {number}"} for name in "xy"]
    for grade in ("exact", "math"):
        with pytest.warns(
            UserWarning, match=r"^row 1 and 1 more: 'answer' is a whole solution\. Use format='gsm8k'\.$"
        ):
            tl.tasks(rows, answer="answer", grade=grade)
    for grade in ("number", None, lambda answer, reference: reference.endswith(answer)):  # which are right
        tl.tasks(rows, answer="answer", grade=grade)
    tl.tasks([{"question": "z", "answer": "#### what it is"}], answer="answer", grade="exact")


def test_a_format_takes_no_other_fields():
    with pytest.raises(ValueError, match=r"unknown format 'gsm8'; did you mean 'gsm8k'[?]"):
        tl.tasks([], format="gsm8")
    for others in ({"question": "q"}, {"answer": "a"}, {"id": "i"}, {"grade": "exact"}):
        with pytest.raises(ValueError, match="`format` determines the fields"):
            tl.tasks([], format="gsm8k", **others)


def test_the_command_line_takes_a_format(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = Path("test.jsonl")
    path.write_text(json.dumps({"question": "What is 6 * 7?", "answer": "6 * 7 = 42\n#### 42"}))
    model = ("--model", "sim/general")
    assert main(["sweep", "one_answer", "--tasks", str(path), "format=gsm8k", *model, "--dry-run"]) == 0
    assert "1 tasks" in capsys.readouterr().out
    path.write_text(json.dumps({"question": "What is 6 * 7?", "answer": "42"}))
    assert main(["sweep", "one_answer", "--tasks", str(path), "format=gsm8k", *model]) == 2
    assert "test.jsonl line 1: field 'answer' must end with" in capsys.readouterr().err
