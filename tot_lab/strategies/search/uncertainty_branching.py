"""Uncertainty-guided branching: one step at a time, and several samples where the model is uncertain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

from tot_lab.core.calls import TokenLogprob
from tot_lab.strategies.search.likelihood import note_without_tokens
from tot_lab.strategies.search.mur import sampled_again
from tot_lab.strategies.search.sampling import Count, Unit
from tot_lab.strategies.search.searches import Pick, Search, Searching, SearchState


class UncertaintyBranching(Search):
    """Uncertainty-guided branching: one step at a time, and the best of `count` samples of an uncertain step.

    The uncertainty of a token is 1 minus the difference between the probabilities of its two most likely
    alternatives. If the uncertainty of a step (see `tokens`) is above `threshold`, the step is replaced by
    `count` new samples, of which the one with the lowest mean uncertainty of its tokens is kept. The search
    ignores scores.

    The model must report two log-probabilities per token, and the proposer must make one thought per reply
    (`Sample`, `Continue`). A step without log-probabilities is kept; a note `score.missing` says so. A
    finished path is the answer. If `stop.depth` ends the path, the answer rule decides.

    References:
        Zhu et al. 2025, Uncertainty-Guided Chain-of-Thought for Code Generation, arXiv:2503.15341
        (probability differential at the first token of a line); ThinkBooster, `uncertainty_cot`, whose
        experiments use the settings that are the defaults here. ThinkBooster makes a separate call to measure
        the first token; here the first token of the sampled step is measured. The other measure of the paper,
        the entropy over the vocabulary, is missing: endpoints report 20 alternatives at most.
    """

    kind: ClassVar[str] = "uncertainty_branching"
    logprobs: ClassVar[int] = 2
    alternatives: ClassVar[int | None] = 2
    scale: ClassVar[str] = "count"

    count: Count = 8
    """Samples of an uncertain step."""

    threshold: Unit = 0.3
    """The uncertainty above which a step is sampled again (τ in the paper)."""

    tokens: Literal["first", "all"] = "first"
    """The tokens whose mean uncertainty is the uncertainty of a step: the first one, or all."""

    def run(self, state: SearchState) -> Searching:
        last = state.root
        while last not in state.closed:
            steps = yield Pick([last], 1)
            if not steps:
                return None
            tokens = _tokens(state, steps[0])
            uncertainty = mean_uncertainty(tokens[:1] if self.tokens == "first" else tokens)
            if uncertainty is None:
                yield note_without_tokens(steps[0], self.kind)
            elif uncertainty > self.threshold:
                why = {"uncertainty": uncertainty}
                steps = yield from sampled_again(state, last, steps, self.count, why)
            of = {id: mean_uncertainty(_tokens(state, id)) for id in steps}
            last = min(of, key=lambda id: (of[id] is None, of[id] or 0.0))
            yield from state.prune([id for id in steps if id != last], "uncertain")
        return last if last in state.finished else None

    def max_expansions_by_count(self, branch: int, depth: int) -> list[tuple[int, int]]:
        return [(1, depth), (self.count, depth)]

    def max_picks(self, branch: int, depth: int) -> int:
        return 2 * depth


def _tokens(state: SearchState, id: str) -> Sequence[TokenLogprob]:
    reply = state.reply(id)
    return () if reply is None else reply.logprobs


def mean_uncertainty(tokens: Sequence[TokenLogprob]) -> float | None:
    """The mean uncertainty of the tokens that have two reported alternatives. `None` if none has."""
    tops = [sorted(token.top.values(), reverse=True)[:2] for token in tokens]
    found = [1 - (math.exp(top[0]) - math.exp(top[1])) for top in tops if len(top) == 2]
    return sum(found) / len(found) if found else None
