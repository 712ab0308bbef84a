"""Why a run failed, in one sentence."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from decimal import Decimal

from tot_lab.analysis.diagnosis import Diagnosis, Finding, seen_at_once
from tot_lab.analysis.judging import Blamed, blame_of
from tot_lab.core.tree import Node
from tot_lab.record.run import Run

NAMED = 3
"""Maximum number of thoughts that the sentence names. `nodes` has all of them."""


def first_findings(run: Run) -> Diagnosis:
    """Return the findings about a run, beginning with why it failed. A loaded run that was not graded yet is
    not graded.
    """
    why = why_it_failed(run)
    return Diagnosis([*([why] if why else []), *seen_at_once(run)])


def why_it_failed(run: Run) -> Finding | None:
    """Return where a failed run was lost, according to `judge_evaluator`.

    If nothing says which thoughts could still lead to a correct answer (a solver of the domain, a reference,
    marks), the finding names the pruned thoughts with the highest scores. Returns `None` if the run did not
    fail, or has not ended.
    """
    blamed = blame_of(run)
    if blamed is None:
        return None
    nodes = [run.tree[id] for id in blamed.nodes]
    text = _sentence(run, blamed, nodes)
    if text is None:
        pruned = [node for node in run.tree if node.state == "pruned" and node.score is not None]
        nodes = heapq.nlargest(NAMED, pruned, key=lambda node: node.rank)
        if not nodes:
            return None
        text = f"It is not known where. The best of the pruned thoughts: {_ids(nodes, scores=True)}."
    return Finding("why_it_failed", text, tuple(node.id for node in nodes))


def _sentence(run: Run, blamed: Blamed, nodes: Sequence[Node]) -> str | None:
    match blamed.on:
        case "unsolvable":
            return "No answer to this question can be right."
        case "answerer":
            return f"Answer: {_ids(nodes)} holds a right answer, and another one was given."
        case "proposer":
            return f"Proposer: no child of {_ids(nodes)} could still lead to a right answer."
        case "cut short":
            return (
                f"Cut short: {_ids(nodes)} could still lead to a right answer, and was not expanded "
                f"before the end ({run.stop_reason})."
            )
        case "evaluator" if all(node.state == "pruned" for node in nodes):
            which = "the right thought" if len(nodes) == 1 else "the right thoughts"
            was = "was" if len(nodes) == 1 else "were"
            return f"Evaluator: {which} {_ids(nodes, scores=True)} {was} pruned."
        case "evaluator" if run.best is not None and blamed.nodes == (run.best.id,):
            return f"Evaluator: {_ids(nodes, scores=True)} is wrong, and was accepted as the answer."
        case "evaluator":
            return f"Evaluator: {_ids(nodes, scores=True)} could lead to a right answer, and was given up."
    return None


def _ids(nodes: Sequence[Node], *, scores: bool = False) -> str:
    """Name up to `NAMED` thoughts."""
    names = [f"{node.id}{_score(node) if scores else ''}" for node in nodes[:NAMED]]
    more = len(nodes) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


def _score(node: Node) -> str:
    """Format the score of a thought with three significant digits, as the explorer does."""
    return "" if node.score is None else f" (score {Decimal(f'{node.score:.3g}'):f})"
