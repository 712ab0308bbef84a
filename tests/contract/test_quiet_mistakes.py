"""A mistake that raises nothing stands where its result is shown: on the card of the run and below the sweep.

What is not shown unless somebody asks, such as a run that failed, is a warning.
"""

import re
import warnings

import pytest
from support import TASK, run, wait
from support.providers import Fault, Providers

import tot_lab as tl

HAND = tl.game24("4 5 6 10")
KEY = "sk-none-0123456789"


def forgot_return(task, path):
    len(path)


async def forgot_return_of_a_batch(task, paths):
    return [None for _ in paths]


def scores_most(task, path):
    """Score all thoughts but one in fifteen, which is more than the twentieth that is usual."""
    return None if path == ["10 - 6 = 4 (left: 4 4 5)"] else 0.5


async def says_26(call):
    return "Answer: 26"


async def says_26_and_scores_it_8(call):
    return "score: 8" if call.purpose == "value" else "Answer: 26"


async def proposes_and_scores_8(call):
    return "score: 8" if call.purpose == "value" else "10 - 4 = 6 (left: 5 6 6)"


async def two_tokens(call):
    return tl.Reply("10 -", finish_reason="length")


class Gradeless(tl.Domain):
    """A domain whose `grade` was forgotten."""

    kind = "tests/gradeless"

    def answer_prompt(self, task, reasoning):
        return task.question


def tree(**settings):
    return tl.TreeOfThoughts(**settings)


SHOWN = {
    "an evaluator without return": (
        tree(evaluate=forgot_return),
        HAND,
        {},
        "! 15 of 15 scores unreadable: evaluator 'forgot_return' returned None (is a `return` missing?)",
    ),
    "a batch of None": (
        tree(evaluate=forgot_return_of_a_batch),
        HAND,
        {},
        "! 15 of 15 scores unreadable: evaluator 'forgot_return_of_a_batch' returned None (is a",
    ),
    "scores out of range": (
        tree(evaluate=tl.Value(samples=2)),
        tl.general("How many?", answer=26, grade="number"),
        {"model": says_26_and_scores_it_8},
        "evaluate replies unreadable (100.0%); unreadable scores, such as 'score: 8': a score is from 0 to 1",
    ),
    "a word that is no label": (
        tree(),
        HAND,
        {"model": proposes_and_scores_8},
        "; unreadable scores, such as 'score: 8': a value is sure, likely, impossible",
    ),
    "a repeat at temperature 0": (
        tl.ChainOfThought(temperature=0),
        HAND,
        {"repeat": 1},
        "! a repeat with all calls at temperature 0 asks what the first run asked",
    ),
    "an evaluator that misses some": (tree(evaluate=scores_most), HAND, {}, "! 1 of 15 scores unreadable"),
    "a chat model as a reward model": (
        tree(evaluate=tl.evaluators.RewardModel(model="sim/game24")),
        HAND,
        {},
        "! 15 of 15 evaluate replies unreadable (100.0%)",
    ),
    "max_tokens=2": (
        tree(max_tokens=2),
        HAND,
        {"model": two_tokens},
        "3 of 3 propose replies truncated (100.0%)",
    ),
    "samples at temperature 0": (
        tree(temperature=0, propose=tl.Sample(count=5)),
        HAND,
        {},
        "! 20 of 25 propose calls repeat a request at temperature 0",
    ),
    "votes at temperature 0": (
        tl.SelfConsistency(strategy=tl.ChainOfThought(temperature=0)),
        HAND,
        {},
        "! 4 of 5 answer calls repeat a request at temperature 0",
    ),
    "an unsolvable hand": (tree(), tl.game24("1 1 1 1"), {}, "! no answer to the question can be right"),
    "a grade without an answer": (
        tl.OneAnswer(),
        tl.general("How many?", grade="number"),
        {"model": says_26},
        "ungraded: there is no answer to compare with",
    ),
    "an answer without a grade": (
        tl.OneAnswer(),
        tl.Task(domain=Gradeless(), question="7", reference="8"),
        {"model": says_26},
        "ungraded: the domain 'tests/gradeless' has no grade(self, task, answer)",
    ),
    "neither": (
        tl.OneAnswer(),
        tl.Task(domain=Gradeless(), question="7"),
        {"model": says_26},
        "ungraded: the domain 'tests/gradeless' has no grade(self, task, answer)",
    ),
    "an f-string as a template": (
        tree(evaluate=tl.Value(prompt=f"Problem {HAND.question}: rate it")),
        HAND,
        {},
        "! the prompt of 'value' contains this question: write {problem} there",
    ),
    "one run with the number 3": (tree(), HAND, {"repeat": 3}, " · repeat 3 · "),
}


