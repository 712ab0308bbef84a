"""The component of a search that caused the failure of a run.

A thought is labelled as solvable or not by the domain (`Domain.solvable`), by the grade of the answer that a
finished path states, or by a person's mark.

The first of these rules that applies determines the blame:

- A right answer was found and not pruned: the answer rule is to blame.
- A budget, the cap on thoughts or a person ended the run before it had expanded every thought that was not
pruned and could still lead to a correct answer: the run was cut short.
- Right answers were found, and all of them were pruned: the evaluator is to blame.
- Otherwise the blame follows from what became of the children of the deepest thoughts that could still lead
to a correct answer and were not pruned. In a beam search, these are on the last level with such a thought.
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

from tot_lab.analysis.frames import calls_of
from tot_lab.analysis.known import Known, can_be_asked, judged
from tot_lab.core.purposes import role_of
from tot_lab.core.tree import Node
from tot_lab.record.run import Run

Blame: TypeAlias = Literal[
    "answerer", "evaluator", "search", "proposer", "cut short", "person", "unsolvable", "unknown"
]
BLAMES: tuple[Blame, ...] = (
    "answerer",
    "evaluator",
    "search",
    "proposer",
    "cut short",
    "person",
    "unsolvable",
    "unknown",
)

_PROPOSES = ("propose", "answer")  # roles of calls that request thoughts


class Blamed(NamedTuple):
    """The component to blame for a failed run, the depth at which the run was lost, and the thoughts there.

    `on` is `None` if the run did not fail.
    """

    on: Blame | None
    depth: int | None = None
    nodes: tuple[str, ...] = ()


def labels_of(run: Run) -> dict[str, bool]:
    """Return, by thought id, whether a correct answer can still be reached from the thought.

    Thoughts for which this is unknown are left out. The dict is empty if the run has not ended, or waits for
    grading.
    """
    facts = Labels(run, asking=can_be_asked(run))
    if not facts.asking or run.stop_reason is None:
        return {}
    return {id: can for id, (can, _) in facts.labels.items()} | dict.fromkeys(facts.right_leaves, True)


def right_not_chosen(run: Run) -> list[str]:
    """Return the ids of the leaves that hold a right answer.

    Empty unless the run ended with a wrong answer or with none, and empty while it waits for grading.
    """
    facts = Labels(run, asking=can_be_asked(run))
    return facts.right_leaves if facts.asking and facts.failed else []


class Labels(Known):
    """Labels of the thoughts of one run, and the component of the search to blame if it failed."""

    @cached_property
    def labels(self) -> dict[str, tuple[bool, str]]:
        """By thought id: whether a correct answer can be reached from the thought, and the source of this
        label (`grade`, `domain` or `mark`)."""
        graded = {id: (grade == 1.0, "grade") for id, grade in self.finished.items()}
        known = {id: (can, "domain") for id, can in self.solvable.items()}
        marked = {
            id: (mark.verdict == "right", "mark")
            for id, mark in self.run.marks.items()
            if mark.verdict is not None
        }
        return marked | graded | known

    def good(self, id: str) -> bool:
        return self.labels.get(id, (False, ""))[0]

    @cached_property
    def failed(self) -> bool | None:
        """Whether the run ended without a correct answer. Without ground truth, a person's mark of the answer
        decides. `None` if the run has not ended, if it has a `failure` (such as an exception or a failed
        call that ended it), or if nothing tells whether its answer is correct."""
        run = self.run
        if run.stop_reason is None or run.failure is not None:
            return None
        if run.correct is not None:
            return not run.correct
        verdict = run.marks[run.best.id].verdict if run.best and run.best.id in run.marks else None
        return verdict == "wrong" if verdict else None if run.answer else True

    def blame(self) -> Blamed:
        """The component of the search to blame for a failed run."""
        right = [self.run.tree[id] for id in self.right_leaves]
        stayed = [node for node in right if node.state != "pruned" or not judged(node)]
        if stayed:
            return Blamed("answerer", stayed[0].depth, tuple(node.id for node in stayed))
        good = [node for node in self.run.tree if self.good(node.id)]
        if not good and not right:
            hopeless = self.labels.get(self.run.tree.root.id) == (False, "domain")
            return Blamed("unsolvable", 0) if hopeless else Blamed("unknown")
        alive = [node for node in good if node.state not in ("pruned", "duplicate", "merged")]
        waiting = [
            node
            for node in alive
            if node.state != "failed" and not node.children and node.id not in self._judged
        ]
        if waiting and _interrupted(self.run.stop_reason or ""):
            nodes = tuple(node.id for node in waiting)
            return Blamed("cut short", 1 + max(node.depth for node in waiting), nodes)
        if right:
            return Blamed("evaluator", right[0].depth, tuple(node.id for node in right))
        deepest = max((node.depth for node in alive), default=None)
        if deepest is None:
            return Blamed("evaluator", min(node.depth for node in good), tuple(node.id for node in good))
        return self._lost_below([node for node in alive if node.depth == deepest])

    def _lost_below(self, ends: list[Node]) -> Blamed:
        """Return the blame that follows from the children of `ends`: the deepest thoughts that were not
        pruned and could still lead to a correct answer. A good thought into which a child was merged is added
        to `ends`.
        """
        tree = self.run.tree
        seen = {node.id for node in ends}
        children: list[Node] = []
        for end in ends:
            for child in (tree[id] for id in end.children):
                twin = tree[child.merged] if child.state == "merged" and child.merged else child
                if twin is not child and self.good(twin.id) and twin.state != "pruned":
                    if twin.id not in seen:  # the merged child continues at this thought
                        seen.add(twin.id)
                        ends.append(twin)
                elif twin.state != "duplicate":
                    children.append(twin)
        depth = max(node.depth for node in ends) + 1
        pruned = tuple(dict.fromkeys(child.id for child in children if self.good(child.id)))
        if pruned:
            return Blamed("evaluator", depth, pruned)
        waiting = tuple(end.id for end in ends if not end.children and end.id not in self._judged)
        if waiting:
            best = self.run.best
            deceived = self.run.stop_reason == "solved" and best is not None and judged(best)
            if deceived and best is not None:
                return Blamed("evaluator", best.depth, (best.id,))
            return Blamed("cut short", depth, waiting)
        if any(child.id not in self.labels for child in children):
            return Blamed("unknown", depth, tuple(end.id for end in ends))
        return Blamed("proposer", depth, tuple(end.id for end in ends))

    @cached_property
    def _judged(self) -> set[str]:
        """The thoughts that were expanded, even without a result: a call for their children was answered."""
        return {
            row.call.node
            for row in calls_of(self.run)
            if role_of(row.call.purpose) in _PROPOSES and row.reply is not None and row.reply.error is None
        }


def _interrupted(stop: str) -> bool:
    """Return whether a budget, the cap on thoughts or a person ended a run, so that it may have left thoughts
    unexpanded.
    """
    return stop.startswith("budget:") or stop in ("limit:nodes", "cancelled")
