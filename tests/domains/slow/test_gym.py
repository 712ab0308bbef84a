"""Tasks of reasoning-gym: made, graded and loaded; what its graders would accept or run, and ours do not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import SETTINGS, STRATEGIES, Scripted, answer_to, for_each, wait

import tot_lab as tl
from tot_lab.core.calls import Call, Reply, ToolCall
from tot_lab.core.processes import Killed, can_isolate
from tot_lab.core.reading.answers import whole_answer
from tot_lab.core.registry import BUILT_IN
from tot_lab.core.task import Domain
from tot_lab.domains import gym
from tot_lab.domains.gym import Gym, exact, worker
from tot_lab.domains.gym.exact import EXACT, is_solved

pytest.importorskip("reasoning_gym")

NO_REFERENCE = {"boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"}
"""Families whose items have no answer: any solution counts."""

SAMPLE = ["rearc", "binary_matrix", "countdown", "knights_knaves", "mini_sudoku", "n_queens"]
SAMPLE += ["polynomial_multiplication", "rush_hour", "simple_integration", "spiral_matrix", "tower_of_hanoi"]
COMPOSITE = {"datasets": [{"name": name, "weight": 1, "config": {}} for name in ("gcd", "countdown")]}


def families() -> list[str]:
    known: list[str] = gym._ask("describe", family="")["families"]
    return known


def tasks_of(family: str, count: int = 1, seed: int = 3) -> list[tl.Task]:
    difficulty = COMPOSITE if family == "composite" else None
    made = tl.tasks(f"gym:{family}", count, seed=seed, difficulty=difficulty)
    assert [task.domain.kind for task in made] == ["gym"] * count or f"gym/{family}" in BUILT_IN["domains"]
    return [task.model_copy(update={"domain": open_answer(task, family)}) for task in made]


def open_answer(task: tl.Task, family: str) -> Gym:
    """The domain of an open answer, also where the family has a search domain."""
    return task.domain if isinstance(task.domain, Gym) else Gym(family=family)


def answered(task: tl.Task, text: str) -> tl.Run:
    return wait(tl.Lab(Scripted(lambda call: text), runs=None).run(tl.ChainOfThought(), task))


def wrong_one(text: str) -> str:
    """The same text with its first letter or digit, or its first character, changed."""
    k = next((k for k, letter in enumerate(text) if letter.isalnum()), 0)
    return text[:k] + ("7" if text[k] == "3" else "3") + text[k + 1 :]


# Every family.


@pytest.mark.nightly
@pytest.mark.parametrize("family", SAMPLE)
def test_a_right_answer_is_solved_and_a_wrong_one_is_not(family: str) -> None:
    right_and_wrong(family)


@pytest.mark.proof
def test_every_family_solves_its_reference_and_no_wrong_answer() -> None:
    known = families()
    assert len(known) >= 106
    lacking = set()
    for family in known:
        if not right_and_wrong(family):
            lacking.add(family)
    assert lacking == NO_REFERENCE


def right_and_wrong(family: str) -> bool:
    task = tasks_of(family)[0]
    assert task.data["source_dataset"] == getattr(task.domain, "family", family)
    assert answered(task, "Answer: none of these").correct is False
    if task.reference is None:
        return False
    for text in (f"Let us see.\nAnswer:\n{task.reference}", f"<answer>{task.reference}</answer>"):
        run = answered(task, text)
        assert (run.correct, run.grade, run.credit) == (True, 1.0, 1.0), (family, run.answer)
    run = answered(task, f"Answer: {wrong_one(task.reference)}")
    assert (run.correct, run.grade) == (False, 0.0), (family, run.answer)
    return True


# Every strategy.


@pytest.mark.parametrize("family", ["mini_sudoku", "rush_hour"])
def test_every_strategy_works_in_a_family(family: str) -> None:
    works_with_every_strategy(family)


@pytest.mark.proof
def test_every_strategy_works_in_every_family() -> None:
    for_each(families(), works_with_every_strategy)


def works_with_every_strategy(family: str) -> None:
    """A model that knows the answer is right, so no strategy shortens or changes it. A model that replies at
    random gets a grade.
    """
    (task,) = tasks_of(family)
    solved = float(task.reference is not None)
    for kind in STRATEGIES:
        strategy = kind(**SETTINGS.get(kind, {}))
        for model, grades in (
            (Scripted(stating(f"{task.reference}")), {solved}),
            ("sim/general", {0.0, 1.0}),
        ):
            run = wait(tl.Lab(model, runs=None).run(strategy, task))
            assert run.grade in grades, (kind.__name__, model, run.stop_reason, run.answer, run.failure)
            assert run.stop_reason != "error", (kind.__name__, model, run.failure)


def stating(answer: str) -> Callable[[Call], str | Reply]:
    """Replies that state `answer` wherever a prompt accepts one."""
    stated = f"Let us see.\nAnswer:\n{answer}"
    replies = {
        "propose": json.dumps([stated, "a step"]),
        "develop": json.dumps({"solution": stated, "confidence": 9}),
        "converge": json.dumps({"synthesis": stated, "confidence": 9, "should_continue": False}),
        "critique": "SATISFIED: it holds.",
        "review": f"SATISFIED: it holds.\n{stated}",
    }
    replies |= dict.fromkeys(
        ("answer", "sample", "rollout", "act", "analysis", "synthesize", "reflect"), stated
    )

    def reply(call: Call) -> str | Reply:
        if "final-answer" in {tool["name"] for tool in call.tools}:
            return Reply(tool_calls=(ToolCall("a", "final-answer", json.dumps({"answer": answer})),))
        return replies.get(call.purpose) or answer_to(call)

    return reply


@pytest.mark.proof
def test_the_credit_is_what_reasoning_gym_gives() -> None:
    """Its own generator and grader, in an interpreter that holds nothing of ours."""
    code = """
