"""Where each thought of a tree is drawn.

Rule: two drawings of the same parent array, in both of which siblings stand in order, nodes of a
level at least 1 apart, and no lines cross. Time is linear, and nothing recurses: a chain may be as
long as it likes. The browser has the same functions (`explorer/js/layout.js`), and golden files hold
the two together.

`tidy` (Buchheim, Jünger and Leipert 2002, "Improving Walker's algorithm to run in linear time")
centres parents over their first and last child and draws equal subtrees equal. The published
algorithm packs to the left; drawing the mirrored tree too and taking the middle of both makes the
mirror image of a tree the mirror image of its drawing, and keeps every other property, since each
is linear in x.

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

GOES_ON = 4.0
"""How much a line weighs in `layered` that leads to a thought with children, against one to a leaf: what
a search followed is drawn straight."""

SPREAD = 2.0
"""How wide `layered` may be, in widths of the widest level: with no room at all, lines get long."""

ROUNDS = 4
"""How often `layered` goes up and down the levels. Further rounds hardly move a node."""


def tidy(parents: Sequence[int] | NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Places for the nodes of a tree, or of several trees side by side.

    parents: for each node the index of its parent, -1 for a root. A parent may stand anywhere;
        siblings, and roots, are drawn left to right in the order of their indices.
    Returns x, in units of the distance between two siblings, the leftmost node at 0, and y, the
    depth in steps below the root. Time is linear in the number of nodes.
    Raises ValueError for an index out of range and for a cycle.
    """
    count = len(parents)
    children, order = _family(parents)
    depth = np.zeros(count + 1)
    parent_of = [count if parent == -1 else int(parent) for parent in parents] + [-1]
    for node in order[1:]:
        depth[node] = depth[parent_of[node]] + 1
    packed_left = _packed(children, parent_of, order)
    mirrored = [siblings[::-1] for siblings in children]
    packed_right = -_packed(mirrored, parent_of, order)
    x = ((packed_left + packed_right) / 2)[:count]
    return (x - x.min() if count else x), depth[:count] - 1


def layered(parents: Sequence[int] | NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Places as `tidy` gives them, at most twice as wide as the widest level: for wide beams and
    deep paths."""
    count = len(parents)
    children, order = _family(parents)
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


def _family(parents: Sequence[int] | NDArray[Any]) -> tuple[list[list[int]], list[int]]:
    """The children of each node, and all nodes breadth first; the last one is a root above all roots."""
    count = len(parents)
    children: list[list[int]] = [[] for _ in range(count + 1)]
    for node, parent in enumerate(parents):
        if not -1 <= parent < count:
            raise ValueError(f"node {node} has parent {parent}; there are {count} nodes")
        children[count if parent == -1 else parent].append(node)
    order = [count]
    for node in order:  # grows as it goes
        order.extend(children[node])
    if len(order) <= count:
        stray = min(set(range(count)) - set(order))
        raise ValueError(f"no tree: node {stray} is its own ancestor")
    return children, order


def _packed(children: list[list[int]], parent_of: list[int], order: list[int]) -> NDArray[np.float64]:
    """x of every node, packed to the left, the root at 0. The names are those of the paper."""
    count = len(parent_of)
    prelim = [0.0] * count
    mod = [0.0] * count
    change = [0.0] * count
    shift = [0.0] * count
    thread = [-1] * count
    ancestor = list(range(count))
    number = [0] * count

    def next_left(node: int) -> int:
        return children[node][0] if children[node] else thread[node]

    def next_right(node: int) -> int:
        return children[node][-1] if children[node] else thread[node]

    def apportion(node: int, left: int, first: int, default: int) -> int:
        """Push the subtree of `node` off those of its left siblings, of which `left` is the next
        and `first` the outermost."""
        inside_right, outside_right, inside_left, outside_left = node, node, left, first
        sum_ir, sum_or, sum_il, sum_ol = mod[node], mod[node], mod[left], mod[first]
        below_left, below_right = next_right(inside_left), next_left(inside_right)
        while below_left != -1 and below_right != -1:
            inside_left, inside_right = below_left, below_right
            outside_left, outside_right = next_left(outside_left), next_right(outside_right)
            ancestor[outside_right] = node
            push = prelim[inside_left] + sum_il - prelim[inside_right] - sum_ir + 1.0
            if push > 0.0:
                pushing = ancestor[inside_left]
                if parent_of[pushing] != parent_of[node]:
                    pushing = default
                share = push / (number[node] - number[pushing])
                change[node] -= share
                shift[node] += push
                change[pushing] += share
                prelim[node] += push
                mod[node] += push
                sum_ir += push
                sum_or += push
            sum_il += mod[inside_left]
            sum_ir += mod[inside_right]
            sum_ol += mod[outside_left]
            sum_or += mod[outside_right]
            below_left, below_right = next_right(inside_left), next_left(inside_right)
        if below_left != -1 and next_right(outside_right) == -1:
            thread[outside_right] = below_left
            mod[outside_right] += sum_il - sum_or
        if below_right != -1 and next_left(outside_left) == -1:
            thread[outside_left] = below_right
            mod[outside_left] += sum_ir - sum_ol
            default = node
        return default

    for parent in reversed(order):  # every child's own subtree is laid out before its parent's
        siblings = children[parent]
        if not siblings:
            continue
        default = siblings[0]
        for place, node in enumerate(siblings):
            number[node] = place
            below = children[node]
            middle = (prelim[below[0]] + prelim[below[-1]]) / 2 if below else 0.0
            if place == 0:
                prelim[node] = middle
                continue
            left = siblings[place - 1]
            prelim[node] = prelim[left] + 1.0
            if below:
                mod[node] = prelim[node] - middle
            default = apportion(node, left, siblings[0], default)
        shifted = changed = 0.0
        for node in reversed(siblings):
            prelim[node] += shifted
            mod[node] += shifted
            changed += change[node]
            shifted += shift[node] + changed
    root = order[0]
    below = children[root]
    middle = (prelim[below[0]] + prelim[below[-1]]) / 2 if below else 0.0
    x = np.zeros(count)
    above = [0.0] * count
    above[root] = -middle
    for node in order[1:]:
        parent = parent_of[node]
        x[node] = prelim[node] + above[parent]
        above[node] = above[parent] + mod[node]
    return x
