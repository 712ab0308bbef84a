"""Thoughts improved in place: a rewritten version stands beside the thought that it improves."""

from __future__ import annotations

from collections.abc import Sequence

from tot_lab.core.records import Event
from tot_lab.core.task import Path, Task
from tot_lab.core.thinking import Thinking
from tot_lab.strategies.search.children import Children
from tot_lab.strategies.search.place import Place
from tot_lab.strategies.search.proposers import Proposer, Sample
from tot_lab.strategies.search.sampling import Sampler


class Refine(Proposer):
    """Rewrites thoughts at their position of the path.

    A search picks the parent of the thought together with the thought: `Pick([(parent, id)], 1,
    proposer=Refine())`. The children are siblings of `id` and name it as their source. Their path is
    therefore that of `id` with the last step replaced. `id` may be complete. The children of any other
    thought are new ones, made by `proposer`.

    References:
        Besta et al. 2024, Graph of Thoughts, arXiv:2308.09687, section 3.2 (refining); Madaan et al. 2023,
        Self-Refine, arXiv:2303.17651.
    """

    proposer: Proposer = Sample()
    """Makes and rewrites the thoughts."""

    @property
    def members(self) -> dict[str, Proposer]:
        return {name: self.with_(proposer=member) for name, member in self.proposer.members.items()}

    def max_children(self) -> int:
        return self.proposer.max_children()

    def max_calls(self, count: int) -> int:
        return self.proposer.max_calls(count)

    def with_sources(self, task: Task, paths: Sequence[Path]) -> Task:
        drafts = [f"A first version of the next step:\n{path[-1]}" for path in paths if path]
        return task.with_context(
            *drafts, "Write a better version of the next step: correct what is wrong in it."
        )

    def grow(self, sampler: Sampler, place: Place, count: int, children: Children) -> Thinking[list[Event]]:
        return self.proposer.grow(sampler, place, count, children)
