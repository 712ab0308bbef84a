"""A branch is its parent with one thing changed: the rest comes free, and it knows where it is from."""

import asyncio
import json
from typing import ClassVar

import msgspec
import pytest
from support import TASK, Scripted, answer_to, resealed, run, shuffled, wait
from support.endpoint import scripted

import tot_lab as tl
from tot_lab.core.calls import Call, Reply, refused
from tot_lab.core.protocol import map_steps
from tot_lab.core.records import Decided, Note, Scored, Thought, parent_of
from tot_lab.strategies.continued import Continued

SEARCH = tl.TreeOfThoughts(propose=tl.Sample(count=2), stop=tl.Stop(depth=3, solved=None))
HAND = tl.game24("4 5 6 10")


def priced(call):
    return Reply(answer_to(call), cost=0.5, input_tokens=1, output_tokens=1)


def branched(made, node, model=None, runs=None, budget=None, **change):
    lab = tl.Lab(model or Scripted(), runs=runs)
    return wait(lab.branch(made, node, budget=budget, **change))


def calls_of(made):
    return [line.e for line in made.lines if isinstance(line.e, Call)]


def anew(made, parent):
    """The calls of `made` that its parent's record does not answer."""
    answered = {e.p for e in parent.lines if isinstance(e.e, Reply) and not refused(e.e.error)}
    known = [repr(line.e) for line in parent.lines if isinstance(line.e, Call) and line.p in answered]
    return [call for call in calls_of(made) if repr(call) not in known]


@pytest.fixture(scope="module")
def parent():
    return run(SEARCH, model=Scripted(priced))


# The same search, one thing changed.


def test_another_text_is_what_the_search_goes_on_with(parent):
    kept = next(node.id for node in parent.tree if node.depth == 1 and node.state == "kept")
    model = Scripted(priced)
    seen = []
    lab = tl.Lab(model, runs=None)
    made = wait(lab.branch(parent, kept, content="  eight legs each  ", watch=seen.extend))
    # What is watched has the notes of the search's levels too, which follow from the records.
    assert [line for line in seen if line in made.lines] == made.lines
    assert lab.last is made
    assert made.tree[kept].text == "eight legs each"
    assert made.parent == {"run": parent.id, "node": kept, "content": "eight legs each"}
    below = [call for call in calls_of(made) if call.node.startswith(kept)]
    assert below
    assert all("eight legs each" in call.prompt for call in below)
    assert all(parent.tree[kept].text not in call.prompt for call in below)
    assert model.calls == anew(made, parent)
    assert made.usage.paid == 0.5 * len(model.calls) < made.usage.cost == 0.5 * made.usage.calls
    assert wait(made.replay()) == (True, len(made.events), None)


def test_another_score_changes_who_is_expanded_and_nothing_before(parent):
    dropped = next(node.id for node in parent.tree if node.state == "pruned")
    model = Scripted(priced)
    made = branched(parent, dropped, model, score=1)
    node = made.tree[dropped]
    assert (node.score, node.raw, node.samples, node.by) == (1.0, None, (), "person")
    assert node.children
    assert not parent.tree[dropped].children
    assert model.calls == anew(made, parent)
    assert all(call.node.startswith(dropped) for call in model.calls)
    assert wait(made.replay()).identical


def test_what_a_branch_did_not_ask_shows_in_its_record(parent):
    made = branched(parent, "0.0", score=0.5)
    frame = made.calls_df()
    free = frame[frame.source == "cache"]
    assert len(free) == len(frame) - len(anew(made, parent)) > 0
    assert free.paid.tolist() == [0.0] * len(free)
    notes = [line.e.data["run"] for line in made.lines if isinstance(line.e, Note) and "run" in line.e.data]
    assert notes == [parent.id] * len(free)


def test_a_change_to_what_is_there_changes_nothing_and_costs_nothing(parent):
    model = Scripted()
    made = branched(parent, "0.1", model, content=parent.tree["0.1"].text)
    assert made.events == parent.events
    assert model.calls == []


