"""Answer rule: the finished path that was proposed first."""

from __future__ import annotations

from collections.abc import Sequence

from tot_lab.core.task import Task
from tot_lab.core.tree import Node, Tree
from tot_lab.strategies.search.answers import BestPath, finished


class FirstComplete(BestPath):
    """The answer of the finished path that was proposed first, whatever its score.

    Paths count as finished as in `MajorityVote`. If no path is finished, the answer is that of `BestPath`.
    """

    def choose(
        self, task: Task, tree: Tree, nodes: Sequence[Node], leaves: Sequence[Node]
    ) -> tuple[str, Node | None]:
        found = finished(task, tree, leaves)
        if not found:
            return super().choose(task, tree, nodes, leaves)
        return min(found, key=lambda pair: pair[1].order)
