"""The base class of endpoints of a server that has a URL of its own, such as vLLM."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import msgspec
from pydantic import Field, field_validator

from tot_lab.core.calls import Call, Need
from tot_lab.models.chat.about import Facts, entries_in, facts_in, listed_weights_in, weights_in
from tot_lab.models.chat.endpoint import ChatEndpoint, bearer, page_below
from tot_lab.models.chat.failures import shortened
from tot_lab.models.chat.replies import Answers, Billed, Choice, usd, wanted_back
from tot_lab.models.connections import opened
from tot_lab.models.model_table import UNKNOWN_OUTPUT
from tot_lab.models.providers import checked_url, is_safe_url, key_in_environment, one_url
from tot_lab.models.stack import NO_SERVER, Failure

if TYPE_CHECKING:
    from aiohttp import ClientResponse

_LETTERS = bytes(range(ord("a"), ord("z") + 1)) + bytes(range(ord("A"), ord("Z") + 1))
_encode = msgspec.json.Encoder().encode


class ServedModel(ChatEndpoint):
    """A model on a server whose URL is a setting."""

    kind: ClassVar[str] = ""

    model: Annotated[str, Field(min_length=1)]
    """The name under which the server offers the model."""

    base_url: str
    """URL of the server, such as http://localhost:8000/v1, without a user name or password."""

    revision: str | None = None
    """Which weights the name stands for, such as a commit or a quantisation. A cached reply is found by model
    and revision, whatever the URL of the server.
    """

    @field_validator("base_url")
    @classmethod
    def _is_url(cls, url: str) -> str:
        return checked_url(url, "base_url")

    @classmethod
    def named(cls, rest: str) -> Self:
        """Return the model `rest` on a server at the default URL, for the name `PREFIX/REST`."""
        return cls.model_validate({"model": rest})

    @property
    def name(self) -> str:
        return self.model

    @property
    def served_name(self) -> str:
        """The name that is sent to the server."""
        return self.model

    @property
    def address(self) -> str:
        """The canonical URL of the server."""
        return one_url(self.base_url)

    def identity(self) -> dict[str, Any]:
        """Return the kind, the model and its revision. The URL of the server is not included."""
        return {"kind": self.kind, "model": self.model, "revision": self.revision}

    @property
    def _sent_key(self) -> str:
        if self.api_key is not None or not self._provider:
            return self._key
        is_foreign = self._is_loaded and not is_safe_url(self.base_url, self._provider)
        return "" if is_foreign else key_in_environment(self._provider)

    async def problem(self) -> str | None:
        """Return a message if the server refuses connections, has its API below `/v1` of the address, or does
        not list this model. Otherwise return `None`.
        """
        try:
            status, page = await self.look("models")
        except Failure as failure:
            return NO_SERVER.format(self.address, self.name, "base_url") if failure.refused else None
        if status == 404 and await self._is_below_v1():
            return f"{self.address} is not the API of {self.name}. Set base_url to {self.address}/v1"
        ids = [entry.get("id") for entry in entries_in(page)] if status == 200 else []
        listed = [id for id in ids if isinstance(id, str) and id.isprintable()]
        if not listed or self.served_name in listed or self._answers_to_any_name:
            return None
        more = f" and {len(listed) - 5} more" if len(listed) > 5 else ""
        others = shortened(", ".join(listed[:5]))
        return f"The server at {self.address} has no model {self.model}: got {others}{more}"

    async def about(self) -> Facts:
        for path in self._reports:
            status, page = await self.look(path)
            if status == 200 and (facts := facts_in(path, page)):
                return facts
        return {}

    async def served_weights(self) -> Facts:
        if self.revision is not None:
            return {}
        _, listed = await self.look("models")
        found = listed_weights_in(listed, self.served_name)
        for path in self._reports:
            status, page = await self.look(path)
            if status == 200 and (reported := weights_in(path, page)):
                return found | reported
        return found

    _reports: ClassVar[Sequence[str]] = ()
    """Paths of pages on which the server may report about itself; see `about.PAGES`."""

    async def _is_below_v1(self) -> bool:
        """Whether the server lists its models below /v1 of its address."""
        with suppress(Failure):
            return (await self.look("v1/models"))[0] == 200
        return False

    _answers_to_any_name: ClassVar[bool] = False

    def need(self, calls: Sequence[Call]) -> Need:
        """Return the most tokens that the prompts can have, and the longest possible replies. Samples share
        one prompt, but the cost counts it once per sample, since the server may ignore `n`. In a list of
        prompts, each counts, even if prompts are equal.
        """
        prompt, is_list = 0, self._is_list(calls)
        for call in calls if is_list else calls[:1]:
            texts = [*(message.content for message in call.messages), *(str(tool) for tool in call.tools)]
            prompt += sum(map(_most_tokens, texts)) + 16 * (1 + len(texts))
        longest = calls[0].max_tokens or self.context_window
        output = len(calls) * (longest or UNKNOWN_OUTPUT)
        most = (
            None if self.price is None else usd(self.price, prompt * (1 if is_list else len(calls)), output)
        )
        price = self.price and self.price[:2]
        return Need(prompt + output, most, prompt, bounded=longest is not None, price=price)

    def _posted(self, path: str, body: dict[str, Any]) -> AbstractAsyncContextManager[ClientResponse]:
        """Post `body` to a page of the server and yield the response. Raises `Failure` unless it has status
        200.
        """
        try:
            sent = _encode(body)
        except (msgspec.MsgspecError, UnicodeError, TypeError, ValueError) as error:
            raise Failure(f"the request cannot be sent: {error}") from None
        url, headers = self._page(path)
        return opened(url, sent, headers, self.address, refusing=True)

    def _model_in(self, answers: Answers) -> str:
        return answers.model or self.served_name

    def _state(self, choice: Choice) -> str:
        return wanted_back(choice, "openai", self.served_name)

    def _billed(self, usage: Any, cached: int | None) -> Billed:
        cost = None if self.price is None else usd(self.price, usage.prompt, usage.output, cached)
        return Billed(usage.prompt, usage.output, self.price, cost)

    def _page(self, path: str) -> tuple[str, dict[str, str]]:
        return page_below(self.address, path), bearer(self._sent_key)


def _most_tokens(text: str) -> int:
    """Return an upper estimate of the tokens of a text: one for two ASCII letters or for any other byte."""
    data = text.encode("utf-8", "replace")
    others = len(data.translate(None, _LETTERS))
    return others + (len(data) - others + 1) // 2
