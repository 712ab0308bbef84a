"""Replies of a model that plays Deep Think on one design question, for the tests of what is shown of it."""

import json
import re

import tot_lab as tl

TASK = tl.open_ended(
    "How should a team of four store the history of every order of a web shop?\n\n"
    "- 2 million orders a year\n- auditors ask for any past state\n- one PostgreSQL server"
)

APPROACHES = [
    [
        ("Event sourcing", "Store what happened, and fold it into the state."),
        ("History table", "A trigger copies each old row into a second table."),
        ("Snapshots", "Store the whole order again on each change."),
    ],
    [
        ("History table with reasons", "The trigger, and a column that says who changed what and why."),
        ("Outbox", "Write each change into an outbox, and let a worker keep the history."),
        ("System-versioned table", "Let the database keep the versions."),
    ],
    [
        ("Partitions by month", "Keep the history table small by partitions."),
        ("Archive to files", "Move what is old to files that nobody can change."),
        ("One table of versions", "Every version is a row, the newest is marked."),
    ],
]
SCORES = [[7.0, 8.5, 4.25], [9.0, 6.0, 5.5], [8.0, 6.5, 7.0]]
CONFIDENCES = [6.5, 9.0, 8.0]
VERDICTS = [
    "Every past state can be had, with little to run.",
    "Sound, but more than `four` people can look after.",
    "Grows fast, and *who* made a change is lost.",
]

SOLUTION = """\
# Decision

Keep a **history table**, filled by a trigger:

```sql
CREATE TABLE order_history (
    order_id bigint, version int, changed_by text, reason text, was jsonb,
    PRIMARY KEY (order_id, version)  -- # one row for each change
);
```

Consequences
------------

| what | cost |
|---|---|
| a past state | one row, by `order_id` and `version` |
| 2 million orders a year | about 8 GB |

1. Write the trigger, and a test that replays one order.
2. Partition by month as soon as the table passes 100 GB."""


def number_of(call: tl.Call) -> int:
    return call.sample_index + 1 if call.purpose != "develop" else iteration_of(named(call))


def named(call: tl.Call) -> str:
    return re.search(r"<approach>\n(.*)\n", call.prompt)[1]


def iteration_of(name: str) -> int:
    return next(k for k, names in enumerate(APPROACHES, 1) if name in dict(names))


def play(call: tl.Call) -> str:
    """As a large model would: three iterations, of which the second is the best."""
    number = number_of(call)
    if call.purpose == "branch":
        asked = [
            {"name": name, "strategy": strategy, "rationale": "It is known to work.", "risks": "More to run."}
            for name, strategy in APPROACHES[number - 1]
        ]
        return f"```json\n{json.dumps({'branches': asked})}\n```"
    if call.purpose == "develop":
        made = {
            "plan": "1. Schema. 2. Trigger.",
            "execution": "…",
            "solution": f"## {named(call)}\n\n{SOLUTION}",
        }
        made |= {"observation": "Every past state is there.", "reflection": "It holds.", "confidence": 7}
        return json.dumps({**made, "strengths": ["It is simple."], "weaknesses": ["It grows."]})
    names = dict(APPROACHES[number - 1])
    judged = [
        {"name": name, "correctness": score, "completeness": score, "verdict": VERDICTS[int(score) % 3]}
        for name, score in reversed([*zip(names, SCORES[number - 1], strict=True)])
    ]
    best, second, _ = (name for _, name in sorted(zip(SCORES[number - 1], names, strict=True), reverse=True))
    made = {
        "evaluations": judged,
        "reflection": {
            "patterns": ["All of them write on each change."],
            "mistakes": [f"{second} forgets who made the change."],
            "missed": ["How long the history must be kept."],
            "insights": ["One row for each change is enough.", f"Iteration {number} says so too."],
        },
        "synthesis": {
            "solution": f"{SOLUTION}\n\nThat is version {number}.",
            "reasoning": "Who made a change is a column now, and partitions keep the table small.",
            "taken": [
                {"name": best, "idea": "the trigger"},
                {"name": second, "idea": "the whole row as JSON"},
            ],
        },
        "confidence": CONFIDENCES[number - 1],
        "should_continue": number < 3,
        "next_focus": f"How it grows over {number} years.",
    }
    return json.dumps(made)
