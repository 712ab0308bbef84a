"""Checks of numbers that models, servers and functions return, and the common prefix of two texts."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any


def common_length(one: str, other: str) -> int:
    """Return the length of the common prefix of two texts."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def finite(value: Any) -> float | None:
    """Convert `value` to float if it is a finite number. Returns `None` otherwise, also for booleans."""
    if isinstance(value, bool) or not isinstance(value, Real):  # numpy's numbers are Real too
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def verdict(value: Any, by: str) -> float | None:
    """Check a score that a user's function returned: a number from 0 to 1, a boolean, or `None` (no score).

    Args:
        by: Names the function in the error.

    Raises:
        ValueError: For any other value.
    """
    value = value.item() if hasattr(value, "item") else value  # a numpy scalar
    number = float(value) if isinstance(value, bool) else finite(value)
    if number is None and value is not None:
        raise ValueError(f"{by} must return a number from 0 to 1, True, False or None: got {value!r}.")
    if number is not None and not 0 <= number <= 1:
        raise ValueError(f"{by} must return a score from 0 to 1: got {number}.")
    return number
