"""Upper bounds for the usage of a run, before it is made.

The strategy is run with the replies that are in the cache. A call that is not in the cache is counted with
its own prompt. Calls that depend on the reply to such a call are counted with the largest prompt and the
longest reply of the most expensive model that could answer them, since no smaller bound is certain.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tot_lab.core.calls import Call, Message, Reply
from tot_lab.core.model_setting import model_names, models_of
from tot_lab.core.parts import parts_in
from tot_lab.core.protocol import Budget
from tot_lab.core.records import Line, Position
from tot_lab.core.strategy import Prompting, Strategy
from tot_lab.core.tools import asks_no_model
from tot_lab.models.simulated import Simulated
from tot_lab.models.stack import Endpoint
from tot_lab.record.compute import Params, params_in, params_of
from tot_lab.runtime.gateway import Gateway
from tot_lab.strategies.thinking_level import WithThinking


class Amounts(NamedTuple):
    """Usage of calls. `None` means that an amount is not known.

    Attributes:
        calls: Model calls.
        input_tokens: Tokens of their prompts.
        output_tokens: Tokens of their replies, thinking included.
        cost: USD.
        flops: FLOPs, as in `Run.compute`, if the roles have `params`.
    """

    calls: float | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None
    cost: float | None = None
    flops: float | None = None


def total(amounts: Iterable[Amounts]) -> Amounts:
    """Return the sum of each amount, `None` if one of its terms is not known."""
    columns = zip(*amounts, strict=True)
    sums = [None if None in column else math.fsum(filter(None, column)) for column in columns]
    return Amounts(*sums) if sums else Amounts(*[0.0] * len(Amounts._fields))


class Estimate(NamedTuple):
    """The predicted calls of a run.

    Attributes:
        calls: Upper bound of the number of calls, including cached ones. `None` without a bound.
        cached: How many of these calls the cache answers, as far as the search can be followed
            without new replies.
        whole: Whether the cache answers all of them, so that the run would be free.
        sent: Upper bounds for the usage of the calls that the cache does not answer. A bound is `None` if
            something that it depends on is not known: for tokens the model's context window and its longest
            reply, for the cost also the model's price. Failed tries that a provider charges for are not
            included.
        unpriced: Models of unknown price, if the lab has a limit on spending. No call to them will be sent.
    """

    calls: int | None
    cached: int
    whole: bool
    sent: Amounts = Amounts()
    unpriced: tuple[str, ...] = ()


NOT_MADE = "budget:calls"
"""The error with which an estimate refuses calls that a run would make."""


def certain_calls(lines: Sequence[Line]) -> list[Call]:
    """Return the model calls that were not made and that do not depend on the reply to another such call.

    A position alternates between the index of a step and the index of a branch of a `gather`. Later calls in
    the same branch, and calls after the `gather` of the branch, depend on the reply to a call.
    """
    refused = {line.p for line in lines if isinstance(line.e, Reply) and line.e.error == NOT_MADE}
    first: dict[Position, int] = {}  # by branch, the index of the first step with such a call
    for position in refused:
        for length in range(0, len(position), 2):
            branch, place = position[:length], position[length]
            first[branch] = min(place, first.get(branch, place))
    calls = ((line.p, line.e) for line in lines if isinstance(line.e, Call) and line.p in refused)
    return [
        call
        for position, call in calls
        if not asks_no_model(call)
        and all(position[n] <= first[position[:n]] for n in range(0, len(position), 2))
    ]


class Bounds:
    """Collects the calls that are certain to be sent, and computes upper bounds for the usage of the run.

    Args:
        gateway: Knows the models.
        strategy: The strategy.
    """

    def __init__(self, gateway: Gateway, strategy: Strategy) -> None:
        self._gateway = gateway
        self._strategy = strategy
        self._params: Params = params_in(gateway.role_settings)
        self._seen: list[Amounts] = []
        self._limits: list[int | None] = []
        """`max_tokens` of the calls that were seen."""
        self.unpriced: set[str] = set()
        """Models that may be called and whose price is unknown."""

    async def see(self, call: Call) -> None:
        """Count a call that is certain to be sent."""
        self._limits.append(call.max_tokens)
        self._seen.append(_sized(await self._most_of(call), params_of(call, self._params)))

    async def of_run(self, calls: int | None, cached: int, budget: Budget | None) -> Amounts:
        """Return the bounds of a run of at most `calls` calls, of which `cached` are in the cache."""
        limit = None if budget is None else budget.calls
        left = None if calls is None else max(calls - cached, 0)
        left = min((most for most in (left, limit) if most is not None), default=None)
        if left is None:
            return Amounts()
        bound = _most(self._seen, left)
        if (unseen := left - len(self._seen)) > 0:
            largest = await self._of_any_call()
            rest = Amounts(*(None if amount is None else unseen * amount for amount in largest))
            bound = total([bound, rest])
        return _within(budget, bound._replace(calls=left))

    async def _most_of(self, call: Call) -> Amounts:
        """Return the most that a call can use, given its prompt."""
        model = self._gateway.model_of(call.model)
        if isinstance(model, Simulated):
            return Amounts(1, cost=0.0)
        if not isinstance(model, Endpoint):
            return Amounts(1)
        await self._gateway.ready(call.model)
        need = model.need((call,))
        if need.usd is None:
            self.unpriced.add(model.name)
        if need.prompt is None:  # `tokens` bounds prompt and reply together
            return Amounts(1, need.tokens, need.tokens, need.usd)
        output = need.tokens - need.prompt if need.bounded else None
        return Amounts(1, need.prompt, output, need.usd if need.bounded else None)

    async def _of_any_call(self) -> Amounts:
        """Return the most that any call of the strategy can use."""
        roles = self._gateway.roles
        names: set[str | None] = {None, *models_of(self._strategy)}
        names |= {name for name in model_names(self._strategy) if name not in roles}
        names |= {
            role.model if isinstance(role.model, str) else f"@{name}"
            for name, role in roles.items()
            if role.model is not None
        }
        found = [await self._of_any_call_to(name) for name in names]
        most = Amounts(*(_largest(column) for column in zip(*found, strict=True)))
        return _sized(most, _largest(self._params.values()) or None)

    async def _of_any_call_to(self, name: str | None) -> Amounts:
        gateway = self._gateway
        most = await self._most_of(_probe(name))
        model = gateway.model_of(name)
        if not isinstance(model, Endpoint):
            return most
        need = model.need((_probe(name),))
        if need.prompt is None:
            return most
        prompt = gateway.window if name is None else model.window()
        output = self._longest_reply() or most.output_tokens
        if prompt is None or output is None or need.price is None:
            return most._replace(input_tokens=prompt, output_tokens=output, cost=None)
        cost = (prompt * need.price[0] + output * need.price[1]) / 1e6
        return Amounts(1, prompt, output, cost)

    def _longest_reply(self) -> int | None:
        """Return the largest `max_tokens` of the strategy. `None` if a call may be without a limit."""
        parts = [*parts_in(self._strategy)]
        given = [part.max_tokens for part in parts if isinstance(part, Prompting)]
        known = [tokens for tokens in (*given, *self._limits) if tokens is not None]
        if not given or len(known) < len(given) + len(self._limits):
            return None
        return None if any(isinstance(part, WithThinking) for part in parts) else max(known)


def _probe(name: str | None) -> Call:
    """Return a call with a prompt so long that a provider caches its beginning, which may cost more."""
    return Call("0", "propose", (Message("user", "word " * 5000 + "\n\nword"),), model=name)


def _most(calls: Sequence[Amounts], count: int) -> Amounts:
    """Return the most that `count` of the calls can use together."""
    if not calls:
        return Amounts(*[0.0] * len(Amounts._fields))
    columns = zip(*calls, strict=True)
    return Amounts(*(_sum_of_largest(column, count) for column in columns))


def _sum_of_largest(amounts: Sequence[float | None], count: int) -> float | None:
    known = [amount for amount in amounts if amount is not None]
    return math.fsum(sorted(known, reverse=True)[:count]) if len(known) == len(amounts) else None


def _largest(amounts: Iterable[float | None]) -> float | None:
    """Return the largest amount, `None` if one is not known."""
    known = [*amounts]
    return None if None in known else max(filter(None, known), default=0)


def _sized(most: Amounts, params: float | None) -> Amounts:
    """Add the FLOPs of a model with `params` parameters."""
    if params is None or most.input_tokens is None or most.output_tokens is None:
        return most
    return most._replace(flops=2 * params * (most.input_tokens + most.output_tokens))


def _within(budget: Budget | None, bound: Amounts) -> Amounts:
    """Return `bound` lowered to the limits of a budget. A limit on tokens also replaces an unknown bound; an
    unknown cost stays unknown.
    """
    if budget is None:
        return bound
    limits: Mapping[str, Any] = {
        "input_tokens": (bound.input_tokens, budget.input_tokens, budget.tokens),
        "output_tokens": (bound.output_tokens, budget.output_tokens, budget.tokens),
        "cost": (bound.cost, None if bound.cost is None else budget.usd),
    }
    known = {name: [most for most in mosts if most is not None] for name, mosts in limits.items()}
    return bound._replace(**{name: min(mosts, default=None) for name, mosts in known.items()})
