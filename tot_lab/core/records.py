"""The closed set of things that can happen in a run.

Rule: a run is the list of its records. Tree, frames, figures and reports are folds over that
list; what is not in a record did not happen. The set is small and closed, so that a file loads
without the strategy that made it: anything a strategy wants to say beyond it is a `Note`.

Records are flat frozen msgspec structs: encoding them is what a search spends most of its own
time on, and pydantic was measured at two to three times the cost.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from tot_lab.core.bulk import gc_paused
from tot_lab.core.calls import Call, Reply

Decision: TypeAlias = Literal["kept", "pruned", "complete", "duplicate", "merged", "failed", "solution"]
"""What can be decided about a thought.

kept: stays in the search. pruned: leaves it (`reason` says by what rule). complete: its path
needs no further step. duplicate: repeats a sibling's text. merged: reaches the state of the
thought `other`. failed: the calls that should have scored it failed. solution: the run's answer.
"""

Share: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1)]
"""A score, 0 to 1."""

CENTURY = 3.2e9
"""Seconds. No run takes longer: a later time is damage, which dates and figures could not show."""


class Thought(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag="thought"):
    """A node of the tree. `id` is the parent's id, a dot and a number; the root is `0`.

    source: thoughts that this one was made from besides its parent (a synthesis).
    depends: thoughts that must be done before this one (a step of a plan).
    """

    id: str
    parent: str | None
    text: str
    source: tuple[str, ...] = ()
    depends: tuple[str, ...] = ()


class Scored(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag="scored"):
    """An evaluation of a thought.

    score: 0 to 1, or None when no draw could be read: an unread thought has no number.
    raw: the combined draws in the evaluator's own units, before normalising.
    draws: each draw as it was read, None where it could not be.
    by: what evaluated it: value, parts, vote, joint, logprob, root, domain, or a function's name.
    """

    id: str
    score: Share | None
    raw: float | None = None
    draws: tuple[float | None, ...] = ()
    by: str = ""


class Decided(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag="decided"):
    """A decision about a thought, and the rule behind it. `other` is the thought it merged with."""

    id: str
    what: Decision
    reason: str = ""
    other: str | None = None


class Note(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag="note"):
    """A named architecture event (`tot.started`, or a user's own) with its fields as JSON."""

    name: str
    at: str
    data: dict[str, Any] = {}


class Ended(
    msgspec.Struct,
    frozen=True,
    gc=False,
    omit_defaults=True,
    tag="ended",
    rename={"stop_reason": "stop"},  # the name in files
):
    """The end of a run. `stop_reason` is one of the stop words (`STOP_WORDS`)."""

    stop_reason: str
    answer: str = ""
    node: str | None = None
    score: Share | None = None
    ranked: tuple[str, ...] = ()
    error: str | None = None


Event: TypeAlias = Thought | Scored | Decided | Note
EVENTS = (Thought, Scored, Decided, Note)
"""What a strategy itself may yield as having happened."""

Record: TypeAlias = Thought | Scored | Decided | Note | Call | Reply | Ended
"""Everything that a run can hold."""

Position: TypeAlias = tuple[int, ...]
"""Where in the program a record was made: (step, branch, step, …). Sorted by it, the records
stand in the order in which the run would have happened one call at a time."""

STOP_WORDS = (
    "answered",
    "solved",
    "converged",
    "stagnated",
    "exhausted",
    "limit:NAME",
    "budget:NAME",
    "cancelled",
    "error",
)
"""Why a run can end; NAME is the limit or the cap that was met."""


def is_stop_word(stop: str) -> bool:
    """Whether `stop` is of the one vocabulary, `STOP_WORDS`."""
    kind, colon, name = stop.partition(":")
    return (f"{kind}:NAME" if colon and name else stop) in STOP_WORDS and stop != f"{kind}:NAME"


class Line(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One line of a journal: a record, its position in the program, and when it happened.

    p: the position. Empty for what stands beside the canonical list (a budget warning): it may
        differ between two runs of the same search.
    t: seconds since the run began. e: the record.
    paid: USD really paid for this reply; 0.0 when it came from a cache or a journal, None when
        the price is not known.
    """

    p: Position
    t: Annotated[float, msgspec.Meta(ge=0, le=CENTURY)]
    e: Record
    paid: float | None = None


@gc_paused()
def canonical(lines: list[Line]) -> list[Record]:
    """The records of `lines` in program order, without those that stand beside it."""
    placed = [line for line in lines if line.p]
    placed.sort(key=lambda line: line.p)  # stable: a call stays before its reply
    return [line.e for line in placed]


def parent_of(id: str) -> str | None:
    """The id of the thought above `id`, None for a root (`0`)."""
    head, dot, _ = id.rpartition(".")
    return head if dot else None


def id_key(id: str) -> tuple[int, ...]:
    """Sort key that puts `0.2` before `0.10`."""
    return tuple(map(int, id.split(".")))
