"""How a strategy speaks to the world: it is a generator, and these are the words it may yield.

Rule: thinking is pure. A strategy yields a `Call` and is sent a `Reply`; yields `Gather([...])`
and is sent the list of results; yields `WithBudget(budget, …)` and is sent one result; yields an
event and is sent it as it was recorded. It never waits, reads a clock, draws a random number or touches a
file, so its local variables are its whole state, and a test drives it with `next` and `send`.

Branches of one `gather` share nothing mutable. What must be shared (merging, backing up, early
stops) happens after the join, in the order of the branches: then the record cannot depend on
which reply came first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import closing
from typing import Annotated, Any, NamedTuple, Protocol, Self, TypeAlias, TypeVar

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from tot_lab.core.calls import Call, Reply
from tot_lab.core.records import Event

T = TypeVar("T")
E = TypeVar("E", bound=Event)


class Budget(BaseModel):
    """Caps on what a run, or a part of one, may use. `None` = no cap.

    calls: model calls. input_tokens, output_tokens, tokens (both): tokens of all calls.
    usd: what the calls would cost if each were paid. seconds: wall time.

    A call is admitted or refused before it is made. What holds:

    - `calls` is exact, and refuses the same calls on every rerun.
    - Tokens and USD are reserved before each call: its prompt and its `max_tokens`, at the endpoint's price.
      Where these are known, the cap is not exceeded.
    - Where they are not known, calls are admitted in a ramp: those under way never exceed the settled ones
      + 1, and each reserves the largest use seen so far. The cap is exceeded by at most (calls under way) x
      (largest use of one call). Known are: `max_tokens` where the call has it, the prompt's tokens and the
      price where the endpoint has them. A function as a model has no price. A call without `max_tokens`
      reserves the model's longest reply while there is room for it, and joins the ramp when there is not.
    - Usage that cannot be true (negative, not a number, absurdly large) is unknown: such a call counts its
      whole reservation, or all that is left if nothing is known yet. `Reply.reported_usage` holds the report.
    - `seconds` also ends the calls under way.

    Which calls a cap on tokens, USD or seconds refuses may depend on latencies; the journal records it, and a
    replay or a resumed run refuses the same ones.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    calls: Annotated[int, Field(ge=0)] | None = None
    input_tokens: Annotated[int, Field(ge=0)] | None = None
    output_tokens: Annotated[int, Field(ge=0)] | None = None
    tokens: Annotated[int, Field(ge=0)] | None = None
    usd: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None


class Gather(NamedTuple):
    """Branches to think at once; see `gather`."""

    branches: Sequence[Thinking[Any]]
    at_most: int | None
    at_once: int | None
    seconds: float | None = None


class WithBudget(NamedTuple):
    """A branch to think under a budget of its own, or with a time for each call; see `with_budget` and
    `with_timeout`."""

    budget: Budget
    thinking: Thinking[Any]
    call_seconds: float | None = None


class Effect(NamedTuple):
    """A call that a function answers instead of a model; the strategy is sent its `Reply`.

    It is recorded, replayed, refused and timed as a model's call is, and costs no model call.

    call: made by `core.tools.function_call`. carry_out: gives the reply's text; what it raises is the
    reply's error. It is not called where the reply is known from a journal.
    """

    call: Call
    carry_out: Callable[[], Awaitable[str]]


class BudgetLeft(NamedTuple):
    """Asks how much is left of the budgets around; the strategy is sent a `Budget`, `None` = no cap.

    What was left is recorded, so that a replay goes the same way. at: the thought that asks.
    sample_index: how often it has asked before.
    """

    at: str = "0"
    sample_index: int = 0


Step: TypeAlias = Call | Gather | WithBudget | Effect | BudgetLeft | Event
Thinking: TypeAlias = Generator[Step, Any, T]


def ask(call: Call) -> Thinking[Reply]:
    """Ask one question; the reply may be an error, and is never an exception."""
    reply: Reply = yield call
    return reply


def carry_out(effect: Effect) -> Thinking[Reply]:
    """Have a function of the strategy's own answer a call; the reply may be an error."""
    reply: Reply = yield effect
    return reply


def emit(event: E) -> Thinking[E]:
    """Say that something happened; the event as it was recorded, which is what to go on with: where
    a person changed a thought or a score (`lab.branch`), it is not the one that was given."""
    recorded: E | None = yield event
    return event if recorded is None else recorded  # `next` drives it too


