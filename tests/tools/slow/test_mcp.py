"""Agents with the tools of MCP servers: one made with the SDK as in its examples, and hostile ones.

The agents run in an environment that has the SDK (`support/mcp_client.py`). This process has none of it, and
loads and replays their runs.
"""

import asyncio
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from support import TESTS
from support.venvs import python_with

import tot_lab as tl
from tot_lab.analysis.outside import from_outside
from tot_lab.core.parts import part_of

CALLED = ["add", "get-weather", "picture", "notes", "fails", "add", "environment"]
TOKEN = "service-token-0123456789"


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mcp")
    python = python_with("mcp>=2.3,<3", tot_lab="mcp")
    script = [python, "-W", "ignore", TESTS / "support" / "mcp_client.py", folder]
    made = subprocess.run(script, capture_output=True, text=True, timeout=120, check=False)
    assert made.returncode == 0, made.stderr
    return {"folder": folder, "stderr": made.stderr, **json.loads(made.stdout)}


@pytest.mark.parametrize(("server", "prefix"), [("example", ""), ("http", "demo-")])
def test_an_agent_uses_the_tools_of_a_server(found, server, prefix):
    rows = found[server]["rows"]
    assert [row[0] for row in rows] == [prefix + name for name in CALLED]
    results, errors = [row[1] for row in rows], [row[2] for row in rows]
    assert results[0] == "5"
    assert json.loads(results[1]) == {"city": "Rome", "degrees": 21.5}  # once, though it is sent twice
    assert results[2] == "one pixel\n[image: image/png, 72 bytes, not shown]"
    assert results[3] == "[resource 'all notes' at note://all]\n[resource note://1]\nbuy milk"
    assert "fails" in errors[4]
    assert "valid integer" in errors[5]
    assert [*map(bool, errors)] == [False] * 4 + [True] * 2 + [False]
    assert found[server]["status"] == "completed"


