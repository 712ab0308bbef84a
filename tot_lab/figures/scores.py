"""Scores by depth: what was kept against what was pruned.

Rule: a thought without a score has no place on the axis, and is counted and said instead. The root is
left out: it is where the search stands, not what it found.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tot_lab.figures.theme import KINDS, empty, ending, ground, headed, plain, short, template
from tot_lab.run import Run, expect_run

if TYPE_CHECKING:
    import plotly.graph_objects as go

MOST = 2000
"""Thoughts of which each is a point; of more, only their quartiles are drawn."""

COLUMNS = 24
"""Depths that stand beside each other; of more, several share a column."""

FATES = {"kept": ("circle", KINDS[2]), "pruned": ("x", KINDS[1]), "undecided": ("hexagon", KINDS[3])}
"""What became of a thought, its mark and its colour. kept: kept, complete or the solution. undecided:
no decision was made about it, or it is a duplicate, merged or failed."""


class ScoresInfo(NamedTuple):
    """Over the thoughts below the root that have a score, in the order of the record: ids, texts,
    depth (steps), score (0–1) and fate (of `FATES`). unread: by depth, how many evaluations could not
    be read; not_evaluated: by depth, how many thoughts nobody evaluated."""

    ids: list[str]
    texts: list[str]
    depth: NDArray[np.intp]
    score: NDArray[np.float64]
    fate: list[str]
    unread: dict[int, int]
    not_evaluated: dict[int, int]


def scores_info(run: Run) -> ScoresInfo:
    """What `plot_scores` draws."""
    expect_run(run, "plot_scores")
    below = [node for node in run.tree if node.parent is not None]
    scored = [node for node in below if node.score is not None]
    return ScoresInfo(
        [node.id for node in scored],
        [node.text for node in scored],
        np.array([node.depth for node in scored], dtype=np.intp),
        np.array([node.score for node in scored], dtype=np.float64),
        [_fate(node.state) for node in scored],
        dict(Counter(node.depth for node in below if node.unread)),
        dict(Counter(node.depth for node in below if node.score is None and not node.unread)),
    )


def plot_scores(run: Run, *, dark: bool = False) -> go.Figure:
    """The scores of a run's thoughts by depth, each a mark: kept, pruned or undecided; a line is the
    median of each. Thoughts whose evaluation could not be read, or that nobody evaluated, have no
    score: they are counted above their depth.

    run: finished or not. Of more than 2,000 scored thoughts boxes show the quartiles, and it is said;
        of more than 24 depths several share a column.
    dark: for a dark page.
    """
    import plotly.graph_objects as go  # noqa: PLC0415  a run's repr uses this file without it

    info = scores_info(run)
    shades = ground(dark)
    figure = go.Figure()
    depths = [*info.depth.tolist(), *info.unread, *info.not_evaluated]
    each = -(-max(depths, default=1) // COLUMNS)  # depths of a column
    column = (info.depth - 1) // each
    fates = [fate for fate in FATES if fate in info.fate]
    here = np.array(info.fate)
    step = 0.8 / max(len(fates), 1)
    for place, fate in enumerate(fates):
        symbol, shade = FATES[fate]
        for first, level in enumerate(np.unique(column[here == fate]).tolist()):
            some = np.flatnonzero((here == fate) & (column == level))
            middle = level + (place - (len(fates) - 1) / 2) * step
            legend = {"legendgroup": fate, "showlegend": first == 0, "name": fate}
            if len(info.ids) > MOST:
                low, under, median, over, high = np.quantile(info.score[some], [0, 0.25, 0.5, 0.75, 1])
                figure.add_trace(
                    go.Box(
                        x=[middle],
                        lowerfence=[low],
                        q1=[under],
                        median=[median],
                        q3=[over],
                        upperfence=[high],
                        width=step * 0.8,
                        line={"color": shade},
                        **legend,
                    )
                )
                continue
            figure.add_trace(
                go.Scatter(
                    x=middle + step * 0.42 * _spread(info.score[some]),
                    y=info.score[some],
                    mode="markers",
                    marker={
                        "symbol": symbol,
                        "color": shade,
                        "size": 9 if len(info.ids) <= 300 else 6,
                        "line": {"color": shades.paper, "width": 0.7},
                    },
                    hoverinfo="text",
                    hovertext=[
                        f"<b>{plain(ending(info.ids[k]))} · {fate}</b><br>"
                        f"{plain(short(info.texts[k], 90))}<br>score {info.score[k]:.3g}"
                        for k in some
                    ],
                    **legend,
                )
            )
            figure.add_shape(
                type="line",
                x0=middle - step * 0.42,
                x1=middle + step * 0.42,
                y0=(median := float(np.median(info.score[some]))),
                y1=median,
                line={"color": shade, "width": 2.5},
                layer="below",
                opacity=0.75,
            )
    columns = max(((depth - 1) // each for depth in depths), default=0) + 1
    for level in range(columns):
        missing = []
        for counts, what in ((info.unread, "unread"), (info.not_evaluated, "not evaluated")):
            if count := sum(number for depth, number in counts.items() if (depth - 1) // each == level):
                missing.append(f"{count:,} {what}" if columns <= 12 else f"{count:,}{what[0]}")
        if missing:
            figure.add_annotation(
                x=level,
                y=1.06,
                yanchor="bottom",
                showarrow=False,
                text="<br>".join(missing),
                font={"size": 11, "color": shades.faint},
            )
    if not info.ids:
        empty(figure, "no thought below the root has a score")
    notes = _notes(info, each, columns)
    title, top = headed(
        ["Scores by depth"], [short(f"{run.name}  ·  {run.question}", 120), *notes], run.simulated, dark
    )
    figure.update_layout(
        template=template(dark),
        title=title,
        height=top + 400,
        margin={"t": top + 4, "l": 10, "r": 10, "b": 56},
        legend={"orientation": "h", "x": 0.5, "xanchor": "center", "y": -0.16, "yanchor": "top"},
        hovermode="closest",
        showlegend=bool(fates),
    )
    named = range(0, columns, -(-columns // 12))
    starts = [1 + level * each for level in named]
    figure.update_xaxes(
        title="depth (steps)",
        tickvals=list(named),
        ticktext=[str(start) if each == 1 else f"{start}–{start + each - 1}" for start in starts],
        tickangle=0,
        range=[-0.6, columns - 0.4],
        showgrid=False,
    )
    outside = [0.0, 1.0, *info.score.tolist()]  # a person's own evaluator may leave 0–1
    figure.update_yaxes(title="score (0–1)", range=[min(outside) - 0.05, max(outside) + 0.2])
    if max(outside) == 1:
        figure.update_yaxes(tickvals=[0, 0.2, 0.4, 0.6, 0.8, 1])
    return figure


def _fate(state: str) -> str:
    if state in ("kept", "complete", "solution"):
        return "kept"
    return "pruned" if state == "pruned" else "undecided"


def _spread(score: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sideways places from -1 to 1 that keep thoughts of nearly equal scores apart."""
    height = np.round(score * 33).astype(int)
    places = np.zeros(len(score))
    counts = Counter(height.tolist())
    widest = max(*counts.values(), 9)
    seen: Counter[int] = Counter()
    for k, level in enumerate(height.tolist()):
        places[k] = (2 * seen[level] - counts[level] + 1) / widest
        seen[level] += 1
    return places


def _notes(info: ScoresInfo, each: int, columns: int) -> list[str]:
    fates = Counter(info.fate)
    said = [f"{fates[fate]:,} {fate}" for fate in FATES if fates[fate]]
    unread, not_evaluated = sum(info.unread.values()), sum(info.not_evaluated.values())
    if unread:
        said.append(f"{unread:,} unread")
    if not_evaluated:
        said.append(f"{not_evaluated:,} not evaluated")
    notes = ["  ·  ".join(said)]
    if (unread or not_evaluated) and columns > 12:
        notes.append("above a depth: u = unread, n = not evaluated")
    if len(info.ids) > MOST:
        notes.append(f"{len(info.ids):,} thoughts: boxes show quartiles and range; run.nodes_df() lists all")
    if each > 1:
        notes.append(f"{each} depths share a column")
    return notes
