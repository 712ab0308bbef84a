"""What a notebook shows where nothing runs: every figure and widget has a picture beside it."""

import base64
import json
import re
import shutil
import struct

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from support import ROOT
from support.browser import TOKEN, Watched

import tot_lab as tl

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
RECORDS = ROOT.parent / "shared" / "data" / "princeton_tot"
FIGURE = "application/vnd.plotly.v1+json"
WIDGET = "application/vnd.jupyter.widget-view+json"
each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def outputs(path):
    """The data of the outputs of a notebook."""
    cells = json.loads(path.read_text())["cells"]
    return [output.get("data", {}) for cell in cells for output in cell.get("outputs", [])]


def shown(path):
    """The figures and widgets of a notebook: the data of their outputs."""
    return [data for data in outputs(path) if FIGURE in data or WIDGET in data]


@each
def test_every_figure_and_widget_has_a_picture_of_it(path):
    assert path.stat().st_size < 1_600_000
    for data in shown(path):
        picture = base64.b64decode("".join(data["image/png"]))
        assert picture[:8] == b"\x89PNG\r\n\x1a\n"
        width, height = struct.unpack(">II", picture[16:24])
        assert width >= 900
        assert len(picture) > 5_000, "it is empty"
        if FIGURE in data:
            assert height / width == pytest.approx(data[FIGURE]["layout"].get("height", 450) / 900, abs=0.01)


def test_there_are_figures_and_widgets():
    kinds = [FIGURE in data for path in NOTEBOOKS for data in shown(path)]
    assert kinds.count(True) >= 20
    assert kinds.count(False) >= 3


@each
def test_no_stored_output_shows_the_source_of_a_page(path):
    for data in outputs(path):
        assert not re.search("<(div|p|title|svg)>", "".join(data.get("text/plain", "")))


@pytest.mark.nightly
@each
def test_a_converted_notebook_has_as_many_pictures_as_figures(path):
    page, _ = HTMLExporter(exclude_input=True).from_notebook_node(nbformat.read(str(path), as_version=4))
    sources = re.findall(r'<img[^>]*\ssrc="data:image/png;base64,([^"]+)"', page)
    pictures = ["".join("".join(data["image/png"]).split()) for data in shown(path)]
    assert ["".join(source.split()) for source in sources] == pictures


@pytest.fixture(scope="module")
def untrusting(jupyter, chrome):
    """A JupyterLab that trusts no notebook."""
    view = Watched(chrome, viewport={"width": 1300, "height": 1000})
    view.page.goto(f"{jupyter.url}/lab/workspaces/untrusting?token={TOKEN}")
    view.page.wait_for_function("window.jupyterapp?.started.then(() => true)", timeout=90_000)
    yield view
    view.context.close()


@pytest.fixture
def opened(jupyter, untrusting):
    """Opens a notebook there. Nothing runs."""

    def open_(path):
        shutil.copy(path, jupyter.work)
        untrusting.page.evaluate(
            "async path => { await window.jupyterapp.commands.execute('docmanager:open', { path }); }",
            path.name,
        )
        cells = len(json.loads(path.read_text())["cells"])
        untrusting.page.wait_for_function(
            """([name, cells]) => {
                const panel = window.jupyterapp.shell.currentWidget;
                return panel?.context?.path === name && panel.content?.widgets?.length === cells;
            }""",
            arg=[path.name, cells],
            timeout=90_000,
        )
        return untrusting

    yield open_
    untrusting.page.evaluate(
        """async () => {
            const panel = window.jupyterapp.shell.currentWidget;
            await panel.sessionContext.shutdown();
            panel.dispose();
        }"""
    )


PICTURES = """() => {
    const notebook = window.jupyterapp.shell.currentWidget.content;
    const shown = (cell) => (cell.model.outputs?.toJSON() ?? []).flatMap(({ data = {} }, place) => {
        if (!KINDS.some((kind) => kind in data)) return [];
        const area = cell.outputArea.widgets[place]?.node;
        const image = area?.querySelector("img");
        return [(image?.complete && image.naturalWidth > 800) || Boolean(area?.querySelector(".main-svg"))];
    });
    return notebook.widgets.flatMap(shown);
}""".replace("KINDS", json.dumps([FIGURE, WIDGET]))


