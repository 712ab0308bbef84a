"""Proposers: how the next thoughts are made.

A proposer adds children to one thought. It makes its calls through the sampler, takes their sample
indices from `sampler.samples`, and passes each text to `children.add`, which records and scores it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec
from pydantic import Field, field_validator

from tot_lab.core.calls import Call, Reply
from tot_lab.core.parts import Alias, Part
from tot_lab.core.policy import EffectPolicy
from tot_lab.core.protocol import Procedure, emit
from tot_lab.core.reading.lists import find_list
from tot_lab.core.records import Decided, Event, Note, Scored, Thought, call_failed
from tot_lab.core.task import Path, Task
from tot_lab.strategies.acting import Acting, ToolLimits, names_of_tools
from tot_lab.strategies.search.evaluators import Evaluator
from tot_lab.strategies.search.sampling import (
    OF_THE_STRATEGY,
    Count,
    Expansion,
    Prompt,
    Retries,
    Sampler,
    checked_template,
    emit_as_list,
    unreadable,
)


class Children:
    """Records the children of one expansion and has each scored as soon as its text is known.

    Args:
        sampler: Makes the calls.
        evaluate: Scores the children.
        expansion: The thought that gets them, with the child numbers and sample indices already used.
        keep_replies: Whether replies, which can be long, are kept in `expansion.replies`.
    """

    def __init__(
        self, sampler: Sampler, evaluate: Evaluator, expansion: Expansion, *, keep_replies: bool = False
    ) -> None:
        self.sampler = sampler
        self.evaluate = evaluate
        self.expansion = expansion
        self.keep_replies = keep_replies
        self.calls_per_child = evaluate.calls_per_thought(sampler.task)

    def add(
        self, number: int, text: str, *, repeats: int | None = None, reply: Reply | None = None
    ) -> Procedure[list[Event]]:
        """Record child `number`, and score it unless the evaluator compares several thoughts.

        Args:
            number: The child's number below its parent.
            text: The thought.
            repeats: The number of an earlier sibling with the same text: such a child is recorded as a
                duplicate and not scored again.
            reply: The reply that the thought was read from. `None` if several thoughts were read from it.
        """
        parent, sources = self.expansion.node, self.expansion.sources
        is_open = self.expansion.ended.get(number) == "open"
        thought = yield from emit(Thought(f"{parent}.{number}", parent, text, sources, open=is_open))
        if repeats is not None and thought.text == text:
            duplicate = Decided(thought.id, "duplicate", f"repeats {parent}.{repeats}")
            return [thought, *(yield from emit_as_list(duplicate))]
        path = self.expansion.path_to(thought.text)
        reply = reply if thought.text == text else None
        if self.keep_replies and reply is not None:
            self.expansion.replies[number] = reply
        end = self.expansion.ended.get(number, "")
        sampler = self.sampler._replace(end=end) if end else self.sampler
        return [thought, *(yield from score(sampler, self.evaluate, path, thought.id, reply))]


def score(
    sampler: Sampler, evaluate: Evaluator, path: Path, id: str, reply: Reply | None = None
) -> Procedure[list[Event]]:
    """Score the thought `id` by `Domain.assess`, or by the evaluator if that returns `None`."""
    known = sampler.task.domain.assess(sampler.task, path)
    if known is not None:
        return (yield from emit_as_list(Scored(id, known, known, by="domain")))
    if evaluate.compares == "reply":
        return (yield from evaluate.score_reply(id, reply))
    if evaluate.compares != "nothing":
        return []  # it is scored with its siblings, or with all children of the pick
    scoring = evaluate.score_thought(sampler, path, id)
    if not isinstance(scoring, Generator):
        raise TypeError(
            f"{type(evaluate).__name__}.score_thought must be a generator that returns events: got "
            f"{scoring!r:.80}. A function (task, path) -> score is an evaluator too."
        )
    return (yield from scoring)


class Proposer(Part):
    """Makes the children of a thought. Subclass it, or one of the built-in proposers, for a custom one."""

    kind: ClassVar[str] = ""
    setting_aliases: ClassVar[Mapping[str, str | Alias]] = OF_THE_STRATEGY
    scale: ClassVar[str] = ""
    """The setting for the number of children, such as `count`. "" means no such setting."""

    @property
    def asks_for_answer(self) -> bool:
        """Whether its calls ask for a whole answer in the form that the domain reads."""
        return False

    @property
    def members(self) -> dict[str, Proposer]:
        """The proposers that a search may choose from, by name: one per model and temperature of a `Mixture`,
        otherwise this proposer alone."""
        return {self.kind: self}

    def scale_setting(self) -> str | None:
        """The path of the setting for the number of children, such as `proposer.count`. `None` means no such
        setting.
        """
        return self.scale or None

    def max_children(self) -> int:
        """Children per parent, if the search does not say how many."""
        raise NotImplementedError(f"the proposer {self.kind!r} does not define `max_children`")

    def max_calls(self, count: int) -> int:
        """The most calls that `grow` makes for `count` children, without those that score them."""
        raise NotImplementedError(f"the proposer {self.kind!r} does not define `max_calls`")

    def grow(
        self, sampler: Sampler, expansion: Expansion, count: int, children: Children
    ) -> Procedure[list[Event]]:
        """Add up to `count` children to `expansion.node`. Returns all recorded events.

        The `grow` of a built-in proposer is a function that returns a generator, so that sample indices are
        taken in the order of `Pick.parents`. A `grow` that is itself a generator takes them only when its
        branch starts.
        """
        raise NotImplementedError(f"the proposer {self.kind!r} does not define `grow`")

    def to_the_end(self) -> Proposer | None:
        """The proposer that writes the rest of a path in one step. `None` if this proposer has none."""
        return None

    def finisher(self) -> Proposer | None:
        """The proposer that completes the best path in one step if the search has finished no path. `None`
        means that the path is left as it is."""
        return None

    def with_sources(self, task: Task, paths: Sequence[Path]) -> Task:
        """Return `task` for children that continue several thoughts: with the `paths` to the further thoughts
        in its context."""
        others = [f"Another line of thought:\n{task.domain.steps(path)}" for path in paths]
        return task.with_context(*others)


class Around(Proposer):
    """A proposer that wraps another one, `proposer`, and changes how it makes thoughts."""

    if TYPE_CHECKING:
        proposer: Proposer

    @property
    def members(self) -> dict[str, Proposer]:
        return {name: self.with_(proposer=member) for name, member in self.proposer.members.items()}

    @property
    def asks_for_answer(self) -> bool:
        return self.proposer.asks_for_answer

    def to_the_end(self) -> Proposer | None:
        inner = self.proposer.to_the_end()
        return None if inner is None else self.with_(proposer=inner)

    def scale_setting(self) -> str | None:
        inner = self.proposer.scale_setting()
        return None if inner is None else f"proposer.{inner}"

    def finisher(self) -> Proposer | None:
        inner = self.proposer.finisher()
        return None if inner is None else self.with_(proposer=inner)

    def max_children(self) -> int:
        return self.proposer.max_children()

    def max_calls(self, count: int) -> int:
        return self.proposer.max_calls(count)

    def with_sources(self, task: Task, paths: Sequence[Path]) -> Task:
        return self.proposer.with_sources(task, paths)

    def grow(
        self, sampler: Sampler, expansion: Expansion, count: int, children: Children
    ) -> Procedure[list[Event]]:
        return self.proposer.grow(sampler, expansion, count, children)


class _Prompted(Proposer):
    """A proposer whose prompt can be replaced."""

    scale: ClassVar[str] = "count"

    count: Count = 3
    """Children per thought."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """Sampling temperature of the proposals. `None` means that of the strategy."""

    prompt: str | None = None
    """Template that replaces the domain's prompt, with `{problem}`, `{steps}` and `{count}`. A text without
    any slot is sent as the system message, and the domain's prompt follows it."""

    max_parse_retries: Retries = 0
    """The most further samples per expansion, one for each reply that cannot be read."""

    @field_validator("prompt")
    @classmethod
    def _has_the_slots(cls, template: str | None) -> str | None:
        return checked_template(template, ("problem", "steps", "count"), ("problem",))

    def max_children(self) -> int:
        return self.count

    def _samples(
        self, purpose: str, sampler: Sampler, expansion: Expansion, prompt: Prompt, count: int
    ) -> Iterator[Call]:
        """`count` samples of the prompt, and one more for each parse retry."""
        call = self._call(purpose, sampler, expansion, prompt)
        if sampler.temperature is not None:
            call = msgspec.structs.replace(call, temperature=sampler.temperature)
        return sampler.samples.take(call, count + self.max_parse_retries)

    def _call(self, purpose: str, sampler: Sampler, expansion: Expansion, prompt: Prompt) -> Call:
        call = sampler.call(expansion.node, purpose, expansion.path, prompt, 0)
        if self.temperature is not None:
            call = msgspec.structs.replace(call, temperature=self.temperature)
        return call


