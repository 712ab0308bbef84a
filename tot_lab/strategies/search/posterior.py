"""What the scores of one arm of Thompson sampling say about their mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random


class Posterior:
    """The scores of one arm, and what they say about their mean."""

    def __init__(self) -> None:
        self.count, self.total, self.squares = 0, 0.0, 0.0
        self.known: dict[str, float] | None = None  # the parameters, until the next score

    def observe(self, score: float, times: int = 1) -> None:
        """Add a score, or remove it with `times=-1`."""
        self.count += times
        self.total += times * score
        self.squares += times * score * score
        self.known = None

    def parameters(self) -> dict[str, float]:
        """The parameters of the posterior."""
        if self.known is None:
            self.known = self.update()
        return self.known

    def update(self) -> dict[str, float]:
        """The parameters of the posterior, from the scores."""
        raise NotImplementedError

    def draw(self, random: Random) -> float:
        """A draw of the mean."""
        raise NotImplementedError
