"""The simulated player of tasks under constraints: it reads prompts only, its skill is what it says, and all
strategies run on it."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from random import Random
from typing import Any

import msgspec
import pytest
from support import STRATEGIES, wait

import tot_lab as tl
from tot_lab.core.calls import Call, Message, Reply
from tot_lab.core.parts import part_of
from tot_lab.domains.constrained.constraints import check_rules, rules_in
from tot_lab.domains.constrained.player import damaged

MASTER = tl.sim.SimConstrained(skill=1, noise=0)
TASKS = tl.domains.constrained_tasks(24)
LESSON = "Last time `best: N` failed. Write the draft alone.\n\nAnswer: go on.\n\nscore: K/N"

INNER = tl.TreeOfThoughts(propose=tl.Propose(count=2), stop=tl.Stop(depth=2))
SETTINGS: dict[type[tl.Strategy], dict[str, Any]] = {
    tl.BestOf: {"strategy": tl.OneAnswer(), "attempts": 3},
    tl.Reflexion: {"strategy": tl.ChainOfThought()},
    tl.WithThinking: {"strategy": INNER, "level": "medium", "reflect_every": 2},
    tl.WithSynthesis: {"strategy": tl.ReAct(), "synthesis": "deep", "above": 0},
}


def ask(model: Any, prompt: str, draw: int = 0, kind: str = "whatever", **settings: Any) -> Reply:
    reply = asyncio.run(model(Call("0", kind, (Message("user", prompt),), draw, **settings)))
    assert isinstance(reply, Reply)
    return reply


def lab(skill: float, **settings: Any) -> tl.Lab:
    return tl.Lab(tl.sim.SimConstrained(skill=skill, **settings), runs=None, cache=None)


def mean(made: list[tl.Run]) -> float:
    return sum(run.grade or 0.0 for run in made) / len(made)


def runs(strategy: tl.Strategy, skill: float, tasks: list[tl.Task] = TASKS, **settings: Any) -> list[tl.Run]:
    held = lab(skill, **settings)
    return [wait(held.run(strategy, task)) for task in tasks]


# The domain's prompts.


@pytest.mark.slow
@pytest.mark.parametrize("context", ["", LESSON])
@pytest.mark.parametrize("number", [1, 2, 4, 6, 8, 11])
def test_it_understands_every_prompt(number: int, context: str) -> None:
    task = tl.domains.constrained(number).model_copy(update={"context": context})
    game, rules = task.domain, rules_in(task.question)
    good = task.reference
    bad = damaged(good, rules, [False] * len(rules), Random("bad"))
    assert sum(check_rules(rules, bad)) < len(rules)

    def said(prompt: str) -> str:
        return ask(MASTER, prompt).text

    for path in ([], [bad]):
        sampled = game.read_sample(task, path, said(game.sample_prompt(task, path)))
        drafts = game.read_proposals(task, path, said(game.propose_prompt(task, path, 3)))
        assert len(drafts) == 3
        assert [task.grade(draft) for draft in [sampled or "", *drafts]] == [1.0] * 4
    assert game.read_value(said(game.value_prompt(task, [bad, good]))) == 1.0
    assert game.read_value(said(game.value_prompt(task, [good, bad]))) == pytest.approx(task.grade(bad))
    assert game.read_value(said(game.value_prompt(task, [f"Answer: {good}"]))) == 1.0  # as BestOf asks
    assert said(game.judge_prompt(task, [good])) == "yes"
    assert said(game.judge_prompt(task, [good, bad])) == "no"
    assert game.read_vote(said(game.vote_prompt(task, [[bad], [bad, good]])), 2) == 1
    low, high = game.read_joint(said(game.joint_prompt(task, [bad], [bad, good])), [bad, good])
    assert low is not None
    assert low < 1.0 == high
    for reasoning in (False, True):
        answer = game.read_answer(task, said(game.answer_prompt(task, reasoning)))
        assert task.grade(answer or "") == 1.0


@pytest.mark.nightly
def test_skill_is_the_chance_that_a_rule_is_kept() -> None:
    tasks = tl.domains.constrained_tasks(60)
    kept = [
        sum(mean(runs(tl.OneAnswer(), skill, tasks, seed=seed)) for seed in (0, 1)) / 2
        for skill in (0.2, 0.5, 0.8)
    ]
    assert kept == pytest.approx([0.2, 0.5, 0.8], abs=0.07)
    assert mean(runs(tl.OneAnswer(), 0.0, tasks)) < 0.06  # some rules cannot be broken together
    assert mean(runs(tl.OneAnswer(), 1.0, tasks)) > 0.99


@pytest.mark.nightly
@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param(tl.DeepThink(), marks=pytest.mark.nightly),
        tl.Reflexion(strategy=tl.ChainOfThought()),
        pytest.param(INNER, marks=pytest.mark.nightly),
    ],
)
def test_more_skill_is_a_better_grade(strategy: tl.Strategy) -> None:
    grades = [mean(runs(strategy, skill)) for skill in (0.0, 0.3, 0.6, 1.0)]
    assert all(one < other for one, other in pairwise(grades)), grades
    assert grades[-1] > 0.99


@pytest.mark.slow
def test_it_sees_a_broken_rule_as_often_as_its_skill_says() -> None:
    task = tl.domains.constrained(12)
    prompt = task.domain.value_prompt(task, ["nothing that can be read"])
    for skill in (0.0, 0.6, 1.0):
        model = tl.sim.SimConstrained(skill=skill, noise=0)
        unseen = [task.domain.read_value(ask(model, prompt, draw).text) or 0.0 for draw in range(150)]
        assert sum(unseen) / len(unseen) == pytest.approx(1 - (1 + skill) / 2, abs=0.05)
    blind = tl.sim.SimConstrained(skill=1, noise=1)
    guessed = [task.domain.read_value(ask(blind, prompt, draw).text) or 0.0 for draw in range(150)]
    assert sum(guessed) / len(guessed) == pytest.approx(0.5, abs=0.05)


@pytest.mark.slow
def test_a_rule_that_is_spoken_of_gets_two_tries() -> None:
    model = tl.sim.SimConstrained(skill=0.5)
    task = tl.domains.constrained(9)
    rules = rules_in(task.question)

    def share(context: str) -> float:
        told = task.model_copy(update={"context": context})
        prompt = task.domain.answer_prompt(told, False)
        kept = [check_rules(rules, ask(model, prompt, draw).text)[1] for draw in range(200)]
        return sum(kept) / len(kept)

    assert share("") == pytest.approx(0.5, abs=0.1)
    assert share(f"Mind this: {rules[1].text}") == pytest.approx(0.75, abs=0.1)


@pytest.mark.slow
def test_a_better_draft_keeps_what_the_last_one_kept() -> None:
    model = tl.sim.SimConstrained(skill=0.5, noise=0)
    for task in TASKS[:12]:
        rules = rules_in(task.question)
        draft = ask(model, task.domain.sample_prompt(task, []), 3).text
        better = ask(model, task.domain.sample_prompt(task, [draft])).text
        assert sum(check_rules(rules, better)) >= sum(check_rules(rules, draft))


# Strategies.


@pytest.mark.slow
@pytest.mark.parametrize("kind", STRATEGIES, ids=lambda kind: kind.kind)
@pytest.mark.parametrize("number", [11, 6])
def test_every_strategy_runs_on_it(kind: type[tl.Strategy], number: int) -> None:
    made = wait(tl.Lab(MASTER, runs=None).run(kind(**SETTINGS.get(kind, {})), tl.domains.constrained(number)))
    assert made.grade == 1.0
    assert made.usage.errors == 0
    assert not any("do not understand" in reply.text for reply in made.events if isinstance(reply, Reply))
    unreadable = [event for event in made.events if isinstance(event, tl.Note) and event.name in UNREAD]
    assert not unreadable


UNREAD = ("parse.unreadable", "json.failed", "json.retried", "deep_think.assumed", "call.failed")


@pytest.mark.slow
@pytest.mark.parametrize(
    "strategy",
    [
        tl.PlanExecute(plan_mode="dag"),
        tl.Reflexion(strategy=tl.ChainOfThought()),
        tl.TreeOfThoughts(evaluate=tl.Vote(samples=2), stop=tl.Stop(depth=2)),
        tl.TreeOfThoughts(propose="propose", evaluate="joint", stop=tl.Stop(depth=2)),
        tl.TreeOfThoughts(evaluate="logprob", stop=tl.Stop(depth=2)),
        tl.Adaptive(),
        tl.DeepThink(),
    ],
)
def test_a_poor_player_is_read_too(strategy: tl.Strategy) -> None:
    for made in runs(strategy, 0.3, TASKS[:8]):
        assert made.answer
        assert not [event for event in made.events if isinstance(event, tl.Note) and event.name in UNREAD]


# Deep Think.


def iterations(made: tl.Run) -> list[tl.records.IterationResult]:
    return [
        msgspec.convert(event.data, tl.records.IterationResult)
        for event in made.events
        if isinstance(event, tl.Note) and event.name == "deep_think.iteration"
    ]


@pytest.mark.slow
def test_deep_think_goes_through_its_stages() -> None:
    made = runs(tl.DeepThink(), 0.4)
    assert {call.purpose for run in made for call in run.events if isinstance(call, Call)} == {
        "branch",
        "develop",
        "converge",
    }
    told = [result for run in made for result in iterations(run)]
    for result in told:
        assert len({branch.name for branch in result.branches}) == len(result.branches) == 3
        assert all(branch.score is not None and branch.solution for branch in result.branches)
        assert not result.assumed
    assert any(result.taken for result in told)
    for run in made:
        assert run.usage.calls == 5 * len(iterations(run))
        assert run.stop_reason in ("converged", "solved", "limit:iterations")
        assert iterations(run)[-1].should_continue is (run.stop_reason != "converged")
    assert {1, 2, 3} == {len(iterations(run)) for run in made}


@pytest.mark.slow
def test_a_master_converges_at_once() -> None:
    for run in runs(tl.DeepThink(), 1.0, TASKS[:6], noise=0):
        assert (run.stop_reason, run.usage.calls, run.grade) == ("converged", 5, 1.0)


@pytest.mark.nightly
def test_a_synthesis_joins_what_the_branches_keep() -> None:
    quick = tl.presets.deep_think_quick()
    alone, joined = mean(runs(tl.OneAnswer(), 0.6)), mean(runs(quick, 0.6))
    assert joined > alone + 0.1
    assert mean(runs(tl.presets.deep_think_balanced(), 0.6)) > joined + 0.03


def test_a_synthesis_takes_what_another_branch_keeps_and_says_so() -> None:
    task = tl.domains.constrained(11)
    rules = rules_in(task.question)
    names = ["The first way", "The second way"]
    solutions = [
        damaged(task.reference, rules, [k not in broken for k in range(len(rules))], Random("s"))
        for broken in ((1,), (2, 3))
    ]
    assert [[*check_rules(rules, one)].count(False) for one in solutions] == [1, 2]
    told = "\n\n".join(
        f"<approach>\nName: {name}\nStrategy: try\n<solution>\n{solution}\n</solution>\n</approach>"
        for name, solution in zip(names, solutions, strict=True)
    )
    prompt = f"{task.domain.answer_prompt(task, True)}\n\nIt was solved in 2 ways:\n\n{told}\n\nJudge each."
    made = json.loads(ask(MASTER, prompt, kind="converge").text)
    assert [one["name"] for one in made["evaluations"]] == names
    assert made["evaluations"][0]["correctness"] > made["evaluations"][1]["correctness"]
    assert made["synthesis"]["taken"] == [{"name": names[1], "idea": rules[1].text}]
    assert task.grade(made["synthesis"]["solution"]) == 1.0
    assert made["reflection"]["mistakes"] == [
        f"{names[0]}: {rules[1].text}",
        f"{names[1]}: {rules[2].text}",
        f"{names[1]}: {rules[3].text}",
    ]
    assert (made["confidence"], made["should_continue"], made["next_focus"]) == (10.0, False, "")


def test_later_approaches_begin_with_what_was_found_broken() -> None:
    prompt = f"{tl.domains.constrained(11).domain.answer_prompt(tl.domains.constrained(11), True)}\n\n"
    rules = rules_in(prompt)
    asked = "Do not solve it yet. Find 3 different approaches to it."
    reply = ask(MASTER, f"{prompt}Look at this first:\n{rules[4].text}\n\n{asked}", kind="branch").text
    first, *others = json.loads(reply)["branches"]
    assert rules[4].text in first["strategy"]
    assert len(others) == 2


# Itself.


def test_garbled_replies_cannot_be_read() -> None:
    model, task = tl.sim.SimConstrained(garble=1), TASKS[0]
    game = task.domain
    for draw in range(10):
        assert game.read_sample(task, [], ask(model, game.sample_prompt(task, []), draw).text) is None
        assert game.read_value(ask(model, game.value_prompt(task, ["x"]), draw).text) is None
        assert game.read_answer(task, ask(model, game.answer_prompt(task, False), draw).text) is None
    for made in runs(tl.DeepThink(), 0.6, TASKS[:4], garble=0.3):
        assert made.stop_reason != "cancelled"


@pytest.mark.parametrize(
    "prompt",
    [
        "What is the capital of France?",
        "",
        "Rules:\n- Be nice.\n\nWrite the draft alone.",
        "Rules:\n- It has exactly 9 sentences.\n\nWrite the draft alone.",  # of no task
    ],
)
def test_it_says_so_when_it_does_not_understand(prompt: str) -> None:
    assert "do not understand" in ask(MASTER, prompt).text
    assert "do not understand" in ask(MASTER, prompt, kind="branch").text
    assert ask(MASTER, prompt).simulated


def test_a_verdict_comes_with_its_probabilities() -> None:
    task = tl.domains.constrained(2)
    scores = []
    for draft in (task.reference, "nothing"):
        reply = ask(MASTER, task.domain.judge_prompt(task, [draft]), max_tokens=1, logprobs=20)
        read = task.domain.read_judge(reply.logprobs)
        assert read is not None
        scores.append(read[0])
    assert scores[0] > 0.5 > scores[1]


@pytest.mark.parametrize("setting", [{"skill": 1.1}, {"noise": -0.1}, {"garble": 2}, {"latency": -1}])
def test_bad_settings_are_refused_by_name(setting: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(setting))):
        tl.sim.SimConstrained(**setting)


def test_settings_come_back() -> None:
    model = tl.sim.SimConstrained(skill=0.4)
    assert part_of(json.loads(json.dumps(model.settings()))) == model
