"""Scores by the confidence that the proposing model had in its own tokens."""

from __future__ import annotations

from typing import ClassVar, Literal

from tot_lab.core.calls import LOWEST, Reply, confidences_of
from tot_lab.core.protocol import Procedure
from tot_lab.core.records import Event, Scored
from tot_lab.strategies.confidence import ALTERNATIVES, Confidence, confidence_of
from tot_lab.strategies.search.evaluators import Evaluator
from tot_lab.strategies.search.likelihood import why_without_tokens
from tot_lab.strategies.search.sampling import Count, emit_as_list, no_score


class SelfCertainty(Evaluator):
    """Scores each thought by how peaked the distributions of its tokens were when it was proposed, without
    further calls.

    The confidence of a token is minus the mean log-probability of its reported alternatives. `raw` is the
    confidence of the thought, and the score is `raw` / 100, so that votes weighted by the score are weighted
    by the confidence. Self-certainty is this mean over the whole vocabulary minus the logarithm of the
    vocabulary size; endpoints report 20 alternatives at most, which give the `mean` of DeepConf.

    The model must report log-probabilities, and the proposer must make one thought per reply (`Sample`,
    `Continue`). Otherwise there is no score, and a note `score.missing` says why.

    References:
        Kang et al. 2025, Scalable Best-of-N Selection via Self-Certainty, arXiv:2502.18581; Fu et
        al. 2025, Deep Think with Confidence, arXiv:2508.15260, section 3.1 (groups of tokens).
    """

    compares: ClassVar[Literal["nothing", "reply", "siblings", "pick"]] = "reply"
    logprobs: ClassVar[int] = ALTERNATIVES

    confidence: Confidence = "mean"
    """The confidence of a thought: the `mean` of all tokens, that of the least confident group (`lowest`), of
    the least confident tenth of the groups (`bottom`), or of the last group (`tail`)."""

    group: Count = 2048
    """Tokens of a group, a sliding window over the thought. A shorter thought is one group."""

    def score_reply(self, id: str, reply: Reply | None) -> Procedure[list[Event]]:
        tokens = confidences_of(reply) if reply is not None else []
        if reply is None or not (reply.confidences or any(len(token.top) > 1 for token in reply.logprobs)):
            why = "the model reported no alternatives of its tokens" if tokens else why_without_tokens(reply)
            return (yield from no_score(id, self.kind, why))
        raw = confidence_of(tokens, self.confidence, self.group)
        score = min(max(raw / -LOWEST, 0.0), 1.0)
        return (yield from emit_as_list(Scored(id, score, raw, (score,), self.kind)))
