"""The Game of 24: exact arithmetic, forgiving reading, and nothing that a text can break."""

from __future__ import annotations

import time
from fractions import Fraction
from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tot_lab.core.arithmetic import number, value_of, win_share
from tot_lab.core.parts import part_of
from tot_lab.domains.game24 import Game24, game24, game24_tasks, hands

TASK = game24("4 5 6 10")
GAME = TASK.domain
PATH = ["4 * 5 = 20 (left: 6 10 20)", "10 - 6 = 4 (left: 4 20)", "20 + 4 = 24 (left: 24)"]
HANDS = st.lists(st.integers(1, 13), min_size=4, max_size=4)


def brute_force(hand: list[int]) -> bool:
    """Every order, operator and bracketing, written out and evaluated by Python on fractions."""
    shapes = ["((a{}b){}c){}d", "(a{}(b{}c)){}d", "(a{}b){}(c{}d)", "a{}((b{}c){}d)", "a{}(b{}(c{}d))"]
    codes = [
        compile(shape.format(*ops), "x", "eval") for shape in shapes for ops in product("+-*/", repeat=3)
    ]
    for order in set(permutations(hand)):
        values = dict(zip("abcd", map(Fraction, order), strict=True))
        for code in codes:
            try:
                if eval(code, {}, values) == 24:
                    return True
            except ZeroDivisionError:
                continue
    return False


def play(data: st.DataObject, hand: list[int]) -> list[str]:
    """A random whole path, each step read by the domain out of free text."""
    task = game24(hand)
    path: list[str] = []
    left = [Fraction(value) for value in hand]
    while len(left) > 1:
        a = left.pop(data.draw(st.integers(0, len(left) - 1)))
        b = left.pop(data.draw(st.integers(0, len(left) - 1)))
        op = data.draw(st.sampled_from("+-*/" if b else "+-*"))
        value = {"+": a + b, "-": a - b, "*": a * b}.get(op) if op != "/" else a / b
        assert value is not None
        left.append(value)
        written = [f"({a}) {op} ({b}) = {value}"]
        steps = GAME.read_proposals(task, path, written[0])
        assert len(steps) == 1
        assert GAME.read_proposals(task, path, steps[0]) == steps  # its own form reads back as itself
        path += steps
    assert GAME.state(task, path) == tuple(left)
    return path


# Hands.


def test_there_are_1362_hands_from_easy_to_hard() -> None:
    start = time.process_time()
    known = hands()
    assert time.process_time() - start < 300
    assert len(known) == len({hand.numbers for hand in known}) == 1362
    assert [hand.difficulty for hand in known] == sorted(hand.difficulty for hand in known)
    assert known[0].difficulty > 0
    assert hands() is not known


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(HANDS)
def test_the_solver_agrees_with_brute_force(hand: list[int]) -> None:
    assert (win_share([Fraction(value) for value in hand]) > 0) == brute_force(hand)


def test_win_share_is_the_share_of_play_outs() -> None:
    assert win_share([Fraction(24)]) == 1
    assert win_share([Fraction(20), Fraction(4)]) == 2 / 8  # 20 + 4, 4 + 20
    assert win_share([Fraction(24), Fraction(0)]) == 3 / 7  # 24 / 0 is no move
    assert win_share([Fraction(0), Fraction(0)]) == 0
    assert win_share([Fraction(8, 3), Fraction(9)]) == 2 / 8


def test_tasks_are_spread_from_easy_to_hard() -> None:
    known = hands()
    picked = game24_tasks(20)
    assert len({task.id for task in picked}) == 20
    assert picked[0].question == " ".join(map(str, known[0].numbers))
    assert picked[-1].question == " ".join(map(str, known[-1].numbers))
    assert len(game24_tasks(1362)) == 1362
    assert len(game24_tasks(1)) == 1
    for count in (0, 1363):
        with pytest.raises(ValueError, match="1362"):
            game24_tasks(count)


@pytest.mark.parametrize("numbers", ["4 5 6", "4 5 6 10 11", "0 5 6 10", "4 5 6 14", "four", "", "4 5 6 1.5"])
def test_a_bad_hand_is_refused(numbers: str) -> None:
    with pytest.raises(ValueError, match="four integers from 1 to 13"):
        game24(numbers)


def test_a_hand_is_given_as_text_or_numbers() -> None:
    assert game24("4, 5,6 10").question == game24([4, 5, 6, 10]).question == "4 5 6 10"
    with pytest.raises(ValueError, match="four integers"):
        game24([4, 5, 6, True])
    assert part_of(Game24(structured=True).settings()) == Game24(structured=True)


