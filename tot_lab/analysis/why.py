"""Why a run failed, in one sentence."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from decimal import Decimal

from tot_lab.analysis.diagnosis import Diagnosis, Finding, seen_at_once
from tot_lab.analysis.judging import blame_of
from tot_lab.analysis.known import judged
from tot_lab.core.records import describe_stop
from tot_lab.core.tree import Node
from tot_lab.record.run import Run

NAMED = 3
"""Maximum number of thoughts that the sentence names. `nodes` has all of them."""


REPEATED = ("right_not_chosen", "unsolvable", "good_pruned")
"""Kinds of findings that say the same as the reason if they concern the same thoughts."""


def first_findings(run: Run) -> Diagnosis:
    """Return the findings about a run, beginning with why it failed. A loaded run that was not graded yet is
    not graded.
    """
    why = why_it_failed(run)
    if why is None:
        return seen_at_once(run)
    others = (
        finding
        for finding in seen_at_once(run)
        if finding.kind not in REPEATED or not {*finding.nodes} <= {*why.nodes}
    )
    return Diagnosis([why, *others])


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
    named = _ids(nodes)
    match blamed.on:
        case "unsolvable":
            nodes, text = [run.tree.root], "No answer to this question can be right."
        case "answerer":
            text = f"Answer: a right one was at {named}, and another one was given."
        case "proposer":
            text = f"Proposer: no child of {named} could still lead to a right answer."
        case "cut short":
            text = (
                f"Cut short: the search ended before it expanded {named}, which could still lead to a right "
                f"answer."
            )
        case "evaluator" if run.best is not None and blamed.nodes == (run.best.id,):
            text = f"Evaluator: accepted {named} as the answer, which is wrong."
        case "evaluator" if _scored_as_high(run, nodes):
            text = (
                f"Search: pruned {named}, which could still lead to a right answer, although a thought that "
                f"scored no better was kept."
            )
        case "evaluator":
            text = f"Evaluator: pruned {named}, which could still lead to a right answer."
        case _:
            pruned = [node for node in run.tree if node.state == "pruned" and node.score is not None]
            nodes = heapq.nlargest(NAMED, pruned, key=lambda node: node.rank)
            text = f"{_end_of(run)}. The cause is not known: nothing judges the thoughts before the answer."
            text += f" The best of the pruned ones: {_ids(nodes)}." if nodes else ""
            nodes = nodes or [run.best or run.tree.root]
    return Finding("why_it_failed", text, tuple(node.id for node in nodes))


def _scored_as_high(run: Run, pruned: Sequence[Node]) -> bool:
    """Whether the best of the pruned thoughts scored as high as a thought that was kept on its level."""
    best = max(pruned, key=lambda node: node.rank)
    level = (node for node in run.tree if node.depth == best.depth and node.state in ("kept", "complete"))
    return best.score is not None and any(node.rank <= best.rank for node in level)


def _end_of(run: Run) -> str:
    """Return how the run ended, as far as that may explain the failure."""
    stop = run.stop_reason or ""
    if stop.startswith(("budget:", "limit:")) or stop in ("error", "cancelled", "exhausted", "stagnated"):
        return f"The run {describe_stop(stop)}" + (f": {run.error[:200]}" if run.error else "")
    return "The answer is wrong" if run.answer else "There is no answer"


def _ids(nodes: Sequence[Node]) -> str:
    """Name up to `NAMED` thoughts with their scores, which have three digits as in the explorer."""
    names = [
        node.id
        if node.score is None or not judged(node)
        else f"{node.id} (score {Decimal(f'{node.score:.3g}'):f})"
        for node in nodes[:NAMED]
    ]
    more = len(nodes) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
