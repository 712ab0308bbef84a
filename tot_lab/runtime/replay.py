"""Making a recorded run again: the requests that its calls were, and a replay that compares every record.

A replay asks no model: replies come from the cache or from the record itself, and a record that differs is a
`Divergence` that names the first difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from tot_lab.core.calls import Call, CallObserver, Message, Reply
from tot_lab.core.parts import UserFunction, needs_functions, part_of
from tot_lab.core.records import Ended, Line, Note, Position, canonical
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Task
from tot_lab.core.thinking import Budget
from tot_lab.core.tools import TOOL, is_of_function
from tot_lab.models import Cache, model_named
from tot_lab.models.keys import Request, in_order, key_of, request_of
from tot_lab.models.stack import Endpoint
from tot_lab.record.edits import Edits
from tot_lab.record.journal import SCHEMA, Header
from tot_lab.record.run import Run, replies_of, task_of
from tot_lab.runtime.driver import Driver
from tot_lab.runtime.gateway import identity_of, settings_of
from tot_lab.runtime.recorder import Divergence, Recorder, check_same
from tot_lab.runtime.roles import roles_from, thinking_of


class Replay(NamedTuple):
    """identical: whether the run, made again from its own replies, gave the same canonical
    record. records: how many there are. divergence: the first difference, None without one."""

    identical: bool
    records: int
    divergence: str | None


async def replay(
    run: Run, strategy: Strategy | None = None, task: Task | None = None, *, cache: Cache | None = None
) -> Replay:
    """Make the run again with no model, and compare every record. Replies come from the cache,
    where the run had one or `cache` names one; errors and refusals, and all else, from its own
    record. Pass the strategy or the task if they hold functions of your own and the run was
    loaded."""
    replies = replies_of(run.lines)
    if (cache := cache or run.cache) is not None:
        inherited = _inherited(run.lines)
        for position, request, real in requests_of(run):
            known = list(cache.replies(key_of(request)))
            if not known and (not real or position in inherited):
                continue  # it costs nothing to ask, and is not always kept; or another run asked it
            if not known:
                place = ".".join(map(str, position))
                lacking = f"at position {place}: a call that {cache.path} does not hold"
                return Replay(False, len(run.events), lacking)
            if replies[position] not in known:
                replies[position] = known[0]
    strategy, task = runnable(run.header, strategy or run.strategy, task or run.task)
    if run.header.tot_lab < SCHEMA:
        return await _replay_by_call(run, strategy, task, replies)
    recorder = Recorder(header=run.header)
    # A bug ends a run in the middle of its other branches: what they did last is not compared.
    recorder.expect(run.lines, only=run.error is None)
    driver = Driver(
        _no_model,
        recorder,
        budget=budget_of(run.header),
        repeat=run.header.repeat,
        replies=replies,
        in_order=run.error is None,
        edits=Edits.of(run.header.branched),
    )
    roles = roles_from(run.header.roles)
    try:
        try:
            await driver.drive(thinking_of(strategy, task, roles))
        except Exception as error:
            if isinstance(error, Divergence) or run.error is None:
                raise
            # The bug that ended the run, again: the driver has compared its record.
        missing = recorder.missing(Ended if driver.failed else object)
        divergence = None if missing is None else f"the record goes on with {missing!r}"
    except Divergence as error:
        divergence = (
            f"{error}{'' if run.stop_reason else '; the run is unfinished: lab.resume(path) finishes it'}"
        )
    return Replay(divergence is None, len(run.events), divergence)


async def _replay_by_call(
    run: Run, strategy: Strategy, task: Task, replies: Mapping[Position, Reply]
) -> Replay:
    """Replay a journal of an earlier schema, in which the same steps have other positions.

    A call gets the reply that the record has for its node, purpose, sample index, attempt and prompt. Notes
    are not compared: which of them are recorded depends on the version.
    """
    answers: dict[tuple[object, ...], dict[tuple[Message, ...], tuple[Call, Reply]]] = {}
    for line in run.lines:
        if isinstance(call := line.e, Call) and line.p in replies:
            answers.setdefault(_sample_of(call), {})[call.messages] = call, replies[line.p]

    async def answer(call: Call, wire: CallObserver) -> Reply:
        prompts = answers.get(_sample_of(call)) or _no_model(call, wire)
        known, reply = prompts.get(call.messages) or next(iter(prompts.values()))
        check_same(known, call)
        return reply

    recorder = Recorder(header=run.header)
    driver = Driver(
        answer,
        recorder,
        budget=budget_of(run.header),
        repeat=run.header.repeat,
        in_order=run.error is None,
        edits=Edits.of(run.header.branched),
    )
    recorded = [event for event in run.events if not isinstance(event, Note)]
    try:
        try:
            await driver.drive(thinking_of(strategy, task, roles_from(run.header.roles)))
        except Exception as error:
            if isinstance(error, Divergence) or run.error is None:
                raise  # otherwise the bug that ended the run, again
        made = [event for event in canonical(recorder.lines) if not isinstance(event, Note)]
        for known, record in zip_longest(recorded, made):
            if known is None or record is None:
                raise Divergence(f"only one of the two has {record or known!r}")
            check_same(known, record)
    except Divergence as error:
        return Replay(False, len(run.events), str(error))
    return Replay(True, len(run.events), None)


def _sample_of(call: Call) -> tuple[object, ...]:
    return call.node, call.purpose, call.sample_index, call.attempt


def _inherited(lines: Sequence[Line]) -> set[Position]:
    """The calls that the record of the run answered which this one was branched from."""
    notes = [line.e for line in lines if isinstance(line.e, Note) and line.e.name == "call.cached"]
    return {tuple(note.data["call"]) for note in notes if "run" in note.data}


def requests_of(run: Run) -> Iterator[tuple[Position, Request, bool]]:
    """Each call of `run` that was answered, as the cache knows it, by its position, and whether a real
    model was asked. A search of a person's own has none."""
    models: dict[str | None, tuple[dict[str, Any], bool]] = {}
    answered = {position for position, reply in replies_of(run.lines).items() if reply.error is None}
    for line in run.lines if run.header.model else ():
        if isinstance(call := line.e, Call) and line.p in answered and not is_of_function(call):
            if call.model not in models:
                models[call.model] = asked_model(run.header, call.model)
            identity, real = models[call.model]
            yield line.p, request_of(call, identity, run.header.draws), real


