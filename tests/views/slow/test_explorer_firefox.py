"""The views of a saved page in a real Firefox."""

import pytest
from support.browser import soon
from support.explorer import agent, game
from support.firefox import PROGRAM, Firefox
from support.plans import GOOD, Planner, plan, think, tool
from support.plans import run as run_plan

import tot_lab as tl

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="needs firefox-esr on the PATH"),
]

APP = "document.querySelector('.tl-root').parentElement.explorer"


@pytest.fixture(scope="module")
def firefox():
    browser = Firefox()
    yield browser
    browser.close()


def opened(firefox, run, path, *others):
    firefox.open(run.save_html(path / f"{run.id}.html", *others).as_uri())
    soon(lambda: firefox.value(f"{APP}.drawn"))


def text(firefox, selector):
    return firefox.value(f"[...document.querySelectorAll({selector!r})].map(one => one.innerText)")


def test_the_tree_its_details_and_the_verdict(firefox, tmp_path):
    run = game(tl.TreeOfThoughts(answer="best_leaf"), "1 4 8 8")
    opened(firefox, run, tmp_path)
    nodes = f"[...{APP}.panes[0].scene.nodes].map(node => {APP}.source.runs[0].id(node))"
    soon(lambda: sorted(firefox.value(nodes)) == sorted(node.id for node in run.tree))
    ink = """(() => {
        const canvas = document.querySelector(".tl-stage canvas");
        const held = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        return new Set(new Uint32Array(held.buffer)).size;
    })()"""
    soon(lambda: firefox.value(ink) > 50)  # colours on the canvas
    (verdict,) = text(firefox, ".tl-verdict")
    assert verdict.startswith("✗ wrong")
    firefox.value(f"{APP}.show(['0.0'])")
    soon(lambda: run.tree["0.0"].text in text(firefox, ".tl-side")[0])
    prompt = next(line.e for line in run.lines if isinstance(line.e, tl.Call) and line.e.node == "0.0").prompt
    shown = "document.querySelector('.tl-side').textContent"
    soon(lambda: "".join(prompt.split())[-60:] in "".join(firefox.value(shown).split()))


def test_the_steps_of_an_agent_and_its_timeline(firefox, tmp_path):
    run = agent(tl.ReAct())
    opened(firefox, run, tmp_path)
    soon(lambda: len(text(firefox, ".tl-step")) > 3)
    calls = [line.e for line in run.lines if isinstance(line.e, tl.Call)]
    tools = [call for call in calls if call.purpose == "tool"]
    assert len([kind for kind in text(firefox, ".tl-kind") if kind.startswith("tool")]) == len(tools)
    firefox.click("timeline")
    rows = "document.querySelectorAll('table td:first-child').length"
    soon(lambda: firefox.value(rows) == len(calls))


def test_two_runs_are_compared(firefox, tmp_path):
    one, other = game(tl.TreeOfThoughts(), "1 4 8 8"), game(tl.TreeOfThoughts(search="best_first"), "1 4 8 8")
    opened(firefox, one, tmp_path, other)
    firefox.click("compare")
    soon(lambda: len(text(firefox, ".tl-stage")) == 2)
    soon(lambda: "first difference in the record" in text(firefox, ".tl-side")[0])


def test_a_plan_is_drawn(firefox, tmp_path):
    model = Planner(
        plan=plan(tool("add", a=3, b=4), think("Say {{from_step:s1}}.")), analysis="7", review=GOOD
    )
    run = run_plan(model)
    opened(firefox, run, tmp_path)
    firefox.click("plan")
    soon(lambda: [card[:4] for card in text(firefox, ".tl-card b.tl-what")] == ["✓ s1", "✓ s2"])


def test_a_sweep_opens_its_runs(firefox, tmp_path):
    lab = tl.Lab("sim/game24", runs=tmp_path / "runs")
    sweep = tl.testing.wait(lab.sweep([tl.ChainOfThought(), tl.TreeOfThoughts()], tl.game24_tasks(2)))
    firefox.open(sweep.save_html(tmp_path / "sweep.html").as_uri())
    soon(lambda: firefox.value("document.querySelectorAll('[data-row]').length") == 4)
    firefox.value("document.querySelector('[data-row=\"3\"]').click()")
    soon(lambda: firefox.value(f"{APP}?.source.runs[0].about.id") == list(sweep.df().run_id)[3])
