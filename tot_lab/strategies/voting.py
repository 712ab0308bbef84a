"""Votes over the answers of several attempts, and the record of the choice."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import msgspec

from tot_lab.core.protocol import Procedure, emit
from tot_lab.core.records import Decided, Scored
from tot_lab.core.task import Answer, Task


def answer_key(task: Task, answer: Answer) -> Hashable | None:
    """A key that is equal for answers that count as the same. `None` if there is no answer."""
    return task.domain.same(task, answer.text) if answer.text else None


def votes_of(task: Task, answers: Sequence[Answer], weights: Sequence[float]) -> dict[Hashable, float]:
    """The sum of the weights of each answer, by `answer_key`, in the order of first occurrence."""
    return _sums([answer_key(task, answer) for answer in answers], weights)


def _sums(keys: Sequence[Hashable | None], weights: Sequence[float]) -> dict[Hashable, float]:
    votes: dict[Hashable, float] = {}
    for key, weight in zip(keys, weights, strict=True):
        if key is not None:
            votes[key] = votes.get(key, 0) + weight
    return votes


def choose_by_vote(
    task: Task,
    answers: Sequence[Answer],
    by: str,
    weights: Sequence[float] | None = None,
    winner: Hashable | None = None,
) -> Procedure[Answer]:
    """Answer with the text that has the most votes, and prune the other attempts.

    Of equal sums, the answer that was given first wins. The score of the answer is its share of the votes of
    all attempts, those without an answer included. Its thought is that of the attempt with the largest weight
    among those that gave it.

    Args:
        task: The problem.
        answers: The answers of the attempts, at least one.
        by: The name under which the score is recorded.
        weights: The votes of each attempt. `None` means one vote each.
        winner: The key of the answer that another rule has chosen. `None` means the answer with the most
            votes.
    """
    weights = [1] * len(answers) if weights is None else weights
    keys = [answer_key(task, answer) for answer in answers]
    votes = _sums(keys, weights)
    if not votes:
        return (yield from choose(answers, answers[0]))
    winner = max(votes, key=votes.__getitem__) if winner is None else winner
    places = [k for k, key in enumerate(keys) if key == winner]
    chosen = answers[max(places, key=weights.__getitem__)]
    share: float | None = votes[winner] / sum(weights)
    if chosen.node is not None:
        scored = yield from emit(Scored(chosen.node, share, votes[winner], by=by))
        share = scored.score
    return (yield from choose(answers, msgspec.structs.replace(chosen, score=share)))


def choose(ranked: Sequence[Answer], chosen: Answer) -> Procedure[Answer]:
    """Answer with `chosen`, and prune the answers of the other attempts."""
    for answer in ranked:
        if answer.node is not None and answer.node != chosen.node:
            yield Decided(answer.node, "pruned", "another attempt was chosen")
    nodes = tuple(answer.node for answer in ranked if answer.node is not None)
    stop = "answered" if chosen.text else chosen.stop_reason
    return Answer(chosen.text, stop, chosen.node, chosen.score, nodes)
