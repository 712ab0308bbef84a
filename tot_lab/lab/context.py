"""Context for a question: a user's values and files, and earlier questions and answers.

The context becomes part of the task, and so of the header of the run: the same inputs give the same record.
Its length is bounded, shortened texts are marked as such, and API keys of the environment are left out.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tot_lab.core.records import Note
from tot_lab.core.scrubbing import scrubbed
from tot_lab.core.task import Task
from tot_lab.record.run import Run
from tot_lab.strategies.conversation import shortened
from tot_lab.tools import ReadFile

MAX_CHARACTERS = 40_000
"""Maximum number of characters of one value in a context, and of all files together."""

MAX_FILES = 50
"""Maximum number of files in one context."""


class Earlier(NamedTuple):
    """An earlier question of a session or a memory, its answer, the id of its run, and the critiques that its
    attempts received.
    """

    question: str
    answer: str
    run: str
    critiques: tuple[str, ...] = ()


def critiques_of(run: Run) -> list[str]:
    """Return the critiques in `run` that rejected an answer, without duplicates."""
    critiques = [
        run.tree[event.data["critique"]].text
        for event in run.events
        if isinstance(event, Note) and event.name == "reflexion.critiqued" and not event.data["satisfied"]
    ]
    return [critique for critique in dict.fromkeys(critiques) if critique.strip()]


class SessionMemory:
    """Questions and answers of a session, which later runs receive as context.

        memory = tl.SessionMemory()
        await tl.think("Which database?", memory=memory)
        await tl.Session(lab, memory=memory).ask(tl.ReAct(), tl.general("Migrate to it."))

    The newest question and answer get half of the characters, the next newest half of the rest, and so on. Of
    older questions for which no characters are left, the context states only the number.

    Args:
        most: Maximum number of characters of the context, at least 200.

    Raises:
        ValueError: If `most` is below 200.
    """

    def __init__(self, most: int = 12_000) -> None:
        if most < 200:
            raise ValueError(f"most must be at least 200 characters: got {most!r}.")
        self.most = most
        self.thoughts: list[Earlier] = []
        """The earlier questions with their answers, unshortened, oldest first."""

    def __len__(self) -> int:
        return len(self.thoughts)

    def __repr__(self) -> str:
        return f"<SessionMemory of {len(self)} thoughts>"

    def add(self, run: Run) -> None:
        """Store the answer and the critiques of `run`. A run without either is ignored."""
        critiques = critiques_of(run)
        if run.answer or critiques:
            self.thoughts.append(Earlier(run.question, run.answer, run.id, tuple(critiques)))

    def remind(self, task: Task) -> Task:
        """Return `task` with the earlier questions and answers in its context."""
        if not isinstance(task, Task):
            raise TypeError(f'task must be a Task such as tl.general("…"): got {task!r}.')
        return task.model_copy(update={"context": join_context(self.context(), task.context)})

    def context(self) -> str:
        """Return the earlier questions and answers as text, oldest first, or "" if there are none."""
        turns: list[str] = []
        room = self.most
        for place, one in enumerate(reversed(self.thoughts)):
            last = place == len(self.thoughts) - 1
            share = room if last else max(room // 2, min(room, 200))
            if share < 100:
                break
            turns.append(earlier_turn(one, share))
            room -= len(turns[-1])
        if not turns:
            return ""
        left_out = len(self.thoughts) - len(turns)
        head = "Thought in this session before, the oldest first:"
        missing = [f"({left_out} older thoughts are left out.)"] if left_out else []
        return "\n\n".join([head, *missing, *reversed(turns)])


def earlier_turn(one: Earlier, most: int) -> str:
    """Return a question, its answer and the critiques of its attempts as text of about `most` characters."""
    question = shortened(one.question, most // 3)
    room = most - len(question)
    critiques = shortened("\n".join(one.critiques), room // 2)
    answer = shortened(one.answer or "none", room - len(critiques))
    criticised = f"\nAttempts at it were criticised:\n{critiques}" if critiques else ""
    return f"Question: {question}\nAnswer: {answer}{criticised}"


def join_context(*texts: str) -> str:
    """Join non-empty texts into one context."""
    return "\n\n".join(filter(None, texts))


def format_value(name: str, value: Any, cut: list[str] | None = None) -> str:
    """Return a user's value as text for a context, with its name as heading.

    Args:
        name: The heading.
        value: A pandas table is written as CSV, a run as its question and answer, and anything else as
            `str(value)`.
        cut: A list, to which a message is appended if the text had to be shortened.
    """
    if isinstance(value, Run):
        text = f"Question: {value.question}\nAnswer: {value.answer or 'none'}"
    elif hasattr(value, "to_csv"):
        text = value.to_csv()
    else:
        text = str(value)
    return _part(name, text, cut)


def read_files(
    patterns: Iterable[str], folder: str | os.PathLike[str] = ".", cut: list[str] | None = None
) -> str:
    """Return the text files below `folder` that match `patterns` as text for a context, each with its
    path as heading.

    Args:
        patterns: Glob patterns such as `src/*.py` and `docs/**/*.md`.
        folder: The folder that the patterns are relative to.
        cut: A list, to which a message is appended for each file that had to be shortened.

    Raises:
        ValueError: If a pattern matches no file, a file is not text or lies outside `folder`, or more than
            `MAX_FILES` files match.
    """
    reader = ReadFile(root=os.fspath(folder))
    paths = list(dict.fromkeys(path for pattern in patterns for path in _matching(pattern, folder)))
    if len(paths) > MAX_FILES:
        raise ValueError(f"Too many files match: got {len(paths):,}. At most {MAX_FILES} can be given.")
    share = MAX_CHARACTERS // max(len(paths), 1)
    return join_context(*(_part(path, reader.carry_out({"path": path}, {}), cut, share) for path in paths))


def _matching(pattern: str, folder: str | os.PathLike[str]) -> Sequence[str]:
    if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
        raise ValueError(f"{pattern}: a pattern must be a relative path without '..'.")
    # Path.glob would also match hidden files, which often hold keys.
    # A shell may have expanded the pattern already. So the name of a file is taken as it is, even with
    # brackets, which a pattern would give a meaning.
    exact = Path(folder, pattern).is_file()
    found = [pattern] if exact else sorted(glob.glob(pattern, root_dir=folder, recursive=True))  # noqa: PTH207
    files = [path for path in found if Path(folder, path).is_file()]
    if not files:
        hint = f" To take the files of a folder, write {Path(pattern, '*')}." if found else ""
        raise ValueError(f"{pattern}: no file matches.{hint}")
    return files


def _part(name: str, text: str, cut: list[str] | None, most: int = MAX_CHARACTERS) -> str:
    text = scrubbed(text).strip()
    if cut is not None and len(text) > most:
        cut.append(f"{name} was shortened: {most:,} of {len(text):,} characters are used")
    return f"--- {name} ---\n{shortened(text, most)}"
