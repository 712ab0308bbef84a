"""Lost calls by role: failed calls, and unreadable and truncated replies. A success rate does not show them.

Everything is counted from the records, so a loaded run gives the same counts as a new one. The roles are
those of `tot_lab.core.purposes.ROLES`; calls of other purposes belong to `other`. Tool calls are not counted.
The fractions for one role:

- failed: failed calls / calls. Calls that could not be sent count, and calls that a budget refused do not.
- unreadable: unreadable replies / replies. A reply counts even if a retry could be read.
- truncated: replies that ended at `max_tokens` (finish reason `length`) / replies. Calls for a single token,
or for log-probabilities, are meant to end there and are left out.

A published log does not hold the calls, so its counts are unknown, never 0.
"""

from __future__ import annotations

import math
import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tot_lab.core.calls import Call, Reply
from tot_lab.core.purposes import OTHER, ROLES, role_of
from tot_lab.core.records import Decided, Note, Position, Scored
from tot_lab.record.run import UNREADABLE, Run

if TYPE_CHECKING:
    import pandas

LARGE = 0.05
"""Fraction of lost calls or replies above which a warning is issued."""

NAMED = 3
"""Maximum number of losses that a warning lists."""

_KINDS = ("failed", "unreadable", "truncated")
_COLUMN = re.compile(rf"({'|'.join([*ROLES, OTHER])})_(calls|{'|'.join(_KINDS)})")

_EVALUATED_BY = {
    **{"value": "value", "judge": "value", "part": "parts"},
    **{"vote": "vote", "joint": "joint", "logprob": "logprob"},
}
"""The evaluators that record each of their samples, by the purpose of their calls.

An unreadable sample is a `None` in `Scored.samples`. It has a note only if it was sampled again.
"""


class Losses(NamedTuple):
    """Counts for one role: calls not refused, failed calls, and unreadable and truncated replies."""

    calls: int = 0
    failed: int = 0
    unreadable: int = 0
    truncated: int = 0

    @property
    def shares(self) -> dict[str, float]:
        """The fraction lost, 0–1, by kind of loss. Omits kinds for which there is no call or reply."""
        of = {"failed": self.calls, **dict.fromkeys(_KINDS[1:], self.calls - self.failed)}
        return {kind: getattr(self, kind) / count for kind, count in of.items() if count}


ByRole: TypeAlias = dict[str, Losses]


# Losses of a run.


def losses_of(run: Run) -> ByRole | None:
    """The losses of a run by role, without roles that made no call. `None` if the record lacks calls or
    replies.

    If an evaluator takes several samples of each part (`evaluate="parts"`), a part counts as unreadable only
    if none of its samples could be read.
    """
    if {"calls", "replies"} & {*run.header.unknown}:
        return None
    found = [(call, reply) for call, line in run.admitted if isinstance(reply := line.e, Reply)]
    calls = _by_role(call.purpose for call, _ in found)
    failed = _by_role(call.purpose for call, reply in found if reply.error is not None)
    cut = _by_role(c.purpose for c, reply in found if reply.error is None and is_truncated(c, reply))
    unreadable = _unreadable(run)
    return {
        role: Losses(number, failed[role], min(unreadable[role], number - failed[role]), cut[role])
        for role in (*ROLES, OTHER)
        if (number := calls[role])
    }


def _by_role(purposes: Iterable[str]) -> Counter[str]:
    """Return the number of `purposes` by role."""
    counts: Counter[str] = Counter()
    for purpose, number in Counter(purposes).items():
        counts[role_of(purpose) or OTHER] += number
    return counts


