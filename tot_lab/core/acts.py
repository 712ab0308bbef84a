"""Acts: the changes that a person makes to a search in progress.

A pick is one selection of thoughts to expand. A search requests acts once per pick, with the number of the
pick (`tot_lab.core.protocol.Acts`). The acts that it receives are recorded in one note, so a replay applies
the same acts at the same pick.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from tot_lab.core.records import Line, Note, UnitInterval

NOTE = "person.acts"
"""Name of the note that records acts. Its data are `pick`, the number of the pick, and `acts`."""


class Prune(msgspec.Struct, frozen=True, tag="prune", tag_field="act"):
    """Remove a thought and everything below it from the search. None of them can be the answer."""

    node: str


class Rescore(msgspec.Struct, frozen=True, tag="rescore", tag_field="act"):
    """Replace the score of a thought by `score`, from 0 to 1."""

    node: str
    score: UnitInterval


class Graft(msgspec.Struct, frozen=True, tag="graft", tag_field="act"):
    """Add a new thought below `node`, with a score from 0 to 1."""

    node: str
    text: str
    score: UnitInterval


class RaiseBudget(msgspec.Struct, frozen=True, tag="raise_budget", tag_field="act"):
    """Raise limits of the run's budget. `limits` maps names such as `calls` to the new, higher limits."""

    limits: dict[str, float]


Act: TypeAlias = Prune | Rescore | Graft | RaiseBudget


class Change(NamedTuple):
    """An act that has taken effect.

    Attributes:
        act: The act.
        node: Id of the thought that was changed or added. Empty for a raised budget.
        old: The previous rank (`Node.rank`) of a rescored thought. 0 for other acts.
    """

    act: Act
    node: str = ""
    old: float = 0.0


def note_of(acts: Sequence[Act], at: str, pick: int) -> Note:
    """Return the note of the acts that a search received at pick number `pick`. The search starts at thought
    `at`.
    """
    return Note(NOTE, at, {"pick": pick, "acts": msgspec.to_builtins(acts)})


def acts_of(lines: Iterable[Line]) -> dict[tuple[str, int], list[Act]]:
    """Return the recorded acts. The keys are (id of the thought at which the search started, pick number).

    Raises:
        ValueError: If a note `person.acts` has invalid data.
    """
    return {
        (note.at, _data(note, "pick", int)): _data(note, "acts", list[Act])
        for line in lines
        if isinstance(note := line.e, Note) and note.name == NOTE
    }


def raised_limits(lines: Iterable[Line]) -> dict[str, float]:
    """Return the raised limits by name, each at its last value. Empty if a note `person.acts` has invalid
    data.
    """
    try:
        acts = [act for taken in acts_of(lines).values() for act in taken]
    except ValueError:
        return {}
    return {name: limit for act in acts if isinstance(act, RaiseBudget) for name, limit in act.limits.items()}


def _data(note: Note, name: str, kind: Any) -> Any:
    try:
        return msgspec.convert(note.data.get(name), kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"The note {NOTE} at thought {note.at} has an invalid {name!r}: {error}.") from None