def gather(
    branches: Sequence[Thinking[T]],
    *,
    at_most: int | None = None,
    at_once: int | None = None,
    seconds: float | None = None,
) -> Thinking[list[T]]:
    """Think all `branches`, each at its own pace; their results, in the order given.

    at_most: the most calls that any one branch can make. Under a budget on calls the branches run
        freely only when all of them fit what is left, otherwise in order; None counts as too many.
        There, a branch that asks for more is refused with `limit:at_most`.
    at_once: how many branches may be under way at the same time; None = all.
    seconds: the time of all their calls together, from when the first of them is sent. What has no reply by
        then fails, with an error that begins with `timeout`, and nothing is sent after it. Time in which a
        limit of the lab or of the endpoint (caps, `spend`, requests per minute) holds back a branch's call
        does not count for that branch. None = no limit.
    """
    results: list[T] = yield Gather(branches, at_most, at_once, seconds)
    return results


def with_budget(budget: Budget, thinking: Thinking[T]) -> Thinking[T]:
    """Think under `budget`; its refusals are this part's alone."""
    result: T = yield WithBudget(budget, thinking)
    return result


def with_timeout(seconds: float, thinking: Thinking[T]) -> Thinking[T]:
    """Think with at most `seconds` for each call, counted from when it is sent: waiting for its turn is no
    fault of its own. One that takes longer fails, with an error that begins with `timeout`. This limit takes
    the place of the lab's."""
    result: T = yield WithBudget(Budget(), thinking, seconds)
    return result


def map_steps(
    edit: Callable[[Any], Any], thinking: Thinking[T], of: type[Any] | tuple[type[Any], ...] = Call
) -> Thinking[T]:
    """Think as `thinking` does, with every call that it makes, in its branches too, put through
    `edit` first; `of` names steps of another kind, events or `WithBudget`. One that `edit` makes None is
    passed over: it goes no further, and the strategy goes on. This is how strategies wrap strategies."""
    return (yield from intercept(_Editor(edit, of), thinking, 1))


class Interceptor(Protocol):
    """What goes along with a strategy: it sees what comes back, and may ask in between. See `intercept`."""

    def carry_out(self, step: Call | Event | WithBudget | Effect | BudgetLeft) -> Thinking[Any]:
        """Have `step`, or what stands in its place, done; what the strategy is sent."""

    def fork(self) -> Self:
        """One for a branch: it knows what this one knows, and shares nothing mutable with it."""

    def join(self, branches: Sequence[Self]) -> None:
        """Take in what those of all branches saw, in the order of the branches."""


class _Editor(NamedTuple):
    edit: Callable[[Any], Any]
    of: type[Any] | tuple[type[Any], ...]

    def carry_out(self, step: Call | Event | WithBudget | Effect | BudgetLeft) -> Thinking[Any]:
        edited = self.edit(step) if isinstance(step, self.of) else step
        return step if edited is None else (yield edited)

    def fork(self) -> _Editor:
        return self

    def join(self, branches: Sequence[_Editor]) -> None:
        """Nothing: it remembers nothing."""


def intercept(companion: Interceptor, thinking: Thinking[T], calls: int) -> Thinking[T]:
    """Think as `thinking` does, with each call, event and `WithBudget` carried out by `companion`, which
    makes `calls` calls of one at most."""
    value: Any = None
    with closing(thinking):
        while True:
            try:
                step = thinking.send(value)
            except StopIteration as end:
                result: T = end.value
                return result
            if isinstance(step, Gather):
                parts = [companion.fork() for _ in step.branches]
                pairs = zip(parts, step.branches, strict=True)
                branches = [intercept(part, branch, calls) for part, branch in pairs]
                at_most = None if step.at_most is None else calls * step.at_most
                value = yield step._replace(branches=branches, at_most=at_most)
                companion.join(parts)
            elif isinstance(step, WithBudget):
                step = step._replace(thinking=intercept(companion, step.thinking, calls))
                value = yield from companion.carry_out(step)
            else:
                value = yield from companion.carry_out(step)


def resample(number: int, thinking: Thinking[T]) -> Thinking[T]:
    """Think as `thinking` does, with samples of its own: attempt `number` of several."""

    def numbered(call: Call) -> Call:
        return msgspec.structs.replace(call, attempt=(number, *call.attempt))

    return (yield from map_steps(numbered, thinking))
