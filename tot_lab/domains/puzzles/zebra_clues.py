"""Clues of zebra puzzles: relations of the houses of two items, or of an item and a certain house."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

_CLUE = re.compile(r"^\d{1,3}\. ([^\n]{1,300})\.$", re.M)
_PLACE = re.compile(r"is in the (first|second|third|fourth|fifth|sixth|seventh) house$")
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh")
_IRREGULAR = {"swede": "swedish", "roses": "rose"}
_RELATIONS: dict[str, Callable[[int, int], bool]] = {
    " is directly left of ": lambda one, other: one + 1 == other,
    " are next to each other": lambda one, other: abs(one - other) == 1,
    " is ": lambda one, other: one == other,
}

Houses = tuple[int | None, ...]
"""The house of each item, from 0. `None` is not decided."""


class Clue(NamedTuple):
    """A relation in `_RELATIONS` of the houses of two items, or of the house of an item and a certain one."""

    relation: str
    item: int
    other: int | None = None
    house: int | None = None


def read_clues(text: str, items: Sequence[tuple[str, str]]) -> tuple[Clue, ...] | None:
    """Return the numbered clues in `text`. Returns `None` if one of them has an unknown form.

    Args:
        text: The puzzle.
        items: The kind and the name of each item. A child may be called by the name of its mother.
    """
    named: dict[str, int] = {}
    for number, (kind, item) in enumerate(items):
        word = _IRREGULAR.get(item, item).lower()
        for key in (f"named {word}", f"mother of {word}") if "child" in kind else (word,):
            named[key] = number
    longest_first = sorted(map(re.escape, named), key=len, reverse=True)
    words = re.compile(rf"\b(?:{'|'.join(longest_first)})", re.I)
    clues = [
        _clue(clue, [named[word.lower()] for word in words.findall(clue)]) for clue in _CLUE.findall(text)
    ]
    return tuple(filter(None, clues)) if all(clues) else None


def keeps(clues: Sequence[Clue], houses: Houses, item: int) -> bool:
    """Return whether `houses` contradicts no clue about `item`."""
    for clue in clues:
        if item in (clue.item, clue.other):
            one, other = houses[clue.item], clue.house if clue.other is None else houses[clue.other]
            if one is not None and other is not None and not _RELATIONS[clue.relation](one, other):
                return False
    return True


def _clue(text: str, items: Sequence[int]) -> Clue | None:
    """Return the clue in `text` about `items`. Returns `None` if it has an unknown form."""
    place = _PLACE.search(text)
    relation = next((words for words in _RELATIONS if words in text), None)
    if len(items) == 1 and place is not None:
        return Clue(" is ", items[0], house=_ORDINALS.index(place[1]))
    if len(items) != 2 or place is not None or relation is None or "somewhere" in text or "between" in text:
        return None
    return Clue(relation, *items)
