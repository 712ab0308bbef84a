"""Any axis of a sweep against any figure that its runs came out with, intervals drawn.

A setting that is no field of some strategy (a baseline has no beam) is no value on the axis: it is
a line across it, so that every curve stands against its baselines. A figure on the x axis (calls, cost)
is no group: there each setting is one point.
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
"""Colours of a figure; of more, the first."""

MAX_VALUES = 60
"""Values on the x axis; of more, the first."""

MAX_SETTINGS = 500
"""Points of a figure against a figure; of more settings, the first."""

_SYMBOLS = ("circle", "diamond")  # after the seven colours, the same ones with another mark


class Curve(NamedTuple):
    """The points of one colour. name: its value, `None` for no value, or for the only curve. x: places: the
    values of a numeric axis, or numbers of `SweepInfo.places`. labels: what else a hover says of each.
    across: of a figure on the x axis, its point."""

    name: Any
    x: list[float]
    points: list[Point]
    labels: list[str]
    across: list[Point]


class SweepInfo(NamedTuple):
    """curves: by colour, in the order of the table, or of a numeric column. places: the values of an axis
    of names; [] when it is numeric. baselines: groups without a value on the x axis, by name.
    pooled: settings that differ inside points. left_out: places (or settings) and curves that are not
    drawn."""

    curves: list[Curve]
    places: list[Any]
    baselines: dict[str, Point]
    pooled: list[str]
    left_out: tuple[int, int]


def sweep_info(df: Any, x: str = "setting", y: str = "correct", color: str | None = None) -> SweepInfo:
    """What `plot_sweep` draws."""
    frame = table(df, [name for name in (x, y, color) if name is not None])
    expect_numeric(frame, y, "y")
    if x in MEASURES:
        expect_numeric(frame, x, "x")
        return _of_settings(table(frame, ["setting"]), x, y, color)
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


def plot_sweep(
    df: Any, x: str = "setting", y: str = "correct", *, color: str | None = None, dark: bool = False
) -> go.Figure:
    """Any column of a sweep against any figure of its runs: means with 95% intervals, Wilson's for a
    success rate (see `tl.stats.success_rates`), else a bootstrap over tasks.

    df: a sweep, or any table with a row per run. Of more than 60 values of x, 14 of color or, where x is
        a figure, 500 settings, the first are drawn, and it is said.
    x: a setting (`search.width`), `setting`, `task`, …, each value of which is a group of runs; or a figure
        (`calls`, `cost`), where each setting is a point. Settings without a value lie across as lines.
        Of `tl.stats.anytime_performance` it is `at`. Amounts that are multiplied, not added up, get a
        logarithmic axis.
    y: `correct`, `score`, `calls`, `cost`, `seconds`, or any other column of numbers, or true and false.
    color: a column of which each value is a curve. dark: for a dark page.

    A hover names runs. Each point holds the ids of its runs, up to 100, and leads to them in two lines:

        ids = figure.data[0].customdata[2]  # of the first curve's third point
        sweep.run(ids[0])

    A column that the table lacks is a ValueError.
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
            **_drawn(info, k),
        )
    for k, (name, point) in enumerate(info.baselines.items(), len(info.curves)):
        _across(figure, name, point, y, rate, COLOURS[k % len(COLOURS)])
    notes = [
        f"points pool {', '.join(info.pooled)}" if info.pooled else "",
        f"{info.left_out[0]:,} more {'settings' if x in MEASURES else f'values of {x}'} are not drawn"
        if info.left_out[0]
        else "",
        f"{info.left_out[1]:,} more curves are not drawn" if info.left_out[1] else "",
    ]
    counted = f"{format_run_count(frame)}  ·  mean and 95% interval"
    style_table_figure(
        figure,
        frame,
        figure_title(frame, y, x),
        [counted, "  ·  ".join(filter(None, notes))],
        dark,
        height=420,
        margin={"r": 24, "b": 24},
        legend={"title": {"text": "" if color is None else axis_title(color)}},
        hovermode="closest",
    )
    _axes(figure, info, frame, x, y)
    return figure


def _drawn(info: SweepInfo, k: int) -> dict[str, Any]:
    """What the k-th curve looks like; over names the curves stand beside each other."""
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


def _of_settings(frame: pandas.DataFrame, x: str, y: str, color: str | None) -> SweepInfo:
    """Where x is a figure: a point for each setting, and of each colour inside it."""
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


def _across(figure: go.Figure, name: str, point: Point, y: str, rate: bool, shade: str) -> None:
    """A line at the height of a group that has no place on the x axis, and its interval."""
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


def _axes(figure: go.Figure, info: SweepInfo, frame: pandas.DataFrame, x: str, y: str) -> None:
    unit = budget_unit(frame, x)
    figure.update_xaxes(title={"text": BUDGET_TITLES[unit][1] if unit else axis_title(x), "standoff": 12})
    values = sorted({value for curve in info.curves for value in curve.x})
    if info.places:
        figure.update_xaxes(**named_axis(info.places), range=[-0.6, len(info.places) - 0.4], showgrid=False)
    elif x not in MEASURES and is_multiplied(values):
        ticks = _spread(values)
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
    """Whether amounts, by size, lie evener by their ratios than by their differences, and far apart."""
    if len(values) < 3 or values[0] <= 0 or values[-1] < 8 * values[0]:
        return False
    added = max(b - a for a, b in pairwise(values)) / (values[-1] - values[0])
    multiplied = max(math.log(b / a) for a, b in pairwise(values)) / math.log(values[-1] / values[0])
    return multiplied < added


def _spread(values: Sequence[float]) -> list[float]:
    """Those of some amounts, by size, whose ticks have room on a logarithmic axis."""
    least = math.log(values[-1] / values[0]) / 10
    ticks = [values[0]]
    for value in values[1:]:
        if math.log(value / ticks[-1]) >= least:
            ticks.append(value)
    return ticks
