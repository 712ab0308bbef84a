"""Deep Think: its stages, what goes from one iteration to the next, when it stops, and what becomes of
replies that cannot be read (D1 to D6, D8, D9, D12, D16)."""

import asyncio
import json

import msgspec
import pytest
from support import Scripted, run, wait

import tot_lab as tl
from tot_lab.core.calls import Call, Reply
from tot_lab.strategies.deep_think_replies import matched

TASK = tl.open_ended("Where should the shop keep its orders?")
NAMES = ("one file", "a database", "a queue", "a ledger", "paper")


def branches(names=NAMES[:3]):
    told = {"rationale": "It is known.", "risks": "It may not fit."}
    return json.dumps({"branches": [{"name": name, "strategy": f"Use {name}.", **told} for name in names]})


def development(name, **more):
    told = {
        "plan": f"Plan {name}.",
        "execution": "Done.",
        "solution": f"Keep them in {name}.",
        "observation": f"Checked {name}.",
        "reflection": "It held.",
        "confidence": 6,
        "strengths": [f"{name} is simple"],
        "weaknesses": [f"{name} is slow"],
    }
    return json.dumps({**told, **more})


def convergence(scores=(), names=NAMES, **more):
    """scores: of each branch, on all four criteria, by name."""
    criteria = ("correctness", "completeness", "elegance", "practicality")
    judged = [
        {"name": name, "verdict": f"{name}: fair", **dict.fromkeys(criteria, score)}
        for name, score in zip(names, scores, strict=False)
    ]
    told = {
        "evaluations": judged,
        "reflection": {
            "patterns": ["all write to disk"],
            "mistakes": ["no backup"],
            "missed": ["the tax office"],
            "insights": ["orders are few"],
        },
        "synthesis": {"solution": "Keep them in a database, with a backup.", "reasoning": "A backup helps."},
        "confidence": 7,
        "should_continue": True,
        "next_focus": "the tax office",
    }
    return json.dumps({**told, **more})


def approach_of(call):
    """The name of the approach that DEVELOP is told of."""
    return call.prompt.rpartition("<approach>\n")[2].partition("\n")[0]


def thinker(*converged, names=NAMES[:3], develop=development):
    """A model whose CONVERGE replies are `converged`, one an iteration, the last of them again and again."""
    left = list(converged or [convergence((5, 8, 2))])

    def reply(call):
        if call.kind == "branch":
            return branches(names)
        if call.kind == "develop":
            return develop(approach_of(call))
        return left.pop(0) if len(left) > 1 else left[0]

    return Scripted(reply)


def kinds(model):
    return [call.kind for call in model.calls]


def prompts(model, kind):
    return [call.prompt for call in model.calls if call.kind == kind]


def notes(made, name):
    return [event.data for event in made.events if isinstance(event, tl.Note) and event.name == name]


def iterations(made):
    return [msgspec.convert(data, tl.IterationResult) for data in notes(made, "deep_think.iteration")]


def test_d1_n_plus_2_calls_an_iteration_and_fifteen_with_the_defaults():
    model = thinker()
    made = run(tl.DeepThink(), TASK, model)
    assert kinds(model) == ["branch", "develop", "develop", "develop", "converge"] * 3
    assert made.stopped == "limit:iterations"
    assert made.answer == "Keep them in a database, with a backup."
    model = thinker(convergence((5, 8, 2), should_continue=False), names=NAMES)
    run(tl.DeepThink(num_branches=5), TASK, model)
    assert len(model.calls) == 5 + 2


def test_d1_what_the_stages_ask_for():
    model = thinker()
    run(tl.DeepThink(max_iterations=1), TASK, model)
    asked = {call.kind: call.prompt for call in model.calls}
    for key in ("name", "strategy", "rationale", "risks"):
        assert f'"{key}"' in asked["branch"]
    for key in ("plan", "execution", "solution", "observation", "reflection", "confidence", "strengths"):
        assert f'"{key}"' in asked["develop"]
    for key in (
        *("evaluations", "correctness", "completeness", "elegance", "practicality", "verdict"),
        *("reflection", "patterns", "mistakes", "missed", "insights", "synthesis", "reasoning"),
        *("confidence", "should_continue", "next_focus"),
    ):
        assert f'"{key}"' in asked["converge"]
    for name in NAMES[:3]:
        assert f"Keep them in {name}." in asked["converge"]
        assert f"{name} is slow" in asked["converge"]


