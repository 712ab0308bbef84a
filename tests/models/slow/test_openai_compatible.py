"""The direct path to OpenAI-compatible servers: the same requests and replies as through litellm, on the
loopback provider, and what only one of the two paths does."""

import asyncio
import gzip
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import wait
from support.endpoint import CallObserver
from support.providers import Closed, Fault, Half, Hang, Raw, Said

import tot_lab as tl
from tot_lab.core.calls import Call, Message, ToolCall
from tot_lab.core.reading.thinking import separated
from tot_lab.models import connections
from tot_lab.models.chat.requests import setting_arguments
from tot_lab.models.keys import request_of
from tot_lab.models.lite_llm import LiteLLM
from tot_lab.models.openai_compatible import VLLM, LlamaCpp, OpenAICompatible, OpenAIServer, SGLang
from tot_lab.models.stack import Failure

KEY = "sk-MARKED-0123456789abcdef"
PRICE = (0.4, 1.6)
SCHEMA = {
    "title": "Next step",
    "type": "object",
    "properties": {"a": {"enum": ["4", "6"]}, "steps": {"type": "array", "items": {"type": "string"}}},
    "required": ["a", "steps"],
    "additionalProperties": False,
}
TOOL = {"name": "add", "description": "a + b", "parameters": {"type": "object", "properties": {}}}


def call(text: str = "2 + 2?", **more: object) -> Call:
    return Call("0", "sample", (Message("user", text),), **more)


