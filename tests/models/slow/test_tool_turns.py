"""Turns with tools over the observer: what the providers want back, what they refuse, and how they say it.

The server answers a request that the real provider would refuse with its 400 (`refusals.py`), so that a
run without an error shows that every request was sound.
"""

import json
import warnings

import msgspec
import pytest
from pydantic import BaseModel
from support import TASK, needs_smollm2, wait, weights
from support.endpoint import CallObserver
from support.providers import FAMILIES, MODELS, Providers, Raw, Said

import tot_lab as tl
from tot_lab.core.calls import Call, Message, Reply, ToolCall
from tot_lab.core.records import Note
from tot_lab.core.tool import schema_of
from tot_lab.core.tools import ToolSpec
from tot_lab.models.keys import request_of
from tot_lab.models.lite_llm import LiteLLM
from tot_lab.models.lite_llm.loading import silence_warnings
from tot_lab.models.local import Local
from tot_lab.models.stack import Failure
from tot_lab.strategies.plans import PlanDraft
from tot_lab.strategies.structured import ask_json
from tot_lab.tools import Calculator, Python, ReadFile, WebFetch

each_family = pytest.mark.parametrize("family", FAMILIES)
watched = pytest.mark.parametrize("watched", [False, True], ids=["whole", "streamed"])
ADD = {
    "name": "add",
    "description": "a + b",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
}


@tl.tool(pure=True)
def legs(animal: str) -> str:
    """How many legs an animal has."""
    return f"{ {'spider': 8, 'duck': 2}[animal] } legs. " + f"It is told of the {animal} at length. " * 20


@pytest.fixture
def server(shared: Providers, loaded: None) -> Providers:
    shared.forget()
    return shared


def model_of(server: Providers, family: str, name: str | None = None) -> LiteLLM:
    return LiteLLM(model=name or MODELS[family], api_base=server.base(family), api_key="k")


def lab(server: Providers, family: str, name: str | None = None, **options) -> tl.Lab:
    return tl.Lab(model_of(server, family, name), **{"runs": None, "mode": "off", "tools": [legs], **options})


def asked(*messages: Message, **settings) -> Call:
    return Call("0", "act", messages or (Message("user", "2 + 2?"),), **settings)


def ask(model: LiteLLM, call: Call, observer: CallObserver | None = None) -> Reply:
    (reply,) = wait(model.answer([call], observer or CallObserver()))
    return reply


def turns_of(server: Providers, place: int = -1) -> list[dict]:
    body = server.calls[place].json
    return body.get("messages") or body["contents"]


def thinking_turns(*, redacted: bool = False) -> list[Said]:
    """A model that thinks before it asks for tools, two turns long, and then answers."""
    ask_for = (("legs", {"animal": "spider"}), ("legs", {"animal": "duck"}))
    return [
        Said(None, "Spiders first.", redacted, ask_for, finish="tool_calls"),
        Said("Once more.", "To be sure.", redacted, ask_for[:1], finish="tool_calls"),
        Said(None, "Done.", redacted, (("final-answer", {"answer": "26"}),), finish="tool_calls"),
    ]


# What they want back.


THINKING = [*MODELS.items(), ("gemini", "gemini/gemini-3-pro-preview")]


@pytest.mark.parametrize(("family", "name"), THINKING)
def test_a_loop_of_a_model_that_thinks_is_never_refused(server, family, name):
    server.will(*thinking_turns(redacted=True))
    made = wait(lab(server, family, name).run(tl.WithThinking(strategy=tl.ReAct(), level="low"), TASK))
    assert (made.answer, made.stop_reason, made.usage.errors) == ("26", "answered", 0)
    said = json.dumps(turns_of(server))
    assert ("Spiders first." in said) == (family != "gemini")  # whose thinking goes back in its signatures
    assert ("thoughtSignature" in said) == (family == "gemini" and "gemini-3" in name)
    if family == "anthropic":
        first = turns_of(server)[1]["content"]
        assert [block["type"] for block in first] == ["thinking", "redacted_thinking", "tool_use", "tool_use"]
        second = turns_of(server)[3]["content"]
        assert [block["type"] for block in second] == ["thinking", "redacted_thinking", "text", "tool_use"]


