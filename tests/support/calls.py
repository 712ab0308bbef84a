"""A call with one message."""

from tot_lab.core.calls import Call, Message


def call(text: str = "2 + 2?", **settings: object) -> Call:
    return Call("0", "sample", (Message("user", text),), **settings)
