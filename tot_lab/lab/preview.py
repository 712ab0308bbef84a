"""`Strategy.preview`: the prompts of a strategy, without a call to a model."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tot_lab.core.calls import Call, CallObserver, Reply
from tot_lab.core.parts import Part, map_parts
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Task
from tot_lab.core.tools import asks_no_model
from tot_lab.lab.lab import Lab
from tot_lab.models.named import model_named
from tot_lab.runtime.driver import Driver
from tot_lab.runtime.recorder import Recorder
from tot_lab.runtime.roles import thinking_of

_MOST = 50
"""Maximum number of calls that a preview follows."""

_Replies = dict[tuple[str, str, int], Reply]
"""Replies by node, purpose and sample index."""


def preview(self: Strategy, task: Task) -> str:
    """Return the first prompt of each purpose that this strategy sends for `task`, as text to print.

        print(search.preview(task))

    Nothing is sent, recorded or paid. If a prompt depends on earlier replies, as that of an evaluator
    does, the domain's simulated model writes these. Additions of a lab, such as its tools, are not shown.
    """
    with ThreadPoolExecutor(1) as thread:  # an event loop may be running in this thread
        first = thread.submit(asyncio.run, _first_calls(self, task)).result()
    texts = []
    for number, (purpose, call) in enumerate(first.items()):
        messages = (f"[{message.role}]\n{message.content}" for message in call.messages)
        texts.append(
            "\n".join([f"── {purpose}{' (after simulated replies)' if number else ''} ──", *messages])
        )
    return "\n\n".join(texts)


async def _first_calls(strategy: Strategy, task: Task) -> dict[str, Call]:
    """Return the first call of each purpose. A simulated model can read only the domain's own prompts, so the
    strategy first runs without its prompt templates. The strategy itself then receives the same replies.
    """
    replies: _Replies = {}
    await _follow(map_parts(strategy, _without_template), task, replies)
    return await _follow(strategy, task, replies)


def _without_template(part: Part) -> dict[str, Any]:
    field = type(part).model_fields.get("prompt")
    return {"prompt": None} if field is not None and field.default is None else {}


async def _follow(strategy: Strategy, task: Task, replies: _Replies) -> dict[str, Call]:
    """Carry out a strategy with `replies`, and return its first call of each purpose. Missing replies are
    made by the domain's simulated model and added to `replies`.
    """
    runner = Lab(task.domain.player, runs=None).runner
    player: Any = model_named(task.domain.player)
    first: dict[str, Call] = {}
    made = 0

    async def answer(call: Call, observer: CallObserver) -> Reply:
        nonlocal made
        made += 1
        if asks_no_model(call) or made > _MOST:
            return Reply(error="budget:calls")
        first.setdefault(call.purpose, call)
        place = call.node, call.purpose, call.sample_index
        if place not in replies:
            replies[place] = await player(call)
        return replies[place]

    strategy, task = runner.prepared(strategy), runner.equipped(task)
    recorder = Recorder(header=runner.header(strategy, task, None, 0))
    await Driver(answer, recorder, in_order=True).drive(thinking_of(strategy, task, {}))
    return first
