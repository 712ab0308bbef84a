"""Figure of success rate against cost, with the Pareto frontier of the settings.

`tl.stats.pareto_frontier` computes the frontier from the means. The intervals show the uncertainty of the
means.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from tot_lab.analysis.matched_cost import pareto_frontier
from tot_lab.analysis.tables import table
from tot_lab.record.losses import without_losses
from tot_lab.views.figures.points import (
    MEASURES,
    RINGS,
    Point,
    axis_title,
    column_title,
    expect_numeric,
    first_names,
    format_mean,
    format_run_count,
    format_value,
    held_constant,
    hover_lines,
    interval_bars,
    is_rate,
    marker,
    points,
    rings,
    style_table_figure,
    tick_labels,
    together,
)
from tot_lab.views.figures.scaling import MAX_METHODS, SYMBOLS
from tot_lab.views.figures.theme import COLOURS, KINDS, legend_at, palette, plain

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

MAX_SETTINGS = 500
"""Maximum number of settings that are drawn. A larger frontier is drawn completely."""

LABEL_LENGTH = 40
"""Maximum number of characters of a name in the legend, so that it fits a figure 3.5 inches wide."""

LOG_FACTOR = 20
"""Ratio of the highest to the lowest cost above which the axis is logarithmic."""


class FrontierInfo(NamedTuple):
    """Data of `plot_pareto`, with one entry per setting in ascending order of cost.

    Attributes:
        names: Labels of the settings.
        cost: Mean cost of a run.
        success: Success rate.
        on_frontier: Whether no other setting dominates the setting.
        unknown: Settings that are left out because their cost or success rate is unknown.
    """

    names: list[str]
    cost: list[Point]
    success: list[Point]
    on_frontier: list[bool]
    unknown: list[str]


def frontier_info(df: Any, cost: str = "calls") -> FrontierInfo:
    """Compute the data of `plot_pareto`."""
    import pandas as pd  # noqa: PLC0415

    frame = _add_tokens(df) if cost == "tokens" else table(df, ["setting", cost, "correct"])
    expect_numeric(frame, cost, "cost")
    rows = pareto_frontier(without_losses(frame), unit=cost).to_dict("records")
    spent, solved = (points(frame, ["setting"], column) for column in (cost, "correct"))
    unknown = [str(row["setting"]) for row in rows if pd.isna(row[cost]) or pd.isna(row["rate"])]
    known = [row for row in rows if not pd.isna(row[cost]) and not pd.isna(row["rate"])]
    known.sort(key=lambda row: (row[cost], -row["rate"]))
    return FrontierInfo(
        [str(row["setting"]) for row in known],
        [spent[row["setting"],] for row in known],
        [solved[row["setting"],] for row in known],
        [bool(row["frontier"]) for row in known],
        unknown,
    )


def _draw_frontier(figure: go.Figure, info: FrontierInfo, front: list[int]) -> None:
    """Add the line through the settings of the frontier."""
    figure.add_scatter(
        x=[info.cost[k].value for k in front],
        y=[info.success[k].value for k in front],
        mode="lines",
        line={"color": KINDS[0], "width": 1.8},
        hoverinfo="skip",
        showlegend=False,
    )


def plot_pareto(df: Any, cost: str = "calls", *, dark: bool | None = None) -> go.Figure:
    """Plot success rate against cost, with one point per setting and 95% intervals of both.

    A line joins the settings of the Pareto frontier, which no other setting dominates. Their markers are
    filled, those of the other settings open. The legend names up to 21 settings, those of the frontier first.
    Settings at the same place of the plot are drawn as rings around each other. All settings have hover
    texts. To compare success at equal cost, see `tl.stats.anytime_performance`.

    Args:
        df: A sweep, or any table with one row per run and the columns `setting`, `task`, `correct` and
            `cost`. Settings with unknown cost or success are not drawn, and the heading lists them. With more
            than 500 settings, only the frontier and the cheapest other settings are drawn.
        cost: `calls`, `tokens` (in and out), `cost`, `paid`, `seconds` or another numeric column. The axis is
            logarithmic if the costs differ by more than a factor of 20.
        dark: Use the colours for a dark page. `None` follows `plotly.io.templates.default`.

    Returns:
        A figure whose points contain run ids: `sweep.run(figure.data[k].customdata[n][0])` is a run of point
        `n` of trace `k`.
    """
    import plotly.graph_objects as go  # noqa: PLC0415

    info = frontier_info(df, cost)
    frame = _add_tokens(df) if cost == "tokens" else table(df)
    rate = is_rate(frame, cost)
    figure = go.Figure()
    front = [k for k, on in enumerate(info.on_frontier) if on]
    rest = [k for k, on in enumerate(info.on_frontier) if not on]
    drawn = [*front, *rest[: max(MAX_SETTINGS - len(front), 0)]]
    named, others = drawn[:MAX_METHODS], drawn[MAX_METHODS:]
    hidden = len(info.names) - len(drawn)
    wide, span = _axis_range(info)
    if len(front) > 1:
        _draw_frontier(figure, info, front)
    traces: list[tuple[str, list[int], str, str]] = []
    for n, (k, name) in enumerate(
        zip(named, tick_labels([info.names[k] for k in named], LABEL_LENGTH), strict=True)
    ):
        symbol = SYMBOLS[n // len(COLOURS)] + ("" if info.on_frontier[k] else "-open")
        traces.append((name, [k], COLOURS[n % len(COLOURS)], symbol))
    if others:
        traces.append(("other settings", others, palette(dark).faint, "circle-open"))
    same_place = together([_place(info, k, wide, span) for k in drawn])
    larger = dict(zip(drawn, rings(same_place), strict=True))
    also = {k: [info.names[drawn[n]] for n in found] for k, found in zip(drawn, same_place, strict=True)}
    for name, indices, shade, symbol in traces:
        look = {"name": name, "marker": marker(10, [larger[k] for k in indices], shade, symbol, 2)}
        hover = [_hover(info, k, cost, rate, also[k]) for k in indices]
        ring = max(larger[k] for k in indices)
        figure.add_scatter(**look, **_points(info, indices, shade, ring), hovertext=hover)
    lines = [
        f"{format_run_count(frame)}  ·  {len(front):,} of {len(info.names):,} settings are not dominated",
        "mean and 95% interval of both; filled: not dominated",
        RINGS if any(same_place) else "",
        f"unknown, not shown: {first_names(info.unknown)}" if info.unknown else "",
        f"{len(others):,} settings have no name in the legend" if others else "",
        f"{hidden:,} dominated settings not shown" if hidden else "",
        held_constant(frame, [cost]),
    ]
    height = 360 + 20 * len(named)  # in a narrow figure each name takes a line of the legend
    legend = {**legend_at(8 / height), "yref": "container", "yanchor": "bottom"}
    layout = {"height": height, "margin": {"r": 24}, "hovermode": "closest"}
    layout |= {"legend": legend, "showlegend": True}
    title = f"Pareto frontier: success rate against {column_title(cost)}"
    style_table_figure(figure, frame, title, lines, dark, **layout)
    figure.update_xaxes(
        title={"text": axis_title(cost) if cost in MEASURES else f"{format_value(cost)} (per run)"},
        title_standoff=12,
        range=span,
    )
    figure.update_xaxes(**({"type": "log", "dtick": 1} if wide else {}))
    figure.update_yaxes(title=axis_title("correct"), range=(-0.03, 1.03), tickformat=".0%", dtick=0.2)
    return figure


def _place(info: FrontierInfo, k: int, wide: bool, span: tuple[float, float]) -> tuple[float, float]:
    """Return the position of a setting, as fractions of the width and height of the plot. `wide` and `span`
    are those of `_axis_range`."""
    cost = info.cost[k].value
    return (math.log10(cost) if wide else cost) / (span[1] - span[0]), info.success[k].value


def _points(info: FrontierInfo, indices: list[int], shade: str, ring: float) -> dict[str, Any]:
    """Return the positions, intervals and run ids of the given settings."""
    return {
        "x": [info.cost[k].value for k in indices],
        "y": [info.success[k].value for k in indices],
        "mode": "markers",
        "cliponaxis": False,
        "customdata": [info.success[k].run_ids for k in indices],
        "hoverinfo": "text",
        **interval_bars([info.success[k] for k in indices], shade, ring=ring),
        **interval_bars([info.cost[k] for k in indices], shade, "x", ring),
    }


def _axis_range(info: FrontierInfo) -> tuple[bool, tuple[float, float]]:
    """Return whether the cost axis is logarithmic, and its range in the units of the axis."""
    values = [point.value for point in info.cost] or [0.0]
    lows, highs = (
        [end for end in ends if not math.isnan(end)]
        for ends in (
            values + [point.low for point in info.cost],
            values + [point.high for point in info.cost],
        )
    )
    wide = min(values) > 0 and max(values) > LOG_FACTOR * min(values)
    if wide:
        low, high = (math.log10(end) for end in (min(end for end in lows if end > 0), max(highs)))
        return True, (low - 0.04 * (high - low), high + 0.04 * (high - low))
    low, high = min(0.0, *lows), max(highs)
    return False, (low, high + 0.04 * (high - low) if high > low else low + 1)


def _add_tokens(df: Any) -> pandas.DataFrame:
    frame = table(df, ["setting", "input_tokens", "output_tokens", "correct"])
    return frame.assign(tokens=frame["input_tokens"] + frame["output_tokens"])


def _hover(info: FrontierInfo, k: int, cost: str, rate: bool, same_place: list[str]) -> str:
    lines = [
        f"<b>{format_value(info.names[k])}</b>",
        f"{format_value(cost)} per run {format_mean(info.cost[k], cost, rate)}",
        *hover_lines(info.success[k], "correct", True),
        *([f"also here: {plain(first_names(same_place))}"] if same_place else []),
    ]
    return "<br>".join(lines)
