"""A run as a graph: what networkx, GraphML and every tree picture are made from.

A thought is a node, whatever is known of it is an attribute, and what is not known has
none: no attribute is None or a list, so that the graph can be written as GraphML as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tot_lab.analysis.frames import usage_by_node
from tot_lab.core.tree import Node, Tree
from tot_lab.record.run import Run, Usage
from tot_lab.views.figures.theme import printable

if TYPE_CHECKING:
    import networkx

LINKS = ("merged", "source", "depends")
"""The kinds of links besides child; drawn dashed."""


class Parts(NamedTuple):
    """What a graph is made of: attributes by node, (from, to, kind) per edge, its own attributes."""

    nodes: dict[Any, Mapping[str, Any]]
    edges: list[tuple[Any, Any, str]]
    about: Mapping[str, Any]


def graph_of(run: Run | Tree) -> networkx.DiGraph[str]:
    """The thoughts of a run or tree and the links between them; `networkx.write_graphml` takes it.

    Nodes are ids (`0.1`). Their attributes, each left out where it is not known:

    - text, state, reason, by: as in `tot_lab.core.tree.Node` (str)
    - score (0–1), raw (float, in the evaluator's units); draws, unread_draws: how many (int)
    - depth: steps below the root; order: place in the record, from 0 (int)
    - on_solution_path: whether it leads to the answer (bool)
    - calls, input_tokens, output_tokens, tokens (both together) (int), cost, paid (USD, float): of
      the calls asked for this thought; a tree that stands alone has none

    Edges have `kind`: `child` (parent → thought), `source` (a thought it was made from → thought),
    `depends` (what must be done before → thought), `merged` (thought → the thought whose state it
    reached). Two thoughts have one edge in a direction: of several kinds the first of these.
    The graph has question, strategy, answer, stopped, score, simulated, as far as they are known.
    Characters that XML cannot hold are taken out of every text.
    """
    import networkx as nx  # noqa: PLC0415  a run's repr uses this file without it

    parts = parts_of(run)
    graph: networkx.DiGraph[str] = nx.DiGraph(**parts.about)
    for id, attributes in parts.nodes.items():
        graph.add_node(id, **attributes)
    for start, end, kind in parts.edges:
        graph.add_edge(start, end, kind=kind)
    return graph


def parts_of(run: Run | Tree) -> Parts:
    """What the graph of a run or tree is made of."""
    tree = run if isinstance(run, Tree) else run.tree
    usage = {} if isinstance(run, Tree) else usage_by_node(run)
    path = set(solution_path(run))
    nodes: dict[Any, Mapping[str, Any]] = {}
    edges: dict[tuple[Any, Any], str] = {}
    links: list[tuple[str, str, str]] = []
    for node in tree:
        known = _known(node, usage.get(node.id))
        nodes[node.id] = {**known, "on_solution_path": node.id in path}
        if node.parent is not None:
            edges[node.parent, node.id] = "child"
        links += [(other, node.id, "source") for other in node.source]
        links += [(other, node.id, "depends") for other in node.depends]
        if node.merged is not None:
            links.append((node.id, node.merged, "merged"))
    for kind in ("source", "depends", "merged"):
        for start, end, its_kind in links:
            if its_kind == kind and start in tree and end in tree:
                edges.setdefault((start, end), kind)
    about = {} if isinstance(run, Tree) else _about(run)
    return Parts(nodes, [(*ends, kind) for ends, kind in edges.items()], about)


def solution_path(run: Run | Tree) -> list[str]:
    """Ids from the root to the answer's thought; [] without one. A tree that stands alone does not
    know its answer: there it is the best of the thoughts decided to be a solution."""
    if isinstance(run, Run):
        return run.solution_path
    solutions = [node for node in run if node.state == "solution"]
    if not solutions:
        return []
    return [node.id for node in run.path(max(solutions, key=lambda node: node.rank).id)]


def _known(node: Node, usage: Usage | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "text": printable(node.text),
        "depth": node.depth,
        "order": node.order,
        "state": node.state,
        "reason": printable(node.reason) or None,
        "by": printable(node.by) or None,
        "score": None if node.score is None else float(node.score),
        "raw": None if node.raw is None else float(node.raw),
        "draws": len(node.draws) or None,
        "unread_draws": node.draws.count(None) if node.draws else None,
    }
    if usage is not None:
        tokens = (usage.input_tokens, usage.output_tokens)
        found["calls"] = usage.calls
        found["input_tokens"], found["output_tokens"] = tokens
        found["tokens"] = None if None in tokens else sum(count or 0 for count in tokens)
        found["cost"] = None if usage.cost is None else float(usage.cost)
        found["paid"] = None if usage.paid is None else float(usage.paid)
    return {name: value for name, value in found.items() if value is not None}


def _about(run: Run) -> dict[str, Any]:
    about = {
        "question": printable(run.question),
        "strategy": printable(run.name),
        "answer": printable(run.answer) if run.stop_reason else None,
        "stopped": run.stop_reason,
        "score": None if run.score is None else float(run.score),
        "simulated": run.simulated,
    }
    return {name: value for name, value in about.items() if value is not None}
