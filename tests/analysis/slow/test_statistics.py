"""Statistics against values that were published or computed by another route, and against simulation."""

import itertools
import math

import numpy as np
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest, fisher_exact
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint
from support import mostly_nightly

import tot_lab as tl
from tot_lab.analysis import statistics

NA = None


def runs(**solved):
    """One row per run: of each setting, by task, what its repeats came to."""
    rows = [
        (setting, f"task {number}", repeat, correct)
        for setting, tasks in solved.items()
        for number, repeats in enumerate(tasks)
        for repeat, correct in enumerate(repeats if isinstance(repeats, list) else [repeats])
    ]
    df = pandas.DataFrame(rows, columns=["setting", "task", "repeat", "correct"])
    return df.astype({"setting": "category", "task": "category", "correct": "boolean"})


def paired(both, a_only, b_only, neither):
    """Two settings on so many tasks of each sort."""
    cells = [(True, True)] * both + [(True, False)] * a_only + [(False, True)] * b_only
    cells += [(False, False)] * neither
    return runs(a=[a for a, _ in cells], b=[b for _, b in cells])


def correlated(random, rate, alike, tasks, repeats):
    """Shares of repeats solved, by task: beta-binomial, `alike` is the correlation inside a task."""
    if alike == 0:
        return random.binomial(repeats, rate, tasks) / repeats
    weight = 1 / alike - 1
    return random.binomial(repeats, random.beta(rate * weight, (1 - rate) * weight, tasks)) / repeats


# One setting.


