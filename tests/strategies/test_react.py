"""The tool-using loops: ReAct, the plain loop, and a tree search whose proposer asks for tools. Models are
scripts here, and the providers' observer formats a server on loopback."""

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import TASK, Scripted, answer_to, for_each, run, shuffled, wait
from support.errands import COUNTED, counted, lab_with, results
from support.providers import FAMILIES, MODELS, Said
from support.scripts import LEGS, TOOLS, Script, final, legs, notes, read, said

import tot_lab as tl
from tot_lab.core.calls import Reply, ToolCall
from tot_lab.core.records import Thought
from tot_lab.core.tools import tool_call
from tot_lab.strategies.conversation import MAX_CALLS


def act(model, strategy=None, tools=TOOLS, task=TASK, **options):
    return wait(tl.Lab(model, runs=None, tools=tools, **options).run(strategy or tl.ReAct(), task))


def texts(made: tl.Run) -> list[str]:
    return [event.text for event in made.events if isinstance(event, Thought)]


# R1.


def test_it_thinks_acts_observes_and_answers():
    model = Script(
        said(("legs", {"animal": "spider"}), ("legs", {"animal": "duck"}), text="I look both up."),
        said(final("26"), text="Three times 8, and 2."),
    )
    made = act(model)
    assert (made.answer, made.stop_reason, made.correct) == ("26", "answered", True)
    assert made.usage.calls == 2
    assert {node.id: node.text for node in made.tree} == {
        "0": TASK.question,
        "0.0": 'I look both up.\nlegs({"animal": "spider"})\nlegs({"animal": "duck"})',
        "0.0.0": "legs → 8",
        "0.0.1": "legs → 2",
        "0.0.1.0": 'Three times 8, and 2.\nfinal-answer({"answer": "26"})',
        "0.0.1.0.0": "26",
    }
    assert made.tree["0.0.1.0"].source == ("0.0.0",)
    assert made.best.id == "0.0.1.0.0"
    first, second = model.calls
    assert [tool["name"] for tool in first.tools] == ["legs", "web-search", "read", "final-answer"]
    assert all(
        f"- {name}" in first.prompt for name in ("legs: How many", "web-search: Pages", "final-answer: ")
    )
    user, turn, *results = second.messages
    assert user == first.messages[0]
    assert (turn.role, turn.content, len(turn.tool_calls)) == ("assistant", "I look both up.", 2)
    assert [(m.role, m.content, m.tool_call_id) for m in results] == [
        ("tool", "8", "id0"),
        ("tool", "2", "id1"),
    ]
    assert [(row.tool, row.result) for row in made.tools_df().itertuples()] == [("legs", "8"), ("legs", "2")]


def test_without_tools_a_call_gets_words_and_the_loop_goes_on():
    made = act(model := Script(said(("legs", {"animal": "duck"})), said(final(26))), tools=[])
    assert (made.answer, made.stop_reason) == ("26", "answered")
    assert "no tool can be carried out here" in model.shown(1)
    assert "There are no tools" in model.calls[0].prompt


def test_it_stops_at_the_limit_with_what_was_said_last():
    made = act(
        model := Script("I think\nAnswer: 24", said(("legs", {"animal": "duck"}))), tl.ReAct(max_iterations=3)
    )
    assert (made.answer, made.stop_reason, made.best.id) == ("24", "limit:iterations", "0.0")
    assert len(model.calls) == 3
    assert "One turn is left" in model.shown(2)
    silent = act(Script(said(("legs", {"animal": "duck"}))), tl.ReAct(max_iterations=2))
    assert (silent.answer, silent.stop_reason, silent.best) == ("", "limit:iterations", None)


@pytest.mark.parametrize("empty", ["", " \n", "I wonder."])
def test_a_reply_without_a_call_is_told_so_and_counted(empty):
    made = act(model := Script(empty, said(final("26"))))
    assert (made.answer, made.usage.calls) == ("26", 2)
    assert len(notes(made, "react.no_call")) == 1
    assert "no tool call" in model.shown(1)
    assert all(message.content for message in model.calls[1].messages)


def test_a_failed_call_ends_it_with_what_it_has():
    def reply(call):
        if len(call.messages) > 1:
            raise ConnectionError("no route")
        return "Answer: 24"

    made = act(Scripted(reply))
    assert (made.answer, made.stop_reason) == ("24", "error")
    capped = wait(tl.Lab(Script("Answer: 24"), runs=None).run(tl.ReAct(), TASK, budget=tl.Budget(calls=2)))
    assert (capped.answer, capped.stop_reason, capped.usage.calls) == ("24", "budget:calls", 2)


@pytest.mark.slow
def test_a_budget_that_ends_in_a_tool_leaves_the_answer_of_the_same_turn():
    @tl.tool(retries=0)
    async def slow(animal: str) -> str:
        """Takes a while."""
        await asyncio.sleep(30)
        return animal

    model = Script(said(final("25"), ("slow", {"animal": "duck"})))
    lab = tl.Lab(model, runs=None, tools=[slow])
    made = wait(lab.run(tl.ReAct(required_tools={"slow": 1}), TASK, budget=tl.Budget(seconds=1)))
    assert (made.answer, made.stop_reason, made.status) == ("25", "budget:seconds", "partial")


def test_the_answer_of_a_final_call_is_read_by_the_domain():
    task = tl.game24("4 5 6 10")
    model = Script(
        said(final("I do not know")),
        said(final("Answer: (10 - 4) * (5 - 1) = 24")),
        said(final("6*(10-5)-4 =?")),
    )
    made = act(model, task=task, strategy=tl.ReAct(max_iterations=2))
    assert "cannot be read as an answer" in model.shown(1)
    assert made.answer == "(10 - 4) * (5 - 1)"
    assert made.correct is False


def test_what_else_a_last_turn_asks_for_is_carried_out():
    made = act(Script(said(final("26"), ("legs", {"animal": "duck"}))))
    assert made.answer == "26"
    assert "legs → 2" in texts(made)


