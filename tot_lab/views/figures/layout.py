"""Positions of the nodes of a drawn tree.

Siblings keep their order, nodes of one level are at least 1 apart, and edges do not cross. The algorithm
takes linear time and does not use recursion, so the depth of a tree is not limited. The explorer has the same
function in `explorer/js/layout.js`. A golden file tests that both agree.

The algorithm centres parents over their first and last child, and draws equal subtrees equally. In its
published form it packs nodes to the left. `tidy` averages the drawing of the tree with that of the mirrored
tree, so that mirrored trees get mirrored drawings. All other properties are linear in x, so the average keeps
them.

References:
    Buchheim, Jünger and Leipert 2002, "Improving Walker's algorithm to run in linear time".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def tidy(parents: Sequence[int] | NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute the positions of the nodes of a tree, or of several trees side by side.

    Args:
        parents: For each node the index of its parent, or -1 for a root. Parents may come after their
            children. Siblings and roots are drawn from left to right in the order of their indices.

    Returns:
        x in units of the distance between two siblings, with the leftmost node at 0, and y as the depth in
        steps below the root.

    Raises:
        ValueError: If an index is out of range, or the nodes contain a cycle.
    """
    count = len(parents)
    children, order = _children_and_order(parents)
    depth = np.zeros(count + 1)
    parent_of = [count if parent == -1 else int(parent) for parent in parents] + [-1]
    for node in order[1:]:
        depth[node] = depth[parent_of[node]] + 1
    packed_left = _pack_left(children, parent_of, order)
    mirrored = [siblings[::-1] for siblings in children]
    packed_right = -_pack_left(mirrored, parent_of, order)
    x = ((packed_left + packed_right) / 2)[:count]
    return (x - x.min() if count else x), depth[:count] - 1


def _children_and_order(parents: Sequence[int] | NDArray[Any]) -> tuple[list[list[int]], list[int]]:
    """Return the children of each node, and all nodes in breadth-first order.

    An additional node, with the highest index, is the parent of all roots.
    """
    count = len(parents)
    children: list[list[int]] = [[] for _ in range(count + 1)]
    for node, parent in enumerate(parents):
        if not -1 <= parent < count:
            raise ValueError(
                f"Invalid parent of node {node}: got {parent}. Use -1 or an index below {count}."
            )
        children[count if parent == -1 else parent].append(node)
    order = [count]
    for node in order:  # the loop extends the list
        order.extend(children[node])
    if len(order) <= count:
        stray = min(set(range(count)) - set(order))
        raise ValueError(f"The nodes contain a cycle: node {stray} is not below a root.")
    return children, order


def _pack_left(children: list[list[int]], parent_of: list[int], order: list[int]) -> NDArray[np.float64]:
    """Return the x position of every node, packed to the left, with the added root at 0."""
    packing = _Packing(children, parent_of)
    for parent in reversed(order):  # children are laid out before their parents
        packing.place_children(parent)
    root = order[0]
    x = np.zeros(len(order))
    above = [0.0] * len(order)
    above[root] = -packing.middle_of_children(root)
    for node in order[1:]:
        parent = parent_of[node]
        x[node] = packing.prelim[node] + above[parent]
        above[node] = above[parent] + packing.mod[node]
    return x


class _Packing:
    """The first walk of the algorithm, from the leaves to the root. Attributes are named as in the paper."""

    def __init__(self, children: list[list[int]], parent_of: list[int]) -> None:
        count = len(parent_of)
        self.children = children
        self.parent_of = parent_of
        self.prelim = [0.0] * count
        self.mod = [0.0] * count
        self.change = [0.0] * count
        self.shift = [0.0] * count
        self.thread = [-1] * count
        self.ancestor = list(range(count))
        self.number = [0] * count

    def middle_of_children(self, node: int) -> float:
        """Return the position halfway between the first and the last child, or 0 for a leaf."""
        below = self.children[node]
        return (self.prelim[below[0]] + self.prelim[below[-1]]) / 2 if below else 0.0

    def place_children(self, parent: int) -> None:
        """Place the subtrees of the children of `parent` side by side. They must already be laid out."""
        siblings = self.children[parent]
        default = siblings[0] if siblings else -1
        for place, node in enumerate(siblings):
            self.number[node] = place
            middle = self.middle_of_children(node)
            if place == 0:
                self.prelim[node] = middle
                continue
            left = siblings[place - 1]
            self.prelim[node] = self.prelim[left] + 1.0
            if self.children[node]:
                self.mod[node] = self.prelim[node] - middle
            default = self._apportion(node, left, siblings[0], default)
        shifted = changed = 0.0
        for node in reversed(siblings):
            self.prelim[node] += shifted
            self.mod[node] += shifted
            changed += self.change[node]
            shifted += self.shift[node] + changed

    def _apportion(self, node: int, left: int, first: int, default: int) -> int:
        """Move the subtree of `node` to the right until it does not overlap those of its left siblings.

        `left` is the nearest left sibling, `first` the outermost one. Returns the new default ancestor.
        """
        prelim, mod = self.prelim, self.mod
        inside_right, outside_right, inside_left, outside_left = node, node, left, first
        sum_ir, sum_or, sum_il, sum_ol = mod[node], mod[node], mod[left], mod[first]
        below_left, below_right = self._next_right(inside_left), self._next_left(inside_right)
        while below_left != -1 and below_right != -1:
            inside_left, inside_right = below_left, below_right
            outside_left, outside_right = self._next_left(outside_left), self._next_right(outside_right)
            self.ancestor[outside_right] = node
            push = prelim[inside_left] + sum_il - prelim[inside_right] - sum_ir + 1.0
            if push > 0.0:
                pushing = self.ancestor[inside_left]
                if self.parent_of[pushing] != self.parent_of[node]:
                    pushing = default
                self._move_subtree(pushing, node, push)
                sum_ir += push
                sum_or += push
            sum_il += mod[inside_left]
            sum_ir += mod[inside_right]
            sum_ol += mod[outside_left]
            sum_or += mod[outside_right]
            below_left, below_right = self._next_right(inside_left), self._next_left(inside_right)
        if below_left != -1 and self._next_right(outside_right) == -1:
            self.thread[outside_right] = below_left
            mod[outside_right] += sum_il - sum_or
        if below_right != -1 and self._next_left(outside_left) == -1:
            self.thread[outside_left] = below_right
            mod[outside_left] += sum_ir - sum_ol
            default = node
        return default

    def _move_subtree(self, pushing: int, node: int, push: float) -> None:
        share = push / (self.number[node] - self.number[pushing])
        self.change[node] -= share
        self.shift[node] += push
        self.change[pushing] += share
        self.prelim[node] += push
        self.mod[node] += push

    def _next_left(self, node: int) -> int:
        return self.children[node][0] if self.children[node] else self.thread[node]

    def _next_right(self, node: int) -> int:
        return self.children[node][-1] if self.children[node] else self.thread[node]