@pytest.mark.parametrize(
    "strategy",
    [tl.ToolLoop(), tl.TreeOfThoughts(propose=tl.WithTools(tools=("legs",)), stop=tl.Stop(depth=1))],
)
def test_every_loop_hands_the_thinking_on(server, strategy):
    def answering(asked):
        if "tool_result" in json.dumps(asked.json) or "tools" not in asked.json:
            return Said("Answer: 26\nscore: 0.5", thinking="Well.")
        return thinking_turns()[0]

    server.otherwise = answering
    made = wait(lab(server, "anthropic").run(tl.WithThinking(strategy=strategy, level="low"), TASK))
    server.otherwise = Said()
    assert made.usage.errors == 0
    assert any("tool_result" in json.dumps(asked.json) for asked in server.calls)


def test_the_server_refuses_a_turn_that_lost_its_thinking(server):
    """As Anthropic does; so the tests above can fail."""
    model = model_of(server, "anthropic")
    server.will(*thinking_turns())
    first = asked(tools=(ADD,), effort="low")
    reply = ask(model, first)
    turn = Message("assistant", reply.text, reply.tool_calls, provider_state=reply.provider_state)
    results = [Message("tool", "8", tool_call_id=call.id) for call in reply.tool_calls]
    assert ask(model, msgspec.structs.replace(first, messages=(*first.messages, turn, *results))).tool_calls
    another = {"thinking_blocks": [{"type": "thinking", "thinking": "Another.", "signature": "eA=="}]}
    for state in ("", json.dumps(another)):
        lost = msgspec.structs.replace(turn, provider_state=state)
        with pytest.raises(Failure, match="thinking") as caught:
            ask(model, msgspec.structs.replace(first, messages=(*first.messages, lost, *results)))
        assert (caught.value.status, caught.value.retry) == (400, False)


@each_family
@watched
def test_what_goes_back_is_the_same_out_of_a_stream(server, family, watched):
    said = thinking_turns(redacted=True)[1]
    server.will(said)
    reply = ask(model_of(server, family), asked(tools=(ADD,), effort="low"), CallObserver(watched))
    assert reply.thinking == "To be sure."
    if family == "anthropic":
        thinking, redacted = json.loads(reply.provider_state)["thinking_blocks"]
        assert (thinking["thinking"], redacted["type"]) == ("To be sure.", "redacted_thinking")
    else:
        expected = "" if family == "gemini" else '{"reasoning_content": "To be sure."}'
        assert reply.provider_state == expected


@each_family
def test_only_a_turn_with_tool_calls_takes_thinking_back(server, family):
    server.will(Said("Four.", thinking="Well."))
    assert ask(model_of(server, family), asked(effort="low")).provider_state == ""


def test_who_refuses_reasoning_is_sent_none(server):
    """Groq takes no such field."""
    said = called(one("add", "{}", id="x"))
    server.will(openai_says({**said, "reasoning_content": "Spiders first."}, service_tier="on_demand"))
    model = LiteLLM(model="groq/openai/gpt-oss-20b", api_base=server.base("openai"), api_key="k")
    reply = ask(model, asked(tools=(ADD,)))
    assert (reply.thinking, reply.provider_state) == ("Spiders first.", "")


def test_a_call_without_it_has_the_key_and_the_bytes_that_it_had():
    """From before there was such a field."""
    called = (ToolCall("a", "add", '{"a": 2}'),)
    talk = (Message("user", "2 + 2?"), Message("assistant", "", called), Message("tool", "4", (), "a"))
    parameters = {"type": "object", "properties": {}}
    call = Call("0.1", "act", talk, tools=({"name": "add", "description": "d", "parameters": parameters},))
    key = request_of(call, {"model": "m"}).key
    assert key == "54aa6142476ce4a922bc01707ed0d484f5065416:0::0"
    with_state = msgspec.structs.replace(talk[1], provider_state='{"reasoning_content": "x"}')
    other = msgspec.structs.replace(call, messages=(talk[0], with_state, talk[2]))
    assert request_of(other, {"model": "m"}).key != key
    for value in (call, Reply("4", thinking="t", tool_calls=called)):
        assert b"provider_state" not in msgspec.json.encode(value)