@pytest.mark.nightly
@each
def test_a_jupyterlab_that_does_not_trust_a_notebook_shows_its_pictures(path, opened):
    view = opened(path)
    assert not view.page.evaluate(
        "window.jupyterapp.shell.currentWidget.content.widgets.some(c => c.model.trusted)"
    )
    expected = [True] * len(shown(path))
    view.page.wait_for_function(
        f"expected => JSON.stringify(({PICTURES})()) === JSON.stringify(expected)", arg=expected
    )


DOLLARS = "A pen costs $5, and two cost $9. <b>Why</b>?"


@pytest.mark.nightly
def test_the_card_of_a_run_survives_the_sanitiser_of_jupyterlab(opened, tmp_path):
    """Its words are those of the card, and the tree is drawn. No two dollar signs become a formula."""
    recorder = tl.Recorder(DOLLARS)
    root = recorder.thought(DOLLARS)
    step = recorder.thought("The second costs $4, with $1 off.", root)
    recorder.call(step, "What is $9 - $5?", "$4")
    recorder.end("It is $1 off the $5.", node=step)
    html = recorder.run._repr_html_()
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("run")])
    book.cells[0].outputs = [
        nbformat.v4.new_output("display_data", {"text/html": html, "text/plain": "a run"})
    ]
    nbformat.write(book, str(tmp_path / "card.ipynb"))
    view = opened(tmp_path / "card.ipynb")
    card = view.page.locator(".jp-OutputArea-output")
    card.locator("img").wait_for()
    view.page.wait_for_function("document.querySelector('.jp-OutputArea-output img').naturalWidth > 50")
    view.page.wait_for_timeout(2000)  # formulas are set later
    expected = Watched(view.page.context.browser).page
    expected.set_content(html)
    words = card.inner_text().split()
    assert words == expected.locator("body").inner_text().split()
    assert " ".join(words).count("$") >= 5
    assert len(words) < 60, "the words of the tree are in the image alone"
    assert view.page.locator("mjx-container").count() == 0
    expected.context.close()


def published(folder):
    """What the cells of notebook 40 about the published logs show in a folder."""
    (path,) = (path for path in NOTEBOOKS if path.stem.startswith("40"))
    book = nbformat.read(str(path), as_version=4)
    sources = [cell.source for cell in book.cells]
    first = next(k for k, source in enumerate(sources) if source.startswith("## The published logs"))
    chosen = [
        cell
        for k, cell in enumerate(book.cells)
        if cell.cell_type == "code" and (k < 3 or (k > first and re.search("published|puzzles", cell.source)))
    ]
    few = nbformat.v4.new_notebook(cells=chosen)
    NotebookClient(few, timeout=120, resources={"metadata": {"path": folder}}).execute()
    return [
        "".join(output.get("text", "") or output.get("data", {}).get("text/plain", ""))
        for cell in few.cells
        for output in cell.outputs
    ]


def test_without_the_published_logs_one_sentence_says_so(tmp_path):
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    (said,) = published(folder)
    assert said.count(".") == 1
    assert "not here" in said


@pytest.mark.nightly
@pytest.mark.skipif(not RECORDS.is_dir(), reason="needs the published logs")
def test_the_published_logs_are_found_under_their_real_names(tmp_path):
    """In a clone of their repository beside the notebook."""
    logs = tmp_path / "a" / "b" / "tree-of-thought-llm" / "logs"
    for name, place in (
        ("game24_bfs_gpt4_even", "game24/gpt-4_0.7_propose1_value3_greedy5_start900_end1000"),
        ("crosswords_dfs_gpt4_even", "crosswords/infoss_dfs_prune"),
    ):
        (logs / place).parent.mkdir(parents=True)
        puzzles = json.loads((RECORDS / f"{name}.json").read_text())
        (logs / f"{place}.json").write_text(json.dumps(puzzles[:5]))
    shown = "\n".join(published(tmp_path / "a" / "b"))
    assert shown.count("5 puzzles") == 2
    assert "not here" not in shown