REPEATED = "! 4 of 6 runs: a repeat with all calls at temperature 0 asks what the first run asked"
FORGOT = "scores unreadable: evaluator 'forgot_return' returned None (is a `return` missing?)"


def text_of(card):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", card).replace("&#x27;", "'"))


@pytest.mark.parametrize("mistake", SHOWN)
def test_the_card_says_what_is_wrong(mistake, tmp_path):
    strategy, task, options, says = SHOWN[mistake]
    made = run(strategy, task, **{"model": "sim/game24", **options})
    loaded = tl.load(made.save(tmp_path / "a.jsonl"))
    shown = [text_of(repr(made)), text_of(made._repr_html_())]
    if "tests/" not in says:  # a file does not hold a user's domain
        shown += [text_of(repr(loaded)), text_of(loaded._repr_html_())]
    assert [says in text for text in shown] == [True] * len(shown)
    assert made.status != "failed" or "none" in shown[0]


@pytest.mark.parametrize(
    ("strategy", "task", "model"),
    [
        (tree(), HAND, "sim/game24"),
        (tree(temperature=0, propose=tl.Propose()), HAND, "sim/game24"),  # equal states share a reply
        (tl.SelfConsistency(), HAND, "sim/game24"),  # equal answers are votes
        (tree(evaluate=lambda task, path: 0.0), HAND, "sim/game24"),  # a score of 0 is a score
        (tree(evaluate=tl.Value(prompt="Rate problems such as 4 9 10 13.")), HAND, "sim/game24"),
        (tl.OneAnswer(temperature=0), HAND, "sim/game24"),
        (tl.OneAnswer(), tl.general("How many?"), says_26),  # nobody asked for a grade
    ],
)
def test_the_card_of_a_run_without_a_mistake_says_nothing(strategy, task, model):
    made = run(strategy, task, model)
    for text in (text_of(repr(made)), text_of(made._repr_html_())):
        assert "! " not in text
        assert "repeat" not in text
        assert "ungraded" not in text


@pytest.mark.parametrize(
    ("answer", "grade", "is_wrong"),
    [
        (26, lambda answer, reference: answer == reference, True),
        ("26 legs", lambda answer, reference: 0.5, True),  # which is no right answer either
        (26, lambda answer, reference: int(answer) == reference + 1, True),
        (27, lambda answer, reference: int(answer) == reference, False),  # the answer is wrong
        (27, "number", False),
        ("3 legs", lambda answer, reference: int(answer) == reference, False),  # it takes no such text
        ({"legs": 3}, lambda answer, reference: answer in reference, False),  # no answer in words
        (True, lambda answer, reference: (answer == "yes") == reference, False),
    ],
)
def test_a_wrong_answer_questions_the_grade_only_if_the_reference_would_be_wrong_too(answer, grade, is_wrong):
    task = tl.general("How many legs?", answer=answer, grade=grade)
    made = run(tl.OneAnswer(), task, says_26)
    sweep = swept(tl.OneAnswer(), [task, tl.general("How many?", answer=26, grade="number")], says_26)
    says = "the grade calls the reference itself wrong: got "
    for text in (repr(made), text_of(made._repr_html_()), repr(sweep), text_of(sweep._repr_html_())):
        assert (says in text) is is_wrong
    assert (f"! 1 of 2 runs: {says}{str(answer)!r} for {answer!r}" in repr(sweep)) is is_wrong


def test_an_evaluator_of_the_package_misses_no_return():
    made = run(tree(evaluate="likelihood", propose=tl.Sample(count=3)), HAND, "sim/game24")
    assert "! 15 of 15 scores unreadable thoughts" in text_of(repr(made))
    assert "returned None" not in str(tl.diagnose(made))


def test_the_diagnosis_shows_an_unreadable_reply():
    made = run(tree(), tl.general("How many?"), says_26_and_scores_it_8)
    assert "could not be read, such as 'score: 8': a score is from 0 to 1." in str(tl.diagnose(made))


def swept(strategy, tasks, model="sim/game24", **options):
    return wait(tl.Lab(model, runs=None).sweep(strategy, tasks, **options))


