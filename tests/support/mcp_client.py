"""Agents that use the tools of MCP servers: `python mcp_client.py FOLDER`, in an environment with the SDK.

Prints what happened as JSON. The journals are in FOLDER/runs.
"""

import ast
import asyncio
import gzip
import http.server
import inspect
import json
import os
import pickle
import re
import socket
import subprocess
import sys
import threading
import time
import warnings
from contextlib import suppress
from pathlib import Path

import tot_lab as tl
from tot_lab.core.calls import ToolCall

IMPORTED = [name for name in ("mcp", "mcp_types", "httpx2", "anyio") if tl.tools.mcp and name in sys.modules]

FOLDER = Path(sys.argv[1])
HERE = Path(__file__).parent
EXAMPLE, STRANGER = str(HERE / "mcp_example.py"), [sys.executable, str(HERE / "mcp_stranger.py")]
TOKEN = "service-token-0123456789"


def agent(*calls):
    """A model that makes `calls`, pairs of a name and arguments, one a turn, and then answers."""
    turns = [
        tl.Reply("", tool_calls=(ToolCall(f"c{k}", name, json.dumps(given)),))
        for k, (name, given) in enumerate([*calls, ("final-answer", {"answer": "done"})])
    ]
    left = iter(turns)

    async def model(call):
        return next(left)

    return model


async def used(tools, *calls, **settings):
    """The run of an agent that makes `calls` with `tools`, and the results and errors of its tools."""
    lab = tl.Lab(agent(*calls), runs=FOLDER / "runs", cache=None, tools=tools, **settings)
    run = await lab.run(tl.ReAct(max_iterations=len(calls) + 1), tl.general("What is there?"))
    rows = run.tools_df()[["tool", "result", "error"]].astype(object)
    return run, rows.where(rows.notna(), None).to_numpy().tolist()


def told(tools):
    return {tool.name: json.loads(json.dumps(tool.settings())) for tool in tools}


EXAMPLE_CALLS = [
    ("add", {"a": 2, "b": 3}),
    ("get-weather", {"city": "Rome"}),
    ("picture", {}),
    ("notes", {}),
    ("fails", {}),
    ("add", {"a": "x"}),
    ("environment", {}),
]


async def example(server, **settings):
    async with tl.tools.mcp(server, **settings) as tools:
        prefix = tools[0].name.removesuffix("add")
        run, rows = await used(tools, *((prefix + name, given) for name, given in EXAMPLE_CALLS))
    return {"tools": told(tools), "rows": rows, "run": str(run.path), "status": run.status}


async def over_http():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, EXAMPLE, str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                await asyncio.sleep(0.1)
        url = f"http://127.0.0.1:{port}/mcp"
        found = await example(url, prefix="demo", effects=[])
        async with tl.tools.mcp(url) as tools:
            process.kill()
            process.wait()
            _, found["dead"] = await used(tools, ("add", {"a": 2, "b": 3}), ("add", {"a": 2, "b": 3}))
        return found
    finally:
        process.kill()
        process.wait()


async def stranger():
    found = {}
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        given = {"SERVICE_TOKEN": TOKEN}
        async with tl.tools.mcp([*STRANGER, str(FOLDER)], env=given) as tools:
            found["warned"] = [str(one.message) for one in warned]
            found["tools"] = told(tools)
            short = [tool.with_(timeout=0.5) if tool.name == "slow" else tool for tool in tools]
            _, found["rows"] = await used(
                short,
                ("echo", {"q": "a"}),
                ("slow", {}),
                ("flaky", {}),
                ("flaky-reader", {}),
                ("refuses", {}),
                ("asks", {}),
                ("any", {"q": 1}),
            )
            found["policy"] = await raised(used(tools, ("echo", {}), effect_policy=tl.EffectPolicy()))
            # A run in another loop, and one that is cancelled.
            _, found["elsewhere"] = await asyncio.to_thread(asyncio.run, used(tools, ("echo", {"q": "b"})))
            running = asyncio.create_task(used(tools, ("slow", {})))
            await asyncio.sleep(0.5)
            found["cancelled before"] = (FOLDER / "cancelled").read_text().split("\n")
            running.cancel()
            await asyncio.wait([running])
            _, found["dead"] = await used(tools, ("die", {}), ("echo", {}), ("echo", {}))
        _, found["closed"] = await used(tools, ("echo", {}))
        _, found["pickled"] = await used(
            [pickle.loads(pickle.dumps(tools[0].with_(name="echo")))], ("echo", {})
        )
    return found


