"""Language models on this machine: starts and stops llama.cpp's server.

Models with equal weights, context window, slots and threads share one server. It starts with the first call,
and stops when no model uses it any more, at the latest when the interpreter exits. The identity of a model is
its name, the hash of its weights and its context window; slots and threads are not part of it.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import msgspec
from pydantic import Field, field_validator, model_validator

from tot_lab.core.calls import Call, CallObserver, Need, Reply
from tot_lab.core.extras import requires
from tot_lab.core.processes import end, kept
from tot_lab.models import ready
from tot_lab.models.openai_compatible import LlamaCpp
from tot_lab.models.prefixes import Prefixes
from tot_lab.models.stack import Endpoint, Failure, ServerFacts
from tot_lab.models.weights import KNOWN, check, find, sha256_of

Count = Annotated[int, Field(ge=1)]


class Local(Endpoint):
    """A model with open weights, run by llama.cpp on this machine at no cost.

    A repeated call with a seed gets the same text if `slots` is 1; with more slots, calls in one batch change
    each other's rounding. The paragraphs with which several prompts begin are processed once, except the last
    paragraph of each prompt. The state of the server after them is kept in temporary files of at most 1 GiB
    in all (`tot_lab.models.prefixes`). Calls without a seed that are made one after another reuse the prefix
    that the slot still holds; llama.cpp does that by itself. The slot of each call is chosen automatically,
    so `id_slot` in `options` is recorded as dropped.

    Tools reach a model only if the chat template of its weights supports them. Otherwise, as with
    smollm2-135m, they are recorded as dropped, but the prompts of the strategies still describe them.
    """

    kind = "local"
    weights: str
    """A name that `tot-lab model pull` knows, or the path of a .gguf file."""

    context_window: Count = 4096
    """Tokens of a prompt and its reply together. A longer prompt is an error, and a reply that reaches the
    limit is truncated (`finish_reason="length"`).
    """

    slots: Count = 1
    """Calls answered at the same time, each with its own context window. On a CPU, more than one slot raises
    the throughput only by about a tenth.
    """

    threads: Count = 1
    """CPU threads that the server uses."""

    concurrency: Count = 1
    """Concurrent requests. The default is `slots`."""

    @model_validator(mode="before")
    @classmethod
    def _as_many_as_slots(cls, settings: Any) -> Any:
        if isinstance(settings, dict) and "slots" in settings:
            return {"concurrency": settings["slots"], **settings}
        return settings

    @field_validator("weights")
    @classmethod
    def _are_known_or_a_file(cls, weights: str) -> str:
        if weights not in KNOWN and not weights.endswith(".gguf"):
            raise ValueError(
                f"weights must be one of {', '.join(KNOWN)}, or the path of a .gguf file: got {weights!r}"
            )
        return weights

    @classmethod
    def named(cls, rest: str) -> Local:
        """Return the model with the name `local/REST`."""
        return cls(weights=rest)

    @property
    def name(self) -> str:
        return f"local/{self.weights if self.weights in KNOWN else Path(self.weights).stem}"

    def identity(self) -> dict[str, Any]:
        """Return the name, the SHA-256 of the weights and the context window. Known weights need not be
        installed, so that a recording can be replayed without them.
        """
        known = KNOWN.get(self.weights)
        return {
            "kind": self.kind,
            "name": self.name,
            "sha256": sha256_of(find(self.weights)) if known is None else known.sha256,
            "context_window": self.context_window,  # it limits a reply without max_tokens
        }

    @property
    def address(self) -> str:
        return "this machine"

    async def problem(self) -> str | None:
        """Return how to get the weights if they are missing, else `None`."""
        try:
            find(self.weights)
        except FileNotFoundError as error:
            return str(error)
        return None

    @property
    def is_ready(self) -> bool:
        """Whether the server is running. Also true if the weights are missing: `answer` reports that."""
        with suppress(OSError):
            return _server_for(self).endpoint is not None
        return True

    async def start(self) -> None:
        """Start the server and load the weights. If that fails, `answer` reports the error."""
        with suppress(OSError, ImportError):
            await asyncio.to_thread(_server_for(self).start)

    async def about(self) -> dict[str, str]:
        with suppress(OSError):
            if (endpoint := _server_for(self).endpoint) is not None:
                return await endpoint.about()
        return {}

    async def server_facts(self) -> ServerFacts:
        return ServerFacts(context_window=self.context_window, slots=self.slots)

    def need(self, calls: Sequence[Call]) -> Need:
        return Need(self.context_window * len(calls), 0.0)

    async def answer(self, calls: Sequence[Call], observer: CallObserver) -> Sequence[Reply]:
        try:
            server = _server_for(self)
            prefixes = server.prefixes
            if prefixes is None:
                prefixes = await asyncio.to_thread(server.start)
        except (OSError, ImportError) as error:
            raise Failure(str(error)) from None
        replies = []
        for call in calls:  # llama.cpp accepts `n`, but counts only the tokens of the first reply
            if call.tools and not await server.takes_tools():
                forced = call.tool_choice not in (None, "auto", "none")
                observer.note("call.dropped", settings=["tools", "tool_choice"] if forced else ["tools"])
                call = msgspec.structs.replace(call, tools=(), tool_choice=None)
            (reply,) = await prefixes.answer(call, observer)
            replies.append(msgspec.structs.replace(reply, model=self.name, cost=0.0))
        return replies

    async def close(self) -> None:
        """Release the server, which stops if no other model uses it."""
        with _LOCK:
            servers = [server for server in _SERVERS.values() if id(self) in server.holders]
        for server in servers:
            server.holders[id(self)]()


class _Server:
    """The server for some settings, running or not, and the models that use it."""

    def __init__(self, settings: Local, path: Path) -> None:
        self.weights = settings.weights
        self.path = path
        self.sizes = {name: getattr(settings, name) for name in ("context_window", "slots", "threads")}
        self.holders: dict[int, weakref.finalize[..., Local]] = {}
        self._lock = threading.RLock()  # a finaliser may run in the thread that has acquired it
        self._process: subprocess.Popen[bytes] | None = None
        self._prefixes: Prefixes | None = None
        self._folder: Path | None = None
        self._takes_tools: bool | None = None
        self._failed: tuple[float, str] | None = None

    def hold(self, by: Local) -> None:
        """Keep the server running until the model `by` is closed or garbage-collected, or the interpreter
        exits.
        """
        if id(by) not in self.holders:
            self.holders[id(by)] = weakref.finalize(by, self._let_go, id(by))

    def _let_go(self, holder: int) -> None:
        self.holders.pop(holder, None)
        if not self.holders:
            self.stop()

    @property
    def prefixes(self) -> Prefixes | None:
        """The object that answers calls on the server. `None` while the server is not running."""
        running = self._process is not None and self._process.poll() is None
        return self._prefixes if running else None

    @property
    def endpoint(self) -> LlamaCpp | None:
        """The endpoint of the server. `None` while the server is not running."""
        return None if (prefixes := self.prefixes) is None else prefixes.endpoint

    async def takes_tools(self) -> bool:
        """Whether the chat template supports tools. If not, llama.cpp would drop them without a notice."""
        if self._takes_tools is None and (endpoint := self.endpoint) is not None:
            _, props = await endpoint.look("/props")
            caps = props.get("chat_template_caps") if isinstance(props, dict) else None
            self._takes_tools = not isinstance(caps, dict) or caps.get("supports_tools") is not False
        return self._takes_tools is not False

    def start(self) -> Prefixes:
        """Start the server if needed, and return the object that answers calls. Blocks while weights load.

        Callers that waited for a failed start get its error and do not start the server again.

        Raises:
            OSError: If the server cannot run.
            ImportError: If xllamacpp is not installed.
        """
        began = time.monotonic()
        with self._lock:
            if (running := self.prefixes) is not None:
                return running
            if self._failed is not None and self._failed[0] >= began:
                raise OSError(self._failed[1])
            self.stop()  # cleans up after a server that died
            if find_spec("xllamacpp") is None:
                raise ModuleNotFoundError(requires("A local model", "xllamacpp", "local"))
            if self.weights in KNOWN:
                check(self.weights, self.path)
            key = secrets.token_urlsafe()
            folder = self._folder = Path(tempfile.mkdtemp(prefix="tot_lab_llama-"))
            settings = {"path": str(self.path), "key": key, "states": str(folder), **self.sizes}
            try:
                address = self._started(settings)
            except OSError as error:
                self.stop()
                self._failed = time.monotonic(), str(error)
                raise
            # context_window is not passed: the server counts exactly and refuses a prompt that is too long.
            endpoint = LlamaCpp(model="local", base_url=f"{address}/v1", api_key=key)
            self._prefixes = Prefixes(endpoint, self.sizes["slots"], folder)
            return self._prefixes

    def _started(self, settings: dict[str, Any]) -> str:
        """Start the process and return its address. Raises OSError if it cannot load the weights in time."""
        script = Path(__file__).with_name("llama_server.py")
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(
                # -P: the script's folder holds modules of tot_lab that must not shadow others.
                kept([sys.executable, "-P", str(script)]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
            assert process.stdin is not None
            assert process.stdout is not None
            until = time.monotonic() + ready.LOADING
            limit = threading.Timer(ready.LOADING, end, (process,))
            limit.daemon = True
            limit.start()
            with suppress(BrokenPipeError):  # the log holds the reason
                process.stdin.write(json.dumps(settings).encode() + b"\n")
                process.stdin.flush()
            answer = json.loads(process.stdout.readline() or "{}")
            limit.cancel()
            if "address" in answer:
                self._process = process
                return str(answer["address"])
            _end(process)
            log.seek(0)
            late = f"its server was not ready within {ready.LOADING:g} s" if time.monotonic() >= until else ""
            why = answer.get("error") or late or log.read().decode(errors="replace")[-1000:].strip()
        raise OSError(f"llama.cpp could not load {settings['path']}: {why}")

    def stop(self) -> None:
        """Stop the server if it is running."""
        with self._lock:
            if self._process is not None:
                _end(self._process)
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
            self._process = self._prefixes = self._folder = None


def _end(process: subprocess.Popen[bytes]) -> None:
    end(process)  # the server has no data that could be lost
    process.communicate()


_LOCK = threading.Lock()
_SERVERS: dict[tuple[Any, ...], _Server] = {}


def _server_for(settings: Local) -> _Server:
    """Return the server for the model `settings`, and register the model as its user. Raises
    FileNotFoundError if the weights are missing.
    """
    path = find(settings.weights).resolve()
    key = (path, settings.weights, settings.context_window, settings.slots, settings.threads)
    with _LOCK:
        server = _SERVERS.setdefault(key, _Server(settings, path))
        server.hold(settings)
        return server
