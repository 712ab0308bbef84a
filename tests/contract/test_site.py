"""The documentation site describes every public name, and its pages link only what it contains."""

import inspect
import re
import runpy

import pytest
from support import ROOT

import tot_lab as tl

BUILD = runpy.run_path(str(ROOT / "docs" / "build.py"))


@pytest.fixture(scope="module")
def pages():
    """The API pages as they are before mkdocstrings fills them, by path."""
    return BUILD["api_pages"]()


def public_names():
    """Every name that a person can write after `tl.`, and those of its namespaces and modules."""
    for name in set(tl.__all__) - {"__version__"}:
        value = getattr(tl, name)
        if hasattr(value, "places"):
            yield from (f"tl.{name}.{each}" for each in value.places())
        elif hasattr(value, "__all__"):
            yield from (f"tl.{name}.{each}" for each in value.__all__)
        else:
            yield f"tl.{name}"


def test_each_public_name_is_a_heading_of_exactly_one_page(pages):
    headings = [
        (name, page)
        for page, text in pages.items()
        for names in re.findall(r"^      heading: (.*)$", text, re.MULTILINE)
        for name in names.split(" · ")
    ]
    described = sorted(name for name, _ in headings)
    attached = ("tl.Run.", "tl.Sweep.", "tl.stats.DeepThought.")
    assert [name for name in described if not name.startswith(attached)] == sorted(public_names())


def test_the_index_names_every_namespace(pages):
    spaces = {name for name in tl.__all__ if hasattr(getattr(tl, name), "places")} | {*BUILD["MODULES"]}
    assert {*re.findall(r"^- `tl\.(\w+)`:", pages["api/README.md"], re.MULTILINE)} == spaces


def test_a_page_documents_the_object_that_its_heading_names(pages):
    for text in pages.values():
        for path, names in re.findall(r"^::: (\S+)\n.*\n      heading: (.*)$", text, re.MULTILINE):
            value = eval(names.split(" · ")[0], {"tl": tl})
            if inspect.isclass(value) or inspect.isfunction(value):
                assert path == f"{value.__module__}.{value.__qualname__}", names
            else:
                assert path.endswith(f".{names.rpartition('.')[2]}"), names


@pytest.mark.parametrize("name", ["Run", "Sweep"])
def test_methods_that_other_rooms_attach_are_described(pages, name):
    text = "\n".join(pages.values())
    attached = {"Run": ("nodes_df", "plot", "save_html", "replay"), "Sweep": ("df", "save_html")}
    for method in attached[name]:
        assert re.search(rf"heading: .*\btl\.{name}\.{method}$", text, re.MULTILINE)


def test_links_to_notebooks_go_to_their_pages():
    text = "[a](../notebooks/01.ipynb), [b](notebooks), [c](https://host/x.ipynb), [d](data/a.png)"
    assert BUILD["with_page_links"](text) == (
        "[a](../notebooks/01.md), [b](notebooks/README.md), [c](https://host/x.ipynb), [d](data/a.png)"
    )


def test_the_guide_lists_each_notebook_in_order():
    table = re.findall(
        r"^\| \[(\w+)\]\((.*)\) \|", (ROOT / "docs/how-to/notebooks.md").read_text(), re.MULTILINE
    )
    stems = [path.stem for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]
    assert table == [(stem, f"../../notebooks/{stem}.ipynb") for stem in stems]


GALLERY = (ROOT / "docs" / "gallery.md").read_text()
SECTIONS = re.findall(r"^### ([^\n]*)\n\n(.*?)(?=^##|\Z)", GALLERY, re.MULTILINE | re.DOTALL)


def test_the_gallery_shows_every_figure_and_every_view():
    views = ROOT / "tot_lab" / "views" / "explorer" / "js" / "face.js"
    (listed,) = re.findall(r"export const VIEWS = .*?\(\[(.*?)\]\)", views.read_text())
    wanted = {f"tl.figures.{name}" for name in dir(tl.figures) if name.startswith(("plot_", "report_"))}
    wanted |= {f"Explorer: {name}" for name in re.findall(r'"(\w+)"', listed)}
    wanted |= {"tl.panel", "tl.diagnose", "tl.deep_thought", "run.save_figure", "sweep.save_html"}
    assert wanted <= {title for title, _ in SECTIONS}


def test_each_entry_of_the_gallery_has_a_question_and_a_picture_of_its_own():
    pictures = []
    for title, text in SECTIONS:
        assert re.search(r"^\*\*[^*]+\?\*\*", text, re.MULTILINE), title
        (picture,) = re.findall(r"^!\[[^\]]+\]\(([^)]+)\)$", text, re.MULTILINE)
        pictures.append((ROOT / "docs" / picture).resolve())
    assert len({path.read_bytes() for path in pictures}) == len(pictures)
    own = {*(ROOT / "docs" / "pictures" / "gallery").iterdir()}
    assert own <= {*pictures}
    assert sum(path.stat().st_size for path in own) <= 600_000
