"""JSON that a model wrote badly, repaired: trailing commas, quotes of other kinds, comments, a missing end.

Rule: a repair is never taken for what was written, and its work is bounded. The library that does it
(`json_repair`) looks ahead from each quote, so that a model gone round in circles would hold up a
lab for minutes; here it gives up after so many looks.
"""

from __future__ import annotations

import json
import re
from typing import Any, SupportsIndex

_MOST_CHARACTERS = 200_000  # of text that is repaired at all
_LOOKS = 5  # at each character: ordinary damage needs three or four
_LOOKS_AT_LEAST = 20_000
_MOST_LOOKS = 70_000  # in one text: 20,000 characters of ordinary damage; a look takes 0.3 to 4 µs
_LOOKS_TO_BEGIN = 200  # what a repair costs before its first look
# The last of a text that was cut off, where it says too little: a key with the beginning of a number or
# of true, false or null, or of none; and such a beginning in a list.
_BEGUN = r"(?:[-+.\d][-+.\deE]*+|[tT](?:ru?)?|[fF](?:a(?:ls?)?)?|n(?:ul?)?|N(?:on?)?)\Z"
_LAST = re.compile(rf"""["'][^"'\\]*+["']\s*+:\s*+(?:{_BEGUN}|\Z)|(?<=[\[,:\s]){_BEGUN}""")


class GaveUp(Exception):
    """The work was too much."""


class Work:
    """What may be spent on the repairs of one text."""

    def __init__(self, text: str) -> None:
        looks = min(_LOOKS_AT_LEAST + _LOOKS * len(text), _MOST_LOOKS)
        self.left = looks if len(text) <= _MOST_CHARACTERS else 0

    def spend(self, looks: int) -> None:
        """Raises `GaveUp` when no more is left."""
        self.left -= looks
        if self.left < 0:
            raise GaveUp


class _Watched(str):
    """A text that counts how often it is looked at."""

    __slots__ = ("work",)
    work: Work

    @classmethod
    def of(cls, text: str, work: Work) -> _Watched:
        watched = cls(text)
        watched.work = work
        return watched

    def __getitem__(self, key: SupportsIndex | slice[Any, Any, Any]) -> str:
        part = str.__getitem__(self, key)
        if len(part) == 1:  # nearly every look: `spend` written out, which halves what it costs
            self.work.left -= 1
            if self.work.left < 0:
                raise GaveUp
            return part
        self.work.spend(1 + len(part) // 16)
        # The head of a text is what the library writes the rest of it anew behind.
        head = isinstance(key, slice) and key.start is None
        return _Watched.of(part, self.work) if head else part

    def __add__(self, other: str) -> str:
        return _Watched.of(str.__add__(self, other), self.work)


def repaired(text: str, work: Work) -> Any:
    """The object or list that `text`, which begins with its bracket, was meant to be; None when
    nothing can be made of it, or not within `work`."""
    import json_repair  # noqa: PLC0415 - it takes 30 ms to load

    text = text.rstrip()
    if not text.endswith(("}", "]")):
        text = _LAST.sub("", text)
    try:
        work.spend(_LOOKS_TO_BEGIN)
        value = json_repair.loads(_Watched.of(text, work), skip_json_loads=True)
        if text.startswith("{") and isinstance(value, list):  # of several objects the first
            value = next((item for item in value if isinstance(item, dict)), None)
        if not value or not isinstance(value, dict | list):
            return None
        # Once through JSON, so that it is nothing but JSON: finite numbers, plain texts.
        return json.loads(json.dumps(value, allow_nan=False))
    except (GaveUp, ValueError, RecursionError):
        return None