def test_d2_branches_differ_and_later_ones_are_told_what_came_before():
    model = thinker(convergence((5, 8, 2)))
    run(tl.DeepThink(max_iterations=2), TASK, model)
    first, second = prompts(model, "branch")
    for asked in (first, second):
        assert "must differ in method, in perspective and in level of abstraction" in asked
        assert "3 different approaches" in asked
    assert "iteration" not in first
    for told in (
        *("This is iteration 2", "a confidence of 7 of 10", "Keep them in a database, with a backup."),
        *("all write to disk", "no backup", "Missed by all: the tax office", "orders are few"),
        "Look at this first:\nthe tax office",
        *("Keep them in a database.", "Keep them in one file."),  # the beam
    ):
        assert told in second
    assert "Keep them in a queue." not in second


def test_d3_develop_goes_through_its_stages_in_one_prompt():
    model = thinker()
    run(tl.DeepThink(max_iterations=1), TASK, model)
    asked = prompts(model, "develop")
    assert len(asked) == 3
    for prompt, name in zip(asked, NAMES, strict=False):
        stages = [prompt.index(stage) for stage in ("Plan:", "Execute:", "Observe:", "Reflect:")]
        assert stages == sorted(stages)
        assert f"Use {name}." in prompt


@pytest.mark.parametrize(
    ("converged", "stopped", "made"),
    [
        ([convergence(should_continue=False)], "converged", 1),
        ([convergence(confidence=9.5)], "solved", 2),  # not at the first
        ([convergence(confidence=9.4)], "limit:iterations", 3),
        ([convergence(confidence=9.6), convergence(confidence=9.4)], "limit:iterations", 3),
        ([convergence(), convergence(should_continue="no")], "converged", 2),
    ],
)
def test_d4_when_it_stops(converged, stopped, made):
    found = run(tl.DeepThink(), TASK, thinker(*converged))
    assert (found.stopped, len(iterations(found))) == (stopped, made)


@pytest.mark.parametrize(
    ("given", "used", "clamped"),
    [
        ((3, 3, 2), (3, 3, 2), []),
        ((0, 1, 0), (1, 2, 1), ["max_iterations", "num_branches", "beam_width"]),
        ((9, 9, 9), (5, 5, 3), ["max_iterations", "num_branches", "beam_width"]),
        ((2, 2, 3), (2, 2, 2), ["beam_width"]),
        ((-4, 4, 3), (1, 4, 3), ["max_iterations"]),
    ],
)
def test_d5_settings_are_clamped_and_the_run_says_so(given, used, clamped):
    iterations_, width, beam = given
    model = thinker(convergence((1, 2, 3, 4, 5)), names=NAMES[: used[1]])
    made = run(tl.DeepThink(max_iterations=iterations_, num_branches=width, beam_width=beam), TASK, model)
    assert len(model.calls) == used[0] * (used[1] + 2)
    assert {len(result.beam) for result in iterations(made)} == {used[2]}
    told = notes(made, "deep_think.clamped")
    assert [note["field"] for note in told] == clamped
    for note in told:
        assert note["given"] != note["used"]


def test_d5_approaches_beyond_those_asked_for_are_left_out_and_the_run_says_so():
    model = thinker(names=NAMES)
    made = run(tl.DeepThink(max_iterations=1), TASK, model)
    assert len(model.calls) == 5
    assert notes(made, "deep_think.left_out") == [{"given": 5, "used": 3}]


