"""Figure of any result of a sweep against any setting, with 95% intervals.

Up to eight curves share a plot, each with its name beside its last point. More curves get a small plot each.
Names are written outside the plots, so that they never overlap intervals. Strategies without the setting on
the x axis (a baseline has no beam width) are drawn as lines through the plot, so that each curve can be
compared with the baselines. If the x axis is a result (calls, cost), each setting is one point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from tot_lab.analysis.tables import table
from tot_lab.views.figures.points import (
    BUDGET_TITLES,
    MEASURES,
    Point,
    axes_of,
    axis_title,
    budget_unit,
    expect_numeric,
    figure_title,
    format_amount,
    format_heading,
    format_run_count,
    format_value,
    held_constant,
    hover_lines,
    interval_bars,
    is_numeric,
    is_rate,
    named_axis,
    ordered,
    points,
    style_table_figure,
    text_of,
    tick_labels,
    varies,
)
from tot_lab.views.figures.theme import COLOURS, TEXT, legend_at, palette, plain

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

MAX_TOGETHER = 8
"""Maximum number of curves in one plot, and of names below a horizontal axis."""

PANELS = 4
"""Number of small plots in a row."""

MAX_CURVES = 24
"""Maximum number of curves. Further curves are left out."""

MAX_VALUES = 60
"""Maximum number of values on the x axis. Further values are left out."""

MAX_SETTINGS = 500
"""Maximum number of settings if the x axis is a result. Further settings are left out."""

_ABOVE = 54
"""Vertical distance between two rows of small plots, in pixels."""

_LINE = 18
"""Vertical distance between two names beside the plot, in pixels."""

_LONGEST = 34
"""Maximum number of characters of a name beside the plot."""

_SYMBOLS = ("circle", "diamond")  # the eighth curve reuses the first colour with another marker


class Curve(NamedTuple):
    """The points with the same value in the colour column.

    Attributes:
        name: Value in the colour column. `None` if the value is missing, or if there is no colour column.
        x: Positions on the x axis: values if the axis is numeric, else indices into `SweepInfo.places`.
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
        places: Names on the x axis. Empty if the axis is numeric.
        baselines: Means of the groups that have no value in the column x, by name.
        pooled: Columns of settings that vary between the runs of a point, which is a mean over them.
        left_out: Number of x values (or settings, if x is a result) that are not drawn, and number of curves
            and baselines that are not drawn.
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
    inside = [name for name in axes_of(known) or ["setting"] if name in known and varies(known, by, name)]
    return SweepInfo(
        curves[:MAX_CURVES],
        [] if numeric else shown,
        dict(list(baselines.items())[:MAX_CURVES]),
        inside,
        (len(values) - len(shown), max(len(curves) - MAX_CURVES, 0) + max(len(baselines) - MAX_CURVES, 0)),
    )


