"""What makes the result of a run doubtful: what a success rate or an answer alone does not show.

Lost calls are counted by `tot_lab.record.losses`. The card of a run (its representation in a notebook) shows
losses and doubts. A sweep shows the doubts of its runs, with their counts added up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from tot_lab.core.calls import Call
from tot_lab.core.purposes import OTHER, role_of
from tot_lab.core.records import Note, Scored
from tot_lab.core.tree import Node
from tot_lab.record.losses import LARGE, ByRole, Losses
from tot_lab.record.run import NO_EVALUATOR, Run, replies_of


class Doubt(NamedTuple):
    """One reason for doubt.

    Attributes:
        text: A clause, in which `{}` is replaced by `NUMBER of OF`.
        number: How many calls or scores give the reason.
        of: How many calls or scores were looked at.
        example: Text that is appended to the clause: one example.
    """

    text: str
    number: int = 1
    of: int = 1
    example: str = ""

    def __str__(self) -> str:
        return self.text.replace("{}", f"{self.number:,} of {self.of:,}") + self.example


def doubts_of(run: Run, losses: ByRole | None) -> tuple[Doubt, ...]:
    """Return the doubts about a run. `losses` are its lost calls, `None` if these are unknown. Takes time
    linear in the size of the run.
    """
    found = []
    scored = {line.e.by for line in run.lines_of(Scored) if isinstance(line.e, Scored)}
    judged = [node for node in run.tree if node.by not in NO_EVALUATOR] if scored - {*NO_EVALUATOR} else []
    unreadable = [node for node in judged if node.unreadable]
    if losses is not None and len(unreadable) > LARGE * len(judged):
        example = unreadable_example(run, unreadable)
        if not losses.get("evaluate", Losses()).unreadable:
            found.append(Doubt("{} scores unreadable", len(unreadable), len(judged), example))
        elif example:  # the losses say how many
            found.append(Doubt("unreadable scores", example=example))
    return (*found, *_filled_prompts(run), *_repeated_samples(run), *_unjust_grades(run))


def unreadable_example(run: Run, nodes: Sequence[Node]) -> str:
    """Return why the first of `nodes` has no score, as the end of a clause. "" if that is not recorded."""
    if not nodes or "calls" in run.header.unknown:
        return ""
    node, replies = nodes[0], replies_of(run.lines)
    for line in run.lines_of(Call):
        reply = replies.get(line.p)
        if not isinstance(call := line.e, Call) or reply is None or reply.error is not None:
            continue
        if call.node == node.id and role_of(call.purpose) == "evaluate":
            text = reply.text.strip()
            shown = repr(text if len(text) <= 60 else f"{text[:59]}…")
            return f", such as {shown}{_wanted(run) if call.purpose == 'value' else ''}"
    if node.samples or any(isinstance(note, Note) and note.at == node.id for note in run.events):
        return ""
    return f": evaluator {node.by!r} returned None (is a `return` missing?)"


def _wanted(run: Run) -> str:
    """Return what an evaluator of the run's domain must reply, as the end of a clause."""
    with suppress(Exception):  # `run.task` may fail, for example if its domain is not installed
        labels = run.task and [*run.task.domain.value_labels]
        return f": a value is {', '.join(labels)}" if labels else ": a score is from 0 to 1"
    return ""


def _filled_prompts(run: Run) -> Iterator[Doubt]:
    """Yield a doubt for each prompt of the strategy that contains the question instead of `{problem}`, for
    example because it was written as an f-string. A prompt without any slot is sent as the system message, so
    the model would get this question with every task.
    """
    waiting: list[Any] = [run.header.strategy]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            waiting += value.values()
            prompt = value.get("prompt")
            if isinstance(prompt, str) and len(run.question) >= _LONG and run.question in prompt:
                yield Doubt(
                    f"the prompt of {value.get('kind')!r} contains this question: write {{problem}} there"
                )


_LONG = 7
"""Minimum length of a question that is looked for in prompts, since a shorter one may occur by chance. A hand
of the game of 24, such as `4 9 1 3`, has at least this length.
"""


def _repeated_samples(run: Run) -> Iterator[Doubt]:
    """Yield a doubt for each role if at least half of its calls repeat a request at temperature 0, and one
    for the run if it is a repeat (`Header.repeat` above 0) with all calls at temperature 0.
    """
    calls = [line.e for line in run.lines_of(Call) if isinstance(line.e, Call)]
    repeats: Counter[str] = Counter()
    asked: dict[tuple[str, ...], tuple[int, tuple[int, ...]]] = {}
    for call in calls:
        if call.temperature == 0:
            sample = call.sample_index, call.attempt
            request = call.purpose, *(message.content for message in call.messages)
            repeats[role_of(call.purpose) or OTHER] += asked.setdefault(request, sample) != sample
    for role, number in repeats.items():
        of = number and sum((role_of(call.purpose) or OTHER) == role for call in calls)
        if number and 2 * number >= of:
            yield Doubt(f"{{}} {role} calls repeat a request at temperature 0", number, of)
    if run.header.repeat and asked and len(asked) + repeats.total() == len(calls):
        yield Doubt("a repeat with all calls at temperature 0 asks what the first run asked")


def _unjust_grades(run: Run) -> Iterator[Doubt]:
    """Yield why it is doubtful that an answer was graded wrong: no answer to the question can be right, or
    the grading function calls the reference itself wrong.
    """
    with suppress(Exception):  # `run.task`, a user's domain or a grading function may fail
        task = run.task
        if task is not None and not run.waits_for_grading and run.correct is False:
            if task.domain.is_bounded(task) and task.domain.solvable(task, task.steps) is False:
                yield Doubt("no answer to the question can be right")
            right = task.domain.expected(task)
            if type(right) in (str, int, float) and run.grades([str(right)]) not in ([None], [1.0]):
                example = f": got {str(right)!r} for {right!r}"
                yield Doubt("the grade calls the reference itself wrong", example=example)