# Bad tool calls.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "given", "said_so"),
    [
        ("teleport", {}, "there is no tool 'teleport'; the tools are legs, web-search, read"),
        ("", {}, "there is no tool ''"),
        ("legs", "{animal", "no JSON"),
        ("legs", "[1]", "must be a JSON object"),
        ("legs", {"animal": 3}, "animal: Input should be a valid string"),
        ("legs", {"beast": "duck"}, "animal: Field required"),
        ("legs", {"animal": "unicorn"}, "KeyError"),
        ("final-answer", {"answers": "26"}, 'it takes {"answer"'),
        ("final-answer", "{", 'it takes {"answer"'),
        ("final-answer", {"answer": ["26"]}, 'it takes {"answer"'),
    ],
)
def test_a_bad_call_is_answered_in_words(name, given, said_so):
    made = act(model := Script(said((name, given)), said(final("26"))))
    assert (made.answer, made.usage.calls) == ("26", 2)
    assert said_so in model.shown(1)
    assert said_so in made.tree["0.0.0"].text
    (asked,) = model.calls[1].messages[1].tool_calls
    assert isinstance(json.loads(asked.arguments), dict)  # a provider takes no other
    assert asked.name


def test_an_unknown_tool_and_a_loop_on_one_are_noted():
    again = said(("legs", {"animal": "duck"}), ("teleport", {}))
    made = act(model := Script(again), tl.ReAct(max_iterations=4))
    assert made.stop_reason == "limit:iterations"
    assert [data["tool"] for data in notes(made, "react.unknown_tool")] == ["teleport"] * 4
    assert [data["times"] for data in notes(made, "react.repeated") if data["tool"] == "legs"] == [2, 3, 4]
    assert "called legs with these arguments before" in model.shown(2)
    assert "before" not in model.shown(1)


def test_names_are_taken_as_models_write_them():
    made = act(Script(said(("web_search", {"query": "ducks"})), said(("Final_Answer", {"answer": "26"}))))
    assert made.answer == "26"
    assert texts(made)[2].startswith("web-search → There is nothing known about ducks")


def test_equal_ids_are_told_apart():
    calls = tuple(ToolCall("same", "legs", json.dumps({"animal": animal})) for animal in LEGS)
    act(model := Script(Reply(tool_calls=calls), said(final("26"))))
    _, turn, *results = model.calls[1].messages
    assert [call.id for call in turn.tool_calls] == [result.tool_call_id for result in results]
    assert len({call.id for call in turn.tool_calls}) == 2


def test_a_turn_of_very_many_calls_is_cut():
    written = act(Script('{"name": "legs", "arguments": {"animal": "duck"}}' * 500, said(final("26"))))
    assert notes(written, "react.too_many_calls") == [{"calls": 500, "carried_out": MAX_CALLS}]
    assert len(written.tools_df()) == MAX_CALLS
    made = act(model := Script(said(*[("legs", {"animal": "duck"})] * 500), said(final("26"))))
    assert (made.answer, len(made.tree["0.0"].children)) == ("26", MAX_CALLS)
    assert notes(made, "react.too_many_calls") == [{"calls": 500, "carried_out": MAX_CALLS}]
    assert len(model.calls[1].messages[1].tool_calls) == MAX_CALLS


# R12: what becomes of a long result.

PAGES = "".join(f"{one}{two}um " for one in "abcdefghij" for two in "abcdefghij")  # 100 words of 5 characters


@tl.tool
def essay() -> str:
    """A long text."""
    return PAGES


def more(result: object, start: object) -> tuple[str, object]:
    return "more", {"result": result, "from": start}


@tl.tool
def sequel() -> str:
    """Another one."""
    return PAGES[::-1]


def cut(start: int, number: int = 1, text: str = PAGES) -> str:
    """A piece of 100 characters as the model is shown it."""
    rest = json.dumps({"result": number, "from": start + 100})
    told = f"{400 - start} more characters are not shown; to see them, call more with {rest}"
    return f"{text[start : start + 100]}\n… ({told})"


PIECES = (
    said(("legs", {"animal": "duck"}), ("essay", {})),
    said(more(2, 100)),
    said(more(2, 450), ("sequel", {})),
)


def test_a_long_result_is_cut_for_the_model_and_whole_in_the_record():
    model = Script(said(("essay", {})), said(final("26")))
    made = act(model, tl.ReAct(max_result_characters=100), tools=[essay])
    assert model.shown(1) == f"{PAGES[:100]}\n… (400 more characters are not shown)"
    assert made.tools_df()["result"][0] == PAGES


@pytest.mark.slow
@pytest.mark.parametrize("kind", [tl.ReAct, tl.ToolLoop])
def test_the_rest_of_a_long_result_can_be_asked_for(kind, tmp_path):
    last = said(final("26")) if kind is tl.ReAct else "Answer: 26"
    model = Script(*PIECES, last)
    tools = [legs, essay, sequel]
    lab = tl.Lab(model, runs=tmp_path, tools=tools)
    made = wait(lab.run(kind(max_result_characters=100, overflow="more"), TASK))
    assert (made.answer, made.usage.calls) == ("26", 4)
    assert all("more" in [tool["name"] for tool in call.tools] for call in model.calls)
    assert "- more: Shows more of a result" in model.calls[0].prompt
    assert model.shown(1) == f"2\n{cut(0, 2)}"
    assert model.shown(2) == cut(100, 2)
    assert model.shown(3) == f"{PAGES[450:]}\n{cut(0, 5, PAGES[::-1])}"
    assert f"more → {PAGES[450:]}" in texts(made)
    assert notes(made, f"{made.strategy.notes}.more") == [
        {"result": 2, "from": 100},
        {"result": 2, "from": 450},
    ]
    assert made.tools_df()["tool"].tolist() == ["legs", "essay", "sequel"]  # nothing was carried out for it
    assert made.tools_df()["result"][1] == PAGES
    assert wait(tl.load(made.path).replay()).identical

    def by_turn(call):
        return (*PIECES, last)[sum(message.role == "assistant" for message in call.messages)]

    lines = made.path.read_bytes().splitlines(keepends=True)
    for line in range(2, len(lines)):
        path = tmp_path / f"cut-{line}.jsonl"
        path.write_bytes(b"".join(lines[:line]))
        again = tl.Lab(Scripted(by_turn), runs=None, tools=tools)
        assert wait(again.resume(path)).events == made.events


