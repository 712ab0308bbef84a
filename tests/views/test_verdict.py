"""The first line about a run: every view says the same, and says no more than is known."""

import json
import re

import plotly.graph_objects as go
import pytest
from support import resealed, run, wait
from support.puzzle_tasks import puzzle_task

import tot_lab as tl
from tot_lab.core.records import STOP_CODES, is_stop_code
from tot_lab.core.registry import built_in
from tot_lab.domains.gym import Gym
from tot_lab.testing import Scripted
from tot_lab.views.explorer.recording import about_of
from tot_lab.views.figures.verdict import stop_words, verdict_of
from tot_lab.views.report import tree_svg

QUESTION = "What is six times seven?"
GRADED = {
    "right": (tl.general(QUESTION, answer="42", grade="number"), True, "✓ correct"),
    "wrong": (tl.general(QUESTION, answer="41", grade="number"), False, "✗ wrong"),
    "ungraded": (tl.general(QUESTION), None, "ungraded"),
}
SEARCH = tl.TreeOfThoughts(propose=tl.Sample(count=2), search=tl.BeamSearch(width=1), stop=tl.Stop(depth=2))


def made(which: str, **options: object) -> tl.Run:
    """A search whose answer is 42."""

    def player(call: tl.Call) -> str:
        return "score: 0.5" if call.purpose == "value" else "42"

    return run(SEARCH, GRADED[which][0], Scripted(player), **options)


def stars(figure: go.Figure) -> list[go.Scatter]:
    """The drawn stars, without the entries of the legend."""
    return [trace for trace in figure.data if trace.marker.symbol == "star" and trace.x[0] is not None]


@pytest.mark.parametrize("which", GRADED)
def test_it_says_whether_the_answer_is_right(which):
    _, correct, words = GRADED[which]
    verdict = verdict_of(made(which))
    assert (verdict.correct, verdict.grade) == (correct, words)
    assert verdict.expected == {"right": "42", "wrong": "41", "ungraded": ""}[which]


def puzzle(kind: str, reference: str) -> tl.Task:
    return puzzle_task(kind).model_copy(update={"reference": reference})


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (tl.general(QUESTION, answer="41", grade="exact"), "41"),
        (tl.general(QUESTION, answer="41", grade=lambda answer, right: answer == right), "41"),
        (tl.general(QUESTION, answer="4.", grade="regex"), ""),
        (tl.general(QUESTION, answer="assert f() == 1", grade="python"), ""),
        (tl.open_ended(QUESTION, answer="41", grade="number"), "41"),
        (tl.open_ended(QUESTION, answer="It is short.", grade=lambda answer, right: 0.0), ""),
        (tl.open_ended(QUESTION, answer="It is short."), ""),
        (tl.domains.constrained(2), ""),
        (puzzle("gym/jugs", "fill A"), ""),
        (puzzle("gym/zebra_puzzles", "Bob"), "Bob"),
        (tl.Task(domain=Gym(family="quantum_lock"), question=QUESTION, reference="A → B"), ""),
        (tl.Task(domain=Gym(family="count_bits"), question=QUESTION, reference="41"), "41"),
    ],
    ids=lambda value: value.domain.kind if isinstance(value, tl.Task) else "",
)
def test_an_answer_is_only_expected_where_it_alone_is_right(task, expected):
    made = run(tl.OneAnswer(), task, Scripted(lambda call: "Answer: 7"))
    assert verdict_of(made).expected == expected
    assert ("expected" in repr(made)) == (bool(expected) and made.correct is False)


