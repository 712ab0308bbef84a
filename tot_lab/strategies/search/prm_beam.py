"""Beam search on the step scores of a reward model."""

from __future__ import annotations

from typing import ClassVar

from tot_lab.core.records import id_key
from tot_lab.strategies.search.sampling import Count
from tot_lab.strategies.search.searches import Pick, Search, Searching, SearchState


class PRMBeam(Search):
    """Beam search on step scores: of N candidates per level, N / M are kept and continued M times each.

    M is `count`, N / M is `width`. A finished candidate is set aside: it is never pruned and does not count
    among the N / M. If fewer than N / M unfinished candidates are left, the N next steps are divided evenly
    among them, and the first ones get the remainder. The search ends when none can be continued.

    The published code of Beeching et al. differs: it counts a step that ends at `max_tokens` as finished, and
    it completes all candidates of its last level. `Continue(finish=True)` completes the best one, and only if
    none is finished. The beam of its-hub differs more: a finished candidate counts among the N / M kept.

    References:
        Snell et al. 2024, arXiv:2408.03314, section 5.2; Beeching et al. 2024, Scaling test-time compute with
        open models.
    """

    kind: ClassVar[str] = "prm_beam"
    scale: ClassVar[str] = "width"

    width: Count = 2
    """Unfinished candidates kept per level: N / M."""

    count: Count = 4
    """Next steps proposed for each kept candidate: M."""

    def run(self, state: SearchState) -> Searching:
        total = self.width * self.count
        place = {state.root: 0}
        children = yield Pick([state.root], total)
        while going_on := state.open(children):
            kept = yield from state.keep_best(going_on, self.width)
            # The first candidates get the remainder. "First" is the order of the published code, which lists
            # the first step of each candidate, then the second of each, and so on.
            in_rounds = sorted(
                kept, key=lambda id: (id_key(id)[-1], place.get(state.tree[id].parent or "", 0))
            )
            place = {id: number for number, id in enumerate(in_rounds)}
            each, more = divmod(total, len(kept))
            counts = [each + (place[id] < more) for id in kept]
            why = {id: {"score": state.tree[id].score} for id in kept}
            children = yield Pick(kept, counts, why=why)

    def max_expansions_by_count(self, branch: int, depth: int) -> list[tuple[int, int]]:
        return [(self.width * self.count, 1), (self.count, (depth - 1) * self.width)]

    def max_picks(self, branch: int, depth: int) -> int:
        return depth
