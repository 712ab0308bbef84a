"""Inspect and lm-evaluation-harness evaluate a strategy through `tot-lab serve`, and 200 clients load it."""

import asyncio
import json
import os
import re
import subprocess
import sys

from support import ROOT, wait
from support.serving import served
from support.venvs import python_with

import tot_lab as tl

SUMS = [(17, 3), (4, 5), (100, 1), (8, 8), (12, 30), (7, 70)]
WRONG = {(4, 5), (12, 30)}
"""The sums that the model gets wrong."""

FAST = tl.TreeOfThoughts(propose=tl.Sample(count=2), search=tl.BeamSearch(width=1), stop=tl.Stop(depth=2))
OFFERS = {"fast": FAST}

INSPECT = """
import json
from inspect_ai import Task, eval
from inspect_ai.dataset import FieldSpec, json_dataset
from inspect_ai.scorer import match
data = json_dataset("problems.jsonl", FieldSpec(input="question", target="answer"))
task = Task(dataset=data, scorer=match(numeric=True))
(log,) = eval(task, model="openai-api/tot_lab/fast", log_dir="logs", display="none", epochs=2, seed=None)
samples = [
    {
        "answer": sample.output.completion,
        "tokens": sample.output.usage.total_tokens,
        "right": sample.scores["match"].value == "C",
        "parts": [type(part).__name__ for part in sample.output.message.content],
        "run": next(e for e in sample.events if e.event == "model").call.response["tot_lab"]["run"],
    }
    for sample in log.samples
]
print(json.dumps({"status": log.status, "samples": samples}))
"""

LM_EVAL = """
task: sums
dataset_path: json
dataset_kwargs:
  data_files:
    test: problems.jsonl
test_split: test
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
generation_kwargs:
  until: ["STOP"]
  max_gen_toks: 64
  temperature: 0.0
metric_list:
  - metric: exact_match
"""


async def adder(call):
    """Add the two numbers of the question."""
    if call.purpose == "value":
        return tl.Reply("score: 0.5", input_tokens=3, output_tokens=1)
    a, b = map(int, re.search(r"(\d+) \+ (\d+)", call.messages[-1].content).groups())
    return tl.Reply(f"Answer: {a + b + ((a, b) in WRONG)}", input_tokens=5, output_tokens=2)


def problems(folder):
    rows = [{"question": f"What is {a} + {b}?", "answer": str(a + b)} for a, b in SUMS]
    (folder / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


async def carried_out(*command, folder, **env):
    made = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    running = await asyncio.create_subprocess_exec(
        *map(str, command),
        cwd=folder,
        env={**made, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = await running.communicate()
    assert running.returncode == 0, err.decode()
    return out.decode()


def test_inspect_grades_what_the_searches_answered(tmp_path):
    problems(tmp_path)

    async def evaluated():
        async with served(adder, OFFERS, tmp_path / "runs", at_once=64) as api:
            python = python_with("inspect_ai>=0.3.285,<0.4", "openai>=3,<4")
            place = {"TOT_LAB_BASE_URL": f"{api.url}/v1", "TOT_LAB_API_KEY": "none"}
            printed = await carried_out(python, "-c", INSPECT, folder=tmp_path, **place)
            return json.loads(printed.splitlines()[-1]), {run.id: run for run in api.journals()}

    found, runs = wait(evaluated())
    assert found["status"] == "success"
    assert len(found["samples"]) == len(runs) == 2 * len(SUMS)
    assert len({sample["run"] for sample in found["samples"]}) == 2 * len(SUMS)
    for sample in found["samples"]:
        run = runs[sample["run"]]
        assert sample["answer"] == run.answer
        assert sample["tokens"] == run.usage.input_tokens + run.usage.output_tokens
        assert sample["parts"] == ["ContentReasoning", "ContentText"]
    assert sum(sample["right"] for sample in found["samples"]) == 2 * (len(SUMS) - len(WRONG))
    assert sorted(run.header.repeat for run in runs.values()) == [*[0] * len(SUMS), *[1] * len(SUMS)]


def test_lm_eval_grades_what_the_searches_answered(tmp_path):
    problems(tmp_path)
    (tmp_path / "sums.yaml").write_text(LM_EVAL)

    async def evaluated():
        async with served(adder, OFFERS, tmp_path / "runs", at_once=64) as api:
            python = python_with("lm_eval[api]>=0.4.13,<0.5")
            server = f"base_url={api.url}/v1/chat/completions,model=fast,num_concurrent=4"
            options = ("--tasks", "sums", "--include_path", ".", "--apply_chat_template", "--log_samples")
            model = ("--model", "local-chat-completions", "--model_args", server, "--output_path", "out")
            env = {"OPENAI_API_KEY": "none", "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "cache")}
            await carried_out(python, "-m", "lm_eval", *model, *options, folder=tmp_path, **env)
            return {run.question: run for run in api.journals()}

    runs = wait(evaluated())
    (file,) = (tmp_path / "out").rglob("samples_*.jsonl")
    samples = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(samples) == len(SUMS)
    for sample in samples:
        run = runs[sample["doc"]["question"]]
        assert sample["resps"] == [[run.answer]]
        assert run.task.data["request"]["stop"]
    assert sum(sample["exact_match"] for sample in samples) == len(SUMS) - len(WRONG)


def test_two_hundred_clients_lose_nothing_and_memory_stays(tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "serve.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stderr
    assert "answered 10,000 of 10,000, other statuses [], journals 10,000" in done.stdout
    assert float(re.search(r"\(([-+][\d.]+)%\)", done.stdout)[1]) < 10
