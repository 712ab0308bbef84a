"""Tasks of reasoning-gym, as questions with a free-text answer.

reasoning-gym generates tasks of about a hundred families and grades their answers. It runs in a separate
process (`worker.py`), because some of its graders run answers as Python code. It is only needed to make
tasks, and to grade answers for which this package has no exact grader (`exact.py`). A recorded run can be
loaded, replayed and shown without it.

References:
    Stojanovski et al. 2025, "REASONING GYM: Reasoning Environments for Reinforcement Learning with Verifiable
    Rewards", https://github.com/open-thought/reasoning-gym.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tot_lab.core.extras import requires
from tot_lab.core.parts import class_of, known_names
from tot_lab.core.processes import Failed, Killed, Worker
from tot_lab.core.reading.answers import whole_answer
from tot_lab.core.reading.decoration import undecorated
from tot_lab.core.registry import names
from tot_lab.core.task import Domain, Task, Ungraded
from tot_lab.domains.general import ALONE, General
from tot_lab.domains.gym.exact import EXACT, is_solved

MAX_TASKS = 100_000
"""Maximum number of tasks of one request."""

LONGEST = 20_000
"""Maximum number of characters of an answer that is graded."""

_WORKER = Worker(Path(__file__).with_name("worker.py").read_text(encoding="utf-8"))

GRADING = 4.0
"""Limit of CPU time for grading one answer, in seconds."""

MAKING = 600.0
"""Limit of CPU time for one request for tasks, in seconds."""


SEVERAL_RIGHT = frozenset(
    {
        *(
            "boxnet",
            "countdown",
            "graph_color",
            "intermediate_integration",
            "jugs",
            "knight_swap",
            "n_queens",
        ),
        *("palindrome_generation", "propositional_logic", "puzzle24", "quantum_lock", "rubiks_cube"),
        *("rush_hour", "shortest_path", "simple_integration", "sokoban", "tower_of_hanoi", "word_ladder"),
    }
)
"""Families whose questions have several right answers. The reference is only one of them."""


class Gym(General):
    """A question of a family of reasoning-gym. `tl.tasks("gym:FAMILY", 50)` makes its tasks.

    The answer is the text after `Answer:`, of one or more lines. `grade` is 1 if the answer is right and 0
    otherwise. An answer is right if the family's grader gives it exactly 1.0 or, in a family of `EXACT`, if
    the exact grader of this package accepts it. Partial credit is `credit`.
    """

    kind = "gym"

    grading: None = None
    """Always `None`, because the grader of the family decides."""

    family: str
    """Name of the family."""

    difficulty: dict[str, Any] = {}
    """Fields of the family's configuration that differ from its defaults."""

    def answer_prompt(self, task: Task, reasoning: bool) -> str:
        how = "Think step by step, then end with" if reasoning else "Without explanation, reply with"
        return (
            f"Problem:\n{self.statement(task)}\n\n{how} `Answer:` and the answer, of one or more lines, in "
            "the form that the problem asks for. Write nothing after it.\nAnswer: <your answer>"
        )

    def task_prompt(self, task: Task, reasoning: bool) -> str:
        return f"Problem:\n{self.statement(task)}\n\n{ALONE}"

    def read_answer(self, task: Task, text: str) -> str | None:
        r"""Return the text between the last `<answer>` tags, or after the last `Answer:` that begins a line,
        or in the last `\boxed{…}`, or else the whole reply. Remarks after the answer and its decoration are
        removed: a code block or a box around it, emphasis, math delimiters, end-of-turn tokens and, unless
        the answer is a sentence, quotes and a final full stop.
        """
        return whole_answer(text)

    def expected(self, task: Task) -> Any:
        """Return the reference answer. Returns `None` if the family accepts other answers too."""
        return None if self.family in SEVERAL_RIGHT else task.reference

    def grade(self, task: Task, answer: str) -> float | None:
        """Return 1 if `answer` is right, and 0 otherwise. `None` if `task.data` is empty.

        An answer of over 20,000 characters, or whose grading exceeds the limits of CPU time or memory, is not
        right.

        Raises:
            Ungraded: If reasoning-gym is not installed, or its process cannot be started, reports an error or
                exceeds its limit of wall time.
        """
        if not task.data:
            return None
        return float(self._score(task, answer) == 1.0)

    def is_bounded(self, task: Task) -> bool:
        """Return whether an answer is graded without the worker."""
        return self.family in EXACT

    def credit(self, task: Task, answer: str) -> float | None:
        """Return the score that the family gives `answer`, 0–1, or `None` if `task.data` is empty. For a
        family with an exact grader of this package, it is the grade. Raises `Ungraded` like `grade`.
        """
        return self._score(task, answer) if task.data else None

    def _score(self, task: Task, answer: str) -> float:
        """Return the higher of the scores of `answer` and of `answer` without decoration."""
        score = self._score_of(task, answer)
        bare = undecorated(answer, ends=".!?")
        return score if score == 1.0 or bare == answer else max(score, self._score_of(task, bare))

    def _score_of(self, task: Task, answer: str) -> float:
        if len(answer) > LONGEST:
            return 0.0
        if self.family in EXACT:
            return float(is_solved(self.family, answer, task.reference, task.data))
        entry = {"question": task.question, "answer": task.reference, "metadata": task.data}
        request = {"family": self.family, "difficulty": self.difficulty, "entry": entry, "answer": answer}
        try:
            return _scored(json.dumps(request))
        except (OSError, ImportError, ValueError) as error:
            raise Ungraded(f"gym:{self.family}: {error}") from None


