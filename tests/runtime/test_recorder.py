"""tl.Recorder around a person's own search: no event loop, and every part of a run works on it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from support import wait

import tot_lab as tl
from tot_lab.core.calls import Call, Reply
from tot_lab.core.records import Ended, Note, Scored

PACKAGE = str(Path(tl.__file__).parent.parent)


def recorded(path=None):
    recorder = tl.Recorder("my search", path=path)
    root = recorder.thought("the problem")
    first = recorder.thought("a first step", parent=root)
    other = recorder.thought("another", parent=root)
    last = recorder.thought("a last step", parent=first, source=[other], depends=[first])
    recorder.call(root, "What next?", "a first step")
    recorder.call(
        first, "How good?", Reply("score: 0.7", input_tokens=3, output_tokens=2, cost=0.25), purpose="value"
    )
    recorder.score(first, 0.7, samples=[0.6, 0.8], by="judge")
    recorder.score(other, None)
    recorder.score(last, 1)
    recorder.decide(first, "kept")
    recorder.decide(other, "pruned", "unreadable")
    recorder.note("my.event", first, size=3, names=["a", "b"])
    recorder.end("the answer", node=last)
    recorder.close()
    return recorder


def test_a_search_of_ones_own_becomes_a_run(tmp_path):
    run = recorded(tmp_path / "deep" / "mine.jsonl").run
    assert list(run.tree.nodes) == ["0", "0.0", "0.1", "0.0.0"]
    assert run.tree["0.0"].samples == (0.6, 0.8)
    assert run.tree["0.0"].by == "judge"
    assert run.tree["0.1"].unreadable
    assert run.tree["0.1"].reason == "unreadable"
    assert run.tree["0.0.0"].source == ("0.1",)
    assert run.tree["0.0.0"].depends == ("0.0",)
    assert (run.answer, run.stop_reason, run.score, run.best.id) == ("the answer", "answered", 1.0, "0.0.0")
    assert run.solution_path == ["0", "0.0", "0.0.0"]
    assert Note("my.event", "0.0", {"size": 3, "names": ["a", "b"]}) in run.events
    assert run.usage == (2, 0, None, None, None, None)


def test_every_part_of_a_run_works_on_it(tmp_path):
    made = recorded(tmp_path / "mine.jsonl").run
    for run in (made, tl.load(made.path), tl.Recorder("empty").run):
        for name in [name for name in dir(tl.Run) if isinstance(getattr(tl.Run, name), property)]:
            getattr(run, name)
        for name in (
            "task",
            "strategy",
            "events",
            "tree",
            "usage",
            "grade",
            "reachable",
            "simulated",
            "diagnostics",
        ):
            getattr(run, name)
        assert run.name
        assert run.strategy is None
        assert run.task is None
        assert run.correct is None
        assert "the problem" in run.question or not len(run.tree)


@pytest.mark.slow
def test_every_picture_of_a_run_works_on_it():
    run = recorded().run
    assert "the answer" in repr(run)
    assert "the answer" in run._repr_html_()
    assert len(run.nodes_df()) == 4
    assert len(run.calls_df()) == 2
    assert len(run.events_df()) >= 12
    assert len(run.graph()) == 4
    tl.figures.plot_tree(run)


def test_a_task_of_the_project_gives_it_a_question_and_a_grade():
    with tl.Recorder("mine", task=tl.general("1+1?", answer=2, grade="number")) as recorder:
        root = recorder.thought("1+1?")
        recorder.end("2", node=root)
    assert recorder.run.question == "1+1?"
    assert recorder.run.correct is True


def test_the_file_is_whole_after_every_record(tmp_path):
    path = tmp_path / "mine.jsonl"
    recorder = tl.Recorder("my search", path=path)
    assert len(tl.load(path).tree) == 0
    root = recorder.thought("the problem")
    for k in range(5):
        recorder.thought(f"step {k}", parent=root)
        run = tl.load(path)
        assert len(run.tree) == k + 2
        assert run.stop_reason is None
        assert run.events == recorder.run.events


@pytest.mark.slow
def test_the_file_can_be_read_after_a_kill(tmp_path):
    path = tmp_path / "mine.jsonl"
    code = (
        f"import os, signal, tot_lab as tl; r = tl.Recorder('mine', path={str(path)!r})\n"
        "root = r.thought('p')\n"
        "for k in range(50): r.score(r.thought(f'step {k}', parent=root), k / 50)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    environ = {**os.environ, "PYTHONPATH": PACKAGE}
    done = subprocess.run([sys.executable, "-c", code], env=environ, timeout=30, check=False)
    assert done.returncode == -signal.SIGKILL
    run = tl.load(path)
    assert len(run.tree) == 51
    assert run.tree["0.49"].score == 0.98
    assert run.stop_reason is None


def test_a_file_that_is_there_is_never_written_over(tmp_path):
    path = tmp_path / "mine.jsonl"
    recorded(path)
    before = path.read_bytes()
    with pytest.raises(FileExistsError):
        tl.Recorder("other", path=path)
    assert path.read_bytes() == before


def test_watchers_are_told_of_each_record():
    recorder, seen = tl.Recorder("mine"), []
    recorder.watchers.append(lambda lines: seen.extend(line.e for line in lines))
    root = recorder.thought("p")
    recorder.score(root, 0.5)
    assert seen == recorder.run.events


# The context manager.


def test_leaving_the_context_ends_the_run(tmp_path):
    with tl.Recorder("mine", path=tmp_path / "a.jsonl") as recorder:
        recorder.thought("p")
    assert tl.load(tmp_path / "a.jsonl").stop_reason == "answered"


def test_an_end_that_was_given_is_kept():
    with tl.Recorder("mine") as recorder:
        recorder.thought("p")
        recorder.end("x", stop="exhausted")
    assert [e for e in recorder.run.events if isinstance(e, Ended)] == [Ended("exhausted", "x")]


@pytest.mark.parametrize(
    ("error", "stop", "told"),
    [(ValueError("a \ud800 bug"), "error", "ValueError: a ? bug"), (KeyboardInterrupt(), "cancelled", None)],
)
def test_an_exception_ends_it_and_is_on_record(tmp_path, error, stop, told):
    with pytest.raises(type(error)), tl.Recorder("mine", path=tmp_path / "a.jsonl") as recorder:  # noqa: PT012
        recorder.thought("p")
        raise error
    run = tl.load(tmp_path / "a.jsonl")
    assert (run.stop_reason, run.error) == (stop, told)


# What is refused.


def wrong(recorder, root):
    """What each wrong use does, and what the error names."""
    return {
        "unknown parent": (lambda: recorder.thought("x", parent="0.7"), "0.7"),
        "second root": (lambda: recorder.thought("x"), "root"),
        "unknown source": (lambda: recorder.thought("x", parent=root, source=["9"]), "'9'"),
        "unknown dependence": (lambda: recorder.thought("x", parent=root, depends=["9"]), "'9'"),
        "text that is none": (lambda: recorder.thought(3, parent=root), "Thought"),
        "score of unknown": (lambda: recorder.score("0.7", 0.5), "0.7"),
        "score above 1": (lambda: recorder.score(root, 1.1), "1.1"),
        "score below 0": (lambda: recorder.score(root, -0.1), "-0.1"),
        "score that is none": (lambda: recorder.score(root, float("nan")), "nan"),
        "score that is a bool": (lambda: recorder.score(root, True), "Scored"),
        "decision on unknown": (lambda: recorder.decide("0.7", "kept"), "0.7"),
        "decision that is none": (lambda: recorder.decide(root, "liked"), "liked"),
        "merged with unknown": (lambda: recorder.decide(root, "merged", other="0.7"), "0.7"),
        "call of unknown": (lambda: recorder.call("0.7", "p", "r"), "0.7"),
        "prompt that is none": (lambda: recorder.call(root, 3, "r"), "Call"),
        "note of what is no JSON": (lambda: recorder.note("n", thing=object()), "object"),
        "end at unknown": (lambda: recorder.end("x", node="0.7"), "0.7"),
    }


WRONG = list(wrong(None, None))


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use_is_refused_and_leaves_the_record_as_it_was(tmp_path, name):
    path = tmp_path / "mine.jsonl"
    recorder = tl.Recorder("mine", path=path)
    root = recorder.thought("p")
    before = path.read_bytes()
    act, named = wrong(recorder, root)[name]
    with pytest.raises(ValueError, match=named):
        act()
    assert path.read_bytes() == before
    assert recorder.thought("next", parent=root) == "0.0"
    recorder.end()
    assert tl.load(path).events == recorder.run.events


def test_nothing_comes_after_the_end():
    recorder = recorded()
    for act in (
        lambda: recorder.end("again"),
        lambda: recorder.thought("x", parent="0"),
        lambda: recorder.note("n"),
    ):
        with pytest.raises(ValueError, match="ended"):
            act()


def test_numpy_numbers_are_written_as_numbers(tmp_path):
    import numpy as np

    recorder = tl.Recorder("mine", path=tmp_path / "a.jsonl")
    root = recorder.thought("p")
    recorder.score(root, np.float32(0.5), samples=[np.float64(0.25), None])
    recorder.note("n", size=np.int64(3), yes=np.bool_(True))
    recorder.close()
    run = tl.load(tmp_path / "a.jsonl")
    assert Scored("0", 0.5, 0.5, (0.25, None), "value") in run.events
    assert run.events[-1].data == {"size": 3, "yes": True}


def test_a_lone_surrogate_is_written_as_a_question_mark(tmp_path):
    with tl.Recorder("mine", path=tmp_path / "a.jsonl") as recorder:
        root = recorder.thought("a \ud800 b")
        recorder.call(root, "a \ud800 prompt", "a \udfff reply")
        recorder.end("the \ud800 end", node=root)
    run = tl.load(tmp_path / "a.jsonl")
    assert run.events == recorder.run.events
    assert (run.tree.root.text, run.answer) == ("a ? b", "the ? end")


def test_a_record_without_a_strategy_is_shown_not_run_again(tmp_path):
    run = recorded(tmp_path / "a.jsonl").run
    with pytest.raises(LookupError, match="not made by a strategy"):
        wait(run.replay())
    with tl.Recorder("open", path=tmp_path / "b.jsonl") as recorder:
        recorder.thought("p")
        recorder.close()
        with pytest.raises(LookupError, match="not made by a strategy"):
            wait(tl.Lab(lambda call: None, runs=None).resume(tmp_path / "b.jsonl"))


def test_calls_are_records_like_any_other():
    calls = [event for event in recorded().run.events if isinstance(event, Call)]
    assert [(call.node, call.purpose, call.prompt) for call in calls] == [
        ("0", "ask", "What next?"),
        ("0.0", "value", "How good?"),
    ]


@pytest.mark.parametrize("what", ["solution", "", "Kept", None])
def test_an_unknown_decision_is_refused_when_it_is_made(what):
    with pytest.raises(ValueError, match=rf"Unknown decision: got {what!r}\. Use kept, pruned, .*, answer"):
        tl.records.Decided("0", what)


class FallsBack(tl.Strategy):
    """Answers without a model, and says so in a note."""

    kind = "test_recorder.falls_back"
    is_fallback: bool = True

    def think(self, task, at="0"):
        yield tl.Thought(at, None, task.question)
        yield Note("mine.guessed", at, {"why": "no model"}, fallback=self.is_fallback)
        return tl.Answer("26", "answered")


def test_a_note_of_a_fallback_is_logged_and_recorded_as_any_other(caplog, tmp_path):
    lab = tl.Lab("sim/general", runs=tmp_path)
    task = tl.general("What is 13 · 2?")
    made = wait(lab.run(FallsBack(), task))
    (logged,) = caplog.records
    expected = f'run {made.id}, thought 0: mine.guessed {{"why":"no model"}}'
    assert (logged.name, logged.levelname, logged.getMessage()) == ("tot_lab", "WARNING", expected)
    caplog.clear()
    plain = wait(lab.run(FallsBack(is_fallback=False), task))
    assert made.events == plain.events

    def lines(run):
        return [msgspec.json.decode(line)["e"] for line in run.path.read_bytes().splitlines()[1:]]

    assert lines(made) == lines(plain)
    assert {"type": "note", "name": "mine.guessed", "at": "0", "data": {"why": "no model"}} in lines(made)
    assert wait(made.replay()).identical
    assert wait(tl.load(made.path).replay(FallsBack())).identical
    assert not caplog.records
