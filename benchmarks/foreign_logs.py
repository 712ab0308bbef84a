"""Prints the CPU time of importing logs of other tools, as a multiple of `json.load` on the same file.

    python benchmarks/foreign_logs.py [RUNS [CALLS]]

The logs are those of `tests/data/logs`, repeated with other ids: RUNS runs (1,000) of CALLS calls each (100).
Those of LangGraph hold all messages again in each state, so a tenth of RUNS is measured.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tot_lab as tl

LOGS = Path(__file__).parent.parent / "tests" / "data" / "logs"


def inspect_log(runs: int, calls: int) -> str:
    """A log with a transcript of `calls` replies to one prompt per sample."""
    log = json.loads((LOGS / "inspect.json").read_text())
    [sample] = log["samples"]
    [event] = [event for event in sample["events"] if event["event"] == "model"]
    text, own = json.dumps(event), event["output"]["choices"][0]["message"]["id"]
    events = [json.loads(text.replace(own, f"reply{k}")) for k in range(calls)]
    log["samples"] = [{**sample, "id": str(k), "events": events} for k in range(runs)]
    return json.dumps(log)


def spans(runs: int, calls: int) -> str:
    """One span per line, `calls` of which in a trace call a model."""
    rows = json.loads((LOGS / "phoenix.json").read_text())["data"][:4]
    [root] = [row for row in rows if row["parent_id"] is None]
    model = rows[0]
    made = []
    for k in range(runs):
        made.append({**root, "context": {"trace_id": f"t{k}", "span_id": f"r{k}"}})
        for n in range(calls):
            context = {"trace_id": f"t{k}", "span_id": f"s{k}.{n}"}
            made.append({**model, "context": context, "parent_id": f"r{k}"})
    return "\n".join(map(json.dumps, made))


def langsmith(runs: int, calls: int) -> str:
    """One run per line, `calls` of which in a trace call a model."""
    rows = [json.loads(line) for line in (LOGS / "langsmith.jsonl").read_text().splitlines()]
    root, model = rows[0], next(row for row in rows if row["run_type"] == "llm")
    made = []
    for k in range(runs):
        made.append({**root, "id": f"r{k}", "trace_id": f"t{k}"})
        made += [
            {**model, "id": f"s{k}.{n}", "trace_id": f"t{k}", "parent_run_id": f"r{k}"} for n in range(calls)
        ]
    return "\n".join(map(json.dumps, made))


def reflexion(runs: int, calls: int) -> str:
    """One task per line, with `calls` implementations of 1,500 characters, as in the published logs."""
    task = json.loads((LOGS / "reflexion.jsonl").read_text().splitlines()[1])
    for name, count in (("implementations", calls), ("test_feedback", calls), ("reflections", calls - 1)):
        task[name] = [task[name][0]] * count
    task["implementations"] = [f"{text}{'# a comment' * 136}" for text in task["implementations"]]
    return "\n".join([json.dumps(task)] * runs)


def langgraph(runs: int, calls: int) -> str:
    """One state per line, with all messages of its thread so far, the last of which is a new reply."""
    states = json.loads((LOGS / "langgraph_sdk.json").read_text())
    state = next(state for state in states if len(state["values"]["messages"]) == 2)
    asked, reply = state["values"]["messages"]
    made = []
    for k in range(runs):
        messages = [asked, *({**reply, "id": f"a{n}", "tool_calls": []} for n in range(calls))]
        for n in range(calls):
            own, above = ({"thread_id": f"t{k}", "checkpoint_id": f"c{m:04}"} for m in (n, n - 1))
            held = {"values": {"messages": messages[: n + 2]}, "checkpoint": own, "parent_checkpoint": above}
            made.append({**held, "created_at": state["created_at"], "next": [], "tasks": []})
    return "\n".join(map(json.dumps, made))


def seconds(work: Callable[[Path], Any], path: Path) -> float:
    """CPU seconds of one call."""
    start = time.process_time()
    work(path)
    return time.process_time() - start


def parsed(path: Path) -> Any:
    """The file by `json`, as a whole or by lines."""
    with path.open() as file:
        return [json.loads(line) for line in file] if path.suffix == ".jsonl" else json.load(file)


def main(runs: int = 1000, calls: int = 100) -> None:
    print(f"{runs:,} runs of {calls:,} calls: the ratio is the median of 3 alternating pairs")
    for make, suffix in (
        (inspect_log, ".json"),
        (spans, ".jsonl"),
        (langsmith, ".jsonl"),
        (langgraph, ".jsonl"),
        (reflexion, ".jsonl"),
    ):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"log{suffix}"
            path.write_text(make(runs // 10 if make is langgraph else runs, calls))
            tl.load(path)
            pairs = [(seconds(parsed, path), seconds(tl.load, path)) for _ in range(3)]
            json_time, own = sorted(pairs, key=lambda pair: pair[1] / pair[0])[1]
            size = path.stat().st_size / 1e6
        times = f"json {json_time:5.2f} s  tot_lab {own:5.2f} s"
        print(f"{make.__name__:12} {size:6.1f} MB  {times}  {own / json_time:4.1f} x")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
