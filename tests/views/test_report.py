"""A run's text, card and page say the same facts, and hold any text without being broken by it."""

import base64
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import TASK, Scripted, answer_to, run, wait
from support.browser import Watched
from support.contrast import contrast

import tot_lab as tl
from tot_lab.core.calls import Reply
from tot_lab.core.records import describe_stop
from tot_lab.views.figures.theme import DARK, FAINT
from tot_lab.views.report import report_html, run_html, run_text, tree_rows, tree_svg

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>'\"&lt;<!-- \x00\x0b\ud800 \u2028"
ALLOWED = {
    "html", "head", "meta", "title", "style", "script", "body", "h1", "h2", "div", "b", "span", "table",
    "thead", "tbody", "tr", "th", "td", "a", "details", "summary", "p", "svg", "path", "rect", "circle",
    "polygon", "polyline", "text", "tspan", "ol", "li", "img", "section", "h3",
}  # fmt: skip


class Elements(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.seen, self.scripts, self.attributes, self.inside = [], [], [], ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.seen.append(tag)
        self.attributes += attributes
        self.inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self.inside = ""

    def handle_data(self, data):
        if self.inside == "script":
            self.scripts[-1] += data


def hostile(text=HOSTILE):
    recorder = tl.Recorder(text)
    root = recorder.thought(text)
    step = recorder.thought(text, root)
    recorder.score(step, 0.4, by=text)
    recorder.decide(step, "pruned", text)
    recorder.call(step, text, text)
    recorder.end(text, node=step)
    return recorder.run


def search(**options):
    def counted(call):
        return Reply(answer_to(call), input_tokens=1000, output_tokens=3, cost=0.001)

    return run(tl.TreeOfThoughts(), model=Scripted(counted), **options)


def test_text_of_a_run():
    made = search()
    text = run_text(made)
    assert repr(made) == text
    for fact in (
        made.question,
        f"ended     {describe_stop(made.stop_reason)}",
        f"{made.usage.calls} ",
        "30,000 in, 90 out",
        "$0.03",
    ):
        assert fact in text
    assert ("✓ correct" in text) == bool(made.correct)
    assert text.splitlines()[-1].split(" · ")[0] == f"  run {made.id}"


def test_equal_runs_differ_in_the_last_line_alone():
    first, second = search(), search()
    assert first.id != second.id
    assert run_text(first).splitlines()[:-1] == run_text(second).splitlines()[:-1]
    cut = [run_html(made).rpartition("<div")[0] for made in (first, second)]
    assert cut[0] == cut[1]


def with_tools():
    tools = ["calculator", "multi_hop"]
    wrong = [
        tl.records.ToolCall("1", "calculator", '{"expression": "1/0"}'),
        tl.records.ToolCall("2", "search", "{}"),
    ]
    right = [tl.records.ToolCall("1", "calculator", '{"expression": "20 + 6"}')]
    turns = [Reply(tool_calls=tuple(wrong)), Reply(tool_calls=tuple(right)), "Answer: 26"]

    async def model(call):
        return turns[sum(message.role == "assistant" for message in call.messages)]

    return wait(tl.Lab(model, runs=None, tools=tools).run(tl.ToolLoop(), TASK))


@pytest.mark.slow
def test_tools_are_said_in_one_line(tmp_path):
    made = with_tools()
    text = run_text(made)
    said = "2 × calculator (1 failed), 1 × search (1 failed)"
    assert f"\n  tools     {said}\n" in text
    assert re.search(r" s, \d+\.\d\d s in tools", text.splitlines()[-1])
    assert text.splitlines()[:-1] == run_text(with_tools()).splitlines()[:-1]
    assert said in run_html(made)
    page = tl.figures.report_html([made, search()], tmp_path / "a.html").read_text()
    assert page.count(f"<div>{said}</div>") == page.count(f"<td>{said}</td>") == 1
    assert " · 3 tool calls · " in page
    assert "tools" not in run_text(search())
    assert "tool calls" not in tl.figures.report_html([search()], tmp_path / "b.html").read_text()


def test_unknown_is_said():
    made = run(tl.OneAnswer())
    assert "\n  calls     1 · tokens, cost unknown\n" in run_text(made)
    assert run_text(made).count("unknown") == 1
    nodes = [{"id": "a", "parent": None, "thought": "q"}, {"id": "b", "parent": "a", "thought": "t"}]
    assert "\n  calls, tokens, cost unknown\n" in run_text(tl.read_nodes(nodes))
    free = run(tl.OneAnswer(), model=Scripted(lambda call: Reply("Answer: 26", cost=0.0)))
    assert "calls     1 · cost $0 · tokens unknown\n" in run_text(free)


def test_small_tree_in_words():
    made = search()
    rows = tree_rows(made.tree, made.solution_path)
    assert len(rows) <= 12
    assert sum("━" in row for row in rows) == len(made.solution_path) - 1
    hidden = re.fullmatch(r"… (\d+) more thoughts", rows[-1])
    assert len(rows) - 1 + int(hidden[1]) == len(made.tree)


def test_the_question_is_printed_once_below_the_heading():
    question = "Mia buys 3 boxes of 12 pencils and gives 7 away. How many are left?"
    made = run(tl.SelfConsistency(attempts=4), tl.general(question, answer=29))
    assert run_text(made).count(question) == 2  # the heading, and the root of the tree
    assert run_text(made).count("(the question)") == 4


@pytest.mark.parametrize("depth", [1, 5, 7, 8, 9, 12, 40, 900])
def test_a_deep_tree_in_words(depth):
    recorder = tl.Recorder("deep")
    node = recorder.thought("top")
    for k in range(depth):
        node = recorder.thought(f"step {k}", node)
        recorder.score(node, 0.5)
    recorder.end("down", node=node)
    rows = tree_rows(recorder.run.tree, recorder.run.solution_path)
    assert len(rows) <= 12
    assert rows[-1].endswith(f"[answer] step {depth - 1}")
    skipped = sum(int(number) for number in re.findall(r"⋮ (\d+) steps", "\n".join(rows)))
    assert len(rows) + skipped == depth + 1


def test_unfinished_killed_and_empty_runs():
    made = search()
    for length in range(0, len(made.lines), 5):
        part = tl.Run(made.header, made.lines[:length])
        assert "unfinished" in run_text(part)
        assert "unfinished" in run_html(part)
    assert "no thoughts yet" in run_html(tl.Recorder().run)


@pytest.mark.slow
def test_simulated_is_said(tmp_path):
    made = run(tl.TreeOfThoughts(), tl.game24("4 5 6 10"), model="sim/game24")
    page = report_html([made], tmp_path / "a.html").read_text("utf-8")
    for said in (run_text(made), run_html(made), page):
        assert "simulated model" in said
    assert "simulated" not in run_text(search())


def test_grading_that_fails_is_told():
    def grade(answer, reference):
        raise ArithmeticError("odd")

    made = run(tl.OneAnswer(), tl.general("q", answer=1, grade=grade))
    assert "not graded (ArithmeticError: odd)" in run_text(made)


def test_card_is_inert():
    for made in (hostile(), search()):
        card = run_html(made)
        found = Elements(card)
        assert set(found.seen) <= ALLOWED - {"script", "style", "a"}
        assert not [name for name, _ in found.attributes if name.startswith("on") or name in ("id", "href")]
        (source,) = [value for name, value in found.attributes if name == "src"]
        assert source.startswith("data:image/svg+xml;base64,"), "which runs no script and loads nothing"
        assert "http" not in card


def markers(svg):
    """The number of shapes in a picture of a tree."""
    root = ET.fromstring(svg)
    names = [element.tag.rpartition("}")[2] for element in root.iter()]
    return names.count("circle") + names.count("polygon")


@pytest.mark.slow
@given(st.text())
def test_any_text_makes_a_picture(text):
    made = hostile(text)
    picture = tree_svg(made)
    assert markers(picture) == 2
    run_text(made).encode()
    run_html(made).encode()


def test_picture_shows_every_thought():
    made = search()
    assert markers(tree_svg(made)) == len(made.tree)
    with pytest.raises(ValueError, match="has no thoughts"):
        tree_svg(tl.Recorder().run)


def test_the_card_of_a_large_tree_draws_its_most_relevant_thoughts():
    recorder = tl.Recorder()
    root = recorder.thought("q")
    for _ in range(5000):
        recorder.thought("a long thought " * 300, root)
    recorder.end("x", node=recorder.thought("x", recorder.thought("the way", root)))
    card = run_html(recorder.run)
    assert "the 150 most relevant of 5,003 thoughts" in card
    assert len(card) < 150_000
    (source,) = re.findall('src="data:image/svg.xml;base64,([^"]+)"', card)
    picture = base64.b64decode(source).decode()
    assert markers(picture) == 150
    assert picture.count('stroke-width="3.2"') == 1, "the path to the answer is among them"


def test_each_colour_of_a_score_in_a_card_has_one_for_dark_pages():
    made = search()
    picture = tree_svg(made)
    light = set(re.findall(' fill="(#[0-9a-f]{6})"', picture)) - {FAINT}
    dark = dict(re.findall(r'\[fill="(#[0-9a-f]{6})"\]\{fill:(#[0-9a-f]{6})\}', picture))
    assert light <= dark.keys()
    assert min(contrast(shade, DARK.paper) for shade in dark.values()) >= 3


@pytest.mark.slow
def test_page_stands_alone_and_is_inert(tmp_path):
    runs = [search(), hostile(), tl.Recorder().run, search(budget=tl.Budget(calls=4))]
    path = report_html(runs, tmp_path / "deep" / "report.html", title=f"t {HOSTILE}")
    page = path.read_text("utf-8")
    found = Elements(page)
    assert set(found.seen) <= ALLOWED
    assert not [name for name, _ in found.attributes if name.startswith("on")]
    sources = [value for name, value in found.attributes if name == "src"]
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    assert all(value.startswith("#run-") for name, value in found.attributes if name == "href")
    assert found.seen.count("section") == 4
    assert "script" not in found.seen
    assert found.seen.count("img") == 3, "a picture of each run that has thoughts"
    assert page.count("no thoughts yet") == 1
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]