def test_a_proposer_may_ask_for_the_rest_too():
    def reply(call):
        told = [message.content for message in call.messages if message.role == "tool"]
        if call.purpose != "sample" or len(told) == 2:
            return answer_to(call)
        return said(more(1, 400)) if told else said(("essay", {}))

    search = tl.TreeOfThoughts(
        propose=tl.WithTools(proposer=tl.Sample(count=2), max_result_characters=100, overflow="more"),
        stop=tl.Stop(depth=1),
    )
    model = Scripted(reply)
    made = act(model, search, tools=[essay])
    shown = [
        tuple(message.content for message in call.messages if message.role == "tool")
        for call in model.calls
        if len(call.messages) == 5
    ]
    assert shown == [(cut(0), PAGES[400:])] * 2  # each sample numbers its own results
    assert notes(made, "tot.more") == [{"result": 1, "from": 400}] * 2
    assert set(made.tools_df()["tool"]) == {"essay"}
    assert wait(made.replay()).identical


@pytest.mark.parametrize(
    ("given", "said_so"),
    [
        (more(2, 0)[1], "there is no such result; so far there are 1, the first being 1"),
        (more(0, 0)[1], "there is no such result"),
        (more(-1, 0)[1], "there is no such result"),
        (more(10**30, 0)[1], "there is no such result"),
        (more(1, 500)[1], "result 1 has no such character: it has 500, the first being 0"),
        (more(1, -1)[1], "no such character"),
        (more("essay", 0)[1], 'it takes {"result": <its number>, "from": <the character to begin at>}'),
        (more(True, 0)[1], "it takes"),
        (more(1, 1.5)[1], "it takes"),
        ({}, "it takes"),
        ("[1, 2]", "it takes"),
        ("{", "it takes"),
    ],
)
def test_what_there_is_no_more_of_is_said_in_words(given, said_so):
    model = Script(said(("essay", {})), said(("more", given), ("more", given)), said(final("26")))
    made = act(model, tl.ReAct(max_result_characters=100, overflow="more"), tools=[essay])
    assert made.answer == "26"
    assert said_so in model.shown(2)
    assert made.tree["0.0.0.0.1"].text.startswith("more failed: ")
    assert len(notes(made, "react.no_more")) == 2
    assert wait(made.replay()).identical


def test_more_of_what_a_person_wrote_is_what_the_person_wrote():
    model = Script(said(("essay", {})), said(more(1, 100)), said(final("26")))
    lab = tl.Lab(model, runs=None, tools=[essay])
    whole = wait(lab.run(tl.ReAct(max_result_characters=100, overflow="more"), TASK))
    model.replies, model.calls = model.replies[1:], []
    made = wait(lab.branch(whole, "0.0.0", content=f"essay → {'x' * 100}yz"))
    assert made.tree["0.0.0.0.0"].text == "more → yz"


def test_without_it_nothing_is_offered_and_more_is_a_name_like_any_other():
    model = Script(said(("essay", {})), said(more(1, 100)), said(final("26")))
    act(model, tl.ReAct(max_result_characters=100), tools=[essay])
    assert "more" not in [tool["name"] for tool in model.calls[0].tools]
    assert "there is no tool 'more'" in model.shown(2)
    assert tl.ReAct().overflow == "cut"
    own = essay.model_copy(update={"name": "more"})
    made = act(Script(said(("more", {})), said(final("26"))), tools=[own])
    assert made.tools_df()["result"].tolist() == [PAGES]
    none = act(again := Script(said(final("26"))), tl.ReAct(overflow="more"), tools=[])
    assert (none.answer, [tool["name"] for tool in again.calls[0].tools]) == ("26", ["final-answer"])
    for strategy in (tl.ReAct(overflow="more"), tl.ToolLoop(overflow="more")):
        with pytest.raises(ValueError, match="overflow: the lab has a tool 'more', which is reserved"):
            act(Script("?"), strategy, tools=[own])
    with pytest.raises(ValueError, match="required_tools: 'more' cannot be called: the tools are essay"):
        act(Script("?"), tl.ReAct(overflow="more", required_tools={"more": 1}), tools=[essay])
    with pytest.raises(ValueError, match=r"overflow(?s:.)*the planning model calls none"):
        tl.PlanExecute(overflow="more")


def test_with_more_at_hand_it_is_still_told_when_no_other_tool_is_left():
    asked = [said(("read", {"page": page})) for page in (0, 1, 3)]
    strategy = tl.ReAct(required_tools={"read": 1}, overflow="more")
    act(model := Script(*asked, said(final("26"))), strategy, tools=[read])
    assert [tool["name"] for tool in model.calls[3].tools] == ["more", "final-answer"]
    assert "Put together what is known" in model.shown(3)


json_texts = st.one_of(
    st.text(max_size=40), st.just("{}"), st.just('{"answer": "\\ud800"}'), st.just("[" * 9000)
)
wishes = st.builds(
    ToolCall,
    st.text(max_size=3),
    st.one_of(
        st.sampled_from(["legs", "read", "final-answer", "final_answer", "more"]), st.text(max_size=90)
    ),
    st.one_of(json_texts, st.just('{"result": 1, "from": 0}'), st.just('{"animal": "duck"}')),
)
any_reply = st.builds(Reply, st.text(max_size=30), tool_calls=st.lists(wishes, max_size=4).map(tuple))


