"""Deep Think: its stages, what goes from one iteration to the next, when it stops, and what becomes of
replies that cannot be read (D1 to D6, D8, D9, D12, D16)."""

import asyncio
import json
import subprocess
import sys
import threading
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import Scripted, run, wait
from support.deep_thinker import (
    NAMES,
    TASK,
    approach_of,
    branches,
    convergence,
    criteria,
    development,
    iterations,
    judged,
    notes,
    thinker,
)
from support.endpoint import scripted
from support.virtual_time import run_virtually

import tot_lab as tl
from tot_lab.core.calls import Call, Reply
from tot_lab.core.reading.judgements import core, match_once
from tot_lab.core.tools import tokens_in
from tot_lab.models.stack import Failure


def kinds(model):
    return [call.purpose for call in model.calls]


def prompts(model, kind):
    return [call.prompt for call in model.calls if call.purpose == kind]


def test_d1_n_plus_2_calls_an_iteration_and_fifteen_with_the_defaults():
    model = thinker()
    made = run(tl.DeepThink(), TASK, model)
    assert kinds(model) == ["branch", "develop", "develop", "develop", "converge"] * 3
    assert made.stop_reason == "limit:iterations"
    assert made.answer == "Keep them in a database, with a backup."
    model = thinker(convergence((5, 8, 2), should_continue=False), names=NAMES)
    run(tl.DeepThink(num_branches=5), TASK, model)
    assert len(model.calls) == 5 + 2


def test_d1_what_the_stages_ask_for():
    model = thinker()
    run(tl.DeepThink(max_iterations=1), TASK, model)
    asked = {call.purpose: call.prompt for call in model.calls}
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


@pytest.mark.parametrize("what", ["Strategy: Use", "is simple", "is slow", "Keep them in"])
def test_s8_converge_is_told_of_each_branch(what):
    model = thinker()
    run(tl.DeepThink(max_iterations=1), TASK, model)
    assert prompts(model, "converge")[0].count(what) >= 3


def test_d1_s8_converge_is_told_the_confidence_and_the_reflection_of_each_branch():
    def develop(name):
        return development(name, confidence=4.25, reflection=f"{name} held up")

    model = thinker(develop=develop)
    run(tl.DeepThink(max_iterations=1), TASK, model)
    (asked,) = prompts(model, "converge")
    assert asked.count("4.25") == 3
    for name in NAMES[:3]:
        assert f"{name} held up" in asked


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
        assert prompt.endswith("</approach>")  # all before the approach is the same for its siblings
        assert prompt.partition("<approach>")[0] == asked[0].partition("<approach>")[0]


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
    assert (found.stop_reason, len(iterations(found))) == (stopped, made)


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


CERTAIN = ""


@pytest.mark.parametrize(
    ("names", "written", "places", "warned"),
    [
        (("A way", "B way", "C way"), ("C way", "A way", "B way"), [2, 0, 1], CERTAIN),
        (("A way", "B way", "C way"), ("Approach 3: C way", "1. B way", "**A way**"), [2, 1, 0], CERTAIN),
        (("A way", "B way", "C way"), ("1. C way", "2. A way", "3. B way"), [2, 0, 1], CERTAIN),
        (("A way", "B way", "C way"), ("b2", "b0", "b1"), [2, 0, 1], CERTAIN),
        (
            ("A way", "B way", "C way"),
            ("**Approach 1:** `C  WAY`", "(b1) b way", "a-way (b0)"),
            [2, 1, 0],
            CERTAIN,
        ),
        (("Plan 1: cache", "Plan 2: index"), ("Index", "Cache"), [1, 0], CERTAIN),
        (("cache", "cache with TTL"), ("2. cache with TTL", "1. cache"), [1, 0], CERTAIN),
        (("C", "C++", "C#"), ("1. C#", "2. C", "3. C++"), [2, 0, 1], CERTAIN),
        (("a", "b", "c"), ("c", "x", "a"), [2, None, 0], "no approach has this name: “x”. Not judged: “b”."),
        (
            ("a", "b", "c"),
            ("c", "c", "b"),
            [None, None, 1],
            "Judged twice, none counts: “c”. Not judged: “a”, “c”.",
        ),
        (("a", "b", "c"), ("x", "y", "z"), [None, None, None], "no approach has this name: “x”, “y”, “z”."),
        (("a", "b", "c"), ("", "", "", ""), [None] * 4, "Not judged: “a”, “b”, “c”."),
        (("a", "b", "c"), ("a", "b"), [0, 1], "Not judged: “c”."),
        (("a", "a", "a"), ("a", "a", "a"), [0, 1, 2], "share a name"),
        (("a", "a", "b"), ("b", "a", "a"), [2, 0, 1], "share a name"),
        (("Approach 1", "Approach 2"), ("Approach 2", "Approach 1"), [1, 0], "not distinct"),
        (("1. cache", "2. cache"), ("2. cache", "1. cache"), [1, 0], "not distinct"),
        (("1. cache", "2. cache"), ("3. cache", "2. cache"), [0, 1], "not distinct"),
        (
            ("A way", "B way", "C way"),
            ("Approach 2", "Approach 3", "Approach 1"),
            [1, 2, 0],
            "by the numbers",
        ),
        (("A way", "B way", "C way"), ("b1", "b2", "b3"), [1, 2, None], "no approach has this name: “b3”"),
        (("A way", "B way", "C way"), ("b2", "b1"), [2, 1], "may have been counted from 1"),
        (("A way", "B way", "C way"), ("b0", "b7", "b0"), [None, None, None], "no approach has this name"),
        ((), ("a",), [None], "no approach has this name"),
        (("a",), (), [], "Not judged: “a”."),
    ],
)
def test_d6_by_place_only_where_no_name_tells(names, written, places, warned):
    match = match_once(names, [{"": one} for one in written], [f"b{k}" for k in range(len(names))])
    assert match.places == places
    assert (warned in match.warning) if warned else match.warning == ""


