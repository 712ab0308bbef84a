"""The strategy protocol: a strategy is a generator, and this module defines what it may yield.

Strategies are pure. A strategy yields a `Call` and receives a `Reply`; yields `Gather([...])` and receives a
list of results; yields `WithBudget(budget, ...)` and receives one result; yields an event and receives the
event as it was recorded. It never waits, reads a clock or opens a file, and draws random numbers only from
the generator that it requests. Its local variables are therefore its whole state, and a test can drive it
with `next` and `send`.

Branches of one `gather` share nothing mutable. Merging, back-up and early stops happen after the join, in the
order of the branches, so the record cannot depend on which reply arrived first.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol, Self, TypeAlias, TypeVar

import msgspec
from pydantic import ConfigDict, Field

from tot_lab.core.calls import Call, Reply
from tot_lab.core.parts import PydanticModel, UserFunction
from tot_lab.core.records import Event
from tot_lab.core.tree import Tree

T = TypeVar("T")
E = TypeVar("E", bound=Event)


class Budget(PydanticModel):
    """Limits on the usage of a run, or of a part of it. `None` means no limit.

    A call is admitted or refused before it is made:

    - `calls` is exact, and the same calls are refused on every rerun.
    - Tokens and USD are reserved before each call: its prompt and its `max_tokens`, at the endpoint's price.
      If these are known, the limit is not exceeded.
    - If they are not known, calls are admitted in a ramp: the calls in flight never exceed the finished calls
      + 1, and each reserves the largest use seen so far. The limit is exceeded by at most (calls in flight) x
      (largest use of one call). `max_tokens` is known if the call sets it; the prompt's tokens and the price
      are known if the endpoint reports them. A function used as a model has no price. A call without
      `max_tokens` reserves the model's longest reply while that fits, and joins the ramp otherwise.
    - Usage that the model does not report is estimated from the texts, and priced if the price is known.
    - Failed tries of a call count as well, with their reported usage or else their reservation. Requests that
      were refused (HTTP 4xx except 408, HTTP 503, or no connection) cost nothing. A call is not tried again
      if that would exceed the limit. `calls` does not count retries. Failed tries are part of the journal, so
      a replay or a resumed run counts them again. They are not part of the cache, so a rerun from the cache
      may admit more calls.
    - If one request asks for several samples, each counts the tokens of the prompt, as if requested alone.
    - Impossible usage (negative, not a number, absurdly large) counts as unknown. Such a call uses up its
      whole reservation, or everything that is left if nothing is known yet. `Reply.reported_usage` holds the
      reported values.
    - `seconds` also cancels the calls in flight. They count as calls, but what they can have used counts only
      towards the lab's `spend`.

    Which calls a limit on tokens, USD or seconds refuses may depend on latencies. The journal records it, so
    a replay or a resumed run refuses the same calls.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    setting_aliases: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("minutes", "time", "timeout"), "seconds"),
        **dict.fromkeys(("cost", "dollars"), "usd"),
    }
    """Other names of limits. They are not accepted, but the error suggests the limit."""

    calls: Annotated[int, Field(ge=0)] | None = None
    """Number of model calls."""

    input_tokens: Annotated[int, Field(ge=0)] | None = None
    """Input tokens of all calls."""

    output_tokens: Annotated[int, Field(ge=0)] | None = None
    """Output tokens of all calls."""

    tokens: Annotated[int, Field(ge=0)] | None = None
    """Input and output tokens of all calls."""

    usd: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Cost of all calls in USD. Cached replies count at their price, and failed tries count too."""

    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Wall time in seconds."""


class Gather(NamedTuple):
    """Branches to run concurrently. See `gather`."""

    branches: Sequence[Procedure[Any]]
    at_most: int | None
    at_once: int | None
    seconds: float | None = None


class Slots(NamedTuple):
    """A limit on the calls in flight that all runs of a process share, whichever models they call.

    Attributes:
        name: Name of the limit. Calls whose `Slots` have the same name and number share one limit.
        number: The most calls in flight.
    """

    name: str
    number: int


class WithBudget(NamedTuple):
    """A branch with its own limits. See `with_budget` and `with_timeout`."""

    budget: Budget
    thinking: Procedure[Any]
    call_seconds: float | None = None
    slots: Slots | None = None


