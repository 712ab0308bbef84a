"""Two runs beside each other: which thought of one stands where which thought of the other does.

The explorer's, in js/align.js, and a test holds the two together. Runs are aligned by path: roots match
roots, and of two thoughts that match the children match: first those of equal text (equal number before
another, then first with first), then those of equal number. What is below a thought without a match has
none either. An empty text says nothing, and matches by its number alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from tot_lab.core.bulk import gc_paused
from tot_lab.core.tree import Node, Tree
from tot_lab.record.run import Run

if TYPE_CHECKING:
    import pandas

Kind: TypeAlias = Literal["only-a", "only-b", "text", "score", "fate"]

KINDS: tuple[Kind, ...] = ("only-a", "only-b", "text", "score", "fate")
"""How two runs differ at a thought. only-a, only-b: a branch that the other lacks; fate: another state."""


class Difference(NamedTuple):
    """One difference. a, b: ids in the two runs, `None` if one lacks the thought. size: thoughts of the
    branch that only one has, of which this is the top; else 1."""

    kind: Kind
    a: str | None
    b: str | None
    size: int


class Alignment(NamedTuple):
    """pairs: ids of thoughts of the first run to those that they match in the second. differences: in the
    order of the tree, depth first."""

    pairs: dict[str, str]
    differences: list[Difference]


@gc_paused()
def aligned(a: Run, b: Run) -> Alignment:
    """Two runs, finished or not, aligned by path; linear in their thoughts."""
    ofs = (a.tree, b.tree)
    sizes = [_sizes(tree) for tree in ofs]
    pairs: dict[str, str] = {}
    differences: list[Difference] = []
    waiting = _together(*(_ordered(tree, tree.roots) for tree in ofs))
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
            ("score", one.score != other.score),
            ("fate", one.state != other.state),
        ):
            if differs:
                differences.append(Difference(kind, one.id, other.id, 1))  # type: ignore[arg-type]
        if one.children or other.children:
            waiting += _together(_ordered(ofs[0], one.children), _ordered(ofs[1], other.children))
    return Alignment(pairs, differences)


def differences(a: Run, b: Run) -> pandas.DataFrame:
    """One row per difference between two runs, in the order of the tree, depth first.

    - kind: category, `only-a` and `only-b` (a branch that the other run lacks, told of by its top), `text`,
      `score`, `fate` (another state); a thought may differ in several
    - a, b: string, ids of the thought in the two runs, NA where one lacks it
    - thoughts: Int64, how many the branch has that only one run has, else 1
    - text_a, text_b: string; score_a, score_b: Float64; state_a, state_b: string; NA where there is none
    """
    import pandas as pd  # noqa: PLC0415  the explorer opens without it

    rows = aligned(a, b).differences
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
    for name, dtype in (("text", "string"), ("score", "Float64"), ("state", "string")):
        for which, its in zip("ab", nodes, strict=True):
            values = [None if node is None else getattr(node, name) for node in its]
            columns[f"{name}_{which}"] = pd.Series(values, dtype=dtype)
    return pd.DataFrame(columns)


def _together(ofs_a: list[Node], ofs_b: list[Node]) -> list[tuple[Node | None, Node | None]]:
    """Siblings of the two runs in pairs, the last first; those of one run alone stand by their number."""
    match: dict[str, Node] = {}
    taken: set[str] = set()

    def pair(key: Callable[[Node], Hashable]) -> None:
        known: dict[Hashable, list[Node]] = {}
        for node in reversed(ofs_b):
            its = key(node)
            if node.id not in taken and its is not None:
                known.setdefault(its, []).append(node)
        for node in ofs_a:
            alike = known.get(key(node))
            if node.id not in match and alike:
                found = match[node.id] = alike.pop()
                taken.add(found.id)

    pair(lambda node: (_number(node), node.text) if node.text else None)
    pair(lambda node: node.text or None)
    pair(_number)
    pairs: list[tuple[Node | None, Node | None]] = [(node, match.get(node.id)) for node in ofs_a]
    pairs += [(None, node) for node in ofs_b if node.id not in taken]

    def place(pair: tuple[Node | None, Node | None]) -> tuple[int, bool, int]:
        one, other = pair
        node = one or other
        assert node is not None
        return _number(node), one is None, node.order

    return sorted(pairs, key=place, reverse=True)


def _ordered(tree: Tree, ids: list[str]) -> list[Node]:
    return sorted((tree[id] for id in ids), key=_number)


def _number(node: Node) -> int:
    """The last number of its id, 0 where it ends in none (as in recording.py)."""
    last = node.id.rpartition(".")[2]
    return int(last) if last.isdecimal() and last.isascii() and len(last) < 10 else 0


def _sizes(tree: Tree) -> dict[str, int]:
    """How many thoughts the branch of each has."""
    size = dict.fromkeys(tree.nodes, 1)
    for node in reversed(list(tree)):
        if node.parent is not None:
            size[node.parent] += size[node.id]
    return size
