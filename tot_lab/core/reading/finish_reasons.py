"""Readers of finish reasons: why a model stopped, in the words of its server."""

from __future__ import annotations

import re

_TRUNCATED = re.compile(r"length|max.{0,16}tokens|token_limit|context_window", re.IGNORECASE)
_FAILED = re.compile(r"error|abort|fail|cancel|insufficient|timeout|unspecified", re.IGNORECASE)


def read_finish_reason(reason: str | None) -> str | None:
    """Return `length` for a truncated reply (`max_tokens`, `MAX_TOKENS`, `model_context_window_exceeded`, …),
    `error` for one that the server could not finish (`abort`, `network_error`, …), and any other reason as it
    is.
    """
    if reason and _FAILED.search(reason):
        return "error"
    return "length" if reason and _TRUNCATED.search(reason) else reason
