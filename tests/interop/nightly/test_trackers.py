"""`tl.track` with MLflow and wandb, each in an environment with tot_lab and its extra alone, read back by the
readers of these packages.
"""

import json
import os
import subprocess

import pytest
from support.pages import blocks
from support.venvs import python_with

SWEEP = """
import asyncio, json, os, sys
import tot_lab as tl

SECRET = os.environ["MY_SERVICE_API_KEY"]

class Failing(tl.OneAnswer):
    kind = "tests/failing"

    def think(self, task, at="0"):
        if not os.path.exists("repaired"):
            raise ZeroDivisionError(f"not yet, {SECRET}")
        return (yield from super().think(task, at))

settings = {
    "search.width=1": tl.TreeOfThoughts(search=tl.BeamSearch(width=1)),
    "search.width:1": tl.TreeOfThoughts(search=tl.BeamSearch(width=1), merge=True),
    "search.width?1": tl.ChainOfThought(),
    "failing": Failing(),
    "long " + 300 * "x": tl.OneAnswer(),
}

def swept(**more):
    lab = tl.Lab("sim/game24", runs="runs")
    return asyncio.run(lab.sweep(settings, tl.game24_tasks(2), repeats=2, name="mine", **more))

def rates(sweep):
    table = tl.stats.success_rates(sweep)
    return {row["setting"]: [row["rate"], row["low"], row["high"]] for row in table.to_dict("records")}
"""


def carried_out(python, code, folder, **environment):
    """Run code after `SWEEP`, and return what it prints as JSON last."""
    known = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW", "WANDB"))}
    done = subprocess.run(  # noqa: PLW1510  the assertion shows what it wrote
        [python, "-c", SWEEP + code],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**known, "MY_SERVICE_API_KEY": "key-0123456789abcdef", **environment},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


MLFLOW = """
import mlflow

def recorded():
    runs = mlflow.search_runs(output_format="list")
    files = {}
    for run in runs:
        found = mlflow.artifacts.list_artifacts(run_id=run.info.run_id, artifact_path="tot_lab")
        files[run.info.run_id] = sorted(one.path.rpartition("/")[2] for one in found)
    return [
        [one.run_id, one.status, run.data.metrics, run.data.params, run.data.tags, files[one.run_id]]
        for run in runs
        for one in [run.info]
    ]

sweep = swept()
mlflow.set_experiment("tree search")
with mlflow.start_run(run_name="of the user") as own:
    parent = tl.track.mlflow(sweep)
    assert mlflow.active_run().info.run_id == own.info.run_id
once = recorded()
history = mlflow.MlflowClient().get_metric_history(parent, "runs")
assert tl.track.mlflow(sweep) == parent
twice = recorded()
assert len(mlflow.MlflowClient().get_metric_history(parent, "runs")) == len(history) == 1
journals = {}
for run in once:
    if "run.jsonl" in run[5]:
        path = mlflow.artifacts.download_artifacts(run_id=run[0], artifact_path="tot_lab/run.jsonl")
        journals[run[4]["tot_lab.id"]] = len(tl.load(path).tree)
whole = {run.id: len(run.tree) for run in sweep.runs()}
calls = {run.id: run.usage.calls for run in sweep.runs()}
open("repaired", "w").close()
again = swept()
assert tl.track.mlflow(again) == parent
print(json.dumps([own.info.run_id, parent, once, twice, recorded(), journals, whole, calls, rates(sweep)]))
"""