@pytest.mark.nightly
@pytest.mark.parametrize(
    "strategy",
    [
        tl.ReAct(max_iterations=3, required_tools={"legs": 1}),
        tl.ReAct(max_iterations=3, overflow="more", parallel=False),
        tl.ToolLoop(max_tool_round_trips=2),
        tl.TreeOfThoughts(propose=tl.WithTools(proposer=tl.Sample(count=2)), stop=tl.Stop(depth=1)),
        tl.TreeOfThoughts(propose=tl.WithTools(proposer=tl.Propose(samples=2)), stop=tl.Stop(depth=1)),
    ],
    ids=lambda made: made.kind,
)
@settings(max_examples=40, deadline=None)
@given(replies=st.lists(any_reply, min_size=1, max_size=4))
def test_any_tool_calls_are_survived(strategy, replies):
    def reply(call):
        return replies[(len(call.messages) + call.sample_index) % len(replies)]

    model = Scripted(reply)
    made = wait(tl.Lab(model, runs=None, tools=TOOLS).run(strategy, TASK))
    assert len(model.calls) <= strategy.max_calls(TASK)
    assert wait(made.replay()).identical
    steps = made.steps_df()
    assert steps["tool_seconds"].notna().sum() == len(made.tools_df())
    turns = [call for call in model.calls if call.purpose == "act"]
    calls = model.calls if turns or len(made.tools_df()) else []  # no table of a plain tree search
    assert steps["seconds"].notna().sum() == len(calls)


# R16, R17.


@pytest.mark.slow
def test_a_required_tool_comes_before_the_answer():
    model = Script(
        said(final("26")),
        said(("read", {"page": 1})),
        said(final("26"), ("legs", {"animal": "duck"})),  # it has not seen that result
        said(("legs", {"animal": "unicorn"})),  # nor is this one
        said(("legs", {"animal": "spider"})),
        said(final("26")),
    )
    strategy = tl.ReAct(required_tools={"legs": 2})
    assert strategy == tl.ReAct(required_tools=["legs×2"])
    made = act(model, strategy)
    assert (made.answer, made.usage.calls) == ("26", 6)
    assert "legs (2×)" in model.calls[0].prompt
    assert "first call legs (2×)" in model.shown(1)
    assert model.shown(2).startswith("Ducks walk")  # another tool passes meanwhile
    assert "Still needed before final-answer: legs (1×)" in model.shown(4)
    assert len(notes(made, "react.refused_answer")) == 2


def test_a_satisfied_required_tool_may_be_called_again_up_to_two_times():
    def asked(page):
        return said(("read", {"page": page}))

    model = Script(asked(0), asked(1), asked(2), asked(3), said(final("26")))
    made = act(model, tl.ReAct(required_tools={"read": 1}), tools=[read])
    assert [event.text[:9] for event in made.tree.nodes.values() if event.text.startswith("read ")] == [
        "read → Sp",
        "read → Du",
        "read → Sp",
        "read fail",
    ]
    assert "called 3 times, which is all it may be. Write the answer" in model.shown(4)
    assert [data["tool"] for data in notes(made, "react.blocked")] == ["read"]
    assert [tool["name"] for tool in model.calls[3].tools] == ["final-answer"]  # output tools alone remain
    assert "Put together what is known" in model.shown(4)
    freely = act(
        model := Script(*[asked(k % 4) for k in range(5)], said(final("26"))),
        tl.ReAct(required_tools={"read": 1}, parallel=False),
    )
    assert (freely.answer, notes(freely, "react.blocked")) == ("26", [])


def asked_legs(animal):
    return said(("legs", {"animal": animal}))


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [False, True])
def test_r16_a_required_tool_that_only_failed_holds_the_answer_until_its_limit(at_once):
    """Its limit is what is required and 2 more: after that nothing can satisfy it."""
    beasts = ["a", "b", "c"]
    turns = [said(*(("legs", {"animal": beast}) for beast in beasts))] if at_once else map(asked_legs, beasts)
    made = act(Script(said(final("25")), *turns, said(final("26"))), tl.ReAct(required_tools={"legs": 1}))
    assert (made.answer, made.stop_reason) == ("25", "limit:required_tools")  # no further turn is asked for
    assert made.usage.calls == (2 if at_once else 4)
    assert [data["tools"] for data in notes(made, "react.required_failed")] == [["legs"]]
    assert wait(made.replay()).identical


@pytest.mark.slow
def test_r16_one_success_in_the_last_call_allowed_is_enough():
    turns = [*map(asked_legs, ["a", "b", "duck"]), said(final("26"))]
    made = act(Script(*turns), tl.ReAct(required_tools={"legs": 1}))
    assert (made.answer, made.stop_reason) == ("26", "answered")
    short = act(Script(*turns), tl.ReAct(required_tools={"legs": 2}, max_iterations=6))
    # a fourth call may be made, and so the answer is refused in each of the turns left
    assert (short.answer, short.stop_reason, short.usage.calls) == ("26", "limit:required_tools", 6)


@pytest.mark.slow
@pytest.mark.parametrize("last", [asked_legs("a"), said(final("26"))])
def test_r16_without_a_limit_of_its_own_a_failing_tool_holds_the_answer_to_the_end(last):
    strategy = tl.ReAct(required_tools={"legs": 1}, parallel=False, max_iterations=6)
    made = act(Script(said(final("26")), *[asked_legs("a")] * 4, last), strategy)
    assert (made.answer, made.stop_reason, made.usage.calls) == ("26", "limit:required_tools", 6)
    assert [data["tools"] for data in notes(made, "react.required_failed")] == [["legs"]]
    assert wait(made.replay()).identical


def test_r16_a_failing_output_tool_holds_the_answer_to_the_end():
    @tl.tool(output=True, retries=0)
    def deliver(text: str) -> str:
        """Delivers a text."""
        raise OSError("the disk is full")

    deliveries = Script(said(("deliver", {"text": "26"})))
    made = act(deliveries, tl.ReAct(required_tools={"deliver": 1}, max_iterations=4), tools=[deliver])
    assert (made.answer, made.stop_reason, made.usage.calls) == ("", "limit:required_tools", 4)


def test_r16_a_required_tool_that_was_never_called_ends_at_the_iterations():
    never = act(Script(said(final("26"))), tl.ReAct(required_tools={"legs": 1}, max_iterations=3))
    assert (never.answer, never.stop_reason) == ("26", "limit:iterations")


