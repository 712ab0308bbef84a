"""A real HTTP server on loopback that speaks the observer formats of the four provider families.

    with Providers() as server:
        server.will(Fault(429, retry_after=1), Said("24"))    # how to answer the next requests
        ...  litellm, with api_base=server.base("openai")  ...
        assert server.asked[0].json["n"] == 3                 # what really arrived

Rule: it answers with what a provider sends, byte for byte in form, refuses what a provider refuses
(`refusals.py`), and records what came. Which
format to speak follows from the path. A request takes the next thing from the script; once that
is used up, `server.otherwise` (a `Said`, or a function of the request).

It runs in a thread with a loop of its own, so that a test may block, or use any loop.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from aiohttp import web

from support.refusals import refusal, signed

MODELS = {
    "openai": "openai/gpt-4.1-mini",
    "anthropic": "anthropic/claude-haiku-4-5",
    "gemini": "gemini/gemini-2.5-flash",
    "ollama": "ollama/qwen3:8b",
}
"""A model of each family, by litellm's name for it."""

FAMILIES = tuple(MODELS)


@dataclass(frozen=True)
class Said:
    """A good answer. `texts`: of each choice; one text is given to all of them, with the number of
    the choice behind it from the second on. None = no content (as with tool calls).

    thinking: what goes into the provider's reasoning field. redacted: with it comes some that only the
    provider can read. tools: (name, arguments) pairs.
    logprobs: (token, logprob, {alternative: logprob}) triples. cached: prompt tokens of
    `input_tokens` that the provider had cached, None = it does not say; stored: those that Anthropic
    stores now. timings: llama.cpp's prompt and generated tokens a second. pause: seconds before an answer,
    or each streamed piece.
    """

    texts: str | tuple[str | None, ...] | None = "Four."
    thinking: str | None = None
    redacted: bool = False
    tools: tuple[tuple[str, dict[str, Any]], ...] = ()
    logprobs: tuple[tuple[str, float, dict[str, float]], ...] = ()
    finish: str = "stop"
    input_tokens: int = 11
    output_tokens: int = 5
    cached: int | None = None
    stored: int = 0
    timings: tuple[float, float] | None = None
    usage: bool = True
    model: str | None = None
    pause: float = 0.0

    def choices(self, count: int) -> list[str | None]:
        if isinstance(self.texts, tuple):
            return list(self.texts)
        return [self.texts if k == 0 or self.texts is None else f"{self.texts} {k}" for k in range(count)]


@dataclass(frozen=True)
class Fault:
    """An answer with an HTTP error. message: {key} stands for the key that came with the request.
    code: the provider's own word for it. retry_after: the header, in seconds or as an HTTP date."""

    status: int
    message: str = "something went wrong at the provider"
    retry_after: float | str | None = None
    code: str = "server_error"


@dataclass(frozen=True)
class Raw:
    """Any body at all: garbage, or "" for nothing. pause: seconds before it."""

    body: str = "<html>not what you asked for"
    status: int = 200
    kind: str = "application/json"
    pause: float = 0.0


@dataclass(frozen=True)
class Half:
    """The first `share` of a good answer, and then the connection breaks. A streamed answer breaks
    between two events; with `cleanly` it just ends there, and with `error` in the provider's words."""

    said: Said = Said("one two three four five six seven eight")
    share: float = 0.5
    cleanly: bool = False
    error: Fault | None = None


@dataclass(frozen=True)
class Hang:
    """Nothing, for so many seconds or until the client goes away (`Asked.left` says so)."""

    seconds: float = 60.0


@dataclass(frozen=True)
class Closed:
    """The connection is closed without a word."""


Answer = Said | Fault | Raw | Half | Hang | Closed
Answering = Answer | Callable[["Asked"], Answer]


@dataclass
class Asked:
    """One request as it arrived. family: "" for those that ask about the server, not the model.
    left: the client went away before the answer was complete."""

    method: str
    path: str
    headers: dict[str, str]
    json: Any
    family: str
    stream: bool
    left: bool = False
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def key(self) -> str:
        """The key it came with, in whichever header."""
        bearer = self.headers.get("authorization", "").removeprefix("Bearer ")
        return self.headers.get("x-api-key") or self.headers.get("x-goog-api-key") or bearer

    @property
    def n(self) -> int:
        if self.family == "gemini":
            return int(self.json.get("generationConfig", {}).get("candidate_count", 1))
        return int(self.json.get("n") or 1)


