"""Figure of the importance of each setting of a sweep.

Each combination of settings has a mean over its tasks. The importance of a setting is the share of the
variance between these means that the setting explains. It is computed by a functional ANOVA of main effects:
a least-squares fit on the values as categories. If the design is not crossed, the variance has no unique
decomposition. The figure therefore shows two shares: the share that a setting explains alone, and the share
that it explains beyond all other settings. They differ if settings were changed together. In a crossed grid,
both are equal to the first-order Sobol index.

Optuna computes the same quantity from a random forest, because its trials are not a grid. A sweep
contains all combinations, so their means need no model.

References:
    Hutter, Hoos and Leyton-Brown 2014, "An Efficient Approach for Assessing Hyperparameter Importance".
    Sobol 2001, "Global sensitivity indices for nonlinear mathematical models".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tot_lab.analysis.statistics import SEED
from tot_lab.analysis.tables import expect_runs_once, table
from tot_lab.views.figures.points import (
    expect_numeric,
    first_names,
    format_value,
    numbers,
    setting_columns,
    style_table_figure,
)
from tot_lab.views.figures.theme import KINDS, error_bars, legend_at, palette, show_message

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

MAX_BARS = 30
"""Maximum number of settings that are drawn, the most important first."""

RESAMPLES = 500
"""Number of bootstrap samples of the tasks."""

_Numbers = NDArray[np.float64]


class ImportanceInfo(NamedTuple):
    """Data of `plot_importance`.

    The first six fields have one entry per setting, the most important first. Shares are fractions of the
    variance between combinations, from 0 to 1, or nan if all combinations have the same mean.

    Attributes:
        alone: Share that the setting explains by itself.
        low: Lower end of the 95% bootstrap interval of `alone` over tasks, or nan if there is only one task.
        high: Upper end of the interval, or nan.
        beyond: Share that the setting explains beyond all others.
        chance: Mean share that a setting with as many values, assigned at random, would explain.
        rest: Share that all settings together do not explain: interactions and noise.
        once: Settings of which every value occurs in only one combination. Their importance cannot be
            estimated.
        combinations: Number of combinations of values.
        tasks: Number of tasks.
        unpaired: Number of tasks that are left out because some combination was not run on them. `None` if
            no task is shared by all combinations. Each mean then covers the tasks of its own combination.
        lacking: Number of runs that are left out because their strategy lacks some of the settings, and their
            distinct values in the column `setting` (or `strategy`).
    """

    names: list[str]
    alone: _Numbers
    low: _Numbers
    high: _Numbers
    beyond: _Numbers
    chance: _Numbers
    rest: float
    once: list[str]
    combinations: int
    tasks: int
    unpaired: int | None
    lacking: tuple[int, list[str]]


def importance_info(df: Any, of: str = "correct", *, settings: Sequence[str] | None = None) -> ImportanceInfo:
    """Compute the data of `plot_importance`."""
    frame = table(df, [of])
    expect_numeric(frame, of, "of")
    columns = setting_columns(frame, settings)
    if of in columns:
        raise ValueError(f"`of` must be a result: got {of!r}, which is one of the settings.")
    if not columns:
        raise ValueError(
            "Cannot compute importances: no setting in this table has two values. Vary a setting."
        )
    expect_runs_once(frame, columns)
    whole, frame = frame, _largest_comparable_group(frame, columns)
    columns = setting_columns(frame, columns)
    out = whole.loc[whole.index.difference(frame.index)]
    label = "setting" if "setting" in whole else "strategy" if "strategy" in whole else None
    values = numbers(frame, of)
    if values.isna().all():
        raise ValueError(f"Cannot compute importances: the column {of!r} contains no known value.")
    grouped = values.groupby(
        [*(frame[column] for column in columns)], observed=True, dropna=False, sort=False
    )
    place = grouped.ngroup()
    task = frame["task"].astype(str) if "task" in frame else values.index.to_series().astype(str)
    by_task = values.groupby([place, task]).mean().unstack()
    by_task = by_task[by_task.notna().any(axis=1)]
    first_rows = frame.groupby(place)[columns].nth(0).set_index(place[~place.duplicated()]).loc[by_task.index]
    paired = by_task.dropna(axis=1)
    unpaired: int | None = by_task.shape[1] - paired.shape[1]
    if paired.shape[1]:
        by_task = paired
    else:
        unpaired = None
    levels = {column: _one_hot(first_rows[column]) for column in columns}
    once = [column for column in columns if levels[column].shape[1] == len(by_task) > 1]
    explained = [column for column in columns if column not in once]
    # The first column has the means over all tasks, each other column those over a bootstrap sample of tasks.
    means = np.hstack(
        [
            np.nanmean(by_task.to_numpy(float), axis=1, keepdims=True),
            _bootstrap_means(by_task.to_numpy(float)),
        ]
    )
    alone, beyond, rest = _shares([levels[column] for column in explained], means)
    low, high = _interval(alone[:, 1:] if by_task.shape[1] > 1 else alone[:, :0])
    chance = np.array([(levels[column].shape[1] - 1) / max(len(by_task) - 1, 1) for column in explained])
    order = np.argsort(-np.nan_to_num(alone[:, 0]), kind="stable")
    return ImportanceInfo(
        [explained[k] for k in order],
        alone[order, 0],
        low[order],
        high[order],
        beyond[order, 0],
        chance[order],
        float(rest[0]),
        once,
        len(by_task),
        by_task.shape[1],
        unpaired,
        (len(out), [str(name) for name in out[label].unique()] if label and len(out) else []),
    )


def plot_importance(
    df: Any, of: str = "correct", *, settings: Sequence[str] | None = None, dark: bool | None = None
) -> go.Figure:
    """Plot how much of the variance between combinations of values each setting explains.

    The bar is the share that a setting explains alone, with a 95% bootstrap interval over tasks. The diamond
    is the share it explains beyond all others. Neither includes interactions; the heading states the
    unexplained share. The tick is the share that a setting with as many values would explain by chance.

    Both shares are equal in a balanced, crossed grid. If they differ, settings were changed together and
    their effects cannot be separated; run the missing combinations. Runs of a strategy that lacks a setting
    (a baseline has no beam width) contain no information about it. The figure uses the largest group of runs
    whose strategies have the same settings, and states what is left out.

    Args:
        df: A sweep, or any table with one row per run. Only tasks that all combinations share are used, if
            there are any. At most 30 settings are drawn.
        of: `correct`, `score`, `calls`, or another column of numbers or booleans.
        settings: The columns of settings. `None` uses the axes of the sweep, which selected rows of
            `sweep.df()` keep. For any other table, the columns must be named.
        dark: Use the colours for a dark page. `None` follows `plotly.io.templates.default`.

    Raises:
        ValueError: If no setting has two values, no value of `of` is known, `of` is a setting, or it is not
            known which columns are settings.
    """
    import plotly.graph_objects as go  # noqa: PLC0415

    frame = table(df)
    info = importance_info(frame, of, settings=settings)
    figure = go.Figure()
    places = list(range(min(len(info.names), MAX_BARS)))
    if not len(info.names) or math.isnan(info.rest):
        show_message(
            figure, "all settings have the same mean" if info.names else "no value of a setting occurs twice"
        )
    else:
        _draw_shares(figure, info, places, palette(dark).ink)
    style_table_figure(
        figure,
        frame,
        f"What {of} depends on",
        _notes(info),
        dark,
        height=130 + 40 * max(len(places), 4),
        margin={"b": 70},
        legend=legend_at(-0.3),
        bargap=0.45,
        hovermode="closest",
    )
    figure.update_xaxes(
        title="share of the variance between settings (%)", tickformat=".0%", range=[-0.01, 1.02]
    )
    figure.update_yaxes(
        title={"text": "setting (its column)", "standoff": 14},
        tickvals=places,
        ticktext=[format_value(info.names[k]) for k in places],
        autorange="reversed",
        showgrid=False,
    )
    return figure


def _draw_shares(figure: go.Figure, info: ImportanceInfo, places: list[int], ink: str) -> None:
    both = {"y": places, "hoverinfo": "text", "hovertext": [_hover(info, k) for k in places]}
    above, below = np.maximum(info.high - info.alone, 0), np.maximum(info.alone - info.low, 0)
    figure.add_bar(
        x=info.alone[places],
        orientation="h",
        marker={"color": KINDS[4]},
        error_x=error_bars(above[places], below[places], ink),
        name="alone",
        **both,
    )
    for words, shares, symbol, shade, size in (
        ("beyond all others", info.beyond, "diamond", KINDS[0], 10),
        ("by chance", info.chance, "line-ns-open", ink, 14),
    ):
        marker = {"symbol": symbol, "color": shade, "size": size, "line": {"width": 1.5}}
        figure.add_scatter(x=shares[places], mode="markers", marker=marker, name=words, **both)


def _notes(info: ImportanceInfo) -> list[str]:
    """Return the lines of the subtitle."""
    unpaired = (
        "the combinations share no task: each mean covers different tasks"
        if info.unpaired is None
        else f"{info.unpaired:,} tasks not run by every combination are left out"
    )
    return [
        f"{info.combinations:,} combinations over {info.tasks:,} tasks"
        + ("" if math.isnan(info.rest) else f"  ·  {info.rest:.0%} due to interactions and noise"),
        f"{info.lacking[0]:,} runs lack some of these settings, left out: {first_names(info.lacking[1])}"
        if info.lacking[0]
        else "",
        unpaired if info.unpaired != 0 else "",
        f"no value occurs twice, left out: {', '.join(info.once)}" if info.once else "",
        f"{len(info.names) - MAX_BARS} less important settings not shown"
        if len(info.names) > MAX_BARS
        else "",
    ]


def _largest_comparable_group(frame: pandas.DataFrame, columns: list[str]) -> pandas.DataFrame:
    """Return the largest group of runs whose strategies have values in the same columns of settings.

    The size of a group is its number of combinations. Groups in which some value occurs in two combinations
    precede all others. A missing value counts as a value if other runs of the strategy have one.
    """
    import pandas as pd  # noqa: PLC0415

    has = frame[columns].notna()
    if "strategy" in frame:
        has = has.groupby(frame["strategy"], observed=True, dropna=False).transform("any")
    kind = pd.Series(list(has.itertuples(index=False, name=None)), frame.index)

    def rank(group: pandas.DataFrame) -> tuple[bool, int]:
        combinations = group[columns].drop_duplicates()
        counts = [combinations[column].nunique(dropna=False) for column in columns]
        return any(1 < count < len(combinations) for count in counts), len(combinations)

    groups = [group for _, group in frame.groupby(kind, sort=False)]
    return max(groups, key=rank)


def _shares(levels: list[_Numbers], values: _Numbers) -> tuple[_Numbers, _Numbers, _Numbers]:
    """Return the shares of the variance of each column of `values` that the factors `levels` explain.

    Returns:
        The share that each factor explains alone, the share that it explains beyond all others (both of shape
        (factors, columns of `values`)), and the unexplained share of each column.
    """
    total = _residual([], values)
    total = np.where(total > 1e-12 * np.maximum((values**2).sum(axis=0), 1e-12), total, math.nan)
    left = _residual(levels, values)
    alone, beyond = np.zeros((2, len(levels), values.shape[1]))
    for k, level in enumerate(levels):
        alone[k] = 1 - _residual([level], values) / total
        beyond[k] = (_residual(levels[:k] + levels[k + 1 :], values) - left) / total
    return np.clip(alone, 0, 1), np.clip(beyond, 0, 1), np.clip(left / total, 0, 1)


def _residual(levels: list[_Numbers], values: _Numbers) -> _Numbers:
    """Return the residual sum of squares of a least-squares fit of `values` on the factors `levels`.

    The values are projected onto the space that the factors span, so that collinear factors are allowed.
    """
    from scipy.linalg import orth  # noqa: PLC0415

    span = orth(np.hstack([np.ones((len(values), 1)), *levels]))
    left: _Numbers = ((values - span @ (span.T @ values)) ** 2).sum(axis=0)
    return left


def _one_hot(column: pandas.Series[Any]) -> _Numbers:
    """Return a one-hot encoding of a setting. A missing value counts as a value."""
    import pandas as pd  # noqa: PLC0415

    codes, _ = pd.factorize(column, use_na_sentinel=False)
    return np.eye(codes.max() + 1)[codes]


def _bootstrap_means(table: _Numbers) -> _Numbers:
    """Return the means over bootstrap samples of the tasks, one column per sample.

    `table` has one row per combination and one column per task. A sample that has no value of some
    combination is left out.
    """
    draws = np.random.default_rng(SEED).integers(table.shape[1], size=(RESAMPLES, table.shape[1]))
    columns = [table[:, draw] for draw in draws]
    complete = [column for column in columns if not np.isnan(column).all(axis=1).any()]
    return np.stack([np.nanmean(column, axis=1) for column in complete or [table]], axis=1)


def _interval(samples: _Numbers) -> tuple[_Numbers, _Numbers]:
    """Return the 2.5% and 97.5% quantiles of each row, without columns that contain NaN. NaN if no column is
    left."""
    known = samples[:, ~np.isnan(samples).any(axis=0)]
    if not known.shape[1]:
        nothing = np.full(len(samples), math.nan)
        return nothing, nothing
    low, high = np.quantile(known, [0.025, 0.975], axis=1)
    return low, high


def _hover(info: ImportanceInfo, k: int) -> str:
    between = f", 95% interval {info.low[k]:.1%} to {info.high[k]:.1%}" if info.low[k] == info.low[k] else ""
    lines = [
        f"<b>{format_value(info.names[k])}</b>",
        f"alone {info.alone[k]:.1%}{between}",
        f"beyond all others {info.beyond[k]:.1%}",
        f"by chance {info.chance[k]:.1%}",
    ]
    return "<br>".join(lines)
