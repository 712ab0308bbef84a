"""Success against cost: what is worth its price.

Which settings are not dominated is the word of `tl.stats.pareto_frontier`, of the means; the intervals
show how sure that is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from tot_lab.analysis.matched_cost import pareto_frontier
from tot_lab.analysis.tables import table
from tot_lab.record.losses import without_losses
from tot_lab.views.figures.points import (
    MEASURES,
    Point,
    axis_title,
    expect_numeric,
    first_names,
    format_amount,
    format_run_count,
    format_value,
    hover_lines,
    interval_bars,
    is_rate,
    points,
    style_table_figure,
    tick_labels,
)
from tot_lab.views.figures.theme import KINDS, legend_at, palette

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

MAX_SETTINGS = 500
"""Settings that are drawn; of more, the first, and all that are not dominated."""

MAX_LABELS = 16
"""Settings that are not dominated and bear their names; of more, none does."""

LABEL_LENGTH = 40
"""Characters of a name beside its point."""

_WIDTH, _HEIGHT, _LETTER, _LINE = 700, 360, 5.8, 14
"""Of the picture, a letter and a line, in pixels: narrower than on a page, to be safe."""

LOG_FACTOR = 20
"""Times the least cost from which on the axis is logarithmic."""


_RANGE = (-0.08, 1.08)
"""Of the success rate: a name has room above 1 and below 0."""


class FrontierInfo(NamedTuple):
    """Over the settings of which cost and success are known, cheapest first: names, cost (mean of a run),
    success, and whether each is not dominated. unknown: settings left out for want of either."""

    names: list[str]
    cost: list[Point]
    success: list[Point]
    on_frontier: list[bool]
    unknown: list[str]


def frontier_info(df: Any, cost: str = "calls") -> FrontierInfo:
    """What `plot_pareto` draws."""
    import pandas as pd  # noqa: PLC0415

    frame = _with_tokens(df) if cost == "tokens" else table(df, ["setting", cost, "correct"])
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


def plot_pareto(df: Any, cost: str = "calls", *, dark: bool = False) -> go.Figure:
    """Success rate against cost, a point for each setting with the 95% intervals of both; a line joins
    the settings that no other dominates. These bear their names where there is room, the others tell them
    on hover. Success at equal cost is another question: see `tl.stats.anytime_performance`.

    df: a sweep, or any table with a row per run and the columns `setting`, `task`, `correct` and that of
        `cost`. Settings of which cost or success is not known are named, not drawn; of more than 500,
        the first and the frontier are drawn, and it is said.
    cost: `calls`, `tokens` (in and out), `cost`, `paid`, `seconds` or another column of numbers. The axis
        is logarithmic when the costs lie more than a factor of 20 apart.
    dark: for a dark page.

    The points of a trace lead to their runs: `sweep.run(figure.data[k].customdata[n][0])`.
    """
    import plotly.graph_objects as go  # noqa: PLC0415

    info = frontier_info(df, cost)
    frame = _with_tokens(df) if cost == "tokens" else table(df)
    rate = is_rate(frame, cost)
    figure = go.Figure()
    front = [k for k, on in enumerate(info.on_frontier) if on]
    rest = [k for k, on in enumerate(info.on_frontier) if not on]
    hidden = max(len(info.names) - MAX_SETTINGS, 0)
    rest = rest[: max(MAX_SETTINGS - len(front), 0)]
    wide, span = _span(info)
    shades = palette(dark)
    if len(front) > 1:
        figure.add_scatter(
            x=[info.cost[k].value for k in front],
            y=[info.success[k].value for k in front],
            mode="lines",
            line={"color": KINDS[0], "width": 1.8},
            opacity=0.6,
            hoverinfo="skip",
            showlegend=False,
        )
    for name, held, shade, symbol, texts in (
        ("dominated", rest, shades.faint, "circle-open", {}),
        ("not dominated", front, KINDS[0], "circle", _names(info, front, wide, span)),
    ):
        if held:
            look = {"name": name, "marker": {"size": 10, "color": shade, "symbol": symbol}}
            hover = [_hover(info, k, cost, rate) for k in held]
            font = {"size": 11, "color": shades.ink}
            figure.add_scatter(
                **look, **{**_points(info, held, shade), **texts}, textfont=font, hovertext=hover
            )
    lines = [
        f"{format_run_count(frame)}  ·  {len(front):,} of {len(info.names):,} settings are not dominated",
        "mean and 95% interval of both",
        f"not known, left out: {first_names(info.unknown)}" if info.unknown else "",
        f"{hidden:,} more settings are dominated and not drawn" if hidden else "",
    ]
    layout = {"height": 420, "margin": {"r": 24}, "legend": legend_at(-0.16), "hovermode": "closest"}
    style_table_figure(figure, frame, "Success against cost", lines, dark, **layout)
    figure.update_xaxes(
        title=axis_title(cost) if cost in MEASURES else f"{format_value(cost)} (a run)", range=span
    )
    figure.update_xaxes(**({"type": "log", "dtick": 1} if wide else {}))
    figure.update_yaxes(title=axis_title("correct"), range=_RANGE, tickformat=".0%", dtick=0.2)
    return figure


def _points(info: FrontierInfo, held: list[int], shade: str) -> dict[str, Any]:
    """Where some settings stand, with their intervals and their runs."""
    return {
        "x": [info.cost[k].value for k in held],
        "y": [info.success[k].value for k in held],
        "mode": "markers",
        "cliponaxis": False,
        "customdata": [info.success[k].run_ids for k in held],
        "hoverinfo": "text",
        **interval_bars([info.success[k] for k in held], shade),
        **interval_bars([info.cost[k] for k in held], shade, "x"),
    }


def _names(info: FrontierInfo, front: list[int], wide: bool, span: tuple[float, float]) -> dict[str, Any]:
    """The names beside the points of the frontier, where there is room for any."""
    labels = dict(zip(front, tick_labels([info.names[k] for k in front], LABEL_LENGTH), strict=True))
    sides = name_sides(info, labels, wide, span) if len(front) <= MAX_LABELS else {}
    if not sides:
        return {}
    return {
        "mode": "markers+text",
        "text": [labels[k] if k in sides else "" for k in front],
        "textposition": [sides.get(k, "top left") for k in front],
    }


def _span(info: FrontierInfo) -> tuple[bool, tuple[float, float]]:
    """Whether the axis of the cost is logarithmic, and from where to where it goes, in its own units."""
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


def name_sides(
    info: FrontierInfo, labels: dict[int, str], wide: bool, span: tuple[float, float]
) -> dict[int, str]:
    """Beside which corner of its point each name lies: left above, where the frontier leaves room, or
    another one where that would leave the picture or cover a name or a point of the frontier. A name
    without any room is not drawn; the best setting is named first."""
    spots = {}
    for k in labels:
        value = math.log10(info.cost[k].value) if wide else info.cost[k].value
        across, up = (value - span[0]) / (span[1] - span[0]), info.success[k].value - _RANGE[0]
        spots[k] = across * _WIDTH, up / (_RANGE[1] - _RANGE[0]) * _HEIGHT
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in spots.values()]
    sides: dict[int, str] = {}
    for k, (x, y) in sorted(spots.items(), key=lambda spot: -spot[1][1]):
        width = _LETTER * len(labels[k])
        for side in ("top left", "bottom right", "top right", "bottom left"):
            left = x - 6 - width if side.endswith("left") else x + 6
            bottom = y + 6 if side.startswith("top") else y - 6 - _LINE
            box = (left, bottom, left + width, bottom + _LINE)
            inside = box[0] >= 0 and box[1] >= 0 and box[2] <= _WIDTH and box[3] <= _HEIGHT
            if inside and not any(
                box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3]
                for other in taken
            ):
                sides[k] = side
                taken.append(box)
                break
    return sides


def _with_tokens(df: Any) -> pandas.DataFrame:
    frame = table(df, ["setting", "input_tokens", "output_tokens", "correct"])
    return frame.assign(tokens=frame["input_tokens"] + frame["output_tokens"])


def _hover(info: FrontierInfo, k: int, cost: str, rate: bool) -> str:
    point = info.cost[k]
    said = f"{format_value(cost)} {format_amount(point.value, cost, rate)} a run"
    if not math.isnan(point.low):
        said += f", 95% interval {format_amount(point.low, cost, rate)} to {format_amount(point.high, cost, rate)}"
    return "<br>".join(
        [f"<b>{format_value(info.names[k])}</b>", said, *hover_lines(info.success[k], "correct", True)]
    )
