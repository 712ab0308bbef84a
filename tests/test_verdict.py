"""The first line about a run: every view says the same, and says no more than is known."""

import json
import re

import plotly.graph_objects as go
import pytest
from support import resealed, run, wait

import tot_lab as tl
from tot_lab.core.records import STOP_CODES, is_stop_code
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


@pytest.mark.parametrize("which", GRADED)
def test_the_star_is_filled_only_if_the_answer_is_right_and_crossed_if_it_is_wrong(which):
    run = made(which)
    assert run.answer == "42"
    (star,) = stars(tl.figures.plot_tree(run))
    assert (star.marker.coloraxis == "coloraxis") == (which == "right")
    crosses = [trace for trace in tl.figures.plot_tree(run).data if trace.marker.symbol == "x-thin"]
    assert [([*trace.x], [*trace.y]) for trace in crosses] == [([*star.x], [*star.y])] * (which == "wrong")
    svg = tree_svg(run)
    assert ('pointer-events="none"' in svg) == (which == "wrong")
    drawn = re.findall(r'<polygon points="([^"]+)" fill="([^"]+)"', svg)
    (fill,) = [fill for points, fill in drawn if len(points.split()) == 10]
    assert (fill == "none") == (which != "right")
    caption = tl.figures.plot_tree(run).layout.title.subtitle.text
    assert ("✓" in caption, "✗" in caption) == (which == "right", which == "wrong")


def test_an_answer_in_a_tree_without_its_run_is_not_judged():
    (star,) = stars(tl.figures.plot_tree(made("right").tree))
    assert star.name == "answer"
    assert made("right").graph().graph["correct"] is True
    assert "correct" not in made("ungraded").graph().graph


def test_it_says_what_was_set_and_only_that():
    assert verdict_of(made("right")).settings == repr(SEARCH)[len("TreeOfThoughts(") : -1]
    plain = run(tl.ChainOfThought(), GRADED["right"][0], Scripted("42"))
    assert verdict_of(plain).settings == "default settings"
    assert "width" not in verdict_of(plain).settings


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
    assert verdict_of(lab.last).stopped == "ended with an error: ZeroDivisionError: half way"
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
