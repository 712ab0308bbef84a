"""Base of domains whose steps lead from one state to the next, with the prompts that these domains share.

Each prompt contains the problem, the steps so far with the state after them, and at the end the part that
differs between sibling thoughts.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tot_lab.core.reading.json_values import read_json
from tot_lab.core.task import Domain, Path, Task


class StateDomain(Domain):
    """Base of domains whose steps lead from one state to the next, such as the moves of a puzzle."""

    kind = ""

    step_name: ClassVar[str] = "step"
    most_promising: ClassVar[str]
    """Words for the best candidate in the prompt of a vote."""

    worst: ClassVar[str]
    surest: ClassVar[str]
    """Words for the scores 0 (`worst`) and 1 (`surest`) in the prompt that scores several candidates jointly.
    """

    @abstractmethod
    def _problem(self, task: Task) -> str:
        """Return the problem with its rules."""

    @abstractmethod
    def _progress(self, task: Task, path: Path) -> str:
        """Return the steps so far and the state that they lead to."""

    def _position(self, task: Task, path: Path) -> str:
        return f"{self._problem(task)}\n\n{self._progress(task, path)}"

    def vote_prompt(self, task: Task, paths: Sequence[Path]) -> str:
        listed = (f"Candidate {k}:\n{self._progress(task, path)}" for k, path in enumerate(paths, 1))
        ask = (
            f"Which candidate is {self.most_promising}? Compare them in brief, then end with a line "
            "`best: N`, N being its number."
        )
        return "\n\n".join([self._problem(task), ask, *listed])

    def joint_prompt(self, task: Task, path: Path, candidates: Sequence[str]) -> str:
        return (
            f"{self._position(task, path)}\n\n"
            f"Score each candidate from 0 ({self.worst}) to 1 ({self.surest}). Reply with a JSON array of "
            f"the {len(candidates)} scores in that order and nothing else.\n\n"
            f"Candidates for the next {self.step_name}:\n{self.steps(candidates)}"
        )

    def read_sample(self, task: Task, path: Path, text: str) -> str | None:
        return next(iter(self.read_proposals(task, path, text)), None)

    def is_bounded(self, task: Task) -> bool:
        return True


def picks_schema(properties: Mapping[str, Any], many: str = "") -> dict[str, Any]:
    """Return the schema of an object with `properties`. If `many` is not empty, it is the schema of an object
    whose only field `many` is a list of such objects.
    """
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return picks_schema({many: {"type": "array", "items": schema}}) if many else schema


def read_picks(text: str, field: str) -> list[dict[str, Any]]:
    """Return the JSON objects in `text`: an object that has `field`, the objects of a list, or those of the
    first list inside an object without `field`.
    """
    picks = read_json(text) if "{" in text else None
    if isinstance(picks, dict) and field not in picks:
        picks = next((item for item in picks.values() if isinstance(item, list)), None)
    return [pick for pick in (picks if isinstance(picks, list) else [picks]) if isinstance(pick, dict)]
