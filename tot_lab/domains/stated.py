"""What domains share whose steps are sentences, the last of which states the answer.

The domain says how a step has to look and can tell whether one is true; it never puts a wrong one
right. So what a model cannot know or compute by itself is lost without a tool.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from tot_lab.core.task import Path, Task
from tot_lab.domains.general import General, final_answer


class Stated(General):
    """A path is complete when its last step states an answer. step_form: how a step has to look, as
    prompts for steps say it."""

    kind = ""
    step_form: ClassVar[str] = ""

    @abstractmethod
    def holds(self, step: str) -> bool | None:
        """Whether what `step` says is true; `None` if it says nothing that can be checked."""

    def complete(self, task: Task, path: Path) -> bool:
        return bool(path) and final_answer(path[-1]) is not None

    def read_answer(self, task: Task, text: str) -> str | None:
        """What follows the last `Answer:` that begins a line, or else the whole reply."""
        return final_answer(text) or text.strip() or None

    def answer(self, task: Task, path: Path) -> str | None:
        """What the last step states after `Answer:`."""
        return final_answer(path[-1]) if path else None

    def solvable(self, task: Task, path: Path) -> bool | None:
        """Of a path that states an answer: whether it is right. Of any other: whether each of its steps
        is true; `None` if one says nothing that can be checked."""
        stated = self.answer(task, path)
        if stated is not None:
            graded = self.grade(task, stated)
            return None if graded is None else graded == 1.0
        checked = [self.holds(step) for step in path]
        return False if False in checked else None if None in checked else True

    def _position(self, task: Task, path: Path) -> str:
        return f"{super()._position(task, path)}\n\n{self.step_form}"
