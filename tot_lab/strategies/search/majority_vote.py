"""Answer rule: a majority vote of the finished paths."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Annotated

from pydantic import Field

from tot_lab.core.task import Task
from tot_lab.core.tree import Node, Tree
from tot_lab.strategies.confidence import quantile
from tot_lab.strategies.search.answers import BestPath, finished


class MajorityVote(BestPath):
    """The most frequent answer of the finished paths, from the best-scored thought that gives it.

    A leaf votes if its path contains an answer, the domain does not call the path incomplete, and the leaf is
    not pruned. A finished particle of `ParticleFilter` votes once per copy. The domain decides which
    answers count as the same. Of answers with equally many votes, the one with the best-scored thought wins.
    If no path is finished, the answer is that of `BestPath`.

    With `SelfCertainty`, `MajorityVote(weighted=True, top=0.1)` is the vote of DeepConf.

    References:
        Wang et al. 2023, section 2 (unweighted); Li et al. 2023, DiVeRSe (weighted by a verifier); Fu et al.
        2025, arXiv:2508.15260, section 3.2 (the most confident vote).
    """

    weighted: bool = False
    """Whether the weight of a vote is the score of its thought. An unreadable score counts as 0. If no score
    is above 0, all votes have the same weight."""

    top: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The share of the finished paths that have a vote: those with the best scores. If it is below 1, paths
    with an unreadable score have no vote, unless no score is readable."""

    def choose(
        self, task: Task, tree: Tree, nodes: Sequence[Node], leaves: Sequence[Node]
    ) -> tuple[str, Node | None]:
        voters = finished(task, tree, leaves)
        if not voters:
            return super().choose(task, tree, nodes, leaves)
        scores = [node.score for _, node in voters if node.score is not None]
        if self.top < 1 and scores:
            bar = quantile(scores, 1 - self.top)
            voters = [(answer, node) for answer, node in voters if node.rank >= bar]
        weighted = self.weighted and any(scores)
        votes: dict[Hashable, float] = defaultdict(float)
        first: dict[Hashable, tuple[str, Node]] = {}
        for answer, node in voters:
            key = task.domain.same(task, answer)
            votes[key] += max(node.rank, 0.0) if weighted else 1.0
            first.setdefault(key, (answer, node))
        return first[max(votes, key=lambda key: votes[key])]