@pytest.fixture
def server(shared, loaded, monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE", "VLLM_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    shared.forget()
    return shared


def through_litellm(server) -> LiteLLM:
    return LiteLLM(model="openai/gpt-4.1-mini", api_base=server.base("openai"), api_key=KEY, price=PRICE)


def direct(server, kind=OpenAICompatible, **more) -> OpenAICompatible:
    given = {"model": "gpt-4.1-mini", "base_url": server.base("openai"), "api_key": KEY, "price": PRICE}
    return kind(**{**given, **more})


def got(model, calls, watched):
    """The replies of one request, or what is known about its failure, and what was noted."""
    observer = CallObserver(watched=watched)
    try:
        replies = list(map(separated, wait(model.answer(calls, observer))))
    except Failure as failure:
        return {name: getattr(failure, name) for name in ("status", "retry", "retry_after", "message")}
    return replies, observer.notes, observer.texts


def both(server, calls, answers, watched=False):
    """What came of the same calls and answers on both paths, and the two requests."""
    found = []
    for model in (through_litellm(server), direct(server)):
        server.will(*answers)
        found.append(got(model, calls, watched))
        server._script.clear()
    return found, [server.calls[0].json, server.calls[len(server.calls) // 2].json]


CALLS = {
    "plain": call(),
    "temperature": call(temperature=0.5),
    "max_tokens": call(max_tokens=50),
    "stop": call(stop=("\n\n", "x")),
    "seed": call(seed=7, sample_index=2, attempt=(1,)),
    "schema": call(response_format=SCHEMA),
    "loose schema": call(response_format={"type": "object", "properties": {"a": {"type": "string"}}}),
    "logprobs": call(logprobs=3),
    "tools": call(tools=(TOOL,)),
    "tool choice": call(tools=(TOOL,), tool_choice="add"),
    "required tool": call(tools=(TOOL,), tool_choice="required"),
    "no tool": call(tools=(TOOL,), tool_choice="none"),
    "options": call(options={"top_p": 0.9, "presence_penalty": 0.2}),
    "unicode": call("日本 🜁 \u2028 é"),
    "conversation": Call(
        "0",
        "act",
        (
            Message("system", "Be brief."),
            Message("user", "1 + 2?"),
            Message("assistant", "", tool_calls=(ToolCall("c1", "add", '{"a": 1}'),)),
            Message("tool", "3", tool_call_id="c1"),
            Message("assistant", "It is 3.", tool_calls=(ToolCall("c1", "add", "{}"),)),
            Message("tool", "0", tool_call_id="c1"),
        ),
        tools=(TOOL,),
    ),
}


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_the_same_request_is_sent(server, name, watched):
    found, sent = both(server, (CALLS[name],), [Said("Four.")], watched)
    assert found[0] == found[1]
    assert found[1][0][0].text == "Four."
    for request in sent:
        request.setdefault("stream", False)  # litellm leaves it out or not, which means the same
    assert sent[0] == sent[1]
    assert [asked.key for asked in server.calls] == [KEY, KEY]
    assert len({asked.path for asked in server.calls}) == 1


def test_several_samples_are_one_request(server):
    calls = [call(sample_index=k) for k in range(3)]
    found, sent = both(server, calls, [Said(("a", "bb", "cccc"))])
    assert found[0] == found[1]
    assert sent[0] == sent[1]
    assert sent[1]["n"] == 3
    replies = found[1][0]
    assert [reply.text for reply in replies] == ["a", "bb", "cccc"]
    assert [reply.input_tokens for reply in replies] == [
        11,
        11,
        11,
    ]  # the prompt's own, however many shared it
    assert sum(reply.output_tokens for reply in replies) == 5


def test_a_server_that_gives_fewer_is_asked_for_the_rest(server):
    model = direct(server, model="one-by-one")
    server.will(Said(("a",)), Said(("b",)), Said(("c",)))
    observer = CallObserver()
    replies = wait(model.answer([call(sample_index=k) for k in range(3)], observer))
    assert [reply.text for reply in replies] == ["a", "b", "c"]
    assert observer.dropped == ["n"]
    assert not model.takes_n(call())


SAID = {
    "plain": Said("Four."),
    "thinking": Said("Four.", thinking="Two and two."),
    "thinking tags": Said("<think>Two and two.</think>\n\nFour."),
    "cut": Said("Fo", finish="length"),
    "filtered": Said("F", finish="content_filter"),
    "nothing": Said(None),
    "all thinking, cut": Said(None, thinking="hm", finish="length"),
    "tools": Said(None, tools=(("add", {"a": 1, "b": "é"}), ("add", {})), finish="tool_calls"),
    "tools and words": Said("I add.", tools=(("add", {"a": 1}),), thinking="so", finish="tool_calls"),
    "logprobs": Said("4", logprobs=(("4", -0.25, {"4": -0.25, "5": -1.5}), ("\ud800", -9e9, {}))),
    "surrogates": Said("a\ud800b", thinking="c\udfff"),
    "no usage": Said("Four.", usage=False),
    "zero usage": Said("Four.", input_tokens=0, output_tokens=0),
    "absurd usage": Said("Four.", output_tokens=-5),
    "another model": Said("Four.", model="the-model-itself"),
}


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("name", SAID)
def test_the_same_reply_is_read(server, name, watched):
    asked = call(tools=(TOOL,) if SAID[name].tools else (), logprobs=2 if SAID[name].logprobs else 0)
    found, _ = both(server, (asked,), [SAID[name]], watched)
    assert found[0] == found[1]


TROUBLE = {
    **{str(status): Fault(status) for status in (400, 401, 403, 404, 408, 409, 422, 429, 500, 503, 529)},
    "wait": Fault(429, retry_after=7),
    "wait until": Fault(503, retry_after="Wed, 21 Oct 2015 07:28:00 GMT"),
    "too long": Fault(400, "This model's maximum context length is 10 tokens"),
    "too long 500": Fault(500, "This model's maximum context length is 10 tokens"),
    "closed": Closed(),
    "half": Half(),
    "half, cleanly": Half(cleanly=True),
    "page": Raw("<html>a gateway's page"),
    "empty": Raw(""),
    "{}": Raw("{}"),
    "[]": Raw("[]"),
    "null": Raw("null"),
    "choices": Raw('{"choices": 3}'),
    "choice": Raw('{"choices": [{}]}'),
}


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("name", TROUBLE)
def test_trouble_is_the_same_failure(server, name, watched):
    found, _ = both(server, (call(),), [TROUBLE[name]], watched)
    assert isinstance(found[1], dict) or name == "half, cleanly"
    if not isinstance(found[0], dict):
        assert found[0] == found[1]
        return
    # A server's own words are the same. Each client has its own for what is no response of the API.
    by_server = found[0]["status"] is not None
    for field in ("status", "retry_after", *(["message"] if by_server else [])):
        assert found[0][field] == found[1][field], field
    # Another program at this address replies the same again. litellm does not tell it from a broken reply.
    assert found[1]["retry"] == (found[0]["retry"] and name not in ("page", "{}", "[]", "null"))


def test_an_error_inside_a_stream_or_a_good_status_is_the_servers(server):
    server.will(Half(error=Fault(529, "we are overloaded", code="overloaded_error")))
    server.will(Raw('{"error": {"message": "we are overloaded", "code": 503}}'))
    server.will(Raw('{"error": {"message": "no such model", "code": 404}}'))
    for watched, status, retry in ((True, None, True), (False, 503, True), (False, 404, False)):
        with pytest.raises(Failure, match=r"overloaded|no such model") as caught:
            wait(direct(server).answer((call(),), CallObserver(watched=watched)))
        assert (caught.value.status, caught.value.retry) == (status, retry)


# What only the direct path does


def test_settings_are_sent_as_they_are(server):
    observer = CallObserver()
    asked = call(effort="low", options={"min_p": 0.1, "guided_regex": "[0-9]+"})
    wait(direct(server).answer((asked,), observer))
    body = server.calls[-1].json
    assert (body["reasoning_effort"], body["min_p"], body["guided_regex"]) == ("low", 0.1, "[0-9]+")
    assert observer.dropped == []


@pytest.mark.parametrize("name", ["model", "messages", "n", "stream", "stream_options", "prompt"])
def test_options_cannot_replace_the_request(server, name):
    with pytest.raises(Failure, match=f"options must hold sampling settings: got '{name}'"):
        wait(direct(server).answer((call(options={name: 1}),), CallObserver()))
    assert server.calls == []


def test_an_unfinished_reply_is_continued(server):
    begun = Call("0", "sample", (Message("user", "Count."), Message("assistant", "1, 2,")))
    for kind, sent in ((VLLM, True), (SGLang, True), (OpenAICompatible, True), (LlamaCpp, None)):
        wait(direct(server, kind).answer((begun,), CallObserver()))
        body = server.calls[-1].json
        assert body["messages"][-1] == {"role": "assistant", "content": "1, 2,"}
        assert body.get("continue_final_message") is sent
        assert body.get("add_generation_prompt") is (False if sent else None)
    wait(direct(server, VLLM).answer((call(),), CallObserver()))
    assert "continue_final_message" not in server.calls[-1].json


@pytest.mark.parametrize("said", [Said(" 3"), Said("1, 2, 3", timings=(100.0, 20.0))])
def test_a_reply_to_an_unfinished_one_is_its_continuation(server, said):
    """llama.cpp returns the whole message unless it streams, vLLM what it has added."""
    begun = Call("0", "sample", (Message("user", "Count."), Message("assistant", "1, 2,")))
    for model in (direct(server, LlamaCpp), direct(server), through_litellm(server)):
        server.will(said)
        (reply,) = wait(model.answer((begun,), CallObserver()))
        assert reply.text == " 3"
    server.will(Said("2 + 2? 4"))
    (reply,) = wait(direct(server).answer((call(),), CallObserver()))
    assert reply.text == "2 + 2? 4"  # a question that is repeated belongs to the reply


@pytest.mark.parametrize("streams", [False, True])
def test_a_continuation_may_repeat_what_was_begun(server, streams):
    """Only a complete response of llama.cpp, which has timings, begins with the begun message."""
    begun = Call("0", "sample", (Message("user", "Count ones."), Message("assistant", "1")))
    for model in (direct(server, VLLM), direct(server), through_litellm(server), direct(server, LlamaCpp)):
        is_llama = isinstance(model, LlamaCpp)
        said = "11 1" if is_llama and not streams else "1 1"
        server.will(Said(said, timings=(9.0, 9.0) if is_llama else None))
        (reply,) = wait(model.answer((begun,), CallObserver(watched=streams)))
        assert reply.text == "1 1"


def test_a_model_without_a_chat_template_completes(server):
    page = {
        "model": "base",
        "choices": [
            {
                "text": " 4",
                "finish_reason": "stop",
                "logprobs": {"tokens": [" 4"], "token_logprobs": [-0.5], "top_logprobs": [{" 4": -0.5}]},
            }
        ],
        "usage": {"prompt_tokens": 5, "completion_tokens": 1},
    }
    server.pages["/v1/completions"] = page
    (reply,) = wait(direct(server, chat=False).answer((call("2 + 2 =", logprobs=1),), CallObserver()))
    body = server.asked[-1].json
    assert (body["prompt"], body["logprobs"], "messages" in body) == ("2 + 2 =", 1, False)
    assert (reply.text, reply.output_tokens, reply.logprobs[0].top) == (" 4", 1, {" 4": -0.5})


def test_arguments_that_are_an_object_and_reasoning_of_vllm_are_read(server):
    message = {
        "content": None,
        "reasoning": "I add.",
        "tool_calls": [{"function": {"name": "add", "arguments": {"a": 1}}}],
    }
    server.will(Raw(json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]})))
    (reply,) = wait(direct(server).answer((call(tools=(TOOL,)),), CallObserver()))
    assert (reply.thinking, reply.finish_reason) == ("I add.", "tool_calls")
    assert reply.tool_calls == (ToolCall("call_0", "add", '{"a": 1}'),)