def test_it_is_in_the_record_and_comes_back_from_the_file_and_the_cache(server, tmp_path):
    server.will(*thinking_turns())
    options = {"runs": tmp_path / "runs", "cache": tmp_path / "calls", "mode": "auto"}
    strategy = tl.WithThinking(strategy=tl.ReAct(), level="low")
    made = wait(lab(server, "anthropic", **options).run(strategy, TASK))
    states = [event.provider_state for event in made.events if isinstance(event, Reply)]
    assert sum(map(bool, states)) == 3
    loaded = tl.load(made.path)
    assert loaded.events == made.events
    again = wait(lab(server, "anthropic", **options).run(strategy, TASK))
    assert (again.events, len(server.calls)) == (made.events, 3)
    assert wait(loaded.replay(cache=tl.Cache(tmp_path / "calls"))).identical


@each_family
def test_what_goes_back_counts_as_prompt(server, family):
    state = json.dumps(
        {"thinking_blocks": [{"type": "thinking", "thinking": "so " * 20, "signature": "eA=="}]}
    )
    long = json.dumps({"a": "so " * 10_000})
    talk = [Message("user", "?"), Message("assistant", "", (ToolCall("x", "add", "{}"),), None, state)]
    model = LiteLLM(model=MODELS[family], api_base=server.base(family), api_key="k", context_window=2_000)
    result = Message("tool", "1", tool_call_id="x")
    assert model.need([asked(*talk, result, tools=(ADD,))]).tokens > 0
    talk[1] = msgspec.structs.replace(talk[1], tool_calls=(ToolCall("x", "add", long),), provider_state="")
    with pytest.raises(Failure, match="do not fit the context window"):
        ask(model, asked(*talk, result, tools=(ADD,)))
    assert not server.calls


@pytest.mark.parametrize("synthesis", ["fast", "deep"])
@pytest.mark.parametrize("outer", [tl.WithSynthesis, tl.WithThinking])
def test_a_rewritten_conversation_parts_no_result_from_its_call(server, synthesis, outer):
    def answering(asked):
        if "tools" not in asked.json:
            return Said("Short.", thinking="Well.")
        seen = json.dumps(asked.json)
        turns = [said for said in thinking_turns() if said.thinking not in seen]
        return turns[0] if len(server.calls) < 10 else thinking_turns()[2]

    server.otherwise = answering
    loop = tl.ReAct()
    if outer is tl.WithSynthesis:
        inner = tl.WithThinking(strategy=loop, level="low", reflect_every=2)
        strategy = tl.WithSynthesis(strategy=inner, synthesis=synthesis, above=0)
    else:
        inner = tl.WithSynthesis(strategy=loop, synthesis=synthesis, above=0)
        strategy = tl.WithThinking(strategy=inner, level="low", reflect_every=2)
    made = wait(lab(server, "anthropic").run(strategy, TASK))
    server.otherwise = Said()
    assert (made.usage.errors, made.stop_reason) == (0, "answered")
    assert any(isinstance(e, Note) and e.name == "context.synthesized" for e in made.events)


# What they refuse of a schema.


def drafted(server: Providers, family: str) -> tl.Run:
    """A plan asked for with `ask_json`, whose arguments are a free object."""
    plan = {
        "steps": [
            {
                "id": "s1",
                "title": "Count",
                "instruction": "Count the legs.",
                "type": "tool_call",
                "toolName": "legs",
                "toolArgs": {"animal": "spider"},
                "toolHints": [],
                "dependsOn": [],
            }
        ]
    }
    server.will(Said(json.dumps(plan)))

    class Drafting(tl.OneAnswer):
        kind = f"drafting_{family}"

        def think(self, task, at="0"):
            yield tl.Thought(at, None, task.question)
            made = yield from ask_json(self.call(at, "plan", "Plan."), PlanDraft)
            assert made.value is not None, made.error
            thought = tl.Thought(f"{at}.0", at, json.dumps(made.value.steps[0].tool_args))
            yield thought
            return tl.Answer(thought.text, "answered", thought.id)

    return wait(lab(server, family).run(Drafting(), TASK))


