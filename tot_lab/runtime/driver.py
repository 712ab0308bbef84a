"""The driver: carries out what a strategy yields.

The strategy decides what happens, and the driver decides when. It advances every branch as far as possible,
sends the calls that the branches wait for, and stamps each record with its position in the program (step,
branch, step, …), so that the canonical record does not depend on latencies. A queue of branches replaces
recursion, so that nesting may be arbitrarily deep.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from random import Random
from typing import Any

import msgspec

from tot_lab.core.acts import Act, RaiseBudget, note_of
from tot_lab.core.calls import (
    TIMED_OUT,
    Bounds,
    Call,
    CallObserver,
    Halt,
    Need,
    Reply,
    format_error,
    readable,
    refused,
)
from tot_lab.core.records import (
    STOP_CODES,
    Decided,
    Ended,
    Note,
    Position,
    Scored,
    Thought,
    is_stop_code,
)
from tot_lab.core.task import Answer
from tot_lab.core.thinking import (
    Acts,
    Budget,
    BudgetLeft,
    Effect,
    Gather,
    RandomNumbers,
    Thinking,
    WithBudget,
)
from tot_lab.core.tools import TOOL, asks_no_model, function_call, tool_of
from tot_lab.record.edits import Edits
from tot_lab.runtime.budget import TIMEOUT, WITHIN, Claims, Scope
from tot_lab.runtime.recorder import Divergence, Recorder
from tot_lab.runtime.steering import Steering

DEEPEST = 1000
"""Maximum depth of a thought. The limit exists because an id contains its whole path."""

PATIENCE = 100
"""Consecutive refusals after which a strategy that keeps making calls is closed."""

LONG = 10_000
"""Events of one branch in one turn, after which other branches continue."""

PULSE = 0.2
"""Seconds after which a waiting event loop is woken.

ipykernel cancels an interrupted cell in a signal handler, which a sleeping loop does not notice (observed
with 7.4).
"""


class Branch:
    """A running generator and its position in the program.

    Attributes:
        held_since: When limits of the lab started to hold its call back, or `None`.
        held: Seconds that they have held it back since the time of its group began.
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
        self, thinking: Thinking[Any], prefix: Position, scope: Scope, join: Join | None, index: int
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


class Group:
    """Calls that share a time limit. `began` is when the first of them was sent, or `None` before that."""

    __slots__ = ("answered", "began", "seconds")

    def __init__(self, seconds: float):
        self.seconds = seconds
        self.began: float | None = None
        self.answered = False

    def ends(self, branch: Branch) -> float | None:
        """Return when the time for the call of one of the branches is up.

        Seconds during which limits of the lab held the call back do not count. Returns `None` while the time
        is not counted.
        """
        if self.began is None or branch.held_since is not None:
            return None
        return self.began + self.seconds + branch.held


class PendingCall:
    """An admitted call without a reply. The model uses it as the observer of the call.

    Attributes:
        worker: The task that carries the call out, once one does.
        ends: When its time is up, or `None` while the time is not counted.
        queued: Whether it waits for its turn.
    """

    __slots__ = ("branch", "call", "claims", "driver", "ends", "paid", "position", "queued", "worker")

    def __init__(self, driver: Driver, branch: Branch, position: Position, call: Call, claims: Claims):
        self.driver = driver
        self.branch = branch
        self.position = position
        self.call = call
        self.claims = claims
        self.paid: float | None = None
        self.ends: float | None = None
        self.queued = False
        self.worker: asyncio.Task[None] | None = None

    @property
    def watched(self) -> bool:
        """Whether a watcher wants partial text."""
        return bool(self.driver.recorder.text_watchers)

    def note(self, name: str, **data: Any) -> None:
        """Record a note about the call on its way."""
        self.driver.on_its_way(self, name, data)

    def partial(self, text: str) -> None:
        """Forward the text of the reply so far to the watchers."""
        self.driver.recorder.partial(self.position, self.call, text)

    def cancel(self, reason: str | None = None) -> None:
        """Cancel the task that carries the call out."""
        if self.worker is not None:
            self.worker.cancel(reason)