# The stream


def streams(text: str, sizes: list[int]) -> bytes:
    """A stream of events that says `text`, cut into pieces anywhere."""
    chunks = [{"index": 0, "delta": {"content": piece}, "finish_reason": None} for piece in text]
    chunks.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    return "".join(f"data: {json.dumps({'choices': [chunk]})}\n\n" for chunk in chunks).encode()


class Pieces:
    """A response whose body arrives in the given pieces."""

    def __init__(self, pieces):
        self.pieces = pieces
        self.content = self

    async def iter_any(self):
        for piece in self.pieces:
            yield piece


async def events_in(pieces):
    return [event async for event in connections.events_of(Pieces(pieces))]


@given(
    st.lists(st.text(alphabet="ab: é\u2028", max_size=8), min_size=1, max_size=6),
    st.sampled_from(["\n", "\r", "\r\n"]),
    st.data(),
)
@settings(max_examples=300, deadline=None)
def test_events_are_read_however_the_bytes_are_cut(datas, end, data):
    """WHATWG, section 9.2.6: lines end with CR, LF or CRLF; one space after the colon is no data."""
    text = "".join(f": comment{end}event: x{end}data: {one}{end}{end}" for one in datas)
    raw = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert asyncio.run(events_in(pieces)) == datas


def test_data_of_several_lines_is_one_event():
    assert asyncio.run(events_in([b"data: a\ndata:b\n\n", b"id: 1\n\n", b"data: c"])) == ["a\nb", "c"]


# Safety


def test_a_redirect_is_not_followed(server):
    from aiohttp import web

    server.pages["/v1/models"] = lambda asked: web.Response(status=307, headers={"Location": "/elsewhere"})
    status, _ = wait(direct(server).look("models"))
    assert status == 307
    assert [asked.path for asked in server.asked] == ["/v1/models"]


def test_a_response_without_end_is_given_up(server, monkeypatch):
    monkeypatch.setattr(connections, "LARGEST", 10_000)
    server.will(Said("x" * 20_000), Said("x " * 20_000))
    for watched in (False, True):
        with pytest.raises(Failure, match="at most 10,000 bytes: got more"):
            wait(direct(server).answer((call(),), CallObserver(watched=watched)))


def test_a_compressed_response_is_not_unpacked(server):
    from aiohttp import web

    bomb = gzip.compress(b" " * 10**6)
    server.pages["/v1/models"] = lambda asked: web.Response(body=bomb, headers={"Content-Encoding": "gzip"})
    status, page = wait(direct(server).look("models"))
    assert (status, page) == (200, None)
    assert server.asked[-1].headers["accept-encoding"] == "identity"


def test_a_key_is_in_nothing_that_is_shown(server):
    model = direct(server)
    assert KEY not in repr((model, model.settings(), model.identity(), model.model_dump()))
    for base in (f"http://me:{KEY}@a/v1", f"http://a/v1?key={KEY}", KEY):
        with pytest.raises(ValueError, match="base_url must") as caught:
            OpenAICompatible(model="m", base_url=base)
        assert KEY not in str(caught.value)
    server.will(Fault(401, "the key {key} is wrong"))
    with pytest.raises(Failure) as failed:
        wait(model.answer((call(),), CallObserver()))
    assert KEY not in repr((failed.value, failed.value.message))


