"""Figure of any result of a sweep against any setting, with 95% intervals.

Strategies without the setting on the x axis (a baseline has no beam width) are drawn as horizontal lines, so
that each curve can be compared with the baselines. If the x axis is a result (calls, cost), each setting is
one point.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from tot_lab.analysis.tables import table
from tot_lab.views.figures.points import (
    BUDGET_TITLES,
    MEASURES,
    Point,
    axis_title,
    budget_unit,
    expect_numeric,
    figure_title,
    format_amount,
    format_run_count,
    format_value,
    hover_lines,
    interval_bars,
    is_numeric,
    is_rate,
    named_axis,
    ordered,
    points,
    setting_columns,
    style_table_figure,
    varies,
)
from tot_lab.views.figures.theme import COLOURS, plain

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

MAX_CURVES = 14
"""Maximum number of curves. Further curves are left out."""

MAX_VALUES = 60
"""Maximum number of values on the x axis. Further values are left out."""

MAX_SETTINGS = 500
"""Maximum number of settings if the x axis is a result. Further settings are left out."""

_SYMBOLS = ("circle", "diamond")  # curves 8 to 14 reuse the seven colours with another marker


class Curve(NamedTuple):
    """The points that share a value of the colour column.

    Attributes:
        name: Value of the colour column. `None` if it is missing, or if there is no colour column.
        x: Positions on the x axis: values if it is numeric, else indices into `SweepInfo.places`.
        points: Means on the y axis.
        labels: First line of each hover text.
        across: Means on the x axis if that axis is a result, else empty.
    """

    name: Any
    x: list[float]
    points: list[Point]
    labels: list[str]
    across: list[Point]


class SweepInfo(NamedTuple):
    """Data of `plot_sweep`.

    Attributes:
        curves: One curve per value of the colour column. Numbers are in ascending order, other values in the
            order of the table.
        places: Values of an x axis of names. Empty if the axis is numeric.
        baselines: Groups without a value on the x axis, by name.
        pooled: Settings that vary between the runs of a point.
        left_out: Number of values (or settings) that are not drawn, and number of curves that are not drawn.
    """

    curves: list[Curve]
    places: list[Any]
    baselines: dict[str, Point]
    pooled: list[str]
    left_out: tuple[int, int]


def sweep_info(df: Any, x: str = "setting", y: str = "correct", color: str | None = None) -> SweepInfo:
    """Compute the data of `plot_sweep`."""
    frame = table(df, [name for name in (x, y, color) if name is not None])
    expect_numeric(frame, y, "y")
    if x in MEASURES:
        expect_numeric(frame, x, "x")
        return _settings_info(table(frame, ["setting"]), x, y, color)
    by = list(dict.fromkeys([x] if color is None else [x, color]))
    known = frame[frame[x].notna()]
    values = ordered(known, x)
    shown = values[:MAX_VALUES]
    place = {value: k for k, value in enumerate(shown)}
    numeric = is_numeric(frame, x)
    made: dict[Any, list[tuple[Any, Point]]] = {}
    for names, point in points(known[known[x].isin(shown)], by, y).items() if shown else ():
        made.setdefault(None if color is None else names[-1], []).append((names[0], point))
    curves = []
    colours = [None] if color is None else ordered(known, color)
    for name in (name for name in [*colours, None] if name in made):
        held = sorted(made.pop(name), key=lambda pair: place[pair[0]])
        curves.append(
            Curve(
                name,
                [float(value) if numeric else place[value] for value, _ in held],
                [point for _, point in held],
                [f"{format_value(x)} {format_value(value)}" for value, _ in held],
                [],
            )
        )
    without = frame[frame[x].isna()]
    label = "setting" if "setting" in frame else color
    baselines = (
        {format_value(names[0]): point for names, point in points(without, [label], y).items()}
        if label is not None and len(without)
        else {}
    )
    inside = [
        name for name in setting_columns(known) or ["setting"] if name in known and varies(known, by, name)
    ]
    return SweepInfo(
        curves[:MAX_CURVES],
        [] if numeric else shown,
        dict(list(baselines.items())[:MAX_CURVES]),
        inside,
        (len(values) - len(shown), max(len(curves) - MAX_CURVES, 0) + max(len(baselines) - MAX_CURVES, 0)),
    )


def _notes(info: SweepInfo, x: str) -> str:
    """Return the line of the heading that lists averaged settings and the number of hidden values."""
    points, curves = info.left_out
    notes = [
        f"averaged over {', '.join(info.pooled)}" if info.pooled else "",
        f"{points:,} more {'settings' if x in MEASURES else f'values of {x}'} not shown" if points else "",
        f"{curves:,} more curves not shown" if curves else "",
    ]
    return "  ·  ".join(filter(None, notes))


def plot_sweep(
    df: Any, x: str = "setting", y: str = "correct", *, color: str | None = None, dark: bool | None = None
) -> go.Figure:
    """Plot the mean of a result against a column of a sweep, with 95% intervals.

    The interval of a success rate is that of `tl.stats.success_rates`, and for other columns a bootstrap
    interval over tasks.

    Args:
        df: A sweep, or any table with one row per run. At most 60 values of `x` and 14 values of `color` are
            drawn, or 500 settings if `x` is a result. The heading states what is left out.
        x: A column whose values group the runs, such as `search.width`, `setting` or `task`. Groups without a
            value are drawn as horizontal lines. If `x` is a result (`calls`, `cost`), each setting is one
            point. Use `at` for a table of `tl.stats.anytime_performance`. The axis is logarithmic if the
            values are spaced evenly by ratio, such as 1, 2, 4, 8.
        y: The result: `correct`, `score`, `calls`, `cost`, `seconds` or any other column of numbers or
            booleans.
        color: A column whose values become one curve each.
        dark: Use the colours for a dark page. `None` follows `plotly.io.templates.default`.

    Returns:
        A figure whose points contain the ids of up to 100 runs:

            ids = figure.data[0].customdata[2]  # third point of the first curve
            sweep.run(ids[0])

    Raises:
        ValueError: If the table lacks a column.
    """
    import plotly.graph_objects as go  # noqa: PLC0415

    frame = table(df)
    info = sweep_info(frame, x, y, color)
    rate, rate_x = is_rate(frame, y), is_rate(frame, x)
    figure = go.Figure()
    for k, curve in enumerate(info.curves):
        figure.add_scatter(
            mode="lines+markers" if not info.places and x not in MEASURES else "markers",
            name="" if color is None else format_value(curve.name),
            showlegend=color is not None,
            hovertext=[_hover(curve, n, x, y, color, rate, rate_x) for n in range(len(curve.x))],
            **_curve_style(info, k),
        )
    for k, (name, point) in enumerate(info.baselines.items(), len(info.curves)):
        _add_baseline(figure, name, point, y, rate, COLOURS[k % len(COLOURS)])
    summary = f"{format_run_count(frame)}  ·  mean and 95% interval"
    style_table_figure(
        figure,
        frame,
        figure_title(frame, y, x),
        [summary, _notes(info, x)],
        dark,
        height=420,
        margin={"r": 24, "b": 24},
        legend={"title": {"text": "" if color is None else axis_title(color)}},
        hovermode="closest",
    )
    _style_axes(figure, info, frame, x, y)
    return figure


def _curve_style(info: SweepInfo, k: int) -> dict[str, Any]:
    """Return the Plotly properties of the k-th curve. If the x axis has names, curves are side by side."""
    curve, shade = info.curves[k], COLOURS[k % len(COLOURS)]
    step = 0.7 / len(info.curves)
    aside = (k - (len(info.curves) - 1) / 2) * step if info.places else 0.0
    return {
        "x": [value + aside for value in curve.x],
        "y": [None if math.isnan(point.value) else point.value for point in curve.points],
        "cliponaxis": False,
        "marker": {
            "size": 9 if len(info.places) <= 24 else 6,
            "symbol": _SYMBOLS[k // len(COLOURS) % 2],
            "color": shade,
        },
        "line": {"color": shade, "width": 2},
        "customdata": [point.run_ids for point in curve.points],
        "hoverinfo": "text",
        **interval_bars(curve.points, shade),
        **(interval_bars(curve.across, shade, "x") if curve.across else {}),
    }


def _settings_info(frame: pandas.DataFrame, x: str, y: str, color: str | None) -> SweepInfo:
    """Compute the data of `plot_sweep` if x is a result: one point per setting and colour."""
    settings = list(frame["setting"].unique())
    frame = frame[frame["setting"].isin(settings[:MAX_SETTINGS])]
    by = ["setting"] if color in (None, "setting") else ["setting", str(color)]
    across, up = points(frame, by, x), points(frame, by, y)
    known = {names: point for names, point in up.items() if not math.isnan(across[names].value)}
    made: dict[Any, list[tuple[Any, ...]]] = {}
    for names in known:
        made.setdefault(None if color is None else names[-1], []).append(names)
    curves = [
        Curve(
            name,
            [across[names].value for names in held],
            [up[names] for names in held],
            [format_value(names[0]) for names in held],
            [across[names] for names in held],
        )
        for name, held in made.items()
    ]
    left_out = max(len(settings) - MAX_SETTINGS, 0), max(len(curves) - MAX_CURVES, 0)
    return SweepInfo(curves[:MAX_CURVES], [], {}, [], left_out)


def _hover(curve: Curve, n: int, x: str, y: str, color: str | None, rate: bool, rate_x: bool) -> str:
    head = curve.labels[n] + ("" if color is None else f" · {format_value(color)} {format_value(curve.name)}")
    lines = hover_lines(curve.points[n], y, rate)
    if curve.across:
        lines.insert(1, f"{format_value(x)} {format_amount(curve.across[n].value, x, rate_x)}")
    return "<br>".join([f"<b>{head}</b>", *lines])


def _add_baseline(figure: go.Figure, name: str, point: Point, y: str, rate: bool, shade: str) -> None:
    """Draw a horizontal line with its interval, for a group without a value on the x axis."""
    if math.isnan(point.value):
        return
    figure.add_hline(y=point.value, line={"color": shade, "width": 1.8, "dash": "dash"})
    if not math.isnan(point.low):
        figure.add_hrect(y0=point.low, y1=point.high, fillcolor=shade, opacity=0.08, line_width=0)
    figure.add_scatter(
        x=[None],
        y=[point.value],
        mode="lines",
        line={"color": shade, "dash": "dash"},
        name=f"{name} {format_amount(point.value, y, rate)}",
        customdata=[point.run_ids],
        hoverinfo="skip",
    )


def _style_axes(figure: go.Figure, info: SweepInfo, frame: pandas.DataFrame, x: str, y: str) -> None:
    unit = budget_unit(frame, x)
    figure.update_xaxes(title={"text": BUDGET_TITLES[unit][1] if unit else axis_title(x), "standoff": 12})
    values = sorted({value for curve in info.curves for value in curve.x})
    if info.places:
        figure.update_xaxes(**named_axis(info.places), range=[-0.6, len(info.places) - 0.4], showgrid=False)
    elif x not in MEASURES and is_multiplied(values):
        ticks = _select_ticks(values)
        column = "cost" if unit == "cost" else x
        words = [format_amount(value, column, False) if unit else format_value(value) for value in ticks]
        figure.update_xaxes(type="log", tickvals=ticks, ticktext=[plain(word) for word in words])
    else:
        gaps = [b - a for a, b in pairwise(values)]
        if x not in MEASURES and 0 < len(values) <= 12 and (not gaps or min(gaps) > 0.06 * sum(gaps)):
            figure.update_xaxes(tickvals=values)
        if x in MEASURES:
            figure.update_xaxes(rangemode="tozero", tickformat=".0%" if is_rate(frame, x) else None)
    figure.update_yaxes(
        title=axis_title(y) if y in MEASURES or not is_rate(frame, y) else f"{format_value(y)} (% of runs)"
    )
    if is_rate(frame, y):
        figure.update_yaxes(range=[-0.03, 1.03], tickformat=".0%")
    elif y == "score":
        figure.update_yaxes(range=[-0.03, 1.03])
    else:
        figure.update_yaxes(rangemode="tozero")


def is_multiplied(values: Sequence[float]) -> bool:
    """Return whether ascending values suit a logarithmic axis.

    This is so if they span a factor of at least 8 and are spaced more evenly by ratio than by difference.
    """
    if len(values) < 3 or values[0] <= 0 or values[-1] < 8 * values[0]:
        return False
    added = max(b - a for a, b in pairwise(values)) / (values[-1] - values[0])
    multiplied = max(math.log(b / a) for a, b in pairwise(values)) / math.log(values[-1] / values[0])
    return multiplied < added


def _select_ticks(values: Sequence[float]) -> list[float]:
    """Select some of the ascending values, so that their ticks do not overlap on a logarithmic axis."""
    least = math.log(values[-1] / values[0]) / 10
    ticks = [values[0]]
    for value in values[1:]:
        if math.log(value / ticks[-1]) >= least:
            ticks.append(value)
    return ticks
