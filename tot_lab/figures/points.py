"""What the figures over many runs share: a point is a group of runs, and knows which they are.

Rule: the task is what is sampled. A rate and its interval are those of `tl.success`; of any other amount
the mean over tasks is drawn, with a bootstrap over tasks. What is not known is left out of a mean and
counted, never taken for 0. Every point carries the ids of its runs as `customdata`, since a plain figure
cannot call back: the hover names some, `figure.data[k].customdata[n]` holds more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tot_lab.analysis.statistics import SEED, success, table
from tot_lab.figures.theme import plain, short

if TYPE_CHECKING:
    import pandas

IDS = 100
"""Ids of runs that a point carries; of more, the first."""

NAMED = 3
"""Ids that its hover names."""

MEASURED = {
    "correct": "success rate (% of runs)",
    "score": "grade of the answer (0–1)",
    "calls": "model calls (a run)",
    "failed_calls": "failed calls (a run)",
    "input_tokens": "tokens in (a run)",
    "output_tokens": "tokens out (a run)",
    "cost": "cost if each call were paid (USD a run)",
    "paid": "really paid (USD a run)",
    "tokens": "tokens in and out (a run)",
    "seconds": "wall time (s a run)",
}
"""The columns of `sweep.df()` that a run comes out with, and their axes."""

_GROUPS = {
    "setting": "setting (label)",
    "strategy": "strategy (kind)",
    "domain": "domain (kind)",
    "task": "task (question)",
    "task_number": "task (number)",
    "repeat": "repeat (number)",
    "stop": "end of the run (stop word)",
    "at": "what a run may use (calls, tokens or USD)",
}

_NO_SETTINGS = {*MEASURED, *_GROUPS, "answer", "error", "run_id", "simulated", "changed"}


class Point(NamedTuple):
    """An amount over a group of runs. value, low, high: the mean and its 95% interval, nan when not
    known. runs: how many there are; known: of how many the amount is. run_ids: the first `IDS`."""

    value: float
    low: float
    high: float
    runs: int
    known: int
    run_ids: list[str]


def frame_of(df: Any, *columns: str) -> pandas.DataFrame:
    """The table, in the order of its rows. An error names the columns that it lacks."""
    return table(df, columns)


def settings_in(frame: pandas.DataFrame) -> list[str]:
    """The columns that hold a setting of which there are several values; no value is one too. Columns of
    one's own count as settings."""
    own = [name for name in frame.columns if name not in _NO_SETTINGS]
    return [name for name in ("strategy", *own) if name in frame and frame[name].nunique(dropna=False) > 1]


def is_rate(frame: pandas.DataFrame, column: str) -> bool:
    """Whether a column holds yes, no or nothing."""
    from pandas.api.types import is_bool_dtype  # noqa: PLC0415

    return column == "correct" or is_bool_dtype(frame[column])