WORDS = ["A way", "B way", "cache", "CACHE", "cache with TTL", "TTL", "C", "C++", "C#", "缓存", "a_b", "a b"]
NUMBERED = [
    "1. cache",
    "2. cache",
    "Approach 1",
    "Approach 2",
    "Approach 3: cache",
    "(b1) cache",
    "**cache**",
]
ODD = [
    "",
    "1",
    "2.",
    "b0",
    "b1",
    "b2",
    "Plan B",
    "Option A",
    "a",
    "i",
    "x.",
    "№ 1",
    "3-tier cache",
    "#1",
    "…",
]
NAMES_OF_ALL_KINDS = st.one_of(
    st.sampled_from([*WORDS, *NUMBERED, *ODD]), st.text("ab1 2.:()#-*_B", max_size=8)
)
BEFORE = [
    "{k}. {name}",
    "{k}) {name}",
    "({k}) {name}",
    "#{k} {name}",
    "{id}: {name}",
    "[{id}] {name}",
    "- {name}",
]
LABELLED = ["Approach {k}: {name}", "{name} (Approach {k})", "Option {k} - **{name}**", "{name} ({id})"]
MARKED = [
    "**{name}**",
    "`{name}`",
    "“{name}”",
    "**Approach {k}:** {name}",
    "### {k}. {name}",
    "{k}. **{name}**",
]
NAMED = ["{name}", *BEFORE, *LABELLED, *MARKED]
UNNAMED = ["Approach {k}", "{k}", "{id}", "branch {id}", ""]


@pytest.mark.nightly
@settings(max_examples=600, deadline=None)
@given(data=st.data())
def test_d6_no_score_reaches_another_approach_without_a_warning(data):
    """Whatever the names are, and however a model writes and orders them: what is matched silently is right.
    The numbers that it writes are the approaches' own, or those of its own order."""
    names = data.draw(st.lists(NAMES_OF_ALL_KINDS, min_size=1, max_size=5))
    order = data.draw(st.permutations(range(len(names))))
    order = order[: data.draw(st.integers(0, len(names)))]
    ids = [f"b{k}" for k in range(len(names))]
    own = data.draw(st.booleans())
    from_zero = data.draw(st.booleans())
    written = []
    for place, k in enumerate(order):
        number = (k if own else place) + 1
        id = ids[k] if from_zero else f"b{k + 1}"
        made = data.draw(st.sampled_from([*NAMED, *UNNAMED])).format(name=names[k], k=number, id=id)
        written.append(data.draw(st.sampled_from([made, made.upper(), f"  {made}\n"])))
    match = match_once(names, [{"": one} for one in written], ids)
    told = [place for place in match.places if place is not None]
    assert len({*told}) == len(told), "one to one"
    assert len(match.places) == len(written)
    if match.places != order:
        assert match.warning
    if len(order) < len(names):
        assert match.warning


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from(["lock", "two locks", "a queue", "Redis", "no lock", "C++", "C#"]), unique=True),
    st.data(),
)
def test_d6_names_that_are_distinct_are_recognised_without_a_warning(names, data):
    order = data.draw(st.permutations(range(len(names))))
    written = [
        data.draw(st.sampled_from(NAMED)).format(name=names[k], k=place + 1, id=f"b{k}")
        for place, k in enumerate(order)
    ]
    assert match_once(names, [{"": one} for one in written], [f"b{k}" for k in range(len(names))]) == (
        list(order),
        "",
    )


@pytest.mark.slow
@pytest.mark.parametrize("piece", ["1. ", "(", "[b1] ", "approach ", "# ", "a)", ". ", "b", "* ", "((1) "])
def test_d6_a_name_of_any_length_is_read_in_linear_time(piece):
    def seconds(size):
        text, best = (piece * size)[:size], 1e9
        for _ in range(5):
            began = time.process_time()
            core(text)
            best = min(best, time.process_time() - began)
        return best

    assert seconds(40_000) < max(10 * seconds(10_000), 0.02)


def ranked(evaluations, confidence=7, names=("x", "y", "z")):
    made = run(
        tl.DeepThink(max_iterations=1),
        TASK,
        thinker(convergence(evaluations=evaluations, confidence=confidence), names=names),
    )
    (result,) = iterations(made)
    why = " ".join(note["why"] for note in notes(made, "deep_think.matched"))
    return {branch.name: branch.score for branch in result.branches}, result.confidence, why


@pytest.mark.parametrize(
    ("evaluations", "scores"),
    [
        (judged(z=9, x=4, y=7), (4, 7, 9)),
        (judged(z="9/10", x="40%", y="7"), (4, 7, 9)),
        (
            [{"name": n, "scores": criteria(s, s, s, s + 1)} for n, s in (("z", 8), ("x", 2), ("y", 4))],
            (2.25, 4.25, 8.25),
        ),
        ([{"name": n, "scores": {"score": s}} for n, s in (("z", 8), ("x", 2), ("y", 4))], (2, 4, 8)),
        ({"z": {"scores": criteria(8, 8, 8, 8)}, "x": {"score": 2}, "y": 4}, (2, 4, 8)),
        ({"scores": {"z": 8, "x": 2, "y": 4}}, (2, 4, 8)),
        ([{"Name": n, "Rating": s} for n, s in (("z", 8), ("x", 2), ("y", 4))], (2, 4, 8)),
        (
            [{"name": n, "overall_score": s, "confidence": 9} for n, s in (("z", 8), ("x", 2), ("y", 4))],
            (2, 4, 8),
        ),
        (
            [{"name": n, **criteria(s, s, s, s), "total": 4 * s} for n, s in (("z", 8), ("x", 2), ("y", 4))],
            (2, 4, 8),
        ),
        ({"scores": judged(z=8, x=2, y=4)}, (2, 4, 8)),
        (judged(z=0.9, x=0.25, y=1), (2.5, 10, 9)),
        (judged(z=90, x=25, y=100), (2.5, 10, 9)),
        (judged(z="**0.9**", x="$0.25$", y="(1)"), (2.5, 10, 9)),
        (judged(z=90, x=0, y="70"), (0, 7, 9)),
        ([{"name": n, **criteria(s, s, 100, 100)} for n, s in (("z", 80), ("x", 20), ("y", 40))], (6, 7, 9)),
        ([{"name": n, **criteria(s, 1, 1, 1)} for n, s in (("z", 0.6), ("x", 0), ("y", 0.2))], (7.5, 8, 9)),
        (judged(z=1, x=0, y=1), (0, 1, 1)),  # of the scale that was asked for
        (judged(z=0.5, x=8, y=3), (8, 3, 0.5)),
    ],
)
def test_d6_scores_in_other_forms_and_scales(evaluations, scores):
    found, _, why = ranked(evaluations, confidence=None)
    assert found == dict(zip("xyz", scores, strict=True))
    assert why == ""