# Newcombe (1998, Statistics in Medicine 17:857), table I, Wilson's score interval without correction.
@pytest.mark.parametrize(
    ("solved", "of", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_without_repeats_the_interval_is_wilsons(solved, of, low, high):
    (row,) = tl.stats.success_rates(runs(a=[True] * solved + [False] * (of - solved))).itertuples()
    assert (row.runs, row.tasks, row.solved) == (of, of, solved)
    assert row.rate == pytest.approx(solved / of)
    assert (row.low, row.high) == pytest.approx((low, high), abs=6e-5)
    assert (row.low, row.high) == pytest.approx(proportion_confint(solved, of, method="wilson"))


@pytest.mark.nightly
@pytest.mark.parametrize("rate", [0.2, 0.5])
@pytest.mark.parametrize("alike", [0.0, 0.3, 0.7, 1 - 1e-9])
@pytest.mark.parametrize(("tasks", "repeats"), mostly_nightly([(10, 5), (30, 4), (100, 3)], [(30, 4)]))
def test_with_repeats_the_interval_covers(rate, alike, tasks, repeats):
    random = np.random.default_rng(5)
    drawn = [correlated(random, rate, alike, tasks, repeats) for _ in range(500)]
    sizes, even = np.full(tasks, repeats), np.full(tasks, 1 / tasks)
    intervals = [statistics.wilson(shares, sizes, even, 0.95) for shares in drawn]
    covered = np.mean([low <= rate <= high for low, high in intervals])
    assert covered > 0.911  # 0.95 less four standard errors of the simulation
    if alike > 0.5 and tasks >= 30:  # as if repeats were samples of their own, it would not
        naive = [
            proportion_confint(s.mean() * s.size * repeats, s.size * repeats, method="wilson") for s in drawn
        ]
        assert np.mean([low <= rate <= high for low, high in naive]) < 0.85


def test_repeats_that_are_all_alike_tell_no_more_than_the_tasks():
    outcomes = [True] * 12 + [False] * 18
    once = tl.stats.success_rates(runs(a=outcomes))
    thrice = tl.stats.success_rates(runs(a=[[solved] * 3 for solved in outcomes]))
    assert thrice["runs"].item() == 90
    assert thrice[["rate", "low", "high"]].equals(once[["rate", "low", "high"]])


@pytest.mark.parametrize("solved", [True, False])
def test_where_all_agree_the_interval_is_that_of_the_tasks(solved):
    (row,) = tl.stats.success_rates(runs(a=[[solved] * 4] * 6)).itertuples()
    assert (row.low, row.high) == pytest.approx(proportion_confint(6 * solved, 6, method="wilson"))


def test_one_task_however_often_is_one_sample():
    (row,) = tl.stats.success_rates(runs(a=[[True, True, False, True]])).itertuples()
    assert row.rate == 0.75
    assert (row.low, row.high) == pytest.approx(proportion_confint(0.75, 1, method="wilson"))


def test_tasks_as_different_as_chance_makes_them_count_as_independent_runs():
    drawn = np.repeat([0.0, 0.25, 0.5, 0.75, 1.0], [1, 4, 6, 4, 1])  # exactly binomial, 4 runs a task
    low, high = statistics.wilson(drawn, np.full(16, 4), np.full(16, 1 / 16), 0.95)
    # Spread 0.0667/16 instead of 0.25/64: 60 runs' worth; less by (t(63)/t(15))², Korn and Graubard.
    assert (low, high) == pytest.approx(proportion_confint(26.37, 52.74, method="wilson"), abs=1e-4)


def test_what_was_not_graded_and_what_failed_is_said():
    df = runs(a=[True, False, NA, NA], b=[NA, NA, NA, NA])
    df["error"] = pandas.array([NA, NA, NA, "ValueError: oh", NA, NA, NA, NA], dtype="string")
    first, second = tl.stats.success_rates(df).itertuples()
    assert (first.runs, first.tasks, first.solved, first.errors, first.ungraded) == (2, 2, 1, 1, 1)
    assert first.rate == 0.5
    assert (second.runs, second.ungraded) == (0, 4)
    assert pandas.isna(second.rate)
    assert pandas.isna(second.low)


@pytest.mark.parametrize(("errors", "rate"), [(["ValueError: oh", NA], 0.0), ([NA, "ValueError: oh"], 1.0)])
def test_a_failed_run_is_neither_right_nor_wrong_whatever_its_grade(errors, rate):
    df = runs(a=[True, False])
    df["error"] = errors
    (row,) = tl.stats.success_rates(df).itertuples()
    assert (row.rate, row.runs, row.errors) == (rate, 1, 1)


def test_each_task_weighs_the_same():
    assert tl.stats.success_rates(runs(a=[[True, True, True, True], [False]]))["rate"].item() == 0.5


def test_the_table_keeps_its_order_and_has_documented_types():
    shown = tl.stats.success_rates(runs(z=[True, False], a=[True, True]))
    assert list(shown["setting"]) == ["z", "a"]
    assert {name: str(dtype) for name, dtype in shown.dtypes.items()} == {
        "setting": "category",
        **dict.fromkeys(["runs", "tasks", "solved", "errors", "ungraded"], "Int64"),
        **dict.fromkeys(["rate", "low", "high"], "Float64"),
        "lost": "string",
    }


def test_settings_may_be_told_apart_by_several_columns():
    df = runs(a=[True, False], b=[True, True])
    df["beam"] = [1, 1, 2, 2]
    shown = tl.stats.success_rates(df, by=["beam", "setting"])
    assert list(shown.columns[:2]) == ["beam", "setting"]
    assert list(shown["rate"]) == [0.5, 1.0]


def test_anything_with_a_table_will_do():
    class Table:
        def df(self):
            return runs(a=[True, False])

    assert tl.stats.success_rates(Table())["rate"].item() == 0.5
    plain = pandas.DataFrame({"setting": "a", "task": [1, 2], "correct": [1, 0]})
    assert tl.stats.success_rates(plain)["rate"].item() == 0.5


def test_bad_tables_are_named():
    with pytest.raises(ValueError, match=r"no column 'correct'\. It has setting, task"):
        tl.stats.success_rates(pandas.DataFrame({"setting": ["a"], "task": ["t"]}))
    with pytest.raises(ValueError, match="no column 'beam'"):
        tl.stats.success_rates(runs(a=[True]), by="beam")
    with pytest.raises(ValueError, match="'correct' must contain only True, False and NA"):
        tl.stats.success_rates(pandas.DataFrame({"setting": ["a"], "task": ["t"], "correct": ["yes"]}))
    with pytest.raises(ValueError, match="by must name at least one column"):
        tl.stats.success_rates(runs(a=[True]), by=[])
    with pytest.raises(TypeError, match=r"by must be one column: got \['setting'\]"):
        tl.stats.compare(runs(a=[True], b=[True]), "a", "b", by=["setting"])
    with pytest.raises(ValueError, match="no row"):
        tl.stats.success_rates(runs(a=[True])[:0])
    with pytest.raises(TypeError, match="several runs: got int"):
        tl.stats.success_rates([1])
    with pytest.raises(ValueError, match="confidence"):
        tl.stats.success_rates(runs(a=[True]), confidence=95)
    twice = runs(a=[True, False]).assign(run_id=["r1", "r1"])
    with pytest.raises(ValueError, match=r"more than one row of run 'r1'.*\['setting', 'at'\]"):
        tl.stats.success_rates(twice)


def test_a_task_may_be_what_is_told_apart():
    df = runs(a=[[True, False], [True, True]], b=[[False, False], [True, False]])
    assert list(tl.stats.success_rates(df, by="task")["rate"]) == [0.25, 0.75]
    assert list(tl.stats.success_rates(df, by=["setting", "task"])["rate"]) == [0.5, 1.0, 0.0, 0.5]


def test_an_error_without_a_text_is_none():
    df = runs(a=[True, False]).assign(error="")
    assert tl.stats.success_rates(df)[["errors", "rate"]].to_numpy().tolist() == [[0, 0.5]]


def test_rows_that_cannot_be_counted_are_named():
    df = runs(a=[True, False])
    for name in ("setting", "task"):
        holed = df.assign(**{name: df[name].where([True, False])})
        with pytest.raises(ValueError, match=f"The column '{name}' is empty in 1 of 2 rows"):
            tl.stats.success_rates(holed)
    with pytest.raises(ValueError, match="more than one row of one run"):
        tl.stats.success_rates(pandas.concat([df, df]))
    assert tl.stats.success_rates(pandas.concat([df, df.assign(repeat=1)]))["runs"].item() == 4
    with pytest.raises(ValueError, match="by='rate' is also the name of a column of the result"):
        tl.stats.success_rates(df.assign(rate=1), by=["setting", "rate"])


def test_a_task_with_many_repeats_lends_none_to_the_others():
    """Nine tasks once and one 1,000 times are ten samples, however alike the repeats are."""
    solved = [[True]] * 4 + [[False]] * 5 + [[True, False] * 500]
    (row,) = tl.stats.success_rates(runs(a=solved)).itertuples()
    assert (row.runs, row.rate) == (1009, pytest.approx(0.45))
    low, high = proportion_confint(0.45 * 11.1, 11.1, method="wilson")  # 1 / (9/100 + 1/100,000) at most
    assert row.low <= low < high <= row.high


@pytest.mark.parametrize("alike", [0.0, 0.3, 0.8])
@pytest.mark.parametrize("tasks", [8, 30])
def test_so_it_covers_where_tasks_weigh_as_much_as_they_have_runs(alike, tasks):
    """As the thoughts of a calibration bin do; taken as independent they covered 59 times in 100."""
    random, covered, naive = np.random.default_rng(7), 0, 0
    for _ in range(400):
        sizes = random.geometric(0.25, tasks)
        weight = 1 / alike - 1 if alike else np.inf
        skill = random.beta(weight / 2, weight / 2, tasks) if alike else np.full(tasks, 0.5)
        solved = random.binomial(sizes, skill)
        low, high = statistics.wilson(solved / sizes, sizes, sizes / sizes.sum(), 0.95)
        covered += low <= 0.5 <= high
        low, high = proportion_confint(solved.sum(), sizes.sum(), method="wilson")
        naive += low <= 0.5 <= high
    assert covered / 400 > 0.88
    assert alike < 0.8 or naive / 400 < 0.7


# Two settings.


# Fay (2010, the R Journal 2:53; R: exact2x2::mcnemar.exact): 9 against 2. Fagerland, Lydersen and Laake
# (2013, BMC Medical Research Methodology 13:91), table 7: 1 against 7, and 6 against 16.
@pytest.mark.parametrize(
    ("cells", "p"), [((21, 9, 2, 12), 0.06543), ((1, 1, 7, 12), 0.070), ((59, 6, 16, 80), 0.052)]
)
def test_p_is_that_of_mcnemars_exact_test(cells, p):
    found = tl.stats.compare(paired(*cells), "a", "b")
    assert (found.both, found.a_only, found.b_only, found.neither) == cells
    assert found.p == pytest.approx(p, abs=5e-4)
    assert found.p == pytest.approx(binomtest(cells[1], cells[1] + cells[2]).pvalue)
    assert found.tasks == sum(cells)
    assert found.difference == pytest.approx((cells[1] - cells[2]) / sum(cells))
    assert found.rate_a - found.rate_b == pytest.approx(found.difference)


def test_the_order_of_the_two_changes_the_sign_alone():
    df = runs(a=[[True, False], [True, True], [False, True]], b=[[False, False], [True, False], [True, True]])
    one, other = tl.stats.compare(df, "a", "b"), tl.stats.compare(df, "b", "a")
    assert (one.difference, one.p) == (-other.difference, other.p)
    assert (one.low, one.high) == pytest.approx((-other.high, -other.low), abs=0.05)  # drawn anew


def test_the_same_table_gives_the_same_numbers_in_any_order():
    random = np.random.default_rng(0)
    df = runs(**{name: [list(random.random(3) < 0.5) for _ in range(40)] for name in "ab"})
    found = tl.stats.compare(df, "a", "b")
    assert tl.stats.compare(df, "a", "b") == found
    assert tl.stats.compare(df.sample(frac=1, random_state=1), "a", "b") == found
    other_way = df["task"].cat.reorder_categories(df["task"].cat.categories[::-1])
    assert tl.stats.compare(df.assign(task=other_way), "a", "b") == found


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(*[st.lists(st.booleans(), min_size=3, max_size=3)] * 2), min_size=1, max_size=9))
def test_with_repeats_p_counts_the_swaps(outcomes):
    """Every way to swap the settings, task by task: done here one by one."""
    found = tl.stats.compare(runs(a=[a for a, _ in outcomes], b=[b for _, b in outcomes]), "a", "b")
    gaps = [np.mean(a) - np.mean(b) for a, b in outcomes]
    sums = [
        sum(s * g for s, g in zip(signs, gaps, strict=True))
        for signs in itertools.product((1, -1), repeat=len(gaps))
    ]
    share = np.mean([abs(total) >= abs(sum(gaps)) - 1e-9 for total in sums])
    assert found.p == pytest.approx(share)