class Hostile(http.server.BaseHTTPRequestHandler):
    """An HTTP server that answers in ways of its own, by the path; `elsewhere` notes what it is sent."""

    protocol_version = "HTTP/1.1"
    headers_seen = []

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method = message["method"]
        if self.path == "/elsewhere":
            self.headers_seen.append(dict(self.headers))
        if "id" not in message:
            return self.say(202, b"")
        if method == "initialize":
            info = {"serverInfo": {"name": "h", "version": "0"}, "capabilities": {"tools": {}}}
            return self.reply(message, info | {"protocolVersion": message["params"]["protocolVersion"]})
        if method == "tools/list":
            kinds = ["large", "packed", "moved", "echo"]
            return self.reply(
                message, {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in kinds]}
            )
        if method != "tools/call":
            return self.say(404, b"")
        kind = message["params"]["name"]
        if kind == "moved":
            return self.say(307, b"", location=f"http://localhost:{self.server.server_port}/elsewhere")
        text = "x" * 20_000_000 if kind in ("large", "packed") else str(self.headers["authorization"])
        body = self.body(message, {"content": [{"type": "text", "text": text}]})
        if kind == "packed":
            return self.say(200, gzip.compress(body), **{"content-encoding": "gzip"})
        return self.say(200, body)

    def body(self, message, result):
        return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()

    def reply(self, message, result):
        self.say(200, self.body(message, result))

    def say(self, status, body, **headers):
        self.send_response(status)
        given = {"content-type": "application/json", "content-length": len(body), **headers}
        for name, value in given.items():
            self.send_header(name, str(value))
        self.end_headers()
        with suppress(ConnectionError):
            self.wfile.write(body)

    def log_message(self, *_):
        pass


async def hostile_over_http():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hostile) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/mcp"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with tl.tools.mcp(url, headers=headers) as tools:
            _, rows = await used(
                tools, *((name, {}) for name in ("echo", "large", "packed", "moved", "echo"))
            )
        server.shutdown()
    return {"rows": rows, "elsewhere": Hostile.headers_seen}


async def guide():
    """The values of the last lines of the guide's code, each as text."""
    page = HERE.parents[1] / "docs" / "how-to" / "mcp.md"
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    names, shown = {"print": lambda *given: shown.append(str(*given))}, []
    os.chdir(FOLDER)
    for code in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        tree = ast.parse(code)
        if isinstance(tree.body[-1], ast.Expr):
            tree.body[-1] = ast.Assign([ast.Name("last", ast.Store())], tree.body[-1].value)
            ast.fix_missing_locations(tree)
        names["last"] = None
        done = eval(compile(tree, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        if inspect.iscoroutine(done):
            await done
        shown.append(str(names["last"]))
    return shown


async def raised(coroutine):
    start = time.monotonic()
    try:
        await coroutine
    except Exception as error:
        return [type(error).__name__, str(error), time.monotonic() - start]
    return None


async def opened(server, **settings):
    async with tl.tools.mcp(server, **settings) as tools:
        return told(tools)


async def flooded():
    async with tl.tools.mcp([*STRANGER, str(FOLDER)]) as tools:
        _, rows = await used(tools, ("huge", {}), ("echo", {}))
    return rows


async def by_words():
    command = f"{' '.join(STRANGER)} {FOLDER} ; touch {FOLDER}/by-a-shell"
    async with tl.tools.mcp(command) as tools:
        _, rows = await used(tools, ("echo", {}))
    return rows


async def main():
    os.environ["OPENAI_API_KEY"] = "sk-own-key-0123456789"
    found = {"stranger": await stranger()}  # alone, since it catches warnings
    made = {
        "example": example([sys.executable, EXAMPLE]),
        "http": over_http(),
        "hostile": hostile_over_http(),
        "guide": guide(),
        "huge": flooded(),
        "words": by_words(),
        "silent": raised(opened([*STRANGER, str(FOLDER), "silent"], timeout=3)),
        "endless": raised(opened([*STRANGER, str(FOLDER), "endless"])),
        "odd": raised(opened([*STRANGER, str(FOLDER), "odd"])),
        "absent": raised(opened("no-such-program --token=0123456789abcdef")),
        "refused": raised(opened("http://user:pass@127.0.0.1:1/mcp?key=0123456789abcdef")),
        "no command": raised(opened("")),
        "other scheme": raised(opened("ftp://127.0.0.1/x")),
        "env": raised(opened("http://127.0.0.1:1/mcp", env={})),
        "headers": raised(opened("program", headers={})),
    }
    found |= dict(zip(made, await asyncio.gather(*made.values()), strict=True))
    print(json.dumps(found | {"imported": IMPORTED}))


if __name__ == "__main__":
    asyncio.run(main())
