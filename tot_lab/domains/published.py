"""Domains that reproduce the published logs of Tree of Thoughts (Yao et al. 2023)."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from typing import ClassVar

from tot_lab.core.task import Path, Task
from tot_lab.domains.creative_writing import CreativeWriting, creative_writing
from tot_lab.domains.game24 import Game24, game24
from tot_lab.domains.mini_crossword import MiniCrossword

MARK = "\n--- "

_STATED = re.compile(r"answer\s*(?:\d+\s*)?:\s*(.*)", re.IGNORECASE)


class PublishedGame24(Game24):
    """The Game of 24 with the rules of the published search.

    Each line of a reply is a proposal, unchanged. The logs do not contain the prompts that were sent. The
    prompts of this domain contain only the data on which the reply depends. A prompt for proposals contains
    the path. A prompt for a value contains the numbers left or the final answer, whichever the last line of
    the path states. `tl.counterfactual` uses these prompts to find recorded replies.
    """

    kind: ClassVar[str] = "published/game24"

    @classmethod
    def task_factory(cls) -> Callable[..., Task]:
        return published_task

    def propose_prompt(self, task: Task, path: Path, count: int) -> str:
        return f"propose{MARK}{task.question}{MARK}{log_path(path)}"

    def read_proposals(self, task: Task, path: Path, text: str) -> list[str]:
        return text.split("\n") if text else []

    def value_prompt(self, task: Task, path: Path) -> str:
        return f"value{MARK}{log_state(task.question, path)}"

    def complete(self, task: Task, path: Path) -> bool | None:
        return None  # The published search always expands all levels.

    def stated_answers(self, text: str) -> list[str]:
        """Return the parts of a reply that state an answer, such as `Answer 2: (1 + 2) * 8`."""
        return [found[0].strip() for found in _STATED.finditer(text)]

    def answer(self, task: Task, path: Path) -> str | None:
        """Return the expression of the last `Answer: …` or `Answer 2: …` in the last step. Without one,
        return the left side of the last line, if that is an equation with all numbers of the hand.
        """
        if not path:
            return super().answer(task, path)
        stated = _STATED.findall(path[-1])
        last = stated[-1] if stated else path[-1].strip().split("\n")[-1]
        expression, equals, _ = last.partition("=")
        hand = sorted(re.findall(r"[0-9]+", task.question))
        if stated or (equals and sorted(re.findall(r"[0-9]+", expression)) == hand):
            return str(expression).strip(" \t*`$.")
        return super().answer(task, path)

    def state(self, task: Task, path: Path) -> Hashable | None:
        return None


def log_path(path: Path) -> str:
    """Return a path in the format of the Game of 24 logs: each step ends with a line break."""
    return "".join(f"{step}\n" for step in path)


def log_state(question: str, path: Path) -> str:
    """Return what the published value prompt contained of a path: the numbers left, or the question and the
    answer.
    """
    last = log_path(path).strip().split("\n")[-1]
    if "left: " not in last:
        return f"{question} | {last.lower().replace('answer: ', '')}"
    return last.split("left: ")[-1].split(")")[0]


class PublishedCrossword(MiniCrossword):
    """A mini crossword of a published log. The log contains neither the clues nor the solution.

    The answer is a grid, which may have empty cells. Only states that the log reached can be graded.
    """

    kind: ClassVar[str] = "published/crossword"

    def answer(self, task: Task, path: Path) -> str | None:
        grid = self.state(task, path)
        return None if grid is None else str(grid)

    def solvable(self, task: Task, path: Path) -> bool | None:
        """Return whether all letters so far are right. Returns `None` unless the log reached the solution."""
        solution = next((grid for grid, share in (task.reference or {}).items() if share == 1.0), None)
        return super().solvable(task.model_copy(update={"reference": solution}), path)

    def expected(self, task: Task) -> None:
        """Return `None`: the log does not contain the solution."""

    def grade(self, task: Task, answer: str) -> float | None:
        """Return the share of the ten words that are right. Returns `None` if the log does not
        contain the grid `answer`.
        """
        shares: dict[str, float] = task.reference or {}
        return shares.get(answer)


def published_task(x: str) -> Task:
    """Make the task of a published log from its question `x`: a hand of the Game of 24, or the closing
    sentences of four paragraphs.

    If `x` cannot be split into four sentences (one has no full stop), the task is not graded.
    """
    try:
        return game24(x).model_copy(update={"domain": PublishedGame24(), "question": x})
    except ValueError:
        sentences = _SENTENCE_END.split(x.strip())
        if len(sentences) == 4:
            return creative_writing(sentences)
        return Task(domain=CreativeWriting(), question=x.strip())


_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[.!?][\"”])\s+")