import json, sys, warnings
warnings.simplefilter("ignore")
import reasoning_gym
found = {}


def score(items, answer):
    try:
        return items.score_answer(answer, items[0])
    except Exception:  # such as for "no" as the factors of a number
        return 0.0


for family in json.load(sys.stdin):
    items = reasoning_gym.create_dataset(family, seed=3)
    entry = items[0]
    answer = entry["answer"] or "none"
    given = [answer, answer[: len(answer) // 2], answer + " 1", answer.lower(), "1", "[]", "no"]
    found[family] = [entry["question"], given, [score(items, one) for one in given]]
print()  # a generator prints dots
print(json.dumps(found))
"""
    judged = [family for family in families() if family not in EXACT and family != "composite"]
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(judged),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    found = json.loads(done.stdout.splitlines()[-1])
    for family, (question, given, scores) in found.items():
        task = tasks_of(family)[0]
        assert task.question == question, family
        assert [task.domain.credit(task, one) for one in given] == pytest.approx(scores), family


# Graders of ours.


@pytest.mark.parametrize(
    ("family", "data", "reference", "right", "wrong"),
    [
        (
            "countdown",
            {"numbers": [3, 4, 5], "target": 23},
            "4*5 + 3",
            ["3 + 4*5", "(5·4)+3"],
            ["3 + 4*5 + 0*3", "23", "3*5 + 4*2", "3 + 4*5 = 23", "4*5 + 3.0000001", "sum([20, 3])"],
        ),
        (
            "puzzle24",
            {"numbers": [1, 5, 5, 5]},
            "5*(5 - 1/5)",
            ["(5 - 1/5)*5"],
            ["6*4*1*1", "5*5 - 1", "5*5 - 5/5 - 0*1", "5*5 - 1**5"],  # the first has other numbers
        ),
        (
            "coin_flip",
            {"rational": {"numerator": 5, "denominator": 16}},
            "0.3125",
            ["0.3125", ".3125", "5/16", "10/32", "31.25%", "0.313", "3.125e-1"],
            ["0", "0.3", "0.3126", "0.31", "3125", "5/17", "1/0", "", "."],
        ),
        ("figlet_font", {}, "ABCDEFGHIJKL", ["abcdefghijkl"], ["ABCDEFGHIJKM", "ABCDEFGHIJ"]),
        ("game_of_life_halting", {}, "False", ["false", " False"], ["True", "x", "Fals"]),
        ("gsm_symbolic", {}, "288", ["288", "$288.00", "It is 288"], ["-288", "288 or 289", "x"]),
        ("letter_jumble", {}, "one two", ["One two"], ["one two three", "one"]),
        ("bitwise_arithmetic", {}, "0xff", ["0xFF", "255", "0b11111111"], ["0xfe", "ff", "254+1"]),
        ("number_sorting", {}, "['1.5', '2.0']", ["[1.5, 2]", '["1.5", "2.0"]'], ["[1.5, 2.9]", "[2, 1.5]"]),
        ("polynomial_equations", {}, "-3.5, 0.0", ["0, -3.5"], ["-3.5", "x, -3.5, 0", "-3.5, 0.0001"]),
        ("polynomial_equations", {}, "", [""], ["x", "none or 1"]),
        ("pool_matrix", {"solution": [[4.5, 4 / 3]]}, "", ["4.5 1.33", "4.50 1.333"], ["4.54 1.33", "4.5"]),
        ("complex_arithmetic", {"result": [8, 3]}, "", ["8 + 3i", "(8.0+3.0j)"], ["nan", "8 + 3.001i", "8"]),
        ("complex_arithmetic", {"result": [0, -1]}, "", ["-i", "0 - i"], ["i", "-1"]),
    ],
)
def test_an_exact_grader_rejects_what_is_wrong(
    family: str, data: dict[str, Any], reference: str, right: list[str], wrong: list[str]
) -> None:
    assert [is_solved(family, answer, reference, data) for answer in right] == [True] * len(right)
    assert [is_solved(family, answer, reference, data) for answer in wrong] == [False] * len(wrong)


def test_every_move_of_rush_hour_must_be_possible() -> None:
    """The exit of car A is behind car B, which can go down by two."""
    data = {"board_config": "oooooooooooo" + "AAooBo" + "ooooBo" + "oooooooooooo"}
    assert is_solved("rush_hour", "B+2 A+4", None, data) is True
    assert is_solved("rush_hour", "B+3 A+4", None, data) is False  # reasoning-gym makes two of the three
    assert is_solved("rush_hour", "B-1 A+4", None, data) is False
    assert is_solved("rush_hour", "B+1 AA+4", None, data) is True
    assert is_solved("rush_hour", "A+4", None, data) is False
    assert is_solved("rush_hour", "A+9 B+1 A+4", None, data) is False  # reasoning-gym skips the first
    assert is_solved("rush_hour", "", None, data) is False


@pytest.mark.parametrize(
    "text",
    ["x.__class__", "[1]", "x if 1 else 2", "f(x)", "9**9**9", "'a'", "lambda: 1", "x := 1", "sin(1, 2)"],
)
def test_a_formula_is_parsed_and_not_evaluated(text: str) -> None:
    with pytest.raises((ValueError, SyntaxError)):
        worker.parse(text)


def test_a_formula_means_what_sympy_reads() -> None:
    import sympy

    for text in (
        "-34*x**8/15 - 5*x/4 + C",
        "sqrt(x)*exp(-2*x) + log(x)/3",
        "2**-3",
        "0.5*x",
        "+x - -1",
        "pi*E",
    ):
        assert worker.parse(text) == sympy.parse_expr(text)


# Hostile answers.


def junk(mark: Path) -> list[str]:
    run = f"__import__('os').system('touch {mark}')"
    texts = ["x", "0", "nan", "-inf", run, f"[{run}]", f"open({str(mark)!r}, 'w')", f"(lambda: {run})()"]
    texts += ["9**9**9**9", "(" * 4_000 + ")" * 4_000, "[" * 9_000, "-" * 3_000 + "1", "1+" * 3_000 + "1"]
    texts += [
        "a" * 1_000_000,
        "9" * 9_000,
        "\x00",
        "漢字 🎲 \u202e١٢",
        "[1, 2]",
        '{"a": 1}',
        "A=1",
        "1/0",
        "None",
    ]
    return texts


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[Path]:
    """A file that a text would make if it was executed."""
    yield tmp_path / "mark"
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("family", ["countdown", "n_queens", "simple_integration", "spiral_matrix"])
def test_junk_is_not_right_and_not_executed(family: str, mark: Path) -> None:
    unharmed(family, mark)


@pytest.mark.proof
def test_junk_is_not_right_in_any_family(mark: Path) -> None:
    for family in families():
        unharmed(family, mark)


def unharmed(family: str, mark: Path) -> None:
    task = tasks_of(family)[0]
    for text in junk(mark):
        if text not in (task.reference, str(task.reference).strip()):
            assert task.grade(text) == 0.0, (family, text[:60])
            assert 0 <= (task.domain.credit(task, text) or 0.0) < 1, (family, text[:60])


@pytest.mark.nightly
def test_an_endless_grading_is_stopped_and_the_next_worker_makes_and_grades_the_same() -> None:
    """The grader of coin_flip computes for hours in C, where no handler of Python runs."""
    made = tasks_of("simple_integration", 4, seed=11)
    entry = {"question": "", "answer": "0.5", "metadata": {}}
    with pytest.raises(Killed):
        gym._ask("score", family="coin_flip", difficulty={}, entry=entry, answer="1e999999999")
    assert tasks_of("simple_integration", 6, seed=11)[:4] == made
    assert made[0].grade(str(made[0].reference)) == 1.0


def test_the_worker_is_kept_and_sees_neither_keys_nor_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    gym._WORKER._end()
    task = tasks_of("knights_knaves")[0]
    process = gym._WORKER._process
    assert process is not None
    for k in range(100):
        assert task.grade(f"knave {k}") == 0.0
    assert gym._WORKER._process is process
    if sys.platform == "linux":
        here = Path(f"/proc/{process.pid}")
        assert b"sk-secret" not in (here / "environ").read_bytes()
        if can_isolate():
            assert os.readlink(here / "ns/net") != os.readlink("/proc/self/ns/net")  # noqa: PTH115


# Making tasks.


def test_a_seed_is_a_set_of_tasks() -> None:
    made = tasks_of("word_sorting", 4, seed=11)
    assert tasks_of("word_sorting", 6, seed=11)[:4] == made
    assert [task.id for task in made] == [f"gym/word_sorting-11-{k}" for k in (1, 2, 3, 4)]
    others = {task.question for task in tasks_of("word_sorting", 4, seed=99)}
    assert others.isdisjoint(task.question for task in made)


def test_difficulty_sets_the_fields_of_the_family() -> None:
    fields = {"min_numbers": 3, "max_numbers": 3, "max_value": 9, "min_target": 10}
    task = tl.tasks("gym:countdown", 1, seed=5, difficulty=fields)[0]
    assert len(task.data["numbers"]) == 3
    assert max(task.data["numbers"]) <= 9
    assert task.grade(task.reference) == 1.0


def test_a_composite_holds_tasks_of_its_families() -> None:
    made = tl.tasks("gym:composite", 12, seed=1, difficulty=COMPOSITE)
    assert {task.data["source_dataset"] for task in made} == {"gcd", "countdown"}
    assert [task.grade(str(task.reference)) for task in made] == [1.0] * 12
    with pytest.raises(ValueError, match=r"gym:composite rejects difficulty={}: .*at least one dataset"):
        tl.tasks("gym:composite", 1)


@pytest.mark.parametrize(
    ("source", "given", "why"),
    [
        ("gym:countdwn", {"count": 1}, "Unknown family 'countdwn' .*did you mean 'countdown'.*zebra_puzzles"),
        ("gym:", {"count": 1}, "Unknown family ''"),
        ("gym:gcd", {}, "count must be a number from 1 to 100,000: got None"),
        ("gym:gcd", {"count": 0}, "got 0"),
        ("gym:gcd", {"count": True}, "got True"),
        ("gym:gcd", {"count": 1, "seed": -1}, "seed must be a number from 0"),
        ("gym:gcd", {"count": 1, "difficulty": {"min_valu": 1}}, "did you mean 'min_value'"),
        ("gym:gcd", {"count": 1, "difficulty": {"seed": 1}}, "Pass seed= and count instead"),
        ("gym:gcd", {"count": 1, "difficulty": {"min_value": 0}}, "min_value must be positive.*defaults: {"),
        ("gym:gcd", {"count": 1, "difficulty": {"min_value": float("nan")}}, "JSON values"),
        ("gym:gcd", {"count": 1, "difficulty": [1]}, "difficulty must be a dict"),
        ("gym:gcd", {"count": 1, "answer": "a"}, "question, answer, grade and id apply only to rows"),
        ([{"question": "1+1"}], {"count": 1}, "count, seed and difficulty apply only to tasks such as"),
    ],
)
def test_a_wrong_request_says_what_exists(source: Any, given: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        tl.tasks(source, **given)


def test_a_search_domain_of_the_family_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    class Steps(Domain):
        kind = "gym/lcm"

    monkeypatch.setitem(BUILT_IN["domains"], "gym/lcm", "tests:none")  # type: ignore[index]
    (task,) = tl.tasks("gym:lcm", 1)
    assert task.domain == Steps()
    assert task.data["numbers"]


# Prompts and answers.


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Answer: 5", "5"),
        ("It is even.\n**Answer:** 5", "5"),
        ("**Answer: 5**", "5"),
        ("Answer:\n1 2\n3 4\n", "1 2\n3 4"),
        ("Answer: _ _ Q\n_ Q _", "_ _ Q\n_ Q _"),
        ("Answer: 4\nNo, wrong.\nThe final answer: 5", "5"),
        ("Answer:\n```text\n1 2\n3 4\n```", "1 2\n3 4"),
        ("Answer: `Q _`", "Q _"),
        ("<answer>4</answer> or rather <answer>\n5\n</answer> Answer: 6", "5"),
        ("5", "5"),
        ("It is $\\boxed{5}$.", "5"),
        ("\\boxed{4}, no:\n\\[\n\\boxed{\\text{5 6}}\n\\]", "5 6"),
        ("\\boxed{4}\nAnswer: 5", "5"),
        ("Answer: $\\boxed{5}$", "5"),
        ("<answer>\\boxed{5}</answer>", "5"),
        ("\\boxed{\n1 2\n3 4\n}", "1 2\n3 4"),
        ("Answer: **5**", "5"),
        ("**Answer**: **5**.", "5"),
        ("Answer: $5$\n\n(I checked the result.)", "5"),
        ("Answer: 5.<|im_end|>", "5"),
        ("Answer: 3 lines follow.\n\n1 2 3", "3 lines follow.\n\n1 2 3"),
        ("Answer:", None),
        (" ", None),
    ],
)
def test_an_answer_has_one_or_more_lines(text: str, answer: str | None) -> None:
    assert whole_answer(text) == answer


@pytest.mark.parametrize(
    "family", ["gcd", "lcm", "chain_sum", "word_sorting", "caesar_cipher", "knights_knaves"]
)
def test_a_decorated_answer_is_right_and_a_decorated_wrong_one_is_not(family: str) -> None:
    (task,) = tasks_of(family)
    right, wrong = f"{task.reference}", wrong_one(f"{task.reference}")
    for form in (
        "**{}**",
        "`{}`",
        "“{}”",
        "{}.",
        "${}$",
        "**{}.**<|im_end|>",
        "{}\n\n(I checked the result.)",
    ):
        for text, grade in ((right, 1.0), (wrong, 0.0)):
            read = task.domain.read_answer(task, f"So:\n**Answer**: {form.format(text)}")
            assert task.grade(str(read)) == grade, (form, text, read)


def test_the_reference_is_in_no_prompt() -> None:
    """Metadata of many families holds the solution, which only grading may read."""
    (task,) = tasks_of("mini_sudoku")
    row = str(task.reference).splitlines()[0]
    assert row not in task.question
    for text in (task.answer_prompt(True), task.domain.propose_prompt(task, [], 3)):
        assert task.question in text
        assert row not in text


# Runs.


def test_partial_credit_is_a_column_and_never_solves() -> None:
    (task,) = tasks_of("mini_sudoku")
    half = wrong_one(str(task.reference))
    lab = tl.Lab(Scripted(lambda call: f"Answer:\n{half}"), runs=None)
    sweep = wait(lab.sweep({"once": tl.OneAnswer()}, [task]))
    row = sweep.df().iloc[0]
    assert (row["correct"], row["score"]) == (False, 0.0)
    assert 0.5 < row["credit"] < 1
    own = wait(lab.sweep({"once": tl.OneAnswer()}, [tl.game24("4 5 6 10")]))
    assert "credit" not in own.df()


LATER = """
import sys, warnings
sys.modules["reasoning_gym"] = None
import tot_lab as tl
from tot_lab.testing import wait
run = tl.load(sys.argv[1])
assert (run.answer, run.task.domain.family, run.task.data["numbers"][:0]) == ("1", "gcd", [])
assert run.waits_for_grading
assert wait(run.replay()).identical
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    assert run.grade is run.correct is run.credit is None
assert "pip install 'tot-lab[gym]'" in str(said[0].message), said
assert "pip install 'tot-lab[gym]'" in run.ungraded
try:
    tl.tasks("gym:gcd", 1)
except ModuleNotFoundError as error:
    print(error)
"""


def test_a_run_is_loaded_and_replayed_without_reasoning_gym(tmp_path: Path) -> None:
    (task,) = tasks_of("gcd")
    lab = tl.Lab(Scripted(lambda call: "Answer: 1"), runs=tmp_path)
    run = wait(lab.run(tl.OneAnswer(), task))
    loaded = tl.load(run.path)
    assert loaded.task == task
    assert loaded.waits_for_grading
    assert loaded.grade == run.grade == float(task.reference == "1")
    asked = [sys.executable, "-c", LATER, str(run.path)]
    done = subprocess.run(
        asked, capture_output=True, text=True, check=False, cwd=Path(tl.__file__).parents[1]
    )
    assert done.stdout.strip() == "gym:gcd requires reasoning-gym: pip install 'tot-lab[gym]'", done.stderr


def test_a_task_comes_back_from_json() -> None:
    (task,) = tasks_of("n_queens")
    written = json.loads(json.dumps(task.settings()))
    assert tl.part_of(written["domain"]) == task.domain
    assert written["data"] == task.data
    assert set(exact.EXACT) <= set(families())
