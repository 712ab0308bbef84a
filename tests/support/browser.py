"""A real JupyterLab in a real Chromium, for the tests of the explorer.

Rule: what a person would have. The server listens on loopback only and keeps its settings in a folder
of its own; every address that a page asks for and every error on its console is kept, so that a test
can say that nothing left this machine. Without Chromium the tests are skipped by name, on CI they fail.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from support import ROOT

if TYPE_CHECKING:
    from jupyter_client.blocking.client import BlockingKernelClient
    from playwright.sync_api import Browser, ConsoleMessage, Page

LOOPBACK = {"127.0.0.1", "localhost", "::1"}
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM_FLAGS = [
    *("--headless", "--remote-debugging-port=0", "--no-sandbox", "--disable-dev-shm-usage"),
    *("--js-flags=--expose-gc", "--no-first-run", "--no-default-browser-check", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio"),
    *("--disable-extensions", "--force-color-profile=srgb", "--disable-background-timer-throttling"),
    *("--disable-backgrounding-occluded-windows", "--disable-renderer-backgrounding", "--use-mock-keychain"),
]
PATIENCE = 60_000
"""Milliseconds until something that a page should show counts as missing."""

TOKEN = "for-tests-on-loopback"
CELL: dict[str, Any] = {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": []}

EMPTIED = (
    "[__import__('ipywidgets').Widget.close_all(), get_ipython().reset(), __import__('gc').collect()] and 1"
)
"""Ends the widgets of a kernel and forgets every name."""


def chromium() -> str:
    """Where Chromium is; without one the test is skipped, or fails on CI."""
    found = next(filter(None, map(shutil.which, CHROMIUMS)), None)
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("CI has no Chromium: .ci/run installs it")
        pytest.skip(f"needs a browser: one of {', '.join(CHROMIUMS)}")
    return found


@contextmanager
def running_chromium() -> Iterator[str]:
    """The address of a headless Chromium."""
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as folder:
        command = [chromium(), *CHROMIUM_FLAGS, f"--user-data-dir={folder}", "about:blank"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        port = Path(folder, "DevToolsActivePort")
        try:
            soon(lambda: port.exists() and "\n" in port.read_text(), 60)
            yield f"http://127.0.0.1:{port.read_text().splitlines()[0]}"
        finally:
            process.terminate()
            process.wait()


@contextmanager
def browsing(address: str) -> Iterator[Browser]:
    """A running Chromium, without the contexts of others. Playwright holds the event loop of its thread."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.connect_over_cdp(address)
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A page that remembers what it asked for and what went wrong on it."""

    def __init__(self, browser: Browser, **options: Any) -> None:
        self.context = browser.new_context(accept_downloads=True, **options)
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.asked: list[str] = []
        self.errors: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("websocket", lambda socket: self.asked.append(socket.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._heard)

    def _heard(self, said: ConsoleMessage) -> None:
        if said.type == "error":
            self.errors.append(said.text)

    @property
    def outside(self) -> list[str]:
        """What it asked for that is not on this machine."""
        parts = [(url, urlsplit(url)) for url in self.asked]
        return [url for url, part in parts if part.hostname not in LOOPBACK and part.hostname is not None]


@contextmanager
def offline_pages(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens files with the network off. At the end, no address may have been asked for, without an error."""
    pages: list[Watched] = []

    def open_(path: Path, **options: Any) -> Page:
        watched = Watched(browser, viewport={"width": 1300, "height": 900}, offline=True, **options)
        pages.append(watched)
        watched.page.goto(path.as_uri())
        return watched.page

    yield open_
    for watched in pages:
        asked = [url for url in watched.asked if not url.startswith(("file:", "blob:", "data:"))]
        watched.context.close()
        assert (asked, watched.errors) == ([], [])


