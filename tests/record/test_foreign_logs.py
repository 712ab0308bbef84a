"""Importers of the logs of other tools, on logs that these tools wrote (`tests/data/logs`, with scripts)."""

import asyncio
import io
import json
import random
import sys
import zipfile
from decimal import Decimal
from types import SimpleNamespace

import msgspec
import numpy as np
import pandas as pd
import pytest
from support import DATA
from support.browser import offline_pages, soon

import tot_lab as tl
from tot_lab.analysis.tables import placed
from tot_lab.apps.cli import main

LOGS = DATA / "logs"
ENDINGS = (".eval", ".json", ".jsonl", ".parquet")
FILES = sorted(path.name for path in LOGS.iterdir() if path.suffix in ENDINGS)


def calls_of(run, tool=False):
    """The calls of models (or tools) and their replies, in the order of the record."""
    replies = {line.p: line.e for line in run.lines if isinstance(line.e, tl.Reply)}
    calls = [(line.e, replies.get(line.p)) for line in run.lines if isinstance(line.e, tl.Call)]
    return [(call, reply) for call, reply in calls if (call.purpose == "tool") == tool]


def chat(call):
    return [(message.role, message.content) for message in call.messages]


def notes_of(run):
    return {event.name: event.data for event in run.events if isinstance(event, tl.Note)}


def texts_of(run):
    return {node.id: node.text for node in run.tree}


# Inspect.


def test_an_archive_of_inspect_gives_a_run_per_sample_with_its_calls_and_verdict():
    right, wrong, failed = tl.load(LOGS / "inspect.eval")
    assert [run.task.id for run in (right, wrong, failed)] == ["sum", "wrong", "zero"]
    assert [run.question for run in (right, wrong)] == ["What is 2 + 3?", "What is 7 - 4?"]
    assert right.task.data == {"target": "5", "metadata": {"level": 1}}
    assert texts_of(right) == {"0": "What is 2 + 3?", "0.0": "I add them.", "0.0.0": "ANSWER: 5"}
    (first, asked), (second, answered) = calls_of(right)
    assert chat(first) == [("user", "What is 2 + 3?")]
    assert chat(second) == [
        ("user", "What is 2 + 3?"),
        ("assistant", "I add them."),
        ("tool", "5"),
    ]
    assert second.messages[1].tool_calls == asked.tool_calls
    assert second.messages[2].tool_call_id == asked.tool_calls[0].id
    assert [tool["name"] for tool in first.tools] == ["add"]
    assert (asked.input_tokens, asked.output_tokens, asked.model) == (20, 5, "mockllm/model")
    assert (answered.input_tokens, answered.output_tokens, answered.finish_reason) == (30, 3, "stop")
    assert right.usage.input_tokens == 50
    [(call, result)] = calls_of(right, tool=True)
    assert (call.node, call.model, json.loads(call.prompt)) == ("0.0", "tool:add", {"x": 2, "y": 3})
    assert (result.text, result.tool) == ("5", "add")
    assert (right.answer, right.grade, wrong.answer, wrong.grade) == ("ANSWER: 5", 1.0, "ANSWER: 4", 0.0)
    assert right.best.id == "0.0.0"
    scores = notes_of(right)["imported.scores"]
    assert scores["match"]["value"] == "C"
    assert scores["brevity"]["value"] == pytest.approx(1 / 3)
    # A scorer knows the target. It is not an evaluator of the search.
    assert [node.score for node in right.tree] == [None] * 3
    assert (failed.stop_reason, failed.error) == ("error", "ValueError('there is no zero')")
    assert failed.grade is None
    assert failed.usage.calls == 0
    assert right.header.unknown == failed.header.unknown == ()
    assert 0 < right.seconds < 60
    assert right.header.started.startswith("2026-")


def test_a_json_log_of_inspect_reads_as_its_archive_does():
    [run] = tl.load(LOGS / "inspect.json")
    other = tl.load(LOGS / "inspect.eval")[1]
    assert texts_of(run) == texts_of(other)
    assert [chat(call) for call, _ in calls_of(run)] == [chat(call) for call, _ in calls_of(other)]
    assert (run.grade, run.task) == (other.grade, other.task)


def without_transcript(samples):
    return [{**sample, "events": []} for sample in samples]


def test_a_log_without_a_transcript_keeps_the_replies_and_says_what_it_lacks(tmp_path):
    log = json.loads((LOGS / "inspect.json").read_text())
    log["samples"] = without_transcript(log["samples"])
    (tmp_path / "log.json").write_text(json.dumps(log))
    [run] = tl.load(tmp_path / "log.json")
    assert texts_of(run) == {"0": "What is 7 - 4?", "0.0": "ANSWER: 4"}
    assert set(run.header.unknown) == {"prompts", "times", "calls"}
    assert run.usage.input_tokens is None
    assert (run.answer, run.grade) == ("ANSWER: 4", 0.0)


def test_attachments_and_pooled_messages_are_put_back(tmp_path):
    log = json.loads((LOGS / "inspect.json").read_text())
    [sample] = log["samples"]
    key = "a" * 32
    sample["attachments"] = {key: "What is 7 - 4?"}
    sample["input"][0]["content"] = f"attachment://{key}"
    assert all(not event["input"] for event in sample["events"] if event["event"] == "model")
    sample["events_data"]["messages"][0]["content"] = f"attachment://{key}"
    (tmp_path / "log.json").write_text(json.dumps(log))
    [run] = tl.load(tmp_path / "log.json")
    assert run.question == "What is 7 - 4?"
    assert [chat(call) for call, _ in calls_of(run)] == [[("user", "What is 7 - 4?")]]


@pytest.mark.parametrize(
    ("value", "grade"), [("P", 0.5), ("N", 0.0), (True, 1.0), (0.25, 0.25), (7, None), ("?", None)]
)
def test_only_scores_from_0_to_1_are_grades(tmp_path, value, grade):
    log = json.loads((LOGS / "inspect.json").read_text())
    log["samples"][0]["scores"]["match"]["value"] = value
    (tmp_path / "log.json").write_text(json.dumps(log))
    assert tl.load(tmp_path / "log.json")[0].grade == grade


def test_replies_to_one_prompt_are_siblings(tmp_path):
    log = json.loads((LOGS / "inspect.json").read_text())
    events = log["samples"][0]["events"]
    [model] = [event for event in events if event["event"] == "model"]
    again = json.loads(json.dumps(model))
    again["output"]["choices"][0]["message"]["id"] = "other"
    events.insert(events.index(model) + 1, again)
    (tmp_path / "log.json").write_text(json.dumps(log))
    [run] = tl.load(tmp_path / "log.json")
    assert [node.id for node in run.tree] == ["0", "0.0", "0.1"]
    assert run.usage.calls == 2


