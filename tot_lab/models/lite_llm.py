"""Models of a provider, or of any server that speaks like one, through litellm.

Rule: one request, whose way is all ours. litellm translates and no more: its retries, its cache, its
log and its downloads are off, and it is imported (which takes seconds) in a thread, when the
first call needs it. What it would leave out in silence is found out beforehand and noted; what it
makes up (a finish reason for a stream that broke off, tokens and prices that it does not know) is
not believed. No key, and no text that holds one, leaves this file.
"""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import os
import re
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from email.utils import parsedate_to_datetime
from importlib import import_module
from types import ModuleType
from typing import Annotated, Any, ClassVar, NamedTuple
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, SecretStr, field_validator

from tot_lab.core.calls import Call, Message, Reply, TokenLogprob, ToolCall, Wire
from tot_lab.core.reading import read_json, split_thinking
from tot_lab.models.stack import Endpoint, Failure, Need, provider_seed

DEFAULT_MODELS = {
    "openai": "openai/gpt-4.1-mini",
    "anthropic": "anthropic/claude-haiku-4-5",
    "google": "gemini/gemini-2.5-flash",
    "gemini": "gemini/gemini-2.5-flash",
    "ollama": "ollama_chat/qwen3:8b",
}
"""What the name of a provider alone stands for."""

_HOMES = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
    "gemini": "https://generativelanguage.googleapis.com/v1beta",
    "ollama_chat": "http://localhost:11434",
}

OLLAMA_WINDOW = 4096
"""Tokens that Ollama keeps of a prompt when nothing is said: the rest it cuts off in silence."""

UNKNOWN_OUTPUT = 4096
"""Tokens taken for the longest reply of a model of which nothing is known."""

# Not Gemini, whose thinking models may refuse to give several candidates.
_TAKE_N = {"openai", "azure", "hosted_vllm", "together_ai", "fireworks_ai", "xai"}
_ONE_BY_ONE: set[tuple[str | None, str]] = set()  # servers that were seen to pass over n
_UNLISTED = {"gemini": ["seed", "top_logprobs"]}  # taken by the provider, and missing in litellm's list
_FOREVER = 86_400.0  # seconds; the driver keeps the time
_RETRIED = (408, 409, 429)
_SECRET = re.compile(r"(_API_KEY|_TOKEN|_SECRET|_SECRET_ACCESS_KEY)$")
_BARE_PROVIDER = (("openai", re.compile(r"gpt-|chatgpt-|o\d")), ("anthropic", re.compile(r"claude-")))
_NOISE = re.compile(r"^(?:litellm\.)?[A-Za-z_]*(?:Error|Exception|Timeout)(?: Error)?(?::| -) ?")
_TOO_LONG = re.compile(r"context.{0,9} (length|window|size|limit)|prompt is too long|number of tokens", re.I)
# litellm's words for what it cannot read, under a status of its own making
_UNREADABLE = re.compile("converting to valid response|unexpected response from Ollama")
_MASKED = "think\u2060>"  # hides a tag from litellm
_SURROGATE = re.compile("[\ud800-\udfff]")

Usd = Annotated[float, Field(ge=0)]


