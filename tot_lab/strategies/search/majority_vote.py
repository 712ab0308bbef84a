"""An answer by majority: finished paths vote."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

from tot_lab.core.task import Task
from tot_lab.core.tree import Node, Tree
from tot_lab.strategies.search.answers import BestPath


class MajorityVote(BestPath):
    """The most frequent answer of the finished paths, from the best-scored thought that gives it.

    A leaf votes if its path holds an answer, its domain does not call the path incomplete, and the search did
    not prune it. The domain decides which answers count as the same. Of answers with equally many votes, the
    one with the best-scored thought wins. If no path is finished, the answer is that of `BestPath`.

    References:
        Wang et al. 2023, section 2 (unweighted); Li et al. 2023, DiVeRSe (weighted by a verifier).
    """

    weighted: bool = False
    """Whether each vote counts as much as the score of its thought. An unreadable score counts as 0."""

    def choose(
        self, task: Task, tree: Tree, nodes: Sequence[Node], leaves: Sequence[Node]
    ) -> tuple[str, Node | None]:
        votes: dict[Hashable, float] = defaultdict(float)
        first: dict[Hashable, tuple[str, Node]] = {}
        for node in (leaf for leaf in leaves if leaf.state != "pruned"):
            path = tree.texts(node.id)
            answer = task.domain.answer(task, path)
            if answer is not None and task.domain.complete(task, path) is not False:
                key = task.domain.same(task, answer)
                votes[key] += max(node.rank, 0.0) if self.weighted else 1.0
                first.setdefault(key, (answer, node))
        if not votes:
            return super().choose(task, tree, nodes, leaves)
        return first[max(votes, key=lambda key: votes[key])]