@each_family
def test_a_plan_with_free_arguments_is_asked_for_as_each_provider_takes_it(server, family):
    made = drafted(server, family)
    assert (made.answer, made.usage.errors, len(server.calls)) == ('{"animal": "spider"}', 0, 1)
    body = server.calls[0].json
    assert (
        "toolArgs" in json.dumps({k: v for k, v in body.items() if k not in ("messages", "contents")})
    ) == (
        family != "anthropic"  # it takes no object of any names; litellm would send one of none
    )
    if family == "openai":
        assert body["response_format"]["json_schema"]["strict"] is False


def test_what_a_provider_cannot_be_asked_for_is_said(server):
    schema = {"type": "object", "properties": {"any": {"type": "object", "additionalProperties": True}}}
    dropped = {}
    for family in FAMILIES:
        observer = CallObserver()
        ask(model_of(server, family), asked(response_format={**schema, "title": "Free"}), observer)
        dropped[family] = "response_format" in observer.dropped
    assert dropped == {"openai": False, "anthropic": True, "gemini": False, "ollama": False}


@pytest.mark.parametrize(
    "part",
    [
        {"type": "object", "additionalProperties": True},
        {"type": ["object", "null"]},
        {"type": "array", "prefixItems": [{"type": "integer"}]},
        {"type": "string", "format": "uri"},
        {"type": "integer", "default": 3},
        {"oneOf": [{"type": "integer"}]},
        {"$ref": "#/$defs/a", "description": "with words beside it"},
        {},
        True,
    ],
)
def test_strict_is_not_said_of_what_openai_does_not_take_so(server, part):
    schema = {
        "type": "object",
        "properties": {"a": part},
        "required": ["a"],
        "additionalProperties": False,
        "$defs": {"a": {"type": "integer"}},
    }
    assert ask(model_of(server, "openai"), asked(response_format=schema)).text
    assert server.calls[-1].json["response_format"]["json_schema"]["strict"] is False


# What they refuse of a tool.


class Leaf(BaseModel):
    name: str
    weight: float | None = None


class Tree(BaseModel):
    leaf: Leaf
    leaves: list[Leaf]
    below: "Tree | None" = None
    marks: dict[str, int] = {}
    way: tuple[int, str] = (1, "x")


@tl.tool
def plant(tree: Tree, leaves: list[Leaf] | None = None) -> str:
    """Plant a tree."""
    return "done"


@tl.tool
def now() -> str:
    """The time, as seen from here."""
    return "now"


@tl.tool(description="long " * 300)
def wordy(a: int) -> int:
    return a


@each_family
def test_each_tool_is_told_as_the_provider_takes_it(server, family):
    tools = [plant, now, wordy, legs, Calculator(), ReadFile(root="/tmp"), WebFetch(), Python()]
    offered = tuple(tool.spec.offered() for tool in tools)
    observer = CallObserver()
    assert ask(model_of(server, family), asked(tools=offered), observer).text
    sent = json.dumps(server.calls[-1].json)
    assert all(tool.name in sent for tool in tools)
    assert observer.dropped == (["tools.description"] if family == "openai" else [])
    if family != "gemini":  # whose form is another
        for tool in (plant, legs):
            assert json.dumps(tool.parameters) in sent  # not changed


def test_more_tools_than_a_provider_takes_are_refused_in_its_words(server):
    many = tuple({**ADD, "name": f"add-{k}"} for k in range(129))
    with pytest.raises(Failure, match="maximum length 128, but got an array with length 129") as caught:
        ask(model_of(server, "openai"), asked(tools=many))
    assert not caught.value.retry


def test_a_tool_has_the_schema_of_an_object():
    for schema in ({"type": "array", "items": {}}, {}, {"$ref": "#/$defs/Gone"}):
        with pytest.raises(ValueError, match=r"parameters: .*JSON schema of an object"):
            legs.model_copy(update={"parameters": schema}).model_validate(
                {**dict(legs), "parameters": schema}
            )


def test_a_schema_that_holds_itself_is_told_at_the_top():
    schema = schema_of(Tree)
    assert "$ref" in schema
    made = type(legs)(**{**dict(legs), "parameters": schema})
    assert made.parameters["type"] == "object"
    assert made.parameters["properties"]["below"]["anyOf"][0] == {"$ref": "#/$defs/Tree"}
    assert isinstance(made.spec, ToolSpec)


