"""The expansion of one thought: its new children, each with its score.

An expansion has one parent, so expansions of different parents run concurrently and never wait for each
other. Every event is both yielded and returned; the search adds it to its tree after the join.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tot_lab.core.calls import Reply
from tot_lab.core.records import Decided, Event, Scored, Thought
from tot_lab.core.task import Path
from tot_lab.core.thinking import Thinking, emit
from tot_lab.strategies.search.sampling import Sampler, emit_as_list

if TYPE_CHECKING:
    from tot_lab.strategies.search.evaluators import Evaluator
    from tot_lab.strategies.search.proposers import Proposer


@dataclass(slots=True)
class Place:
    """Where children are added, and what earlier expansions of the same thought have used.

    Only one expansion of a thought runs at a time, and it owns the thought's place.
    """

    node: str
    """The thought that gets children."""

    path: Path
    """The texts from the first step to `node`."""

    next_child: int = 0
    """Number of the next child. Further expansions continue from it."""

    counted: int = 0
    """Children of the thought that `next_child` and `children` take into account."""

    samples: dict[str, int] = field(default_factory=dict)
    """The next sample index by purpose, for calls made for `node`."""

    children: dict[str, int] = field(default_factory=dict)
    """The numbers of the children by text. Of equal texts, the first counts."""

    texts: list[str] = field(default_factory=list)
    """The texts of all children that expansions have made, repeats included."""

    sources: tuple[str, ...] = ()
    """Further thoughts that the children continue (aggregation)."""

    source_paths: tuple[Path, ...] = ()
    """The paths of `sources`."""

    def take_sample_index(self, purpose: str) -> int:
        """An index that no earlier call of that purpose has used for this thought."""
        index = self.samples.get(purpose, 0)
        self.samples[purpose] = index + 1
        return index


class Children:
    """Records the children of one place and has each scored as soon as its text is known."""

    def __init__(self, sampler: Sampler, evaluate: Evaluator, place: Place) -> None:
        self.sampler = sampler
        self.evaluate = evaluate
        self.place = place
        self.calls_per_child = evaluate.calls_per_thought(sampler.task)

    def add(
        self, number: int, text: str, *, repeats: int | None = None, reply: Reply | None = None
    ) -> Thinking[list[Event]]:
        """Record child `number` and score it, if it is scored by itself.

        Args:
            number: The child's number below its parent.
            text: The thought.
            repeats: The number of an earlier sibling with the same text: such a child is recorded as a
                duplicate and not scored again.
            reply: The reply that holds this thought alone.
        """
        parent, sources = self.place.node, self.place.sources
        thought = yield from emit(Thought(f"{parent}.{number}", parent, text, sources))
        if repeats is not None and thought.text == text:
            duplicate = Decided(thought.id, "duplicate", f"repeats {parent}.{repeats}")
            return [thought, *(yield from emit_as_list(duplicate))]
        path = [*self.place.path, thought.text]
        reply = reply if thought.text == text else None
        return [thought, *(yield from score(self.sampler, self.evaluate, path, thought.id, reply))]


def expand(
    sampler: Sampler, propose: Proposer, evaluate: Evaluator, place: Place, count: int
) -> Thinking[list[Event]]:
    """Add up to `count` children at `place`, and score them unless the evaluator compares whole picks."""
    children = Children(sampler, evaluate, place)
    if evaluate.logprobs:
        sampler = sampler._replace(logprobs=evaluate.logprobs)
    if place.source_paths:
        task = propose.with_sources(sampler.task, place.source_paths)
        events = yield from propose.grow(sampler._replace(task=task), place, count, children)
    else:
        events = yield from propose.grow(sampler, place, count, children)
    if evaluate.compares == "siblings":
        place.texts += [event.text for event in events if isinstance(event, Thought)]
        scored = {event.id for event in events if isinstance(event, Scored | Decided)}
        unscored = [e for e in events if isinstance(e, Thought) and e.id not in scored]
        if unscored:
            events += yield from evaluate.score_siblings(sampler, place, unscored)
    return events


def score(
    sampler: Sampler, evaluate: Evaluator, path: Path, id: str, reply: Reply | None = None
) -> Thinking[list[Event]]:
    """Score the thought `id` by the knowledge of its domain, or else by the evaluator."""
    known = sampler.task.domain.assess(sampler.task, path)
    if known is not None:
        return (yield from emit_as_list(Scored(id, known, known, by="domain")))
    if evaluate.compares == "reply":
        return (yield from evaluate.score_reply(id, reply))
    if evaluate.compares != "nothing":
        return []  # it is scored with its siblings, or with all children of the pick
    return (yield from evaluate.score_thought(sampler, path, id))
