"""The searches that the package `treequest` has too make the same decisions, given its scores and draws.

`golden/treequest.json` holds the steps of treequest 0.3.3. `make proof` has them made again by the package,
in an environment of its own.
"""

import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from by_hand import drive

import tot_lab as tl

GOLDEN = Path(__file__).parent / "golden"
sys.path.insert(0, str(GOLDEN))

from treequest_steps import SEEDS, STEPS, Recorded, scores_of  # noqa: E402

STEPS_OF = json.loads((GOLDEN / "treequest.json").read_text())


def parents_of(search, seed, **options):
    """The parents of all thoughts of a search driven by hand, in the numbers of treequest."""
    scores = scores_of(seed)
    made, state = drive(search, lambda id: next(scores), **options)
    number = {node.id: node.order - 1 for node in state.tree}
    return [number[node.parent] for node in state.tree if node.parent is not None], made


@pytest.mark.parametrize("posterior", ["gaussian", "beta"])
def test_adaptive_branching_makes_the_decisions_of_its_authors(posterior):
    for seed, steps in zip(SEEDS, STEPS_OF[f"ab_mcts_a {posterior}"], strict=True):
        random = Recorded(seed)
        search = tl.searches.ABMCTSA(posterior=posterior, iterations=STEPS)
        parents, _ = parents_of(search, seed, random=random)
        assert parents == steps["parents"]
        assert random.used == steps["draws"]


@pytest.mark.proof
def test_the_golden_steps_are_those_of_the_package(tmp_path):
    venv.create(tmp_path, with_pip=True)
    python = tmp_path / "bin" / "python"
    install = [python, "-m", "pip", "install", "-q", "treequest==0.3.3"]
    done = subprocess.run(install, check=False, capture_output=True, text=True, timeout=600)
    if done.returncode:
        pytest.skip(f"treequest cannot be installed: {done.stderr[-200:]}")
    command = [python, GOLDEN / "treequest_steps.py"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    assert json.loads(printed) == STEPS_OF
