"""The model part for OpenAI-compatible servers, and one request to them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar

from tot_lab.core.calls import Call, CallObserver, Message
from tot_lab.models.chat.about import LLAMA_CPP, Facts, root_in
from tot_lab.models.chat.replies import Answers
from tot_lab.models.chat.requests import messages_of, setting_arguments
from tot_lab.models.chat.served import ServedModel
from tot_lab.models.connections import body_of, events_of, read_to_end
from tot_lab.models.model_table import window_in_table
from tot_lab.models.openai_compatible.answers import Usage, streamed, usage_of, whole
from tot_lab.models.providers import provider_of, whole_name
from tot_lab.models.stack import Failure, ServerFacts

_OURS = {"model", "messages", "prompt", "n", "stream", "stream_options"}


class OpenAICompatible(ServedModel):
    """A model of an OpenAI-compatible server (vLLM, SGLang, llama.cpp and others), without litellm.

    A request needs a fraction of the CPU time of one through litellm. All settings of a call are sent
    unchanged, and its `options` are further fields of the request. If the last message is one of the
    assistant, the server is asked to continue it. Proxies that environment variables name are not used.

    References:
        OpenAI API reference, Chat Completions and Completions; vLLM, OpenAI-Compatible Server.
    """

    kind: ClassVar[str] = "openai_compatible"
    _reports: ClassVar[Sequence[str]] = ("/props", "/version", "/server_info", "/get_server_info")

    chat: bool = True
    """Whether to call `/chat/completions`. `False` joins the texts of the messages to one prompt for
    `/completions`, for a model without a chat template.
    """

    def identity(self) -> dict[str, Any]:
        """Return the model, its revision and `chat`. The URL of the server is not included."""
        return {**super().identity(), "chat": self.chat}

    def takes_n(self, call: Call) -> bool:
        """Whether one request can return several samples: without a seed, which the samples would share, and
        at a temperature above 0, since vLLM refuses n otherwise.
        """
        return call.seed is None and call.temperature != 0 and self._takes_n

    def list_key(self, call: Call) -> Hashable | None:
        """Return a key made of the settings if `call` requests a single token, as the evaluator `logprob`
        does. Calls with equal keys may be sent as one list of prompts. `None` for calls with longer replies:
        in a list, all of these would arrive with the longest one.
        """
        if self.chat or call.max_tokens != 1 or not (self._takes_lists and self._takes_n):
            return None
        return repr(setting_arguments(call))

    _counting: ClassVar[Mapping[str, bool]] = {}
    """Request fields that make the server report the number of tokens of each of several replies."""

    _takes_lists: ClassVar[bool] = False
    """Whether `/completions` accepts a list of prompts, and returns one choice for each."""

    async def about(self) -> Facts:
        facts = await super().about()
        if facts.get("server") == LLAMA_CPP:
            self._ask_one_by_one()
        return facts

    async def server_facts(self) -> ServerFacts:
        return await self._listed_facts("models", self.model)

    # The request.

    async def _answers(self, calls: Sequence[Call], observer: CallObserver) -> Answers:
        call = calls[0]
        is_list = self._is_list(calls)
        body = self._body(call, 1 if is_list else len(calls))
        if is_list:
            body["prompt"] = [call.prompt for call in calls]
        watched = observer.watched and len(calls) == 1 and not call.logprobs
        if watched:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        page = "chat/completions" if self.chat else "completions"
        async with self._posted(page, body) as response:
            if watched and "event-stream" in response.headers.get("Content-Type", "").lower():
                events = events_of(response)
                answers = await streamed(events, observer, self._long_keys)
                await read_to_end(events)
                return answers
            try:
                return whole(await body_of(response), len(calls), is_list=is_list)
            except Failure as failure:
                if is_list and failure.unreadable:
                    self._ask_one_by_one()
                raise

    def _usage_in(self, usage: dict[str, Any]) -> Usage | None:
        return usage_of(usage)

    def _body(self, call: Call, n: int) -> dict[str, Any]:
        """Return the request as JSON. Raises `Failure` if an option has the name of a field that
        is set here.
        """
        if taken := call.options.keys() & _OURS:
            raise Failure(f"options must hold sampling settings: got {min(taken)!r}, which tot_lab sets")
        body: dict[str, Any] = {"model": self.served_name}
        if self.chat:
            body["messages"] = messages_of(call)
            for turn in body["messages"]:
                if turn["content"] is None:
                    del turn["content"]
        else:
            body["prompt"] = call.prompt
        for fields in setting_arguments(call).values():
            body |= fields
        if not self.chat and call.logprobs:
            body["logprobs"] = body.pop("top_logprobs")
        if n > 1:
            body |= {"n": n, **self._counting}
        if self.chat and call.messages[-1].role == "assistant":
            body |= self._continuing(call.messages[-1])
        return body

    def _continuing(self, begun: Message) -> dict[str, Any]:
        """Return the request fields that make the server continue `begun`, the last message."""
        return {"continue_final_message": True, "add_generation_prompt": False}


class VLLM(OpenAICompatible):
    """A model served by vLLM, named `vllm/NAME`."""

    kind: ClassVar[str] = "vllm"
    _counting: ClassVar[Mapping[str, bool]] = {"return_token_ids": True}  # ignored before vLLM 0.10.2
    _takes_lists: ClassVar[bool] = True
    base_url: str = "http://localhost:8000/v1"
    _provider: ClassVar[str] = "vllm"
    _reports: ClassVar[Sequence[str]] = ("/version",)

    async def about(self) -> Facts:
        _, page = await self.look("models")
        return await super().about() | root_in(page, self.model)


class SGLang(OpenAICompatible):
    """A model served by SGLang, named `sglang/NAME`."""

    kind: ClassVar[str] = "sglang"
    _takes_lists: ClassVar[bool] = True
    base_url: str = "http://localhost:30000/v1"
    _provider: ClassVar[str] = "sglang"
    _reports: ClassVar[Sequence[str]] = ("/server_info", "/get_server_info")


class LlamaCpp(OpenAICompatible):
    """A model served by llama.cpp's server, named `llama/NAME`. The server accepts any name.

    By itself, the server selects the slot that holds the longest prefix of a prompt. To change that, pass its
    options, such as `options={"id_slot": 0}` or `options={"cache_prompt": False}`, which are sent unchanged.
    """

    kind: ClassVar[str] = "llama"
    base_url: str = "http://localhost:8080/v1"
    _provider: ClassVar[str] = "llama"
    _answers_to_any_name: ClassVar[bool] = True
    _reports: ClassVar[Sequence[str]] = ("/props",)

    @property
    def _takes_n(self) -> bool:
        """`False`: a request is never for several samples, since llama.cpp counts only the first one's
        tokens.
        """
        return False

    def _continuing(self, begun: Message) -> dict[str, Any]:
        return {}  # llama.cpp continues a last message of the assistant without being asked


class OpenAIServer(OpenAICompatible):
    """A model named `openai/NAME` on a server other than OpenAI's.

    The name `openai/NAME` means this class if a base URL is set (see `LiteLLM.configured`). Without a
    `revision`, the identity includes the URL and equals that of `LiteLLM` for the same model, so that each
    class finds the cached replies of the other.
    """

    kind: ClassVar[str] = "openai_server"
    _provider: ClassVar[str] = "openai"
    _answers_to_any_name: ClassVar[bool] = True  # proxies list aliases, and accept other names

    @property
    def name(self) -> str:
        """The full name, with the provider if one was given."""
        return whole_name(self.model)

    @property
    def served_name(self) -> str:
        return self.name.removeprefix("openai/")

    def identity(self) -> dict[str, Any]:
        """Return the model and its revision or, without a revision, the model and the server's URL."""
        if self.revision is not None:
            return super().identity()
        chat = {} if self.chat else {"chat": False}
        return {"model": self.name, "base_url": self.address, **chat}

    def window(self) -> int | None:
        """Return the context window that is set, or the one in litellm's table, or `None`."""
        return self.context_window or window_in_table(self.name, provider_of(self.name))