class Providers:
    """The server. `slots`: so many answers are made at a time, None = any number; the others wait.
    `port`: 0 takes a free one. `pages`: JSON for the paths that no family answers, such as /props; a page
    may be a function of the request. `max_at_once`: requests that were under way at a time."""

    def __init__(self, otherwise: Answering | None = None, slots: int | None = None, port: int = 0) -> None:
        self.otherwise: Answering = otherwise or Said()
        self._port = port
        self._slots = asyncio.Semaphore(slots or 10**6)
        self.asked: list[Asked] = []
        self.pages: dict[str, Any] = {}
        self.max_at_once = 0
        self.url = ""
        self._script: deque[Answering] = deque()
        self._under_way: set[object] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def will(self, *answers: Answering) -> None:
        """Answer the next requests so, in this order."""
        self._script.extend(answers)

    def forget(self) -> None:
        """Begin anew: nothing was asked, nothing is scripted."""
        self._script.clear()
        self.asked.clear()
        self.pages.clear()
        self.max_at_once = 0
        self._under_way = set()  # those that a test left behind are none of the next one

    def base(self, family: str) -> str:
        """The `api_base` to give litellm for a model of `family`."""
        return self.url + {"openai": "/v1", "gemini": "/v1beta"}.get(family, "")

    @property
    def calls(self) -> list[Asked]:
        """The requests for an answer of the model."""
        return [asked for asked in self.asked if asked.family]

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(20), "the server did not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self._handle)
        # A client that goes away cancels its handler; at the end nobody is waited for.
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self._port)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        try:
            data = json.loads(body) if body else None
        except ValueError:
            data = None
        family = _family(request) if request.method == "POST" else ""
        stream = "streamGenerateContent" in request.path or bool(data and data.get("stream"))
        headers = {name.lower(): value for name, value in request.headers.items()}
        asked = Asked(request.method, request.path, headers, data, family, stream)
        self.asked.append(asked)
        if not family:
            return await self._page(request, asked)
        answer = self._script.popleft() if self._script else self.otherwise
        under_way, this = self._under_way, object()
        under_way.add(this)
        self.max_at_once = max(self.max_at_once, len(self._under_way))
        try:
            async with self._slots:
                answer = answer(asked) if callable(answer) else answer
                if isinstance(answer, Said) and (why := refusal(family, data, request.path)):
                    answer = Fault(400, why, code="invalid_request_error")
                return await self._answer(request, asked, answer)
        except (asyncio.CancelledError, ConnectionError):
            asked.left = True
            raise
        finally:
            under_way.discard(this)
            asked.ended.set()

    async def _page(self, request: web.Request, asked: Asked) -> web.Response:
        page = self.pages.get(request.path)
        if page is None:
            return web.json_response({"error": {"message": f"no {request.path} here"}}, status=404)
        page = page(asked) if callable(page) else page
        page = await page if inspect.isawaitable(page) else page
        return page if isinstance(page, web.Response) else web.json_response(page)

    async def _answer(self, request: web.Request, asked: Asked, answer: Answer) -> web.StreamResponse:
        if isinstance(answer, Hang):
            await asyncio.sleep(answer.seconds)
            answer = Closed()
        if isinstance(answer, Closed):
            return _broken(request)
        if isinstance(answer, Fault):
            headers = {} if answer.retry_after is None else {"Retry-After": str(answer.retry_after)}
            body = _SPEAK[asked.family].fault(answer, answer.message.replace("{key}", asked.key))
            return web.json_response(body, status=answer.status, headers=headers)
        if isinstance(answer, Raw):
            await asyncio.sleep(answer.pause)
            return web.Response(text=answer.body, status=answer.status, content_type=answer.kind)
        half = answer if isinstance(answer, Half) else None
        said = answer.said if isinstance(answer, Half) else answer
        speak = _SPEAK[asked.family]
        if not asked.stream:
            whole = json.dumps(speak.whole(said, asked)).encode()
            await asyncio.sleep(said.pause)
            if half is None:
                return web.Response(body=whole, content_type="application/json")
            pieces = [whole[: int(len(whole) * half.share)]]
            response = web.StreamResponse(headers={"Content-Length": str(len(whole))})
        else:
            pieces = [piece.encode() for piece in speak.pieces(said, asked)]
            pieces = pieces if half is None else pieces[: int(len(pieces) * half.share)]
            if half is not None and half.error is not None:
                pieces.append(speak.event(speak.fault(half.error, half.error.message)).encode())
            response = web.StreamResponse(headers={"Content-Type": speak.stream_type})
        await response.prepare(request)
        for piece in pieces:
            await asyncio.sleep(said.pause)
            await response.write(piece)
        if half is not None and not (asked.stream and (half.cleanly or half.error)):
            await asyncio.sleep(0.02)  # what was written is on its way
            return _broken(request, response)
        await response.write_eof()
        return response


