"""Converts an Inspect task to tasks of this project: `tl.tasks(inspect_task)`.

The samples of the dataset are the questions, and the scorer grades the answers. Scorers are coroutines but
`Domain.grade` is not, so an event loop in a separate thread runs the scorers. A journal stores only the names
of the Inspect task and its scorer, and loading it imports neither. A loaded run can therefore not be graded.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import lru_cache
from math import isnan
from typing import Any

from pydantic import PrivateAttr

from tot_lab.core.calls import format_error
from tot_lab.core.reading.choices import stated_choice
from tot_lab.core.task import Task, Ungraded
from tot_lab.domains.general import General
from tot_lab.interop.inspect_messages import inspect_package, question_of
from tot_lab.record.logs.inspect_ai import grade_of

_GRADERS = ("inspect_ai/model_graded_qa", "inspect_ai/model_graded_fact")
_FORMS = ("{}", "ANSWER: {}")
"""Templates of the model output that a scorer receives. The second is for scorers that search the output for
`ANSWER:`.
"""


class InspectTask(General):
    """The domain of one sample of an Inspect task. `tl.tasks(inspect_task)` makes a task in such a domain for
    each sample.

    The scorer of the Inspect task grades the answer. If the sample has choices, the answer is the label of a
    choice. Otherwise it is a short answer, as in `General`.
    """

    kind = "published/inspect"

    task: str
    """Name of the Inspect task in Inspect's registry, or else its `name`."""

    scorer: str
    """Name of the scorer in Inspect's registry."""

    _graded: Callable[[str], float | None] | None = PrivateAttr(default=None)

    def grade(self, task: Task, answer: str) -> float | None:
        """Return the scorer's value for `answer`, from 0 to 1. `None` if the scorer returns no score or the
        task has no target.

        Raises:
            Ungraded: If the task comes from a loaded run, whose journal does not contain the scorer.
            ValueError: If the scorer's value is not a grade from 0 to 1.
        """
        if task.reference is None:
            return None
        if self._graded is None:
            raise Ungraded(
                f"the task of a loaded run cannot call its scorer {self.scorer!r}. Make the tasks of "
                f"{self.task!r} again: tl.tasks(inspect_task)"
            )
        return self._graded(answer)

    def is_bounded(self, task: Task) -> bool:
        """Return `False`: a scorer may be slow."""
        return False


def tasks_of(inspect_task: Any) -> list[Task]:
    """Make one task per sample of an Inspect task.

    The first scorer of the Inspect task grades the answers. To check that this scorer accepts a plain answer,
    it is called with the target of the first sample as the answer, unless it calls a model. Solvers, setup,
    sandbox, epochs, reducers and further scorers are not used; pass `repeats` to a sweep instead of epochs.

    Args:
        inspect_task: An `inspect_ai.Task`.

    Raises:
        ValueError: If there are no samples or no scorer, the scorer cannot grade a plain answer (the message
            gives the reason), or a sample contains more than text.
    """
    ai = inspect_package("tl.tasks(inspect_task)")
    scorers = inspect_task.scorer if isinstance(inspect_task.scorer, list) else [inspect_task.scorer]
    name = inspect_task.registry_name or inspect_task.name
    samples = list(inspect_task.dataset)
    if scorers[0] is None or not samples:
        raise ValueError(
            f"{name}: a task must have samples and a scorer: got {len(samples)} samples, scorer {scorers[0]}."
        )
    scorer = scorers[0]
    scorer_name = ai._util.registry.registry_info(scorer).name
    params = ai._util.registry.registry_params(scorer)
    asks_model = scorer_name in _GRADERS
    if asks_model and params.get("model") is None:
        raise _refusal(
            name, scorer_name, "it calls the model of an evaluation. Give the scorer a model with model="
        )
    form = _FORMS[0] if asks_model else _form_for(ai, name, scorer, scorer_name, samples[0])
    made = []
    for number, sample in enumerate(samples, 1):
        id = str(number if sample.id is None else sample.id)
        messages = sample.input
        if isinstance(messages, str):
            messages = [ai.model.ChatMessageUser(content=messages)]
        choices = sample.choices or ()
        domain = InspectTask(task=name, scorer=scorer_name, grading="choice" if choices else None)
        domain._graded = _Grader(ai, scorer, scorer_name, sample, form)
        try:
            task = question_of(messages, choices, domain)
        except ValueError as error:
            raise ValueError(f"{name}, sample {id}: {error}") from None
        made.append(task.model_copy(update={"reference": sample.target, "id": id}))
    return made