@pytest.mark.parametrize("name", ["web_search", "web-search", "webSearch"])
def test_r18_names_of_tools_in_settings_are_normalised_as_in_calls(name):
    strategy = tl.ReAct(tools=[name], required_tools={name: 1}, max_calls_per_tool={name: 1})
    assert (strategy.tools, strategy.required_tools) == (("web-search",), {"web-search": 1})
    model = Script(said(("web_search", {"query": "ducks"})), said(final("26")))
    made = act(model, strategy)
    assert (made.answer, made.stop_reason, len(made.tools_df())) == ("26", "answered", 1)
    assert [tool["name"] for tool in model.calls[1].tools] == ["final-answer"]
    assert tl.PlanExecute(required_tools=[f"{name}×2", name]).required_tools == {"web-search": 3}
    assert (
        tl.TreeOfThoughts(propose=tl.WithTools(tools=(name,))).propose.tools
        == tl.ToolLoop(tools=(name,)).tools
        == ("web-search",)
    )
    with pytest.raises(ValueError, match="name the same tool"):
        tl.ReAct(required_tools={"websearch_": 1, "websearch": 2})
    with pytest.raises(ValueError, match=r"max_calls_per_tool: web-search: got 1\. At least the 2"):
        tl.ReAct(required_tools={name: 2}, max_calls_per_tool={"web_search": 1})


@pytest.mark.slow
def test_s1_a_limit_on_a_tool_can_be_set_by_hand():
    turns = [*map(asked_legs, ["duck", "spider", "duck"]), said(final("26"))]
    made = act(model := Script(*turns), tl.ReAct(max_calls_per_tool={"legs": 2}))
    assert [data["tool"] for data in notes(made, "react.blocked")] == ["legs"]
    assert "legs" not in [tool["name"] for tool in model.calls[2].tools]
    failed = tl.ReAct(required_tools={"legs": 1}, max_calls_per_tool=["legs×1"], parallel=False)
    assert act(Script(asked_legs("a")), failed).stop_reason == "limit:required_tools"
    with pytest.raises(ValueError, match=r"legs: got 1\. At least the 2 required"):
        tl.ReAct(required_tools={"legs": 2}, max_calls_per_tool={"legs": 1})
    with pytest.raises(ValueError, match="max_calls_per_tool: 'no-such' cannot be called"):
        act(Script(said(final("26"))), tl.ReAct(max_calls_per_tool={"no-such": 1}))


@tl.tool(output=True, retries=0)
def file_report(text: str) -> str:
    """Files a report."""
    return "filed"


REPORT = said(("file-report", {"text": "26 legs"}))


def test_r16_an_output_tool_is_never_blocked():
    strategy = tl.ReAct(required_tools={"file-report": 1}, max_iterations=7)
    model = Script(*[REPORT] * 5, said(final("26")))
    made = act(model, strategy, tools=[legs, file_report])
    assert (made.answer, made.stop_reason) == ("26", "answered")
    assert len(made.tools_df()) == 5
    assert notes(made, "react.blocked") == []
    assert all("file-report" in [tool["name"] for tool in call.tools] for call in model.calls)
    with pytest.raises(ValueError, match="'file-report' is an output tool, which is never blocked"):
        act(Script(REPORT), tl.ReAct(max_calls_per_tool={"file-report": 1}), tools=[file_report])


@pytest.mark.parametrize("required", [{"legs": 1}, {"legs": 1, "file-report": 1}])
def test_r17_an_output_tool_is_asked_for_once_the_search_tools_are_satisfied(required):
    model = Script(
        said(("read", {"page": 0})),
        asked_legs("duck"),
        said(("read", {"page": 1})),
        REPORT,
        said(final("26")),
    )
    made = act(model, tl.ReAct(required_tools=required), tools=[legs, read, file_report])
    assert (made.answer, made.usage.calls) == ("26", 5)
    hint = "Put together what is known, and deliver it with file-report. Then call final-answer."
    assert [hint in model.shown(turn) for turn in (1, 2, 3, 4)] == [False, True, True, False]
    assert "Still needed before final-answer" in model.shown(1)
    assert all("Still needed" not in model.shown(turn) for turn in (2, 3, 4))
    assert len(notes(made, "react.synthesis")) == 2


def test_r17_enough_is_said_with_the_next_tool():
    pages = [said(("read", {"page": page})) for page in range(3)]
    made = act(model := Script(*pages, REPORT, said(final("26"))), tools=[read, file_report])
    assert "Write the answer now, with file-report." in model.shown(3)
    assert made.answer == "26"
    last = act(model := Script(*pages, said(final("26"))), tl.ReAct(max_iterations=4), tools=[read, legs])
    assert "Write the answer now, with final-answer." in model.shown(3)
    assert last.answer == "26"


def test_r17_where_nothing_was_searched_for_an_output_tool_is_not_asked_for():
    model = Script(said(("read", {"page": 0})), said(final("26")), REPORT, said(final("26")))
    made = act(model, tl.ReAct(required_tools={"file-report": 1}), tools=[read, file_report])
    assert "Still needed before final-answer: file-report (1×)." in model.shown(1)
    assert (made.answer, notes(made, "react.synthesis")) == ("26", [])
    alone = act(model := Script(REPORT, said(final("26"))), tools=[file_report])
    assert (alone.answer, notes(alone, "react.synthesis")) == ("26", [])


def test_an_output_tool_is_told_of_in_records_and_changes_no_key():
    plain = file_report.model_copy(update={"output": False})
    assert file_report.identity() == plain.identity()
    assert file_report.settings()["output"] is True
    assert "output" not in plain.settings()
    made = act(Script(said(final("26"))), tools=[file_report])
    (spec,) = made.task.tools
    assert spec.output
    assert tl.part_of(plain.settings()).output is False


TWO = [("legs", {"animal": "duck"}), ("read", {"page": 0})]
AS_TEXT = "\n".join(json.dumps({"name": name, "arguments": given}) for name, given in TWO)


