"""The published Game of 24 experiment as a model: it answers a prompt with what GPT-4 answered.

Rule: nothing here knows which answers are right, or which thoughts were kept. The model only
looks a prompt up: the proposals that were recorded for a path, and the verdicts recorded for the
numbers left (or for a final answer). The record holds the sum of three verdicts, 20 / 1 / 0.001
for sure / likely / impossible, from which the three follow.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator
from pathlib import Path as FilePath
from typing import Any, ClassVar

from tot_lab.core.calls import Call, Reply
from tot_lab.core.task import Path, Task
from tot_lab.domains.game24 import Game24, game24

MARK = "\n--- "


class RecordedGame24(Game24):
    """Game of 24 with the published run's own reading: each line of a reply is a proposal, kept to
    the letter, and nothing but the last line says where a path stands."""

    kind: ClassVar[str] = "benchmark/recorded_game24"

    def propose_prompt(self, task: Task, path: Path, count: int) -> str:
        return f"propose{MARK}{task.question}{MARK}{lines(path)}"

    def read_proposals(self, task: Task, path: Path, text: str) -> list[str]:
        return text.split("\n") if text else []

    def value_prompt(self, task: Task, path: Path) -> str:
        return f"value{MARK}{standing(task.question, path)}"

    def complete(self, task: Task, path: Path) -> bool | None:
        return None  # the published run searches every level, whatever stands there

    def state(self, task: Task, path: Path) -> Hashable | None:
        return None


def lines(path: Path) -> str:
    """A path as the published run writes it."""
    return "".join(f"{step}\n" for step in path)


def standing(question: str, path: Path) -> str:
    """What the published value prompt shows of a path: the numbers left, or the answer."""
    last = lines(path).strip().split("\n")[-1]
    if "left: " not in last:
        return f"{question} | {last.lower().replace('answer: ', '')}"
    return last.split("left: ")[-1].split(")")[0]


class RecordedModel:
    """Answers from one puzzle's record; proposals that were never made are an empty reply."""

    def __init__(self, puzzle: dict[str, Any]) -> None:
        self.question: str = puzzle["steps"][0]["x"]
        self.puzzle = puzzle
        self.proposals: dict[str, str] = {}
        self.verdicts: dict[str, list[str]] = {}
        for step in puzzle["steps"]:
            for y in step["ys"]:
                new = [
                    c[len(y) : -1] for c in step["new_ys"] if c.startswith(y) and "\n" not in c[len(y) : -1]
                ]
                self.proposals[y] = "\n".join(new)
            for candidate, value in zip(step["new_ys"], step["values"], strict=True):
                key = standing(self.question, candidate.split("\n")[:-1])
                if value or key not in self.verdicts:  # a repeat within its step is recorded as 0
                    self.verdicts[key] = verdicts(value)

    async def __call__(self, call: Call) -> Reply:
        kind, _, asked = call.prompt.partition(MARK)
        if kind == "value":
            return Reply(self.verdicts[asked][call.draw])
        return Reply(self.proposals.get(asked.partition(MARK)[2], ""))


def verdicts(total: float) -> list[str]:
    """Three verdicts whose values add up to `total`; what is missing was not readable."""
    sure = int(total // 20)
    likely = int(total - 20 * sure + 1e-6)
    impossible = round((total - 20 * sure - likely) * 1000)
    read = ["sure"] * sure + ["likely"] * likely + ["impossible"] * impossible
    assert len(read) <= 3, total
    return read + ["(no verdict that can be read)"] * (3 - len(read))


def recorded(folder: str) -> Iterator[tuple[Task, RecordedModel]]:
    """A task and its model for each puzzle of the Game of 24 records in `folder`."""
    files = sorted(FilePath(folder).glob("*game24*.json"))
    if not files:
        raise SystemExit(f"no *game24*.json in {folder}")
    for file in files:
        for puzzle in json.loads(file.read_text()):
            model = RecordedModel(puzzle)
            task = game24(model.question).model_copy(update={"domain": RecordedGame24()})
            yield task, model
