"""Two-phase tree of thought: the levels, the floor, the joint scores and what the loop is told. The design's
numbers are spelt out here, so that a changed default is seen."""

import json

import pytest
from support import TASK, Scripted, mostly_nightly, run, wait

import tot_lab as tl
from tot_lab.core.calls import Call, Reply, ToolCall
from tot_lab.core.tools import TOOL
from tot_lab.record.search_notes import notes_of
from tot_lab.testing import Trial, check_strategy, legs

ANSWERED = Reply(tool_calls=(ToolCall("a", "final-answer", '{"answer": "26"}'),))


def planner(scores, proposals=("look it up", "work it out", "guess")):
    """A model whose joint scores of a level are `scores(depth)`; it answers at once when it acts."""

    def reply(call):
        depth = call.node.count(".")
        if call.purpose == "propose":
            return "\n".join(f"{k}. {text} ({call.node})" for k, text in enumerate(proposals, 1))
        if call.purpose == "joint":
            found = scores(depth + 1)
            return found if isinstance(found, str) else json.dumps(list(found))
        if call.purpose == "value":
            return "score: 0.8"
        return ANSWERED

    return reply


def notes(made, name):
    return [note.data for note in notes_of(made) if note.name == name]


def kinds(model):
    return [call.purpose for call in model.calls]


RISING = {1: (0.9, 0.6, 0.5), 2: (0.96, 0.7, 0.6), 3: (1.0, 0.9, 0.8)}


def test_the_defaults_are_the_designs():
    made = tl.TreeThenAct()
    assert (made.propose.count, made.max_depth, made.min_score) == (3, 3, 0.5)
    assert (made.propose, made.evaluate) == (tl.Propose(), tl.evaluators.Joint())
    assert tl.part_of({"kind": "tree-of-thought"}) == made
    assert made.settings()["kind"] == "tree_then_act"


def test_three_levels_of_three_are_planned_and_then_it_acts():
    model = Scripted(planner(RISING.__getitem__))
    made = run(tl.TreeThenAct(), model=model)
    assert kinds(model).count("propose") == kinds(model).count("joint") == 1 + 3 + 3
    assert kinds(model)[14:] == ["act"]  # nothing acts before the plan is there
    assert [len(level["kept"]) for level in notes(made, "tot.pruned")] == [3, 3, 3]
    (planned,) = notes(made, "tree.planned")
    assert planned == {"steps": 3, "score": 1.0, "stop": "limit:depth"}
    assert (made.answer, made.stop_reason) == ("26", "answered")
    assert len(model.calls) <= tl.TreeThenAct().max_calls(TASK)


def test_the_loop_hangs_below_the_best_path_and_is_told_it():
    model = Scripted(planner(RISING.__getitem__))
    made = run(tl.TreeThenAct(), model=model)
    (acting,) = [call for call in model.calls if call.purpose == "act"]
    assert acting.node == "0.0.0.0.3"
    assert made.tree["0.0.0.0.3"].text == TASK.question
    assert made.solution_path[:4] == ["0", "0.0", "0.0.0", "0.0.0.0"]
    for number, step in enumerate(made.tree.texts("0.0.0.0"), 1):
        assert f"{number}. {step}" in acting.prompt


def test_thoughts_know_the_tools_and_none_is_called_for_them():
    model = Scripted(planner(RISING.__getitem__))
    made = Trial(tl.TreeThenAct(), reply=model.reply).run(model)
    for call in model.calls:
        if call.purpose in ("propose", "joint"):
            assert "- legs: How many legs an animal has." in call.prompt
            assert call.tools == ()
    assert not len(made.tools_df())
    lonely = Scripted(planner(RISING.__getitem__))
    run(tl.TreeThenAct(), model=lonely)
    assert not any("Tools that can be used" in call.prompt for call in lonely.calls)


def test_a_thought_below_the_floor_is_dropped_and_its_children_never_made():
    made = run(tl.TreeThenAct(max_depth=2), model=Scripted(planner(lambda depth: (0.6, 0.49, 0.5))))
    assert [made.tree[f"0.{k}"].state for k in range(3)] == ["kept", "pruned", "kept"]
    assert made.tree["0.1"].reason == "min_score"
    assert made.tree["0.1"].children == []


