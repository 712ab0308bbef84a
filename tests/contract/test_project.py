"""The project keeps its own rules: layers, exports, dependencies, imports, the README's commands."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from support import AXES, ROOT, STRATEGIES, for_each

import tot_lab as tl
from tot_lab.core.attach import Attached
from tot_lab.core.parameters import field_docs
from tot_lab.core.registry import built_in
from tot_lab.lab.sweeps.sweep_methods import SweepMethods
from tot_lab.record.run_methods import RunMethods

PACKAGE = ROOT / "tot_lab"
FILES = sorted(path for path in PACKAGE.rglob("*.py") if not {"examples", "node_modules"} & {*path.parts})

# From the top down; a file may import from its own room and from those below. Rooms on one line do not
# import each other, but that a simulated player (`domains`) is made of the base of simulated models.
ROOMS = [
    ["__init__", "__main__", "testing"],
    ["apps"],
    ["interop"],
    ["views"],
    ["analysis"],
    ["lab"],
    ["runtime"],
    ["models", "tools", "record", "strategies", "domains"],
    ["core"],
    ["_version"],
]
HEIGHT = {room: -number for number, rooms in enumerate(ROOMS) for room in rooms}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def module_of(path: Path) -> list[str]:
    parts = ["tot_lab", *path.relative_to(PACKAGE).with_suffix("").parts]
    return parts[:-1] if parts[-1] == "__init__" else parts


MODULES = {".".join(module_of(path)): path for path in FILES}


@cache
def imports_of(path: Path) -> list[tuple[str, int]]:
    """Modules of tot_lab that a file imports anywhere, also inside functions and for type checkers."""
    found = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                here = ["tot_lab", *path.relative_to(PACKAGE).parts]
                base = ".".join([*here[: len(here) - node.level], *filter(None, [node.module])])
            names = [f"{base}.{alias.name}" for alias in node.names]
            found += [(name if name in MODULES else base, node.lineno) for name in names]
    return [(name, line) for name, line in found if name in MODULES and name != "tot_lab"]


def room_of(module: str) -> str:
    return [*module.split("."), "__init__"][1]


def test_imports_point_down():
    wrong = []
    for module, path in MODULES.items():
        own = room_of(module)
        for name, line in imports_of(path):
            room = room_of(name)
            player = own == "domains" and name == "tot_lab.models.simulated"
            if room != own and HEIGHT[room] >= HEIGHT[own] and not player:
                wrong.append(f"{path}:{line}: {own} must not import {name}")
    assert not wrong


def run_by(name: str, module: str) -> set[str]:
    """The files that an import of `name` in `module` runs: it, and the packages that it is in."""
    parts = name.split(".")
    ways = {".".join(parts[:length]) for length in range(2, len(parts) + 1)}
    return {way for way in ways if not f"{module}.".startswith(f"{way}.")}


def test_no_files_import_each_other():
    below = {
        module: {one for name, _ in imports_of(path) for one in run_by(name, module)}
        for module, path in MODULES.items()
    }
    while leaves := [module for module, names in below.items() if not names]:
        for leaf in leaves:
            del below[leaf]
        for names in below.values():
            names.difference_update(leaves)
    assert not below, "these import each other, or what does"


def test_the_root_holds_its_rooms():
    assert {path.stem for path in PACKAGE.glob("*.py")} == {"__init__", "__main__", "_version"}
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert rooms <= set(HEIGHT)
    assert len(rooms - {"testing"}) <= 12


def test_only_one_file_imports_by_name():
    """All else is seen by the tests above; names of other people's packages are no matter."""
    named = [path.name for path in FILES if re.search(r"import_module\((?!\")", path.read_text())]
    assert sorted(named) == ["attach.py"]


@pytest.mark.parametrize("owner", [RunMethods, SweepMethods])
def test_the_stub_says_what_is_attached(owner):
    """Type checkers and editors read the stub; what a call meets is the function of the other room."""
    (stub,) = ast.parse(Path(inspect.getfile(owner)).with_suffix(".pyi").read_text()).body[-1:]
    declared = {node.name: node for node in stub.body}
    attached = {name: one for name, one in vars(owner).items() if isinstance(one, Attached)}
    assert attached.keys() - {"__repr__"} == declared.keys()
    for name, node in declared.items():
        function = getattr(owner, name)
        given = [arg.arg for arg in (*node.args.args, *node.args.kwonlyargs)]
        assert given[1:] == [
            known.name
            for known in list(inspect.signature(function).parameters.values())[1:]
            if known.kind is not known.VAR_KEYWORD
        ], name
        assert isinstance(node, ast.AsyncFunctionDef) == inspect.iscoroutinefunction(function), name
        is_property = any(getattr(one, "id", "") == "property" for one in node.decorator_list)
        assert is_property == attached[name].is_property, name


