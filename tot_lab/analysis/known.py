"""What is known of a run, and what several runs are called.

Rule: what nobody knows is None, never False. A domain is asked only when it is whole: a loaded run may lack
a person's functions. Runs are called as a sweep calls them: by what differs in their strategies, and by their
questions.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tot_lab.analysis.frames import each, typed_frame
from tot_lab.analysis.statistics import table
from tot_lab.core.parts import needs_functions
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Domain, Task
from tot_lab.core.tree import Node
from tot_lab.lab.sweeps.axes import labelled
from tot_lab.record.grading import pattern_of
from tot_lab.record.losses import columns_of, losses_of
from tot_lab.record.run import Run

if TYPE_CHECKING:
    import pandas

T = TypeVar("T")

NO_EVALUATOR = ("", "root", "domain", "person", "self_consistency")
"""What scores by another way than judging a thought."""


class Known:
    """One run; each thing is reckoned when it is asked for. asking: whether the task may be asked."""

    def __init__(self, run: Run, *, asking: bool = True) -> None:
        self.run = run
        self.asking = asking
        # The root of a strategy inside another only holds the question.
        self.thoughts = [node for node in run.tree if node.parent is not None and node.text != run.question]

    @cached_property
    def task(self) -> Task | None:
        """The task, if its domain can be asked."""
        task = self.run.task if self.asking else None
        return None if task is None or needs_functions(task.domain) else task

    @cached_property
    def right_leaves(self) -> list[str]:
        """The leaves that hold a right answer, as far as there is ground truth."""
        task = self.task
        if task is None or self.run.grade is None:
            return []
        held = {
            leaf.id: answer
            for leaf in self.run.tree.leaves()
            if (answer := task.domain.answer(task, self.run.steps(leaf.id))) is not None
        }
        grades = self.run.grades(list(held.values()))
        return [id for id, grade in zip(held, grades, strict=True) if grade == 1.0]

    @cached_property
    def solvable(self) -> dict[str, bool]:
        """Whether a right answer can still be reached from a thought, in its domain's own reckoning."""
        task = self.task
        if task is None or type(task.domain).solvable is Domain.solvable:
            return {}
        if self.run.loaded and pattern_of(task) is not None:
            return {}
        told = {node.id: self._of_domain(task.domain.solvable, task, node) for node in self.run.tree}
        return {id: can for id, can in told.items() if can is not None}

    def state(self, node: Node) -> Hashable | None:
        """What two paths share that reach the same state; None when the domain cannot tell."""
        task = self.task
        if task is None or type(task.domain).state is Domain.state:
            return None
        return self._of_domain(task.domain.state, task, node)

    def _of_domain(self, question: Callable[[Task, list[str]], T], task: Task, node: Node) -> T:
        """What the domain says of a thought; an error of it names the thought."""
        try:
            return question(task, self.run.steps(node.id))
        except Exception as error:
            error.add_note(f"asked about thought {node.id} of run {self.run.id}: a domain is given any text")
            raise


class Placed(NamedTuple):
    """A run among others. run is None when it could not begin: `error` says why."""

    setting: str
    task: str
    repeat: int
    run_id: str
    run: Run | None
    error: str | None = None


def is_sweep(runs: Any) -> bool:
    """Whether `runs` has a table and gives the runs of its rows."""
    return hasattr(runs, "df") and hasattr(runs, "run")


def placed(runs: Any, taker: str) -> Iterator[Placed]:
    """The runs of a sweep, each read when its turn comes; or those of an iterable, or the one given.
    Anything else is a TypeError."""
    if is_sweep(runs):
        frame = table(runs, ["setting", "task", "repeat", "run_id", "stop", "error"])
        columns = [frame[name] for name in ("setting", "task", "repeat", "run_id", "error")]
        for setting, task, repeat, id, error, ran in zip(*columns, frame["stop"].notna(), strict=True):
            run = runs.run(id) if ran else None
            yield Placed(str(setting), str(task), int(repeat), id, run, None if ran else str(error))
        return
    listed = [runs] if isinstance(runs, Run) or not isinstance(runs, Iterable) else list(runs)
    for run in listed:
        if not isinstance(run, Run):
            given = runs if isinstance(runs, str) or hasattr(runs, "columns") else run
            raise TypeError(
                f"{taker} takes a sweep, a run or several runs, not {type(given).__name__}; was `await` "
                f"forgotten?"
            )
    known = {repr(run.header.strategy): _strategy_of(run) for run in listed}
    ours = {kind: strategy for kind, strategy in known.items() if strategy is not None}
    labels = dict(zip(ours, labelled(list(ours.values())), strict=True)) if ours else {}
    tasks: dict[str, dict[str, str]] = {}
    for run in listed:
        setting = labels.get(repr(run.header.strategy), run.name)
        alike = tasks.setdefault(run.question, {})  # tasks with one question
        number = f" #{len(alike) + 1}" if alike else ""
        task = alike.setdefault(repr(run.header.task), run.question + number)
        yield Placed(setting, task, run.header.repeat, run.id, run)


def runs_df(runs: Any, taker: str) -> pandas.DataFrame:
    """One row per run of an iterable, with the columns of `sweep.df()` that runs of any kind have."""
    rows = [(place, place.run) for place in placed(runs, taker) if place.run is not None]
    settings, tasks = [place.setting for place, _ in rows], [place.task for place, _ in rows]
    usages = [run.usage for _, run in rows]
    return typed_frame(
        {
            "setting": (tuple(dict.fromkeys(settings)), settings),
            "task": (tuple(dict.fromkeys(tasks)), tasks),
            "repeat": ("Int64", [place.repeat for place, _ in rows]),
            "correct": ("boolean", [run.correct for _, run in rows]),
            "score": ("Float64", [run.grade for _, run in rows]),
            "answer": ("string", [run.answer or None for _, run in rows]),
            "stop": ("category", [run.stopped for _, run in rows]),
            "error": ("string", [run.error for _, run in rows]),
            "calls": (
                "Int64",
                [None if "calls" in run.header.unknown else run.usage.calls for _, run in rows],
            ),
            **columns_of([losses_of(run) for _, run in rows]),
            **each(usages, input_tokens="Int64", output_tokens="Int64", cost="Float64", paid="Float64"),
            "seconds": ("Float64", [run.seconds for _, run in rows]),
            "simulated": ("boolean", [run.simulated for _, run in rows]),
            "run_id": ("string", [run.id for _, run in rows]),
        }
    )


def _strategy_of(run: Run) -> Strategy | None:
    try:
        return run.strategy
    except ValueError:  # a person's own, of a module that was not imported here
        return None


def judged(node: Node) -> bool:
    """Whether an evaluator judged a thought, if only in words that could not be read."""
    return node.by not in NO_EVALUATOR


def wins(ones: Iterable[float], others: Iterable[float]) -> float:
    """In how many pairs one of `ones` is above one of `others`, equal ones counted half; as a share of all
    pairs it is the area under the ROC curve (Hanley & McNeil 1982)."""
    ordered = sorted(others)
    return sum(bisect_left(ordered, one) + bisect_right(ordered, one) for one in ones) / 2
