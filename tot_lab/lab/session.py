"""A session: one query at a time over a lab, each knowing the ones before.

Rule: while a query is under way a second one is answered `busy`, at once and with nothing begun;
the first goes on as if nobody had asked. A lab itself runs as many at once as it is asked for. What earlier
queries came to is in the task's context, so that the run's header has it.
"""

from __future__ import annotations

from typing import Any

from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Task
from tot_lab.lab.context import SessionMemory
from tot_lab.lab.lab import Lab
from tot_lab.record.run import Run


class Busy(RuntimeError):
    """A second query while one is under way; the message begins with `busy`."""


class Session:
    """Asks `lab` one thing at a time: for an agent that people talk to.

    session = tl.Session(lab)
    run = await session.ask(tl.ReAct(), task)

    Each query is shown the questions and answers of the session so far, and what critics found wrong.
    `tl.think(…, memory=session.memory)` shares them. For a query without them use `session.lab.run`.

    Args:
        lab: What runs the queries.
        memory: The memory to share with another session or with `tl.think`. `None` means one of its own.
    """

    def __init__(self, lab: Lab, *, memory: SessionMemory | None = None) -> None:
        if not isinstance(lab, Lab):
            raise TypeError(f"lab must be a Lab such as tl.Lab(model), not {lab!r}")
        if memory is not None and not isinstance(memory, SessionMemory):
            raise TypeError(f"memory must be a tl.SessionMemory(), not {memory!r}")
        self.lab = lab
        self.memory = SessionMemory() if memory is None else memory
        """What the queries so far came to."""
        self.question: str | None = None
        """What is under way, None when nothing is."""

    @property
    def busy(self) -> bool:
        """Whether a query is under way."""
        return self.question is not None

    async def ask(self, strategy: Strategy, task: Task, **options: Any) -> Run:
        """Run `strategy` on `task`, as `lab.run` does, with its options. Raises `Busy` while another query
        is under way, and what `lab.run` raises."""
        if self.question is not None:
            raise Busy(f"busy: the session is at work on {self.question[:200]!r}; ask again when it is done")
        self.question = getattr(task, "question", "")
        try:
            run = await self.lab.run(strategy, self.memory.remind(task), **options)
            self.memory.take_in(run)
            return run
        finally:
            self.question = None
