"""Early-stopping self-consistency: attempts in windows, until one window agrees."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated

from pydantic import Field

from tot_lab.core.calls import halts
from tot_lab.core.protocol import Procedure, gather, resample
from tot_lab.core.records import Note, Thought, parent_of
from tot_lab.core.task import Answer, Task
from tot_lab.strategies.baselines import SelfConsistency
from tot_lab.strategies.voting import answer_key, choose_by_vote


class EarlyStopping(SelfConsistency):
    """Self-consistency that runs attempts in windows, and stops after a window whose answers all agree.

    The answer is that of the window that agrees or, if no window does, the most frequent of all attempts. A
    window in which an attempt gives no answer does not agree, nor does a last window that is not full. In the
    published code, a window without any answer agrees, and attempts after the last full window are left out.

    Best for many easy questions with a few hard ones. Trade-off: the windows run one after the other. Calls:
    at most those of `SelfConsistency`, at least `window` times those of the strategy.

    References:
        Li et al. 2024, Escape Sky-high Cost: Early-stopping Self-Consistency for Multi-step Reasoning,
        arXiv:2401.10480, section 3, and its published code.
    """

    attempts: Annotated[int, Field(ge=1)] = 20
    """The most attempts."""

    window: Annotated[int, Field(ge=2)] = 5
    """Attempts that run concurrently, and must agree."""

    def think(self, task: Task, at: str = "0") -> Procedure[Answer]:
        yield Thought(at, parent_of(at), task.question)
        answers: list[Answer] = []
        winner: Hashable | None = None
        while len(answers) < self.attempts:
            numbers = range(len(answers), min(len(answers) + self.window, self.attempts))
            window = yield from gather(
                [resample(k, self.strategy.think(task, f"{at}.{k}")) for k in numbers],
                at_most=self.strategy.max_calls(task),
            )
            answers += window
            keys = {answer_key(task, answer) for answer in window}
            winner = keys.pop() if len(keys) == 1 and len(window) == self.window else None
            agreed = winner is not None
            yield Note("early_stopping.window", at, {"attempts": len(answers), "agreed": agreed})
            if agreed or any(halts(answer.stop_reason) for answer in window):
                break
        return (yield from choose_by_vote(task, answers, "early_stopping", winner=winner))
