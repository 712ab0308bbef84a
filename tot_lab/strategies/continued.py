"""Continuing from a thought of an earlier run with another strategy.

The path to the thought is copied into the new run as it was recorded, and costs nothing. The continuing
strategy receives an ordinary task: its domain prepends the earlier steps to each path, so the strategy need
not know that it did not start at the root.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from pydantic import field_validator

from tot_lab.core.calls import TokenLogprob
from tot_lab.core.records import Decided, Event, Scored, Thought, parent_of
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Answer, Domain, Path, Task
from tot_lab.core.thinking import Thinking, emit, map_steps


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
                    raise ValueError(f"thought {event.id!r} does not follow {last!r}")
                last = event.id
        if last is None:
            raise ValueError("the path has no thought")
        return record

    def think(self, task: Task, at: str = "0") -> Thinking[Answer]:
        last, steps = at, list[str]()
        for event in self._events(at):
            recorded = yield from emit(event)
            if isinstance(recorded, Thought):
                last = recorded.id
                steps += _steps(task, recorded)
        keep = all_but_the_root(last)
        return (
            yield from map_steps(keep, self.strategy.think(_after(task, steps), last), of=(Thought, Scored))
        )

    def max_calls(self, task: Task) -> int | None:
        steps = [step for event in self._events("0") for step in _steps(task, event)]
        return self.strategy.max_calls(_after(task, steps))

    def _events(self, at: str) -> list[Thought | Scored | Decided]:
        """The recorded events, moved so that their root is `at`."""
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


class _After(Domain):
    """A domain that prepends earlier steps to each path."""

    domain: Domain
    """The wrapped domain."""
    before: list[str]
    """The steps of the branch so far, put before each path."""

    @property
    def kind(self) -> str:  # type: ignore[override]
        """The kind of the wrapped domain, which routing uses."""
        return self.domain.kind

    def _whole(self, path: Path) -> list[str]:
        return [*self.before, *path]

    # Methods that receive a path.

    def steps(self, path: Path) -> str:
        return self.domain.steps(self._whole(path))

    def sample_prompt(self, task: Task, path: Path) -> str:
        return self.domain.sample_prompt(task, self._whole(path))

    def propose_prompt(self, task: Task, path: Path, count: int) -> str:
        return self.domain.propose_prompt(task, self._whole(path), count)

    def value_prompt(self, task: Task, path: Path) -> str:
        return self.domain.value_prompt(task, self._whole(path))

    def part_prompts(self, task: Task, path: Path) -> list[str]:
        return self.domain.part_prompts(task, self._whole(path))

    def judge_prompt(self, task: Task, path: Path) -> str:
        return self.domain.judge_prompt(task, self._whole(path))

    def vote_prompt(self, task: Task, paths: Sequence[Path]) -> str:
        return self.domain.vote_prompt(task, [self._whole(path) for path in paths])

    def joint_prompt(self, task: Task, path: Path, candidates: Sequence[str]) -> str:
        return self.domain.joint_prompt(task, self._whole(path), candidates)

    def answer_prompt(self, task: Task, reasoning: bool) -> str:
        """The earlier steps become context, since this prompt has no path."""
        known = [*filter(None, [task.context]), f"The steps taken so far:\n{self.steps(())}"]
        shown = task.model_copy(update={"context": "\n\n".join(known)}) if self.before else task
        return self.domain.answer_prompt(shown, reasoning)

    def part(self, task: Task, question: str, known: str) -> Task:
        return self.domain.part(task, question, known)

    def response_format(self, kind: str, task: Task, path: Path) -> dict[str, Any] | None:
        return self.domain.response_format(kind, task, self._whole(path))

    def read_sample(self, task: Task, path: Path, text: str) -> str | None:
        return self.domain.read_sample(task, self._whole(path), text)

    def read_proposals(self, task: Task, path: Path, text: str) -> list[str]:
        return self.domain.read_proposals(task, self._whole(path), text)

    def pool_proposals(self, task: Task, path: Path, texts: Sequence[str]) -> list[str]:
        return self.domain.pool_proposals(task, self._whole(path), texts)

    def assess(self, task: Task, path: Path) -> float | None:
        return self.domain.assess(task, self._whole(path))

    def complete(self, task: Task, path: Path) -> bool | None:
        return self.domain.complete(task, self._whole(path))

    def state(self, task: Task, path: Path) -> Any:
        return self.domain.state(task, self._whole(path))

    def answer(self, task: Task, path: Path) -> str | None:
        return self.domain.answer(task, self._whole(path))

    def seen(self, task: Task, path: Path) -> tuple[Task, Path]:
        return self.domain.seen(task.model_copy(update={"domain": self.domain}), self._whole(path))

    # Methods without a path.

    @property
    def value_top(self) -> float:
        return self.domain.value_top

    def statement(self, task: Task) -> str:
        return self.domain.statement(task)

    def read_value(self, text: str) -> float | None:
        return self.domain.read_value(text)

    def most_parts(self, task: Task) -> int:
        return self.domain.most_parts(task)

    def read_part(self, text: str) -> float | None:
        return self.domain.read_part(text)

    def join_parts(self, scores: Sequence[float]) -> float:
        return self.domain.join_parts(scores)

    def read_judge(self, tokens: Sequence[TokenLogprob]) -> tuple[float, float] | None:
        return self.domain.read_judge(tokens)

    def read_vote(self, text: str, count: int) -> int | None:
        return self.domain.read_vote(text, count)

    def read_joint(self, text: str, count: int) -> list[float | None]:
        return self.domain.read_joint(text, count)

    def read_answer(self, task: Task, text: str) -> str | None:
        return self.domain.read_answer(task, text)

    def same(self, task: Task, answer: str) -> Any:
        return self.domain.same(task, answer)

    def grade(self, task: Task, answer: str) -> float | None:
        return self.domain.grade(task, answer)

    def is_bounded(self, task: Task) -> bool:
        return self.domain.is_bounded(task)


def _after(task: Task, steps: list[str]) -> Task:
    return task.model_copy(update={"domain": _After(domain=task.domain, before=steps)}) if steps else task


def _steps(task: Task, event: Event) -> list[str]:
    """The step that a thought stands for. The root of a strategy holds the question and is not a step."""
    return [event.text] if isinstance(event, Thought) and event.text != task.question else []


def _event(record: dict[str, Any]) -> Thought | Scored | Decided:
    """Convert a record. Raises ValueError for anything but a thought, a score or a decision."""
    if record.get("what") == "solution":  # the word of schema 1
        record = {**record, "what": "answer"}
    event: Thought | Scored | Decided = msgspec.convert(record, Thought | Scored | Decided)
    return event


def all_but_the_root(id: str) -> Callable[[Thought | Scored], Thought | Scored | None]:
    """An edit for `map_steps` that skips what a strategy records about its own root, which is already
    recorded.
    """

    def kept(event: Thought | Scored) -> Thought | Scored | None:
        own_root = event.id == id and (isinstance(event, Thought) or event.by == "root")
        return None if own_root else event

    return kept