@pytest.mark.slow
def test_a_branch_does_not_depend_on_latency(parent):
    first = branched(parent, "0.0", content="another start")
    for seed in range(4):
        model = Scripted(priced, latency=shuffled(seed))
        again = branched(parent, "0.0", model, content="another start")
        assert again.events == branched(parent, "0.0", Scripted(priced), content="another start").events
    assert first.tree["0.0"] == again.tree["0.0"]


def test_a_branch_of_a_branch_keeps_both_changes(parent):
    first = branched(parent, "0.0", content="a first change")
    other = branched(first, "0.1", score=0.25)
    last = branched(other, "0.0", content="a last change")
    assert last.tree["0.0"].text == "a last change"
    assert (last.tree["0.1"].score, last.tree["0.1"].by) == (0.25, "person")
    assert last.parent["before"]["before"] == first.parent
    for made in (first, other, last):
        assert wait(made.replay()).identical


def test_a_failed_call_stays_failed_and_a_refused_one_is_asked():
    def failing(call):
        return (
            Reply(error="overloaded: no")
            if call.node == "0.1" and call.purpose == "value"
            else answer_to(call)
        )

    failed = run(SEARCH, model=Scripted(failing))
    assert failed.tree["0.1"].state == "failed"
    assert branched(failed, "0.0", content="anew").tree["0.1"].state == "failed"

    cut = run(SEARCH, budget=tl.Budget(calls=5))
    model = Scripted()
    made = branched(cut, "0.0", model, content="anew", budget=tl.Budget(calls=50))
    assert cut.stop_reason == "budget:calls"
    assert made.stop_reason != "budget:calls"
    assert model.calls == anew(made, cut)
    assert 0 < made.usage.calls - len(model.calls) < cut.usage.calls


def test_the_budget_is_the_parents_unless_another_is_given():
    capped = run(SEARCH, budget=tl.Budget(calls=8))
    for budget, most in ((None, 8), (tl.Budget(calls=6), 6)):
        made = branched(capped, "0.0", budget=budget, content="anew")
        assert made.header.budget == {"calls": most}
        assert made.usage.calls == most


def test_a_search_that_ends_before_the_change_says_so(parent):
    deep = next(node.id for node in parent.tree if node.depth == 3)
    with pytest.warns(RuntimeWarning, match=rf"before it reached thought {deep}: nothing was changed"):
        made = branched(parent, deep, budget=tl.Budget(calls=3), content="never")
    assert deep not in made.tree


class Deaf(tl.Strategy):
    """Yields what it thinks and never looks at what was recorded."""

    kind = "test_branch.deaf"

    def think(self, task, at="0"):
        yield Thought(at, parent_of(at), task.question)
        yield Thought(f"{at}.0", at, "the old text")
        yield Scored(f"{at}.0", 0.5)
        prompt = task.domain.sample_prompt(task, ["the old text"])
        yield from tl.ask(tl.Call(f"{at}.0", "sample", (tl.records.Message("user", prompt),)))
        return tl.Answer("x", "answered", f"{at}.0", 0.5)


def test_a_strategy_that_does_not_go_on_with_the_change_is_told_of():
    made = run(Deaf())
    with pytest.warns(RuntimeWarning, match=r"Thought 0\.0: the strategy continued with the old text"):
        branched(made, "0.0", content="the new text")
    with pytest.warns(RuntimeWarning, match=r"Thought 0\.0: the strategy continued with the old score"):
        branched(made, "0.0", score=0.75)


# What cannot be.


def own():
    with tl.Recorder("own", task=TASK) as recorder:
        recorder.thought("a step", recorder.thought("the problem"))
    return recorder.run


