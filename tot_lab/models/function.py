"""Functions as models: a user's own, or a simulated model.

Whatever a function returns, yields or raises becomes a reply: text, a `Reply`, or an error. Text that UTF-8
cannot encode is converted, thinking is separated from the text, and an error that begins like a code of the
driver, such as `budget:`, gets the prefix `model: `.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from traceback import extract_tb
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
from tot_lab.core.reading.thinking import separated
from tot_lab.core.scrubbing import scrubbed
from tot_lab.models.stack import warn_of_failure

_MISTAKES = (NameError, AttributeError, TypeError, LookupError, ImportError, ArithmeticError)
"""Exceptions that suggest a mistake in the code of a model function. The error then names the line."""


class Function:
    """The last layer of the model stack if the model is a user's function. It calls the function, which takes
    a `Call` and either is `async` and returns a `Reply` or a text, or is an async generator of text.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self._has_warned = False

    async def answer(self, calls: Sequence[Call], observer: CallObserver) -> Sequence[Reply]:
        """Return the reply to each of `calls`."""
        return [await self.reply(call, observer) for call in calls]

    async def reply(self, call: Call, observer: CallObserver) -> Reply:
        """Return the reply to `call`. An exception of the function becomes a reply with an error."""
        try:
            asking = self.model(call)
            if type(asking) is CoroutineType:
                got = await asking
            elif isinstance(asking, AsyncGenerator):
                got = await _streamed(asking, observer)
            elif hasattr(asking, "__await__"):
                got = await asking
            else:
                raise TypeError(
                    f"the model must be async: got a function that returns {type(asking).__name__}"
                )
        except Halt:
            raise
        except Exception as error:
            return Reply(error=self._explain(error))
        return separated(Reply(readable("".join(got))) if isinstance(got, str) else checked(got))

    def _explain(self, error: Exception) -> str:
        """Describe an exception of the function. For a mistake in its code, the line number is added; the
        text of the line is not, since it may hold a key.

        The first exception is also given as a warning, so that it is seen before a long experiment ends.
        """
        text = format_error(error)
        if isinstance(error, _MISTAKES):
            text += self._line_of(error)
        if not self._has_warned:
            self._has_warned = True
            warn_of_failure(f"The model function failed: {text}")
        return text

    def _line_of(self, error: Exception) -> str:
        """Return the innermost line of the function's file in the traceback, as " (line 3 of f)", or "" if
        the traceback has no line of that file.
        """
        called = self.model if hasattr(self.model, "__code__") else type(self.model).__call__
        code = getattr(called, "__code__", None)
        lines = [
            f"line {frame.lineno} of {frame.name}"
            for frame in extract_tb(error.__traceback__)
            if code is not None and frame.filename == code.co_filename
        ]
        return f" ({lines[-1]})" if lines else ""


async def _streamed(pieces: AsyncGenerator[Any, None], observer: CallObserver) -> Any:
    """Return the joined text of the pieces, or the first piece that is not text, such as a `Reply`."""
    text = ""
    async with aclosing(pieces):
        async for piece in pieces:
            if not isinstance(piece, str):
                return piece
            text += piece
            if observer.watched:
                observer.partial(readable(text))
    return text


_decoded = msgspec.json.Decoder(Reply).decode
_encoded = msgspec.json.Encoder().encode


def checked(got: Any) -> Reply:
    """Return `got`, the result of a model, as a reply that can be written to a file. A result that is not a
    `Reply`, or that has a field of a wrong type, becomes a reply with an error.
    """
    if not isinstance(got, Reply):
        return Reply(error=f"TypeError: the model returned {type(got).__name__}, not a Reply or a str")
    got = believed(got)
    texts = {
        name: getattr(got, name)
        for name in ("text", "error", "thinking", "model", "finish_reason", "raw_text")
    }
    spoilt = {
        name: clean
        for name, value in texts.items()
        if isinstance(value, str) and (clean := readable(value)) is not value
    }
    if spoilt:
        got = msgspec.structs.replace(got, **spoilt)
    if isinstance(got.error, str):
        error = f"model: {got.error}" if refused(got.error) else got.error
        got = msgspec.structs.replace(got, error=scrubbed(error))
    try:
        return _decoded(_encoded(got))
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        return Reply(error=format_error(error))