@pytest.mark.parametrize(
    ("evaluations", "confidence", "read"),
    [
        (judged(z=0.9, x=0.2, y=0.4), 0.8, 8),
        (judged(z=90, x=20, y=40), 80, 8),
        (judged(z=90, x=20, y=40), 8, 8),
        (judged(z=9, x=2, y=4), 0.8, 0.8),
        (judged(z=9, x=2, y=4), "80%", 8),
    ],
)
def test_d6_the_confidence_is_of_the_scale_of_the_reply(evaluations, confidence, read):
    assert ranked(evaluations, confidence)[1] == read


@pytest.mark.parametrize(
    ("evaluations", "confidence", "scores", "why"),
    [
        (judged(z=90, x=8, y=40), 7, (None, None, None), "of no one scale"),
        (judged(z=900, x=80, y=40), 7, (None, None, None), "of no one scale"),
        (judged(z=0.9, x=0.2, y=0.4), 8, (0.2, 0.4, 0.9), "read as scores out of 10"),
    ],
)
def test_d6_a_scale_that_is_not_certain_is_said(evaluations, confidence, scores, why):
    found, _, told = ranked(evaluations, confidence)
    assert found == dict(zip("xyz", scores, strict=True))
    assert why in told


@pytest.mark.parametrize(
    ("evaluations", "confidence", "said"),
    [
        (judged(z=0.9, x=0.2, y=0.4), 0.8, "from 0 to 1"),
        (judged(z=90, x=20, y=40), 80, "from 0 to 100"),
        (judged(z=9, x=2, y=4), 8, None),
        (judged(z="9/10", x="20%", y=4), "80%", None),
    ],
)
def test_d6_scores_of_another_scale_are_rescaled_with_a_note(evaluations, confidence, said):
    made = run(
        tl.DeepThink(max_iterations=1),
        TASK,
        thinker(convergence(evaluations=evaluations, confidence=confidence), names=("x", "y", "z")),
    )
    (result,) = iterations(made)
    assert {branch.name: branch.score for branch in result.branches} == {"x": 2, "y": 4, "z": 9}
    assert result.confidence == 8
    assert [said in note["why"] for note in notes(made, "deep_think.rescaled")] == ([True] if said else [])


@pytest.mark.parametrize(
    ("stated", "read", "noted"),
    [(0.8, 8, True), (80, 8, True), (8, 8, False), (1, None, True), ("1/10", 1, False)],
)
def test_d6_a_confidence_alone_is_rescaled_and_a_lone_1_is_unreadable(stated, read, noted):
    reply = json.dumps({"solution": "Use a queue.", "confidence": stated})
    made = run(
        tl.DeepThink(max_iterations=1), TASK, thinker(convergence((5, 6, 7)), develop=lambda name: reply)
    )
    (result,) = iterations(made)
    assert [branch.confidence for branch in result.branches] == [read] * 3
    assert len(notes(made, "deep_think.rescaled")) == (3 if noted else 0)


@pytest.mark.parametrize("key", ["approach", "branch", "title", "which"])
def test_d6_an_approach_may_be_named_under_any_key(key):
    evaluations = [
        {key: name, "score": score} for name, score in (("the Z way", 9), ("X", 4), ("Option B", 7))
    ]
    found, _, _ = ranked(evaluations)
    assert found == {"x": 4, "y": 7, "z": 9}
    found, _, why = ranked([{"rank": k, "score": score} for k, score in enumerate((9, 4, 7), 1)])
    assert found == {"x": None, "y": None, "z": None}
    assert "Not judged" in why


def test_d6_an_evaluation_below_one_name_with_another_in_it_is_nobodys():
    evaluations = {"x": {"name": "y", "score": 9}, "y": {"name": "x", "score": 2}, "z": {"score": 5}}
    found, _, why = ranked(evaluations)
    assert found == {"x": None, "y": None, "z": 5}
    assert "no approach has this name" in why


def test_d6_the_model_reorders_and_decorates_and_every_score_stays_with_its_approach():
    names = ("Approach 3: C way", "1. A way", "b1")
    converged = convergence((9, 4, 7), names=names)
    made = run(tl.DeepThink(max_iterations=1), TASK, thinker(converged, names=("A way", "B way", "C way")))
    (result,) = iterations(made)
    assert {branch.name: branch.score for branch in result.branches} == {"A way": 4, "B way": 7, "C way": 9}
    assert not notes(made, "deep_think.matched")


