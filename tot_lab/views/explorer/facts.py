"""What the browser shows about a run in addition to its records. It is computed after the tree is drawn."""

from __future__ import annotations

from typing import Any

import msgspec

from tot_lab.analysis.blame import labels_of, right_not_chosen
from tot_lab.analysis.outside import from_outside
from tot_lab.analysis.why import blame_and_findings
from tot_lab.core.calls import Call, readable
from tot_lab.core.records import Note, Thought, id_key
from tot_lab.core.tools import TOOL
from tot_lab.lab.plan_store import PlanFold
from tot_lab.record.run import Run
from tot_lab.strategies.plans import Plan, PlanStep
from tot_lab.views.explorer.recording import truncate


def facts_of(run: Run) -> dict[str, Any]:
    """Return what the browser shows about the thoughts of a run in addition to its records.

    Returns:
        `blame`, the component to blame for a failure, or `None`; `findings`, beginning with why the run
        failed; `marks` of a person, by thought id; `outside`, the tool that fetched the text of a thought
        from outside, by thought id; `right`, the ids of thoughts with a right answer that was not chosen;
        `solvable`, one character per thought in the order of the record: `1` if it could still lead to a
        right answer, `0` if it could not, `?` if that is unknown, or "" if it is unknown for all; `plans`,
        every version of every plan, ordered by the thought that made the plan and then by version.
    """
    blamed, findings = blame_and_findings(run)
    labels = labels_of(run)
    ids = [line.e.id for line in run.lines if isinstance(line.e, Thought)]
    return {
        "blame": blamed and blamed.on,
        "findings": [finding._asdict() for finding in findings],
        "marks": msgspec.to_builtins(run.marks),
        "outside": from_outside(run),
        "plans": _plan_versions(run),
        "right": right_not_chosen(run),
        "solvable": "".join("01"[labels[id]] if id in labels else "?" for id in ids) if labels else "",
    }


def _plan_versions(run: Run) -> list[dict[str, Any]]:
    """Return every version of the plans of a run. Each step has the last state that it had in that version.

    `changes` lists the states of a step in that version. Each has the number of the journal line at which the
    step entered the state. `reviews` lists the thoughts that reviewed that version, each with the number of
    the journal line of the review.
    """
    fold = PlanFold(run.header)
    versions: dict[tuple[str, int], Plan] = {}
    changes: dict[tuple[str, int], dict[str, list[tuple[int, str]]]] = {}
    reviews: dict[tuple[str, int], list[tuple[str, int]]] = {}
    given: dict[str, str] = {}  # by thought: the arguments of its last tool call
    for number, line in enumerate(run.lines):
        if isinstance(line.e, Call) and line.e.purpose == TOOL and line.e.messages:
            given[line.e.node] = truncate(line.e.messages[-1].content)
        elif isinstance(line.e, Note) and line.e.name == "plan.reflected":
            data = line.e.data
            reviews.setdefault((line.e.at, data["version"]), []).append((data["node"], number))
        for node in fold.add(line):
            plan = fold.plans[node]
            versions[node, plan.version] = plan
            known = changes.setdefault((node, plan.version), {})
            for step in plan.steps:
                states = known.setdefault(step.id, [])
                if not states or states[-1][1] != step.status:
                    states.append((number, step.status))
    return [
        {
            "node": node,
            "goal": readable(plan.goal),
            "version": version,
            "status": plan.status if version == fold.plans[node].version else "replaced",
            "steps": [
                {
                    **_plan_step(step),
                    "given": given.get(step.node),
                    "changes": changes[node, version][step.id],
                }
                for step in plan.steps
            ],
            "reviews": reviews.get((node, version), []),
        }
        for (node, version), plan in sorted(
            versions.items(), key=lambda item: (id_key(item[0][0]), item[0][1])
        )
    ]


def _plan_step(step: PlanStep) -> dict[str, Any]:
    started, completed = step.started_at, step.completed_at
    return {
        **{
            "id": readable(step.id),
            "title": truncate(step.title or step.instruction),
            "status": step.status,
        },
        **{"depends": list(step.depends_on), "node": step.node, "tool": step.tool_name},
        **{"error": step.error and truncate(step.error), "result": step.result and truncate(step.result)},
        "retries": step.retries,
        "seconds": None if started is None or completed is None else completed - started,
    }
