"""The strategies that `tl.Adaptive` chose, from the notes of a run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeGuard

from tot_lab.core.records import Note, Record


class Routed(NamedTuple):
    """A choice of `tl.Adaptive`.

    Attributes:
        selected: The strategy that was chosen.
        used: The strategy that ran last. It differs from `selected` if that gave only a partial result, so
            that the default strategy ran too.
        kind: Kind of the task, or of its domain if `by` is `table`. `None` if neither is known.
        by: How it was chosen: `table`, `rule`, `model` or `default`.
        why: The reason.
    """

    selected: str
    used: str
    kind: str | None
    by: str
    why: str


def routed_in(events: Iterable[Record]) -> Routed | None:
    """The choice of the first `Adaptive` in a record. `None` if the record has no such choice."""
    choices = [event for event in events if _is_choice(event)]
    chosen = next((note for note in choices if note.name == "adaptive.chosen"), None)
    if chosen is None:
        return None
    used = [note.data["strategyUsed"] for note in choices if note.at == chosen.at][-1]
    data = chosen.data
    selected, by, why = (str(data.get(name, "")) for name in ("selectedStrategy", "by", "why"))
    return Routed(selected, used, data.get("kind"), by, why)


def route_of(event: Record) -> str:
    """The names of the strategies so far, such as `adaptive→reactive`. "" if `event` chooses none."""
    return str(event.data.get("progress", "")) if _is_choice(event) else ""


def selected_in(events: Iterable[Record]) -> dict[str, str]:
    """The strategies that each `Adaptive` in a record selected, by the id of the thought where they began."""
    choices = [event for event in events if _is_choice(event)]
    return {f"{note.at}.{_CHOICES[note.name]}": note.data["strategyUsed"] for note in choices}


_CHOICES = {"adaptive.chosen": 0, "adaptive.fell_back": 1}
"""The notes about a choice, and the number of the child thought at which the chosen strategy starts."""


def _is_choice(event: Record) -> TypeGuard[Note]:
    return (
        isinstance(event, Note)
        and event.name in _CHOICES
        and isinstance(event.data.get("strategyUsed"), str)  # a record may be untrusted
    )
