"""Language agent tree search: trajectories to the end, rewards backed up, and reflections on failures."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Field

from tot_lab.core.protocol import ProcedureStep
from tot_lab.core.records import call_failed
from tot_lab.strategies.search.sampling import Count
from tot_lab.strategies.search.searches import (
    LIMIT_OF_ITERATIONS,
    Pick,
    Search,
    Searching,
    SearchState,
    expansions_of_all,
)
from tot_lab.strategies.search.statistics import Statistics

SOLVED = 1.0
"""The reward of a success. A lower reward is a failure."""


class Trajectories(Statistics):
    """The values of thoughts: the score of each, and the rewards of the trajectories through it.

    Attributes:
        rewards: The rewards of finished paths, by the id of the last thought.
    """

    def __init__(self, state: SearchState) -> None:
        super().__init__(state)
        self.rewards: dict[str, float] = {}

    def reward(self, id: str, reward: float) -> None:
        """Add a reward to the totals of all thoughts on the path to `id`. Their visits were counted by the
        descent."""
        for node in self.state.tree.path(id):
            self.totals[node.id] = self.totals.get(node.id, 0.0) + reward

    def rescored(self, id: str, old: float) -> None:
        """Replace the value of a thought, and the reward of a path that ends with it."""
        if id in self.totals:
            self.totals[id] += max(self.state.tree[id].rank, 0.0) - max(old, 0.0)
        if id in self.rewards:
            reward = reward_of(self.state, id)
            self.reward(id, reward - self.rewards[id])
            self.rewards[id] = reward


class LATS(Search):
    """Follow UCT from the root to the end of a path, expanding on the way, and back up the reward of the
    path. After a failure, which is a reward below 1, ask for a reflection that all later prompts show.

    The value of a thought is the mean of its score and the rewards of the trajectories through it. The
    reward is the score of the last thought, by the domain or the evaluator: 0 if it is unreadable, or if the
    domain says that the path is incomplete. A finished path is not followed again. With
    `propose=tl.WithTools()`, the model calls tools before it states a thought.

    The published code differs: where a child is finished, values are assigned to the wrong siblings, and UCT
    divides mean values by the visits once more.

    References:
        Zhou et al. 2023, Language Agent Tree Search, arXiv:2310.04406, section 4. The algorithm follows the
        authors' code and summaries of the paper.
    """

    kind: ClassVar[str] = "lats"
    scale: ClassVar[str] = "iterations"

    exploration: Annotated[float, Field(ge=0)] = 1.0
    """The exploration weight of UCT."""

    iterations: Count = 10
    """The most trajectories."""

    reflections: Annotated[int, Field(ge=0)] = 3
    """The most reflections. Each is one call."""

    def run(self, state: SearchState) -> Searching:
        statistics, lessons = state.remember(Trajectories(state)), list[str]()
        asked, why = 0, dict[str, dict[str, Any]]()  # `why`: the choices since the last pick
        for _ in range(self.iterations):
            id = state.root
            statistics.visits[id] = statistics.visits.get(id, 0) + 1
            while id not in state.closed:
                if id not in statistics.open:
                    children = yield Pick([id], why=why or None, context=as_context(lessons))
                    why = {}
                    expand(state, statistics, id, children)
                if not followable(state, statistics, id):
                    break
                id, terms = statistics.best(id, self.exploration)
                why[id] = terms
                statistics.visits[id] += 1
            reward = reward_of(state, id)
            statistics.reward(id, reward)
            statistics.exhaust(id)
            if id in state.closed:
                statistics.rewards[id] = reward
                if reward < SOLVED and asked < self.reflections:
                    asked += 1
                    lessons += yield from reflect(state, id, reward)
            if not statistics.open[state.root]:
                return None
        return LIMIT_OF_ITERATIONS

    def max_expansions(self, branch: int, depth: int) -> int:
        return min(self.iterations * depth, expansions_of_all(branch, depth))

    def max_own_calls(self, branch: int, depth: int) -> int:
        return min(self.reflections, self.iterations)


def expand(state: SearchState, statistics: Statistics, parent: str, children: Sequence[str]) -> None:
    """Add new thoughts: the first value of each is its score, and each is open for selection."""
    statistics.open[parent] = []
    families: dict[str, list[str]] = {}
    for id in children:
        statistics.visits[id], statistics.totals[id] = 1, max(state.tree[id].rank, 0.0)
        families.setdefault(state.tree[id].parent or state.root, []).append(id)
    for above, family in families.items():
        statistics.open_below(above, family)


def followable(state: SearchState, statistics: Statistics, id: str) -> list[str]:
    """The children of a thought that can still be followed: neither exhausted nor pruned."""
    left = [child for child in statistics.open[id] if state.tree[child].state != "pruned"]
    statistics.open[id] = left
    return left


def reward_of(state: SearchState, id: str) -> float:
    """The reward of the path that ends with `id`: its score, or 0 if the path is unfinished or incomplete."""
    if id not in state.closed or state.complete(id) is False:
        return 0.0
    return max(state.tree[id].rank, 0.0)


def reflect(state: SearchState, id: str, reward: float) -> Generator[ProcedureStep, Any, list[str]]:
    """Ask what went wrong on the path to `id`. Returns the reflection in a list, empty if the call failed."""
    domain, path = state.task.domain, state.tree.texts(id)
    prompt = (
        f"{domain.statement(state.task)}\n\nThis attempt failed, with a reward of {reward:.2g} out of 1:\n"
        f"{domain.steps(path)}\n\nIn a few sentences, say where it went wrong, and what the next attempt "
        f"must do differently."
    )
    reply = yield state.call(id, "reflect", prompt)
    if reply.error is None:
        return [reply.text]
    yield call_failed(id, "reflect", reply.error)
    return []


def as_context(lessons: Sequence[str]) -> list[str]:
    """The prompt section that lists the reflections so far, in a list. Empty if there are none."""
    listed = "\n".join(f"{k}. {text}" for k, text in enumerate(lessons, 1))
    return [f"Earlier attempts at this very task failed. Reflections on them:\n{listed}"] if lessons else []
