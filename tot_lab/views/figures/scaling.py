"""Figure of success rate against compute: one line per method, over the scales at which it was run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import log, nan
from typing import TYPE_CHECKING, Any, NamedTuple

from tot_lab.analysis.statistics import ANSWER_STATES
from tot_lab.analysis.tables import is_sweep, placed, table
from tot_lab.views.figures.points import (
    RINGS,
    Point,
    axis_title,
    format_mean,
    format_run_count,
    format_value,
    held_constant,
    hover_lines,
    interval_bars,
    marker,
    note_model,
    points,
    rings,
    style_table_figure,
    together,
)
from tot_lab.views.figures.theme import COLOURS, legend_at, style_figure

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

SYMBOLS = ("circle", "diamond", "square")
MAX_METHODS = len(COLOURS) * len(SYMBOLS)
"""Maximum number of methods. Further methods are left out."""

_SETTING = re.compile(r" [\w.]+=(?:(?! [\w.]+=).)*")


class Method(NamedTuple):
    """A method at several scales, in ascending order of cost.

    Attributes:
        name: Label of its settings without the `name=value` parts.
        settings: Labels of its settings in the sweep, one per scale.
        cost: Mean cost of a run, for each scale.
        success: Success rate, for each scale.
        oracle: Share of runs with a right answer at any leaf, for each scale. Empty if that is unknown.
        states: Number of finished, cut and unfinished answers as text, for each scale. Empty if unknown.
    """

    name: str
    settings: list[str]
    cost: list[Point]
    success: list[Point]
    oracle: list[Point]
    states: Sequence[str] = ()


def scaling_info(df: Any, cost: str | None = None) -> list[Method]:
    """Compute the data of `plot_scaling`."""
    if _is_estimated(df):
        return _estimated(df, cost or "k")
    cost = cost or "calls"
    frame = _frame(df, cost)
    columns = [cost, "correct", *(["reachable"] if "reachable" in frame else [])]
    found = {column: points(frame, ["setting"], column) for column in columns}
    settings: dict[str, list[str]] = {}
    for setting in dict.fromkeys(frame["setting"]):
        if found[cost][setting,].value > 0:  # neither unknown nor zero, which a logarithmic axis lacks
            settings.setdefault(_SETTING.sub("", str(setting)) or str(setting), []).append(setting)
    methods = []
    for name, scales in settings.items():
        scales.sort(key=lambda setting: found[cost][setting,].value)
        columns_of = {column: [found[column][setting,] for setting in scales] for column in columns}
        methods.append(
            Method(
                name,
                scales,
                columns_of[cost],
                columns_of["correct"],
                columns_of.get("reachable", []),
                [_states(frame, setting) for setting in scales] if "answer_state" in frame else (),
            )
        )
    return methods


def plot_scaling(df: Any, cost: str | None = None, *, dark: bool | None = None) -> go.Figure:
    """Plot success rate against the mean cost of a run, with one line per method and 95% intervals.

    A method is the name of a setting without its `name=value` parts: `beam search.width=2` and `beam
    search.width=5` are two points of the method `beam`. `tl.match` gives methods scales of equal cost. The
    cost is what the runs spent, not their budget.

    Args:
        df: A sweep, or any table with one row per run and the columns `setting`, `task`, `correct` and
            `cost`. For a sweep, a dashed line with open symbols shows the oracle (any of N): the share of
            runs that have a right answer at any leaf, which a perfect answer rule would choose. It coincides
            with the solid line if the search itself knows which leaves are right, for example because it
            verifies paths.
            Or a table of `tl.stats.pass_at_k`, `majority_at_k` or `best_of_k`, or several of them by
            `pandas.concat`, with one line per setting and estimate.
        cost: `calls` (the default), `tokens` (in and out), `cost` (USD), or a column of the table such as
            `flops`, `flops_prefix_once`, `seconds_alone`, `output_tokens` or the tokens of one role:
            `answer_output_tokens` and `propose_output_tokens` are generated, and `evaluate_input_tokens` are
            read by a judge or reward model. For a table of estimates, `k` (the number of samples, the
            default) or `output_tokens`. The axis is logarithmic, so settings of unknown or zero cost are left
            out. Points at one place are drawn as rings around each other.
        dark: Use the colours for a dark page. `None` follows `plotly.io.templates.default`.

    Returns:
        A figure whose points contain run ids: `sweep.run(figure.data[k].customdata[n][0])`.
    """
    import plotly.graph_objects as go  # noqa: PLC0415

    methods = scaling_info(df, cost)
    frame, is_estimated = table(df), _is_estimated(df)
    cost = cost or ("k" if is_estimated else "calls")
    figure = go.Figure()
    shown = methods[:MAX_METHODS]
    sizes = _rings(shown)
    for k, method in enumerate(shown):
        colour, symbol = COLOURS[k % len(COLOURS)], SYMBOLS[k // len(COLOURS)]
        for name, rates, width, dash, shape in (
            (method.name, method.success, 2.0, None, symbol),
            (f"{method.name}, oracle", method.oracle, 1.5, "dash", f"{symbol}-open"),
        ):
            is_success = rates is method.success
            larger = [sizes[k, is_success, n] for n in range(len(rates))]
            bars = interval_bars(rates, colour, ring=max(larger, default=0)) if is_success else {}
            figure.add_scatter(
                x=[point.value for point in method.cost[: len(rates)]],
                y=[point.value for point in rates],
                name=format_value(name),
                legendgroup=str(k),
                showlegend=is_success,
                mode="lines+markers",
                line={"color": colour, "width": width + min(larger, default=0) / 4, "dash": dash},
                marker=marker(8, larger, colour, shape, 1),
                customdata=[point.run_ids for point in rates],
                hoverinfo="text",
                hovertext=[
                    _hover_estimate(method, n, cost) if is_estimated else _hover(method, n, cost, rates)
                    for n in range(len(rates))
                ],
                **bars,
            )
    _style(figure, frame, methods, cost, dark, RINGS if any(sizes.values()) else "")
    unit, lowest = ("$", -6) if cost == "cost" else ("", -3 if cost.startswith("seconds") else 0)
    ticks = [factor * 10.0**power for power in range(lowest, 25) for factor in (1, 2, 3, 5, 7)]
    if cost == "k":
        ticks = sorted(set(frame["k"]))
    share = "success rate (mean over tasks)" if is_estimated else axis_title("correct")
    figure.update_xaxes(
        title=f"{_COSTS.get(cost) or axis_title(cost)}, logarithmic",
        type="log",
        tickvals=ticks,
        ticktext=[f"{unit}{tick:,.0f}" if 1 <= tick < 1e10 else f"{unit}{tick:.1g}" for tick in ticks],
    )
    figure.update_yaxes(title=share, range=(-0.04, 1.04), tickformat=".0%", dtick=0.2)
    return figure


def _rings(methods: list[Method]) -> dict[tuple[int, bool, int], float]:
    """Return the value of `rings` for each point. The keys are the number of the method, whether the point is
    a success rate instead of an oracle, and the number of the scale. Points of oracles are the outer rings.
    """
    costs = [log(point.value) for method in methods for point in method.cost]
    span = max(costs, default=0.0) - min(costs, default=0.0) or 1.0
    places = {
        (k, is_success, n): (log(method.cost[n].value) / span, rate.value)
        for is_success in (False, True)
        for k, method in enumerate(methods)
        for n, rate in enumerate(method.success if is_success else method.oracle)
    }
    keys = [*places]
    others = [
        [other for other in found if keys[other][:2] != key[:2]]  # a line does not hide itself
        for key, found in zip(keys, together([*places.values()]), strict=True)
    ]
    return dict(zip(keys, rings(others), strict=True))


def _style(
    figure: go.Figure,
    frame: pandas.DataFrame,
    methods: list[Method],
    cost: str,
    dark: bool | None,
    rings_line: str,
) -> None:
    """Set the heading and the layout."""
    left_out = len(methods) - MAX_METHODS
    hidden = f"{left_out:,} more methods not shown" if left_out > 0 else ""
    layout: dict[str, Any] = {
        "height": 440,
        "margin": {"r": 24},
        "legend": legend_at(-0.2),
        "hovermode": "closest",
    }
    if _is_estimated(frame):
        failed = int(frame.drop_duplicates(["setting", "estimate"])["errors"].max())
        lines = [
            "from fewer of the recorded samples  ·  mean over tasks and 95% interval",
            rings_line,
            hidden,
            f"{failed:,} samples of a setting failed and are left out" if failed else "",
        ]
        style_figure(figure, ["Success rate by samples"], lines, note_model(frame), dark, **layout)
    else:
        unpriced = frame["setting"].nunique() - sum(len(method.settings) for method in methods)
        lines = [
            f"{format_run_count(frame)}  ·  mean and 95% interval",
            _explain_oracle(methods[:MAX_METHODS]),
            rings_line,
            hidden,
            f"{unpriced:,} settings of no or unknown {format_value(cost)} not shown" if unpriced else "",
            held_constant(frame, [cost]),
        ]
        style_table_figure(figure, frame, "Success rate by compute", lines, dark, **layout)


_COSTS = {"k": "samples (per task)"}
"""Titles of the cost axis for costs that occur only in tables of estimates."""


def _is_estimated(df: Any) -> bool:
    return {"estimate", "k", "rate", "low", "high"} <= {*getattr(df, "columns", ())}


def _estimated(df: pandas.DataFrame, cost: str) -> list[Method]:
    """Return a method for each setting and estimate (such as pass@k) of a table of estimates."""
    if cost not in ("k", "output_tokens"):
        raise ValueError(f"cost must be 'k' or 'output_tokens' for a table of estimates: got {cost!r}.")
    frame = table(df)
    settings = frame["setting"].nunique()
    methods = []
    groups: Any = frame.groupby(["setting", "estimate"], sort=False, observed=True)
    for (setting, estimate), group in groups:
        rows = list(group.dropna(subset=[cost]).sort_values("k").itertuples())
        methods.append(
            Method(
                f"{setting}, {estimate}" if settings > 1 else estimate,
                [f"{setting}, {estimate}, k={row.k}" for row in rows],
                [Point(float(getattr(row, cost)), nan, nan, row.tasks, row.tasks, []) for row in rows],
                [Point(row.rate, row.low, row.high, row.tasks, row.tasks, []) for row in rows],
                [],
            )
        )
    return methods


def _frame(df: Any, cost: str) -> pandas.DataFrame:
    """Return the table with the column `cost`, and for a sweep also with the column `reachable`: whether
    any leaf has a right answer."""
    import pandas  # noqa: PLC0415

    needs = ["input_tokens", "output_tokens"] if cost == "tokens" else [cost]
    frame = table(df, ["setting", "correct", *needs])
    if cost == "tokens":
        frame = frame.assign(tokens=frame["input_tokens"] + frame["output_tokens"])
    if is_sweep(df):
        grades = {one.run_id: one.run.reachable for one in placed(df, "plot_scaling") if one.run is not None}
        right = [None if (grade := grades.get(id)) is None else grade == 1.0 for id in frame["run_id"]]
        frame = frame.assign(reachable=pandas.array(right, dtype="boolean"))
    return frame


def _states(frame: pandas.DataFrame, setting: str) -> str:
    """Return the number of finished, cut and unfinished answers of a setting as text."""
    counts = frame.loc[frame["setting"] == setting, "answer_state"].value_counts()
    return ", ".join(f"{counts[state]:,} {state}" for state in ANSWER_STATES if state in counts)


def _explain_oracle(methods: list[Method]) -> str:
    """Return the line of the heading that explains the dashed lines, or "" if there are none."""
    pairs = [pair for method in methods for pair in zip(method.success, method.oracle, strict=False)]
    if not pairs:
        return ""
    hidden = all(success.value == oracle.value for success, oracle in pairs)
    where = " (nowhere above the success rate here)" if hidden else ""
    return f"dashed and open symbols: a right answer at any leaf{where}"


def _hover(method: Method, n: int, cost: str, rates: list[Point]) -> str:
    spent = f"{format_value(cost)} per run {format_mean(method.cost[n], cost, False)}"
    what = [] if rates is method.success else ["oracle: a right answer at any leaf"]
    name = f"<b>{format_value(method.settings[n])}</b>"
    states = [f"answers: {text}" for text in method.states[n : n + 1] if text and rates is method.success]
    return "<br>".join([name, *what, spent, *hover_lines(rates[n], "correct", True), *states])


def _hover_estimate(method: Method, n: int, cost: str) -> str:
    amount = f"{method.cost[n].value:,.0f} {'samples' if cost == 'k' else 'generated tokens'} per task"
    rate = method.success[n]
    return "<br>".join(
        [
            f"<b>{format_value(method.settings[n])}</b>",
            amount,
            f"correct {format_mean(rate, 'correct', True)}",
            f"{rate.runs:,} tasks",
        ]
    )