def archive(path, entries, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, data in entries.items():
            file.writestr(name, data)
    return path


HEADER = json.dumps({"version": 2, "status": "success", "eval": {"task": "sums", "model": "m"}})


def test_an_archive_that_unpacks_to_too_much_is_refused_before_it_is_unpacked(tmp_path):
    bomb = archive(tmp_path / "a.eval", {"header.json": HEADER, "samples/1_epoch_1.json": b" " * 10**8})
    with pytest.raises(
        tl.errors.JournalError, match=r"a\.eval: it would unpack to more than .* limit is 64 MiB"
    ):
        tl.load(bomb)


def test_an_archive_that_lies_about_its_size_is_damaged(tmp_path):
    path = archive(tmp_path / "a.eval", {"header.json": HEADER, "samples/1_epoch_1.json": b" " * 10**6})
    data = bytearray(path.read_bytes())
    for size in (data.find(b"PK\x01\x02", data.find(b"PK\x01\x02") + 1) + 24,):
        data[size : size + 4] = (100).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(tl.errors.JournalError, match=r"samples/1_epoch_1\.json: damaged"):
        tl.load(path)


@pytest.mark.parametrize("compression", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_an_entry_of_another_compression_is_refused(tmp_path, compression):
    path = archive(tmp_path / "a.eval", {"header.json": HEADER}, compression)
    with pytest.raises(
        tl.errors.JournalError, match=r"entry header\.json: unknown compression: got method 1"
    ):
        tl.load(path)


def test_a_damaged_zstandard_entry_names_the_entry(tmp_path):
    data = bytearray((LOGS / "inspect.eval").read_bytes())
    start = data.find(b"samples/wrong_epoch_1.json")
    data[start + 300 : start + 340] = bytes(40)
    (tmp_path / "a.eval").write_bytes(data)
    with pytest.raises(tl.errors.JournalError, match=r"entry samples/wrong_epoch_1\.json: damaged"):
        tl.load(tmp_path / "a.eval")


def test_a_bad_sample_names_the_entry_and_the_field(tmp_path):
    bad = json.dumps({"id": "x", "epoch": "one"})
    path = archive(tmp_path / "a.eval", {"header.json": HEADER, "samples/x_epoch_1.json": bad})
    with pytest.raises(tl.errors.JournalError, match=r"samples/x_epoch_1\.json: Expected `int`.*\$\.epoch"):
        tl.load(path)


def test_a_chunked_archive_reads_as_the_whole_one():
    whole, chunked = tl.load(LOGS / "inspect.eval"), tl.load(LOGS / "inspect_chunked.eval")
    assert [run.lines for run in chunked] == [run.lines for run in whole]
    assert [run.task for run in chunked] == [run.task for run in whole]


def test_a_missing_chunk_is_named(tmp_path):
    with zipfile.ZipFile(archive(tmp_path / "new.eval", {}), "w") as file:
        file.writestr("header.json", HEADER)
        file.writestr("samples/x_epoch_1/sample.json", json.dumps({"id": "x"}))
        file.writestr("samples/x_epoch_1/messages/0.json", json.dumps([{"role": "user", "content": "a"}]))
        file.writestr("samples/x_epoch_1/messages/5.json", json.dumps([{"role": "user", "content": "b"}]))
    with pytest.raises(
        tl.errors.JournalError, match=r"entry samples/x_epoch_1/messages/5\.json: expected item 1"
    ):
        tl.load(tmp_path / "new.eval")


def test_the_headline_score_grades_and_calls_of_scorers_are_not_of_the_run():
    text = (LOGS / "inspect_scores.json").read_text()
    assert "NaN" in text
    assert "GRADE: C" in text
    [run] = tl.load(LOGS / "inspect_scores.json")
    # The first scorer says C. The headline is the value `short` of another one, which says I.
    assert run.grade == 0.0
    assert notes_of(run)["imported.scores"]["aspects"]["value"] == {"right": "C", "short": "I"}
    assert (run.usage.calls, run.usage.input_tokens) == (1, 10)
    assert texts_of(run) == {"0": "What is 7 - 4?", "0.0": "ANSWER: 4"}


def changed_sample(tmp_path, **fields):
    log = json.loads((LOGS / "inspect.json").read_text())
    log["samples"][0] |= fields
    (tmp_path / "log.json").write_text(json.dumps(log))
    return tmp_path / "log.json"


def test_a_sample_that_reached_a_limit_says_so(tmp_path):
    [run] = tl.load(changed_sample(tmp_path, limit={"type": "token", "limit": 10}))
    assert run.stop_reason == "limit:token"


def test_tools_that_no_reply_asked_for_belong_to_the_question(tmp_path):
    log = json.loads((LOGS / "inspect.json").read_text())
    tool = {"event": "tool", "id": "t", "function": "setup", "timestamp": "2026-01-01T00:00:00Z"}
    log["samples"][0]["events"].append({**tool, "completed": "2026-01-01T00:00:01Z", "result": "done"})
    (tmp_path / "log.json").write_text(json.dumps(log))
    [run] = tl.load(tmp_path / "log.json")
    assert [(call.node, reply.text) for call, reply in calls_of(run, tool=True)] == [("0", "done")]


def test_what_a_sample_repeats_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("tot_lab.record.logs.inspect_files.MAX_GROWN", 0)
    log = json.loads((LOGS / "inspect.json").read_text())
    [event] = [each for each in log["samples"][0]["events"] if each["event"] == "model"]
    event["input_refs"] = [[0, 10**6]] * 5000
    log["samples"][0]["events_data"]["messages"] *= 10**4
    (tmp_path / "log.json").write_text(json.dumps(log))
    with pytest.raises(tl.errors.JournalError, match=r"sample 1: field 'input_refs' would grow to more than"):
        tl.load(tmp_path / "log.json")
    key = "a" * 32
    path = changed_sample(tmp_path, attachments={key: "x" * 10**5}, input=f"attachment://{key}" * 3000)
    with pytest.raises(
        tl.errors.JournalError, match=r"sample 1: field 'attachments' would grow to more than"
    ):
        tl.load(path)


def test_the_messages_that_a_chunked_sample_repeats_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("tot_lab.record.logs.inspect_files.MAX_GROWN", 10**6)
    entries = {
        "header.json": HEADER,
        "samples/x_epoch_1/sample.json": json.dumps({"id": "x", "message_refs": [[0, 400]] * 400}),
        "samples/x_epoch_1/messages/0.json": json.dumps([{"role": "user", "content": "a"}] * 400),
    }
    with pytest.raises(tl.errors.JournalError, match=r"x_epoch_1/sample\.json: field 'message_refs' would"):
        tl.load(archive(tmp_path / "a.eval", entries))


@pytest.mark.parametrize("offset", [8, 6])
def test_an_encrypted_or_damaged_entry_is_named(tmp_path, offset):
    path = archive(tmp_path / "a.eval", {"header.json": HEADER, "samples/1_epoch_1.json": b"abc" * 10**4})
    data = bytearray(path.read_bytes())
    entry, directory = data.rfind(b"PK\x03\x04"), data.rfind(b"PK\x01\x02")
    if offset == 8:  # says that it is encrypted
        data[directory + 8] |= 1
        data[entry + 6] |= 1
    else:
        data[entry + 60 : entry + 75] = bytes([255]) * 15
    path.write_bytes(data)
    with pytest.raises(tl.errors.JournalError, match=r"entry samples/1_epoch_1\.json: damaged"):
        tl.load(path)


# OpenTelemetry.


@pytest.mark.parametrize("file", ["otlp.json", "openinference.jsonl", "phoenix.json"])
def test_all_exports_of_the_same_spans_give_the_same_runs(file):
    run, failed = tl.load(LOGS / file)
    assert run.question == "What is 2 + 3?"
    assert texts_of(run) == {"0": "What is 2 + 3?", "0.0": 'add({"x": 2, "y": 3})', "0.1": "5", "0.2": "5"}
    (first, asked), (second, answered) = calls_of(run)
    assert chat(first) == [("system", "Be brief."), ("user", "What is 2 + 3?")]
    assert chat(second)[2:] == [("assistant", ""), ("tool", "5")]
    assert (
        second.messages[2].tool_calls
        == asked.tool_calls
        == (tl.records.ToolCall("call_1", "add", '{"x": 2, "y": 3}'),)
    )
    assert second.messages[3].tool_call_id == "call_1"
    assert [tool["name"] for tool in first.tools] == ["add"]
    assert (first.temperature, first.model, asked.model) == (0.5, "stub", "stub-1")
    assert (answered.text, answered.input_tokens, answered.output_tokens) == ("5", 11, 7)
    assert asked.finish_reason == "tool_calls"
    [(call, result)] = calls_of(run, tool=True)
    assert (call.model, call.prompt, result.text) == ("tool:add", '{"x": 2, "y": 3}', "5")
    assert (run.answer, run.best.id, run.grade) == ("5", "0.2", None)
    assert run.header.unknown == ()
    assert run.seconds > 0
    assert failed.stop_reason == "error"
    assert "no such thing" in failed.error
    assert (failed.usage.calls, failed.usage.errors) == (1, 1)


def test_the_conventions_of_opentelemetry_itself_are_read():
    [run] = tl.load(LOGS / "genai.jsonl")
    [(call, reply)] = calls_of(run)
    assert chat(call) == [("system", "Be brief."), ("user", "What is 2 + 3?")]
    assert (reply.text, reply.model, reply.input_tokens, reply.output_tokens) == ("5", "stub-1", 11, 7)
    assert (call.model, call.temperature, reply.finish_reason) == ("stub", 0.5, "stop")
    [(tool, result)] = calls_of(run, tool=True)
    assert (tool.model, tool.prompt, result.text) == ("tool:add", '{"x": 2}', "2")
    # The root span has no output, so nothing says what the answer is.
    assert run.stop_reason is None


def test_spans_of_openllmetry_are_read(tmp_path):
    span = {
        "traceId": "t",
        "spanId": "s",
        "name": "openai.chat",
        "startTimeUnixNano": "1000000000",
        "endTimeUnixNano": "3000000000",
        "attributes": [
            {"key": "gen_ai.request.model", "value": {"stringValue": "m"}},
            {"key": "gen_ai.prompt.0.role", "value": {"stringValue": "user"}},
            {"key": "gen_ai.prompt.0.content", "value": {"stringValue": "Q?"}},
            {"key": "gen_ai.completion.0.role", "value": {"stringValue": "assistant"}},
            {"key": "gen_ai.completion.0.content", "value": {"stringValue": "A."}},
            {"key": "gen_ai.usage.prompt_tokens", "value": {"intValue": "4"}},
            {"key": "gen_ai.usage.completion_tokens", "value": {"intValue": 2}},
        ],
    }
    batch = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
    (tmp_path / "a.json").write_text(json.dumps(batch))
    [run] = tl.load(tmp_path / "a.json")
    [(call, reply)] = calls_of(run)
    assert (chat(call), reply.text, reply.input_tokens, reply.output_tokens) == ([("user", "Q?")], "A.", 4, 2)
    assert (run.question, run.answer, run.seconds) == ("Q?", "A.", 2.0)


def genai_rows():
    return [json.loads(line) for line in (LOGS / "genai.jsonl").read_text().splitlines()]


def written(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_a_temperature_of_0_is_one(tmp_path):
    rows = genai_rows()
    rows[0]["attributes"]["gen_ai.request.temperature"] = 0.0
    [run] = tl.load(written(tmp_path / "a.jsonl", rows))
    assert calls_of(run)[0][0].temperature == 0.0


def test_a_trace_with_several_roots_is_not_whole_and_has_no_answer(tmp_path):
    rows = [json.loads(line) for line in (LOGS / "langsmith.jsonl").read_text().splitlines()]
    trace = [row for row in rows if row["trace_id"] == rows[0]["trace_id"]]
    [run] = tl.load(written(tmp_path / "a.jsonl", trace[1:]))  # without its root
    assert (run.stop_reason, run.answer) == (None, "")
    assert "calls" in run.header.unknown


def test_a_call_that_is_still_open_takes_no_times_from_the_others(tmp_path):
    rows = [json.loads(line) for line in (LOGS / "langsmith.jsonl").read_text().splitlines()]
    number = next(k for k, row in enumerate(rows) if row["run_type"] == "llm")
    del rows[number]["end_time"], rows[number]["outputs"]
    run, _ = tl.load(written(tmp_path / "a.jsonl", rows))
    assert "times" not in run.header.unknown
    assert run.seconds > 0


def test_a_call_that_ends_before_all_starts_has_no_negative_time(tmp_path):
    rows = genai_rows()
    rows[1]["end_time"] = "2020-01-01T00:00:00Z"
    [run] = tl.load(written(tmp_path / "a.jsonl", rows))
    assert min(line.t for line in run.lines) == 0
    assert tl.load(run.save(tmp_path / "run.jsonl")).lines == run.lines


def test_times_over_a_century_apart_are_an_error(tmp_path):
    rows = genai_rows()
    rows[1]["start_time"] = rows[1]["end_time"] = "1850-01-01T00:00:00Z"
    with pytest.raises(tl.errors.JournalError, match=r"a\.jsonl, line .*'time': the times .* a century"):
        tl.load(written(tmp_path / "a.jsonl", rows))


def test_a_trace_without_texts_keeps_the_tokens(tmp_path):
    hidden = ("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions")
    rows = [json.loads(line) for line in (LOGS / "genai.jsonl").read_text().splitlines()]
    for row in rows:
        row["attributes"] = {name: held for name, held in row["attributes"].items() if name not in hidden}
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    [run] = tl.load(tmp_path / "a.jsonl")
    assert (run.usage.calls, run.usage.input_tokens, run.usage.output_tokens) == (1, 11, 7)
    assert {"prompts", "replies"} <= set(run.header.unknown)
    assert (run.question, run.task, run.stop_reason) == ("", None, None)


def test_a_table_of_phoenix_and_one_object_per_line_give_the_same_runs(tmp_path):
    spans = json.loads((LOGS / "phoenix.json").read_text())["data"]
    rows = []
    for span in spans:
        row = {name: span[name] for name in ("name", "span_kind", "parent_id", "start_time", "end_time")}
        row |= {"status_code": span["status_code"], "status_message": span["status_message"]}
        row |= {f"context.{name}": held for name, held in span["context"].items()}
        row |= {f"attributes.{name}": held for name, held in span["attributes"].items()}
        rows.append(row)
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert [run.lines for run in tl.load(tmp_path / "a.jsonl")] == [
        run.lines for run in tl.load(LOGS / "phoenix.json")
    ]


# LangSmith and LangGraph.


def test_exported_runs_of_langsmith():
    run, failed = tl.load(LOGS / "langsmith.jsonl")
    rows = [json.loads(line) for line in (LOGS / "langsmith.jsonl").read_text().splitlines()]
    assert run.question == failed.question == "What is 2 + 3?"
    (first, asked), (second, answered) = calls_of(run)
    assert chat(first) == [("user", "What is 2 + 3?")]
    assert chat(second) == [("user", "What is 2 + 3?"), ("assistant", "I add them."), ("tool", "5")]
    assert asked.tool_calls[0].name == "add"
    assert (answered.text, answered.model, answered.cost) == ("5", "scripted-1", 0.001)
    assert (run.usage.input_tokens, run.usage.output_tokens) == (22, 14)
    [(call, result)] = calls_of(run, tool=True)
    assert (call.model, json.loads(call.prompt), result.text) == ("tool:add", {"x": 2, "y": 3}, "5")
    assert (run.answer, run.grade, run.correct) == ("5", 1.0, True)
    assert notes_of(run)["imported.scores"] == {"correctness": {"n": 1, "avg": 1.0}}
    assert (failed.stop_reason, failed.answer, failed.grade) == ("error", "", None)
    assert failed.error.startswith("ValueError('thirteen')")
    [(_, result)] = calls_of(failed, tool=True)
    assert result.error.startswith("ValueError('thirteen')")
    # The tree is that of the runs.
    ids = notes_of(run)["imported.ids"]
    parents = {row["id"]: row.get("parent_run_id") for row in rows}
    assert all(parents[ids[node.id]] == (node.parent and ids[node.parent]) for node in run.tree)


def test_nested_runs_in_any_order_are_the_same_run(tmp_path):
    rows = [json.loads(line) for line in (LOGS / "langsmith.jsonl").read_text().splitlines()]
    by_id = {row["id"]: {**row, "child_runs": []} for row in rows}
    for row in rows:
        if "parent_run_id" in row:
            by_id[row["parent_run_id"]]["child_runs"].append(by_id[row["id"]])
    roots = [row for row in by_id.values() if "parent_run_id" not in row]
    (tmp_path / "nested.json").write_text(json.dumps(roots))
    (tmp_path / "mixed.jsonl").write_text("\n".join(map(json.dumps, [rows[0], *reversed(rows[1:])])))
    for name in ("nested.json", "mixed.jsonl"):
        assert [run.lines for run in tl.load(tmp_path / name)] == [
            run.lines for run in tl.load(LOGS / "langsmith.jsonl")
        ]


def test_feedback_that_is_no_verdict_does_not_grade(tmp_path):
    rows = [json.loads(line) for line in (LOGS / "langsmith.jsonl").read_text().splitlines()]
    rows[0]["feedback_stats"] = {"helpfulness": {"n": 3, "avg": 1.0}}
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    run, _ = tl.load(tmp_path / "a.jsonl")
    assert run.grade is None
    assert notes_of(run)["imported.scores"] == {"helpfulness": {"n": 3, "avg": 1.0}}


def test_a_bulk_export_of_langsmith_holds_the_same_runs(tmp_path):
    exported = tl.load(LOGS / "langsmith.parquet")
    assert [run.lines for run in exported] == [run.lines for run in tl.load(LOGS / "langsmith.jsonl")]
    (tmp_path / "part.parquet").write_bytes((LOGS / "langsmith.parquet").read_bytes())
    assert [run.lines for run in tl.load(tmp_path)] == [run.lines for run in exported]


def parquet_table(path, change=lambda rows: None, **types):
    """Write the bulk export with other rows, and with other types of its columns."""
    import pyarrow
    from pyarrow import parquet

    table = parquet.read_table(LOGS / "langsmith.parquet")
    rows = table.to_pylist()
    change(rows)
    schema = [field.with_type(types.get(field.name, field.type)) for field in table.schema]
    names = rows[0].keys()
    schema = pyarrow.schema([field for field in schema if field.name in names])
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema), path)
    return path


def test_the_columns_of_a_bulk_export_may_be_fewer_or_of_other_types(tmp_path):
    import pyarrow

    def fewer(rows):
        for row in rows:
            for name in ("parent_run_id", "parent_run_ids", "is_root", "status", "extra", "tenant_id"):
                del row[name]

    whole = tl.load(LOGS / "langsmith.parquet")
    # The order of the runs says which of them contains which.
    some = tl.load(parquet_table(tmp_path / "a.parquet", fewer))
    assert [run.lines for run in some] == [run.lines for run in whole]
    times = dict.fromkeys(("start_time", "end_time"), pyarrow.timestamp("ns"))  # without a zone: UTC
    costs = {"total_cost": pyarrow.decimal128(20, 10)}
    types = {**times, **costs}
    [run, _] = tl.load(parquet_table(tmp_path / "b.parquet", decimals, **types))
    assert [line.e for line in run.lines] == [line.e for line in whole[0].lines]
    assert run.seconds == pytest.approx(whole[0].seconds)


def decimals(rows):
    for row in rows:
        row["total_cost"] = None if row["total_cost"] is None else Decimal(str(row["total_cost"]))


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("inputs", '{"messages": [', r"row 3, field 'inputs': Input data was truncated"),
        ("outputs", "[1, 2]", r"row 3: Expected `object \| null`, got `array` - at `\$\.outputs`"),
        ("id", None, r"row 3: Expected `str`, got `null` - at `\$\.id`"),
        ("prompt_tokens", -4, r"row 3: field 'prompt_tokens' must be a number of tokens: got -4"),
    ],
)
def test_a_bad_row_of_a_bulk_export_names_the_row_and_the_column(column, value, message, tmp_path):
    def spoil(rows):
        assert rows[2]["run_type"] == "llm"
        rows[2][column] = value

    with pytest.raises(tl.errors.JournalError, match=rf"a\.parquet, {message}"):
        tl.load(parquet_table(tmp_path / "a.parquet", spoil))


