"""What an installed package brings: found by name, imported when it is asked for, and harmless when broken.

One tiny package is really built and installed by pip, without a network; how packages go wrong is shown with
metadata written by hand."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import tot_lab as tl
from tot_lab.core import registry
from tot_lab.core.parts import REGISTRY, class_of

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent

CODE = '''
"""A search, a domain, a model and a tool."""
import tot_lab as tl
from tot_lab.core.records import Thought, parent_of
from tot_lab.tools import Tool


class Twice(tl.Prompting):
    """Ask twice and keep the longer answer."""

    kind = "acme_twice"
    aliases = ("acme-again",)
    draws: int = 2

    def think(self, task, at="0"):
        yield Thought(at, parent_of(at), task.question)
        prompt = task.answer_prompt(False)
        replies = yield from tl.gather(
            [tl.ask(self.call(at, "answer", prompt, draw)) for draw in range(self.draws)], at_most=1
        )
        for reply in replies:
            if reply.error is not None and reply.error.startswith(("budget:", "cancelled")):
                return tl.Answer("", reply.error)
        best = max(replies, key=lambda reply: len(reply.text))
        if best.error is not None:
            return tl.Answer("", "error")
        thought = yield from tl.emit(Thought(f"{at}.0", at, best.text))
        return tl.Answer(task.domain.read_answer(task, thought.text) or "", "answered", thought.id)

    def max_calls(self, task):
        return self.draws


class Echo(tl.Domain):
    """Say the same again."""

    kind = "acme_echo"
    loud: bool = False

    def answer_prompt(self, task, reasoning):
        return f"{self.statement(task)}{'!' if self.loud else ''}"

    def grade(self, task, answer):
        return float(answer == self.answer_prompt(task, False))


class Parrot(tl.Part):
    """A model that says what it is told."""

    kind = "acme/parrot"

    async def __call__(self, call):
        return call.prompt


class Reverse(Tool):
    """Turns a text round."""

    kind = "acme_reverse"
    name: str = "reverse"

    def carry_out(self, arguments, context):
        return arguments["text"][::-1]


@tl.tool
def search_of_acme(words: str) -> str:
    """Looks for words."""
    return f"nothing about {words}"


def legs(spiders: int) -> int:
    """Counts legs."""
    return 8 * spiders


BOTH = [Reverse(), search_of_acme]
'''

FILES = {
    "search.py": """
        from tot_lab.strategies.search import Pick, Search
        from tot_lab.strategies.search.searches import expansions_of_all


        class Greedy(Search):
            '''Goes on from the best thought of each level.'''

            kind = "acme_greedy"

            def run(self, state):
                level = [state.root]
                while level:
                    children = yield Pick(level)
                    kept = yield from state.keep_best(children, 1)
                    level = state.open(kept)

            def max_expansions(self, branch, depth):
                return depth

            def max_picks(self, branch, depth):
                return depth
        """,
    "proposer.py": """
        from tot_lab.strategies.search import Sample


        class Two(Sample):
            '''Samples two thoughts.'''

            kind = "acme_two"
            count: int = 2
        """,
    "evaluator.py": """
        from tot_lab.core.records import Scored
        from tot_lab.core.thinking import emit
        from tot_lab.strategies.search import Evaluator


        class Length(Evaluator):
            '''Prefers long thoughts.'''

            kind = "acme_length"

            def score_thought(self, sampler, path, id):
                score = min(len(path[-1]) / 1000, 1.0)
                return [(yield from emit(Scored(id, score, by=self.kind)))]
        """,
    "figure.py": """
        def plot_depths(run):
            import plotly.graph_objects as go
            return go.Figure(go.Histogram(x=[node.depth for node in run.tree]))
        """,
    "importer.py": """
        from pathlib import Path
        import tot_lab as tl


        class Chat:
            '''Reads logs whose lines are thoughts.'''

            @staticmethod
            def recognises(head):
                return head.startswith(b"ACME CHAT")

            @staticmethod
            def read(path):
                recorder = tl.Recorder("acme chat")
                node = None
                for line in Path(path).read_text().splitlines()[1:]:
                    node = recorder.thought(line, node)
                recorder.end(line, node=node)
                return recorder.run
        """,
    "voice.py": """
        import tot_lab as tl


        class Voice(tl.Part):
            '''A model that says one thing, which its name says: `acme:WORDS`.'''

            kind = "acme_voice"
            words: str = ""

            @classmethod
            def named(cls, rest):
                return cls(words=rest)

            async def __call__(self, call):
                return f"{self.words} {call.sample_index}"
        """,
}

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "acme-lab"
version = "1.2.3"

[project.entry-points."tot_lab.strategies"]
acme_twice = "acme_lab:Twice"
acme-again = "acme_lab:Twice"

[project.entry-points."tot_lab.searches"]
acme_greedy = "acme_lab.search:Greedy"

[project.entry-points."tot_lab.proposers"]
acme_two = "acme_lab.proposer:Two"

[project.entry-points."tot_lab.evaluators"]
acme_length = "acme_lab.evaluator:Length"

[project.entry-points."tot_lab.figures"]
depths = "acme_lab.figure:plot_depths"

[project.entry-points."tot_lab.importers"]
acme_chat = "acme_lab.importer:Chat"

[project.entry-points."tot_lab.domains"]
acme_echo = "acme_lab:Echo"

[project.entry-points."tot_lab.models"]
"acme/parrot" = "acme_lab:Parrot"
"acme:" = "acme_lab.voice:Voice"

[project.entry-points."tot_lab.tools"]
acme_reverse = "acme_lab:Reverse"
search_of_acme = "acme_lab:search_of_acme"
acme_legs = "acme_lab:legs"
acme_echo_tools = "acme_lab:BOTH"
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder that pip has installed the package into."""
    source, target = tmp_path_factory.mktemp("acme-lab"), tmp_path_factory.mktemp("installed")
    (source / "pyproject.toml").write_text(PROJECT)
    (source / "acme_lab").mkdir()
    (source / "acme_lab" / "__init__.py").write_text(CODE)
    for name, code in FILES.items():
        (source / "acme_lab" / name).write_text(textwrap.dedent(code))
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