def test_a_file_opens_with_its_rule():
    for_each(FILES, opens_with_its_rule)


def opens_with_its_rule(path):
    assert len(ast.get_docstring(parsed(path)) or "") > 20


PURE = [p for p in FILES if p.relative_to(PACKAGE).parts[0] in ("core", "strategies", "domains")]
# Several rooms need what writes files, starts processes or knows the environment's keys; players draw seeded
# numbers.
SHARED = ("files.py", "keeper.py", "processes.py", "scrubbing.py")
PURE = [p for p in PURE if p.name not in SHARED and not p.stem.endswith("player")]
OUTSIDE = {"time", "random", "asyncio", "os", "socket", "datetime", "secrets", "threading", "subprocess"}


def test_ideas_are_pure():
    for_each(PURE, is_pure)


def is_pure(path):
    tree = parsed(path)
    typing = [n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    only_types = {
        id(node) for block in typing for node in block.body
    }  # such as the random numbers it is given
    for node in ast.walk(tree):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names = [] if id(node) in only_types else names
        assert not {name.split(".")[0] for name in names} & OUTSIDE, f"{path}:{node.lineno}"


def test_no_yield_from_is_forgotten():
    """`ask(...)` and its kin do nothing unless a `yield from` drives them."""
    words = {
        "ask",
        "ask_json",
        "gather",
        "with_budget",
        "with_timeout",
        "think",
        "map_steps",
        "resample",
        "intercept",
        "emit",
    }
    for path in PURE:
        tree = parsed(path)
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
        "tot_lab.strategies.search",
        "tot_lab.domains",
        "tot_lab.models",
        "tot_lab.tools",
        "tot_lab.views.figures",
    ],
)
@pytest.mark.slow
def test_all_is_what_there_is(module):
    loaded = importlib.import_module(module)
    assert len(set(loaded.__all__)) == len(loaded.__all__)
    for name in loaded.__all__:
        assert getattr(loaded, name) is not None
        if inspect.isclass(getattr(loaded, name)) or inspect.isfunction(getattr(loaded, name)):
            assert inspect.getdoc(getattr(loaded, name)), f"{name} has no docstring"
    with pytest.raises(AttributeError, match="no_such_name"):
        loaded.no_such_name  # noqa: B018


@pytest.mark.slow
def test_every_setting_is_documented():
    parts = [*STRATEGIES, *AXES, *built_in("domains").values(), *built_in("models").values()]
    for part in filter(inspect.isclass, parts):
        missing = set(part.model_fields) - set(field_docs(part))
        assert not missing, f"{part.__name__} does not document {missing}"


def test_every_strategy_says_what_it_is_for_and_what_it_costs():
    for strategy in STRATEGIES:
        text = " ".join((strategy.__doc__ or "").split())
        for word in ("Best for", "Trade-off: ", "Calls: "):
            assert word in text, f"{strategy.__name__} does not say {word!r}"


@pytest.mark.slow
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
        "IPython",
        "tqdm",
        "ipywidgets",
        "anywidget",
        # and what takes half of the time until the first name is used
        "pydantic",
        "msgspec",
        "asyncio",
        "importlib.metadata",
        "ssl",
        "json",
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
    """Its extra holds what README, notebooks and tests need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = re.findall(r"^ +- (.*[^:\n])$", (ROOT / "environment.yml").read_text(), re.MULTILINE)
    assert {f"python{project['requires-python']}", "pip", "-e .[dev]"} < {*listed}
    extras = project["optional-dependencies"]
    assert {*extras["notebook"]} <= {*extras["dev"]}
    named = {Requirement(one).name for one in extras["dev"]}
    assert {"pytest", "nbval", "pytest-xdist", "ruff", "mypy"} <= named
    assert "environment.yml" in (ROOT / "README.md").read_text()


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