def test_another_table_in_parquet_is_no_export(tmp_path):
    pd.DataFrame({"question": ["a"], "correct": [True]}).to_parquet(tmp_path / "sweep.parquet")
    with pytest.raises(tl.errors.JournalError, match=r"sweep\.parquet.*langsmith expects .* a Parquet file"):
        tl.load(tmp_path / "sweep.parquet")
    (tmp_path / "inspect.json").write_bytes((LOGS / "inspect.json").read_bytes())
    with pytest.warns(UserWarning, match=r"1 of 2 files are not runs: sweep\.parquet"):
        assert len(tl.load(tmp_path)) == 1


@pytest.mark.parametrize("size", [4, 11, 12, 600])
def test_a_parquet_file_without_its_end_is_refused(size, tmp_path):
    (tmp_path / "a.parquet").write_bytes((LOGS / "langsmith.parquet").read_bytes()[:size])
    with pytest.raises(tl.errors.JournalError, match=r"a\.parquet"):
        tl.load(tmp_path / "a.parquet")


def test_a_damaged_page_of_a_parquet_file_is_an_error_that_names_the_file(tmp_path):
    data = bytearray((LOGS / "langsmith.parquet").read_bytes())
    data[4:400] = bytes(396)
    (tmp_path / "a.parquet").write_bytes(data)
    with pytest.raises(tl.errors.JournalError, match=r"a\.parquet: not a readable Parquet file"):
        tl.load(tmp_path / "a.parquet")