def test_a_key_of_the_environment_goes_to_servers_of_its_name_alone(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai-0123456789")
    monkeypatch.setenv("VLLM_API_KEY", "of-vllm-0123456789")
    for kind, key in ((OpenAICompatible, ""), (VLLM, "of-vllm-0123456789"), (SGLang, "")):
        wait(direct(server, kind, api_key=None).answer((call(),), CallObserver()))
        assert server.calls[-1].key == key


# Identity, names and checks


def test_the_host_is_no_part_of_the_cache_key(server):
    def key(**more):
        return request_of(call(), direct(server, **more).identity()).key

    assert key() == key(base_url="http://node17:9000/v1") == key(api_key="other") == key(concurrency=2)
    assert len({key(), key(model="other"), key(revision="q4"), key(chat=False), key(kind=VLLM)}) == 5


def test_a_job_on_another_node_finds_its_cache(server, tmp_path):
    first = tl.Lab(direct(server), runs=None, cache=tmp_path)
    run = wait(first.run(tl.OneAnswer(), tl.open_ended("2 + 2?")))
    elsewhere = tl.Lab(direct(server, base_url="http://127.0.0.1:9/v1"), runs=None, cache=tmp_path)
    again = wait(elsewhere.run(tl.OneAnswer(), tl.open_ended("2 + 2?")))
    assert again.answer == run.answer == "Four."
    assert len(server.calls) == 1


def test_names_stand_for_servers():
    for name, kind, url in (
        ("vllm/Qwen/Qwen3-8B", VLLM, "http://localhost:8000/v1"),
        ("sglang/m", SGLang, "http://localhost:30000/v1"),
        ("llama/m", LlamaCpp, "http://localhost:8080/v1"),
    ):
        model = tl.Lab(name).model
        assert type(model) is kind
        assert model.model == name.partition("/")[2]
        assert model.base_url == url
    with pytest.raises(ValueError, match="base_url"):
        OpenAICompatible(model="m")


def test_a_missing_server_or_model_is_found_before_the_first_call(server):
    model = direct(server, base_url="http://127.0.0.1:9/v1")
    assert wait(model.problem()) == (
        "No server answers at http://127.0.0.1:9/v1 for gpt-4.1-mini. Start it, or set base_url of the model"
    )
    server.pages["/v1/models"] = {"data": [{"id": "qwen"}]}
    at = server.base("openai")
    assert wait(direct(server).problem()) == f"The server at {at} has no model gpt-4.1-mini: got qwen"
    assert wait(direct(server, model="qwen").problem()) is None
    assert wait(direct(server, LlamaCpp).problem()) is None
    server.pages.clear()
    assert wait(direct(server).problem()) is None  # it may not list its models


@given(st.text(max_size=300))
@settings(max_examples=200, deadline=None)
def test_a_need_is_never_less_than_the_tokens_of_the_prompt(text):
    import tiktoken

    model = OpenAICompatible(model="m", base_url="http://a/v1")
    counted = len(tiktoken.get_encoding("cl100k_base").encode(text, disallowed_special=()))
    assert model.need((call(text, max_tokens=7),)).prompt >= counted
    assert model.need((call(text, max_tokens=7),)).tokens >= counted + 7


# The connections


def test_a_cancelled_call_is_a_cancelled_request(server):
    server.will(Hang())

    async def cancelled():
        asking = asyncio.ensure_future(direct(server).answer((call(),), CallObserver()))
        while not server.calls:
            await asyncio.sleep(0.01)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await asyncio.to_thread(server.calls[-1].ended.wait, 20)

    wait(cancelled())
    assert server.calls[-1].left


def test_connections_end_with_their_loop(server):
    """No warning about an unclosed session, which would be an error here, and no open socket."""
    import psutil

    def sockets():
        return sum(one.raddr != () for one in psutil.Process().net_connections())

    before = sockets()
    for _ in range(5):
        asyncio.run(direct(server).answer((call(),), CallObserver()))
    end = time.monotonic() + 10
    while sockets() > before and time.monotonic() < end:
        time.sleep(0.05)
    assert sockets() <= before


def test_the_record_says_what_was_asked(server, tmp_path):
    model = direct(server)
    lab = tl.Lab(model, runs=tmp_path, mode="off")
    run = wait(lab.run(tl.OneAnswer(), tl.open_ended("2 + 2?")))
    assert run.answer == "Four."
    assert KEY.encode() not in b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert run.header.model["base_url"] == server.base("openai")


# Hostile servers


def replied(**message):
    return {"message": {"content": "x", **message}, "finish_reason": "stop"}


def tool(**more):
    return replied(tool_calls=[{"id": "a", "function": {"name": "n", "arguments": "{}"}, **more}])


def logprob(value):
    """A reply whose one token has the log-probability `value`, as JSON."""
    token = {"content": [{"token": "x", "logprob": "VALUE", "top_logprobs": []}]}
    page = {"choices": [{**replied(), "logprobs": token}]}
    return json.dumps(page).replace('"VALUE"', value)


DEEP = "[" * 100_000 + "]" * 100_000
UNREADABLE = {
    "deep": DEEP,
    "deep in an unknown field": json.dumps({"choices": [replied()], "x": 0})[:-2] + DEEP + "}",
    "deep error": '{"error": {"code": 500, "message":' + "[" * 990 + "]" * 990 + "}}",
    "a number of 400 digits": logprob("1" + "0" * 400),
    "a number of 5,000 digits": logprob("1" * 5_000),
    "a long word as a number": logprob('"' + "k" * 10**6 + '"'),
    "an id that is a number": json.dumps({"choices": [tool(id=5)]}),
    "a name that is an object": json.dumps({"choices": [tool(function={"name": {"a": 1}})]}),
    "a finish that is an object": json.dumps({"choices": [{**replied(), "finish_reason": {"a": 1}}]}),
    "tools that are a text": json.dumps({"choices": [replied(tool_calls="abc")]}),
    "choices that are an object": '{"choices": {"a": 1}}',
    "choices that are a text": '{"choices": "abc"}',
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_page_of_another_form_is_a_short_failure(server, name):
    server.will(Raw(UNREADABLE[name]))
    with pytest.raises(Failure) as caught:
        wait(direct(server).answer((call(),), CallObserver()))
    assert caught.value.retry
    assert len(caught.value.message) < 600


def stream_of(*events):
    """A response of server-sent events."""
    from aiohttp import web

    texts = [event if isinstance(event, str) else json.dumps(event) for event in events]
    body = "".join(f"data: {text}\n\n" for text in texts)
    return lambda asked: web.Response(text=body, headers={"Content-Type": "Text/Event-Stream"})


def delta(finish=None, **given):
    return {"choices": [{"delta": given, "finish_reason": finish}]}


def streamed_from(server, *events):
    server.pages["/v1/completions"] = stream_of(*events)
    observer = CallObserver(watched=True)
    (reply,) = wait(direct(server, chat=False).answer((call(),), observer))
    return reply, observer.texts


PIECES = {
    "deep": ["[" * 100_000],
    "an id that is a number": [delta(tool_calls=[{"index": 0, "id": 5}]), delta("stop")],
    "a name that is an object": [delta(tool_calls=[{"function": {"name": {"a": 1}}}]), delta("stop")],
    "a finish that is an object": [delta({"a": 1}, content="x")],
    "a finish that is a number": [delta(5, content="x")],
    "100,000 calls": [
        delta(tool_calls=[{"index": k, "id": str(k), "function": {"name": "n"}} for k in range(10**5)]),
        delta("stop"),
    ],
}


@pytest.mark.parametrize("name", PIECES)
def test_a_stream_of_another_form_is_a_failure(server, name):
    began = time.process_time()
    with pytest.raises(Failure, match="cannot be read"):
        streamed_from(server, *PIECES[name])
    assert time.process_time() - began < 30


def test_the_text_of_a_long_stream_is_not_searched_again_for_each_piece(server):
    """With a letter outside ASCII it took five times as long when the whole text was cleaned for each."""

    def seconds(word: str) -> float:
        pieces = [delta(content=word) for _ in range(6_000)]
        began = time.process_time()
        reply, texts = streamed_from(server, *pieces, delta("stop"))
        assert (reply.text, len(texts)) == (word * 6_000, 6_000)
        return time.process_time() - began

    assert min(seconds("abcé "), seconds("abcé ")) < 3 * max(seconds("abcd "), seconds("abcd "))


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999", "null", "-1e308"])
def test_an_impossible_logprob_is_openais_substitute(server, value):
    server.will(Raw(logprob(value)))
    (reply,) = wait(direct(server).answer((call(),), CallObserver()))
    assert reply.logprobs[0].logprob == -9999.0


def test_a_finish_reason_can_be_encoded(server):
    server.will(Raw(json.dumps({"choices": [{**replied(), "finish_reason": "\ud800"}]})))
    (reply,) = wait(direct(server).answer((call(),), CallObserver()))
    assert reply.finish_reason == "\ufffd"
    reply, _ = streamed_from(server, delta("\ud800", content="x"))
    assert reply.finish_reason == "\ufffd"


def test_choices_that_nobody_asked_for_are_not_read(server):
    server.will(Raw(json.dumps({"choices": [replied(), {"broken": True}]})))  # would be an error if read
    (reply,) = wait(direct(server).answer((call(),), CallObserver()))
    assert reply.text == "x"


@pytest.mark.parametrize("status", [200, 403, 501])
def test_a_web_page_in_place_of_a_reply_is_shown(server, status):
    from aiohttp import web

    page = "<html><title>Sign in</title>\n" + "x" * 1_000
    answer = {"status": status, "text": page, "content_type": "text/html"}
    server.pages["/v1/completions"] = lambda asked: web.Response(**answer)
    with pytest.raises(Failure) as caught:
        wait(direct(server, chat=False, retries=0).answer((call(),), CallObserver()))
    before, _, shown = caught.value.message.partition("web page: ")
    assert shown == f"{' '.join(page.split())[:200]}…"
    where = f"{server.base('openai')} may not be a model server: "
    assert status == 200 or before.startswith(where)
    assert not caught.value.retry


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ('{"status": "ok"}', 'expected choices: got {"status": "ok"}'),
        ("<html>Sign in", "a web page: <html>Sign in"),
    ],
)
def test_another_program_at_the_address_is_asked_once(server, body, says):
    server.will(*[Raw(body)] * 9)
    run = wait(tl.Lab(direct(server), runs=None, mode="off").run(tl.OneAnswer(), tl.general("2 + 2?")))
    (error,) = [line.e.error for line in run.lines if isinstance(line.e, tl.Reply)]
    assert says in error
    assert f"at {server.base('openai')}: " in error
    assert "tried" not in error


