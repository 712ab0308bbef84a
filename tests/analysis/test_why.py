"""Why a run failed, in one sentence: whom the domain's solver shows to be at fault, and what nobody knows."""

import pytest
from support import wait
from support.errands import lab_with
from support.scripts import Script, final, legs, said

import tot_lab as tl
from tot_lab.analysis.diagnosis import seen_at_once
from tot_lab.analysis.why import blame_and_findings, why_it_failed

HAND = tl.game24("4 5 6 10")
GOOD = "10 - 4 = 6 (left: 5 6 6)"
UNKNOWN = "The cause is not known: nothing tells which thoughts could lead to a right answer."
BAD = "10 * 6 = 60 (left: 4 5 60)"


def lost(*steps: tuple[str, float, str], end: str = "exhausted", task: tl.Task = HAND, expanded: bool = True):
    """A recorded search of one level that gave no answer: each step with its score and its state."""
    with tl.Recorder("lost", task=task) as recorder:
        root = recorder.thought(task.question)
        if expanded:
            recorder.call(root, "What next?", "…", purpose="propose")
        for text, score, state in steps:
            id = recorder.thought(text, parent=root)
            recorder.score(id, score)
            recorder.decide(id, state)
            if state == "kept" and text == BAD:
                recorder.call(id, "What next?", "…", purpose="propose")
        recorder.end("", stop=end)
    return recorder.run


def test_the_hand_and_its_steps_are_what_the_tests_take_them_for():
    assert HAND.domain.solvable(HAND, [GOOD]) is True
    assert HAND.domain.solvable(HAND, [BAD]) is False


def test_the_evaluator_pruned_the_right_thought():
    why = why_it_failed(lost((GOOD, 0.05, "pruned"), (BAD, 0.9, "kept")))
    assert why.text == "Evaluator: pruned thought 0.0 (score 0.05), which could still lead to a right answer."
    assert why.nodes == ("0.0",)


def test_the_search_pruned_what_scored_as_high_as_what_it_kept():
    why = why_it_failed(lost((GOOD, 0.9, "pruned"), (BAD, 0.9, "kept")))
    assert why.text == (
        "Search: pruned thought 0.0 (score 0.9), which could still lead to a "
        "right answer, although no thought that "
        "was kept on its level scored higher."
    )
    other = "10 * 5 = 50 (left: 4 6 50)"
    assert HAND.domain.solvable(HAND, [other]) is False
    tie = why_it_failed(lost((GOOD, 0.05, "pruned"), (BAD, 0.9, "kept"), (other, 0.05, "kept")))
    assert tie.text.startswith("Evaluator: pruned")  # it equals one that was kept, and is below the other
    assert why_it_failed(lost((GOOD, 0.8, "pruned"), (BAD, 0.9, "kept"))).text.startswith("Evaluator: pruned")


def test_a_small_score_is_written_as_the_explorer_writes_it():
    why = why_it_failed(lost((GOOD, 0.00005, "pruned"), (BAD, 0.9, "kept")))
    assert "(score 0.00005)" in why.text


def test_the_proposer_made_no_right_thought():
    why = why_it_failed(lost((BAD, 0.9, "kept"), ("4 + 5 = 9 (left: 6 9 10)", 0.2, "pruned")))
    if HAND.domain.solvable(HAND, ["4 + 5 = 9 (left: 6 9 10)"]):
        pytest.fail("choose a step that cannot lead to 24")
    assert why.text == "Proposer: no child of thought 0 could still lead to a right answer."
    assert why.nodes == ("0",)


def test_replies_without_a_thought_are_unreadable_and_not_wrong():
    why = why_it_failed(lost())
    assert why.text == "Proposer: no thought could be read from its replies at thought 0."
    assert why.nodes == ("0",)


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        (["Answer: 4 + 5"], "the only answer that was written is wrong."),
        (["Answer: 4 + 5", "Answer: 6 * 5"], "none of the 2 answers that were written is right."),
    ],
)
def test_answers_are_not_called_children(answers, says):
    chain = tl.SelfConsistency(attempts=len(answers)) if len(answers) > 1 else tl.ChainOfThought()
    run = wait(lab_with(model=Script(*answers)).run(chain, HAND))
    assert run.correct is False
    assert why_it_failed(run).text == f"Proposer: {says}"