def test_a_bulk_export_without_pyarrow_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # what Python takes for a package that is not there
    with pytest.raises(
        ImportError, match=r"langsmith\.parquet requires pyarrow: pip install 'tot-lab\[parquet\]'"
    ):
        tl.load(LOGS / "langsmith.parquet")


@pytest.mark.parametrize("file", ["langgraph.json", "langgraph_sdk.json"])
def test_a_fork_of_a_thread_is_a_branch(file):
    [run] = tl.load(LOGS / file)
    assert texts_of(run) == {
        "0": "What is 2 + 3?",
        "0.0": "I add them.",
        "0.0.0": "5",
        "0.0.1": "It is 5.",
    }
    assert (run.answer, run.best.id) == ("It is 5.", "0.0.1")
    replies = [reply for _, reply in calls_of(run)]
    assert [(reply.input_tokens, reply.output_tokens, reply.model) for reply in replies] == [
        (11, 7, "scripted-1")
    ] * 3
    [(call, result)] = calls_of(run, tool=True)
    assert (call.node, json.loads(call.prompt), result.text) == ("0.0", {"x": 2, "y": 3}, "5")
    assert {"prompts", "calls"} <= set(run.header.unknown)
    assert run.usage.input_tokens is None  # a program may call models without telling the state


def test_the_order_of_the_states_does_not_matter(tmp_path):
    states = json.loads((LOGS / "langgraph_sdk.json").read_text())
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, reversed(states))))
    assert tl.load(tmp_path / "a.jsonl")[0].lines == tl.load(LOGS / "langgraph_sdk.json")[0].lines


@pytest.mark.parametrize(
    ("outputs", "answer"),
    [
        ({"question": "What is 2 + 3?", "answer": "Five."}, "Five."),  # a chain that passes its input on
        ({"total": 5}, "5"),
        ({"total": 5, "exact": True}, '{"total": 5, "exact": true}'),
        ({"output": {"role": "assistant", "content": [{"type": "text", "text": "Five."}]}}, "Five."),
    ],
)
def test_the_answer_is_the_output_and_not_the_input(tmp_path, outputs, answer):
    rows = [json.loads(line) for line in (LOGS / "langsmith.jsonl").read_text().splitlines()]
    rows[0]["outputs"] = outputs
    run, _ = tl.load(written(tmp_path / "a.jsonl", rows))
    assert (run.question, run.answer) == ("What is 2 + 3?", answer)


ASKS = [{"type": "tool_use", "id": "c", "name": "add", "input": {"x": 2}}]


@pytest.mark.parametrize(
    "output",
    [
        {"role": "assistant", "content": ASKS, "stop_reason": "tool_use"},  # Anthropic
        {"type": "ai", "content": ASKS, "tool_calls": [{"id": "c", "name": "add", "args": {"x": 2}}]},
        {"type": "AIMessageChunk", "content": [{**ASKS[0], "type": "tool_call", "args": {"x": 2}}]},
    ],
)
def test_each_tool_call_of_a_message_is_read_once(tmp_path, output):
    rows = [json.loads(line) for line in (LOGS / "langsmith.jsonl").read_text().splitlines()]
    number = next(k for k, row in enumerate(rows) if row["run_type"] == "llm")
    rows[number]["outputs"] = {"output": output}
    run, _ = tl.load(written(tmp_path / "a.jsonl", rows))
    assert calls_of(run)[0][1].tool_calls == (tl.records.ToolCall("c", "add", '{"x": 2}'),)


@pytest.mark.parametrize(
    "messages", [[["user", "Hi"]], [["system", "Be brief."], ["human", "Hi"]], ["user", "Hi"]]
)
def test_a_pair_of_role_and_text_is_a_message(tmp_path, messages):
    rows = [json.loads(line) for line in (LOGS / "langsmith.jsonl").read_text().splitlines()]
    rows[0]["inputs"] = {"messages": messages}
    run, _ = tl.load(written(tmp_path / "a.jsonl", rows))
    assert run.question == "Hi"


