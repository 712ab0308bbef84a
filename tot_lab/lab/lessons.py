"""A memory across runs: critiques and answers by task, in one SQLite file.

Strategies never read the file. A run receives recalled texts as a setting or as context of its task, so that
they are part of the header of the run, and the same inputs give the same record:

    lab = tl.Lab(model, memory="memory.db")  # recalls before each run and stores after it

    strategy = tl.Reflexion(prior_critiques=lessons.recall(task))  # the same by hand
    lessons.add(await lab.run(strategy, task))

SQLite's full-text index ranks by BM25 and is written in the same transaction as the text. When `add` returns,
its texts are on disk. A file that cannot be read is never changed.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tot_lab.core.databases import prepare
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Task
from tot_lab.lab.context import Earlier, critiques_of, earlier_turn, join_context
from tot_lab.record.run import Run
from tot_lab.strategies.reflexion import Reflexion, earlier_critiques

_OURS = 0x746C4C53  # SQLite application id, which distinguishes this file from other databases
_SCHEMA = 2
_FTS = "(question, {} UNINDEXED, domain UNINDEXED, run UNINDEXED, tokenize = 'porter unicode61')"
_TABLES = (
    "TABLE IF NOT EXISTS runs (id TEXT PRIMARY KEY)",
    f"VIRTUAL TABLE IF NOT EXISTS lessons USING fts5{_FTS.format('critique')}",
    f"VIRTUAL TABLE IF NOT EXISTS answers USING fts5{_FTS.format('answer')}",
)

_MAX_ANSWER = 2_000
"""Maximum number of characters of an earlier question with its answer in a context."""
_MAX_WORDS = 200  # maximum number of words of a question that are searched for
_WAIT = 60.0  # seconds to wait for another process that writes


class LessonsError(ValueError):
    """The file of lessons cannot be used. The message names the file and the reason."""


class Lessons:
    """Critiques and answers of earlier runs, recalled by the similarity of their tasks.

    Several processes may use the file at once. Every method raises `LessonsError` if the file cannot be used.

    Args:
        path: The SQLite file. It is created if it does not exist.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        with self._opened():
            pass

    def __repr__(self) -> str:
        return f"Lessons({str(self.path)!r})"

    def __len__(self) -> int:
        with self._opened() as database:
            (count,) = database.execute("SELECT count(*) FROM lessons").fetchone()
        return int(count)

    def add(self, run: Run) -> int:
        """Store the answer of `run`, and its critiques that did not accept an answer.

        Returns:
            The number of critiques that were added. It is 0 if the run was added before.

        Raises:
            ValueError: If the run has not ended or has no task.
        """
        if not isinstance(run, Run):
            raise TypeError(f"run must be a Run, such as lab.last: got {run!r}.")
        if run.task is None or run.stop_reason is None:
            why = "has no task" if run.task is None else "has not ended"
            raise ValueError(f"run {run.id} {why}: only finished runs of a task can be added.")
        domain, family = run.task.domain.kind, _family(run.task)
        rows = [(run.question, critique, domain, run.id) for critique in critiques_of(run)]
        with self._opened() as database:
            database.execute("BEGIN IMMEDIATE")
            new = database.execute("INSERT OR IGNORE INTO runs VALUES (?)", (run.id,)).rowcount
            if new:
                database.executemany("INSERT INTO lessons VALUES (?, ?, ?, ?)", rows)
            if new and run.answer:
                database.execute(
                    "INSERT INTO answers VALUES (?, ?, ?, ?)", (run.question, run.answer, family, run.id)
                )
            database.execute("COMMIT")
        return len(rows) if new else 0

    def recall(self, task: Task, k: int = 3) -> list[str]:
        """Return up to `k` distinct critiques from similar tasks, the most similar first.

        Similar tasks belong to the same domain and share words with the question of `task` (BM25; ties keep
        the order of insertion).
        """
        _expect_task(task)
        return [critique for (critique,) in self._similar("lessons", "critique", task, task.domain.kind, k)]

    def recall_answers(self, task: Task, k: int = 3) -> list[Earlier]:
        """Return up to `k` distinct answers to similar questions, ordered as in `recall`.

        Questions in natural language are matched across domains.
        """
        _expect_task(task)
        found = self._similar("answers", "question, answer, run", task, _family(task), k)
        return [Earlier(question, answer, run) for question, answer, run in found]

    def remind(self, strategy: Strategy, task: Task) -> tuple[Strategy, Task]:
        """Return `strategy` and `task` with the stored critiques and answers for similar tasks.

        A `tl.Reflexion` without prior critiques gets the critiques as its setting. All other texts are
        added to the context of the task, unless the context contains them already.
        """
        critiques = [text for text in self.recall(task) if text not in task.context]
        answers = [
            one for one in self.recall_answers(task) if f"Question: {one.question[:200]}" not in task.context
        ]
        if isinstance(strategy, Reflexion) and not strategy.prior_critiques:
            strategy = strategy.model_copy(update={"prior_critiques": critiques})
            critiques = []
        recalled = [earlier_critiques(critiques)] if critiques else []
        if answers:
            turns = [earlier_turn(one, _MAX_ANSWER) for one in answers]
            recalled.append("\n\n".join(["Earlier answers to similar tasks:", *turns]))
        if recalled:
            task = task.model_copy(update={"context": join_context(*recalled, task.context)})
        return strategy, task

    def _similar(self, table: str, columns: str, task: Task, domain: str, k: int) -> list[tuple[str, ...]]:
        """Return up to `k` rows for similar tasks, the most similar first. Rows with the same first two
        columns count once.
        """
        if k < 1:
            raise ValueError(f"k must be at least 1: got {k}.")
        words = list(dict.fromkeys(re.findall(r"\w+", task.question.casefold())))
        # With few tasks in the file, words such as `a` can be rare and would count too much.
        specific = [word for word in words if len(word) > 2 or word.isdecimal()]
        words = (specific or words)[:_MAX_WORDS]
        if not words:
            return []
        found = (
            f"SELECT {columns} FROM {table} WHERE {table} MATCH ? AND domain = ? "
            f"ORDER BY bm25({table}), rowid"
        )
        kept: dict[tuple[str, ...], tuple[str, ...]] = {}
        with self._opened() as database:
            any_of = " OR ".join(f'"{word}"' for word in words)
            for row in database.execute(found, (any_of, domain)):
                kept.setdefault(row[:2], row)
                if len(kept) == k:
                    break
        return list(kept.values())

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """Open the database for one use, so that any thread and a forked process can use this object."""
        try:
            with closing(sqlite3.connect(self.path, timeout=_WAIT, isolation_level=None)) as database:
                prepare(database, _OURS, _SCHEMA, _TABLES, "lessons")
                yield database
        except sqlite3.OperationalError as error:  # such as a full disk or a missing folder
            raise LessonsError(
                f"{self.path}: the file of lessons cannot be opened or written: {error}."
            ) from error
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise LessonsError(
                f"{self.path}: this file of lessons cannot be read ({error}). It was not changed. "
                f"Move it away to start a new one, or restore a copy."
            ) from error


def _expect_task(task: object) -> None:
    if not isinstance(task, Task):
        raise TypeError(f'task must be a Task such as tl.general("…"): got {task!r}.')


def _family(task: Task) -> str:
    """Return the group of tasks whose answers may help with `task`.

    This is its domain if the domain distinguishes states. All questions in natural language form one group,
    "".
    """
    return "" if task.domain.state(task, task.steps) is None else task.domain.kind
