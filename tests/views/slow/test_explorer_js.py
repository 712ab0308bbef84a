"""The browser's part: its own tests, its types, and that the bundle is what its sources make."""

import gzip
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import tot_lab as tl

EXPLORER = Path(tl.__file__).parent / "views" / "explorer"
JS = EXPLORER / "js"
MOST = 72 * 1024  # bytes, compressed

if lacking := [tool for tool in ("node", "npm") if shutil.which(tool) is None]:
    missing = f"needs {' and '.join(lacking)} on the PATH"
    if os.environ.get("CI") == "true":
        raise RuntimeError(f"{missing}: here no test of the explorer may be skipped")
    pytestmark = pytest.mark.skip(reason=missing)


def done(*command, timeout=200):
    """Run a command among the sources; what it printed."""
    result = subprocess.run(
        command, cwd=JS, capture_output=True, text=True, check=False, timeout=timeout, encoding="utf-8"
    )
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout}\n{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def tools():
    """The tools that package-lock.json names; `make test` fetches them."""
    if not (JS / "node_modules" / ".package-lock.json").exists():
        (pytest.fail if os.environ.get("CI") else pytest.skip)("needs: npm ci in tot_lab/views/explorer/js")


def test_units():
    told = done("node", "--test", "--test-reporter=tap", "test/")
    assert "# fail 0" in told
    assert "# pass 0" not in told


def test_types(tools):
    done("npm", "run", "check")


def test_bundle_is_what_its_sources_make(tools):
    assert "bytes" in done("npm", "run", "build", "--", "--check")


def test_bundle_is_small():
    assert len(gzip.compress((EXPLORER / "static" / "explorer.js").read_bytes())) <= MOST
