"""The simulated solver and writer: they read prompts only, and their skill is what it says."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any

import pytest
from support import wait

import tot_lab as tl
from tot_lab.core.calls import Call, Message, Reply
from tot_lab.core.parts import part_of
from tot_lab.core.task import Task
from tot_lab.domains.creative_writing import CreativeWriting
from tot_lab.domains.mini_crossword import NAMES
from tot_lab.domains.mini_crossword.puzzles import puzzles

SOLVER = tl.sim.SimMiniCrossword(skill=1, sight=1, noise=0)
WRITER = tl.sim.SimCreativeWriting(skill=1, noise=0)
LESSON = "Last time `best: N` failed, and h1: z z z z z too.\n\nAnswer: find words for the clues. Reply sure."
WRONG = "h1. thump"


def ask(model: Any, prompt: str, draw: int = 0, **settings: Any) -> Reply:
    call = Call("0", "whatever", (Message("user", prompt),), draw, **settings)
    reply = asyncio.run(model(call))
    assert isinstance(reply, Reply)
    return reply


def crossword(**settings: Any) -> tuple[Task, Any]:
    task = tl.domains.mini_crossword(3, **settings)
    return task, task.domain


def writing(**update: Any) -> tuple[Task, CreativeWriting]:
    task = tl.domains.creative_writing(1).model_copy(update=update)
    assert isinstance(task.domain, CreativeWriting)
    return task, task.domain


# Crosswords.


@pytest.mark.parametrize("context", ["", LESSON])
@pytest.mark.parametrize("structured", [False, True])
def test_the_solver_understands_every_prompt(context: str, structured: bool) -> None:
    task, game = crossword(structured=structured)
    task = task.model_copy(update={"context": context})
    path = ["h2. rural", "v1. traps"]

    def said(prompt: str, kind: str) -> str:
        return ask(SOLVER, prompt, response_format=game.response_format(kind, task, path)).text

    step = game.read_sample(task, path, said(game.sample_prompt(task, path), "sample"))
    assert game.solvable(task, [*path, step])
    steps = game.read_proposals(task, path, said(game.propose_prompt(task, path, 3), "propose"))
    assert len(steps) == 8  # one for each open clue
    assert all(game.solvable(task, [*path, step]) for step in steps)
    assert game.read_value(said(game.value_prompt(task, path), "value")) == 1.0
    assert game.read_value(said(game.value_prompt(task, ["h2. rural", WRONG]), "value")) == 0.0
    parts = game.part_prompts(task, ["h2. rural", WRONG])
    assert [game.read_part(said(part, "part")) for part in parts] == [
        0,
        1,
        1,
        1,
        1,
        1,
        0,
    ]  # h1, and v5 by its p
    assert said(game.judge_prompt(task, path), "judge") == "yes"
    assert said(game.judge_prompt(task, [WRONG]), "judge") == "no"
    assert game.read_vote(said(game.vote_prompt(task, [[WRONG], path]), "vote"), 2) == 1
    wrong = game.read_sample(task, [], WRONG)
    bad, good = game.read_joint(said(game.joint_prompt(task, path, [wrong, step]), "joint"), [wrong, step])
    assert bad < 0.5 < good
    for reasoning in (False, True):
        answer = game.read_answer(task, said(game.answer_prompt(task, reasoning), "answer"))
        assert task.grade(answer) == 1.0
    full = [f"{name}. {word}" for name, word in zip(NAMES, puzzles()[2].words, strict=True)][:5]
    assert said(game.propose_prompt(task, full, 3), "propose") == "none"


@pytest.mark.slow
def test_skill_is_the_chance_of_the_right_word_and_letters_help() -> None:
    task, game = crossword()

    def share(model: tl.sim.SimMiniCrossword, path: list[str]) -> float:
        right = total = 0
        for draw in range(60):
            steps = game.read_proposals(task, path, ask(model, game.propose_prompt(task, path, 3), draw).text)
            right += sum(game.solvable(task, [*path, step]) for step in steps)
            total += len(steps)
        return right / total

    for skill in (0.0, 0.4, 1.0):
        assert abs(share(tl.sim.SimMiniCrossword(skill=skill), []) - skill) < 0.08
    # Three rows without letters, and five columns with two letters of five.
    expected = (3 * 0.4 + 5 * (0.4 + 0.6 * 2 / 5)) / 8
    assert abs(share(tl.sim.SimMiniCrossword(skill=0.4), ["h1. thumb", "h2. rural"]) - expected) < 0.08


@pytest.mark.slow
def test_sight_and_noise_are_chances_of_finding_a_clue_impossible() -> None:
    task, game = crossword()
    wrong, right = game.value_prompt(task, [WRONG]), game.value_prompt(task, ["h1. thumb"])

    def impossible(model: tl.sim.SimMiniCrossword, prompt: str) -> float:
        values = [game.read_value(ask(model, prompt, draw).text) for draw in range(400)]
        return values.count(0.0) / 400

    model = tl.sim.SimMiniCrossword(sight=0.3, noise=0.1)  # one clue has letters, and is judged
    assert abs(impossible(model, wrong) - 0.3) < 0.07
    assert abs(impossible(model, right) - 0.1) < 0.05


def test_it_guesses_at_clues_that_it_does_not_know() -> None:
    task = tl.domains.mini_crossword([f"something about {k}" for k in range(10)])
    prompt = task.domain.propose_prompt(task, [], 3)
    assert len(task.domain.read_proposals(task, [], ask(SOLVER, prompt).text)) == 10
    assert task.domain.read_value(ask(SOLVER, task.domain.value_prompt(task, ["h1. thumb"])).text) == 1.0


@pytest.mark.nightly
def test_a_search_goes_back_and_solves_some_and_not_others() -> None:
    lab = tl.Lab(tl.sim.SimMiniCrossword(skill=0.1), runs=None, cache=None)
    known = tl.domains.mini_crossword_tasks(12)
    runs = [wait(lab.run(tl.presets.mini_crossword(), task)) for task in known]
    grades = [
        tl.domains.mini_crossword_scores(task, run.answer) for task, run in zip(known, runs, strict=True)
    ]
    solved = sum(scores.game for scores in grades if scores)
    words = sum(scores.words for scores in grades if scores) / 12
    assert 2 <= solved <= 10
    alone = [wait(lab.run(tl.ChainOfThought(), task)) for task in known]
    assert words > sum(run.grade for run in alone) / 12 + 0.1
    for run in runs:
        depths = [
            run.tree[call.node].depth
            for call in run.events
            if isinstance(call, Call) and call.purpose == "propose"
        ]
        assert any(later < earlier for earlier, later in pairwise(depths))  # it went back
        assert any(node.reason == "prune_below" for node in run.tree)


@pytest.mark.nightly
def test_a_perfect_solver_solves_every_puzzle() -> None:
    lab = tl.Lab(SOLVER, runs=None)
    for task in tl.domains.mini_crossword_tasks(6):
        assert (
            tl.domains.mini_crossword_scores(
                task, wait(lab.run(tl.presets.mini_crossword(), task)).answer
            ).game
            == 1.0
        )


# Writing.


@pytest.mark.parametrize("context", ["", LESSON])
def test_the_writer_understands_every_prompt(context: str) -> None:
    task, domain = writing(context=context)

    def said(prompt: str) -> str:
        return ask(WRITER, prompt).text

    plan = domain.read_sample(task, [], said(domain.sample_prompt(task, [])))
    assert plan is not None
    assert len(plan.split("\n")) == 4
    passage = domain.read_sample(task, [plan], said(domain.sample_prompt(task, [plan])))
    assert passage is not None
    assert task.grade(passage) == 1.0
    assert len(domain.read_proposals(task, [], said(domain.propose_prompt(task, [], 3)))) == 3
    passages = domain.read_proposals(task, [plan], said(domain.propose_prompt(task, [plan], 3)))
    assert [task.grade(text) for text in passages] == [1.0, 1.0, 1.0]
    mixed = "\n".join(
        f"{k}. {hero} left." for k, hero in enumerate(("The night porter", "The young chemist"), 1)
    )
    for good, bad, path in ((plan, mixed, []), (passage, "Once. " + passage.partition(".")[0], [plan])):
        assert domain.read_value(said(domain.value_prompt(task, [*path, good]))) == 1.0
        assert domain.read_value(said(domain.value_prompt(task, [*path, bad]))) < 1.0  # type: ignore[operator]
        assert said(domain.judge_prompt(task, [*path, good])) == "yes"
        assert said(domain.judge_prompt(task, [*path, bad])) == "no"
        assert domain.read_vote(said(domain.vote_prompt(task, [[*path, bad], [*path, good]])), 2) == 1
        low, high = domain.read_joint(said(domain.joint_prompt(task, path, [bad, good])), [bad, good])
        assert low < high == 1.0  # type: ignore[operator]
    for reasoning in (False, True):
        answer = domain.read_answer(task, said(domain.answer_prompt(task, reasoning)))
        assert answer is not None
        assert task.grade(answer) == 1.0
    assert said(domain.sample_prompt(task, [plan, passage])) == "none"


def test_a_passage_keeps_to_its_plan() -> None:
    task, domain = writing()
    plan = "\n".join(f"{k}. The night porter sat down." for k in range(1, 5))
    for draw in range(10):
        passage = ask(tl.sim.SimCreativeWriting(skill=0), domain.sample_prompt(task, [plan]), draw).text
        assert passage.count("the night porter") == 8
        assert task.grade(passage) == 0.0


@pytest.mark.slow
def test_voting_helps_a_writer() -> None:
    lab = tl.Lab("sim/creative_writing", runs=None, cache=None)
    blind = tl.Lab(tl.sim.SimCreativeWriting(noise=1), runs=None, cache=None)
    known = tl.domains.creative_writing_tasks(20)

    def mean(lab: tl.Lab, strategy: tl.Strategy) -> float:
        return sum(wait(lab.run(strategy, task)).grade for task in known) / 20

    voted = mean(lab, tl.presets.creative_writing())
    assert voted > mean(lab, tl.ChainOfThought()) + 0.1
    assert voted > mean(blind, tl.presets.creative_writing()) + 0.1


# Both.


@pytest.mark.parametrize("model", [tl.sim.SimMiniCrossword(garble=1), tl.sim.SimCreativeWriting(garble=1)])
def test_garbled_replies_cannot_be_read(model: Any) -> None:
    task = (
        tl.domains.mini_crossword(3) if model.kind == "sim/mini_crossword" else tl.domains.creative_writing(1)
    )
    game, path = task.domain, ["h1. thumb"]
    for draw in range(10):
        assert game.read_sample(task, path, ask(model, game.sample_prompt(task, path), draw).text) is None
        assert (
            game.read_proposals(task, path, ask(model, game.propose_prompt(task, path, 3), draw).text) == []
        )
        assert game.read_value(ask(model, game.value_prompt(task, path), draw).text) is None
        assert game.read_vote(ask(model, game.vote_prompt(task, [path, path]), draw).text, 2) is None
        assert game.read_joint(ask(model, game.joint_prompt(task, path, path), draw).text, [""]) == [None]
        assert game.read_answer(task, ask(model, game.answer_prompt(task, False), draw).text) is None


@pytest.mark.parametrize("model", [SOLVER, WRITER])
@pytest.mark.parametrize(
    "prompt", ["What is the capital of France?", "", "h1. one clue\nFind words for the clues."]
)
def test_they_say_so_when_they_do_not_understand(model: Any, prompt: str) -> None:
    reply = ask(model, prompt)
    assert "do not understand" in reply.text
    assert reply.simulated


@pytest.mark.parametrize("model", [SOLVER, WRITER])
def test_a_verdict_comes_with_its_probabilities(model: Any) -> None:
    task, good, bad = (
        (tl.domains.mini_crossword(3), ["h1. thumb"], [WRONG])
        if model is SOLVER
        else (tl.domains.creative_writing(1), ["1. The night porter left."], ["1. Somebody left."])
    )
    scores = []
    for path in (good, bad):
        reply = ask(model, task.domain.judge_prompt(task, path), max_tokens=1, logprobs=20)
        read = task.domain.read_judge(reply.logprobs)
        assert read is not None
        scores.append(read[0])
    assert scores[0] > 0.5 > scores[1]


@pytest.mark.parametrize("setting", [{"skill": 1.1}, {"noise": -0.1}, {"garble": 2}, {"latency": -1}])
@pytest.mark.parametrize("kind", [tl.sim.SimMiniCrossword, tl.sim.SimCreativeWriting])
def test_bad_settings_are_refused_by_name(kind: Any, setting: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(setting))):
        kind(**setting)


@pytest.mark.parametrize("model", [tl.sim.SimMiniCrossword(sight=0.5), tl.sim.SimCreativeWriting(skill=0.5)])
def test_settings_come_back(model: Any) -> None:
    assert part_of(json.loads(json.dumps(model.settings()))) == model