@pytest.mark.parametrize("key", ["", "sk-my-key-0123456789"])
def test_a_401_says_where_the_key_came_from_or_that_none_was_sent(server, key):
    from aiohttp import web

    server.pages["/v1/completions"] = lambda asked: web.Response(status=401, text='{"error": "Unauthorized"}')
    with pytest.raises(Failure, match="Unauthorized") as caught:
        wait(direct(server, chat=False, api_key=key).answer((call(),), CallObserver()))
    assert ("No key was sent to http://127.0.0.1" in caught.value.message) == (not key)
    assert ("Pass api_key=" in caught.value.message) == (not key)
    assert ("The key came from api_key=" in caught.value.message) == bool(key)
    assert not key or key not in caught.value.message


def test_a_long_error_is_not_searched_to_its_end(server):
    from aiohttp import web

    server.pages["/v1/completions"] = lambda asked: web.Response(status=500, text="{} " * 10**7)
    began = time.process_time()
    with pytest.raises(Failure, match="HTTP 500") as caught:
        wait(direct(server, chat=False).answer((call(),), CallObserver()))
    assert caught.value.status == 500
    assert caught.value.retry
    assert time.process_time() - began < 30


def test_an_impossible_date_to_wait_until_is_ignored(server):
    server.will(Fault(429, retry_after=f"Mon, 1 Jan 2020 {'9' * 30}:00:00 GMT"))
    with pytest.raises(Failure) as caught:
        wait(direct(server).answer((call(),), CallObserver()))
    assert (caught.value.status, caught.value.retry_after) == (429, None)


@pytest.mark.parametrize("before", range(470, 500))
def test_a_key_that_a_shortened_message_cuts_is_hidden(server, monkeypatch, before):
    """Also a key of the environment. Fewer than 8 characters of a key may remain."""
    monkeypatch.setenv("VLLM_API_KEY", KEY)
    server.will(Fault(400, "x" * (before - 1) + " " + KEY + " " + "y" * 100))
    with pytest.raises(Failure) as caught:
        wait(direct(server, VLLM, api_key=None).answer((call(),), CallObserver()))
    assert KEY[:8] not in caught.value.message


def test_a_key_with_the_newline_of_its_file_is_sent_without_it(server):
    wait(direct(server, api_key=f"{KEY}\n").answer((call(),), CallObserver()))
    assert server.calls[-1].key == KEY
    with pytest.raises(Failure, match="cannot be sent") as caught:
        wait(direct(server, api_key=f"{KEY}\r\nX: y").answer((call(),), CallObserver()))
    assert not caught.value.retry
    assert KEY not in caught.value.message


