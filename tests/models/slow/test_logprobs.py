"""What replies of real models keep of log-probabilities, in the journal and in the cache."""

import math
from itertools import count
from random import Random
from statistics import fmean

import pytest
from support import TASK, wait
from support.providers import Said

import tot_lab as tl
from tot_lab.core.calls import (
    Call,
    Message,
    Reply,
    TokenLogprob,
    confidences_of,
    logprobs_of,
    token_confidences,
)
from tot_lab.models.entries import Entry, packed, unpacked
from tot_lab.models.keys import request_of

KEY = "sk-MARKED-0123456789abcdef"
NAMES = count()
WORDS = "the a of sum so number is equal minus plus legs spider answer we have and thus one two in to 24 ="


def sampled(tokens, seed=1):
    """Tokens with 20 alternatives each, peaked as those of a language model: (token, value, alternatives)."""
    random, made = Random(seed), []
    for _ in range(tokens):
        weights = [random.expovariate(1) ** 6 + 1e-9 for _ in range(20)]
        texts = random.sample([f" {word}" for word in WORDS.split()], 20)
        logs = [math.log(weight / sum(weights)) for weight in weights]
        top = dict(sorted(zip(texts, logs, strict=True), key=lambda pair: -pair[1]))
        token = random.choices(list(top), [math.exp(value) for value in top.values()])[0]
        made.append((token, top[token], top))
    return made


@pytest.fixture
def server(shared, loaded):
    shared.forget()
    return shared


@pytest.fixture(params=["direct", "completions", "litellm"])
def model(server, request):
    name, base = f"l{next(NAMES)}", server.base("openai")
    if request.param == "litellm":
        return tl.LiteLLM(model=f"openai/{name}", api_base=base, api_key=KEY, price=(1.0, 2.0))
    chat = request.param == "direct"
    return tl.OpenAICompatible(model=name, base_url=base, api_key=KEY, price=(1.0, 2.0), chat=chat)


def will_say(server, model, tokens):
    text = "".join(token for token, _, _ in tokens)
    if getattr(model, "chat", True):
        server.will(Said(text, logprobs=tuple(tokens), output_tokens=len(tokens)))
        return
    logprobs = {
        "tokens": [token for token, _, _ in tokens],
        "token_logprobs": [value for _, value, _ in tokens],
        "top_logprobs": [top for _, _, top in tokens],
    }
    usage = {"prompt_tokens": 9, "completion_tokens": len(tokens)}
    choice = {"index": 0, "text": text, "finish_reason": "stop", "logprobs": logprobs}
    server.pages["/v1/completions"] = {"model": "m", "choices": [choice], "usage": usage}


def searched(server, model, tokens, folder, evaluate):
    will_say(server, model, tokens)
    lab = tl.Lab(model, runs=folder / "runs", cache=folder / "cache")
    strategy = tl.TreeOfThoughts(propose=tl.Sample(count=1), evaluate=evaluate, stop=tl.Stop(depth=1))
    return lab, wait(lab.run(strategy, TASK))


def replies_in(run):
    return [line.e for line in run.lines if isinstance(line.e, Reply)]


