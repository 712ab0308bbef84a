"""The names of `tl`: few, lazy, in namespaces, and written in the stubs that type checkers read.

`python tests/contract/test_names.py` writes the stubs anew.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tot_lab as tl
from tot_lab.core.attach import imported
from tot_lab.core.namespaces import names_added
from tot_lab.core.registry import AXES, BUILT_IN

ROOT = Path(__file__).parents[2]
STUB = ROOT / "tot_lab/__init__.pyi"
TOOLS = ROOT / "tot_lab/tools/__init__.pyi"


def stub() -> str:
    """The stub: the names of `tl` under their own names, those of a namespace in a class."""
    top = {name: place.split(":") for name, place in tl._NAMES.items()}
    lines = []
    for name, (module, *_) in top.items():
        parent, _, last = module.rpartition(".")
        source = (module, name) if place_is_name(name) else (parent, last)
        lines.append(f"from {source[0]} import {source[1]} as {name}")
    bodies = []
    for namespace in tl._NAMESPACES:
        places = namespace.places()
        lines += [f"from {place.split(':')[0]} import {name} as _{name}" for name, place in places.items()]
        held = [f"    {written(name, imported(places[name]))}" for name in sorted(places)]
        bodies.append("\n".join([f"class {namespace.__name__}:", f'    """{namespace.__doc__}"""\n', *held]))
    text = [
        '"""The names of `tl`; `python tests/contract/test_names.py` writes this file."""\n',
        "from typing import Any, TypeAlias\n",
        "from tot_lab._version import __version__ as __version__",
        *lines,
        "",
        *bodies,
        "__all__: list[str]",
        "def path_of(name: str, value: object = None) -> str | None: ...",
        "def load_ipython_extension(shell: Any) -> None: ...",
    ]
    return formatted(text, STUB)


def stub_of_tools() -> str:
    """The stub of `tl.tools`, to which names of other rooms are added."""
    tree = ast.parse(TOOLS.with_suffix(".py").read_text())
    own = {
        alias.name: node.module
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    added = {name: place.partition(":")[0] for name, place in names_added("tot_lab.tools").items()}
    text = [
        '"""The names of `tl.tools`; `python tests/contract/test_names.py` writes this file."""\n',
        *(f"from {(own | added)[name]} import {name} as {name}" for name in tl.tools.__all__),
        "",
        "__all__: list[str]",
    ]
    return formatted(text, TOOLS)


def formatted(text: list[str], path: Path) -> str:
    ruff = [sys.executable, "-m", "ruff"]
    name = ["--stdin-filename", str(path), "-"]
    ordered = subprocess.run(
        [*ruff, "check", "--fix", "--quiet", "--exit-zero", *name],
        input="\n".join(text),
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    ).stdout
    done = subprocess.run(
        [*ruff, "format", *name], input=ordered, capture_output=True, text=True, cwd=ROOT, check=True
    )
    return done.stdout


def written(name: str, value: object) -> str:
    """An alias of a class is one of a type, too."""
    return f"{name}: TypeAlias = _{name}" if isinstance(value, type) else f"{name} = _{name}"


def place_is_name(name: str) -> bool:
    return ":" in tl._NAMES[name]


def test_tl_has_few_names():
    assert len(tl.__all__) <= 101
    assert dir(tl) == tl.__all__
    groups = {*AXES, "methods", "tools", "domains", "stats", "sim", "presets"}
    assert groups <= set(dir(tl))


def test_every_name_is_there():
    for name in tl.__all__:
        assert getattr(tl, name) is not None
    for namespace in tl._NAMESPACES:
        assert namespace.__doc__
        for name in dir(namespace):
            assert getattr(namespace, name) is not None


def test_a_name_stands_in_one_namespace():
    held = [
        *(name for namespace in tl._NAMESPACES for name in namespace.places()),
        *tl.domains.__all__,
        *(name for name in tl.tools.__all__ if name not in tl.domains.__all__),
    ]
    assert len(held) == len(set(held))


@pytest.mark.parametrize("group", [*AXES, "figures"])
def test_a_namespace_lists_its_group_of_the_registry(group):
    for place in BUILT_IN[group].values():
        assert place.partition(":")[2] in dir(getattr(tl, group))


def test_an_unknown_name_says_where_it_is():
    with pytest.raises(AttributeError, match=r"no attribute 'SimGame24'; it is tl\.sim\.SimGame24$"):
        tl.SimGame24  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'word_sums'; it is tl\.domains\.word_sums$"):
        tl.word_sums  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'no_such_name'$"):
        tl.no_such_name  # noqa: B018
    with pytest.raises(AttributeError, match=r"tl\.stats has no 'no_such_name'"):
        tl.stats.no_such_name  # noqa: B018


@pytest.mark.parametrize(
    ("namespace", "name", "near"),
    [
        ("searches", "Rebase", "REBASE"),
        ("searches", "A_star", "AStar"),
        ("searches", "ParticleFiltering", "ParticleFilter"),
        ("evaluators", "reward_model", "RewardModel"),
        ("figures", "scaling", "plot_scaling"),
    ],
)
def test_an_unknown_name_of_a_namespace_suggests_the_nearest(namespace, name, near):
    with pytest.raises(AttributeError, match=f"tl.{namespace} has no {name!r}; did you mean {near!r}[?]"):
        getattr(getattr(tl, namespace), name)


def test_an_unknown_name_of_a_namespace_may_have_no_near_one():
    with pytest.raises(AttributeError, match=r"tl.searches has no 'zzz'; dir\(tl.searches\) lists its names"):
        _ = tl.searches.zzz


def test_the_path_of_a_class():
    assert tl.path_of("BeamSearch", tl.BeamSearch) == "tl.BeamSearch"
    assert tl.path_of("SimGame24", tl.sim.SimGame24) == "tl.sim.SimGame24"
    assert tl.path_of("SimGame24", tl.BeamSearch) is None


@pytest.mark.slow
def test_a_further_name_of_a_kind_is_read_before_anything_is_imported():
    code = "import tot_lab as tl; print(tl.part_of({'kind': 'beam'}) == tl.BeamSearch())"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "True"


@pytest.mark.slow
def test_import_loads_no_strategy():
    code = "import sys, tot_lab; print([m for m in sys.modules if m.startswith('tot_lab.strategies')])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "[]"


def test_the_stubs_are_up_to_date():
    assert STUB.read_text() == stub(), "run: python tests/contract/test_names.py"
    assert TOOLS.read_text() == stub_of_tools(), "run: python tests/contract/test_names.py"


@pytest.mark.slow
def test_a_namespace_can_be_imported_and_loads_only_what_is_used():
    code = """
