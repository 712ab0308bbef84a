"""Thoughts improved in place: a rewritten version is a sibling of the thought that it improves."""

from __future__ import annotations

from collections.abc import Sequence

from tot_lab.core.task import Path, Task
from tot_lab.strategies.search.proposers import Around, Proposer, Sample


class Refine(Around):
    """Rewrites thoughts in place: a new version has the same position in the path.

    A search picks the parent of the thought together with the thought: `Pick([(parent, id)], 1,
    proposer=Refine())`. The children are siblings of `id` and record it as their source. Their path is
    therefore that of `id` with the last step replaced. `id` may be complete. A pick of a single id makes new
    children with `proposer`.

    References:
        Besta et al. 2024, Graph of Thoughts, arXiv:2308.09687, section 3.2 (refining); Madaan et al. 2023,
        Self-Refine, arXiv:2303.17651.
    """

    proposer: Proposer = Sample()
    """Makes and rewrites the thoughts."""

    def with_sources(self, task: Task, paths: Sequence[Path]) -> Task:
        drafts = [f"A first version of the next step:\n{path[-1]}" for path in paths if path]
        return task.with_context(
            *drafts, "Write a better version of the next step: correct what is wrong in it."
        )
