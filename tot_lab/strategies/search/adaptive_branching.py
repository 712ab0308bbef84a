"""The base of both AB-MCTS searches: the scores of their bandit arms, the choice of a member of a `Mixture`
by Thompson sampling (which model makes the next thought), and the loop that adds one thought per iteration.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from tot_lab.core.tree import Node
from tot_lab.strategies.search.proposers import Proposer
from tot_lab.strategies.search.sampling import Count
from tot_lab.strategies.search.searches import LIMIT_OF_ITERATIONS, Pick, Search, Searching, SearchState

if TYPE_CHECKING:
    from random import Random


class Posterior:
    """The scores of one bandit arm, and the posterior of its mean score given them."""

    def __init__(self) -> None:
        self.count, self.total, self.squares = 0, 0.0, 0.0
        self.known: dict[str, float] | None = None  # cached parameters; `observe` clears them

    def observe(self, score: float, times: int = 1) -> None:
        """Add a score, or remove it with `times=-1`."""
        self.count += times
        self.total += times * score
        self.squares += times * score * score
        self.known = None

    def parameters(self) -> dict[str, float]:
        """The parameters of the posterior, cached until a score is added or removed."""
        if self.known is None:
            self.known = self.update()
        return self.known

    def update(self) -> dict[str, float]:
        """Compute the parameters of the posterior from the scores."""
        raise NotImplementedError

    def draw(self, random: Random) -> float:
        """Draw a mean score from the posterior."""
        raise NotImplementedError


class Members:
    """The members of the proposer, and the scores of the thoughts that each has made anywhere in the tree.

    A proposer that is not a `Mixture` is its only member, so that there is nothing to choose.

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

        Returns `None`, which means the proposer of the search, if there is only one member.
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


Selected: TypeAlias = tuple[str, dict[str, dict[str, Any]]]
"""The id of the thought that gets a child, and the draws at each thought on the way to it, by id."""


class Arms:
    """The bandit arms of one run, by the id of a thought.

    Attributes:
        generate: Scores of the children of each thought (the GEN node).
        proceed: Scores of the thoughts below these children (the CONT node).
        child: Scores of each thought and of all thoughts below it.
        children: The children of each thought that its CONT node chooses among, with their `child` arms.
    """

    def __init__(self, state: SearchState, posterior: Callable[[], Posterior]) -> None:
        self.state = state
        self.generate: dict[str, Posterior] = defaultdict(posterior)
        self.proceed: dict[str, Posterior] = defaultdict(posterior)
        self.child: dict[str, Posterior] = defaultdict(posterior)
        self.children: dict[str, list[tuple[Node, Posterior]]] = defaultdict(list)

    def back_up(self, id: str, rank: float, times: int = 1) -> None:
        """Add the score of a thought to the arms that lead to it: GEN at its parent, CONT at the other
        ancestors, and the `child` arm of each thought on its path."""
        score, path = max(rank, 0.0), [node.id for node in self.state.tree.path(id)]
        self.generate[path[-2]].observe(score, times)
        self.child[id].observe(score, times)
        for above, node in pairwise(path[:-1]):
            self.proceed[above].observe(score, times)
            self.child[node].observe(score, times)

    def rescored(self, id: str, old: float) -> None:
        """Replace the score that was backed up from a thought."""
        if id in self.child:
            self.back_up(id, old, times=-1)
            self.back_up(id, self.state.tree[id].rank)


class AdaptiveBranching(Search):
    """Adds one thought per iteration, at the thought to which Thompson sampling descends.

    If the proposer is a `Mixture`, Thompson sampling also chooses which of its members makes the thought.
    """

    kind: ClassVar[str] = ""
    scale: ClassVar[str] = "iterations"

    iterations: Count = 30
    """Iterations, each of which adds one thought."""

    @abstractmethod
    def arm(self) -> Posterior:
        """Return an arm without scores."""

    @abstractmethod
    def select(self, state: SearchState, arms: Arms, random: Random) -> Selected:
        """Descend to the thought that gets a child."""

    @abstractmethod
    def draws(self, scores: Mapping[str, Posterior], random: Random) -> dict[str, float]:
        """Draw a score for each member of a mixture."""

    def run(self, state: SearchState) -> Searching:
        random = yield state.random_numbers()
        arms = state.remember(Arms(state, self.arm))
        members = state.remember(Members(state, self.arm))
        for _ in range(self.iterations):
            parent, why = self.select(state, arms, random)
            member = members.choose(partial(self.draws, random=random), why[parent])
            known = len(state.tree[parent].children)
            children = yield Pick([parent], 1, member, why)
            fresh = state.tree[parent].children[known:]
            update(state, arms, children, fresh)
            members.update(fresh)
        return LIMIT_OF_ITERATIONS

    def max_expansions_by_count(self, branch: int, depth: int) -> list[tuple[int, int]]:
        return [(1, self.iterations)]

    def max_picks(self, branch: int, depth: int) -> int:
        return self.iterations


def update(state: SearchState, arms: Arms, children: Iterable[str], fresh: Iterable[str]) -> None:
    """Back up the scores of the new thoughts: `children`, and those in `fresh` that the search did not
    receive, since they were merged or pruned."""
    for node in map(state.tree.__getitem__, state.open(children)):
        arms.children[node.parent or state.root].append((node, arms.child[node.id]))
    for id in dict.fromkeys([*children, *fresh]):
        if state.tree[id].by:
            arms.back_up(id, state.tree[id].rank)
