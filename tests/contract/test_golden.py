"""Small exact trees per search, and one journal per schema that stays loadable."""

import json
import sys

import pytest
from support import GOLDEN, wait
from support import SEARCHES as REGISTERED

import tot_lab as tl

sys.path.insert(0, str(GOLDEN))

from make import METHODS, SEARCHES, dumps, tree_of


@pytest.mark.parametrize("name", SEARCHES)
def test_tree_is_the_golden_one(name):
    golden = json.loads((GOLDEN / f"{name}.json").read_text())
    assert dumps(tree_of(SEARCHES[name])) == dumps(golden)  # in the order in which it grew


@pytest.mark.parametrize("name", METHODS)
def test_record_of_a_method_is_the_golden_one(name):
    golden = json.loads((GOLDEN / "methods.json").read_text())
    assert name in golden, "Run tests/golden/make.py, and look at the tree before you commit it."
    assert dumps(tree_of(METHODS[name])) == dumps(golden[name])


def test_every_registered_search_has_a_golden_tree():
    """One that is registered and not here would have no golden tree, and no test would say so."""
    missing = {kind.kind for kind in REGISTERED} - {one.search.kind for one in SEARCHES.values()}
    assert not missing, "Add each to SEARCHES in tests/golden/make.py, run it, and look at the tree."


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("journal-schema-*.jsonl")), ids=lambda path: path.stem)
def test_a_journal_of_each_schema_is_loaded_and_replayed(path):
    run = tl.load(path)
    assert run.simulated
    assert len(run.tree) > 5
    assert len(run.nodes_df()) == len(run.tree)
    assert wait(run.replay()).identical
