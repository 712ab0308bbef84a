"""Mixture of agents: layers of models that read the answers of the layer before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

import msgspec
from pydantic import Field

from tot_lab.core.calls import Reply, halts, stop_of
from tot_lab.core.protocol import Procedure, ask, emit, gather
from tot_lab.core.records import Decided, Thought, call_failed, parent_of
from tot_lab.core.strategy import Prompting
from tot_lab.core.task import Answer, Task


class MixtureOfAgents(Prompting):
    """Agents answer in layers. From the second layer on, each agent reads all answers of the previous layer,
    and an aggregator combines the answers of the last layer.

    The sampling settings apply to all calls. `model` is that of the aggregator, and of all agents if `models`
    is empty. If an agent's call fails, the next layer is not shown an answer of that agent.

    Best for several models with different strengths. Trade-off: long prompts. Calls: `agents` · `layers`
    + 1.

    Agent k of layer l is the thought `at.(l · agents + k)`, and its sources are the thoughts that it read.

    References:
        Wang et al. 2024, Mixture-of-Agents Enhances Large Language Model Capabilities, arXiv:2406.04692,
        section 2.2.
    """

    scale: ClassVar[str] = "agents"

    agents: Annotated[int, Field(ge=1)] = 3
    """Agents in each layer."""

    layers: Annotated[int, Field(ge=1)] = 2
    """Layers of agents before the aggregator."""

    models: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Names of models, or of roles of the lab. Agent k of a layer uses model k modulo their number. Empty
    means the model of the strategy: each agent is then a further sample of that model."""

    def think(self, task: Task, at: str = "0") -> Procedure[Answer]:
        yield Thought(at, parent_of(at), task.question)
        read: list[Thought] = []
        made: list[Thought] = []
        stop = "answered"
        for layer in range(self.layers + 1):
            count = self.agents if layer < self.layers else 1
            numbers = [layer * self.agents + k for k in range(count)]
            turns = [self._turn(task, at, number, read) for number in numbers]
            replies = yield from gather(turns, at_most=1)
            read = [reply for reply in replies if isinstance(reply, Thought)] or read
            made += [reply for reply in replies if isinstance(reply, Thought)]
            errors = [reply for reply in replies if isinstance(reply, str)]
            if any(map(halts, errors)) or (errors and not made):
                stop = stop_of(next(filter(halts, errors), errors[0]))
                break
        return (yield from self._choose(task, made, stop))

    def max_calls(self, task: Task) -> int:
        return self.agents * self.layers + 1

    def _turn(self, task: Task, at: str, number: int, read: Sequence[Thought]) -> Procedure[Thought | str]:
        """The thought of one agent or of the aggregator, or the error of its call."""
        last = number == self.agents * self.layers
        if read:
            answers = "\n\n".join(f"{k}.\n{thought.text}" for k, thought in enumerate(read, 1))
            task = task.with_context(
                f"Answers of several models, some of which may be wrong:\n\n{answers}", _COMBINE
            )
        call = self.call(at, "answer", task.answer_prompt(True), number)
        if self.models and not last:
            model = self.models[number % self.agents % len(self.models)]
            call = msgspec.structs.replace(call, model=model)
        reply: Reply = yield from ask(call)
        if reply.error is not None:
            yield call_failed(at, "answer", reply.error)
            return reply.error
        sources = tuple(thought.id for thought in read)
        return (yield from emit(Thought(f"{at}.{number}", at, reply.text, sources)))

    def _choose(self, task: Task, made: Sequence[Thought], stop: str) -> Procedure[Answer]:
        """Answer with the last thought from which an answer can be read."""
        chosen, text = None, ""
        for thought in reversed(made):
            text = task.domain.read_answer(task, thought.text) or ""
            if text:
                chosen = thought.id
                break
        for thought in made:
            is_chosen = thought.id == chosen
            yield Decided(
                thought.id, "answer" if is_chosen else "pruned", stop if is_chosen else "aggregated"
            )
        return Answer(text, stop, chosen, None, tuple(thought.id for thought in reversed(made)))


_COMBINE = "Judge these answers critically, and write one better answer to the task. Do not just repeat one."
