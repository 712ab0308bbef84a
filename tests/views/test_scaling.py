"""Success against compute, one line per method: against sums made by hand."""

import pandas
import pytest
from support import wait

import tot_lab as tl
from tot_lab.views.figures.scaling import scaling_info


def rows(*settings):
    """A table of (setting, task, correct, calls)."""
    return pandas.DataFrame(
        [
            {"setting": setting, "task": task, "correct": correct, "calls": calls}
            for setting, task, correct, calls in settings
        ]
    )


DF = rows(
    ("beam search.width=5", "a", True, 50),
    ("beam search.width=5", "b", True, 70),
    ("beam search.width=1", "a", True, 10),
    ("beam search.width=1", "b", False, 20),
    ("vote", "a", False, 5),
    ("vote", "b", False, 5),
)


def test_the_scales_of_a_method_are_one_line_in_order_of_cost():
    beam, vote = scaling_info(DF)
    assert (beam.name, beam.settings) == ("beam", ["beam search.width=1", "beam search.width=5"])
    assert [point.value for point in beam.cost] == [15, 60]
    assert [point.value for point in beam.success] == [0.5, 1.0]
    assert (vote.name, vote.cost[0].value, vote.success[0].value) == ("vote", 5, 0)
    rates = tl.stats.success_rates(DF).set_index("setting")
    assert beam.success[0].low == rates.loc["beam search.width=1", "low"]


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("ToT", "ToT"),
        ("ToT search.width=2 evaluate.samples=3", "ToT"),
        ("self-consistency of 5", "self-consistency of 5"),
        ("best of strategy=chain of thought attempts=3", "best of"),
        ("a = b", "a = b"),
    ],
)
def test_a_method_is_the_label_without_its_settings(label, name):
    (method,) = scaling_info(rows((label, "a", True, 1)))
    assert method.name == name


def test_a_setting_without_cost_is_left_out():
    assert scaling_info(rows(("free", "a", True, 0), ("unknown", "a", True, None))) == []


@pytest.mark.slow
def test_the_oracle_is_the_share_of_runs_with_a_right_leaf_and_is_dashed():
    lab = tl.Lab(tl.sim.SimGame24(skill=0.3, seed=3), runs=None)
    sweep = wait(lab.sweep({"vote": tl.grid(tl.SelfConsistency, {"attempts": [3, 12]})}, tl.game24_tasks(4)))
    (vote,) = scaling_info(sweep)
    table = sweep.df()
    for setting, point in zip(vote.settings, vote.oracle, strict=True):
        right = []
        for run in map(sweep.run, table[table["setting"] == setting]["run_id"]):
            held = [run.task.domain.answer(run.task, [leaf.text]) for leaf in run.tree.leaves()]
            right.append(any(run.task.grade(answer or "") == 1 for answer in held))
        assert point.value == sum(right) / len(right)
    figure = tl.figures.plot_scaling(sweep)
    assert [line.line.dash for line in figure.data] == [None, "dash"]
    assert figure.layout.xaxis.type == "log"
    assert "simulated" in figure.to_json()
    assert sweep.run(figure.data[0].customdata[0][0]).strategy.attempts == 3


@pytest.mark.slow
def test_the_oracle_of_a_single_setting_is_seen():
    """A line through one point has no length: both have a symbol, and that of the oracle is open."""
    lab = tl.Lab(tl.sim.SimGame24(skill=0.3, seed=3), runs=None)
    figure = tl.figures.plot_scaling(wait(lab.sweep({"vote": tl.SelfConsistency()}, tl.game24_tasks(4))))
    success, oracle = figure.data
    assert (len(success.x), len(oracle.x)) == (1, 1)
    assert success.mode == oracle.mode == "lines+markers"
    assert oracle.marker.symbol == f"{success.marker.symbol}-open"
    assert "dashed and open symbols: a right answer at any leaf" in figure.to_json()