# Expressions and grading.


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("8 / (3 - 8 / 3)", 24),
        ("10 - 4 - 3", 3),
        ("24 / 4 / 3", 2),
        ("-(4 - 10) * 4", 24),
        ("2 * -3", -6),
        ("[4 + 2] × 4", 24),
        ("3x8", 24),
        ("3 · 8 − 0", 24),
        ("48 ÷ 2", 24),
        ("1.5 * 16", 24),
    ],
)
def test_expressions(expression: str, value: int) -> None:
    read = value_of(expression)
    assert read is not None
    assert read[0] == value


@pytest.mark.parametrize(
    "text",
    [
        "", "()", "4 5", "4 +", "* 4", "(4", "4)", ")4(", "2 ** 3", "7 // 2", "4 / 0", "4 / (2 - 2)", "1_0",
        "4(5)", "abs(4)", "1e9", "4 . 5", "__import__('os')", "٤", "4 = 4",
        "(" * 10_000 + "4" + ")" * 10_000, "4+" * 500_000,
    ],
)  # fmt: skip
def test_what_is_no_expression(text: str) -> None:
    assert value_of(text) is None


@pytest.mark.slow
@settings(deadline=None)
@given(st.recursive(
    st.integers(0, 99).map(str),
    lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda part: f"({' '.join(part)})"),
    max_leaves=20,
))  # fmt: skip
def test_the_parser_agrees_with_python(expression: str) -> None:
    try:
        code = " ".join(
            f"F({word})" if word.isdigit() else word
            for word in expression.replace("(", "( ").replace(")", " )").split()
        )
        expected = eval(code, {"F": Fraction})
    except ZeroDivisionError:
        expected = None
    read = value_of(expression)
    assert (read[0] if read else None) == (expected if len(expression) <= 500 else None)


def test_fractions_of_latex_are_divisions() -> None:
    for text in (
        r"\frac{8}{3 - \frac{8}{3}}",
        r"$8 \div \left(3 - \tfrac83\right)$",
        r"\[ \dfrac{8}{3-8/3} \]",
    ):
        assert value_of(text) == (24, [8, 3, 8, 3])
        assert game24("3 3 8 8").grade(text) == 1.0
    assert value_of(r"\frac{8}{0}") is None
    assert value_of("\\frac{" * 100_000) is None


def test_a_number_is_never_built_from_an_exponent() -> None:
    assert number("1e999999999") is None
    assert [number(text) for text in ("4", "-1", "1.5", "10/3", "1/0", "1_0")] == [
        4, -1, Fraction(3, 2), Fraction(10, 3), None, None,
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "grade"),
    [
        ("4 * 5 + 10 - 6", 1.0),
        ("(4 × 5) + (10 − 6) = 24", 1.0),
        ("`4 * 5 + 10 - 6 = 24.`", 1.0),
        ("4 * 5 + 10 - 6 = 25", 0.0),
        ("4 * 6", 0.0),
        ("4 * 6 * (10 - 5 - 4)", 0.0),
        ("4 * 5 + 4", 0.0),
        ("24", 0.0),
        ("", 0.0),
        ("45 - 10 - 6 - 5", 0.0),
        ("4 * 5 + 10 - 6 = 24 = 24", 0.0),
        ("24 = 4 * 5 + 10 - 6", 1.0),
        ("25 = 4 * 5 + 10 - 6", 0.0),
        ("24 = 4 * 6", 0.0),
        (r"\(4 \times 5 + \left(10 - 6\right)\) = 24", 1.0),
        ("**4 * 5 + 10 - 6**", 1.0),
        ("４×５＋（１０－６）＝２４", 1.0),
        ("$4 \\cdot 5 + 10 \\, - \\, 6$", 1.0),
        ("(" * 10_000, 0.0),
        ("4 = 1e999999999", 0.0),
        ("9" * 1_000_000, 0.0),
    ],
)
def test_grading(answer: str, grade: float) -> None:
    assert TASK.grade(answer) == grade
    assert TASK.hidden().grade(answer) == grade


# Reading steps.


