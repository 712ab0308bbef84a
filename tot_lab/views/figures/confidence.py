"""Figure of the confidence of Deep Think by iteration, with the scores of the branches.

An assumed confidence is not a measurement. It is drawn as a hollow marker, and the line skips it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tot_lab.analysis.deep_thought import deep_thought
from tot_lab.record.run import Run, expect_run
from tot_lab.views.figures.theme import KINDS, Palette, legend_at, palette, plain, short, show_message
from tot_lab.views.figures.verdict import style_run_figure

if TYPE_CHECKING:
    import plotly.graph_objects as go

_BRANCH_STEP = 0.08  # horizontal distance between two branches, in iterations


class ConfidenceInfo(NamedTuple):
    """Data of `plot_confidence`.

    The first four fields have one entry per iteration. The next four have one entry per branch with a score.

    Attributes:
        iteration: Number of the iteration.
        confidence: Confidence in the synthesis of the iteration, from 0 to 10.
        assumed: Whether this confidence is assumed.
        answered: Whether the answer is from this iteration.
        place: Horizontal position of the branch, to the left of its iteration.
        score: Score of the branch, from 0 to 10.
        names: Name of the branch.
        kept: Whether the next iteration builds on the branch.
        unscored: Number of branches without a score.
    """

    iteration: NDArray[np.intp]
    confidence: NDArray[np.float64]
    assumed: NDArray[np.bool_]
    answered: NDArray[np.bool_]
    place: NDArray[np.float64]
    score: NDArray[np.float64]
    names: list[str]
    kept: NDArray[np.bool_]
    unscored: int


def confidence_info(run: Run) -> ConfidenceInfo:
    """Compute the data of `plot_confidence`."""
    expect_run(run, "plot_confidence")
    thought = deep_thought(run)
    branches = [
        (result.iteration - (len(result.branches) - k) * _BRANCH_STEP, branch, branch.id in result.beam)
        for result in thought.iterations
        for k, branch in enumerate(result.branches)
    ]
    scored = [(place, branch, kept) for place, branch, kept in branches if branch.score is not None]
    return ConfidenceInfo(
        np.array([result.iteration for result in thought.iterations], dtype=np.intp),
        np.array([result.confidence for result in thought.iterations], dtype=np.float64),
        np.array([result.assumed for result in thought.iterations], dtype=np.bool_),
        np.array(
            [result.iteration == thought.answer_iteration for result in thought.iterations], dtype=np.bool_
        ),
        np.array([place for place, _, _ in scored], dtype=np.float64),
        np.array([branch.score for _, branch, _ in scored], dtype=np.float64),
        [branch.name for _, branch, _ in scored],
        np.array([kept for *_, kept in scored], dtype=np.bool_),
        len(branches) - len(scored),
    )


def plot_confidence(deep_think: Run, *, dark: bool | None = None) -> go.Figure:
    """Plot the confidence in the synthesis of each iteration, and the scores of its branches.

    The branches are to the left of their iteration, best first. A star marks the iteration with the answer,
    and a hollow marker an assumed confidence.

    Args:
        deep_think: A run of `tl.DeepThink`, or of a strategy that contains it, finished or not. If it
            contains several, the figure shows the one that `tl.deep_thought` returns.
        dark: Use the colours for a dark page. `None` follows `plotly.io.templates.default`.

    Raises:
        ValueError: If the run contains no Deep Think.
    """
    import plotly.graph_objects as go  # noqa: PLC0415  the repr of a run must not import it

    info = confidence_info(deep_think)
    shades = palette(dark)
    figure = go.Figure()
    _draw_branches(figure, info, shades.paper)
    _draw_confidence(figure, info, shades)
    if not info.iteration.size:
        show_message(figure, "no iteration has a synthesis")
    unscored = f"{info.unscored} of {info.unscored + len(info.names)} branches have no score"
    layout = {"height": 380, "legend": legend_at(-0.18), "showlegend": bool(info.iteration.size)}
    style_run_figure(
        figure, deep_think, "Confidence by iteration", [unscored] if info.unscored else [], dark, **layout
    )
    last = max(int(info.iteration.max(initial=1)), 1)
    figure.update_xaxes(
        title="iteration (number)", tickvals=list(range(1, last + 1)), range=[0.4, last + 0.4], showgrid=False
    )
    figure.update_yaxes(title="confidence, score (0–10)", range=[-0.4, 10.6], dtick=2)
    return figure


def _draw_branches(figure: go.Figure, info: ConfidenceInfo, paper: str) -> None:
    """Draw the scores of the kept branches and of the pruned branches."""
    for kept, name, symbol, shade in (
        (True, "branch, kept", "circle", KINDS[2]),
        (False, "branch, pruned", "x", KINDS[1]),
    ):
        some = np.flatnonzero(info.kept == kept)
        marker = {"symbol": symbol, "color": shade, "size": 8, "line": {"width": 0.7, "color": paper}}
        hover = [f"{plain(short(info.names[k], 90))}<br>score {info.score[k]:.3g} of 10" for k in some]
        figure.add_scatter(x=info.place[some], y=info.score[some], marker=marker, **_marks(name, hover))


def _draw_confidence(figure: go.Figure, info: ConfidenceInfo, shades: Palette) -> None:
    """Draw a line through the measured confidences, and a marker for each iteration."""
    figure.add_scatter(
        x=info.iteration,
        y=np.where(info.assumed, np.nan, info.confidence),
        mode="lines",
        line={"color": KINDS[0], "width": 2},
        hoverinfo="skip",
        showlegend=False,
    )
    for marked, name, symbol, shade, size in (
        (~info.assumed & ~info.answered, "confidence", "diamond", KINDS[0], 12),
        (info.assumed & ~info.answered, "confidence, assumed", "diamond-open", KINDS[0], 12),
        (~info.assumed & info.answered, "confidence of the answer", "star", shades.path, 18),
        (info.assumed & info.answered, "confidence of the answer, assumed", "star-open", shades.path, 18),
    ):
        line = {"width": 2} if symbol.endswith("open") else {"width": 1, "color": shades.paper}
        hover = [
            f"<b>iteration {number}</b><br>{name}: {confidence:.3g} of 10"
            for number, confidence in zip(info.iteration[marked], info.confidence[marked], strict=True)
        ]
        figure.add_scatter(
            x=info.iteration[marked],
            y=info.confidence[marked],
            marker={"symbol": symbol, "color": shade, "size": size, "line": line},
            **_marks(name, hover),
        )


def _marks(name: str, hover: list[str]) -> dict[str, Any]:
    return {
        "mode": "markers",
        "name": name,
        "hoverinfo": "text",
        "hovertext": hover,
        "showlegend": bool(hover),
    }
