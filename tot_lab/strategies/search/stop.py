"""Settings of when a search ends, and which thoughts it may expand.

`tree_of_thoughts.py` decides by them after every pick. A new reason to stop also needs a stop code
(`STOP_CODES` in core/records.py) with its words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from tot_lab.core.parts import Part
from tot_lab.strategies.search.sampling import Count, Unit


class Stop(Part):
    """When a search ends: solved, a limit, no improvement, or nothing left to expand."""

    kind: ClassVar[str] = "stop"

    solved: Unit | None = 1.0
    """The search ends when a kept thought reaches this score at `min_depth` or deeper, unless its domain
    says that its path is incomplete. `None` means never."""

    depth: Annotated[int, Field(ge=1, le=1000)] = 3
    """The most steps of a path."""

    nodes: Count | None = None
    """The most thoughts of the tree, including the root. `None` means no limit."""

    patience: Count | None = None
    """Rounds after which the search ends if the best score has risen by less than `min_improvement`. `None`
    means never."""

    min_improvement: Unit = 0.02
    """The least rise of the best score that counts as an improvement."""

    min_depth: Annotated[int, Field(ge=0)] = 0
    """The smallest depth at which a thought can solve the task."""

    min_score: Unit = 0.0
    """A thought with a lower score is dropped."""

    def converged(self, best: Sequence[float]) -> bool:
        """Whether `best`, the best score after each round, has stopped rising."""
        if self.patience is None or len(best) <= self.patience:
            return False
        return best[-1] - best[-1 - self.patience] < self.min_improvement