class Sample(_Prompted):
    """One thought per call: `count` samples of one prompt.

    References:
        Yao et al. 2023, section 3, thought generator (a): sample i.i.d. thoughts.
    """

    def max_calls(self, count: int) -> int:
        return count + self.max_parse_retries

    def grow(
        self, sampler: Sampler, expansion: Expansion, count: int, children: Children
    ) -> Procedure[list[Event]]:
        asked = partial(self._default_prompt, sampler.task, expansion.path)
        prompt = sampler.prompt(self.prompt, expansion.path, asked, count=1)
        calls = self._samples("sample", sampler, expansion, prompt, count)
        return self._sample(sampler, expansion, calls, count, children)

    def _sample(
        self, sampler: Sampler, expansion: Expansion, calls: Iterator[Call], count: int, children: Children
    ) -> Procedure[list[Event]]:
        parent = expansion.node

        def sampled(number: int, call: Call) -> Procedure[list[Event] | None]:
            reply = yield from sampler.ask(call)
            if reply.error is not None:
                return (yield from emit_as_list(call_failed(parent, "sample", reply.error)))
            text, end = self._step(sampler.task, expansion.path, reply)
            if text is None:
                yield unreadable(parent, "sample", call.sample_index)
                return None
            if end:
                expansion.ended[number] = end
            return (yield from children.add(number, text, reply=reply))

        numbers = range(expansion.next_child, expansion.next_child + count)
        branches = [sampled(number, next(calls)) for number in numbers]
        grown = yield from sampler.gather(branches, at_most=sampler.calls_per_ask + children.calls_per_child)
        for _ in range(self.max_parse_retries):
            if None not in grown:
                break
            missing = grown.index(None)
            grown[missing] = yield from sampled(numbers[missing], next(calls))
        return [event for events in grown for event in events or ()]

    def _default_prompt(self, task: Task, path: Path) -> str:
        return task.domain.sample_prompt(task, path)

    def _step(self, task: Task, path: Path, reply: Reply) -> tuple[str | None, str]:
        """The step in a reply (`None` if it cannot be read), and its entry in `Expansion.ended`, or ""."""
        text = task.domain.read_sample(task, path, reply.text)
        return text, "cut" if reply.finish_reason == "length" else ""


