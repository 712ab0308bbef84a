"""Process reward models in their published formats: requests, byte for byte, and rewards on recorded trees.

`golden/reward_requests.json` holds the requests for one solution, written by hand after the sources.
"""

import json
import math
import re

import pytest
from aiohttp import web
from support import GOLDEN, Scripted, for_each, wait
from support.endpoint import CallObserver
from support.providers import Fault, Raw
from support.published_rewards import AGGREGATES, PUBLISHED, AsVLLM, MathShepherd, Qwen, RLHFlow, Skywork
from support.reply_trees import case

import tot_lab as tl
from tot_lab.core.calls import Call, Message
from tot_lab.models import process_rewards
from tot_lab.models.stack import Failure

KINDS = {
    Qwen: process_rewards.QwenPRM,
    MathShepherd: process_rewards.MathShepherd,
    RLHFlow: process_rewards.RLHFlowPRM,
    Skywork: process_rewards.SkyworkPRM,
}
REQUESTS = json.loads((GOLDEN / "reward_requests.json").read_text(encoding="utf-8"))
QUESTION = "Tom has 3 boxes of 4 pens. He gives away 5 pens. How many pens are left?"
STEPS = ("Step 1: 3 * 4 = 12 pens.", "Step 2: 12 - 5 = 7 pens.\nAnswer: $\\boxed{7}$")


@pytest.fixture
def server(shared, monkeypatch):
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    shared.forget()
    before = shared.otherwise
    AsVLLM().serve(shared)
    yield shared
    shared.otherwise = before


def served(server, published, **more):
    return KINDS[published](**{"model": published.model, "base_url": server.base("openai"), **more})


def reward_call(*steps, system="", instruction="Judge it.", question=QUESTION):
    before = (Message("system", system),) if system else ()
    messages = (*before, Message("user", question), Message("assistant", "\n\n".join(steps or STEPS)))
    return Call("0.0", "reward", (*messages, Message("user", instruction)))


def replied(model, call=None):
    (reply,) = wait(model.answer((call or reward_call(),), CallObserver()))
    return reply


def scores_in(reply):
    read = json.loads(reply.text)
    return read["scores"] if isinstance(read, dict) else read


@pytest.mark.parametrize("published", PUBLISHED, ids=lambda one: one.kind)
def test_the_requests_are_the_published_ones(server, published):
    replied(served(server, published))
    requests = [[asked.path, asked.json] for asked in server.asked]
    expected = REQUESTS[published.kind]
    if published is Skywork:
        ids, _ = Skywork.prepared(QUESTION, "\n".join(STEPS))
        raw = {"use_activation": False, "activation": False}
        expected = [*expected, ["/pooling", {"model": Skywork.model, "input": ids, **raw}]]
    assert sorted(requests, key=str) == sorted(expected, key=str)


@pytest.mark.parametrize("published", PUBLISHED, ids=lambda one: one.kind)
@pytest.mark.parametrize("is_old", [False, True], ids=["", "old"])
@pytest.mark.parametrize("steps", [STEPS, (" So ", "it is 3. "), ("26",)], ids=["", "spaces", "one"])
def test_the_rewards_are_those_of_the_authors_code(server, published, is_old, steps):
    AsVLLM(is_old).serve(server)
    if published.separator == "\n":
        steps = [line for step in steps for line in step.split("\n")]
    reply = replied(served(server, published), reward_call(*steps))
    expected = published.score(QUESTION, published.separator.join(steps))
    assert scores_in(reply) == pytest.approx(expected, rel=1e-9)
    assert reply.input_tokens > 20


def test_a_step_of_several_lines_has_the_reward_of_its_last_line(server):
    whole = Skywork.score(QUESTION, "\n".join(STEPS))
    assert len(whole) == 3
    assert scores_in(replied(served(server, Skywork))) == pytest.approx([whole[0], whole[2]])


def test_a_system_message_replaces_that_of_the_model_card(server):
    replied(served(server, Qwen), reward_call(system="Be exact."))
    roles = [(turn["role"], turn["content"]) for turn in server.asked[-1].json["messages"]]
    assert roles[0] == ("system", "Be exact.")
    assert [role for role, _ in roles] == ["system", "user", "assistant"]
    replied(served(server, RLHFlow), reward_call("one", system="Be exact."))
    (asked,) = server.calls
    assert [turn["content"] for turn in asked.json["messages"]] == ["Be exact.", f"{QUESTION} one"]


@pytest.mark.parametrize(
    ("reported", "chance"),
    [
        ({"token_id:648": -0.5, "token_id:387": -0.5}, 0.5),
        ({"token_id:648": -9999.0, "token_id:387": -0.1}, 0.0),
        ({"token_id:648": 0.0, "token_id:7": -8.0}, 1.0),  # the other label is less likely than exp(-8)
        ({"token_id:387": -0.1, "token_id:7": -8.0}, 0.0),
        ({"token_id:648": -0.5, "token_id:7": -2.0}, None),  # it may be as likely as exp(-2)
        ({"token_id:7": -0.1}, None),
        ({"+": -0.1, "-": -2.0}, None),  # two tokens may have the text of a label
        ({"token_id:648": float("nan"), "token_id:387": -0.1}, None),
        ({"token_id:648": 3.0, "token_id:387": -0.1}, None),
        ({"token_id:648": "high", "token_id:387": -0.1}, None),
        ({}, None),
        (None, None),
        ([], None),
    ],
)
def test_the_reward_of_a_step_is_the_share_of_the_label_plus(server, reported, chance):
    def page(asked):
        logprobs = {"tokens": [""], "token_logprobs": [0], "top_logprobs": [reported]}
        text = json.dumps({"choices": [{"index": 0, "text": "", "logprobs": logprobs}]})
        return web.Response(text=text, content_type="application/json")

    server.pages["/v1/completions"] = page
    model = served(server, MathShepherd)
    if chance is not None:
        assert scores_in(replied(model, reward_call("one"))) == [chance]
        return
    with pytest.raises(Failure, match="answer cannot be read: expected log-probabilities") as caught:
        replied(model, reward_call("one"))
    assert caught.value.unreadable


