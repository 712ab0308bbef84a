"""Runs as training data of reward models and policies, in the column layouts of TRL and of public data sets.

The label of a thought says whether a right answer can be reached from it. It comes from the first available
of these sources: a person's mark, the domain (`Domain.solvable`), or the grades of the answers in the leaves
below. The last thought of a path with an answer has the grade of that answer, unless a person marked it.
Without any source a thought has no label: a path that was pruned before its answer is unknown, not wrong. As
in Math-Shepherd, the hard label says whether any answer below is right, and the soft label (`values`) is the
mean grade of these answers.

Every row names its run and its thought. Duplicate rows are left out.

References:
    TRL, dataset formats (stepwise supervision, preference, unpaired preference); Wang et al. 2024,
    Math-Shepherd, arXiv:2312.08935, section 3.2 (hard and soft estimation), and the data set
    `peiyi9979/Math-Shepherd`; Lightman et al. 2023, arXiv:2305.20050, and the data set `openai/prm800k`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from tot_lab.analysis.frames import rows_frame
from tot_lab.analysis.known import Known
from tot_lab.analysis.tables import placed
from tot_lab.core.bulk import gc_paused
from tot_lab.core.tree import Node
from tot_lab.record.run import Run

if TYPE_CHECKING:
    import pandas

SEPARATOR = "\n\n"
"""Text between the problem and the first step, and between steps."""


class Label(NamedTuple):
    """The label of a thought: whether a right answer can be reached from it.

    Attributes:
        value: The soft label: the mean grade of the answers below, or 1.0 or 0.0 by a person or the domain.
        right: Whether a right answer can be reached.
        source: Where the label comes from: `person`, `domain` or `leaves`.
    """

    value: float
    right: bool
    source: str


class Step(NamedTuple):
    """The text of a step of a solution, and the last of the thoughts that form the step."""

    node: Node
    text: str


class Labelled:
    """A run with the labels of its thoughts."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.answers = self._answers()
        """The labels of finished paths, by the id of the last thought."""
        self.labels = self._labels()

    @property
    def prompt(self) -> str:
        """The problem as stated, and the steps that were given with it."""
        return SEPARATOR.join([self.run.question, *self.run.header.task.get("steps", ())])

    def steps(self, id: str) -> list[Step]:
        """Return the steps of the path to a thought. A thought that its child continues in mid-text
        (`Node.open`) forms one step with this child.
        """
        tree, steps, is_open = self.run.tree, list[Step](), False
        for node in tree.path(id)[1:]:
            if is_open:
                steps[-1] = Step(node, steps[-1].text + node.text)
            elif self.is_step(node):
                steps.append(Step(node, node.text))
            is_open = node.open
        return steps

    def is_step(self, node: Node) -> bool:
        """Whether a thought is a step: not the question, and not only the mark of the end of a reply."""
        return (
            node.parent is not None
            and node.id not in self.run.tree.closing
            and node.text != self.run.question
        )

    def is_labelled_step(self, node: Node) -> bool:
        """Whether a thought is a step with a label, and neither a duplicate nor failed."""
        return self.is_step(node) and node.id in self.labels and node.state not in _UNSOUND

    def ends(self) -> Iterator[Node]:
        """Yield the leaves. Duplicates and failed thoughts are ignored, both as leaves and as children."""
        sound = [node for node in self.run.tree if node.state not in _UNSOUND]
        inner = {node.parent for node in sound}
        return (node for node in sound if node.id not in inner)

    def _answers(self) -> dict[str, Label]:
        run = self.run
        marks = {id: mark.verdict == "right" for id, mark in run.marks.items() if mark.verdict is not None}
        ends = list(self.ends())
        marked = {
            node.id: Label(float(marks[node.id]), marks[node.id], "person")
            for node in ends
            if node.id in marks
        }
        grades = Known(run).finished
        graded = {
            node.id: Label(grade, grade == 1.0, "leaves")
            for node in ends
            if (grade := grades.get(node.id)) is not None
        }
        return graded | marked

    def _labels(self) -> dict[str, Label]:
        run = self.run
        below: dict[str | None, list[tuple[float, bool, int]]] = {}
        labels: dict[str, Label] = {}
        for node in reversed(list(run.tree)):  # children before their parents
            known = below.pop(node.id, [])
            if node.id in self.answers:
                known.append((self.answers[node.id].value, self.answers[node.id].right, 1))
            if not known:
                continue
            values, rights, counts = zip(*known, strict=True)
            total = sum(values), any(rights), sum(counts)
            labels[node.id] = Label(total[0] / total[2], total[1], "leaves")
            below.setdefault(node.parent, []).append(total)
        for id, can in Known(run).solvable.items():
            if id not in self.answers:  # a grade may be partial, and is kept
                labels[id] = Label(float(can), can, "domain")
        for id, mark in run.marks.items():
            if mark.verdict is not None:
                labels[id] = Label(float(mark.verdict == "right"), mark.verdict == "right", "person")
        return labels


