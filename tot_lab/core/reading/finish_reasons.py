"""Readers of finish reasons: why a model stopped, in the words of its server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

_TRUNCATED = re.compile(r"length|max.{0,16}tokens|token_limit|context_window", re.IGNORECASE)
_FAILED = re.compile(r"error|abort|fail|cancel|insufficient|timeout|unspecified", re.IGNORECASE)


@lru_cache(64)
def read_finish_reason(reason: str | None) -> str | None:
    """Return `length` for a truncated reply (`max_tokens`, `MAX_TOKENS`, `model_context_window_exceeded`, …),
    `error` for one that the server could not finish (`abort`, `network_error`, …), and any other reason as it
    is.
    """
    if reason and _FAILED.search(reason):
        return "error"
    return "length" if reason and _TRUNCATED.search(reason) else reason


def read_ended(fields: Mapping[str, Any]) -> bool | None:
    """Return whether the model ended its reply itself, and not at a stop text. `None` if unknown.

    Args:
        fields: Fields of an item of `choices` in the server's response and, for llama.cpp, of the response
            itself: `finish_reason`, and one of `stop_reason` (vLLM: the stop text, or a token, or null at the
            end of the sequence), `matched_stop` (SGLang: the stop text or the token) and `stop_type`
            (llama.cpp: `eos`, `word`, …).
    """
    if fields.get("finish_reason") != "stop":
        return None
    if (kind := fields.get("stop_type")) in ("eos", "word"):
        return bool(kind == "eos")
    reason, matched = fields.get("stop_reason"), fields.get("matched_stop")
    if (isinstance(reason, str) and reason) or (isinstance(matched, str) and matched):
        return False
    return True if "stop_reason" in fields or type(matched) is int else None
