"""Replay of a recorded run.

A replay calls no model. Replies come from the cache or from the record. The first record that differs ends
the replay, and `Replay.divergence` names the difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tot_lab.core.acts import acts_of
from tot_lab.core.calls import Call, CallObserver, is_same_reply
from tot_lab.core.model_setting import models_of
from tot_lab.core.parts import UserFunction, needs_functions, part_of, stored_settings
from tot_lab.core.protocol import Budget
from tot_lab.core.records import Ended, Line, Note, Position, failed_tries
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Task
from tot_lab.core.tools import TOOL, is_of_function
from tot_lab.models import Cache, model_named
from tot_lab.models.keys import Request, in_order, request_of
from tot_lab.models.stack import Endpoint
from tot_lab.record.edits import Edits
from tot_lab.record.journal import Header
from tot_lab.record.run import Run, recorded_strategy, replies_of, task_of
from tot_lab.runtime.driver import Driver
from tot_lab.runtime.gateway import identity_of, settings_of
from tot_lab.runtime.recorder import Divergence, Recorder
from tot_lab.runtime.roles import roles_from, thinking_of
from tot_lab.runtime.steering import Steered, sample_counters


class Replay(NamedTuple):
    """The result of a replay.

    Attributes:
        identical: Whether the replay gave the same canonical record.
        records: Number of canonical records of the run, including those after a divergence.
        divergence: The first difference, or `None`.
    """

    identical: bool
    records: int
    divergence: str | None


async def replay(
    run: Run, strategy: Strategy | None = None, task: Task | None = None, *, cache: Cache | None = None
) -> Replay:
    """Repeat the run without a model and compare every record.

    Successful replies come from `cache` or the cache of the run, if there is one, and otherwise from the
    record, as errors and refusals always do. If the cache lacks the reply of a real model, that is a
    divergence.

    Args:
        run: The run.
        strategy: Required if the run was loaded from a file and its strategy contains functions.
        task: Required if the run was loaded from a file and its task contains functions.
        cache: A cache to use instead of that of the run.
    """
    replies = replies_of(run.lines)
    cached = cache or run.cache
    if cached is not None:
        inherited = _inherited(run.lines)
        for position, request, real in requests_of(run):
            known = list(cached.replies(request.key))
            if not known and (not real or position in inherited):
                continue  # free calls are not always cached, and inherited calls were made by another run
            if not known:
                place = ".".join(map(str, position))
                reason = f"at position {place}: the call is not in the cache {cached.path}"
                return Replay(False, len(run.events), reason)
            if not any(is_same_reply(replies[position], reply) for reply in known):
                replies[position] = known[0]
    strategy, task = runnable(run.header, strategy or run.strategy, task or run.task)
    recorder = Recorder(header=run.header)
    # A bug ends a run while other branches are still running, so the last records of these are not compared.
    recorder.expect(run.lines, only=run.error is None)
    driver = Driver(
        _no_model,
        recorder,
        budget=budget_of(run.header),
        repeat=run.header.repeat,
        replies=replies,
        tries=failed_tries(run.lines),
        in_order=run.error is None,
    )
    try:
        edits = Edits.of(run.header.branched)
        samples = sample_counters(run.header, run if edits else None)
        steered = Steered(acts_of(run.lines), None, driver.raise_budget, samples)
        thinking = thinking_of(strategy, task, roles_from(run.header.roles), edits)
        try:
            await driver.drive(thinking, steered.respond)
        except Exception as error:
            if isinstance(error, Divergence) or run.error is None:
                raise
            # The recorded run ended with an error too. It is the same one: the driver would have raised
            # `Divergence` when it recorded another one.
        missing = recorder.missing(Ended if driver.failed else object)
        divergence = None if missing is None else f"the record continues with {missing!r}"
    except Divergence as error:
        if not run.stop_reason:
            reason = "The run is unfinished. Finish it with lab.resume(path)."
        else:
            reason = (
                "The replies are the recorded ones: the code or the journal has changed, or a strategy uses "
                "random, time or the order of a set. A search draws numbers with "
                "`yield state.random_numbers()`."
            )
        divergence = f"{error}. {reason}"
    return Replay(divergence is None, len(run.events), divergence)


def _inherited(lines: Sequence[Line]) -> set[Position]:
    """Return the positions of the calls that were answered by the record of the run's parent."""
    notes = [line.e for line in lines if isinstance(line.e, Note) and line.e.name == "call.cached"]
    return {tuple(note.data["call"]) for note in notes if "run" in note.data}


def requests_of(run: Run) -> Iterator[tuple[Position, Request, bool]]:
    """Yield position, cache request and whether a real model was called, for each answered call of `run`.

    A run that your own code recorded (`tl.Recorder`) yields none.
    """
    models: dict[str | None, tuple[dict[str, Any], bool]] = {}
    answered = {position for position, reply in replies_of(run.lines).items() if reply.error is None}
    for line in run.lines if run.header.model else ():
        if isinstance(call := line.e, Call) and line.p in answered and not is_of_function(call):
            if call.model not in models:
                models[call.model] = called_model(run.header, call.model)
            identity, real = models[call.model]
            yield line.p, request_of(call, identity), real


def called_model(header: Header, name: str | None) -> tuple[dict[str, Any], bool]:
    """Return the identity of the model that a call names, and whether it is a real one."""
    settings = _settings(header, name)
    part = None if settings["kind"] == UserFunction.kind else part_of(settings)
    return in_order(settings) if part is None else identity_of(part), isinstance(part, Endpoint)


def _settings(header: Header, name: str | None) -> dict[str, Any]:
    """Return the settings of the model that a call names."""
    if name is None:
        return header.model
    if name.startswith(f"{TOOL}:"):
        return header.tools[name.removeprefix(f"{TOOL}:")]
    if name.startswith("@"):
        settings: dict[str, Any] | None = header.roles.get(name[1:], {}).get("model")
        with stored_settings():
            return settings or models_of(part_of(header.strategy))[name].settings()
    return settings_of(model_named(name))


def budget_of(header: Header) -> Budget | None:
    """Return the budget that a header describes, or `None` if it has no limits."""
    return Budget(**header.budget) if header.budget else None


def runnable(header: Header, strategy: Strategy | None, task: Task | None) -> tuple[Strategy, Task]:
    """Return the strategy and the task that repeat a recorded run: those given, or else those in its header.

    Raises:
        LookupError: If the run was not made by a strategy, or if the strategy or the task needs functions
            that a file does not hold. A missing model function is no error here: a replay calls no
            models, and `Gateway.enlist` reports it when a run is resumed.
    """
    if strategy is None:
        strategy = recorded_strategy(header)
        if strategy is None:
            raise LookupError("This run cannot be repeated, since it was not made by a strategy.")
    if task is None:
        task = task_of(header.task)
    by_lab = [name for name in ("tools", "context_window", "lab") if name in header.task]
    lacking = [name for name in by_lab if name == "lab" or not getattr(task, name)]
    if lacking:
        known = task_of(header.task)
        task = task.model_copy(update={name: getattr(known, name) for name in lacking})
    needed = {*needs_functions(strategy), *needs_functions(task.domain)}
    models = [name for one in models_of(strategy).values() for name in needs_functions(one)]
    missing = sorted(needed.difference(models))
    if missing:
        raise LookupError(
            f"This run was made with functions that a file does not hold: {', '.join(missing)}. Pass the "
            f"strategy or the task that contains them as strategy= or task=."
        )
    return strategy, task


def _no_model(call: Call, observer: CallObserver) -> Any:
    raise Divergence(f"thought {call.node}: the record has no reply to this call")
