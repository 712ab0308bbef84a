"""The way of a run through the house: how many files of infrastructure it enters, and what it passes by."""

import pytest
from support.entered import constant, entered, is_infrastructure

import tot_lab as tl


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return entered(tl.TreeOfThoughts(), constant, tmp_path_factory.mktemp("runs"))


def test_a_search_enters_few_files_of_infrastructure(files):
    assert "strategies/search/beam_search.py" in files
    assert {"runtime/driver.py", "runtime/stepper.py", "runtime/recorder.py"} <= files.keys()
    assert sum(map(is_infrastructure, files)) <= 26


@pytest.mark.parametrize(
    "file",
    ["views/report.py", "runtime/steering.py", "record/edits.py", "core/acts.py", "lab/model_settings.py"],
)
def test_what_a_run_has_not_costs_it_nothing(files, file):
    """Nobody shows or steers it, it is no branch, and its models have no names."""
    assert file not in files


def test_a_strategy_without_defaults_is_not_copied(files):
    assert not any("map_parts" in function for function in files["core/parts.py"])
