"""Memory between runs: critiques and answers by task, in one SQLite file.

A strategy never reads it. What is recalled is given to a run as a setting or as the task's context, so that
it is part of the run's header and the same inputs give the same record:

    lab = tl.Lab(model, memory="memory.db")  # recalls before each run, and stores after it

    strategy = tl.Reflexion(prior_critiques=lessons.recall(task))  # the same by hand
    lessons.take_in(await lab.run(strategy, task))

SQLite's own full-text index does the search: it ranks by BM25, is written in the same transaction as the
text, and needs no further package. What `take_in` has acknowledged is on the disk; a file that cannot be
read is left as it is.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Task
from tot_lab.lab.context import Earlier, critiques_of, earlier_turn, joined
from tot_lab.record.run import Run
from tot_lab.strategies.reflexion import Reflexion, earlier_critiques

_OURS = 0x746C4C53  # of SQLite's application ids: it tells our files from other people's databases
_SCHEMA = 2
_FTS = "(question, {} UNINDEXED, domain UNINDEXED, run UNINDEXED, tokenize = 'porter unicode61')"
_STEPS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE runs (id TEXT PRIMARY KEY)",
        f"CREATE VIRTUAL TABLE lessons USING fts5{_FTS.format('critique')}",
        f"PRAGMA application_id = {_OURS}",
    ),
    (f"CREATE VIRTUAL TABLE answers USING fts5{_FTS.format('answer')}",),
)
"""What each version of the file adds to the one before, the first to an empty file."""

_MOST_ANSWER = 2_000
"""Characters of an earlier question and its answer that a run is shown."""
_MOST_WORDS = 200  # of a question that are searched for
_WAIT = 60.0  # seconds for another process that writes


class LessonsError(ValueError):
    """The file of lessons cannot be used; the message names it and says why."""


class Lessons:
    """Critiques and answers of earlier runs, recalled by how similar their tasks are.

    path: the file; it is made when there is none. Several processes may use it at once. Each method
    raises `LessonsError` when it cannot be used.
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

    def take_in(self, run: Run) -> int:
        """Keep the critiques in `run` that were not satisfied, and its answer. Returns how many critiques
        these are. A run that was taken in before brings nothing new. Raises ValueError for one that has not
        ended, or has no task."""
        if not isinstance(run, Run):
            raise TypeError(f"run must be a Run, such as lab.last, not {run!r}")
        if run.task is None or run.stop_reason is None:
            why = "has no task" if run.task is None else "has not ended"
            raise ValueError(f"run {run.id} {why}: there are no lessons to take from it")
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
        """Up to `k` different critiques from tasks of the same domain whose question shares words with that
        of `task`, the most similar first (BM25; of equals the one kept first)."""
        _expect_task(task)
        return [critique for (critique,) in self._similar("lessons", "critique", task, task.domain.kind, k)]

    def recall_answers(self, task: Task, k: int = 3) -> list[Earlier]:
        """Up to `k` different answers to questions that share words with that of `task`, in the order of
        `recall`. Questions in words may be of any domain."""
        _expect_task(task)
        found = self._similar("answers", "question, answer, run", task, _family(task), k)
        return [Earlier(question, answer, run) for question, answer, run in found]

    def remind(self, strategy: Strategy, task: Task) -> tuple[Strategy, Task]:
        """`strategy` and `task` with what is recalled for them. A `tl.Reflexion` without prior critiques is
        given these as its setting. All else is added to the task's context, unless it is there already."""
        critiques = [text for text in self.recall(task) if text not in task.context]
        answers = [
            one for one in self.recall_answers(task) if f"Question: {one.question[:200]}" not in task.context
        ]
        if isinstance(strategy, Reflexion) and not strategy.prior_critiques:
            strategy = strategy.model_copy(update={"prior_critiques": critiques})
            critiques = []
        told = [earlier_critiques(critiques)] if critiques else []
        if answers:
            turns = [earlier_turn(one, _MOST_ANSWER) for one in answers]
            told.append("\n\n".join(["Earlier answers to similar tasks:", *turns]))
        if told:
            task = task.model_copy(update={"context": joined(*told, task.context)})
        return strategy, task

    def _similar(self, table: str, columns: str, task: Task, domain: str, k: int) -> list[tuple[str, ...]]:
        """Up to `k` rows for similar tasks, the most similar first. Rows that differ only after their second
        column are one."""
        if k < 1:
            raise ValueError(f"k must be 1 or more, not {k}")
        words = list(dict.fromkeys(re.findall(r"\w+", task.question.casefold())))
        telling = [word for word in words if len(word) > 2 or word.isdecimal()]  # among few tasks `a` is rare
        words = (telling or words)[:_MOST_WORDS]
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
        """The database, for one use: so it may be used from any thread, and after a fork."""
        try:
            with closing(sqlite3.connect(self.path, timeout=_WAIT, isolation_level=None)) as database:
                self._prepare(database)
                yield database
        except sqlite3.OperationalError as error:  # a full disk, a folder that is not there
            raise LessonsError(f"{self.path}: the lessons cannot be opened or kept: {error}") from error
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise LessonsError(
                f"{self.path}: this file of lessons cannot be read ({error}). It was left as it is; "
                f"move it away to begin a new one, or restore it from a copy"
            ) from error

    def _prepare(self, database: sqlite3.Connection) -> None:
        """Create the tables that the file lacks; refuse a database that is not ours."""
        if self._version(database) == _SCHEMA:
            return
        database.execute("BEGIN IMMEDIATE")  # another process may be making them
        for statement in (statement for step in _STEPS[self._version(database) :] for statement in step):
            database.execute(statement)
        database.execute(f"PRAGMA user_version = {_SCHEMA}")
        database.execute("COMMIT")

    def _version(self, database: sqlite3.Connection) -> int:
        """The version of the tables that are there, 0 for an empty file. `LessonsError` for a foreign one."""
        who, schema = (
            database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        )
        if who == _OURS and schema > _SCHEMA:
            raise LessonsError(
                f"{self.path}: these lessons are of a newer version of tot_lab (schema {schema})"
            )
        (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if who != _OURS and (who or schema or tables):
            raise LessonsError(f"{self.path}: a database, but not one of lessons; it was left as it is")
        return int(schema)


def _expect_task(task: object) -> None:
    if not isinstance(task, Task):
        raise TypeError(f'task must be a Task such as tl.general("…"), not {task!r}')


def _family(task: Task) -> str:
    """The tasks whose answers say something about this one: those of its domain if that tells states apart,
    otherwise all questions in words."""
    return "" if task.domain.state(task, ()) is None else task.domain.kind