@pytest.mark.parametrize("base", ["http://a b/v1", "http://a/v 1", "http://a\n/v1", "http://a/v1\r\nX: y"])
def test_a_url_with_white_space_is_refused(base):
    with pytest.raises(ValueError, match="base_url must be a URL"):
        OpenAICompatible(model="m", base_url=base)


@pytest.mark.parametrize("data", ["5", "true", '"abc"', '{"a": 1}', "[5]", '[{"id": "\\u001b[31m"}]'])
def test_a_list_of_models_of_another_form_is_no_problem(server, data):
    server.pages["/v1/models"] = json.loads(f'{{"data": {data}}}')
    assert wait(direct(server).problem()) is None


def test_a_server_that_breaks_the_connection_answers_nevertheless(server):
    """Only a refused connection is a server that does not run; a busy one is asked, and asked again."""

    async def broken(read, write):
        write.close()

    async def asked():
        async with await asyncio.start_server(broken, "127.0.0.1", 0) as listening:
            port = listening.sockets[0].getsockname()[1]
            return await direct(server, base_url=f"http://127.0.0.1:{port}/v1").problem()

    assert wait(asked()) is None


def test_a_loop_that_has_ended_is_freed(server):
    import gc
    import weakref

    loops = []

    async def asked():
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await direct(server).answer((call(),), CallObserver())

    for _ in range(3):
        asyncio.run(asked())
    gc.collect()
    assert [loop() for loop in loops] == [None] * 3


def test_connections_that_the_server_closed_are_not_used(server, recwarn):
    """After a pause in which the server has closed the idle connections, or was restarted."""

    async def asked(port=0, host="127.0.0.1"):
        body = json.dumps({"choices": [replied()]}).encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        writers = []

        async def answers(read, write):
            writers.append(write)
            try:
                while True:
                    await read.readuntil(b"}]")
                    await asyncio.sleep(0.05)  # the rest of the request has arrived
                    write.write(head + body)
            except (asyncio.IncompleteReadError, ConnectionError):
                write.close()

        listening = await asyncio.start_server(answers, host, port)
        port = listening.sockets[0].getsockname()[1]
        model = direct(server, base_url=f"http://{host}:{port}/v1")
        tried = [await model.answer((call(),), CallObserver())]
        for write in writers:
            write.close()
        listening.close()
        await asyncio.sleep(0.1)
        listening = await asyncio.start_server(answers, host, port)
        tried.append(await model.answer((call(),), CallObserver()))
        listening.close()
        for write in writers:
            write.close()
        await asyncio.sleep(0.1)
        return [replies[0].text for replies in tried]

    assert wait(asked()) == ["x", "x"]
    assert not recwarn.list


def test_a_server_is_found_by_its_ipv6_address(server):
    async def asked():
        async with await asyncio.start_server(lambda read, write: write.close(), "::1", 0) as listening:
            port = listening.sockets[0].getsockname()[1]
            model = direct(server, base_url=f"http://[::1]:{port}/v1/")
            return model.address == f"http://[::1]:{port}/v1", await model.problem()

    assert wait(asked()) == (True, None)


def test_proxies_of_the_environment_are_not_used(server, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert wait(direct(server).answer((call(),), CallObserver()))[0].error is None


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [VLLM, OpenAIServer, LiteLLM])
@pytest.mark.parametrize("how", ["run", "resume", "branch"])
def test_a_strangers_journal_sends_no_key_of_the_environment_to_its_server(
    server, tmp_path, monkeypatch, kind, how
):
    """The strategy of a loaded run names a server. A server on this machine receives the key."""
    monkeypatch.setenv("VLLM_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    for host, keys in (("0.0.0.0", {"", "none"}), ("127.0.0.1", {KEY})):  # both reach the server
        server.forget()
        base = server.base("openai").replace("127.0.0.1", host)
        named = {"model": "openai/m", "api_base" if kind is LiteLLM else "base_url": base}
        search = tl.BeamSearch(width=1)
        strategy = tl.TreeOfThoughts(model=kind(**named), search=search, stop=tl.Stop(depth=1))
        lab = tl.Lab("sim/general", runs=tmp_path / host, mode="off")
        task = tl.open_ended("Why?")
        made = wait(lab.run(strategy, task))
        assert {asked.key for asked in server.calls} == {KEY}  # the user's own strategy
        server.forget()
        run = tl.load(made.path)
        lab = tl.Lab("sim/general", runs=tmp_path / f"{host} again", mode="off")
        if how == "run":
            wait(lab.run(run.strategy, task))
        elif how == "branch":
            (first, *_) = run.tree[run.tree.root.id].children
            wait(lab.branch(run, first, content="Another step."))
        else:
            lines = made.path.read_bytes().splitlines(keepends=True)
            made.path.write_bytes(b"".join(lines[:3]))
            wait(lab.resume(made.path))
        assert {asked.key for asked in server.calls} <= keys
        assert server.calls
        server.forget()
        wait(lab.run(strategy, task))  # the user's own strategy, in the same lab
        assert {asked.key for asked in server.calls} == {KEY}


def test_many_samples_of_a_server_that_gives_one_at_a_time(server):
    model = direct(server, model="one at a time")
    server.will(*[Said((str(k),)) for k in range(1_500)])
    replies = wait(model.answer([call(sample_index=k) for k in range(1_500)], CallObserver()))
    assert [reply.text for reply in replies] == [str(k) for k in range(1_500)]


@pytest.mark.nightly
@pytest.mark.parametrize(("end", "connections_of_5"), [(b"0\r\n\r\n", 1), (b"", 5), (b"zz\r\n", 5)])
def test_a_stream_that_ends_after_its_last_event_leaves_its_connection_open(server, end, connections_of_5):
    """vLLM sends the end of the response apart from `[DONE]`. If it never comes or is wrong, the reply is
    complete nevertheless."""

    async def asked():
        writers = []

        async def answers(read, write):
            writers.append(write)
            event = b"data: %b\n\ndata: [DONE]\n\n" % json.dumps(delta("stop", content="x")).encode()
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            try:
                while True:
                    await read.readuntil(b"}}")
                    write.write(head + b"%x\r\n%b\r\n" % (len(event), event))
                    await asyncio.sleep(0.02)
                    write.write(end)
            except (asyncio.IncompleteReadError, ConnectionError):
                write.close()

        async with await asyncio.start_server(answers, "127.0.0.1", 0) as listening:
            port = listening.sockets[0].getsockname()[1]
            model = direct(server, base_url=f"http://127.0.0.1:{port}/v1")
            for _ in range(5):
                (reply,) = await model.answer((call(),), CallObserver(watched=True))
                assert reply.text == "x"
            for write in writers:
                write.close()
            await asyncio.sleep(0.1)
            return len(writers)

    assert wait(asked()) == connections_of_5


def test_the_connection_of_a_stream_of_llama_cpp_is_not_used_again(server):
    """It announces to keep the connection, and closes it. Other connections are kept."""

    async def asked():
        opened = []

        async def answers(read, write):
            opened.append(write)
            head = b"HTTP/1.1 200 OK\r\nServer: llama.cpp\r\nKeep-Alive: timeout=5, max=100\r\n"
            event = b"data: %b\n\ndata: [DONE]\n\n" % json.dumps(delta("stop", content="x")).encode()
            stream = head + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            body = json.dumps({"choices": [replied()]}).encode()
            whole = head + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
            try:
                while True:
                    length = re.search(rb"Content-Length: (\d+)", await read.readuntil(b"\r\n\r\n"))
                    if b'"stream":true' not in await read.readexactly(int(length[1])):
                        write.write(whole + body)
                        continue
                    write.write(stream)
                    await asyncio.sleep(0.02)
                    write.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(event), event))
                    await read.read(1)  # whatever comes now is not answered
                    return
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            finally:
                write.close()

        async with await asyncio.start_server(answers, "127.0.0.1", 0) as listening:
            port = listening.sockets[0].getsockname()[1]
            model = direct(server, base_url=f"http://127.0.0.1:{port}/v1")
            for watched in (False, False, True, True, False):
                (reply,) = await model.answer((call(),), CallObserver(watched=watched))
                assert reply.text == "x"
            return len(opened)

    assert wait(asked()) == 3


