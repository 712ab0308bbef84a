"""Runs the notebooks, and stores their figures and widgets with a picture of each (needs the dev extra).

Code hosts, nbviewer and nbconvert show the picture where nothing runs. Only outputs with a figure or a widget
are replaced. The tests compare all others with what the notebook prints.
"""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import nbformat
from browser import JupyterLab, Notebook, browsing
from nbclient import NotebookClient
from playwright.sync_api import Browser, Page
from plotly.offline import get_plotlyjs

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
FIGURE = "application/vnd.plotly.v1+json"
WIDGET = "application/vnd.jupyter.widget-view+json"
WIDTH = 900
"""Width of the picture of a figure, in pixels. It is an SVG or a PNG, whichever is smaller."""

DRAW = """async ({ data, layout }) => {
  const size = { width: WIDTH, height: layout.height ?? 450 };
  const svg = await Plotly.toImage({ data, layout }, { format: "svg", ...size });
  const png = await Plotly.toImage({ data, layout }, { format: "png", ...size });
  const body = (url) => decodeURIComponent(url.slice(url.indexOf(",") + 1));
  return { "image/svg+xml": body(svg), "image/png": body(png) };
}""".replace("WIDTH", str(WIDTH))


def main(names: list[str]) -> None:
    paths = [NOTEBOOKS / f"{name}.ipynb" for name in names] or sorted(NOTEBOOKS.glob("*.ipynb"))
    books = {path: renewed(path) for path in paths}  # before Playwright holds the event loop
    with browsing() as browser:
        page = browser.new_page()
        page.add_script_tag(content=get_plotlyjs())
        for path, book in books.items():
            for output in outputs_of(*book.cells, mime=FIGURE):
                pictures = page.evaluate(DRAW, output.data[FIGURE])
                smaller = min(pictures, key=lambda mime: len(pictures[mime]))
                output.data[smaller] = pictures[smaller]
            add_widgets(browser, book)
            nbformat.write(book, str(path))  # type: ignore[no-untyped-call]
            print(path.name, f"{path.stat().st_size:,} bytes")


def renewed(path: Path) -> Any:
    """Return a notebook with new figures and widgets. Its other outputs are the stored ones."""
    book, new = (nbformat.read(str(path), as_version=4) for _ in range(2))  # type: ignore[no-untyped-call]
    NotebookClient(new, timeout=600, resources={"metadata": {"path": str(path.parent)}}).execute()
    for stored, cell in zip(book.cells, new.cells, strict=True):
        if outputs_of(cell, mime=FIGURE) or outputs_of(cell, mime=WIDGET):
            stored.outputs = cell.outputs
    return book


def outputs_of(*cells: Any, mime: str) -> list[Any]:
    return [out for cell in cells for out in cell.get("outputs", []) if mime in out.get("data", {})]


def add_widgets(browser: Browser, book: Any) -> None:
    """Add a picture of each widget, as JupyterLab shows it."""
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    wanted = [k for k, cell in enumerate(code) if outputs_of(cell, mime=WIDGET)]
    if not wanted:
        return
    lab = JupyterLab()
    notebook = Notebook(lab, browser, [cell.source for cell in code], "pictures", reduced_motion="reduce")
    notebook.run_all()
    for k in wanted:
        (output,) = outputs_of(code[k], mime=WIDGET)
        output.data["image/png"] = picture_of(notebook.page, k)
    notebook.close()
    lab.close()


def picture_of(page: Page, cell: int) -> str:
    """Return a PNG of the widget below a cell, in base64."""
    page.evaluate("cell => window.jupyterapp.shell.currentWidget.content.scrollToItem(cell)", cell)
    area = page.locator(".jp-CodeCell").nth(cell).locator(".jp-OutputArea-output").last
    area.scroll_into_view_if_needed()
    page.wait_for_timeout(1500)
    return base64.b64encode(area.screenshot()).decode()


if __name__ == "__main__":
    main(sys.argv[1:])