def test_no_more_than_the_breadth_survive_a_level():
    made = run(
        tl.TreeThenAct(propose=tl.Propose(count=2), max_depth=2), model=Scripted(planner(RISING.__getitem__))
    )
    second = [node for node in made.tree if node.depth == 2 and node.text != TASK.question]
    assert sorted(node.state for node in second) == ["kept", "kept", "pruned", "pruned"]
    assert {node.reason for node in second if node.state == "pruned"} == {"beam"}


@pytest.mark.parametrize(
    ("floor", "scores", "lowered", "kept"),
    [
        (0.5, (0.4, 0.34, 0.1), [0.35], 1),
        (0.5, (0.2, 0.1, 0.1), [0.35], 0),  # once, and no more
        (0.45, (0.3, 0.1, 0.1), [0.3], 1),
        (0.2, (0.16, 0.14, 0.1), [0.15], 1),  # never below 0.15
        (0.15, (0.1, 0.1, 0.1), [], 0),
        (0.5, (0.5, 0.1, 0.1), [], 1),  # only when all are weak
    ],
)
def test_the_floor_is_lowered_once_when_a_whole_level_is_weak(floor, scores, lowered, kept):
    strategy = tl.TreeThenAct(min_score=floor, max_depth=1)
    made = run(strategy, model=Scripted(planner(lambda depth: scores)))
    assert [round(note["min_score"], 9) for note in notes(made, "tree.threshold_lowered")] == lowered
    assert len(notes(made, "tot.pruned")[0]["kept"]) == kept
    assert made.answer == "26"


def test_the_floor_is_lowered_once_in_a_run():
    weak = {1: (0.4, 0.1, 0.1), 2: (0.3, 0.2, 0.1), 3: (0.9, 0.9, 0.9)}
    made = run(tl.TreeThenAct(), model=Scripted(planner(weak.__getitem__)))
    assert len(notes(made, "tree.threshold_lowered")) == 1
    (planned,) = notes(made, "tree.planned")
    assert planned == {"steps": 1, "score": 0.4, "stop": "exhausted"}


@pytest.mark.parametrize(("second", "levels"), [(0.94, 2), (0.95, 3), (0.96, 3), (0.5, 2)])
def test_two_levels_without_progress_end_the_planning(second, levels):
    scores = {1: (0.9, 0.1, 0.1), 2: (second, 0.1, 0.1), 3: (1.0, 0.1, 0.1)}
    made = run(tl.TreeThenAct(min_score_improvement=0.05), model=Scripted(planner(scores.__getitem__)))
    assert len(notes(made, "tot.level_started")) == levels
    (planned,) = notes(made, "tree.planned")
    assert planned["stop"] == ("stagnated" if levels == 2 else "limit:depth")
    assert planned["steps"] == levels


@pytest.mark.parametrize("second", [0.9, 0.5])
def test_r10_stagnation_does_not_end_the_planning_unless_it_is_set(second):
    scores = {1: (0.9, 0.1, 0.1), 2: (second, 0.1, 0.1), 3: (1.0, 0.1, 0.1)}
    made = run(tl.TreeThenAct(), model=Scripted(planner(scores.__getitem__)))
    (planned,) = notes(made, "tree.planned")
    assert (planned["stop"], planned["steps"]) == ("limit:depth", 3)


def test_r10_at_zero_only_a_fall_stagnates():
    """At 0 only a level that is worse than the one before it ends the planning."""
    for second, levels in ((0.9, 3), (0.89, 2)):
        scores = {1: (0.9, 0.1, 0.1), 2: (second, 0.1, 0.1), 3: (1.0, 0.1, 0.1)}
        strategy = tl.TreeThenAct(min_score_improvement=0.0)
        made = run(strategy, model=Scripted(planner(scores.__getitem__)))
        assert len(notes(made, "tot.level_started")) == levels
    assert tl.part_of(strategy.settings()) == strategy
    with pytest.raises(ValueError, match="min_score_improvement"):
        tl.TreeThenAct(min_score_improvement=1.5)


def test_a_joint_reply_that_cannot_be_read_is_asked_one_by_one():
    model = Scripted(planner(lambda depth: "They are all good."))
    made = run(tl.TreeThenAct(max_depth=1), model=model)
    assert kinds(model) == ["propose", "joint", "value", "value", "value", "act"]
    assert [(made.tree[f"0.{k}"].score, made.tree[f"0.{k}"].by) for k in range(3)] == [(0.8, "value")] * 3
    assert len(model.calls) <= tl.TreeThenAct(max_depth=1, strategy=tl.OneAnswer()).max_calls(TASK)


