"""Replies that the server marks as failed or truncated, and pieces of tool calls as servers cut them.

Every case goes byte by byte through both paths, to a server on loopback.
"""

import json
from contextlib import suppress
from itertools import count

import pytest
from support import wait
from support.endpoint import CallObserver
from support.providers import Fault, Raw, Said

import tot_lab as tl
from tot_lab.core.calls import Call, Message
from tot_lab.models import retries
from tot_lab.models.chat.replies import ToolPieces, add_piece, whole_calls
from tot_lab.models.lite_llm import LiteLLM
from tot_lab.models.openai_compatible import OpenAICompatible
from tot_lab.models.retries import Retried
from tot_lab.models.stack import Failure

TASK = tl.open_ended("2 + 2?")
NAMES = count()
TOOL = {"name": "add", "description": "a + b", "parameters": {"type": "object", "properties": {}}}
TOOLS = (TOOL, {**TOOL, "name": "now"})
watched = pytest.mark.parametrize("watched", [False, True], ids=["whole", "streamed"])


@pytest.fixture
def server(shared, loaded, monkeypatch):
    monkeypatch.setattr(retries, "FIRST_WAIT", 0.001)
    shared.forget()
    return shared


@pytest.fixture(params=["direct", "openai", "hosted_vllm"])
def model(server, request):
    """A model of a name of its own, since what a server refuses is remembered. litellm has two clients."""
    name, base = f"m{next(NAMES)}", server.base("openai")
    if request.param == "direct":
        return OpenAICompatible(model=name, base_url=base)
    return LiteLLM(model=f"{request.param}/{name}", api_base=base, api_key="k")


HEAD = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}


def said(finish="stop", text="Answer: 2", page=None, **choice):
    """A complete response and the same one as a stream."""
    page = page or {}
    message = {"role": "assistant", "content": text}
    whole = {**HEAD, "choices": [{"index": 0, "message": message, "finish_reason": finish, **choice}], **page}
    return Raw(json.dumps(whole)), streamed({"content": text}, finish=finish, page=page, **choice)


def streamed(*deltas, finish="stop", done=True, page=None, **choice):
    """A stream whose last event has the finish reason and whatever else is given."""
    ends = [*((delta, None, {}, {}) for delta in deltas), ({}, finish, choice, page or {})]
    pieces = [
        {**HEAD, "choices": [{"index": 0, "delta": delta, "finish_reason": end, **more}], **beside}
        for delta, end, more, beside in ends
    ]
    events = [*map(json.dumps, pieces), *(["[DONE]"] if done else [])]
    return Raw("".join(f"data: {event}\n\n" for event in events), kind="text/event-stream")


def call(**more):
    return Call("0", "sample", (Message("user", "2 + 2?"),), **more)


def ask(model, *answers, watched=False, server=None, **more):
    server.will(*answers)
    observer = CallObserver(watched)
    (reply,) = wait(model.answer((call(**more),), observer))
    return reply


DIED = {"code": 502, "message": "Upstream died"}
FAILED = {
    "error": said("error"),
    "error, with its reason": said("error", error=DIED),
    "an error in the choice": said("stop", error=DIED),
    "an error without a code": said("stop", error={"message": "Upstream died"}),
    "an error that is a text": said("stop", error="Upstream died"),
    "an error beside the choices": said(page={"error": DIED}),
    "an error without a code beside them": said(page={"error": {"message": "Upstream died"}}),
    "an error that is a text beside them": said(page={"error": "Upstream died"}),
    "an error with a type alone": said(page={"error": {"type": "server_error"}}),
    "an error with a code alone": said(error={"code": 500}),
    "a list of errors": said(error=[DIED]),
    "an error that is true": said(error=True),
    "an error without a finish reason": said(None, error=DIED),
    **{
        reason: said(reason)
        for reason in (
            *("network-error", "server_error", "FINISH_REASON_UNSPECIFIED", "cancelled", "timeout", "failed"),
        )
    },
    **{
        reason: said(reason)
        for reason in ("abort", "aborted", "network_error", "insufficient_system_resource", "ERROR")
    },
    "abort after tool calls": (
        Raw(json.dumps({**HEAD, "choices": [{"index": 0, "message": {
            "role": "assistant", "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}],
        }, "finish_reason": "abort"}]})),
        streamed({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "add", "arguments": "{}"}}]},
                 finish="abort"),
    ),
}  # fmt: skip