@lru_cache(maxsize=1_024)
def _scored(request: str) -> float:
    """Return the score of an answer. 0 if the worker exceeds its limit of CPU time or crashes."""
    try:
        return float(_ask("score", **json.loads(request)))
    except Killed:
        return 0.0


def gym_tasks(
    family: str,
    count: int | None = None,
    seed: int | None = None,
    difficulty: Mapping[str, Any] | None = None,
) -> list[Task]:
    """Make the first `count` tasks of a family of reasoning-gym.

    If the family has a search domain (`gym/FAMILY`), the tasks belong to it and have steps. Otherwise they
    belong to `Gym`. `task.data` is the metadata of an item of reasoning-gym. `task.reference` is the answer
    in the item, and `None` in families whose items have no answer.

    Args:
        family: Name of the family, such as `countdown`.
        count: Number of tasks.
        seed: The same seed makes the same tasks. `None` means 0. Many families use `seed + k` for task `k`,
            so seeds that differ by less than `count` give some equal tasks.
        difficulty: Fields of the family's configuration and their values.

    Raises:
        ValueError: For an unknown family or field, or an invalid value. The message lists the known
            families or fields.
        ModuleNotFoundError: If reasoning-gym is not installed.
    """
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_TASKS:
        raise ValueError(
            f"count must be a number from 1 to {MAX_TASKS:,}: got {count!r}. For example "
            f"tl.tasks('gym:{family}', 50)."
        )
    seed = 0 if seed is None else seed
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32 - MAX_TASKS:
        raise ValueError(f"seed must be a number from 0 to {2**32 - MAX_TASKS - 1:,}: got {seed!r}.")
    given = _validated(family, {} if difficulty is None else difficulty)
    items = _ask("make", family=family, count=count, seed=seed, difficulty=given)
    return [_task(family, given, f"gym/{family}-{seed}-{k}", item) for k, item in enumerate(items, 1)]


def _validated(family: str, difficulty: Mapping[str, Any]) -> dict[str, Any]:
    known = _ask("describe", family=family)
    if known["fields"] is None:
        raise ValueError(
            f"Unknown family {family!r} of reasoning-gym; {known_names(family, known['families'])}."
        )
    if not isinstance(difficulty, Mapping):
        raise ValueError(f"difficulty must be a dict of fields and values: got {difficulty!r}.")
    for name in difficulty:
        if name not in known["fields"]:
            hint = " Pass seed= and count instead." if name in ("seed", "size") else ""
            raise ValueError(
                f"gym:{family} has no difficulty field {name!r}; {known_names(name, known['fields'])}.{hint}"
            )
    try:
        given: dict[str, Any] = json.loads(json.dumps(dict(difficulty), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"difficulty must contain only JSON values: {error}.") from None
    try:
        _ask("make", family=family, count=1, seed=0, difficulty=given)
    except ValueError as error:
        defaults = json.dumps(known["fields"])
        raise ValueError(
            f"gym:{family} rejects difficulty={given}: {error}. Its fields, with their defaults: {defaults}"
        ) from None
    return given


def _task(family: str, difficulty: dict[str, Any], id: str, item: Mapping[str, Any]) -> Task:
    data = item["metadata"]
    if family == "composite":
        family = data["source_dataset"]
        (difficulty,) = [one["config"] for one in difficulty["datasets"] if one["name"] == family]
        difficulty = {name: value for name, value in difficulty.items() if name not in ("seed", "size")}
    search = f"gym/{family}"
    domain = (
        class_of(search, Domain)()
        if search in names("domains")
        else Gym(family=family, difficulty=difficulty)
    )
    return Task(domain=domain, question=item["question"], data=data, reference=item["answer"], id=id)


def _ask(do: str, **request: Any) -> Any:
    """Return the value with which the worker replies to the request `do`.

    Raises:
        ValueError: If the worker reports an error, with its message.
        ModuleNotFoundError: If reasoning-gym is not installed.
        Killed: If the worker exceeded its limit of CPU time or crashed.
        OSError: If the worker cannot start, or exceeded its limit of wall time.
    """
    if find_spec("reasoning_gym") is None:
        what = "Grading" if do == "score" else f"gym:{request['family']}"
        raise ModuleNotFoundError(requires(what, "reasoning-gym", "gym"))
    try:
        reply = _WORKER.request({"do": do, **request}, GRADING if do == "score" else MAKING)
    except Failed as error:
        raise OSError(f"{error}") from None
    if "error" in reply:
        raise ValueError(reply["error"])
    return reply["value"]
