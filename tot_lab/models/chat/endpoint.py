"""The base class of endpoints that speak OpenAI's chat format.

Such an endpoint may have a key, which is not among its settings, and is neither recorded nor shown.
"""

from __future__ import annotations

import asyncio
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec.structs import replace
from pydantic import ConfigDict, Field, PrivateAttr, SecretStr, ValidationError, field_validator

from tot_lab.core.calls import Call, CallObserver, Reply
from tot_lab.core.reading.json_values import read_json
from tot_lab.core.scrubbing import clean, long_keys, scrubbed, without_keys
from tot_lab.models.chat.about import listed_in, with_props
from tot_lab.models.chat.replies import (
    Answers,
    Billed,
    Choice,
    Price,
    Processing,
    ReplyUsage,
    continuation_of,
    scrubbed_reply,
    shares_of,
    undercounted,
    usd,
)
from tot_lab.models.connections import body_of, opened
from tot_lab.models.providers import key_variables
from tot_lab.models.stack import UNLISTED, Endpoint, Failure, ServerFacts

LEAST_PRICE = 0.001
"""The lowest accepted price above 0, in USD per million tokens. A lower one was probably meant per token."""

Usd = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Pair = Annotated[tuple[Usd, Usd], Field(strict=False)]  # files hold lists
_Triple = Annotated[tuple[Usd, Usd, Usd], Field(strict=False)]
_ONE_BY_ONE: set[tuple[str, str]] = set()
"""(address, model) for which calls are requested one by one: the server ignored or refused `n`, sent an
unreadable response to a list of prompts, or counts the tokens of one reply only.
"""

_WITHOUT_EFFORT: set[tuple[str, str]] = set()
"""(address, model) to which no reasoning effort is sent, since the server refused one."""

_ABOUT_EFFORT = re.compile("effort|think value|(think|reason)ing is not|not support (think|reason)ing", re.I)

_REFUSALS = 400, 413, 422, 424  # 424 is an "inference error" of text-embeddings-inference

_LOOKING = 20.0  # seconds to wait for a page, see `look`

_NO_CHOICE = Choice(None, None, None, ())


def _with_share(reply: Reply, share: ReplyUsage, reported: str) -> Reply:
    """Return `reply` with its `share` of the usage. `reported` is the reported usage as text if it is
    impossible, else "".
    """
    return replace(
        reply,
        input_tokens=share.prompt,
        output_tokens=share.output,
        cost=share.cost,
        reported_usage=reported,
        may_be_charged=share.prompt is None and not reported,
        shared_tokens=not share.is_exact,
    )


def bearer(key: str) -> dict[str, str]:
    """Return the `Authorization` header for `key`, or {} if it is empty."""
    return {"Authorization": f"Bearer {key}"} if key else {}


def page_below(base: str, path: str) -> str:
    """Return the URL of `path` below `base` or, if it begins with `/`, below `base` without `/v1`."""
    return f"{base}/{path}" if path[0] != "/" else base.removesuffix("/v1") + path


