"""A* over thoughts, and the base class of searches that expand the cheapest thought first.

Each search computes the cost terms of a thought from those of its parent, and the sort key of the heap from
the terms. A complete thought ends the search when it is taken from the heap, not when it is proposed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Field

from tot_lab.core.parts import UserFunction
from tot_lab.strategies.search.frontier import Frontier
from tot_lab.strategies.search.searches import Pick, Search, Searching, SearchState, expansions_of_all

Terms: TypeAlias = dict[str, float]
"""The terms of the cost of a thought, by name. They are recorded with the choice."""


class CheapestFirst(Search):
    """Expands the cheapest thought of the whole frontier first. The answer is the first complete thought that
    is the cheapest of the frontier. Of equal keys, the older thought comes first.

    A thought counts as complete if it cannot be expanded and the domain does not call its path incomplete.
    """

    kind: ClassVar[str] = ""

    def run(self, state: SearchState) -> Searching:
        frontier = state.remember(Cheapest(self, state))
        best = state.root
        while best not in state.closed:
            children = yield Pick([best], why={best: frontier.terms[best]})
            frontier.add(best, children)
            if not frontier:
                return None
            best = frontier.pop()
        return best

    def terms_of_root(self) -> Terms:
        """The terms of the thought that the search starts from."""
        raise NotImplementedError(f"the search {self.kind!r} does not define `terms_of_root`")

    def terms(self, state: SearchState, above: Terms, siblings: Sequence[str]) -> dict[str, Terms]:
        """The terms of `siblings`, whose parent has the terms `above`. A sibling that is missing from the
        result is never expanded."""
        raise NotImplementedError(f"the search {self.kind!r} does not define `terms`")

    def key(self, terms: Terms) -> Any:
        """The sort key of a thought with these terms."""
        raise NotImplementedError(f"the search {self.kind!r} does not define `key`")

    def max_expansions(self, branch: int, depth: int) -> int:
        return expansions_of_all(branch, depth)


class Cheapest(Frontier):
    """The thoughts that wait to be expanded, and the cost terms of all thoughts.

    Attributes:
        terms: The cost terms by id, also of thoughts already expanded.
        families: The children of each expanded thought.
        waiting: The thoughts that were not expanded yet, without dead ends.
    """

    def __init__(self, search: CheapestFirst, state: SearchState) -> None:
        super().__init__(lambda id: (search.key(self.terms[id]), state.tree[id].order))
        self.search = search
        self.state = state
        self.terms = {state.root: search.terms_of_root()}
        self.families: dict[str, list[str]] = {}
        self.waiting: dict[str, None] = {}

    def add(self, expanded: str, children: Iterable[str]) -> None:
        """Add new thoughts: the children of `expanded`, and those that a person added elsewhere."""
        families: dict[str, list[str]] = {expanded: []}
        for id in children:
            families.setdefault(self.state.tree[id].parent or self.state.root, []).append(id)
        for parent, family in families.items():
            self.families.setdefault(parent, []).extend(family)
            self.waiting.update((id, None) for id in family if not is_dead_end(self.state, id))
        if len(families) > 1:
            self.refresh()
            return
        self.terms.update(self.search.terms(self.state, self.terms[expanded], self.families[expanded]))
        for id in families[expanded]:
            if id in self.waiting and id in self.terms:
                self.push(id)

    def pop(self) -> str:
        """Remove and return the cheapest thought."""
        id = super().pop()
        del self.waiting[id]
        return id

    def refresh(self) -> None:
        """Compute the terms of all thoughts again."""
        self.terms = {self.state.root: self.search.terms_of_root()}
        for parent, family in self.families.items():
            if parent in self.terms:
                self.terms.update(self.search.terms(self.state, self.terms[parent], family))
        self.reorder(id for id in self.waiting if id in self.terms)

    def rescored(self, id: str, old: float) -> None:
        """Compute all terms again, since a thought has a new score."""
        self.refresh()


class AStar(CheapestFirst):
    """Expands the thought with the smallest f = g + weight · h: cost so far, and estimated cost to the end.

    The search ends when a complete thought has the smallest f; this thought is the answer. It is the cheapest
    if h never overestimates, and at most `weight` times as expensive as the cheapest if `weight` is above 1.
    These guarantees need `stop=Stop(solved=None)`, because otherwise the first thought with score 1 ends the
    search, and `merge=False`, because merging keeps the first path to a state and not the cheapest. h is 0
    for a thought that cannot be expanded. Of equal f, the smaller h comes first, then the older thought.

    With the default settings, A* is uniform-cost search.

    References:
        Hart, Nilsson & Raphael 1968 (A*); Pohl 1970 (weight); Zhuang et al. 2024, ToolChain*,
        arXiv:2310.13227, section 3 (a step costs 1 minus its score).
    """

    kind: ClassVar[str] = "a_star"

    cost: Literal["score", "steps"] | UserFunction = "score"
    """The cost g of a path. With `score`, each step costs 1 minus its score, and 1 if the score is
    unreadable. With `steps`, each step costs 1. A function `(task, path) -> number` returns the cost of the
    whole path, which must not decrease when a step is added.
    """

    heuristic: Literal["zero", "score"] | UserFunction = "zero"
    """The estimated cost h from a thought to the end. With `score`, it is 1 minus the score of the thought,
    which never overestimates if `cost="steps"`. A function `(task, path) -> number` may return infinity for a
    dead end.
    """

    weight: Annotated[float, Field(ge=0)] = 1.0
    """Weight of h. 0 is uniform-cost search. Above 1, the search is greedier and expands fewer thoughts."""

    def terms_of_root(self) -> Terms:
        return {"f": 0.0, "g": 0.0, "h": 0.0}

    def terms(self, state: SearchState, above: Terms, siblings: Sequence[str]) -> dict[str, Terms]:
        found: dict[str, Terms] = {}
        for id in siblings:
            doubt = 1.0 - max(state.tree[id].rank, 0.0)
            if isinstance(self.cost, UserFunction):
                g = number_of(self.cost, state, id)
            else:
                g = above["g"] + (doubt if self.cost == "score" else 1.0)
            if id in state.closed or self.heuristic == "zero":
                h = 0.0
            else:
                h = doubt if self.heuristic == "score" else number_of(self.heuristic, state, id)
            if max(g, h) < float("inf"):
                found[id] = {"f": g + self.weight * h, "g": g, "h": h}
        return found

    def key(self, terms: Terms) -> Any:
        return terms["f"], terms["h"]


def is_dead_end(state: SearchState, id: str) -> bool:
    """Whether a thought cannot be expanded although the domain calls its path incomplete."""
    return id in state.closed and state.complete(id) is False


def number_of(function: UserFunction, state: SearchState, id: str) -> float:
    """The number that a function `(task, path) -> number` returns for the path of a thought.

    Raises:
        ValueError: If the result is not a number, is below 0, or is NaN.
    """
    given = function(state.task.without_steps(), state.tree.texts(id))
    if isinstance(given, bool) or not isinstance(given, int | float) or not given >= 0:
        raise ValueError(
            f"function {function.name!r} must return a number of at least 0: got {given!r} for thought {id}."
        )
    return float(given)