def _broken(request: web.Request, response: web.StreamResponse | None = None) -> web.StreamResponse:
    """Break the connection; what is returned after that goes nowhere."""
    if request.transport is not None:
        request.transport.abort()
    return response or web.Response()


def _family(request: web.Request) -> str:
    path = request.path
    if path.endswith("/chat/completions"):
        return "openai"
    if path.endswith("/v1/messages"):
        return "anthropic"
    if path.endswith((":generateContent", ":streamGenerateContent")):
        return "gemini"
    return "ollama" if path.endswith(("/api/chat", "/api/generate")) else ""


def _words(text: str) -> list[str]:
    """`text` in the pieces that a stream sends: words, and tags alone, as the token that they are."""
    return re.findall(r"</?think>|(?:(?!</?think>)\S)+\s*|\s+", text)


def _event(data: Any, name: str = "") -> str:
    return (f"event: {name}\n" if name else "") + f"data: {json.dumps(data)}\n\n"


class _Speaks(NamedTuple):
    """How a family says a whole answer, the pieces of a streamed one, and an error."""

    whole: Callable[[Said, Asked], Any]
    pieces: Callable[[Said, Asked], list[str]]
    fault: Callable[[Fault, str], Any]
    stream_type: str = "text/event-stream"
    event: Callable[[Any], str] = _event


# OpenAI: POST /v1/chat/completions


def _openai_usage(said: Said) -> dict[str, Any]:
    total = said.input_tokens + said.output_tokens
    details = {} if said.cached is None else {"prompt_tokens_details": {"cached_tokens": said.cached}}
    return {
        "prompt_tokens": said.input_tokens,
        "completion_tokens": said.output_tokens,
        "total_tokens": total,
        **details,
    }


def _timings(said: Said) -> dict[str, Any]:
    """As llama.cpp adds them beside the usage."""
    if said.timings is None:
        return {}
    prompt, predicted = said.timings
    fresh = said.input_tokens - (said.cached if isinstance(said.cached, int) else 0)
    return {
        "timings": {
            "cache_n": said.cached or 0,
            "prompt_n": fresh,
            "prompt_ms": 1000 * fresh / prompt if prompt else 0.0,
            "prompt_per_second": prompt or None,
            "predicted_n": said.output_tokens,
            "predicted_per_second": predicted,
        }
    }


def _openai_tools(said: Said) -> list[dict[str, Any]]:
    return [
        {
            "id": f"call_{k}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for k, (name, arguments) in enumerate(said.tools)
    ]


def _openai_logprobs(said: Said) -> dict[str, Any] | None:
    if not said.logprobs:
        return None

    def entry(token: str, logprob: float) -> dict[str, Any]:
        return {"token": token, "logprob": logprob, "bytes": list(token.encode("utf-8", "replace"))}

    return {
        "content": [
            {**entry(token, logprob), "top_logprobs": [entry(*pair) for pair in top.items()]}
            for token, logprob, top in said.logprobs
        ],
        "refusal": None,
    }


def _openai_whole(said: Said, asked: Asked) -> dict[str, Any]:
    choices = []
    for index, text in enumerate(said.choices(asked.n)):
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if said.thinking is not None:
            message["reasoning_content"] = said.thinking
        if said.tools:
            message["tool_calls"] = _openai_tools(said)
        logprobs = _openai_logprobs(said)
        choices.append(
            {"index": index, "message": message, "logprobs": logprobs, "finish_reason": said.finish}
        )
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1760000000,
        "model": said.model or asked.json["model"],
        "choices": choices,
    }
    return {**body, "usage": _openai_usage(said), **_timings(said)} if said.usage else body


def _openai_pieces(said: Said, asked: Asked) -> list[str]:
    head = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1760000000,
        "model": said.model or asked.json["model"],
    }

    def piece(delta: dict[str, Any], finish: str | None = None, logprobs: Any = None) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return _event({**head, "choices": [choice]})

    pieces = [piece({"role": "assistant", "content": None if said.texts is None else ""})]
    pieces += [piece({"reasoning_content": word}) for word in _words(said.thinking or "")]
    pieces += [piece({"content": word}) for word in _words(said.choices(1)[0] or "")]
    for k, tool in enumerate(_openai_tools(said)):
        arguments = tool["function"]["arguments"]
        first = {**tool, "index": k, "function": {**tool["function"], "arguments": ""}}
        pieces.append(piece({"tool_calls": [first]}))
        for part in (arguments[:3], arguments[3:]):
            pieces.append(piece({"tool_calls": [{"index": k, "function": {"arguments": part}}]}))
    pieces.append(piece({}, said.finish))
    if said.usage and (asked.json.get("stream_options") or {}).get("include_usage"):
        pieces.append(_event({**head, "choices": [], "usage": _openai_usage(said), **_timings(said)}))
    return [*pieces, "data: [DONE]\n\n"]


