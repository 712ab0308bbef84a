"""Lessons of earlier runs: kept whole through kills and crowds, recalled by similarity (R2)."""

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap

import pytest
from support import ROOT, TASK, Scripted, run, wait
from support.lessons import tried

import tot_lab as tl


def test_what_one_run_learnt_is_recalled_for_a_similar_task(tmp_path):
    lessons = tl.Lessons(tmp_path / "lessons.db")
    assert (
        lessons.add(tried("How many legs have two spiders?", "UNSATISFIED: count 8 each", "SATISFIED: ok"))
        == 1
    )
    assert lessons.add(tried("Who wrote Faust?", "UNSATISFIED: name the poet", "SATISFIED: ok")) == 1
    assert lessons.recall(TASK) == ["UNSATISFIED: count 8 each"]
    assert lessons.recall(tl.general("Was Faust written by a poet?")) == ["UNSATISFIED: name the poet"]
    assert lessons.recall(tl.general("Nothing alike")) == []
    assert lessons.recall(tl.game24("4 5 6 10")) == []  # another domain
    assert len(tl.Lessons(tmp_path / "lessons.db")) == 2


def test_the_most_similar_comes_first_and_each_once(tmp_path):
    lessons = tl.Lessons(tmp_path / "lessons.db")
    for question, critique in (
        ("How tall is the tower?", "UNSATISFIED: metres"),
        ("How many legs has a spider?", "UNSATISFIED: spider"),
        ("How many legs have three spiders?", "UNSATISFIED: three"),
        ("How many legs have three spiders now?", "UNSATISFIED: three"),
    ):
        lessons.add(tried(question, critique, end="limit:retries"))
    found = lessons.recall(TASK, k=5)
    assert found[0] == "UNSATISFIED: three"
    assert sorted(found) == ["UNSATISFIED: metres", "UNSATISFIED: spider", "UNSATISFIED: three"]
    assert lessons.recall(TASK, k=1) == found[:1]
    with pytest.raises(ValueError, match="k must be at least 1: got 0"):
        lessons.recall(TASK, k=0)


def test_only_what_the_critic_was_not_content_with_is_kept_and_a_run_only_once(tmp_path):
    lessons = tl.Lessons(tmp_path / "lessons.db")
    made = tried(TASK.question, "UNSATISFIED: a", "I cannot say.", "UNSATISFIED: b", "SATISFIED: c")
    assert lessons.add(made) == 3
    assert lessons.add(made) == 0
    assert len(lessons) == 3
    assert lessons.add(run(tl.ChainOfThought())) == 0
    assert not any(text == "SATISFIED: c" for text in lessons.recall(TASK, k=9))


def test_the_recalled_text_makes_the_same_record_each_time(tmp_path):
    lessons = tl.Lessons(tmp_path / "lessons.db")
    lessons.add(tried(TASK.question, "UNSATISFIED: count the duck", "SATISFIED: ok"))
    strategy = tl.Reflexion(strategy=tl.ChainOfThought(), prior_critiques=lessons.recall(TASK))
    made = wait(tl.Lab(Scripted(), runs=tmp_path).run(strategy, TASK))
    lessons.add(tried(TASK.question, "UNSATISFIED: another", "SATISFIED: ok"))
    again = tl.load(made.path)
    assert again.strategy.prior_critiques == ["UNSATISFIED: count the duck"]
    assert wait(again.replay()).identical
    assert run(again.strategy).events == made.events


def test_a_run_without_an_end_or_a_task_is_refused(tmp_path):
    lessons = tl.Lessons(tmp_path / "lessons.db")
    with tl.Recorder("own") as recorder:
        recorder.thought("a problem")
    with pytest.raises(ValueError, match="has no task"):
        lessons.add(recorder.run)
    made = wait(tl.Lab(Scripted(), runs=tmp_path).run(tl.ChainOfThought(), TASK))
    lines = made.path.read_bytes().splitlines(keepends=True)
    made.path.write_bytes(b"".join(lines[:-1]))
    with pytest.raises(ValueError, match="has not ended"):
        lessons.add(tl.load(made.path))
    with pytest.raises(TypeError, match="run must be a Run"):
        lessons.add("run")


