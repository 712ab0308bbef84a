"""Without Inspect, everything that needs it says what to install. The tests with it run at night."""

import sys

import pytest
from support import run, wait

import tot_lab as tl


async def says_42(call):
    return "Answer: 42"


@pytest.fixture
def without_inspect(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "inspect_ai"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "inspect_ai", None)


@pytest.mark.usefixtures("without_inspect")
def test_the_solver_names_the_extra():
    message = r"tl\.inspect\.think requires inspect_ai: pip install 'tot-lab\[inspect\]'"
    with pytest.raises(ImportError, match=message):
        tl.inspect.think("one_answer")


@pytest.mark.usefixtures("without_inspect")
def test_saving_a_sweep_names_the_extra(tmp_path):
    lab = tl.Lab("sim/general", runs=None)
    sweep = wait(lab.sweep(tl.OneAnswer(), tl.general("What is 6 * 7?")))
    with pytest.raises(ImportError, match=r"save_inspect requires inspect_ai: pip install"):
        sweep.save_inspect(tmp_path)


def test_a_task_of_inspect_in_a_journal_needs_no_inspect_and_is_not_graded(tmp_path):
    domain = tl.part_of({"kind": "published/inspect", "task": "sums", "scorer": "inspect_ai/match"})
    task = tl.Task(domain=domain, question="What is 6 * 7?", reference="42", id="1")
    made = run(tl.OneAnswer(), task, says_42)
    loaded = tl.load(made.save(tmp_path / "run.jsonl"))
    assert (loaded.task, loaded.answer) == (task, "42")
    why = "the task of a loaded run cannot call its scorer 'inspect_ai/match'"
    with pytest.warns(RuntimeWarning, match=why):
        assert loaded.grade is None
