"""The driver: makes the calls that a strategy waits for, and ends the run.

The stepper runs the strategy, admission applies the budgets, the clock applies time limits, and the driver
decides when each call is made. Each record has its position in the program, so the canonical record does not
depend on latencies.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec

from tot_lab.core.calls import (
    TIMED_OUT,
    Bounds,
    Call,
    CallObserver,
    Halt,
    Reply,
    format_error,
    readable,
    refused,
    shared_fields,
)
from tot_lab.core.protocol import Budget, BudgetLeft, Effect, Procedure, Request, Slots
from tot_lab.core.records import Ended, Note, Position, failed_try
from tot_lab.core.task import Answer
from tot_lab.core.tools import asks_no_model, function_call, tool_of
from tot_lab.models.stack import Give, SampleCalls
from tot_lab.runtime.admission import Admission
from tot_lab.runtime.budget import TIMEOUT, WITHIN, Scope
from tot_lab.runtime.clock import Clock, Timed
from tot_lab.runtime.pending import PendingCall
from tot_lab.runtime.recorder import Divergence, Recorder
from tot_lab.runtime.slots import pool_of
from tot_lab.runtime.stepper import Branch, Stepper, default_answer
from tot_lab.runtime.threads import text_of

LIMITS = {
    "lab": "",
    "call": ", the strategy's limit for one call",
    "group": ", the strategy's limit for the group of calls",
}
"""Text about each kind of limit in the error of a call that took too long."""


class SampleRoute(Protocol):
    """Requests several samples of one prompt with a single request."""

    def samples_at_once(self, call: Call) -> int:
        """Return how many samples of the prompt of `call` one request can ask for."""

    def ask_each(self, asked: SampleCalls, give: Give) -> Awaitable[None]:
        """Call `give` with each pending call and its reply, or `None` if the call must be made by itself."""


class Driver:
    """Carries out one run with `drive`. The recorder then holds all of its records.

    It must be created in the event loop of the run.

    Args:
        ask: Answers a call. It reports progress, such as retries, to the observer.
        recorder: Receives all records.
        budget: The budget of the run.
        timeout: Seconds that a call may take if its strategy sets no time limit. `None` means no limit.
        repeat: Index of the run's repeat, from 0.
        replies: Replies that are known in advance, by position of the call.
        tries: Failed tries in the journal, with their usage, by position of the call.
        in_order: Whether branches run one after the other.
        bounds: Computes the most that a call can use.
        is_paused: Returns whether the run is paused, so that the strategy must wait.
        samples: Requests several samples of one prompt together. `None` requests each sample by itself.
    """

    def __init__(
        self,
        ask: Callable[[Call, CallObserver], Awaitable[Reply]],
        recorder: Recorder,
        *,
        budget: Budget | None = None,
        timeout: float | None = None,
        repeat: int = 0,
        replies: Mapping[Position, Reply] | None = None,
        tries: Mapping[Position, Sequence[Reply]] | None = None,
        in_order: bool = False,
        bounds: Bounds | None = None,
        is_paused: Callable[[], bool] = lambda: False,
        samples: SampleRoute | None = None,
    ) -> None:
        self.recorder = recorder
        self.repeat = repeat
        self.replies = replies or {}
        self.tries = tries or {}
        self.is_paused = is_paused
        self.clock = Clock(timeout, self._expire, self.wake)
        self.admission = Admission(
            budget, bounds, recorder, self.clock, in_order=in_order, on_loaded=self._on_loaded
        )
        self.workers = Workers(ask, samples, self)
        self.pending: dict[Branch, PendingCall] = {}
        self.reported: list[tuple[str, dict[str, Any]]] = []
        self.cancelled = False
        self.failed = False
        """Whether an error ended the run, which a replay needs to know."""
        self._cut_short = False
        self._out_of: tuple[Position, str] | None = None
        self._paused = False
        self._woken = False
        self._late: BaseException | None = None
        self._done: asyncio.Future[Answer] = self.clock.loop.create_future()

    @property
    def limits(self) -> dict[str, float]:
        """The limits of the run's budget, by name."""
        return self.admission.root.limits

    @property
    def unpriced(self) -> bool:
        """Whether a call was counted as free because nothing about its price is known."""
        return self.admission.root.use.unpriced

    @property
    def is_waiting(self) -> bool:
        """Whether all calls that the strategy can make at the moment were made."""
        return not (self._woken or self.workers.untaken)

    async def drive(
        self,
        thinking: Procedure[Answer],
        respond: Callable[[Request], Any] = lambda request: None,
    ) -> Answer:
        """Run to the end. In every case the recorder holds a valid run afterwards.

        Args:
            thinking: The generator of the strategy.
            respond: Returns the answer to a request of the strategy that is not recorded, or `None` for the
                default answer.

        Raises:
            asyncio.CancelledError: If the run was cancelled.
            Exception: Whatever the strategy raises.
        """
        root, record = self.admission.root, self.recorder.record
        self.stepper = Stepper(thinking, record, self.admission, root, partial(self._respond, respond))
        self.clock.run()
        self.wake()
        try:
            answer = await self._done
            if self._late is not None:
                raise self._late
        except asyncio.CancelledError:
            self._end(self._cancel())
            raise
        except BaseException as error:
            self.failed = True
            if self.cancelled and not isinstance(error, Divergence):  # this is the replay of a cancelled run
                self._end(answer := Answer("", "cancelled"))
                return answer
            if not isinstance(error, Divergence):  # a divergence leaves the record unchanged
                self.recorder.record(self.stepper.end, Ended("error", error=format_error(error)))
            raise
        finally:
            self._close()
        self._end(answer)
        return answer

    def raise_budget(self, limits: Mapping[str, float]) -> None:
        """Replace limits of the run's budget."""
        self.admission.raise_to(limits)
        self._release_held()

    # Turns.

    def wake(self) -> None:
        """Schedule a turn. Replies that arrive in one iteration of the event loop share a turn."""
        if not self._woken:
            self._woken = True
            self.clock.loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Advance every branch until all of them wait for replies, then write the records."""
        self._woken = False
        done, stepper = self._done, self.stepper
        try:
            was_paused, self._paused = self._paused, self.is_paused() and not self.cancelled
            if not self._paused:
                if was_paused:
                    self._release_held()
                for branch, position, step in stepper.turn():
                    self._take_up(branch, position, step)
                    if done.done():
                        break
                if stepper.paused:
                    self.wake()
                if stepper.result is not None and not done.done():
                    done.set_result(stepper.result)
            self.recorder.flush()
        except BaseException as error:
            if done.done():
                self._late = error  # raised while writing the records of the last turn
            self.fail(error)

    # Calls.

    def _take_up(self, branch: Branch, position: Position, step: Call | Effect) -> None:
        """Record the call that a branch waits for. Then answer it from the journal, make it, hold it back or
        refuse it.
        """
        call, carry_out = (step, None) if isinstance(step, Call) else step
        if self.repeat:
            call = msgspec.structs.replace(call, repeat=self.repeat)
        self.recorder.record(position, call)
        pending = PendingCall(self, branch, position, call, carry_out)
        for failed in self.tries.get(position, ()):
            self.admission.replayed(pending, failed, is_try=True)
        known = self.replies.get(position)
        if known is not None:
            self.admission.replayed(pending, known)
            self.cancelled = self.cancelled or known.error == "cancelled"
            self._answer(pending, known, 0.0)
        elif self.cancelled:
            self._answer(pending, Reply(error="cancelled"))
        else:
            verdict = self.admission.admit(pending) if branch.scope.chain else None
            if verdict is None:
                self._make(pending)
            elif isinstance(verdict, Scope):
                self.clock.hold(pending)
                self.admission.held.append(pending)
            else:
                self._answer(pending, verdict)

    def _respond(
        self, respond: Callable[[Request], Any], request: Request, branch: Branch, position: Position
    ) -> Any:
        """Return the answer to a request of the strategy. The answer to `BudgetLeft`, for the budgets around
        `branch`, is recorded.
        """
        if not isinstance(request, BudgetLeft):
            answer = respond(request)
            return default_answer(request, self.repeat) if answer is None else answer
        self.recorder.record(
            position, function_call(request.at, "budget", "budget_left", "", request.sample_index)
        )
        reply = self.replies.get(position)
        if reply is None:
            left = branch.scope.left(self.recorder.now)
            reply = Reply(left.model_dump_json(exclude_none=True), tool="budget_left")
        self.recorder.record(position, reply, 0.0)
        return Budget.model_validate_json(reply.text)

    def _make(self, pending: PendingCall) -> None:
        """Make an admitted call. If the time of its group is over, the clock ends it instead."""
        self.pending[pending.branch] = pending
        if self.clock.start(pending):
            self.workers.take(pending)

    def is_open(self, pending: PendingCall) -> bool:
        """Whether a branch still waits for this call."""
        return self.pending.get(pending.branch) is pending

    def receive(self, pending: PendingCall, reply: Reply) -> None:
        """Pass a reply to the branch that waits for it. A reply that comes too late is ignored."""
        branch = pending.branch
        if self.pending.get(branch) is not pending or (self._done.done() and not self._done.cancelled()):
            return  # its time was up, or the run has ended
        if pending.call.model is not None and asks_no_model(pending.call):
            reply = msgspec.structs.replace(reply, tool=tool_of(pending.call))
        del self.pending[branch]
        pending.ends = None
        if branch.scope.chain:
            self.admission.settle(pending, reply)
        self._answer(pending, reply, reply.cost if pending.paid is None else pending.paid)
        if self.admission.held:
            self._release_held()
        if not self._woken:
            self.wake()

    def _answer(self, pending: PendingCall, reply: Reply, paid: float | None = None) -> None:
        """Record a reply, and let the branch that waits for it continue."""
        error = reply.error
        self.recorder.record(pending.position, reply, paid)
        if error is None or not refused(error):
            self.stepper.answer(pending.branch, reply)
            return
        self._cut_short = self._cut_short or error == "cancelled"
        if error.startswith("budget:") and reply.finish_reason != WITHIN:
            self._out_of = min(self._out_of or (pending.position, error), (pending.position, error))
        self.stepper.refuse(pending.branch, reply, error)

    def _release_held(self, *, all: bool = False) -> None:
        """Make or refuse the held calls that need not wait any longer. In a paused run they keep waiting,
        unless `all` is true.
        """
        if self._paused and not all:
            return
        for pending, refusal in self.admission.released(all=all):
            if refusal is None:
                self._make(pending)
            else:
                self._answer(pending, refusal)

    def _on_loaded(self) -> None:
        if not self._done.done():
            self._release_held()
            self.wake()

    # Reports about calls in flight.

    @property
    def watched(self) -> bool:
        """Whether a watcher wants partial text."""
        return bool(self.recorder.text_watchers)

    def on_text(self, pending: PendingCall, text: str) -> None:
        """Pass the text of a reply so far to the watchers as a note `call.partial`, which is not recorded."""
        call = pending.call
        data = {
            "call": list(pending.position),
            "kind": call.purpose,
            "draw": call.sample_index,
            "text": text,
        }
        for watcher in self.recorder.text_watchers:
            watcher(Note("call.partial", call.node, data))

    def on_note(self, pending: PendingCall, name: str, data: dict[str, Any]) -> None:
        """Record a note about a call from the layers between the driver and the model."""
        if not self.is_open(pending):
            return
        if name in ("call.server", "call.dropped"):  # reported with every call, and recorded once
            if (name, data) in self.reported:
                return
            self.reported.append((name, data))
        if name == "call.answered":
            pending.ends = None  # no deadline while the reply is stored
            return
        note = Note(name, pending.call.node, {"call": list(pending.position), **data})
        self.recorder.record((), note)
        pending.charged = data.get("paid", pending.charged)
        if name == "call.queued":
            self.clock.hold(pending)
        elif name == "call.retried":
            self.clock.hold_own(pending)
            if not self.admission.tried(pending, failed_try(data)):
                pending.cancel()
                error = f"{data['error']} (the budget has no room for another try)"
                self.receive(pending, Reply(error=error))
        elif name == "call.sent":
            self.clock.start(pending)
        if self.recorder.watchers or "paid" in data:  # if the process is killed, the amount must be on disk
            self.wake()  # otherwise it is written with the next reply or tick

    # Deadlines.

    def _expire(self, one: Timed) -> None:
        """End a call or a scope that has reached its deadline."""
        if self._done.done():
            return
        if isinstance(one, Scope):
            self._end_scope(one)
        elif isinstance(one, PendingCall) and self.is_open(one):
            seconds, owner = one.limit
            one.cancel(TIMED_OUT)
            self.receive(one, Reply(error=f"{TIMEOUT} {seconds:g} s{LIMITS[owner]}"))

    def _end_scope(self, scope: Scope) -> None:
        """Cancel all calls of `scope` that are in flight or held back, and answer them with a refusal."""
        for pending in [one for one in self.pending.values() if scope in one.branch.scope.chain]:
            del self.pending[pending.branch]
            pending.ends = None
            pending.cancel()
            self._answer(pending, self.admission.settle_late(pending, scope), pending.paid)
        self._release_held(all=True)
        self.wake()

    # Ends.

    def fail(self, error: BaseException) -> None:
        """End the run: no branch continues and no further call is made."""
        self.stepper.stop()
        self._stop_working()
        if not self._done.done():
            self._done.set_exception(error)

    def _cancel(self) -> Answer:
        """Answer all open calls with `cancelled` and let the strategy return what it has."""
        if not self._done.cancelled() and self._done.exception() is None:
            return self._done.result()  # the run had just ended
        self._done = self.clock.loop.create_future()
        self._turn()  # replies that have arrived are used first
        if not self._done.done():
            self.cancelled = True
            waiting = [*self.pending.values(), *self.admission.held]
            self._stop_working()
            self.admission.held.clear()
            for pending in sorted(waiting, key=lambda one: one.position):
                self._answer(pending, Reply(error="cancelled"), pending.paid)
            self._turn()
        if self._done.done() and self._done.exception() is None:
            return self._done.result()
        return Answer("", "cancelled")

    def _stop_working(self) -> None:
        working = list(self.pending.values())
        self.pending.clear()
        self.workers.untaken.clear()
        for pending in working:
            pending.ends = None
            pending.cancel()

    def _end(self, answer: Answer) -> None:
        stop = answer.stop_reason
        if self._cut_short:  # otherwise the run was complete when it was cancelled
            stop = "cancelled"
        elif self._out_of is not None and stop != "solved":
            stop = self._out_of[1]
        ended = Ended(stop, readable(answer.text), answer.node, answer.score, answer.ranked)
        self.recorder.record(self.stepper.end, ended)

    def _close(self) -> None:
        """Close all generators, and break the reference cycles through the driver."""
        self._stop_working()
        self.clock.close()
        self.admission.close()
        self.workers.close()
        for error in self.stepper.close():  # the run has ended, and these errors must not hide why
            self.recorder.beside("close.failed", "", error=format_error(error))


class Workers:
    """The tasks that carry out calls. A call that has to wait for its reply has its own task. Calls that are
    answered without waiting share a task, and so do samples of one request.

    Args:
        ask: Answers a call.
        samples: Answers samples of one request together.
        driver: Receives the replies.
    """

    def __init__(
        self,
        ask: Callable[[Call, CallObserver], Awaitable[Reply]],
        samples: SampleRoute | None,
        driver: Driver,
    ) -> None:
        self.ask = ask
        self.samples = samples
        self.driver = driver
        self.untaken: deque[PendingCall] = deque()
        """Calls that no task has begun."""
        self._starting = 0
        # The event loop itself holds only weak references to tasks.
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, pending: PendingCall) -> None:
        """Queue a call for a task, and start a task if none is starting."""
        self.untaken.append(pending)
        if not self._starting:
            self._start()

    def close(self) -> None:
        """Release the driver."""
        del self.driver

    def _start(self) -> None:
        self._starting += 1
        self._tasks.add(task := asyncio.get_running_loop().create_task(self._work()))
        task.add_done_callback(self._tasks.discard)

    async def _work(self) -> None:
        """Carry out calls until none is left. Before each call, further tasks for the calls that are left are
        started, at most as many as are running.
        """
        self._starting -= 1
        task = asyncio.current_task()
        while self.untaken:
            driver, pending = self.driver, self.untaken.popleft()
            if driver.pending.get(pending.branch) is not pending:
                continue  # its time was up before a task took it
            asked = self._with_samples(pending)
            for one in asked:
                one.worker = task
            while self._starting < min(len(self.untaken), len(self._tasks) - self._starting):
                self._start()
            try:
                if len(asked) > 1 and self.samples is not None:
                    await self.samples.ask_each(asked, self._give)
                    continue
                if pending.carry_out is not None:
                    reply = Reply(await text_of(pending.carry_out))
                elif pending.branch.scope.slots is None:
                    reply = await self.ask(pending.call, pending)
                else:
                    reply = await self._ask_in_slot(pending, pending.branch.scope.slots)
            except Halt as error:
                driver.fail(error)
                return
            # An error of a model is recorded as its reply.
            except (Exception, asyncio.CancelledError) as error:
                left = [one for one in asked if driver.is_open(one)]
                if not left:
                    return  # cancelled by the driver
                for one in left:
                    self._give(one, Reply(error=format_error(error)))
                continue
            except (SystemExit, KeyboardInterrupt, GeneratorExit):
                raise
            except BaseException as error:
                driver.fail(error)  # such as `pytest.fail` in a model, which would be lost in the task
                return
            self._give(pending, reply)

    def _with_samples(self, pending: PendingCall) -> dict[PendingCall, Call]:
        """Take further samples of the request of `pending` from the queue. Returns all of these calls, with
        `pending` first.
        """
        asked = {pending: pending.call}
        if self.samples is None or not self.untaken or self.driver.watched or _by_itself(pending):
            return asked
        most, shared = self.samples.samples_at_once(pending.call), shared_fields(pending.call)
        while self.untaken and len(asked) < most:
            other = self.untaken[0]
            if _by_itself(other) or shared_fields(other.call) != shared:
                break
            self.untaken.popleft()
            if self.driver.is_open(other):
                asked[other] = other.call
        if len(asked) > 1:
            for one in asked:
                one.fellows = asked
        return asked

    def _give(self, pending: PendingCall, reply: Reply | None) -> None:
        """Give the driver the reply to a call. `None` means that the call must be made by itself."""
        if pending.fellows is not None:
            pending.fellows.pop(pending, None)
        if reply is None:
            pending.fellows = {pending: pending.call}
            self.take(pending)
        else:
            self.driver.receive(pending, reply)

    async def _ask_in_slot(self, pending: PendingCall, slots: Slots) -> Reply:
        """Return the reply to a call that first has to wait for one of the shared `slots`."""
        pool = pool_of(slots)
        await pool.enter(lambda: pending.note("call.queued", slots=slots.name))
        try:
            self.driver.clock.start(pending)
            return await self.ask(pending.call, pending)
        finally:
            pool.leave()


def _by_itself(pending: PendingCall) -> bool:
    """Whether a call cannot be requested together with other calls."""
    return bool(pending.carry_out or pending.fellows or pending.branch.scope.slots)
