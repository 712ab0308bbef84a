"""What `data/` ships replays with no network, no model and no litellm."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

import tot_lab as tl
from tot_lab.sharing import verify

ROOT = Path(__file__).parent.parent
RECORDINGS = sorted((ROOT / "data").glob("*.jsonl.gz"))


def run_cells(notebook):
    """The notebook's code, cell by cell, as a shell of IPython runs it: a kernel needs a network."""
    shell = InteractiveShell.instance()
    for cell in json.loads(Path(notebook).read_text())["cells"]:
        if cell["cell_type"] == "code":
            shell.run_cell("".join(cell["source"])).raise_error()
    print(json.dumps([name for name in ("litellm", "xllamacpp", "huggingface_hub") if name in sys.modules]))


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.name)
def test_a_recording_is_what_was_written_and_no_key_is_in_it(recording):
    cache = tl.Cache(recording)
    assert verify(cache) == []
    asked = [entry.request.model for _, entry in cache.entries()]
    assert {who["name"] for who in asked if who["kind"] == "local"} == {"local/qwen2.5-coder-1.5b"}
    assert {who["kind"] for who in asked} <= {"local", "calculator", "search_documents", "open_document"}


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.name)
def test_its_notebook_runs_with_the_network_cut(recording):
    notebook = ROOT / "notebooks" / recording.name.replace(".jsonl.gz", ".ipynb")
    code = f"import sys; sys.path[:0] = {[str(ROOT), str(ROOT / 'tests')]!r}; import test_recordings; "
    code += f"test_recordings.run_cells({str(notebook)!r})"
    alone = ["unshare", "--net", "--map-root-user"]
    try:
        subprocess.run([*alone, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"needs a network namespace of its own: {error}")
    done = subprocess.run(
        [*alone, sys.executable, "-W", "error", "-W", "ignore:More than 5%", "-c", code],
        cwd=ROOT / "notebooks",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
    misses = "is not in ../data/02_real_models.jsonl.gz" in done.stdout
    assert misses == (notebook.stem == "02_real_models"), "which shows a miss"
