"""What makes the result of a run doubtful: what a success rate or an answer alone does not show.

Lost calls are counted by `tot_lab.record.losses`. The card of a run shows both; a sweep shows the doubts of
its runs, with their counts added up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from tot_lab.core.calls import Call
from tot_lab.core.purposes import OTHER, role_of
from tot_lab.record.losses import LARGE, ByRole, Losses
from tot_lab.record.run import NO_EVALUATOR, Run


class Doubt(NamedTuple):
    """One doubt, and how many of what it concerns.

    Attributes:
        text: A clause, in which `{}` stands for the numbers.
    """

    text: str
    number: int = 1
    of: int = 1

    def __str__(self) -> str:
        return self.text.replace("{}", f"{self.number:,} of {self.of:,}")


def doubts_of(run: Run, losses: ByRole | None) -> tuple[Doubt, ...]:
    """Return the doubts about a run with these `losses`. Time is linear in its size."""
    found = []
    if losses is not None and not losses.get("evaluate", Losses()).unreadable:  # which says the same
        judged = [node for node in run.tree if node.by not in NO_EVALUATOR]
        unreadable = sum(node.unreadable for node in judged)
        if unreadable > LARGE * len(judged):
            found.append(Doubt("{} scores unreadable", unreadable, len(judged)))
    found += _repeated_samples(run)
    if _is_unsolvable(run):
        found.append(Doubt("no answer to the question can be right"))
    return tuple(found)


def _repeated_samples(run: Run) -> Iterator[Doubt]:
    """Yield, for each role, the repeated requests at temperature 0 if they are half of its calls."""
    calls: Counter[str] = Counter()
    repeats: Counter[str] = Counter()
    asked: dict[tuple[str, ...], tuple[int, tuple[int, ...]]] = {}
    for line in run.lines:
        if isinstance(call := line.e, Call):
            role = role_of(call.purpose) or OTHER
            calls[role] += 1
            if call.temperature == 0:
                sample = call.sample_index, call.attempt
                request = call.purpose, *(message.content for message in call.messages)
                repeats[role] += asked.setdefault(request, sample) != sample
    for role, number in repeats.items():
        if number and 2 * number >= calls[role]:
            yield Doubt(f"{{}} {role} calls repeat a request at temperature 0", number, calls[role])


def _is_unsolvable(run: Run) -> bool:
    """Whether the domain knows, without a long search, that no answer is right."""
    with suppress(Exception):  # of a file's task, or of a user's domain
        task = run.task
        if task is not None and task.domain.is_bounded(task) and not run.waits_for_grading:
            return run.correct is False and task.domain.solvable(task, task.steps) is False
    return False
