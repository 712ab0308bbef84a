"""The package its-hub, in an environment of its own: tot_lab does not depend on it."""

import subprocess
import sys


def python_with_its_hub(folder):
    """Install its-hub without what only its servers need, and return the interpreter."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin/python"
    pip = [python, "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "numpy", "typing-extensions"], check=True)
    subprocess.run([*pip, "--no-deps", "its-hub==1.2.0"], check=True)
    return python
