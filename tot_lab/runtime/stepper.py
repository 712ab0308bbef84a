"""The stepper: advances a strategy as far as possible without waiting.

It advances the generators, forks and joins their branches, checks what they yield, and stamps each record
with its position in the program (step, branch, step, …), so that the canonical record does not depend on
latencies. It has no event loop, clock or model: a test drives it with `next(stepper.turn())` and `answer`. A
queue of branches replaces recursion, so that nesting may be arbitrarily deep.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Any, Protocol, TypeAlias

from tot_lab.core.calls import Call
from tot_lab.core.protocol import (
    Acts,
    Budget,
    BudgetLeft,
    Effect,
    Gather,
    Procedure,
    RandomNumbers,
    Request,
    SampleCounter,
    Samples,
    WithBudget,
)
from tot_lab.core.records import (
    EVENTS,
    STOP_CODES,
    Decided,
    Position,
    Record,
    Scored,
    Thought,
    is_stop_code,
)
from tot_lab.core.task import Answer
from tot_lab.runtime.budget import Scope

DEEPEST = 1000
"""Maximum depth of a thought. The limit exists because an id contains its whole path."""

PATIENCE = 100
"""Consecutive refusals after which a strategy that keeps making calls is closed."""

LONG = 10_000
"""Events of one branch in one turn, after which other branches continue."""


EVENT_TYPES = frozenset(EVENTS)


class Scopes(Protocol):
    """Makes the scopes of the branches of a strategy. The stepper itself enforces no limit."""

    def of_part(self, scope: Scope, step: WithBudget) -> Scope:
        """Return the scope of a part of the run with its own budget or time limit."""

    def of_branches(self, scope: Scope, step: Gather) -> tuple[Iterable[Scope], int]:
        """Return the scopes of the branches, and how many branches start at once."""


class Branch:
    """A running generator and its position in the program.

    Attributes:
        prefix: Position of the branch. A step of the branch appends its index.
        join: The `gather` or `with_budget` that started the branch. `None` for the strategy itself.
        index: Index of the branch in `join`.
        step: Index of the latest step, -1 before the first.
        refusals: Consecutive refusals of its calls.
        answered: Whether one of its calls got a reply.
        held_since: When its call began to wait, in the time of the event loop, or `None`.
        held: Seconds that its calls have waited since the time limit of its group started.
    """

    __slots__ = (
        "answered",
        "held",
        "held_since",
        "index",
        "join",
        "prefix",
        "refusals",
        "scope",
        "step",
        "thinking",
    )

    def __init__(
        self, thinking: Procedure[Any], prefix: Position, scope: Scope, join: Join | None, index: int
    ):
        self.thinking = thinking
        self.prefix = prefix
        self.scope = scope
        self.join = join
        self.index = index
        self.step = -1
        self.refusals = 0
        self.answered = False
        self.held_since: float | None = None
        same_group = join is not None and join.parent.scope.group is scope.group
        self.held: float = join.parent.held if join is not None and same_group else 0.0


class Join:
    """A running `gather` or `with_budget`: the waiting parent, the branches still to start, and the results
    so far.
    """

    __slots__ = ("answered", "left", "parent", "refused", "results", "single", "waiting")

    def __init__(self, parent: Branch, count: int, single: bool):
        self.parent = parent
        self.results: list[Any] = [None] * count
        self.left = count
        self.single = single
        self.waiting: Iterator[Branch] = iter(())
        self.answered = self.refused = False


Question: TypeAlias = tuple[Branch, Position, Call | Effect]
"""A branch that waits for a reply, the position of its call, and the call."""


class Stepper:
    """Advances one strategy.

    Args:
        thinking: The generator of the strategy.
        record: Called with the position of each event and the event.
        scopes: Makes the scopes of branches.
        root: The scope of the whole run.
        respond: Returns the answer to a request, given the branch that makes the request and the request's
            position, which is empty if the request is not recorded.
    """

    def __init__(
        self,
        thinking: Procedure[Answer],
        record: Callable[[Position, Record], None],
        scopes: Scopes,
        root: Scope,
        respond: Callable[[Request, Branch, Position], Any],
    ) -> None:
        if not hasattr(thinking, "send") or inspect.iscoroutine(thinking):
            thinking = _no_thinking(thinking)
        self.record = record
        self.scopes = scopes
        self.respond = respond
        self.result: Answer | None = None
        """The answer, once the strategy has returned it."""
        self.root = Branch(thinking, (), root, None, 0)
        self.ready: deque[tuple[Branch, Any]] = deque()
        self.paused: list[tuple[Branch, Any]] = []
        self.open: dict[Branch, None] = {}
        self._thoughts: set[str] = set()
        self._samples: set[tuple[Any, ...]] = set()
        self._out_of_patience: str | None = None
        self._start(self.root)

    @property
    def end(self) -> Position:
        """The position after the last step of the strategy."""
        return (self.root.step + 1,)

    def turn(self) -> Iterator[Question]:
        """Advance every branch until all of them wait, and yield the calls that they wait for.

        Raises:
            TypeError: If the strategy yields or returns an object of a wrong type.
            ValueError: If an object that the strategy yields or returns cannot be recorded.
            RuntimeError: If the strategy keeps making calls that are refused.
            Exception: Whatever the strategy itself raises.
        """
        self.ready.extend(self.paused)
        self.paused.clear()
        ready, advance = self.ready, self._advance
        while self.result is None:
            if self._out_of_patience is not None:
                raise RuntimeError(
                    f"The strategy was closed, since it kept making calls after {PATIENCE} refusals "
                    f"({self._out_of_patience})."
                )
            if not ready:
                return
            question = advance(*ready.popleft())
            if question is not None:
                yield question

    def answer(self, branch: Branch, value: Any) -> None:
        """Give a branch the reply that it waits for."""
        branch.answered, branch.refusals = True, 0
        self.ready.append((branch, value))

    def refuse(self, branch: Branch, refusal: Any, reason: str | None) -> None:
        """Give a branch a reply which states that its call was not made."""
        self.ready.append((branch, refusal))
        self._count_refusal(branch, reason)

    def stop(self) -> None:
        """Let no branch continue."""
        self.ready.clear()
        self.paused.clear()

    def close(self) -> Iterator[Exception]:
        """Close all generators. Yields the errors that they raise."""
        self.stop()
        del self.respond  # it may refer to the driver
        for branch in reversed(self.open):
            try:
                branch.thinking.close()
            except Exception as error:
                yield error

    # Branches.

    def _start(self, branch: Branch) -> None:
        self.open[branch] = None
        self.ready.append((branch, None))

    def _advance(self, branch: Branch, value: Any) -> Question | None:
        """Advance one branch until it waits or ends. Returns the call that it waits for, if any."""
        send = branch.thinking.send
        for _ in range(LONG):
            try:
                step: Any = send(value)
            except StopIteration as end:
                self._finish(branch, end.value)
                return None
            kind = type(step)
            if kind not in EVENT_TYPES and isinstance(step, Request) and not step.recorded:
                value = self.respond(step, branch, ())
                continue
            branch.step += 1
            position = branch.prefix + (branch.step,)  # noqa: RUF005  faster than unpacking
            if kind in EVENT_TYPES:
                self._check_event(kind, step)
                self.record(position, step)
                value = step
            elif kind is Call:
                self._check_call(step)
                return branch, position, step
            elif kind is Gather:
                if step.branches:
                    self._fork(branch, position, step)
                    return None
                value = []
            elif kind is WithBudget:
                scope = self.scopes.of_part(branch.scope, step)
                self._start(Branch(step.thinking, (*position, 0), scope, Join(branch, 1, single=True), 0))
                return None
            elif kind is Effect:
                self._check_call(step.call)
                return branch, position, step
            elif isinstance(step, Request):
                value = self.respond(step, branch, position)
            else:
                raise TypeError(
                    f"A strategy may yield calls and events: got {kind.__name__}. Run another "
                    f"generator with `yield from`."
                )
        self.paused.append((branch, value))
        return None

    def _fork(self, branch: Branch, position: Position, step: Gather) -> None:
        if type(step.branches) is not list and not isinstance(step.branches, Sequence):
            raise TypeError(f"gather takes a list of branches: got {type(step.branches).__name__}.")
        for thinking in step.branches:
            if not hasattr(thinking, "send"):
                raise TypeError(f"The branches of gather must be generators: got {type(thinking).__name__}.")
        if step.at_once is not None and step.at_once < 1:
            raise ValueError(f"at_once must be at least 1: got {step.at_once}.")
        join = Join(branch, len(step.branches), single=False)
        scopes, at_once = self.scopes.of_branches(branch.scope, step)
        join.waiting = (
            Branch(thinking, (*position, index), scope, join, index)
            for (index, thinking), scope in zip(enumerate(step.branches), scopes, strict=False)
        )
        for _ in range(at_once):
            self._start(next(join.waiting))

    def _finish(self, branch: Branch, result: Any) -> None:
        del self.open[branch]
        join = branch.join
        if join is None:
            self._check_answer(result)
            self.result = result
            return
        parent = join.parent
        join.results[branch.index] = result
        join.left -= 1
        join.answered = join.answered or branch.answered
        join.refused = join.refused or branch.refusals > 0
        following = next(join.waiting, None)
        if following is not None:
            following.held = branch.held  # waits of this branch do not count for the next one either
            self._start(following)
        elif join.left == 0:
            if parent.scope.group is branch.scope.group:
                parent.held = branch.held
            self.ready.append((parent, join.results[0] if join.single else join.results))
            if join.answered:
                parent.answered, parent.refusals = True, 0
            elif join.refused:
                self._count_refusal(parent, "in all branches")

    def _count_refusal(self, branch: Branch, reason: str | None) -> None:
        branch.refusals += 1
        if branch.refusals >= PATIENCE:
            self._out_of_patience = str(reason)

    # What a strategy may yield and return.

    def _check_call(self, call: Call) -> None:
        if call.node not in self._thoughts:
            raise ValueError(
                f"Unknown node of a call with purpose {call.purpose!r}: got {call.node!r}. Record the "
                f"thought first (`yield Thought(…)`)."
            )
        before = len(self._samples)
        sample = call.node, call.purpose, call.sample_index, call.messages, call.attempt, call.model
        self._samples.add(sample)
        if len(self._samples) == before:
            raise ValueError(
                f"Duplicate call at node {call.node}: purpose {call.purpose!r}, sample {call.sample_index}. "
                f"Pass a new sample index to draw another reply."
            )

    def _check_event(self, kind: type, event: Any) -> None:
        if kind is Thought:
            if event.id in self._thoughts:
                raise ValueError(
                    f"Duplicate thought id: got {event.id!r}. Each thought needs an id of its own."
                )
            if event.parent is not None and event.parent not in self._thoughts:
                raise ValueError(f"Unknown parent of thought {event.id!r}: got {event.parent!r}.")
            if len(event.id) > DEEPEST and event.id.count(".") > DEEPEST:
                raise ValueError(f"Thought {event.id[:40]}… is deeper than {DEEPEST} steps.")
            self._thoughts.add(event.id)
        elif kind is Scored or kind is Decided:
            if event.id not in self._thoughts:
                raise ValueError(f"Unknown thought in {kind.__name__}: got {event.id!r}.")
            if kind is Scored and event.score is not None and not 0 <= event.score <= 1:
                raise ValueError(
                    f"The score of thought {event.id} must be between 0 and 1: got {event.score}."
                )

    def _check_answer(self, result: Any) -> None:
        if not isinstance(result, Answer) or not isinstance(result.text, str):
            got = f"an Answer of {result.text!r}" if isinstance(result, Answer) else type(result).__name__
            raise TypeError(f"think must return an Answer with a str as text: got {got}. Use `yield from`.")
        if not is_stop_code(result.stop_reason):
            raise ValueError(f"Unknown stop code: got {result.stop_reason!r}. Use {', '.join(STOP_CODES)}.")
        for id in (result.node, *result.ranked):
            if id is not None and id not in self._thoughts:
                raise ValueError(f"Unknown thought in the answer: got {id!r}.")
        if result.score is not None and not 0 <= result.score <= 1:
            raise ValueError(f"The score of the answer must be between 0 and 1: got {result.score}.")


def default_answer(request: Request, repeat: int = 0) -> Any:
    """Return the answer to a request in a run without limits, without changes by a person, and without an
    earlier record.

    Args:
        request: The request.
        repeat: Index of the run's repeat, from 0.

    Raises:
        TypeError: If the request has an unknown type.
    """
    if isinstance(request, RandomNumbers):
        return Random("\0".join([request.task, request.purpose, request.attempt, str(repeat)]))
    if isinstance(request, BudgetLeft):
        return Budget()
    if isinstance(request, Acts):
        return None
    if isinstance(request, Samples):
        return SampleCounter(made=request.made)
    raise TypeError(f"Unknown request: got {type(request).__name__}.")


def _no_thinking(got: Any) -> Procedure[Answer]:
    if inspect.iscoroutine(got):
        got.close()
        raise TypeError("think must be a generator function without `async`: got a coroutine.")
    raise TypeError(f"think must be a generator function that yields: it returned {type(got).__name__}.")
    yield  # makes this function a generator
