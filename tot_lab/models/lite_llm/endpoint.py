"""The endpoint for providers and servers that are called through litellm, and one request to them.

litellm's retries, cache, log and downloads are turned off. litellm is not imported before the first call; the
identity of the model does not need it. The key is not among the settings, and is never shown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from difflib import get_close_matches
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator

from tot_lab.core.calls import Call, CallObserver, Need, estimated_tokens
from tot_lab.models.chat.about import count_in
from tot_lab.models.chat.endpoint import ChatEndpoint, bearer, page_below
from tot_lab.models.chat.replies import Answers, Billed, Choice, Price, usd, wanted_back
from tot_lab.models.chat.requests import last_paragraph_of, messages_of, tools_of
from tot_lab.models.lite_llm.answers import streamed, usage_in, whole
from tot_lab.models.lite_llm.asking import settings_of
from tot_lab.models.lite_llm.failures import failure_of
from tot_lab.models.lite_llm.loading import (
    end_with_this_loop,
    is_loaded,
    litellm_ready,
    load_litellm,
    silence_warnings,
)
from tot_lab.models.model_table import UNKNOWN_OUTPUT, in_table, price_in, window_in_table
from tot_lab.models.openai_compatible import OpenAIServer
from tot_lab.models.providers import (
    HOMES,
    checked_url,
    is_safe_url,
    key_in_environment,
    one_url,
    provider_of,
    url_in_environment,
    whole_name,
)
from tot_lab.models.stack import NO_SERVER, Failure, ServerFacts

# What litellm knows about a model. Token counts for tokenizers other than OpenAI's are estimates, which are
# more often too high than too low.


OLLAMA_WINDOW = 4096
"""Ollama's default context window in tokens. Ollama silently truncates longer prompts."""


@lru_cache
def resolved(litellm: ModuleType, name: str) -> tuple[str, str]:
    """Return the name without the provider, and the provider. Raises litellm's error for an
    unknown provider.
    """
    model, provider, _, _ = litellm.get_llm_provider(model=name)
    return model, provider


def known_of(litellm: ModuleType, name: str) -> Mapping[str, Any]:
    """Return litellm's table entry of the model, or {} if litellm does not know it."""
    try:
        model, provider = resolved(litellm, name)
    except litellm.BadRequestError:
        return {}
    provider = provider.removesuffix("_chat")
    for key in (name, f"{provider}/{model}", model):
        entry: Mapping[str, Any] | None = litellm.model_cost.get(key)
        if entry is not None and str(entry.get("litellm_provider", "")).startswith(provider):
            return entry
    return {}


def is_plain(usage: Any) -> bool:
    """Whether the cost of a request is its prompt and reply tokens times their prices.

    `False` for requests with cached, thinking or audio tokens, searches, or long prompts, which have other
    prices. litellm then computes the cost, which takes longer.
    """
    parts = (usage.prompt_tokens_details, usage.completion_tokens_details)
    special = [name for part in parts if part is not None for name, value in part if value]
    beside = ("cache_creation_input_tokens", "server_tool_use")
    special += [name for name in beside if getattr(usage, name, None)]
    return usage.prompt_tokens < 100_000 and set(special) <= {"text_tokens"}


def prompt_tokens(litellm: ModuleType, name: str, call: Call) -> int:
    """Return the number of tokens of the prompt. For tokenizers other than OpenAI's, it is an estimate to
    which a quarter is added.
    """
    model, provider = resolved(litellm, name) if known_of(litellm, name) else ("", "")
    exact = provider == "openai"
    counted = litellm.token_counter(
        model=model if exact else "gpt-4o", messages=messages_of(call), tools=tools_of(call) or None
    )
    return int(counted) if exact else int(counted) * 5 // 4 + 8


# Problems that can be found before the first call: a missing key, an unknown provider, or a custom server
# that does not answer. A provider's own service is not contacted.


async def problem_of_service(name: str, provider: str, *, has_key: bool) -> str | None:
    """Return a message if the key is missing or the provider is unknown, else `None`."""
    if provider not in HOMES:
        return await _no_provider(name)
    if has_key or key_in_environment(provider):
        return None
    hint = ". The file .env is not read" if Path(".env").exists() else ""
    return f"No API key for {name}. Set the environment variable {provider.upper()}_API_KEY{hint}"


