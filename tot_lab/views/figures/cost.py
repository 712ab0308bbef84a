"""Figure of the tokens and the cost of a run, over time and by group of calls.

One curve is the cost that the calls would have without cache hits, another the amount paid. Unknown amounts
are never shown as 0. A curve covers the calls whose amount is known, and the heading states their number.
`tot_lab.record.run.usage_of` defines which calls are counted and how their usage is computed.
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
from tot_lab.views.figures.theme import KINDS, TEXT, legend_at, number, palette, plain, short, show_message
from tot_lab.views.figures.verdict import style_run_figure

if TYPE_CHECKING:
    import plotly.graph_objects as go

MAX_POINTS = 2000
"""Maximum number of points of a curve. With more calls, each point combines several calls."""

MAX_BARS = 30
"""Maximum number of bars. The last bar sums up all further groups."""

USAGE_CURVES = {
    "input_tokens": ("tokens in", KINDS[4]),
    "output_tokens": ("tokens out", KINDS[0]),
    "cost": ("cost without cache hits", KINDS[1]),
    "paid": ("paid", KINDS[2]),
}
"""Name and colour of each drawn field of `Usage`."""


class CostInfo(NamedTuple):
    """Data of `plot_cost`.

    The arrays have one entry per counted call, in the order of the replies. Failed calls without tokens are
    left out. Unknown amounts are nan.

    Attributes:
        answered: Time of the reply, in seconds since the start of the run.
        cost: Cost of the call if it had not been cached, in USD.
        paid: Amount paid, in USD.
        groups: Usage by purpose in the order of the first call, or by depth. `None` in a `Usage` means
            unknown.
        total: `run.usage`.
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
    """Compute the data of `plot_cost`."""
    expect_run(run, "plot_cost")
    if by not in ("kind", "depth"):
        raise ValueError(f'Invalid `by`: got {by!r}. Use "kind" or "depth".')
    nodes = run.tree.nodes

    def depth(row: CallRow) -> str:
        return str(nodes[row.call.node].depth) if row.call.node in nodes else "none"

    group: Callable[[CallRow], str] = depth if by == "depth" else lambda row: row.call.purpose
    lines: dict[str, list[Line]] = {}
    used: list[tuple[float, Usage]] = []
    for row in calls_of(run):
        if row.answered is None:
            continue
        usage = usage_of([row.answered])
        if usage.calls:
            lines.setdefault(group(row), []).append(row.answered)
            if not usage.errors or usage.input_tokens:
                used.append((row.answered.t, usage))
    used.sort(key=lambda pair: pair[0])
    names = (
        sorted(lines, key=lambda name: int(name) if name.isdigit() else math.inf) if by == "depth" else lines
    )
    # numpy converts `None` to nan.
    columns = {name: np.array([getattr(u, name) for _, u in used], dtype=float) for name in USAGE_CURVES}
    return CostInfo(
        np.array([moment for moment, _ in used], dtype=np.float64),
        **columns,
        groups={name: usage_of(lines[name]) for name in names},
        total=run.usage,
    )


def plot_cost(run: Run, *, by: Literal["kind", "depth"] = "kind", dark: bool | None = None) -> go.Figure:
    """Plot the tokens and the cost of a run, over time on the left and by group of calls on the right.

    The upper row shows tokens. The lower row shows USD: the cost if no reply had come from the cache, and the
    amount paid.

    Args:
        run: A run, finished or not. Unknown amounts are not drawn, and the figure states their number. With
            more than 2,000 calls, each point of a curve combines several calls. At most 30 bars are drawn;
            the last one sums up the remaining groups.
        by: Group calls by `kind` (their purpose: propose, value, …) or by `depth` (the depth of their node).
        dark: Use the colours for a dark page. `None` follows `plotly.io.templates.default`.
    """
    from plotly.subplots import make_subplots  # noqa: PLC0415  the repr of a run must not import it

    info = cost_info(run, by)
    spacing = {"vertical_spacing": 0.09, "horizontal_spacing": 0.11}
    figure = make_subplots(2, 2, column_widths=[0.62, 0.38], shared_xaxes="columns", **spacing)
    curves = {name: _curve(info, name) for name in USAGE_CURVES}
    labels, groups = _bars(info.groups)
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
    _note_unknown(figure, info, labels, groups, palette(dark).faint)
    if not info.groups:
        show_message(figure, "no call has a reply")
    layout = {"height": 500, "barmode": "group", "bargap": 0.3, "legend": legend_at(-0.16)}
    style_run_figure(figure, run, "Tokens and cost", _notes(info, curves), dark, **layout)
    figure.update_xaxes(title="time since the start of the run (s)", rangemode="tozero", row=2, col=1)
    figure.update_xaxes(type="category", showgrid=False, col=2)
    what = "depth of the node (steps)" if by == "depth" else "purpose of the call"
    figure.update_xaxes(title=what, row=2, col=2)
    for col, summed in ((1, ", cumulative"), (2, "")):
        figure.update_yaxes(title=f"tokens{summed}", rangemode="tozero", row=1, col=col)
        figure.update_yaxes(title=f"USD{summed}", rangemode="tozero", tickprefix="$", row=2, col=col)
    return figure


class _Curve(NamedTuple):
    """A curve of cumulative amounts over time in seconds.

    `known` is the number of calls with a known amount, and `every` the number of these calls per point.
    """

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
        notes.append(f"curves: one point per {coarsest:,} calls")
    others = len(info.groups) - MAX_BARS + 1
    return [
        f"{total.calls:,} calls  ·  {number(total.input_tokens)} tokens in, {number(total.output_tokens)} out"
        f"  ·  cost {money(total.cost)}, paid {money(total.paid)}",
        "  ·  ".join(notes),
        f"the last bar sums up the other {others:,} groups" if others > 1 else "",
    ]


def _bars(groups: dict[str, Usage]) -> tuple[list[str], list[Usage]]:
    """Return the labels and amounts of the bars. The last bar sums up the groups beyond `MAX_BARS`."""
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


def _note_unknown(
    figure: go.Figure, info: CostInfo, labels: list[str], groups: list[Usage], faint: str
) -> None:
    """Write a note in place of each bar whose amount is unknown, and in place of the curves of a plot if all
    of their amounts are unknown or 0.
    """
    kinds = (
        (1, ("input_tokens", "output_tokens"), "tokens", "no tokens"),
        (2, ("cost", "paid"), "price", "all calls are free"),
    )
    font = {"size": TEXT["small"], "color": faint}
    upright = {"textangle": -90, "yanchor": "bottom", "showarrow": False, "font": font}
    for row, names, what, nothing in kinds:
        for label, usage in zip(labels, groups, strict=True):
            if any(getattr(usage, name) is None for name in names):
                figure.add_annotation(x=label, y=0, text="unknown", **upright, row=row, col=2)
        amounts = np.concatenate([getattr(info, name) for name in names])
        if amounts.size and not np.nansum(amounts):
            none = f"{what} unknown: not reported by the model" if np.isnan(amounts).any() else nothing
            axis = "" if row == 1 else "3"
            figure.add_annotation(
                **{"x": 0.5, "xref": f"x{axis} domain", "y": 0.5, "yref": f"y{axis} domain"},
                **{"text": none, "showarrow": False, "font": {"size": TEXT["body"], "color": faint}},
            )
            figure.update_yaxes(range=[0, 1], tickvals=[0], row=row)