class ChatEndpoint(Endpoint):
    """A model behind an API in OpenAI's chat format."""

    model_config = ConfigDict(hide_input_in_errors=True)  # the input may be the key
    kind: ClassVar[str] = ""

    api_key: Annotated[SecretStr | str | None, Field(exclude=True, repr=False)] = None
    """The provider's key. `None` reads the provider's environment variable, such as `OPENAI_API_KEY`, and ""
    means no key. The key is neither recorded nor shown. If a model was loaded with a recorded run, the key in
    the environment is sent only to this machine and to the provider's own service.
    """

    context_window: Annotated[int, Field(ge=1)] | None = None
    """Tokens of a prompt and its reply together. `None` means the known size of the model or, for Ollama, its
    default of 4096. A number is also sent to Ollama, which then loads the model with this context window.
    """

    price: _Pair | _Triple | None = None
    """USD per million tokens of (prompt, reply), for a model whose price is not known. A third number, at
    most the first, is the price of prompt tokens that the server had cached. Replies that tot_lab's disk
    cache stored before the price was known get the cost of their tokens at this price.
    """

    _is_loaded: bool = PrivateAttr(default=False)
    """Whether the settings come from a loaded run; see `mark_loaded`."""

    @field_validator("api_key")
    @classmethod
    def _hidden(cls, key: SecretStr | str | None) -> SecretStr | None:
        text = key.get_secret_value() if isinstance(key, SecretStr) else key
        return None if text is None else SecretStr(text.strip())  # a key from a file ends with a newline

    @field_validator("price", mode="wrap")
    @classmethod
    def _is_price(cls, given: Any, handler: Callable[[Any], Price | None]) -> Price | None:
        try:
            price = handler(given)
        except ValidationError:
            raise ValueError(
                "expected USD per million tokens of (prompt, reply) or (prompt, reply, cached prompt), such "
                f"as (0.15, 0.6): got {given!r:.80}"
            ) from None
        if price is not None and any(0 < one < LEAST_PRICE for one in price):
            raise ValueError(f"expected USD per million tokens, not per token: got {given!r}")
        if price is not None and len(price) == 3 and price[2] > price[0]:
            raise ValueError(
                f"the price of cached prompt tokens must be at most that of the others, {price[0]}: got "
                f"{price[2]}"
            )
        return price  # `need` relies on this: a call costs most if no prompt token is cached

    def settings(self) -> dict[str, Any]:
        """Return the settings as JSON-compatible data, without the key."""
        return {name: value for name, value in super().settings().items() if name != "api_key"}

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        return ((name, value) for name, value in super().__repr_args__() if name != "api_key")

    @property
    def _key(self) -> str:
        """The key that was passed as `api_key`, or ""."""
        return self.api_key.get_secret_value() if isinstance(self.api_key, SecretStr) else ""

    @property
    def _sent_key(self) -> str:
        """The key that is sent to the server, or ""."""
        return self._key

    _provider: ClassVar[str] = ""
    """The provider whose key in the environment is sent: "vllm" for VLLM_API_KEY. "" means no key."""

    @property
    def _long_keys(self) -> tuple[str, ...]:
        """The keys, of this model and in the environment, that are removed from replies."""
        return long_keys(self._key, self._sent_key)

    @property
    def _takes_n(self) -> bool:
        """Whether several samples may be one request. `False` for a server and model in `_ONE_BY_ONE`."""
        return (self.address, self.name) not in _ONE_BY_ONE

    async def answer(self, calls: Sequence[Call], observer: CallObserver) -> Sequence[Reply]:
        """Make one request for `calls`. If the server refuses several calls in one request, or returns fewer
        replies, the other calls are requested one by one.

        If the model refuses one of several calls, that call gets a reply with an error.

        Raises:
            Failure: If a request failed, or the server marks replies as failed. `Failure.replies` are the
                replies to the other calls.
        """
        if self._is_list(calls):
            return await self._listed(calls, observer)
        replies: list[Reply | None] = []
        used: list[Reply] = []
        again: Failure | None = None
        while rest := calls[len(replies) :]:
            try:
                replies += await self._several(rest, observer, several=len(calls) > 1)
                used += [Reply()] * (len(replies) - len(used))
            except Failure as failure:
                used += failure.used or ()
                again = failure
                if not failure.replies:  # the received replies were paid for and must not be requested again
                    break
                replies += failure.replies
        if again is not None:
            again.replies, again.used = replies, used
            raise again
        return [reply for reply in replies if reply is not None]

    async def _several(self, calls: Sequence[Call], observer: CallObserver, *, several: bool) -> list[Reply]:
        """Request all calls if the server takes `n`, else the first. Returns at least one reply. Raises
        `Failure`.
        """
        if len(calls) == 1 or not self._takes_n:
            return await self._some(calls[:1], observer, several=several)
        try:
            replies = await self._some(calls, observer, several=several)
        except Failure as failure:
            if failure.status not in _REFUSALS:
                raise
            # This raises again if the server refused the prompt rather than `n`.
            replies = await self._some(calls[:1], observer, several=several)
        if len(replies) < len(calls):
            self._ask_one_by_one()
            observer.note("call.dropped", settings=["n"])
        return replies

    def _is_list(self, calls: Sequence[Call]) -> bool:
        """Whether `calls` are requested as a list of prompts, and not as samples of one prompt."""
        messages = calls[0].messages
        is_list = self.list_key(calls[0]) is not None or any(call.messages != messages for call in calls)
        return is_list and len(calls) > 1

    async def _listed(self, calls: Sequence[Call], observer: CallObserver) -> list[Reply]:
        """Request calls with different prompts together. If the server refuses such a list, or its response
        cannot be read, each reply has the error `UNLISTED`. The layer `batching` then requests each call
        alone.
        """
        try:
            return await self._some(calls, observer, several=True)
        except Failure as failure:
            refused = failure.status in _REFUSALS or (failure.status is None and not failure.retry)
            if not (refused or failure.unreadable):
                raise
            return [replace(failure.used_by(place), error=UNLISTED) for place in range(len(calls))]

    def _ask_one_by_one(self) -> None:
        """Make each call to this server and model a request of its own from now on."""
        _ONE_BY_ONE.add((self.address, self.name))

    async def _some(self, calls: Sequence[Call], observer: CallObserver, *, several: bool) -> list[Reply]:
        """Make one request, and return at least one reply. Raises `Failure`.

        `several` says whether `observer` receives the notes of several calls, even if `calls` is a single
        one. Each note then names its call.
        """
        try:
            answers = await self._accepted(calls, observer)
            if not answers.choices:
                usage = answers.usage
                raise Failure("the provider's response has no choices", unreadable=True, usage=usage)
        except Failure as failure:
            self._count(failure, calls, observer)
            raise self._scrubbed(failure) from None  # the exception chain holds requests with their headers
        self._note_processing(answers, calls, observer, several=several)
        return self._replies(answers, calls, observer)

    async def _accepted(self, calls: Sequence[Call], observer: CallObserver) -> Answers:
        """Make one request. If the server refuses its reasoning effort, make another without it. Raises
        `Failure`.
        """
        if calls[0].effort is None:
            return await self._answers(calls, observer)
        place = self.address, self.name
        if place not in _WITHOUT_EFFORT:
            try:
                return await self._answers(calls, observer)
            except Failure as failure:
                if failure.status not in _REFUSALS or not _ABOUT_EFFORT.search(failure.message):
                    raise
        answers = await self._answers([replace(call, effort=None) for call in calls], observer)
        _WITHOUT_EFFORT.add(place)
        observer.note("call.dropped", settings=["effort"])
        return answers

    def _count(self, failure: Failure, calls: Sequence[Call], observer: CallObserver) -> None:
        """Set `failure.used` to the usage of each of `calls`, after a request that brought no reply."""
        used = [failure.used_by(place) for place in range(len(calls))]
        usage = self._usage_in(failure.usage) if isinstance(failure.usage, dict) else failure.usage
        if usage is not None:
            answers = Answers([_NO_CHOICE] * len(calls), None, usage)
            shares, reported = self._shares(answers, calls, observer)
            used = [_with_share(reply, share, reported) for reply, share in zip(used, shares, strict=True)]
        failure.used = used

    def _scrubbed(self, failure: Failure) -> Failure:
        """Remove keys from the message of `failure`. For status 401, add which key was sent."""
        failure.message = scrubbed(failure.message, self._sent_key)
        if failure.status == 401 and not self._sent_key:
            variable = f"Set {self._provider.upper()}_API_KEY, or pass" if self._provider else "Pass"
            failure.message += f". No key was sent to {self.address}. {variable} api_key= to the model"
        elif failure.status == 401:
            variables = key_variables(getattr(self, "provider", self._provider))
            source = "api_key=" if self._key else " or ".join(variables)
            failure.message += f". The key came from {source}"
        failure.args = (failure.message,)
        return failure

    def _note_processing(
        self, answers: Answers, calls: Sequence[Call], observer: CallObserver, *, several: bool
    ) -> None:
        """Record notes of how the server processed each call, as far as it reports that."""
        if answers.processing == Processing():
            return
        calls = calls[: len(answers.choices)]
        notes = answers.processing.notes([call.prompt for call in calls])
        for call, known in zip(calls, notes, strict=True):
            only = {"only": [call]} if several else {}
            observer.note("call.processed", **known, **only)

    @abstractmethod
    async def _answers(self, calls: Sequence[Call], observer: CallObserver) -> Answers:
        """Make one request. Raises `Failure`."""

    @abstractmethod
    def _usage_in(self, usage: dict[str, Any]) -> Any:
        """Return the JSON usage of a failed response in the form of `Answers.usage`, or `None`."""

    def priced(self, reply: Reply) -> Reply:
        """Return a stored reply of unknown cost with the cost of its tokens by `price`, as if none of its
        prompt tokens had been cached.
        """
        prompt, output = reply.input_tokens, reply.output_tokens
        if self.price is None or prompt is None or output is None:
            return reply
        return replace(reply, cost=round(usd(self.price, prompt, output), 12))

    @abstractmethod
    def _billed(self, usage: Any, cached: int | None) -> Billed:
        """Return the tokens and cost of a request. `cached` is the number of prompt tokens that the server
        had cached, or `None` if it is unknown.
        """

    @abstractmethod
    def _model_in(self, answers: Answers) -> str:
        """Return the name of the model that answered."""

    @abstractmethod
    def _state(self, choice: Choice) -> str:
        """Return the JSON that must be sent back with a message that calls tools; see `wanted_back`."""

    def _shares(
        self, answers: Answers, calls: Sequence[Call], observer: CallObserver
    ) -> tuple[list[ReplyUsage], str]:
        """Return the usage of each reply and, as text, the reported usage if it is impossible, else "". Adds
        the cost to `observer.paid`.
        """
        choices = answers.choices[: len(calls)]
        reported: str = getattr(answers.usage, "reported", "")
        shares = [ReplyUsage()] * len(choices)
        if answers.usage is None or reported:
            return shares, reported
        billed = self._billed(answers.usage, answers.processing.cached_tokens)
        if len(choices) > 1 and self.generates and (few := undercounted(choices, billed.output)):
            self._ask_one_by_one()
            return shares, few
        if billed.cost is not None:
            observer.paid = (observer.paid or 0.0) + billed.cost
        prompts = [len(call.prompt) for call in calls] if self._is_list(calls) else None
        return shares_of(billed, choices, prompts), ""

    def _replies(self, answers: Answers, calls: Sequence[Call], observer: CallObserver) -> list[Reply]:
        choices = answers.choices[: len(calls)]
        name, keys = clean(self._model_in(answers)), self._long_keys
        shares, reported = self._shares(answers, calls, observer)
        replies, again = list[Reply | None](), None
        for call, choice, share in zip(calls, choices, shares, strict=False):
            failure = choice.failure and self._scrubbed(choice.failure)
            if failure and (failure.retry or len(calls) == 1):
                again = failure
                replies.append(None)
                continue
            text = choice.text or ""
            reply = Reply(
                "" if failure else continuation_of(text, call) if answers.timings else text,
                error=None if failure is None else f"{self.name}: {failure.message}",
                thinking=choice.thinking,
                model=name,
                input_tokens=share.prompt,
                output_tokens=share.output,
                cost=share.cost,
                finish_reason=choice.finish and clean(choice.finish),
                logprobs=choice.logprobs,
                tool_calls=choice.tool_calls,
                provider_state=self._state(choice),
                reported_usage=reported,
                may_be_charged=failure is not None and answers.usage is None,
                ended=choice.ended,
                shared_tokens=not share.is_exact,
            )
            replies.append(scrubbed_reply(reply, keys))
        if again is not None:
            failures = [choice.failure.message if choice.failure else None for choice in choices]
            pairs = zip(failures, shares, strict=True)
            again.used = [_with_share(Reply(error=error), share, reported) for error, share in pairs]
            again.replies = replies
            raise again
        return [reply for reply in replies if reply is not None]

    @abstractmethod
    def _page(self, path: str) -> tuple[str, dict[str, str]] | None:
        """Return the URL and the headers for a page of the server, or `None` if no URL is known."""

    async def _listed_facts(self, path: str, name: str) -> ServerFacts:
        """Return what the list of models at `path`, and llama.cpp's `/props`, report about the
        model `name`.
        """
        _, page = await self.look(path)
        facts = listed_in(page, name)
        if self.is_hosted:
            return facts
        _, props = await self.look("/props")
        return with_props(facts, props)

    async def look(self, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
        """Request a page of the server, such as its list of models.

        Args:
            path: Path below the server's URL, or below that without `/v1` if it starts with `/`.
            body: JSON to post. `None` makes a GET request.

        Returns:
            The HTTP status, and the JSON of the response, or `None` if it is not JSON. (404, `None`) if no
            URL of the server is known.

        Raises:
            Failure: If the server cannot be reached (`connection_failed`), or takes more than 20 seconds.
        """
        if (page := self._page(path)) is None:
            return 404, None
        url, headers = page
        sent = None if body is None else msgspec.json.encode(body)
        try:
            async with asyncio.timeout(_LOOKING), opened(url, sent, headers, self.address) as response:
                text = (await body_of(response)).decode(errors="replace")
                return response.status, read_json(without_keys(text, self._long_keys))
        except TimeoutError:
            raise Failure(f"no answer from {self.address} within {_LOOKING:g} s", retry=True) from None
        except Failure as failure:
            failure.message = scrubbed(failure.message, self._sent_key)
            raise
