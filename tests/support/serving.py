"""A server of `tot-lab serve` on loopback, in this loop or in a process of its own."""

import asyncio
import io
import json
import subprocess
import sys
import time
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

import tot_lab as tl
from support.shell import ENV
from tot_lab.apps.catalogue import Catalogue
from tot_lab.apps.serve import Server, serve
from tot_lab.apps.served_searches import Searches


@dataclass
class Answered:
    """A response, read to its end."""

    status: int
    headers: Any
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def error(self) -> Any:
        return self.json["error"]

    @property
    def answer(self) -> str:
        assert self.status == 200, self.text
        return self.json["choices"][0]["message"]["content"]

    @property
    def run(self) -> str:
        return self.headers["x-tot-lab-run"]

    @property
    def events(self) -> list[Any]:
        """The data of a streamed reply. `[DONE]` is text."""
        lines = [line[6:] for line in self.text.splitlines() if line.startswith("data: ")]
        return [line if line == "[DONE]" else json.loads(line) for line in lines]


@dataclass
class Api:
    """A client without an SDK."""

    url: str
    session: aiohttp.ClientSession
    runs: Path

    async def get(self, path: str, **options: Any) -> Answered:
        async with self.session.get(self.url + path, allow_redirects=False, **options) as response:
            return Answered(response.status, response.headers, await response.text())

    async def post(self, body: Any, path: str = "/v1/chat/completions", **headers: str) -> Answered:
        data = io.BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
        headers = {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
        async with self.session.post(self.url + path, data=data, headers=headers) as response:
            return Answered(response.status, response.headers, await response.text())

    async def ask(self, question: str = "Q?", model: str = "one", retry: int = 0, **fields: Any) -> Answered:
        messages = [{"role": "user", "content": question}]
        body = {"model": model, "messages": messages, **fields}
        return await self.post(body, **({"x-stainless-retry-count": str(retry)} if retry else {}))

    def journals(self) -> list[tl.Run]:
        return [tl.load(path) for path in sorted(self.runs.glob("*.jsonl"))]

    def journal(self, run: str) -> tl.Run:
        (path,) = self.runs.glob(f"*-{run}.jsonl")
        return tl.load(path)


@asynccontextmanager
async def served(
    model, offers, runs, *, budget=None, token=None, at_once=8, make=tl.general, grace=0.3, **lab
):
    """Serve `offers` with `model` while the block runs."""
    searches = Searches(tl.Lab(model, runs=runs, **lab), at_once)
    server = Server(searches, Catalogue(offers, budget), make, model="the-model", token=token)
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(serve(server, "127.0.0.1", 0, url.set_result, grace))
    await asyncio.wait([running, url], return_when=asyncio.FIRST_COMPLETED)
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        try:
            yield Api(await url, session, Path(runs))
        finally:
            running.cancel()
            await asyncio.wait([running])


@contextmanager
def process(*words: str, folder: Path, **env: str):
    """Run `tot-lab serve` in a process of its own. Yields the process and the lines that it printed."""
    command = [sys.executable, "-m", "tot_lab", "serve", "--port", "0", *words]
    running = subprocess.Popen(
        command, cwd=folder, env={**ENV, **env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    try:
        printed = {}
        while "journals" not in printed:
            line = running.stdout.readline()
            assert line, running.communicate()
            name, _, value = line.strip().partition(" ")
            printed[name] = value.strip()
        if "0.0.0.0" in words and "TOT_LAB_TOKEN" not in env:
            printed["token"] = running.stdout.readline().split()[1]
        yield running, printed
    finally:
        running.kill()
        running.communicate()


def until(condition, seconds=10.0):
    """Wait until `condition()` is true."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found
