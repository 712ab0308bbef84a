"""`tot-lab serve` as a process, asked by OpenAI's SDK, stopped and killed."""

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request

import pytest
from support.serving import process, until
from support.venvs import python_with

import tot_lab as tl

GAME = ("--model", "sim/game24", "--domain", "game24", "--as", "fast=tree_of_thoughts search.width=2")
SLOW = ("--model", "sim/game24", "latency=0.06", *GAME[2:4], "--as", "fast=tree_of_thoughts parallel=false")
"""A search whose calls take 0.06 s, one after the other."""


def asking(url: str, script: str, key: str = "none") -> subprocess.Popen[str]:
    """Start `script` with OpenAI's SDK. It fills `got`, a dict, and prints it."""
    client = f"import json, openai\nclient = openai.OpenAI(base_url={url!r}, api_key={key!r})\ngot = {{}}"
    command = [python_with("openai>=3,<4"), "-c", f"{client}\n{script}\nprint(json.dumps(got))"]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def received(client: subprocess.Popen[str]) -> dict:
    out, err = client.communicate(timeout=60)
    assert client.returncode == 0, err
    return json.loads(out)


def sdk(url: str, script: str, key: str = "none") -> dict:
    return received(asking(url, script, key))


def asked(question: str) -> str:
    """A script that asks a question."""
    return f"""
ask = {{"model": "fast", "messages": [{{"role": "user", "content": {question!r}}}]}}
raw = client.with_options(max_retries=8).chat.completions.with_raw_response.create(**ask)
got["run"], got["answer"] = raw.headers["x-tot-lab-run"], raw.parse().choices[0].message.content
"""


def journals(folder):
    return [tl.load(path) for path in sorted((folder / "runs" / "serve").glob("*.jsonl"))]


def test_the_sdk_reads_replies_streams_and_errors(tmp_path):
    script = """
ask = {"model": "fast", "messages": [{"role": "user", "content": "4 5 6 10"}], "seed": 0}
got["models"] = [model.id for model in client.models.list()]
raw = client.chat.completions.with_raw_response.create(**ask, max_tokens=5)
reply = raw.parse()
got["run"] = raw.headers["x-tot-lab-run"]
got["answer"] = reply.choices[0].message.content
got["reasoning"] = reply.choices[0].message.reasoning_content
got["finish"] = reply.choices[0].finish_reason
got["usage"] = reply.usage.total_tokens
got["url"] = reply.tot_lab["url"]
streamed = {"content": "", "reasoning": ""}
for chunk in client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}):
    for choice in chunk.choices:
        streamed["content"] += choice.delta.content or ""
        streamed["reasoning"] += getattr(choice.delta, "reasoning_content", None) or ""
    if chunk.usage:
        streamed["usage"] = chunk.usage.total_tokens
got["streamed"] = streamed
lower = {"tot_lab": {"budget": {"calls": 3}, "settings": {"search.width": 1}}}
errors = {
    "model": {**ask, "model": "other"},
    "tools": {**ask, "tools": [{"type": "function", "function": {"name": "f"}}]},
    "setting": {**ask, "extra_body": {"tot_lab": {"settings": {"model": "x"}}}},
    "budget": {**ask, "extra_body": lower},
}
for name, body in errors.items():
    try:
        client.chat.completions.create(**body)
    except openai.APIStatusError as error:
        got[name] = [type(error).__name__, error.param, error.code]
"""
    with process(*GAME, folder=tmp_path) as (server, printed):
        got = sdk(printed["API"], script)
        runs = {run.id: run for run in journals(tmp_path)}
        run = runs[got["run"]]
        assert got["models"] == ["fast"]
        assert got["answer"] == got["streamed"]["content"] == run.answer
        assert got["usage"] == got["streamed"]["usage"] == run.usage.input_tokens + run.usage.output_tokens
        assert sorted(got["reasoning"].splitlines()) == sorted(got["streamed"]["reasoning"].splitlines())
        assert got["finish"] == "stop"
        with urllib.request.urlopen(got["url"]) as page:
            assert b"tot-lab-explorer" in page.read()
        assert got["model"] == ["NotFoundError", "model", "model_not_found"]
        assert got["tools"] == ["BadRequestError", "tools", "unsupported_parameter"]
        assert got["setting"] == ["BadRequestError", "tot_lab.settings.model", None]
        assert got["budget"] == ["BadRequestError", None, "budget:calls"]
        lowered = [run for run in runs.values() if run.header.budget]
        assert [(run.header.budget, run.strategy.search.width) for run in lowered] == [({"calls": 3}, 1)]
        server.send_signal(signal.SIGTERM)
        assert server.wait(5) == 0
        assert server.stderr.read() == ""


def test_a_signal_ends_the_server_after_the_searches_under_way(tmp_path):
    with process(*SLOW, folder=tmp_path) as (server, printed):
        client = asking(printed["API"], asked("4 5 6 10"))
        until(lambda: any(len(run.tree) > 1 for run in journals(tmp_path)), 30)
        server.send_signal(signal.SIGINT)
        server.send_signal(signal.SIGTERM)  # a second one does not cut it short
        assert server.wait(20) == 0
        (run,) = journals(tmp_path)
        assert received(client) == {"run": run.id, "answer": run.answer}


def test_a_killed_server_loses_nothing_and_the_retry_of_the_sdk_continues_its_run(tmp_path):
    """The server is killed during a request, and started again at the same port before the SDK gives up."""
    with process(*SLOW, folder=tmp_path) as (server, printed):
        finished = sdk(printed["API"], asked("1 2 3 4"))
        client = asking(printed["API"], asked("4 5 6 10"))
        until(lambda: len(journals(tmp_path)) == 2 and journals(tmp_path)[-1].usage.calls >= 2, 30)
        server.kill()
        server.wait()
    before = {run.id: run for run in journals(tmp_path)}
    (cut,) = (run for run in before.values() if run.stop_reason is None)
    assert before[finished["run"]].answer == finished["answer"]
    port = printed["API"].removesuffix("/v1").rpartition(":")[2]
    with process(*SLOW, "--port", port, folder=tmp_path):
        got = received(client)
        assert got["run"] == cut.id
        resumed = next(run for run in journals(tmp_path) if run.id == cut.id)
        assert (resumed.answer, resumed.status) == (got["answer"], "completed")
        kept = [line for line in cut.lines if line.p]
        assert [line for line in resumed.lines if line.p][: len(kept)] == kept
        assert len(journals(tmp_path)) == 2


def test_another_host_needs_the_token_that_is_printed_or_given(tmp_path):
    script = """
try:
    got["models"] = [model.id for model in client.models.list()]
except openai.AuthenticationError as error:
    got["code"] = error.code
"""
    with process(*GAME, "--host", "0.0.0.0", folder=tmp_path) as (_, printed):
        url = printed["API"].replace("0.0.0.0", "127.0.0.1")
        assert len(printed["token"]) > 30
        assert sdk(url, script) == {"code": "invalid_api_key"}
        assert sdk(url, script, key=printed["token"]) == {"models": ["fast"]}
    with process(*GAME, folder=tmp_path, TOT_LAB_TOKEN="a-token-of-mine") as (server, printed):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{printed['API']}/models")
        ask = urllib.request.Request(
            f"{printed['API']}/models", headers={"Authorization": "Bearer a-token-of-mine"}
        )
        assert json.load(urllib.request.urlopen(ask))["data"][0]["id"] == "fast"
        server.terminate()
        out, err = server.communicate(timeout=20)
        assert "a-token-of-mine" not in out + err + str(printed)