def test_a_base_url_without_v1_is_explained(server):
    server.pages["/v1/models"] = {"data": [{"id": "gpt-4.1-mini"}]}
    base = server.base("openai").removesuffix("/v1")
    problem = wait(direct(server, base_url=base).problem())
    assert problem == f"{base} is not the API of gpt-4.1-mini. Set base_url to {base}/v1"
    assert wait(direct(server, base_url=f"{base}/v1/").problem()) is None
    server.pages.clear()
    assert wait(direct(server, base_url=base).problem()) is None


# `openai/…` at another server than OpenAI's


def test_a_model_of_openai_at_a_server_of_ones_own_is_called_directly(server, monkeypatch, tmp_path):
    """By each way to name the server, and with each name of the model."""
    from tot_lab.apps.cli.arguments import parse_model

    base = server.base("openai")
    table = {"provider": "openai", "model": "m", "base_url": base}
    found = [
        tl.Settings(**table).lab().model,
        tl.Settings(models={"work": table}, model="work").lab().model,
        tl.Settings(model="openai", base_url=base).lab().model,
        tl.Settings(model="gpt-4.1-mini", base_url=base).lab().model,
        parse_model(["openai/m", f"base_url={base}"]),
        parse_model(["openai/m", f"api_base={base}", "price=[1.0,2.0]"]),
    ]
    (tmp_path / "tot_lab.toml").write_text(f'[models.mine]\nprovider = "openai"\nbase_url = "{base}"\n')
    monkeypatch.chdir(tmp_path)
    found.append(tl.Lab("mine").model)
    for name in ("OPENAI_BASE_URL", "OPENAI_API_BASE"):
        with monkeypatch.context() as environment:
            environment.setenv(name, base)
            found += [tl.Lab(model).model for model in ("openai/m", "openai", "gpt-4.1-mini")]
    assert {(type(model), model.address) for model in found} == {(OpenAIServer, base)}
    sent = []
    for model in found:
        wait(model.answer((call(),), CallObserver()))
        sent.append(server.calls[-1].json["model"])
    mini = "gpt-4.1-mini"
    assert sent == ["m", "m", mini, mini, "m", "m", mini, *["m", mini, mini] * 2]


def test_other_models_keep_litellm(server, monkeypatch):
    base = server.base("openai")
    assert type(tl.Lab("openai/gpt-4.1-mini").model) is LiteLLM  # OpenAI's own service
    monkeypatch.setenv("OPENAI_BASE_URL", base)
    for name in ("openai/o3", "gpt-5-mini", "anthropic/claude-haiku-4-5", "hosted_vllm/m"):
        assert type(tl.Lab(name).model) is LiteLLM
    groq = tl.Settings(provider="groq", model="m", base_url=base).lab().model
    assert (type(groq), groq.base_url) == (LiteLLM, base)


