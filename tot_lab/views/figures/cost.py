"""What a run used: tokens and money over its course, and for what.

What each call would have cost and what was really paid are two numbers, and what is not known is
neither 0 nor guessed: a curve is of the calls whose amount is known, and says how many these are. What
counts as a call, and what it used, is decided where `run.usage` is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tot_lab.analysis.frames import CallRow, calls_of
from tot_lab.core.bulk import gc_paused
from tot_lab.core.records import Line
from tot_lab.record.run import Run, Usage, expect_run, money, usage_of
from tot_lab.views.figures.theme import (
    KINDS,
    show_message,
    legend_at,
    number,
    palette,
    plain,
    short,
    style_run_figure,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

MAX_POINTS = 2000
"""Points of a curve; of more calls, every so many is one."""

MAX_BARS = 30
"""Kinds or depths of which each has a bar."""

USAGE_CURVES = {
    "input_tokens": ("tokens in", KINDS[4]),
    "output_tokens": ("tokens out", KINDS[0]),
    "cost": ("cost if each call were paid", KINDS[1]),
    "paid": ("really paid", KINDS[2]),
}
"""What is drawn of `Usage`, in words, and its colour."""


class CostInfo(NamedTuple):
    """Over the calls that used something, in the order of their answers: when they were answered (seconds
    since the run began), tokens, cost if paid and really paid (USD), nan where not known.

    groups: what all calls of each kind, or asked for thoughts of each depth, used, in the order of the
    first call, or of depth; None in a `Usage` is not known. total: `run.usage`.
    """

    answered: NDArray[np.float64]
    input_tokens: NDArray[np.float64]
    output_tokens: NDArray[np.float64]
    cost: NDArray[np.float64]
    paid: NDArray[np.float64]
    groups: dict[str, Usage]
    total: Usage


@gc_paused()
def cost_info(run: Run, by: Literal["kind", "depth"] = "kind") -> CostInfo:
    """What `plot_cost` draws."""
    expect_run(run, "plot_cost")
    if by not in ("kind", "depth"):
        raise ValueError(f'by is "kind" or "depth", not {by!r}')
    nodes = run.tree.nodes

    def depth(asked: CallRow) -> str:
        return str(nodes[asked.call.node].depth) if asked.call.node in nodes else "none"

    group: Callable[[CallRow], str] = depth if by == "depth" else lambda asked: asked.call.purpose
    lines: dict[str, list[Line]] = {}
    used: list[tuple[float, Usage]] = []
    for asked in calls_of(run):
        if asked.answered is None:
            continue
        usage = usage_of([asked.answered])
        if usage.calls:
            lines.setdefault(group(asked), []).append(asked.answered)
            if not usage.errors or usage.input_tokens:
                used.append((asked.answered.t, usage))
    used.sort(key=lambda pair: pair[0])
    names = (
        sorted(lines, key=lambda name: int(name) if name.isdigit() else math.inf) if by == "depth" else lines
    )
    # numpy makes nan of None.
    columns = {name: np.array([getattr(u, name) for _, u in used], dtype=float) for name in USAGE_CURVES}
    return CostInfo(
        np.array([moment for moment, _ in used], dtype=np.float64),
        **columns,
        groups={name: usage_of(lines[name]) for name in names},
        total=run.usage,
    )


def plot_cost(run: Run, *, by: Literal["kind", "depth"] = "kind", dark: bool = False) -> go.Figure:
    """What a run used: on the left over its course, on the right by kind of call or by the depth of the
    thoughts that were asked for. Above tokens; below USD, what it would cost if each call were paid, and
    what was really paid, which is less where answers came from the cache.

    run: finished or not. What is not known is not drawn, and said. Of more than 2,000 calls every so
        many is a point of a curve, and beyond 30 groups the rest share a bar: both are said.
    by: `kind` (propose, value, …) or `depth` (steps below the root).
    dark: for a dark page.
    """
    from plotly.subplots import make_subplots  # noqa: PLC0415  the repr of a run must not import it

    info = cost_info(run, by)
    spacing = {"vertical_spacing": 0.09, "horizontal_spacing": 0.11}
    figure = make_subplots(2, 2, column_widths=[0.62, 0.38], shared_xaxes="columns", **spacing)
    curves = {name: _curve(info, name) for name in USAGE_CURVES}
    labels, groups = _bars_of(info.groups)
    for name, (words, shade) in USAGE_CURVES.items():
        both = {"name": words, "legendgroup": name, "row": 1 if "tokens" in name else 2}
        figure.add_scatter(
            x=curves[name].x,
            y=curves[name].y,
            mode="lines",
            line={"shape": "hv", "color": shade, "width": 2.5, "dash": "dot" if name == "paid" else "solid"},
            hovertemplate=f"%{{y:,}} {words}<br>after %{{x:.3g}} s<extra></extra>",
            col=1,
            **both,
        )
        figure.add_bar(
            x=labels,
            y=[getattr(usage, name) for usage in groups],
            marker={"color": shade},
            showlegend=False,
            hovertemplate=f"%{{x}}: %{{y:,}} {words}<extra></extra>",
            col=2,
            **both,
        )
    _unknown(figure, info, labels, groups, palette(dark).faint)
    if not info.groups:
        show_message(figure, "no call was answered")
    layout = {"height": 500, "barmode": "group", "bargap": 0.3, "legend": legend_at(-0.16)}
    style_run_figure(figure, run, "Tokens and cost", _notes(info, curves), dark, **layout)
    figure.update_xaxes(title="time since the run began (s)", rangemode="tozero", row=2, col=1)
    figure.update_xaxes(type="category", showgrid=False, col=2)
    what = "depth of the thought asked for (steps)" if by == "depth" else "kind of call"
    figure.update_xaxes(title=what, row=2, col=2)
    for col, summed in ((1, ", summed"), (2, "")):
        figure.update_yaxes(title=f"tokens{summed}", rangemode="tozero", row=1, col=col)
        figure.update_yaxes(title=f"USD{summed}", rangemode="tozero", tickprefix="$", row=2, col=col)
    return figure


class _Curve(NamedTuple):
    """When, and what had been used by then. known: calls of which it is known; every: calls of a point."""

    x: Any
    y: Any
    known: int
    every: int


def _curve(info: CostInfo, name: str) -> _Curve:
    amounts: NDArray[np.float64] = getattr(info, name)
    known = np.flatnonzero(~np.isnan(amounts))
    if not len(known):
        return _Curve([0.0], [None], 0, 1)
    every = -(-len(known) // MAX_POINTS)
    points = np.unique([*range(0, len(known), every), len(known) - 1])
    summed = np.cumsum(amounts[known])[points]
    return _Curve(np.append(0.0, info.answered[known][points]), np.append(0.0, summed), len(known), every)


def _notes(info: CostInfo, curves: dict[str, _Curve]) -> list[str]:
    total, count = info.total, len(info.answered)
    notes = [
        f"{USAGE_CURVES[name][0]}: known for {f'{known:,} of {count:,}' if known else 'none of the'} calls"
        for name, (*_, known, _) in curves.items()
        if known < count
    ]
    if (coarsest := max(curve.every for curve in curves.values())) > 1:
        notes.append(f"curves: one point for {coarsest:,} calls")
    others = len(info.groups) - MAX_BARS + 1
    return [
        f"{total.calls:,} calls  ·  {number(total.input_tokens)} tokens in, {number(total.output_tokens)} out"
        f"  ·  cost {money(total.cost)}, paid {money(total.paid)}",
        "  ·  ".join(notes),
        f"the last bar holds all of the other {others:,}" if others > 1 else "",
    ]


def _bars_of(groups: dict[str, Usage]) -> tuple[list[str], list[Usage]]:
    """The labels and amounts of the bars; what is beyond `MAX_BARS` is one."""
    labels = [plain(short(name, 24)) for name in groups]
    usage = list(groups.values())
    if len(usage) <= MAX_BARS:
        return labels, usage
    rest = usage[MAX_BARS - 1 :]
    summed: list[Any] = [
        None if None in (column := [getattr(used, name) for used in rest]) else sum(column)
        for name in Usage._fields
    ]
    return [*labels[: MAX_BARS - 1], "others"], [*usage[: MAX_BARS - 1], Usage(*summed)]


def _unknown(figure: go.Figure, info: CostInfo, labels: list[str], groups: list[Usage], faint: str) -> None:
    """Where a bar or a curve would be, had its amount been known."""
    kinds = (
        (1, ("input_tokens", "output_tokens"), "tokens", "no tokens"),
        (2, ("cost", "paid"), "price", "all of it costs nothing"),
    )
    font = {"size": 11, "color": faint}
    upright = {"textangle": -90, "yanchor": "bottom", "showarrow": False, "font": font}
    for row, names, what, nothing in kinds:
        for label, usage in zip(labels, groups, strict=True):
            if any(getattr(usage, name) is None for name in names):
                figure.add_annotation(x=label, y=0, text="unknown", **upright, row=row, col=2)
        amounts = np.concatenate([getattr(info, name) for name in names])
        if amounts.size and not np.nansum(amounts):
            none = f"{what} unknown: the model does not say" if np.isnan(amounts).any() else nothing
            axis = "" if row == 1 else "3"
            figure.add_annotation(
                **{"x": 0.5, "xref": f"x{axis} domain", "y": 0.5, "yref": f"y{axis} domain"},
                **{"text": none, "showarrow": False, "font": {"size": 13, "color": faint}},
            )
            figure.update_yaxes(range=[0, 1], tickvals=[0], row=row)