def unfinished(made):
    return tl.Run(made.header, made.lines[:-1])


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({}, ValueError, "exactly one change: pass one of content=, score= and strategy="),
        ({"content": "a", "score": 1}, ValueError, "exactly one change"),
        ({"node": "0.9", "score": 1}, ValueError, r"node must be a thought of this run: got '0\.9'"),
        ({"node": "0", "content": "x"}, ValueError, "Thought 0 is the question"),
        ({"node": "0", "score": 0.5}, ValueError, "Thought 0 is the question"),
        ({"content": " "}, ValueError, r"can read at thought 0\.0: got ' '"),
        ({"content": 5}, TypeError, "content must be a string: got 5"),
        ({"score": 1.5}, ValueError, "score must be a number between 0 and 1: got 1.5"),
        ({"score": True}, ValueError, "score must be a number between 0 and 1: got True"),
        ({"strategy": tl.OneAnswer}, TypeError, "strategy must be a Strategy such as"),
        ({"score": 1, "budget": 5}, TypeError, "budget must be a Budget"),
        ({"run": 7, "score": 1}, TypeError, "run must be a Run, such as lab.last: got 7"),
        ({"run": own, "score": 1}, LookupError, "was not made by a strategy"),
        ({"run": own, "strategy": tl.OneAnswer()}, LookupError, "was not made by a strategy"),
    ],
)
def test_what_cannot_be_branched_says_why(parent, change, error, says):
    made = change.pop("run", parent)
    made = made() if callable(made) else made
    lab = tl.Lab(Scripted(), runs=None)
    with pytest.raises(error, match=says):
        wait(lab.branch(made, change.pop("node", "0.0"), **change))
    assert lab.last is None


def test_a_run_that_goes_on_cannot_be_branched(parent):
    with pytest.raises(ValueError, match=r"has not ended\. Finish it with lab\.resume"):
        branched(unfinished(parent), "0.0", score=1)


def test_a_thought_that_got_no_score_has_none_to_replace():
    made = run(tl.OneAnswer())
    with pytest.raises(ValueError, match=r"Thought 0\.0 has no score in this run"):
        branched(made, "0.0", score=1)


def test_the_root_of_a_nested_search_is_no_thought_to_change():
    made = run(tl.BestOf(strategy=SEARCH, attempts=2))
    with pytest.raises(ValueError, match=r"Thought 0\.1 is the question"):
        branched(made, "0.1", content="x")


def test_another_model_cannot_go_on_with_the_same_search():
    made = wait(tl.Lab("sim/game24", runs=None).run(SEARCH, HAND))
    with pytest.raises(ValueError, match="must have the model of the run"):
        branched(made, "0.0", score=1)
    assert branched(made, "0.0", strategy=tl.OneAnswer()).model != made.model


def test_functions_that_a_file_does_not_hold(tmp_path):
    judged = tl.TreeOfThoughts(evaluate=lambda task, path: 0.5)
    made = wait(tl.Lab(Scripted(), runs=tmp_path).run(judged, TASK))
    assert branched(made, "0.0", content="anew").tree["0.0"].score == 0.5
    with pytest.raises(LookupError, match="Branch it in the session that made it"):
        branched(tl.load(made.path), "0.0", content="anew")
    assert branched(tl.load(made.path), "0.0", strategy=SEARCH).stop_reason


# The Game of 24 can tell a step from nonsense.


def test_a_step_of_a_game_is_put_in_its_exact_form():
    lab = tl.Lab("sim/game24", runs=None)
    made = wait(lab.run(SEARCH, HAND))
    assert wait(lab.branch(made, "0.0", content="10-4=6")).tree["0.0"].text == "10 - 4 = 6 (left: 5 6 6)"
    for nonsense in ("banana", "10 - 4 = 7", "9 + 9 = 18"):
        with pytest.raises(
            ValueError, match=rf"can read at thought 0\.0: got '{nonsense}'".replace("+", r"\+")
        ):
            wait(lab.branch(made, "0.0", content=nonsense))


def test_an_answer_of_a_game_may_be_any_expression():
    lab = tl.Lab("sim/game24", runs=None)
    made = wait(lab.run(tl.OneAnswer(), HAND))
    right = wait(lab.branch(made, "0.0", content="Answer: (10 - 6) * 5 + 4"))
    assert (right.answer, right.correct) == ("(10 - 6) * 5 + 4", True)
    with pytest.raises(ValueError, match=r"can read at thought 0\.0: got 'banana'"):
        wait(lab.branch(made, "0.0", content="banana"))


# Another strategy goes on.