def asked_model(header: Header, name: str | None) -> tuple[dict[str, Any], bool]:
    """The identity of the model that a call of that run names, and whether it is a real one."""
    settings = _settings(header, name)
    part = None if settings["kind"] == UserFunction.kind else part_of(settings)
    return in_order(settings) if part is None else identity_of(part), isinstance(part, Endpoint)


def _settings(header: Header, name: str | None) -> dict[str, Any]:
    """Those of the model that a call names."""
    if name is None:
        return header.model
    if name.startswith(f"{TOOL}:"):
        return header.tools[name.removeprefix(f"{TOOL}:")]
    if name.startswith("@"):
        settings: dict[str, Any] = header.roles[name[1:]]["model"]
        return settings
    return settings_of(model_named(name))


def budget_of(header: Header) -> Budget | None:
    """The caps a run was made under."""
    return Budget(**header.budget) if header.budget else None


def runnable(header: Header, strategy: Strategy | None, task: Task | None) -> tuple[Strategy, Task]:
    """The strategy and the task to make a recorded run again with. Raises LookupError when they
    need a function that files do not hold."""
    if strategy is None:
        recorded = header.strategy.get("kind") in (None, "recorded")
        part = None if recorded else part_of(header.strategy)
        if not isinstance(part, Strategy):
            raise LookupError("this record was not made by a strategy; it can be shown, not run again")
        strategy = part
    if task is None:
        task = task_of(header.task)
    if not task.tools and "tools" in header.task:
        task = task.model_copy(update={"tools": task_of(header.task).tools})
    missing = [*needs_functions(strategy), *needs_functions(task.domain)]
    if missing:
        raise LookupError(
            f"this run was made with functions that files do not hold ({', '.join(missing)}): pass "
            f"strategy= or task= with them"
        )
    return strategy, task


def _no_model(call: Call, wire: CallObserver) -> Any:
    raise Divergence(f"thought {call.node}: a call that the record does not answer")
