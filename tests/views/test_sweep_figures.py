"""What is drawn of many runs is what their table says, with intervals, and leads back to the runs."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from plotly.offline import get_plotlyjs
from support import Scripted, answer_to, run, wait

import tot_lab as tl
from tot_lab.core.registry import built_in
from tot_lab.views.figures import figures_of
from tot_lab.views.figures.calibration import calibration_info, plot_calibration
from tot_lab.views.figures.frontier import frontier_info, plot_pareto
from tot_lab.views.figures.heatmap import heatmap_info, plot_heatmap
from tot_lab.views.figures.importance import importance_info, plot_importance
from tot_lab.views.figures.points import MAX_RUN_IDS, named_axis, points, tick_labels
from tot_lab.views.figures.sweep import MAX_CURVES, MAX_VALUES, is_multiplied, plot_sweep, spread, sweep_info

HOSTILE = "</script><script>alert(1)</script> <b>&amp; $x$ %{x}"
KINDS = {
    **dict.fromkeys(["setting", "strategy", "generate", "domain", "task", "stop_reason"], "category"),
    **dict.fromkeys(["beam_width", "repeat", "calls", "input_tokens", "output_tokens"], "Int64"),
    **dict.fromkeys(["score", "cost", "paid", "seconds"], "Float64"),
    **{"correct": "boolean", "run_id": "string", "error": "string", "simulated": "boolean"},
}


def row(setting, task, correct, *, beam=None, generate=None, calls=1, repeat=0, **more):
    return {
        **{"setting": setting, "strategy": "one_answer" if beam is None else "tree_of_thoughts"},
        **{"beam_width": beam, "generate": generate, "domain": "game24", "task": task, "repeat": repeat},
        **{"correct": correct, "score": None if correct is None else float(correct), "stop_reason": "solved"},
        **{"error": None, "calls": calls, "input_tokens": 100 * calls, "output_tokens": 10 * calls},
        **{"cost": 0.001 * calls, "paid": 0.0, "seconds": 0.5 * calls, "simulated": False},
        "run_id": f"{setting}/{task}/{repeat}",
        **more,
    }


AXES = ["strategy", "beam_width", "generate"]


def table(rows):
    """A table as `sweep.df()` gives it."""
    frame = pd.DataFrame(rows).astype({name: kind for name, kind in KINDS.items() if name in rows[0]})
    frame.attrs["axes"] = AXES
    return frame


def grid(solved, tasks=10):
    """A table of settings × tasks: `solved` has the name, beam, generate, calls and how many are solved."""
    return table(
        [
            row(name, f"task {k}", k < right, beam=beam, generate=generate, calls=calls + k)
            for name, beam, generate, calls, right in solved
            for k in range(tasks)
        ]
    )


CROSSED = grid(
    [
        ("IO", None, None, 1, 1),
        ("b=1 sample", 1, "sample", 10, 2),
        ("b=1 propose", 1, "propose", 12, 4),
        ("b=5 sample", 5, "sample", 50, 3),
        ("b=5 propose", 5, "propose", 40, 9),
    ]
)


# Points.


@pytest.mark.slow
def test_a_rate_has_wilsons_interval_and_a_mean_a_bootstrap_over_tasks():
    from statsmodels.stats.proportion import proportion_confint

    rate = points(CROSSED, ["setting"], "correct")["b=1 sample",]
    assert (rate.value, rate.runs, rate.known) == (0.2, 10, 10)
    assert (rate.low, rate.high) == pytest.approx(proportion_confint(2, 10, method="wilson"))
    mean = points(CROSSED, ["setting"], "calls")["b=1 sample",]
    assert mean.value == 14.5
    assert 12 < mean.low < 14.5 < mean.high < 17
    same = points(table([row("a", f"{k}", True, calls=3) for k in range(5)]), ["setting"], "calls")
    assert same["a",].value == 3
    assert np.isnan([same["a",].low, same["a",].high]).all()  # nothing tells how far a sixth would be
    alone = points(table([row("a", "t", True, calls=3)]), ["setting"], "calls")["a",]
    assert alone.value == 3
    assert np.isnan(alone.low)


@pytest.mark.slow
def test_repeats_of_a_task_are_one_sample_of_it():
    """However often each of 4 tasks is repeated, they stay 4."""

    from statsmodels.stats.proportion import proportion_confint

    rows = [row("a", f"{k}", k < 2, calls=k, repeat=r) for k in range(4) for r in range(50)]
    point = points(table(rows), ["setting"], "correct")["a",]
    assert (point.low, point.high) == pytest.approx(proportion_confint(2, 4, method="wilson"), abs=0.02)
    once = points(table([r for r in rows if r["repeat"] == 0]), ["setting"], "calls")["a",]
    assert points(table(rows), ["setting"], "calls")["a",][:3] == once[:3]


@pytest.mark.slow
def test_what_is_not_known_is_counted_and_no_zero():
    rows = [row("a", f"{k}", [True, None, None][k % 3], cost=[0.2, None, 0.4][k % 3]) for k in range(9)]
    rate = points(table(rows), ["setting"], "correct")["a",]
    assert (rate.value, rate.runs, rate.known) == (1.0, 9, 3)
    cost = points(table(rows), ["setting"], "cost")["a",]
    assert (cost.value, cost.known) == (pytest.approx(0.3), 6)
    figure = plot_sweep(table(rows))
    assert ", 6 unknown" in figure.data[0].hovertext[0]
    failed = [row("a", "0", True), row("a", "1", None, error="ValueError: no", stop=None)]
    assert points(table(failed), ["setting"], "correct")["a",].known == 1  # it gave no answer to grade


# Any axis against any figure.


@pytest.mark.slow
def test_sweep_by_hand():
    info = sweep_info(CROSSED, "beam_width", color="generate")
    assert [curve.name for curve in info.curves] == ["sample", "propose"]
    assert [curve.x for curve in info.curves] == [[1, 5], [1, 5]]
    assert [[p.value for p in curve.points] for curve in info.curves] == [[0.2, 0.3], [0.4, 0.9]]
    assert {name: point.value for name, point in info.baselines.items()} == {"IO": 0.1}
    assert (info.places, info.pooled, info.left_out) == ([], [], (0, 0))


@pytest.mark.slow
def test_sweep_says_what_it_pools():
    info = sweep_info(CROSSED, "beam_width")
    (curve,) = info.curves
    assert [point.value for point in curve.points] == pytest.approx([0.3, 0.6])
    assert info.pooled == ["generate"]
    assert "averaged over generate" in plot_sweep(CROSSED, "beam_width").layout.title.subtitle.text
    assert sweep_info(CROSSED, "generate").pooled == ["beam_width"]
    assert sweep_info(CROSSED).pooled == []


@pytest.mark.slow
def test_names_stand_beside_each_other_in_their_order():
    info = sweep_info(CROSSED)
    assert info.places == ["IO", "b=1 sample", "b=1 propose", "b=5 sample", "b=5 propose"]
    figure = plot_sweep(CROSSED, "generate", color="beam_width")
    first, second = figure.data[:2]
    assert first.x[0] < 0 < second.x[0] < 0.5
    assert list(figure.layout.xaxis.ticktext) == ["sample", "propose"]


@pytest.mark.slow
def test_a_figure_on_the_x_axis_has_a_point_for_each_setting():
    info = sweep_info(CROSSED, "calls", "score", color="strategy")
    assert [curve.name for curve in info.curves] == ["one_answer", "tree_of_thoughts"]
    assert info.curves[1].x == [14.5, 16.5, 54.5, 44.5]
    assert [point.value for point in info.curves[1].points] == [0.2, 0.4, 0.3, 0.9]
    figure = plot_sweep(CROSSED, "calls", "score", color="strategy")
    assert figure.data[1].error_x.array[0] > 0
    assert figure.layout.xaxis.title.text == "model calls (per run)"


@pytest.mark.slow
def test_the_points_of_anytime_make_curves():
    rows = [row("a", f"{k}", k < at, at=at, repeat=r) for k in range(4) for r in range(2) for at in (1, 2, 4)]
    info = sweep_info(table(rows), "at", color="setting")
    assert [point.value for point in info.curves[0].points] == [0.25, 0.5, 1.0]


SAID = {
    "calls": ("Success rate by limit of model calls", "limit of model calls (per run)"),
    "tokens": ("Success rate by limit of tokens", "limit of tokens in and out (per run)"),
    "cost": (
        "Success rate by limit of cost",
        "limit of cost without cache hits (USD per run)",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("unit", SAID)
def test_success_at_matched_cost_says_its_unit_and_counts_its_runs_once(unit):
    runs = [run(tl.SelfConsistency(attempts=9), repeat=r) for r in range(2)]
    if unit == "cost":  # nothing is said of the price of these
        shown = tl.stats.anytime_performance(runs, [1, 2, 4, 8]).assign(
            unit=unit, at=[0.25, 0.5, 1.0, 2.0] * 2
        )
    else:
        shown = tl.stats.anytime_performance(runs, [1, 2, 4, 8], unit=unit)
        assert set(shown["unit"]) == {unit}
    figure = plot_sweep(shown, "at", color="setting")
    assert (figure.layout.title.text, figure.layout.xaxis.title.text) == SAID[unit]
    assert figure.layout.title.subtitle.text.startswith("2 runs  ·")
    assert figure.layout.xaxis.type == "log"
    first = "&#36;0.25" if unit == "cost" else "1"
    assert figure.layout.xaxis.ticktext[0] == first
    heat = plot_heatmap(shown, "at", "setting")
    assert heat.layout.xaxis.title.text == SAID[unit][1]
    assert heat.layout.title.subtitle.text.startswith("2 runs  ·")
    own = plot_sweep(shown.drop(columns="unit"), "at")
    assert own.layout.title.text == "Success rate by at"


@pytest.mark.slow
def test_amounts_that_are_multiplied_get_a_logarithmic_axis():
    assert is_multiplied([1, 2, 3, 4, 6, 8, 12, 16])
    assert is_multiplied([1e-4, 1e-3, 1e-2])
    for even in ([1, 2, 5], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [0, 1, 2, 4, 8, 16], [1, 100], []):
        assert not is_multiplied(even)
    rows = [row("a", f"{k}", k < 2, at=at) for k in range(4) for at in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)]
    assert list(plot_sweep(table(rows), "at").layout.xaxis.tickvals) == [1, 2, 3, 6, 12, 24]


def test_many_names_are_cut_in_the_middle_and_stay_apart():
    long = [f"TreeOfThoughts evaluation_draws=3 generate=propose beam_width={k}" for k in range(40)]
    ticks = named_axis(long)
    assert ticks["tickangle"] == -90
    assert len(set(ticks["ticktext"])) == 40
    assert max(map(len, ticks["ticktext"])) == 20
    assert ticks["ticktext"][7].endswith("width=7")
    assert named_axis(["IO", "CoT"])["tickangle"] == 0
    assert tick_labels([None, "x", 0.5], 20) == ["–", "x", "0.5"]
    alike = [f"{'a' * 20}{k}{'b' * 20}" for k in range(3)]  # they differ only where it would be cut
    assert tick_labels(alike, 20) == alike


@pytest.mark.slow
def test_points_lead_to_their_runs():
    figure = plot_sweep(CROSSED, "beam_width", color="generate")
    ids = figure.data[0].customdata[1]
    assert list(ids) == [f"b=5 sample/task {k}/0" for k in range(10)]
    assert (
        "b=5 sample/task 0/0, b=5 sample/task 1/0, b=5 sample/task 2/0 and 7 more"
        in (figure.data[0].hovertext[1])
    )
    worse = next(data for data in plot_pareto(CROSSED).data if data.name == "b=5 sample")
    assert worse.customdata[0][0] == "b=5 sample/task 0/0"
    assert (
        plot_heatmap(CROSSED, "beam_width", "generate").data[-1].customdata[0][1][0] == "b=5 sample/task 0/0"
    )
    many = table([row("a", f"{k}", True) for k in range(2 * MAX_RUN_IDS)])
    assert len(plot_sweep(many).data[0].customdata[0]) == MAX_RUN_IDS


# The frontier.


@pytest.mark.slow
def test_frontier_by_hand():
    info = frontier_info(CROSSED)
    assert info.names == ["IO", "b=1 sample", "b=1 propose", "b=5 propose", "b=5 sample"]
    assert info.on_frontier == [True, True, True, True, False]
    assert [point.value for point in info.cost] == [5.5, 14.5, 16.5, 44.5, 54.5]
    line = plot_pareto(CROSSED).data[0]
    assert list(line.y) == [0.1, 0.2, 0.4, 0.9]
    table_ = tl.stats.pareto_frontier(CROSSED)
    assert set(table_.loc[table_["frontier"], "setting"]) == set(np.array(info.names)[info.on_frontier])
    assert frontier_info(CROSSED, "tokens").cost[0].value == 5.5 * 110


@pytest.mark.slow
def test_cost_and_success_are_means_over_the_same_tasks():
    """A task that was repeated often weighs no more than the others, in success and in cost."""
    rows = [row("a", "often", False, calls=90, repeat=r) for r in range(8)]
    rows += [row("a", f"{k}", True, calls=2 + k) for k in range(3)]
    (cost,), (rate,) = (getattr(frontier_info(table(rows)), name) for name in ("cost", "success"))
    assert (cost.value, rate.value) == ((90 + 2 + 3 + 4) / 4, 3 / 4)
    assert cost.low < cost.value < cost.high
    assert tl.stats.pareto_frontier(table(rows))["calls"].item() == cost.value
    assert sweep_info(table(rows), "calls").curves[0].x == [cost.value]


@pytest.mark.slow
def test_settings_of_unknown_cost_are_named():
    rows = [row("a", "0", True, cost=None), row("b", "0", True)]
    info = frontier_info(table(rows), "cost")
    assert (info.names, info.unknown) == (["b"], ["a"])
    assert "unknown, not shown: a" in plot_pareto(table(rows), "cost").layout.title.subtitle.text


@pytest.mark.slow
def test_costs_far_apart_get_a_logarithmic_axis():
    near = grid([("a", 1, "sample", 10, 3), ("b", 2, "sample", 20, 5)])
    far = grid([("a", 1, "sample", 10, 3), ("b", 2, "sample", 2000, 5)])
    assert plot_pareto(near).layout.xaxis.type is None
    assert plot_pareto(far).layout.xaxis.type == "log"


@pytest.mark.slow
def test_settings_at_one_place_are_all_seen_where_they_are():
    frame = grid([(f"b={k}", k, "sample", 10, 5) for k in (1, 2, 3)] + [("c", 9, "sample", 40, 8)])
    figure = plot_pareto(frame)
    named = [data for data in figure.data if data.showlegend is not False]
    places = {data.name: (data.x[0], data.y[0]) for data in named}
    assert places["b=1"] == places["b=2"] == places["b=3"] != places["c"]
    sizes = [data.marker.size[0] for data in named if data.name != "c"]
    assert sizes == sorted(set(sizes), reverse=True)  # in the order in which they are drawn
    assert {data.marker.opacity for data in named} == {1}
    by_name = {data.name: data.hovertext[0] for data in named}
    assert "also here: b=1, b=3" in by_name["b=2"]
    assert "also here" not in by_name["c"]
    assert "rings around a point: more points at the same place" in figure.layout.title.subtitle.text


def looks_of(figure):
    """The symbol and colour of each name in the legend."""
    named = [data for data in figure.data if data.showlegend is not False]
    return {data.name: (data.marker.symbol, data.marker.color) for data in named}


@pytest.mark.slow
def test_the_legend_names_every_setting_and_fills_those_of_the_frontier():
    looks = looks_of(plot_pareto(CROSSED))
    assert set(looks) == set(CROSSED["setting"])
    assert {name for name, (symbol, _) in looks.items() if symbol.endswith("-open")} == {"b=5 sample"}
    assert len({(symbol.removesuffix("-open"), colour) for symbol, colour in looks.values()}) == len(looks)


@pytest.mark.slow
def test_more_settings_than_colours_and_symbols_share_a_marker():
    frame = grid([(f"s{k}", k, "sample", 30 - k, 5) for k in range(29)] + [("cheap", 1, "sample", 1, 9)])
    figure = plot_pareto(frame)
    looks = looks_of(figure)
    assert len(looks) == len(set(looks.values())) == 22
    assert "cheap" in looks  # the frontier is named first
    others = next(data for data in figure.data if data.name == "other settings")
    assert len(others.x) == len(others.hovertext) == 9
    assert "9 settings have no name in the legend" in figure.layout.title.subtitle.text


@pytest.mark.slow
def test_all_names_are_in_a_file_as_wide_as_a_column(tmp_path):
    name = "a setting with a long name, width={}"
    frame = grid([(name.format(k), k, "sample", 1 + 30 * k, 1 + k % 7) for k in range(12)])
    text = tl.figures.save(plot_pareto(frame), tmp_path / "a.svg", width=3.5).read_text()
    assert all(name.format(k) in text for k in range(12))
    assert 'class="scrollbar" rx="20" ry="3" width="0"' in text  # the legend is shown in full


# The heatmap.


def test_heatmap_by_hand():
    info = heatmap_info(CROSSED, "beam_width", "generate")
    assert (info.x, info.y) == ([1, 5, None], ["sample", "propose", None])
    values = [[None if cell is None else cell.value for cell in row_] for row_ in info.cells]
    assert values == [[0.2, 0.3, None], [0.4, 0.9, None], [None, None, 0.1]]


@pytest.mark.slow
def test_holes_and_unknown_cells_are_no_low_ones():
    rows = [row("a", "0", None, beam=1, generate="sample"), row("b", "0", False, beam=5, generate="propose")]
    figure = plot_heatmap(table(rows), "beam_width", "generate")
    grey, coloured = figure.data
    assert [list(line) for line in coloured.z] == [[None, None], [None, 0.0]]
    assert [list(line) for line in grey.text] == [["?", ""], ["", "?"]]
    assert [list(line) for line in grey.z] == [[0, 0], [0, None]]
    assert "no runs" in grey.hovertext[0][1]
    assert "1 run, 1 unknown" in grey.hovertext[0][0]
    assert "2 of them without runs" in figure.layout.title.subtitle.text


# Importance.


@pytest.mark.slow
def test_importance_of_a_crossed_grid_is_its_analysis_of_variance():
    import statsmodels.formula.api as formula
    from statsmodels.stats.anova import anova_lm

    solved = {(b, g): 2 * b + 3 * g + b * g for b in range(3) for g in range(2)}
    frame = grid([(f"{b} {g}", b, str(g), 1, right) for (b, g), right in solved.items()])
    info = importance_info(frame)
    means = pd.DataFrame([(str(b), str(g), n / 10) for (b, g), n in solved.items()], columns=["b", "g", "y"])
    squares = anova_lm(formula.ols("y ~ C(b) + C(g)", means).fit(), typ=2)["sum_sq"]
    shares = squares / squares.sum()
    got = dict(zip(info.names, info.alone, strict=True))
    assert got == pytest.approx({"beam_width": shares["C(b)"], "generate": shares["C(g)"]})
    assert info.beyond == pytest.approx(info.alone)  # balanced
    assert info.rest == pytest.approx(shares["Residual"])
    assert info.chance.tolist() == [2 / 5, 1 / 5]
    assert (info.low <= info.alone + 1e-9).all()
    assert (info.high >= info.alone - 1e-9).all()


def test_settings_that_were_changed_together_explain_nothing_beyond_each_other():
    frame = grid([(f"{b}{g} {k}", b, g, 1, n) for k in range(2) for b, g, n in ((1, "x", 2), (5, "y", 8))])
    frame["temperature"] = [0.0 if name.endswith("0") else 1.0 for name in frame["setting"]]
    info = importance_info(frame, settings=[*AXES, "temperature"])
    held = {name: (a, b) for name, a, b in zip(info.names, info.alone, info.beyond, strict=True)}
    assert held["beam_width"] == pytest.approx((1, 0))
    assert held["generate"] == pytest.approx((1, 0))
    assert held["temperature"] == pytest.approx((0, 0))


@pytest.mark.slow
def test_an_unbalanced_design_is_that_of_statsmodels():
    import statsmodels.formula.api as formula
    from statsmodels.stats.anova import anova_lm

    solved = [("a", 1, "x", 2), ("b", 1, "y", 5), ("c", 2, "x", 3), ("d", 3, "y", 9), ("e", 2, "y", 4)]
    frame = grid([(name, b, g, 1, n) for name, b, g, n in solved])
    frame["twin"] = [str(b == 1) for b in frame["beam_width"]]  # says nothing that beam_width does not
    info = importance_info(frame.drop(columns="twin"))
    means = pd.DataFrame([(str(b), g, n / 10) for _, b, g, n in solved], columns=["b", "g", "y"])
    fitted = formula.ols("y ~ C(b) + C(g)", means).fit()
    squares = anova_lm(fitted, typ=2)["sum_sq"] / fitted.centered_tss
    assert dict(zip(info.names, info.beyond, strict=True)) == pytest.approx(
        {"beam_width": squares["C(b)"], "generate": squares["C(g)"]}
    )
    first = formula.ols("y ~ C(b)", means).fit().rsquared
    assert dict(zip(info.names, info.alone, strict=True))["beam_width"] == pytest.approx(first)
    twins = importance_info(frame, settings=[*AXES, "twin"])
    assert dict(zip(twins.names, twins.beyond, strict=True))["twin"] == pytest.approx(0, abs=1e-9)


@pytest.mark.slow
def test_only_common_tasks_are_compared():
    rows = [row(n, f"{k}", k % 2 == 0, beam=b, generate=g) for n, b, g in
            (("a", 1, "x"), ("b", 1, "y"), ("c", 2, "x"), ("d", 2, "y")) for k in range(6)]  # fmt: skip
    assert np.isnan(importance_info(table(rows)).rest)  # they do not differ
    rows.append(row("a", "only here", True, beam=1, generate="x"))
    info = importance_info(table(rows))
    assert (info.tasks, info.unpaired) == (6, 1)
    apart = [
        row(n, f"{n}{k}", k < n_, beam=b, generate="x")
        for n, b, n_ in (("a", 1, 1), ("b", 2, 3))
        for k in range(4)
    ]
    assert importance_info(table(apart)).unpaired is None


@pytest.mark.slow
def test_a_baseline_that_lacks_the_settings_explains_none_of_them():
    baseline_free = importance_info(CROSSED[CROSSED["setting"] != "IO"])
    info = importance_info(CROSSED)
    assert (info.names, info.combinations) == (["generate", "beam_width"], 4)
    assert info.alone == pytest.approx(baseline_free.alone)
    assert info.lacking == (10, ["IO"])
    said = plot_importance(CROSSED).layout.title.subtitle.text
    assert "10 runs lack some of these settings, left out: IO" in said
    assert importance_info(CROSSED.drop(columns="strategy")).lacking == (10, ["IO"])
    # What the same strategy does without a value is a value: no window, and windows of 2 and 4.
    windows = CROSSED[CROSSED["setting"] != "IO"].assign(window=lambda frame: frame["beam_width"])
    windows["window"] = windows["window"].mask(windows["window"] == 1)
    found = importance_info(windows, settings=[*AXES, "window"])
    assert found.lacking == (0, [])
    assert "window" in found.names


@pytest.mark.slow
def test_one_task_has_no_interval():
    one = CROSSED[CROSSED["task"] == "task 3"]
    info = importance_info(one)
    assert info.tasks == 1
    assert np.isnan([*info.low, *info.high]).all()
    assert "nan" not in plot_importance(one).to_json().lower()


@pytest.mark.slow
def test_a_setting_of_which_no_value_occurs_twice_is_left_out():
    info = importance_info(grid([("a", 1, "x", 1, 2), ("b", 2, "x", 1, 4), ("c", 3, "y", 1, 6)]))
    assert (info.names, info.once) == (["generate"], ["beam_width"])
    alone = grid([("a", 1, "x", 1, 2), ("b", 2, "x", 1, 4)])
    assert "no value occurs twice" in plot_importance(alone).to_json()
    with pytest.raises(ValueError, match="no setting in this table has two values"):
        importance_info(grid([("a", 1, "x", 1, 2)]))


def ishigami(levels):
    """The function of Ishigami and Homma (1990), with a = 7 and b = 0.1, on a grid of three settings."""
    values = np.pi * (2 * (np.arange(levels) + 0.5) / levels - 1)
    one, two, three = (axis.ravel() for axis in np.meshgrid(values, values, values))
    frame = pd.DataFrame({"x1": one, "x2": two, "x3": three})
    frame["score"] = np.sin(one) + 7 * np.sin(two) ** 2 + 0.1 * three**4 * np.sin(one)
    return frame.assign(setting=[f"setting {k}" for k in range(len(frame))], task="t")


@pytest.mark.slow
def test_importance_of_a_known_function():
    """Its first-order Sobol indices are known (Saltelli et al. 2008). Results beside it are no settings."""
    frame = ishigami(12).assign(calls=lambda f: f["score"].rank(), any_of_kept=lambda f: f["score"] > 3)
    info = importance_info(frame, "score", settings=["x1", "x2", "x3"])
    got = dict(zip(info.names, info.alone, strict=True))
    assert got == pytest.approx({"x2": 0.4424, "x1": 0.3139, "x3": 0.0}, abs=0.02)
    assert info.beyond == pytest.approx(info.alone)
    assert info.rest == pytest.approx(0.2437, abs=0.02)


class Planted(tl.Strategy):
    """The answer is right if `a` is 1, whatever `b` is."""

    kind = "tests/planted"
    a: int
    b: int

    def think(self, task, at="0"):
        yield from tl.emit(tl.Thought(at, None if at == "0" else at.rpartition(".")[0], task.question))
        return tl.Answer("4" if self.a else "5", "answered", at)


@pytest.fixture(scope="module")
def planted():
    tasks = [tl.general(f"{k} + {4 - k}", answer=4, grade="number") for k in range(3)]
    strategies = {"planted": tl.grid(Planted, a=[0, 1], b=[0, 1, 2]), "other": tl.OneAnswer()}
    return wait(tl.Lab(Scripted(), runs=None).sweep(strategies, tasks))


@pytest.mark.slow
def test_the_settings_are_the_axes_of_the_sweep(planted):
    frame = planted.df()
    assert frame.attrs["axes"] == ["strategy", "a", "b"]
    results = {"leftover": frame["correct"], "any_of_kept": frame["correct"], "x": range(len(frame))}
    part = frame.assign(**results)[frame["strategy"] == Planted.kind].reset_index(drop=True)
    for given in (planted, frame, part):
        info = importance_info(given)
        assert dict(zip(info.names, info.alone, strict=True)) == pytest.approx({"a": 1, "b": 0})
        assert sweep_info(given, "a").pooled == ["b"]
    assert "held constant: strategy tests/planted, domain general" in (
        plot_sweep(part.assign(leftover=1)).layout.title.subtitle.text
    )
    assert importance_info(frame, settings=["b"]).once == ["b"]


@pytest.mark.slow
def test_what_is_no_table_of_a_sweep_needs_the_names_of_its_settings(planted):
    plain = pd.DataFrame(planted.df().to_dict("list"))
    with pytest.raises(ValueError, match=r"Cannot tell settings from results.*has setting, strategy, a"):
        plot_importance(plain)
    with pytest.raises(ValueError, match="no column 'width'"):
        plot_importance(plain, settings=["a", "width"])
    with pytest.raises(TypeError, match=r"must be a list of columns: got 'a'"):
        plot_importance(plain, settings="a")
    assert importance_info(plain, settings=["a", "b"]).names[0] == "a"
    with pytest.raises(ValueError, match="`of` must be a result"):
        importance_info(planted, "a")
    assert sweep_info(plain, "a").pooled == ["setting"]
    assert plot_sweep(plain, "a").layout.xaxis.title.text == "a (column)"
    assert plot_sweep(planted, "a").layout.xaxis.title.text == "a (setting)"


@pytest.mark.slow
def test_a_saved_sweep_knows_its_settings(planted, tmp_path):
    back = pd.read_parquet(planted.save(tmp_path / "sweep.parquet"))
    assert importance_info(back).names == ["a", "b"]


# Calibration.


@pytest.fixture(scope="module")
def searches():
    hands = [tl.game24(hand) for hand in ("1 1 4 6", "4 5 6 10", "1 2 3 4", "3 3 8 8")]
    model = tl.sim.SimGame24(noise=0.3)
    return [run(tl.TreeOfThoughts(evaluate=tl.Value(samples=3)), hand, model=model) for hand in hands]


@pytest.mark.slow
def test_calibration_is_that_of_the_diagnosis(searches):
    found = tl.stats.judge_evaluator(searches)
    info = calibration_info(found)
    curve = found.calibration()
    assert info.curve["thoughts"].tolist() == curve["thoughts"].tolist()
    assert info.curve["thoughts"].sum() == found.measures["labelled"]
    again = calibration_info(searches).curve["share"]
    assert again.tolist() == pytest.approx(info.curve["share"].tolist(), nan_ok=True)
    figure = plot_calibration(searches, bins=5)
    assert all(set(ids) <= {made.id for made in searches} for ids in figure.data[1].customdata)
    known = found.thoughts.iloc[0]
    assert any(f"{known.run_id} {known.node}" in nodes for nodes in info.nodes)
    assert f"AUC {found.measures['auc']:.2f}" in figure.layout.title.subtitle.text
    assert "simulated model" in figure.layout.title.subtitle.text
    with pytest.raises(ValueError, match="Invalid `bins`: got 0"):
        calibration_info(found, 0)


def doubtful(call):
    """A judge who now and then says nothing that can be read."""
    return "no idea" if call.purpose == "value" and call.node.endswith("0") else answer_to(call)


@pytest.mark.slow
def test_calibration_without_labels_says_so():
    with pytest.warns(UserWarning, match="evaluate replies unreadable"):
        figure = plot_calibration(run(tl.TreeOfThoughts(), model=Scripted(doubtful)))
    assert "no scored thought has a label" in figure.to_json()


# What every figure keeps.

DRAWN = {
    "plot_sweep": [{}, {"x": "beam_width", "color": "generate"}, {"x": "calls", "y": "cost"}, {"x": "task"}],
    "plot_heatmap": [{"x": "beam_width", "y": "generate"}, {"x": "setting", "y": "task", "z": "calls"}],
    "plot_pareto": [{}, {"cost": "cost"}],
    "plot_importance": [{}, {"of": "calls"}],
}
EACH = [(plot, options) for plot in figures_of("df") for options in DRAWN.get(plot.__name__, [{}])]
NAMES = [f"{plot.__name__}-{k}" for k, (plot, _) in enumerate(EACH)]
every_figure = pytest.mark.parametrize(("plot", "options"), EACH, ids=NAMES)


def test_every_figure_says_what_it_draws():
    drawn = {
        data: {plot.__name__ for plot in figures_of(data)} for data in ("run", "df", "runs", "deep_think")
    }
    assert set().union(*drawn.values()) == {plot.__name__ for plot in built_in("figures").values()}
    assert {"plot_tree", "plot_timeline"} <= drawn["run"]
    assert {"plot_sweep", "plot_pareto"} <= drawn["df"]
    assert (drawn["runs"], drawn["deep_think"]) == ({"plot_calibration"}, {"plot_confidence"})


@pytest.mark.nightly
@every_figure
def test_it_is_drawn_light_and_dark_of_a_table_or_a_sweep(plot, options):
    light, dark = plot(CROSSED, **options), plot(SimpleNamespace(df=lambda: CROSSED), dark=True, **options)
    assert isinstance(light, go.Figure)
    assert json.loads(light.to_json())["data"]
    assert light.layout.template.layout.paper_bgcolor == "#ffffff"
    assert dark.layout.template.layout.paper_bgcolor == "#111418"
    assert not isinstance(light, go.FigureWidget)


@pytest.mark.slow
@every_figure
def test_its_axes_say_their_unit(plot, options):
    figure = plot(CROSSED, **options)
    for axis in [*figure.select_xaxes(), *figure.select_yaxes()]:
        assert "(" in (axis.title.text or "(")
    if figure.data[0].type != "parcoords":
        assert figure.layout.xaxis.title.text
        assert figure.layout.yaxis.title.text


def texts_of(value):
    if isinstance(value, dict):
        return [text for name, part in value.items() if name not in ("template", "customdata")
                for text in texts_of(part)]  # fmt: skip
    if isinstance(value, list):
        return [text for part in value for text in texts_of(part)]
    return [value] if isinstance(value, str) else []


@pytest.mark.slow
@every_figure
def test_no_text_is_markup_and_a_simulated_model_is_said(plot, options):
    frame = CROSSED.copy()
    for name in ("setting", "task", "generate", "run_id"):
        frame[name] = frame[name].astype("string") + HOSTILE
    frame = frame.rename(columns={"generate": f"generate {HOSTILE}"}).assign(simulated=True)
    options = {name: f"generate {HOSTILE}" if held == "generate" else held for name, held in options.items()}
    figure = json.loads(plot(frame, **options).to_json())
    for text in texts_of(figure):
        assert "<script" not in text
        assert "$x" not in text
    assert "simulated model" in figure["layout"]["title"]["subtitle"]["text"]


@every_figure
def test_a_table_that_is_none_is_an_error(plot, options):
    with pytest.raises(TypeError, match="several runs: got int"):
        plot(3, **options)
    with pytest.raises(ValueError, match=r"The table has no column '\w+'"):
        plot(CROSSED[["run_id", "strategy"]], **options)


@pytest.mark.slow
@every_figure
def test_one_row_is_enough_or_it_is_said(plot, options):
    one = table([row("a", "t", True, beam=1, generate="sample")])
    if plot is plot_importance:
        with pytest.raises(ValueError, match="no setting in this table has two values"):
            plot(one, **options)
    else:
        assert json.loads(plot(one, **options).to_json())["data"]


@pytest.mark.nightly
@every_figure
def test_large_tables_are_reduced_and_it_is_said(plot, options):
    """Each is a little larger than what its figure draws."""
    largest = 500 if plot is plot_pareto or options.get("y") == "cost" else 150
    rows = [
        row(
            f"setting {k}", f"task {t}", (k + t) % 3 == 0, beam=k % 70, generate=f"way {k // 70}", calls=1 + k
        )
        for k in range(largest + 10)
        for t in range(2)
    ]
    figure = plot(table(rows), **options)
    assert len(figure.to_json()) < 3e6
    said = figure.layout.title.subtitle.text
    if plot is not plot_importance and options != {"x": "task"}:
        assert any(words in said for words in ("not shown", "too many values")), said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("curves", "values", "left_out"),
    [
        (MAX_CURVES + 2, 2, (0, 2)),
        (2, MAX_VALUES + 5, (5, 0)),
        (MAX_CURVES, 2, (0, 0)),
        (2, MAX_VALUES, (0, 0)),
    ],
)
def test_how_much_is_reduced(curves, values, left_out):
    rows = [
        row(f"{k} {beam}", "t", True, beam=beam, generate=f"{k}", calls=k * values + beam + 1)
        for k in range(curves)
        for beam in range(values)
    ]
    info = sweep_info(table(rows), "beam_width", color="generate")
    assert (len(info.curves), len(info.curves[0].x)) == (min(curves, MAX_CURVES), min(values, MAX_VALUES))
    assert info.left_out == left_out


@every_figure
def test_two_rows_of_one_run_are_an_error_and_no_repeats(plot, options):
    with pytest.raises(ValueError, match="more than one row of run"):
        plot(pd.concat([CROSSED, CROSSED]), **options)


@pytest.mark.slow
def test_the_points_of_anytime_are_not_pooled_over_amounts():
    shown = tl.stats.anytime_performance([run(tl.SelfConsistency(attempts=n)) for n in (2, 4)], [1, 2, 4])
    assert len(plot_sweep(shown, "at", color="setting").data) == 2
    for x in ("setting", "calls"):
        with pytest.raises(ValueError, match=r"or x='at' in a figure"):
            plot_sweep(shown, x)


@pytest.mark.slow
@every_figure
def test_what_nobody_graded_is_no_failure_and_no_crash(plot, options):
    frame = CROSSED.assign(correct=pd.array([None] * len(CROSSED), dtype="boolean"), score=pd.NA)
    frame = frame.astype({"score": "Float64"})
    if plot in (plot_importance, plot_pareto) and options != {"of": "calls"}:
        with pytest.raises(
            ValueError, match=r"the column 'correct' contains no known value|both a grade and"
        ):
            plot(frame, **options)
    else:
        assert json.loads(plot(frame, **options).to_json())["data"]


@pytest.mark.parametrize("plot", [plot_sweep, plot_heatmap])
def test_a_column_of_words_is_no_figure(plot):
    options = {"y": "generate"} if plot is plot_sweep else {"x": "setting", "y": "task", "z": "generate"}
    with pytest.raises(ValueError, match="must contain numbers or booleans"):
        plot(CROSSED, **options)
    for name, words in (
        ("calls", "'calls': got values of type"),
        ("correct", "must contain only True, False"),
    ):
        with pytest.raises(ValueError, match=words):
            plot_pareto(CROSSED.assign(**{name: "many"}))
    with pytest.raises(ValueError, match="must contain only True, False and NA"):
        plot_importance(CROSSED.assign(correct="yes"))
    with pytest.raises(ValueError, match="must be different columns"):
        plot_heatmap(CROSSED, "task", "task")


def test_a_plain_table_of_ones_own():
    """No task, no run id, plain dtypes."""
    frame = pd.DataFrame(
        {"setting": list("aabb"), "lr": [0.1, 0.1, 0.2, 0.2], "correct": [True, False, True, True]}
    )
    info = sweep_info(frame, "lr")
    assert [point.value for point in info.curves[0].points] == [0.5, 1.0]
    assert info.curves[0].points[0].run_ids == []
    frame["note"] = ["x", None, "y", "z"]
    assert [curve.name for curve in sweep_info(frame, "lr", color="note").curves] == ["x", "y", "z", None]


# Many settings.


def test_names_are_moved_apart_no_further_than_needed():
    assert spread([], 0.1) == []
    assert spread([0.2, 0.8, 0.5], 0.1) == pytest.approx([0.2, 0.8, 0.5])
    assert spread([0.5, 0.5], 0.1) == pytest.approx([0.45, 0.55])
    assert spread([1.0, 1.0, 0.1], 0.1) == pytest.approx([0.9, 1.0, 0.1])
    assert spread([0.0, 0.0], 0.1) == pytest.approx([0.0, 0.1])
    crowded = sorted(spread([0.9] * 12 + [0.91], 0.05))
    assert np.diff(crowded).min() > 0.05 - 1e-9
    assert 0 <= crowded[0] < crowded[-1] <= 1


def many(settings, widths=(1, 2, 4, 8)):
    """A table of a swept beam for each way to generate, and a baseline."""
    solved = [
        (f"ToT search.width={width} evaluate.samples={k}", width, f"way {k} to generate", width * (k + 1),
         (k + width) % 4 * 3)
        for k in range(settings) for width in widths
    ]  # fmt: skip
    return grid([*solved, ("one answer", None, None, 1, 2)])


@pytest.mark.nightly
def test_up_to_eight_curves_share_a_plot_and_more_get_one_each():
    for count, plots in ((2, 1), (8, 1), (9, 9), (24, 24)):
        figure = plot_sweep(many(count), "beam_width", color="generate")
        curves = [trace for trace in figure.data if trace.error_y.array is not None]
        assert len(curves) == count
        assert len({trace.xaxis for trace in curves}) == plots
        named = [note.text for note in figure.layout.annotations]
        assert {f"way {k} to generate" for k in range(count)} <= set(named)
        assert ("one answer 20.0%" in named) == (plots == 1)  # otherwise the legend names it
        legend = [trace.name for trace in figure.data if trace.showlegend is not False]
        assert plots == 1 or legend == ["one answer 20.0%"]
        assert (figure.layout.showlegend is False) == (plots == 1)
        ranges = {axis.range for axis in figure.select_yaxes()} - {None}
        assert len(ranges) == 1
        assert ("others in grey" in figure.layout.title.subtitle.text) == (plots > 1)


@pytest.mark.slow
def test_a_small_plot_shows_its_curve_and_the_others_in_one_grey():
    figure = plot_sweep(many(9), "beam_width", color="generate")
    by_plot = {}
    for trace in figure.data:
        by_plot.setdefault(trace.xaxis, []).append(trace)
    behind, curve = by_plot["x3"]
    info = sweep_info(many(9), "beam_width", color="generate")
    assert list(curve.y) == [point.value for point in info.curves[2].points]
    assert sum(value is not None for value in behind.y) == 8 * 4
    assert curve.line.color != behind.line.color
    assert list(curve.customdata[0]) == info.curves[2].points[0].run_ids


@pytest.mark.slow
def test_more_than_eight_names_stand_on_the_vertical_axis():
    few, lots = plot_sweep(many(2, (1, 2))), plot_sweep(many(6))
    assert "one answer" in few.layout.xaxis.ticktext
    assert "one answer" in lots.layout.yaxis.ticktext
    assert lots.layout.yaxis.range[0] > lots.layout.yaxis.range[1]  # the first one is at the top
    assert list(lots.data[0].x) == [point.value for point in sweep_info(many(6)).curves[0].points]
    assert lots.data[0].error_x.array is not None
    assert lots.data[0].error_y.array is None
    assert lots.layout.xaxis.title.text == "success rate (% of runs)"
    assert lots.layout.height > few.layout.height


@pytest.mark.slow
def test_the_heading_says_what_was_held_constant():
    frame = many(3).assign(lr=0.5, note="a <b>", cost=1.0, calls=3, propose_calls=2, strategy_used="x")
    frame = frame.assign(answer_state="finished", margin=3)
    frame.attrs["axes"] = [*AXES, "lr", "note"]
    said = plot_sweep(frame, "beam_width", color="generate").layout.title.subtitle.text
    assert "held constant: domain game24, lr 0.5, note a &lt;b&gt;<br>" in said
    assert "held constant" not in plot_sweep(CROSSED.drop(columns="domain")).layout.title.subtitle.text
    part = frame[frame["beam_width"] == 2]
    assert "beam_width 2, domain" in plot_sweep(part, "generate").layout.title.subtitle.text
    assert "beam_width 2" not in plot_sweep(part, "beam_width").layout.title.subtitle.text


@pytest.mark.nightly
@pytest.mark.parametrize("plot", [plot_pareto, plot_sweep, tl.figures.plot_scaling])
def test_a_setting_that_some_runs_do_not_have_was_not_held_constant(plot):
    """`None` may be a value, such as no limit of nodes."""

    def heading(limits):
        frame = CROSSED.assign(**{"stop.nodes": limits})
        frame.attrs["axes"] = [*AXES, "stop.nodes"]
        return plot(frame).layout.title.subtitle.text

    limits = CROSSED["setting"].eq(CROSSED["setting"].iloc[0]).map({True: 13, False: None}).astype("Int64")
    assert 0 < limits.isna().sum() < len(limits)
    assert "stop.nodes" not in heading(limits)
    assert "stop.nodes" not in heading(limits.astype(object).where(limits.notna(), None))
    assert "stop.nodes" not in heading(None)
    assert "held constant: domain game24, stop.nodes 13" in heading(13)


BOXES = """() => {
  const boxes = (selector) => [...document.querySelectorAll(selector)].flatMap((node) => {
    const { left, right, top, bottom, width } = node.getBoundingClientRect();
    return width ? [[left, top, right, bottom, node.textContent]] : [];
  });
  const whiskers = [...document.querySelectorAll(".errorbar path")].flatMap((path) => {
    const { left, right, top, bottom } = path.getBoundingClientRect();
    return [[left, top, right, bottom, "whisker"]];
  });
  return {
    names: [...boxes(".annotation-text"), ...boxes(".textpoint text"), ...boxes(".gtitle, .gtitle-subtitle"),
            ...boxes(".xtick text, .ytick text, .xtitle, .ytitle, .legendtext")],
    marks: [...whiskers, ...boxes(".point")],
  };
}"""
"""The boxes of every text of a figure, and of every interval and point."""

NARROW, WIDE = 760, 1100
SHOWN = {
    **{f"{n} lines": (plot_sweep, n, {"x": "beam_width", "color": "generate"}) for n in (3, 8, 12, 24)},
    **{f"{n} names": (plot_sweep, n, {}) for n in (2, 3, 8)},
    **{f"{n} points": (plot_sweep, n, {"x": "calls", "color": "generate"}) for n in (3, 8, 12)},
    **{f"{n} names by color": (plot_sweep, n, {"color": "strategy"}) for n in (2, 6)},
    "names below small plots": (plot_sweep, 12, {"x": "strategy", "color": "generate"}),
    "names beside small plots": (plot_sweep, 9, {"x": "setting", "color": "generate"}),
    **{f"frontier of {n}": (plot_pareto, n, {}) for n in (3, 8)},
}


def overlap(one, other):
    """By how many pixels two boxes overlap, or 0."""
    across = min(one[2], other[2]) - max(one[0], other[0])
    down = min(one[3], other[3]) - max(one[1], other[1])
    return max(min(across, down), 0)


@pytest.mark.nightly
def test_no_name_covers_an_interval_a_point_or_another_name(chrome):
    page = chrome.new_page()
    page.set_content("<body style='margin:0'><div id=figure></div>")
    page.add_script_tag(content=get_plotlyjs())
    for shown, (plot, count, options) in SHOWN.items():
        figure = plot(many(count), **options)
        for width in (NARROW, WIDE):
            data = json.loads(figure.update_layout(width=width).to_json())
            page.evaluate("({ data, layout }) => Plotly.newPlot('figure', data, layout)", data)
            found = page.evaluate(BOXES)
            names, marks = found["names"], found["marks"]
            assert len(marks) >= 4
            assert len(names) >= 4
            for k, name in enumerate(names):
                assert 0 <= name[0] < name[2] <= width, (shown, width, name)
                for other in [*names[:k], *marks]:
                    assert overlap(name, other) <= 1, (shown, width, name, other)
    page.close()