@pytest.mark.parametrize("messages", [[["user", "Hi"]], [[["user", "Hi"]]]])
def test_a_pair_of_role_and_text_is_a_message_of_a_call(tmp_path, messages):
    rows = [json.loads(line) for line in (LOGS / "langsmith.jsonl").read_text().splitlines()]
    next(row for row in rows if row["run_type"] == "llm")["inputs"] = {"messages": messages}
    run, _ = tl.load(written(tmp_path / "a.jsonl", rows))
    assert chat(calls_of(run)[0][0]) == [("user", "Hi")]


def test_a_list_of_two_words_is_no_message(tmp_path):
    rows = [json.loads(line) for line in (LOGS / "langsmith.jsonl").read_text().splitlines()]
    rows[0]["outputs"] = {"labels": ["user", "admin"]}
    run, _ = tl.load(written(tmp_path / "a.jsonl", rows))
    assert run.answer == '["user", "admin"]'


@pytest.mark.parametrize("counts", [(10, 0), (0, 7), (10, None), (None, 7)])
def test_one_of_two_token_counts_may_be_0_or_unknown(tmp_path, counts):
    rows = [json.loads(line) for line in (LOGS / "langsmith.jsonl").read_text().splitlines()]
    row = next(row for row in rows if row["run_type"] == "llm")
    row |= {"prompt_tokens": counts[0], "completion_tokens": counts[1]}
    del row["outputs"]["generations"][0][0]["message"]["kwargs"]["usage_metadata"]
    run, _ = tl.load(written(tmp_path / "a.jsonl", rows))
    reply = calls_of(run)[0][1]
    assert (reply.input_tokens, reply.output_tokens) == counts


def test_a_cost_of_0_with_unknown_tokens_is_unknown(tmp_path):
    rows = [json.loads(line) for line in (LOGS / "langsmith.jsonl").read_text().splitlines()]
    for row in rows:
        if row["run_type"] == "llm":
            row |= {"prompt_tokens": 0, "completion_tokens": 0, "total_cost": "0"}
            del row["outputs"]["generations"][0][0]["message"]["kwargs"]["usage_metadata"]
    run, _ = tl.load(written(tmp_path / "a.jsonl", rows))
    assert (run.usage.input_tokens, run.usage.cost) == (None, None)


def test_a_thread_that_ends_with_a_request_for_a_tool_has_no_answer(tmp_path):
    states = json.loads((LOGS / "langgraph_sdk.json").read_text())
    asks = next(state for state in states if state["values"]["messages"][-1:][0].get("tool_calls"))
    (tmp_path / "a.json").write_text(json.dumps([{**asks, "next": []}]))
    [run] = tl.load(tmp_path / "a.json")
    assert (run.stop_reason, texts_of(run)["0.0"]) == (None, "I add them.")


def test_encrypted_reasoning_is_shown_by_its_summary():
    from tot_lab.record.logs.common import thinking_of

    part = {"type": "reasoning", "reasoning": "gAAAAB", "redacted": True, "summary": "It adds."}
    assert thinking_of({"role": "assistant", "content": [part]}) == "It adds."
    assert thinking_of({"role": "assistant", "content": [{**part, "summary": None}]}) is None


def test_a_part_whose_text_is_null_has_no_text():
    from tot_lab.record.logs.common import content_of

    assert content_of([{"type": "text", "text": None}]) == ("", "")
    assert content_of([{"type": "text", "text": None, "content": "a"}]) == ("a", "")


# Reflexion and LATS.


def test_implementations_of_reflexion_follow_from_each_other():
    solved, failed = tl.load(LOGS / "reflexion.jsonl")
    assert [node.score for node in solved.tree] == [None, pytest.approx(1 / 3), 1.0]
    assert [node.id for node in failed.tree] == ["0", "0.0", "0.0.0", "0.0.0.0"]
    assert (solved.grade, failed.grade) == (1.0, 0.0)
    # It passed the tests that the model wrote, and failed those of the task.
    assert (failed.best.id, failed.best.score) == ("0.0.0.0", 1.0)
    reflections = [(call.node, reply.text) for call, reply in calls_of(failed) if call.purpose == "reflect"]
    assert reflections == [("0.0", "It fails 1 tests."), ("0.0.0", "It fails 1 tests.")]
    assert set(solved.header.unknown) == {"prompts", "times", "calls"}


def test_a_log_of_lats_does_not_say_what_the_tests_of_its_best_implementation_were():
    searched, first = tl.load(LOGS / "lats.jsonl")
    assert [node.score for node in searched.tree] == [None, pytest.approx(1 / 3), None]
    assert (searched.grade, searched.best.id) == (1.0, "0.0.0")
    assert "MCTS reflections" in searched.task.data["reflections"]
    assert (first.stop_reason, first.grade, len(first.tree)) == (None, None, 1)


def test_a_bad_line_names_the_line_and_the_field(tmp_path):
    lines = (LOGS / "reflexion.jsonl").read_text().splitlines()
    bad = json.loads(lines[1])
    bad["implementations"][1] = 7
    (tmp_path / "a.jsonl").write_text(f"{lines[0]}\n\n{json.dumps(bad)}\n")
    with pytest.raises(tl.errors.JournalError, match=r"a\.jsonl, line 3: Expected `str`.*implementations"):
        tl.load(tmp_path / "a.jsonl")
    del bad["test_feedback"][0], bad["implementations"]
    (tmp_path / "a.jsonl").write_text(f"{lines[0]}\n{json.dumps(bad)}\n")
    with pytest.raises(tl.errors.JournalError, match=r"a\.jsonl, line 2: field 'test_feedback' must have"):
        tl.load(tmp_path / "a.jsonl")


# Live objects.


@pytest.mark.slow
def test_a_state_of_treequest_is_a_run():
    import treequest

    given = []

    def grow(parent):
        given.append((parent, f"{parent or 'start'}/{len(given)}", (len(given) * 37 % 100) / 100))
        return given[-1][1:]

    algo = treequest.StandardMCTS(samples_per_action=2)
    state = algo.init_tree()
    for _ in range(12):
        state = algo.step(state, {"left": grow, "right": grow})
    run = tl.records.from_treequest(state, "Where to?")
    nodes = {node.text: node for node in run.tree}
    assert len(nodes) == len(given) + 1
    for parent, text, score in given:
        assert nodes[text].score == pytest.approx(score)
        assert run.tree[nodes[text].parent].text == (parent or "Where to?")
    notes = notes_of(run)
    assert set(notes["imported.actions"].values()) == {"left", "right"}
    assert len(notes["imported.actions"]) == len(given)
    assert run.stop_reason is None
    assert run.seconds >= 0
    with pytest.raises(tl.errors.JournalError, match=r"score must be from 0 to 0\.5"):
        tl.records.from_treequest(state, score_range=(0, 0.5))
    with pytest.raises(TypeError, match="state must be a state of treequest: got list"):
        tl.records.from_treequest([])


class Model:
    """A model for its_hub that says 4, 5 and 5, and one step if asked for steps."""

    said = 0

    async def agenerate_single(self, messages, stop=None, **_):
        self.said += 1
        text = "a step" if stop else ["4", "5", "5"][self.said % 3]
        return {"role": "assistant", "content": text}

    async def agenerate(self, messages, stop=None, **_):
        if isinstance(messages[0], list):
            return [await self.agenerate_single(each, stop) for each in messages]
        return await self.agenerate_single(messages, stop)


class Reward:
    """A reward model for its_hub."""

    async def ascore(self, messages, responses=None, **_):
        if responses is not None:
            return [0.25 + 0.5 * (k % 2) for k in range(len(responses))]
        return [0.25 if each[-1].content == "4" else 0.75 for each in messages]


