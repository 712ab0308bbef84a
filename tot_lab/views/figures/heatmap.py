"""Two settings against each other: a cell is the mean of what ran with both values.

Rule: a pair of values that was never run is a hole, not a low number, and a cell whose runs nobody could
grade is unknown: both are grey, which the scale of colours does not hold.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from tot_lab.analysis.tables import table
from tot_lab.views.figures.points import (
    CAPPED,
    MEASURED,
    Point,
    amount,
    axis_of,
    expect_figure,
    heading_of,
    is_rate,
    is_simulated,
    named,
    named_ticks,
    names_on_axis,
    note_losses,
    ordered,
    points,
    runs_in,
    told,
    unit_of,
)
from tot_lab.views.figures.theme import SCORES, ground, headed, template

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

PLACES = 60
"""Values of an axis; of more, the first."""

WRITTEN = 150
"""Cells that bear their number; of more, only the hover tells it."""


class HeatmapInfo(NamedTuple):
    """x, y: the values, numbers by size, others in the order of the table, no value (None) last. cells: by
    row (a value of y) and column, None where nothing was run. left_out: values of x and of y that are
    not drawn."""

    x: list[Any]
    y: list[Any]
    cells: list[list[Point | None]]
    left_out: tuple[int, int]


def heatmap_info(df: Any, x: str, y: str, z: str = "correct") -> HeatmapInfo:
    """What `plot_heatmap` draws."""
    frame = table(df, [x, y, z])
    expect_figure(frame, z, "z")
    if x == y:
        raise ValueError(f"x and y are both {x!r}")
    across, up = (_values(frame, column) for column in (x, y))
    shown = frame[_is_one_of(frame[x], across[:PLACES]) & _is_one_of(frame[y], up[:PLACES])]
    made = points(shown, [x, y], z)
    cells = [[made.get((column, row)) for column in across[:PLACES]] for row in up[:PLACES]]
    left_out = max(len(across) - PLACES, 0), max(len(up) - PLACES, 0)
    return HeatmapInfo(across[:PLACES], up[:PLACES], cells, left_out)


def plot_heatmap(df: Any, x: str, y: str, z: str = "correct", *, dark: bool = False) -> go.Figure:
    """The mean of a figure for every pair of values of two columns. Pairs that were never run are grey
    and empty, those of which nothing is known grey with a question mark.

    df: a sweep, or any table with a row per run. Of more than 60 values of x or y the first are drawn,
        and it is said; beyond 150 cells the numbers stand in the hover only.
    x, y: settings, or `setting`, `strategy`, `domain`, `task`. z: `correct`, `score`, `calls` or any
        other column of numbers, or of true and false. dark: for a dark page.

    The hover counts and names the runs; `sweep.run(figure.data[-1].customdata[row][column][0])` is one.
    """
    import plotly.graph_objects as go  # noqa: PLC0415

    frame = table(df)
    info = heatmap_info(frame, x, y, z)
    rate, shades = is_rate(frame, z), ground(dark)
    places = {"x": list(range(len(info.x))), "y": list(range(len(info.y)))}
    gaps = {"xgap": 2, "ygap": 2}
    known = [
        [None if cell is None or math.isnan(cell.value) else cell.value for cell in row] for row in info.cells
    ]
    hover = [
        [_hover(cell, x, y, z, rate, column, row) for column, cell in zip(info.x, cells, strict=True)]
        for row, cells in zip(info.y, info.cells, strict=True)
    ]
    figure = go.Figure()
    figure.add_heatmap(
        **places,
        **gaps,
        z=[[0 if value is None else None for value in row] for row in known],
        text=[["" if cell is None else "?" for cell in row] for row in info.cells],
        texttemplate="%{text}",
        hovertext=hover,
        hoverinfo="text",
        colorscale=[(0, shades.unscored), (1, shades.unscored)],
        showscale=False,
    )
    written = len(info.x) * len(info.y) <= WRITTEN
    scale = {"zmin": 0, "zmax": 1} if rate or z == "score" else {}
    figure.add_heatmap(
        **places,
        **gaps,
        **scale,
        z=known,
        text=[["" if cell is None else amount(cell.value, z, rate) for cell in row] for row in info.cells],
        texttemplate="%{text}" if written else None,
        customdata=[[[] if cell is None else cell.run_ids for cell in row] for row in info.cells],
        hovertext=hover,
        hoverinfo="text",
        colorscale=[(k / (len(SCORES) - 1), shade) for k, shade in enumerate(SCORES)],
        colorbar={
            "title": {"text": axis_of(z) if z in MEASURED else named(z), "side": "right"},
            "thickness": 12,
            "len": 0.8,
            "outlinewidth": 0,
            "tickformat": ".0%" if rate else None,
        },
    )
    holes = sum(cell is None for row in info.cells for cell in row)
    lines = [
        f"{runs_in(frame)}  ·  {len(info.x)} × {len(info.y)} pairs"
        + (f", {holes:,} of them never run" if holes else ""),
        *(
            f"{more:,} more values of {column} are not drawn"
            for more, column in zip(info.left_out, (x, y), strict=True)
            if more
        ),
    ]
    lost = note_losses(frame)
    heading = [heading_of(frame, z, x, y)]
    title, top = headed(heading, [*lines, lost.line], is_simulated(frame), dark, lost.warning)
    figure.update_layout(
        template=template(dark),
        title=title,
        height=top + 90 + min(max(46 * len(info.y), 200), 800),
        margin={"t": top + 4, "l": 10, "r": 10, "b": 24},
    )
    # Plotly puts a title over the labels unless it is told how far from them it stands.
    for axis, column in ((figure.update_xaxes, x), (figure.update_yaxes, y)):
        unit = unit_of(frame, column)
        said = CAPPED[unit][1] if unit else axis_of(column)
        axis(title={"text": said, "standoff": 14}, showgrid=False)
    figure.update_xaxes(**named_ticks(info.x))
    figure.update_yaxes(tickvals=places["y"], ticktext=names_on_axis(info.y, 32))
    return figure


def _values(frame: pandas.DataFrame, column: str) -> list[Any]:
    held = ordered(frame, column)
    return [*held, None] if frame[column].isna().any() else held


def _is_one_of(column: pandas.Series[Any], values: list[Any]) -> pandas.Series[bool]:
    return column.isin([value for value in values if value is not None]) | (column.isna() & (None in values))


def _hover(cell: Point | None, x: str, y: str, z: str, rate: bool, column: Any, row: Any) -> str:
    head = f"<b>{named(x)} {named(column)} · {named(y)} {named(row)}</b>"
    return "<br>".join([head, *(["never run"] if cell is None else told(cell, z, rate))])
