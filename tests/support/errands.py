"""A strategy that calls tools one after another, and what their calls come to."""

import enum
import json
from typing import Annotated, Literal

from pydantic import BaseModel, Field

import tot_lab as tl
from support import Scripted, wait
from tot_lab.core.calls import Message
from tot_lab.core.tools import tool_call

TASK = tl.general("What is there to do?")


class Errand(tl.Strategy):
    """Calls tools one after another, and asks the model once. 1 call.

    calls: of each tool its name and the arguments as JSON. at_once: all of them together.
    """

    calls: list[list[str]]
    at_once: bool = False

    def think(self, task, at="0"):
        yield tl.Thought(at, None, task.question)
        asked = [
            tool_call(at, name, arguments, sample_index=k) for k, (name, arguments) in enumerate(self.calls)
        ]
        replies = yield from tl.gather(
            [tl.ask(call) for call in asked], at_most=0, at_once=None if self.at_once else 1
        )
        yield from tl.ask(tl.Call(at, "answer", (Message("user", "?"),)))
        return tl.Answer("\n".join(reply.error or reply.text for reply in replies), "answered", at)

    def max_calls(self, task):
        return 1


def errand(*calls, **more):
    written = [[name, given if isinstance(given, str) else json.dumps(given)] for name, given in calls]
    return Errand(calls=written, **more)


def lab_with(*tools, model=None, **more):
    known = "sim/general" if "cache" in more else Scripted()  # a function of one's own is not cached
    return tl.Lab(model or known, **{"runs": None, "tools": tools, **more})


def results(lab, *calls, **more):
    """What each call came to: its text, or its error after a cross."""
    run = wait(lab.run(errand(*calls, **more), TASK))
    assert run.stop_reason == "answered"
    assert run.usage.calls == 1  # a tool is no model call
    replies = [line.e for line in run.lines if isinstance(line.e, tl.Reply) and line.e.tool]
    return [f"✗ {reply.error}" if reply.error else reply.text for reply in replies]


def result(tool, arguments, **more):
    return results(lab_with(tool, **more), (tool.name, arguments))[0]


def changed(tool, **settings):
    return tool.model_copy(update=settings)


def quick(function=None, **more):
    """A tool whose retries follow at once, and whose time is enough on a busy machine too."""
    more = {"timeout": 30, "backoff": 0.0, **more}
    return tl.tool(**more) if function is None else tl.tool(**more)(function)


COUNTED = []


@tl.tool(pure=True)
def counted(a: int, b: int = 0) -> int:
    """Adds."""
    COUNTED.append((a, b))
    return a + b


@quick
def fine() -> str:
    return "fine"


class Unit(enum.Enum):
    METRE = "m"
    FOOT = "ft"


class Place(BaseModel):
    town: str
    at: tuple[float, float] | None = None


@tl.tool(effects=("network",))
def look_up(
    place: Place,
    unit: Unit = Unit.METRE,
    kind: Literal["peak", "lake"] = "peak",
    most: Annotated[int, Field(ge=1, le=9, description="at most")] = 3,
    tags: list[str] | None = None,
    schema: bool = False,
    tool_context: dict | None = None,
) -> str:
    """Looks a place up.

    In an atlas."""
    return f"{place.town} {unit.value} {kind} {most} {tags} {schema} {(tool_context or {}).get('atlas')}"