def test_another_strategy_goes_on_from_a_thought(parent):
    node = next(node for node in parent.tree if node.depth == 2 and node.state == "pruned")
    model = Scripted(priced)
    made = branched(
        parent, node.id, model, strategy=tl.TreeOfThoughts(propose=tl.Sample(count=3), stop=tl.Stop(depth=2))
    )
    path = [above.id for above in parent.tree.path(node.id)]
    assert [n.id for n in made.tree][: len(path)] == path
    for id in path:
        then, now = parent.tree[id], made.tree[id]
        assert (now.text, now.score, now.samples, now.by) == (then.text, then.score, then.samples, then.by)
    assert made.tree[node.id].state != "pruned"
    assert made.tree[node.id].children == [f"{node.id}.{k}" for k in range(3)]
    assert len(model.calls) == made.usage.calls
    for call in model.calls:
        assert all(text in call.prompt for text in parent.tree.texts(node.id))
    assert made.best.id.startswith(node.id)
    assert (
        made.parent["strategy"]
        == tl.TreeOfThoughts(propose=tl.Sample(count=3), stop=tl.Stop(depth=2)).settings()
    )
    assert wait(made.replay()).identical


def test_a_game_goes_on_with_the_numbers_that_are_left():
    lab = tl.Lab("sim/game24", runs=None)
    made = wait(lab.run(SEARCH, HAND))
    step = wait(lab.branch(made, "0.0", content="10 - 6 = 4"))
    for strategy in (
        tl.TreeOfThoughts(propose=tl.Sample(count=4), search=tl.BeamSearch(width=4)),
        tl.ChainOfThought(),
    ):
        on = wait(lab.branch(step, "0.0", strategy=strategy))
        assert all("4 5 6 10" in call.prompt and "(left: 4 4 5)" in call.prompt for call in calls_of(on))
        assert on.stop_reason in ("solved", "answered", "exhausted", "limit:depth")
    assert wait(
        lab.branch(
            step, "0.0", strategy=tl.TreeOfThoughts(propose=tl.Sample(count=6), search=tl.BeamSearch(width=6))
        )
    ).correct


@pytest.mark.slow
def test_r11_a_route_by_domain_holds_where_adaptive_goes_on_from_a_thought():
    """What goes on sees a task of its own domain."""
    lab = tl.Lab("sim/game24", runs=None)
    made = wait(lab.run(tl.presets.game24(), tl.game24("4 5 6 10")))
    node = next(node.id for node in made.tree if node.depth == 1)
    strategies = {"reactive": tl.OneAnswer(), "mine": tl.OneAnswer()}
    router = tl.Adaptive(strategies=strategies, routes={"game24": "mine"})
    branch = wait(lab.branch(made, node, strategy=router))
    assert tl.stats.routed(branch)[:4] == ("mine", "mine", "game24", "table")
    rules = wait(lab.branch(made, node, strategy=tl.Adaptive(strategies=strategies)))
    assert tl.stats.routed(rules).why == "the domain 'game24' tells states apart"
    assert wait(branch.replay()).identical
    loaded = tl.part_of(branch.strategy.settings())
    assert loaded == branch.strategy


def test_nothing_follows_from_a_complete_path():
    lab = tl.Lab("sim/game24", runs=None)
    made = wait(lab.run(tl.TreeOfThoughts(propose=tl.Sample(count=6), search=tl.BeamSearch(width=6)), HAND))
    assert made.correct
    with pytest.raises(ValueError, match=rf"The path to thought {made.best.id} is complete"):
        wait(lab.branch(made, made.best.id, strategy=SEARCH))


def test_an_evaluator_of_a_persons_own_sees_the_whole_path_and_the_task_itself(parent):
    seen = []

    def judge(task, path):
        seen.append((task.domain, list(path)))
        return 0.5

    node = parent.best.id
    for strategy in (
        tl.TreeOfThoughts(evaluate=judge, stop=tl.Stop(depth=1)),
        tl.BestOf(strategy=tl.OneAnswer(), evaluate=judge),
    ):
        branched(parent, node, strategy=strategy)
    assert {repr(domain) for domain, _ in seen} == {repr(TASK.domain)}
    steps = parent.tree.texts(node)
    assert all(path[: len(steps)] == steps and len(path) == len(steps) + 1 for _, path in seen)


