"""What was learnt in earlier runs, for those to come: critiques by task, in one SQLite file.

Rule: a strategy never reads it. What is recalled is given to a run as a setting, so that it stands in the
run's header and the same inputs give the same record:

    strategy = tl.Reflexion(prior_critiques=lessons.recall(task))
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

from tot_lab.core.records import Note
from tot_lab.core.task import Task
from tot_lab.run import Run

_OURS = 0x746C4C53  # of SQLite's application ids: it tells our files from other people's databases
_SCHEMA = 1
_TABLES = (
    "CREATE TABLE runs (id TEXT PRIMARY KEY)",
    "CREATE VIRTUAL TABLE lessons USING fts5"
    "(question, critique UNINDEXED, domain UNINDEXED, run UNINDEXED, tokenize = 'porter unicode61')",
    f"PRAGMA application_id = {_OURS}",
    f"PRAGMA user_version = {_SCHEMA}",
)
_MOST_WORDS = 200  # of a question that are searched for
_WAIT = 60.0  # seconds for another process that writes


class LessonsError(ValueError):
    """The file of lessons cannot be used; the message names it and says why."""


class Lessons:
    """Critiques of earlier runs, recalled by how similar their tasks are.

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
        """Keep the critiques in `run` that were not satisfied; how many these are. A run that was taken in
        before brings nothing new. Raises ValueError for one that has not ended, or has no task."""
        if not isinstance(run, Run):
            raise TypeError(f"run must be a Run, such as lab.last, not {run!r}")
        if run.task is None or run.stopped is None:
            why = "has no task" if run.task is None else "has not ended"
            raise ValueError(f"run {run.id} {why}: there are no lessons to take from it")
        critiques = [
            run.tree[event.data["critique"]].text
            for event in run.events
            if isinstance(event, Note) and event.name == "reflexion.critiqued" and not event.data["satisfied"]
        ]
        rows = [
            (run.question, critique, run.task.domain.kind, run.id)
            for critique in dict.fromkeys(critiques)
            if critique.strip()
        ]
        with self._opened() as database:
            database.execute("BEGIN IMMEDIATE")
            new = database.execute("INSERT OR IGNORE INTO runs VALUES (?)", (run.id,)).rowcount
            if new:
                database.executemany("INSERT INTO lessons VALUES (?, ?, ?, ?)", rows)
            database.execute("COMMIT")
        return len(rows) if new else 0

    def recall(self, task: Task, k: int = 3) -> list[str]:
        """Up to `k` different critiques from tasks of the same domain whose question shares words with that
        of `task`, the most similar first (BM25; of equals the one kept first)."""
        if not isinstance(task, Task):
            raise TypeError(f'task must be a Task such as tl.general("…"), not {task!r}')
        if k < 1:
            raise ValueError(f"k must be 1 or more, not {k}")
        words = list(dict.fromkeys(re.findall(r"\w+", task.question.casefold())))
        telling = [word for word in words if len(word) > 2 or word.isdecimal()]  # among few tasks `a` is rare
        words = (telling or words)[:_MOST_WORDS]
        if not words:
            return []
        found = (
            "SELECT critique FROM lessons WHERE lessons MATCH ? AND domain = ? ORDER BY bm25(lessons), rowid"
        )
        kept: dict[str, None] = {}
        with self._opened() as database:
            any_of = " OR ".join(f'"{word}"' for word in words)
            for (critique,) in database.execute(found, (any_of, task.domain.kind)):
                kept.setdefault(critique)
                if len(kept) == k:
                    break
        return list(kept)

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
        """Make the tables in an empty file; refuse a database that is not ours."""
        if self._is_ours(database):
            return
        database.execute("BEGIN IMMEDIATE")  # another process may be making them
        if not self._is_ours(database):
            for statement in _TABLES:
                database.execute(statement)
        database.execute("COMMIT")

    def _is_ours(self, database: sqlite3.Connection) -> bool:
        """Whether the tables are there; False for an empty file, `LessonsError` for a foreign one."""
        who, schema = (
            database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        )
        if who == _OURS and schema == _SCHEMA:
            return True
        if who == _OURS:
            raise LessonsError(
                f"{self.path}: these lessons are of a newer version of tot_lab (schema {schema})"
            )
        (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if who or schema or tables:
            raise LessonsError(f"{self.path}: a database, but not one of lessons; it was left as it is")
        return False
