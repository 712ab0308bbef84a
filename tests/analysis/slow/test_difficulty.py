"""Bins of difficulty, and the best setting of each bin."""

import numpy
import pandas
import pytest

import tot_lab as tl


def runs(**settings):
    """One row per run; each setting is a list of tasks, each a list of grades."""
    return pandas.DataFrame(
        [
            (setting, f"task {number}", correct)
            for setting, tasks in settings.items()
            for number, grades in enumerate(tasks)
            for correct in grades
        ],
        columns=["setting", "task", "correct"],
    )


def test_bins_go_from_easy_to_hard_and_are_equal():
    grades = [[True] * right + [False] * (9 - right) for right in (0, 9, 3, 6, 1, 8, 2, 7, 4, 5)]
    found = tl.stats.difficulty_bins(runs(one=grades), 5)
    assert list(found["bin"]) == [5, 1, 4, 2, 5, 1, 4, 2, 3, 3]
    assert found["difficulty"][0] == 1
    assert found["difficulty"][1] == 0


def test_tasks_of_equal_difficulty_share_a_bin():
    found = tl.stats.difficulty_bins(runs(one=[[False]] * 6 + [[True]] * 2), 4)
    assert list(found["bin"]) == [2] * 6 + [1] * 2


def test_a_published_level():
    frame = runs(one=[[True], [False], [None]]).assign(level=[3, 1, 2])
    assert list(tl.stats.difficulty_bins(frame, 3, column="level")["bin"]) == [3, 1, 2]
    twice = pandas.concat([frame, frame.assign(level=5)])
    with pytest.raises(ValueError, match="Task 'task 0' has several values in the column 'level'"):
        tl.stats.difficulty_bins(twice, column="level")


def test_ungraded_tasks_have_no_bin():
    found = tl.stats.difficulty_bins(runs(one=[[True], [None]]))
    assert list(found["task"]) == ["task 0"]
    with pytest.raises(ValueError, match="No task has a difficulty"):
        tl.stats.difficulty_bins(runs(one=[[None]]))


def bins_of(*numbers):
    return pandas.DataFrame({"task": [f"task {k}" for k in range(len(numbers))], "bin": list(numbers)})


def test_each_bin_has_the_setting_that_is_best_there():
    """One setting solves the easy tasks and the other the hard ones."""
    frame = runs(deep=[[False]] * 10 + [[True]] * 12, wide=[[True]] * 10 + [[False]] * 12)
    found = tl.stats.compute_optimal(frame, bins_of(*[1] * 10, *[2] * 12))
    assert list(found["bin"].fillna(0)) == [1, 2, 0]
    assert list(found["tasks"]) == [10, 12, 22]
    assert list(found["first"][:2]) == list(found["second"][:2]) == ["wide", "deep"]
    assert list(found["rate"]) == [1, 1, 1]
    assert list(found["single"]) == [0, 1, 12 / 22]


def test_no_task_chooses_the_setting_that_scores_it():
    """20 settings without any difference: the best in hindsight looks far better than 0.5, and the honest
    estimate does not."""
    rng = numpy.random.default_rng(0)
    rates, hindsight = [], []
    for _ in range(40):
        grades = rng.random((20, 40)) < 0.5
        frame = runs(**{f"s{k}": [[bool(one)] for one in row] for k, row in enumerate(grades)})
        rates.append(tl.stats.compute_optimal(frame, bins_of(*[1] * 20, *[2] * 20))["rate"].iloc[-1])
        hindsight.append((grades[:, :20].mean(1).max() + grades[:, 20:].mean(1).max()) / 2)
    assert numpy.mean(hindsight) > 0.65
    assert abs(numpy.mean(rates) - 0.5) < 0.04


def test_what_is_left_out_is_said():
    frame = runs(a=[[True]] * 5, b=[[True], [True], [None], [False], [True]])
    with pytest.warns(UserWarning, match="2 of 5 tasks are left out"):
        found = tl.stats.compute_optimal(frame, bins_of(1, 1, 1, 1))
    assert list(found["tasks"]) == [3, 3]
    with pytest.warns(
        UserWarning, match="1 of 3 tasks are left out: they have no bin, are alone in their bin"
    ):
        found = tl.stats.compute_optimal(runs(a=[[True]] * 3), bins_of(1, 1, 2))
    assert list(found["tasks"]) == [2, 2]
    with pytest.warns(UserWarning, match="2 of 2"), pytest.raises(ValueError, match="No bin has two tasks"):
        tl.stats.compute_optimal(runs(a=[[True]] * 2), bins_of(1, 2))
