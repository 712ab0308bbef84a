"""A search driven by hand on a tree of rewards, without a model and an event loop."""

from collections import Counter
from typing import NamedTuple

import tot_lab as tl
from support import TASK
from tot_lab.core.protocol import RandomNumbers
from tot_lab.core.records import Decided, Scored, Thought
from tot_lab.strategies.search.searches import SearchState


class Driven(NamedTuple):
    """What a search did.

    Attributes:
        picks: The children of each pick, by path.
        whys: The reasons of each pick, by path.
        state: Its state at the end.
    """

    picks: list
    whys: list
    state: SearchState


def path_of(id):
    return tuple(map(int, id.split(".")))[1:]


def id_of(path):
    return ".".join(map(str, (0, *path)))


def drive(search, tree, random=None, steps=None):
    """Run `search` on a `RewardTree`. `steps(path, count, first)` replaces the tree's own."""
    state = SearchState(TASK, "0", tl.TreeOfThoughts())
    state.tree.add(Thought("0", None, "root"))
    running, value, used = search.run(state), None, Counter()
    driven = Driven([], [], state)
    while True:
        try:
            step = running.send(value)
        except StopIteration:
            return driven
        value = None
        if isinstance(step, RandomNumbers):
            value = random
        elif isinstance(step, Decided):
            state.tree.add(step)
        elif isinstance(step, tl.Pick):
            if not step.parents:
                return driven
            assert not state.closed & {*step.parents}
            counts = step.count if isinstance(step.count, list) else [step.count] * len(step.parents)
            driven.picks.append({path_of(id): n for id, n in zip(step.parents, counts, strict=True)})
            driven.whys.append({path_of(id): terms for id, terms in (step.why or {}).items()})
            value = []
            for id, count in zip(step.parents, counts, strict=True):
                for path in (steps or tree.steps)(path_of(id), count, used[id]):
                    value.append(id_of(path))
                    state.tree.add(Thought(value[-1], id, str(path)))
                    reward = tree.reward(path)
                    state.tree.add(Scored(value[-1], None if reward < 0 else reward, by="test"))
                    if tree.done(path):
                        state.closed.add(value[-1])
                used[id] += count
