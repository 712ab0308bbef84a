"""Questions whose answer is a whole text: a design, a decision, a diagnosis.

Nothing is cut out of a reply, so that a solution of many lines stays whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tot_lab.core.task import Task
from tot_lab.domains.general import General, Grading, task_of


class OpenEnded(General):
    """Any question in words, answered in as many words as it takes. grading: as in `General`."""

    kind = "open_ended"

    @classmethod
    def task_factory(cls) -> Callable[..., Task]:
        return open_ended

    def answer_prompt(self, task: Task, reasoning: bool) -> str:
        how = "Think it through first." if reasoning else "Answer at once."
        return f"Problem:\n{self.statement(task)}\n\n{how} The answer is the whole text of your reply."

    def read_answer(self, task: Task, text: str) -> str | None:
        """The whole reply."""
        return text.strip() or None


def open_ended(
    question: str,
    *,
    answer: Any = None,
    grade: Grading | None = None,
    context: str = "",
    system_prompt: str = "",
) -> Task:
    """One question as a task whose answer is a whole text: an essay, a letter, a design, a program. A line
    `Answer: …` in it is part of the text. The settings are those of `tl.general`, which is for short
    answers."""
    domain = OpenEnded.model_validate({"grading": grade})
    return task_of(domain, question, answer, context=context, system_prompt=system_prompt)