@pytest.mark.slow
def test_results_of_its_hub_are_runs():
    from its_hub.core.algorithms.bon import BestOfN
    from its_hub.core.algorithms.particle_gibbs import ParticleFiltering
    from its_hub.core.algorithms.self_consistency import SelfConsistency
    from its_hub.core.lms.step_generation import StepGeneration

    def result_of(algorithm):
        return asyncio.run(algorithm.ainfer(Model(), "What is 2 + 3?", 3, return_response_only=False))

    best = result_of(BestOfN(Reward()))
    run = tl.records.from_its_hub(best, "What is 2 + 3?")
    assert [(node.text, node.score) for node in list(run.tree)[1:]] == [
        (response["content"], score) for response, score in zip(best.responses, best.scores, strict=True)
    ]
    assert run.answer == best.the_one["content"] == "5"
    assert [reply.text for _, reply in calls_of(run)] == [node.text for node in list(run.tree)[1:]]
    votes = tl.records.from_its_hub(result_of(SelfConsistency(str.strip)), "What is 2 + 3?")
    assert votes.answer == "5"
    assert notes_of(votes)["imported.votes"] == {"responses": {"5": 2, "4": 1}}
    particles = result_of(ParticleFiltering(StepGeneration(2, "\n"), Reward()))
    run = tl.records.from_its_hub(particles, "What is 2 + 3?")
    assert {round(node.score, 9) for node in list(run.tree)[1:]} <= {0.25, 0.75}
    assert run.answer == particles.the_one["content"]
    assert calls_of(run) == []
    with pytest.raises(TypeError, match="return_response_only=False"):
        tl.records.from_its_hub(best.the_one)


class Steps(Model):
    """A model for its_hub whose steps are all different."""

    async def agenerate_single(self, messages, stop=None, **_):
        self.said += 1
        return {"role": "assistant", "content": f"step {self.said}"}


class StepReward:
    """A process reward model for its_hub that likes some numbers of the last step more than others."""

    async def ascore(self, messages, responses):
        return [self.score(each) for each in responses]

    @staticmethod
    def score(response):
        return (int(response.split()[-1]) * 37 % 10 + 0.5) / 10


def searched(name, *settings, budget, **named):
    """The result of an algorithm of its_hub that makes responses of three steps, and the model's calls."""
    from its_hub.core.algorithms import beam_search, particle_gibbs
    from its_hub.core.lms.step_generation import StepGeneration

    random.seed(3)  # its_hub draws from it
    np.random.seed(3)  # and from this one
    algorithm = getattr(beam_search if name == "BeamSearch" else particle_gibbs, name)
    model = Steps()
    made = algorithm(StepGeneration(2, "\n"), StepReward(), *settings, **named)
    coroutine = made.ainfer(model, "What is 2 + 3?", budget, return_response_only=False)
    return asyncio.run(coroutine), model.said


@pytest.mark.parametrize(
    ("name", "settings", "budget"),
    [
        ("BeamSearch", (2,), 6),
        ("ParticleFiltering", (), 4),
        ("EntropicParticleFiltering", (), 4),
        ("ParticleGibbs", (2,), 8),
    ],
)
def test_a_result_of_steps_holds_the_last_responses_and_no_steps(name, settings, budget):
    result, said = searched(name, *settings, budget=budget)
    run = tl.records.from_its_hub(result, "What is 2 + 3?")
    nodes = list(run.tree)[1:]
    rounds = getattr(result, "responses_lst", None) or [result.responses]
    assert [node.text for node in nodes] == [each["content"] for held in rounds for each in held]
    # The reward model scored the whole response last.
    assert [node.score for node in nodes] == pytest.approx([StepReward.score(node.text) for node in nodes])
    assert {node.parent for node in nodes} == {"0"}
    last = [each["content"] for each in rounds[-1]]
    assert len(set(last)) > 1
    assert run.answer == result.the_one["content"] == run.best.text
    assert set(run.kept_answers) == set(last)
    assert [node.state in ("kept", "answer") for node in nodes] == [
        k >= len(nodes) - len(last) for k in range(len(nodes))
    ]
    # How many calls a search made is not in its result: some steps are shared, and others were dropped.
    assert said > 0
    assert (calls_of(run), run.usage.input_tokens) == ([], None)
    assert {"calls", "prompts", "replies", "times"} <= set(run.header.unknown)
    ids = notes_of(run)["imported.ids"]
    steps = notes_of(run)["imported.steps"]
    assert [steps[ids[node.id]] for node in nodes] == [len(node.text.split("\n")) for node in nodes]


def test_a_reference_particle_is_in_each_iteration_that_it_was_carried_into():
    result, _ = searched("ParticleGibbs", 3, budget=9)
    run = tl.records.from_its_hub(result, "What is 2 + 3?")
    texts = [node.text for node in run.tree][1:]
    for k in (1, 2):
        [reference] = result.ref_indices_lst[k - 1]
        assert texts[3 * k + 2] == texts[3 * (k - 1) + reference]


def test_a_plan_of_its_hub_keeps_the_responses_of_its_best_approach():
    from its_hub.core.algorithms.particle_gibbs import ParticleFiltering
    from its_hub.core.algorithms.planning_wrapper import PlanningWrapper
    from its_hub.core.lms.step_generation import StepGeneration

    wrapped = PlanningWrapper(ParticleFiltering(StepGeneration(2, "\n"), StepReward()))
    result = asyncio.run(wrapped.ainfer(Steps(), "What is 2 + 3?", 9, return_response_only=False))
    run = tl.records.from_its_hub(result, "What is 2 + 3?")
    approaches = [node for node in run.tree if node.parent == "0"]
    assert [node.text for node in approaches] == list(result.approach_results)
    for approach, inner in zip(approaches, result.approach_results.values(), strict=True):
        found = [node for node in run.tree if node.parent == approach.id]
        assert [node.text for node in found] == [each["content"] for each in inner.responses]
        is_best = approach.text == result.best_approach
        assert all((node.state in ("kept", "answer")) == is_best for node in found)
    assert run.answer == result.the_one["content"]


# All of them.


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_imported_runs_work_wherever_runs_do(file, tmp_path):
    runs = tl.load(LOGS / file)
    for run in runs:
        assert len(run.nodes_df()) == len(run.tree)
        assert len(run.calls_df()) == len(calls_of(run))
        assert len(run.tools_df()) == len(calls_of(run, tool=True))
        assert tl.Explorer(run) is not None
        assert run.save_html(tmp_path / "page.html").stat().st_size > 1000
        again = tl.load(run.save(tmp_path / f"{run.id}.jsonl"))
        assert again.events == run.events
        assert again.header == run.header
        assert again.grade == run.grade
        would = tl.counterfactual(run, tl.OneAnswer())
        assert would.run.question == run.question
        assert [(lack.purpose, lack.certain) for lack in would.lacking] == [("answer", True)]
    diagnosis = tl.stats.judge_evaluator(runs)
    assert len(diagnosis.runs) == len(runs)
    graded = [run for run in runs if run.grade is not None]
    assert diagnosis.runs["correct"].notna().sum() == len(graded)


@pytest.mark.slow
@pytest.mark.parametrize(
    "file", [name for name in FILES if any(run.grade is not None for run in tl.load(LOGS / name))]
)
def test_success_is_the_share_of_runs_that_the_log_calls_right(file):
    runs = tl.load(LOGS / file)
    rates = tl.stats.success_rates(runs)
    graded = [run.grade for run in runs if run.grade is not None]
    assert rates["rate"].iloc[0] == pytest.approx(sum(graded) / len(graded))


def page_of(path):
    """The name, columns and rows of a page of several runs."""
    return json.loads(path.read_text().split('id="sweep">')[1].split("</script>")[0])


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_all_runs_of_a_log_are_one_page(file, tmp_path, capsys):
    runs = tl.load(LOGS / file)
    out = tmp_path / "page.html"
    page = page_of(tl.Explorer(runs).save_html(out))
    rows = [dict(zip(page["columns"], row, strict=True)) for row in page["rows"]]
    assert [row["run_id"] for row in rows] == [run.id for run in runs]
    for row, run in zip(rows, runs, strict=True):
        assert (row["setting"], row["task"]) == (run.name, run.question)
        assert (row.get("correct"), row.get("score")) == (run.correct, run.grade)
        # What the log lacks is empty, and not 0.
        assert row.get("calls") == (None if "calls" in run.header.unknown else run.usage.calls)
        assert row.get("input_tokens") == run.usage.input_tokens
        assert ("times" in run.header.unknown) == (row.get("seconds") is None)
    assert main(["show", str(LOGS / file), "--out", str(out), "--no-open"]) == 0
    assert (page_of(out) == page) if len(runs) > 1 else ('id="sweep"' not in out.read_text())
    assert main(["show", f"{LOGS / file}#{len(runs) - 1}", "--out", str(out), "--no-open"]) == 0
    assert capsys.readouterr().out.count(str(out)) == 2


