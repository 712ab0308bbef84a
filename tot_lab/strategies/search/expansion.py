"""The expansion of one thought: its new children, each with its score.

An expansion has one parent, so expansions of different parents run concurrently and never wait for each
other. Every event is both yielded and returned. The search adds events to its tree when all expansions of a
pick have ended.
"""

from __future__ import annotations

from tot_lab.core.protocol import Procedure
from tot_lab.core.records import Decided, Event, Scored, Thought
from tot_lab.strategies.search.evaluators import Evaluator
from tot_lab.strategies.search.proposers import Children, Proposer
from tot_lab.strategies.search.sampling import Place, Sampler


def expand(
    sampler: Sampler,
    propose: Proposer,
    evaluate: Evaluator,
    place: Place,
    count: int,
    logprobs: int = 0,
    alternatives: int | None = None,
) -> Procedure[list[Event]]:
    """Add up to `count` children at `place`, and score them unless the evaluator compares whole picks.

    The sample indices of the built-in proposers are reserved by this call, and not when the returned
    generator starts.

    Args:
        sampler: Makes the calls.
        propose: Makes the children.
        evaluate: Scores them.
        place: Where they are added.
        count: How many.
        logprobs: Alternatives per token whose log-probabilities the search needs. The calls request the
            larger of this number and the evaluator's.
        alternatives: How many of these alternatives the search reads (`Call.alternatives`).
    """
    evaluate = evaluate.for_thoughts_of(propose)
    children = Children(sampler, evaluate, place, keep_replies=logprobs > 0)
    if most := max(evaluate.logprobs, logprobs):
        if not logprobs:
            alternatives = evaluate.alternatives
        elif evaluate.logprobs and evaluate.alternatives != alternatives:
            alternatives = most  # all of them, which serve the search and the evaluator
        sampler = sampler._replace(logprobs=most, alternatives=alternatives)
    proposing = sampler
    if place.source_paths:
        proposing = sampler._replace(task=propose.with_sources(sampler.task, place.source_paths))
    return _scored(evaluate, sampler, place, propose.grow(proposing, place, count, children))


def _scored(
    evaluate: Evaluator, sampler: Sampler, place: Place, growing: Procedure[list[Event]]
) -> Procedure[list[Event]]:
    """Make the children, and score those that are compared with their siblings."""
    events = yield from growing
    if evaluate.compares == "siblings":
        place.texts += [event.text for event in events if isinstance(event, Thought)]
        scored = {event.id for event in events if isinstance(event, Scored | Decided)}
        unscored = [e for e in events if isinstance(e, Thought) and e.id not in scored]
        if unscored:
            events += yield from evaluate.score_siblings(sampler, place, unscored)
    return events
