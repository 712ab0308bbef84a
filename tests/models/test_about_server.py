"""What a server reports about itself: where it is recorded, what is left out, and that it changes no record.

The pages are those that the servers' sources and documentation describe.
"""

import asyncio
import hashlib
import json
import struct

import pytest
from aiohttp import web
from support import needs_smollm2, wait, weights
from support.providers import Providers, Said

import tot_lab as tl
from tot_lab.core.records import Note
from tot_lab.models import ready
from tot_lab.models.chat.about import describe
from tot_lab.models.checking import check
from tot_lab.models.openai_compatible import VLLM, LlamaCpp, OpenAICompatible, OpenAIServer, SGLang
from tot_lab.models.reward_servers import TEIRerank, VLLMPooling

KEY = "sk-MARKED-0123456789abcdef"
TASK = tl.open_ended("2 + 2?")
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"

# vLLM: vllm/entrypoints/serve/instrumentator; the list of models has the name and the weights behind it.
VLLM_PAGES = {
    "/version": {"version": "0.11.0"},
    "/v1/models": {"object": "list", "data": [{"id": "m", "root": "Qwen/Qwen2.5-7B-Instruct-AWQ"}]},
}
# SGLang: sglang/srt/entrypoints/http_server.py returns all arguments of the server, its keys among them.
SGLANG_PAGE = {
    "model_path": "/home/ann/weights/qwen-fp8/",
    "tokenizer_path": "/home/ann/weights/qwen-fp8/",
    "api_key": "the-key-of-the-server",
    "admin_api_key": "the-key-of-the-administrator",
    "quantization": "fp8",
    "dtype": "auto",
    "revision": None,
    "kv_cache_dtype": "auto",
    "internal_states": [{"avg_spec_accept_length": None}],
    "version": "0.5.3",
}
# llama.cpp: tools/server/README.md, GET /props.
LLAMA_PAGE = {
    "total_slots": 1,
    "model_path": "C:\\Users\\ann\\models\\qwen-q4_k_m.gguf",
    "model_ftype": "Q4_K - Medium",
    "chat_template": TEMPLATE,
    "build_info": "b4567-abcdef1",
    "default_generation_settings": {"n_ctx": 2048},
}
# text-embeddings-inference: docs/openapi.json, the example of `Info`.
TEI_PAGE = {
    "model_id": "thenlper/gte-base",
    "model_sha": "fca14538aa9956a46526bd1d0d11d69e19b5a101",
    "model_dtype": "float16",
    "model_type": {"classifier": {"id2label": {"0": "LABEL"}, "label2id": {"LABEL": 0}}},
    "version": "0.5.0",
    "sha": None,
    "docker_label": None,
}
SERVERS = {
    "vllm": (
        VLLM,
        VLLM_PAGES,
        {"server": "vllm", "version": "0.11.0", "model": "Qwen/Qwen2.5-7B-Instruct-AWQ"},
    ),
    "sglang": (
        SGLang,
        {"/server_info": SGLANG_PAGE},
        {
            "server": "sglang",
            "version": "0.5.3",
            "model": "qwen-fp8",
            "quantization": "fp8",
            "dtype": "auto",
        },
    ),
    "an earlier sglang": (
        SGLang,
        {"/get_server_info": {**SGLANG_PAGE, "quantization": None}},
        {"server": "sglang", "version": "0.5.3", "model": "qwen-fp8", "dtype": "auto"},
    ),
    "llama.cpp": (
        LlamaCpp,
        {"/props": LLAMA_PAGE},
        {
            "server": "llama.cpp",
            "version": "b4567-abcdef1",
            "model": "qwen-q4_k_m.gguf",
            "quantization": "Q4_K - Medium",
            "chat_template": hashlib.sha256(TEMPLATE.encode()).hexdigest()[:16],
        },
    ),
    "tei": (
        TEIRerank,
        {"/info": TEI_PAGE},
        {
            "server": "text-embeddings-inference",
            "version": "0.5.0",
            "model": "thenlper/gte-base",
            "revision": "fca14538aa9956a46526bd1d0d11d69e19b5a101",
            "dtype": "float16",
        },
    ),
    "a server of rewards": (VLLMPooling, VLLM_PAGES, {"server": "vllm", "version": "0.11.0"}),
    "llama.cpp by another name": (
        OpenAIServer,
        {"/props": {"build_info": "b1"}},
        {"server": "llama.cpp", "version": "b1"},
    ),
    "vllm by another name": (OpenAICompatible, VLLM_PAGES, {"server": "vllm", "version": "0.11.0"}),
    "one that says nothing": (OpenAICompatible, {}, {}),
}


