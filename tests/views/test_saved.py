"""What a saved notebook keeps of an explorer, without a kernel: a card with a picture, the page, and text."""

import base64
import gzip
import json
import re
from html import unescape
from html.parser import HTMLParser

import comm
import pytest
from comm.base_comm import BaseComm
from support import run, wait

import tot_lab as tl
from tot_lab.views.explorer.page import page

MOST = 300_000
HOSTILE = '</div></iframe></script><script>alert(1)</script><img src=x onerror=alert(1)>"\' srcdoc="" $x$'


class Silent(BaseComm):
    """A way to a browser that nobody listens to."""

    def publish_msg(self, *given, **options):
        pass


@pytest.fixture(autouse=True)
def silent(monkeypatch):
    monkeypatch.setattr(comm, "create_comm", Silent)


class Elements(HTMLParser):
    """The elements of HTML with their attributes, and its text."""

    def __init__(self, html):
        super().__init__()
        self.found, self.text = [], ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data

    def of(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


def solved():
    return wait(
        tl.Lab("sim/game24", runs=None).run(
            tl.TreeOfThoughts(propose=tl.Propose(count=5)), tl.game24("4 5 6 10")
        )
    )


def bundle_of(explorer):
    data, _ = explorer._repr_mimebundle_()
    explorer.close()
    assert data.keys() == {"application/vnd.jupyter.widget-view+json", "text/html", "text/plain"}
    return data["text/html"], data["text/plain"]


def pages_in(html):
    """The pages in the frames of HTML, unpacked."""
    frames = Elements(html).of("iframe")
    assert all(frame["sandbox"] == "allow-scripts allow-downloads" for frame in frames)
    packed = [re.search(r'atob\("([A-Za-z0-9+/=]+)"\)', frame["srcdoc"])[1] for frame in frames]
    return [gzip.decompress(base64.b64decode(data)) for data in packed]


def test_an_explorer_leaves_its_card_with_a_picture_its_page_and_text():
    made = solved()
    html, text = bundle_of(tl.Explorer(made))
    assert len(json.dumps([html, text])) <= MOST
    (image,) = Elements(html).of("img")
    picture = base64.b64decode(image["src"].removeprefix("data:image/svg+xml;base64,")).decode()
    assert picture.count("<circle") + picture.count("<polygon") == len(made.tree)
    assert pages_in(html) == [page(made)]
    for said in (Elements(html).text, text):
        assert "✓ correct" in said
        assert made.answer in said
        assert "simulated model" in said
    assert "26 thoughts" in text
    assert "┗━" in text, "the tree"


def test_two_compared_runs_leave_two_cards_and_one_page():
    first, second = solved(), run(tl.OneAnswer())
    html, text = bundle_of(tl.CompareExplorer(first, second))
    assert len(Elements(html).of("img")) == 2
    assert pages_in(html) == [page(first, second)]
    assert first.question in text
    assert second.question in text


def large():
    recorder = tl.Recorder("How many?")
    root = recorder.thought("How many?")
    for k in range(600):
        step = recorder.thought(f"step {k}", root)
        recorder.call(step, "", str([hash((k, j)) for j in range(60)]))
    recorder.end("600", node=step)
    return recorder.run


def test_a_page_that_is_too_large_is_left_out_and_that_is_said():
    made = large()
    assert len(gzip.compress(page(made))) > MOST
    explorer = tl.Explorer(made)
    whole = explorer.static()._repr_html_()
    html, text = bundle_of(explorer)
    assert len(json.dumps([html, text])) <= MOST
    assert pages_in(html) == []
    assert "explorer.save_html(path) writes it" in Elements(html).text
    assert len(Elements(html).of("img")) == 1
    assert pages_in(whole) == [page(made)], "what a person asked for is shown, whatever its size"


def test_the_static_form_shows_the_page_at_once():
    made = solved()
    explorer = tl.Explorer(made)
    static = explorer.static()
    explorer.close()
    html = static._repr_html_()
    assert "open" in Elements(html).of("details")[0]
    assert pages_in(html) == [page(made)]
    assert "✓ correct" in repr(static)


def test_hostile_text_is_inert():
    made = hostile()
    explorer = tl.Explorer(made)
    shown = explorer.static()._repr_html_()
    for html in (bundle_of(explorer)[0], shown):
        elements = Elements(html)
        tags = {tag for tag, _ in elements.found}
        assert tags <= {"div", "b", "span", "img", "details", "summary", "iframe"}
        assert not [name for _, given in elements.found for name in given if name.startswith("on")]
        assert len(elements.of("img")) == len(elements.of("iframe")) == 1
        source = unescape(elements.of("iframe")[0]["srcdoc"])
        assert source.count("<script>") == 1, "the one that unpacks the page"
        assert "alert" not in source


def hostile():
    recorder = tl.Recorder(HOSTILE)
    root = recorder.thought(HOSTILE)
    step = recorder.thought(HOSTILE, root)
    recorder.call(step, HOSTILE, HOSTILE)
    recorder.end(HOSTILE, node=step)
    return recorder.run


def test_a_run_without_an_end_or_a_thought_says_so():
    recorder = tl.Recorder("not begun")
    html, text = bundle_of(tl.Explorer(recorder))
    assert "no thoughts yet" in html
    assert "not begun" in text


def test_what_is_no_tree_is_an_error_in_words():
    recorder = tl.Recorder("odd")
    made = recorder.run
    made.lines.extend(hostile().lines * 2)
    html, text = bundle_of(tl.Explorer(made))
    assert "Error" in html
    assert "Error" in text