def test_other_ids_of_the_labels_are_another_model(server):
    other = served(server, MathShepherd, labels=(5, 6))
    assert other.identity() != served(server, MathShepherd).identity()
    replied(other)
    assert server.asked[-1].json["logprob_token_ids"] == [5, 6]
    assert tl.part_of(json.loads(json.dumps(other.settings()))) == other


@pytest.mark.parametrize("published", PUBLISHED, ids=lambda one: one.kind)
def test_a_model_is_named_by_its_format(published):
    lab = tl.Lab(f"{published.kind}/{published.model}", runs=None)
    assert lab.model == KINDS[published](model=published.model, base_url="http://localhost:8000/v1")


BAD_SKYWORK = [
    ("/tokenize", {"tokens": "no"}),
    ("/tokenize", {"tokens": [1, 2, "3"]}),
    ("/tokenize", {"tokens": [1, 2, 3]}),
    ("/tokenize", {"tokens": [1, 151645, 2, 151645, 3, 151645]}),
    ("/pooling", {"data": [{"index": 0, "data": [[0.5]]}]}),
    ("/pooling", {"data": [{"index": 0, "data": "AAAAPw=="}]}),
    ("/pooling", {"data": []}),
    ("/pooling", {}),
]


@pytest.mark.parametrize(("path", "page"), BAD_SKYWORK)
def test_tokens_or_values_that_do_not_fit_are_an_error(server, path, page):
    server.pages[path] = page
    with pytest.raises(Failure, match="answer cannot be read") as caught:
        replied(served(server, Skywork))
    assert caught.value.unreadable


def test_a_step_that_holds_the_special_token_gets_no_reward(server):
    with pytest.raises(Failure, match=re.escape("expected 1 lines separated by <|im_end|>: got 2")):
        replied(served(server, Skywork), reward_call("one <|im_end|> two"))


def test_a_failed_request_of_several_fails_the_call_with_what_the_others_used(server):
    chat = AsVLLM().chat

    def second_fails(asked):
        is_first = len(asked.json["messages"]) == 1
        return Raw(json.dumps(chat(asked))) if is_first else Fault(503, "busy")

    server.otherwise = second_fails
    with pytest.raises(Failure, match="busy") as caught:
        replied(served(server, RLHFlow))
    assert caught.value.status == 503
    assert caught.value.used_by(0).input_tokens > 0


def test_the_prompts_of_all_steps_are_reserved(server):
    for published in (MathShepherd, RLHFlow):
        model = served(server, published, price=(1.0, 1.0))
        one, three = (model.need([reward_call(*steps)]) for steps in (("a",), ("a", "b", "c")))
        assert three.prompt > 2.9 * one.prompt
        reply = replied(model, reward_call("a", "b", "c"))
        assert reply.input_tokens <= three.prompt
        assert reply.output_tokens == 3
        assert reply.cost <= three.usd


def searched(server, published, number):
    """A search on a recorded tree, whose replies have lines of their own. Returns the run."""
    one = case(number)
    separator = published.separator

    def reply(call):
        begun = call.messages[-1].content if call.messages[-1].role == "assistant" else ""
        steps = begun.split("\n\n")[:-1]
        text, _ = one.tree.reply("".join(f"{step}\n\n" for step in steps), call.sample_index)
        return tl.Reply(text.strip() or "Let us see.", finish_reason="stop")

    evaluate = tl.evaluators.RewardModel(
        model=served(server, published),
        aggregate=[*AGGREGATES][number % len(AGGREGATES)],
        split=r"\n\s*\n" if separator == "\n\n" else r"\n+",
    )
    strategy = tl.TreeOfThoughts(
        propose=tl.proposers.Continue(),
        evaluate=evaluate,
        search=tl.searches.PRMBeam(width=1, count=2),
        stop=tl.Stop(solved=None, depth=min(one.depth, 4)),
    )
    return wait(tl.Lab(Scripted(reply), runs=None, mode="off").run(strategy, tl.general(QUESTION)))


def same_scores(server, published, number):
    run = searched(server, published, number)
    nodes = [node for node in run.tree if node.depth]
    assert nodes
    for node in nodes:
        answer = published.separator.join(run.tree.texts(node.id))
        scores = published.score(QUESTION, answer)
        assert node.samples == pytest.approx(scores, rel=1e-9)
        aggregate = [*AGGREGATES][number % len(AGGREGATES)]
        assert node.score == pytest.approx(AGGREGATES[aggregate](scores), rel=1e-9)


@pytest.mark.parametrize("published", PUBLISHED, ids=lambda one: one.kind)
@pytest.mark.parametrize(
    "trees",
    [pytest.param(range(4), marks=pytest.mark.slow), pytest.param(range(200), marks=pytest.mark.proof)],
    ids=len,
)
def test_a_search_has_the_scores_of_the_second_implementation(server, published, trees):
    for_each(trees, lambda number: same_scores(server, published, number))


def test_the_second_implementations_tell_the_formats_apart():
    """The toy model depends on every token, so that a space, a line break or a turn is another reward."""
    toy = MathShepherd.toy
    assert toy.encode("pens.\nStep") != [*toy.encode("pens."), *toy.encode("\n"), *toy.encode("Step")]
    scores = {round(math.fsum(one.score(QUESTION, "a\nb")), 9) for one in PUBLISHED}
    assert len(scores) == len(PUBLISHED)
