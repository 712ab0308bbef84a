"""Facts about a run that need its domain, such as which thoughts can still lead to a correct answer.

Unknown facts are `None` or left out, never `False`. A domain is used only if it is complete: a loaded run may
lack a user's functions.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import cached_property
from typing import TypeVar

from tot_lab.core.parts import needs_functions
from tot_lab.core.records import Decided
from tot_lab.core.task import Domain, Path, Task
from tot_lab.core.tree import Node
from tot_lab.record.run import NO_EVALUATOR, Run

T = TypeVar("T")


def can_be_asked(run: Run) -> bool:
    """Whether the task of a run may be used without a delay: the run does not wait for grading, and the kind
    of its task is known."""
    try:
        return not run.waits_for_grading
    except (ValueError, LookupError):  # its task has an unknown kind
        return False


class Known:
    """Facts about one run, each computed at its first use.

    Args:
        run: The run.
        asking: Whether the run's task may be used. Facts that need the task are unknown otherwise.
    """

    def __init__(self, run: Run, *, asking: bool = True) -> None:
        self.run = run
        self.asking = asking
        # The root of a nested strategy has the question as its text, and is no thought of the model, so it is
        # left out.
        question = run.question
        self.thoughts = [node for node in run.tree if node.parent is not None and node.text != question]

    @cached_property
    def task(self) -> Task | None:
        """The task. `None` if it may not be used, or if its file lacks functions of a user."""
        task = self.run.task if self.asking else None
        return None if task is None or needs_functions(task.domain) else task

    @cached_property
    def right_leaves(self) -> list[str]:
        """Ids of the leaves with a correct answer. Empty without ground truth. Cached in the run
        once it has ended.
        """
        run, task = self.run, self.task
        if task is None or run.grade is None:
            return []
        kept: list[str] | None = run.__dict__.get("_right_leaves")
        if kept is not None:
            return kept
        held = {leaf.id: task.domain.answer(task, run.steps(leaf.id)) for leaf in run.tree.leaves()}
        right = [id for id, grade in self._graded(held).items() if grade == 1.0]
        if run.stop_reason is not None:
            run.__dict__["_right_leaves"] = right
        return right

    @cached_property
    def finished(self) -> dict[str, float]:
        """The grades of the answers of finished paths, by the id of the last thought. Cached in the
        run once it has ended."""
        run, task = self.run, self.task
        if task is None:
            return {}
        kept: dict[str, float] | None = run.__dict__.get("_finished")
        if kept is not None:
            return kept
        decided = {e.id for e in run.events if isinstance(e, Decided) and e.what in ("complete", "answer")}
        if run.best is not None and run.answer_state in ("unfinished", "cut"):
            decided.discard(run.best.id)
        paths = ((node.id, run.steps(node.id)) for node in self.thoughts)
        graded = self._graded({id: _answer(task, path, id in decided) for id, path in paths})
        if run.stop_reason is not None:
            run.__dict__["_finished"] = graded
        return graded

    def _graded(self, held: Mapping[str, str | None]) -> dict[str, float]:
        """Return the grades of answers by thought id. Equal answers are graded once; answers without a grade
        are left out."""
        texts = list(dict.fromkeys(text for text in held.values() if text is not None))
        grades = dict(zip(texts, self.run.grades(texts), strict=True))
        found = ((id, grades[text]) for id, text in held.items() if text is not None)
        return {id: grade for id, grade in found if grade is not None}

    @cached_property
    def solvable(self) -> dict[str, bool]:
        """By thought id, whether a correct answer can still be reached, according to the domain.

        Thoughts for which the domain cannot tell are left out. Empty for a loaded run whose task would
        execute code or a regular expression from the file. Cached in the run once it has ended.
        """
        task = self.task
        kept: dict[str, bool] | None = self.run.__dict__.get("_solvable")
        if task is not None and kept is not None:
            return kept
        if task is None or type(task.domain).solvable is Domain.solvable:
            return {}
        domain = task.domain
        if self.run.loaded and (domain.runs_code(task) or domain.answer_pattern(task) is not None):
            return {}
        by_domain = {node.id: self._of_domain(task.domain.solvable, task, node) for node in self.run.tree}
        known = {id: can for id, can in by_domain.items() if can is not None}
        if self.run.stop_reason is not None:
            self.run.__dict__["_solvable"] = known
        return known

    def state(self, node: Node) -> Hashable | None:
        """A key that is equal for paths that reach the same state. `None` if the domain cannot tell."""
        task = self.task
        if task is None or type(task.domain).state is Domain.state:
            return None
        return self._of_domain(task.domain.state, task, node)

    def _of_domain(self, question: Callable[[Task, list[str]], T], task: Task, node: Node) -> T:
        """Return the domain's result for a thought. An error names the thought."""
        try:
            return question(task, self.run.steps(node.id))
        except Exception as error:
            error.add_note(
                f"The domain raised this for thought {node.id} of run {self.run.id}. It must accept any text."
            )
            raise


def _answer(task: Task, path: Path, decided: bool) -> str | None:
    """Return the answer of a path. `None` if the path is empty, is not finished or has no answer. `decided`
    says that the search itself has declared the path finished; otherwise the domain decides."""
    domain = task.domain
    if not path:
        return None
    if not decided and not (domain.states_answer if domain.is_text else domain.complete)(task, path):
        return None
    return domain.answer(task, path)


def judged(node: Node) -> bool:
    """Return whether an evaluator judged a thought, even if its reply could not be read."""
    return node.by not in NO_EVALUATOR


def wins(ones: Iterable[float], others: Iterable[float]) -> float:
    """Return the number of pairs (one of `ones`, one of `others`) in which the first is greater. Ties count
    one half. Divided by the number of all pairs, this is the area under the ROC curve.

    References:
        Hanley and McNeil 1982.
    """
    ordered = sorted(others)
    return sum(bisect_left(ordered, one) + bisect_right(ordered, one) for one in ones) / 2