@pytest.mark.parametrize(
    ("preset", "sizes"),
    [
        (tl.presets.deep_think_quick(), (1, 3, 2)),
        (tl.presets.deep_think_balanced(), (3, 3, 2)),
        (tl.presets.deep_think_thorough(), (5, 4, 2)),
        (tl.presets.deep_think_maximum(), (5, 5, 3)),
    ],
)
def test_d5_the_presets(preset, sizes):
    assert (preset.max_iterations, preset.num_branches, preset.beam_width) == sizes
    model = thinker(names=NAMES)
    run(preset, TASK, model)
    assert len(model.calls) == sizes[0] * (sizes[1] + 2)


def test_d5_what_is_known_beforehand_is_the_context():
    model = thinker()
    run(tl.DeepThink(), tl.open_ended("Where?", context="There are nine orders a day."), model)
    assert all("There are nine orders a day." in call.prompt for call in model.calls)


def test_d6_ranked_by_score_and_matched_by_name_though_the_model_reorders():
    converged = convergence((9, 4, 7), names=("A Queue", "one  FILE", "a database"))
    (result,) = iterations(run(tl.DeepThink(max_iterations=1), TASK, thinker(converged)))
    assert [(branch.name, branch.score) for branch in result.branches] == [
        ("a queue", 9.0),
        ("a database", 7.0),
        ("one file", 4.0),
    ]
    assert result.branches[0].verdict == "A Queue: fair"
    assert result.beam == ("b2", "b1")


@pytest.mark.parametrize(
    ("names", "written", "places"),
    [
        (("a", "b", "c"), ("c", "a", "b"), [2, 0, 1]),
        (("a", "b", "c"), ("c", "x", "a"), [2, None, 0]),
        (("a", "b", "c"), ("c", "c", "b"), [2, None, 1]),
        (("a", "b", "c"), ("x", "y", "z"), [0, 1, 2]),
        (("a", "b", "c"), ("", "", "", ""), [0, 1, 2, None]),
        (("a", "a", "a"), ("a", "a", "a"), [0, 1, 2]),
        (("a", "a", "b"), ("b", "a", "a"), [0, 1, 2]),
        ((), ("a",), [None]),
        (("a",), (), []),
    ],
)
def test_d6_by_place_only_where_no_name_tells(names, written, places):
    assert matched(names, written) == places


def test_d6_the_beam_is_kept_and_the_rest_pruned_but_the_lessons_of_all_go_on():
    model = thinker(convergence((5, 8, 2)))
    made = run(tl.DeepThink(max_iterations=2), TASK, model)
    first = iterations(made)[0]
    states = [made.tree[branch.solution_node].state for branch in first.branches]
    assert states == ["kept", "kept", "pruned"]
    scores = [made.tree[branch.solution_node].score for branch in first.branches]
    assert scores == [0.8, 0.5, 0.2]
    converge = prompts(model, "converge")[0]
    assert "Keep them in a queue." in converge  # whose lessons stand in the reflection


def test_d6_a_synthesis_is_a_thought_of_several_parents():
    taken = [
        {"name": "one file", "idea": "copy it each night"},
        {"name": "a database", "idea": "an index"},
        {"name": "the moon", "idea": "none"},
    ]
    synthesis = {"solution": "Both.", "reasoning": "", "taken": taken}
    made = run(tl.DeepThink(max_iterations=1), TASK, thinker(convergence((5, 8, 2), synthesis=synthesis)))
    (result,) = iterations(made)
    node = made.tree[result.node]
    assert (node.parent, node.source) == ("0.1.0", ("0.0.0",))
    assert [(one.branch, one.idea) for one in result.taken] == [
        ("b0", "copy it each night"),
        ("b1", "an index"),
    ]
    plain = run(tl.DeepThink(max_iterations=1), TASK, thinker(convergence((5, 8, 2))))
    assert plain.tree["0.1.0.0"].source == ("0.0.0", "0.2.0")  # nothing said: all


def test_d8_a_branch_reply_that_cannot_be_read_is_the_direct_approach():
    def reply(call):
        return "Just use a database." if call.kind == "branch" else answers(call)

    answers = thinker(convergence((6,), names=["Direct approach"], should_continue=False)).reply
    model = Scripted(reply)
    made = run(tl.DeepThink(), TASK, model)
    assert kinds(model) == ["branch", "develop", "converge"]
    (branch,) = iterations(made)[0].branches
    assert (branch.name, branch.strategy) == ("Direct approach", "Just use a database.")
    assert [note["what"] for note in notes(made, "deep_think.assumed")] == ["branch"]


