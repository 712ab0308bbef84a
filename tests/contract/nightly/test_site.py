"""`make docs` builds the documentation site, which is complete and works from a folder, without a network."""

import functools
import http.server
import re
import runpy
import subprocess
import threading

import pytest
from support import ROOT
from support.browser import Watched, offline_pages
from support.venvs import python_with


@pytest.fixture(scope="module")
def site():
    """The folder of the site, built in an environment of its own. A broken link or name ends the build."""
    python = python_with(tot_lab="docs")
    subprocess.run([python, "docs/build.py"], cwd=ROOT, check=True, timeout=120)
    zensical = [python.parent / "zensical", "build", "--clean", "--strict"]
    done = subprocess.run(zensical, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return ROOT / "site"


def test_every_public_name_has_one_place_in_the_site(site):
    names = runpy.run_path(str(ROOT / "docs" / "build.py"))["public_names"]()
    html = "\n".join(page.read_text() for page in (site / "api").glob("*.html"))
    places = re.findall(r'<h2 id="([\w.]+)"', html)
    for name, path in names.items():
        assert places.count(path) == 1, name


def test_classes_show_the_signature_that_their_fields_make(site):
    text = re.sub(r"<[^>]+>", "", (site / "api" / "strategies.html").read_text())
    assert re.search(r"BeamSearch\(\s*\*,\s*width: Count \| None = \d", text)
    assert "Source code in tot_lab/strategies/search/beam_search.py" in " ".join(text.split())


def test_pages_load_nothing_from_other_hosts(site):
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r'<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)="([^"]+)"', page.read_text()
        )
        assert loaded
        assert not [url for url in loaded if re.match(r"(https?:)?//", url)], page


def test_links_between_pages_lead_to_files_and_headings(site):
    ids = {page: {*re.findall(r'\bid="([^"]+)"', page.read_text())} for page in site.rglob("*.html")}
    for page in ids:
        (article,) = re.findall(r"<article.*?</article>", page.read_text(), re.DOTALL)[:1] or [""]
        for path, anchor in re.findall(r'<a\b[^>]*?href="(?![a-z]+:)([^"#?]*)(?:#([^"]*))?"', article):
            target = (page.parent / path).resolve() if path else page
            assert target.is_file(), f"{page.relative_to(site)} links {path}"
            assert not anchor or target not in ids or anchor in ids[target], f"{page}: {path}#{anchor}"


def test_each_notebook_has_a_page_with_its_pictures(site):
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        page = (site / "notebooks" / f"{notebook.stem}.html").read_text()
        pictures = len(re.findall(r'"image/png":', notebook.read_text()))
        assert len(re.findall(rf'<img[^>]+src="{notebook.stem}/', page)) == pictures, notebook.name


def test_no_table_of_a_notebook_covers_the_contents(site, chrome):
    with offline_pages(chrome) as open_:
        page = open_(site / "notebooks" / "10_sweeps.html")
        edges = page.eval_on_selector_all(
            "article, article table",
            """all => all.map(one => one.closest(".md-typeset__scrollwrap") ?? one)
                .map(one => one.getBoundingClientRect().right)""",
        )
    assert len(edges) > 5
    assert max(edges) <= edges[0] + 20  # the contents begin 40 pixels from the text


def find_beam(page):
    page.keyboard.press("Control+k")
    page.keyboard.type("beam", delay=30)
    page.wait_for_function("document.querySelectorAll('a[href*=\"strategies.html\"]').length > 1")
    page.get_by_text("tl.BeamSearch").first.wait_for()


def test_search_finds_a_name_in_a_folder(site, chrome):
    with offline_pages(chrome) as open_:
        find_beam(open_(site / "index.html"))


def test_search_finds_a_name_from_a_local_server(site, chrome):
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        watched = Watched(chrome)
        watched.page.goto(f"http://127.0.0.1:{server.server_port}/index.html")
        find_beam(watched.page)
        watched.context.close()
        server.shutdown()
    assert (watched.outside, watched.errors) == ([], [])
