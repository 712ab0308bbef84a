"""A search driven by hand, without a model or an event loop."""

from random import Random

import tot_lab as tl
from support import TASK
from tot_lab.core.calls import Call, Reply
from tot_lab.core.protocol import BudgetLeft, RandomNumbers
from tot_lab.core.records import EVENTS, Scored, Thought
from tot_lab.strategies.search.searches import Pick, SearchState


def drive(
    search,
    score,
    *,
    propose=None,
    branch=3,
    depth=100,
    closed=(),
    picks=1000,
    random=None,
    left=None,
    reply=None,
    rescore=None,
):
    """The picks of `search`, each with the ids of its new children, and its state.

    Args:
        score: The score of a new thought, by its id, and by the proposer if the pick names one. `None` is
            unreadable.
        propose: The proposer of the search.
        branch: Children of a parent, if the pick does not say how many: a number, or a function of the id.
        depth: Thoughts at this depth are closed.
        closed: Further thoughts that are closed.
        picks: The most picks.
        random: Answers a request for random numbers.
        left: Returns what is left of the budget, given the state.
        reply: The text that answers a call of the search.
        rescore: New scores that a person gives, by the number of picks made before, as `{id: score}`.
    """
    state = SearchState(TASK, "0", tl.TreeOfThoughts(propose=propose or tl.Sample()))
    state.tree.add(Thought("0", None, "root"))
    steps, value, made = search.run(state), None, []
    while len(made) < picks:
        try:
            step = steps.send(value)
        except StopIteration:
            break
        value = None
        if isinstance(step, Pick):
            value = _expanded(state, step, score, branch, depth, closed)
            made.append((step, value))
            for id, new in (rescore or {}).get(len(made), {}).items():
                old = state.tree[id].rank
                state.tree.add(Scored(id, new, by="person"))
                search.rescored(state, id, old)
        elif isinstance(step, RandomNumbers):
            value = random or Random(0)
        elif isinstance(step, BudgetLeft):
            value = left(state)
        elif isinstance(step, Call):
            value = Reply(reply(step))
        elif isinstance(step, EVENTS):
            state.tree.add(step)
    return made, state


def _expanded(state, pick, score, branch, depth, closed):
    """Carry out a pick, and return the ids of the new children."""
    counts = pick.count
    if not isinstance(counts, list | tuple):
        counts = [pick.count or (branch(id) if callable(branch) else branch) for id in pick.parents]
    fresh = []
    for parent, count in zip(pick.parents, counts, strict=True):
        assert parent not in state.closed
        first = len(state.tree[parent].children)
        for id in (f"{parent}.{first + k}" for k in range(count)):
            state.tree.add(Thought(id, parent, id))
            given = score(id) if pick.proposer is None else score(id, pick.proposer)
            state.tree.add(Scored(id, given, by="test"))
            if state.tree[id].depth >= depth or id in closed:
                state.closed.add(id)
            fresh.append(id)
    return fresh
