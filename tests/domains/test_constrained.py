"""Tasks under hard constraints: each rule is checked exactly, each task can be solved, and no answer breaks
the checker."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter

import pytest
from golden import constrained_tasks
from hypothesis import given, settings
from hypothesis import strategies as st

import tot_lab as tl
from tot_lab.domains.constrained import COUNT
from tot_lab.domains.constrained.constraints import FORMS, LONGEST, check_rules, read, rules_in

TASKS = tl.domains.constrained_tasks(COUNT)

WEEK = "Chess: Monday, Red\nChoir: Monday, Blue\nYoga: Friday, Red"
ROWS = "|Course|Day|Room|\n|---|---|---|\n| Chess | Monday | red |\n|Choir|friday|Blue|\n|Yoga|Friday|Blue|"
FULL = WEEK.replace("Friday", "Monday")
RED = WEEK.replace("Blue", "Red")
ROW = "Ada: 1\nBo: 2\nCy: 3\nDee: 4"
BAG = "lamp: 2\nsoup: 1\nhat: 1"  # 800 + 600 + 150 g

HASH = "8ef32556e7bdaaadaebd6ae96a0b5ded6e72c178e6baadc3888a7ae170814096"

# Family, form, what the slots hold, answers that keep the rule, and answers that break it.
CHECKED = [
    ("writing", "sentences", {"n": 2}, ["Go! Is it 3.5 m?", "a b\nc. D"], ["One.", "A. B. C.", "a. b.c. D"]),
    ("writing", "words", {"low": 3, "high": 4}, ["One well-known dog's.", "a b, c d"], ["a b", "a b c d e"]),
    ("writing", "contains", {"word": "lamp"}, ["A LAMP.", "(lamp)"], ["Lamps.", "lamp-light", "clamp"]),
    ("writing", "times", {"word": "tea", "n": 2}, ["Tea, tea."], ["Tea.", "tea tea tea", "team tea"]),
    ("writing", "avoids", {"word": "the"}, ["Then there."], ["The end.", "In (the)"]),
    ("writing", "letter", {"letter": "X"}, ["Cats."], ["Exit.", "Xenia"]),
    ("writing", "initial", {"letter": "B"}, ["Be. but so? “Ben.”", "- Be.\n- Bo."], ["Be. To.", "A b."]),
    ("writing", "spells", {"letters": "GO"}, ["Get it. Or not.", "*Go*. oh!"], ["Go.", "Go. Up.", "G. O. P"]),
    ("writing", "question", {}, ["So it is. Is it?", "Is it?!"], ["Is it? So.", "So?! So?", "So."]),
    ("writing", "number", {"n": 40}, ["It is 40, yes 40."], ["forty", "40 of 50", "140", "4 0"]),
    ("writing", "lines", {"n": 5}, ["abc\nde", "**abcde**\n\nfg"], ["abc", "abcdef\ng"]),
    ("writing", "short", {"n": 2}, ["A b. C!", "a b"], ["A b c. D."]),
    ("writing", "distinct", {}, ["Go on. Come on."], ["Go on. Rest. GO."]),
    ("writing", "comma", {}, ["So it is."], ["So, it is."]),
    ("writing", "ending", {"word": "path"}, ["The Path.", "a “path”?"], ["Path it is.", "footpath"]),
    (
        "timetable",
        "each",
        {"rooms": "Red and Blue", "names": "Chess, Choir and Yoga"},
        [WEEK, WEEK.lower(), ROWS],
        [WEEK[:40], WEEK.replace("Fri", "Sun"), WEEK.replace("Blue", "Pink"), f"{WEEK}\nYoga: Monday, Red"],
    ),
    ("timetable", "clash", {}, [WEEK], [RED]),
    ("timetable", "on", {"x": "Yoga", "day": "Friday"}, [WEEK], [FULL, "a: Friday, b"]),
    ("timetable", "not_on", {"x": "Yoga", "day": "Monday"}, [WEEK], ["Yoga: Monday, A", "Chess: Friday, B"]),
    ("timetable", "same", {"x": "Chess", "y": "Choir"}, [WEEK], ["Chess: Monday, Red\nChoir: Friday, Red"]),
    ("timetable", "differ", {"x": "Chess", "y": "Yoga"}, [WEEK], [FULL, "Yoga: Friday, B"]),
    ("timetable", "before", {"x": "Chess", "y": "Yoga"}, [WEEK], [FULL]),
    ("timetable", "room", {"x": "Choir", "room": "Blue"}, [WEEK, "Choir: Friday, blue room"], [RED]),
    ("timetable", "closed", {"room": "Red", "day": "Tuesday"}, [WEEK], ["Chess: Tuesday, Red"]),
    ("timetable", "most", {"n": 2}, [WEEK], [FULL]),
    ("timetable", "days", {"n": 2}, [WEEK], [FULL, "Chess: Monday, Red"]),
    (
        "seating",
        "each",
        {"n": 4, "names": "Ada, Bo, Cy and Dee"},
        [
            *[ROW, "1. **Ada**: seat 1\n2. Bo: 2\n3. Cy: 3\n4. Dee: 4", "```\n" + ROW + "\n```"],
            "|Guest|Seat|\n|-|-|\n|Ada|1|\n|Bo|2|\n|Cy|3|\n|Dee|4|",
        ],
        [ROW.replace("4", "5"), ROW.replace("4", "3"), ROW[:20], ROW + "\nAda: 2"],
    ),
    ("seating", "next", {"x": "Bo", "y": "Ada"}, [ROW], ["Bo: 3\nAda: 1", "Bo: 1"]),
    ("seating", "not_next", {"x": "Ada", "y": "Cy"}, [ROW], ["Ada: 1\nCy: 2", "Ada: 1", "Bo: 7"]),
    ("seating", "end", {"x": "Dee"}, [ROW, "Dee: 1\nBo: 2"], ["Bo: 1\nDee: 2\nCy: 3", "Bo: 1"]),
    ("seating", "between", {"n": 2, "x": "Dee", "y": "Ada"}, [ROW], ["Dee: 4\nAda: 2"]),
    ("seating", "lower", {"x": "Bo", "y": "Dee"}, [ROW], ["Bo: 4\nDee: 1", "Bo: 1"]),
    ("seating", "not_seat", {"x": "Bo", "n": 3}, [ROW], ["Bo: 3", "Ada: 2"]),
    ("seating", "odd", {"x": "Cy"}, [ROW], ["Cy: 2", "Bo: 1"]),
    (
        "packing",
        "listed",
        {"names": "lamp, soup and hat"},
        [BAG, "- lamp: 3", "lamp: x2\nsoup: 1×"],
        [BAG + "\nrope: 1", "lamp: 4", "lamp: 0"],
    ),
    ("packing", "most", {"n": 1550}, [BAG], [BAG.replace("hat: 1", "hat: 2")]),
    ("packing", "least", {"n": 1550}, [BAG], [BAG.replace("hat: 1", "map: 1")]),
    ("packing", "sort", {"n": 2, "sort": "tools"}, [BAG], ["lamp: 1\nsoup: 3"]),
    ("packing", "need", {"x": "hat"}, [BAG], ["lamp: 1"]),
    ("packing", "without", {"x": "rope"}, [BAG], ["rope: 1"]),
    ("packing", "copies", {"n": 2, "x": "lamp"}, [BAG], ["lamp: 1", "soup: 2"]),
    ("packing", "either", {"x": "hat", "y": "scarf"}, [BAG, "scarf: 1"], ["hat: 1\nscarf: 1", "lamp: 1"]),
    ("packing", "if", {"x": "soup", "y": "lamp"}, [BAG, "hat: 1"], ["soup: 1"]),
    ("packing", "total", {"n": 4}, [BAG], ["lamp: 4\nhat: 1", "lamp: 1"]),
]  # fmt: skip


# Rules.


@pytest.mark.parametrize(
    ("family", "form", "slots", "keeping", "breaking"),
    CHECKED,
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_rule_is_checked(
    family: str, form: str, slots: dict[str, object], keeping: list[str], breaking: list[str]
) -> None:
    rule = constrained_tasks.made_rule(family, form, **slots)
    for answer in keeping:
        assert check_rules((rule,), answer) == [True], answer
    for answer in [*breaking, "", "   ", "..."]:
        assert check_rules((rule,), answer) == [False], answer


def test_every_rule_is_tried_and_asked_for() -> None:
    known = {(family, form) for family, forms in FORMS.items() for form in forms}
    assert {(family, form) for family, form, *_ in CHECKED} == known
    asked = {(rule.family, rule.form) for task in TASKS for rule in rules_in(task.question)}
    assert asked == known


@pytest.mark.parametrize(("family", "form", "slots"), [row[:3] for row in CHECKED])
def test_a_rule_is_read_out_of_its_sentence(family: str, form: str, slots: dict[str, object]) -> None:
    rule = constrained_tasks.made_rule(family, form, **slots)
    assert rules_in(f"Problem:\nDo it.\n\nRules:\n- {rule.text}\n\nRules:\n- It has no comma.") == (rule,)


def test_what_is_no_block_of_rules_is_none() -> None:
    assert (
        rules_in("")
        == rules_in("Rules:")
        == rules_in("Rules:\n- Be nice.")
        == rules_in("- It has no comma.")
        == ()
    )


# What stands around an answer.


@pytest.mark.parametrize(
    "around",
    [
        "{}",
        "I thought about it.\nAnswer: the first try\n\n**Answer:**\n{}",
        "### Final answer:\n\n```text\n{}\n```\nThat keeps all rules.",
        "```\nanother: draft\n```\nBetter:\n~ ```\n```\n{}",
    ],
)
@pytest.mark.parametrize("number", [1, 2, 4, 6, 8, 11])
def test_what_stands_around_an_answer_does_not_matter(around: str, number: int) -> None:
    task = TASKS[number - 1]
    reply = around.format(task.reference)
    assert task.domain.read_answer(task, reply) == task.reference
    assert task.grade(reply) == 1.0


def test_markdown_does_not_matter_to_designs_nor_to_texts_of_lines() -> None:
    for task in tl.domains.constrained_tasks(8, kind="design"):
        lines = task.reference.splitlines()
        assert task.grade("\n".join(f"* **{line.replace(': ', ':** ', 1)}" for line in lines)) == 1.0
        assert (
            task.grade("Here it is:\n" + "\n\n".join(f"{k}. {line}" for k, line in enumerate(lines, 1)))
            == 1.0
        )
    text = read("writing", "> 1. **Go** on.\n> 2. Rest.")
    assert text.lines == ("Go on.", "Rest.")
    assert read("writing", "Bring\n40. Rest").words == ["bring", "40", "rest"]  # no numbered list


# Tasks.


def test_the_tasks_are_the_same_everywhere() -> None:
    told = json.dumps([[task.id, task.question, task.reference] for task in TASKS])
    assert hashlib.sha256(told.encode()).hexdigest() == HASH


@pytest.mark.slow
def test_they_are_those_that_the_stream_of_numbers_gives() -> None:
    made = [constrained_tasks.made(number) for number in range(1, COUNT + 1)]
    assert [(task.question, task.witness) for task in made] == [
        (task.question, task.reference) for task in TASKS
    ]


def test_every_task_can_be_solved() -> None:
    for task in TASKS:
        assert task.grade(task.reference) == 1.0, task.id
        assert all(kept for _, kept in tl.domains.rules_kept(task, task.reference))


def test_there_are_sixty_of_each_kind_from_two_rules_to_seven() -> None:
    assert len({task.question for task in TASKS}) == len({task.id for task in TASKS}) == COUNT == 120
    rules = [rules_in(task.question) for task in TASKS]
    families = Counter(of[0].family for of in rules)
    assert families["writing"] == 60
    assert min(families.values()) >= 14
    assert len(families) == 4
    for kind in (slice(0, None, 2), slice(1, None, 2)):
        assert Counter(map(len, rules[kind])) == dict.fromkeys(range(2, 8), 10)
    for of in rules:
        assert len({rule.text for rule in of}) == len(of)
        assert len({rule.family for rule in of}) == 1
    assert (
        tl.domains.constrained_tasks(3, kind="design")
        == [TASKS[1], TASKS[3], TASKS[5]]
        == [*map(tl.domains.constrained, (2, 4, 6))]
    )


@pytest.mark.slow
def test_rules_bite_and_do_so_against_each_other() -> None:
    """The answer to one task keeps all rules of hardly any other, and of its own rules some are missed."""
    for family in FORMS:
        alike = [task for task in TASKS if rules_in(task.question)[0].family == family]
        grades = [task.grade(other.reference) for task in alike for other in alike if other is not task]
        assert 0.1 < sum(map(float, filter(None, grades))) / len(grades) < 0.8
        assert grades.count(1.0) / len(grades) < 0.1


@pytest.mark.parametrize(("count", "kind"), [(0, None), (121, None), (61, "design"), (0, "writing")])
def test_there_are_no_others(count: int, kind: tl.domains.constrained.ConstrainedKind | None) -> None:
    with pytest.raises(ValueError, match=f"count must be .*got {count}"):
        tl.domains.constrained_tasks(count, kind=kind)


def test_bad_numbers_and_kinds_are_named() -> None:
    for number in (0, 121, -1):
        with pytest.raises(ValueError, match=f"got number={number}"):
            tl.domains.constrained(number)
    with pytest.raises(ValueError, match=r"Unknown kind: got 'poem'\. Use 'writing' or 'design'"):
        tl.domains.constrained_tasks(1, kind="poem")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="domain 'constrained': got 'general'"):
        tl.domains.rules_kept(tl.general("How many?"), "3")
    for wrong, says in ((None, "must be a string such as run.answer: got NoneType"), (3, "got int")):
        with pytest.raises(TypeError, match=says):
            tl.domains.rules_kept(tl.domains.constrained(1), wrong)
    with pytest.raises(TypeError, match="task must be a Task: got 'a run'"):
        tl.domains.rules_kept("a run", "3")


# Grades.


def test_a_grade_is_the_share_of_rules_kept() -> None:
    task = TASKS[11]  # seven rules, a row of seven people
    kept = tl.domains.rules_kept(
        task,
        "\n".join(
            f"{name}: {k}"
            for k, name in enumerate(("Ada", "Celia", "Greta", "Dario", "Ines", "Hugo", "Jonas"), 1)
        ),
    )
    assert [text for text, _ in kept] == [rule.text for rule in rules_in(task.question)]
    assert 0 < sum(ok for _, ok in kept) < 7
    assert task.grade("Everybody sits where they like.") == 0.0
    assert tl.domains.rules_kept(task, "") == [(text, False) for text, _ in kept]


def test_a_search_is_told_no_grade() -> None:
    for task in TASKS[:12]:
        hidden = task.hidden()
        assert hidden.grade(task.reference) is None
        assert hidden.domain.assess(hidden, [task.reference]) is None
        assert hidden.domain.solvable(hidden, [task.reference]) is None
        assert hidden.domain.complete(hidden, [task.reference]) is None
        assert task.domain.solvable(task, ["another", task.reference]) is True
        assert task.domain.solvable(task, ["another"]) is None  # a later draft may mend it


def test_no_prompt_shows_the_reference() -> None:
    for task in TASKS:
        game = task.domain
        prompts = [
            game.answer_prompt(task, True),
            game.sample_prompt(task, []),
            game.value_prompt(task, ["x"]),
        ]
        assert not any(task.reference in prompt for prompt in prompts)


def test_designs_that_say_the_same_are_the_same_answer() -> None:
    for task in tl.domains.constrained_tasks(8, kind="design"):
        lines = task.reference.splitlines()
        turned = "\n".join(f"- {line.upper()}" for line in reversed(lines))
        assert task.domain.same(task, turned) == task.domain.same(task, task.reference)
        assert task.domain.same(task, lines[0]) != task.domain.same(task, task.reference)
    text = TASKS[0]
    assert text.domain.same(text, "Answer: Go  on.") == text.domain.same(text, "go on.")


# Reading replies.


def test_drafts_are_read_under_their_headings() -> None:
    task, game = TASKS[1], TASKS[1].domain
    told = (
        "Here they are.\n\n**Draft 1:**\nA: Monday, Red\n\n### Draft 2\n```\nB: Friday, Red\n```\nDraft 3:\n"
    )
    assert game.read_proposals(task, [], told) == ["A: Monday, Red", "B: Friday, Red"]
    assert game.read_sample(task, [], told) == "A: Monday, Red"
    assert game.read_sample(task, [], "```\nA: Monday, Red\n```") == "A: Monday, Red"
    assert game.read_sample(task, [], " \n") is None
    assert game.read_proposals(task, [], "") == []


def test_the_last_score_counts() -> None:
    game = TASKS[0].domain
    assert game.read_value("1. kept\nscore: 1/4 so far\n2. kept\n**score: 3/4**") == 0.75
    assert game.read_value("I cannot say.") is None


HOSTILE = [
    "a" * 1_000_000,
    "." * 1_000_000,
    ".a)" * 300_000,
    "``` \n" * 200_000,
    "Answer:\n" * 120_000,
    "Draft 1:\n" * 100_000,
    "- * # > " * 120_000,
    "a: b, " * 160_000,
    "| " * 500_000,
    "score: " * 140_000,
    "\ud800 \udfff: \ud800, Monday. \ud800?",
    "\0\x1c\u2028 a: 1\u2028b: ٣²",
    "(" * 19_990,
    "a-" * 9_990,
    "*_`" * 6_660,
    "x -> " * 3_990,
    "1. " * 6_660,
]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "text", HOSTILE, ids=[text[:8].encode("unicode_escape").decode() for text in HOSTILE]
)
def test_no_answer_hangs_the_checker(text: str) -> None:
    started = time.perf_counter()
    for number in (1, 2, 8):
        task, game = TASKS[number - 1], TASKS[number - 1].domain
        assert 0 <= (task.grade(text) or 0.0) < 1
        game.read_answer(task, text)
        game.read_proposals(task, [], text)
        game.read_value(text)
        hash(game.same(task, text))
    assert time.perf_counter() - started < 300  # a second here; quadratic would be hours


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(text=st.text(st.characters(), max_size=80), number=st.sampled_from([1, 2, 4, 6, 8, 11, 12, 24]))
def test_any_answer_is_graded(text: str, number: int) -> None:
    task = TASKS[number - 1]
    grade = task.grade(text)
    assert grade is not None
    assert 0 <= grade <= 1


def test_what_is_too_long_is_not_read() -> None:
    task = TASKS[0]
    assert task.grade(task.reference + " " * LONGEST) == 0.0