@each_family
def test_no_tool_may_be_asked_for_where_the_call_says_none(server, family):
    observer = CallObserver()
    ask(model_of(server, family), asked(tools=(ADD,), tool_choice="none"), observer)
    body = server.calls[-1].json
    said = {
        "openai": "tool_choice" in body and body["tool_choice"] == "none",
        "anthropic": body.get("tool_choice") == {"type": "none"},
        "gemini": body.get("toolConfig") == {"functionCallingConfig": {"mode": "NONE"}},
        "ollama": "tools" not in body,  # it has no such setting
    }
    assert said[family]
    assert observer.dropped == []


# How they ask for tools.


def openai_says(message: dict, finish: str = "stop", **more) -> Raw:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    head = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
    return Raw(json.dumps({**head, "choices": [choice], **more}))


def openai_streams(*deltas: dict, finish: str = "stop") -> Raw:
    head = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    pieces = [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": end}]}
        for delta, end in [*((delta, None) for delta in deltas), ({}, finish)]
    ]
    lines = [f"data: {json.dumps(piece)}\n\n" for piece in pieces]
    return Raw("".join([*lines, "data: [DONE]\n\n"]), kind="text/event-stream")


def called(*calls: dict) -> dict:
    return {"content": "", "tool_calls": list(calls)}


def one(name: str, arguments: object, **more) -> dict:
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **more}


PAIR = [("add", {"a": 1}), ("add", {"a": 2})]


def read(reply: Reply) -> list[tuple[str, object]]:
    return [(call.name, json.loads(call.arguments or "{}")) for call in reply.tool_calls]


@pytest.mark.parametrize(
    ("said", "calls"),
    [
        (called(one("add", '{"a": 1}', id="x"), one("add", '{"a": 2}', id="x")), PAIR),  # one id for two
        (called(one("add", '{"a": 1}'), one("add", '{"a": 2}')), PAIR),  # no id
        (called(one("add", '{"a": 1}', id=""), one("add", '{"a": 2}', id=None)), PAIR),
        (called(one("add", {"a": 1}, id="x"), one("add", {"a": 2}, id="y")), PAIR),  # no text, but an object
        (called(one("add", "", id="x"), one("add", "{}", id="y")), [("add", {}), ("add", {})]),
        ({**called(one("add", '{"a": 1}', id="x")), "content": None}, PAIR[:1]),
        ({**called(one("add", '{"a": 1}', id="x")), "content": "I add."}, PAIR[:1]),
    ],
)
def test_calls_are_read_however_a_server_writes_them(server, said, calls):
    for finish in ("stop", "tool_calls"):
        server.will(openai_says(said, finish))
        reply = ask(model_of(server, "openai"), asked(tools=(ADD,)))
        assert read(reply) == calls
        assert (reply.text, reply.finish_reason) == (said["content"] or "", "tool_calls")


def piece(index: int, arguments: str, name: str | None = None, id: str | None = None) -> dict:
    """A piece of a tool call."""
    function = {"arguments": arguments, **({"name": name} if name else {})}
    return {"index": index, "function": function, **({"id": id} if id else {})}


ONE, TWO = '{"a": 1}', '{"a": 2}'


@pytest.mark.parametrize(
    "deltas",
    [
        # in pieces, one call after the other; and mixed
        [[piece(0, "", "add", "x")], [piece(0, '{"a"')], [piece(0, ": 1}")], [piece(1, TWO, "add", "y")]],
        [
            [piece(0, '{"a"', "add", "x"), piece(1, '{"a"', "add", "y")],
            [piece(1, ": 2}"), piece(0, ": 1}")],
        ],
        # all of the number 0
        [[piece(0, ONE, "add", "x")], [piece(0, TWO, "add", "y")]],
        [[piece(0, ONE, "add", "x"), piece(0, TWO, "add", "y")]],
        # without ids
        [[piece(0, ONE, "add")], [piece(0, TWO, "add")]],
        [[piece(0, ONE, "add")], [piece(1, TWO, "add")]],
        # the id and the name again with each piece
        [[piece(0, '{"a"', "add", "x")], [piece(0, ": 1}", "add", "x")], [piece(1, TWO, "add", "y")]],
    ],
)
def test_calls_of_a_stream_are_put_together(server, deltas):
    for finish in ("stop", "tool_calls"):
        said = [{"role": "assistant", "content": ""}, *({"tool_calls": delta} for delta in deltas)]
        server.will(openai_streams(*said, finish=finish))
        reply = ask(model_of(server, "openai"), asked(tools=(ADD,)), CallObserver(True))
        assert (read(reply), reply.finish_reason, reply.text) == (PAIR, "tool_calls", "")
        assert len({call.id for call in reply.tool_calls}) == 2