_UNSOUND = ("duplicate", "failed")


def stepwise(runs: Any) -> pandas.DataFrame:
    """Return solutions with a label for each step, in TRL's layout of stepwise supervision.

    A row ends before the first thought without a label, since nothing is known from there on.

    Args:
        runs: A sweep, a run or several runs.

    Returns:
        prompt: string, the problem as stated. completions: object, list of the steps. labels: object, list of
        booleans, whether a right answer can be reached after each step. values: object, list of soft labels,
        0 to 1. sources: object, list of `person`, `domain` or `leaves`. run_id: string. node: string, id
        of the thought that ends the last step. scores: object, list of the evaluator's scores, `None` without
        one.
    """
    return _frame(_stepwise(runs, "stepwise"), 3, **_STEPWISE)


_BESIDE = {"run_id": "string", "node": "string", "scores": "object"}
_STEPWISE = {
    "prompt": "string",
    **dict.fromkeys(("completions", "labels", "values", "sources"), "object"),
    **_BESIDE,
}


def _stepwise(runs: Any, taker: str) -> Iterator[tuple[Any, ...]]:
    for one in _labelled(runs, taker):
        known: dict[str, list[Step]] = {}
        for end in one.ends():
            steps = one.steps(end.id)
            count = next((k for k, step in enumerate(steps) if step.node.id not in one.labels), len(steps))
            if count:
                known.setdefault(steps[count - 1].node.id, steps[:count])
        inner = {step.node.id for steps in known.values() for step in steps[:-1]}
        for id, steps in known.items():
            if id not in inner:
                labels = [one.labels[step.node.id] for step in steps]
                yield (
                    one.prompt,
                    [step.text for step in steps],
                    [label.right for label in labels],
                    [label.value for label in labels],
                    [label.source for label in labels],
                    one.run.id,
                    id,
                    [step.node.score for step in steps],
                )


def preference(runs: Any, *, margin: float = 0.0) -> pandas.DataFrame:
    """Return pairs of a better and a worse next step, in TRL's layout of preferences (DPO).

    The two steps are siblings. The prompt is the problem and the steps before them, each followed by a
    blank line.

    Args:
        runs: A sweep, a run or several runs.
        margin: The soft label of the better step must be higher by more than this.

    Returns:
        prompt, chosen, rejected: string. values: object, list of the two soft labels. sources: object, list
        of their two sources. run_id: string. node, rejected_node: string, ids of the two thoughts. scores:
        object, list of the evaluator's two scores, `None` without one.
    """
    return _frame(
        _preference(runs, margin),
        3,
        **dict.fromkeys(("prompt", "chosen", "rejected"), "string"),
        **dict.fromkeys(("values", "sources"), "object"),
        **_BESIDE,
        rejected_node="string",
    )


