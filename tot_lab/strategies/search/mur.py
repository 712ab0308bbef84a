"""MUR: a step is sampled again when it is less certain than the steps before it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Annotated, Any, ClassVar

from pydantic import Field

from tot_lab.strategies.search.likelihood import note_without_tokens
from tot_lab.strategies.search.sampling import Count, Unit
from tot_lab.strategies.search.searches import Pick, Search, Searching, SearchState


class MUR(Search):
    """Momentum uncertainty-guided reasoning (MUR): one step at a time, and `count` samples of an
    uncertain step.

    The uncertainty m of a step is minus the mean log-probability of its tokens. The momentum M is 0 at first,
    and becomes `momentum` · M + (1 - `momentum`) · m after each step. A step with exp(m) > exp(M) / `gamma`
    is replaced by the best of `count` new samples, by score, whose m then enters the momentum. The first step
    is never replaced.

    The model must report log-probabilities, and the proposer must make one thought per reply (`Sample`,
    `Continue`). A step without log-probabilities is kept and does not change the momentum; a note
    `score.missing` says so. The evaluator scores every step, also one that is not sampled again. A finished
    path is the answer. If `stop.depth` ends the path, the answer rule decides.

    References:
        Yan et al. 2025, MUR: Momentum Uncertainty guided Reasoning, arXiv:2507.14958, with a scoring model
        (guided search). In the published code, `gamma` is 0.8 for this method and 0.9 for its other methods.
    """

    kind: ClassVar[str] = "mur"
    logprobs: ClassVar[int] = 1
    scale: ClassVar[str] = "count"

    count: Count = 4
    """Samples of an uncertain step."""

    momentum: Unit = 0.9
    """The weight of the earlier steps in the momentum (α in the paper)."""

    gamma: Annotated[float, Field(gt=0, le=1)] = 0.9
    """The scaling rate γ: the lower it is, the fewer steps are sampled again."""

    def run(self, state: SearchState) -> Searching:
        last, momentum = state.root, 0.0
        while last not in state.closed:
            steps = yield Pick([last], 1)
            if not steps:
                return None
            first = steps[0]
            uncertainty = yield from self._uncertainty(state, first)
            bar = math.inf if last == state.root else momentum - math.log(self.gamma)
            if uncertainty is not None and uncertainty > bar:
                why = {"uncertainty": uncertainty, "momentum": momentum}
                steps = yield from sampled_again(state, last, steps, self.count, why)
            (last,) = yield from state.keep_best(steps, 1)
            if last != first:
                uncertainty = yield from self._uncertainty(state, last)
            if uncertainty is not None:
                momentum = self.momentum * momentum + (1 - self.momentum) * uncertainty
        return last if last in state.finished else None

    def _uncertainty(self, state: SearchState, id: str) -> Searching:
        logprobs = state.logprobs(id)
        if not logprobs:
            yield note_without_tokens(id, self.kind)
            return None
        return -fmean(logprobs)

    def max_expansions_by_count(self, branch: int, depth: int) -> list[tuple[int, int]]:
        return [(1, depth), (self.count, depth)]

    def max_picks(self, branch: int, depth: int) -> int:
        return 2 * depth


def sampled_again(
    state: SearchState, parent: str, steps: Sequence[str], count: int, why: dict[str, Any]
) -> Searching:
    """Sample `count` further children of `parent` in place of `steps`. Returns the steps that remain.

    Thoughts that a person has added remain, and all of `steps` remain if no further sample succeeds.
    """
    further = yield Pick([parent], count, why={parent: why})
    if not further:
        return steps
    added = [id for id in steps if id in state.grafted]
    yield from state.prune([id for id in steps if id not in state.grafted], "sampled again")
    return [*further, *added]