@pytest.mark.parametrize("repeats", [1, 3])
def test_p_is_small_as_often_as_it_says_when_there_is_no_difference(repeats):
    random = np.random.default_rng(8)
    small = 0
    for _ in range(400):
        skill = random.beta(1, 1, 12)
        first, second = (random.binomial(repeats, skill) / repeats for _ in range(2))
        small += statistics._p_of_swaps(first - second)[0] <= 0.05
    assert small / 400 < 0.083  # 0.05 and three standard errors of the simulation


@pytest.mark.proof
@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_so_it_is_where_one_ran_more_often(rate):
    """Once against five times: with whole tasks swapped, p ≤ 0.05 came 12 times in 100 at 0.1."""
    random = np.random.default_rng(6)
    small = swapped = 0
    for _ in range(200):
        first, second = random.binomial(1, rate, 20) / 1, random.binomial(5, rate, 20) / 5
        small += statistics._p(first, second, np.full(20, 1), np.full(20, 5))[0] <= 0.05
        swapped += statistics._p_of_swaps(first - second)[0] <= 0.05
    assert small / 200 < 0.096  # 0.05 and three standard errors of the simulation
    assert small <= swapped


def test_how_many_draws_are_held_at_once_changes_nothing(monkeypatch):
    random = np.random.default_rng(1)
    df = runs(
        a=[list(random.random(2) < 0.5) for _ in range(20)],
        b=[list(random.random(3) < 0.6) for _ in range(20)],
    )
    found = tl.stats.compare(df, "a", "b")
    monkeypatch.setattr(statistics, "_at_once", lambda tasks: 333)
    assert tl.stats.compare(df, "a", "b") == found


