"""Word ladders: change one letter at a time until the last word is reached (`word_ladder` of reasoning-gym).

The question does not contain the vocabulary. It is `task.data["words"]`, a text of words with spaces between
them, which `tl.tasks("gym:word_ladder", …)` adds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from string import ascii_uppercase
from typing import NamedTuple

from tot_lab.core.task import Task
from tot_lab.domains.puzzles.base import PuzzleDomain, PuzzlePosition

_QUESTION = re.compile(r"word ladder '([A-Za-z]{2,12})' to '([A-Za-z]{2,12})'")
_WORD = re.compile(r"[A-Za-z]+")


class Puzzle(NamedTuple):
    """The first and the last word, and all words."""

    first: str
    last: str
    words: frozenset[str] = frozenset()


class WordLadder(PuzzleDomain):
    """Word ladders. A state is the current word."""

    kind = "gym/word_ladder"
    move_form = (
        "A move is the next word in capital letters, an English word that differs in exactly one letter."
    )

    def puzzle(self, task: Task) -> Puzzle | None:
        puzzle: Puzzle | None = super().puzzle(task)
        words = task.data.get("words")
        return puzzle._replace(words=_vocabulary(words)) if puzzle and isinstance(words, str) else None

    def statement(self, task: Task) -> str:
        """Return the problem.

        Raises:
            ValueError: If the task lacks the vocabulary.
        """
        if self.puzzle(task) is None and self.read_puzzle(task.question) is not None:
            raise ValueError(
                f"task {task.id!r}: data['words'] must be the vocabulary of the word ladder, a text of words "
                f"with spaces between them: got {str(task.data.get('words'))[:80]!r}. "
                "tl.tasks('gym:word_ladder', 10) adds it."
            )
        return super().statement(task)

    def read_puzzle(self, text: str) -> Puzzle | None:
        found = _QUESTION.search(text)
        if found is None or len(found[1]) != len(found[2]):
            return None
        return Puzzle(found[1].upper(), found[2].upper())

    def start(self, puzzle: Puzzle) -> str:
        return puzzle.first

    def moves(self, puzzle: Puzzle, state: str) -> tuple[str, ...]:
        return _neighbours(state, puzzle.words)

    def after(self, puzzle: Puzzle, state: str, move: str) -> str:
        return move

    def solved(self, puzzle: Puzzle, state: str) -> bool:
        return state == puzzle.last

    def read_moves(self, puzzle: Puzzle, text: str) -> Iterator[str]:
        return (word.upper() for word in _WORD.findall(text) if len(word) == len(puzzle.first))

    def write_answer(self, puzzle: Puzzle, position: PuzzlePosition) -> str:
        return ",".join([puzzle.first, *position.moves])

    def read_solution(self, puzzle: Puzzle, text: str) -> str | None:
        """Return the words of an answer. `None` if it does not begin with the first word, or is wrong."""
        first, _, rest = text.strip().partition(",")
        return super().read_solution(puzzle, rest) if first.strip().upper() == puzzle.first else None


@lru_cache(maxsize=64)
def _vocabulary(words: str) -> frozenset[str]:
    return frozenset(words.upper().split())


@lru_cache(maxsize=16_384)
def _neighbours(word: str, words: frozenset[str]) -> tuple[str, ...]:
    """Return the words that differ from `word` in one letter."""
    return tuple(
        other
        for place, old in enumerate(word)
        for letter in ascii_uppercase
        if letter != old and (other := f"{word[:place]}{letter}{word[place + 1 :]}") in words
    )
