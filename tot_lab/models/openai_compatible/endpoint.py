"""The model part for OpenAI-compatible servers, and one request to them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any, ClassVar

import msgspec
from pydantic import Field, field_validator

from tot_lab.core.calls import Call, CallObserver, Message, Need
from tot_lab.models.chat.endpoint import ChatEndpoint, bearer, page_below
from tot_lab.models.chat.failures import refusal, shortened
from tot_lab.models.chat.replies import Answers, Choice, Share, shares_of, usd, wanted_back
from tot_lab.models.chat.requests import messages_of, setting_arguments
from tot_lab.models.connections import body_of, error_text_of, events_of, opened, read_to_end, was_refused
from tot_lab.models.lite_llm.naming import checked_url, is_safe_url, key_in_environment, one_url
from tot_lab.models.lite_llm.table import UNKNOWN_OUTPUT
from tot_lab.models.openai_compatible.answers import streamed, whole
from tot_lab.models.stack import Failure

_OURS = {"model", "messages", "prompt", "n", "stream", "stream_options"}
_LETTERS = bytes(range(ord("a"), ord("z") + 1)) + bytes(range(ord("A"), ord("Z") + 1))
_encode = msgspec.json.Encoder().encode


class OpenAICompatible(ChatEndpoint):
    """A model of an OpenAI-compatible server (vLLM, SGLang, llama.cpp and others), without litellm.

    A request costs a fraction of the CPU time that litellm needs. All settings of a call are sent as they
    are, and `options` are further fields of the request. If the last message is one of the assistant, the
    server is asked to continue it. Proxies of the environment are not used.

    References:
        OpenAI API reference, Chat Completions and Completions; vLLM, OpenAI-Compatible Server.
    """

    kind: ClassVar[str] = "openai_compatible"
    model: Annotated[str, Field(min_length=1)]
    """The name under which the server offers the model."""

    base_url: str
    """URL of the server, such as http://localhost:8000/v1, without a name or password."""

    revision: str | None = None
    """Which weights the name stands for, such as a commit or a quantisation. Replies are found in the cache
    by model and revision, on whichever host the server runs.
    """

    chat: bool = True
    """`False` sends the texts of the messages as one prompt to `/completions`, for a model without a chat
    template.
    """

    _provider: ClassVar[str] = ""
    """The provider whose key in the environment is sent, such as VLLM_API_KEY. "" means none."""

    @field_validator("base_url")
    @classmethod
    def _is_url(cls, url: str) -> str:
        return checked_url(url, "base_url")

    @classmethod
    def named(cls, rest: str) -> OpenAICompatible:
        """Return the model that `PREFIX/REST` names, of a server at the default address."""
        return cls.model_validate({"model": rest})

    @property
    def name(self) -> str:
        return self.model

    @property
    def address(self) -> str:
        """The canonical URL of the server."""
        return one_url(self.base_url)

    def identity(self) -> dict[str, Any]:
        """Return the model and its revision. The server is not part of it."""
        return {"kind": self.kind, "model": self.model, "revision": self.revision, "chat": self.chat}

    @property
    def _sent_key(self) -> str:
        if self._key or not self._provider:
            return self._key
        is_foreign = self._is_loaded and not is_safe_url(self.base_url, self._provider)
        return "" if is_foreign else key_in_environment(self._provider)

    def takes_n(self, call: Call) -> bool:
        """Whether one request can return several samples: without a seed, which the samples would share."""
        return call.seed is None and self._takes_n

    async def problem(self) -> str | None:
        """Find a server that does not answer, or that lists its models without this one."""
        try:
            status, page = await self.look("models")
        except Failure as failure:
            return f"No server answers at {self.address} for {self.name}" if was_refused(failure) else None
        if status == 404 and await self._is_below_v1():
            return f"{self.address} is not the API of {self.name}. Set base_url to {self.address}/v1"
        entries = page.get("data") if status == 200 and isinstance(page, dict) else None
        entries = entries if isinstance(entries, list) else []
        ids = [entry.get("id") for entry in entries if isinstance(entry, dict)]
        listed = [id for id in ids if isinstance(id, str) and id.isprintable()]
        if not listed or self.model in listed or self._answers_to_any_name:
            return None
        more = f" and {len(listed) - 5} more" if len(listed) > 5 else ""
        others = shortened(", ".join(listed[:5]))
        return f"The server at {self.address} has no model {self.model}: got {others}{more}"

    async def _is_below_v1(self) -> bool:
        """Whether the server lists its models below /v1 of its address."""
        with suppress(Failure):
            return (await self.look("v1/models"))[0] == 200
        return False

    _answers_to_any_name: ClassVar[bool] = False

    def need(self, calls: Sequence[Call]) -> Need:
        """Return the most tokens that the prompt can have, and the longest possible replies."""
        call = calls[0]
        texts = [*(message.content for message in call.messages), *(str(tool) for tool in call.tools)]
        prompt = sum(map(_most_tokens, texts)) + 16 * (1 + len(texts))
        longest = call.max_tokens or self.context_window
        output = len(calls) * (longest or UNKNOWN_OUTPUT)
        most = None if self.price is None else usd(self.price, prompt, output)
        return Need(prompt + output, most, prompt, bounded=longest is not None)

    # The request.

    async def _answers(self, calls: Sequence[Call], observer: CallObserver) -> Answers:
        call = calls[0]
        body = self._body(call, len(calls))
        watched = observer.watched and len(calls) == 1 and not call.logprobs
        if watched:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        try:
            sent = _encode(body)
        except (msgspec.MsgspecError, UnicodeError, TypeError, ValueError) as error:
            raise Failure(f"the request cannot be sent: {error}") from None
        url = f"{self.address}/{'chat/completions' if self.chat else 'completions'}"
        async with opened(url, sent, bearer(self._sent_key), self.address) as response:
            if response.status != 200:
                raise refusal(response.status, response.headers, await error_text_of(response))
            if watched and "event-stream" in response.headers.get("Content-Type", "").lower():
                events = events_of(response)
                answers = await streamed(events, observer, self._long_keys)
                await read_to_end(events)
                return answers
            return whole(await body_of(response), len(calls))

    def _body(self, call: Call, n: int) -> dict[str, Any]:
        """Return the request. Raises `Failure` if an option has the name of another part of it."""
        if taken := call.options.keys() & _OURS:
            raise Failure(f"options must hold sampling settings: got {min(taken)!r}")
        body: dict[str, Any] = {"model": self.model}
        if self.chat:
            turns = messages_of(call)
            body["messages"] = [
                {name: part for name, part in turn.items() if part is not None} for turn in turns
            ]
        else:
            body["prompt"] = call.prompt
        for fields in setting_arguments(call).values():
            body |= fields
        if not self.chat and call.logprobs:
            body["logprobs"] = body.pop("top_logprobs")
        if n > 1:
            body["n"] = n
        if self.chat and call.messages[-1].role == "assistant":
            body |= self._continuing(call.messages[-1])
        return body

    def _continuing(self, begun: Message) -> dict[str, Any]:
        """Return the fields that let the server continue its unfinished message."""
        return {"continue_final_message": True, "add_generation_prompt": False}

    def _model_in(self, answers: Answers) -> str:
        return answers.model or self.model

    def _state(self, choice: Choice) -> str:
        return wanted_back(choice, "openai", self.model)

    def _shares(self, usage: Any, sizes: Sequence[int]) -> list[Share]:
        if usage is None:
            return [(None, None, None)] * len(sizes)
        cost = None if self.price is None else usd(self.price, usage.prompt, usage.output)
        return shares_of(usage.prompt, usage.output, self.price, cost, sizes)

    def _page(self, path: str) -> tuple[str, dict[str, str]]:
        return page_below(self.address, path), bearer(self._sent_key)


