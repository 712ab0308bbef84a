"""Every line of `shared/cases/replies.jsonl` is read as a careful reader reads it."""

import json
from types import SimpleNamespace

import pytest
from support import wait
from support.cases import shared_cases
from support.endpoint import CallObserver
from support.providers import Raw

import tot_lab as tl
from tot_lab.core.calls import Call, Message, Reply, ToolCall
from tot_lab.core.reading.answers import whole_answer
from tot_lab.core.reading.choices import stated_choice
from tot_lab.core.reading.decoration import undecorated
from tot_lab.core.reading.finish_reasons import read_finish_reason
from tot_lab.core.reading.judgements import match_once
from tot_lab.core.reading.lists import read_list
from tot_lab.core.reading.names import read_name
from tot_lab.core.reading.scores import read_score, read_scores
from tot_lab.core.reading.thinking import split_thinking
from tot_lab.core.reading.verdicts import read_verdict
from tot_lab.core.reading.votes import read_choice
from tot_lab.models.chat.replies import ToolPieces, add_piece, whole_calls
from tot_lab.models.openai_compatible import OpenAICompatible
from tot_lab.models.stack import Failure
from tot_lab.strategies.conversation import turn_of
from tot_lab.strategies.tool_needs import read_needs


def is_right(task, reply):
    answer = task.domain.read_answer(task, reply)
    return answer is not None and task.grade(answer) == 1.0


def vote(reply, setting):
    place = read_choice(reply, setting["candidates"])
    return None if place is None else place + 1


def joint(reply, setting):
    scores = dict(zip(setting["candidates"], read_scores(reply, setting["candidates"]), strict=True))
    return scores if any(score is not None for score in scores.values()) else None


def evaluations(reply, setting):
    judged, names = json.loads(reply), setting["approaches"]
    places = match_once(names, judged, [f"b{k}" for k in range(len(names))]).places
    pairs = zip(places, judged, strict=True)
    return {names[place]: one["score"] for place, one in pairs if place is not None} or None


def are_pooled(answers, _):
    task = tl.general("?", answer="1", grade="math")
    return task.domain.same(task, answers[0]) == task.domain.same(task, answers[1])


def without_thinking(reply, _):
    thinking, text = split_thinking(reply)
    assert thinking is None
    return "unchanged" if text == reply and "Answer:" not in text else text.removeprefix("Answer: ")


def needs(reply, _):
    found = read_needs(reply, SimpleNamespace(tools={"web-search": None}, known={"web-search": "web-search"}))
    return None if found is None else dict(found.required)


def route(reply, _):
    adaptive = tl.Adaptive()
    return adaptive.strategies[read_name(reply, adaptive._names(), "kind").strategy].kind


def finish(reason, _):
    return {"length": "truncated", "error": "failed"}.get(read_finish_reason(reason))


def pieces(chunks, _):
    tools: list[ToolPieces] = []
    for piece in (piece for chunk in chunks for piece in chunk):
        function = piece["function"]
        add_piece(tools, piece["index"], piece.get("id", ""), function["name"], function["arguments"])
    return [[name, arguments] for _, name, arguments in whole_calls(tools)]


def native_call(call, _):
    turn = turn_of(
        "0", Reply("", tool_calls=(ToolCall("c", call["name"], call["arguments"]),)), {"add": "add"}
    )
    assert turn.repaired == ("add",)
    return json.loads(turn.calls[0].arguments)


def text_call(reply, _):
    tools = [{"name": "now", "parameters": {}}]
    (call,) = turn_of("0", Reply(reply), {"now": "now"}, tools).calls
    assert (
        turn_of("0", Reply(reply), {"now": "now"}, [{"name": "now", "parameters": {"required": ["a"]}}]).calls
        == ()
    )
    return [call.name, json.loads(call.arguments)]


READERS = {
    "choice": lambda reply, setting: stated_choice(reply, setting["choices"]),
    "vote": vote,
    "joint": joint,
    "deep_think_evaluations": evaluations,
    "score": lambda reply, _: read_score(reply),
    "propose": lambda reply, _: read_list(reply),
    "math": lambda reply, at: is_right(tl.general("?", answer=at["reference"], grade="math"), reply),
    "math_vote": are_pooled,
    "exact": lambda reply, at: is_right(tl.general("?", answer=at["reference"], grade="exact"), reply),
    "code": lambda reply, at: is_right(tl.general("?", answer=at["test"], grade="python"), reply),
    "game24": lambda reply, at: is_right(tl.game24(at["numbers"]), reply),
    "gym": lambda reply, _: undecorated(whole_answer(reply), ends=".!?"),
    "satisfied": lambda reply, _: read_verdict(reply),
    "tool_needs": needs,
    "route": route,
    "thinking": without_thinking,
    "finish_reason": finish,
    "tool_pieces": pieces,
    "native_tool_call": native_call,
    "text_tool_call": text_call,
}


@pytest.mark.parametrize("case", shared_cases())
def test_a_reply_is_read_as_a_careful_reader_reads_it(case, shared):
    if case["kind"] == "server_body":
        shared.will(Raw(case["reply"]))
        model = OpenAICompatible(model="m", base_url=shared.base("openai"))
        with pytest.raises(Failure):
            wait(model.answer((Call("0", "sample", (Message("user", "1 + 1?"),)),), CallObserver(False)))
        assert case["expected"] == "failed"
    else:
        assert READERS[case["kind"]](case["reply"], case.get("setting", {})) == case["expected"]