def test_d8_a_development_that_cannot_be_read_is_the_solution_with_an_assumed_confidence():
    def develop(name):
        return "I would take paper." if name == "a queue" else development(name, confidence=2)

    made = run(tl.DeepThink(max_iterations=1), TASK, thinker(develop=develop))
    (branch,) = [one for one in iterations(made)[0].branches if one.name == "a queue"]
    assert (branch.solution, branch.confidence, branch.assumed) == ("I would take paper.", 3.0, True)
    assert [(note["what"], note["confidence"]) for note in notes(made, "deep_think.assumed")] == [
        ("develop", 3.0)
    ]


def test_d8_d16_an_assumed_confidence_decides_nothing():
    low = convergence((5, 8, 2), confidence=1)
    made = run(tl.DeepThink(max_iterations=2), TASK, thinker(low, "Use a database, I guess."))
    first, second = iterations(made)
    assert (second.best_solution, second.confidence, second.assumed) == (
        "Use a database, I guess.",
        3.0,
        True,
    )
    assert made.tree[second.node].score is None  # nothing to calibrate
    assert made.answer == first.best_solution
    assert made.score == 0.1
    assert notes(made, "deep_think.ended") == [{"stop": "limit:iterations", "iteration": 1}]
    alone = run(tl.DeepThink(max_iterations=2), TASK, thinker("I give up."))
    assert (alone.answer, alone.score) == ("I give up.", None)


@pytest.mark.parametrize("confidence", [None, "high", 11, -1, True, [7], {"value": 7}, "NaN"])
def test_d8_a_confidence_that_is_none_is_assumed(confidence):
    made = run(tl.DeepThink(max_iterations=1), TASK, thinker(convergence((5,), confidence=confidence)))
    (result,) = iterations(made)
    assert (result.confidence, result.assumed, made.score) == (3.0, True, None)


@pytest.mark.parametrize(
    ("confidence", "read"), [(8, 8.0), ("8.5", 8.5), ("8.5/10", 8.5), ("85%", 8.5), ("4 out of 5", 8.0)]
)
def test_a_confidence_in_other_forms_is_read(confidence, read):
    made = run(tl.DeepThink(max_iterations=1), TASK, thinker(convergence((5,), confidence=confidence)))
    assert iterations(made)[0].confidence == read


def test_d8_a_call_that_fails_costs_its_branch_and_is_not_shown_to_converge():
    def develop(name):
        return Reply("half a thou", error="boom") if name == "a database" else development(name)

    model = thinker(develop=develop)
    made = run(tl.DeepThink(max_iterations=1), TASK, model)
    (asked,) = prompts(model, "converge")
    assert "solved in 2 ways" in asked
    assert "a database" not in asked
    assert "half a thou" not in asked
    lost = iterations(made)[0].branches[-1]
    assert (lost.name, lost.solution, lost.error) == ("a database", "", "boom")
    assert made.tree[lost.node].state == "failed"


def test_d8_an_empty_development_is_no_solution():
    made = run(
        tl.DeepThink(max_iterations=1),
        TASK,
        thinker(develop=lambda name: "" if name == "a queue" else development(name)),
    )
    assert iterations(made)[0].branches[-1].error == "the reply was empty"


def test_d8_when_all_branches_fail_nothing_is_converged():
    model = thinker(develop=lambda name: Reply(error="boom"))
    made = run(tl.DeepThink(), TASK, model)
    assert kinds(model) == ["branch", "develop", "develop", "develop"]
    assert (made.answer, made.stopped) == ("", "error")


def test_d8_when_converge_fails_the_most_confident_branch_answers():
    def develop(name):
        return development(name, confidence={"a queue": 9}.get(name, 4))

    def reply(call):
        return Reply(error="boom") if call.kind == "converge" else answers(call)

    answers = thinker(develop=develop).reply
    made = run(tl.DeepThink(), TASK, Scripted(reply))
    assert (made.answer, made.stopped, made.score) == ("Keep them in a queue.", "error", None)