class JupyterLab:
    """A server with settings of its own. `env` goes to its kernels too; `settings` are Lab's, by plugin."""

    def __init__(self, env: dict[str, str] | None = None, settings: dict[str, Any] | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="lab-")
        home = Path(self._folder.name)
        self.work = home / "work"
        self._runtime = home / "runtime"
        for folder in (self.work, self._runtime):
            folder.mkdir()
        quiet = {"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True}
        for plugin, values in {
            "@jupyterlab/apputils-extension:notification": quiet,
            **(settings or {}),
        }.items():
            package, name = plugin.split(":")
            file = home / "settings" / package / f"{name}.jupyterlab-settings"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(values))
        kernel = home / "data" / "kernels" / "python3" / "kernel.json"
        kernel.parent.mkdir(parents=True)
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        kernel.write_text(json.dumps({"argv": argv, "display_name": "Python 3", "language": "python"}))
        environment = {
            **os.environ,
            "HOME": str(home),
            "IPYTHONDIR": str(home / "ipython"),
            "JUPYTER_CONFIG_DIR": str(home / "config"),
            "JUPYTER_DATA_DIR": str(home / "data"),
            "JUPYTER_RUNTIME_DIR": str(self._runtime),
            "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
            "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
            "JUPYTER_PREFER_ENV_PATH": "0",
            "PYTHONPATH": str(ROOT),
            "TOT_LAB_CACHE": str(home / "calls"),
            **(env or {}),
        }
        self.log = home / "log"
        command = [
            sys.executable,
            "-m",
            "jupyterlab",
            "--no-browser",
            "--allow-root",
            "--ip=127.0.0.1",
            "--port=0",
            f"--IdentityProvider.token={TOKEN}",
            f"--ServerApp.root_dir={self.work}",
            "--LabApp.expose_app_in_browser=True",
            "--LabApp.extension_manager=readonly",
            "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        ]
        with self.log.open("wb") as log:
            self._server = subprocess.Popen(
                command, cwd=self.work, env=environment, stdout=log, stderr=subprocess.STDOUT
            )
        self.url = soon(self._address, 60, lambda: self.log.read_text()[-3000:])

    def _address(self) -> str | None:
        if self._server.poll() is not None:
            raise RuntimeError(f"JupyterLab ended: {self.log.read_text()[-3000:]}")
        for file in self._runtime.glob("jpserver-*.json"):
            text = file.read_text()
            if text.endswith("}"):
                return f"http://127.0.0.1:{json.loads(text)['port']}"
        return None

    def kernel(self, id: str) -> BlockingKernelClient:
        """A second client of a running kernel."""
        from jupyter_client.blocking.client import BlockingKernelClient

        client = BlockingKernelClient()
        client.load_connection_file(str(self._runtime / f"kernel-{id}.json"))
        client.start_channels()
        return client

    def close(self) -> None:
        """End the server and with it its kernels."""
        self._server.send_signal(signal.SIGTERM)
        try:
            self._server.wait(20)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
        self._folder.cleanup()


class Notebook(Watched):
    """An open notebook: what a person does with it, and what its kernel knows."""

    def __init__(
        self, lab: JupyterLab, browser: Browser, cells: list[str], name: str, **options: Any
    ) -> None:
        super().__init__(browser, viewport={"width": 1500, "height": 1100}, **options)
        self.lab = lab
        book = {
            "cells": [{**CELL, "id": f"cell-{k}", "source": cell} for k, cell in enumerate(cells)],
            "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}},
            "nbformat": 4,
            "nbformat_minor": 5,
        }
        (lab.work / f"{name}.ipynb").write_text(json.dumps(book))
        self._url = f"{lab.url}/lab/workspaces/{name}/tree/{name}.ipynb"
        self._client: BlockingKernelClient | None = None
        self.open()

    def open(self) -> None:
        """Open it, or load the page anew."""
        self.page.goto(f"{self._url}?token={TOKEN}", wait_until="commit")
        self._wait_idle()

    def _wait_idle(self) -> None:
        self.page.wait_for_function(
            """() => {
                const panel = window.jupyterapp?.shell.currentWidget;
                return panel?.content?.model && panel.sessionContext?.session?.kernel?.status === "idle";
            }""",
            timeout=90_000,
        )

    def fill(self, *cells: str) -> Notebook:
        """Give it other cells, and an empty kernel: a new one if it has none."""
        if self.page.evaluate("window.jupyterapp.shell.currentWidget.sessionContext.session === null"):
            self._forget_client()
            self.page.evaluate(
                "window.jupyterapp.shell.currentWidget.sessionContext.changeKernel({ name: 'python3' })"
            )
            self._wait_idle()
        self.page.evaluate(
            """cells => {
                const shared = window.jupyterapp.shell.currentWidget.content.model.sharedModel;
                shared.deleteCellRange(0, shared.cells.length);
                shared.insertCells(0, cells);
            }""",
            [{**CELL, "source": cell} for cell in cells],
        )
        self.value(EMPTIED)
        return self

    def _forget_client(self) -> None:
        if self._client is not None:
            self._client.stop_channels()
            self._client = None

    def run(self, cell: int, wait: bool = True, seconds: float = 60) -> None:
        """Run a cell as a person would; `wait` for its end."""
        self.page.evaluate(
            """cell => {
                const notebook = window.jupyterapp.shell.currentWidget.content;
                notebook.activeCellIndex = cell;
                notebook.deselectAll();
                window.jupyterapp.commands.execute("notebook:run-cell");
            }""",
            cell,
        )
        if wait:
            self.wait_cell(cell, seconds)

    def wait_cell(self, cell: int, seconds: float = 60) -> None:
        """Until a cell was run to its end."""
        self.page.wait_for_function(
            """cell => {
                const notebook = window.jupyterapp.shell.currentWidget.content;
                const model = notebook.widgets[cell].model;
                return model.executionCount !== null && model.executionState !== "running";
            }""",
            arg=cell,
            timeout=seconds * 1000,
        )

    def run_all(self, seconds: float = 120) -> None:
        """All cells, each after the one before it."""
        for cell in range(self.page.evaluate("window.jupyterapp.shell.currentWidget.content.widgets.length")):
            self.run(cell, seconds=seconds)

    def output(self, cell: int) -> str:
        """What a cell printed, its errors included."""
        outputs = self.page.evaluate(
            "cell => window.jupyterapp.shell.currentWidget.content.widgets[cell].model.outputs.toJSON()", cell
        )
        return "".join(
            "".join(
                out.get("text", "")
                or "\n".join(out.get("traceback", []))
                or out["data"].get("text/plain", "")
            )
            for out in outputs
        )

    def save(self) -> None:
        """Save it."""
        self.page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")

    @property
    def client(self) -> BlockingKernelClient:
        """A second client of its kernel."""
        if self._client is None:
            id = self.page.evaluate("window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.id")
            self._client = self.lab.kernel(id)
            self._client.wait_for_ready(timeout=30)
        return self._client

    def value(self, expression: str) -> Any:
        """What a Python expression, made into JSON, is in the kernel."""
        reply = self.client.execute(
            "import json as _json", silent=True, user_expressions={"value": f"_json.dumps({expression})"}
        )
        while True:
            got = self.client.get_shell_msg(timeout=60)
            if got["parent_header"].get("msg_id") == reply:
                break
        value = got["content"]["user_expressions"]["value"]
        if value["status"] != "ok":
            raise RuntimeError(f"{expression}: {value['ename']}: {value['evalue']}")
        text: str = eval(value["data"]["text/plain"])
        return json.loads(text)

    def close(self) -> None:
        """Close its page, and end its kernel."""
        self._forget_client()
        self.page.evaluate("window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")
        self.context.close()


def soon(look: Callable[[], Any], seconds: float = 120, said: Callable[[], object] = str) -> Any:
    """What `look` gives once it gives something, looked for until `seconds` have passed."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if got := look():
            return got
        time.sleep(0.02)
    raise TimeoutError(f"nothing within {seconds} s {said()}")
