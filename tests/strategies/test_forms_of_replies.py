"""No prompt asks for two forms of a reply at once."""

import re

import pytest
from support import Scripted, wait

import tot_lab as tl
from tot_lab.testing import legs

TASKS = {
    "general": tl.general("How many legs has a spider?"),
    "graded": tl.general("How many legs has a spider?", answer=8, grade="number"),
    "to write": tl.general("Write a letter to the mayor."),
    "open": tl.open_ended("Which database?"),
    "sums": tl.domains.word_sums(3),
    "crossword": tl.domains.mini_crossword(1),
    "24": tl.game24("4 9 10 13"),
}
STRATEGIES = [
    tl.DeepThink(max_iterations=1),
    tl.GatherThenThink(),
    tl.PlanExecute(classify_tools=True),
    tl.ReAct(classify_tools=True, max_iterations=1),
    tl.Adaptive(),
]


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.kind)
def test_a_prompt_for_json_sets_no_other_form(strategy, task):
    model = Scripted(lambda call: "nothing")
    wait(tl.Lab(model, runs=None, tools=[legs]).run(strategy, task, budget=tl.Budget(calls=14)))
    asked = [call.prompt for call in model.calls if re.search("(?i)reply with (one )?json", call.prompt)]
    assert asked or isinstance(strategy, tl.Adaptive)  # the rules may decide
    for prompt in asked:
        assert task.question in prompt
        assert "Answer:" not in prompt
        assert "end with one line" not in prompt


@pytest.mark.parametrize(
    ("question", "short"),
    [
        ("Write a letter to the mayor.", False),
        ("Please draft an announcement.", False),
        ("Rewrite this sentence: It rains cats.", False),
        ("Write 0.75 as a fraction.", True),
        ("Write down how many legs a spider has.", True),
        ("Writers have how many legs?", True),
        ("What did the mayor write?", True),
    ],
)
def test_a_general_task_that_asks_to_write_something_forces_no_one_line(question, short):
    model = Scripted(lambda call: "Dear mayor,\n\nit rains.\n\nYours")
    made = wait(tl.Lab(model, runs=None).run(tl.ChainOfThought(), tl.general(question)))
    (call,) = model.calls
    assert ("one line" in call.prompt) == ("Answer:" in call.prompt) == short
    assert ("The answer is the whole text of your reply." in call.prompt) != short
    assert made.answer == "Dear mayor,\n\nit rains.\n\nYours"


def test_a_graded_task_that_asks_to_write_something_keeps_the_form_that_is_graded():
    task = tl.general("Write the number of legs of a spider.", answer=8, grade="number")
    assert "Answer: <your answer>" in task.answer_prompt(True)


UNDECIDED = tl.general("Compare the two of them, and say what you would do about it in the long run.")


@pytest.mark.parametrize("reply", ["no idea", tl.Reply(error="down: no")])
@pytest.mark.parametrize("default", ["reactive", "plan-execute-reflect"])
def test_the_default_for_a_task_that_nothing_decides_is_stated(default, reply, caplog):
    model = Scripted(lambda call: reply if call.purpose == "route" else "Answer: 26")
    made = wait(tl.Lab(model, runs=None).run(tl.Adaptive(default=default), UNDECIDED))
    (chosen,) = [e.data for e in made.events if isinstance(e, tl.Note) and e.name == "adaptive.chosen"]
    assert (chosen["selectedStrategy"], chosen["kind"], chosen["by"]) == (default, None, "default")
    why = "the model could not be asked: down: no" if isinstance(reply, tl.Reply) else "the model named none"
    assert chosen["why"].startswith(f"no rule decided, and {why}")
    assert chosen["why"].endswith(f"the default is {default!r}")
    assert any("adaptive.chosen" in record.getMessage() for record in caplog.records)
