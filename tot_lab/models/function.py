"""A function as a model: a person's own, or a simulated one.

Rule: whatever it returns, yields or raises is an answer: text, a `Reply`, or the error of one. What no
file could hold is made so that one can, its thinking is separated from its text, and only the
driver refuses calls.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from types import CoroutineType
from typing import Any

import msgspec

from tot_lab.core.calls import (
    Call,
    CallObserver,
    Halt,
    Model,
    Reply,
    believed,
    format_error,
    readable,
    refused,
)
from tot_lab.core.reading import separated


class Function:
    """The end of the stack for any async callable `Call -> Reply | str`."""

    def __init__(self, model: Model) -> None:
        self.model = model

    async def answer(self, calls: Sequence[Call], wire: CallObserver) -> Sequence[Reply]:
        """The reply to each of `calls`."""
        return [await self.reply(call, wire) for call in calls]

    async def reply(self, call: Call, wire: CallObserver) -> Reply:
        """The reply to `call`."""
        try:
            asking = self.model(call)
            if type(asking) is CoroutineType:
                got = await asking
            elif isinstance(asking, AsyncGenerator):
                got = await _streamed(asking, wire)
            elif hasattr(asking, "__await__"):
                got = await asking
            else:
                raise TypeError(f"the model must be async; it returned {type(asking).__name__} at once")
        except Halt:
            raise
        except Exception as error:
            return Reply(error=format_error(error))
        return separated(Reply(readable("".join(got))) if isinstance(got, str) else checked(got))


async def _streamed(pieces: AsyncGenerator[Any, None], wire: CallObserver) -> Any:
    """The text that the pieces make up, or the `Reply` that one of them is. The text so far of each open
    call can be watched."""
    text = ""
    async with aclosing(pieces):
        async for piece in pieces:
            if not isinstance(piece, str):
                return piece
            text += piece
            if wire.watched:
                wire.partial(readable(text))
    return text


_decoded = msgspec.json.Decoder(Reply).decode
_encoded = msgspec.json.Encoder().encode


def checked(got: Any) -> Reply:
    """What a model gave, as a reply that a file can hold."""
    if not isinstance(got, Reply):
        return Reply(error=f"TypeError: the model returned {type(got).__name__}, not a Reply or a str")
    got = believed(got)
    said = {
        name: getattr(got, name)
        for name in ("text", "error", "thinking", "model", "finish_reason", "raw_text")
    }
    spoilt = {
        name: clean
        for name, value in said.items()
        if isinstance(value, str) and (clean := readable(value)) is not value
    }
    if spoilt:
        got = msgspec.structs.replace(got, **spoilt)
    if isinstance(got.error, str) and refused(got.error):
        got = msgspec.structs.replace(got, error=f"model: {got.error}")
    try:
        return _decoded(_encoded(got))
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        return Reply(error=f"{type(error).__name__}: {error}")
