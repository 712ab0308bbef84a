"""The explorer as a person has it: a real JupyterLab, a real Chromium, a real kernel.

What is drawn is asked of the explorer's own element; what is known is asked of the kernel.
"""

import os
import re
import time

import pytest
from support.browser import JupyterLab, Notebook, soon
from support.explorer import AXE, HOSTILE

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # jupyter_client's own
]

RUN = """
import asyncio, pathlib, time
import tot_lab as tl
from tot_lab.core.records import Line, Thought, Scored, Decided
lab = tl.Lab("sim/game24", runs=None)
search = tl.TreeOfThoughts(propose=tl.Propose(count=5))
task = tl.game24("4 5 6 10")
run = await lab.run(search, task)
"""
SHOW = "explorer = tl.Explorer(run)\nexplorer"

BUSY = """
while not pathlib.Path("go").exists():
    time.sleep(0.02)
print('done')"""
"""A cell that keeps the kernel busy until the file is there."""

LOOK = """() => {
    const app = document.querySelector(".tl-root")?.parentElement.explorer;
    return app?.panes[0].scene && !app.asked;
}"""


def drawn(book: Notebook, which: int = 0) -> dict:
    """What the explorer of the first shown widget draws now."""
    book.page.wait_for_function(LOOK)
    return book.page.evaluate(
        """which => {
            const app = document.querySelector(".tl-root").parentElement.explorer;
            const recording = app.source.runs[which];
            const frame = app.frameOf(which);
            const STATES = ["proposed", "unreadable", "kept", "pruned", "complete", "duplicate", "merged",
                "failed", "answer"];
            const nodes = Array.from({length: frame.nodes}, (_, node) => node);
            const scene = app.panes[which].scene;
            return {
                step: frame.step,
                lines: recording.lines,
                nodes: Object.fromEntries(nodes.map(node => [recording.id(node), [
                    recording.parent[node] < 0 ? null : recording.id(recording.parent[node]),
                    recording.depth[node],
                    Number.isNaN(frame.score[node]) ? null : frame.score[node],
                    STATES[frame.state[node]],
                    recording.text(node),
                ]])),
                seen: Array.from(scene?.nodes ?? [], node => recording.id(node)),
                selected: app.selected[which].map(node => recording.id(node)),
            };
        }""",
        which,
    )


TREE = """{{node.id: [node.parent, node.depth, node.score if node.parent else None, node.state, node.text]
    for node in tl.Tree.of([line.e for line in {run}.lines[:{step}]])}}"""


def tree(book: Notebook, step: int | str = "", run: str = "run") -> dict:
    """The tree after so many lines, as the kernel folds it."""
    return book.value(TREE.format(run=run, step=step))


def click(book: Notebook, id: str, which: int = 0, **how: object) -> None:
    """Click the middle of a thought on the canvas."""
    place = book.page.evaluate(
        """([which, id]) => {
            const app = document.querySelector(".tl-root").parentElement.explorer;
            const { scene, picture: { camera, width, height } } = app.panes[which];
            const slot = scene.nodes.indexOf(app.source.runs[which].indexOf(id));
            return [
                (scene.x[slot] - camera.x) * camera.kx + width / 2,
                (scene.y[slot] - camera.y) * camera.ky + height / 2,
            ];
        }""",
        [which, id],
    )
    canvas = book.page.locator(".tl-stage").nth(which).locator("canvas").first
    canvas.click(position={"x": place[0], "y": place[1]}, **how)


def test_a_click_is_known_in_the_kernel_and_the_kernel_moves_the_view(notebook):
    book = notebook(RUN, SHOW)
    book.run_all()
    soon(lambda: drawn(book)["nodes"] == tree(book))
    click(book, "0.0")
    soon(lambda: book.value("explorer.selected.ids") == ["0.0"])
    assert book.value("explorer.selected.frame.id.tolist()") == ["0.0"]
    assert book.value("explorer.selected.frame.text[0] == run.tree['0.0'].text")
    assert book.value("'prompt' in run.calls_df() and explorer.selected.frame.shape[0]") == 1
    panel = book.page.locator(".tl-side")
    assert book.value("run.tree['0.0'].text") in panel.inner_text()
    book.value("setattr(explorer, 'selected', ['0.0.1', '0.1']) or 1")
    soon(lambda: drawn(book)["selected"] == ["0.0.1", "0.1"])
    book.value("setattr(explorer, 'selected', run.nodes_df().query('depth == 1')) or 1")
    soon(lambda: drawn(book)["selected"] == [id for id, node in tree(book).items() if node[1] == 1])


