"""The simulated model for any prompt: readable by every domain, valid for every schema."""

from __future__ import annotations

import asyncio
import json
import math
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import run
from support.contract import every_strategy

import tot_lab as tl
from tot_lab.core.calls import Call, Message, Reply
from tot_lab.core.parts import part_of
from tot_lab.core.reading.scores import read_label
from tot_lab.core.records import Note
from tot_lab.domains.general.player import SimGeneral

MODEL = SimGeneral()
GENERAL = tl.general("Is 7 the best: N of 3 next steps? yes or no, rate it\n\nAnswer: surely impossible")

HAND = tl.game24("4 5 6 10")


def ask(prompt: str, draw: int = 0, model: SimGeneral = MODEL, **settings: Any) -> Reply:
    return asyncio.run(model(Call("0", "whatever", (Message("user", prompt),), draw, **settings)))


def unreadable(run: tl.Run) -> list[str]:
    """Whatever of a run could not be read. Deep Think's forms let a number be null, and its solution is any
    text."""
    nodes = [node.id for node in run.tree if node.unreadable and node.by != "converge"]
    notes = [event for event in run.events if isinstance(event, Note) and event.name == "parse.unreadable"]
    return nodes + [note.at for note in notes if note.data["kind"] not in ("develop", "converge")]


@every_strategy("slow", "slow")
@pytest.mark.parametrize(
    "task",
    [GENERAL, GENERAL.model_copy(update={"context": "Reply with a JSON list of 9 strings."}),
     HAND],
    ids=["general", "context", "game24"],
)  # fmt: skip
def test_every_strategy_can_read_it(strategy: tl.Strategy, task: tl.Task) -> None:
    scored_by = strategy.evaluate.kind if isinstance(strategy, tl.TreeOfThoughts) else ""
    if scored_by == "parts":
        pytest.skip("the states of these domains have no parts")
    done = run(strategy, task, MODEL)
    assert done.usage.calls > 0
    # It gives no rewards and no log-probabilities, and no rollout of its reaches 24.
    without = ("reward_model", "likelihood", "self_certainty")
    if scored_by not in without and (scored_by, task) != ("rollout", HAND):
        assert unreadable(done) == []
    # On game24 no path may reach 24, and a plan of chance names no tools that there are.
    assert done.answer or task.domain.kind == "game24" or isinstance(strategy, tl.PlanExecute)


@pytest.mark.slow
@pytest.mark.parametrize("generate", ["sample", "propose"])
def test_structured_proposals_are_valid_steps(generate: str) -> None:
    from jsonschema import Draft202012Validator

    task = tl.game24("4 5 6 10", structured=True)
    done = run(
        tl.TreeOfThoughts(propose=generate, search=tl.BeamSearch(width=None)).with_({"propose.count": 8}),
        task,
        MODEL,
    )
    asked = [event for event in done.events if isinstance(event, Call) and event.response_format]
    assert asked
    for call in asked:
        Draft202012Validator(call.response_format).validate(json.loads(asyncio.run(MODEL(call)).text))
    assert max(node.depth for node in done.tree) == 3


@pytest.mark.slow
def test_prompts_of_general_get_the_form_they_ask_for() -> None:
    domain, task = GENERAL.domain, GENERAL
    for draw in range(30):
        proposed = json.loads(ask(domain.propose_prompt(task, [], 4), draw).text)
        assert len(proposed) == 4
        assert all("simulated" in text for text in proposed)
        assert "simulated" in ask(domain.sample_prompt(task, ["a"]), draw).text
        value = ask(domain.value_prompt(task, ["a", "b"]), draw).text
        assert value.startswith("score: ")
        assert "simulated" in value
        assert domain.read_vote(ask(domain.vote_prompt(task, [["a"], ["b"]]), draw).text, 2) is not None
        assert None not in domain.read_joint(
            ask(domain.joint_prompt(task, [], ["a", "b", "c"]), draw).text, ["a", "b", "c"]
        )
        answer = ask(domain.answer_prompt(task, True), draw).text
        assert "simulated" in answer
        assert (domain.read_answer(task, answer) or "").isdecimal()


