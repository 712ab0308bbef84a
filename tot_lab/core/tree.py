"""The tree of thoughts, folded from records.

The tree is never stored. A search builds its own by adding the records that it yields; `Tree.of(run.events)`
builds an equal one. All work is linear in the number of records and nothing recurses, so chains of any depth
work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from tot_lab.core.bulk import gc_paused
from tot_lab.core.records import Decided, Record, Scored, Thought


def format_score(score: float) -> str:
    """Return a score with three significant digits and without an exponent, as in the explorer."""
    return f"{Decimal(f'{score:.3g}'):f}"


@dataclass(slots=True)
class Node:
    """One thought with its score and decision.

    Attributes:
        depth: Steps below the root of the tree.
        order: Position among all thoughts, in the order of proposal (0 = first).
        source: Thoughts it was made from besides its parent.
        depends: Thoughts that must be finished before it.
        open: Whether the thoughts below continue its text, even in the middle of a word.
        score: 0 to 1. `None` if it was not evaluated or could not be read.
        raw: `Scored.raw` of the evaluation.
        samples: `Scored.samples` of the evaluation.
        by: `Scored.by` of the evaluation. Empty if the thought was not evaluated.
        state: The last decision (`Decision`). Before it, `unreadable` if its score could not be read, else
            `proposed`.
        reason: The rule behind the decision.
        merged: The earlier thought with the same state, for a merged thought.
    """

    id: str
    parent: str | None
    text: str
    depth: int
    order: int
    source: tuple[str, ...] = ()
    depends: tuple[str, ...] = ()
    open: bool = False
    children: list[str] = field(default_factory=list)
    score: float | None = None
    raw: float | None = None
    samples: tuple[float | None, ...] = ()
    by: str = ""
    state: str = "proposed"
    reason: str = ""
    merged: str | None = None

    @property
    def rank(self) -> float:
        """The score for ordering thoughts. Thoughts without a score come last."""
        return -1.0 if self.score is None else self.score

    @property
    def unreadable(self) -> bool:
        """Whether it was evaluated and no sample could be read."""
        return self.score is None and self.by != ""


class Tree:
    """Nodes by id, in the order in which they were proposed.

    Args:
        steps: Steps taken before the root (`Task.steps`). The texts of every path begin with them.
    """

    def __init__(self, steps: Sequence[str] = ()) -> None:
        self.steps = steps
        self.nodes: dict[str, Node] = {}
        self.roots: list[str] = []
        self.closing: set[str] = set()
        """Ids of the empty thoughts which record that the model ended a reply."""

    @classmethod
    @gc_paused()
    def of(cls, records: Iterable[Record]) -> Tree:
        """Build the tree of `records`.

        Raises:
            ValueError: For a repeated id.
            KeyError: For an id that no earlier thought has, such as that of a parent.
        """
        tree = cls()
        for record in records:
            tree.add(record)
        return tree

    def add(self, record: Record) -> None:
        """Add one record. Records that do not concern the tree are ignored."""
        if type(record) is Thought:
            if record.id in self.nodes:
                raise ValueError(f"thought {record.id!r} is recorded twice")
            depth = 0
            if record.parent is None:
                self.roots.append(record.id)
            else:
                parent = self[record.parent]
                parent.children.append(record.id)
                depth = parent.depth + 1
            self.nodes[record.id] = Node(
                record.id,
                record.parent,
                record.text,
                depth,
                len(self.nodes),
                record.source,
                record.depends,
                record.open,
            )
        elif type(record) is Scored:
            node = self[record.id]
            node.score, node.raw, node.samples = record.score, record.raw, record.samples
            node.by = record.by
            if record.score is None and node.state == "proposed":
                node.state = "unreadable"
        elif type(record) is Decided:
            node = self[record.id]
            node.state, node.reason = record.what, record.reason
            if record.what == "complete" and record.reason and not node.text:
                self.closing.add(record.id)
            if record.other is not None:
                node.merged = record.other

    def __getitem__(self, id: str) -> Node:
        try:
            return self.nodes[id]
        except KeyError:
            raise KeyError(f"no thought {id!r} in this tree") from None

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes.values())

    def __contains__(self, id: object) -> bool:
        return id in self.nodes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tree) and self.nodes == other.nodes

    __hash__ = None  # type: ignore[assignment]  # a tree is mutable

    def __repr__(self) -> str:
        return f"<Tree of {len(self)} thoughts>"

    @property
    def root(self) -> Node:
        """The first thought. Raises ValueError for an empty tree."""
        if not self.roots:
            raise ValueError("this tree has no thought yet")
        return self.nodes[self.roots[0]]

    def path(self, id: str) -> list[Node]:
        """The nodes from the root to `id`, both included."""
        nodes = [self[id]]
        while (parent := nodes[-1].parent) is not None:
            nodes.append(self.nodes[parent])
        nodes.reverse()
        return nodes

    def texts(self, id: str) -> list[str]:
        """The path to `id` as domains receive it: the earlier steps, and the thoughts below the root.

        The empty thought which records that the model ended a reply is not a step, and an `open` thought and
        the next one are one step.
        """
        texts, is_open = list(self.steps), False
        for node in self.path(id)[1:]:
            if is_open:
                texts[-1] += node.text
            elif node.id not in self.closing:
                texts.append(node.text)
            is_open = node.open
        return texts

    def below(self, id: str) -> list[str]:
        """The id of a thought and those of all thoughts below it."""
        ids = [id]
        for parent in ids:
            ids += self[parent].children
        return ids

    def leaves(self) -> list[Node]:
        """The nodes without children."""
        return [node for node in self if not node.children]