def test_dealing_runs_out_anew_is_fishers_exact_test_on_one_task():
    one, other = [True] * 7 + [False] * 2, [True] * 2 + [False] * 10
    found = statistics._p_of_deals(*(np.array([x]) for x in (7 / 9, 2 / 12, 9, 12)))
    assert found == pytest.approx(fisher_exact([[7, 2], [2, 10]]).pvalue, abs=0.01)
    assert (
        tl.stats.compare(runs(a=[one], b=[other]), "a", "b").p == 1
    )  # one task, however often, is one sample


@pytest.mark.parametrize(
    ("rate_a", "rate_b"), mostly_nightly([(0.5, 0.5), (0.7, 0.4), (0.1, 0.04)], [(0.7, 0.4)])
)
@pytest.mark.parametrize(("tasks", "repeats"), [(12, 1), (30, 4)])
def test_the_interval_of_the_difference_covers(rate_a, rate_b, tasks, repeats):
    random = np.random.default_rng(3)
    covered = 0
    for _ in range(200):
        skill = random.beta(1, 1, tasks)  # common to both: tasks are hard for both or for none
        a = random.binomial(repeats, np.clip(skill + rate_a - 0.5, 0, 1)) / repeats
        b = random.binomial(repeats, np.clip(skill + rate_b - 0.5, 0, 1)) / repeats
        low, high = statistics._interval(a - b, 0.95)
        covered += low <= expected(rate_a) - expected(rate_b) <= high
    assert covered / 200 > 0.888  # 0.95 less four standard errors of the simulation


