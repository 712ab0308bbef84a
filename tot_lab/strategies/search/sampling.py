"""The calls of a tree search: prompts, sampling settings, and several samples of one prompt.

Proposers and evaluators make their calls through a `Sampler`, so that they need not know the strategy
that they work in. Branches that run side by side share a sampler. They reserve their sample indices before
they start, and change nothing else in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from pydantic import Field

from tot_lab.core.calls import Call, Message, Reply
from tot_lab.core.parts import Alias, are_stored
from tot_lab.core.protocol import Procedure, SampleCounter, ask, gather
from tot_lab.core.records import Decided, Event, Note, Scored
from tot_lab.core.strategy import Prompting
from tot_lab.core.task import Path, Task
from tot_lab.core.tree import Tree


@dataclass(slots=True)
class Expansion:
    """The state of a thought's expansion: the thought, and the child numbers and sample indices already used.

    Only one expansion of a thought runs at a time, so it may change this state.
    """

    node: str
    """The thought that gets children."""

    path: Path
    """The texts from the first step to `node`, as in `Tree.texts`."""

    depth: int = 0
    """Number of steps before the children, including the steps given with the task."""

    open: bool = False
    """Whether a child's text is appended to the last text of `path` instead of being a step of its own."""

    next_child: int = 0
    """Number of the next child. The count continues when the thought is expanded again."""

    counted: int = 0
    """Number of the thought's children that `next_child` and `children` already cover."""

    samples: dict[str, int] = field(default_factory=dict)
    """The next sample index by purpose, for calls made for `node`."""

    children: dict[str, int] = field(default_factory=dict)
    """The number of the first child with each text."""

    texts: list[str] = field(default_factory=list)
    """The texts of all children that expansions have made, repeats included. Empty unless the evaluator
    compares siblings."""

    sources: tuple[str, ...] = ()
    """Further thoughts that the children continue (aggregation)."""

    source_paths: tuple[Path, ...] = ()
    """The paths of `sources`."""

    replies: dict[int, Reply] = field(default_factory=dict)
    """The reply from which a child alone was read, by the child's number. Kept only if the search needs
    log-probabilities."""

    ended: dict[int, str] = field(default_factory=dict)
    """How the reply of a child ended, by the child's number: `cut` at the token limit, `open` after
    `tokens_per_step` tokens, or `end of reply` if the model ended a reply that continues the path. No entry
    for other ends."""

    @classmethod
    def of(cls, tree: Tree, id: str) -> Expansion:
        """The `Expansion` for children of the thought `id`."""
        node = tree[id]
        return cls(id, tree.texts(id), len(tree.steps) + node.depth, node.open)

    def path_to(self, text: str) -> Path:
        """The path that ends with a child of this text. An empty text adds no step."""
        if self.open:
            return [*self.path[:-1], self.path[-1] + text]
        return [*self.path, text] if text else self.path

    def take_sample_index(self, purpose: str) -> int:
        """An index that no earlier call of that purpose has used for this thought."""
        index = self.samples.get(purpose, 0)
        self.samples[purpose] = index + 1
        return index


T = TypeVar("T")
Count = Annotated[int, Field(ge=1)]
Retries = Annotated[int, Field(ge=0)]
Unit = Annotated[float, Field(ge=0, le=1)]

OF_THE_STRATEGY: Mapping[str, str | Alias] = {
    name: f"tl.TreeOfThoughts({name}=…)" for name in ("model", "temperature", "max_tokens", "seed")
}
"""Settings of the strategy that are refused by proposers and evaluators, with the hint where to set them."""

SLOT = re.compile(r"\{(problem|steps|count|candidate|candidates)\}")


_WORD = re.compile(r"(?<![\\\w{}^])\{(\w+)\}")
"""A word in braces. Braces of LaTeX, as in `\\boxed{answer}`, do not match."""


def checked_template(template: str | None, slots: Sequence[str], needed: Sequence[str]) -> str | None:
    """Return `template` after a check. A template from a record is not checked.

    Raises:
        ValueError: If it has other slots than `slots`, or some slots but not all that are `needed`.
    """
    if template is None or are_stored():
        return template
    listed = f"The slots are {', '.join(f'{{{slot}}}' for slot in slots)}."
    for word in [*_WORD.findall(template), *SLOT.findall(template)]:
        if word not in slots:
            raise ValueError(f"the template has an unknown slot {{{word}}}. {listed}")
    for slot in needed:
        if SLOT.search(template) and f"{{{slot}}}" not in template:
            raise ValueError(
                f"the template must contain {{{slot}}}, or no slot at all to be the system message: got "
                f"{template!r:.80}. {listed}"
            )
    return template


