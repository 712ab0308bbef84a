"""Points of the figures over many runs: groups of runs, each with the ids of its runs.

The task is the unit of sampling. A rate has the interval of `tl.stats.success_rates`. Any other amount is a
mean over tasks with a bootstrap interval over tasks, or without an interval if all values are equal. Unknown
values are left out of a mean and counted, never taken for 0. `figure.data[k].customdata[n]` holds the run ids
of a point, because a plain figure cannot call back; the hover text names some of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tot_lab.analysis.statistics import SEED, success_rates
from tot_lab.analysis.tables import expect_runs_once, solved
from tot_lab.record.losses import LARGE, describe, is_loss_column, large, losses_by, total, warn_of
from tot_lab.views.figures.theme import error_bars, plain, short, style_figure

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

MAX_RUN_IDS = 100
"""Ids of runs that a point carries; of more, the first."""

HOVER_IDS = 3
"""Ids that its hover names."""

MEASURES = {
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

BUDGET_TITLES = {
    "calls": ("with at most so many model calls", "model calls that a run may make (at most)"),
    "tokens": ("with at most so many tokens", "tokens in and out that a run may use (at most)"),
    "cost": ("with at most so many USD", "what a run may cost if each call were paid (USD, at most)"),
}
"""What the amounts of `tl.stats.anytime_performance` are of, by its `unit`: in a heading, and on an axis."""

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

_NO_SETTINGS = {*MEASURES, *_GROUPS, "answer", "error", "run_id", "simulated", "changed", "unit"}


class Point(NamedTuple):
    """An amount over a group of runs. value, low, high: the mean and its 95% interval, nan when not
    known. runs: how many there are; known: of how many the amount is. run_ids: the first `MAX_RUN_IDS`."""

    value: float
    low: float
    high: float
    runs: int
    known: int
    run_ids: list[str]


def setting_columns(frame: pandas.DataFrame) -> list[str]:
    """The columns that hold a setting of which there are several values; no value is one too. Columns of
    one's own count as settings."""
    own = [name for name in frame.columns if name not in _NO_SETTINGS and not is_loss_column(name)]
    return [name for name in ("strategy", *own) if name in frame and frame[name].nunique(dropna=False) > 1]


def varies(frame: pandas.DataFrame, by: Sequence[str], column: str) -> bool:
    """Whether a setting has several values inside a group."""
    inside = frame.groupby(list(by), observed=True, dropna=False)[column].nunique(dropna=False)
    return bool((inside > 1).any())


def is_rate(frame: pandas.DataFrame, column: str) -> bool:
    """Whether a column holds yes, no or nothing."""
    from pandas.api.types import is_bool_dtype  # noqa: PLC0415

    return column == "correct" or is_bool_dtype(frame[column])