class Effect(NamedTuple):
    """A call that a function answers instead of a model. The strategy receives its `Reply`.

    It is recorded, replayed and timed like a model call. Of a budget, only `seconds` applies to it.

    Attributes:
        call: The call, made by `core.tools.function_call`.
        carry_out: Returns the text of the reply. An exception becomes the reply's error. `carry_out` is not
            called if the journal already holds the reply. A function that is not async runs in a thread.
    """

    call: Call
    carry_out: Callable[[], Awaitable[str] | str]


class Request(msgspec.Struct, frozen=True):
    """A request to the driver that runs the strategy, rather than to a model.

    Attributes:
        recorded: Whether the request and its answer are recorded. Otherwise it leaves no trace in the record.
    """

    recorded: ClassVar[bool] = False


class BudgetLeft(Request, frozen=True):
    """A request for what is left of the enclosing budgets. The strategy receives a `Budget`.

    The answer is recorded, so a replay takes the same decisions.

    Attributes:
        at: The node that asks.
        sample_index: Number of earlier requests of this node.
    """

    recorded: ClassVar[bool] = True

    at: str = "0"
    sample_index: int = 0


class RandomNumbers(Request, frozen=True):
    """A request for random numbers. The strategy receives a `random.Random`.

    Its seed follows from the fields and the repeat of the run. A rerun, a replay and a resumed run therefore
    draw the same numbers, and every repeat draws others. The request itself is not recorded.

    Attributes:
        task: The problem, as text.
        purpose: The purpose of the numbers. Different purposes draw independent numbers.
        attempt: Indices of the enclosing attempts, outermost first, each followed by a space (`resample`).
            Different attempts draw different numbers. No field names a node, so equal requests from
            different nodes draw the same numbers.
    """

    task: str
    purpose: str = "search"
    attempt: str = ""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"A request for random numbers has no {name!r}. Write `random = yield state.random_numbers()`."
        )


class Acts(Request, frozen=True):
    """A request for the changes of a person to a search. The strategy receives a generator, or `None` if
    there are no changes.

    The generator yields the events of the changes, adds them to `tree`, and returns a list of `Change`. The
    strategy runs it with `yield from`, so that wrappers of the strategy see these events like all others.

    Attributes:
        at: The thought that the search starts from.
        pick: Number of earlier requests of this search.
        tree: The thoughts of the search.
        next_child: Returns the id of the next child of a thought.
    """

    at: str
    pick: int
    tree: Tree
    next_child: Callable[[str], str]


Texts: TypeAlias = tuple[str, ...]
"""The texts of the messages of a call, without system messages, since a run adds its own."""


def _as_it_is(call: Call) -> Call:
    return call


class SampleCounter:
    """Assigns sample indices to the calls of one search. A search receives it in reply to `Samples`.

    Equal requests, for several thoughts or for further expansions of one, take successive indices, so that
    each gets its own samples. At temperature 0 all samples are equal, and equal requests share them.

    Args:
        recorded: Calls in an earlier record of the search, in program order. Equal calls for the same node
            get their indices again, and no other call gets these indices.
        by_thought: Whether equal requests share their samples at every temperature, as in journals before
            schema 4.
        made: See `Samples`.
    """

    __slots__ = ("_by_thought", "_made", "_next", "_recorded")

    def __init__(
        self,
        recorded: Iterable[Call] = (),
        *,
        by_thought: bool = False,
        made: Callable[[Call], Call] = _as_it_is,
    ) -> None:
        self._by_thought = by_thought
        self._made = made
        self._next: dict[tuple[str, str] | Texts, int] = {}  # by thought and purpose, and by request
        self._recorded: dict[tuple[tuple[str, str], Texts], deque[int]] = {}
        for call in recorded:
            owner, texts = (call.node, call.purpose), _texts_of(call)
            self._recorded.setdefault((owner, texts), deque()).append(call.sample_index)
            self._next[texts] = max(self._next.get(texts, 0), call.sample_index + 1)

    def take(self, call: Call, count: int) -> Iterator[Call]:
        """Reserve `count` samples of `call`, and return a call for each.

        A proposer takes its samples before it makes a call, so that they are numbered in the order of the
        picks. Indices that it does not use stay unused. Recorded samples come first, in addition to `count`.
        """
        owner, texts = (call.node, call.purpose), _texts_of(call)
        recorded = self._recorded.get((owner, texts), ())
        shared = self._by_thought or self._made(call).temperature == 0
        counters = (owner,) if shared else (owner, texts)
        first = max([index + 1 for index in recorded] + [self._next.get(counter, 0) for counter in counters])
        self._next.update(dict.fromkeys(counters, first + count))
        return _numbered(call, recorded, range(first, first + count))


