"""The model part for providers and servers, and one request to them.

litellm's retries, cache, log and downloads are turned off, and it is not imported before the first call; the
identity of the model does not need it. The key is not a setting and is never shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from importlib import import_module
from types import ModuleType
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, SecretStr, field_validator

from tot_lab.core.calls import Call, CallObserver, Need, Reply
from tot_lab.core.reading import read_json
from tot_lab.core.scrubbing import clean, long_keys, scrubbed, without_keys
from tot_lab.models.lite_llm.answers import Answers, scrubbed_reply, streamed, wanted_back, whole
from tot_lab.models.lite_llm.asking import messages_of, settings_of
from tot_lab.models.lite_llm.failures import failure_of
from tot_lab.models.lite_llm.loading import (
    end_with_this_loop,
    is_loaded,
    litellm_ready,
    load_litellm,
    silence_warnings,
)
from tot_lab.models.lite_llm.naming import (
    HOMES,
    checked_url,
    key_in_environment,
    one_url,
    provider_of,
    url_in_environment,
    whole_name,
)
from tot_lab.models.lite_llm.reachable import problem_of
from tot_lab.models.lite_llm.table import (
    OLLAMA_WINDOW,
    UNKNOWN_OUTPUT,
    Price,
    is_plain,
    known_of,
    price_in,
    prompt_tokens,
    resolved,
    shared,
    usd,
    window_in_table,
)
from tot_lab.models.stack import Endpoint, Failure

# Gemini is excluded, since its thinking models may refuse several candidates.
_TAKE_N = {"openai", "azure", "hosted_vllm", "together_ai", "fireworks_ai", "xai"}
_ONE_BY_ONE: set[tuple[str | None, str]] = set()  # servers that ignored n
_FOREVER = 86_400.0  # seconds; the driver enforces the timeout
_PLAIN = {"num_retries": 0, "max_retries": 0, "caching": False, "timeout": _FOREVER}

Usd = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class LiteLLM(Endpoint):
    """A model by its litellm name."""

    model_config = ConfigDict(hide_input_in_errors=True)  # the input may be the key
    kind: ClassVar[str] = "litellm"
    model: Annotated[str, Field(min_length=1)]
    """`openai/gpt-4.1-mini`, `anthropic/…`, `gemini/…` or `google/…`, `ollama/qwen3:8b`, `hosted_vllm/…`, ….
    The name of a provider alone means its default model, and a name without a provider is passed to litellm.
    Ollama is always called through its chat API.
    """

    api_base: str | None = None
    """URL of the server, without a name or password. `None` means the provider's own."""

    api_key: Annotated[SecretStr | str | None, Field(exclude=True, repr=False)] = None
    """`None` means the provider's environment variable, such as `OPENAI_API_KEY`. The key is neither recorded
    nor shown.
    """

    context_window: Annotated[int, Field(ge=1)] | None = None
    """Tokens of a prompt and its reply together. Ollama is configured to this size."""

    price: Annotated[tuple[Usd, Usd], Field(strict=False)] | None = None
    """USD per million tokens of (prompt, reply), for a model that is not in litellm's table."""

    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"model": value} if isinstance(value, str) else value

    @field_validator("api_base")
    @classmethod
    def _is_url(cls, base: str | None) -> str | None:
        return None if base is None else checked_url(base)

    @field_validator("api_key")
    @classmethod
    def _hidden(cls, key: SecretStr | str | None) -> SecretStr | None:
        return SecretStr(key) if isinstance(key, str) else key

    def settings(self) -> dict[str, Any]:
        """Return the settings without the key, as JSON-compatible data."""
        return {name: value for name, value in super().settings().items() if name != "api_key"}

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        return ((name, value) for name, value in super().__repr_args__() if name != "api_key")

    # Identity.

    @classmethod
    def named(cls, name: str) -> LiteLLM:
        """Return the model of that name, of any provider that litellm supports."""
        return cls(model=name)

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
        """The canonical URL of the server: as given, or as litellm would read it from the environment."""
        base = self.api_base or url_in_environment(self.provider)
        return None if base is None else one_url(base)

    @property
    def is_providers_own(self) -> bool:
        """Whether this is the service of a provider rather than a custom server."""
        return self.base_url is None and self.provider != "ollama_chat"

    @property
    def address(self) -> str:
        """The URL of the server, or the provider."""
        return self.base_url or self.provider or self.name

    def identity(self) -> dict[str, Any]:
        """Return the model, the server, and the context window if the reply depends on it."""
        identity: dict[str, Any] = {"model": self.name, "base_url": self.base_url}
        if self.context_window is not None and self.provider == "ollama_chat":
            identity["context_window"] = self.context_window
        return identity

    @property
    def _key(self) -> str:
        return self.api_key.get_secret_value() if isinstance(self.api_key, SecretStr) else ""

    @property
    def _long_keys(self) -> list[str]:
        """Keys that must not appear in replies."""
        return long_keys(self._key, key_in_environment(self.provider))

    # Limits and prices.

    def takes_n(self, call: Call) -> bool:
        """Whether one request can return several samples: on an OpenAI-compatible server, and without a seed,
        which the samples would share.
        """
        refused = (self.base_url, self.name) in _ONE_BY_ONE
        return call.seed is None and self.provider in _TAKE_N and not refused

    async def problem(self) -> str | None:
        """Find a missing key, an unknown provider, or a custom server that does not answer. The service of a
        provider is not contacted.
        """
        return await problem_of(self)

    @property
    def is_ready(self) -> bool:
        """Whether litellm was imported."""
        return is_loaded()

    async def ready(self) -> None:
        """Import litellm in a thread, which takes seconds."""
        await litellm_ready()

    def need(self, calls: Sequence[Call]) -> Need:
        """Return the counted tokens of the prompt and the longest possible replies. It may take seconds
        without `ready`.
        """
        litellm = load_litellm()
        known = known_of(litellm, self.name)
        longest = calls[0].max_tokens or known.get("max_output_tokens") or self.context_window
        prompt = prompt_tokens(litellm, self.name, calls[0])
        output = len(calls) * int(longest or UNKNOWN_OUTPUT)
        price = self._price(litellm)
        most = None if price is None else usd(price, prompt, output)
        return Need(prompt + output, most, prompt, bounded=longest is not None)

    def known_window(self) -> int | None:
        """Return the tokens of a prompt in litellm's table, or `None`."""
        known = known_of(load_litellm(), self.name).get("max_input_tokens")
        return None if known is None else int(known)

    def window(self) -> int | None:
        """Return the context window as set, as Ollama's default, or from litellm's table, without importing
        litellm.
        """
        if self.context_window is not None:
            return self.context_window
        if self.provider == "ollama_chat":
            return OLLAMA_WINDOW
        return window_in_table(self.name, self.provider)

    def _price(self, litellm: ModuleType) -> Price | None:
        return self.price or price_in(known_of(litellm, self.name))

    def _check_window(self, litellm: ModuleType, call: Call) -> None:
        """Raise `Failure` if the prompt does not fit. A token has at least one byte, so only long prompts
        need to be counted.
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

    async def answer(self, calls: Sequence[Call], observer: CallObserver) -> Sequence[Reply]:
        """Make one request. If a server returns fewer replies than requested, the rest is requested again.

        With several calls, a failure of one of them is a reply with an error.

        Raises:
            Failure: If the request failed.
        """
        litellm = await litellm_ready()
        await end_with_this_loop(litellm)
        try:
            answers = await self._answers(litellm, calls, observer)
        except Exception as error:
            failure = error if isinstance(error, Failure) else failure_of(litellm, error, self.address)
            failure.message = scrubbed(failure.message, self._key)
            failure.args = (failure.message,)
            raise failure from None  # the exception chain holds requests with their headers
        if not answers.choices:
            raise Failure("the provider's response holds no choices", unreadable=True)
        replies = self._replies(litellm, answers, calls)
        if len(replies) < len(calls):
            _ONE_BY_ONE.add((self.base_url, self.name))
            observer.note("call.dropped", settings=["n"])
            rest = calls[len(replies) :]
            try:
                replies += await self.answer(rest, observer)
            except Failure as failure:  # the received replies were paid for and must not be requested again
                replies += [Reply(error=f"{self.name}: {failure.message}") for _ in rest]
        return replies

    async def _answers(self, litellm: ModuleType, calls: Sequence[Call], observer: CallObserver) -> Answers:
        call = calls[0]
        self._check_window(litellm, call)
        name, provider = resolved(litellm, self.name)
        settings = settings_of(litellm, name, provider, calls, observer)
        sent = {
            "model": self.name,
            "messages": messages_of(call),
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
            return await streamed(stream, observer, self._long_keys)

    def _way(self, provider: str) -> dict[str, Any]:
        """Return litellm's arguments for the server and the key."""
        way: dict[str, Any] = {}
        if provider in ("anthropic", "gemini"):
            # Otherwise its streams use a client that all event loops share and that is not closed with one.
            clients = import_module("litellm.llms.custom_httpx.http_handler")
            way["client"] = clients.get_async_httpx_client(
                llm_provider=provider, params={"timeout": _FOREVER}
            )
        if self.context_window is not None and provider == "ollama_chat":
            way["num_ctx"] = self.context_window
        base = self.base_url
        if base is not None:
            way["api_base"] = base
        if self._key:
            way["api_key"] = self._key
        elif base is not None and not key_in_environment(provider):
            way["api_key"] = "none"  # the client requires a key even if the server does not
        return way

    def _replies(self, litellm: ModuleType, answers: Answers, calls: Sequence[Call]) -> list[Reply]:
        choices = answers.choices[: len(calls)]
        name, provider = resolved(litellm, self.name)
        if answers.model and provider != "ollama_chat":  # for which litellm uses two names
            name = clean(answers.model)
        replies = []
        keys = self._long_keys
        reported = getattr(answers.usage, "reported", "")
        usage = None if reported else answers.usage
        shares = self._shares(litellm, usage, [choice.size for choice in choices])
        for choice, (prompt, output, cost) in zip(choices, shares, strict=True):
            problem = choice.problem and scrubbed(choice.problem, self._key)
            if problem and len(calls) == 1:
                raise Failure(problem)
            reply = Reply(
                "" if problem else choice.text or "",
                error=problem and f"{self.name}: {problem}",
                thinking=choice.thinking,
                model=name,
                input_tokens=prompt,
                output_tokens=output,
                cost=cost,
                finish_reason=choice.finish,
                logprobs=choice.logprobs,
                tool_calls=choice.tool_calls,
                provider_state=wanted_back(choice, provider, self.name),
                reported_usage=reported,
            )
            replies.append(scrubbed_reply(reply, keys))
        return replies

    def _shares(
        self, litellm: ModuleType, usage: Any, sizes: Sequence[int]
    ) -> list[tuple[int | None, int | None, float | None]]:
        """Return the prompt tokens, reply tokens and USD of each reply, given their sizes.

        They add up to those of the request; the first reply gets the remainder.
        """
        if usage is None:
            return [(None, None, None)] * len(sizes)
        prompts = shared(int(usage.prompt_tokens or 0), [1] * len(sizes))
        outputs = shared(int(usage.completion_tokens or 0), sizes)
        price = self._price(litellm)
        if price is None:
            return [(prompt, output, None) for prompt, output in zip(prompts, outputs, strict=True)]
        whole_cost = usd(price, sum(prompts), sum(outputs))
        if self.price is None and not is_plain(usage):  # there are discounts or surcharges
            name, provider = resolved(litellm, self.name)
            whole_cost = sum(
                litellm.cost_per_token(model=name, custom_llm_provider=provider, usage_object=usage)
            )
        whole_cost = round(whole_cost, 12)  # the last digits of a float sum depend on its order
        plain = [usd(price, prompt, output) for prompt, output in zip(prompts, outputs, strict=True)]
        scale = whole_cost / sum(plain) if sum(plain) else 0.0
        rest = [cost * scale for cost in plain[1:]]
        return list(zip(prompts, outputs, [whole_cost - sum(rest), *rest], strict=True))

    async def look(self, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
        """Request another page of the server.

        Args:
            path: Path below the server's URL, or below its host if it starts with `/`.
            body: JSON to post. `None` makes a GET request.

        Returns:
            The HTTP status, and the JSON or `None`.

        Raises:
            Failure: If the server cannot be reached (`connection_failed`) or is slow.
        """
        await litellm_ready()
        httpx = import_module("httpx")
        base = self.base_url or HOMES.get(self.provider)
        if base is None:
            return 404, None
        url = f"{base}/{path}" if path[0] != "/" else base.removesuffix("/v1") + path
        key = self._key or key_in_environment(self.provider)
        headers = {"anthropic-version": "2023-06-01"} if self.provider == "anthropic" else {}
        if key:
            name = {"anthropic": "x-api-key", "gemini": "x-goog-api-key"}.get(self.provider)
            headers |= {name: key} if name else {"authorization": f"Bearer {key}"}
        try:
            # Does not follow redirects, which would receive the key.
            async with httpx.AsyncClient(timeout=20.0) as client:
                response = await client.request(
                    "GET" if body is None else "POST", url, json=body, headers=headers
                )
                return response.status_code, read_json(without_keys(response.text, self._long_keys))
        except httpx.HTTPError as error:
            words = f"no answer from {self.address}: {str(error) or type(error).__name__}"
            slow = isinstance(error, httpx.ReadTimeout)
            raise Failure(scrubbed(words, self._key), retry=True, connection_failed=not slow) from None
