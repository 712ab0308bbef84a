"""Traversals: which thoughts to expand next.

Rule: a traversal is a small value; `start()` gives a `pick(tree, fresh)` that holds the run's own
heap or stack, since a pure function of the whole tree would make a search quadratic. `pick` is
told the thoughts that have come since it last chose and names those to expand next (none = stop)
and those it trims. It runs after the join, on scores that are all there, so its choices cannot
depend on which reply came first.

One setting of the search, `width`, means for each the thing it is there to bound: a level (beam),
the frontier after each expansion (best-first), a group of siblings (depth-first, mcts).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import Field

from tot_lab.core.parts import Part, UserFunction
from tot_lab.core.tree import Tree


class Picked(NamedTuple):
    """expand: ids to expand next, in order. prune: (id, rule) of the thoughts that leave the search."""

    expand: list[str]
    prune: list[tuple[str, str]]


Pick = Callable[[Tree, Sequence[str]], Picked]


class Traversal(Part):
    """Names the thoughts to expand next. Closed thoughts (`tree.closed`) are never expanded. A
    function of a person's own may stand for one; see `traversal`."""

    kind: ClassVar[str] = ""

    @classmethod
    def _short_form(cls, value: Any) -> Any:
        own = callable(value) and not isinstance(value, type | Part)
        return traversal(value) if own and cls is Traversal else super()._short_form(value)

    def start(self, width: int | None) -> Pick:
        """A `pick` for one run."""
        raise NotImplementedError

    def most_expansions(self, branch: int, width: int | None, depth: int) -> int:
        """The most thoughts it can expand in a tree of `depth` levels with `branch` children each."""
        return sum(branch**level for level in range(depth))

    def most_rounds(self, branch: int, width: int | None, depth: int) -> int:
        """The most times it can be asked to pick."""
        return self.most_expansions(branch, width, depth)


def ranked(tree: Tree, ids: Iterable[str]) -> list[str]:
    """`ids` by score, best first; of equals, the one given first (Yao et al. 2023 sort likewise)."""
    return sorted(ids, key=lambda id: -tree[id].rank)


def _split(ids: list[str], width: int | None, rule: str) -> tuple[list[str], list[tuple[str, str]]]:
    kept = ids if width is None else ids[:width]
    return kept, [(id, rule) for id in ids[len(kept) :]]


class Beam(Traversal):
    """Level by level, the best `width` of each (Yao et al. 2023, Algorithm 1: ToT-BFS)."""

    aliases: ClassVar[tuple[str, ...]] = ("bfs",)

    def start(self, width: int | None) -> Pick:
        def pick(tree: Tree, fresh: Sequence[str]) -> Picked:
            kept, pruned = _split(ranked(tree, fresh), width, "beam")
            return Picked([id for id in kept if id not in tree.closed], pruned)

        return pick

    def most_expansions(self, branch: int, width: int | None, depth: int) -> int:
        if width is None:
            return super().most_expansions(branch, width, depth)
        total, level = 0, 1
        for _ in range(depth):
            total += level
            level = min(width, level * branch)
        return total

    def most_rounds(self, branch: int, width: int | None, depth: int) -> int:
        return depth


class DepthFirst(Traversal):
    """Deepest first, siblings in score order, with backtracking (Yao et al. 2023, Algorithm 2:
    ToT-DFS).

    prune_below: a thought scored under it is not entered when its turn comes (the paper's
        v_thres), 0–1.
    """

    aliases: ClassVar[tuple[str, ...]] = ("dfs",)
    prune_below: Annotated[float, Field(ge=0, le=1)] = 0.0

    def start(self, width: int | None) -> Pick:
        stack: list[str] = []

        def pick(tree: Tree, fresh: Sequence[str]) -> Picked:
            kept, pruned = _split(ranked(tree, fresh), width, "beam")
            stack.extend(reversed(kept))
            while stack:
                id = stack.pop()
                score = tree[id].score
                if score is not None and score < self.prune_below:
                    pruned.append((id, "prune_below"))
                elif id not in tree.closed:
                    return Picked([id], pruned)
            return Picked([], pruned)

        return pick

    def most_expansions(self, branch: int, width: int | None, depth: int) -> int:
        return super().most_expansions(min(branch, width or branch), width, depth)


class BestFirst(Traversal):
    """The best-scored thoughts of the whole frontier first; of equals the deeper, then the older.

    batch: how many to expand at once. More is faster and a little less greedy.
    """

    batch: Annotated[int, Field(ge=1)] = 1

    def start(self, width: int | None) -> Pick:
        heap: list[tuple[float, int, int, str]] = []

        def pick(tree: Tree, fresh: Sequence[str]) -> Picked:
            for id in fresh:
                node = tree[id]
                if id not in tree.closed:
                    heapq.heappush(heap, (-node.rank, -node.depth, node.order, id))
            pruned: list[tuple[str, str]] = []
            if width is not None and len(heap) > width:
                heap.sort()
                pruned = [(entry[-1], "beam") for entry in heap[width:]]
                del heap[width:]
            return Picked([heapq.heappop(heap)[-1] for _ in range(min(self.batch, len(heap)))], pruned)

        return pick


