"""The summary of a sweep: one line per setting, over the finished runs."""

from __future__ import annotations

from typing import NamedTuple

from tot_lab.lab.sweeps.sweep import Sweep, mean
from tot_lab.record.losses import ByRole, total
from tot_lab.record.rows import Row

PRICED_LATER = (
    "Run the sweep with another name=: it takes the replies from the cache and computes their cost at the "
    "present price"
)
"""What to do about runs that were made before their model had a price."""


class Summary(NamedTuple):
    """One setting of a sweep. `None` means unknown.

    Attributes:
        runs: Number of finished runs.
        graded: Number of graded runs. Runs that failed with an error are not graded.
        success: Share of correct answers among the graded runs.
        score: Mean grade of the graded runs.
        calls, tokens, cost: Means per run; cost in USD without a cache.
        errors: Number of runs with an error.
        losses: Lost calls by role.
    """

    setting: str
    runs: int
    graded: int
    success: float | None
    score: float | None
    calls: float | None
    tokens: float | None
    cost: float | None
    errors: int
    losses: ByRole | None

    @property
    def counted_runs(self) -> str:
        """The number of runs or, if not all are graded, text such as `3 of 5 graded`."""
        return f"{self.runs:,}" if self.graded == self.runs else f"{self.graded:,} of {self.runs:,} graded"


def summary(sweep: Sweep) -> list[Summary]:
    """Return the summary of each setting of a sweep over the runs finished so far."""
    by_setting: list[list[Row]] = [[] for _ in sweep.settings]
    for cell in sweep.cells:
        if cell.run_id in sweep.rows:
            by_setting[cell.setting].append(sweep.rows[cell.run_id])
    return [_summed(label, rows) for label, rows in zip(sweep.settings, by_setting, strict=True)]


def _summed(label: str, rows: list[Row]) -> Summary:
    graded = [row for row in rows if row.correct is not None]
    tokens = [
        None
        if row.input_tokens is None or row.output_tokens is None
        else row.input_tokens + row.output_tokens
        for row in rows
    ]
    return Summary(
        label,
        len(rows),
        len(graded),
        mean([float(row.correct) for row in graded if row.correct is not None]),
        mean([row.score for row in graded]),
        mean([row.calls for row in rows]),
        mean(tokens),
        mean([row.cost for row in rows]),
        sum(row.error is not None for row in rows),
        total(row.losses for row in rows),
    )


def losses_in(sweep: Sweep) -> dict[str, ByRole | None]:
    """Return the lost calls of each setting over the runs finished so far."""
    return {line.setting: line.losses for line in summary(sweep)}
