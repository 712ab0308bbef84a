"""What a notebook shows where nothing runs: every figure and widget has a picture beside it."""

import base64
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import nbformat
import pytest
from nbconvert import HTMLExporter

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))
FIGURE = "application/vnd.plotly.v1+json"
WIDGET = "application/vnd.jupyter.widget-view+json"
each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def shown(path):
    """The figures and widgets of a notebook: the data of their outputs."""
    cells = json.loads(path.read_text())["cells"]
    data = [output.get("data", {}) for cell in cells for output in cell.get("outputs", [])]
    return [one for one in data if FIGURE in one or WIDGET in one]


@each
def test_every_figure_and_widget_has_a_picture_of_it(path):
    assert path.stat().st_size < 1_500_000
    for data in shown(path):
        svg, png = data.get("image/svg+xml"), data.get("image/png")
        if png:
            assert base64.b64decode(png)[:8] == b"\x89PNG\r\n\x1a\n"
        else:
            drawing = ET.fromstring("".join(svg))
            title = data[FIGURE]["layout"]["title"]["text"].partition("<br>")[0]
            assert " ".join(title.split()) in " ".join("".join(drawing.itertext()).split())
            said = re.findall(r"answer: ([^·]+?) [✓✗]", data[FIGURE]["layout"]["title"]["subtitle"]["text"])
            assert all(answer in "".join(drawing.itertext()) for answer in said)


def test_there_are_figures_and_widgets():
    kinds = [FIGURE in data for path in NOTEBOOKS for data in shown(path)]
    assert kinds.count(True) >= 20
    assert kinds.count(False) >= 3


@pytest.mark.slow
@each
def test_a_converted_notebook_shows_the_pictures_of_its_widgets(path):
    page, _ = HTMLExporter(exclude_input=True).from_notebook_node(nbformat.read(str(path), as_version=4))
    for data in shown(path):
        if WIDGET in data:
            assert "".join(data["image/png"]).strip()[:200] in page
