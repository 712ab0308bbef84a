"""The published conventions for traces of language models: what of them the importer reads.

`tests/data/logs/conventions.txt` holds the names that the conventions' own packages define, with the script
that wrote it. Each name is read, which a case below shows, or listed as not read in the how-to.
"""

import json
import re
from fnmatch import fnmatchcase

import pytest
from support import ROOT

import tot_lab as tl

NAMES = [line.split()[1] for line in (ROOT / "tests/data/logs/conventions.txt").read_text().splitlines()]


def otlp(value):
    """A value as OTLP writes it."""
    if isinstance(value, list):
        return {"arrayValue": {"values": [otlp(each) for each in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": pairs(value)}}
    kind = {bool: "boolValue", int: "intValue", float: "doubleValue", str: "stringValue"}[type(value)]
    return {kind: str(value) if kind == "intValue" else value}


def pairs(attributes):
    return [{"key": name, "value": otlp(value)} for name, value in attributes.items()]


def sdk_trace(attributes, events, status):
    """A trace of one span as the SDK writes it."""
    return {
        "name": "span",
        "context": {"trace_id": "0x1", "span_id": "0x2"},
        "parent_id": None,
        "start_time": "2026-01-01T00:00:00Z",
        "end_time": "2026-01-01T00:00:01Z",
        "status": {"status_code": "ERROR" if status else "OK"},
        "attributes": attributes,
        "events": [{"name": name, "attributes": held} for name, held in events],
    }


def otlp_trace(attributes, events, status):
    """The same as the JSON of OTLP."""
    span = {
        "traceId": "1",
        "spanId": "2",
        "name": "span",
        "startTimeUnixNano": "1767225600000000000",
        "endTimeUnixNano": "1767225601000000000",
        "status": {"code": 2 if status else 1},
        "attributes": pairs(attributes),
        "events": [{"name": name, "attributes": pairs(held)} for name, held in events],
    }
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


def facts(run):
    """What a run of one span says: only what is known."""
    found = {"question": run.question, "answer": run.answer, "error": run.error}
    for line in run.lines:
        if isinstance(line.e, tl.Call):
            call = line.e
            found |= {"call": call.model, "purpose": call.purpose, "tools": list(call.tools)}
            found["prompt"] = [(message.role, message.content) for message in call.messages]
            found["prompt calls"] = [each for message in call.messages for each in message.tool_calls]
            found["results"] = [m.tool_call_id for m in call.messages if m.tool_call_id]
            for name in ("temperature", "max_tokens", "seed", "stop", "effort", "options"):
                found[name] = getattr(call, name)
        if isinstance(line.e, tl.Reply):
            reply = line.e
            found |= {"reply": reply.text, "model": reply.model, "calls": list(reply.tool_calls)}
            found |= {"in": reply.input_tokens, "out": reply.output_tokens, "cost": reply.cost}
            found |= {"finish": reply.finish_reason, "thinking": reply.thinking, "failed": reply.error}
    return {name: value for name, value in found.items() if value not in (None, "", [], (), {})}


def tool_call(id="c", name="add", arguments='{"x": 2}'):
    return tl.records.ToolCall(id, name, arguments)


LLM = {"openinference.span.kind": "LLM"}
CHAT = {"gen_ai.operation.name": "chat"}
ASKED = {"question": "Q?", "prompt": [("user", "Q?")]}
PLAIN = {"purpose": "ask"}
IN, OUT = "llm.input_messages.0.message", "llm.output_messages.0.message"
INPUT = [{"role": "user", "parts": [{"type": "text", "content": "Q?"}]}]
OUTPUT = [{"role": "assistant", "parts": [{"type": "text", "content": "A."}], "finish_reason": "stop"}]
ANSWERED = {"reply": "A.", "answer": "A."}
ADD = {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}
CALL = f"{OUT}.tool_calls.0.tool_call"
PARTS = [
    {"type": "reasoning", "content": "Hm."},
    {"type": "tool_call", "id": "c", "name": "add", "arguments": {"x": 2}},
]
PART, FIRST = f"{OUT}.contents.0.message_content", "gen_ai.completion.0"

CASES = {
    # OpenInference.
    "messages": (
        {
            **LLM,
            **{f"{IN}.role": "user", f"{IN}.content": "Q?"},
            **{f"{OUT}.role": "assistant", f"{OUT}.content": "A."},
        },
        {**PLAIN, **ASKED, **ANSWERED},
    ),
    "messages of several parts": (
        {
            **LLM,
            f"{OUT}.role": "assistant",
            **{f"{PART}.type": "reasoning", f"{PART}.text": "Hm."},
            f"{OUT}.contents.1.message_content.type": "text",
            f"{OUT}.contents.1.message_content.text": "A.",
            f"{OUT}.contents.2.message_content.type": "image",
            f"{OUT}.contents.2.message_content.image.image.url": "https://example.com",
        },
        {**PLAIN, "reply": "A.\n\n[image]", "answer": "A.\n\n[image]", "thinking": "Hm."},
    ),
    "tool calls": (
        {
            **LLM,
            f"{OUT}.role": "assistant",
            **{f"{CALL}.id": "c", f"{CALL}.function.name": "add", f"{CALL}.function.arguments": '{"x": 2}'},
        },
        {"purpose": "act", "calls": [tool_call()]},
    ),
    "tool calls among the parts": (
        {
            **LLM,
            f"{OUT}.role": "assistant",
            f"{PART}.type": "tool_use",
            f"{OUT}.contents.0.tool_call.id": "c",
            f"{OUT}.contents.0.tool_call.function.name": "add",
            f"{OUT}.contents.0.tool_call.function.arguments": '{"x": 2}',
        },
        {"purpose": "act", "calls": [tool_call()]},
    ),
    "the result of a tool": (
        {**LLM, f"{IN}.role": "tool", f"{IN}.content": "2", f"{IN}.tool_call_id": "c"},
        {**PLAIN, "prompt": [("tool", "2")], "results": ["c"]},
    ),
    "one function call, before there were tools": (
        {
            **LLM,
            f"{OUT}.role": "assistant",
            f"{OUT}.function_call_name": "add",
            f"{OUT}.function_call_arguments_json": '{"x": 2}',
        },
        {"purpose": "act", "calls": [tool_call(id="")]},
    ),
    "a completions API": (
        {**LLM, "llm.prompts.0.prompt.text": "Q?", "llm.choices.0.completion.text": "A."},
        {**PLAIN, **ASKED, **ANSWERED},
    ),
    "a list of prompts": ({**LLM, "llm.prompts": ["Q?"]}, {**PLAIN, **ASKED}),
    "tokens, cost and why the model stopped": (
        {
            **LLM,
            "llm.token_count.prompt": 11,
            "llm.token_count.completion": 7,
            "llm.token_count.prompt_details.cache_read": 5,
            "llm.token_count.completion_details.reasoning": 3,
            "llm.cost.total": 0.25,
            "llm.finish_reason": "length",
        },
        {**PLAIN, "in": 11, "out": 7, "cost": 0.25, "finish": "length"},
    ),
    "a cost in two parts": (
        {**LLM, "llm.token_count.prompt": 1, "llm.cost.prompt": 0.25, "llm.cost.completion": 0.5},
        {**PLAIN, "in": 1, "cost": 0.75},
    ),
    "half a cost": ({**LLM, "llm.token_count.prompt": 1, "llm.cost.prompt": 0.25}, {**PLAIN, "in": 1}),
    "a model": (
        {**LLM, "llm.token_count.prompt": 1, "llm.model_name": "m"},
        {**PLAIN, "in": 1, "call": "m", "model": "m"},
    ),
    "another model than was requested": (
        {
            **LLM,
            "llm.token_count.prompt": 1,
            **{"llm.request.model_name": "m", "llm.response.model_name": "m-1", "llm.model_name": "x"},
        },
        {**PLAIN, "in": 1, "call": "m", "model": "m-1"},
    ),
    "parameters": (
        {
            **LLM,
            "llm.invocation_parameters": json.dumps(
                {
                    **{"model": "m", "temperature": 0, "max_completion_tokens": 9, "seed": 4, "stop": ["#"]},
                    **{"top_p": 0.5, "reasoning_effort": "low", "user": "me"},
                }
            ),
        },
        {
            **{**PLAIN, "call": "m", "temperature": 0.0, "max_tokens": 9, "seed": 4, "stop": ("#",)},
            **{"options": {"top_p": 0.5}, "effort": "low"},
        },
    ),
    "tools": (
        {
            **LLM,
            "llm.tools.0.tool.json_schema": json.dumps({"type": "function", "function": ADD}),
            "llm.tools.1.tool.name": "mul",
            "llm.tools.1.tool.description": "Multiplies.",
        },
        {"purpose": "act", "tools": [ADD, {"name": "mul", "description": "Multiplies."}]},
    ),
    "a call of a tool": (
        {
            "openinference.span.kind": "TOOL",
            **{"tool.name": "add", "tool.parameters": '{"x": 2}', "output.value": "2"},
        },
        {"purpose": "tool", "call": "tool:add", "prompt": [("user", '{"x": 2}')], "reply": "2"},
    ),
    "a program": (
        {"openinference.span.kind": "CHAIN", "input.value": "Q?", "output.value": "A."},
        {"question": "Q?", "answer": "A."},
    ),
    # OpenTelemetry.
    "messages in JSON": (
        {**CHAT, "gen_ai.input.messages": json.dumps(INPUT), "gen_ai.output.messages": json.dumps(OUTPUT)},
        {**PLAIN, **ASKED, **ANSWERED, "finish": "stop"},
    ),
    "structured messages": (
        {**CHAT, "gen_ai.input.messages": INPUT, "gen_ai.output.messages": OUTPUT},
        {**PLAIN, **ASKED, **ANSWERED, "finish": "stop"},
    ),
    "parts that are no text": (
        {**CHAT, "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": PARTS}])},
        {"purpose": "act", "thinking": "Hm.", "calls": [tool_call()]},
    ),
    "names with dots in the arguments of a tool": (
        {
            **CHAT,
            "gen_ai.output.messages": json.dumps(
                [{"role": "assistant", "parts": [{**PARTS[1], "arguments": {"a.b": {"0.1": 2}}}]}]
            ),
        },
        {"purpose": "act", "calls": [tool_call(arguments='{"a.b": {"0.1": 2}}')]},
    ),
    "a system message of its own": (
        {
            **CHAT,
            "gen_ai.system_instructions": json.dumps([{"type": "text", "content": "Be brief."}]),
            "gen_ai.input.messages": json.dumps(INPUT),
        },
        {**PLAIN, "question": "Q?", "prompt": [("system", "Be brief."), ("user", "Q?")]},
    ),
    "settings": (
        {
            **CHAT,
            "gen_ai.request.model": "m",
            "gen_ai.request.temperature": 0.0,
            "gen_ai.request.max_tokens": 9,
            "gen_ai.request.seed": 4,
            "gen_ai.request.stop_sequences": ["#"],
            **{"gen_ai.request.top_p": 0.5, "gen_ai.request.top_k": 40.0},
            **{"gen_ai.request.frequency_penalty": 0.1, "gen_ai.request.presence_penalty": 0.2},
        },
        {
            **{**PLAIN, "call": "m", "temperature": 0.0, "max_tokens": 9, "seed": 4, "stop": ("#",)},
            "options": {"top_p": 0.5, "top_k": 40.0, "frequency_penalty": 0.1, "presence_penalty": 0.2},
        },
    ),
    "usage": (
        {
            **CHAT,
            **{"gen_ai.request.model": "m", "gen_ai.response.model": "m-1"},
            **{"gen_ai.usage.input_tokens": 11, "gen_ai.usage.output_tokens": 7},
            "gen_ai.usage.cache_read.input_tokens": 5,
            "gen_ai.usage.reasoning.output_tokens": 3,
            "gen_ai.response.finish_reasons": ["length"],
        },
        {**PLAIN, "call": "m", "model": "m-1", "in": 11, "out": 7, "finish": "length"},
    ),
    "usage by its older names": (
        {**CHAT, "gen_ai.usage.prompt_tokens": 11, "gen_ai.usage.completion_tokens": 7},
        {**PLAIN, "in": 11, "out": 7},
    ),
    "tool definitions": (
        {**CHAT, "gen_ai.tool.definitions": json.dumps([{"type": "function", **ADD}])},
        {"purpose": "act", "tools": [{"type": "function", **ADD}]},
    ),
    "an executed tool": (
        {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "add",
            **{"gen_ai.tool.call.arguments": '{"x": 2}', "gen_ai.tool.call.result": "2"},
        },
        {"purpose": "tool", "call": "tool:add", "prompt": [("user", '{"x": 2}')], "reply": "2"},
    ),
    "an agent with messages": (
        {
            "gen_ai.operation.name": "invoke_agent",
            **{"gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 11},
            "gen_ai.input.messages": json.dumps(INPUT),
            "gen_ai.output.messages": json.dumps(OUTPUT),
        },
        {"question": "Q?", "answer": "A."},
    ),
    # OpenLLMetry.
    "numbered messages": (
        {
            **{"gen_ai.request.model": "m", "llm.request.type": "chat"},
            **{"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "Q?"},
            **{f"{FIRST}.role": "assistant", f"{FIRST}.content": "A.", f"{FIRST}.finish_reason": "stop"},
            **{f"{FIRST}.tool_calls.0.id": "c", f"{FIRST}.tool_calls.0.name": "add"},
            f"{FIRST}.tool_calls.0.arguments": '{"x": 2}',
        },
        {
            **{**ASKED, **ANSWERED, "purpose": "act", "call": "m", "model": "m", "finish": "stop"},
            "calls": [tool_call()],
        },
    ),
    "more than ten messages": (
        {
            **CHAT,
            **{f"gen_ai.prompt.{k}.role": "user" for k in range(11)},
            **{f"gen_ai.prompt.{k}.content": f"Q{k}?" for k in range(11)},
        },
        {**PLAIN, "question": "Q10?", "prompt": [("user", f"Q{k}?") for k in range(11)]},
    ),
    "functions": (
        {
            **CHAT,
            **{"llm.request.functions.0.name": "add", "llm.request.functions.0.description": "Adds."},
            "llm.request.functions.0.parameters": '{"type": "object"}',
        },
        {"purpose": "act", "tools": [ADD]},
    ),
    "a workflow": (
        {
            **{"traceloop.span.kind": "workflow", "traceloop.entity.name": "w"},
            **{"traceloop.entity.input": "Q?", "traceloop.entity.output": "A."},
        },
        {"question": "Q?", "answer": "A."},
    ),
    "a tool of a workflow": (
        {
            **{"traceloop.span.kind": "tool", "traceloop.entity.name": "add"},
            **{"traceloop.entity.input": '{"x": 2}', "traceloop.entity.output": "2"},
        },
        {"purpose": "tool", "call": "tool:add", "prompt": [("user", '{"x": 2}')], "reply": "2"},
    ),
    "an embedding is no reply": ({"gen_ai.request.model": "m", "llm.request.type": "embedding"}, {}),
    **{
        f"why the model stopped: {name}": (
            {**CHAT, "gen_ai.usage.input_tokens": 1, name: "length"},
            {**PLAIN, "in": 1, "finish": "length"},
        )
        for name in (
            *("gen_ai.response.finish_reason", "gen_ai.response.stop_reason"),
            *("llm.response.finish_reason", "llm.response.stop_reason"),
        )
    },
    "further settings": (
        {**CHAT, "gen_ai.request.max_completion_tokens": 9, "gen_ai.request.reasoning_effort": "low"},
        {**PLAIN, "max_tokens": 9, "effort": "low"},
    ),
}


FIELDS = ("name", "score", "label", "explanation", "annotator_kind", "identifier", "metadata")
FEEDBACK = {
    "annotations": {"annotations.0.annotation.name": "correctness", "annotations.0.annotation.score": 1},
    "evaluations": {
        "evaluations.0.evaluation.name": "style",
        "evaluations.0.evaluation.score": 0.5,
        "evaluations.1.evaluation.name": "correctness",
        "evaluations.1.evaluation.score": 0.0,
    },
    "of the trace": {
        "trace.annotations.0.annotation.name": "correctness",
        "trace.annotations.0.annotation.score": 0.25,
        "trace.evaluations.0.evaluation.name": "style",
        "trace.evaluations.0.evaluation.label": "terse",
    },
    "all fields": {f"annotations.0.annotation.{name}": "x" for name in FIELDS}
    | {f"evaluations.0.evaluation.{name}": "y" for name in FIELDS},
    "no number from 0 to 1": {
        "evaluations.0.evaluation.name": "correctness",
        "evaluations.0.evaluation.score": 7,
        "evaluations.0.evaluation.label": "correct",
        "evaluations.0.evaluation.explanation": "It is.",
        "evaluations.0.evaluation.annotator_kind": "LLM",
    },
}
SCORES = {
    "annotations": (1.0, {"correctness": {"score": 1}}),
    "evaluations": (0.0, {"style": {"score": 0.5}, "correctness": {"score": 0.0}}),
    "of the trace": (0.25, {"correctness": {"score": 0.25}, "style": {"label": "terse"}}),
    "all fields": (None, {value: dict.fromkeys(FIELDS[1:], value) for value in "xy"}),
    "no number from 0 to 1": (
        None,
        {
            "correctness": {
                **{"score": 7, "label": "correct", "explanation": "It is.", "annotator_kind": "LLM"},
            }
        },
    ),
}
PROGRAM = {"openinference.span.kind": "CHAIN", "input.value": "Q?", "output.value": "A."}


def notes_of(run):
    return {event.name: event.data for event in run.events if isinstance(event, tl.Note)}


def graded(folder, attributes, events=(), trace=sdk_trace):
    (folder / "trace.jsonl").write_text(json.dumps(trace({**PROGRAM, **attributes}, events, None)))
    [run] = tl.load(folder / "trace.jsonl")
    return run


@pytest.mark.parametrize("trace", [sdk_trace, otlp_trace])
@pytest.mark.parametrize("case", FEEDBACK)
def test_feedback_about_the_root_or_the_trace_grades_the_run(case, trace, tmp_path):
    grade, scores = SCORES[case]
    run = graded(tmp_path, FEEDBACK[case], trace=trace)
    assert run.grade == grade
    assert notes_of(run)["imported.scores"] == scores


def test_an_evaluation_in_an_event_grades_the_run(tmp_path):
    result = {"gen_ai.evaluation.name": "correctness", "gen_ai.evaluation.score.value": 1.0}
    result |= {"gen_ai.evaluation.score.label": "yes", "gen_ai.evaluation.explanation": "It is."}
    run = graded(tmp_path, {}, [("gen_ai.evaluation.result", result)])
    assert run.grade == 1.0
    scores = {"correctness": {"score": 1.0, "label": "yes", "explanation": "It is."}}
    assert notes_of(run)["imported.scores"] == scores


def load(folder, attributes, events=(), status=None, trace=sdk_trace):
    path = folder / "trace.jsonl"
    path.write_text(json.dumps(trace(attributes, events, status)))
    [run] = tl.load(path)
    return facts(run)


@pytest.mark.parametrize("trace", [sdk_trace, otlp_trace])
@pytest.mark.parametrize("case", CASES)
def test_attributes_are_read(case, trace, tmp_path):
    attributes, expected = CASES[case]
    assert load(tmp_path, attributes, trace=trace) == expected


def event(role, **fields):
    return f"gen_ai.{role}.message", {"gen_ai.event.content": json.dumps(fields)}


EVENTS = {
    "the details of an operation": (
        [
            (
                "gen_ai.client.inference.operation.details",
                {
                    "gen_ai.input.messages": json.dumps(INPUT),
                    "gen_ai.output.messages": json.dumps(OUTPUT),
                    "gen_ai.usage.input_tokens": 11,
                },
            )
        ],
        {**ASKED, **ANSWERED, "finish": "stop", "in": 11},
    ),
    "a prompt and a completion (1.27)": (
        [
            ("gen_ai.content.prompt", {"gen_ai.prompt": '[{"role": "user", "content": "Q?"}]'}),
            (
                "gen_ai.content.completion",
                {"gen_ai.completion": '[{"role": "assistant", "content": "A."}]'},
            ),
        ],
        {**ASKED, **ANSWERED},
    ),
    "an event for each message (1.28 to 1.36)": (
        [
            event("system", content="Be brief."),
            event("user", content="Q?"),
            event(
                "assistant",
                tool_calls=[
                    {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"x": 2}'}}
                ],
            ),
            event("tool", content="2", id="c"),
            (
                "gen_ai.choice",
                {
                    "gen_ai.event.content": json.dumps(
                        {"index": 0, "finish_reason": "stop", "message": {"content": "A."}}
                    )
                },
            ),
        ],
        {
            "question": "Q?",
            "prompt": [("system", "Be brief."), ("user", "Q?"), ("assistant", ""), ("tool", "2")],
            "prompt calls": [tool_call()],
            "results": ["c"],
            **{**ANSWERED, "finish": "stop"},
        },
    ),
    "an attribute for each field of a message": (
        [
            ("gen_ai.user.message", {"role": "user", "content": "Q?"}),
            ("gen_ai.choice", {"index": 0, "finish_reason": "stop", "message": "A."}),
        ],
        {**ASKED, **ANSWERED, "finish": "stop"},
    ),
    "a text": (
        [("gen_ai.user.message", {"gen_ai.event.content": "Q?"})],
        ASKED,
    ),
}


@pytest.mark.parametrize("trace", [sdk_trace, otlp_trace])
@pytest.mark.parametrize("case", EVENTS)
def test_messages_in_events_are_read(case, trace, tmp_path):
    events, expected = EVENTS[case]
    assert load(tmp_path, CHAT, events, trace=trace) == {**PLAIN, **expected}


def test_messages_in_attributes_come_before_those_in_events(tmp_path):
    events = [event("user", content="another")]
    assert load(tmp_path, {**CHAT, "gen_ai.input.messages": json.dumps(INPUT)}, events) == {**PLAIN, **ASKED}


EXCEPTION = ("exception", {"exception.type": "TimeoutError", "exception.message": "too slow"})


@pytest.mark.parametrize("trace", [sdk_trace, otlp_trace])
@pytest.mark.parametrize(
    ("attributes", "events", "error"),
    [
        ({}, [EXCEPTION], "TimeoutError: too slow"),
        ({"error.type": "timeout"}, [EXCEPTION], "TimeoutError: too slow"),
        ({"error.type": "timeout"}, [], "timeout"),
        ({}, [], "error"),
    ],
)
def test_why_a_span_failed(attributes, events, error, trace, tmp_path):
    found = load(tmp_path, {**CHAT, **attributes}, events, "ERROR", trace)
    assert found == {**PLAIN, "failed": error, "error": error}
    # An exception that was caught is no failure.
    assert load(tmp_path, {**CHAT, **attributes}, events, trace=trace) == PLAIN


def test_each_published_name_is_read_or_listed_as_not_read():
    parts = {"exception.type", "exception.message", "error.type"}
    parts |= {f"gen_ai.evaluation.{name}" for name in ("name", "score.value", "score.label", "explanation")}
    for attributes in [*(attributes for attributes, _ in CASES.values()), *FEEDBACK.values()]:
        for name in attributes:
            parts |= set(re.split(r"\.\d+\.", name))
    parts -= {"llm.token_count.prompt_details.cache_read", "llm.token_count.completion_details.reasoning"}
    text = (ROOT / "docs/how-to/other_logs.md").read_text()
    section = text.split("### What of a trace is read")[1].split("\n## ")[0]
    read, unread = (set(re.findall(r"`([^`]+)`", half)) for half in section.split("Not read"))
    assert {name for name in read if "*" not in name} <= parts | {"exception", "gen_ai.evaluation.result"}
    for name in NAMES:
        is_unread = any(fnmatchcase(name, pattern) for pattern in unread)
        assert name in parts or is_unread, name
    for pattern in unread:  # none is out of date
        assert any(fnmatchcase(name, pattern) for name in NAMES), pattern