def _preference(runs: Any, margin: float) -> Iterator[tuple[Any, ...]]:
    for one in _labelled(runs, "preference"):
        families: dict[str, list[Node]] = {}
        for node in one.run.tree:
            if one.is_labelled_step(node):
                families.setdefault(node.parent or "", []).append(node)
        for parent, siblings in families.items():
            labels = {node.id: one.labels[node.id] for node in siblings}
            prompt = ""
            for good, bad in product(siblings, repeat=2):
                pair = labels[good.id], labels[bad.id]
                if pair[0].value <= pair[1].value + margin or good.text == bad.text:
                    continue
                prompt = prompt or _begun(one, parent)
                yield (
                    *(prompt, good.text, bad.text, [label.value for label in pair]),
                    *([label.source for label in pair], one.run.id, good.id, [good.score, bad.score], bad.id),
                )


def _begun(one: Labelled, id: str) -> str:
    """Return the problem and the steps to the thought `id`, each followed by `SEPARATOR`. If the next step
    continues the text of the thought (`Node.open`), no separator follows the last step."""
    text = "".join(f"{part}{SEPARATOR}" for part in [one.prompt, *(step.text for step in one.steps(id))])
    return text.removesuffix(SEPARATOR) if one.run.tree[id].open else text


def unpaired(runs: Any) -> pandas.DataFrame:
    """Return whole solutions, right and wrong, in TRL's layout of unpaired preferences (KTO).

    A solution is a path with an answer that is graded, or that a person has marked.

    Args:
        runs: A sweep, a run or several runs.

    Returns:
        prompt, completion: string; concatenated, they are the whole text. label: boolean, whether the answer
        is right. value: Float64, its grade. source: string, `leaves` for a grade or `person` for a mark.
        run_id, node: string. scores: object, list of the evaluator's scores of the steps, `None` without one.
    """
    return _frame(
        _unpaired(runs),
        3,
        **{"prompt": "string", "completion": "string", "label": "boolean", "value": "Float64"},
        source="string",
        **_BESIDE,
    )


def _unpaired(runs: Any) -> Iterator[tuple[Any, ...]]:
    for one in _labelled(runs, "unpaired"):
        for id, label in one.answers.items():
            if steps := one.steps(id):
                text = SEPARATOR.join(step.text for step in steps)
                scores = [step.node.score for step in steps]
                yield (
                    *(one.prompt + SEPARATOR, text, label.right, label.value, label.source),
                    *(one.run.id, id, scores),
                )


def math_shepherd(runs: Any, *, task: str = "tot_lab") -> pandas.DataFrame:
    """Return the rows of `stepwise` in the layout of the data set Math-Shepherd.

    Args:
        runs: A sweep, a run or several runs.
        task: The value of the column `task`, in that data set `GSM8K` or `MATH`.

    Returns:
        input: string, the problem and its steps, each ending in `ки`. label: string, the same text with `+`
        or `-` in place of `ки`. task: string. values, sources, run_id, node and scores: as in `stepwise`.

    Raises:
        ValueError: If a text contains `ки`, which would be read as the end of a step.
    """
    return _frame(
        _math_shepherd(runs, task),
        3,
        **{"input": "string", "label": "string", "task": "string", "values": "object", "sources": "object"},
        **_BESIDE,
    )


_STEP_END = "ки"
_NUMBERED = re.compile(r"step \d+:", re.IGNORECASE)


def _math_shepherd(runs: Any, task: str) -> Iterator[tuple[Any, ...]]:
    for prompt, completions, labels, *more, run_id, node, scores in _stepwise(runs, "math_shepherd"):
        steps = [
            step if _NUMBERED.match(step) else f"Step {k}: {step}" for k, step in enumerate(completions, 1)
        ]
        if any(_STEP_END in text for text in (prompt, *steps)):
            raise ValueError(
                f"A text on the path to thought {node} of run {run_id} contains {_STEP_END!r}, which ends a "
                f"step in the layout of math_shepherd. Use stepwise."
            )
        ends = ["+" if label else "-" for label in labels]
        texts = [
            f"{prompt} " + "\n".join(f"{step} {end}" for step, end in zip(steps, signs, strict=True))
            for signs in ([_STEP_END] * len(steps), ends)
        ]
        yield (*texts, task, *more, run_id, node, scores)


