"""Several samples in one request: what a server must count, and what happens if it lies in any way.

Every case goes through both paths, to a server on loopback that gives what the case says.
"""

import json
import re
from itertools import count

import pytest
from support import llama_server, needs_smollm2, wait, weights
from support.endpoint import CallObserver
from support.providers import Asked, Fault, Raw, Said

import tot_lab as tl
from tot_lab.core.calls import Call, Message
from tot_lab.models.checking import check
from tot_lab.models.lite_llm import LiteLLM
from tot_lab.models.openai_compatible import VLLM, LlamaCpp, OpenAICompatible
from tot_lab.models.retries import Retried
from tot_lab.models.stack import Failure

KEY = "sk-MARKED-0123456789abcdef"
TASK = tl.open_ended("2 + 2?")
NAMES = count()
WORDS = "A sentence of about forty characters.. " * 2  # 78 bytes, about 16 tokens


@pytest.fixture
def server(shared, loaded):
    shared.forget()
    return shared


@pytest.fixture(params=[OpenAICompatible, LiteLLM])
def model(server, request):
    """A model of a name of its own, since what a server does with n is remembered."""
    name, base = f"m{next(NAMES)}", server.base("openai")
    if request.param is LiteLLM:
        return LiteLLM(model=f"openai/{name}", api_base=base, api_key=KEY, price=(1.0, 2.0), retries=0)
    return OpenAICompatible(model=name, base_url=base, api_key=KEY, price=(1.0, 2.0), retries=0)


def samples(count, **more):
    message = Message("user", "2 + 2?")
    return [Call("0", "sample", (message,), sample_index=k, **more) for k in range(count)]


def asked_for(server):
    return [asked.json.get("n", 1) for asked in server.calls]


def test_a_server_that_counts_all_is_believed_and_asked_again(server, model):
    server.will(Said((WORDS,) * 4, input_tokens=10, output_tokens=64))
    observer = CallObserver()
    replies = wait(model.answer(samples(4), observer))
    assert [(reply.input_tokens, reply.output_tokens) for reply in replies] == [(10, 16)] * 4
    assert [reply.cost for reply in replies] == pytest.approx([(10 * 1.0 + 16 * 2.0) / 1e6] * 4)
    assert observer.paid == pytest.approx((10 * 1.0 + 64 * 2.0) / 1e6)
    assert {reply.reported_usage for reply in replies} == {""}
    assert model.takes_n(samples(1)[0])


def test_a_server_that_counts_the_first_alone_is_not_believed(server, model):
    """All replies are kept and paid once, their usage is unknown, and later samples are requests of their
    own."""
    server.will(Said((WORDS,) * 4, output_tokens=16))
    observer = CallObserver()
    replies = wait(model.answer(samples(4), observer))
    assert [reply.text.strip() for reply in replies] == [WORDS.strip()] * 4
    assert {(reply.error, reply.input_tokens, reply.output_tokens, reply.cost) for reply in replies} == {
        (None, None, None, None)
    }
    assert {reply.reported_usage for reply in replies} == {"output_tokens=16 for 4 replies"}
    assert asked_for(server) == [4]
    assert not model.takes_n(samples(1)[0])
    server.forget()
    server.otherwise = Said(WORDS, output_tokens=16)
    replies = wait(model.answer(samples(2), CallObserver()))
    assert [reply.output_tokens for reply in replies] == [16, 16]
    assert asked_for(server) == [1, 1]


def test_two_replies_are_counted_by_their_tokens_if_these_are_reported(server, model):
    tokens = (("A", -0.1, {}), ("b", -0.1, {}), ("c", -0.1, {}))
    server.will(Said(("Abc", "Abc"), logprobs=tokens, output_tokens=3))
    replies = wait(model.answer(samples(2, logprobs=1), CallObserver()))
    assert {reply.reported_usage for reply in replies} == {"output_tokens=3 for 2 replies"}
    assert all(len(reply.logprobs) == 3 for reply in replies)


@pytest.mark.parametrize("said", [Said(("a", "b"), usage=False), Said(("a", "b"), output_tokens=0)])
def test_a_server_that_counts_nothing_is_unknown_and_keeps_n(server, model, said):
    server.will(said)
    replies = wait(model.answer(samples(2), CallObserver()))
    assert [reply.text for reply in replies] == ["a", "b"]
    assert model.takes_n(samples(1)[0]) is (not said.usage)


def test_fewer_replies_than_requested_are_kept_and_the_rest_requested(server, model):
    server.will(Said(("a", "b")), Said(("c",)), Said(("d",)))
    observer = CallObserver()
    replies = wait(model.answer(samples(4), observer))
    assert [reply.text for reply in replies] == ["a", "b", "c", "d"]
    assert asked_for(server) == [4, 1, 1]
    assert observer.dropped == ["n"]


def test_more_replies_than_requested_are_not_read(server, model):
    server.will(Said(("a", "b", "c", "d", "e"), output_tokens=50))
    replies = wait(model.answer(samples(2), CallObserver()))
    assert [reply.text for reply in replies] == ["a", "b"]
    assert sum(reply.output_tokens for reply in replies) == 50  # what was paid
    assert asked_for(server) == [2]


@pytest.mark.parametrize("status", [400, 422])
def test_a_server_that_refuses_n_is_asked_one_by_one(server, model, status):
    numbers = count()

    def answer(asked: Asked):
        return Fault(status, "n must be 1") if asked.n > 1 else Said(f"reply {next(numbers)}")

    server.will(*[answer] * 4)
    observer = CallObserver()
    replies = wait(model.answer(samples(3), observer))
    assert [(reply.text, reply.error) for reply in replies] == [(f"reply {k}", None) for k in range(3)]
    assert asked_for(server) == [3, 1, 1, 1]
    assert observer.dropped == ["n"]
    assert not model.takes_n(samples(1)[0])