class LiteLLM(Endpoint):
    """A model by its litellm name.

    model: `openai/gpt-4.1-mini`, `anthropic/…`, `gemini/…` or `google/…`, `ollama/qwen3:8b`,
        `hosted_vllm/…`, …; the name of a provider alone is its default model. A name without a
        provider is litellm's to know. Ollama is always asked through its chat interface.
    api_base: URL of the server, where it is not the provider's own; without a name or password in it.
    api_key: None = the provider's environment variable (`OPENAI_API_KEY`, …). It is no setting: it
        is not recorded, and part of nothing that is shown.
    context_window: tokens of prompt and reply together. Ollama is told to keep so many.
    price: USD per million tokens of (prompt, reply), for a model that litellm's table lacks.
    """

    model_config = ConfigDict(hide_input_in_errors=True)  # which may be the key
    kind: ClassVar[str] = "litellm"
    model: Annotated[str, Field(min_length=1)]
    api_base: str | None = None
    api_key: Annotated[SecretStr | str | None, Field(exclude=True, repr=False)] = None
    context_window: Annotated[int, Field(ge=1)] | None = None
    price: Annotated[tuple[Usd, Usd], Field(strict=False)] | None = None

    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"model": value} if isinstance(value, str) else value

    @field_validator("api_base")
    @classmethod
    def _is_url(cls, base: str | None) -> str | None:
        if base is not None:
            parts = urlsplit(base)
            if parts.scheme.lower() not in ("http", "https") or not parts.hostname:
                raise ValueError("api_base must be a URL such as http://localhost:8000/v1")
            if "@" in parts.netloc or parts.query:
                raise ValueError("api_base must hold no name, password or query; give a key as api_key")
        return base

    @field_validator("api_key")
    @classmethod
    def _hidden(cls, key: SecretStr | str | None) -> SecretStr | None:
        return SecretStr(key) if isinstance(key, str) else key

    @property
    def _key(self) -> str:
        return self.api_key.get_secret_value() if isinstance(self.api_key, SecretStr) else ""

    def settings(self) -> dict[str, Any]:
        """The part as JSON-ready data, without the key."""
        return {name: value for name, value in super().settings().items() if name != "api_key"}

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        return ((name, value) for name, value in super().__repr_args__() if name != "api_key")

    # Who it is.

    @property
    def name(self) -> str:
        """The model's whole name, with its provider where one was named."""
        name = DEFAULT_MODELS.get(self.model, self.model)
        provider, slash, rest = name.partition("/")
        return {"ollama": "ollama_chat", "google": "gemini"}.get(provider, provider) + slash + rest

    @property
    def provider(self) -> str:
        """The provider that the name names; "" where only litellm can tell."""
        name = self.name
        if "/" in name:
            return name.partition("/")[0]
        return next((provider for provider, form in _BARE_PROVIDER if form.match(name)), "")

    @property
    def base_url(self) -> str | None:
        """The server's URL in one form: as given, or as litellm would take it from the environment."""
        base = self.api_base
        prefix = self.provider.removesuffix("_chat").upper()
        for suffix in ("_BASE_URL", "_API_BASE"):
            base = base or os.environ.get(f"{prefix}{suffix}")
        if not base:
            return None
        parts = urlsplit(base)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        port = "" if parts.port in (None, {"http": 80, "https": 443}.get(parts.scheme)) else f":{parts.port}"
        return f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}"

    @property
    def is_providers_own(self) -> bool:
        """Whether it is a provider's service, and not some server."""
        return self.base_url is None and self.provider != "ollama_chat"

    def identity(self) -> dict[str, Any]:
        """The model, the server, and the context window where the answer depends on it."""
        identity: dict[str, Any] = {"model": self.name, "base_url": self.base_url}
        if self.context_window is not None and self.provider == "ollama_chat":
            identity["context_window"] = self.context_window
        return identity

    @property
    def address(self) -> str:
        """The server's URL, or the provider."""
        return self.base_url or self.provider or self.name

    # What a request may need.

    def takes_n(self, call: Call) -> bool:
        """Whether several draws can be one request: an OpenAI-like server, and no seed, since the
        draws of one request share theirs."""
        refused = (self.base_url, self.name) in _ONE_BY_ONE
        return call.seed is None and self.provider in _TAKE_N and not refused

    def need(self, calls: Sequence[Call]) -> Need:
        """Prompt tokens counted, and the longest replies. litellm is imported if it was not yet."""
        litellm = _load()
        call = calls[0]
        known = self._known(litellm)
        longest = call.max_tokens or known.get("max_output_tokens") or self.context_window or UNKNOWN_OUTPUT
        prompt, output = self._counted(litellm, call), len(calls) * int(longest)
        price = self._price(known)
        usd = None if price is None else (prompt * price[0] + output * price[1]) / 1e6
        return Need(prompt + output, usd)

    def known_window(self) -> int | None:
        """Tokens of prompt that litellm's table gives the model; None when it is not there."""
        known = self._known(_load()).get("max_input_tokens")
        return None if known is None else int(known)

    def _known(self, litellm: ModuleType) -> dict[str, Any]:
        """What litellm's table says of the model; {} when it is not there."""
        name, provider = _resolved(litellm, self.name)
        table = litellm.model_cost
        for key in (self.name, f"{provider.removesuffix('_chat')}/{name}", name):
            entry = table.get(key)
            if entry is not None and _same_provider(entry, provider):
                return dict(entry)
        return {}

    def _price(self, known: Mapping[str, Any]) -> tuple[float, float] | None:
        if self.price is not None:
            return self.price
        price = known.get("input_cost_per_token"), known.get("output_cost_per_token")
        return None if None in price else (1e6 * float(price[0] or 0), 1e6 * float(price[1] or 0))

    def _counted(self, litellm: ModuleType, call: Call) -> int:
        """Prompt tokens. Other tokenizers than OpenAI's are stood in for, so a quarter is added."""
        name, provider = _resolved(litellm, self.name)
        known = provider == "openai" and bool(self._known(litellm))
        counted = litellm.token_counter(
            model=name if known else "gpt-4o", messages=_messages(call), tools=_tools(call) or None
        )
        return int(counted) if known else int(counted) * 5 // 4 + 8

    def _check_window(self, litellm: ModuleType, call: Call) -> None:
        """Raises `Failure` when the prompt cannot be held. A token is a byte at least, so that
        counting is needed for long prompts alone."""
        known = self._known(litellm).get("max_input_tokens")
        window, reply = self.context_window, call.max_tokens or 0
        if window is None and self.provider == "ollama_chat":
            window = OLLAMA_WINDOW
        elif window is None and known:
            window, reply = int(known), 0  # the provider counts the reply apart, or says so itself
        size = sum(len(message.content.encode("utf-8", "replace")) + 16 for message in call.messages)
        size += len(json.dumps(call.tools)) if call.tools else 0
        if window is None or size + reply <= window:
            return
        counted = self._counted(litellm, call)
        if counted + reply > window:
            hint = "" if self.context_window else "; say context_window=… if the model has a larger one"
            room = f" and {reply} of the reply" if reply else ""
            raise Failure(
                f"about {counted} tokens of prompt{room} do not fit the context window of {window}{hint}"
            )

    # The request.

    async def answer(self, calls: Sequence[Call], wire: Wire) -> Sequence[Reply]:
        """One request; a server that gives fewer replies than asked for is asked again for the
        rest. Raises `Failure`; with several calls, one that alone came to nothing is an error."""
        litellm = sys.modules.get("litellm") if _loaded.is_set() else None
        if litellm is None:
            litellm = await asyncio.to_thread(_load)
        await _watch_loop(litellm)
        call = calls[0]
        try:
            self._check_window(litellm, call)
            sent = self._arguments(litellm, calls, wire)
            stream = wire.watched and len(calls) == 1 and not call.logprobs
            if stream:
                sent |= {"stream": True, "stream_options": {"include_usage": True}}
            response = await litellm.acompletion(**sent)
            if stream:
                async with aclosing(response):
                    answers = await _streamed(response, wire)
            else:
                answers = _whole(response)
        except Failure as failure:
            failure.message = self._scrubbed(failure.message)
            failure.args = (failure.message,)
            raise
        except Exception as error:
            # `from None`: the chain holds requests with their headers
            raise self._failure(litellm, error) from None
        if not answers.choices:
            raise Failure("the provider's answer holds no choices")
        replies = self._replies(litellm, answers, calls)
        if len(replies) < len(calls):
            _ONE_BY_ONE.add((self.base_url, self.name))
            wire.note("call.dropped", settings=["n"])
            replies += await self.answer(calls[len(replies) :], wire)
        return replies

    def _arguments(self, litellm: ModuleType, calls: Sequence[Call], wire: Wire) -> dict[str, Any]:
        """Those of `litellm.acompletion`."""
        call = calls[0]
        asked = _asked(litellm, call)
        if len(calls) > 1:
            asked["n"] = {"n": len(calls)}
        name, provider = _resolved(litellm, self.name)
        dropped = _dropped(litellm, name, provider, asked)
        if dropped:
            wire.note("call.dropped", settings=list(dropped))
        arguments: dict[str, Any] = {
            "model": self.name,
            "messages": _messages(call),
            "num_retries": 0,
            "max_retries": 0,
            "caching": False,
            "timeout": _FOREVER,
        }
        for field, values in asked.items():
            if field not in dropped:
                arguments |= copy.deepcopy(values)  # litellm rewrites what it is given
        if provider in _UNLISTED:
            arguments["allowed_openai_params"] = list(_UNLISTED[provider])
        if provider in ("anthropic", "gemini"):
            # Else its streams take a client that all loops share, and that cannot end with one.
            handler = import_module("litellm.llms.custom_httpx.http_handler")
            params = {"timeout": _FOREVER}
            arguments["client"] = handler.get_async_httpx_client(llm_provider=provider, params=params)
        if self.context_window is not None and provider == "ollama_chat":
            arguments["num_ctx"] = self.context_window
        base = self.base_url
        if base is not None:
            arguments["api_base"] = base
        if self._key:
            arguments["api_key"] = self._key
        elif base is not None and not _key_in_environment(provider):
            arguments["api_key"] = "none"  # a server of one's own wants no key, its client does
        if provider.startswith("ollama"):
            # Else litellm asks the server about the model, in a request of its own that blocks.
            litellm.model_cost.setdefault(f"ollama/{name}", {"litellm_provider": "ollama", "mode": "chat"})
        return arguments

    def _replies(self, litellm: ModuleType, answers: _Answers, calls: Sequence[Call]) -> list[Reply]:
        choices = answers.choices[: len(calls)]
        sizes = [choice.size for choice in choices]
        prompt = _shared(answers.input_tokens, [1] * len(choices))
        output = _shared(answers.output_tokens, sizes)
        costs = self._costs(litellm, answers, prompt, output)
        name, provider = _resolved(litellm, self.name)
        if answers.model and provider != "ollama_chat":  # where litellm names it in two ways
            name = _clean(answers.model)
        replies = []
        for choice, in_tokens, out_tokens, cost in zip(choices, prompt, output, costs, strict=True):
            problem = choice.problem
            if problem is not None and len(calls) == 1:
                raise Failure(self._scrubbed(problem))
            replies.append(
                Reply(
                    "" if problem else choice.text or "",
                    error=problem and f"{self.name}: {self._scrubbed(problem)}",
                    thinking=choice.thinking,
                    model=name,
                    input_tokens=in_tokens,
                    output_tokens=out_tokens,
                    cost=cost,
                    finish=choice.finish,
                    logprobs=choice.logprobs,
                    tool_calls=choice.tool_calls,
                )
            )
        return replies

    def _costs(
        self, litellm: ModuleType, answers: _Answers, prompt: list[int | None], output: list[int | None]
    ) -> list[float | None]:
        """What each reply costs; the first takes what is left, so that they sum to the whole."""
        known = self._known(litellm)
        price = self._price(known)
        if price is None or answers.input_tokens is None or answers.output_tokens is None:
            return [None] * len(prompt)
        whole = (answers.input_tokens * price[0] + answers.output_tokens * price[1]) / 1e6
        if self.price is None:  # with the discounts for what was cached, and the like
            name, provider = _resolved(litellm, self.name)
            whole = sum(
                litellm.cost_per_token(model=name, custom_llm_provider=provider, usage_object=answers.usage)
            )
        plain = [
            ((into or 0) * price[0] + (out or 0) * price[1]) / 1e6
            for into, out in zip(prompt, output, strict=True)
        ]
        scale = whole / sum(plain) if sum(plain) else 0.0
        rest: list[float | None] = [cost * scale for cost in plain[1:]]
        return [whole - sum(cost or 0.0 for cost in rest), *rest]

    async def look(self, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
        """The HTTP status and the JSON (None when it is none) of a page beside the model: `path`
        below the server's URL, or with `/` at its beginning below its host. With `body` it is
        posted. Raises `Failure` when there is no server."""
        await asyncio.to_thread(_load)
        httpx = import_module("httpx")
        base = self.base_url or _HOMES.get(self.provider)
        if base is None:
            return 404, None
        url = f"{base}/{path}" if path[0] != "/" else base.removesuffix("/v1") + path
        key = self._key or _key_in_environment(self.provider)
        name = {"anthropic": "x-api-key", "gemini": "x-goog-api-key"}.get(self.provider, "authorization")
        headers = {"anthropic-version": "2023-06-01"} if self.provider == "anthropic" else {}
        if key:
            headers[name] = f"Bearer {key}" if name == "authorization" else key
        try:
            async with httpx.AsyncClient(timeout=20.0) as client:  # follows no redirect with the key
                response = await client.request(
                    "GET" if body is None else "POST", url, json=body, headers=headers
                )
                return response.status_code, read_json(response.text)
        except httpx.HTTPError as error:
            words = str(error) or type(error).__name__
            raise Failure(self._scrubbed(f"no answer from {self.address}: {words}"), retry=True) from None

    # What went wrong.

    def _failure(self, litellm: ModuleType, error: Exception) -> Failure:
        """What litellm raised, as it was before litellm: the HTTP status, the provider's words."""
        httpx, aiohttp = import_module("httpx"), import_module("aiohttp")
        chain = list(_chain(error))
        response = next((link.response for link in chain if isinstance(link, httpx.HTTPStatusError)), None)
        words = _words(str(error))
        if response is not None:
            status = int(response.status_code)
            with_body = _body(response)
            message = _message(with_body) or _message(words) or words
            hopeless = isinstance(error, litellm.ContextWindowExceededError) or _TOO_LONG.search(message)
            return Failure(
                self._scrubbed(message or f"HTTP {status}"),
                status=status,
                retry=(status in _RETRIED or status >= 500) and not hopeless,
                retry_after=_retry_after(response.headers, with_body),
            )
        if any(isinstance(link, (httpx.TransportError, aiohttp.ClientError, OSError)) for link in chain):
            return Failure(self._scrubbed(f"no answer from {self.address}: {words}"), retry=True)
        if isinstance(error, litellm.exceptions.MidStreamFallbackError):
            return Failure(self._scrubbed(words), retry=not _TOO_LONG.search(words))
        refused = litellm.BadRequestError, litellm.AuthenticationError, litellm.NotFoundError
        if isinstance(error, refused) and not _UNREADABLE.search(str(error)):
            return Failure(self._scrubbed(words))
        if "API key" in words or "api_key" in words or any(isinstance(link, UnicodeError) for link in chain):
            return Failure(self._scrubbed(words))
        return Failure(self._scrubbed(f"the provider's answer cannot be read: {words}"), retry=True)

    def _scrubbed(self, text: str) -> str:
        """`text` without any key that is known here."""
        secrets = [self._key] if len(self._key) > 3 else []
        secrets += [value for name, value in os.environ.items() if _SECRET.search(name) and len(value) > 7]
        for secret in sorted(secrets, key=len, reverse=True):
            text = text.replace(secret, "•••")
        text = re.sub(r"[\w-]+\*{3,}[\w-]*", "•••", text)  # a key's ends, as OpenAI shows them
        return _clean(text)


# litellm itself.

_loading = threading.Lock()
_loaded = threading.Event()


def _load() -> ModuleType:
    """litellm, imported and made quiet; its first import takes seconds."""
    with _loading:
        if not _loaded.is_set():
            os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
            os.environ["LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS"] = "True"
            os.environ.setdefault("HF_HUB_OFFLINE", "1")
            litellm: Any = import_module("litellm")
            litellm.suppress_debug_info = True
            litellm.telemetry = False
            if "LITELLM_LOG" not in os.environ:
                logging.getLogger("LiteLLM").setLevel("CRITICAL")  # what it warns of, we note or raise
            # What it would else build when it is first used, and block the loop with.
            litellm.token_counter(model="gpt-4o", text="")
            litellm.ModelResponse(), litellm.types.utils.Delta()
            _optional_params(litellm, "gpt-4o", "openai", {})
            _ = import_module("openai").AsyncOpenAI(api_key="none").chat.completions
            _loaded.set()
    return sys.modules["litellm"]


_watched: dict[int, AsyncGenerator[None, None]] = {}


async def _watch_loop(litellm: ModuleType) -> None:
    """See to it that litellm's connections end with the loop that they belong to. litellm keeps them
    for ever; a loop's last act is to finish the generators that were begun in it."""
    loop = id(asyncio.get_running_loop())
    if loop in _watched:
        return

    async def until_the_end() -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            _watched.pop(loop, None)
            clients = litellm.in_memory_llm_clients_cache
            for key in [key for key in clients.cache_dict if key.endswith(f"-{loop}")]:
                clients.ttl_dict.pop(key, None)
                await clients.cache_dict.pop(key).close()

    _watched[loop] = until_the_end()
    await anext(_watched[loop])


def _resolved(litellm: ModuleType, name: str) -> tuple[str, str]:
    """The model's own name and its provider. Raises what litellm raises when it knows neither."""
    known = _resolutions.get(name)
    if known is None:
        model, provider, _, _ = litellm.get_llm_provider(model=name)
        known = _resolutions[name] = (model, provider)
    return known


_resolutions: dict[str, tuple[str, str]] = {}


def _same_provider(entry: Mapping[str, Any], provider: str) -> bool:
    return (
        str(entry.get("litellm_provider", ""))
        .removesuffix("_chat")
        .startswith(provider.removesuffix("_chat"))
    )


def _key_in_environment(provider: str) -> str:
    provider = provider.removesuffix("_chat").upper()
    names = ("GOOGLE_API_KEY", "GEMINI_API_KEY") if provider == "GEMINI" else (f"{provider}_API_KEY",)
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


# What is asked.


def _messages(call: Call) -> list[dict[str, Any]]:
    return [_turn(message) for message in call.messages]


def _turn(message: Message) -> dict[str, Any]:
    turn: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        turn["content"] = message.content or None
        turn["tool_calls"] = [
            {
                "id": tool.id,
                "type": "function",
                "function": {"name": tool.name, "arguments": tool.arguments},
            }
            for tool in message.tool_calls
        ]
    if message.tool_call_id is not None:
        turn["tool_call_id"] = message.tool_call_id
    return turn


def _tools(call: Call) -> list[dict[str, Any]]:
    return [{"type": "function", "function": tool} for tool in call.tools]


def _asked(litellm: ModuleType, call: Call) -> dict[str, dict[str, Any]]:
    """The settings that `call` asks for, by their names in a call, each as litellm's arguments."""
    asked: dict[str, dict[str, Any]] = {}
    for field in ("temperature", "max_tokens"):
        value = getattr(call, field)
        if value is not None:
            asked[field] = {field: value}
    if call.stop:
        asked["stop"] = {"stop": list(call.stop)}
    if call.seed is not None:
        asked["seed"] = {"seed": provider_seed(call)}
    if call.response_format is not None:
        schema = call.response_format
        name = re.sub(r"[^\w-]", "_", str(schema.get("title") or "reply"))[:64]
        form = {"name": name, "schema": schema, "strict": _strict(schema)}
        asked["response_format"] = {"response_format": {"type": "json_schema", "json_schema": form}}
    if call.logprobs:
        asked["logprobs"] = {"logprobs": True, "top_logprobs": call.logprobs}
    if call.tools:
        asked["tools"] = {"tools": _tools(call)}
    if call.tool_choice is not None:
        choice: Any = call.tool_choice
        if choice not in ("auto", "none", "required"):
            choice = {"type": "function", "function": {"name": choice}}
        asked["tool_choice"] = {"tool_choice": choice}
    if call.effort is not None:
        asked["effort"] = {"reasoning_effort": call.effort}
    for name, value in call.options.items():
        if name in ("model", "messages", "n", "stream", "timeout") or name in _all_litellm_params(litellm):
            raise Failure(f"options hold {name!r}, which is no sampling setting")
        asked[name] = {name: value}
    return asked


def _all_litellm_params(litellm: ModuleType) -> Sequence[str]:
    params: Sequence[str] = litellm.types.utils.all_litellm_params
    return params


def _strict(schema: Any) -> bool:
    """Whether OpenAI's strict mode takes the schema: its objects say all and require all."""
    if isinstance(schema, list):
        return all(map(_strict, schema))
    if not isinstance(schema, dict):
        return True
    closed = schema.get("type") != "object" or (
        schema.get("additionalProperties") is False
        and set(schema.get("required", ())) == set(schema.get("properties", {}))
    )
    return closed and all(map(_strict, schema.values()))


def _optional_params(
    litellm: ModuleType, model: str, provider: str, asked: Mapping[str, Any]
) -> dict[str, Any]:
    """What litellm makes of the settings, its silent omissions included."""
    arguments: dict[str, Any] = {}
    for values in asked.values():
        arguments |= copy.deepcopy(values)
    made: dict[str, Any] = litellm.utils.get_optional_params(
        model=model,
        custom_llm_provider=provider,
        drop_params=True,
        allowed_openai_params=list(_UNLISTED.get(provider, ())),
        **arguments,
    )
    return made


_drops: dict[str, tuple[str, ...]] = {}


def _dropped(
    litellm: ModuleType, model: str, provider: str, asked: dict[str, dict[str, Any]]
) -> tuple[str, ...]:
    """Names of the settings that would not reach the model: those without which litellm makes the
    very same request. Of a schema: the words that it leaves out, as `response_format.minItems`.
    Seeds, tools and the like differ from call to call and decide nothing, so it is remembered."""
    schema = asked.get("response_format")
    words = sorted(_keys(schema)) if schema else []
    told = {
        field: None if field in ("seed", "tools", "response_format", "n") else values
        for field, values in asked.items()
    }
    key = json.dumps([model, provider, told, words], sort_keys=True, default=str)
    known = _drops.get(key)
    if known is not None:
        return known
    full = _optional_params(litellm, model, provider, asked)
    dropped = []
    for field in asked:
        others = {name: values for name, values in asked.items() if name != field}
        if _optional_params(litellm, model, provider, others) == full:
            dropped.append(field)
    if "effort" in asked and "effort" not in dropped:
        other = "low" if asked["effort"]["reasoning_effort"] != "low" else "high"
        changed = {**asked, "effort": {"reasoning_effort": other}}
        if _optional_params(litellm, model, provider, changed) == full:
            dropped.append("effort.level")  # it is only on or off
    if schema and "response_format" not in dropped:
        kept = _keys(full)
        lost = (_keys(schema["response_format"]["json_schema"]["schema"]) & _CONSTRAINTS) - kept
        dropped += sorted(f"response_format.{word}" for word in lost)
    if provider == "gemini":  # which sends on only what it knows
        known_there = import_module("litellm.types.llms.vertex_ai").GenerationConfig.__annotations__
        passed = {*known_there, *litellm.get_supported_openai_params(model, provider)}
        fields = {*_CALL_FIELDS, *passed, *map(_camel, passed)}
        dropped += [field for field in asked if field not in fields and field not in dropped]
    _drops[key] = tuple(dropped)
    return _drops[key]


_CALL_FIELDS = {"temperature", "max_tokens", "stop", "seed", "response_format", "logprobs", "tools"}
_CALL_FIELDS |= {"tool_choice", "effort", "n"}
_CONSTRAINTS = {"minLength", "maxLength", "pattern", "format", "enum", "const", "minimum", "maximum"}
_CONSTRAINTS |= {"exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "uniqueItems"}
_CONSTRAINTS |= {"contains", "prefixItems", "minProperties", "maxProperties", "patternProperties", "not"}
_CONSTRAINTS |= {"anyOf", "allOf", "if", "then", "else", "additionalProperties", "required"}


def _keys(value: Any) -> set[str]:
    """Every key of every object inside `value`."""
    if isinstance(value, dict):
        return set(value).union(*map(_keys, value.values()))
    return set().union(*map(_keys, value)) if isinstance(value, list | tuple) else set()


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))