class Prompt(NamedTuple):
    """The messages of a call: the user message `text`, and before it `system` unless that is ""."""

    text: str
    system: str = ""


class Sampler(NamedTuple):
    """Makes the calls of one search on one task.

    Attributes:
        strategy: Gives the model and the sampling settings.
        task: The problem.
        samples: Gives the proposals their sample indices.
        parallel: Whether calls that do not depend on each other are made concurrently.
        ask: How a proposer's call is made: directly, or with tools before the reply.
        calls_per_ask: The most calls that `ask` makes.
        logprobs: Alternatives per token whose log-probabilities the calls request.
        alternatives: How many of these alternatives the replies keep; see `Call.alternatives`, also for
            `None`.
        temperature: The highest temperature that `ask` sets. `None` if `ask` does not change temperatures.
        end: The entry in `Expansion.ended` of the thought that is being scored.
    """

    strategy: Prompting
    task: Task
    samples: SampleCounter
    parallel: bool = True
    ask: Callable[[Call], Procedure[Reply]] = ask
    calls_per_ask: int = 1
    logprobs: int = 0
    alternatives: int | None = None
    temperature: float | None = None
    end: str = ""

    def prompt(self, template: str | None, path: Path, default: Callable[[], str], **slots: Any) -> Prompt:
        """The prompt of `template`, or of the domain (`default`) without one.

        A template without slots is the system message, and the domain's prompt follows it.
        """
        if template is None:
            return Prompt(default())
        if SLOT.search(template) is None:
            return Prompt(default(), template)
        domain = self.task.domain
        known = {"problem": domain.statement(self.task), "steps": domain.steps(path), **slots}
        return Prompt(SLOT.sub(lambda slot: str(known.get(slot[1], slot[0])), template))

    def call(self, at: str, purpose: str, path: Path, prompt: Prompt, sample_index: int) -> Call:
        """A call for the thought `at` with the sampling settings of the strategy."""
        format = self.task.domain.response_format(purpose, self.task, path)
        call = self.strategy.call(at, purpose, prompt.text, sample_index, format)
        if self.logprobs:
            call = msgspec.structs.replace(call, logprobs=self.logprobs, alternatives=self.alternatives)
        if prompt.system:
            call = msgspec.structs.replace(call, messages=(Message("system", prompt.system), *call.messages))
        return call

    def gather(self, branches: list[Procedure[T]], *, at_most: int) -> Procedure[list[T]]:
        """The results of `branches`, each of which makes at most `at_most` calls."""
        if len(branches) == 1:
            return [(yield from branches[0])]
        return (yield from gather(branches, at_most=at_most, at_once=None if self.parallel else 1))


def emit_as_list(event: Event) -> Procedure[list[Event]]:
    """Yield `event` and return it, as it was recorded, in a list."""
    recorded: Event | None = yield event
    return [event if recorded is None else recorded]


def error_in(event: Event) -> str | None:
    """The error of a failed call that `event` reports, `None` for any other event."""
    if isinstance(event, Decided) and event.what == "failed":
        return event.reason
    if isinstance(event, Note) and event.name == "call.failed":
        return str(event.data["error"])
    return None


def unreadable(at: str, purpose: str, sample_index: int) -> Note:
    """The note that a reply could not be read."""
    return Note("parse.unreadable", at, {"kind": purpose, "draw": sample_index})


def failed(id: str, error: str | None) -> Decided:
    """The event that a thought has no score because its calls failed."""
    return Decided(id, "failed", error or "")


def no_score(id: str, by: str, reason: str) -> Procedure[list[Event]]:
    """Record that the evaluator of kind `by` has no score for a thought, and why."""
    yield Note("score.missing", id, {"by": by, "reason": reason})
    return (yield from emit_as_list(Scored(id, None, None, (), by)))


def texts_of(thoughts: Sequence[str], separator: str = "\n") -> str:
    """Thoughts as a numbered list for the slot `{candidates}`."""
    return separator.join(f"{k}. {text}" for k, text in enumerate(thoughts, 1))
