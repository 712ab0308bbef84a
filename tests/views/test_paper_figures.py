"""Figures for a paper: what a file shows, at which size, and what happens without Kaleido or a browser."""

import re
import sys
import types
import xml.etree.ElementTree as ET

import pandas
import plotly.graph_objects as go
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import Scripted, answer_to, run
from support.browser import browsing

import tot_lab as tl
from tot_lab.apps.cli import main
from tot_lab.views.figures import figures_of

QUESTION = "What is 6 times 7?"
SVG = "{http://www.w3.org/2000/svg}"
POINTS = 72 / 96
"""Points per pixel at the size at which a figure is printed."""

RIGHT = tl.general(QUESTION, answer="42", grade="exact")
WRONG = tl.general(QUESTION, answer="41", grade="exact")
SMALL = tl.TreeOfThoughts(
    propose=tl.Sample(count=2), evaluate=tl.Value(), search=tl.BeamSearch(width=1), stop=tl.Stop(depth=2)
)


def searched(task=RIGHT, strategy=SMALL):
    return run(strategy, task, Scripted(lambda call: "42" if call.purpose == "sample" else answer_to(call)))


def wide():
    return run(tl.TreeOfThoughts(), tl.game24("1 2 3 4"), tl.sim.SimGame24(skill=1.0))


def texts(path):
    """The visible texts of a drawing, a line each."""
    return ["".join(text.itertext()) for text in ET.parse(path).iter(f"{SVG}text")]


def test_the_tree_has_title_verdict_and_legend(tmp_path):
    path = searched().save_figure(tmp_path / "tree.svg")
    assert path == tmp_path / "tree.svg"
    shown = texts(path)
    assert shown[:3] == [QUESTION, "✓ correct", "answer: 42"]
    assert {"question", "right answer", "path to the answer", "score 0–1"} <= set(shown)
    assert list(tmp_path.iterdir()) == [path]


def test_the_text_of_a_duplicate_is_written_once(tmp_path):
    recorder = tl.Recorder("count")
    root = recorder.thought("How many?")
    first = recorder.thought("They are 29.", root)
    for _ in range(2):
        recorder.decide(recorder.thought("They are 29.", root), "duplicate", other=first)
    other = recorder.thought("They are thirty.", root)
    recorder.decide(other, "duplicate", other=first)  # equal as a state, with a text of its own
    recorder.end("29", node=first)
    shown = texts(recorder.run.save_figure(tmp_path / "tree.svg", width=7))
    assert shown.count("They are 29.") == 1
    assert "They are thirty." in shown
    assert "duplicate" in shown


def test_a_wrong_answer_is_called_wrong_and_the_expected_one_named(tmp_path):
    shown = texts(searched(WRONG).save_figure(tmp_path / "tree.svg"))
    assert shown[:3] == [QUESTION, "✗ wrong, expected 41", "answer: 42"]
    assert "wrong answer" in shown