@pytest.mark.slow
def test_a_plain_table_has_no_oracle():
    assert [line.name for line in tl.figures.plot_scaling(DF).data if len(line.x)] == ["beam", "vote"]


@pytest.mark.slow
def test_points_are_drawn_at_the_cost_that_they_have_and_each_is_seen():
    """Also where one is a little dearer than another: no order is turned round."""
    names = "abcdefghijklmnopq"
    near = rows(*((name, task, True, 40) for name in names for task in "xy"), ("r", "x", True, 40.4))
    lines = [line for line in tl.figures.plot_scaling(near).data if len(line.x)]
    assert [line.x[0] for line in lines] == [40] * 17 + [pytest.approx(40.4)]
    sizes = [line.marker.size[0] for line in lines[:17]]
    assert sizes == sorted(set(sizes), reverse=True)  # the first is drawn first, below the others
    assert min(sizes) >= 8
    assert max(sizes) < 50
    caps = [line.error_y.width for line in lines[:17]]
    assert caps == sorted(set(caps), reverse=True)
    assert all(line.marker.opacity == 1 for line in lines)


@pytest.mark.slow
def test_points_apart_have_no_rings_and_the_heading_explains_rings():
    sizes = {size for line in tl.figures.plot_scaling(DF).data for size in line.marker.size}
    assert len(sizes) == 1
    assert "rings around a point" not in tl.figures.plot_scaling(DF).to_json()
    same = rows(("a", "x", True, 40), ("b", "x", True, 40))
    assert "rings around a point: more points at the same place" in tl.figures.plot_scaling(same).to_json()


@pytest.mark.slow
def test_the_axis_has_whole_ticks():
    axis = tl.figures.plot_scaling(DF).layout.xaxis
    assert "logarithmic" in axis.title.text
    assert dict(zip(axis.tickvals, axis.ticktext, strict=True))[20_000] == "20,000"


@pytest.mark.slow
def test_the_picture_says_so_if_no_dashed_line_is_seen():
    lab = tl.Lab(tl.sim.SimGame24(skill=1.0), runs=None)
    tree = tl.TreeOfThoughts(stop=tl.Stop(depth=3))
    hidden = tl.figures.plot_scaling(wait(lab.sweep({"tree": tree}, tl.game24_tasks(2))))
    assert "nowhere above the success rate here" in hidden.to_json()


def samples_table():
    rng = [[True, True, False, False], [True, False, False, False], [False] * 4, [True] * 4]
    return pandas.DataFrame(
        [
            {"setting": "one", "task": f"task {k}", "correct": correct, "answer": str(correct)}
            for k, grades in enumerate(rng)
            for correct in grades
        ]
    ).assign(output_tokens=50)


def test_estimates_are_lines_over_the_number_of_samples():
    df = samples_table()
    estimates = pandas.concat([tl.stats.pass_at_k(df), tl.stats.majority_at_k(df)])
    passed, voted = scaling_info(estimates)
    assert (passed.name, voted.name) == ("pass@k", "majority@k")
    assert [point.value for point in passed.cost] == [1, 2, 4]
    assert [point.value for point in passed.success] == list(tl.stats.pass_at_k(df)["rate"])
    assert [point.value for point in scaling_info(estimates, "output_tokens")[0].cost] == [50, 100, 200]
    with pytest.raises(ValueError, match="cost must be 'k' or 'output_tokens' for a table of estimates: got"):
        scaling_info(estimates, "calls")


def test_a_figure_of_estimates_says_what_it_shows():
    figure = tl.figures.plot_scaling(tl.stats.pass_at_k(samples_table().assign(simulated=True)))
    text = str(figure.to_dict())
    assert "samples (per task)" in text
    assert "simulated" in text
    assert "4 tasks" in figure.data[0].hovertext[0]
    assert "2 samples per task" in figure.data[0].hovertext[1]
    assert " run" not in figure.data[0].hovertext[0]
