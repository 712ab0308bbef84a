"""Computes and formats the points of figures of many runs. A point is a column's mean over a group of runs.

The task is the unit of sampling. A rate has the interval of `tl.stats.success_rates`. Any other amount is a
mean over tasks with a bootstrap interval over tasks, or without an interval if all values are equal. Unknown
values are left out of a mean, and their number is shown. `figure.data[k].customdata[n]` contains the run ids
of a point, because a static figure has no callbacks. The hover text lists some of these ids.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tot_lab.analysis.statistics import SEED, success_rates
from tot_lab.analysis.tables import expect_runs_once, solved, table
from tot_lab.core.purposes import OTHER, ROLES
from tot_lab.record.losses import LARGE, describe, large, losses_by, total, warn_of
from tot_lab.record.run import SIMULATED
from tot_lab.views.figures.theme import TEXT, error_bars, plain, short, style_figure, wrap

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

MAX_RUN_IDS = 100
"""Maximum number of run ids of a point."""

HOVER_IDS = 3
"""Number of run ids in the hover text of a point."""

_LOST = (("calls", ""), ("failed", ", failed"), ("unreadable", ", unreadable"), ("truncated", ", truncated"))

MEASURES = {
    "correct": "success rate (% of runs)",
    "score": "grade of the answer (0–1)",
    "calls": "model calls (per run)",
    "failed_calls": "failed calls (per run)",
    "input_tokens": "tokens in (per run)",
    "output_tokens": "tokens out (per run)",
    "cost": "cost without cache hits (USD per run)",
    "paid": "paid (USD per run)",
    "tokens": "tokens in and out (per run)",
    "seconds": "wall time (s per run)",
    "seconds_alone": "wall time of a run alone (s per run)",
    "flops": "FLOPs (per run)",
    "flops_prefix_once": "FLOPs, shared prefixes once (per run)",
    **{f"{role}_input_tokens": f"tokens in, {role} calls (per run)" for role in (*ROLES, OTHER)},
    **{f"{role}_output_tokens": f"tokens out, {role} calls (per run)" for role in (*ROLES, OTHER)},
    **{
        f"{role}_{kind}": f"{role} calls{words} (per run)"
        for role in (*ROLES, OTHER)
        for kind, words in _LOST
    },
    "any_of_kept": "any kept answer right (% of runs)",
    "credit": "partial credit (0–1)",
}
"""Columns of `sweep.df()` with results of a run, and the titles of their axes."""

BUDGET_TITLES = {
    "calls": ("by limit of model calls", "limit of model calls (per run)"),
    "tokens": ("by limit of tokens", "limit of tokens in and out (per run)"),
    "cost": ("by limit of cost", "limit of cost without cache hits (USD per run)"),
    "flops": ("by limit of FLOPs", "limit of FLOPs (per run)"),
    "flops_prefix_once": ("by limit of FLOPs", "limit of FLOPs, shared prefixes once (per run)"),
}
"""Maps each `unit` of `tl.stats.anytime_performance` to a part of the figure's title, and the axis title."""

_GROUPS = {
    "setting": "setting (label)",
    "strategy": "strategy (kind)",
    "domain": "domain (kind)",
    "task": "task (question)",
    "task_number": "task (number)",
    "repeat": "repeat (number)",
    "stop_reason": "stop reason",
    "answer_state": "answer (state)",
    "selected_strategy": "strategy selected (kind)",
    "strategy_used": "strategy used (kind)",
    "at": "limit (calls, tokens or USD per run)",
}


class Point(NamedTuple):
    """Mean of a column over a group of runs.

    Attributes:
        value: The mean, or nan if no value is known.
        low: Lower end of the 95% interval of the mean, or nan if there is no interval.
        high: Upper end of the interval, or nan.
        runs: Number of runs in the group.
        known: Number of runs whose value is known.
        run_ids: Ids of the first `MAX_RUN_IDS` runs.
    """

    value: float
    low: float
    high: float
    runs: int
    known: int
    run_ids: list[str]


