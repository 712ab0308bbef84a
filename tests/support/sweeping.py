"""Sweeps over real HTTP, in processes that are killed."""

import asyncio
import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import tot_lab as tl
from support import answer_to
from support.endpoint import ScriptedEndpoint
from tot_lab.core.calls import Call

TASKS = [
    tl.general(f"How many legs have {k} spiders and a duck?", answer=8 * k + 2, grade="number")
    for k in (3, 4)
]
GRID = tl.grid(tl.TreeOfThoughts, {"propose": ["sample", "propose"], "search.width": [1, 2], "stop.depth": 2})


class Server(ThreadingHTTPServer):
    """A model behind real HTTP: it answers with what follows from the prompt, and counts."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self):
        self.asked: list[tuple[str, int, int]] = []
        super().__init__(("127.0.0.1", 0), Answering)

    def handle_error(self, request, client_address):
        """A client that was killed is what this is about."""


class Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        kind, prompt, draw, repeat = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((prompt, draw, repeat))
        call = Call("0", kind, (tl.records.Message("user", prompt),), draw, repeat=repeat)
        data = json.dumps(str(answer_to(call))).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        """Quiet."""


class OverHttp(ScriptedEndpoint):
    """Asks the server at `url`, a connection each."""

    kind = "over_http"

    async def answer(self, calls, observer):
        (call,) = calls
        body = json.dumps([call.purpose, *told(call)])  # in ASCII
        reader, writer = await asyncio.open_connection("127.0.0.1", int(self.url))
        head = f"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body.encode())
        observer.note("call.sent", tries=1, n=1)
        whole = await reader.read()
        writer.close()
        text = json.loads(whole.partition(b"\r\n\r\n")[2])
        return [tl.Reply(text, model="over_http", input_tokens=3, output_tokens=1, cost=1.0)]


def over_http(port: int, folder: str, mode: str) -> tl.Lab:
    model = OverHttp(url=str(port), concurrency=4)
    return tl.Lab(model, runs=Path(folder) / "runs", cache=Path(folder) / "cache", mode=mode)


def children(port: int, folder: str) -> None:
    """Forks a process that sweeps whenever a line comes in, tells its number, and waits for its end."""
    for _ in sys.stdin:
        if (child := os.fork()) == 0:
            asyncio.run(over_http(port, folder, "auto").sweep(GRID, TASKS, 8))
            os._exit(0)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def told(call: Call) -> tuple[str, int, int]:
    """What tells a call from others."""
    return call.prompt, call.sample_index, call.repeat
