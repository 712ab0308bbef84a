"""Plans of `tl.PlanExecute` while they are carried out: folded from the record and stored in SQLite.

A plan is a fold over the lines of a run, so its statuses, times and tokens are those of the record. The
database holds nothing else and can be deleted. When a run is resumed, the lines of its journal are folded
first, so no row is newer than the record.
"""

from __future__ import annotations

import os
import sqlite3
import warnings
from collections.abc import Iterable, Sequence
from contextlib import closing
from functools import reduce
from pathlib import Path
from typing import Any, get_args

from tot_lab.core.calls import Call, Reply, is_made
from tot_lab.core.databases import prepare
from tot_lab.core.records import Ended, Line, Note, Position, parent_of
from tot_lab.record.journal import Header
from tot_lab.record.run import Run, model_name
from tot_lab.strategies.plans import DROPPED, Plan, PlanStep, reopened

_CREATED = ("plan.created", "plan.patched", "plan.augmented")


class PlanFold:
    """Folds the lines of one run, in order, into its plans."""

    def __init__(self, header: Header, journal: str = "") -> None:
        self.header = header
        self.journal = journal
        self.plans: dict[str, Plan] = {}  # by node
        self._calls: dict[Position, Call] = {}
        self._planning: dict[str, list[Reply]] = {}  # replies to planning calls, by node, until it has a plan

    def add(self, line: Line) -> list[str]:
        """Add a line. Returns the nodes of the plans that it changed."""
        record = line.e
        if isinstance(record, Call):
            self._calls[line.p] = record
        elif isinstance(record, Reply):
            call = self._calls.pop(line.p, None)
            return [] if call is None else self._count_usage(call, record)
        elif isinstance(record, Ended):
            return self._run_ended(line)
        elif isinstance(record, Note) and record.name.startswith("plan."):
            try:
                return self._take_note(record, line.t)
            except (KeyError, TypeError, ValueError):  # a user's own note with a name `plan.…` is ignored
                return []
        return []

    def _take_note(self, note: Note, t: float) -> list[str]:
        data = note.data
        if note.name in _CREATED:
            self._planned(note, t)
            return [note.at]
        at = note.at if note.name in ("plan.reflected", "plan.ended") else parent_of(note.at)
        plan = self.plans.get(at or "")
        if plan is None or at is None:
            return []
        if note.name == "plan.ended":
            self._change(at, t, status=data["status"], completed_at=t)
            return [at]
        if note.name == "plan.step_started":
            begun = plan[data["step"]].started_at
            fields = {"status": "in_progress", "retries": data["retries"]}
            fields["started_at"] = t if begun is None else begun
        elif note.name == "plan.step_completed":
            fields = {"status": "completed", "result": data["result"], "error": None, "completed_at": t}
        elif note.name == "plan.step_failed":
            fields = {"status": data["status"], "error": data["error"], "completed_at": t}
        else:
            return []
        self._change_step(at, t, data["step"], **fields)
        return [at]

    def _planned(self, note: Note, t: float) -> None:
        """Add a plan or a new version of it. Steps that were not rewritten keep their state, but those that
        a patch dropped are skipped, and other skipped steps are pending again.
        """
        old = self.plans.get(note.at)
        before = {step.id: step for step in old.steps} if old else {}
        steps = []
        for written in note.data["steps"]:
            step = PlanStep.model_validate(written)
            known = before.get(step.id)
            if known is not None and known.node == step.node:
                dropped = step.id in note.data.get("dropped", ())
                known = known.changed(status="skipped", error=DROPPED) if dropped else reopened(known)
                step = known.changed(completed_at=None) if known.status == "pending" else known
            steps.append(step)
        if old is None:
            header = self.header
            used = self._planning.pop(note.at, [])
            old = Plan(
                id=f"{header.id}:{note.at}",
                task_id=str(header.task.get("id", "")),
                agent_id=header.agent_id
                or f"{header.strategy.get('kind', '')} on {model_name(header.model)}",
                goal=note.data["goal"],
                mode=note.data["mode"],
                steps=(),
                started=header.started,
                created_at=t,
                tokens=reduce(_sum, map(_tokens, used), 0),
                cost=reduce(_sum, (reply.cost for reply in used), 0.0),
                journal=self.journal,
            )
            self.plans[note.at] = old
        self._change(note.at, t, steps=tuple(steps), version=note.data["version"])

    def _count_usage(self, call: Call, reply: Reply) -> list[str]:
        """Add the usage of a call to each step and plan for which it was made, enclosing ones included."""
        if not is_made(reply) or (reply.error is not None and reply.input_tokens is None):
            return []
        if call.purpose == "plan" and call.node not in self.plans:
            self._planning.setdefault(call.node, []).append(reply)
        tokens = _tokens(reply)
        touched = []
        below, above = "", call.node
        while above:
            plan = self.plans.get(above)
            if plan is not None:
                steps = tuple(
                    step.changed(tokens_used=_sum(step.tokens_used, tokens)) if step.node == below else step
                    for step in plan.steps
                )
                totals = {"tokens": _sum(plan.tokens, tokens), "cost": _sum(plan.cost, reply.cost)}
                self.plans[above] = plan.model_copy(update={"steps": steps, **totals})
                touched.append(above)
            below, above = above, parent_of(above) or ""
        return touched

    def _run_ended(self, line: Line) -> list[str]:
        """Mark the plans that were active when the run ended as abandoned."""
        left = [at for at, plan in self.plans.items() if plan.status == "active"]
        for at in left:
            self._change(at, line.t, status="abandoned", completed_at=line.t)
        return left

    def _change_step(self, at: str, t: float, id: str, **fields: Any) -> None:
        steps = (step.changed(**fields) if step.id == id else step for step in self.plans[at].steps)
        self._change(at, t, steps=tuple(steps))

    def _change(self, at: str, t: float, **fields: Any) -> None:
        self.plans[at] = self.plans[at].model_copy(update={**fields, "updated_at": t})


