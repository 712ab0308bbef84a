"""Small exact trees per search, and one journal per released version that stays loadable."""

import json
import sys
from pathlib import Path

import pytest
from support import wait

import tot_lab as tl
from tot_lab.record.journal import _renamed

FOLDER = Path(__file__).parent / "golden"
sys.path.insert(0, str(FOLDER))

from make import SEARCHES, tree_of  # noqa: E402


@pytest.mark.parametrize("name", SEARCHES)
def test_tree_is_the_golden_one(name):
    golden = json.loads((FOLDER / f"{name}.json").read_text())
    assert json.loads(json.dumps(tree_of(SEARCHES[name]))) == golden


@pytest.mark.parametrize("path", sorted(FOLDER.glob("journal-0*.jsonl")), ids=lambda path: path.stem)
def test_a_released_journal_stays_loadable(path):
    run = tl.load(path)
    assert run.correct is True
    assert run.simulated
    assert len(run.tree) > 5
    assert len(run.nodes_df()) == len(run.tree)
    replay = wait(run.replay())
    if path.stem.endswith("mcts"):
        assert replay.identical
    else:  # made before prompts put the candidate last: the first prompt that differs is named
        assert not replay.identical
        assert "Call differs: messages was" in replay.divergence


def test_decisions_of_old_journals_have_their_new_names():
    """Schema 1 wrote `solution` and `unread`. A text that looks like such a field is left alone."""
    run = tl.load(FOLDER / "journal-0.1.0.jsonl")
    states = {node.state for node in run.tree}
    assert "answer" in states
    assert "solution" not in states
    assert _renamed(rb'{"what":"solution","reason":"unread"}') == rb'{"what":"answer","reason":"unreadable"}'
    text = rb'{"text":"{\"what\":\"solution\"}"}'
    assert _renamed(text) == text
