"""`tot-lab mcp`, driven by the SDK's own client over stdio and HTTP (`support/mcp_visitor.py`)."""

import json
import subprocess

import pytest
from support import TESTS
from support.shell import tot_lab
from support.venvs import python_with

import tot_lab as tl
from tot_lab.apps.cli.serving import VARIABLE, token_for

TOKEN = "token-of-the-lab-0123456789"


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mcp")
    python = python_with("mcp>=2.3,<3", tot_lab="mcp")
    script = [python, TESTS / "support" / "mcp_visitor.py", folder]
    made = subprocess.run(script, capture_output=True, text=True, timeout=120, check=False)
    assert made.returncode == 0, made.stderr
    return {"folder": folder, "stderr": made.stderr, **json.loads(made.stdout)}


def loaded(found, name):
    kind, outcome = found["stdio"][name]
    assert kind == "ok", outcome
    (path,) = (found["folder"] / "runs").glob(f"*-{outcome['run']}.jsonl")
    return outcome, tl.load(path)


def test_the_tools_say_what_is_offered(found):
    offered = found["stdio"]["offered"]
    assert [*offered] == ["search", "think", "runs"]
    assert "fast, once" in offered["search"][0]
    assert [tool[1] for tool in offered.values()] == [False, False, True]
    assert {*offered["search"][2]["properties"]} == {"question", "strategy", "settings", "budget"}
    assert {*offered["think"][2]["properties"]} == {"question", "context", "preset", "budget"}


def test_a_search_is_a_run_of_the_lab(found):
    outcome, run = loaded(found, "search")
    assert outcome == {
        "run": run.id,
        "answer": run.answer,
        "status": "completed",
        "stop_reason": run.stop_reason,
        "score": run.score,
        "thoughts": len(run.tree),
        "calls": run.usage.calls,
        "cost": run.usage.cost,
        "resource": f"tot-lab://runs/{run.id}",
    }
    assert run.answer
    assert run.header.strategy["search"]["width"] == 2
    assert run.header.budget["calls"] == 40


def test_progress_grows_to_the_calls_of_the_budget(found):
    done = [report[0] for report in found["stdio"]["progress"]]
    assert len(done) > 1
    assert done == sorted({*done})
    assert {report[1] for report in found["stdio"]["progress"]} == {40}
    assert done[-1] == found["stdio"]["search"][1]["calls"]


def test_a_request_changes_only_what_is_allowed(found):
    _, run = loaded(found, "changed")
    assert run.header.strategy["search"]["width"] == 1
    for name, said in {
        "unknown name": "known are fast, once",
        "raised": "budget.calls: must be at most 40: got 41",
        "unknown limit": "budget.keys",
        "model": "settings.model: not a setting that can be changed",
        "tools": "settings.tools: not a setting that can be changed",
        "too high": "settings.search.width",
        "no question": "question",
        "long": "200000 characters",
        "no problem": "four integers",
    }.items():
        kind, message = found["stdio"][name]
        assert kind == "error"
        assert said in message


def test_a_search_without_an_answer_is_an_error(found):
    kind, message = found["stdio"]["lowered"]
    assert kind == "error"
    assert "spent the budget of calls and has no answer" in message
    kind, message = found["stdio"]["think"]
    assert kind == "error"
    assert "has no answer" in message
    stops = {run["stop_reason"]: run for run in found["stdio"]["runs"][1]["result"]}
    assert "budget:calls" in stops  # its journal is kept
    assert stops["error"]["strategy"] == "gather_then_think"


def test_a_search_whose_client_leaves_is_cancelled_and_kept(found):
    stdio, http = found["stdio"], found["http"]
    assert "At most 1 searches" in stdio["second"][1]
    assert (stdio["cancelled"], stdio["left"], http["cancelled"]) == ("cancelled",) * 3
    assert stdio["next"][0] == "ok"  # the place is free again


def test_runs_are_resources(found):
    stdio = found["stdio"]
    outcome, run = loaded(found, "search")
    assert sorted(stdio["listed"]) == sorted(run["resource"] for run in stdio["runs"][1]["result"])
    assert outcome["resource"] in stdio["listed"]
    kind, text = stdio["report"]
    assert kind == "text/plain"
    assert str(run).splitlines()[0] in text
    assert run.answer in text.partition("Answer\n")[2]
    kind, text = stdio["journal"]
    assert kind == "application/x-ndjson"
    assert text == run.path.read_text()


def test_only_runs_of_the_folder_can_be_read(found):
    refused = found["stdio"]["refused"]
    assert len(refused) == 8
    assert {kind for kind, _ in refused.values()} == {"protocol"}
    assert all("aaaaaaaa" not in uri for uri in found["stdio"]["listed"])


def test_http_expects_the_token_and_the_names_of_this_machine(found):
    http = found["http"]
    assert http["url"].startswith("http://127.0.0.1:")
    assert (http["no token"], http["wrong token"]) == (401, 401)
    assert (http["other host"], http["other origin"], http["large"]) == (421, 403, 413)
    assert http["search"][0] == "ok"


def test_the_server_ends_in_time_and_keeps_its_journals(found):
    assert found["http"]["seconds"] < 10
    assert found["http"]["ended"] == ["answered", "cancelled", "cancelled"]


def test_nothing_but_messages_is_on_stdout_and_no_token_is_written(found):
    assert "Failed to parse" not in found["stderr"]
    everything = json.dumps({part: found[part] for part in ("stdio", "http", "stderr")})
    journals = [path.read_text() for path in found["folder"].rglob("*.jsonl")]
    assert TOKEN not in everything + "".join(journals)


def test_other_hosts_need_a_token(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    token, is_new = token_for("0.0.0.0")
    assert len(token) > 30
    assert is_new
    assert token_for("127.0.0.1") == (None, False)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--host", "0.0.0.0"], 2, "--host needs --http"),
        (["--as", "fast"], 2, "--as 'fast'"),
        ([], 1, "pip install 'tot-lab[mcp]'"),
    ],
)
def test_the_command_says_what_is_wrong(words, code, said, tmp_path):
    made = tot_lab("mcp", "--model", "sim/game24", *words, folder=tmp_path)
    assert made.returncode == code
    assert made.stdout == ""
    assert said in made.stderr
