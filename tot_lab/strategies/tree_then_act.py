"""Two-phase tree of thought: plan by search, then act on the plan.

    plan    level by level: thoughts are grown, scored against their siblings, and weak ones pruned
    relax   once, if a whole level is below `min_score`: the limit is lowered
    stop    at the depth limit, with nothing left, or (optionally) without improvement
    act     a tool-using strategy that is shown the best path

No tool is called in the first phase, although thoughts may mention tools. The thoughts of the acting strategy
are below the last thought of the best path, so both phases form one tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from tot_lab.core.calls import halts
from tot_lab.core.protocol import Procedure, SampleCounter, Samples
from tot_lab.core.records import Decided, Event, Note, Scored, Thought, parent_of
from tot_lab.core.strategy import Prompting, Strategy
from tot_lab.core.task import Answer, Task
from tot_lab.core.tree import Tree
from tot_lab.strategies.react import ReAct
from tot_lab.strategies.search.evaluators import Evaluator, Joint, Value
from tot_lab.strategies.search.expansion import expand
from tot_lab.strategies.search.proposers import Propose, Proposer, WithTools, score
from tot_lab.strategies.search.sampling import Expansion, Sampler, Unit, emit_as_list, error_in
from tot_lab.strategies.search.tree_of_thoughts import calls_per_expansion, closing_note

RELIEF = 0.15
"""How much `min_score` is lowered if a whole level is below it."""

LEAST = 0.15
"""The lowest value that `min_score` is lowered to."""


class TreeThenAct(Prompting):
    """Plan by a breadth-first search over thoughts, then act on the best path.

    Best for open-ended work with tools, where a wrong start is expensive. Trade-off: the most calls of all
    strategies, before anything is done. Calls: 2 for each expanded thought (its children, their scores), of
    which there are at most 1 + count · (max_depth − 1), one more for each child whose joint score cannot be
    read, and those of `strategy`.

    References:
        reactive-agents-ts (github.com/tylerjrbuell/reactive-agents-ts), strategy `tree-of-thought`. Its
        `breadth` is `propose.count`, its `depth` is `max_depth`, and its `pruning_threshold` is `min_score`.
        Its names are accepted too.
    """

    kind = "tree_then_act"
    aliases: ClassVar[tuple[str, ...]] = ("tree-of-thought",)
    setting_aliases: ClassVar[Mapping[str, str]] = {
        "breadth": "propose.count",
        "depth": "max_depth",
        "pruning_threshold": "min_score",
    }

    propose: Proposer = Propose()
    """How thoughts are made. Its `count` is also the number of thoughts kept per level. `WithTools` is not
    accepted."""

    evaluate: Evaluator = Joint()
    """How thoughts are scored. `Joint` scores all children of a thought in one call; children without a
    readable score are then scored one by one.
    """

    max_depth: Annotated[int, Field(ge=1, le=1000)] = 3
    """Levels of the tree."""

    min_score: Unit = 0.5
    """A thought with a lower score is pruned. If that applies to a whole level, the limit is lowered by 0.15,
    but not below 0.15, once per search.
    """

    min_score_improvement: Unit | None = None
    """Planning ends at a level whose best score exceeds that of the previous level by less than this;
    reactive-agents-ts uses 0.05. `None` disables the rule.
    """

    parallel: bool = True
    """Whether calls that do not depend on each other are made concurrently."""

    strategy: Strategy = ReAct()
    """The strategy that acts. The best path is added to the context of its task."""

    @field_validator("propose")
    @classmethod
    def _calls_no_tools(cls, propose: Proposer) -> Proposer:
        if isinstance(propose, WithTools):
            raise ValueError("propose must not call tools: got WithTools. Give the tools to `strategy`.")
        return propose

    @field_validator("evaluate")
    @classmethod
    def _compares_no_levels(cls, evaluate: Evaluator) -> Evaluator:
        if evaluate.compares == "pick":
            raise ValueError(
                f"evaluate must not compare thoughts of different parents: got {evaluate.kind!r}. Joint "
                "compares siblings, and Value scores each thought alone."
            )
        return evaluate

    @property
    def breadth(self) -> int:
        """Children per thought, and thoughts kept per level."""
        return self.propose.max_children()

    def think(self, task: Task, at: str = "0") -> Procedure[Answer]:
        tree = Tree(task.steps)
        tree.add(Thought(at, None, task.question))
        yield Thought(at, parent_of(at), task.question)
        limits = {
            "branch_factor": self.breadth,
            "beam_width": self.breadth,
            "max_depth": self.max_depth,
        }
        yield Note("tot.started", at, limits)
        stop = yield from self._plan(_grounded(task), tree, at)
        best = self._best(tree, at)
        yield closing_note(at, best, tree[best].score, len(tree))
        planned = {"steps": tree[best].depth, "score": tree[best].score, "stop": stop}
        yield Note("tree.planned", best, planned)
        plan = tree.texts(best)
        if halts(stop):
            text = task.domain.answer(task, plan)
            return Answer(text or "", stop, best if text else None, tree[best].score if text else None)
        # The children of `best` have numbers below `breadth`, so this id is not used yet.
        guided = f"A plan, found by comparing several:\n{task.domain.steps(plan)}" if best != at else ""
        return (yield from self.strategy.think(task.with_context(guided), f"{best}.{self.breadth}"))

    def max_calls(self, task: Task) -> int | None:
        acting = self.strategy.max_calls(task)
        expansions = 1 + (self.max_depth - 1) * self.breadth
        return None if acting is None else expansions * self._calls_per_growth(task) + acting

    def _plan(self, task: Task, tree: Tree, at: str) -> Procedure[str]:
        """Grow the tree. Returns why planning ended: `limit:depth`, `exhausted`, `stagnated`, `error`, or the
        error of a call refused by a budget or a cancellation.
        """
        floor, relaxed = self.min_score, False
        frontier, best = [at], list[float]()
        samples: SampleCounter = yield Samples()
        sampler = Sampler(self, task, samples, self.parallel)
        for depth in range(1, self.max_depth + 1):
            yield Note("tot.picked", at, {"parents": frontier})
            growing = [self._grow(sampler, Expansion.of(tree, id)) for id in frontier]
            grown = yield from sampler.gather(growing, at_most=self._calls_per_growth(task))
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
            if refusal := next(filter(halts, errors), None):
                return refusal
            if not frontier:
                return "error" if errors and not sound else "exhausted"
            best.append(max(tree[id].rank for id in survivors))
            if 1 < depth < self.max_depth and self._stagnates(best):
                return "stagnated"
        return "limit:depth"

    def _stagnates(self, best: Sequence[float]) -> bool:
        """Whether the best score of the last level improved too little over the level before."""
        least = self.min_score_improvement
        return least is not None and round(best[-1] - best[-2], 9) < least

    def _calls_per_growth(self, task: Task) -> int:
        alone = self.breadth * self._alone.calls_per_thought(task) if self._alone else 0
        return calls_per_expansion(self.propose, self.evaluate, task, self.breadth) + alone

    @property
    def _alone(self) -> Value | None:
        """The evaluator for thoughts whose joint score could not be read. `None` if no `Joint` is set."""
        joint = self.evaluate
        if not isinstance(joint, Joint):
            return None
        return Value(samples=joint.samples, combine=joint.combine, max_parse_retries=joint.max_parse_retries)

    def _grow(self, sampler: Sampler, expansion: Expansion) -> Procedure[list[Event]]:
        """Add scored children to `expansion.node`. Children without a joint score are scored one by one."""
        growing = expand(sampler, self.propose, self.evaluate, expansion, self.breadth)
        return self._scored(sampler, expansion, growing)

    def _scored(
        self, sampler: Sampler, expansion: Expansion, growing: Procedure[list[Event]]
    ) -> Procedure[list[Event]]:
        events = yield from growing
        alone = self._alone
        if alone is None:
            return events
        unreadable = {event.id for event in events if isinstance(event, Scored) and event.score is None}
        scoring = [
            score(sampler, alone, [*expansion.path, event.text], event.id)
            for event in events
            if isinstance(event, Thought) and event.id in unreadable
        ]
        scored = yield from sampler.gather(scoring, at_most=alone.max_calls)
        return events + [event for branch in scored for event in branch]

    def _settle(self, task: Task, tree: Tree, sound: Sequence[str], kept: Sequence[str]) -> Procedure[None]:
        """Keep the best of `kept`, the thoughts of a level with a sufficient score, and prune the others."""
        survivors = sorted(kept, key=lambda id: -tree[id].rank)[: self.breadth]
        for id in sound:
            node = tree[id]
            if id in survivors:
                whole = task.domain.complete(task, tree.texts(id))
                decided = Decided(id, "complete" if whole else "kept")
            else:
                weak = "unreadable" if node.unreadable else "min_score"
                decided = Decided(id, "pruned", "beam" if id in kept else weak)
            for event in (yield from emit_as_list(decided)):
                tree.add(event)

    def _best(self, tree: Tree, at: str) -> str:
        """The end of the best path among the survivors: by score, then depth, then order. `at` if nothing
        survived.
        """
        alive = [node for node in tree if node.state in ("kept", "complete")]
        followed = {node.parent for node in alive}
        ends = [node for node in alive if node.id not in followed]
        return max(ends, key=lambda node: (node.rank, node.depth, -node.order)).id if ends else at


def _reaching(floor: float, tree: Tree, ids: Sequence[str]) -> list[str]:
    """Those of `ids` with a score of at least `floor`. A floor of 0 also keeps unreadable ones."""
    return [id for id in ids if tree[id].rank >= floor or not floor]


def _grounded(task: Task) -> Task:
    """The task of the first phase: its context lists the tools, which cannot be called yet."""
    listed = "\n".join(f"- {tool.name}: {tool.description}" for tool in task.tools)
    section = f"Tools that can be used once there is a plan, and not yet:\n{listed}" if listed else ""
    return task.with_context(section)
