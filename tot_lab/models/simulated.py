"""What simulated models have in common: how chance and time enter a reply.

Rule: a reply follows from (seed, prompt, settings, draw, repeat) by SHA-256, so it is the same in
every process, and never from what a call is for or where it stands in a tree. Every reply says
that it is simulated.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from abc import abstractmethod
from collections.abc import Sequence
from random import Random
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from tot_lab.core.calls import Call, Reply, TokenLogprob, estimated_tokens
from tot_lab.core.parts import Part

Share = Annotated[float, Field(ge=0, le=1)]

JUDGING = (  # what tells the prompts that all domains have apart, by their closing words
    ("vote", re.compile(r"best: N\b")),
    ("joint", re.compile(r"JSON array of the \d+ scores", re.I)),
    ("judge", re.compile(r"one word, yes or no", re.I)),
)


_CANDIDATES = re.compile(r"^(?:Candidates?(?: \d{1,4}| for the next (?:step|word))?:?|Clue:)$", re.M)


def without_candidates(prompt: str) -> str:
    """The part of a domain's prompt that says what is asked; the candidates, if any, stand after it."""
    found = _CANDIDATES.search(prompt)
    return prompt[: found.start()].rstrip("\n") if found else prompt


class Simulated(Part):
    """Base of the simulated models.

    With `temperature=0` all samples and repeats of a prompt are equal. `max_tokens` and `stop` cut the reply.
    A reply costs nothing, and its tokens are estimated at 4 bytes each.
    """

    kind: ClassVar[str] = ""

    latency: Annotated[float, Field(ge=0)] = 0.0
    """Mean seconds until a reply."""

    latency_spread: Literal["constant", "exponential"] = "constant"
    """Distribution of the latency: `constant` or `exponential`."""

    seed: int = 0
    """Models with different seeds have the same abilities and give different replies."""

    @abstractmethod
    def written(self, call: Call, random: Random) -> str | Sequence[TokenLogprob]:
        """What it replies: text, or tokens where log-probabilities were asked for."""

    async def __call__(self, call: Call) -> Reply:
        """The reply to `call`, after `latency`."""
        settled = call.temperature == 0
        key = json.dumps(
            [
                self.seed,
                [(message.role, message.content) for message in call.messages],
                [None, call.temperature, call.seed, call.response_format],  # not by what name it was called
                [] if settled else [call.sample_index, call.repeat, *call.attempt],
            ],
            sort_keys=True,
        )
        digest = hashlib.sha256(key.encode()).digest()
        if self.latency:
            spread = self.latency_spread == "exponential"
            wait = Random(digest[16:]).expovariate(1 / self.latency) if spread else self.latency
            await asyncio.sleep(wait)
        written = self.written(call, Random(digest[:16]))
        most = call.max_tokens
        logprobs: tuple[TokenLogprob, ...] = ()
        if isinstance(written, str):
            text = written
            for word in call.stop:
                text = text.partition(word)[0]
            tokens = estimated_tokens(text)
            if most is not None and tokens > most:
                text = text.encode()[: 4 * most].decode(errors="ignore")
        else:
            tokens = len(written)
            logprobs = tuple(written[:most])
            text = "".join(token.token for token in logprobs)
        cut = most is not None and tokens > most
        return Reply(
            text,
            model=self.kind,
            input_tokens=estimated_tokens(call.prompt),
            output_tokens=len(logprobs) or estimated_tokens(text),
            cost=0.0,
            finish_reason="length" if cut else "stop",
            logprobs=logprobs,
            simulated=True,
        )
