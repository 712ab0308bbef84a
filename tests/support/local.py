"""A call of the local model."""

from __future__ import annotations

from typing import Any

from tot_lab.core.calls import Call, Message


def asked(text: str, **settings: Any) -> Call:
    return Call("0", "any", (Message("user", text),), **{"max_tokens": 24, **settings})
