"""Reward model servers on loopback: the documented requests and responses, and whole searches on them.

The texts of the responses are those of the servers' documentation, or follow its classes where it shows none.
"""

import asyncio
import hashlib
import json
import math
import re

import msgspec
import pytest
from aiohttp import web
from support import TASK, Scripted, answer_to, wait
from support.endpoint import CallObserver
from support.providers import Said

import tot_lab as tl
from tot_lab.core.calls import Call, Message
from tot_lab.models import batching
from tot_lab.models.keys import request_of
from tot_lab.models.openai_compatible import VLLM, LlamaCpp
from tot_lab.models.reward_servers import (
    TEIPredict,
    TEIRerank,
    VLLMClassify,
    VLLMLikelihood,
    VLLMPooling,
    VLLMScore,
)
from tot_lab.models.stack import Failure

KEY = "sk-MARKED-0123456789abcdef"
KINDS = (VLLMPooling, VLLMClassify, VLLMScore, TEIRerank, TEIPredict)
PATHS = {VLLMPooling: "/pooling", VLLMClassify: "/classify", VLLMScore: "/score", TEIRerank: "/rerank"}
PATHS |= {VLLMLikelihood: "/v1/completions", TEIPredict: "/predict"}
STEPS = ("4 * 6 = 24", "24 + 0 = 24", "The answer is 24.")
STOP = tl.Stop(solved=None, depth=2)

# docs/models/pooling_models/classify.md, second example.
CLASSIFIED = """{
  "id": "classify-9bf17f2847b046c7b2d5495f4b4f9682",
  "object": "list",
  "created": 1745383213,
  "model": "jason9693/Qwen2.5-1.5B-apeach",
  "data": [
    {
      "index": 0,
      "label": "Default",
      "probs": [
        0.565970778465271,
        0.4340292513370514
      ],
      "num_classes": 2
    }
  ],
  "usage": {
    "prompt_tokens": 10,
    "total_tokens": 10,
    "completion_tokens": 0,
    "prompt_tokens_details": null
  }
}"""

# docs/models/pooling_models/scoring.md, "Single inference".
SCORED = """{
  "id": "score-request-id",
  "object": "list",
  "created": 693447,
  "model": "BAAI/bge-reranker-v2-m3",
  "data": [
    {
      "index": 0,
      "object": "score",
      "score": 1
    }
  ],
  "usage": {}
}"""

# docs/openapi.json of text-embeddings-inference: the examples of `Rank`.
RANKED = '[{"index": 0, "score": 1.0}]'
# Likewise of `Prediction`, for two classes.
PREDICTED = '[{"label": "admiration", "score": 0.5}, {"label": "LABEL_0", "score": 0.5}]'


def pooled(rows, **more):
    """A response of the class `PoolingResponse`."""
    page = {
        "id": "pool-7c87cac407b749a6935d8c7ce2a8fba2",
        "object": "list",
        "created": 1745383065,
        "model": "Qwen/Qwen2.5-Math-PRM-7B",
        "data": [{"index": 0, "object": "pooling", "data": rows}],
        "usage": {
            "prompt_tokens": 41,
            "total_tokens": 41,
            "completion_tokens": 0,
            "prompt_tokens_details": None,
        },
    }
    return json.dumps({**page, **more})


def reward_call(*steps, instruction="Judge it.", **more):
    after = (Message("user", instruction),) if instruction else ()
    said = (Message("user", "Use 4, 6."), Message("assistant", "\n\n".join(steps or STEPS)), *after)
    return Call("0.0", "reward", said, **more)