class MonteCarloTreeSearch(Traversal):
    """UCT over thoughts: descend by mean score plus exploration, expand a leaf, back its
    children's scores up (Kocsis & Szepesvári 2006; a thought's score stands for the rollout, as
    in LATS, Zhou et al. 2023).

    exploration: UCT's constant. batch: the most leaves to expand at once, kept apart by a virtual
        loss; fewer when the descent leads to one of them again.
    iterations: picks after which the search ends, None = until nothing is left to expand.
    """

    kind: ClassVar[str] = "mcts"
    exploration: Annotated[float, Field(ge=0)] = math.sqrt(2)
    batch: Annotated[int, Field(ge=1)] = 1
    iterations: Annotated[int, Field(ge=1)] | None = None

    def start(self, width: int | None) -> Pick:
        visits: dict[str, int] = {}
        totals: dict[str, float] = {}
        children: dict[str, list[str]] = {}  # what is still open below an expanded thought
        turns = 0

        def path(tree: Tree, id: str) -> list[str]:
            return [node.id for node in reversed(tree.path(id))]

        def exhaust(tree: Tree, id: str) -> None:
            """Take a thought that has nothing left below it out of the descent, and its parents
            as they run empty in turn."""
            parent = tree[id].parent
            while parent is not None and id in children.get(parent, ()):
                children[parent].remove(id)
                if children[parent]:
                    break
                id, parent = parent, tree[parent].parent

        def descend(tree: Tree, root: str) -> str | None:
            id = root
            while id in children:
                if not children[id]:
                    return None
                logarithm = math.log(max(visits[id], 1))

                def uct(child: str, logarithm: float = logarithm) -> float:
                    seen = visits[child]
                    return totals[child] / seen + self.exploration * math.sqrt(logarithm / seen)

                id = max(children[id], key=uct)  # max takes the first of equals
            return id

        waiting: list[str] = []

        def pick(tree: Tree, fresh: Sequence[str]) -> Picked:
            nonlocal turns
            root = tree.roots[0]
            groups: dict[str, list[str]] = {id: [] for id in waiting or [root]}
            for id in fresh:
                groups[tree[id].parent or root].append(id)
            waiting.clear()
            pruned: list[tuple[str, str]] = []
            for parent, siblings in groups.items():
                kept, trimmed = _split(ranked(tree, siblings), width, "beam")
                pruned += trimmed
                children[parent] = [id for id in kept if id not in tree.closed]
                for id in (id for id in tree[parent].children if tree[id].by or id in kept):
                    value = max(tree[id].rank, 0.0)
                    visits[id], totals[id] = 1, value
                    for above in path(tree, parent):
                        visits[above] = visits.get(above, 0) + 1
                        totals[above] = totals.get(above, 0.0) + value
                if not children[parent]:
                    exhaust(tree, parent)
            turns += 1
            if self.iterations is not None and turns > self.iterations:
                return Picked([], pruned)
            lost: list[str] = []
            for _ in range(self.batch):
                leaf = descend(tree, root)
                if leaf is None or leaf in waiting:
                    break
                waiting.append(leaf)
                for id in path(tree, leaf):  # a virtual loss: a visit that brought nothing
                    visits[id] += 1
                    lost.append(id)
            for id in lost:
                visits[id] -= 1
            return Picked(list(waiting), pruned)

        return pick

    def most_expansions(self, branch: int, width: int | None, depth: int) -> int:
        most = super().most_expansions(min(branch, width or branch), width, depth)
        return most if self.iterations is None else min(most, 1 + self.iterations * self.batch)


class FunctionTraversal(Traversal):
    """A person's own traversal; see `traversal`."""

    function: UserFunction

    def start(self, width: int | None) -> Pick:
        frontier: dict[str, None] = {}

        def pick(tree: Tree, fresh: Sequence[str]) -> Picked:
            frontier.update(dict.fromkeys(id for id in fresh if id not in tree.closed))
            named = self.function(tree, list(frontier)) if frontier else []
            if isinstance(named, str) or not isinstance(named, Sequence):
                raise TypeError(f"traversal {self.function.name!r} must return a list of ids, not {named!r}")
            named = list(named)
            for id in named:
                if not isinstance(id, str) or id not in frontier:
                    raise ValueError(
                        f"traversal {self.function.name!r} named {id!r}, which is not in the frontier"
                    )
                del frontier[id]
            if width is None or len(frontier) <= width:
                return Picked(named, [])
            _, pruned = _split(ranked(tree, frontier), width, "beam")
            for id, _ in pruned:
                del frontier[id]
            return Picked(named, pruned)

        return pick


def traversal(function: Callable[[Tree, list[str]], Sequence[str]]) -> FunctionTraversal:
    """Makes a traversal of one function `(tree, frontier) -> ids to expand next` (none = stop).
    `frontier` lists the thoughts that may be expanded, oldest first; those not named stay in it."""
    checked: Any = function
    return FunctionTraversal(function=checked)
