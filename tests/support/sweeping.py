"""Sweeps over real HTTP, in processes that are killed."""

import asyncio
import json
import os
import random
import sys
import time
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
    """A model behind real HTTP: it answers with what follows from the prompt, and counts.

    `seconds`: each answer takes a random time up to so many.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self):
        self.asked: list[tuple[str, int, int]] = []
        self.seconds = 0.0
        super().__init__(("127.0.0.1", 0), Answering)

    def handle_error(self, request, client_address):
        """A client that was killed is what this is about."""


class Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        texts = []
        for kind, *asked in json.loads(self.rfile.read(int(self.headers["Content-Length"]))):
            self.server.asked.append(tuple(asked))
            prompt, draw, repeat = asked
            call = Call("0", kind, (tl.records.Message("user", prompt),), draw, repeat=repeat)
            texts.append(str(answer_to(call)))
        time.sleep(random.random() * self.server.seconds)
        data = json.dumps(texts).encode()
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
        body = json.dumps([[call.purpose, *told(call)] for call in calls])  # in ASCII
        reader, writer = await asyncio.open_connection("127.0.0.1", int(self.url))
        head = f"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body.encode())
        observer.note("call.sent", tries=1, n=len(calls))
        try:
            whole = await reader.read()
        finally:
            writer.close()
        texts = json.loads(whole.partition(b"\r\n\r\n")[2])
        told_of_each = {"model": "over_http", "input_tokens": 3, "output_tokens": 1, "cost": 1.0}
        return [tl.Reply(text, **told_of_each) for text in texts]


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
