"""The confidence that a model had in its own tokens, from the reported log-probabilities.

References:
    Fu et al. 2025, Deep Think with Confidence, arXiv:2508.15260, section 3.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Literal, TypeAlias

ALTERNATIVES = 20
"""Alternatives per token whose log-probabilities are requested, the most that OpenAI reports."""

Confidence: TypeAlias = Literal["lowest", "bottom", "tail", "mean"]


def confidence_of(tokens: Sequence[float], kind: Confidence, group: int) -> float:
    """The confidence of a text, computed from the confidences of its tokens. 0 if there are none.

    Args:
        tokens: The confidence of each token.
        kind: What is averaged: all tokens, the last group, the least confident group, or the least confident
            tenth of the groups; see `DeepConf.confidence`.
        group: Number of tokens in a group. Groups are sliding windows over the text.
    """
    if not tokens:
        return 0.0
    if kind in ("mean", "tail"):
        part = tokens if kind == "mean" else tokens[-group:]
        return sum(part) / len(part)
    group = min(group, len(tokens))
    sums = [0.0, *accumulate(tokens)]
    groups = sorted((sums[end] - sums[end - group]) / group for end in range(group, len(sums)))
    lowest = groups[: max(1, len(groups) // 10)] if kind == "bottom" else groups[:1]
    return sum(lowest) / len(lowest)


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which the fraction `share` of `values` lies, interpolated. 0 if there are none."""
    if not values:
        return 0.0
    ranked, place = sorted(values), share * (len(values) - 1)
    low, high = ranked[int(place)], ranked[min(int(place) + 1, len(ranked) - 1)]
    return low + (high - low) * (place - int(place))