def test_d6_a_failed_branch_moves_no_score():
    """The ids of the branches that are judged have a gap, and their numbers have none."""

    def develop(name):
        return Reply(error="boom") if name == "A way" else development(name)

    for written, warned in ((("b2", "b1"), True), (("C way", "B way"), False), (("2", "1"), True)):
        model = thinker(
            convergence((9, 4), names=written), names=("A way", "B way", "C way"), develop=develop
        )
        made = run(tl.DeepThink(max_iterations=1), TASK, model)
        (result,) = iterations(made)
        assert {one.name: one.score for one in result.branches} == {"A way": None, "B way": 4, "C way": 9}
        assert bool(notes(made, "deep_think.matched")) is warned


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
        return "Just use a database." if call.purpose == "branch" else answers(call)

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
    assert (second.best_solution, second.confidence, second.assumed, second.from_branch) == (
        "Use a database, I guess.",
        3.0,
        True,
        "",
    )
    assert made.tree[second.node].score is None  # nothing to calibrate
    assert made.answer == first.best_solution
    assert made.score == 0.1
    assert notes(made, "deep_think.ended") == [{"stop": "limit:iterations", "iteration": 1}]
    alone = run(tl.DeepThink(max_iterations=2), TASK, thinker("{}"))
    assert (alone.answer, alone.score) == ("Keep them in one file.", None)


@pytest.mark.parametrize(
    "prose",
    [
        "Keep them in a database.",
        "# Advice\n\nKeep them in [a database](https://db.example), with:\n\n1. a backup\n2. a test",
        'Put {"orders": []} into a file; name it `orders.json`.',
    ],
)
def test_d8_a_synthesis_in_prose_is_the_synthesis(prose):
    made = run(tl.DeepThink(max_iterations=1), TASK, thinker(prose))
    (result,) = iterations(made)
    assert made.answer == result.best_solution == prose
    assert (result.confidence, result.assumed, result.from_branch) == (3.0, True, "")
    assert [branch.score for branch in result.branches] == [None] * 3
    assert (made.status, made.stop_reason, made.score) == ("partial", "limit:iterations", None)
    assert [note["what"] for note in notes(made, "deep_think.assumed")] == ["converge"]
    assert not notes(made, "deep_think.unrated")
    assert wait(made.replay()).identical


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
    assert (made.answer, made.stop_reason) == ("", "error")


CUT = "the reply was cut off"
UNUSABLE = {
    "empty": ("", "the reply was empty"),
    "thinking alone": ("<think>Well.</think>", "the reply was empty"),
    "no JSON, cut off": (Reply("I would take", finish_reason="length"), CUT),
    "an object of nothing": ("{}", "synthesis: Field required"),
    "null": ("null", "should be an object"),
    "a list": (json.dumps([json.loads(convergence())] * 2), ""),
    "an empty list": ("[]", ""),
    "a number": ("7", ""),
    "no synthesis": (convergence((5, 8, 2), synthesis=None), "synthesis"),
    "an empty synthesis": (convergence((5, 8, 2), synthesis={"solution": " "}), "synthesis.solution"),
    "a synthesis of nothing": (convergence((5, 8, 2), synthesis={}), "synthesis.solution"),
    "an empty text": (convergence((5, 8, 2), synthesis=""), "synthesis.solution"),
    "cut, as the server says": (Reply(convergence((5, 8, 2)), finish_reason="length"), CUT),
    "cut in the synthesis": (convergence((5, 8, 2)).partition(" with a backup")[0], CUT),
    "cut behind the synthesis": (convergence((5, 8, 2)).partition(', "confidence"')[0], CUT),
    "cut in the reflection": (convergence((5, 8, 2)).partition("no backup")[0], CUT),
    "cut in the first evaluation": (convergence((5, 8, 2)).partition('"completeness"')[0], CUT),
}


@pytest.mark.parametrize("how", UNUSABLE)
def test_d8_without_a_usable_synthesis_the_best_readable_branch_answers(how):
    """That is the best by its score where the reply judges all of them, else by its own confidence; here a
    branch whose own reply could not be read comes first, and is passed over."""
    reply, why = UNUSABLE[how]

    def develop(name):
        return {
            "one file": development(name, confidence=6),
            "a database": "I would take a database.",
            "a queue": development(name, confidence=7),
        }[name]

    made = run(tl.DeepThink(max_iterations=1), TASK, thinker(reply, develop=develop))
    (result,) = iterations(made)
    judged = [branch.score for branch in result.branches if branch.score is not None]
    assert judged in ([], [8.0, 5.0, 2.0])
    best = "one file" if judged else "a queue"
    assert made.answer == result.best_solution == f"Keep them in {best}."
    assert made.tree[result.node].text == made.answer
    assert (made.stop_reason, made.score) == ("limit:iterations", None)
    assert (result.confidence, result.assumed, result.truncated) == (3.0, True, why == CUT)
    told = next(note for note in notes(made, "deep_think.assumed") if note["what"] == "converge")
    assert why in told["error"]
    assert (told["branch"], told["confidence"]) == (result.from_branch, 3.0)
    assert [note["what"] for note in notes(made, "deep_think.truncated")] == ["converge"] * (why == CUT)
    report = tl.deep_thought(made).report()
    assert f"There is no synthesis: the solution of “{best}” stands in its place." in report
    assert f"It is the solution of “{best}”." in report
    assert ("assumed, truncated" in report) == (why == CUT)


@pytest.mark.parametrize("how", UNUSABLE)
def test_d8_the_next_iteration_builds_on_the_branch_that_stood_in(how):
    model = thinker(UNUSABLE[how][0], convergence((1, 2, 3)))
    made = run(tl.DeepThink(max_iterations=2), TASK, model)
    first, second = iterations(made)
    assert first.best_solution in prompts(model, "branch")[1]
    assert "a confidence that nobody knows" in prompts(model, "branch")[1]
    assert second.branches[0].node.rpartition(".")[0] == first.node
    assert made.answer == second.best_solution, "which has a confidence"
    assert wait(made.replay()).identical


