"""A run that was sent as spans, and was exported by the receiver, is loaded as the same run."""

import json
import random

import msgspec
import pytest
from support import GOLDEN, SETTINGS, STRATEGIES, TASK, Scripted, for_each, run, wait
from support.otlp import otlp_of

import tot_lab as tl
from tot_lab.core.calls import Call, Message, Reply, ToolCall
from tot_lab.testing import legs

LEFT_OUT = {"logprobs": (), "surprisals": (), "confidences": (), "provider_state": "", "raw_text": ""}
"""What spans do not hold of a reply."""


def comparable(run):
    """The lines of a run without what spans do not hold."""
    found = []
    for line in run.lines:
        if isinstance(line.e, Reply):
            line = msgspec.structs.replace(line, e=msgspec.structs.replace(line.e, **LEFT_OUT))
        elif isinstance(line.e, Call):
            messages = tuple(msgspec.structs.replace(one, provider_state="") for one in line.e.messages)
            line = msgspec.structs.replace(line, e=msgspec.structs.replace(line.e, messages=messages))
        found.append(line)
    return json.loads(msgspec.json.encode(found))  # in a file, tuples are lists


def loaded(folder, *runs, change=lambda trace: trace):
    path = folder / "trace.json"
    path.write_text(json.dumps(change(otlp_of(*runs))))
    return tl.load(path)


def expect_equal(made, again):
    assert comparable(again) == comparable(made)
    assert again.tree == made.tree
    assert (again.id, again.question, again.answer) == (made.id, made.question, made.answer)
    assert again.usage == made.usage
    assert again.header.strategy == json.loads(json.dumps(made.header.strategy))


def test_a_run_of_each_strategy_is_the_same(tmp_path):
    def check(kind):
        model = Scripted()
        made = wait(tl.Lab(model, runs=None, tools=[legs]).run(kind(**SETTINGS.get(kind, {})), TASK))
        (again,) = loaded(tmp_path, made)
        expect_equal(made, again)
        assert again.grade == made.grade

    for_each(STRATEGIES, check)


def test_merged_searches_and_runs_beside_each_other_are_the_same(tmp_path):
    search = tl.TreeOfThoughts(merge=True, search=tl.BeamSearch(width=3))
    made = [run(search, task, "sim/game24") for task in tl.game24_tasks(3)]
    assert any(node.merged for one in made for node in one.tree)

    def mixed(trace):
        random.Random(0).shuffle(trace["resourceSpans"][0]["scopeSpans"][0]["spans"])
        return trace

    again = loaded(tmp_path, *made, change=mixed)
    found = {run.id: run for run in again}
    assert len(again) == len(found) == len(made)
    for one in made:
        expect_equal(one, found[one.id])


def test_journals_of_earlier_versions_are_the_same(tmp_path):
    def check(path):
        made = tl.load(path)
        (again,) = loaded(tmp_path, made)
        expect_equal(made, again)

    for_each(sorted(GOLDEN.glob("*.jsonl")), check)


def test_texts_tool_calls_and_links_are_the_same(tmp_path):
    odd = "line\u2028separator, \x85, tabs\t, “quotes” \\ and 🜁\n\n\n"
    recorder = tl.Recorder("by hand")
    root = recorder.thought(odd)
    a, b = (recorder.thought(f"{odd} {k}", root) for k in range(2))
    made_of = recorder.thought("", a, source=[b], depends=[a, b])
    recorder.call(a, odd, Reply(odd, thinking=f"why? {odd}", input_tokens=3, output_tokens=0, cost=0.25))
    wanted = (ToolCall("c1", "look-up", '{"a": "é"}'), ToolCall("c2", "look-up", "not JSON"))
    recorder.call(b, "ask", Reply("", tool_calls=wanted, finish_reason="tool_calls"))
    recorder.call(b, "ask", Reply(error="timeout after 3 s"))
    recorder.call(b, "ask", Reply("[1]", model="another/model"))
    recorder.score(a, 0.125, samples=[0.25, None], by="vote")
    recorder.score(a, 0.5)
    recorder.score(b, None)
    recorder.decide(b, "merged", "same state", other=a)
    recorder.note("mine", a, numbers=[1, 2], text=odd)
    recorder.note("elsewhere", "no thought", seen=True)
    recorder.end("done", node=made_of)
    (again,) = loaded(tmp_path, recorder.run)
    expect_equal(recorder.run, again)