def is_amount(frame: pandas.DataFrame, column: str) -> bool:
    """Whether a column holds numbers."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype  # noqa: PLC0415

    return is_numeric_dtype(frame[column]) and not is_bool_dtype(frame[column])


def axis_of(column: str) -> str:
    """What an axis says: the amount and its unit."""
    return plain(MEASURED.get(column) or _GROUPS.get(column) or f"{short(column, 60)} (setting)")


def expect_figure(frame: pandas.DataFrame, column: str, argument: str) -> None:
    """A ValueError unless `column` holds what a mean can be taken of."""
    if not is_rate(frame, column) and not is_amount(frame, column):
        raise ValueError(f"{argument}={column!r} holds neither numbers nor true and false")


def points(frame: pandas.DataFrame, by: Sequence[str], column: str) -> dict[tuple[Any, ...], Point]:
    """The mean of `column` over the runs of each group, in the order of the table. A group is known by
    its values of `by`; no value is None."""
    import pandas as pd  # noqa: PLC0415

    keys = list(by)
    found: Any = frame.groupby(keys, sort=False, observed=True, dropna=False)
    groups = {tuple(None if pd.isna(value) else value for value in names): group for names, group in found}
    if is_rate(frame, column):
        intervals = dict(zip(groups, _rates(frame, keys, column), strict=True))
    else:
        intervals = {names: _mean(group, column) for names, group in groups.items()}
    return {
        names: Point(value, low, high, len(group), known, ids_of(group))
        for names, group in groups.items()
        for value, low, high, known in [intervals[names]]
    }


def _rates(
    frame: pandas.DataFrame, keys: Sequence[str], column: str
) -> Iterator[tuple[float, float, float, int]]:
    """The rate of each group, its interval, and of how many runs it is, in the order of the table."""
    import pandas as pd  # noqa: PLC0415

    # Without `repeat`: settings that a group pools are repeats of their tasks.
    given = pd.DataFrame({f"key {k}": frame[key] for k, key in enumerate(keys)})
    by = list(given.columns)
    given["task"] = frame["task"] if "task" in frame else range(len(frame))
    given["correct"] = frame[column]
    if column == "correct" and "error" in frame:
        given["error"] = frame["error"]
    rates = success(given, by=by)
    numbers = rates[["rate", "low", "high"]].to_numpy(float, na_value=math.nan)
    for (value, low, high), known in zip(numbers.tolist(), rates["runs"], strict=True):
        yield value, low, high, int(known)


def numbers(frame: pandas.DataFrame, column: str) -> pandas.Series[float]:
    """A figure as numbers, yes being 1. A run that ended with an error did not solve its task."""
    values = frame[column].astype("boolean" if is_rate(frame, column) else "Float64")
    if column == "correct" and "error" in frame:
        values = values.mask(frame["error"].notna(), False)
    return values.astype("Float64").astype(float)


def _mean(group: pandas.DataFrame, column: str) -> tuple[float, float, float, int]:
    """The mean over tasks, its bootstrap interval, and of how many runs it is."""
    from scipy.stats import bootstrap  # noqa: PLC0415

    known = group[group[column].notna()]
    if known.empty:
        return math.nan, math.nan, math.nan, 0
    means = known.groupby("task", observed=True)[column].mean() if "task" in known else known[column]
    values = means.to_numpy(dtype=float)
    mean = float(values.mean())
    if len(values) == 1 or values.min() == values.max():
        nothing = math.nan if len(values) == 1 else mean
        return mean, nothing, nothing, len(known)
    drawn = bootstrap(
        (values,), np.mean, n_resamples=999, batch=100, method="percentile", rng=np.random.default_rng(SEED)
    ).confidence_interval
    return mean, float(drawn.low), float(drawn.high), len(known)


def ids_of(group: pandas.DataFrame) -> list[str]:
    """The runs that a point leads to."""
    return [str(id) for id in group["run_id"].iloc[:IDS]] if "run_id" in group else []


# Words.


def named(value: Any) -> str:
    """A value of a setting on an axis or in a legend; none is a dash."""
    return (
        "–" if value is None else plain(short(f"{value:g}" if isinstance(value, float) else str(value), 60))
    )


def amount(value: float, column: str, rate: bool) -> str:
    """A value in words."""
    if math.isnan(value):
        return "unknown"
    if rate:
        return f"{value:.1%}"
    return (
        f"${value:.3g}"
        if column in ("cost", "paid")
        else f"{value:,.3g}"
        if abs(value) < 1000
        else f"{value:,.0f}"
    )


def told(point: Point, column: str, rate: bool) -> list[str]:
    """The lines of a hover: the value, its interval, how many runs, and some of their ids."""
    said = f"{plain(short(column, 40))} {amount(point.value, column, rate)}"
    if not math.isnan(point.low):
        said += f", 95% interval {amount(point.low, column, rate)} to {amount(point.high, column, rate)}"
    unknown = point.runs - point.known
    counted = f"{point.runs:,} runs" + (f", of {unknown:,} not known" if unknown else "")
    return [said, counted, *runs_named(point.run_ids, point.runs)]


def runs_named(run_ids: Sequence[str], runs: int) -> list[str]:
    """The line of a hover that leads to the runs; none where the table has no `run_id`."""
    if not run_ids:
        return []
    more = runs - NAMED
    return [plain(", ".join(run_ids[:NAMED])) + (f" and {more:,} more" if more > 0 else "")]


def is_simulated(frame: pandas.DataFrame) -> bool:
    """Whether a simulated model took part in any of the runs."""
    return "simulated" in frame and bool(frame["simulated"].fillna(False).astype(bool).any())


def whisker(values: Sequence[Point], shade: str, along: str = "y") -> dict[str, Any]:
    """Plotly's error bars of the intervals; where one is not known there is none."""
    return {
        f"error_{along}": {
            "type": "data",
            "symmetric": False,
            "array": [None if math.isnan(p.high) else p.high - p.value for p in values],
            "arrayminus": [None if math.isnan(p.low) else p.value - p.low for p in values],
            "color": shade,
            "thickness": 1.3,
            "width": 4,
        }
    }