class Propose(_Prompted):
    """Several thoughts per call: one prompt that asks for a list of different next steps.

    References:
        Yao et al. 2023, section 3, thought generator (b): propose thoughts sequentially.
    """

    samples: Count = 1
    """Samples of the prompt. `Domain.pool_proposals` combines their proposals."""

    def max_calls(self, count: int) -> int:
        return self.samples + self.max_parse_retries

    def grow(
        self, sampler: Sampler, expansion: Expansion, count: int, children: Children
    ) -> Procedure[list[Event]]:
        asked = partial(sampler.task.domain.propose_prompt, sampler.task, expansion.path, count)
        prompt = sampler.prompt(self.prompt, expansion.path, asked, count=count)
        calls = self._samples("propose", sampler, expansion, prompt, self.samples)
        return self._propose(sampler, expansion, calls, count, children)

    def _propose(
        self, sampler: Sampler, expansion: Expansion, calls: Iterator[Call], count: int, children: Children
    ) -> Procedure[list[Event]]:
        task, path, parent = sampler.task, expansion.path, expansion.node
        made = [next(calls) for _ in range(self.samples)]
        branches = [sampler.ask(call) for call in made]
        replies = yield from sampler.gather(branches, at_most=sampler.calls_per_ask)
        failed: list[Event] = []
        read: list[tuple[str, list[str]]] = []
        for k, reply in enumerate(replies):  # a retry appends to `replies`
            index = made[k].sample_index
            if reply.error is not None:
                failed += yield from emit_as_list(call_failed(parent, "propose", reply.error))
            elif steps := task.domain.read_proposals(task, path, reply.text):
                read.append((reply.text, steps))
                if find_list(reply.text) == (steps, True):
                    where = {"kind": "propose", "draw": index}
                    yield Note("json.repaired", parent, {**where, "cut_off": reply.finish_reason == "length"})
            else:
                yield unreadable(parent, "propose", index)
                if len(replies) < self.samples + self.max_parse_retries:
                    made.append(next(calls))
                    replies.append((yield from sampler.ask(made[-1])))
        # The proposals of a single reply need no pooling.
        texts = read[0][1] if len(read) == 1 else task.domain.pool_proposals(task, path, [t for t, _ in read])
        return failed + (yield from self._add(sampler, expansion, texts[:count], children))

    def _add(
        self, sampler: Sampler, expansion: Expansion, texts: Sequence[str], children: Children
    ) -> Procedure[list[Event]]:
        first = dict(expansion.children)
        branches = []
        for number, text in enumerate(texts, expansion.next_child):
            earlier = first.setdefault(text, number)
            branches.append(children.add(number, text, repeats=None if earlier == number else earlier))
        grown = yield from sampler.gather(branches, at_most=children.calls_per_child)
        return [event for events in grown for event in events]


