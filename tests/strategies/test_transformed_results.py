"""What a model is shown of tool results can be made by the user's function (S2)."""

import json
import threading

import pytest
from support import TASK, Scripted, answer_to, wait
from support.plans import GOOD, Planner, plan, think, tool
from support.plans import TASK as SUM
from support.scripts import Script, final, notes, said

import tot_lab as tl

PAGES = "".join(f"{page}\n" for page in range(200))


@tl.tool
def essay() -> str:
    """A long text."""
    return PAGES


@tl.tool
def broken() -> str:
    """Fails."""
    raise RuntimeError("no such page")


def first_line(tool: str, result: str) -> str:
    return f"{tool}: {result.splitlines()[0]} … {result.splitlines()[-1]}"


async def first_line_later(tool: str, result: str) -> str:
    return first_line(tool, result)


SHOWN = "essay: 0 … 199"


def lab(model, **options):
    return tl.Lab(model, runs=options.pop("runs", None), tools=[essay, broken], **options)


@pytest.mark.parametrize("function", [first_line, first_line_later])
@pytest.mark.parametrize("strategy", [tl.ReAct, tl.ToolLoop])
def test_the_model_sees_the_text_and_the_record_keeps_the_whole(strategy, function, tmp_path):
    last = said(final("26")) if strategy is tl.ReAct else "Answer: 26"
    model = Script(said(("essay", {})), last)
    made = wait(lab(model, runs=tmp_path).run(strategy(transform_result=function), TASK))
    assert made.answer == "26"
    assert model.shown(1) == SHOWN
    assert made.tools_df()["result"].tolist() == [PAGES, SHOWN]  # the call, and that of the function
    assert [action for action in made.steps_df()["action"].dropna() if action != "final-answer"] == ["essay"]
    assert made.usage.calls == 2  # the function counts as no call of a model
    loaded = tl.load(made.path)
    assert loaded.strategy.transform_result.name == function.__name__
    with pytest.raises(LookupError, match=function.__name__):
        wait(loaded.replay())  # a function is never imported from a file
    assert wait(loaded.replay(strategy=made.strategy)).identical


def test_a_lab_has_one_for_all_without_their_own():
    def other(tool, result):
        return "other"

    for strategy, seen in [
        (tl.ReAct(), SHOWN),
        (tl.Reflexion(strategy=tl.ReAct()), SHOWN),
        (tl.ReAct(transform_result=other), "other"),
    ]:
        model = Script(said(("essay", {})), said(final("26")), "SATISFIED: yes.")
        wait(lab(model, transform_result=first_line).run(strategy, TASK))
        assert model.shown(1) == seen


def test_a_strategy_of_ones_own_can_read_the_function_of_the_lab():
    class Own(tl.Strategy):
        kind = "own_reader"

        def think(self, task, at="0"):
            yield from ()
            return tl.Answer(task.lab.transform_result("essay", PAGES), "answered")

    assert wait(lab(Scripted(), transform_result=first_line).run(Own(), TASK)).answer == SHOWN


def test_a_function_that_fails_is_noted_and_the_result_itself_is_shown():
    def raises(tool, result):
        raise KeyError("rows")

    def returns_a_number(tool, result):
        return 3

    for function, why in [(raises, "KeyError: 'rows'"), (returns_a_number, "must return text: got 3")]:
        model = Script(said(("essay", {})), said(final("26")))
        made = wait(lab(model).run(tl.ReAct(transform_result=function), TASK))
        assert model.shown(1) == PAGES
        (note,) = notes(made, "tools.transform_failed")
        assert note["tool"] == "essay"
        assert why in note["error"]


def test_a_failed_tool_is_shown_as_it_failed():
    model = Script(said(("broken", {})), said(final("26")))
    wait(lab(model, transform_result=first_line).run(tl.ReAct(), TASK))
    assert "no such page" in model.shown(1)
    assert "broken: " not in model.shown(1)


def test_the_limit_holds_for_what_the_function_returns():
    def doubled(tool, result):
        return result * 2

    model = Script(said(("essay", {})), said(final("26")))
    wait(lab(model).run(tl.ReAct(transform_result=doubled, max_result_characters=100), TASK))
    assert model.shown(1).startswith((PAGES * 2)[:100])
    assert len(model.shown(1)) < 200


def test_the_whole_result_can_be_recalled_by_its_number():
    request = said(("more", {"result": 1, "from": 0}))
    model = Script(said(("essay", {})), request, said(final("26")))
    strategy = tl.ReAct(transform_result=first_line, overflow="more", max_result_characters=400)
    wait(lab(model).run(strategy, TASK))
    assert model.shown(1).startswith(f"{SHOWN}\n")
    assert json.dumps({"result": 1, "from": 0}) in model.shown(1)
    assert model.shown(2).startswith(PAGES[:400])


def test_each_of_several_results_of_a_turn_is_transformed_once():
    seen = []

    def numbered(tool, result):
        seen.append(threading.current_thread() is threading.main_thread())
        return f"result of {tool}"

    model = Script(said(("essay", {}), ("essay", {}), ("broken", {})), said(final("26")))
    made = wait(lab(model).run(tl.ReAct(transform_result=numbered), TASK))
    assert seen == [False, False]  # in a thread, so that a slow one does not hold up other runs
    assert [node.text for node in made.tree if node.text.startswith("essay →")] == [
        "essay → result of essay"
    ] * 2


def test_a_proposal_with_tools_sees_it_too():
    def reply(call):
        if call.purpose != "sample" or any(message.role == "tool" for message in call.messages):
            return answer_to(call)
        return said(("essay", {}))

    search = tl.TreeOfThoughts(
        propose=tl.WithTools(proposer=tl.Sample(count=1), transform_result=first_line), stop=tl.Stop(depth=1)
    )
    model = Scripted(reply)
    wait(lab(model).run(search, TASK))
    told = [message.content for call in model.calls for message in call.messages if message.role == "tool"]
    assert told == [SHOWN]


def test_a_plan_shows_it_to_later_steps_and_to_the_reflection_and_inserts_the_whole():
    steps = plan(
        tool("essay"),
        think("Read {{from_step:s1}}.", dependsOn=["s1"]),
        think("Sum up.", dependsOn=["s1"]),
    )
    model = Planner(plan=steps, analysis="It is 14.", review=GOOD, answer="Answer: 14")
    made = wait(lab(model, transform_result=first_line).run(tl.PlanExecute(), SUM))
    reads, sums = model.asked("analysis")
    assert PAGES.strip() in reads.prompt  # a reference inserts the result itself
    assert SHOWN in sums.prompt
    assert PAGES.strip() not in sums.prompt
    (review,) = model.asked("review")
    assert SHOWN in review.prompt
    assert "\n100\n" not in review.prompt
    assert any(node.text == f"essay → {PAGES}" for node in made.tree)
