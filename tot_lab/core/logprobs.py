"""Log-probabilities of a reply, in the size that is needed.

With 20 alternatives per token, 400 tokens take 80 to 120 kB in the journal, and as much in the cache. Unless
a call asks for alternatives (`Call.alternatives`), only the value of each token and the mean of its
alternatives are kept, as rounded whole numbers without the texts.

References:
    Fu et al. 2025, Deep Think with Confidence, arXiv:2508.15260, section 3.1 (token confidence).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tot_lab.core.calls import Call, Reply, TokenLogprob

LOWEST = -100.0
"""The lowest log-probability that counts. Servers report -9999 for tokens whose probability is unknown."""

_DIGITS = 6
"""Decimals of the log-probabilities of alternatives."""


def condensed(call: Call, reply: Reply) -> Reply:
    """Return `reply` with what `call` asks for of its log-probabilities, rounded."""
    tokens = reply.logprobs
    if not tokens:
        return reply
    count = call.alternatives
    if count is None:  # the verdict of one token is read from its alternatives
        count = call.logprobs if call.max_tokens == 1 else 0
    if count:
        kept = tuple([_rounded(token, count) for token in tokens])
        return msgspec.structs.replace(reply, logprobs=kept)
    means = token_confidences(tokens) if any(len(token.top) > 1 for token in tokens) else []
    return msgspec.structs.replace(
        reply,
        logprobs=(),
        surprisals=tuple([round(-1000 * token.logprob) for token in tokens]),
        confidences=tuple([round(100 * mean) for mean in means]),
    )


def _rounded(token: TokenLogprob, count: int) -> TokenLogprob:
    ranked = sorted(token.top.items(), key=lambda pair: -pair[1])[:count]
    top = {text: round(value, _DIGITS) for text, value in ranked}
    return TokenLogprob(token.token, round(token.logprob, _DIGITS), top)


def token_confidences(tokens: Sequence[TokenLogprob]) -> list[float]:
    """Minus the mean log-probability of the alternatives of each token, from 0 to `-LOWEST`."""
    reported = [[*token.top.values()] or [token.logprob] for token in tokens]
    return [-sum(max(LOWEST, value) for value in values) / len(values) for values in reported]


def logprobs_of(reply: Reply) -> list[float]:
    """Return the log-probability of each token of a reply. Empty if the model reported none."""
    return [-value / 1000 for value in reply.surprisals] or [token.logprob for token in reply.logprobs]


def confidences_of(reply: Reply) -> list[float]:
    """Return the confidence of each token of a reply. Empty if the model reported no log-probabilities."""
    if reply.confidences:
        return [value / 100 for value in reply.confidences]
    return token_confidences(reply.logprobs) or [min(-value, -LOWEST) for value in logprobs_of(reply)]
