"""An endpoint with known prices that a simulated model answers."""

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec
from pydantic import PrivateAttr

from tot_lab.core.calls import Call, Need, Reply, estimated_tokens
from tot_lab.models.named import model_named
from tot_lab.models.stack import Endpoint

PRICE = (3.0, 15.0)
"""USD per million tokens of the prompt and of the reply."""


class Priced(Endpoint):
    """Answers as the simulated model `sim` does. It counts tokens as that model does."""

    kind: ClassVar[str] = "support/priced"
    sim: str = "sim/general"
    context_window: int = 4_000
    _calls: list[Call] = PrivateAttr(default_factory=list)

    @property
    def name(self) -> str:
        return "priced"

    @property
    def calls(self) -> list[Call]:
        """The calls that were sent."""
        return self._calls

    def identity(self) -> dict[str, Any]:
        return {"model": self.sim}

    def need(self, calls: Sequence[Call]) -> Need:
        prompt = estimated_tokens(calls[0].prompt)
        output = len(calls) * (calls[0].max_tokens or self.context_window)
        return Need(prompt + output, priced(prompt * len(calls), output), prompt, price=PRICE)

    async def answer(self, calls: Sequence[Call], observer: Any) -> list[Reply]:
        self._calls.extend(calls)
        answers: Any = model_named(self.sim)
        replies = [await answers(call) for call in calls]
        return [
            msgspec.structs.replace(reply, cost=priced(reply.input_tokens, reply.output_tokens))
            for reply in replies
        ]


def priced(prompt: float, output: float) -> float:
    """What so many tokens cost."""
    return (prompt * PRICE[0] + output * PRICE[1]) / 1e6
