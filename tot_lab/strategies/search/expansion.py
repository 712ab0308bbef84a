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
from tot_lab.strategies.search.sampling import Expansion, Sampler


def expand(
    sampler: Sampler,
    propose: Proposer,
    evaluate: Evaluator,
    expansion: Expansion,
    count: int,
    logprobs: int = 0,
    alternatives: int | None = None,
) -> Procedure[list[Event]]:
    """Add up to `count` children to a thought, and score them unless the evaluator compares whole picks.

    The sample indices of the built-in proposers are reserved by this call, and not when the returned
    generator starts.

    Args:
        sampler: Makes the calls.
        propose: Makes the children.
        evaluate: Scores them.
        expansion: The thought that gets them, with the child numbers and sample indices already used.
        count: How many.
        logprobs: Alternatives per token whose log-probabilities the search needs. The calls request the
            larger of this number and the evaluator's.
        alternatives: How many of these alternatives the search reads. `None` means that it needs only the
            log-probabilities of the tokens themselves.
    """
    evaluate = evaluate.for_thoughts_of(propose)
    children = Children(sampler, evaluate, expansion, keep_replies=logprobs > 0)
    if most := max(evaluate.logprobs, logprobs):
        if not logprobs:
            alternatives = evaluate.alternatives
        elif evaluate.logprobs and evaluate.alternatives != alternatives:
            alternatives = most  # all of them, which serve the search and the evaluator
        sampler = sampler._replace(logprobs=most, alternatives=alternatives)
    proposing = sampler
    if expansion.source_paths:
        proposing = sampler._replace(task=propose.with_sources(sampler.task, expansion.source_paths))
    return _scored(evaluate, sampler, expansion, propose.grow(proposing, expansion, count, children))


def _scored(
    evaluate: Evaluator, sampler: Sampler, expansion: Expansion, growing: Procedure[list[Event]]
) -> Procedure[list[Event]]:
    """Make the children, and score those that are compared with their siblings."""
    events = yield from growing
    if evaluate.compares == "siblings":
        expansion.texts += [event.text for event in events if isinstance(event, Thought)]
        scored = {event.id for event in events if isinstance(event, Scored | Decided)}
        unscored = [e for e in events if isinstance(e, Thought) and e.id not in scored]
        if unscored:
            events += yield from evaluate.score_siblings(sampler, expansion, unscored)
    return events
