"""A real llama.cpp server gives the same replies through litellm and without it: those that its own JSON
holds, in a stream or not."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from support import needs_smollm2, weights
from support.endpoint import CallObserver

import tot_lab as tl
from tot_lab.core.calls import Call, Message, Reply, ToolCall
from tot_lab.models.openai_compatible import LlamaCpp, OpenAICompatible
from tot_lab.models.stack import Failure

pytestmark = needs_smollm2

START = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.chat_template = sys.argv[1:]
params.n_ctx = 1024
params.n_parallel = params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.port = 0
params.cache_prompt = params.ui = False
params.verbosity = -1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""

TEMPLATE = """
{%- if tools %}<|im_start|>system
Tools:
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
Call one as <tool_call>
{"name": NAME, "arguments": ARGUMENTS}
</tool_call><|im_end|>
{% endif -%}
{%- for message in messages %}
{%- if message.role == "tool" %}<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% else %}<|im_start|>{{ message.role }}
{{ message.content or "" }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endif -%}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif -%}
"""
"""ChatML with tools, since the template of the weights has none."""


class Server:
    """A server with one slot and without a cache of prompts, and four ways to it."""

    def __init__(self, address: str) -> None:
        self.base = f"{address}/v1"
        self.direct = LlamaCpp(model="any", base_url=self.base)
        self.generic = OpenAICompatible(model="any", base_url=self.base)
        self.vllm, self.openai = (
            tl.LiteLLM(model=f"{provider}/any", api_base=self.base) for provider in ("hosted_vllm", "openai")
        )

    def words(self, **fields: Any) -> dict[str, Any]:
        """The server's own JSON, by Python's own HTTP client."""
        request = urllib.request.Request(
            f"{self.base}/chat/completions",
            json.dumps({"model": "any", **fields}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=120) as response:
            page: dict[str, Any] = json.load(response)
        return page


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    pytest.importorskip("xllamacpp")
    with subprocess.Popen(
        [sys.executable, "-c", START, str(weights("smollm2-135m")), TEMPLATE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield Server(process.stdout.readline().strip())
        process.kill()


def call(*turns: str, **settings: Any) -> Call:
    """A call with turns of the user and the model."""
    messages = tuple(
        Message("assistant" if k % 2 else "user", turn) for k, turn in enumerate(turns or ("Name a colour.",))
    )
    return Call("0", "any", messages, **{"temperature": 0.0, "max_tokens": 6, **settings})


def turn(role: str, content: str | None) -> dict[str, Any]:
    return {"role": role, "content": content}


PLAIN = {"messages": [turn("user", "Name a colour.")], "temperature": 0.0, "max_tokens": 6}
SCHEMA = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "blue"]}, "count": {"type": "integer"}},
    "required": ["colour", "count"],
    "additionalProperties": False,
}
LOOSE = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}}
TOOL = {
    "name": "add",
    "description": "Adds two numbers.",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}


def form(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}


CALLS: dict[str, tuple[Call, dict[str, Any]]] = {
    "plain": (call(), PLAIN),
    "system": (
        Call(
            "0",
            "any",
            (Message("system", "Answer in capital letters."), Message("user", "Hi.")),
            temperature=0.0,
            max_tokens=6,
        ),
        {**PLAIN, "messages": [turn("system", "Answer in capital letters."), turn("user", "Hi.")]},
    ),
    "conversation": (
        call("I am Ann.", "Hello Ann.", "Who am I?"),
        {
            **PLAIN,
            "messages": [
                turn("user", "I am Ann."),
                turn("assistant", "Hello Ann."),
                turn("user", "Who am I?"),
            ],
        },
    ),
    "stop": (call(stop=(" I", "!")), {**PLAIN, "stop": [" I", "!"]}),
    "one token": (call(max_tokens=1), {**PLAIN, "max_tokens": 1}),
    "to its end": (
        call("Say hi.", max_tokens=None, stop=("?",)),
        {"messages": [turn("user", "Say hi.")], "temperature": 0.0, "stop": ["?"]},
    ),
    "schema": (
        call(response_format=SCHEMA, max_tokens=40),
        {**PLAIN, "max_tokens": 40, "response_format": form(SCHEMA)},
    ),
    "loose schema": (
        call(response_format=LOOSE, max_tokens=40),
        {**PLAIN, "max_tokens": 40, "response_format": form(LOOSE)},
    ),
    "logprobs": (call(logprobs=3), {**PLAIN, "logprobs": True, "top_logprobs": 3}),
    "options": (
        call(options={"top_k": 1}, temperature=2.0),
        {**PLAIN, "temperature": 2.0, "top_k": 1},
    ),
    "unicode": (
        call("Repeat: 日本 🜁 \u2028 é"),
        {**PLAIN, "messages": [turn("user", "Repeat: 日本 🜁 \u2028 é")]},
    ),
    "unfinished": (
        call("Count.", "1, 2, 3,\n"),
        {**PLAIN, "messages": [turn("user", "Count."), turn("assistant", "1, 2, 3,\n")]},
    ),
}


def got(model: Any, asked: Call, watched: bool) -> tuple[Reply, list[Any]]:
    """The reply and the notes, except the server's speed, which is never the same."""

    async def answered() -> tuple[Reply, list[Any]]:
        observer = CallObserver(watched=watched)
        async with asyncio.timeout(120):
            (reply,) = await model.answer([asked], observer)
        return reply, [note for note in observer.notes if note[0] != "call.processed"]

    return asyncio.run(answered())


