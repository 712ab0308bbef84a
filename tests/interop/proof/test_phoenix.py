"""Phoenix receives a live run and a loaded run, each twice. It holds all spans, parents, tokens and scores
once, and its export is the run.
"""

import json
import os
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from contextlib import suppress

import pytest
from support import wait
from support.otlp import install, spans_of
from support.venvs import python_with

import tot_lab as tl

SEARCH = tl.TreeOfThoughts(propose=tl.Sample(count=5), merge=True, search=tl.BeamSearch(width=5))


@pytest.fixture(scope="module")
def phoenix(tmp_path_factory):
    """The address of a Phoenix of our own."""
    install()
    folder = tmp_path_factory.mktemp("phoenix")
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        port, grpc = one.getsockname()[1], other.getsockname()[1]
    settings = {
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(grpc),
        "PHOENIX_TELEMETRY_ENABLED": "false",
    }
    python = python_with("arize-phoenix>=20.26,<22")
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [python.parent / "phoenix", "serve"], env={**os.environ, **settings}, stdout=log, stderr=log
        )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(240):
            assert server.poll() is None, (folder / "log").read_text()[-2000:]
            with suppress(OSError):
                urllib.request.urlopen(f"{url}/healthz", timeout=5).close()
                break
            time.sleep(0.5)
        yield url
    finally:
        server.terminate()
        server.wait(30)


def asked(url):
    with urllib.request.urlopen(url, timeout=60) as reply:
        return json.load(reply)


def exported(url):
    """All spans, page by page."""
    if not any(one["name"] == "tot_lab" for one in asked(f"{url}/v1/projects")["data"]):
        return []  # nothing was written yet
    rows, cursor = [], ""
    while cursor is not None:
        page = asked(f"{url}/v1/projects/tot_lab/spans?limit=1000{cursor}")
        rows += page["data"]
        cursor = f"&cursor={urllib.parse.quote(page['next_cursor'])}" if page.get("next_cursor") else None
    return rows


def annotations(url, rows):
    found = []
    for start in range(0, len(rows), 50):
        ids = "&".join(f"span_ids={row['context']['span_id']}" for row in rows[start : start + 50])
        found += asked(f"{url}/v1/projects/tot_lab/span_annotations?limit=1000&{ids}")["data"]
    return found


def settled(url, wanted):
    """What Phoenix holds, once it has `wanted` spans: it writes them later than it accepts them."""
    for _ in range(120):
        if len(exported(url)) >= wanted:
            break
        time.sleep(0.5)
    time.sleep(3)  # for what might be too much
    return exported(url)


def test_phoenix_holds_all_of_a_live_and_a_loaded_run_once(phoenix, tmp_path):
    trace = tl.OpenTelemetry(phoenix)
    lab = tl.Lab("sim/game24", runs=tmp_path, trace=trace)
    live = wait(lab.run(SEARCH, tl.game24("4 9 10 13")))
    assert trace.flush(60)
    assert trace.lost == {}
    trace.send(live)
    quiet = tl.Lab("sim/game24", runs=tmp_path)
    loaded = tl.load(wait(quiet.run(SEARCH, tl.game24("1 2 7 7"))).path)
    for _ in range(2):
        tl.OpenTelemetry(phoenix).send(loaded)

    wanted = {span.id.hex(): span for run in (live, loaded) for span in spans_of(run)}
    rows = settled(phoenix, len(wanted))
    held = {row["context"]["span_id"]: row for row in rows}
    assert len(rows) == len(held)
    assert held.keys() == wanted.keys()
    for id, row in held.items():
        span = wanted[id]
        assert row["name"] == span.name
        assert row["parent_id"] == (span.parent and span.parent.hex())
        kinds = {"chat": "LLM", "thought": "CHAIN", "invoke_agent": "AGENT"}
        assert row["span_kind"] == kinds[span.name.split()[0]]
    for name, total in (
        ("llm.token_count.prompt", live.usage.input_tokens + loaded.usage.input_tokens),
        ("llm.token_count.completion", live.usage.output_tokens + loaded.usage.output_tokens),
    ):
        assert sum(row["attributes"].get(name, 0) for row in rows) == total

    for _ in range(60):
        scores = annotations(phoenix, rows)
        if len(scores) >= sum(len(scores_of(run)) for run in (live, loaded)):
            break
        time.sleep(0.5)
    assert sorted((one["name"], one["result"]["score"]) for one in scores) == sorted(
        score for run in (live, loaded) for score in scores_of(run)
    )

    path = tmp_path / "phoenix.json"
    path.write_text(json.dumps({"data": rows}))
    again = {run.id: run for run in tl.load(path)}
    for run in (live, loaded):
        assert again[run.id].tree == run.tree
        assert again[run.id].lines == tl.load(run.path).lines
        assert again[run.id].grade == run.grade
        assert again[run.id].usage == run.usage


def scores_of(run):
    scored = [(e.by, e.score) for e in run.events if isinstance(e, tl.records.Scored)]
    return [*scored, ("correctness", run.grade)]


def test_a_sweep_at_full_speed_arrives_whole(phoenix):
    trace = tl.OpenTelemetry(phoenix)
    before = len(exported(phoenix))
    sweep = wait(
        tl.Lab("sim/game24", runs=None, trace=trace).sweep(
            {"beam": SEARCH}, tl.game24_tasks(5), repeats=4, name="twenty"
        )
    )
    assert trace.flush(120)
    assert trace.lost == {}
    wanted = sum(len(run.tree) + run.usage.calls + 1 for run in sweep.runs())
    assert len(settled(phoenix, before + wanted)) == before + wanted