def _openai_fault(fault: Fault, message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": fault.code, "param": None, "code": fault.code}}


# Anthropic: POST /v1/messages

_ANTHROPIC_FINISH = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


def _anthropic_blocks(said: Said, turns: int) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if said.thinking is not None:
        signature = signed(said.thinking)
        blocks.append({"type": "thinking", "thinking": said.thinking, "signature": signature})
    if said.redacted:
        blocks.append({"type": "redacted_thinking", "data": "cmVkYWN0ZWQ="})
    text = said.choices(1)[0]
    if text is not None:
        blocks.append({"type": "text", "text": text})
    for k, (name, arguments) in enumerate(said.tools):
        blocks.append({"type": "tool_use", "id": f"toolu_{turns}_{k}", "name": name, "input": arguments})
    return blocks


def _anthropic_whole(said: Said, asked: Asked) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": said.model or asked.json["model"],
        "content": _anthropic_blocks(said, len(asked.json["messages"])),
        "stop_reason": _ANTHROPIC_FINISH.get(said.finish, said.finish),
        "stop_sequence": None,
        "usage": {**_anthropic_read(said), "output_tokens": said.output_tokens},
    }


def _anthropic_read(said: Said) -> dict[str, int]:
    """Anthropic counts cached and stored tokens apart from the others."""
    if said.cached is None:
        return {"input_tokens": said.input_tokens}
    return {
        "input_tokens": said.input_tokens - said.cached - said.stored,
        "cache_read_input_tokens": said.cached,
        "cache_creation_input_tokens": said.stored,
    }


def _anthropic_pieces(said: Said, asked: Asked) -> list[str]:
    whole = _anthropic_whole(said, asked)
    usage = {**_anthropic_read(said), "output_tokens": 1}
    pieces = [
        _event(
            {
                "type": "message_start",
                "message": {**whole, "content": [], "stop_reason": None, "usage": usage},
            },
            "message_start",
        )
    ]

    def delta(index: int, **kinds: Any) -> str:
        return _event({"type": "content_block_delta", "index": index, "delta": kinds}, "content_block_delta")

    for index, block in enumerate(whole["content"]):
        empty = {"thinking": "", "text": "", "input": {}, "signature": ""}
        start = {name: empty.get(name, value) for name, value in block.items()}
        pieces.append(
            _event(
                {"type": "content_block_start", "index": index, "content_block": start}, "content_block_start"
            )
        )
        if block["type"] == "thinking":
            pieces += [
                delta(index, type="thinking_delta", thinking=word) for word in _words(block["thinking"])
            ]
            pieces.append(delta(index, type="signature_delta", signature=block["signature"]))
        elif block["type"] == "text":
            pieces += [delta(index, type="text_delta", text=word) for word in _words(block["text"])]
        elif block["type"] == "tool_use":
            arguments = json.dumps(block["input"])
            for part in (arguments[:3], arguments[3:]):
                pieces.append(delta(index, type="input_json_delta", partial_json=part))
        pieces.append(_event({"type": "content_block_stop", "index": index}, "content_block_stop"))
    ended = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    pieces.append(
        _event(
            {"type": "message_delta", "delta": ended, "usage": {"output_tokens": said.output_tokens}},
            "message_delta",
        )
    )
    return [*pieces, _event({"type": "message_stop"}, "message_stop")]