def of(server, kind=LlamaCpp, **more):
    base = server.url if kind is TEIRerank else server.base("openai")
    return kind(**{"model": "m", "base_url": base, "api_key": KEY, **more})


@pytest.fixture
def server(shared):
    shared.forget()
    return shared


@pytest.mark.parametrize("name", SERVERS)
def test_what_each_server_reports_is_found_where_it_is(server, name):
    kind, pages, facts = SERVERS[name]
    server.pages.update(pages)
    assert wait(of(server, kind).about()) == facts
    assert {asked.key for asked in server.asked} == {KEY}


def test_no_key_and_no_folder_of_a_server_is_recorded(server, tmp_path):
    server.pages["/server_info"] = {**SGLANG_PAGE, "version": f"0.5.3 {KEY}"}
    run = wait(tl.Lab(of(server, SGLang), runs=tmp_path, mode="off").run(tl.OneAnswer(), TASK))
    written = run.path.read_bytes()
    assert b"qwen-fp8" in written
    for secret in ("the-key-of", KEY, "/home/ann"):
        assert secret.encode() not in written


@pytest.mark.parametrize(
    "page",
    [
        [],
        "b1",
        {},
        {"build_info": 5},
        {"build_info": {"a": 1}},
        {"build_info": None, "model_ftype": "Q4"},
        web.Response(text="<html>"),
        web.Response(status=500, text=json.dumps(LLAMA_PAGE)),
    ],
)
def test_a_page_of_another_form_says_nothing(server, page):
    server.pages["/props"] = (lambda asked: page) if isinstance(page, web.Response) else page
    assert wait(of(server).about()) == {}


def test_a_long_or_wild_value_is_shortened(server):
    server.pages["/props"] = {
        "build_info": "b\n1 " + "x" * 10_000,
        "model_ftype": "\ud800",
        "model_path": "  ",
    }
    found = wait(of(server).about())
    assert len(found["version"]) <= 500
    assert found["version"].startswith("b 1 xx")
    json.dumps(found).encode()
    assert set(found) == {"server", "version", "quantization"}


def servers_in(run):
    return [line for line in run.lines if isinstance(line.e, Note) and line.e.name == "call.server"]


def test_each_run_holds_it_once_and_the_server_is_asked_once(server, tmp_path):
    server.pages["/props"] = LLAMA_PAGE
    lab = tl.Lab(of(server), runs=tmp_path, mode="off")
    strategy = tl.SelfConsistency(attempts=5)
    for run in (wait(lab.run(strategy, TASK)), wait(lab.run(strategy, TASK))):
        (line,) = servers_in(run)
        assert line.p == ()  # beside the record
        facts = {name: value for name, value in line.e.data.items() if name != "call"}
        assert facts == SERVERS["llama.cpp"][2]
        df = tl.load(run.path).events_df()
        assert df[df.name == "call.server"].data.iloc[0]["quantization"] == "Q4_K - Medium"
    assert [asked.path for asked in server.asked].count("/props") == 1
    assert len(server.calls) == 10


def test_each_server_of_a_run_is_named(server, tmp_path):
    server.pages["/props"] = LLAMA_PAGE
    server.pages |= VLLM_PAGES
    roles = {"evaluate": of(server, VLLM)}
    lab = tl.Lab(of(server), runs=None, mode="off", roles=roles)
    search = tl.TreeOfThoughts(search=tl.BeamSearch(width=1), stop=tl.Stop(depth=1))
    run = wait(lab.run(search, TASK))
    assert [line.e.data["server"] for line in servers_in(run)] == ["llama.cpp", "vllm"]


def test_another_node_finds_the_cache_and_its_record_is_equal(tmp_path):
    """Two servers on two ports, of different versions: the second one is not asked, and a rerun on it without
    a cache makes the same record."""
    strategy = tl.SelfConsistency(attempts=3)
    with Providers(Said("Four.")) as first, Providers(Said("Four.")) as second:
        first.pages["/props"] = LLAMA_PAGE
        second.pages["/props"] = {**LLAMA_PAGE, "build_info": "b9", "model_ftype": "Q8_0"}
        assert first.url != second.url
        one, other = of(first, revision="a"), of(second, revision="a")
        made = wait(tl.Lab(one, runs=None, cache=tmp_path).run(strategy, TASK))
        found = wait(tl.Lab(other, runs=None, cache=tmp_path).run(strategy, TASK))
        assert (len(first.calls), second.asked) == (3, [])
        again = wait(tl.Lab(of(second), runs=None, mode="off").run(strategy, TASK))
    assert made.events == found.events == again.events
    assert [line.e.data["version"] for line in servers_in(made)] == ["b4567-abcdef1"]
    assert servers_in(found) == []  # nothing was sent
    assert [line.e.data["version"] for line in servers_in(again)] == ["b9"]