def test_the_direct_path_is_chosen_where_litellm_sends_the_settings_as_they_are(monkeypatch):
    """For every chat model of OpenAI in litellm's table, by litellm's own translation."""
    from tot_lab.models.lite_llm.asking import settings_of
    from tot_lab.models.lite_llm.loading import load_litellm

    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    litellm = load_litellm()
    asked = [call(temperature=0.5), call(max_tokens=50), call(stop=("x",)), call(seed=7), call(logprobs=3)]
    asked += [call(tools=(TOOL,), tool_choice="add"), call(options={"top_p": 0.9, "presence_penalty": 0.2})]

    def sent(name, one):
        observer = CallObserver()
        given = settings_of(litellm, name, "openai", [one], observer)
        made = litellm.utils.get_optional_params(
            model=name, custom_llm_provider="openai", drop_params=True, **given
        )
        made = {field: value for field, value in made.items() if value and field != "extra_body"}
        return made, observer.dropped

    def plain(one):
        return {field: value for fields in setting_arguments(one).values() for field, value in fields.items()}

    direct, translated = set(), set()
    for name, entry in litellm.model_cost.items():
        if entry.get("litellm_provider") != "openai" or entry.get("mode") != "chat" or "/" in name:
            continue
        is_direct = type(tl.Lab(f"openai/{name}").model) is OpenAIServer
        (direct if is_direct else translated).add(name)
        if is_direct:
            assert [sent(name, one) for one in asked] == [(plain(one), []) for one in asked], name
    assert {"gpt-4.1-mini", "gpt-4o"} <= direct
    assert {"o3", "gpt-5-mini"} <= translated
    # Among what only litellm does: it has other names for the settings of reasoning models, and drops some.
    limit = {model: sent(model, call(max_tokens=50))[0] for model in ("o3", "gpt-4o")}
    assert limit == {"o3": {"max_completion_tokens": 50}, "gpt-4o": {"max_tokens": 50}}
    assert sent("o3", call(temperature=0.5)) == ({}, ["temperature"])


def test_the_price_is_the_one_of_the_table_on_both_paths(server, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", server.base("openai"))
    paths = [LiteLLM(model="openai/gpt-4.1-mini"), tl.Lab("openai/gpt-4.1-mini").model]
    replies = [wait(model.answer((call(),), CallObserver()))[0] for model in paths]
    assert replies[0] == replies[1]
    assert replies[1].cost == pytest.approx((11 * 0.4 + 5 * 1.6) / 1e6)  # OpenAI's price list
    assert paths[1].window() == paths[0].window() == 1_047_576
    unknown = tl.Lab("openai/mine").model
    assert (unknown.price, unknown.window()) == (None, None)


def test_both_count_cached_tokens_and_only_litellm_checks_the_window_before_a_call(server):
    """Why OpenAI's own service is called through litellm."""
    page = {
        "choices": [replied()],
        "usage": {
            "prompt_tokens": 1000,
            "completion_tokens": 0,
            "total_tokens": 1000,
            "prompt_tokens_details": {"cached_tokens": 1000},
        },
    }
    base = server.base("openai")
    both = [
        LiteLLM(model="openai/gpt-4.1-mini", api_base=base, api_key=KEY),
        LiteLLM(model="openai/gpt-4.1-mini", api_key=KEY).configured(base_url=base),
    ]
    server.will(Raw(json.dumps(page)), Raw(json.dumps(page)))
    costs = [wait(model.answer((call(),), CallObserver()))[0].cost for model in both]
    assert costs == pytest.approx([1000 * 0.1 / 1e6] * 2)  # OpenAI's price of cached tokens
    long = call("word " * 10_000)
    both = [
        LiteLLM(model="openai/gpt-4", api_base=base, api_key=KEY),
        LiteLLM(model="openai/gpt-4", api_key=KEY).configured(base_url=base),
    ]
    with pytest.raises(Failure, match="do not fit the context window of 8192"):
        wait(both[0].answer((long,), CallObserver()))
    server.forget()
    wait(both[1].answer((long,), CallObserver()))
    assert len(server.calls) == 1  # the server decides


@pytest.mark.parametrize("first", [LiteLLM, OpenAIServer])
def test_replies_of_one_path_are_found_by_the_other(server, tmp_path, first, monkeypatch):
    """A change of the path must not lose a cache."""
    monkeypatch.setenv("OPENAI_BASE_URL", server.base("openai"))
    for name in ("openai/gpt-4.1-mini", "gpt-4.1-mini", "openai", "openai/mine"):
        given = LiteLLM(model=name), tl.Lab(name).model
        assert type(given[1]) is OpenAIServer
        assert given[0].identity() == given[1].identity()
        server.forget()
        runs = []
        for model in sorted(given, key=lambda model: type(model) is not first):
            lab = tl.Lab(model, runs=None, cache=tmp_path / name)
            runs.append(wait(lab.run(tl.OneAnswer(), tl.open_ended("2 + 2?"))))
        assert runs[0].events == runs[1].events
        assert len(server.calls) == 1


def test_a_run_that_was_killed_on_litellm_is_resumed_directly(server, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", server.base("openai"))
    strategy = tl.SelfConsistency(attempts=3)
    task = tl.open_ended("2 + 2?")
    made = wait(tl.Lab(LiteLLM(model="openai/m"), runs=tmp_path, mode="off").run(strategy, task))
    lines = made.path.read_bytes().splitlines(keepends=True)
    made.path.write_bytes(b"".join(lines[:4]))
    lab = tl.Lab("openai/m", runs=tmp_path, mode="off")
    assert type(lab.model) is OpenAIServer
    assert wait(lab.resume(made.path)).events == made.events


def test_with_a_revision_the_server_is_no_part_of_the_identity(server):
    def identity(**more):
        return OpenAIServer(model="openai/m", base_url="http://a/v1", **more).identity()

    assert identity()["base_url"] == "http://a/v1"
    assert (
        identity(revision="4f2a")
        == OpenAIServer(model="openai/m", base_url="http://b/v1", revision="4f2a").identity()
    )
    assert len({str(identity(**more)) for more in ({}, {"chat": False}, {"revision": "4f2a"})}) == 3


@pytest.mark.nightly
def test_a_direct_run_does_not_import_litellm(server, tmp_path):
    code = (
        "import asyncio, sys, tot_lab as tl\n"
        f"settings = tl.Settings(provider='openai', base_url={server.base('openai')!r})\n"
        "lab = settings.lab(runs=None, mode='off')\n"
        "run = asyncio.run(lab.run(tl.OneAnswer(), tl.open_ended('2 + 2?'), budget=tl.Budget(usd=1)))\n"
        "print(run.answer, run.usage.cost > 0, 'litellm' in sys.modules)"
    )
    env = {**os.environ, "OPENAI_API_KEY": KEY, "PYTHONPATH": str(Path(tl.__file__).parent.parent)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout == "Four. True False\n"
    assert server.calls[-1].key == KEY