@watched
@pytest.mark.parametrize("name", FAILED)
def test_a_reply_that_the_server_marks_as_failed_is_none(server, model, name, watched):
    server.will(FAILED[name][watched])
    with pytest.raises(Failure) as caught:
        wait(model.answer((call(tools=TOOLS),), CallObserver(watched)))
    assert caught.value.retry
    if "died" in str(FAILED[name]) and (watched or "text beside" not in name or model.kind != "litellm"):
        assert "Upstream died" in caught.value.message


@watched
@pytest.mark.parametrize("name", ["abort", "an error in the choice", "an error beside the choices"])
def test_it_is_requested_again_and_never_cached_or_graded(server, model, name, watched, tmp_path):
    task = tl.general("2 + 2?", answer="4", grade="number")
    lab = tl.Lab(model, runs=None, cache=tmp_path)
    server.will(FAILED[name][watched], Said("Answer: 4"))
    notes = []

    async def run():
        async for event in lab.stream(tl.OneAnswer(), task):
            notes.append(event)

    wait(run()) if watched else wait(lab.run(tl.OneAnswer(), task))
    first = lab.last
    assert (first.answer, first.correct, first.usage.errors) == ("4", True, 0)
    assert len(server.calls) == 2
    again = wait(lab.run(tl.OneAnswer(), task))
    assert (again.answer, len(server.calls)) == ("4", 2)


def test_a_server_that_fails_for_good_is_a_failed_call(server, model, tmp_path):
    model = model.model_copy(update={"retries": 2})
    lab = tl.Lab(model, runs=None, cache=tmp_path)
    server.will(*[FAILED["abort"][0]] * 3, Said("Answer: 4"))
    task = tl.general("2 + 2?", answer="4", grade="number")
    run = wait(lab.run(tl.OneAnswer(), task))
    assert (run.stop_reason, run.usage.errors, run.diagnostics["failed_calls"]) == ("error", 1, 1)
    assert (run.correct or False) is False
    assert len(server.calls) == 3
    assert wait(lab.run(tl.OneAnswer(), task)).answer == "4"  # nothing was cached


@pytest.mark.parametrize("error", [None, {}, "", {"message": "", "code": None}, False, [], {"code": 0}])
@watched
def test_an_empty_error_is_none(server, model, error, watched):
    page = {"error": error, "message": "success"}
    reply = ask(model, said(page=page)[watched], watched=watched, server=server)
    assert (reply.text, reply.error, reply.finish_reason) == ("Answer: 2", None, "stop")


TRUNCATED = [
    *(
        "max_tokens",
        "MAX_TOKENS",
        "max-tokens",
        "max_output_tokens",
        "maximum_tokens",
        "FINISH_REASON_MAX_TOKENS",
    ),
    *("length", "model_length", "token_limit", "model_context_window_exceeded", "context_length_exceeded"),
]


@watched
@pytest.mark.parametrize("reason", TRUNCATED)
def test_a_truncated_reply_says_so(server, model, reason, watched):
    reply = ask(model, said(reason)[watched], watched=watched, server=server)
    assert (reply.text, reply.finish_reason) == ("Answer: 2", "length")


def test_anthropics_context_window_is_truncation(server):
    for watched in (False, True):
        model = LiteLLM(model="anthropic/claude-haiku-4-5", api_base=server.base("anthropic"), api_key="k")
        cut = Said("Fo", finish="model_context_window_exceeded")
        assert ask(model, cut, watched=watched, server=server).finish_reason == "length"


@watched
@pytest.mark.parametrize("reason", ["stop", "content_filter", "eos"])
def test_other_reasons_are_neither(server, model, reason, watched):
    reply = ask(model, said(reason)[watched], watched=watched, server=server)
    assert (reply.text, reply.error) == ("Answer: 2", None)
    assert reply.finish_reason != "length"


