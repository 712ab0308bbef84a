"""The task, the tool and the scripted model of the checks."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import random
import re
from collections.abc import Callable

from tot_lab.core.calls import Call, Reply, TokenLogprob, ToolCall
from tot_lab.domains import general
from tot_lab.tools import tool


@tool(pure=True)
def legs(animal: str) -> int:
    """How many legs an animal has."""
    return {"spider": 8, "duck": 2}[animal]


TASK = general("How many legs have three spiders and a duck?", answer=26, grade="number")


def dice(call: Call) -> random.Random:
    """Return a random generator seeded by everything in `call` that may change a reply."""
    key = repr((call.prompt, call.sample_index, call.attempt, call.repeat))
    return random.Random(hashlib.sha256(key.encode()).digest())


def answer_to(call: Call) -> str | Reply:
    """Return a reply of the kind that the call requests. Some are duplicates, some are unreadable.

    If the call requests log-probabilities, each word is a token, and one reply in ten reports none.
    """
    reply = _answer_to(call)
    roll = random.Random(dice(call).random())
    if not call.logprobs or not isinstance(reply, str) or roll.random() < 0.1:
        return reply
    tokens = []
    for word in re.findall(r"\s*\S+", reply):
        likely = roll.uniform(0.4, 1)
        top = {word: math.log(likely), " or": math.log((1 - likely) * 0.9 + 1e-9)}
        alternatives = dict([*top.items()][: call.logprobs])
        tokens.append(TokenLogprob(word, top[word], alternatives))
    return Reply(reply, logprobs=tuple(tokens))


def _answer_to(call: Call) -> str | Reply:
    roll = dice(call)
    if call.purpose == "logprob":
        yes = roll.uniform(0.01, 0.99)
        top = {"Yes": math.log(yes), " no": math.log(1 - yes)} if roll.random() < 0.9 else {"Well": -0.1}
        return Reply("Yes", logprobs=(TokenLogprob("Yes", math.log(yes), top),))
    if call.purpose in ("sample", "rollout"):
        return f"step {roll.randrange(100)}"
    if call.purpose == "propose":
        return "\n".join(f"{k}. step {roll.randrange(100)}" for k in range(1, 5))
    if call.purpose in ("value", "part"):
        return "no idea" if roll.random() < 0.1 else f"score: {roll.randrange(100) / 100}\nbecause"
    if call.purpose == "reward":
        return roll.choice(["I cannot tell.", *(str([roll.randrange(101) / 100] * k) for k in range(1, 4))])
    if call.purpose in ("vote", "compare"):
        return f"best: {roll.randint(1, 3)}"
    if call.purpose == "joint":
        return str([roll.randrange(100) / 100 for _ in range(call.prompt.count("step") and 3)])
    if call.purpose == "critique":
        wrong = f"UNSATISFIED: mistake {roll.randrange(10_000)}, so count again."
        return roll.choice(["SATISFIED: it holds.", wrong, wrong, "I cannot say."])
    if call.purpose == "route":
        return json.dumps({"kind": roll.choice(["simple", "writing", "steps", "open"])})
    if call.purpose == "classify":
        return json.dumps({"category": roll.choice(["planning", "debugging", "reasoning", "animals"])})
    if call.purpose == "extract":
        page = call.prompt.partition("<page>")[2].partition("</page>")[0].strip()
        return roll.choice([f"It says:\n```\n{page}\n```", "Take `a name made up`.", "NOTHING"])
    if call.purpose in ("plan", "patch", "augment"):
        return _steps(call, roll)
    if call.purpose == "review":
        return f"{roll.choice(['SATISFIED: it adds up.', 'UNSATISFIED: the duck is missing.'])}\nAnswer: 26"
    if call.purpose in ("branch", "develop", "converge"):
        return _deep(call, roll)
    if call.purpose == "analysis" and roll.random() < 0.2:
        return ""
    if call.purpose == "synthesize":  # quotes the prompt, so that a changed thought stays visible
        return f"{call.prompt}\nNext: go on with {roll.randrange(10_000)}"
    if call.purpose == "reflect":
        return f"Half is done.\nNext: go on with {roll.randrange(10_000)}"
    answer = roll.choice([24, 26, 26])
    if call.purpose == "act" and roll.random() < 0.5:
        request = ToolCall("a", "legs", json.dumps({"animal": roll.choice(["spider", "duck"])}))
        return Reply("Let me look.", tool_calls=(request,) * roll.randint(1, 2))
    if "final-answer" in {tool["name"] for tool in call.tools}:
        return Reply(tool_calls=(ToolCall("b", "final-answer", json.dumps({"answer": f"{answer}"})),))
    return f"Let me think.\nAnswer: {answer}"


def _deep(call: Call, roll: random.Random) -> str:
    """Return the reply of a stage of Deep Think, sometimes as text without JSON.

    Solutions quote the solutions and approaches in the prompt, so that a changed thought stays visible.
    """
    quoted = re.split(r"</?(?:solution|approach)>", call.prompt)[1::2]
    texts = "\n".join(text.strip("\n") for text in quoted)
    if roll.random() < 0.2:
        return f"{texts}\nThree times eight and two: {roll.choice([24, 26])}"
    if call.purpose == "branch":
        names = roll.sample(["by animal", "by leg", "by pairs", "by guess"], 3)
        return json.dumps({"branches": [{"name": name, "strategy": f"Count {name}."} for name in names]})
    answer = f"{texts}\nAnswer: {roll.choice([24, 26, 26])}"
    confidence = roll.randrange(0, 101) / 10
    if call.purpose == "develop":
        return json.dumps({"solution": answer, "confidence": confidence, "weaknesses": ["It is short."]})
    marks = {"correctness": roll.randint(0, 10), "elegance": roll.randint(0, 10)}
    judged = [{"name": f"by {what}", **marks} for what in ("leg", "animal", "pairs")]
    made = {"evaluations": judged, "synthesis": answer, "confidence": confidence}
    return json.dumps({**made, "should_continue": roll.random() < 0.7})


def _steps(call: Call, roll: random.Random) -> str:
    """Return the steps of a plan. Some of them fail, and some replies are text without JSON."""
    if roll.random() < 0.1:
        return "First count the legs of the spiders."
    open_ones = re.findall(r"^(s\d+)\b.*\[(?:failed|skipped)\]", call.prompt, re.MULTILINE)
    steps = []
    for id in open_ones if call.purpose == "patch" else [""] * roll.randint(1, 3):
        kind = roll.choice(["tool_call", "analysis", "composite"])
        animal = roll.choice(["spider", "duck", "horse"])
        steps.append(
            {
                "id": id,
                "title": f"step {roll.randrange(100)}",
                "instruction": f"Count {roll.randrange(100)} legs of a {animal}.",
                "type": kind,
                "toolName": "legs",
                "toolArgs": {"animal": animal},
                "toolHints": ["legs"],
            }
        )
    return json.dumps({"steps": steps})


class Scripted:
    """A model that replies with `reply(call)` and keeps each call in the list `calls`.

    `latency(call)` is the number of seconds before the reply. It never changes the reply.
    """

    def __init__(
        self,
        reply: Callable[[Call], str | Reply] = answer_to,
        latency: Callable[[Call], float] | None = None,
    ) -> None:
        self.reply = reply
        self.latency = latency
        self.calls: list[Call] = []

    async def __call__(self, call: Call) -> str | Reply:
        self.calls.append(call)
        await asyncio.sleep(self.latency(call) if self.latency else 0)
        return self.reply(call)


def shuffled(seed: int, most: float = 0.003) -> Callable[[Call], float]:
    """Return a function that draws latencies from 0 to `most` seconds. Each seed gives another order of
    replies.
    """
    roll = random.Random(seed)
    return lambda call: roll.random() * most


def _calling(*calls: tuple[str, str]) -> Reply:
    return Reply(tool_calls=tuple(ToolCall("a", name, arguments) for name, arguments in calls))


HOSTILE: tuple[str | Reply, ...] = (
    "",
    " \n\t ",
    "\x00\x1b[31m\u202e\u2028",
    "\ud800",
    "é✓🦆" * 50,
    "word " * 20_000,
    "9" * 5_000,
    "null",
    "[]",
    "{}",
    "[" * 20_000,
    '{"a":' * 5_000,
    '{"answer": null, "kind": 7, "steps": "none"}',
    '{"steps": [{"id": "s1", "type": "analysis", "dependsOn": ["s1", "s9"], "instruction": null}]}',
    '```json\n{"steps": [,]}\n``` and ```',
    "{{from_step:s1}} {{from_step:s99:summary}} {0} %s {problem}",
    "score: 7\nscore: -1\nscore: NaN",
    "score: 1e999",
    "[0.5, -3, 1e400, NaN]",
    "[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]",
    "best: 999999999999",
    "SATISFIED: UNSATISFIED: satisfied:",
    "<think>never closed",
    "</think></think>Answer:",
    "Answer:",
    '{"name": "no-such-tool", "arguments": {"x": [}}',
    '{"name": "legs", "arguments": "duck"}',
    '{"tool": "legs", "parameters": {"animal": 7, "more": true}}',
    _calling(("no-such-tool", "{}")),
    _calling(("legs", "not json"), ("legs", '["duck"]'), ("legs", '{"animal": "duck"}')),
    _calling(("final-answer", "{")),
    _calling(("final-answer", '{"answer": ""}'), ("legs", '{"animal": "duck"}')),
    _calling(("", ""), ("\ud800", "\ud800")),
    Reply("cut o", finish_reason="length"),
)
"""Malformed replies, none of which may make a strategy raise an exception."""


def expect(kept: bool, message: str) -> None:
    """Raise an AssertionError with `message` unless `kept`."""
    if not kept:
        raise AssertionError(message)
