"""Heatmap of two settings. Each cell is the mean of a result over the runs with the cell's two values.

Cells without runs, and cells whose runs have no known result, are grey. The colour scale contains no grey, so
that these cells differ from low results.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
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
    is_rate,
    named_axis,
    ordered,
    points,
    style_table_figure,
    tick_labels,
)
from tot_lab.views.figures.theme import SCORES, colour_bar, palette, scale_of

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

MAX_VALUES = 60
"""Maximum number of values on an axis. Further values are left out."""

MAX_LABELS = 150
"""Maximum number of cells with numbers in them. Larger heatmaps show numbers only in hover texts."""


class HeatmapInfo(NamedTuple):
    """Data of `plot_heatmap`.

    Attributes:
        x: Values on the horizontal axis. Numbers are in ascending order, other values in the order of the
            table. `None`, a missing value, is last.
        y: Values on the vertical axis, sorted like `x`.
        cells: Rows of cells, one row per value of `y`. `None` means that no run has both values.
        left_out: Number of values of `x`, and number of values of `y`, that are not drawn.
    """

    x: list[Any]
    y: list[Any]
    cells: list[list[Point | None]]
    left_out: tuple[int, int]


def heatmap_info(df: Any, x: str, y: str, z: str = "correct") -> HeatmapInfo:
    """Compute the data of `plot_heatmap`."""
    frame = table(df, [x, y, z])
    expect_numeric(frame, z, "z")
    if x == y:
        raise ValueError(f"`x` and `y` must be different columns: got {x!r} for both.")
    across, up = (_values(frame, column) for column in (x, y))
    shown = frame[_equals(frame[x], across[:MAX_VALUES]) & _equals(frame[y], up[:MAX_VALUES])]
    made = points(shown, [x, y], z)
    cells = [[made.get((column, row)) for column in across[:MAX_VALUES]] for row in up[:MAX_VALUES]]
    left_out = max(len(across) - MAX_VALUES, 0), max(len(up) - MAX_VALUES, 0)
    return HeatmapInfo(across[:MAX_VALUES], up[:MAX_VALUES], cells, left_out)


def plot_heatmap(df: Any, x: str, y: str, z: str = "correct", *, dark: bool | None = None) -> go.Figure:
    """Plot the mean of a column for every pair of values of two other columns.

    Pairs without runs are grey. Pairs whose values are all unknown are grey with a question mark.

    Args:
        df: A sweep, or any table with one row per run. Only the first 60 values of `x` and of `y` are drawn.
            With more than 150 cells, the numbers are only in the hover text.
        x: Column of the horizontal axis: a setting, or `setting`, `strategy`, `domain` or `task`.
        y: Column of the vertical axis, a setting or one of the columns listed for `x`.
        z: Column to average: `correct`, `score`, `calls` or any other column of numbers or booleans.
        dark: Use the colours for a dark page. `None` follows `plotly.io.templates.default`.

    Returns:
        A figure whose cells contain run ids: `sweep.run(figure.data[-1].customdata[row][column][0])` is a run
        of a cell.
    """
    import plotly.graph_objects as go  # noqa: PLC0415

    frame = table(df)
    info = heatmap_info(frame, x, y, z)
    figure = go.Figure()
    for cells in _traces(info, x, y, z, is_rate(frame, z), dark):
        figure.add_heatmap(**cells)
    holes = sum(cell is None for row in info.cells for cell in row)
    lines = [
        f"{format_run_count(frame)}  ·  {len(info.x)} × {len(info.y)} pairs"
        + (f", {holes:,} of them without runs" if holes else ""),
        *(
            f"{more:,} more values of {column} not shown"
            for more, column in zip(info.left_out, (x, y), strict=True)
            if more
        ),
    ]
    height = 90 + min(max(46 * len(info.y), 200), 800)
    style_table_figure(
        figure, frame, figure_title(frame, z, x, y), lines, dark, height=height, margin={"b": 24}
    )
    # Without `standoff`, Plotly draws the title of an axis over its labels.
    for axis, column in ((figure.update_xaxes, x), (figure.update_yaxes, y)):
        unit = budget_unit(frame, column)
        title = BUDGET_TITLES[unit][1] if unit else axis_title(column, frame)
        axis(title={"text": title, "standoff": 14}, showgrid=False)
    figure.update_xaxes(**named_axis(info.x))
    figure.update_yaxes(tickvals=list(range(len(info.y))), ticktext=tick_labels(info.y, 32))
    return figure


def _traces(
    info: HeatmapInfo, x: str, y: str, z: str, rate: bool, dark: bool | None
) -> Iterator[dict[str, Any]]:
    """Yield the trace of the grey cells, then that of the coloured cells, which is drawn over it."""
    cells, unscored = info.cells, palette(dark).unscored
    known = [
        [None if cell is None or math.isnan(cell.value) else cell.value for cell in row] for row in cells
    ]
    both = {
        **{"x": list(range(len(info.x))), "y": list(range(len(info.y))), "xgap": 2, "ygap": 2},
        "hoverinfo": "text",
        "hovertext": [
            [_hover(cell, x, y, z, rate, column, row) for column, cell in zip(info.x, held, strict=True)]
            for row, held in zip(info.y, cells, strict=True)
        ],
    }
    yield {
        **both,
        "z": [[0 if value is None else None for value in row] for row in known],
        "text": [["" if cell is None else "?" for cell in row] for row in cells],
        "texttemplate": "%{text}",
        "colorscale": [(0, unscored), (1, unscored)],
        "showscale": False,
    }
    title = axis_title(z) if z in MEASURES else format_value(z)
    yield {
        **both,
        **({"zmin": 0, "zmax": 1} if rate or z == "score" else {}),
        "z": known,
        "text": [
            ["" if cell is None else format_amount(cell.value, z, rate) for cell in row] for row in cells
        ],
        "texttemplate": "%{text}" if len(info.x) * len(info.y) <= MAX_LABELS else None,
        "customdata": [[[] if cell is None else cell.run_ids for cell in row] for row in cells],
        "colorscale": scale_of(SCORES),
        "colorbar": colour_bar(title, len=0.8, tickformat=".0%" if rate else None),
    }


def _values(frame: pandas.DataFrame, column: str) -> list[Any]:
    held = ordered(frame, column)
    return [*held, None] if frame[column].isna().any() else held


def _equals(column: pandas.Series[Any], values: list[Any]) -> pandas.Series[bool]:
    return column.isin([value for value in values if value is not None]) | (column.isna() & (None in values))


def _hover(cell: Point | None, x: str, y: str, z: str, rate: bool, column: Any, row: Any) -> str:
    head = f"<b>{format_value(x)} {format_value(column)} · {format_value(y)} {format_value(row)}</b>"
    return "<br>".join([head, *(["no runs"] if cell is None else hover_lines(cell, z, rate))])
