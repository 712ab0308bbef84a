"""The simulated agent: it reads prompts and conversations only, and its skill is what it says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import wait

import tot_lab as tl
from tot_lab.core.calls import Call, Message, Reply, ToolCall
from tot_lab.core.task import Task
from tot_lab.domains.agent_player import FINAL
from tot_lab.domains.player import STRATEGY_FORMS
from tot_lab.strategies.plans import PlanDraft
from tot_lab.tools import Calculator

SURE = tl.sim.SimAgent(skill=1, unaided=1, noise=0)
LESSON = "Last time `best: N` was wrong, and 7 * 7 = 50 too. Answer: reply with one word, yes or no."
SUMS = tl.domains.word_sums(1)  # 909 * 366 = 332694, less 6531 is 326163
HOPS = tl.domains.multi_hop(2)  # Bastian Tarrow, born in Ivelstow, on the river Tolm
TRUE = {
    "word_sums": ["909 * 366 = 332694", "332694 - 6531 = 326163", "Answer: 326163"],
    "multi_hop": [
        "Bastian Tarrow came into the world in Ivelstow.",
        "Ivelstow lies on the river Tolm.",
        "Answer: Tolm",
    ],
}
FALSE = {
    "word_sums": ["909 * 366 = 332695", "332694 + 6531 = 339225", "Answer: 339225"],
    "multi_hop": [
        "Bastian Tarrow came into the world in Kelby.",
        "Kelby lies on the river Tolm.",
        "Answer: Orle",
    ],
}
OFFERED = {
    "word_sums": ({"name": "calculator"}, {"name": FINAL}),
    "multi_hop": ({"name": "search"}, {"name": "open"}, {"name": FINAL}),
}
both = pytest.mark.parametrize("task", [SUMS, HOPS], ids=["word_sums", "multi_hop"])
taught = pytest.mark.parametrize("context", ["", LESSON], ids=["", "context"])


def ask(model: Any, prompt: str, draw: int = 0, kind: str = "answer", **settings: Any) -> Reply:
    reply = asyncio.run(model(Call("0", kind, (Message("user", prompt),), draw, **settings)))
    assert isinstance(reply, Reply)
    assert reply.simulated
    return reply


def share(model: Any, prompt: str, right: Callable[[str], Any]) -> float:
    return sum(bool(right(ask(model, prompt, draw).text)) for draw in range(300)) / 300


# The prompts of domains.


@both
@taught
def test_it_understands_every_prompt(task: Task, context: str) -> None:
    task = task.model_copy(update={"context": context})
    game, true, false = task.domain, TRUE[task.domain.kind], FALSE[task.domain.kind]
    for k in range(3):
        before = true[:k]
        assert game.read_sample(task, before, ask(SURE, game.sample_prompt(task, before)).text) == true[k]
        listed = game.read_proposals(task, before, ask(SURE, game.propose_prompt(task, before, 4)).text)
        assert listed == [true[k]] * 4
        good, bad = [*before, true[k]], [*before, false[k]]
        assert game.read_value(ask(SURE, game.value_prompt(task, good)).text) >= 0.7
        assert game.read_value(ask(SURE, game.value_prompt(task, bad)).text) <= 0.3
        assert game.read_vote(ask(SURE, game.vote_prompt(task, [bad, good, bad])).text, 3) == 1
        scores = game.read_joint(
            ask(SURE, game.joint_prompt(task, before, [false[k], true[k]])).text, ["", ""]
        )
        assert scores[0] < 0.5 < scores[1]
        for path, word in ((good, "yes"), (bad, "no")):
            reply = ask(SURE, game.judge_prompt(task, path), kind="logprob", logprobs=20)
            assert reply.text == word
            assert (game.read_judge(reply.logprobs)[0] > 0.5) == (word == "yes")
            assert ask(SURE, game.judge_prompt(task, path)).text == word
    assert game.read_value(ask(SURE, game.value_prompt(task, true)).text) == 1.0
    for reasoning in (False, True):
        assert task.grade(game.read_answer(task, ask(SURE, game.answer_prompt(task, reasoning)).text)) == 1.0


@both
def test_it_goes_on_from_what_a_path_says_also_when_that_is_wrong(task: Task) -> None:
    game, false = task.domain, FALSE[task.domain.kind]
    step = ask(SURE, game.sample_prompt(task, false[:1])).text
    follows = {"word_sums": "332695 - 6531 = 326164", "multi_hop": "Kelby lies on the river "}
    assert step.startswith(follows[game.kind])
    assert ask(SURE, game.value_prompt(task, [false[0], step])).text.startswith("score: 0.")


@pytest.mark.slow
@both
def test_skill_is_the_chance_of_the_right_step(task: Task) -> None:
    prompt, right = task.domain.sample_prompt(task, []), TRUE[task.domain.kind][0].__eq__
    for skill in (0.0, 0.4, 1.0):
        assert abs(share(tl.sim.SimAgent(skill=skill, unaided=1), prompt, right) - skill) < 0.1


@pytest.mark.slow
@both
def test_unaided_is_the_chance_of_a_right_value_and_less_when_nothing_is_written_down(task: Task) -> None:
    game, model = task.domain, tl.sim.SimAgent(skill=1, unaided=0.6)

    def right(text: str) -> Any:
        return task.grade(game.read_answer(task, text))

    assert abs(share(model, game.sample_prompt(task, []), TRUE[game.kind][0].__eq__) - 0.6) < 0.1
    assert abs(share(model, game.answer_prompt(task, True), right) - 0.6**2) < 0.1
    assert abs(share(model, game.answer_prompt(task, False), right) - 0.6**4) < 0.1


@pytest.mark.slow
@both
def test_noise_turns_judgements_over_and_garble_makes_them_unreadable(task: Task) -> None:
    game = task.domain
    prompt = game.value_prompt(task, TRUE[game.kind][:1])
    for noise in (0.0, 0.3, 1.0):
        low = share(tl.sim.SimAgent(noise=noise), prompt, lambda text: game.read_value(text) < 0.5)
        assert abs(low - noise) < 0.1
    unreadable = share(tl.sim.SimAgent(garble=0.4), prompt, lambda text: game.read_value(text) is None)
    assert abs(unreadable - 0.4) < 0.1


# Acting.


def turn(
    model: Any, task: Task, *more: Message, draw: int = 0, offered: Any = None, **settings: Any
) -> Reply:
    tools = OFFERED[task.domain.kind] if offered is None else offered
    first = Message("user", task.domain.answer_prompt(task, True))
    return asyncio.run(model(Call("0", "act", (first, *more), draw, tools=tools, **settings)))


def exchanged(reply: Reply, result: str) -> list[Message]:
    (call,) = reply.tool_calls
    return [Message("assistant", reply.text, reply.tool_calls), Message("tool", result, tool_call_id=call.id)]


@pytest.mark.parametrize(
    "task", [*tl.domains.word_sums_tasks(10), *tl.domains.multi_hop_tasks(12)], ids=lambda task: task.id
)
def test_the_tools_lead_it_to_the_answer(task: Task) -> None:
    tools = {tool.name: tool for tool in (Calculator(), *tl.domains.multi_hop_tools())}
    talk: list[Message] = []
    model = tl.sim.SimAgent(skill=1, unaided=0)
    for _ in range(9):
        reply = turn(model, task, *talk)
        (call,) = reply.tool_calls
        arguments = json.loads(call.arguments)
        assert (reply.text, reply.finish_reason) == ("", "tool_calls")
        if call.name == FINAL:
            break
        talk += exchanged(reply, tools[call.name].carry_out(arguments, {}))
    assert task.grade(arguments["answer"]) == 1.0
    assert len(talk) >= 4 or task.domain.kind == "multi_hop"


def test_it_works_with_what_a_tool_really_gave() -> None:
    first = turn(SURE, SUMS)
    assert first.tool_calls == (ToolCall("call-0", "calculator", '{"expression": "909 * 366"}'),)
    second = turn(SURE, SUMS, *exchanged(first, "1000000"))
    assert json.loads(second.tool_calls[0].arguments) == {"expression": "1000000 - 6531"}
    again = turn(SURE, SUMS, *exchanged(first, "failed: no result within 15 s"))
    assert json.loads(again.tool_calls[0].arguments) == {"expression": "909 * 366"}


@both
def test_a_wrong_turn_is_a_stray_call_the_same_again_or_an_answer_too_soon(task: Task) -> None:
    model = tl.sim.SimAgent(skill=0)
    begun = exchanged(turn(SURE, task), "nothing of use")
    names = {turn(model, task, *begun, draw=k).tool_calls[0].name for k in range(40)}
    assert names == {OFFERED[task.domain.kind][0]["name"], FINAL}
    calls = [turn(model, task, *begun, draw=k).tool_calls[0] for k in range(40)]
    assert any(call.arguments == begun[0].tool_calls[0].arguments for call in calls)
    answers = [json.loads(call.arguments)["answer"] for call in calls if call.name == FINAL]
    assert sum(map(task.grade, answers)) <= len(answers) / 3  # there are eight rivers to guess at


@both
def test_without_tools_or_time_it_answers(task: Task) -> None:
    last = Message("user", "One turn is left: call final-answer now.")
    for reply in (turn(SURE, task, last), turn(SURE, task, offered=({"name": FINAL},))):
        assert task.grade(json.loads(reply.tool_calls[0].arguments)["answer"]) == 1.0
    for reply in (turn(SURE, task, offered=()), turn(SURE, task, tool_choice="none")):
        assert reply.tool_calls == ()
        assert task.grade(task.domain.read_answer(task, reply.text)) == 1.0


@pytest.mark.slow
def test_a_plan_or_a_lesson_helps() -> None:
    model = tl.sim.SimAgent(skill=0.5)

    def right(context: str) -> float:
        task = SUMS.model_copy(update={"context": context})
        asked = [turn(model, task, draw=draw).tool_calls[0].arguments for draw in range(300)]
        return sum("909 * 366" in arguments for arguments in asked) / 300

    assert abs(right("") - 0.5) < 0.1
    assert abs(right("s1 = 909 * 366") - 0.75) < 0.1


@both
def test_it_looks_things_up_before_it_proposes(task: Task) -> None:
    game, model = task.domain, tl.sim.SimAgent(skill=1, unaided=0)
    tools = {tool.name: tool for tool in (Calculator(), *tl.domains.multi_hop_tools())}
    for k in range(2):
        talk = [Message("user", game.propose_prompt(task, TRUE[game.kind][:k], 3))]
        for _ in range(3):
            reply = asyncio.run(model(Call("0", "propose", tuple(talk), tools=OFFERED[game.kind][:-1])))
            if not reply.tool_calls:
                break
            (call,) = reply.tool_calls
            talk += exchanged(reply, tools[call.name].carry_out(json.loads(call.arguments), {}))
        assert len(talk) > 1
        assert game.read_proposals(task, [], reply.text) == [TRUE[game.kind][k]] * 3


# The prompts of strategies.


@pytest.mark.slow
@both
def test_a_critique_is_right_as_often_as_skill_says(task: Task) -> None:
    right = TRUE[task.domain.kind][-1].removeprefix("Answer: ")
    wrong = FALSE[task.domain.kind][-1].removeprefix("Answer: ")

    def satisfied(model: Any, answer: str) -> float:
        prompt = f"{task.domain.answer_prompt(task, False)}\n\n<answer>\n{answer}\n</answer>\nCriticise it."
        replies = [ask(model, prompt, draw, "critique").text for draw in range(300)]
        assert all(reply.startswith(("SATISFIED: ", "UNSATISFIED: ")) for reply in replies)
        return sum(reply.startswith("SATISFIED") for reply in replies) / 300

    for skill in (0.0, 0.6, 1.0):
        model = tl.sim.SimAgent(skill=skill)
        assert abs(satisfied(model, right) - (1 + skill) / 2) < 0.1
        assert abs(satisfied(model, wrong) - (1 - skill) / 2) < 0.1


@both
@pytest.mark.parametrize("tools", [True, False])
def test_its_plans_can_be_carried_out(task: Task, tools: bool) -> None:
    listed = "- calculator: …\n- search: …\n- open: …" if tools else "no tools"
    prompt = f"{task.domain.answer_prompt(task, True)}\n\n{listed}\nWrite a plan."
    draft = PlanDraft.model_validate_json(ask(SURE, prompt, kind="plan").text)
    assert len(draft.steps) == 2
    assert "{{from_step:s1}}" in draft.model_dump_json()
    kinds = {"word_sums": "tool_call", "multi_hop": "composite"}
    assert {step.type for step in draft.steps} == {kinds[task.domain.kind] if tools else "analysis"}
    for skill in (0.0, 0.5):
        drafts = [ask(tl.sim.SimAgent(skill=skill), prompt, draw, "plan").text for draw in range(20)]
        assert all(PlanDraft.model_validate_json(text).steps for text in drafts)
        assert len(set(drafts)) > 1 or skill == 0


@both
def test_the_kind_of_a_task_is_one_that_adaptive_knows(task: Task) -> None:
    assert json.loads(ask(SURE, task.domain.answer_prompt(task, False), kind="route").text) == {
        "kind": "steps"
    }


@both
def test_reflection_and_synthesis_say_what_is_known(task: Task) -> None:
    prompt = f"{task.domain.answer_prompt(task, True)}\n\n{TRUE[task.domain.kind][0]}"
    assert "1 of 2 things are known" in ask(SURE, prompt, kind="reflect").text
    assert TRUE[task.domain.kind][0] in ask(SURE, prompt, kind="synthesize").text


# The Game of 24, and all else.


def test_it_plays_the_game_of_24_as_the_player_of_it_does() -> None:
    task = tl.game24("4 5 6 10")
    for prompt in (task.domain.sample_prompt(task, []), task.domain.propose_prompt(task, [], 3)):
        for draw in range(10):
            assert (
                ask(tl.sim.SimAgent(skill=0.7), prompt, draw).text
                == ask(tl.sim.SimGame24(skill=0.7), prompt, draw).text
            )
    right = "(10 - 4) * 5 - 6"
    reply = asyncio.run(
        tl.sim.SimAgent(skill=1)(
            Call(
                "0",
                "act",
                (Message("user", task.domain.answer_prompt(task, True)),),
                tools=({"name": FINAL},),
            )
        )
    )
    assert task.grade(json.loads(reply.tool_calls[0].arguments)["answer"]) == 1.0
    asked = task.domain.answer_prompt(task, False)
    prompt = f"{asked}\n\n<answer>\n{right}\n</answer>\n\nSay `SATISFIED:` or not."
    assert ask(SURE, prompt, kind="critique").text.startswith("SATISFIED")
    assert ask(SURE, prompt.replace("5 - 6", "5 + 6"), kind="critique").text.startswith("UNSAT")


def test_it_says_when_it_does_not_understand() -> None:
    for kind in ("answer", "act", "critique", "plan", "route", "tool"):
        assert "do not understand" in ask(SURE, "Tell me of Paris.", kind=kind).text


@pytest.mark.slow
@given(
    kind=st.sampled_from(["answer", *sorted(STRATEGY_FORMS)]),
    quoted=st.sampled_from([SUMS, HOPS, tl.game24("4 5 6 10")]),
    ends=st.sampled_from(["", "score: 1", "best: N", "JSON array of the 3 numbers", "one word, yes or no",
                          "first line of your reply is `score: `", "What is the next step?", "Answer: <x>"]),
    texts=st.lists(st.text() | st.sampled_from([*FALSE["word_sums"], *FALSE["multi_hop"]]), max_size=4),
    skill=st.sampled_from([0.0, 0.5, 1.0]),
    draw=st.integers(0, 20),
)  # fmt: skip
def test_it_answers_any_conversation(
    kind: str, quoted: Task, ends: str, texts: list[str], skill: float, draw: int
) -> None:
    wish = ToolCall("x", "search", texts[0] if texts else "{")
    told = "\n".join(["s1 a [completed]", "   result: 5", "s2 b [failed]", *texts, "{{from_step:s9}}"])
    talk = (
        Message("user", f"{quoted.domain.answer_prompt(quoted, True)}\n\n{told}"),
        Message("assistant", "", (wish,)),
        Message("tool", told, tool_call_id="x"),
        Message("user", f"{told}\n\n{ends}"),
    )
    for tools in ((), (*OFFERED["word_sums"], *OFFERED["multi_hop"])):
        reply = asyncio.run(tl.sim.SimAgent(skill=skill)(Call("0", kind, talk, draw, tools=tools)))
        assert reply.text or reply.tool_calls


# What it is for: strategies with tools gain on it, and weak ones do not.


@pytest.mark.nightly
@pytest.mark.parametrize("domain", ["word_sums", "multi_hop"])
def test_tools_pay(domain: str) -> None:
    tasks = tl.domains.word_sums_tasks(20) if domain == "word_sums" else tl.domains.multi_hop_tasks(20)
    tools = [Calculator()] if domain == "word_sums" else tl.domains.multi_hop_tools()
    strategies = {"chain of thought": tl.ChainOfThought(), "ReAct": tl.ReAct()}

    def rates(skill: float) -> dict[str, float]:
        lab = tl.Lab(tl.sim.SimAgent(skill=skill), runs=None, tools=tools)
        runs = {name: [wait(lab.run(one, task)) for task in tasks] for name, one in strategies.items()}
        return {name: sum(run.grade for run in made) / 20 for name, made in runs.items()}

    weak, strong = rates(0.3), rates(0.95)
    assert strong["ReAct"] >= 0.8
    assert strong["ReAct"] >= strong["chain of thought"] + 0.4
    assert weak["ReAct"] <= 0.4