def test_no_answer_an_ungraded_one_and_an_unfinished_run(tmp_path):
    lost = run(SMALL, WRONG, Scripted(lambda call: ""))
    assert "✗ no answer, expected 41" in texts(lost.save_figure(tmp_path / "a.svg"))
    ungraded = run(SMALL, tl.general(QUESTION), Scripted(lambda call: "42"))
    assert "ungraded" in texts(ungraded.save_figure(tmp_path / "a.svg"))
    made = searched()
    part = tl.Run(made.header, made.lines[: len(made.lines) // 2])
    assert "has not ended" in " ".join(texts(part.save_figure(tmp_path / "a.svg")))


def test_a_simulated_model_is_named(tmp_path):
    assert "simulated model" in texts(wide().save_figure(tmp_path / "a.svg"))


@pytest.mark.parametrize(("width", "made"), [(3.5, searched), (3.5, wide), (7, wide)])
def test_text_is_legible_at_the_width_of_a_column(tmp_path, width, made):
    root = ET.parse(made().save_figure(tmp_path / "tree.svg", width=width)).getroot()
    assert root.get("width") == f"{width:g}in"
    assert root.get("viewBox").split()[2] == f"{width * 96:g}"
    assert root.find(f"{SVG}rect").get("fill") == "#ffffff"
    sizes = [float(one.get("font-size")) for one in root.iter() if one.get("font-size")]
    assert min(sizes) * POINTS >= 7


def test_thoughts_that_have_no_room_for_labels_are_listed(tmp_path):
    made = wide()
    path = [made.tree[id].text for id in made.solution_path[1:]]
    narrow = texts(made.save_figure(tmp_path / "a.svg"))
    assert len(path) == 3
    assert set(path) <= set(narrow)
    assert narrow.count("1") == narrow.count("2") == narrow.count("3") == 2  # beside the thought and its text
    assert not [text for text in narrow if text.endswith("…")]


def test_a_long_path_is_shortened(tmp_path):
    with tl.Recorder("chain", task=RIGHT) as recorder:
        node = recorder.thought(QUESTION)
        for k in range(60):
            node = recorder.thought(f"step number {k}", parent=node)
        recorder.end("42", node=node)
    shown = texts(recorder.run.save_figure(tmp_path / "a.svg"))
    assert "48 more steps" in shown
    assert {"step number 0", "step number 59"} <= set(shown)
    assert "step number 30" not in shown


@pytest.mark.slow
@given(st.text(max_size=400))
@settings(max_examples=25, deadline=None)
def test_any_text_is_a_drawing(tmp_path_factory, text):
    with tl.Recorder(text or "x", task=RIGHT) as recorder:
        recorder.end(text, node=recorder.thought(text, parent=recorder.thought(text)))
    ET.parse(recorder.run.save_figure(tmp_path_factory.getbasetemp() / "any.svg"))


@pytest.mark.nightly
def test_no_text_is_cut_off(tmp_path, chromium_address):
    """As the browser draws it, with the fonts of this machine."""
    long = "Which of these METHODS of teaching arithmetic helps a class of thirty children most? " * 3
    made = [
        wide(),
        searched(),
        run(SMALL, tl.general(long, answer="no", grade="exact"), Scripted(lambda call: long)),
    ]
    files = [one.save_figure(tmp_path / f"{k}.svg") for k, one in enumerate(made)]
    with browsing(chromium_address) as browser:
        page = browser.new_page()
        for file in files:
            page.goto(file.as_uri())
            assert page.evaluate(CUT_OFF) == []


CUT_OFF = """() => {
  const all = document.documentElement.getBoundingClientRect();
  return [...document.querySelectorAll("text")].filter((text) => {
    const box = text.getBoundingClientRect();
    return box.left < all.left - 1 || box.right > all.right + 1 || box.bottom > all.bottom + 1;
  }).map((text) => text.textContent);
}"""


@pytest.mark.slow
def test_what_cannot_be_saved_is_said(tmp_path):
    made = searched()
    figure = tl.figures.plot_tree(made)
    for save in (made.save_figure, lambda path: tl.figures.save(figure, path)):
        with pytest.raises(ValueError, match=r"tree\.gif: unknown format\. Use \.svg, \.pdf or \.png"):
            save(tmp_path / "tree.gif")
    with pytest.raises(ValueError, match="width must be between 2 and 50 inches: got 0"):
        made.save_figure(tmp_path / "tree.svg", width=0)
    with pytest.raises(ValueError, match="no thoughts"):
        tl.Recorder().run.save_figure(tmp_path / "tree.svg")
    with pytest.raises(TypeError, match=r"tree\.svg: expected a Plotly figure, .*: got Run\."):
        tl.figures.save(made, tmp_path / "tree.svg")
    assert not list(tmp_path.iterdir())


@pytest.fixture
def no_kaleido(monkeypatch):
    monkeypatch.setattr("tot_lab.views.figures.saving.find_spec", lambda name: None)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tree.pdf", "tree.png"])
def test_without_kaleido_the_error_says_what_is_missing(tmp_path, no_kaleido, name):
    path = tmp_path / name
    path.write_text("older")
    message = rf"{name} was not written: .*Chrome or Chromium.* pip install 'tot-lab\[figures\]'"
    with pytest.raises(ImportError, match=message):
        searched().save_figure(path)
    with pytest.raises(ImportError, match=message):
        tl.figures.save(tl.figures.plot_tree(searched()), path)
    assert path.read_text() == "older"
    assert list(tmp_path.iterdir()) == [path]
    searched().save_figure(tmp_path / "tree.svg")  # needs neither


def test_the_command_line_exports_a_figure_and_prints_an_error_as_one_line(tmp_path, no_kaleido, capsys):
    journal = str(searched().save(tmp_path / "run.jsonl"))
    assert main(["export", journal, "--to", str(tmp_path / "tree.svg")]) == 0
    assert "✓ correct" in texts(tmp_path / "tree.svg")
    assert main(["export", journal, "--to", str(tmp_path / "tree.pdf")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "pip install 'tot-lab[figures]'" in line


def test_without_a_browser_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr("tot_lab.views.figures.saving.find_spec", lambda name: name)

    def failing(*_, **__):
        raise RuntimeError("no Chrome here\nsecond line")

    monkeypatch.setattr(go.Figure, "to_image", failing)
    path = tmp_path / "deep" / "tree.pdf"
    with pytest.raises(
        OSError, match=r"tree\.pdf was not written: .*no Chrome here second.*plotly_get_chrome"
    ):
        searched().save_figure(path)
    assert not path.parent.exists()


@pytest.fixture
def saved(monkeypatch):
    """The figures given to Kaleido, in place of Kaleido."""
    monkeypatch.setitem(sys.modules, "kaleido", types.ModuleType("kaleido"))
    monkeypatch.setattr("tot_lab.views.figures.saving.find_spec", lambda name: name)
    figures = []
    monkeypatch.setattr(go.Figure, "to_image", lambda figure, **_: figures.append(figure) or b"image")
    return figures


def heading(figure):
    return f"{figure.layout.title.text}<br>{figure.layout.title.subtitle.text}"


@pytest.mark.slow
@pytest.mark.parametrize("figure", figures_of("run"), ids=lambda figure: figure.__name__)
def test_every_figure_of_a_run_has_title_verdict_and_legend(tmp_path, saved, figure):
    for task, verdict in ((RIGHT, "answer: 42 ✓ correct"), (WRONG, "answer: 42 ✗ wrong")):
        made = searched(task)
        tl.figures.save(figure(made, dark=False), tmp_path / "a.pdf")
        assert QUESTION in heading(saved[-1])
        assert verdict in heading(saved[-1])
        named = [trace.name for trace in saved[-1].data if trace.name and trace.showlegend is not False]
        assert named or saved[-1].layout.coloraxis.colorbar.title.text
    assert (tmp_path / "a.pdf").read_bytes() == b"image"


@pytest.mark.slow
def test_a_heading_is_wrapped_to_the_width_and_another_title_is_text(tmp_path, saved):
    long = tl.general(" ".join(f"word{k} &" for k in range(30)), answer="42", grade="exact")
    figure = tl.figures.plot_tree(searched(long))
    before = figure.to_json()
    for width in (3.5, 7):
        tl.figures.save(figure, tmp_path / "a.png", width=width)
        lines = saved[-1].layout.title.text.replace("&amp;", "&").split("<br>")
        assert max(map(len, lines)) * 16 * 0.55 <= width * 96
        assert saved[-1].layout.width == width * 96
    narrow, normal = saved
    assert "<b>" not in narrow.layout.title.text
    added = narrow.layout.margin.t - normal.layout.margin.t
    assert added == narrow.layout.height - normal.layout.height > 0
    tl.figures.save(figure, tmp_path / "a.png", title="A <b>& $x$ B")
    assert saved[-1].layout.title.text == "A &lt;b&gt;&amp; &#36;x&#36; B"
    assert "✓ correct" in saved[-1].layout.title.subtitle.text
    assert figure.to_json() == before


@pytest.mark.nightly
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("width", [3.5, 7])
def test_every_label_of_a_figure_is_drawn(tmp_path, width):
    """Plotly leaves out a slanted label that begins outside the figure."""
    pytest.importorskip("kaleido")
    names = [f"beam search.width={k}" for k in range(1, 4)] + [f"vote attempts={k}" for k in range(1, 5)]
    rows = [{"setting": name, "task": f"{k}", "correct": True} for name in names for k in range(2)]
    figure = tl.figures.plot_sweep(pandas.DataFrame(rows))
    drawn = tl.figures.save(figure, tmp_path / "a.svg", width=width).read_text()
    assert [name for name in names if name not in drawn] == []


@pytest.mark.nightly
@pytest.mark.filterwarnings("default")
def test_kaleido_draws_pdf_and_png(tmp_path):
    pytest.importorskip("kaleido")
    made = wide()
    pdf = made.save_figure(tmp_path / "tree.pdf").read_bytes()
    assert pdf.startswith(b"%PDF")
    box = re.search(rb"/MediaBox ?\[0 0 ([\d.]+) ", pdf)
    assert float(box[1]) == pytest.approx(3.5 * 72, abs=1)
    assert b"/Subtype /Image" not in pdf  # it remains a vector graphic
    png = made.save_figure(tmp_path / "tree.png").read_bytes()
    assert png.startswith(b"\x89PNG")
    assert int.from_bytes(png[16:20], "big") == pytest.approx(3.5 * 300, abs=2)
    svg = tl.figures.save(made.plot("scores", dark=False), tmp_path / "scores.svg").read_text()
    assert "1 2 3 4" in svg
    assert "✓ correct" in svg


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_kaleido_without_a_browser(tmp_path, monkeypatch):
    pytest.importorskip("kaleido")
    monkeypatch.setenv("BROWSER_PATH", str(tmp_path / "no-browser"))
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(OSError, match=r"a\.pdf was not written: .*Chrome or Chromium"):
        searched().save_figure(tmp_path / "a.pdf")
    assert not list(tmp_path.iterdir())