def test_a_refused_prompt_is_no_refusal_of_n(server, model):
    server.will(Fault(400, "the prompt is too long"), Fault(400, "the prompt is too long"))
    with pytest.raises(Failure, match="the prompt is too long"):
        wait(model.answer(samples(3), CallObserver()))
    assert asked_for(server) == [3, 1]
    assert model.takes_n(samples(1)[0])


@pytest.mark.parametrize("status", [401, 404, 429, 500])
def test_other_failures_are_no_refusal_of_n(server, model, status):
    server.will(Fault(status))
    with pytest.raises(Failure):
        wait(model.answer(samples(3), CallObserver()))
    assert asked_for(server) == [3]
    assert model.takes_n(samples(1)[0])


def test_what_was_received_before_a_failure_is_not_requested_again(server, model):
    server.will(Said(("a",)), Said(("b",)), Fault(500))
    with pytest.raises(Failure) as failed:
        wait(model.answer(samples(4), CallObserver()))
    assert [reply.text for reply in failed.value.replies] == ["a", "b"]
    assert asked_for(server) == [4, 1, 1]


def test_what_a_failure_left_out_is_requested_again(server, model):
    server.will(Said(("a",)), Said(("b",)), Fault(500), Said("c"), Said("d"))
    replies = wait(Retried(model, model.configured(retries=1)).answer(samples(4), CallObserver()))
    assert [(reply.text, reply.error) for reply in replies] == [(text, None) for text in "abcd"]
    assert asked_for(server) == [4, 1, 1, 1, 1]


def test_an_unreadable_reply_is_no_loss_of_the_others(server, model):
    page = {
        "choices": [{"message": {"content": text}, "finish_reason": "stop"} for text in ("a", None, "c")],
        "usage": {"prompt_tokens": 5, "completion_tokens": 3},
    }
    server.will(Raw(json.dumps(page)))
    replies = wait(model.answer(samples(3), CallObserver()))
    assert [reply.text for reply in replies] == ["a", "", "c"]
    assert [reply.error is None for reply in replies] == [True, False, True]


def test_a_whole_run_on_a_server_that_lies_loses_nothing_and_pays_once(server, model, tmp_path):
    """Every sample is a call of its own in the record and in the cache."""

    def answer(asked: Asked):
        return Said((f"{WORDS} Answer: 4",) * asked.n, output_tokens=20)  # for the first one

    server.otherwise = answer
    strategy = tl.SelfConsistency(attempts=4)
    lab = tl.Lab(model, runs=None, cache=tmp_path)
    run = wait(lab.run(strategy, TASK))
    assert (run.usage.calls, run.usage.errors) == (4, 0)
    assert sum(asked_for(server)) == 4
    sent = len(server.calls)
    again = wait(tl.Lab(model, runs=None, cache=tmp_path).run(strategy, TASK))
    assert again.events == run.events
    assert len(server.calls) == sent
    server.otherwise = Said()


def test_greedy_samples_are_requests_of_their_own_on_an_open_server(server):
    """vLLM refuses n at temperature 0: "n must be 1 when using greedy sampling"."""
    model = VLLM(model="m", base_url=server.base("openai"))
    assert model.takes_n(samples(1, temperature=0.7)[0])
    assert model.takes_n(samples(1)[0])
    for more in ({"temperature": 0}, {"temperature": 0.0}, {"seed": 1}):
        assert not model.takes_n(samples(1, **more)[0])


def test_a_server_that_names_itself_llama_cpp_is_asked_one_by_one(server):
    """Before the first request, also if the model was named as that of any server."""
    model = OpenAICompatible(model=f"m{next(NAMES)}", base_url=server.base("openai"))
    server.pages["/props"] = {"build_info": "b4567"}
    run = wait(tl.Lab(model, runs=None, mode="off").run(tl.SelfConsistency(attempts=3), TASK))
    assert run.usage.calls == 3
    assert asked_for(server) == [1, 1, 1]
    assert not LlamaCpp(model="m", base_url=server.base("openai")).takes_n(samples(1)[0])


def test_the_check_says_that_a_server_does_not_count(server):
    model = OpenAICompatible(model=f"m{next(NAMES)}", base_url=server.base("openai"), concurrency=1)

    def answer(asked: Asked):
        return Said((WORDS,) * asked.n, output_tokens=16 if asked.n == 1 else 5)

    server.otherwise = answer
    found = wait(check(model))
    server.otherwise = Said()
    assert found.n is False
    assert any("does not count the tokens of all of them" in problem for problem in found.problems)


@pytest.mark.nightly
@needs_smollm2
def test_a_real_llama_cpp_counts_the_first_reply_alone(tmp_path):
    """The reason for asking it one by one. If this fails, llama.cpp counts all, and n can be used."""
    path = str(weights("smollm2-135m"))
    with llama_server(path=path, key=KEY, context_window=512, slots=2, threads=1) as base:
        model = OpenAICompatible(model=f"m{next(NAMES)}", base_url=base, api_key=KEY)
        body = {"messages": [{"role": "user", "content": "Count."}], "max_tokens": 7, "n": 2}
        status, page = wait(model.look("chat/completions", body))
        assert (status, len(page["choices"])) == (200, 2)
        assert page["usage"]["completion_tokens"] <= 7
        wait(model.about())
        replies = wait(model.answer(samples(2, max_tokens=7, temperature=1.0), CallObserver()))
    for reply in replies:
        assert reply.output_tokens == 7 or (reply.finish_reason == "stop" and reply.output_tokens < 7)
        assert re.search(r"\w", reply.text)
