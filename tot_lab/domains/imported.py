"""The domain of questions in imported logs. Only answers that the log itself grades have a grade."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tot_lab.core.task import Path, Task
from tot_lab.domains.open_ended import OpenEnded


class Imported(OpenEnded):
    """A question of an imported log.

    The task's reference maps each graded answer of the log to its grade, 0 to 1. Other answers are not
    graded. The answer is the whole reply.
    """

    kind = "published/imported"

    @classmethod
    def task_factory(cls) -> Callable[..., Task]:
        return imported

    def solvable(self, task: Task, path: Path) -> bool | None:
        """Return whether the last step is a right answer. Returns `None` if the log does not grade it."""
        grade = self.grade(task, path[-1]) if path else None
        return None if grade is None else grade == 1.0

    def expected(self, task: Task) -> Any:
        """Return the expected answer in the log, or `None` if the log has none."""
        return task.data.get("target")

    def grade(self, task: Task, answer: str) -> float | None:
        """Return the grade that the log gives to `answer`. Returns `None` if the log does not grade it."""
        grades: Mapping[str, float] = task.reference or {}
        return grades.get(answer.strip())


def imported(
    question: str,
    *,
    grades: Mapping[str, float] | None = None,
    data: Mapping[str, Any] | None = None,
    id: str = "",
) -> Task:
    """Make the task of an imported run.

    Args:
        question: The question.
        grades: The grade of each answer that the log graded, 0 to 1.
        data: Other data of the log about the task. The key `target` is the expected answer.
        id: Name of the task in the log.
    """
    reference = {answer.strip(): grade for answer, grade in grades.items()} if grades else None
    return Task(domain=Imported(), question=question, reference=reference, data=dict(data or {}), id=id)