def expected(rate):
    """Mean of uniform skill moved by rate − 0.5 and cut off at 0 and 1."""
    move = rate - 0.5
    return 0.5 + move - math.copysign(move**2 / 2, move)


def test_settings_that_never_differed_may_still_differ():
    found = tl.stats.compare(paired(10, 0, 0, 10), "a", "b")
    assert (found.difference, found.p) == (0, 1)
    assert -0.2 < found.low < -0.03 < 0.03 < found.high < 0.2


@pytest.mark.parametrize("cells", [(20, 12, 5, 13), (40, 30, 10, 120), (1, 1, 7, 12)])
def test_the_interval_is_near_the_closed_form(cells):
    """Bonett and Price (2012): Wald's, with one task more of each discordant sort."""
    found = tl.stats.compare(paired(*cells), "a", "b")
    count = sum(cells) + 2
    a_only, b_only = (cells[1] + 1) / count, (cells[2] + 1) / count
    half = 1.96 * math.sqrt((a_only + b_only - (a_only - b_only) ** 2) / count)
    middle = a_only - b_only
    assert (found.low, found.high) == pytest.approx((middle - half, middle + half), abs=0.03)


def test_only_common_tasks_are_compared_and_the_rest_is_said():
    df = runs(a=[True, True, False, NA, True], b=[False, True, False, True])
    df["error"] = NA
    found = tl.stats.compare(df, "a", "b")
    assert (found.tasks, found.unpaired, found.ungraded) == (3, 2, 1)
    assert (found.both, found.a_only, found.b_only, found.neither) == (1, 1, 0, 1)


