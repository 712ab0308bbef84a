"""A session: one query at a time over a lab.

Rule: while a query is under way a second one is answered `busy`, at once and with nothing begun;
the first goes on as if nobody had asked. A lab itself runs as many at once as it is asked for.
"""

from __future__ import annotations

from typing import Any

from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Task
from tot_lab.lab import Lab
from tot_lab.run import Run


class Busy(RuntimeError):
    """A second query while one is under way; the message begins with `busy`."""


class Session:
    """Asks `lab` one thing at a time: for an agent that people talk to.

    session = tl.Session(lab)
    run = await session.ask(tl.ReAct(), task)
    """

    def __init__(self, lab: Lab) -> None:
        if not isinstance(lab, Lab):
            raise TypeError(f"lab must be a Lab such as tl.Lab(model), not {lab!r}")
        self.lab = lab
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
            return await self.lab.run(strategy, task, **options)
        finally:
            self.question = None