@pytest.mark.slow
def test_a_folder_of_logs_is_one_list_of_runs_and_one_page(tmp_path):
    runs = tl.load(LOGS)
    assert [run.lines for run in runs] == [run.lines for file in FILES for run in tl.load(LOGS / file)]
    assert main(["show", str(LOGS), "--out", str(tmp_path / "page.html"), "--no-open"]) == 0
    assert len(page_of(tmp_path / "page.html")["rows"]) == len(runs)


def test_other_files_of_a_folder_are_named_and_left_out(tmp_path):
    for file in ("reflexion.jsonl", "inspect.json"):
        (tmp_path / file).write_bytes((LOGS / file).read_bytes())
    [run, *_] = tl.load(LOGS / "inspect.json")
    own = tl.load(run.save(tmp_path / "own.jsonl"))
    own.mark("0", "right")
    assert len(list(tmp_path.glob("*marks.json"))) == 1
    assert len(tl.load(tmp_path)) == 4
    (tmp_path / "settings.json").write_text('{"width": 3}')
    with pytest.warns(UserWarning, match=r"1 of 4 files are not runs: settings\.json"):
        assert len(tl.load(tmp_path)) == 4
    (tmp_path / "other.jsonl").write_text('{"width": 3}\n')
    with pytest.warns(UserWarning, match=r"2 of 5 files are not runs: other\.jsonl, settings\.json"):
        assert len(tl.load(tmp_path)) == 4
    damaged = (tmp_path / "own.jsonl").read_bytes().replace(b"\n", b"}\n", 1)
    (tmp_path / "own.jsonl").write_bytes(damaged)
    with (
        pytest.warns(UserWarning, match="2 of 5 files"),
        pytest.raises(tl.errors.JournalError, match=r"own\.jsonl, line"),
    ):
        tl.load(tmp_path)


def test_a_folder_without_a_file_that_is_recognised_says_so(tmp_path):
    (tmp_path / "tasks.jsonl").write_text('{"question": "2 + 3?"}\n')
    with pytest.raises(
        FileNotFoundError, match=r"no run in this folder\. No importer recognises tasks\.jsonl"
    ):
        tl.load(tmp_path)


def test_folders_in_a_folder_are_left_out(tmp_path):
    (tmp_path / "sub.json").mkdir()
    (tmp_path / "a.json").write_bytes((LOGS / "inspect.json").read_bytes())
    assert len(tl.load(tmp_path)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_an_imported_run_is_compared_with_another_and_with_an_own_one(file, tmp_path):
    imported = tl.load(LOGS / file)[0]
    own = asyncio.run(tl.Lab(tl.sim.SimGame24()).run(tl.OneAnswer(), tl.game24("1 2 3 4")))
    for other in (own, tl.load(LOGS / "inspect.eval")[0]):
        explorer = tl.CompareExplorer(imported, other)
        pairs = len(imported.tree) + len(other.tree)
        assert 0 <= len(explorer.differences) <= pairs
        assert explorer.differences.empty == (imported.id == other.id)
        other.save(tmp_path / "other.jsonl")
        page = tmp_path / "two.html"
        command = ["show", f"{LOGS / file}#0", str(tmp_path / "other.jsonl"), "--out", str(page), "--no-open"]
        assert main(command) == 0
        assert 'id="run-1"' in page.read_text()


def another_model(tmp_path, value):
    """The log of another model on the same sample, with another answer."""
    log = json.loads((LOGS / "inspect.json").read_text().replace("mockllm/model", "mockllm/other"))
    log = json.loads(json.dumps(log).replace("ANSWER: 4", "ANSWER: 3"))
    log["samples"][0]["scores"]["match"]["value"] = value
    (tmp_path / "other.json").write_text(json.dumps(log))
    return tl.load(tmp_path / "other.json")


@pytest.mark.nightly
def test_two_methods_are_compared_on_the_tasks_that_both_logs_hold(tmp_path):
    runs = tl.load(LOGS / "inspect.eval") + another_model(tmp_path, "C")
    rates = tl.stats.success_rates(runs).set_index("setting")
    assert list(rates.index) == ["Inspect, sums, mockllm/model", "Inspect, sums, mockllm/other"]
    assert (list(rates.solved), list(rates.errors)) == ([1, 1], [1, 0])
    [row] = tl.stats.compare_all(runs).itertuples()
    assert (row.tasks, row.both, row.a_only, row.b_only, row.unpaired) == (1, 0, 0, 1, 1)
    # Feedback in a log and the id of a trace are not part of a task.
    programs = tl.load(LOGS / "reflexion.jsonl") + tl.load(LOGS / "lats.jsonl")
    assert tl.stats.compare(programs, "Reflexion", "LATS").both == 1
    sums = tl.load(LOGS / "langsmith.jsonl") + tl.load(LOGS / "inspect.eval")
    assert tl.stats.compare(sums, "LangSmith, sums", "Inspect, sums, mockllm/model").both == 1


def test_other_choices_make_another_task(tmp_path):
    runs = []
    for choices in (["1", "3"], ["3", "5"]):
        log = json.loads((LOGS / "inspect.json").read_text())
        log["samples"][0]["choices"] = choices
        (tmp_path / "log.json").write_text(json.dumps(log))
        runs += tl.load(tmp_path / "log.json")
    assert list(tl.stats.success_rates(runs).tasks) == [2]


def test_numbered_tasks_of_two_origins_are_the_same_only_by_their_choices():
    def made(domain, data):
        run = tl.load(LOGS / "inspect.json")[0]
        run.header = msgspec.structs.replace(
            run.header, task={"question": "q", "domain": domain, "data": data}
        )
        return run

    own = [made(None, {"words": "A"}), made(None, {"words": "B"}), made(None, {"choices": {"A": "3"}})]
    others = [made({"kind": "published/imported"}, {"choices": [text]}) for text in "123"]
    labels = [place.task for place in placed([*own, *others], "a test")]
    question = own[0].question
    assert labels == [question + end for end in ("", " #2", " #3", "", " #4", " #3")]


@pytest.mark.slow
def test_logs_without_a_verdict_cannot_be_compared_by_success():
    runs = [tl.load(LOGS / "otlp.json")[0], *tl.load(LOGS / "langgraph.json")]
    assert list(tl.stats.success_rates(runs).ungraded) == [1, 1]
    with pytest.raises(ValueError, match=r"'OpenTelemetry, agent' \(0 graded tasks\) and 'LangGraph' \(0\)"):
        tl.stats.compare(runs, "OpenTelemetry, agent", "LangGraph")


def test_a_wrong_answer_is_shown_with_the_target_of_the_log():
    [run] = tl.load(LOGS / "inspect.json")
    assert "✗ wrong, expected 3" in repr(run)
    assert "expected" not in repr(tl.load(LOGS / "reflexion.jsonl")[1])


@pytest.mark.nightly
def test_runs_of_every_tool_open_from_the_page_of_all(chrome, tmp_path):
    runs = list({run.name: run for run in tl.load(LOGS)}.values())
    with offline_pages(chrome) as open_page:
        page = open_page(tl.Explorer(runs).save_html(tmp_path / "all.html"))
        page.get_by_role("button", name="table").click()
        cells = page.locator("button.tl-run")
        assert cells.count() == len(runs)
        for place, run in enumerate(runs):
            cells.nth(place).click()
            used = page.get_by_text(f"{len(run.tree)} thoughts ·").last
            soon(lambda used=used: used.is_visible())
            words = used.text_content()
            assert words.endswith("time unknown") == ("times" in run.header.unknown)
            assert ("at least" in words or "calls, " in words) == ("calls" in run.header.unknown)
            assert words.count("unknown") <= 1


def test_recorded_replies_answer_a_search_that_sends_the_recorded_prompt():
    run = tl.load(LOGS / "langsmith.jsonl")[0]
    first = calls_of(run)[0][0]

    class Same(tl.Strategy):
        kind = "same_prompt"

        def think(self, task, at="0"):
            yield tl.Thought(at, None, task.question)
            reply = yield from tl.ask(tl.Call(at, "ask", first.messages))
            return tl.Answer(reply.text, "answered")

        def max_calls(self, task):
            return 1

    would = tl.counterfactual(run, Same())
    assert would.whole
    assert would.run.answer == "I add them."


@pytest.mark.parametrize("file", FILES)
def test_a_log_that_was_cut_off_is_an_error_that_names_the_file(file, tmp_path):
    data = (LOGS / file).read_bytes()
    (tmp_path / file).write_bytes(data[: len(data) * 2 // 3])
    with pytest.raises(tl.errors.JournalError, match=file):
        tl.load(tmp_path / file)


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("otlp.json", '"spanId": "', '"spanId": 7, "x": "', "entry 1: Expected `str`"),
        (
            "phoenix.json",
            '"start_time": "2026',
            '"start_time": "x2026',
            "entry 1: field 'start_time' must be",
        ),
        ("phoenix.json", '"trace_id": "', '"other": "', "entry 1: field 'context.trace_id' must be"),
        (
            "openinference.jsonl",
            '"llm.token_count.prompt": 11',
            '"llm.token_count.prompt": -11',
            "entry 1: field 'llm.token",
        ),
        (
            "genai.jsonl",
            '"gen_ai.usage.input_tokens": 11',
            '"gen_ai.usage.input_tokens": "x"',
            "line 1: field",
        ),
        (
            "langsmith.jsonl",
            '"inputs": {',
            '"inputs": 3, "x": {',
            "line 1: Expected `object | null`, got `int` - at `$.inputs`",
        ),
        ("langsmith.jsonl", '"id": "', '"idea": "', "line 1: Object missing required field `id`"),
        ("langgraph_sdk.json", '"created_at": "', '"created_at": "x', "entry 1: field 'created_at' must be"),
        (
            "langgraph.json",
            '"checkpoint_id": "',
            '"checkpoint": "',
            "entry 1: field 'checkpoint_id' is missing",
        ),
    ],
)
def test_a_bad_row_names_the_place_and_the_field(file, old, new, message, tmp_path):
    text = (LOGS / file).read_text()
    assert old in text
    (tmp_path / file).write_text(text.replace(old, new, 1))
    with pytest.raises(tl.errors.JournalError) as raised:
        tl.load(tmp_path / file)
    assert f"{file}, {message}" in str(raised.value)


VALUES = [None, 3, -1, 1.5e300, "x", [], {}, [3], {"a": 1}, True, [[]], "9" * 500]


def places(value):
    """The paths of all values inside a JSON value."""
    found, waiting = [], [(value, ())]
    while waiting:
        held, at = waiting.pop()
        inner = held.items() if isinstance(held, dict) else enumerate(held) if isinstance(held, list) else ()
        waiting += [(each, (*at, key)) for key, each in inner]
        found.append(at)
    return found[1:]


ROWS = [name for name in FILES if name.endswith((".json", ".jsonl")) and name != "openinference.jsonl"]


@pytest.mark.slow
@pytest.mark.parametrize("file", ROWS)
def test_a_value_of_any_kind_anywhere_is_read_or_refused_with_the_file(file, tmp_path):
    text, dice = (LOGS / file).read_text(), random.Random(file)
    rows = [json.loads(line) for line in text.splitlines()] if file.endswith("l") else json.loads(text)
    for at in dice.choices(places(rows), k=25):
        new = json.loads(json.dumps(rows))
        holder = new
        for key in at[:-1]:
            holder = holder[key]
        holder[at[-1]] = dice.choice(VALUES)
        (tmp_path / file).write_text(
            "\n".join(map(json.dumps, new)) if file.endswith("l") else json.dumps(new)
        )
        try:
            runs = tl.load(tmp_path / file)
        except tl.errors.JournalError as error:
            assert file in str(error), at  # noqa: PT017
            continue
        for run in runs[:1]:
            assert tl.load(run.save(tmp_path / "run.jsonl")).lines == run.lines, at


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("langsmith.jsonl", '"generations": [[{', '"generations": 3, "x": [[{'),
        ("langsmith.jsonl", '"generations": [[{', '"generations": [3], "x": [[{'),
        ("langsmith.jsonl", '"inputs": {"messages": [[', '"inputs": {"messages": 3, "x": [['),
        ("langgraph_sdk.json", '"tasks": []', '"tasks": 3'),
        ("otlp.json", '"startTimeUnixNano": "', f'"startTimeUnixNano": "{"9" * 400}'),
    ],
)
def test_a_value_of_another_kind_is_refused_with_its_place(file, old, new, tmp_path):
    text = (LOGS / file).read_text()
    assert old in text
    (tmp_path / file).write_text(text.replace(old, new))
    with pytest.raises(tl.errors.JournalError, match=rf"{file}, (line|entry) \d+.*field '"):
        tl.load(tmp_path / file)


