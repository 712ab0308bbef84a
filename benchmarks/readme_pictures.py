"""Draws the README's pictures anew, from real runs in a real Chromium (needs the dev extra).

Rule: what the pictures show is what a person gets: the figure as Plotly draws it, the explorer as the page
of `run.save_html` shows it, clicked as a person would.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from playwright.sync_api import Browser, Page
from support.browser import browsing, running_chromium

import tot_lab as tl

DATA = Path(__file__).parent.parent / "data"


async def first_search() -> tl.Run:
    """The run of the README's first code."""
    search = tl.TreeOfThoughts(propose=tl.Propose(count=4))
    return await tl.Lab("sim/game24", runs=None).run(search, tl.game24("4 9 10 13"))


async def exploring() -> tuple[tl.Run, tl.Run]:
    """The run of notebook 02, in which the judge threw a good thought away, and its branch."""
    lab = tl.Lab(tl.sim.SimGame24(skill=0.6, noise=0.2, garble=0.03, seed=366, latency=0.02), runs=None)
    search = tl.TreeOfThoughts(propose=tl.Propose(count=5))
    run = await lab.run(search, tl.game24("4 8 8 11"))
    return run, await lab.branch(run, "0.1", score=1.0)


async def swept() -> tl.Sweep:
    """The sweep of notebook 03: baselines, and beams with one draw of the judge or three."""
    trees = tl.grid(
        tl.TreeOfThoughts(propose=tl.Propose(count=5)),
        {"search.width": [1, 2, 5], "evaluate.samples": [1, 3]},
    )
    settings: dict[str, Any] = {**tl.baselines(), "ToT": trees}
    lab = tl.Lab(tl.sim.SimGame24(skill=0.35, noise=0.2), runs=None)
    return await lab.sweep(settings, tl.game24_tasks(40), repeats=2)


def main() -> None:
    tree = tl.figures.plot_tree(asyncio.run(first_search())).update_layout(width=1100, height=620)
    frontier = tl.figures.plot_pareto(asyncio.run(swept())).update_layout(width=1100, height=560)
    run, other = asyncio.run(exploring())
    with running_chromium() as address, browsing(address) as browser, tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name, figure in (("first_search", tree), ("frontier", frontier)):
            figure.write_html(folder / "figure.html", config={"displayModeBar": False})
            page = opened(browser, folder / "figure.html", 1100, figure.layout.height)
            page.wait_for_selector(".js-plotly-plot .point")
            page.screenshot(path=DATA / f"{name}.png")
        page = opened(browser, run.save_html(folder / "run.html"), 1400, 800)
        click(page, "0.1")
        page.screenshot(path=DATA / "explorer.png")
        page.get_by_role("button", name="timeline").click()
        page.wait_for_timeout(400)
        page.screenshot(path=DATA / "timeline.png")
        both = tl.CompareExplorer(run, other).save_html(folder / "both.html")
        page = opened(browser, both, 1400, 800)
        click(page, "0.1")
        page.screenshot(path=DATA / "compare.png")


def opened(browser: Browser, path: Path, width: int, height: int) -> Page:
    page = browser.new_page(viewport={"width": width, "height": height}, reduced_motion="reduce")
    page.goto(path.as_uri())
    page.wait_for_timeout(500)
    return page


def click(page: Page, id: str) -> None:
    """Click a thought in the first picture."""
    place = page.evaluate(
        """id => {
            const { panes, source } = document.getElementById("tot-lab-explorer").explorer;
            const { canvas, camera, scene } = panes[0].picture;
            const slot = scene.slot[source.runs[0].indexOf(id)], box = canvas.getBoundingClientRect();
            return [box.x + box.width / 2 + (scene.x[slot] - camera.x) * camera.kx,
                    box.y + box.height / 2 + (scene.y[slot] - camera.y) * camera.ky];
        }""",
        id,
    )
    page.mouse.click(*place)
    page.mouse.move(5, 5)
    page.wait_for_timeout(500)


if __name__ == "__main__":
    main()
