"""Settings and what came of them, side by side: a line for each setting, to be brushed.

A line is the mean over the runs of one setting, since single answers are only right or wrong and
would hide each other. Plotly cannot draw a line through what is not known: a setting with a figure that
nobody knows is left out, and said.
"""

from __future__ import annotations

import re
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
from tot_lab.views.figures.theme import SCORES, colour_bar, show_message, palette, plain, scale_of, short

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

MAX_LINES = 2000
"""Lines; of more, the first."""

MAX_NAMES = 24
"""Values that an axis can name; a setting with more names is left out, one with more numbers a scale."""

LABEL_LENGTH = 30
"""Characters of a setting's label."""

HEADER_LENGTH = 12
"""Characters in a line of a header: more would run into the next axis."""

OUTCOMES = {
    "correct": "success<br>(% of runs)",
    "score": "grade<br>(0–1)",
    "calls": "calls<br>(a run)",
    "output_tokens": "tokens out<br>(a run)",
    "cost": "cost if paid<br>(USD a run)",
    "seconds": "time<br>(s a run)",
}
"""The figures that have an axis, and what it says in little room."""


class Dimension(NamedTuple):
    """One axis. values: of each line. names: what the values 0, 1, … stand for; [] on a scale."""

    column: str
    values: list[float]
    names: list[str]


class ParallelInfo(NamedTuple):
    """dimensions: settings first, then figures. settings: the settings' labels, a line each; success:
    their rates, 0–1; run_ids: the first `MAX_RUN_IDS` runs of each. unknown: settings left out because a figure
    is not known. left_out: lines that are not drawn, and columns that differ inside a setting or have too
    many values to name. same: figures that are the same for all, and so have no axis."""

    dimensions: list[Dimension]
    settings: list[str]
    success: list[float]
    run_ids: list[list[str]]
    unknown: list[str]
    left_out: tuple[int, list[str]]
    same: list[str]


def parallel_info(df: Any) -> ParallelInfo:
    """What `plot_parallel` draws."""
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
    for column in ["setting", *setting_columns(frame)]:
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


def plot_parallel(df: Any, *, dark: bool = False) -> go.Figure:
    """Settings and what came of them as parallel coordinates: a line for each setting, with the mean of
    each figure. Draw along an axis to keep the lines that pass there; drag an axis by its name to move it.

    df: a sweep, or any table with a row per run and the columns `setting` and `correct`. Settings with a
        figure that is not known are named, not drawn; of more than 2,000 the first are, and it is said.
    dark: for a dark page.

    Plotly has no hover for these lines. `figure.data[0].customdata[n]` holds the runs of the n-th setting
    of the table: `sweep.run(figure.data[0].customdata[n][0])`.
    """
    import plotly.graph_objects as go  # noqa: PLC0415

    frame = table(df)
    info = parallel_info(frame)
    shades = palette(dark)
    shown = SCORES[3:] if dark else SCORES[:-1]  # a thin line drowns in a ground of its own lightness
    figure = go.Figure()
    if info.dimensions:
        figure.add_parcoords(
            dimensions=[_drawn(dimension, is_rate(frame, dimension.column)) for dimension in info.dimensions],
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
            labelfont={"size": 12 if len(info.dimensions) <= 8 else 10, "color": shades.ink},
            tickfont={"size": 11, "color": shades.ink},
            rangefont={"size": 1, "color": shades.paper},  # it would lie under the names
        )
    else:
        show_message(figure, "of no setting all figures are known")
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
        shapes=_axes(len(info.dimensions), shades.edge),
    )
    return figure


def _notes(info: ParallelInfo) -> list[str]:
    """What the heading says is left out."""
    more, unnamed = info.left_out
    return [
        f"not known, left out: {first_names(info.unknown)}" if info.unknown else "",
        f"{more:,} more settings are not drawn" if more else "",
        f"left out, too many values or not the same in a setting: {', '.join(unnamed)}" if unnamed else "",
        f"the same in all settings, left out: {', '.join(info.same)}" if info.same else "",
    ]


def _axes(count: int, edge: str) -> list[dict[str, Any]]:
    """Lines over the axes, which Plotly draws in black, whatever the ground."""
    line = {"type": "line", "xref": "paper", "yref": "paper", "y0": 0, "y1": 1}
    last = max(count - 1, 1)
    return [
        {**line, "x0": k / last, "x1": k / last, "line": {"color": edge, "width": 1}} for k in range(count)
    ]


def _repeats_success(frame: pandas.DataFrame, column: str) -> bool:
    """Whether the grade is no more than right or wrong."""
    return column == "score" and bool(frame["score"].dropna().isin([0, 1]).all())


def _dimension(column: str, values: list[Any], numbers: bool) -> Dimension | None:
    """The axis of a setting; `None` if it has too many values to name."""
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


def _drawn(dimension: Dimension, rate: bool) -> dict[str, Any]:
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
    """A column's name over its axis, broken at its underscores."""
    lines = [""]
    for part in re.findall(r"[^_ .]*[_ .]*", short(column, 60)):
        if lines[-1] and len(lines[-1] + part) > HEADER_LENGTH:
            lines.append("")
        lines[-1] += part
    return "<br>".join(plain(short(line, HEADER_LENGTH + 2)) for line in lines)
