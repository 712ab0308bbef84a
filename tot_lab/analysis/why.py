"""Why a run failed, in one sentence."""

from __future__ import annotations

import heapq
import re
from collections.abc import Sequence

from tot_lab.analysis.diagnosis import Diagnosis, Finding, seen_at_once
from tot_lab.analysis.frames import calls_of, tools_of, tools_offered
from tot_lab.analysis.judging import Blamed, blame_of
from tot_lab.analysis.known import judged
from tot_lab.core.purposes import role_of
from tot_lab.core.records import describe_stop
from tot_lab.core.tools import TOOL
from tot_lab.core.tree import Node, format_score
from tot_lab.record.run import Run

NAMED = 3
"""Maximum number of thoughts that the sentence names. `nodes` has all of them."""


REPEATED = ("right_not_chosen", "unsolvable", "good_pruned")
"""Kinds of findings that say the same as the reason if they concern the same thoughts."""


def first_findings(run: Run) -> Diagnosis:
    """Return the findings about a run, beginning with why it failed. A loaded run that was not graded yet is
    not graded.
    """
    return blame_and_findings(run)[1]


def blame_and_findings(run: Run) -> tuple[Blamed | None, Diagnosis]:
    """Return the component to blame for a failed run, and the findings about the run."""
    blamed = blame_of(run)
    if blamed is None:
        return None, seen_at_once(run)
    why = _reason(run, blamed)
    others = (
        finding
        for finding in seen_at_once(run)
        if finding.kind not in REPEATED or not {*finding.nodes} <= {*why.nodes}
    )
    return blamed, Diagnosis([why, *others])


def why_it_failed(run: Run) -> Finding | None:
    """Return where a failed run was lost, according to `judge_evaluator`.

    If nothing says which thoughts could still lead to a correct answer (a solver of the domain, a reference,
    marks), the finding says what the record shows: that a wrong answer was accepted, whether a tool returned
    the right one, or which pruned thoughts have the highest scores. Returns `None` if the run did not fail,
    or has not ended.
    """
    blamed = blame_of(run)
    return None if blamed is None else _reason(run, blamed)


def _reason(run: Run, blamed: Blamed) -> Finding:
    nodes = [run.tree[id] for id in blamed.nodes]
    named = _ids(nodes)
    match blamed.on:
        case "unsolvable":
            nodes, text = [run.tree.root], "No answer to this question can be right."
        case "answerer":
            text = _not_chosen(run, nodes)
        case "proposer":
            text = f"Proposer: no child of {named} could still lead to a right answer."
        case "cut short":
            text = (
                f"Cut short: the search ended before it expanded {named}, which could still lead to a right "
                f"answer."
            )
        case "evaluator" if run.best is not None and blamed.nodes == (run.best.id,):
            text = f"Evaluator: accepted {named} as the answer, which is wrong."
        case "evaluator" if all(node.reason == "person" for node in nodes):
            text = f"Person: pruned {named}, {_hope(run, nodes)}."
        case "evaluator" if high := _scored_as_high(run, nodes):
            nodes = high
            although = "although no thought that was kept scored higher"
            text = f"Search: pruned {_ids(nodes)}, {_hope(run, nodes)}, {although}."
        case "evaluator":
            text = f"Evaluator: pruned {named}, {_hope(run, nodes)}."
        case _:
            nodes, text = _shown_by_record(run)
    return Finding("why_it_failed", text, tuple(node.id for node in nodes))


def _hope(run: Run, nodes: Sequence[Node]) -> str:
    """Return what was lost with thoughts from which a right answer could be reached."""
    task = run.task
    if task is not None and all(task.domain.complete(task, run.steps(node.id)) for node in nodes):
        return "which is right" if len(nodes) == 1 else "which are right"
    return "which could still lead to a right answer"


def _not_chosen(run: Run, right: Sequence[Node]) -> str:
    """Return why another answer than the right ones was given, as far as their scores tell."""
    given = run.best
    if given is not None and given.score is not None and judged(given):
        scores = [node.rank for node in right]
        if max(scores) < given.rank and all(node.score is not None for node in right):
            return (
                f"Evaluator: scored the right answer {_ids(right)} lower than the wrong one, {_ids([given])}."
            )
        if max(scores) == given.rank:
            equal = [node for node in right if node.rank == given.rank]
            return (
                f"Evaluator: scored the wrong answer {_ids([given])} as high as the right one, {_ids(equal)}."
            )
    return f"Answer: a right one was at {_ids(right)}, and another one was given."