def test_what_cannot_be_compared_is_said():
    df = runs(a=[True, True], b=[NA, NA], c=[False, True])
    with pytest.raises(ValueError, match=r"The table has no setting 'd'\. It has 'a', 'b', 'c'"):
        tl.stats.compare(df, "a", "d")
    with pytest.raises(
        ValueError, match=r"'a' \(2 graded tasks\) and 'b' \(0\) have no graded task in common"
    ):
        tl.stats.compare(df, "a", "b")
    with pytest.raises(ValueError, match="itself"):
        tl.stats.compare(df, "a", "a")
    with pytest.raises(ValueError, match="at least two values of 'setting'"):
        tl.stats.compare_all(runs(a=[True]))
    with pytest.raises(ValueError, match="'z'"):
        tl.stats.compare_all(df, "z")


def test_majorities_stand_in_the_cells():
    df = runs(a=[[True, True, False], [True, False, False]], b=[[True, False], [True, True]])
    found = tl.stats.compare(df, "a", "b")
    assert (found.both, found.a_only, found.b_only, found.neither) == (0, 1, 1, 0)  # a half is no majority
    assert found.difference == pytest.approx((2 / 3 + 1 / 3 - 1 / 2 - 1) / 2)


# Several settings.


def test_all_pairs_are_corrected_together():
    random = np.random.default_rng(2)
    df = runs(
        **{
            name: list(random.random(60) < rate)
            for name, rate in {"a": 0.3, "b": 0.5, "c": 0.8, "d": 0.5}.items()
        }
    )
    shown = tl.stats.compare_all(df)
    assert list(zip(shown["a"], shown["b"], strict=True)) == list(itertools.combinations("abcd", 2))
    # Holm (1979), as it is written: the k-th smallest of m times m − k + 1, never falling.
    order = np.argsort(shown["p"], kind="stable").to_numpy()
    steps = np.maximum.accumulate(shown["p"].to_numpy()[order] * np.arange(6, 0, -1)).clip(max=1)
    assert shown["p_holm"].to_numpy()[order] == pytest.approx(steps)
    for row in shown.itertuples():
        assert row[1 : 1 + len(statistics.Comparison._fields)] == tl.stats.compare(df, row.a, row.b)


def test_all_against_one():
    df = runs(a=[True] * 9 + [False], b=[False] * 10, c=[True, False] * 5)
    shown = tl.stats.compare_all(df, against="b")
    assert list(shown["a"]) == ["a", "c"]
    assert set(shown["b"]) == {"b"}
    assert list(shown["p_holm"]) == pytest.approx(list(multipletests(shown["p"], method="holm")[1]))
    assert list(shown["p"]) == pytest.approx([2 / 2**9, 2 / 2**5])


# Power.


def connor(difference, discordant, power=0.8):
    """Connor (1987), with the quantiles of a table."""
    beyond = {0.8: 0.8416, 0.9: 1.2816}[power]
    roots = 1.96 * math.sqrt(discordant) + beyond * math.sqrt(discordant - difference**2)
    return roots**2 / difference**2


def test_connor_is_what_his_calculators_give():
    assert math.ceil(connor(0.4, 0.5)) == 23  # powerandsamplesize.com, McNemar: p01=0.45, p10=0.05


@pytest.mark.parametrize(
    ("difference", "discordant", "power"),
    [
        (0.4, 0.5, 0.8),
        (0.2, 0.3, 0.8),
        (0.15, 0.45, 0.9),
        (0.1, 0.2, 0.8),
        (0.05, 0.2, 0.9),
        (0.05, 0.5, 0.8),
    ],
)
def test_tasks_needed_is_a_little_more_than_connor_says(difference, discordant, power):
    tasks = tl.stats.required_sample_size(difference, discordant=discordant, power=power)
    approximate = connor(difference, discordant, power)
    assert approximate <= tasks <= approximate + 3 / difference


