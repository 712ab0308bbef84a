"""Figure of scores by depth, for kept and for pruned thoughts.

Thoughts without a score have no position on the axis. The figure shows their number above each depth. The
root is left out, because it is the starting point of the search and not a result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tot_lab.record.run import Run, expect_run
from tot_lab.views.figures.theme import (
    KINDS,
    TEXT,
    legend_at,
    palette,
    plain,
    short,
    short_id,
    short_score,
    show_message,
)
from tot_lab.views.figures.verdict import style_run_figure

if TYPE_CHECKING:
    import plotly.graph_objects as go

MAX_POINTS = 2000
"""Maximum number of thoughts that are drawn as points. Larger runs get box plots."""

MAX_COLUMNS = 24
"""Maximum number of columns. If a tree has more levels, several depths share a column."""

GROUPS = (
    (("kept", "complete", "answer"), "circle", KINDS[2]),
    (("pruned",), "x", KINDS[1]),
    (("proposed", "failed", "duplicate", "merged"), "hexagon", KINDS[3]),
)
"""Groups of states: the states, and the marker and colour with which all of them are drawn."""


class ScoresInfo(NamedTuple):
    """Data of `plot_scores`.

    The first six fields have one entry per thought below the root that has a score, in the order of the
    record.

    Attributes:
        depth: Number of steps below the root.
        score: Score from 0 to 1.
        state: State of the thought, as in `nodes_df`.
        column: Index of the column of the figure that shows the thought.
        unreadable: Number of evaluations that could not be read, by depth.
        not_evaluated: Number of thoughts without an evaluation, by depth.
        columns: Number of columns.
        each: Number of depths that share a column.
    """

    ids: list[str]
    texts: list[str]
    depth: NDArray[np.intp]
    score: NDArray[np.float64]
    state: list[str]
    column: NDArray[np.intp]
    unreadable: dict[int, int]
    not_evaluated: dict[int, int]
    columns: int
    each: int


def scores_info(run: Run) -> ScoresInfo:
    """Compute the data of `plot_scores`."""
    expect_run(run, "plot_scores")
    below = [node for node in run.tree if node.parent is not None and node.by != "root"]
    scored = [node for node in below if node.score is not None]
    deepest = max((node.depth for node in below), default=1)
    each = -(-deepest // MAX_COLUMNS)
    depth = np.array([node.depth for node in scored], dtype=np.intp)
    return ScoresInfo(
        [node.id for node in scored],
        [node.text for node in scored],
        depth,
        np.array([node.score for node in scored], dtype=np.float64),
        [node.state for node in scored],
        (depth - 1) // each,
        dict(Counter(node.depth for node in below if node.unreadable)),
        dict(Counter(node.depth for node in below if node.score is None and not node.unreadable)),
        (deepest - 1) // each + 1,
        each,
    )


def plot_scores(run: Run, *, dark: bool | None = None) -> go.Figure:
    """Plot the scores of the thoughts of a run by depth.

    Each thought is a marker. Kept thoughts, pruned thoughts and all others are drawn side by side, each group
    with a line at its median. Thoughts that were not evaluated, or whose evaluation could not be read, have
    no score. Their number is written above their depth.

    Args:
        run: A run, finished or not. With more than 2,000 scored thoughts, box plots replace the markers. With
            more than 24 depths, several share a column.
        dark: Use the colours for a dark page. `None` follows `plotly.io.templates.default`.
    """
    import plotly.graph_objects as go  # noqa: PLC0415  the repr of a run must not import it

    info = scores_info(run)
    figure = go.Figure()
    _draw_scores(figure, info, palette(dark).paper)
    for column, missing in _missing_counts(info):
        font = {"size": TEXT["small"], "color": palette(dark).faint}
        figure.add_annotation(x=column, y=1.06, yanchor="bottom", showarrow=False, text=missing, font=font)
    if not info.ids:
        show_message(figure, "no thought below the root has a score")
    layout = {"height": 400, "legend": legend_at(-0.16), "showlegend": bool(info.ids)}
    style_run_figure(figure, run, "Scores by depth", _notes(info), dark, **layout)
    ticks = range(0, info.columns, -(-info.columns // 12))
    starts = [1 + column * info.each for column in ticks]
    figure.update_xaxes(
        title="depth (steps)",
        tickvals=list(ticks),
        ticktext=[str(k) if info.each == 1 else f"{k}–{k + info.each - 1}" for k in starts],
        tickangle=0,
        range=[-0.6, info.columns - 0.4],
        showgrid=False,
    )
    outside = [0.0, 1.0, *info.score.tolist()]  # a custom evaluator may return scores outside 0–1
    figure.update_yaxes(title="score (0–1)", range=[min(outside) - 0.05, max(outside) + 0.2])
    if max(outside) == 1:
        figure.update_yaxes(tickvals=[0, 0.2, 0.4, 0.6, 0.8, 1])
    return figure


def _draw_scores(figure: go.Figure, info: ScoresInfo, paper: str) -> None:
    """Draw each column, with the groups side by side."""
    groups = [
        (name, np.isin(info.state, states), symbol, shade)
        for states, symbol, shade in GROUPS
        if (name := ", ".join(state for state in states if state in info.state))
    ]
    step = 0.8 / max(len(groups), 1)
    for place, (name, here, symbol, shade) in enumerate(groups):
        for first, column in enumerate(np.unique(info.column[here]).tolist()):
            some = np.flatnonzero(here & (info.column == column))
            middle = column + (place - (len(groups) - 1) / 2) * step
            legend = {"legendgroup": name, "showlegend": first == 0, "name": name}
            if len(info.ids) > MAX_POINTS:
                figure.add_box(
                    x=[middle], width=step * 0.8, line_color=shade, **_quartiles(info.score[some]), **legend
                )
                continue
            aside, median = step * 0.42, float(np.median(info.score[some]))
            x = middle + aside * _offsets(info.score[some])
            marker = {"symbol": symbol, "color": shade, "line": {"width": 0.7, "color": paper}}
            figure.add_scatter(x=x, marker=marker, **_points(info, some), **legend)
            line = {"type": "line", "x0": middle - aside, "x1": middle + aside, "y0": median, "y1": median}
            figure.add_shape(**line, line={"color": shade, "width": 2.5}, layer="below")


def _quartiles(score: NDArray[np.float64]) -> dict[str, list[float]]:
    names = ("lowerfence", "q1", "median", "q3", "upperfence")
    return {name: [np.quantile(score, share / 4)] for share, name in enumerate(names)}


def _points(info: ScoresInfo, some: NDArray[np.intp]) -> dict[str, Any]:
    return {
        "y": info.score[some],
        "mode": "markers",
        "marker_size": 9 if len(info.ids) <= 300 else 6,
        "hoverinfo": "text",
        "hovertext": [
            f"<b>thought {plain(short_id(info.ids[k]))} · {info.state[k]}</b><br>"
            f"{plain(short(info.texts[k], 90))}<br>"
            f"score {short_score(float(info.score[k]))}"
            for k in some
        ],
    }


def _missing_counts(info: ScoresInfo) -> Iterator[tuple[int, str]]:
    """Yield each column with unscored thoughts, and a text that states their number."""
    for column in range(info.columns):
        lines = []
        for counts, what in ((info.unreadable, "unreadable"), (info.not_evaluated, "not evaluated")):
            if count := sum(n for depth, n in counts.items() if (depth - 1) // info.each == column):
                lines.append(f"{count:,} {what}" if info.columns <= 12 else f"{count:,}{what[0]}")
        if lines:
            yield column, "<br>".join(lines)


def _offsets(score: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return horizontal offsets from -1 to 1 that separate thoughts with nearly equal scores."""
    height = np.round(score * 33).astype(int)
    places = np.zeros(len(score))
    counts = Counter(height.tolist())
    widest = max(*counts.values(), 9)
    seen: Counter[int] = Counter()
    for k, level in enumerate(height.tolist()):
        places[k] = (2 * seen[level] - counts[level] + 1) / widest
        seen[level] += 1
    return places


def _notes(info: ScoresInfo) -> list[str]:
    states = Counter(info.state)
    counts = [f"{states[state]:,} {state}" for group, *_ in GROUPS for state in group if states[state]]
    unreadable, not_evaluated = sum(info.unreadable.values()), sum(info.not_evaluated.values())
    if unreadable:
        counts.append(f"{unreadable:,} unreadable")
    if not_evaluated:
        counts.append(f"{not_evaluated:,} not evaluated")
    notes = ["  ·  ".join(counts)]
    if (unreadable or not_evaluated) and info.columns > 12:
        notes.append("above a depth: u = unreadable, n = not evaluated")
    if len(info.ids) > MAX_POINTS:
        notes.append(f"{len(info.ids):,} thoughts: boxes show quartiles and range; run.nodes_df() lists all")
    if info.each > 1:
        notes.append(f"{info.each} depths share a column")
    return notes