# What comes back.


class _Choice(NamedTuple):
    """One reply as the provider gave it. text: None when it has none at all."""

    text: str | None
    thinking: str | None
    finish: str | None
    tool_calls: tuple[ToolCall, ...]
    logprobs: tuple[TokenLogprob, ...] = ()
    refusal: str | None = None

    @property
    def problem(self) -> str | None:
        """Why it is no reply."""
        if self.refusal:
            return f"the model refused: {self.refusal}"
        if self.text is None and not self.tool_calls and not self.thinking and self.finish != "length":
            return f"the provider's answer has no content (finish: {self.finish})"
        return None

    @property
    def size(self) -> int:
        """Bytes, a stand-in for its share of the tokens."""
        parts = (self.text, self.thinking, *(tool.arguments for tool in self.tool_calls))
        return sum(len(part.encode()) for part in parts if part)


class _Answers(NamedTuple):
    """All that a request brought. usage: litellm's, None when the provider did not say."""

    choices: list[_Choice]
    model: str | None
    usage: Any

    @property
    def input_tokens(self) -> int | None:
        return None if self.usage is None else int(self.usage.prompt_tokens or 0)

    @property
    def output_tokens(self) -> int | None:
        return None if self.usage is None else int(self.usage.completion_tokens or 0)


def _choice(
    content: str | None,
    thinking: str | None,
    finish: str | None,
    tool_calls: tuple[ToolCall, ...],
    logprobs: tuple[TokenLogprob, ...] = (),
    refusal: str | None = None,
) -> _Choice:
    """The pieces of a reply, put in order. White space between thinking and answer is of neither."""
    text = None if content is None else _clean(content)
    thought = _clean(thinking or "").strip() or None
    if text is not None:
        inside, text = split_thinking(text)
        thought = "\n\n".join(part for part in (thought, inside) if part) or None
        text = text.lstrip("\n") if thought else text
    return _Choice(text, thought, finish, tool_calls, logprobs, refusal)


