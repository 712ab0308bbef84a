"""Caps, kept before a call is made.

Rule: a call is admitted, held back or refused beforehand, by every scope around it. Calls are
counted exactly; when the branches of an `every` could ask for more calls than are left, they run
in order, so that the refused ones are the same on every rerun. Tokens and USD are reserved when a
call is admitted and settled when its reply comes; where its need is not known it is taken to be
the largest seen, and until one is seen calls go one at a time.
"""

from __future__ import annotations

from typing import Any

from tot_lab.core.calls import Call, Reply, estimated_tokens, refused
from tot_lab.core.thinking import Budget
from tot_lab.core.tools import TOOL

AMOUNTS = ("input_tokens", "output_tokens", "tokens", "usd")
WAIT = Reply(error="wait")
"""Stands for: the call must be held back for now."""
WITHIN = "within"
"""`finish` of a refusal by the budget of a part of the run; one by the run's own has none."""
WARN_AT = 0.8

Needs = list[dict[str, float]]
"""What one call reserves, by amount, in each scope of its chain."""


class Scope:
    """The caps around one part of a run. `parent` holds those around it."""

    def __init__(
        self,
        parent: Scope | None,
        budget: Budget | None,
        now: float,
        at_most: int | None = None,
        call_seconds: float | None = None,
    ) -> None:
        self.parent = parent
        around = None if parent is None else parent.call_seconds
        known = [seconds for seconds in (call_seconds, around) if seconds is not None]
        self.call_seconds: float | None = min(known, default=None)
        self.group: Any = None if parent is None else parent.group
        """The calls that share a time, which the driver counts."""
        self.at_most = at_most
        self.caps: dict[str, float] = {}
        self.calls_cap: int | None = at_most
        self.deadline: float | None = None
        if budget is not None:
            self.calls_cap = budget.calls
            self.caps = {name: cap for name in AMOUNTS if (cap := getattr(budget, name)) is not None}
            if budget.seconds is not None:
                self.deadline = now + budget.seconds
        self.started = now
        self.calls = 0
        self.used = dict.fromkeys(self.caps, 0.0)
        self.reserved = dict.fromkeys(self.caps, 0.0)
        self.largest: dict[str, float] = {}
        self.largest_output = 0.0
        self.in_flight = 0
        self.warned: set[str] = set()
        # Only scopes that can refuse anything are asked, innermost first.
        limits = self.calls_cap is not None or bool(self.caps) or self.deadline is not None
        above = parent.chain if parent is not None else ()
        self.chain: tuple[Scope, ...] = (self, *above) if limits else above

    def calls_left(self) -> int | None:
        """How many calls may still be made here; None = any number."""
        left = [scope.calls_cap - scope.calls for scope in self.chain if scope.calls_cap is not None]
        return min(left) if left else None

    def admit(self, call: Call, now: float) -> tuple[Reply | None, Needs]:
        """None and what is reserved, when the call may be made; `WAIT`; or the refusal. A tool's takes
        time alone."""
        if call.kind == TOOL:
            late = (scope for scope in self.chain if scope.deadline is not None and now >= scope.deadline)
            return next((scope.refusal("seconds") for scope in late), None), []
        needs: Needs = []
        waits = False
        for scope in self.chain:
            verdict, need = scope._verdict(call, now)
            if verdict is not None and verdict is not WAIT:
                return verdict, []
            waits = waits or verdict is WAIT
            needs.append(need)
        if waits:
            return WAIT, []
        for scope, need in zip(self.chain, needs, strict=True):
            scope.calls += 1
            scope.in_flight += 1
            for name, amount in need.items():
                scope.reserved[name] += amount
        return None, needs

    def settle(self, call: Call, reply: Reply, needs: Needs) -> None:
        """Give back what `call` had reserved, and count what it used."""
        if call.kind == TOOL:
            return
        amounts = used_by(call, reply)
        for scope, need in zip(self.chain, needs, strict=True):
            scope.in_flight -= 1
            for name, amount in need.items():
                scope.reserved[name] -= amount if scope.in_flight else scope.reserved[name]
            scope._count(amounts, reply)

    def replayed(self, call: Call, reply: Reply) -> None:
        """Count a call that is answered from a journal, as when it was made."""
        if not refused(reply.error) and call.kind != TOOL:
            for scope in self.chain:
                scope.calls += 1
                scope._count(used_by(call, reply), reply)

    def warnings(self, now: float) -> list[tuple[str, float, float]]:
        """(cap, used, of) for each cap that has newly reached 80 %."""
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
        """A refusal by this scope; whether it was the run's own budget is on record."""
        return Reply(error=f"budget:{cap}", finish=None if self.parent is None else WITHIN)

    def _count(self, amounts: dict[str, float], reply: Reply) -> None:
        self.largest_output = max(self.largest_output, amounts["output_tokens"])
        for name in self.caps:
            self.used[name] += amounts[name]
            if reply.error is None:  # a failed call does not tell what one needs
                self.largest[name] = max(self.largest.get(name, 0.0), amounts[name])

    def _verdict(self, call: Call, now: float) -> tuple[Reply | None, dict[str, float]]:
        if self.calls_cap is not None and self.calls >= self.calls_cap:
            if self.at_most is not None:
                return Reply(error="limit:at_most"), {}
            return self.refusal("calls"), {}
        if self.deadline is not None and now >= self.deadline:
            return self.refusal("seconds"), {}
        need: dict[str, float] = {}
        for name, cap in self.caps.items():
            known = self._need(name, call)
            left = cap - self.used[name]
            if left <= 0:
                return self.refusal(name), {}
            if known is None:  # nothing seen yet: one call at a time, and it may need all
                if name == "tokens" and estimated_tokens(call.prompt) >= left:
                    return self.refusal(name), {}
                if self.in_flight:
                    return WAIT, {}
                known = left
            if known > left:
                return self.refusal(name), {}
            if known > left - self.reserved[name]:
                return WAIT, {}
            need[name] = known
        return None, need

    def _need(self, name: str, call: Call) -> float | None:
        """What `call` may use of an amount; None = nothing is known yet."""
        prompt = estimated_tokens(call.prompt) if name in ("input_tokens", "tokens") else 0
        if name == "input_tokens":
            return max(prompt, 1)
        if name != "usd" and call.max_tokens is not None:
            return prompt + call.max_tokens
        largest = self.largest.get(name)
        return largest if largest is None or name != "tokens" else max(largest, prompt + self.largest_output)


def used_by(call: Call, reply: Reply) -> dict[str, float]:
    """What a call used, by amount; tokens are estimated where the model does not count them."""
    if reply.error is not None and reply.input_tokens is None:
        return dict.fromkeys(AMOUNTS, 0.0)
    sent = reply.input_tokens if reply.input_tokens is not None else estimated_tokens(call.prompt)
    got = reply.output_tokens if reply.output_tokens is not None else estimated_tokens(reply.text)
    return {
        "input_tokens": sent,
        "output_tokens": got,
        "tokens": sent + got,
        "usd": reply.cost or 0.0,
    }