@pytest.fixture
def server(shared, monkeypatch):
    for name in ("VLLM_API_KEY", "TEI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    shared.forget()
    return shared


@pytest.fixture
def patient(monkeypatch):
    """Calls wait longer for similar ones, so that a stall of the machine separates none."""
    monkeypatch.setattr(batching, "GATHERING", 0.25)


def served(server, kind, **more):
    return kind(**{"model": "prm", "base_url": server.base("openai"), **more})


def says(server, kind, body, status=200, **headers):
    """Let the server answer requests to the API of `kind` with exactly these bytes."""
    server.pages[PATHS[kind]] = lambda asked: web.Response(
        body=body.encode(), status=status, content_type="application/json", headers=headers
    )


def asked_at_once(model, *calls):
    """The replies of a lab to calls at the same time."""
    lab = tl.Lab(model, runs=None, mode="off")

    async def go():
        return await asyncio.gather(*(lab.gateway.ask(call, CallObserver()) for call in calls))

    return wait(go())


def replied(model, *calls):
    return list(wait(model.answer(calls or (reward_call(),), CallObserver())))


# The documented formats.


def test_step_rewards_of_pooling(server):
    rows = [[0.25, 0.75], [0.5, 0.5], [0.99, 0.01]]
    says(server, VLLMPooling, pooled(rows))
    (reply,) = replied(served(server, VLLMPooling, model="Qwen/Qwen2.5-Math-PRM-7B"))
    assert server.asked[-1].json == {
        "model": "Qwen/Qwen2.5-Math-PRM-7B",
        "messages": [
            {"role": "user", "content": "Use 4, 6."},
            {"role": "assistant", "content": "<extra_0>".join(STEPS) + "<extra_0>"},
        ],
    }
    assert (server.asked[-1].path, server.asked[-1].method) == ("/pooling", "POST")
    assert json.loads(reply.text) == {"scores": [0.75, 0.5, 0.01], "raw": rows}
    assert (reply.input_tokens, reply.output_tokens, reply.model) == (41, 0, "Qwen/Qwen2.5-Math-PRM-7B")


def test_the_class_that_means_correct_can_be_the_first(server):
    """Math-Shepherd: `returned_token_ids` are those of the good and of the bad token."""
    says(server, VLLMPooling, pooled([[0.9, 0.1], [0.3, 0.7]]))
    (reply,) = replied(served(server, VLLMPooling, separator=" ки\n", correct=0), reward_call("a", "b"))
    assert server.asked[-1].json["messages"][-1]["content"] == "a ки\nb ки\n"
    assert json.loads(reply.text)["scores"] == [0.9, 0.3]


@pytest.mark.parametrize("rows", [[[0.1], [0.2], [0.625]], [0.625], [[0.625]]])
def test_an_outcome_reward_of_pooling_is_that_of_the_last_token(server, rows):
    says(server, VLLMPooling, pooled(rows))
    (reply,) = replied(served(server, VLLMPooling, separator=None))
    assert server.asked[-1].json["messages"][-1]["content"] == "\n\n".join(STEPS)
    assert reply.text == "0.625"


@pytest.mark.parametrize(("correct", "score"), [(-1, 0.4340292513370514), (0, 0.565970778465271)])
def test_the_documented_response_of_classify(server, correct, score):
    says(server, VLLMClassify, CLASSIFIED)
    (reply,) = replied(served(server, VLLMClassify, correct=correct))
    assert server.asked[-1].json == {
        "model": "prm",
        "messages": [
            {"role": "user", "content": "Use 4, 6."},
            {"role": "assistant", "content": "\n\n".join(STEPS)},
        ],
    }
    assert json.loads(reply.text) == {"score": score, "raw": [0.565970778465271, 0.4340292513370514]}
    assert (reply.input_tokens, reply.model) == (10, "jason9693/Qwen2.5-1.5B-apeach")


def test_the_documented_response_of_score(server):
    says(server, VLLMScore, SCORED)
    (reply,) = replied(served(server, VLLMScore))
    assert server.asked[-1].json == {"model": "prm", "text_1": "Use 4, 6.", "text_2": ["\n\n".join(STEPS)]}
    assert (reply.text, reply.input_tokens, reply.cost) == ("1.0", None, None)  # its usage is empty


def test_the_documented_response_of_rerank(server):
    says(server, TEIRerank, RANKED, **{"x-compute-tokens": "31"})
    (reply,) = replied(served(server, TEIRerank, base_url=server.url, price=(2.0, 0.0)))
    body = server.asked[-1].json
    assert body == {"query": "Use 4, 6.", "texts": ["\n\n".join(STEPS)], "truncate": False}
    assert (reply.text, reply.input_tokens, reply.model) == ("1.0", 31, "prm")
    assert reply.cost == pytest.approx(31 * 2.0 / 1e6)


def test_the_documented_response_of_predict(server):
    """The classes come in the order of their probabilities, so that a label names the one that counts."""
    page = [{"label": label, "score": score} for label, score in (("good", 0.7), ("bad", 0.2), ("a", 0.1))]
    for order in (page, page[::-1]):
        says(server, TEIPredict, json.dumps(order), **{"x-compute-tokens": "31"})
        (reply,) = replied(served(server, TEIPredict, base_url=server.url, correct="bad"))
        assert json.loads(reply.text) == {"score": 0.2, "raw": [0.1, 0.7, 0.2]}
        assert (reply.input_tokens, reply.model) == (31, "prm")
    body = server.asked[-1].json
    assert body == {"inputs": ["Use 4, 6.", "\n\n".join(STEPS)], "truncate": False}  # a pair of strings
    says(server, TEIPredict, '[{"label": "admiration", "score": 0.5}]')
    assert replied(served(server, TEIPredict))[0].text == "0.5"
    says(server, TEIPredict, PREDICTED)
    for correct in (None, "LABEL_1"):
        with pytest.raises(
            Failure, match=r"`correct` must name one of the server's classes \['LABEL_0', 'admiration'\]"
        ):
            replied(served(server, TEIPredict, correct=correct))


def test_the_solution_is_the_last_message_of_the_assistant(server):
    said = (Message("user", "Hi."), Message("assistant", "Hello."), Message("user", "2 + 2?"))
    says(server, VLLMScore, SCORED)
    replied(served(server, VLLMScore), Call("0.0", "reward", (*said, Message("assistant", "4"))))
    body = server.asked[-1].json
    assert (body["text_1"], body["text_2"]) == ("Hi.\n\nHello.\n\n2 + 2?", ["4"])


def test_the_conversation_before_the_solution_is_sent_whole(server):
    messages = (Message("system", "Be exact."), Message("user", "Use 4, 6."), Message("assistant", "4"))
    says(server, VLLMScore, SCORED)
    replied(served(server, VLLMScore), Call("0.0", "reward", messages))
    assert server.asked[-1].json["text_1"] == "Be exact.\n\nUse 4, 6."
    says(server, VLLMClassify, CLASSIFIED)
    replied(served(server, VLLMClassify), Call("0.0", "reward", messages))
    assert [turn["role"] for turn in server.asked[-1].json["messages"]] == ["system", "user", "assistant"]


@pytest.mark.parametrize("number", [1e-7, 0.1 + 0.2, 5e-324, 0.0, 1.0])
def test_a_reward_is_read_as_it_was_sent(server, number):
    """Also one that JSON writes with an exponent."""
    from tot_lab.strategies.search.reward_model import read_rewards

    says(server, VLLMScore, SCORED.replace('"score": 1\n', f'"score": {number!r}\n'))
    assert read_rewards(replied(served(server, VLLMScore))[0].text, 3) == (number,)
    says(
        server,
        VLLMClassify,
        CLASSIFIED.replace("0.565970778465271", repr(1 - number)).replace("0.4340292513370514", repr(number)),
    )
    assert read_rewards(replied(served(server, VLLMClassify))[0].text, 3) == (number,)
    says(server, VLLMPooling, pooled([[1 - number, number]] * 3))
    assert read_rewards(replied(served(server, VLLMPooling))[0].text, 3) == (number,) * 3


def test_samples_of_a_reward_are_one_request(server):
    says(server, VLLMPooling, pooled([[0.25, 0.75]] * 3))
    calls = [reward_call(sample_index=k) for k in range(3)]
    replies = replied(served(server, VLLMPooling), *calls)
    assert len({reply.text for reply in replies}) == 1
    assert (len(replies), len(server.asked), {reply.input_tokens for reply in replies}) == (3, 1, {41})


@pytest.mark.parametrize("kind", [VLLMScore, TEIRerank, VLLMLikelihood])
def test_each_solution_of_a_list_gets_its_own_reward_and_share_of_the_tokens(server, kind):
    server.pages |= PAGES | {"/v1/completions": completions_page}
    calls = [reward_call(step) for step in ("7", "a much longer solution than that", "24", "42")]
    replies = replied(served(server, kind), *calls)
    assert len(server.asked) == 1
    server.asked.clear()
    alone = [replied(served(server, kind), call)[0] for call in calls]
    assert len(server.asked) == 4
    assert [reply.text for reply in replies] == [reply.text for reply in alone]
    assert len({reply.text for reply in replies}) == 4


def test_the_tokens_of_a_list_are_divided_by_the_sizes_of_the_prompts(server):
    server.pages |= PAGES
    page = score_page
    server.pages["/score"] = lambda asked: page(asked) | {"usage": {"prompt_tokens": 100}}
    short, long = reward_call("1", instruction=""), reward_call("1" * 181, instruction="")
    few, many = replied(served(server, VLLMScore), short, long)
    assert few.input_tokens + many.input_tokens == 100
    sizes = [len(call.prompt) for call in (short, long)]
    assert many.input_tokens == 100 * sizes[1] // sum(sizes)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [VLLMScore, TEIRerank, VLLMLikelihood])
@pytest.mark.parametrize(
    "said", [400, 413, 422, {}, {"error": {"message": "maximum context length"}}], ids=str
)
def test_one_bad_solution_of_a_list_spoils_no_other(server, kind, said, patient):
    """The server refuses the whole list, or its response cannot be read. Each is then requested alone."""
    pages = PAGES | {"/v1/completions": completions_page}
    page = pages[PATHS[kind]]

    def strict(asked):
        if "bad" not in json.dumps(asked.json):
            return page(asked)
        return said if isinstance(said, dict) else web.Response(status=said, text="no")

    server.pages[PATHS[kind]] = strict
    calls = [reward_call(step) for step in ("one", "bad", "three")]
    one, bad, three = asked_at_once(served(server, kind), *calls)
    assert bad.error is not None
    assert one.error is three.error is None
    assert [one.text, three.text] == [replied(served(server, kind), calls[k])[0].text for k in (0, 2)]
    assert len([asked for asked in server.asked if asked.method == "POST"]) == 1 + 3 + 2


@pytest.mark.slow
def test_a_list_has_at_most_32_solutions(server, patient):
    server.pages |= PAGES
    model = served(server, TEIRerank, base_url=server.url)
    replies = asked_at_once(model, *(reward_call(f"step {k}") for k in range(70)))
    assert [reply.text for reply in replies] == [str(of_step(f"step {k}")) for k in range(70)]
    assert sorted(len(asked.json["texts"]) for asked in requests_to(server)) == [6, 32, 32]


@pytest.mark.slow
def test_a_busy_server_is_asked_for_the_whole_list_again(server, patient):
    busy = [True]

    def page(asked):
        return web.Response(status=429, headers={"Retry-After": "0"}) if busy.pop() else score_page(asked)

    busy[:] = [False, True]
    server.pages["/score"] = page
    replies = asked_at_once(served(server, VLLMScore), reward_call("one"), reward_call("two"))
    assert [reply.text for reply in replies] == [str(of_step("one")), str(of_step("two"))]
    assert [len(asked.json["text_2"]) for asked in requests_to(server)] == [2, 2]


def test_solutions_of_another_question_or_with_other_options_are_another_request(server):
    model = served(server, VLLMScore)
    key = model.list_key(reward_call("one"))
    assert key == model.list_key(reward_call("two", instruction="Another."))
    assert key != model.list_key(reward_call("one", options={"truncate_prompt_tokens": 9}))
    other = Call("0.0", "reward", (Message("user", "Another."), Message("assistant", "one")))
    assert key != model.list_key(other)
    assert served(server, VLLMLikelihood).list_key(other) is not None
    assert model.list_key(Call("0.0", "reward", (Message("user", "no solution"),))) is None


# The likelihood of given texts.


def completed(tokens, logprobs=None, **more):
    """A response of the class `CompletionResponse` for an echoed prompt: the first token has no logprob."""
    logprobs = [None, *[-0.5] * (len(tokens) - 1)] if logprobs is None else logprobs
    reported = {"text_offset": [], "token_logprobs": logprobs, "tokens": tokens, "top_logprobs": None}
    choice = {"index": 0, "text": "".join(tokens), "logprobs": reported, "finish_reason": "length"}
    usage = {"prompt_tokens": len(tokens), "total_tokens": len(tokens), "completion_tokens": 0}
    return json.dumps({"id": "cmpl-1", "model": "base", "choices": [{**choice, **more}], "usage": usage})


def test_the_likelihood_of_each_step_is_that_of_the_tokens_that_begin_in_it(server):
    tokens = ["<s>", "Use 4", ", 6.", "\n\n", "4 *", " 6", ".\n\n", "So ", "24"]
    says(server, VLLMLikelihood, completed(tokens, [None, -9, -9, -9, -0.1, -0.2, -0.6, -1.0, -2.0]))
    (reply,) = replied(served(server, VLLMLikelihood), reward_call("4 * 6.", "So 24"))
    assert server.asked[-1].json == {
        "model": "prm",
        "prompt": ["Use 4, 6.\n\n4 * 6.\n\nSo 24"],
        "echo": True,
        "max_tokens": 0,
        "logprobs": 0,
    }
    assert json.loads(reply.text) == pytest.approx([math.exp(-0.3), math.exp(-1.5)])
    assert (reply.input_tokens, reply.output_tokens) == (9, 0)


def test_a_separator_and_the_question_do_not_count(server):
    says(server, VLLMLikelihood, completed(["Use 4, 6.", "\n\n", "a", "\n\n", "b"], [None, -9, -1, -9, -2]))
    (reply,) = replied(served(server, VLLMLikelihood), reward_call("a", "b"))
    assert json.loads(reply.text) == pytest.approx([math.exp(-1), math.exp(-2)])


@pytest.mark.parametrize(
    "body",
    [
        completed(["a\n\n", "b"], logprobs=[-1]),
        completed(["a\n\n", "c"]),
        completed(["a", "\n\n", "\ufffd", "\ufffd"]),
        completed(["a", "\n\nb"], [-1, -1]),  # no token begins in the second step
        completed(["a", "\n\n", "b"], [None, -1, -1]),
        completed(["a", "\n\n", "b"], [-1, -1, float("nan")]),
        completed(["a", "\n\n", "b"], [-1, -1, 0.7]),
        completed(["", "a", "\n\n", "b"], [-3, 0.7, -1, -1]),
        completed(["a", "\n\n", "b"], [-1, -1, "-1"]),
        completed(["a", "\n\n", "b"], logprobs={}),
        completed(["a", "\n\n", "b"], index=1),
        json.dumps({"choices": [{"index": 0, "text": "a\n\nb", "logprobs": None}]}),
        '{"choices": []}',
        "[]",
    ],
)
def test_tokens_that_do_not_fit_are_an_error(server, body):
    says(server, VLLMLikelihood, body)
    with pytest.raises(Failure, match="answer cannot be read") as caught:
        replied(served(server, VLLMLikelihood), reward_call("a", "b"))
    assert caught.value.unreadable


# What is no reward.


def entry(**more):
    return json.dumps({"data": [{"index": 0, **more}]})


BAD = {
    VLLMPooling: [
        pooled([[0.5, 0.5]] * 2),
        pooled([[0.5, 0.5]] * 4),
        pooled([]),
        pooled([[0.5, 0.5], [0.5, 0.5], []]),
        pooled([[0.5, 0.5], [0.5, 0.5], [float("nan"), 0.5]]),
        pooled([[0.5, 0.5], [0.5, 0.5], [None, 1.0]]),
        pooled([[0.5, 0.5], [0.5, 0.5], ["0.5", "0.5"]]),
        pooled([[0.5, 0.5], [0.5, 0.5], [True, False]]),
        pooled([[0.5, 0.5], [0.5, 0.5], [1.0]]),
        pooled([[0.5, 0.5], [0.5, 0.5], [[0.5, 0.5]]]),
        pooled([[0.2, 0.9]] * 3),  # logits: probabilities add up to 1
        pooled([[-2.3, 1.7]] * 3),
        pooled("AAAAPw=="),
        pooled(0.5),
        pooled([[0.5, 0.5]] * 3, data=[]),
        pooled([[0.5, 0.5]] * 3, data=[{"index": 0}]),
        pooled([[0.5, 0.5]] * 3, data=[{"index": 1, "data": [[0.5, 0.5]] * 3}]),
        pooled([[0.5, 0.5]] * 3, data=[{"index": 0, "data": [[0.5, 0.5]] * 3}] * 2),
    ],
    VLLMClassify: [
        entry(label="LABEL_0", num_classes=2),
        entry(probs=[]),
        entry(probs=None),
        entry(probs=[float("nan"), 1.0]),
        entry(probs=[0.9, 0.9]),
        entry(probs=[1.5]),
        entry(probs=[float("inf")]),
        entry(probs={"good": 0.5}),
        entry(probs=[0.001] * 3584),  # an embedding
    ],
    VLLMScore: [
        entry(),
        entry(score=None),
        entry(score=float("nan")),
        entry(score=-0.1),
        entry(score=[0.5, 0.5]),
    ],
    TEIRerank: [
        "[]",
        '[{"index": 0}]',
        '[{"score": 0.5}]',
        '[{"index": 0, "score": null}]',
        '[{"index": 0, "score": -5.2}]',
        '[{"index": 1, "score": 0.5}]',
        '[{"index": 0, "score": 0.5}, {"index": 1, "score": 0.5}]',
        '{"index": 0, "score": 0.5}',
    ],
    TEIPredict: [
        PREDICTED,
        '[{"label": "a"}]',
        '[{"score": 0.5}]',
        '[{"label": "a", "score": null}]',
        '[{"label": "a", "score": -5.2}]',
        '[{"label": "a", "score": 0.5}, {"label": "a", "score": 0.5}]',
        '{"label": "a", "score": 0.5}',
        '[[{"label": "a", "score": 0.5}]]',  # of a batch
    ],
}
for bodies in BAD.values():
    bodies += [
        "",
        "{}",
        "[]",
        "null",
        "0.5",
        '"0.5"',
        "<html>",
        '{"data": 0.5}',
        '{"data": [0.5]}',
        "[[0.5]]",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_anything_else_is_an_error_and_no_reward(server, kind):
    for body in BAD[kind]:
        says(server, kind, body)
        with pytest.raises(Failure, match="answer cannot be read") as caught:
            replied(served(server, kind))
        assert caught.value.unreadable, body


def test_an_error_says_what_was_expected(server):
    for kind, body, message in (
        (VLLMPooling, pooled([[0.5, 0.5]] * 57), "expected 3 rewards, one for each step: got 57"),
        (VLLMScore, entry(score=-0.5), "expected numbers from 0 to 1: got [-0.5]"),
        (VLLMClassify, entry(probs=[0.9, 0.9]), "expected probabilities that add up to 1: got [0.9, 0.9]"),
        (VLLMClassify, entry(label="x"), "expected an entry with index 0 and probs: got"),
        (TEIRerank, "[]", "expected one entry: got 0 entries"),
    ):
        says(server, kind, body)
        with pytest.raises(Failure, match=re.escape(message)) as caught:
            replied(served(server, kind))
        assert not caught.value.retry
    says(server, VLLMClassify, CLASSIFIED)
    with pytest.raises(Failure, match="there is no class 2"):
        replied(served(server, VLLMClassify, correct=2))


ERRORS = [  # status, body, message, whether it is repeated
    (
        VLLMPooling,
        400,
        '{"error": {"message": "This model\'s maximum context length is 4096 tokens.", '
        '"type": "BadRequestError", "param": null, "code": 400}}',
        "maximum context length",
        False,
    ),
    (
        VLLMClassify,
        404,
        '{"error": {"message": "The model `prm` does not exist.", "type": "NotFoundError", "param": "model", '
        '"code": 404}}',
        "does not exist",
        False,
    ),
    (VLLMScore, 503, "", "HTTP 503", True),
    (TEIRerank, 413, '{"error": "Batch size error", "error_type": "validation"}', "Batch size error", False),
    (
        TEIRerank,
        422,
        '{"error": "Tokenization error", "error_type": "tokenizer"}',
        "Tokenization error",
        False,
    ),
    (TEIRerank, 424, '{"error": "Inference failed", "error_type": "backend"}', "Inference failed", False),
    (TEIRerank, 429, '{"error": "Model is overloaded", "error_type": "overloaded"}', "overloaded", True),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "status", "body", "message", "retry"), ERRORS)
def test_errors_are_those_of_the_server(server, kind, status, body, message, retry):
    says(server, kind, body, status)
    with pytest.raises(Failure, match=message) as caught:
        replied(served(server, kind))
    assert (caught.value.status, caught.value.retry) == (status, retry)


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_without_a_solution_is_an_error(server, kind):
    with pytest.raises(Failure, match="must have a solution"):
        replied(served(server, kind), Call("0", "sample", (Message("user", "2 + 2?"),)))
    assert server.asked == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_reward_model_cannot_be_checked_by_prompts(server, kind):
    with pytest.raises(TypeError, match="answers prompts"):
        wait(tl.Lab(served(server, kind)).check())


# Options, keys, identity, names.


def test_options_are_further_fields_and_replace_none(server):
    says(server, VLLMPooling, pooled([[0.25, 0.75]] * 3))
    asked = reward_call(options={"use_activation": True}, temperature=0.7, max_tokens=9, seed=1, stop=("x",))
    replied(served(server, VLLMPooling), asked)
    assert server.asked[-1].json.keys() == {"model", "messages", "use_activation"}
    for kind, name in (
        (VLLMPooling, "messages"),
        (VLLMScore, "text_2"),
        (TEIRerank, "texts"),
        (VLLMClassify, "model"),
    ):
        with pytest.raises(Failure, match=f"got '{name}'"):
            replied(served(server, kind), reward_call(options={name: "x"}))
    assert len(server.asked) == 1


def test_a_key_is_sent_and_in_nothing_that_is_shown(server, monkeypatch):
    monkeypatch.setenv("VLLM_API_KEY", "of-vllm-0123456789")
    monkeypatch.setenv("TEI_API_KEY", "of-tei-0123456789")
    for kind, body in ((VLLMScore, SCORED), (TEIRerank, RANKED)):
        says(server, kind, body)
        model = served(server, kind, api_key=KEY)
        replied(model)
        assert server.asked[-1].key == KEY
        assert KEY not in repr((model, model.settings(), model.identity()))
        replied(served(server, kind))
        assert server.asked[-1].key == ("of-tei-0123456789" if kind is TEIRerank else "of-vllm-0123456789")
        says(server, kind, json.dumps({"error": f"the key {KEY} is wrong"}), 401)
        with pytest.raises(Failure) as failed:
            replied(model)
        assert KEY not in failed.value.message


def test_what_changes_a_reward_is_in_the_cache_key_and_the_host_is_not(server):
    def key(kind, **more):
        return request_of(reward_call(), served(server, kind, **more).identity()).key

    for kind in KINDS:
        assert key(kind) == key(kind, base_url="http://node17:9000", api_key=KEY, concurrency=2)
        assert len({key(kind), key(kind, model="other"), key(kind, revision="4f2a")}) == 3
    assert len({key(kind) for kind in KINDS}) == 5
    assert key(TEIPredict) != key(TEIPredict, correct="a")
    changed = [key(VLLMPooling, **more) for more in ({}, {"separator": None}, {"correct": 0})]
    assert len({*changed}) == 3


def test_names_stand_for_servers():
    for kind in KINDS:
        model = tl.Lab(f"{kind.kind}/Qwen/Qwen2.5-Math-PRM-7B").model
        assert type(model) is kind
        assert model.model == "Qwen/Qwen2.5-Math-PRM-7B"
    settings = tl.Settings(
        models={"prm": {"provider": "vllm_pooling", "model": "m", "base_url": "http://gpu:1/v1"}}
    )
    assert settings.models["prm"].endpoint() == VLLMPooling(model="m", base_url="http://gpu:1/v1")


def test_a_missing_server_or_another_model_is_found_before_the_first_call(server):
    assert "No server answers" in wait(served(server, TEIRerank, base_url="http://127.0.0.1:9").problem())
    server.pages["/info"] = {
        "model_id": "BAAI/bge-reranker-base",
        "served_model_name": "base",
        "model_sha": None,
    }
    at = server.url
    model = served(server, TEIRerank, base_url=at)
    assert wait(model.problem()) == f"The server at {at} has no model prm: got BAAI/bge-reranker-base"
    for name in ("BAAI/bge-reranker-base", "base"):
        assert wait(model.model_copy(update={"model": name}).problem()) is None
    server.pages["/v1/models"] = {"data": [{"id": "qwen"}]}
    assert "has no model prm" in wait(served(server, VLLMPooling).problem())
    server.pages.clear()
    assert wait(model.problem()) is None  # a proxy may not offer /info


# Whole searches.


def of_step(step):
    """The reward that the servers of these tests give a step: 0.0 to 0.99, by its text."""
    return int.from_bytes(hashlib.sha256(step.encode()).digest()[:2]) % 100 / 100


def pooling_page(asked):
    """vLLM with pooling type STEP: a pair of probabilities at each separator of the conversation."""
    *steps, rest = asked.json["messages"][-1]["content"].split("<extra_0>")
    assert rest == ""
    return json.loads(pooled([[1 - of_step(step), of_step(step)] for step in steps]))


def classify_page(asked):
    reward = of_step(asked.json["messages"][-1]["content"])
    return {
        **json.loads(CLASSIFIED),
        "data": [{"index": 0, "label": "1", "probs": [1 - reward, reward], "num_classes": 2}],
    }


def score_page(asked):
    scores = [of_step(text) for text in asked.json["text_2"]]
    data = [{"index": k, "object": "score", "score": score} for k, score in enumerate(scores)]
    return {**json.loads(SCORED), "data": data}


def rerank_page(asked):
    """text-embeddings-inference sorts by score, best first."""
    ranks = [{"index": k, "score": of_step(text)} for k, text in enumerate(asked.json["texts"])]
    return sorted(ranks, key=lambda rank: -rank["score"])


def predict_page(asked):
    return [{"label": "good", "score": of_step(asked.json["inputs"][1])}]


def completions_page(asked):
    """A language model whose tokens are words; the log-probability of each follows from its text."""
    choices = []
    for k, prompt in enumerate(asked.json["prompt"]):
        tokens = re.findall(r"\n\n|[ \n]?[^ \n]+", prompt)
        assert "".join(tokens) == prompt
        page = json.loads(completed(tokens, [None, *(-of_step(token) for token in tokens[1:])]))
        choices += [{**page["choices"][0], "index": k}]
    return {**page, "choices": choices}


PAGES = {"/pooling": pooling_page, "/classify": classify_page, "/score": score_page, "/rerank": rerank_page}
PAGES["/predict"] = predict_page


LISTS = (VLLMScore, TEIRerank, VLLMLikelihood)
"""The APIs that take several solutions."""


class Steps(tl.Part):
    """A model whose samples are all different."""

    kind = "tests/steps"
    form: str = "step {node} {sample}"

    async def __call__(self, call):
        return self.form.format(node=call.node, sample=call.sample_index)


def searched(model, cache=None, form="step {node} {sample}", **more):
    evaluate = tl.evaluators.RewardModel(model=model, **more)
    strategy = tl.TreeOfThoughts(
        propose=tl.Sample(count=3), evaluate=evaluate, search=tl.BeamSearch(width=2), stop=STOP
    )
    lab = tl.Lab(Steps(form=form), runs=None, cache=cache)
    return wait(lab.run(strategy, TASK))


def requests_to(server):
    return [asked for asked in server.asked if asked.path in PAGES]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_search_scores_by_the_server_and_is_replayed_without_it(server, tmp_path, kind, patient):
    server.pages |= PAGES
    run = searched(served(server, kind), tmp_path)
    nodes = [node for node in run.tree if node.depth]
    assert {node.depth for node in nodes} == {1, 2}
    for node in nodes:
        path = [step.text for step in run.tree.path(node.id)[1:]]
        per_step = tuple(map(of_step, path))
        expected = per_step if kind is VLLMPooling else (of_step("\n\n".join(path)),)
        assert node.samples == expected
        assert node.score == expected[-1]
    assert len(nodes) == 3 + 2 * 3
    assert len(requests_to(server)) == (2 if kind in LISTS else 9)  # one for each level of the search
    assert "Judge the solution" not in json.dumps([asked.json for asked in requests_to(server)])
    assert wait(run.replay()).identical
    server.forget()
    again = searched(served(server, kind, base_url="http://127.0.0.1:9"), tmp_path)
    # A call names its model by its settings, which include the URL.
    assert [event for event in again.events if not isinstance(event, Call)] == [
        event for event in run.events if not isinstance(event, Call)
    ]
    assert server.asked == []


@pytest.mark.slow
def test_a_search_scores_by_the_likelihood_of_given_thoughts(server, tmp_path):
    server.pages["/v1/completions"] = completions_page
    run = searched(served(server, VLLMLikelihood), tmp_path)
    for node in run.tree:
        if node.depth:
            words = re.findall(" ?[^ ]+", node.text)
            expected = math.exp(-sum(map(of_step, words)) / len(words))
            assert node.score == pytest.approx(expected, rel=1e-12)
            assert len(node.samples) == node.depth
    assert len(run.tree) == 1 + 9
    server.forget()
    again = searched(served(server, VLLMLikelihood, base_url="http://127.0.0.1:9"), tmp_path)
    assert [node.score for node in again.tree] == [node.score for node in run.tree]
    assert server.asked == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_gives_no_reward_gives_no_score(server, kind):
    for body in (BAD[kind][0], "{}"):
        says(server, kind, body)
        run = searched(served(server, kind, retries=0))
        assert [node.score for node in run.tree if node.depth] == [None] * 3
        assert {node.state for node in run.tree if node.depth} == {"failed"}


@pytest.mark.slow
def test_a_busy_server_is_asked_again(server, monkeypatch, patient):
    busy = iter([429, 503, *[200] * 100])

    def page(asked):
        status = next(busy)
        if status == 200:
            return rerank_page(asked)
        return web.json_response(
            {"error": "Model is overloaded", "error_type": "overloaded"},
            status=status,
            headers={"Retry-After": "0"},
        )

    server.pages["/rerank"] = page
    run = searched(served(server, TEIRerank, base_url=server.url))
    assert all(node.score is not None for node in run.tree if node.depth)
    assert len(requests_to(server)) == 2 + 2


@pytest.mark.slow
def test_rewards_are_in_the_budget_of_a_run_and_cost_what_the_server_counts(server):
    server.pages |= PAGES
    model = served(server, VLLMPooling, price=(1.0, 0.0))
    run = searched(model)
    replies = [event for event in run.events if isinstance(event, tl.Reply) and event.input_tokens == 41]
    assert len(replies) == 9
    assert sum(reply.cost for reply in replies) == pytest.approx(9 * 41 / 1e6)
    strategy = tl.TreeOfThoughts(evaluate=tl.evaluators.RewardModel(model=model), stop=STOP)
    capped = wait(tl.Lab(Scripted(), runs=None).run(strategy, TASK, budget=tl.Budget(calls=4)))
    assert (capped.usage.calls, capped.stop_reason) == (4, "budget:calls")


@pytest.mark.parametrize(("split", "steps"), [({}, 4), ({"split": None}, 2)], ids=["paragraphs", "thoughts"])
def test_a_thought_with_a_blank_line_is_two_steps_or_one(server, split, steps):
    server.pages |= PAGES
    run = searched(served(server, VLLMPooling), form="a {node}\n\n \nb {sample}\n", **split)
    nodes = [node for node in run.tree if node.depth == 2]
    assert nodes
    assert all(len(node.samples) == steps and node.score is not None for node in nodes)
    for asked in requests_to(server):
        assert "\n\n" not in asked.json["messages"][-1]["content"]


def test_a_step_that_holds_a_separator_gets_no_reward(server):
    server.pages |= PAGES
    run = searched(served(server, VLLMPooling), form="{sample} right<extra_0>so right")
    assert [node.score for node in run.tree if node.depth] == [None] * 3


# The verifier that says yes or no.


def test_llama_cpp_is_a_verifier_by_the_probability_of_yes(server):
    server.will(*[Said("yes", logprobs=(("yes", -0.5, {"yes": -0.5, " no": -1.5, "so": -3.0}),))] * 9)
    judge = LlamaCpp(model="verifier", base_url=server.base("openai"))
    strategy = tl.TreeOfThoughts(
        evaluate="logprob", propose=tl.Sample(count=3), stop=tl.Stop(solved=None, depth=1)
    )
    lab = tl.Lab(Scripted(answer_to), roles={"evaluate": judge}, runs=None)
    run = wait(lab.run(strategy, TASK))
    assert {asked.json["max_tokens"] for asked in server.calls} == {1}
    assert {asked.json["logprobs"] for asked in server.calls} == {True}
    scores = {node.score for node in run.tree if node.depth}
    assert scores == {math.exp(-0.5) / (math.exp(-0.5) + math.exp(-1.5))}


def judged_page(asked):
    """A language model that says yes to each prompt with a probability of its own, in another order."""
    prompts = asked.json["prompt"]
    prompts = [prompts] if isinstance(prompts, str) else prompts
    choices = []
    for k, prompt in enumerate(prompts):
        chance = math.log(0.1 + 0.8 * of_step(prompt))
        logprobs = {
            "tokens": ["yes"],
            "token_logprobs": [chance],
            "top_logprobs": [{"yes": chance, "no": -1.0}],
        }
        choices.append({"index": k, "text": "yes", "finish_reason": "length", "logprobs": logprobs})
    usage = {"prompt_tokens": 9 * len(prompts), "completion_tokens": len(prompts)}
    return {"object": "text_completion", "model": "judge", "choices": choices[::-1], "usage": usage}


def judged(server, **more):
    judge = VLLM(**{"model": "judge", "base_url": server.base("openai"), "chat": False, **more})
    strategy = tl.TreeOfThoughts(
        evaluate="logprob", propose=tl.Sample(count=3), search=tl.BeamSearch(width=2), stop=STOP
    )
    run = wait(tl.Lab(Steps(), roles={"evaluate": judge}, runs=None).run(strategy, TASK))
    return [node.score for node in run.tree if node.depth]


@pytest.mark.slow
def test_judgements_by_the_first_token_are_one_request_for_each_level(server, patient):
    server.pages["/v1/completions"] = judged_page
    scores = judged(server)
    prompts = [asked.json["prompt"] for asked in server.asked if asked.path == "/v1/completions"]
    assert [len(some) for some in prompts] == [3, 6]
    assert all(asked.json["max_tokens"] == 1 for asked in server.asked if asked.path == "/v1/completions")
    chances = [0.1 + 0.8 * of_step(prompt) for some in prompts for prompt in some]
    assert scores == pytest.approx([chance / (chance + math.exp(-1)) for chance in chances])


@pytest.mark.slow
def test_a_server_that_reads_only_the_first_of_a_list_is_asked_one_by_one(server):
    def first_only(asked):
        page = judged_page(asked)
        return {**page, "choices": [choice for choice in page["choices"] if choice["index"] == 0]}

    server.pages["/v1/completions"] = judged_page
    expected = judged(server)
    server.pages["/v1/completions"] = first_only
    assert judged(server, model="another") == expected


def test_longer_replies_are_not_requested_as_a_list(server):
    short = Call("0", "value", (Message("user", "Good?"),), max_tokens=1, logprobs=5)
    judge = VLLM(model="judge", base_url=server.base("openai"), chat=False)
    assert judge.list_key(short) is not None
    for more in ({"max_tokens": 2}, {"max_tokens": None}):
        assert judge.list_key(msgspec.structs.replace(short, **more)) is None
    assert judge.list_key(short) != judge.list_key(msgspec.structs.replace(short, temperature=0.5))
    assert judge.list_key(short) != judge.list_key(msgspec.structs.replace(short, seed=1))
    assert VLLM(model="judge").list_key(short) is None
    assert LlamaCpp(model="judge", chat=False).list_key(short) is None


def judgement(text, **more):
    return Call("0", "value", (Message("user", text),), max_tokens=1, logprobs=5, **more)


def said_page(asked):
    """Each prompt is continued by its last word."""
    prompts = asked.json["prompt"]
    prompts = prompts if isinstance(prompts, list) else [prompts]
    choices = [
        {"index": k, "text": prompt.split()[-1], "finish_reason": "length"}
        for k, prompt in enumerate(prompts)
    ]
    usage = {"prompt_tokens": sum(map(len, prompts)) // 2, "completion_tokens": len(prompts)}
    return {"choices": choices, "usage": usage}


@pytest.mark.slow
@pytest.mark.parametrize("indexes", [(2, 2, 0), (2, None, 0), (7, 8, 3), (3, 2, 1, 0)], ids=str)
def test_a_list_without_an_index_for_each_prompt_gives_no_prompt_the_reply_of_another(
    server, indexes, patient
):
    """Replies come in another order, so only the right indexes say whose they are."""

    def page(asked):
        whole = said_page(asked)
        if not isinstance(asked.json["prompt"], list):
            return whole
        replies = [*whole["choices"], {**whole["choices"][0], "text": "more"}][: len(indexes)][::-1]
        choices = [{**reply, "index": index} for reply, index in zip(replies, indexes, strict=True)]
        return {**whole, "choices": choices}

    server.pages["/v1/completions"] = page
    judge = VLLM(model=f"judge {indexes}", base_url=server.base("openai"), chat=False)
    for _ in range(2):
        replies = asked_at_once(judge, *map(judgement, ("one", "two", "three")))
        assert [reply.text for reply in replies] == ["one", "two", "three"]
    lists = [asked for asked in server.asked if isinstance((asked.json or {}).get("prompt"), list)]
    assert len(lists) == 1  # the server is not given a second one


@pytest.mark.slow
def test_no_list_of_prompts_exceeds_the_spending_limit(server, patient):
    """The server processes a prompt as often as the list holds it. A token costs a dollar."""
    server.pages["/v1/completions"] = said_page
    judge = VLLM(model="judge", base_url=server.base("openai"), chat=False, price=(1e6, 0.0))
    lab = tl.Lab(judge, runs=None, mode="off", spend=1_500)

    async def go():
        long = "x" * 1_000
        calls = [judgement(long, sample_index=k) for k in range(5)] + [judgement("short")]
        return await asyncio.gather(*(lab.gateway.ask(call, CallObserver()) for call in calls))

    replies = wait(go())
    assert 0 < lab.gateway.spend_limiter.spent <= 1_500
    assert {reply.error for reply in replies} > {None}


@pytest.mark.parametrize(
    "more", [{"logprobs": 2}, {"stop": ("x",)}, {"options": {"top_k": 3}}, {"temperature": 0.5}, {"seed": 1}]
)
def test_judgements_with_other_settings_are_another_request(more):
    judge = VLLM(model="judge", chat=False)
    other = msgspec.structs.replace(judgement("two"), **more)
    assert judge.list_key(judgement("one")) == judge.list_key(judgement("two")) != judge.list_key(other)


@pytest.mark.parametrize("kind", LISTS)
def test_solutions_with_other_options_are_another_request(kind):
    model = kind(model="prm")
    assert model.list_key(reward_call("one")) == model.list_key(reward_call("two"))
    assert model.list_key(reward_call("one")) != model.list_key(reward_call("one", options={"a": 1}))


@pytest.mark.parametrize("kind", [VLLMScore, TEIRerank])
def test_solutions_of_another_question_are_another_request(kind):
    model = kind(model="prm")
    other = Call("0.0", "reward", (Message("user", "Another."), Message("assistant", "one")))
    assert model.list_key(reward_call("one")) != model.list_key(other)


@pytest.mark.slow
def test_after_a_refused_list_each_call_has_its_own_time_and_retries(server, patient):
    """Each of the twelve takes a part of a second alone, and all together more than the time limit of one."""
    busy = iter([503])

    async def page(asked):
        texts = asked.json["text_2"]
        if len(texts) > 1:
            return web.Response(status=413, text="too long")
        await asyncio.sleep(0.2)
        if texts == ["step 7"] and (status := next(busy, None)):
            return web.Response(status=status, headers={"Retry-After": "0"})
        return web.json_response(score_page(asked))

    server.pages["/score"] = page
    model = served(server, VLLMScore, concurrency=12)
    evaluate = tl.evaluators.RewardModel(model=model)
    search = tl.BeamSearch(width=1)
    stop = tl.Stop(solved=None, depth=1)
    strategy = tl.TreeOfThoughts(propose=tl.Sample(count=12), evaluate=evaluate, search=search, stop=stop)
    lab = tl.Lab(Steps(form="step {sample}"), runs=None, mode="off", timeout=1.5)
    run = wait(lab.run(strategy, TASK))
    nodes = [node for node in run.tree if node.depth]
    assert [node.score for node in nodes] == [of_step(node.text) for node in nodes]
    assert len(nodes) == 12


@pytest.mark.slow
def test_two_samples_of_one_judgement_are_a_list_and_not_n(server, patient):
    server.pages["/v1/completions"] = said_page
    judge = VLLM(model="sampled judge", base_url=server.base("openai"), chat=False)
    first = msgspec.structs.replace(judgement("one"), temperature=0.0)
    replies = asked_at_once(judge, first, msgspec.structs.replace(first, sample_index=1), judgement("two"))
    assert [reply.text for reply in replies] == ["one", "one", "two"]
    bodies = [asked.json for asked in server.asked if asked.path == "/v1/completions"]
    assert not any("n" in body for body in bodies)
    assert ["one", "one"] in [body["prompt"] for body in bodies]


def test_the_cached_tokens_of_a_list_are_divided_by_the_sizes_of_the_prompts(server):
    short, long = judgement("1"), judgement("1" * 99)

    def page(asked):
        details = {"prompt_tokens_details": {"cached_tokens": 50}}
        usage = {"prompt_tokens": 100, "completion_tokens": 20, **details}
        return {**said_page(asked), "usage": usage}

    server.pages["/v1/completions"] = page
    judge = VLLM(model="judge with a cache", base_url=server.base("openai"), chat=False)
    observer = CallObserver()
    replies = wait(judge.answer((short, long), observer))
    assert [reply.input_tokens for reply in replies] == [1, 99]
    noted = [data for name, data in observer.notes if name == "call.processed"]
    assert [(data["only"], data["cached_tokens"]) for data in noted] == [([short], 1), ([long], 49)]


def test_a_prompt_that_a_list_repeats_is_reserved_each_time(server):
    judge = VLLM(model="priced judge", base_url=server.base("openai"), chat=False, price=(1.0, 1.0))
    samples = [msgspec.structs.replace(judgement("one"), sample_index=k, temperature=0.0) for k in range(3)]
    assert judge.need(samples).prompt == 3 * judge.need(samples[:1]).prompt
    reward = served(server, VLLMPooling, price=(1.0, 1.0))  # no list: samples share the prompt
    samples = [reward_call("one", sample_index=k) for k in range(3)]
    assert reward.need(samples).prompt == reward.need(samples[:1]).prompt


def test_an_option_that_json_cannot_hold_is_an_error_of_the_call(server):
    judge = VLLM(model="judge", base_url=server.base("openai"), chat=False)
    for model, call in ((judge, judgement("one")), (served(server, VLLMScore), reward_call("one"))):
        (reply,) = asked_at_once(model, msgspec.structs.replace(call, options={"bad": object()}))
        assert "the request cannot be sent" in reply.error
