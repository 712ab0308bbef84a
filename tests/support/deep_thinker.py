"""A model that plays Deep Think in any form."""

import json

import msgspec

import tot_lab as tl
from support import Scripted

TASK = tl.open_ended("Where should the shop keep its orders?")
NAMES = ("one file", "a database", "a queue", "a ledger", "paper")


def branches(names=NAMES[:3]):
    told = {"rationale": "It is known.", "risks": "It may not fit."}
    return json.dumps({"branches": [{"name": name, "strategy": f"Use {name}.", **told} for name in names]})


def development(name, **more):
    told = {
        "plan": f"Plan {name}.",
        "execution": "Done.",
        "solution": f"Keep them in {name}.",
        "observation": f"Checked {name}.",
        "reflection": "It held.",
        "confidence": 6,
        "strengths": [f"{name} is simple"],
        "weaknesses": [f"{name} is slow"],
    }
    return json.dumps({**told, **more})


def convergence(scores=(), names=NAMES, **more):
    """scores: of each branch, on all four criteria, by name."""
    criteria = ("correctness", "completeness", "elegance", "practicality")
    judged = [
        {"name": name, "verdict": f"{name}: fair", **dict.fromkeys(criteria, score)}
        for name, score in zip(names, scores, strict=False)
    ]
    told = {
        "evaluations": judged,
        "reflection": {
            "patterns": ["all write to disk"],
            "mistakes": ["no backup"],
            "missed": ["the tax office"],
            "insights": ["orders are few"],
        },
        "synthesis": {"solution": "Keep them in a database, with a backup.", "reasoning": "A backup helps."},
        "confidence": 7,
        "should_continue": True,
        "next_focus": "the tax office",
    }
    return json.dumps({**told, **more})


def approach_of(call):
    """The name of the approach that DEVELOP is told of."""
    return call.prompt.rpartition("<approach>\n")[2].partition("\n")[0]


def thinker(*converged, names=NAMES[:3], develop=development):
    """A model whose CONVERGE replies are `converged`, one an iteration, the last of them again and again."""
    left = list(converged or [convergence((5, 8, 2))])

    def reply(call):
        if call.purpose == "branch":
            return branches(names)
        if call.purpose == "develop":
            return develop(approach_of(call))
        return left.pop(0) if len(left) > 1 else left[0]

    return Scripted(reply)


def notes(made, name):
    return [event.data for event in made.events if isinstance(event, tl.Note) and event.name == name]


def iterations(made):
    return [msgspec.convert(data, tl.records.IterationResult) for data in notes(made, "deep_think.iteration")]


def judged(**scores):
    return [{"name": name, "score": score, "verdict": f"{name}!"} for name, score in scores.items()]


def criteria(*numbers):
    return dict(zip(("correctness", "completeness", "elegance", "practicality"), numbers, strict=True))