def test_conversations_with_tools_are_the_same(tmp_path):
    spec = {"name": "look-up", "description": "Finds it.", "parameters": {"type": "object", "properties": {}}}
    asked = ToolCall("c1", "look-up", "{}")
    messages = (
        Message("system", "Be brief."),
        Message("user", ""),
        Message("assistant", "", (asked,)),
        Message("tool", '{"found": [1]}', tool_call_id="c1"),
        Message("assistant", "text and call", (asked, asked)),
        Message("tool", "", tool_call_id="c1"),
    )
    more = {"temperature": 0.5, "max_tokens": 7, "stop": ("\n",), "seed": 2**70, "options": {"top_p": 0.9}}

    class Asks(tl.Strategy):
        kind = "tests/asks"

        def think(self, task, at="0"):
            yield tl.Thought(at, None, task.question)
            reply = yield from tl.ask(Call(at, "act", messages, tools=(spec,), effort="low", **more))
            return tl.Answer(reply.text, "answered", at)

    made = run(Asks())
    (again,) = loaded(tmp_path, made)
    expect_equal(made, again)
    assert again.lines[1].e.messages == messages


@pytest.mark.parametrize("form", ["sdk", "phoenix"])
def test_other_forms_of_the_same_spans_are_the_same(tmp_path, form):
    made = run(tl.TreeOfThoughts(), tl.game24("4 9 10 13"), "sim/game24")

    def plain(value):
        ((kind, held),) = value.items()
        if kind == "arrayValue":
            return [plain(each) for each in held["values"]]
        return int(held) if kind == "intValue" else held

    def changed(trace):
        rows = []
        for span in trace["resourceSpans"][0]["scopeSpans"][0]["spans"]:
            row = {
                "name": span["name"],
                "context": {"trace_id": span["traceId"], "span_id": span["spanId"]},
                "parent_id": span["parentSpanId"] or None,
                "start_time": "2026-01-01T00:00:00Z",
                "end_time": "2026-01-01T00:00:01Z",
                "attributes": {pair["key"]: plain(pair["value"]) for pair in span["attributes"]},
                "events": [],
            }
            rows.append(row if form == "sdk" else {**row, "status_code": "OK", "span_kind": "LLM"})
        return rows if form == "sdk" else {"data": rows}

    (again,) = loaded(tmp_path, made, change=changed)
    expect_equal(made, again)


def spans_in(trace):
    return trace["resourceSpans"][0]["scopeSpans"][0]["spans"]


def made_here():
    return run(tl.TreeOfThoughts(), tl.game24("4 9 10 13"), "sim/game24")


def test_a_missing_span_is_an_error(tmp_path):
    made = made_here()
    for lost in range(1, len(spans_in(otlp_of(made))) - 1, 5):

        def without(trace, lost=lost):
            del spans_in(trace)[lost]
            return trace

        with pytest.raises(tl.errors.JournalError, match=r"trace \w{32}: \d+ of the \d+ records .* missing"):
            loaded(tmp_path, made, change=without)


def test_without_the_span_of_the_run_each_span_is_a_node(tmp_path):
    """A collector was asked before the run had ended."""
    made = made_here()

    def only_calls(trace):
        spans = spans_in(trace)
        spans[:] = [span for span in spans if span["name"].startswith("chat")]
        return trace

    (again,) = loaded(tmp_path, made, change=only_calls)
    assert len(again.tree) == made.usage.calls + 1
    assert again.answer == ""


def test_texts_of_model_calls_are_only_in_the_attributes_of_the_conventions(tmp_path):
    """They are most of a journal, and would be sent once more."""
    text = "only in a prompt"
    recorder = tl.Recorder("by hand")
    root = recorder.thought("question")
    wanted = (ToolCall("", text, ""),)
    recorder.call(root, text, Reply(f"{text} too", thinking=text, tool_calls=wanted))
    recorder.end("done", node=root)
    for span in spans_in(otlp_of(recorder.run)):
        for pair in span["attributes"]:
            assert text not in str(pair["value"]) or pair["key"].startswith(
                ("gen_ai.", "llm.", "input.", "output.")
            )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tot_lab.lines", {"stringValue": "no JSON"}),
        ("tot_lab.lines", {"intValue": "3"}),
        ("tot_lab.numbers", {"stringValue": "0"}),
        ("tot_lab.header", {"stringValue": "{}"}),
        ("tot_lab.header", {"stringValue": '{"tot_lab":99,"version":"9.0"}'}),
        ("tot_lab.count", {"stringValue": "many"}),
        ("tot_lab.count", {"intValue": str(2**62)}),
    ],
)
def test_a_damaged_attribute_is_an_error_that_names_the_file(tmp_path, name, value):
    def damaged(trace):
        (pair, *_) = [p for span in spans_in(trace)[::-1] for p in span["attributes"] if p["key"] == name]
        pair["value"] = value
        return trace

    with pytest.raises(tl.errors.JournalError, match=r"trace\.json, "):
        loaded(tmp_path, made_here(), change=damaged)
