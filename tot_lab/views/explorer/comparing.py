"""Alignment of two runs: pairs of corresponding thoughts, and their differences.

Roots are matched with roots, and the children of two matched thoughts with each other. Children with equal
text are matched first: those with equal numbers, then the others in ascending order of their numbers. Then
the remaining children with equal numbers are matched. A thought with an empty text is matched only by its
number. Descendants of an unmatched thought are unmatched. The number of a thought is the last part of its id.

`js/align.js` implements the same algorithm for the explorer. A test compares both.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from tot_lab.analysis.frames import judgement_of
from tot_lab.core.bulk import gc_paused
from tot_lab.core.tree import Node, Tree
from tot_lab.record.run import Run

if TYPE_CHECKING:
    import pandas

DifferenceKind: TypeAlias = Literal["only-a", "only-b", "text", "score", "state"]

KINDS: tuple[DifferenceKind, ...] = ("only-a", "only-b", "text", "score", "state")
"""Kinds of differences. `only-a` and `only-b` are branches that only the first or only the second run has.
The others state in which field two matched thoughts differ."""


class Difference(NamedTuple):
    """One difference between two runs."""

    kind: DifferenceKind
    a: str | None
    """Id of the thought in the first run. `None` if the run lacks it."""

    b: str | None
    """Id of the thought in the second run. `None` if the run lacks it."""

    size: int
    """Number of thoughts in a branch that only one run has, else 1."""


class Alignment(NamedTuple):
    """The result of aligning two runs."""

    pairs: dict[str, str]
    """Maps the ids of matched thoughts of the first run to those of the second run."""

    differences: list[Difference]
    """All differences, depth first."""


@gc_paused()
def align(a: Run, b: Run) -> Alignment:
    """Align two runs, finished or not. The time is linear in the number of thoughts."""
    trees = (a.tree, b.tree)
    sizes = [_sizes(tree) for tree in trees]
    pairs: dict[str, str] = {}
    differences: list[Difference] = []
    waiting = _match(*(_sort_by_number(tree, tree.roots) for tree in trees))
    while waiting:
        one, other = waiting.pop()
        if one is None or other is None:
            if one is not None:
                differences.append(Difference("only-a", one.id, None, sizes[0][one.id]))
            elif other is not None:
                differences.append(Difference("only-b", None, other.id, sizes[1][other.id]))
            continue
        pairs[one.id] = other.id
        for kind, differs in (
            ("text", one.text != other.text),
            ("score", judgement_of(one).score != judgement_of(other).score),
            ("state", one.state != other.state),
        ):
            if differs:
                differences.append(Difference(kind, one.id, other.id, 1))  # type: ignore[arg-type]
        if one.children or other.children:
            waiting += _match(
                _sort_by_number(trees[0], one.children), _sort_by_number(trees[1], other.children)
            )
    return Alignment(pairs, differences)


def differences(a: Run, b: Run) -> pandas.DataFrame:
    """Return one row per difference between two runs, depth first.

    A thought that differs in several ways has several rows. The columns:

    - kind: category. `only-a` or `only-b` (a branch that only one run has, represented by its top thought),
      `text`, `score` or `state`
    - a, b: string, ids of the thought in the two runs, NA if a run lacks it
    - thoughts: Int64, number of thoughts in a branch that only one run has, else 1
    - text_a, text_b: string, NA if missing
    - score_a, score_b: Float64, NA if missing
    - state_a, state_b: string, NA if missing
    """
    import pandas as pd  # noqa: PLC0415  keeps the explorer's import fast

    rows = align(a, b).differences
    nodes = [
        [None if id is None else tree[id] for id in ids]
        for tree, ids in ((a.tree, [row.a for row in rows]), (b.tree, [row.b for row in rows]))
    ]
    columns = {
        "kind": pd.Series([row.kind for row in rows], dtype=pd.CategoricalDtype(list(KINDS))),
        "a": pd.Series([row.a for row in rows], dtype="string"),
        "b": pd.Series([row.b for row in rows], dtype="string"),
        "thoughts": pd.Series([row.size for row in rows], dtype="Int64"),
    }
    values: list[tuple[str, str, Callable[[Node], Any]]] = [
        ("text", "string", attrgetter("text")),
        ("score", "Float64", lambda node: judgement_of(node).score),
        ("state", "string", attrgetter("state")),
    ]
    for name, dtype, value in values:
        for run, its in zip("ab", nodes, strict=True):
            columns[f"{name}_{run}"] = pd.Series([node and value(node) for node in its], dtype=dtype)
    return pd.DataFrame(columns)


def _match(nodes_a: list[Node], nodes_b: list[Node]) -> list[tuple[Node | None, Node | None]]:
    """Pair the siblings of two runs, in descending order of their numbers.

    An unmatched thought is paired with `None`.
    """
    match: dict[str, Node] = {}
    matched_b: set[str] = set()

    def match_by(key: Callable[[Node], Hashable]) -> None:
        candidates: dict[Hashable, list[Node]] = {}
        for node in reversed(nodes_b):
            node_key = key(node)
            if node.id not in matched_b and node_key is not None:
                candidates.setdefault(node_key, []).append(node)
        for node in nodes_a:
            equal = candidates.get(key(node))
            if node.id not in match and equal:
                found = match[node.id] = equal.pop()
                matched_b.add(found.id)

    match_by(lambda node: (_number(node), node.text) if node.text else None)
    match_by(lambda node: node.text or None)
    match_by(_number)
    pairs: list[tuple[Node | None, Node | None]] = [(node, match.get(node.id)) for node in nodes_a]
    pairs += [(None, node) for node in nodes_b if node.id not in matched_b]

    def sort_key(pair: tuple[Node | None, Node | None]) -> tuple[int, bool, int]:
        one, other = pair
        node = one or other
        assert node is not None
        return _number(node), one is None, node.order

    return sorted(pairs, key=sort_key, reverse=True)


def _sort_by_number(tree: Tree, ids: list[str]) -> list[Node]:
    return sorted((tree[id] for id in ids), key=_number)


def _number(node: Node) -> int:
    """Return the number at the end of the node's id, or 0 if the id does not end in a number.

    `recording.py` uses the same rule.
    """
    last = node.id.rpartition(".")[2]
    return int(last) if last.isdecimal() and last.isascii() and len(last) < 10 else 0


def _sizes(tree: Tree) -> dict[str, int]:
    """Return the number of thoughts in the branch of each thought, by id."""
    size = dict.fromkeys(tree.nodes, 1)
    for node in reversed(list(tree)):
        if node.parent is not None:
            size[node.parent] += size[node.id]
    return size