def _whole(response: Any) -> _Answers:
    choices = []
    for choice in response.choices or ():
        message = choice.message
        tools = tuple(
            ToolCall(
                _clean(tool.id or f"call_{k}"),
                _clean(tool.function.name or ""),
                _clean(tool.function.arguments or ""),
            )
            for k, tool in enumerate(message.tool_calls or ())
        )
        extra = getattr(message, "provider_specific_fields", None) or {}
        choices.append(
            _choice(
                message.content,
                getattr(message, "reasoning_content", None),
                choice.finish_reason,
                tools,
                _logprobs(getattr(choice, "logprobs", None)),
                extra.get("refusal"),
            )
        )
    return _Answers(choices, response.model, _usage([getattr(response, "usage", None)]))


async def _streamed(stream: Any, wire: Wire) -> _Answers:
    """The same out of a stream. Raises `Failure` when it ends before it is complete, which litellm
    takes for an ordinary end."""
    text, thinking, finish = "", "", None
    begun, usage = False, None
    tools: dict[int, list[str]] = {}
    ended = await _end_of(stream)
    async for chunk in stream:
        usage = getattr(chunk, "usage", None) or usage
        if not chunk.choices:
            continue
        delta = chunk.choices[0].delta
        finish = chunk.choices[0].finish_reason or finish
        thinking += getattr(delta, "reasoning_content", None) or ""
        for tool in delta.tool_calls or ():
            parts = tools.setdefault(tool.index, ["", "", ""])
            parts[0] = parts[0] or tool.id or ""
            parts[1] = parts[1] or tool.function.name or ""
            parts[2] += tool.function.arguments or ""
        if delta.content is not None:
            begun = True
            if delta.content:
                text += delta.content.replace(_MASKED, "think>")
                wire.partial(_clean(text))
    if not ended():
        raise Failure("the provider's answer broke off half way", retry=True)
    calls = tuple(
        ToolCall(_clean(id or f"call_{k}"), _clean(name), _clean(arguments))
        for k, (id, name, arguments) in tools.items()
    )
    said = _usage([getattr(chunk, "usage", None) for chunk in stream.chunks])
    model = stream._provider_response_model or stream.model
    choice = _choice(text if begun and (text or not calls) else None, thinking, finish, calls)
    return _Answers([choice], model, None if said is None else usage)