def test_what_a_person_did_is_not_the_evaluators_fault():
    def steered(*, by="value", reason="beam", score=0.05, kept=0.9, later=None):
        with tl.Recorder("steered", task=HAND) as recorder:
            root = recorder.thought(HAND.question)
            recorder.call(root, "What next?", "…", purpose="propose")
            good, other, bad = (recorder.thought(text, parent=root) for text in (GOOD, GOOD, BAD))
            recorder.score(good, score, by=by)
            recorder.decide(good, "pruned", reason)
            if later is not None:
                recorder.score(good, later, by="person")
            recorder.score(other, 0.2, by="value")
            recorder.decide(other, "pruned", "person")
            recorder.score(bad, kept, by="value")
            recorder.decide(bad, "kept")
            recorder.call(bad, "What next?", "…", purpose="propose")
            recorder.end("", stop="exhausted")
        return why_it_failed(recorder.run)

    both = "which could still lead to a right answer"
    assert steered().text == f"Evaluator: pruned thought 0.0 (score 0.05), {both}."
    assert steered().nodes == ("0.0",)  # the person pruned the other one
    assert (
        steered(by="person").text
        == f"Person: set the score of thought 0.0 (score 0.05), {both}, and it was pruned."
    )
    assert steered(by="person", score=0.95).text.startswith("Search: pruned thought 0.0, ")
    assert steered(later=0.95).text == (
        f"Evaluator: pruned thought 0.0, {both}."
    )  # before the person raised its score
    assert (
        steered(reason="person").text == f"Person: pruned thoughts 0.0 (score 0.05), 0.1 (score 0.2), {both}."
    )


def test_a_thought_without_a_readable_score_was_not_judged_badly():
    why = why_it_failed(lost((GOOD, None, "pruned"), (BAD, 0.9, "kept")))
    assert why.text == (
        "Evaluator: gave no readable score to thought 0.0, which could still lead to a right answer."
    )


def test_a_right_answer_that_was_pruned_is_compared_with_the_one_that_was_given():
    def critic(*verdicts):
        replies = iter(["Answer: 42", verdicts[0], "Answer: 41", verdicts[1]])

        async def model(call):
            return next(replies)

        return model

    task = tl.general("Six times seven?", answer="42", grade="number")
    again = "UNSATISFIED: that is not so, do count it again"
    run = wait(
        lab_with(model=critic(again, "SATISFIED: yes")).run(tl.Reflexion(strategy=tl.ChainOfThought()), task)
    )
    assert (run.answer, run.tree["0.0.0"].state) == ("41", "pruned")
    assert why_it_failed(run).text == (
        "Evaluator: scored the wrong answer, thought 0.1.0 (score 1), higher "
        "than the right one, thought 0.0.0 (score 0)."
    )


def test_the_search_ended_before_the_right_thought_was_expanded():
    why = why_it_failed(lost((GOOD, 0.9, "kept"), (BAD, 0.1, "pruned"), end="budget:calls"))
    assert why.text == (
        "Cut short: the run spent the budget of calls before it expanded "
        "thought 0.0 (score 0.9), which could still "
        "lead to a right answer."
    )


def test_what_was_cut_short_says_how_many_others_the_evaluator_preferred():
    ranked = [(GOOD, 0.9, "kept"), (BAD, 0.95, "kept"), (BAD, 0.95, "pruned"), (BAD, 0.1, "pruned")]
    assert why_it_failed(lost(*ranked, end="budget:calls")).text == (
        "Cut short: the run spent the budget of calls before it expanded "
        "thought 0.0 (score 0.9), which could still "
        "lead to a right answer. 2 others scored higher."
    )