@pytest.mark.parametrize("reply", [said(*TWO), said(*TWO, final("26")), AS_TEXT])
@pytest.mark.parametrize("kind", [tl.ReAct, tl.ToolLoop])
def test_r16_one_call_a_turn_without_parallel(reply, kind):
    model = Script(reply, said(final("26")) if kind is tl.ReAct else "Answer: 26")
    made = act(model, kind(parallel=False))
    assert list(made.tools_df()["tool"]) == ["legs"]
    assert (made.answer, made.usage.calls) == ("26", 2)
    assert [message.content for message in model.calls[1].messages if message.role == "tool"] == (
        [] if reply == AS_TEXT else ["2"]
    )
    asked = [message.tool_calls for message in model.calls[1].messages if message.tool_calls]
    assert [len(calls) for calls in asked] == ([] if reply == AS_TEXT else [1])
    steps = made.steps_df()
    assert list(steps["action"].dropna())[:1] == ["legs"]
    assert "read" not in set(steps["action"].dropna())
    both = act(Script(reply, said(final("26")) if kind is tl.ReAct else "Answer: 26"), kind())
    assert list(both.tools_df()["tool"]) == ["legs", "read"]


def test_r16_one_call_a_turn_of_a_proposer_without_parallel():
    tree = tl.TreeOfThoughts(
        propose=tl.WithTools(proposer=tl.Sample(count=1)),
        search=tl.BeamSearch(width=1),
        stop=tl.Stop(depth=1),
        parallel=False,
    )
    made = act(Scripted(lambda call: said(*TWO) if len(call.messages) == 1 else "step"), tree)
    assert list(made.tools_df()["tool"]) == ["legs"]


def test_when_little_is_new_it_is_told_to_write():
    pages = [said(("read", {"page": page})) for page in range(3)]
    made = act(model := Script(*pages, said(final("26"))))
    (enough,) = notes(made, "react.enough")
    assert enough["new_words"] == pytest.approx(1 / 8)  # "again", of eight words
    assert "only 12% of the words in the last result are new" in model.shown(3)
    assert all("Enough" not in call.prompt for call in model.calls[:3])
    numbers = act(Script(*[said(("read", {"page": 3}))] * 3, said(final("26"))))
    assert notes(numbers, "react.enough")[0]["new_words"] == 0
    required = act(Script(*pages, said(final("26"))), tl.ReAct(required_tools={"read": 4}, max_iterations=4))
    assert notes(required, "react.enough") == []


def test_r17_numbers_and_short_words_are_new_words():
    @tl.tool(effects=())
    def price(day: int) -> str:
        """The price of a day."""
        return f"Price today: {50 + day} or {90 + day}"

    asked = [said(("price", {"day": day})) for day in range(4)]
    assert notes(act(Script(*asked, said(final("26"))), tools=[price]), "react.enough") == []


# R18.


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (
            '{"name": "legs", "arguments": {"animal": "duck"}}',
            '{"name": "final_answer", "arguments": {"answer": "26"}}',
        ),
        (
            'Let me see.\n```json\n{"tool": "legs", "parameters": {"animal": "duck"}}\n```',
            '{"tool_name": "final-answer", "args": {"answer": 26}}',
        ),
    ],
)
def test_a_tool_call_written_as_text_is_carried_out(first, second):
    made = act(model := Script(first, second))
    assert (made.answer, made.stop_reason, made.usage.calls) == ("26", "answered", 2)
    assert made.tree["0.0"].text == first
    assert made.tree["0.0.0"].text == "legs → 2"
    _, turn, result = model.calls[1].messages
    assert (turn.role, turn.content, turn.tool_calls) == ("assistant", first, ())
    assert (result.role, result.content) == ("user", "legs gave:\n2")
    loop = act(Script(first, '{"answer": 26}'), tl.ToolLoop())
    assert (loop.answer, loop.usage.calls) == ('{"answer": 26}', 2)


def test_a_text_call_of_an_unknown_tool_is_told_so():
    model = Script('{"name": "teleport", "arguments": {}}', said(final("26")))
    act(model)
    assert model.shown(1).startswith("there is no tool 'teleport'")
    lost = act(Script('{"name": "teleport", "arguments": {}}'), tl.ReAct(max_iterations=2))
    assert (lost.answer, lost.stop_reason) == ("", "limit:iterations")  # a call is no answer
    assert [data["tool"] for data in notes(lost, "react.unknown_tool")] == ["teleport"] * 2


# M11.

LIMITS = {"tool_timeout": 0.05, "tool_retries": 2, "tool_backoff": 0.01}


@tl.tool(timeout=600.0, retries=0, backoff=600.0)
async def slow(n: int) -> str:
    """Takes an hour."""
    await asyncio.sleep(3600)
    return "late"


def calling(call):
    """Calls the tool first, also as the step of a plan, and answers then."""
    if call.purpose == "plan":
        step = {"title": "Wait", "instruction": "wait", "type": "tool_call", "toolName": "slow"}
        return json.dumps({"steps": [{**step, "toolArgs": {"n": 1}}]})
    if call.tools and len(call.messages) == 1:
        return said(("slow", {"n": 1}))
    return said(final("26")) if call.purpose == "act" else answer_to(call)


def attempts(made):
    """The waits before the further attempts of each tool call, and the error of the last attempt."""
    waits = {}
    for line in made.lines:
        if getattr(line.e, "name", "") == "call.retried":
            waits.setdefault(str(line.e.data["call"]), []).append(line.e.data["wait"])
    table = made.tools_df()
    return list(waits.values()), set(table["error"]), set(table["tries"])


@pytest.mark.slow
def test_m11_a_strategy_limits_the_time_and_the_retries_of_its_tools():
    def check(strategy):
        waits, errors, tries = attempts(act(Scripted(calling), strategy, tools=[slow]))
        assert waits
        assert all(each == [0.01, 0.02] for each in waits)
        assert errors == {"no result within 0.05 s"}
        assert tries == {3}

    propose = tl.WithTools(tools=["slow"], max_round_trips=1, **LIMITS)
    for_each(
        [
            tl.ReAct(**LIMITS),
            tl.ToolLoop(**LIMITS),
            tl.PlanExecute(step_retries=0, max_refinements=0, max_patches=0, **LIMITS),
            tl.Reflexion(strategy=tl.ReAct(**LIMITS), max_retries=0),
            tl.TreeOfThoughts(propose=propose, search=tl.BeamSearch(width=1), stop=tl.Stop(depth=1)),
        ],
        check,
    )


