"""An evaluator that knows the reference answer: the upper bound of any evaluator.

A strategy's task never contains the reference. An oracle is passed as the evaluator, so that the record names
it.
"""

from __future__ import annotations

from tot_lab.core.domain import Path
from tot_lab.core.parts import UserFunction
from tot_lab.core.task import Task


def oracle(task: Task) -> UserFunction:
    """Make an evaluator for a search on `task` that scores with the true grade.

    A thought scores the grade of the answer on its path, and 0 without an answer. No model is called.
    """

    def oracle(shown: Task, path: Path) -> float | None:
        answer = task.domain.answer(shown, path)
        return 0.0 if answer is None else task.grade(answer)

    return UserFunction.of(oracle)
