"""Base class of simulated models, which seeds the random numbers of each reply and simulates its latency.

The seed is the SHA-256 of the model's seed, the messages, three settings of the call (temperature, seed and
schema), and its sample index, repeat and attempt. A reply is therefore the same in every process, whatever
the purpose and the node of its call. Every reply is marked as simulated.
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

Probability = Annotated[float, Field(ge=0, le=1)]

JUDGING = (  # kinds of judgements, each with the words that end its prompts in every domain
    ("vote", re.compile(r"best: N\b")),
    ("joint", re.compile(r"JSON array of the \d+ scores", re.I)),
    ("judge", re.compile(r"one word, yes or no", re.I)),
)


_CANDIDATES = re.compile(r"^(?:Candidates?(?: \d{1,4}| for the next (?:step|word))?:?|Clue:)$", re.M)


def without_candidates(prompt: str) -> str:
    """Return the part of a prompt before its list of candidates, or all of it if it lists none."""
    found = _CANDIDATES.search(prompt)
    return prompt[: found.start()].rstrip("\n") if found else prompt


class Simulated(Part):
    """A simulated model: an async callable `Call -> Reply`.

    With `temperature=0` all samples and repeats are equal. `max_tokens` and `stop` truncate the reply.
    Replies cost 0 USD, and a token is estimated as 4 bytes.
    """

    kind: ClassVar[str] = ""

    latency: Annotated[float, Field(ge=0)] = 0.0
    """Mean seconds until a reply."""

    latency_spread: Literal["constant", "exponential"] = "constant"
    """Distribution of the latency around its mean."""

    seed: int = 0
    """Seed of all replies. Models that differ only in it give different replies, but are equally able."""

    @abstractmethod
    def written(self, call: Call, random: Random) -> str | Sequence[TokenLogprob]:
        """Return the reply as text, or as tokens if `call` requests log-probabilities. `random` is seeded."""

    async def __call__(self, call: Call) -> Reply:
        """Return the reply to `call` after `latency`."""
        settled = call.temperature == 0
        key = json.dumps(
            [
                self.seed,
                [(message.role, message.content) for message in call.messages],
                # `None` stands for the model's name, which does not change the reply.
                [None, call.temperature, call.seed, call.response_format],
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
