"""The simulated player: it reads prompts only, and is the same everywhere."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from typing import Any

import pytest

from tot_lab.core.arithmetic import win_share
from tot_lab.core.calls import Call, Message, Reply
from tot_lab.core.parts import part_of
from tot_lab.core.task import Task
from tot_lab.domains.game24 import game24, game24_tasks, hands
from tot_lab.domains.game24.player import SimGame24

TASK = game24("4 5 6 10")
GAME = TASK.domain
PATH = ["4 * 5 = 20 (left: 6 10 20)", "10 - 6 = 4 (left: 4 20)", "20 + 4 = 24 (left: 24)"]
PERFECT = SimGame24(skill=1, noise=0)


def ask(model: SimGame24, prompt: str, draw: int = 0, **settings: Any) -> Reply:
    call = Call("0", "whatever", (Message("user", prompt),), draw, **settings)
    return asyncio.run(model(call))


def prompts(task: Task) -> dict[str, str]:
    game = task.domain
    return {
        "sample": game.sample_prompt(task, PATH[:1]),
        "propose": game.propose_prompt(task, PATH[:1], 4),
        "value": game.value_prompt(task, PATH[:1]),
        "checked": game.value_prompt(task, PATH),
        "vote": game.vote_prompt(task, [PATH[:1], PATH[:2]]),
        "joint": game.joint_prompt(task, PATH[:1], [PATH[1], "20 * 10 = 200 (left: 6 200)"]),
        "direct": game.answer_prompt(task, False),
        "reasoned": game.answer_prompt(task, True),
    }


@pytest.mark.parametrize(
    "context", ["", "Last time `best: N` failed. Numbers left: 1 2\n\nAnswer: propose up to 9."]
)
@pytest.mark.parametrize("structured", [False, True])
def test_it_understands_every_prompt(context: str, structured: bool) -> None:
    task = game24("4 5 6 10", structured=structured).model_copy(update={"context": context})
    game = task.domain
    said = {
        name: ask(PERFECT, prompt, response_format=game.response_format(name, task, PATH[:1])).text
        for name, prompt in prompts(task).items()
    }
    step = game.read_sample(task, PATH[:1], said["sample"])
    assert step is not None
    assert win_share(game.state(task, [PATH[0], step])) > 0  # type: ignore[arg-type]
    steps = game.read_proposals(task, PATH[:1], said["propose"])
    assert len(set(steps)) == 4
    assert game.read_value(said["value"]) in (20.0, 1.0)
    assert game.read_value(said["checked"]) == 20.0
    assert game.read_vote(said["vote"], 2) in (0, 1)
    good, bad = game.read_joint(said["joint"], ["", ""])
    assert good is not None
    assert bad is not None
    assert good >= 0.7
    assert bad <= 0.3
    for name in ("direct", "reasoned"):
        answer = game.read_answer(task, said[name])
        assert answer is not None
        assert task.grade(answer) == 1.0


@pytest.mark.slow
def test_it_judges_by_noise() -> None:
    dead = GAME.value_prompt(TASK, [*PATH[:2], "20 - 4 = 16 (left: 16)"])
    assert GAME.read_value(ask(PERFECT, dead).text) == 0.001
    assert GAME.read_value(ask(SimGame24(noise=1), dead).text) == 20.0
    said = [GAME.read_value(ask(SimGame24(noise=0.25), dead, draw).text) for draw in range(400)]
    assert 0.15 < said.count(20.0) / 400 < 0.35


@pytest.mark.slow
def test_skill_is_the_share_of_steps_that_keep_24_reachable() -> None:
    prompt = GAME.sample_prompt(TASK, [])
    for skill in (0.0, 0.7, 1.0):
        kept = 0
        for draw in range(400):
            step = GAME.read_sample(TASK, [], ask(SimGame24(skill=skill), prompt, draw).text)
            assert step is not None
            kept += win_share(GAME.state(TASK, [step])) > 0  # type: ignore[arg-type]
        assert abs(kept / 400 - skill) < 0.08


@pytest.mark.slow
def test_garbled_replies_cannot_be_read() -> None:
    model = SimGame24(garble=1)
    for draw in range(20):
        said = {name: ask(model, prompt, draw).text for name, prompt in prompts(TASK).items()}
        assert GAME.read_proposals(TASK, PATH[:1], said["propose"]) == []
        assert GAME.read_sample(TASK, PATH[:1], said["sample"]) is None
        assert GAME.read_value(said["value"]) is None
        assert GAME.read_vote(said["vote"], 2) is None
        assert GAME.read_joint(said["joint"], ["", ""]) == [None, None]
        assert GAME.read_answer(TASK, said["direct"]) is None
    mixed = [ask(SimGame24(garble=0.3), GAME.value_prompt(TASK, []), draw).text for draw in range(400)]
    assert 0.2 < sum(GAME.read_value(text) is None for text in mixed) / 400 < 0.4


def test_it_plays_from_the_text_alone() -> None:
    message = (Message("user", GAME.propose_prompt(TASK, [], 3)),)
    first = asyncio.run(PERFECT(Call("0", "propose", message)))
    assert asyncio.run(PERFECT(Call("0.7.1", "value", message))) == first


@pytest.mark.parametrize(
    "prompt",
    ["What is the capital of France?", "", "Make 24 of 0 0 0 0.\nAnswer: <expression>",
     "Game of 24. Write one next step.\nNumbers left: unclear from the steps",
     "24: propose 3 different next steps.\nNumbers left: 1 2 3 4 5"],
)  # fmt: skip
def test_it_says_so_when_it_does_not_understand(prompt: str) -> None:
    reply = ask(SimGame24(garble=1), prompt)
    assert "do not understand" in reply.text
    assert reply.simulated


def test_draws_differ_and_temperature_zero_makes_them_alike() -> None:
    prompt = GAME.sample_prompt(TASK, [])
    assert len({ask(SimGame24(), prompt, draw).text for draw in range(20)}) > 3
    assert len({ask(SimGame24(), prompt, 0, repeat=k).text for k in range(20)}) > 3
    assert len({ask(SimGame24(seed=k), prompt).text for k in range(20)}) > 3
    assert len({ask(SimGame24(), prompt, 0, temperature=k / 10).text for k in range(20)}) > 3
    assert len({ask(SimGame24(), prompt, draw, temperature=0.0).text for draw in range(20)}) == 1
    assert len({ask(SimGame24(), prompt, 0, repeat=k, temperature=0).text for k in range(20)}) == 1


REPLIES = """
import asyncio, json
from tot_lab.core.calls import Call, Message
from tot_lab.domains.game24 import game24
from tot_lab.domains.game24.player import SimGame24
task = game24("4 5 6 10", structured=True)
said = []
for draw in range(10):
    message = (Message("user", task.domain.propose_prompt(task, [], 4)),)
    schema = task.domain.response_format("propose", task, [])
    said.append(asyncio.run(SimGame24()(Call("0", "x", message, draw, response_format=schema))).text)
