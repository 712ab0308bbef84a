"""The choice between the members of a mixture by Thompson sampling: which model makes the next thought."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tot_lab.strategies.search.posterior import Posterior
from tot_lab.strategies.search.proposers import Proposer
from tot_lab.strategies.search.searches import SearchState


class Members:
    """The members of the proposer, each with the scores of the thoughts that it made anywhere in the tree.

    A proposer that is not a mixture is its only member, and nothing is drawn for it.

    References:
        Inoue et al. 2025, arXiv:2503.04412, Multi-LLM AB-MCTS; treequest 0.3, the strategy
        `multiarm_bandit_thompson`.
    """

    def __init__(self, state: SearchState, posterior: Callable[[], Posterior]) -> None:
        self.state = state
        self.proposers = state.strategy.propose.members
        self.scores = {name: posterior() for name in self.proposers}
        self.makers: dict[str, str] = {}  # the member that made a thought
        self.chosen = next(iter(self.proposers))

    def choose(
        self, draw: Callable[[dict[str, Posterior]], dict[str, float]], terms: dict[str, Any]
    ) -> Proposer | None:
        """Return the member with the highest draw, and add the draws to `terms`, the recorded reasons.

        `None` is the proposer of the search, if it is the only member.
        """
        if len(self.proposers) == 1:
            return None
        drawn = draw(self.scores)
        self.chosen = max(drawn, key=drawn.__getitem__)
        terms |= {"member": self.chosen, **{f"{name} drawn": value for name, value in drawn.items()}}
        return self.proposers[self.chosen]

    def update(self, fresh: Iterable[str]) -> None:
        """Add the scores of `fresh` thoughts to the chosen member. Grafted thoughts belong to no member."""
        state = self.state
        for id in fresh:
            if state.tree[id].by and id not in state.grafted:
                self.makers[id] = self.chosen
                self._observe(id, state.tree[id].rank)

    def rescored(self, id: str, old: float) -> None:
        """Replace the score of a thought that a member has made."""
        if id in self.makers:
            self._observe(id, old, times=-1)
            self._observe(id, self.state.tree[id].rank)

    def _observe(self, id: str, rank: float, times: int = 1) -> None:
        self.scores[self.makers[id]].observe(max(rank, 0.0), times)
