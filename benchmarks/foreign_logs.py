"""Prints the CPU time of importing logs of other people, as a multiple of `json.load` on the same files.

    python benchmarks/foreign_logs.py [RUNS [CALLS]]

RUNS runs (1,000) have CALLS calls or nodes each (100). Those of LangGraph hold all messages again in each
state, so a tenth of RUNS is measured. The logs of tools are those of `tests/data/logs`, repeated with other
ids. Those of Princeton and of Everything of Thoughts, and the tables of nodes, are made up in their form.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import tot_lab as tl

LOGS = Path(__file__).parent.parent / "tests" / "data" / "logs"
ROUNDS = 5


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


def tree_search(runs: int, calls: int, puzzle: str) -> str:
    """Searches with one kept candidate per level: one level with 9, and all others with 10."""
    entries = []
    for idx in range(runs):
        dice, ys, steps = random.Random(idx), [""], []
        x = puzzle.format(*(dice.randint(1, 13) for _ in range(4)))
        for step in range(calls // 10):
            new_ys = [
                f"{ys[0]}{dice.randrange(9)} + {k} = {k} (left: {k} 2 3)\n" for k in range(9 + (step > 0))
            ]
            values = [dice.choice([0.001, 1.0, 20.0]) for _ in new_ys]
            kept = [new_ys[values.index(max(values))]]
            level = {"x": x, "ys": ys, "new_ys": new_ys, "values": values, "select_new_ys": kept}
            steps.append({"step": step, **level})
            ys = kept
        entries.append({"steps": steps, "idx": idx, "ys": ys, "infos": [{"r": 0}]})
    return json.dumps(entries)


def princeton(runs: int, calls: int) -> str:
    return tree_search(runs, calls, "{} {} {} {}")


def xot(runs: int, calls: int) -> str:
    return tree_search(runs, calls, "[{} {} {} {}]")


def nodes(run: int, count: int) -> str:
    """The rows of one run, of which all but the first hold a call."""
    dice = random.Random(run)
    rows: list[dict[str, Any]] = [{"id": "n0", "parent": None, "text": f"question {run}", "score": 5.0}]
    for k in range(1, count):
        text = f"step {k}: " + " ".join(str(dice.randrange(100)) for _ in range(12))
        prompt = f"Problem: question {run}. Steps so far: " + "and then " * 8
        node = {"id": f"n{k}", "parent": f"n{dice.randrange(k)}", "text": text, "score": dice.random() * 10}
        rows.append({**node, "prompt": prompt, "reply": text, "tokens": dice.randrange(100)})
    return json.dumps(rows)


def read_nodes(path: Path) -> tl.Run:
    score: dict[str, Any] = {"score": "score", "score_range": (0, 10)}
    run: tl.Run = tl.read_nodes(path, **score, prompt="prompt", reply="reply", tokens="tokens")
    return run


def parsed(path: Path) -> Any:
    """The file by `json`, as a whole or by lines."""
    with path.open() as file:
        return [json.loads(line) for line in file] if path.suffix == ".jsonl" else json.load(file)


def seconds(work: Callable[[Path], Any], files: list[Path]) -> float:
    """CPU seconds of the work on all files, whose results are held until the end."""
    start = time.process_time()
    held = [work(file) for file in files]
    del held
    return time.process_time() - start


def measure(name: str, texts: list[str], work: Callable[[Path], Any], ending: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{number}{ending}" for number in range(len(texts))]
        for file, text in zip(files, texts, strict=True):
            file.write_text(text)
        work(files[0])  # imports what it needs
        pairs = [(seconds(parsed, files), seconds(work, files)) for _ in range(ROUNDS)]
    size = sum(map(len, texts)) / 1e6
    json_time, own = (median(column) for column in zip(*pairs, strict=True))
    ratios = sorted(own / json_time for json_time, own in pairs)
    times = f"json {json_time:5.2f} s  tot_lab {own:5.2f} s"
    print(f"{name:12}{size:7.1f} MB  {times}  {median(ratios):4.1f} x ({ratios[0]:.1f}–{ratios[-1]:.1f})")


def main(runs: int = 1000, calls: int = 100) -> None:
    print(f"{runs:,} runs of {calls:,} calls: medians (and range) of {ROUNDS} alternating pairs")
    for make, ending in (
        (princeton, ".json"),
        (xot, ".json"),
        (reflexion, ".jsonl"),
        (inspect_log, ".json"),
        (spans, ".jsonl"),
        (langgraph, ".jsonl"),
        (langsmith, ".jsonl"),
    ):
        text = make(runs // 10 if make is langgraph else runs, calls)
        measure(make.__name__, [text], tl.load, ending)
    measure("read_nodes", [nodes(run, calls) for run in range(runs)], read_nodes, ".json")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
