"""The command line in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

from support import ROOT

ENV = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}


def tot_lab(*words: str, folder: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "tot_lab", *words]
    return subprocess.run(
        command, cwd=folder, env=ENV, capture_output=True, text=True, timeout=120, check=False
    )
