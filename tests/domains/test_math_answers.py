"""Math answers: a value is right in every notation, no other value is, and equal answers share their votes.

The cases are of the kinds of math-verify's published tests and of the reference answers of MATH.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support import Scripted, mostly_nightly, run

import tot_lab as tl
from tot_lab.core.processes import Worker
from tot_lab.core.reading import expressions
from tot_lab.domains.general import graders


def graded(reference: str, answer: str) -> float | None:
    return tl.general("q", answer=reference, grade="math").grade(answer)


REFERENCES = [
    "18", "-7", "0.015", ".5", "1,234", r"371,\!043,\!400", r"\$7.50", r"25\%", r"75^\circ",
    r"12\text{ meters}", r"864 \mbox{ inches}^2", r"\frac{3}{56}", r"\dfrac{1}{3}", r"\frac1{10}",
    r"\frac 9{20}", r"-\tfrac34", r"1\frac{12}{13}", r"\sqrt{241}", r"11\sqrt2", r"\frac{\sqrt6}3",
    r"4 + 2\sqrt{2}", r"30\pi + 9\sqrt{3}", r"\frac{1 + \sqrt{5}}{4}", "2i", "-375 + 500i",
    r"\cos 58^\circ", r"2 \tan x", r"\sec 3x", "6r^2-4r-24", "4x(8x^2-x+5)", r"\frac{x+2}{7}",
    r"-\sqrt{x-3}+3", r"y = -\frac{1}{4}", "20x + 23y + 26z - 69 = 0",
    r"\frac{x^2}{16} - \frac{y^2}{9} = 1", "(8,3,-1)", r"\left( \frac{3}{2}, -13 \right)", "(3,4]",
    r"\left[0,\frac{343}{27}\right]", r"(-\infty,-7) \cup (1,2)", "0,4", r"\sqrt{5}, -\sqrt{5}",
    r"19 \text{ and }43", r"0, \frac{2 \pi}{3}, 2 \pi", r"45^\circ, 135^\circ", r"1 \pm \sqrt{19}",
    r"\{2, 3, 7\}", "3:1", "12:05", r"\begin{pmatrix} 2/5 \\ -1/5 \end{pmatrix}",
    r"\begin{pmatrix} 3 & 6 \\ 2 & 7 \end{pmatrix}", "42_7", "0.0011_{2}", "152A_{11}", r"\text{even}",
    r"\text{(B)}", "B, C", r"\text{VW}", "x < 3", r"-2 \le x \le 7",
]  # fmt: skip


def notations(text: str) -> list[str]:
    large = text.replace(r"\dfrac", r"\frac").replace(r"\tfrac", r"\frac").replace(r"\frac", r"\dfrac")
    small = large.replace(r"\dfrac", r"\tfrac")
    if r"\left" not in text:
        large = large.replace("(", r"\left(").replace(")", r"\right)")
    return [
        text,
        f"${large}$",
        rf"\( {small} \)",
        rf"\boxed{{{text}}}",
        f"Answer: {text}",
        rf"\[ {text.replace('+', ' + ').replace(' ', '  ')} \]",
        rf"The answer is $\boxed{{{text}}}$.",
    ]


@pytest.mark.nightly
@pytest.mark.parametrize("reference", mostly_nightly(REFERENCES, REFERENCES[5::10]))
def test_a_reference_equals_itself_in_every_notation_and_nothing_with_another_digit(reference):
    for answer in notations(reference):
        assert graded(reference, answer) == 1.0, answer
    for place, digit in enumerate(reference):
        if digit.isdigit():
            other = (
                reference[:place] + ("1" if digit == "9" else str(int(digit) + 1)) + reference[place + 1 :]
            )
            for answer in notations(other)[:4]:
                assert graded(reference, answer) == 0.0, answer


EQUAL = [
    ("15, 40, 91", "15, 40, and 91"),
    ("15, 40, 91", r"\(15\), \(40\) and \(91\)"),
    ("15, 40, 91", r"$91, 15 \text{ and } 40$"),
    ("1, -2", "x = 1 or x = -2"),
    ("1, -2", r"\{-2, 1\}"),
    ("1, -2", r"$x_1 = 1$, $x_2 = -2$"),
    ("1, -2", r"\boxed{1} apples and \boxed{-2} pears"),
    (r"1 \pm \sqrt{19}", r"1 - \sqrt{19}, 1 + \sqrt{19}"),
    ("x^3", "x³"),
    ("x^{10}", "x**10"),
    (r"\frac{3}{4}", "¾"),
    (r"\frac{5}{2}", "2½"),
    (r"\frac{3}{2}", "³⁄₂"),
    (r"\sqrt{x+1}", "√(x+1)"),
    (r"\sqrt[3]{2}", "∛2"),
    (r"2\sqrt{3}\pi", "2√3π"),
    ("10", "10 m/s"),
    ("10", "10 meters per second"),
    ("10", r"10\text{ cm}^2"),
    (r"10\text{ m}", "10 metres"),
    (r"864\text{ inches}^2", "864 square inches"),
    (r"17\text{ meters}", "17"),
    ("28 percent", r"28\%"),
    ("0.5", "50%"),
    ("1.22", "1,22"),
    (r"(-\infty, 3)", "x < 3"),
    ("[-2, 7]", r"-2 \le x \le 7"),
    ("1/3", r"x = 2/6 \approx 0.3"),
    (
        "10455",
        "so $10,200 + \\boxed{255}$. Final Answer: The final answer is $10,455$. I hope it is correct.",
    ),
    ("2^{200}+1", "1 + 2^{200}"),
    (r"\sqrt{2}", "1.414214"),
    ("34x + 45y = 100", "100 = 45y + 34x"),
    ("x^2/4 + y^2/3 = 1", "x^2/16 + y^2/12 = 1/4"),
    ("(1,200)", "(1, 200)"),
    ("-4, 6", r"$n = -4 \lor n = 6$"),
    ("-4, 6", "-4 und 6"),
    ("-4, 6", "either n = 6 or n = -4"),
    ("-4, 6", "The roots are $n=-4$ and $n=6$."),
    ("2, 3", "x₁ = 2, x₂ = 3"),
    ("5", "There are 5 apples."),
    ("5", "x = 5, since x > 0"),
    ("5", "5 (five)"),
    ("12", "12, not 13"),
    ("12", "approximately 12 seconds"),
    ("12", "<answer>１２</answer>"),
    ("12", r"$\color{red}{12}$"),
    ("2/3", "2/3 or approximately 0.667"),
    ("2/3", "2/3 (about 66.7%)"),
    ("3/4", "3⁄4"),
    (r"\text{even}", "The function is even."),
    ("(2, 3)", "The point is (2, 3)."),
    ("31_5", "31 (base 5)"),
    ("25", "25°C"),
    (r"\$6", "6 dollars"),
    (r"10\text{ m/s}", "10 m s^-1"),
    ("10", r"$10\,\frac{\text{m}}{\text{s}}$"),
    (r"(-\infty, 2) \cup (5, \infty)", "x < 2 or x > 5"),
    (r"(-\infty, 3]", r"$\{x \in \mathbb{R} : x \leq 3\}$"),
    (r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", "[[1, 2], [3, 4]]"),
    ("0,111", "0.111"),
    ("1/3", r"0.\overline{3}"),
    ("37/300", r"$0.12\overline{3}$"),
    ("1/2", "½ cup"),
    ("10 apples", "10 apple"),
    ("10 apples", "10"),
]
DIFFERENT = [
    (r"15 \text{ and } 91", "91"),
    (r"15 \text{ and } 91", r"$17 \text{ and } 91$"),
    (r"x=2 \text{ or } x=5", "$x=5$"),
    ("a = 1, b = 2", "a = 2, b = 1"),
    ("x²", "x^3"),
    ("½", "⅓"),
    (r"10\text{ m}", "10 cm"),
    (r"10\text{ m}^2", "10 m"),
    ("10", "10x"),
    ("0,4", "0.5"),
    ("1.22", "1,23"),
    ("1/3^90", "1/3^91"),
    (r"$\frac{1}{2004!}$", r"$\frac{1}{2006!}$"),
    (r"(10^{-50}, 1)", r"(10^{-51}, 1)"),
    ("x/3^{90}", "x/3^{91}"),
    ("2^{200}+1", "2^{200}"),
    (r"1 - \frac{1}{\mathrm{e}}", r"1 + \frac{1}{\mathrm{e}}"),  # equal according to math-verify 0.9
    ("42_7", "42_8"),
    ("42_7", "42"),
    ("(0.0000001, 1)", "(0.0000002, 1)"),
    ("[1, 2)", "(1, 2)"),
    ("(2, 3)", "(3, 2)"),
    ("3:1", "3:2"),
    ("3:1", "3"),
    ("2, 3", "2 < x < 3"),
    ("5", "at least 5"),
    ("5", "between 4 and 5"),
    ("5", "maybe 5?"),
    ("5", "4, then 5"),
    ("5", "6 instead of 5"),
    ("5", "6 (not 5)"),
    ("5", "3 apples and 5 pears"),
    ("5", "The answer is not 5, but 6."),
    ("5", "5 is not possible"),
    ("5", "half of 5"),
    ("5", "divisible by 5"),
    ("5", "5 (maybe 6)"),
    ("5", "5, but 6 is also possible"),
    ("5", "5 when n is odd, 6 when n is even"),
    ("5", "5 million"),
    ("5", "≥ 5"),
    ("31", "31 (base 5)"),
    (r"\text{VW}", "WV"),
    (r"\$6", "6 cents"),
    (r"\$6", "€6"),
    (r"60^\circ", "60 radians"),
    ("1.234", "1,234"),
    (r"[1,2] \cup [3,4]", "[1,2]"),
    ("1, 2", "1, 1, 2"),
    ("10 apples", "10 pears"),
    ("10 apples", "11 apples"),
    (r"0.\overline{3}", r"0.\overline{4}"),
    ("0.3", r"0.\overline{3}"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("reference", "answer"), EQUAL)
def test_equal_answers_are_right(reference, answer):
    assert graded(reference, answer) == 1.0


@pytest.mark.slow
@pytest.mark.parametrize(("reference", "answer"), DIFFERENT)
def test_values_that_differ_are_wrong(reference, answer):
    assert graded(reference, answer) == 0.0


# Votes.

POOLED = [
    ["x^2 + 1", "1+x**2", "$x²+1$", r"\boxed{1 + x^{2}}", "y = x^2+1", "1 + x ** 2"],
    [r"\frac{\pi}{2}", r"\pi/2", "π/2", r"0.5\pi"],
    [r"3\sqrt{5}", r"\sqrt{45}", "√ 45", "3√5", r"\frac{15}{\sqrt5}"],
    ["0.5", r"\frac12", "½", "1/2", "Answer: .50"],
    ["50%", r"50\%", "50 percent"],
    ["50", "x = 50", "$50", r"\$50", "50 dollars", "50°"],
    ["€50", "50 euros"],
    ["50°C"],
    [r"x_1 = 2, x_2 = 3", "2, 3"],
    [r"(-\infty, 2) \cup (5, \infty)", "x < 2 or x > 5"],
    [r"\sin 2x", r"2 \sin x \cos x"],
    ["e^2", "exp(2)"],
    ["i", r"e^{i\pi/2}"],
    ["0", r"\sin^2 x + \cos^2 x - 1"],
    ["2^-1 x", "x/2"],
    ["x_{12} + x_1", "x_1 + x_{12}"],
    [r"\begin{array}{cc} 1 & 2 \end{array}", r"\begin{bmatrix} 1 & 2 \end{bmatrix}"],
    [r"\emptyset", "∅"],
    ["(x+1)^2", "x^2 + 2x + 1"],
    [r"\sin^2 x + \cos^2 x", "1", r"-e^{i\pi}", r"\binom{5}{5}"],
    ["15 and 40", "40, 15", r"\{15, 40\}"],
    ["2, 3, 4", "2, 3, and 4", "2、3和4", "2 et 3 ou 4", "2 und 3 oder 4", r"2, 3 \text{, or } 4"],
    [r"\left( 2, 3 \right)", "(2,3)", r"\bigl(2, 3\bigr)", r"$\displaystyle (2, 3)$"],
    ["x < 3", r"(-\infty, 3)", "3 > x"],
    [r"x \le 3", r"(-\infty, 3]"],
    ["10 m/s", r"10\text{ meters per second}"],
    ["10 m"],
    ["10"],
    ["|x|", r"\sqrt{x^2}"],
    ["x"],
    ["42_7"],
    ["42_8"],
    ["1/3^90", "3^{-90}"],
    ["1/3^91"],
    ["a = 1, b = 2"],
    ["a = 2, b = 1"],
    ["2x + 4y = 6", "x + 2y = 3"],
    ["x < y", "y > x"],
    [r"x \approx 2", "x = 2", r"2 \approx 1.9"],
    [r"\sqrt[3]{-8}", "-2"],
    [r"\text{No solution}", "no solution"],
    ["Yes", "yes", r"\text{yes}"],
    ["1000", "1e3", "10^3", "1,000"],
    ["AC"],
    ["CA"],
    ["10^{40}"],
    ["10^{40} + 1"],
]


def test_answers_share_their_votes_if_and_only_if_they_are_equal():
    same = tl.general("q", grade="math").domain.same
    task = tl.general("q", grade="math")
    pools: dict[Any, list[str]] = {}
    for text in (text for pool in POOLED for text in pool):
        pools.setdefault(same(task, text), []).append(text)
    assert list(pools.values()) == POOLED


def test_a_vote_counts_equal_expressions_as_one_answer():
    said = ["Answer: x - 1", "Answer: $x^2+1$", "Answer: 1 + x^2", "Answer: x - 1", r"Answer: \boxed{x²+1}"]
    task = tl.general("q", answer="x^2+1", grade="math")
    made = run(tl.SelfConsistency(attempts=5), task, Scripted(lambda call: said[int(call.node[2:])]))
    assert (made.correct, made.score) == (True, 0.6)


@pytest.mark.slow
def test_the_keys_of_256_answers_take_at_most_a_second():
    task = tl.general("q", grade="math")
    task.domain.same(task, "1")  # starts the process
    taken = []
    for number in range(6):  # the machine may be busy
        answers = [rf"\frac{{x^2 + {k}}}{{{k + 2}}} + \sqrt{{{k}}} + {number}" for k in range(256)]
        start = time.monotonic()
        keys = {task.domain.same(task, answer) for answer in answers}
        taken.append(time.monotonic() - start)
        assert len(keys) == 256
        if taken[-1] <= 1:
            break
    assert min(taken) <= 1


def test_a_key_is_the_same_in_every_process():
    texts = ["x^2+1", r"\frac{\pi}{7}", "1, 2", r"(a,b]", "x < y", r"\ln 2", "e^{i}"]
    worker = Worker(Path(expressions.__file__).read_text(encoding="utf-8"))
    keys = [expressions.answer(text) for text in texts]
    assert None not in keys
    assert keys == [worker.request(text, 5) for text in texts]


@pytest.mark.parametrize(
    "text",
    ["9^9^9^9^9", "((((9!)!)!)!)!", r"\cos(10^{10^{10}})", "e^{e^{e^{e^e}}}", "(" * 3_000, "-" * 3_000 + "1",
     r"\frac{" * 500, "2^" * 1_000 + "2", r"\binom{10^9}{5}", "1/0", "0^0", "x" * 4_000, "2 3", "f(x)",
     "five", r"\sin x/2", "1 < x < y < 3", "1 < x > 0", "{1)", "3 = 4", "12 = 12", "0 < 2x < 4"],
)  # fmt: skip
def test_what_is_large_or_no_expression_has_no_key(text):
    start = time.process_time()
    assert expressions.answer(text) is None
    assert time.process_time() - start < 0.5


def test_without_the_extra_equal_numbers_and_texts_share_their_votes(monkeypatch):
    graders._expression_key.cache_clear()
    monkeypatch.setitem(sys.modules, "mpmath", None)
    task = tl.general("q", grade="math")
    keys = [task.domain.same(task, text) for text in ("0.5", r"$\frac{1}{2}$", "x + 1", "$x+1$", "1 + x")]
    graders._expression_key.cache_clear()
    assert keys[0] == keys[1]
    assert keys[2] == keys[3] != keys[4]