def test_a_strategy_of_a_package_runs_by_name_from_a_file_and_in_a_sweep(installed, tmp_path):
    out = python(
        installed,
        """
        import asyncio, json, sys
        import tot_lab as tl
        assert "acme_lab" not in sys.modules, "imported because it was there"
        inner = '{"kind": "acme_twice", "draws": 3}'
        strategy = tl.part_of(json.loads('{"kind": "best_of", "strategy": %s, "attempts": 2}' % inner))
        assert strategy.strategy.draws == 3 and "acme_lab" in sys.modules
        task = tl.Task(domain={"kind": "acme_echo"}, question="hello", reference="")
        lab = tl.Lab("acme/parrot", tools=["acme_reverse", "search_of_acme", "acme_legs", "calculator"])
        assert list(lab.gateway.toolbox.tools) == ["reverse", "search-of-acme", "legs", "calculator"]
        run = asyncio.run(lab.run(strategy.strategy, task))
        assert (run.answer, run.correct, run.usage.calls) == ("hello", True, 3)
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
    assert shown.split() == ["acme_lab", "True"]


def test_the_shell_takes_what_a_package_brings(installed, tmp_path):
    words = [
        "run",
        "acme_twice",
        "draws=3",
        "--task",
        "acme_echo",
        "hello",
        "loud=true",
        "--model",
        "acme/parrot",
    ]
    out = python(installed, "", tmp_path, "-m", "tot_lab", *words)
    assert "hello!" in out
    words = [
        "sweep",
        "acme-again",
        "draws=1,2",
        "reactive",
        "--task",
        "acme_echo",
        "hello",
        "--model",
        "acme/parrot",
    ]
    out = python(installed, "", tmp_path, "-m", "tot_lab", *words)
    assert "draws=1" in out
    help_ = python(installed, "", tmp_path, "-m", "tot_lab", "run", "--help")
    assert "from installed packages: acme-again, acme/parrot, acme:, acme_chat, acme_echo" in help_


def test_the_shell_takes_a_packages_tools(installed, tmp_path):
    words = ["run", "tool_loop", "--task", "acme_echo", "hi", "--model", "acme/parrot", "--out", "a.jsonl"]
    words += ["--tools", "acme_echo_tools,acme_legs"]
    python(installed, "", tmp_path, "-m", "tot_lab", *words)
    assert list(tl.load(tmp_path / "a.jsonl").header.tools) == ["reverse", "search-of-acme", "legs"]


def test_a_strategy_of_a_package_is_held_to_the_contract(installed, tmp_path):
    code = """
        import tot_lab as tl
        from tot_lab.testing import check_strategy
        check_strategy(tl.part_of({"kind": "acme_twice"}))
        """
    python(installed, code, tmp_path)


AXES = '{"propose": "acme_two", "evaluate": "acme_length", "search": "acme_greedy"}'


def test_the_axes_of_a_search_may_come_from_a_package(installed, tmp_path):
    words = ["run", "tree_of_thoughts", "propose=acme_two", "evaluate=acme_length", "search=acme_greedy"]
    words += ["--task", "general", "Count.", "--model", "acme:one", "--out", "a.jsonl"]
    out = python(installed, "", tmp_path, "-m", "tot_lab", *words)
    assert "one" in out
    made = python(
        installed,
        """
        import asyncio, sys
        import tot_lab as tl
        run = tl.load("a.jsonl")
        assert "acme_lab" not in sys.modules, "imported by looking at a file"
        assert run.plot("depths").data[0].type == "histogram"
        assert run.plot("tree").data
        assert (run.strategy.propose.kind, run.strategy.search.kind) == ("acme_two", "acme_greedy")
        assert asyncio.run(run.replay()).identical
        run.save_html("a.html")
        print(run.usage.calls, run.tree["0.0"].by, run.model)
        """,
        tmp_path,
    )
    assert made.split() == ["6", "acme_length", "acme_voice"]
    assert (tmp_path / "a.html").stat().st_size > 10_000


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


def test_the_panel_offers_what_a_package_brings(installed, tmp_path):
    code = """
        from tot_lab.views.explorer.forms import form_classes
        print([part.kind for part in form_classes() if part.kind.startswith("acme")])
        """
    shown = python(installed, code, tmp_path)
    assert shown.strip() == "['acme_twice', 'acme_two', 'acme_length', 'acme_greedy']"


def test_the_axes_of_a_package_are_held_to_the_contract(installed, tmp_path):
    code = f"""
        import json
        import tot_lab as tl
        from tot_lab.testing import check_strategy
        check_strategy(tl.TreeOfThoughts(**json.loads({AXES!r})))
        """
    python(installed, code, tmp_path)


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
    with pytest.raises(ValueError, match=r"plug_\w+ 0\.9 .* and plug_\w+ 0\.9 .*uninstall one"):
        tl.part_of({"kind": "plug_fine"})


def test_no_package_replaces_what_is_there(packages):
    packages("plug_thief", "open('stolen', 'w')", {"beam": "plug_thief:Beam", "sim/game24": "plug_thief"})
    assert tl.part_of({"kind": "beam"}) == tl.BeamSearch()
    assert tl.Lab("sim/game24", runs=None).model == tl.sim.SimGame24()
    assert "plug_thief" not in sys.modules


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
    with pytest.raises(TypeError, match=r"kind 'beam' of test_plugins.*is taken"):

        class Mine(tl.OneAnswer):
            aliases = ("beam",)

    assert "mine" not in REGISTRY
