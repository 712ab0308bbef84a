"""Parallel coordinates of the settings of a sweep and their results.

Each line is one setting with the means over its runs. Lines of single runs would cover each other, because a
run is either right or wrong. Plotly cannot draw lines with missing values. Settings with an unknown mean are
therefore left out, and the heading lists them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tot_lab.analysis.tables import expect_runs_once, table
from tot_lab.views.figures.points import (
    axis_title,
    expect_numeric,
    first_names,
    format_run_count,
    ids_of,
    is_numeric,
    is_rate,
    numbers,
    setting_columns,
    style_table_figure,
    tick_labels,
    varies,
)
from tot_lab.views.figures.theme import (
    DARK,
    SCORES,
    TEXT,
    colour_bar,
    palette,
    plain,
    scale_of,
    short,
    show_message,
)

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

MAX_LINES = 2000
"""Maximum number of lines. Further settings are left out."""

MAX_NAMES = 24
"""Maximum number of values on an axis of names. A column of more numbers gets a numeric scale. A column of
more names is left out."""

LABEL_LENGTH = 30
"""Maximum number of characters in the label of a setting."""

HEADER_LENGTH = 12
"""Maximum number of characters in a line of a header, so that the headers of two axes do not overlap."""

OUTCOMES = {
    "correct": "success<br>(% of runs)",
    "score": "grade<br>(0–1)",
    "calls": "calls<br>(per run)",
    "output_tokens": "tokens out<br>(per run)",
    "cost": "cost, uncached<br>(USD per run)",
    "seconds": "time<br>(s per run)",
}
"""Results that get an axis, with their headers."""


class Dimension(NamedTuple):
    """One axis.

    `values` contains one position per line. `names` contains the labels of the positions 0, 1, … and is empty
    for a numeric scale.
    """

    column: str
    values: list[float]
    names: list[str]


class ParallelInfo(NamedTuple):
    """Data of `plot_parallel`.

    Attributes:
        dimensions: Axes: first the settings, then the results.
        settings: Labels of the settings, one per line.
        success: Success rate of each setting, from 0 to 1.
        run_ids: Ids of the first `MAX_RUN_IDS` runs of each setting.
        unknown: Settings that are left out because a mean is unknown.
        left_out: Number of lines that are not drawn, and the columns without an axis, which vary within a
            setting or have too many values.
        same: Results without an axis because they are equal in all settings.
    """

    dimensions: list[Dimension]
    settings: list[str]
    success: list[float]
    run_ids: list[list[str]]
    unknown: list[str]
    left_out: tuple[int, list[str]]
    same: list[str]


def parallel_info(df: Any, *, settings: Sequence[str] | None = None) -> ParallelInfo:
    """Compute the data of `plot_parallel`."""
    frame = table(df, ["setting", "correct"])
    expect_runs_once(frame, ["setting"])
    outcomes = [
        column
        for column in OUTCOMES
        if column in frame and frame[column].notna().any() and not _repeats_success(frame, column)
    ]
    outcomes = list(dict.fromkeys(["correct", *outcomes]))
    for column in outcomes:
        expect_numeric(frame, column, "column")
    figures = frame[["setting"]].assign(**{column: numbers(frame, column) for column in outcomes})
    figures["task"] = frame["task"] if "task" in frame else range(len(frame))
    means = (
        figures.groupby(["setting", "task"], observed=True, sort=False)
        .mean()
        .groupby("setting", observed=True, sort=False)
        .mean()
    )
    whole = means[means.notna().all(axis=1)]
    drawn = whole[:MAX_LINES]
    labels = list(drawn.index)
    ids: Any = frame.groupby("setting", observed=True)
    runs = {label: ids_of(group) for label, group in ids}
    first = frame.drop_duplicates("setting").set_index("setting")
    dimensions, unnamed = [], []
    for column in ["setting", *setting_columns(frame, settings)]:
        values = labels if column == "setting" else [first[column][label] for label in labels]
        made = _dimension(column, values, column != "setting" and is_numeric(frame, column))
        if made is None or varies(frame, ["setting"], column):
            unnamed.append(column)
        else:
            dimensions.append(made)
    same = [column for column in outcomes if column != "correct" and drawn[column].nunique() == 1]
    dimensions += [Dimension(column, drawn[column].tolist(), []) for column in outcomes if column not in same]
    return ParallelInfo(
        dimensions if labels else [],
        [str(label) for label in labels],
        drawn["correct"].tolist(),
        [runs[label] for label in labels],
        [str(label) for label in means.index.difference(whole.index, sort=False)],
        (len(whole) - len(labels), unnamed),
        same,
    )


def plot_parallel(df: Any, *, settings: Sequence[str] | None = None, dark: bool | None = None) -> go.Figure:
    """Plot the settings of a sweep and their mean results as parallel coordinates.

    Drag along an axis to select the lines that cross there. Drag the name of an axis to move it.

    Args:
        df: A sweep, or any table with one row per run and the columns `setting` and `correct`. Settings with
            an unknown mean are not drawn, and the heading lists them. At most 2,000 settings are drawn.
        settings: The columns of settings. `None` takes the axes of the sweep, which a part of `sweep.df()`
            keeps. Other tables have none.
        dark: Use the colours for a dark page. `None` follows `plotly.io.templates.default`.

    Returns:
        A figure that contains run ids: `sweep.run(figure.data[0].customdata[n][0])` is a run of the n-th
        drawn setting. Plotly shows no hover texts for these lines.

    Raises:
        ValueError: If the table lacks a column, or nothing says which columns are settings.
    """
    import plotly.graph_objects as go  # noqa: PLC0415

    frame = table(df)
    info = parallel_info(frame, settings=settings)
    shades = palette(dark)
    shown = SCORES[3:] if shades is DARK else SCORES[:6]  # leave out the colours close to the background
    figure = go.Figure()
    if info.dimensions:
        figure.add_parcoords(
            dimensions=[
                _plotly_dimension(dimension, is_rate(frame, dimension.column))
                for dimension in info.dimensions
            ],
            customdata=info.run_ids,
            line={
                "color": info.success,
                "colorscale": scale_of(shown),
                "cmin": 0,
                "cmax": 1,
                "showscale": True,
                "colorbar": colour_bar(axis_title("correct"), tickformat=".0%"),
            },
            unselected={"line": {"color": shades.edge, "opacity": 0.15}},
            labelfont={"size": TEXT["note"] if len(info.dimensions) <= 8 else 10, "color": shades.ink},
            tickfont={"size": TEXT["small"], "color": shades.ink},
            rangefont={"size": 1, "color": shades.paper},  # hides the range, which would overlap the names
        )
    else:
        show_message(figure, "no setting has a known mean of every result")
    first = info.dimensions[0].names if info.dimensions and info.dimensions[0].column == "setting" else []
    beside = max(map(len, tick_labels(first, LABEL_LENGTH)), default=0)
    style_table_figure(
        figure,
        frame,
        "Settings and outcomes",
        [
            f"{format_run_count(frame)}  ·  {len(info.settings):,} settings, each the mean of its runs",
            *_notes(info),
        ],
        dark,
        height=460,
        margin={"t": 70, "l": 40 + 6 * beside, "r": 40, "b": 36},
        shapes=_axis_lines(len(info.dimensions), shades.edge),
    )
    return figure


def _notes(info: ParallelInfo) -> list[str]:
    """Return the lines of the heading that list what is left out."""
    more, unnamed = info.left_out
    return [
        f"unknown, not shown: {first_names(info.unknown)}" if info.unknown else "",
        f"{more:,} more settings not shown" if more else "",
        f"too many values, or not constant within a setting, not shown: {', '.join(unnamed)}"
        if unnamed
        else "",
        f"equal in all settings, not shown: {', '.join(info.same)}" if info.same else "",
    ]


def _axis_lines(count: int, edge: str) -> list[dict[str, Any]]:
    """Return lines that cover the axes, because Plotly draws axes only in black."""
    line = {"type": "line", "xref": "paper", "yref": "paper", "y0": 0, "y1": 1}
    last = max(count - 1, 1)
    return [
        {**line, "x0": k / last, "x1": k / last, "line": {"color": edge, "width": 1}} for k in range(count)
    ]


def _repeats_success(frame: pandas.DataFrame, column: str) -> bool:
    """Return whether a column of grades contains only 0 and 1, so that its mean is the success rate."""
    return column == "score" and bool(frame["score"].dropna().isin([0, 1]).all())


def _dimension(column: str, values: list[Any], numbers: bool) -> Dimension | None:
    """Return the axis of a setting, or `None` if the setting has too many values."""
    import pandas as pd  # noqa: PLC0415

    known = list(dict.fromkeys(value for value in values if not pd.isna(value)))
    known = sorted(known) if numbers else known
    held = [*known, None] if any(pd.isna(value) for value in values) else known
    if len(held) > MAX_NAMES:
        scale = numbers and None not in held
        return Dimension(column, [float(value) for value in values], []) if scale else None
    place = {value: float(k) for k, value in enumerate(held)}
    return Dimension(
        column,
        [place[None if pd.isna(value) else value] for value in values],
        ["–" if value is None else str(value) for value in held],
    )


def _plotly_dimension(dimension: Dimension, rate: bool) -> dict[str, Any]:
    column, values = dimension.column, dimension.values
    made: dict[str, Any] = {"label": OUTCOMES.get(column) or _header(column), "values": values}
    if dimension.names:
        names = tick_labels(dimension.names, LABEL_LENGTH if column == "setting" else 12)
        made |= {"tickvals": list(range(len(names))), "ticktext": names}
        made |= {"range": [-0.3, len(dimension.names) - 0.7]}
    elif rate or column == "score":
        made |= {"range": [0, 1], "tickformat": ".0%" if rate else None}
    return made


def _header(column: str) -> str:
    """Wrap the name of a column into a header, breaking at underscores, spaces and dots."""
    lines = [""]
    for part in re.findall(r"[^_ .]*[_ .]*", short(column, 60)):
        if lines[-1] and len(lines[-1] + part) > HEADER_LENGTH:
            lines.append("")
        lines[-1] += part
    return "<br>".join(plain(short(line, HEADER_LENGTH + 2)) for line in lines)
