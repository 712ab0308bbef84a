"""The place of an expansion: the thought that gets children, and what its earlier expansions have used."""

from __future__ import annotations

from dataclasses import dataclass, field

from tot_lab.core.calls import Reply
from tot_lab.core.task import Path
from tot_lab.core.tree import Tree


@dataclass(slots=True)
class Place:
    """Where children are added, and what earlier expansions of the same thought have used.

    Only one expansion of a thought runs at a time, and it owns the thought's place.
    """

    node: str
    """The thought that gets children."""

    path: Path
    """The texts from the first step to `node`, as in `Tree.texts`."""

    depth: int = 0
    """Thoughts above the children, without the root."""

    open: bool = False
    """Whether the children continue the last text of `path`."""

    next_child: int = 0
    """Number of the next child. Further expansions continue from it."""

    counted: int = 0
    """Children of the thought that `next_child` and `children` take into account."""

    samples: dict[str, int] = field(default_factory=dict)
    """The next sample index by purpose, for calls made for `node`."""

    children: dict[str, int] = field(default_factory=dict)
    """The numbers of the children by text. Of equal texts, the first counts."""

    texts: list[str] = field(default_factory=list)
    """The texts of all children that expansions have made, repeats included."""

    sources: tuple[str, ...] = ()
    """Further thoughts that the children continue (aggregation)."""

    source_paths: tuple[Path, ...] = ()
    """The paths of `sources`."""

    replies: dict[int, Reply] = field(default_factory=dict)
    """The reply that made a child alone, by the child's number, if the search needs its log-probabilities."""

    ended: dict[int, str] = field(default_factory=dict)
    """Why the text of a child is the end of a reply, by the child's number: `cut` at the most tokens, `open`
    after the tokens of a step, or `end of reply` if the model ended a reply that continues the path."""

    @classmethod
    def of(cls, tree: Tree, id: str) -> Place:
        """The place below the thought `id`."""
        node = tree[id]
        return cls(id, tree.texts(id), len(tree.steps) + node.depth, node.open)

    def path_to(self, text: str) -> Path:
        """The path that ends with a child of this text. An empty one is no step."""
        if self.open:
            return [*self.path[:-1], self.path[-1] + text]
        return [*self.path, text] if text else self.path

    def take_sample_index(self, purpose: str) -> int:
        """An index that no earlier call of that purpose has used for this thought."""
        index = self.samples.get(purpose, 0)
        self.samples[purpose] = index + 1
        return index