def axes_of(frame: pandas.DataFrame) -> list[str] | None:
    """Return the columns of settings in a table of a sweep.

    Returns `None` for any other table, which does not state which columns are settings.
    """
    axes = frame.attrs.get("axes")
    return None if axes is None else [name for name in axes if name in frame]


def setting_columns(frame: pandas.DataFrame, settings: Sequence[str] | None) -> list[str]:
    """Return the columns of settings that have at least two distinct values. A missing value counts too.

    Args:
        frame: The table.
        settings: The columns of settings. `None` uses `axes_of(frame)`.

    Raises:
        ValueError: If neither `settings` nor the table names the columns, or the table lacks one of them.
    """
    names = axes_of(frame) if settings is None else settings
    if names is None:
        raise ValueError(
            f"Cannot tell settings from results: this table is not that of a sweep. Name the columns of "
            f"settings, as in settings=['search.width']. The table has {', '.join(map(str, frame.columns))}."
        )
    if isinstance(names, str):
        raise TypeError(f"settings must be a list of columns: got {names!r}.")
    table(frame, names)
    return [name for name in dict.fromkeys(names) if frame[name].nunique(dropna=False) > 1]


def held_constant(frame: pandas.DataFrame, drawn: Sequence[str | None] = ()) -> str:
    """Return the line of the heading with the strategy, domain and settings that are equal in all runs.

    The columns in `drawn` are left out.
    """
    kept = {"strategy", "domain", *(axes_of(frame) or ())}
    held = [
        f"{text_of(name)} {text_of(frame[name].iloc[0])}"
        for name in frame.columns
        if name in kept
        and name not in drawn
        and frame[name].notna().all()  # a missing value may stand for `None`, such as no limit
        and frame[name].nunique() == 1
    ]
    return f"held constant: {first_names(held)}" if held else ""


def varies(frame: pandas.DataFrame, by: Sequence[str], column: str) -> bool:
    """Return whether `column` has several values in any group of rows with equal values of `by`."""
    inside = frame.groupby(list(by), observed=True, dropna=False)[column].nunique(dropna=False)
    return bool((inside > 1).any())


def is_rate(frame: pandas.DataFrame, column: str) -> bool:
    """Return whether a column contains only true, false and missing values."""
    from pandas.api.types import is_bool_dtype  # noqa: PLC0415

    return column == "correct" or is_bool_dtype(frame[column])


