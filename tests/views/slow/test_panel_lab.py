"""The panel as a person has it: a real JupyterLab, a real Chromium, a real kernel."""

import re

import pytest
from playwright.sync_api import expect
from support.browser import Notebook, soon
from support.explorer import AXE

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # jupyter_client's own
]

OPEN = """
import tot_lab as tl
from tot_lab.views.explorer.panel import panel
lab = tl.Lab({model}, runs=None)
shown = panel(lab)
shown
"""
SIMULATED = OPEN.format(model='"sim/game24"')
SLOW = OPEN.format(model="tl.sim.SimGame24(latency=0.3)")

NAMELESS = """() => Array.from(document.querySelectorAll(
    ".jp-OutputArea-output :is(input, select, textarea, button)"))
    .filter(element => element.offsetParent !== null && !element.closest(".tl-root"))
    .filter(element => ![element.textContent, element.ariaLabel, ...Array.from(
        element.labels ?? [], label => label.textContent)].some(name => name?.trim()))
    .map(element => element.outerHTML)"""


def button(book: Notebook, name: str):
    return book.page.locator(".jp-OutputArea-output").get_by_role("button", name=name, exact=True)


def field(book: Notebook, name: str):
    return book.page.get_by_label(name, exact=True)


ENDED = re.compile(r"(solved|exhausted|limit:\w+): ")


def finished(book: Notebook, words: str | re.Pattern[str] = ENDED):
    """Until the panel says how the run ended."""
    expect(book.page.get_by_role("status").filter(has_text=words)).to_be_visible(timeout=30_000)
    soon(lambda: book.value("shown.run is not None"))


@pytest.mark.nightly
def test_clicking_leads_to_a_script(notebook):
    book = notebook(SIMULATED, "", "print(run.events == shown.run.events, run is shown.run)")
    book.context.grant_permissions(["clipboard-read", "clipboard-write"])
    book.run(0)
    field(book, "count").fill("3")
    field(book, "search").select_option("BestFirst")
    field(book, "batch").fill("2")
    field(book, "batch").press("Tab")
    soon(lambda: "batch=2" in book.value("shown.code"))
    expect(field(book, "Code for these settings")).to_have_value(book.value("shown.code"))
    button(book, "Run").click()
    finished(book)
    expect(book.page.locator(".tl-root")).to_be_visible()
    button(book, "Copy the code").click()
    expect(button(book, "Copied")).to_be_visible()
    copied = book.page.evaluate("navigator.clipboard.readText()")
    assert "search=tl.BestFirst(batch=2)" in copied
    book.page.evaluate(
        "code => window.jupyterapp.shell.currentWidget.content.widgets[1].model.sharedModel.setSource(code)",
        copied,
    )
    book.run(1)
    book.run(2)
    assert book.output(2).split() == ["True", "False"]


@pytest.mark.nightly
def test_a_mistake_is_said_beside_its_control_and_stops_the_run(notebook):
    book = notebook(SIMULATED)
    book.run(0)
    field(book, "width").fill("0")
    field(book, "width").press("Tab")
    beside = book.page.get_by_role("alert").filter(has_text="must be at least 1")
    expect(beside).to_be_visible()
    place, wrong = field(book, "width").bounding_box(), beside.bounding_box()
    assert 0 < wrong["y"] - place["y"] < 50
    assert abs(wrong["x"] - place["x"]) < 50
    expect(button(book, "Run")).to_be_disabled()
    field(book, "width").fill("1")
    field(book, "width").press("Tab")
    expect(beside).to_be_hidden()
    expect(button(book, "Run")).to_be_enabled()


@pytest.mark.nightly
def test_a_run_is_stopped_and_a_second_one_refused(notebook):
    book = notebook(SLOW)
    book.run(0)
    button(book, "Run").click()
    expect(button(book, "Run")).to_be_disabled()
    expect(book.page.get_by_role("status").filter(has_text="of at most 30 calls")).to_be_visible()
    button(book, "Stop").click()
    finished(book, "cancelled: ")
    assert book.value("[shown.run.stop_reason, lab.last is shown.run]") == ["cancelled", True]
    expect(button(book, "Run")).to_be_enabled()


@pytest.mark.nightly
def test_what_is_done_in_the_browser_happens_on_the_kernels_loop(notebook):
    count = """
import threading
brought, done = [], []
shown._strategy.widget.observe(lambda _: brought.append(threading.current_thread().name), "value")
refresh = shown._refresh
def refreshed():
    done.append(threading.current_thread() is threading.main_thread())
    refresh()
shown._refresh = refreshed
"""
    book = notebook(SIMULATED, count, "import time; time.sleep(2)")
    book.run(0)
    book.run(1)
    book.run(2, wait=False)  # a cell that keeps the loop busy
    book.page.get_by_label("strategy", exact=True).select_option("OneAnswer")
    button(book, "Run").click()
    book.wait_cell(2)
    finished(book, "answered: ")
    brought, done = book.value("[brought, done]")
    assert len(brought) == 1
    assert done
    assert all(done)
    assert book.value("shown.run.strategy.kind") == "one_answer"


@pytest.mark.nightly
def test_the_keyboard_is_enough_and_every_control_has_a_name(notebook):
    book = notebook(SIMULATED)
    book.run(0)
    for name in ("more settings (3)", "descriptions"):
        button(book, name).first.focus()
        book.page.keyboard.press("Space")
    expect(field(book, "seed")).to_be_visible()
    assert book.page.evaluate(NAMELESS) == []
    field(book, "task").focus()
    reached = []
    for _ in range(120):
        book.page.keyboard.press("Tab")
        reached.append(book.page.evaluate("document.activeElement.textContent.trim()"))
        if reached[-1] == "Run":
            break
    assert reached[-1] == "Run"
    book.page.keyboard.press("Enter")
    finished(book)


@pytest.mark.nightly
def test_it_is_readable_in_light_and_dark(notebook):
    brightness = """() => {
        const style = getComputedStyle(document.querySelector(".tot-lab-code textarea"));
        return ["color", "backgroundColor"].map(name =>
            style[name].match(/[\\d.]+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0) / 765);
    }"""
    book = notebook(SIMULATED)
    book.run(0)
    expect(field(book, "Code for these settings")).to_be_visible()
    ink, paper = book.page.evaluate(brightness)
    assert paper - ink > 0.6
    book.page.evaluate(
        "window.jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Dark' })"
    )
    soon(lambda: book.page.evaluate(brightness)[1] < 0.5)
    ink, paper = book.page.evaluate(brightness)
    assert ink - paper > 0.6


@pytest.mark.nightly
def test_axe_finds_no_serious_violation_in_the_panel(notebook):
    book = notebook(SIMULATED)
    book.run(0)
    button(book, "Run").wait_for()
    button(book, "Run").click()
    finished(book)
    book.page.add_script_tag(path=AXE)
    for forced, width in (("none", 1300), ("none", 390), ("active", 1300), ("active", 390)):
        book.page.emulate_media(forced_colors=forced)
        book.page.set_viewport_size({"width": width, "height": 860})
        book.page.wait_for_timeout(300)
        found = book.page.evaluate("axe.run(document.querySelector('.jp-OutputArea'))")["violations"]
        serious = [one for one in found if one["impact"] in ("serious", "critical")]
        assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in serious] == []