@pytest.mark.slow
def test_m11_each_limit_replaces_that_of_the_tool_alone():
    brief = slow.model_copy(update={"timeout": 0.05, "retries": 2, "backoff": 0.01})
    for strategy, waits, tries in [
        (tl.ReAct(), [[0.01, 0.02]], 3),
        (tl.ReAct(tool_retries=0), [], 1),
        (tl.ReAct(tool_retries=1), [[0.01]], 2),
        (tl.ReAct(tool_backoff=0.0), [[0.0, 0.0]], 3),
    ]:
        made = act(Scripted(calling), strategy, tools=[brief])
        assert attempts(made) == (waits, {"no result within 0.05 s"}, {tries})
        assert made.header.tools["slow"] == brief.settings()  # the lab's tool is the same
        assert wait(made.replay()).identical
    patient = tl.ReAct(tool_timeout=0.1, tool_retries=0)
    assert attempts(act(Scripted(calling), patient, tools=[brief]))[1] == {"no result within 0.1 s"}


def test_m11_limits_that_are_not_set_are_not_recorded():
    for part in (tl.ReAct(), tl.ToolLoop(), tl.PlanExecute(), tl.WithTools()):
        assert not LIMITS.keys() & part.settings().keys()
        limited = part.with_(**LIMITS)
        assert LIMITS.items() <= limited.settings().items()
        assert tl.part_of(json.loads(json.dumps(limited.settings()))) == limited
        assert part.with_(tool_retries=0).settings() == {**part.settings(), "tool_retries": 0}
    search = tl.TreeOfThoughts(propose=tl.WithTools(tools=["legs"]))
    assert len(tl.grid(search, {"propose.tool_timeout": [1.0, 2.0]})) == 2
    for name, value in [("tool_timeout", 0), ("tool_retries", -1), ("tool_backoff", -0.1)]:
        with pytest.raises(ValueError, match=name):
            tl.ReAct(**{name: value})


def test_m11_limits_are_no_part_of_a_cache_key(tmp_path):
    COUNTED.clear()
    lab = lab_with(counted, cache=tmp_path)
    call = tool_call("0", "counted", {"a": 1}, limits={"timeout": 3.0, "retries": 4, "backoff": None})
    assert call.options == {"timeout": 3.0, "retries": 4}
    assert tool_call("0", "counted", {"a": 1}, limits={"timeout": None}).options == {}
    assert results(lab, ("counted", {"a": 1})) == ["1"]
    assert wait(lab.gateway.known(call)) is not None


# M12.


def test_a_strategy_may_allow_less_than_its_lab():
    careful = tl.ReAct(effect_policy=tl.EffectPolicy(mode="deny_all"))
    made = act(model := Script(said(("web-search", {"query": "ducks"})), said(final("26"))), careful)
    assert "web-search" not in [tool["name"] for tool in model.calls[0].tools]
    assert "the effect policy denies all effects; those of web-search are network" in model.shown(1)
    assert notes(made, "react.denied_tool")[0]["tool"] == "web-search"
    assert len(made.tools_df()) == 0
    again = tl.part_of(json.loads(json.dumps(careful.settings())))
    assert again == careful


def test_a_strategy_cannot_allow_more_than_its_lab():
    lavish = tl.ReAct(effect_policy=tl.EffectPolicy(mode="allow_all"))
    model = Script(said(final("26")))
    with pytest.raises(ValueError, match=r"'web-search' .*denies network"):
        act(model, lavish, effect_policy=tl.EffectPolicy(deny=frozenset({"network"})))
    assert not model.calls


def test_tools_narrows_what_is_offered():
    made = act(model := Script(said(("read", {"page": 0})), said(final("26"))), tl.ReAct(tools=("legs",)))
    assert [tool["name"] for tool in model.calls[0].tools] == ["legs", "final-answer"]
    assert "there is no tool 'read'" in model.shown(1)
    assert made.answer == "26"


def test_bad_settings_are_named():
    for wrong, what in [
        (tl.ReAct(tools=("teleport",)), r"tools: the lab has no tool 'teleport'; it has legs"),
        (tl.ToolLoop(tools=("teleport",)), r"tools: the lab has no tool 'teleport'"),
        (
            tl.TreeOfThoughts(propose=tl.WithTools(tools=("teleport",))),
            r"tools: the lab has no tool 'teleport'",
        ),
        (
            tl.ReAct(required_tools={"teleport": 1}),
            r"required_tools: 'teleport' cannot be called: the tools are legs",
        ),
        (
            tl.ReAct(required_tools={"web-search": 1}, effect_policy=tl.EffectPolicy()),
            "does not allow network",
        ),
    ]:
        with pytest.raises(ValueError, match=what):
            act(Script("?"), wrong)
    with pytest.raises(ValueError, match="which is reserved"):
        act(Script("?"), tools=[legs.model_copy(update={"name": "final-answer"})])
    for field, value in [
        ("max_iterations", 0),
        ("required_tools", {"legs": 0}),
        ("max_result_characters", 1),
    ]:
        with pytest.raises(ValueError, match=field):
            tl.ReAct(**{field: value})


# The record.


@pytest.mark.slow
def test_with_tools_it_is_the_same_record_whatever_the_latency(tmp_path):
    def reply(call):
        if len(call.messages) == 1:
            return said(*[("legs", {"animal": animal}) for animal in LEGS])
        return answer_to(call)

    def lab(seed):
        return tl.Lab(Scripted(reply, shuffled(seed)), runs=tmp_path, tools=[slow, *TOOLS[1:]])

    @tl.tool(name="legs")
    async def slow(animal: str) -> int:
        """How many legs an animal has."""
        await asyncio.sleep(0.002 * len(animal))
        return LEGS[animal]

    for strategy in (tl.ReAct(), tl.ToolLoop(), tl.BestOf(strategy=tl.ReAct(), attempts=2)):
        first = wait(lab(0).run(strategy, TASK))
        assert "legs" in set(first.tools_df()["tool"])
        for seed in (1, 2):
            assert wait(lab(seed).run(strategy, TASK)).events == first.events
        assert wait(tl.load(first.path).replay()).identical
        lines = first.path.read_bytes().splitlines(keepends=True)
        for cut in range(2, len(lines), 3):
            path = tmp_path / f"{first.id}-{cut}.jsonl"
            path.write_bytes(b"".join(lines[:cut]))
            assert wait(lab(3).resume(path)).events == first.events


