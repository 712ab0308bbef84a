"""The widget in a page with the standard HTML manager of ipywidgets: no Jupyter, no server.

The managers of VS Code and Colab are relatives of this one. The widget is a real one of this process, and so
is the manager in the page. Between them, the test carries the messages of the Jupyter protocol.
"""

import base64
import os
import queue
import time
from pathlib import Path

import anywidget
import comm
import ipywidgets.embed
import pytest
from comm.base_comm import BaseComm
from support import ROOT, wait
from support.browser import Watched

import tot_lab as tl

MODULES = ROOT / "tot_lab" / "views" / "explorer" / "js" / "node_modules"
REQUIRE, EMBED = (
    MODULES / "requirejs" / "require.js",
    MODULES / "@jupyter-widgets/html-manager/dist/embed-amd.js",
)
ANYWIDGET = Path(anywidget.__file__).parent / "nbextension" / "index"

APP = '(window.home ?? document).querySelector(".tl-root")?.parentElement.explorer'
TREE = f"""() => {{
    const recording = {APP}.source.runs[0];
    return [...{APP}.panes[0].scene.nodes].map((node) => recording.id(node)).sort();
}}"""

MANAGER = """() => new Promise((ready) => require(
    ["@jupyter-widgets/html-manager", "@jupyter-widgets/html-manager/dist/libembed-amd"],
    ({ HTMLManager }, { requireLoader }) => {
        const bytes = (text) =>
            new DataView(Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0)).buffer);
        const comms = {};
        window.sent = [];
        class Comm {
            constructor(id) { this.comm_id = id; comms[id] = this; }
            on_msg(callback) { this.take = callback; }
            on_close() {}
            send(data) { window.sent.push([this.comm_id, data]); return ""; }
            close() {}
        }
        const manager = new HTMLManager({ loader: requireLoader });
        window.take = async (kind, id, data, metadata, buffers) => {
            const content = { comm_id: id, data };
            const message = { content, metadata, buffers: buffers.map(bytes), header: {}, parent_header: {} };
            if (kind === "comm_open") await manager.handle_comm_open(new Comm(id), message);
            else await comms[id].take?.(message);
        };
        window.create = async (id) => {
            window.view = await manager.create_view(await manager.get_model(id), {});
        };
        window.show = async (shadow) => {
            const place = document.body.appendChild(document.createElement("div"));
            if (shadow) window.home = place.attachShadow({ mode: "open" });
            const inner = (window.home ?? place).appendChild(document.createElement("div"));
            await manager.display_view(view, inner);
        };
        ready();
    },
))"""


@pytest.fixture(scope="module", autouse=True)
def run():  # before `chrome`: no run can be made while Playwright holds the event loop
    if not REQUIRE.exists() or not EMBED.exists():
        (pytest.fail if os.environ.get("CI") else pytest.skip)("needs: npm ci in tot_lab/views/explorer/js")
    lab = tl.Lab("sim/game24", runs=None)
    return wait(lab.run(tl.TreeOfThoughts(propose=tl.Propose(count=4)), tl.game24("4 9 10 13")))


class Wires:
    """Carries the messages between the widgets of this process and those of a page."""

    def __init__(self):
        self.ends, self.messages = {}, queue.Queue()

    def create(self, *given, **options):
        wires = self

        class Wire(BaseComm):
            def publish_msg(self, kind, data=None, metadata=None, buffers=None, **_):
                parts = [base64.b64encode(part).decode() for part in buffers or []]
                wires.messages.put([kind, self.comm_id, data, metadata or {}, parts])

        wire = Wire(*given, **options)
        self.ends[wire.comm_id] = wire
        return wire

    def carry(self, page, until, seconds=30):
        """Carry messages until the page and this process are as they should be."""
        end = time.monotonic() + seconds
        while not until():
            assert time.monotonic() < end
            while not self.messages.empty():
                page.evaluate("given => take(...given)", self.messages.get())
            for id, data in page.evaluate("sent.splice(0)"):
                self.ends[id].handle_msg({"content": {"comm_id": id, "data": data}, "buffers": []})
            page.wait_for_timeout(20)


