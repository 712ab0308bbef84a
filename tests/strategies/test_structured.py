"""Structured output: a value of the type that was asked for, or why there is none; every repair and every
further draw is seen. Nothing that a model writes breaks it."""

import asyncio
import json
import re
import time
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter
from support import Scripted, run
from support.providers import FAMILIES, MODELS, Fault, Providers, Said

import tot_lab as tl
from tot_lab.core.calls import Call, Message, Reply
from tot_lab.core.records import Note
from tot_lab.models.chat.requests import _is_strict
from tot_lab.strategies.structured import Structured, Tier, _Form, ask_json, calls_per_ask


class Step(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    title: str = Field(min_length=1)
    minutes: Annotated[int, Field(ge=1, le=60)] = 5
    needs: tuple[str, ...] = ()


class Plan(BaseModel):
    goal: str
    mode: Literal["linear", "dag"] = "linear"
    steps: Annotated[list[Step], Field(min_length=1)]
    note: str | None = None


class Leaf(BaseModel):
    kind: Literal["leaf"]
    share: float = Field(gt=0, lt=1)


class Branch(BaseModel):
    kind: Literal["branch"]
    parts: list["Annotated[Branch | Leaf, Field(discriminator='kind')]"] = []
    named: dict[str, Leaf] = {}


class Odd(BaseModel):
    code: str = Field(pattern="^[A-Z]{3}$")
    pair: tuple[int, str]


GOOD = {
    "goal": "tea",
    "mode": "linear",
    "steps": [{"title": "boil", "minutes": 3, "needs": ["pot"]}],
    "note": None,
}
TEA = Plan.model_validate_json(json.dumps(GOOD))
TYPES: list[Any] = [
    Plan,
    Step,
    Branch,
    Odd,
    Leaf | Step,
    list[Step],
    list[Branch],
    dict[str, int],
    int | None,
    str,
]
STEPS = st.builds(Step, title=st.text(min_size=1), minutes=st.integers(1, 60), needs=st.tuples(st.text()))
PLANS = st.builds(
    Plan,
    goal=st.text(),
    mode=st.sampled_from(["linear", "dag"]),
    steps=st.lists(STEPS, min_size=1, max_size=4),
    note=st.none() | st.text(),
)


class Asking(tl.Prompting):
    """Asks for a plan, and answers with it."""

    tier: Tier = "mid"
    retries: int = 2

    def think(self, task: tl.Task, at: str = "0"):
        yield tl.Thought(at, None, task.question)
        result = yield from ask_json(
            self.call(at, "plan", task.question), Plan, tier=self.tier, retries=self.retries
        )
        text = result.error or result.value.model_dump_json()
        thought = yield from tl.emit(tl.Thought(f"{at}.0", at, text))
        return tl.Answer(thought.text, "error" if result.error else "answered", thought.id)

    def max_calls(self, task: tl.Task) -> int:
        return calls_per_ask(self.retries)


def told(
    *replies: str | Reply, model_type: Any = Plan, **options: Any
) -> tuple[Structured, list[Call], list]:
    """What came of it, with the calls and the notes, when these are the replies."""
    asking = ask_json(Call("0.1", "plan", (Message("user", "A plan for tea."),)), model_type, **options)
    coming, calls, notes = iter(replies), [], []
    send: Any = None
    while True:
        try:
            step = asking.send(send)
        except StopIteration as end:
            return end.value, calls, notes
        if isinstance(step, Note):
            notes.append(step)
            send = step
        else:
            calls.append(step)
            reply = next(coming)
            send = Reply(reply) if isinstance(reply, str) else reply


BAD = [  # badly written, and all the same plan
    "```json\n{text}\n```",
    "Here it is.\n```\n{text}\n```\nDone [1]!",
    "First [sic] thoughts. {text} That's it.",
    "<think>Not {{}}.</think>{text}",
    "\ufeff {text}",
]
BROKEN = [
    lambda text: text.replace("]", ",]").replace("}", ",}"),
    lambda text: text.replace('"', "'").replace("null", "None"),
    lambda text: re.sub('"([^"]*)"', r"“\1”", text),
    lambda text: text.replace(", ", ", // next\n", 1),
    lambda text: text.replace('{"goal"', "{/* a plan */ goal", 1),
    lambda text: text.replace(', "mode"', ' "mode"', 1),
    lambda text: f"```json\n{text[:-1]}",  # cut off
    lambda text: f"It is [so]: {text.replace(',', ',,', 1)} Is it?",
]


@pytest.mark.parametrize("form", BAD)
def test_a_value_is_found_wherever_it_stands(form):
    result, calls, notes = told(form.replace("{{}}", "{}").replace("{text}", json.dumps(GOOD)))
    assert result.value == TEA
    assert (result.repaired, len(calls), notes) == (False, 1, [])


@pytest.mark.parametrize("broken", BROKEN)
def test_what_is_badly_written_is_repaired_and_says_so(broken):
    text = broken(json.dumps(GOOD))
    result, calls, notes = told(Reply(text, finish_reason="stop"))
    assert result.value == TEA, text
    assert result.repaired
    assert len(calls) == 1
    assert notes == [Note("json.repaired", "0.1", {"kind": "plan", "draw": 0, "cut_off": False})]


def test_a_reply_that_was_cut_off_is_told_apart_and_no_number_is_made_up():
    text = json.dumps(GOOD)
    for end in range(1, 14):  # within `"note": null}`
        result, _, notes = told(Reply(text[:-end], finish_reason="length"))
        assert result.value == TEA, text[:-end]
        assert notes[0].data["cut_off"] is True
    cut = '{"title": "boil", "needs": [], "minutes": 4'  # it may have become 45
    result, _, _ = told(cut, model_type=Step)
    assert result.value == Step(title="boil", minutes=5)
    result, _, _ = told('{"share": 0.2', retries=0, model_type=TypeAdapter(dict[str, float]))
    assert result.value is None


def test_a_retry_is_a_further_turn_with_the_exact_error_and_a_new_draw():
    wrong = '{"goal": "tea", "steps": [{"title": "boil", "minutes": 99}]}'
    result, calls, notes = told(wrong, "no idea", json.dumps(GOOD))
    assert result.value == TEA
    assert [call.sample_index for call in calls] == [0, 1, 2]
    assert [len(call.messages) for call in calls] == [1, 3, 5]
    assert calls[0].messages[0] == calls[2].messages[0]
    first, second = (note.data["error"] for note in notes)
    assert first == "steps.0.minutes: Input should be less than or equal to 60 (it is 99)"
    assert second == "there is no JSON in the reply"
    assert [message.role for message in calls[2].messages] == ["user", "assistant"] * 2 + ["user"]
    assert calls[1].messages[1].content == wrong
    assert first in calls[1].messages[2].content
    assert {note.name for note in notes} == {"json.retried"}
    assert [reply.text for reply in result.replies] == [wrong, "no idea", json.dumps(GOOD)]


def test_after_the_last_retry_it_says_why_there_is_nothing():
    result, calls, notes = told("{}", "[1]", "")
    assert (result.value, len(calls)) == (None, calls_per_ask())
    assert result.error == notes[-1].data["error"] == "there is no JSON in the reply"
    assert [note.name for note in notes] == ["json.retried", "json.retried", "json.failed"]
    assert notes[0].data["error"] == "goal: Field required\nsteps: Field required"
    with pytest.raises(ValueError, match="retries must be 0 or more: got -1"):
        told("", retries=-1)


@pytest.mark.parametrize("error", ["budget:calls", "cancelled", "limit:at_most", "timeout after 3 s"])
def test_a_call_that_is_refused_or_fails_ends_it(error):
    result, calls, notes = told("?", Reply(error=error))
    assert (result.value, result.error, len(calls)) == (None, error, 2)
    assert notes[-1] == Note("call.failed", "0.1", {"kind": "plan", "error": error}, fallback=True)


def test_the_error_is_told_of_what_was_meant_and_is_short():
    wrong = {**GOOD, "steps": [{"title": "", "minutes": k} for k in range(100, 130)], "goal": "x" * 9000}
    _, calls, _ = told(f"[1] says: {json.dumps(wrong)}", "", "")
    assert "steps.0.title" in calls[1].messages[2].content
    assert "and 50 more" in calls[1].messages[2].content
    assert sum(len(message.content) for message in calls[2].messages) < 20_000


def test_a_check_of_ones_own_is_part_of_the_type():
    def check(plan: Plan) -> Plan:
        if plan.goal != "tea":
            raise ValueError(f"the goal {plan.goal!r} is not tea")
        return plan

    checked = TypeAdapter(Annotated[Plan, AfterValidator(check)])
    result, calls, notes = told(json.dumps({**GOOD, "goal": "rum"}), json.dumps(GOOD), model_type=checked)
    assert result.value == TEA
    assert notes[0].data["error"].startswith("the whole: Value error, the goal 'rum' is not tea")
    assert "An example" not in calls[0].prompt  # it would not pass the check itself


# What is asked.


def test_the_prompt_is_fitted_to_the_tier():
    said = {
        tier: told(json.dumps(GOOD), tier=tier)[1][0].prompt for tier in ("local", "mid", "large", "frontier")
    }
    assert all(prompt.startswith("A plan for tea.\n\nReply with ") for prompt in said.values())
    assert ["properties" in prompt for prompt in said.values()] == [False, True, True, True]
    assert ["the goal" in prompt for prompt in said.values()] == [True, True, False, False]
    assert said["large"] == said["frontier"]
    assert len(said["local"]) < len(said["large"]) < len(said["mid"])
    example = said["local"].splitlines()[-1]
    assert Plan.model_validate_json(example).steps


@pytest.mark.slow
@pytest.mark.parametrize("model_type", TYPES, ids=str)
def test_the_native_schema_is_one_that_providers_take(model_type):
    from jsonschema import Draft202012Validator

    form = _Form(model_type)
    Draft202012Validator.check_schema(form.native)
    text = json.dumps(form.native)
    assert form.native["type"] == "object"
    assert ("$ref" in text) == ("Branch" in str(model_type))  # it holds itself
    for word in ("default", "discriminator", "oneOf", "minLength"):
        assert f'"{word}"' not in text
    loose = any(name in str(model_type) for name in ("dict", "Branch", "Odd"))  # names, itself, a pair
    assert _is_strict(form.native) is not loose
    title = form.native.get("properties", {}).get("title")
    assert title is None or title == {"type": "string"}  # a field of that name is no title


@pytest.mark.slow
@pytest.mark.parametrize("model_type", TYPES, ids=str)
def test_a_random_instance_of_the_native_schema_is_a_value(model_type):
    """sim/general fills schemas at random; a pattern it does not know."""

    from jsonschema import Draft202012Validator

    model = tl.sim.SimGeneral()
    for draw in range(10 if model_type is not Odd else 0):
        call = Call("0", "x", (Message("user", "?"),), draw, response_format=_Form(model_type).native)
        text = asyncio.run(model(call)).text
        Draft202012Validator(call.response_format).validate(json.loads(text))
        result, calls, _ = told(text, model_type=model_type)
        assert (result.error, len(calls)) == (None, 1)


def test_an_example_that_would_not_fit_is_not_shown():
    assert (
        "the code" not in told('{"code": "ABC", "pair": [1, "a"]}', model_type=Odd, tier="local")[1][0].prompt
    )


def test_a_bare_list_is_as_good_as_one_under_its_name():
    for text in ("[1, 2]", '{"value": [1, 2]}', "```\n[1, 2]\n```"):
        assert told(text, model_type=list[int])[0].value == [1, 2]
    assert told("null", model_type=int | None)[0] == Structured(None, None, (Reply("null"),))


# Any text.


@pytest.mark.slow
@given(PLANS)
def test_any_instance_comes_back(plan):
    for text in (plan.model_dump_json(), f"Well [1]:\n```json\n{plan.model_dump_json(indent=1)}\n```"):
        if "```" not in plan.model_dump_json():
            assert told(text)[0].value == plan


PIECES = st.sampled_from(
    [*"{}[]\",:'", '"goal"', '"steps"', "```json\n", "```", "//", "1", "null", "\ud800", "\\"]
)
TEXTS = st.text() | st.lists(PIECES, max_size=40).map("".join)


@pytest.mark.slow
@given(TEXTS, st.sampled_from(TYPES))
def test_no_text_breaks_it(text, model_type):
    result, calls, notes = told(text, text, text, model_type=model_type)
    assert 1 <= len(calls) <= 3
    assert (result.error is None) == (len(notes) == 0 or notes[-1].name == "json.repaired")
    for call in calls[1:]:
        call.messages[-1].content.encode()


@pytest.mark.nightly
@pytest.mark.parametrize(
    "piece", ["[", "{", '{"a":', '["', '"a"b', "{a:", "```json\n{", "[{", '{"goal": "', "(", "'", "[1],"]
)
def test_a_model_gone_round_in_circles_holds_nobody_up(piece):
    for size in (30_000, 1_000_000):
        text = '{"goal": "tea", "steps": ' + piece * (size // len(piece))
        began = time.process_time()
        told(text, retries=0)
        assert time.process_time() - began < 120


def test_infinity_is_no_number():
    result, _, _ = told('{"a": 1e999}', retries=0, model_type=dict[str, float])
    assert result.value is None


# In a run.


def test_in_a_run_it_is_recorded_replayed_and_bounded():
    task = tl.general("A plan for tea.")

    def reply(call: Call) -> str:
        return json.dumps(GOOD)[:-3] if call.sample_index else "I would rather not."

    done = run(Asking(), task, model=Scripted(reply))
    assert Plan.model_validate_json(done.answer) == TEA
    names = [event.name for event in done.events if isinstance(event, Note)]
    assert names == ["json.retried", "json.repaired"]
    assert done.usage.calls == 2
    short = run(Asking(), task, model=Scripted(reply), budget=tl.Budget(calls=1))
    assert (short.usage.calls, short.answer) == (1, "budget:calls")


def test_a_simulated_model_fills_the_schema():
    done = run(Asking(retries=0), tl.general("A plan for tea."), model="sim/general")
    assert Plan.model_validate_json(done.answer).steps
    assert done.simulated


@pytest.fixture
def server(shared: Providers) -> Providers:
    shared.forget()
    return shared


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_the_schema_goes_to_the_provider_and_the_value_comes_back(server, family):
    server.will(Said(json.dumps(GOOD)))
    model = tl.LiteLLM(model=MODELS[family], api_base=server.base(family), api_key="k")
    done = run(Asking(), tl.general("A plan for tea."), model=model)
    assert Plan.model_validate_json(done.answer) == TEA
    (asked,) = server.calls
    sent = json.dumps(asked.json)
    if family == "openai":
        form = asked.json["response_format"]["json_schema"]
        assert (form["name"], form["strict"]) == ("Plan", True)
        assert form["schema"] == _Form(Plan).native
    assert sent.count('"minutes"') >= 1
    assert '"enum": ["linear", "dag"]' in sent


@pytest.mark.slow
def test_a_server_that_refuses_schemas_is_asked_without(server):
    server.will(
        Fault(400, "response_format is not supported by this model"), Said(f"Sure! {json.dumps(GOOD)}")
    )
    model = tl.LiteLLM(model="openai/mine", api_base=server.base("openai"), api_key="k")
    done = run(Asking(), tl.general("A plan for tea."), model=model)
    assert Plan.model_validate_json(done.answer) == TEA
    first, second = (asked.json for asked in server.calls)
    assert "response_format" in first
    assert "response_format" not in second
    assert first["messages"] == second["messages"]
    (note,) = [event for event in done.events if isinstance(event, Note)]
    assert note.name == "json.retried"
    assert "response_format is not supported" in note.data["error"]
