"""A language model on this machine: llama.cpp's server, started and stopped here.

Rule: equal settings share one server. It starts with the first call, and stops when nobody holds
it any more, at the latest when the interpreter ends. Which weights answer is their hash; how many
threads they run on is nobody's business but the machine's.
"""

from __future__ import annotations

import asyncio
import json
import secrets
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
from tot_lab.models import ready
from tot_lab.models.lite_llm import LiteLLM
from tot_lab.models.lite_llm.loading import is_loaded, litellm_ready
from tot_lab.models.stack import Endpoint, Failure
from tot_lab.models.weights import KNOWN, check, find, sha256_of

Count = Annotated[int, Field(ge=1)]


class Local(Endpoint):
    """A model of open weights, run by llama.cpp on this machine. It costs nothing.

    weights: a name that `tot-lab model pull` knows, or the path of a .gguf file.
    context_window: tokens that a prompt and its reply can have together. A longer prompt is an
        error; a reply that reaches the end has `finish_reason="length"`.
    slots: calls answered at the same time, each with a context window of its own. On a processor
        more than one gains about a tenth; `concurrency` is as many unless set.
    threads: of the processor.

    A call with a seed gets the same text again, whatever was asked before, as long as `slots` is
    1: calls in one batch change each other's rounding. For that its prompt is read anew; one with
    no seed goes on from the prompts already read, and is up to twice as fast.

    Tools reach a model only where the chat template of its weights has a place for them. Where it has
    none, as with smollm2-135m, they are said to be dropped; the prompts of the strategies name them too.
    """

    kind = "local"
    weights: str
    context_window: Count = 4096
    slots: Count = 1
    threads: Count = 1
    concurrency: Count = 1

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
                f"{weights!r} is neither known ({', '.join(KNOWN)}) nor the path of a .gguf file"
            )
        return weights

    @classmethod
    def named(cls, rest: str) -> Local:
        """The model that `local/REST` names."""
        return cls(weights=rest)

    @property
    def name(self) -> str:
        return f"local/{self.weights if self.weights in KNOWN else Path(self.weights).stem}"

    def identity(self) -> dict[str, Any]:
        """Of known weights also where they are not installed, so that a recording can be replayed."""
        known = KNOWN.get(self.weights)
        return {
            "kind": self.kind,
            "name": self.name,
            "sha256": sha256_of(find(self.weights)) if known is None else known.sha256,
            "context_window": self.context_window,  # where a reply without max_tokens ends
        }

    @property
    def address(self) -> str:
        return "this machine"

    @property
    def is_ready(self) -> bool:
        """Whether litellm is loaded and the server runs."""
        with suppress(OSError):
            return _server_for(self).endpoint is not None and is_loaded()
        return True  # `answer` says what is wrong

    async def start(self) -> None:
        """Load litellm, start the server and load the weights."""
        await litellm_ready()
        with suppress(OSError, ImportError):
            await asyncio.to_thread(_server_for(self).start)

    def need(self, calls: Sequence[Call]) -> Need:
        return Need(self.context_window * len(calls), 0.0)

    async def answer(self, calls: Sequence[Call], wire: CallObserver) -> Sequence[Reply]:
        try:
            server = _server_for(self)
            endpoint = server.endpoint
            if endpoint is None:
                endpoint = await asyncio.to_thread(server.start)
        except (OSError, ImportError) as error:
            raise Failure(str(error)) from None
        replies = []
        for call in calls:  # llama.cpp takes `n`, but counts the tokens of the first alone
            if call.seed is not None:
                call = msgspec.structs.replace(call, options={"cache_prompt": False, **call.options})
            if call.tools and not await server.takes_tools():
                forced = call.tool_choice not in (None, "auto", "none")
                wire.note("call.dropped", settings=["tools", "tool_choice"] if forced else ["tools"])
                call = msgspec.structs.replace(call, tools=(), tool_choice=None)
            (reply,) = await endpoint.answer([call], wire)
            replies.append(msgspec.structs.replace(reply, model=self.name, cost=0.0))
        return replies

    async def close(self) -> None:
        """Let go of the server; without another holder it stops."""
        with _LOCK:
            servers = [server for server in _SERVERS.values() if id(self) in server.holders]
        for server in servers:
            server.holders[id(self)]()