@pytest.mark.parametrize(
    "text",
    [
        "4 * 5 = 20 (left: 6 10 20)",
        "- 4 * 5 = 20 (left: 1 2 3)",
        "* 4*5=20",
        "-4*5=20",
        "1. 4 × 5 = 20",
        "2) 4 · 5 = 20, left 6 10 20",
        "Step 3: **4 x 5 = 20** (left: 6, 10, 20)",
        "Step 2 - 4x5 → 20",
        "(4) * (5) = (20)",
        "4 \\times 5 = 20",
        "\\(4 \\cdot 5 = 20\\)",
        "$4 \\times 5 = \\frac{40}{2}$",
        "4 * 5 = 20.0",
        '["4 * 5 = 20"]',
        '{"a": 4, "op": "×", "b": "5"}',
        '```json\n{"steps": [{"a": "4", "op": "*", "b": "5", "result": 9}]}\n```',
    ],
)
def test_a_step_is_read_in_any_dress(text: str) -> None:
    assert GAME.read_proposals(TASK, [], text) == [PATH[0]]
    assert GAME.read_sample(TASK, [], text) == PATH[0]


@pytest.mark.parametrize(
    "text",
    ["", "none", "4 * 5", "4 * 5 = 21", "4 + 4 = 8", "3 * 8 = 24", "10 / 6 = 1.67", "5 / 0 = 0",
     "14 * 5 = 70", "4 * 5 = 200",
     '{"a": 4, "op": "^", "b": 5}', '{"a": 4, "op": "+", "b": 4}', '{"steps": 7}'],
)  # fmt: skip
def test_what_is_no_step(text: str) -> None:
    assert GAME.read_proposals(TASK, [], text) == []
    assert GAME.read_sample(TASK, [], text) is None


def test_fractions_and_negative_numbers() -> None:
    after = ["10 / 6 = 5/3 (left: 5/3 4 5)"]
    assert GAME.read_proposals(TASK, [], "10/6 = 5/3") == after
    assert GAME.read_proposals(
        TASK, after, "5/3 * 5 = 25/3\n5 / 3 * 4 = 20/3\n4 / (5/3) = 2.4\n(5/3) - 4 = -7/3"
    ) == [
        "5/3 * 5 = 25/3 (left: 4 25/3)",
        "5/3 * 4 = 20/3 (left: 5 20/3)",
        "4 / (5/3) = 12/5 (left: 12/5 5)",
        "5/3 - 4 = -7/3 (left: -7/3 5)",
    ]
    below = ["4 - 10 = -6 (left: -6 5 6)"]
    assert GAME.read_proposals(TASK, below, "6 - (-6) = 12\n-6 * 5 = -30\n6 + -6 = 0") == [
        "6 - -6 = 12 (left: 5 12)",
        "-6 * 5 = -30 (left: -30 6)",
        "6 + -6 = 0 (left: 0 5)",
    ]


def test_proposals_keep_order_and_repeats_and_drop_the_wrong() -> None:
    text = "1. 5 + 6 = 11\n2. 5 + 6 = 12\n3. 5 + 6 = 11\n4. 10 - 4 = 6 (left: 9)"
    assert GAME.read_proposals(TASK, [], text) == [
        "5 + 6 = 11 (left: 4 10 11)",
        "5 + 6 = 11 (left: 4 10 11)",
        "10 - 4 = 6 (left: 5 6 6)",
    ]


# States, completeness, answers.


def test_states_are_the_numbers_left() -> None:
    assert GAME.state(TASK, []) == (4, 5, 6, 10)
    assert GAME.state(TASK, ["5 * 4 = 20"]) == GAME.state(TASK, PATH[:1]) == (6, 10, 20)
    assert GAME.state(TASK, ["no step"]) is None


def test_complete_only_at_24() -> None:
    assert [GAME.complete(TASK, PATH[:k]) for k in range(4)] == [False, False, False, True]
    dead = [*PATH[:2], "20 - 4 = 16 (left: 16)"]
    assert GAME.complete(TASK, dead) is False
    assert GAME.answer(TASK, dead) is None
    assert GAME.read_proposals(TASK, dead, "16 + 8 = 24") == []
    assert "Nothing is left to join" in GAME.propose_prompt(TASK, dead, 3)
    assert GAME.complete(TASK, ["no step"]) is None
    assert GAME.assess(TASK, PATH) is None  # right or wrong is the evaluator's word


