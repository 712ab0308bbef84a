"""The litellm adapter against a server that speaks the providers' formats: what really arrives, what
becomes of what comes back, and that no key is in anything."""

import asyncio
import json
import logging
import os
import re
import subprocess
import sys
import time
from email.utils import formatdate
from random import Random

import pytest
from support import wait
from support.calls import call
from support.endpoint import CallObserver
from support.providers import FAMILIES, MODELS, Asked, Closed, Fault, Half, Hang, Providers, Raw, Said

import tot_lab as tl
from tot_lab.core.calls import Call, Message, Reply, TokenLogprob, ToolCall
from tot_lab.core.parts import part_of
from tot_lab.core.reading.thinking import separated, split_thinking
from tot_lab.models.lite_llm import LiteLLM
from tot_lab.models.retries import Retried
from tot_lab.models.stack import Failure

KEY = "sk-MARKED-0123456789abcdef"
each_family = pytest.mark.parametrize("family", FAMILIES)
SCHEMA = {
    "title": "Next step",
    "type": "object",
    "properties": {"a": {"enum": ["4", "6"]}, "steps": {"type": "array", "items": {"type": "string"}}},
    "required": ["a", "steps"],
    "additionalProperties": False,
}
TOOL = {"name": "add", "description": "a + b", "parameters": {"type": "object", "properties": {}}}


@pytest.fixture
def server(shared, loaded, monkeypatch):
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "OLLAMA_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    shared.forget()
    return shared


def endpoint(server: Providers, family: str, **settings: object) -> LiteLLM:
    made = {"model": MODELS[family], "api_base": server.base(family), "api_key": KEY, **settings}
    return LiteLLM(**made)


def ask(model: LiteLLM, *calls: Call, observer: CallObserver | None = None) -> list[Reply]:
    """The replies as the stack hands them on, with the thinking apart."""
    return [separated(reply) for reply in wait(model.answer(calls or (call(),), observer or CallObserver()))]


def failure(model: LiteLLM, *calls: Call, observer: CallObserver | None = None) -> Failure:
    with pytest.raises(Failure) as caught:
        ask(model, *calls, observer=observer)
    assert KEY not in str(caught.value)
    assert KEY not in caught.value.message
    return caught.value


# What it is


def test_building_and_naming_an_endpoint_imports_no_litellm():
    code = """
import sys
from tot_lab.models.lite_llm import LiteLLM
model = LiteLLM(model="ollama", context_window=8192, api_key="sk-1")
model.identity(), model.settings(), model.name, model.address, repr(model), model.takes_n
assert "litellm" not in sys.modules and "openai" not in sys.modules and "aiohttp" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


WATCH_IMPORTS = """loaded_in = []

class Seen:  # by the import system, for each module that is not loaded yet
    def find_spec(name, path=None, target=None):
        if name == "litellm":
            loaded_in.append(threading.current_thread())

sys.meta_path.insert(0, Seen)
"""
"""Code that notes the threads in which litellm is imported."""


@pytest.mark.nightly
def test_litellm_is_loaded_in_a_thread_and_nothing_is_downloaded(server, tmp_path):
    """In a process of its own, which still has litellm to load, and a hub that would show it."""
    server.will(Said("Four.", usage=False))
    code = f"""
import asyncio, os, sys, threading
from support.calls import call
from support.endpoint import CallObserver
from tot_lab.models.limits import Limited
from tot_lab.models.lite_llm import LiteLLM
from tot_lab.models.spending import SpendLimiter, Spending

model = LiteLLM(
    model="hosted_vllm/llama-3-8b", api_base="{server.base("openai")}", price=(1, 1), tokens_per_minute=10**6
)
{WATCH_IMPORTS}

async def main():
    for layer in (Spending(model, model, SpendLimiter(1.0)), Limited(model, model)):
        (reply,) = await layer.answer([call()], CallObserver(watched=True))
        assert reply.text, reply

asyncio.run(main())
assert loaded_in and threading.main_thread() not in loaded_in
assert model.need([call()]).tokens
assert os.environ.get("HF_HUB_OFFLINE") is None
from huggingface_hub import constants
assert constants.HF_HUB_OFFLINE is False
"""
    environment = {**os.environ, "HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path)}
    environment.pop("HF_HUB_OFFLINE", None)
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=environment)
    assert [asked.path for asked in server.asked] == ["/v1/chat/completions"] * 2


@pytest.mark.nightly
def test_a_capped_run_that_is_replayed_or_resumed_imports_litellm_in_a_thread(server, tmp_path):
    """In processes of their own, which still have litellm to load."""
    server.will(Said("Answer: 4", usage=False))
    base = server.base("openai")
    code = f"""
import asyncio, sys, threading
from support import TASK
import tot_lab as tl

{WATCH_IMPORTS}
what, folder = sys.argv[1:]
model = tl.LiteLLM(model="hosted_vllm/llama-3-8b", api_base="{base}", context_window=8192)
lab = tl.Lab(
    model, runs=None if what == "replay" else folder, cache=folder + "/calls",
    mode="replay" if what == "replay" else "auto",
)
search = tl.TreeOfThoughts(propose=tl.Sample(count=2), stop=tl.Stop(depth=2))
if what == "resume":
    from pathlib import Path
    (path,) = Path(folder).glob("*.jsonl")
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-2]))  # as after a kill
    made = asyncio.run(lab.resume(path))