@pytest.mark.nightly
def test_scrubbing_shows_the_tree_as_it_was(notebook):
    book = notebook(RUN, SHOW)
    book.run_all()
    lines = book.value("len(run.lines)")
    slider = book.page.locator(".tl-root input[type=range]")
    for step in (lines // 2, 3, lines - 1, 0, lines):
        slider.evaluate(
            "(slider, step) => { slider.value = step; slider.dispatchEvent(new Event('input')); }", step
        )
        soon(lambda step=step: drawn(book)["step"] == step)
        soon(lambda step=step: drawn(book)["nodes"] == tree(book, step))
        soon(lambda step=step: book.value("explorer.step") == step)
    book.value("setattr(explorer, 'step', 5) or 1")
    soon(lambda: drawn(book)["step"] == 5)
    with pytest.raises(RuntimeError, match="got 100000"):
        book.value("setattr(explorer, 'step', 100000) or 1")
    book.value("setattr(explorer, 'step', None) or 1")
    soon(lambda: drawn(book)["step"] == lines)


def test_unknown_ids_are_named(notebook):
    book = notebook(RUN, SHOW)
    book.run_all()
    with pytest.raises(RuntimeError, match=r"ValueError: no thought '9\.9' in this run"):
        book.value("setattr(explorer, 'selected', ['0.0', '9.9']) or 1")


@pytest.mark.nightly
def test_filter_and_collapse(notebook):
    book = notebook(RUN, SHOW)
    book.run_all()
    root = book.page.locator(".tl-root")
    root.get_by_role("searchbox").fill("state:pruned")
    pruned = [id for id, node in tree(book).items() if node[3] == "pruned"]
    soon(lambda: f"{len(pruned)} match" in root.inner_text())
    root.get_by_role("searchbox").fill("")
    drawn(book)
    book.page.evaluate(
        """() => { const app = document.querySelector(".tl-root").parentElement.explorer;
            app.open(true); }"""
    )
    soon(lambda: set(drawn(book)["seen"]) == set(tree(book)))
    click(book, "0.0")
    root.locator("[role=tree]").press("ArrowLeft")
    soon(lambda: set(drawn(book)["seen"]) == {id for id in tree(book) if not id.startswith("0.0.")})
    root.locator("[role=tree]").press("ArrowRight")
    soon(lambda: "0.0.0" in drawn(book)["seen"])


def test_a_live_run_grows_and_its_end_arrives(notebook):
    watch = """
import random
async def slow(call):
    await asyncio.sleep(0.2)
    if call.purpose == "value":
        return f"score: {random.random() / 2:.2f}"
    return f"step {random.randrange(10**6)}"
live = tl.Lab(slow, runs=None)
deep = tl.TreeOfThoughts(stop=tl.Stop(depth=6, patience=8))
explorer = tl.Explorer(live.stream(deep, tl.general("?")))
explorer"""
    book = notebook(RUN, watch, "run = await explorer.finished()")
    book.run(0)
    book.run(1)
    book.run(2, wait=False)
    seen = set()
    lines = "document.querySelector('.tl-root')?.parentElement.explorer.source.runs[0].lines"
    soon(lambda: seen.add(book.page.evaluate(lines)) or len(seen) > 5)
    book.wait_cell(2)
    soon(lambda: drawn(book)["lines"] == book.value("len(run.lines)"))
    soon(lambda: drawn(book)["nodes"] == tree(book))
    assert book.value("run is explorer.run and run.stop_reason") == "limit:depth"


def test_the_text_so_far_of_a_selected_thought_is_shown_until_its_reply_is_there(notebook):
    own = """
go_on = asyncio.Event()
async def speaker(call):
    yield "I have begun"
    if call.purpose == "value":
        await go_on.wait()
    yield " and ended. score: 0.5"
words = tl.TreeOfThoughts(propose=tl.Sample(count=2), stop=tl.Stop(depth=1))
explorer = tl.Explorer(tl.Lab(speaker, runs=None).stream(words, tl.general("How many legs?")))
explorer"""
    book = notebook(RUN, own, "go_on.set()\nspoken = await explorer.finished()")
    book.run(0)
    book.run(1)
    soon(lambda: "0.1" in drawn(book)["nodes"])
    click(book, "0.1")
    details = book.page.get_by_role("complementary", name="details")
    so_far = details.get_by_text("I have begun", exact=True)
    soon(lambda: so_far.is_visible() and details.get_by_role("heading", name="so far").is_visible())
    book.run(2)
    soon(lambda: not so_far.is_visible() and drawn(book)["nodes"]["0.1"][2] == 0.5)


def test_stop_cancels_a_live_run(notebook):
    watch = """
async def slow(call):
    await asyncio.sleep(0.2)
    return "score: 0.5" if call.purpose == "value" else f"step {time.time()}"
live = tl.Lab(slow, runs=None)
explorer = tl.Explorer(live.stream(tl.TreeOfThoughts(stop=tl.Stop(depth=50)), tl.general("?")))
explorer"""
    book = notebook(RUN, watch)
    book.run_all()
    drawn(book)
    book.page.get_by_role("button", name=re.compile("^stop")).first.click()
    soon(lambda: book.value("explorer.run.stop_reason") == "cancelled")
    soon(lambda: drawn(book)["lines"] == book.value("len(explorer.run.lines)"))


def test_a_person_pauses_a_live_run_changes_its_search_and_lets_it_go_on(notebook):
    watch = """
asked = []
async def slow(call):
    asked.append(call.node)
    await asyncio.sleep(0.15)
    if call.purpose == "value":
        return f"score: {0.2 + 0.1 * int(call.node[-1])}"
    return f"step {call.node}.{call.sample_index}"
live = tl.Lab(slow, runs=None)
best = tl.TreeOfThoughts(search="best_first", stop=tl.Stop(depth=4, solved=None), answer="best_leaf")
explorer = tl.Explorer(live.stream(best, tl.general("?"), budget=tl.Budget(calls=30)))
explorer"""
    book = notebook(
        RUN, watch, "steered = await explorer.finished()\nsame = (await steered.replay()).identical"
    )
    book.run(0)
    book.run(1)
    soon(lambda: "0.2" in drawn(book)["nodes"] and drawn(book)["nodes"]["0.2"][2] is not None)
    button = book.page.get_by_role("button", name="pause run")
    button.click()
    soon(lambda: book.value("explorer.steer.paused"))
    soon(lambda: book.page.get_by_role("button", name="continue run").is_visible())
    soon(lambda: "paused" in book.page.locator(".tl-title").inner_text())
    assert ", paused" in book.value("repr(explorer)")
    time.sleep(0.5)
    before = book.value("len(asked)")
    time.sleep(0.7)
    assert book.value("len(asked)") == before
    details = book.page.get_by_role("complementary", name="details")
    source = "document.querySelector('.tl-root').parentElement.explorer"

    def chosen(id):
        book.page.evaluate(f"{source}.select(0, [{source}.source.runs[0].indexOf('{id}')])")
        soon(lambda: id in details.locator("h2").text_content().split())
        folded = details.locator("summary", has_text="Change the search")
        soon(lambda: folded.count() == 1)
        if not details.get_by_role("button", name="add the thought").is_visible():
            folded.click()

    chosen("0.2")  # the best so far
    details.get_by_role("button", name="prune this branch").click()
    soon(lambda: book.value("len(explorer.steer.waiting)") == 1)
    chosen("0.0")
    details.get_by_label("new score, 0 to 1").and_(details.locator("[required]")).fill("0.95")
    details.get_by_role("button", name="set the score").click()
    chosen("0.1")
    details.get_by_label("a thought of your own, below this one").fill("mine <b>own</b>")
    details.get_by_role("button", name="add the thought").click()
    chosen("0")
    details.get_by_label("calls (now 30)").fill("20")
    details.get_by_role("button", name="raise the budget").click()
    soon(lambda: "calls must be more than its limit of 30: got 20." in details.text_content())
    details.get_by_label("calls (now 30)").fill("36")
    details.get_by_role("button", name="raise the budget").click()
    soon(lambda: "4 changes until the next pick" in book.page.locator(".tl-root").text_content())
    below = f"id => {{ const {{ scene }} = {source}.panes[0], run = {source}.source.runs[0]; "
    below += "return scene.number(scene.slot[run.indexOf(id)]).join(' '); }"
    drawn_below = {id: book.page.evaluate(below, id) for id in ("0.0", "0.1", "0.2")}
    assert drawn_below == {"0.0": "0.2 → 0.95", "0.1": "0.3 + a thought", "0.2": "0.4 → pruned"}
    words = book.page.locator(".tl-what").inner_text()
    for change in ("prune thought 0.2;", "thought 0.0: 0.95;", "mine <b>own</b>;", "budget: calls 36"):
        assert change in words
    book.page.get_by_role("button", name="continue run").click()
    book.run(2)
    assert book.value("explorer.steer.waiting") == []
    assert book.value("[steered.tree['0.2'].reason, steered.tree['0.0'].score]") == ["person", 0.95]
    grafts = "[node.text for node in steered.tree if node.by == 'person' and node.parent == '0.1']"
    assert book.value(grafts) == ["mine <b>own</b>"]
    assert book.value("steered.usage.calls") == 36
    assert book.value("same")
    soon(lambda: drawn(book)["nodes"] == tree(book, run="steered"))


@pytest.mark.nightly
def test_a_bug_of_the_strategy_is_shown_and_raised(notebook):
    watch = """
async def broken(call):
    return "step"
class Broken(tl.Strategy):
    def think(self, task, at="0"):
        yield tl.Thought(at, None, task.question)
        raise ZeroDivisionError("no such luck")
explorer = tl.Explorer(tl.Lab(broken, runs=None).stream(Broken(), tl.general("?")))
explorer"""
    book = notebook(RUN, watch, "await explorer.finished()")
    book.run(0)
    book.run(1)
    soon(lambda: "no such luck" in book.page.locator(".jp-OutputArea").nth(1).inner_text())
    book.run(2)
    assert "ZeroDivisionError" in book.output(2)


@pytest.mark.nightly
def test_a_burst_arrives_complete(notebook):
    burst = """
recorder = tl.Recorder("burst")
explorer = tl.Explorer(recorder)
display(explorer)
root = recorder.thought("root")
ids = [root]
for k in range(9999):
    ids.append(recorder.thought(f"step {k}", parent=ids[k // 5]))
    recorder.score(ids[-1], (k % 100) / 100)
recorder.end("done", node=ids[-1])"""
    book = notebook(RUN, burst)
    book.run_all()
    lines = book.value("len(recorder.lines)")
    soon(lambda: drawn(book)["lines"] == lines, 30)
    soon(lambda: drawn(book)["nodes"] == tree(book, run="recorder"))


@pytest.mark.nightly
def test_what_comes_just_after_a_large_run_was_opened_is_told_at_once(notebook):
    """While nobody had answered, the explorer once slept twenty times as long as its first telling took."""
    grown = """
recorder = tl.Recorder()
root = recorder.thought("the root")
for number in range(5000):
    recorder.score(recorder.thought("t", root), 0.5)
"""
    book = notebook("import time\nimport tot_lab as tl", grown, "explorer = tl.Explorer(recorder)\nexplorer")
    book.run(0)
    for _ in range(3):
        book.run(1)
        book.run(2)
        soon(lambda: len(drawn(book)["nodes"]) == 5001)
        book.value("recorder.thought('one more', root)")
        soon(lambda: "0.5000" in drawn(book)["nodes"], seconds=2)


@pytest.mark.nightly
def test_a_page_that_is_loaded_anew_is_told_everything_anew(notebook):
    book = notebook(RUN, SHOW)
    book.run_all()
    drawn(book)
    book.value("setattr(explorer, 'selected', ['0.1']) or 1")
    book.save()
    book.open()
    soon(lambda: drawn(book)["selected"] == ["0.1"])
    soon(lambda: drawn(book)["nodes"] == tree(book))


def test_two_views_of_one_widget_have_each_their_own_state(notebook):
    book = notebook(RUN, SHOW, "explorer")
    book.run_all()
    book.page.wait_for_function("document.querySelectorAll('.tl-root').length === 2")
    nodes = book.page.evaluate(
        """() => [...document.querySelectorAll(".tl-root")].map((root, k) => {
            const app = root.parentElement.explorer;
            app.setStep(10 * (k + 1));
            return app.step;
        })"""
    )
    assert nodes == [10, 20]
    soon(lambda: book.value("explorer.step") in (10, 20))  # what both say at once may come in either order


@pytest.mark.nightly
def test_two_views_of_one_widget_follow_its_step(notebook):
    book = notebook(RUN, SHOW, "explorer")
    book.run_all()
    book.page.wait_for_function("document.querySelectorAll('.tl-root').length === 2")
    book.page.evaluate("document.querySelector('.tl-root').parentElement.explorer.setStep(15)")
    soon(lambda: book.value("explorer.step") == 15)
    book.page.wait_for_function(
        """() => [...document.querySelectorAll(".tl-root")]
            .every(root => root.parentElement.explorer.step === 15)"""
    )


def test_two_runs_are_compared(notebook):
    other = """
other = await lab.run(search.with_({"search.width": 1}), task)
explorer = tl.CompareExplorer(run, other)
explorer"""
    book = notebook(RUN, other)
    book.run_all()
    soon(lambda: drawn(book, 0)["nodes"] == tree(book))
    soon(lambda: drawn(book, 1)["nodes"] == tree(book, run="other"))
    click(book, "0.0", which=1)
    soon(lambda: "b:0.0" in book.value("explorer.selected.ids"))
    assert "b:0.0" in book.value("explorer.selected.frame.id.tolist()")
    assert book.value("len(explorer.differences)") > 0


@pytest.mark.nightly
def test_exports(notebook, tmp_path):
    book = notebook(RUN, SHOW)
    book.run_all()
    drawn(book)
    for kind, begins in (
        ("PNG picture", b"\x89PNG"),
        ("SVG picture", b"<"),
        ("HTML file", b"<!doctype html>"),
    ):
        book.page.locator(".tl-root summary", has_text="export").click()
        with book.page.expect_download() as download:
            book.page.get_by_role("button", name=kind).click()
        assert download.value.path().read_bytes().startswith(begins)


def test_hostile_texts_are_shown_as_texts(notebook):
    hostile = f"""
from tot_lab.core.calls import Reply
texts = {HOSTILE!r}
recorder = tl.Recorder(texts[0])
root = recorder.thought(texts[1])
for text in texts:
    id = recorder.thought(text, parent=root)
    recorder.call(id, text, Reply(text, thinking=text, model=text, finish_reason=text), purpose=text)
    recorder.call(id, text, Reply("", error=text), purpose=text, sample_index=1)
    recorder.score(id, 0.5, by=text)
    recorder.decide(id, "pruned", text)
    clean = text.replace("\\ud800", "?")  # a note that no file can hold is refused
    recorder.note(clean, id, **{{clean: clean}})
recorder.end(texts[1], node=id)
run = recorder.run
explorer = tl.Explorer(run)
explorer"""
    book = notebook(RUN, hostile)
    book.run_all()
    known = tree(book)
    assert {id: node[:4] for id, node in drawn(book)["nodes"].items()} == {
        id: node[:4] for id, node in known.items()
    }
    panel = book.page.locator(".tl-side")
    opened = "panel => panel.querySelectorAll('details').forEach(one => { one.open = true; })"
    parts = "(panel, text) => panel.textContent.split(text).length"
    for k in range(len(HOSTILE)):
        book.value(f"setattr(explorer, 'selected', ['0.{k}']) or 1")
        shown = known[f"0.{k}"][4]
        soon(lambda shown=shown: shown[:60] in panel.evaluate("panel => panel.textContent"))
        soon(lambda shown=shown: panel.evaluate(opened) or panel.evaluate(parts, shown[:20]) > 4)
    book.page.locator(".tl-root").get_by_role("searchbox").fill(HOSTILE[1])
    assert book.page.evaluate("window.hacked") is None
    assert book.page.locator(".tl-root :is(script, img, b > b)").count() == 0


@pytest.mark.nightly
def test_axe_finds_nothing(notebook):
    if not AXE.exists():
        (pytest.fail if os.environ.get("CI") else pytest.skip)("needs: npm ci in tot_lab/views/explorer/js")
    other = "other = await lab.run(search, tl.game24('1 2 3 4'))"
    compare = f"{other}\nexplorer = tl.CompareExplorer(run, other)\nexplorer"
    book = notebook(RUN, compare)
    book.run_all()
    drawn(book)
    book.page.add_script_tag(path=AXE)
    for act in (lambda: None, lambda: click(book, "0.0"), lambda: book.page.get_by_text("timeline").click()):
        act()
        book.page.wait_for_timeout(300)
        found = book.page.evaluate("axe.run(document.querySelector('.tl-root'))")["violations"]
        assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in found] == []