def problem_of_server(name: str, provider: str, base_url: str | None) -> str:
    """Return the message about a custom server that refuses connections."""
    if provider != "ollama_chat":
        return NO_SERVER.format(base_url, name, "api_base")
    where, wanted = base_url or HOMES[provider], name.partition("/")[2]
    return f"No Ollama server answers at {where} for {wanted}. Start it with `ollama serve`"


async def _no_provider(name: str) -> str | None:
    """Return a message if litellm does not know the provider of this name, else `None`."""
    litellm: Any = await litellm_ready()
    provider = name.partition("/")[0]
    # The user has registered this custom provider with litellm.
    if any(provider == one["provider"] for one in litellm.custom_provider_map):
        return None
    try:
        litellm.get_llm_provider(model=name)
    except litellm.BadRequestError:
        known = ["ollama", *HOMES]
        near = get_close_matches(provider, known, n=1) or get_close_matches(name, litellm.model_cost, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "prefix it to the name, as in ollama/qwen3:8b"
        return f"Unknown provider of {name} ({hint})"
    return None


def not_pulled(name: str, page: Any) -> str | None:
    """Return a message if `page`, Ollama's list of models, lacks the model `name`, else `None`."""
    name = name.partition("/")[2]
    names = _names_in(page)
    whole = name if ":" in name else f"{name}:latest"
    if names is None or whole in names:
        return None
    others = ", ".join(names) or "no models"
    return f"Ollama does not have the model {name}: got {others}. Get it with `ollama pull {name}`"


def window_shown_in(page: Any) -> int | None:
    """Return the context window in Ollama's page about a model, or `None`."""
    info = page.get("model_info") if isinstance(page, dict) else None
    names = [name for name in info if name.endswith(".context_length")] if isinstance(info, dict) else []
    return count_in(info, names[0]) if names else None


def _names_in(page: Any) -> list[str] | None:
    """Return the names in Ollama's list of models, or `None` if the page is no such list."""
    listed = page.get("models") if isinstance(page, dict) else None
    if not isinstance(listed, list):
        return None
    return [str(model["name"]) for model in listed if isinstance(model, dict) and model.get("name")]


# Providers to which `n` is sent. Gemini is left out, since its thinking models may refuse `n`.
_TAKE_N = {"openai", "azure", "hosted_vllm", "together_ai", "fireworks_ai", "xai"}
_LEAST_CACHED = 1024
"""Tokens of the shortest prompt prefix that Anthropic caches, if litellm's table does not say. Anthropic
ignores `cache_control` in shorter ones.
"""

_BY_KEY_ALONE = {"openai", "anthropic", "gemini", "ollama", "ollama_chat", "hosted_vllm"}
"""Providers for which litellm uses no other credentials if it is given a key."""

_FOREVER = 86_400.0  # seconds; the driver enforces the timeout
_PLAIN = {"num_retries": 0, "max_retries": 0, "caching": False, "timeout": _FOREVER}


class LiteLLM(ChatEndpoint):
    """A model of any provider that litellm supports, by its litellm name."""

    kind: ClassVar[str] = "litellm"
    model: Annotated[str, Field(min_length=1)]
    """`openai/gpt-4.1-mini`, `anthropic/…`, `gemini/…` or `google/…`, `ollama/qwen3:8b`, `hosted_vllm/…`, ….
    The name of a provider alone means its default model, and a name without a provider is passed to litellm.
    Ollama is always called through its chat API.
    """

    api_base: str | None = None
    """URL of the server, without a user name or password. `None` means the URL in the provider's environment
    variable, such as `OLLAMA_BASE_URL`, or else the provider's own.
    """

    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"model": value} if isinstance(value, str) else value

    @field_validator("api_base")
    @classmethod
    def _is_url(cls, base: str | None) -> str | None:
        return None if base is None else checked_url(base)

    # Identity.

    @classmethod
    def named(cls, name: str) -> ChatEndpoint:
        """Return the model with this name and otherwise default settings; see `configured`."""
        return cls(model=name).configured()

    def configured(self, **given: Any) -> ChatEndpoint:
        """Return a copy of the model with the settings `given` changed. `base_url` is the URL of the server.

        A model of the provider `openai` on another server than OpenAI's becomes an `OpenAIServer`, which is
        called without litellm. Reasoning models do not, since they need settings renamed or dropped, which
        litellm does.

        Raises:
            ValueError: If a setting is unknown or invalid.
        """
        settings = {**{name: getattr(self, name) for name in self.model_fields_set}, **given}
        if (base := settings.pop("base_url", None)) is not None:
            settings["api_base"] = checked_url(base, "base_url")
        base = settings.get("api_base")
        url = url_in_environment(self.provider) if base is None else checked_url(base)
        if self.provider != "openai" or url is None or _is_translated(self.name):
            return type(self).model_validate(settings)
        settings.pop("api_base", None)
        price = settings.pop("price", None) or price_in(in_table(self.name, self.provider))
        return OpenAIServer.model_validate({**settings, "base_url": url, "price": price})

    @property
    def name(self) -> str:
        """The full name, with the provider if one was given."""
        return whole_name(self.model)

    @property
    def provider(self) -> str:
        """The provider in the name, or "" if only litellm can determine it."""
        return provider_of(self.name)

    @property
    def base_url(self) -> str | None:
        """The canonical URL of the server: `api_base`, or the URL in the environment that litellm
        would read.
        """
        base = self.api_base or url_in_environment(self.provider)
        return None if base is None else one_url(base)

    @property
    def is_hosted(self) -> bool:
        """Whether this is a provider's own service rather than a server with a URL of its own."""
        return self.base_url is None and self.provider != "ollama_chat"

    @property
    def address(self) -> str:
        """The URL of the server, or the name of the provider if it has no URL."""
        return self.base_url or self.provider or self.name

    def identity(self) -> dict[str, Any]:
        """Return the model, the URL of the server and, for Ollama, the context window that is set."""
        identity: dict[str, Any] = {"model": self.name, "base_url": self.base_url}
        if self.context_window is not None and self.provider == "ollama_chat":
            identity["context_window"] = self.context_window
        return identity

    @property
    def _sent_key(self) -> str:
        if self.api_key is not None:
            return self._key
        return "" if self._is_foreign else key_in_environment(self.provider)

    @property
    def _is_foreign(self) -> bool:
        """Whether a loaded run names an unsafe server, which must receive no key of the environment."""
        server = self.name if "://" in self.name else self.api_base  # litellm reads a server from some names
        return self._is_loaded and server is not None and not is_safe_url(server, self.provider)

    # Limits and prices.

    def takes_n(self, call: Call) -> bool:
        """Whether one request can return several samples: if the provider takes `n` (`_TAKE_N`), and without
        a seed, which the samples would share.
        """
        return call.seed is None and self.provider in _TAKE_N and self._takes_n

    async def problem(self) -> str | None:
        """Return a message about a missing key, an unknown provider, a custom server that does not answer, or
        a model that Ollama lacks, else `None`. A provider's own service is not contacted.
        """
        if self.is_hosted:
            return await problem_of_service(self.name, self.provider, has_key=self.api_key is not None)
        is_ollama = self.provider == "ollama_chat"
        try:
            status, page = await self.look("api/tags" if is_ollama else "models")
        except Failure as failure:
            return problem_of_server(self.name, self.provider, self.base_url) if failure.refused else None
        return not_pulled(self.name, page) if is_ollama and status == 200 else None

    async def server_facts(self) -> ServerFacts:
        name = self.name.partition("/")[2] or self.name
        match self.provider:
            case "ollama_chat":
                _, tags = await self.look("/api/tags")
                _, shown = await self.look("/api/show", {"model": name})
                return ServerFacts(tuple(_names_in(tags) or ()), window_shown_in(shown))
            case "gemini":
                _, page = await self.look(f"models/{name}")
                return ServerFacts(context_window=count_in(page, "inputTokenLimit"))
            case "anthropic":
                return await self._listed_facts("/v1/models", name)
        return await self._listed_facts("models", name)

    @property
    def is_ready(self) -> bool:
        """Whether litellm was imported."""
        return is_loaded()

    async def ready(self) -> None:
        """Import litellm in a thread. The import takes seconds."""
        await litellm_ready()

    async def load_prices(self) -> None:
        """Import litellm, whose table has the prices."""
        await self.ready()

    def need(self, calls: Sequence[Call]) -> Need:
        """Return the tokens of the prompt and of the longest possible replies. The cost counts the prompt
        once per sample, since a provider may ignore `n`. Before `ready`, this imports litellm, which takes
        seconds.
        """
        litellm = load_litellm()
        known = known_of(litellm, self.name)
        longest = calls[0].max_tokens or known.get("max_output_tokens") or self.context_window
        prompt = prompt_tokens(litellm, self.name, calls[0])
        output = len(calls) * int(longest or UNKNOWN_OUTPUT)
        price = self._price(litellm)
        if price is not None and self.price is None and self.cached_prefix(calls[0]) is not None:
            stored = known_of(litellm, self.name).get("cache_creation_input_token_cost") or 0.0
            price = max(price[0], 1e6 * stored), price[1]
        most = None if price is None else usd(price, prompt * len(calls), output)
        return Need(prompt + output, most, prompt, bounded=longest is not None, price=price and price[:2])

    def cached_prefix(self, call: Call) -> str | None:
        """Return the prefix of the prompt that Anthropic is asked to cache: all but the last paragraph. Calls
        of a search often share this prefix. `None` if it is too short, or for other providers, which cache
        without request.
        """
        if self.provider != "anthropic" or (cut := last_paragraph_of(call)) is None:
            return None
        parts = [*map(str, call.tools), *(message.content for message in call.messages[:-1])]
        text = "\n\n".join([*parts, call.messages[-1].content[:cut]])
        least = known_of(load_litellm(), self.name).get("prompt_cache_min_tokens") or _LEAST_CACHED
        return text if estimated_tokens(text) >= least else None

    def known_window(self) -> int | None:
        """Return the most tokens of a prompt by litellm's table, or `None` if the table does not say."""
        known = known_of(load_litellm(), self.name).get("max_input_tokens")
        return None if known is None else int(known)

    def window(self) -> int | None:
        """Return the context window: as set, Ollama's default, or from litellm's table, which is read without
        importing litellm. `None` if it is unknown.
        """
        if self.context_window is not None:
            return self.context_window
        if self.provider == "ollama_chat":
            return OLLAMA_WINDOW
        return window_in_table(self.name, self.provider)

    @property
    def uses_reported_window(self) -> bool:
        """Whether the context window that the server reports applies: not for Ollama, which reports that of
        the model, but truncates prompts to the size that it is configured with.
        """
        return self.provider != "ollama_chat"

    def _price(self, litellm: ModuleType) -> Price | None:
        return self.price or price_in(known_of(litellm, self.name))

    def _check_window(self, litellm: ModuleType, call: Call) -> None:
        """Raise `Failure` if the prompt does not fit the context window. A token has at least one byte, so
        only the tokens of a long prompt must be counted.
        """
        window, reply = self.context_window, call.max_tokens or 0
        if window is None and self.provider == "ollama_chat":
            window = OLLAMA_WINDOW
        elif window is None:  # the provider counts the reply separately, or reports an error itself
            window, reply = self.known_window(), 0
        size = len(json.dumps(messages_of(call))) + (len(json.dumps(call.tools)) if call.tools else 0)
        if not window or size + reply <= window:
            return
        counted = prompt_tokens(litellm, self.name, call)
        if counted + reply > window:
            hint = "" if self.context_window else ". Set context_window=… if the model has a larger one"
            room = f" and {reply} of the reply" if reply else ""
            raise Failure(
                f"about {counted} tokens of prompt{room} do not fit the context window of {window}{hint}"
            )

    # The request.

    async def _answers(self, calls: Sequence[Call], observer: CallObserver) -> Answers:
        litellm = await litellm_ready()
        await end_with_this_loop(litellm)
        try:
            return await self._requested(litellm, calls, observer)
        except Failure:
            raise
        except Exception as error:
            raise failure_of(litellm, error, HOMES.get(self.address, self.address)) from None

    async def _requested(self, litellm: ModuleType, calls: Sequence[Call], observer: CallObserver) -> Answers:
        call = calls[0]
        self._check_window(litellm, call)
        name, provider = resolved(litellm, self.name)
        settings = settings_of(litellm, name, provider, calls, observer)
        sent = {
            "model": self.name,
            "messages": self._messages(call),
            **_PLAIN,
            **settings,
            **self._way(provider),
        }
        if provider.startswith("ollama"):
            # Otherwise litellm makes a blocking request to the server about the model.
            litellm.model_cost.setdefault(f"ollama/{name}", {"litellm_provider": "ollama", "mode": "chat"})
        silence_warnings()
        if not observer.watched or len(calls) > 1 or call.logprobs:
            return whole(await litellm.acompletion(**sent))
        stream = await litellm.acompletion(**sent, stream=True, stream_options={"include_usage": True})
        async with aclosing(stream):
            return await streamed(litellm, stream, observer, self._long_keys)

    def _messages(self, call: Call) -> list[dict[str, Any]]:
        """Return the messages, with `cache_control` at the end of `cached_prefix`."""
        turns = messages_of(call)
        if self.cached_prefix(call) is not None:
            text, cut = call.messages[-1].content, last_paragraph_of(call)
            shared = {"type": "text", "text": text[:cut], "cache_control": {"type": "ephemeral"}}
            turns[-1]["content"] = [shared, {"type": "text", "text": text[cut:]}]
        return turns

    def _way(self, provider: str) -> dict[str, Any]:
        """Return litellm's arguments for the server and the key."""
        way: dict[str, Any] = {}
        if provider in ("anthropic", "gemini"):
            # Otherwise litellm's streams use a client that all event loops share and that no loop closes.
            clients = import_module("litellm.llms.custom_httpx.http_handler")
            way["client"] = clients.get_async_httpx_client(
                llm_provider=provider, params={"timeout": _FOREVER}
            )
        if self.context_window is not None and provider == "ollama_chat":
            way["num_ctx"] = self.context_window
        base = self.base_url
        if base is not None:
            way["api_base"] = base
        if self.api_key is not None or self._is_foreign:
            if not self._key and provider not in _BY_KEY_ALONE:
                raise Failure(
                    f"{self.name} is not called without a key, since litellm might send other credentials. "
                    "Pass api_key= to the model"
                )
            way["api_key"] = self._key or "none"  # the client requires a key even if the server does not
        elif base is not None and not key_in_environment(provider):
            way["api_key"] = "none"
        return way

    def _model_in(self, answers: Answers) -> str:
        name, provider = resolved(load_litellm(), self.name)
        # litellm uses two names for a model of Ollama, so the reported one is not used.
        return answers.model if answers.model and provider != "ollama_chat" else name

    def _state(self, choice: Choice) -> str:
        return wanted_back(choice, resolved(load_litellm(), self.name)[1], self.name)

    def _usage_in(self, usage: dict[str, Any]) -> Any:
        return usage_in(load_litellm(), usage)

    def _billed(self, usage: Any, cached: int | None) -> Billed:
        litellm = load_litellm()
        price = self._price(litellm)
        prompt, output = int(usage.prompt_tokens or 0), int(usage.completion_tokens or 0)
        cost = None if price is None else usd(price, prompt, output, cached)
        if price is not None and self.price is None and not is_plain(usage):
            # Some tokens have other prices.
            name, provider = resolved(litellm, self.name)
            cost = sum(litellm.cost_per_token(model=name, custom_llm_provider=provider, usage_object=usage))
        return Billed(prompt, output, price, cost)

    def _page(self, path: str) -> tuple[str, dict[str, str]] | None:
        base = self.base_url or HOMES.get(self.provider)
        if base is None:
            return None
        headers = {"anthropic-version": "2023-06-01"} if self.provider == "anthropic" else {}
        if key := self._sent_key:
            name = {"anthropic": "x-api-key", "gemini": "x-goog-api-key"}.get(self.provider)
            headers |= {name: key} if name else bearer(key)
        return page_below(base, path), headers


def _is_translated(name: str) -> bool:
    """Whether litellm renames or drops settings for this model of OpenAI, as for reasoning models."""
    return "gpt-5" in name or bool(in_table(name, "openai").get("supports_reasoning"))
