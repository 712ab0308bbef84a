"""Scores by the probability that the proposing model gave to its tokens."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from tot_lab.core.calls import Reply, logprobs_of
from tot_lab.core.protocol import Procedure
from tot_lab.core.records import Event, Note, Scored
from tot_lab.strategies.search.evaluators import Evaluator
from tot_lab.strategies.search.sampling import emit_as_list, no_score


class Likelihood(Evaluator):
    """Scores each thought by the probability of its tokens when it was proposed, without further calls.

    The model must report log-probabilities, and the proposer must make one thought per reply (`Sample`,
    `Continue`). Otherwise there is no score, and a note `score.missing` says why. `raw` is the
    log-probability of the whole reply.

    References:
        Orseau et al. 2018, arXiv:1811.10928, section 2 (policy); Wu et al. 2016, arXiv:1609.08144, section 7
        (normalisation by length).
    """

    compares: ClassVar[Literal["nothing", "reply", "siblings", "pick"]] = "reply"
    logprobs: ClassVar[int] = 1

    per_token: bool = True
    """Whether the score is the geometric mean of the probabilities of the tokens. Otherwise it is their
    product, which favours short thoughts."""

    def score_reply(self, id: str, reply: Reply | None) -> Procedure[list[Event]]:
        tokens = logprobs_of(reply) if reply is not None else []
        total = sum(tokens)
        if not tokens:
            return (yield from no_score(id, "likelihood", why_without_tokens(reply)))
        score = min(math.exp(total / len(tokens) if self.per_token else total), 1.0)
        return (yield from emit_as_list(Scored(id, score, total, (score,), "likelihood")))


def note_without_tokens(id: str, by: str) -> Note:
    """The note that the search of kind `by` knows no log-probabilities of the tokens of a thought."""
    return Note("score.missing", id, {"by": by, "reason": "no log-probabilities of its own tokens are known"})


def why_without_tokens(reply: Reply | None) -> str:
    """Why a thought has no log-probabilities of its own tokens."""
    if reply is None:
        return "the thought shares its reply with others, or a person has changed it"
    return "the model reported no log-probabilities"