def test_d8_a_judgement_that_was_cut_off_counts_only_if_it_reached_every_branch():
    whole = convergence((1, 9, 5))
    for part, scores in ((whole.partition(', {"name": "a queue"')[0], [None] * 3), (whole[:-9], [9, 5, 1])):
        (result,) = iterations(run(tl.DeepThink(max_iterations=1), TASK, thinker(part)))
        assert [branch.score for branch in result.branches] == scores


@pytest.mark.parametrize(
    ("reply", "solution"),
    [
        (lambda name: Reply(development(name), finish_reason="length"), "Keep them in a queue."),
        (lambda name: development(name).partition(" queue.")[0], "Keep them in a"),
        (lambda name: development(name).rpartition(",")[0], "Keep them in a queue."),
        (lambda name: Reply("I would take paper, bec", finish_reason="length"), "I would take paper, bec"),
    ],
)
def test_d7_a_development_that_was_cut_off_is_marked_and_its_confidence_assumed(reply, solution):
    def develop(name):
        return reply("a queue") if name == "a queue" else development(name, confidence=1)

    made = run(tl.DeepThink(max_iterations=1), TASK, thinker(develop=develop))
    branches = iterations(made)[0].branches
    (cut,) = [branch for branch in branches if branch.name == "a queue"]
    if "{" not in cut.solution:
        assert cut.solution == solution
    assert (cut.truncated, cut.assumed, cut.confidence) == (True, True, 3.0)
    assert not any(one.truncated or one.assumed for one in branches if one is not cut)
    (note,) = [e for e in made.events if isinstance(e, tl.Note) and e.name == "deep_think.truncated"]
    assert (note.at, note.data) == (cut.solution_node, {"what": "develop", "confidence": 3.0})
    told = tl.deep_thought(made)
    for shown in (told.report(), told.report_html()):
        assert shown.count("truncated: its confidence is assumed") == 1


def test_d7_a_branch_that_was_cut_off_is_marked_where_no_iteration_was_finished():
    def reply(call):
        if call.purpose == "develop":
            return Reply(development(approach_of(call)), finish_reason="length")
        return Reply(error="boom") if call.purpose == "converge" else branches()

    told = tl.deep_thought(run(tl.DeepThink(), TASK, Scripted(reply)))
    assert [one.truncated for one in told.unfinished] == [True] * 3
    assert "of which its own approach was surest. It is truncated." in told.report()


@pytest.mark.parametrize(
    "whole", [development("a queue"), f"```json\n{development('a queue')}\n```", "Paper."]
)
def test_d7_what_is_whole_is_not_marked(whole):
    made = run(
        tl.DeepThink(max_iterations=1), TASK, thinker(develop=lambda name: Reply(whole, finish_reason="stop"))
    )
    assert not notes(made, "deep_think.truncated")
    assert "truncated" not in tl.deep_thought(made).report()


def test_d7_approaches_that_were_cut_off_are_marked():
    cut = branches().partition("Use a queue")[0]

    def reply(call):
        return cut if call.purpose == "branch" else answers(call)

    answers = thinker().reply
    made = run(tl.DeepThink(max_iterations=1), TASK, Scripted(reply))
    assert notes(made, "deep_think.truncated") == [{"what": "branch"}]
    assert "The reply that names the approaches is truncated." in tl.deep_thought(made).report()


def test_d7_a_reply_that_was_cut_off_while_thinking_says_so():
    cut = Reply("<think>Let me see", finish_reason="length")
    made = run(tl.DeepThink(max_iterations=1), TASK, thinker(develop=lambda name: cut))
    assert {e.reason for e in made.events if isinstance(e, tl.records.Decided)} == {
        "the reply was cut off before its answer"
    }


REFUSAL = "I'm sorry, but I can't help with that."


@pytest.mark.parametrize("refusal", [REFUSAL, Reply(REFUSAL, finish_reason="stop"), "null", "[]"])
def test_d8_refusals_at_every_stage_end_after_one_iteration(refusal):
    model = Scripted(lambda call: refusal)
    made = run(tl.DeepThink(max_iterations=5), TASK, model)
    assert kinds(model) == ["branch", "develop", "converge"]
    assert made.stop_reason == "error"
    assert made.score is None
    assert len(notes(made, "deep_think.assumed")) == 3
    assert tl.deep_thought(made).report().count("## Iteration") == 1


def logged(caplog):
    assert {record.name for record in caplog.records} <= {"tot_lab"}
    assert {record.levelname for record in caplog.records} <= {"WARNING"}
    return [record.getMessage() for record in caplog.records]


def falling_back(call):
    """A model whose replies are of no use in four ways."""
    if call.purpose == "branch":
        return branches()
    if call.purpose == "converge":
        return convergence((5, 8), names=("x", "one file"))
    return {
        "one file": Reply(error="boom"),
        "a database": Reply(development("a database"), finish_reason="length"),
        "a queue": "I would take a queue.",
    }[approach_of(call)]


def test_d8_each_fallback_is_a_warning_in_the_log(caplog, tmp_path):
    lab = tl.Lab(Scripted(falling_back), runs=tmp_path)
    made = wait(lab.run(tl.DeepThink(max_iterations=1), TASK))
    told = logged(caplog)
    for what in ("call.failed", "deep_think.truncated", "deep_think.assumed", "deep_think.matched"):
        (line,) = [line for line in told if what in line]
        assert line.startswith(f"run {made.id}, thought 0")
    assert any("boom" in line for line in told)
    assert len(told) == 4
    caplog.clear()
    assert wait(made.replay()).identical
    assert repr(tl.load(made.path))
    wait(lab.estimate(tl.DeepThink(max_iterations=1), TASK))
    assert logged(caplog) == []
    run(tl.DeepThink(), TASK, thinker(convergence((5, 8, 2))))
    assert logged(caplog) == []


