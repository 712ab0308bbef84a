"""Environments of other packages, for tests against the real counterpart.

Each environment is made once per machine, in up to a minute, and kept in `~/.cache/tot_lab-tests`.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from support import ROOT

FOLDER = Path(os.environ.get("TOT_LAB_TEST_VENVS", Path.home() / ".cache" / "tot_lab-tests"))


@cache
def python_with(*requirements: str, tot_lab: str | None = None) -> Path:
    """Return the Python of an environment that holds `requirements`.

    Args:
        requirements: As for pip, with ranges of versions: `"mcp>=2.3,<3"`.
        tot_lab: Extras of tot_lab, such as `"inspect"`, or `""` for none. `None` leaves tot_lab out.
    """
    wanted = [*requirements, *([] if tot_lab is None else [f"{ROOT}[{tot_lab}]" if tot_lab else str(ROOT)])]
    project = "" if tot_lab is None else (ROOT / "pyproject.toml").read_text()
    digest = hashlib.sha256("\n".join([sys.version, *wanted, project]).encode()).hexdigest()[:12]
    place = FOLDER / digest
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f"{digest}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "complete").exists():
            shutil.rmtree(place, ignore_errors=True)
            uv = shutil.which("uv")
            without_pip = ["--without-pip"] if uv else []  # which takes most of the time
            subprocess.run([sys.executable, "-m", "venv", *without_pip, place], check=True)
            install = (
                [uv, "pip", "install", "--quiet", "--python", place / "bin" / "python"]
                if uv
                else [place / "bin" / "python", "-m", "pip", "install", "--quiet"]
            )
            options = ["--editable", *wanted[-1:]] if tot_lab is not None else []
            subprocess.run([*install, *requirements, *options], check=True, timeout=600)
            (place / "complete").touch()
    return place / "bin" / "python"
