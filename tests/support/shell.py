"""The command line, in this process or in one of its own."""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

from support import ROOT
from tot_lab.apps.cli import main

ENV = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}


def tot_lab(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the command in this process, which has imported the package already."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(list(words))
        except SystemExit as ended:
            code = ended.code
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def shell(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the command as a shell does: in a process of its own."""
    command = [sys.executable, "-m", "tot_lab", *words]
    return subprocess.run(
        command, cwd=folder, env=ENV, capture_output=True, text=True, timeout=120, check=False
    )
