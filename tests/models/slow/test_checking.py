"""`check` finds out what a server can do by asking it, and says what will not work."""

import json
import socket
from dataclasses import replace

import pytest
from support import TASK, llama_server, needs_smollm2, wait, weights
from support.providers import Asked, Closed, Fault, Providers, Raw, Said

import tot_lab as tl
from tot_lab.models import checking
from tot_lab.models.checking import Check, check
from tot_lab.models.lite_llm import LiteLLM
from tot_lab.models.local import Local
from tot_lab.models.stack import Failure

KEY = "sk-MARKED-0123456789abcdef"
WEIGHTS = weights("smollm2-135m")


def able(asked: Asked) -> Said:
    """All that an OpenAI-like server may do."""
    text = '{"animal": "okapi"}' if "okapi" in json.dumps(asked.json) else "Hello."
    logprobs = (("Hello", -0.1, {"Hello": -0.1}),) if asked.json.get("logprobs") else ()
    return Said(text, logprobs=logprobs, output_tokens=32, pause=0.6)


def checked(server: Providers, model: str, family: str, **settings: object) -> Check:
    base = server.base(family)
    found = wait(check(LiteLLM(model=model, api_base=base, **{"api_key": KEY, **settings})))
    assert KEY not in repr(found)
    assert all(asked.key == KEY for asked in server.asked)
    return found


def models(*names: str, **facts: object) -> dict:
    return {"object": "list", "data": [{"id": name, "object": "model", **facts} for name in names]}


@pytest.mark.nightly
def test_a_server_that_can_do_all():
    with Providers(able) as server:
        server.pages["/v1/models"] = models("other", "org/m", max_model_len=32_768)
        found = checked(server, "hosted_vllm/org/m", "openai", price=(0, 0))
    assert found._replace(tokens_per_second=None) == Check(
        "hosted_vllm/org/m",
        server.base("openai"),
        reachable=True,
        concurrency=None,
        model_there=True,
        context_window=32_768,
        schema=True,
        logprobs=True,
        n=True,
        slots=4,
        more_slots=True,
    )
    assert 0 < found.tokens_per_second <= 32 / 0.3
    assert "32768 tokens" in repr(found)
    assert "adaptive" in repr(found)


@pytest.mark.nightly
def test_a_server_that_can_do_little():
    with Providers(Said("Hello.", pause=0.3), slots=1) as server:
        server.pages["/api/tags"] = {"models": [{"name": "qwen3:8b"}, {"name": "other:latest"}]}
        server.pages["/api/show"] = lambda asked: (
            {"model_info": {"qwen3.context_length": 40_960}} if asked.json["model"] == "qwen3:8b" else {}
        )
        found = checked(server, "ollama", "ollama", concurrency=64)
    assert (found.reachable, found.model_there, found.context_window) == (True, True, 40_960)
    assert (found.schema, found.logprobs, found.n, found.slots, found.concurrency) == (
        False,
        False,
        False,
        1,
        1,
    )
    said = "\n".join(found.problems)
    for words in (
        "do not follow a JSON schema",
        'evaluate="logprob" will not work',
        "n samples are n requests",
        "answers only 1 of 64 concurrent calls",
        "more than 4096 tokens are refused, but the model accepts 40960",
        "the price is unknown",
    ):
        assert words in said
    assert all(problem in repr(found) for problem in found.problems)


@pytest.mark.nightly
def test_calls_that_were_late_once_are_chance():
    stories: list[str] = []

    def busy_once(asked: Asked) -> Said:
        if asked.json.get("max_tokens") != 32:
            return Said("Hello.")
        stories.append(asked.json["messages"][0]["content"])
        return Said("Hello.", output_tokens=32, pause=2.5 if 3 <= len(stories) <= 6 else 0.6)

    with Providers(busy_once) as server:
        found = checked(server, "hosted_vllm/org/m", "openai", price=(0, 0))
    assert "slots in parallel  at least 4\n" in repr(found)
    assert len(stories) == len(set(stories)) == 10  # two alone, four twice


