"""Budgets, which are checked before a call is made.

A scope is the run, or a part of it with its own limits. Each call is admitted, held back or refused by every
scope that contains it. Calls are counted exactly. If the branches of a `gather` could make more calls than
are left, they run one after the other, so that a rerun refuses the same calls. Tokens and USD are reserved
when a call is admitted and settled when its reply arrives.

If the most that a call can use is known, it is reserved. Otherwise calls are admitted in a ramp: the calls in
flight never exceed the settled ones by more than one, and each reserves the largest usage so far. The
overshoot is then at most (calls in flight) x (largest usage of one call).

The usage of a failed try counts when it fails. A call is not tried again if that leaves no room.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tot_lab.core.calls import Call, Need, Reply, believed, estimated_tokens, refused
from tot_lab.core.protocol import Budget, Slots
from tot_lab.core.tools import asks_no_model

AMOUNTS = ("input_tokens", "output_tokens", "tokens", "usd")

ROUNDING = 1e-9
"""Relative tolerance of a limit, since sums of floats are rounded: 10 x 0.1 must fit into 1."""
WITHIN = "within"
"""`finish_reason` of a refusal by the budget of a part of the run. A refusal by the run's own budget has
no `finish_reason`.
"""
WARN_AT = 0.8


class ReservedAmount(NamedTuple):
    """The reservation of one call for one amount (tokens or USD).

    Attributes:
        fixed: The part with a known bound.
        prompt: Estimated tokens of a prompt that was not counted.
        unknown: 1 if the call may use more than `fixed` and `prompt`, else 0. With 1, the largest usage so
            far is reserved in addition.
    """

    fixed: float = 0.0
    prompt: float = 0.0
    unknown: int = 0

    @property
    def ramped(self) -> bool:
        """Whether the call is part of the ramp, because its usage has no known bound."""
        return self.unknown > 0 or self.prompt > 0


TIMEOUT = "timeout: no reply within"
"""Prefix of the error of a call that took too long and was cancelled."""

Reservations = list[dict[str, ReservedAmount]]
"""The reservations of one call by amount, for each scope that can refuse it, innermost first."""


class Use:
    """What the calls of a run so far show about the usage of a call. All scopes of the run share it.

    Attributes:
        settled: Number of settled calls. Failures that reported no tokens are not counted.
        largest_output: The most output tokens of one call.
        largest_usd: The most USD of one call.
        prompt_ratio: The largest ratio of a prompt's tokens to their estimate, at least 1.
        broken: Amounts for which a call exceeded its known bound. Bounds of these amounts are no longer
            trusted.
        unpriced: Whether a call was counted as free because nothing about its price is known.
    """

    def __init__(self) -> None:
        self.settled = 0
        self.largest_output = 0.0
        self.largest_usd = 0.0
        self.prompt_ratio = 1.0
        self.broken: set[str] = set()
        self.unpriced = False

    def size(self, name: str, reserved: ReservedAmount) -> float:
        """Return how much of an amount `reserved` reserves, given the usage so far."""
        largest = self.largest_usd if name == "usd" else max(self.largest_output, 1.0)
        return reserved.fixed + reserved.prompt * self.prompt_ratio + reserved.unknown * largest

    def learn(self, call: Call, reply: Reply, need: Need | None, *, is_try: bool = False) -> None:
        """Add the usage of one call, or of a failed try. A failure without token counts is ignored."""
        if reply.error is not None and reply.input_tokens is None:
            return
        self.settled += not is_try
        amounts = used_by(call, reply, need)
        self.largest_output = max(self.largest_output, amounts["output_tokens"])
        self.largest_usd = max(self.largest_usd, amounts["usd"])
        self.prompt_ratio = max(self.prompt_ratio, amounts["input_tokens"] / _prompt_estimate(call))


class Group:
    """Calls that share a time limit of `seconds`. `began` is when the first of them was made, in the time of
    the event loop, and `None` before that.
    """

    __slots__ = ("began", "seconds")

    def __init__(self, seconds: float):
        self.seconds = seconds
        self.began: float | None = None


class Scope:
    """The limits of a run or of one part of it.

    Args:
        parent: The enclosing scope. `None` for the whole run.
        budget: Limits of this scope. `None` adds no limit.
        now: Seconds since the start of the run.
        at_most: The most calls that a branch may make (`gather(at_most=…)`).
        call_seconds: Time limit of each call.
        group: The group whose time limit the calls share. `None` means the parent's group.
        slots: Slots that the calls share with other calls of the process. `None` means the parent's slots.
    """

    def __init__(
        self,
        parent: Scope | None,
        budget: Budget | None,
        now: float,
        *,
        at_most: int | None = None,
        call_seconds: float | None = None,
        group: Group | None = None,
        slots: Slots | None = None,
    ) -> None:
        self.parent = parent
        around = None if parent is None else parent.call_seconds
        known = [seconds for seconds in (call_seconds, around) if seconds is not None]
        self.call_seconds: float | None = min(known, default=None)
        self.group: Group | None = group or (None if parent is None else parent.group)
        self.slots: Slots | None = slots or (None if parent is None else parent.slots)
        self.at_most = at_most
        self.caps: dict[str, float] = {}
        self.calls_cap: int | None = at_most
        self.deadline: float | None = None
        if budget is not None:
            self.calls_cap = budget.calls
            self.caps = {name: cap for name in AMOUNTS if (cap := getattr(budget, name)) is not None}
            if budget.seconds is not None:
                self.deadline = now + budget.seconds
        self.ends: float | None = None
        """Deadline, in the time of the event loop. `None` means no limit."""
        self.started = now
        self.calls = 0
        self.used = dict.fromkeys(self.caps, 0.0)
        self.use: Use = Use() if parent is None else parent.use
        self.under_way = 0
        self.ramped = dict.fromkeys(self.caps, 0)
        self.reserved = dict.fromkeys(self.caps, ReservedAmount())
        self.warned: set[str] = set()
        # Only scopes that can refuse a call are checked, innermost first.
        limits = self.calls_cap is not None or bool(self.caps) or self.deadline is not None
        above = parent.chain if parent is not None else ()
        self.chain: tuple[Scope, ...] = (self, *above) if limits else above
        self.counts_amounts = any(scope.caps for scope in self.chain)

    @property
    def limits(self) -> dict[str, float]:
        """The limits of this scope, by name."""
        seconds = None if self.deadline is None else self.deadline - self.started
        known = {"calls": self.calls_cap, "seconds": seconds, **self.caps}
        return {name: limit for name, limit in known.items() if limit is not None}

    def raise_to(self, limits: Mapping[str, float]) -> None:
        """Replace limits of this scope. Limits that it does not have are ignored."""
        for name in limits.keys() & self.limits.keys():
            if name == "calls":
                self.calls_cap = int(limits[name])
            elif name == "seconds":
                self.deadline = self.started + limits[name]
            else:
                self.caps[name] = limits[name]
            self.warned.discard(name)

    def calls_left(self) -> int | None:
        """Return how many calls may still be made in this scope. `None` means no limit."""
        left = [scope.calls_cap - scope.calls for scope in self.chain if scope.calls_cap is not None]
        return min(left) if left else None

    def left(self, now: float) -> Budget:
        """Return what may still be used in this scope and all scopes that contain it. `None` means no
        limit.
        """
        left: dict[str, Any] = {"calls": self.calls_left()}
        for scope in self.chain:
            for name, cap in scope.caps.items():
                rest = max(cap - scope.used[name], 0.0)
                left[name] = rest if left.get(name) is None else min(left[name], rest)
            if scope.deadline is not None:
                rest = max(scope.deadline - now, 0.0)
                left["seconds"] = rest if left.get("seconds") is None else min(left["seconds"], rest)
        whole = ("input_tokens", "output_tokens", "tokens")
        return Budget(**{name: int(rest) if name in whole else rest for name, rest in left.items()})

    def admit(
        self, call: Call, now: float, need: Need | None = None, *, ready: bool = True
    ) -> tuple[Reply | Scope | None, Reservations]:
        """Admit a call, hold it back, or refuse it. Only time limits apply to calls of tools and functions.

        Args:
            call: The call.
            now: Seconds since the start of the run.
            need: The most that the call can use.
            ready: `False` while `need` is still being computed. The call is then held back.

        Returns:
            `None` if the call is admitted, the scope that holds it back, or the refusal; and the
            reservations.
        """
        if asks_no_model(call):
            late = (scope for scope in self.chain if scope.deadline is not None and now >= scope.deadline)
            return next((scope.refusal("seconds") for scope in late), None), []
        reservations: Reservations = []
        held_by: Scope | None = None
        for scope in self.chain:
            refusal, reserved = scope._verdict(call, now, need, ready)
            if refusal is not None:
                return refusal, []
            held_by = held_by or (scope if reserved is None else None)
            reservations.append(reserved or {})
        if held_by is not None:
            return held_by, []
        for scope, reserved in zip(self.chain, reservations, strict=True):
            scope.calls += 1
            scope._reserve(reserved, 1)
        return None, reservations

    def settle(self, call: Call, reply: Reply, reservations: Reservations, need: Need | None = None) -> None:
        """Release the reservations of `call` and count its usage."""
        if asks_no_model(call):
            return
        reply = believed(reply)
        for scope, reserved in zip(self.chain, reservations, strict=True):
            scope._reserve(reserved, -1)
            scope._count(call, reply, reserved, need)
        self.use.learn(call, reply, need)

    def tried(self, call: Call, reply: Reply, reservations: Reservations, need: Need | None = None) -> bool:
        """Count the usage of a failed try of `call`. Returns whether there is room for another try."""
        reply = believed(reply)
        for scope, reserved in zip(self.chain, reservations, strict=True):
            scope._count(call, reply, reserved, need)
        self.use.learn(call, reply, need, is_try=True)
        return all(
            scope.used[name] + (0.0 if reserved[name].ramped else self.use.size(name, scope.reserved[name]))
            <= cap * (1 + ROUNDING)
            for scope, reserved in zip(self.chain, reservations, strict=True)
            for name, cap in scope.caps.items()
        )

    def replayed(self, call: Call, reply: Reply, need: Need | None = None, *, is_try: bool = False) -> None:
        """Count a call, or a failed try, whose reply is in the journal, as it was counted when it was
        made.
        """
        if not refused(reply.error) and not asks_no_model(call):
            reply = believed(reply)
            for scope in self.chain:
                scope.calls += not is_try
                reservations = {
                    name: scope._to_reserve(name, call, need, cap - scope.used[name])
                    for name, cap in scope.caps.items()
                }
                scope._count(call, reply, reservations, need)
            self.use.learn(call, reply, need, is_try=is_try)

    def warnings(self, now: float) -> list[tuple[str, float, float]]:
        """Return (name, used, limit) for each limit of which at least 80 % is used and which this method has
        not returned before.
        """
        found = []
        for scope in self.chain:
            if scope.at_most is not None:
                continue
            amounts: list[tuple[str, float, float | None]] = [
                ("calls", scope.calls, scope.calls_cap),
                ("seconds", now - scope.started, scope.deadline and scope.deadline - scope.started),
                *((name, scope.used[name], cap) for name, cap in scope.caps.items()),
            ]
            for name, used, cap in amounts:
                if cap is not None and name not in scope.warned and used >= WARN_AT * cap:
                    scope.warned.add(name)
                    found.append((name, used, cap))
        return found

    def refusal(self, cap: str) -> Reply:
        """Return a refusal by this scope. Its `finish_reason` is `None` only for the run's own budget."""
        return Reply(error=f"budget:{cap}", finish_reason=None if self.parent is None else WITHIN)

    def _reserve(self, reservations: dict[str, ReservedAmount], sign: int) -> None:
        """Add the reservations of one call to those of this scope (`sign` 1), or remove them (-1)."""
        self.under_way += sign
        for name, reserved in reservations.items():
            self.ramped[name] += sign * reserved.ramped
            # Rounding errors must not remain when no call is in flight.
            total = [a + sign * b for a, b in zip(self.reserved[name], reserved, strict=True)]
            self.reserved[name] = (
                ReservedAmount(total[0], total[1], int(total[2])) if self.under_way else ReservedAmount()
            )

    def _count(
        self, call: Call, reply: Reply, reservations: dict[str, ReservedAmount], need: Need | None
    ) -> None:
        """Count the usage of a call. An unknown or impossible amount counts as its reservation. If the
        reservation has no known bound and no call is settled yet, an impossible amount counts as all that is
        left.
        """
        amounts = used_by(call, reply, need) if self.caps else {}
        was_made = reply.error is None or reply.input_tokens is not None
        for name, cap in self.caps.items():
            amount, reserved = amounts[name], reservations[name]
            whole = self.use.size(name, reserved)
            if _is_unknown(reply):  # it may have been charged
                amount = whole if self.use.settled else max(whole, _guess(name, need))
            elif _disbelieved(name, reply):
                seen = whole if reserved.fixed or self.use.settled else 0.0
                amount = max(amount, seen or cap - self.used[name])
            elif name == "usd" and reply.cost is None and was_made:
                is_priced = reserved.ramped and need is not None and need.price is not None
                amount = amount if is_priced else whole
                self.use.unpriced = self.use.unpriced or not (is_priced or whole or not reserved.ramped)
            elif not reserved.ramped and amount > reserved.fixed * (1 + 1e-9):
                self.use.broken.add(name)
            self.used[name] += amount

    def _verdict(
        self, call: Call, now: float, need: Need | None, ready: bool
    ) -> tuple[Reply | None, dict[str, ReservedAmount] | None]:
        """Return the refusal by this scope, or the reservations of the call in it. Both are `None` if the
        call must wait.
        """
        if self.calls_cap is not None and self.calls >= self.calls_cap:
            if self.at_most is not None:
                return Reply(error="limit:at_most"), None
            return self.refusal("calls"), None
        if self.deadline is not None and now >= self.deadline:
            return self.refusal("seconds"), None
        reservations: dict[str, ReservedAmount] = {}
        held = not ready and bool(self.caps)
        for name, cap in self.caps.items():
            left, rounding = cap - self.used[name], cap * ROUNDING
            if left <= rounding:
                return self.refusal(name), None
            if not ready:
                continue
            left += rounding
            room = left - self.use.size(name, self.reserved[name])
            reserved = self._to_reserve(name, call, need, room)
            size = self.use.size(name, reserved)
            if size > left:
                return self.refusal(name), None
            full = reserved.ramped and self.ramped[name] > self.use.settled
            held = held or full or size > room
            reservations[name] = reserved
        return None, None if held else reservations

    def _to_reserve(self, name: str, call: Call, need: Need | None, room: float) -> ReservedAmount:
        """Return the reservation of `call` for the amount `name`: its known bound, or else an estimate.

        A bound that follows only from the longest possible reply of the model is reserved only if there is
        room for it.
        """
        bound = None if name in self.use.broken else _bound(name, call, need)
        has_reply = need is None or need.tokens != need.prompt
        limited = name == "input_tokens" or call.max_tokens is not None or bound == 0 or not has_reply
        if bound is not None and (limited or bound <= room):
            return ReservedAmount(fixed=bound)
        estimate = _prompt_estimate(call) if name in ("input_tokens", "tokens") else 0
        if name == "tokens" and call.max_tokens is not None and name not in self.use.broken:
            return ReservedAmount(fixed=call.max_tokens, prompt=estimate)
        return ReservedAmount(prompt=estimate, unknown=int(name != "input_tokens"))


