"""The changes of a person in a run: in a branch (`lab.branch`), or while the run was live
(`stream.steer`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tot_lab.core.acts import NOTE, Graft, Prune, RaiseBudget, Rescore, acts_of
from tot_lab.core.records import Note, Scored, Thought
from tot_lab.core.tree import format_score
from tot_lab.record.edits import Branched, Edits
from tot_lab.record.run import Run

REPLACED = "text replaced"


class PersonChange(NamedTuple):
    """A change that a person made.

    Attributes:
        node: Id of the changed thought, or "" for a change of the whole run.
        what: What was changed, such as `score set to 1`.
        line: Index in `run.lines` of the line that shows the change.
    """

    node: str
    what: str
    line: int

    def __str__(self) -> str:
        return f"thought {self.node}: {self.what}" if self.node else self.what


def changes_of(run: Run) -> list[PersonChange]:
    """Return the changes of a person: first those with which a branch was begun, then those during the run,
    each in the order of the record. Edits of thoughts that the branch did not reach are left out. The list is
    empty if the record of the changes is malformed.
    """
    try:
        return [*_edited(run), *_acted(run)]
    except ValueError:  # the header or a note of the file is malformed
        return []


def _edited(run: Run) -> Iterator[PersonChange]:
    branched = Branched.of(run.header.branched)
    if branched is None:
        return
    if branched.strategy:
        kind = branched.strategy.get("kind", "another strategy")
        yield PersonChange("", f"{kind} continues from thought {branched.node} of run {branched.run}", 0)
    edits = Edits.of(run.header.branched)
    shown: set[tuple[str, type]] = set()
    for number, line in enumerate(run.lines if edits else ()):
        event = line.e
        if not isinstance(event, Thought | Scored) or (event.id, type(event)) in shown:
            continue
        if isinstance(event, Thought) and edits and event.id in edits.contents:
            yield PersonChange(event.id, REPLACED, number)
        elif isinstance(event, Scored) and edits and event.id in edits.scores:
            yield PersonChange(event.id, f"score set to {format_score(edits.scores[event.id])}", number)
        else:
            continue
        shown.add((event.id, type(event)))


def _acted(run: Run) -> Iterator[PersonChange]:
    taken = acts_of(run.lines_of(Note))
    scores: dict[str, float] = {}
    grafts: list[Graft] = []  # acts whose thought is not recorded yet
    for number, line in enumerate(run.lines if taken else ()):
        event = line.e
        if isinstance(event, Scored) and event.score is not None:
            scores[event.id] = event.score
        elif isinstance(event, Thought):
            made = next((act for act in grafts if (act.node, act.text) == (event.parent, event.text)), None)
            if made is not None:
                grafts.remove(made)
                yield PersonChange(event.id, f"added with score {format_score(made.score)}", number)
        elif isinstance(event, Note) and event.name == NOTE:
            for act in taken[event.at, event.data["pick"]]:
                match act:
                    case Prune(node):
                        yield PersonChange(node, "pruned", number)
                    case Rescore(node, score):
                        before = f" (was {format_score(scores[node])})" if node in scores else ""
                        yield PersonChange(node, f"score set to {format_score(score)}{before}", number)
                    case Graft():
                        grafts.append(act)
                    case RaiseBudget(limits):
                        caps = ", ".join(f"{name} {limit:g}" for name, limit in limits.items())
                        yield PersonChange("", f"budget raised to {caps}", number)