class _Server:
    """A server, running or not, and who holds it."""

    def __init__(self, settings: Local, path: Path) -> None:
        self.weights = settings.weights
        self.path = path
        self.sizes = {name: getattr(settings, name) for name in ("context_window", "slots", "threads")}
        self.holders: dict[int, weakref.finalize[..., Local]] = {}
        self._lock = threading.RLock()  # a finaliser may run in whatever thread holds it
        self._process: subprocess.Popen[bytes] | None = None
        self._endpoint: LiteLLM | None = None
        self._takes_tools: bool | None = None
        self._failed: tuple[float, str] | None = None

    def hold(self, by: Local) -> None:
        """Keep it until `by` is closed or gone, or the interpreter ends."""
        if id(by) not in self.holders:
            self.holders[id(by)] = weakref.finalize(by, self._let_go, id(by))

    def _let_go(self, holder: int) -> None:
        self.holders.pop(holder, None)
        if not self.holders:
            self.stop()

    @property
    def endpoint(self) -> LiteLLM | None:
        """The way to it, None when it does not run."""
        running = self._process is not None and self._process.poll() is None
        return self._endpoint if running else None

    async def takes_tools(self) -> bool:
        """Whether the chat template has a place for tools; llama.cpp leaves them out in silence."""
        if self._takes_tools is None and (endpoint := self.endpoint) is not None:
            _, props = await endpoint.look("/props")
            told = props.get("chat_template_caps") if isinstance(props, dict) else None
            self._takes_tools = not isinstance(told, dict) or told.get("supports_tools") is not False
        return self._takes_tools is not False

    def start(self) -> LiteLLM:
        """The way to it, once it runs. Blocks while the weights are loaded. An OSError or an
        ImportError says why it cannot run; who waited for that start starts none anew."""
        began = time.monotonic()
        with self._lock:
            if (running := self.endpoint) is not None:
                return running
            if self._failed is not None and self._failed[0] >= began:
                raise OSError(self._failed[1])
            self.stop()  # what is left of one that died
            if find_spec("xllamacpp") is None:
                raise ModuleNotFoundError("local models need xllamacpp: pip install 'tot-lab[local]'")
            if self.weights in KNOWN:
                check(self.weights, self.path)
            key = secrets.token_urlsafe()
            try:
                address = self._started({"path": str(self.path), "key": key, **self.sizes})
            except OSError as error:
                self._failed = time.monotonic(), str(error)
                raise
            # No window is named: the server counts exactly, and refuses a prompt that is too long.
            self._endpoint = LiteLLM(model="openai/local", api_base=f"{address}/v1", api_key=key)
            return self._endpoint

    def _started(self, settings: dict[str, Any]) -> str:
        """Start the process, and return its address."""
        script = Path(__file__).with_name("llama_server.py")
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(
                [sys.executable, "-P", str(script)],  # -P: what lies beside it are no modules of its own
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
            assert process.stdin is not None
            assert process.stdout is not None
            until = time.monotonic() + ready.LOADING
            limit = threading.Timer(ready.LOADING, process.kill)
            limit.daemon = True
            limit.start()
            with suppress(BrokenPipeError):  # the log says why
                process.stdin.write(json.dumps(settings).encode() + b"\n")
                process.stdin.flush()
            said = json.loads(process.stdout.readline() or "{}")
            limit.cancel()
            if "address" in said:
                self._process = process
                return str(said["address"])
            _end(process)
            log.seek(0)
            late = f"its server was not ready within {ready.LOADING:g} s" if time.monotonic() >= until else ""
            why = said.get("error") or late or log.read().decode(errors="replace")[-1000:].strip()
        raise OSError(f"llama.cpp could not load {settings['path']}: {why}")

    def stop(self) -> None:
        """Stop it, if it runs."""
        with self._lock:
            if self._process is not None:
                _end(self._process)
            self._process = self._endpoint = None


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()  # it holds nothing that would be lost
    process.communicate()


_LOCK = threading.Lock()
_SERVERS: dict[tuple[Any, ...], _Server] = {}


def _server_for(settings: Local) -> _Server:
    """The server of these settings, held by them. FileNotFoundError without weights."""
    path = find(settings.weights).resolve()
    key = (path, settings.weights, settings.context_window, settings.slots, settings.threads)
    with _LOCK:
        server = _SERVERS.setdefault(key, _Server(settings, path))
        server.hold(settings)
        return server
