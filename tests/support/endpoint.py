"""An endpoint that answers from a script, for what stands between a search and a real model."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from pydantic import PrivateAttr

from support import answer_to
from tot_lab.core.calls import Call, Need, Reply
from tot_lab.models.stack import Endpoint


class CallObserver:
    """An observer that remembers."""

    def __init__(self, watched: bool = False) -> None:
        self.paid: float | None = None
        self.watched = watched
        self.notes: list[tuple[str, dict]] = []
        self.texts: list[str] = []

    def note(self, name: str, **data: Any) -> None:
        self.notes.append((name, data))

    def partial(self, text: str) -> None:
        self.texts.append(text)

    @property
    def dropped(self) -> list[str]:
        """The settings that were said not to be passed on."""
        return [
            setting for name, data in self.notes if name == "call.dropped" for setting in data["settings"]
        ]

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.notes]


class ScriptedEndpoint(Endpoint):
    """Answers with `reply(call)`, which may raise a `Failure`, after `seconds`; a dollar a call.

    `spread`: up to so many further seconds, at random.
    """

    label: str = "scripted"
    url: str = "http://one"
    seconds: float = 0.0
    spread: float = 0.0
    samples: bool = False
    usd: float | None = 1.0
    most: float | None = None  # what it may cost, where that is not what it costs
    _reply: Callable[[Call], str] = PrivateAttr(default_factory=lambda: answer_to)
    _requests: list[list[Call]] = PrivateAttr(default_factory=list)
    _under_way: list[int] = PrivateAttr(default_factory=lambda: [0, 0])

    @property
    def name(self) -> str:
        return self.label

    def identity(self) -> dict[str, Any]:
        return {"model": self.label, "url": self.url}

    def takes_n(self, call: Call) -> bool:
        return self.samples

    def need(self, calls: Sequence[Call]) -> Need:
        most = self.usd if self.most is None else self.most
        return Need(100 * len(calls), None if most is None else most * len(calls))

    async def answer(self, calls: Sequence[Call], observer: Any) -> list[Reply]:
        self._requests.append(list(calls))
        self._under_way[0] += 1
        self._under_way[1] = max(self._under_way)
        try:
            await asyncio.sleep(self.seconds + self.spread * random.random())
            said = {"model": self.label, "input_tokens": 3, "output_tokens": 1, "cost": self.usd}
            replies = [self._reply(call) for call in calls]
            return [
                msgspec.structs.replace(reply, **said)
                if isinstance(reply, Reply)
                else Reply(str(reply), **said)
                for reply in replies
            ]
        finally:
            self._under_way[0] -= 1

    @property
    def requests(self) -> list[list[Call]]:
        """The calls of every request that came."""
        return self._requests

    @property
    def max_at_once(self) -> int:
        return self._under_way[1]


def scripted(reply: Callable[[Call], str] = answer_to, **settings: Any) -> ScriptedEndpoint:
    """An endpoint that answers with `reply`."""
    made = ScriptedEndpoint(**settings)
    made._reply = reply
    return made