@pytest.mark.slow
@pytest.mark.parametrize("which", GRADED)
def test_the_star_is_filled_only_if_the_answer_is_right_and_crossed_if_it_is_wrong(which):
    run = made(which)
    assert run.answer == "42"
    (star,) = stars(tl.figures.plot_tree(run))
    assert (star.marker.coloraxis == "coloraxis") == (which == "right")
    crosses = [trace for trace in tl.figures.plot_tree(run).data if trace.marker.symbol == "x-thin"]
    assert [([*trace.x], [*trace.y]) for trace in crosses] == [([*star.x], [*star.y])] * (which == "wrong")
    svg = tree_svg(run)
    drawn = re.findall(r'<polygon points="([^"]+)" fill="([^"]+)"', svg)
    ((points, fill),) = [(points, fill) for points, fill in drawn if len(points.split()) == 10]
    assert (fill == "none") == (which != "right")
    corners = [tuple(map(float, corner.split(","))) for corner in points.split()]
    centre = tuple(sum(ends) / 10 for ends in zip(*corners, strict=True))
    lines = re.findall(r"M([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)", svg.partition('pointer-events="none"')[0])[
        -2:
    ]
    middles = [((float(a) + float(c)) / 2, (float(b) + float(d)) / 2) for a, b, c, d in lines]
    crossed = [middle == pytest.approx(centre, abs=0.2) for middle in middles]
    assert crossed == [True] * 2 * (which == "wrong")
    caption = tl.figures.plot_tree(run).layout.title.subtitle.text
    assert ("✓" in caption, "✗" in caption) == (which == "right", which == "wrong")


@pytest.mark.slow
def test_an_answer_in_a_tree_without_its_run_is_not_judged():
    (star,) = stars(tl.figures.plot_tree(made("right").tree))
    assert star.name == "answer"
    assert made("right").graph().graph["correct"] is True
    assert "correct" not in made("ungraded").graph().graph


def test_it_says_what_was_set_and_only_that():
    assert verdict_of(made("right")).settings == (
        "propose=Sample(count=2), search=BeamSearch(width=1), stop=Stop(depth=2)"
    )
    plain = run(tl.ChainOfThought(), GRADED["right"][0], Scripted("42"))
    assert verdict_of(plain).settings == "default settings"

    def judge(task: tl.Task, path: list[str]) -> float:
        return 0.5

    own = run(tl.TreeOfThoughts(evaluate=judge), GRADED["right"][0], Scripted("42"))
    # Not where in the code it was defined.
    assert verdict_of(own).settings == "evaluate=FunctionEvaluator(function=judge)"


def test_of_the_answers_on_a_path_only_the_last_is_judged():
    with tl.Recorder("nested", task=GRADED["wrong"][0]) as recorder:
        outer = recorder.thought(QUESTION)
        inner = recorder.thought("42", parent=outer)
        recorder.decide(inner, "answer", "of a strategy inside")
        recorder.end("42", node=recorder.thought("42", parent=inner))
    judged = {star.name: len(star.x) for star in stars(tl.figures.plot_tree(recorder.run))}
    assert judged == {"wrong answer": 1, "answer": 1}


def test_the_caption_judges_a_run_without_an_answer_too():
    lost = run(SEARCH, GRADED["wrong"][0], budget=tl.Budget(calls=0))
    assert (lost.answer, lost.correct, lost.failure) == ("", False, None)
    assert "answer: none ✗" in tl.figures.plot_tree(lost).layout.title.subtitle.text


@pytest.mark.slow
def test_a_run_whose_calls_failed_is_failed_and_never_wrong():
    async def away(call):
        raise ConnectionError("no server there")

    lost = run(SEARCH, GRADED["wrong"][0], away)
    assert (lost.grade, lost.correct, lost.status) == (None, None, "failed")
    assert lost.failure.endswith("no server there")
    caption = tl.figures.plot_tree(lost).layout.title.subtitle.text
    for shown in (repr(lost), lost._repr_html_(), verdict_of(lost).grade, caption):
        assert "failed" in shown
        assert "✗" not in shown
        assert "✗ wrong" not in shown
    assert "no server there" in verdict_of(lost).stopped
    with pytest.warns(UserWarning, match="2 of 2 propose calls failed"):
        assert tl.stats.success_rates([lost])["rate"].isna().all()
    assert lost.graph().graph.get("correct") is None


@pytest.mark.parametrize("kind", built_in("strategies"))
def test_without_a_model_no_strategy_is_wrong(kind):
    async def away(call):
        raise ConnectionError("no server there")

    lab = tl.Lab(away, tools=[tl.tools.Calculator()], runs=None)
    needed = {"strategy": tl.OneAnswer()} if kind in ("best_of", "with_thinking", "with_synthesis") else {}
    lost = wait(lab.run(built_in("strategies")[kind](**needed), GRADED["wrong"][0]))
    assert lost.usage.errors == lost.usage.calls > 0
    assert (lost.correct, lost.stop_reason) == (None, "error")
    assert "no server there" in lost.failure