def test_what_a_server_says_of_its_slots_is_believed():
    with Providers(lambda asked: replace(able(asked), pause=0.1), slots=1) as server:
        server.pages["/v1/models"] = models("weights.gguf")
        server.pages["/props"] = {"total_slots": 3, "default_generation_settings": {"n_ctx": 2048}}
        found = checked(server, "openai/local", "openai", context_window=4096)
    assert (found.slots, found.concurrency, found.context_window) == (3, 3, 2048)
    assert "slots in parallel  3\n" in repr(found)
    said = "\n".join(found.problems)
    assert "context_window is set to 4096, but the server has 2048" in said
    assert "weights.gguf" in said


def test_google_and_anthropic_tell_their_context_window():
    with Providers(Said("Hello.")) as server:
        server.pages["/v1beta/models/gemini-x"] = {"name": "models/gemini-x", "inputTokenLimit": 1_048_576}
        assert checked(server, "gemini/gemini-x", "gemini").context_window == 1_048_576
        server.pages["/v1/models"] = models("claude-haiku-4-5-20251001", "claude-x", max_input_tokens=9999)
        assert checked(server, "anthropic/claude-x", "anthropic").context_window == 9999
        server.pages.clear()
        assert checked(server, "anthropic", "anthropic").context_window == 200_000  # litellm's table
        unknown = checked(server, "openai/nobody-knows-me", "openai")
        assert unknown.context_window is None
        assert "context window is unknown" in "\n".join(unknown.problems)


def test_a_model_that_is_not_there():
    with Providers(Fault(404, "no model 'm' here")) as server:
        server.pages["/v1/models"] = models("a", "b")
        found = checked(server, "openai/m", "openai")
        assert len(server.calls) == 1  # and nothing more is asked of it
    assert (found.reachable, found.model_there, found.schema) == (True, False, None)
    assert found.problems == ("404: no model 'm' here", "the server has only the models a, b")


def test_a_key_that_is_wrong():
    with Providers(Fault(401, "the key {key} is wrong")) as server:
        found = checked(server, "openai/m", "openai")
    assert (found.reachable, found.model_there) == (True, None)
    assert found.problems == ("401: the key ••• is wrong. The key came from api_key=",)


def test_a_missing_key_is_named_where_the_provider_cannot_be_reached(monkeypatch):
    async def unreachable(endpoint):  # the tests send nothing to a provider
        raise Failure("Name or service not known", connection_failed=True)

    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr(LiteLLM, "server_facts", unreachable)
    (problem,) = wait(check(LiteLLM(model="openai/gpt-4.1-mini"))).problems
    assert problem == "No API key for openai/gpt-4.1-mini. Set the environment variable OPENAI_API_KEY"


def test_nobody_there():
    found = wait(check(LiteLLM(model="openai/m", api_base="http://127.0.0.1:9/v1", api_key=KEY)))
    assert (found.reachable, found.model_there) == (False, None)
    (problem,) = found.problems
    assert problem.startswith("no answer from http://127.0.0.1:9/v1: ")
    assert problem.endswith("Start the server, or correct its address (http://127.0.0.1:9/v1)")
    assert "unknown" in repr(found)


def test_a_server_that_lists_its_models_and_drops_the_trial_call():
    with Providers(Closed()) as server:
        server.pages["/v1/models"] = models("m")
        found = wait(check(tl.OpenAICompatible(model="m", base_url=server.base("openai"))))
    assert (found.reachable, found.model_there) == (True, None)
    (problem,) = found.problems
    assert problem.startswith("the server lists its models, but the trial chat completion failed: ")
    assert problem.endswith(". See the server's log")
    assert "Start the server" not in problem


@pytest.mark.parametrize("lists_models", [True, False])
@pytest.mark.parametrize("body", ["<html>a web page</html>", "[]", ""])
def test_a_server_that_speaks_another_language(body, lists_models):
    with Providers(Raw(body)) as server:
        if lists_models:
            server.pages["/v1/models"] = models("m")
        found = checked(server, "openai/m", "openai")
        assert found.reachable
        assert found.model_there is None
        (problem,) = found.problems
        assert f"The server at {server.base('openai')} does not have the API of openai/m" in problem
        assert "Correct the address" in problem


@pytest.mark.parametrize("lists_models", [True, False])
def test_a_server_that_fails(lists_models):
    with Providers(Fault(500, "out of memory")) as server:
        if lists_models:
            server.pages["/v1/models"] = models("m")
        found = checked(server, "openai/m", "openai")
    assert found.reachable
    assert found.model_there is None
    assert found.problems == ("500: out of memory. The server has an internal error. See its log",)