def test_a_sweep_is_shown_in_a_cell_and_its_cells_open_their_runs(notebook):
    sweep = "both = [task, tl.game24('1 2 3 4')]\nsweep = await lab.sweep({'ToT': search}, both)"
    book = notebook(RUN, f"{sweep}\ntl.Explorer(sweep)")
    book.run_all()
    page = book.page.frame_locator("iframe[title=sweep]")
    page.locator(".tl-run").first.wait_for()
    assert page.locator(".tl-run").count() == 2
    page.locator(".tl-run").nth(1).click()
    page.locator(".tl-verdict").wait_for()
    assert page.locator("#tot-lab-explorer .tl-title h2").last.text_content() == "1 2 3 4"
    assert book.page.evaluate("document.querySelectorAll('.tl-run').length") == 0  # only inside its frame


def test_a_widget_answers_while_a_cell_runs(notebook):
    book = notebook(RUN, SHOW, BUSY)
    book.run(0)
    book.run(1)
    drawn(book)
    click(book, "0.1")
    soon(lambda: book.value("explorer.selected.ids") == ["0.1"])
    book.run(2, wait=False)
    click(book, "0.0")
    told = book.page.evaluate(
        "document.querySelector('.tl-root').parentElement.explorer.source.details(0, 1)"
    )
    assert book.output(2) == ""
    (book.lab.work / "go").touch()
    prompts = book.value("run.calls_df().query('node == \\'0.0\\'').prompt.tolist()")
    assert prompts == [call["prompt"][0]["content"] for call in told["calls"]]


