"""Changes of a person in a branch of a run.

An edit is applied before an event is recorded: the changed event is recorded and sent back to the strategy
(`emit`). Nothing else in the search changes, so a replay needs only the edits in the header.

A header describes a branch as `{"run": id, "node": id}` with one further field for the change: `content`,
`score` or `strategy`. `file` is the journal of the parent, if it has one; `before` is the branch of the
parent, if it was branched too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tot_lab.core.records import Scored, Thought


class Branched(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How a branch was made: the parent run, the node, and the change there.

    Attributes:
        run: Id of the parent run.
        node: Id of the thought that was changed, or from which another strategy continues.
        file: Journal of the parent run. `None` for a run in memory.
        content: The new text of the thought. `None` if it was not changed.
        score: The new score of the thought. `None` if it was not changed.
        strategy: Settings of the strategy that continues. Empty for a change of the text or the score.
        before: How the parent run itself was branched. `None` if it was not.
    """

    run: str
    node: str
    file: str | None = None
    content: str | None = None
    score: float | None = None
    strategy: dict[str, Any] = {}
    before: Branched | None = None

    @classmethod
    def of(cls, data: dict[str, Any]) -> Branched | None:
        """Return how a run was branched, from `Header.branched`. `None` if that is empty. Raises ValueError
        if it is invalid.
        """
        return msgspec.convert(data, cls) if data else None


EDITED = (Thought, Scored)
"""The events that an edit may change."""


class Edits:
    """Texts and scores that a person changed, by thought."""

    def __init__(self, contents: dict[str, str], scores: dict[str, float]) -> None:
        self.contents = contents
        self.scores = scores

    @classmethod
    def of(cls, data: dict[str, Any]) -> Edits | None:
        """Return the edits in `data` (`Header.branched`), including those of parent runs. `None` if there are
        none."""
        contents: dict[str, str] = {}
        scores: dict[str, float] = {}
        for step in _lineage(Branched.of(data)):
            if step.strategy:
                break  # a new search began at the end of a path that contains the earlier edits already
            if step.content is not None:
                contents.setdefault(step.node, step.content)
            if step.score is not None:
                scores.setdefault(step.node, step.score)
        return cls(contents, scores) if contents or scores else None

    def applied(self, event: Any) -> Any:
        """`event` as it will be recorded, with the edit of its thought if there is one."""
        if type(event) is Thought and event.id in self.contents:
            return msgspec.structs.replace(event, text=self.contents[event.id])
        if type(event) is Scored and event.id in self.scores:
            return Scored(event.id, self.scores[event.id], by="person")
        return event


def _lineage(step: Branched | None) -> Iterator[Branched]:
    """Yield `step`, the `Branched` of its parent run, and so on to the first branch."""
    while step is not None:
        yield step
        step = step.before