def is_numeric(frame: pandas.DataFrame, column: str) -> bool:
    """Return whether a column contains numbers that are not booleans."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype  # noqa: PLC0415

    return is_numeric_dtype(frame[column]) and not is_bool_dtype(frame[column])


def ordered(frame: pandas.DataFrame, column: str) -> list[Any]:
    """Return the values of a column: numbers in ascending order, others in the order of the table."""
    values = list(frame[column].dropna().unique())
    return sorted(values) if is_numeric(frame, column) else values


def column_title(column: str) -> str:
    """Return the name of a column for the title of a figure, without its unit."""
    return MEASURES[column].partition(" (")[0] if column in MEASURES else column


def budget_unit(frame: pandas.DataFrame, column: str) -> str | None:
    """Return the unit of the column `at` of `tl.stats.anytime_performance`.

    Returns `None` for any other column, and if the table mixes several units.
    """
    units = set(frame["unit"].dropna()) if column == "at" and "unit" in frame else set()
    return str(*units) if len(units) == 1 and units <= set(BUDGET_TITLES) else None


def figure_title(frame: pandas.DataFrame, figure: str, *groups: str) -> str:
    """Return the title of a figure, such as "Success rate by setting"."""
    units = {column: budget_unit(frame, column) for column in groups}
    by = " and ".join(column_title(column) for column in groups if not units[column])
    limits = [BUDGET_TITLES[unit][0] for unit in units.values() if unit]
    title = " ".join([column_title(figure), *([f"by {by}"] if by else []), *limits])
    return title[0].upper() + title[1:]


def format_run_count(frame: pandas.DataFrame) -> str:
    """Return the number of runs in a table as text, such as "12 runs".

    Runs are counted by their ids, because a table of `tl.stats.anytime_performance` has several rows per run.
    """
    runs = _count_runs(frame)
    return f"{runs:,} run" + ("s" if runs != 1 else "")


def note_ungraded(frame: pandas.DataFrame) -> str:
    """Return the number of graded runs as text, or "" if all are graded or there is no column `correct`."""
    graded = _count_runs(frame[solved(frame).notna()]) if "correct" in frame else _count_runs(frame)
    return "" if graded == (runs := _count_runs(frame)) else f"{graded:,} of {runs:,} runs graded"


def _count_runs(frame: pandas.DataFrame) -> int:
    if "run_id" not in frame:
        return len(frame)
    return int(frame["run_id"].nunique() + frame["run_id"].isna().sum())


def axis_title(column: str, frame: pandas.DataFrame | None = None) -> str:
    """Return the title of an axis, such as "model calls (per run)".

    A column without a title in `MEASURES` and `_GROUPS` is followed by "(setting)" if it is one of the
    settings of the sweep whose table is `frame`, else by "(column)".
    """
    known = MEASURES.get(column) or _GROUPS.get(column)
    if known is None:
        is_setting = frame is not None and column in (axes_of(frame) or ())
        known = f"{short(column, 60)} ({'setting' if is_setting else 'column'})"
    return plain(known)


def expect_numeric(frame: pandas.DataFrame, column: str, argument: str) -> None:
    """Raise `ValueError` unless `column`, which was passed as `argument`, contains numbers or booleans."""
    if not is_rate(frame, column) and not is_numeric(frame, column):
        raise ValueError(
            f"Cannot plot {argument}={column!r}: got values of type {frame[column].dtype}. "
            f"The column must contain numbers or booleans."
        )


def points(frame: pandas.DataFrame, by: Sequence[str], column: str) -> dict[tuple[Any, ...], Point]:
    """Compute the mean of `column` over the runs of each group.

    Returns:
        The point of each group, in the order of the table. The keys are the values of the columns `by`, with
        `None` for a missing value.
    """
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
    """Yield rate, ends of its interval, and number of runs with a known value, by group in table order."""
    import pandas as pd  # noqa: PLC0415

    # If a group contains several settings, their runs count as repeats of the task.
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
    """Return a column as floats: 1 for true, 0 for false, NaN for an unknown value. In the column `correct`,
    a failed run is NaN too.
    """
    if column == "correct":
        return solved(frame).astype("Float64").astype(float)
    return frame[column].astype("boolean" if is_rate(frame, column) else "Float64").astype(float)


def _mean(group: pandas.DataFrame, column: str) -> tuple[float, float, float, int]:
    """Return the mean over tasks, the ends of its bootstrap interval, and the number of known values. Unknown
    amounts are NaN."""
    from scipy.stats import bootstrap  # noqa: PLC0415

    known = group[group[column].notna()]
    if known.empty:
        return math.nan, math.nan, math.nan, 0
    means = known.groupby("task", observed=True)[column].mean() if "task" in known else known[column]
    values = means.to_numpy(dtype=float)
    mean = float(values.mean())
    if values.min() == values.max():  # no interval: equal values contain no information about the variance
        return mean, math.nan, math.nan, len(known)
    drawn = bootstrap(
        (values,), np.mean, n_resamples=999, batch=100, method="percentile", rng=np.random.default_rng(SEED)
    ).confidence_interval
    return mean, float(drawn.low), float(drawn.high), len(known)


def ids_of(group: pandas.DataFrame) -> list[str]:
    """Return the ids of the first `MAX_RUN_IDS` runs of a group."""
    return [str(id) for id in group["run_id"].iloc[:MAX_RUN_IDS]] if "run_id" in group else []


# Text.


def format_value(value: Any) -> str:
    """Format the value of a setting for an axis, a legend or a hover text. `None` becomes a dash."""
    return plain(text_of(value))


def format_heading(value: Any) -> str:
    """Format the value of a setting for the heading of a small plot, in at most two lines."""
    return "<br>".join(plain(line) for line in wrap(text_of(value), 30, 2))


def text_of(value: Any) -> str:
    """Return the value of a setting as text of at most 60 characters, without escaping it."""
    return "–" if value is None else short(f"{value:g}" if isinstance(value, float) else str(value), 60)


def tick_labels(values: Sequence[Any], max_length: int) -> list[str]:
    """Format values as tick labels of at most `max_length` characters, or 60 if two labels would be equal.

    Labels are truncated in the middle, because labels of settings often differ only at the end.
    """
    words = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
    cut = [_truncate_middle(word, max_length) for word in words]
    if len(set(cut)) < len(set(words)):
        cut = [_truncate_middle(word, 60) for word in words]
    return ["–" if value is None else plain(word) for value, word in zip(values, cut, strict=True)]


def _truncate_middle(text: str, max_length: int) -> str:
    line = short(text, len(text))
    head = (max_length - 1) // 3
    return (
        line
        if len(line) <= max_length
        else f"{line[:head].rstrip()}…{line[head + 1 - max_length :].lstrip()}"
    )


def named_axis(values: Sequence[Any]) -> dict[str, Any]:
    """Return the Plotly ticks of a horizontal axis with named positions 0, 1, ….

    The labels are rotated if they would overlap in a figure 900 px wide.
    """
    many = len(values) > 24
    names = tick_labels(values, 20 if many else 32)
    crowded = sum(len(name) + 2 for name in names) > 90
    return {
        "tickvals": list(range(len(values))),
        "ticktext": names,
        "tickangle": -90 if many else -40 if crowded else 0,
        "tickfont": {"size": TEXT["fine"] if many else 12},
    }


def format_amount(value: float, column: str, rate: bool) -> str:
    """Format a value of `column` with its unit. nan becomes "unknown"."""
    if math.isnan(value):
        return "unknown"
    if rate:
        return f"{value:.1%}"
    return (
        f"${value:.3g}"
        if column in ("cost", "paid")
        else f"{value:,.3g}"
        if abs(value) < 1000 or abs(value) >= 1e10
        else f"{value:,.0f}"
    )


def format_mean(point: Point, column: str, rate: bool) -> str:
    """Format a mean and its interval, such as "50.0%, 95% interval 25.0% to 75.0%"."""
    value, low, high = (format_amount(end, column, rate) for end in (point.value, point.low, point.high))
    return value if math.isnan(point.low) else f"{value}, 95% interval {low} to {high}"


def hover_lines(point: Point, column: str, rate: bool) -> list[str]:
    """Return the lines of a hover text: mean, interval, number of runs, and some run ids."""
    text = f"{plain(short(column, 40))} {format_mean(point, column, rate)}"
    unknown = point.runs - point.known
    runs = f"{point.runs:,} run" + ("s" if point.runs != 1 else "")
    runs += f", {unknown:,} unknown" if unknown else ""
    return [text, runs, *format_run_ids(point.run_ids, point.runs)]


def format_run_ids(run_ids: Sequence[str], runs: int) -> list[str]:
    """Return the line of a hover text with some run ids, or an empty list if there are none."""
    if not run_ids:
        return []
    more = runs - HOVER_IDS
    return [plain(", ".join(run_ids[:HOVER_IDS])) + (f" and {more:,} more" if more > 0 else "")]


class LossNote(NamedTuple):
    """Note about lost calls in a heading: in `warning` if a share of them is large, else in `line`. The other
    field is "".
    """

    line: str
    warning: str


def note_losses(frame: pandas.DataFrame) -> LossNote:
    """Return a note about the shares of lost calls by role.

    It is a warning if a share is above `LARGE` for a setting.
    """
    if "at" in frame and "run_id" in frame:  # rows of `anytime_performance` are cumulative: keep the last one
        frame = frame.sort_values("at", kind="stable").drop_duplicates("run_id", keep="last")
    if "setting" not in frame:
        frame = frame.assign(setting="")
    groups = losses_by(frame, ["setting"])
    warn_of(groups)
    found = large(groups)
    if not found:
        return LossNote(f"lost calls: {describe(total(groups.values()), 3) or 'unknown'}", "")
    (name, share, _), *others = found
    where = f" in {_truncate_middle(name, 36)}" if name else ""
    more = f"  ·  {len(others):,} more" if others else ""
    return LossNote("", f"lost calls above {LARGE:.0%}: {share}{where}{more}")


def first_names(names: Sequence[str]) -> str:
    """Return the first five names as text, with an ellipsis if there are more."""
    return ", ".join(names[:5]) + (" …" if len(names) > 5 else "")


def note_model(frame: pandas.DataFrame) -> str:
    """Return the note on simulated or small models for a figure of a table; see `Run.model_note`."""
    simulated = "simulated" in frame and frame["simulated"].fillna(False).astype(bool).any()
    return SIMULATED if simulated else str(frame.attrs.get("model_note", ""))


def together(places: Sequence[tuple[float, float]]) -> list[list[int]]:
    """Return for each point the indices of the others that it would hide, or that would hide it.

    Args:
        places: x and y of each point, as fractions of the width and height of the plot.
    """
    x, y = np.array(places, dtype=float).reshape(-1, 2).T
    near = (abs(x[:, None] - x) < 0.006) & (abs(y[:, None] - y) < 0.015)
    return [[int(other) for other in np.flatnonzero(row) if other != k] for k, row in enumerate(near)]


def rings(others: Sequence[Sequence[int]]) -> list[float]:
    """Return by how many pixels each marker is enlarged, so that points at one place are rings around each
    other. The first point of a place gets the largest marker. `others` is the result of `together`.
    """
    later = [sum(other > k for other in found) for k, found in enumerate(others)]
    step = min(6.0, 36.0 / max(1, *later)) if later else 0.0
    return [step * count for count in later]


def marker(size: float, larger: Sequence[float], colour: str, symbol: str, outline: float) -> dict[str, Any]:
    """Return Plotly markers of `size` pixels, each larger by a value of `rings`."""
    # By default, Plotly draws markers of several sizes as translucent bubbles with white outlines.
    return {
        "size": [size + ring for ring in larger],
        "color": colour,
        "symbol": symbol,
        "opacity": 1,
        "line": {"width": outline, "color": colour},
    }


RINGS = "rings around a point: more points at the same place"
"""Line of the heading if any point has a ring."""


def interval_bars(values: Sequence[Point], shade: str, along: str = "y", ring: float = 0.0) -> dict[str, Any]:
    """Return Plotly error bars for the intervals of the points. Points without an interval have no bar.

    `ring` is a value of `rings`. It makes the bars wider and thicker, so that they stay visible behind the
    bars of other points at the same place.
    """
    above = [None if math.isnan(p.high) else p.high - p.value for p in values]
    below = [None if math.isnan(p.low) else p.value - p.low for p in values]
    bars = error_bars(above, below, shade)
    bars |= {"width": bars["width"] + ring / 2, "thickness": bars["thickness"] + ring / 8}
    return {f"error_{along}": bars}


def style_table_figure(
    figure: go.Figure, frame: pandas.DataFrame, title: str, lines: list[str], dark: bool | None, **layout: Any
) -> None:
    """Call `theme.style_figure` for a figure of a table.

    The heading also states the number of graded runs unless all are graded, the shares of lost calls, and
    whether a model was simulated or small.
    """
    losses = note_losses(frame)
    lines = [*lines, note_ungraded(frame), losses.line]
    style_figure(figure, [title], lines, note_model(frame), dark, warning=losses.warning, **layout)
