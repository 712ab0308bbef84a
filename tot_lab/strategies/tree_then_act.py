"""Two-phase tree of thought ("Reactive Agents", tree of thought): plan by search, then act on the plan.

    plan    level by level: thoughts are grown, scored against their siblings, the weak ones dropped
    relax   once, when a whole level is weak: the floor is lowered
    stop    deep enough, nothing left, or (where that is set) no better than the level before
    act     a tool-using loop that is shown the best path

Rule: nothing acts in the first phase. A thought may speak of the tools that there are, and none is
called; the loop hangs below the thought that it is guided by, so that both phases are one tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from tot_lab.core.calls import halts
from tot_lab.core.parts import UserFunction
from tot_lab.core.records import Decided, Event, Note, Scored, Thought, parent_of
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Answer, Path, Task
from tot_lab.core.thinking import Thinking
from tot_lab.core.tree import Tree
from tot_lab.strategies.expansion import Expansion, Unit, error_in, said
from tot_lab.strategies.react import ReAct
from tot_lab.strategies.traversals import ranked

RELIEF = 0.15
"""How much `min_score` is lowered when a whole level is below it."""

LEAST = 0.15
"""It is never lowered below this."""


class TreeThenAct(Expansion):
    """Plan by a breadth-first search over thoughts, then act on the best path.

    Best for: open-ended work with tools, where a wrong beginning is dear. Trade-off: the most calls of all,
    before anything is done. Calls: 2 for each thought that is expanded (its children, their scores), of
    which there are at most 1 + branch_factor · (max_depth − 1), one more for each child whose joint score
    cannot be read, and those of `strategy`.

    branch_factor: children per thought, and thoughts that survive a level (the design's `breadth`).
    max_depth: levels (`depth`). min_score: a thought scored below is dropped (`pruningThreshold`); when that
        is all of a level, it is lowered by 0.15, once, to 0.15 at least.
    min_score_improvement: a level whose best score is not higher than that of the level before by this much
        ends the planning; the design uses 0.05. `None` turns the rule off.
    strategy: what acts; any strategy. The best path stands in its task's context.
    evaluate: `joint` scores all children of a thought in one call, and one by one those that cannot be
        read there; the others are those of `TreeOfThoughts`.
    generate, proposal_draws, evaluation_draws, combine, max_parse_retries, proposer_prompt, evaluator_prompt:
        as in `TreeOfThoughts`.
    tools: none, for in the first phase nothing acts; the second has those of `strategy`.
    """

    kind = "tree_then_act"
    aliases: ClassVar[tuple[str, ...]] = ("tree-of-thought",)
    generate: Literal["sample", "propose"] = "propose"
    evaluate: Literal["value", "parts", "joint", "logprob"] | UserFunction = "joint"
    tools: Annotated[tuple[str, ...], Field(strict=False, max_length=0)] = ()
    max_depth: Annotated[int, Field(ge=1, le=1000)] = 3
    min_score: Unit = 0.5
    min_score_improvement: Unit | None = None
    strategy: Strategy = ReAct()

    def think(self, task: Task, at: str = "0") -> Thinking[Answer]:
        tree = Tree()
        tree.add(Thought(at, None, task.question))
        yield Thought(at, parent_of(at), task.question)
        stop = yield from self._plan(_grounded(task), tree, at)
        best = self._best(tree, at)
        plan = tree.texts(best)
        yield Note("tree.planned", best, {"steps": len(plan), "score": tree[best].score, "stop": stop})
        if halts(stop):
            text = task.domain.answer(task, plan)
            return Answer(text or "", stop, best if text else None, tree[best].score if text else None)
        # Children are numbered below branch_factor: this one is free.
        return (yield from self.strategy.think(_guided(task, plan), f"{best}.{self.branch_factor}"))

    def max_calls(self, task: Task) -> int | None:
        acting = self.strategy.max_calls(task)
        expansions = 1 + (self.max_depth - 1) * self.branch_factor
        return None if acting is None else expansions * self._calls_per_growth(task) + acting

    def _plan(self, task: Task, tree: Tree, at: str) -> Thinking[str]:
        """Grow the tree. Returns why it was left: `limit:depth`, `exhausted`, `stagnated`, `error`, or how a
        call was refused."""
        floor, relaxed = self.min_score, False
        frontier, best = [at], list[float]()
        for depth in range(1, self.max_depth + 1):
            yield Note("tot.level_started", at, {"depth": depth, "frontier_size": len(frontier)})
            growing = [self._grow(task, tree.texts(id), id) for id in frontier]
            grown = yield from self._all(growing, at_most=self._calls_per_growth(task))
            events = [event for branch in grown for event in branch]
            for event in events:
                tree.add(event)
            errors = [error for event in events if (error := error_in(event)) is not None]
            fresh = [event.id for event in events if isinstance(event, Thought)]
            sound = [id for id in fresh if tree[id].state not in ("failed", "duplicate")]
            kept = _reaching(floor, tree, sound)
            if sound and not kept and not relaxed and floor > LEAST:
                floor, relaxed = max(round(floor - RELIEF, 9), LEAST), True
                yield Note("tree.threshold_lowered", at, {"depth": depth, "min_score": floor})
                kept = _reaching(floor, tree, sound)
            yield from self._settle(task, tree, sound, kept)
            survivors = [id for id in sound if tree[id].state in ("kept", "complete")]
            frontier = [id for id in survivors if tree[id].state == "kept"]
            yield Note(
                "tot.pruned",
                at,
                {
                    "depth": depth,
                    "kept": survivors,
                    "kept_scores": [tree[id].score for id in survivors],
                    "pruned_below_floor": len(sound) - len(kept),
                },
            )
            if refusal := next(filter(halts, errors), None):
                return refusal
            if not frontier:
                return "error" if errors and not sound else "exhausted"
            best.append(max(tree[id].rank for id in survivors))
            if 1 < depth < self.max_depth and self._stagnates(best):
                return "stagnated"
        return "limit:depth"

    def _stagnates(self, best: Sequence[float]) -> bool:
        """Whether the last of these best scores, by level, is not higher than the one before by enough."""
        least = self.min_score_improvement
        return least is not None and round(best[-1] - best[-2], 9) < least

    def _calls_per_growth(self, task: Task) -> int:
        alone = self.branch_factor * self.calls_per_evaluation if self.evaluate == "joint" else 0
        return self.calls_per_expansion(task) + alone

    def _grow(self, task: Task, path: Path, parent: str) -> Thinking[list[Event]]:
        """Children of `parent` with their scores; those that the joint reply does not state, one by one."""
        events = yield from self.expand(task, path, parent, self.branch_factor)
        if self.evaluate != "joint":
            return events
        unread = {event.id for event in events if isinstance(event, Scored) and event.score is None}
        alone = self.model_copy(update={"evaluate": "value", "evaluator_prompt": None})
        scoring = [
            alone._score(task, [*path, event.text], event.id)
            for event in events
            if isinstance(event, Thought) and event.id in unread
        ]
        scored = yield from self._all(scoring, at_most=self.calls_per_evaluation)
        return events + [event for branch in scored for event in branch]

    def _settle(self, task: Task, tree: Tree, sound: Sequence[str], kept: Sequence[str]) -> Thinking[None]:
        """Decide about each thought of a level: as many as are wide enough survive, the best of them."""
        survivors = ranked(tree, kept)[: self.branch_factor]
        for id in sound:
            node = tree[id]
            if id in survivors:
                whole = task.domain.complete(task, tree.texts(id))
                decided = Decided(id, "complete" if whole else "kept")
            else:
                weak = "unread" if node.unread else "min_score"
                decided = Decided(id, "pruned", "beam" if id in kept else weak)
            for event in (yield from said(decided)):
                tree.add(event)

    def _best(self, tree: Tree, at: str) -> str:
        """The thought that the best path ends in: of those that no survivor follows the best scored, of
        equals the deepest, then the first; `at` when nothing survived."""
        alive = [node for node in tree if node.state in ("kept", "complete")]
        followed = {node.parent for node in alive}
        ends = [node for node in alive if node.id not in followed]
        return max(ends, key=lambda node: (node.rank, node.depth, -node.order)).id if ends else at


def _reaching(floor: float, tree: Tree, ids: Sequence[str]) -> list[str]:
    """Those of `ids` that are scored as high; at 0 the unread ones too."""
    return [id for id in ids if tree[id].rank >= floor or not floor]


def _grounded(task: Task) -> Task:
    """The task as thoughts are asked for: they know what tools there are."""
    listed = "\n".join(f"- {tool.name}: {tool.description}" for tool in task.tools)
    told = f"Tools that can be used once there is a plan, and not yet:\n{listed}" if listed else ""
    return _with(task, told)


def _guided(task: Task, plan: Path) -> Task:
    """The task as what acts is given it."""
    return _with(task, f"A plan, found by comparing several:\n{task.domain.steps(plan)}" if plan else "")


def _with(task: Task, told: str) -> Task:
    return task.model_copy(update={"context": "\n\n".join(filter(None, [task.context, told]))})
