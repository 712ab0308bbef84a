"""Levin tree search: a policy over thoughts guides the search, with a bound on its expansions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tot_lab.strategies.search.a_star import CheapestFirst, Terms
from tot_lab.strategies.search.searches import SearchState


class Levin(CheapestFirst):
    """Expands the thought with the smallest d/π: the number of thoughts on its path, the root included,
    divided by the probability of the path.

    The scores are the policy: the probability of a thought given its parent is its score divided by the sum
    over all siblings, or equal for all if no score is above 0. An unreadable score counts as 0, and a thought
    with probability 0 is not expanded. With `evaluate=tl.evaluators.Likelihood()`, the policy is that of the
    model that proposes, as in the paper.

    The search ends when a complete thought has the smallest d/π; this thought is the answer. The d/π of any
    complete thought of the tree bounds the number of thoughts taken from the frontier until then, the answer
    included. The bound needs `stop=Stop(solved=None)`. Of equal d/π, the older thought comes first.

    References:
        Orseau, Lelis, Lattimore & Weber 2018, Single-Agent Policy Tree Search With Guarantees,
        arXiv:1811.10928, section 4 (LevinTS) and Theorem 3.
    """

    def terms_of_root(self) -> Terms:
        return {"depth": 1, "log_probability": 0.0}

    def terms(self, state: SearchState, above: Terms, siblings: Sequence[str]) -> dict[str, Terms]:
        scores = {id: max(state.tree[id].rank, 0.0) for id in siblings}
        if not any(scores.values()):
            scores = dict.fromkeys(siblings, 1.0)
        total, depth = sum(scores.values()), above["depth"] + 1
        return {
            id: {"depth": depth, "log_probability": above["log_probability"] + math.log(score / total)}
            for id, score in scores.items()
            if score > 0
        }

    def key(self, terms: Terms) -> Any:
        cost = math.log(terms["depth"]) - terms["log_probability"]
        return round(cost, 9)  # equal costs may differ in their last digits
