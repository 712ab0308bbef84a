"""What an installed package brings: found by name, imported when it is asked for, and harmless when broken.

The package in `acme-lab/` is really built and installed by pip, without a network; how packages go wrong is
shown with metadata written by hand."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import textwrap

import pytest
from playwright.sync_api import expect
from support import ROOT, TESTS
from support.browser import soon

import tot_lab as tl
from tot_lab.apps.cli.help import describe_names
from tot_lab.core import registry
from tot_lab.core.parts import REGISTRY, class_of

PACKAGE = TESTS / "acme-lab"
"""A package with one component of each group, a file each."""

PARTS = ["acme_twice", "acme_two", "acme_length", "acme_greedy", "acme_last"]
AXES = ["propose=acme_two", "evaluate=acme_length", "search=acme_greedy", "answer=acme_last"]
CLIMB = ["--task", "acme_climb", "20", "start=5", "--model", "sim/acme_climb"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder that pip has installed the package into."""
    source, target = tmp_path_factory.mktemp("source") / "acme-lab", tmp_path_factory.mktemp("installed")
    shutil.copytree(PACKAGE, source)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-build-isolation"]
    command += ["--no-deps", "--target", str(target), str(source)]
    made = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if "No module named pip" in made.stderr:
        pytest.skip("needs pip")
    assert made.returncode == 0, made.stderr
    return target


def python(installed, code, cwd, *arguments):
    """What a fresh process that has the package prints."""
    environ = {**os.environ, "PYTHONPATH": f"{installed}{os.pathsep}{ROOT}"}
    words = [sys.executable, *(arguments or ("-c", textwrap.dedent(code)))]
    made = subprocess.run(
        words, capture_output=True, text=True, timeout=120, env=environ, cwd=cwd, check=False
    )
    assert made.returncode == 0, made.stderr + made.stdout
    return made.stdout


def tot_lab(installed, cwd, *commands):
    """What the command line prints for each of the commands, which one process carries out."""
    code = f"""
        from tot_lab.apps.cli import main
        for words in {commands!r}:
            try:
                code = main(words)
            except SystemExit as ended:
                code = ended.code
            assert code == 0, (words, code)
            print(chr(0))
        """
    return python(installed, code, cwd).split("\0")[:-1]


@pytest.mark.nightly
def test_the_package_has_one_file_for_each_group_of_the_registry(installed, tmp_path):
    code = """
        from tot_lab.core.registry import GROUPS, find, offered
        for group in GROUPS:
            for name, (entry,) in offered(group).items():
                assert find(name, group).value is not None
                print(group, entry.module)
        """
    files = {tuple(line.split()) for line in python(installed, code, tmp_path).splitlines()}
    assert files == {
        ("strategies", "acme_lab.strategy"),
        ("proposers", "acme_lab.proposer"),
        ("evaluators", "acme_lab.evaluator"),
        ("searches", "acme_lab.search"),
        ("answers", "acme_lab.answer"),
        ("domains", "acme_lab.domain"),
        ("models", "acme_lab.domain"),  # the domain's simulated player
        ("models", "acme_lab.model"),
        ("tools", "acme_lab.tool"),
        ("figures", "acme_lab.figure"),
        ("importers", "acme_lab.importer"),
        ("formats", "acme_lab.task_format"),
    }


