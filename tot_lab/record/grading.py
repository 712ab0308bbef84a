"""Grading of runs whose task came from a file: a pattern is matched in a process that can be killed."""

from __future__ import annotations

from collections.abc import Sequence

from tot_lab.core import processes

LIMIT = 5.0
"""Seconds of CPU time after which the matching is stopped."""


def found_in(pattern: str, texts: Sequence[str]) -> list[bool]:
    """Which of `texts` hold a match of `pattern`. Raises `Ungraded` when that takes longer than `LIMIT`, or
    when `pattern` is not valid."""
    return processes.found_in(pattern, texts, LIMIT) if texts else []