class VLLM(OpenAICompatible):
    """A model served by vLLM, as `vllm/NAME`."""

    kind: ClassVar[str] = "vllm"
    base_url: str = "http://localhost:8000/v1"
    _provider: ClassVar[str] = "vllm"


class SGLang(OpenAICompatible):
    """A model served by SGLang, as `sglang/NAME`."""

    kind: ClassVar[str] = "sglang"
    base_url: str = "http://localhost:30000/v1"
    _provider: ClassVar[str] = "sglang"


class LlamaCpp(OpenAICompatible):
    """A model served by llama.cpp's server, as `llama/NAME`. It answers to any name."""

    kind: ClassVar[str] = "llama"
    base_url: str = "http://localhost:8080/v1"
    _provider: ClassVar[str] = "llama"
    _answers_to_any_name: ClassVar[bool] = True

    def takes_n(self, call: Call) -> bool:
        """Whether one request can return several samples: no, since only the first one's tokens are
        counted.
        """
        return False

    def _continuing(self, begun: Message) -> dict[str, Any]:
        return {}  # it continues an assistant's message without being asked


def _most_tokens(text: str) -> int:
    """Return an upper estimate of the tokens of a text: one for two letters, and one for any other byte."""
    data = text.encode("utf-8", "replace")
    others = len(data.translate(None, _LETTERS))
    return others + (len(data) - others + 1) // 2
