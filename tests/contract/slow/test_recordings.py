"""What `data/` ships replays with no network, no model and no litellm."""

import json
import os
import re
import subprocess
import sys

import pytest
from support import ROOT, TESTS, mostly_nightly

import tot_lab as tl
from tot_lab.lab.sharing import verify

RECORDINGS = sorted((ROOT / "data").glob("*.jsonl.gz"))


NBVAL = [
    "-p",
    "nbval",
    "-p",
    "support.notebook_numbers",
    "--nbval",
    "--nbval-sanitize-with",
    "tests/nbval_sanitize.cfg",
]

ALONE = ["unshare", "--net", "--map-root-user"]

LOOPBACK = """
import fcntl, os, socket, struct, sys
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
with socket.socket() as any_socket:  # Jupyter speaks to its kernel over the loopback device
    fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
"""Runs Python in a network that has this machine's loopback device alone."""

STARTUP = """
import json, os, pathlib, sys, warnings
warnings.simplefilter("error")
warnings.filterwarnings("always", "More than 5%")
def loaded(_):
    names = [name for name in ("litellm", "xllamacpp", "huggingface_hub") if name in sys.modules]
    pathlib.Path(os.environ["LOADED"]).write_text(json.dumps(names))
get_ipython().events.register("post_run_cell", loaded)
"""
"""The kernel runs this before the notebook."""


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.name)
def test_a_recording_is_what_was_written_and_no_key_is_in_it(recording):
    cache = tl.Cache(recording)
    assert verify(cache) == []
    asked = [entry.request.model for _, entry in cache.entries()]
    assert {who["name"] for who in asked if who["kind"] == "local"} == {"local/qwen2.5-coder-1.5b"}
    assert {who["kind"] for who in asked} <= {"local", "calculator", "search_documents", "open_document"}


def test_every_notebook_is_run():
    """`make test` gives a notebook to pytest, or the test below runs it."""
    command = ["make", "--dry-run", "--always-make", "test"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    given = set(re.findall(r"notebooks/\w+\.ipynb", made))
    recorded = {f"notebooks/{path.name.removesuffix('.jsonl.gz')}.ipynb" for path in RECORDINGS}
    assert given | recorded == {f"notebooks/{path.name}" for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert not given & recorded


@pytest.mark.parametrize(
    "recording",
    mostly_nightly(RECORDINGS, [path for path in RECORDINGS if path.name.startswith("25")]),
    ids=lambda path: path.name,
)
def test_its_notebook_runs_with_the_network_cut(recording, tmp_path):
    """And makes the outputs that it has: nbval compares them, as it does for the other notebooks."""
    notebook = ROOT / "notebooks" / recording.name.replace(".jsonl.gz", ".ipynb")
    startup = tmp_path / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "00.py").write_text(STARTUP)
    try:
        subprocess.run([*ALONE, "true"], check=True, capture_output=True)
        cut, refused = [*ALONE, sys.executable, "-c", LOOPBACK], None
    except (OSError, subprocess.CalledProcessError) as error:
        cut, refused = [sys.executable], error
    done = subprocess.run(
        [*cut, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *NBVAL, str(notebook)],
        cwd=ROOT,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
            "IPYTHONDIR": str(tmp_path),
            "LOADED": str(tmp_path / "loaded"),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(TESTS)]),
            "TQDM_DISABLE": "1",
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
    assert f"{len(cells)} passed" in done.stdout
    assert json.loads((tmp_path / "loaded").read_text()) == []
    misses = "is not in ../data/15_real_models.jsonl.gz" in json.dumps([cell["outputs"] for cell in cells])
    assert misses == (notebook.stem == "15_real_models"), "which shows a miss"
    if refused:
        pytest.skip(f"it ran, but with a network: needs a network namespace of its own: {refused}")
