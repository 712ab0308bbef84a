"""Matching of the approach names that a model writes.

Two names match if they differ only in case, punctuation, Markdown, numbering and ids. A match that relies on
anything else (a number, an order, ambiguous names) is reported, so that no score is assigned by an unnoticed
guess.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

_LABEL = (
    r"(?:approach|option|branch|solution|candidate|idea|plan|method|strategy|variant|alternative|proposal|"
    r"answer|rule|step|way|number|no)"
)
_ORDINAL = r"(?:b?\d{1,3}|[a-z]|[ivx]{1,4})"
_MARK = r"(?:\s?[^\w\s+%#(\[]+(?=\s|\Z))"  # separates a number from the name behind it
_BEFORE = re.compile(
    rf"(?:[^\w(\[#]|#(?!\d))*"
    rf"(?:{_LABEL}\.?\s*\#?\s?(?:{_ORDINAL}(?:{_MARK}|\Z)|b?\d{{1,3}}(?=\s))"
    rf"|\#?{_ORDINAL}{_MARK}|\#\d{{1,3}}(?=\s)|\#?b?\d{{1,3}}\Z"
    rf"|[(\[]\s?(?:{_LABEL}\s)?\#?{_ORDINAL}\s?[)\]])"
)
"""One piece of numbering before a name: `1.`, `Approach 3:`, `(b2)`, `#4`."""

_AFTER = re.compile(rf"[(\[]\s?(?:{_LABEL}\s)?\#?{_ORDINAL}\s?[)\]]\W*\Z")
"""One piece of numbering behind a name: `(b2)`, `[approach 3]`."""

_LONGEST_AFTER = 40
_MARKDOWN = re.compile(r"[*_`~]")
_WORD = re.compile(r"[^\W_]+[+#]*")  # distinguishes C, C++ and C#
_REFERENCE = re.compile(r"(b?)(\d{1,3})(?![^\W_])")


class Match(NamedTuple):
    """The approaches that written names refer to.

    Attributes:
        places: For each written name the index of the approach, or `None`. Each index occurs once.
        warning: What was uncertain, in sentences. Empty if every approach was recognised by its own name.
    """

    places: list[int | None]
    warning: str


def core(name: str) -> str:
    """The words of a name, without case, punctuation, Markdown, numbering and ids. Empty if there are no
    others.
    """
    text = _plain(name)
    start, end = 0, len(text)
    while found := _AFTER.search(text, max(start, end - _LONGEST_AFTER), end):
        end = found.start()
    text = text[:end].rstrip()
    while (found := _BEFORE.match(text, start)) and found.end() > start:
        start = found.end()
    return " ".join(_WORD.findall(text, start))


def match_all(names: Sequence[str], written: Sequence[str]) -> list[int | None]:
    """The index in `names` of each written name. `None` if it matches none of them, or several."""
    return [_only(_meant(names, one)) for one in written]


def match_once(names: Sequence[str], written: Sequence[str], ids: Sequence[str] = ()) -> Match:
    """Match the names that a model wrote to `names`, one to one. Of two that match the same approach, the
    first counts.

    Names take precedence. A text that is only an id (`b2`) or a number (`Approach 3`) refers to the approach
    with that id or at that position. The order decides only if nothing else was recognised.

    Args:
        names: The names of the approaches, as the model was shown them.
        written: The names in the model's reply.
        ids: The ids of the approaches.
    """
    work = _Matching(names, written, ids)
    work.by_name()
    work.by_shared_name()
    work.by_reference()
    work.by_order()
    return work.result()


class _Matching:
    def __init__(self, names: Sequence[str], written: Sequence[str], ids: Sequence[str]) -> None:
        self.names, self.written, self.ids = names, written, ids
        self.cores = [core(name) for name in names]
        self.places: list[int | None] = [None] * len(written)
        self.repeated: set[int] = set()
        self.warnings: list[str] = []

    def by_name(self) -> None:
        named = [_only(_meant(self.names, one)) for one in self.written]
        for k, place in enumerate(named):
            if place is not None:
                self._take(k, place)
        distinct = all(self.cores) and len({*self.cores}) == len(self.cores)
        if any(place is not None for place in named) and not distinct:
            self.warnings.append("The names of the approaches are not distinct but for their numbering.")

    def by_shared_name(self) -> None:
        """Distinguish approaches with the same name by their order."""
        shared = False
        for k in self._left():
            free = [place for place in _meant(self.names, self.written[k]) if place not in self.places]
            if free:
                self.places[k], shared = free[0], True
        if shared:
            self.warnings.append("Approaches that share a name were matched to their scores by order.")

    def by_reference(self) -> None:
        found = {k: _REFERENCE.search(_plain(self.written[k])) for k in self._left()}
        numbers = {k: int(one[2]) - 1 for k, one in found.items() if one and not one[1]}
        ids = {k: one[0] for k, one in found.items() if one and one[1]}
        bare = {k for k in found if not core(self.written[k])}
        numbers = {k: place for k, place in numbers.items() if k in bare}
        ids = {k: id for k, id in ids.items() if k in bare}
        from_zero = {k: self.ids.index(id) for k, id in ids.items() if id in self.ids}
        from_one = {k: int(id[1:]) - 1 for k, id in ids.items()}
        fits, counted = (len(one) == len(ids) and self._fits(one) for one in (from_zero, from_one))
        if ids and fits:
            self._place(from_zero)
            if counted:
                self.warnings.append("Scores were matched by ids, which may have been counted from 1.")
        elif ids and counted:
            self._place(from_one)
            self.warnings.append("Scores were matched by ids that were counted from 1.")
        if numbers and self._fits(numbers):
            self._place(numbers)
            self.warnings.append("Scores were matched by the numbers of the approaches, not by their names.")

    def by_order(self) -> None:
        if self.written and all(place is None for place in self.places):
            self._place({k: k for k in range(min(len(self.names), len(self.written)))})
            if self.names:
                self.warnings.append(
                    "No approach was recognised by its name: scores were matched by their order."
                )

    def result(self) -> Match:
        repeated = [self.written[k] for k in sorted(self.repeated)]
        if repeated:
            self.warnings.append(f"Judged twice, the first counts: {_listed(repeated)}.")
        lost = [self.written[k] for k in self._left()]
        if lost:
            self.warnings.append(f"A score was not used, because no approach has this name: {_listed(lost)}.")
        unjudged = [name for place, name in enumerate(self.names) if place not in self.places]
        if unjudged:
            self.warnings.append(f"Not judged: {_listed(unjudged)}.")
        return Match(self.places, " ".join(self.warnings))

    def _left(self) -> list[int]:
        return [k for k, place in enumerate(self.places) if place is None and k not in self.repeated]

    def _take(self, k: int, place: int) -> None:
        if place in self.places:
            self.repeated.add(k)
        else:
            self.places[k] = place

    def _place(self, places: dict[int, int]) -> None:
        for k, place in places.items():
            self.places[k] = place

    def _fits(self, places: dict[int, int]) -> bool:
        """Whether these are distinct approaches without a match."""
        wanted = [*places.values()]
        free = {*range(len(self.names))}.difference(place for place in self.places if place is not None)
        return len({*wanted}) == len(wanted) and free.issuperset(wanted)


def _meant(names: Sequence[str], written: str) -> list[int]:
    """The indices of the names that `written` may mean: exact matches, or else those with the same words."""
    exact = [place for place, name in enumerate(names) if _same(name) == _same(written)]
    words = core(written)
    return exact or [place for place, name in enumerate(names) if words and core(name) == words]


def _only(places: Sequence[int]) -> int | None:
    return places[0] if len(places) == 1 else None


def _plain(name: str) -> str:
    text = unicodedata.normalize("NFKC", name).casefold()
    return " ".join(_MARKDOWN.sub(" ", text).split())


def _same(name: str) -> str:
    return " ".join(name.casefold().split())


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"“{' '.join(name.split())[:80]}”" for name in names)