import sys
import tot_lab.searches, tot_lab.figures
import tot_lab as tl
print(hasattr(tot_lab.figures, "__file__"))
print([name for name in sys.modules if name.startswith(("tot_lab.strategies", "tot_lab.views.figures."))])
from tot_lab.evaluators import Value
from tot_lab.presets import game24
from tot_lab.stats import *
import tot_lab.sim as sim
print(Value is tl.Value, game24 is tl.presets.game24, pass_at_k is tl.stats.pass_at_k, sim is tl.sim)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.splitlines() == ["False", "[]", "True True True True"]


def test_every_namespace_can_be_imported():
    groups = [name for name in tl.__all__ if not place_is_known(name)]
    assert len(groups) > 15
    for group in groups:
        name = next(name for name in dir(getattr(tl, group)) if not name.startswith("_"))
        names = {}
        exec(f"from tot_lab.{group} import {name}", names)
        assert names[name] is getattr(getattr(tl, group), name)
        with pytest.raises(ImportError, match="cannot import name 'no_such'"):
            exec(f"from tot_lab.{group} import no_such", names)


def place_is_known(name: str) -> bool:
    return name == "__version__" or (name in tl._NAMES and place_is_name(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["DeepThinkTool", "deep_think", "document_tools", "multi_hop_tools"])
def test_tools_of_other_rooms_are_imported_at_their_first_use(name):
    code = f"""
import sys
from tot_lab import tools
print({name!r} in tools.__all__, "tot_lab.lab.lab" in sys.modules, "tot_lab.domains" in sys.modules)
from tot_lab.tools import {name}
print({name} is getattr(tools, {name!r}))
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.split() == ["True", "False", "False", "True"]


if __name__ == "__main__":
    STUB.write_text(stub())
    TOOLS.write_text(stub_of_tools())