def prm800k(runs: Any) -> pandas.DataFrame:
    """Return the path of each run's answer with the alternatives at each step, in the layout of PRM800K.

    A rating is 1 if a right answer can be reached after the step, and -1 if not; candidates without a label
    are left out. The steps end before the first step without a label or, as in the second phase of that data
    set, with the first wrong step of the path. Runs without an answer or without labels have no row.

    Args:
        runs: A sweep, a run or several runs.

    Returns:
        The columns of PRM800K: `question` with the problem and the solution of the run, `label` with the
        steps and their candidates, and labeler, timestamp, generation and two flags. run_id: string. node:
        string, the thought that holds the answer. scores: object, for each step the evaluator's scores of
        the candidates, `None` without one.
    """
    texts, objects = ("labeler", "timestamp"), ("question", "label")
    return _frame(
        _prm800k(runs),
        7,
        **dict.fromkeys(texts, "string"),
        generation="Int64",
        **dict.fromkeys(("is_quality_control_question", "is_initial_screening_question"), "boolean"),
        **dict.fromkeys(objects, "object"),
        **_BESIDE,
    )


def _prm800k(runs: Any) -> Iterator[tuple[Any, ...]]:
    for one in _labelled(runs, "prm800k"):
        run = one.run
        if run.best is None:
            continue
        rated, scores = [], []
        finish, begun = "solution" if run.correct else "give_up", ""
        for node in run.tree.path(run.best.id)[1:]:
            if node.open and node is not run.best:
                begun += node.text
                continue
            if not one.is_step(node):
                continue
            if not one.is_labelled_step(node):
                finish = "give_up"
                break
            siblings = [run.tree[id] for id in run.tree[node.parent or ""].children]
            candidates = [sibling for sibling in siblings if one.is_labelled_step(sibling)]
            completions = [
                {"text": begun + each.text, "rating": 1 if one.labels[each.id].right else -1, "flagged": None}
                for each in candidates
            ]
            chosen = next(k for k, each in enumerate(candidates) if each is node)
            rated.append({"completions": completions, "human_completion": None, "chosen_completion": chosen})
            scores.append([each.score for each in candidates])
            begun = ""
            if not one.labels[node.id].right:
                finish = "found_error"
                break
        question = {
            "problem": one.prompt,
            "ground_truth_solution": None,
            "ground_truth_answer": _expected(run),
            "pre_generated_steps": [step.text for step in one.steps(run.best.id)],
            "pre_generated_answer": run.answer,
            "pre_generated_verifier_score": run.score,
        }
        label = {"steps": rated, "total_time": None, "finish_reason": finish}
        if rated:
            yield (
                *("tot_lab", run.header.started or None, None, False, False, question, label),
                *(run.id, run.best.id, scores),
            )


def _expected(run: Run) -> str | None:
    task = Known(run).task
    expected = None if task is None else task.domain.expected(task)
    return None if expected is None else str(expected)


def _labelled(runs: Any, taker: str) -> Iterator[Labelled]:
    return (Labelled(place.run) for place in placed(runs, taker) if place.run is not None)


@gc_paused()
def _frame(rows: Iterator[tuple[Any, ...]], layout: int, **columns: str) -> pandas.DataFrame:
    """Return rows as a frame. Of rows that are equal in the first `layout` columns, the first is kept."""
    kept: dict[str, tuple[Any, ...]] = {}
    for row in rows:
        kept.setdefault(repr(row[:layout]), row)
    return rows_frame(list(kept.values()), **columns)
