"""The notebook about published logs: its table and its functions are those of the script."""

import ast
import json
import sys

import pandas as pd
import pytest
from support import ROOT

RECORDS = ROOT.parent / "shared" / "data"
SCRIPT = ROOT / "benchmarks" / "other_peoples_runs.py"
NOTEBOOK = ROOT / "notebooks" / "09_other_peoples_runs.ipynb"
TABLE = ROOT / "data" / "09_other_peoples_runs.csv"


def functions(source):
    """The functions of a module, by name, without comments and layout."""
    found = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    return {function.name: ast.unparse(function) for function in found}


def test_the_notebook_shows_the_functions_of_the_script():
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    shown = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            shown |= functions("".join(cell["source"]))
    written = functions(SCRIPT.read_text())
    assert set(written) - set(shown) == {"table"}
    for name in set(written) - {"table"}:
        assert shown[name] == written[name]


def test_the_table_holds_numbers_and_no_text_of_a_log():
    table = pd.read_csv(TABLE)
    assert table["log"].nunique() == 11
    assert table["measure"].str.fullmatch(r"[a-z_ ]+").all()
    assert table["value"].map(type).eq(float).all()


@pytest.mark.proof
@pytest.mark.skipif(not (RECORDS / "xot").is_dir(), reason="needs the published logs")
@pytest.mark.filterwarnings("ignore:More than 5%")
def test_the_table_is_that_of_the_logs(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(SCRIPT.parent), *sys.path])
    from other_peoples_runs import table

    made = table(RECORDS / "xot", RECORDS / "princeton_tot")
    pd.testing.assert_frame_equal(made, pd.read_csv(TABLE, dtype={"width": "Int64"}), check_dtype=False)