@pytest.mark.parametrize(
    ("right", "says"),
    [
        (
            0.4,
            "Evaluator: scored the wrong answer, thought 0.1 (score 0.6), higher "
            "than the right one, thought 0.0 (score 0.4).",
        ),
        (
            0.6,
            "Evaluator: scored the wrong answer, thought 0.1 (score 0.6), as high "
            "as the right one, thought 0.0 (score 0.6).",
        ),
        (0.8, "Answer: a right one was at thought 0.0 (score 0.8), and another one was given."),
        (None, "Answer: a right one was at thought 0.0, and another one was given."),
    ],
)
def test_a_right_answer_was_passed_over(right, says):
    task = tl.general("What is six times seven?", answer="42", grade="number")
    with tl.Recorder("two", task=task) as recorder:
        root = recorder.thought(task.question)
        for text, score in (("Answer: 42", right), ("Answer: 41", 0.6)):
            thought = recorder.thought(text, parent=root)
            if score is not None:
                recorder.score(thought, score)
        recorder.end("41", node="0.1")
    why = why_it_failed(recorder.run)
    assert why.text == says
    assert why.nodes == ("0.0",)


def test_only_the_thoughts_that_the_search_could_have_kept_are_its_fault():
    """Of two solvable thoughts one scored as high as the kept one, and the evaluator misjudged the other."""
    why = why_it_failed(lost((BAD, 0.9, "kept"), (GOOD, 0.9, "pruned"), (GOOD, 0.1, "pruned")))
    assert why.text.startswith(
        "Search: pruned thought 0.1 (score 0.9), which could still lead to a right answer"
    )
    assert why.nodes == ("0.1",)


def test_a_run_that_failed_calls_ended_is_nobodys_fault():
    async def away(call):
        raise ConnectionError("no server there")

    assert why_it_failed(wait(lab_with(model=away).run(tl.OneAnswer(), TOWN))) is None


def test_a_question_without_an_answer_is_nobodys_fault():
    task = tl.game24("1 1 1 1")
    why = why_it_failed(lost(("1 + 1 = 2 (left: 1 1 2)", 0.9, "kept"), task=task))
    assert why.text == "No answer to this question can be right."


def test_without_a_solver_it_names_the_best_that_was_pruned_and_blames_nobody():
    task = tl.general("What is six times seven?", answer="42", grade="number")
    steps = [(f"step {k}", k / 10, "pruned") for k in range(6)] + [("on", 0.9, "kept")]
    why = why_it_failed(lost(*steps, task=task))
    assert why.text == (
        f"The run had nothing left to expand. {UNKNOWN} "
        "The best of the pruned ones: thoughts 0.5 (score 0.5), 0.4 (score 0.4), 0.3 (score 0.3)."
    )
    assert why.nodes == ("0.5", "0.4", "0.3")
    assert not any(word in why.text for word in ("Proposer", "Evaluator", "Cut"))


def test_without_a_solver_and_without_pruned_thoughts_it_says_how_the_run_ended():
    task = tl.general("What is six times seven?", answer="42", grade="number")
    why = why_it_failed(lost(("step", 0.5, "kept"), end="budget:calls", task=task))
    assert why.text == "Cut short: the run spent the budget of calls before it gave an answer."
    assert why.nodes == ("0",)
    with tl.Recorder("one", task=task) as recorder:
        answer = recorder.thought("Answer: 41", parent=recorder.thought(task.question))
        recorder.end("41", node=answer)
    why = why_it_failed(recorder.run)
    assert why.text == (f"The answer is wrong. {UNKNOWN}")
    assert why.nodes == (answer,)


def test_a_run_that_is_right_or_under_way_has_no_reason():
    with tl.Recorder("right", task=HAND) as recorder:
        root = recorder.thought(HAND.question)
        id = recorder.thought(GOOD, parent=root)
        assert why_it_failed(recorder.run) is None
        recorder.end("(10 - 4) * 5 - 6", node=id)
    assert recorder.run.correct
    assert why_it_failed(recorder.run) is None


def test_it_comes_first_among_the_findings():
    run = lost((GOOD, 0.05, "pruned"), (BAD, 0.9, "kept"))
    first, *others = blame_and_findings(run)[1]
    assert first == why_it_failed(run)
    assert others == [finding for finding in seen_at_once(run) if finding.kind != "good_pruned"]


def test_the_diagnosis_begins_with_it_and_keeps_every_kind():
    run = lost((GOOD, 0.05, "pruned"), (BAD, 0.9, "kept"))
    assert tl.diagnose(run)[0] == why_it_failed(run)
    assert tl.diagnose(run)[1:] == seen_at_once(run)
    assert tl.diagnose(run).of("good_pruned")
    right = wait(lab_with(model=Script("Answer: Fenwell")).run(tl.OneAnswer(), tl.general("Where?")))
    assert not tl.diagnose(right).of("why_it_failed")


