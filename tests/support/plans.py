"""A model that gives scripted replies to each kind of call of a plan, and the steps of plans."""

import asyncio
import json

import tot_lab as tl
from support import wait

TASK = tl.general("What is twice the sum of 3 and 4?", answer=14, grade="number")
GOOD = "SATISFIED: it adds up.\nAnswer: 14"


@tl.tool(pure=True)
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@tl.tool(pure=True)
def echo(text: str) -> str:
    """Gives back what it is given."""
    return text


class Planner:
    """A model that answers each kind of call with the next of its replies; the last one stays."""

    def __init__(self, **replies):
        self.replies = {kind: said if isinstance(said, list) else [said] for kind, said in replies.items()}
        self.calls = []

    async def __call__(self, call):
        self.calls.append(call)
        said = self.replies[call.purpose]
        reply = said.pop(0) if len(said) > 1 else said[0]
        await asyncio.sleep(0)
        return reply(call) if callable(reply) else reply

    @property
    def kinds(self):
        return [call.purpose for call in self.calls]

    def asked(self, kind):
        return [call for call in self.calls if call.purpose == kind]


def plan(*steps):
    return json.dumps({"steps": list(steps)})


def tool(name, more=None, /, **args):
    return {"type": "tool_call", "toolName": name, "toolArgs": args, **(more or {})}


def think(instruction, **more):
    return {"type": "analysis", "instruction": instruction, **more}


def run(model, strategy=None, tools=(add, echo), task=TASK, **options):
    return wait(tl.Lab(model, runs=None, tools=tools).run(strategy or tl.PlanExecute(), task, **options))
