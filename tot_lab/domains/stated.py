"""Base of domains whose steps are sentences. The last step states the answer.

The domain prescribes the form of a step and checks whether a step is true. It never corrects a wrong step, so
a model needs a tool for facts that it does not know and for results that it cannot compute.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from tot_lab.core.reading.answers import final_answer, stated_answer
from tot_lab.core.task import Path, Task
from tot_lab.domains.general import General


class StepwiseDomain(General):
    """Base of domains in which a path is complete when its last step states an answer."""

    kind = ""

    step_form: ClassVar[str] = ""
    """Description of the required form of a step. Prompts for steps contain it."""

    @abstractmethod
    def holds(self, step: str) -> bool | None:
        """Return whether `step` is true. Returns `None` if it contains nothing that can be checked."""

    def complete(self, task: Task, path: Path) -> bool:
        return bool(path) and final_answer(path[-1]) is not None

    def read_answer(self, task: Task, text: str) -> str | None:
        r"""Return the text after the last `Answer:` that begins a line, or else the content of the last
        `\boxed{…}`, or else the whole reply.
        """
        return stated_answer(text) or text.strip() or None

    def answer(self, task: Task, path: Path) -> str | None:
        """Return the text after `Answer:` in the last step."""
        return final_answer(path[-1]) if path else None

    def solvable(self, task: Task, path: Path) -> bool | None:
        """Return whether the stated answer is right or, without an answer, whether each step is true.

        One wrong step makes the result `False`. Otherwise it is `None` if a step contains nothing that can be
        checked.
        """
        stated = self.answer(task, path)
        if stated is not None:
            graded = self.grade(task, stated)
            return None if graded is None else graded == 1.0
        checked = [self.holds(step) for step in path]
        return False if False in checked else None if None in checked else True

    def _position(self, task: Task, path: Path) -> str:
        return f"{super()._position(task, path)}\n\n{self.step_form}"