@pytest.mark.nightly
@pytest.mark.parametrize(("difference", "discordant"), [(0.3, 0.4), (0.15, 0.3), (0.05, 0.5)])
def test_so_many_tasks_find_the_difference_so_often(difference, discordant):
    tasks = tl.stats.required_sample_size(difference, discordant=discordant)
    random = np.random.default_rng(4)
    shares = [(discordant + difference) / 2, (discordant - difference) / 2, 1 - discordant]
    found = np.mean(
        [
            binomtest(int(a), int(a + b)).pvalue <= 0.05 if a + b else False
            for a, b, _ in random.multinomial(tasks, shares, size=1000)
        ]
    )
    assert found == pytest.approx(0.8, abs=0.04)


@pytest.mark.parametrize(
    ("tasks", "difference", "discordant"), [(12, 0.5, 0.6), (25, 0.2, 0.4), (9, 0.9, 0.9)]
)
def test_power_is_the_sum_over_all_outcomes(tasks, difference, discordant):
    total = 0.0
    for differ in range(tasks + 1):
        for won in range(differ + 1):
            if binomtest(won, differ).pvalue <= 0.05 if differ else False:
                share = binom.pmf(won, differ, (discordant + difference) / (2 * discordant))
                total += binom.pmf(differ, tasks, discordant) * share
    assert statistics._power(tasks, difference, discordant, 0.05) == pytest.approx(total)


@pytest.mark.nightly
def test_very_many_tasks_can_be_asked_for():
    assert tl.stats.required_sample_size(0.001) == pytest.approx(connor(0.001, 0.5), rel=0.001)


def test_what_can_be_seen_is_the_other_way_round():
    assert tl.stats.required_sample_size() > 1500  # five points, and nothing known beforehand
    for discordant in (0.2, 0.5, 1.0):
        seen = tl.stats.minimum_detectable_difference(100, discordant=discordant)
        assert abs(tl.stats.required_sample_size(seen, discordant=discordant) - 100) <= 6
    assert (
        tl.stats.minimum_detectable_difference(100)
        > tl.stats.minimum_detectable_difference(1000)
        > tl.stats.minimum_detectable_difference(10_000)
    )


def test_what_cannot_be_is_refused_by_name():
    with pytest.raises(ValueError, match="tasks=5 is too few"):
        tl.stats.minimum_detectable_difference(5)
    with pytest.raises(ValueError, match="discordant must be between the difference"):
        tl.stats.required_sample_size(0.3, discordant=0.2)
    with pytest.raises(ValueError, match="difference must be between 0 and 1"):
        tl.stats.required_sample_size(5)
    with pytest.raises(ValueError, match="alpha and power"):
        tl.stats.required_sample_size(power=80)
    with pytest.raises(ValueError, match="discordant"):
        tl.stats.minimum_detectable_difference(100, discordant=0)


def test_a_shown_comparison_rounds_and_says_what_an_upper_limit_is():
    repeated = runs(a=[[True, True, False]] * 20, b=[[False, True, False], [True, False, True]] * 10)
    shown = repr(tl.stats.compare(repeated, "a", "b"))
    assert "rate_a=0.667, rate_b=0.5, difference=0.167" in shown
    exact = tl.stats.compare(paired(3, 5, 0, 2), "a", "b")
    assert exact.swaps == 0
    assert ", p=0.0625, " in repr(exact)
    many = tl.stats.compare(runs(a=[[True, False]] * 30, b=[[False, False], [True, True]] * 15), "a", "b")
    assert many.swaps > 0
    assert ", p≤" in repr(many)
