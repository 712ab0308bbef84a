"""The best setting for tasks of each difficulty (Snell et al. 2024, arXiv:2408.03314, section 3.2)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any
from warnings import warn

from tot_lab.analysis.estimators import samples
from tot_lab.analysis.frames import rows_frame
from tot_lab.analysis.statistics import SEED, check_share, wilson
from tot_lab.analysis.tables import solved, table
from tot_lab.record.losses import losses_by, warn_of

if TYPE_CHECKING:
    import pandas


def difficulty_bins(df: Any, bins: int = 5, *, column: str | None = None) -> pandas.DataFrame:
    """Sort tasks into bins of about equal size, by the share of incorrect samples or by a column.

    Args:
        df: A table with one row per sample (`tl.stats.samples`) or run, a sweep, a run or several runs.
        bins: The number of bins. Tasks of equal difficulty share a bin, so there may be fewer.
        column: A column with the difficulty of the task as a number, higher for a harder task. `None` uses
            the share of the task's graded samples that are not correct, over all settings.

    Returns:
        One row per task. task: as in the table. difficulty: Float64. bin: Int64, from 1 for the easiest
        tasks.

    Raises:
        ValueError: If a task has several values in `column`, or no task has a value or a graded sample.
    """
    import pandas  # noqa: PLC0415

    if bins < 1:
        raise ValueError(f"bins must be at least 1: got {bins}.")
    frame = df if isinstance(df, pandas.DataFrame) else samples(df)
    frame = table(frame, ["task", column or "correct"])
    hard = 1 - solved(frame).astype("Float64") if column is None else frame[column].astype("Float64")
    groups = hard.groupby(frame["task"], sort=False, observed=True)
    if column is not None and (several := groups.nunique() > 1).any():
        raise ValueError(
            f"Task {several.idxmax()!r} has several values in the column {column!r}. It must have one."
        )
    found = groups.mean().dropna()
    if found.empty:
        raise ValueError(f"No task has a difficulty: {column or 'correct'!r} is empty in all rows.")
    place = (found.rank(method="min").astype(int) - 1) * bins // len(found)
    return pandas.DataFrame(
        {
            "task": list(found.index),
            "difficulty": pandas.array(list(found), dtype="Float64"),
            "bin": pandas.array(list(place.rank(method="dense").astype(int)), dtype="Int64"),
        }
    )


def compute_optimal(df: Any, bins: pandas.DataFrame, *, confidence: float = 0.95) -> pandas.DataFrame:
    """Estimate the success rate if the best setting is chosen for each bin of difficulty.

    The tasks of a bin are divided at random into two halves. The setting with the highest success rate in
    one half (the first in case of a tie) is scored on the other half, so that a setting is never scored on
    the tasks for which it was chosen. Settings should cost the same, such as those of `tl.match`.

    Args:
        df: A table with one row per run, a sweep or several runs. A task is left out unless every setting has
            a graded run of it. Bins with only one task are left out too.
        bins: The bin of each task, as `difficulty_bins` returns them.
        confidence: Confidence level of the intervals, between 0 and 1.

    Returns:
        One row per bin, and a last one for all tasks, with the columns bin: Int64, NA for all; tasks: Int64;
        first, second: string, the setting chosen on the first and on the second half, NA for all; rate, low,
        high: Float64, the success rate of the chosen settings and its interval over tasks; single: Float64,
        the success rate of one setting for all bins, chosen and scored in the same way.

    Raises:
        ValueError: If no bin has two tasks.

    Warns:
        UserWarning: If tasks are left out, or more than 5 % of the calls of a role were lost.
    """
    import numpy  # noqa: PLC0415

    check_share(confidence, "confidence")
    frame = table(df, ["setting", "task", "correct"])
    warn_of(losses_by(frame, ["setting"]))
    frame = frame.assign(solved=solved(frame).astype("Float64")).dropna(subset="solved")
    shares = frame.groupby(["task", "setting"], sort=False, observed=True)["solved"].agg(["mean", "size"])
    rates = shares["mean"].unstack("setting", sort=False)
    bin_of = dict(zip(bins["task"], bins["bin"], strict=True))
    kept = rates[rates.notna().all(axis=1) & rates.index.isin(list(bin_of))].astype(float)
    sizes_of = Counter(bin_of[task] for task in kept.index)
    kept = kept[[sizes_of[bin_of[task]] > 1 for task in kept.index]]
    if lost := len(rates) - len(kept):
        warn(
            f"{lost:,} of {len(rates):,} tasks are left out: they have no bin, are alone in their bin, or "
            f"have no graded run of some setting",
            UserWarning,
            stacklevel=2,
        )
    if kept.empty:
        raise ValueError(
            "No bin has two tasks with graded runs of all settings. Use fewer bins or more runs."
        )
    numbers = numpy.array([bin_of[task] for task in kept.index], int)
    rng, values = numpy.random.default_rng(SEED), kept.to_numpy()
    half = numpy.zeros(len(kept), int)
    for number in set(numbers):
        places = rng.permutation(numpy.flatnonzero(numbers == number))
        half[places[: len(places) // 2]] = 1
    single, chosen = numpy.zeros(len(kept)), numpy.zeros(len(kept))
    sizes = shares["size"].unstack("setting", sort=False).loc[kept.index].min(axis=1).to_numpy(float)
    names: dict[tuple[int, int], str] = {}
    for side in (0, 1):
        choosing, scoring = half == side, half != side
        single[scoring] = values[scoring, values[choosing].mean(axis=0).argmax()]
        for number in set(numbers):
            inside = numbers == number
            best = int(values[choosing & inside].mean(axis=0).argmax())
            chosen[scoring & inside] = values[scoring & inside, best]
            names[number, side] = str(kept.columns[best])
    rows = []
    for number in [*sorted(set(numbers)), None]:
        inside = numpy.full(len(kept), True) if number is None else numbers == number
        even = numpy.full(inside.sum(), 1 / inside.sum())
        low, high = wilson(chosen[inside], sizes[inside], even, confidence)
        first, second = (None if number is None else names[number, side] for side in (0, 1))
        rates_here = float(chosen[inside].mean()), low, high, float(single[inside].mean())
        rows.append((number, int(inside.sum()), first, second, *rates_here))
    return rows_frame(
        rows,
        **dict.fromkeys(("bin", "tasks"), "Int64"),
        **dict.fromkeys(("first", "second"), "string"),
        **dict.fromkeys(("rate", "low", "high", "single"), "Float64"),
    )
