"""Accessibility of every view, of the sweep page and of the report: axe, and keys alone."""

from __future__ import annotations

import pytest
from support.browser import offline_pages, soon
from support.explorer import APP, AXE, agent, carried_out, game

import tot_lab as tl
from tot_lab.views.report import report_html

FOCUSED = "document.activeElement"


@pytest.fixture(scope="module")
def runs():  # requested before `chrome`: no run can be made while Playwright holds the event loop
    search = tl.TreeOfThoughts(answer="best_leaf")
    other = tl.TreeOfThoughts(answer="best_leaf", search=tl.BeamSearch(width=1))
    deep = carried_out("sim/constrained", tl.DeepThink(), tl.domains.constrained_tasks(2)[1])
    return game(search, "1 4 8 8"), game(other, "1 4 8 8"), agent(tl.PlanExecute(), task=1), deep


LOOKS = [(scheme, width) for width in (1300, 390) for scheme in ("light", "dark", "forced")]


def look(page, scheme, width):
    """Show a page in light, dark or forced colours, on a wide screen or a phone."""
    page.emulate_media(
        color_scheme="dark" if scheme == "dark" else "light",
        forced_colors="active" if scheme == "forced" else "none",
    )
    page.set_viewport_size({"width": width, "height": 860})


def serious(page, scheme="light"):
    """The serious violations. Dark differs from light in its colours alone, so only these are looked at."""
    page.evaluate(f"() => {{ {AXE.read_text()} }}")
    rules = {"runOnly": ["color-contrast", "link-in-text-block"]} if scheme == "dark" else {}
    found = page.evaluate("rules => axe.run(rules)", rules)["violations"]
    return [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")]


def views_of(page):
    """Show every view of a page in turn."""
    for button in page.get_by_role("group", name="view", exact=True).get_by_role("button").all():
        if button.is_visible():
            button.click()
            page.wait_for_timeout(200)
            yield button.text_content()


@pytest.mark.nightly
@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_axe_finds_no_serious_violation_on_any_view(runs, opened, scheme, width):
    search, other, plans, deep = runs
    seen = set()
    for some in ([search, other], [plans], [deep]):
        page = opened(*some)
        look(page, scheme, width)
        for view in views_of(page):
            page.evaluate(f"{APP}.show([])")
            assert serious(page, scheme) == [], view
            asked = next(line.e.node for line in reversed(some[0].lines) if isinstance(line.e, tl.Call))
            page.evaluate(f"{APP}.show(['{asked}'])")
            page.locator(".tl-details details summary").first.wait_for()
            page.evaluate("document.querySelectorAll('.tl-side details').forEach(one => one.open = true)")
            assert serious(page, scheme) == [], view
            seen.add(view)
        page.keyboard.press("r")
        assert serious(page, scheme) == []
        page.keyboard.press("Escape")
        page.keyboard.press("?")
        assert serious(page, scheme) == []
    assert seen == {"tree", "steps", "plan", "timeline", "compare"}


@pytest.mark.nightly
@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_axe_finds_no_serious_violation_on_the_page_of_a_sweep(swept, opened_sweep, scheme, width):
    page = opened_sweep(swept)
    look(page, scheme, width)
    page.locator(".tl-run").first.click()
    page.wait_for_selector(".tl-root [role=tree]")
    page.wait_for_timeout(200)
    assert serious(page, scheme) == []
    page.get_by_role("button", name="table").click()
    page.wait_for_selector(".tl-table")
    assert serious(page, scheme) == []


@pytest.mark.nightly
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_violation_in_a_report(runs, chrome, tmp_path, scheme):
    path = report_html(runs[:3], tmp_path / "report.html")
    with offline_pages(chrome) as open_file:
        page = open_file(path, color_scheme=scheme)
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        page.wait_for_selector(".js-plotly-plot .point")
        assert serious(page, scheme) == []


def tab_to(page, is_it, most=60):
    """Press Tab until a JavaScript condition on the focused element holds."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate(f"(one => Boolean({is_it}))({FOCUSED})"):
            return
    raise AssertionError(f"Tab never reached {is_it}")


def press_button(page, name):
    tab_to(page, f"one.matches('button') && one.textContent === {name!r}")
    page.keyboard.press("Enter")


def selected(page):
    return page.evaluate(f"{APP}.ids()")


@pytest.mark.nightly
def test_keys_alone_suffice_in_the_tree_and_for_reading(runs, opened):
    run = runs[0]
    page = opened(run)
    tab_to(page, "one.matches('[role=tree]')")
    page.keyboard.press("ArrowDown")
    soon(lambda: selected(page) == ["0"])
    page.keyboard.press("ArrowRight")
    soon(lambda: selected(page) == ["0.0"])
    page.keyboard.press("ArrowLeft")  # hides its children
    soon(lambda: f"of {len(run.tree)} thoughts shown" in page.locator(".tl-caption").text_content())
    page.keyboard.press("ArrowRight")
    page.keyboard.press("n")
    soon(lambda: selected(page) == ["0.1"])
    page.keyboard.press("b")
    soon(lambda: selected(page) == [run.best.id])
    tab_to(page, "one.matches('.tl-details summary')")
    page.keyboard.press("Enter")
    soon(page.locator(".tl-details details[open] pre").first.is_visible)
    page.keyboard.press("r")
    soon(lambda: page.evaluate(f"{APP}.reading"))
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("state:pruned")
    page.keyboard.press("Enter")
    soon(lambda: run.tree[selected(page)[0]].state == "pruned")
    tab_to(page, "one.matches('[type=range]')")
    page.keyboard.press("Home")
    soon(lambda: page.evaluate(f"{APP}.frameOf(0).nodes") == 0)
    tab_to(page, "one.matches('.tl-menu summary')", 90)
    page.keyboard.press("Enter")
    with page.expect_download() as saved:
        press_button(page, "SVG picture")
    assert saved.value.suggested_filename.endswith(".svg")


@pytest.mark.nightly
def test_keys_alone_suffice_in_the_steps_the_plan_and_the_timeline(runs, opened):
    run = runs[2]
    page = opened(run)
    press_button(page, "steps")
    tab_to(page, "one.matches('.tl-step')")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    soon(lambda: selected(page) == ["0.0"])
    page.evaluate(f"{FOCUSED}.blur()")
    press_button(page, "plan")
    step = run.plans[0].steps[-1]
    tab_to(page, f"one.matches('.tl-card') && one.textContent.includes({step.id!r})")
    page.keyboard.press("Enter")
    soon(lambda: selected(page) == [step.node])
    page.evaluate(f"{FOCUSED}.blur()")
    press_button(page, "timeline")
    tab_to(page, "one.matches('canvas')")
    order = list(dict.fromkeys(line.e.node for line in run.lines if isinstance(line.e, tl.Call)))
    assert len(order) > 2
    page.evaluate(f"{APP}.show([])")
    for id in order[:3]:
        page.keyboard.press("ArrowRight")
        soon(lambda id=id: selected(page) == [id])
    page.keyboard.press("ArrowLeft")
    soon(lambda: selected(page) == [order[1]])
    for key in ("+", "-", "f"):
        page.keyboard.press(key)


@pytest.mark.nightly
def test_keys_alone_suffice_to_compare(runs, opened):
    page = opened(*runs[:2])
    press_button(page, "compare")
    for side in (0, 1):
        tab_to(page, "one.matches('[role=tree]')")
        assert page.evaluate(f"[...document.querySelectorAll('[role=tree]')].indexOf({FOCUSED})") == side
    page.keyboard.press("ArrowDown")
    soon(lambda: "b:0" in selected(page))
    page.keyboard.press("ArrowRight")
    soon(lambda: "b:0.0" in selected(page))
    tab_to(page, "one.matches('.tl-differences .tl-item')")
    page.keyboard.press("Enter")
    first = page.locator(".tl-differences .tl-item b").first.text_content().removeprefix("thought ")
    soon(lambda: first in [id.removeprefix("b:") for id in selected(page)])


@pytest.mark.nightly
def test_keys_alone_suffice_on_the_page_of_a_sweep(swept, opened_sweep):
    page = opened_sweep(swept)
    tab_to(page, "one.matches('.tl-run')")
    page.keyboard.press("ArrowRight")
    row = int(page.evaluate(f"{FOCUSED}.dataset.row"))
    page.keyboard.press("Enter")
    soon(lambda: page.evaluate(f"{APP}?.source.runs[0].about.id") == swept.df().run_id[row])
    tab_to(page, "one.matches('[role=tree]')", 90)
    page.keyboard.press("ArrowDown")
    soon(lambda: selected(page) != [])