def used_by(call: Call, reply: Reply, need: Need | None = None) -> dict[str, float]:
    """Return the usage of a call by amount. Tokens that the model does not report are estimated, and priced.

    Args:
        call: The call.
        reply: Its reply, as `believed` returns it.
        need: The most that it can use.
    """
    if reply.error is not None and reply.input_tokens is None:
        return dict.fromkeys(AMOUNTS, 0.0)
    sent, got, cost = reply.input_tokens, reply.output_tokens, reply.cost
    if sent is None:
        sent = estimated_tokens(call.prompt) if need is None or need.prompt is None else need.prompt
    if got is None:
        written = [reply.raw_text or f"{reply.thinking or ''}{reply.text}"]
        written += [f"{tool.name}{tool.arguments}" for tool in reply.tool_calls]
        got = estimated_tokens("".join(written))
    if cost is None and need is not None and need.price is not None:
        cost = (sent * need.price[0] + got * need.price[1]) / 1e6
    return {"input_tokens": sent, "output_tokens": got, "tokens": sent + got, "usd": cost or 0.0}


def _prompt_estimate(call: Call) -> int:
    return max(estimated_tokens(call.prompt), 1)


def _bound(name: str, call: Call, need: Need | None) -> float | None:
    """Return the most that `call` can use of an amount, or `None` if it is unknown."""
    if need is None:
        return call.max_tokens if name == "output_tokens" else None
    if name == "input_tokens":
        return need.prompt
    if name == "output_tokens" and call.max_tokens is not None:
        return call.max_tokens
    if not need.bounded:
        return None
    if name == "usd":
        return need.usd
    return need.tokens if name == "tokens" else need.tokens - (need.prompt or 0)


def _guess(name: str, need: Need | None) -> float:
    """Return how much of an amount a call without reported usage may have used."""
    if need is None:
        return 0.0
    prompt = need.prompt or 0
    amounts = {"input_tokens": prompt, "tokens": need.tokens, "output_tokens": need.tokens - prompt}
    return need.usd or 0.0 if name == "usd" else amounts[name]


def _is_unknown(reply: Reply) -> bool:
    """Whether a call failed without reported usage although the provider may have charged for it."""
    return reply.error is not None and (reply.may_be_charged or reply.error.startswith(TIMEOUT))


def _disbelieved(name: str, reply: Reply) -> bool:
    """Whether the model reported an impossible value of the amount `name`. `believed` has then set the amount
    to `None`, and `reported_usage` holds the value.
    """
    if not reply.reported_usage:
        return False
    known = {
        "input_tokens": reply.input_tokens is not None,
        "output_tokens": reply.output_tokens is not None,
        "tokens": reply.input_tokens is not None and reply.output_tokens is not None,
        "usd": reply.cost is not None,
    }
    return not known[name]