@pytest.mark.slow
def test_page_has_the_sums(tmp_path):
    runs = [search(), search(repeat=1)]
    page = report_html(runs, tmp_path / "report.html").read_text("utf-8")
    right = sum(bool(made.correct) for made in runs)
    calls = sum(made.usage.calls for made in runs)
    assert f"<p>2 runs · {right} of 2 correct ({right / 2:.0%}) · {calls} calls · " in page
    page = report_html([*runs, run(tl.OneAnswer())], tmp_path / "b.html").read_text("utf-8")
    assert " · unknown tokens in, unknown tokens out · cost unknown · paid unknown · " in page
    assert f" · {calls + 1} calls · " in page


@pytest.mark.slow
def test_large_runs_get_a_note(tmp_path):
    recorder = tl.Recorder()
    root = recorder.thought("q")
    for _ in range(2000):
        recorder.thought("t", root)
    page = report_html([recorder.run], tmp_path / "report.html").read_text("utf-8")
    assert "the 150 most relevant of 2,001 thoughts" in page
    assert len(page) < 100_000


@pytest.mark.slow
def test_a_page_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    path = report_html([], tmp_path / "report.html")
    before = path.read_bytes()
    monkeypatch.setattr("pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        report_html([search()], path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.slow
def test_what_a_failing_model_says_is_shown_whole_and_as_text(tmp_path):
    said = "no key; set THE_KEY <script>alert(1)</script> " + "and so on " * 20

    def fails(call):
        raise ConnectionError(said)

    made = run(tl.OneAnswer(), model=Scripted(fails))
    page = report_html([made], tmp_path / "report.html").read_text()
    assert "<script>alert" not in page + made._repr_html_()
    assert "THE_KEY" in repr(made)
    assert "and so on and so on and so on and so on" in repr(made)


def test_what_came_from_the_cache_is_said_in_the_last_line(tmp_path):
    lab = tl.Lab("sim/game24", runs=None, cache=tmp_path)
    first, again = (wait(lab.run(tl.OneAnswer(), tl.game24("4 5 6 10"))) for _ in range(2))
    assert repr(first).splitlines()[:-1] == repr(again).splitlines()[:-1]
    assert "1 calls from the cache" in repr(again).splitlines()[-1]
    assert "sim/game24" in repr(first).splitlines()[0]


# In a browser.

SEEN = """() => {
  const numbers = (shade) => shade.match(/[\\d.]+/g).map(Number);
  const paper = (node) => {
    const below = node?.parentElement ? paper(node.parentElement) : [255, 255, 255];
    const [red, green, blue, opacity = 1] = numbers(getComputedStyle(node).backgroundColor);
    return [red, green, blue].map((shade, k) => Math.round(shade * opacity + below[k] * (1 - opacity)));
  };
  const found = [];
  const apart = "script, style, .modebar-container";
  const visible = (node) => node.getClientRects().length && !node.closest(apart);
  for (const node of document.querySelectorAll("body *")) {
    if (!visible(node)) continue;
    const style = getComputedStyle(node), svg = node.closest("svg");
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (own) {
      let [red, green, blue, opacity = 1] = numbers(svg ? style.fill : style.color);
      for (let up = node; up; up = up.parentElement) opacity *= getComputedStyle(up).opacity;
      const shade = `rgba(${red}, ${green}, ${blue}, ${opacity})`;
      found.push(["text", shade, `rgb(${paper(svg ?? node).join(", ")})`, node.textContent]);
    }
    if (node.matches(".point, .js-line, svg[role=img] > :not(text)")) {
      const shade = style.stroke === "none" ? style.fill : style.stroke;
      found.push(["mark", shade, `rgb(${paper(svg).join(", ")})`, node.outerHTML.slice(0, 150)]);
    }
  }
  return found;
}"""
"""Every visible text and mark of a page: its colour, the colour behind it, and what it is."""


def expect_seen(page, papers):
    """Expect every text and mark of a page to have enough contrast, and the given colours behind them."""
    found = page.evaluate(SEEN)
    assert {what for what, *_ in found} == {"text", "mark"}
    assert {paper for what, _, paper, _ in found} <= papers
    for what, shade, paper, where in found:
        assert contrast(shade, paper) >= (4.5 if what == "text" else 3), (what, shade, paper, where)


@pytest.fixture(scope="module")
def simulated():  # requested before `chrome`: no run can be made while Playwright holds the event loop
    return run(tl.TreeOfThoughts(), tl.game24("4 5 6 10"), model="sim/game24")


@pytest.fixture(scope="module")
def panel():
    """The panel of a Deep Think of several iterations."""
    made = run(tl.DeepThink(), tl.domains.constrained(4), model=tl.sim.SimConstrained(seed=1))
    return tl.deep_thought(made)._repr_html_()


LONG = "the whole text of this thought, which no line of a table can hold " * 9


def wrong():
    """A simulated run with a wrong answer, warnings, a long question and long thoughts on its path."""
    task = tl.general("a long question " * 30, answer="41", grade="number")
    with tl.Recorder("own", task=task) as recorder:
        node = recorder.thought(task.question)
        for k, state in enumerate(("kept", "kept", "answer")):
            node = recorder.thought(f"{k}: {LONG}", parent=node)
            recorder.score(node, 0.9)
            recorder.decide(node, state)
            recorder.call(node, "p", Reply(error="down: no"))
        recorder.end("42", node=node)
    return recorder.run


INLINE = """document.querySelectorAll("img").forEach(image => {
  image.outerHTML = atob(image.src.split(",")[1]);
})"""  # what is drawn, as elements


def paper_of(page):
    """The colour behind the first picture of a page, as it is drawn."""
    url = "data:image/png;base64," + base64.b64encode(page.locator("img").first.screenshot()).decode()
    return page.evaluate(
        """async (url) => {
          const image = new Image();
          image.src = url;
          await image.decode();
          const pen = document.createElement("canvas").getContext("2d");
          pen.drawImage(image, 0, 0);
          return `rgb(${[...pen.getImageData(20, 20, 1, 1).data].slice(0, 3).join(", ")})`;
        }""",
        url,
    )


@pytest.mark.nightly
def test_a_page_follows_the_system_and_prints_light_and_whole(tmp_path, simulated, panel, chrome):
    runs = [simulated, wrong(), tl.Recorder().run]
    path = report_html(runs, tmp_path / "report.html")
    view = Watched(chrome, color_scheme="light", viewport={"width": 1100, "height": 800})
    page = view.page
    page.goto(path.as_uri())
    assert page.locator("img").count() == 2
    assert paper_of(page) == "rgb(255, 255, 255)"
    page.emulate_media(color_scheme="dark")
    assert paper_of(page) == "rgb(17, 20, 24)"
    page.set_viewport_size({"width": 688, "height": 1000})  # A4 with margins
    page.emulate_media(media="print", color_scheme="dark")
    assert paper_of(page) == "rgb(255, 255, 255)"
    assert page.evaluate("document.documentElement.scrollWidth") <= 688
    cut = """[...document.querySelectorAll("body *")].filter(node => !node.closest("svg")
        && getComputedStyle(node).overflowX !== "visible" && node.scrollWidth > node.clientWidth).length"""
    assert page.evaluate(cut) == 0
    page.emulate_media(media="print", color_scheme="light")  # an element, unlike an image, follows the system
    page.evaluate(INLINE)
    expect_seen(page, {"rgb(255, 255, 255)"})
    texts = page.locator("body").inner_text()
    for fact in (
        runs[1].question.strip(),
        *(f"{k}: {LONG}".strip() for k in range(3)),
        "✗ wrong, expected 41",
    ):
        assert fact in texts
    assert not view.errors
    assert view.outside == []
    view.context.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("paper", "ink"), [("#ffffff", "rgba(0, 0, 0, 0.87)"), ("#111418", "rgba(255, 255, 255, 0.87)")]
)
def test_a_card_can_be_read_on_light_and_dark_pages(simulated, panel, chrome, paper, ink):
    view = Watched(chrome, color_scheme="light" if paper == "#ffffff" else "dark")
    cards = "".join(map(run_html, (wrong(), simulated))) + panel
    view.page.set_content(f"<body style='background:{paper};color:{ink}'>{cards}")
    assert view.page.locator("img").count() == 2
    view.page.evaluate(INLINE)
    code = {
        "#ffffff": ["rgb(255, 255, 255)", "rgb(237, 237, 237)"],
        "#111418": ["rgb(17, 20, 24)", "rgb(33, 35, 39)"],
    }
    expect_seen(view.page, set(code[paper]))
    view.context.close()


@pytest.mark.slow
def test_a_panel_of_deep_think_prints_every_section(simulated, panel, chrome):
    view = Watched(chrome, viewport={"width": 688, "height": 1000})
    view.page.set_content(panel)
    folded = view.page.locator("details:not([open]) > :not(summary)")
    assert folded.count() > 1
    assert not any(one.is_visible() for one in folded.all())
    view.page.emulate_media(media="print")
    tall = view.page.evaluate(
        "[...document.querySelectorAll('details > :not(summary)')].map(one => one.offsetHeight)"
    )
    assert min(tall) > 0
    assert all(one.is_visible() for one in folded.all())
    assert view.page.evaluate("document.documentElement.scrollWidth") <= 688
    view.context.close()
