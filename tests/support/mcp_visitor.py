"""The SDK's client at `tot-lab mcp`, by stdio and HTTP: `python mcp_visitor.py FOLDER`, with both installed.

Prints what happened as JSON. The journals are in FOLDER/runs and FOLDER/http.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import httpx2
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

FOLDER = Path(sys.argv[1])
TOKEN = "token-of-the-lab-0123456789"
WORDS = ["-m", "tot_lab", "mcp", "--domain", "game24"]
WORDS += ["--as", "fast=tree_of_thoughts search.width=2", "--as", "once=chain_of_thought"]
WORDS += ["--mode", "off", "--budget", "calls=40", "--at-once", "1", "--model", "sim/game24"]
PROBLEM = {"question": "4 5 6 10"}


async def said(call):
    """What a call gives: structured content, an error's text, or the error of the protocol."""
    try:
        result = await call
    except MCPError as error:
        return ["protocol", error.message]
    if result.is_error:
        return ["error", result.content[0].text]
    return ["ok", result.structured_content]


async def read(client, uri):
    try:
        (part,) = (await client.read_resource(uri)).contents
    except MCPError as error:
        return ["protocol", error.message]
    return [part.mime_type, part.text]


async def ended(folder, count):
    """Wait until `count` runs of a folder have ended. Returns their stop reasons by the time of their end."""
    for _ in range(100):
        paths = [path for path in folder.glob("*.jsonl") if not path.is_symlink()]
        lines = [
            path.read_text().splitlines()[-1] for path in sorted(paths, key=lambda path: path.stat().st_mtime)
        ]
        ends = [json.loads(line)["e"] for line in lines if '"type":"ended"' in line]
        if len(ends) >= count:
            break
        await asyncio.sleep(0.1)
    return [end["stop"] for end in ends]


async def started(client):
    """A search whose first calls are reported; the call's task."""
    begun = asyncio.Event()

    async def progress(*_):
        begun.set()

    call = asyncio.create_task(client.call_tool("search", PROBLEM, progress_callback=progress))
    await begun.wait()
    return call


async def over_stdio():
    found, runs = {}, FOLDER / "runs"
    environment = {"TOT_LAB_TOKEN": TOKEN, "HOME": str(FOLDER)}
    server = StdioServerParameters(
        command=sys.executable, args=[*WORDS, "latency=0.1", "--runs", str(runs)], env=environment, cwd=FOLDER
    )
    async with Client(server) as client:
        tools = (await client.list_tools()).tools
        found["offered"] = {
            tool.name: [tool.description, tool.annotations.read_only_hint, tool.input_schema]
            for tool in tools
        }
        progress = []

        async def note(*report):
            progress.append(report)

        found["search"] = await said(client.call_tool("search", PROBLEM, progress_callback=note))
        found["progress"] = progress
        for name, given in {
            "unknown name": {"strategy": "nobody"},
            "raised": {"budget": {"calls": 41}},
            "unknown limit": {"budget": {"keys": 1}},
            "model": {"settings": {"model": {"kind": "endpoint", "base_url": "http://127.0.0.1:1"}}},
            "tools": {"settings": {"tools": ["python"]}},
            "too high": {"settings": {"search.width": -1}},
            "no question": {"question": ""},
            "long": {"question": "4 " * 150_000},
            "no problem": {"question": "What?"},
            "lowered": {"budget": {"calls": 3}},
            "changed": {"strategy": "fast", "settings": {"search.width": 1}},
        }.items():
            found[name] = await said(client.call_tool("search", {**PROBLEM, **given}))
        found["think"] = await said(client.call_tool("think", {"question": "Why?", "preset": "quick"}))

        count = len(list(runs.glob("*.jsonl")))
        call = await started(client)
        found["second"] = await said(client.call_tool("search", PROBLEM))
        call.cancel()
        found["cancelled"] = (await ended(runs, count + 1))[-1]
        found["next"] = await said(client.call_tool("search", {**PROBLEM, "strategy": "once"}))

        other = runs.parent / "other.jsonl"
        shutil.copy(next(runs.glob("*.jsonl")), other)
        (runs / "20990101-000000-react-aaaaaaaa.jsonl").symlink_to(other)
        found["runs"] = await said(client.call_tool("runs", {"limit": 100}))
        listed = (await client.list_resources()).resources
        found["listed"] = [str(one.uri) for one in listed]
        id = found["search"][1]["run"]
        found["report"] = await read(client, f"tot-lab://runs/{id}")
        found["journal"] = await read(client, f"tot-lab://runs/{id}/journal")
        found["refused"] = {
            uri: await read(client, uri)
            for uri in (
                *(f"tot-lab://runs/{id}" for id in ("aaaaaaaa", "00000000", "*", "..%2Fother", "%2e%2e")),
                *("tot-lab://runs/../other.jsonl", f"file://{other}", "tot-lab://runs/aaaaaaaa/journal"),
            )
        }
        left = await started(client)
    left.cancel()
    found["left"] = (await ended(runs, len(found["listed"]) + 1))[-1]
    return found


def status(url, **headers):
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
    given = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, given | headers), timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


async def over_http():
    found, runs = {}, FOLDER / "http"
    process = subprocess.Popen(
        [sys.executable, *WORDS, "latency=0.6", "--http", "0", "--runs", str(runs)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=FOLDER,
        env={**os.environ, "TOT_LAB_TOKEN": TOKEN},
    )
    try:
        url = next(line.split()[1] for line in process.stdout if line.startswith("MCP"))
        known = {"authorization": f"Bearer {TOKEN}"}
        ask = lambda **headers: asyncio.to_thread(status, url, **headers)  # noqa: E731
        found["url"] = url
        found["no token"] = await ask()
        found["wrong token"] = await ask(authorization="Bearer token")
        found["other host"] = await ask(**known, host="evil.example")
        found["other origin"] = await ask(**known, origin="https://evil.example")
        found["large"] = await asyncio.to_thread(large, url, known)
        async with (
            httpx2.AsyncClient(headers=known, timeout=30) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            found["search"] = await said(client.call_tool("search", {**PROBLEM, "strategy": "once"}))
            call = await started(client)
            call.cancel()
            found["cancelled"] = (await ended(runs, 2))[-1]
            call = await started(client)
            process.send_signal(signal.SIGTERM)
            start = time.monotonic()
            await asyncio.to_thread(process.wait, 20)
            found["seconds"] = time.monotonic() - start
            found["ended"] = await ended(runs, 3)
            call.cancel()
    finally:
        process.kill()
        process.wait()
    return found


def large(url, headers):
    try:
        request = urllib.request.Request(
            url, b"x" * 5_000_000, {"content-type": "application/json", **headers}
        )
        urllib.request.urlopen(request, timeout=10)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 413  # it stopped reading
    return 200


async def main():
    stdio, http = await asyncio.gather(over_stdio(), over_http())
    print(json.dumps({"stdio": stdio, "http": http}))


if __name__ == "__main__":
    asyncio.run(main())