@pytest.mark.nightly
def test_without_subshells_it_waits_for_the_kernel_and_says_so(chrome):
    kernels = {"@jupyterlab/apputils-extension:kernels-settings": {"commsOverSubshells": "disabled"}}
    lab = JupyterLab(settings=kernels)
    try:
        own = """
recorder = tl.Recorder("mine")
explorer = tl.Explorer(recorder)
display(explorer)
root = recorder.thought("root")
while not pathlib.Path("heard").exists():
    recorder.thought("a step", parent=root)
    time.sleep(0.1)
recorder.end()
run = recorder.run
"""
        book = Notebook(lab, chrome, [RUN, own, BUSY], "waits")
        book.run(0)
        book.run(1, wait=False)
        soon(lambda: drawn(book)["lines"] > 5)  # sent while a cell keeps the kernel busy
        (lab.work / "heard").touch()
        book.wait_cell(1)
        soon(lambda: drawn(book)["nodes"] == tree(book))
        book.run(2, wait=False)
        click(book, "0.3")
        output = book.page.locator(".jp-OutputArea").nth(1)
        soon(lambda: "waiting for the kernel" in output.inner_text())
        (lab.work / "go").touch()
        book.wait_cell(2)
        soon(lambda: "waiting for the kernel" not in output.inner_text())
        assert book.value("explorer.selected.ids") == ["0.3"]
        assert (book.errors, book.outside) == ([], [])
        book.close()
    finally:
        lab.close()


