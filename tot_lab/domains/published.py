"""The domains of published logs of Tree of Thoughts (Yao et al. 2023), as far as the logs tell of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from typing import ClassVar

from tot_lab.core.task import Path, Task
from tot_lab.domains.creative_writing import CreativeWriting, creative_writing
from tot_lab.domains.game24 import Game24, game24
from tot_lab.domains.mini_crossword import MiniCrossword

MARK = "\n--- "


class PublishedGame24(Game24):
    """The Game of 24 as the published search read it: each line of a reply is a proposal, kept to the
    letter, and nothing but the last line says where a path stands.

    Its prompts are not those that were sent, which no log holds. They name what decided the answer: a
    path for proposals, the numbers left (or the final answer) for a value; so they are what a recorded
    reply is found by (`tl.counterfactual`)."""

    kind: ClassVar[str] = "published/game24"

    @classmethod
    def task_factory(cls) -> Callable[..., Task]:
        return published_task

    def propose_prompt(self, task: Task, path: Path, count: int) -> str:
        return f"propose{MARK}{task.question}{MARK}{written(path)}"

    def read_proposals(self, task: Task, path: Path, text: str) -> list[str]:
        return text.split("\n") if text else []

    def value_prompt(self, task: Task, path: Path) -> str:
        return f"value{MARK}{standing(task.question, path)}"

    def complete(self, task: Task, path: Path) -> bool | None:
        return None  # the published search goes through every level, whatever stands there

    def state(self, task: Task, path: Path) -> Hashable | None:
        return None


def written(path: Path) -> str:
    """A path as the Game of 24 logs write it."""
    return "".join(f"{step}\n" for step in path)


def standing(question: str, path: Path) -> str:
    """What the published value prompt showed of a path: the numbers left, or the answer."""
    last = written(path).strip().split("\n")[-1]
    if "left: " not in last:
        return f"{question} | {last.lower().replace('answer: ', '')}"
    return last.split("left: ")[-1].split(")")[0]


class PublishedCrossword(MiniCrossword):
    """A mini crossword out of a published log, which holds neither clues nor solution. Its answer is a
    grid, full or not; how right that is only the log can say, for the states that it came to."""

    kind: ClassVar[str] = "published/crossword"

    def answer(self, task: Task, path: Path) -> str | None:
        grid = self.state(task, path)
        return None if grid is None else str(grid)

    def solvable(self, task: Task, path: Path) -> bool | None:
        """Whether all letters so far are right; None unless the log came to the solution."""
        solution = next((grid for grid, share in (task.reference or {}).items() if share == 1.0), None)
        return super().solvable(task.model_copy(update={"reference": solution}), path)

    def grade(self, task: Task, answer: str) -> float | None:
        """The share of the ten words that are right, where the log says it."""
        shares: dict[str, float] = task.reference or {}
        return shares.get(answer)


def published_task(x: str) -> Task:
    """A hand of the Game of 24, or else the closing sentences of four paragraphs. Where these cannot be
    told apart (one has no full stop), nothing can be graded."""
    try:
        return game24(x).model_copy(update={"domain": PublishedGame24(), "question": x})
    except ValueError:
        sentences = _SENTENCE_END.split(x.strip())
        if len(sentences) == 4:
            return creative_writing(sentences)
        return Task(domain=CreativeWriting(), question=x.strip())


_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[.!?][\"”])\s+")
