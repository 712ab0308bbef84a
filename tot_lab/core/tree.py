"""The tree of thoughts, folded from records.

Rule: the tree is never stored. The search builds its own by `add`ing the same records that it
yields, anybody else gets an equal one by `Tree.of(run.events)`. All work is linear in the number
of records and nothing recurses, so a chain of any depth is fine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tot_lab.core.bulk import gc_paused
from tot_lab.core.records import Decided, Record, Scored, Thought


@dataclass(slots=True)
class Node:
    """One thought and what is known of it.

    depth: steps below the tree's root. score: 0–1 or None (unread, or not evaluated).
    raw, draws, by: the evaluation as the evaluator gave it (see `Scored`).
    state: the last decision (`Decision`), "unread" when an evaluation could not be read,
        "proposed" before either. reason: the rule behind a decision. merged: the thought whose
        state this one reached. order: place in the record (0 = first).
    """

    id: str
    parent: str | None
    text: str
    depth: int
    order: int
    source: tuple[str, ...] = ()
    depends: tuple[str, ...] = ()
    children: list[str] = field(default_factory=list)
    score: float | None = None
    raw: float | None = None
    draws: tuple[float | None, ...] = ()
    by: str = ""
    state: str = "proposed"
    reason: str = ""
    merged: str | None = None

    @property
    def rank(self) -> float:
        """The score for ordering thoughts: one that has none comes after every read one."""
        return -1.0 if self.score is None else self.score

    @property
    def unread(self) -> bool:
        """True when it was evaluated and no draw could be read."""
        return self.score is None and self.by != ""


class Tree:
    """Nodes by id, in the order in which they were proposed."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.roots: list[str] = []

    @classmethod
    @gc_paused()
    def of(cls, records: Iterable[Record]) -> Tree:
        """The tree that `records` tell of. A repeated id or an unknown parent is an error that names it."""
        tree = cls()
        for record in records:
            tree.add(record)
        return tree

    def add(self, record: Record) -> None:
        """Take in one more record; those that say nothing of the tree are passed over."""
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
            )
        elif type(record) is Scored:
            node = self[record.id]
            node.score, node.raw, node.draws = record.score, record.raw, record.draws
            node.by = record.by
            if record.score is None and node.state == "proposed":
                node.state = "unread"
        elif type(record) is Decided:
            node = self[record.id]
            node.state, node.reason = record.what, record.reason
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

    __hash__ = None  # type: ignore[assignment]  # it grows

    def __repr__(self) -> str:
        return f"<Tree of {len(self)} thoughts>"

    @property
    def root(self) -> Node:
        """The first thought. An empty tree is an error."""
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
        """The texts of the thoughts from the first step to `id`: what a domain calls a path."""
        return [node.text for node in self.path(id)[1:]]

    def leaves(self) -> list[Node]:
        """The nodes without children, the root excepted unless it stands alone."""
        return [node for node in self if not node.children]
