"""Inspect runs our strategies, gives its tasks, and reads our logs: `support/with_inspect.py`.

Its environment is large (700 MB), so these tests run at night.
"""

import ast
import json
import os
import re
import subprocess
import sys

import pytest
from support import ROOT, TESTS
from support.providers import Providers, Said
from support.venvs import python_with

FILE = TESTS / "support" / "with_inspect.py"
NAMES = [
    node.name
    for node in ast.parse(FILE.read_text()).body
    if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
]
GUIDE = ROOT / "docs" / "how-to" / "inspect.md"


def python():
    others = ("inspect_ai>=0.3.285,<0.4", "pyarrow>=17,<30", "pytest>=8,<10", "trio>=0.27,<1")
    return python_with(*others, tot_lab="inspect")


@pytest.mark.parametrize("name", NAMES)
def test_with_inspect(name, tmp_path):
    command = [python(), "-m", "pytest", "--noconftest", "-q", "-p", "no:cacheprovider", "-W", "ignore"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "INSPECT_TRACE_FILE": str(tmp_path / "trace.log")}
    done = subprocess.run(
        [*command, f"{FILE}::{name}"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-10_000:]


RUN = """
import ast, asyncio, inspect, json, sys
names = {}
for code in json.loads(sys.stdin.read()):
    done = eval(compile(code, "<page>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    if inspect.iscoroutine(done):
        asyncio.run(done)
assert names["log"].status == "success", names["log"].error
assert names["log"].results.scores[0].metrics["accuracy"].value == 0.5
assert names["sweep"].df()["score"].tolist() == [1.0, 0.0, 1.0, 0.0]
"""


def test_the_guide_runs_as_it_stands(tmp_path):
    """With a server of this machine, which always answers 42, at the address of the provider."""
    newer = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", tmp_path / "newer"]
    subprocess.run([*newer, "openai>=3.4,<4"], check=True)  # as the guide says
    code = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    with Providers(lambda asked: Said(("Answer: 42",) * asked.n)) as server:
        address = {"OPENAI_BASE_URL": server.base("openai"), "OPENAI_API_KEY": "none"}
        environment = {**os.environ, "TOT_LAB_CACHE": str(tmp_path), **address}
        environment["PYTHONPATH"] = f"{tmp_path / 'newer'}{os.pathsep}{ROOT}"
        done = subprocess.run(
            [python(), "-c", RUN],
            input=json.dumps(code),
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-10_000:]
    assert done.stdout.rstrip().endswith("2 42 1.0")