def _notes(info: SweepInfo, x: str, color: str | None) -> str:
    """Return the line of the heading on curves, averaged settings and the number of hidden values."""
    points, curves = info.left_out
    by = "" if color is None else text_of(color)
    notes = [
        f"one plot per {by}, with the others in grey" if len(info.curves) > MAX_TOGETHER else "",
        f"one line per {by}" if by and _named_at_end(info, x) else "",
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
        df: A sweep, or any table with one row per run. At most 60 values of `x` and 24 values of `color` are
            drawn, or 500 settings if `x` is a result. The heading states what is left out, and which
            settings have one value in all runs.
        x: A column whose values group the runs, such as `search.width`, `setting` or `task`. Groups without a
            value are drawn as horizontal lines. If `x` is a result (`calls`, `cost`), each setting is one
            point. Use `at` for a table of `tl.stats.anytime_performance`. The axis is logarithmic if the
            values are spaced evenly by ratio, such as 1, 2, 4, 8. With more than eight names, the axes are
            swapped, and the names are on the vertical axis.
        y: The result: `correct`, `score`, `calls`, `cost`, `seconds` or any other column of numbers or
            booleans.
        color: A column whose values become one curve each. More than eight get a plot each.
        dark: Use the colours for a dark page. `None` follows `plotly.io.templates.default`.

    Returns:
        A figure whose points contain the ids of up to 100 runs:

            ids = figure.data[0].customdata[2]  # third point of the first curve
            sweep.run(ids[0])

    Raises:
        ValueError: If the table lacks a column, or the values of `y` are neither numbers nor booleans.
    """
    frame = table(df)
    info = sweep_info(frame, x, y, color)
    panels = len(info.curves) > MAX_TOGETHER
    figure = _empty_figure(info, len(info.places) > MAX_TOGETHER)
    _draw_curves(figure, info, frame, x, y, color, dark)
    height = _height(info)
    style_table_figure(
        figure,
        frame,
        figure_title(frame, y, x),
        [
            f"{format_run_count(frame)}  ·  mean and 95% interval",
            _notes(info, x, color),
            held_constant(frame, [x, y, color]),
        ],
        dark,
        height=height,
        margin={"r": 24, "b": 24, "t": 4} if not panels else {"l": 76, "r": 24, "b": _below(info), "t": 36},
        legend=legend_at(-_below(info) / height)
        if panels
        else {"title": {"text": "" if color is None else axis_title(color, frame)}},
        hovermode="closest",
    )
    span = _result_span(info, frame, y)
    _style_axes(figure, info, frame, x, y, span)
    if _named_at_end(info, x):
        _name_ends(figure, info, span, height, y, is_rate(frame, y), color)
    return figure


def _draw_curves(
    figure: go.Figure,
    info: SweepInfo,
    frame: pandas.DataFrame,
    x: str,
    y: str,
    color: str | None,
    dark: bool | None,
) -> None:
    """Draw every curve, each in its own plot if there are many, and the baselines."""
    rate, rate_x = is_rate(frame, y), is_rate(frame, x)
    panels, sideways = len(info.curves) > MAX_TOGETHER, len(info.places) > MAX_TOGETHER
    for k, curve in enumerate(info.curves):
        own = {
            "mode": "markers" if info.places or x in MEASURES else "lines+markers",
            "name": "" if color is None else format_value(curve.name),
            "showlegend": color is not None and not panels and not _named_at_end(info, x),
            "hovertext": [_hover(curve, n, x, y, color, rate, rate_x) for n in range(len(curve.x))],
            **_curve_style(info, k),
        }
        where = {"row": k // PANELS + 1, "col": k % PANELS + 1} if panels else {}
        if panels:
            figure.add_scatter(**_turned(_others(info, k, own["mode"], dark), sideways), **where)
        figure.add_scatter(**_turned(own, sideways), **where)
    for k, (name, point) in enumerate(info.baselines.items(), 1 if panels else len(info.curves)):
        _add_baseline(figure, name, point, y, rate, COLOURS[k % len(COLOURS)], sideways)


def _named_at_end(info: SweepInfo, x: str) -> bool:
    """Whether the curves are lines in one plot, so that their names are beside it instead of in a legend."""
    return not info.places and x not in MEASURES and len(info.curves) <= MAX_TOGETHER


def _height(info: SweepInfo) -> int:
    """Return the height of the plots in pixels."""
    rows = max(24, 9 * len(info.curves)) * len(info.places) if len(info.places) > MAX_TOGETHER else 0
    if len(info.curves) > MAX_TOGETHER:
        rows = 18 * len(info.places) if rows else 110
        return 80 + (rows + _ABOVE) * math.ceil(len(info.curves) / PANELS)
    return max(420, 90 + rows, 90 + _LINE * (len(info.curves) + len(info.baselines)))


def _below(info: SweepInfo) -> int:
    """Return the height in pixels of the labels below small plots. Names are rotated and need more."""
    return 114 if 0 < len(info.places) <= MAX_TOGETHER else 64


def _empty_figure(info: SweepInfo, sideways: bool) -> go.Figure:
    """Return a figure with one plot, or with one per curve."""
    import plotly.graph_objects as go  # noqa: PLC0415
    from plotly.subplots import make_subplots  # noqa: PLC0415

    count = len(info.curves)
    if count <= MAX_TOGETHER:
        return go.Figure()
    rows = math.ceil(count / PANELS)
    figure = make_subplots(
        rows=rows,
        cols=PANELS,
        shared_xaxes="all",
        shared_yaxes="all",
        subplot_titles=[format_heading(curve.name) for curve in info.curves],
        vertical_spacing=_ABOVE / _height(info),
        horizontal_spacing=0.02,
    )
    figure.update_annotations(font_size=TEXT["small"])
    for k in range(PANELS * rows):
        where = {"row": k // PANELS + 1, "col": k % PANELS + 1}
        lowest = k < count <= k + PANELS
        figure.update_xaxes(visible=k < count, showticklabels=lowest, **where)
        figure.update_yaxes(visible=k < count, showticklabels=k % PANELS == 0, **where)
    return figure


def _turned(trace: dict[str, Any], sideways: bool) -> dict[str, Any]:
    """Swap the axes of a trace if `sideways`: the column x is on the vertical axis."""
    swap = {"x": "y", "y": "x", "error_x": "error_y", "error_y": "error_x"} if sideways else {}
    return {swap.get(name, name): value for name, value in trace.items()}


def _curve_style(info: SweepInfo, k: int) -> dict[str, Any]:
    """Return the Plotly properties of the k-th curve. On an axis of names, the points of different curves are
    drawn side by side.
    """
    curve, together = info.curves[k], len(info.curves) <= MAX_TOGETHER
    shade = COLOURS[k % len(COLOURS) if together else 0]
    step = 0.7 / len(info.curves)
    aside = (k - (len(info.curves) - 1) / 2) * step if info.places and together else 0.0
    return {
        "x": [value + aside for value in curve.x],
        "y": [None if math.isnan(point.value) else point.value for point in curve.points],
        "cliponaxis": False,
        "marker": {
            "size": 9 if together and len(info.places) <= 24 else 6,
            "symbol": _SYMBOLS[k // len(COLOURS) % 2 if together else 0],
            "color": shade,
        },
        "line": {"color": shade, "width": 2},
        "customdata": [point.run_ids for point in curve.points],
        "hoverinfo": "text",
        **interval_bars(curve.points, shade),
        **(interval_bars(curve.across, shade, "x") if curve.across else {}),
    }


def _others(info: SweepInfo, k: int, mode: str, dark: bool | None) -> dict[str, Any]:
    """Return the Plotly properties of all curves but the k-th, as the background of its plot."""
    x: list[float | None] = []
    y: list[float | None] = []
    for other in info.curves[:k] + info.curves[k + 1 :]:
        x += [*other.x, None]
        y += [*(None if math.isnan(point.value) else point.value for point in other.points), None]
    shade = palette(dark).edge
    look = {"line": {"color": shade, "width": 0.7}, "marker": {"color": shade, "size": 3}}
    return {"x": x, "y": y, "mode": mode.partition("+")[0], "showlegend": False, "hoverinfo": "skip", **look}


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


def _add_baseline(
    figure: go.Figure, name: str, point: Point, y: str, rate: bool, shade: str, sideways: bool
) -> None:
    """Draw a line through all plots with its interval, for a group without a value on the x axis."""
    if math.isnan(point.value):
        return
    draw_line, draw_band = (
        (figure.add_vline, figure.add_vrect) if sideways else (figure.add_hline, figure.add_hrect)
    )
    end = "x" if sideways else "y"
    draw_line(**{end: point.value}, line={"color": shade, "width": 1.8, "dash": "dash"})
    if not math.isnan(point.low):
        ends = {f"{end}0": point.low, f"{end}1": point.high}
        draw_band(**ends, fillcolor=shade, opacity=0.08, line_width=0)
    figure.add_scatter(
        x=[None],
        y=[point.value],
        mode="lines",
        line={"color": shade, "dash": "dash"},
        name=f"{name} {format_amount(point.value, y, rate)}",
        customdata=[point.run_ids],
        hoverinfo="skip",
    )


def _result_span(info: SweepInfo, frame: pandas.DataFrame, y: str) -> tuple[float, float]:
    """Return the range of the axis that shows the result y. The range includes all intervals."""
    if is_rate(frame, y) or y == "score":
        return -0.03, 1.03
    drawn = [point for curve in info.curves for point in curve.points] + list(info.baselines.values())
    ends = [end for point in drawn for end in point[:3] if not math.isnan(end)]
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    room = 0.05 * (max(high, 0.0) - min(low, 0.0) or 1.0)
    return (low - room if low < 0 else 0.0), (high + room if high > 0 else 0.0)


def _style_axes(
    figure: go.Figure, info: SweepInfo, frame: pandas.DataFrame, x: str, y: str, span: tuple[float, float]
) -> None:
    """Set the ranges, the ticks and the titles of the axes. Small plots have one title per axis."""
    panels, sideways = len(info.curves) > MAX_TOGETHER, len(info.places) > MAX_TOGETHER
    across, along = (
        (figure.update_yaxes, figure.update_xaxes) if sideways else (figure.update_xaxes, figure.update_yaxes)
    )
    unit = budget_unit(frame, x)
    title = BUDGET_TITLES[unit][1] if unit else axis_title(x, frame)
    result = (
        axis_title(y, frame) if y in MEASURES or not is_rate(frame, y) else f"{format_value(y)} (% of runs)"
    )
    along(range=span, tickformat=".0%" if is_rate(frame, y) else None)
    _style_settings_axis(across, info, frame, x, unit)
    below, beside = (result, title) if sideways else (title, result)
    if panels:
        middle = {"showarrow": False, "xref": "paper", "yref": "paper", "font": {"size": TEXT["note"]}}
        figure.add_annotation(x=0.5, y=0, yshift=20 - _below(info), yanchor="middle", text=below, **middle)
        if not sideways:  # names of settings on the vertical axis need no title
            at = {"x": 0, "xshift": -58, "xanchor": "center", "y": 0.5, "textangle": -90}
            figure.add_annotation(**at, text=beside, **middle)
        return
    figure.update_xaxes(title={"text": below, "standoff": 12})
    figure.update_yaxes(title={"text": beside, "standoff": 12})


def _style_settings_axis(
    across: Callable[..., Any], info: SweepInfo, frame: pandas.DataFrame, x: str, unit: str | None
) -> None:
    """Set the range and the ticks of the axis that shows the column x."""
    values = sorted({value for curve in info.curves for value in curve.x})
    if len(info.places) > MAX_TOGETHER:
        names, last = tick_labels(info.places, 48), len(info.places) - 1
        across(tickvals=list(range(last + 1)), ticktext=names, range=[last + 0.6, -0.6], showgrid=False)
    elif info.places:
        names_below = named_axis(info.places)
        if len(info.curves) > MAX_TOGETHER:
            names_below |= {"ticktext": tick_labels(info.places, 16), "tickangle": -40}
        across(**names_below, range=[-0.6, len(info.places) - 0.4], showgrid=False)
    elif x in MEASURES:
        across(rangemode="tozero", tickformat=".0%" if is_rate(frame, x) else None)
    elif is_multiplied(values):
        ends = math.log10(values[0]), math.log10(values[-1])
        ticks = _select_ticks(values, 10 if len(info.curves) <= MAX_TOGETHER else 4)
        column = "cost" if unit == "cost" else x
        words = [format_amount(value, column, False) if unit else format_value(value) for value in ticks]
        across(type="log", tickvals=ticks, ticktext=[plain(word) for word in words], range=_widened(*ends))
    elif values:
        gaps = [b - a for a, b in pairwise(values)]
        few = 12 if len(info.curves) <= MAX_TOGETHER else 5
        if 0 < len(values) <= few and (not gaps or min(gaps) > 0.06 * sum(gaps)):
            across(tickvals=values)
        across(range=_widened(values[0], values[-1]))


def _widened(low: float, high: float) -> tuple[float, float]:
    """Return the range of an axis from `low` to `high`, with a small margin at both ends."""
    return (low - 0.04 * (high - low), high + 0.02 * (high - low)) if high > low else (low - 1, low + 1)


def _name_ends(
    figure: go.Figure,
    info: SweepInfo,
    span: tuple[float, float],
    height: int,
    y: str,
    rate: bool,
    color: str | None,
) -> None:
    """Write the names of curves and baselines beside the plot, at the height of their last points.

    A short line in the style of the curve joins a name to the edge of the plot.
    """
    ends: list[tuple[float, str, dict[str, Any]]] = []
    names = tick_labels([curve.name for curve in info.curves], _LONGEST)
    for k, (curve, name) in enumerate(zip(info.curves, names, strict=True)):
        known = [point.value for point in curve.points if not math.isnan(point.value)]
        if known and color is not None:
            ends.append((known[-1], name, {"color": COLOURS[k % len(COLOURS)], "width": 2}))
    names = tick_labels(list(info.baselines), _LONGEST)
    for k, (point, name) in enumerate(zip(info.baselines.values(), names, strict=True), len(info.curves)):
        if not math.isnan(point.value):
            line = {"color": COLOURS[k % len(COLOURS)], "width": 2, "dash": "dot"}
            ends.append((point.value, f"{name} {format_amount(point.value, y, rate)}", line))
    shares = [(value - span[0]) / (span[1] - span[0]) for value, *_ in ends]
    places = spread(shares, _LINE / (height - 80))
    paper = {"xref": "paper", "yref": "paper"}
    for (_, name, line), share, place in zip(ends, shares, places, strict=True):
        figure.add_shape(type="line", x0=1, x1=1.03, y0=share, y1=place, line=line, **paper)
        figure.add_annotation(
            x=1.035, y=place, xanchor="left", yanchor="middle", showarrow=False, text=name, **paper
        )
    figure.update_layout(showlegend=False)
    if ends:
        figure.update_layout(margin_r=44 + round(7 * max(len(name) for _, name, _ in ends)))


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Move numbers between 0 and 1 as little as possible, so that any two differ by at least `gap`."""
    from scipy.optimize import isotonic_regression  # noqa: PLC0415

    if not places:
        return []
    order = sorted(range(len(places)), key=places.__getitem__)
    free = isotonic_regression([places[k] - gap * rank for rank, k in enumerate(order)]).x
    top = max(1.0 - gap * (len(places) - 1), 0.0)
    moved = {k: min(max(float(free[rank]), 0.0), top) + gap * rank for rank, k in enumerate(order)}
    return [moved[k] for k in range(len(places))]


def is_multiplied(values: Sequence[float]) -> bool:
    """Return whether ascending values suit a logarithmic axis.

    This is so if they span a factor of at least 8 and are spaced more evenly by ratio than by difference.
    """
    if len(values) < 3 or values[0] <= 0 or values[-1] < 8 * values[0]:
        return False
    added = max(b - a for a, b in pairwise(values)) / (values[-1] - values[0])
    multiplied = max(math.log(b / a) for a, b in pairwise(values)) / math.log(values[-1] / values[0])
    return multiplied < added


def _select_ticks(values: Sequence[float], most: int) -> list[float]:
    """Select about `most` ascending values, so that their ticks do not overlap on a logarithmic axis."""
    least = math.log(values[-1] / values[0]) / most
    ticks = [values[0]]
    for value in values[1:]:
        if math.log(value / ticks[-1]) >= least:
            ticks.append(value)
    return ticks
