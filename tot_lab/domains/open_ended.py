"""Questions whose answer is a text, such as a design, a decision or a diagnosis.

The answer is the complete reply.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tot_lab.core.task import Path, Task
from tot_lab.domains.general import General, Grading, task_of


class OpenEnded(General):
    """Any question whose answer is a text of any length."""

    kind = "open_ended"

    @classmethod
    def task_factory(cls) -> Callable[..., Task]:
        return open_ended

    def answer_prompt(self, task: Task, reasoning: bool) -> str:
        return self._text_prompt(task, reasoning)

    def read_answer(self, task: Task, text: str) -> str | None:
        """Return the complete reply."""
        return text.strip() or None

    def expected(self, task: Task) -> Any:
        """Return the reference if an answer must equal it. Returns `None` if a function compares
        answer and reference, or answers are not graded: the reference is then an example or a criterion.
        """
        return super().expected(task) if isinstance(self.grading, str) else None

    def states_answer(self, task: Task, path: Path) -> None:
        """Return `None`: an answer is a text of any form."""


def open_ended(
    question: str,
    *,
    answer: Any = None,
    grade: Grading | None = None,
    context: str = "",
    system_prompt: str = "",
) -> Task:
    """Make a task from one question whose answer is a text, such as an essay, a design or a program.

    A line `Answer: …` has no special meaning: the answer is the whole reply. The arguments are those of
    `tl.general`, which is for short answers.
    """
    domain = OpenEnded(grading=grade)
    return task_of(domain, question, answer, context=context, system_prompt=system_prompt)