def test_answers_are_read_along_the_path() -> None:
    assert GAME.answer(TASK, PATH) == "4 * 5 + 10 - 6"
    assert GAME.answer(TASK, PATH[:2]) is None
    stated = [*PATH, "Answer: (4 * 5) + (10 - 6) = 24\n"]
    assert GAME.answer(TASK, stated) == "(4 * 5) + (10 - 6)"
    assert GAME.complete(TASK, stated) is True
    path = ["3 - 8 / 3", "x"]
    assert GAME.answer(game24("3 3 8 8"), path) is None
    hard = ["8 / 3 = 8/3", "3 - 8/3 = 1/3", "8 / (1/3) = 24"]
    assert GAME.answer(game24("3 3 8 8"), hard) == "8 / (3 - 8 / 3)"


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.data(), HANDS)
def test_what_the_steps_compose_is_worth_what_they_say(data: st.DataObject, hand: list[int]) -> None:
    path = play(data, hand)
    task = game24(hand)
    answer = GAME.answer(task, path)
    reached = GAME.state(task, path) == (24,)
    assert (answer is not None) == reached
    if answer is not None:
        assert task.grade(answer) == 1.0
    prompt = GAME.value_prompt(task, path)
    together = prompt.partition("Together the steps say: ")[2].partition("\n")[0]
    read = value_of(together)
    assert read is not None
    assert (read[0],) == GAME.state(task, path)
    assert sorted(read[1]) == sorted(hand)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Answer: 4 * 5 + 10 - 6", "4 * 5 + 10 - 6"),
        ("I join.\n**Answer:** (4 * 5) + (10 - 6) = 24", "(4 * 5) + (10 - 6)"),
        ("4 * 5 + 10 - 6 = 24", "4 * 5 + 10 - 6"),
        ("thus\n4 * 5 + 10 - 6\nas wanted", "4 * 5 + 10 - 6"),
        ("So\n\\[ \\boxed{(9 - 9) + (3 \\times 8)} \\]", r"(9 - 9) + (3 \times 8)"),
        (r"1 + 2 = 3. Hence $\boxed{4 * 5 + 10 - 6 = 24}$.", "4 * 5 + 10 - 6"),
        ("4 * 5 + 10 - 6 = 24\n\\boxed{24}", "4 * 5 + 10 - 6"),
        ("Answer: $\\boxed{4 * 5 + 10 - 6 = 24}$", "4 * 5 + 10 - 6"),
        ("\\boxed{1 + 2 + 3}\nAnswer: 4 * 5 + 10 - 6", "4 * 5 + 10 - 6"),
        (r"Answer: \((4 \times 5) + (10 - 6)\) = 24", r"(4 \times 5) + (10 - 6)"),
        ("Answer: $$24 = 4 * 5 + 10 - 6$$", "4 * 5 + 10 - 6"),
        ("Answer:\n\\[\n4 \\cdot 5 + 10 - 6 = 24\n\\]\nIt uses all.", r"4 \cdot 5 + 10 - 6"),
        ("Answer: 24 = 4 * 5 + 10 - 6", "4 * 5 + 10 - 6"),
        ("24 = 4 * 5 + 10 - 6", "4 * 5 + 10 - 6"),
        ("**Answer: 4 * 5 + 10 - 6 = 20 + 4 = 24**", "4 * 5 + 10 - 6"),
        ("<answer>4 * 5 + 10 - 6</answer>", "4 * 5 + 10 - 6"),
        ("<answer>\n$24 = 4 * 5 + 10 - 6$\n</answer>\nIt uses 4, 5, 6 and 10.", "4 * 5 + 10 - 6"),
        (r"Answer: $\boxed{4 * 5 + 10 - 6} = 24$", "4 * 5 + 10 - 6"),
        ("Answer: 4 * 5 + 10 - 6 = \\boxed{24}", "4 * 5 + 10 - 6"),
        ("Answer: “4 * 5 + 10 - 6”<|im_end|>", "4 * 5 + 10 - 6"),
        (r"Answer: \text{4 * 5 + 10 - 6 = 24}.", "4 * 5 + 10 - 6"),
        ("Answer: \\begin{equation*}4 * 5 + 10 - 6 = 24\\end{equation*}", "4 * 5 + 10 - 6"),
        ("Answer: 24 ＝ ４ * ５ + １０ - ６", "４ * ５ + １０ - ６"),
        ("Answer: 4 * 5 + 10 - 6 = 25", "4 * 5 + 10 - 6 = 25"),
        ("So the answer is 4 * 5 + 10 - 6 = 24.\n20 + 4 = 24", "4 * 5 + 10 - 6"),
        ("Answer: 4 * 5 + 10 - 6 = 24 (uses 4, 5, 6 and 10)", "4 * 5 + 10 - 6"),
        ("Answer: 4 * 5 + 10 - 6, which equals 24", "4 * 5 + 10 - 6"),
        (r"Answer: \bigl(4 * 5\bigr) + 10 - 6 &= 24", r"\bigl(4 * 5\bigr) + 10 - 6"),
        ("**Expression:** 4 * 5 + 10 - 6", "4 * 5 + 10 - 6"),
        ("\\boxed{4 * 5 + 10", None),
        ("I cannot.", None),
        ("24", None),
        ("", None),
    ],
)
def test_answers_are_read(text: str, answer: str | None) -> None:
    assert GAME.read_answer(TASK, text) == answer


