"""Scores by consistency: how many of the sampled siblings of a thought agree with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import ClassVar, Literal

from tot_lab.core.protocol import Procedure
from tot_lab.core.records import Event, Scored, Thought
from tot_lab.core.task import Path, Task
from tot_lab.strategies.search.answers import finished_answer
from tot_lab.strategies.search.evaluators import Evaluator
from tot_lab.strategies.search.sampling import Expansion, Sampler, emit_as_list, no_score


class Agreement(Evaluator):
    """Scores each thought by the share of all sampled children of its parent that agree with it, the thought
    itself included. This evaluator makes no calls.

    Finished paths agree if the domain says that their answers are the same. Other paths agree if they reach
    the same state of the domain, or in a domain without states if the texts of their last steps are equal,
    ignoring case and spacing. `raw` is the number of samples that agree. A single sample has no score, and a
    note `score.missing` says so. If a thought is expanded again, its earlier children count as samples and
    keep their scores.

    Children must be independent samples (`Sample`, `Continue`): a list of different proposals never agrees.

    References:
        Wang et al. 2023, arXiv:2203.11171, section 2 (self-consistency of answers); Zhou et al. 2023 (LATS),
        arXiv:2310.04406, section 4 (self-consistency of the actions sampled at one state).
    """

    compares: ClassVar[Literal["nothing", "reply", "siblings", "pick"]] = "siblings"

    def score_siblings(
        self, sampler: Sampler, expansion: Expansion, thoughts: Sequence[Thought]
    ) -> Procedure[list[Event]]:
        task, total = sampler.task, len(expansion.texts)
        votes = Counter(_key(task, expansion.path_to(text)) for text in expansion.texts)
        events: list[Event] = []
        for thought in thoughts:
            if total == 1:
                events += yield from no_score(thought.id, self.kind, "there is no other sample")
                continue
            agreeing = votes[_key(task, expansion.path_to(thought.text))]
            scored = Scored(thought.id, agreeing / total, float(agreeing), by=self.kind)
            events += yield from emit_as_list(scored)
        return events


def _key(task: Task, path: Path) -> tuple[str, Hashable]:
    """A key that is equal for paths that agree."""
    answer = finished_answer(task, path)
    if answer is not None:
        return "answer", task.domain.same(task, answer)
    state = task.domain.state(task, path)
    return ("step", task.domain.same(task, path[-1])) if state is None else ("state", state)
