"""A session: one query at a time, each with the earlier questions and answers as context.

A query during another query fails at once with `Busy` and has no effect on the other. The earlier
questions and answers are part of the task's context, and so of the header of the run.
"""

from __future__ import annotations

from typing import Any

from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Task
from tot_lab.lab.context import SessionMemory
from tot_lab.lab.lab import Lab
from tot_lab.record.run import Run


class Busy(RuntimeError):
    """Raised for a query while another query is running. The message begins with `busy`."""


class Session:
    """Sends one query at a time to a lab, for agents that people talk to.

        session = tl.Session(lab)
        run = await session.ask(tl.ReAct(), task)

    Each query is shown the questions and answers of the session so far, and the critiques of failed attempts.
    `tl.think(…, memory=session.memory)` shares this memory. A query with `session.lab.run` does not use it.

    Args:
        lab: The lab that runs the queries.
        memory: A memory to share with another session or with `tl.think`. `None` creates a new one.
    """

    def __init__(self, lab: Lab, *, memory: SessionMemory | None = None) -> None:
        if not isinstance(lab, Lab):
            raise TypeError(f"lab must be a Lab such as tl.Lab(model): got {lab!r}.")
        if memory is not None and not isinstance(memory, SessionMemory):
            raise TypeError(f"memory must be a tl.SessionMemory: got {memory!r}.")
        self.lab = lab
        self.memory = SessionMemory() if memory is None else memory
        """The questions and answers so far."""
        self.question: str | None = None
        """The question that is being answered, or `None`."""

    @property
    def busy(self) -> bool:
        """Whether a query is running."""
        return self.question is not None

    async def ask(self, strategy: Strategy | str, task: Task, **options: Any) -> Run:
        """Run `strategy` on `task` with the earlier questions and answers as context.

        Args:
            strategy: The strategy to run.
            task: The task to solve.
            options: Passed to `Lab.run`.

        Raises:
            Busy: If another query is running.
        """
        if self.question is not None:
            raise Busy(
                f"busy: the session is still answering {self.question[:200]!r}. Try again when it is done."
            )
        self.question = getattr(task, "question", "")
        try:
            run = await self.lab.run(strategy, self.memory.remind(task), **options)
            self.memory.add(run)
            return run
        finally:
            self.question = None
