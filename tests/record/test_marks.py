"""Marks lie beside the run, never in its record, and a file that is no such thing is refused."""

import json

import pandas as pd
import pytest
from support import TASK, Scripted, run, wait

import tot_lab as tl
from tot_lab.record.marks import Mark, marks_file

SEARCH = tl.TreeOfThoughts()


@pytest.fixture
def made(tmp_path):
    return wait(tl.Lab(Scripted(), runs=tmp_path).run(SEARCH, TASK))


def test_marks_are_kept_beside_the_run_at_once(made):
    record = made.path.read_bytes()
    assert made.marks == {}
    made.mark("0.1", "right")
    made.mark("0.0", "wrong", "it forgets the <b>duck</b> \ud800")
    made.mark("0.2", None, "?")
    said = {
        "0.0": Mark("wrong", "it forgets the <b>duck</b> ?"),
        "0.1": Mark("right"),
        "0.2": Mark(None, "?"),
    }
    assert made.marks == tl.load(made.path).marks == said
    assert list(made.marks) == ["0.0", "0.1", "0.2"]
    assert made.path.read_bytes() == record
    assert marks_file(made.path).name == made.path.name.replace(".jsonl", ".marks.json")
    assert wait(made.replay()).identical


def test_a_mark_replaces_the_one_before_and_can_be_taken_back(made):
    made.mark("0.1", "right", "surely")
    made.mark("0.1", "wrong")
    assert made.marks == {"0.1": Mark("wrong")}
    made.mark("0.1", None)
    assert made.marks == {}
    assert not marks_file(made.path).exists()


def test_two_holders_of_one_run_do_not_lose_each_others_marks(made):
    other = tl.load(made.path)
    made.mark("0.0", "right")
    other.mark("0.1", "wrong")
    assert made.marks == other.marks == {"0.0": Mark("right"), "0.1": Mark("wrong")}


def test_marks_of_a_run_in_memory_are_saved_with_it(tmp_path):
    kept = run(SEARCH)
    kept.mark("0.0", "right", "yes")
    path = kept.save(tmp_path / "new" / "a.jsonl")
    assert tl.load(path).marks == kept.marks == {"0.0": Mark("right", "yes")}
    assert sorted(file.name for file in path.parent.iterdir()) == ["a.jsonl", "a.marks.json"]


def test_a_run_saved_over_another_takes_its_place_marks_and_all(tmp_path):
    first, second = run(SEARCH), run(SEARCH)
    first.mark("0.0", "right")
    path = first.save(tmp_path / "a.jsonl")
    second.save(path)
    assert tl.load(path).marks == {}


def test_a_run_copied_without_its_marks_has_none(made, tmp_path):
    made.mark("0.0", "right")
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(made.path.read_bytes())
    assert tl.load(copy).marks == {}


@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        (("0.99", "right"), ValueError, r"no thought '0\.99' in this run"),
        (("0.0", "good"), ValueError, "'right', 'wrong' or None: got 'good'"),
        (("0.0", "right", 5), TypeError, "note must be a string: got 5"),
    ],
)
def test_what_is_no_mark_is_refused(made, wrong, error, says):
    with pytest.raises(error, match=says):
        made.mark(*wrong)
    assert made.marks == {}


GOOD = {"marks_schema": 1, "run": "", "marks": {"0.0": {"verdict": "right"}}}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"marks": {"0.9": {"verdict": "right"}}}, r"unknown thought: got a mark on '0\.9'"),
        ({"marks": {"0.0": {"verdict": "perhaps"}}}, "not a file of marks: .*perhaps"),
        ({"marks": {"0.0": {"note": 5}}}, "not a file of marks"),
        ({"marks": {"0.0": {"colour": "red"}}}, "not a file of marks"),
        ({"marks": []}, "not a file of marks"),
        ({"run": "another"}, "the marks of another run: got another, expected"),
        ({"marks_schema": 99}, "written by a newer tot_lab"),
        (b"{", "not a file of marks"),
        (b"\xff\xfe", "not a file of marks"),
        (b"[" * 100_000, "not a file of marks"),
    ],
    ids=range(10),
)
def test_a_damaged_file_is_an_error_that_names_it(made, change, says):
    path = marks_file(made.path)
    good = {**GOOD, "run": made.id}
    path.write_text(json.dumps(good))
    assert made.marks == {"0.0": Mark("right")}
    path.write_bytes(change if isinstance(change, bytes) else json.dumps({**good, **change}).encode())
    before = path.read_bytes()
    for use in (lambda: made.marks, lambda: made.mark("0.0", "wrong"), made.nodes_df):
        with pytest.raises(tl.errors.JournalError, match=says) as raised:
            use()
        assert str(path) in str(raised.value)
    assert path.read_bytes() == before


def test_marks_are_columns(made):
    made.mark("0.0", "wrong", "no duck")
    made.mark("0.1", None, "hm")
    frame = made.nodes_df().set_index("id")
    assert frame.mark.cat.categories.tolist() == ["right", "wrong"]
    assert frame.mark["0.0"] == "wrong"
    assert frame.note["0.0"] == "no duck"
    assert pd.isna(frame.mark["0.1"])
    assert frame.note["0.1"] == "hm"
    assert frame.mark.notna().sum() == 1
    assert frame.note.notna().sum() == 2


def test_a_search_of_a_persons_own_can_be_marked(tmp_path):
    with tl.Recorder("own", path=tmp_path / "own.jsonl") as recorder:
        step = recorder.thought("a step", recorder.thought("the problem"))
    recorder.run.mark(step, "right")
    assert recorder.run.marks == {step: Mark("right")}
    assert (tmp_path / "own.marks.json").exists()


def test_two_journals_never_share_their_marks(tmp_path):
    marked, plain = (run(tl.TreeOfThoughts()) for _ in range(2))
    marked.mark("0.1", "right")
    marked.save(tmp_path / "a.jsonl")
    plain.save(tmp_path / "a")
    assert tl.load(tmp_path / "a.jsonl").marks == {"0.1": Mark("right")}
