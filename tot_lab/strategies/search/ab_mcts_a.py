"""Adaptive branching Monte Carlo tree search with node aggregation (AB-MCTS-A)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tot_lab.strategies.search.adaptive_branching import AdaptiveBranching, Arms, Posterior, Selected
from tot_lab.strategies.search.searches import SearchState

if TYPE_CHECKING:
    from random import Random


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
        # `weight` also is the number of degrees of freedom.
        drawn = weight * variance / 2 / random.gammavariate(weight / 2, 1.0)
        return random.gauss(mean, math.sqrt(drawn / weight))


class Beta(Posterior):
    """The posterior of a Bernoulli likelihood with the prior of Jeffreys, Beta(1/2, 1/2)."""

    def update(self) -> dict[str, float]:
        return {"a": 0.5 + self.total, "b": 0.5 + self.count - self.total}

    def draw(self, random: Random) -> float:
        return random.betavariate(*self.parameters().values())


class ABMCTSA(AdaptiveBranching):
    """At each thought, draw from two posteriors whether to add a child or to descend to one, and back up the
    score of the new child.

    Each iteration adds one thought. Any thought may be expanded again, so the search itself decides how wide
    and how deep the tree becomes. Unreadable scores are backed up as 0. If the proposer is a `Mixture`, one
    more draw per member decides which member makes the child. Each draw is from the posterior of the scores
    of all thoughts that the member has made (Multi-LLM AB-MCTS).

    An iteration draws once for each child of the thoughts on its way down, so its time grows with the
    width of the tree. If the children of one thought make up a constant share of the tree, the total time
    grows with the square of the number of iterations.

    References:
        Inoue et al. 2025, Wider or Deeper?, arXiv:2503.04412, AB-MCTS-A; Murphy 2023, Probabilistic Machine
        Learning: Advanced Topics, section 3.4.3.3, for the update of the normal-inverse-gamma prior.
    """

    kind: ClassVar[str] = "ab_mcts_a"

    posterior: Literal["gaussian", "beta"] = "gaussian"
    """The posterior of a mean score: `gaussian` (normal likelihood, normal-inverse-gamma prior) or `beta`
    (Bernoulli likelihood, beta prior)."""

    def arm(self) -> Posterior:
        return Beta() if self.posterior == "beta" else Gaussian()

    def select(self, state: SearchState, arms: Arms, random: Random) -> Selected:
        return select(state, arms, random)

    def draws(self, scores: Mapping[str, Posterior], random: Random) -> dict[str, float]:
        return {name: arm.draw(random) for name, arm in scores.items()}


def select(state: SearchState, arms: Arms, random: Random) -> Selected:
    """Descend by Thompson sampling to the thought that gets a child. Returns it with the draws on the way.

    Both posteriors are drawn even at a thought without children, as by the authors' package treequest, so
    that the same random numbers lead to the same choices.
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
