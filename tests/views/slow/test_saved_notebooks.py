"""Saved notebooks show their explorers without a kernel: in nbconvert's HTML and LaTeX, and after a restart.

The notebook is run by a real kernel. Its first explorer is displayed before its run has begun.
"""

import json

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter, LatexExporter
from support import ROOT
from support.browser import Watched, soon

RUN = """
import tot_lab as tl
lab = tl.Lab("sim/game24", runs=None)
search = tl.TreeOfThoughts(propose=tl.Propose(count=5))
explorer = tl.Explorer(lab.stream(search, tl.game24("4 5 6 10")))
explorer"""
WAIT = "run = await explorer.finished()"
PANEL = "tl.panel(lab)"
WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(scope="module")
def book():  # before `chrome`: Playwright holds the event loop
    cells = [nbformat.v4.new_code_cell(source) for source in (RUN, WAIT, "explorer.static()", PANEL)]
    made = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(made, timeout=120, resources={"metadata": {"path": str(ROOT)}}).execute()
    return made


def test_a_cell_is_small_and_holds_the_run_as_it_ended(book):
    for cell in book.cells:
        data = [output.data for output in cell.outputs]
        assert len(json.dumps(data)) <= 300_000
        assert all("image/svg+xml" not in shown for shown in data), "nbconvert's LaTeX fails on it"
    saved, live = (output.data for output in book.cells[0].outputs)
    assert WIDGET in live
    assert "26 thoughts" in saved["text/plain"]
    assert "✓ correct" in saved["text/html"]
    panel = book.cells[3].outputs[0].data
    assert 'lab = tl.Lab("sim/game24", runs=None)' in panel["text/plain"]


def test_latex_tells_the_verdict_and_the_tree(book):
    latex, _ = LatexExporter().from_notebook_node(book)
    assert latex.count("correct") >= 2
    assert latex.count("26 thoughts") == 1
    assert "┗━ 1" in latex


@pytest.mark.parametrize("state", [True, False], ids=["with the state of widgets", "without"])
def test_the_html_of_nbconvert_shows_picture_and_page_offline(book, chrome, tmp_path, state):
    copy = nbformat.from_dict(json.loads(json.dumps(book)))
    assert "widgets" in copy.metadata, "nbclient stores it"
    if not state:
        del copy.metadata["widgets"]
    html, _ = HTMLExporter().from_notebook_node(copy)
    (tmp_path / "book.html").write_text(html)
    view = Watched(chrome, viewport={"width": 1200, "height": 900})
    page = view.page
    page.goto((tmp_path / "book.html").as_uri())
    card = page.locator(".jp-Cell").first
    picture = card.locator("img")
    assert picture.is_visible()
    assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") > 300
    assert card.get_by_text("✓ correct").is_visible()
    card.locator("summary").click()
    frame = card.frame_locator("iframe")
    assert "✓ correct" in frame.locator(".tl-verdict").inner_text()
    inside = frame.locator("#tot-lab-explorer")
    assert inside.evaluate("place => place.explorer.frameOf(0).nodes") == 26
    inside.evaluate("place => place.explorer.show(['0.0'])")
    frame.locator(".tl-details summary").first.wait_for()
    assert inside.evaluate("() => [origin, window.parent === window]") == ["null", False]
    reached = inside.evaluate(
        "() => { try { return parent.document.title; } catch (error) { return error.name; } }"
    )
    assert reached == "SecurityError"
    blocked = inside.evaluate("() => fetch('http://127.0.0.1:9/').catch(() => 'blocked')")
    assert blocked == "blocked"
    assert [url for url in view.asked if "127.0.0.1:9" in url] == [], "its own policy holds in the frame"
    view.context.close()


@pytest.mark.nightly
def test_after_a_restart_the_card_is_shown_instead_of_an_error(fresh_notebook):
    book = fresh_notebook(RUN, WAIT, PANEL)
    book.run_all()
    cells = book.page.locator(".jp-CodeCell")
    cells.first.locator(".tl-root").wait_for()
    assert cells.first.locator("[data-saved]").count() == 1
    assert not cells.first.locator("[data-saved]").is_visible(), "the explorer itself is there"
    book.save()
    book.page.evaluate("window.jupyterapp.shell.currentWidget.sessionContext.restartKernel()")
    soon(lambda: book.page.evaluate("window.jupyterapp.shell.currentWidget.context.model.dirty") is False)
    book.open()
    message = cells.first.get_by_text("Error displaying widget")
    message.wait_for(state="attached")
    assert not message.is_visible()
    card = cells.first.locator("[data-saved]")
    assert card.is_visible()
    assert card.locator("img").evaluate("image => image.naturalWidth") > 300
    assert "✓ correct" in card.inner_text()
    assert "needs a kernel" in cells.nth(2).inner_text()
    assert {error.split("\n")[0] for error in book.errors} <= {"Error: widget model not found"}
    book.errors.clear()