else:
    made = asyncio.run(lab.run(search, TASK, budget=tl.Budget(tokens=10**6)))
assert loaded_in and threading.main_thread() not in loaded_in, loaded_in
print(made.stop_reason, made.usage.calls, made.answer)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    said = [
        subprocess.run(
            [sys.executable, "-c", code, what, str(tmp_path)],
            check=True,
            timeout=120,
            env=environment,
            stdout=subprocess.PIPE,
        ).stdout
        for what in ("run", "replay", "resume")
    ]
    assert said[0]
    assert said == said[:1] * 3


@pytest.mark.nightly
def test_loading_litellm_takes_nothing_of_a_calls_time(server):
    """In a process of its own, where the import is made to take longer than a call may."""
    server.will(Said("Four."))
    code = f"""
import asyncio, sys, time
import tot_lab as tl

class Slow:
    def find_spec(name, path=None, target=None):
        if name == "litellm":
            time.sleep(0.6)

sys.meta_path.insert(0, Slow)
model = tl.LiteLLM(model="hosted_vllm/llama-3-8b", api_base="{server.base("openai")}", price=(1, 1))
for settings in ({{}}, {{"spend": 1.0}}):
    lab = tl.Lab(model, runs=None, mode="off", timeout=0.5, **settings)
    run = asyncio.run(lab.run(tl.OneAnswer(), tl.general("2 + 2?")))
    assert run.answer == "Four.", run.calls_df().T
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, env=environment)
    assert len([asked for asked in server.asked if asked.family]) == 2  # besides the checks that it is there


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("openai", "openai/gpt-4.1-mini"),
        ("ollama", "ollama_chat/qwen3:8b"),
        ("ollama/llama3", "ollama_chat/llama3"),
        ("google", "gemini/gemini-2.5-flash"),
        ("google/gemini-2.5-pro", "gemini/gemini-2.5-pro"),
        ("anthropic", "anthropic/claude-haiku-4-5"),
        ("hosted_vllm/org/model", "hosted_vllm/org/model"),
        ("gpt-4.1-nano", "gpt-4.1-nano"),
    ],
)
def test_a_name_stands_for_a_model(model, name):
    assert LiteLLM(model=model).identity() == {"model": name, "base_url": None}


@pytest.mark.parametrize(
    "base",
    [
        "http://Host.Example:80/v1",
        "HTTP://host.example/v1/",
        "http://host.example:80/v1//",
        "http://host.example/v1#top",
    ],
)
def test_one_server_has_one_address(base):
    assert LiteLLM(model="openai/m", api_base=base).identity()["base_url"] == "http://host.example/v1"


def test_what_may_change_an_answer_is_in_the_identity_and_nothing_else(monkeypatch):
    plain = LiteLLM(model="openai/m", api_base="http://a/v1")
    same = LiteLLM(
        model="openai/m",
        api_base="http://a/v1",
        api_key=KEY,
        context_window=9,
        price=(1, 2),
        retries=0,
        concurrency=2,
        requests_per_minute=3,
    )
    assert plain.identity() == same.identity()
    others = [
        LiteLLM(model="openai/n", api_base="http://a/v1"),
        LiteLLM(model="hosted_vllm/m", api_base="http://a/v1"),
        LiteLLM(model="openai/m", api_base="http://b/v1"),
        LiteLLM(model="openai/m", api_base="http://a:8000/v1"),
        LiteLLM(model="openai/m", api_base="https://a/v1"),
        LiteLLM(model="openai/m"),
        LiteLLM(model="ollama/m"),
        LiteLLM(model="ollama/m", context_window=4096),
    ]
    identities = [json.dumps(model.identity()) for model in (plain, *others)]
    assert len(set(identities)) == len(identities)
    monkeypatch.setenv("OPENAI_API_BASE", "http://elsewhere/v1")  # litellm would go there
    assert LiteLLM(model="openai/m").identity()["base_url"] == "http://elsewhere/v1"


def test_settings_come_back_without_the_key():
    model = LiteLLM(model="openai/m", api_base="http://a/v1", api_key=KEY, price=(1, 2.5), context_window=9)
    settings = json.loads(json.dumps(model.settings()))
    again = part_of(settings)
    assert settings["kind"] == "litellm"
    assert again == LiteLLM(**{**model.model_dump(), "api_key": None})
    assert again.price == (1, 2.5)


def test_a_key_is_in_nothing_that_is_shown():
    model = LiteLLM(model="openai/m", api_key=KEY)
    for shown in (
        repr(model),
        str(model),
        model.settings(),
        model.identity(),
        model.model_dump(),
        model.model_dump_json(),
    ):
        assert KEY not in str(shown)
    for wrong in (
        {"model": "m", "api_key": KEY, "retires": 1},
        {"model": "m", "api_key": [KEY]},
        {"model": 3, "api_key": KEY},
        {"model": "m", "context_window": KEY},
    ):
        with pytest.raises(ValueError, match="LiteLLM") as caught:
            LiteLLM(**wrong)
        assert KEY not in str(caught.value)
    for base in (f"http://me:{KEY}@a/v1", f"http://a/v1?key={KEY}", KEY):
        with pytest.raises(ValueError, match="api_base must") as caught:
            LiteLLM(model="m", api_base=base)
        assert KEY not in str(caught.value)


# What is asked


@each_family
def test_a_plain_question_is_answered(server, family):
    server.will(Said("Four.", model="the-model-itself"))
    (reply,) = ask(endpoint(server, family))
    assert (reply.text, reply.error, reply.finish_reason) == ("Four.", None, "stop")
    assert (reply.input_tokens, reply.output_tokens) == (11, 5)
    assert reply.model == ("qwen3:8b" if family == "ollama" else "the-model-itself")
    (asked,) = server.asked  # and nothing else was asked of the server
    assert asked.key == KEY
    assert (
        asked.path
        == {
            "openai": "/v1/chat/completions",
            "anthropic": "/v1/messages",
            "gemini": "/v1beta/models/gemini-2.5-flash:generateContent",
            "ollama": "/api/chat",
        }[family]
    )


SENT = {  # a setting of a call, and where it must be found in the request of each family; None = not there
    "temperature": (
        {"temperature": 0.5},
        0.5,
        ["temperature", "temperature", "generationConfig.temperature", "options.temperature"],
    ),
    "max_tokens": (
        {"max_tokens": 50},
        50,
        ["max_tokens", "max_tokens", "generationConfig.max_output_tokens", "options.num_predict"],
    ),
    "stop": (
        {"stop": ("\n\n", "x")},
        ["\n\n", "x"],
        ["stop", "stop_sequences", "generationConfig.stop_sequences", "options.stop"],
    ),
    "seed": ({"seed": 7, "sample_index": 2}, 9, ["seed", None, "generationConfig.seed", "options.seed"]),
    "response_format": (
        {"response_format": SCHEMA},
        SCHEMA,
        [
            "response_format.json_schema.schema",
            "output_format.schema",
            "generationConfig.response_json_schema",
            "format",
        ],
    ),
    "logprobs": ({"logprobs": 3}, 3, ["top_logprobs", None, "generationConfig.logprobs", None]),
    "tool_choice": (
        {"tools": (TOOL,), "tool_choice": "required"},
        ["required", {"type": "any"}, "ANY", None],
        ["tool_choice", "tool_choice", "toolConfig.functionCallingConfig.mode", None],
    ),
    "tools": (
        {"tools": (TOOL,)},
        "add",
        [
            "tools.0.function.name",
            "tools.0.name",
            "tools.0.function_declarations.0.name",
            "tools.0.function.name",
        ],
    ),
    "effort": (
        {"effort": "low"},
        [None, {"type": "enabled", "budget_tokens": 1024}, 1024, True],
        [None, "thinking", "generationConfig.thinkingConfig.thinkingBudget", "think"],
    ),
    "top_p": (
        {"options": {"top_p": 0.9}},
        0.9,
        ["top_p", "top_p", "generationConfig.top_p", "options.top_p"],
    ),
    "min_p": ({"options": {"min_p": 0.1}}, 0.1, ["min_p", "min_p", None, "options.min_p"]),
    "presence_penalty": (
        {"options": {"presence_penalty": 0.2}},
        0.2,
        ["presence_penalty", None, "generationConfig.presence_penalty", None],
    ),
}


def found(data: object, path: str) -> object:
    for step in path.split("."):
        data = data[int(step)] if isinstance(data, list) else data[step]
    return data


@pytest.mark.nightly
@each_family
@pytest.mark.parametrize("setting", SENT)
def test_each_setting_arrives_or_is_named_as_dropped(server, family, setting):
    settings, values, paths = SENT[setting]
    place = FAMILIES.index(family)
    value = values[place] if isinstance(values, list) and len(values) == len(FAMILIES) else values
    observer = CallObserver()
    ask(endpoint(server, family), call(**settings), observer=observer)
    body = server.calls[-1].json
    if paths[place] is None:
        assert setting in observer.dropped
        plain = json.dumps(body)
        ask(endpoint(server, family), call(**{name: v for name, v in settings.items() if name == "tools"}))
        assert json.dumps(server.calls[-1].json) == plain  # it was dropped indeed
    else:
        assert found(body, paths[place]) == value
        assert setting not in observer.dropped
    again = CallObserver()
    ask(endpoint(server, family), call(**settings), observer=again)
    assert again.notes == observer.notes  # every time


def test_what_a_schema_loses_on_its_way_is_named(server):
    bounded = {
        "type": "object",
        "properties": {"k": {"type": "integer", "minimum": 1}, "s": {"type": "array", "maxItems": 3}},
        "required": ["k", "s"],
        "additionalProperties": False,
    }
    dropped = {}
    for family in FAMILIES:
        observer = CallObserver()
        ask(endpoint(server, family), call(response_format=bounded), observer=observer)
        dropped[family] = observer.dropped
        kept = json.dumps(server.calls[-1].json)
        for word in ("minimum", "maxItems"):
            assert (f'"{word}"' in kept) == (f"response_format.{word}" not in observer.dropped)
    lost = ["response_format.maxItems", "response_format.minimum"]
    assert dropped == {"openai": [], "anthropic": lost, "gemini": [], "ollama": []}


def test_an_effort_that_is_only_on_or_off_is_named(server):
    observer = CallObserver()
    ask(endpoint(server, "ollama"), call(effort="high"), observer=observer)
    assert observer.dropped == ["effort.level"]


def test_strict_is_said_of_a_schema_that_is(server):
    model = endpoint(server, "openai")
    ask(model, call(response_format=SCHEMA))
    form = server.calls[-1].json["response_format"]["json_schema"]
    assert (form["strict"], form["name"]) == (True, "Next_step")
    for loose in ({**SCHEMA, "required": ["a"]}, {**SCHEMA, "additionalProperties": True}):
        ask(model, call(response_format=loose))
        assert server.calls[-1].json["response_format"]["json_schema"]["strict"] is False


@each_family
def test_a_conversation_with_tools_arrives_whole(server, family):
    turns = (
        Message("system", "You add."),
        Message("user", "1 + 2?"),
        Message("assistant", "", (ToolCall("call_9", "add", '{"a": 1, "b": 2}'),)),
        Message("tool", "3", tool_call_id="call_9"),
    )
    server.will(Said(None, tools=(("add", {"a": 3}),), finish="tool_calls"))
    (reply,) = ask(endpoint(server, family), Call("0", "sample", turns, tools=(TOOL,)))
    body = json.dumps(server.calls[-1].json)
    assert all(part in body for part in ("You add.", "1 + 2?", "add"))
    assert '"a": 1' in body or '\\"a\\": 1' in body
    (tool,) = reply.tool_calls
    assert (tool.name, json.loads(tool.arguments)) == ("add", {"a": 3})
    assert tool.id
    assert reply.text == ""
    assert reply.finish_reason == "tool_calls"


def test_the_context_window_is_sent_to_ollama_alone(server):
    for family in FAMILIES:
        ask(endpoint(server, family, context_window=8192))
        assert ("8192" in json.dumps(server.calls[-1].json)) == (family == "ollama")
    assert server.calls[-1].json["options"]["num_ctx"] == 8192


def test_without_a_key_a_server_of_ones_own_is_asked_all_the_same(server, monkeypatch):
    for family in FAMILIES:
        ask(endpoint(server, family, api_key=None))
        assert server.calls[-1].key in ("", "none")
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    ask(endpoint(server, "anthropic", api_key=None))
    assert server.calls[-1].key == KEY


def test_without_a_key_a_provider_is_not_asked_again(server):
    for model in ("openai", "anthropic", "google"):
        caught = failure(LiteLLM(model=model))
        assert not caught.retry
        assert "key" in caught.message.lower()


def test_options_hold_sampling_settings_alone(server):
    for name in ("api_key", "mock_response", "model", "n", "cache", "api_base"):
        caught = failure(endpoint(server, "openai"), call(options={name: "x"}))
        assert name in caught.message
    assert not server.calls


def test_a_call_is_not_changed_by_being_sent(server):
    for family in FAMILIES:
        asked = call(response_format=SCHEMA, tools=(TOOL,), options={"top_p": 0.5})
        before = repr(asked)
        ask(endpoint(server, family), asked)
        assert repr(asked) == before


# Several samples


def draws(count: int, **settings: object) -> list[Call]:
    return [call(sample_index=draw, **settings) for draw in range(count)]


def test_n_is_taken_where_the_provider_takes_it(server):
    takes = {family: endpoint(server, family).takes_n(call()) for family in FAMILIES}
    assert takes == {"openai": True, "anthropic": False, "gemini": False, "ollama": False}
    assert not endpoint(server, "openai").takes_n(call(seed=1))


@pytest.mark.parametrize("count", [2, 3, 7])
def test_several_draws_are_one_request_and_each_costs_what_it_would_alone(server, count):
    server.will(Said(("a", "bb" * 30, *["c" * 9] * (count - 2)), input_tokens=100, output_tokens=53))
    observer = CallObserver()
    replies = ask(endpoint(server, "openai"), *draws(count), observer=observer)
    (asked,) = server.calls
    assert asked.json["n"] == count
    assert [reply.text for reply in replies] == ["a", "bb" * 30, *["c" * 9] * (count - 2)]
    assert [reply.input_tokens for reply in replies] == [100] * count
    assert sum(reply.output_tokens for reply in replies) == 53
    assert [reply.output_tokens for reply in replies[1:]] == [53 // count] * (count - 1)
    assert all(reply.shared_tokens for reply in replies)
    for reply in replies:
        assert reply.cost == pytest.approx((100 * 0.4 + reply.output_tokens * 1.6) / 1e6)
    assert observer.paid == pytest.approx((100 * 0.4 + 53 * 1.6) / 1e6)


def test_a_server_that_gives_fewer_is_asked_for_the_rest_and_remembered(server):
    model = endpoint(server, "openai", model="openai/one-by-one")
    server.will(Said(("one",)), Said(("two",)), Said(("three",)))
    observer = CallObserver()
    assert [reply.text for reply in ask(model, *draws(3), observer=observer)] == ["one", "two", "three"]
    assert [asked.json.get("n") for asked in server.calls] == [3, None, None]
    assert observer.dropped == ["n"]
    assert not model.takes_n(call())
    assert endpoint(server, "openai", model="openai/another").takes_n(call())


def test_one_sample_of_several_that_is_none_is_an_error_alone(server):
    server.will(Said(("one", None, "three")))
    replies = ask(endpoint(server, "openai"), *draws(3))
    assert [reply.text for reply in replies] == ["one", "", "three"]
    assert "no content" in replies[1].error


# What comes back


@each_family
def test_thinking_is_separated_however_it_comes(server, family):
    """By the layer that every endpoint has."""
    model = endpoint(server, family)
    stack = Retried(model, model)
    for said in (
        Said("24", thinking="6 times 4"),
        Said("<think>6 times 4</think>24"),
        Said("<think>\n6 times 4\n</think>\n\n24"),
        Said("6 times 4</think>24"),
        Said("<THINK>6 times</THINK><Thinking>4</Thinking>24"),
    ):
        server.will(said)
        (reply,) = wait(stack.answer([call()], CallObserver()))
        assert (reply.thinking.replace("\n\n", " "), reply.text) == ("6 times 4", "24")
        assert reply.raw_text == ""
    server.will(Said("<think>6 times", finish="length"))
    (reply,) = wait(stack.answer([call()], CallObserver()))
    assert (reply.thinking, reply.text, reply.finish_reason) == ("6 times", "", "length")
    late = "24, I say.\n<think>6 times 4</think>\nYes."
    server.will(Said(late))
    (reply,) = wait(stack.answer([call()], CallObserver()))
    assert (reply.thinking, reply.text, reply.raw_text) == ("6 times 4", "24, I say.\n\nYes.", late)


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("<think>a</think>b", ("a", "b")),
        ("\n<thinking>\na\n</thinking>\n b", ("a", "b")),
        ("<think>a", ("a", "")),
        ("<think>", (None, "")),
        ("<think>\n\n</think>\n\nb", (None, "b")),
        ("<think>a</think>", ("a", "")),
        # Wherever it stands.
        ("<think>a</think>b <think>c</think>", ("a\n\nc", "b ")),
        ("b <think>a</think>", ("a", "b ")),
        ("b\n<think>a</think>\nc", ("a", "b\n\nc")),
        ("b <think>a", ("a", "b ")),
        ("score: 0.<think>a</think>7", ("a", "score: 0.\n7")),
        # In any case, and with either name.
        ("<THINK>a</Think><thinking>b</THINKING>c", ("a\n\nb", "c")),
        # Without the opening tag, which some chat templates write themselves.
        ("a</think>b", ("a", "b")),
        ("a</think>b<think>c</think>d", ("a\n\nc", "b\nd")),
        ("a <think>b</think> c</think> d", ("a\n\nb\n\nc", "d")),
        # Nested, or spoken of.
        ("<think>a <think>b</think> c</think>d", ("a\n\nb\n\nc", "d")),
        ("<think>I begin with <think>.</think>d", ("I begin with\n\n.", "d")),
        ("Write `<think>` first and `</think>` last.", (None, "Write `<think>` first and `</think>` last.")),
        ("<thinker>a</thinker>", (None, "<thinker>a</thinker>")),
        ("think </thin> a < b", (None, "think </thin> a < b")),
        (" b ", (None, " b ")),
        ("", (None, "")),
    ],
)
def test_thinking_is_split_off_wherever_it_stands(text, split):
    assert split_thinking(text) == split
    once = separated(Reply(text))
    assert (once.thinking, once.text) == split
    assert separated(once) == once
    assert not once.raw_text or once.raw_text == text


def test_no_word_of_a_reply_is_lost():
    """Either thinking and text hold it in its order, or the raw text does."""
    random = Random(1)
    pieces = ["<think>", "</think>", "<THINKING>", "</thinking>", "one ", "two\n", "three", " "]
    for _ in range(2_000):
        text = "".join(random.choices(pieces, k=random.randint(0, 9)))
        reply = separated(Reply(text))
        written = re.sub(r"</?think(?:ing)?>", " ", text, flags=re.IGNORECASE).split()
        said = f"{reply.thinking or ''} {reply.text}".split()
        assert sorted(said) == sorted(written) or "".join(sorted(said)) == "".join(sorted(written)), text
        assert reply.raw_text == text or "".join(said) == "".join(written), text


def test_splitting_is_linear():
    began = time.process_time()
    for text in ("<think>" * 150_000, " " * 10**6, "<think>" + "<" * 10**6, "<think>" + "</think" * 140_000):
        split_thinking(text)
    assert time.process_time() - began < 120  # a quadratic splitter takes hours


def test_log_probabilities_are_read(server):
    tokens = (("4", -0.25, {"4": -0.25, "5": -1.5}), ("\ud800", -9e9, {}))
    for family in ("openai", "gemini"):
        server.will(Said("4", logprobs=tokens))
        (reply,) = ask(endpoint(server, family), call(logprobs=2))
        assert reply.logprobs == (
            TokenLogprob("4", -0.25, {"4": -0.25, "5": -1.5}),
            TokenLogprob("\ufffd", -9999.0),
        )


@each_family
def test_no_lone_surrogate_is_in_a_reply(server, family):
    server.will(
        Said("a\ud800b", thinking="c\udfff", tools=(("add", {"x": "\ud83d"}),)),
        Said("<think>\ud800</think>é"),
    )
    for _ in range(2):
        (reply,) = ask(endpoint(server, family), call(tools=(TOOL,)))
        repr(reply).encode()
    assert (reply.thinking, reply.text) == ("\ufffd", "é")


def test_cost_is_the_tables_or_ones_own_or_unknown(server):
    cost = {family: ask(endpoint(server, family))[0].cost for family in FAMILIES}
    assert cost["openai"] == pytest.approx((11 * 0.4 + 5 * 1.6) / 1e6)
    assert cost["anthropic"] == pytest.approx((11 * 1 + 5 * 5) / 1e6)
    assert cost["gemini"] == pytest.approx((11 * 0.3 + 5 * 2.5) / 1e6)
    assert cost["ollama"] is None
    for family in ("openai", "anthropic", "gemini"):
        assert ask(endpoint(server, family, model=f"{family}/nobody-knows-me"))[0].cost is None
    own = endpoint(server, "ollama", price=(1_000_000, 2))
    assert ask(own)[0].cost == 11 + 5 * 2 / 1e6
    assert ask(endpoint(server, "ollama", price=(0, 0)))[0].cost == 0
    server.will(Said(usage=False))
    (reply,) = ask(endpoint(server, "openai"))
    assert (reply.input_tokens, reply.output_tokens, reply.cost) == (None, None, None)


# Streams


@each_family
@pytest.mark.parametrize(
    "said",
    [
        Said("one two  three\n four"),
        Said("one two three", thinking="well then"),
        Said("<think>well then</think>\n\none two three"),
        Said("one <b> two", finish="length"),
        Said(None, tools=(("add", {"a": 1, "b": [2]}),), finish="tool_calls"),
        Said("I will add.", tools=(("add", {"a": 1}), ("add", {"a": 2})), finish="tool_calls"),
        Said("named", model="the-model-itself"),
    ],
)
def test_a_stream_gives_the_same_reply(server, family, said):
    model, asked = endpoint(server, family), call(tools=(TOOL,) if said.tools else ())
    server.will(said, said)
    (whole,) = ask(model, asked)
    observer = CallObserver(watched=True)
    (streamed,) = ask(model, asked, observer=observer)
    assert server.calls[-1].stream
    assert not server.calls[-2].stream

    for name in ("text", "thinking", "model", "input_tokens", "output_tokens", "cost", "finish_reason"):
        assert getattr(streamed, name) == getattr(whole, name), name
    assert [(t.name, json.loads(t.arguments)) for t in streamed.tool_calls] == [
        (t.name, json.loads(t.arguments)) for t in whole.tool_calls
    ]
    if streamed.text:
        assert observer.texts[-1].endswith(streamed.text)
        assert len(observer.texts) >= 1
        assert all(b.startswith(a) for a, b in zip(observer.texts, observer.texts[1:], strict=False))


def test_text_comes_while_the_model_writes(server):
    server.will(Said("one two three four", pause=0.05))
    observer = CallObserver(watched=True)

    async def watch() -> list[str]:
        asking = asyncio.ensure_future(endpoint(server, "openai").answer((call(),), observer))
        while not observer.texts:
            await asyncio.sleep(0.005)
        seen = list(observer.texts)
        assert not asking.done()
        await asking
        return seen

    assert wait(watch())[0] == "one "
    assert observer.texts[-1] == "one two three four"


def test_log_probabilities_and_several_samples_are_not_streamed(server):
    ask(endpoint(server, "openai"), call(logprobs=2), observer=CallObserver(watched=True))
    ask(endpoint(server, "openai"), *draws(2), observer=CallObserver(watched=True))
    assert not any(asked.stream for asked in server.calls)


@each_family
@pytest.mark.parametrize("cleanly", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.8])
def test_a_stream_that_breaks_off_is_no_reply(server, family, cleanly, share):
    server.will(Half(share=share, cleanly=cleanly))
    caught = failure(endpoint(server, family), observer=CallObserver(watched=True))
    assert caught.retry
    assert caught.status is None


@each_family
def test_an_error_inside_a_stream_is_the_providers(server, family):
    server.will(Half(error=Fault(529, "we are overloaded", code="overloaded_error")))
    caught = failure(endpoint(server, family), observer=CallObserver(watched=True))
    assert caught.retry
    assert "overloaded" in caught.message


# Faults


@pytest.mark.nightly
@each_family
@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize(
    ("status", "retry"),
    [
        (400, False),
        (401, False),
        (403, False),
        (404, False),
        (408, True),
        (409, True),
        (422, False),
        (429, True),
        (500, True),
        (502, True),
        (503, True),
        (529, True),
    ],
)
def test_an_http_error_keeps_its_status_and_the_providers_words(server, family, status, retry, watched):
    server.will(Fault(status, "the cat sat on the server"))
    caught = failure(endpoint(server, family), observer=CallObserver(watched=watched))
    assert (caught.status, caught.retry, caught.retry_after) == (status, retry, None)
    assert caught.message.removesuffix(". The key came from api_key=") == "the cat sat on the server"
    assert len(server.calls) == 1  # nobody but us tries again


@each_family
@pytest.mark.parametrize("watched", [False, True])
def test_the_provider_says_how_long_to_wait(server, family, watched):
    model, observer = endpoint(server, family), CallObserver(watched=watched)
    server.will(Fault(429, retry_after=7), Fault(503, retry_after=formatdate(time.time() + 60, usegmt=True)))
    assert failure(model, observer=observer).retry_after == 7
    assert 50 < failure(model, observer=observer).retry_after <= 60
    server.will(
        Fault(429, retry_after="soon"), Fault(429, retry_after=formatdate(time.time() - 60, usegmt=True))
    )
    assert failure(model, observer=observer).retry_after is None
    assert failure(model, observer=observer).retry_after == 0


def test_google_says_it_in_the_body(server):
    body = {"error": {"code": 429, "message": "slow", "details": [{"retryDelay": "12.5s"}]}}
    server.will(Raw(json.dumps(body), status=429))
    assert failure(endpoint(server, "gemini")).retry_after == 12.5


@each_family
@pytest.mark.parametrize("status", [401, 500])
def test_a_key_that_the_provider_repeats_is_blotted_out(server, family, status, caplog, capfd, monkeypatch):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("MISTRAL_API_KEY", "ms-OTHER-9876543210")
    for watched in (False, True):
        server.will(Fault(status, "the key {key} and ms-OTHER-9876543210 are wrong"))
        caught = failure(endpoint(server, family), observer=CallObserver(watched=watched))
        assert "OTHER" not in caught.message
        assert "are wrong" in caught.message
        assert "•••" in caught.message or "REDACTED" in caught.message
    assert server.calls[-1].key == KEY
    out = capfd.readouterr()
    for shown in (caplog.text, out.out, out.err):
        assert KEY not in shown


def test_the_ends_of_a_key_are_blotted_out_too(server, monkeypatch):
    server.will(Fault(401, f"Incorrect API key provided: {KEY[:8]}*****{KEY[-4:]}. You can find"))
    said = "Incorrect API key provided: •••. You can find. The key came from api_key="
    assert failure(endpoint(server, "openai")).message == said
    server.will(Fault(401))
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    said = failure(endpoint(server, "openai", api_key=None)).message
    assert said.endswith(". The key came from OPENAI_API_KEY")


@pytest.mark.parametrize("family", ["openai", "anthropic", "gemini"])  # to Ollama it can
def test_what_cannot_be_sent_is_not_tried_again(server, family):
    assert not failure(endpoint(server, family), call("a lone \ud800")).retry
    assert not server.calls


@each_family
def test_no_key_is_in_a_reply_or_its_notes(server, family, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    observer = CallObserver(watched=True)
    model = endpoint(server, family)
    replies = ask(model, call(seed=1, logprobs=2, effort="low"), observer=observer)
    out = capfd.readouterr()
    for shown in (replies, observer.notes, observer.texts, caplog.text, out.out, out.err, model):
        assert KEY not in repr(shown)


def echoing(asked):
    """A proxy that repeats the key that it was sent wherever a reply has room for it."""
    key = f"Bearer {asked.key}"
    return Said(
        f"It is {key}, {key}.",
        thinking=f"The header says {key} to me",
        tools=((f"f_{asked.key}", {"header": key}),),
        finish=f"because {key}" if asked.family == "openai" else "stop",
        model=key,
    )


@each_family
@pytest.mark.parametrize("watched", [False, True])
def test_a_key_that_a_good_reply_repeats_is_blotted_out(server, family, watched):
    tool = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}
    server.will(echoing)
    observer = CallObserver(watched=watched)
    (reply,) = ask(endpoint(server, family), call(tools=(tool,)), observer=observer)
    assert server.calls[-1].key == KEY
    assert KEY not in repr((reply, observer.notes, observer.texts))
    assert reply.text == "It is Bearer •••, Bearer •••."
    assert "The header says Bearer •••" in reply.thinking
    assert reply.tool_calls[0].name == "f_•••"
    assert json.loads(reply.tool_calls[0].arguments) == {"header": "Bearer •••"}
    if family != "ollama":  # litellm names it by itself
        assert reply.model == "Bearer •••"


def test_a_key_of_the_environment_is_blotted_out_too_and_a_dummy_is_not(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server.will(echoing)
    (reply,) = ask(endpoint(server, "openai", api_key=None))
    assert (server.calls[-1].key, reply.text) == (KEY, "It is Bearer •••, Bearer •••.")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/home/me/credentials.json")
    server.will(echoing, Said("It is in /home/me/credentials.json, and f***ine"))
    monkeypatch.setenv("OPENAI_API_KEY", "EMPTY")
    first, second = (ask(endpoint(server, "openai", api_key=key))[0] for key in ("EMPTY", None))
    assert first.text == "It is Bearer EMPTY, Bearer EMPTY."
    assert second.text == "It is in /home/me/credentials.json, and f***ine"


def test_a_key_is_blotted_out_of_tokens_and_however_a_stream_is_cut(server):
    head, tail = KEY[:11], KEY[11:]
    tokens = (("It: ", -0.1, {"It: ": -0.1, KEY: -3.0}), (head, -0.2, {head: -0.2}), (tail, -0.3, {}))
    server.will(Said(f"It: {KEY}", logprobs=tokens))
    (reply,) = ask(endpoint(server, "openai"), call(logprobs=2))
    assert [token.token for token in reply.logprobs] == ["It: ", "•••", "•••"]
    assert [token.logprob for token in reply.logprobs] == [-0.1, -0.2, -0.3]
    assert tail not in repr(reply)
    pieces = ["It: ", *KEY, " ends"]
    chunks = [{"index": 0, "delta": {"content": piece}, "finish_reason": None} for piece in pieces]
    chunks.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    lines = (f"data: {json.dumps({'id': 'c', 'model': 'm', 'choices': [chunk]})}\n\n" for chunk in chunks)
    server.will(Raw("".join([*lines, "data: [DONE]\n\n"]), kind="text/event-stream"))
    observer = CallObserver(watched=True)
    (reply,) = ask(endpoint(server, "openai"), observer=observer)
    assert reply.text == observer.texts[-1] == "It: ••• ends"
    assert len(observer.texts) == len(pieces)
    assert not any(KEY[:8] in text for text in observer.texts)


def test_a_key_that_a_proxy_repeats_is_in_no_file(server, tmp_path, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    server.otherwise, before = echoing, server.otherwise
    server.pages["/v1/models"] = lambda asked: {"data": [{"id": f"m {asked.key}"}]}
    partials = []
    try:
        lab = tl.Lab(endpoint(server, "openai"), cache=tmp_path / "calls", runs=tmp_path / "runs")
        check = wait(lab.check())

        async def stream():
            async for event in lab.stream(tl.OneAnswer(), tl.open_ended("Why?")):
                partials.append(event)

        wait(stream())
        run = wait(lab.run(tl.ReAct(max_iterations=1), tl.open_ended("Why?")))
    finally:
        server.otherwise = before
    assert any(isinstance(event, tl.Note) and event.name == "call.partial" for event in partials)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} >= {".jsonl", ".db"}
    assert KEY.encode() not in b"".join(path.read_bytes() for path in files)
    out = capfd.readouterr()
    for shown in (check, partials, run.calls_df().to_csv(), caplog.text, out.out, out.err):
        assert KEY not in (shown if isinstance(shown, str) else repr(shown))


@each_family
@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize(
    "raw", ["<html>a gateway's page", "", "{}", "[]", "null", '{"choices": 3}', '{"choices": [{}]}']
)
def test_garbage_is_no_reply_and_is_asked_for_again(server, family, raw, watched):
    server.will(Raw(raw))
    caught = failure(endpoint(server, family), observer=CallObserver(watched=watched))
    assert caught.retry
    assert caught.status is None
    assert "Traceback" not in caught.message
    assert len(server.calls) == 1


@each_family
@pytest.mark.parametrize("fault", [Closed(), Half()])
def test_a_broken_connection_may_be_tried_again(server, family, fault):
    server.will(fault)
    caught = failure(endpoint(server, family))
    assert (caught.retry, caught.status) == (True, None)
    assert server.url in caught.message


def test_a_server_that_is_not_there_may_come_up(server):
    caught = failure(endpoint(server, "openai", api_base="http://127.0.0.1:9/v1"))
    assert caught.retry
    assert "127.0.0.1:9" in caught.message


def test_an_answer_without_a_choice_or_content_is_no_reply(server):
    model = endpoint(server, "openai")
    server.will(Raw('{"id": "1", "object": "chat.completion", "model": "m", "choices": []}'))
    assert "no choices" in failure(model).message
    for family in ("openai", "anthropic", "gemini"):
        for watched in (False, True):
            server.will(Said(None))
            caught = failure(endpoint(server, family), observer=CallObserver(watched=watched))
            assert "no content" in caught.message
            assert not caught.retry
    server.will(Said(None, finish="length"))
    assert ask(model)[0].finish_reason == "length"  # it thought, and all was cut off


@each_family
def test_a_provider_that_finds_the_prompt_too_long_is_not_asked_again(server, family):
    for status in (400, 500):
        server.will(Fault(status, "This model's maximum context length is 10 tokens"))
        caught = failure(endpoint(server, family))
        assert not caught.retry
        assert "maximum context length" in caught.message


@each_family
def test_a_prompt_that_does_not_fit_is_not_sent(server, family):
    words = " ".join(["word"] * 300)
    model = endpoint(server, family, context_window=256)
    caught = failure(model, call(words))
    assert not caught.retry
    assert "context window of 256" in caught.message
    assert not server.calls
    ask(endpoint(server, family, context_window=1024), call(words))
    assert (
        "do not fit"
        in failure(endpoint(server, family, context_window=1024), call(words, max_tokens=900)).message
    )


def test_what_ollama_would_cut_off_is_not_sent(server):
    model = endpoint(server, "ollama")
    assert "context_window=" in failure(model, call("word " * 5000)).message
    ask(model, call("word " * 2000))
    ask(endpoint(server, "openai"), call("word " * 5000))


@each_family
@pytest.mark.parametrize("watched", [False, True])
def test_a_cancelled_call_is_a_cancelled_request(server, family, watched):
    server.will(Said("word " * 1000, pause=0.1) if watched else Hang())
    observer = CallObserver(watched=watched)

    async def cancel() -> Asked:
        asking = asyncio.ensure_future(endpoint(server, family).answer((call(),), observer))
        while not (observer.texts if watched else server.calls):
            await asyncio.sleep(0.005)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        return server.calls[-1]

    asked = wait(cancel())
    assert asked.ended.wait(5)
    assert asked.left


# What it may need


@each_family
def test_a_need_is_never_less_than_the_use(server, family):
    text = "How many legs have three spiders, two ducks and 17 crabs? " * 20
    need = endpoint(server, family, price=(3, 5)).need([call(text, max_tokens=50)] * 3)
    tokens = len(text.encode()) // 4
    assert tokens + 150 < need.tokens < 2 * tokens + 250
    prompts = 3 * (need.tokens - 150)  # a provider that ignores `n` is paid for the prompt of each sample
    assert need.usd == pytest.approx((prompts * 3 + 150 * 5) / 1e6)


def test_a_need_without_max_tokens_is_the_longest_reply(server):
    assert 32_768 < LiteLLM(model="openai").need([call()]).tokens < 32_800
    assert 64_000 < LiteLLM(model="anthropic").need([call()]).tokens < 64_050
    assert LiteLLM(model="hosted_vllm/x", context_window=8000).need([call()]).tokens > 8000
    assert LiteLLM(model="hosted_vllm/x").need([call()]).usd is None
    assert LiteLLM(model="ollama").need([call()]).usd is None
