"""The built-in mini crosswords: squares in which every row and column is a word.

The clues were written for this project and are not from published puzzles. They may be redistributed freely,
and no model has seen them in a published puzzle. The squares were found by a search over English words that
are frequent according to wordfreq.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple


class Puzzle(NamedTuple):
    """A filled mini crossword."""

    rows: tuple[str, ...]
    """The five words across."""

    clues: tuple[str, ...]
    """Ten clues, h1 to h5 and then v1 to v5."""

    @property
    def words(self) -> tuple[str, ...]:
        """The ten words in the order of the clues."""
        return (*self.rows, *("".join(column) for column in zip(*self.rows, strict=True)))


@lru_cache(maxsize=1)
def puzzles() -> tuple[Puzzle, ...]:
    """Return all built-in puzzles, in the order of their numbers."""
    text = files(__package__).joinpath("puzzles.txt").read_text("utf-8").strip()
    made = []
    for block in text.split("\n\n"):
        across = [line.partition(": ") for line in block.split("\n")]
        made.append(Puzzle(tuple(word for word, _, _ in across[:5]), tuple(clue for _, _, clue in across)))
    return tuple(made)