@pytest.mark.nightly
def test_a_strategy_of_a_package_runs_by_name_from_a_file_and_in_a_sweep(installed, tmp_path):
    out = python(
        installed,
        """
        import asyncio, json, sys
        import tot_lab as tl
        assert "acme_lab" not in sys.modules, "imported because it was there"
        inner = '{"kind": "acme_twice", "samples": 3}'
        strategy = tl.part_of(json.loads('{"kind": "best_of", "strategy": %s, "attempts": 2}' % inner))
        assert strategy.strategy.samples == 3 and "acme_lab" in sys.modules
        task = tl.Task(domain={"kind": "acme_climb"}, question="20")
        tools = ["acme_reverse", "search_of_acme", "acme_legs", "calculator"]
        lab = tl.Lab("sim/acme_climb", tools=tools)
        assert list(lab.gateway.toolbox.tools) == ["reverse", "search-of-acme", "legs", "calculator"]
        run = asyncio.run(lab.run(strategy.strategy, task))
        assert (run.correct, run.usage.calls) == (True, 3)
        assert run.answer == "double, double, add 1, double, double"
        sweep = asyncio.run(lab.sweep([tl.part_of({"kind": "acme-again"}), tl.OneAnswer()], [task], name="s"))
        print(run.path, sweep.df()["strategy"].tolist(), sweep.df()["correct"].all())
        """,
        tmp_path,
    )
    path, rest = out.split(" ", 1)
    assert rest.strip() == "['acme_twice', 'one_answer'] True"
    shown = python(
        installed,
        f"""
        import asyncio, sys
        import tot_lab as tl
        run = tl.load({path!r})
        assert "acme_lab" not in sys.modules, "imported by looking at a file"
        assert asyncio.run(run.replay()).identical
        print(type(run.strategy).__module__, run.correct)
        """,
        tmp_path,
    )
    assert shown.split() == ["acme_lab.strategy", "True"]


@pytest.mark.nightly
def test_the_command_line_takes_the_components_of_a_package(installed, tmp_path):
    tasks = ["--tasks", "acme_climb", "count=3", "--model", "sim/acme_climb"]
    made, swept, answered, described = tot_lab(
        installed,
        tmp_path,
        ["run", "acme_twice", "samples=3", *CLIMB],
        ["sweep", "acme-again", "samples=1,2", "one_answer", *tasks],
        ["run", "one_answer", "--task", "general", "Hi", "--model", "acme/parrot"],
        ["run", "--help"],
    )
    assert "double, double" in made
    assert "samples=1" in swept
    assert "100.0%" in swept
    assert "Hi" in answered
    words = " ".join(described.split())
    assert "from installed packages: acme-again, acme/parrot, acme:, acme_chat, acme_climb" in words


def test_a_shell_takes_the_components_of_a_package(installed, tmp_path):
    out = python(installed, "", tmp_path, "-m", "tot_lab", "run", "acme_twice", "samples=3", *CLIMB)
    assert "double, double" in out


def test_the_command_line_takes_the_tools_of_a_package(installed, tmp_path):
    words = ["run", "tool_loop", "--task", "acme_climb", "3", "--model", "acme/parrot", "--out", "a.jsonl"]
    words += [
        "--tools",
        "acme_tools,acme_legs",
        "--allow",
        "search-of-acme,legs",
    ]  # functions declare nothing
    tot_lab(installed, tmp_path, words)
    assert list(tl.load(tmp_path / "a.jsonl").header.tools) == ["reverse", "search-of-acme", "legs"]


@pytest.mark.nightly
def test_the_axes_the_domain_and_its_player_may_come_from_a_package(installed, tmp_path):
    tot_lab(
        installed,
        tmp_path,
        ["run", "tree_of_thoughts", *AXES, *CLIMB, "--out", "a.jsonl"],
        ["show", "a.jsonl", "--no-open", "--out", "b.html"],
    )
    made = python(
        installed,
        """
        import asyncio, sys
        import tot_lab as tl
        run = tl.load("a.jsonl")
        assert "acme_lab" not in sys.modules, "imported by looking at a file"
        assert run.plot("depths").data[0].type == "histogram"
        assert run.plot("tree").data
        settings = run.strategy
        print(settings.propose.kind, settings.search.kind, settings.answer.kind, run.task.domain.start)
        assert asyncio.run(run.replay()).identical
        run.save_html("a.html")
        last = [node for node in run.tree if node.text][-1]
        assert run.correct == (run.task.domain.reached(run.steps(last.id)) == 20)
        print(run.usage.calls, run.tree["0.0"].by, run.model)
        """,
        tmp_path,
    )
    assert made.split()[:4] == ["acme_two", "acme_greedy", "acme_last", "5"]
    assert made.split()[5:] == ["acme_length", "sim/acme_climb"]
    page = (tmp_path / "a.html").read_text()
    assert len(page) > 10_000
    assert "start" in page
    assert (tmp_path / "b.html").stat().st_size > 10_000