@pytest.fixture
def wires(monkeypatch):
    made = Wires()
    monkeypatch.setattr(comm, "create_comm", made.create)
    return made


def with_manager(page):
    page.add_script_tag(path=REQUIRE)
    page.evaluate("path => require.config({ paths: { anywidget: path } })", str(ANYWIDGET))
    page.add_script_tag(path=EMBED)


@pytest.mark.nightly
@pytest.mark.parametrize("shadow", [False, True], ids=["page", "shadow root"])  # marimo has the latter
def test_a_page_with_a_kernel_shows_the_tree_and_what_is_clicked_is_known(
    run, wires, chrome, tmp_path, shadow
):
    view = Watched(chrome, viewport={"width": 1200, "height": 900})
    page = view.page
    (tmp_path / "empty.html").write_text("<!doctype html><title>a page</title><body>")
    page.goto((tmp_path / "empty.html").as_uri())
    with_manager(page)
    page.evaluate(MANAGER)
    explorer = tl.Explorer(run)
    wires.carry(page, wires.messages.empty)
    page.evaluate("id => create(id) && null", explorer.model_id)
    built = "window.view?.el.querySelector('.tl-root')" if shadow else "window.view"  # before it is shown
    wires.carry(page, lambda: page.evaluate(f"!!{built}"))
    page.evaluate("shadow => show(shadow) && null", shadow)
    wires.carry(page, lambda: page.evaluate(f"{APP}?.drawn ?? false"))
    assert page.evaluate(TREE) == sorted(node.id for node in run.tree)
    assert "✓ correct" in page.locator(".tl-verdict").inner_text()
    page.evaluate(f"{APP}.show(['0.1'])")
    wires.carry(page, lambda: explorer.selected.ids == ["0.1"])
    side = page.locator(".tl-side")
    prompt = next(line.e for line in run.lines if isinstance(line.e, tl.Call) and line.e.node == "0.1").prompt
    wires.carry(page, lambda: prompt.splitlines()[0] in side.text_content())
    explorer.selected = ["0.2"]
    wires.carry(page, lambda: run.tree["0.2"].text in side.inner_text())
    assert page.locator(".tl-root").evaluate("root => getComputedStyle(root).borderRadius") == "8px", "styled"
    assert (view.errors, view.outside) == ([], [])
    view.context.close()


@pytest.mark.nightly
def test_a_page_without_a_kernel_shows_the_search(run, chrome, tmp_path):
    """As `ipywidgets.embed` writes it, with the manager of this machine instead of that of a CDN."""
    explorer = tl.Explorer(run)
    path = tmp_path / "embedded.html"
    state = ipywidgets.embed.dependency_state(explorer)
    ipywidgets.embed.embed_minimal_html(path, [explorer], state=state, embed_url=EMBED.as_uri(), cors=False)
    local = f'<script src="{REQUIRE.as_uri()}"></script><script>require.config({{paths: {{anywidget: '
    local += f'"{ANYWIDGET}"}}}})</script>'
    head, _, rest = path.read_text().partition('<script src="https://cdnjs')
    path.write_text(head + local + rest.partition("</script>")[2])
    view = Watched(chrome, viewport={"width": 1200, "height": 900})
    view.page.goto(path.as_uri())
    frame = view.page.frame_locator("iframe")
    frame.locator(".tl-verdict").wait_for()
    assert "✓ correct" in frame.locator(".tl-verdict").inner_text()
    inside = view.page.frames[1]
    inside.wait_for_function(f"{APP}?.drawn")
    assert inside.evaluate(TREE) == sorted(node.id for node in run.tree)
    assert (view.errors, view.outside) == ([], [])
    view.context.close()