def test_a_server_that_fails_at_some_things_is_asked_for_the_others():
    def answer(asked: Asked) -> Said | Fault:
        refused = {"logprobs", "response_format", "n"} & set(asked.json)
        return Fault(400, f"{refused.pop()} is not for me") if refused else Said("Hello.")

    with Providers(answer) as server:
        found = checked(server, "openai/m", "openai")
    assert (found.model_there, found.schema, found.logprobs, found.n) == (True, False, False, False)
    said = "\n".join(found.problems)
    assert all(f"400: {name} is not for me" in said for name in ("logprobs", "response_format"))
    assert "n samples are n requests" in said


@pytest.mark.nightly
@pytest.mark.parametrize("lists_models", [True, False])
def test_a_server_that_is_slow_is_told_from_one_that_is_away(monkeypatch, lists_models):
    monkeypatch.setattr(checking, "PATIENCE", 2.0)
    with Providers(Said("Hello.", pause=60)) as server:  # it would answer, later
        if lists_models:
            server.pages["/v1/models"] = models("m")
        found = checked(server, "openai/m", "openai")
        assert server.calls[0].ended.wait(5)
    assert found.reachable
    assert found.model_there is None
    (problem,) = found.problems
    assert problem.startswith("no answer in 2 seconds: ")
    assert "slow or busy. Wait until the model is loaded" in problem
    assert ("lists its models" in problem) == lists_models


class Mute:
    """A server that takes connections and never writes a byte, as one does whose process is stopped."""

    def __enter__(self) -> str:
        self.socket = socket.create_server(("127.0.0.1", 0))
        return f"http://127.0.0.1:{self.socket.getsockname()[1]}/v1"

    def __exit__(self, *_: object) -> None:
        self.socket.close()


@pytest.mark.nightly
def test_a_server_whose_every_page_is_slow_is_there_all_the_same(monkeypatch):
    monkeypatch.setattr(checking, "PATIENCE", 2.0)
    with Mute() as address:
        found = wait(check(LiteLLM(model="openai/m", api_base=address, api_key=KEY)))
    assert found.reachable
    assert "slow or busy" in found.problems[0]


@pytest.mark.nightly
@needs_smollm2
def test_a_real_llama_cpp_server():
    with llama_server(path=str(WEIGHTS), key=KEY, context_window=512, slots=2, threads=1) as base:
        found = wait(check(LiteLLM(model="openai/smollm2", api_base=base, api_key=KEY)))
        wrong = wait(check(LiteLLM(model="openai/smollm2", api_base=base, api_key="sk-another-key")))
    assert (found.reachable, found.model_there, found.context_window) == (True, True, 512)
    assert (found.schema, found.logprobs, found.n) == (True, True, True)
    assert (found.slots, found.concurrency) == (2, 2)
    assert found.tokens_per_second > 1
    assert KEY not in repr(found)
    assert wrong.reachable
    assert wrong.problems[0].startswith("401: ")


@pytest.mark.nightly
@needs_smollm2
def test_the_local_model():
    model = Local(weights=str(WEIGHTS), context_window=512)
    try:
        found = wait(check(model))
    finally:
        wait(model.close())
    assert (found.reachable, found.model_there, found.context_window) == (True, True, 512)
    assert (found.schema, found.logprobs, found.n, found.concurrency) == (True, True, False, 1)
    assert "slots in parallel  1\n" in repr(found)


@pytest.mark.nightly
def test_a_lab_keeps_to_what_it_found():
    with Providers(able) as server:
        server.pages["/v1/models"] = models("gpt-4.1-mini")
        server.pages["/props"] = {"total_slots": 2, "default_generation_settings": {"n_ctx": 4096}}
        model = tl.LiteLLM(model="openai/gpt-4.1-mini", api_base=server.base("openai"), api_key=KEY)
        lab = tl.Lab(model, runs=None, mode="off")
        found = wait(lab.check())
        assert (found.reachable, found.slots, found.context_window) == (True, 2, 4096)
        server.forget()
        server.otherwise = Said("Answer: 4", pause=0.01)
        search = tl.SelfConsistency(strategy=tl.ChainOfThought(seed=1), attempts=8)
        assert wait(lab.run(search, TASK)).usage.errors == 0
        assert server.max_at_once == 2
    with pytest.raises(TypeError, match="Only a model with a server can be checked"):
        wait(tl.Lab("sim/game24", runs=None).check())
