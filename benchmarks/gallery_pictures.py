"""Draws the pictures of docs/gallery.md anew, from runs that need no network (needs the dev extra).

Models are simulated, but for Deep Think, whose calls data/25_deep_think.jsonl.gz recorded. The README's
pictures are in the gallery too; `readme_pictures.py` draws them.
"""

from __future__ import annotations

import asyncio
import base64
import tempfile
from pathlib import Path
from typing import Any

from notebook_pictures import picture_of, png
from playwright.sync_api import Browser
from plotly.offline import get_plotlyjs
from readme_pictures import DATA, exploring, opened, swept
from support.browser import JupyterLab, Notebook, browsing, running_chromium

import tot_lab as tl

PICTURES = DATA.parent / "docs" / "pictures" / "gallery"
DRAW = """text => {
  const figure = JSON.parse(text);
  return Plotly.toImage(figure, { format: "png", width: 900, height: figure.layout.height ?? 450 });
}"""
CARDS = ("run_card", "sweep_card", "diagnosis")
QUESTION = (
    "A bakery with three shops takes orders for birthday cakes by telephone, on slips of paper, and loses "
    "one in fifty.\nIt wants one system for all three shops. The internet of one shop fails for an hour most "
    "weeks; nobody there is a\nprogrammer; it may cost 40 euros a month. How should the orders be kept and "
    "shared? Decide, and say what was given up."
)
"""The question of notebooks/25_deep_think.ipynb, which is recorded."""


async def acting() -> tuple[tl.Run, tl.Run]:
    """A tool loop that answers a question in several steps, and a plan whose steps depend on each other."""
    lab = tl.Lab("sim/agent", tools=tl.domains.multi_hop_tools(), runs=None)
    steps = await lab.run(tl.ReAct(), tl.domains.multi_hop_tasks(16)[14])
    careful = tl.Lab(tl.sim.SimAgent(skill=0.95), tools=[tl.tools.Calculator()], runs=None)
    return steps, await careful.run(tl.PlanExecute(plan_mode="dag"), tl.domains.word_sums_tasks(16)[2])


async def thinking() -> tl.Run:
    longer = {"max_tokens": 1000}
    lab = tl.Lab(
        "local/qwen2.5-coder-1.5b",
        roles=dict.fromkeys(("propose", "answer", "synthesize"), longer),
        cache=DATA / "25_deep_think.jsonl.gz",
        mode="replay",
        runs=None,
    )
    return await lab.run(tl.DeepThink(tier="local", timeout=900.0), tl.open_ended(QUESTION))


async def scaled() -> tl.Sweep:
    lab = tl.Lab(tl.sim.SimGame24(skill=0.35, noise=0.2), runs=None)
    search = tl.TreeOfThoughts(propose=tl.Propose(count=5))
    settings: dict[str, Any] = {
        "beam": tl.grid(search, {"search.width": [1, 2, 5, 10]}),
        "vote": tl.grid(tl.SelfConsistency(), {"attempts": [5, 10, 20, 40]}),
    }
    return await lab.sweep(settings, tl.game24_tasks(40))


def main() -> None:
    run, _ = asyncio.run(exploring())
    steps, plan = asyncio.run(acting())
    thought = asyncio.run(thinking())
    sweep = asyncio.run(swept())
    draw = tl.figures
    figures = {
        "plot_icicle": draw.plot_icicle(run),
        "plot_scores": draw.plot_scores(run),
        "plot_timeline": draw.plot_timeline(run),
        "plot_cost": draw.plot_cost(run),
        "plot_confidence": draw.plot_confidence(thought),
        "plot_sweep": draw.plot_sweep(sweep, x="search.width", color="evaluate.samples"),
        "plot_parallel": draw.plot_parallel(sweep),
        "plot_heatmap": draw.plot_heatmap(sweep, "search.width", "evaluate.samples"),
        "plot_importance": draw.plot_importance(sweep),
        "plot_calibration": draw.plot_calibration(sweep),
        "plot_scaling": draw.plot_scaling(asyncio.run(scaled())),
    }
    data = tl.deep_thought(thought)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        pages = {
            "run_card": written(folder / "card.html", run._repr_html_()),
            "sweep_card": written(folder / "sweep_card.html", sweep._repr_html_()),
            "diagnosis": written(folder / "diagnosis.html", tl.diagnose(run)._repr_html_()),
            "deep_report": written(folder / "deep.html", data.report_html()),
            "report_html": draw.report_html([run, steps, plan], folder / "report.html"),
            "steps": steps.save_html(folder / "steps.html"),
            "plan": plan.save_html(folder / "plan.html"),
            "sweep_page": sweep.save_html(folder / "sweep.html"),
        }
        run.save_figure(PICTURES / "save_figure.svg", width=5)
        with running_chromium() as address, browsing(address) as browser:
            blank = browser.new_page()
            blank.add_script_tag(content=get_plotlyjs())
            urls = {name: blank.evaluate(DRAW, figure.to_json()) for name, figure in figures.items()}
            urls |= {name: photo(browser, path, name) for name, path in pages.items()}
            urls["panel"] = panel(browser)
            for name, url in urls.items():
                (PICTURES / f"{name}.png").write_bytes(base64.b64decode(png(blank, url)))
    for path in sorted(PICTURES.iterdir()):
        print(f"{path.stat().st_size:>8,} {path.name}")
    print(f"{sum(path.stat().st_size for path in PICTURES.iterdir()):>8,} bytes")


def written(path: Path, html: str) -> Path:
    style = "font: 14px system-ui; width: fit-content; padding: 8px"
    path.write_text(f"<!doctype html><meta charset=utf-8><body style='{style}'>{html}")
    return path


def photo(browser: Browser, path: Path, name: str) -> str:
    page = opened(browser, path, 1000, 720 if name == "plan" else 560)
    if name in ("steps", "plan"):
        page.get_by_role("button", name=name, exact=True).click()
        page.wait_for_timeout(400)
    picture = page.locator("body").screenshot() if name in CARDS else page.screenshot()
    return "data:image/png;base64," + base64.b64encode(picture).decode()


def panel(browser: Browser) -> str:
    lab = JupyterLab()
    notebook = Notebook(
        lab,
        browser,
        ["import tot_lab as tl\ntl.panel(tl.Lab('sim/game24', runs=None))"],
        "gallery",
        reduced_motion="reduce",
    )
    notebook.page.set_viewport_size({"width": 1300, "height": 1600})
    notebook.run_all()
    picture = picture_of(notebook.page, 0)
    notebook.close()
    lab.close()
    return picture


if __name__ == "__main__":
    main()
