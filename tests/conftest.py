"""What tests of several files stand on."""

import gc
import os
import signal
import subprocess
import sys
from collections import Counter
from itertools import count

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("support")  # before it is imported

settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")  # a loaded machine is slow, and that is no failure

NUMBERS = count()

# A shell ignores the interrupts of what it starts in the background, and so would the processes of tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Hundreds of tests start Python, which would compile the package each time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

LANES = ("slow", "nightly", "proof")
LONG_NOTEBOOKS = {
    "05_exploring_a_search",
    "10_sweeps",
    "35_search_algorithms",
    "50_inference_time_scaling",
    "55_a_model_in_the_box",
}
"""Notebooks that take longest. They run at night."""
LONG_FILES = [
    *("test_contract", "test_documents", "test_distributed", "test_sweep_figures", "test_lite_llm"),
    *("test_recordings", "test_explorer_views", "test_linear_reading", "test_panel", "test_cli"),
    *("test_explorer_access", "test_explorer_lab", "test_plugins"),
]
"""Files that take longest, longest first."""


def pytest_collection_modifyitems(items):
    """Mark the tests of a folder `slow`, `nightly` or `proof` with its lane, and the cells of notebooks too,
    since each notebook starts a kernel. Begin with the files that take longest, and then with those that have
    the most slow tests beyond their fast ones: a long file at the end leaves the other workers without work.
    """
    surplus = Counter()
    for item in items:
        if item.path.suffix == ".ipynb":
            item.add_marker("nightly" if item.path.stem in LONG_NOTEBOOKS else "slow")
        elif item.path.parent.name in LANES:
            item.add_marker(item.path.parent.name)
        surplus[item.path] += 1 if item.get_closest_marker("slow") is None else -1
    first = {name: number for number, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: (first.get(item.path.stem, len(first)), surplus[item.path]))


def pytest_collection_finish():
    """Modules and tests stay to the end, so that looking for garbage among them is a waste of time."""
    gc.collect()
    gc.freeze()


class NotebooksWithoutBars:
    """Whether a bar appears depends on how busy the machine is. A plugin, because notebooks are outside of
    this folder."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item):
        if item.path.suffix == ".ipynb":
            os.environ["TQDM_DISABLE"] = "1"  # which the kernel of the notebook inherits
        else:
            os.environ.pop("TQDM_DISABLE", None)


def pytest_configure(config):
    config.pluginmanager.register(NotebooksWithoutBars())
    if config.getoption("nbval", False):
        config.pluginmanager.import_plugin("support.notebook_numbers")


@pytest.fixture(scope="session")
def caches(tmp_path_factory):
    """One folder for the caches of all tests: a numbered folder per test costs a listing of all of them."""
    return tmp_path_factory.mktemp("calls")


@pytest.fixture(autouse=True)
def unknown_servers():
    """What endpoints have learnt about a server in one test is unknown in the next."""
    if (endpoint := sys.modules.get("tot_lab.models.chat.endpoint")) is not None:
        endpoint._ONE_BY_ONE.clear()


@pytest.fixture(autouse=True)
def own_cache(caches, monkeypatch):
    """No test reads or writes the answers that the person at this machine has paid for."""
    monkeypatch.setenv("TOT_LAB_CACHE", str(caches / str(next(NUMBERS)) / "own"))


@pytest.fixture(scope="session")
def loaded():
    """litellm is imported before a time limit runs: that takes seconds, on a busy machine a minute."""
    from tot_lab.models.lite_llm.loading import load_litellm

    load_litellm()


@pytest.fixture(scope="module")
def shared():
    """A server that speaks the providers' formats."""
    from support.providers import Providers

    with Providers() as server:
        yield server


@pytest.fixture
def small_disk(tmp_path):
    """Makes a file system of so many kB, where mounting one is permitted."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = False

    def made(size):
        nonlocal mounted
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(folder)]
        try:
            subprocess.run(command, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"needs a small tmpfs: {getattr(error, 'stderr', '') or error}")
        mounted = True
        return folder

    yield made
    if mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture(scope="session")
def chromium_address():
    """A browser for all tests of a worker: to start one takes seconds."""
    from support.browser import running_chromium

    with running_chromium() as address:
        yield address


@pytest.fixture(scope="module")
def chrome(chromium_address):
    """The browser for the tests of one file. No run can be made while Playwright holds the event loop."""
    from support.browser import browsing

    with browsing(chromium_address) as browser:
        yield browser


@pytest.fixture(scope="session")
def jupyter():
    """A JupyterLab for all tests of a worker: to start one takes seconds."""
    from support.browser import JupyterLab, chromium

    chromium()
    lab = JupyterLab()
    yield lab
    lab.close()


@pytest.fixture(scope="module")
def desk(jupyter, chrome):
    """One notebook and one kernel for the tests of one file: to start them takes most of a test's time."""
    from support.browser import Notebook

    book = Notebook(jupyter, chrome, [], "desk")
    yield book
    book.close()


@pytest.fixture
def notebook(desk):
    """A notebook of given cells, with an empty kernel. At the end nothing may have left this machine or gone
    wrong."""
    yield desk.fill
    outside, errors = desk.outside, list(desk.errors)
    desk.asked.clear()
    desk.errors.clear()
    assert (outside, errors) == ([], [])


@pytest.fixture
def fresh_notebook(jupyter, chrome, request):
    """A notebook in a page and a kernel of its own, for what counts objects."""
    from support.browser import Notebook

    opened = []

    def open_(*cells):
        opened.append(Notebook(jupyter, chrome, list(cells), f"{request.node.name}-{len(opened)}"))
        return opened[-1]

    yield open_
    for book in opened:
        book.close()
    assert [(book.outside, book.errors) for book in opened] == [([], []) for _ in opened]
