"""Admission: whether a call may be made now, has to wait, or is refused by a budget.

The budgets themselves are in `tot_lab.runtime.budget`. This module creates the `Scope` objects, holds back
the calls that wait for room in a budget, and loads the prices and limits that bound how much a call can use.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import repeat

from tot_lab.core.calls import Bounds, Need, Reply, format_error
from tot_lab.core.protocol import Budget, Gather, WithBudget
from tot_lab.core.tools import asks_no_model
from tot_lab.runtime.budget import Group, Scope
from tot_lab.runtime.clock import Clock
from tot_lab.runtime.pending import PendingCall, Reservation
from tot_lab.runtime.recorder import Recorder


class Admission:
    """Admits the calls of one run.

    Args:
        budget: The budget of the run.
        bounds: Computes the most that a call can use. `None` means that nothing is known.
        recorder: Receives notes about the budgets.
        clock: Reports when a limit on seconds is reached.
        in_order: Whether branches run one after the other.
        on_loaded: Called when loading the prices and limits of a model has ended. Its calls were held back
            until then.
    """

    def __init__(
        self,
        budget: Budget | None,
        bounds: Bounds | None,
        recorder: Recorder,
        clock: Clock,
        *,
        in_order: bool,
        on_loaded: Callable[[], None],
    ) -> None:
        self.bounds = bounds
        self.recorder = recorder
        self.clock = clock
        self.in_order = in_order
        self.held: deque[PendingCall] = deque()
        """Calls that wait for room in a budget, or until the bounds of their model are loaded."""
        self.root = Scope(None, budget, 0.0)
        self._on_loaded = on_loaded
        self._loading: dict[str | None, asyncio.Task[None]] = {}
        self._set_deadline(self.root)

    # Scopes.

    def of_part(self, scope: Scope, step: WithBudget) -> Scope:
        """Return the scope of a part of the run with its own budget or time limit."""
        inner = Scope(scope, step.budget, self.recorder.now, call_seconds=step.call_seconds, slots=step.slots)
        self._set_deadline(inner)
        return inner

    def of_branches(self, scope: Scope, step: Gather) -> tuple[Iterable[Scope], int]:
        """Return the scopes of the branches, and how many branches start at once.

        If the branches together may make more calls than the budget has left, they run one after the other,
        so that a rerun refuses the same calls.
        """
        count, left = len(step.branches), scope.calls_left()
        fits = left is None or (step.at_most is not None and count * step.at_most <= left)
        at_once = step.at_once if fits and not self.in_order else 1
        if step.seconds is not None:
            scope = Scope(scope, None, 0.0, group=Group(step.seconds))
        scopes: Iterable[Scope] = repeat(scope)
        if left is not None and step.at_most is not None:
            scopes = (Scope(scope, None, 0.0, at_most=step.at_most) for _ in step.branches)
        return scopes, count if at_once is None else min(at_once, count)

    def raise_to(self, limits: Mapping[str, float]) -> None:
        """Replace limits of the run's budget. Limits that it does not have are ignored."""
        self.root.raise_to(limits)
        self._set_deadline(self.root)

    def _set_deadline(self, scope: Scope) -> None:
        if scope.deadline is not None:
            left = max(scope.deadline - self.recorder.now, 0.0)
            self.clock.set(scope, self.clock.now() + left)

    # Calls.

    def admit(self, pending: PendingCall) -> Reply | Scope | None:
        """Reserve the most that a call can use. Returns the refusal, the scope that holds the call back, or
        `None` if the call may be made.
        """
        scope, call = pending.branch.scope, pending.call
        ready = not scope.counts_amounts or asks_no_model(call) or self._is_ready(call.model)
        need = None if pending.reservation is None else pending.reservation.need
        if ready and scope.counts_amounts and pending.reservation is None:
            need = self._need(pending)
        verdict, reservations = scope.admit(call, self.recorder.now, need, ready=ready)
        if ready:
            pending.reservation = Reservation(need, reservations)
        if isinstance(verdict, Reply):
            cap = str(verdict.error).partition(":")[2]
            self.recorder.beside("budget.exceeded", call.node, cap=cap)
        elif verdict is None:
            self._warn(scope, call.node)
        return verdict

    def settle(self, pending: PendingCall, reply: Reply) -> None:
        """Count the usage of an admitted call, and release its reservation."""
        scope = pending.branch.scope
        scope.settle(pending.call, reply, pending.reservations, pending.need)
        self._warn(scope, pending.call.node)

    def tried(self, pending: PendingCall, reply: Reply) -> bool:
        """Count the usage of a failed try of an admitted call. Returns whether another try is admitted."""
        scope = pending.branch.scope
        if not scope.counts_amounts or asks_no_model(pending.call):
            return True
        has_room = scope.tried(pending.call, reply, pending.reservations, pending.need)
        self._warn(scope, pending.call.node)
        return has_room

    def settle_late(self, pending: PendingCall, scope: Scope) -> Reply:
        """Release the reservation of a call that a limit of `scope` on seconds ended. Returns the refusal."""
        refusal = scope.refusal("seconds")
        pending.branch.scope.settle(pending.call, refusal, pending.reservations, pending.need)
        self.recorder.beside("budget.exceeded", pending.call.node, cap="seconds")
        return refusal

    def replayed(self, pending: PendingCall, reply: Reply, *, is_try: bool = False) -> None:
        """Count a call, or a failed try, whose reply is in the journal, as it was counted when it was
        made.
        """
        scope = pending.branch.scope
        has_usage = reply.cost is not None and not reply.reported_usage
        need = self._need(pending) if scope.counts_amounts and not has_usage else None
        scope.replayed(pending.call, reply, need, is_try=is_try)

    def released(self, *, all: bool = False) -> list[tuple[PendingCall, Reply | None]]:
        """Remove the held calls that are decided now. Returns each with its refusal, `None` if it may be
        made.

        While a scope holds a call back, later calls in this scope keep waiting. `all` checks every call.
        """
        waiting, self.held = self.held, deque()
        holding: set[Scope] = set()
        decided: list[tuple[PendingCall, Reply | None]] = []
        while waiting:
            pending = waiting.popleft()
            if not all and not holding.isdisjoint(pending.branch.scope.chain):
                self.held.append(pending)
                continue
            verdict = self.admit(pending)
            if not isinstance(verdict, Scope):
                decided.append((pending, verdict))
                continue
            self.held.append(pending)
            holding.add(verdict)
            if verdict is self.root and not all:
                self.held.extend(waiting)
                break
        return decided

    def close(self) -> None:
        """Stop loading bounds."""
        for task in self._loading.values():
            task.cancel()
        del self._on_loaded  # it refers to the driver

    def _need(self, pending: PendingCall) -> Need | None:
        """Return the most that a call can use, or `None` if it is unknown."""
        call = pending.call
        return None if self.bounds is None or asks_no_model(call) else self.bounds.need(call)

    def _is_ready(self, model: str | None) -> bool:
        """Whether the bounds of calls to `model` are available. If not, loading them is started and the calls
        wait.
        """
        if self.bounds is None:
            return True
        task = self._loading.get(model)
        if task is None:
            task = self._loading[model] = self.clock.loop.create_task(self._load(self.bounds, model))
        return task.done()

    async def _load(self, bounds: Bounds, model: str | None) -> None:
        try:
            await bounds.ready(model)
        except Exception as error:  # the call itself will fail and report the reason
            self.recorder.beside("budget.unbounded", "", error=format_error(error))
        self.clock.loop.call_soon(self._on_loaded)  # runs after this task is done

    def _warn(self, scope: Scope, at: str) -> None:
        """Record a warning for each limit that is nearly used up."""
        for cap, used, of in scope.warnings(self.recorder.now):
            self.recorder.beside("budget.warning", at, cap=cap, used=used, of=of)