def event(delta, finish=None, **more):
    return {**HEAD, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def lines(*events):
    """A stream of pages of JSON, and of other lines as they are."""
    texts = [each if isinstance(each, str) else f"data: {json.dumps(each)}\n\n" for each in events]
    return Raw("".join(texts), kind="text/event-stream")


BEGUN, DONE = event({"content": "Ans"}), "data: [DONE]\n\n"
BROKEN = {
    "vLLM": [{"error": {"message": "Upstream died", "type": "InternalServerError", "code": 500}}, DONE],
    "vLLM of 2024": [{"object": "error", "message": "Upstream died", "type": "InternalServerError"}, DONE],
    "OpenRouter": [
        event({"content": ""}, "error", error={"code": "server_error", "message": "Upstream died"})
    ],
    "text-generation-inference": [
        'event:error\ndata:{"error":"Upstream died","error_type":"generation"}\n\n'
    ],
    "an event of errors": ['event: error\ndata: {"message": "Upstream died"}\n\n', DONE],
    "an error after the finish reason": [event({}, "stop"), {**HEAD, "choices": [], "error": DIED}, DONE],
    "stop after the error": [event({}, "error"), event({}, "stop"), DONE],
    "an error before the text": [event({}, error=DIED), event({"content": "wer"}, "stop"), DONE],
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_stream_in_which_an_error_is_reported_is_none(server, model, name):
    server.will(lines(BEGUN, *BROKEN[name]))
    with pytest.raises(Failure) as caught:
        wait(model.answer((call(),), CallObserver(True)))
    assert caught.value.retry
    assert "Upstream died" in caught.value.message or name == "stop after the error"


@watched
@pytest.mark.parametrize("provider", ["mistral", "fireworks_ai", "xai", "openrouter", "azure_ai"])
def test_providers_that_litellm_reads_in_its_own_way_fail_too(server, provider, watched):
    model = LiteLLM(model=f"{provider}/m{next(NAMES)}", api_base=server.base("openai"), api_key="k")
    for name in ("error", "an error in the choice", "an error beside the choices"):
        server.will(FAILED[name][watched])
        with pytest.raises(Failure) as caught:
            wait(model.answer((call(),), CallObserver(watched)))
        assert caught.value.retry
    reply = ask(model, said(page={"error": {}})[watched], watched=watched, server=server)
    assert (reply.text, reply.finish_reason) == ("Answer: 2", "stop")


@watched
def test_a_failed_reply_in_the_form_of_anthropic_is_none(server, watched):
    model = LiteLLM(model="anthropic/claude-haiku-4-5", api_base=server.base("anthropic"), api_key="k")
    server.will(Said("Fo", finish="abort"))
    with pytest.raises(Failure):
        wait(model.answer((call(),), CallObserver(watched)))


@pytest.mark.parametrize("blank", ["", "null", None])
def test_a_blank_reason_in_each_piece_is_not_the_last_one(server, model, blank):
    stream = lines(
        event({"content": "Answer:"}, blank), event({"content": " 2"}, blank), event({}, "length"), DONE
    )
    reply = ask(model, stream, watched=True, server=server)
    assert (reply.text, reply.finish_reason) == ("Answer: 2", "length")


# Several samples in one request.


def test_of_several_choices_the_failed_ones_alone_are_requested_again(server, model):
    said = [("a", "stop"), ("b", "error"), ("c", "stop"), ("d", "abort")]
    choices = [
        {"index": k, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
        for k, (text, finish) in enumerate(said)
    ]
    server.will(Raw(json.dumps({**HEAD, "choices": choices})), Said(("e", "f")))
    calls, observer = [call(sample_index=k) for k in range(4)], CallObserver()
    replies = wait(Retried(model, model).answer(calls, observer))
    assert [(reply.text, reply.error) for reply in replies] == [(text, None) for text in "aecf"]
    assert [asked.n for asked in server.calls] == [4, 2]
    retried = [data["only"] for name, data in observer.notes if name == "call.retried"]
    assert [each.sample_index for only in retried for each in only] == [1, 3]


def test_choices_that_fail_for_good_are_failed_calls_and_the_others_are_kept(server, model):
    model = model.model_copy(update={"retries": 1})
    choices = [
        {"index": k, "message": {"role": "assistant", "content": "a"}, "finish_reason": finish}
        for k, finish in enumerate(("abort", "stop"))
    ]
    server.will(Raw(json.dumps({**HEAD, "choices": choices})), FAILED["abort"][0])
    first, second = wait(Retried(model, model).answer([call(), call(sample_index=1)], CallObserver()))
    assert "could not finish the reply (finish: abort) (tried 2 times)" in first.error
    assert (first.text, second.text, second.error) == ("", "a", None)


# The ends of streams.


def test_a_stream_may_end_without_done_or_without_a_reason(server, model):
    for stream in (streamed({"content": "Four."}, done=False), streamed({"content": "Four."}, finish=None)):
        reply = ask(model, stream, watched=True, server=server)
        assert (reply.text, reply.error) == ("Four.", None)
    stream = streamed(piece(0, '{"a":1}', "add", "x"), finish=None)
    reply = ask(model, stream, watched=True, server=server, tools=TOOLS)
    assert [(tool.name, tool.arguments) for tool in reply.tool_calls] == [("add", '{"a":1}')]


def test_a_stream_without_either_is_broken(server, model):
    server.will(streamed({"content": "Fou"}, finish=None, done=False))
    with pytest.raises(Failure) as caught:
        wait(model.answer((call(),), CallObserver(True)))
    assert caught.value.retry


# Pieces of tool calls.


def piece(index, arguments, name=None, id=None):
    function = {"arguments": arguments, **({"name": name} if name else {})}
    return {"tool_calls": [{"index": index, "function": function, **({"id": id} if id else {})}]}


A, B, AB = '{"a":1}', '{"b":2}', '{"a":1,"b":2}'
CUT = {
    "a new id in each piece": (
        [piece(0, '{"a":1,', "add", "u1"), piece(0, '"b":2}', "add", "u2")],
        [("add", AB)],
    ),
    "a new id in each piece, after a head": (
        [piece(0, "", "add", "u1"), piece(0, '{"a":1,', "add", "u2"), piece(0, '"b":2}', None, "u3")],
        [("add", AB)],
    ),
    "new ids, and two calls": (
        [piece(0, '{"a"', "add", "u1"), piece(0, ":1}", "add", "u2"), piece(0, '{"b":', "add", "u3"),
         piece(0, "2}", "add", "u4")],
        [("add", A), ("add", B)],
    ),
    "whole calls under one index": ([piece(0, "", "now"), piece(0, A, "add")], [("now", ""), ("add", A)]),
    "one id for all": ([piece(0, A, "add", "c"), piece(0, B, "add", "c")], [("add", A), ("add", B)]),
    "one id for all, two indices": (
        [piece(0, '{"a"', "add", "c"), piece(1, '{"b"', "add", "c"), piece(1, ":2}"), piece(0, ":1}")],
        [("add", A), ("add", B)],
    ),
    "repeated": ([piece(0, A, "add", "c"), piece(0, A, "add", "c")], [("add", A)]),
    "repeated without an id": ([piece(0, A, "add"), piece(0, A, "add")], [("add", A)]),
    "repeated without a name": ([piece(0, A, "add", "c"), piece(0, A)], [("add", A)]),
    "repeated at the end": (
        [piece(0, '{"a":1,', "add", "c"), piece(0, '"b":2}'), piece(0, AB, "add", "c")],
        [("add", AB)],
    ),
    "all so far in each piece": (
        [piece(0, '{"a":1', "add", "c"), piece(0, '{"a":1,"b"', "add", "c"), piece(0, AB, "add", "c")],
        [("add", AB)],
    ),
    "equal under two indices": ([piece(0, A, "add", "c"), piece(1, A, "add", "d")], [("add", A)] * 2),
    "a new index in each piece": ([piece(0, '{"a":1,', "add", "c"), piece(1, '"b":2}')], [("add", AB)]),
    "a closing piece": ([piece(0, A, "add", "c"), piece(0, "", "add", "c"), piece(0, "")], [("add", A)]),
    "no arguments": ([piece(0, "", "now", "c")], [("now", "")]),
    "an empty object first, as of Anthropic's proxies": (
        [piece(0, "{}", "add", "c"), piece(0, '{"a":'), piece(0, "1}")],
        [("add", A)],
    ),
    "an empty object of another tool": (
        [piece(0, "{}", "now"), piece(0, A, "add")],
        [("now", "{}"), ("add", A)],
    ),
    "an empty object of another call": (
        [piece(0, "{}", "add", "c"), piece(0, A, "add", "d")],
        [("add", "{}"), ("add", A)],
    ),
    "repeated with other spaces": ([piece(0, A, "add", "c"), piece(0, '{"a": 1}', "add", "c")], [("add", A)]),
    "two ids under one index": ([piece(0, A, "add", "c"), piece(0, B, "add", "d")], [("add", A), ("add", B)]),
    "equal syllables": (
        [piece(0, '{"a":"ha', "add", "c"), piece(0, "ha"), piece(0, "ha"), piece(0, '"}')],
        [("add", '{"a":"hahaha"}')],
    ),
    "equal keys inside each other": (
        [piece(0, '{"a":', "add", "c"), piece(0, '{"a":1}'), piece(0, "}")],
        [("add", '{"a":{"a":1}}')],
    ),
    "equal items": (
        [piece(0, '{"a":[', "add", "c"), piece(0, '{"b":1}'), piece(0, ","), piece(0, '{"b":1}'),
         piece(0, "]}")],
        [("add", '{"a":[{"b":1},{"b":1}]}')],
    ),
    "an index for the first piece alone": (
        [piece(0, "", "add", "c"), piece(None, '{"a"'), piece(None, ":1}")],
        [("add", A)],
    ),
    "one id for three indices": (
        [piece(0, A, "add", "c"), piece(1, B, "add", "c"), piece(2, "", "now", "c")],
        [("add", A), ("add", B), ("now", "")],
    ),
    "a closing piece of a new id": ([piece(0, A, "add", "c"), piece(0, "", None, "z")], [("add", A)]),
    "mixed under one index": (
        [piece(0, '{"a"', "add", "x"), piece(0, '{"b"', "now", "y"), piece(0, ":1}", None, "x"),
         piece(0, ":2}", None, "y")],
        [("add", A), ("now", B)],
    ),
    "an id before the name": ([piece(0, "", None, "c"), piece(0, A, "add")], [("add", A)]),
    "all so far, and a closing piece": (
        [piece(0, "", "add", "c"), piece(0, '{"a":1'), piece(0, AB), piece(0, "")],
        [("add", AB)],
    ),
    "cut off": ([piece(0, '{"a":[', "add", "c"), piece(0, "1")], [("add", '{"a":[1')]),
    "cut off after a bracket": ([piece(0, "{", "add"), piece(0, '"a":'), piece(0, "{")], [("add", '{"a":{')]),
    "an escaped quote": ([piece(0, '{"a":"\\"}', "add"), piece(0, 'y"}')], [("add", '{"a":"\\"}y"}')]),
    "encoded twice": ([piece(0, '"{\\"a\\"', "add", "c"), piece(0, ':1}"')], [("add", '"{\\"a\\":1}"')]),
    "an object": ([piece(0, {"a": 1}, "add", "c")], [("add", '{"a": 1}')]),
    "brackets and quotes in a text": (
        [piece(0, '{"a":"}', "add"), piece(0, '\\"{"', "add"), piece(0, "}", "add")],
        [("add", '{"a":"}\\"{"}')],
    ),
    "ids without indices, mixed": (
        [piece(0, '{"a"', "add", "x"), piece(0, ":1}", None, "x"), piece(0, '{"b"', "add", "y"),
         piece(0, ":2}", None, "y")],
        [("add", A), ("add", B)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CUT)
def test_pieces_of_tool_calls_add_up_to_what_was_meant(server, model, name):
    pieces, calls = CUT[name]
    reply = ask(model, streamed(*pieces, finish="tool_calls"), watched=True, server=server, tools=TOOLS)
    assert [(tool.name, tool.arguments) for tool in reply.tool_calls] == calls
    assert reply.finish_reason == "tool_calls"


@pytest.mark.parametrize("letters", ["}", '"', "\\", "{", 'a"}'])
def test_many_pieces_are_added_up_in_linear_time(letters):
    tools: list[ToolPieces] = []
    with suppress(ValueError):  # of more than 1,000 calls
        for _ in range(200_000 // len(letters)):
            add_piece(tools, 0, "c", "add", letters if tools else '{"a":"')
    assert len(whole_calls(tools)) <= 1_000


# Settings that the server refuses.

REFUSALS = [
    Fault(400, "Unsupported parameter: 'reasoning_effort' is not supported with this model."),
    Fault(400, '"smollm2" does not support thinking'),
    Fault(400, "Reasoning is not supported by this model."),
    Raw(
        '{"detail": [{"type": "extra_forbidden", "loc": ["body", "reasoning_effort"], "msg": "Extra"}]}',
        status=422,
    ),
]


@watched
@pytest.mark.parametrize("refusal", REFUSALS, ids=["parameter", "thinking", "reasoning", "fields"])
def test_a_server_that_refuses_a_reasoning_effort_gets_the_call_without_it(server, refusal, watched):
    model = OpenAICompatible(model=f"m{next(NAMES)}", base_url=server.base("openai"))
    for sent in (["low", None], [None]):
        server.forget()
        server.will(*[refusal] * (len(sent) - 1), Said("Four."))
        observer = CallObserver(watched)
        (reply,) = wait(model.answer((call(effort="low"),), observer))
        assert (reply.text, reply.error, observer.dropped) == ("Four.", None, ["effort"])
        assert [asked.json.get("reasoning_effort") for asked in server.calls] == sent


def test_through_litellm_too(server):
    model = LiteLLM(model="openai/o3-mini", api_base=server.base("openai"), api_key="k")
    server.will(REFUSALS[0], Said("Four."))
    observer = CallObserver()
    (reply,) = wait(model.answer((call(effort="low"),), observer))
    assert (reply.text, observer.dropped) == ("Four.", ["effort"])
    assert ["reasoning_effort" in asked.json for asked in server.calls] == [True, False]


@pytest.mark.parametrize("fault", [Fault(400, "the prompt is bad"), Fault(500, "reasoning_effort broke")])
def test_another_fault_is_no_refusal_of_it(server, fault):
    model = OpenAICompatible(model=f"m{next(NAMES)}", base_url=server.base("openai"))
    server.will(fault, Said("Four."))
    with pytest.raises(Failure):
        wait(model.answer((call(effort="low"),), CallObserver()))
    wait(model.answer((call(effort="low"),), CallObserver()))
    assert server.calls[-1].json["reasoning_effort"] == "low"


def test_a_call_that_fails_without_it_says_why(server):
    model = OpenAICompatible(model=f"m{next(NAMES)}", base_url=server.base("openai"))
    server.will(REFUSALS[0], Fault(400, "and the prompt is bad"), Said("Four."))
    with pytest.raises(Failure, match="the prompt is bad"):
        wait(model.answer((call(effort="low"),), CallObserver()))


def test_a_run_notes_once_what_the_server_refuses(server):
    model = OpenAICompatible(model=f"m{next(NAMES)}", base_url=server.base("openai"))

    def answer(asked):
        return REFUSALS[0] if "reasoning_effort" in asked.json else Said("Answer: 4")

    server.otherwise, before = answer, server.otherwise
    try:
        for _ in range(2):
            strategy = tl.WithThinking(strategy=tl.SelfConsistency(attempts=3), level="low")
            run = wait(tl.Lab(model, runs=None, mode="off").run(strategy, TASK))
            dropped = [line.e.data for line in run.lines if getattr(line.e, "name", "") == "call.dropped"]
            assert [data["settings"] for data in dropped] == [["effort"]]
            assert run.usage.errors == 0
    finally:
        server.otherwise = before


# How the model ended.

ENDS = {
    "vLLM, end of sequence": (said(stop_reason=None), True),
    "vLLM, another token that ends a turn": (said(stop_reason=128009), True),
    "vLLM, stop text": (said(stop_reason="\n\n"), False),
    "vLLM, truncated": (said("length", stop_reason=None), None),
    "vLLM, filtered": (said("content_filter", stop_reason=None), None),
    "SGLang, end of sequence": (said(matched_stop=151645), True),
    "SGLang, stop text": (said(matched_stop="\n\n"), False),
    "SGLang, unknown": (said(matched_stop=None), None),
    "llama.cpp, end of sequence": (said(page={"stop_type": "eos"}), True),
    "llama.cpp, stop text": (said(page={"stop_type": "word", "stopping_word": "\n\n"}), False),
    "llama.cpp, limit": (said("length", page={"stop_type": "limit"}), None),
    "OpenAI": (said(), None),
}


@watched
@pytest.mark.parametrize("name", ENDS)
def test_whether_the_model_ended_is_read_where_the_server_tells(server, model, name, watched):
    answers, ended = ENDS[name]
    assert ask(model, answers[watched], watched=watched, server=server, stop=("\n\n",)).ended is ended


def test_how_it_ended_is_in_the_cache(server, model, tmp_path):
    lab = tl.Lab(model, runs=None, cache=tmp_path)
    server.will(ENDS["vLLM, end of sequence"][0][0])
    replies = []
    for _ in range(2):
        made = wait(lab.run(tl.OneAnswer(), TASK))
        replies += [line.e.ended for line in made.lines if hasattr(line.e, "ended")]
    assert (replies, len(server.calls)) == ([True, True], 1)
