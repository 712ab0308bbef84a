"""What is told along with a question: texts of a person's own, files, and what was thought before.

Rule: it becomes the task's `context`, so that it stands in the run's header and the same inputs give the same
record. It is bounded, and what was cut or left out is said in it. Keys of the environment are taken out.
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

MOST = 40_000
"""Characters of one text that are told."""

MOST_FILES = 50
"""Files that are told."""


class Earlier(NamedTuple):
    """A thought of before. question, answer: the task's and the run's. run: its id. critiques: what was found
    wrong with attempts at it."""

    question: str
    answer: str
    run: str
    critiques: tuple[str, ...] = ()


def critiques_of(run: Run) -> list[str]:
    """The critiques in `run` that were not satisfied, each once."""
    critiques = [
        run.tree[event.data["critique"]].text
        for event in run.events
        if isinstance(event, Note) and event.name == "reflexion.critiqued" and not event.data["satisfied"]
    ]
    return [critique for critique in dict.fromkeys(critiques) if critique.strip()]


class SessionMemory:
    """What was thought before in a session, for the thoughts to come. A `tl.Session` has one.

        memory = tl.SessionMemory()
        await tl.think("Which database?", memory=memory)
        await tl.Session(lab, memory=memory).ask(tl.ReAct(), tl.general("Migrate to it."))

    most: characters of what it tells, at least 200 (else a ValueError). The newest thoughts have the most
    room, and those that have none are counted.
    """

    def __init__(self, most: int = 12_000) -> None:
        if most < 200:
            raise ValueError(f"most must be 200 characters or more, not {most!r}")
        self.most = most
        self.thoughts: list[Earlier] = []
        """The thoughts, the oldest first, each whole."""

    def __len__(self) -> int:
        return len(self.thoughts)

    def __repr__(self) -> str:
        return f"<SessionMemory of {len(self)} thoughts>"

    def take_in(self, run: Run) -> None:
        """Keep what `run` answered and what its critics found; one without either is not kept."""
        critiques = critiques_of(run)
        if run.answer or critiques:
            self.thoughts.append(Earlier(run.question, run.answer, run.id, tuple(critiques)))

    def remind(self, task: Task) -> Task:
        """`task` with the earlier turns in its context."""
        if not isinstance(task, Task):
            raise TypeError(f'task must be a Task such as tl.general("…"), not {task!r}')
        return task.model_copy(update={"context": joined(self.context(), task.context)})

    def context(self) -> str:
        """What it tells: questions and answers, the oldest first; "" when there are none. Half of the room
        is the newest's, half of what is left the next one's, and so on; what one does not use, others may."""
        told: list[str] = []
        room = self.most
        for place, one in enumerate(reversed(self.thoughts)):
            last = place == len(self.thoughts) - 1
            share = room if last else max(room // 2, min(room, 200))
            if share < 100:
                break
            told.append(earlier_turn(one, share))
            room -= len(told[-1])
        if not told:
            return ""
        lacking = len(self.thoughts) - len(told)
        head = "Thought in this session before, the oldest first:"
        missing = [f"({lacking} older thoughts are left out.)"] if lacking else []
        return "\n\n".join([head, *missing, *reversed(told)])


def earlier_turn(one: Earlier, most: int) -> str:
    """A thought of before in about `most` characters."""
    question = shortened(one.question, most // 3)
    room = most - len(question)
    critiques = shortened("\n".join(one.critiques), room // 2)
    answer = shortened(one.answer or "none", room - len(critiques))
    criticised = f"\nAttempts at it were criticised:\n{critiques}" if critiques else ""
    return f"Question: {question}\nAnswer: {answer}{criticised}"


def joined(*texts: str) -> str:
    """One context out of several."""
    return "\n\n".join(filter(None, texts))


def told_of(name: str, value: Any, cut: list[str] | None = None) -> str:
    """A value of a person's own, by its name: a text as it is, a table of pandas as CSV, a run by its
    question and answer, anything else as it prints. cut: takes a sentence when it is cut short."""
    if isinstance(value, Run):
        text = f"Question: {value.question}\nAnswer: {value.answer or 'none'}"
    elif hasattr(value, "to_csv"):
        text = value.to_csv()
    else:
        text = str(value)
    return _part(name, text, cut)


def told_by_files(
    patterns: Iterable[str], folder: str | os.PathLike[str] = ".", cut: list[str] | None = None
) -> str:
    """The text files below `folder` that match `patterns` (`src/*.py`, `docs/**/*.md`), each under its path.
    cut: takes a sentence for each that is cut short. Raises ValueError for a pattern that matches none, a
    file that is no text or lies outside, and for more than `MOST_FILES`."""
    reader = ReadFile(root=os.fspath(folder))
    paths = list(dict.fromkeys(path for pattern in patterns for path in _matching(pattern, folder)))
    if len(paths) > MOST_FILES:
        raise ValueError(f"{len(paths):,} files match; {MOST_FILES} are the most")
    share = MOST // max(len(paths), 1)
    return joined(*(_part(path, reader.carry_out({"path": path}, {}), cut, share) for path in paths))


def _matching(pattern: str, folder: str | os.PathLike[str]) -> Sequence[str]:
    if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
        raise ValueError(f"{pattern}: only files below the working directory can be given")
    # Not Path.glob, whose * also takes hidden files, such as those that keys are kept in.
    exact = Path(folder, pattern).is_file()  # a shell may have put in the names, brackets and all
    found = [pattern] if exact else sorted(glob.glob(pattern, root_dir=folder, recursive=True))  # noqa: PTH207
    files = [path for path in found if Path(folder, path).is_file()]
    if not files:
        inside = f"; a folder is named with its files: {Path(pattern, '*')}" if found else ""
        raise ValueError(f"{pattern}: no file matches{inside}")
    return files


def _part(name: str, text: str, cut: list[str] | None, most: int = MOST) -> str:
    text = scrubbed(text).strip()
    if cut is not None and len(text) > most:
        cut.append(f"{name} is cut: {most:,} of {len(text):,} characters are told")
    return f"--- {name} ---\n{shortened(text, most)}"
