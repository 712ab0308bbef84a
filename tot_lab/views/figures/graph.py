"""A run as a graph, for networkx, GraphML and the tree figures.

Each thought is a node, and its known properties are attributes. Unknown properties have no attribute. No
attribute is `None` or a list, so that the graph can be written as GraphML.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tot_lab.analysis.frames import judgement_of, state_of, usage_by_node
from tot_lab.core.tree import Node, Tree
from tot_lab.record.run import Run, Usage
from tot_lab.views.figures.theme import printable
from tot_lab.views.figures.verdict import correctness, grade_words

if TYPE_CHECKING:
    import networkx

LINKS = ("merged", "source", "depends")
"""Kinds of edges besides `child`. Figures draw them dashed."""


class Parts(NamedTuple):
    """The parts of a graph, without networkx.

    Attributes:
        nodes: Attributes of each node.
        edges: One tuple (from, to, kind) per edge.
        about: Attributes of the graph.
        left_out: Number of nodes that were not selected.
    """

    nodes: dict[Any, Mapping[str, Any]]
    edges: list[tuple[Any, Any, str]]
    about: Mapping[str, Any]
    left_out: int = 0


def graph_of(run: Run | Tree) -> networkx.DiGraph[str]:
    """Return the thoughts of a run or a tree, and the links between them, as a networkx graph.

    `networkx.write_graphml` accepts the graph. Nodes are ids such as `0.1`. They have these attributes, of
    which unknown ones are left out:

    - `text`, `state`, `reason`, `by` (str), `score` (float, 0–1) and `raw` (float, in the units of the
      evaluator): as in `run.nodes_df()`
    - `samples` and `unreadable_samples` (int): number of samples of the evaluation, and how many of them
      could not be read
    - `depth` (int): steps below the root
    - `order` (int): position in the record, starting at 0
    - `on_solution_path` (bool): whether the thought is on the path to the answer
    - `calls`, `input_tokens`, `output_tokens`, `tokens` (int) and `cost`, `paid` (float, USD): totals of the
      calls made at this node. A `Tree` without a run has none of them.

    The attribute `kind` of an edge is one of:

    - `child`: from a parent to its child
    - `source`: from a thought to a thought that was made from it
    - `depends`: from a thought to a thought that requires it
    - `merged`: from a thought to the thought with the same state into which it was merged

    There is at most one edge from one thought to another. If several kinds apply, the edge has the kind that
    is listed first. The graph has the attributes `question`, `strategy`, `answer`, `stopped`, `correct`
    (bool), `verdict` (the grade in words), `score`, `simulated` and `model_note`; unknown ones are left out.
    Characters that XML does not allow are removed from texts.
    """
    import networkx as nx  # noqa: PLC0415  the repr of a run must not import it

    parts = parts_of(run)
    graph: networkx.DiGraph[str] = nx.DiGraph(**parts.about)
    for id, attributes in parts.nodes.items():
        graph.add_node(id, **attributes)
    for start, end, kind in parts.edges:
        graph.add_edge(start, end, kind=kind)
    return graph


def parts_of(run: Run | Tree, most: int | None = None) -> Parts:
    """Return the nodes, edges and attributes of the graph of a run or a tree.

    Args:
        run: The run or tree.
        most: Maximum number of nodes, which `most_relevant` selects. `None` is no limit.
    """
    tree = run if isinstance(run, Tree) else run.tree
    path = set(solution_path(run))

    def rank(id: str) -> tuple[bool, bool, float]:
        node = tree[id]
        return relevance(node.state, judgement_of(node).score, on_path=id in path)

    chosen = most_relevant(tree.nodes, lambda id: tree[id].parent, rank, most)
    usage = {} if isinstance(run, Tree) else usage_by_node(run, chosen)
    nodes: dict[Any, Mapping[str, Any]] = {}
    edges: dict[tuple[Any, Any], str] = {}
    links: list[tuple[str, str, str]] = []
    for node in map(tree.__getitem__, chosen):
        known = _node_attributes(node, usage.get(node.id))
        nodes[node.id] = {**known, "on_solution_path": node.id in path}
        if node.parent is not None:
            edges[node.parent, node.id] = "child"
        links += [(other, node.id, "source") for other in node.source]
        links += [(other, node.id, "depends") for other in node.depends]
        if node.merged is not None:
            links.append((node.id, node.merged, "merged"))
    for kind in ("source", "depends", "merged"):
        for start, end, its_kind in links:
            if its_kind == kind and start in nodes and end in nodes:
                edges.setdefault((start, end), kind)
    about = {} if isinstance(run, Tree) else _graph_attributes(run)
    return Parts(nodes, [(*ends, kind) for ends, kind in edges.items()], about, len(tree) - len(nodes))


def most_relevant(
    ids: Iterable[Any],
    parent_of: Callable[[Any], Any],
    rank: Callable[[Any], tuple[bool, bool, float]],
    most: int | None,
) -> list[Any]:
    """Select at most `most` thoughts: those of the lowest rank, and all their ancestors.

    If the path to the last of them does not fit, only its upper part is selected. The ids stay in their
    order, and of equal ranks the earlier is selected.
    """
    ids = list(ids)
    if most is None or len(ids) <= most:
        return ids
    chosen: set[Any] = set()
    for id in sorted(ids, key=rank):
        path: dict[Any, None] = {}
        while id is not None and id not in chosen and id not in path:
            path[id] = None
            id = parent_of(id)
        chosen.update(list(path)[::-1][: most - len(chosen)])
        if len(chosen) == most:
            break
    return [id for id in ids if id in chosen]


def relevance(state: str, score: float | None, *, on_path: bool) -> tuple[bool, bool, float]:
    """Return the rank of a thought: thoughts on the path to the answer come first, then those that were kept,
    then those with the highest scores."""
    known = math.inf if score is None or math.isnan(score) else -score
    return not on_path, state not in ("kept", "complete", "answer"), known


def solution_path(run: Run | Tree) -> list[str]:
    """Return the ids from the root to the thought with the answer, or an empty list if there is no answer.

    A `Tree` without a run does not contain the answer. The path then leads to the best thought that the
    search marked as an answer.
    """
    if isinstance(run, Run):
        return run.solution_path
    solutions = [node for node in run if node.state == "answer"]
    if not solutions:
        return []
    return [node.id for node in run.path(max(solutions, key=lambda node: node.rank).id)]


def _node_attributes(node: Node, usage: Usage | None) -> dict[str, Any]:
    score, raw, by = judgement_of(node)
    found: dict[str, Any] = {
        "text": printable(node.text),
        "depth": node.depth,
        "order": node.order,
        "state": state_of(node),
        "reason": printable(node.reason) or None,
        "by": printable(by or "") or None,
        "score": None if score is None else float(score),
        "raw": None if raw is None else float(raw),
        "samples": len(node.samples) or None,
        "unreadable_samples": node.samples.count(None) if node.samples else None,
    }
    if usage is not None:
        tokens = (usage.input_tokens, usage.output_tokens)
        found["calls"] = usage.calls
        found["input_tokens"], found["output_tokens"] = tokens
        found["tokens"] = None if None in tokens else sum(count or 0 for count in tokens)
        found["cost"] = None if usage.cost is None else float(usage.cost)
        found["paid"] = None if usage.paid is None else float(usage.paid)
    return {name: value for name, value in found.items() if value is not None}


def _graph_attributes(run: Run) -> dict[str, Any]:
    about = {
        "question": printable(run.question),
        "strategy": printable(run.name),
        "answer": printable(run.answer) if run.stop_reason else None,
        "stopped": run.stop_reason,
        "correct": correctness(run),
        "verdict": grade_words(run) if run.stop_reason else None,
        "score": None if run.score is None else float(run.score),
        "simulated": run.simulated,
        "model_note": run.model_note or None,
    }
    return {name: value for name, value in about.items() if value is not None}