print(json.dumps(said))
"""


@pytest.mark.slow
def test_another_process_gets_the_same_replies() -> None:
    said = [
        subprocess.run(
            [sys.executable, "-c", REPLIES],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert said[0] == said[1]
    assert len(set(json.loads(said[0]))) > 3


def test_a_reply_reports_itself() -> None:
    prompt = GAME.answer_prompt(TASK, True)
    whole = ask(PERFECT, prompt)
    assert (whole.model, whole.cost, whole.finish_reason, whole.simulated) == (
        "sim/game24",
        0.0,
        "stop",
        True,
    )
    assert whole.input_tokens == (len(prompt) + 3) // 4
    assert whole.output_tokens == (len(whole.text) + 3) // 4
    cut = ask(PERFECT, prompt, max_tokens=3)
    assert (cut.text, cut.finish_reason, cut.output_tokens) == (whole.text[:12], "length", 3)
    assert ask(PERFECT, prompt, stop=("Answer",)).text == whole.text.partition("Answer")[0]


def test_latency() -> None:
    prompt = GAME.value_prompt(TASK, [])
    start = time.monotonic()
    slow = ask(SimGame24(latency=0.05), prompt)
    assert time.monotonic() - start >= 0.045
    assert (
        slow
        == ask(SimGame24(), prompt)
        == ask(SimGame24(latency=0.001, latency_spread="exponential"), prompt)
    )


@pytest.mark.parametrize(
    "settings", [{"skill": 1.1}, {"noise": -0.1}, {"garble": 2}, {"latency": -1}, {"latency_spread": "x"}]
)
def test_bad_settings_are_refused_by_name(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        SimGame24(**settings)


def test_settings_come_back() -> None:
    model = SimGame24(skill=0.5, latency=0.1, latency_spread="exponential")
    assert part_of(json.loads(json.dumps(model.settings()))) == model


def beam(model: SimGame24, task: Task, width: int = 3) -> str | None:
    """A beam search in its plainest form, one call after another."""
    game = task.domain
    frontier: list[list[str]] = [[]]
    for _ in range(3):
        scored = []
        for path in frontier:
            for step in game.read_proposals(task, path, ask(model, game.propose_prompt(task, path, 5)).text):
                grown = [*path, step]
                scored.append(
                    (game.read_value(ask(model, game.value_prompt(task, grown)).text) or 0.0, grown)
                )
        scored.sort(key=lambda pair: -pair[0])
        frontier = [path for _, path in scored[:width]]
    return game.answer(task, frontier[0]) if frontier else None


@pytest.mark.nightly
@pytest.mark.parametrize("structured", [False, True])
def test_a_perfect_player_solves_every_hand(structured: bool) -> None:
    for task in game24_tasks(60, structured=structured):
        answer = beam(PERFECT, task)
        assert answer is not None, task.question
        assert task.grade(answer) == 1.0


@pytest.mark.slow
def test_a_hopeless_player_solves_none() -> None:
    assert [beam(SimGame24(skill=0, noise=1), game24(hand.numbers)) for hand in hands()[-5:]] == [None] * 5