def test_votes_fall_on_every_candidate() -> None:
    prompt = GENERAL.domain.vote_prompt(GENERAL, [["a"], ["b"], ["c"]])
    assert {GENERAL.domain.read_vote(ask(prompt, draw).text, 3) for draw in range(60)} == {0, 1, 2}


@pytest.mark.slow
def test_prompts_of_game24_get_a_label_or_a_step() -> None:
    task = tl.game24("4 5 6 10")
    game = task.domain
    path = ["4 * 5 = 20 (left: 6 10 20)", "10 - 6 = 4 (left: 4 20)", "20 + 4 = 24 (left: 24)"]
    labels = {game.read_value(ask(game.value_prompt(task, path[:2]), draw).text) for draw in range(40)}
    assert labels == {20.0, 1.0, 0.001}
    assert {game.read_value(ask(game.value_prompt(task, path), k).text) for k in range(40)} == {20.0, 0.001}
    for draw in range(40):
        assert game.read_sample(task, path[:1], ask(game.sample_prompt(task, path[:1]), draw).text)
        assert len(game.read_proposals(task, [], ask(game.propose_prompt(task, [], 4), draw).text)) == 4
    assert ask(game.sample_prompt(task, path)).text == "none"


def test_anything_else_is_a_sentence_that_says_what_it_is() -> None:
    for prompt in ("", "Tell me of Paris.", "What was the mistake in this attempt?"):
        assert "simulated" in ask(prompt).text
        assert ask(prompt).simulated


# Log-probabilities.


@pytest.mark.parametrize(
    ("prompt", "labels"),
    [
        ("Problem: are you sure?\n\nIs the step right? Reply yes or no.", {"yes", "no"}),
        ("Is it right?\nOne word, Yes or No:", {"Yes", "No"}),
        ("Can 24 be made? One word: sure, likely or impossible.", {"sure", "likely", "impossible"}),
    ],
)
def test_the_labels_on_offer_have_log_probabilities(prompt: str, labels: set[str]) -> None:
    chosen = set()
    for draw in range(40):
        reply = ask(prompt, draw, logprobs=10, max_tokens=1)
        (token,) = reply.logprobs
        assert set(token.top) == labels
        assert 0.9 < sum(math.exp(value) for value in token.top.values()) < 1
        assert token.logprob == token.top[token.token]
        assert (reply.text, reply.output_tokens, reply.finish_reason) == (token.token, 1, "stop")
        chosen.add(reply.text)
    assert chosen == labels
    (token,) = ask(prompt, temperature=0.0, logprobs=1).logprobs
    assert token.top == {token.token: max(ask(prompt, temperature=0.0, logprobs=9).logprobs[0].top.values())}


def test_none_are_made_up_where_no_label_is_offered() -> None:
    assert ask("Tell me of Paris.", logprobs=5).logprobs == ()
    assert ask("Is it right? Reply yes or no.").logprobs == ()
    assert read_label(ask("Is it right? Reply yes or no.").text, {"yes": 1, "no": 0}) in (0, 1)


# Schemas.

