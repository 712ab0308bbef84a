"""Repair of malformed JSON: trailing commas, wrong quotes, comments, a missing end.

A repaired value is always marked as such, and the work is bounded. The library (`json_repair`) looks ahead
from each quote, so repetitive model output could block a lab for minutes; here it stops after a fixed number
of character accesses.
"""

from __future__ import annotations

import json
import re
from typing import Any, SupportsIndex

# A "look" is one character access of the library.
_MAX_CHARACTERS = 200_000  # longer texts are not repaired
_LOOKS = 5  # per character: ordinary damage needs three or four
_LOOKS_AT_LEAST = 20_000
_MAX_LOOKS = 70_000  # per text: 20,000 characters of ordinary damage; a look takes 0.3 to 4 µs
_LOOKS_TO_BEGIN = 200  # overhead of a repair before its first look
# The ambiguous end of a truncated text: a key without a value, or with an incomplete number, true, false or
# null; likewise an incomplete item of a list.
_BEGUN = r"(?:[-+.\d][-+.\deE]*+|[tT](?:ru?)?|[fF](?:a(?:ls?)?)?|n(?:ul?)?|N(?:on?)?)\Z"
_LAST = re.compile(rf"""["'][^"'\\]*+["']\s*+:\s*+(?:{_BEGUN}|\Z)|(?<=[\[,:\s]){_BEGUN}""")


_APOSTROPHE = re.compile(r"(?<=[^\W\d_])'(?=[^\W\d_])")  # the library takes one for a closing quote


class GaveUp(Exception):
    """Raised if a repair exceeds its work limit."""


class Work:
    """The work limit for the repairs of one text."""

    def __init__(self, text: str) -> None:
        looks = min(_LOOKS_AT_LEAST + _LOOKS * len(text), _MAX_LOOKS)
        self.left = looks if len(text) <= _MAX_CHARACTERS else 0

    def spend(self, looks: int) -> None:
        """Deduct `looks`. Raises `GaveUp` if the limit is exceeded."""
        self.left -= looks
        if self.left < 0:
            raise GaveUp


class _Watched(str):
    """A string that counts accesses to its characters."""

    __slots__ = ("work",)
    work: Work

    @classmethod
    def of(cls, text: str, work: Work) -> _Watched:
        watched = cls(text)
        watched.work = work
        return watched

    def __getitem__(self, key: SupportsIndex | slice[Any, Any, Any]) -> str:
        part = str.__getitem__(self, key)
        if len(part) == 1:  # nearly every access; inlining `spend` halves the cost
            self.work.left -= 1
            if self.work.left < 0:
                raise GaveUp
            return part
        self.work.spend(1 + len(part) // 16)
        # The library rebuilds the text from its head, so the head must keep counting.
        head = isinstance(key, slice) and key.start is None
        return _Watched.of(part, self.work) if head else part

    def __add__(self, other: str) -> str:
        return _Watched.of(str.__add__(self, other), self.work)


def repaired(text: str, work: Work) -> Any:
    """Repair `text`, which begins with the bracket of an object or a list.

    Returns:
        The value, or `None` if it cannot be repaired within `work`.
    """
    import json_repair  # noqa: PLC0415 - it takes 30 ms to load

    text = text.rstrip()
    if not text.endswith(("}", "]")):
        text = _LAST.sub("", text)
    text = _APOSTROPHE.sub(r"\'", text)
    try:
        work.spend(_LOOKS_TO_BEGIN)
        value = json_repair.loads(_Watched.of(text, work), skip_json_loads=True)
        if text.startswith("{") and isinstance(value, list):  # several objects: take the first
            value = next((item for item in value if isinstance(item, dict)), None)
        if not value or not isinstance(value, dict | list):
            return None
        # A round trip through JSON ensures finite numbers and plain strings.
        return json.loads(json.dumps(value, allow_nan=False))
    except (GaveUp, ValueError, RecursionError):
        return None
