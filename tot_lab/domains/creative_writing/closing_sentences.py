"""The closing sentences of the built-in creative writing tasks, four per task.

The sentences were written for this project. Those of one task are unrelated, so that a passage needs a plan.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files


@lru_cache(maxsize=1)
def closing_sentences() -> tuple[tuple[str, ...], ...]:
    """Return the four sentences of each task, in the order of the tasks."""
    text = files(__package__).joinpath("closing_sentences.txt").read_text("utf-8").strip()
    return tuple(tuple(block.split("\n")) for block in text.split("\n\n"))
