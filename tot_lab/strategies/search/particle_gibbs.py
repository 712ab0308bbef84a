"""Particle Gibbs: particle filters, each conditioned on a path that the previous filter has found."""

from __future__ import annotations

from typing import ClassVar

from tot_lab.strategies.search.particle_filter import ParticleFilter, filter_particles, odds
from tot_lab.strategies.search.sampling import Count
from tot_lab.strategies.search.searches import Searching, SearchState


class ParticleGibbs(ParticleFilter):
    """Particle Gibbs: repeated particle filters, each with one retained path of the previous filter.

    The first iteration is a particle filter. Each further iteration draws a reference path from the final
    particles of the previous iteration, in proportion to their weights, and runs a filter with one particle
    fewer, whose place the reference takes. The reference takes part in each draw with its thought and score
    at that depth. A copy of the reference is continued with new steps.

    The final particles of all iterations vote in `MajorityVote`.

    Two published implementations weigh the reference differently: its-hub 1.2 with its final score at every
    depth, and the code of the paper with the score of the following depth.

    References:
        Puri et al. 2025, arXiv:2502.01618, Algorithm 2; Andrieu et al. 2010 (conditional particle filter).
    """

    scale: ClassVar[str] = "iterations"

    iterations: Count = 2
    """Particle filters, the first one included."""

    def run(self, state: SearchState) -> Searching:
        random = yield state.random_numbers()
        particles = yield from filter_particles(state, random, self.particles)
        for _ in range(self.iterations - 1):
            if not particles or self.particles == 1:
                return
            (last,) = random.choices(particles, odds(state, particles))
            reference = [node.id for node in state.tree.path(last)[1:]]
            particles = yield from filter_particles(state, random, self.particles - 1, reference)

    def max_expansions_by_count(self, branch: int, depth: int) -> list[tuple[int, int]]:
        most = super().max_expansions_by_count(branch, depth)
        others, free = self.iterations - 1, self.particles - 1
        return [*most, (free, others), (1, others * (depth - 1) * free)]

    def max_picks(self, branch: int, depth: int) -> int:
        return self.iterations * depth