def test_what_no_reply_states_is_no_score_and_is_dropped():
    def reply(call):
        return "???" if call.purpose in ("joint", "value") else planner(RISING.__getitem__)(call)

    made = run(tl.TreeThenAct(), model=Scripted(reply))
    assert [made.tree[f"0.{k}"].score for k in range(3)] == [None] * 3
    assert {made.tree[f"0.{k}"].reason for k in range(3)} == {"unreadable"}
    assert notes(made, "tree.planned") == [{"steps": 0, "score": None, "stop": "exhausted"}]
    assert made.answer == "26"  # it acts without a plan


def test_a_planning_that_fails_leaves_a_loop_without_a_plan():
    def reply(call):
        if call.purpose != "act":
            raise ConnectionError("no route")
        return ANSWERED

    made = run(tl.TreeThenAct(), model=Scripted(reply))
    assert notes(made, "tree.planned")[0]["stop"] == "error"
    assert (made.answer, made.stop_reason) == ("26", "answered")


def test_refused_while_planning_it_gives_what_it_has():
    made = run(tl.TreeThenAct(), model=Scripted(planner(RISING.__getitem__)), budget=tl.Budget(calls=2))
    assert made.stop_reason == "budget:calls"
    assert made.answer.startswith("look it up")
    assert made.best.id == "0.0"


def test_the_bound_on_calls_is_reached():
    """7 expansions of a proposal, a joint score that cannot be read, and 3 values; then one answer."""
    best = {1: "0.81", 2: "0.9", 3: "0.99"}

    def reply(call):
        if call.purpose == "value":
            return f"score: {best[call.node.count('.')]}"
        return "???" if call.purpose == "joint" else planner(RISING.__getitem__)(call)

    model, strategy = Scripted(reply), tl.TreeThenAct(strategy=tl.OneAnswer())
    run(strategy, model=model)
    assert len(model.calls) == strategy.max_calls(TASK) == 7 * 5 + 1


def test_a_path_that_needs_no_further_step_is_not_gone_on_from():
    task = tl.game24("4 5 6 10")
    made = wait(
        tl.Lab("sim/game24", runs=None).run(tl.TreeThenAct(strategy=tl.OneAnswer(), min_score=0.0), task)
    )
    for node in made.tree:
        if node.state == "complete":
            assert task.domain.complete(task, made.steps(node.id))
            assert all(made.tree[child].text == task.question for child in node.children)
    assert any(node.state == "complete" for node in made.tree)


@pytest.mark.nightly
def test_any_strategy_acts_and_nests():
    inner = tl.TreeThenAct(max_depth=1, strategy=tl.TreeThenAct(max_depth=1, strategy=tl.ChainOfThought()))
    check_strategy(inner)
    check_strategy(tl.BestOf(strategy=tl.TreeThenAct(propose=tl.Propose(count=2), max_depth=2), attempts=2))


@pytest.mark.nightly
@pytest.mark.parametrize("generate", mostly_nightly(["propose", "sample"], ["propose"]))
@pytest.mark.parametrize("evaluate", mostly_nightly(["joint", "value", "logprob"], ["joint"]))
def test_it_keeps_the_contract_however_thoughts_are_made(generate, evaluate):
    propose = {"propose": tl.Propose, "sample": tl.Sample}[generate](count=2, max_parse_retries=1)
    check_strategy(tl.TreeThenAct(propose=propose, evaluate=evaluate))


@pytest.mark.parametrize(
    "wrong", [{"evaluate": "vote"}, {"max_depth": 0}, {"min_score": 1.5}, {"propose": tl.WithTools()}]
)
def test_bad_settings_are_named(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        tl.TreeThenAct(**wrong)


def test_tools_act_below_the_plan_and_nowhere_else():
    found = [Trial(tl.TreeThenAct()).run(repeat=repeat) for repeat in range(6)]
    calls = [
        (made, call)
        for made in found
        for call in made.events
        if isinstance(call, Call) and call.purpose == TOOL
    ]
    assert calls, f"none of {len(found)} runs called {legs.name}"
    for made, call in calls:
        (planned,) = [note for note in notes_of(made) if note.name == "tree.planned"]
        assert call.node.startswith(f"{planned.at}.3.")