def test_going_on_is_a_strategy_like_any_other(parent):
    made = branched(parent, parent.best.id, strategy=SEARCH)
    again = tl.part_of(made.header.strategy)
    assert isinstance(again, Continued)
    assert again == made.strategy
    assert made.usage.calls <= again.max_calls(TASK) == SEARCH.max_calls(TASK)
    assert run(again).tree == made.tree
    # and so it can be branched again, in either way
    changed = branched(made, "0.0", content="another first step") if "0.0" in made.tree else made
    assert wait(changed.replay()).identical
    further = branched(made, made.best.id, strategy=tl.OneAnswer())
    assert [node.id for node in further.tree.path(further.best.id)][-2] == made.best.id
    assert further.header.strategy["strategy"]["kind"] == "one_answer"


# A task with earlier steps.

AFTER = TASK.model_copy(update={"steps": ("one spider has 8", "so three have 24")})


def test_earlier_steps_are_written_only_if_there_are_any():
    assert "steps" not in TASK.settings()
    settings = json.loads(json.dumps(AFTER.settings()))
    assert settings["steps"] == ["one spider has 8", "so three have 24"]
    assert tl.Task.model_validate(settings) == AFTER
    with pytest.raises(ValueError, match="steps"):
        tl.Task.model_validate({**settings, "steps": ["\ud800"]})


def test_a_path_begins_with_the_earlier_steps():
    assert AFTER.path(["and a duck 2"]) == [*AFTER.steps, "and a duck 2"]
    assert TASK.path(["and a duck 2"]) == ["and a duck 2"]
    assert AFTER.without_steps() == TASK


def test_a_prompt_without_a_path_shows_the_earlier_steps_after_the_context():
    task = AFTER.model_copy(update={"context": "an earlier lesson"})
    known = "an earlier lesson\n\nThe steps taken so far:\n1. one spider has 8\n2. so three have 24"
    shown = TASK.model_copy(update={"context": known})
    for reasoning in (False, True):
        assert task.answer_prompt(reasoning) == shown.domain.answer_prompt(shown, reasoning)
        assert TASK.answer_prompt(reasoning) == TASK.domain.answer_prompt(TASK, reasoning)


@pytest.mark.parametrize("strategy", [SEARCH, tl.TreeThenAct(), tl.Reflexion(strategy=SEARCH)])
def test_a_run_on_a_task_with_earlier_steps_is_what_another_goes_on_with(parent, strategy):
    """Whether the steps stand in the task or in the record, the model is asked the same."""
    begun = branched(parent, "0.0", strategy=strategy)
    alone = run(strategy, task=TASK.model_copy(update={"steps": (parent.tree["0.0"].text,)}))
    prompts = [[call.prompt for call in calls_of(made)] for made in (begun, alone)]
    assert prompts[0] == prompts[1]
    assert alone.answer == begun.answer
    node = alone.best.id
    assert alone.steps(node) == begun.steps(begun.best.id)
    assert wait(alone.replay()).identical


def test_a_run_with_earlier_steps_is_saved_and_branched(tmp_path):
    made = wait(tl.Lab(Scripted(), runs=tmp_path).run(SEARCH, AFTER))
    again = tl.load(made.path)
    assert again.task.steps == AFTER.steps
    assert again.steps("0.0") == [*AFTER.steps, made.tree["0.0"].text]
    for strategy in (tl.OneAnswer(), SEARCH):
        further = branched(again, "0.0", strategy=strategy)
        assert all(step in call.prompt for call in calls_of(further) for step in again.steps("0.0"))
    changed = branched(again, "0.0", content="and a duck 2")
    assert changed.steps("0.0") == [*AFTER.steps, "and a duck 2"]
    text = made.path.read_bytes().replace(b'"steps":["one spider has 8"', b'"steps":[8', 1)
    made.path.write_bytes(resealed(text))
    with pytest.raises(ValueError, match="steps"):
        tl.load(made.path)


