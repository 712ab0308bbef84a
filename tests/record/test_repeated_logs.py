"""Logs that repeat themselves: null fields, spans sent twice, messages replaced under their id."""

import json

import pytest
from support import ROOT

import tot_lab as tl

LOGS = ROOT / "tests/data/logs"


def loaded(folder, *entries):
    (folder / "log.jsonl").write_text("\n".join(map(json.dumps, entries)))
    return tl.load(folder / "log.jsonl")


def text(value):
    return {"stringValue": value}


def span(**more):
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.input.messages": '[{"role": "user", "content": "Q?"}]',
        "gen_ai.output.messages": '[{"role": "assistant", "content": "A."}]',
    }
    pairs = [{"key": name, "value": text(value)} for name, value in attributes.items()]
    return {"traceId": "1", "spanId": "2", "name": "chat", "attributes": pairs, **more}


def batch(*spans):
    return {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}


def answers(runs):
    return [
        (run.question, run.answer, sum(isinstance(event, tl.Call) for event in run.events)) for run in runs
    ]


OPTIONAL = ("name", "parentSpanId", "startTimeUnixNano", "endTimeUnixNano", "events", "status")
NULLS = {
    **{name: batch(span(**{name: None})) for name in OPTIONAL},
    "all of them": batch(span(**dict.fromkeys(OPTIONAL))),
    "the status": batch(span(status={"code": None, "message": None})),
    "an event": batch(span(events=[{"name": None, "attributes": None}])),
    "a value": batch(span(attributes=[*span()["attributes"], {"key": "x", "value": None}])),
    "a kind of value": batch(
        span(
            attributes=[
                {"key": each["key"], "value": {"intValue": None, **each["value"], "boolValue": None}}
                for each in span()["attributes"]
            ]
        )
    ),
    "the items of a value": batch(
        span(attributes=[*span()["attributes"], {"key": "x", "value": {"arrayValue": {"values": [None]}}}])
    ),
    "the name of a value": batch(span(attributes=[*span()["attributes"], {"key": None, "value": None}])),
    "a list of values": batch(
        span(attributes=[*span()["attributes"], {"key": "x", "value": {"arrayValue": None}}])
    ),
    "a scope": {"resourceSpans": [{"scopeSpans": [{"spans": None}, {"spans": [span()]}]}]},
    "a resource": {"resourceSpans": [{"scopeSpans": None}, *batch(span())["resourceSpans"]]},
}


@pytest.mark.parametrize("name", NULLS)
def test_a_field_of_otlp_may_be_null(name, tmp_path):
    assert answers(loaded(tmp_path, NULLS[name])) == [("Q?", "A.", 1)]


def test_a_span_without_its_id_is_refused(tmp_path):
    with pytest.raises(tl.errors.JournalError, match=r"log.jsonl, entry 1: .*spanId"):
        loaded(tmp_path, batch(span(spanId=None)))


@pytest.mark.parametrize(
    "entries",
    [
        [batch(span(), span())],
        [batch(span()), batch(span())],
        [
            batch(span(), span(attributes=span()["attributes"][::-1])),
            batch(span(parentSpanId=None, status=None)),
        ],
        [batch(span(startTimeUnixNano=5)), batch(span(startTimeUnixNano="5", name="chat", events=None))],
    ],
)
def test_equal_spans_are_one(entries, tmp_path):
    """An exporter sends a batch again whose receipt it has not heard of."""
    assert answers(loaded(tmp_path, *entries)) == [("Q?", "A.", 1)]


def test_spans_of_two_traces_may_have_one_id(tmp_path):
    assert len(loaded(tmp_path, batch(span(), span(traceId="7")))) == 2


def test_different_spans_of_one_id_are_refused(tmp_path):
    with pytest.raises(tl.errors.JournalError):
        loaded(tmp_path, batch(span(), span(startTimeUnixNano=7_000_000_000)))


# LangGraph.


def ai(text, id="m1", **more):
    return {"type": "ai", "id": id, "content": text, **more}


ASKED = {"type": "human", "id": "q", "content": "Q?"}


def state(number, parent, *messages):
    place = {"checkpoint_id": f"c{number}", "thread_id": "t"}
    above = {"checkpoint_id": f"c{parent}", "thread_id": "t"} if parent else None
    return {
        "values": {"messages": [ASKED, *messages]},
        "next": [],
        "checkpoint": place,
        "parent_checkpoint": above,
        "created_at": f"2026-01-01T00:00:0{number}Z",
    }


def texts(run):
    return {node.id: node.text for node in run.tree}


def test_a_message_that_is_replaced_under_its_id_shows_its_last_text(tmp_path):
    states = [
        state(1, 0),
        state(2, 1, ai("A dra")),
        state(3, 2, ai("A draft.")),
        state(4, 3, ai("The answer."), ai("Thanks.", "m2")),
    ]
    for order in (states, states[::-1]):
        [run] = loaded(tmp_path, *order)
        assert texts(run) == {"0": "Q?", "0.0": "The answer.", "0.0.0": "Thanks."}
        assert [event.text for event in run.events if isinstance(event, tl.Reply)] == [
            "The answer.",
            "Thanks.",
        ]


def test_a_replaced_reply_is_the_answer_and_a_replaced_question_is_asked(tmp_path):
    last = state(3, 2, ai("The answer."))
    last["values"]["messages"][0] = {**ASKED, "content": "Which?"}
    [run] = loaded(tmp_path, state(1, 0), state(2, 1, ai("A draft.")), last)
    assert (run.question, run.answer) == ("Which?", "The answer.")


def test_tools_that_a_replaced_reply_calls_belong_to_it(tmp_path):
    call = {"id": "t1", "name": "add", "args": {"a": 1}}
    result = {"type": "tool", "id": "r", "tool_call_id": "t1", "content": "3"}
    whole = ai("I add.", tool_calls=[call])
    [run] = loaded(tmp_path, state(1, 0, ai("I")), state(2, 1, whole), state(3, 2, whole, result))
    [call] = [event for event in run.events if isinstance(event, tl.Call) and event.purpose == "tool"]
    assert (call.node, call.prompt, texts(run)["0.0"]) == ("0.0", '{"a": 1}', "I add.")


def test_a_fork_that_replaces_a_reply_is_a_branch_beside_it(tmp_path):
    [run] = loaded(
        tmp_path,
        state(1, 0, ai("A draft.")),
        state(2, 1, ai("A draft."), ai("Done.", "m2")),
        state(3, 1, ai("An edit.")),
        state(4, 3, ai("Another edit."), ai("Done again.", "m3")),
    )
    assert texts(run) == {
        "0": "Q?",
        "0.0": "A draft.",
        "0.0.0": "Done.",
        "0.1": "Another edit.",
        "0.1.0": "Done again.",
    }


def test_messages_without_ids_are_not_replaced(tmp_path):
    """Their places shift when the state is trimmed."""
    draft, later = ({"type": "ai", "content": words} for words in ("A draft.", "The next."))
    [run] = loaded(tmp_path, state(1, 0, draft), state(2, 1, later))
    assert texts(run)["0.0"] == "A draft."


@pytest.mark.parametrize("reason", ["max_tokens", "MAX_TOKENS", "length", "model_context_window_exceeded"])
def test_a_truncated_reply_of_a_log_is_counted(reason, tmp_path):
    about = {"response_metadata": {"stop_reason": reason}}
    [run] = loaded(tmp_path, state(1, 0), state(2, 1, ai("A.", **about)))
    assert run.diagnostics["cut_off_replies"] == 1