@pytest.fixture(scope="module")
def in_mlflow(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mlflow")
    python = python_with("sqlalchemy>=2,<3", "alembic>=1,<2", tot_lab="mlflow")
    uri = f"sqlite:///{folder}/mlflow.db"
    return carried_out(python, MLFLOW, folder, MLFLOW_TRACKING_URI=uri)


def test_mlflow_has_a_parent_and_a_child_for_each_run(in_mlflow):
    _, parent, once, _, _, journals, whole, calls, rates = in_mlflow
    runs = {run_id: held for run_id, *held in once}
    children = [held for held in runs.values() if held[3].get("mlflow.parentRunId") == parent]
    assert len(children) == 20
    assert len(runs) == 20 + 2
    status, metrics, params, tags, files = runs[parent]
    assert (status, params["sweep"], params["runs"]) == ("FINISHED", "mine", "20")
    assert files == ["sweep.csv", "sweep.csv.json", "sweep.html"]
    labels = {  # characters that MLflow refuses are replaced, and labels stay apart
        "search.width=1": "search.width_1",
        "search.width:1": "search.width:1",
        "search.width?1": "search.width_1 2",
    }
    for setting, (rate, low, high) in rates.items():
        label = labels.get(setting, setting)[:200]
        if rate is not None:
            assert [metrics[f"{name}/{label}"] for name in ("rate", "low", "high")] == [rate, low, high]
            assert low < rate <= high or rate == 0
    assert metrics["total/calls"] == sum(calls.values())
    assert journals == whole
    assert len(whole) == 20
    for status, metrics, params, tags, files in children:
        failed = params["setting"] == "failing"
        assert status == ("FAILED" if failed else "FINISHED")
        assert files == ["run.html", "run.jsonl"]
        assert tags["error"].startswith("ZeroDivisionError: not yet" if failed else "")
        assert bool(tags["error"]) == failed
        assert metrics["calls"] == calls[tags["tot_lab.id"]]
        assert ("correct" in metrics) == (not failed)
        if params["setting"] == "search.width=1":
            assert (params["strategy.kind"], params["strategy.search.width"]) == ("tree_of_thoughts", "1")
    assert "key-0123456789abcdef" not in json.dumps(in_mlflow)


def test_mlflow_has_no_duplicates_and_follows_a_continued_sweep(in_mlflow):
    _, parent, once, twice, continued, *_ = in_mlflow
    assert sorted(map(str, twice)) == sorted(map(str, once))
    assert {run[0] for run in continued} == {run[0] for run in once}
    children = [run for run in continued if run[4].get("mlflow.parentRunId") == parent]
    assert {run[1] for run in children} == {"FINISHED"}
    assert {run[4]["error"] for run in children} == {""}
    assert all("correct" in run[2] for run in children)


WANDB = """
import glob, wandb
from wandb.proto.wandb_internal_pb2 import Record

def records(path):
    "The records of a file of wandb: blocks of 32 KiB with the framing of LevelDB."
    data, at, whole = open(path, "rb").read(), 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        whole, at = whole + data[at + 7 : at + 7 + length], at + 7 + length
        if kind in (1, 4):
            yield Record.FromString(whole)
            whole = b""

def recorded(path):
    made = {"summary": {}, "config": {}, "files": []}
    for record in records(path):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            made |= {"id": record.run.run_id, "group": record.run.run_group, "job": record.run.job_type}
            made["config"] |= {one.key: json.loads(one.value_json) for one in record.run.config.update}
        elif kind == "summary":
            for one in record.summary.update:
                made["summary"][one.key or one.nested_key[0]] = json.loads(one.value_json)
        elif kind == "artifact":
            made["files"] += sorted(one.path for one in record.artifact.manifest.contents)
        elif kind == "request" and record.request.WhichOneof("request_type") == "log_artifact":
            manifest = record.request.log_artifact.artifact.manifest
            made["files"] += sorted(one.path for one in manifest.contents)
        elif kind == "exit":
            made["exit"] = record.exit.exit_code
    return made

sweep = swept()
id = tl.track.wandb(sweep)
wandb.teardown()  # its process writes the rest of its files
once = [recorded(path) for path in sorted(glob.glob("wandb/offline-run-*/*.wandb"))]
assert tl.track.wandb(sweep) == id
wandb.teardown()
twice = [recorded(path)["id"] for path in sorted(glob.glob("wandb/offline-run-*/*.wandb"))]
calls = {run.id: run.usage.calls for run in sweep.runs()}
print(json.dumps([id, once, twice, calls, rates(sweep)]))
"""


def test_wandb_has_a_group_with_a_run_for_each_run(tmp_path):
    python = python_with(tot_lab="wandb")
    id, once, twice, calls, rates = carried_out(python, WANDB, tmp_path, WANDB_MODE="offline")
    assert len(once) == 21
    assert {run["group"] for run in once} == {id}
    assert {run["id"] for run in once} == {id, *(f"{id}-{run_id}" for run_id in calls)}
    assert sorted(twice) == sorted([run["id"] for run in once] * 2)  # offline, as the docstring says
    (parent,) = [run for run in once if run["job"] == "sweep"]
    assert parent["config"]["sweep"] == "mine"
    rate, low, high = rates["search.width:1"]
    assert [parent["summary"][f"{name}/search.width:1"] for name in ("rate", "low", "high")] == [
        rate,
        low,
        high,
    ]
    assert parent["files"] == ["sweep.csv", "sweep.csv.json", "sweep.html"]
    for run in once:
        if run is parent:
            continue
        failed = run["config"]["setting"] == "failing"
        assert run["exit"] == int(failed)
        assert run["summary"]["calls"] == calls[run["id"].rpartition("-")[2]]
        assert bool(run["summary"]["error"]) == failed
        assert run["files"] == ["run.html", "run.jsonl"]
    assert "key-0123456789abcdef" not in json.dumps(once)


def test_the_code_of_the_guide_runs(tmp_path):
    python = python_with("sqlalchemy>=2,<3", "alembic>=1,<2", tot_lab="mlflow,otel,wandb")
    code = f"""
import ast
unused = ["mlflow", "wandb", "google.protobuf", "opentelemetry", "tot_lab.interop.trackers"]
assert not {{*unused}} & {{*sys.modules}}, "all is installed, and nothing of it is imported before it is used"
names = {{}}
for block in {blocks("docs/how-to/trackers.md")!r}:
    done = eval(compile(block, "guide", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    if done is not None:
        asyncio.run(done)
import mlflow
print(json.dumps(len(mlflow.search_runs(output_format="list"))))
"""
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    assert carried_out(python, code, tmp_path, MLFLOW_TRACKING_URI=uri, WANDB_MODE="offline") == 11
    assert len([*tmp_path.glob("wandb/offline-run-*")]) == 11


def test_without_its_package_each_names_its_extra(tmp_path):
    code = """
recorded = []
for name in ("mlflow", "wandb"):
    try:
        getattr(tl.track, name)(sweep)
    except ImportError as error:
        recorded.append(str(error))
try:
    tl.OpenTelemetry("http://localhost:6006")
except ImportError as error:
    recorded.append(str(error))
print(json.dumps(recorded))
"""
    recorded = carried_out(python_with(tot_lab=""), f"sweep = swept()\n{code}", tmp_path)
    assert recorded == [
        "track.mlflow requires mlflow: pip install 'tot-lab[mlflow]'.",
        "track.wandb requires wandb: pip install 'tot-lab[wandb]'.",
        "OpenTelemetry requires opentelemetry-proto: pip install 'tot-lab[otel]'.",
    ]


def test_the_extra_of_traces_installs_alone(tmp_path):
    code = """
trace = tl.OpenTelemetry("http://127.0.0.1:9")
try:
    trace.send(next(swept().runs()))
except ConnectionError as error:
    print(json.dumps(str(error)))
"""
    assert "Connection refused" in carried_out(python_with(tot_lab="otel"), code, tmp_path)