SCHEMAS: dict[str, Any] = {
    "scores": {"type": "array", "items": {"type": "number", "minimum": 0, "maximum": 1}, "minItems": 4,
               "maxItems": 4},
    "bounds": {"type": "object", "required": ["a", "b", "c", "d", "e"], "properties": {
        "a": {"type": "integer", "exclusiveMinimum": 3, "maximum": 5},
        "b": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.001},
        "c": {"type": "integer", "multipleOf": 7, "minimum": 1, "maximum": 15},
        "d": {"type": "number", "maximum": -5},
        "e": {"type": "string", "minLength": 90, "maxLength": 91}}},
    "choices": {"anyOf": [{"const": None}, {"enum": ["x", 2]}, {"type": ["boolean", "null"]}]},
    "one of": {"oneOf": [{"type": "string", "maxLength": 3}, {"type": "array", "maxItems": 0}]},
    "all of": {"allOf": [{"type": "integer", "minimum": 2}, {"maximum": 3}]},
    "beside": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"],
               "anyOf": [{"required": ["b"], "properties": {"b": {"type": "null"}}},
                         {"required": ["c"], "properties": {"c": {"type": "integer"}}}]},
    "tuple": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False,
              "minItems": 2},
    "unique": {"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 3, "maxItems": 3,
               "uniqueItems": True},
    "no types": {"properties": {"a": {"items": {"minimum": 3}}}, "required": ["a", "unheard"]},
    "recursive": {"$ref": "#/$defs/tree", "$defs": {"tree": {
        "type": "object", "required": ["thought", "next"], "additionalProperties": False, "properties": {
            "thought": {"type": "string"},
            "next": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]},
            "more": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}}}},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_filled_in(name: str) -> None:
    from jsonschema import Draft202012Validator

    validator = Draft202012Validator(SCHEMAS[name])
    said = {ask("Reply in JSON.", draw, response_format=SCHEMAS[name]).text for draw in range(50)}
    for text in said:
        validator.validate(json.loads(text))
    assert len(said) > 1


leaves = st.sampled_from(
    [
        {"type": "string"},
        {"type": "integer", "minimum": 1, "maximum": 3},
        {"enum": ["a", "b"]},
        {"type": "null"},
    ]
)
schemas = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.fixed_dictionaries(
            {
                "type": st.just("array"),
                "items": inner,
                "minItems": st.integers(0, 2),
                "maxItems": st.integers(2, 3),
            }
        ),
        st.builds(
            lambda properties, required: {
                "type": "object",
                "properties": properties,
                "required": [name for name in properties if name in required],
                "additionalProperties": False,
            },
            st.dictionaries(st.sampled_from("abc"), inner),
            st.sets(st.sampled_from("abc")),
        ),
        st.builds(lambda choices: {"anyOf": choices}, st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=8,
)


@pytest.mark.slow
@given(schemas, st.integers(0, 5))
def test_any_schema_is_filled_in(schema: dict[str, Any], draw: int) -> None:
    from jsonschema import Draft202012Validator

    Draft202012Validator(schema).validate(json.loads(ask("?", draw, response_format=schema).text))


# As every simulated model.


def test_a_reply_follows_from_prompt_settings_and_draw() -> None:
    prompt = GENERAL.domain.sample_prompt(GENERAL, [])
    assert ask(prompt) == ask(prompt)
    call = Call("0", "a", (Message("user", prompt),))
    assert asyncio.run(MODEL(call)) == asyncio.run(MODEL(Call("0.7", "b", (Message("user", prompt),))))
    for varied in (
        [ask(prompt, draw).text for draw in range(20)],
        [ask(prompt, repeat=k).text for k in range(20)],
        [ask(prompt, attempt=(k,)).text for k in range(20)],
        [ask(prompt, seed=k).text for k in range(20)],
        [ask(prompt, model=SimGeneral(seed=k)).text for k in range(20)],
    ):
        assert len(set(varied)) > 10
    assert len({ask(prompt, draw, temperature=0.0).text for draw in range(20)}) == 1


def test_a_reply_reports_itself() -> None:
    whole = ask("Tell me of Paris.")
    assert (whole.model, whole.cost, whole.finish_reason, whole.simulated) == (
        "sim/general",
        0.0,
        "stop",
        True,
    )
    cut = ask("Tell me of Paris.", max_tokens=3)
    assert (cut.text, cut.finish_reason, cut.output_tokens) == (whole.text[:12], "length", 3)
    assert ask("Tell me of Paris.", stop=(",",)).text == "(simulated"


def test_latency_and_settings() -> None:
    start = time.monotonic()
    slow = ask("?", model=SimGeneral(latency=0.05))
    assert time.monotonic() - start >= 0.045
    assert slow == ask("?") == ask("?", model=SimGeneral(latency=0.001, latency_spread="exponential"))
    model = SimGeneral(latency=0.1, seed=3)
    assert part_of(json.loads(json.dumps(model.settings()))) == model
