"""Whether the last line of a text states an answer."""

import time

import pytest

import tot_lab as tl
from tot_lab.core.reading.answers import concluded_answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Answer: 26", "26"),
        ("We add.\n**Answer:** 26", "26"),
        ("**Final Answer**\n\\boxed{26}", "26"),
        ("Answer:\n26", "26"),
        ("#### 26", "26"),
        ("<answer>26</answer>", "26"),
        ("So the answer is 26.", "26."),
        ("The answer to the question is 26.", "26."),
        ("The final answer is $\\boxed{26}$. I hope it is correct.", "26"),
        ("Therefore:\n\\[\n\\boxed{\\frac{1}{2}}.\n\\]", "\\frac{1}{2}"),
        ("So $x = \\boxed{5}$.", "5"),
        ("Answer: $\\boxed{\\boxed{5}}$", "5"),
        ("Answer: \\boxed{x + \\boxed{5}}", "\\boxed{x + \\boxed{5}}"),
        ("The answers are $\\boxed{3}$ and $\\boxed{4}$.", "3, 4"),
        ("\\boxed{5} = \\boxed{5}.", "5"),
        ("It is $\\boxed{42}^\\circ$, or $\\boxed{42}^{\\circ}$.", "42"),
        ("So it is \\boxed{42}\\%.", "42"),
        ("So it is \\boxed{42}°.", "42"),
        ("The answer must be 26.", "26."),
        ("The answer must be $x^2$.", "$x^2$."),
        ("The answer must be (B).", "(B)."),
        ("Answer: 26<|im_end|>", "26"),
        ("Answer: we first need the legs.\nSo the answer is 26", "26"),
        ("The final answer is:\n26", "26"),
        ("The answer is 26, which matches the check.", "26, which matches the check."),
        ("The answer is 26, i.e. 13 pairs.", "26, i.e. 13 pairs."),
        ("Answer: 3; i = 2", "3; i = 2"),
        ("Answer: www.x.org/?y=1", "www.x.org/?y=1"),
        ("The final answer is 26. I hope it is correct.", "26. I hope it is correct."),
        ("So the answer is\n\n$x^2$", "$x^2$"),
        ("## Step 3: Answer: 26", "26"),
        ("Step 3: the final answer is 26.", "26."),
    ],
)
def test_an_answer_in_the_last_line(text, answer):
    assert concluded_answer(text) == answer


@pytest.mark.parametrize(
    "text",
    [
        "",
        "26",
        "We add 3 and 4.",
        "Answer:",
        "Answer: we first need the number of legs, 340",
        "Answer: let us see",
        "The hens have \\boxed{340} legs. Now the cows.",
        "\\boxed{340} is the first part.",
        "The partial sum is \\boxed{340}.",
        "So far we have \\boxed{340}",
        "The answer is not 5",
        "The answer is the sum of 3 and 4",
        "The answer is found by adding 3 and 4.",
        "What is the answer?",
        "Answer: 5?",
        "Wait, the answer is 12? No.",
        "Answer: TBD",
        "The answer is 26. Wait, let me check: 24 + 2 = 28.",
        "Answer: 26, but we must still add the ducks",
        "The answer is 26. I will check it.",
        "The answer is 26, I think.",
        "The answer is not 5.\n26",
        "What is the answer?\n26",
        "Answer: 5\nLet us check it.",
        "\\boxed{5",
        "\\boxed{}",
        "The answer must be positive.",
        "The answer must be a multiple of 3.",
        "The answers are \\boxed{3} and \\boxed{4}, which we check.",
    ],
)
def test_a_last_line_that_states_none(text):
    assert concluded_answer(text) is None


CHOICES = {"A": "red", "B": "blue", "C": "green"}


@pytest.mark.parametrize(
    ("grading", "data", "path", "stated"),
    [
        ("number", {}, ["We add.", "Answer: 26"], True),
        ("number", {}, ["Answer: 26", "Let us check."], False),
        ("number", {}, ["**Answer:**", "26"], True),
        ("number", {}, ["Answer: the hens alone"], False),
        ("math", {}, ["So it is $\\boxed{x^2}$."], True),
        ("exact", {}, ["So the answer is Paris."], True),
        ("choice", {"choices": CHOICES}, ["So the answer is (B)."], True),
        ("choice", {"choices": CHOICES}, ["It is blue.", "(B)"], True),
        ("choice", {"choices": CHOICES}, ["Answer: B or C"], False),
        ("choice", {"choices": CHOICES}, ["A: red is too hot."], False),
        ("choice", {"choices": CHOICES}, ["The sum is \\boxed{12}"], False),
        ("number", {}, [], False),
    ],
)
def test_the_grading_decides_what_an_answer_is(grading, data, path, stated):
    domain = tl.domains.General(grading=grading)
    task = tl.Task(domain=domain, question="?", data=data)
    assert bool(domain.states_answer(task, path)) is stated


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece",
    [
        "\\boxed{",
        "the answer ",
        "the a a answer of ",
        "the answer must be ",
        "<answer>",
        "*",
        "#",
        "Answer: ",
    ],
)
def test_nasty_text_takes_linear_time(piece):
    began = time.perf_counter()
    concluded_answer(piece * (1_000_000 // len(piece)))
    assert time.perf_counter() - began < 1


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("12 * 3 = 36, so 36 remain. Answer: 36", "36"),
        ("That leaves 36. Final answer: **36**", "36"),
        ("That leaves 36. Answer: we first need the rest", None),
        ("This is no final answer: 36", None),
        ("Every question has one answer: 36 or 37?", None),
    ],
)
def test_an_answer_may_follow_a_sentence_on_its_line(text, answer):
    assert concluded_answer(text) == answer