def test_a_loaded_run_that_waits_for_grading_is_diagnosed_with_its_reason(tmp_path):
    task = tl.general("1 + 1?", answer="^3$", grade="regex")  # graded in another process
    made = wait(lab_with(model=Script("Answer: 2"), runs=tmp_path).run(tl.OneAnswer(), task))
    loaded = tl.load(made.path)
    assert tl.diagnose(loaded)[0].kind == "why_it_failed"
    assert tl.diagnose(loaded)[0] == blame_and_findings(loaded)[1][0]


def test_nothing_is_said_twice_and_nothing_else_is_left_out():
    unsolvable = lost(("1 + 1 = 2 (left: 1 1 2)", 0.9, "kept"), task=tl.game24("1 1 1 1"))
    assert [finding.kind for finding in blame_and_findings(unsolvable)[1]].count("unsolvable") == 0
    assert seen_at_once(unsolvable).of("unsolvable")
    proposed = lost((BAD, 0.9, "kept"), (BAD, 0.9, "duplicate"))
    assert list(blame_and_findings(proposed)[1])[1:] == list(seen_at_once(proposed))


# Agents: the reference answer is known, and nothing says which thoughts could lead to it.

TOWN = tl.general("Where was Delia Mellow born?", answer="Easter  Inge", grade="exact")


@tl.tool(pure=True)
def page(title: str) -> str:
    """The page of a title."""
    return {"Delia": "She was born in\nEASTER INGE.", "Jorin": "He was born in Easter Ingelheim."}[title]


@tl.tool(pure=True)
def share() -> float:
    """A share."""
    return 0.8


def acted(*turns, strategy=None, task=TOWN):
    return wait(lab_with(page, legs, share, model=Script(*turns)).run(strategy or tl.ReAct(), task))


def test_a_tool_returned_the_right_answer_and_the_agent_gave_another_one():
    run = acted(said(("page", {"title": "Jorin"}), ("page", {"title": "Delia"})), said(final("Fenwell")))
    assert run.correct is False
    (turn,) = {line.e.node for line in run.lines if isinstance(line.e, tl.Call) and line.e.purpose == "tool"}
    why = why_it_failed(run)
    assert why.text == (
        f"Answer: the right one is in a tool result at thought {turn}, and another one was given."
    )
    assert why.nodes == (turn,)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("calls", "says"),
    [
        (
            [("page", {"title": "Jorin"})],
            "Proposer: the only tool result that it requested does not contain the right answer.",
        ),
        (
            [("page", {"title": "Jorin"}), ("legs", {"animal": "duck"})],
            "Proposer: none of the 2 tool results that it requested contains the right answer.",
        ),
        ([("page", {"title": "Henno"})], "Tools: every call failed."),
    ],
)
def test_no_tool_returned_the_right_answer(calls, says):
    run = acted(said(*calls), said(final("Fenwell")))
    assert why_it_failed(run).text == says
    turns = {line.e.node for line in run.lines if isinstance(line.e, tl.Call) and line.e.purpose == "tool"}
    assert {*why_it_failed(run).nodes} == turns  # the steps to look at, not the answer


@pytest.mark.parametrize(
    ("title", "says"),
    [
        ("Delia", "Answer: the right one is in a tool result at thought {turn}, and none was given."),
        ("Jorin", "Proposer: the only tool result that it requested does not contain the right answer."),
    ],
)
def test_an_agent_that_a_budget_ended_was_cut_short(title, says):
    model = Script(said(("page", {"title": title})))
    run = wait(lab_with(page, model=model).run(tl.ReAct(), TOWN, budget=tl.Budget(calls=1)))
    assert (run.answer, run.stop_reason) == ("", "budget:calls")
    (turn,) = {line.e.node for line in run.lines if isinstance(line.e, tl.Call) and line.e.purpose == "tool"}
    first, *others = blame_and_findings(run)[1]
    ended = "Cut short: the run spent the budget of calls before it gave an answer."
    assert first.text == f"{ended} {says.format(turn=turn)}"
    assert not any("budget:" in finding.text for finding in others)