class WithTools(ToolLimits, Around):
    """A proposer whose model may call tools before it replies.

    References:
        Zhou et al. 2023 (LATS): thoughts based on observations.
    """

    setting_aliases: ClassVar[Mapping[str, str]] = {
        name: f"proposer.{name}"
        for name in ("count", "prompt", "temperature", "max_parse_retries", "samples")
    }

    proposer: Proposer = Sample()
    """Makes the thoughts."""

    tools: Annotated[tuple[str, ...] | None, Field(strict=False)] = None
    """Names of the lab's tools that may be called. `None` means all of them."""

    max_round_trips: Count = 3
    """The most turns with tool calls before each reply. Each turn is one more model call."""

    effect_policy: Annotated[EffectPolicy | None, Field(strict=False)] = None
    """Effects that the tools may have. `None` means those that the lab allows."""

    @field_validator("tools", mode="before")
    @classmethod
    def _are_names(cls, tools: Any) -> Any:
        return names_of_tools(tools)

    def max_calls(self, count: int) -> int:
        return self.proposer.max_calls(count) * (1 + self.max_round_trips)

    def grow(
        self, sampler: Sampler, expansion: Expansion, count: int, children: Children
    ) -> Procedure[list[Event]]:
        turns = _ToolTurns(
            tools=self.tools,
            effect_policy=self.effect_policy,
            parallel=sampler.parallel,
            **{name: getattr(self, name) for name in ToolLimits.model_fields},
        )

        # Tools that the question names are required once: for the first thought of the search.
        task = sampler.task
        first = len(expansion.path) == len(task.steps)
        named = turns.named(task, turns.available_tools(task)) if first else []

        def asked(call: Call) -> Procedure[Reply]:
            required = named if first and call.sample_index == 0 else []
            return turns.asking_with_tools(task, call, self.max_round_trips, required)

        asking = sampler._replace(ask=asked, calls_per_ask=1 + self.max_round_trips)
        return self.proposer.grow(asking, expansion, count, children)


class _ToolTurns(Acting):
    """The tool loop inside one proposal."""

    kind = "with_tools"
    notes = "tot"
