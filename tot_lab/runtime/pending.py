"""A call that a branch waits for, while it passes through admission, clock and model."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

from tot_lab.core.calls import Call, Need
from tot_lab.core.records import Position
from tot_lab.runtime.budget import Reservations
from tot_lab.runtime.stepper import Branch


class Reports(Protocol):
    """Receives the reports of the layers between a call and its model."""

    @property
    def watched(self) -> bool:
        """Whether a watcher wants partial text."""

    def on_note(self, pending: PendingCall, name: str, data: dict[str, Any]) -> None:
        """Record a note about the call, such as `call.sent`."""

    def on_text(self, pending: PendingCall, text: str) -> None:
        """Forward the text of the reply so far."""


class Reservation(NamedTuple):
    """The most that a call can use, `None` if unknown, and its reservations in each scope."""

    need: Need | None
    reservations: Reservations


NO_LIMIT: tuple[float | None, str] = (None, "")


class PendingCall:
    """A call without a reply. The model uses it as the observer of the call.

    Attributes:
        carry_out: Answers the call instead of a model, for an `Effect`.
        reservation: Its bound and reservations, if it is under a budget.
        paid: USD really paid for the reply, if that is not its cost.
        charged: The most USD that the call can have cost if it ends now, without a reply. `None` if that is
            not known.
        ends: Deadline in the time of the event loop, or `None` while its time is not counted.
        limit: The limit in seconds behind `ends`, and whose limit it is: `call`, `lab` or `group`.
        worker: The task that carries the call out, once it has begun.
        fellows: All calls of that task that still have no reply, if it carries out several samples.
    """

    __slots__ = (
        "branch",
        "call",
        "carry_out",
        "charged",
        "ends",
        "fellows",
        "limit",
        "paid",
        "position",
        "reports",
        "reservation",
        "worker",
    )

    def __init__(
        self,
        reports: Reports,
        branch: Branch,
        position: Position,
        call: Call,
        carry_out: Callable[[], Awaitable[str] | str] | None,
    ):
        self.reports = reports
        self.branch = branch
        self.position = position
        self.call = call
        self.carry_out = carry_out
        self.reservation: Reservation | None = None
        self.paid: float | None = None
        self.charged: float | None = None
        self.ends: float | None = None
        self.limit = NO_LIMIT
        self.worker: asyncio.Task[None] | None = None
        self.fellows: dict[PendingCall, Call] | None = None

    @property
    def reservations(self) -> Reservations:
        """The reservations of the call, by scope."""
        return [] if self.reservation is None else self.reservation.reservations

    @property
    def need(self) -> Need | None:
        """The most that the call can use, or `None` if that is unknown."""
        return None if self.reservation is None else self.reservation.need

    @property
    def watched(self) -> bool:
        """Whether a watcher wants partial text."""
        return self.reports.watched

    def note(self, name: str, **data: Any) -> None:
        """Record a note about the call while it is in flight."""
        self.reports.on_note(self, name, data)

    def partial(self, text: str) -> None:
        """Forward the text of the reply so far to the watchers."""
        self.reports.on_text(self, text)

    def cancel(self, reason: str | None = None) -> None:
        """Cancel the task that carries the call out, unless that task has other calls. The most that the call
        can have cost counts as paid.
        """
        if self.charged is not None:
            self.paid = max(self.charged, self.paid or 0.0)
        if self.fellows is not None:
            self.fellows.pop(self, None)
        if self.worker is not None and not self.fellows:
            self.worker.cancel(reason)