def test_a_built_in_search_solves_the_tasks_of_a_package(installed, tmp_path):
    words = ["tree_of_thoughts", "propose=propose", "evaluate=value", "stop.depth=6", *CLIMB]
    (out,) = tot_lab(installed, tmp_path, ["run", *words])
    assert "accepted a solution" in out


def test_a_model_of_a_package_takes_the_rest_of_its_name(installed, tmp_path):
    words = ["run", "one_answer", "--task", "general", "Count.", "--model", "acme:one", "--out", "a.jsonl"]
    (out,) = tot_lab(installed, tmp_path, words)
    assert "one 0" in out
    assert tl.load(tmp_path / "a.jsonl").header.model == {"kind": "acme_voice", "words": "one"}


def test_an_unknown_figure_is_told_of(installed, tmp_path):
    code = """
        import tot_lab as tl
        recorder = tl.Recorder("mine")
        recorder.thought("root")
        try:
            recorder.run.plot("depth")
        except ValueError as error:
            print(error)
        """
    assert "unknown figure 'depth'; did you mean 'depths'?" in python(installed, code, tmp_path)


def test_a_log_is_read_by_the_importer_of_a_package(installed, tmp_path):
    (tmp_path / "a.chat").write_text("ACME CHAT 1\nwhy\nbecause\n")
    code = (
        "import tot_lab as tl; run = tl.load('a.chat'); print(run.name, run.answer, len(run.tree), sep='|')"
    )
    assert python(installed, code, tmp_path).strip() == "acme chat|because|2"


@pytest.mark.nightly
def test_the_components_of_a_package_keep_the_contract(installed, tmp_path):
    code = f"""
        import tot_lab as tl
        from tot_lab.testing import check_domain, check_strategy
        check_strategy(tl.part_of({{"kind": "acme_twice"}}))
        axes = dict(axis.split("=") for axis in {AXES!r})
        check_strategy(tl.TreeOfThoughts(**axes))
        (task,) = tl.part_of({{"kind": "acme_climb"}}).example_tasks()(1)
        assert all(seen.shows_step for seen in check_domain(task, ["double", "add 1"])
                   if seen.path == "all steps")
        """
    python(installed, code, tmp_path)


@pytest.mark.nightly
def test_the_panel_offers_the_components_of_a_package(installed, tmp_path):
    code = """
        import asyncio
        import tot_lab as tl
        from tot_lab.views.explorer.forms import form_classes
        print([part.kind for part in form_classes() if part.kind.startswith("acme")])

        async def opened():
            panel = tl.panel(tl.Lab("sim/acme_climb", runs=None))
            print(panel.code.splitlines())
            panel.close()

        asyncio.run(opened())
        """
    parts, source = python(installed, code, tmp_path).splitlines()
    assert parts == str(PARTS)
    assert "from acme_lab.domain import Climb" in source
    assert 'tl.Task(domain=Climb(), question="3", id="3")' in source


# Packages that go wrong, by metadata alone.


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Installs modules: `add("name", "code", {"kind": "module:object"})`."""
    before = dict(REGISTRY)
    monkeypatch.syspath_prepend(str(tmp_path))

    def add(name, code, entries, group="strategies"):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(code))
        told = tmp_path / f"{name}-0.9.dist-info"
        told.mkdir()
        (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.9\n")
        lines = "\n".join(f"{kind} = {value}" for kind, value in entries.items())
        (told / "entry_points.txt").write_text(f"[tot_lab.{group}]\n{lines}\n")
        registry._offered.cache_clear()

    yield add
    registry._offered.cache_clear()
    own = {kind: part for kind, part in REGISTRY.items() if part.__module__.startswith("tot_lab.")}
    REGISTRY.clear()
    REGISTRY.update(before | own)  # a built-in part registers once, when its module is first imported
    for name in [name for name in sys.modules if name.startswith("plug_")]:
        del sys.modules[name]


GOOD = """
import tot_lab as tl

class Fine(tl.OneAnswer):
    kind = "plug_fine"
