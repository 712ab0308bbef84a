"""The domain's own check of an answer, for any strategy.

A tree search whose answers are verified paths uses a check that a vote over chains lacks. With this strategy
both use the same check.
"""

from __future__ import annotations

from typing import ClassVar, Self

import msgspec

from tot_lab.core.protocol import Procedure
from tot_lab.core.records import Note
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Answer, Task
from tot_lab.strategies.baselines import ChainOfThought


class Verified(Strategy):
    """Run a strategy and give its answer only if the domain does not reject it.

    The domain's check needs no reference (see `Domain.verify`): Game of 24 checks the arithmetic and the
    numbers, and most domains cannot tell, so that every answer passes. A rejected answer becomes "", which a
    vote ignores: `tl.SelfConsistency(strategy=tl.methods.Verified())` votes among verified answers, which is
    the fair comparison with a tree search that answers with verified paths.

    Best for fair comparisons, and for answers that can be checked. Trade-off: there may be no answer. Calls:
    those of the strategy.
    """

    kind: ClassVar[str] = "verified"

    strategy: Strategy = ChainOfThought()
    """The strategy whose answer is checked."""

    def scale_setting(self) -> str | None:
        path = self.strategy.scale_setting()
        return None if path is None else f"strategy.{path}"

    def at_scale(self, scale: int | None) -> Self:
        return self.with_(strategy=self.strategy.at_scale(scale))

    def think(self, task: Task, at: str = "0") -> Procedure[Answer]:
        answer = yield from self.strategy.think(task, at)
        if not answer.text or task.domain.verify(task, answer.text) is not False:
            return answer
        yield Note("answer.rejected", answer.node or at, {"answer": answer.text})
        return msgspec.structs.replace(answer, text="", score=None)

    def checks_answers(self, task: Task) -> bool:
        return task.domain.verify(task.hidden(), "") is not None

    def max_calls(self, task: Task) -> int | None:
        return self.strategy.max_calls(task)
