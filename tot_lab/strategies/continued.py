"""Continuing from a thought of an earlier run with another strategy.

The path to the thought is copied from the earlier record into the new run, without calls. The continuing
strategy receives the task with the earlier steps (`Task.steps`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from pydantic import field_validator

from tot_lab.core.protocol import Procedure, emit, map_steps
from tot_lab.core.records import Decided, Event, Scored, Thought, parent_of
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Answer, Task


class Continued(Strategy):
    """Continue from a node of an earlier run with another strategy. Used by `lab.branch(run, node,
    strategy=…)`.
    """

    strategy: Strategy
    """The strategy that continues. Its thoughts are added below the last node of the path."""

    record: list[dict[str, Any]]
    """The records of the earlier run along the path, from the root on, as JSON-ready dicts."""

    @field_validator("record")
    @classmethod
    def _is_a_path(cls, record: list[dict[str, Any]]) -> list[dict[str, Any]]:
        last = None
        for event in map(_event, record):
            if isinstance(event, Thought):
                if event.parent != last:
                    raise ValueError(
                        f"record must be a path: got thought {event.id!r} after {last!r}, which is not its "
                        "parent."
                    )
                last = event.id
        if last is None:
            raise ValueError("record must contain at least one thought: got none.")
        return record

    def think(self, task: Task, at: str = "0") -> Procedure[Answer]:
        last, steps = at, list(task.steps)
        for event in self._events(at):
            recorded = yield from emit(event)
            if isinstance(recorded, Thought):
                last = recorded.id
                steps += _steps(task, recorded)
        task = task.model_copy(update={"steps": tuple(steps)})
        keep = all_but_the_root(last)
        return (yield from map_steps(keep, self.strategy.think(task, last), of=(Thought, Scored)))

    def max_calls(self, task: Task) -> int | None:
        steps = [step for event in self._events("0") for step in _steps(task, event)]
        return self.strategy.max_calls(task.model_copy(update={"steps": (*task.steps, *steps)}))

    def _events(self, at: str) -> list[Thought | Scored | Decided]:
        """The recorded events, with ids changed so that `at` is their root."""
        events = [_event(record) for record in self.record]
        root = events[0].id
        moved = []
        for event in events:
            id = at + event.id[len(root) :]
            more = (
                {"parent": parent_of(id), "source": (), "depends": ()} if isinstance(event, Thought) else {}
            )
            moved.append(msgspec.structs.replace(event, id=id, **more))
        return moved


def _steps(task: Task, event: Event) -> list[str]:
    """The text of a thought, as a list of one step. Empty for the root of a strategy, whose text is the
    question, and for other events."""
    return [event.text] if isinstance(event, Thought) and event.text != task.question else []


def _event(record: dict[str, Any]) -> Thought | Scored | Decided:
    """Convert a record. Raises ValueError for anything but a thought, a score or a decision."""
    event: Thought | Scored | Decided = msgspec.convert(record, Thought | Scored | Decided)
    return event


def all_but_the_root(id: str) -> Callable[[Thought | Scored], Thought | Scored | None]:
    """An edit for `map_steps` that drops a strategy's root thought `id` and the score by `root`, because that
    thought is already recorded."""

    def kept(event: Thought | Scored) -> Thought | Scored | None:
        own_root = event.id == id and (isinstance(event, Thought) or event.by == "root")
        return None if own_root else event

    return kept
