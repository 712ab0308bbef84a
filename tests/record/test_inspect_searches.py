"""A log of Inspect that holds a search of this project has its tree. `data/inspect/make.py` made them."""

import json
import subprocess
import sys

import pytest
from support import DATA

import tot_lab as tl

LOG, JOURNAL = DATA / "inspect" / "search.eval", DATA / "inspect" / "search.jsonl"


@pytest.fixture
def log():
    return json.loads((DATA / "inspect" / "search.json").read_text())


def records(log, kind):
    """The data of the info events whose record is of that kind."""
    events = log["samples"][0]["events"]
    return [
        event["data"]
        for event in events
        if event.get("source") == "tot_lab" and event["data"]["e"]["type"] == kind
    ]


def read(log, tmp_path):
    path = tmp_path / "log.json"
    path.write_text(json.dumps(log))
    (run,) = tl.load(path)
    return run


def test_the_nodes_are_those_of_the_journal():
    (run,), mine = tl.load(LOG), tl.load(JOURNAL)
    fields = ("id", "parent", "text", "score", "state", "reason")
    assert [[getattr(node, name, None) for name in fields] for node in run.tree] == [
        [getattr(node, name, None) for name in fields] for node in mine.tree
    ]
    assert (run.id, run.answer, run.stop_reason, run.grade) == (
        mine.id,
        mine.answer,
        mine.stop_reason,
        mine.grade,
    )
    assert run.usage == mine.usage
    assert run.seconds == mine.seconds
    assert run.simulated
    assert run.name == "Inspect, games tree∕2, sim/game24"


def test_the_calls_are_those_of_the_journal():
    (run,), mine = tl.load(LOG), tl.load(JOURNAL)
    columns = ["node", "purpose", "sample", "prompt", "reply", "error", "input_tokens", "output_tokens"]
    made, own = run.calls_df(), mine.calls_df()
    columns = [name for name in columns if name in own]
    assert {"prompt", "error"} <= {*columns}
    assert own["error"].notna().any()  # a budget refused some
    assert made[columns].equals(own[columns])


@pytest.mark.slow
def test_loading_imports_no_inspect():
    code = f"import sys, tot_lab as tl; tl.load({str(LOG)!r}); print('inspect_ai' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_log_as_json_reads_as_its_archive(log, tmp_path):
    (whole,) = tl.load(LOG)
    again = read(log, tmp_path)
    assert again.events == whole.events


def test_the_score_of_the_log_is_the_grade(log, tmp_path):
    log["samples"][0]["scores"]["grade"]["value"] = 0.25
    assert read(log, tmp_path).grade == 0.25


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda log: records(log, "scored")[0]["e"].update(score=2),
            r"json, sample 1, event \d+: .*score",
        ),
        (lambda log: records(log, "scored")[0].pop("p"), r"event \d+: .*`p`"),
        (lambda log: records(log, "thought")[1]["e"].update(parent="0.7"), "log.json, sample 1: .*0.7"),
        (
            lambda log: (
                records(log, "ended")[0]["e"].update(node=None, ranked=[])
                or records(log, "thought")[1]["e"].update(parent="0.7")
            ),
            "log.json, sample 1: .*0.7",
        ),
        (lambda log: records(log, "ended")[0]["e"].update(node="0.9.9"), "log.json, sample 1: .*0.9.9"),
    ],
)
def test_damaged_records_are_errors_with_their_place(log, tmp_path, change, message):
    change(log)
    with pytest.raises(tl.errors.JournalError, match=message):
        read(log, tmp_path)


def test_text_in_attachments_is_put_back(log, tmp_path):
    (thought, *_) = records(log, "thought")
    text, thought["e"]["text"] = thought["e"]["text"], "attachment://" + "0" * 32
    log["samples"][0]["attachments"] = {"0" * 32: text}
    assert read(log, tmp_path).tree["0"].text == text


def test_a_log_without_these_records_is_read_by_its_prompts(log, tmp_path):
    events = log["samples"][0]["events"]
    log["samples"][0]["events"] = [event for event in events if event.get("source") != "tot_lab"]
    run = read(log, tmp_path)
    assert len(run.tree) == 1 + sum(event["event"] == "model" for event in events)


def test_of_the_tries_of_a_call_the_last_one_counts(log, tmp_path):
    before = read(log, tmp_path)
    events = log["samples"][0]["events"]
    number, event = next((k, e) for k, e in enumerate(events) if e["event"] == "model")
    failed = {**event, "output": {**event["output"], "choices": []}, "error": "overloaded"}
    log["samples"][0]["events"] = [*events[:number], failed, *events[number:]]
    assert read(log, tmp_path).events == before.events