def _unreadable(run: Run) -> Counter[str]:
    """Return the number of unreadable replies by role."""
    unreadable: Counter[str] = Counter()
    rounds = {by: _Round() for by in _EVALUATED_BY.values()}
    purposes: dict[Position, str] = {}
    answered: dict[str, bool] = {}  # by purpose, whether the last call got a reply
    latest: str | None = None  # the evaluator of the last evaluation call

    def count(purpose: str, number: int = 1) -> None:
        unreadable[role_of(purpose) or OTHER] += number

    def settle(by: str) -> None:
        count(by if by != "parts" else "part", rounds[by].unreadable)
        rounds[by] = _Round()

    asked = {line.e.purpose for line in run.lines_of(Call) if isinstance(line.e, Call)}
    noted = {line.e.name for line in run.lines_of(Note) if isinstance(line.e, Note)}
    if asked.isdisjoint(_EVALUATED_BY) and noted.isdisjoint((*UNREADABLE, "json.retried")):
        return unreadable
    lines = [line for line in run.lines if line.p]
    for line in sorted(lines, key=attrgetter("p")):  # stable: a call stays before its reply
        event = line.e
        if isinstance(event, Call):
            purposes[line.p] = event.purpose
            by = _EVALUATED_BY.get(event.purpose)
            if by is not None:
                latest = by
                if rounds[by].draws:
                    settle(by)
        elif isinstance(event, Reply) and event.tool is None and line.p in purposes:
            purpose = purposes[line.p]
            answered[purpose] = event.error is None
            if purpose in _EVALUATED_BY:
                rounds[_EVALUATED_BY[purpose]].take(event)
        elif isinstance(event, Note) and (event.name in UNREADABLE or event.name == "json.retried"):
            purpose = str(event.data.get("kind", ""))
            # A retry without the schema follows a call that failed: there was nothing to read.
            if event.name != "json.retried" or answered.get(purpose, False):
                count(purpose)
            if purpose in _EVALUATED_BY:
                rounds[_EVALUATED_BY[purpose]].retries += 1
        elif isinstance(event, Scored) and event.by == "rollout":  # its notes count its losses
            rounds.update({by: _Round() for by in rounds})
        elif isinstance(event, Scored) and (by := event.by if event.by in rounds else latest) is not None:
            # `latest` is for a user's evaluator: its own name in `by`, but calls of a standard purpose.
            rounds[by].read(event.samples)
        elif isinstance(event, Decided) and event.what == "failed":
            for by, held in rounds.items():
                if not held.draws:  # all of its samples failed
                    rounds[by] = _Round()
    for by, held in rounds.items():
        if held.draws:
            settle(by)
    return unreadable


def is_truncated(call: Call, reply: Reply) -> bool:
    """Whether a reply was truncated. Calls for a single token or for log-probabilities do not count."""
    return reply.finish_reason == "length" and call.max_tokens != 1 and not call.logprobs