@pytest.mark.parametrize(
    "question", ["", '"; DROP TABLE lessons; --', "NEAR(a b) AND * OR ^", "?!", "ß" * 5000]
)
def test_any_question_can_be_looked_for(tmp_path, question):
    lessons = tl.Lessons(tmp_path / "lessons.db")
    lessons.add(tried("a b", "UNSATISFIED: a", end="limit:retries"))
    assert lessons.recall(TASK.model_copy(update={"question": question})) in ([], ["UNSATISFIED: a"])
    assert len(lessons) == 1


# Files.

WRITER = """
    import sys
    sys.path.insert(0, {tests!r})
    import tot_lab as tl
    from support.lessons import tried
    lessons = tl.Lessons({path!r})
    said = [f"UNSATISFIED: {name} {{k}}" for k in range({count})]
    for k, run in enumerate([tried("How many legs?", text, end="limit:retries") for text in said]):
        lessons.add(run)
        print(k, flush=True)
"""


def writer(path, name, count):
    code = textwrap.dedent(WRITER).format(tests=str(ROOT / "tests"), path=str(path), name=name, count=count)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment)


@pytest.mark.nightly
def test_what_was_acknowledged_outlives_a_kill(tmp_path):
    path = tmp_path / "lessons.db"
    process = writer(path, "one", 400)
    acknowledged = [int(process.stdout.readline()) for _ in range(20)]
    os.kill(process.pid, signal.SIGKILL)
    acknowledged += [int(line) for line in process.stdout.read().split(b"\n") if line]
    process.wait()
    process.stdout.close()
    kept = set(tl.Lessons(path).recall(tl.general("How many legs?"), k=1000))
    assert {f"UNSATISFIED: one {k}" for k in acknowledged} <= kept
    assert len(kept) < 400
    assert tl.Lessons(path).add(tried("How many legs?", "UNSATISFIED: more", end="limit:retries")) == 1


@pytest.mark.nightly
def test_two_processes_keep_all_of_both(tmp_path):
    path = tmp_path / "lessons.db"
    processes = [writer(path, name, 40) for name in ("one", "two")]
    assert [process.communicate(timeout=60)[0].count(b"\n") for process in processes] == [40, 40]
    assert len(tl.Lessons(path)) == 80


def test_a_file_that_cannot_be_read_is_said_and_left(tmp_path):
    path = tmp_path / "lessons.db"
    path.write_bytes(b"this is a diary, and no database at all\n" * 100)
    with pytest.raises(tl.errors.LessonsError, match=r"lessons\.db: .*cannot be read .*was not changed"):
        tl.Lessons(path)
    assert path.read_bytes().startswith(b"this is a diary")


def test_damage_inside_is_said_and_nothing_is_lost(tmp_path):
    path = tmp_path / "lessons.db"
    lessons = tl.Lessons(path)
    for k in range(30):
        lessons.add(tried("How many legs?", f"UNSATISFIED: {k} " + "long " * 300, end="limit:retries"))
    whole = path.read_bytes()
    damaged = whole[:8192] + b"\xff" * (len(whole) - 8192)
    path.write_bytes(damaged)
    with pytest.raises(tl.errors.LessonsError, match="cannot be read"):
        lessons.recall(tl.general("How many legs?"), k=99)
    with pytest.raises(tl.errors.LessonsError):
        lessons.add(tried("How many legs?", "UNSATISFIED: x", end="limit:retries"))
    path.write_bytes(whole)
    assert len(lessons.recall(tl.general("How many legs?"), k=99)) == 30


def test_another_programs_database_and_a_newer_one_are_refused(tmp_path):
    path = tmp_path / "other.db"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE recipes (name)")
    database.close()
    before = path.read_bytes()
    with pytest.raises(tl.errors.LessonsError, match="this database does not hold lessons"):
        tl.Lessons(path)
    assert path.read_bytes() == before
    tl.Lessons(tmp_path / "lessons.db")
    database = sqlite3.connect(tmp_path / "lessons.db")
    database.execute("PRAGMA user_version = 9")
    database.close()
    with pytest.raises(tl.errors.LessonsError, match="newer version"):
        tl.Lessons(tmp_path / "lessons.db")
    with pytest.raises(tl.errors.LessonsError, match="cannot be opened"):
        tl.Lessons(tmp_path / "no" / "folder" / "lessons.db")
