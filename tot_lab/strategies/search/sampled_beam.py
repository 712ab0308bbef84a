"""Breadth-first search that draws the thoughts of the next level at random."""

from __future__ import annotations

from tot_lab.strategies.search.beam_search import BeamSearch
from tot_lab.strategies.search.searches import Pick, Searching, SearchState


class SampledBeam(BeamSearch):
    """Beam search that draws each level from the new thoughts, in proportion to their scores.

    `width` thoughts are drawn with replacement, and a thought that is drawn twice is expanded once.
    Unreadable scores count as 0. If no score is positive, nothing is drawn, and the best `width` thoughts are
    kept as in `BeamSearch`.

    References:
        Yao et al. 2023: the selection method `sample` of the published code.
    """

    def run(self, state: SearchState) -> Searching:
        random = yield state.random_numbers()
        level = [state.root]
        while level:
            children = yield Pick(level)
            weights = [max(state.tree[id].rank, 0.0) for id in children]
            if self.width is not None and sum(weights) > 0:
                drawn = set(random.choices(children, weights, k=self.width))
                yield from state.prune([id for id in children if id not in drawn], "not drawn")
                children = [id for id in children if id in drawn]
            else:
                children = yield from state.keep_best(children, self.width)
            level = state.open(children)
