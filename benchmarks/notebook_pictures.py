"""Runs the notebooks, and stores their figures and widgets with a picture of each (needs the dev extra).

Code hosts, nbviewer, nbconvert and a JupyterLab that does not trust the notebook show the picture: a PNG,
because JupyterLab does not show an SVG that it does not trust. Only outputs that the tests do not compare
with what the notebook prints are replaced.
"""

from __future__ import annotations

import base64
import os
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import nbformat
import numpy as np
from nbclient import NotebookClient
from playwright.sync_api import Browser, Page
from plotly.offline import get_plotlyjs
from support.browser import JupyterLab, Notebook, browsing, running_chromium

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
FIGURE = "application/vnd.plotly.v1+json"
WIDGET = "application/vnd.jupyter.widget-view+json"
DRAW = """({ data, layout }) =>
  Plotly.toImage({ data, layout }, { format: "png", width: 900, height: layout.height ?? 450, scale: 1.5 })"""

PIXELS = """async (url) => {
  const image = new Image();
  image.src = url;
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height).getContext("2d");
  canvas.drawImage(image, 0, 0);
  const { data } = canvas.getImageData(0, 0, image.width, image.height);
  let text = "";
  for (let at = 0; at < data.length; at += 9000) text += String.fromCharCode(...data.subarray(at, at + 9000));
  return [image.width, btoa(text)];
}"""

COLOURS = 256
"""Number of colours of a picture. With all of them, a picture is three times as large."""


def main(names: list[str]) -> None:
    paths = [NOTEBOOKS / f"{name}.ipynb" for name in names] or sorted(NOTEBOOKS.glob("*.ipynb"))
    books = {path: renewed(path) for path in paths}  # before Playwright holds the event loop
    with running_chromium() as address, browsing(address) as browser:
        page = browser.new_page()
        page.add_script_tag(content=get_plotlyjs())
        for path, book in books.items():
            for output in outputs_of(*book.cells, mime=FIGURE):
                output.data["image/png"] = png(page, page.evaluate(DRAW, output.data[FIGURE]))
            add_widgets(browser, page, book)
            nbformat.write(book, str(path))  # type: ignore[no-untyped-call]
            print(path.name, f"{path.stat().st_size:,} bytes")


def renewed(path: Path) -> Any:
    """Return a notebook with new outputs of the cells that nbval ignores, and of those without any."""
    os.environ["TQDM_DISABLE"] = "1"  # no bars, as in the tests
    book, new = (nbformat.read(str(path), as_version=4) for _ in range(2))  # type: ignore[no-untyped-call]
    NotebookClient(new, timeout=600, resources={"metadata": {"path": str(path.parent)}}).execute()
    for stored, cell in zip(book.cells, new.cells, strict=True):
        if not stored.get("outputs") or "nbval-ignore-output" in stored.metadata.get("tags", ()):
            stored.update({key: cell[key] for key in ("outputs", "execution_count") if key in cell})
    return book


def outputs_of(*cells: Any, mime: str) -> list[Any]:
    return [out for cell in cells for out in cell.get("outputs", []) if mime in out.get("data", {})]


def png(page: Page, url: str) -> str:
    """Return a PNG of an image, in base64, with `COLOURS` colours.

    They are the most frequent ones, but only one of several that are nearly equal.
    """
    width, pixels = page.evaluate(PIXELS, url)
    rgb = np.frombuffer(base64.b64decode(pixels), "u1").reshape(-1, 4)[:, :3].astype(int)
    colours, inverse, counts = np.unique(rgb, axis=0, return_inverse=True, return_counts=True)
    frequent = colours[np.argsort(-counts, kind="stable")]
    _, first = np.unique(frequent >> 4, axis=0, return_index=True)
    chosen = frequent[np.sort(first)[:COLOURS]]
    nearest = [np.abs(chosen - colour).sum(1).argmin() for colour in colours]
    rows = np.array(nearest, "u1")[inverse.ravel()].reshape(-1, width)
    lines = b"".join(b"\0" + row.tobytes() for row in rows)
    parts = {
        b"IHDR": struct.pack(">IIBBBBB", width, len(rows), 8, 3, 0, 0, 0),
        b"PLTE": chosen.astype("u1").tobytes(),
        b"IDAT": zlib.compress(lines, 9),
        b"IEND": b"",
    }
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts.items()
    )
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(chunks)).decode()


def add_widgets(browser: Browser, page: Page, book: Any) -> None:
    """Add a picture of each widget, as JupyterLab shows it."""
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    wanted = [k for k, cell in enumerate(code) if outputs_of(cell, mime=WIDGET)]
    if not wanted:
        return
    lab = JupyterLab()
    notebook = Notebook(lab, browser, [cell.source for cell in code], "pictures", reduced_motion="reduce")
    notebook.page.set_viewport_size({"width": 1500, "height": 2000})  # the whole widget is visible
    notebook.run_all()
    for k in wanted:
        (output,) = outputs_of(code[k], mime=WIDGET)
        output.data["image/png"] = png(page, picture_of(notebook.page, k))
        del output.data["text/html"]  # an empty text, which would be preferred
    notebook.close()
    lab.close()


def picture_of(page: Page, cell: int) -> str:
    """Return the address of a picture of the widget below a cell."""
    page.evaluate("cell => window.jupyterapp.shell.currentWidget.content.scrollToItem(cell)", cell)
    area = page.locator(".jp-CodeCell").nth(cell).locator(".jp-OutputArea-output").last
    area.scroll_into_view_if_needed()
    page.wait_for_timeout(1500)
    return "data:image/png;base64," + base64.b64encode(area.screenshot()).decode()


if __name__ == "__main__":
    main(sys.argv[1:])
