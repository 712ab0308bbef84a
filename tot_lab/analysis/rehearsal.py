"""Rehearsal: a strategy carried out with recorded replies in place of a model, to see what it would use.

The strategy itself makes the prompts, so a rehearsal at another scale shows how they grow: for example, the
prompts of a debate contain the answers of all agents. No model, tool or function is called. A rehearsal
estimates what a method uses, never how good its answers are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple, TypeAlias

from tot_lab.core.calls import Call, Reply
from tot_lab.core.protocol import Effect, Gather, Procedure, Request, WithBudget
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Task
from tot_lab.core.tools import asks_no_model
from tot_lab.models.named import model_named
from tot_lab.record.compute import params_of
from tot_lab.record.run import Run, replies_of
from tot_lab.runtime.roles import roles_from, thinking_of
from tot_lab.runtime.stepper import default_answer

NEAREST = 5
"""A call whose prompt is not recorded gets one of this many recorded replies at random: those to the prompts
nearest in length.
"""


class Rates(NamedTuple):
    """What a call uses per token of its prompt and per token of its reply, in the unit that is counted."""

    prompt: float
    reply: float


RatesOfCall: TypeAlias = Callable[[Call], Rates]
"""The rates of a call, which may depend on its model."""


class TooMuch(Exception):
    """Raised if the use exceeds the limit, or a simulated player cannot answer a call."""


def rehearse(strategy: Strategy, run: Run, rates: RatesOfCall | None, limit: float) -> float:
    """Return what `strategy` would use for the task of `run`, if the replies were like those of `run`.

    A call receives a recorded reply to the same prompt, else to a prompt of the same purpose and nearly the
    same length, or of any purpose if its own is not recorded. The tokens of its prompt are estimated from the
    number of characters.

    Args:
        strategy: The strategy, at any scale.
        run: A run of the same method at any scale.
        rates: Use per token. `None` counts the calls.
        limit: Maximum use. If it is exceeded, the rehearsal stops, and the result is infinite.
    """
    recorded = _Replies(run)
    used = 0.0

    def answer(call: Call) -> Reply:
        nonlocal used
        reply = recorded.reply(call)
        if reply.tool is None:
            tokens = _length(call) * recorded.tokens_per_character
            each = None if rates is None else rates(call)
            used += 1 if each is None else each.prompt * tokens + each.reply * (reply.output_tokens or 0)
        if used > limit:
            raise TooMuch
        return reply

    assert run.task is not None
    try:
        carry_out(thinking_of(strategy, run.task, roles_from(run.header.roles)), answer)
    except TooMuch:
        return float("inf")
    return used


def simulated_calls(strategy: Strategy, task: Task, limit: int) -> int | None:
    """Return the smaller of two numbers: the calls that `strategy` makes if a simulated player of the domain
    of `task` is always right, and those if it never is. `None` if one of them exceeds `limit`, or if the
    strategy calls tools or functions, or raises an error.
    """
    try:
        player: Any = model_named(task.domain.player)
        has_skill = "skill" in type(player).model_fields
        players = [player.with_(skill=skill) for skill in (0.0, 1.0)] if has_skill else [player]
        return min(_played_calls(strategy, task, player, limit) for player in players)
    except Exception:  # such as a bug in a custom domain or evaluator, which a run would report
        return None


def _played_calls(strategy: Strategy, task: Task, player: Any, limit: int) -> int:
    calls = 0

    def answer(call: Call) -> Reply:
        nonlocal calls
        calls += 1
        if calls > limit or asks_no_model(call):
            raise TooMuch
        try:
            player(call).send(None)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        raise TooMuch  # the player waits for something

    carry_out(thinking_of(strategy, task, {}), answer)
    return calls


def rates_of(runs: Sequence[Run], unit: str) -> RatesOfCall | None:
    """Return what a call uses per token, in `unit`, a unit of `match`. `None` if `unit` is `calls`. The rates
    in `usd` are fitted to the costs of the recorded calls."""
    import numpy  # noqa: PLC0415

    if unit == "calls":
        return None
    if unit == "flops":
        params = runs[0].params

        def by_size(call: Call) -> Rates:
            size = 2 * (params_of(call, params) or 0.0)
            return Rates(size, size)

        return by_size
    if unit != "usd":
        return lambda call: Rates(float(unit == "tokens"), 1.0)
    replies = [reply for run in runs for reply in replies_of(run.lines).values() if reply.cost is not None]
    tokens = [[reply.input_tokens or 0, reply.output_tokens or 0] for reply in replies]
    prices = numpy.linalg.lstsq(numpy.array(tokens), [reply.cost or 0.0 for reply in replies], rcond=None)[0]
    rates = Rates(*map(float, prices))
    return lambda call: rates


class _Replies:
    """The replies of a run, by purpose and prompt."""

    def __init__(self, run: Run) -> None:
        replies = replies_of(run.lines)
        self.random = Random(run.id)
        self.same: dict[tuple[Any, ...], list[Reply]] = {}
        self.alike: dict[str, list[tuple[int, Reply]]] = {}
        characters = tokens = 0
        for line in run.lines:
            reply = replies.get(line.p)
            if not isinstance(line.e, Call) or reply is None or reply.error is not None:
                continue
            length = _length(line.e)
            self.same.setdefault((line.e.purpose, line.e.messages), []).append(reply)
            self.alike.setdefault(line.e.purpose, []).append((length, reply))
            if reply.tool is None:
                characters += length
                tokens += reply.input_tokens or 0
        self.tokens_per_character = tokens / max(characters, 1)

    def reply(self, call: Call) -> Reply:
        same = self.same.get((call.purpose, call.messages))
        if same:
            return self.random.choice(same)
        alike = self.alike.get(call.purpose) or [pair for pairs in self.alike.values() for pair in pairs]
        length = _length(call)
        nearest = sorted(alike, key=lambda pair: abs(pair[0] - length))[:NEAREST]
        return self.random.choice(nearest)[1] if nearest else Reply(error="no reply is recorded")


def _length(call: Call) -> int:
    return sum(len(message.content) for message in call.messages)


def carry_out(thinking: Procedure[Any], answer: Callable[[Call], Reply]) -> Any:
    """Run a strategy to its end, one branch after the other and without budgets. Returns its result."""
    value: Any = None
    while True:
        try:
            step = thinking.send(value)
        except StopIteration as end:
            return end.value
        match step:
            case Call():
                value = answer(step)
            case Effect():
                value = answer(step.call)
            case Gather():
                value = [carry_out(branch, answer) for branch in step.branches]
            case WithBudget():
                value = carry_out(step.thinking, answer)
            case Request():
                value = default_answer(step)
            case _:
                value = step