def test_it_goes_on_with_what_a_person_changed():
    model = Script(said(("legs", {"animal": "spider"})), said(final("26")))
    lab = tl.Lab(model, runs=None, tools=TOOLS)
    whole = wait(lab.run(tl.ReAct(), TASK))
    made = wait(lab.branch(whole, "0.0.0", content="legs → 9"))
    assert model.calls[-1].messages[-1].content == "9"
    assert wait(lab.branch(whole, whole.best.id, content="27")).answer == "27"
    shown = 'No, the duck.\nlegs({"animal": "duck"})'  # as thoughts show a call
    made = wait(lab.branch(whole, "0.0", content=shown))
    assert (made.tree["0.0"].text, made.tree["0.0.0"].text) == (shown, "legs → 2")
    assert wait(made.replay()).identical
    made = wait(lab.branch(whole, "0.0", content="I know it by heart."))
    assert model.calls[-1].messages[1].content == "I know it by heart."
    assert made.tree["0.0"].children == ["0.0.0"]


# R13.


def test_the_plain_loop_ends_with_a_reply_without_a_call():
    model = Script(said(("legs", {"animal": "spider"}), ("teleport", {})), "So it is\nAnswer: 26")
    made = act(model, tl.ToolLoop())
    assert (made.answer, made.stop_reason, made.best.id) == ("26", "answered", "0.0.1.0")
    assert len(notes(made, "tool_loop.unknown_tool")) == 1
    assert [tool["name"] for tool in model.calls[0].tools] == ["legs", "web-search", "read"]
    assert [call.tool_choice for call in model.calls] == [None, None]


def test_the_plain_loop_ends_at_its_limit():
    endless = Script(said(("legs", {"animal": "spider"}), text="Answer: 8"))
    made = act(endless, tl.ToolLoop(max_tool_round_trips=2))
    assert (made.answer, made.stop_reason) == ("8", "limit:round_trips")
    assert [call.tool_choice for call in endless.calls] == [None, None, "none"]
    assert len(made.tools_df()) == 2
    assert run(tl.ToolLoop(), model=Script("Answer: 26")).answer == "26"  # a lab without tools


# M11.


@pytest.mark.parametrize("generate", ["sample", "propose"])
def test_the_proposer_of_a_search_may_ask_for_tools_first(generate):
    def reply(call):
        if call.purpose == generate and len(call.messages) == 1:
            return said(("legs", {"animal": "spider"}), ("teleport", {}))
        return answer_to(call)

    search = tl.TreeOfThoughts(
        propose=tl.WithTools(proposer=generate, tools=("legs",)),
        search=tl.BeamSearch(width=1),
        stop=tl.Stop(depth=2),
    )
    model = Scripted(reply)
    made = act(model, search)
    plain = act(Scripted(), search.with_(propose=search.propose.proposer))
    assert len(made.tree) > 3
    assert set(made.tools_df()["result"]) == {"8"}
    asked = [call for call in model.calls if call.purpose == generate]
    answers = [call.messages[-2:] for call in asked if len(call.messages) > 1]
    assert [len(asked), len(answers)] == [2 * len(answers), len(asked) // 2]
    assert all(turn[0].content == "8" and "no tool 'teleport'" in turn[1].content for turn in answers)
    assert all(call.tools == () for call in model.calls if call.purpose == "value")
    assert len(made.tools_df()) == len(answers)
    assert len(notes(made, "tot.unknown_tool")) == len(answers)
    assert wait(made.replay()).identical
    assert len(model.calls) <= search.max_calls(TASK)
    assert plain.usage.calls == sum(call.purpose == "value" for call in model.calls) + len(answers)


def test_a_proposer_stops_asking_at_its_limit():
    def reply(call):
        return said(("legs", {"animal": "spider"})) if call.purpose == "sample" else answer_to(call)

    search = tl.TreeOfThoughts(
        propose=tl.WithTools(proposer=tl.Sample(count=2), max_round_trips=2), stop=tl.Stop(depth=1)
    )
    model = Scripted(reply)
    made = act(model, search)
    assert [call.tool_choice for call in model.calls] == [None, None, None, None, "none", "none"]
    assert len(made.tools_df()) == 4
    assert (made.answer, len(notes(made, "parse.unreadable"))) == ("", 2)
    assert search.max_calls(TASK) == 2 * 3 + 2


# Providers.


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_native_tool_calls_of_each_provider(shared, family, monkeypatch):
    shared.forget()
    shared.will(
        Said(None, tools=(("legs", {"animal": "spider"}), ("legs", {"animal": "duck"})), finish="tool_calls"),
        Said("I look again.", tools=(("teleport", {}),), finish="tool_calls"),
        Said(None, tools=(final("26"),), finish="tool_calls"),
    )
    model = tl.LiteLLM(model=MODELS[family], api_base=shared.base(family), api_key="sk-1")
    made = wait(tl.Lab(model, runs=None, mode="off", tools=TOOLS).run(tl.ReAct(), TASK))
    assert (made.answer, made.stop_reason, made.usage.errors) == ("26", "answered", 0)
    asked = [request.json for request in shared.asked if request.family == family]
    assert len(asked) == 3
    assert all("final-answer" in json.dumps(request["tools"]) for request in asked)
    told = json.dumps(asked[2]["contents" if family == "gemini" else "messages"])
    for part in ("spider", "duck", "8", "teleport", "there is no tool", "I look again."):
        assert part in told


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_the_plain_loop_closes_with_each_provider(shared, family):
    shared.forget()
    shared.will(
        Said(None, tools=(("legs", {"animal": "duck"}),), finish="tool_calls"),
        Said("Answer: 26"),
    )
    model = tl.LiteLLM(model=MODELS[family], api_base=shared.base(family), api_key="sk-1")
    loop = tl.ToolLoop(max_tool_round_trips=1)
    made = wait(tl.Lab(model, runs=None, mode="off", tools=TOOLS).run(loop, TASK))
    assert (made.answer, made.stop_reason, made.usage.errors) == ("26", "answered", 0)