@pytest.mark.nightly
def test_running_a_cell_again_frees_what_it_showed_and_closing_frees_the_last(fresh_notebook):
    count = """
import gc
gc.collect()
sum(type(thing).__name__ == 'Explorer' for thing in gc.get_objects())"""
    book = fresh_notebook(RUN, "explorer = tl.Explorer(run)\ndisplay(explorer)", count, "explorer.close()")
    book.run(0)
    for _ in range(4):
        book.run(1)
        drawn(book)
    book.page.wait_for_timeout(1200)
    book.run(2)
    assert book.output(2) == "1"
    soon(lambda: drawn(book)["nodes"] == tree(book))
    book.page.evaluate(
        """() => {
            const app = document.querySelector(".tl-root").parentElement.explorer;
            const { picture, scene } = app.panes[0];
            window.kinds = [picture, app.source.runs[0], scene].map(Object.getPrototypeOf);
        }"""
    )
    tools = book.context.new_cdp_session(book.page)

    def left(kind: int) -> int:
        kinds = tools.send("Runtime.evaluate", {"expression": f"window.kinds[{kind}]"})["result"]["objectId"]
        asked = {"prototypeObjectId": kinds, "objectGroup": "found"}
        found = tools.send("Runtime.queryObjects", asked)["objects"]["objectId"]
        count = {"objectId": found, "functionDeclaration": "function() { return this.length; }"}
        number = tools.send("Runtime.callFunctionOn", count)["result"]["value"]
        tools.send("Runtime.releaseObjectGroup", {"objectGroup": "found"})  # which would keep them alive
        return number

    assert all(left(kind) for kind in range(3))
    book.run(3)
    soon(lambda: book.page.locator(".tl-root").count() == 0)
    soon(lambda: [left(kind) for kind in range(3)] == [0, 0, 0])