async def _end_of(stream: Any) -> Callable[[], bool]:
    """Whether the provider has said that it is done. Gemini's and Ollama's chunks are seen to before
    litellm reads them: of the one it takes every chunk for the last, and of the other it takes the
    tags of thinking away and leaves the thinking in the text."""
    if stream.custom_llm_provider not in ("gemini", "vertex_ai", "vertex_ai_beta", "ollama_chat"):
        return lambda: stream.received_finish_reason is not None
    chunks = await stream.fetch_stream()
    parse = chunks.chunk_parser
    reasons: list[str | None] = []

    def see_to(chunk: dict[str, Any]) -> Any:
        reasons.extend(candidate.get("finishReason") for candidate in chunk.get("candidates") or ())
        message = chunk.get("message")
        if isinstance(message, dict) and message.get("content"):
            message["content"] = message["content"].replace("think>", _MASKED)
        return parse(chunk)

    chunks.chunk_parser = see_to
    return lambda: any(reasons) or stream.received_finish_reason is not None


def _usage(reported: Sequence[Any]) -> Any:
    """The last usage that holds any token: litellm fills in noughts where a provider says nothing."""
    told = [usage for usage in reported if usage and (usage.prompt_tokens or usage.completion_tokens)]
    return told[-1] if told else None


def _logprobs(reported: Any) -> tuple[TokenLogprob, ...]:
    tokens = []
    for token in getattr(reported, "content", None) or ():
        top: dict[str, float] = {}
        for other in token.top_logprobs or ():
            top.setdefault(_clean(other.token), _log(other.logprob))
        tokens.append(TokenLogprob(_clean(token.token), _log(token.logprob), top))
    return tuple(tokens)