def _texts_of(call: Call) -> Texts:
    return tuple([message.content for message in call.messages if message.role != "system"])


def _numbered(call: Call, recorded: deque[int] | tuple[()], reserved: range) -> Iterator[Call]:
    while recorded:
        yield msgspec.structs.replace(call, sample_index=recorded.popleft())
    for index in reserved:
        yield msgspec.structs.replace(call, sample_index=index)


class Samples(Request, frozen=True):
    """A request for the sample indices of a search. The strategy receives a `SampleCounter`.

    In a run made by `lab.branch`, the counter starts with the indices of the parent run, so that a thought
    keeps its samples when another thought is edited.

    Attributes:
        made: Returns a call of the search with the settings that the run adds to it.
        steerable: Whether the search takes the changes of a person (`Acts`).
    """

    made: Callable[[Call], Call] = _as_it_is
    steerable: bool = False


ProcedureStep: TypeAlias = Call | Gather | WithBudget | Effect | Request | Event
Procedure: TypeAlias = Generator[ProcedureStep, Any, T]


def ask(call: Call) -> Procedure[Reply]:
    """Make one call. A failure is returned as `Reply.error` and never raised."""
    reply: Reply = yield call
    return reply


def carry_out(effect: Effect) -> Procedure[Reply]:
    """Have a function answer a call. A failure is returned as `Reply.error` and never raised."""
    reply: Reply = yield effect
    return reply


def ask_function(
    call: Call, function: UserFunction, arguments: Sequence[Any], text: Callable[[Any], str]
) -> Procedure[Reply]:
    """Have a user's function answer a call: in the event loop if it is async, otherwise in a thread.

    Args:
        call: The call, made by `core.tools.function_call`.
        function: Called with `arguments`. It may return an awaitable.
        text: Converts the result of the function to the text of the reply.
    """

    async def awaited(value: Awaitable[Any]) -> str:
        return text(await value)

    async def in_loop() -> str:
        return text(await function(*arguments))

    def in_thread() -> str | Awaitable[str]:
        value = function(*arguments)
        return awaited(value) if inspect.isawaitable(value) else text(value)

    is_async = inspect.iscoroutinefunction(function.wrapped)
    return (yield from carry_out(Effect(call, in_loop if is_async else in_thread)))


def emit(event: E) -> Procedure[E]:
    """Record an event.

    Returns:
        The event as it was recorded, which the strategy must continue with. It differs from `event` if a
        person edited the thought or score (`lab.branch`).
    """
    recorded: E | None = yield event
    return event if recorded is None else recorded  # a test that drives the strategy with `next` sends None


def gather(
    branches: Sequence[Procedure[T]],
    *,
    at_most: int | None = None,
    at_once: int | None = None,
    seconds: float | None = None,
) -> Procedure[list[T]]:
    """Run `branches` concurrently, each at its own pace. Returns their results in the order given.

    Args:
        at_most: The most calls that one branch can make. It matters only under a budget on calls: further
            calls are then refused with `limit:at_most`, and branches run concurrently only if all of them fit
            into what is left, and otherwise one after the other. `None` (unbounded) never fits.
        at_once: Maximum number of branches that run at the same time. `None` means all.
        seconds: Time limit for all calls of the branches together, counted from the first call that is sent.
            Calls without a reply by then fail with an error that begins with `timeout`, and no further calls
            are sent. Time in which a call waits (for a budget, a limit of the endpoint, `spend` or a slot)
            does not count for its branch. `None` means no limit.
    """
    results: list[T] = yield Gather(branches, at_most, at_once, seconds)
    return results


def with_budget(budget: Budget, thinking: Procedure[T]) -> Procedure[T]:
    """Run `thinking` under `budget`. Refusals affect only `thinking`."""
    result: T = yield WithBudget(budget, thinking)
    return result


