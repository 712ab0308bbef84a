"""Particle filtering: thoughts are drawn in proportion to their weights instead of being ranked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from tot_lab.core.records import Note
from tot_lab.strategies.search.sampling import Count
from tot_lab.strategies.search.searches import Pick, Search, Searching, SearchState

if TYPE_CHECKING:
    from random import Random

CLIP = 1e-7
"""Least distance of a reward from 0 and 1, so that its log-odds are finite."""


class ParticleFilter(Search):
    """Particle filtering: after each step, all particles are drawn anew in proportion to their weights.

    A particle is a path, identified by its last thought. The weights are a softmax of the log-odds of the
    scores, so each is proportional to score / (1 - score). An unfinished thought that is drawn k times is
    expanded into k children, and one that is not drawn is pruned. Finished particles stay in the population:
    they keep their weight, and each draw of one is a copy. The search ends when all particles are finished.

    Children must be independent samples (`Sample`). An unreadable score counts as a reward of 0. In
    `MajorityVote`, a finished particle has one vote for each of its copies at the end; other answer rules
    ignore copies. A note `tot.particles` records the final population. If the search is stopped before its
    end, each thought has one vote.

    References:
        Puri et al. 2025, arXiv:2502.01618, Algorithm 1. The package its-hub 1.2 differs in one step: it draws
        once more when all particles are finished, which can lose the best one.
    """

    scale: ClassVar[str] = "particles"

    particles: Count = 4
    """The number of particles."""

    def run(self, state: SearchState) -> Searching:
        random = yield state.random_numbers()
        yield from filter_particles(state, random, self.particles)

    def max_expansions_by_count(self, branch: int, depth: int) -> list[tuple[int, int]]:
        return [(self.particles, 1), (1, (depth - 1) * self.particles)]

    def max_shared(self) -> int:
        return self.particles

    def max_picks(self, branch: int, depth: int) -> int:
        return depth


def filter_particles(
    state: SearchState, random: Random, count: int, reference: Sequence[str] = ()
) -> Generator[Any, Any, list[str]]:
    """Run one filter from the root, and return its particles when all are finished.

    Args:
        state: The search.
        random: Draws the particles.
        count: The number of particles, without the reference.
        reference: The thoughts of a path that is retained even if it is not drawn. Its thought at the current
            depth takes part in each draw.
    """
    particles: list[str] = yield Pick([state.root], count)
    depth = 1
    while state.open(particles):
        retained = reference[:depth][-1:]
        population = [*particles, *retained]
        weights = odds(state, population)
        total = sum(weights)
        drawn = random.choices(population, weights, k=count)
        copies = Counter(drawn)
        lost = dict.fromkeys(id for id in particles if id not in copies and id not in retained)
        yield from state.prune(lost, "not drawn")
        why = {id: {"weight": 0.0, "copies": copies[id]} for id in population}
        for id, weight in zip(population, weights, strict=True):  # the weights of copies add up
            why[id]["weight"] += weight / total
        parents = state.open(copies)
        counts = [copies[id] for id in parents]
        children = (yield Pick(parents, counts, why=why)) if parents else []
        particles = advance(state, drawn, children)
        depth += 1
    particles = [*particles, *reference[-1:]]
    held = Counter(particles)
    state.copies += held
    yield Note("tot.particles", state.root, {"copies": dict(held)})
    return particles


def odds(state: SearchState, particles: Sequence[str]) -> list[float]:
    """The weight of each particle, score / (1 - score): the exponential of its log-odds."""
    rewards = [min(max(state.tree[id].rank, CLIP), 1 - CLIP) for id in particles]
    return [reward / (1 - reward) for reward in rewards]


def advance(state: SearchState, drawn: Sequence[str], children: Sequence[str]) -> list[str]:
    """The particles after a step: each finished particle as drawn, and one child for each other particle.

    A particle whose step failed is dropped. A thought that a person added is a further particle.
    """
    below: dict[str, list[str]] = {}
    for id in reversed(children):
        below.setdefault(state.tree[id].parent or "", []).append(id)
    particles = []
    for id in drawn:
        if id in state.closed:
            particles.append(id)
        elif below.get(id):
            particles.append(below[id].pop())
    return particles + [id for ids in below.values() for id in reversed(ids)]