def _anthropic_fault(fault: Fault, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": fault.code, "message": message}}


# Gemini: POST /v1beta/models/MODEL:generateContent

_GEMINI_FINISH = {"stop": "STOP", "length": "MAX_TOKENS", "tool_calls": "STOP"}


def _gemini_parts(said: Said, text: str | None, asked: Asked) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    if said.thinking is not None:
        parts.append({"text": said.thinking, "thought": True})
    if text is not None:
        parts.append({"text": text})
    calls = [{"functionCall": {"name": name, "args": arguments}} for name, arguments in said.tools]
    if calls and "gemini-3" in asked.path:  # which signs the first of them
        calls[0]["thoughtSignature"] = signed(said.tools[0][0])
    return parts + calls


def _gemini_logprobs(said: Said) -> dict[str, Any]:
    def entry(token: str, logprob: float) -> dict[str, Any]:
        return {"token": token, "logProbability": logprob, "tokenId": 1}

    return {
        "logprobsResult": {
            "chosenCandidates": [entry(token, logprob) for token, logprob, _ in said.logprobs],
            "topCandidates": [
                {"candidates": [entry(*pair) for pair in top.items()]} for _, _, top in said.logprobs
            ],
        }
    }


def _gemini_usage(said: Said) -> dict[str, int]:
    total = said.input_tokens + said.output_tokens
    return {
        "promptTokenCount": said.input_tokens,
        "candidatesTokenCount": said.output_tokens,
        "totalTokenCount": total,
    }


def _gemini_whole(said: Said, asked: Asked) -> dict[str, Any]:
    candidates = [
        {
            "content": {"role": "model", "parts": _gemini_parts(said, text, asked)},
            "finishReason": _GEMINI_FINISH.get(said.finish, said.finish),
            "index": index,
            **(_gemini_logprobs(said) if said.logprobs else {}),
        }
        for index, text in enumerate(said.choices(asked.n))
    ]
    version = said.model or asked.path.rpartition("/")[2].partition(":")[0]
    body = {"candidates": candidates, "modelVersion": version, "responseId": "r1"}
    return {**body, "usageMetadata": _gemini_usage(said)} if said.usage else body


def _gemini_pieces(said: Said, asked: Asked) -> list[str]:
    whole = _gemini_whole(said, asked)
    parts = whole["candidates"][0]["content"]["parts"]
    split = [
        {**part, "text": word} for part in parts if "text" in part for word in _words(part["text"]) if word
    ]
    split += [part for part in parts if "text" not in part]
    pieces = []
    for part in split:
        content = {"content": {"role": "model", "parts": [part]}, "index": 0}
        usage = {"promptTokenCount": said.input_tokens, "totalTokenCount": said.input_tokens}
        pieces.append(
            _event({"candidates": [content], "usageMetadata": usage, "modelVersion": whole["modelVersion"]})
        )
    last = {**whole["candidates"][0], "content": {"role": "model", "parts": [{"text": ""}]}}
    return [*pieces, _event({**whole, "candidates": [last]})]


def _gemini_fault(fault: Fault, message: str) -> dict[str, Any]:
    return {"error": {"code": fault.status, "message": message, "status": fault.code}}


# Ollama: POST /api/chat


def _ollama_message(text: str, said: Said) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if said.tools:
        message["tool_calls"] = [
            {"function": {"name": name, "arguments": arguments}} for name, arguments in said.tools
        ]
    return message


def _ollama_head(asked: Asked, said: Said) -> dict[str, Any]:
    return {"model": said.model or asked.json["model"], "created_at": "2026-01-01T00:00:00.000000Z"}


def _ollama_end(said: Said) -> dict[str, Any]:
    end = {
        "done": True,
        "done_reason": "length" if said.finish == "length" else "stop",
        "total_duration": 5_000_000,
    }
    return {
        **end,
        **({"prompt_eval_count": said.input_tokens, "eval_count": said.output_tokens} if said.usage else {}),
    }


def _ollama_whole(said: Said, asked: Asked) -> dict[str, Any]:
    message = _ollama_message(said.choices(1)[0] or "", said)
    if said.thinking is not None:
        message["thinking"] = said.thinking
    return {**_ollama_head(asked, said), "message": message, **_ollama_end(said)}


def _ollama_pieces(said: Said, asked: Asked) -> list[str]:
    head = _ollama_head(asked, said)

    def line(message: dict[str, Any], **end: Any) -> str:
        return (
            json.dumps({**head, "message": {"role": "assistant", **message}, **(end or {"done": False})})
            + "\n"
        )

    pieces = [line({"content": "", "thinking": word}) for word in _words(said.thinking or "")]
    pieces += [line({"content": word}) for word in _words(said.choices(1)[0] or "")]
    if said.tools:
        pieces.append(line(_ollama_message("", said)))
    return [*pieces, line({"content": ""}, **_ollama_end(said))]


_SPEAK = {
    "openai": _Speaks(_openai_whole, _openai_pieces, _openai_fault),
    "anthropic": _Speaks(
        _anthropic_whole, _anthropic_pieces, _anthropic_fault, event=lambda data: _event(data, "error")
    ),
    "gemini": _Speaks(_gemini_whole, _gemini_pieces, _gemini_fault),
    "ollama": _Speaks(
        _ollama_whole,
        _ollama_pieces,
        lambda fault, message: {"error": message},
        "application/x-ndjson",
        lambda data: json.dumps(data) + "\n",
    ),
}