def _log(value: float | None) -> float:
    """A finite log-probability; for the impossible OpenAI's own stand-in."""
    return max(float(value), -9999.0) if value is not None else -9999.0


def _clean(text: str) -> str:
    """`text` without lone surrogates, which no file can hold."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def _shared(whole: int | None, sizes: Sequence[int]) -> list[int | None]:
    """`whole` in parts as large as `sizes` are; the first takes what is left."""
    if whole is None:
        return [None] * len(sizes)
    total = sum(sizes)
    parts = [whole * size // total if total else 0 for size in sizes]
    return [whole - sum(parts[1:]), *parts[1:]]


# What went wrong.


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


def _words(text: str) -> str:
    """litellm's words without its prefixes and tracebacks."""
    text = text.split("Traceback (", 1)[0].split(" Handle with `litellm", 1)[0]
    text = text.split(" Original exception:", 1)[0].strip()
    while (match := _NOISE.match(text)) is not None and match.end() < len(text):
        text = text[match.end() :]
    return _short(text)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 500 else f"{text[:499]}…"


def _body(response: Any) -> str:
    try:
        return str(response.text)
    except Exception:  # of a stream, which nobody has read
        return ""


def _message(body: str) -> str:
    """The message in a provider's JSON; "" when there is none."""
    value = read_json(body)
    value = value[0] if isinstance(value, list) and value else value
    if isinstance(value, dict):
        value = value.get("error") or value.get("message") or value.get("detail")
    if isinstance(value, dict):
        value = value.get("message")
    return _short(value) if isinstance(value, str) else ""


def _retry_after(headers: Mapping[str, str], body: str) -> float | None:
    """Seconds that the provider asks to wait: by its header, or as Google puts it in the body."""
    value = headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d+(\.\d+)?", value):
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        delay = re.search(r'"retryDelay":\s*"(\d+(?:\.\d+)?)s"', body)
        return float(delay[1]) if delay else None