def with_timeout(seconds: float, thinking: Procedure[T], *, slots: Slots | None = None) -> Procedure[T]:
    """Run `thinking` with at most `seconds` for each call, in place of the lab's limit.

    The time is counted from when the call is sent; waiting in a queue or for a slot does not count. A call
    that takes longer fails with an error that begins with `timeout`.

    Args:
        seconds: Time limit of each call.
        thinking: The generator to run, such as `strategy.think(task)`.
        slots: Limits the calls in flight of all runs of the process that name the same slots.
    """
    result: T = yield WithBudget(Budget(), thinking, seconds, slots)
    return result


def map_steps(
    edit: Callable[[Any], Any], thinking: Procedure[T], of: type[Any] | tuple[type[Any], ...] = Call
) -> Procedure[T]:
    """Run `thinking` with `edit` applied to each of its steps, including those of its branches.

    This is how one strategy wraps another.

    Args:
        edit: Returns the step to yield instead. `None` yields nothing: `thinking` then receives its own step.
        of: The types of the steps that are edited, such as `Call` or types of events. Others are unchanged.
    """
    value: Any = None
    send = thinking.send
    changed = (Gather, WithBudget, *(of if isinstance(of, tuple) else (of,)))
    try:
        while True:
            try:
                step: Any = send(value)
            except StopIteration as end:
                result: T = end.value
                return result
            value = step
            if isinstance(step, changed):
                if isinstance(step, Gather):
                    step = step._replace(branches=[map_steps(edit, branch, of) for branch in step.branches])
                elif isinstance(step, WithBudget):
                    step = step._replace(thinking=map_steps(edit, step.thinking, of))
                if isinstance(step, of):
                    step = edit(step)
            if step is not None:
                value = yield step
    finally:
        thinking.close()


class Interceptor(Protocol):
    """Handles steps of a strategy, and may make calls of its own before and after. See `intercept`."""

    @property
    def of(self) -> type[Any] | tuple[type[Any], ...]:
        """The types of steps that it handles, never `Gather`. Other steps pass through unchanged."""

    def carry_out(self, step: Any) -> Procedure[Any]:
        """Yield `step`, or other steps in its place. Returns what the strategy receives."""

    def fork(self) -> Self:
        """Return an interceptor for a branch, with the same state but nothing mutable shared."""

    def join(self, branches: Sequence[Self]) -> None:
        """Merge into this interceptor the state of those of all branches, in branch order."""


def intercept(interceptor: Interceptor, thinking: Procedure[T], calls: int) -> Procedure[T]:
    """Run `thinking`, branches included. `interceptor` handles the steps of the types `interceptor.of`.

    Args:
        interceptor: Handles the steps.
        thinking: The generator to run, such as `strategy.think(task)`.
        calls: The most calls that `interceptor` makes for one call of the strategy.
    """
    value: Any = None
    send, of = thinking.send, interceptor.of
    performed = (Gather, WithBudget, *(of if isinstance(of, tuple) else (of,)))
    try:
        while True:
            try:
                step: Any = send(value)
            except StopIteration as end:
                result: T = end.value
                return result
            if not isinstance(step, performed):
                value = yield step
            elif isinstance(step, Gather):
                parts = [interceptor.fork() for _ in step.branches]
                pairs = zip(parts, step.branches, strict=True)
                branches = [intercept(part, branch, calls) for part, branch in pairs]
                at_most = None if step.at_most is None else calls * step.at_most
                value = yield step._replace(branches=branches, at_most=at_most)
                interceptor.join(parts)
            else:
                if isinstance(step, WithBudget):
                    step = step._replace(thinking=intercept(interceptor, step.thinking, calls))
                value = (yield from interceptor.carry_out(step)) if isinstance(step, of) else (yield step)
    finally:
        thinking.close()


def resample(number: int, thinking: Procedure[T]) -> Procedure[T]:
    """Run `thinking` as attempt `number` of several, with its own replies and random numbers."""

    def numbered(step: Call | RandomNumbers) -> Call | RandomNumbers:
        if isinstance(step, Call):
            return msgspec.structs.replace(step, attempt=(number, *step.attempt))
        return msgspec.structs.replace(step, attempt=f"{number} {step.attempt}")

    return map_steps(numbered, thinking, (Call, RandomNumbers))