@pytest.mark.nightly
def test_marks_branches_and_findings(notebook):
    book = notebook(RUN, "explorer = tl.Explorer(run, lab=lab)\nexplorer")
    book.run_all()
    drawn(book)
    source = "document.querySelector('.tl-root').parentElement.explorer.source"
    book.page.evaluate(f"{source}.mark('0.1', {{verdict: 'wrong', note: 'no <b>way</b>'}})")
    soon(lambda: book.value("explorer.marks['0.1'].note") == "no <b>way</b>")
    soon(lambda: book.page.evaluate(f"{source}.facts(0).marks['0.1']?.verdict") == "wrong")
    assert book.page.evaluate(f"{source}.facts(0).findings.map(one => one.text)") == book.value(
        "[finding.text for finding in explorer.findings]"
    )
    book.page.evaluate(f"{source}.branch({{id: '0.0', score: 0.0}})")
    soon(lambda: book.value("len(explorer.branches)") == 1)
    soon(lambda: drawn(book, 1)["nodes"] == tree(book, run="explorer.branches[0]"))
    failed = book.page.evaluate(f"{source}.branch({{id: '0.0', score: 7}}).catch(error => error.message)")
    assert "score" in failed


@pytest.mark.nightly
def test_a_kernel_that_is_gone_is_said(notebook):
    book = notebook(RUN, SHOW)
    book.run_all()
    drawn(book)
    book.page.evaluate("window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")
    book.page.wait_for_timeout(500)
    click(book, "0.0")
    output = book.page.locator(".jp-OutputArea").nth(1)
    soon(lambda: "waiting for the kernel" in output.inner_text())
    assert "0.0" in book.page.locator(".tl-side").inner_text()
