"""Weighted best of N: the answer with the largest sum of scores."""

from __future__ import annotations

from tot_lab.core.protocol import Procedure
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Answer, Task
from tot_lab.strategies.baselines import ChainOfThought, JudgedAttempts
from tot_lab.strategies.voting import choose_by_vote


class WeightedBestOf(JudgedAttempts):
    """Run a strategy several times and keep the answer whose attempts have the largest sum of scores.

    The domain decides which answers count as the same. An attempt without a score has the weight 0. If no
    attempt has a score above 0, each attempt has one vote.

    Best for answers that can be both compared and judged. Trade-off: a frequent mistake outweighs a rare
    answer with a high score. Calls: those of `BestOf`.

    References:
        Li et al. 2023, Making Language Models Better Reasoners with Step-Aware Verifier, arXiv:2206.02336,
        section 3 (weighted voting); Snell et al. 2024, arXiv:2408.03314, section 5.1 (best-of-N weighted).
    """

    strategy: Strategy = ChainOfThought()
    """The strategy of each attempt."""

    def think(self, task: Task, at: str = "0") -> Procedure[Answer]:
        answers = yield from self.judged_attempts(task, at)
        weights = [answer.score or 0.0 if answer.text else 0.0 for answer in answers]
        return (
            yield from choose_by_vote(task, answers, "weighted_best_of", weights if any(weights) else None)
        )
