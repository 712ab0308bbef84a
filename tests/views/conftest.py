"""Pages of runs and of sweeps in a browser."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import tot_lab as tl


@pytest.fixture
def opened(chrome, tmp_path):
    """Opens the pages of runs."""
    from support.browser import offline_pages

    from tot_lab.views.explorer.page import save_html

    with offline_pages(chrome) as open_file:

        def open_(*runs):
            page = open_file(save_html(runs[0], tmp_path / f"{runs[0].id}.html", *runs[1:]))
            page.wait_for_function("document.querySelector('.tl-root')?.parentElement.explorer")
            return page

        yield open_


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A sweep of three settings, four tasks and two repeats, with its journals."""
    folder = tmp_path_factory.mktemp("swept")

    async def sweep() -> tl.Sweep:
        search = tl.TreeOfThoughts(propose=tl.Propose(count=3))
        settings = {"CoT": tl.ChainOfThought(), "ToT": tl.grid(search, {"search.width": [1, 3]})}
        lab = tl.Lab(tl.sim.SimGame24(skill=0.4, noise=0.3), runs=folder)
        return await lab.sweep(settings, tl.game24_tasks(4), repeats=2, name="four games")

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(sweep())).result()


@pytest.fixture
def opened_sweep(chrome, tmp_path):
    """Opens the pages of sweeps."""
    from support.browser import offline_pages

    from tot_lab.views.explorer.sweep_page import save_html

    with offline_pages(chrome) as open_file:

        def open_(runs: Any, **options: Any) -> Any:
            page = open_file(save_html(runs, tmp_path / "sweep.html"), **options)
            page.wait_for_selector(".tl-run")
            return page

        yield open_