def _refusal(task: str, scorer: str, reason: str) -> ValueError:
    return ValueError(f"{task}: the scorer {scorer!r} cannot grade an answer: {reason}.")


def _form_for(ai: Any, task: str, scorer: Any, name: str, sample: Any) -> str:
    """Return the template with which the scorer grades the target of a sample as right, or else the first.

    Raises:
        ValueError: If the scorer fails or returns no score, or its pattern finds the target in neither
            template.
    """
    target = sample.target if isinstance(sample.target, str) else next(iter(sample.target), "")
    for form in _FORMS:
        try:
            grade = _Grader(ai, scorer, name, sample, form)(target)
        except Exception as error:
            raise _refusal(
                task, name, f"without the solver of its task it fails: {format_error(error)}"
            ) from error
        if grade is None:
            raise _refusal(task, name, "it needs more of the model's output than the answer")
        if grade == 1.0:
            return form
    if name in ("inspect_ai/pattern", "inspect_ai/answer"):
        raise _refusal(task, name, "its pattern finds neither the answer alone nor one after 'ANSWER:'")
    return _FORMS[0]


class _Grader:
    """Grades answers to one sample with the scorer."""

    def __init__(self, ai: Any, scorer: Any, name: str, sample: Any, form: str) -> None:
        self.ai = ai
        self.scorer = scorer
        self.name = name
        self.sample = sample
        self.form = form

    def __call__(self, answer: str) -> float | None:
        """Return the grade of an answer, from 0 to 1. `None` if the scorer returns no score.

        Raises:
            ValueError: If the scorer's value is not a grade.
        """
        score = asyncio.run_coroutine_threadsafe(self._score(answer), _loop()).result()
        if score is None or (isinstance(score.value, float) and isnan(score.value)):
            return None
        grade = grade_of(score.value)
        if grade is None:
            raise ValueError(
                f"The scorer {self.name!r} must give one grade: got {score.value!r}. "
                "Grades are C, P, I, N, yes, no, true, false and numbers from 0 to 1."
            )
        return grade

    async def _score(self, answer: str) -> Any:
        ai, sample = self.ai, self.sample
        output = ai.model.ModelOutput.from_content("none/none", self.form.format(answer))
        messages = sample.input
        if isinstance(messages, str):
            messages = [ai.model.ChatMessageUser(content=messages)]
        target = ai.scorer.Target(sample.target)
        state = ai.solver.TaskState(
            model=ai.model.ModelName("none/none"),
            sample_id=sample.id or 0,
            epoch=1,
            input=sample.input,
            messages=[*messages, output.message],
            target=target,
            choices=sample.choices,
            output=output,
            completed=True,
            metadata=dict(sample.metadata or {}),
        )
        mark_choice(state, answer)
        return await self.scorer(state, target)


def mark_choice(state: Any, answer: str) -> None:
    """Mark the choice that `answer` states as chosen and the other choices as not chosen, as Inspect's solver
    `multiple_choice` does for the scorer `choice`.
    """
    labels = {chr(ord("A") + k): choice.value for k, choice in enumerate(state.choices)}
    stated = stated_choice(answer, labels) if labels else None
    for number, label in enumerate(labels):
        state.choices.mark_choice(number, label == stated)


@lru_cache(maxsize=1)
def _loop() -> asyncio.AbstractEventLoop:
    """Return the event loop that runs all scorers. It stays open, since clients of grader models need it."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="scorers of Inspect", daemon=True).start()
    return loop