@pytest.mark.parametrize("evaluate", [tl.evaluators.SelfCertainty(), tl.evaluators.Likelihood()])
def test_a_sample_of_400_tokens_takes_at_most_12_kb_in_journal_and_cache(server, model, tmp_path, evaluate):
    tokens = sampled(400)
    lab, run = searched(server, model, tokens, tmp_path, evaluate)
    lines = [line for line in run.path.read_bytes().splitlines() if b'"type":"reply"' in line]
    (key,) = lab.runner.gateway.cache.stores[0]
    (entry,) = [lab.runner.gateway.cache.stores[0].get(key)]
    assert len(lines) == 1
    assert len(lines[0]) + len(entry) <= 12_000
    (reply,) = replies_in(run)
    assert unpacked(key, entry).reply == reply
    assert logprobs_of(reply) == pytest.approx([value for _, value, _ in tokens], abs=5.1e-4)
    whole = [TokenLogprob(*token) for token in tokens]
    if evaluate.logprobs == 20:
        assert confidences_of(reply) == pytest.approx(token_confidences(whole), abs=5.1e-3)
        assert run.tree["0.0"].raw == pytest.approx(fmean(token_confidences(whole)), abs=5e-3)
    else:
        assert run.tree["0.0"].score == pytest.approx(math.exp(fmean(v for _, v, _ in tokens)), abs=1e-3)
    calls = run.calls_df()
    assert calls.mean_logprob[0] == pytest.approx(fmean(value for _, value, _ in tokens), abs=1e-3)
    assert calls.min_logprob[0] == pytest.approx(min(value for _, value, _ in tokens), abs=1e-3)
    assert wait(tl.load(run.path).replay(cache=tl.Cache(tmp_path / "cache"))).identical
    again = wait(tl.Lab(model, runs=None, cache=tmp_path / "cache", mode="replay").run(run.strategy, TASK))
    assert again.tree == run.tree
    lab.runner.gateway.cache.close()


def test_a_verdict_of_one_token_keeps_its_alternatives(server, tmp_path):
    base = server.base("openai")
    model = tl.OpenAICompatible(model=f"l{next(NAMES)}", base_url=base, api_key=KEY, price=(1.0, 2.0))
    top = {"yes": -0.123456789, "no": -2.1, "so": -9999.0}
    server.will(Said(" step"), Said("yes", logprobs=(("yes", top["yes"], top),), output_tokens=1))
    strategy = tl.TreeOfThoughts(
        propose=tl.Sample(count=1), evaluate=tl.evaluators.Logprob(), stop=tl.Stop(depth=1)
    )
    run = wait(tl.Lab(model, runs=None, cache=tmp_path).run(strategy, TASK))
    (token,) = replies_in(run)[1].logprobs
    assert token == TokenLogprob("yes", -0.123457, {"yes": -0.123457, "no": -2.1, "so": -9999.0})
    yes, no = math.exp(top["yes"]), math.exp(top["no"])
    assert run.tree["0.0"].score == pytest.approx(yes / (yes + no))


def test_an_evaluator_gets_as_many_alternatives_as_it_asks_for(server, model, tmp_path):
    class Second(tl.evaluators.Evaluator):
        """Scores by the second alternative of the first token."""

        kind = "tests/second"
        compares = "reply"
        logprobs = 20
        alternatives = 2

        def score_reply(self, id, reply):
            second = [*reply.logprobs[0].top.values()][1]
            yield (event := tl.records.Scored(id, math.exp(second), second, (), self.kind))
            return [event]

    tokens = sampled(5)
    _, run = searched(server, model, tokens, tmp_path, Second())
    (reply,) = replies_in(run)
    assert [len(token.top) for token in reply.logprobs] == [2] * 5
    ranked = sorted(tokens[0][2].values(), reverse=True)
    assert run.tree["0.0"].raw == pytest.approx(ranked[1], abs=1e-6)
    asked = server.asked[-1]
    assert asked.json.get("top_logprobs", asked.json["logprobs"]) == 20


def test_keys_and_entries_of_earlier_versions_are_read():
    """The key and the reply were written before log-probabilities were condensed."""
    call = Call("0", "sample", (Message("user", "2 + 2?"),), 3, temperature=0.7, logprobs=20)
    request = request_of(call, {"model": "m"})
    assert request.key == "aec0f258d44f4567721ba3bbf89715ad0af57fc9:0::3"
    old = Reply("4", logprobs=(TokenLogprob("4", -0.25, {"4": -0.25, "5": -1.75}),))
    body = packed(Entry(1, request, old, 0.1, "2026-01-01T00:00:00+00:00", {}))
    tokens = '[{"token":"4","logprob":-0.25,"top":{"4":-0.25,"5":-1.75}}]'
    assert body.count(f'"reply":{{"type":"reply","text":"4","logprobs":{tokens}}}'.encode()) == 1
    reply = unpacked(request.key, body).reply
    assert (logprobs_of(reply), confidences_of(reply)) == ([-0.25], [1.0])