"""


def test_a_broken_package_is_named_and_harms_nobody_else(packages):
    packages("plug_broken", "import no_such_module", {"plug_bad": "plug_broken:Bad"})
    packages("plug_good", GOOD, {"plug_fine": "plug_good:Fine"})
    assert tl.part_of({"kind": "plug_fine"}).kind == "plug_fine"
    assert tl.part_of({"kind": "beam"}) == tl.BeamSearch()
    for _ in range(2):
        with pytest.raises(ValueError, match=r"'plug_bad' comes from plug_broken 0\.9 .*no_such_module"):
            tl.part_of({"kind": "plug_bad"})
    with pytest.raises(ValueError, match="plug_broken"):
        tl.BestOf(strategy={"kind": "plug_bad"})
    with pytest.raises(ValueError, match=r"unknown kind 'plug_ba'.*plug_bad, plug_fine"):
        tl.part_of({"kind": "plug_ba"})


def test_a_broken_package_breaks_neither_the_help_nor_the_panel(packages):
    packages("plug_broken", "import no_such_module", {"sim/plug_bad": "plug_broken:Bad"}, "models")
    packages("plug_worse", "import no_such_module", {"plug_bad": "plug_worse:Bad"}, "domains")
    assert "from installed packages: plug_bad, sim/plug_bad" in describe_names()

    async def opened():
        shown = tl.panel(tl.Lab("sim/game24", runs=None))
        shown._tasks.kind.value = "plug_bad"
        error = shown._tasks.error.value
        shown._tasks.kind.value = "game24"
        source = shown.code
        shown.close()
        return error, source

    error, source = asyncio.run(opened())
    assert "plug_worse 0.9" in error
    assert "tl.game24(" in source


@pytest.mark.parametrize(
    ("code", "value", "said"),
    [
        ("raise SystemError('boom')", "plug_it", "SystemError: boom"),
        ("", "plug_it:Missing", "AttributeError"),
        ("def (", "plug_it", "SyntaxError"),
        ("", "plug_it", "has no such part"),
        ("class Mine: kind = 'plug_kind'", "plug_it:Mine", "has no such part"),
        (GOOD, "plug_it:Fine", "has no such part: no class there has `kind = 'plug_kind'`"),
        (GOOD.replace("plug_fine", "beam"), "plug_it:Fine", "'beam' of plug_it.Fine is taken"),
    ],
)
def test_what_is_wrong_with_a_package_is_said(packages, code, value, said):
    packages("plug_it", code, {"plug_kind": value})
    with pytest.raises(ValueError, match=rf"'plug_kind'.*plug_it 0\.9[\s\S]*{said}"):
        class_of("plug_kind", tl.Strategy)


def test_two_packages_with_one_name_are_told_of(packages):
    packages("plug_one", GOOD, {"plug_fine": "plug_one:Fine"})
    packages("plug_two", GOOD, {"plug_fine": "plug_two:Fine"})
    with pytest.raises(ValueError, match=r"plug_\w+ 0\.9 .* and plug_\w+ 0\.9 .*Uninstall one"):
        tl.part_of({"kind": "plug_fine"})


def test_no_package_replaces_what_is_there(packages):
    packages("plug_thief", "open('stolen', 'w')", {"beam": "plug_thief:Beam", "sim/game24": "plug_thief"})
    assert tl.part_of({"kind": "beam"}) == tl.BeamSearch()
    assert tl.Lab("sim/game24", runs=None).model == tl.sim.SimGame24()
    assert "plug_thief" not in sys.modules


def test_a_package_whose_name_is_taken_hears_of_it(packages):
    packages("plug_late", GOOD, {"beam_search": "plug_late:Fine", "plug_fine": "plug_late:Fine"}, "searches")
    with pytest.warns(
        UserWarning, match=r"plug_late 0\.9 offers 'beam_search' in 'tot_lab\.searches'.* Rename"
    ):
        assert "plug_fine" in registry.names("searches")


def test_a_part_of_another_sort_is_no_strategy_and_no_model(packages):
    packages("plug_good", GOOD, {"plug_fine": "plug_good:Fine"}, "models")
    with pytest.raises(ValueError, match="'plug_fine' must name a model: got Fine"):
        tl.Lab("plug_fine")
    with pytest.raises(ValueError, match="unknown kind 'plug_fine'"):
        class_of("plug_fine", tl.searches.Search)


def test_what_is_no_tool_is_not_taken_for_one(packages):
    brought = {"plug_fine": "plug_good:Fine", "plug_text": "plug_good:__name__"}
    packages("plug_good", GOOD, brought, "tools")
    for name in ("plug_fine", "plug_text"):
        with pytest.raises(ValueError, match=rf"'{name}' must be a tool: got plug_good 0\.9 "):
            tl.Lab("sim/agent", tools=[name])
    with pytest.raises(ValueError, match=r"unknown tool 'plug_tool'; .*plug_fine, plug_text"):
        tl.Lab("sim/agent", tools=["plug_tool"])


# Further names.


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("reactive", tl.ReAct),
        ("reflexion", tl.Reflexion),
        ("plan-execute-reflect", tl.PlanExecute),
        ("tree-of-thought", tl.TreeThenAct),
        ("adaptive", tl.Adaptive),
    ],
)
def test_the_designs_names_are_strategies(name, kind):
    made = tl.part_of({"kind": name})
    assert type(made) is kind
    assert tl.part_of(json.loads(json.dumps(made.settings()))) == made
    assert tl.BestOf(strategy=name).strategy == made


def test_settings_go_with_a_name():
    assert tl.part_of({"kind": "reactive", "max_iterations": 5}) == tl.ReAct(max_iterations=5)


def test_a_further_name_may_not_be_another_kind(packages):
    with pytest.raises(TypeError, match=rf"kind 'beam' of {__name__}\..*is taken"):

        class Mine(tl.OneAnswer):
            aliases = ("beam",)

    assert "mine" not in REGISTRY


# In a browser, at the end: until its module ends, the browser keeps an event loop running.


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # jupyter_client's own
def test_a_task_of_a_package_is_run_from_the_panel_in_a_browser(installed, fresh_notebook):
    begin = f"import sys\nsys.path.insert(0, {str(installed)!r})\nimport tot_lab as tl"
    book = fresh_notebook(begin, 'shown = tl.panel(tl.Lab("sim/acme_climb", runs=None))\nshown')
    book.run(0)
    book.run(1)

    def field(name):
        return book.page.get_by_label(name, exact=True)

    expect(field("task")).to_have_value("acme_climb")
    expect(field("problem").locator("option")).to_have_text(["1. 3", "2. 6", "3. 20", "another problem"])
    for name, choice in (
        ("propose", "Two"),
        ("evaluate", "Length"),
        ("search", "Greedy"),
        ("answer", "Last"),
    ):
        field(name).select_option(choice)
    field("problem").select_option("another problem")
    field("another problem").fill("8")
    field("another problem").press("Tab")
    soon(lambda: 'question="8"' in book.value("shown.code"))
    book.page.get_by_role("button", name="Run", exact=True).click()
    soon(lambda: book.value("shown.run is not None"))
    expect(book.page.locator(".tl-root")).to_be_visible()
    kinds = "[getattr(shown.run.strategy, axis).kind for axis in ('propose', 'evaluate', 'search', 'answer')]"
    assert book.value(kinds) == PARTS[1:]
    assert book.value("shown.run.task.settings()['domain']") == {"kind": "acme_climb", "start": 1}
    assert book.value("[shown.run.question, shown.run.correct is not None, len(shown.run.tree) > 2]") == [
        "8", True, True,
    ]  # fmt: skip
    field("strategy").select_option("Twice")
    soon(lambda: "Twice()" in book.value("shown.code"))
    book.page.get_by_role("button", name="Run", exact=True).click()
    soon(lambda: book.value("shown.run.strategy.kind") == "acme_twice")
    assert book.value("[shown.run.answer, shown.run.correct]") == ["double, double, double", True]
    expect(book.page.get_by_role("status").filter(has_text="answered: ")).to_be_visible()
