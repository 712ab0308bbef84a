"""The published Game of 24 run, made again from its recorded replies, where those lie beside the project."""

import subprocess
import sys

import pytest
from support import ROOT

RECORDS = ROOT.parent / "shared" / "data" / "princeton_tot"

pytestmark = [
    pytest.mark.skipif(not RECORDS.is_dir(), reason=f"the published records are not at {RECORDS}"),
]


def printed(script: str) -> str:
    command = [sys.executable, str(ROOT / "benchmarks" / script), str(RECORDS)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def test_the_search_keeps_what_the_published_one_kept():
    assert printed("published_game24.py").startswith(
        "solved 32 of 50 (top answer 28); frontiers equal 200 of 200"
    )


def test_no_search_loses_a_puzzle_that_the_published_beam_solved():
    rows = [line.split() for line in printed("published_efficiency.py").splitlines()]
    solved = {
        row[0]: row[1] for row in rows if row[0] in ("beam_search", "depth_first", "best_first", "mcts")
    }
    assert solved == dict.fromkeys(("beam_search", "depth_first", "best_first", "mcts"), "32/32")
