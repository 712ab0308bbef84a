"""Figure of the calibration of an evaluator.

Only labelled thoughts are drawn: those for which it is known whether they are solvable, that is, whether a
correct answer can still be reached from them. The heading states the number of unlabelled thoughts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tot_lab.analysis.judging import BINS, EvaluatorDiagnosis, bins_of, judge_evaluator, with_interval
from tot_lab.views.figures.points import MAX_RUN_IDS, format_run_ids, note_losses
from tot_lab.views.figures.theme import KINDS, error_bars, legend_at, palette, show_message, style_figure

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go


class CalibrationInfo(NamedTuple):
    """Data of `plot_calibration`.

    Attributes:
        found: The diagnosis of the evaluator.
        curve: The calibration curve, one row per bin of the score. The share of solvable thoughts in an empty
            bin is nan.
        run_ids: Ids of the first 100 runs of each bin.
        nodes: The first 100 thoughts of each bin, as text: run id, space, thought id.
    """

    found: EvaluatorDiagnosis
    curve: pandas.DataFrame
    run_ids: list[list[str]]
    nodes: list[list[str]]


def calibration_info(runs: Any, bins: int = BINS) -> CalibrationInfo:
    """Compute the data of `plot_calibration`."""
    if not isinstance(bins, int) or bins < 1:
        raise ValueError(f"Invalid `bins`: got {bins!r}. Use an integer of at least 1.")
    found = runs if isinstance(runs, EvaluatorDiagnosis) else judge_evaluator(runs)
    curve = found.calibration(bins).astype({"thoughts": int, "solvable": int})
    known = found.thoughts[found.thoughts["score"].notna() & found.thoughts["solvable"].notna()]
    place = bins_of(known["score"].to_numpy(float), bins)
    inside = [known[place == k] for k in range(bins)]
    return CalibrationInfo(
        found,
        curve.astype(dict.fromkeys(curve.select_dtypes("Float64"), float)),
        [list(some["run_id"].drop_duplicates().iloc[:MAX_RUN_IDS]) for some in inside],
        [[f"{row.run_id} {row.node}" for row in some.iloc[:MAX_RUN_IDS].itertuples()] for some in inside],
    )


def plot_calibration(runs: Any, *, bins: int = BINS, dark: bool | None = None) -> go.Figure:
    """Plot the share of solvable thoughts by score, with 95% intervals over tasks.

    A thought is solvable if a correct answer can still be reached from it. The curve of a calibrated
    evaluator follows the diagonal. The lower plot shows the number of thoughts in each bin.

    Args:
        runs: The result of `tl.stats.judge_evaluator`, or a run, several runs or a sweep to pass to it.
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
    if not info.curve["thoughts"].any():
        show_message(figure, "no scored thought has a label: it is not known which ones are solvable")
    losses = note_losses(info.found.runs)
    style_figure(
        figure,
        ["Calibration of the evaluator"],
        [*_notes(info), losses.line],
        info.found.model_note,
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
    held = info.curve[info.curve["thoughts"] > 0]
    above, below = (held["upper"] - held["share"]).clip(0), (held["share"] - held["lower"]).clip(0)
    figure.add_scatter(
        x=held["score"],
        y=held["share"],
        mode="lines+markers",
        line={"color": KINDS[0], "width": 1.5},
        marker={
            "color": KINDS[0],
            "opacity": 1,
            "size": 7 + 11 * np.sqrt(held["thoughts"] / held["thoughts"].max()),
        },
        error_y=error_bars(above, below, KINDS[0]),
        name="evaluator",
        customdata=[info.run_ids[k] for k in held.index],
        hoverinfo="text",
        hovertext=[_hover(info, k) for k in held.index],
        row=1,
        col=1,
    )


def _draw_counts(figure: go.Figure, info: CalibrationInfo) -> None:
    """Draw the number of thoughts in each bin."""
    low, high, solvable = info.curve["low"], info.curve["high"], info.curve["solvable"]
    for counts, words, shade in (
        (solvable, "solvable", KINDS[2]),
        (info.curve["thoughts"] - solvable, "not solvable", KINDS[1]),
    ):
        figure.add_bar(
            x=(low + high) / 2,
            y=counts,
            width=0.92 / len(low),
            marker={"color": shade},
            name=words,
            customdata=info.run_ids,
            hoverinfo="text",
            hovertext=[_hover(info, k) for k in range(len(low))],
            row=2,
            col=1,
        )


def _notes(info: CalibrationInfo) -> list[str]:
    """Return the lines of the subtitle."""
    found, m = info.found, info.found.measures
    values = {name: with_interval(m[name], *ends) for name, *ends in found.intervals.itertuples()}
    labelled = info.curve["thoughts"].sum()
    unlabelled = found.thoughts["score"].notna().sum() - labelled
    return [
        f"{len(found.runs):,} runs  ·  {labelled:,} labelled thoughts"
        + (f", {unlabelled:,} without a label" if unlabelled else "")
        + (f"  ·  {m['unreadable']:.0%} unreadable" if m["unreadable"] > 0 else ""),
        f"AUC {values['auc']}  ·  calibration error {values['calibration_error']}"
        f"  ·  Brier score {values['brier']}",
    ]


def _hover(info: CalibrationInfo, k: int) -> str:
    of = info.curve.loc[k]
    thoughts = int(info.curve["thoughts"].iloc[k])
    lines = [f"<b>score {of['low']:.2f} to {of['high']:.2f}</b>"]
    lines.append(f"{of['solvable']:,.0f} of {thoughts:,} thoughts solvable")
    if thoughts:
        lines.append(f"{of['share']:.1%}, 95% interval {of['lower']:.1%} to {of['upper']:.1%}")
    nodes = [node.replace(" ", " thought ", 1) for node in info.nodes[k]]
    return "<br>".join([*lines, *format_run_ids(nodes, thoughts)])