@pytest.mark.parametrize(
    ("strategy", "options", "says"),
    [
        (tree(evaluate=forgot_return), {}, f"! 2 of 2 runs: 30 of 30 {FORGOT}"),
        (tree(), {"budget": tl.Budget(calls=3)}, "! 2 of 2 runs: spent the budget of calls"),
        (
            tree(temperature=0, propose=tl.Sample(count=5)),
            {},
            "! 2 of 2 runs: 40 of 50 propose calls repeat a request at temperature 0",
        ),
        (tl.ChainOfThought(temperature=0), {"repeats": 3}, REPEATED),
        ([tree(), tree(evaluate=forgot_return)], {}, f"! 2 of 4 runs: 30 of 30 {FORGOT}"),
    ],
)
def test_a_sweep_counts_the_runs_with_a_mistake(strategy, options, says):
    made = swept(strategy, [HAND, tl.game24("4 9 10 13")], **options)
    assert says in repr(made).splitlines()
    assert says in text_of(made._repr_html_())


def test_a_sweep_names_what_cannot_be_solved_or_graded():
    assert "! 1 of 2 runs: no answer to the question can be right" in repr(
        swept(tree(), [HAND, tl.game24("1 1 1 1")])
    )
    with pytest.warns(UserWarning, match="^row 2: 'a' is empty, so the task is not graded.$"):
        tasks = tl.tasks(
            [{"q": "1+1?", "a": 2}, {"q": "1+2?", "a": None}], question="q", answer="a", grade="number"
        )
    made = swept(tl.OneAnswer(), tasks, says_26)
    assert "! 1 of 2 runs are ungraded: there is no answer to compare with" in repr(made)
    assert "! " not in repr(swept(tree(), [HAND]))


@pytest.mark.parametrize(
    "evaluate", [lambda task, path: float("nan"), lambda task, paths: [float("nan")] * len(paths)]
)
def test_a_score_that_is_not_a_number_is_an_error(evaluate):
    with pytest.raises(ValueError, match=r"thought 0\.0, must return a number from 0 to 1, .*: got nan"):
        run(tree(evaluate=evaluate), HAND, "sim/game24")


def warned_by(lab, runs=2):
    """What `runs` runs warn of, and the last of them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        made = [wait(lab.run(tl.SelfConsistency(attempts=3), TASK)) for _ in range(runs)]
    return [str(one.message) for one in caught], made[-1]


def test_the_first_failure_of_a_model_function_is_a_warning_once_in_each_lab():
    async def away(call):
        raise ValueError("boom")

    for _ in range(2):
        said, made = warned_by(tl.Lab(away, runs=None))
        assert said == ["The model function failed: ValueError: boom"]
        assert made.failure == "ValueError: boom"


@pytest.mark.slow
def test_the_first_failure_of_a_server_is_a_warning_once_in_each_lab(tmp_path):
    with Providers(lambda asked: Fault(401)) as server:
        model = tl.OpenAICompatible(model="m", base_url=server.base("openai"), api_key=KEY)
        for _ in range(2):
            said, made = warned_by(tl.Lab(model, runs=None, cache=tmp_path))
            assert said == [f"A call failed: {made.failure}"]
            assert made.failure.startswith("m 401: ")
            assert made.failure.endswith(". The key came from api_key=")
            assert KEY not in said[0]


def test_rows_without_answers_are_counted_and_a_source_without_rows_is_an_error(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("q,a\nx,\ny,2\nz, \n")
    with pytest.warns(
        UserWarning, match="^p.csv line 2 and 1 more: 'a' is empty, so the task is not graded.$"
    ):
        assert [task.reference for task in tl.tasks(path, question="q", answer="a")] == [None, "2", None]
    assert len(tl.tasks(path, question="q")) == 3  # without answers there is nothing to warn of
    for name, text in {"p.jsonl": "\n", "p.json": "[]", "p.csv": "q,a\n"}.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(ValueError, match=rf"{name} has no rows\.$"):
            tl.tasks(tmp_path / name, question="q")
    with pytest.raises(ValueError, match=r"^source has no rows\.$"):
        tl.tasks([])


@pytest.mark.parametrize("price", [(0.00000015, 0.0000006), (0, 0.0000006), (0.15, 0.6, 0.00000001)])
def test_a_price_per_token_is_an_error(price):
    with pytest.raises(ValueError, match=r"expected USD per million tokens, not per token: got \("):
        tl.OpenAICompatible(model="m", base_url="http://127.0.0.1:9/v1", price=price)
    assert tl.OpenAICompatible(model="m", base_url="http://127.0.0.1:9/v1", price=(0, 0.001)).price
