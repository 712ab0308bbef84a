"""Models that give scripted replies to an agent, and the tools that it has."""

import json

import tot_lab as tl
from tot_lab.core.calls import Reply, ToolCall
from tot_lab.core.records import Note

LEGS = {"spider": 8, "duck": 2}


@tl.tool(pure=True)
def legs(animal: str) -> int:
    """How many legs an animal has."""
    return LEGS[animal]


@tl.tool(effects=("network",), retries=0)
def web_search(query: str) -> str:
    """Pages about a query."""
    return f"There is nothing known about {query}, it seems."


@tl.tool(retries=0)
def read(page: int) -> str:
    """A page of the book."""
    return [
        "Spiders have eight legs, says chapter three.",
        "Ducks walk upon two feet instead.",
        "Spiders have eight legs, says chapter three again.",
        "1 2 3",
    ][page]


TOOLS = [legs, web_search, read]


def said(*calls: tuple[str, object], text: str = "") -> Reply:
    """A reply that asks for tools natively."""
    asked = (
        ToolCall(f"id{k}", name, given if isinstance(given, str) else json.dumps(given))
        for k, (name, given) in enumerate(calls)
    )
    return Reply(text, tool_calls=tuple(asked))


def final(answer: object) -> tuple[str, object]:
    return "final-answer", {"answer": answer}


class Script:
    """A model that says one thing after the other, and the last one for ever."""

    def __init__(self, *replies: str | Reply) -> None:
        self.replies = replies
        self.calls = []

    async def __call__(self, call: tl.Call) -> str | Reply:
        self.calls.append(call)
        return self.replies[min(len(self.calls), len(self.replies)) - 1]

    def shown(self, turn: int) -> str:
        """What came last in the prompt of that turn, from the model's own turn on."""
        messages = self.calls[turn].messages
        last = max(k for k, message in enumerate(messages) if message.role == "assistant")
        return "\n".join(message.content for message in messages[last + 1 :])


def notes(made: tl.Run, name: str) -> list[dict]:
    return [event.data for event in made.events if isinstance(event, Note) and event.name == name]