def is_numeric(frame: pandas.DataFrame, column: str) -> bool:
    """Whether a column holds numbers."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype  # noqa: PLC0415

    return is_numeric_dtype(frame[column]) and not is_bool_dtype(frame[column])


def ordered(frame: pandas.DataFrame, column: str) -> list[Any]:
    """The values of a column: numbers by size, others in the order of the table."""
    values = list(frame[column].dropna().unique())
    return sorted(values) if is_numeric(frame, column) else values


def column_title(column: str) -> str:
    """What a column is called in a heading."""
    return MEASURES[column].partition(" (")[0] if column in MEASURES else column


def budget_unit(frame: pandas.DataFrame, column: str) -> str | None:
    """What the amounts of `tl.stats.anytime_performance` are of; `None` for any other column, and for several
    units in one."""
    units = set(frame["unit"].dropna()) if column == "at" and "unit" in frame else set()
    return str(*units) if len(units) == 1 and units <= set(BUDGET_TITLES) else None


def figure_title(frame: pandas.DataFrame, figure: str, *groups: str) -> str:
    """What a figure shows, by what."""
    units = {column: budget_unit(frame, column) for column in groups}
    by = " and ".join(column_title(column) for column in groups if not units[column])
    capped = [BUDGET_TITLES[unit][0] for unit in units.values() if unit]
    said = " ".join([column_title(figure), *([f"by {by}"] if by else []), *capped])
    return said[0].upper() + said[1:]


def format_run_count(frame: pandas.DataFrame) -> str:
    """How many runs a table is of; of one there can be several rows, as in that of
    `tl.stats.anytime_performance`."""
    runs = len(frame)
    if "run_id" in frame:
        runs = frame["run_id"].nunique() + int(frame["run_id"].isna().sum())
    return f"{runs:,} run" + ("s" if runs != 1 else "")


def axis_title(column: str) -> str:
    """What an axis says: the amount and its unit."""
    return plain(MEASURES.get(column) or _GROUPS.get(column) or f"{short(column, 60)} (setting)")


def expect_numeric(frame: pandas.DataFrame, column: str, argument: str) -> None:
    """A ValueError unless `column` holds what a mean can be taken of."""
    if not is_rate(frame, column) and not is_numeric(frame, column):
        raise ValueError(f"{argument}={column!r} holds neither numbers nor true and false")


def points(frame: pandas.DataFrame, by: Sequence[str], column: str) -> dict[tuple[Any, ...], Point]:
    """The mean of `column` over the runs of each group, in the order of the table. A group is known by
    its values of `by`; no value is None."""
    import pandas as pd  # noqa: PLC0415

    keys = list(by)
    expect_runs_once(frame, keys)
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

    # Settings that a group pools are repeats of their tasks.
    given = pd.DataFrame({f"key {k}": frame[key] for k, key in enumerate(keys)})
    by = list(given.columns)
    given["task"] = frame["task"] if "task" in frame else range(len(frame))
    given["correct"] = frame[column]
    if column == "correct" and "error" in frame:
        given["error"] = frame["error"]
    rates = success_rates(given, by=by)
    numbers = rates[["rate", "low", "high"]].to_numpy(float, na_value=math.nan)
    for (value, low, high), known in zip(numbers.tolist(), rates["runs"], strict=True):
        yield value, low, high, int(known)


def numbers(frame: pandas.DataFrame, column: str) -> pandas.Series[float]:
    """A figure as numbers, yes being 1. A run that ended with an error did not solve its task."""
    if column == "correct":
        return solved(frame).astype("Float64").astype(float)
    return frame[column].astype("boolean" if is_rate(frame, column) else "Float64").astype(float)


def _mean(group: pandas.DataFrame, column: str) -> tuple[float, float, float, int]:
    """The mean over tasks, its bootstrap interval, and of how many runs it is."""
    from scipy.stats import bootstrap  # noqa: PLC0415

    known = group[group[column].notna()]
    if known.empty:
        return math.nan, math.nan, math.nan, 0
    means = known.groupby("task", observed=True)[column].mean() if "task" in known else known[column]
    values = means.to_numpy(dtype=float)
    mean = float(values.mean())
    if values.min() == values.max():  # where all agree nothing tells how far further ones would be
        return mean, math.nan, math.nan, len(known)
    drawn = bootstrap(
        (values,), np.mean, n_resamples=999, batch=100, method="percentile", rng=np.random.default_rng(SEED)
    ).confidence_interval
    return mean, float(drawn.low), float(drawn.high), len(known)


def ids_of(group: pandas.DataFrame) -> list[str]:
    """The runs that a point leads to."""
    return [str(id) for id in group["run_id"].iloc[:MAX_RUN_IDS]] if "run_id" in group else []


# Words.


def format_value(value: Any) -> str:
    """A value of a setting on an axis or in a legend; none is a dash."""
    return (
        "–" if value is None else plain(short(f"{value:g}" if isinstance(value, float) else str(value), 60))
    )


def tick_labels(values: Sequence[Any], most: int) -> list[str]:
    """The values beside their ticks, in at most `most` characters, or 60 where two would read alike. The
    middle is what is cut: labels of settings begin alike and end in what differs."""
    words = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
    cut = [_middle_cut(word, most) for word in words]
    if len(set(cut)) < len(set(words)):
        cut = [_middle_cut(word, 60) for word in words]
    return ["–" if value is None else plain(word) for value, word in zip(values, cut, strict=True)]


def _middle_cut(text: str, most: int) -> str:
    line = short(text, len(text))
    head = (most - 1) // 3
    return line if len(line) <= most else f"{line[:head].rstrip()}…{line[head + 1 - most :].lstrip()}"


def named_axis(values: Sequence[Any]) -> dict[str, Any]:
    """Plotly's ticks of a horizontal axis of names, at 0, 1, …: upright or aslant where they would lie on
    each other in a page of 900 px."""
    many = len(values) > 24
    names = tick_labels(values, 20 if many else 32)
    crowded = sum(len(name) + 2 for name in names) > 90
    return {
        "tickvals": list(range(len(values))),
        "ticktext": names,
        "tickangle": -90 if many else -40 if crowded else 0,
        "tickfont": {"size": 10 if many else 12},
    }


def format_amount(value: float, column: str, rate: bool) -> str:
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


def hover_lines(point: Point, column: str, rate: bool) -> list[str]:
    """The lines of a hover: the value, its interval, how many runs, and some of their ids."""
    said = f"{plain(short(column, 40))} {format_amount(point.value, column, rate)}"
    if not math.isnan(point.low):
        said += f", 95% interval {format_amount(point.low, column, rate)} to {format_amount(point.high, column, rate)}"
    unknown = point.runs - point.known
    counted = f"{point.runs:,} run" + ("s" if point.runs != 1 else "")
    counted += f", of {unknown:,} not known" if unknown else ""
    return [said, counted, *format_run_ids(point.run_ids, point.runs)]


def format_run_ids(run_ids: Sequence[str], runs: int) -> list[str]:
    """The line of a hover that leads to the runs; none where the table has no `run_id`."""
    if not run_ids:
        return []
    more = runs - HOVER_IDS
    return [plain(", ".join(run_ids[:HOVER_IDS])) + (f" and {more:,} more" if more > 0 else "")]


class LossNote(NamedTuple):
    """What a heading says of lost calls. Where a share is large, warning says so, and line is empty."""

    line: str
    warning: str


def note_losses(frame: pandas.DataFrame) -> LossNote:
    """The shares of calls that the runs of a figure lost, by role. Warns where a setting lost many."""
    if "at" in frame and "run_id" in frame:  # each row of `anytime_performance` includes what was lost before
        frame = frame.sort_values("at", kind="stable").drop_duplicates("run_id", keep="last")
    if "setting" not in frame:
        frame = frame.assign(setting="")
    groups = losses_by(frame, ["setting"])
    warn_of(groups)
    found = large(groups)
    if not found:
        return LossNote(f"lost calls: {describe(total(groups.values()), 3) or 'unknown'}", "")
    (name, share, _), *others = found
    where = f" in {_middle_cut(name, 36)}" if name else ""
    more = f"  ·  {len(others):,} more" if others else ""
    return LossNote("", f"lost calls above {LARGE:.0%}: {share}{where}{more}")


def first_names(names: Sequence[str]) -> str:
    """The first five of several names."""
    return ", ".join(names[:5]) + (" …" if len(names) > 5 else "")


def is_simulated(frame: pandas.DataFrame) -> bool:
    """Whether a simulated model took part in any of the runs."""
    return "simulated" in frame and bool(frame["simulated"].fillna(False).astype(bool).any())


def interval_bars(values: Sequence[Point], shade: str, along: str = "y") -> dict[str, Any]:
    """Plotly's error bars of the intervals; where one is not known there is none."""
    above = [None if math.isnan(p.high) else p.high - p.value for p in values]
    below = [None if math.isnan(p.low) else p.value - p.low for p in values]
    return {f"error_{along}": error_bars(above, below, shade)}


def style_table_figure(
    figure: go.Figure, frame: pandas.DataFrame, title: str, lines: list[str], dark: bool, **layout: Any
) -> None:
    """`theme.style_figure` for a figure of a table: the heading also says which calls were lost, and whether a model
    was simulated."""
    lost = note_losses(frame)
    said = [*lines, lost.line]
    style_figure(figure, [title], said, is_simulated(frame), dark, warning=lost.warning, **layout)
