"""Adaptive branching Monte Carlo tree search with node aggregation."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tot_lab.core.tree import Node
from tot_lab.strategies.search.members import Members
from tot_lab.strategies.search.sampling import Count
from tot_lab.strategies.search.searches import Pick, Search, Searching, SearchState

if TYPE_CHECKING:
    from random import Random


class Posterior:
    """The scores of one arm, and what they say about their mean."""

    def __init__(self) -> None:
        self.count, self.total, self.squares = 0, 0.0, 0.0
        self.known: dict[str, float] | None = None  # the parameters, until the next score

    def observe(self, score: float, times: int = 1) -> None:
        """Add a score, or remove it with `times=-1`."""
        self.count += times
        self.total += times * score
        self.squares += times * score * score
        self.known = None

    def parameters(self) -> dict[str, float]:
        """The parameters of the posterior."""
        if self.known is None:
            self.known = self.update()
        return self.known

    def update(self) -> dict[str, float]:
        """The parameters of the posterior, from the scores."""
        raise NotImplementedError

    def draw(self, random: Random) -> float:
        """A draw of the mean."""
        raise NotImplementedError


class Gaussian(Posterior):
    """The posterior of a normal likelihood with a normal-inverse-gamma prior.

    The prior has the mean 0 with weight 1, and the variance 0.1 with 1 degree of freedom.
    """

    def update(self) -> dict[str, float]:
        weight = 1.0 + self.count
        mean = self.total / weight
        spread = 0.1 + max(self.squares - mean * mean * weight, 0.0)
        return {"mean": mean, "weight": weight, "variance": spread / weight}

    def draw(self, random: Random) -> float:
        mean, weight, variance = (self.known or self.parameters()).values()
        # The weight is the degrees of freedom, too.
        drawn = weight * variance / 2 / random.gammavariate(weight / 2, 1.0)
        return random.gauss(mean, math.sqrt(drawn / weight))


class Beta(Posterior):
    """The posterior of a Bernoulli likelihood with the prior of Jeffreys, Beta(1/2, 1/2)."""

    def update(self) -> dict[str, float]:
        return {"a": 0.5 + self.total, "b": 0.5 + self.count - self.total}

    def draw(self, random: Random) -> float:
        return random.betavariate(*self.parameters().values())


class Arms:
    """The arms of one run.

    Attributes:
        generate: Scores of the children of each thought (the GEN node).
        proceed: Scores of the thoughts below these children (the CONT node).
        child: The score of each thought, and the scores below it.
        children: The children of each thought that its CONT node chooses among, with their arms.
    """

    def __init__(self, posterior: type[Posterior]) -> None:
        self.generate: dict[str, Posterior] = defaultdict(posterior)
        self.proceed: dict[str, Posterior] = defaultdict(posterior)
        self.child: dict[str, Posterior] = defaultdict(posterior)
        self.children: dict[str, list[tuple[Node, Posterior]]] = defaultdict(list)


class ABMCTSA(Search):
    """At each thought, draw from two posteriors whether to add a child or to descend to one, and back up the
    score of the new child.

    Each iteration adds one thought. Any thought may be expanded again, so the search itself decides how wide
    and how deep the tree becomes. Unreadable scores are backed up as 0. If the proposer is a `Mixture`, one
    more draw per member decides which model makes the child, from the scores of all thoughts that each has
    made (Multi-LLM AB-MCTS).

    An iteration takes one draw for each child of the thoughts on its way, so its time grows with the width of
    the tree. If the children of one thought make up a constant share of the tree, the time of all iterations
    grows with their square.

    References:
        Inoue et al. 2025, Wider or Deeper?, arXiv:2503.04412, AB-MCTS-A; Murphy 2023, Probabilistic Machine
        Learning: Advanced Topics, section 3.4.3.3, for the update of the normal-inverse-gamma prior.
    """

    kind: ClassVar[str] = "ab_mcts_a"
    scale: ClassVar[str] = "iterations"

    posterior: Literal["gaussian", "beta"] = "gaussian"
    """The likelihood of scores, with its conjugate prior."""

    iterations: Count = 30
    """Thoughts that the search adds."""

    def run(self, state: SearchState) -> Searching:
        random = yield state.random_numbers()
        posterior = Beta if self.posterior == "beta" else Gaussian
        arms, members = Arms(posterior), Members(state, posterior)

        def drawn(scores: dict[str, Posterior]) -> dict[str, float]:
            return {name: arm.draw(random) for name, arm in scores.items()}

        for _ in range(self.iterations):
            parent, why = select(state, arms, random)
            member = members.choose(drawn, why[parent])
            known = len(state.tree[parent].children)
            children = yield Pick([parent], 1, member, why)
            fresh = state.tree[parent].children[known:]
            update(state, arms, children, fresh)
            members.update(fresh)

    def max_expansions_by_count(self, branch: int, depth: int) -> list[tuple[int, int]]:
        return [(1, self.iterations)]

    def max_picks(self, branch: int, depth: int) -> int:
        return self.iterations


def select(state: SearchState, arms: Arms, random: Random) -> tuple[str, dict[str, dict[str, Any]]]:
    """Descend by Thompson sampling to the thought that gets a child. Returns it with the draws on the way.

    A thought without children draws as well, so that the random numbers are used as by the authors' package.
    """
    id, why = state.root, dict[str, dict[str, Any]]()
    while True:
        one, other = arms.generate[id], arms.proceed[id]
        generate, proceed = one.draw(random), other.draw(random)
        terms = why.setdefault(id, {})
        terms["generate"], terms["continue"] = generate, proceed
        terms.update((f"generate {name}", value) for name, value in one.parameters().items())
        terms.update((f"continue {name}", value) for name, value in other.parameters().items())
        if generate >= proceed:
            return id, why
        drawn = [(arm.draw(random), node) for node, arm in arms.children[id] if node.state != "pruned"]
        if not drawn:
            return id, why
        best, node = max(drawn, key=itemgetter(0))  # max takes the first of equals
        id = node.id
        why[id] = {"drawn": best, **arms.child[id].parameters()}


def update(state: SearchState, arms: Arms, children: Iterable[str], fresh: Iterable[str]) -> None:
    """Back up the scores of new thoughts, and those that a person changed.

    `children` may be expanded, the other `fresh` ones were dropped.
    """
    for id, old in state.rescored.items():
        if id in arms.child:
            back_up(state, arms, id, old, times=-1)
            back_up(state, arms, id, state.tree[id].rank)
    for node in map(state.tree.__getitem__, state.open(children)):
        arms.children[node.parent or state.root].append((node, arms.child[node.id]))
    for id in dict.fromkeys([*children, *fresh]):
        if state.tree[id].by:
            back_up(state, arms, id, state.tree[id].rank)


def back_up(state: SearchState, arms: Arms, id: str, rank: float, times: int = 1) -> None:
    """Add the score of a thought to the arms that lead to it: GEN at its parent, CONT further above."""
    score, path = max(rank, 0.0), [node.id for node in state.tree.path(id)]
    arms.generate[path[-2]].observe(score, times)
    arms.child[id].observe(score, times)
    for above, node in pairwise(path[:-1]):
        arms.proceed[above].observe(score, times)
        arms.child[node].observe(score, times)