def test_d8_an_empty_development_and_a_confidence_out_of_range_are_warnings_in_the_log(caplog, tmp_path):
    def reply(call):
        if call.purpose == "develop" and approach_of(call) == "a queue":
            return ""
        return answers(call)

    answers = thinker(convergence((5, 8), confidence=11)).reply
    lab = tl.Lab(Scripted(reply), runs=tmp_path)
    made = wait(lab.run(tl.DeepThink(max_iterations=1), TASK))
    empty, unrated = logged(caplog)
    assert "deep_think.empty" in empty
    assert "the reply was empty" in empty
    assert "deep_think.unrated" in unrated
    assert "the confidence is not a number from 0 to 10" in unrated
    caplog.clear()
    assert wait(made.replay()).identical
    assert logged(caplog) == []


def test_d8_a_resumed_run_logs_only_what_is_new(caplog, tmp_path):
    lab = tl.Lab(Scripted(falling_back), runs=tmp_path)
    made = wait(lab.run(tl.DeepThink(max_iterations=2), TASK))
    lines = made.path.read_text().splitlines(keepends=True)
    kept = next(k for k, line in enumerate(lines) if "deep_think.iteration" in line) + 1
    made.path.write_text("".join(lines[:kept]))
    before = len(logged(caplog)) // 2
    caplog.clear()
    again = wait(lab.resume(made.path))
    assert len(iterations(again)) == 2
    assert len(logged(caplog)) == before == 4


@pytest.mark.slow
def test_d8_nothing_is_printed_where_no_logging_is_set_up():
    code = (
        "import tot_lab as tl, asyncio\n"
        "async def silent(call): return 'no'\n"
        "asyncio.run(tl.Lab(silent, runs=None).run(tl.DeepThink(), tl.open_ended('Why?')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_d8_one_stage_that_can_be_read_goes_on():
    def reply(call):
        return branches() if call.purpose == "branch" else REFUSAL

    model = Scripted(reply)
    run(tl.DeepThink(max_iterations=2), TASK, model)
    assert kinds(model).count("converge") == 2


def test_d8_when_converge_fails_the_most_confident_branch_answers():
    def develop(name):
        return development(name, confidence={"a queue": 9}.get(name, 4))

    def reply(call):
        return Reply(error="boom") if call.purpose == "converge" else answers(call)

    answers = thinker(develop=develop).reply
    made = run(tl.DeepThink(), TASK, Scripted(reply))
    assert (made.answer, made.stop_reason, made.score) == ("Keep them in a queue.", "error", None)


def test_d8_a_later_iteration_that_fails_leaves_the_earlier_answer():
    calls = []

    def reply(call):
        calls.append(call)
        return Reply(error="boom") if len(calls) == 6 else answers(call)

    answers = thinker().reply
    made = run(tl.DeepThink(), TASK, Scripted(reply))
    assert (made.answer, made.stop_reason) == ("Keep them in a database, with a backup.", "limit:errors")
    assert (made.status, made.failure) == ("partial", None)


@pytest.mark.parametrize("purpose", ["develop", "converge"])
def test_d8_a_later_stage_that_fails_leaves_the_earlier_synthesis(purpose):
    def reply(call):
        return Reply(error="boom") if call.purpose == purpose and len(model.calls) > 6 else answers(call)

    answers = thinker().reply
    model = Scripted(reply)
    made = run(tl.DeepThink(), TASK, model)
    assert [result.iteration for result in iterations(made)] == [1]
    assert made.answer == "Keep them in a database, with a backup."
    assert (made.status, made.stop_reason, made.failure) == ("partial", "limit:errors", None)
    assert "## Iteration 2 · not finished" in tl.deep_thought(made).report()


def test_a_server_without_schemas_costs_one_call_more():
    def reply(call):
        if call.response_format is not None:
            return Reply(error="BadRequest: response_format is not supported here")
        return answers(call)

    answers = thinker().reply
    model = Scripted(reply)
    made = run(tl.DeepThink(), TASK, model)
    assert len(model.calls) == 16 == tl.DeepThink().max_calls(TASK)
    assert made.stop_reason == "limit:iterations"


def virtually(strategy, model, lab_timeout=300.0, **options):
    """A run in virtual time."""
    return run_virtually(tl.Lab(model, runs=None, timeout=lab_timeout).run(strategy, TASK, **options))[0]


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


@pytest.mark.slow
def test_d9_four_calls_at_once_over_all_runs_of_the_process():
    model = Slow()
    labs = [tl.Lab(model, runs=None) for _ in range(2)]

    async def both():
        strategy = tl.DeepThink(num_branches=5)
        return await asyncio.gather(*(lab.run(strategy, TASK) for lab in labs for _ in range(2)))

    assert [made.stop_reason for made in wait(both())] == ["converged"] * 4
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
        return 30.0 if call.purpose == "develop" and approach_of(call) == "a queue" else 0.0

    made = virtually(tl.DeepThink(timeout=0.2), Slow(seconds))
    (result,) = iterations(made)
    assert made.stop_reason == "converged"
    assert [branch.name for branch in result.branches if branch.error] == ["a queue"]


def test_d9_the_time_of_deep_think_takes_the_place_of_the_labs():
    """Also where it is the longer one of the two."""
    slow = Slow(lambda call: 0.4)
    made = virtually(tl.DeepThink(timeout=20), slow, lab_timeout=0.1)
    assert made.stop_reason == "converged"
    assert not [branch.error for branch in iterations(made)[0].branches if branch.error]
    cut = virtually(tl.DeepThink(timeout=0.1), slow, lab_timeout=20)
    assert cut.stop_reason == "limit:timeout"
    plain = virtually(tl.OneAnswer(), slow, lab_timeout=0.1)
    assert "timeout: no reply within 0.1 s" in str(plain.events), "others keep to the lab's"


def test_d9_the_report_says_which_limit_cut():
    def seconds(call):
        return 30.0 if call.purpose == "develop" and approach_of(call) == "a queue" else 0.0

    made = virtually(tl.DeepThink(timeout=0.2), Slow(seconds))
    report = tl.deep_thought(made).report()
    assert "✗ a queue: failed, timeout: no reply within 0.2 s, the strategy's limit for one call" in report
    last = virtually(
        tl.DeepThink(timeout=0.2), Slow(lambda call: 30.0 if call.purpose == "converge" else 0.0)
    )
    report = tl.deep_thought(last).report()
    assert "*Failed:* converge: timeout: no reply within 0.2 s, the strategy's limit for one call" in report
    assert "stopped: limit:timeout" in report
    out = virtually(
        tl.DeepThink(timeout=60),
        Slow(lambda call: 0.0 if call.purpose == "branch" else 30.0),
        budget=tl.Budget(seconds=0.3),
    )
    report = tl.deep_thought(out).report()
    assert "✗ a queue: failed, budget:seconds" in report
    assert "stopped: budget:seconds" in report


def test_d9_a_group_has_twice_the_time_of_a_call_from_its_first_call_on():
    """Each request is repeated in time, so that no call is too long by itself. Together they are."""

    def reply(call):
        if call.purpose == "develop":
            raise Failure("busy", status=503, retry=True, retry_after=0.0)
        return answers(call)

    answers = thinker(names=NAMES).reply
    end = scripted(reply, seconds=0.2, retries=50)
    lab = tl.Lab(end, runs=None, mode="off")
    made, _ = run_virtually(lab.run(tl.DeepThink(num_branches=3, timeout=0.5, max_iterations=1), TASK))
    calls = made.calls_df().query("purpose == 'develop'")
    assert {*calls.error} == {"timeout: no reply within 1 s, the strategy's limit for the group of calls"}
    assert calls.tries.min() > 3
    assert "the strategy's limit for the group of calls" in tl.deep_thought(made).report()


def test_d9_waiting_for_a_place_takes_none_of_a_groups_time():
    """Another run holds three of the four places, so that the five calls of this one go one at a time. Each
    is in time, and together they take more than twice the time of a call."""
    lab = tl.Lab(Slow(lambda call: 0.0 if call.purpose == "branch" else 0.6), runs=None)
    holding = tl.Lab(Slow(lambda call: 0.0 if call.purpose == "branch" else 20.0), runs=None)

    async def both():
        other = asyncio.ensure_future(holding.run(tl.DeepThink(num_branches=3, timeout=60), TASK))
        await asyncio.sleep(0.2)
        made = await lab.run(tl.DeepThink(num_branches=5, timeout=1.0, max_iterations=1), TASK)
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)
        return made

    made, seconds = run_virtually(both())
    assert seconds > 2.5
    assert [branch.error for branch in iterations(made)[0].branches] == [None] * 5


