"""Budget-guided Monte Carlo tree search: wide while the budget lasts, deep when it runs out."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar

from pydantic import Field

from tot_lab.core.protocol import Budget, BudgetLeft
from tot_lab.core.tree import Node
from tot_lab.strategies.search.sampling import Count
from tot_lab.strategies.search.searches import LIMIT_OF_ITERATIONS, Pick, Search, Searching, SearchState
from tot_lab.strategies.search.statistics import Statistics

Weight = Annotated[float, Field(ge=0)]
TERMS = ("visits", "value", "completion", "exploration")


class Findings(Statistics):
    """The state of one run. The visits of a thought are the number of thoughts at and below it.

    Attributes:
        depths: Sum of the depths of the thoughts at and below each thought.
        answers: The number of finished thoughts, and the sum of their depths.
        deepest: The greatest depth so far.
        families: The statistics of the children of each thought, cached until a score changes.
    """

    def __init__(self, state: SearchState) -> None:
        super().__init__(state)
        self.depths: dict[str, int] = {}
        self.answers = (0, 0)
        self.deepest = 1
        self.families: dict[str, Family] = {}

    @property
    def answer_depth(self) -> float:
        """The mean depth of finished thoughts, or the greatest depth before there is one."""
        count, total = self.answers
        return total / count if count else self.deepest

    def family(self, parent: str) -> Family:
        """The statistics of the children of a thought."""
        if parent not in self.families:
            tree = self.state.tree
            scores = {id: max(tree[id].rank, 0.0) for id in tree[parent].children if id in self.visits}
            open = [tree[id] for id in self.open.get(parent, ()) if id in scores]
            self.families[parent] = Family(scores, open)
        return self.families[parent]

    def back_up(self, id: str, value: float) -> None:
        """Add the value and the depth of a new thought to it and all its ancestors."""
        super().back_up(id, value)
        path = self.state.tree.path(id)
        for node in path:
            self.depths[node.id] = self.depths.get(node.id, 0) + path[-1].depth

    def rescored(self, id: str, old: float) -> None:
        """Replace the value that was backed up from a thought."""
        super().rescored(id, old)
        self.families.clear()


class Family:
    """The scores of the children of one thought.

    Attributes:
        mean: The mean of the scores.
        variance: The variance of the scores.
        priors: The children that may be expanded, each with its probability in a softmax of all scores.
    """

    def __init__(self, scores: dict[str, float], open: Iterable[Node]) -> None:
        count = max(len(scores), 1)
        self.mean = sum(scores.values()) / count
        self.variance = sum((score - self.mean) ** 2 for score in scores.values()) / count
        weights = {id: math.exp(score) for id, score in scores.items()}
        total = sum(weights.values())
        self.priors = [(node, weights[node.id] / total) for node in open]
        self.is_empty = not scores


class BGMCTS(Search):
    """PUCT whose exploration fades as the budget is spent, while depth gains weight. At each thought, the
    best child competes with the expected value of a further child.

    The remaining share of the budget is that of the scarcest limit (calls, tokens, USD or seconds), counted
    from the start of the search. Without a limit it stays 1. The first pick of a thought adds as many
    children as the proposer makes, and each further pick adds one. Unreadable scores count as 0.

    A pick takes time in proportion to the number of children of the thoughts that it passes.

    The published code differs: it counts no visits of the root, so that its children get no exploration
    term, and a finished thought has the depth 0 and may be expanded.

    References:
        Miyamoto et al. 2026, Aligning Tree-Search Policies with Fixed Token Budgets, arXiv:2602.09574,
        section 3 (BG-PUCT, completion bias, generative child). The equations were taken from the authors'
        code and a summary of the paper.
    """

    kind: ClassVar[str] = "bg_mcts"
    scale: ClassVar[str] = "iterations"

    exploration: Weight = math.sqrt(2)
    """Weight of the exploration term (`c` in the paper)."""

    completion: Weight = 1.0
    """Weight κ of the completion bias: mean depth at and below a thought over mean depth of answers."""

    widening: Weight = 1.0
    """Weight λ of the variance of the children's scores in the value of a further child."""

    iterations: Count = 30
    """The most picks."""

    def run(self, state: SearchState) -> Searching:
        findings = state.remember(Findings(state))
        whole = left = yield BudgetLeft()
        for number in range(self.iterations):
            if number > 0:
                left = yield BudgetLeft()
            parent, why = self._select(state, findings, share_left(left, whole))
            known = len(state.tree[parent].children)
            children = yield Pick([parent], 1 if known else None, why=why)
            add(state, findings, children, state.tree[parent].children[known:])
        return LIMIT_OF_ITERATIONS

    def max_expansions(self, branch: int, depth: int) -> int:
        return self.iterations

    def _select(self, state: SearchState, findings: Findings, left: float) -> tuple[str, dict[str, Any]]:
        """Descend to the thought that gets a child. Returns it with the terms of all choices on the way."""
        id, why = state.root, dict[str, dict[str, Any]]()
        while True:
            family = findings.family(id)
            terms = why.setdefault(id, {})
            terms["budget left"] = left
            if family.is_empty:
                return id, why
            generate = terms["generate"] = family.mean + self.widening * left * family.variance
            best = self._best(findings, family, id, left)
            if best is None or generate >= sum(best[1:]):
                return id, why
            id, *values = best
            why[id] = dict(zip(TERMS, [findings.visits[id], *values], strict=True))

    def _best(
        self, findings: Findings, family: Family, parent: str, left: float
    ) -> tuple[str, float, float, float] | None:
        """The child with the largest BG-PUCT, the first of equals, with its terms: mean value, completion
        bias, and exploration. `None` if no child can be expanded.
        """
        visits, totals, depths = findings.visits, findings.totals, findings.depths
        logarithm, answer_depth = math.log(max(visits[parent], 1)), findings.answer_depth
        completion, best, most = self.completion * (1 - left), None, -math.inf
        for node, prior in family.priors:
            if node.state == "pruned":
                continue
            id = node.id
            count = visits[id]
            value = totals[id] / count
            bias = completion * (depths[id] / count) / answer_depth
            bonus = left * prior * (self.exploration * math.sqrt(logarithm / count))
            if best is None or value + bias + bonus > most:
                most, best = value + bias + bonus, (id, value, bias, bonus)
        return best


def share_left(left: Budget, whole: Budget) -> float:
    """The share of the scarcest limit that is left, or 1 without a limit."""
    limits = [(getattr(left, name), getattr(whole, name)) for name in Budget.model_fields]
    shares = [now / first if first else 0.0 for now, first in limits if now is not None and first is not None]
    return min([1.0, *shares])


def add(state: SearchState, findings: Findings, children: Iterable[str], fresh: Iterable[str]) -> None:
    """Back up the scores of the new thoughts: `children`, and those in `fresh` that the search did not
    receive, since they were merged or pruned."""
    for id in state.open(children):
        findings.open.setdefault(state.tree[id].parent or state.root, []).append(id)
    for id in dict.fromkeys([*children, *fresh]):
        node = state.tree[id]
        if not node.by:
            continue
        findings.families.pop(node.parent or state.root, None)
        findings.back_up(id, max(node.rank, 0.0))
        findings.deepest = max(findings.deepest, node.depth)
        if id in state.closed and state.complete(id) is not False:
            count, total = findings.answers
            findings.answers = (count + 1, total + node.depth)