@pytest.mark.parametrize("depth", [100, 500, 900, 5000])
@pytest.mark.parametrize("file", ["langsmith.jsonl", "otlp.json", "langgraph_sdk.json"])
def test_deeply_nested_values_are_read_or_refused(file, depth, tmp_path):
    text = (LOGS / file).read_text()
    old = {"otlp.json": '"arrayValue": {', "langsmith.jsonl": '"outputs": {'}.get(
        file, '"response_metadata": {'
    )
    deep = '{"values": [{"arrayValue": ' * depth + "{}" + "}]}" * depth
    if old not in text:
        old, deep = '"value": {', f'{{"arrayValue": {deep}}}'
    (tmp_path / file).write_text(text.replace(old, f'{old[:-1]}{deep}, "x": {{', 1))
    try:
        tl.load(tmp_path / file)
    except tl.errors.JournalError as error:
        assert file in str(error)  # noqa: PT017


def test_a_byte_order_mark_is_no_part_of_a_log(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + (LOGS / "langsmith.jsonl").read_bytes())
    assert len(tl.load(tmp_path / "a.jsonl")) == 2


@pytest.mark.parametrize(
    ("recognised", "read", "error"),
    [
        (lambda head: head["a"], None, "'mine' raised an error: got TypeError: byte indices"),
        (
            lambda head: True,
            lambda path: ["text"],
            r"'mine' must return a Run or .*: got \['text'\]",
        ),
        (lambda head: True, lambda path: None, "'mine' must return a Run or a list of Runs: got None"),
        (
            lambda head: True,
            lambda path: json.loads("{"),
            r"a\.jsonl: the importer 'mine' cannot read it: JSONDecodeError: Expecting",
        ),
        (
            lambda head: True,
            lambda path: tl.read_nodes(
                [{"id": "a", "parent": None, "text": ""}, {"id": "b", "parent": "q", "text": ""}]
            ),
            r"a\.jsonl: the importer 'mine' cannot read it: .*row 2.*parent",
        ),
    ],
)
def test_an_importer_with_a_mistake_is_named(tmp_path, monkeypatch, recognised, read, error):
    from tot_lab.record import importers

    (tmp_path / "a.jsonl").write_text("text")
    mine = SimpleNamespace(recognises=recognised, read=read)
    monkeypatch.setattr(importers, "_importers", lambda: iter([("mine", mine)]))
    with pytest.raises((RuntimeError, TypeError, tl.errors.JournalError), match=error):
        tl.load(tmp_path / "a.jsonl")


def test_each_file_is_recognised_by_one_importer():
    from tot_lab.core.registry import built_in
    from tot_lab.record import importers

    for file in FILES:
        head = importers._head(LOGS / file)
        assert sum(importer.recognises(head) for importer in built_in("importers").values()) == 1, file
    buffer = io.BytesIO()
    archive(buffer, {"hello.txt": "an archive of another kind"})
    assert not any(importer.recognises(buffer.getvalue()) for importer in built_in("importers").values())