@pytest.mark.parametrize(
    "record",
    [
        [],
        [{"type": "thought", "id": "0.1", "parent": "0", "text": "x"}],
        [{"type": "call"}],
        [{"type": "thought", "id": "0", "parent": None, "text": 5}],
    ],
)
def test_a_record_that_is_no_path_is_refused(record):
    with pytest.raises(ValueError, match="record"):
        Continued(strategy=SEARCH, record=record)


def test_a_search_with_a_budget_of_its_own_goes_on(parent):
    capped = tl.TreeOfThoughts(propose=tl.Sample(count=2), budget=tl.Budget(calls=5))
    made = branched(parent, "0.1", strategy=capped)
    assert made.usage.calls == 5
    assert made.tree["0.1"].score == parent.tree["0.1"].score
    assert wait(made.replay()).identical


def test_a_game_that_goes_on_knows_its_states_its_scale_and_its_end():
    lab = tl.Lab("sim/game24", runs=None)
    begun = wait(lab.run(tl.TreeOfThoughts(propose=tl.Propose(count=8), stop=tl.Stop(depth=1)), HAND))
    search = tl.TreeOfThoughts(
        propose=tl.Propose(count=8), search=tl.BeamSearch(width=8), stop=tl.Stop(solved=None), merge=True
    )
    node = next(id for id in begun.tree.root.children if HAND.domain.solvable(HAND, begun.steps(id)))
    made = wait(lab.branch(begun, node, strategy=search))
    merged = [thought for thought in made.tree if thought.merged]
    assert merged
    for thought in merged:
        states = [HAND.domain.state(HAND, made.steps(id)) for id in (thought.id, thought.merged)]
        assert states[0] == states[1] is not None
    judged = [thought for thought in made.tree if thought.by == "value"]
    assert len(judged) > 1
    assert all(thought.score == thought.raw / HAND.domain.value_top for thought in judged)
    done = [event.id for event in made.events if isinstance(event, Decided) and event.what == "complete"]
    assert done
    assert all(HAND.domain.complete(HAND, made.steps(id)) for id in done)


def test_an_edit_does_not_outlive_a_change_of_strategy(parent):
    node = parent.solution_path[1]
    child = parent.tree[node].children[0]
    edited = branched(parent, child, content="by hand")
    made = branched(edited, node, strategy=SEARCH)
    assert child in made.tree
    assert made.tree[child].text != "by hand"
    assert branched(made, made.tree[node].children[1], content="again").tree[child].text != "by hand"


def test_a_call_that_has_changed_is_asked_again(parent):
    class Warm(Deaf):
        kind = "test_branch.warm"
        temperature: ClassVar[float] = 0.0

        def think(self, task, at="0"):
            def warmer(call):
                return msgspec.structs.replace(call, temperature=self.temperature)

            return (yield from map_steps(warmer, super().think(task, at)))

    made = run(Warm())
    for temperature, asked in ((0.0, 0), (1.0, 1)):
        Warm.temperature = temperature
        model = Scripted()
        branched(made, "0.0", model, score=0.5)
        assert len(model.calls) == asked


def test_a_repeat_that_was_given_a_text_of_its_own_is_scored():
    def twice(call):
        return "1. the same\n2. the same" if call.purpose == "propose" else "score: 0.5"

    made = run(tl.TreeOfThoughts(propose="propose", stop=tl.Stop(depth=1)), model=Scripted(twice))
    assert made.tree["0.1"].state == "duplicate"
    changed = branched(made, "0.1", Scripted(twice), content="another")
    assert (changed.tree["0.1"].score, changed.tree["0.1"].state) == (0.5, "kept")
    assert branched(made, "0.0", Scripted(twice), content="another").tree["0.1"].state == "duplicate"


# On disk.

CHANGES = {
    "content": {"content": "another first step"},
    "score": {"score": 0.125},
    "strategy": {"strategy": tl.TreeOfThoughts(propose=tl.Sample(count=2), stop=tl.Stop(depth=2))},
}