@pytest.mark.slow
def test_d9_four_calls_at_once_over_threads_and_event_loops():
    model, lock = Slow(lambda call: 0.02), threading.Lock()
    under_way = most = 0

    async def counted(call):
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        try:
            return await model(call)
        finally:
            with lock:
                under_way -= 1

    def work(made):
        lab = tl.Lab(counted, runs=None)
        made += [asyncio.run(lab.run(tl.DeepThink(num_branches=5, timeout=0.5), TASK)) for _ in range(2)]

    made = []
    threads = [threading.Thread(target=work, args=[made]) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 4
    assert [run.stop_reason for run in made] == ["converged"] * 12
    assert not [branch.error for run in made for branch in iterations(run)[0].branches if branch.error]


def test_d9_a_group_that_waits_for_its_first_place_loses_no_time():
    lab = tl.Lab(Slow(lambda call: 0.0 if call.purpose == "branch" else 0.1), runs=None)
    holding = tl.Lab(Slow(lambda call: 0.0 if call.purpose == "branch" else 2.5), runs=None)

    async def both():
        others = [asyncio.ensure_future(holding.run(tl.DeepThink(num_branches=4), TASK))]
        await asyncio.sleep(0.2)
        made = await lab.run(tl.DeepThink(num_branches=3, timeout=1.0, max_iterations=1), TASK)
        for other in others:
            other.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        return made

    made, seconds = run_virtually(both())
    assert seconds > 2
    assert [branch.error for branch in iterations(made)[0].branches] == [None] * 3


def test_d9_a_group_takes_twice_that_at_most():
    slow = Slow(lambda call: 30.0 if call.purpose == "develop" else 0.0)
    lab = tl.Lab(slow, runs=None)
    made, seconds = run_virtually(lab.run(tl.DeepThink(num_branches=5, timeout=0.3), TASK))
    assert made.stop_reason == "limit:timeout"
    assert seconds == pytest.approx(0.6, abs=0.01)  # four at once, and then the fifth


@pytest.mark.slow
def test_d9_waiting_for_the_other_branches_takes_none_of_a_calls_time():
    slow = Slow(lambda call: 0.3 if call.purpose == "develop" else 0.0)
    made = run(tl.DeepThink(num_branches=5, timeout=0.5), TASK, slow)
    assert [branch.error for branch in iterations(made)[0].branches] == [None] * 5


@pytest.mark.slow
def test_d9_waiting_for_other_runs_takes_none_of_a_calls_time():
    lab = tl.Lab(Slow(lambda call: 0.1), runs=None)

    async def many():
        strategy = tl.DeepThink(num_branches=5, timeout=0.4)
        return await asyncio.gather(*(lab.run(strategy, TASK) for _ in range(8)))

    made = wait(many())
    assert [run.stop_reason for run in made] == ["converged"] * 8
    assert not [branch.error for run in made for branch in iterations(run)[0].branches if branch.error]


@pytest.mark.slow
def test_d9_a_stage_that_takes_too_long_ends_it_with_what_there_is():
    made = run(
        tl.DeepThink(timeout=0.2), TASK, Slow(lambda call: 30.0 if call.purpose == "converge" else 0.0)
    )
    assert (made.answer, made.stop_reason) == ("Keep them in one file.", "limit:timeout")


@pytest.mark.slow
def test_a_budget_on_time_is_told_apart_from_a_timeout():
    slow = Slow(lambda call: 30.0 if call.purpose == "converge" else 0.0)
    made = run(tl.DeepThink(timeout=60), TASK, slow, budget=tl.Budget(seconds=0.2))
    assert made.stop_reason == "budget:seconds"


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
    assert branch == tl.records.ThoughtBranch(
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
    assert msgspec.structs.replace(result, branches=()) == tl.records.IterationResult(
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


@pytest.mark.nightly
def test_solutions_of_any_length_fit_the_next_prompt():
    long = "word " * 200_000
    lessons = {"patterns": [long], "insights": [long]}
    converged = convergence((5,), synthesis=long, reflection=lessons, next_focus=long)
    model = thinker(converged, develop=lambda name: development(name, solution=long, observation=long))
    made = run(tl.DeepThink(max_iterations=2), TASK, model)
    assert made.answer == long.strip()
    assert max(len(call.prompt) for call in model.calls) < 80_000
    assert "more characters are not shown" in prompts(model, "converge")[0]


# Texts that are too long for a prompt.

LONG = "word " * 2_400  # 12,000 characters, about 2,400 tokens


def with_long_solutions(window):
    """A run whose first approach has a long solution, and its model."""
    model = thinker(
        convergence((5, 8, 2), synthesis=LONG + "with a backup"),
        develop=lambda name: development(name, solution=(LONG if name == NAMES[0] else "") + f"in {name}"),
    )
    task = TASK.model_copy(update={"context_window": window})
    return run(tl.DeepThink(max_iterations=2), task, model), model


@pytest.mark.slow
def test_nothing_is_shortened_that_fits_the_context_window():
    made, model = with_long_solutions(100_000)
    assert notes(made, "deep_think.shortened") == []
    assert f"{LONG}in one file" in prompts(model, "converge")[0]
    assert f"{LONG}with a backup" in prompts(model, "branch")[1]
    assert "characters are not shown" not in "".join(call.prompt for call in model.calls)
    assert tl.diagnose(made).of("shortened_texts") == []


@pytest.mark.slow
@pytest.mark.parametrize("window", [3_000, 4_000])
def test_what_does_not_fit_is_shortened_and_each_cut_is_a_note(window):
    made, model = with_long_solutions(window)
    shortened = notes(made, "deep_think.shortened")
    assert {(note["what"], note["text"], note["branch"]) for note in shortened} >= {
        ("converge", "solution", "b0"),
        ("branch", "best solution", ""),
        ("develop", "best solution", ""),
    }
    assert {note["text"] for note in shortened} <= {
        "solution",
        "best solution",
    }  # what is short is shown whole
    cuts = sum(call.prompt.count("more characters are not shown") for call in model.calls)
    assert len(shortened) == cuts > 0
    assert all(note["window"] == window and 0 < note["shown"] < note["of"] for note in shortened)
    assert max(tokens_in(call.prompt) for call in model.calls) < window
    assert f"in {NAMES[1]}" in prompts(model, "converge")[0]
    assert made.answer == f"{LONG}with a backup"  # the answer itself is whole


@pytest.mark.slow
def test_a_larger_window_shows_more():
    shown = [
        sum(note["shown"] for note in notes(with_long_solutions(window)[0], "deep_think.shortened")[:1])
        for window in (2_000, 3_000, 4_000)
    ]
    assert shown == sorted(shown)
    assert len({*shown}) == 3


@pytest.mark.slow
def test_without_a_known_window_each_text_has_8000_characters():
    made, model = with_long_solutions(None)
    lab = tl.Lab(thinker(), runs=None, roles={"other": model})
    task = TASK.model_copy(update={"context_window": 100_000})  # that of the lab's model, which is not asked
    other = wait(lab.run(tl.DeepThink(max_iterations=2, model="other"), task))
    for run_ in (made, other):
        told = notes(run_, "deep_think.shortened")
        assert {(note["shown"], note["window"]) for note in told} == {(8_000, None)}


def test_the_window_is_that_of_the_labs_model_also_without_tools():
    class Small(tl.Part):
        kind = "test/small"
        context_window: int = 3_000

        async def __call__(self, call: Call) -> str:
            raise NotImplementedError

    assert tl.Lab(Small(), runs=None).runner.equipped(TASK).context_window == 3_000
    assert tl.Lab(thinker(), runs=None).runner.equipped(TASK).context_window is None
    mine = TASK.model_copy(update={"context_window": 9})
    assert tl.Lab(Small(), runs=None).runner.equipped(mine).context_window == 9


@pytest.mark.slow
def test_a_shortened_text_is_a_finding_and_a_line_of_the_report():
    made, _ = with_long_solutions(None)
    (finding,) = tl.diagnose(made).of("shortened_texts")
    assert "solution in converge" in finding.text
    assert "8,000 of 12,0" in finding.text
    assert "window is not known" in finding.text
    assert "0" in finding.nodes
    report = tl.deep_thought(made).report()
    first, second = report.split("## Iteration 2")
    assert (
        "Later phases were shown only the beginning of: solution of b0 (8,000 of 12,011 characters)." in first
    )
    assert "best solution (8,000 of 12,013 characters)" in second
    known, _ = with_long_solutions(4_000)
    assert "has 4,000 tokens" in tl.diagnose(known).of("shortened_texts")[0].text
    whole, _ = with_long_solutions(100_000)
    assert "only the beginning" not in tl.deep_thought(whole).report()
    assert wait(known.replay()).identical
