"""An evaluator that knows the reference answer.

No evaluator can grade finished answers better. It does not know which unfinished paths are promising.

The task that a strategy receives never contains the reference. The oracle is an evaluator of the strategy, so
the settings in the record of a run show that it was used.
"""

from __future__ import annotations

from tot_lab.core.parts import UserFunction
from tot_lab.core.task import Path, Task


def oracle(task: Task) -> UserFunction:
    """Make an evaluator for a search on `task` that scores with the true grade.

    The score of a thought is the grade of the answer on its path, or 0 without an answer. No model is called.
    """

    def oracle(shown: Task, path: Path) -> float | None:
        answer = task.domain.answer(shown, path)
        return 0.0 if answer is None else task.grade(answer)

    return UserFunction.of(oracle)
