"""The project keeps its own rules: layers, exports, dependencies, imports, the README's commands."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import tot_lab as tl

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "tot_lab"
FILES = sorted(path for path in PACKAGE.rglob("*.py") if "examples" not in path.parts)

# From the bottom up; a file may import from its own layer and from those before it.
LAYERS = [
    ["version", "core", "files", "scrubbing"],
    ["strategies", "domains", "presets"],
    ["tools"],
    ["models"],
    [
        "budget",
        "journal",
        "recorder",
        "edits",
        "marks",
        "driver",
        "plan_store",
        "grading",
        "run",
        "losses",
        "turns",
        "published",
    ],
    ["frames"],
    ["lab", "lessons", "branching", "session", "sharing", "sweeps", "settings", "context", "deep_thinking"],
    ["analysis"],
    ["figures", "markdown", "deep_report", "report", "progress"],
    ["explorer"],
    ["testing", "cli", "magics", "__init__", "__main__"],
]
NEVER = {
    "strategies": ["models", "domains", "tools"],
    "domains": ["strategies", "tools"],
    "figures": ["strategies", "models", "lab"],
    "frames": ["strategies", "models", "lab"],
    "report": ["strategies", "models", "lab"],
}


def layer_of(name: str) -> int:
    return next(k for k, names in enumerate(LAYERS) if name in names)


def top_imports(path: Path) -> list[tuple[str, int]]:
    """Parts of tot_lab that a file imports when it is imported."""
    found = []
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tot_lab"):
            names = node.module.split(".")[1:2] or [alias.name for alias in node.names]
            found += [(name, node.lineno) for name in names]
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path):
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    for name, line in top_imports(path):
        assert layer_of(name) <= layer_of(own), f"{path}:{line} imports {name} from above"
        assert name not in NEVER.get(own, []), f"{path}:{line}: {own} must not import {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_opens_with_its_rule(path):
    assert len(ast.get_docstring(ast.parse(path.read_text())) or "") > 20


PURE = [p for p in FILES if p.relative_to(PACKAGE).parts[0] in ("core", "strategies", "domains")]
OUTSIDE = {"time", "random", "asyncio", "os", "socket", "datetime", "secrets", "threading", "subprocess"}


@pytest.mark.parametrize("path", PURE, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_ideas_are_pure(path):
    for node in ast.walk(ast.parse(path.read_text())):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not {name.split(".")[0] for name in names} & OUTSIDE, f"{path}:{node.lineno}"


def test_no_yield_from_is_forgotten():
    """`ask(...)` and its kin do nothing unless a `yield from` drives them."""
    words = {"ask", "ask_json", "every", "within", "timed", "think", "editing", "attempt", "along", "happen"}
    for path in PURE:
        tree = ast.parse(path.read_text())
        statements = [n for n in ast.walk(tree) if isinstance(n, ast.Expr | ast.Assign)]
        for node in statements:
            value = node.value
            if isinstance(value, ast.Call):
                name = getattr(value.func, "attr", getattr(value.func, "id", ""))
                assert name not in words, f"{path}:{node.lineno}: {name}(...) without `yield from`"


@pytest.mark.parametrize(
    "module",
    [
        "tot_lab",
        "tot_lab.strategies",
        "tot_lab.domains",
        "tot_lab.models",
        "tot_lab.tools",
        "tot_lab.views.figures",
    ],
)
def test_all_is_what_there_is(module):
    loaded = importlib.import_module(module)
    assert len(set(loaded.__all__)) == len(loaded.__all__)
    for name in loaded.__all__:
        assert getattr(loaded, name) is not None
        if inspect.isclass(getattr(loaded, name)) or inspect.isfunction(getattr(loaded, name)):
            assert inspect.getdoc(getattr(loaded, name)), f"{name} has no docstring"
    with pytest.raises(AttributeError, match="no_such_name"):
        loaded.no_such_name  # noqa: B018


def test_every_setting_is_documented():
    for strategy in importlib.import_module("tot_lab.strategies").STRATEGIES:
        text = " ".join(
            inspect.getdoc(base) or "" for base in strategy.__mro__ if base.__module__.startswith("tot_lab")
        )
        for name, field in strategy.model_fields.items():
            documented = field.description or re.search(rf"\b{name}\b", text)
            assert documented, f"{strategy.__name__}.{name} is not documented"
    for value in importlib.import_module("tot_lab.strategies").AXES:
        for name, field in value.model_fields.items():
            assert field.description, f"{value.__name__}.{name} is not documented"


def test_every_strategy_says_what_it_is_for_and_what_it_costs():
    for strategy in importlib.import_module("tot_lab.strategies").STRATEGIES:
        text = " ".join((strategy.__doc__ or "").split())
        for word in ("Best for", "Trade-off: ", "Calls: "):
            assert word in text, f"{strategy.__name__} does not say {word!r}"


def test_import_is_light():
    heavy = (
        "pandas",
        "scipy",
        "statsmodels",
        "plotly",
        "networkx",
        "numpy",
        "litellm",
        "httpx",
        "bs4",
        "markdown_it",
        "distributed",
        "redis",
        "IPython",
        "tqdm",
        "ipywidgets",
        "anywidget",
    )
    code = f"import sys, tot_lab; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "[]"


def test_the_lock_of_litellm_is_in_the_range_and_holds_hashes():
    lock = (ROOT / "litellm.lock").read_text()
    (version,) = re.findall(r"^litellm==(\S+)", lock, re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (wanted,) = [dependency for dependency in project["dependencies"] if dependency.startswith("litellm")]
    allowed = Requirement(wanted).specifier
    assert version in allowed
    assert not any(bad in allowed for bad in ("1.82.7", "1.82.8", "1.106.0", "1.106.2", "1.107.0"))
    assert len(re.findall(r"--hash=sha256:[0-9a-f]{64}", lock)) >= 2


def test_environment_yml_is_pyproject():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["notebook"]]
    listed = re.findall(r"^  - ([a-z].*[^:])$", (ROOT / "environment.yml").read_text(), re.MULTILINE)
    assert f"python{project['requires-python']}" in listed
    assert sorted(wanted) == sorted(
        set(listed) - {"conda-forge", "pip", f"python{project['requires-python']}"}
    )


def test_readme_says_what_runs():
    readme = (ROOT / "README.md").read_text()
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = set(re.findall(r"(?:^|`)make (\w+)", readme, re.MULTILINE))
    assert {"demo", "test"} <= named <= set(targets)
    assert "make test" in (ROOT / ".ci" / "run").read_text()
    for path in re.findall(r"\]\((?!http)([^)#]+)\)", readme):
        assert (ROOT / path).exists(), f"the README links {path}"


def test_version_is_one():
    assert re.fullmatch(r"\d+\.\d+\.\d+", tl.__version__)
    assert f"## {tl.__version__}" in (ROOT / "CHANGELOG.md").read_text()
