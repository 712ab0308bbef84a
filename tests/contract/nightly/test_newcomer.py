"""The README as a newcomer follows it: its commands in a fresh clone, then its cells."""

import os
import re
import shutil
import subprocess

import nbformat
from support import ROOT
from support.pages import blocks


def shell(folder, *lines):
    """Run `lines` in a shell that knows nothing of the environment of the tests."""
    unknown = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")
    done = subprocess.run(
        ["bash", "-ec", "\n".join(lines)],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name not in unknown},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def test_the_commands_and_the_cells_of_the_readme_run_in_a_fresh_clone(tmp_path):
    """`jupyter execute` stands for JupyterLab and the person who runs every cell.

    Cells that need a model server are executed by `slow/test_documents.py`.
    """
    shell(tmp_path, f"git clone --quiet {ROOT} tot_lab")
    clone = tmp_path / "tot_lab"
    cloning, environment, install, opening = blocks("README.md", "sh")[0].splitlines()
    assert cloning.startswith("git clone ")
    assert opening.startswith("jupyter lab notebooks/")
    if shutil.which("uv"):
        install = install.replace("pip install", "uv pip install")
    shell(clone, environment, install)
    enter = re.findall(r"&& (.*activate)$", environment)
    shell(clone, *enter, opening.replace("jupyter lab", "jupyter execute --timeout=300"))
    cells = [code for code in blocks("README.md") if not re.search("localhost|gpt-", code)]
    assert len(cells) >= 6
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in cells])
    nbformat.write(book, str(clone / "readme.ipynb"))
    shell(clone, *enter, "jupyter execute --timeout=300 readme.ipynb")
