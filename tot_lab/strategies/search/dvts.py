"""Diverse verifier tree search: greedy searches in subtrees that do not compete."""

from __future__ import annotations

from typing import ClassVar

from tot_lab.core.records import id_key
from tot_lab.strategies.search.sampling import Count
from tot_lab.strategies.search.searches import Pick, Search, Searching, SearchState


class DVTS(Search):
    """Diverse verifier tree search (DVTS): each of N / M independent subtrees continues its best step.

    N / M is `subtrees`, M is `count`. The N first steps are divided among the subtrees in the order of
    proposal. A subtree ends when its best step finishes the path.

    The published code differs: it drops a subtree that gets fewer than M steps, and it returns all M steps of
    a subtree's last level, finished or not. Here a subtree continues with the steps that it gets, and the
    steps that it does not choose are pruned.

    References:
        Beeching et al. 2024, Scaling test-time compute with open models, section on DVTS.
    """

    kind: ClassVar[str] = "dvts"
    scale: ClassVar[str] = "subtrees"

    subtrees: Count = 2
    """Independent subtrees: N / M."""

    count: Count = 4
    """Next steps proposed in each subtree per level: M."""

    def run(self, state: SearchState) -> Searching:
        subtree: dict[str, int] = {}
        children = yield Pick([state.root], self.subtrees * self.count)
        while children:
            steps: dict[int, list[str]] = {}
            for id in children:
                parent = state.tree[id].parent or ""
                subtree[id] = subtree.get(parent, id_key(id)[-1] // self.count)
                steps.setdefault(subtree[id], []).append(id)
            chosen: list[str] = []
            for number in sorted(steps):
                chosen += yield from state.keep_best(steps[number], 1)
            going_on = state.open(chosen)
            why = {id: {"subtree": subtree[id], "score": state.tree[id].score} for id in going_on}
            children = yield Pick(going_on, self.count, why=why)

    def max_expansions_by_count(self, branch: int, depth: int) -> list[tuple[int, int]]:
        return [(self.subtrees * self.count, 1), (self.count, (depth - 1) * self.subtrees)]

    def max_picks(self, branch: int, depth: int) -> int:
        return depth
