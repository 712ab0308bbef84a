"""Answers: which thought of a finished search is the answer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import ClassVar

from tot_lab.core.parts import Part
from tot_lab.core.records import id_key
from tot_lab.core.task import Path, Task
from tot_lab.core.tree import Node, Tree
from tot_lab.strategies.search.sampling import Count


class AnswerRule(Part):
    """Chooses the answer of a finished search.

    If a budget ends the search before any score arrived, the first of the deepest unscored thoughts is the
    answer, without a score. Thoughts whose path contains an answer take precedence. A search that returns its
    answer itself, such as A*, needs the rule only if it is stopped before it has an answer.
    """

    kind: ClassVar[str] = ""
    any_text: ClassVar[bool] = True
    """Whether the text of a thought counts as the answer if the domain reads no answer from its path."""

    top_k: Count = 3
    """The most leaves listed in the result, best first."""

    def order(self, nodes: Sequence[Node], leaves: Sequence[Node]) -> Sequence[Node]:
        """The thoughts that may be the answer, in order of preference.

        Args:
            nodes: The thoughts to choose from, which are neither failed nor duplicates; see `candidates`.
            leaves: Those with a finished path, or if there are none those without children, by score, then
                depth, then id. A leaf is repeated for each of its `SearchState.copies`.
        """
        raise NotImplementedError(f"the answer rule {self.kind!r} does not define `order`")

    def choose(
        self, task: Task, tree: Tree, nodes: Sequence[Node], leaves: Sequence[Node]
    ) -> tuple[str, Node | None]:
        """The answer and the thought that gives it, or "" and `None` if there is no answer."""
        return first_answer(task, tree, self.order(nodes, leaves), any_text=self.any_text)


class BestPath(AnswerRule):
    """The best-scored thought whose path contains an answer. Ties go to the first proposed."""

    any_text: ClassVar[bool] = False

    def order(self, nodes: Sequence[Node], leaves: Sequence[Node]) -> Sequence[Node]:
        return sorted(nodes, key=lambda node: -node.rank)


class Best(AnswerRule):
    """The best-scored thought anywhere in the tree. Ties go to the first proposed.

    With `evaluate=tl.evaluators.RewardModel(…)` and `stop=tl.Stop(depth=1)`, this is best of N by reward.
    """

    def order(self, nodes: Sequence[Node], leaves: Sequence[Node]) -> Sequence[Node]:
        return sorted(nodes, key=lambda node: -node.rank)


class BestLeaf(AnswerRule):
    """The best-scored leaf. Ties go to the deeper leaf, then the first proposed."""

    def order(self, nodes: Sequence[Node], leaves: Sequence[Node]) -> Sequence[Node]:
        return leaves


class Deepest(AnswerRule):
    """The deepest thought, whatever its score. Ties go to the first proposed."""

    def order(self, nodes: Sequence[Node], leaves: Sequence[Node]) -> Sequence[Node]:
        return sorted(nodes, key=lambda node: -node.depth)


def candidates(sound: Sequence[Node], finished: Collection[str]) -> tuple[Sequence[Node], list[Node]]:
    """The thoughts and the leaves among which a rule chooses: those of finished paths, if there are any.

    Args:
        sound: The thoughts that are neither failed nor duplicates.
        finished: Ids of thoughts whose path is finished. Pruned ones are used only if all are pruned.
    """
    chosen = [node for node in sound if node.id in finished]
    chosen = [node for node in chosen if node.state != "pruned"] or chosen
    leaves = [*chosen] or [node for node in sound if not node.children]
    leaves.sort(key=lambda node: (-node.rank, -node.depth, id_key(node.id)))
    return chosen or sound, leaves


def finished_answer(task: Task, path: Path) -> str | None:
    """The answer that the domain reads from `path`. `None` if it reads none, or calls the path incomplete."""
    answer = task.domain.answer(task, path)
    return None if task.domain.complete(task, path) is False else answer


def finished(task: Task, tree: Tree, leaves: Iterable[Node]) -> list[tuple[str, Node]]:
    """The answers of the finished paths that the search did not prune, each with its thought."""
    found = [(finished_answer(task, tree.texts(leaf.id)), leaf) for leaf in leaves if leaf.state != "pruned"]
    return [(answer, leaf) for answer, leaf in found if answer is not None]


def first_answer(task: Task, tree: Tree, nodes: Iterable[Node], *, any_text: bool) -> tuple[str, Node | None]:
    """The answer of the first of `nodes` whose path contains one, and that thought; or "" and `None`.

    Args:
        any_text: Whether the text of a thought counts as the answer if its path contains none.
    """
    for node in nodes:
        held = task.domain.answer(task, tree.texts(node.id))
        if held is not None or any_text:
            return node.text if held is None else held, node
    return "", None