def test_d8_a_later_iteration_that_fails_leaves_the_earlier_answer():
    calls = []

    def reply(call):
        calls.append(call)
        return Reply(error="boom") if len(calls) == 6 else answers(call)

    answers = thinker().reply
    made = run(tl.DeepThink(), TASK, Scripted(reply))
    assert (made.answer, made.stopped) == ("Keep them in a database, with a backup.", "error")


def test_a_server_without_schemas_costs_one_call_more():
    def reply(call):
        if call.response_format is not None:
            return Reply(error="BadRequest: response_format is not supported here")
        return answers(call)

    answers = thinker().reply
    model = Scripted(reply)
    made = run(tl.DeepThink(), TASK, model)
    assert len(model.calls) == 16 == tl.DeepThink().max_calls(TASK)
    assert made.stopped == "limit:iterations"


class Slow:
    """A model that takes its time, and counts how many calls it has at once."""

    def __init__(self, seconds=lambda call: 0.02):
        self.seconds = seconds
        self.answers = thinker(convergence((1, 2, 3, 4, 5), should_continue=False), names=NAMES).reply
        self.under_way = self.most = 0

    async def __call__(self, call: Call):
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await asyncio.sleep(self.seconds(call))
        finally:
            self.under_way -= 1
        return self.answers(call)


def test_d9_four_calls_at_once_over_all_runs_of_the_process():
    model = Slow()
    labs = [tl.Lab(model, runs=None) for _ in range(2)]

    async def both():
        strategy = tl.DeepThink(num_branches=5)
        return await asyncio.gather(*(lab.run(strategy, TASK) for lab in labs for _ in range(2)))

    assert [made.stopped for made in wait(both())] == ["converged"] * 4
    assert model.most == 4
    one = Slow()
    run(tl.DeepThink(num_branches=5), TASK, one)
    assert one.most == 4


def test_d9_other_strategies_are_not_held_back():
    model = Slow()
    model.answers = lambda call: "Answer: 1"
    run(tl.SelfConsistency(attempts=8), tl.general("1?"), model)
    assert model.most == 8


def test_d9_a_call_that_takes_too_long_costs_its_branch():
    def seconds(call):
        return 30.0 if call.kind == "develop" and approach_of(call) == "a queue" else 0.0

    made = run(tl.DeepThink(timeout=0.2), TASK, Slow(seconds))
    (result,) = iterations(made)
    assert made.stopped == "converged"
    assert [branch.name for branch in result.branches if branch.error] == ["a queue"]


def test_d9_a_group_takes_twice_that_at_most():
    slow = Slow(lambda call: 30.0 if call.kind == "develop" else 0.0)
    made = run(tl.DeepThink(num_branches=5, timeout=0.3), TASK, slow)
    assert made.stopped == "limit:timeout"
    assert 0.6 <= made.seconds < 10  # four at once, and then the fifth


def test_d9_waiting_for_the_other_branches_takes_none_of_a_calls_time():
    slow = Slow(lambda call: 0.3 if call.kind == "develop" else 0.0)
    made = run(tl.DeepThink(num_branches=5, timeout=0.5), TASK, slow)
    assert [branch.error for branch in iterations(made)[0].branches] == [None] * 5


def test_d9_waiting_for_other_runs_takes_none_of_a_calls_time():
    lab = tl.Lab(Slow(lambda call: 0.1), runs=None)

    async def many():
        strategy = tl.DeepThink(num_branches=5, timeout=0.4)
        return await asyncio.gather(*(lab.run(strategy, TASK) for _ in range(8)))

    made = wait(many())
    assert [run.stopped for run in made] == ["converged"] * 8
    assert not [branch.error for run in made for branch in iterations(run)[0].branches if branch.error]


