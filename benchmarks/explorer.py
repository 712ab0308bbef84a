"""What the explorer costs in a real JupyterLab and a real Chromium, beside a plotly FigureWidget.

Prints, never fails. Times run from the call in Python, by the kernel's clock, until the frame after the
drawing, by the browser's: both are clocks of one machine. Ratios are of runs in one notebook, in turn;
absolute times here vary by half. Needs Chromium and the dev extra: python benchmarks/explorer.py
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import re
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from playwright.sync_api import Browser, Page
from support.browser import JupyterLab, Notebook, Watched, browsing, running_chromium, soon

import tot_lab as tl

THOUGHTS = 10_000
MANY = 100_000
MILLION = 1_000_000

SETUP = """
import asyncio, gc, os, random, time
import plotly.graph_objects as go
import tot_lab as tl
from tot_lab.views.figures.layout import tidy

def soon(act):
    "Act while no cell runs, as a live search does."
    asyncio.get_running_loop().call_later(0.5, act)

def grown(count):
    "A record of so many thoughts, bushy and deep, scored and decided."
    dice = random.Random(1)
    recorder = tl.Recorder("grown")
    ids = [recorder.thought("the root")]
    back = max(400, count // 250)  # a million thoughts are as deep as 100,000: some 500 levels
    for number in range(1, count):
        parent = ids[dice.randrange(max(0, number - back), number)] if number > 1 else ids[0]
        ids.append(recorder.thought(f"thought {number}", parent))
        recorder.score(ids[-1], dice.random())
        recorder.decide(ids[-1], dice.choice(["kept", "pruned"]))
    return recorder

def figure_of(run):
    "The same tree as a FigureWidget: lines, and a marker for each thought."
    nodes = list(run.tree)
    place = {node.id: k for k, node in enumerate(nodes)}
    x, y = tidy([-1 if node.parent is None else place[node.parent] for node in nodes])
    lines = [[], []]
    for k, node in enumerate(nodes[1:], 1):
        above = place[node.parent]
        lines[0] += [x[above], x[k], None]
        lines[1] += [y[above], y[k], None]
    marks = go.Scatter(x=x, y=y, mode="markers", marker={"color": [node.score or 0 for node in nodes]},
                       text=[node.text for node in nodes])
    return go.FigureWidget([go.Scatter(x=lines[0], y=lines[1], mode="lines"), marks])
"""

WATCH = """
() => {
  // The end of the frame in which the picture was first drawn with `count` thoughts.
  window.painted = (look, count) => new Promise((done, failed) => {
    const look_after_each_frame = () => requestAnimationFrame(() => setTimeout(() => {
      if (window[look]() < count || (look === "ours" && !window.drawn)) look_after_each_frame();
      else done((performance.timeOrigin + performance.now()) / 1000);
      window.drawn = false;
    }));
    look_after_each_frame();
    setTimeout(() => failed(new Error(`${window[look]()} of ${count} after five minutes`)), 300_000);
  });
  const draw = CanvasRenderingContext2D.prototype.drawImage;
  CanvasRenderingContext2D.prototype.drawImage = function (...given) {
    window.drawn ||= this.canvas.isConnected;
    return draw.apply(this, given);
  };
  window.ours = () => {
    const all = [...document.querySelectorAll("*")].map((element) => element.explorer).filter(Boolean);
    return all.reduce((sum, app) => sum + (app.panes[0].scene?.slot.length ?? 0), 0);
  };
  window.theirs = () => {
    const figures = [...document.querySelectorAll(".js-plotly-plot")];
    return figures.reduce((sum, figure) => sum + figure.querySelectorAll(".point").length, 0);
  };
}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (default: 3)")
    rounds = parser.parse_args().rounds
    search = tl.TreeOfThoughts(
        propose=tl.Sample(count=10), search=tl.BeamSearch(width=100), stop=tl.Stop(depth=11, solved=None)
    )
    run = asyncio.run(tl.Lab("sim/general", runs=None).run(search, tl.general("How far?")))
    with running_chromium() as address, browsing(address) as browser:
        lab = JupyterLab()
        try:
            against_figure_widget(lab, browser, rounds)
            burst(lab, browser)
            memory(lab, browser)
            many(lab, browser)
        finally:
            lab.close()
        page(browser, run, rounds)


@contextmanager
def notebook(lab: JupyterLab, browser: Browser, name: str, *cells: str) -> Iterator[Notebook]:
    """An open notebook whose first cell has been run."""
    book = Notebook(lab, browser, [SETUP, *cells], name)
    try:
        book.run(0)
        book.page.evaluate(WATCH)
        yield book
    finally:
        book.close()


def seconds(book: Notebook, cell: int, look: str, count: int) -> float:
    """From the call in Python (`began` in the cell) to the painted frame."""
    # Asked for before the cell runs: a promise that the page holds.
    book.page.evaluate(f"() => {{ window.seen = window.painted('{look}', {count}); }}")
    book.run(cell, wait=False)
    painted = float(book.page.evaluate("() => window.seen"))
    book.wait_cell(cell)
    return painted - float(book.value("began"))


def against_figure_widget(lab: JupyterLab, browser: Browser, rounds: int) -> None:
    cells = (
        f"recorder = grown({THOUGHTS}); run = recorder.run",
        "began = time.time(); explorer = tl.Explorer(recorder); explorer",
        "def more():\n    global began; began = time.time(); recorder.thought('one more', '0')\nsoon(more)",
        "began = time.time(); figure = figure_of(run); figure",
        "def more():\n    global began; began = time.time()\n    with figure.batch_update():\n"
        "        figure.data[1].x = [*figure.data[1].x, 0.5]\n"
        "        figure.data[1].y = [*figure.data[1].y, 1.0]\nsoon(more)",
        "began = time.time(); again = tl.Explorer(recorder); again",
        "began = time.time(); other = figure_of(run); other",
        "for shown in (explorer, again, figure, other): shown.close()",
    )
    took: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        with notebook(lab, browser, "figure", *cells) as book:
            book.run(1)
            for name, cell, look, count in (
                ("open", 2, "ours", THOUGHTS),
                ("more", 3, "ours", THOUGHTS + 1),
                ("figure", 4, "theirs", THOUGHTS),
                ("figure more", 5, "theirs", THOUGHTS + 1),
                ("again", 6, "ours", 2 * (THOUGHTS + 1)),
                ("figure again", 7, "theirs", 2 * THOUGHTS + 1),
            ):
                took[name].append(seconds(book, cell, look, count))
    print(f"{THOUGHTS:,} thoughts, Python call to painted, median of {rounds}")
    for what, name, against, target in (
        ("opened, the first of a kernel, which imports", "open", "figure", "target ≥ 20"),
        ("opened, another", "again", "figure again", ""),
        ("one more thought", "more", "figure more", "target ≥ 40"),
    ):
        ours, theirs = statistics.median(took[name]), statistics.median(took[against])
        line(
            f"  {what}: FigureWidget ÷ explorer",
            theirs / ours,
            target,
            f"{theirs * 1e3:,.0f} ms ÷ {ours * 1e3:,.0f} ms",
        )


def burst(lab: JupyterLab, browser: Browser) -> None:
    cells = (
        "recorder = tl.Recorder('burst'); root = recorder.thought('the root')\n"
        "explorer = tl.Explorer(recorder); explorer",
        "sent = []\nsend = explorer.send\n"
        "explorer.send = lambda *told: (sent.append(time.time()), send(*told))",
        f"began = time.time()\nfor number in range({THOUGHTS}):\n"
        "    id = recorder.thought(f'thought {number}', root); recorder.score(id, 0.5)\n"
        "took = time.time() - began",
    )
    with notebook(lab, browser, "burst", *cells) as book:
        book.run(1)
        book.page.evaluate("() => window.painted('ours', 1)")
        book.run(2)
        painted = seconds(book, 3, "ours", THOUGHTS + 1)
        shown = book.page.evaluate("() => window.ours()")
        sent, took = book.value("len(sent)"), book.value("took")
    line(
        f"a burst of {THOUGHTS:,} thoughts: arrived",
        shown - 1,
        "target all",
        f"in {sent} messages over {painted:.2f} s; made in {took:.2f} s",
    )


def many(lab: JupyterLab, browser: Browser) -> None:
    """A large run: an overview of its first lines, then everything; how it pans, what the browser holds."""
    took: dict[int, tuple[float, float]] = {}
    for count in (MANY, MILLION):
        cells = (
            f"run = grown({count}).run",
            "began = time.time(); explorer = tl.Explorer(run); explorer",
        )
        with notebook(lab, browser, f"many-{count}", *cells) as book:
            book.page.set_default_timeout(300_000)
            book.run(1, seconds=600)
            book.page.evaluate("() => { window.first = window.painted('ours', 1); }")
            opened = seconds(book, 2, "ours", count)
            overview = float(book.page.evaluate("() => window.first")) - float(book.value("began"))
            took[count] = overview, opened
            line(
                f"{count:,} thoughts: an overview",
                overview,
                "",
                "seconds, Python call to painted, first batch",
            )
            line("  opened", opened, "", "seconds, Python call to painted, what matters is open")
            session = book.context.new_cdp_session(book.page)
            book.page.wait_for_timeout(10_000)  # texts and facts follow
            line("  pans, frames/s", panned(book.page), "target ≥ 20", "as it opens")
            book.page.evaluate(
                "() => [...document.querySelectorAll('*')].find((one) => one.explorer).explorer.open(true)"
            )
            book.page.wait_for_timeout(5000)
            line("  pans, frames/s", panned(book.page), "target ≥ 20", "every thought shown")
            session.send("HeapProfiler.collectGarbage")
            heap = session.send("Runtime.getHeapUsage")
            held = (heap["usedSize"] + heap["backingStorageSize"]) / 1e6
            line("  browser, MB", held, "target ≤ 1500", "objects and arrays of the whole page")
    for place, what in enumerate(("an overview", "opened")):
        small, large = took[MANY][place], took[MILLION][place]
        line(f"{MILLION:,} thoughts ÷ {MANY:,}: {what}", large / small, "target ≤ 5", "")


def panned(page: Page) -> float:
    """Frames a second in which the picture was painted while the pointer drags it."""
    canvas = page.locator("canvas").first
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.evaluate(
        "() => { window.frames_seen = 0; const count = () => { window.frames_seen++;"
        " window.counting = requestAnimationFrame(count); }; window.began = performance.now(); count(); }"
    )
    page.mouse.move(x, y)
    page.mouse.down()
    for step in range(120):
        page.mouse.move(x + 2 * (step % 60), y + (step % 30), steps=1)
    page.mouse.up()
    return float(
        page.evaluate(
            "() => { cancelAnimationFrame(window.counting);"
            " return window.frames_seen / (performance.now() - window.began) * 1000; }"
        )
    )


def memory(lab: JupyterLab, browser: Browser) -> None:
    """What stays of a widget after it is closed, over 20 rounds."""
    cells = (
        f"run = grown({THOUGHTS}).run",
        "explorer = tl.Explorer(run); explorer",
        "explorer.close(); del explorer; get_ipython().displayhook.flush(); gc.collect()\n"
        "resident = int(open('/proc/self/statm').read().split()[1]) * os.sysconf('SC_PAGE_SIZE')",
    )
    kernel: list[float] = []
    heap: list[float] = []
    with notebook(lab, browser, "memory", *cells) as book:
        book.run(1)
        session = book.context.new_cdp_session(book.page)
        for _ in range(20):
            book.run(2)
            book.page.evaluate(f"() => window.painted('ours', {THOUGHTS})")
            book.run(3)
            session.send("HeapProfiler.collectGarbage")
            used = session.send("Runtime.getHeapUsage")["usedSize"]
            heap.append(used / 1e6)
            kernel.append(book.value("resident") / 1e6)
    for where, sizes in (("kernel", kernel), ("browser", heap)):
        line(
            f"20 rounds of open and close, {where}: growth of the last 10, MB a round",
            (sizes[-1] - sizes[9]) / 10,
            "target flat",
            f"{sizes[0]:.0f}, {sizes[9]:.0f}, {sizes[-1]:.0f} MB after rounds 1, 10, 20",
        )


def page(browser: Browser, run: tl.Run, rounds: int) -> None:
    """The HTML file: its size, and its first paint beside that of a bare canvas."""
    with tempfile.TemporaryDirectory() as folder:
        file = run.save_html(Path(folder) / "run.html")
        bare = Path(folder) / "bare.html"
        bare.write_text(
            "<!doctype html><canvas width=1400 height=800></canvas><script>const b = document.querySelector"
            "('canvas').getContext('2d'); b.fillRect(9, 9, 99, 99);</script>"
        )
        whole = file.read_bytes()
        without = re.sub(rb'<script type="application/gzip".*?</script>', b"", whole, flags=re.DOTALL)
        line(
            f"HTML of {len(run.tree):,} thoughts, {run.usage.calls:,} calls, texts aside, kB gzipped",
            len(gzip.compress(without)) / 1000,
            "target ≤ 200",
            f"the whole file has {len(whole) / 1e6:.1f} MB",
        )
        first = {
            path: statistics.median(first_paint(browser, path) for _ in range(max(rounds, 5)))
            for path in (file, bare)
        }
        line(
            "  first paint ÷ that of a bare canvas",
            first[file] / first[bare],
            "target ≤ 2",
            f"{first[file]:.0f} ms ÷ {first[bare]:.0f} ms",
        )


DRAWN = """
// The end of the frame in which a canvas of the page was first drawn on.
for (const name of ["drawImage", "fillRect"]) {
  const draw = CanvasRenderingContext2D.prototype[name];
  CanvasRenderingContext2D.prototype[name] = function (...given) {
    if (this.canvas.isConnected && window.first === undefined) {
      window.first = null;
      requestAnimationFrame(() => setTimeout(() => { window.first = performance.now(); }));
    }
    return draw.apply(this, given);
  };
}
"""


def first_paint(browser: Browser, path: Path) -> float:
    """Milliseconds from the start of the navigation to the first frame with something on a canvas."""
    watched = Watched(browser)
    watched.page.add_init_script(DRAWN)
    try:
        watched.page.goto(path.as_uri(), wait_until="commit")
        return float(soon(lambda: watched.page.evaluate("() => window.first"), 60))
    finally:
        watched.context.close()


def line(what: str, value: float, target: str, beside: str) -> None:
    print(f"{what:<72}{value:>10,.2f}   {target:<14}{beside}", flush=True)


if __name__ == "__main__":
    main()
