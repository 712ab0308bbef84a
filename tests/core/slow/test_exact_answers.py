"""`exact` and the families of the gym compare the answer, not its decoration."""

import pytest

from tot_lab.core.reading.answers import normalize, whole_answer
from tot_lab.core.reading.decoration import undecorated
from tot_lab.domains.general import general

DECORATIONS = [
    '"{}"',
    "'{}'",
    "“{}”",
    "„{}“",
    "«{}»",
    "「{}」",
    "‘{}’",
    "*{}*",
    "**{}**",
    "***{}***",
    "_{}_",
    "__{}__",
    "`{}`",
    "<b>{}</b>",
    "{}.",
    "{}!",
    "{}。",
    "**{}**.",
    "**{}.**",
    "“{}.”",
    '"{}".',
    "{}<|im_end|>",
    "{}</s>",
    "{}.<|eot_id|>\n",
    "{}<end_of_turn>",
    "{}<｜end▁of▁sentence｜>",
    "\\({}\\)",
    "${}$",
    "\\text{{{}}}",
    '**"{}"**<|im_end|>',
]


@pytest.mark.parametrize("form", DECORATIONS)
@pytest.mark.parametrize("answer", ["Paris", "Zürich", "New York", "x+1", "C++", "don't", "a, b and c"])
def test_decoration_does_not_matter_to_exact(form, answer):
    task = general("q", answer=answer, grade="exact")
    assert task.grade(form.format(answer)) == 1.0
    assert task.grade(task.domain.read_answer(task, f"So it is.\nAnswer: {form.format(answer)}")) == 1.0
    assert task.grade(form.format(f"{answer} too")) == 0.0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Zu\u0308rich", "Z\u00fcrich"),
        ("CAFE\u0301", "caf\u00e9"),
        ('the "Big Apple"', "The Big Apple"),
        ("the **Big** `Apple`", "the big apple"),
        ("don’t", "don't"),
        ("l’été", "L'été."),
        ("Ｐａｒｉｓ　１２", "paris 12"),
    ],
)
def test_equal_texts(one, other):
    assert normalize(one) == normalize(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2*3", "23"),
        ("2*3*4", "234"),
        ("a_b", "ab"),
        ("x²", "x2"),
        ("!", "?"),
        ("26", "26.0"),
        ("dogs' and cats'", "dogs and cats"),
        ("-1", "1"),
        ("a*", "a"),
        ("$5", "5"),
        ("naïve", "naive"),
        ("1/2", "12"),
    ],
)
def test_texts_that_differ_stay_different(one, other):
    assert normalize(one) != normalize(other)


@pytest.mark.parametrize("text", ["", " ", "**", '"', "''", "$$", "`", "...", "<|a|>", "\\text{}", "<|" * 50])
def test_a_text_of_marks_alone_breaks_nothing(text):
    assert undecorated(text, ends=".").strip() == text.strip() or text in ("$$", "...", "''")
    assert isinstance(normalize(text), str)


@pytest.mark.parametrize("form", [form for form in DECORATIONS if not set("!。|｜") & set(form)])
@pytest.mark.parametrize(
    "before",
    [
        "Answer: ",
        "**Answer**: ",
        "**Answer:** ",
        "So.\n> Final answer: ",
        "Answer:\n",
        "So.\n### Answer\n\n",
        "So.\nThe answer is ",
    ],
)
@pytest.mark.parametrize(
    "after",
    ["", "\n\n(I checked the result.)", "\n\nDone!", "\nConfidence: 0.9", "\nThat is what was to be shown."],
)
def test_the_bare_answer_reaches_a_family(before, form, after):
    for answer in ("1", "wife", "-3/4"):
        assert whole_answer(before + form.format(answer) + after) == answer


@pytest.mark.parametrize(
    "answer",
    [
        "_ _ Q\n_ Q _\nQ _ _",
        "* . *\n. * .",
        "1 2\n\n3 4",
        '[["a", "b"], ["c"]]',
        '"a", "b"',
        "Move disk 1 from Peg 1 to Peg 2\nMove disk 2 from Peg 1 to Peg 3",
        "Move disk 1 from Peg 1 to Peg 2\n\nMove disk 2 from Peg 1 to Peg 3",
        "Joseph is an angel, and Zoey is a demon.",
        '"Yes, it is," he said.',
        "2*(-10*x - 10)**(3/2)/3 + C",
        "4*8 - 6 - 2",
        "the, NEGLIGENCE, may, free",
    ],
)
def test_what_belongs_to_an_answer_stays(answer):
    assert whole_answer(f"Answer: {answer}") == answer
    assert whole_answer(f"Answer:\n{answer}") == answer
    assert whole_answer(f"Answer:\n```text\n{answer}\n```\nThat is my answer.") == answer
    assert whole_answer(f"<answer>{answer}</answer>") == answer
