"""What an installed package holds: a real wheel, built here, unpacked and used outside the checkout."""

import os
import subprocess
import sys
import zipfile

import pytest
from support import ROOT


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        str(ROOT),
        "--no-deps",
        "--no-build-isolation",
        "--quiet",
    ]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=120)
    (wheel,) = folder.glob("tot_lab-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.mark.nightly
def test_the_wheel_holds_everything_and_no_more(installed):
    names = {str(path.relative_to(installed)) for path in installed.rglob("*") if path.is_file()}
    source = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tot_lab").rglob("*.py*")
        if path.suffix in (".py", ".pyi") and "node_modules" not in path.parts
    }
    assert source <= names
    assert {"tot_lab/py.typed", "tot_lab/views/explorer/static/explorer.js"} < names
    assert any(name.endswith("/constrained/tasks.jsonl") for name in names)
    weights = {f"tot_lab/models/tiny/numbers/{k}.npz" for k in range(1, 6)}
    assert {"tot_lab/models/tiny/numbers/card.json", "tot_lab/models/tiny/held_out.json", *weights} < names
    shipped = {
        "notebooks/01_first_search.ipynb",
        "notebooks/05_exploring_a_search.ipynb",
        "notebooks/15_real_models.ipynb",
        "notebooks/30_your_own_strategy.ipynb",
        "notebooks/25_deep_think.ipynb",
        "data/15_real_models.jsonl.gz",
        "docs/README.md",
        "docs/how-to/other_logs.md",
    }
    assert {f"tot_lab/examples/{name}" for name in shipped} < names
    outside = ("tests", "benchmarks", "tot_lab/views/explorer/js")
    assert not [name for name in names if name.startswith(outside)]


@pytest.mark.nightly
def test_the_hint_about_an_extra_works_without_an_index(tmp_path):
    """pip takes the extra of the installed package, however it was installed."""
    command = [sys.executable, "-m", "pip", "install", "--no-index", "--dry-run", "tot-lab[parquet]"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert "Requirement already satisfied: pyarrow" in done.stdout
    assert "Would install" not in done.stdout


@pytest.mark.nightly
def test_notebooks_come_out_of_an_installed_package(installed, tmp_path):
    environ = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, "-m", "tot_lab", "notebooks", "mine"]
    subprocess.run(command, cwd=tmp_path, env=environ, check=True, capture_output=True, timeout=60)
    for name in (
        "notebooks/01_first_search.ipynb",
        "data/word_problems.jsonl",
        "data/15_real_models.jsonl.gz",
    ):
        assert (tmp_path / "mine" / name).read_bytes() == (ROOT / name).read_bytes()