def test_d9_a_stage_that_takes_too_long_ends_it_with_what_there_is():
    made = run(tl.DeepThink(timeout=0.2), TASK, Slow(lambda call: 30.0 if call.kind == "converge" else 0.0))
    assert (made.answer, made.stopped) == ("Keep them in one file.", "limit:timeout")


def test_a_budget_on_time_is_told_apart_from_a_timeout():
    slow = Slow(lambda call: 30.0 if call.kind == "converge" else 0.0)
    made = run(tl.DeepThink(timeout=60), TASK, slow, budget=tl.Budget(seconds=0.2))
    assert made.stopped == "budget:seconds"


def test_d10_the_temperature_is_a_setting():
    model = thinker()
    run(tl.DeepThink(), TASK, model)
    assert {call.temperature for call in model.calls} == {0.7}
    model = thinker()
    run(tl.DeepThink(temperature=0.2), TASK, model)
    assert {call.temperature for call in model.calls} == {0.2}


def test_d12_the_records_hold_all_of_a_branch_and_an_iteration():
    (result,) = iterations(run(tl.DeepThink(max_iterations=1), TASK, thinker()))
    branch = result.branches[0]
    assert branch == tl.ThoughtBranch(
        id="b1",
        name="a database",
        strategy="Use a database.",
        rationale="It is known.",
        risks="It may not fit.",
        plan="Plan a database.",
        execution="Done.",
        solution="Keep them in a database.",
        observation="Checked a database.",
        reflection="It held.",
        confidence=6.0,
        strengths=("a database is simple",),
        weaknesses=("a database is slow",),
        score=8.0,
        verdict="a database: fair",
        node="0.1",
        solution_node="0.1.0",
    )
    assert msgspec.structs.replace(result, branches=()) == tl.IterationResult(
        iteration=1,
        branches=(),
        best_solution="Keep them in a database, with a backup.",
        confidence=7.0,
        node="0.1.0.0",
        synthesis_reasoning="A backup helps.",
        reflection_summary="Pattern: all write to disk\nMistake: no backup\nMissed by all: the tax office",
        insights=("orders are few",),
        next_focus="the tax office",
        beam=("b1", "b0"),
    )


def test_d16_the_most_confident_iteration_answers_and_of_equals_the_later():
    def said(text, confidence):
        return convergence((5, 8, 2), confidence=confidence, synthesis=text)

    made = run(tl.DeepThink(), TASK, thinker(said("first", 8), said("second", 8), said("third", 5)))
    assert (made.answer, made.score) == ("second", 0.8)
    assert notes(made, "deep_think.ended") == [{"stop": "limit:iterations", "iteration": 2}]
    assert made.tree["0.1.0.0"].text == "first"
    # What comes next hangs below the most confident so far.
    assert [result.node.count(".") for result in iterations(made)] == [3, 6, 9]
    worse = run(tl.DeepThink(), TASK, thinker(said("first", 8), said("second", 5), said("third", 6)))
    assert worse.answer == "first"
    assert [result.node.count(".") for result in iterations(worse)] == [3, 6, 6]


def test_a_changed_solution_is_what_converge_is_shown():
    lab = tl.Lab(thinker(), runs=None)
    made = wait(lab.run(tl.DeepThink(max_iterations=1), TASK))
    model = thinker()
    lab = tl.Lab(model, runs=None)
    changed = wait(lab.branch(made, "0.0.0", content="Keep them on the moon."))
    assert "Keep them on the moon." in prompts(model, "converge")[0]
    assert "Keep them in one file." not in prompts(model, "converge")[0]
    assert iterations(changed)[0].branches[1].solution == "Keep them on the moon."


def test_solutions_of_any_length_fit_the_next_prompt():
    long = "word " * 200_000
    lessons = {"patterns": [long], "insights": [long]}
    converged = convergence((5,), synthesis=long, reflection=lessons, next_focus=long)
    model = thinker(converged, develop=lambda name: development(name, solution=long, observation=long))
    made = run(tl.DeepThink(max_iterations=2), TASK, model)
    assert made.answer == long.strip()
    assert max(len(call.prompt) for call in model.calls) < 80_000
    assert "more characters are not shown" in prompts(model, "converge")[0]
