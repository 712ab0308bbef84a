"""The types of records. They form a closed set.

A run is the list of its records. The tree, frames, figures and reports are computed from this list. As
the set is closed, a file can be loaded without the strategy that wrote it; anything else that a strategy
reports is a `Note`. Records are flat frozen msgspec structs, because encoding them dominates the time of a
search and pydantic was two to three times slower.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import chain, count
from operator import attrgetter
from typing import Annotated, Any, Literal, TypeAlias, get_args

import msgspec

from tot_lab.core.bulk import gc_paused
from tot_lab.core.calls import Call, Reply, is_cost

Decision: TypeAlias = Literal["kept", "pruned", "complete", "duplicate", "merged", "failed", "answer"]
"""Decisions about a thought.

- `kept`: stays in the search.
- `pruned`: was removed from the search; `reason` names the rule.
- `complete`: its path needs no further step.
- `duplicate`: repeats the text of a sibling.
- `merged`: reaches the same state as the thought `other`.
- `failed`: the calls that should have scored it failed.
- `answer`: the run's answer. It may be wrong.
"""

DECISIONS: tuple[Decision, ...] = get_args(Decision)
"""All decisions."""

STATES = ("question", "proposed", "unreadable", *DECISIONS)
"""The states of a thought: the last decision, or before it `question` for a root, `unreadable` if its score
could not be read, else `proposed`. Tables, figures, reports and the explorer use these words."""

END_OF_REPLY = "end of reply"
"""`Decided.reason` of a `complete` thought at which the model ended its reply. The thoughts above it can be
earlier pieces of the same reply."""

UnitInterval: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1)]
"""A score, 0 to 1."""

CENTURY = 3.2e9
"""A century in seconds: the latest `Line.t` that is accepted. A later one in a file is corruption, and would
overflow dates and figures."""


class Thought(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag="thought"):
    """A node of the tree.

    Attributes:
        id: The parent's id, a dot and a number. The root is `0`.
        parent: Id of the parent, `None` for a root.
        text: The thought.
        source: Thoughts that this one was made from besides its parent (synthesis, aggregation).
        depends: Thoughts that must be finished before this one (a step of a plan).
        open: Whether the thoughts below continue its text, even in the middle of a word.
    """

    id: str
    parent: str | None
    text: str
    source: tuple[str, ...] = ()
    depends: tuple[str, ...] = ()
    open: bool = False


class Scored(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag="scored"):
    """An evaluation of a thought.

    Attributes:
        id: The thought.
        score: 0 to 1. `None` if no sample could be read.
        raw: The combined samples in the evaluator's own units, before normalising.
        samples: Each sample as it was read, `None` for an unreadable one.
        by: Where the score comes from: the kind of an evaluator (`value`, `vote`, …), the name of a function,
            or another source such as `root`, `domain`, `critique` or `person`.
    """

    id: str
    score: UnitInterval | None
    raw: float | None = None
    samples: tuple[float | None, ...] = msgspec.field(default=(), name="draws")
    by: str = ""


class Decided(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag="decided"):
    """A decision about a thought.

    Attributes:
        id: The thought.
        what: The decision.
        reason: The rule behind it.
        other: The thought into which a merged thought was merged, else `None`.
    """

    id: str
    what: Decision
    reason: str = ""
    other: str | None = None

    def __post_init__(self) -> None:
        if self.what not in DECISIONS:
            raise ValueError(f"Unknown decision: got {self.what!r}. Use {', '.join(DECISIONS)}.")


class Note(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag="note"):
    """A named event of a strategy (`tot.started`, or a user's own) with JSON data.

    Attributes:
        name: Its name.
        at: Id of the thought to which it belongs.
        data: Its data.
        fallback: Whether the strategy reports that it uses another result than the one it requested. The
            recorder logs such a note as a warning, and records it without this flag.
    """

    name: str
    at: str
    data: dict[str, Any] = {}
    fallback: bool = False


def call_failed(at: str, purpose: str, error: str, **more: Any) -> Note:
    """Return the note which records that a call failed, and that the strategy continues without its reply."""
    return Note("call.failed", at, {"kind": purpose, "error": error, **more}, fallback=True)


class Ended(
    msgspec.Struct,
    frozen=True,
    gc=False,
    omit_defaults=True,
    tag="ended",
    rename={"stop_reason": "stop"},  # the name in files
):
    """The end of a run: fields of the strategy's `Answer`, and `error`, the exception that ended the run."""

    stop_reason: str
    answer: str = ""
    node: str | None = None
    score: UnitInterval | None = None
    ranked: tuple[str, ...] = ()
    error: str | None = None


Event: TypeAlias = Thought | Scored | Decided | Note
EVENTS = (Thought, Scored, Decided, Note)
"""The types of records that a strategy may yield. The driver makes the others (`Call`, `Reply`, `Ended`)."""

Record: TypeAlias = Thought | Scored | Decided | Note | Call | Reply | Ended
"""All record types."""

Position: TypeAlias = tuple[int, ...]
"""The place in the program where a record was made: (step, branch, step, …). Sorting by position gives the
order in which a run would make the records if it made one call at a time."""

_FIRST: tuple[Position, ...] = tuple(zip(range(4096)))


def positions() -> Iterator[Position]:
    """Yield the positions in a program without branches: `(0,)`, `(1,)`, and so on.

    All runs share the tuples of the first 4,096 positions: a new tuple takes as much time and memory as a
    record.
    """
    return chain(_FIRST, zip(count(len(_FIRST))))


STOP_CODES = {
    "answered": "answered",
    "solved": "accepted a solution",
    "converged": "the best score no longer improved",
    "stagnated": "made no more progress",
    "exhausted": "had nothing left to expand",
    "limit:NAME": "reached the limit of NAME",
    "budget:NAME": "spent the budget of NAME",
    "cancelled": "was cancelled",
    "error": "failed with an error",
}
"""The codes for why a run ended, and their meanings. NAME is the limit or budget that was reached."""


def is_stop_code(stop: str) -> bool:
    """Whether `stop` is one of `STOP_CODES`."""
    kind, colon, name = stop.partition(":")
    return (f"{kind}:NAME" if colon and name else stop) in STOP_CODES and stop != f"{kind}:NAME"


def describe_stop(stop: str) -> str:
    """Return what a stop code means, in words. Returns the code itself if it is unknown."""
    kind, colon, name = stop.partition(":")
    words = STOP_CODES.get(f"{kind}:NAME" if colon else kind)
    return stop if words is None else words.replace("NAME", name)


class Line(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One line of a journal: a record, its program position, and its time.

    Attributes:
        p: The position. Empty for entries that may differ between two runs of the same search, such as
            budget warnings. `canonical` leaves them out.
        t: Seconds since the run began.
        e: The record.
        paid: USD actually paid for this reply, failed tries included: 0.0 if it came from a cache or journal,
            `None` if the price is not known. Under a limit on spending, a try without reported usage
            counts what was reserved for it.
        like: Which text the file omits because an earlier line holds it; see `tot_lab.record.journal`. 0
            means none.
    """

    p: Position
    t: Annotated[float, msgspec.Meta(ge=0, le=CENTURY)]
    e: Record
    paid: float | None = None
    like: Literal[0, 1, 2] = 0


_USAGE = ("input_tokens", "output_tokens", "cost", "reported_usage", "may_be_charged")
_UNUSED = Reply()


def usage_noted(reply: Reply) -> dict[str, Any]:
    """Return the usage of a failed try as data for a note `call.retried`."""
    return {name: value for name in _USAGE if (value := getattr(reply, name)) != getattr(_UNUSED, name)}


def failed_tries(lines: Iterable[Line]) -> dict[Position, list[Reply]]:
    """Return the usage of failed tries, each as a reply with an error, by the position of their call."""
    tries: dict[Position, list[Reply]] = {}
    for line in lines:
        note = line.e
        if isinstance(note, Note) and note.name == "call.retried" and not note.data.keys().isdisjoint(_USAGE):
            tries.setdefault(tuple(note.data.get("call", ())), []).append(failed_try(note.data))
    return tries


RESUMED = "run.resumed"
"""Name of the note that a resumed run makes after it has repeated the records of its journal. `paid` in the
note is the USD that, according to the journal, was paid for calls that are now made again. `replies` is the
part of it for calls that had a reply.
"""


def payments(lines: Iterable[Line]) -> float:
    """Return the USD paid in `lines`. A reply of unknown price, and a call without a reply, count the most
    that they can have cost, which a note about the call states.
    """
    paid, unanswered = list[float](), dict[Position, float]()
    for line in lines:
        if isinstance(line.e, Reply):
            most = unanswered.pop(line.p, 0.0)
            paid.append(line.paid if line.paid is not None and is_cost(line.paid) else most)
        elif isinstance(line.e, Note) and not line.p and is_cost(line.e.data.get("paid")):
            cost: float = line.e.data["paid"]
            if line.e.name == RESUMED:
                paid.append(cost)
                unanswered.clear()
            else:
                unanswered[tuple(line.e.data.get("call", ()))] = cost
    return math.fsum([*paid, *unanswered.values()])


def failed_try(data: dict[str, Any]) -> Reply:
    """Return the usage of the failed try that a note `call.retried` describes, as a reply with an error."""
    return Reply(error=str(data.get("error", "")), **{name: data[name] for name in _USAGE if name in data})


@gc_paused()
def canonical(lines: list[Line]) -> list[Record]:
    """The records of `lines` in program order, without the entries that have no position (`Line.p`)."""
    placed = [line for line in lines if line.p]
    placed.sort(key=attrgetter("p"))  # stable: a call stays before its reply
    return [line.e for line in placed]


def parent_of(id: str) -> str | None:
    """The id of the parent of `id`. `None` for a root."""
    head, dot, _ = id.rpartition(".")
    return head if dot else None


def id_key(id: str) -> tuple[int, ...]:
    """Sort key that puts `0.2` before `0.10`."""
    return tuple(map(int, id.split(".")))