@pytest.mark.parametrize("name", CALLS)
def test_both_paths_give_the_servers_own_reply(server: Server, name: str) -> None:
    asked, fields = CALLS[name]
    page = server.words(**fields)
    (choice,) = page["choices"]
    text = choice["message"]["content"]
    if name == "unfinished":  # the server repeats what it was to continue
        assert text.startswith("1, 2, 3,\n")
        text = text[len("1, 2, 3,\n") :]
    expected = {
        "text": text,
        "finish_reason": choice["finish_reason"],
        "input_tokens": page["usage"]["prompt_tokens"],
        "output_tokens": page["usage"]["completion_tokens"],
        "model": page["model"],
        "error": None,
    }
    logprobs = [
        (
            token["token"],
            token["logprob"],
            {other["token"]: other["logprob"] for other in token["top_logprobs"]},
        )
        for token in (choice.get("logprobs") or {"content": ()})["content"]
    ]
    assert len(logprobs) == (6 if name == "logprobs" else 0)
    for model in (server.direct, server.vllm):
        for watched in (False, True):
            reply, notes = got(model, asked, watched)
            assert {field: getattr(reply, field) for field in expected} == expected
            assert [(token.token, token.logprob, token.top) for token in reply.logprobs] == logprobs
            assert notes == []


def test_the_settings_of_this_file_have_an_effect(server: Server) -> None:
    """Otherwise replies would be equal although no path sends them."""

    def text(fields: dict[str, Any]) -> str:
        return str(server.words(**fields)["choices"][0]["message"]["content"])

    plain = text(PLAIN)
    for name in ("stop", "one token", "schema", "loose schema"):
        assert text(CALLS[name][1]) != plain
    assert text(CALLS["options"][1]) == plain  # the most likely token in spite of the temperature
    assert text({**PLAIN, "temperature": 2.0, "seed": 1}) != plain


@pytest.mark.parametrize("watched", [False, True])
def test_other_names_of_the_server_give_the_same(server: Server, watched: bool) -> None:
    for name in ("plain", "unfinished", "logprobs"):
        first = got(server.direct, CALLS[name][0], watched)
        for model in (server.generic, server.openai):
            assert got(model, CALLS[name][0], watched) == first


def test_a_seed_gives_the_same_text_on_both_paths(server: Server) -> None:
    """tot_lab derives a seed for each sample, which both paths have to send."""
    texts = [
        {
            got(model, call(seed=7, temperature=1.5, sample_index=sample), watched)[0].text
            for model in (server.direct, server.vllm)
            for watched in (False, True)
        }
        for sample in range(2)
    ]
    assert [len(found) for found in texts] == [1, 1]
    assert texts[0] != texts[1]


def test_a_prompt_that_is_too_long_is_the_same_error(server: Server) -> None:
    failures = []
    for model in (server.direct, server.vllm):
        for watched in (False, True):
            with pytest.raises(Failure) as caught:
                got(model, call("word " * 1500), watched)
            failures.append((caught.value.status, caught.value.retry, caught.value.message))
    assert len(set(failures)) == 1
    assert failures[0][:2] == (400, False)
    assert "1024 tokens" in failures[0][2]


def test_streams_and_other_calls_follow_each_other_without_a_retry(server: Server) -> None:
    """The server closes the connection of a stream, though it says that it keeps it."""

    async def asked() -> list[str]:
        texts = []
        for k in range(8):
            (reply,) = await server.generic.answer([CALLS["plain"][0]], CallObserver(watched=k % 3 != 2))
            texts.append(reply.text)
        return texts

    assert len(set(asyncio.run(asked()))) == 1


SUMS = [(1, 2), (4, 3), (5, 1)]


def used_tool(k: int, a: int, b: int) -> tuple[tuple[Message, ...], list[dict[str, Any]]]:
    """A use of the tool as messages of a call, and as those of a request."""
    arguments = json.dumps({"a": a, "b": b})
    function = {"name": "add", "arguments": arguments}
    return (
        Message("user", f"{a} + {b}"),
        Message("assistant", "", tool_calls=(ToolCall(f"c{k}", "add", arguments),)),
        Message("tool", str(a + b), tool_call_id=f"c{k}"),
    ), [
        turn("user", f"{a} + {b}"),
        {
            **turn("assistant", None),
            "tool_calls": [{"id": f"c{k}", "type": "function", "function": function}],
        },
        {**turn("tool", str(a + b)), "tool_call_id": f"c{k}"},
    ]


def test_tool_calls_are_the_same(server: Server) -> None:
    """After three uses of the tool, the model uses it a fourth time."""
    used = [used_tool(k, a, b) for k, (a, b) in enumerate(SUMS)]
    messages = (*(message for ours, _ in used for message in ours), Message("user", "2 + 6"))
    settings: dict[str, Any] = {"temperature": 0.0, "max_tokens": 40}
    page = server.words(
        messages=[*(message for _, theirs in used for message in theirs), turn("user", "2 + 6")],
        tools=[{"type": "function", "function": TOOL}],
        tool_choice="auto",
        **settings,
    )
    (choice,) = page["choices"]
    (tool,) = choice["message"]["tool_calls"]
    asked = Call("0", "any", messages, tools=(TOOL,), tool_choice="auto", **settings)
    for model in (server.direct, server.vllm):
        for watched in (False, True):
            reply, notes = got(model, asked, watched)
            (made,) = reply.tool_calls
            assert (made.name, made.arguments) == ("add", tool["function"]["arguments"])
            assert json.loads(made.arguments) == {"a": 2, "b": 6}
            assert made.id
            assert (reply.text, reply.finish_reason) == (choice["message"]["content"] or "", "tool_calls")
            assert reply.input_tokens == page["usage"]["prompt_tokens"]
            assert reply.output_tokens == page["usage"]["completion_tokens"]
            assert notes == []