def plans_of(header: Header, lines: Iterable[Line], journal: str = "") -> list[Plan]:
    """Return the plans in `lines`, in the order of their creation."""
    fold = PlanFold(header, journal)
    for line in lines:
        fold.add(line)
    return list(fold.plans.values())


def _tokens(reply: Reply) -> int | None:
    """Return the tokens of a reply, or `None` if the model does not report them."""
    counted = reply.input_tokens is not None and reply.output_tokens is not None
    return (reply.input_tokens or 0) + (reply.output_tokens or 0) if counted else None


def _sum(one: Any, other: Any) -> Any:
    return None if one is None or other is None else one + other


_OURS = 0x746C504C  # SQLite application id, which distinguishes this file from other databases
_SCHEMA = 2
_TABLE = (
    "TABLE IF NOT EXISTS plans "
    "(id TEXT PRIMARY KEY, started TEXT NOT NULL, status TEXT NOT NULL, plan TEXT NOT NULL)"
)
_STATUSES = get_args(Plan.model_fields["status"].annotation)


class PlanStore:
    """A SQLite database of plans, which a lab updates while they are carried out
    (`tl.Lab(plans="plans.db")`).

    A plan is written when it is created, and whenever a status or its usage changes. Other processes may read
    the database at any time.

    Args:
        path: The database file. It is created if it does not exist.

    Raises:
        sqlite3.Error: If the file is not a database, or holds other data. It is then not changed.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with closing(self._opened()) as database:
                prepare(database, _OURS, _SCHEMA, [_TABLE], "plans")
                database.execute("PRAGMA journal_mode = WAL")
        except (sqlite3.Error, UnicodeDecodeError) as error:
            kind = type(error) if isinstance(error, sqlite3.Error) else sqlite3.DatabaseError
            raise kind(
                f"{self.path}: plans cannot be kept here: {error}. The journals of the runs hold the plans: "
                "move the file away to start a new one."
            ) from error

    def __repr__(self) -> str:
        return f"PlanStore({str(self.path)!r})"

    def all(self, status: str | None = None) -> list[Plan]:
        """Return the plans, ordered by the start of their runs.

        `Plan.journal` is the path that `lab.resume` accepts.

        Args:
            status: Return only plans with this status.

        Raises:
            ValueError: If there is no such status.
        """
        if status not in (None, *_STATUSES):
            raise ValueError(f"status must be {', '.join(_STATUSES)} or None: got {status!r}.")
        where, values = ("", ()) if status is None else (" WHERE status = ?", (status,))
        with closing(self._opened()) as database:
            rows = database.execute(f"SELECT plan FROM plans{where} ORDER BY started, rowid", values)
            return [Plan.model_validate_json(plan) for (plan,) in rows]

    def following(self, header: Header, lines: Sequence[Line], path: Path | None) -> PlanWriter:
        """Return a watcher that writes the plans of a run to this store. `lines` are the earlier lines of a
        resumed run.
        """
        follow = PlanWriter(self, PlanFold(header, "" if path is None else str(path.absolute())))
        follow(lines)
        return follow

    def _opened(self) -> sqlite3.Connection:
        database = sqlite3.connect(self.path, timeout=10.0, check_same_thread=False)
        # Rows that a power failure loses are restored from the journal of the run.
        database.execute("PRAGMA synchronous = NORMAL")
        return database


class PlanWriter:
    """Writes the plans of one run.

    It keeps its connection until the run ends, because SQLite checkpoints when the last connection closes,
    which takes longer than the writes.
    """

    def __init__(self, store: PlanStore, fold: PlanFold) -> None:
        self.store = store
        self.fold = fold
        self.database: sqlite3.Connection | None = None
        self.broken = False

    def __call__(self, batch: Sequence[Line]) -> None:
        changed = dict.fromkeys(at for line in batch for at in self.fold.add(line))
        try:
            if changed and not self.broken:
                self._write([self.fold.plans[at] for at in changed])
        except sqlite3.Error as error:  # the run continues, since its journal holds everything
            self.broken = True
            warnings.warn(
                f"{self.store.path}: plans are no longer written to this file: {error}",
                RuntimeWarning,
                stacklevel=2,
            )
        if any(isinstance(line.e, Ended) for line in batch):
            self.close()

    def close(self) -> None:
        """Close the connection. The next write opens a new one."""
        if self.database is not None:
            self.database.close()
            self.database = None

    def _write(self, plans: Sequence[Plan]) -> None:
        if self.database is None:
            self.database = self.store._opened()
        rows = [(plan.id, plan.started, plan.status, plan.model_dump_json()) for plan in plans]
        with self.database as database:
            database.executemany(
                "INSERT INTO plans VALUES (?, ?, ?, ?) "
                "ON CONFLICT (id) DO UPDATE SET status = excluded.status, plan = excluded.plan",
                rows,
            )


def plans(run: Run) -> list[Plan]:
    """The plans of `tl.PlanExecute` in this run, in the order of their creation."""
    return plans_of(run.header, run.lines, "" if run.path is None else str(run.path.absolute()))
