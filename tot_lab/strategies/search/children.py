"""The new children of one place: each is recorded, and scored as soon as its text is known."""

from __future__ import annotations

from collections.abc import Generator

from tot_lab.core.calls import Reply
from tot_lab.core.records import Decided, Event, Scored, Thought
from tot_lab.core.task import Path
from tot_lab.core.thinking import Thinking, emit
from tot_lab.strategies.search.evaluators import Evaluator
from tot_lab.strategies.search.place import Place
from tot_lab.strategies.search.sampling import Sampler, emit_as_list


class Children:
    """Records the children of one place and has each scored as soon as its text is known.

    Args:
        sampler: Makes the calls.
        evaluate: Scores the children.
        place: Where they are added.
        keep_replies: Whether the place keeps the replies that made them, which can be long.
    """

    def __init__(
        self, sampler: Sampler, evaluate: Evaluator, place: Place, *, keep_replies: bool = False
    ) -> None:
        self.sampler = sampler
        self.evaluate = evaluate
        self.place = place
        self.keep_replies = keep_replies
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
        is_open = self.place.ended.get(number) == "open"
        thought = yield from emit(Thought(f"{parent}.{number}", parent, text, sources, open=is_open))
        if repeats is not None and thought.text == text:
            duplicate = Decided(thought.id, "duplicate", f"repeats {parent}.{repeats}")
            return [thought, *(yield from emit_as_list(duplicate))]
        path = self.place.path_to(thought.text)
        reply = reply if thought.text == text else None
        if self.keep_replies and reply is not None:
            self.place.replies[number] = reply
        end = self.place.ended.get(number, "")
        sampler = self.sampler._replace(end=end) if end else self.sampler
        return [thought, *(yield from score(sampler, self.evaluate, path, thought.id, reply))]


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
    scoring = evaluate.score_thought(sampler, path, id)
    if not isinstance(scoring, Generator):
        raise TypeError(
            f"{type(evaluate).__name__}.score_thought must be a generator that returns events: got "
            f"{scoring!r:.80}. A function (task, path) -> score is an evaluator too."
        )
    return (yield from scoring)
