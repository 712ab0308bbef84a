"""Which setting matters most.

What is divided up is the variance between settings: of the mean over tasks that each combination of
values got. It is a functional ANOVA of main effects (Hutter, Hoos and Leyton-Brown 2014), by least squares
on the values as names, not on a model of the surface. A design that is not crossed cannot be divided up
in one way; therefore two shares are shown of each setting: what it explains alone, and what it explains
beyond all others. Where they differ, settings were changed together.
"""

from __future__ import annotations

import math
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
from tot_lab.views.figures.theme import KINDS, show_message, error_bars, legend_at, palette

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

MAX_BARS = 30
"""Bars; of more settings, those that explain most."""

RESAMPLES = 500
"""Bootstrap samples of the tasks."""

_Numbers = NDArray[np.float64]


class ImportanceInfo(NamedTuple):
    """Over the settings that differ, that which explains most first. Shares are of the variance between
    combinations, 0–1, nan when these do not differ.

    alone: what the setting explains by itself; low, high: its 95% bootstrap interval over tasks, nan of
    one task. beyond: what it explains beyond all others. chance: what one with as many values would
    explain, on average, if its values were dealt out at random. rest: what all of them together leave,
    which is interactions and noise. once: settings of which no value occurs twice; nothing can be said of
    them. combinations, tasks: how many of each. unpaired: tasks that some combination lacks and that were
    left out; `None` if no task is common to all, and each mean is of its own tasks. lacking: runs whose
    strategy lacks some of the settings, which are left out, and which these are, by setting.
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


def importance_info(df: Any, of: str = "correct") -> ImportanceInfo:
    """What `plot_importance` draws."""
    frame = table(df, [of])
    expect_numeric(frame, of, "of")
    columns = [column for column in setting_columns(frame) if column != of]
    if not columns:
        raise ValueError("no setting has two values in this table: there is nothing to explain")
    expect_runs_once(frame, columns)
    whole, frame = frame, _with_the_same_settings(frame, columns)
    columns = [column for column in setting_columns(frame) if column in columns]
    out = whole.loc[whole.index.difference(frame.index)]
    label = "setting" if "setting" in whole else "strategy" if "strategy" in whole else None
    values = numbers(frame, of)
    if values.isna().all():
        raise ValueError(f"no run of the table has a known {of!r}")
    grouped = values.groupby(
        [*(frame[column] for column in columns)], observed=True, dropna=False, sort=False
    )
    place = grouped.ngroup()
    task = frame["task"].astype(str) if "task" in frame else values.index.to_series().astype(str)
    by_task = values.groupby([place, task]).mean().unstack()
    by_task = by_task[by_task.notna().any(axis=1)]
    held = frame.groupby(place)[columns].nth(0).set_index(place[~place.duplicated()]).loc[by_task.index]
    paired = by_task.dropna(axis=1)
    unpaired: int | None = by_task.shape[1] - paired.shape[1]
    if paired.shape[1]:
        by_task = paired
    else:
        unpaired = None
    levels = {column: _levels(held[column]) for column in columns}
    once = [column for column in columns if levels[column].shape[1] == len(by_task) > 1]
    told = [column for column in columns if column not in once]
    # The first column holds the means over all tasks, the others those over tasks drawn again.
    means = np.hstack(
        [np.nanmean(by_task.to_numpy(float), axis=1, keepdims=True), _resampled(by_task.to_numpy(float))]
    )
    alone, beyond, rest = _shares([levels[column] for column in told], means)
    low, high = _between(alone[:, 1:] if by_task.shape[1] > 1 else alone[:, :0])
    chance = np.array([(levels[column].shape[1] - 1) / max(len(by_task) - 1, 1) for column in told])
    order = np.argsort(-np.nan_to_num(alone[:, 0]), kind="stable")
    return ImportanceInfo(
        [told[k] for k in order],
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


def plot_importance(df: Any, of: str = "correct", *, dark: bool = False) -> go.Figure:
    """Which settings the differences come from: of the variance between combinations of values, the share
    that each setting explains alone (bar, with a 95% bootstrap interval over tasks) and beyond all others
    (diamond). Interactions are in neither; the heading says what is left.

    In a crossed, balanced grid both shares agree. Where they do not, settings were changed together, and
    no reckoning can tell them apart: run the missing combinations. A setting with many values explains
    some variance by chance; the tick on its bar says how much. Strategies that lack a setting (a
    baseline has no beam) say nothing of it: only the runs are used that have the same settings, of these
    the largest group, and what is left out is said.

    df: a sweep, or any table with a row per run. Only tasks that all combinations share are used, and it
        is said; beyond 30 settings those are drawn that explain most.
    of: `correct`, `score`, `calls`, or another column of numbers, or of true and false.
    dark: for a dark page.
    """
    import plotly.graph_objects as go  # noqa: PLC0415

    frame = table(df)
    info = importance_info(frame, of)
    figure = go.Figure()
    places = list(range(min(len(info.names), MAX_BARS)))
    if not len(info.names) or math.isnan(info.rest):
        show_message(figure, "the settings do not differ" if info.names else "no value occurs twice")
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
    """The lines of the heading."""
    unpaired = (
        "no task is common to all: each mean is of its own tasks"
        if info.unpaired is None
        else f"{info.unpaired:,} tasks that some lack are left out"
    )
    return [
        f"{info.combinations:,} combinations over {info.tasks:,} tasks"
        + ("" if math.isnan(info.rest) else f"  ·  {info.rest:.0%} left to interactions and noise"),
        f"{info.lacking[0]:,} runs lack some of these settings, left out: {first_names(info.lacking[1])}"
        if info.lacking[0]
        else "",
        unpaired if info.unpaired != 0 else "",
        f"no value occurs twice, left out: {', '.join(info.once)}" if info.once else "",
        f"{len(info.names) - MAX_BARS} more settings explain less" if len(info.names) > MAX_BARS else "",
    ]


def _with_the_same_settings(frame: pandas.DataFrame, columns: list[str]) -> pandas.DataFrame:
    """The runs that have the same settings: of several such groups, the one with most combinations that
    says anything of a setting. None is a value where other runs of the strategy have one."""
    import pandas as pd  # noqa: PLC0415

    has = frame[columns].notna()
    if "strategy" in frame:
        has = has.groupby(frame["strategy"], observed=True, dropna=False).transform("any")
    kind = pd.Series(list(has.itertuples(index=False, name=None)), frame.index)

    def worth(held: pandas.DataFrame) -> tuple[bool, int]:
        combinations = held[columns].drop_duplicates()
        counts = [combinations[column].nunique(dropna=False) for column in columns]
        return any(1 < count < len(combinations) for count in counts), len(combinations)

    groups = [held for _, held in frame.groupby(kind, sort=False)]
    return max(groups, key=worth)


def _shares(levels: list[_Numbers], values: _Numbers) -> tuple[_Numbers, _Numbers, _Numbers]:
    """What each factor explains alone and beyond the others (factor × column of values), and what all
    leave (column)."""
    total = _left([], values)
    total = np.where(total > 1e-12 * np.maximum((values**2).sum(axis=0), 1e-12), total, math.nan)
    left = _left(levels, values)
    alone, beyond = np.zeros((2, len(levels), values.shape[1]))
    for k, level in enumerate(levels):
        alone[k] = 1 - _left([level], values) / total
        beyond[k] = (_left(levels[:k] + levels[k + 1 :], values) - left) / total
    return np.clip(alone, 0, 1), np.clip(beyond, 0, 1), np.clip(left / total, 0, 1)


def _left(levels: list[_Numbers], values: _Numbers) -> _Numbers:
    """The sum of squares that least squares on these factors leave. Factors that say the same are no
    trouble: what they span is taken, not their coefficients."""
    from scipy.linalg import orth  # noqa: PLC0415

    span = orth(np.hstack([np.ones((len(values), 1)), *levels]))
    left: _Numbers = ((values - span @ (span.T @ values)) ** 2).sum(axis=0)
    return left


def _levels(column: pandas.Series[Any]) -> _Numbers:
    """A column per value of a setting, no value being one of them."""
    import pandas as pd  # noqa: PLC0415

    codes, _ = pd.factorize(column, use_na_sentinel=False)
    return np.eye(codes.max() + 1)[codes]


def _resampled(table: _Numbers) -> _Numbers:
    """The means over tasks drawn again with replacement, a column per sample."""
    draws = np.random.default_rng(SEED).integers(table.shape[1], size=(RESAMPLES, table.shape[1]))
    columns = [table[:, draw] for draw in draws]
    held = [column for column in columns if not np.isnan(column).all(axis=1).any()]
    return np.stack([np.nanmean(column, axis=1) for column in held or [table]], axis=1)


def _between(drawn: _Numbers) -> tuple[_Numbers, _Numbers]:
    """The middle 95% of each row."""
    known = drawn[:, ~np.isnan(drawn).any(axis=0)]
    if not known.shape[1]:
        nothing = np.full(len(drawn), math.nan)
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
