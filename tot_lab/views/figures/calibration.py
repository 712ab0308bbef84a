"""Figure of the calibration of an evaluator.

It shows only labelled thoughts, for which it is known whether they are solvable. The heading states the
number of other thoughts.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tot_lab.analysis.judging import BINS, EvaluatorDiagnosis, bins_of, judge_evaluator, with_interval
from tot_lab.views.figures.points import MAX_RUN_IDS, format_run_ids, note_losses
from tot_lab.views.figures.theme import KINDS, error_bars, legend_at, palette, show_message, style_figure

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

_Numbers = NDArray[np.float64]


class CalibrationInfo(NamedTuple):
    """Data of `plot_calibration`. The fields up to `nodes` have one entry per bin of the score.

    Attributes:
        low: Lower end of the bin.
        high: Upper end of the bin.
        thoughts: Number of labelled thoughts in the bin.
        solvable: Number of solvable thoughts in the bin.
        score: Mean score.
        share: Share of solvable thoughts, or nan if the bin is empty.
        lower: Lower end of the 95% interval of `share`.
        upper: Upper end of the 95% interval of `share`.
        run_ids: Ids of the first 100 runs.
        nodes: The first 100 thoughts, as `run_id node`.
        measures: Measures of the `EvaluatorDiagnosis`.
        intervals: Lower and upper end of the interval of each measure.
        unlabelled: Number of thoughts with a score and without a label.
        runs: Table of the runs.
        model_note: What the models of the runs are; see `Run.model_note`.
    """

    low: _Numbers
    high: _Numbers
    thoughts: NDArray[np.intp]
    solvable: NDArray[np.intp]
    score: _Numbers
    share: _Numbers
    lower: _Numbers
    upper: _Numbers
    run_ids: list[list[str]]
    nodes: list[list[str]]
    measures: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    unlabelled: int
    runs: pandas.DataFrame
    model_note: str


def calibration_info(runs: Any, bins: int = BINS) -> CalibrationInfo:
    """Compute the data of `plot_calibration`."""
    if not isinstance(bins, int) or bins < 1:
        raise ValueError(f"Invalid `bins`: got {bins!r}. Use an integer of at least 1.")
    found = runs if isinstance(runs, EvaluatorDiagnosis) else judge_evaluator(runs)
    curve = found.calibration(bins)
    known = found.thoughts[found.thoughts["score"].notna() & found.thoughts["solvable"].notna()]
    place = bins_of(known["score"].to_numpy(float), bins)
    inside = [known[place == k] for k in range(bins)]
    numbers = {name: curve[name].to_numpy(float, na_value=math.nan) for name in curve.columns}
    return CalibrationInfo(
        numbers["low"],
        numbers["high"],
        curve["thoughts"].to_numpy(int),
        curve["solvable"].to_numpy(int),
        numbers["score"],
        numbers["share"],
        numbers["lower"],
        numbers["upper"],
        [list(some["run_id"].drop_duplicates().iloc[:MAX_RUN_IDS]) for some in inside],
        [[f"{row.run_id} {row.node}" for row in some.iloc[:MAX_RUN_IDS].itertuples()] for some in inside],
        {str(name): float(value) for name, value in found.measures.items()},
        {str(name): (float(low), float(high)) for name, low, high in found.intervals.itertuples()},
        int(found.thoughts["score"].notna().sum()) - len(known),
        found.runs,
        found.model_note,
    )


def plot_calibration(runs: Any, *, bins: int = BINS, dark: bool | None = None) -> go.Figure:
    """Plot the share of solvable thoughts against their score, with 95% intervals over tasks.

    A thought is solvable if a correct answer can still be reached from it. The curve of a calibrated
    evaluator follows the diagonal. The lower plot shows the number of thoughts in each bin.

    Args:
        runs: The result of `tl.stats.judge_evaluator`, or its argument.
        bins: Number of equally wide bins of the score.
        dark: Use the colours for a dark page. `None` follows `plotly.io.templates.default`.

    Returns:
        A figure whose points contain run ids: `sweep.run(figure.data[1].customdata[n][0])` is a run of point
        `n`.

    Raises:
        ValueError: If `bins` is not a positive integer.
    """
    from plotly.subplots import make_subplots  # noqa: PLC0415

    info = calibration_info(runs, bins)
    figure = make_subplots(rows=2, shared_xaxes=True, row_heights=[0.72, 0.28], vertical_spacing=0.06)
    _draw_curve(figure, info, palette(dark).faint)
    _draw_counts(figure, info)
    if not info.thoughts.any():
        show_message(figure, "no scored thought has a label: it is not known which ones are solvable")
    losses = note_losses(info.runs)
    style_figure(
        figure,
        ["Calibration of the evaluator"],
        [*_notes(info), losses.line],
        info.model_note,
        dark,
        height=520,
        warning=losses.warning,
        barmode="stack",
        legend=legend_at(-0.12),
        hovermode="closest",
    )
    figure.update_xaxes(range=[-0.02, 1.02])
    figure.update_xaxes(title="score (0–1)", row=2, col=1)
    figure.update_yaxes(title="solvable (% of thoughts)", range=[-0.03, 1.03], tickformat=".0%", row=1, col=1)
    figure.update_yaxes(title="thoughts (count)", rangemode="tozero", row=2, col=1)
    return figure


def _draw_curve(figure: go.Figure, info: CalibrationInfo, faint: str) -> None:
    """Draw the diagonal, and the share of solvable thoughts in each bin."""
    figure.add_scatter(
        x=[0, 1],
        y=[0, 1],
        mode="lines",
        line={"color": faint, "width": 1.3, "dash": "dot"},
        name="calibrated",
        hoverinfo="skip",
        row=1,
        col=1,
    )
    held = np.flatnonzero(info.thoughts).tolist()
    most = max(info.thoughts.max(initial=1), 1)
    above, below = np.maximum(info.upper - info.share, 0), np.maximum(info.share - info.lower, 0)
    figure.add_scatter(
        x=info.score[held],
        y=info.share[held],
        mode="lines+markers",
        line={"color": KINDS[0], "width": 1.5},
        marker={"color": KINDS[0], "opacity": 1, "size": 7 + 11 * np.sqrt(info.thoughts[held] / most)},
        error_y=error_bars(above[held], below[held], KINDS[0]),
        name="evaluator",
        customdata=[info.run_ids[k] for k in held],
        hoverinfo="text",
        hovertext=[_hover(info, k) for k in held],
        row=1,
        col=1,
    )


def _draw_counts(figure: go.Figure, info: CalibrationInfo) -> None:
    """Draw the number of thoughts in each bin."""
    middle, width = (info.low + info.high) / 2, 0.92 / len(info.low)
    for counts, words, shade in (
        (info.solvable, "solvable", KINDS[2]),
        (info.thoughts - info.solvable, "not solvable", KINDS[1]),
    ):
        figure.add_bar(
            x=middle,
            y=counts,
            width=width,
            marker={"color": shade},
            name=words,
            customdata=info.run_ids,
            hoverinfo="text",
            hovertext=[_hover(info, k) for k in range(len(middle))],
            row=2,
            col=1,
        )


def _notes(info: CalibrationInfo) -> list[str]:
    """Return the lines of the subtitle."""
    m = info.measures
    values = {name: with_interval(m[name], *ends) for name, ends in info.intervals.items()}
    return [
        f"{len(info.runs):,} runs  ·  {info.thoughts.sum():,} labelled thoughts"
        + (f", {info.unlabelled:,} without a label" if info.unlabelled else "")
        + (f"  ·  {m['unreadable']:.0%} unreadable" if m["unreadable"] > 0 else ""),
        f"AUC {values['auc']}  ·  calibration error {values['calibration_error']}"
        f"  ·  Brier score {values['brier']}",
    ]


def _hover(info: CalibrationInfo, k: int) -> str:
    lines = [f"<b>score {info.low[k]:.2f} to {info.high[k]:.2f}</b>"]
    lines.append(f"{info.solvable[k]:,} of {info.thoughts[k]:,} thoughts solvable")
    if info.thoughts[k]:
        lines.append(f"{info.share[k]:.1%}, 95% interval {info.lower[k]:.1%} to {info.upper[k]:.1%}")
    nodes = [node.replace(" ", " thought ", 1) for node in info.nodes[k]]
    return "<br>".join([*lines, *format_run_ids(nodes, int(info.thoughts[k]))])
