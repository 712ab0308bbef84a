"""Names of records, and the notes that the records of a tree search imply.

A strategy announces itself with a note such as `tot.started`. The records of its thoughts, scores and
decisions then get names with the same prefix: `tot.proposed`, `tot.evaluated`, `tot.decided`. A tree search
records each pick (`tot.picked`); the notes about its levels follow from the records and are computed here,
one record at a time, for live watchers and for finished runs alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import msgspec

from tot_lab.core.records import Decided, Line, Note, Record, Scored, Thought, id_key, parent_of
from tot_lab.record.run import Run

OfThought: TypeAlias = Thought | Scored | Decided
"""A record about a thought."""

_ENDS_OF_LEVELS = ("tot.picked", "tot.solved", "tot.completed", "tot.no_thoughts")


class _Judged(msgspec.Struct):
    """The score and the last decision of a thought on the current level."""

    score: float | None = None
    what: str = "proposed"
    reason: str = ""


class _Scope:
    """A strategy that recorded a note such as `tot.started`, and the level that its search is expanding."""

    def __init__(self, name: str, root: str) -> None:
        self.name = name
        self.root = root
        self.level: int | None = None
        self.parents: dict[str, int] = {}  # parents of the current level, with their order in the pick
        self.fresh: dict[str, _Judged] = {}
        self.is_empty = False  # whether the latest level kept none of its thoughts

    def depth(self, id: str) -> int:
        """Depth below the root of the strategy."""
        return id.count(".") - self.root.count(".")

    def opened(self, parents: Sequence[str]) -> Note:
        """Begin the level below `parents`. Returns the note that says so."""
        self.level, self.fresh = self.depth(parents[0]) + 1, {}
        self.parents = {id: place for place, id in enumerate(parents)}
        return Note("tot.level_started", self.root, {"depth": self.level, "frontier_size": len(parents)})

    def _rank(self, id: str) -> tuple[float, int, tuple[int, ...]]:
        """Key that sorts thoughts as the search does: by score, and equal scores by parent and number. Calls
        of several parents may be answered in any order, so the order of the records does not matter.
        """
        score = self.fresh[id].score
        parent = self.parents.get(parent_of(id) or "", len(self.parents))
        return (1.0 if score is None else -score, parent, id_key(id))

    def closed(self) -> Iterator[Note]:
        """End the current level, if there is one. Yields the note that says which thoughts were kept."""
        if self.level is None:
            return
        kept = [id for id, judged in self.fresh.items() if judged.what in ("kept", "complete")]
        kept.sort(key=self._rank)
        data = {
            "depth": self.level,
            "kept": kept,
            "kept_scores": [self.fresh[id].score for id in kept],
            "pruned_below_floor": sum(judged.reason == "min_score" for judged in self.fresh.values()),
        }
        yield Note("tot.pruned", self.root, data)
        self.is_empty = bool(self.fresh) and not kept
        self.level = None


class SearchNotes:
    """Follows the records of a run in the order in which they were made."""

    def __init__(self) -> None:
        self._scopes: dict[str | None, _Scope] = {}  # by thought, the innermost strategy around it

    def before(self, record: Record) -> list[Note]:
        """Process the next record. Returns the implied notes that precede it."""
        if isinstance(record, Thought):
            if (scope := self._scopes.get(record.parent)) is not None:
                self._scopes[record.id] = scope
                scope.fresh[record.id] = _Judged()
        elif isinstance(record, Scored | Decided):
            scope = self._scopes.get(record.id)
            judged = None if scope is None else scope.fresh.get(record.id)
            if judged is not None and isinstance(record, Scored):
                judged.score = record.score
            elif judged is not None and isinstance(record, Decided) and record.what != "answer":
                judged.what, judged.reason = record.what, record.reason
        elif isinstance(record, Note):
            if record.name.endswith(".started"):
                self._scopes[record.at] = _Scope(record.name.removesuffix(".started"), record.at)
            elif record.name in _ENDS_OF_LEVELS:
                return list(self._of_levels(record))
        return []

    def _of_levels(self, record: Note) -> Iterator[Note]:
        scope = self._scopes[record.at]
        level = scope.level
        yield from scope.closed()
        if record.name == "tot.picked":
            yield scope.opened(record.data["parents"])
        elif record.data.get("total_nodes") == 1:
            if level is not None:
                yield Note("tot.empty_beam", record.at, {"depth": level})
        elif record.name == "tot.completed" and scope.is_empty:
            yield Note("tot.empty_beam", record.at, {"depth": scope.depth(next(iter(scope.fresh)))})

    def named(self, record: OfThought) -> Note:
        """`record` as a note, named after the strategy around it. Call this method after `before(record)`."""
        scope = self._scopes.get(record.id)
        within, alone, data = _described(record)
        name = alone if scope is None else f"{scope.name}.{within}"
        depth = record.id.count(".") if scope is None else scope.depth(record.id)
        return Note(name, record.id, {"depth": depth, "node_id": record.id, **data})

    def follow(self, lines: Iterable[Line]) -> Iterator[Line]:
        """Yield `lines` with the notes they imply, which have no position. A record about a thought is
        followed by the note that names it.
        """
        for line in lines:
            record = line.e
            yield from (Line((), line.t, note) for note in self.before(record))
            yield line
            if isinstance(record, OfThought) and record.id in self._scopes:
                yield Line((), line.t, self.named(record))


def notes_of(run: Run) -> list[Note]:
    """Return the notes of a run, recorded and implied, in the order in which they were made."""
    notes = SearchNotes()
    found: list[Note] = []
    for line in run.lines:
        found += notes.before(line.e)
        if isinstance(line.e, Note):
            found.append(line.e)
    return found


def _described(record: OfThought) -> tuple[str, str, dict[str, Any]]:
    """Return the name of a record inside a strategy, its name without a strategy, and its content."""
    if isinstance(record, Thought):
        links = {"source": list(record.source), "depends": list(record.depends)}
        known = {name: ids for name, ids in links.items() if ids}
        return "proposed", "thought", {"parent_id": record.parent, "content": record.text, **known}
    if isinstance(record, Scored):
        held = {"score": record.score, "raw": record.raw, "samples": list(record.samples), "by": record.by}
        return "evaluated", "scored", held
    return "decided", "decided", {"what": record.what, "reason": record.reason, "other": record.other}
