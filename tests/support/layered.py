"""The explorer's second drawing of a tree, as a reference in Python.

`explorer/js/layout.js` draws it in the browser, and `tests/golden/layouts.json` holds the two together. The
package itself draws only `tidy`.

`layered` is at most twice as wide as its widest level, where `tidy` grows with every level of a beam
of which only some thoughts go on. Within that it makes the squares of the sideways lengths of the
lines small, level by level: for one level, the others held, the best places are a weighted isotonic
regression, which pooling adjacent violators finds in linear time (Barlow et al. 1972).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tot_lab.views.figures.layout import _children_and_order, tidy

GOES_ON = 4.0
"""How much a line weighs in `layered` that leads to a thought with children, against one to a leaf: what
a search followed is drawn straight."""

SPREAD = 2.0
"""How wide `layered` may be, in widths of the widest level: with no room at all, lines get long."""

ROUNDS = 4
"""How often `layered` goes up and down the levels. Further rounds hardly move a node."""


def layered(parents: Sequence[int] | NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Places as `tidy` gives them, at most twice as wide as the widest level: for wide beams and
    deep paths."""
    count = len(parents)
    children, order = _children_and_order(parents)
    # From here on nodes are named by their place in `order`: a level, and the children of a node,
    # are then ranges. The root above all roots is 0 and stays in the middle, at x = 0.
    place = [0] * (count + 1)
    for at, node in enumerate(order):
        place[node] = at
    above = [0] * (count + 1)
    weight = [1.0] * (count + 1)
    below: list[range] = []
    levels = [range(1)]
    first = 1
    for at, node in enumerate(order):
        below.append(range(first, first + len(children[node])))
        first += len(children[node])
        for child in below[at]:
            above[child] = at
        if children[node]:
            weight[at] = GOES_ON
        if at == levels[-1][-1] and first > at + 1:
            levels.append(range(at + 1, first))
    room = SPREAD * max(map(len, levels))
    # The tidy drawing, made narrow enough, is where it starts from: lines are short there.
    start, y = tidy(parents)
    scale = min(1.0, room / (start.max(initial=0.0) + 1.0))
    start = (start - start.max(initial=0.0) / 2) * scale
    x = [0.0, *(float(start[node]) for node in order[1:])]

    def settle(level: range) -> None:
        """Give a level its best places between the levels above and below."""
        wanted: list[float] = []
        weights: list[float] = []
        lengths: list[int] = []
        for number, node in enumerate(level):
            total = weight[node]
            sum_x = total * x[above[node]]
            for child in below[node]:
                total += weight[child]
                sum_x += weight[child] * x[child]
            # Without their numbers, places 1 apart are places in order.
            pooled, length = sum_x - total * number, 1
            while wanted and wanted[-1] * total > pooled * weights[-1]:
                pooled += wanted.pop()
                total += weights.pop()
                length += lengths.pop()
            wanted.append(pooled)
            weights.append(total)
            lengths.append(length)
        lowest, highest = (1 - room) / 2, (room + 1) / 2 - len(level)
        number = 0
        for pooled, total, length in zip(wanted, weights, lengths, strict=True):
            middle = min(max(pooled / total, lowest), highest)
            for _ in range(length):
                x[level[number]] = middle + number
                number += 1

    for _ in range(ROUNDS):
        for level in reversed(levels[1:]):
            settle(level)
        for level in levels[1:]:
            settle(level)
    if not count:
        return start, y
    drawn = np.array(x)[place[:count]]
    return drawn - drawn.min(), y
