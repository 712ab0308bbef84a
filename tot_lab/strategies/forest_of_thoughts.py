"""Forest of Thoughts: several searches of one task, and a decision by consensus."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from tot_lab.core.calls import halts
from tot_lab.core.protocol import Procedure, ask, gather, resample
from tot_lab.core.records import Note, Thought, call_failed, parent_of
from tot_lab.core.strategy import Prompting, Strategy
from tot_lab.core.task import Answer, Task
from tot_lab.strategies.search.tree_of_thoughts import TreeOfThoughts
from tot_lab.strategies.voting import answer_key, choose_by_vote, votes_of


class ForestOfThoughts(Prompting):
    """Grow several trees, and stop as soon as more than half of all trees agree. Without such a majority, a
    judge chooses among the answers.

    A tree has a vote (is activated) if it has an answer with a score of at least `min_score`. If the judge's
    reply is unreadable, the most frequent answer wins, the first in case of a tie. The sampling settings are
    those of the judge.

    Best for hard tasks whose searches often end in different answers. Trade-off: batches of trees run one
    after the other. Calls: at most `trees` times those of the strategy, plus 1.

    References:
        Bi et al. 2025, Forest-of-Thought: Scaling Test-Time Compute for Enhancing LLM Reasoning,
        arXiv:2412.09078, sections 3.1 (sparse activation) and 3.3 (consensus-guided decision). The paper's
        correction of steps is left to `strategy`.
    """

    kind: ClassVar[str] = "forest_of_thoughts"

    scale: ClassVar[str] = "trees"

    strategy: Strategy = TreeOfThoughts()
    """The strategy of each tree."""

    trees: Annotated[int, Field(ge=1)] = 5
    """The most trees."""

    batch: Annotated[int, Field(ge=1)] = 1
    """Trees that grow at the same time. Larger batches are faster, and may grow trees that are not needed."""

    min_score: Annotated[float, Field(ge=0, le=1)] = 0.0
    """A tree whose answer has a lower score has no vote. An answer without a score counts as one with 0."""

    def think(self, task: Task, at: str = "0") -> Procedure[Answer]:
        yield Thought(at, parent_of(at), task.question)
        answers: list[Answer] = []
        agreed = False
        while len(answers) < self.trees:
            numbers = range(len(answers), min(len(answers) + self.batch, self.trees))
            answers += yield from gather(
                [resample(k, self.strategy.think(task, f"{at}.{k}")) for k in numbers],
                at_most=self.strategy.max_calls(task),
            )
            votes = votes_of(task, answers, self._activation(answers))
            agreed = max(votes.values(), default=0) > self.trees / 2
            yield Note("forest.grown", at, {"trees": len(answers), "agreed": agreed})
            if agreed or any(halts(answer.stop_reason) for answer in answers):
                break
        weights = self._activation(answers)
        winner = None if agreed else (yield from self._judged(task, at, answers, weights))
        return (
            yield from choose_by_vote(task, answers, self.kind, weights if any(weights) else None, winner)
        )

    def checks_answers(self, task: Task) -> bool:
        return self.strategy.checks_answers(task)

    def max_calls(self, task: Task) -> int | None:
        inner = self.strategy.max_calls(task)
        return None if inner is None else inner * self.trees + 1

    def _activation(self, answers: Sequence[Answer]) -> list[float]:
        """1 for each tree that has a vote, and 0 for the others."""
        return [float(bool(answer.text) and (answer.score or 0.0) >= self.min_score) for answer in answers]

    def _judged(
        self, task: Task, at: str, answers: Sequence[Answer], weights: Sequence[float]
    ) -> Procedure[Hashable | None]:
        """The key (`answer_key`) of the answer that the judge chooses. `None` if there are fewer than two
        different answers with a vote, if the judge's call fails, or if its reply is not readable."""
        texts: dict[Hashable, str] = {}
        for answer, weight in zip(answers, weights, strict=True):
            if weight:
                texts.setdefault(answer_key(task, answer), answer.text)
        if len(texts) < 2:
            return None
        paths = [task.path([f"Answer: {text}"]) for text in texts.values()]
        reply = yield from ask(self.call(at, "vote", task.domain.vote_prompt(task, paths)))
        if reply.error is not None:
            yield call_failed(at, "vote", reply.error)
            return None
        choice = task.domain.read_vote(reply.text, len(paths))
        if choice is None:
            yield Note("parse.unreadable", at, {"kind": "vote", "draw": 0})
            return None
        yield Note("forest.judged", at, {"answers": [*texts.values()], "choice": choice})
        return [*texts][choice]