def test_a_command_gets_little_of_the_environment(found):
    variables = {line.partition("=")[0] for line in found["example"]["rows"][-1][1].splitlines()}
    assert "PATH" in variables
    assert variables <= {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LC_CTYPE"}


@pytest.mark.parametrize("server", ["example", "http"])
def test_a_run_is_replayed_without_the_server(found, server):
    assert find_spec("mcp") is None
    run = tl.load(found[server]["run"])
    assert asyncio.run(run.replay()).identical
    assert len(from_outside(run)) == len(CALLED)
    assert {**run.header.tools} == found[server]["tools"]


def test_a_recorded_tool_starts_nothing(found):
    calls = (tl.records.ToolCall("c", "add", '{"a": 1, "b": 2}'),)
    turns = iter([tl.Reply("", tool_calls=calls), tl.Reply("Answer: none")])

    async def model(call):
        return next(turns)

    loaded = part_of(found["example"]["tools"]["add"])
    lab = tl.Lab(model, runs=None, cache=None, tools=[loaded])
    run = asyncio.run(lab.run(tl.ToolLoop(), tl.general("How much?")))
    (error,) = run.tools_df()["error"]
    assert "is not connected" in error


def test_names_and_schemas_are_passed_on(found):
    tools = found["example"]["tools"]
    assert tools["get-weather"]["remote"] == "getWeather"
    assert tools["get-weather"]["parameters"]["properties"]["unit"] == {
        "anyOf": [{"type": "string"}, {"type": "null"}],
        "default": None,
        "title": "Unit",
    }
    odd = found["stranger"]["tools"]
    assert odd["linked"]["parameters"]["properties"]["at"] == {"$ref": "#/$defs/Place"}
    assert "Place" in odd["linked"]["parameters"]["$defs"]
    names = {tool["remote"]: name for name, tool in odd.items()}
    assert (names["getUser"], names["get_user"]) == ("get-user", "get-user-2")
    assert (names["2fa"], names["日本"]) == ("tool-2fa", "tool")
    assert names["x" * 128] == "x" * 64


def test_unusable_tools_are_left_out_with_a_warning(found):
    tools, warned = found["stranger"]["tools"], "\n".join(found["stranger"]["warned"])
    for name in ("a word", "large", "turning"):
        assert f"the tool {name!r} is left out: " in warned
        assert name not in {tool["remote"] for tool in tools.values()}
    assert "'getUser' and 'get_user'" in warned
    assert len(tools["echo"]["description"]) == 4_001
    assert all("\n" not in tool["server"] and len(tool["server"]) < 120 for tool in tools.values())


def test_what_a_server_says_of_effects_loosens_no_policy(found):
    assert found["example"]["tools"]["add"]["effects"] is None  # it says that it only reads
    assert found["http"]["tools"]["demo-add"]["effects"] == ["network"]  # the caller declared none
    kind, message, _ = found["stranger"]["policy"]
    assert kind == "ValueError"
    assert "not declared" in message


def test_only_a_reader_without_an_answer_is_called_again(found):
    calls = (found["folder"] / "calls").read_text().splitlines()
    assert (calls.count("flaky"), calls.count("flaky reader"), calls.count("refuses")) == (1, 2, 1)
    rows = {row[0]: row[1:] for row in found["stranger"]["rows"]}
    assert "try again" in rows["flaky"][1]
    assert rows["flaky-reader"] == ["at last", None]
    assert rows["refuses"] == [None, "the disk is full"]
    assert "protocol" in rows["asks"][1]
    assert json.loads(rows["any"][0])[1] == {"q": 1}


def test_a_cancelled_or_late_call_is_cancelled_at_the_server(found):
    rows = {row[0]: row[1:] for row in found["stranger"]["rows"]}
    assert rows["slow"] == [None, "no result within 0.5 s"]
    assert found["stranger"]["cancelled before"] == ["a call", ""]
    assert (found["folder"] / "cancelled").read_text().splitlines() == ["a call"] * 2


def test_a_server_that_dies_or_floods_is_an_error(found):
    for rows, count in ((found["stranger"]["dead"], 3), (found["http"]["dead"], 2)):
        assert [bool(row[2]) for row in rows] == [True] * count
    assert all("10,000,000 bytes" in row[2] for row in found["huge"])
    echo, large, packed, moved, again = (row[1:] for row in found["hostile"]["rows"])
    assert echo == again == ["•••", None]
    assert "10,000,000 bytes" in large[1]
    assert "compressed" in packed[1]
    assert "not followed" in moved[1]
    assert found["hostile"]["elsewhere"] == []  # no header went to another address


def test_tools_end_with_their_connection(found):
    assert "is closed" in found["stranger"]["closed"][0][2]
    assert "is not connected" in found["stranger"]["pickled"][0][2]
    assert json.loads(found["stranger"]["elsewhere"][0][1])[1] == {"q": "b"}  # a lab in another loop
    for pid in (found["folder"] / "pid").read_text().split():
        assert not Path(f"/proc/{pid}").exists()


def test_no_shell_reads_a_command(found):
    assert json.loads(found["words"][0][1])[2][:2] == [";", "touch"]
    assert not (found["folder"] / "by-a-shell").exists()


def test_a_server_that_cannot_be_used_says_why(found):
    for name, said in (
        ("silent", "no answer within 3 s. It wrote: a secret is missing"),
        ("endless", "more than 1,000 tools"),
        ("odd", "tools.1.inputSchema.type"),
        ("absent", "no-such-program"),
        ("refused", "http://127.0.0.1:1 cannot be used"),
    ):
        kind, message, seconds = found[name]
        assert kind == "ConnectionError"
        assert said in message
        assert seconds < 15
    for name in ("no command", "other scheme", "env", "headers"):
        assert found[name][0] == "ValueError"


def test_no_secret_is_recorded_or_shown(found):
    everything = json.dumps({name: part for name, part in found.items() if name != "folder"})
    everything += "".join(path.read_text() for path in (found["folder"] / "runs").glob("*.jsonl"))
    for secret in (TOKEN, "0123456789abcdef", "user:pass", "sk-own-key"):
        assert secret not in everything


def test_the_guide_shows_what_it_says(found):
    _, table, replay, searched, _ = found["guide"]
    assert "price" in table
    assert "0.55" in table
    assert "identical=True" in replay
    assert json.loads(searched)["answer"]


def test_the_package_is_imported_when_it_is_used(found):
    assert found["imported"] == []


def test_without_the_package_the_error_says_how_to_install_it():
    async def use():
        async with tl.tools.mcp([sys.executable]):
            pass

    with pytest.raises(ImportError, match=r"pip install 'tot-lab\[mcp\]'"):
        asyncio.run(use())