class Driver:
    """Carries out one run with `drive`. The recorder then holds all of its records."""

    def __init__(
        self,
        ask: Callable[[Call, CallObserver], Awaitable[Reply]],
        recorder: Recorder,
        *,
        budget: Budget | None = None,
        timeout: float | None = None,
        repeat: int = 0,
        replies: dict[Position, Reply] | None = None,
        in_order: bool = False,
        edits: Edits | None = None,
        bounds: Bounds | None = None,
        acts: dict[tuple[str, int], list[Act]] | None = None,
        steering: Steering | None = None,
    ) -> None:
        self.acts = acts or {}
        self.steering = steering
        self.ask = ask
        self.recorder = recorder
        self.timeout = timeout
        self.repeat = repeat
        self.replies = replies or {}
        self.in_order = in_order
        self.edits = edits
        self.bounds = bounds
        self.effects: dict[Position, Callable[[], Awaitable[str]]] = {}
        self.readied: dict[str | None, bool] = {}
        self.readying: list[asyncio.Task[None]] = []
        self.needs: dict[Position, Need | None] = {}
        self.root = Scope(None, budget, 0.0)
        self.ready: deque[tuple[Branch, Any]] = deque()
        self.paused: list[tuple[Branch, Any]] = []
        self.open: dict[Branch, None] = {}
        self.pending: dict[Branch, PendingCall] = {}
        self.untaken: deque[PendingCall] = deque()
        self.hiring = False
        # The event loop itself holds only weak references to tasks.
        self.workers: set[asyncio.Task[None]] = set()
        self.held: deque[tuple[Branch, Position, Call]] = deque()
        self.thoughts: set[str] = set()
        self.draws: set[tuple[Any, ...]] = set()
        self.cancelled = False
        self.cut_short = False
        self.failed = False  # ended by an error, which a replay needs to know
        self.spent: tuple[Position, str] | None = None
        self.servers: list[dict[str, Any]] = []
        self.woken = False
        self.late: BaseException | None = None
        self.timers: list[asyncio.TimerHandle] = []
        self.overdue: deque[tuple[float, PendingCall]] = deque()
        self.overdue_timer: asyncio.TimerHandle | None = None
        self.pulse: asyncio.TimerHandle | None = None

    async def drive(self, thinking: Thinking[Answer]) -> Answer:
        """Run to the end. In every case the recorder holds a valid run afterwards.

        Raises:
            asyncio.CancelledError: If the run was cancelled.
            Exception: Whatever the strategy raises.
        """
        self.loop = asyncio.get_running_loop()
        self.done: asyncio.Future[Answer] = self.loop.create_future()
        if not hasattr(thinking, "send") or inspect.iscoroutine(thinking):
            thinking = _no_thinking(thinking)
        root = Branch(thinking, (), self.root, None, 0)
        self.branch = root
        self._watch_deadline(self.root)
        self._start(root)
        self._wake()
        self._beat()
        try:
            answer = await self.done
            if self.late is not None:
                raise self.late
        except asyncio.CancelledError:
            self._end(self._cancel())
            raise
        except BaseException as error:
            self.failed = True
            if self.cancelled and not isinstance(error, Divergence):  # the replay of a cancelled run
                self._end(answer := Answer("", "cancelled"))
                return answer
            self._end_with_error(error)
            raise
        finally:
            self._close()
        self._end(answer)
        return answer

    # Branches.

    def _start(self, branch: Branch) -> None:
        self.open[branch] = None
        self.ready.append((branch, None))

    def _wake(self) -> None:
        """Schedule a turn. Replies that arrive in one iteration of the event loop share a turn."""
        if not self.woken:
            self.woken = True
            self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Advance every branch until all of them wait for replies, then write the records."""
        self.woken = False
        self.ready.extend(self.paused)
        self.paused.clear()
        paused = self.steering is not None and self.steering.paused and not self.cancelled
        try:
            while self.ready and not paused and not self.done.done():
                self._advance(*self.ready.popleft())
            self.recorder.flush()
        except BaseException as error:
            if self.done.done():
                self.late = error  # raised while writing the records of the last turn
            self._fail(error)

    def _advance(self, branch: Branch, value: Any) -> None:
        send = branch.thinking.send
        for _ in range(LONG):
            try:
                step = send(value)
            except StopIteration as end:
                self._finish(branch, end.value)
                return
            if type(step) is Acts:
                value = self._take_acts(branch, step)
                continue
            if type(step) is RandomNumbers:
                value = Random("\0".join([*step, str(self.repeat)]))
                continue
            branch.step += 1
            position = (*branch.prefix, branch.step)
            if type(step) is Call:
                self._ask(branch, position, step)
                return
            if type(step) is Gather:
                if step.branches:
                    self._fork(branch, position, step)
                    return
                value = []
            elif type(step) is WithBudget:
                scope = Scope(branch.scope, step.budget, self.recorder.now, call_seconds=step.call_seconds)
                self._watch_deadline(scope)
                join = Join(branch, 1, single=True)
                self._start(Branch(step.thinking, (*position, 0), scope, join, 0))
                return
            elif type(step) is Effect:
                self.effects[position] = step.carry_out
                self._ask(branch, position, step.call)
                return
            elif type(step) is BudgetLeft:
                value = self._budget_left(branch, position, step)
            else:
                value = step if self.edits is None else self.edits.applied(step)
                self._record_event(position, value)
        self.paused.append((branch, value))
        self._wake()

    def _record_event(self, position: Position, event: Any) -> None:
        kind = type(event)
        if kind is Thought:
            if event.id in self.thoughts:
                raise ValueError(
                    f"Duplicate thought id: got {event.id!r}. Each thought needs an id of its own."
                )
            if event.parent is not None and event.parent not in self.thoughts:
                raise ValueError(f"Unknown parent of thought {event.id!r}: got {event.parent!r}.")
            if event.id.count(".") > DEEPEST:
                raise ValueError(f"Thought {event.id[:40]}… is deeper than {DEEPEST} steps.")
            self.thoughts.add(event.id)
        elif kind is Scored or kind is Decided:
            if event.id not in self.thoughts:
                raise ValueError(f"Unknown thought in {kind.__name__}: got {event.id!r}.")
            if kind is Scored and event.score is not None and not 0 <= event.score <= 1:
                raise ValueError(
                    f"The score of thought {event.id} must be between 0 and 1: got {event.score}."
                )
        elif kind is not Note:
            raise TypeError(
                f"A strategy may yield calls and events: got {kind.__name__}. A generator needs `yield from`."
            )
        self.recorder.record(position, event)

    def _fork(self, branch: Branch, position: Position, step: Gather) -> None:
        if type(step.branches) is not list and not isinstance(step.branches, Sequence):
            raise TypeError(f"gather takes a list of branches: got {type(step.branches).__name__}.")
        count = len(step.branches)
        for thinking in step.branches:
            if not hasattr(thinking, "send"):
                raise TypeError(f"The branches of gather must be generators: got {type(thinking).__name__}.")
        if step.at_once is not None and step.at_once < 1:
            raise ValueError(f"at_once must be at least 1: got {step.at_once}.")
        join = Join(branch, count, single=False)
        left = branch.scope.calls_left()
        fits = left is None or (step.at_most is not None and count * step.at_most <= left)
        at_once = step.at_once if fits and not self.in_order else 1
        around = branch.scope
        if step.seconds is not None:
            around = Scope(around, None, 0.0)
            around.group = Group(step.seconds)

        def branches() -> Iterator[Branch]:
            for index, thinking in enumerate(step.branches):
                scope = around
                if left is not None and step.at_most is not None:
                    scope = Scope(scope, None, 0.0, at_most=step.at_most)
                yield Branch(thinking, (*position, index), scope, join, index)

        join.waiting = branches()
        for _ in range(count if at_once is None else min(at_once, count)):
            self._start(next(join.waiting))

    def _finish(self, branch: Branch, result: Any) -> None:
        self.open.pop(branch, None)
        join = branch.join
        if join is None:
            if not isinstance(result, Answer) or not isinstance(result.text, str):
                got = f"an Answer of {result.text!r}" if isinstance(result, Answer) else type(result).__name__
                raise TypeError(
                    f"think must return an Answer with a str as text: got {got}. Use `yield from`."
                )
            if not is_stop_code(result.stop_reason):
                raise ValueError(
                    f"Unknown stop code: got {result.stop_reason!r}. Use {', '.join(STOP_CODES)}."
                )
            for id in (result.node, *result.ranked):
                if id is not None and id not in self.thoughts:
                    raise ValueError(f"Unknown thought in the answer: got {id!r}.")
            if result.score is not None and not 0 <= result.score <= 1:
                raise ValueError(f"The score of the answer must be between 0 and 1: got {result.score}.")
            self.done.set_result(result)
            return
        join.results[branch.index] = result
        join.left -= 1
        join.answered = join.answered or branch.answered
        join.refused = join.refused or branch.refusals > 0
        following = next(join.waiting, None)
        if following is not None:
            following.held = branch.held  # it had to wait for this branch
            self._start(following)
        elif join.left == 0:
            if join.parent.scope.group is branch.scope.group:
                join.parent.held = branch.held
            self.ready.append((join.parent, join.results[0] if join.single else join.results))
            if join.answered:
                join.parent.answered, join.parent.refusals = True, 0
            elif join.refused:
                self._lose_patience(join.parent, "in all branches")

    # Calls.

    def _budget_left(self, branch: Branch, position: Position, step: BudgetLeft) -> Budget:
        """Return what is left of the budgets around `branch`, and record it."""
        self.recorder.record(position, function_call(step.at, "budget", "budget_left", "", step.sample_index))
        known = self.replies.get(position)
        if known is not None:
            self.recorder.record(position, known, 0.0)
            return Budget.model_validate_json(known.text)
        left = branch.scope.left(self.recorder.now)
        reply = Reply(left.model_dump_json(exclude_none=True), tool="budget_left")
        self.recorder.record(position, reply, 0.0)
        return left

    def _take_acts(self, branch: Branch, step: Acts) -> list[Act]:
        """Return the acts of a person before a pick of a search, and record them. Without any, the request
        has no place in the record.
        """
        taken = self.acts.get((step.at, step.pick), [])
        taken = taken or ([] if self.steering is None else self.steering.take(step.tree))
        acts = [act for act in taken if isinstance(act, RaiseBudget) or act.node in step.tree]
        if not acts:
            return []
        branch.step += 1
        self.recorder.record((*branch.prefix, branch.step), note_of(acts, step.at, step.pick))
        for act in acts:
            if isinstance(act, RaiseBudget):
                self.root.raise_to(act.limits)
                self._watch_deadline(self.root)
                self._let_go()
        return acts

    def _ask(self, branch: Branch, position: Position, call: Call) -> None:
        if call.node not in self.thoughts:
            raise ValueError(
                f"Unknown node of a call with purpose {call.purpose!r}: got {call.node!r}. Record the "
                f"thought first (`yield Thought(…)`)."
            )
        key = (call.node, call.purpose, call.sample_index, call.messages, call.attempt, call.model)
        before = len(self.draws)
        self.draws.add(key)
        if len(self.draws) == before:
            raise ValueError(
                f"Duplicate call at node {call.node}: purpose {call.purpose!r}, sample {call.sample_index}. "
                f"Pass a new sample index to draw another reply."
            )
        if self.repeat:
            call = msgspec.structs.replace(call, repeat=self.repeat)
        self.recorder.record(position, call)
        known = self.replies.get(position)
        if known is not None:
            has_usage = known.cost is not None and not known.reported_usage
            need = self._need(call) if branch.scope.counts_amounts and not has_usage else None
            branch.scope.replayed(call, known, need)
            self.cancelled = self.cancelled or known.error == "cancelled"
            if refused(known.error):
                self._refuse(branch, position, known)
            else:
                self._answer(branch, position, known, paid=0.0)
        elif self._admit(branch, position, call) is not None:
            branch.held_since = self.loop.time()
            self.held.append((branch, position, call))

    def _admit(self, branch: Branch, position: Position, call: Call) -> Scope | None:
        """Make the call or refuse it. Returns the scope that holds it back, if one does."""
        if self.cancelled:
            self._refuse(branch, position, Reply(error="cancelled"))
            return None
        scope = branch.scope
        claims: Claims = []
        if scope.chain:
            ready = not scope.counts_amounts or asks_no_model(call) or self._is_ready(call.model)
            if ready and scope.counts_amounts and position not in self.needs:
                self.needs[position] = self._need(call)
            verdict, claims = scope.admit(call, self.recorder.now, self.needs.get(position), ready=ready)
            if isinstance(verdict, Scope):
                return verdict
            self.needs.pop(position, None)
            if verdict is not None:
                self._beside("budget.exceeded", call.node, cap=str(verdict.error).partition(":")[2])
                self._refuse(branch, position, verdict)
                return None
            self._warn(scope, call.node)
        pending = self.pending[branch] = PendingCall(self, branch, position, call, claims)
        self._count_time(pending)
        ends = None if scope.group is None else scope.group.ends(branch)
        if ends is None or ends > self.loop.time():  # otherwise its timer ends the call
            self.untaken.append(pending)
            if not self.hiring:
                self._hire()
        return None

    def _need(self, call: Call) -> Need | None:
        """Return the most that `call` can use, or `None` if it is unknown."""
        return None if self.bounds is None or asks_no_model(call) else self.bounds.need(call)

    def _is_ready(self, model: str | None) -> bool:
        """Whether the bounds of calls to `model` are available. If not, loading them is started and the calls
        wait.
        """
        if self.bounds is None:
            return True
        if model not in self.readied:
            self.readied[model] = False
            self.readying.append(self.loop.create_task(self._make_ready(self.bounds, model)))
        return self.readied[model]

    async def _make_ready(self, bounds: Bounds, model: str | None) -> None:
        try:
            await bounds.ready(model)
        except Exception as error:  # the call itself will fail and report the reason
            self._beside("budget.unbounded", "", error=format_error(error))
        self.readied[model] = True
        self._let_go()
        self._wake()

    def on_its_way(self, pending: PendingCall, name: str, data: dict[str, Any]) -> None:
        """Record a note about a call from the layers between the driver and the model."""
        if self.pending.get(pending.branch) is not pending:
            return  # the branch no longer waits for it
        if name == "call.server":  # reported with every call, and recorded once
            if data in self.servers:
                return
            self.servers.append(data)
        if name == "call.answered":
            pending.ends = None  # while the reply is stored
            return
        self._beside(name, pending.call.node, call=list(pending.position), **data)
        if name in ("call.queued", "call.retried"):
            pending.ends = None
            if name == "call.queued":
                self._hold_group(pending, by_lab=not data.get("strategy"))
        elif name == "call.sent":
            self._count_time(pending)
        if self.recorder.watchers:
            self._wake()  # otherwise it is written with the next reply or pulse

    def _hire(self) -> None:
        """Start a worker unless one is starting.

        A worker starts the next one before it takes a call that may wait. Each waiting call therefore has its
        own task, and calls that do not wait share one.
        """
        self.hiring = True
        self.workers.add(worker := self.loop.create_task(self._work()))
        worker.add_done_callback(self.workers.discard)

    async def _work(self) -> None:
        self.hiring = False
        worker = asyncio.current_task()
        while self.untaken:
            pending = self.untaken.popleft()
            if self.pending.get(pending.branch) is not pending:
                continue  # its time was up before a worker took it
            pending.worker = worker
            if self.untaken and not self.hiring:
                self._hire()
            try:
                effect = self.effects.pop(pending.position, None) if self.effects else None
                reply = await (self.ask(pending.call, pending) if effect is None else _carried_out(effect))
            except Halt as error:
                self._fail(error)
                return
            # An error of a model is recorded as its reply.
            except (Exception, asyncio.CancelledError) as error:
                if self.pending.get(pending.branch) is not pending:
                    return  # cancelled by the driver
                reply = Reply(error=format_error(error))
            except (SystemExit, KeyboardInterrupt, GeneratorExit):
                raise
            except BaseException as error:
                self._fail(error)  # such as a failed test inside a model, which would otherwise be lost
                return
            self._receive(pending, reply)

    def _receive(self, pending: PendingCall, reply: Reply) -> None:
        branch = pending.branch
        if asks_no_model(pending.call):
            reply = msgspec.structs.replace(reply, tool=tool_of(pending.call))
        if self.pending.get(branch) is not pending or (self.done.done() and not self.done.cancelled()):
            return  # its time was up, or the run has ended
        del self.pending[branch]
        if branch.scope.group is not None:
            branch.scope.group.answered = True
        if branch.scope.chain:
            branch.scope.settle(pending.call, reply, pending.claims)
            self._warn(branch.scope, pending.call.node)
        if reply.error is not None and refused(reply.error):
            self._refuse(branch, pending.position, reply)
        else:
            paid = reply.cost if pending.paid is None else pending.paid
            self._answer(branch, pending.position, reply, paid)
        if self.held:
            self._let_go()
        if not self.woken:
            self._wake()

    def _count_time(self, pending: PendingCall) -> None:
        """Start the time limit of a call when it is made, or sent after waiting. A strategy's own limit
        replaces the lab's.
        """
        if pending.branch.scope.group is not None:
            self._count_group(pending)
        seconds = pending.branch.scope.call_seconds
        if pending.call.purpose == TOOL and seconds is None:
            return  # a tool has its own time limit
        if seconds is not None:
            pending.ends = self.loop.time() + seconds
            self.timers.append(
                self.loop.call_at(pending.ends, self._end_late, pending, pending.ends, seconds)
            )
        elif self.timeout is not None:
            pending.ends = self.loop.time() + self.timeout
            self.overdue.append((pending.ends, pending))
            if self.overdue_timer is None:
                self._watch_overdue()

    def _end_late(self, pending: PendingCall, end: float, seconds: float) -> None:
        """Time out a call that has its own limit, unless it was answered or started again."""
        if self.pending.get(pending.branch) is pending and pending.ends == end and not self.done.done():
            pending.cancel(TIMED_OUT)
            limit = "the strategy's limit for one call"
            self._receive(pending, Reply(error=f"{TIMEOUT} {seconds:g} s, {limit}"))

    def _count_group(self, pending: PendingCall) -> None:
        """Start the time of a group with its first call. A call that is made after its end times out at
        once.
        """
        pending.queued = False
        branch, group = pending.branch, pending.branch.scope.group
        if group is None:
            return
        now = self.loop.time()
        if group.began is None:
            group.began = now
        if branch.held_since is not None:
            branch.held += now - max(branch.held_since, group.began)
            branch.held_since = None
        self.timers.append(
            self.loop.call_at(group.ends(branch), self._end_in_group, pending, group.ends(branch))
        )

    def _hold_group(self, pending: PendingCall, *, by_lab: bool) -> None:
        """Note that a call waits for its turn. The time of a group does not begin while all of its calls
        wait.

        Args:
            pending: The call.
            by_lab: Whether a limit of the lab holds it back rather than one of the strategy.
        """
        pending.queued = True
        branch, group = pending.branch, pending.branch.scope.group
        if group is None:
            return
        if by_lab and branch.held_since is None:
            branch.held_since = self.loop.time()
        if not group.answered and all(
            one.queued for one in self.pending.values() if one.branch.scope.group is group
        ):
            group.began = None

    def _end_in_group(self, pending: PendingCall, end: float) -> None:
        """Time out a call whose group's time is up, unless it was answered or has had to wait since."""
        branch, group = pending.branch, pending.branch.scope.group
        if self.pending.get(branch) is not pending or self.done.done() or group.ends(branch) != end:
            return
        pending.cancel(TIMED_OUT)
        limit = "the strategy's limit for the group of calls"
        self._receive(pending, Reply(error=f"{TIMEOUT} {group.seconds:g} s, {limit}"))

    def _watch_overdue(self) -> None:
        """Set the one timer of all calls. They share one limit, so they time out in the order in which they
        started.
        """
        if self.overdue_timer is None and self.overdue:
            self.overdue_timer = self.loop.call_at(self.overdue[0][0], self._end_overdue)

    def _end_overdue(self) -> None:
        self.overdue_timer = None
        while self.overdue and not self.done.done():
            end, pending = self.overdue[0]
            if self.pending.get(pending.branch) is pending and pending.ends == end:
                if end > self.loop.time():
                    break
                pending.cancel(TIMED_OUT)
                self._receive(pending, Reply(error=f"{TIMEOUT} {self.timeout:g} s"))
            self.overdue.popleft()
        self._watch_overdue()

    def _let_go(self, *, all: bool = False) -> None:
        """Try the calls that were held back again, in order.

        While a scope holds a call back, its later calls keep waiting. With `all` every call is tried.
        """
        waiting, self.held = self.held, deque()
        holding: set[Scope] = set()
        while waiting:
            branch, position, call = waiting.popleft()
            if not all and not holding.isdisjoint(branch.scope.chain):
                self.held.append((branch, position, call))
            elif (scope := self._admit(branch, position, call)) is not None:
                self.held.append((branch, position, call))
                holding.add(scope)
                if scope is self.root and not all:
                    self.held.extend(waiting)
                    return

    def _answer(self, branch: Branch, position: Position, reply: Reply, paid: float | None = None) -> None:
        self.recorder.record(position, reply, paid)
        branch.answered, branch.refusals = True, 0
        self.ready.append((branch, reply))

    def _refuse(self, branch: Branch, position: Position, refusal: Reply) -> None:
        self.recorder.record(position, refusal)
        self.ready.append((branch, refusal))
        error = str(refusal.error)
        self.cut_short = self.cut_short or error == "cancelled"
        if error.startswith("budget:") and refusal.finish_reason != WITHIN:
            self.spent = min(self.spent or (position, error), (position, error))
        self._lose_patience(branch, refusal.error)

    def _lose_patience(self, branch: Branch, why: str | None) -> None:
        branch.refusals += 1
        if branch.refusals >= PATIENCE:
            self._fail(
                RuntimeError(
                    f"The strategy was closed, since it kept making calls after {PATIENCE} refusals ({why})."
                )
            )

    def _fail(self, error: BaseException) -> None:
        """End the run: no branch continues and no further call is made."""
        self.ready.clear()
        self._stop_working()
        if not self.done.done():
            self.done.set_exception(error)

    def _warn(self, scope: Scope, at: str) -> None:
        for cap, used, of in scope.warnings(self.recorder.now):
            self._beside("budget.warning", at, cap=cap, used=used, of=of)

    def _beside(self, name: str, at: str, **data: Any) -> None:
        """Record a note that depends on timing, outside the canonical record."""
        self.recorder.record((), Note(name, at, data))

    # Ends.

    def _beat(self) -> None:
        self._wake()
        self.pulse = self.loop.call_later(PULSE, self._beat)

    def _watch_deadline(self, scope: Scope) -> None:
        if scope.deadline is not None:
            delay = max(scope.deadline - self.recorder.now, 0.0)
            self.timers.append(self.loop.call_later(delay, self._time_is_up, scope, scope.deadline))

    def _time_is_up(self, scope: Scope, deadline: float) -> None:
        """Cancel all calls of `scope` that are in flight or held back, and answer them with a refusal."""
        if self.done.done() or scope.deadline != deadline:  # the limit was raised
            return
        for pending in [pending for pending in self.pending.values() if scope in pending.branch.scope.chain]:
            del self.pending[pending.branch]
            pending.cancel()
            refusal = scope.refusal("seconds")
            pending.branch.scope.settle(pending.call, refusal, pending.claims)
            self._beside("budget.exceeded", pending.call.node, cap="seconds")
            self._refuse(pending.branch, pending.position, refusal)
        self._let_go(all=True)
        self._wake()

    def _cancel(self) -> Answer:
        """Answer all open calls with `cancelled` and let the strategy return what it has."""
        if not self.done.cancelled() and self.done.exception() is None:
            return self.done.result()  # it had just ended
        self.done = self.loop.create_future()
        self._turn()  # replies that have arrived are used first
        if self.done.done():
            return self._reached()
        self.cancelled = True
        waiting = [(pending.position, pending.branch) for pending in self.pending.values()]
        waiting += [(position, branch) for branch, position, _ in self.held]
        self._stop_working()
        self.held.clear()
        for position, branch in sorted(waiting, key=lambda pair: pair[0]):
            self._refuse(branch, position, Reply(error="cancelled"))
        self._turn()
        return self._reached()

    def _reached(self) -> Answer:
        """Return the answer that a cancelled run still returned, or an empty one."""
        if self.done.done() and self.done.exception() is None:
            return self.done.result()
        return Answer("", "cancelled")

    def _stop_working(self) -> None:
        working = list(self.pending.values())
        self.pending.clear()
        self.untaken.clear()
        for pending in working:
            pending.cancel()

    def _end(self, answer: Answer) -> None:
        stop = answer.stop_reason
        if self.cut_short:  # otherwise it was complete when it was cancelled
            stop = "cancelled"
        elif self.spent is not None and stop != "solved":
            stop = self.spent[1]
        ended = Ended(stop, readable(answer.text), answer.node, answer.score, answer.ranked)
        self.recorder.record((self.branch.step + 1,), ended)

    def _end_with_error(self, error: BaseException) -> None:
        if not isinstance(error, Divergence):  # a divergence leaves the record unchanged
            ended = Ended("error", error=format_error(error))
            self.recorder.record((self.branch.step + 1,), ended)

    def _close(self) -> None:
        for timer in [*self.timers, self.overdue_timer, self.pulse]:
            if timer is not None:
                timer.cancel()
        for task in self.readying:
            task.cancel()
        self._stop_working()
        self.ready.clear()
        self.paused.clear()
        self.overdue.clear()  # breaks a reference cycle through the driver
        for branch in reversed(self.open):
            try:
                branch.thinking.close()
            except Exception as error:  # the run has ended, and this error must not hide the reason
                self._beside("close.failed", "", error=format_error(error))


async def _carried_out(effect: Callable[[], Awaitable[str]]) -> Reply:
    return Reply(await effect())


def _no_thinking(got: Any) -> Thinking[Answer]:
    if inspect.iscoroutine(got):
        got.close()
        raise TypeError("think must be a generator function without `async`: got a coroutine.")
    raise TypeError(f"think must be a generator function that yields: it returned {type(got).__name__}.")
    yield  # makes this function a generator