def test_a_resumed_run_names_the_server_that_continues_it(tmp_path):
    strategy = tl.SelfConsistency(attempts=3)
    with Providers(Said("Four.")) as server:
        server.pages["/props"] = LLAMA_PAGE
        run = wait(tl.Lab(of(server), runs=tmp_path, mode="off").run(strategy, TASK))
        lines = run.path.read_bytes().splitlines(keepends=True)
        replies = [number for number, line in enumerate(lines) if b'"type":"reply"' in line]
        run.path.write_bytes(b"".join(lines[: replies[0] + 1]))
        server.pages["/props"] = {**LLAMA_PAGE, "build_info": "b9"}
        resumed = wait(tl.Lab(of(server), runs=tmp_path, mode="off").resume(run.path))
    assert resumed.events == run.events
    assert [line.e.data["version"] for line in servers_in(resumed)] == ["b4567-abcdef1", "b9"]
    wait(tl.load(run.path).replay())  # raises if it differs


@pytest.mark.slow
def test_a_server_that_never_reports_answers_calls(monkeypatch):
    monkeypatch.setattr(ready, "_ASKING", 0.2)
    said = {"choices": [{"message": {"content": "Four."}, "finish_reason": "stop"}]}

    async def never(request):
        await asyncio.sleep(60)

    async def answers(request):
        return web.json_response(said)

    async def asked():
        app = web.Application()
        app.router.add_get("/props", never)
        app.router.add_get("/v1/models", answers)
        app.router.add_post("/v1/chat/completions", answers)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        model = LlamaCpp(model="m", base_url=f"http://127.0.0.1:{runner.addresses[0][1]}/v1")
        run = await tl.Lab(model, runs=None, mode="off", timeout=20).run(tl.SelfConsistency(attempts=3), TASK)
        await runner.cleanup()
        return run

    run = wait(asked())
    assert (run.answer, servers_in(run)) == ("Four.", [])


def test_the_check_shows_it(server):
    server.pages["/props"] = LLAMA_PAGE
    found = wait(check(of(server, concurrency=1)))
    assert found.server == "llama.cpp b4567-abcdef1, Q4_K - Medium, qwen-q4_k_m.gguf"
    assert f"server             {found.server}" in repr(found)
    server.pages.clear()
    assert "server             unknown" in repr(wait(check(of(server, concurrency=1))))
    assert describe({"server": "vllm", "version": "1"}) == "vllm 1"


def test_a_key_of_the_environment_stays_with_the_rules_here_too(server, monkeypatch):
    """A page beside the API is on the same host and receives the key under the same rules."""
    monkeypatch.setenv("VLLM_API_KEY", KEY)
    base = server.base("openai").replace("127.0.0.1", "0.0.0.0")
    stranger = VLLM(model="m", base_url=base)
    stranger._is_loaded = True
    wait(stranger.about())
    assert {asked.key for asked in server.asked} == {""}
    server.forget()
    wait(VLLM(model="m", base_url=base).about())
    assert {asked.key for asked in server.asked} == {KEY}


@pytest.mark.slow
@needs_smollm2
def test_the_quantisation_of_local_weights_is_that_of_the_file(tmp_path):
    """The file's own metadata: `general.file_type` 3 is Q4_1 in llama.cpp's `llama_ftype`."""
    path = weights("smollm2-135m")
    head = path.read_bytes()[: 2**20]
    place = head.index(b"general.file_type") + len(b"general.file_type")
    kind, number = struct.unpack("<II", head[place : place + 8])
    assert kind == 4  # a UINT32
    model = tl.Local(weights="smollm2-135m", context_window=512)
    try:
        lab = tl.Lab(model, runs=tmp_path, mode="off", roles={"answer": tl.Role(max_tokens=4)})
        run = asyncio.run(lab.run(tl.OneAnswer(), TASK))
    finally:
        wait(model.close())
    (line,) = servers_in(tl.load(run.path))
    assert (line.e.data["server"], line.e.data["model"]) == ("llama.cpp", path.name)
    assert (number, line.e.data["quantization"]) == (3, "Q4_1")
    assert len(line.e.data["chat_template"]) == 16
