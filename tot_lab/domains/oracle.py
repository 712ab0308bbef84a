"""An evaluator that knows the truth: the ceiling of what any evaluator could do.

The reference never reaches a strategy by its task; whoever wants an oracle hands it in as
the evaluator, where the record names it.
"""

from __future__ import annotations

from tot_lab.core.parts import UserFunction
from tot_lab.core.task import Path, Task


def oracle(task: Task) -> UserFunction:
    """An `evaluate` for a search on `task`: 1 for a thought whose path holds a right answer, the
    grade of a partly right one, 0 for any other. It asks no model."""

    def oracle(shown: Task, path: Path) -> float | None:
        answer = task.domain.answer(shown, path)
        return 0.0 if answer is None else task.grade(answer)

    return UserFunction.of(oracle)