def _scored_as_high(run: Run, pruned: Sequence[Node]) -> list[Node]:
    """Return the pruned thoughts that scored as high as all thoughts that were kept on their level."""
    depth = max(pruned, key=lambda node: node.rank).depth
    kept = [node for node in run.tree if node.depth == depth and node.state in ("kept", "complete")]
    most = max((node.rank for node in kept), default=None)
    return [
        node
        for node in pruned
        if most is not None and node.depth == depth and node.score is not None and node.rank >= most
    ]


def _shown_by_record(run: Run) -> tuple[list[Node], str]:
    """Return what the record shows about a failure where nothing says which thoughts could lead to a right
    answer: a wrong answer that was accepted, the results of tools, or the grades of other answers.
    """
    found = _shown_by_tools(run) if run.answer else None
    if run.answer and run.stop_reason == "solved" and run.best is not None and judged(run.best):
        text = f"Evaluator: accepted {_ids([run.best])} as the answer, which is wrong."
        return [run.best], text if found is None else f"{text} {found[1]}"
    found = found or _shown_by_grades(run)
    if found is not None:
        return found[0] or [run.best or run.tree.root], found[1]
    pruned = [node for node in run.tree if node.state == "pruned" and node.score is not None]
    best = heapq.nlargest(NAMED, pruned, key=lambda node: node.rank)
    text = f"{_end_of(run)}. The cause is not known: nothing judges the thoughts before the answer."
    text += f" The best of the pruned ones: {_ids(best)}." if best else ""
    return best or [run.best or run.tree.root], text


def _shown_by_tools(run: Run) -> tuple[list[Node], str] | None:
    """Return the thoughts whose tool calls returned the right answer, and a sentence about the results.
    `None` if no tools were offered, or the task has no right answer in words.
    """
    made = [row for row in tools_of(run) if row.call.purpose == TOOL]
    if not made:
        offered = any(tools_offered(run, row) for row in calls_of(run))
        return ([], "Proposer: called no tool before the answer.") if offered else None
    reference = None if run.task is None else run.task.reference
    if not isinstance(reference, str) or not reference.strip() or run.grades([reference]) != [1.0]:
        return None
    results = [(row.call.node, row.reply.text) for row in made if row.reply and row.reply.error is None]
    words = r"\s+".join(map(re.escape, reference.split()))
    right = re.compile(rf"(?<![\w.]){words}(?!\w|\.\w)", re.IGNORECASE)
    ids = dict.fromkeys(id for id, text in results if id in run.tree and right.search(text))
    if ids:
        nodes = [run.tree[id] for id in ids]
        return (
            nodes,
            f"Answer: the right one is in a tool result at {_ids(nodes)}, and another one was given.",
        )
    match len(results):
        case 0:
            text = "Tools: every call failed."
        case 1:
            text = "Proposer: the only tool result that it requested does not contain the right answer."
        case many:
            text = f"Proposer: none of the {many} tool results that it requested contains the right answer."
    return [], text


def _shown_by_grades(run: Run) -> tuple[list[Node], str] | None:
    """Return the best of several answers that were written and judged, and a sentence about their grades.
    `None` if fewer than two were, they cannot be graded, or the model was asked for steps of an answer.
    """
    task = run.task
    purposes = {row.call.purpose for row in calls_of(run)} - {"branch"}
    roles = {role_of(purpose) for purpose in purposes}
    if task is None or run.grade is None or "propose" in roles or roles.isdisjoint(("answer", "synthesize")):
        return None
    answers = [(node, task.domain.answer(task, run.steps(node.id))) for node in run.tree if judged(node)]
    held = [(node, answer) for node, answer in answers if answer is not None]
    grades = run.grades([answer for _, answer in held])
    graded = [(grade, node) for grade, (node, _) in zip(grades, held, strict=True) if grade is not None]
    if len(graded) < 2:
        return None
    top = max(grade for grade, _ in graded)
    best = [node for grade, node in graded if grade == top]
    if top == 1.0:
        return best, f"Answer: a right one was at {_ids(best)}, and another one was given."
    text = f"Proposer: none of the {len(graded)} answers that were written is right."
    if top <= run.grade:
        return [], text
    return best, f"{text} The best, at {_ids(best[:1])}, has the grade {top:.3g}."


def _end_of(run: Run) -> str:
    """Return how the run ended, as far as that may explain the failure."""
    stop = run.stop_reason or ""
    if stop.startswith(("budget:", "limit:")) or stop in ("error", "cancelled", "exhausted", "stagnated"):
        return f"The run {describe_stop(stop)}" + (f": {run.error[:200]}" if run.error else "")
    return "The answer is wrong" if run.answer else "There is no answer"


def _ids(nodes: Sequence[Node]) -> str:
    """Name up to `NAMED` thoughts with their scores."""
    names = [
        node.id if node.score is None or not judged(node) else f"{node.id} (score {format_score(node.score)})"
        for node in nodes[:NAMED]
    ]
    more = len(nodes) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