@pytest.mark.nightly
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_killed_branch_is_finished_and_nothing_is_paid_twice(tmp_path, change):
    base = wait(tl.Lab(Scripted(), runs=tmp_path).run(SEARCH, TASK))
    model = Scripted(latency=shuffled(3))
    whole = branched(base, "0.1", model, runs=tmp_path, **change)
    assert wait(tl.load(whole.path).replay()) == (True, len(whole.events), None)
    assert tl.load(whole.path).parent == whole.parent
    lines = whole.path.read_bytes().splitlines(keepends=True)
    free = {
        tuple(line.e.data["call"])
        for line in whole.lines
        if isinstance(line.e, Note) and "run" in line.e.data
    }
    for cut in range(1, len(lines)):
        path = tmp_path / f"cut-{cut}.jsonl"
        path.write_bytes(b"".join(lines[:cut]) + lines[cut][: len(lines[cut]) // 2])
        known = [line.p for line in tl.load(path).lines if isinstance(line.e, Reply)]
        rest = Scripted()
        resumed = wait(tl.Lab(rest, runs=None).resume(path))
        assert resumed.events == whole.events
        assert len(rest.calls) == len(model.calls) - len(set(known) - free)
        assert resumed.tree["0.1"] == whole.tree["0.1"]


def test_a_branch_whose_parent_is_elsewhere_asks_for_it(tmp_path):
    base = wait(tl.Lab(Scripted(), runs=tmp_path / "here").run(SEARCH, TASK))
    whole = branched(base, "0.1", runs=tmp_path / "there", content="anew")
    cut = tmp_path / "there" / "cut.jsonl"
    cut.write_bytes(b"".join(whole.path.read_bytes().splitlines(keepends=True)[:4]))
    before = cut.read_bytes()
    for wrong in ({}, {"parent": whole}):
        with pytest.raises(LookupError, match=f"branched from run {base.id}.*Pass it as parent="):
            wait(tl.Lab(Scripted(), runs=None).resume(cut, **wrong))
    assert cut.read_bytes() == before
    model = Scripted()
    assert wait(tl.Lab(model, runs=None).resume(cut, parent=base)).events == whole.events
    assert len(model.calls) == len(anew(whole, base))


def test_a_cancelled_branch_has_a_valid_run_and_is_finished(tmp_path):
    base = wait(tl.Lab(Scripted(), runs=tmp_path).run(SEARCH, TASK))

    async def cancelled():
        lab = tl.Lab(Scripted(latency=lambda call: 0.01), runs=tmp_path)
        running = asyncio.ensure_future(lab.branch(base, "0.0", content="anew"))
        await asyncio.sleep(0.005)
        running.cancel()
        await asyncio.wait([running])
        return lab.last

    cut = wait(cancelled())
    assert cut.stop_reason == "cancelled"
    assert wait(cut.replay()).identical
    resumed = wait(tl.Lab(Scripted(), runs=None).resume(cut.path))
    assert resumed.events == branched(base, "0.0", content="anew").events


@pytest.mark.slow
def test_what_a_parent_answered_need_not_be_in_the_cache(tmp_path):
    model = scripted(answer_to)
    made = wait(tl.Lab(model, runs=None, cache=tmp_path / "calls").run(SEARCH, TASK))
    lab = tl.Lab(model, runs=None, cache=tmp_path / "other")
    made = wait(lab.branch(made, "0.0", content="anew"))
    assert wait(made.replay()).identical


def test_a_header_that_tells_nonsense_of_a_branch_is_refused(tmp_path, parent):
    path = branched(parent, "0.0", content="anew").save(tmp_path / "a.jsonl")
    path.write_bytes(resealed(path.read_bytes().replace(b'"content":"anew"', b'"content":5', 1)))
    with pytest.raises(ValueError, match="content"):
        wait(tl.load(path).replay())


def test_decisions_that_took_a_thought_out_are_left_behind(parent):
    made = branched(parent, parent.best.id, strategy=tl.OneAnswer())
    above = [e for e in made.events if isinstance(e, Decided) and e.id in parent.solution_path]
    assert {e.what for e in above} == {"kept"}