@pytest.mark.slow
@settings(deadline=None)
@given(st.text() | st.text(alphabet='0123456789+-*/=(). \n{}[]":abopxX×÷−,'))
def test_no_text_breaks_a_reader(text: str) -> None:
    for path in ([], PATH[:2], PATH, [text], [text, text]):
        steps = GAME.read_proposals(TASK, path, text)
        for step in steps:
            assert GAME.state(TASK, [*path, step]) is not None
        GAME.read_sample(TASK, path, text)
        GAME.complete(TASK, path)
        GAME.answer(TASK, path)
        GAME.value_prompt(TASK, path)
    assert GAME.grade(TASK, text) in (0.0, 1.0)
    assert GAME.read_value(text) in (20.0, 1.0, 0.001, None)
    GAME.read_answer(TASK, text)
    GAME.read_joint(text, ["a", "b", "c"])
    GAME.read_vote(text, 3)


# Prompts.


def test_prompts_show_problem_steps_context_and_numbers_left() -> None:
    task = TASK.model_copy(update={"context": "Try the 10 last."})
    prompts = [
        GAME.sample_prompt(task, PATH[:1]),
        GAME.propose_prompt(task, PATH[:1], 5),
        GAME.value_prompt(task, PATH[:2]),
        GAME.joint_prompt(task, PATH[:1], [PATH[1]]),
        GAME.vote_prompt(task, [PATH[:1], PATH[:2]]),
    ]
    for prompt in prompts:
        assert "4 5 6 10" in prompt
        assert "Try the 10 last." in prompt
        assert f"1. {PATH[0]}" in prompt
        assert "Numbers left: 6 10 20" in prompt
    assert "(no steps yet)" in GAME.sample_prompt(task, [])
    for reasoning in (True, False):
        assert "Try the 10 last." in GAME.answer_prompt(task, reasoning)


def test_a_finished_path_is_put_to_the_evaluator() -> None:
    prompt = GAME.value_prompt(TASK, PATH)
    assert "4 * 5 + 10 - 6" in prompt
    assert GAME.read_value("All is right.\nsure") == 20.0
    assert GAME.read_value("sure or likely") is None


def test_structured_replies_pick_from_the_numbers_left() -> None:
    task = game24("4 5 6 10", structured=True)
    assert TASK.domain.response_format("propose", TASK, []) is None
    one = task.domain.response_format("sample", task, PATH[:1])
    many = task.domain.response_format("propose", task, PATH[:1])
    assert one is not None
    assert many is not None
    assert one["properties"]["a"]["enum"] == ["6", "10", "20"]
    assert many["properties"]["steps"]["items"] == one
    assert task.domain.response_format("value", task, PATH[:1]) is None
    assert task.domain.response_format("sample", task, PATH) is None
    for prompt in (task.domain.sample_prompt(task, []), task.domain.propose_prompt(task, [], 3)):
        assert "JSON" in prompt


def test_it_knows_what_can_still_be_solved():
    task = game24("4 5 6 10")
    can = task.domain.solvable
    assert can(task, []) is True
    assert can(task, ["10 - 6 = 4 (left: 4 4 5)"]) is True
    assert can(task, ["4 / 10 = 2/5 (left: 2/5 5 6)"]) is False
    assert can(task, ["10 - 6 = 4", "4 * 5 = 20", "20 + 4 = 24"]) is True
    assert can(task, ["10 - 6 = 4", "4 * 5 = 20", "20 - 4 = 16"]) is False
    assert can(task, ["Answer: (10 - 6) * 5 + 4"]) is True
    assert can(task, ["Answer: 24"]) is False
    assert can(task, ["banana"]) is None
    assert can(game24("1 1 1 1"), []) is False