def test_a_reference_that_is_no_answer_itself_is_not_looked_for():
    task = tl.general("How many?", answer=r"1[0-9]", grade="regex")
    why = why_it_failed(acted(said(("page", {"title": "Jorin"})), said(final("20")), task=task))
    assert why.text.startswith("The answer is wrong. The cause is not known")


def test_a_number_is_not_a_part_of_another_one():
    task = tl.general("How many legs?", answer="8", grade="number")
    assert (
        "is in a tool result"
        in why_it_failed(acted(said(("legs", {"animal": "spider"})), said(final("7")), task=task)).text
    )
    for other in ("8", "0.8"):
        task = tl.general("How many legs?", answer=other, grade="number")
        run = acted(said(("share", {})), said(final("7")), task=task)
        assert ("is in a tool result" in why_it_failed(run).text) is (other == "0.8")


def test_the_agent_called_no_tool():
    run = acted(said(final("Fenwell")))
    assert why_it_failed(run).text == "Proposer: called no tool before the answer."
    assert why_it_failed(wait(lab_with(model=Script("Fenwell")).run(tl.ChainOfThought(), TOWN))).text == (
        f"The answer is wrong. {UNKNOWN}"
    )


def test_a_wrong_answer_was_accepted():
    with tl.Recorder("tried", task=TOWN) as recorder:
        answer = recorder.thought("Fenwell", parent=recorder.thought(TOWN.question))
        recorder.score(answer, 0.95)
        recorder.end("Fenwell", node=answer, stop="solved")
    why = why_it_failed(recorder.run)
    assert why.text == f"Evaluator: accepted thought {answer} (score 0.95) as the answer, which is wrong."
    assert why.nodes == (answer,)


@pytest.mark.slow
def test_a_right_answer_has_no_reason_whatever_the_tools_returned():
    assert why_it_failed(acted(said(("page", {"title": "Henno"})), said(final("Easter Inge")))) is None


# Several whole answers that were graded.


def drafted(*texts, deeper=None):
    task = tl.general("What is six times seven?", answer="42", grade="number")
    with tl.Recorder("drafts", task=task) as recorder:
        root = recorder.thought(task.question)
        recorder.call(root, "Answer.", "…", purpose="develop")
        drafts = [recorder.thought(text, parent=root) for text in texts]
        for draft in drafts:
            recorder.score(draft, 0.5)
        if deeper is not None:
            recorder.thought("Look at it again", parent=drafts[deeper])
        recorder.end(texts[0], node=drafts[0])
    return recorder.run


def test_a_right_draft_was_written_and_another_answer_was_given():
    why = why_it_failed(drafted("41", "42", "43", deeper=1))
    assert why.text == "Answer: a right one was at thought 0.1 (score 0.5), and another one was given."
    assert why.nodes == ("0.1",)


def test_no_draft_is_right():
    why = why_it_failed(drafted("41", "43"))
    assert why.text == "Proposer: none of the 2 answers that were written is right."
    assert why.nodes == ("0.0",)
    assert why_it_failed(drafted("41")).text.startswith("The answer is wrong. The cause is not known")


def test_the_best_of_deep_thinks_drafts_is_named_with_its_grade():
    lab = tl.Lab(tl.sim.SimConstrained(skill=0.3, noise=0.5, seed=6), runs=None)
    runs = (wait(lab.run(tl.DeepThink(), task)) for task in tl.domains.constrained_tasks(20)[10:])
    run = next(run for run in runs if not run.correct)
    drafts = {node.id: run.task.grade(node.text) for node in run.tree if node.score is not None}
    best = max(drafts.values())
    assert run.grade < best < 1
    why = why_it_failed(run)
    first = next(id for id, grade in drafts.items() if grade == best)
    assert why.text.startswith(f"Proposer: none of the {len(drafts)} answers that were written is right.")
    assert f"The best, at thought {first} (score " in why.text
    assert why.text.endswith(f"has the grade {best:.3g}.")
    assert why.nodes == tuple(id for id, grade in drafts.items() if grade == best)
