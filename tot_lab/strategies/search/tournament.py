"""Pairwise comparisons of siblings, and the strengths that explain them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import permutations
from typing import ClassVar, Literal

import msgspec

from tot_lab.core.calls import Call
from tot_lab.core.protocol import Procedure, ask
from tot_lab.core.records import Event, Scored, Thought, call_failed
from tot_lab.core.task import Path
from tot_lab.strategies.search.evaluators import _Templated
from tot_lab.strategies.search.sampling import (
    Expansion,
    Sampler,
    emit_as_list,
    failed,
    no_score,
    texts_of,
    unreadable,
)

ITERATIONS = 10_000
"""The most iterations of `strengths`. Ten siblings need a few hundred, fifty a few thousand."""


class Tournament(_Templated):
    """Compares every two children of one parent, in both orders, and scores by Bradley–Terry strengths.

    `raw` is the strength s of a thought: it beats one of strength t with probability s / (s + t). The score
    is s / (s + 1), the probability that it beats a thought of strength 1. As a prior, each thought has also
    won once and lost once against a thought of strength 1. Without it, a thought that wins all of its
    readable comparisons would have an infinite strength. If the thought listed first wins in both orders,
    each has one win: a tie.

    The children of different parents are scored in separate tournaments. Equal texts share one strength. A
    thought without a readable comparison, such as an only child, has no score; a note `score.missing` says
    why.

    Best for thoughts that are easier to compare than to rate. Trade-off: n(n - 1) calls, of purpose
    `compare`, for n children of one parent.

    References:
        Bradley & Terry 1952; Hunter 2004, MM algorithms for generalized Bradley–Terry models (the iteration);
        Zheng et al. 2023, arXiv:2306.05685, section 3.4 (both orders).
    """

    compares: ClassVar[Literal["nothing", "reply", "siblings", "pick"]] = "siblings"

    def calls_per_siblings(self, count: int) -> int:
        return count * (count - 1)

    def score_siblings(
        self, sampler: Sampler, expansion: Expansion, thoughts: Sequence[Thought]
    ) -> Procedure[list[Event]]:
        texts = list(dict.fromkeys(thought.text for thought in thoughts))
        paths = [expansion.path_to(text) for text in texts]
        pairs = list(permutations(range(len(texts)), 2))
        calls = [self._call(sampler, expansion, [paths[one], paths[other]]) for one, other in pairs]
        replies = yield from sampler.gather([ask(call) for call in calls], at_most=1)
        wins = [[0] * len(texts) for _ in texts]
        samples: list[list[float | None]] = [[] for _ in texts]
        errors: list[str | None] = [None] * len(texts)
        events: list[Event] = []
        for pair, call, reply in zip(pairs, calls, replies, strict=True):
            choice = None
            if reply.error is not None:
                events += yield from emit_as_list(call_failed(expansion.node, call.purpose, reply.error))
            else:
                choice = sampler.task.domain.read_vote(reply.text, 2)
                if choice is None:
                    yield unreadable(expansion.node, call.purpose, call.sample_index)
                else:
                    wins[pair[choice]][pair[1 - choice]] += 1
            for k, number in enumerate(pair):
                samples[number].append(None if choice is None else float(choice == k))
                errors[number] = errors[number] or reply.error
        values = strengths(wins)
        for thought in thoughts:
            number = texts.index(thought.text)
            read = tuple(samples[number])
            if any(sample is not None for sample in read):
                score = values[number] / (values[number] + 1)
                events += yield from emit_as_list(Scored(thought.id, score, values[number], read, self.kind))
            elif errors[number] is not None:
                events += yield from emit_as_list(failed(thought.id, errors[number]))
            else:
                alone = "there is no other thought to compare it with"
                why = "there is no readable comparison" if len(texts) > 1 else alone
                events += yield from no_score(thought.id, self.kind, why)
        return events

    def _call(self, sampler: Sampler, expansion: Expansion, paths: Sequence[Path]) -> Call:
        """The call that asks which of two paths is better."""
        task, listed = sampler.task, texts_of([path[-1] for path in paths])
        asking = partial(task.domain.vote_prompt, task, paths)
        prompt = sampler.prompt(self.prompt, expansion.path, asking, candidates=listed)
        call = sampler.call(
            expansion.node, "vote", expansion.path, prompt, expansion.take_sample_index("compare")
        )
        return msgspec.structs.replace(call, purpose="compare")


def strengths(wins: Sequence[Sequence[float]]) -> list[float]:
    """The Bradley–Terry strengths of items, given that item i has beaten item j `wins[i][j]` times.

    They maximise the likelihood of these results, and of one win and one loss of each item against strength
    1.
    """
    places = range(len(wins))
    won = [sum(row) + 1 for row in wins]
    games = [[wins[i][j] + wins[j][i] for j in places] for i in places]
    values = [1.0] * len(wins)
    for _ in range(ITERATIONS):
        before = values
        # `fsum` does not depend on the order, so that equal results give exactly equal strengths.
        values = [
            won[i]
            / math.fsum([2 / (before[i] + 1), *(games[i][j] / (before[i] + before[j]) for j in places)])
            for i in places
        ]
        # Only the prior fixes the common scale. Adjusting it separately keeps large groups fast.
        scale = len(values) / (2 * math.fsum(value / (value + 1) for value in values))
        values = [value * scale for value in values]
        if all(math.isclose(*pair, rel_tol=1e-9) for pair in zip(values, before, strict=True)):
            break
    return values
