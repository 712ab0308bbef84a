"""Arithmetic word problems: the set is what it says, answers are graded exactly, and nothing is put right."""

from __future__ import annotations

from collections import Counter

import pytest

import tot_lab as tl
from tot_lab.domains.word_sums import COUNT, problem_in

TASKS = tl.domains.word_sums_tasks(COUNT)
FIRST = TASKS[0]  # 909 * 366 = 332694, less 6531 is 326163
STEPS = ["909 * 366 = 332694", "332694 - 6531 = 326163", "Answer: 326163"]


def test_the_set_is_the_same_everywhere_and_each_problem_another_one() -> None:
    assert len(TASKS) == len({task.question for task in TASKS}) == len({task.id for task in TASKS}) == 240
    assert FIRST.question.startswith(
        "A mill grinds 909 sacks of flour a week. After 366 weeks a flood spoils 6531"
    )
    assert [task.reference for task in TASKS[:10]] == [
        326163, 338733, 432633, 1208142, 81501, 5805336, 191222, 1674700, 1337532, 122884,
    ]  # fmt: skip
    assert tl.domains.word_sums(7) == TASKS[6]
    assert tl.domains.word_sums_tasks(3) == TASKS[:3]


def test_every_problem_is_read_back_and_its_steps_come_to_its_reference() -> None:
    counts = Counter()
    for task in TASKS:
        problem = problem_in(f"Do this:\n{task.question}\n\nAnswer: 1")
        assert problem is not None
        assert all(value.denominator == 1 and value > 0 for value in problem.results)
        assert problem.results[-1] == task.reference
        counts[len(problem.steps)] += 1
    assert set(counts) == {2, 3, 4, 5}
    assert min(counts.values()) >= 48
    assert problem_in("How many sacks are good?") is None


def test_the_first_of_two_problems_is_what_is_asked() -> None:
    first, second = problem_in(TASKS[1].question), problem_in(f"{TASKS[1].question} of {TASKS[5].question}")
    assert first == second


@pytest.mark.parametrize("number", [0, 241])
def test_there_are_no_others(number: int) -> None:
    with pytest.raises(ValueError, match="1 to 240"):
        tl.domains.word_sums(number)
    with pytest.raises(ValueError, match="1 to 240"):
        tl.domains.word_sums_tasks(number)


@pytest.mark.parametrize(
    ("answer", "grade"),
    [
        ("326163", 1),
        ("326,163 sacks", 1),
        ("326163.0", 1),
        ("326162.9999", 0),
        ("326164", 0),
        ("", 0),
        ("many", 0),
    ],
)
def test_an_answer_is_right_when_its_number_is(answer: str, grade: float) -> None:
    assert FIRST.grade(answer) == grade


def test_answers_are_read_and_compared_as_numbers() -> None:
    game = FIRST.domain
    assert game.read_answer(FIRST, "909 * 366 = 332694\nAnswer: 326,163") == "326,163"
    assert game.read_answer(FIRST, "It is 326163 sacks") == "326163"
    assert game.read_answer(FIRST, "It is \\boxed{326163}, from 366 carts") == "326163"
    assert game.read_answer(FIRST, "no idea") is None
    assert game.same(FIRST, "326,163") == game.same(FIRST, "326163 sacks") != game.same(FIRST, "326164")


def test_a_path_is_complete_when_it_states_an_answer() -> None:
    game = FIRST.domain
    assert [game.complete(FIRST, STEPS[:k]) for k in range(4)] == [False, False, False, True]
    assert [game.answer(FIRST, STEPS[:k]) for k in range(4)] == [None, None, None, "326163"]


def test_a_wrong_sum_stays_wrong_and_is_told_of() -> None:
    game = FIRST.domain
    assert game.read_sample(FIRST, [], "909 * 366 = 332695") == "909 * 366 = 332695"
    assert [game.solvable(FIRST, STEPS[:k]) for k in range(4)] == [True] * 4
    assert game.solvable(FIRST, ["909 * 366 = 332695"]) is False
    assert game.solvable(FIRST, ["`909 × 366 = 332,694`"]) is True
    assert game.solvable(FIRST, ["multiply first"]) is None
    assert game.solvable(FIRST, ["909 * 366 = 332695", "Answer: 326163"]) is True  # the answer decides
    assert game.solvable(FIRST, ["Answer: 1"]) is False


def test_prompts_for_steps_say_how_a_step_looks() -> None:
    game = FIRST.domain
    for prompt in (
        game.sample_prompt(FIRST, []),
        game.propose_prompt(FIRST, [], 3),
        game.value_prompt(FIRST, STEPS),
    ):
        assert "one calculation with its result" in prompt
    assert "one calculation" not in game.answer_prompt(FIRST, True)