@dataclass
class _Round:
    """The samples of one evaluation.

    Attributes:
        calls: Number of calls.
        errors: Number of calls that failed or were refused.
        retries: Number of repeated calls after an unreadable reply.
        draws: For each sample, whether it could be read. A sample for several thoughts counts once.
    """

    calls: int = 0
    errors: int = 0
    retries: int = 0
    draws: list[bool] = field(default_factory=list)

    def take(self, reply: Reply) -> None:
        self.calls += 1
        self.errors += reply.error is not None

    def read(self, draws: Sequence[float | None]) -> None:
        self.draws += [False] * (len(draws) - len(self.draws))
        for place, draw in enumerate(draws):
            self.draws[place] |= draw is not None

    @property
    def unreadable(self) -> int:
        """Number of unreadable replies that were not sampled again."""
        for_each = max((self.calls - self.retries) // len(self.draws), 1)
        return max(self.draws.count(False) * for_each - self.errors, 0) if self.calls else 0


def total(losses: Iterable[ByRole | None]) -> ByRole | None:
    """Return the sum over the runs whose losses are known, or `None` if there is no such run."""
    known = [by_role for by_role in losses if by_role is not None]
    summed: ByRole = {}
    for by_role in known:
        for role, lost in by_role.items():
            summed[role] = Losses(*map(sum, zip(summed.get(role, Losses()), lost, strict=True)))
    return summed if known else None


# Losses of the runs in a table.


def columns_of(losses: Sequence[ByRole | None]) -> dict[str, tuple[str, list[int | None]]]:
    """The columns of a table with a row per run, by name: dtype and values of `ROLE_calls`, `ROLE_failed`,
    `ROLE_unreadable` and `ROLE_truncated` for each role with a call in any of the runs.
    """
    roles = [role for role in (*ROLES, OTHER) if any(role in held for held in losses if held is not None)]
    return {
        f"{role}_{name}": (
            "Int64",
            [None if held is None else getattr(held.get(role, Losses()), name) for held in losses],
        )
        for role in roles
        for name in Losses._fields
    }


def is_loss_column(name: object) -> bool:
    """Whether a column of a table is one of `columns_of`."""
    return isinstance(name, str) and _COLUMN.fullmatch(name) is not None


def without_losses(frame: pandas.DataFrame) -> pandas.DataFrame:
    """The table without the columns of `columns_of`, for callers that warn about the losses themselves."""
    return frame.drop(columns=[name for name in frame.columns if is_loss_column(name)])


def losses_by(frame: pandas.DataFrame, keys: Sequence[str]) -> dict[Any, ByRole | None]:
    """The losses of each group of runs in a table. A group is a tuple of values of the columns `keys`. Losses
    that are not known are `None`."""
    columns = [name for name in frame.columns if is_loss_column(name) and name not in keys]
    groups: Any = frame.groupby(list(keys), sort=False, observed=True, dropna=False)
    if not columns:
        return dict.fromkeys((names for names, _ in groups), None)
    rows = groups[columns].sum(min_count=1).astype("Float64").to_numpy(float, na_value=math.nan).tolist()
    return {names: _of_row(columns, row) for (names, _), row in zip(groups, rows, strict=True)}


def _of_row(columns: Sequence[str], row: Sequence[float]) -> ByRole | None:
    if all(map(math.isnan, row)):
        return None
    counts: dict[str, dict[str, int]] = {}
    for name, number in zip(columns, row, strict=True):
        role, _, kind = name.rpartition("_")
        counts.setdefault(role, {})[kind] = 0 if math.isnan(number) else int(number)
    return {role: Losses(**counted) for role, counted in counts.items() if counted.get("calls")}


# Text.


class _Loss(NamedTuple):
    share: float
    text: str
    counted: str


def _sorted(losses: ByRole) -> list[_Loss]:
    """Every kind of loss that occurred in any role, the largest fraction first."""
    found = []
    for role, lost in losses.items():
        for kind, share in lost.shares.items():
            if share:
                number, of = getattr(lost, kind), lost.calls - (lost.failed if kind != "failed" else 0)
                shown = f"{role} {'<0.1%' if share < 0.001 else f'{share:.1%}'} {kind}"
                things = "calls" if kind == "failed" else "replies"
                found.append(
                    _Loss(share, shown, f"{number:,} of {of:,} {role} {things} {kind} ({share:.1%})")
                )
    return sorted(found, key=lambda loss: -loss.share)


def describe(losses: ByRole | None, most: int | None = None) -> str | None:
    """The losses as text, largest first: `evaluate 12.5% failed, propose 1.0% truncated`, or `none`.

    `None` if the losses are not known. `most` limits how many are listed; `None` lists all.
    """
    if losses is None:
        return None
    found = [loss.text for loss in _sorted(losses)]
    more = [f"{len(found) - most} more"] if most is not None and len(found) > most else []
    return ", ".join([*found[:most], *more]) or "none"


def large(groups: Mapping[Any, ByRole | None]) -> list[tuple[str, str, str]]:
    """Return the losses above `LARGE`, largest first: (group, text with the percentage, text with counts)."""
    found = [
        (loss, _name(names))
        for names, losses in groups.items()
        for loss in _sorted(losses or {})
        if loss.share > LARGE
    ]
    found.sort(key=lambda pair: -pair[0].share)
    return [(name, loss.text, loss.counted) for loss, name in found]


def warning_of(groups: Mapping[Any, ByRole | None]) -> str:
    """A sentence about the losses above `LARGE` with their counts. Empty if there are no such losses."""
    found = [f"{name}: {counted}" if name else counted for name, _, counted in large(groups)]
    if not found:
        return ""
    more = [f"and {len(found) - NAMED} more"] if len(found) > NAMED else []
    listed = "; ".join([*found[:NAMED], *more])
    return f"more than {LARGE:.0%} of the calls or replies of a role were lost: {listed}"


def warn_of(groups: Mapping[Any, ByRole | None]) -> None:
    """Issue one `UserWarning` about the losses above `LARGE`, at the line that called tot_lab."""
    if text := warning_of(groups):
        where = "tl.stats.lost_calls(...) and tl.diagnose(run)"
        text = f"{text}. The result measures these losses too: see {where}."
        warnings.warn(text[0].upper() + text[1:], UserWarning, stacklevel=_outside())


def _outside() -> int:
    """The stack level of the first caller outside this package, as `warnings.warn` counts it."""
    package, level, frame = f"{Path(__file__).parents[1]}{os.sep}", 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(package):
        level, frame = level + 1, frame.f_back
    return level


def _name(names: Any) -> str:
    if isinstance(names, tuple):
        return " ".join(map(str, names))
    return str(names)