def test_ids_that_come_again_are_told_apart(server):
    """Servers number their calls anew in each reply; litellm leaves a call out whose id it has seen."""
    call = ToolCall("call_0", "add", '{"a": 1}')
    talk = [Message("user", "?")]
    for result in ("1", "2", "3"):
        talk += [Message("assistant", "", (call,)), Message("tool", result, tool_call_id="call_0")]
    for family in FAMILIES:
        assert ask(model_of(server, family), asked(*talk, tools=(ADD,))).text
        said = json.dumps(turns_of(server))
        assert all(said.count(f'"{result}"') == 1 for result in ("1", "2", "3"))


@each_family
@watched
def test_a_reply_of_reasoning_alone_is_an_empty_one(server, family, watched):
    server.will(Said(None, thinking="I wonder."))
    reply = ask(model_of(server, family), asked(), CallObserver(watched))
    assert (reply.text, reply.thinking, reply.error) == ("", "I wonder.", None)


@each_family
def test_a_loop_goes_on_after_a_reply_of_reasoning_alone(server, family):
    server.will(Said(None, thinking="I wonder."), Said("", thinking="Still."), *thinking_turns())
    made = wait(lab(server, family).run(tl.ReAct(), TASK))
    assert (made.answer, made.usage.errors) == ("26", 0)


# A real model on this machine: structure only.


@pytest.fixture(scope="module")
def small():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOT_LAB_MODELS", str(weights("smollm2-135m").parent))
        model = Local(weights="smollm2-135m")
        yield model
        wait(model.close())


@pytest.mark.nightly
@needs_smollm2
def test_a_real_model_runs_the_loop_to_its_end(small):
    """Without native tool calls: those it has from the prompt."""
    loop = tl.ReAct(max_iterations=2, max_tokens=24, temperature=0.0, seed=1)
    made = wait(tl.Lab(small, runs=None, mode="off", tools=[legs, now]).run(loop, TASK))
    assert made.usage.errors == 0
    assert made.stop_reason in ("answered", "limit:iterations")


@pytest.mark.nightly
@needs_smollm2
@pytest.mark.parametrize("choice", [None, "auto", "none", "required", "legs"])
def test_what_a_real_models_template_has_no_place_for_is_said(small, choice):
    observer = CallObserver()
    call = asked(tools=(legs.spec.offered(),), tool_choice=choice, max_tokens=4, seed=1, temperature=0.0)
    reply = ask(small, call, observer)
    assert (reply.error, reply.tool_calls) == (None, ())
    assert observer.dropped == (["tools", "tool_choice"] if choice in ("required", "legs") else ["tools"])


@pytest.mark.nightly
@needs_smollm2
def test_a_real_model_is_shown_a_call_in_text_and_what_it_gave(small):
    written = '{"name": "legs", "arguments": {"animal": "duck"}}'

    async def once(call):  # it is too small to write one
        told = [message.content for message in call.messages]
        return written if len(told) == 1 else (await small.answer([call], CallObserver()))[0]

    loop = tl.ToolLoop(max_tokens=16, temperature=0.0, seed=1)
    made = wait(tl.Lab(once, runs=None, tools=[legs]).run(loop, TASK))
    assert (made.usage.errors, made.stop_reason) == (0, "answered")
    assert made.usage.calls == 2


def test_what_pydantic_warns_a_user_of_is_still_heard():
    class Mine(BaseModel):
        mine: str

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        silence_warnings()
        with pytest.raises(UserWarning, match="field_name='mine'"):
            Mine.model_construct(mine=3).model_dump()