def test_a_stop_code_of_a_stranger_is_only_text(tmp_path):
    path = made("right").save(tmp_path / "run.jsonl")
    for code in ("{0.__class__} {x}", "limit:{0}", "limit:" + "{" * 9):
        data = re.sub(rb'"stop":"[^"]+"', b'"stop":"' + code.encode() + b'"', path.read_bytes())
        path.write_bytes(resealed(data))
        assert code.partition(":")[2] in stop_words(tl.load(path))
        assert "class 'str'" not in stop_words(tl.load(path))


def test_every_stop_code_is_said_in_words():
    for code in STOP_CODES:
        code = code.replace("NAME", "calls")
        assert is_stop_code(code)
        with tl.Recorder("own") as recorder:
            recorder.thought(QUESTION)
            recorder.end("42", stop=code)
        words = stop_words(recorder.run)
        assert ":" not in words
        assert " " in words or words == "answered"
        assert ("calls" in words) == ("calls" in code)


def test_a_run_that_has_not_ended_is_not_judged():
    recorder = tl.Recorder("own")
    recorder.thought(QUESTION)
    assert verdict_of(recorder.run)[:2] == (None, "ungraded")
    assert verdict_of(recorder.run).stopped == "has not ended"


def test_nothing_has_a_score_of_none():
    with tl.Recorder("none", task=tl.game24("4 5 6 10")) as recorder:
        recorder.thought("a step", parent=recorder.thought("4 5 6 10"))
        recorder.end("", stop="exhausted")
    for shown in (repr(recorder.run), recorder.run._repr_html_()):
        assert "had nothing left to expand" in shown
        assert "score" not in shown
        assert "✗" in shown
        assert "wrong" not in shown
    assert " · strategy's score 0.5\n" in repr(made("right"))


def test_no_answer_is_not_called_wrong():
    with tl.Recorder("none", task=tl.game24("4 5 6 10")) as recorder:
        recorder.thought("4 5 6 10")
        recorder.end("", stop="exhausted")
    verdict = verdict_of(recorder.run)
    assert (verdict.correct, verdict.grade) == (False, "✗ no answer")


def test_an_error_is_named():
    class Broken(tl.Strategy):
        kind = "broken_verdict"

        def think(self, task, at="0"):
            yield tl.Thought(at, None, task.question)
            raise ZeroDivisionError("half way")

        def max_calls(self, task):
            return 0

    lab = tl.Lab(Scripted("42"), runs=None)
    with pytest.raises(ZeroDivisionError):
        wait(lab.run(Broken(), GRADED["right"][0]))
    assert verdict_of(lab.last).stopped == "failed: ZeroDivisionError: half way"
    assert verdict_of(lab.last).correct is not True


def test_the_explorer_is_told_the_same():
    for which in GRADED:
        run = made(which)
        assert about_of(run)["verdict"] == json.loads(json.dumps(verdict_of(run)._asdict()))


def test_a_pattern_of_a_file_is_not_matched_for_a_picture(tmp_path):
    pattern = tl.general(QUESTION, answer="(a+)+$", grade="regex")
    one = run(tl.ChainOfThought(), pattern, Scripted("a" * 40 + "!"))
    loaded = tl.load(one.save(tmp_path / "run.jsonl"))
    assert verdict_of(loaded).correct is None
    assert verdict_of(loaded).grade.startswith("not graded yet")
    assert "grade" not in loaded.__dict__


def test_a_missing_package_does_not_hide_the_run(tmp_path):
    path = made("right").save(tmp_path / "run.jsonl")
    path.write_bytes(resealed(path.read_bytes().replace(b'"tree_of_thoughts"', b'"gone_with_its_package"')))
    loaded = tl.load(path)
    assert verdict_of(loaded).settings == ""
    assert verdict_of(loaded).grade == "✓ correct"
