"""Success against cost: what is worth its price.

Rule: which settings are not dominated is the word of `tl.frontier`, of the means; the intervals show how
sure that is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from tot_lab.analysis.matched_cost import frontier
from tot_lab.figures.points import (
    MEASURED,
    Point,
    amount,
    axis_of,
    expect_figure,
    frame_of,
    is_rate,
    is_simulated,
    named,
    points,
    told,
    whisker,
)
from tot_lab.figures.theme import KINDS, ground, headed, template

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

MOST = 500
"""Settings that are drawn; of more, the first, and all that are not dominated."""

LABELLED = 16
"""Settings of which each has its name beside it; of more, only those that are not dominated."""

WIDE = 20
"""Times the least cost from which on the axis is logarithmic."""


class FrontierInfo(NamedTuple):
    """Over the settings of which cost and success are known, cheapest first: names, cost (mean of a run),
    success, and whether each is not dominated. unknown: settings left out for want of either."""

    names: list[str]
    cost: list[Point]
    success: list[Point]
    on_frontier: list[bool]
    unknown: list[str]


def frontier_info(df: Any, cost: str = "calls") -> FrontierInfo:
    """What `plot_frontier` draws."""
    import pandas as pd  # noqa: PLC0415

    frame = _with_tokens(df) if cost == "tokens" else frame_of(df, "setting", cost, "correct")
    expect_figure(frame, cost, "cost")
    rows = frontier(frame, unit=cost).to_dict("records")
    spent, solved = (points(frame, ["setting"], column) for column in (cost, "correct"))
    known = [row for row in rows if not pd.isna(row[cost]) and not pd.isna(row["rate"])]
    known.sort(key=lambda row: (row[cost], -row["rate"]))
    return FrontierInfo(
        [str(row["setting"]) for row in known],
        [spent[row["setting"],]._replace(value=float(row[cost])) for row in known],
        [solved[row["setting"],] for row in known],
        [bool(row["frontier"]) for row in known],
        [str(row["setting"]) for row in rows if row not in known],
    )


def plot_frontier(df: Any, cost: str = "calls", *, dark: bool = False) -> go.Figure:
    """Success rate against cost, a point for each setting with the 95% intervals of both; a line joins
    the settings that no other dominates. Success at equal cost is another
    question: see `tl.anytime`.

    df: a sweep, or any table with a row per run and the columns `setting` and `correct`. Settings of
        which cost or success is not known are named, not drawn; of more than 500, the first and the
        frontier are drawn, and it is said.
    cost: `calls`, `tokens` (in and out), `cost`, `paid`, `seconds` or another column of numbers. The axis
        is logarithmic when the costs lie more than a factor of 20 apart.
    dark: for a dark page.

    The points of a trace lead to their runs: `sweep.run(figure.data[k].customdata[n][0])`.
    """
    import plotly.graph_objects as go  # noqa: PLC0415

    info = frontier_info(df, cost)
    frame = _with_tokens(df) if cost == "tokens" else frame_of(df)
    shades = ground(dark)
    figure = go.Figure()
    front = [k for k, on in enumerate(info.on_frontier) if on]
    rest = [k for k, on in enumerate(info.on_frontier) if not on]
    hidden = max(len(info.names) - MOST, 0)
    rest = rest[: max(MOST - len(front), 0)]
    looks = (("dominated", rest, shades.faint, "circle-open"), ("not dominated", front, KINDS[0], "circle"))
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
    for words, held, shade, symbol in looks:
        if not held:
            continue
        labelled = len(info.names) <= LABELLED or (words == "not dominated" and len(front) <= LABELLED)
        figure.add_scatter(
            x=[info.cost[k].value for k in held],
            y=[info.success[k].value for k in held],
            mode="markers+text" if labelled else "markers",
            text=[named(info.names[k]) for k in held],
            # Above and left of the frontier there is nothing, below and right of a point that is not on it
            # there is at least no frontier.
            textposition="top left" if words == "not dominated" else "bottom right",
            textfont={"size": 11, "color": shades.ink if words == "not dominated" else shades.faint},
            cliponaxis=False,
            marker={"size": 10, "color": shade, "symbol": symbol},
            name=words,
            customdata=[info.success[k].run_ids for k in held],
            hoverinfo="text",
            hovertext=[_hover(info, k, cost, is_rate(frame, cost)) for k in held],
            **whisker([info.success[k] for k in held], shade),
            **whisker([info.cost[k] for k in held], shade, "x"),
        )
    unknown = ", ".join(info.unknown[:5]) + (" …" if len(info.unknown) > 5 else "")
    lines = [
        f"{len(frame):,} runs  ·  {len(front):,} of {len(info.names):,} settings are not dominated",
        "mean and 95% interval of both",
        f"not known, left out: {unknown}" if info.unknown else "",
        f"{hidden:,} more settings are dominated and not drawn" if hidden else "",
    ]
    title, top = headed(["Success against cost"], lines, is_simulated(frame), dark)
    figure.update_layout(
        template=template(dark),
        title=title,
        height=top + 420,
        margin={"t": top + 4, "l": 10, "r": 90, "b": 56},
        legend={"orientation": "h", "x": 0.5, "xanchor": "center", "y": -0.16, "yanchor": "top"},
        hovermode="closest",
    )
    least = min((point.value for point in info.cost), default=0.0)
    wide = least > 0 and max(point.value for point in info.cost) > WIDE * least
    figure.update_xaxes(title=axis_of(cost) if cost in MEASURED else f"{named(cost)} (a run)")
    figure.update_xaxes(**({"type": "log", "dtick": 1} if wide else {"rangemode": "tozero"}))
    figure.update_yaxes(title=axis_of("correct"), range=[-0.03, 1.03], tickformat=".0%")
    return figure


def _with_tokens(df: Any) -> pandas.DataFrame:
    frame = frame_of(df, "setting", "input_tokens", "output_tokens", "correct")
    return frame.assign(tokens=frame["input_tokens"] + frame["output_tokens"])


def _hover(info: FrontierInfo, k: int, cost: str, rate: bool) -> str:
    point = info.cost[k]
    said = f"{named(cost)} {amount(point.value, cost, rate)} a run"
    if not math.isnan(point.low):
        said += f", 95% interval {amount(point.low, cost, rate)} to {amount(point.high, cost, rate)}"
    return "<br>".join([f"<b>{named(info.names[k])}</b>", said, *told(info.success[k], "correct", True)])
